"""Linear constraints ``lo <= <C, A> <= hi`` as further readings: sums over rows of rank one.

Off the diagonal column j of C, ``g`` below ``C_jj``, enters as ``e g* + g e*`` with ``e = e_j``,

    e g* + g e* = (x x* - y y*)/2,   x = s e + g/s,   y = s e - g/s,

which is exact in floating point for s a power of two: no digit of C changes. The diagonal is read
by unit vectors that all constraints share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, Vector, as_numbers, complex_of, is_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements.arrays import SPARSE_SHARE, Dense, Sparse
from quadsense.measurements.probes import Probes
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.stack import Axes, Stack
from quadsense.measurements.validate import MAX_SKEW, checked_vector
from quadsense.typing import SupportsSparse, is_number, to_list


@dataclass(frozen=True)
class Constraint:
    """``lo <= <C, A> <= hi``.

    Attributes
    ----------
    name : str
        "trace", or "constraints[i]".
    matrix : ndarray or CSR array
        C, (n, n); where there are `signs`, the X of ``C = X diag(signs) X*``, (n, r).
    lo, hi : float
        Infinite where there is no such end; equal for an equality.
    signs : ndarray of shape (r,) or None
    """

    name: str
    matrix: Array | SupportsSparse
    lo: float
    hi: float
    signs: Vector | None = None


def checked_constraints(
    trace: Any, constraints: Iterable[Any], n: int, is_complex: bool
) -> tuple[Constraint, ...]:
    """Return what was asked of ``<C, A>``, or a ValueError that names the constraint.

    Parameters
    ----------
    trace : float or (lo, hi) or None
    constraints : iterable of (C, lo, hi)
        C dense, sparse, a `SensedMatrix`, or ``(X, signs)``.
    n : int
        Order of A.
    is_complex : bool
        Whether A is Hermitian rather than real.
    """
    found = []
    if trace is not None:
        lo, hi = (trace, trace) if is_number(trace) else _pair(trace)
        low, high = _checked_ends("trace", lo, hi)
        found.append(Constraint("trace", sp.csr_array(sp.eye_array(n)), low, high))
    for i, given in enumerate(to_list("constraints", constraints, "(C, lo, hi)")):
        name = f"constraints[{i}]"
        if isinstance(given, Constraint):  # from a certificate, checked again all the same
            name, C = given.name, given.matrix
            given = (C if given.signs is None else (C, given.signs), given.lo, given.hi)
        try:
            C, lo, hi = given
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be (C, lo, hi): a matrix and two numbers") from None
        low, high = _checked_ends(name, lo, hi)
        matrix, signs = _checked_matrix(name, C, n, is_complex)
        found.append(Constraint(name, matrix, low, high, signs))
    return tuple(found)


def _pair(trace: Any) -> tuple[Any, Any]:
    try:
        lo, hi = trace
    except (TypeError, ValueError):
        raise ValueError(f"trace must be a number or a pair (lo, hi), got {trace!r}") from None
    return lo, hi


def _checked_ends(name: str, lo: Any, hi: Any) -> tuple[float, float]:
    for word, end in (("lo", lo), ("hi", hi)):
        if not is_number(end):
            raise ValueError(f"{name}: {word} must be a number, got {end!r}")
    low, high = float(lo), float(hi)
    if not low <= high or low == np.inf or high == -np.inf:
        raise ValueError(f"{name} must satisfy lo <= hi, but has lo = {low} and hi = {high}")
    if low == -np.inf and high == np.inf:
        raise ValueError(f"{name} asks for nothing: both its ends are infinite")
    return low, high


def _checked_matrix(name: str, C: Any, n: int, is_complex: bool) -> tuple[Any, Vector | None]:
    """Return C, or X and its signs, in float64 or complex128."""
    if isinstance(C, SensedMatrix):
        C = C.to_dense() if C.factor is None else (C.factor, 1.0 if C.signs is None else C.signs)
    if isinstance(C, tuple):
        if len(C) != 2:
            raise ValueError(f"{name}: C must be a matrix or a pair (X, signs)")
        X, signs = C
        values = _numbers(f"{name}: X", X, is_complex)
        if values.ndim != 2 or values.shape[0] != n:
            raise ValueError(f"{name}: X has shape {values.shape}, but must have n = {n} rows")
        return values, checked_vector(f"{name}: signs", signs, values.shape[1], True, of="X.T")
    values = _numbers(f"{name}: C", C, is_complex)
    if values.shape != (n, n):
        raise ValueError(f"{name}: C has shape {values.shape}, but must have shape ({n}, {n})")
    skew = abs(values - values.conj().T)
    largest = float(abs(values).max()) if values.shape[0] else 0.0
    if float(skew.max()) > MAX_SKEW * largest:
        i, j = (int(k) for k in np.unravel_index(skew.argmax(), skew.shape))
        what = "Hermitian" if is_complex else "symmetric"
        raise ValueError(
            f"{name}: C must be {what}, but C[{i}, {j}] is {values[i, j]:.6g} "
            f"and C[{j}, {i}] is {values[j, i]:.6g}"
        )
    if float(skew.max()) > 0.0:
        values = values / 2 + values.conj().T / 2
        values = sp.csr_array(values) if sp.issparse(values) else values
    return values, None


def _numbers(name: str, values: Any, is_complex: bool) -> Any:
    """Return an array or CSR array of finite float64 or complex128, real where A is."""
    if sp.issparse(values):
        found = sp.csr_array(values, copy=True)
        found.sum_duplicates()
        data = found.data
    else:
        data = found = as_numbers(name, values)
    if data.dtype.kind not in "buifc":
        raise ValueError(f"{name} must hold numbers, got an array of type {data.dtype.name}")
    if not np.isfinite(data).all():
        raise ValueError(f"{name} contains NaN or infinity")
    if data.dtype.kind == "c" and not is_complex:
        if np.any(data.imag != 0.0):
            raise ValueError(f"{name} is complex, but U is real, and so is A: give its real part")
        found = found.real
    return found.astype(np.complex128 if is_complex else np.float64)


def with_constraints(rows: Sensing, given: Any, constraints: tuple[Constraint, ...]) -> Any:
    """Return the probes with those of the constraints below, and W for both.

    Parameters
    ----------
    rows : Sensing
        The user's rows.
    given : ndarray or CSR array of shape (p, m) or None
        The user's W.
    constraints : tuple of Constraint

    Returns
    -------
    raw : Sensing
        Rows of unit norm.
    W : ndarray or CSR array of shape (p + k, m + ...)
    """
    kind, apart = rows.kind, [_taken_apart(constraint) for constraint in constraints]
    parts, blocks = [kind], []  # blocks: of the lower right part of W
    diagonals = sp.csr_array(np.stack([diagonal for diagonal, _, _ in apart]))
    if diagonals.nnz:
        parts.append(Axes(rows.n, kind))
        blocks.append(diagonals)
    for i, (_, X, signs) in enumerate(apart):
        if signs.size:
            parts.append(_probes(X.conj() if rows.conjugate else X, kind))
            at = (np.full(signs.size, i), np.arange(signs.size))
            blocks.append(sp.csr_array((signs, at), shape=(len(apart), signs.size)))
    below = sp.csr_array(sp.hstack(blocks)) if blocks else sp.csr_array((len(apart), 0))
    raw = Sensing(Stack(*parts), rows.conjugate)
    if given is None:
        each = np.arange(rows.m + 1, dtype=below.indptr.dtype)
        above: Any = sp.csr_array((np.ones(rows.m), each[:-1], each), shape=(rows.m, rows.m))
    elif not sp.issparse(given):
        p, m = given.shape
        W = np.zeros((p + below.shape[0], m + below.shape[1]))
        W[:p, :m], W[p:, m:] = given, below.toarray()
        return raw, W
    else:
        above = given
    return raw, _beside(above, below)


def _beside(above: Any, below: Any) -> Any:
    """Return the block diagonal of two CSR arrays, as SciPy does, in a tenth of the time."""
    (p, m), (q, n) = above.shape, below.shape
    data = np.concatenate([above.data, below.data])
    indices = np.concatenate([above.indices, below.indices + m])
    indptr = np.concatenate([above.indptr, below.indptr[1:] + above.indptr[-1]])
    return sp.csr_array((data, indices, indptr), shape=(p + q, m + n))


def _taken_apart(constraint: Constraint) -> tuple[Vector, Any, Vector]:
    """Return the diagonal, and rows and their weights for the rest."""
    C: Any = constraint.matrix
    if constraint.signs is not None:
        X = sp.csr_array(C.T) if sp.issparse(C) else np.ascontiguousarray(C.T)
        return np.zeros(C.shape[0]), X, constraint.signs
    diagonal = np.array(C.diagonal().real, dtype=np.float64)
    if not sp.issparse(C):
        C = sp.csr_array(C)
    below = sp.csc_array(sp.tril(C, -1))
    below.eliminate_zeros()
    used = np.flatnonzero(np.diff(below.indptr))
    if not used.size:
        return diagonal, None, np.empty(0)
    below = below[:, used]
    largest = np.maximum.reduceat(np.abs(below.data), below.indptr[:-1])
    # s^2 is about the size of g, so that neither part is lost to rounding of the other
    halves = (np.frexp(largest)[1] // 2).astype(np.int64)
    scaled = below.copy()
    scaled.data = _ldexp(below.data, -np.repeat(halves, np.diff(below.indptr)))
    ones = sp.csc_array((np.ldexp(1.0, halves), (used, np.arange(used.size))), shape=below.shape)
    ones = ones.astype(below.dtype)
    rows = sp.vstack([(ones + scaled).T, (ones - scaled).T], format="csr")
    half = np.full(used.size, 0.5)
    return diagonal, sp.csr_array(rows), np.concatenate([half, -half])


def _ldexp(values: npt.NDArray[Any], exponents: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return ``values 2^exponents``: no digit changes."""
    if not np.iscomplexobj(values):
        return np.ldexp(values, exponents)
    return complex_of(np.ldexp(values.real, exponents), np.ldexp(values.imag, exponents))


def _probes(X: Any, beside: Probes) -> Probes:
    """Return rows of that array, dense or sparse as suits them, where the others live."""
    full = not sp.issparse(X)
    if not is_numpy(beside.held_norms):
        return Dense(beside.own(X if full else X.toarray()))
    share = 1.0 if full else X.nnz / math.prod(X.shape)
    if share > SPARSE_SHARE:
        return Dense(X if full else X.toarray())
    return Sparse(X)
