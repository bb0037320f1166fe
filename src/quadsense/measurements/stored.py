"""Probes held in an array, dense or sparse, whatever the size of their entries."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from quadsense.arrays import Array, like, to_numpy
from quadsense.measurements.probes import Probes

# Beyond these norms a coefficient over a squared norm may leave float64's range: then U is copied
# and such rows are brought near one by exact powers of two.
LARGEST_NORM, SMALLEST_NORM = 1e37, 1e-37


class NotFinite(ValueError):
    """A row with NaN or infinity in it."""

    def __init__(self, row: int) -> None:
        super().__init__(f"U contains NaN or infinity, first in row {row}")
        self.row = row


class Stored(Probes):
    """Rows of an array U.

    Attributes
    ----------
    given : array of shape (m, n)
        As the user gave it.
    U : array of shape (m, n)
        The same, or a copy with rows out of range divided by powers of two.
    """

    given: Any = None
    norms: Any = None
    held_norms: Any = None
    has_zero_rows: bool = False

    def __init__(self, U: Any) -> None:
        self.m, self.n = map(int, U.shape)
        self.given = self.U = U
        self.is_complex = self._has_complex_entries()
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            self.norms = self.held_norms = self._row_norms()
            found = to_numpy(self.norms)
            least, most = found.min(initial=np.inf), found.max(initial=0.0)
            self.has_zero_rows = not least > 0.0
            if not (least > SMALLEST_NORM and most < LARGEST_NORM):
                self._bring_into_range(found)

    def _bring_into_range(self, found: Any) -> None:
        """Copy U where rows are beyond the range of safe norms; refuse what is not finite."""
        sizes = to_numpy(self._row_maxima())
        bad = np.flatnonzero(~np.isfinite(sizes))
        if bad.size:
            raise NotFinite(int(bad[0]))
        wild = (sizes > 0) & ~((found > SMALLEST_NORM) & (found < LARGEST_NORM))
        if not wild.any():
            return
        exponents = np.where(wild, np.frexp(np.where(wild, sizes, 1.0))[1], 0).astype(np.int64)
        half = exponents // 2  # in two halves: 2^-e alone may overflow for subnormal rows
        for part in (half, exponents - half):
            self.U = self._scaled(self.U, like(np.ldexp(1.0, -part), self.norms))
        self.exponents = exponents
        self.held_norms = self._row_norms()
        self.has_zero_rows = bool((to_numpy(self.held_norms) == 0.0).any())
        self.norms = like(np.ldexp(to_numpy(self.held_norms), exponents), self.held_norms)

    def column_squares(self) -> Any:
        """``sum_i |u_ij|^2`` for every j over rows of unit norm."""
        return to_numpy(self.squared_columns(self._inverse_squares()))

    def column_counts(self) -> Any:
        """How many entries of each column are not 0."""
        return sum(
            np.count_nonzero(to_numpy(rows), axis=0) for _, rows in self.blocks()
        ) + np.zeros(self.n, np.int64)

    @abstractmethod
    def _has_complex_entries(self) -> bool: ...

    @abstractmethod
    def _row_norms(self) -> Array:
        """Euclidean norm of each row; may overflow to infinity or underflow to zero."""

    @abstractmethod
    def _row_maxima(self) -> Array:
        """Largest modulus in each row; NaN where the row has one."""

    @abstractmethod
    def _scaled(self, rows: Any, factors: Array) -> Any:
        """``diag(factors) @ rows``, widened, in their storage."""
