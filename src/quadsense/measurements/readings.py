"""Readings as people have them: counts, noise of known size, stacks of images, missing readings."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from quadsense.arrays import as_numbers, to_numpy
from quadsense.core.noise import CONFIDENCE, bounds_from_counts, delta_from_sigma
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
