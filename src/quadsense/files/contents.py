"""What a file holds, and arrays that were read from one."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.system.machine import (
    FLOAT64_BYTES,
    KIB,
    MIB,
    free_memory,
    in_bytes,
    memory_limit,
    room_in_words,
)

MAX_EXPANSION = 32 * KIB
"""Bytes of an array for each byte that is stored of it: what zstd makes of a constant array, which
no U is; deflate reaches 1,032."""

UNSTORED_BYTES, UNSTORED_CHUNKS = 64 * MIB, 10_000
"""What an array may have of which nothing is stored: it is read within a second."""

MAX_DEPTH = 32
"""Groups within groups, or structs within structs, that are looked into."""

OUTSIDE = "kept in another file, which is not read"
"""What an array is whose numbers are not in the file itself."""


@dataclass(frozen=True)
class Entry:
    """An array in a file, or a column of a table.

    Attributes
    ----------
    name : str
        With its groups, as in ``group/U``.
    shape : tuple of int
    dtype : str
        NumPy's name of the type, or what else it is: "text", "cell", ...
    sparse : bool
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    sparse: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers."""
        try:
            return np.dtype(self.dtype).kind in "buifc"
        except (TypeError, ValueError):
            return False

    @property
    def vector(self) -> bool:
        """Whether it is one vector; MATLAB has those of one column, or one row."""
        return len(self.shape) == 1 or (len(self.shape) == 2 and 1 in self.shape)

    @property
    def length(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape, dtype=np.float64))

    @property
    def nbytes(self) -> int:
        """Bytes of it in memory, at most; 0 of what holds no numbers."""
        return self.length * np.dtype(self.dtype).itemsize if self.numeric else 0

    def __str__(self) -> str:
        """Name and shape, for messages."""
        if not self.shape:
            return f"{self.name} (a single value)" if self.numeric else f"{self.name} (no array)"
        shape = " x ".join(map(str, self.shape))
        return f"{self.name} ({shape}{'' if self.numeric else f', {self.dtype}'})"


MOST_LISTED = 12
"""Names in a message."""


def listed(entries: Iterable[object]) -> str:
    """Return the entries, or names, for messages: the first of many."""
    names = list(map(str, entries))
    if not names:
        return "nothing"
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


class Arrays(dict[str, Any]):
    """Arrays read from a file, with its metadata, all names in it, and how they were taken.

    Attributes
    ----------
    metadata : dict
    names : list of str
        Of all that the file holds.
    notes : tuple of str
        What was guessed, a sentence each.
    roles : dict
        From U, b, ... to the names of the arrays or columns that were taken for it.
    places : tuple of (Path, int)
        Files that U was put together from, and rows in each; empty where it is in one.
    by_columns : bool
        Whether the file has the vectors as columns of U.
    room : float
        Bytes up to which a U that stays in its file may be read into memory later.
    """

    room = 0.0

    def __init__(
        self,
        values: Mapping[str, Any],
        metadata: dict[str, Any],
        names: list[str],
        notes: tuple[str, ...] = (),
        roles: Mapping[str, tuple[str, ...]] | None = None,
        places: tuple[tuple[Path, int], ...] = (),
        by_columns: bool = False,
    ) -> None:
        super().__init__(values)
        self.metadata = metadata
        self.names = names
        self.notes = notes
        self.roles = dict(roles or {})
        self.places = places
        self.by_columns = by_columns

    def place(self, row: int) -> str:
        """Where a row of U came from, for messages; empty where it is in one file."""
        return place_in(self.places, row)

    @property
    def listing(self) -> str:
        """Names in the file, for messages."""
        return printable(", ".join(self.names)) or "nothing"


def printable(text: str) -> str:
    """Return a text of one line, whatever names a damaged file has given it."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def place_in(places: tuple[tuple[Path, int], ...], row: int) -> str:
    """Return which file has a row, and where, for messages; empty where no file is said to."""
    for path, rows in places:
        if row < rows:
            return f": row {row} of {path}"
        row -= rows
    return ""


