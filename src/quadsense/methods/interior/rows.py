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

from quadsense.core.products import unknowns
from quadsense.methods.interior.mehrotra import Point
from quadsense.methods.interior.preconditioner import Preconditioner
from quadsense.methods.interior.svec import Array, Vector, design_block, smat

ENTRIES = 4_000_000  # of the design matrix, 32 MB
FLOPS = 2e10  # of one factorisation
UNSEEN = 1e-13  # directions that rows of unit norm see less than this are not seen


def fits(U: Array) -> bool:
    """Whether the design matrix and its factorisations are affordable."""
    m, size = U.shape[0], unknowns(U)
    return m * size <= ENTRIES and 2.0 * m * size * min(m, size) <= FLOPS


@dataclass(frozen=True)
class RowCoordinates:
    """The unknown is A in an orthonormal basis of the span of the ``u_i u_i*``.

    Attributes
    ----------
    G : ndarray, shape (m, k)
        The sensing map, ``F(A) = G x``.
    basis : ndarray, shape (unknowns, k)
        ``svec(A) = basis @ x``.
    delta : ndarray, shape (m,)
    """

    G: Vector
    basis: Vector
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

    def preconditioner(
        self, d: Vector, precision: int, ridge: float = 0.0
    ) -> Preconditioner | None:
        """Return none: there is no normal matrix here, see `row_system`."""
        return None

    def smallest_eigenvalue(self) -> float:
        """Estimate of that of ``adjoint(forward(.))`` on all A; 0.0 where some are not seen."""
        if self.basis.shape[0] > self.basis.shape[1]:
            return 0.0
        values = np.linalg.svd(self.G / self.delta[:, None], compute_uv=False)
        least = float(values[-1])
        return least**2 if least > 1e-13 * float(values[0]) else 0.0

    def matrix(self, x: Array, n: int, dtype: np.dtype[np.generic]) -> Array:
        """Return A."""
        return smat(self.basis @ x, n, dtype)


def row_coordinates(U: Array, delta: Vector) -> RowCoordinates:
    """Write the sensing map out on the directions that it sees."""
    features = np.ascontiguousarray(design_block(U, np.float64).T)
    Q, R, _ = qr(features.T, mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(R))
    basis = Q[:, sizes > UNSEEN * float(np.max(sizes, initial=0.0))]
    return RowCoordinates(features @ basis, basis, delta)


@dataclass(frozen=True)
class RowSystem:
    """One weighted system, as the least-squares problem that it comes from.

    The two ends of a row give the two equations ``t - g.x`` and ``t + g.x``; a rotation leaves x
    in one of them, and what the others say of t alone is one more row.

    Attributes
    ----------
    coordinates : RowCoordinates
    duals, d, e : ndarray, shapes (2, m), (m,), (m,)
        Multipliers; sum and difference of the weights.
    halves : ndarray, shape (2, m)
        ``2 d2/d, 2 d1/d``: what each end's multiplier adds to the row of t.
    floor, last : float
        Multiplier of ``t >= 0``; weight of the row of t.
    order : ndarray of int
        Rows by falling size.
    Q, R, columns
        The factorisation.
    """

    coordinates: RowCoordinates
    duals: Vector
    d: Vector
    e: Vector
    halves: Vector
    floor: float
    last: float
    order: Array
    Q: Vector
    R: Vector
    columns: Array

    def direction(
        self, wanted: Vector, push: float, pull: Array | None, tolerance: float
    ) -> tuple[Array, float, int, float]:
        """Newton step in x and t towards the multipliers `wanted`; nothing is iterated."""
        change = wanted - self.duals
        found = self._through(
            (change[1] - change[0]) / np.sqrt(self.d),
            float(np.sum(self.halves * change)) + push - self.floor,
        )
        found += self._unbalanced(pull)
        solution = np.zeros(self.columns.size)
        kept = self.columns[: found.size]
        solution[kept] = solve_triangular(self.R, found, check_finite=False)
        return solution[:-1], float(solution[-1]), 0, 0.0

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

    def _unbalanced(self, pull: Array | None) -> Vector:
        """What the multipliers lack of being dual feasible; 0 where that is only rounding."""
        y = self.duals[1] - self.duals[0]
        left = np.append(self.coordinates.adjoint(y), float(self.duals.sum()) + self.floor - 1.0)
        sizes = np.append(
            np.abs(self.coordinates.G).T @ (np.abs(y) / self.coordinates.delta),
            float(self.duals.sum()) + self.floor + 1.0,
        )
        if pull is not None:
            left[:-1] += pull
        left[np.abs(left) <= 1e-14 * sizes] = 0.0
        return np.asarray(
            solve_triangular(
                self.R, left[self.columns[: len(self.R)]], trans="T", check_finite=False
            )
        )


def row_system(coordinates: RowCoordinates, at: Point) -> RowSystem | None:
    """Factor the system of a step; None where it has rounded away."""
    weights = at.duals / at.slacks
    d = weights[0] + weights[1]
    if not (float(np.min(d)) > 0.0 and np.isfinite(float(np.max(d)))):
        return None
    e = weights[1] - weights[0]
    halves = 2.0 * weights[::-1] / d
    last = float(np.sqrt(np.sum(halves * weights) + at.floor / at.level))
    m, k = coordinates.G.shape
    held = at.ridge > 0.0
    B = np.zeros((m + 1 + held * k, k + 1))
    B[:m, :-1] = coordinates.G * (np.sqrt(d) / coordinates.delta)[:, None]
    B[:m, -1] = e / np.sqrt(d)
    B[m, -1] = last
    if held:
        B[m + 1 + np.arange(k), np.arange(k)] = np.sqrt(at.ridge)
    order = np.argsort(-np.max(np.abs(B), axis=1), kind="stable")
    Q, R, columns = qr(B[order], mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(R))
    if not np.all(np.isfinite(sizes)):
        return None
    kept = int(np.count_nonzero(sizes > 1e-200 * float(sizes[0])))
    if kept == 0:
        return None
    return RowSystem(
        coordinates,
        at.duals,
        d,
        e,
        halves,
        at.floor,
        last,
        order,
        Q[:, :kept],
        R[:kept, :kept],
        columns,
    )


def least_squares_by_rows(coordinates: RowCoordinates, b: Vector) -> Vector:
    """Minimise ``|forward(x) - b|``, refined so that a consistent fit ends at rounding."""
    B = coordinates.G / coordinates.delta[:, None]
    order = np.argsort(-np.max(np.abs(B), axis=1), kind="stable")
    Q, R, columns = qr(B[order], mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(R))
    kept = int(np.count_nonzero(sizes > 1e-200 * float(np.max(sizes, initial=0.0))))
    x = np.zeros(columns.size)
    for _ in range(3):
        left = (b - coordinates.forward(x))[order]
        step = solve_triangular(R[:kept, :kept], Q[:, :kept].T @ left, check_finite=False)
        x[columns[:kept]] += step
    return x
