"""Where A may lie, as packed vectors: anywhere, positive semidefinite, also of a given trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.arrays import Vector
from quadsense.core import packed
from quadsense.core.records import cached_property, record
from quadsense.device import waits
from quadsense.system.watch import look, real_flops

Array = npt.NDArray[Any]

SQRT_HALF = float(np.sqrt(0.5))  # so that the norms agree


class _Form(NamedTuple):
    """How matrices of an order are packed.

    Attributes
    ----------
    places : ndarray of int, shape (N,)
        Where the packed numbers are among those of the upper triangle, by rows, in memory.
    scales, lower_scales : ndarray of shape (N,)
        What the entries are multiplied by to be packed, and what packed numbers are multiplied by
        for the lower triangle by columns.
    """

    places: npt.NDArray[np.intp]
    scales: Vector
    lower_scales: Vector


@lru_cache(maxsize=16)  # many solves of one order
def _form_of(n: int, is_complex: bool) -> _Form:
    size = packed.size_of(n, is_complex)
    j, k = np.triu_indices(n, 1)
    diagonal, above = (n + 1) * np.arange(n), n * j + k
    places = [2 * diagonal, 2 * above, 2 * above + 1] if is_complex else [diagonal, above]
    scales, lower = np.full(size, packed.SQRT2), np.full(size, SQRT_HALF)
    scales[:n] = lower[:n] = 1.0
    if is_complex:
        lower[n * (n + 1) // 2 :] *= -1.0
    return _Form(np.concatenate(places), scales, lower)


@record(frozen=True)
class LeastSquaresCone:
    """The matrices that may be the answer.

    Attributes
    ----------
    n : int
    is_complex, psd : bool
    trace : float or None
        What the trace must be, where it is known and `psd`.
    beside : callable
        Puts arrays where the rows live.
    on_device : bool
        Whether packed vectors are on a device, where a look at a number waits.
    """

    n: int
    is_complex: bool
    psd: bool
    trace: float | None = None
    beside: Callable[[Any], Any] = field(default=np.asarray, compare=False)
    on_device: bool = False

    @cached_property
    def dtype(self) -> npt.DTypeLike:
        """Of a matrix."""
        return np.complex128 if self.is_complex else np.float64

    @cached_property
    def _form(self) -> _Form:
        """How numbers are packed."""
        return _form_of(self.n, self.is_complex)

    @cached_property
    def identity(self) -> Vector:
        """I, packed."""
        return self.beside(np.concatenate([np.ones(self.n), np.zeros(self.size - self.n)]))

    @cached_property
    def size(self) -> int:
        """Real unknowns."""
        return packed.size_of(self.n, self.is_complex)

    @cached_property
    def flops(self) -> float:
        """Operations of a projection."""
        return real_flops(self.is_complex) * 12.0 * float(self.n) ** 3

    def pack(self, A: Array) -> Vector:
        """As `packed.pack` does; of several matrices, (..., n, n), each."""
        if waits(A):  # what is small is made here, wherever the rows are
            return packed.pack(A)
        numbers = np.ascontiguousarray(A).reshape(*A.shape[:-2], -1).view(np.float64)
        return np.asarray(numbers[..., self._form.places] * self._form.scales)

    def unpack(self, x: Vector) -> Array:
        """As `packed.unpack` does."""
        if self.on_device:
            return packed.unpack(x, self.n, self.dtype)
        A = self._triangle(x)
        A = A + A.conj().T
        A.flat[:: self.n + 1] *= 0.5
        return A

    def _triangle(self, x: Vector) -> Array:
        """The lower triangle in Fortran order, zeros above: what LAPACK reads."""
        A = np.zeros((self.n, self.n), self.dtype)
        A.reshape(-1).view(np.float64)[self._form.places] = self._form.lower_scales * x
        return A.T

    def eigenvalues(self, x: Vector) -> Vector:
        """In ascending order."""
        return self._decomposed(x, False)[0]

    def eigen(self, x: Vector) -> tuple[Vector, Array]:
        """Eigenvalues in ascending order, and their vectors."""
        return self._decomposed(x, True)

    def _decomposed(self, x: Vector, vectors: bool) -> tuple[Vector, Array]:
        return self._solved(self.unpack(x) if self.on_device else self._triangle(x), vectors)

    def spectrum(self, A: Array) -> Vector:
        """Eigenvalues of a matrix like these, of this order or a smaller one."""
        return self._solved(A, False)[0]

    def _solved(self, A: Array, vectors: bool) -> tuple[Vector, Array]:
        """Eigenvalues of the lower triangle, and vectors; it may be overwritten."""
        look(self.flops)
        if self.on_device:
            return _on_device(A, vectors)
        solve = lapack.zheevd if self.is_complex else lapack.dsyevd
        values, V, info = solve(A, lower=1, compute_v=int(vectors), overwrite_a=1)
        if info != 0:  # no number among the entries
            return np.full(len(A), np.nan), np.full(A.shape, np.nan, self.dtype)
        return values, V

    def factor(self, x: Vector) -> Array:
        """X of ``X X*``, the nearest member of the cone."""
        kept, V = self._kept(x)
        first = self.n - int(np.count_nonzero(kept > 0.0))  # they ascend
        if first == self.n:
            return np.zeros_like(V, shape=(self.n, 1))
        return V[:, first:] * np.sqrt(kept[first:])

    def _kept(self, x: Vector) -> tuple[Vector, Array]:
        """Eigenvalues of the nearest member, ascending, and their vectors."""
        values, V = self.eigen(x)
        return self._moved(values), V

    def _moved(self, values: Vector) -> Vector:
        """Eigenvalues of the nearest member."""
        if self.trace is None:
            return np.maximum(values, 0.0)
        return np.maximum(values - _level(values, self.trace), 0.0)

    def project(self, x: Vector) -> Vector:
        """The nearest member of the cone."""
        if not self.psd:
            return x
        if self.on_device:  # nothing is waited for, though zeros are multiplied
            kept, V = self._kept(x)
            X = V * np.sqrt(kept)
        else:
            X = self.factor(x)
        return self.pack(X @ X.conj().T)


def _on_device(A: Array, vectors: bool) -> tuple[Vector, Array]:
    """Eigenvalues, and vectors where they are asked for; NaN where A has such entries."""
    try:
        return np.linalg.eigh(A) if vectors else (np.linalg.eigvalsh(A), A)
    except np.linalg.LinAlgError:
        return np.full_like(A, np.nan, shape=len(A), dtype=np.float64), np.full_like(A, np.nan)


def _level(values: Vector, total: float) -> Any:
    """The number whose excesses over it add up to `total`, not negative.

    Of the largest k the level is ``(sum - total)/k``: it rises as long as the next one is above.
    """
    counts = np.cumsum(np.ones_like(values))
    return ((np.cumsum(values[::-1]) - total) / counts).max()
