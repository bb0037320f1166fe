"""The nearest matrix within intervals by an active set, against CVXPY and the interior point."""

import cvxpy as cp
import numpy as np
import pytest
from helpers import sampled
from squares_cases import forward, hermitian, normal

import quadsense
from quadsense.query.plan import Shape, make_plan


def case(seed, *, twice=False):
    """Rows, intervals of both kinds and widths, and a prior."""
    rng = np.random.default_rng([77, seed])
    n, is_complex = int(rng.integers(2, 12)), bool(rng.integers(2))
    unknowns = n * n if is_complex else n * (n + 1) // 2
    m = max(2, int(unknowns * rng.choice([0.3, 0.7, 0.95])))
    U = normal(rng, m, n, is_complex=is_complex) * 10 ** rng.uniform(-1, 1, (m, 1))
    if twice:
        U[1] = 2.0 * U[0]
    b = forward(U, hermitian(rng, n, is_complex))
    half = np.sum(np.abs(U) ** 2, axis=1) * rng.choice([1e-6, 1e-2, 0.3, 3.0])
    lo, hi = b - half, b + half
    one = rng.integers(2, size=m) == 0
    kind = int(rng.integers(3))
    (lo if kind == 1 else hi)[one & (kind > 0)] = -np.inf if kind == 1 else np.inf
    prior = [None, 0.5, hermitian(rng, n, is_complex)][rng.integers(3)]
    return U, (lo, hi), prior


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_it_is_as_near_as_the_interior_point_method_comes(seed):
    U, bounds, prior = case(seed)
    asked = {"bounds": bounds, "prior": prior, "prefer": "nearest"}
    result = quadsense.solve(U, **asked)
    other = quadsense.solve(U, **asked, method="conic", gap=1e-8)
    assert (result.status, result.optimal) == ("met", True)
    assert result.objective == pytest.approx(other.objective, rel=3e-3, abs=1e-9)
    assert result.certificate.verify(U, bounds=bounds)


def test_it_is_what_cvxpy_finds(rng):
    U = normal(rng, 30, 8, is_complex=False)
    b = forward(U, hermitian(rng, 8, False))
    result = quadsense.solve(U, b, delta=0.4, prefer="nearest", prior=0.3)
    A = cp.Variable((8, 8), symmetric=True)
    v = np.stack([np.outer(u, u).ravel() for u in U]) @ cp.vec(A, order="C")
    problem = cp.Problem(cp.Minimize(cp.norm(A - 0.3 * np.eye(8), "fro")), [cp.abs(v - b) <= 0.4])
    problem.solve(solver="CLARABEL")
    assert result.plan["method"] == "cg"
    assert result.objective == pytest.approx(problem.value, rel=1e-6)
    assert np.allclose(result.A, A.value, rtol=0.0, atol=1e-5)


def test_rows_that_are_alike_are_left_to_the_interior_point_method_at_worst():
    for seed in range(6):
        U, bounds, prior = case(seed, twice=True)
        result = quadsense.solve(U, bounds=bounds, prior=prior, prefer="nearest")
        assert result.status == "met" and result.optimal


def test_an_earlier_result_makes_a_warm_start(rng):
    U = normal(rng, 200, 30, is_complex=False)
    b = forward(U, hermitian(rng, 30, False))
    cold = quadsense.solve(U, b, delta=0.1, prefer="nearest")
    again = quadsense.solve(U, b + 1e-4, delta=0.1, prefer="nearest", start=cold)
    assert again.plan["method"] == cold.plan["method"] == "cg"
    assert again.optimal and again.n_iter <= cold.n_iter


def test_without_room_for_the_gram_matrix_the_interior_point_method_is_asked():
    few = Shape(m=800, n=100, prefer="nearest")
    assert make_plan(few).methods[:2] == ("cg", "conic")
    for shape in (
        Shape(m=6000, n=100, prefer="nearest"),
        Shape(m=800, n=100, prefer="nearest", psd=True),
        Shape(m=800, n=100, prefer="nearest", constrained=True),
        Shape(m=30_000, n=300, prefer="nearest"),
    ):
        assert make_plan(shape).methods[0] == "conic"
