"""Definiteness, rank and eigenvalues that are proved, next to exact elimination."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from exact_matrices import is_between, is_semidefinite, real_form, roundings, shifted
from helpers import gaussian_rows, hermitian

from quadsense.core.matrix import FactorForm, SensedMatrix
from quadsense.proofs import definite
from quadsense.proofs.definite import (
    cholesky,
    factorisation_error,
    first_shift,
    numerical_rank,
    proven_sigma,
    smallest_eigenvalue,
    solve,
    spectrum,
)


def gram(rng, n, k, complex_=False):
    X = gaussian_rows(rng, n, k, complex_)
    return X @ X.conj().T


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_factor_is_found_of_what_is_definite_and_of_nothing_else(rng, complex_, overwrite):
    G = np.asfortranarray(gram(rng, 5, 9, complex_))
    kept = G.copy()
    R = np.triu(cholesky(G, overwrite=overwrite))
    np.testing.assert_allclose(R.conj().T @ R, kept, rtol=1e-12)
    assert overwrite or np.array_equal(G, kept)
    indefinite = kept - 1.001 * np.linalg.eigvalsh(kept)[0] * np.eye(5)
    assert cholesky(indefinite, overwrite=overwrite) is None
    assert cholesky(np.full((2, 2), np.nan)) is None
    assert cholesky(np.diag([1.0, np.inf])) is None


@pytest.mark.parametrize("order", [1, 7, 1000])
def test_a_factorization_errs_by_at_most_what_rump_proves(order):
    proved = roundings(order + 1) / (1 - roundings(order + 1))
    assert is_between(factorisation_error(order, 3.0), 3 * proved, 12 * 2 * proved)
    assert factorisation_error(order, 1.0, 1e-3) == pytest.approx(2e-3 * (order + 2))
    assert factorisation_error(order, -1.0) == 0.0


def test_a_factor_that_exists_proves_no_more_than_its_error():
    """Hilbert's matrices: elimination in floating point runs to its end where it should not."""
    false = 0
    for n in range(8, 15):
        S = 1.0 / (1.0 + np.add.outer(np.arange(n), np.arange(n)))
        sizes = 2.0 ** -np.arange(40.0, 60.0)
        found = first_shift(S, [*sizes, 0.0, *-sizes[::-1]])
        error = factorisation_error(n, found.trace)
        exact = shifted(real_form(S), found.size)
        false += not is_semidefinite(exact)
        assert is_semidefinite(shifted(exact, -Fraction(error)))
    assert false


def test_the_first_shift_that_leaves_a_factor_is_taken():
    S, diagonal = np.diag([4.0, 9.0, 25.0]), np.array([1.0, 3.0, 1.0])
    found = first_shift(S, (5.0, 3.5, 1.0))
    assert found == (3.5, 38.0 - 3 * 3.5)
    assert first_shift(S, [3.0], diagonal) is None  # 9 - 3 * 3
    assert first_shift(S, [2.0], diagonal, 0.5) == (2.0, 38.0 - 2.0 * 5 - 1.5)
    assert first_shift(S, (4.0,)) is None
    assert first_shift(S, []) is None
    assert np.array_equal(S, np.diag([4.0, 9.0, 25.0]))


@pytest.mark.parametrize("n", [1, 3, 40])
def test_the_smallest_eigenvalue_is_estimated_from_above(rng, n):
    G, diagonal = gram(rng, n, 2 * n + 1), rng.uniform(0.5, 2.0, n)
    root = np.sqrt(diagonal)
    true = float(np.linalg.eigvalsh(G / np.outer(root, root))[0])
    found = smallest_eigenvalue(cholesky(G), diagonal)
    assert is_between(found, true * (1.0 - 1e-12), true * 1.1)
    x = rng.standard_normal(n)
    np.testing.assert_allclose(solve(cholesky(G), G @ x), x, rtol=1e-6)
    assert solve(cholesky(G), np.ones((n, 2))).shape == (n, 2)


def test_the_estimate_of_a_multiple_of_the_identity_is_exact():
    assert smallest_eigenvalue(2.0 * np.eye(6), np.ones(6)) == pytest.approx(4.0, rel=1e-14)


@pytest.mark.parametrize("n", [2, 6])
def test_a_sigma_that_is_proved_is_true_and_near(rng, n):
    G, diagonal = gram(rng, n, 3 * n), rng.uniform(0.5, 2.0, n)
    root = np.sqrt(diagonal)
    true = float(np.linalg.eigvalsh(G / np.outer(root, root))[0])
    slip = factorisation_error(n, float(np.trace(G)))
    found = proven_sigma(G, cholesky(G), diagonal, slip)
    assert is_between(found, math.sqrt(0.98 * true), math.sqrt(true))
    assert is_semidefinite(shifted(real_form(G), Fraction(found) ** 2, diagonal))
    assert proven_sigma(G, cholesky(G), diagonal, float(np.trace(G))) == 0.0
    # A slip that takes nearly all of it leaves little: twice the slip is taken off.
    least = float(np.linalg.eigvalsh(G)[0])
    rest = proven_sigma(G, cholesky(G), np.ones(n), 0.45 * least)
    assert is_between(rest**2, 0.005 * least, 0.1 * least * 1.0001)


@pytest.mark.parametrize("rank", [0, 1, 4])
def test_pivots_above_the_slip_are_counted(rng, rank):
    G = gram(rng, 6, rank) if rank else np.zeros((6, 6))
    assert numerical_rank(G.copy(), 1e-10) == rank
    assert numerical_rank(np.diag([1.0, 1e-3, 1e-6]), 1e-4) == 2


