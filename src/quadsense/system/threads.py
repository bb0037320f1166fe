"""Threads: BLAS is held to one, and large work is divided over threads of our own.

NumPy and SciPy bring an OpenBLAS each. After a product on several threads, those of its pool keep
a core busy for a tenth of a second, waiting for more, while the other library runs its next
routine. So every public function that computes runs inside `one_blas_thread`. Products of rows,
Gram matrices and Cholesky factorizations that are large enough are divided by `by_rows` over
threads that sleep between calls, as many as the user lets BLAS have.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import wait
from contextvars import ContextVar, Token
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from quadsense.system.watch import watched, with_watch

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import LibController

P = ParamSpec("P")
T = TypeVar("T")

WORTH_SHARING = 3e7
"""Float64 operations above which a second thread gains more than the 50 us of waking it."""

_ranges: ContextVar[int] = ContextVar("ranges", default=1)
"""Ranges that `by_rows` may make at once in this context."""

_lock = threading.RLock()  # `__del__` may run while the same thread has it
_lookup = threading.Lock()
_holders: set[int] = set()  # by id: who holds BLAS to one thread
_given: list[int] = []  # threads that each library had before they were held; empty: none is


class _Library:
    """A BLAS library and its limit, by its own functions where it is OpenBLAS.

    threadpoolctl looks these functions up anew in each call, and lets only the thread that first
    set a limit of OpenBLAS, which is one for the whole process, do so again. Ours is counted.
    """

    def __init__(self, controller: LibController) -> None:
        self.filepath = controller.filepath
        self.is_openmp = getattr(controller, "threading_layer", "") == "openmp"
        self._controller = controller
        own = None if self.is_openmp else _openblas(getattr(controller, "dynlib", None))
        self.get_num_threads: Callable[[], int | None]  # None where that is not known
        self.get_num_threads = controller.get_num_threads if own is None else own[0]
        self.set_num_threads: Callable[[int], Any]  # from whichever thread
        self.set_num_threads = controller.set_num_threads if own is None else own[1]


def _openblas(library: Any) -> tuple[Callable[[], int], Callable[[int], Any]] | None:
    """Return the functions of OpenBLAS that read and set the limit; None of other libraries."""
    for prefix in ("", "scipy_"):
        for suffix in ("", "64_", "_64"):
            found = [
                getattr(library, f"{prefix}openblas_{verb}_num_threads{suffix}", None)
                for verb in ("get", "set")
            ]
            if None not in found:
                return found[0], found[1]  # type: ignore[return-value]
    return None


def _libraries() -> tuple[_Library, ...]:
    """Return the BLAS of NumPy and that of SciPy, looked up once; others wait meanwhile.

    While threadpoolctl looks, a thread that loads a library (Numba's, for the first descent) would
    wait for it and it for that thread, for ever.
    """
    with _lookup:
        return _found_libraries()


@cache
def _found_libraries() -> tuple[_Library, ...]:
    """Return what `_libraries` does; takes milliseconds.

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
    return tuple(_Library(each) for each in own or found)


def _set_threads(library: _Library, count: int) -> None:
    """Set the limit of a library; the caller holds the lock."""
    library.set_num_threads(count)


def blas_limit() -> int:
    """Return how many threads the user lets BLAS have, the smallest limit of all libraries."""
    with _lock:
        given = _given or [each.get_num_threads() or 1 for each in _libraries()]
        return min(given, default=1)


class one_blas_thread:
    """Hold BLAS to one thread, and restore the user's limits at the end.

    The last of several holders at once restores them. What an interrupt in between leaves behind
    is restored once the holder is deleted. A plain class, because it surrounds every small solve.

    Parameters
    ----------
    share : bool, default=True
        Let `by_rows` divide large work over as many threads as the user lets BLAS have.
    """

    def __init__(self, share: bool = True) -> None:
        self.share = share
        self.token: Token[int] | None = None

    def __enter__(self) -> None:
        """Hold."""
        libraries = _libraries()  # before anything else is loaded
        try:
            with _lock:
                _holders.add(id(self))
                if not _given:
                    _given[:] = [each.get_num_threads() or 1 for each in libraries]
                    for library, given in zip(libraries, _given, strict=True):
                        if given != 1:  # nor is it where that is not known
                            _set_threads(library, 1)
            self.token = _ranges.set(blas_limit() if self.share else 1)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Restore."""
        self._release()
        if self.token is not None:
            _ranges.reset(self.token)
            self.token = None

    def __del__(self) -> None:
        """Restore, where `__exit__` was interrupted."""
        if id(self) in _holders:
            self._release()

    def _release(self) -> None:
        with _lock:
            _holders.discard(id(self))
            if _holders:
                return
            for number, given in enumerate(_given):
                if given != 1:
                    _set_threads(_libraries()[number], given)
            _given.clear()


def with_one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that it runs inside `one_blas_thread`."""

    @wraps(function)
    def held(*arguments: P.args, **options: P.kwargs) -> T:
        with one_blas_thread():
            return function(*arguments, **options)

    return held


def shared_by() -> int:
    """Return how many threads large work is divided over here.

    One where nothing holds BLAS: an interrupt may have left what an earlier holder set.
    """
    return _ranges.get() if _holders else 1


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads of this process: they do not survive a fork."""
    from concurrent.futures import ThreadPoolExecutor  # with queues, which few programs need

    return ThreadPoolExecutor(
        os.cpu_count(), thread_name_prefix="quadsense", initializer=_hold_own_thread
    )


def _hold_own_thread() -> None:
    """Hold BLAS to one thread where its limit is each thread's own (the OpenMP layer)."""
    for library in _libraries():
        if library.is_openmp:
            library.set_num_threads(1)


def by_rows(
    work: Callable[[int, int], T],
    m: int,
    flops: float,
    most: int | None = None,
    *,
    triangle: bool = False,
) -> list[T]:
    """Return ``work(first, last)`` of ranges that cover all rows, run at once where that pays.

    Parameters
    ----------
    work : callable
        Must spend its time where Python lets go: NumPy and `quadsense.core.cholesky`.
    m : int
        Number of rows.
    flops : float
        Operations of all of them.
    most : int, optional
        Most ranges, for work that takes memory in each.
    triangle : bool, default=False
        Whether row i takes work in proportion to i, so that later ranges are shorter.
    """
    count = max(1, min(shared_by(), most or m, m, int(2.0 * flops / WORTH_SHARING)))
    if count == 1:
        return [work(0, m)]
    power = 0.5 if triangle else 1.0
    edges = [int(m * (i / count) ** power) for i in range(count)] + [m]
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
