"""Readings, tolerances and weights of many problems, checked once and read in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, as_numbers, is_array, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.typing import is_number

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LARGEST_READING = 1e100
"""Readings up to which squares of them, and of what they are weighted by, stay within range; below
its inverse they do not either."""


@dataclass(frozen=True)
class Ends:
    """Intervals of a chunk, as distances from the readings, of shape (1, m) or (k, m)."""

    below: Array
    above: Array
    unit: Array


@dataclass(frozen=True)
class Chunk:
    """What is known of some problems.

    Attributes
    ----------
    first : int
        The number of the first.
    b : ndarray of shape (k, m)
        0 where a reading is missing.
    missing : ndarray of bool, shape (k, m), or None
    ends : Ends or None
        None without a tolerance.
    weights : ndarray of shape (1, m) or (k, m)
        Of the sum of squares.
    plain : ndarray of bool, shape (k,)
        Problems that the compiled loops can take: without equalities, of moderate numbers.
    empty : ndarray of bool, shape (k,)
        Problems without any reading, of which nothing can be said.
    """

    first: int
    b: Array
    missing: Mask | None
    ends: Ends | None
    weights: Array
    plain: Mask
    empty: Mask

    def taken(self, index: npt.NDArray[np.intp]) -> Chunk:
        """Return these problems."""
        if index.size == len(self.b):
            return self

        def part(values: Any) -> Any:
            return values if values is None or len(values) == 1 else values[index]

        ends = self.ends
        if ends is not None:
            ends = Ends(part(ends.below), part(ends.above), part(ends.unit))
        missing = None if self.missing is None else self.missing[index]
        return Chunk(
            self.first, self.b[index], missing, ends, part(self.weights), self.plain[index],
            self.empty[index],
        )  # fmt: skip


class Readings:
    """B with all that goes with it.

    Parameters
    ----------
    B : array of shape (k, m)
        Whatever has a shape and is cut by slices: an array, a memory map, an HDF5 or Zarr dataset,
        a tensor.
    m : int
        Rows of U.
    squares : ndarray of shape (m,)
        Squared norms of the rows of U.
    delta, rtol, bounds, weights, missing
        As in `solve_many`.
    """

    def __init__(
        self, B: Any, m: int, squares: Vector, *, delta: Any, rtol: Any, bounds: Any, weights: Any,
        missing: Any,
    ) -> None:  # fmt: skip
        self.B = _source(B, m)
        self.k, self.m, self.squares = int(self.B.shape[0]), m, squares
        if missing not in ("raise", "drop"):
            raise ValueError(f"missing must be 'raise' or 'drop', got {missing!r}")
        if not (is_number(rtol) and 0.0 <= rtol < np.inf):
            raise ValueError(f"rtol must be a finite number, not negative, got {rtol!r}")
        self.rtol, self.drop = float(rtol), missing == "drop"
        if bounds is not None and (delta is not None or rtol != 0.0):
            raise ValueError("bounds replaces delta and rtol: give either, not both")
        self.delta = self._each("delta", delta)
        self.weights = self._each("weights", weights)
        self.lo: Any = None
        self.hi: Any = None
        if bounds is not None:
            try:
                lo, hi = bounds
            except (TypeError, ValueError):
                raise ValueError("bounds must be a pair (lo, hi)") from None
            self.lo = self._each("bounds[0] (lo)", lo)
            self.hi = self._each("bounds[1] (hi)", hi)

    @property
    def target(self) -> bool:
        """Whether there is a tolerance."""
        return self.delta is not None or self.lo is not None or self.rtol > 0.0

    @property
    def shared(self) -> bool:
        """Whether all problems without missing readings have the same weights."""
        parts = (self.weights,) if self.weights is not None else (self.delta, self.lo, self.hi)
        same = all(part is None or part.shape[0] == 1 for part in parts)
        return same and (self.rtol == 0.0 or self.weights is not None)

    def chunk(self, first: int, last: int) -> Chunk:
        """Return what is known of these problems, or raise a ValueError that names a wrong value.

        The first that is wrong is named.
        """
        b = _numbers("B", self.B[first:last])
        missing = None
        finite = np.isfinite(b)
        if not finite.all():
            absent = np.isnan(b)
            self._check(finite | absent if self.drop else finite, b, first)
            missing = absent
            b = np.where(absent, 0.0, b)
        else:
            b = b.copy() if b.base is not None or not b.flags.owndata else b
        low = np.abs(b).max(axis=1)
        plain = (low < LARGEST_READING) & ((low > 1.0 / LARGEST_READING) | (low == 0.0))
        empty = np.zeros(len(b), np.bool_)
        if missing is not None:
            empty |= missing.all(axis=1)
        plain &= ~empty
        ends = self._ends(b, first, last)
        weights = self._part("weights", self.weights, first, last)
        if weights is not None and (weights < 0.0).any():
            row, column = np.argwhere(weights < 0.0)[0]
            raise ValueError(
                f"weights must not be negative, got {weights[row, column]} "
                f"({self._place('weights', row + first, column, weights)})"
            )
        found = self._weighed(ends, weights, missing, len(b))
        if ends is not None:
            plain &= ~(ends.above <= -ends.below).any(axis=1)
            ends = self._open(ends, missing)
            plain &= np.broadcast_to(np.isfinite(found).all(axis=1), plain.shape)
            found = np.where(np.isfinite(found), found, 0.0) if not plain.all() else found
        return Chunk(first, b, missing, ends, found, plain, empty)

    def _check(self, sound: Mask, b: Array, first: int) -> None:
        if sound.all():
            return
        row, column = np.argwhere(~sound)[0]
        hint = "" if self.drop else ": missing='drop' leaves out what was not measured (NaN)"
        raise ValueError(
            f"B must be finite, but B[{row + first}, {column}] is {b[row, column]}{hint}"
        )

    def _ends(self, b: Array, first: int, last: int) -> Ends | None:
        if self.lo is not None:
            lo = self._part("bounds[0] (lo)", self.lo, first, last, infinite=True)
            hi = self._part("bounds[1] (hi)", self.hi, first, last, infinite=True)
            assert lo is not None and hi is not None
            bad = ~(lo <= hi) | (lo == np.inf) | (hi == -np.inf)
            if bad.any():
                row, column = np.argwhere(bad)[0]
                low = np.broadcast_to(lo, bad.shape)[row, column]
                high = np.broadcast_to(hi, bad.shape)[row, column]
                raise ValueError(
                    f"bounds must satisfy lo <= hi, but row {column} of problem {row + first} has "
                    f"lo = {low} and hi = {high}"
                )
            return Ends(b - lo, hi - b, self._units(lo, hi))
        delta = self._part("delta", self.delta, first, last)
        if delta is not None and (delta < 0.0).any():
            row, column = np.argwhere(delta < 0.0)[0]
            raise ValueError(
                f"delta must not be negative, got {delta[row, column]} "
                f"({self._place('delta', row + first, column, delta)})"
            )
        if self.rtol:
            delta = (0.0 if delta is None else delta) + self.rtol * np.abs(b)
        return None if delta is None else Ends(delta, delta, delta)

    def _units(self, lo: Array, hi: Array) -> Array:
        """Return half the widths; of a row of one end as `Intervals.between` has it."""
        if np.isfinite(lo).all() and np.isfinite(hi).all():
            return np.asarray(hi / 2 - lo / 2)
        norms = np.sqrt(self.squares)
        lo, hi = np.broadcast_arrays(lo, hi)
        return np.stack([Intervals.between(*each, norms).unit for each in zip(lo, hi, strict=True)])

    def _weighed(self, ends: Ends | None, weights: Any, missing: Mask | None, k: int) -> Array:
        """Return the weights of the sum of squares."""
        if ends is None:
            found = np.ones((1, self.m)) if weights is None else weights
        else:
            if weights is None:
                counted = np.isfinite(ends.above) & np.isfinite(ends.below)
                with np.errstate(divide="ignore", over="ignore"):
                    found = 1.0 / ends.unit**2
            else:
                counted = np.isfinite(ends.above) | np.isfinite(ends.below)
                found = weights
            if self.lo is not None and len(self.lo) == 1 and len(self.hi) == 1:
                counted = counted[:1]
            if not counted.all():
                found = np.where(counted, found, 0.0)
        return found if missing is None else np.where(missing, 0.0, found)

    def _open(self, ends: Ends, missing: Mask | None) -> Ends:
        """Return the same with no ends where readings are missing."""
        if missing is None:
            return ends
        below, above = (np.where(missing, np.inf, each) for each in (ends.below, ends.above))
        return Ends(below, above, np.where(missing, 1.0, ends.unit))

    def _each(self, name: str, values: Any) -> Any:
        """Return one number for all, one per row or one per reading as something of two axes."""
        if values is None:
            return None
        shape = getattr(values, "shape", None)
        if shape is not None and len(shape) == 2 and shape[0] > 1:
            if tuple(shape) not in ((self.k, self.m), (self.k, 1)):
                raise ValueError(self._shape_message(name, tuple(shape)))
            return values  # cut where it lies
        found = _numbers(name, values)
        if found.ndim == 0:
            return np.full((1, self.m), float(found))
        if found.ndim == 1 and found.shape == (self.m,):
            return found[None]
        if found.ndim == 2 and found.shape in ((self.k, self.m), (1, self.m), (self.k, 1)):
            return found
        raise ValueError(self._shape_message(name, found.shape))

    def _shape_message(self, name: str, shape: Any) -> str:
        return (
            f"{name} has shape {tuple(shape)}, but must be a number, or have shape ({self.m},), "
            f"one per row of U, or ({self.k}, {self.m}), one per reading"
        )

    def _part(
        self, name: str, values: Any, first: int, last: int, infinite: bool = False
    ) -> Array | None:
        """Return the values of some problems."""
        if values is None:
            return None
        found = values if values.shape[0] == 1 else _numbers(name, values[first:last])
        found = np.require(found, np.float64, ("C", "W"))  # of one type only are loops compiled
        if found.shape[1] == 1 and self.m > 1:
            found = np.repeat(found, self.m, axis=1)
        sound = ~np.isnan(found) if infinite else np.isfinite(found)
        if not sound.all():
            row, column = np.argwhere(~sound)[0]
            place = self._place(name, row + first, column, found)
            raise ValueError(f"{name} must be finite, got {found[row, column]} ({place})")
        return found

    @staticmethod
    def _place(name: str, row: int, column: int, values: Array) -> str:
        return f"row {column}" if len(values) == 1 else f"row {column} of problem {row}"


def _source(B: Any, m: int) -> Any:
    """Return B as something that is cut by slices, of shape (k, m)."""
    held = hasattr(B, "shape") and hasattr(B, "dtype") and hasattr(B, "__getitem__")
    if not held or isinstance(B, np.ma.MaskedArray) or hasattr(B, "iloc"):
        B = _numbers("B", B)
    shape = tuple(int(size) for size in B.shape)
    if len(shape) != 2 or shape[1] != m or shape[0] == 0:
        hint = "; solve takes a single b" if len(shape) == 1 else ""
        raise ValueError(
            f"B has shape {shape}, but must have one problem per row and one column per row of U: "
            f"(k, {m}){hint}"
        )
    return B


def _numbers(name: str, values: Any) -> Array:
    """Return real numbers as float64, or raise a ValueError."""
    found = to_numpy(values) if is_array(values) else as_numbers(name, values)
    if found.dtype.kind not in "uif":
        what = {"c": "complex numbers: readings are real", "b": "truth values"}
        got = what.get(found.dtype.kind, f"an array of type {found.dtype.name}")
        raise ValueError(f"{name} must hold real numbers, got {got}")
    return np.asarray(found, np.float64)
