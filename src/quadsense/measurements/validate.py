"""Arguments of `Measurements`, checked, and readings in its terms.

Bad input is stopped at the door: one sentence names the argument, the row and the value. Readings
may be counts, have noise of known size, come as a stack of images, or be missing.
"""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense import files
from quadsense.arrays import (
    LONG,
    Array,
    Vector,
    as_numbers,
    check_tensor,
    compact,
    device,
    has_type,
    is_array,
    is_dask,
    is_tensor,
    kind_of,
    namespace,
    to_numpy,
)
from quadsense.core.intervals import UNIT
from quadsense.core.noise import CONFIDENCE, bounds_from_counts, delta_from_sigma
from quadsense.measurements.arrays import Dense, Sparse
from quadsense.measurements.parted import OnDisk
from quadsense.measurements.probes import Probes
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.tensors import Tensors
from quadsense.typing import LARGEST_WHOLE, MissingName, check_flag, is_number

MAX_SKEW = 1e-8
"""Largest part by which a matrix may differ from its conjugate transpose, as rounding does."""

PLAIN = (np.ndarray, np.generic, float, int)
"""Types that go with rows of every kind."""


def checked_rows(U: Any, conjugate: bool) -> Sensing:
    """Return U as rows of unit norm, or a ValueError that says what is wrong.

    Namespaces without float64 (JAX unless it is switched on) cannot hold what is claimed: their
    arrays are read into NumPy.
    """
    if conjugate is not False:
        check_flag("conjugate", conjugate)
    if type(U) is np.ndarray and U.ndim == 2 and U.size and U.dtype.kind in "buifc":
        return Sensing(Dense(U), conjugate)  # blocks of it are widened as they are used
    if isinstance(U, str | os.PathLike):
        raise ValueError(
            f"U is the name {os.fspath(U)!r}, and must hold numbers: Measurements.open reads files"
        )
    if isinstance(U, Probes):
        _check_shape((U.m, U.n))
        return Sensing(U, conjugate)
    if isinstance(U, files.Strips):
        _check_shape(U.shape)
        return Sensing(OnDisk(U), conjugate)
    if is_dask(U):
        return Sensing(_of_dask(U), conjugate)
    if is_operator(U):
        from quadsense.probes.operator import from_operator  # rarely needed

        return checked_rows(from_operator(U), conjugate)
    if sp.issparse(U):
        _check_kind("U", U.dtype)
        _check_shape(U.shape)
        wanted = np.complex128 if np.issubdtype(U.dtype, np.complexfloating) else np.float64
        return Sensing(Sparse(sp.csr_array(U, dtype=wanted)), conjugate)
    if is_tensor(U):
        check_tensor("U", U)
    elif not is_array(U) or isinstance(U, np.ma.MaskedArray | np.matrix | np.generic):
        U = as_numbers("U", U)
    if isinstance(U, np.ndarray):
        _check_kind("U", U.dtype)
        _check_shape(U.shape)
        return Sensing(Dense(U), conjugate)  # blocks of it are widened as they are used
    _check_shape(U.shape)
    if is_tensor(U):
        return Sensing(Tensors(U), conjugate)  # likewise
    return Sensing(Dense(widened(U)), conjugate)


def is_operator(U: Any) -> bool:
    """Return whether it is known by `matvec` rather than by its entries."""
    return hasattr(U, "matvec") and not hasattr(U, "__array__")


def _of_dask(U: Any) -> Probes:
    """Return rows of a dask.array: on the cluster of the current client, where there is one."""
    from quadsense.measurements.cluster import InChunks, OnCluster  # for those who need it
    from quadsense.measurements.shards import Shards, current_client

    _check_kind("U", U.dtype)
    if any(size != size for size in U.shape):  # NaN
        raise ValueError(
            "U is a dask.array whose chunks have unknown sizes: call U.compute_chunk_sizes() first"
        )
    _check_shape(U.shape)
    if not isinstance(U._meta, np.ndarray):
        raise ValueError(
            f"U is a dask.array of {type(U._meta).__module__}.{type(U._meta).__name__}, but must "
            "be one of NumPy arrays"
        )
    client = current_client(U)
    shards = Shards.of_array(U)
    return InChunks(shards) if client is None else OnCluster(client, shards)


