"""Rows that are written some at a time, from memory or from other files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from quadsense.files.strips import STRIP_BYTES, Strips
from quadsense.system.watch import look


class Pieces:
    """Dense rows of several arrays, one below the other, in memory or in files.

    Parameters
    ----------
    parts : sequence of Strips or ndarray of shape (k, n)

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
        One that holds the numbers of all parts.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)
        self.shape = sum(int(part.shape[0]) for part in parts), int(parts[0].shape[1])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    @property
    def nbytes(self) -> int:
        """Bytes of all the rows."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __iter__(self) -> Iterator[tuple[slice, Any]]:
        """Which rows, and their numbers."""
        begin = 0
        for rows in self._each():
            look()
            yield slice(begin, begin + len(rows)), np.ascontiguousarray(rows, dtype=self.dtype)
            begin += len(rows)

    def _each(self) -> Iterator[Any]:
        size = max(1, STRIP_BYTES // max(1, self.shape[1] * self.dtype.itemsize))
        for part in self.parts:
            if isinstance(part, Strips):
                yield from (strip.read() for strip in part)
            else:
                yield from (part[first : first + size] for first in range(0, len(part), size))

    def load(self) -> Any:
        """All rows, in memory."""
        found = np.empty(self.shape, self.dtype)
        for rows, values in self:
            found[rows] = values
        return found
