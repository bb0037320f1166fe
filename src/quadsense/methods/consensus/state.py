"""Where the consensus method stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.arrays import Vector
from quadsense.methods.least_squares.state import SquaresVerdict


@dataclass(frozen=True)
class Shown:
    """A matrix that was looked at, and the bounds that were known by then.

    Attributes
    ----------
    x : array of shape (N,)
        In the cone.
    values : array of shape (m,)
        ``F(A)`` in float64.
    cost, lower : float
        What x costs, and the largest lower bound so far.
    y : array of shape (m,)
        The dual vector of that bound.
    level : float
        What is added to ``F*(y)`` as a multiple of I, where the trace is given.
    max_ratio : float
        Worst ratio of x.
    """

    x: Vector
    values: Vector
    cost: float
    lower: float
    y: Vector
    level: float
    max_ratio: float


@dataclass(frozen=True)
class ConsensusState:
    """The iterate, and the last matrix that was looked at.

    Attributes
    ----------
    z, values : arrays of shape (N,) and (m,)
        Z, packed, and ``F(Z)``.
    v, r : arrays of shape (m,)
        Copies of the readings, and their multipliers over ``2 rho``.
    x, u : arrays of shape (N,)
        The copy in the cone, and its multiplier over ``2 sigma``; without a cone x is z, u is 0.
    y : array of shape (m,)
        Multipliers for which Z is stationary.
    rho : array of shape (m,)
    sigma : float
    share : float
        How far ends are moved inwards, in units of half an interval.
    apart, moved : float
        How far Z is from the copy in the cone, and how far that went in the last step.
    shown : Shown or None
    mark, marked : float, int
        The least that remained to be done, in units of what suffices, and when that was.
    """

    z: Vector
    values: Vector
    v: Vector
    r: Vector
    x: Vector
    u: Vector
    y: Vector
    rho: Vector
    sigma: float
    share: float
    apart: float = 0.0
    moved: float = 0.0
    shown: Shown | None = None
    verdict: SquaresVerdict = SquaresVerdict.OPEN
    iteration: int = 0
    mark: float = np.inf
    marked: int = 0

    @property
    def max_ratio(self) -> float:
        """Worst ratio of the matrix that was looked at."""
        return np.inf if self.shown is None else self.shown.max_ratio
