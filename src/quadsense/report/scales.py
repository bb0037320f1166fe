"""Axes of pictures: from numbers to places on the page, and where the ticks are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from quadsense.arrays import Vector
from quadsense.view.markup import superscript

Kind = Literal["linear", "log", "bent"]
"""Even; by decades; even between -1 and 1 and by decades beyond, for what may be far out."""


def _bend(values: Any) -> Any:
    size = np.abs(values)
    return np.sign(values) * np.where(size <= 1.0, size, 1.0 + np.log10(np.maximum(size, 1.0)))


@dataclass(frozen=True)
class Scale:
    """Numbers between `low` and `high` on places between `begin` and `end`.

    With `whole`, an even scale has ticks at whole numbers only.
    """

    kind: Kind
    low: float
    high: float
    begin: float
    end: float
    whole: bool = False

    def __call__(self, values: Any) -> Vector:
        """Places of numbers; those beyond the ends are put there."""
        values = np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
        if self.kind == "linear":
            # In halves: the range may be that of float64.
            part = (values / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        else:
            turn = np.log10 if self.kind == "log" else _bend
            low, high = turn(self.low), turn(self.high)
            part = (turn(values) - low) / (high - low)
        return np.asarray(self.begin + part * (self.end - self.begin))

    @property
    def top(self) -> float:
        """The upper end in the coordinate in which places are even."""
        return float(_bend(self.high)) if self.kind == "bent" else self.high

    def numbers(self, coordinates: Any) -> Vector:
        """Numbers at coordinates of an even or bent scale: see `top`."""
        size = np.abs(coordinates)
        if self.kind == "linear":
            return np.asarray(coordinates, dtype=np.float64)
        far = 10.0 ** np.minimum(np.maximum(size - 1.0, 0.0), 308.0)
        return np.asarray(np.sign(coordinates) * np.where(size <= 1.0, size, far))

    def at(self, value: float) -> float:
        """Place of one number."""
        return float(self(value))

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Numbers worth a tick, each with its label; `most` and a few at most."""
        if self.kind == "log":
            found = [k for k in _decades(self.low, self.high, most) if self.low <= k <= self.high]
            if len(found) > 1 and (found[0] < 1e-3 or found[-1] >= 1e5):  # all as powers of ten
                return [(value, "1" if value == 1.0 else _power(value)) for value in found]
        elif self.kind == "bent":
            tens = range(1, math.ceil(math.log10(max(self.high, -self.low, 1.0))) + 1)
            step = 1 + len(tens) // 3
            few = [2.0, 5.0] if len(tens) < 2 else []
            sizes = [1.0, *few, *(10.0**k for k in tens if k % step == 0)]
            found = [-size for size in reversed(sizes)] + [0.0, *sizes]
        else:
            return _even(self.low, self.high, most, 1.0 if self.whole else 0.0)
        return [(value, _label(value)) for value in found if self.low <= value <= self.high]


def _even(low: float, high: float, most: int, least: float) -> list[tuple[float, str]]:
    """Ticks a round number apart, `least` or more."""
    span = high / 2 - low / 2
    rough = 2.0 * span / max(most - 1, 1)
    if not (math.isfinite(rough) and rough > 0.0):
        return [(low, _label(low))]
    size = 10.0 ** math.floor(math.log10(rough))
    step = max(next((k * size for k in (1, 2, 5, 10) if k * size >= 0.8 * rough), rough), least)
    if step == 0.0 or abs(low / step) > 1e12 or abs(high / step) > 1e12:
        middle = low / 2 + high / 2
        return [(middle, _label(middle))]  # no digits tell one end from the other
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    largest = max(abs(low), abs(high))
    plain = decimals <= 4 and largest < 1e5
    digits = 1 + math.ceil(math.log10(largest / step))
    return [
        (
            k * step,
            f"{k * step:,.{decimals}f}".replace("-", "−") if plain else _label(k * step, digits),
        )
        for k in range(first, last + 1)
    ]


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 2:
        step = -(-(last - first) // most)
        return [10.0**k for k in range(first, last + 1) if k % step == 0]
    tens = [10.0**k for k in range(first - 1, last + 2)]
    for parts in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 4, 5, 7)):
        found = [part * ten for ten in tens for part in parts if low <= part * ten <= high]
        if len(found) >= 3:
            return found
    return found or [low]


def _label(value: float, digits: int = 3) -> str:
    """A tick's label: powers of ten as such, where they are far from one."""
    if value == 0.0:
        return "0"
    size = abs(value)
    if 1e-3 <= size < 1e5:
        text = f"{value:,.{max(digits, 6)}g}"
        return text.replace("-", "−")
    return _power(value, digits)


def _power(value: float, digits: int = 3) -> str:
    """Write a number with a power of ten."""
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    part = float(f"{value / 10.0**exponent:.{digits}g}")
    sign = "−" if value < 0 else ""
    times = "" if abs(part) == 1.0 else f"{abs(part):.{digits}g}·"
    return f"{sign}{times}10{superscript(exponent)}"


def even_scale(values: Any, begin: float, end: float, *, zero: bool = False) -> Scale:
    """An even scale over all finite numbers with some room; `zero` takes 0 in."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    largest = max(abs(low), abs(high))
    room = 0.12 * (high / 2 - low / 2)
    room = room if room > 1e-9 * largest else 0.5 * largest or 1.0
    most = float(np.finfo(np.float64).max)
    low, high = max(low - room, -most), min(high + room, most)
    return Scale("linear", low, high, begin, end)


def log_scale(values: Any, begin: float, end: float, *, decades: int = 18) -> Scale:
    """A scale by decades over all positive numbers; what is far below is put at its low end."""
    positive = np.asarray(values, dtype=np.float64)
    positive = positive[np.isfinite(positive) & (positive > 0.0)]
    high = float(positive.max()) if positive.size else 1.0
    low = float(positive.min()) if positive.size else 0.1
    low = max(low, high * 10.0**-decades, 1e-300)
    high = max(high, low)
    room = max(0.06 * math.log10(high / low), 0.05)
    top = min(math.log10(high) + room, 308.0)
    return Scale("log", 10.0 ** max(math.log10(low) - room, -300.0), 10.0**top, begin, end)
