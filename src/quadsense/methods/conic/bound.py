"""The lower bound that a vector y gives by Fenchel duality, in floating point.

What is proved is the affair of the proofs; this is what it will come to.
"""

from __future__ import annotations

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.intervals import Array
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing


def lower_bound(F: Sensing, question: Question, y: Vector, trace: float, norm: float) -> float:
    """Return the bound on a question's objective.

    Parameters
    ----------
    F : Sensing
        The rows of the question.
    question : Question
    y : ndarray, shape (m,)
    trace, norm : float
        Of an A, to weigh by how much ``C + F*(y)`` is off what it should be.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        Z = np.asarray(F.adjoint(y))
        n = len(Z)
        Z = Z + (question.C if isinstance(question.C, np.ndarray) else question.C * np.eye(n))
        return -conjugates(question, y) + _least(question, Z, trace, norm)


def conjugates(question: Question, y: Vector) -> float:
    """Return ``sum_i phi_i*(y_i)``; infinite where y asks for what there is no end for."""
    rows, hard, w = question.rows, question.hard | question.equal, question.weights
    terms = np.where(y > 0.0, y * question.hi, np.where(y < 0.0, y * question.lo, 0.0))
    if rows == "squares":
        free = (w > 0.0) & ~question.hard
        best = question.reading + y / np.where(free, 2.0 * w, 1.0)
        best = np.clip(best, question.lo, question.hi)
        values = y * best - w * (best - question.reading) ** 2
        terms = np.where(free, values, terms)
    elif rows == "center":
        terms = np.where(question.equal, terms, _centred(question, y))
    elif rows == "slack_squares":
        soft = ~question.hard
        square = y * y / (4.0 * np.where(soft & (w > 0.0), w, 1.0))
        terms = np.where(soft, terms + np.where(w > 0.0, square, _only_zero(y)), terms)
    elif rows == "slack_sum":
        terms = terms + np.where(~hard & (np.abs(y) > w * (1.0 + 1e-9)), np.inf, 0.0)
    elif rows == "slack_max":
        soft = ~question.hard
        shares = np.where(soft & (y != 0.0), np.abs(y) / w, 0.0)
        terms = terms + (np.inf if float(np.sum(shares)) > 1.0 + 1e-9 else 0.0)
    return float(np.sum(terms))


def _only_zero(y: Vector) -> Vector:
    return np.where(y == 0.0, 0.0, np.inf)


def _centred(question: Question, y: Vector) -> Vector:
    """Return the conjugates of ``-log(v - lo) - log(hi - v)``."""
    upper, lower = np.isfinite(question.hi), np.isfinite(question.lo)
    both = upper & lower
    half = np.where(both, 0.5 * (question.hi - question.lo), 1.0)
    middle = np.where(both, 0.5 * (question.hi + question.lo), 0.0)
    x = y * half
    s = x / (1.0 + np.sqrt(1.0 + x * x))  # y = 2 s/(1 - s^2)/half
    values = y * middle + x * s + np.log1p(-s * s) + 2.0 * np.log(half)
    above = np.where(y > 0.0, y * question.hi - 1.0 - np.log(np.where(y > 0.0, y, 1.0)), np.inf)
    below = np.where(y < 0.0, y * question.lo - 1.0 - np.log(np.where(y < 0.0, -y, 1.0)), np.inf)
    return np.where(both, values, np.where(upper, above, np.where(lower, below, _only_zero(y))))


def _least(question: Question, Z: Array, trace: float, norm: float) -> float:
    """Return the least of ``<Z, A> + alpha ||A - P||^2 - log det A``."""
    alpha, n = question.alpha, len(Z)
    if not question.psd and not alpha:
        return -float(np.linalg.norm(Z)) * norm
    P = question.prior if isinstance(question.prior, np.ndarray) else question.prior * np.eye(n)
    if not question.psd:
        return float(np.vdot(Z, P).real) - float(np.linalg.norm(Z)) ** 2 / (4.0 * alpha)
    if not question.log_det:
        if not alpha:
            return min(0.0, float(np.linalg.eigvalsh(Z)[0])) * trace
        values = np.maximum(np.linalg.eigvalsh(P - Z / (2.0 * alpha)), 0.0)
        return alpha * (float(np.linalg.norm(P)) ** 2 - float(values @ values))
    if not alpha:
        values = np.linalg.eigvalsh(Z)
        return n + float(np.sum(np.log(values))) if values[0] > 0.0 else -np.inf
    values = np.linalg.eigvalsh(Z - 2.0 * alpha * P)
    root = np.hypot(values, np.sqrt(8.0 * alpha))
    a = np.where(values > 0.0, 2.0 / (root + np.abs(values)), (root - values) / (4.0 * alpha))
    costs = values * a + alpha * a * a - np.log(a)
    return float(np.sum(costs)) + alpha * float(np.linalg.norm(P)) ** 2
