"""Least squares of low rank comes to rest where curvatures are of either sign, and rows uneven."""

import numpy as np
import pytest
from helpers import gaussian_rows
from scipy.optimize import minimize

import quadsense
from quadsense.methods.low_rank.passes import evaluate
from quadsense.methods.low_rank.program import prepare
from quadsense.methods.low_rank.rest import Trusted, is_settled, settled
from quadsense.methods.low_rank.starts import random_start


@pytest.fixture(autouse=True)
def _errors_raise():
    with np.errstate(all="raise", under="ignore"):
        yield


@pytest.mark.parametrize("kind", ["definite", "indefinite", "singular", "hard"])
def test_a_trusted_step_is_the_best_within_its_radius(kind):
    rng = np.random.default_rng(3)
    for _ in range(40):
        values = {
            "definite": rng.uniform(0.1, 3.0, 4),
            "indefinite": rng.standard_normal(4),
            "singular": np.r_[0.0, 0.0, rng.uniform(0.1, 3.0, 2)],
            "hard": np.r_[-1.0, rng.uniform(0.0, 3.0, 3)],
        }[kind]
        Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        B, right = (Q * values) @ Q.T, rng.standard_normal(4)
        if kind == "hard":  # nothing along the eigenvector of the least curvature
            right -= Q[:, 0] * (Q[:, 0] @ right)
        radius = 10.0 ** rng.uniform(-2.0, 1.0)
        x, gain = Trusted(right, B).step(radius)
        assert np.linalg.norm(x) <= radius * (1.0 + 1e-9)
        assert gain == pytest.approx(right @ x - 0.5 * x @ B @ x, rel=1e-9)
        others = rng.standard_normal((2000, 4))
        sizes = radius * rng.uniform(0.0, 1.0, 2000) ** 0.25
        others *= (sizes / np.linalg.norm(others, axis=1))[:, None]
        others[:500] = x + 1e-2 * others[:500]
        others *= np.minimum(1.0, radius / np.linalg.norm(others, axis=1))[:, None]
        gains = others @ right - 0.5 * np.einsum("ki,ij,kj->k", others, B, others)
        assert np.max(gains) <= gain * (1.0 + 1e-9) + 1e-12


@pytest.mark.parametrize("complex_", [False, True])
def test_least_squares_rests_from_wherever_it_starts(complex_):
    rng = np.random.default_rng(4)
    for _ in range(30):
        n, m = int(rng.integers(2, 6)), int(rng.integers(3, 12))
        U = gaussian_rows(rng, m, n, complex_)
        U /= np.linalg.norm(U, axis=1)[:, None]
        b, delta = 0.3 * rng.standard_normal(m), 10.0 ** rng.uniform(0.0, 2.0, m)
        program = prepare(U, b, delta, 2, target=False)
        start = evaluate(program, random_start(program, 2, rng), 0.0)
        found = settled(program, start)
        assert found.value <= start.value
        X = found.Y.T
        z = np.linalg.norm(U.conj() @ X, axis=1) ** 2 - b
        pull = z / delta**2 / np.max(1.0 / delta**2)
        slope = 2.0 * (U.T * pull) @ (U.conj() @ X)
        unit = np.linalg.norm(pull) * max(np.linalg.norm(U.conj() @ X), 1e-3)
        assert np.linalg.norm(slope) <= 1e-5 * unit or np.max(np.abs(z)) <= 1e-12


def test_digits_of_heavy_rows_do_not_hide_whether_light_ones_are_at_rest():
    U, heavy = np.eye(3)[[0, 1, 2, 2]], np.array([0.3, 0.7])
    program = prepare(U, np.r_[heavy, 0.2, 0.3], np.array([1.0, 1.0, 1e7, 1e7]), 1, target=False)
    for third, rests in ((0.25, True), (0.25 * (1.0 + 1e-4), False), (0.3, False)):
        Y = np.sqrt(np.r_[heavy, third])[None] * (1.0 + np.finfo(float).eps)
        point = evaluate(program, Y, 0.0)
        assert is_settled(program, point) is rests
        after = settled(program, point)
        assert is_settled(program, after)
        np.testing.assert_allclose(after.Y[0] ** 2, np.r_[heavy, 0.25], rtol=1e-6)


