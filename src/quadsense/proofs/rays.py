"""Proof that a linear functional of the fits is unbounded: a direction in which fits go on.

Where some A fits and M is such that every ``A + t M``, ``t >= 0``, fits too, and ``<C, M> < 0``,
then ``<C, A>`` has no lower end. In floating point ``F(M) = 0`` is nearly true only; that an exact
M with the same properties is near is proved from the smallest eigenvalue of the rows' Gram matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.arrays import Vector, to_numpy
from quadsense.core.ends import UNIT
from quadsense.core.question import Question
from quadsense.measurements import Measurements
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.conjugates import shifted
from quadsense.proofs.reach import seen_columns, smallest_of_gram
from quadsense.proofs.rounding import gamma

Matrix = npt.NDArray[Any]

DROPPED = 1e-10
"""Singular values of rows below this share of the largest are taken for rounding."""


def is_ray(data: Measurements, question: Question, ray: Matrix) -> bool:
    """Whether `ray` proves that ``<C, A>`` has no lower end, if anything fits at all.

    Parameters
    ----------
    data : Measurements
    question : Question
        With rows "within" and the C in question, in the user's scaling.
    ray : ndarray of shape (n, n) or (n,)
        M, symmetric; or x, which stands for ``x x*``: the only kind for positive semidefinite A.
    """
    if not np.isfinite(ray).all():
        return False
    F, exponents = data.unit_rows.on_numpy().exact()
    scaled = shifted(question, exponents)
    live = to_numpy(data.unit_rows.nonzero) > 0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        size = float(np.max(np.abs(ray), initial=0.0))
        if not size > 0.0:
            return False
        ray = ray / size
        if ray.ndim == 1:
            return _is_vector(F, scaled, live, ray)
        return not question.psd and _is_matrix(F, scaled, live, ray)


def _is_matrix(F: Sensing, question: Question, live: npt.NDArray[np.bool_], M: Matrix) -> bool:
    """Symmetric: rows of two ends must read 0, the others lead away from their end."""
    upper, lower = question.hi < np.inf, question.lo > -np.inf
    M = 0.5 * (M + M.conj().T)
    sees = live & _sees(F, M)
    two = np.flatnonzero(upper & lower & sees)
    one = np.flatnonzero((upper ^ lower) & sees)
    size = float(np.linalg.norm(M)) * (1.0 + gamma(F.n * F.n + 8.0))
    v = F.forward(M)
    error = (8.0 * gamma(2.0 * F.n + 32.0) + 8.0 * F.rounding) * size * F.masses
    if isinstance(F, Mixed):
        error += 8.0 * gamma(F.longest + 16.0) * size * F.masses
    moved = 0.0
    if two.size:
        if not isinstance(F, Mixed):  # the same row twice says nothing more
            _, first = np.unique(to_numpy(F.take_unit(two)), axis=0, return_index=True)
            two = np.sort(two[first])
        sigma = smallest_of_gram(F if two.size == F.m else F.only(two))
        if sigma == 0.0:
            return False
        length = float(np.linalg.norm(np.abs(v[two]) + error[two]))
        moved = length / sigma * (1.0 + gamma(two.size + 16.0))
    away = np.where(upper, v, -v)[one] + error[one] + F.masses[one] * moved * (1.0 + 1e-9)
    if np.any(away > 0.0):
        return False
    return _falls(question.C, F, M, size, moved)


def _is_vector(F: Sensing, question: Question, live: npt.NDArray[np.bool_], x: Matrix) -> bool:
    """``x x*``: nothing that is bounded above may see x; of sums of rows, nothing at all."""
    rows = _seen_rows(F, question, live)
    rows = rows[np.any((rows != 0.0) & (x != 0.0), axis=1)]  # the others read exactly 0
    size = float(np.linalg.norm(x)) * (1.0 + gamma(F.n + 8.0))
    moved = 0.0
    if len(rows):
        sigma = _smallest_singular_value(rows)
        if sigma == 0.0:
            return False
        products = np.abs(rows.conj() @ x)
        lengths = np.linalg.norm(rows, axis=1)
        products += 4.0 * gamma(F.n + 16.0) * lengths * size
        moved = float(np.linalg.norm(products)) / sigma * (1.0 + gamma(len(rows) + 16.0))
    spread = (2.0 * size + moved) * moved * (1.0 + 1e-9)  # by which x x* may be off, in norm
    return _falls(question.C, F, np.outer(x, x.conj()), size * size, spread)


def _sees(F: Sensing, M: Matrix) -> npt.NDArray[np.bool_]:
    """Which rows do not read exactly 0 of M because one or the other is 0 in every term."""
    pattern = (M != 0.0).astype(np.float64)
    parts = [
        np.any(((rows != 0.0).astype(np.float64) @ pattern) * (rows != 0.0) > 0.0, axis=1)
        for rows in (to_numpy(block) for _, block in F.raw.blocks())
    ]
    seen = np.concatenate(parts)
    if isinstance(F, Mixed):
        return np.asarray((F.weights != 0) @ seen.astype(np.float64) > 0.0)
    return seen


def _falls(C: Any, F: Sensing, M: Matrix, size: float, moved: float) -> bool:
    """Whether ``<C, M>`` is negative for the exact M too."""
    if isinstance(C, float):
        C = C * np.eye(F.n)
    elif not F.is_complex:
        C = C.real
    length = float(np.linalg.norm(C)) * (1.0 + gamma(F.n * F.n + 8.0))
    value = float(np.vdot(C, M).real) + 4.0 * gamma(F.n * F.n + 16.0) * length * size
    return value + length * moved * (1.0 + 1e-9) < 0.0


def _seen_rows(F: Sensing, question: Question, live: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Rows that a positive semidefinite direction must not be seen by, each once."""
    if isinstance(F, Mixed):
        asks = live & ((question.hi < np.inf) | (question.lo > -np.inf))
        used = np.flatnonzero(np.asarray((F.weights[np.flatnonzero(asks)] != 0).sum(axis=0)))
        rows = to_numpy(F.raw.take_unit(used))
    else:
        rows = to_numpy(F.take_unit(np.flatnonzero(live & (question.hi < np.inf))))
    return np.unique(rows, axis=0) if len(rows) else rows