def check_stored(
    name: str,
    shape: tuple[int, ...],
    itemsize: int,
    stored: Iterable[int],
    chunk: tuple[int, ...] | None = None,
) -> None:
    """Raise ValueError for an array whose shape cannot be, going by what is stored of it.

    Parameters
    ----------
    name : str
    shape : tuple of int
        As the file declares it.
    itemsize : int
        Bytes of an entry.
    stored : iterable of int
        Bytes that are stored, in parts, which are counted only as far as needed.
    chunk : tuple of int, optional
        Shape of the chunks in which it is stored.
    """
    if min(shape, default=0) < 0 or min(chunk or (1,)) < 1:
        raise ValueError(f"array {name!r} has shape {shape} in chunks of {chunk}")
    declared = math.prod(shape) * itemsize
    largest, count = declared, 1
    if chunk is not None:
        largest = max(declared, math.prod(chunk) * itemsize)
        count = math.prod(-(-size // step) for size, step in zip(shape, chunk, strict=True))
    needed = largest // MAX_EXPANSION if largest > UNSTORED_BYTES else 0
    needed, found = max(needed, count - UNSTORED_CHUNKS), 0
    for size in stored if needed > 0 else ():
        found += size
        if found >= needed:
            return
    if needed > 0:
        raise ValueError(
            f"array {name!r} of shape {shape} would take {in_bytes(largest)}, and "
            f"{in_bytes(found)} are stored of it"
        )


def check_room(path: object, size: float) -> None:
    """Raise MemoryError, before anything is read, if that much memory is not free."""
    room = min(memory_limit(), float(free_memory()))
    if size > room:
        raise MemoryError(
            f"{path}: what is to be read takes {in_bytes(size)} in memory, and "
            f"{room_in_words(room)}"
        )


def to_csr(values: Any) -> Any:
    """Return a sparse array that was read as CSR; one that cannot be is not converted at all."""
    if values.dtype.kind not in "buifc":
        raise ValueError("a sparse array in it holds no numbers")
    # What a conversion allocates for the rows, however few entries there are.
    check_stored("U", (values.shape[0] + 1,), FLOAT64_BYTES, [values.data.nbytes])
    if hasattr(values, "indptr"):
        starts = np.asarray(values.indptr)  # of the last alone SciPy asks whether it can be
        if starts.size == 0 or starts[0] != 0 or np.any(np.diff(starts) < 0):
            raise ValueError("a sparse array in it is not put together as it must be")
        values.check_format(full_check=True)
    return sp.csr_array(values)


class Unreadable(ValueError):
    """A file that is damaged, not what its name says, or not there; the message names it."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class MissingPackage(ImportError, ValueError):
    """A format needs a package that is not installed; the message says how to get it."""


@contextmanager
def reading(path: str | os.PathLike[str], title: str) -> Iterator[None]:
    """Turn whatever a parser raises over a file into one sentence that names the file.

    Parameters
    ----------
    path : path-like
    title : str
        What the file should be, as in "an .npz file".
    """
    try:
        yield
    except (Unreadable, MissingPackage):
        raise
    except FileNotFoundError:
        raise Unreadable(f"{path} does not exist") from None
    except IsADirectoryError:
        raise Unreadable(f"{path} is a directory, not {title}") from None
    except PermissionError:
        raise Unreadable(f"{path} cannot be read: permission denied") from None
    except MemoryError as error:
        text = str(error)
        if not text.startswith(f"{path}:"):
            reason = f" ({text})" if text else ""
            text = f"{path} does not fit into memory, or is damaged{reason}"
        raise MemoryError(text) from None
    except Exception as error:  # parsers of other packages raise anything over damaged files
        said = str(error).strip().splitlines()
        reason = said[0] if said else type(error).__name__
        raise Unreadable(f"{path} is damaged or not {title} ({reason})") from None
