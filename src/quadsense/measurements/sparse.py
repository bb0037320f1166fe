"""Probes in a scipy.sparse array (CSR)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array
from quadsense.core.records import cached_property
from quadsense.measurements.dense import Stored
from quadsense.measurements.probes import Probes


class Sparse(Stored):
    """Rows of a sparse (m, n) CSR array of float64 or complex128."""

    storage = "sparse"

    def _has_complex_entries(self) -> bool:
        return bool(self.U.dtype.kind == "c")

    def _row_norms(self) -> Array:
        return np.sqrt(np.asarray(abs(self.U).power(2).sum(axis=1)).ravel())

    def _row_maxima(self) -> Array:
        return abs(self.U).max(axis=1).toarray().ravel()

    def _scaled(self, rows: Any, factors: Array) -> Any:
        return sp.diags_array(factors) @ rows

    @cached_property
    def length(self) -> int:
        """Most entries of a row."""
        return int(np.diff(self.U.indptr).max(initial=0))

    def block(self, first: int, last: int) -> Array:
        """Dense rows `first` to `last`."""
        return self.U[first:last, :].toarray()

    def take(self, index: Array) -> Array:
        """Those rows, dense."""
        return self.U[np.asarray(index), :].toarray()

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Those rows, sparse."""
        return Sparse(self.U[index, :])

    def times(self, X: Array) -> Array:
        """``u_i* x``."""
        return (self.U.conj() if self.is_complex else self.U) @ X

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``."""
        return self.U.T @ Y

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i`` in 2 nnz(U) n flops; blocks of the product are dense."""
        parts = []
        for part in self.slices():
            rows = self.U[part, :]
            left = rows.conj() if self.is_complex else rows
            parts.append(np.asarray(left.multiply(rows @ A.T).sum(axis=1)).ravel())
        return self.real(np.concatenate(parts) if parts else np.empty(0))

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``, dense."""
        right = self.U.conj() if self.is_complex else self.U
        return np.asarray((self.U.T @ (sp.diags_array(y) @ right)).toarray())

    def squared_columns(self, y: Array) -> Array:
        """``sum_i y_i |u_ij|^2`` for every j."""
        return abs(self.U).power(2).T @ y

    def column_counts(self) -> Any:
        """How many entries of each column are not 0."""
        return np.bincount(self.U.indices[self.U.data != 0.0], minlength=self.n)

    def gram(self, rows: slice, columns: slice) -> Array:
        """``|<u_i, u_j>|^2`` for those rows and columns."""
        left = self.U[rows, :]
        left = left.conj() if self.is_complex else left
        return abs(left @ self.U[columns, :].T).power(2).toarray()

    def sparse_rows(self) -> Any:
        """All rows, sparse."""
        return self.U

    def sparse_gram(self, factors: Array) -> Any:
        """``|<u_i, u_j>|^2`` of scaled rows as a sparse array, 0 where two share no entry."""
        unit = self._scaled(self.U, factors)
        return abs(unit @ unit.conj().T).power(2).tocsr()

    def gram_density_bound(self) -> float:
        """Upper bound on the share of nonzeros of K, from the column counts alone."""
        counts = np.bincount(self.U.indices, minlength=self.n).astype(np.float64)
        return float(min(1.0, np.sum(counts**2) / max(1, self.m) ** 2))
