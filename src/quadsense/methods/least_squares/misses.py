"""A question of least squared misses, brought to numbers of about 1, and where its steps stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.core.records import cached_property
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.least_squares.bounds import SquaresVerdict
from quadsense.methods.least_squares.program import power_of_four
from quadsense.methods.least_squares.system import system_flops

Array = npt.NDArray[Any]

FINE = 1e-7
"""Relative gap that is aimed at where a step costs little."""

LITTLE = 2e9
"""Operations of twenty steps that are little, a tenth of a second."""

SAMPLED = 6
"""Rows per unknown from which on some of them make the beginning."""

SHARE = 8
"""Rows over those of the sample."""

BEGINNING = 0.3
"""Relative gap that the sample is solved to: what it leaves out weighs as much."""


@dataclass(frozen=True)
class MissesProgram:
    """Intervals, readings and A of the size of 1.

    Attributes
    ----------
    problem : Problem
    F : Sensing
    ends : Intervals
        Those of the problem, where the rows live.
    lo, hi, w : ndarray of shape (m,)
    scale, weight : float
        What readings, and A, and what weights were divided by.
    gap, asked : float
        Relative distance of cost and bound that is aimed at, and the one that was asked for.
    sample : MissesProgram or None
        Some of the rows, where there are enough that it pays to begin with these.
    """

    problem: Problem
    F: Sensing
    ends: Intervals
    lo: Vector
    hi: Vector
    w: Vector
    scale: float
    weight: float
    gap: float
    asked: float
    sample: MissesProgram | None = None

    @property
    def n(self) -> int:
        """Order of A."""
        return self.F.n

    def misses(self, v: Vector, room: float = 0.0) -> Vector:
        """By how much readings are above their intervals, negative below, 0 inside.

        Of intervals that are narrower by a share `room`, on either side, of their half-widths.
        """
        lo, hi = self.lo, self.hi
        if room:
            inside = room * self.half
            lo, hi = lo + inside, hi - inside
        return np.maximum(v - hi, 0.0) - np.maximum(lo - v, 0.0)

    @cached_property
    def eye(self) -> Array:
        """The identity."""
        return self.F.beside(np.eye(self.n))

    @cached_property
    def half(self) -> Vector:
        """Half-widths, 1 at most."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.minimum(0.5 * (self.hi - self.lo), 1.0)

    @cached_property
    def even(self) -> tuple[Vector, Array] | None:
        """Some ``y > 0`` and Z with ``Z* F*(y) Z = I``; None where no such y is permitted."""
        y = self.w * np.isfinite(self.hi)
        E = self.F.adjoint(y)
        values, V = np.linalg.eigh(E)
        if not values[0] > 1e-9 * values[-1]:
            return None
        return y, V / np.sqrt(values)

    @cached_property
    def rest(self) -> float:
        """What A = 0 costs."""
        return float(self.w @ self.misses(np.zeros_like(self.w)) ** 2)


@dataclass(frozen=True)
class MissesState:
    """Where the iteration stands.

    Attributes
    ----------
    A : ndarray of shape (n, n)
        Positive definite.
    values : ndarray of shape (m,)
        ``F(A)``.
    cost, mu : float
    lower : float
        The best bound so far: the cost less ``<F*(y), A>`` of a point whose ``F*(y)`` was positive
        semidefinite.
    y : ndarray of shape (m,) or None
        The vector that gives it.
    sampled : bool
        Whether the rows are those of the sample still.
    gradients : int
        Conjugate gradients of the last step.
    room : float
        By how much narrower intervals are aimed at, once it seems that all can be met.
    verdict : SquaresVerdict
    iteration : int
    left, marked : float, int
        The distance of cost and bound when it last fell, and when that was.
    max_ratio : float
    """

    A: Array
    values: Vector
    cost: float
    mu: float
    lower: float = 0.0
    y: Vector | None = None
    sampled: bool = False
    gradients: int = 0
    room: float = 0.0
    verdict: SquaresVerdict = SquaresVerdict.OPEN
    iteration: int = 0
    left: float = np.inf
    marked: int = 0
    max_ratio: float = np.inf


def prepare(problem: Problem) -> MissesProgram | None:
    """The program; None where the question is another, or has constraints."""
    question = problem.question
    if question is None or question.rows != "slack_squares" or not question.psd:
        return None
    live = (to_numpy(problem.rows.nonzero) > 0.0) & (question.weights > 0.0)
    if question.hard.any() or question.alpha or np.any(np.asarray(question.C) != 0.0):
        return None
    ends = np.concatenate([question.lo[live], question.hi[live]])
    ends = np.abs(ends[np.isfinite(ends)])
    if not ends.any() or not np.isfinite(question.weights).all():
        return None
    scale = power_of_four(float(np.median(ends[ends > 0.0])))
    w = np.where(live, question.weights, 0.0)
    weight = power_of_four(float(w.max()))
    F = problem.rows.at_work()
    there = problem.ends.each(F.beside) if F.waits else problem.ends
    asked = gap = float(getattr(problem.options, "gap", 0.01))
    if 20.0 * (step_flops(F) + min(system_flops(F, 0.5 * F.m))) <= LITTLE:
        gap = min(gap, FINE)
    lo, hi = np.where(live, question.lo, -np.inf), np.where(live, question.hi, np.inf)
    lo, hi, w = map(F.beside, (lo / scale, hi / scale, w / weight))
    sample = None
    if F.m >= SAMPLED * F.unknowns:
        some = np.random.default_rng(problem.seed).choice(F.m, F.m // SHARE, replace=False)
        some.sort()
        sample = MissesProgram(
            problem, F.only(some), there, lo[some], hi[some], w[some], scale, weight, BEGINNING,
            BEGINNING,
        )  # fmt: skip
    return MissesProgram(problem, F, there, lo, hi, w, scale, weight, 0.9 * gap, asked, sample)


def step_flops(F: Sensing) -> float:
    """About what a step costs at least."""
    return (4.0 if F.is_complex else 1.0) * (4.0 * F.raw.m * F.n**2 + 20.0 * float(F.n) ** 3)
