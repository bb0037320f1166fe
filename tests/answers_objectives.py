"""The best objective of every preference and slack, and ends of intervals, by CVXPY and HiGHS."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
from answers_truth import BETA, DETERMINED, Model, Unsure, pull, solve, telling, within
from scipy.optimize import linprog

FREE = ("least_squares", "minimax")
"""What may be asked for without a tolerance."""


def best(q: Model, prefer: str) -> float:
    """The value of the best A in the user's units: least, or largest for "center"."""
    size, n, N = q.case.size, q.case.n, q.G.shape[1]
    x = cp.Variable(N)
    v = q.G @ x
    every = np.ones(q.lo.size, bool)
    constraints, cost = within(v, q.lo, q.hi, every), None
    if q.case.psd:
        constraints.append(q.cone(x) >> 0)
    if prefer in ("least_squares", "entropy"):
        root = np.sqrt(q.weights)
        cost = cp.sum_squares(cp.multiply(root, v) - root * q.reading) + _pulled(q, x, prefer)
        found = _value(cp.Minimize(cost), constraints)
        if prefer == "entropy":  # of A in its own unit
            found -= 2.0 * BETA * pull(q).kappa * n * math.log(size)
        return found
    if prefer == "nearest":
        if "prior" in q.case.preference:
            return size * _value(cp.Minimize(cp.norm(x - _prior(q))), constraints)
        raise Unsure("nearest to the best multiple of I, which the result states")
    if prefer == "min_trace":
        return size * _value(cp.Minimize(q.coordinates(np.eye(n)) @ x), constraints)
    if prefer == "minimax":
        return _minimax(q, x, v)
    if prefer == "center":
        return _center(q, x, v, constraints)
    raise ValueError(prefer)


def _pulled(q: Model, x: Any, prefer: str) -> Any:
    """What least squares adds for A: a given ridge, or the pull of the default rule."""
    size, n, preference = q.case.size, q.case.n, q.case.preference
    if "ridge" in preference and prefer == "least_squares":
        return preference["ridge"] * size**2 * cp.sum_squares(x - _prior(q))
    if prefer == "least_squares" and (not q.case.has_tolerance or _needs_none(q)):
        return 0.0
    if not q.case.has_tolerance:
        raise Unsure("a pull that vanishes")
    found = pull(q)
    identity = q.coordinates(np.eye(n))
    if prefer == "least_squares":
        goal = _prior(q) if "prior" in preference else found.tau * identity
        return found.kappa * BETA / found.v * cp.sum_squares(x - goal)
    linear = identity / found.tau
    if "prior" in preference:
        linear = q.coordinates(np.linalg.inv(preference["prior"] / size))
    if isinstance(q.case.question.get("trace"), float):
        linear = 0.0 * identity
    A = q.cone(x)
    return 2.0 * found.kappa * BETA * (linear @ x - cp.log_det(A) * (n / A.shape[0]))


def _needs_none(q: Model) -> bool:
    return q.case.psd and telling(q) >= DETERMINED


def nearest_to(q: Model, prior: Any) -> float:
    """The least distance of a fit from this matrix."""
    x = cp.Variable(q.G.shape[1])
    constraints = within(q.G @ x, q.lo, q.hi, np.ones(q.lo.size, bool))
    if q.case.psd:
        constraints.append(q.cone(x) >> 0)
    goal = q.coordinates(np.asarray(prior) / q.case.size)
    return q.case.size * _value(cp.Minimize(cp.norm(x - goal)), constraints)


def _prior(q: Model) -> Any:
    prior = q.case.preference.get("prior")
    zero = np.zeros(q.G.shape[1])
    return zero if prior is None else q.coordinates(prior / q.case.size)


