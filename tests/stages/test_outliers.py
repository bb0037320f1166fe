"""Planted outliers, over the cone too: as many as were planted are enough."""

import itertools

import numpy as np
import pytest

import quadsense


def planted(seed):
    """Return probes, readings, their tolerance, whether A is semidefinite, and the count."""
    rng = np.random.default_rng([11, seed])
    n, m, psd, k = int(rng.integers(10, 21)), 200, bool(seed % 2), 1 + seed % 5
    U = rng.standard_normal((m, n))
    X = rng.standard_normal((n, int(rng.integers(1, n + 1))))
    Y = rng.standard_normal((n, n)) if not psd else X
    A = X @ X.T if psd else Y + Y.T
    b = np.einsum("ij,jk,ik->i", U, A, U)
    size = float(np.std(b))
    delta = 0.02 * size
    b = b + rng.uniform(-delta, delta, m)
    wrong = rng.choice(m, k, replace=False)
    b[wrong] += rng.choice([-1, 1], k) * rng.uniform(0.3, 2.0, k) * size
    return U, b, delta, psd, k


def is_found(seed):
    U, b, delta, psd, k = planted(seed)
    result = quadsense.solve(U, b, delta=delta, psd=psd, allow_violations=k, time_limit=10.0)
    kept = np.setdiff1d(np.arange(200), result.set_aside)
    off = np.abs(np.einsum("ij,jk,ik->i", U, result.A, U) - b)[kept]
    return result.met and result.set_aside.size <= k and bool(np.all(off <= delta * (1 + 1e-9)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [49, 53, 153, 193])
def test_outliers_are_found_over_the_cone_with_few_readings(seed):
    assert is_found(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 5])
def test_no_more_are_set_aside_than_were_planted(seed):
    U, b, delta, psd, k = planted(seed)
    result = quadsense.solve(U, b, delta=delta, psd=psd, allow_violations=5)
    assert result.met and result.set_aside.size == k < 5


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [2, 4])
@pytest.mark.parametrize("asked", [{"psd": True}, {"rank": 2}])
def test_two_wrong_distances_of_210_are_found(asked, allowed):
    """A table of distances in whole meters between 21 points of the plane."""
    rng = np.random.default_rng(5)
    points, pairs = rng.uniform(0, 1000, (21, 2)), list(itertools.combinations(range(21), 2))
    r = np.array([np.linalg.norm(points[i] - points[j]) for i, j in pairs]).round()
    wrong = rng.choice(210, 2, replace=False)
    r[wrong] += rng.choice([-1, 1], 2) * rng.uniform(0.1, 0.4, 2) * r[wrong]
    bounds = quadsense.bounds_from_ranges(r, 0.5)
    result = quadsense.solve(
        quadsense.probes.differences(pairs, 21), r**2, bounds=bounds, allow_violations=allowed,
        time_limit=60.0, rng=0, **asked,
    )  # fmt: skip
    assert result.met and result.set_aside.tolist() == sorted(wrong.tolist())


@pytest.mark.deep
def test_nearly_all_of_two_hundred_plantings_are_found():
    assert sum(map(is_found, range(200))) >= 196
