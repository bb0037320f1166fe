"""Intervals of every kind: missing ends, uneven rows, feasible starts, nothing asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import hermitian, readings, sampled
from interval_cases import random_case, truth

import quadsense
from quadsense.methods import METHODS, Problem
from quadsense.methods.minimax.method import Stage
from quadsense.methods.minimax.program import asked


def pairs(seed, uneven=False):
    """Differences of 60 points in R^13, 100 pairs: similar ones at most 1, others at least 2."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 3, 60)
    points = rng.standard_normal((60, 13)) + 2.0 * rng.standard_normal((3, 13))[kinds]
    i = rng.integers(0, 60, 100)
    j = (i + rng.integers(1, 60, 100)) % 60
    similar = kinds[i] == kinds[j]
    U = (points[i] - points[j]) * (np.logspace(-1.0, 2.5, 13) if uneven else 1.0)
    return U, np.where(similar, -np.inf, 2.0), np.where(similar, 1.0, np.inf)


def problem_of(data):
    """As `solve` states it, from 0."""
    scaled = data.scaled()
    options = METHODS.traits("minimax").options()
    return Problem(data.unit_rows, scaled.b, scaled.delta, 0.0, sides=data.sides, options=options)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("seed", sampled(range(12), 5))
def test_similar_and_dissimilar_pairs_are_met_though_the_optimum_is_unbounded(seed, uneven):
    U, lo, hi = pairs(seed, uneven)
    result = quadsense.solve(U, bounds=(lo, hi))
    assert result.status == "met" and result.certificate.verify(U, bounds=(lo, hi))
    values = readings(U, result.A)
    assert np.all(values >= lo) and np.all(values <= hi)


@pytest.mark.parametrize("options", [{}, {"psd": True}, {"method": "minimax"}])
@pytest.mark.parametrize("sided", ["one", "two"])
def test_a_feasible_start_is_the_answer_at_once(options, sided):
    U, lo, hi = pairs(0)
    first = quadsense.solve(U, bounds=(lo, hi), psd=True)
    asked_for = {"bounds": (lo, hi)}
    if sided == "two":
        values = readings(U, first.A)
        asked_for = {"bounds": (values - 0.1, values + 0.2)}
        options = {"method": "minimax"} | options if "psd" not in options else options
    again = quadsense.solve(U, **asked_for, start=first.A, prefer="any", **options)
    assert again.status == "met" and again.n_iter == 0
    np.testing.assert_allclose(again.A, first.A, atol=1e-12 * np.linalg.norm(first.A))


@pytest.mark.parametrize("n", [60, 150, 200])
@pytest.mark.parametrize("options", [{"psd": True}, {"method": "minimax"}])
def test_a_feasible_matrix_is_the_answer_at_any_order(n, options):
    rng = np.random.default_rng(n)
    U, X = rng.standard_normal((2 * n, n)), rng.standard_normal((n, n))
    A = X @ X.T / n
    result = quadsense.solve(U, readings(U, A), delta=1e-3, start=A, prefer="any", **options)
    assert result.status == "met" and result.n_iter == 0
    np.testing.assert_allclose(result.A, A, atol=1e-12 * np.linalg.norm(A))


@pytest.mark.parametrize("seed", sampled(range(150)))
def test_the_verdict_is_that_of_highs(seed):
    case = random_case(np.random.default_rng([seed, 1]), psd=False)
    expected = truth(case, psd=False)
    result = case.solve()
    assert expected is None or result.status == expected
    assert result.status not in ("met", "infeasible") or result.certificate.verify(
        result.certificate.data
    )


@pytest.mark.parametrize("seed", sampled(range(100)))
def test_the_positive_semidefinite_verdict_is_that_of_clarabel(seed):
    case = random_case(np.random.default_rng([seed, 2]), psd=True)
    expected = truth(case, psd=True)
    result = case.solve(psd=True)
    assert expected is None or result.status == expected
    assert result.status not in ("met", "infeasible") or result.certificate.verify(
        result.certificate.data
    )


def test_rows_that_ask_for_nothing_disturb_nothing():
    rng = np.random.default_rng(3)
    U = rng.standard_normal((30, 4))
    values = readings(U, hermitian(rng, 4, False))
    lo, hi = values - 0.1, values + 0.1
    lo[:5], hi[5:9] = -np.inf, np.inf
    wild = np.concatenate([1e3 * rng.standard_normal((3, 4)), np.zeros((2, 4)), U])
    free = np.full(5, np.inf)
    bounds = np.concatenate([-free, lo]), np.concatenate([free, hi])
    for options in ({}, {"psd": True}):
        alone = quadsense.solve(U, bounds=(lo, hi), **options)
        beside = quadsense.solve(wild, bounds=bounds, start="zero", **options)
        assert alone.status == beside.status
    zero = quadsense.solve(U, bounds=(lo, hi), start="zero")
    beside = quadsense.solve(wild, bounds=bounds, start="zero")
    np.testing.assert_array_equal(zero.A, beside.A)


def test_units_of_one_sided_rows_stay_below_the_size_of_the_ends():
    rng = np.random.default_rng(4)
    U = rng.standard_normal((12, 3))
    data = quadsense.Measurements(U, bounds=(np.full(12, -np.inf), readings(U, np.eye(3))))
    units = np.logspace(-20.0, 20.0, 12)
    ends = replace(data.unit_ends, unit=units)
    problem = replace(problem_of(data), b=ends.middle(), delta=units, given_ends=ends)
    what = asked(problem)
    # Every end is u* u, so 1 for unit rows, whatever unit errors are counted in.
    np.testing.assert_allclose(what.scale * what.intervals.hi, 1.0, rtol=1e-14)
    np.testing.assert_allclose(what.scale * (what.b + what.delta), 1.0, rtol=1e-14)
    assert np.all(what.scale * what.delta <= 1.0) and np.all(what.scale * what.delta >= 1e-8)


def test_rows_survive_weights_that_normal_equations_lose():
    """Tolerances 1 and 1e-11: a wide row decides what the narrow ones do not see."""
    U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    b, delta = np.array([1.0, 1.0, 10.0, 12.5]), np.array([1e-11, 1e-11, 1.0, 1.0])
    met = quadsense.solve(U, b, delta=1.26 * delta, method="minimax")
    assert met.status == "met"
    assert quadsense.solve(U, b, delta=1.24 * delta, method="minimax").status == "infeasible"


def test_states_are_whole_through_all_stages():
    """Another instance goes on from a state, and k steps and k steps are 2k steps."""
    U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    b, delta = np.array([1.0, 1.0, 10.0, 12.5]), 1.26 * np.array([1e-11, 1e-11, 1.0, 1.0])
    problem = problem_of(quadsense.Measurements(U, bounds=(b - delta, b + delta)))
    method = METHODS["minimax"]()
    program = method.prepare(problem)
    state = path = method.start(program)
    stages = {state.stage}
    while method.claim(program, state) is None:
        state = method.advance(program, state, 2)
        for _ in range(2):
            other = METHODS["minimax"]()
            path = other.advance(other.prepare(problem), path, 1)
        stages.add(state.stage)
        assert path.iteration == state.iteration
        np.testing.assert_array_equal(path.inner.x, state.inner.x)
        np.testing.assert_array_equal(path.dual, state.dual)
    assert stages == {Stage.FAST, Stage.KERNEL}
