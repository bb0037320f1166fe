"""Where a descent on a factor goes astray: drifting signs, steps out of range, rows that shrink."""

import numpy as np
import pytest
from helpers import deep, gaussian_rows, sampled

import quadsense
from quadsense.methods.low_rank.passes import evaluate
from quadsense.methods.low_rank.program import prepare
from quadsense.methods.low_rank.rest import Trusted, is_settled, model_of
from quadsense.methods.low_rank.steps import balanced, normal_equations, shortened


@pytest.fixture(autouse=True)
def _errors_raise():
    with np.errstate(all="raise", under="ignore"):
        yield


def readings(U, A):
    return np.einsum("ij,jk,ik->i", U.conj(), np.asarray(A), U).real


@pytest.mark.parametrize("angle", [3.0, 12.0])
def test_a_factor_whose_signs_cancel_is_that_of_the_eigenvectors(complex_, angle):
    rng = np.random.default_rng(0)
    U = gaussian_rows(rng, 12, 5, complex_)
    program = prepare(
        U / np.linalg.norm(U, axis=1)[:, None], np.ones(12), np.ones(12), 3, signs=(2, 1)
    )
    Y, signs = gaussian_rows(rng, 3, 5, complex_), np.array([1.0, 1.0, -1.0])
    assert balanced(program, Y) is Y
    # Turned by a hyperbolic angle, which changes nothing but the size of the factor.
    drifted = Y.copy()
    drifted[0] = np.cosh(angle) * Y[0] + np.sinh(angle) * Y[2]
    drifted[2] = np.sinh(angle) * Y[0] + np.cosh(angle) * Y[2]
    A, mass = (drifted.T * signs) @ drifted.conj(), np.linalg.norm(drifted) ** 2
    X = balanced(program, drifted).T
    np.testing.assert_allclose((X * signs) @ X.conj().T, A, rtol=0, atol=1e-14 * mass)
    assert np.linalg.norm(X) ** 2 <= np.abs(np.linalg.eigvalsh(A)).sum() + 1e-14 * mass


def test_no_answer_with_signs_is_the_difference_of_far_larger_matrices():
    for seed in (6, 19, 37):
        rng = np.random.default_rng(seed)
        U = rng.standard_normal((13, 3)) * 10.0 ** rng.uniform(-3, 3, 13)[:, None]
        X = rng.standard_normal((3, 2))
        A = 10 * X @ X.T
        b = readings(U, A) + 27.0 * rng.uniform(-1, 1, 13)
        trace = np.trace(A) * np.array([0.98, 1.02])
        result = quadsense.solve(
            U, b, delta=30.0, rank=(2, 1), max_restarts=3, trace=tuple(trace), rng=0
        )
        assert result.status == "met", result.message
        assert result.matrix.form.mass <= 10.0 * np.linalg.norm(result.A, "nuc")


@pytest.mark.parametrize("size", [1e-200, 1e-60, 1e-12])
def test_steps_from_next_to_nothing_stay_in_range(size, complex_):
    rng = np.random.default_rng(1)
    U = gaussian_rows(rng, 6, 3, complex_)
    U /= np.linalg.norm(U, axis=1)[:, None]
    program = prepare(U, np.ones(6), np.ones(6), 1, target=False)
    point = evaluate(program, size * U[:1], 0.0)
    model = model_of(program, point, None)
    newton = model.step(point, Trusted(model.right, model.curved).step(1e10)[0])
    for D in (
        normal_equations(program, point, None, 1e-12, 1e-3)(point.gradient),
        shortened(point.Y, newton),
    ):
        assert np.abs(D).max() <= 1.001e3
        assert np.isfinite(evaluate(program, point.Y + D, 0.0).value)


