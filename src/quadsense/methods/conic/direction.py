"""Points of the interior-point method, what they miss, Newton's directions and how far they lead.

The conditions, with ``v = F(A)`` and a sign for every end, are

    C + 2 alpha (A - P) + F*(y_upper - y_lower + y_held) = S,
    v = level + y_held/curve,
    sign v + g = end + softness y + q + share t,       price = y + z,       sum share y + z_t = 1,

and ``A S``, ``g y``, ``q z`` and ``t z_t`` at their targets: 0, or above it where the objective has
a logarithm. S is 0 over all symmetric matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.cholesky import factor_lower, least_eigenvalue, singular, solve_lower
from quadsense.core.intervals import Array
from quadsense.device import fetched, numbers
from quadsense.methods.base import DIAGONAL_SHIFT
from quadsense.methods.conic.coordinates import (
    KernelCoordinates,
    PlainCoordinates,
    ScaledCoordinates,
    cholesky,
    reach,
)
from quadsense.methods.conic.program import KernelProgram
from quadsense.methods.conic.system import system_of
from quadsense.system.watch import eigen_flops, look


@dataclass(frozen=True)
class KernelPoint:
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

    def y(self, program: KernelProgram) -> Vector:
        """The dual vector of the rows."""
        return self.duals[0] - self.duals[1] + self.held

    @property
    def on_host(self) -> KernelPoint:
        """The same in arrays of NumPy's."""
        arrays = fetched(self)
        return replace(self, **arrays) if arrays else self


@dataclass(frozen=True)
class KernelResiduals:
    """What a point misses: of the matrix equation, the ends, the prices, t and the levels."""

    matrix: Array
    ends: Vector
    prices: Vector
    t: float
    held: Vector

    def times(self, share: float) -> KernelResiduals:
        """That share of all."""
        return KernelResiduals(
            share * self.matrix, share * self.ends, share * self.prices, share * self.t,
            share * self.held,
        )  # fmt: skip


def residuals(program: KernelProgram, at: KernelPoint) -> KernelResiduals:
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
    return KernelResiduals(matrix, ends, prices, t, held)


def count_of_pairs(program: KernelProgram) -> int:
    """Return how many products are to reach their targets."""
    count = sum(program.counts)
    return count + int(program.common) + (program.F.n if program.psd else 0)


def sum_of_targets(program: KernelProgram) -> float:
    """Return the sum of all targets."""
    total = float(np.sum(program.row_target))
    return total + (program.cone_target * program.F.n if program.psd else 0.0)


def sum_of_products(program: KernelProgram, at: KernelPoint) -> float:
    """Return the sum of all products."""
    cone = 0.0 if at.S is None else np.vdot(at.A, at.S).real
    ends, prices, cone = numbers(np.sum(at.slacks * at.duals), np.sum(at.bought * at.left), cone)
    total = ends + prices
    total += at.t * at.t_dual if program.common else 0.0
    return total if at.S is None else total + cone


def gap_of(program: KernelProgram, at: KernelPoint, eigenvalues: Vector | None) -> float:
    """Return objective less lower bound, as far as the products know.

    A pair of product p with a target above 0, a logarithm, contributes
    ``p - target - target log(p/target)``.

    Parameters
    ----------
    program : KernelProgram
    at : KernelPoint
    eigenvalues : ndarray, shape (n,), or None
        Of ``A S``; of a target of 0 any numbers of the same sum.
    """
    if program.homogeneous:
        return _gap_of_largest(program, at)
    total = float(np.sum(at.bought * at.left)) + (at.t * at.t_dual if program.common else 0.0)
    products, plain = at.slacks * at.duals, program.finite
    if program.row_unit:
        logarithms = program.row_target > 0.0
        plain = plain & ~logarithms
        total += _apart(products[logarithms], program.row_target[logarithms])
    total += float(np.sum(products[plain]))
    if eigenvalues is not None:
        cone = program.cone_target
        total += _apart(eigenvalues, cone) if cone else float(np.sum(eigenvalues))
    return total