def check_beside(U: Any, rows: Sensing, **named: Any) -> None:
    """Refuse arrays of another namespace, or on another device, than U, and other row labels.

    Numbers, lists, NumPy arrays and those of Dask go with rows of every kind.
    """
    own: Any = None
    labels = None if type(U) is np.ndarray or named["mix"] is not None else _labels(U)
    for name, given in named.items():
        if given is None or (type(given) is np.ndarray and type(U) is np.ndarray):
            continue
        for values in given if isinstance(given, tuple) else (given,):
            if labels is not None:
                _check_labels(name, labels, _labels(values))
            if name == "b":
                _check_not_a_column(U, values)
            if values is None or isinstance(values, PLAIN):
                continue
            if not is_array(values) or is_dask(values):
                continue
            if own is None:
                own = U if is_array(U) and not is_dask(U) else rows.norms
            if namespace(values) is not namespace(own) or device(values) != device(own):
                raise ValueError(
                    f"{name} is {kind_of(values)} and U {kind_of(own)}: give {name} as U is, "
                    "or as a NumPy array"
                )
            if is_tensor(values):
                check_tensor(name, values)


def _check_not_a_column(U: Any, b: Any) -> None:
    """Raise a ValueError where the readings are a column of the table of probes, too."""
    name = getattr(b, "name", None)
    if not isinstance(name, str) or name not in getattr(U, "columns", ()):
        return
    if np.array_equal(np.asarray(U[name]), np.asarray(b)):
        raise ValueError(
            f"U has the readings in its column {name!r}: leave it out of U, as in "
            f"U.drop(columns={name!r})"
        )


def _labels(values: Any) -> Any:
    """Return the labels of the rows of a table or a series; None of what has none."""
    index = getattr(values, "index", None)
    return index if hasattr(index, "equals") else None


def _check_labels(name: str, own: Any, labels: Any) -> None:
    """Raise a ValueError where rows are labeled otherwise than those of U: their order may differ.

    What has another length is refused for that, elsewhere.
    """
    if labels is None or len(labels) != len(own) or own.equals(labels):
        return
    row = next(i for i, (a, b) in enumerate(zip(own, labels, strict=True)) if a is not b and a != b)
    raise ValueError(
        f"{name} has another index than U: row {row} is {own[row]!r} in U and {labels[row]!r} in "
        f"{name}; give {name}.reindex(U.index), or {name}.to_numpy() if its rows are in the order "
        "of U"
    )


