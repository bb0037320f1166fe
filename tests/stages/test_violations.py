"""Setting measurements aside: never more than allowed, never a false proof, within its time."""

import dataclasses
import itertools
import time

import numpy as np
import pytest
from helpers import features, sampled
from scipy.optimize import linprog

import quadsense
from quadsense import Status
from quadsense.proofs import infeasible
from quadsense.proofs.infeasible import smallest_hitting_set
from quadsense.stages import runs, violations


def _feasible(U, lo, hi):
    """Whether some symmetric matrix is within the intervals, by a linear program."""
    G = features(U)
    finite_hi, finite_lo = np.isfinite(hi), np.isfinite(lo)
    A = np.concatenate([G[finite_hi], -G[finite_lo]])
    b = np.concatenate([hi[finite_hi], -lo[finite_lo]])
    found = linprog(np.zeros(G.shape[1]), A_ub=A, b_ub=b, bounds=(None, None), method="highs")
    return found.status == 0


def _some_subset_works(U, lo, hi, k):
    m = len(U)
    return any(
        _feasible(np.delete(U, rows, axis=0), np.delete(lo, rows), np.delete(hi, rows))
        for size in range(k + 1)
        for rows in itertools.combinations(range(m), size)
    )


@pytest.mark.parametrize("seed", sampled(range(60), 5))
def test_the_verdict_is_that_of_all_subsets(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    m = n * (n + 1) // 2 + int(rng.integers(2, 5))
    U = rng.standard_normal((m, n))
    A = rng.standard_normal((n, n))
    b = np.einsum("ij,jk,ik->i", U, A + A.T, U)
    wrong = rng.choice(m, int(rng.integers(0, min(m, k + 2))), replace=False)
    b[wrong] += rng.choice([-3.0, 3.0], wrong.size)
    delta = 0.05 * np.ones(m)
    works = _some_subset_works(U, b - delta, b + delta, k)
    result = quadsense.solve(U, b, delta=delta, allow_violations=k)
    assert result.status is (Status.MET if works else Status.INFEASIBLE)
    assert result.set_aside.size <= k
    assert result.verify(U, b)
    fewer = result.set_aside.size - 1
    assert not works or fewer < 0 or not _some_subset_works(U, b - delta, b + delta, fewer)
    assert result.verdict.fewest == (works and fewer >= 0)


def test_that_no_fewer_suffice_is_checked_from_the_data():
    p = quadsense.datasets.gaussian(4, 40, seed=2)
    b = p.b.copy()
    b[[5, 30]] += 2.0, -1.0
    result = quadsense.solve(p.U, b, delta=0.01, allow_violations=4)
    assert result.set_aside.tolist() == [5, 30] and result.verdict.fewest
    assert "Rows 5, 30 set aside; no smaller set is enough" in result.message
    claim = result.certificate
    assert claim.verify(p.U, b)
    for dual in (claim.dual[:1], np.zeros_like(claim.dual)):
        assert not dataclasses.replace(claim, dual=dual).verify(p.U, b)
    one = quadsense.solve(p.U, np.where(np.arange(40) == 5, p.b, b), delta=0.01, allow_violations=4)
    assert "Row 30 set aside; with it nothing fits" in one.message


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_zero_that_violates_no_more_than_allowed_is_an_answer(psd, k):
    rng = np.random.default_rng(k)
    U = rng.standard_normal((12, 3))
    b = 0.01 * rng.uniform(-1, 1, 12)
    b[:k] = -1.0  # a positive semidefinite matrix never reads below zero
    result = quadsense.solve(U, b, delta=0.02, psd=psd, allow_violations=k)
    assert result.status is Status.MET
    assert result.set_aside.size <= k
    assert result.verify(U, b)


def test_rank_is_kept_when_measurements_are_set_aside():
    for seed in range(3):
        p = quadsense.datasets.gaussian(n=8, m=60, rank=2, seed=seed)
        b = p.b.copy()
        b[[3, 17]] += 1.0
        result = quadsense.solve(p.U, b, delta=1e-6, rank=2, allow_violations=3, rng=0)
        assert result.status is Status.MET
        assert np.linalg.matrix_rank(result.A, tol=1e-9) <= 2
        np.testing.assert_array_equal(result.set_aside, [3, 17])
        assert result.verify(p.U, b)


def test_more_contradictory_rows_of_zeros_than_may_be_set_aside_are_infeasible():
    U = np.zeros((5, 2))
    U[:2] = np.eye(2)
    b = np.array([1.0, 1.0, 2.0, 3.0, 4.0])
    enough = quadsense.solve(U, b, delta=0.1, allow_violations=3)
    assert enough.status is Status.MET
    np.testing.assert_array_equal(enough.set_aside, [2, 3, 4])
    short = quadsense.solve(U, b, delta=0.1, allow_violations=2)
    assert short.status is Status.INFEASIBLE
    assert short.verify(U, b)
    # The same proofs do not show it for one row more.
    more = dataclasses.replace(short.certificate, allowed=3)
    assert not more.verify(U, b)


@pytest.mark.slow
@pytest.mark.parametrize("is_complex", [False, True])
def test_planted_outliers_are_found(is_complex):
    """10% of m, m twice the unknowns; the choice is combinatorial, and one of 20 is missed."""
    n, found = 8, 0
    m = 2 * (n * n if is_complex else n * (n + 1) // 2)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p = quadsense.datasets.gaussian(n, m, complex=is_complex, seed=seed)
        b = p.b + 0.01 * rng.uniform(-1, 1, m)
        planted = np.sort(rng.choice(m, m // 10, replace=False))
        b[planted] += rng.choice([-1, 1], planted.size) * rng.uniform(0.2, 3.0, planted.size)
        result = quadsense.solve(p.U, b, delta=0.01, allow_violations=planted.size)
        assert result.status in (Status.MET, Status.UNDECIDED)  # never a false proof
        found += result.status is Status.MET
        kept = np.setdiff1d(np.arange(m), result.set_aside)
        assert result.success == bool(np.all(np.abs(result.residuals[kept]) <= 0.01))
        assert result.set_aside.size <= planted.size
    assert found >= 19


@pytest.mark.slow
def test_good_data_set_nothing_aside():
    rng = np.random.default_rng(12)
    p = quadsense.datasets.gaussian(5, 100, seed=12)
    b = p.b + 0.01 * rng.uniform(-1, 1, 100)
    fine = quadsense.solve(p.U, b, delta=0.01, allow_violations=10)
    assert fine.status is Status.MET and fine.set_aside.size == 0
    b[:8] += 1.0
    enough = quadsense.solve(p.U, b, delta=0.01, allow_violations=20)
    assert enough.status is Status.MET
    assert enough.set_aside.size <= 20
    short = quadsense.solve(p.U, b, delta=0.01, allow_violations=4, time_limit=20.0)
    assert short.status in (Status.INFEASIBLE, Status.UNDECIDED)
    assert short.set_aside.size == 0


def test_the_time_limit_covers_the_search(monkeypatch):
    """Every clock reads later by a second a look, so the limit is over after a few."""
    p = quadsense.datasets.gaussian(6, 60, seed=0)
    rng = np.random.default_rng(0)
    b = p.b + rng.standard_normal(60)
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    result = quadsense.solve(p.U, b, delta=1e-3, allow_violations=5, time_limit=300.0)
    assert result.status is Status.TIME_LIMIT
    assert next(ticks) < 2000
    assert result.A.shape == (6, 6)


def _far_off(m=11, n=3):
    """More readings are off than may be set aside, which takes some iterations to show."""
    p = quadsense.datasets.gaussian(n, m, seed=3)
    b = p.b.copy()
    b[[1, 4, 9]] += 50.0, -40.0, 30.0
    return p.U, b


@pytest.mark.parametrize("psd", [False, True])
def test_a_search_of_fits_cut_short_ends_as_they_do(psd):
    U, b = _far_off()
    if not psd:  # a search is made only where the run of all was not cut short, or as here
        U[9] = 0.0
    question = {"delta": 1e-4, "psd": psd, "allow_violations": 2, "prefer": "any"}
    whole = quadsense.solve(U, b, **question)
    assert whole.status is Status.INFEASIBLE and whole.verify(U, b)
    result = quadsense.solve(U, b, **question, max_iter=1)
    assert result.status is Status.MAX_ITER
    assert "no such set found by fits of max_iter = 1" in result.message


@pytest.mark.slow
def test_a_callback_ends_the_whole_search():
    U, b = _far_off()
    kept = np.setdiff1d(np.arange(11), [1, 4, 9])
    calls = []

    def stop(intermediate):
        calls.append(intermediate.n_iter)
        if len(calls) >= most:
            raise StopIteration

    most = 10**6
    free = quadsense.solve(U, b, delta=1e-4, allow_violations=2, callback=stop)
    assert free.status is Status.INFEASIBLE
    alone = len(calls)
    for most in range(1, alone + 1, 7):
        calls.clear()
        result = quadsense.solve(U, b, delta=1e-4, allow_violations=2, callback=stop)
        assert result.status is Status.INTERRUPTED
        assert "stopped by the callback" in result.message.lower()
        assert len(calls) == most  # nothing runs any further
    three = quadsense.solve(U, b, delta=1e-4, allow_violations=3)
    assert three.status is Status.MET
    np.testing.assert_array_equal(np.setdiff1d(np.arange(11), three.set_aside), kept)


def test_time_that_is_left_only_to_check_what_was_found_is_over_too(monkeypatch):
    """A run stops early enough to be checked: the clock has not reached the limit by then."""
    U, b = _far_off()
    monkeypatch.setattr(runs, "_seconds_to_finish", lambda *_: (1e3, 0.0))
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    result = quadsense.solve(U, b, delta=1e-4, allow_violations=2, time_limit=200.0)
    assert result.status is Status.TIME_LIMIT
    assert "time_limit = 200" in result.message


def test_rows_that_may_be_exchanged_for_each_other_do_not_end_the_process():
    # HiGHS, given rows whose costs are the same, ended in a segmentation fault here.
    lines = (
        "11111111 10110101 11100110 11110001 11010101 01110101 10110110 11100011 01010111 "
        "11110010 10100111 01110110 11010011 01100111 10010111 00110111 11010110 11100101 "
        "10110011 11000111 01110011 11110100 10101101 11011010 01011101 11101010 00011111 "
        "01101101 10111010 01011110 11101001 10011011 00111101 11101100 01011011 10101110"
    )
    supports = [np.array(list(line)) == "1" for line in lines.split()]
    for find in (smallest_hitting_set, infeasible._by_branch_and_bound):
        found = find(supports)
        assert found.size == 3 and all(support[found].any() for support in supports)


@pytest.mark.parametrize("find", [smallest_hitting_set, infeasible._by_branch_and_bound])
def test_the_smallest_hitting_set_is_that_of_brute_force(find):
    rng = np.random.default_rng(0)
    for _ in range(50):
        m, count = int(rng.integers(2, 8)), int(rng.integers(1, 7))
        supports = [rng.random(m) < 0.4 for _ in range(count)]
        supports = [s if s.any() else np.eye(1, m, 0, dtype=bool)[0] for s in supports]
        best = next(
            size
            for size in range(1, m + 1)
            for rows in itertools.combinations(range(m), size)
            if all(s[list(rows)].any() for s in supports)
        )
        found = find(supports)
        assert found.size == best
        assert all(s[found].any() for s in supports)


def test_a_low_rank_is_not_sought_where_no_rank_is_left(monkeypatch):
    rng = np.random.default_rng(0)
    U, ran = rng.standard_normal((8, 3)), []
    run = violations.run_method

    def counted(request, method, *others):
        ran.append(method)
        return run(request, method, *others)

    monkeypatch.setattr(violations, "run_method", counted)
    b = -rng.uniform(1.0, 2.0, 8)  # nothing reads less than 0
    result = quadsense.solve(U, b, delta=0.1, rank=3, allow_violations=3, rng=0)
    assert result.status == "infeasible", result.message
    assert "psd" in ran and "low_rank" not in ran
