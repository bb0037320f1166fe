"""Starts are used: dense ones with a rank, feasible ones under psd, cg's fit by minimax."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import gaussian_rows, readings

import quadsense
from quadsense import Status


def low_rank(n, m, rank, complex_):
    rng = np.random.default_rng([n, m, rank, complex_])
    U, X = gaussian_rows(rng, m, n, complex_), gaussian_rows(rng, n, rank, complex_)
    A = X @ X.conj().T
    return U, A, readings(U, A)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("rank", [3, "auto"])
def test_a_dense_start_with_a_rank_that_is_the_answer_is_returned(rank, complex_):
    U, A, b = low_rank(30, 500, 3, complex_)
    result = quadsense.solve(U, b, delta=1e-6, rank=rank, start=A, rng=0, prefer="any")
    assert (result.status, result.n_iter) == (Status.MET, 0)
    assert result.matrix.factor.shape == (30, 3)
    np.testing.assert_allclose(result.A, A, atol=1e-9 * np.abs(A).max())


def test_a_dense_start_near_the_answer_takes_few_steps():
    U, A, b = low_rank(40, 300, 3, False)
    noise = np.random.default_rng(0).standard_normal((40, 40))
    start = A + 1e-3 * (noise + noise.T)
    cold = quadsense.solve(U, b, delta=1e-7, rank=3, rng=0, prefer="any")
    warm = quadsense.solve(U, b, delta=1e-7, rank=3, start=start, rng=0, prefer="any")
    assert warm.status is Status.MET
    assert warm.n_iter <= 4 < cold.n_iter


@pytest.mark.slow
def test_other_starts_with_a_rank_do_no_harm():
    U, A, b = low_rank(30, 500, 3, False)
    for start in (np.zeros((30, 30)), np.eye(30), -A, 1e6 * A):
        for rank in (3, "auto"):
            result = quadsense.solve(U, b, delta=1e-6, rank=rank, start=start, rng=0)
            assert result.status is Status.MET, (start[0, 0], rank)


def test_the_start_of_a_large_order_is_never_formed(monkeypatch):
    monkeypatch.setattr("quadsense.methods.low_rank.starts.MAX_FORMED_ORDER", 10)
    U, A, b = low_rank(30, 500, 3, False)
    result = quadsense.solve(U, b, delta=1e-6, rank=3, start=A, rng=0, prefer="any")
    assert (result.status, result.n_iter) == (Status.MET, 0)


@pytest.mark.parametrize("n", [60, 150, 200])
@pytest.mark.parametrize("rank", [2, None])
def test_psd_stays_at_a_feasible_start(n, rank):
    U, A, b = low_rank(n, 3 * n, rank or n, False)
    for delta in (1e-6 * np.abs(b).max(), 1e-2 * np.abs(b).max()):
        result = quadsense.solve(U, b, delta=delta, psd=True, start=A, prefer="any")
        assert (result.status, result.n_iter) == (Status.MET, 0)
        np.testing.assert_allclose(result.A, A, atol=1e-9 * np.abs(A).max())
    asked = {"delta": 1e-6 * np.abs(b).max(), "psd": True, "prefer": "any"}
    again = quadsense.solve(U, b, start=result, **asked)
    assert (again.status, again.n_iter) == (Status.MET, 0)


def sparse_rows(m, n, each, seed=0):
    """Rows with a few Gaussian entries in random columns."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(m * each)
    places = np.repeat(np.arange(m), each), rng.integers(0, n, m * each)
    return sp.csr_array((values, places), shape=(m, n))