def checked_mix(mix: Any, m: int) -> Any:
    """Return W as a real float64 array, dense or CSR, of m columns, or a ValueError."""
    if sp.issparse(mix):
        _check_kind("mix", mix.dtype)
        values = mix
    else:
        values = as_numbers("mix", mix)
    if np.issubdtype(values.dtype, np.complexfloating):
        raise ValueError("mix must be real, got complex numbers: readings are real")
    if values.ndim != 2:
        raise ValueError(f"mix must have two dimensions, one reading per row, got {values.shape}")
    if values.shape[1] != m or values.shape[0] == 0:
        raise ValueError(
            f"mix has shape {values.shape}, but must have one reading per row and one row of U per "
            f"column, shape (p, {m})"
        )
    if sp.issparse(values):
        found = sp.csr_array(values, dtype=np.float64, copy=True)
        found.sum_duplicates()
        found.eliminate_zeros()
        rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
        bad = rows[~np.isfinite(found.data)]
    else:
        found = np.array(values, dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if bad.size:
        raise ValueError(f"mix contains NaN or infinity, first in row {bad[0]}")
    return found


def widened(values: Array) -> Array:
    """Return an array as float64 or complex128, in NumPy where its own namespace has neither."""
    if not isinstance(values, np.ndarray):
        xp = namespace(values)
        wanted = "complex128" if xp.isdtype(values.dtype, "complex floating") else "float64"
        if has_type(values, wanted):
            return xp.astype(values, getattr(xp, wanted), copy=False)
        values = to_numpy(values)
    return np.asarray(values, dtype=np.complex128 if np.iscomplexobj(values) else np.float64)


def _check_kind(name: str, dtype: Any) -> None:
    if np.dtype(dtype).kind not in "buifc":
        raise ValueError(f"{name} must hold numbers, got an array of type {np.dtype(dtype).name}")


def _check_shape(shape: Any) -> None:
    shape = tuple(map(int, shape))
    if len(shape) != 2:
        raise ValueError(
            f"U must have two dimensions, one measurement vector per row, got shape {shape}"
        )
    if 0 in shape:
        raise ValueError(f"U is empty: its shape is {shape}")


def checked_vector(
    name: str, values: Any, m: int, scalar: bool = False, infinite: bool = False, of: str = "U"
) -> Vector:
    """Return `values` as a float64 vector of length m without NaN or infinity, or a ValueError."""
    if scalar and isinstance(values, float) and math.isfinite(values):
        array = np.empty(m)
        array.fill(values)
        return array
    if type(values) is np.ndarray and values.dtype == np.float64:
        array = values
    else:
        array = as_numbers(name, values)
    if array.dtype.kind == "b":
        raise ValueError(f"{name} must hold numbers, got truth values")
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must be real, got complex numbers: u* A u is real")
    if scalar and array.ndim == 0:
        array = np.full(m, array, dtype=np.float64)
    if array.ndim == 2 and array.size == m and 1 in array.shape:  # as MATLAB has vectors
        array = array.reshape(m)
    if array.shape != (m,):
        wanted = f"({m},), one value per row of {of}" + (", or a single number" if scalar else "")
        raise ValueError(f"{name} has shape {array.shape}, but must have shape {wanted}")
    array = array.astype(np.float64)
    sound = ~np.isnan(array) if infinite else np.isfinite(array)
    if not np.logical_and.reduce(sound):
        first = int(np.argmin(sound))
        hint = ": give it infinite bounds if it was not measured" if name == "b" else ""
        raise ValueError(f"{name} must be finite, but {name}[{first}] is {array[first]}{hint}")
    return array


def rows_chosen(index: Any, m: int) -> npt.NDArray[np.intp]:
    """Return numbers of rows from whatever chooses some of m, as of an array, or a ValueError."""
    if not isinstance(index, slice):
        empty = isinstance(index, list | tuple) and not index
        index = np.empty(0, np.intp) if empty else as_numbers("index", index, "whole numbers")
    try:
        chosen = np.atleast_1d(np.arange(m)[index])
    except (IndexError, TypeError) as error:
        raise ValueError(f"index must choose among {m} rows: {error}") from None
    if chosen.ndim != 1:
        raise ValueError(f"index must be one-dimensional, got shape {np.shape(index)}")
    return np.asarray(chosen)


def checked_weights(weights: Any, m: int, of: str = "U") -> float | Vector | None:
    """One number or one per row, finite and not negative, or a ValueError; None stays None."""
    if weights is None:
        return None
    found = checked_vector("weights", weights, m, scalar=True, of=of)
    scalar = np.ndim(to_numpy(weights)) == 0
    bad = np.flatnonzero(found < 0.0)
    if bad.size:
        where = "weights" if scalar else f"weights[{bad[0]}]"
        raise ValueError(f"{where} must not be negative, got {found[bad[0]]}")
    return float(found[0]) if scalar else found


def checked_tolerance(delta: Any, rtol: Any, b: Vector, of: str = "U") -> Vector | None:
    """Return ``delta_i + rtol |b_i|``, or None where no tolerance was given; 0 is an equality.

    With `rtol` a tolerance of 0 was not meant: it comes from a reading of 0.
    """
    if not (type(rtol) is float and rtol == 0.0):
        if not (is_number(rtol) and 0.0 <= rtol < math.inf):
            raise ValueError(f"rtol must be a finite number, not negative, got {rtol!r}")
        rtol = float(rtol)
    if delta is None and rtol == 0.0:
        return None
    given = (
        np.zeros_like(b)
        if delta is None
        else checked_vector("delta", delta, b.size, scalar=True, of=of)
    )
    if np.minimum.reduce(given) < 0.0:
        first = int(np.argmax(given < 0.0))
        where = "delta" if np.ndim(to_numpy(delta)) == 0 else f"delta[{first}]"
        raise ValueError(f"{where} must not be negative, got {given[first]}")
    if rtol == 0.0:
        return given if given.size < LONG else compact(given)
    with np.errstate(over="ignore"):
        total = given + rtol * np.abs(b)
    bad = np.flatnonzero(total <= 0)
    if bad.size:
        raise ValueError(
            f"the tolerance of row {bad[0]} is zero (rtol {rtol} times a reading of "
            f"{b[bad[0]]}): give a positive delta in addition to rtol"
        )
    if not np.isfinite(total).all():
        row = int(np.argmin(np.isfinite(total)))
        raise ValueError(f"the tolerance of row {row} is out of float64's range: rtol is {rtol}")
    return total


def checked_bounds(bounds: Any, m: int, of: str = "U") -> tuple[Vector, Vector]:
    """Return lower and upper ends of intervals, infinite where there is none."""
    try:
        lo, hi = bounds
    except (TypeError, ValueError):
        raise ValueError("bounds must be a pair (lo, hi)") from None
    low = checked_vector("bounds[0] (lo)", lo, m, scalar=True, infinite=True, of=of)
    high = checked_vector("bounds[1] (hi)", hi, m, scalar=True, infinite=True, of=of)
    bad = np.flatnonzero(~(low <= high) | (low == np.inf) | (high == -np.inf))
    if bad.size:
        raise ValueError(
            f"bounds must satisfy lo <= hi, but row {bad[0]} has "
            f"lo = {low[bad[0]]} and hi = {high[bad[0]]}"
        )
    return low, high


def checked_count(name: str, value: Any) -> int:
    """Return a positive whole number, or a ValueError."""
    if not (is_number(value) and 0 < value <= LARGEST_WHOLE and value == int(value)):
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")
    return int(value)


def checked_shape(shape: Any) -> tuple[int, int]:
    """(m, n), or a ValueError."""
    try:
        m, n = shape
    except (TypeError, ValueError):
        raise ValueError(f"shape must be a pair (m, n), got {shape!r}") from None
    return checked_count("shape[0] (m)", m), checked_count("shape[1] (n)", n)


def checked_integers(name: str, values: Any) -> npt.NDArray[Any]:
    """Return an array of whole numbers, also where they came as floats, or a ValueError."""
    found = as_numbers(name, values, kind="whole numbers")
    if found.dtype.kind == "f":
        off = np.argwhere(~(np.floor(found) == found))  # NaN among them
        if off.size:
            place = ", ".join(str(k) for k in off[0])
            raise ValueError(
                f"{name} must hold whole numbers, but {name}[{place}] is {found[tuple(off[0])]}"
            )
        limit = float(np.abs(found).max(initial=0.0))
        if limit > 1.0 / UNIT:
            raise ValueError(f"{name} must hold whole numbers, got one as large as {limit:.3g}")
        return found.astype(np.int64)
    if found.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold whole numbers, got an array of type {found.dtype.name}")
    return found


def checked_matrix(name: str, values: Any, real: bool = False) -> Array:
    """A finite (m, d) array in float64 or complex128, in its own namespace, or a ValueError."""
    if is_tensor(values):
        check_tensor(name, values)
    elif not is_array(values) or isinstance(values, np.ma.MaskedArray | np.ndarray | np.generic):
        values = as_numbers(name, values)
    numeric = (
        values.dtype.kind in "buifc"
        if isinstance(values, np.ndarray)
        else namespace(values).isdtype(values.dtype, ("bool", "numeric"))
    )
    if not numeric:
        raise ValueError(f"{name} must hold numbers, got an array of type {values.dtype}")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"{name} must have two dimensions, one row per measurement, got shape "
            f"{tuple(values.shape)}"
        )
    if str(values.dtype).endswith("float16"):
        raise ValueError(f"{name} is float16, whose three digits are too few: use float32 at least")
    found = widened(values)
    xp = namespace(found)
    if real and xp.isdtype(found.dtype, "complex floating"):
        raise ValueError(f"{name} must be real, got complex numbers")
    bad = np.flatnonzero(~to_numpy(xp.all(xp.isfinite(found), axis=1)))
    if bad.size:
        raise ValueError(f"{name} contains NaN or infinity, first in row {bad[0]}")
    return found


def checked_rounding(rounding: Any) -> float:
    """Return a relative error, or a ValueError."""
    if not (is_number(rounding) and 0.0 <= rounding < 1.0):
        raise ValueError(
            f"rounding must be a relative error, a number from 0 to below 1, got {rounding!r}"
        )
    return float(rounding)


# --- readings as people have them -----------------------------------------------------------------

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
