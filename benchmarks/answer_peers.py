"""What users would otherwise call for one A of all that fit: CVXPY, SciPy, plain descents."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Found:
    """What a peer found.

    Attributes
    ----------
    value : float
        Its objective, as it stands.
    broken : float
        How far the worst constraint is missed, in tolerances.
    finished : bool
        False where its time was over: its seconds are then a lower bound.
    """

    value: float
    broken: float = 0.0
    finished: bool = True


def cvxpy_fit(
    U: Array, lo: Array, hi: Array, *, goal: str, solver: str, tolerance: float = 1e-4,
    seconds: float = 120.0, b: Array | None = None, weights: Array | None = None,
    trace: float | None = None, prior: Array | None = None,
) -> Found:  # fmt: skip
    """PSD least squares, minimum trace or nearest by CVXPY, compilation counted.

    Parameters
    ----------
    goal : {"least_squares", "min_trace", "nearest"}
    solver : {"CLARABEL", "SCS"}
    tolerance : float
        Of SCS; Clarabel keeps its own.
    seconds : float
        Most that the solver may take.
    """
    import cvxpy as cp

    n = U.shape[1]
    if np.iscomplexobj(U):
        A = cp.Variable((n, n), hermitian=True)
        values = cp.real(cp.sum(cp.multiply(U.conj() @ A, U), axis=1))
        total = cp.real(cp.trace(A))
        constraints = [A >> 0]
    else:
        A = cp.Variable((n, n), PSD=True)
        values = cp.sum(cp.multiply(U @ A, U), axis=1)
        total = cp.trace(A)
        constraints = []
    constraints += [values >= lo, values <= hi]
    if trace is not None:
        constraints.append(total == trace)
    if goal == "least_squares":
        assert weights is not None and b is not None
        cost = cp.sum_squares(cp.multiply(np.sqrt(weights), values - b))
    elif goal == "min_trace":
        cost = total
    else:
        cost = cp.norm(A - prior, "fro")
    options: dict[str, Any] = {"time_limit": seconds}
    if solver == "SCS":
        options = {"time_limit_secs": seconds, "eps_abs": tolerance, "eps_rel": tolerance,
                   "max_iters": 10**7}  # fmt: skip
    problem = cp.Problem(cp.Minimize(cost), constraints)
    try:
        problem.solve(solver=solver, **options)
    except cp.SolverError:
        return Found(np.nan, np.inf, False)
    if A.value is None:
        return Found(np.nan, np.inf, False)
    read = np.einsum("ij,jk,ik->i", U.conj(), A.value, U).real
    half = (hi - lo) / 2.0
    out = float(np.max(np.maximum(lo - read, read - hi) / half))
    return Found(float(problem.value), max(out, 0.0), problem.status == cp.OPTIMAL)


def features(U: Array) -> Array:
    """The sensing map of real rows on the upper triangle of A."""
    j, k = np.triu_indices(U.shape[1])
    return np.asarray(U[:, j] * U[:, k] * np.where(j == k, 1.0, 2.0))


def linear_ranges(
    U: Array, lo: Array, hi: Array, wanted: list[Array], method: str, seconds: float = 120.0
) -> tuple[list[tuple[float, float]], bool]:
    """Ranges of ``<C, A>`` over symmetric fits by SciPy's linear programming; whether all ended."""
    from scipy.optimize import linprog

    G = features(U)
    j, k = np.triu_indices(U.shape[1])
    rows, ends = np.vstack([G, -G]), np.append(hi, -lo)
    ranges, ended = [], True
    for C in wanted:
        c = C[j, k] * np.where(j == k, 1.0, 2.0)
        pair = []
        for sign in (1.0, -1.0):
            found = linprog(
                sign * c, rows, ends, bounds=(None, None), method=method,
                options={"time_limit": seconds},
            )  # fmt: skip
            ended &= found.status == 0
            pair.append(sign * found.fun if found.status == 0 else np.nan)
        ranges.append((pair[0], pair[1]))
    return ranges, ended


def fista_slack(
    U: Array, lo: Array, hi: Array, goal: float, seconds: float = 120.0
) -> tuple[float, bool]:
    """Plain FISTA on ``sum dist(F(A), [lo, hi])^2`` over A >= 0, until it is down to `goal`.

    The step is one over the Lipschitz constant, by power iteration; restarted where the objective
    rises, as everyone does.
    """
    n = U.shape[1]
    end = time.perf_counter() + seconds

    def forward(A: Array) -> Array:
        return np.asarray(np.einsum("ij,ij->i", U @ A, U))

    B = np.eye(n)
    largest = 1.0
    for _ in range(20):
        B = U.T @ (forward(B)[:, None] * U)
        largest = float(np.linalg.norm(B))
        B /= largest
    A = Y = np.zeros((n, n))
    momentum, last = 1.0, np.inf
    while time.perf_counter() < end:
        v = forward(Y)
        z = np.maximum(v - hi, 0.0) - np.maximum(lo - v, 0.0)
        step = Y - (U.T @ (z[:, None] * U)) / largest
        values, vectors = np.linalg.eigh(step)
        new = (vectors * values.clip(0.0)) @ vectors.T
        v = forward(new)
        value = float(np.sum(np.maximum(np.maximum(v - hi, lo - v), 0.0) ** 2))
        if value <= goal:
            return value, True
        if value > last:
            momentum, Y, last = 1.0, A, np.inf
            continue
        ahead = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        Y = new + (momentum - 1.0) / ahead * (new - A)
        A, momentum, last = new, ahead, value
    return last, False
