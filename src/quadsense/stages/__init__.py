"""The path of a solve: the plan's methods in turn, what follows where nothing fits, the result."""
