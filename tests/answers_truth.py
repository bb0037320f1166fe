"""What is true of a case of `answers`, by CVXPY with Clarabel and by HiGHS; nothing of the package.

Everything is computed in the unit `case.size`, in an orthonormal basis of the symmetric (Hermitian)
matrices, and handed back in the user's units.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import programs
from answers import Case

EDGE = 1e-4
"""How far from the edge of feasibility a case must be to be judged."""

TIGHT = (1e-10, 1e-9, 1e-8)
"""Tolerances of the solver, the first that it reaches."""


class Unsure(Exception):
    """The solver does not say."""


@dataclass(frozen=True)
class Model:
    """The case as rows ``lo <= G x <= hi`` in the unit of its size.

    Attributes
    ----------
    G : ndarray of shape (p, N)
        The m readings, then trace and constraints.
    lo, hi, reading, weights : ndarray of shape (p,)
        Weights of `least_squares`, 0 where a row adds nothing.
    hard : ndarray of bool, shape (p,)
        Constraints, and equalities.
    """

    case: Case
    G: Any
    lo: Any
    hi: Any
    reading: Any
    weights: Any
    hard: Any
    whole: Any = None  # before rows were set aside

    @property
    def m(self) -> int:
        """Number of readings."""
        return len(self.case.U if self.case.mix is None else self.case.mix)

    @property
    def sizes(self) -> Any:
        """Frobenius norms of what the readings are of: ``||u_i||^2`` of plain rows."""
        return np.linalg.norm(self.G[: self.m], axis=1)

    def without(self, rows: Any) -> Model:
        """The same, those readings being asked for nothing."""
        aside = np.isin(np.arange(self.lo.size), rows)
        lo, hi = np.where(aside, -np.inf, self.lo), np.where(aside, np.inf, self.hi)
        weights = np.where(aside, 0.0, self.weights)
        hard = self.hard & ~aside
        return replace(self, lo=lo, hi=hi, weights=weights, hard=hard, whole=self)

    @cached_property
    def basis(self) -> Any:
        """Orthonormal basis: (N, n, n)."""
        held = programs.basis(self.case.n, np.iscomplexobj(self.case.U))
        return np.stack([E / np.linalg.norm(E) for E in held])

    def coordinates(self, A: Any) -> Any:
        return np.einsum("kij,ij->k", self.basis.conj(), A).real

    def matrix(self, x: Any) -> Any:
        return np.einsum("k,kij->ij", x, self.basis)

    @property
    def equal(self) -> Any:
        return self.lo == self.hi

    @property
    def half(self) -> Any:
        """Half-widths, infinite where an end is."""
        return (self.hi - self.lo) / 2.0

    def cone(self, x: cp.Variable) -> Any:
        """A as an expression, a Hermitian one as a real matrix of twice the order."""
        E = np.stack([programs.embedded(B) for B in self.basis])
        order = E.shape[1]
        return cp.reshape(E.reshape(len(E), -1).T @ x, (order, order), order="C")


def model(case: Case) -> Model:
    """What the arguments mean."""
    size, question, W = case.size, case.question, case.mix
    complex_ = np.iscomplexobj(case.U)
    basis = [E / np.linalg.norm(E) for E in programs.basis(case.n, complex_)]
    forms = [np.einsum("ij,jk,ik->i", case.U.conj(), E, case.U).real for E in basis]
    G = np.stack(forms, axis=1)
    G = G if W is None else W @ G
    m = len(G)
    b = None if case.b is None else case.b / size
    reading = np.zeros(m) if b is None else b
    if "bounds" in question:
        lo, hi = (np.broadcast_to(end, m) / size for end in question["bounds"])
        if b is None:
            both = np.isfinite(lo) & np.isfinite(hi)
            reading = np.where(both, (np.where(both, lo, 0.0) + np.where(both, hi, 0.0)) / 2, 0.0)
    elif case.has_tolerance:
        width = question.get("delta", 0.0) / size + question.get("rtol", 0.0) * np.abs(reading)
        lo, hi = reading - width, reading + width
    else:
        lo, hi = np.full(m, -np.inf), np.full(m, np.inf)
    equal = lo == hi
    power = 1 if case.preference.get("slack") in ("max", "sum") else 2  # of the unit, in a weight
    weights = np.broadcast_to(question.get("weights", 1.0), m) * size**power
    if "slack" not in case.preference and case.has_tolerance:
        upper, lower = np.isfinite(hi), np.isfinite(lo)
        counts = upper & lower
        if "weights" not in question:
            weights = 4.0 / np.where(counts & (lo < hi), hi - lo, np.inf) ** 2
        elif b is not None:
            counts = upper | lower  # a row with one end counts where it is given a weight
        weights = np.where(counts, weights, 0.0)
    extra, ends = [], []
    if "trace" in question:
        value = question["trace"]
        extra.append(np.eye(case.n))
        ends.append(value if isinstance(value, tuple) else (value, value))
    extra += case.matrices
    ends += [(low, high) for _, low, high in question.get("constraints", [])]
    k = len(extra)
    if k:
        held = np.array([[np.vdot(C, E).real for E in basis] for C in extra])
        G = np.vstack([G, held])
        lo = np.append(lo, [low / size for low, _ in ends])
        hi = np.append(hi, [high / size for _, high in ends])
    hard = np.append(equal, np.ones(k, bool)).astype(bool)
    weights, reading = np.append(weights, np.zeros(k)), np.append(reading, np.zeros(k))
    return Model(case, G, lo, hi, reading, np.where(hard, 0.0, weights), hard)


def units(squares: Any, lo: Any, hi: Any) -> Any:
    """Half-widths; for a row of one end, of unit norm, the median of those or 1% of the ends."""
    both = np.isfinite(lo) & np.isfinite(hi) & (lo < hi)
    half = (np.where(both, hi, 2.0) - np.where(both, lo, 0.0)) / 2.0
    if both.any():
        typical = float(np.median((half / squares)[both]))
    else:
        ends = np.where(np.isfinite(hi), hi, np.where(np.isfinite(lo), lo, 0.0))
        typical = 0.01 * float(np.max(np.abs(ends) / squares)) or 1.0
    return np.where(both, half, typical * squares)


BETA, DETERMINED = 0.35, 1.5
"""Strength of the pull, and readings per unknown from which a cone needs none."""


@dataclass(frozen=True)
class Pull:
    """What pulls A: ``strength ||A - tau I||^2``, or that times 2v times the relative entropy."""

    tau: float
    v: float
    kappa: float


def telling(q: Model) -> float:
    """Readings per unknown: those with a weight, and equalities."""
    q = q.whole or q
    return float(np.count_nonzero(q.weights) + np.count_nonzero(q.equal)) / q.G.shape[1]


def pull(q: Model) -> Pull:
    """The pull of the default rule, on readings of rows of unit norm."""
    q = q.whole or q  # rows that are set aside had their share in it
    known = np.flatnonzero(q.weights[: q.m] > 0.0)
    if not known.size:
        raise Unsure("nothing but equalities and ends")
    sizes = np.linalg.norm(q.G[known], axis=1)
    rows, b = q.G[known] / sizes[:, None], q.reading[known] / sizes
    half = q.half[known]
    given = "weights" in q.case.question
    two = np.isfinite(half)
    kappa = float(np.mean((q.weights[known] * half**2)[two])) / 3.0 if two.any() else 1.0 / 3.0
    s = np.sqrt(kappa / q.weights[known]) / sizes if given else half / sizes / math.sqrt(3.0)
    w = 1.0 / np.maximum(s, np.median(s)) ** 2
    identity = rows @ q.coordinates(np.eye(q.case.n))
    total = float(w @ identity**2)
    tau = float(w @ (identity * b)) / total if total > 0.0 else 0.0
    rms = math.sqrt(float(w @ b**2 / np.sum(w)))
    trace = q.case.question.get("trace")
    if q.case.psd:
        if isinstance(trace, float) and trace > 0.0:
            tau = trace / q.case.size / q.case.n
        elif tau <= 0.0:
            tau = 1e-3 * rms
    v = float(w @ (b - tau * identity) ** 2 / np.sum(w))
    if v <= 1e-12 * rms**2:
        raise Unsure("a multiple of I fits: the pull has no strength")
    return Pull(tau, v, kappa)


def solve(objective: Any, constraints: list[Any]) -> str:
    """CVXPY's status, an accurate one; `Unsure` where it fails."""
    problem, status = cp.Problem(objective, constraints), ""
    for tol in TIGHT:
        try:
            problem.solve(
                solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol,
                tol_infeas_abs=1e-8, tol_infeas_rel=1e-8, max_iter=200,
            )  # fmt: skip
        except cp.SolverError as error:
            raise Unsure(str(error)) from error
        status = str(problem.status)
        if status in (cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED):
            return status
    raise Unsure(status)


