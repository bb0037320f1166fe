"""The implicit answer equals its dense form in everything it offers."""

import array_api_strict
import numpy as np
import pytest
from helpers import gaussian_rows, hermitian, unit
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, cg

import quadsense
from quadsense.core.matrix import MeasuredForm, SensedMatrix


def make(form, complex_, m, n, seed=0):
    """A matrix in that form and its dense truth."""
    rng = np.random.default_rng(seed)
    U = gaussian_rows(rng, m, n, complex_)
    if form == "dense":
        A = hermitian(rng, n, complex_)
        return SensedMatrix.from_dense(A), A
    if form == "factor":
        return SensedMatrix.from_factor(U.T), U.T @ U.conj()
    c = rng.standard_normal(m)
    rows = quadsense.Measurements(U, np.ones(m), conjugate=form == "conjugate").unit_rows
    V = unit(U.conj() if form == "conjugate" else U)
    return SensedMatrix(MeasuredForm(0.7, c, rows)), 0.7 * np.eye(n) - (V.T * c) @ V.conj()


@pytest.fixture(params=["measured", "conjugate", "dense", "factor"])
def form(request):
    return request.param


@given(
    st.sampled_from(["measured", "conjugate", "dense", "factor"]),
    st.booleans(),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(0, 2**31),
)
def test_everything_equals_the_dense_matrix(form, complex_, m, n, seed):
    A, truth = make(form, complex_, m, n, seed)
    rng = np.random.default_rng(seed + 1)
    X = gaussian_rows(rng, n, 3, complex_)
    V = gaussian_rows(rng, 5, n, complex_)
    scale = 1.0 + np.linalg.norm(truth)
    tolerance = {"rtol": 0, "atol": 1e-12 * scale * 20}
    np.testing.assert_allclose(A @ X, truth @ X, **tolerance)
    np.testing.assert_allclose(A @ X[:, 0], truth @ X[:, 0], **tolerance)
    np.testing.assert_allclose(A.H @ X, truth @ X, **tolerance)
    quadratic = np.einsum("ij,jk,ik->i", V.conj(), truth, V).real
    np.testing.assert_allclose(A.quadratic(V), quadratic, **tolerance)
    assert A.quadratic(V).dtype == np.float64
    assert A.trace() == pytest.approx(np.trace(truth).real, abs=1e-12 * scale * n)
    assert A.norm() == pytest.approx(np.linalg.norm(truth), rel=1e-7, abs=1e-7)
    np.testing.assert_allclose(A.diagonal(), np.diagonal(truth).real, **tolerance)
    np.testing.assert_allclose(A.to_dense(), truth, **tolerance)
    np.testing.assert_allclose(np.asarray(A), truth, **tolerance)


def test_it_is_a_scipy_operator(form, complex_):
    A, truth = make("factor", complex_, 8, 5)
    assert isinstance(A, LinearOperator)
    x, info = cg(A, np.ones(5), rtol=1e-12)
    assert info == 0
    np.testing.assert_allclose(truth @ x, np.ones(5), atol=1e-8)


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("n", [12, 300])
def test_eigenpairs_with_and_without_arpack(which, n, complex_):
    A, truth = make("measured", complex_, 20, n)
    values, vectors = A.eigsh(3, which=which)
    np.testing.assert_allclose(truth @ vectors, vectors * values, atol=1e-9)
    every = np.linalg.eigvalsh(truth)
    key = {"LM": -np.abs(every), "LA": -every, "SA": every}[which]
    np.testing.assert_allclose(
        np.sort(key)[:3], {"LM": -np.abs(values), "LA": -values, "SA": values}[which], atol=1e-9
    )


def test_a_matrix_far_too_large_to_form_still_answers(rng):
    n, m = 200_000, 3
    U = rng.standard_normal((m, n))
    result = quadsense.solve(U, rng.random(m) * n, delta=1.0)
    assert result.success
    assert result.matrix.trace() == pytest.approx(float(result.matrix.diagonal().sum()), rel=1e-9)
    np.testing.assert_allclose(
        result.matrix.quadratic(U), np.sum(U * (result.matrix @ U.T).T, axis=1), rtol=1e-9
    )
    assert np.isfinite(result.matrix.norm())
    with pytest.raises(MemoryError, match=r"298.* GiB.*use result.matrix"):
        _ = result.A


def test_products_keep_the_namespace_of_the_vector(rng):
    U = rng.standard_normal((4, 3))
    result = quadsense.solve(array_api_strict.asarray(U), np.ones(4), delta=0.5)
    x = array_api_strict.asarray(rng.standard_normal(3))
    assert type(result.matrix @ x) is type(x)
    assert type(result.A) is type(x)
    dense = np.asarray(result.A)
    np.testing.assert_allclose(np.asarray(result.matrix @ x), dense @ np.asarray(x), atol=1e-14)
    np.testing.assert_allclose(result.matrix @ np.asarray(x), dense @ np.asarray(x), atol=1e-14)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda A: A.eigsh(0), "k must lie between 1 and n = 5"),
        (lambda A: A.eigsh(2, which="XX"), "which must be one of LM, LA, SA"),
        (lambda A: A.quadratic(np.ones(5)), r"V must have shape \(k, 5\)"),
        (lambda A: A.quadratic(np.ones((2, 4))), r"got \(2, 4\)"),
    ],
)
def test_bad_arguments_are_named(call, word):
    A, _ = make("dense", False, 5, 5)
    with pytest.raises(ValueError, match=word):
        call(A)


@pytest.mark.parametrize("signs", [None, np.array([1.0, -1.0])])
def test_the_norm_of_a_factored_matrix_survives_squares_beyond_float64(signs):
    X = 1e90 * np.array([[3.0, 0.0], [0.0, 2.0]])
    A = SensedMatrix.from_factor(X, signs)
    assert A.norm() == pytest.approx(1e180 * np.hypot(9.0, 4.0), rel=1e-14)
