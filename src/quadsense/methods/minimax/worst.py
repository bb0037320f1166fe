"""The rows that count most: found on the way, while all rows are read once.

Of the rows that a fit misses by more than any fit must, half of those that are taken are the worst,
and half are drawn: where rows repeat each other, the worst are all of a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.core.packed import Array, Vector

Index = npt.NDArray[np.intp]


class Worst:
    """Up to this many rows that are missed by more than a level.

    Parameters
    ----------
    count : int
    level : float
    known : ndarray of bool, shape (m,)
        Rows that are not wanted again.
    draw : int
        Another draw for another number; the same whatever the blocks that the rows come in.
    """

    def __init__(self, count: int, level: float, known: npt.NDArray[np.bool_], draw: int) -> None:
        self.level, self.known, self.draw = level, known, draw
        self._missed, self._drawn = _Largest(count - count // 2), _Largest(count // 2)

    def see(self, part: slice, missed: Vector, take: Callable[[Array], Array] | None) -> None:
        """Take what counts of a slice of rows, which are missed by so much."""
        found = np.flatnonzero((missed > self.level) & ~self.known[part])
        numbers = found + part.start
        self._missed.add(missed[found], numbers, found, take)
        self._drawn.add(_lots(numbers, self.draw), numbers, found, take)

    @property
    def index(self) -> Index:
        """Numbers of the rows that were taken, in their order."""
        return np.unique(np.concatenate([self._missed.numbers, self._drawn.numbers]))

    @property
    def rows(self) -> Array | None:
        """These rows; None where there are no single rows."""
        groups = [group for group in (self._missed, self._drawn) if group.rows is not None]
        if not groups:
            return None
        numbers = np.concatenate([group.numbers for group in groups])
        _, first = np.unique(numbers, return_index=True)
        return np.concatenate([group.rows for group in groups])[first]


class _Largest:
    """Those of the largest scores, with their rows."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.scores: Vector = np.empty(0)
        self.numbers: Index = np.empty(0, dtype=np.intp)
        self.rows: Any = None

    def add(
        self,
        scores: Vector,
        numbers: Index,
        places: Index,
        take: Callable[[Array], Array] | None,
    ) -> None:
        """Take those of the given rows that belong to the largest."""
        kept = len(self.scores)
        every = np.concatenate([self.scores, scores])
        best = np.arange(len(every))
        if len(every) > self.count:
            best = np.sort(np.argpartition(-every, self.count - 1)[: self.count])
        old, new = best[best < kept], best[best >= kept] - kept
        if not new.size:
            return
        if take is not None:
            rows = take(places[new])
            self.rows = rows if self.rows is None else np.concatenate([self.rows[old], rows])
        self.scores, self.numbers = every[best], np.concatenate([self.numbers[old], numbers[new]])


def _lots(numbers: Index, draw: int) -> Vector:
    """A number in [0, 1) for each row, as good as drawn: the last steps of SplitMix64."""
    with np.errstate(over="ignore"):
        x = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(draw) * np.uint64(0xD1B54A32D192ED03)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2.0**53
