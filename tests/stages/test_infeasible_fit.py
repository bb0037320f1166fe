"""The A that comes with INFEASIBLE: least squares without the bands, next to the proof's own A."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest
from helpers import gaussian_rows, hermitian, readings, sampled
from test_default_rule import features, pulled

import quadsense
from quadsense import Status


def contradictory(seed, *, psd=False, complex_=None):
    """Rows, readings of which some are far off, and half-widths that no matrix meets."""
    rng = np.random.default_rng(seed)
    complex_ = bool(seed % 2) if complex_ is None else complex_
    n = int(rng.integers(1, 6))
    m = 2 * n * n + int(rng.integers(5, 20))
    U = gaussian_rows(rng, m, n, complex_) * np.exp(0.3 * rng.standard_normal((m, 1)))
    A = hermitian(rng, n, complex_)
    b = readings(U, A @ A if psd else A)
    b[:3] += 5.0 * np.abs(b).mean() * rng.choice([-1.0, 1.0], 3)
    return U, b, 0.02 * np.abs(b).mean() * rng.uniform(0.5, 2.0, m)


@pytest.mark.parametrize("seed", sampled(range(60), 4))
def test_the_fit_is_the_closed_form(seed):
    U, b, half = contradictory(seed)
    result = quadsense.solve(U, b, delta=half)
    expected, cost = pulled(U, b, half)
    assert result.status is Status.INFEASIBLE
    np.testing.assert_allclose(result.A, expected, atol=1e-4 * np.linalg.norm(expected))
    assert result.fit.value == pytest.approx(cost, rel=1e-6)
    assert result.fit.lower <= cost * (1.0 + 1e-9) and result.fit.closed
    misses = np.abs(readings(U, result.A) - b)
    assert result.max_ratio == pytest.approx(np.max(misses / half))
    assert list(result.violations) == list(np.flatnonzero(misses > half))
    assert f"it misses {result.violations.size} of {len(b)} measurements" in result.message
    least, most = result.certificate.lower_bound, result.certificate.upper_bound
    assert 1.0 < least <= most <= result.max_ratio * (1.0 + 1e-9)
    claimed = np.abs(readings(U, np.asarray(result.certificate.matrix)) - b)
    assert np.max(claimed / half) <= most
    assert result.verify(U, b)


def real(expression):
    """Return the real part, which CVXPY takes of complex expressions only."""
    return cp.real(expression) if expression.is_complex() else expression


def by_cvxpy(U, b, weights, preference, constraints=lambda A: []):
    """Return the least ``sum w (F(A) - b)^2 + ridge ||A - tau I||^2`` over the cone, by CVXPY."""
    n = U.shape[1]
    A = (
        cp.Variable((n, n), hermitian=True)
        if np.iscomplexobj(U)
        else cp.Variable((n, n), symmetric=True)
    )
    z = real(features(U) @ cp.vec(A.T, order="F")) - b
    cost = cp.sum(cp.multiply(weights, cp.square(z)))
    cost += preference.ridge * cp.sum_squares(A - preference.tau * np.eye(n))
    held = [A >> 0] if preference.psd else []
    problem = cp.Problem(cp.Minimize(cost), held + constraints(A))
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem.value


@pytest.mark.parametrize("kind", ["psd", "trace", "constraint", "one end", "weights", "ridge"])
@pytest.mark.parametrize("seed", sampled(range(10), 1))
def test_the_fit_is_that_of_cvxpy(seed, kind):
    U, b, half = contradictory(seed, psd=True)
    n = U.shape[1]
    weights, asked, held = 1.0 / half**2, {"delta": half, "psd": True}, lambda A: []
    if kind == "trace":
        asked["trace"], held = 2.0, lambda A: [real(cp.trace(A)) == 2.0]
    elif kind == "constraint":
        asked["constraints"] = [(np.eye(n)[:, :1] @ np.eye(n)[:1], 0.0, 0.3)]
        held = lambda A: [real(A[0, 0]) <= 0.3]  # noqa: E731
    elif kind == "one end":
        hi = b + half
        hi[3:6], weights = np.inf, np.where(np.isin(np.arange(len(b)), [3, 4, 5]), 0.0, weights)
        asked = {"bounds": (b - half, hi), "psd": True}
    elif kind == "weights":
        asked["weights"] = weights = np.random.default_rng(seed).uniform(0.0, 2.0, len(b))
    elif kind == "ridge":
        asked["ridge"] = 0.7
    given = {} if kind == "one end" else {"b": b}
    result = quadsense.solve(U, **given, **asked)
    assert result.status is Status.INFEASIBLE and result.verdict.fitted == "optimal"
    best = by_cvxpy(U, b, weights, result.fit.preference, held)
    assert result.fit.lower <= best * (1.0 + 1e-5)
    assert result.fit.value <= 1.011 * best + 1e-9
    assert result.fit.value >= best * (1.0 - 1e-5)
    assert np.linalg.eigvalsh(result.A)[0] >= -1e-9 * np.linalg.norm(result.A)
    assert result.verify(U, given.get("b"))


def test_the_report_says_what_is_proved_of_the_fit():
    U, b, half = contradictory(3)
    page = quadsense.solve(U, b, delta=half).report(check=False).html()
    assert "A is the least-squares fit without the tolerances" in page
    assert "and no matrix has less than" in page


def test_minimax_by_name_keeps_the_smallest_worst_miss():
    U, b, half = contradictory(1)
    result = quadsense.solve(U, b, delta=half, prefer="minimax")
    assert result.status is Status.INFEASIBLE and result.fit is None
    assert result.max_ratio <= 1.011 * result.certificate.lower_bound
    assert "least-squares" not in result.message and result.verify(U, b)


def test_a_fit_of_low_rank_has_that_rank():
    rng = np.random.default_rng(0)
    U, x = rng.standard_normal((60, 5)), rng.standard_normal(5)
    b = (U @ x) ** 2
    b[3], b[7] = b[3] + 5.0, -3.0
    result = quadsense.solve(U, b, delta=0.05, rank=1, rng=0)
    assert result.status is Status.INFEASIBLE and result.verdict.fitted == "local"
    assert "A is a least-squares fit of that rank" in result.message
    assert np.linalg.matrix_rank(result.A, tol=1e-9) == 1
    gradient = U.T @ (((readings(U, result.A) - b)[:, None] * U) @ result.matrix.factor)
    assert np.abs(gradient).max() <= 1e-6 * np.abs(b).max()
    assert result.verify(U, b)


def test_equalities_count_in_the_fit():
    U, b = np.ones((4, 1)), [1.0, 2.0, 1.1, 1.2]
    result = quadsense.solve(U, b, delta=[0.0, 0.1, 0.1, 0.1])
    assert result.status is Status.INFEASIBLE
    assert result.A[0, 0] == pytest.approx(1.0, abs=1e-3)
    alone = quadsense.solve(U[:2], b[:2], delta=0.0, ridge=0)
    assert alone.status is Status.INFEASIBLE and alone.verify(U[:2], b[:2])
    assert np.isfinite(alone.A).all()


def test_constraints_that_contradict_each_other_leave_no_fit():
    U, b, half = contradictory(0, psd=True)
    result = quadsense.solve(U, b, delta=half, psd=True, trace=-1.0)
    assert result.status is Status.INFEASIBLE and result.fit is None
    assert result.verify(U, b)


@pytest.mark.parametrize("asked", [{}, {"psd": True}, {"rank": 1}, {"prefer": "minimax"}])
def test_both_matrices_are_written_and_read(tmp_path, asked):
    U, b, half = contradictory(4, psd=True)
    result = quadsense.solve(U, b, delta=half, rng=0, **asked)
    result.save(tmp_path / "result.npz")
    again = quadsense.load_result(tmp_path / "result.npz")
    assert result.status is Status.INFEASIBLE and again.message == result.message
    np.testing.assert_array_equal(again.A, result.A)
    claimed = np.asarray(result.certificate.matrix)
    np.testing.assert_array_equal(np.asarray(again.certificate.matrix), claimed)
    assert again.verify(U, b) and again.certificate.verify(U, b)


def test_a_fit_that_is_another_matrix_is_refused():
    U, b, half = contradictory(5)
    result = quadsense.solve(U, b, delta=half)
    assert result.verify(U, b)
    fit, matrix = result.fit, result.certificate.matrix
    cheaper = dataclasses.replace(fit, value=0.5 * fit.value, upper=0.5 * fit.upper)
    known = dataclasses.replace(fit, lower=1.01 * fit.value, upper=1.01 * fit.value)
    other = dataclasses.replace(fit.preference, ridge=2.0 * fit.preference.ridge)
    assert matrix is not result.matrix
    for change in (
        {"matrix": matrix}, {"fit": None}, {"fit": cheaper}, {"fit": known},
        {"fit": dataclasses.replace(fit, preference=other)},
    ):  # fmt: skip
        assert not dataclasses.replace(result, **change).verify(U, b), change


def test_the_fit_is_the_same_from_wherever_the_rows_come(tmp_path):
    U, b, half = contradictory(2)
    result = quadsense.solve(U, b, delta=half)
    np.savez(tmp_path / "data.npz", U=U, b=b)
    data = quadsense.Measurements.open(tmp_path / "data.npz").with_tolerance(half)
    mixed = quadsense.solve(U, b, delta=half, mix=np.eye(len(b)))
    for other in (quadsense.solve(data), mixed):
        assert other.status is Status.INFEASIBLE and other.verdict.fitted == "optimal"
        np.testing.assert_allclose(other.A, result.A, atol=1e-4 * np.linalg.norm(result.A))


def test_tensors_come_back_as_tensors():
    torch = pytest.importorskip("torch")
    U, b, half = contradictory(2)
    result = quadsense.solve(torch.as_tensor(U), torch.as_tensor(b), delta=half)
    assert result.status is Status.INFEASIBLE and isinstance(result.A, torch.Tensor)
    expected = pulled(U, b, half)[0]
    np.testing.assert_allclose(result.A.numpy(), expected, atol=1e-4 * np.linalg.norm(expected))
    assert result.verify(torch.as_tensor(U), torch.as_tensor(b))
