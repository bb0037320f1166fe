"""Diffusion tensors: positive semidefinite weighted least squares, one tensor per voxel, for DIPY.

The signal is ``S_i = S0 exp(-b_i g_i^T D g_i)``: ``-ln S_i`` is a reading of D by the probe
``sqrt(b_i) g_i`` minus ln S0, a covariate with a free coefficient. The noise of ``ln S`` is that of
S over S, so that weights are S^2, predicted by ordinary least squares [Basser, Mattiello & LeBihan
1994]. Nothing of DIPY is imported.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.many.kernels import eigensystems
from quadsense.many.results import ManyResults
from quadsense.many.solve import solve_many
from quadsense.typing import is_number

Array = npt.NDArray[np.float64]

MAX_NOT_RANK_ONE = 1e-6
"""Second eigenvalue of a measured direction, relative to the first, that is rounding."""

MIN_SIGNAL = 1e-300
"""Signal below which there is no logarithm."""

SMALLEST = 1e-6
"""Exponent b D below which a diffusivity is none, as in DIPY: ratios of such make no anisotropy."""

NORMAL_SHARE = math.sqrt(0.5 * math.pi)
"""Standard deviation of Gaussian numbers over the mean of their moduli."""

SUSPECT_DEVIATIONS = 4.0
"""Standard deviations from which a reading is suspect: of 64 good ones one in 250 voxels."""


class DipyFitter:
    """A callable for DIPY's ``TensorModel(gtab, fit_method=...)``.

    `dipy_fitter` is one; make another where the statuses of several fits are to be kept.

    Attributes
    ----------
    results : ManyResults or None
        What the last fit found: statuses, bounds and certificates of each voxel.

    Notes
    -----
    In DIPY ``model = TensorModel(gtab, fit_method=quadsense.diffusion.dipy_fitter)``; after
    ``model.fit(data)`` the statuses are ``dipy_fitter.status``, and ``model.extra["suspect"]`` says
    which readings are far from the fit.
    """

    def __init__(self) -> None:
        self.results: ManyResults | None = None

    @property
    def status(self) -> npt.NDArray[Any]:
        """The status of each voxel of the last fit."""
        if self.results is None:
            raise ValueError("nothing was fitted yet: call the fit of a TensorModel first")
        return self.results.status

    def __call__(
        self,
        design_matrix: npt.ArrayLike,
        data: npt.ArrayLike,
        *,
        weights: npt.ArrayLike | None = None,
        sigma: float | None = None,
        confidence: float = 0.95,
        return_S0_hat: bool = False,
        return_lower_triangular: bool = False,
        return_leverages: bool = False,
        fallback: bool = False,
        step: int | None = None,
    ) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Fit a tensor without negative eigenvalues to each voxel.

        Parameters
        ----------
        design_matrix : array_like of shape (g, 7)
            DIPY's: ``-(Bxx, 2 Bxy, Byy, 2 Bxz, 2 Byz, Bzz, 1)``.
        data : array_like of shape (..., g)
            Positive signals.
        weights : array_like of shape (..., g), optional
            In place of the squared signals that ordinary least squares predicts.
        sigma : float, optional
            Noise level of the complex signal: noiseless signals are then kept within intervals
            that hold all g of them at once.
        confidence : float, default=0.95
            Probability of that.
        return_S0_hat : bool, default=False
            Whether to return the signals without diffusion, too.
        return_lower_triangular : bool, default=False
            Whether to return (Dxx, Dxy, Dyy, Dxz, Dyz, Dzz, -ln S0) instead of eigenvalues and
            eigenvectors.
        return_leverages : bool, default=False
            Whether `extra` has ``leverages``: how much each reading moves its own fit, by weighted
            least squares.
        fallback : bool, default=False
            Give voxels that no tensor within the intervals was found for to `solve`.
        step : int, optional
            Accepted, as DIPY's methods have it, and without effect: chunks are chosen by size.

        Returns
        -------
        parameters : ndarray of shape (..., 12) or (..., 7)
            Eigenvalues, largest first, at least DIPY's smallest diffusivity (1e-6 over the largest
            b), and eigenvectors in columns; with `return_S0_hat` a pair of
            them and of the signals without diffusion.
        extra : dict
            ``suspect``: which readings are far from the fit, (..., g); ``leverages`` where asked.
        """
        X = np.asarray(design_matrix, np.float64)
        signals = np.asarray(data, np.float64)
        shape, g = signals.shape[:-1], signals.shape[-1]
        if X.shape != (g, 7):
            raise ValueError(
                f"design_matrix has shape {X.shape}, but must have one row per reading and 7 "
                f"columns: ({g}, 7)"
            )
        signals = np.maximum(signals.reshape(-1, g), MIN_SIGNAL)
        logs = np.log(signals)
        if weights is None:
            w = np.exp(2.0 * (logs @ np.linalg.pinv(X).T) @ X.T)
        else:
            w = np.broadcast_to(np.asarray(weights, np.float64), (*shape, g)).reshape(-1, g)
        bounds = None if sigma is None else _intervals(signals, sigma, confidence)
        results = solve_many(
            _probes(X), -logs, covariates=X[:, 6], weights=w, bounds=bounds, psd=True,
            fallback=fallback,
        )  # fmt: skip
        self.results = results
        fitted = _coefficients(results)
        suspect = _suspect(logs - fitted @ X.T, w, sigma, g)
        extra: dict[str, npt.NDArray[Any]] = {"suspect": suspect.reshape(*shape, g)}
        if return_leverages:
            extra["leverages"] = _leverages(X, w).reshape(*shape, g)
        if return_lower_triangular:
            return fitted.reshape(*shape, 7), extra
        parameters = _eigen(results.packed, SMALLEST / float(-X.min())).reshape(*shape, 12)
        if return_S0_hat:
            return (parameters, np.exp(-fitted[:, 6]).reshape(shape)), extra
        return parameters, extra


