"""`quadsense.diffusion`: positive semidefinite tensors, next to weighted least squares."""

import inspect

import numpy as np
import pytest

from quadsense import Status
from quadsense.diffusion import DipyFitter

ORDER = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))


def design(g=60, seed=0):
    """Return DIPY's design matrix of random directions at b = 1000, the first five at b = 0."""
    directions = np.random.default_rng(seed).standard_normal((g, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    b = np.full(g, 1000.0)
    b[:5] = 0.0
    columns = [directions[:, j] * directions[:, k] * (1 + (j != k)) * b for j, k in ORDER]
    return -np.stack([*columns, np.ones(g)], axis=1)


def voxels(X, k, snr, eigenvalues=(1.7e-3, 0.2e-3, 0.02e-3), seed=1):
    """Return signals with Rician noise, and the tensors."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((k, 3, 3)))[0]
    D = (Q * np.array(eigenvalues)) @ Q.swapaxes(1, 2)
    beta = np.stack([*(D[:, j, k] for j, k in ORDER), np.full(k, -np.log(100.0))], axis=1)
    clean = np.exp(beta @ X.T)
    noise = 100.0 / snr * rng.standard_normal((2, *clean.shape))
    return np.hypot(clean + noise[0], noise[1]), D


def weighted_least_squares(X, S):
    """Return the coefficients, with squares of signals that plain least squares predicts."""
    logs = np.log(S)
    w = np.exp(logs @ np.linalg.pinv(X).T @ X.T)
    return np.stack([
        np.linalg.lstsq(X * each[:, None], each * log, rcond=None)[0]
        for each, log in zip(w, logs, strict=True)
    ])  # fmt: skip


def tensors(beta):
    D = np.empty((len(beta), 3, 3))
    for column, (j, k) in enumerate(ORDER):
        D[:, j, k] = D[:, k, j] = beta[:, column]
    return D


@pytest.mark.slow
def test_tensors_are_those_of_weighted_least_squares_where_these_are_positive():
    X = design()
    S, _ = voxels(X, 200, 20.0)
    fitter = DipyFitter()
    beta, _ = fitter(X, S, return_lower_triangular=True)
    plain = weighted_least_squares(X, S)
    least = np.linalg.eigvalsh(tensors(plain))[:, 0]
    positive = least > 0.0
    assert 20 < positive.sum() < 180
    np.testing.assert_allclose(beta[positive], plain[positive], rtol=1e-6, atol=1e-9)
    assert set(fitter.status) == {Status.OPTIMAL}
    assert (np.linalg.eigvalsh(tensors(beta))[:, 0] >= -1e-18).all()
    np.testing.assert_array_equal(fitter.results.corrected, ~positive)
    assert fitter.results.verify().all()


@pytest.mark.slow
@pytest.mark.parametrize("snr", [10.0, 20.0, 40.0])
def test_errors_of_thin_fibers_fall(snr):
    X = design()
    S, D = voxels(X, 500, snr, eigenvalues=(1.7e-3, 0.1e-3, 0.01e-3))
    fitter = DipyFitter()
    beta, _ = fitter(X, S, return_lower_triangular=True)
    touched = fitter.results.corrected
    assert touched.sum() > 100
    clipped = tensors(weighted_least_squares(X, S))
    values, vectors = np.linalg.eigh(clipped)
    clipped = (vectors * np.maximum(values, 0.0)[:, None]) @ vectors.swapaxes(1, 2)
    error = np.linalg.norm(tensors(beta) - D, axis=(1, 2))[touched].mean()
    before = np.linalg.norm(clipped - D, axis=(1, 2))[touched].mean()
    assert error < before


@pytest.mark.slow
def test_parameters_are_eigenvalues_and_eigenvectors():
    X = design()
    S, _ = voxels(X, 12, 30.0)
    fitter = DipyFitter()
    (parameters, S0), extra = fitter(X, S.reshape(3, 4, -1), return_S0_hat=True)
    assert parameters.shape == (3, 4, 12)
    assert S0.shape == (3, 4)
    assert extra["suspect"].shape == (3, 4, 60)
    values, vectors = parameters[..., :3], parameters[..., 3:].reshape(3, 4, 3, 3)
    assert (values >= 0.0).all()
    assert (np.diff(values, axis=-1) <= 0.0).all()
    D = (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)
    np.testing.assert_allclose(D.reshape(12, 3, 3), fitter.results.A, atol=1.1e-9)
    np.testing.assert_allclose(S0, 100.0, rtol=0.2)


@pytest.mark.slow
def test_spoiled_readings_are_suspect():
    X = design()
    S, _ = voxels(X, 50, 40.0)
    S[7, 20] *= 0.3
    S[31, 44] *= 3.0
    for options in ({}, {"sigma": 2.5}):
        _, extra = DipyFitter()(X, S, **options)
        assert extra["suspect"][7, 20]
        assert extra["suspect"][31, 44]
        assert extra["suspect"].mean() < 0.01


@pytest.mark.slow
def test_bounds_of_the_noise_hold_the_truth():
    X = design()
    S, _ = voxels(X, 300, 20.0)
    fitter = DipyFitter()
    fitter(X, S, sigma=5.0)
    assert (fitter.results.met).mean() > 0.95
    held = fitter.results.max_ratio[fitter.results.met]
    assert (held <= 1.0).all()
    fitter(X, S, sigma=0.5)
    assert (fitter.results.met).mean() < 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"design_matrix": np.ones((60, 6))}, r"design_matrix has shape \(60, 6\)"),
        ({"design_matrix": -np.ones((60, 7)) * [1, 0, 1, 0, 0, 1, 1]}, "no single direction"),
        ({"sigma": -1.0}, "sigma must be a positive number"),
        ({"sigma": 1.0, "confidence": 1.5}, "confidence must lie strictly between 0 and 1"),
    ],
)
def test_bad_input_is_named(change, message):
    X = design()
    given = {"design_matrix": X, "data": voxels(X, 3, 20.0)[0]} | change
    with pytest.raises(ValueError, match=message):
        DipyFitter()(**given)


def test_nothing_is_known_before_a_fit():
    with pytest.raises(ValueError, match="nothing was fitted yet"):
        _ = DipyFitter().status


@pytest.mark.slow
def test_leverages_are_the_derivatives_of_the_fit():
    X = design()
    S, _ = voxels(X, 3, 30.0, eigenvalues=(1.7e-3, 0.8e-3, 0.5e-3))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, S.shape)
    asked = {"weights": weights, "return_lower_triangular": True, "return_leverages": True}
    beta, extra = DipyFitter()(X, S, **asked)
    np.testing.assert_allclose(extra["leverages"].sum(axis=1), 7.0)
    S[:, 11] *= np.exp(1e-3)
    moved, _ = DipyFitter()(X, S, **asked)
    found = ((moved - beta) @ X.T)[:, 11] / 1e-3
    np.testing.assert_allclose(found, extra["leverages"][:, 11], rtol=1e-6)


OF_OTHER_ESTIMATORS = {
    "test_wls_and_ls_fit": "WLS returns nothing in extra",
    "test_rwls_rnlls_irls_fit": "iterations of robust estimators",
    "test_nlls_fit_tensor": "the Jacobian and the failures of nonlinear least squares",
    "test_restore": "the Jacobian and the outliers of RESTORE",
    "test_extra_return": "the outliers of RESTORE",
}
"""Tests of DIPY about what one of its own methods alone does, and what that is."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what DIPY warns of its own
def test_tests_of_dipy_pass_with_the_fitter(monkeypatch, pytestconfig):
    dti = pytest.importorskip("dipy.reconst.dti")
    own = pytest.importorskip("dipy.reconst.tests.test_dti")
    fitter = DipyFitter()
    methods = dict.fromkeys(dti.common_fit_methods, fitter)
    monkeypatch.setattr(dti, "common_fit_methods", methods)
    found = {name: test for name, test in vars(own).items() if name.startswith("test_")}
    assert set(OF_OTHER_ESTIMATORS) <= set(found)
    assert len(found) > 25
    for name in set(found) - set(OF_OTHER_ESTIMATORS):
        parameters = inspect.signature(found[name]).parameters
        found[name](*[pytestconfig] * ("pytestconfig" in parameters))
    assert fitter.results is not None


@pytest.mark.slow
def test_dipy_takes_the_fitter():
    dti = pytest.importorskip("dipy.reconst.dti")
    gradients = pytest.importorskip("dipy.core.gradients")
    X = design()
    B = tensors(-X)
    B /= np.array([[1.0, 2.0, 2.0], [2.0, 1.0, 2.0], [2.0, 2.0, 1.0]])
    values, vectors = np.linalg.eigh(B)
    table = gradients.gradient_table(values[:, 2], bvecs=vectors[:, :, 2])
    S, _ = voxels(X, 8, 30.0)
    mask = np.arange(8) < 6
    fitter = DipyFitter()
    model = dti.TensorModel(table, fit_method=fitter, return_S0_hat=True)
    fit = model.fit(S, mask=mask)
    assert fit.fa.shape == (8,)
    assert (fit.evals >= 0.0).all()
    assert model.extra["suspect"].shape == S.shape
    assert len(fitter.status) == 6