def within(v: Any, lo: Any, hi: Any, which: Any, room: Any = 0.0, unit: Any = None) -> list[Any]:
    """Rows `which` of v within their intervals, widened by `room` units."""
    unit = np.ones(lo.size) if unit is None else unit
    out = []
    equal = which & (lo == hi) & (unit == 0 if isinstance(room, cp.Expression) else True)
    for sign, end in ((1.0, hi), (-1.0, -lo)):
        rows = np.flatnonzero(which & np.isfinite(end) & ~equal)
        if rows.size:
            out.append(sign * v[rows] <= end[rows] + room * unit[rows])
    if equal.any():
        rows = np.flatnonzero(equal)
        out.append(v[rows] == lo[rows])
    return out


def slack(q: Model, soft_equalities: bool, rows: Any) -> float:
    """The least t with every interval widened by t of its units, and ``A >= -t I``.

    A unit is the half-width, or 1 for one end; equalities are hard, or have the unit 1.
    """
    x, t = cp.Variable(q.G.shape[1]), cp.Variable()
    unit = np.where(np.isfinite(q.half), q.half, 1.0)
    unit = np.where(q.equal, 1.0 if soft_equalities else 0.0, unit)
    constraints = [t >= -0.5, *within(q.G @ x, q.lo, q.hi, rows, t, unit)]
    if q.case.psd:
        A = q.cone(x)
        constraints.append(A + t * np.eye(A.shape[0]) >> 0)
    status = solve(cp.Minimize(t), constraints)
    if status == cp.INFEASIBLE:
        return math.inf
    if status != cp.OPTIMAL:
        raise Unsure(status)
    return float(t.value)


