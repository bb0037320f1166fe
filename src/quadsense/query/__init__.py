"""What was asked: arguments checked, which A is meant, the plan of methods."""
