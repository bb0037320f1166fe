"""Kronecker products: rows ``f_1i x f_2i x ... x f_qi``, of which only the factors are held.

A row is the product of two halves, ``u_i = l_i x r_i``, each of about the root of n entries, and a
product with it is one with r_i, (a matrix product for all rows) and one with l_i.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, device, is_numpy, namespace, to_numpy
from quadsense.core import products
from quadsense.core.intervals import EPS
from quadsense.core.records import cached_property
from quadsense.measurements.arrays import LARGEST_NORM, SMALLEST_NORM, powers_near
from quadsense.measurements.probes import Probes, dense_blocks
from quadsense.measurements.validate import checked_matrix
from quadsense.system.machine import FLOAT64_BYTES
from quadsense.typing import to_list

KEPT_BYTES = 2**28
"""Size up to which the halves of all rows are kept; beyond, they are made as they are used."""


def kronecker(factors: Any) -> Probes:
    """Return rows that are products ``f_1i x f_2i x ...``: local measurements of qubits.

    Parameters
    ----------
    factors : sequence of q arrays of shape (m, d_j), or array of shape (q, m, d)
        Row i of the j-th is ``f_ji``. Real or complex.

    Returns
    -------
    Probes
        m rows of length ``d_1 d_2 ... d_q``, to be given to `quadsense.solve`, `Measurements` and
        others in place of U. Entries are in the order of `numpy.kron`: the first factor changes
        slowest.

    Examples
    --------
    Two qubits, each measured along one of three axes:

    >>> import numpy as np, quadsense
    >>> r = np.sqrt(0.5)
    >>> axes = np.array([[1, 0], [0, 1], [r, r], [r, -r], [r, 1j * r], [r, -1j * r]])
    >>> first, second = np.divmod(np.arange(36), 6)
    >>> U = quadsense.probes.kronecker([axes[first], axes[second]])
    >>> (U.m, U.n)
    (36, 4)
    >>> bell = np.array([r, 0, 0, r])
    >>> b = np.abs(np.kron(axes, axes).conj() @ bell) ** 2
    >>> state = quadsense.solve(U, b, delta=1e-6, psd=True, trace=1)
    >>> bool(np.allclose(state.A, np.outer(bell, bell), atol=1e-4))
    True
    """
    given = to_list("factors", factors, "arrays (m, d_j)")
    if not given:
        raise ValueError("factors is empty: there must be one array at least")
    found = [checked_matrix(f"factors[{j}]", values) for j, values in enumerate(given)]
    for j, values in enumerate(found):
        if values.shape[0] != found[0].shape[0]:
            raise ValueError(
                f"factors[{j}] has {values.shape[0]} rows, but factors[0] has "
                f"{found[0].shape[0]}: each must have one row per measurement"
            )
        if namespace(values) is not namespace(found[0]) or device(values) != device(found[0]):
            raise ValueError(
                f"factors[{j}] is of another namespace or device than factors[0]: bring all to one"
            )
    return Kronecker(found)


class Kronecker(Probes):
    """See `kronecker`; factors in float64 or complex128, of one namespace and device."""

    storage = "kronecker"

    def __init__(self, factors: list[Array]) -> None:
        self.xp = self._xp = xp = namespace(factors[0])
        self.is_complex = any(xp.isdtype(f.dtype, "complex floating") for f in factors)
        kind = xp.complex128 if self.is_complex else xp.float64
        self.factors = [xp.astype(f, kind, copy=False) for f in factors]
        self.m, self.n = int(factors[0].shape[0]), prod(int(f.shape[1]) for f in factors)
        # A product of q numbers, and the norm, which is a product too: each a few roundings.
        self.rounding = 4.0 * len(factors) * EPS * (2.0 if self.is_complex else 1.0)
        self._bring_into_range()
        widths = [1, *np.cumprod([int(f.shape[1]) for f in factors]).tolist()]
        # The right half is the one of the matrix product: no smaller than the left.
        self.split = max(k for k, width in enumerate(widths) if k == 0 or width**2 <= self.n)
        self.left, self.right = widths[self.split], self.n // widths[self.split]

    def _bring_into_range(self) -> None:
        """Divide factors by powers of two where the norms of rows are out of range."""
        with np.errstate(over="ignore", under="ignore"):
            sizes = [to_numpy(self._xp.max(self._xp.abs(f), axis=1)) for f in self.factors]
            norms = to_numpy(self._norms(self.factors))
        live = np.all([size > 0.0 for size in sizes], axis=0)
        if np.all(~live | ((norms > SMALLEST_NORM) & (norms < LARGEST_NORM))):
            self.exponents = np.zeros(self.m, dtype=np.int64)
            return
        self.exponents = np.zeros(self.m, dtype=np.int64)
        for j, size in enumerate(sizes):
            exponents, divisors = powers_near(size, live)
            for factors in divisors:
                scale = self._xp.asarray(factors, device=device(self.factors[j]))
                scale = self._xp.astype(scale, self.factors[j].dtype, copy=False)
                self.factors[j] = self.factors[j] * scale[:, None]
            self.exponents += exponents

    # --- facts -------------------------------------------------------------------------------

    exponents: Any = None

    @cached_property
    def device(self) -> Any:
        """Where the factors live."""
        return device(self.factors[0])

    def _norms(self, factors: list[Array]) -> Array:
        xp = self._xp
        norms = [xp.sqrt(xp.sum(xp.abs(f) ** 2, axis=1)) for f in factors]
        return reduce(lambda one, two: one * two, norms)

    @cached_property
    def held_norms(self) -> Array:
        """Products of the factors' norms."""
        return self._norms(self.factors)

    def made_of(self) -> tuple[Any, ...]:
        """Return the factors, and what they were divided by."""
        return self.exponents, self.factors

    # --- rows --------------------------------------------------------------------------------

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return those rows alone."""
        chosen = self._xp.asarray(np.asarray(index, dtype=np.int64), device=self.device)
        other = Kronecker([self._xp.take(f, chosen, axis=0) for f in self.factors])
        other.exponents = other.exponents + self.exponents[index]
        return other

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`."""
        part = slice(first, last)
        return _row_products([self._half(part, left=True), self._half(part, left=False)], self._xp)

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        return _row_products([self._xp.take(f, index, axis=0) for f in self.factors], self._xp)

    def _half(self, part: slice, left: bool) -> Array:
        """Return ``l_i`` or ``r_i`` of some rows."""
        if self._halves is not None:
            return self._halves[0 if left else 1][part, :]
        return self._formed(part, left)

    def _formed(self, part: slice, left: bool) -> Array:
        chosen = self.factors[: self.split] if left else self.factors[self.split :]
        if not chosen:
            return self._xp.ones_like(self.factors[0][part, :1])
        return _row_products([f[part, :] for f in chosen], self._xp)

    @cached_property
    def _halves(self) -> tuple[Array, Array] | None:
        """Both halves of all rows, where they may be kept."""
        itemsize = FLOAT64_BYTES * (2 if self.is_complex else 1)
        if self.m * (self.left + self.right) * itemsize > KEPT_BYTES:
            return None
        whole = slice(0, self.m)
        return self._formed(whole, left=True), self._formed(whole, left=False)

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``: a matrix product with the right halves, then a sum over the left."""
        xp, k = self._xp, int(X.shape[1])
        turned = xp.permute_dims(xp.reshape(X, (self.left, self.right, k)), (1, 2, 0))
        turned = xp.reshape(turned, (self.right, k * self.left))
        parts = []
        for part in self._parts(k):
            inner = self._conj(self._half(part, left=False)) @ turned
            inner = xp.reshape(inner, (part.stop - part.start, k, self.left))
            parts.append(self._summed(self._conj(self._half(part, left=True)), inner))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)

    def _summed(self, left: Array, inner: Array) -> Array:
        """Return ``sum_a left_ia inner_ika``."""
        if is_numpy(inner):
            return np.einsum("ia,ika->ik", left, inner)
        return self._xp.sum(left[:, None, :] * inner, axis=2)

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``: the same backwards."""
        xp, k = self._xp, int(Y.shape[1])
        Y, total = xp.astype(Y, self.dtype, copy=False), 0.0
        for part in self._parts(k):
            spread = Y[part, :][:, :, None] * self._half(part, left=True)[:, None, :]
            spread = xp.reshape(spread, (part.stop - part.start, k * self.left))
            total = total + self._half(part, left=False).T @ spread
        turned = xp.permute_dims(xp.reshape(total, (self.right, k, self.left)), (2, 0, 1))
        return xp.reshape(turned, (self.n, k))

    def _parts(self, k: int) -> Any:
        """Return slices of rows whose halves and products, k columns wide, stay in cache."""
        return self.slices(4 * (self.left * (k + 1) + self.right))

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``, one block of rows at a time."""
        parts = []
        for _, rows in dense_blocks(self):
            if is_numpy(rows):
                parts.append(products.forward(rows, A))
            else:
                image = (rows @ A.T) * self._conj(rows)
                parts.append(self.real(self._xp.sum(image, axis=1)))
        return self._xp.concat(parts)

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``, one block of rows at a time."""
        total: Array = 0.0
        for part, rows in dense_blocks(self):
            if is_numpy(rows):
                total = total + products.adjoint(rows, y[part])
            else:
                weights = self._xp.astype(y[part], self.dtype, copy=False)
                total = total + rows.T @ (weights[:, None] * self._conj(rows))
        return total

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2``: products of squares are squares of products."""
        squares = Kronecker([self._xp.abs(f) ** 2 for f in self.factors])
        scale = np.ldexp(1.0, squares.exponents)
        scale = scale if is_numpy(y) else self._xp.asarray(scale, device=self.device)
        return squares.combine((y * scale)[:, None])[:, 0]

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2``, of products of those of the factors, of whatever sizes."""
        pieces = [self._conj(f[rows, :]) @ f[columns, :].T for f in self.factors]
        return self._xp.abs(reduce(lambda one, two: one * two, pieces)) ** 2

    def _conj(self, x: Array) -> Array:
        return self._xp.conj(x) if self.is_complex else x


def _row_products(factors: list[Array], xp: Any) -> Array:
    """Return kronecker products of the rows of arrays, (k, d_j) each."""
    rows = factors[0]
    for f in factors[1:]:
        width = int(rows.shape[1]) * int(f.shape[1])
        rows = xp.reshape(rows[:, :, None] * f[:, None, :], (int(rows.shape[0]), width))
    return rows
