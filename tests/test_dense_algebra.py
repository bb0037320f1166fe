"""What methods and proofs share: quasi-Newton memory, the stall rule, definiteness, packed sums."""

import numpy as np
import pytest

from quadsense.core import lbfgs, packed
from quadsense.core.progress import looked
from quadsense.proofs.definite import cholesky, factorisation_error, first_shift


def _inverse_hessian(memory, H):
    """The inverse Hessian by BFGS updates, one by one [Nocedal & Wright 2006, eq. 6.17]."""
    for s, y, sy in memory:
        V = np.eye(len(s)) - np.outer(y, s) / sy
        H = V.T @ H @ V + np.outer(s, s) / sy
    return H


@pytest.mark.parametrize("pairs", [0, 1, 4])
def test_the_direction_is_that_of_dense_bfgs_updates(pairs):
    rng = np.random.default_rng(pairs)
    M = rng.standard_normal((6, 6))
    M = M @ M.T + np.eye(6)
    memory = ()
    for _ in range(pairs):
        move = rng.standard_normal(6)
        memory = lbfgs.remember(memory, move, M @ move, 10)
    slope = rng.standard_normal(6)
    first = np.diag(rng.uniform(1.0, 2.0, 6))
    given = slope.copy()
    found = lbfgs.direction(memory, slope, lambda q: first @ q)
    np.testing.assert_allclose(found, -_inverse_hessian(memory, first) @ slope, rtol=1e-10)
    np.testing.assert_array_equal(slope, given)
    scale = memory[-1][2] / (memory[-1][1] @ memory[-1][1]) if memory else 1.0
    found = lbfgs.direction(memory, slope, lbfgs.scaled(memory))
    expected = -_inverse_hessian(memory, scale * np.eye(6)) @ slope
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_memory_keeps_the_newest_pairs_of_positive_curvature():
    one = np.ones(3)
    memory = ()
    for k in range(1, 6):
        memory = lbfgs.remember(memory, k * one, one, 3)
    assert [curvature for _, _, curvature in memory] == [9.0, 12.0, 15.0]
    assert lbfgs.remember(memory, one, -one, 3) is memory
    nearly = np.array([1.0, 1e-13, 0.0])
    assert lbfgs.remember((), np.array([0.0, 1.0, 0.0]), nearly, 3, least=1e-12) == ()
    assert len(lbfgs.remember((), np.array([0.0, 1.0, 0.0]), nearly, 3)) == 1


def test_progress_is_a_fall_of_any_number_and_what_is_not_is_counted():
    marks, idle = looked((1.0, 0.0), 0, (0.95, 0.0), 0.9)
    assert (marks, idle) == ((1.0, 0.0), 1)  # what was 0 and stays so is no progress
    marks, idle = looked(marks, idle, (0.95, 0.0), 0.9)
    assert idle == 2
    assert looked(marks, idle, (0.85, 7.0), 0.9) == ((0.85, 7.0), 0)
    assert looked((np.inf,), 3, (np.nan,), 0.9).idle == 4


@pytest.mark.parametrize("complex_", [False, True])
def test_a_shift_proves_the_smallest_eigenvalue_and_not_more(complex_):
    rng = np.random.default_rng(0)
    G = rng.standard_normal((8, 8)) + (1j * rng.standard_normal((8, 8)) if complex_ else 0.0)
    S = G @ G.conj().T
    least = np.linalg.eigvalsh(S)[0]
    found = first_shift(S, (1.5 * least, 1.01 * least, 0.99 * least, 0.5 * least))
    assert found.size == 0.99 * least
    np.testing.assert_allclose(found.trace, np.trace(S).real - 8 * found.size)
    assert 0.0 < factorisation_error(8, found.trace) < 1e-13 * np.trace(S).real
    assert first_shift(S, (2.0 * least,)) is None
    weights = rng.uniform(1.0, 2.0, 8)
    root = np.sqrt(weights)
    relative = np.linalg.eigvalsh(S / np.outer(root, root))[0]
    assert first_shift(S, (1.01 * relative, 0.99 * relative), weights).size == 0.99 * relative
    assert cholesky(np.full((2, 2), np.nan)) is None


@pytest.mark.parametrize("complex_", [False, True])
def test_the_packed_adjoint_is_the_packed_sum(complex_):
    rng = np.random.default_rng(1)
    U = rng.standard_normal((2000, 4)) + (1j * rng.standard_normal((2000, 4)) if complex_ else 0.0)
    y = rng.standard_normal((2000, 2))
    for column in range(2):
        S = np.einsum("i,ij,ik->jk", y[:, column], U, U.conj())
        np.testing.assert_allclose(packed.adjoint(U, y)[:, column], packed.pack(S), atol=1e-9)
    lam = rng.uniform(1.0, 2.0, 4)
    X = rng.standard_normal((4, 4)) + (1j * rng.standard_normal((4, 4)) if complex_ else 0.0)
    X = X + X.conj().T
    np.testing.assert_allclose(
        packed.pair_products(lam, X.dtype) * packed.pack(X), packed.pack(np.outer(lam, lam) * X)
    )