@pytest.mark.parametrize("size", [1e78, 1e-78])
@pytest.mark.parametrize("weighed", [False, True])
def test_weights_of_least_squares_beyond_float64_are_compared_all_the_same(size, weighed):
    rng = np.random.default_rng(5)
    U, X = rng.standard_normal((30, 4)), rng.standard_normal((4, 1))
    b = readings(U, X @ X.T) + 0.1 * rng.standard_normal(30)
    weights = {"weights": 10.0 ** rng.uniform(-1, 1, 30)} if weighed else {}
    plain = quadsense.solve(U, b, rank=1, rng=0, **weights)
    other = quadsense.solve(size * U, size**2 * b, rank=1, rng=0, **weights)
    assert plain.status == other.status == "local", other.message
    np.testing.assert_allclose(other.A, plain.A, atol=1e-6 * np.linalg.norm(plain.A))


@pytest.mark.parametrize("rank", [1, 2, "auto"])
def test_readings_best_fitted_by_nothing_come_to_rest_at_zero(rank):
    rng = np.random.default_rng(7)
    U = rng.standard_normal((40, 4))
    b = -np.abs(rng.standard_normal(40))
    b[:3] = 0.1
    # Zero is the least of all: the slope there, -F*(b), is positive definite.
    assert np.linalg.eigvalsh(-(U.T * b) @ U)[0] > 0.0
    result = quadsense.solve(U, b, rank=rank, max_restarts=0, rng=0)
    assert result.status == "local", result.message
    assert np.linalg.norm(result.A) <= 1e-12


def test_a_factor_that_no_row_sees_is_at_rest(complex_):
    rng = np.random.default_rng(2)
    u, y = gaussian_rows(rng, 1, 4, complex_), gaussian_rows(rng, 1, 4, complex_)
    u /= np.linalg.norm(u)
    y -= (y @ u[0].conj()) * u  # what it reads is rounding
    program = prepare(np.repeat(u, 3, axis=0), -np.ones(3), np.ones(3), 1, target=False)
    assert is_settled(program, evaluate(program, y, 0.0))
    assert not is_settled(program, evaluate(program, y + 1e-10 * u, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("binds", sampled(["lower", "upper"], 1))
@pytest.mark.parametrize("rank", [4, deep((4, 0)), deep((3, 1))])
def test_least_squares_rests_at_the_end_of_a_constraint_that_it_presses_on(binds, rank, complex_):
    rng = np.random.default_rng(9)
    U, _ = np.linalg.qr(gaussian_rows(rng, 4, 4, complex_))
    b, w = rng.uniform(1.0, 2.0, 4), 10.0 ** rng.uniform(-1, 1, 4)
    trace = (200.0, 230.0) if binds == "lower" else (0.7 * b.sum(), 0.9 * b.sum())
    end = trace[binds == "upper"]
    # The rows are orthonormal, so that the trace is the sum of what is read.
    read = b + (end - b.sum()) / w / np.sum(1.0 / w)
    assert (isinstance(rank, tuple) and rank[1] == 1) or read.min() > 0.0 or binds == "upper"
    for start in (1e3, 0.05):
        result = quadsense.solve(
            U, b, weights=w, rank=rank, trace=trace, start=start * np.eye(4), max_restarts=4, rng=0
        )
        assert result.status == "local", result.message
        np.testing.assert_allclose(readings(U, result.A), read, rtol=1e-5)


@pytest.mark.parametrize("rank", [1, deep(2), (1, 1), deep("auto")])
@pytest.mark.parametrize("scale", sampled([1e150, 1e-150, 1.0], 1))
def test_a_start_of_any_size_is_a_start(rank, scale):
    rng = np.random.default_rng(10)
    U, X = rng.standard_normal((12, 3)), rng.standard_normal((3, 1))
    b = scale * readings(U, X @ X.T)
    for size in (-1e200, 0.0, 1e-300, 1e100):
        for options in ({}, {"delta": 0.01 * scale}, {"trace": (0.0, 100.0 * scale)}):
            result = quadsense.solve(
                U, b, rank=rank, start=size * np.eye(3), max_restarts=2, rng=0, **options
            )
            assert result.status in ("met", "local", "optimal"), result.message