@pytest.mark.parametrize(
    ("rank", "signs", "complex_"),
    [(2, None, False), ((1, 1), [1.0, -1.0], False), (2, None, True)],
)
def test_a_start_given_as_a_factor_is_planned_and_held_as_one(rank, signs, complex_):
    n, m = 65_536, 300
    U, rng = sparse_rows(m, n, 100), np.random.default_rng(1)
    X = gaussian_rows(rng, n, 1 if complex_ else 2, complex_)
    images = np.abs(U @ X) ** 2
    b = images @ (np.ones(X.shape[1]) if signs is None else np.array(signs))
    start = quadsense.SensedMatrix.from_factor(X, signs)
    tracemalloc.start()
    try:
        result = quadsense.solve(
            U, b, delta=1e-3, rank=rank, start=start, rng=0, prefer="any", memory_limit="200 MB"
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.status, result.n_iter) == (Status.MET, 0)
    assert result.plan["memory"] < 200e6 and peak < 200e6  # A alone takes 34 GB


@pytest.mark.parametrize("signs", [None, [1.0, -1.0, -1.0]])
def test_a_factor_of_more_columns_than_asked_gives_its_outermost_eigenvalues(signs):
    rng = np.random.default_rng(0)
    U, X = rng.standard_normal((500, 30)), rng.standard_normal((30, 3))
    X[:, 2] *= 1e-9
    b = (U @ X) ** 2 @ (np.ones(3) if signs is None else np.array(signs))
    start = quadsense.SensedMatrix.from_factor(X, signs)
    rank = 2 if signs is None else (1, 1)
    result = quadsense.solve(U, b, delta=1e-6, rank=rank, start=start, rng=0, prefer="any")
    assert (result.status, result.n_iter) == (Status.MET, 0)


# --- the answer that is known before the first step ------------------------------------------


ASKED = [
    ({"prefer": "center", "psd": True}, 30),
    ({"prefer": "center", "psd": True}, 120),
    ({"prefer": "nearest", "psd": True}, 120),
    ({"prefer": "nearest"}, 30),
    ({"prefer": "least_squares", "psd": True}, 30),
    ({"prefer": "least_squares", "psd": True}, 120),
    ({"prefer": "least_squares"}, 120),
    ({"prefer": "min_trace", "psd": True}, 120),
    ({"prefer": "minimax", "psd": True}, 120),
    ({"prefer": "minimax"}, 120),
    ({"slack": "sum", "psd": True}, 120),
    ({"prefer": "min_trace", "psd": True, "trace": (0.0, 100.0)}, 40),
]


def stream(m, complex_, n=8):
    """Rows, noisy readings of a matrix and their tolerance, one more than m of them."""
    rng = np.random.default_rng(m)
    U, X = gaussian_rows(rng, m + 1, n, complex_), gaussian_rows(rng, n, n, complex_)
    b = readings(U, X @ X.conj().T / n) + 0.1 * rng.uniform(-0.8, 0.8, m + 1)
    return U, b, 0.1


@pytest.mark.parametrize(("asked", "m"), ASKED)
def test_the_same_question_from_its_answer_takes_no_step(asked, m, complex_):
    U, b, delta = stream(m, complex_)
    first = quadsense.solve(U, b, delta=delta, gap=1e-7, **asked)
    again = quadsense.solve(U, b, delta=delta, start=first, gap=1e-7, **asked)
    assert (again.status, again.prefer, again.n_iter) == (first.status, first.prefer, 0)
    assert again.optimal
    np.testing.assert_allclose(again.A, first.A, atol=1e-12 * np.abs(first.A).max())
    assert again.objective == pytest.approx(first.objective, rel=1e-9, abs=1e-20)
    assert again.verify(U, b, delta=delta)


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "m"), ASKED)
def test_one_more_reading_comes_to_the_same_answer_as_without_a_start(asked, m, complex_):
    U, b, delta = stream(m, complex_)
    first = quadsense.solve(U[:-1], b[:-1], delta=delta, gap=1e-7, **asked)
    cold = quadsense.solve(U, b, delta=delta, gap=1e-7, **asked)
    warm = quadsense.solve(U, b, delta=delta, start=first, gap=1e-7, **asked)
    assert (warm.status, warm.optimal) == (cold.status, cold.optimal)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-4, abs=1e-12)
    assert warm.verify(U, b, delta=delta)


