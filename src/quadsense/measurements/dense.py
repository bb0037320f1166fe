"""Rows in a dense array of any namespace of the array API standard."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, is_numpy, namespace
from quadsense.core import products
from quadsense.measurements.rows import BLOCK_ELEMENTS, BaseRows

NARROW = 64
"""Columns that a block has at least."""


class DenseRows(BaseRows):
    """Measurement vectors in a dense (m, n) array; see `BaseRows`."""

    @property
    def xp(self) -> Any:
        """Array namespace of U."""
        return namespace(self.U)

    def _is_complex(self, U: Array) -> bool:
        return bool(namespace(U).isdtype(U.dtype, "complex floating"))

    def _row_norms(self) -> Array:
        xp = self.xp
        parts = []
        for block in self.blocks():
            rows = self.U[block, :]
            parts.append(self._real(self._row_dots(self._conj(rows), rows)))
        return xp.sqrt(xp.concat(parts))

    def _row_maxima(self) -> Array:
        xp = self.xp
        return xp.concat([xp.max(xp.abs(self.U[part, :]), axis=1) for part in self.blocks()])

    def _scale(self, block: Array, factors: Array) -> Array:
        return self.xp.astype(factors, block.dtype, copy=False)[:, None] * block

    def _conj(self, block: Array) -> Array:
        return self.xp.conj(block) if self.is_complex else block

    def _dense(self, product: Array) -> Array:
        return product

    def _row_dots(self, block: Array, X: Array) -> Array:
        if is_numpy(block):
            return np.einsum("ij,ij->i", block, X)
        return self.xp.sum(block * X, axis=1)

    def forward(self, A: Array) -> Array:
        """``F(A)_i = u_i* A u_i``, rows of unit norm: half the flops where BLAS can be called."""
        if not is_numpy(self.U) or not self.U.flags.c_contiguous:
            return super().forward(A)
        meant = np.asarray(self._meant(A)).astype(self.U.dtype, copy=False)
        meant = 0.5 * (meant + meant.conj().T)  # all that u* A u sees, where A is not symmetric
        return products.forward(self.U, meant) * self.inverse**2

    def _times(self, X: Array) -> Array:
        return products.times(self.U, X) if is_numpy(self.U) else self.U @ X

    def gram_triangle(self, single: bool = False) -> npt.NDArray[Any]:
        """K in Fortran order, in single or double precision; its upper triangle counts."""
        if not is_numpy(self.U):
            return super().gram_triangle(single)
        dtype = np.dtype(np.complex64 if self.is_complex else np.float32)
        dtype, inner = dtype if single else self.U.dtype, None
        width = max(NARROW, BLOCK_ELEMENTS // self.m)
        for first in range(0, self.n, width):  # no copy of U
            block = self.U[:, first : first + width] * self.inverse[:, None]
            block = block.astype(dtype, copy=False)
            if width >= self.n:
                return products.gram(block)
            product = block @ self._conj(block).T
            inner = product if inner is None else np.add(inner, product, out=inner)
        assert inner is not None
        return np.asarray(self._squares(inner).T)

    def _take(self, index: Array) -> Array:
        return self.xp.take(self.U, index, axis=0)

    def _squares(self, block: Array) -> Array:
        return self.xp.abs(block) ** 2 if self.is_complex else block * block