def test_rows_of_uneven_norms_and_no_tolerance_come_to_rest():
    rng = np.random.default_rng(6)
    for _ in range(10):
        norms = 10.0 ** rng.uniform(-3.0, 3.0, 5)
        U = rng.standard_normal((5, 4)) * norms[:, None]
        b = norms**2 * rng.standard_normal(5)
        assert quadsense.solve(U, b, rank=1, max_restarts=0, rng=0).status == "local"


@pytest.mark.parametrize("seed", [4, 9, 13, 47, 58, 83])
def test_rows_that_outweigh_all_others_leave_these_at_rest(seed):
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((7, 4))
    U[4] = U[3] * (1.0 + 1e-4 * rng.standard_normal(4))
    U[:2] *= 1e3
    x = rng.standard_normal(4)
    b = (U @ x) ** 2 * (1.0 + 0.2 * rng.standard_normal(7))
    b[:2] = (U[:2] @ x) ** 2
    result = quadsense.solve(U, b, rank=1, max_restarts=0, rng=0)
    assert result.status == "local"
    values, vectors = np.linalg.eigh(np.asarray(result.A))
    x = vectors[:, -1] * np.sqrt(values[-1])
    z = (U @ x) ** 2 - b
    assert np.max(np.abs(z[:2])) <= 1e-6 * np.max(b)
    slopes = 2.0 * U * (U @ x)[:, None]
    pull = slopes[2:].T @ z[2:]
    across = np.linalg.qr(slopes[:2].T, mode="complete")[0][:, 2:]
    parts = np.linalg.norm(slopes[2:].T * z[2:])
    assert np.linalg.norm(across.T @ pull) <= 1e-5 * parts


def constrained(seed):
    """Least squares of low rank under equalities, ends and intervals that some A meets."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 8))
    m, r = int(rng.integers(n, 3 * n * n)), int(rng.integers(1, 3))
    U, b = rng.standard_normal((m, n)), rng.standard_normal(m) * n
    X = rng.standard_normal((n, r))
    constraints = []
    for _ in range(int(rng.integers(1, 4))):
        C = rng.standard_normal((n, n))
        C = C + C.T
        value, kind = float(np.sum(C * (X @ X.T))), rng.integers(3)
        low = value if kind == 0 else -np.inf if kind == 1 else value - rng.uniform(0.0, 2.0)
        constraints.append((C, low, value if kind == 0 else value + rng.uniform(0.0, 2.0)))
    return U, b, r, constraints


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 11, 69, 98])
def test_constraints_that_are_in_the_way_are_held_and_let_go(seed):
    U, b, r, constraints = constrained(seed)
    result = quadsense.solve(
        U, b, rank=r, constraints=constraints, prefer="least_squares", max_restarts=0, rng=0
    )
    assert result.status == "local", result.message
    A = np.asarray(result.A)
    values, vectors = np.linalg.eigh(A)
    X = vectors[:, -r:] * np.sqrt(np.maximum(values[-r:], 0.0))

    def loss(x):
        return np.sum((np.sum((U @ x.reshape(X.shape)) ** 2, axis=1) - b) ** 2) / result.objective

    def reads(x, C):
        Y = x.reshape(X.shape)
        return np.sum(C * (Y @ Y.T))

    limits = []
    for C, low, high in constraints:
        assert low - 1e-7 <= np.sum(C * A) <= high + 1e-7
        if low == high:
            limits.append({"type": "eq", "fun": lambda x, C=C, v=low: reads(x, C) - v})
            continue
        limits.append({"type": "ineq", "fun": lambda x, C=C, v=high: v - reads(x, C)})
        if low > -np.inf:
            limits.append({"type": "ineq", "fun": lambda x, C=C, v=low: reads(x, C) - v})
    on = minimize(loss, X.ravel(), method="SLSQP", constraints=limits, options={"maxiter": 5})
    near = np.linalg.norm(on.x - X.ravel()) <= 1e-2 * np.linalg.norm(X)
    assert not near or on.fun >= 1.0 - 1e-6
