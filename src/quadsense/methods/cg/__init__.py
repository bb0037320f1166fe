"""Conjugate gradients and residuals: fits, damped least squares and the nearest matrix."""