def _gap_of_largest(program: KernelProgram, at: KernelPoint) -> float:
    """Return the largest miss minus the bound by the rows' multipliers, scaled to what they may be.

    What both ends of a row have in common bounds nothing: without it the others may be larger.
    """
    y = at.duals[0] - at.duals[1]
    shares = np.where(program.share > 0.0, program.share, 1.0)
    over = np.where(program.finite, (program.signs * at.v - program.ends) / shares, 0.0)
    largest, gain, mass = numbers(
        np.max(over, initial=0.0),
        -np.sum(program.ends * np.maximum(program.signs * y, 0.0)),
        np.sum(np.max(program.share, axis=0) * np.abs(y)),
    )
    return largest - max(gain / mass, 0.0) if mass > 0.0 else largest


def _apart(p: Vector, target: Vector | float) -> float:
    ratios = p / target
    return float(np.sum(target * (ratios - 1.0 - np.log(ratios))))


def objective_of(program: KernelProgram, at: KernelPoint) -> float:
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


LOST_SHARE = 0.5
"""Share of what the products say of S below which it is lost in rounding."""


def hermitian(B: Array) -> Array:
    """Return the Hermitian part."""
    return 0.5 * (B + B.conj().T)


def plain_coordinates(program: KernelProgram, weights: Vector) -> PlainCoordinates:
    """Return those of all symmetric matrices, for rows of these weights."""
    if program.alpha:
        return PlainCoordinates(program.F, 2.0 * program.alpha, program.kept)
    largest = float(np.max(weights, where=~program.equal, initial=0.0)) or 1.0
    return program.coordinates(program.F, DIAGONAL_SHIFT * largest, program.kept)


@dataclass(frozen=True)
class ConeScaling:
    """The Nesterov-Todd scaling at a point: ``A = G d G*`` and ``S = G^-* d G^-1``.

    Attributes
    ----------
    d : ndarray, shape (n,)
    G, back : ndarray, shape (n, n)
        G and ``G^-*``.
    turn : ndarray, shape (n, n), or None
        Orthogonal: coordinates of the system are those of ``G turn``.
    """

    d: Vector
    G: Array
    back: Array
    turn: Array | None

    @classmethod
    def at(cls, point: KernelPoint, quadratic: bool) -> ConeScaling:
        """Return the scaling of a point."""
        assert point.S is not None and point.X is not None
        look(eigen_flops(len(point.A)))
        lower = factor_lower(point.S)
        left, d, right = singular(lower.conj().T @ point.X)
        G, back = (point.X @ right.conj().T) / np.sqrt(d), (lower @ left) / np.sqrt(d)
        turn = np.linalg.eigh(hermitian(G.conj().T @ G))[1] if quadratic else None
        return cls(d, G, back, turn)

    def inward(self, R: Array) -> Array:
        """From coordinates of d to those of the system."""
        return R if self.turn is None else hermitian(self.turn.conj().T @ R @ self.turn)

    def outward(self, x: Array) -> Array:
        """Back."""
        return x if self.turn is None else hermitian(self.turn @ x @ self.turn.conj().T)

    def coordinates(self, program: KernelProgram) -> KernelCoordinates:
        """Those of the system."""
        if self.turn is None:
            return ScaledCoordinates(program.F, self.G, 1.0)
        G = self.G @ self.turn
        lengths = np.vecdot(G.T, G.T).real
        hessian = 1.0 + (2.0 * program.alpha) * np.outer(lengths, lengths)
        return ScaledCoordinates(program.F, G, hessian)

    def dual(self, S: Array, products: Array) -> Array:
        """Return S, of which the products know better what tends to 0.

        By its own equation S is a sum in which that is lost; by the products alone, what does not
        tend to 0 is off by what the solution of the system is. So S is kept, and raised where it
        falls below half of what the products say.

        Parameters
        ----------
        S : ndarray, shape (n, n)
            By its equation.
        products : ndarray, shape (n, n)
            In coordinates of d, positive definite.
        """
        scaled = hermitian(self.G.conj().T @ S @ self.G)
        if cholesky(scaled - LOST_SHARE * products) is not None:
            return S
        lower = factor_lower(products)
        ratio = solve_lower(lower, solve_lower(lower, scaled).conj().T)
        values, vectors = np.linalg.eigh(hermitian(ratio))
        low = values < LOST_SHARE
        if not bool(np.any(low)):
            return S
        raised = self.back @ (lower @ (vectors[:, low] * np.sqrt(LOST_SHARE - values[low])))
        return hermitian(S + raised @ raised.conj().T)

    def share(self, change: Array) -> Any:
        """Return the least eigenvalue of a change in units of d, of which it takes that share."""
        root = 1.0 / np.sqrt(self.d)
        return least_eigenvalue(change * root * root[:, None])


