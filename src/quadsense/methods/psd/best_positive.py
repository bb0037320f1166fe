"""The smallest worst error of a positive semidefinite matrix, with both bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import COLD, Problem, Warm
from quadsense.methods.psd import best
from quadsense.methods.psd.maps import Intervals
from quadsense.methods.psd.traits import PsdTraits
from quadsense.methods.steps import Stepped, nothing, own
from quadsense.vocabulary import Claim, because

EXACT = 1e-8
"""Ratio to the largest reading at which a fit counts as exact."""

AIMED = 0.9
"""Share of the gap that is aimed at: what is proved from the data loses a little to rounding."""


@dataclass(frozen=True)
class BestPositiveProgram:
    """The problem, what the search reads, and the tolerances in one of its units of error."""

    problem: Problem
    inner: best.BestProgram
    unit: float


@dataclass(frozen=True)
class BestPositiveState:
    """Where the search stands; `max_ratio` is in tolerances of the problem."""

    inner: best.State
    max_ratio: float

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.inner.iteration


class BestPositive(PsdTraits, Stepped):
    """``min max_i |z_i|/delta_i`` over ``A >= 0``: what "psd" does without a tolerance.

    See `positive.best`.
    """

    def prepare(self, problem: Problem) -> BestPositiveProgram:
        """Intervals as wide as the largest reading: there a ratio of `EXACT` is an exact fit."""
        b, delta = to_numpy(problem.b), to_numpy(problem.delta)
        unit = float(np.max(np.abs(b) / delta)) or 1.0
        intervals = Intervals.around(b, unit * delta)
        gap = AIMED * problem.options.gap
        inner = best.best_program(problem.rows.on_numpy(), intervals, gap)
        return BestPositiveProgram(problem, inner, unit)

    def start(self, program: BestPositiveProgram, warm: Warm = COLD) -> BestPositiveState:
        """A = 0."""
        return self._state(program, best.start(program.inner))

    def advance(
        self, program: BestPositiveProgram, state: BestPositiveState, steps: int
    ) -> BestPositiveState:
        """Return the state after about `steps` more steps."""
        return self._state(program, best.advance(program.inner, state.inner, steps))

    def _state(self, program: BestPositiveProgram, inner: best.State) -> BestPositiveState:
        return BestPositiveState(inner, program.unit * inner.best.upper_bound)

    def claim(self, program: BestPositiveProgram, state: BestPositiveState) -> Claim | None:
        """Optimal to the gap, or that the bounds did not close."""
        inner = state.inner
        if not inner.ended:
            return None
        upper, lower = inner.best.upper_bound, inner.best.lower_bound
        dual, bound = inner.best.certificate.y, program.unit * lower
        if upper <= max((1.0 + program.problem.options.gap) * lower, EXACT):
            return Claim("optimal", None, dual, bound)
        return Claim("undecided", because("gap_open"), dual, bound)

    def matrix(self, program: BestPositiveProgram, state: BestPositiveState) -> SensedMatrix:
        """``X X*``."""
        X = best.found(program.inner, state.inner).X
        return SensedMatrix.from_factor(own(program.problem, X))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0."""
        return nothing(problem)

    def dual(self, program: BestPositiveProgram, state: BestPositiveState) -> Vector | None:
        """The vector of the best lower bound so far."""
        return state.inner.best.certificate.y
