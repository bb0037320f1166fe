"""Intervals far beyond what the others force on A bind nothing, and are no unit for anything."""

import numpy as np
import pytest
from helpers import readings

import quadsense


def lower_ends(seed):
    """Rows, and lower ends of readings that a matrix of rank two meets."""
    rng = np.random.default_rng(seed)
    U, X = rng.standard_normal((6, 3)), rng.standard_normal((3, 2))
    return U, 0.9 * readings(U, X @ X.T)


@pytest.mark.parametrize("far", [1e9, 1e12, 1e15])
@pytest.mark.parametrize("which", ["every", "some", "one"])
@pytest.mark.parametrize(
    "asked",
    [{"prefer": "min_trace", "psd": True}, {"prefer": "nearest", "prior": 0.0}, {"slack": "sum"}],
)
def test_a_far_end_is_as_good_as_none(which, asked, far):
    U, lo = lower_ends(0)
    hi = np.full(6, far)
    none = np.full(6, np.inf)
    if which == "some":
        hi[::2] = none[::2] = 1.2 * lo[::2]
    wide = np.where(np.arange(6) == 0, lo, -far) if which == "one" else lo
    free = np.where(np.arange(6) == 0, lo, -np.inf) if which == "one" else lo
    result = quadsense.solve(U, bounds=(wide, hi), **asked)
    other = quadsense.solve(U, bounds=(free, none), **asked)
    assert result.status == other.status and result.optimal and other.optimal
    assert result.objective == pytest.approx(other.objective, rel=0.02, abs=1e-9)
    assert result.objective_bounds[0] <= other.objective * (1.0 + 1e-9)
    assert other.objective_bounds[0] <= result.objective * (1.0 + 1e-9)
    assert result.verify(U)


@pytest.mark.parametrize("seed", range(4))
def test_a_trace_that_is_not_the_least_is_not_called_so(seed):
    """A matrix 1e4 times too large once passed for the optimum, next to ends of 1e12."""
    U, lo = lower_ends(seed)
    lo, hi = np.where(np.arange(6) == 0, lo, -1e12), np.full(6, 1e12)
    result = quadsense.solve(U, bounds=(lo, hi), psd=True, prefer="min_trace")
    least = lo[0] / float(U[0] @ U[0])  # along the one row that forces something
    assert result.optimal and result.verify(U)
    assert least * (1.0 - 1e-9) <= result.objective <= 1.01 * least


def test_an_end_that_seems_far_but_binds_is_kept():
    """All that is forced is tiny, for the intervals nearly touch 0: the other ends bind."""
    U = np.random.default_rng(0).standard_normal((8, 3))
    lo, hi = np.full(8, 1e-10), np.full(8, 2.0)
    result = quadsense.solve(U, bounds=(lo, hi), prefer="nearest", prior=5.0)
    other = quadsense.solve(U, bounds=(np.zeros(8), hi), prefer="nearest", prior=5.0)
    assert result.met and result.optimal and result.verify(U)
    assert result.objective == pytest.approx(other.objective, rel=0.02)
