"""`check_probes`: whether products are those of some rows, and as exact as they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import complex_of, to_numpy
from quadsense.core.intervals import EPS, TINY, UNIT
from quadsense.measurements.probes import Probes
from quadsense.measurements.validate import checked_rows, is_operator
from quadsense.probes.operator import from_operator
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.system.threads import with_one_blas_thread
from quadsense.typing import to_generator

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
