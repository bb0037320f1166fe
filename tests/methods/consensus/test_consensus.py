"""Least squares by consensus ADMM, against CVXPY, SciPy and the other methods."""

import fuzz
import generator
import numpy as np
import pytest
from helpers import sampled
from squares_cases import forward, normal, random_case, reference

import quadsense
from quadsense.core.smooth_terms import SquaresWithin
from quadsense.methods.consensus.program import ByGradients
from quadsense.methods.least_squares.program import LeastSquaresCone
from quadsense.query.plan import Shape, make_plan

CLOSE = 1e-5  # of costs, as far as an interior-point method finds them


def uniform(rng, m, n, *, psd=False, is_complex=False, rank=None):
    """Rows, and readings with errors as large as the tolerance, which binds."""
    U = normal(rng, m, n, is_complex=is_complex)
    X = normal(rng, n, rank or n, is_complex=is_complex)
    A = X @ X.conj().T if psd else X + X.conj().T
    v = forward(U, A)
    delta = 0.05 * float(np.std(v))
    return U, v + rng.uniform(-delta, delta, m), delta


@pytest.mark.parametrize("seed", sampled(range(120)))
def test_costs_are_those_of_an_interior_point_method(seed):
    case = random_case(seed)
    asked = {"prefer": "least_squares", "method": "consensus", "gap": 1e-4}
    result = quadsense.solve(**{"ridge": 0.0, **asked, **case})
    status, cost = reference(case)
    loose = 1.0 if status == "optimal" else 100.0
    assert status.startswith("optimal")
    assert result.status == ("met" if "bounds" in case else "optimal"), result.message
    assert result.optimal
    assert result.objective == pytest.approx(cost, rel=1e-4 + loose * CLOSE, abs=loose * CLOSE)
    lower, upper = result.objective_bounds
    assert lower <= result.objective <= upper
    assert lower <= cost + loose * CLOSE * (1.0 + cost)
    assert upper - lower <= 1e-4 * (1.0 + upper)
    given = {"bounds": case["bounds"]} if "bounds" in case else {}
    assert result.certificate.verify(case["data"], case["b"], **given)


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_where_intervals_bind_the_gap_that_is_asked_is_reached(rng, psd, is_complex):
    U, b, delta = uniform(rng, 700, 12, psd=psd, is_complex=is_complex)
    asked = {"delta": delta, "psd": psd, "prefer": "least_squares"}
    other = "conic" if psd else "least_squares"
    fine = quadsense.solve(U, b, **asked, method=other, gap=1e-6)
    for gap in (0.01, 1e-3, 1e-5):
        result = quadsense.solve(U, b, **asked, method="consensus", gap=gap)
        assert (result.status, result.optimal, result.plan["method"]) == ("met", True, "consensus")
        assert fine.objective * (1 - 1e-6) <= result.objective <= fine.objective * (1 + gap)
        assert result.certificate.verify(U, b, delta=delta)
    assert np.count_nonzero(np.abs(result.residuals) > 0.999 * delta) >= 5


@pytest.mark.parametrize("ridge", ["auto", 0.01])
def test_it_is_the_default_where_the_normal_matrix_costs_more_than_it_saves(rng, ridge):
    U, b, delta = uniform(rng, 4400, 60)
    result = quadsense.solve(U, b, delta=delta, prefer="least_squares", ridge=ridge)
    assert (result.status, result.optimal, result.plan["method"]) == ("met", True, "consensus")
    assert result.n_iter <= 40


@pytest.mark.slow
def test_near_low_rank_the_cone_is_found():
    U, b, delta = uniform(np.random.default_rng(5), 4400, 60, psd=True, rank=5)
    result = quadsense.solve(U, b, delta=delta, psd=True)
    assert (result.status, result.optimal, result.plan["method"]) == ("met", True, "consensus")
    assert result.certificate.verify(U, b, delta=delta)


def test_without_a_tolerance_it_is_least_squares_in_the_cone(rng):
    U, b, _ = uniform(rng, 900, 12, psd=True, rank=2)
    asked = {"psd": True, "prefer": "least_squares"}
    result = quadsense.solve(U, b, **asked, method="consensus", gap=1e-4)
    fine = quadsense.solve(U, b, **asked, method="least_squares")
    assert result.status == "optimal"
    assert result.objective == pytest.approx(fine.objective, rel=1e-4)


def test_exact_readings_are_met_exactly(rng):
    U = normal(rng, 300, 10, is_complex=False)
    X = rng.standard_normal((10, 2))
    b = np.sum((U @ X) ** 2, axis=1)
    asked = {"psd": True, "prefer": "least_squares", "ridge": 0.0, "method": "consensus"}
    result = quadsense.solve(U, b, delta=1e-3, **asked)
    assert result.status == "met" and result.optimal
    assert result.n_iter == 0
    assert np.linalg.norm(result.A - X @ X.T) <= 1e-7 * np.linalg.norm(X @ X.T)


