"""Metrics learned from pairs that are alike or not, and thresholds of what is alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_array, check_is_fitted

from quadsense.sklearn import shared
from quadsense.sklearn.closed_form import Matrix, Vector
from quadsense.sklearn.mahalanobis import GAP, PERCENTILES, Mahalanobis
from quadsense.sklearn.shared import Strides, with_callbacks
from quadsense.typing import is_number

STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")


def check_strategy(strategy: Any = "accuracy", min_rate: Any = None, beta: Any = 1.0) -> None:
    """Refuse what is no way to choose."""
    if not (isinstance(strategy, str) and strategy in STRATEGIES):
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
    rated = strategy in ("max_tpr", "max_tnr")
    if rated and not (is_number(min_rate) and 0.0 <= min_rate <= 1.0):
        raise ValueError(f"min_rate must be a number in [0, 1] with {strategy!r}, got {min_rate!r}")
    if strategy == "f_beta" and not (is_number(beta) and beta >= 0.0):
        raise ValueError(f"beta must be a number, not negative, got {beta!r}")


def calibrated(
    distances: Vector, alike: npt.NDArray[np.bool_], strategy: str, min_rate: Any, beta: float
) -> float:
    """Return the smallest of the best thresholds: one of the distances, or less than all of them.

    Parameters
    ----------
    distances : ndarray of shape (m,)
    alike : ndarray of bool, shape (m,)
    strategy, min_rate, beta
        As of `MahalanobisLearner.calibrate_threshold`.
    """
    values, inverse = np.unique(distances, return_inverse=True)
    right = np.bincount(inverse, weights=alike, minlength=len(values))
    wrong = np.bincount(inverse, weights=~alike, minlength=len(values))
    # Accepted up to each of the values, none first.
    true = np.concatenate([[0.0], np.cumsum(right)])
    false = np.concatenate([[0.0], np.cumsum(wrong)])
    positives, negatives = float(true[-1]), float(false[-1])
    rejected = negatives - false
    if strategy == "accuracy":
        best = int(np.argmax(true + rejected))
    elif strategy == "f_beta":
        square = beta * beta
        under = (1.0 + square) * true + square * (positives - true) + false
        best = int(np.argmax((1.0 + square) * true / np.where(under > 0.0, under, 1.0)))
    else:
        rates = true / (positives or 1.0), rejected / (negatives or 1.0)
        wanted, other = rates if strategy == "max_tpr" else rates[::-1]
        best = int(np.argmax(np.where(other >= min_rate, wanted, -1.0)))
    if best == 0:
        return math.nextafter(float(values[0]), -math.inf)
    return float(values[best - 1])


class MahalanobisLearner(ClassifierMixin, Mahalanobis):
    """Learn a Mahalanobis distance from pairs of points that are alike, or not.

    The matrix M of ``d(x, z)^2 = (x - z)' M (x - z)`` is the positive semidefinite one for which
    squared distances miss what is asked of them the least: at most ``upper^2`` for pairs that are
    alike, at least ``lower^2`` for the others, within a factor `stretch` of the prior's. Both kinds
    of pairs count alike. `result_` certifies it.

    Parameters
    ----------
    slack : {"squares", "sum", "max"}, default="squares"
        What is the least: the sum of the squared misses, of the misses, or the largest miss.
    stretch : float or "auto", default="auto"
        No pair is asked to change its squared distance by more than this factor, and changing it
        by more counts as a miss: the fewer pairs there are, the nearer M stays to the prior.
        "auto" is 0.3 times the number of pairs per unknown of M, at least 1.5. Infinite: whatever
        the pairs ask for.
    prior : {"identity", "covariance"} or array_like of shape (n_features, n_features)
        The M that pairs are stretched from; "covariance" is the inverse of that of the points.
    upper, lower : float, optional
        Distances that pairs alike are to stay below, and others above. By default the `percentiles`
        of those by the prior.
    percentiles : (float, float), default=(25, 75)
        Of the pairs alike, and of the others.
    gap : float, default=0.01
        How near the least cost M's is to be, as a part of it.
    time_limit : float, optional
        Most seconds of the solve.
    preprocessor : array_like of shape (n_samples, n_features) or callable, optional
        Points that pairs of indices stand for, or what makes points of indices.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        L of ``M = L'L``, the direction that counts most first.
    threshold_ : float
        Pairs of at most this distance are predicted to be alike.
    bounds_ : ndarray of shape (2,)
        The distances `upper` and `lower`.
    stretch_ : float
    result_ : Result or None
        Of the solve, about M in coordinates in which the prior is the identity; without the data.
        None where no pair differs.
    n_iter_ : int
    classes_ : ndarray
        -1 and 1.
    n_features_in_ : int

    See Also
    --------
    MahalanobisLearner_Supervised : makes the pairs from classes.

    Examples
    --------
    >>> import numpy as np
    >>> from quadsense.sklearn import MahalanobisLearner
    >>> pairs = [[[0.0, 0.0], [0.1, 3.0]], [[1.0, 1.0], [1.1, 4.0]],
    ...          [[0.0, 1.0], [1.0, 1.1]], [[0.1, 4.0], [1.1, 4.0]]]
    >>> learner = MahalanobisLearner(stretch=10.0).fit(pairs, [1, 1, -1, -1])
    >>> learner.predict([[[0.0, 5.0], [0.0, 7.0]], [[0.0, 5.0], [1.0, 5.0]]])
    array([ 1, -1])
    >>> M = learner.get_mahalanobis_matrix()
    >>> bool(M[0, 0] > 5.0 * M[1, 1])
    True
    """

    classes_ = np.array([-1, 1])

    def __init__(
        self,
        slack: str = "squares",
        *,
        stretch: Any = "auto",
        prior: Any = "identity",
        upper: Any = None,
        lower: Any = None,
        percentiles: Any = PERCENTILES,
        gap: float = GAP,
        time_limit: Any = None,
        preprocessor: Any = None,
    ) -> None:
        self.slack = slack
        self.stretch = stretch
        self.prior = prior
        self.upper = upper
        self.lower = lower
        self.percentiles = percentiles
        self.gap = gap
        self.time_limit = time_limit
        self.preprocessor = preprocessor

    @with_callbacks
    def fit(
        self, pairs: Any, y: Any, sample_weight: Any = None, bounds: Any = None,
        calibration_params: Any = None,
    ) -> MahalanobisLearner:  # fmt: skip
        """Learn the metric, then the threshold from the same pairs.

        Parameters
        ----------
        pairs : array_like of shape (n_pairs, 2, n_features), or (n_pairs, 2) with a preprocessor
        y : array_like of shape (n_pairs,)
            1 for pairs that are alike, -1 for others.
        sample_weight : array_like of shape (n_pairs,), optional
            Multiplied with the weights that make both kinds count alike.
        bounds : (float, float), optional
            `upper` and `lower`, in place of those.
        calibration_params : dict, optional
            Of `calibrate_threshold`.

        Returns
        -------
        self
        """
        self._check_learning()
        settings = dict(calibration_params or {})
        check_strategy(**settings)
        points = self._to_pairs(pairs)
        y = _to_labels(y, len(points))
        weights = shared.to_weights(sample_weight, len(points))
        if bounds is not None:
            bounds = check_array(bounds, dtype=np.float64, ensure_2d=False, input_name="bounds")
            if bounds.shape != (2,) or not np.all(bounds > 0.0):
                raise ValueError(f"bounds must be two positive distances, got {bounds!r}")
        self.n_features_in_ = points.shape[2]
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        strides = Strides(self, points, y, given)
        every = points.reshape(-1, points.shape[2])
        if isinstance(self.prior, str) and self.prior == "covariance":
            every = np.unique(every, axis=0)
        self._learn(every, points[:, 1] - points[:, 0], y > 0, weights, strides, bounds)
        self.calibrate_threshold(points, y, **settings)
        strides.end({"components_": self.components_, "threshold_": self.threshold_})
        return self

    def transform(self, X: Any) -> Matrix:
        """Return points in coordinates where the learnt distance is the Euclidean one.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features), or (n_samples,) with a preprocessor

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self, "components_")
        if self.preprocessor is not None and np.ndim(X) == 1:
            X = self._points(np.asarray(X))
        return super().transform(X)

    def decision_function(self, pairs: Any) -> Vector:
        """Return distances with the other sign: the larger, the more alike.

        Parameters
        ----------
        pairs : array_like of shape (n_pairs, 2, n_features), or (n_pairs, 2) with a preprocessor

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return self.pair_score(pairs)

    def predict(self, pairs: Any) -> Any:
        """Return 1 for pairs of at most the distance `threshold_`, otherwise -1.

        Parameters
        ----------
        pairs : array_like of shape (n_pairs, 2, n_features), or (n_pairs, 2) with a preprocessor

        Returns
        -------
        ndarray of int, shape (n_pairs,)
        """
        check_is_fitted(self, "threshold_")
        return np.where(self.pair_distance(pairs) <= self.threshold_, 1, -1)

    def score(self, pairs: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the area under the receiver operating characteristic.

        Parameters
        ----------
        pairs : array_like of shape (n_pairs, 2, n_features), or (n_pairs, 2) with a preprocessor
        y : array_like of shape (n_pairs,)
            1 or -1.
        sample_weight : array_like of shape (n_pairs,), optional
        """
        scores = self.decision_function(pairs)
        y = _to_labels(y, len(scores))
        return float(roc_auc_score(y, scores, sample_weight=sample_weight))

    def set_threshold(self, threshold: Any) -> MahalanobisLearner:
        """Set the distance up to which pairs are predicted to be alike.

        Parameters
        ----------
        threshold : float

        Returns
        -------
        self
        """
        check_is_fitted(self, "components_")
        try:
            self.threshold_ = float(threshold)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"Parameter threshold must be a real number. Got {type(threshold)} instead."
            ) from None
        return self

    def calibrate_threshold(
        self, pairs_valid: Any, y_valid: Any, strategy: str = "accuracy", min_rate: Any = None,
        beta: float = 1.0,
    ) -> MahalanobisLearner:  # fmt: skip
        """Set the threshold that is best on these pairs.

        Parameters
        ----------
        pairs_valid : array_like of shape (n_pairs, 2, n_features), or (n_pairs, 2)
        y_valid : array_like of shape (n_pairs,)
            1 or -1.
        strategy : {"accuracy", "f_beta", "max_tpr", "max_tnr"}
            What is the largest: the accuracy; the F score of `beta`; the rate of true positives
            where that of true negatives is at least `min_rate`; the other way round.
        min_rate : float, optional
        beta : float, default=1.0

        Returns
        -------
        self
        """
        check_is_fitted(self, "components_")
        check_strategy(strategy, min_rate, beta)
        distances = self.pair_distance(pairs_valid)
        y = _to_labels(y_valid, len(distances))
        self.threshold_ = calibrated(distances, y > 0, strategy, min_rate, beta)
        return self

    def _points(self, indices: Any) -> Any:
        """Return the points that indices stand for."""
        if callable(self.preprocessor):
            return np.asarray(self.preprocessor(indices))
        points = check_array(self.preprocessor, dtype=np.float64, input_name="preprocessor")
        if indices.dtype.kind not in "iu" or not np.all(
            (indices >= -len(points)) & (indices < len(points))
        ):
            raise ValueError(
                f"indices must be whole numbers, rows of the {len(points)} of the preprocessor"
            )
        return points[indices]

    def _to_pairs(self, pairs: Any) -> Matrix:
        """Return pairs of points, also from pairs of indices."""
        if self.preprocessor is not None and np.ndim(pairs) == 2:
            indices = np.asarray(pairs)
            if indices.shape[1] != 2:
                raise ValueError(
                    f"pairs of indices must have shape (n_pairs, 2), got {indices.shape}"
                )
            pairs = np.stack([self._points(indices[:, 0]), self._points(indices[:, 1])], axis=1)
        return super()._to_pairs(pairs)

    def __sklearn_tags__(self) -> Any:
        """Pairs, never a table of features."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        tags.target_tags.required = True
        tags.classifier_tags.multi_class = False
        return tags


def _no_fit_transform(self: MahalanobisLearner) -> Any:
    raise AttributeError("pairs are fitted and points transformed: call fit, then transform")


# Outside of the class, where scikit-learn would wrap it for its output.
MahalanobisLearner.fit_transform = property(_no_fit_transform)


def _to_labels(y: Any, m: int) -> Any:
    """Return labels, each 1 or -1."""
    labels = check_array(y, ensure_2d=False, dtype=None, input_name="y")
    if labels.shape != (m,):
        raise ValueError(f"y must have shape ({m},), one label per pair, got {labels.shape}")
    if not np.all(np.isin(labels, (-1, 1))):
        raise ValueError("y must be 1 for pairs that are alike and -1 for others")
    return np.asarray(labels, np.int64)