def test_a_start_that_is_another_questions_answer_is_no_answer():
    U, b, delta = stream(120, False)
    least = quadsense.solve(U, b, delta=delta, psd=True, prefer="min_trace", gap=1e-6)
    for other in ("center", "nearest", "least_squares", "minimax"):
        cold = quadsense.solve(U, b, delta=delta, psd=True, prefer=other, gap=1e-6)
        warm = quadsense.solve(U, b, delta=delta, psd=True, prefer=other, gap=1e-6, start=least)
        assert (warm.prefer, warm.optimal) == (cold.prefer, True)
        assert warm.objective == pytest.approx(cold.objective, rel=1e-4)


def test_the_center_of_many_readings_is_near_that_of_one_less():
    U, b, delta = stream(200, False)
    first = quadsense.solve(U[:-1], b[:-1], delta=delta, psd=True, prefer="center", gap=1e-7)
    cold = quadsense.solve(U, b, delta=delta, psd=True, prefer="center", gap=1e-7)
    warm = quadsense.solve(U, b, delta=delta, psd=True, prefer="center", gap=1e-7, start=first)
    assert warm.n_iter <= 4 < cold.n_iter


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("lo", "hi"), [(-1.0, 1.0), (-1.0, 0.0), (0.0, 1.0), (-np.inf, 1.0)])
def test_the_least_trace_of_nothing_is_proved(lo, hi, size):
    U = np.random.default_rng(0).standard_normal((12, 4))
    bounds = (np.full(12, lo * size), np.full(12, hi * size))
    result = quadsense.solve(U, bounds=bounds, psd=True, prefer="min_trace")
    assert (result.status, result.objective, result.optimal) == (Status.MET, 0.0, True)
    assert result.n_iter == 0
    assert result.verify(U, bounds=bounds)


def test_a_least_trace_that_is_rounding_is_proved():
    rng = np.random.default_rng(0)
    U, b = rng.standard_normal((12, 4)), 1.0 + rng.uniform(-1, 1, 12)
    for least in (1e-14, 1e-10):
        asked = {"delta": float(b.max()) - least}
        result = quadsense.solve(U, b, psd=True, prefer="min_trace", **asked)
        assert (result.status, result.optimal) == (Status.MET, True)
        assert result.objective < 1e-6
        assert result.verify(U, b, **asked)


def test_a_least_trace_above_rounding_is_not_taken_for_nothing():
    U = np.eye(3)
    bounds = ([1e-6, 0.0, 0.0], [np.inf] * 3)
    result = quadsense.solve(U, bounds=bounds, psd=True, prefer="min_trace")
    assert result.objective == pytest.approx(1e-6, rel=1e-2)
    assert result.objective_bounds[0] == pytest.approx(1e-6, rel=1e-2)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("asked", [{"rank": 2}, {"rank": 3}, {"rank": "auto"}, {"rank": (1, 1)}])
@pytest.mark.parametrize("tolerance", [{}, {"delta": 1e-3}])
def test_a_low_rank_start_that_fits_exactly_takes_no_step(asked, tolerance, complex_):
    rng = np.random.default_rng(0)
    U, X = gaussian_rows(rng, 200, 12, complex_), gaussian_rows(rng, 12, 2, complex_)
    signs = [1.0, -1.0] if isinstance(asked["rank"], tuple) else None
    truth = quadsense.SensedMatrix.from_factor(X, signs)
    b = readings(U, truth.to_dense())
    result = quadsense.solve(U, b, start=truth, rng=0, **asked, **tolerance)
    assert result.status == ("met" if tolerance else "local") and result.n_iter == 0
    np.testing.assert_allclose(result.A, truth.to_dense(), atol=1e-10)
    again = quadsense.solve(U, b, start=result, rng=0, **asked, **tolerance)
    assert again.n_iter == 0
