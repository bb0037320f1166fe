"""Threads: how many BLAS may use, and rows shared out over threads of our own.

NumPy and SciPy bring a BLAS each, whose threads wait for work by spinning, and the rank-k update
that we need most gains little from two of them. Rows are independent, so where it pays BLAS is
held to one thread and each of our threads takes a range of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")

WORTH_SHARING = 3e7
"""Float64 operations above which a second thread gains more than the 50 us of waking it."""

_ranges: ContextVar[int] = ContextVar("ranges", default=1)


@cache
def _controller() -> ThreadpoolController:
    """The BLAS libraries of this process; looking them up takes milliseconds, once."""
    return ThreadpoolController().select(user_api="blas")


@cache
def _of_numpy() -> ThreadpoolController:
    """NumPy's own BLAS, if it has one (nothing to hold, where NumPy and SciPy share theirs)."""
    libraries = _controller().lib_controllers
    return _controller().select(filepath=[o.filepath for o in libraries if "numpy" in o.filepath])


def blas_limit() -> int:
    """Threads that BLAS may use as it is set now, the least of all libraries."""
    known = [lib.num_threads for lib in _controller().lib_controllers]
    return max(1, min((n for n in known if n is not None), default=1))


@contextmanager
def blas_threads(policy: str) -> Iterator[None]:
    """Hold BLAS to what a method asks for, and put the old limit back.

    Parameters
    ----------
    policy : {"one", "as set", "one for NumPy", "rows"}
        One thread; what the user has set; that for SciPy's BLAS alone, so that only one of the
        two spins; or one thread, and as many ranges of rows in `by_rows` as BLAS had threads.
    """
    if policy == "as set":
        yield
        return
    if policy == "one for NumPy":
        with _of_numpy().limit(limits=1):
            yield
        return
    token = _ranges.set(blas_limit() if policy == "rows" else 1)
    try:
        with _controller().limit(limits=1):
            yield
    finally:
        _ranges.reset(token)


@contextmanager
def all_for_blas() -> Iterator[None]:
    """Give BLAS back the threads of policy "rows", for a factorisation."""
    if _ranges.get() == 1:
        yield
        return
    with _controller().limit(limits=_ranges.get()):
        yield


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
