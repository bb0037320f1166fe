"""Rows in files, read strip by strip: the next one is read while this one is used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.files import Strips
from quadsense.measurements.dense import Dense
from quadsense.measurements.parted import Parted, Work, apply_to_part, rows_of
from quadsense.measurements.probes import Probes
from quadsense.system.watch import look

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

READERS = 2
"""Threads that read: more solves than one may be under way."""


class OnDisk(Parted):
    """Rows of a dense array in one file or several, never all in memory.

    Parameters
    ----------
    strips : Strips
    """

    storage = "on disk"
    _coming: Any = None  # the strip that is being read for `part`, and who reads it

    def __init__(self, strips: Strips) -> None:
        self.strips = strips
        super().__init__([len(strip) for strip in strips], strips.shape[1], strips.dtype)

    @property
    def given(self) -> Any:
        """The strips."""
        return self.strips

    def same_as(self, other: Probes) -> bool:
        """Whether these are the same rows: in the same files, unchanged, or of the same numbers."""
        same = isinstance(other, OnDisk) and self.strips[:] == other.strips[:]
        return same or super().same_as(other)

    def place(self, part: int, row: int) -> str:
        """File and row."""
        return self.strips[part].row(row)

    # --- every strip in turn -------------------------------------------------------------------

    def _read(self) -> Iterator[tuple[int, Array]]:
        """Numbers of strips and their rows, which are overwritten after the next."""
        buffers = [
            np.empty(self.strips.largest, self.held) for _ in range(min(2, len(self.strips)))
        ]
        self._passes[0] += 1
        pool = _readers(os.getpid())
        coming = pool.submit(self.strips[0].read, buffers[0])
        for part in range(len(self.strips)):
            look()
            rows = coming.result()
            if part + 1 < len(self.strips):
                coming = pool.submit(self.strips[part + 1].read, buffers[(part + 1) % 2])
            yield part, rows

    def _results(self, work: Work, shared: Sequence[Any], split: Sequence[Any]) -> Iterator[Any]:
        for part, rows in self._read():
            mine = (each[self.span(part)] for each in split)
            yield apply_to_part(work, rows, self.dtype, self.facts_of(part), *shared, *mine)

    def each(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> list[Any]:
        """What `work` makes of every strip."""
        return list(self._results(work, shared, split))

    def total(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> Any:
        """The sum of what `work` makes of every strip, one after the other."""
        found = self._results(work, shared, split)
        total = next(found)
        for each in found:
            total += each
        return total

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """All rows, a strip at a time: each is overwritten after the next."""
        for part, rows in self._read():
            yield self.span(part), rows_of(rows, self.dtype, self.facts_of(part))

    def part(self, part: int, following: int | None = None) -> Dense:
        """The rows of one strip; `following` is read meanwhile."""
        coming = self._coming
        rows = coming[1].result() if coming and coming[0] == part else self.strips[part].read()
        self._coming = None
        if following is not None:
            self._coming = following, _readers(os.getpid()).submit(self.strips[following].read)
        return rows_of(rows, self.dtype, self.facts_of(part))

    # --- some rows -----------------------------------------------------------------------------

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Dense rows, a strip at a time."""
        for part, rows in self._read():
            own = rows_of(rows, self.dtype, self.facts_of(part))
            found = own.block(0, own.m)
            yield self.span(part), found.copy() if np.may_share_memory(found, rows) else found

    def take(self, index: Array) -> Array:
        """Those rows."""
        index = to_numpy(index)
        found = np.empty((index.size, self.n), self.dtype)
        for part, rows, places in self.parts_of(index):
            look()
            own = rows_of(self.strips[part].read(), self.dtype, self.facts_of(part))
            found[places] = own.take(rows)
        return found


@cache
def _readers(process: int) -> ThreadPoolExecutor:
    """Threads of this process: they do not survive a fork."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(READERS, thread_name_prefix="quadsense-reader")
