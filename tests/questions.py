"""Questions whose best A and best vector are known before anything is solved, and their truth.

A and y are drawn first; the data are then made so that the two are optimal for each other, to
rounding. What A costs is found in fractions: no bound may exceed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from exact import quadratic

from quadsense.core.question import Question

ROWS = ("within", "squares", "center", "slack_max", "slack_sum", "slack_squares")


@dataclass
class Case:
    """A question with its best A and best y."""

    U: Any
    question: Question
    A: Any
    y: Any


def made(seed: int, *, spread: float = 0.0, log_det: bool = False) -> Case:
    """One case; rows of norm up to ``10^(spread/2)`` and down to its inverse.

    With a determinant in the centre of positive semidefinite matrices, and where that is asked.
    """
    rng = np.random.default_rng(seed)
    rows = ROWS[seed % 6]
    psd, is_complex, ridge = (bool(rng.integers(2)) for _ in range(3))
    psd = psd or log_det
    n = int(rng.integers(1, 4))
    m = int(rng.integers(n * n + 1, 3 * n * n + 3))
    U = _normal(rng, (m, n), is_complex)
    A, S = _pair(rng, n, is_complex, psd, whole=log_det or rows == "center")
    v = _forward(U, A)
    alpha = float(rng.uniform(0.2, 2.0)) if ridge and rows != "center" else 0.0
    hard = np.zeros(m, bool)
    if rng.integers(2):
        hard[: min(2, m - 1)] = True
    weights = rng.uniform(0.5, 2.0, m)
    y, lo, hi, reading = _rows(rng, rows, v, weights, hard)
    if rows == "slack_max":
        soft = ~hard
        y *= 1.0 / float(np.sum(np.abs(y[soft]) / weights[soft]))
    C = _symmetric(_normal(rng, (n, n), is_complex))
    log_det = log_det or (psd and rows == "center")
    T = np.linalg.inv(A) if log_det else S
    prior: Any = 0.0
    if alpha:
        prior = _symmetric(A + (C + _adjoint(U, y) - T) / (2.0 * alpha))
    else:
        C = _symmetric(T - _adjoint(U, y))
    power = np.round(rng.uniform(-spread, spread, m) * 3.32)  # of two, so that A stays feasible
    grown = np.ldexp(1.0, power.astype(int))
    with np.errstate(all="ignore"):
        per = grown**2 if rows in ("slack_max", "slack_sum") else grown**4
    question = Question(
        rows, lo * grown**2, hi * grown**2, weights / per, reading * grown**2, hard,
        C, alpha, prior, psd, log_det,
    )  # fmt: skip
    return Case(U * grown[:, None], question, A, y / grown**2)


def _rows(rng: Any, rows: str, v: Any, weights: Any, hard: Any) -> tuple[Any, Any, Any, Any]:
    """A vector, ends and readings for which readings v are best."""
    m = v.size
    with np.errstate(under="ignore"):
        up, down = np.nextafter(v, np.inf), np.nextafter(v, -np.inf)
    up, down = np.where(v == 0.0, v, up), np.where(v == 0.0, v, down)
    y = rng.standard_normal(m) * (rng.random(m) < 0.7)
    y[-1] = 0.5
    one = rng.random(m) < 0.3
    lo, hi = v - rng.uniform(0.1, 1.0, m), v + rng.uniform(0.1, 1.0, m)
    held_lo = np.where(y < 0, down, np.where(one, -np.inf, lo))
    held_hi = np.where(y > 0, up, np.where(one & (y != 0), np.inf, hi))
    if rows == "within":
        return y, held_lo, held_hi, np.zeros(m)
    if rows == "squares":
        reading = v - y / (2.0 * weights)
        reading = np.where(hard, 0.0, np.where(one, v - 0.5 * y / (2.0 * weights), reading))
        leans = one | hard
        lo = np.where(leans, held_lo, np.where(rng.random(m) < 0.3, -np.inf, lo))
        hi = np.where(leans, held_hi, np.where(rng.random(m) < 0.3, np.inf, hi))
        return y, lo, hi, reading
    if rows == "center":
        below, above = rng.uniform(0.1, 1.0, m), rng.uniform(0.1, 1.0, m)
        sides = rng.integers(3, size=m)
        lo = np.where(sides == 1, -np.inf, v - below)
        hi = np.where(sides == 2, np.inf, v + above)
        with np.errstate(divide="ignore"):
            return 1.0 / (hi - v) - 1.0 / (v - lo), lo, hi, np.zeros(m)
    past = rng.uniform(0.1, 1.0, m)
    if rows == "slack_max":
        past = np.where(y != 0, 0.7 / weights, past)
    if rows == "slack_sum":
        y = np.where(hard, y, np.clip(y, -0.9, 0.9) * weights)
        far = rng.random(m) < 0.4
        y = np.where(~hard & far, np.sign(y) * weights, y)
        past = np.where(far, past, 0.0)
    if rows == "slack_squares":
        past = np.abs(y) / (2.0 * weights)
    past = np.where(hard, 0.0, past)
    return (
        y,
        np.where(y < 0, down + past, held_lo),
        np.where(y > 0, up - past, held_hi),
        np.zeros(m),
    )


def cost(case: Case) -> Fraction:
    """The objective of A, without rounding except of logarithms; raises where A is not admitted."""
    q, v = case.question, quadratic(case.U, case.A)
    total = Fraction(0)
    costs = []
    for i, value in enumerate(v):
        lo = None if np.isinf(q.lo[i]) else Fraction(float(q.lo[i]))
        hi = None if np.isinf(q.hi[i]) else Fraction(float(q.hi[i]))
        gaps = ([value - lo] if lo is not None else []) + ([hi - value] if hi is not None else [])
        miss = max([Fraction(0), *(-gap for gap in gaps)])
        weight = Fraction(float(q.weights[i]))
        if not q.soft[i]:
            assert miss == 0, "A is not admitted"
        if q.rows == "squares" and not q.hard[i]:
            total += weight * (value - Fraction(float(q.reading[i]))) ** 2
        elif q.rows == "center" and lo != hi:
            total -= sum(_log(gap) for gap in gaps)
        elif q.soft[i]:
            costs.append(weight * miss * (miss if q.rows == "slack_squares" else 1))
    total += max(costs, default=Fraction(0)) if q.rows == "slack_max" else sum(costs)
    total += _inner(q.C, case.A)
    if q.alpha:
        P, A = _fractions(q.prior), _fractions(case.A)
        square = sum(
            (a - b) ** 2 for x, z in zip(A, P, strict=True) for a, b in zip(x, z, strict=True)
        )
        total += Fraction(q.alpha) * square
    if q.log_det:
        total -= _log(_determinant(case.A))
    return total


def _fractions(M: Any) -> tuple[list[Fraction], list[Fraction]]:
    M = np.asarray(M)
    return (
        [Fraction(float(x)) for x in M.real.ravel()],
        [Fraction(float(x)) for x in M.imag.ravel()],
    )


def _inner(C: Any, A: Any) -> Fraction:
    if isinstance(C, float):
        C = C * np.eye(len(A))
    parts = zip(_fractions(C), _fractions(A), strict=True)
    return sum((a * b for x, z in parts for a, b in zip(x, z, strict=True)), Fraction(0))


def _determinant(A: Any) -> Fraction:
    """Of a Hermitian matrix, by Leibniz: 3 by 3 at most."""
    from itertools import permutations

    n, A = len(A), np.asarray(A)
    total = Fraction(0)
    for order in permutations(range(n)):
        sign = (-1) ** sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
        re, im = Fraction(1), Fraction(0)
        for i, j in enumerate(order):
            a, b = Fraction(float(A[i, j].real)), Fraction(float(A[i, j].imag))
            re, im = re * a - im * b, re * b + im * a
        total += sign * re
    return total


def _log(x: Fraction) -> Fraction:
    with localcontext() as context:
        context.prec = 60
        return Fraction((Decimal(x.numerator) / Decimal(x.denominator)).ln())


def _normal(rng: Any, shape: tuple[int, ...], is_complex: bool) -> Any:
    X = rng.standard_normal(shape)
    return X + 1j * rng.standard_normal(shape) if is_complex else X


def _pair(rng: Any, n: int, is_complex: bool, psd: bool, whole: bool) -> tuple[Any, Any]:
    """A, and S that vanishes or, with A positive semidefinite, is so with ``S A = 0``."""
    if not psd:
        return _symmetric(_normal(rng, (n, n), is_complex)), np.zeros((n, n))
    r = n if whole else int(rng.integers(0, n + 1))
    # Entries of few bits: the product is exact, so A is positive semidefinite exactly.
    X = np.round(8.0 * _normal(rng, (n, max(r, 1)), is_complex)) / 8.0 * (r > 0)
    if whole:
        X = X + 4.0 * np.eye(n)
    A = X @ X.conj().T
    V = np.linalg.eigh(A)[1][:, : n - r]
    return A, _symmetric((V * rng.uniform(0.1, 1.0, n - r)) @ V.conj().T)


def _symmetric(M: Any) -> Any:
    return 0.5 * (M + M.conj().T)


def _forward(U: Any, A: Any) -> Any:
    return np.array([float(value) for value in quadratic(U, A)])


def _adjoint(U: Any, y: Any) -> Any:
    return (U.T * y) @ U.conj()