def _smallest_singular_value(rows: npt.NDArray[Any]) -> float:
    """Proved lower bound on ``||U x||`` over unit x in the span of the conjugated rows; or 0.0."""
    from quadsense.proofs.definite import cholesky, factorisation_error, first_shift

    m, n = rows.shape
    if m > n:
        return 0.0
    G = np.asfortranarray(rows @ rows.conj().T)
    trace = float(np.linalg.norm(rows)) ** 2 * (1.0 + gamma(m * n + 16.0))
    error = 8.0 * gamma(n + 16.0) * trace + 4.0 * factorisation_error(m, trace)
    if cholesky(G) is None:
        return 0.0
    guess = float(sl.eigh(G, eigvals_only=True, subset_by_index=(0, 0), check_finite=False)[0])
    found = first_shift(G, [share * guess for share in (0.5, 0.05) if share * guess > 2.0 * error])
    return 0.0 if found is None else math.sqrt(found.size - error) * (1.0 - 4.0 * UNIT)


def unseen_directions(data: Measurements, question: Question, C: Matrix) -> Iterator[Matrix]:
    """Yield parts of -C that no row sees, of coordinates that are 0 in every row first."""
    F = data.unit_rows.on_numpy()
    asks = np.flatnonzero((question.hi < np.inf) | (question.lo > -np.inf))
    if not asks.size:
        yield -C
        return
    rows = F if asks.size == F.m else F.only(asks)
    seen = seen_columns(rows)
    outside = np.where(np.outer(seen, seen), 0.0, -C)
    if outside.any():
        yield outside
    y = _least_squares(rows, to_numpy(rows.forward(C)))
    rest = -C + to_numpy(rows.adjoint(y))
    again = _least_squares(rows, to_numpy(rows.forward(rest)))
    rest = rest - to_numpy(rows.adjoint(again))
    if float(np.linalg.norm(rest)) > 1e-7 * float(np.linalg.norm(C)):
        yield rest


def _least_squares(F: Sensing, v: Vector) -> Vector:
    """y of least norm with ``F F*(y) = v``, as near as there is."""
    K = F.gram()
    values, vectors = np.linalg.eigh(K)
    keep = values > DROPPED * values[-1]
    V = vectors[:, keep]
    return np.asarray(V @ ((V.T @ v) / values[keep]))


def unseen_vectors(data: Measurements, question: Question, C: Matrix) -> Iterator[Matrix]:
    """Yield x that nothing bounded above sees, with ``x* C x`` least and negative."""
    F = data.unit_rows.on_numpy()
    live = to_numpy(F.nonzero) > 0
    rows = _seen_rows(F, question, live)
    unit = np.eye(F.n, dtype=C.dtype)
    outside = unit[:, ~np.any(rows != 0.0, axis=0)] if len(rows) else unit
    spaces = [outside]
    if 0 < len(rows) < F.n:
        _, values, right = sl.svd(rows.conj(), full_matrices=True)
        rank = int(np.count_nonzero(values > DROPPED * values[0]))
        spaces.append(right[rank:].conj().T)
    for null in spaces:
        if null.shape[1]:
            values, vectors = np.linalg.eigh(null.conj().T @ C @ null)
            if values[0] < -1e-9 * float(np.linalg.norm(C)):
                yield np.asarray(null @ vectors[:, 0])
