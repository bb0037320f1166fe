"""The smallest worst ratio over positive semidefinite matrices, by the interior-point kernel.

Minimise ``t >= 0`` over ``A >= 0`` with ``lo + (1 - t) w <= F(A) <= hi - (1 - t) w``. Its dual is
to maximise ``-support(y)`` over ``F*(y) >= 0``, ``sum w_i |y_i| <= 1``. Each step improves both: a
t of at most 1 is a fit, a y of negative support a proof that there is none. At the edge of
feasibility, where first-order methods are slow, it takes no more steps than elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.conic import finish, steps
from quadsense.methods.conic.program import Program, prepare
from quadsense.methods.conic.solve import LONGEST
from quadsense.methods.psd.maps import Array, Intervals, Real
from quadsense.methods.steps import LENIENT


@dataclass(frozen=True)
class InteriorState:
    """A state of the kernel, and what it says in the units of the intervals.

    Attributes
    ----------
    kernel : steps.State
    X : ndarray, shape (n, k)
        Factor of A.
    y : ndarray, shape (m,)
        The dual vector.
    max_ratio : float
        Of A.
    """

    kernel: steps.State
    X: Array
    y: Real
    max_ratio: float

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.kernel.iteration

    @property
    def stalled(self) -> bool:
        """Whether rounding leaves no step to take."""
        kernel = self.kernel
        return kernel.stuck or kernel.idle >= steps.IDLE or kernel.iteration >= LONGEST


def program_of(F: Sensing, intervals: Intervals) -> Program:
    """Return the program of the smallest worst ratio within these intervals."""
    w, nothing = intervals.unit, np.zeros(len(intervals.unit))
    with LENIENT():
        lo, hi = intervals.lo + w, intervals.hi - w
        none = np.zeros(len(w), dtype=bool)
        question = Question("slack_max", lo, hi, 1.0 / w, nothing, none, psd=True)
        return prepare(F, question)


def start(program: Program, intervals: Intervals) -> InteriorState:
    """Return a multiple of the identity."""
    with LENIENT():
        return _state(program, intervals, steps.first(program))


def advance(program: Program, intervals: Intervals, state: InteriorState) -> InteriorState:
    """Return the state after one more step; the caller looks at both bounds between."""
    with LENIENT():
        return _state(program, intervals, steps.advance(program, state.kernel))


def _state(program: Program, intervals: Intervals, kernel: steps.State) -> InteriorState:
    _, X = finish.matrix(program, kernel.at)
    assert X is not None
    values = np.zeros(len(intervals.unit))
    values[program.index] = program.scale * to_numpy(kernel.at.v)
    ratio = float(intervals.max_ratio(values))
    y = finish.dual(program, kernel.at)
    return InteriorState(kernel, X, y, ratio if np.isfinite(ratio) else np.inf)