def verdict(q: Model, soft: bool) -> str:
    """ "feasible", "infeasible" or "edge": of all rows, or of the hard ones alone where soft."""
    rows = q.hard if soft else np.ones(q.lo.size, bool)
    least = slack(q, False, rows)
    if least <= -EDGE:
        return "feasible"
    if least < EDGE:
        return "edge"
    return "infeasible" if slack(q, True, rows) >= EDGE else "edge"


def verdict_of_sets(q: Model) -> str:
    """The verdict where some readings may be set aside: every choice is tried."""
    found = {
        verdict(q.without(list(rows)), False)
        for rows in itertools.combinations(range(q.m), q.case.allowed)
    }
    return next(name for name in ("feasible", "edge", "infeasible") if name in found)


def bounded(q: Model) -> bool:
    """Whether the fits are a bounded set, of which there are some: no direction keeps all ends."""
    N = q.G.shape[1]
    x = cp.Variable(N)
    v = q.G @ x
    constraints = [cp.norm(x, "inf") <= 1.0]
    for sign, end in ((1.0, q.hi), (-1.0, q.lo)):
        rows = np.flatnonzero(np.isfinite(end))
        if rows.size:
            constraints.append(sign * v[rows] <= 0.0)
    if q.case.psd:
        constraints.append(q.cone(x) >> 0)
        direction = q.coordinates(np.eye(q.case.n))
    else:
        seen = np.isfinite(q.lo) | np.isfinite(q.hi)
        if np.linalg.matrix_rank(q.G[seen]) < N:
            return False
        one = seen & ~(np.isfinite(q.lo) & np.isfinite(q.hi))
        sign = np.where(np.isfinite(q.lo), 1.0, -1.0)
        direction = (sign * one) @ q.G
    status = solve(cp.Maximize(direction @ x), constraints)
    if status != cp.OPTIMAL:
        raise Unsure(status)
    return float(direction @ x.value) <= 1e-6
