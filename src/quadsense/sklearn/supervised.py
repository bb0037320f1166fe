"""A metric learnt from classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from quadsense.sklearn.checks import to_random_state
from quadsense.sklearn.mahalanobis import Mahalanobis
from quadsense.sklearn.pairs import pairs_of_classes
from quadsense.sklearn.runs import Strides, with_callbacks
from quadsense.typing import is_whole


class MahalanobisLearner_Supervised(Mahalanobis):
    """Learn a Mahalanobis distance from classes: a `MahalanobisLearner` that makes the pairs.

    For every point these are the nearest of its class, as many of the other classes, and some from
    anywhere.

    Parameters
    ----------
    slack : {"squares", "sum", "max"}, default="squares"
        What is the least: the sum of the squared misses, of the misses, or the largest miss.
    n_neighbors : int, default=3
        Nearest points of each kind.
    n_random : int, default=2
        Points from anywhere, for each.
    stretch, prior, upper, lower, percentiles, gap, time_limit
        As of `MahalanobisLearner`.
    random_state : int, RandomState instance or None, default=None
        Of the random points.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        L of ``M = L'L``, the direction that counts most first.
    bounds_ : ndarray of shape (2,)
        Distances that pairs alike were to stay below, and others above.
    stretch_ : float
    n_pairs_ : int
    result_ : Result or None
        Of the solve, about M in coordinates in which the prior is the identity; without the data.
        None where no pair differs.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X has names

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from quadsense.sklearn import MahalanobisLearner_Supervised
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = MahalanobisLearner_Supervised(random_state=0)
    >>> model = make_pipeline(MinMaxScaler(), learner, KNeighborsClassifier(3))
    >>> bool(cross_val_score(model, X, y).mean() > 0.96)
    True
    """

    def __init__(
        self,
        slack: str = "squares",
        *,
        n_neighbors: int = 3,
        n_random: int = 2,
        stretch: Any = "auto",
        prior: Any = "identity",
        upper: Any = None,
        lower: Any = None,
        percentiles: Any = (25, 75),
        gap: float = 0.01,
        time_limit: Any = None,
        random_state: Any = None,
    ) -> None:
        self.slack = slack
        self.n_neighbors = n_neighbors
        self.n_random = n_random
        self.stretch = stretch
        self.prior = prior
        self.upper = upper
        self.lower = lower
        self.percentiles = percentiles
        self.gap = gap
        self.time_limit = time_limit
        self.random_state = random_state

    @with_callbacks
    def fit(self, X: Any, y: Any) -> MahalanobisLearner_Supervised:
        """Make the pairs and learn the metric.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
        y : array_like of shape (n_samples,)
            Classes.

        Returns
        -------
        self
        """
        self._check_learning()
        for name in ("n_neighbors", "n_random"):
            value = getattr(self, name)
            if not (is_whole(value) and value >= 0):
                raise ValueError(f"{name} must be a whole number, not negative, got {value!r}")
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        classes = np.unique(y, return_inverse=True)[1]
        strides = Strides(self, X, y, {})
        rng = to_random_state(self.random_state)
        with np.errstate(under="ignore"):
            both, alike = pairs_of_classes(X, classes, self.n_neighbors, self.n_random, rng)
        self.n_pairs_ = len(both)
        self._learn(X, X[both[:, 1]] - X[both[:, 0]], alike, np.ones(len(both)), strides)
        strides.end({"components_": self.components_})
        return self

    def __sklearn_tags__(self) -> Any:
        """It needs classes."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
