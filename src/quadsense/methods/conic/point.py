"""A point of the interior-point method, what it misses of the conditions, and how far it is.

The conditions, with ``v = F(A)`` and a sign for every end, are

    C + 2 alpha (A - P) + F*(y_upper - y_lower + y_held) = S,
    v = level + y_held/curve,
    sign v + g = end + softness y + q + share t,       price = y + z,       sum share y + z_t = 1,

and ``A S``, ``g y``, ``q z`` and ``t z_t`` at their targets: 0, or above it where the objective has
a logarithm. S is 0 over all symmetric matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.intervals import Array
from quadsense.device import fetched, numbers
from quadsense.methods.conic.program import Program


@dataclass(frozen=True)
class Point:
    """A point, strictly inside of all that is to be positive.

    Attributes
    ----------
    A : ndarray, shape (n, n)
    X, S : ndarray, shape (n, n), or None
        Factor of A and the multiplier of the cone; None over all symmetric matrices.
    v : ndarray, shape (m,)
        ``F(A)``.
    slacks, duals : ndarray, shape (2, m)
        g and y; 1 and 0 where there is no end.
    bought, left : ndarray, shape (2, m)
        q and z; 0 and 1 where nothing is sold.
    t, t_dual : float
        0 and 1 where there is no common t.
    held : ndarray, shape (m,)
        Multipliers of the equalities and the squares, else 0.
    """

    A: Array
    X: Array | None
    S: Array | None
    v: Vector
    slacks: Vector
    duals: Vector
    bought: Vector
    left: Vector
    t: float
    t_dual: float
    held: Vector

    def y(self, program: Program) -> Vector:
        """The dual vector of the rows."""
        return self.duals[0] - self.duals[1] + self.held

    @property
    def on_host(self) -> Point:
        """The same in arrays of NumPy's."""
        arrays = fetched(self)
        return replace(self, **arrays) if arrays else self


@dataclass(frozen=True)
class Residuals:
    """What a point misses: of the matrix equation, the ends, the prices, t and the levels."""

    matrix: Array
    ends: Vector
    prices: Vector
    t: float
    held: Vector

    def times(self, share: float) -> Residuals:
        """That share of all."""
        return Residuals(
            share * self.matrix, share * self.ends, share * self.prices, share * self.t,
            share * self.held,
        )  # fmt: skip


def residuals(program: Program, at: Point) -> Residuals:
    """Return what a point misses of the conditions."""
    matrix = program.C + program.F.adjoint(at.y(program))
    if program.alpha:
        matrix = matrix + (2.0 * program.alpha) * (at.A - program.P)
    if at.S is not None:
        matrix = matrix - at.S
    soft = program.softness * at.duals + at.bought + program.share * at.t
    ends = np.where(program.finite, program.ends - program.signs * at.v + soft - at.slacks, 0.0)
    prices = np.where(program.priced, program.price - at.duals - at.left, 0.0)
    t = 1.0 - float(np.sum(program.share * at.duals)) - at.t_dual if program.common else 0.0
    level = program.level + program.yielding * at.held
    held = np.where(program.equal | (program.curve > 0.0), level - at.v, 0.0)
    return Residuals(matrix, ends, prices, t, held)


def pairs(program: Program) -> int:
    """Return how many products are to reach their targets."""
    count = sum(program.counts)
    return count + int(program.common) + (program.F.n if program.psd else 0)


def aim(program: Program) -> float:
    """Return the sum of all targets."""
    total = program.row_target * program.counts[0]
    return total + (program.cone_target * program.F.n if program.psd else 0.0)


def products(program: Program, at: Point) -> float:
    """Return the sum of all products."""
    cone = 0.0 if at.S is None else np.vdot(at.A, at.S).real
    ends, prices, cone = numbers(np.sum(at.slacks * at.duals), np.sum(at.bought * at.left), cone)
    total = ends + prices
    total += at.t * at.t_dual if program.common else 0.0
    return total if at.S is None else total + cone


def gap(program: Program, at: Point, eigenvalues: Vector | None) -> float:
    """Return objective less lower bound, as far as the products know.

    A pair of product p with a target above 0, a logarithm, contributes
    ``p - target - target log(p/target)``.

    Parameters
    ----------
    program : Program
    at : Point
    eigenvalues : ndarray, shape (n,), or None
        Of ``A S``; of a target of 0 any numbers of the same sum.
    """
    total = float(np.sum(at.bought * at.left)) + (at.t * at.t_dual if program.common else 0.0)
    total += _apart((at.slacks * at.duals)[program.finite], program.row_target)
    if eigenvalues is not None:
        total += _apart(eigenvalues, program.cone_target)
    return total


def _apart(p: Vector, target: float) -> float:
    if target == 0.0:
        return float(np.sum(p))
    ratios = p / target
    return target * float(np.sum(ratios - 1.0 - np.log(ratios)))


def objective(program: Program, at: Point) -> float:
    """Return the objective of the program, up to constants, with the slacks as they are.

    Logarithms are left out.
    """
    value, away, curved, paid, bent = numbers(
        np.vdot(program.C, at.A).real,
        np.linalg.norm(at.A - program.P) if program.alpha else 0.0,
        program.yielding @ at.held**2,
        np.sum(program.price * at.bought),
        np.sum(program.softness * at.duals**2),
    )
    if program.alpha:
        value += program.alpha * away**2
    value += 0.5 * curved
    value += paid + at.t + program.floor
    return value + 0.5 * bent
