"""Rows of arrays in files, read some at a time: for data larger than memory.

A `Strip` is data alone, so that it can be sent to another process, which reads the file itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quadsense.files.contents import Unreadable
from quadsense.files.formats import format_of
from quadsense.system.machine import MIB
from quadsense.system.watch import look

STRIP_BYTES = 32 * MIB
"""Bytes of a strip: 32 MiB, some ten milliseconds of reading. Sums are made strip by strip, so
that this, and no limit of memory, decides about the last bits of an answer."""


@dataclass(frozen=True)
class Strip:
    """Some rows of an array in a file.

    Attributes
    ----------
    path : Path
    name : str
        Of the array in the file.
    first, last : int
        Rows.
    width : int
        Length of a row.
    dtype : str
        As the numbers come out.
    stamp : tuple
        Of the file when it was opened: see `stamp_of`.
    by_columns : bool
        Whether these rows are columns of the array.
    """

    path: Path
    name: str
    first: int
    last: int
    width: int
    dtype: str
    stamp: tuple[int, ...]
    by_columns: bool = False

    def __len__(self) -> int:
        """Number of rows."""
        return self.last - self.first

    def read(self, out: Any = None) -> Any:
        """Return the rows, (rows, width), in `out`, of one dimension, where that is given.

        Raises
        ------
        ValueError
            Where the file was changed or removed since it was opened, or ends before it should.
        """
        found = None
        try:
            if stamp_of(self.path) == self.stamp:
                found = self._read(out)
        except OSError:
            pass
        if found is None or found.shape != (len(self), self.width) or self._is_other():
            if not self.path.exists():
                raise Unreadable(
                    f"{self.path} is gone (rows {self.first} to {self.last - 1} were read): it was "
                    "there when it was opened, and must stay until the work is done"
                )
            raise Unreadable(
                f"{self.path} was changed while it was being used (rows {self.first} to "
                f"{self.last - 1} were read): leave it as it is until the work is done, and begin "
                "again"
            )
        return found

    def _is_other(self) -> bool:
        """Return whether the file was changed while it was read."""
        try:
            return stamp_of(self.path) != self.stamp
        except OSError:
            return True

    def _read(self, out: Any) -> Any:
        code = _reader(self.path)
        if self.by_columns and hasattr(code, "read_columns"):
            values = code.read_columns(self.path, self.name, self.first, self.last).T
        elif hasattr(code, "read_rows"):
            target = None
            if out is not None:
                target = out[: len(self) * self.width].reshape(len(self), self.width)
            values = code.read_rows(self.path, self.name, self.first, self.last, target)
        elif hasattr(code, "read_table"):
            from quadsense.files.table import arrays_of

            values = arrays_of(self.path, code.read_table(self.path), self.name, None, True)["U"]
        else:  # whole or not at all
            values = code.load(self.path, [self.name])[self.name]
            values = values.T if self.by_columns else values
        return np.asarray(values).astype(np.dtype(self.dtype), copy=False)

    def row(self, i: int) -> str:
        """Return row i of these, for messages."""
        return f"{'column' if self.by_columns else 'row'} {self.first + i} of {self.path}"


class Strips(Sequence[Any]):
    """Rows of one array, or of the parts of one in several files, strip by strip.

    Strips without rows are left out, except the first where none has any.

    Parameters
    ----------
    strips : sequence of Strip
        Or of what has a length, `width`, `dtype`, `read` and `row` as these have.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    ndim : int
    """

    ndim = 2

    def __init__(self, strips: Sequence[Any]) -> None:
        first = strips[0]
        self._strips = tuple(strip for strip in strips if len(strip)) or (first,)
        self.lengths = [len(strip) for strip in self._strips]
        self.shape = sum(self.lengths), first.width
        self.dtype = np.dtype(first.dtype)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._strips)

    def __getitem__(self, index: Any) -> Any:
        """One of them, or some."""
        return self._strips[index]

    def __iter__(self) -> Iterator[Any]:
        """Each in turn."""
        return iter(self._strips)

    @cached_property
    def begins(self) -> Any:
        """The first row of each, and how many rows there are."""
        return np.cumsum([0, *self.lengths])

    @property
    def nbytes(self) -> int:
        """Bytes of all the rows."""
        return int(self.shape[0]) * int(self.shape[1]) * self.dtype.itemsize

    @property
    def largest(self) -> int:
        """Entries of the largest strip."""
        return max(self.lengths) * int(self.shape[1])

    def row(self, i: int) -> str:
        """Where row i is, for messages."""
        k = int(np.searchsorted(self.begins, i, side="right")) - 1
        return self._strips[k].row(i - int(self.begins[k]))

    def load(self) -> Any:
        """Return all rows, in memory."""
        found = np.empty(self.shape, self.dtype)
        for strip, first in zip(self, self.begins, strict=False):
            found[first : first + len(strip)] = strip.read()
        return found


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return what changes with a file: its size and time; of a folder, of the files in it."""
    places = [path] if not path.is_dir() else sorted(p for p in path.iterdir() if p.is_file())
    stats = [os.stat(place) for place in places]
    return tuple(number for each in stats for number in (each.st_size, each.st_mtime_ns))


def strips_of(
    path: Path, name: str, shape: tuple[int, ...], dtype: Any, by_columns: bool = False
) -> list[Strip]:
    """Return an array in a file, cut into strips.

    Parameters
    ----------
    path : Path
    name : str
    shape : (int, int)
    dtype : dtype
        As it is held; one that the machine does not compute with is widened.
    by_columns : bool
        Whether its columns are the rows that are wanted.
    """
    rows, width = shape[::-1] if by_columns else shape
    type_ = native(np.dtype(dtype)).name
    whole = Strip(path, name, 0, rows, width, type_, stamp_of(path), by_columns)
    code = _reader(path)
    if not hasattr(code, "read_rows") or rows * width == 0:
        return [whole]
    size = max(1, STRIP_BYTES // (width * np.dtype(dtype).itemsize))
    if hasattr(code, "rows_together"):  # those that are packed together are read together
        unit = min(max(1, code.rows_together(path, name, by_columns)), rows)
        size = max(unit, size // unit * unit)
    return [
        replace(whole, first=first, last=min(first + size, rows)) for first in range(0, rows, size)
    ]


def _reader(path: Path) -> Any:
    """Return the module of a file's format; of MATLAB's that of its version."""
    code = format_of(path).code(path)
    return code.by_rows(path) if hasattr(code, "by_rows") else code


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in the byte order and one of the widths of this machine's arithmetic."""
    wide = dtype.kind in "fc" and dtype.char not in "fdFD"
    found = np.dtype(np.complex128 if dtype.kind == "c" else np.float64) if wide else dtype
    return found.newbyteorder("=")


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
        """Return all rows, in memory."""
        found = np.empty(self.shape, self.dtype)
        for rows, values in self:
            found[rows] = values
        return found
