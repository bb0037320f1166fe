"""The verdict of `phases` against CVXPY's, far from and near the edge of feasibility."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import sampled
from psd_helpers import rows, smallest_worst_miss

from quadsense.core.intervals import Array, Intervals, Real
from quadsense.measurements.sensing import Sensing
from quadsense.methods.psd import phases
from quadsense.methods.psd.phases import SearchVerdict, prepare
from quadsense.proofs.positive import certify


@pytest.fixture(params=["real", "complex"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


MARGIN = 1.2e-5


def solve(U: Array, intervals: Intervals) -> phases.State:
    problem = prepare(U, intervals)
    return phases.advance(problem, phases.start(problem), 3000)


def misses(U: Array, X: Array, b: Real) -> Real:
    A = X @ X.conj().T
    return np.abs(np.einsum("ij,jk,ik->i", U.conj(), A, U).real - b)


def readings(rng: np.random.Generator, U: Array, story: int) -> Real:
    """Return readings about 1 that nothing positive semidefinite reproduces (mostly)."""
    m, n = U.shape
    if story == 0:  # noise on a full-rank or a rank-one matrix
        X = rng.standard_normal((n, rng.integers(1, n + 1)))
        b = np.sum(np.abs(U @ X) ** 2, axis=1)
        return b / b.mean() + 0.1 * rng.standard_normal(m)
    if story == 1:  # an indefinite matrix: a symmetric one fits exactly
        A = rng.standard_normal((n, n))
        A = A + A.T + 0.5 * np.eye(n)
        b = np.einsum("ij,jk,ik->i", U.conj(), A, U).real
        return b / np.abs(b).mean()
    return rng.uniform(0.0, 2.0, m)  # nothing at all


@pytest.mark.parametrize("seed", sampled(range(40), 5))
def test_verdict_equals_that_of_clarabel(seed: int, kind: str) -> None:
    rng = np.random.default_rng([seed, 7])
    n = int(rng.integers(1, 8))
    m = int(rng.integers(2, 8 + 2 * n * n))
    U = rows(rng, m, n, kind)
    b = readings(rng, U, seed % 3)
    unit = np.ones(m) if seed % 2 else rng.uniform(1.0, 5.0, m)
    best = smallest_worst_miss(U, b, unit)
    cases = {1.5 * best + 1e-3: SearchVerdict.MET, best + MARGIN: SearchVerdict.MET}
    if best > 4 * MARGIN:
        cases |= {best - MARGIN: SearchVerdict.INFEASIBLE, 0.6 * best: SearchVerdict.INFEASIBLE}
    for delta, expected in cases.items():
        intervals = Intervals.around(b, delta * unit)
        state = solve(U, intervals)
        assert state.verdict is expected, (delta, best, state.max_ratio, state.lower_bound)
        if expected is SearchVerdict.MET:
            assert np.max(misses(U, state.X, b) / unit) <= delta
        else:
            again = certify(Sensing.of(U), intervals, state.certificate.y)
            # The rows span the space here, so the proof has no condition (m >= n below).
            assert again.infeasible or m < n
            assert again.lower_bound <= best / delta * (1 + 1e-6)
