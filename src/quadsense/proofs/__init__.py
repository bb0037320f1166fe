"""What is proved from the data alone, with every rounding counted; below the methods.

Methods, `solve` and `verify` call the same functions: `rounding` bounds residuals, `adjoint` what
is left of ``F*(y)``, `definite` proves by Cholesky, `symmetric` and `positive` say what a dual
vector rules out, `infeasible` and `lower` put that to the user's data, `spectral` bounds the
distance to the truth, `hitting` is for rows that may be set aside.
"""
