"""Least squares within intervals by an active set, against the interior point and KKT."""

import numpy as np
import pytest
from helpers import sampled
from scipy.optimize import minimize
from squares_cases import forward, hermitian, normal

import quadsense
from quadsense.methods.active_set import nearest_within


def case(seed):
    """Rows, readings and intervals of both kinds, of which least squares leaves some."""
    rng = np.random.default_rng([79, seed])
    is_complex = bool(rng.integers(2))
    n = int(rng.integers(1, 9 if is_complex else 12))
    unknowns = n * n if is_complex else n * (n + 1) // 2
    m = int(unknowns * rng.choice([1.1, 2.0, 6.0])) + 3
    U = normal(rng, m, n, is_complex=is_complex) * 10 ** rng.uniform(-1, 1, (m, 1))
    half = np.sum(np.abs(U) ** 2, axis=1) * rng.choice([1e-6, 1e-2, 0.3])
    b = forward(U, hermitian(rng, n, is_complex)) + 0.97 * half * rng.uniform(-1, 1, m)
    lo, hi = b - half, b + half
    one = rng.integers(4, size=m) == 0
    kind = int(rng.integers(3))
    (lo if kind == 1 else hi)[one & (kind > 0)] = -np.inf if kind == 1 else np.inf
    asked = [{}, {"weights": rng.integers(0, 3, m) * 1.0}, {"ridge": 0.1}][rng.integers(3)]
    return U, b, {"bounds": (lo, hi), "prefer": "least_squares", **asked}


@pytest.mark.parametrize("seed", sampled(range(80)))
def test_it_is_as_good_as_the_interior_point_method(seed):
    U, b, asked = case(seed)
    result = quadsense.solve(U, b, **asked)
    other = quadsense.solve(
        U, b, **asked, method="conic", gap=1e-8
    )  # its bounds hold, but may be wide
    assert (result.status, result.optimal) == ("met", True)
    low, high = other.objective_bounds
    assert result.objective_bounds[0] <= high and low <= result.objective_bounds[1]
    others = {"conic", "least_squares", "minimax"} & set(result.timings)  # with few rows
    assert result.objective <= (1.0 + (0.01 if others else 1e-5)) * high
    assert result.verify(U, b, bounds=asked["bounds"])


def test_readme_example_needs_no_other_method():
    p = quadsense.datasets.gaussian(n=5, m=1000, seed=0)
    result = quadsense.solve(p.U, p.b.round(1), delta=0.05)
    assert result.optimal and result.max_ratio > 0.999
    assert {"conic", "least_squares", "minimax"}.isdisjoint(result.timings)


@pytest.mark.parametrize("seed", range(10))
def test_the_conditions_of_optimality_hold(seed):
    rng = np.random.default_rng([80, seed])
    m, N = 60, int(rng.integers(1, 12))
    G, inside, start = rng.standard_normal((m, N)), rng.standard_normal(N), 3.0 * np.ones(N)
    width = rng.uniform(0.0, 0.5, m) + 1e-3
    lo, hi = G @ inside - width, G @ inside + width
    hi[::7] = np.inf
    v, u = nearest_within(G, lo, hi, start, np.full(m, 1e-9))
    values = G @ v
    assert (values >= lo - 1e-8).all() and (values <= hi + 1e-8).all()
    assert np.allclose(v, start + G.T @ u, rtol=0.0, atol=1e-9)
    assert np.abs((values - lo)[u > 0]).max(initial=0.0) <= 1e-8  # complementary slackness
    assert np.abs((hi - values)[u < 0]).max(initial=0.0) <= 1e-8


def test_intervals_that_exclude_each_other_have_no_point():
    G = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    ends = np.array([1.0, -1.0, 0.0])
    assert nearest_within(G, ends - 0.1, ends + 0.1, np.zeros(2), np.full(3, 1e-9)) is None


def test_wrong_readings_are_still_proved_infeasible():
    p = quadsense.datasets.gaussian(n=5, m=1000, seed=0)
    b = p.b.round(1)
    b[17] += 0.2
    result = quadsense.solve(p.U, b, delta=0.05)
    assert result.status == "infeasible" and result.verify(p.U, b)


def over_the_cone(seed):
    """Noisy readings of a matrix on the boundary of the cone, and intervals that some leave."""
    rng = np.random.default_rng([81, seed])
    is_complex = bool(rng.integers(2))
    n = int(rng.integers(2, 6 if is_complex else 9))
    unknowns = n * n if is_complex else n * (n + 1) // 2
    m = int(unknowns * rng.choice([1.7, 2.0, 5.0])) + 2
    X = normal(rng, n, max(1, n - int(rng.integers(0, 3))), is_complex=is_complex)
    U = normal(rng, m, n, is_complex=is_complex)
    b = forward(U, X @ X.conj().T)
    half = 0.1 * np.sum(np.abs(U) ** 2, axis=1) * rng.choice([0.3, 1.0, 3.0], m)
    b = b + half * rng.uniform(-1, 1, m)
    lo, hi = b - half, b + half
    asked = [{}, {"weights": rng.integers(1, 4, m) * 1.0}, {"ridge": 0.1}][rng.integers(3)]
    return U, b, {"bounds": (lo, hi), "psd": True, "prefer": "least_squares", **asked}


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_over_the_cone_it_is_as_good_as_the_interior_point_method(seed):
    U, b, asked = over_the_cone(seed)
    result = quadsense.solve(U, b, **asked)
    other = quadsense.solve(U, b, **asked, method="conic", gap=1e-7)
    assert (result.status, result.optimal) == ("met", True)
    low, high = other.objective_bounds
    assert result.objective_bounds[0] <= high and low <= result.objective_bounds[1]
    assert result.objective <= (1.0 + (0.01 if "conic" in result.timings else 2e-5)) * high
    assert np.linalg.eigvalsh(result.A)[0] >= -1e-12 * np.linalg.norm(result.A)
    assert result.verify(U, b, bounds=asked["bounds"])


def test_cuts_suffice_where_few_eigenvalues_become_zero():
    alone = 0
    for seed in range(20):
        U, b, asked = over_the_cone(seed)
        alone += "conic" not in quadsense.solve(U, b, **asked).timings
    assert alone >= 15


@pytest.mark.parametrize("seed", range(5))
def test_cuts_lead_to_the_projection_onto_part_of_a_ball(seed):
    rng = np.random.default_rng([82, seed])
    start = rng.standard_normal(3)
    start *= 3.0 / np.linalg.norm(start)
    G = np.cross(start, rng.standard_normal(3))[None] + start  # at an angle, so that both bind
    hi = 0.3 * G @ start

    def cuts(v):
        size = np.linalg.norm(v)
        return None if size <= 1.0 + 1e-9 else (-v[None] / size, np.array([-1.0]))

    v, u = nearest_within(G, -hi - 10.0, hi, start, np.full(1, 1e-12), cuts)
    best = minimize(
        lambda x: np.sum((x - start) ** 2), np.zeros(3), method="SLSQP", options={"ftol": 1e-12},
        constraints=[
            {"type": "ineq", "fun": lambda x: 1.0 - x @ x},
            {"type": "ineq", "fun": lambda x: hi - G @ x},
        ],
    )  # fmt: skip
    assert np.allclose(v, best.x, atol=1e-4)
    assert u[0] <= 0.0 and (u[1:] >= 0.0).all()
