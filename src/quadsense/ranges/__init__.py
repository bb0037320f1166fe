"""Certified ranges of <C, A> over all fits, and sets of rows that contradict each other."""
