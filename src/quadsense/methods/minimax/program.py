"""The linear program of `iteration`: readings, tolerances, existing ends, and coordinates for A."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.core.packed import Array, Vector
from quadsense.measurements.sensing import Sensing
from quadsense.methods.minimax.coordinates import Coordinates, MatrixCoordinates, gram_coordinates
from quadsense.methods.minimax.mehrotra import SIGNS, Mask
from quadsense.methods.minimax.rows import row_coordinates
from quadsense.proofs.symmetric import NORM_FACTOR, data_scale

GRAM_ROWS = 6000  # beyond, the m-by-m Gram matrix costs more than products with U


@dataclass(frozen=True)
class Program:
    """Measurements, which ends of their intervals exist, and coordinates for A."""

    F: Sensing
    b: Vector
    delta: Vector
    sides: Mask  # (2, m): has an upper end, has a lower end
    coordinates: Coordinates
    max_norm: float


def intervals(lo: Vector, hi: Vector) -> tuple[Vector, Vector, Mask]:
    """Centre, half-width and existing ends of the intervals ``lo <= F(A) <= hi``.

    A missing end is infinite. Such a row gets the typical half-width of the others as its unit
    of error, so that ratio 1 still means that the bound is met exactly.
    """
    sides = np.stack([np.isfinite(hi), np.isfinite(lo)])
    both = sides.all(axis=0)
    ends = np.where(sides[0], hi, np.where(sides[1], lo, 0.0))
    half = 0.5 * (np.where(both, hi, 0.0) - np.where(both, lo, 0.0))
    typical = float(np.median(half[both])) if both.any() else float(np.median(np.abs(ends)))
    delta = np.where(both, half, typical if typical > 0.0 else 1.0)
    b = np.where(sides[0], ends - delta, np.where(sides[1], ends + delta, 0.0))
    return b, delta, sides


def prepare(U: Array | Sensing, b: Vector, delta: Vector, sides: Mask | None = None) -> Program:
    """Choose the coordinates: A itself, or the span of few measurements.

    Parameters
    ----------
    U : Sensing, or ndarray of shape (m, n)
        Rows of norm at most 1.
    b, delta : ndarray, shape (m,)
        Readings and tolerances (1 where only the worst error matters).
    sides : ndarray of bool, shape (2, m), optional
        Which upper and which lower ends exist; all of them, if omitted.
    """
    if sides is None:
        sides = np.ones((2, b.size), dtype=bool)
    F = Sensing.of(U)
    scale = data_scale(b, delta)
    b, delta, sides = (F.beside(values) for values in (b, delta, sides))
    coordinates = gram_coordinates(F, delta) if by_gram(F) else MatrixCoordinates(F, delta)
    return Program(F, b, delta, sides, coordinates, NORM_FACTOR * scale)


def by_gram(F: Sensing) -> bool:
    """Whether the unknowns are the span of few measurements."""
    return F.m <= min(F.unknowns, GRAM_ROWS) or F.m < F.n


def prepare_rows(U: Array | Sensing, b: Vector, delta: Vector, sides: Mask) -> Program:
    """The same program with the sensing map written out, for `rows`."""
    norm = NORM_FACTOR * data_scale(b, delta)
    F = Sensing.of(U)
    return Program(F, b, delta, sides, row_coordinates(F, delta), norm)


def residual(problem: Program, x: Array) -> Vector:
    """Return ``(F(A) - b) / delta``, shape (m,)."""
    return problem.coordinates.forward(x) - problem.b / problem.delta


def excess(problem: Program, z: Vector) -> Vector:
    """How far each row leans out of its interval, in tolerances; at most 1 where it is met."""
    return leaning(problem.sides, z)


def leaning(sides: Mask, z: Vector) -> Vector:
    """The same, of rows that have these ends."""
    return np.max(np.where(sides, -SIGNS * z, 0.0), axis=0)
