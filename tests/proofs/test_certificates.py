"""Claims in extreme numbers and exact arithmetic, drift, and what a run may promise."""

import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers import build, gaussian_rows, readings

import quadsense
from quadsense import Status
from quadsense.core.matrix import MeasuredForm, SensedMatrix
from quadsense.methods.descent.gd import GradientDescent
from quadsense.proofs.rounding import enclosure
from quadsense.run.loop import Limits, run


@pytest.fixture
def gaussian():
    return quadsense.datasets.gaussian(n=12, m=40, seed=0)


def test_a_billionth_of_the_readings_is_met_with_a_true_certificate():
    p = quadsense.datasets.orthonormal(n=60, m=50, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = quadsense.solve(p.U, p.b, delta=1e-9 * p.b.max(), method="gd")
    assert result.status is Status.MET
    exact = [  # u^T A u in 80-bit precision from the dense answer
        u @ (result.A.astype(np.longdouble) @ u) for u in p.U.astype(np.longdouble)
    ]
    assert max(abs(np.array(exact) - p.b)) <= 1e-9 * p.b.max()


@pytest.mark.parametrize("method", ["auto", "gd", "sgd"])
def test_rows_of_norm_1e150_and_its_inverse(method, rng):
    norms = np.array([1e-150, 1e150, 1.0, 1e-150, 1e150, 1.0])
    U = rng.standard_normal((6, 5))
    b = readings(U, np.diag(rng.random(5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = quadsense.solve(
            U * norms[:, None],
            b * norms * norms,
            delta=1e-3 * norms * norms,
            method=method,
            rng=0,
        )
        assert result.certificate.verify(U * norms[:, None], b * norms * norms)
    assert result.status is Status.MET
    assert np.abs(readings(U, result.A) - b).max() <= 1e-3


def test_the_certificates_rounding_bound_covers_the_true_error(complex_, rng):
    """Residuals in 80-bit precision stay within the bound, for every form of the matrix."""
    m, n = 30, 20
    U = gaussian_rows(rng, m, n, complex_) * rng.uniform(0.1, 10, (m, 1))
    data = quadsense.Measurements(U, rng.random(m), delta=1.0)
    rows, scaled = data.unit_rows, data.scaled()
    c = rng.standard_normal(m) * 10.0 ** rng.uniform(-3, 3, m)
    long = np.clongdouble if complex_ else np.longdouble
    V = U.astype(long) / rows.norms.astype(np.longdouble)[:, None]
    K = np.abs(V.conj() @ V.T) ** 2
    ones = np.sum(np.abs(V) ** 2, axis=1)
    truth = 0.3 * ones - K @ c.astype(np.longdouble) - scaled.b
    measured = SensedMatrix(MeasuredForm(0.3, c, rows))
    z, error = enclosure(measured, rows, scaled.b)
    assert np.all(np.abs(z - truth) <= error)
    assert error.max() <= 1e-9  # a bound, but not an idle one
    other = quadsense.Measurements(U.copy(), data.b, delta=1.0).unit_rows
    z, error = enclosure(measured, other, scaled.b)
    assert np.all(np.abs(z - truth) <= error)
    A = measured.to_dense()
    dense = np.einsum("ij,jk,ik->i", V.conj(), A.astype(long), V).real - scaled.b
    z, error = enclosure(SensedMatrix.from_dense(A), rows, scaled.b)
    assert np.all(np.abs(z - dense) <= error)
    X = gaussian_rows(rng, n, 3, complex_)
    factor = np.sum(np.abs(V.conj() @ X.astype(long)) ** 2, axis=1) - scaled.b
    z, error = enclosure(SensedMatrix.from_factor(X), rows, scaled.b)
    assert np.all(np.abs(z - factor) <= error)


def test_a_wrong_guess_of_orthonormality_costs_time_never_truth(gaussian):
    data = quadsense.Measurements(gaussian.U, gaussian.b, delta=0.05)
    data.__dict__["orthonormal"] = True  # what an unlucky probe would say
    result = quadsense.solve(data, method="gd", max_iter=3000)
    z = readings(gaussian.U, result.A) - gaussian.b
    np.testing.assert_allclose(z, result.residuals, atol=1e-12)
    assert (result.status is Status.MET) == bool(np.abs(z).max() <= 0.05)


def test_delta_from_sigma_covers_all_errors_with_its_confidence(rng):
    delta = quadsense.delta_from_sigma(0.3, m=50, confidence=0.9)
    worst = np.abs(0.3 * rng.standard_normal((4000, 50))).max(axis=1)
    # standard deviation of the share: sqrt(.9 .1 / 4000) = 0.005
    assert np.mean(worst <= delta) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("m", [1, 50, 10**9])
@pytest.mark.parametrize("confidence", [1e-6, 0.95, 1 - 1e-12])
def test_delta_from_sigma_is_the_quantile_of_the_largest_error(m, confidence):
    from scipy.stats import norm

    delta = quadsense.delta_from_sigma(0.3, m, confidence)
    # m errors within: P = (1 - 2 P(e > delta))^m, in logarithms so that no digit is lost
    log_share = m * np.log1p(-2.0 * norm.sf(delta / 0.3))
    assert log_share == pytest.approx(np.log(confidence), rel=1e-9)


@pytest.mark.slow
def test_certificates_hold_in_exact_arithmetic():
    """Constant rows, where norms round badly: the claim against Fractions."""
    for n, m, value in ((100_000, 1, 0.3), (5000, 1, 0.1), (300, 2, 0.7)):
        U = np.full((m, n), value)
        U[1:, 0] = -value
        data = quadsense.Measurements(U, np.arange(1.0, m + 1), delta=1e-14)
        form = quadsense.solve(data, method="gd", max_iter=50).matrix.form
        z, error = enclosure(SensedMatrix(form), data.unit_rows, data.scaled().b)
        norms = [Fraction(float(x)) for x in data.unit_rows.norms]
        rows = [[Fraction(float(x)) for x in u] for u in U]
        c = [Fraction(float(x)) for x in form.c]
        for i in range(m):
            products = [sum(a * b for a, b in zip(rows[i], v, strict=True)) for v in rows]
            size = sum(a * a for a in rows[i]) / norms[i] ** 2
            image = sum(c[j] * (products[j] / norms[i] / norms[j]) ** 2 for j in range(m))
            exact = Fraction(form.tau) * size - image - Fraction(float(data.b[i])) / norms[i] ** 2
            assert abs(Fraction(float(z[i])) - exact) <= Fraction(float(error[i]))


def test_gd_sharpens_until_barely_feasible_data_are_met():
    p = quadsense.datasets.gaussian(n=6, m=120, noise=0.1, seed=0)
    best = quadsense.solve(p.U, p.b, gap=1e-3).max_residual
    result = quadsense.solve(p.U, p.b, delta=1.1 * best, method="gd")
    assert result.status is Status.MET


def test_a_users_generator_moves_on(gaussian):
    rng = np.random.default_rng(0)
    one, two = (
        quadsense.solve(gaussian.U, gaussian.b, delta=0.01, method="sgd", rng=rng) for _ in "ab"
    )
    assert not np.array_equal(one.A, two.A)


def test_a_fit_that_is_met_when_stopped_is_called_met(gaussian):
    def stop(at):
        if at.max_ratio <= 1.0:
            raise StopIteration

    result = quadsense.solve(gaussian.U, gaussian.b, delta=0.05, method="gd", callback=stop)
    assert result.status is Status.MET


def test_rows_whose_scaling_leaves_the_range_are_named():
    U = np.diag([1.0, 1e-170])
    with pytest.raises(ValueError, match=r"row 1 of U has norm 1e-170, which takes b\[1\] = 1"):
        quadsense.solve(U, [1.0, 1.0], delta=0.1)


def test_paper_constants_are_claimed_only_where_they_hold(gaussian):
    far = quadsense.solve(
        gaussian.U, gaussian.b, delta=0.5, method="gd", schedule="paper", max_iter=10
    )
    assert far.plan["lemma"] == ""
    p = quadsense.datasets.orthonormal(n=12, m=10, seed=0)
    run = {"delta": 0.05, "method": "gd", "schedule": "paper"}
    assert quadsense.solve(p.U, p.b, **run).plan["lemma"] == "Lemma 5.3 and 5.6"
    small = quadsense.solve(p.U, p.b, step=1e-5, **run)
    assert small.status is Status.MET  # as many more steps as the smaller step needs


def test_sgd_history_has_the_papers_step():
    from quadsense import theory

    p = quadsense.datasets.orthonormal(n=12, m=10, seed=0)
    result = quadsense.solve(
        p.U, p.b, delta=0.1, method="sgd", schedule="paper", batch_size=2, rng=0
    )
    radius = np.abs(p.b.max() - p.b).max()
    s = theory.schedule(m=10, radius=radius, delta=0.1, batch_size=2)
    np.testing.assert_allclose(result.history.step, s.step)
    np.testing.assert_allclose(result.history.lam, s.lam)


def test_the_bounded_norm_never_lengthens_the_step(rng):
    """norm='bound' moves A by at most what the exact norm would."""
    U, b = rng.standard_normal((20, 6)), rng.random(20)
    steps = {}
    for norm in ("exact", "bound"):
        solver, program, state = build(
            U, b, 1e-3, method="sgd", schedule="paper", norm=norm, batch_size=20, c=0.1
        )
        after = solver.advance(program, state, 1)
        steps[norm] = np.linalg.norm(np.asarray(after.d))
    assert 0 < steps["bound"] < steps["exact"]


class Drifting:
    """A method whose maintained residual is wrong until it is corrected."""

    name, options, short_strides_first = "drifting", frozenset(), True

    def __init__(self):
        self.real, self.corrected = GradientDescent(), 0

    def __getattr__(self, name):
        return getattr(self.real, name)

    def advance(self, program, state, steps):
        after = self.real.advance(program, state, steps)
        return replace(after, y=0.5 * after.y, max_ratio=0.5 * after.max_ratio)

    def correct(self, program, state, z, goal):
        self.corrected += 1
        assert goal < 1.0
        problem = program.problem
        truth = problem.rows.gram_times(program.weight * state.d)
        np.testing.assert_allclose(z, problem.initial_residual() - truth, atol=1e-12)
        return self.real.correct(program, state, z, goal)


def test_drift_is_found_out_and_corrected(gaussian):
    problem = build(gaussian.U, gaussian.b, 0.05)[1].problem
    method = Drifting()
    outcome = run(
        method,
        problem,
        lambda A: enclosure(A, problem.rows, problem.b),
        problem.delta,
        Limits(max_iter=5000),
    )
    assert method.corrected > 0
    z = readings(gaussian.U, np.asarray(outcome.matrix)) - gaussian.b
    assert (outcome.status is Status.MET) == bool(np.abs(z).max() <= 0.05)
