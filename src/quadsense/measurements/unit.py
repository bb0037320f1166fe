"""What is known of the probes, and readings scaled to rows of unit norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quadsense.arrays import Array, Vector, compact, like, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.measurements.gram import ExplicitGram
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing

ORTHONORMAL = 1e-6
"""Frobenius distance of U U* from I below which K = I: K differs from I by its square."""

LARGEST_RANK_PROBLEM = 4000
"""Measurements or unknowns, whichever are fewer, up to which `Measurements.facts` has the rank."""

QUICK_RANK_FLOPS = 2e6
"""Work below which the rank is found without anybody asking for it: a tenth of a millisecond."""

HARMLESS = 1e20
"""Size of a reading, in units of the largest that some row asks for, that no fit has."""

LARGEST_READING = 1e290
"""Largest reading or tolerance of a row of unit norm, and inverse of the largest that is too small:
sums over rows, and the scales that methods bring them to, stay within float64."""

MOST_DIGITS = 1e60
"""Largest size over smallest tolerance that methods are given; 1e36 is beyond float64 anyway."""


@dataclass(frozen=True)
class ProbeFacts:
    """What is known of the probes.

    Where readings are sums of rows (`mix`), read ``F_i = sum_k W_ik u_k u_k*`` of unit norm for
    ``u_i u_i*``: ``|<u_i, u_j>|^2`` is ``|<F_i, F_j>|``.

    Attributes
    ----------
    orthonormal : bool
        Whether the rows, scaled to unit norm, are orthonormal (found by random probes).
    unit_norm : bool
        Whether the rows came with unit norm (they are scaled to it in any case).
    coherence : float or None
        Largest ``|<u_i, u_j>|``, i != j, of the scaled rows: the paper's rho. None where it would
        cost more than some seconds to find; with m > n it is over 1/(10m) in any case.
    paper_holds : bool
        Whether ``rho <= 1/(10 m)``, the assumption of the paper's lemmas on the scaled rows.
    rank : int or None
        Rank of the sensing map F (numerical, at 1e-7), None where too costly to find.
    unknowns : int
        Real dimensions of A.
    """

    orthonormal: bool
    unit_norm: bool
    coherence: float | None
    paper_holds: bool
    rank: int | None
    unknowns: int


class UnitReadings(NamedTuple):
    """Readings and tolerances of the unit rows, each of shape (m,).

    `telling` is 1.0 for rows that say something of A, 0.0 for rows of zeros and for those with
    intervals so wide that they were narrowed.
    """

    b: Array
    delta: Array
    telling: Array


def is_orthonormal(rows: Sensing) -> bool:
    """Whether rows of unit norm are orthonormal, by random probes in O(mn)."""
    live = int(np.count_nonzero(to_numpy(rows.nonzero))) if rows.has_zero_rows else rows.m
    mixed = isinstance(rows, Mixed)
    if live > (rows.unknowns if mixed else rows.n):
        return False
    X = np.random.default_rng(0).standard_normal((rows.m, 3)) * to_numpy(rows.nonzero)[:, None]
    xp, probe = rows.xp, like(X, rows.norms)
    if mixed:
        image = rows.gram_times(probe)
    else:
        probe = rows._cast(probe)
        image = rows.times(rows.combine(probe))
    distance = xp.sqrt(xp.sum(xp.abs(image - probe) ** 2, axis=0))
    return float(xp.max(distance)) <= (ORTHONORMAL**2 if mixed else ORTHONORMAL)


def facts_of(rows: Sensing, orthonormal: bool, rank: int | None, gram: Any) -> ProbeFacts:
    """What is known of rows of unit norm; `gram` is K where it was formed."""
    norms = to_numpy(rows.norms)
    costly = float(rows.m) ** 2 * rows.n > 1e12
    coherence = 0.0 if orthonormal else None if costly else _coherence(rows, gram)
    return ProbeFacts(
        orthonormal=orthonormal,
        unit_norm=bool(np.all(np.abs(norms - 1.0) <= 1e-10)),
        coherence=coherence,
        # Up to rounding.
        paper_holds=coherence is not None and coherence <= (1.0 + 1e-9) / (10 * rows.m),
        rank=rank,
        unknowns=rows.unknowns,
    )


def _coherence(rows: Sensing, gram: Any) -> float:
    """The largest inner product of two rows of unit norm."""
    best = 0.0
    explicit = gram.values if isinstance(gram, ExplicitGram) else None
    for block in rows.slices(rows.m):
        K = to_numpy(
            explicit[block, :] if explicit is not None else rows.gram_block(block, slice(0, rows.m))
        ).copy()
        K = np.abs(K) if isinstance(rows, Mixed) else K
        K[np.arange(K.shape[0]), np.arange(block.start, block.stop)] = 0.0
        best = max(best, float(K.max(initial=0.0)))
    return float(np.sqrt(best))


def unit_readings(rows: Sensing, ends: Intervals, judged: bool) -> UnitReadings:
    """Readings and tolerances of unit rows, of the intervals `unit_intervals`."""
    telling, norms = to_numpy(rows.nonzero) > 0, rows.norms
    b, delta = ends.reading if ends.even else ends.middle(), ends.unit
    if rows.has_zero_rows:
        b, delta = np.where(telling, b, 0.0), np.where(telling, delta, 1.0)
    least = float(delta.min())
    if judged and float((np.abs(b) + delta).max()) > HARMLESS * least:
        b, delta, telling = _narrowed(b, delta, telling)
    return UnitReadings(like(b, norms), like(delta, norms), compact(like(telling, norms)))


def _narrowed(b: Vector, delta: Vector, live: Any) -> tuple[Vector, Vector, Any]:
    """Intervals within what a fit may read, and which rows say something all the same."""
    forced = np.maximum(np.abs(b) - delta, 0.0)  # the least that a row makes A read
    least = float(np.min(delta, where=live, initial=np.inf))
    most = HARMLESS * max(float(forced.max()), least if np.isfinite(least) else 1.0)
    lo, hi = np.maximum(b - delta, -most), np.minimum(b + delta, most)
    wide = (np.abs(b) + delta > most) & live
    b, delta = np.where(wide, lo / 2 + hi / 2, b), np.where(wide, hi / 2 - lo / 2, delta)
    # Far below what rounding leaves of such readings:
    return b, np.maximum(delta, most / MOST_DIGITS), live & ~wide


def unit_intervals(given: Intervals, norms: Vector, b: Vector, of: str, judged: bool) -> Intervals:
    """The intervals of rows divided by their norms.

    Parameters
    ----------
    given : Intervals
        Of the user's rows.
    norms, b : ndarray of shape (m,)
        Of these rows, and their readings, for messages.
    of : {"U", "mix"}
        What has a row for each.
    judged : bool
        Whether a fit is judged by them; otherwise they are a unit of error only.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        ends = given.over(norms)
    sizes = np.abs(ends.reading)
    if judged and ends.even and ends.allowance is None:  # as most are: by their extremes
        least, largest = float(ends.unit.min()), max(float(sizes.max()), float(ends.unit.max()))
        if least > 0.0 and 1.0 / LARGEST_READING < largest < LARGEST_READING:
            return ends
    kept = np.isfinite(ends.reading) & np.isfinite(ends.unit) & (ends.unit > 0)
    if not ends.even:
        kept &= np.all(ends.sides == given.sides, axis=0) | (norms == 0)
    if not kept.all():
        i = int(np.argmin(kept))
        raise ValueError(
            f"row {i} of {of} has norm {norms[i]:.3g}, which takes b[{i}] = "
            f"{float(b[i]):.3g} or its tolerance {float(given.unit[i]):.3g} out of "
            "float64's range when scaled to a unit row: rescale the row"
        )
    for part in () if not judged else (ends.above,) if ends.even else (ends.below, ends.above):
        sizes = np.maximum(sizes, np.where(np.isfinite(part), np.abs(part), 0.0))
    largest = float(sizes.max())
    something = largest > 0.0 or bool(np.any(given.reading[norms > 0] != 0.0))
    tiny = something and largest < 1.0 / LARGEST_READING
    if largest > LARGEST_READING or tiny:
        i = int(np.argmax(sizes))
        word = "large" if largest > 1.0 else "small"
        raise ValueError(
            f"readings and tolerances are too {word} to compute with in float64: for a row of "
            f"unit norm that of row {i} is {sizes[i]:.3g}; divide b and delta (or bounds) by a "
            "common factor, and A is divided by it, too"
        )
    return ends
