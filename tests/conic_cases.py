"""Random questions of every kind, and what CVXPY (Clarabel) makes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from quadsense import Measurements
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


class Entropy(NamedTuple):
    """Least squares with a determinant: measurements with constraints, and a question on them."""

    data: Measurements
    question: Question
    matrices: Any
    """What is read of A, row by row: ``<matrices[i], A>``, (m, n, n)."""


def entropy(seed: int) -> Entropy:
    """A question of `Entropy` that has an answer.

    Real and complex; the trace free, fixed, or between ends; bands, none, one-sided, or such that
    bind; weights of 0; equalities; constraints; a matrix for C; truths of every rank.
    """
    rng = np.random.default_rng([77, seed])
    complex_, fixed, band = bool(seed % 2), seed // 2 % 3, seed // 6 % 4
    n = int(rng.integers(2, 6))
    unknowns = n * n if complex_ else n * (n + 1) // 2
    m = int(rng.integers(max(2, unknowns // 3), 2 * unknowns))
    U = normal(rng, (m, n), complex_)
    T = normal(rng, (n, n), complex_)[:, : int(rng.integers(1, n + 1))]
    A = T @ T.conj().T + (0.1 * np.eye(n) if band == 2 or rng.random() < 0.5 else 0.0)
    v = readings(U, A)
    delta = 10.0 ** rng.uniform(-1.5, 0) * rng.uniform(0.5, 2.0, m) * np.sum(np.abs(U) ** 2, axis=1)
    noise = rng.uniform(-0.9, 0.9, m)
    weights = 1.5 / (10.0 ** rng.uniform(-1, 0) * delta * delta)
    if band == 3:  # the truth is next to most ends, and squares count little
        noise = np.where(rng.random(m) < 0.7, rng.choice([-0.9, 0.9], m), noise)
        weights = weights * 1e-3
    b = v + noise * delta
    lo, hi = b - delta, b + delta
    if band == 1:
        lo, hi = np.full(m, -np.inf), np.full(m, np.inf)
    elif band == 2:  # rows of one end count in the band alone
        one, up = rng.random(m) < 0.4, rng.random(m) < 0.5
        lo = np.where(one, np.where(up, -np.inf, lo - 2.0 * delta), lo)
        hi = np.where(one, np.where(up, hi + 2.0 * delta, np.inf), hi)
        weights = np.where(one, 0.0, weights)
    equal = np.zeros(m, bool)
    equal[rng.permutation(m)[: rng.choice([0, 0, 1, 2])]] = True
    lo, hi, weights = np.where(equal, v, lo), np.where(equal, v, hi), np.where(equal, 0.0, weights)
    total = float(np.trace(A).real)
    trace = [None, total, (0.9 * total, 1.02 * total)][fixed]
    limits, matrices = [], np.einsum("ij,ik->ijk", U, U.conj())
    if rng.random() < 0.3:
        G = normal(rng, (n, n), complex_)
        G = G + G.conj().T
        value = float(np.vdot(G, A).real)
        limits.append((G, value - 0.05, value + 0.5))
    others = [np.eye(n)] if fixed else []
    others += [G for G, _, _ in limits]
    data = Measurements(U, b, delta=1.0).constrained(trace=trace, constraints=limits)
    C: Any = 0.0 if fixed == 1 else n / total
    if fixed == 0 and rng.random() < 0.3:
        G = normal(rng, (n, n), complex_)
        C = G @ G.conj().T / n + 0.1 * np.eye(n)
    hard = data.hard.copy()
    hard[:m] = equal
    zeros = np.zeros(data.m - m)
    question = Question(
        "squares", np.append(lo, data.lo[m:]), np.append(hi, data.hi[m:]),
        np.append(weights, zeros), np.append(np.where(weights > 0.0, b, 0.0), zeros), hard, C,
        psd=True, log_det=True,
    )  # fmt: skip
    return Entropy(data, question, np.concatenate([matrices, *[G[None] for G in others]]))


def truth(U: Any, q: Question) -> float | None:
    """The least objective by Clarabel; None where it does not get to the end of it."""
    return least(np.einsum("ij,ik->ijk", U, U.conj()), q)


def least(outer: Any, q: Question) -> float | None:
    """The same, where the readings are ``<outer[i], A>``."""
    n = outer.shape[1]
    A, S, constraints = cp.Variable((n, n), symmetric=True), None, []
    v = outer.real.reshape(len(outer), -1) @ cp.vec(A, order="C")
    C = q.C if isinstance(q.C, np.ndarray) else q.C * np.eye(n)
    P = q.prior if isinstance(q.prior, np.ndarray) else q.prior * np.eye(n)
    cost, whole = cp.sum(cp.multiply(C.real, A)), A
    if np.iscomplexobj(outer):
        S = cp.Variable((n, n))
        constraints.append(S == -S.T)
        v = v + outer.imag.reshape(len(outer), -1) @ cp.vec(S, order="C")
        cost, whole = cost + cp.sum(cp.multiply(C.imag, S)), cp.bmat([[A, -S], [S, A]])
    if q.alpha:
        cost += q.alpha * cp.sum_squares(A - P.real)
        cost += 0.0 if S is None else q.alpha * cp.sum_squares(S - P.imag)
    if q.psd:
        constraints.append(whole >> 0)
    if q.log_det:
        cost -= cp.log_det(whole) / (1 if S is None else 2)
    problem = cp.Problem(cp.Minimize(cost + _rows(q, v, constraints)), constraints)
    for tolerance in (1e-10, 1e-8, 1e-7) if q.log_det and q.rows == "squares" else (1e-10,):
        same = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        try:
            problem.solve(solver="CLARABEL", **same)
        except cp.SolverError:
            continue
        if problem.status == "optimal":
            return float(problem.value)
    return None


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
