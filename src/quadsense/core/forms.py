"""Ways to hold a symmetric or Hermitian matrix: by measurements, dense, by a factor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, device, is_numpy, namespace, placed, to_numpy


class Rows(Protocol):
    """What the implicit form needs of the measurement vectors, scaled to unit norm."""

    @property
    def m(self) -> int:
        """Number of rows."""

    @property
    def n(self) -> int:
        """Length of a row."""

    @property
    def dtype(self) -> Any:
        """Float64 or complex128, of the array namespace."""

    @property
    def rank_one(self) -> bool:
        """Whether readings are of single rows, not of sums over rows."""

    @property
    def nonzero(self) -> Array:
        """(m,) 1.0 for a row, 0.0 for a row of zeros."""

    @property
    def rounding(self) -> float:
        """Relative error of products with the rows beyond that of inner products."""

    @property
    def length(self) -> int:
        """Most terms of an inner product with a row."""

    @property
    def prefers_gram(self) -> bool:
        """Whether ``K y`` costs less through inner products of rows than through an (n, n)."""

    def times(self, X: Array) -> Array:
        """Return ``conj(U) @ X``: (n, k) to (m, k), that is ``u_i* x``."""

    def combine(self, Y: Array) -> Array:
        """Return ``U.T @ Y``: (m, k) to (n, k), that is ``sum_i u_i y_i``."""

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``: (m,) to (n, n)."""

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_i|^2`` entry by entry: (m,) to (n,)."""

    def gram_times(self, Y: Array) -> Array:
        """Return ``K @ Y``, K_ij = |<u_i, u_j>|^2: (m,) or (m, k) to the same."""

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``: (n, n) to (m,)."""

    def quadratic(self, times: Callable[[Array], Array]) -> Array:
        """Return ``u_i* A u_i`` for an A known by its products ``times(X) = A @ X``: to (m,)."""

    def factored(self, X: Array, signs: Array | None = None) -> Array:
        """Return ``u_i* X S X* u_i``, S the signs, all plus if None: (n, k) to (m,)."""

    def stretched(self, columns: npt.NDArray[np.int64]) -> Rows:
        """Return the rows with their columns times ``2^columns``, of whatever norm."""

    @property
    def squares(self) -> Array:
        """(m,) squared norms of the rows."""


class Form(Protocol):
    """One way to hold a symmetric or Hermitian matrix."""

    @property
    def n(self) -> int:
        """Order of the matrix."""

    @property
    def dtype(self) -> Any:
        """Type of the entries."""

    def times(self, X: Array) -> Array:
        """Return ``A @ X`` for X of shape (n, k)."""

    def trace(self) -> float:
        """Sum of the eigenvalues."""

    def norm(self) -> float:
        """Return the Frobenius norm."""

    def diagonal(self) -> Array:
        """(n,) real diagonal."""

    def dense(self) -> Array:
        """(n, n) array."""


@dataclass(frozen=True)
class MeasuredForm:
    """``A = tau I + base - sum_i c_i u_i u_i*``, u_i of unit norm: all that iterations carry.

    Attributes
    ----------
    tau : float
        Multiple of the identity that the iterations started from.
    c : array of shape (m,)
        Coefficients.
    rows : Rows
        The measurement vectors.
    base : array of shape (n, n), optional
        What else the iterations started from.
    """

    tau: float
    c: Array
    rows: Rows
    base: Array | None = None

    @property
    def n(self) -> int:
        """Order of the matrix."""
        return self.rows.n

    @property
    def dtype(self) -> Any:
        """Type of the entries."""
        return self.rows.dtype

    def times(self, X: Array) -> Array:
        """Return ``A @ X`` in O(mn) per column."""
        Y = self.rows.times(X)
        xp = namespace(Y)
        product = self.tau * X - self.rows.combine(xp.astype(self.c, Y.dtype)[:, None] * Y)
        return product if self.base is None else product + self.base @ X

    def trace(self) -> float:
        """Sum of the eigenvalues, in O(m)."""
        start = self.tau * self.n
        if self.base is not None:
            start += DenseForm(self.base).trace()
        return start - float(namespace(self.c).sum(self.c * self.rows.nonzero))

    def norm(self) -> float:
        """Return the Frobenius norm; with n > m no n-by-n matrix is formed."""
        if self.n <= self.rows.m or self.base is not None:
            return DenseForm(self.dense()).norm()
        xp = namespace(self.c)
        square = float(xp.sum(self.c * self.rows.gram_times(self.c)))
        cross = float(xp.sum(self.c * self.rows.nonzero))
        return math.sqrt(max(0.0, self.tau**2 * self.n - 2.0 * self.tau * cross + square))

    def diagonal(self) -> Array:
        """Return the real diagonal, in O(mn)."""
        values = self.tau - self.rows.squared_columns(self.c)
        return values if self.base is None else values + DenseForm(self.base).diagonal()

    def dense(self) -> Array:
        """(n, n) array, in O(mn^2)."""
        A = -self.rows.adjoint(self.c)
        xp = namespace(A)
        A = A + self.tau * xp.eye(self.n, dtype=A.dtype, device=device(A))
        return A if self.base is None else A + self.base


