"""Threads: BLAS held to one and restored, and large work divided over our own."""

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

import quadsense
from quadsense import next_probe, ranges, sigma
from quadsense.core import cholesky, products
from quadsense.core.cholesky import multiply_triangle
from quadsense.core.products import adjoint, forward
from quadsense.methods.conic import system
from quadsense.result import certificate
from quadsense.stages import answer
from quadsense.system import threads


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
    with threads.one_blas_thread():
        np.testing.assert_allclose(adjoint(U, y), S, atol=1000 * eps)
        np.testing.assert_allclose(forward(U, S), image, atol=1000 * eps)
    assert len(used) == 3


def test_ranges_of_rows_cover_all_and_pass_errors_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "blas_limit", lambda: 5)
    with threads.one_blas_thread():
        ranges = threads.by_rows(lambda first, last: (first, last), 23, 1e12)
        assert threads.by_rows(lambda first, last: (first, last), 23, 1.0) == [(0, 23)]
        with pytest.raises(ZeroDivisionError):
            threads.by_rows(lambda first, last: 1 // (23 - last), 23, 1e12)
    assert len(ranges) == 5
    assert [i for first, last in ranges for i in range(first, last)] == list(range(23))
    assert len(threads.by_rows(lambda first, last: 0, 23, 1e12)) == 1  # outside, as ever


def test_what_an_interrupted_holder_left_divides_nothing() -> None:
    token = threads._ranges.set(4)
    try:
        assert threads.by_rows(lambda first, last: (first, last), 23, 1e12) == [(0, 23)]
        with threads.one_blas_thread(share=False):
            assert threads.shared_by() == 1
    finally:
        threads._ranges.reset(token)


def limits() -> list[int]:
    return [library.get_num_threads() for library in threads._libraries()]


@pytest.fixture
def two_threads() -> Iterator[None]:
    """As on a machine of two cores, wherever the tests run."""
    with threadpool_limits(2):
        yield


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Limits of BLAS during Cholesky factorizations and proofs."""
    found: list[int] = []

    def noting(function: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            found.extend(limits())
            return function(*args, **options)

        return noted

    for module, name in (
        (system, "factor_upper"), (ranges, "objective_bound"), (answer, "make_objective"),
        (certificate, "evaluate"), (next_probe, "pseudoinverse"), (sigma, "pseudoinverse"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    return found


CALLS: dict[str, Any] = {
    "default": lambda p: quadsense.solve(p.U, p.b, delta=0.01),
    "min_trace": lambda p: quadsense.solve(p.U, p.b, delta=0.01, psd=True, prefer="min_trace"),
    "center": lambda p: quadsense.solve(p.U, p.b, delta=0.01, psd=True, prefer="center"),
    "interval": lambda p: quadsense.interval(p.U, p.b, delta=0.01),
    "estimate_sigma": lambda p: quadsense.estimate_sigma(p.U, p.b),
}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", CALLS)
def test_every_stage_runs_with_one_blas_thread(name: str, seen: list[int]) -> None:
    n, m = (6, 40) if name == "estimate_sigma" else (70, 250)  # large enough to gain by threads
    CALLS[name](quadsense.datasets.gaussian(n=n, m=m, seed=0))
    assert set(seen) == {1}
    assert set(limits()) == {2}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("ask", ["verify", "next_probe", "interval"])
def test_questions_to_a_result_run_with_one_blas_thread(ask: str, seen: list[int]) -> None:
    p = quadsense.datasets.gaussian(n=6, m=15, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.01, prefer="any")
    seen.clear()
    {
        "verify": lambda: result.certificate.verify(p.U, p.b),
        "next_probe": lambda: result.next_probe(np.eye(6)),
        "interval": lambda: result.interval((0, 1)),
    }[ask]()
    assert set(seen) == {1}
    assert set(limits()) == {2}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_limits_are_restored_after_exceptions(error: type[BaseException]) -> None:
    p = quadsense.datasets.gaussian(n=6, m=15, seed=0)
    inside = []

    def callback(_: Any) -> None:
        inside.extend(limits())
        raise error

    with pytest.raises(error):
        quadsense.solve(p.U, p.b, delta=1e-9, callback=callback)
    with pytest.raises(ValueError, match="delta"):
        quadsense.solve(p.U, p.b, delta=-1.0)
    assert set(inside) == {1}
    assert set(limits()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_limits_are_restored_when_an_interrupt_skips_the_exit() -> None:
    holder = threads.one_blas_thread()
    holder.__enter__()
    assert set(limits()) == {1}
    with threads.one_blas_thread():
        pass
    assert set(limits()) == {1}
    del holder
    assert set(limits()) == {2}


def test_a_lower_limit_of_the_user_is_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def noting(*args: Any) -> None:
        counts.append(args[1])
        set_threads(*args)

    set_threads = threads._set_threads
    monkeypatch.setattr(threads, "_set_threads", noting)
    with threadpool_limits(1):
        quadsense.solve(np.eye(3), np.ones(3), delta=0.1)
        with threads.one_blas_thread():
            assert threads.shared_by() == 1
    assert counts == []


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_a_factorization_divided_over_threads_is_that_of_lapack(
    dtype: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    n = 700
    A = gaussian_rows(rng, n, n, dtype.startswith("complex")).astype(dtype)
    M = np.asfortranarray(A @ A.conj().T + n * np.eye(n)).astype(dtype)
    expected = np.linalg.cholesky(M).conj().T
    monkeypatch.setattr(threads, "blas_limit", lambda: 3)
    monkeypatch.setattr(threads, "WORTH_SHARING", 1.0)
    monkeypatch.setattr(cholesky, "MIN_SHARED_FLOPS", 1.0)
    broken = M.copy(order="F")
    broken[n - 3, n - 3] = -1.0
    with threads.one_blas_thread():
        found = [cholesky.factor_upper(M.copy(order="F")) for _ in range(2)]
        info = cholesky.factor_upper(broken)[1]
        inner = cholesky.inner_upper(np.asfortranarray(A.real))
        moduli = cholesky.squared_moduli(A)
    (R, zero), (again, _) = found
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(np.triu(R), expected, atol=100.0 * eps * np.sqrt(n))
    np.testing.assert_array_equal(np.triu(R), np.triu(again))
    below = np.tril(np.ones((n, n), bool), -cholesky.PANEL)
    np.testing.assert_array_equal(R[below], M[below])
    assert (zero, info) == (0, n - 2)
    np.testing.assert_allclose(np.triu(inner), np.triu(A.real.T @ A.real), atol=10.0 * n * eps)
    np.testing.assert_allclose(moduli, np.abs(A @ A.conj().T) ** 2, rtol=1e-3, atol=100 * n * eps)


@pytest.mark.usefixtures("two_threads")
def test_solves_at_once_leave_the_limit_of_blas_as_it_was() -> None:
    """Each in a thread of its own, the first to come being the first to go."""
    assert set(limits()) == {2}
    both_in, first_out = threading.Barrier(2), threading.Event()
    seen = []

    def first() -> None:
        with threads.one_blas_thread():
            both_in.wait()
        seen.append(limits())
        first_out.set()

    def second() -> None:
        both_in.wait()
        with threads.one_blas_thread():
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
    with threads.one_blas_thread():
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
        with threads.one_blas_thread():
            pass

    def second() -> None:
        with threads.one_blas_thread():
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
