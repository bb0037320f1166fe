"""Normal matrices that are diagonal in a basis of matrices, which the rows know.

A kind of probes that knows one says `is_diagonal` and has two methods: ``normal_diagonal(weights)``
is a `Diagonal` or None, ``pooled(weights)`` are weights near these for which there is one. Both
take one weight per reading of the kind: of its `mix`, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.stack import Stack

MAX_UNEVEN = 1e-12
"""Relative difference of numbers that differ by rounding alone."""


@dataclass(frozen=True)
class Diagonal:
    """A normal matrix ``F* W F`` that is diagonal in an orthonormal basis of matrices.

    Attributes
    ----------
    values : array of shape (K,)
        Its diagonal.
    into, back : callable
        Coordinates of a matrix in that basis, and the matrix of coordinates. For matrices that are
        orthogonal to the basis the normal matrix is 0.
    """

    values: Vector
    into: Callable[[Array], Vector]
    back: Callable[[Vector], Array]


@dataclass(frozen=True)
class KnownBasis:
    """The basis that the user's rows know, for readings that are multiples of theirs.

    Attributes
    ----------
    kind : Probes
    squares : array of shape (k,)
        Squares of the multiples that the first k readings are.
    conjugate : bool
        Whether A is conjugated on its way in and out.
    """

    kind: Any
    squares: Vector
    conjugate: bool

    def normal(self, weights: Vector) -> Diagonal | None:
        """``F* diag(weights) F``; None where these weights do not make it diagonal."""
        count = self.squares.size
        if np.any(weights[count:]):
            return None
        found: Diagonal | None = self.kind.normal_diagonal(weights[:count] * self.squares)
        if found is None or not self.conjugate:
            return found
        into, back = found.into, found.back
        return Diagonal(found.values, lambda A: into(A.conj()), lambda c: back(c).conj())

    def pooled(self, weights: Vector) -> Vector:
        """Weights near these which make it diagonal, as far as those of other readings allow."""
        count, found = self.squares.size, weights.copy()
        found[:count] = self.kind.pooled(weights[:count] * self.squares) / self.squares
        return found


def known_basis(F: Sensing) -> KnownBasis | None:
    """Return the basis that the rows know, where the first readings are those of the kind."""
    kind: Any = F.kind.parts[0] if isinstance(F.kind, Stack) else F.kind
    if not kind.is_diagonal or F.has_zero_rows:
        return None
    inverse, W, own = to_numpy(F.raw.inverse), F.weights, kind.mix
    if W is None:
        return KnownBasis(kind, inverse**4, F.conjugate)
    count = kind.m if own is None else own.shape[0]
    if not sp.issparse(W) or W.shape[0] < count:
        return None
    starts = W.indptr[: count + 1]
    columns = W.indices[: starts[-1]]
    if own is None:
        own_starts, own_columns, values = np.arange(count + 1), np.arange(count), 1.0
    else:
        own_starts, own_columns, values = own.indptr, own.indices, own.data
    if not (np.array_equal(starts, own_starts) and np.array_equal(columns, own_columns)):
        return None
    ratios = W.data[: starts[-1]] * inverse[columns] ** 2 / values
    if own is None:
        return KnownBasis(kind, ratios**2, F.conjugate)
    multiples = ratios[starts[:-1]]
    off = np.abs(ratios - np.repeat(multiples, np.diff(starts)))
    if np.any(off > MAX_UNEVEN * np.abs(ratios)):
        return None
    return KnownBasis(kind, multiples**2, F.conjugate)
