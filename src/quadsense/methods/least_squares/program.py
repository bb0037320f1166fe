"""A question of least squares, brought to numbers of about 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.device import waits
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.least_squares.cone import LeastSquaresCone
from quadsense.methods.least_squares.quadratic import Quadratic

FLAT = 1e-12
"""Relative distance from a multiple of the identity that is rounding."""


@dataclass(frozen=True)
class SquaresProgram:
    """The question over powers of two: readings, weights and A are of the size of 1.

    Attributes
    ----------
    problem : Problem
    question : Question
        As asked, on the unit rows.
    cost : Quadratic
    lo, hi : ndarray of shape (m,)
        Intervals; infinite for the row of the trace where the cone has it.
    ends : Intervals
        Those of the problem, where the rows live.
    trace_row : int or None
        That row.
    scale, weight : float
        What readings, and A, and what weights were divided by.
    memory : dict
        Factors of what a state needs again and again, made anew where a run is taken up.
    """

    problem: Problem
    question: Question
    cost: Quadratic
    lo: Vector
    hi: Vector
    ends: Intervals
    trace_row: int | None
    scale: float
    weight: float
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def cone(self) -> LeastSquaresCone:
        """Where A may lie."""
        return self.cost.cone

    @property
    def F(self) -> Sensing:
        """The unit rows, for steps."""
        return self.cost.F

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return self.cost.ends()

    @property
    def L(self) -> float:
        """Bound on the largest eigenvalue of the normal matrix, and not 0."""
        return self._ends[1] or 1.0

    @property
    def least(self) -> float:
        """About its least eigenvalue."""
        return self._ends[0]

    @cached_property
    def nothing(self) -> float:
        """What A = 0 costs."""
        cost = self.cost
        return float(cost.w @ cost.b**2) + cost.alpha * float(cost.p @ cost.p)

    @cached_property
    def pull(self) -> float:
        """Half the size of the gradient there."""
        cost = self.cost
        back = cost.cone.pack(cost.F.adjoint(cost.w * cost.b))
        return float(np.linalg.norm(back + cost.alpha * cost.p))

    @property
    def unit(self) -> float:
        """What a cost is times, in the user's scale."""
        return self.weight * self.scale * self.scale


def prepare(problem: Problem) -> SquaresProgram | None:
    """The program; None where the question is none of least squares, or asks for nothing."""
    question = problem.question
    if question is None or question.rows != "squares":
        return None
    if question.log_det or np.any(np.asarray(question.C) != 0.0):
        return None
    F = problem.rows.at_work()
    there = F.waits
    whole = problem.rows.on_numpy() if there else F
    weights = np.where(question.hard, 0.0, question.weights)
    weights = weights * (to_numpy(problem.rows.nonzero) > 0.0)
    alpha = float(question.alpha)
    largest = max(float(weights.max(initial=0.0)), alpha)
    if not (0.0 < largest < np.inf):
        return None
    weight = power_of_four(largest)
    weights, alpha = weights / weight, alpha / weight
    scale = _scale(question, weights, alpha)
    b = np.where(weights > 0.0, question.reading, 0.0) / scale
    lo, hi = question.lo / scale, question.hi / scale
    row = trace_row(whole, question) if question.psd else None
    trace = None
    if row is not None:
        trace = float(lo[row]) * F.n / float(whole.squares[row])
        if trace < 0.0:
            return None
        lo, hi = lo.copy(), hi.copy()
        lo[row], hi[row] = -np.inf, np.inf
    cone = LeastSquaresCone(F.n, F.is_complex, question.psd, trace, F.beside)
    p = _packed(cone, question.prior) / scale if alpha else np.zeros_like(cone.identity)
    weights, b, lo, hi = map(F.beside, (weights, b, lo, hi))
    cost = Quadratic(F, cone, weights, b, alpha, p)
    ends = problem.ends.each(F.beside) if there else problem.ends
    return SquaresProgram(problem, question, cost, lo, hi, ends, row, scale, weight)


def power_of_four(value: float) -> float:
    """The power of four nearest to a number from below: so that roots are exact too."""
    return float(np.ldexp(1.0, 2 * ((int(np.frexp(value)[1]) - 1) // 2)))


def _scale(question: Question, weights: Vector, alpha: float) -> float:
    """Size of what A is to read: of readings that count, equalities and the prior."""
    sizes = [np.abs(question.reading[weights > 0.0]), np.abs(question.lo[question.equal])]
    if alpha:
        sizes.append(np.abs(np.asarray(question.prior)).ravel())
    largest = float(max(size.max(initial=0.0) for size in sizes))
    if largest == 0.0:
        ends = np.concatenate([question.lo, question.hi])
        largest = float(np.max(np.abs(ends), where=np.isfinite(ends), initial=0.0))
    return power_of_four(largest) if 0.0 < largest < np.inf else 1.0


def _packed(cone: LeastSquaresCone, P: Any) -> Vector:
    """A matrix, or a number for a multiple of I, packed."""
    if np.ndim(P) == 0:
        return float(P) * cone.identity
    return cone.pack(cone.beside(np.asarray(P, cone.dtype)))


def trace_row(F: Sensing, question: Question) -> int | None:
    """The equality that fixes the trace, if there is one.

    Of all matrices of norm 1 only multiples of the identity have a trace of sqrt(n) in modulus.
    """
    traces = np.abs(np.asarray(F.squares)) / np.sqrt(F.n)
    for row in np.flatnonzero(question.equal & question.hard & (traces > 1.0 - 1e-9)):
        only = np.zeros(F.m)
        only[row] = 1.0
        M = np.asarray(F.adjoint(only))
        level = float(F.squares[row]) / F.n
        if np.linalg.norm(M - level * np.eye(F.n)) <= FLAT * abs(level):
            return int(row)
    return None


def features(F: Sensing, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """F of those rows on packed matrices, (k, N)."""
    found = F.only(rows).features()
    return found if waits(found) else np.ascontiguousarray(found)
