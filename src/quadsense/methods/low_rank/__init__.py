"""Fits of low rank by descent on a factor."""
