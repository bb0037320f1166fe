"""What a result states of its objective, held against matrices whose objective is computed exactly.

A lower bound is false where a matrix in mind that fits does better; an upper one is false where the
matrix that is returned does worse.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import exact
import numpy as np
from generator import Case

Findings = list[tuple[str, str]]
CLOSE = 1e-9
"""Relative room for what is summed in float64: logarithms, roots, determinants."""


def objective(case: Case, result: Any, values: Any, room: Any) -> Findings:
    """Objective and bounds of a result that claims them.

    Parameters
    ----------
    values, room : list
        ``u_i* A u_i`` of the returned matrix, and what they may be wrong by.
    """
    reached, bounds = result.objective, result.objective_bounds
    if reached is None or bounds is None or case.allowed:
        return []
    lower, upper = bounds
    name, findings = str(result.prefer), []
    if any(map(math.isnan, (reached, lower, upper))):
        return [("false number", f"objective {reached}, bounds {bounds}")]
    slip = CLOSE * abs(reached) + 1e-300
    if not (lower <= reached + slip and reached <= upper + slip):
        findings.append(("false number", f"{name}: objective {reached} outside {bounds}"))
    own = cost(case, name, values, np.asarray(result.matrix), None)
    if own is not None and not any(room):
        worse = own > upper * (1 + CLOSE) + 1e-300 if name != "center" else own < lower - CLOSE * (
            1 + abs(lower))  # fmt: skip
        if worse:
            findings.append(("false number", f"{name}: is {own!r}, stated {reached!r} {bounds}"))
    other = witness(case, name)
    if other is not None:
        better = other < lower * (1 - CLOSE) - 1e-300 if name != "center" else other > upper + (
            CLOSE * (1 + abs(upper)))  # fmt: skip
        if better:
            findings.append(("wrong verdict", f"{name}: a fit has {other!r}, beyond {bounds}"))
    return findings


def witness(case: Case, name: str) -> float | None:
    """The objective of the matrix in mind, where it is one of those among which the best is."""
    if not case.known_is_factor and case.positive:
        return None
    known, is_factor = case.known, case.known_is_factor
    values = case.values(known, is_factor)
    ends = list(zip(values, *case.intervals, strict=True))
    soft = name.startswith("slack") or not case.has_target
    hard = [lo == hi and case.has_target for _, lo, hi in ends] if soft else [True] * case.m
    rows = [end for end, must in zip(ends, hard, strict=True) if must]
    rows += [(C.value(known, is_factor), lo, hi) for C, lo, hi in case.linear]
    if any((lo is not None and v < lo) or (hi is not None and v > hi) for v, lo, hi in rows):
        return None
    A = known @ known.conj().T if is_factor else known
    return cost(case, name, values, A, known if is_factor else None)


def cost(case: Case, name: str, values: Any, A: Any, factor: Any) -> float | None:
    """The objective of a matrix with these readings; None where it is not computed here."""
    lo, hi = case.intervals
    given = case.question.get("weights")
    weights = None if given is None else exact.fractions(given)
    rows = range(case.m)
    if name == "least_squares":
        return _squares(case, values, A, weights)
    if name in ("slack_max", "slack_sum", "slack_squares"):
        misses = [_miss(values[i], lo[i], hi[i]) if lo[i] != hi[i] else Fraction(0) for i in rows]
        scaled = [(Fraction(1) if weights is None else weights[i]) * misses[i] for i in rows]
        if name == "slack_max":
            return exact.number(max(scaled))
        if name == "slack_sum":
            return exact.number(sum(scaled))
        return exact.number(sum(w * v for w, v in zip(scaled, misses, strict=True)))
    if name == "minimax":
        if not case.has_target:
            return exact.number(max(abs(values[i] - lo[i]) for i in rows))
        two = [i for i in rows if lo[i] is not None and hi[i] is not None and lo[i] < hi[i]]
        ratios = [abs(2 * values[i] - lo[i] - hi[i]) / (hi[i] - lo[i]) for i in two]
        return exact.number(max(ratios, default=Fraction(0)))
    if name == "min_trace" and factor is None:
        return exact.number(sum((Fraction(float(d)) for d in np.diagonal(A).real), Fraction(0)))
    return None


def _squares(case: Case, values: Any, A: Any, weights: Any) -> float | None:
    """Least squares, exactly; None where A is pulled (see `answers_truth`) or rows have one end."""
    if case.has_target and "ridge" not in case.options:
        return None
    lo, hi = case.intervals
    total = Fraction(0)
    for i in range(case.m):
        bounded = lo[i] is not None and hi[i] is not None
        if case.b is not None and not bounded:
            return None  # a row of one end, about its reading: weighed by what is typical
        if not bounded or (case.has_target and lo[i] == hi[i]):
            continue
        reading = case.readings[i] if case.b is not None else (lo[i] + hi[i]) / 2
        weight = Fraction(1)
        if weights is not None:
            weight = weights[i]
        elif case.has_target:
            weight = 4 / (hi[i] - lo[i]) ** 2
        total += weight * (values[i] - reading) ** 2
    ridge = case.options.get("ridge", 0.0)
    if ridge:
        prior = case.options.get("prior", 0.0)
        D = A - (prior * np.eye(case.n) if np.ndim(prior) == 0 else prior)
        total += Fraction(ridge) * Fraction(exact.norm(D)) ** 2
    return exact.number(total)


def _miss(value: Fraction, lo: Any, hi: Any) -> Fraction:
    """How far a value is beyond its interval; 0 inside."""
    out = Fraction(0)
    if lo is not None:
        out = max(out, lo - value)
    return max(out, value - hi) if hi is not None else out
