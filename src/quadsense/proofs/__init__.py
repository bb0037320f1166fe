"""What is proved from the data alone, with every rounding counted; below the methods.

Methods, `solve` and `verify` call the same functions: `rounding` bounds residuals and what is left
of ``F*(y)``, `definite` proves by Cholesky, `symmetric` and `positive` say what a dual vector rules
out, `infeasible` puts that to the user's data, `costs` and `objective` bound objectives, `rays`
proves that there is no bound, and `spectral` bounds the distance to the truth.
"""
