"""Fits in the cone of positive semidefinite matrices, and proofs that none exists."""
