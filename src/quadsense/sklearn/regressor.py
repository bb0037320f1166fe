"""Quadratic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from quadsense.sklearn import shared
from quadsense.sklearn.closed_form import (
    Coefficients,
    ModelRows,
    Vector,
    without_data,
)
from quadsense.sklearn.fits import RegressionFit
from quadsense.sklearn.shared import CallbackSupportMixin, Strides, with_callbacks
from quadsense.system.threads import one_blas_thread


class QuadraticRegressor(CallbackSupportMixin, RegressorMixin, BaseEstimator):
    """Regression by ``y = x' A x + w' x + c`` with a symmetric matrix A.

    Of all fits within `delta` it is the one with the smallest
    ``sum_i s_i (y_i - f(x_i))^2 + alpha (||A||_F^2 + linear_penalty ||w||^2)``, s the weights of
    the samples; c is not penalised.

    Parameters
    ----------
    alpha : float or "cv", default=1.0
        Penalty. "cv" takes the one of `alphas` whose mean squared error is the least where every
        row is left out in turn, in closed form on one eigendecomposition (of the fit without
        `delta`, `psd` and `rank`). Rows that are equal in X and y are left out together.
    delta : float, optional
        Largest error that is accepted of a sample. Where no fit has it, an `InfeasibleWarning`
        says so, and the fit without it is kept.
    psd : bool, default=False
        A is to be positive semidefinite, so that the regression is convex; w and c are free.
    rank : int, (int, int) or "auto", optional
        A is to be positive semidefinite of at most this rank, with (p, q) of at most p positive
        and q negative eigenvalues; "auto" lets the rank grow until `delta` is met. What is found
        is stationary, not proved to be the best.
    fit_linear, fit_intercept : bool, default=True
        Whether there is a w, and a c.
    prefer : {"auto", "least_squares", "nearest", "center", "min_trace", "minimax", "any"}
        Which fit: "auto" is least squares, as above. "minimax" has the smallest worst error; the
        others need `delta`: "nearest" has the smallest ``||A||_F^2 + linear_penalty ||w||^2``,
        "center" is the analytic center, "any" the first that is found. "min_trace" needs `psd`,
        and neither w nor c; with those "center" goes without `psd` only. Of `alpha` and weights
        that are not 0 only least squares knows.
    linear_penalty : float or "scale", default="scale"
        Cost of a square of w relative to one of A. "scale" is ``1 / (2 mean ||x||^2)``, so that the
        units of X matter for `alpha` only, and the kernel is that of
        ``KernelRidge(kernel="poly", degree=2, coef0=1, gamma=1 / mean ||x||^2)``.
    alphas : array_like, optional
        Penalties that "cv" tries; by default four a decade, from 100 times the largest eigenvalue
        of the kernel, about its mean, to 1e-7 of it.
    tol : float, default=1e-6
        With `psd` or `delta`: how far the objective may be from its least value, as a part of it,
        A, w and c together.
    time_limit : float, optional
        Most seconds of a solve, where one is needed: with `delta`, `psd`, `rank` or `prefer`.
    random_state : int, RandomState instance or None, default=None
        Of the starts that `rank` takes.

    Attributes
    ----------
    matrix_ : ndarray of shape (n_features, n_features)
        A.
    coef_ : ndarray of shape (n_features,)
        w; zeros without it.
    intercept_ : float
        c; 0 without it.
    result_ : Result
        What is certified of A on the readings ``y - X @ coef_ - intercept_`` of the samples of
        positive weight: `result_.verify` takes these. It holds A, not the data.
    alpha_ : float
        The penalty.
    alphas_, cv_errors_ : ndarray
        With ``alpha="cv"``: the penalties tried and their mean squared errors.
    met_ : bool or None
        Whether every sample is within its tolerance; None without one.
    n_iter_ : int
        Steps of the solve; 0 in closed form.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X has names

    See Also
    --------
    quadsense.solve : A alone, with all that can be asked of it.

    Notes
    -----
    Without `delta`, `psd` and `rank` the fit is kernel ridge regression in closed form. With `psd`
    or `rank`, w and c are profiled out: for every A they are the best ones, and the readings of A
    that this leaves are sums over rows, which `quadsense.solve` takes. With `delta` all three are
    one question about a larger matrix. With `rank` and `delta`, A and (w, c) are sought in turn.

    Examples
    --------
    >>> import numpy as np
    >>> from quadsense.sklearn import QuadraticRegressor
    >>> X = np.random.default_rng(0).standard_normal((60, 2))
    >>> y = X[:, 0] ** 2 - 2.0 * X[:, 0] * X[:, 1] + 3.0 * X[:, 1] + 1.0
    >>> model = QuadraticRegressor(alpha="cv").fit(X, y)
    >>> model.matrix_.round(3) + 0.0
    array([[ 1., -1.],
           [-1.,  0.]])
    >>> model.coef_.round(3) + 0.0, round(model.intercept_, 3)
    (array([0., 3.]), 1.0)
    >>> convex = QuadraticRegressor(alpha=1e-3, psd=True).fit(X, y)
    >>> bool(np.linalg.eigvalsh(convex.matrix_)[0] >= -1e-9), convex.result_.optimal
    (True, True)
    """

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        delta: Any = None,
        psd: Any = False,
        rank: Any = None,
        fit_linear: bool = True,
        fit_intercept: bool = True,
        prefer: str = "auto",
        linear_penalty: Any = "scale",
        alphas: Any = None,
        tol: float = 1e-6,
        time_limit: Any = None,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.delta = delta
        self.psd = psd
        self.rank = rank
        self.fit_linear = fit_linear
        self.fit_intercept = fit_intercept
        self.prefer = prefer
        self.linear_penalty = linear_penalty
        self.alphas = alphas
        self.tol = tol
        self.time_limit = time_limit
        self.random_state = random_state

    @with_callbacks
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, sample_delta: Any = None
    ) -> QuadraticRegressor:
        """Fit.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
        y : array_like of shape (n_samples,)
        sample_weight : float or array_like of shape (n_samples,), optional
            Weights: 2 is the same as the row twice, 0 as without it.
        sample_delta : float or array_like of shape (n_samples,), optional
            Tolerances in place of `delta`, one per sample; infinite where there is none.

        Returns
        -------
        self
        """
        shared.check_parameters(self)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.asarray(y, np.float64)
        weights = shared.to_weights(sample_weight, len(y))
        delta = shared.to_delta(self.delta, sample_delta, len(y))
        shared.check_question(self, delta is not None, X.shape[1])
        given = {"sample_weight": sample_weight, "sample_delta": sample_delta}
        strides = Strides(self, X, y, {k: v for k, v in given.items() if v is not None})
        kept = weights > 0.0
        if not kept.all():
            X, y, weights = X[kept], y[kept], weights[kept]
            delta = None if delta is None else delta[kept]
        with np.errstate(under="ignore"), one_blas_thread():
            lp = shared.to_linear_penalty(self.linear_penalty, X, weights)
            rows = ModelRows(X, y, weights, bool(self.fit_linear), bool(self.fit_intercept), lp)
            found, result = RegressionFit(self, rows, delta, strides).run()
        for name, value in found.attributes().items():
            setattr(self, name, value)
        self.result_, self.n_iter_ = without_data(result), int(result.n_iter)
        strides.end(found.attributes())
        return self

    def __sklearn_tags__(self) -> Any:
        """Without w, data that are linear are fitted poorly."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = not self.fit_linear
        return tags

    def predict(self, X: Any) -> Vector:
        """Return ``x' A x + w' x + c`` for every row.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        with np.errstate(under="ignore"):
            return Coefficients(self.matrix_, self.coef_, self.intercept_).predict(X)
