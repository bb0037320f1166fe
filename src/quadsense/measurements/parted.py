"""Rows in parts that are held elsewhere, in files or on a cluster: the work goes to the parts.

Each product of the rows is that of every part, one below the other, or their sum. What is done with
a part is a function of its rows as `Dense` has them; a way of having the parts (`OnDisk`,
`quadsense.measurements.cluster`) says where that function runs, and nothing else.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, to_numpy
from quadsense.core import products
from quadsense.measurements.arrays import Dense, NotFinite
from quadsense.measurements.probes import Form, Probes, squared_columns, squares
from quadsense.system.watch import look

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from quadsense.files import Strips


Work = str | Callable[..., Any]
"""``work(rows, *shared, *split)``: of a part, as `Dense`, of what all parts are given, and of the
part's own share of what has one entry per row. A function of a module, so that it can be sent; or
the name of a method of the rows: whatever kind has them, `Dense` or one on a device."""


class Parted(Probes):
    """Rows in parts.

    Parameters
    ----------
    lengths : sequence of int
        Rows of each part.
    n : int
    held : dtype
        Type of the numbers as they are held.

    Attributes
    ----------
    begins : array of shape (parts + 1,)
        The first row of each part, and how many rows there are.
    """

    storage = "in parts"
    at_hand = False
    _held_norms: Any = None  # until all rows were surveyed

    def __init__(self, lengths: Sequence[int], n: int, held: Any) -> None:
        self.begins = np.cumsum([0, *lengths])
        self.m, self.n = int(self.begins[-1]), int(n)
        self.held = np.dtype(held)
        self.is_complex = self.held.kind == "c"
        self.dtype = np.dtype(np.complex128 if self.is_complex else np.float64)
        self._passes = [0]  # of these rows in every precision
        self._survey()

    # --- what a way of having the parts writes ------------------------------------------------

    @abstractmethod
    def each(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> list[Any]:
        """Return what `work` makes of every part, in their order.

        Parameters
        ----------
        work : callable
            See `Work`.
        shared : sequence
            What all parts are given.
        split : sequence of arrays
            With one entry per row on their first axis, of which each part gets its own.
        """

    @abstractmethod
    def total(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> Any:
        """Return the sum of what `work` makes of the parts, in an order of the parts alone."""

    @abstractmethod
    def place(self, part: int, row: int) -> str:
        """Where a row of a part is, for messages."""

    @property
    def sweeps(self) -> int:
        """Passes over all rows so far, that of the norms among them."""
        return self._passes[0]

    def part(self, part: int, following: int | None = None) -> Dense:
        """Return the rows of one part; those of `following` are asked for next."""
        here = self.span(part)
        return Dense(self.block(here.start, here.stop))

    # --- facts ------------------------------------------------------------------------------

    def _survey(self) -> None:
        """Norms of all rows, in one pass; refuse what is not finite."""
        found = self._found_facts()
        for part, facts in enumerate(found):
            if isinstance(facts, int):
                row = int(self.begins[part]) + facts
                raise ValueError(
                    f"U contains NaN or infinity, first in row {row}: {self.place(part, facts)}"
                )
        self._held_norms = np.concatenate([norms for norms, _, _ in found])
        self._exponents = np.concatenate([exponents for _, exponents, _ in found])
        self._column_facts = sum((columns for _, _, columns in found[1:]), start=found[0][2])
        self._norms = self._held_norms
        if self._exponents.any():
            self._norms = np.ldexp(self._held_norms, self._exponents)
        self._zeros = bool((self._held_norms == 0.0).any())

    def _found_facts(self) -> list[Any]:
        """Return norms and exponents of the parts; of one not finite, its first such row."""
        return self.each(survey)

    @property
    def held_norms(self) -> Array:
        """Norms of the rows as they are used: over powers of two where they are out of range."""
        return self._held_norms

    @property
    def norms(self) -> Array:
        """Norms of the user's rows."""
        return self._norms

    @property
    def exponents(self) -> npt.NDArray[np.int64]:
        """The user's rows are those used times these powers of two."""
        return self._exponents

    @property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return self._zeros

    def column_squares(self) -> Any:
        """Return ``sum_i |u_ij|^2`` for every j over rows of unit norm."""
        return self._column_facts[0]

    def column_counts(self) -> Any:
        """Return how many entries of each column are not 0."""
        return self._column_facts[1].astype(np.int64)

    def same_as(self, other: Probes) -> bool:
        """Return whether these are the same rows, to the last bit, wherever they are."""
        if self is other:
            return True
        if not isinstance(other, Parted | Dense) or (self.m, self.n) != (other.m, other.n):
            return False
        if self.is_complex != other.is_complex or other.xp is not np:
            return False
        if not np.array_equal(self.exponents, other.exponents):
            return False
        return all(
            np.array_equal(rows, other.block(here.start, here.stop)) for here, rows in self.blocks()
        )

    def span(self, part: int) -> slice:
        """Return rows of a part."""
        return slice(int(self.begins[part]), int(self.begins[part + 1]))

    def facts_of(self, part: int) -> Any:
        """Return what `rows_of` is to know of a part: its norms, None before they are known.

        Rows out of range are brought into it anew each time.
        """
        if self._held_norms is None or self._exponents[self.span(part)].any():
            return None
        return self._held_norms[self.span(part)]

    def held_as(self, form: Form) -> Probes | None:
        """Return the same rows, with products in single precision, where they are held so."""
        if form != "single" or self.held not in (np.float32, np.complex64) or self._exponents.any():
            return None
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.dtype = self.held
        return other

    # --- products ---------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``."""
        return np.concatenate(self.each("times", (X,)))

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        return self.total("combine", split=(Y,))

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``."""
        return np.concatenate(self.each("forward", (np.asarray(A),)))

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``."""
        return self.total("adjoint", split=(y,))

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2`` for every j."""
        return self.total(squared_columns, split=(y,))

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """Return ``sum_k s_k |f_i u_i* x_k|^2``: only one number per row leaves its part."""
        split = () if factors is None else (factors,)
        return np.concatenate(self.each(squared, (X, signs), split))

    def normal(
        self, scales: Array, conjugate: bool, dtype: npt.DTypeLike, columns: Array | None = None
    ) -> Array:
        """Return ``F* F`` on packed matrices of the rows times scales: see `Sensing.normal`."""
        return self.total(normal_of, (conjugate, np.dtype(dtype).str, columns), (scales,))

    # --- rows -------------------------------------------------------------------------------

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield dense rows, one part at a time."""
        for part in range(len(self.begins) - 1):
            here = self.span(part)
            yield here, self.block(here.start, here.stop)

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`."""
        return self.take(np.arange(first, last))

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2`` for those rows and columns."""
        left = self.block(rows.start, rows.stop)
        left = left.conj() if self.is_complex else left
        return np.abs(left @ self.block(columns.start, columns.stop).T) ** 2

    def parts_of(self, index: Array) -> Iterator[tuple[int, Array, Array]]:
        """Yield parts that have some rows, which of theirs these are, and places in `index`."""
        index = np.asarray(index)
        owners = np.searchsorted(self.begins, index, side="right") - 1
        for part in np.unique(owners):
            places = np.flatnonzero(owners == part)
            yield int(part), index[places] - self.begins[part], places


def rows_of(rows: Any, dtype: Any, known: Any) -> Dense:
    """Return a part as products see it.

    Parameters
    ----------
    rows : array of shape (rows, n)
        As they are held.
    dtype : dtype
        That of the arithmetic.
    known : array of shape (rows,) or None
        Norms, all within range; None where they are not known, or some row is out of range.
    """
    return Dense(rows, dtype if np.dtype(dtype).char in "fF" else None, norms=known)


def apply(work: Work, rows: Probes, *arguments: Any) -> Any:
    """Return what `work` makes of rows as products see them."""
    if isinstance(work, str):
        return getattr(rows, work)(*arguments)
    return work(rows, *arguments)


def apply_to_part(
    work: Work, rows: Any, dtype: Any, known: Any, *arguments: Any, seen: Any = rows_of
) -> Any:
    """Return what `work` makes of a part as it is held; `seen` makes of it what products see."""
    try:
        return apply(work, seen(rows, dtype, known), *arguments)
    except NotFinite as found:  # only of rows whose norms were not known
        return found.row


def survey(rows: Dense) -> Any:
    """Return norms and exponents of a part, and sums of squares and counts of entries by column.

    Of a part that is not finite `apply_to_part` gives the first such row.
    """
    columns = np.stack([rows.column_squares(), rows.column_counts()])
    return rows.held_norms, rows.exponents, columns


def squared(rows: Probes, X: Array, signs: Array | None, factors: Array | None = None) -> Array:
    """Return ``sum_k s_k |f_i u_i* x_k|^2`` of a part."""
    return squares(rows, X, factors, signs)


def normal_of(
    rows: Dense, conjugate: bool, dtype: str, columns: Array | None, scales: Array
) -> Array:
    """Return ``F* F`` on packed matrices, of a part, its columns scaled where asked."""

    def blocks() -> Iterator[Array]:
        for first in range(0, rows.m, products.FEATURE_ROWS):
            last = min(first + products.FEATURE_ROWS, rows.m)
            block = rows.block(first, last)
            block = block.conj() if conjugate else block
            block = block if columns is None else block * columns
            yield block * scales[first:last, None]

    return products.normal_matrix(blocks(), products.size_of(rows.n, rows.is_complex), dtype)


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
        super().__init__(strips.lengths, strips.shape[1], strips.dtype)

    @property
    def given(self) -> Any:
        """The strips."""
        return self.strips

    def same_as(self, other: Probes) -> bool:
        """Return whether these are the same rows: in the same unchanged files, or equal."""
        same = isinstance(other, OnDisk) and self.strips[:] == other.strips[:]
        return same or super().same_as(other)

    def place(self, part: int, row: int) -> str:
        """Return the file and row."""
        return self.strips[part].row(row)

    # --- every strip in turn -------------------------------------------------------------------

    def _read(self) -> Iterator[tuple[int, Array]]:
        """Yield numbers of strips and their rows, which are overwritten after the next."""
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
        """Return what `work` makes of every strip."""
        return list(self._results(work, shared, split))

    def total(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> Any:
        """Return the sum of what `work` makes of every strip, one after the other."""
        found = self._results(work, shared, split)
        total = next(found)
        for each in found:
            total += each
        return total

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Yield all rows, a strip at a time: each is overwritten after the next."""
        for part, rows in self._read():
            yield self.span(part), rows_of(rows, self.dtype, self.facts_of(part))

    def part(self, part: int, following: int | None = None) -> Dense:
        """Return the rows of one strip; `following` is read meanwhile."""
        coming = self._coming
        rows = coming[1].result() if coming and coming[0] == part else self.strips[part].read()
        self._coming = None
        if following is not None:
            self._coming = following, _readers(os.getpid()).submit(self.strips[following].read)
        return rows_of(rows, self.dtype, self.facts_of(part))

    # --- some rows -----------------------------------------------------------------------------

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield dense rows, a strip at a time."""
        for part, rows in self._read():
            own = rows_of(rows, self.dtype, self.facts_of(part))
            found = own.block(0, own.m)
            yield self.span(part), found.copy() if np.may_share_memory(found, rows) else found

    def take(self, index: Array) -> Array:
        """Return those rows."""
        index = to_numpy(index)
        found = np.empty((index.size, self.n), self.dtype)
        for part, rows, places in self.parts_of(index):
            look()
            own = rows_of(self.strips[part].read(), self.dtype, self.facts_of(part))
            found[places] = own.take(rows)
        return found


@cache
def _readers(process: int) -> ThreadPoolExecutor:
    """Return threads of this process: they do not survive a fork."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(READERS, thread_name_prefix="quadsense-reader")
