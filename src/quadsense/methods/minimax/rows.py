"""The interior-point systems by QR of the rows themselves, for data that normal equations lose.

A normal matrix squares the weights: of rows whose tolerances differ by eight powers of ten the
wide ones are rounded away. Householder QR with pivoted columns and the heaviest rows first errs
in each row by no more than that row's own rounding [Cox & Higham 1998], whatever the weights. It
takes the design matrix and some multiples of its flops, so it is what small problems that resist
the normal equations end with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from quadsense.core.packed import Array, Vector, unpack
from quadsense.measurements.sensing import Sensing
from quadsense.methods.minimax.coordinates import Preconditioner
from quadsense.methods.minimax.newton import MinimaxPoint
from quadsense.system.watch import look

MAX_ENTRIES = 4_000_000
"""Entries of the design matrix at most: 32 MB."""

MAX_FLOPS = 2e10
"""Operations of one factorization at most."""

PIVOTED_QR_FACTOR = 4.0
"""Time of pivoted QR over that of as many operations in a matrix product."""

MIN_SEEN_SHARE = 1e-13
"""Share below which a direction is not seen by rows of unit norm."""


def fits(m: int, size: int) -> bool:
    """Whether factorisations of m rows in that many unknowns are affordable."""
    return m * size <= MAX_ENTRIES and 2.0 * m * size * min(m, size) <= MAX_FLOPS


def _look(shape: tuple[int, ...]) -> None:
    """Look at the watch before a pivoted QR, half of which runs at the speed of memory."""
    look(PIVOTED_QR_FACTOR * 2.0 * shape[0] * shape[1] * min(shape))


@dataclass(frozen=True)
class RowCoordinates:
    """The unknown is A in an orthonormal basis of the span of the ``u_i u_i*``.

    Attributes
    ----------
    G : ndarray, shape (m, k)
        The sensing map, ``F(A) = G x``.
    basis : ndarray, shape (unknowns, k), or None
        ``pack(A) = basis @ x``; None: x is ``pack(A)`` itself.
    delta : ndarray, shape (m,)
    """

    G: Vector
    basis: Vector | None
    delta: Vector

    @property
    def precisions(self) -> tuple[int, ...]:
        """Twice the bits of a normal matrix, as nothing is squared."""
        return (128,)

    def patience(self, precision: int) -> int:
        """Nothing is iterated."""
        return 1

    def forward(self, x: Array) -> Vector:
        """Return ``F(A(x)) / delta``."""
        return np.asarray(self.G @ x) / self.delta

    def adjoint(self, y: Vector) -> Array:
        """Return the transpose of `forward` applied to y."""
        return np.asarray(self.G.T @ (y / self.delta))

    def product(self, x: Array, d: Vector, shift: Vector) -> tuple[Array, Vector]:
        """Return ``adjoint(d * forward(x) + shift)`` and ``forward(x)``."""
        z = self.forward(x)
        return self.adjoint(d * z + shift), z

    def preconditioner(self, d: Vector, precision: int) -> Preconditioner | None:
        """Return none: there is no normal matrix here, see `row_system`."""
        return None

    def smallest_eigenvalue(self) -> float:
        """Estimate of that of ``adjoint(forward(.))`` on all A; 0.0 where some are not seen."""
        if self.basis is not None and self.basis.shape[0] > self.basis.shape[1]:
            return 0.0
        values = np.linalg.svd(self.G / self.delta[:, None], compute_uv=False)
        least = float(values[-1])
        return least**2 if least > 1e-13 * float(values[0]) else 0.0

    def matrix(self, x: Array, n: int, dtype: np.dtype[np.generic]) -> Array:
        """Return A."""
        return unpack(x if self.basis is None else self.basis @ x, n, dtype)


def row_coordinates(F: Sensing, delta: Vector) -> RowCoordinates:
    """Write the sensing map out on the directions that it sees; on one where it sees none."""
    G = np.ascontiguousarray(F.features())
    _look(G.shape)
    Q, R, _ = qr(G.T, mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(R))
    seen = sizes > MIN_SEEN_SHARE * float(np.max(sizes, initial=0.0))
    seen[:1] = True  # sums over rows that all cancel see nothing
    return RowCoordinates(G @ Q[:, seen], Q[:, seen], delta)


@dataclass(frozen=True)
class RowSystem:
    """One weighted system, as the least-squares problem that it comes from.

    The two ends of a row give the two equations ``t - g.x`` and ``t + g.x``; a rotation leaves x
    in one of them, and what the others say of t alone is one more row.

    Attributes
    ----------
    coordinates : RowCoordinates
    at : MinimaxPoint
    d, e : ndarray, shape (m,)
        Sum of the weights of a row, what holds it back included, and their difference.
    halves : ndarray, shape (2, m)
        What the multiplier of each end adds to the row of t.
    last : float
        Weight of the row of t.
    order : ndarray of int
        Rows by falling size.
    Q, R, columns
        The factorisation.
    """

    coordinates: RowCoordinates
    at: MinimaxPoint
    d: Vector
    e: Vector
    halves: Vector
    last: float
    order: Array
    Q: Vector
    R: Vector
    columns: Array

    def direction(
        self, wanted: Vector, push: float, pull: Vector | None, tolerance: float
    ) -> tuple[Array, float, int, float]:
        """Newton step in x and t towards the multipliers `wanted`; nothing is iterated."""
        return *self.solve(wanted, push, pull), 0, 0.0

    def solve(self, wanted: Vector, push: float, pull: Vector | None) -> tuple[Vector, float]:
        """Newton step in x and t."""
        at, change = self.at, wanted - self.at.duals
        right, last = change[1] - change[0], float(np.sum(self.halves * change))
        y = at.duals[1] - at.duals[0]
        held = at.held
        if pull is not None and held is not None:
            eased = held * at.z + pull
            right = right + eased
            last -= float(np.sum(self.e * eased / self.d))
            y = y - held * at.z
        found = self._through(right / np.sqrt(self.d), last + push - at.floor)
        found += self._unbalanced(y)
        solution = np.zeros(self.columns.size)
        kept = self.columns[: found.size]
        solution[kept] = solve_triangular(self.R, found, check_finite=False)
        return solution[:-1], float(solution[-1])

    def project(self, scaled: Vector) -> Vector:
        """Remove from a vector of multipliers what keeps ``F*(y)`` from vanishing."""
        root = np.sqrt(self.d)
        for _ in range(2):
            t_part = -float(np.sum(self.e * scaled / self.d))
            fitted = np.empty(self.order.size)
            fitted[self.order] = self.Q @ self._through(scaled / root, t_part)
            scaled = scaled - root * fitted[: root.size]
        return scaled

    def _through(self, right: Vector, last: float) -> Vector:
        """Right sides of the rows and of the row of t, in the basis Q."""
        whole = np.zeros(self.order.size)
        whole[: right.size] = right
        whole[right.size] = last / self.last if self.last > 0.0 else 0.0
        return np.asarray(self.Q.T @ whole[self.order])

    def _unbalanced(self, y: Vector) -> Vector:
        """What the multipliers lack of being dual feasible; 0 where that is only rounding."""
        coordinates = self.coordinates
        total = float(self.at.duals.sum()) + self.at.floor
        left = np.append(coordinates.adjoint(y), total - 1.0)
        sizes = np.abs(coordinates.G).T @ (np.abs(y) / coordinates.delta)
        left[np.abs(left) <= 1e-14 * np.append(sizes, total + 1.0)] = 0.0
        kept = left[self.columns[: len(self.R)]]
        return np.asarray(solve_triangular(self.R, kept, trans="T", check_finite=False))


def row_system(coordinates: RowCoordinates, at: MinimaxPoint) -> RowSystem | None:
    """Factor the system of a step; None where it has rounded away."""
    weights, held = at.weights, at.held
    if weights is None:
        return None
    extra = np.zeros(len(at.z)) if held is None else held
    d, e = weights[0] + weights[1] + extra, weights[1] - weights[0]
    if not float(np.min(d)) > 0.0:
        return None
    halves = (2.0 * weights[::-1] + extra) / d
    # Of t alone: sum of d - e^2/d, without the cancellation.
    last = float(np.sqrt(np.sum(halves * weights) + at.floor / at.level))
    m, k = coordinates.G.shape
    B = np.zeros((m + 1, k + 1))
    B[:m, :-1] = coordinates.G * (np.sqrt(d) / coordinates.delta)[:, None]
    B[:m, -1] = e / np.sqrt(d)
    B[m, -1] = last
    order = np.argsort(-np.max(np.abs(B), axis=1), kind="stable")
    _look(B.shape)
    Q, R, columns = qr(B[order], mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(R))
    if not np.all(np.isfinite(sizes)):
        return None
    kept = int(np.count_nonzero(sizes > 1e-200 * float(sizes[0])))
    if kept == 0:
        return None
    return RowSystem(
        coordinates, at, d, e, halves, last, order, Q[:, :kept], R[:kept, :kept], columns
    )


def least_squares_by_rows(coordinates: RowCoordinates, b: Vector) -> Vector:
    """Minimise ``|forward(x) - b|``, refined so that a consistent fit ends at rounding."""
    B = coordinates.G / coordinates.delta[:, None]
    order = np.argsort(-np.max(np.abs(B), axis=1), kind="stable")
    _look(B.shape)
    Q, R, columns = qr(B[order], mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(R))
    kept = int(np.count_nonzero(sizes > 1e-200 * float(np.max(sizes, initial=0.0))))
    x = np.zeros(columns.size)
    for _ in range(3):
        left = (b - coordinates.forward(x))[order]
        step = solve_triangular(R[:kept, :kept], Q[:, :kept].T @ left, check_finite=False)
        x[columns[:kept]] += step
    return x
