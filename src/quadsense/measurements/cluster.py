"""Rows on the workers of a Dask cluster: what is done with a part is done where it is held.

One task takes those parts that one thread of the worker which holds them has to do. One task per
part would cost as many times what Dask takes for a task, and leave to Dask's guesses which worker
does it: a part that is sent to another takes longer than its product.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.core import products
from quadsense.files.strips import STRIP_BYTES
from quadsense.measurements.parted import OnDisk, Parted, Work, normal_of
from quadsense.measurements.probes import Probes
from quadsense.measurements.shards import (
    Shards,
    cut,
    joined,
    moduli,
    nothing,
    of_share,
    same,
    sums_of_share,
    surveyed,
)
from quadsense.system.machine import GIB
from quadsense.system.watch import Stop, look

POLL_SECONDS = 0.1
"""Seconds between two looks at limits and signals."""

QUIET_SECONDS = 10.0
"""Seconds of waiting after which a warning says that there is no worker."""

MAX_ATTEMPTS = 4
"""How often work is handed out that takes its workers down with it: each time Dask itself tries
``distributed.scheduler.allowed-failures`` times more."""

GONE = (concurrent.futures.CancelledError, asyncio.CancelledError)


class Lost(Exception):
    """What was asked for is no more: to be asked for again."""


class Workers:
    """The workers that a client has.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise ValueError("the client is asynchronous: give one made with asynchronous=False")
        if client.status in ("closing", "closed"):
            raise ValueError("the client is closed: give one that is connected to its scheduler")
        self.client = client
        self.address = client.scheduler.address if client.scheduler is not None else "?"

    def results(self, ask: Callable[[], Any]) -> Any:
        """Return the results of the futures that `ask` makes; it is called again for lost ones.

        Raises
        ------
        ConnectionError
            Where the scheduler is lost, or some work takes down every worker that has it.
        """
        from distributed.scheduler import KilledWorker

        for attempt in range(MAX_ATTEMPTS):
            self._connect()
            try:
                return self._gathered(ask())
            except KilledWorker as error:
                if attempt == MAX_ATTEMPTS - 1:
                    raise ConnectionError(
                        f"every worker that was given this work was lost ({error}): it may take "
                        "more memory than a worker has"
                    ) from error
            except Stop:
                raise
            except (Lost, *GONE):
                pass
            except Exception:  # of whatever kind, where the client lost its scheduler
                if self.client.status == "running":
                    raise
        raise ConnectionError(
            f"the cluster of {self.address} lost the same work {MAX_ATTEMPTS} times: it is "
            "restarted again and again"
        )

    def _gathered(self, futures: Any) -> Any:
        """Return results of these, with an eye on limits and signals meanwhile."""
        client = self.client

        async def gather() -> Any:
            return await client.gather(futures, asynchronous=True)

        return self._on_loop(gather())

    def _on_loop(self, coroutine: Any) -> Any:
        """Return what a coroutine of the client's comes to."""
        from distributed.comm import CommClosedError

        coming = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
        try:
            return self._waited(coming)
        except CommClosedError as error:
            raise Lost from error
        finally:
            coming.cancel()

    def _waited(self, coming: Any) -> Any:
        begin, told = time.monotonic(), 0.0
        while not coming.done():
            concurrent.futures.wait([coming], POLL_SECONDS)
            now = time.monotonic()
            look()
            if now - begin > told + QUIET_SECONDS:
                told = now - begin if not told else float("inf")
                self._say_whether_none_is_there(now - begin)
        return coming.result()

    def _say_whether_none_is_there(self, seconds: float) -> None:
        client = self.client
        try:
            threads = client.sync(client.scheduler.ncores, callback_timeout=POLL_SECONDS)
        except Exception:  # that is seen elsewhere
            return
        if not threads:
            warnings.warn(
                f"the cluster of {self.address} has had no worker for {seconds:.0f} s: the run "
                "goes on when one comes",
                RuntimeWarning,
                stacklevel=2,
            )

    def _connect(self) -> None:
        """Wait while the client tries to reach its scheduler again."""
        while self.client.status in ("connecting", "newly-created"):
            look()
            time.sleep(POLL_SECONDS)
        if self.client.status != "running":
            raise ConnectionError(
                f"the Dask scheduler {self.address} was lost, or its client closed: where the run "
                "had a checkpoint, the same call with another client goes on from there"
            )

    def held(self, futures: Sequence[Any]) -> list[bool]:
        """Return which of these are there, or will be."""
        return [
            future is not None and future.status in ("pending", "finished") for future in futures
        ]

    def holders(self, futures: Sequence[Any]) -> tuple[list[list[str]], dict[str, int]]:
        """Return which workers have each of these, by address, and the threads of all workers."""
        client = self.client

        async def ask() -> Any:
            keys = [future.key for future in futures]
            scheduler = client.scheduler
            return await asyncio.gather(scheduler.who_has(keys=keys), scheduler.ncores())

        there, threads = self._on_loop(ask())
        return [list(there.get(future.key, ())) for future in futures], dict(threads)


