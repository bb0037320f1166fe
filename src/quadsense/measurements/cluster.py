"""Rows on the workers of a Dask cluster: what is done with a part is done where it is held."""

from __future__ import annotations

import os
import sys
import uuid
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.core import packed
from quadsense.measurements.crew import Crew
from quadsense.measurements.dense import Dense
from quadsense.measurements.disk import OnDisk
from quadsense.measurements.parted import (
    Parted,
    Work,
    done,
    normal_of,
    of_part,
    rows_of,
    squared,
    summed,
    survey,
)
from quadsense.measurements.probes import OnNumpy, Probes
from quadsense.measurements.shards import Shards
from quadsense.measurements.tensors import Tensors
from quadsense.threads import blas_threads

SMALL = 2**12
"""Bytes up to which an array goes with every task rather than by a task of its own."""


MORE, FEWER = 8, 2
"""Sums that are added up together by one task, each of which takes Dask some milliseconds; fewer
where they are `LARGE`."""

LARGE = 2**25
"""Bytes."""


class OnCluster(Parted):
    """Rows in parts, held by workers.

    Parts are loaded by tasks and known to the driver by their futures, so that Dask loads again
    what it loses. A product is a task a part, and for sums a binary tree of them; what all parts
    are given travels as the result of a task, and what each part has its own share of, with its
    task. Whoever does which, the bits are the same.

    Parameters
    ----------
    client : distributed.Client
    shards : Shards
    """

    storage = "dask"

    def __init__(self, client: Any, shards: Shards) -> None:
        self.crew, self.shards = Crew(client), shards
        self._rows: list[Any] = [None] * len(shards)  # futures
        self._facts: list[Any] = [None] * len(shards)  # likewise, once they are known
        self._attempt = 0
        super().__init__(shards.lengths, shards.shape[1], shards.dtype)

    @property
    def given(self) -> Any:
        """The shards."""
        return self.shards

    def same_as(self, other: Probes) -> bool:
        """Whether they are of the same files, unchanged, or of the same array, or else equal."""
        same = isinstance(other, OnCluster) and self.shards[:] == other.shards[:]
        return same or super().same_as(other)

    def place(self, part: int, row: int) -> str:
        """File and row."""
        return self.shards[part].row(row)

    # --- what is on the workers ----------------------------------------------------------------

    def _hold(self) -> None:
        """Have every part loaded, or being so, that is not lost for good."""
        there = self.crew.held(self._rows)
        wanted = [part for part, held in enumerate(there) if not held]
        if wanted:
            for part in wanted:  # before others of the same name are asked for
                self._rows[part] = self._facts[part] = None
            futures = self.shards.submit(self.crew.client, wanted, self._attempt)
            for part, future in zip(wanted, futures, strict=True):
                self._rows[part] = future
            self._attempt += 1
        if self.known is not None:
            there = self.crew.held(self._facts)
            lacking = [part for part, held in enumerate(there) if not held]
            for part, future in zip(lacking, self._surveyed(lacking), strict=True):
                self._facts[part] = future

    def _surveyed(self, parts: Sequence[int]) -> list[Any]:
        """Futures of norms and exponents."""
        if not parts:
            return []
        client, name = self.crew.client, f"quadsense_survey-{uuid.uuid4().hex}"
        keys = [f"{name}-{part}" for part in parts]
        rows = [self._rows[part] for part in parts]
        return list(client.map(surveyed, rows, dtype=self.dtype.str, key=keys))

    def _found_facts(self) -> list[Any]:
        """Norms and exponents of every part, which the workers keep too."""

        def ask() -> list[Any]:
            self._hold()
            self._facts = self._surveyed(range(len(self.shards)))
            return self._facts

        self._passes[0] += 1
        return self.crew.results(ask)

    # --- every part ----------------------------------------------------------------------------

    def _tasks(
        self, work: Work, shared: Sequence[Any], split: Sequence[Any], parts: Sequence[int]
    ) -> list[Any]:
        """What `work` makes of some parts, not yet asked for.

        Of arrays with an entry a row of all parts, each task gets its share; of lists, with one
        entry a part that is wanted, its own.
        """
        from dask import delayed

        self._hold()
        name = f"quadsense_{work.__name__}-{uuid.uuid4().hex}"
        common = [self._sent(each) for each in shared]
        task = delayed(at_part, pure=False, traverse=False)
        found = []
        for place, part in enumerate(parts):
            own = [
                each[place] if isinstance(each, list) else each[self.span(part)] for each in split
            ]
            found.append(
                task(work, self.dtype.str, self._rows[part], self._facts[part],
                     *common, *own, dask_key_name=f"{name}-{part}")
            )  # fmt: skip
        return found

    def _sent(self, value: Any) -> Any:
        """An array by a task of its own, which is done again where it is lost; others as is."""
        if getattr(value, "nbytes", 0) <= SMALL:
            return value
        key = f"quadsense_shared-{uuid.uuid4().hex}"
        return self.crew.client.submit(same, value, key=key)

    def _ask(self, tasks: Any) -> Any:
        """Futures of tasks."""
        import dask

        # Shares of vectors go with their tasks, by design.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self.crew.client.compute(tasks, optimize_graph=False)

    def each(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> list[Any]:
        """What `work` makes of every part."""
        self._passes[0] += 1
        return self._some(work, range(len(self.shards)), shared, split)

    def _some(
        self,
        work: Work,
        parts: Sequence[int],
        shared: Sequence[Any] = (),
        split: Sequence[Any] = (),
    ) -> list[Any]:
        """What `work` makes of some parts."""
        return self.crew.results(lambda: self._ask(self._tasks(work, shared, split, parts)))

    def total(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> Any:
        """The sum of what `work` makes of every part: of neighbours first, and so on."""
        from dask import delayed

        def ask() -> Any:
            tasks = self._tasks(work, shared, split, range(len(self.shards)))
            add, name, together = delayed(added, pure=False), uuid.uuid4().hex, self._together(work)
            level = 0
            while len(tasks) > 1:
                tasks = [
                    add(*tasks[i : i + together], dask_key_name=f"quadsense_add-{name}-{level}-{i}")
                    for i in range(0, len(tasks), together)
                ]
                level += 1
            return self._ask(tasks[0])

        self._passes[0] += 1
        # What came from a worker in this process, or over the wire, may be read only.
        return np.require(self.crew.results(ask), requirements="W")

    def _together(self, work: Work) -> int:
        """How many sums one task adds up: a power of two, so that it changes no bit."""
        order = packed.size_of(self.n, self.is_complex) if work is normal_of else self.n
        return FEWER if order * order * self.dtype.itemsize > LARGE else MORE

    # --- some rows -----------------------------------------------------------------------------

    def block(self, first: int, last: int) -> Array:
        """Dense rows `first` to `last`."""
        parts, ranges = self._ranges(first, last)
        if not parts:
            return np.empty((0, self.n), self.dtype)
        return np.concatenate(self._some(cut, parts, split=(ranges,)))

    def take(self, index: Array) -> Array:
        """Those rows."""
        index = to_numpy(index)
        found = np.empty((index.size, self.n), self.dtype)
        chosen = list(self.parts_of(index))
        if chosen:
            rows = self._some(
                Dense.take, [part for part, _, _ in chosen], split=([own for _, own, _ in chosen],)
            )
            for (_, _, places), values in zip(chosen, rows, strict=True):
                found[places] = values
        return found

    def inner(self, rows: slice, columns: slice) -> Array:
        """``|<u_i, u_j>|``: the fewer of the two go to where the others are."""
        if rows.stop - rows.start > columns.stop - columns.start:
            return self.inner(columns, rows).T
        few = self.block(rows.start, rows.stop)
        parts, ranges = self._ranges(columns.start, columns.stop)
        if not parts or not len(few):
            return np.empty((len(few), columns.stop - columns.start))
        return np.concatenate(self._some(moduli, parts, (few,), (ranges,)), axis=1)

    def _ranges(self, first: int, last: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Parts that have rows of a range, and which of theirs these are."""
        parts, ranges = [], []
        for part in range(len(self.shards)):
            here = self.span(part)
            if here.start < last and here.stop > first:
                parts.append(part)
                ranges.append(
                    (max(first, here.start) - here.start, min(last, here.stop) - here.start)
                )
        return parts, ranges


class InChunks(OnDisk):
    """Rows of a dask.array without a cluster: computed chunk by chunk, whenever they are needed."""

    storage = "dask"

    def __init__(self, shards: Shards) -> None:
        super().__init__(shards)  # type: ignore[arg-type]  # they are read alike


# --- what runs on the workers: one thread of BLAS, whatever a worker has, for the same bits -------


def at_part(work: Work, dtype: str, rows: Any, facts: Any, *arguments: Any) -> Any:
    """What `work` makes of a part."""
    known: Any = None
    seen: Callable[..., Probes] = rows_of
    if facts is not None and not facts[1].any():
        known = facts[0]
        if work in PRODUCTS and gpu() is not None:
            seen = rows_on_gpu
    with blas_threads("one"), np.errstate(under="ignore"):
        return done(work, rows, np.dtype(dtype), known, *arguments, seen=seen)


PRODUCTS = (
    of_part.times, of_part.combine, of_part.forward, of_part.adjoint, of_part.images, squared,
    summed,
)  # fmt: skip
"""What a GPU of a worker does, where it has one."""


@cache
def gpu() -> Any:
    """The device of this worker's GPU, None where torch sees none.

    Torch takes seconds to import, so it is asked only where there may be one.
    """
    if not ("torch" in sys.modules or os.path.exists("/dev/nvidiactl")):
        return None
    try:
        import torch
    except ImportError:
        return None
    return torch.device("cuda") if torch.cuda.is_available() else None


def rows_on_gpu(rows: Any, dtype: Any, known: Any) -> Probes:
    """A part that is sent to the GPU of the worker, by what NumPy's functions take and give."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of arrays that may not be written to: none is
        held, norms = (torch.from_numpy(np.asarray(each)).to(gpu()) for each in (rows, known))
    return OnNumpy(Tensors(held, norms=norms))


def surveyed(rows: Any, dtype: str) -> Any:
    """Norms and exponents of a part."""
    return at_part(survey, dtype, rows, None)


def same(value: Any) -> Any:
    """What it is given."""
    return value


def added(*sums: Any) -> Any:
    """Their sum: of neighbours first, and so on."""
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=False)
        sums = (*(one + two for one, two in pairs), *sums[len(sums) // 2 * 2 :])
    return sums[0]


def cut(rows: Dense, ends: tuple[int, int]) -> Array:
    """Some rows of a part."""
    return rows.block(*ends)


def moduli(rows: Dense, few: Array, ends: tuple[int, int]) -> Array:
    """``|<u_i, u_j>|`` of other rows and some of a part."""
    left = few.conj() if rows.is_complex else few
    return np.abs(left @ rows.block(*ends).T)
