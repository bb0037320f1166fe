"""What each method says of itself, apart from its mathematics: a plan needs all of it at once."""
