"""The smallest worst ratio of residuals to tolerances, step by step, by the kernel.

It minimizes ``t >= 0`` subject to ``lo + (1 - t) w <= F(A) <= hi - (1 - t) w``, over all symmetric
A or over ``A >= 0``. The dual is to maximize ``-support(y)`` subject to ``F*(y) = 0``, or
``F*(y) >= 0``, and ``sum w_i |y_i| <= 1``. Each step improves both: a t of at most 1 is a fit, a y
of negative support a proof that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.core.intervals import Array, Intervals, Real
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import LENIENT
from quadsense.methods.conic import finish, steps
from quadsense.methods.conic.program import KernelProgram, prepare
from quadsense.methods.conic.solve import MAX_STEPS


@dataclass(frozen=True)
class RatioState:
    """A state of the kernel, and what it says in the units of the intervals.

    Attributes
    ----------
    kernel : steps.KernelState
    fit : ndarray
        A, shape (n, n), or over the cone a factor of it, (n, k).
    y : ndarray, shape (m,)
        The dual vector.
    max_ratio : float
        Of A.
    """

    kernel: steps.KernelState
    fit: Array
    y: Real
    max_ratio: float

    @property
    def X(self) -> Array:
        """The factor, over the cone."""
        return self.fit

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.kernel.iteration

    @property
    def stalled(self) -> bool:
        """Whether rounding leaves no step to take."""
        kernel = self.kernel
        return kernel.stuck or kernel.idle >= steps.MAX_IDLE_STEPS or kernel.iteration >= MAX_STEPS


def ratio_program(F: Sensing, intervals: Intervals, psd: bool, even: bool = False) -> KernelProgram:
    """Return the program for rows of about unit norm.

    Parameters
    ----------
    F : Sensing
    intervals : Intervals
    psd : bool
    even : bool
        Whether all misses of intervals count alike: of tolerances that differ by many powers of
        ten the ratios do so too, and whether there is a fit is known sooner without them.
    """
    w = intervals.unit
    with LENIENT():
        inner = intervals if even else Intervals.of(intervals.lo + w, intervals.hi - w, w)
        weights = np.ones_like(w) if even else 1.0 / w
        none = np.zeros(len(w), dtype=bool)
        return prepare(
            F, Question("slack_max", inner.lo, inner.hi, weights, 0.0 * w, none, psd=psd)
        )


def start_ratio(program: KernelProgram, intervals: Intervals) -> RatioState:
    """Return a multiple of the identity over the cone, otherwise least squares."""
    with LENIENT():
        return _state(program, intervals, steps.first(program))


def advance_ratio(program: KernelProgram, intervals: Intervals, state: RatioState) -> RatioState:
    """Return the state after one more step; the caller looks at both bounds between."""
    with LENIENT():
        return _state(program, intervals, steps.advance(program, state.kernel))


def _state(program: KernelProgram, intervals: Intervals, kernel: steps.KernelState) -> RatioState:
    A, X = finish.matrix(program, kernel.at)
    fit = A if X is None else X
    assert fit is not None
    values = np.zeros(len(intervals.unit))
    values[program.index] = program.scale * to_numpy(kernel.at.v)
    ratio = float(intervals.max_ratio(values))
    y = finish.dual(program, kernel.at)
    return RatioState(kernel, fit, y, ratio if np.isfinite(ratio) else np.inf)