def _minimax(q: Model, x: Any, v: Any) -> float:
    """The least worst ratio; without a tolerance, the least worst error.

    The ends of rows with one end, of equalities and of constraints hold; they have no ratio.
    """
    t = cp.Variable()
    rows = np.arange(q.lo.size) < q.m
    if q.case.has_tolerance:
        rows &= np.isfinite(q.half) & ~q.equal
        middle = (np.where(rows, q.lo, 0.0) + np.where(rows, q.hi, 0.0)) / 2.0
        unit = q.half
    else:
        middle, unit = q.reading, np.ones(q.lo.size)
    which = np.flatnonzero(rows)
    constraints = [t >= 0.0, *within(v, q.lo, q.hi, np.ones(q.lo.size, bool))]
    if which.size:
        constraints.append(cp.abs(v[which] - middle[which]) <= t * unit[which])
    if q.case.psd:
        constraints.append(q.cone(x) >> 0)
    return _value(cp.Minimize(t), constraints) * (1.0 if q.case.has_tolerance else q.case.size)


def _center(q: Model, x: Any, v: Any, constraints: list[Any]) -> float:
    """The largest ``sum log`` of the distances from the ends, and of ``det A`` with PSD."""
    cost, ends, n = 0.0, 0, q.case.n
    for sign, end in ((1.0, q.hi), (-1.0, -q.lo)):
        rows = np.flatnonzero(np.isfinite(end) & ~q.equal)
        if rows.size:
            cost += cp.sum(cp.log(end[rows] - sign * v[rows]))
            ends += rows.size
    if q.case.psd:
        A = q.cone(x)
        cost += cp.log_det(A) * (n / A.shape[0])
        ends += n
    keep = within(v, q.lo, q.hi, q.equal)
    return _value(cp.Maximize(cost), keep) + ends * math.log(q.case.size)


def least_slack(q: Model, kind: str) -> float:
    """The least of ``max w v``, ``sum w v`` or ``sum w v^2``, v how far intervals are missed."""
    x, p = cp.Variable(q.G.shape[1]), cp.Variable(q.lo.size)
    v, w = q.G @ x, q.weights
    constraints = [p >= 0.0, *within(v, q.lo, q.hi, q.hard)]
    for sign, end in ((1.0, q.hi), (-1.0, -q.lo)):
        which = np.flatnonzero(~q.hard & np.isfinite(end))
        if which.size:
            constraints.append(sign * v[which] - end[which] <= p[which])
    if q.case.psd:
        constraints.append(q.cone(x) >> 0)
    cost = {
        "max": cp.max(cp.multiply(w, p)),
        "sum": w @ p,
        "squares": cp.sum_squares(cp.multiply(np.sqrt(w), p)),
    }[kind]
    return _value(cp.Minimize(cost), constraints)


def interval(q: Model, C: Any) -> tuple[float, float]:
    """The least and the largest ``<C, A>`` over all fits, in the user's units."""
    c = q.coordinates(C)
    ends = []
    for sign in (1.0, -1.0):
        found = _positive_end(q, sign * c) if q.case.psd else _linear_end(q, sign * c)
        ends.append(sign * found * q.case.size)
    return ends[0], ends[1]


def _positive_end(q: Model, c: Any) -> float:
    x = cp.Variable(q.G.shape[1])
    constraints = within(q.G @ x, q.lo, q.hi, np.ones(q.lo.size, bool))
    constraints.append(q.cone(x) >> 0)
    return _value(cp.Minimize(c @ x), constraints)


def _linear_end(q: Model, c: Any) -> float:
    """By HiGHS, whose presolve calls some of what is unbounded infeasible."""
    upper, lower = np.isfinite(q.hi) & ~q.equal, np.isfinite(q.lo) & ~q.equal
    for presolve in (True, False):
        found = linprog(
            c, A_ub=np.vstack([q.G[upper], -q.G[lower]]),
            b_ub=np.append(q.hi[upper], -q.lo[lower]),
            A_eq=q.G[q.equal] if q.equal.any() else None,
            b_eq=q.lo[q.equal] if q.equal.any() else None,
            bounds=(None, None), method="highs", options={"presolve": presolve},
        )  # fmt: skip
        if found.status != 2:
            break
    if found.status == 3:
        return -math.inf
    if found.status != 0:
        raise Unsure(found.message)
    return float(found.fun)


def _value(objective: Any, constraints: list[Any]) -> float:
    status = solve(objective, constraints)
    if status == cp.UNBOUNDED:
        return -math.inf if isinstance(objective, cp.Minimize) else math.inf
    if status != cp.OPTIMAL:
        raise Unsure(status)
    return float(objective.value)