dipy_fitter = DipyFitter()
"""The callable for ``TensorModel(gtab, fit_method=quadsense.diffusion.dipy_fitter)``."""


def _probes(X: Array) -> Array:
    """Return the probes ``sqrt(b) g`` of a design matrix."""
    B = np.empty((len(X), 3, 3))
    for column, (j, k) in enumerate([(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]):
        B[:, j, k] = B[:, k, j] = -X[:, column] / (1.0 if j == k else 2.0)
    values, vectors = np.linalg.eigh(B)
    rest = np.abs(values[:, :2]).max(axis=1)
    bad = np.flatnonzero(rest > MAX_NOT_RANK_ONE * np.maximum(values[:, 2], 0.0))
    if bad.size:
        raise ValueError(
            f"row {bad[0]} of the design matrix is no single direction (its b-tensor has rank "
            "above 1): linear encoding only"
        )
    return np.asarray(np.sqrt(np.maximum(values[:, 2:], 0.0)) * vectors[:, :, 2])


def _intervals(signals: Array, sigma: Any, confidence: Any) -> tuple[Array, Array]:
    """Return intervals of ``-ln`` of the noiseless signals that hold all of a voxel at once.

    A magnitude differs from the noiseless one by no more than the modulus of the complex noise,
    whose square over sigma^2 is chi-square with two degrees of freedom.
    """
    if not (is_number(sigma) and 0.0 < sigma < math.inf):
        raise ValueError(f"sigma must be a positive number, got {sigma!r}")
    if not (is_number(confidence) and 0.0 < confidence < 1.0):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    tail = -math.expm1(math.log(confidence) / signals.shape[1])
    room = float(sigma) * math.sqrt(-2.0 * math.log(tail))
    low = signals - room
    with np.errstate(divide="ignore"):
        return -np.log(signals + room), np.where(low > 0.0, -np.log(np.maximum(low, 0.0)), np.inf)


def _coefficients(results: ManyResults) -> Array:
    """Return ``(Dxx, Dxy, Dyy, Dxz, Dyz, Dzz, -ln S0)`` of each voxel."""
    A = results.A
    parts = [A[:, j, k] for j, k in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))]
    return np.stack([*parts, -results.coef[:, 0]], axis=1)


def _suspect(errors: Array, w: Array, sigma: Any, g: int) -> npt.NDArray[np.bool_]:
    """Return which readings are far from the fit, in units of the noise of signals.

    Without sigma the noise of a voxel is taken from its errors, first from all, then from those
    that are not suspect.
    """
    sizes = np.sqrt(w) * np.abs(errors)
    if sigma is not None:
        return np.asarray(sizes > SUSPECT_DEVIATIONS * float(sigma))
    share = SUSPECT_DEVIATIONS * NORMAL_SHARE * math.sqrt(g / max(g - 7, 1))
    least = np.finfo(np.float64).tiny
    total = sizes.sum(axis=1, keepdims=True)
    found = sizes > share * np.maximum(total / g, least)
    if found.any():
        kept = g - found.sum(axis=1, keepdims=True)
        total = np.where(found, 0.0, sizes).sum(axis=1, keepdims=True)
        found = sizes > share * np.maximum(total / np.maximum(kept, 1), least)
    return np.asarray(found)


def _leverages(X: Array, w: Array) -> Array:
    """Return ``w_i x_i^T (X^T W X)^-1 x_i``, whose sum over a voxel is the number of unknowns."""
    inverse = np.linalg.pinv(np.einsum("ki,ia,ib->kab", w, X, X, optimize=True), hermitian=True)
    return w * np.einsum("ia,kab,ib->ki", X, inverse, X, optimize=True)


def _eigen(packed: Array, least: float) -> Array:
    """Return eigenvalues, largest first and none below `least`, and eigenvectors in columns."""
    values, vectors = np.empty((len(packed), 3)), np.empty((len(packed), 3, 3))
    eigensystems(packed, 3, values, vectors)
    order = np.argsort(-values, axis=1)
    values = np.maximum(np.take_along_axis(values, order, axis=1), least)
    vectors = np.take_along_axis(vectors, order[:, :, None], axis=1).swapaxes(1, 2)
    return np.concatenate([values[:, None, :], vectors], axis=1).reshape(-1, 12)
