"""Random small problems over all that intervals can be, and the truth about them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from helpers import features, readings
from psd_helpers import unknown
from scipy.optimize import linprog

import quadsense


@dataclass
class Case:
    """Unit rows, middles, half-widths, existing ends (upper, lower), norms of the user's rows."""

    V: np.ndarray
    middle: np.ndarray
    half: np.ndarray
    sides: np.ndarray
    norms: np.ndarray
    scale: float

    def solve(self, **options):
        """`quadsense.solve` on the user's rows."""
        squares = self.norms**2 * self.scale
        U, b, d = self.V * self.norms[:, None], self.middle * squares, self.half * squares
        if self.sides.all():
            return quadsense.solve(U, b, delta=d, **options)
        lo = np.where(self.sides[1], b - d, -np.inf)
        hi = np.where(self.sides[0], b + d, np.inf)
        return quadsense.solve(U, bounds=(lo, hi), **options)

    def ratio(self, A):
        """Worst ratio of A, minus infinity where no row has an end."""
        z = (readings(self.V, A) - self.middle) / self.half
        return float(np.max(np.where(self.sides, [z, -z], -np.inf)))


def random_case(rng, psd):
    """Rows plain, repeated, in a subspace, axis-parallel or ill-conditioned; all kinds of ends."""
    complex_ = bool(rng.integers(2))
    n = int(rng.integers(1, 5 if psd else 7))
    size = n * n if complex_ else n * (n + 1) // 2
    m = int(rng.integers(1, 3 * size + 2))
    V = rng.standard_normal((m, n)) + (1j * rng.standard_normal((m, n)) if complex_ else 0.0)
    shape = rng.integers(6)
    if shape == 1:
        V = V[rng.integers(0, max(1, m // 2), m)]
    if shape == 2 and n > 1:
        V = V[:, : n - 1] @ rng.standard_normal((n - 1, n))
    if shape == 3:
        V = np.where(rng.random((m, n)) < 0.5, np.sign(V.real), 0.0).astype(V.dtype)
        V[~np.any(V, axis=1), 0] = 1.0
    if shape == 4:
        V = V * 10.0 ** -np.linspace(0.0, rng.uniform(0.0, 2.0), n)
    V = V / np.linalg.norm(V, axis=1)[:, None]
    X = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if complex_ else 0.0)
    signs = np.ones(n) if psd else rng.choice([-1.0, 1.0], n)
    middle = readings(V, (X * signs) @ X.conj().T)
    middle = middle / np.max(np.abs(middle))
    level = 10.0 ** rng.uniform(-4.0, 0.0)
    half = level * 10.0 ** rng.uniform(-rng.choice([0.0, 3.0, 6.0]), 0.0, m)
    middle = middle + rng.choice([0.0, 1.0, 3.0]) * half * rng.uniform(-1.0, 1.0, m)
    sides = np.ones((2, m), dtype=bool)
    kind = rng.choice(["two", "two", "upper", "lower", "mixed", "free", "pairs"])
    if kind in ("upper", "lower"):
        sides[int(kind == "upper")] = False
    if kind == "mixed":
        sides = rng.random((2, m)) < 0.6
    if kind == "free":
        sides[:, rng.random(m) < 0.3] = False
    if kind == "pairs":
        sides[0] = rng.random(m) < 0.5
        sides[1] = ~sides[0]
        middle, half = np.where(sides[0], 1.0, 2.0), np.full(m, 0.01)
    spread = rng.choice([0.0, 3.0, 80.0]) if kind == "two" else 0.0
    scale = 10.0 ** rng.choice([0.0, 0.0, rng.uniform(-60.0, 60.0)])
    return Case(V, middle, half, sides, 10.0 ** rng.uniform(-spread, spread, m), scale)


def smallest_ratio(case, psd):
    """The smallest worst ratio and a matrix, by HiGHS or Clarabel; minus 1000 if unbounded."""
    if not case.sides.any():
        return -np.inf, np.zeros((case.V.shape[1],) * 2)
    return _by_clarabel(case) if psd else _by_highs(case)


def _by_highs(case):
    G, unit = features(case.V), float(np.median(case.half))
    w = case.half[:, None] / unit
    rows = np.block([[G, -w], [-G, -w]])[case.sides.ravel()]
    right = np.concatenate([case.middle, -case.middle])[case.sides.ravel()]
    norms = np.linalg.norm(rows, axis=1)
    cost = np.append(np.zeros(G.shape[1]), 1.0)
    bounds = [(None, None)] * G.shape[1] + [(-1000.0 * unit, None)]
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(
        cost, A_ub=rows / norms[:, None], b_ub=right / norms, bounds=bounds, options=tight
    )
    if found.status != 0:
        return np.nan, None
    n, entries = case.V.shape[1], iter(found.x)
    A = np.zeros((n, n), dtype=case.V.dtype)
    for j in range(n):
        for k in range(j, n):
            A[j, k] = next(entries)
            if k > j and np.iscomplexobj(A):
                A[j, k] += 1j * next(entries)
            A[k, j] = np.conj(A[j, k])
    return found.x[-1] / unit, A


def _by_clarabel(case):
    A, values = unknown(case.V)
    unit = float(np.median(case.half))
    t, w = cp.Variable(), case.half / unit
    fits = [A >> 0, t >= -1000.0 * unit]
    for sign, there in zip((1.0, -1.0), case.sides, strict=True):
        i = np.flatnonzero(there)
        if i.size:
            fits.append(sign * (values[i] - case.middle[i]) <= t * w[i])
    tight = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11, "max_iter": 200}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cp.Problem(cp.Minimize(t), fits).solve(solver=cp.CLARABEL, **tight)
    except cp.error.SolverError:
        return np.nan, None
    if A.value is None:
        return np.nan, None
    eigenvalues, vectors = np.linalg.eigh(A.value)
    return float(t.value) / unit, (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.conj().T


def truth(case, psd):
    """Return "met" or "infeasible" where clear of the edge by 1%, else None.

    A fit counts if its own residuals say so; that there is none if the bound is reached to 5%. A
    fit whose half-widths are within a few roundings of its size is not clear of the edge either.
    """
    best, A = smallest_ratio(case, psd)
    if A is None:
        return None
    reached = case.ratio(A)
    if reached <= 0.99:
        both = case.sides.all(axis=0)
        narrowest = np.min(case.half[both], initial=np.inf)
        rounding = 1e-14 * (case.V.shape[1] + 8) * np.linalg.norm(A)
        return "met" if rounding <= 0.1 * (1.0 - max(reached, 0.0)) * narrowest else None
    return "infeasible" if best >= 1.01 and reached <= 1.05 * best else None
