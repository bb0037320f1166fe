"""Factorisations in blocks are those of LAPACK."""

import numpy as np
import pytest
from helpers import gaussian_rows

from quadsense.core import cholesky


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cholesky, "MAX_WHOLE_ORDER", 10)
    monkeypatch.setattr(cholesky, "MAX_WHOLE_FLOPS", 10.0)
    monkeypatch.setattr(cholesky, "PANEL", 8)
    monkeypatch.setattr(cholesky, "BLOCK_FLOPS", 100.0)
    monkeypatch.setattr(cholesky, "BLOCK_ELEMENTS", 100)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("n", [1, 10, 11, 14, 50])
def test_the_factor_in_blocks_is_the_factor(n, complex_):
    X = gaussian_rows(np.random.default_rng(n), n + 5, n, complex_)
    M = X.conj().T @ X
    given = np.asfortranarray(np.triu(M) + 1e3 * np.tril(np.ones((n, n)), -1))  # never read
    R, info = cholesky.factor_upper(given)
    assert info == 0
    np.testing.assert_allclose(np.triu(R), np.linalg.cholesky(M).conj().T, atol=1e-12 * n * n)


@pytest.mark.parametrize("bad", [0, 5, 9, 20, 29])
def test_the_first_leading_part_that_is_not_definite_is_named(bad):
    X = np.random.default_rng(0).standard_normal((40, 30))
    M = X.T @ X
    M[bad, bad] = -1.0
    assert cholesky.factor_upper(np.asfortranarray(M))[1] == bad + 1


def test_inner_products_in_panels():
    X = np.random.default_rng(0).standard_normal((20, 33))
    M = cholesky.inner_upper(X)
    np.testing.assert_allclose(np.triu(M), np.triu(X.T @ X), atol=1e-13)
    M = cholesky.inner_upper(X, M)
    np.testing.assert_allclose(np.triu(M), 2.0 * np.triu(X.T @ X), atol=1e-13)


@pytest.mark.parametrize("complex_", [False, True])
def test_squared_moduli_in_blocks(complex_):
    U = gaussian_rows(np.random.default_rng(0), 600, 3, complex_)
    np.testing.assert_allclose(cholesky.squared_moduli(U), np.abs(U @ U.conj().T) ** 2, atol=1e-12)


@pytest.mark.parametrize("rank", [4, 12, 25])
def test_the_pivoted_factor_has_the_rank_of_the_matrix(rank):
    X = np.random.default_rng(rank).standard_normal((25, rank))
    K = X @ X.T
    L, order = cholesky.pivoted(K.copy(), 1e-12)
    assert L.shape == (25, rank)
    assert sorted(order) == list(range(25))
    np.testing.assert_allclose(L @ L.T, K, atol=1e-12)
    assert not np.triu(L[order][:rank], 1).any()
