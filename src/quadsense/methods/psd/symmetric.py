"""The symmetric fit, in case it is positive semidefinite: half the work of looking among those.

While ``A_1 - F*(y)`` is positive definite, the positive semidefinite matrix nearest to A_1 and the
symmetric one solve the same linear system in y, for which conjugate residuals in single precision
do (see `residuals`). A Cholesky factorization now and then tells if that is still so; the first
that fails ends it, as does slow progress, and `nearest` begins anew (from the same y it is slower).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quadsense.measurements.sensing import Sensing
from quadsense.methods.cg import residuals
from quadsense.methods.cg.system import CGSystem
from quadsense.methods.psd.maps import Array, Intervals, Real, cholesky

PATIENCE = 16
"""Steps from which on the ratio must fall to a quarter while their number doubles."""


@dataclass(frozen=True)
class SymmetricState:
    """Where the iteration stands.

    Attributes
    ----------
    fit : residuals.State
    X : ndarray, shape (n, k)
        Factor of the last matrix that had one.
    max_ratio : float
        Of that matrix.
    mark : float
        The ratio when progress was last judged.
    left : bool
        The symmetric iterate is not positive definite, or approaches the fit slowly.
    """

    fit: residuals.CGState
    X: Array
    max_ratio: float
    mark: float
    left: bool

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.fit.iteration

    @property
    def y(self) -> Real:
        """Coordinates of the iterate, ``A_1 - F*(y)``."""
        return self.fit.x

    @property
    def ended(self) -> bool:
        """Whether it has nothing more to give."""
        return self.left or self.fit.finished


def suits(F: Sensing, intervals: Intervals, origin: Array) -> bool:
    """Whether to begin with it: A_1 definite, neither more rows than unknowns nor fewer than n."""
    m, n = F.shape
    if not n <= m <= F.unknowns:
        return False
    two_sided = intervals.target() is not None and bool(np.all(intervals.hi > intervals.lo))
    return two_sided and cholesky(origin) is not None


def system(F: Sensing, intervals: Intervals, origin: Array) -> CGSystem:
    """Return the system ``K y = z_1``.

    Parameters
    ----------
    F : Sensing
        Rows of norm at most 1.
    intervals : Intervals
        Two-sided; see `suits`.
    origin : ndarray, shape (n, n)
        A_1.
    """
    b = intervals.target()
    assert b is not None
    # Without memory, neither K nor a factor of it is formed: `nearest` has none either.
    return residuals.prepare(F, b, 0.5 * (intervals.hi - intervals.lo), origin, memory=0)


def start(system: CGSystem) -> SymmetricState:
    """Return the state at ``y = 0``."""
    fit = residuals.start(system)
    nothing = np.zeros_like(system.A1)
    return _looked_at(system, SymmetricState(fit, nothing, np.inf, fit.max_ratio, False))


def advance(system: CGSystem, state: SymmetricState, steps: int) -> SymmetricState:
    """Return the state after at most ``steps`` steps; fewer when it has ended."""
    end = state.iteration + steps
    while state.iteration < end and not state.ended:
        due = 1 << state.iteration.bit_length()  # judged at 1, 2, 4, 8, ..., whatever the strides
        stride = min(due, end) - state.iteration
        state = replace(state, fit=residuals.advance(system, state.fit, stride))
        state = _looked_at(system, state, judge=state.iteration == due or state.fit.finished)
    return state


def _looked_at(system: CGSystem, state: SymmetricState, judge: bool = True) -> SymmetricState:
    """Take the iterate if it is positive definite, and judge whether to go on."""
    X, ratio = cholesky(residuals.matrix(system, state.fit)), state.fit.max_ratio
    if X is not None:
        state = replace(state, X=X, max_ratio=ratio)
    if not judge:
        return state
    slow = state.iteration >= PATIENCE and ratio > 0.25 * state.mark
    return replace(state, mark=ratio, left=X is None or slow)
