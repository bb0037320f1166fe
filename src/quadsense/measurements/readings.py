"""Readings as people have them, and as methods see them.

People have counts, noise of known size, stacks of images, missing readings; methods have readings
and tolerances of rows of unit norm.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, as_numbers, compact, like, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.core.noise import CONFIDENCE, bounds_from_counts, delta_from_sigma
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.validate import checked_bounds, checked_tolerance, checked_vector
from quadsense.typing import MissingName, is_number

MISSING: tuple[MissingName, ...] = get_args(MissingName)
"""What may be done about readings that are NaN."""


class GivenReadings(NamedTuple):
    """Readings and their tolerances in the terms of `Measurements`.

    Attributes
    ----------
    b, delta, bounds, weights
        As in `Measurements`, with a number in b for each row.
    rtol : float
    missing : ndarray of bool, shape (m,), or None
        Rows that were not measured; None where all were.
    """

    b: Any
    delta: Any
    rtol: Any
    bounds: Any
    weights: Any
    missing: npt.NDArray[np.bool_] | None = None


def interpreted(
    m: int,
    of: str,
    given: GivenReadings,
    frame: tuple[int, ...] | None = None,
    *,
    sigma: Any = None,
    shots: Any = None,
    confidence: Any = CONFIDENCE,
    missing: Any = "raise",
) -> GivenReadings:
    """Return readings with the tolerance that follows from shots or sigma, and missing rows.

    Parameters
    ----------
    m : int
        How many there must be.
    of : str
        What has a row for each: "U" or "mix".
    given : GivenReadings
        As the user gave them.
    frame : tuple of int, optional
        Shape of one image, where readings may come as a stack of images.
    sigma, shots, confidence, missing
        As in `quadsense.solve`.
    """
    if not (isinstance(missing, str) and missing in MISSING):
        raise ValueError(f"missing must be 'raise' or 'drop', got {missing!r}")
    if sigma is not None or shots is not None:
        _check_one_way(given, sigma, shots)
    if frame is not None:
        given, shots = _flat(given, m, frame), _flattened(shots, m, frame)
    if given.b is not None and not (type(given.b) is np.ndarray and given.b.dtype == np.float64):
        given = given._replace(b=as_numbers("b", given.b))
    absent = _absent(m, of, given, missing)
    if absent is not None:
        given = given._replace(b=np.where(absent, 0.0, given.b.reshape(-1)), missing=absent)
    if shots is not None:
        given = _of_counts(m, of, given, shots, confidence)
    elif sigma is not None:
        measured = m if absent is None else int(np.count_nonzero(~absent))
        given = given._replace(delta=delta_from_sigma(sigma, measured, confidence))
    return given if absent is None else _without(m, of, given, absent)


def _flat(given: GivenReadings, m: int, frame: tuple[int, ...]) -> GivenReadings:
    """Return the same with stacks of images as vectors."""
    b, delta, rtol, bounds, weights, missing = given
    if isinstance(bounds, tuple | list):
        bounds = tuple(_flattened(end, m, frame) for end in bounds)
    b, delta, weights = (_flattened(each, m, frame) for each in (b, delta, weights))
    return GivenReadings(b, delta, rtol, bounds, weights, missing)


def _flattened(values: Any, m: int, frame: tuple[int, ...]) -> Any:
    """Return a stack of images of that shape, m pixels in all, as a vector; others as they are."""
    shape = tuple(getattr(values, "shape", ()))
    if len(shape) < 2 or shape[-len(frame) :] != frame or math.prod(shape) != m:
        return values
    return values.reshape(-1)


def _check_one_way(given: GivenReadings, sigma: Any, shots: Any) -> None:
    """Raise a ValueError where tolerances are given in two ways, or none of b is there."""
    relative = None if is_number(given.rtol) and given.rtol == 0.0 else given.rtol
    ways = {
        "delta": given.delta, "rtol": relative, "bounds": given.bounds, "sigma": sigma,
        "shots": shots,
    }  # fmt: skip
    names = [name for name, value in ways.items() if value is not None]
    if len(names) > 1:
        raise ValueError(f"{' and '.join(names)} do not go together: give one of them")
    if given.b is None:
        raise ValueError(f"{names[0]} is about readings: give b")


def _absent(m: int, of: str, given: GivenReadings, missing: str) -> npt.NDArray[np.bool_] | None:
    """Return which rows have no reading, or None; raise a ValueError where that is not expected."""
    if given.b is None:
        return None
    values = given.b.reshape(-1)
    if values.shape != (m,) or values.dtype.kind != "f":
        return None
    if not math.isnan(np.minimum.reduce(values)):  # which it is where any is
        return None
    absent = np.isnan(values)
    if absent.all():
        raise ValueError("b holds no reading: all of it is NaN")
    if missing == "drop" or bool(np.all(_unasked(m, of, given)[absent])):
        return absent
    first = int(np.argmax(absent))
    raise ValueError(
        f"b must be finite, but b[{first}] is nan: missing='drop' leaves out what was not measured "
        f"({int(absent.sum())} of {m} readings)"
    )


def _unasked(m: int, of: str, given: GivenReadings) -> npt.NDArray[np.bool_]:
    """Return which rows have neither an upper nor a lower end."""
    if given.bounds is None:
        return np.zeros(m, dtype=bool)
    lo, hi = checked_bounds(given.bounds, m, of)
    return np.asarray(np.isinf(lo) & np.isinf(hi))


def _of_counts(m: int, of: str, given: GivenReadings, shots: Any, confidence: Any) -> GivenReadings:
    """Return relative frequencies and their intervals."""
    counts = checked_vector("b", given.b, m, of=of)
    total = checked_vector("shots", shots, m, scalar=True, of=of)
    bad = np.flatnonzero((counts < 0.0) | (counts != np.floor(counts)))
    if bad.size:
        raise ValueError(
            f"with shots, b holds counts, but b[{bad[0]}] is {counts[bad[0]]:.6g}: whole numbers "
            "from 0 to shots"
        )
    over = np.flatnonzero(counts > total)
    if over.size:
        raise ValueError(
            f"b[{over[0]}] counts {counts[over[0]]:.0f} of {total[over[0]]:.0f} shots: no count "
            "exceeds shots"
        )
    kept = np.flatnonzero(~given.missing) if given.missing is not None else np.arange(m)
    lo, hi = np.full(m, -np.inf), np.full(m, np.inf)
    lo[kept], hi[kept] = bounds_from_counts(counts[kept], total[kept], confidence)
    return given._replace(b=counts / total, bounds=(lo, hi))


def _without(m: int, of: str, given: GivenReadings, absent: npt.NDArray[np.bool_]) -> GivenReadings:
    """Return the readings with the absent ones asked for nothing: no ends, no weight."""
    kept = np.flatnonzero(~absent)
    lo, hi = np.full(m, -np.inf), np.full(m, np.inf)
    delta, bounds, weights = given.delta, given.bounds, given.weights
    if bounds is not None:
        low, high = checked_bounds(bounds, m, of)
        lo[kept], hi[kept] = low[kept], high[kept]
    else:
        if delta is not None and np.ndim(to_numpy(delta)):
            delta = as_numbers("delta", delta).reshape(-1)
            delta = delta[kept] if delta.shape == (m,) else delta
        b = given.b[kept]
        tolerance = checked_tolerance(delta, given.rtol, b, of)
        if tolerance is not None:
            lo[kept], hi[kept] = b - tolerance, b + tolerance
    asked = bounds is not None or delta is not None or bool(given.rtol)
    if weights is not None or not asked:
        each = checked_vector("weights", 1.0 if weights is None else weights, m, True, of=of)
        weights = np.where(absent, 0.0, each)
    return given._replace(delta=None, rtol=0.0, bounds=(lo, hi) if asked else None, weights=weights)


# --- readings of rows of unit norm ----------------------------------------------------------------


HARMLESS = 1e20
"""Size of a reading, in units of the largest that some row asks for, that no fit has."""

LARGEST_READING = 1e290
"""Largest reading or tolerance of a row of unit norm, and inverse of the largest that is too small:
sums over rows, and the scales that methods bring them to, stay within float64."""

MOST_DIGITS = 1e60
"""Largest size over smallest tolerance that methods are given; 1e36 is beyond float64 anyway."""


class UnitReadings(NamedTuple):
    """Readings and tolerances of the unit rows, each of shape (m,).

    `telling` is 1.0 for rows that say something of A, 0.0 for rows of zeros and for those with
    intervals so wide that they were narrowed. `least` is the smallest tolerance, `largest` the
    largest sum of the size of a reading and its tolerance.
    """

    b: Array
    delta: Array
    telling: Array
    least: float
    largest: float


def unit_readings(rows: Sensing, ends: Intervals, judged: bool) -> UnitReadings:
    """Return readings and tolerances of unit rows, of the intervals `unit_intervals`."""
    b, delta, every = ends.reading if ends.even else ends.middle(), ends.unit, rows.nonzero
    telling: Any = None  # all, or as `every` says
    if rows.has_zero_rows:
        telling = to_numpy(every) > 0
        b, delta = np.where(telling, b, 0.0), np.where(telling, delta, 1.0)
    if ends.even and telling is None:
        least, largest = ends.extremes
    else:
        least, largest = float(delta.min()), float((np.abs(b) + delta).max())
    if judged and largest > HARMLESS * least:
        live = np.ones(len(b), dtype=bool) if telling is None else telling
        b, delta, live = _narrowed(b, delta, live)
        every = compact(like(live, rows.norms))
        least, largest = float(delta.min()), float((np.abs(b) + delta).max())
    if rows.xp is not np:
        b, delta = like(b, rows.norms), like(delta, rows.norms)
    return UnitReadings(b, delta, every, least, largest)


def _narrowed(b: Vector, delta: Vector, live: Any) -> tuple[Vector, Vector, Any]:
    """Return intervals within what a fit may read, and which rows say something all the same."""
    forced = np.maximum(np.abs(b) - delta, 0.0)  # the least that a row makes A read
    least = float(np.min(delta, where=live, initial=np.inf))
    most = HARMLESS * max(float(forced.max()), least if np.isfinite(least) else 1.0)
    lo, hi = np.maximum(b - delta, -most), np.minimum(b + delta, most)
    wide = (np.abs(b) + delta > most) & live
    b, delta = np.where(wide, lo / 2 + hi / 2, b), np.where(wide, hi / 2 - lo / 2, delta)
    # Far below what rounding leaves of such readings:
    return b, np.maximum(delta, most / MOST_DIGITS), live & ~wide


def unit_intervals(given: Intervals, norms: Vector, b: Vector, of: str, judged: bool) -> Intervals:
    """Return the intervals of rows divided by their norms.

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
        least, largest = ends.extremes if ends.below is ends.above else (0.0, 0.0)
    usual = least > 0.0 and 2.0 / LARGEST_READING < largest < LARGEST_READING
    if usual and judged and ends.allowance is None:  # as most are: by their extremes
        return ends
    sizes = np.abs(ends.reading)
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
