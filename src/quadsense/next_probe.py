"""`next_probe`: which further measurement would tell most.

First comes what no measurement sees: the part of ``u u*`` outside the span of the measured
matrices, of which the readings say nothing whatever A is. Of probes that are seen, the one whose
reading ``u* A u`` varies most over all fits, in units of the tolerance that it would be read with.
Those ranges are certified; as each is two convex problems, only the probes that seem to vary most
get one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Vector, as_numbers, available_memory, to_numpy
from quadsense.core import products
from quadsense.core.cholesky import pseudoinverse
from quadsense.interval import fit_or_proof
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import columns_of, dense_in, framed
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.validate import checked_vector
from quadsense.proofs.definite import EIGEN_FLOPS, HELD_BYTES
from quadsense.query.query import asks_rank
from quadsense.ranges import Interval, NothingFits, ranges
from quadsense.result.result import Result
from quadsense.system.machine import in_bytes
from quadsense.system.threads import with_one_blas_thread
from quadsense.system.watch import look
from quadsense.typing import MatrixLike, RealOrVector, Whole, is_whole
from quadsense.vocabulary import Status

MAX_ROUNDED_PART = 1e-6
"""Part of a probe of unit norm outside the span of the others that rounding may leave."""

MAX_SPREAD = 1e4
"""Largest ratio of a tolerance to the median one, and of that to the smallest."""

CANDIDATES_PER_BLOCK = 256
"""Candidates looked at together: packed, they stay in cache."""

Certify = Callable[[Measurements, list[npt.NDArray[Any]]], Sequence[Any]]
"""Certified ranges of ``u* A u``, each with `lower` and `upper`."""

NO_ROWS: npt.NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True)
class NextProbe:
    """Candidates for the next measurement, in order.

    Attributes
    ----------
    order : ndarray of int, shape (k,)
        Numbers of the candidates, the most telling first: the unseen ones by how much of them is
        unseen, then those with an interval by its width in tolerances, then the others by
        `estimates`.
    unseen : ndarray of shape (k,)
        Part of each candidate, 0 to 1, that no measurement sees: the norm of ``u u*`` less its
        projection on the span of the measured matrices, over that of ``u u*``.
    intervals : dict of int to interval
        Certified range of ``u* A u`` over all fits, for those that got one.
    widths : ndarray of shape (k,)
        Half the widths of these over `tolerance`: above 1, the candidate's reading would narrow
        it. NaN where there is no interval.
    estimates : ndarray of shape (k,)
        What the widths would be if errors were Gaussian and A any symmetric matrix; infinite for
        unseen candidates.
    tolerance : ndarray of shape (k,)
        With which each would be read.
    message : str
        The best and why, in a sentence.
    """

    order: npt.NDArray[np.intp]
    unseen: Vector
    intervals: dict[int, Any]
    widths: Vector
    estimates: Vector
    tolerance: Vector
    message: str

    @property
    def best(self) -> int:
        """Number of the most telling candidate."""
        return int(self.order[0])

    def __repr__(self) -> str:
        """The message."""
        return f"<NextProbe {self.message}>"

    def _repr_html_(self) -> str:
        """For notebooks: the first candidates as a table."""
        return str(import_module("quadsense.view.html").next_probe_html(self))


@with_one_blas_thread
def next_probe(
    result: Result,
    candidates: MatrixLike,
    *,
    data: Measurements | None = None,
    delta: RealOrVector | None = None,
    top: Whole = 10,
) -> NextProbe:
    """Return which further measurement would tell most about A.

    Parameters
    ----------
    result : Result
        What was found so far.
    candidates : array_like of shape (k, n)
        The probes to choose from, a row each, given as the rows of U were.
    data : Measurements, optional
        Those of the solve: needed where the result was read from a file.
    delta : float or array_like of shape (k,), optional
        Tolerance with which a candidate would be read; by default the median one of the solve.
    top : int, default=10
        At most this many candidates get a certified interval; none where there is no tolerance, or
        where nothing fits.

    Returns
    -------
    NextProbe

    Examples
    --------
    >>> import numpy as np, quadsense
    >>> U = np.array([[1.0, 0], [0, 1]])
    >>> result = quadsense.solve(U, [1.0, 2.0], delta=0.1)
    >>> result.next_probe([[2.0, 0], [1, 1], [3, 1]]).best
    1
    """
    claim = result.certificate
    fit = result.matrix if data is None and result.met else None
    data = claim.data if data is None else data
    if data is None:
        raise ValueError("the result was read from a file: give the measurements as data=")
    if not isinstance(data, Measurements):
        raise ValueError(f"data must be Measurements, got {type(data).__name__}")
    if data.n != result.matrix.shape[0]:
        raise ValueError(
            f"the result is of order {result.matrix.shape[0]}, but the data have n = {data.n}"
        )
    if not (is_whole(top) and top >= 0):
        raise ValueError(f"top must be a whole number, not negative, got {top!r}")
    judged = data.ends is not None and data.judged
    columns, aside = columns_of(data), result.set_aside if judged else NO_ROWS
    known = data.set_aside(aside) if aside.size else data
    scaled = framed(data, columns)
    scaled = scaled.set_aside(aside) if aside.size else scaled
    psd, relaxed = claim.psd, asks_rank(result)

    def certify(_: Measurements, probes: list[npt.NDArray[Any]]) -> Sequence[Interval]:
        matrices = [dense_in(np.outer(u, u.conj()), columns) for u in probes]
        found = ranges(
            data, matrices, psd=psd, relaxed=relaxed, set_aside=aside, fit=fit, columns=columns,
            otherwise=partial(fit_or_proof, known, psd),
        )  # fmt: skip
        if any(each.lower > each.upper for each in found):
            raise NothingFits("nothing fits: a range is empty")
        return found

    fits = judged and result.status is not Status.INFEASIBLE
    with np.errstate(under="ignore"):
        try:
            return rank_probes(scaled, candidates, delta, int(top) if fits else 0, certify, columns)
        except NothingFits:  # as with slack: there are no ranges, but there is what is unseen
            return rank_probes(scaled, candidates, delta, 0, certify, columns)


@with_one_blas_thread
def rank_probes(
    data: Measurements,
    candidates: Any,
    delta: Any,
    top: int,
    certify: Certify,
    columns: npt.NDArray[np.int64] | None = None,
) -> NextProbe:
    """Put candidates in order; `certify` finds the ranges of the `top` most promising.

    `columns` are the exponents by which the columns of the data, but not of the candidates, are
    scaled.
    """
    rows = _checked_candidates(candidates, data)
    rows = rows if columns is None else rows * np.ldexp(1.0, columns)
    k = len(rows)
    norms = np.linalg.norm(rows, axis=1)
    units = rows / norms[:, None]
    tolerance = _tolerances(delta, k, data)
    unseen = _unseen_parts(data, units)
    hidden = unseen > MAX_ROUNDED_PART
    unseen[~hidden] = 0.0
    with np.errstate(over="ignore"):
        estimates = _spreads(data, units) * norms * norms / tolerance
    estimates[hidden] = np.inf
    seen = np.flatnonzero(~hidden)
    chosen = seen[np.argsort(-estimates[seen], kind="stable")][:top]
    intervals: dict[int, Any] = {}
    widths = np.full(k, np.nan)
    if chosen.size:
        found = certify(data, [rows[j] for j in chosen])
        intervals = dict(zip(chosen.tolist(), found, strict=True))
        with np.errstate(over="ignore"):
            for j, each in intervals.items():
                widths[j] = (each.upper - each.lower) / 2.0 / tolerance[j]
    rest = np.setdiff1d(seen, chosen)
    order = np.concatenate([
        np.flatnonzero(hidden)[np.argsort(-unseen[hidden], kind="stable")],
        chosen[np.argsort(-widths[chosen], kind="stable")],
        rest[np.argsort(-estimates[rest], kind="stable")],
    ])  # fmt: skip
    first = int(order[0])
    message = _message(first, unseen, intervals.get(first), widths, estimates, bool(rest.size))
    return NextProbe(order, unseen, intervals, widths, estimates, tolerance, message)


# --- the numbers -------------------------------------------------------------------------------


def _telling(data: Measurements) -> npt.NDArray[np.intp]:
    """Return rows that are not zero and have an end."""
    live = to_numpy(data.unit_rows.nonzero) > 0.0
    if data.ends is not None:
        live &= data.ends.sides.any(axis=0)
    return np.flatnonzero(live)


def _rows_of(data: Measurements, live: npt.NDArray[np.intp]) -> Sensing:
    rows = data.unit_rows.on_numpy()
    size = float(min(live.size, rows.unknowns))
    need = HELD_BYTES * size * size
    if need > available_memory():
        raise MemoryError(f"next_probe takes {in_bytes(need)} for {size:.0f} unknowns")
    look(EIGEN_FLOPS * size * size * size)
    return rows if live.size == rows.m else rows.only(live)


def _unseen_parts(data: Measurements, units: npt.NDArray[Any]) -> Vector:
    """Return norms of ``w w*`` minus its projection on the measured matrices, w of norm 1."""
    live = _telling(data)
    if not live.size:
        return np.ones(len(units))
    rows = _rows_of(data, live)
    if rows.m >= rows.unknowns:
        _, _, basis = pseudoinverse(rows.normal())
        if basis is None:
            return np.zeros(len(units))
        parts = []
        for some in _blocks(units):
            f = products.features(some).T
            parts.append(np.linalg.norm(f - basis @ (basis.T @ f), axis=0))
        return np.concatenate(parts)
    solve, _, _ = pseudoinverse(rows.gram())
    found = np.empty(len(units))
    for j, w in enumerate(units):
        look()
        left = np.outer(w, w.conj())
        for _ in range(2):  # the second time, what rounding left of it
            left = left - rows.adjoint(solve(rows.forward(left)))
        found[j] = np.linalg.norm(left)
    return found


def _spreads(data: Measurements, units: npt.NDArray[Any]) -> Vector:
    """Return ``sqrt(f^T (F* D F)^+ f)``, f the packed ``w w*``, D inverse squares of tolerances.

    The half-width of ``w* A w`` over the ellipsoid ``sum ((F(A) - b)_i/delta_i)^2 <= 1``, in the
    user's units. Without a tolerance every reading's is 1.
    """
    live = _telling(data)
    if not live.size:
        return np.full(len(units), np.inf)
    rows = _rows_of(data, live)
    norms = to_numpy(data.unit_rows.norms)[live]
    with np.errstate(over="ignore"):
        half = np.ones(live.size) if not _judged(data) else data.ends.unit[live]  # type: ignore[union-attr]
        half = half / norms / norms
    positive = half[half > 0.0]
    typical = float(np.median(positive)) if positive.size else 1.0
    # Equalities have no width: one so small that they hold, not so small that the rest is lost.
    scales = typical / np.clip(half, typical / MAX_SPREAD, typical * MAX_SPREAD)
    if rows.m >= rows.unknowns:
        solve, _, _ = pseudoinverse(rows.normal(scales * scales))
        squares = []
        for some in _blocks(units):
            f = products.features(some).T
            squares.append(np.einsum("ij,ij->j", f, solve(f)))
        found = np.concatenate(squares)
        return typical * np.sqrt(np.maximum(found, 0.0))
    solve, _, _ = pseudoinverse(rows.gram() * np.outer(scales, scales))
    images = np.stack([rows.forward(np.outer(w, w.conj())) for w in units], axis=1)
    return typical * np.linalg.norm(solve(scales[:, None] * images), axis=0)


def _judged(data: Measurements) -> bool:
    return data.ends is not None and data.judged


def _blocks(units: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return [
        units[first : first + CANDIDATES_PER_BLOCK]
        for first in range(0, len(units), CANDIDATES_PER_BLOCK)
    ]


# --- arguments and words -----------------------------------------------------------------------


def _checked_candidates(candidates: Any, data: Measurements) -> npt.NDArray[Any]:
    """Return candidates as meant, (k, n), in the type of A; or a ValueError."""
    if sp.issparse(candidates):
        candidates = candidates.toarray()
    rows = as_numbers("candidates", candidates)
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != data.n:
        raise ValueError(
            f"candidates must have shape (k, {data.n}), one probe per row, got {rows.shape}"
        )
    if np.iscomplexobj(rows) and not data.unit_rows.is_complex:
        raise ValueError("candidates are complex, but U is real: give U as complex numbers")
    rows = rows.astype(np.complex128 if data.unit_rows.is_complex else np.float64)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise ValueError(f"candidates contains NaN or infinity, first in row {bad[0]}")
    bad = np.flatnonzero(~rows.any(axis=1))
    if bad.size:
        raise ValueError(f"row {bad[0]} of candidates is zero: it would read 0 whatever A is")
    return rows.conj() if data.conjugate else rows


def _tolerances(delta: Any, k: int, data: Measurements) -> Vector:
    """Return the tolerances with which the candidates would be read."""
    if delta is not None:
        found = checked_vector("delta", delta, k, scalar=True, of="candidates")
        bad = np.flatnonzero(found <= 0.0)
        if bad.size:
            raise ValueError(f"delta must be positive, but delta[{bad[0]}] is {found[bad[0]]}")
        return found
    if not _judged(data):
        return np.ones(k)
    assert data.ends is not None
    unit = data.ends.unit[: getattr(data, "measured", data.m)]
    unit = unit[np.isfinite(unit) & (unit > 0.0)]
    return np.full(k, float(np.median(unit)) if unit.size else 1.0)


def _message(
    first: int, unseen: Vector, interval: Any, widths: Vector, estimates: Vector, more: bool
) -> str:
    """Return the best candidate and why."""
    if unseen[first] > 0.0:
        others = int(np.count_nonzero(unseen)) - 1
        also = f"; so is a part of {others} more" if others else ""
        return (
            f"candidate {first} would tell most: {100 * unseen[first]:.3g}% of it is unseen by "
            f"the measurements{also}"
        )
    if interval is None:
        return (
            f"candidate {first} would tell most, by an estimate: every candidate is seen, and its "
            f"reading is known to about {estimates[first]:.3g} times the error of one"
        )
    ratio = widths[first]
    text = (
        f"over all fits its reading lies between {interval.lower:.6g} and {interval.upper:.6g}, "
        f"{ratio:.3g} times its tolerance to either side"
    )
    if ratio > 1.0:
        return f"candidate {first} would tell most: {text}"
    some = "of those with an interval none" if more else "no candidate"
    return f"{some} would tell much; candidate {first} still most: {text}"
