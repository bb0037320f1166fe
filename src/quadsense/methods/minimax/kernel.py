"""The smallest worst error by the interior-point kernel, for data that normal equations lose.

A normal matrix squares the weights: of rows whose tolerances differ by eleven powers of ten the
wide ones are rounded away. The kernel solves for the heavy rows apart, and the vector of the lower
bound is moved until ``F*(y) = 0`` to rounding. A step costs more than one of `iteration`, so it is
what small problems that resist the normal equations end with.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from quadsense.core.intervals import Intervals
from quadsense.core.packed import Array, Vector
from quadsense.measurements.sensing import Sensing
from quadsense.methods.balance import balanced
from quadsense.methods.conic.program import KernelProgram
from quadsense.methods.conic.ratio import RatioState, advance_ratio, ratio_program, start_ratio
from quadsense.methods.minimax.coordinates import MatrixCoordinates
from quadsense.methods.minimax.iteration import verdict, worst_ratio
from quadsense.methods.minimax.program import AskedRows, MinimaxProgram, residual
from quadsense.proofs.symmetric import NORM_FACTOR, allowed, data_scale, lower_bound

MAX_ENTRIES = 4_000_000
"""Rows times unknowns at most."""

MAX_FLOPS = 2e10
"""Operations of one normal matrix at most."""


def fits(m: int, size: int) -> bool:
    """Whether steps on m rows in that many unknowns are affordable."""
    return m * size <= MAX_ENTRIES and 2.0 * m * size * min(m, size) <= MAX_FLOPS


@dataclass(frozen=True)
class KernelStageProgram(MinimaxProgram):
    """The linear program for A itself on unit rows, and that of the kernel."""

    intervals: Intervals
    kernel: KernelProgram


@dataclass(frozen=True)
class KernelStageState:
    """Where the method stands.

    Attributes
    ----------
    inner : RatioState
    x : ndarray, shape (n, n)
        The best A so far.
    max_ratio, rounding, lower : float
    y : ndarray, shape (m,)
        As `iteration.IterationState` has them.
    """

    inner: RatioState
    x: Array
    max_ratio: float
    rounding: float
    lower: float
    y: Vector

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.inner.iteration

    @property
    def stalled(self) -> bool:
        """Whether nothing more can be gained."""
        return self.inner.stalled


def prepare(F: Sensing, asked: AskedRows, target: bool) -> KernelStageProgram:
    """Return the program of the rows that ask, of unit norm and in memory of NumPy's.

    With a target the question is whether it can be met, not by how many tolerances it is missed.
    """
    norm = NORM_FACTOR * data_scale(asked.b, asked.delta)
    plain = MinimaxProgram(
        F, asked.b, asked.delta, asked.sides, MatrixCoordinates(F, asked.delta), norm
    )
    values = {each.name: getattr(plain, each.name) for each in fields(plain)}
    kernel = ratio_program(F, asked.intervals, psd=False, even=target)
    return KernelStageProgram(**values, intervals=asked.intervals, kernel=kernel)


def start(program: KernelStageProgram) -> KernelStageState:
    """Least squares."""
    inner, nothing = start_ratio(program.kernel, program.intervals), np.zeros_like(program.b)
    return _with(program, KernelStageState(inner, inner.fit, np.inf, 0.0, 0.0, nothing), inner)


def advance(
    program: KernelStageProgram, state: KernelStageState, steps: int, *, target: bool, gap: float
) -> KernelStageState:
    """Take up to `steps` steps; stop early at a verdict. See `iteration.advance`."""
    for _ in range(steps):
        if verdict(state, target=target, gap=gap) is not None:
            break
        inner = advance_ratio(program.kernel, program.intervals, state.inner)
        state = _bounded(program, _with(program, state, inner), target, gap)
    return state


def _with(
    program: KernelStageProgram, state: KernelStageState, inner: RatioState
) -> KernelStageState:
    """The state with that iterate, kept where its ratio is the smallest."""
    state, z = replace(state, inner=inner), residual(program, inner.fit)
    if not np.isfinite(z).all():
        return state
    ratio, rounding = worst_ratio(program, inner.fit, z)
    if not ratio < state.max_ratio:
        return state
    return replace(state, x=inner.fit, max_ratio=ratio, rounding=rounding)


def _bounded(
    program: KernelStageProgram, state: KernelStageState, target: bool, gap: float
) -> KernelStageState:
    """With the bound by the multipliers; what keeps ``F*(y)`` from 0 is removed if that decides."""
    y = allowed(-state.inner.y, program.sides[1], program.sides[0])
    mass = float(np.abs(y) @ program.delta)
    if not (np.isfinite(mass) and mass > 0.0):
        return state
    promise = max(float(y @ program.b) / mass, 0.0)
    at_promise = replace(state, lower=max(promise, state.lower))
    if verdict(at_promise, target=target, gap=gap) is None and not state.stalled:
        return state
    question = program.kernel.question
    y = allowed(-balanced(program.F, question, -y, state.x), program.sides[1], program.sides[0])
    left = float(np.linalg.norm(program.F.adjoint(y)))
    bound = lower_bound(program.b, program.delta, y, left, program.max_norm)
    return replace(state, lower=bound, y=y) if bound > state.lower else state