Holders = Sequence[Sequence[str]]
"""Workers that have each part, by address; none where it is being loaded."""

SHARE_BYTES = GIB // 2
"""Rows of a share, unless a single part is larger: a second of work, so that what is no longer
needed ends soon, and a lost worker does not lose much."""


def shared_out(
    parts: Iterable[int], holders: Holders, threads: Mapping[str, int], sizes: Sequence[int]
) -> list[list[int]]:
    """Return parts in shares, each in order; parts that no worker has yet are shares of their own.

    Parameters
    ----------
    parts : iterable of int
    holders : sequence of sequences of str
    threads : mapping
        Threads of every worker.
    sizes : sequence of int
        Bytes of every part.
    """
    shares, queues = [], []
    for worker, own in _owned(parts, holders, threads, sizes).items():
        if worker is None:
            shares += [[part] for part in own]
            continue
        rounds = -(-_load(own, sizes) // (SHARE_BYTES * threads[worker]))
        queues.append(_divided(own, sizes, min(len(own), threads[worker] * rounds)))
    # A share of every worker in turn, so that none seems to Dask to have more to do than others.
    for turn in range(max(map(len, queues), default=0)):
        shares += [queue[turn] for queue in queues if turn < len(queue)]
    return shares


def moves(holders: Holders, threads: Mapping[str, int], sizes: Sequence[int]) -> dict[int, str]:
    """Return parts that other workers should have, and who: those that have more pass some on.

    A part is passed on only where both of them then have less to do than the one had. Nothing is
    while some part is being loaded.
    """
    owned = _owned(range(len(sizes)), holders, threads, sizes)
    queues = {worker: owned.get(worker, []) for worker, count in threads.items() if count}
    found: dict[int, str] = {}
    if None in owned or not queues:
        return found
    loads = {worker: _load(own, sizes) / threads[worker] for worker, own in queues.items()}
    while True:
        most, least = max(loads, key=loads.__getitem__), min(loads, key=loads.__getitem__)
        room = (loads[most] - loads[least]) * threads[least]
        part = next((part for part in reversed(queues[most]) if sizes[part] < room), None)
        if part is None:
            return found
        queues[most].remove(part)
        queues[least].append(part)
        for worker in (most, least):
            loads[worker] = _load(queues[worker], sizes) / threads[worker]
        found[part] = least


def _load(parts: Iterable[int], sizes: Sequence[int]) -> int:
    return sum(sizes[part] for part in parts)


def _owned(
    parts: Iterable[int], holders: Holders, threads: Mapping[str, int], sizes: Sequence[int]
) -> dict[str | None, list[int]]:
    """Return parts of every worker: of several that have one, who has least to do."""
    owned: dict[str | None, list[int]] = {}
    loads = dict.fromkeys(threads, 0.0)
    for part in parts:
        able = [worker for worker in holders[part] if threads.get(worker)]
        if not able:
            owned.setdefault(None, []).append(part)
            continue
        worker = min(able, key=loads.__getitem__)
        owned.setdefault(worker, []).append(part)
        loads[worker] += sizes[part] / threads[worker]
    return owned


def _divided(parts: Sequence[int], sizes: Sequence[int], count: int) -> list[list[int]]:
    """Return neighbours together, in `count` shares of about the same size, none of them empty."""
    total, before = _load(parts, sizes), 0
    found: list[list[int]] = [[] for _ in range(count)]
    for part in parts:
        middle = before + sizes[part] / 2
        found[min(count - 1, int(count * middle / max(total, 1)))].append(part)
        before += sizes[part]
    return [share for share in found if share]


MAX_INLINE_BYTES = 2**12
"""Bytes up to which an array goes with every task rather than by a task of its own."""

MANY_TOGETHER, FEW_TOGETHER = 8, 2
"""Shares whose sums are added up together by one task, each of which takes Dask some milliseconds;
fewer where sums are `LARGE_SUM_BYTES`."""

LARGE_SUM_BYTES = STRIP_BYTES
"""Bytes, as many as are read together."""


class OnCluster(Parted):
    """Rows in parts, held by workers.

    Parts are loaded by tasks and known to the driver by their futures, so that Dask loads again
    what it loses. A product is a task for all parts that a thread of a worker has to do (see
    `shares`), and for sums a binary tree of all parts; what all parts are given travels as the
    result of a task, and what each part has its own share of, with its task. The bits are
    the same whichever worker does which.

    Parameters
    ----------
    client : distributed.Client
    shards : Shards
    """

    storage = "dask"

    def __init__(self, client: Any, shards: Shards) -> None:
        self.workers, self.shards = Workers(client), shards
        self._rows: list[Any] = [None] * len(shards)  # futures
        self._facts: list[Any] = [None] * len(shards)  # likewise, once they are known
        self._attempt = 0
        self._moving: list[tuple[str, Any]] = []  # workers, and futures of what they are to get
        self._sizes = [
            length * shards.shape[1] * shards.dtype.itemsize for length in shards.lengths
        ]
        super().__init__(shards.lengths, shards.shape[1], shards.dtype)

    @property
    def given(self) -> Any:
        """The shards."""
        return self.shards

    def same_as(self, other: Probes) -> bool:
        """Return whether they are of the same files, unchanged, of the same array, or equal."""
        same = isinstance(other, OnCluster) and self.shards[:] == other.shards[:]
        return same or super().same_as(other)

    def place(self, part: int, row: int) -> str:
        """Return the file and row."""
        return self.shards[part].row(row)

    # --- what is on the workers ----------------------------------------------------------------

    def _hold(self) -> None:
        """Have every part loaded, or being so, that is not lost for good."""
        there = self.workers.held(self._rows)
        wanted = [part for part, held in enumerate(there) if not held]
        if wanted:
            for part in wanted:  # before others of the same name are asked for
                self._rows[part] = self._facts[part] = None
            futures = self.shards.submit(self.workers.client, wanted, self._attempt)
            for part, future in zip(wanted, futures, strict=True):
                self._rows[part] = future
            self._attempt += 1
        if self._held_norms is not None:
            there = self.workers.held(self._facts)
            lacking = [part for part, held in enumerate(there) if not held]
            for part, future in zip(lacking, self._surveyed(lacking), strict=True):
                self._facts[part] = future

    def _surveyed(self, parts: Sequence[int]) -> list[Any]:
        """Return futures of norms and exponents."""
        if not parts:
            return []
        client, name = self.workers.client, f"quadsense_survey-{uuid.uuid4().hex}"
        keys = [f"{name}-{part}" for part in parts]
        rows = [self._rows[part] for part in parts]
        return list(client.map(surveyed, rows, dtype=self.dtype.str, key=keys))

    def _found_facts(self) -> list[Any]:
        """Return norms and exponents of every part, which the workers keep too."""

        def ask() -> list[Any]:
            self._hold()
            self._facts = self._surveyed(range(len(self.shards)))
            return self._facts

        self._passes[0] += 1
        return self.workers.results(ask)

    # --- every part ----------------------------------------------------------------------------

    def _shares(self, parts: Sequence[int]) -> list[list[int]]:
        """Return parts, those together that one thread of a worker has to do."""
        holders, threads = self.workers.holders(self._rows)
        self._moving = [
            (worker, future)
            for worker, future in self._moving
            if worker in threads and future.status == "pending"
        ]
        if not self._moving:
            for part, worker in moves(holders, threads, self._sizes).items():
                self._moving.append((worker, self._moved(part, worker)))
        return shared_out(parts, holders, threads, self._sizes)

    def _moved(self, part: int, worker: str) -> Any:
        """Return a future that is done when a worker has a part, without waiting for it."""
        held = self._rows[part], self._facts[part]
        key = f"quadsense_move-{uuid.uuid4().hex}"
        return self.workers.client.submit(nothing, *held, workers=[worker], key=key)

    def _tasks(
        self,
        work: Work,
        shared: Sequence[Any],
        split: Sequence[Any],
        shares: list[list[int]],
        places: dict[int, int],
        summed_of: int = 0,
    ) -> list[Any]:
        """Return what `work` makes of some parts, one task per share, not yet submitted.

        Of arrays with one entry per row of all parts, each part gets its share; of lists, with one
        entry per wanted part, its own. Sums are of a tree of `summed_of` parts.
        """
        from dask import delayed

        name = work if isinstance(work, str) else work.__name__
        name = f"quadsense_{name}-{uuid.uuid4().hex}"
        common = [self._sent(each) for each in shared]
        task = delayed(sums_of_share if summed_of else of_share, pure=False, traverse=False)
        found = []
        for number, share in enumerate(shares):
            own = [
                [
                    each[places[part]] if isinstance(each, list) else each[self.span(part)]
                    for each in split
                ]
                for part in share
            ]
            rows, facts = ([held[part] for part in share] for held in (self._rows, self._facts))
            first = (share, summed_of) if summed_of else ()
            found.append(
                task(*first, work, self.dtype.str, own, *rows, *facts, *common,
                     dask_key_name=f"{name}-{number}")
            )  # fmt: skip
        return found

    def _sent(self, value: Any) -> Any:
        """Return an array as the result of a task, which can be repeated; others as they are."""
        from dask import delayed

        if getattr(value, "nbytes", 0) <= MAX_INLINE_BYTES:
            return value
        key = f"quadsense_shared-{uuid.uuid4().hex}"
        return delayed(same, pure=False, traverse=False)(value, dask_key_name=key)

    def _ask(self, tasks: Any) -> Any:
        """Return futures of tasks."""
        import dask

        # Shares of vectors go with their tasks, by design.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self.workers.client.compute(tasks, optimize_graph=False)

    def each(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> list[Any]:
        """Return what `work` makes of every part."""
        self._passes[0] += 1
        return self._some(work, range(len(self.shards)), shared, split)

    def _some(
        self,
        work: Work,
        parts: Sequence[int],
        shared: Sequence[Any] = (),
        split: Sequence[Any] = (),
    ) -> list[Any]:
        """Return what `work` makes of some parts."""
        places = {part: place for place, part in enumerate(parts)}
        shares: list[list[int]] = []

        def ask() -> Any:
            self._hold()
            shares[:] = self._shares(parts)
            return self._ask(self._tasks(work, shared, split, shares, places))

        results = self.workers.results(ask)
        found: list[Any] = [None] * len(parts)
        for share, values in zip(shares, results, strict=True):
            for part, value in zip(share, values, strict=True):
                found[places[part]] = value
        return found

    def total(self, work: Work, shared: Sequence[Any] = (), split: Sequence[Any] = ()) -> Any:
        """Return the sum of what `work` makes of every part: of neighbours first, and so on."""
        from dask import delayed

        count = len(self.shards)

        def ask() -> Any:
            self._hold()
            tasks = self._tasks(work, shared, split, self._shares(range(count)), {}, count)
            join, name, together = (
                delayed(joined, pure=False),
                uuid.uuid4().hex,
                self._together(work),
            )
            level = 0
            while len(tasks) > 1:
                tasks = [
                    join(count, *tasks[i : i + together],
                         dask_key_name=f"quadsense_add-{name}-{level}-{i}")
                    for i in range(0, len(tasks), together)
                ]  # fmt: skip
                level += 1
            return self._ask(tasks[0])

        self._passes[0] += 1
        (found,) = self.workers.results(ask).values()
        # What came from a worker in this process, or over the wire, may be read only.
        return np.require(found, requirements="W")

    def _together(self, work: Work) -> int:
        """Return how many sums one task adds up."""
        order = products.size_of(self.n, self.is_complex) if work is normal_of else self.n
        size = order * order * self.dtype.itemsize
        return FEW_TOGETHER if size > LARGE_SUM_BYTES else MANY_TOGETHER

    # --- some rows -----------------------------------------------------------------------------

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`."""
        parts, ranges = self._ranges(first, last)
        if not parts:
            return np.empty((0, self.n), self.dtype)
        return np.concatenate(self._some(cut, parts, split=(ranges,)))

    def take(self, index: Array) -> Array:
        """Return those rows."""
        index = to_numpy(index)
        found = np.empty((index.size, self.n), self.dtype)
        chosen = list(self.parts_of(index))
        if chosen:
            rows = self._some(
                "take", [part for part, _, _ in chosen], split=([own for _, own, _ in chosen],)
            )
            for (_, _, places), values in zip(chosen, rows, strict=True):
                found[places] = values
        return found

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2``: the fewer of the two go to where the others are."""
        if rows.stop - rows.start > columns.stop - columns.start:
            return self.gram(columns, rows).T
        few = self.block(rows.start, rows.stop)
        parts, ranges = self._ranges(columns.start, columns.stop)
        if not parts or not len(few):
            return np.empty((len(few), columns.stop - columns.start))
        return np.concatenate(self._some(moduli, parts, (few,), (ranges,)), axis=1) ** 2

    def _ranges(self, first: int, last: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Return parts that have rows of a range, and which of theirs these are."""
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
