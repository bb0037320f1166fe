"""Shared generators for the tests of the positive semidefinite solver."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from quadsense.core.intervals import Array, Real


def rows(rng: np.random.Generator, m: int, n: int, kind: str) -> Array:
    """Return m Gaussian rows of unit norm."""
    U = rng.standard_normal((m, n))
    if kind == "complex":
        U = U + 1j * rng.standard_normal((m, n))
    return U / np.linalg.norm(U, axis=1)[:, None]


def unknown(U: Array) -> tuple[cp.Variable, cp.Expression]:
    """Return a Hermitian variable A and the expression of its measurements."""
    n = U.shape[1]
    hermitian = np.iscomplexobj(U)
    A = cp.Variable((n, n), hermitian=True) if hermitian else cp.Variable((n, n), symmetric=True)
    values = cp.sum(cp.multiply(U.conj(), U @ A.T), axis=1)
    return A, cp.real(values) if hermitian else values


def smallest_worst_miss(U: Array, b: Real, unit: Real | float = 1.0) -> float:
    """Return ``min max_i |u_i* A u_i - b_i|/unit_i`` over ``A >= 0``, by Clarabel."""
    A, values = unknown(U)
    problem = cp.Problem(
        cp.Minimize(cp.norm(cp.multiply(values - b, 1.0 / (unit + 0.0 * b)), "inf")), [A >> 0]
    )
    problem.solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10, max_iter=200
    )
    return float(problem.value)
