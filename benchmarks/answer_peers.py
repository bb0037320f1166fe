"""What users would otherwise call for one A of all that fit: CVXPY, SciPy, plain descents."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

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


def cvxpy_covariance(U: Array, b: Array, eps: float = 1e-6, seconds: float = 600.0) -> Array:
    """The positive semidefinite matrix of least squares, by CVXPY with SCS to `eps`."""
    import cvxpy as cp

    n = U.shape[1]
    j, k = np.triu_indices(n)
    root = np.sqrt(np.where(j == k, 1.0, 2.0))  # coordinates in which norms are Frobenius norms
    G = U[:, j] * U[:, k] * root
    x = cp.Variable(j.size)
    spread = np.zeros((n * n, j.size))
    spread[j * n + k, np.arange(j.size)] = spread[k * n + j, np.arange(j.size)] = 1.0 / root
    A = cp.reshape(sp.csr_matrix(spread) @ x, (n, n), order="C")
    problem = cp.Problem(cp.Minimize(cp.sum_squares(G @ x - b)), [A >> 0])
    problem.solve(solver=cp.SCS, eps_abs=eps, eps_rel=eps, time_limit_secs=seconds, max_iters=10**7)
    return np.asarray(A.value)


def cvxpy_state(
    U: Array, b: Array, lo: Array, hi: Array, eps: float = 1e-8, seconds: float = 300.0
) -> tuple[Array, bool]:
    """The state nearest to readings by weighted least squares, by CVXPY with SCS to `eps`.

    The squares are handed over as those of a triangular factor, and of the intervals only those
    that the least squares cross, added until none is: the same question, of a size that a
    first-order method ends with tight tolerances. Whether all of it ended.
    """
    import cvxpy as cp

    n = U.shape[1]
    j, k = np.triu_indices(n, 1)
    pairs = 2.0 * U[:, j].conj() * U[:, k]  # A_jk = B + iC there: Re B - Im C
    G = np.hstack([np.abs(U) ** 2, pairs.real, -pairs.imag])
    root = 2.0 / (hi - lo)
    Q, R = np.linalg.qr(root[:, None] * G)
    right = Q.T @ (root * b)
    # x to the real symmetric matrix [[B, -C], [C, B]] of order 2n.
    d, first, last = np.arange(n), n + np.arange(j.size), n + j.size + np.arange(j.size)
    entries = [(d, d, d, 1.0), (j, k, first, 1.0), (k, j, first, 1.0)]
    entries = [(r + s, c + s, x, v) for r, c, x, v in entries for s in (0, n)]
    entries += [(j, k + n, last, -1.0), (k, j + n, last, 1.0)]
    entries += [(k + n, j, last, -1.0), (j + n, k, last, 1.0)]
    rows = np.concatenate([r + 2 * n * c for r, c, _, _ in entries])
    columns = np.concatenate([x for _, _, x, _ in entries])
    values = np.concatenate([np.full(x.size, v) for _, _, x, v in entries])
    spread = sp.csr_matrix((values, (rows, columns)), shape=(4 * n * n, n * n))
    held = np.zeros(len(U), bool)
    for _ in range(20):
        x = cp.Variable(n * n)
        embedded = cp.reshape(spread @ x, (2 * n, 2 * n), order="F")
        constraints = [embedded >> 0, cp.sum(x[:n]) == 1.0]
        if held.any():
            constraints += [G[held] @ x >= lo[held], G[held] @ x <= hi[held]]
        problem = cp.Problem(cp.Minimize(cp.sum_squares(R @ x - right)), constraints)
        problem.solve(solver=cp.SCS, eps_abs=eps, eps_rel=eps, max_iters=10**7,
                      time_limit_secs=seconds)  # fmt: skip
        read = G @ x.value
        beyond = np.maximum(lo - read, read - hi) > 1e-6 * (hi - lo)
        if problem.status != cp.OPTIMAL or not np.any(beyond & ~held):
            break
        held |= beyond
    A = np.zeros((n, n), complex)
    A[j, k] = x.value[first] + 1j * x.value[last]
    A = A + A.conj().T
    A[d, d] = x.value[:n]
    return A, problem.status == cp.OPTIMAL and not bool(np.any(beyond & ~held))


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
