"""The result: matrix, certificate, objective, what a check found, and their words."""
