"""What is given to a kind of probes, checked: one sentence that names argument, row and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import (
    Array,
    as_numbers,
    check_tensor,
    is_array,
    is_tensor,
    namespace,
    to_numpy,
)
from quadsense.measurements.validate import widened
from quadsense.typing import LARGEST_WHOLE, is_number


def checked_count(name: str, value: Any) -> int:
    """A positive whole number, or a ValueError."""
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
    """An array of whole numbers, also where they came as floats, or a ValueError."""
    found = as_numbers(name, values, kind="whole numbers")
    if found.dtype.kind == "f":
        off = np.argwhere(~(np.floor(found) == found))  # NaN among them
        if off.size:
            place = ", ".join(str(k) for k in off[0])
            raise ValueError(
                f"{name} must hold whole numbers, but {name}[{place}] is {found[tuple(off[0])]}"
            )
        limit = float(np.abs(found).max(initial=0.0))
        if limit > 2.0**53:
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
    """A relative error, or a ValueError."""
    if not (is_number(rounding) and 0.0 <= rounding < 1.0):
        raise ValueError(
            f"rounding must be a relative error, a number from 0 to below 1, got {rounding!r}"
        )
    return float(rounding)
