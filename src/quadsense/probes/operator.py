"""Probes of the user's own: by functions or SciPy's LinearOperator, and a check of any kind.

An operator U means what the array would: ``U @ x`` is ``sum_j u_ij x_j``, without a conjugate. A
kind of probes has ``u_i* x``, ``conj(U @ conj(x))``, and ``sum_i u_i y_i``, which by the adjoint
that such an operator has is ``conj(U^H @ conj(y))``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, complex_of, to_numpy
from quadsense.core.intervals import EPS, TINY, UNIT
from quadsense.core.records import cached_property
from quadsense.measurements.probes import Probes
from quadsense.measurements.validate import (
    checked_rounding,
    checked_rows,
    checked_shape,
    checked_vector,
    is_operator,
)
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.system.threads import with_one_blas_thread
from quadsense.typing import to_generator

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


# --- whether products are those of some rows, and as exact as they say --------------------------

Values = npt.NDArray[Any]

MAX_ROWS = 16
"""Rows looked at one by one, at most, and terms by which sums may be longer than they are."""

VECTORS = 3
"""Random vectors that each product is tried on."""

PROPORTIONAL = 1e-9
"""By how much the ratios of numbers may differ that are multiples of others."""

MAX_ROUNDING = 1e-4
"""What differs by less of its size may be rounding, and is judged together with the rows."""


@dataclass(frozen=True)
class ProbesReport:
    """What `check_probes` found.

    Attributes
    ----------
    m, n : int
    is_complex : bool
    problems : tuple of str
        What is wrong, a sentence each; empty where nothing is.
    rounding : float
        As stated: how far products may err, beyond inner products of length n in float64.
    error : float
        The largest error seen, of a product with a row, relative to the norms; NaN where the
        products could not be compared.
    """

    m: int
    n: int
    is_complex: bool
    problems: tuple[str, ...]
    rounding: float
    error: float

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __bool__(self) -> bool:
        """Whether nothing is wrong."""
        return self.sound

    def __repr__(self) -> str:
        """In one line what was looked at, or what is wrong."""
        if self.problems:
            return f"<ProbesReport not sound: {'; '.join(self.problems)}>"
        kind = "complex" if self.is_complex else "real"
        return (
            f"<ProbesReport sound: {self.m} {kind} rows of length {self.n}, largest error seen "
            f"{self.error:.1e}, stated {self.rounding:.1e}>"
        )


@with_one_blas_thread
def check_probes(op: Any, *, rng: int = 0) -> ProbesReport:
    """Try whether probes are sound: what a kind, or an operator, of your own must hold.

    That products have the shape and type that they should, are linear, are adjoint to each other,
    are those of the rows, whose norms are right, and err by no more than is stated.

    Parameters
    ----------
    op : Probes, operator or array
        Whatever `quadsense.solve` takes as U.
    rng : int, default=0
        Seed of the vectors that are tried.

    Returns
    -------
    ProbesReport
        ``problems`` names what is wrong; ``sound`` is whether there are none.

    Examples
    --------
    A transform whose adjoint lacks the factor that the inverse has:

    >>> import numpy as np, quadsense
    >>> def times(X):
    ...     return np.fft.fft(X, axis=0)
    >>> def wrong(Y):
    ...     return np.fft.ifft(Y, axis=0)
    >>> def right(Y):
    ...     return 8 * np.fft.ifft(Y, axis=0)
    >>> U = quadsense.probes.operator(times, wrong, (8, 8), dtype=complex, rounding=1e-14)
    >>> quadsense.check_probes(U).problems[0]
    'combine is 0.125 times the adjoint of times'
    >>> U = quadsense.probes.operator(times, right, (8, 8), dtype=complex, rounding=1e-14)
    >>> quadsense.check_probes(U).sound
    True
    """
    generator = to_generator("rng", rng)
    problems: list[str] = []
    error = float("nan")
    kind: Any = op
    try:
        if is_operator(op):
            kind = from_operator(op)
        if not isinstance(kind, Probes):
            kind = checked_rows(kind, False).kind
    except Exception as failure:
        shape = getattr(op, "shape", ())
        if not (is_operator(op) and hasattr(op, "rmatvec") and len(shape) == 2 and all(shape)):
            raise  # no product was tried
        is_complex = np.dtype(getattr(op, "dtype", None) or float).kind == "c"
        m, n = map(int, shape)
        return ProbesReport(m, n, is_complex, (_failed(failure),), 0.0, error)
    try:
        for problem in _found(kind, generator):
            if isinstance(problem, float):
                error = problem
            else:
                problems.append(problem)
    except Exception as failure:
        problems.append(_failed(failure))
    # One cause shows in many places: the first is the one to mend.
    return ProbesReport(
        kind.m, kind.n, kind.is_complex, tuple(problems), float(kind.rounding), error
    )


def _failed(failure: Exception) -> str:
    return f"a product failed: {type(failure).__name__}: {failure}"


def _found(kind: Probes, rng: Any) -> Iterator[str | float]:
    """Yield what is wrong, until the rest would follow from it; at last the largest error."""
    X, Y = (_random(kind, rng, size) for size in (kind.n, kind.m))
    shapes = list(_shapes(kind, X, Y))
    yield from shapes
    if shapes:
        return
    lines = list(_linearity(kind, rng))
    yield from lines
    if lines:
        return
    wrong = _adjoint(kind, X, Y)
    if wrong:
        yield wrong
        return
    index = np.sort(rng.choice(kind.m, min(_sampled(kind), kind.m), replace=False))
    strict = MAX_ROWS * (2.0 * (kind.n + MAX_ROWS) * UNIT + kind.rounding)
    for step in (
        _rows(kind, index, MAX_ROUNDING),
        _errors(kind, index, X),
        _rows(kind, index, strict),
    ):
        found = list(step)
        yield from found
        if any(isinstance(problem, str) for problem in found):
            return


def _sampled(kind: Probes) -> int:
    return max(1, min(MAX_ROWS, BLOCK_ELEMENTS // max(kind.m, kind.n)))


def _names(kind: Probes) -> tuple[str, str]:
    """Return what the user calls the two products."""
    return getattr(kind, "names", ("times", "combine"))


def _random(kind: Probes, rng: Any, size: int) -> Values:
    values = rng.standard_normal((size, VECTORS))
    if kind.is_complex:
        values = complex_of(values, rng.standard_normal((size, VECTORS)))
    return np.asarray(values)


def _times(kind: Probes, X: Values) -> Values:
    return to_numpy(kind.times(kind.own(X)))


def _combine(kind: Probes, Y: Values) -> Values:
    return to_numpy(kind.combine(kind.own(Y)))


def _shapes(kind: Probes, X: Values, Y: Values) -> Iterator[str]:
    """Yield shapes, types, and numbers that are none."""
    wanted = np.dtype(np.complex128 if kind.is_complex else np.float64)
    products = ((_times, X, kind.m, kind.n), (_combine, Y, kind.n, kind.m))
    for name, (product, argument, rows, given) in zip(_names(kind), products, strict=True):
        found = product(kind, argument)
        if found.shape != (rows, VECTORS):
            yield (
                f"{name} of an array of shape {(given, VECTORS)} has shape {found.shape}, not "
                f"{(rows, VECTORS)}"
            )
        elif found.dtype != wanted:
            yield f"{name} returns {found.dtype.name}, not {wanted.name}"
        elif not np.isfinite(found).all():
            yield f"{name} of finite numbers is not finite, first in row {_first_bad(found)}"


def _first_bad(values: Values) -> int:
    return int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])


def _linearity(kind: Probes, rng: Any) -> Iterator[str]:
    """Yield ``f(a x + z) = a f(x) + f(z)``, up to what may be rounding, which `_errors` judges."""
    products = ((_times, kind.n), (_combine, kind.m))
    for name, (product, size) in zip(_names(kind), products, strict=True):
        X, Z = _random(kind, rng, size), _random(kind, rng, size)
        factor = _random(kind, rng, 1)[0, 0]
        one, two, both = product(kind, X), product(kind, Z), product(kind, factor * X + Z)
        scale = max(float(np.linalg.norm(v)) for v in (one, two, both))
        slack = MAX_ROUNDING * scale
        if np.linalg.norm(both - factor * one - two) <= slack:
            continue
        turned = np.conj(factor) * one + two
        if kind.is_complex and np.linalg.norm(both - turned) <= slack:
            yield f"{name} is antilinear: it conjugates what it is given"
        else:
            far = np.linalg.norm(both - factor * one - two) / max(scale, TINY)
            yield f"{name} is not linear: {name}(a x + z) differs by {far:.1e} of its size"


def _adjoint(kind: Probes, X: Values, Y: Values) -> str:
    """Return ``<y, times(x)> = <combine(y), x>``, or what else it is."""
    times, combine = _names(kind)
    images, sums = _times(kind, X), _combine(kind, Y)
    left, right = (Y.conj().T @ images).ravel(), (sums.conj().T @ X).ravel()
    sizes = (
        np.linalg.norm(X, axis=0)[None, :]
        * (np.abs(Y).T @ np.maximum(to_numpy(kind.held_norms), 0.0))[:, None]
    )
    slack = MAX_ROUNDING * sizes.ravel() / np.sqrt(max(kind.m, 1))
    ratio = np.vdot(left, right) / max(float(np.vdot(left, left).real), TINY)
    same = np.linalg.norm(right - ratio * left) <= PROPORTIONAL * np.linalg.norm(right)
    if same and ratio != 0.0 and abs(ratio - 1.0) > PROPORTIONAL:
        amount = (
            f"{ratio.real:.6g}" if abs(ratio.imag) <= PROPORTIONAL * abs(ratio) else f"{ratio:.6g}"
        )
        return f"{combine} is {amount} times the adjoint of {times}"
    if np.all(np.abs(left - right) <= slack):
        return ""
    if kind.is_complex:
        turned = _combine(kind, Y.conj()).conj()
        if np.all(np.abs(left - (turned.conj().T @ X).ravel()) <= slack):
            own = ("U @ x", "U.conj().T @ y") if times == "matvec" else ("U.conj() @ X", "U.T @ Y")
            return (
                f"{combine} is the adjoint of {times} except for a conjugate: {times} must be "
                f"{own[0]} and {combine} {own[1]}"
            )
    worst = int(np.argmax(np.abs(left - right)))
    return (
        f"{combine} is not the adjoint of {times}: <y, {times}(x)> is {left[worst]:.6g}, but "
        f"<{combine}(y), x> is {right[worst]:.6g}"
    )


def _rows(kind: Probes, index: Values, room: float) -> Iterator[str]:
    """Compare rows as `take` has them with `combine` of unit vectors, and their norms."""
    rows = _taken(kind, index)
    picked = np.zeros((kind.m, index.size))
    picked[index, np.arange(index.size)] = 1.0
    formed = _combine(kind, picked).T
    norms = np.linalg.norm(formed, axis=1)
    off = np.linalg.norm(rows - formed, axis=1) > room * norms
    if off.any():
        row = index[int(np.argmax(off))]
        yield f"take returns another row {row} than {_names(kind)[1]} of a unit vector"
    held = to_numpy(kind.held_norms)[index]
    wrong = np.abs(held - norms) > room * norms
    if wrong.any():
        k = int(np.argmax(wrong))
        yield f"the norm of row {index[k]} is {norms[k]:.6g}, but is said to be {held[k]:.6g}"


def _taken(kind: Probes, index: Values) -> Values:
    return to_numpy(kind.take(kind.xp.asarray(index, device=kind.device)))


def _errors(kind: Probes, index: Values, X: Values) -> Iterator[str | float]:
    """Compare products with the same in extended precision."""
    rows = _taken(kind, index).astype(np.clongdouble if kind.is_complex else np.longdouble)
    norms = np.sqrt(np.sum(np.abs(rows) ** 2, axis=1)).astype(np.float64)
    exact = rows.conj() @ X.astype(rows.dtype)
    sizes = np.maximum(norms[:, None] * np.linalg.norm(X, axis=0), TINY)
    seen = np.abs(_times(kind, X)[index] - exact).astype(np.float64) / sizes
    weights = X[:1, :].repeat(index.size, axis=0) * np.linspace(0.5, 2.0, index.size)[:, None]
    spread = np.zeros((kind.m, VECTORS), dtype=weights.dtype)
    spread[index] = weights
    total = rows.T @ weights.astype(rows.dtype)
    scale = np.maximum(norms @ np.abs(weights), TINY)
    back = np.linalg.norm((_combine(kind, spread) - total).astype(weights.dtype), axis=0) / scale
    usual = 2.0 * (kind.n + MAX_ROWS) * EPS
    times, combine = _names(kind)
    for name, error in ((times, seen), (combine, back)):
        worst = float(error.max())
        if worst > usual + kind.rounding:
            where = f" in row {index[int(np.argmax(error.max(axis=1)))]}" if error is seen else ""
            yield (
                f"{name} errs by {worst:.1e} of the norms{where}, more than inner products "
                f"({usual:.1e}) and the stated rounding ({kind.rounding:.1e}) explain"
            )
    yield max(float(seen.max()), float(back.max()))
