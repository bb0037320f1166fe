"""Rows in a scipy.sparse array (CSR)."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy as np_compat
import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array
from quadsense.measurements.rows import BaseRows


class SparseRows(BaseRows):
    """Measurement vectors in a sparse (m, n) CSR array; see `BaseRows`."""

    @property
    def xp(self) -> Any:
        """NumPy: vectors and dense results are NumPy arrays."""
        return np_compat

    def _is_complex(self, U: Any) -> bool:
        return bool(np.issubdtype(U.dtype, np.complexfloating))

    def _row_norms(self) -> Array:
        return np.sqrt(np.asarray(self._squares(self.U).sum(axis=1)).ravel())

    def _row_maxima(self) -> Array:
        return abs(self.U).max(axis=1).toarray().ravel()

    def _scale(self, block: Any, factors: Array) -> Any:
        return sp.diags_array(factors) @ block

    def _conj(self, block: Any) -> Any:
        return block.conj() if self.is_complex else block

    def _dense(self, product: Any) -> Array:
        return product.toarray() if sp.issparse(product) else product

    def _row_dots(self, block: Any, X: Array) -> Array:
        return np.asarray(block.multiply(X).sum(axis=1)).ravel()

    def _take(self, index: Array) -> Array:
        return self.U[index, :].toarray()

    def _squares(self, block: Any) -> Any:
        return abs(block).power(2)

    @property
    def prefers_gram(self) -> bool:
        """Always: products of sparse rows are cheap, and nothing (n, n) is formed."""
        return True

    def sparse_gram(self) -> Any:
        """K as a sparse array, wherever two rows share no entry a zero."""
        unit = self._scale(self.U, self.inverse)
        return abs(unit @ unit.conj().T).power(2).tocsr()

    def gram_density_bound(self) -> float:
        """Upper bound on the share of nonzeros of K, from the column counts alone."""
        counts = np.bincount(self.U.indices, minlength=self.n).astype(np.float64)
        return float(min(1.0, np.sum(counts**2) / max(1, self.m) ** 2))
