"""solve() against CVXPY and HiGHS: 300 small problems, and what the verdicts carry with them."""

import cvxpy as cp
import numpy as np
import pytest
from helpers import cover, deep, features, gaussian_rows, hermitian, readings, sampled
from psd_helpers import smallest_worst_miss
from scipy.optimize import linprog

import quadsense
from quadsense import Status

MARGIN = 2e-5

SEEDS = cover(range(6), [False, True]) + [
    deep(seed, complex_) for seed in range(6, 75) for complex_ in (False, True)
]
"""Seeds of problems, real and complex."""


def best_symmetric(U, b):
    """min over A of max |u* A u - b|, by HiGHS."""
    P = features(U)
    ones = np.ones((len(P), 1))
    rows = np.block([[P, -ones], [-P, -ones]])
    bounds = [(None, None)] * P.shape[1] + [(0, None)]
    cost = np.append(np.zeros(P.shape[1]), 1.0)
    return linprog(cost, rows, np.append(b, -b), bounds=bounds, method="highs").fun


def small_problem(seed, complex_):
    """Rows of uneven norms and readings about 1 that mostly nothing fits exactly."""
    rng = np.random.default_rng([seed, 11])
    n = int(rng.integers(1, 4 if complex_ else 5))
    m = int(rng.integers(2, 6 + 3 * n * n))
    U = gaussian_rows(rng, m, n, complex_)
    b = readings(U, hermitian(rng, n, complex_)) + rng.standard_normal(m)
    if seed % 4 == 0:  # repeated rows contradict each other
        U[m // 2 :] = U[: m - m // 2]
    return U, b / np.abs(b).mean()


def cases(best):
    """Tolerances and what each must end in."""
    yield 1.5 * best + 1e-3, Status.MET
    yield best + MARGIN, Status.MET
    if best > 4 * MARGIN:
        yield best - MARGIN, Status.INFEASIBLE
        yield 0.6 * best, Status.INFEASIBLE


def check(U, b, delta, expected, **options):
    result = quadsense.solve(U, b, delta=delta, **options)
    assert result.status is expected, (delta, result.message)
    assert result.certificate.verify(U, b)
    if expected is Status.MET:
        assert np.abs(readings(U, np.asarray(result.matrix)) - b).max() <= delta
    else:
        assert result.certificate.lower_bound >= 1.0
        assert result.certificate.upper_bound >= result.certificate.lower_bound
        assert result.suspects.size > 0
    return result


@pytest.mark.parametrize(("seed", "complex_"), SEEDS)
def test_symmetric_verdict_equals_that_of_highs(seed, complex_):
    U, b = small_problem(seed, complex_)
    best = best_symmetric(U, b)
    for delta, expected in cases(best):
        certificate = check(U, b, delta, expected).certificate
        lower, upper = certificate.lower_bound * delta, certificate.upper_bound * delta
        assert lower <= best * (1 + 1e-7) + 1e-9
        assert upper >= best * (1 - 1e-7) - 1e-9
        assert upper <= 1.02 * lower or expected is Status.MET


@pytest.mark.parametrize(("seed", "complex_"), SEEDS)
def test_positive_verdict_equals_that_of_clarabel(seed, complex_):
    U, b = small_problem(seed, complex_)
    best = smallest_worst_miss(U, b)
    for delta, expected in cases(best):
        A = np.asarray(check(U, b, delta, expected, psd=True).matrix)
        values = np.linalg.eigvalsh(A)
        assert values[0] >= -1e-12 * max(1.0, values[-1])


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("seed", sampled(range(10), 1))
def test_no_method_decides_what_auto_does_not(seed, complex_):
    U, b = small_problem(seed, complex_)
    decided = (Status.MET, Status.INFEASIBLE)
    for delta, expected in cases(best_symmetric(U, b)):
        assert quadsense.solve(U, b, delta=delta).status is expected
        for method in ("gd", "sgd", "cg", "minimax"):
            other = quadsense.solve(U, b, delta=delta, method=method, max_iter=500, rng=0)
            assert other.status is expected or other.status not in decided, (method, delta)


def test_the_smallest_worst_error_without_a_delta_is_found_with_both_bounds():
    for seed in range(6):
        U, b = small_problem(seed, complex_=bool(seed % 2))
        truth = best_symmetric(U, b)
        result = quadsense.solve(U, b, prefer="minimax")
        assert result.status is Status.OPTIMAL
        assert result.certificate.lower_bound <= truth * (1 + 1e-7) + 1e-9
        assert truth <= result.max_residual * (1 + 1e-7) + 1e-9
        assert result.max_residual <= 1.0102 * truth + 1e-9
        assert result.certificate.verify(U, b)
        assert result.violations.size == 0
        truth = smallest_worst_miss(U, b)
        result = quadsense.solve(U, b, prefer="minimax", psd=True)
        assert result.status is Status.OPTIMAL, result.message
        assert result.certificate.lower_bound <= truth * (1 + 1e-6) + 1e-7
        assert result.max_residual <= 1.0102 * truth + 1e-6
        assert result.certificate.verify(U, b)


@pytest.mark.parametrize(("size", "psd"), cover([1e-60, 1e60, 1e-20, 1e20], [None, True]))
def test_the_size_of_the_readings_does_not_matter(size, psd):
    U, b = small_problem(2, False)
    plain, scaled = (
        quadsense.solve(U, unit * b, psd=psd, prefer="minimax") for unit in (1.0, size)
    )
    assert plain.status is scaled.status is Status.OPTIMAL
    assert scaled.certificate.verify(U, size * b)
    assert scaled.max_residual / size == pytest.approx(plain.max_residual, rel=0.02)
    delta = 1.5 * plain.max_residual
    result = quadsense.solve(U, size * b, delta=size * delta, psd=psd)
    assert result.status is Status.MET
    result = quadsense.solve(U, size * b, delta=0.5 * size * plain.max_residual, psd=psd)
    assert result.status is Status.INFEASIBLE
    assert result.certificate.verify(U, size * b)


def test_a_false_optimum_does_not_verify():
    U, b = small_problem(1, False)
    result = quadsense.solve(U, b)
    assert result.certificate.verify(U, b)
    moved = b.copy()
    moved[0] += 0.5
    assert not result.certificate.verify(U, moved)


def test_consistent_data_without_a_delta_are_fitted_exactly(rng):
    U = rng.standard_normal((30, 5))
    b = readings(U, hermitian(rng, 5, False))
    result = quadsense.solve(U, b)
    assert result.status is Status.OPTIMAL
    assert result.max_residual <= 1e-10
    assert "exact fit" in result.message
    assert result.certificate.verify(U, b)


def test_an_infeasibility_proof_does_not_carry_over_to_other_data():
    for psd in (None, True):
        U, b = small_problem(2, False)
        best = best_symmetric(U, b) if psd is None else smallest_worst_miss(U, b)
        result = quadsense.solve(U, b, delta=0.9 * best, psd=psd)
        assert result.status is Status.INFEASIBLE
        assert result.certificate.verify(U, b)
        assert not result.certificate.verify(U, b, delta=1.1 * best)
        assert not result.certificate.verify(U, readings(U, np.eye(U.shape[1])))


@pytest.mark.parametrize("psd", [None, True])
def test_one_sided_bounds_are_met_or_refuted(psd, rng):
    U = rng.standard_normal((40, 4))
    b = readings(U, np.diag([1.0, 2.0, 0.5, 3.0]))
    lo, hi = b - 0.1, b + 0.1
    lo[:10], hi[10:20] = -np.inf, np.inf
    result = quadsense.solve(U, bounds=(lo, hi), psd=psd)
    values = readings(U, np.asarray(result.matrix))
    assert result.status is Status.MET
    assert np.all((lo <= values) & (values <= hi))
    assert result.certificate.verify(U, bounds=(lo, hi))
    U[1], lo[0], hi[0], lo[1], hi[1] = U[0], 2.0, np.inf, -np.inf, 1.0
    result = quadsense.solve(U, bounds=(lo, hi), psd=psd)
    assert result.status is Status.INFEASIBLE
    assert result.certificate.verify(U, bounds=(lo, hi))
    assert not result.certificate.verify(U, bounds=(lo - 5.0, hi + 5.0))


@pytest.mark.parametrize("seed", sampled(range(20), 2))
def test_planted_outliers_are_all_found(seed):
    """A tenth of m = 2 x unknowns, 10 to 30 tolerances off."""
    rng = np.random.default_rng(seed)
    n = 12
    m = n * (n + 1)
    U = rng.standard_normal((m, n)) / np.sqrt(n)
    b = readings(U, np.eye(n)) + rng.uniform(-0.01, 0.01, m)
    planted = np.sort(rng.choice(m, m // 10, replace=False))
    b[planted] += rng.choice([-1, 1], planted.size) * rng.uniform(0.2, 0.6, planted.size)
    result = quadsense.solve(U, b, delta=0.02, allow_violations=m // 10)
    assert result.status is Status.MET
    assert set(planted) <= set(result.set_aside)
    kept = np.setdiff1d(np.arange(m), result.set_aside)
    assert np.abs(readings(U, result.A) - b)[kept].max() <= 0.02
    assert result.certificate.verify(U, b)
    assert "set aside" in result.message
    assert quadsense.solve(U, b, delta=0.02).status is Status.INFEASIBLE


def test_least_squares_is_kept_where_it_meets_delta():
    p = quadsense.datasets.gaussian(n=6, m=200, noise=0.01, seed=0)
    F = features(p.U)
    x = np.linalg.lstsq(F, p.b, rcond=None)[0]
    worst = np.abs(F @ x - p.b).max()
    result = quadsense.solve(p.U, p.b, delta=1.05 * worst, prefer="any")
    assert result.plan["method"] == "cg"
    assert result.max_residual == pytest.approx(worst, rel=0.02)
    result = quadsense.solve(p.U, p.b, delta=0.95 * worst, prefer="any")
    assert result.plan["method"] == "minimax"
    assert result.status is Status.MET


def test_a_start_that_happens_to_meet_delta_does_not_stand_for_least_squares(rng):
    U = gaussian_rows(rng, 200, 6, False)
    b = readings(U, np.eye(6)) + rng.uniform(-0.01, 0.01, 200)
    F = features(U)
    fit = F @ np.linalg.lstsq(F, b, rcond=None)[0]
    for asked in ({"ridge": 0}, {"prefer": "any"}):
        result = quadsense.solve(U, b, delta=0.1, **asked)
        np.testing.assert_allclose(readings(U, result.A), fit, atol=1e-3)
        exact = quadsense.solve(U, readings(U, np.eye(6)), delta=0.1, **asked)
        assert exact.success
    again = quadsense.solve(U, b, delta=0.2, start=result, prefer="any")
    assert again.success and again.n_iter == 0


@pytest.mark.parametrize("kind", ["sparse", "strict"])
def test_every_method_takes_other_arrays(kind, rng):
    import array_api_strict
    import scipy.sparse as sp

    make = sp.csr_array if kind == "sparse" else array_api_strict.asarray
    p = quadsense.datasets.gaussian(n=6, m=15, rank=2, seed=0)
    for options in (
        {"method": "cg"},
        {"method": "minimax"},
        {"psd": True},
        {"rank": 2},
        {"rank": "auto"},
    ):
        result = quadsense.solve(make(p.U), p.b, delta=1e-3, rng=0, **options)
        assert result.status is Status.MET, (options, result.message)
        assert np.abs(readings(p.U, np.asarray(result.matrix)) - p.b).max() <= 1e-3


@pytest.mark.parametrize(("n", "m"), [(40, 700), (80, 1200)])
def test_a_warm_start_takes_at_most_a_third_of_the_steps(n, m, rng):
    p = quadsense.datasets.gaussian(n=n, m=m, seed=0)
    cold = quadsense.solve(p.U, p.b, delta=1e-3, prefer="any")
    other = hermitian(rng, n, False)
    other *= 0.01 * np.linalg.norm(p.A_star) / np.linalg.norm(other)
    for b, delta in ((p.b, 5e-4), (readings(p.U, p.A_star + other), 1e-3), (1.01 * p.b, 1e-3)):
        fresh = quadsense.solve(p.U, b, delta=delta, prefer="any")
        warm = quadsense.solve(p.U, b, delta=delta, start=cold, prefer="any")
        assert fresh.success
        assert warm.success
        assert warm.n_iter <= fresh.n_iter / 3


def test_a_start_matrix_is_where_the_nearest_fit_is_sought_from(rng):
    p = quadsense.datasets.gaussian(n=6, m=10, seed=0)
    start = hermitian(rng, 6, False)
    F = np.array([np.outer(u, u).ravel() for u in p.U])
    step = np.linalg.lstsq(F, p.b - F @ start.ravel(), rcond=None)[0].reshape(6, 6)
    for method in ("gd", "cg", "minimax"):
        result = quadsense.solve(p.U, p.b, delta=1e-9, start=start, method=method)
        np.testing.assert_allclose(result.A, start + step, atol=1e-6)


def test_the_spectral_bound_is_there_without_an_oracle():
    p = quadsense.datasets.gaussian(n=6, m=60, seed=0, condition=5.0)
    result = quadsense.solve(p.U, p.b, delta=1e-3, method="gd")
    found = result.certificate.spectral()
    W = np.linalg.inv(np.linalg.cholesky(p.A_star))
    truth = np.abs(np.linalg.eigvalsh(W @ result.A @ W.T) - 1.0).max()
    assert found.delta == pytest.approx(truth, rel=0.01)
    noisy = quadsense.datasets.gaussian(n=6, m=60, seed=0, condition=5.0, noise=1e-4)
    result = quadsense.solve(noisy.U, noisy.b, delta=1e-3)
    truth = np.abs(np.linalg.eigvalsh(W @ result.A @ W.T) - 1.0).max()
    assert truth <= result.certificate.spectral(noise=1e-3).delta
    assert "refute" in result.certificate.spectral(noise=1e-9).message
    few = quadsense.datasets.gaussian(n=6, m=15, seed=0)
    answer = quadsense.solve(few.U, few.b, delta=1e-3, psd=True).certificate
    with pytest.raises(ValueError, match="noise must not be negative"):
        answer.spectral(noise=-1.0)
    result = quadsense.solve(few.U, few.b, delta=1e-3, start="tau")
    if np.linalg.eigvalsh(result.A)[0] > 0:
        assert result.certificate.spectral().unseen == 6


def test_one_row_that_contradicts_is_one():
    U, b = np.eye(3), np.array([1.0, -1.0, 1.0])
    said = quadsense.solve(U, b, delta=0.1, psd=True).message
    assert " No positive semidefinite matrix meets row 1, whatever the others are. " in said


@pytest.mark.parametrize("seed", range(4))
def test_of_two_rows_that_contradict_each_other_both_are_named(seed):
    rng = np.random.default_rng(seed)
    U, b = rng.standard_normal((8, 5)), rng.standard_normal(8)
    U[6], b[6] = U[2], b[2] + 1.0
    result = quadsense.solve(U, b, delta=0.1)
    assert sorted(result.verdict.suspects) == [2, 6]


def test_the_plan_refuses_before_allocating_what_cannot_fit(monkeypatch):
    from quadsense.query import plan

    monkeypatch.setattr(plan, "available_memory", lambda: 10_000)
    p = quadsense.datasets.gaussian(n=20, m=300, seed=0)
    with pytest.raises(MemoryError, match=r"squares would take .* MB in addition to U and 10 kB"):
        quadsense.solve(p.U, p.b, delta=0.1, psd=True, prefer="least_squares")


def test_free_memory_does_not_decide_which_matrix_is_given(monkeypatch):
    from quadsense.query import plan

    p = quadsense.datasets.gaussian(n=20, m=400, seed=0)
    asked = {"delta": 0.1, "psd": True}
    whole = quadsense.solve(p.U, p.b, **asked)
    assert whole.prefer == "least_squares"
    monkeypatch.setattr(plan, "available_memory", lambda: whole.plan["memory"])
    assert np.array_equal(quadsense.solve(p.U, p.b, **asked).A, whole.A)
    monkeypatch.setattr(plan, "available_memory", lambda: whole.plan["memory"] // 10)
    with pytest.raises(MemoryError, match=r"least_squares would take"):
        quadsense.solve(p.U, p.b, **asked)


def test_the_plan_says_what_and_why():
    p = quadsense.datasets.gaussian(n=20, m=300, seed=0)
    plan = quadsense.solve(p.U, p.b, delta=0.1, prefer="any").plan
    assert plan["methods"] == ["cg", "minimax"]
    assert plan["memory"] > 0
    # Whether least squares meets delta is not known beforehand: both times are told, no one time.
    assert plan["seconds"] is None and plan["times"]["minimax"] > 3 * plan["times"]["cg"] > 0
    assert any("the time depends on the data: about" in reason for reason in plan["reasons"])
    assert any("more than the 210 unknowns" in reason for reason in plan["reasons"])
    plan = quadsense.solve(p.U, p.b, delta=0.1).plan
    assert plan["methods"] == ["cg", "least_squares", "conic", "minimax"]
    assert plan["method"] == "cg"
    assert any(reason.startswith("prefer='least_squares': ") for reason in plan["reasons"])


def test_a_warm_start_among_noisy_positive_matrices(rng):
    p = quadsense.datasets.gaussian(n=40, m=1200, rank=3, seed=0)
    noise = 0.01 * np.abs(p.b).mean()
    b = p.b + rng.uniform(-noise, noise, 1200)
    cold = quadsense.solve(p.U, b, delta=2 * noise, psd=True, prefer="any")
    for changed in (1.01 * b, b + 0.2 * rng.uniform(-noise, noise, 1200)):
        asked = {"delta": 2 * noise, "psd": True, "prefer": "any"}
        warm = quadsense.solve(p.U, changed, start=cold, **asked)
        fresh = quadsense.solve(p.U, changed, **asked)
        assert warm.success and fresh.success
        assert warm.certificate.verify(p.U, changed)
        assert warm.n_iter <= fresh.n_iter / 3


def test_a_wrong_rank_is_given_up_soon_where_rows_are_ample():
    p = quadsense.datasets.gaussian(n=20, m=200, rank=3, seed=0)
    result = quadsense.solve(p.U, p.b, delta=1e-6, rank=2)
    assert result.status is Status.STALLED
    assert "No fit found from 21 starts" in result.message


def test_cvxpy_agrees_that_an_answer_of_low_rank_fits(rng):
    p = quadsense.datasets.gaussian(n=8, m=40, rank=2, seed=0)
    result = quadsense.solve(p.U, p.b, delta=1e-4, rank=2)
    assert result.matrix.factor.shape == (8, 2)
    A = cp.Variable((8, 8), PSD=True)
    values = cp.sum(cp.multiply(p.U @ A, p.U), axis=1)
    problem = cp.Problem(cp.Minimize(cp.trace(A)), [cp.abs(values - p.b) <= 1e-4])
    problem.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(np.asarray(result.A), A.value, atol=1e-2)
    too_small = quadsense.solve(p.U, p.b, delta=1e-6, rank=1, max_restarts=2)
    assert too_small.status is Status.STALLED
    assert "No fit found from 3 starts" in too_small.message


def test_the_proof_that_nothing_fits_is_checked_once(monkeypatch):
    from quadsense.proofs import symmetric

    calls = []
    check = symmetric.check_proof
    monkeypatch.setattr(
        symmetric, "check_proof", lambda *args, **rest: calls.append(1) or check(*args, **rest)
    )
    rng = np.random.default_rng(4)
    U = rng.standard_normal((60, 5))
    b = rng.uniform(1.0, 2.0, 60)
    result = quadsense.solve(U, b, delta=0.01)
    assert result.status is Status.INFEASIBLE and len(calls) == 1
    assert result.conflict is not None
    calls.clear()
    assert result.verify(U, b) and len(calls) == 2  # of all rows, and of those in conflict
