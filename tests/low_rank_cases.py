"""Degenerate data for fits of low rank."""

import numpy as np
from helpers import gaussian_rows


def low_rank(n, m, r, complex_, seed=0):
    rng = np.random.default_rng(seed)
    U, X = gaussian_rows(rng, m, n, complex_), gaussian_rows(rng, n, r, complex_)
    return rng, U, np.sum(np.abs(U.conj() @ X) ** 2, axis=1)


def first_row_zero(rng, U, b):
    U, b = U.copy(), b.copy()
    U[0] = b[0] = 0.0
    return U, b


def first_reading_huge(rng, U, b):
    return U, np.concatenate([[1e30], b[1:]])


def rows_of_any_size(rng, U, b):
    size = 10.0 ** rng.uniform(-70, 70, b.size)
    return U * size[:, None], b * size * size


DATA = {
    "plain": lambda rng, U, b: (U, b),
    "zero readings": lambda rng, U, b: (U, 0.0 * b),
    "a zero row": first_row_zero,
    "only zero rows": lambda rng, U, b: (0.0 * U, 0.0 * b),
    "duplicate rows": lambda rng, U, b: (np.repeat(U, 2, axis=0), np.repeat(b, 2)),
    "one row again and again": lambda rng, U, b: (U[[0] * b.size], b[[0] * b.size]),
    "a single row": lambda rng, U, b: (U[:1], b[:1]),
    "negative readings": lambda rng, U, b: (U, -b),
    "readings of either sign": lambda rng, U, b: (U, b * rng.choice((-1.0, 1.0), b.size)),
    "huge readings": lambda rng, U, b: (U, 1e60 * b),
    "tiny readings": lambda rng, U, b: (U, 1e-60 * b),
    "readings of any size": lambda rng, U, b: (U, b * 10.0 ** rng.uniform(-60, 60, b.size)),
    "one huge reading": first_reading_huge,
    "rows of any size": rows_of_any_size,
    "single precision": lambda rng, U, b: (
        U.astype(np.complex64 if np.iscomplexobj(U) else np.float32),
        b,
    ),
    "whole numbers": lambda rng, U, b: (np.round(3 * U.real).astype(int), np.round(b)),
    "noise": lambda rng, U, b: (U, b + 1e-3 * rng.standard_normal(b.size)),
    "parallel rows": lambda rng, U, b: (U[:, :1] * np.ones(U.shape[1]), b),
}