@dataclass(frozen=True)
class DenseForm:
    """An (n, n) array."""

    values: Array

    @property
    def n(self) -> int:
        """Order of the matrix."""
        return int(self.values.shape[0])

    @property
    def dtype(self) -> Any:
        """Type of the entries."""
        return self.values.dtype

    def times(self, X: Array) -> Array:
        """Return ``A @ X``."""
        return self.values @ X

    def trace(self) -> float:
        """Sum of the eigenvalues."""
        return float(namespace(self.values).sum(self.diagonal()))

    def norm(self) -> float:
        """Return the Frobenius norm."""
        if isinstance(self.values, np.ndarray):
            x = self.values.ravel(order="K")
            square = float(np.vdot(x, x).real)
            if 0.0 < square < math.inf:
                return math.sqrt(square)
        xp = namespace(self.values)
        norm = np.linalg.norm if is_numpy(self.values) else xp.linalg.matrix_norm
        with np.errstate(over="ignore"):
            size = float(norm(self.values))
        if size == math.inf:  # squares beyond float64: in units of the largest entry
            largest = float(xp.max(xp.abs(self.values)))
            size = largest * float(norm(self.values / largest))
        return size

    def diagonal(self) -> Array:
        """Return the real diagonal."""
        xp = namespace(self.values)
        values = xp.linalg.diagonal(self.values)
        return xp.real(values) if xp.isdtype(values.dtype, "complex floating") else values

    def dense(self) -> Array:
        """Return the array itself."""
        return self.values


@dataclass(frozen=True)
class FactorForm:
    """``A = X S X*``, X of shape (n, r), S a diagonal of signs: of rank r at most.

    Attributes
    ----------
    factor : array of shape (n, r)
        X.
    signs : ndarray of shape (r,) or None
        The diagonal of S, each 1.0 or -1.0; None: all 1, so that A is positive semidefinite.
    """

    factor: Array
    signs: npt.NDArray[np.float64] | None = None

    @property
    def n(self) -> int:
        """Order of the matrix."""
        return int(self.factor.shape[0])

    @property
    def dtype(self) -> Any:
        """Type of the entries."""
        return self.factor.dtype

    @property
    def inertia(self) -> tuple[int, int]:
        """Most positive and most negative eigenvalues that A can have, by this form."""
        columns = int(self.factor.shape[1])
        negative = 0 if self.signs is None else int(np.count_nonzero(self.signs < 0.0))
        return columns - negative, negative

    @property
    def mass(self) -> float:
        """``||X||_F^2``: no eigenvalue of A exceeds it, and rounding is in proportion to it."""
        if isinstance(self.factor, np.ndarray):
            return float(np.vdot(self.factor, self.factor).real)
        xp = namespace(self.factor)
        return float(xp.sum(xp.abs(self.factor) ** 2))

    def _conj(self) -> Array:
        if isinstance(self.factor, np.ndarray):
            return self.factor.conj()
        xp = namespace(self.factor)
        complex_ = xp.isdtype(self.factor.dtype, "complex floating")
        return xp.conj(self.factor) if complex_ else self.factor

    def _signed(self, dtype: Any) -> Array:
        """Return the signs that go with the factor, in that type; all 1 where there are none."""
        xp = namespace(self.factor)
        signs = np.ones(self.factor.shape[1]) if self.signs is None else self.signs
        return xp.astype(xp.asarray(signs, device=device(self.factor)), dtype)

    @property
    def _right(self) -> Array:
        """``X S``."""
        if self.signs is None:
            return self.factor
        return self.factor * self._signed(self.factor.dtype)[None, :]

    def times(self, X: Array) -> Array:
        """Return ``A @ X`` in O(nr) per column."""
        return self._right @ (self._conj().T @ X)

    def seen_by(self, rows: Rows) -> Array:
        """Return ``u_i* A u_i``: (m,)."""
        signs = None if self.signs is None else self._signed(rows.nonzero.dtype)
        return rows.factored(self.factor, signs)

    def trace(self) -> float:
        """Sum of the eigenvalues."""
        if self.signs is None:
            return self.mass
        return float(namespace(self.factor).sum(self.diagonal()))

    @property
    def unsigned_norm(self) -> float:
        """``||X X*||_F``, from the r-by-r Gram matrix of the factor."""
        return DenseForm(self._conj().T @ self.factor).norm()

    def norm(self) -> float:
        """Return the Frobenius norm."""
        if self.signs is None:
            return self.unsigned_norm
        # ||X S X*||^2 = tr(S G S G), whose terms cancel; by a unitary basis they do not.
        basis: Any = np.linalg.qr(to_numpy(self.factor), mode="r")
        return DenseForm((basis * self.signs) @ basis.conj().T).norm()

    def diagonal(self) -> Array:
        """Return the real diagonal."""
        squares = namespace(self.factor).abs(self.factor) ** 2
        if self.signs is None:
            return namespace(squares).sum(squares, axis=1)
        return squares @ self._signed(squares.dtype)

    def dense(self) -> Array:
        """(n, n) array."""
        return self._right @ self._conj().T


