"""A question of least squares with its row terms and the solver of a step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quadsense.arrays import Vector
from quadsense.methods.base import Problem
from quadsense.methods.consensus.bounds import ConsensusBounds
from quadsense.methods.consensus.normal import ByGradients, ZStep
from quadsense.methods.consensus.rows import RowTerm, SquaresWithin
from quadsense.methods.least_squares import program as squares
from quadsense.methods.least_squares.bounds import Rows

PULLED = 0.3
"""First penalty of the copy in the cone, in units of the mean curvature of the rows' penalties."""


@dataclass(frozen=True)
class ConsensusProgram:
    """The question over powers of two, and what its steps are made of.

    Attributes
    ----------
    inner : Program
        Rows, cone, prior and scale.
    term : RowTerm
    normal : ZStep
    bounds : ConsensusBounds
    gap : float
        The relative gap that was asked for.
    """

    inner: squares.SquaresProgram
    term: RowTerm
    normal: ZStep
    bounds: ConsensusBounds
    gap: float

    @cached_property
    def equal(self) -> Rows:
        """Numbers of the rows that are equalities."""
        return np.flatnonzero(self.inner.lo == self.inner.hi)

    def curvature(self, rho: Vector) -> float:
        """Mean eigenvalue of ``F* diag(rho) F``."""
        return float(rho @ self.inner.F.sizes**2) / self.inner.cone.size


def prepare(problem: Problem) -> ConsensusProgram | None:
    """The program; None where the question is none of least squares, or asks for nothing."""
    inner = squares.prepare(problem)
    if inner is None:
        return None
    cost = inner.cost
    lo, hi = inner.lo, inner.hi
    two = np.isfinite(lo) & np.isfinite(hi)
    other = np.asarray(inner.ends.unit) if isinstance(lo, np.ndarray) else inner.ends.unit
    with np.errstate(invalid="ignore"):
        unit = np.where(two, 0.5 * (hi - lo), other / inner.scale)
    count = int(np.count_nonzero(cost.w))
    typical = float(np.sum(cost.w)) / count if count else cost.alpha
    term = SquaresWithin(cost.w, cost.b, lo, hi, unit, typical)
    normal, bounds = ByGradients(inner.F, inner.cone), ConsensusBounds(inner, term)
    return ConsensusProgram(inner, term, normal, bounds, float(problem.options.gap))
