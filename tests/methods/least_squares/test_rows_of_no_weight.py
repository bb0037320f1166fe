"""Rows of weight 0 are in no sum: where their bands do not bind, all is as without these rows."""

import numpy as np
import pytest
from helpers import gaussian_rows

import quadsense

ASKED = {
    "rank": {"rank": 1},
    "grows": {"rank": "auto"},
    "signs": {"rank": (1, 1)},
    "symmetric": {},
    "psd": {"psd": True},
    "entropy": {"psd": True, "prefer": "entropy"},
    "trace": {"psd": True, "trace": (0.0, 1e6)},
    "ridge": {"ridge": 0.5},
    "no pull": {"ridge": 0.0},
    "conic": {"method": "conic", "prefer": "least_squares"},
    "least_squares": {"method": "least_squares", "prefer": "least_squares"},
}
"""Keywords of `solve`, by what they ask for."""


def problem(seed=0, m=60, n=6, complex_=False):
    """Rows, readings of a matrix of rank one with noise, and which rows get weight 0."""
    rng = np.random.default_rng(seed)
    U, x = gaussian_rows(rng, m, n, complex_), gaussian_rows(rng, 1, n, complex_)[0]
    b = np.abs(U.conj() @ x) ** 2
    return U, b + 1e-3 * rng.standard_normal(m), rng.random(m) < 0.3


def difference(one, other):
    """Relative difference of two matrices."""
    return np.linalg.norm(one.A - other.A) / np.linalg.norm(other.A)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_a_band_that_does_not_bind_changes_nothing_and_costs_nothing(name, complex_):
    U, b, idle = problem(complex_=complex_)
    wrong = np.where(idle, 1e6 * b, b)
    delta = np.where(idle, 1e12, 0.05)
    one = quadsense.solve(U, wrong, delta=delta, weights=1.0 - idle, rng=0, **ASKED[name])
    other = quadsense.solve(U[~idle], b[~idle], delta=0.05, weights=1.0, rng=0, **ASKED[name])
    assert one.met and other.met and one.prefer == other.prefer
    assert one.verify(U, wrong, delta=delta)
    assert one.optimal == other.optimal
    assert difference(one, other) < 1e-3
    assert one.n_iter <= 1.5 * other.n_iter + 10


@pytest.mark.parametrize("name", ["rank", "symmetric", "psd", "no pull", "ridge", "conic"])
def test_a_band_that_binds_is_kept(name):
    U, b, _ = problem()
    free = quadsense.solve(U[1:], b[1:], delta=0.1, weights=1.0, rng=0, **ASKED[name])
    read = float((U[0].conj() @ free.A @ U[0]).real)
    delta, shifted, weights = np.full(60, 0.1), b.copy(), np.ones(60)
    shifted[0], delta[0], weights[0] = read + 3e-3, 1e-3, 0.0
    result = quadsense.solve(U, shifted, delta=delta, weights=weights, rng=0, **ASKED[name])
    assert result.met and result.verify(U, shifted, delta=delta)
    assert abs(result.residuals[0]) <= 1e-3
    assert result.objective >= 0.99 * free.objective


@pytest.mark.parametrize("name", ["rank", "grows", "symmetric", "psd", "trace", "ridge"])
def test_without_a_tolerance_the_rows_might_as_well_not_be_there(name):
    U, b, idle = problem()
    wrong = np.where(idle, -1e9, b)
    one = quadsense.solve(U, wrong, weights=1.0 - idle, rng=0, **ASKED[name])
    other = quadsense.solve(U[~idle], b[~idle], weights=1.0, rng=0, **ASKED[name])
    assert one.status == other.status and one.n_iter == other.n_iter
    assert difference(one, other) < 1e-9


def test_a_band_of_weight_0_that_contradicts_the_others_is_still_a_contradiction():
    result = quadsense.solve([[1.0], [1.0]], [1.0, 2.0], delta=0.1, weights=[1.0, 0.0])
    assert result.status == "infeasible" and result.verify([[1.0], [1.0]], [1.0, 2.0], delta=0.1)


@pytest.mark.parametrize("text", [str, np.str_])
def test_names_may_be_strings_of_numpy(text):
    U, b, _ = problem()
    asked = {"prefer": text("least_squares"), "method": text("conic")}
    assert quadsense.solve(U, b, delta=0.05, **asked).verify(U, b)
    assert quadsense.solve(U, b, delta=1e-9, slack=text("max")).verify(U, b)
