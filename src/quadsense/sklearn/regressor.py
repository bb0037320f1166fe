"""Quadratic regression."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from quadsense.result.result import Result
from quadsense.sklearn import shared
from quadsense.sklearn.closed_form import (
    Coefficients,
    Matrix,
    ModelRows,
    Vector,
    closed_form,
    default_alphas,
    in_units,
    make_path,
    mean_errors,
    stated,
    tolerances,
    without_data,
)
from quadsense.sklearn.fits import ROUNDING_SHARE, is_met, profiled, ranked, within
from quadsense.sklearn.shared import CallbackSupportMixin, Strides, with_callbacks
from quadsense.solve import solve
from quadsense.system.threads import one_blas_thread
from quadsense.vocabulary import Status

WELL = (Status.MET, Status.OPTIMAL, Status.LOCAL)
"""How a solve ends that has nothing to say."""


class InfeasibleWarning(ConvergenceWarning):
    """No fit is within the tolerances, or none was found; the best one was kept."""


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
            found, result = _Fit(self, rows, delta, strides).run()
        for name, value in _attributes(found).items():
            setattr(self, name, value)
        self.result_, self.n_iter_ = without_data(result), int(result.n_iter)
        strides.end(_attributes(found))
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


def _attributes(found: Coefficients) -> dict[str, Any]:
    """Return what a fitted estimator predicts from."""
    return {"matrix_": found.A, "coef_": found.w, "intercept_": found.c}


class _Fit:
    """One fit, in units in which the rows are of about 1."""

    def __init__(
        self,
        estimator: QuadraticRegressor,
        given: ModelRows,
        delta: Vector | None,
        strides: Strides,
    ) -> None:
        self.estimator, self.given, self.delta, self.strides = estimator, given, delta, strides
        self.rows, self.units = in_units(given)
        self.rank, self.psd = estimator.rank, bool(estimator.psd)
        prefer = estimator.prefer
        plain = prefer == "auto" or self.rank is not None
        self.prefer = "least_squares" if plain else prefer
        self.seed = shared.to_seed(estimator.random_state)

    def run(self) -> tuple[Coefficients, Result]:
        """Return the coefficients and the result about A, in the user's units."""
        alpha = self._choose_alpha()
        tolerance = None if self.delta is None else self.delta / self.units.size
        solved: Result | None
        if self.prefer != "least_squares":
            found, solved = self._preferred(alpha, tolerance)
        elif self.rank is not None and tolerance is not None:
            found, solved = ranked(
                self.rows, alpha, tolerance, self.rank, run=self._run, rng=self.seed
            )
        else:
            found, solved = self._least_squares(alpha), None
            if tolerance is not None and not is_met(self.rows, found, tolerance):
                found, solved = self._within(found, alpha, tolerance)
        if self.delta is not None:
            self.estimator.met_ = solved is None or solved.status is Status.MET
            if not self.estimator.met_:
                self._warn(solved)
        else:
            self.estimator.met_ = None
        return self._result(found.scaled(self.units.length, self.units.size), solved)

    def _choose_alpha(self) -> float:
        """Return the penalty, in our units; `alpha_` is in the user's."""
        own, units = self.estimator, self.units
        for name in ("alphas_", "cv_errors_"):
            if hasattr(own, name):
                delattr(own, name)
        if own.alpha != "cv":
            own.alpha_ = float(own.alpha)
            return units.alpha(own.alpha_)
        path = make_path(closed_form(self.rows.merged()))
        given = own.alphas
        tried = default_alphas(path.largest)
        if given is not None:
            tried = np.array([units.alpha(float(alpha)) for alpha in given])
        errors = mean_errors(path, tried)
        best = int(np.argmin(errors))
        own.alphas_ = np.array([units.penalty(alpha) for alpha in tried])
        if given is not None:
            own.alphas_ = np.array(given, np.float64)
        own.cv_errors_ = errors * units.size**2
        own.alpha_ = float(own.alphas_[best])
        self.free = path.solve(float(tried[best]))
        return float(tried[best])

    free: Coefficients | None = None
    """The fit without anything else, where choosing the penalty gave it."""

    def _least_squares(self, alpha: float) -> Coefficients:
        """Return the fit without tolerances."""
        if self.rank is not None:
            return profiled(
                self.rows, alpha, rank=self.rank, run=self._run, rng=self.seed
            )[0]  # fmt: skip
        free = closed_form(self.rows).solve(alpha) if self.free is None else self.free
        if not self.psd or float(np.linalg.eigvalsh(free.A)[0]) >= 0.0:
            return free
        found, solved = profiled(self.rows, alpha, run=self._run, gap=self.estimator.tol)
        if solved.status not in WELL and not _is_near(solved, self.estimator.tol):
            warnings.warn(f"tol was not reached: {solved.message}", ConvergenceWarning, 5)
        return found

    def _within(
        self, found: Coefficients, alpha: float, delta: Vector
    ) -> tuple[Coefficients, Result]:
        """Return the fit within tolerances; the one without where there is none."""
        fit, solved = within(
            self.rows, alpha, delta, psd=self.psd, centre=found.c, tol=self.estimator.tol,
            run=self._run,
        )  # fmt: skip
        if solved.status is Status.MET and not self._is_kept(fit, self.rows, delta):
            # Equalities are met to the rounding of A, which tells nothing of one that is huge.
            solved = replace(solved, status=Status.UNDECIDED)
        return (fit if solved.status is Status.MET else found), solved

    @staticmethod
    def _is_kept(found: Coefficients, rows: ModelRows, delta: Vector | None) -> bool:
        """Return whether predictions are within tolerance, to the digits that they have."""
        assert delta is not None
        off = np.abs(rows.y - found.predict(rows.X))
        largest = float(np.max(np.abs(rows.y)))
        return bool(np.all(off - delta <= ROUNDING_SHARE * (delta + largest)))

    def _preferred(self, alpha: float, delta: Vector | None) -> tuple[Coefficients, Result]:
        """Return the fit that is preferred; least squares where there is none."""
        fit, solved = within(
            self.rows, alpha, delta, psd=self.psd, prefer=self.prefer, tol=self.estimator.tol,
            run=self._run,
        )  # fmt: skip
        if delta is not None and solved.status is Status.MET:
            if self._is_kept(fit, self.rows, delta):
                return fit, solved
            solved = replace(solved, status=Status.UNDECIDED)
        return (fit if delta is None else self._least_squares(alpha)), solved

    def _run(self, U: Matrix, b: Vector, *, parted: Any, **asked: Any) -> Result:
        """Run `quadsense.solve` with the estimator's limit and callbacks."""

        def attributes(M: Matrix) -> dict[str, Any]:
            return _attributes(parted(M).scaled(self.units.length, self.units.size))

        return solve(
            U, b, time_limit=self.estimator.time_limit, callback=self.strides.callback(attributes),
            **asked,
        )  # fmt: skip

    def _warn(self, solved: Result | None) -> None:
        if solved is None:
            return
        said = (
            "no fit is within delta"
            if solved.status is Status.INFEASIBLE
            else ("no fit within delta was found")
        )
        kept = "least squares without it is kept"
        warnings.warn(f"{said}, {kept}: {solved.message}", InfeasibleWarning, stacklevel=6)

    def _result(self, found: Coefficients, solved: Result | None) -> tuple[Coefficients, Result]:
        """Return what is certified of A where w and c are these, on the user's rows."""
        rows, own = self.given, self.estimator
        b = rows.y - rows.X @ found.w - found.c
        met = self.delta is not None and own.met_
        steps = 0 if solved is None else solved.n_iter
        if (met and solved is not None) or self.prefer == "minimax":
            asked: dict[str, Any] = {"prefer": self.prefer, "start": found.A}
            if self.delta is not None:
                asked |= tolerances(b, self.delta)
            if self.rank is not None:
                asked |= {"rank": self.rank, "prefer": "any", "rng": self.seed}
            elif self.psd:
                asked["psd"] = True
            if self.prefer == "least_squares" and self.rank is None:
                asked |= {"ridge": own.alpha_, "weights": rows.s, "gap": own.tol}
            if self.prefer == "nearest":
                asked["prior"] = 0.0
            result = solve(rows.X, b, time_limit=own.time_limit, **asked)
            again = replace(found, A=np.array(result.A, np.float64))
            wanted = (Status.MET,) if met else WELL
            if result.status in wanted and (not met or self._is_kept(again, rows, self.delta)):
                return again, result
        return found, replace(self._stated(found, b, met), n_iter=steps)

    def _stated(self, found: Coefficients, b: Vector, met: bool) -> Result:
        """Return what is certified of A, if need be by the dual vector of a solve."""
        rows, own = self.given, self.estimator
        asked: dict[str, Any] = {
            "alpha": own.alpha_, "psd": self.psd, "local": self.rank is not None,
            "delta": self.delta if met else None,
        }  # fmt: skip
        result = stated(rows.X, b, rows.s, found.A, **asked)
        if result.status is not Status.UNDECIDED:
            return result
        other = solve(
            rows.X, b, weights=rows.s, ridge=own.alpha_, psd=self.psd, start=found.A,
            prefer="least_squares", time_limit=own.time_limit, gap=own.tol,
        )  # fmt: skip
        return stated(rows.X, b, rows.s, found.A, dual=other.dual, **asked)


def _is_near(solved: Result, tol: float) -> bool:
    bounds = solved.objective_bounds
    return bounds is not None and bounds[1] - bounds[0] <= tol * abs(bounds[1])
