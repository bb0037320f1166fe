"""The one loop that runs every method, its history, and checkpoints."""