# --- eigenvalues -----------------------------------------------------------------------------


def blocks(rng, count, complex_):
    """Two by two blocks and what their eigenvalues are, as fractions under a root."""
    n = 2 * count
    M = np.zeros((n, n), dtype=np.complex128 if complex_ else np.float64)
    exact = []
    for k in range(0, n, 2):
        a, d, p, q = (int(each) for each in rng.integers(-1000, 1000, 4))
        M[k, k], M[k + 1, k + 1] = a, d
        M[k + 1, k] = p + 1j * q if complex_ else p
        M[k, k + 1] = np.conj(M[k + 1, k])
        root = math.sqrt(Fraction((a - d) ** 2, 4) + p * p + (q * q if complex_ else 0))
        exact += [(a + d) / 2 - root, (a + d) / 2 + root]
    order = rng.permutation(n)
    return M[np.ix_(order, order)], np.sort(exact)


@pytest.mark.parametrize("count", [1, 16, 20])
def test_eigenvalues_are_within_their_bound(rng, complex_, count):
    M, exact = blocks(rng, count, complex_)
    found = spectrum(M)
    size = float(np.linalg.norm(M))
    assert np.linalg.norm(found.values - exact) <= found.error + 4e-16 * size
    n = 2 * count
    # Two products with V, and how far it is from unitary: each errs by n roundings of the norms.
    least = 2.0 * 4.0 * float(roundings(n + 8)) * size * math.sqrt(n)
    assert is_between(found.error, least, 40.0 * 4.0 * float(roundings(n + 8)) * size * n)


@pytest.mark.parametrize("part", ["values", "vectors", "not orthonormal"])
def test_the_bound_covers_what_the_routine_got_wrong(monkeypatch, rng, complex_, part):
    M = hermitian(rng, 4, complex_)
    values, V = np.linalg.eigh(M)
    turned = V.copy()
    turned[:, :2] = V[:, :2] @ np.array([[0.8, 0.6], [-0.6, 0.8]])
    wrong = {
        "values": (values + np.array([0.0, 0.0, 0.0, 0.25]), V),
        "vectors": (values, turned),
        "not orthonormal": (values, V * np.array([1.0, 1.0, 1.0, 1.1])),
    }[part]
    monkeypatch.setattr(definite, "_eigen", lambda _: wrong)
    found = spectrum(M)
    size = float(np.linalg.norm(M))
    # Vectors that are turned are each off by .6 of the difference of two eigenvalues.
    least, most = {
        "values": (0.25, 0.25),
        "vectors": 2 * (0.6 * math.sqrt(2.0) * (values[1] - values[0]),),
        "not orthonormal": (2 * 0.21 * size, 2 * 0.21 * size + abs(values[3])),
    }[part]
    assert is_between(found.error, least, 1.02 * most)


def test_vectors_far_from_orthonormal_prove_nothing(monkeypatch):
    M = np.diag([1.0, 2.0])
    monkeypatch.setattr(definite, "_eigen", lambda _: (np.array([1.0, 2.0]), 2.0 * np.eye(2)))
    assert spectrum(M).error == math.inf
    monkeypatch.setattr(definite, "_eigen", lambda _: (np.array([1.0, 2.0]), np.zeros((2, 2))))
    assert spectrum(M).error == math.inf


def test_nothing_and_infinity_have_no_eigenvalues_to_find():
    assert spectrum(np.zeros((3, 3))).error == 0.0
    assert np.array_equal(spectrum(np.zeros((3, 3))).values, np.zeros(3))
    assert spectrum(np.full((2, 2), np.inf)).error == math.inf


def test_where_lapack_fails_another_routine_is_asked(monkeypatch):
    M = np.diag([3.0, 1.0])
    monkeypatch.setattr(
        definite.lapack, "dsyevd", lambda M, lower: (np.zeros(2), np.zeros((2, 2)), 1)
    )
    np.testing.assert_allclose(spectrum(M).values, [1.0, 3.0])
    assert spectrum(M).error < 1e-12


# --- of results ------------------------------------------------------------------------------


def test_rank_and_inertia_are_those_of_the_form_or_above_rounding():
    X, signs = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), np.array([1.0, -1.0])
    held = SensedMatrix.from_factor(X)
    assert (definite.rank_of(held), definite.inertia_of(held)) == (2, (2, 0))
    assert definite.is_positive(held)
    both = SensedMatrix(FactorForm(X, signs))
    assert (definite.rank_of(both), definite.inertia_of(both)) == (2, (1, 1))
    assert not definite.is_positive(both)
    values = np.array([3.0, -1.0, 1e-17, -1e-17])
    dense = SensedMatrix.from_dense(np.diag(values))
    assert (definite.rank_of(dense), definite.inertia_of(dense)) == (2, (1, 1))
    assert not definite.is_positive(dense)
    nearly = SensedMatrix.from_dense(np.diag([3.0, -1e-17, 0.0]))
    assert definite.is_positive(nearly) and definite.inertia_of(nearly) == (1, 0)
    edge = definite.EIGENVALUE_ERROR * 2
    assert definite.is_positive(SensedMatrix.from_dense(np.diag([1.0, -0.99 * edge])))
    assert not definite.is_positive(SensedMatrix.from_dense(np.diag([1.0, -1.01 * edge])))
    assert not definite.is_positive(SensedMatrix.from_dense(np.diag([-1.0, -2.0])))
