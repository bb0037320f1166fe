"""Conjugate residuals behind `cg`: products, preconditioner, forecast."""
