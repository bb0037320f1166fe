"""The answer: a symmetric or Hermitian matrix that is formed only when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

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
from quadsense.core.forms import DenseForm, FactorForm, Form, stretched
from quadsense.core.intervals import EPS
from quadsense.core.records import made
from quadsense.system.machine import BLOCK_ELEMENTS, GIB
from quadsense.typing import is_whole

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


def rank_of(matrix: SensedMatrix) -> int:
    """Return the rank by its form, or the number of eigenvalues that are not rounding."""
    if matrix.factor is not None:
        return int(matrix.factor.shape[1])
    values = np.abs(np.linalg.eigvalsh(np.asarray(matrix)))
    return int(np.count_nonzero(values > EIGENVALUE_ERROR * values.size * values.max()))


def inertia_of(matrix: SensedMatrix) -> tuple[int, int]:
    """Count positive and negative eigenvalues: at most, by its form; or those above rounding."""
    if isinstance(matrix.form, FactorForm):
        return matrix.form.inertia
    values = np.linalg.eigvalsh(np.asarray(matrix))
    slip = EIGENVALUE_ERROR * values.size * float(np.max(np.abs(values)))
    return int(np.count_nonzero(values > slip)), int(np.count_nonzero(values < -slip))


def is_positive(matrix: SensedMatrix) -> bool:
    """Whether A is positive semidefinite: by its form, or up to rounding of its eigenvalues."""
    if isinstance(matrix.form, FactorForm) and matrix.signs is None:
        return True
    values = np.linalg.eigvalsh(np.asarray(matrix))
    return bool(values[0] >= -EIGENVALUE_ERROR * values.size * max(abs(values[0]), abs(values[-1])))
