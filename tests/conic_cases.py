"""Random questions of every kind, and what CVXPY (Clarabel) makes of them."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from quadsense.core.question import Question

ROWS = ("within", "squares", "center", "slack_max", "slack_sum", "slack_squares")
OBJECTIVES = ("none", "trace", "matrix", "near a number", "near a matrix")


def normal(rng: np.random.Generator, shape: tuple[int, ...], complex_: bool) -> Any:
    """Standard normal, real or complex."""
    values = rng.standard_normal(shape)
    return values + 1j * rng.standard_normal(shape) if complex_ else values


def unit_rows(rng: np.random.Generator, m: int, n: int, complex_: bool) -> Any:
    """Random rows of unit norm."""
    U = normal(rng, (m, n), complex_)
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def readings(U: Any, A: Any) -> Any:
    """``u_i* A u_i``."""
    return np.einsum("ij,jk,ik->i", U.conj(), A, U).real


def drawn(seed: int) -> tuple[Any, Question]:
    """Unit rows, and a question on them that has an answer."""
    rng = np.random.default_rng(seed)
    rows, psd, complex_ = ROWS[seed % 6], bool(seed // 6 % 2), bool(seed // 12 % 2)
    objective, one_sided = OBJECTIVES[seed // 24 % 5], bool(rng.integers(2))
    n = int(rng.integers(2, 6))
    unknowns = n * n if complex_ else n * (n + 1) // 2
    m = int(rng.integers(max(2, unknowns // 2), 3 * unknowns))
    U = unit_rows(rng, m, n, complex_)
    T = normal(rng, (n, n), complex_)
    rank = int(rng.integers(1, n + 1))
    A = T[:, :rank] @ T[:, :rank].conj().T if psd else T + T.conj().T
    if rows == "center":
        A = A + 0.3 * np.eye(n)  # so that there is room
    v = readings(U, A)
    delta = np.full(m, 10.0 ** rng.uniform(-3, 0))
    if rng.random() < 0.3:
        delta = 10.0 ** rng.uniform(-3, 0, m)
    noise = rng.uniform(-0.8, 0.8, m) * delta
    if rows.startswith("slack"):
        noise *= rng.choice([0.5, 3.0, 10.0])
    lo, hi = v + noise - delta, v + noise + delta
    C, alpha, prior = _objective(rng, objective, rows, psd, U, n)
    held = bool(alpha) or (psd and rows != "center")  # whether one-sided rows leave a least
    if one_sided and (held or rows not in ("within", "center")):
        one, up = rng.random(m) < 0.5, rng.random(m) < 0.5
        lo, hi = np.where(one & up, -np.inf, lo), np.where(one & ~up, np.inf, hi)
    weights = 10.0 ** rng.uniform(-1, 1, m) if rng.integers(2) else np.ones(m)
    if rows == "squares":
        if rng.integers(2):
            lo, hi = np.full(m, -np.inf), np.full(m, np.inf)
        elif rng.random() < 0.3:
            weights = np.where(rng.random(m) < 0.3, 0.0, weights)
    reading = np.where((weights > 0) & (rows == "squares"), v + noise, 0.0)
    hard = np.zeros(m, bool)
    order = rng.permutation(m)
    equal = order[: rng.choice([0, 0, 1, 2])]
    lo[equal] = hi[equal] = v[equal]
    hard[equal] = True
    if rng.random() < 0.3:
        other = order[-1:]
        hard[other], lo[other], hi[other] = True, v[other] - 0.3, v[other] + 0.5
    log_det = psd and rows == "center" and bool(rng.random() < 0.7)
    return U, Question(
        rows, lo, hi, weights, np.where(hard, 0.0, reading), hard, C, alpha, prior, psd, log_det
    )


def _objective(
    rng: np.random.Generator, objective: str, rows: str, psd: bool, U: Any, n: int
) -> tuple[Any, float, Any]:
    complex_ = np.iscomplexobj(U)
    G = normal(rng, (n, n), complex_)
    if objective == "near a number":
        return 0.0, float(10 ** rng.uniform(-2, 1)), float(rng.uniform(-1, 1))
    if objective == "near a matrix":
        return 0.0, float(10 ** rng.uniform(-2, 1)), G + G.conj().T
    if not psd:  # of what the rows see; only where they bound it
        seen = np.einsum("i,ij,ik->jk", rng.standard_normal(len(U)), U, U.conj())
        return (seen if rows in ("within", "center") and objective != "none" else 0.0), 0.0, 0.0
    if objective == "trace":
        return float(rng.uniform(0.2, 2)), 0.0, 0.0
    return (G @ G.conj().T if objective == "matrix" else 0.0), 0.0, 0.0


def truth(U: Any, q: Question) -> float | None:
    """The least objective by Clarabel; None where it does not get to the end of it."""
    n = U.shape[1]
    A, S, constraints = cp.Variable((n, n), symmetric=True), None, []
    outer = np.einsum("ij,ik->ijk", U, U.conj())
    v = outer.real.reshape(len(U), -1) @ cp.vec(A, order="C")
    C = q.C if isinstance(q.C, np.ndarray) else q.C * np.eye(n)
    P = q.prior if isinstance(q.prior, np.ndarray) else q.prior * np.eye(n)
    cost, whole = cp.sum(cp.multiply(C.real, A)), A
    if np.iscomplexobj(U):
        S = cp.Variable((n, n))
        constraints.append(S == -S.T)
        v = v + outer.imag.reshape(len(U), -1) @ cp.vec(S, order="C")
        cost, whole = cost + cp.sum(cp.multiply(C.imag, S)), cp.bmat([[A, -S], [S, A]])
    if q.alpha:
        cost += q.alpha * cp.sum_squares(A - P.real)
        cost += 0.0 if S is None else q.alpha * cp.sum_squares(S - P.imag)
    if q.psd:
        constraints.append(whole >> 0)
    if q.log_det:
        cost -= cp.log_det(whole) / (1 if S is None else 2)
    problem = cp.Problem(cp.Minimize(cost + _rows(q, v, constraints)), constraints)
    try:
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    except cp.SolverError:
        return None
    return float(problem.value) if problem.status == "optimal" else None


def _rows(q: Question, v: Any, constraints: list[Any]) -> Any:
    """What readings cost; what they must be is added to the constraints."""
    soft, equal = q.soft, q.equal & ~q.soft
    cost = 0.0
    for i in np.flatnonzero(equal):
        constraints.append(v[i] == q.lo[i])
    upper = np.flatnonzero(np.isfinite(q.hi) & ~equal & ~soft)
    lower = np.flatnonzero(np.isfinite(q.lo) & ~equal & ~soft)
    if q.rows == "center":
        logs = [cp.log(q.hi[upper] - v[upper])] if upper.size else []
        logs += [cp.log(v[lower] - q.lo[lower])] if lower.size else []
        return -sum(cp.sum(each) for each in logs) if logs else 0.0
    constraints += [v[upper] <= q.hi[upper]] if upper.size else []
    constraints += [v[lower] >= q.lo[lower]] if lower.size else []
    if q.rows == "squares":
        k = np.flatnonzero((q.weights > 0) & ~q.hard)
        if k.size:
            cost = cp.sum(cp.multiply(q.weights[k], cp.square(v[k] - q.reading[k])))
    if soft.any():
        d = cp.Variable(q.m, nonneg=True)
        up, down = soft & np.isfinite(q.hi), soft & np.isfinite(q.lo)
        constraints += [v[up] <= q.hi[up] + d[up]] if up.any() else []
        constraints += [v[down] >= q.lo[down] - d[down]] if down.any() else []
        w = np.where(soft, q.weights, 0.0)
        if q.rows == "slack_max":
            return cp.max(cp.multiply(w, d))
        return w @ d if q.rows == "slack_sum" else cp.sum(cp.multiply(w, cp.square(d)))
    return cost