@dataclass(frozen=True)
class ProductTargets:
    """What the products are to become: those of the ends, of the prices, of t and of the cone."""

    rows: Vector
    prices: Vector
    t: float
    cone: Array | None


@dataclass(frozen=True)
class KernelDirection:
    """A change of every part of a `KernelPoint`; with a cone, A and S in coordinates of d."""

    A: Array
    S: Array | None
    slacks: Vector
    duals: Vector
    bought: Vector
    left: Vector
    t: float
    t_dual: float
    held: Vector
    y: Vector


class Newton:
    """The factored system at a point.

    Parameters
    ----------
    program : KernelProgram
    at : KernelPoint
    missed : KernelResiduals
    cone : ConeScaling or None
    enough : float
        Relative residual of the systems that will do.
    single : bool
        Whether to try factors in single precision.
    """

    def __init__(
        self,
        program: KernelProgram,
        at: KernelPoint,
        missed: KernelResiduals,
        cone: ConeScaling | None,
        enough: float,
        single: bool,
    ) -> None:
        self.program, self.at, self.missed, self.cone = program, at, missed, cone
        finite = program.finite
        # What all directions of a step have in common.
        self.sold = bool(program.counts[1])
        self.duals = np.where(finite, at.duals, 1.0)
        self.products = at.slacks * at.duals
        give = np.where(finite, at.slacks / self.duals, 1.0)
        give = give + (at.bought / at.left if self.sold else 0.0) + program.softness
        self.weights = np.where(finite, 1.0 / give, 0.0)  # of every end
        total = self.weights[0] + self.weights[1] + program.curve
        self.inverse = np.where(program.equal, 0.0, 1.0 / np.where(program.equal, 1.0, total))
        self.tilt = np.sum(program.signs * self.weights * program.share, axis=0)
        # Where one end has most of a row's weight, its multiplier is what the others leave.
        other = self.weights[::-1]
        leads = np.stack([self.weights[0] >= other[0], self.weights[1] > other[1]])
        self.leads = leads & (self.weights >= program.curve) & finite
        self.led = program.equal | ~np.any(self.leads, axis=0)
        self.gives_way = program.equal | (program.curve > 0.0)
        self.inner: Array | None = None
        self.spans: Array | None = None
        if cone is not None:
            d, G = cone.d, cone.G
            self.spans = 0.5 * (d[:, None] + d)
            self.inner = hermitian(G.conj().T @ -missed.matrix @ G)
            self.coordinates = cone.coordinates(program)
        else:
            self.coordinates = plain_coordinates(program, total)
        self.system = system_of(self.coordinates, self.inverse, program.equal, enough, single)
        self.border: tuple[Array, Vector, Vector] | None = None
        if program.common:
            zero = np.zeros_like(program.C)
            x, y, image = self.system.solve(zero, self.inverse * self.tilt)
            self.border = x, y, self._ends(image, y, program.share, 0.0)

    def direction(self, targets: ProductTargets, share: float = 1.0) -> KernelDirection:
        """Return Newton's direction towards these products, and by that share off the residuals."""
        program, at = self.program, self.at
        missed = self.missed if share == 1.0 else self.missed.times(share)
        finite = program.finite
        pushed = np.where(finite, targets.rows - self.products, 0.0)
        h, sold = missed.ends - pushed / self.duals, None
        if self.sold:
            sold = np.where(program.priced, targets.prices - at.bought * at.left, 0.0)
            less = (sold - at.bought * missed.prices) / at.left
            h = h + np.where(program.priced, less, 0.0)
        h = np.where(finite, h, 0.0)
        known = np.sum(program.signs * self.weights * h, axis=0) + program.curve * missed.held
        row = np.where(program.equal, missed.held, self.inverse * known)
        matrix, R = -missed.matrix, None
        if self.cone is not None:
            assert targets.cone is not None and self.inner is not None
            R = (targets.cone - np.diag(self.cone.d**2)) / self.spans
            matrix = R + (self.inner if share == 1.0 else share * self.inner)
            matrix = self.cone.inward(matrix)
        x, y, image = self.system.solve(matrix, row)
        duals = self._ends(image, y, h, missed.held)
        dt = dt_dual = 0.0
        if self.border is not None:
            bx, by, turned = self.border
            pull = targets.t - at.t * at.t_dual
            known = missed.t - pull / at.t - float(np.sum(program.share * duals))
            dt = known / (float(np.sum(program.share * turned)) - at.t_dual / at.t)
            x, y, duals = x + dt * bx, y + dt * by, duals + dt * turned
            dt_dual = (pull - at.t_dual * dt) / at.t
        # Of a square that has most of its row's weight likewise; squares never share a t.
        held = np.where(self.led, y - duals[0] + duals[1], program.curve * (image - missed.held))
        held = np.where(self.gives_way, held, 0.0)
        return self._direction(x, y, held, duals, dt, dt_dual, pushed, sold, missed, R)

    def _ends(self, v: Vector, y: Vector, h: Vector, level: Vector | float) -> Vector:
        """Return the change of the ends' multipliers with readings and the rows' multipliers."""
        signs = self.program.signs
        duals = self.weights * (signs * v - h)
        others = signs[::-1] * duals[::-1] + self.program.curve * (v - level)
        duals = np.where(self.leads, signs * (y - others), duals)
        return np.where(self.program.finite, duals, 0.0)

    def _direction(
        self, x: Array, y: Vector, held: Vector, duals: Vector, dt: float, dt_dual: float,
        pushed: Vector, sold: Vector | None, missed: KernelResiduals, R: Array | None,
    ) -> KernelDirection:  # fmt: skip
        program, at, finite = self.program, self.at, self.program.finite
        slacks = np.where(finite, (pushed - at.slacks * duals) / self.duals, 0.0)
        left = bought = np.zeros_like(slacks)
        if sold is not None:
            left = np.where(program.priced, missed.prices - duals, 0.0)
            bought = np.where(program.priced, (sold - at.bought * left) / at.left, 0.0)
        if self.cone is None:
            return KernelDirection(x, None, slacks, duals, bought, left, dt, dt_dual, held, y)
        assert R is not None
        inner = self.cone.outward(x)
        return KernelDirection(inner, R - inner, slacks, duals, bought, left, dt, dt_dual, held, y)

    def lengths(self, step: KernelDirection) -> tuple[float, float]:
        """Return how far the primal and the dual part may go."""
        program, at = self.program, self.at
        lengths = [reach(at.slacks, step.slacks), reach(self.duals, step.duals)]
        if self.sold:
            bought = np.where(program.priced, at.bought, 1.0)
            lengths += [reach(bought, step.bought), reach(at.left, step.left)]
        if self.cone is not None:
            assert step.S is not None
            lengths += [reach(1.0, self.cone.share(step.A)), reach(1.0, self.cone.share(step.S))]
        if program.common:
            lengths += [reach(at.t, step.t), reach(at.t_dual, step.t_dual)]
        longest = numbers(*lengths)
        return min(longest[::2]), min(longest[1::2])
