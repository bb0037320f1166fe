"""Threads: how many BLAS may use, and rows shared out over threads of our own.

NumPy and SciPy bring a BLAS each, whose threads wait for work by spinning, and the rank-k update
that we need most gains little from two of them. Rows are independent, so where it pays BLAS is
held to one thread and each of our threads takes a range of rows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from quadsense.watch import watched, with_watch

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import LibController

T = TypeVar("T")

WORTH_SHARING = 3e7
"""Float64 operations above which a second thread gains more than the 50 us of waking it."""

LITTLE_WORK = 2e6
"""Float64 operations of a product below which one thread is the quickest, whatever is set."""

_ranges: ContextVar[int] = ContextVar("ranges", default=1)


_lock = threading.Lock()
_lookup = threading.Lock()
_holds: dict[str, tuple[int, int]] = {}  # by library: how many hold it, the threads it had


def _libraries() -> tuple[LibController, ...]:
    """The BLAS of NumPy and that of SciPy, looked up once; others wait meanwhile.

    While threadpoolctl looks, a thread that loads a library (Numba's, for the first descent) would
    wait for it and it for that thread, for ever.
    """
    with _lookup:
        return _found_libraries()


@cache
def _found_libraries() -> tuple[LibController, ...]:
    """What `_libraries` says; takes milliseconds.

    Wheels carry theirs in folders named after them, as other packages do; elsewhere all share one.
    """
    from threadpoolctl import ThreadpoolController

    found = tuple(ThreadpoolController().select(user_api="blas").lib_controllers)
    folders = [os.path.dirname(library.filepath) for library in found]
    own = [
        library
        for library, folder in zip(found, folders, strict=True)
        if "numpy" in folder or "scipy" in folder
    ]
    return tuple(own) or found


def _set_threads(library: LibController, count: int) -> None:
    """Set the limit of a library from whichever thread; the caller holds the lock.

    The limit of OpenBLAS is one for the whole process, so threadpoolctl lets only the thread that
    first set it do so again. Ours is counted, so control is taken and given back at once.
    """
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)


def blas_limit() -> int:
    """Threads that the user lets BLAS have, the least of all libraries."""
    with _lock:
        limits = [
            _holds[library.filepath][1] if library.filepath in _holds else library.num_threads
            for library in _libraries()
        ]
    return max(1, min((limit for limit in limits if limit is not None), default=1))


class blas_threads:
    """Hold BLAS to what a method asks for, and put the old limit back.

    The last of several at once to leave puts the limit back. A plain class: it surrounds every
    small solve, and generators would take longer than the rest of it.

    Parameters
    ----------
    policy : {"one", "as set", "one for NumPy", "rows"}
        One thread; what the user has set; that for SciPy's BLAS alone, so that only one of the
        two spins; or one thread, and as many ranges of rows in `by_rows` as BLAS had threads.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def __enter__(self) -> None:
        """Hold."""
        policy = self.policy
        libraries = _libraries()  # also where none is held, before anything else is loaded
        if policy == "as set":
            libraries = ()
        elif policy == "one for NumPy":  # none where NumPy and SciPy share theirs
            libraries = tuple(o for o in libraries if "numpy" in os.path.dirname(o.filepath))
        self.libraries = libraries
        self.token = _ranges.set(blas_limit() if policy == "rows" else 1)
        with _lock:
            for library in libraries:
                count, given = _holds.get(library.filepath) or (0, library.num_threads)
                _holds[library.filepath] = count + 1, given
                if not count and given != 1:
                    _set_threads(library, 1)

    def __exit__(self, *_: object) -> None:
        """Put back."""
        with _lock:
            for library in self.libraries:
                count, given = _holds.pop(library.filepath)
                if count > 1:
                    _holds[library.filepath] = count - 1, given
                elif given != 1:
                    _set_threads(library, given)
        _ranges.reset(self.token)


def for_products_of(flops: float) -> AbstractContextManager[None]:
    """Hold BLAS to one thread where products take no more than `LITTLE_WORK`."""
    return blas_threads("one") if flops <= LITTLE_WORK else nullcontext()


def all_for_blas() -> AbstractContextManager[None]:
    """Give BLAS back the threads of policy "rows", for what is not shared out by rows."""
    count = _ranges.get()
    return nullcontext() if count == 1 else _given_back(count)


@contextmanager
def _given_back(count: int) -> Iterator[None]:
    """Let BLAS have so many threads."""
    token = _ranges.set(1)
    with _lock:
        for library in _libraries():
            _set_threads(library, count)
    try:
        yield
    finally:
        _ranges.reset(token)
        with _lock:
            for library in _libraries():
                _set_threads(library, 1)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: they do not survive a fork."""
    from concurrent.futures import ThreadPoolExecutor  # with queues, which few programs need

    return ThreadPoolExecutor(
        os.cpu_count(), thread_name_prefix="quadsense", initializer=_hold_own_thread
    )


def _hold_own_thread() -> None:
    """Hold BLAS to one thread where its limit is each thread's own (the OpenMP layer)."""
    for library in _libraries():
        if getattr(library, "threading_layer", "") == "openmp":
            library.set_num_threads(1)


def by_rows(
    work: Callable[[int, int], T], m: int, flops: float, most: int | None = None
) -> list[T]:
    """``work(first, last)`` on ranges that cover all rows, at once where that pays.

    Parameters
    ----------
    work : callable
        Must spend its time where Python lets go: NumPy and `quadsense.core.blas`.
    m : int
        Number of rows.
    flops : float
        Cost of all of them.
    most : int, optional
        Most ranges, for work that takes memory in each.
    """
    count = max(1, min(_ranges.get(), most or m, m, int(2.0 * flops / WORTH_SHARING)))
    if count == 1:
        return [work(0, m)]
    edges = [m * i // count for i in range(count + 1)]
    pool = _pool(os.getpid())
    watch = watched()
    try:
        others = [
            pool.submit(with_watch, watch, partial(work, edges[i], edges[i + 1]))
            for i in range(1, count)
        ]
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        return [work(0, m)]
    try:
        first = work(0, edges[1])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]
