"""Threads: BLAS held and let go, and rows shared out."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers import gaussian_rows, unit
from threadpoolctl import threadpool_limits

from quadsense import threads
from quadsense.core import products
from quadsense.core.blas import multiply_triangle
from quadsense.core.products import adjoint, forward


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
def test_rows_shared_out_give_the_same_products(
    dtype: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    U = unit(gaussian_rows(rng, 1000, 9, dtype.startswith("complex"))).astype(dtype)
    y = np.random.default_rng(2).standard_normal(1000)
    monkeypatch.setattr(products, "_PLAIN_FLOPS", {"f": 0, "c": 0})
    S = adjoint(U, y)
    image = forward(U, S)
    used = set()
    take = np.take

    def noting(*args: Any, **options: Any) -> Any:
        used.add(threading.get_ident())
        time.sleep(0.01)  # so that one thread cannot do the work of all
        return take(*args, **options)

    monkeypatch.setattr(threads, "WORTH_SHARING", 1.0)
    monkeypatch.setattr(threads, "blas_limit", lambda: 3)
    monkeypatch.setattr(np, "take", noting)
    eps = np.finfo(U.dtype).eps
    with threads.blas_threads("rows"):
        np.testing.assert_allclose(adjoint(U, y), S, atol=1000 * eps)
        np.testing.assert_array_equal(forward(U, S), image)
    assert len(used) == 3


def test_ranges_of_rows_cover_all_and_pass_errors_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "blas_limit", lambda: 5)
    with threads.blas_threads("rows"):
        ranges = threads.by_rows(lambda first, last: (first, last), 23, 1e12)
        assert threads.by_rows(lambda first, last: (first, last), 23, 1.0) == [(0, 23)]
        with pytest.raises(ZeroDivisionError):
            threads.by_rows(lambda first, last: 1 // (23 - last), 23, 1e12)
    assert len(ranges) == 5
    assert [i for first, last in ranges for i in range(first, last)] == list(range(23))
    assert len(threads.by_rows(lambda first, last: 0, 23, 1e12)) == 1  # outside, as ever


@pytest.mark.usefixtures("two_threads")
def test_policies_put_the_limits_of_blas_back() -> None:
    for policy in ("one", "as set", "one for NumPy", "rows"):
        with threads.blas_threads(policy):
            assert min(limits()) == (2 if policy == "as set" else 1)
            with threads.all_for_blas():
                assert min(limits()) == (2 if policy in ("as set", "rows") else 1)
        assert threads.blas_limit() == min(limits()) == 2


def limits() -> list[int]:
    return [library.num_threads for library in threads._libraries()]


@pytest.fixture
def two_threads() -> Iterator[None]:
    """As on a machine of two cores, wherever the tests run."""
    with threadpool_limits(2):
        yield


@pytest.mark.usefixtures("two_threads")
def test_solves_at_once_leave_the_limit_of_blas_as_it_was() -> None:
    """Each in a thread of its own, the first to come being the first to go."""
    assert set(limits()) == {2}
    both_in, first_out = threading.Barrier(2), threading.Event()
    seen = []

    def first() -> None:
        with threads.blas_threads("one"):
            both_in.wait()
        seen.append(limits())
        first_out.set()

    def second() -> None:
        both_in.wait()
        with threads.blas_threads("rows"):
            first_out.wait()
            seen.append(limits())

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(first), pool.submit(second)]:
            done.result()
    assert all(limit == 1 for limit in seen[1])
    assert set(limits()) == {2}
    with threadpool_limits(1):  # the user's word still counts, from any thread
        assert set(limits()) == {1}
        assert threads.blas_limit() == 1


def test_rows_are_not_shared_out_when_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(threads, "blas_limit", lambda: 3)
    with threads.blas_threads("rows"):
        monkeypatch.setattr(threads._pool(os.getpid()), "submit", refuse)
        assert threads.by_rows(lambda first, last: (first, last), 23, 1e12) == [(0, 23)]


def test_triangles_are_refused_in_the_wrong_order() -> None:
    with pytest.raises(ValueError, match="Fortran"):
        multiply_triangle(np.triu(np.ones((3, 3))), np.ones((2, 3)))


def test_nobody_loads_libraries_while_blas_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup holds the loader's lock and wants the interpreter's: loading is the reverse."""
    import threadpoolctl

    inside, go_on, entered = threading.Event(), threading.Event(), threading.Event()
    lookups = []

    class Slow(threadpoolctl.ThreadpoolController):
        def __init__(self) -> None:
            lookups.append(self)
            inside.set()
            assert go_on.wait(60.0)
            super().__init__()

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Slow)
    threads._found_libraries.cache_clear()

    def first() -> None:
        with threads.blas_threads("one"):
            pass

    def second() -> None:
        with threads.blas_threads("as set"):  # holds nothing, yet must wait before it goes on
            entered.set()

    workers = [threading.Thread(target=first), threading.Thread(target=second)]
    workers[0].start()
    assert inside.wait(60.0)
    workers[1].start()
    assert not entered.wait(0.2)
    go_on.set()
    for worker in workers:
        worker.join()
    assert entered.is_set()
    assert len(lookups) == 1
