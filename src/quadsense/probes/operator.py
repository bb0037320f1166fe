"""Probes known by functions of the user's, or by SciPy's LinearOperator.

An operator U means what the array would: ``U @ x`` is ``sum_j u_ij x_j``, without a conjugate. A
kind of probes has ``u_i* x``, ``conj(U @ conj(x))``, and ``sum_i u_i y_i``, which by the adjoint
that such an operator has is ``conj(U^H @ conj(y))``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quadsense.arrays import Array
from quadsense.core.records import cached_property
from quadsense.measurements.probes import Probes
from quadsense.measurements.validate import checked_rounding, checked_shape, checked_vector

SINGLE = float(np.finfo(np.float32).eps)
"""Twice the unit roundoff of single precision."""


class Operator(Probes):
    """Rows known by two functions on NumPy arrays.

    Parameters
    ----------
    times, combine : callable
        ``u_i* X``, (n, k) to (m, k), and ``sum_i u_i Y_i``, (m, k) to (n, k).
    shape : (int, int)
    is_complex : bool
    rounding : float
        What they err by, beyond inner products in float64, relative to ``|u_i| |x|``.
    norms : array of shape (m,), optional
        Those of the rows, where they are known; else they are computed.
    names : (str, str)
        What the user calls the two functions.
    """

    def __init__(
        self,
        times: Callable[[Array], Any],
        combine: Callable[[Array], Any],
        shape: tuple[int, int],
        is_complex: bool,
        rounding: float,
        norms: Any = None,
        names: tuple[str, str] = ("times", "combine"),
    ) -> None:
        self._times, self._combine = times, combine
        (self.m, self.n), self.is_complex = shape, is_complex
        self.rounding = self.stated = rounding
        self.names = names
        if norms is not None:
            self.held_norms = np.asarray(norms, dtype=np.float64)

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``."""
        return self._product(0, X, self.m)

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        return self._product(1, Y, self.n)

    def _product(self, which: int, X: Array, size: int) -> Array:
        """Return one of the two; functions of the user's need not know of no columns at all."""
        count = int(X.shape[1])
        if count == 0:
            return np.zeros((size, 0), dtype=self.dtype)
        function = self._combine if which else self._times
        return self._checked(self.names[which], function(X), (size, count))

    def _checked(self, name: str, found: Any, shape: tuple[int, int]) -> Array:
        """Return what a function of the user's returned, in the type of the arithmetic."""
        values = np.asarray(found)
        if values.shape != shape:
            raise ValueError(
                f"the operator's {name} returned an array of shape {values.shape}, but must return "
                f"{shape}"
            )
        if values.dtype.kind == "c" and not self.is_complex:
            raise ValueError(
                f"the operator's {name} returned complex numbers, but its dtype is real: state "
                "dtype=complex"
            )
        if values.dtype.kind not in "buifc":
            raise ValueError(f"the operator's {name} returned an array of type {values.dtype.name}")
        return values.astype(self.dtype, copy=False)

    @cached_property
    def held_norms(self) -> Any:
        """Norms of the rows, from products with unit vectors."""
        norms = super().held_norms
        bad = np.flatnonzero(~np.isfinite(norms))
        if bad.size:
            raise ValueError(f"row {bad[0]} of the operator contains NaN or infinity")
        return norms