@dataclass(frozen=True)
class FramedForm:
    """``D A D`` for ``D = diag(2^e)`` and an A that is known by coefficients of rows.

    Attributes
    ----------
    inner : MeasuredForm
        A.
    columns : ndarray of int, shape (n,)
        The exponents e.
    """

    inner: MeasuredForm
    columns: npt.NDArray[np.int64]

    @property
    def n(self) -> int:
        """Order of the matrix."""
        return self.inner.n

    @property
    def dtype(self) -> Any:
        """Type of the entries."""
        return self.inner.dtype

    @property
    def c(self) -> Array:
        """The coefficients."""
        return self.inner.c

    @property
    def _scales(self) -> Array:
        return placed(np.ldexp(1.0, self.columns), self.inner.c)

    def times(self, X: Array) -> Array:
        """Return ``D A D @ X`` in O(mn) per column."""
        D = self._scales[:, None]
        return D * self.inner.times(D * X)

    def trace(self) -> float:
        """Sum of the eigenvalues, in O(mn)."""
        values = self.diagonal()
        return float(namespace(values).sum(values))

    def norm(self) -> float:
        """Return the Frobenius norm; with n > m no n-by-n matrix is formed."""
        inner = self.inner
        if inner.n <= inner.rows.m or inner.base is not None:
            return DenseForm(self.dense()).norm()
        xp, c = namespace(inner.c), inner.c
        seen = inner.rows.stretched(self.columns)  # A is tau D^2 minus these with coefficients c
        square = float(xp.sum(c * seen.gram_times(c)))
        cross = float(xp.sum(c * inner.rows.stretched(2 * self.columns).squares))
        own = inner.tau**2 * float(np.sum(np.ldexp(1.0, 4 * self.columns)))
        return math.sqrt(max(0.0, own - 2.0 * inner.tau * cross + square))

    def diagonal(self) -> Array:
        """Return the real diagonal, in O(mn)."""
        D = self._scales
        return D * D * self.inner.diagonal()

    def dense(self) -> Array:
        """(n, n) array, in O(mn^2)."""
        D = self._scales
        return (self.inner.dense() * D) * D[:, None]


def stretched(form: Form, columns: npt.NDArray[np.int64]) -> Form:
    """Return ``D A D`` for ``D = diag(2^columns)``, held as A is: no digit changes."""
    if not columns.any():
        return form
    if isinstance(form, FramedForm):
        total = form.columns + columns
        return FramedForm(form.inner, total) if total.any() else form.inner
    if isinstance(form, MeasuredForm):
        return FramedForm(form, columns)
    D = np.ldexp(1.0, columns)
    if isinstance(form, FactorForm):
        return FactorForm(form.factor * placed(D, form.factor)[:, None], form.signs)
    values = form.dense()
    scales = placed(D, values)
    return DenseForm((values * scales) * scales[:, None])
