"""The answer: a symmetric or Hermitian matrix, formed only when asked for, and how it is held.

It is held by measurements, dense, or by a factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator, eigsh

from quadsense.arrays import (
    Array,
    as_numbers,
    available_memory,
    device,
    is_array,
    is_numpy,
    namespace,
    placed,
    to_numpy,
)
from quadsense.core.intervals import EPS
from quadsense.core.records import made
from quadsense.system.machine import BLOCK_ELEMENTS, GIB
from quadsense.typing import is_whole

if TYPE_CHECKING:
    from quadsense.measurements.sensing import Sensing as Rows


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


# --- the matrix -----------------------------------------------------------------------------------

REAL, COMPLEX = np.dtype(np.float64), np.dtype(np.complex128)


class SensedMatrix(LinearOperator):
    """A symmetric or Hermitian matrix, held in whichever form is the smallest.

    It is a SciPy ``LinearOperator``: ``A @ x`` and every iterative routine of SciPy work without
    the (n, n) array ever being made. ``np.asarray(A)`` and `to_dense` make it.

    Parameters
    ----------
    form : MeasuredForm, DenseForm or FactorForm
        How the matrix is held.

    Examples
    --------
    >>> import numpy as np
    >>> from quadsense import SensedMatrix
    >>> A = SensedMatrix.from_factor(np.array([[1.0], [2.0]]))
    >>> A.trace(), A.quadratic(np.array([[1.0, 1.0]]))
    (5.0, array([9.]))
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        kind, n = np.complex128 if _is_complex(form.dtype) else np.float64, form.n
        # As LinearOperator's own does, which takes longer than all else here.
        self.dtype, self.shape = np.dtype(kind), (n, n)

    @classmethod
    def from_dense(cls, A: Array) -> SensedMatrix:
        """Wrap an (n, n) symmetric or Hermitian array."""
        if not (type(A) is np.ndarray or is_array(A)):
            A = as_numbers("A", A)
            A = A.astype(np.result_type(A, 1.0), copy=False)
        if A.ndim != 2 or A.shape[0] != A.shape[1]:
            raise ValueError(f"A must be a square matrix, got shape {tuple(A.shape)}")
        if type(A) is not np.ndarray:
            return cls(DenseForm(A))
        matrix = object.__new__(cls)  # as of every small solve: in a third of the calls
        matrix.form = made(DenseForm, {"values": A})
        matrix.dtype, matrix.shape = COMPLEX if A.dtype.kind == "c" else REAL, A.shape
        return matrix

    @classmethod
    def from_factor(cls, X: Array, signs: Any = None) -> SensedMatrix:
        """Wrap ``X S X*`` for X of shape (n, r).

        Parameters
        ----------
        X : array of shape (n, r)
        signs : array_like of shape (r,), optional
            The diagonal of S, each 1 or -1; all 1 by default, so that A is positive semidefinite.
        """
        if not is_array(X):
            X = as_numbers("X", X)
            X = X.astype(np.result_type(X, 1.0), copy=False)
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got shape {tuple(X.shape)}")
        if signs is None:
            return cls(FactorForm(X))
        marks = np.asarray(signs, dtype=np.float64)
        if marks.shape != X.shape[1:] or not bool(np.all(np.abs(marks) == 1.0)):
            raise ValueError(
                f"signs must be {X.shape[1]} numbers, each 1 or -1: one per column of X, "
                f"got {signs!r}"
            )
        return cls(FactorForm(X, None if bool(np.all(marks > 0.0)) else marks))

    def stretched(self, columns: npt.NDArray[np.int64]) -> SensedMatrix:
        """Return ``D A D`` for ``D = diag(2^columns)``, held as A is."""
        form = stretched(self.form, columns)
        return self if form is self.form else SensedMatrix(form)

    @property
    def factor(self) -> Array | None:
        """X of ``A = X S X*``, or None when the matrix is not held so; see `signs`."""
        return getattr(self.form, "factor", None)

    @property
    def signs(self) -> npt.NDArray[np.float64] | None:
        """The diagonal of S, 1 or -1 per column of `factor`; None where ``A = X X*``."""
        return getattr(self.form, "signs", None)

    def _matmat(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return to_numpy(self.times(X))

    def _adjoint(self) -> SensedMatrix:
        return self

    def times(self, X: Array) -> Array:
        """``A @ X`` for X of shape (n, k), in the namespace of X whatever that of the data."""
        own = self._sample()
        if is_numpy(X) == is_numpy(own) and device(X) == device(own):
            return self.form.times(X)
        product = to_numpy(self.form.times(placed(to_numpy(X), own)))
        return placed(product, X)

    def _sample(self) -> Array:
        """Return some array of the form, for its namespace and device."""
        form: Any = self.form
        return next(
            getattr(form, name) for name in ("c", "factor", "values") if hasattr(form, name)
        )

    def __matmul__(self, other: Any) -> Any:
        """``A @ x`` for x of shape (n,) or (n, k), in the namespace of x."""
        if is_array(other) and not is_numpy(other):
            product = self.times(other if other.ndim == 2 else other[:, None])
            return product if other.ndim == 2 else product[:, 0]
        return super().__matmul__(other)

    def quadratic(self, V: Array) -> Array:
        """Return ``v* A v`` for every row v of V.

        Parameters
        ----------
        V : array of shape (k, n)
            Test vectors, one per row.

        Returns
        -------
        array of shape (k,)
            Real values.
        """
        V = V if is_array(V) and not is_numpy(V) else as_numbers("V", V)
        with np.errstate(under="ignore"):
            return self._quadratic(V)

    def _quadratic(self, V: Array) -> Array:
        if V.ndim != 2 or V.shape[1] != self.shape[0]:
            raise ValueError(
                f"V must have shape (k, {self.shape[0]}), one vector per row, got {tuple(V.shape)}"
            )
        xp = namespace(V)
        complex_ = xp.isdtype(V.dtype, "complex floating")
        parts = []
        for block in _blocks(V.shape[0], self.shape[0]):
            rows = V[block, :]
            images = self.times(rows.T).T
            products = (xp.conj(rows) if complex_ else rows) * images
            total = xp.sum(products, axis=1)
            parts.append(xp.real(total) if xp.isdtype(total.dtype, "complex floating") else total)
        return xp.concat(parts) if len(parts) != 1 else parts[0]

    def _repr_html_(self) -> str:
        """For notebooks: how it is held, its size, its first entries."""
        return str(import_module("quadsense.view.html").matrix_html(self))

    def trace(self) -> float:
        """Sum of the eigenvalues."""
        return self.form.trace()

    def norm(self) -> float:
        """Return the Frobenius norm."""
        return self.form.norm()

    def diagonal(self) -> Array:
        """(n,) real diagonal."""
        return self.form.diagonal()

    def to_dense(self) -> Array:
        """(n, n) array, in the namespace of the data; refused if it cannot fit in memory."""
        need = self.shape[0] ** 2 * self.dtype.itemsize
        free = available_memory()
        if need > free:
            raise MemoryError(
                f"a dense matrix of order {self.shape[0]} takes {need / GIB:.1f} GiB and "
                f"{free / GIB:.1f} GiB are free; use result.matrix (A @ x, quadratic, eigsh, "
                "diagonal, trace, norm), which never forms it"
            )
        with np.errstate(under="ignore"):
            return self.form.dense()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """(n, n) NumPy array."""
        values = to_numpy(self.to_dense())
        if copy and isinstance(self.form, DenseForm):
            values = values.copy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def eigsh(self, k: int = 6, which: str = "LM") -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return `k` eigenpairs, without forming the matrix when n is large.

        Parameters
        ----------
        k : int, default=6
            How many.
        which : {"LM", "LA", "SA"}, default="LM"
            Largest in magnitude, largest, or smallest.

        Returns
        -------
        values : ndarray of shape (k,)
            Best first: descending in magnitude, descending, or ascending.
        vectors : ndarray of shape (n, k)
            Their eigenvectors.
        """
        keys = {"LM": lambda v: -np.abs(v), "LA": lambda v: -v, "SA": lambda v: v}
        if not isinstance(which, str) or which not in keys:
            raise ValueError(f"which must be one of {', '.join(keys)}, got {which!r}")
        n = self.shape[0]
        if not (is_whole(k) and 1 <= k <= n):
            raise ValueError(f"k must lie between 1 and n = {n}, got {k!r}")
        if n <= 256 or k > n // 4:  # ARPACK is slower than LAPACK there
            values, vectors = np.linalg.eigh(to_numpy(self.to_dense()))
        else:
            start = np.random.default_rng(0).standard_normal(n).astype(self.dtype)
            values, vectors = eigsh(self, k=k, which=which, v0=start)
        order = np.argsort(keys[which](values), kind="stable")[:k]
        return values[order], vectors[:, order]


EIGENVALUE_ERROR = 8.0 * EPS
"""Bound on the error of an eigenvalue, over their number and the largest."""


def _is_complex(dtype: Any) -> bool:
    """Return whether a type of any namespace is complex; spelling NumPy's takes the longest."""
    if isinstance(dtype, np.dtype):
        return dtype.kind == "c"
    return "complex" in str(dtype)  # torch.complex128, ...


def _blocks(count: int, width: int) -> Iterator[slice]:
    """Yield slices of `count` rows of that width, no more than a block each."""
    size = max(1, BLOCK_ELEMENTS // max(width, 1))
    for begin in range(0, max(count, 1), size):
        yield slice(begin, min(begin + size, count))
