"""The default rule: the closed form of least squares with its pull, ties, and how stable A is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import cover, deep, gaussian_rows, hermitian, readings, sampled

import quadsense

BETA = 0.35


def features(U):
    """Rows ``conj(u_i) u_i`` on A written as a vector."""
    return np.einsum("ij,ik->ijk", U.conj(), U).reshape(len(U), -1)


def pulled(U, b, half):
    """Return the minimizer without intervals by the normal equations, and its objective."""
    squares = np.sum(np.abs(U) ** 2, axis=1)
    V, b, h = U / np.sqrt(squares)[:, None], b / squares, half / squares
    s = h / np.sqrt(3.0)
    w = 1.0 / np.maximum(s, np.median(s)) ** 2
    tau = float(w @ b / np.sum(w))
    v = float(w @ (b - tau) ** 2 / np.sum(w))
    F, W = features(V), 1.0 / h**2
    alpha = BETA / (3.0 * v)
    H = F.conj().T @ (W[:, None] * F) + alpha * np.eye(F.shape[1])
    x = np.linalg.solve(H, F.conj().T @ (W * (b - tau)))
    A = x.reshape(U.shape[1], -1)
    cost = float(W @ np.abs(F @ x - (b - tau)) ** 2 + alpha * np.linalg.norm(x) ** 2)
    return tau * np.eye(len(A)) + (A + A.conj().T) / 2, cost


@pytest.mark.parametrize("seed", sampled(range(100)))
def test_the_default_is_least_squares_with_the_pull(seed):
    rng = np.random.default_rng(seed)
    n, complex_ = int(rng.integers(1, 7)), bool(seed % 2)
    m = int(rng.integers(2, 40))
    U = gaussian_rows(rng, m, n, complex_) * np.exp(rng.standard_normal((m, 1)))
    b = readings(U, hermitian(rng, n, complex_))
    b = b + 0.05 * np.abs(b).mean() * rng.standard_normal(m)
    half = np.abs(b).mean() * rng.uniform(3.0, 6.0, m)  # none of which binds
    expected, cost = pulled(U, b, half)
    result = quadsense.solve(U, b, delta=half)
    assert result.met and result.prefer == "least_squares" and result.optimal
    size = np.linalg.norm(expected)
    np.testing.assert_allclose(result.A, expected, atol=2e-4 * size)
    assert result.objective == pytest.approx(cost, rel=1e-6)
    assert result.objective_bounds[0] <= cost * (1.0 + 1e-9)
    assert result.verify(U, b)


@pytest.mark.parametrize("seed", sampled(range(100)))
def test_plain_least_squares_takes_the_nearest_to_the_best_multiple_of_the_identity(seed):
    rng = np.random.default_rng(seed)
    n, complex_ = int(rng.integers(1, 6)), bool(seed % 2)
    m = int(rng.integers(2, 40))
    U = gaussian_rows(rng, m, n, complex_)
    b = readings(U, hermitian(rng, n, complex_)) + 0.1 * rng.standard_normal(m)
    squares = np.sum(np.abs(U) ** 2, axis=1)
    s = 1.0 / squares  # without a tolerance every reading has the same deviation
    w = 1.0 / np.maximum(s, np.median(s)) ** 2
    tau = float(w @ (b / squares) / np.sum(w))
    F = features(U)
    x = np.linalg.pinv(F, rcond=1e-10) @ (b - tau * squares)
    expected = tau * np.eye(n) + x.reshape(n, n)
    for given in ({}, {"ridge": 0}):
        result = quadsense.solve(U, b, **given)
        assert result.status == "optimal" and result.prefer == "least_squares" and result.optimal
        np.testing.assert_allclose(result.A, expected, atol=1e-7 * np.linalg.norm(expected))
    fit = F @ np.linalg.lstsq(F, b, rcond=None)[0]
    np.testing.assert_allclose(readings(U, result.A), fit.real, atol=1e-7 * np.abs(b).max())


def truth(kind, n, rng):
    """A truth of unit norm."""
    G = rng.standard_normal((n, 2 * n if kind == "full rank" else 2))
    A = G @ G.T
    if kind == "toeplitz":
        A = 0.8 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return A / np.linalg.norm(A)


@pytest.mark.parametrize("psd", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["full rank", "low rank", "toeplitz"])
@pytest.mark.parametrize(("noise", "seed"), cover(["uniform", "gaussian"], range(3), 1))
def test_as_many_noisy_readings_as_unknowns_are_not_interpolated(kind, psd, noise, seed):
    n = 20
    N, rng = n * (n + 1) // 2, np.random.default_rng(seed)
    A, U = truth(kind, n, rng), rng.standard_normal((N, n))
    clean = readings(U, A)
    size = 0.05 * float(np.std(clean))
    if noise == "uniform":
        b, delta = clean + rng.uniform(-size, size, N), size
    else:
        b, delta = clean + size * rng.standard_normal(N), quadsense.delta_from_sigma(size, N)
    rivals = ["any", "nearest", "least_squares", *(["center", "min_trace", "entropy"] * psd)]
    errors = {
        prefer: np.linalg.norm(quadsense.solve(U, b, delta=delta, psd=psd, prefer=prefer).A - A)
        for prefer in ["auto", *rivals]
    }
    assert errors["auto"] <= 2.0 * min(errors.values())
    assert errors["auto"] <= 0.5
    plain = quadsense.solve(U, b, ridge=0)
    assert np.linalg.norm(plain.A - A) > 1.2 * errors["auto"]


@pytest.mark.parametrize("ratio", [1.0, 1.5])
@pytest.mark.parametrize("psd", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", sampled(["full rank", "low rank", "toeplitz"], 2))
@pytest.mark.parametrize("seed", sampled(range(4), 1))
def test_one_more_reading_does_not_make_the_answer_jump(kind, psd, ratio, seed):
    n = 30 if psd else 40  # with fewer, one of N readings has more to say
    m, rng = round(ratio * n * (n + 1) / 2), np.random.default_rng(seed)
    A, U = truth(kind, n, rng), rng.standard_normal((m + 1, n))
    clean = readings(U, A)
    size = 0.05 * float(np.std(clean))
    b = clean + rng.uniform(-size, size, m + 1)
    found = [quadsense.solve(U[:k], b[:k], delta=size, psd=psd) for k in (m - 1, m, m + 1)]
    assert all(each.met for each in found)
    for before, after in itertools.pairwise(found):  # on both sides of the change of preference
        assert np.linalg.norm(after.A - before.A) <= 0.1 * np.linalg.norm(before.A)


@pytest.mark.parametrize("ratio", [1.2, 1.5])
def test_entropy_is_found_where_the_band_binds(ratio):
    n, rng = 10, np.random.default_rng(1)
    m = round(ratio * n * (n + 1) / 2) - 1
    A, U = truth("low rank", n, rng), rng.standard_normal((m, n))
    clean = readings(U, A)
    size = 0.05 * float(np.std(clean))
    b = clean + rng.uniform(-size, size, m)
    result = quadsense.solve(U, b, delta=size, psd=True)
    assert result.met and result.prefer == "entropy" and result.optimal
    assert result.max_ratio >= 0.99
    assert result.verify(U, b)


def cone_truth(rng, n, rank, complex_):
    """A positive semidefinite truth of a rank, of trace 1."""
    X = rng.standard_normal((n, rank)) + (1j * rng.standard_normal((n, rank)) if complex_ else 0)
    return X @ X.conj().T / np.sum(np.abs(X) ** 2)


@pytest.mark.parametrize(("ratio", "rank"), cover([0.1, 0.4, 0.7, 1.0, 1.35], [1, 2, 8]))
def test_without_a_tolerance_few_readings_of_a_cone_go_to_the_entropy(rank, ratio):
    n, rng = 4, np.random.default_rng(3)
    for noise in (0.0, 1e-3, 0.3):
        for complex_, trace in ((False, {}), (True, {}), (True, {"trace": 1.0})):
            unknowns = n * n if complex_ else n * (n + 1) // 2
            A = cone_truth(rng, n, rank, complex_)
            m = max(1, int(ratio * unknowns - 0.5))
            U = gaussian_rows(rng, m, n, complex_)
            b = readings(U, A)
            b = b + noise * np.abs(b).mean() * rng.standard_normal(m)
            result = quadsense.solve(U, b, psd=True, **trace)
            assert result.status == "optimal" and result.prefer == "entropy" and result.optimal
            assert result.verify(U, b)
            miss = float(np.sum((readings(U, result.A) - b) ** 2))
            plain = quadsense.solve(U, b, psd=True, prefer="least_squares", ridge=0.0, **trace)
            assert miss <= 1.01 * plain.objective + 1e-9 * float(b @ b)


@pytest.mark.parametrize("complex_", [False, True])
def test_entropy_that_vanishes_is_stationary_among_what_reads_the_same(complex_):
    n, rng = 6, np.random.default_rng(5)
    A = cone_truth(rng, n, 2 * n, complex_)
    U = gaussian_rows(rng, 12, n, complex_)
    b = readings(U, A)
    result = quadsense.solve(U, b, psd=True, gap=1e-6)
    assert np.max(np.abs(readings(U, result.A) - b)) <= 1e-7 * np.abs(b).max()
    squares = np.sum(np.abs(U) ** 2, axis=1)
    s = 1.0 / squares
    w = 1.0 / np.maximum(s, np.median(s)) ** 2
    tau = float(w @ (b / squares) / np.sum(w))
    slope = (np.eye(n) / tau - np.linalg.inv(result.A)).ravel()
    F = features(U).conj()  # of which the slope is a combination
    rest = slope - F.T @ np.linalg.lstsq(F.T, slope, rcond=None)[0]
    assert np.linalg.norm(rest) <= 1e-2 * np.linalg.norm(slope)


def test_entropy_that_vanishes_goes_with_the_unit_of_the_readings():
    rng = np.random.default_rng(6)
    U = gaussian_rows(rng, 12, 5, False)
    b = readings(U, cone_truth(rng, 5, 2, False)) + 0.01 * rng.standard_normal(12)
    one = quadsense.solve(U, b, psd=True)
    for unit in (1e-9, 1e9):
        other = quadsense.solve(U, unit * b, psd=True)
        np.testing.assert_allclose(other.A, unit * one.A, atol=1e-3 * unit * np.linalg.norm(one.A))


def test_least_squares_stand_in_where_constraints_leave_no_determinant():
    rng = np.random.default_rng(7)
    U = gaussian_rows(rng, 5, 3, False)
    A = np.diag([1.0, 0.5, 0.0])
    C = np.diag([0.0, 0.0, 1.0])
    result = quadsense.solve(U, readings(U, A), psd=True, constraints=[(C, 0.0, 0.0)])
    assert result.prefer == "least_squares" and np.linalg.norm(result.A - A) <= 1e-5
    zeros = quadsense.solve(U, np.zeros(5), psd=True)
    assert zeros.status == "optimal" and zeros.prefer == "least_squares"
    assert not np.any(zeros.A)


@pytest.mark.parametrize("psd", [False, True])
def test_residuals_of_exact_readings_do_not_pile_up_on_the_tolerance(psd):
    rng = np.random.default_rng(2)
    A, U = truth("full rank", 20, rng), rng.standard_normal((120, 20))
    b = readings(U, A)
    result = quadsense.solve(U, b, delta=1e-2 * float(np.std(b)), psd=psd)
    assert result.met and result.optimal
    assert result.max_ratio <= (0.3 if psd else 0.1)


@pytest.mark.parametrize("shape", [(3, 2000), deep((40, 3000))])
def test_long_rows_take_no_square_matrix(shape):
    m, n = shape
    rng = np.random.default_rng(3)
    U = rng.standard_normal((m, n))
    b = rng.standard_normal(m) + 5.0
    result = quadsense.solve(U, b, delta=0.1)
    assert result.met and result.optimal
    assert result.matrix.form.rows.m == m  # held by its coefficients
    expected, cost = pulled(U[:, :], b, np.full(m, 0.1)) if n <= 60 else (None, result.objective)
    assert expected is None and result.objective_bounds[0] <= cost <= result.objective_bounds[1]
    assert result.verify(U, b)