def test_what_no_matrix_meets_is_left_to_others(rng):
    U = normal(rng, 200, 6, is_complex=False)
    b = rng.standard_normal(200)
    result = quadsense.solve(U, b, delta=1e-3, prefer="least_squares", method="consensus")
    assert result.status == "stalled"
    shape = Shape(m=6000, n=90, psd=True, prefer="least_squares")
    assert make_plan(shape).methods == ("consensus", "conic", "psd")


@pytest.mark.slow
def test_an_earlier_result_is_where_it_begins(rng):
    U, b, delta = uniform(rng, 4400, 60, psd=True, rank=5)
    asked = {"delta": delta, "psd": True, "method": "consensus"}
    cold = quadsense.solve(U, b, **asked)
    b = b + rng.uniform(-1e-4, 1e-4, b.size) * delta
    warm = quadsense.solve(U, b, **asked, start=cold)
    assert warm.status == cold.status == "met"
    assert warm.n_iter < 0.7 * cold.n_iter


# --- the parts --------------------------------------------------------------------------------


def squares_within(rng, m):
    """A row term of every kind: with and without weight, no end, one, two, and the same twice."""
    w = rng.uniform(0.5, 2.0, m) * (rng.random(m) < 0.7)
    b = np.where(w > 0.0, rng.standard_normal(m), 0.0)
    lo, hi = b - rng.uniform(0.1, 1.0, m), b + rng.uniform(0.1, 1.0, m)
    lo[::3], hi[1::4] = -np.inf, np.inf
    hi[::5] = np.maximum(lo[::5], -5.0)
    lo[::5] = hi[::5]
    return SquaresWithin(w, b, lo, hi, np.full(m, 0.5), 1.0)


def test_the_proximal_point_and_the_conjugate_are_those_of_the_term(rng):
    term = squares_within(rng, 60)
    x, rho = 2.0 * rng.standard_normal(60), rng.uniform(0.5, 3.0, 60)
    v = term.proximal(x, rho, 0.0)
    y = 2.0 * rho * (x - v)  # a subgradient there: Fenchel's inequality is an equality
    assert np.all((v >= term.lo) & (v <= term.hi))
    assert np.array_equal(term.permitted(y), y)
    assert term.conjugate(y) + term.value(v) == pytest.approx(float(y @ v), rel=1e-12)
    other = np.clip(v + 0.3 * rng.standard_normal(60), term.lo, term.hi)
    for dual in (y, term.permitted(rng.standard_normal(60))):
        assert term.conjugate(dual) + term.value(other) >= float(dual @ other) - 1e-12
    assert term.outside(v) == 0.0 and term.outside(v + 1.0) > 0.0


@pytest.mark.parametrize("is_complex", [False, True])
def test_the_step_in_z_solves_the_normal_equations(rng, is_complex):
    U = normal(rng, 80, 5, is_complex=is_complex)
    rows = quadsense.Measurements(U, np.zeros(80)).unit_rows
    cone = LeastSquaresCone(5, is_complex, False)
    rho, g = rng.uniform(0.5, 2.0, 80), rng.standard_normal(cone.size)
    d = ByGradients(rows, cone).solve(rho, 0.3, g, 1e-6, 200)
    J = rows.features()
    exact = np.linalg.solve(J.T @ (rho[:, None] * J) + 0.3 * np.eye(cone.size), g)
    assert np.allclose(d, exact, rtol=0.0, atol=1e-5 * np.linalg.norm(exact))


@pytest.mark.slow
def test_rows_in_a_file_give_the_same_answer(rng, tmp_path):
    U, b, delta = uniform(rng, 4000, 60)
    np.savez(tmp_path / "data.npz", U=U, b=b)
    data = quadsense.Measurements.open(tmp_path / "data.npz", memory_limit="1 MiB")
    kept, read = quadsense.solve(U, b, delta=delta), quadsense.solve(data, delta=delta)
    assert kept.plan["method"] == read.plan["method"] == "consensus"
    assert kept.n_iter == read.n_iter
    assert np.max(np.abs(kept.residuals - read.residuals)) <= 1e-4 * delta


def test_a_bound_that_rounding_lifts_above_the_cost_of_a_fit_proves_nothing():
    """Readings near 1e-58, whose dual vector once gave a bound of 1e97 times the cost."""
    result = fuzz.solve(generator.problem(21357))
    assert result.status == "met"
    assert result.optimal
