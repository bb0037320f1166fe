"""Dual vectors are moved until ``C + F*(y)`` vanishes, so that bounds close to the gap."""

import numpy as np
import pytest
from scipy.optimize import linprog

import quadsense
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.balance import balanced
from quadsense.proofs.costs import conjugate_above


def rows(rng, m, n, complex_=False):
    U = rng.standard_normal((m, n)) + (1j * rng.standard_normal((m, n)) if complex_ else 0.0)
    return U / np.linalg.norm(U, axis=1, keepdims=True)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("spread", [0.0, 4.0, 8.0])
def test_a_balanced_vector_of_squares_is_orthogonal_to_what_rows_see(complex_, spread):
    rng = np.random.default_rng(int(spread))
    U = rows(rng, 30, 4, complex_)
    weights = 10.0 ** rng.uniform(-spread, spread, 30)
    b = rng.standard_normal(30)
    free = np.full(30, np.inf)
    question = Question("squares", -free, free, weights, b, np.zeros(30, bool))
    F = Sensing.of(U)
    root = np.sqrt(weights)[:, None]
    G = np.asarray(F.features())
    x = np.linalg.lstsq(root * G, root[:, 0] * b)[0]
    y = 2.0 * weights * (G @ x - b)
    moved = balanced(F, question, y, np.zeros((4, 4)))
    before, after = (np.linalg.norm(np.asarray(F.adjoint(v))) for v in (y, moved))
    assert after <= 1e-14 * np.sum(np.abs(moved))
    assert after <= before
    # It costs next to nothing: the bound is concave, and y was near its maximiser.
    assert conjugate_above(question, moved) <= conjugate_above(question, y) + 1e-6 * np.sum(
        weights * (G @ x - b) ** 2
    )


def test_entries_that_lean_on_an_end_keep_their_sign():
    rng = np.random.default_rng(1)
    U = rows(rng, 12, 3)
    hi = np.full(12, np.inf)
    F = Sensing.of(U)
    y = -np.abs(rng.standard_normal(12))
    C = -np.asarray(F.adjoint(y)) * (1.0 + 1e-7)
    question = Question(
        "within", np.ones(12), hi, np.zeros(12), np.zeros(12), np.zeros(12, bool), C=C
    )
    moved = balanced(F, question, y, np.zeros((3, 3)))
    assert np.all(moved < 0.0)
    assert np.linalg.norm(C + np.asarray(F.adjoint(moved))) <= 1e-14 * np.sum(np.abs(moved))


@pytest.mark.parametrize("spread", [0.0, 3.0, 6.0])
def test_rows_of_uneven_norms_are_moved_by_what_that_costs(spread):
    rng = np.random.default_rng(8)
    U = rows(rng, 14, 3)
    prices = 10.0 ** rng.uniform(-spread, spread, 14)  # a tolerance in units of the row's norm
    F, G = Sensing.of(U), np.asarray(Sensing.of(U).features())
    b = prices * rng.standard_normal(14)
    # min t, |G x - b| <= t prices: its multipliers are y.
    top = np.hstack([G, -prices[:, None]])
    below = np.hstack([-G, -prices[:, None]])
    found = linprog(
        np.r_[np.zeros(6), 1.0],
        np.vstack([top, below]) / np.r_[prices, prices][:, None],
        np.r_[b, -b] / np.r_[prices, prices],
        bounds=(None, None),
    )
    forces = -found.ineqlin.marginals / np.r_[prices, prices]
    y = (forces[:14] - forces[14:]) * (1.0 + 1e-7 * rng.standard_normal(14))
    question = Question("slack_max", b, b, 1.0 / prices, 0.0 * b, np.zeros(14, bool))
    moved = balanced(F, question, y, np.max(np.abs(b)) * np.eye(3))
    assert np.linalg.norm(np.asarray(F.adjoint(moved))) <= 1e-14 * np.sum(np.abs(moved))
    assert abs(moved @ b) >= (1.0 - 1e-8) * (np.abs(moved) @ prices) * found.fun


def test_the_least_error_beside_a_trace_of_one_end_is_certified():
    U = np.array([[1.0, 0.4], [1.0, 0.4]])  # equal rows, readings that differ
    b = np.array([0.3, 0.4])
    result = quadsense.solve(U, b, trace=(0.3, np.inf), prefer="minimax", gap=1e-5)
    assert result.status == "optimal" and result.verify(U, b)
    assert result.objective == pytest.approx(0.05, rel=1e-5)


def test_a_ridge_that_hardly_counts_does_not_cost_the_bound():
    rng = np.random.default_rng(3)
    U, b = rng.standard_normal((30, 4)), 1e40 * rng.standard_normal(30)
    result = quadsense.solve(U, b, prefer="least_squares", ridge=1e-60)
    plain = quadsense.solve(U, b, prefer="least_squares")
    assert result.status == "optimal" and result.verify(U, b)
    assert result.objective == pytest.approx(plain.objective, rel=1e-9)


def test_squares_of_rows_whose_weights_square_beyond_float64_are_bounded():
    u = np.full((3, 1), 1.2e66)
    b = 1e131 * np.array([-9.64, -9.59, -9.58])
    result = quadsense.solve(u, b, prefer="least_squares")
    assert result.status == "optimal" and result.verify(u, b)
    assert result.objective == pytest.approx(np.sum((b / 1e131 - np.mean(b / 1e131)) ** 2) * 1e262)


@pytest.mark.parametrize("exponent", [-230, -70, 70, 234])
def test_squares_near_the_ends_of_float64_are_bounded_as_any_other(exponent):
    rng = np.random.default_rng(5)
    U, b = rng.standard_normal((20, 3)), rng.standard_normal(20)
    weights, scale = rng.uniform(0.5, 20.0, 20), 2.0**exponent
    asked = {"weights": weights, "prefer": "least_squares"}
    plain = quadsense.solve(U, b, **asked)
    result = quadsense.solve(scale * U, scale**2 * b, **asked)
    assert result.status == plain.status == "optimal"
    assert result.verify(scale * U, scale**2 * b)
    low, high = (bound / scale**2 / scale**2 for bound in result.objective_bounds)
    assert low == pytest.approx(plain.objective, rel=1e-6)
    assert high == pytest.approx(plain.objective, rel=1e-6)
