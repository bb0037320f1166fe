"""Which parts one task takes: those that one thread of the worker that holds them has to do.

One task per part would cost as many times what Dask takes for a task, and leave to Dask's guesses
which worker does it: a part that is sent to another takes longer than its product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Holders = Sequence[Sequence[str]]
"""Workers that have each part, by address; none where it is being loaded."""

SHARE_BYTES = 2**29
"""Rows of a share, unless a single part is larger: a second of work, so that what is no longer
needed ends soon, and a lost worker does not lose much."""


def shared_out(
    parts: Iterable[int], holders: Holders, threads: Mapping[str, int], sizes: Sequence[int]
) -> list[list[int]]:
    """Parts in shares, each in order; parts that no worker has yet are shares of their own.

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
    """Parts that other workers should have, and who: those that have more pass some on.

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
    """Parts of every worker: of several that have one, who has least to do."""
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
    """Neighbours together, in `count` shares of about the same size, none of them empty."""
    total, before = _load(parts, sizes), 0
    found: list[list[int]] = [[] for _ in range(count)]
    for part in parts:
        middle = before + sizes[part] / 2
        found[min(count - 1, int(count * middle / max(total, 1)))].append(part)
        before += sizes[part]
    return [share for share in found if share]
