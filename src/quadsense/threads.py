"""Threads: how many BLAS may use, and rows shared out over threads of our own.

NumPy and SciPy bring a BLAS each, whose threads wait for work by spinning, and the rank-k update
that we need most gains little from two of them. Rows are independent, so where it pays BLAS is
held to one thread and each of our threads takes a range of rows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

from threadpoolctl import LibController, ThreadpoolController

T = TypeVar("T")

WORTH_SHARING = 3e7
"""Float64 operations above which a second thread gains more than the 50 us of waking it."""

_ranges: ContextVar[int] = ContextVar("ranges", default=1)


_lock = threading.Lock()
_holds: dict[str, tuple[int, int]] = {}  # by library: how many hold it, the threads it had


@cache
def _libraries() -> tuple[LibController, ...]:
    """The BLAS libraries of this process; looking them up takes milliseconds, once."""
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


def blas_limit() -> int:
    """Threads that the user lets BLAS have, the least of all libraries."""
    with _lock:
        held = {path: given for path, (_, given) in _holds.items()}
    limits = (held.get(library.filepath, library.num_threads) for library in _libraries())
    return max(1, min((limit for limit in limits if limit is not None), default=1))


@contextmanager
def _held_to_one(libraries: Iterable[LibController]) -> Iterator[None]:
    """Hold libraries to one thread: the last of several at once to leave puts the limit back."""
    libraries = tuple(libraries)
    with _lock:
        for library in libraries:
            count, given = _holds.get(library.filepath, (0, library.num_threads))
            _holds[library.filepath] = count + 1, given
            library.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            for library in libraries:
                count, given = _holds.pop(library.filepath)
                if count > 1:
                    _holds[library.filepath] = count - 1, given
                else:
                    library.set_num_threads(given)


@contextmanager
def blas_threads(policy: str) -> Iterator[None]:
    """Hold BLAS to what a method asks for, and put the old limit back.

    Parameters
    ----------
    policy : {"one", "as set", "one for NumPy", "rows"}
        One thread; what the user has set; that for SciPy's BLAS alone, so that only one of the
        two spins; or one thread, and as many ranges of rows in `by_rows` as BLAS had threads.
    """
    libraries = () if policy == "as set" else _libraries()
    if policy == "one for NumPy":  # none where NumPy and SciPy share theirs
        libraries = tuple(library for library in libraries if "numpy" in library.filepath)
    token = _ranges.set(blas_limit() if policy == "rows" else 1)
    try:
        with _held_to_one(libraries):
            yield
    finally:
        _ranges.reset(token)


@contextmanager
def all_for_blas() -> Iterator[None]:
    """Give BLAS back the threads of policy "rows", for what is not shared out by rows."""
    count = _ranges.get()
    if count == 1:
        yield
        return
    token = _ranges.set(1)
    for library in _libraries():
        library.set_num_threads(count)
    try:
        yield
    finally:
        _ranges.reset(token)
        for library in _libraries():
            library.set_num_threads(1)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: they do not survive a fork."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="quadsense")


def by_rows(work: Callable[[int, int], T], m: int, flops: float) -> list[T]:
    """``work(first, last)`` on ranges that cover all rows, at once where that pays.

    Parameters
    ----------
    work : callable
        Must spend its time where Python lets go: NumPy and `quadsense.core.blas`.
    m : int
        Number of rows.
    flops : float
        Cost of all of them.
    """
    count = max(1, min(_ranges.get(), m, int(2.0 * flops / WORTH_SHARING)))
    if count == 1:
        return [work(0, m)]
    edges = [m * i // count for i in range(count + 1)]
    pool = _pool(os.getpid())
    others = [pool.submit(work, edges[i], edges[i + 1]) for i in range(1, count)]
    return [work(0, edges[1]), *(other.result() for other in others)]
