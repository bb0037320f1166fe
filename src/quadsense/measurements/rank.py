"""Numerical rank of the sensing map: how many directions of A the rows see.

A rank-revealing Cholesky factorization of the smaller of ``F F*`` and ``F* F``, for rows of unit
norm: a pivot is the squared distance of a ``u_i u_i*`` from the span of those before it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpstrf, spotrf

from quadsense.arrays import device, to_numpy
from quadsense.core import products
from quadsense.measurements.gram import ExplicitGram
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import CLEAR_PIVOT, Sensing

MAX_ORDER = 20_000
"""Order of a Gram matrix up to which it is factorized: 3.2 GB."""

MIN_PIVOT = 1e-7
"""Distance of a ``u_i u_i*`` of unit norm from the span of others that counts as none."""


class Rank(NamedTuple):
    """The rank of F; None where it takes too long to find.

    `flops` is about what the next stage of finding it takes; infinite where it is never found.
    """

    rank: int | None
    flops: float = 0.0


def find_rank(rows: Sensing, gram: Any = None, most: float = math.inf) -> Rank:
    """Return the numerical rank of F, if no stage of finding it takes more than `most` flops.

    Parameters
    ----------
    rows : Sensing
        Of unit norm, or zero.
    gram : Gram, optional
        K of these rows, which is used where it is held.
    most : float
        It is compared with numbers that depend on the shape of the rows alone.
    """
    if rows.known_rank is not None:
        return Rank(rows.known_rank)
    live = np.flatnonzero(to_numpy(rows.nonzero))
    if live.size <= 1:
        return Rank(live.size)
    size = rows.unknowns
    order = float(min(live.size, size))
    weight = 4.0 if rows.is_complex else 1.0
    formed = isinstance(gram, ExplicitGram) and live.size <= size
    flops = order**3 / 3.0 + (0.0 if formed else weight * order * order * rows.n)
    if order > MAX_ORDER:
        return Rank(None, math.inf)
    if flops > most:
        return Rank(None, flops)
    if live.size > size:
        if _some_rows_see_all(rows, live):
            return Rank(size)
        flops = order**3 / 3.0 + order * order * float(rows.m)
        if flops > most:
            return Rank(None, flops)
    return Rank(_factorized_rank(rows, live.size, gram))


def _some_rows_see_all(rows: Sensing, live: npt.NDArray[np.int64]) -> bool:
    """Whether as many rows as unknowns, spread evenly over all, determine A already."""
    chosen = live[np.linspace(0, live.size - 1, rows.unknowns).astype(np.int64)]
    if isinstance(rows, Mixed):
        K = rows.only(chosen).narrowed().gram_triangle()
    else:
        index = rows.xp.asarray(chosen, device=device(rows.norms))
        K = products.gram(np.ascontiguousarray(to_numpy(rows.take_unit(index))))
    R, info = dpotrf(K, lower=0, clean=0)
    return bool(info == 0 and np.diagonal(R).min() > MIN_PIVOT)


def _factorized_rank(rows: Sensing, live: int, gram: Any) -> int:
    """Return the rank by a Cholesky factorization; `live` rows are not zero.

    Without pivoting the factorization is several times faster, and in single precision twice as
    fast again.
    """
    full = live == rows.m <= rows.unknowns
    known = to_numpy(gram.values).T if isinstance(gram, ExplicitGram) else None
    if full:
        K = rows.gram_triangle(single=True) if known is None else known.astype(np.float32)
        R, info = spotrf(K, lower=0, clean=0, overwrite_a=1)
        if info == 0 and np.diagonal(R).min() > CLEAR_PIVOT:
            return live
    if rows.unknowns < rows.m:  # F* F has the rank of F F*, and is smaller
        M = rows.normal(dtype=np.float32)
        R, info = spotrf(M, lower=0, clean=0, overwrite_a=1)
        pivots = np.abs(np.diagonal(R)) ** 2
        if info == 0 and pivots.min() > 1e-2 * pivots.max():
            return rows.unknowns
        M = rows.normal()
        tolerance = MIN_PIVOT**2 * float(M.diagonal().max())
        return int(dpstrf(M, tol=tolerance, lower=0, overwrite_a=1)[2])
    K = rows.gram_triangle() if known is None else known.copy(order="F")
    if full:
        R, info = dpotrf(K, lower=0, clean=0)
        if info == 0 and np.diagonal(R).min() > MIN_PIVOT:
            return live
    return int(min(dpstrf(K, tol=MIN_PIVOT**2, lower=0, overwrite_a=1)[2], rows.unknowns))