def operator(
    times: Callable[[Any], Any],
    combine: Callable[[Any], Any],
    shape: tuple[int, int],
    *,
    rounding: float = 0.0,
    dtype: Any = float,
    norms: Any = None,
) -> Probes:
    """Return probes known by two functions; `quadsense.check_probes` tells whether they are right.

    Parameters
    ----------
    times : callable
        ``times(X)`` is ``u_i* X`` for every row, (n, k) to (m, k): ``U.conj() @ X`` of the array.
    combine : callable
        ``combine(Y)`` is ``sum_i u_i Y_i``, (m, k) to (n, k): ``U.T @ Y`` of the array.
    shape : (m, n)
        Number of rows, and their length.
    rounding : float, default=0.0
        How far the functions err at most, beyond what inner products of length n in float64 do:
        ``|times(x)_i - u_i* x| <= rounding |u_i| |x|``. What is certified counts it, and says so.
    dtype : {float, complex}, default=float
        Type of the rows.
    norms : array_like of shape (m,), optional
        Norms of the rows. Without them they are found by ``min(m, n)`` products.

    Returns
    -------
    Probes
        To be given to `quadsense.solve`, `Measurements` and others in place of U. A SciPy
        ``LinearOperator`` needs no wrapping: it is taken as the array would be.

    Examples
    --------
    Neighbouring differences, and a state of which they are to be read:

    >>> import numpy as np, quadsense
    >>> def times(X):
    ...     return X[1:] - X[:-1]
    >>> def combine(Y):
    ...     zero = np.zeros((1, Y.shape[1]))
    ...     return np.concatenate([zero, Y]) - np.concatenate([Y, zero])
    >>> U = quadsense.probes.operator(times, combine, (3, 4))
    >>> quadsense.check_probes(U).sound
    True
    >>> quadsense.solve(U, [1.0, 2.0, 3.0], delta=0.1).success
    True
    """
    for name, function in (("times", times), ("combine", combine)):
        if not callable(function):
            raise ValueError(f"{name} must be a function, got {type(function).__name__}")
    size = checked_shape(shape)
    kind = _checked_type(dtype)
    held = None
    if norms is not None:
        held = checked_vector("norms", norms, size[0])
        if (held < 0.0).any():
            row = int(np.argmax(held < 0.0))
            raise ValueError(f"norms[{row}] must not be negative, got {held[row]}")
    return Operator(times, combine, size, kind == "c", checked_rounding(rounding), held)


def _checked_type(dtype: Any) -> str:
    try:
        kind = np.dtype(dtype).kind
    except (TypeError, ValueError):
        kind = "?"
    if kind not in "fc":
        raise ValueError(f"dtype must be float or complex, got {dtype!r}")
    return kind


def from_operator(U: Any) -> Any:
    """Return the array behind an operator that SciPy made of one; else its products, as probes."""
    from scipy.sparse.linalg import aslinearoperator

    if type(U) is type(aslinearoperator(np.eye(1))):
        return U.A
    missing = [name for name in ("shape", "matvec", "rmatvec") if not hasattr(U, name)]
    if missing:
        raise ValueError(f"U is an operator without {missing[0]}: it needs shape, matvec, rmatvec")
    given = tuple(int(size) for size in U.shape)
    if len(given) != 2 or 0 in given:
        raise ValueError(f"U is an operator of shape {given}: it must have rows and columns")
    shape = given[0], given[1]
    matmat, rmatmat = _many(U, "matmat", "matvec"), _many(U, "rmatmat", "rmatvec")
    sample = np.asarray(_tried(U, "matvec", np.ones(shape[1])))
    _tried(U, "rmatvec", np.ones(shape[0]))
    stated = np.dtype(getattr(U, "dtype", None) or sample.dtype)
    if stated.kind not in "buifc":
        raise ValueError(f"U is an operator of type {stated.name}: it must be of numbers")
    is_complex = "c" in (stated.kind, sample.dtype.kind)
    narrow = sample.dtype in (np.float32, np.complex64)
    # As inner products in single precision, where that is what comes out.
    rounding = 2.0 * (max(shape) + 8) * SINGLE if narrow else 0.0
    names = ("matvec", "rmatvec")
    if not is_complex:
        return Operator(matmat, rmatmat, shape, False, rounding, names=names)

    def times(X: Array) -> Array:
        return np.conj(matmat(np.conj(X)))

    def combine(Y: Array) -> Array:
        return np.conj(rmatmat(np.conj(Y)))

    return Operator(times, combine, shape, True, rounding, names=names)


def _tried(U: Any, name: str, x: Array) -> Any:
    try:
        return getattr(U, name)(x)
    except NotImplementedError:
        raise ValueError(
            f"U is an operator whose {name} is not implemented: it needs matvec and rmatvec"
        ) from None


def _many(U: Any, many: str, one: str) -> Callable[[Array], Array]:
    """Return products with several columns at once, where the operator has them."""
    if hasattr(U, many):
        return lambda X: np.asarray(getattr(U, many)(X))
    single = getattr(U, one)
    return lambda X: np.stack([np.asarray(single(x)).reshape(-1) for x in X.T], axis=1)
