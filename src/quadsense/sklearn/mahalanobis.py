"""Metrics learned from classes, and what learners share: distances, the embedding, the solve."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from quadsense.arrays import as_numbers
from quadsense.core.intervals import ZERO_SHARE
from quadsense.measurements.validate import checked_vector
from quadsense.methods.least_squares import MANY_MISSABLE_ROWS
from quadsense.preferences import SLACKS
from quadsense.result.result import Result
from quadsense.sklearn.closed_form import Matrix, Vector, without_data
from quadsense.sklearn.shared import (
    CallbackSupportMixin,
    Strides,
    to_random_state,
    with_callbacks,
)
from quadsense.solve import solve
from quadsense.system.threads import one_blas_thread
from quadsense.typing import is_number, is_whole, to_list
from quadsense.vocabulary import Status

PERCENTILES, GAP = (25, 75), 0.01
"""Which distances bound those of pairs alike and of others, and the relative gap, by default."""

SEEN = 1e-9
"""Size of a direction, or an entry, as a part of the largest, from which on it is no rounding."""

LEAST, AN_UNKNOWN = 1.5, 0.3
"""`stretch` by default: at least, and for every pair per unknown. Of .2 and .3, with percentiles of
50 and 50 or 25 and 75, the best on iris, wine, breast cancer and digits together."""


@dataclass(frozen=True)
class Learned:
    """A metric.

    Attributes
    ----------
    M : ndarray of shape (d, d)
    bounds : (float, float)
        Distances that pairs alike were to stay below, and others above.
    stretch : float
    result : Result or None
        Of the solve, in coordinates where the prior is the identity; None where no two points
        of a pair differ.
    """

    M: Matrix
    bounds: tuple[float, float]
    stretch: float
    result: Result | None


def learn(
    differences: Matrix, alike: npt.NDArray[np.bool_], *, slack: str, prior: Matrix,
    stretch: Any, upper: float | None, lower: float | None, percentiles: tuple[float, float],
    weights: Vector, gap: float, time_limit: float | None,
    listen: Callable[[Callable[[Matrix], Matrix]], Any],
) -> Learned:  # fmt: skip
    """Return the matrix whose squared distances miss their intervals the least.

    Parameters
    ----------
    differences : ndarray of shape (m, d)
    alike : ndarray of bool, shape (m,)
    slack : {"squares", "sum", "max"}
    prior : ndarray of shape (d, d)
        Root R of the prior R'R.
    stretch : float or "auto"
    upper, lower : float or None
        Distances; None for the percentiles of those by the prior.
    percentiles : (float, float)
        Of pairs alike, and of others.
    weights : ndarray of shape (m,)
    gap, time_limit
        Of `quadsense.solve`.
    listen : callable
        Given a map from the solve's matrix to M, makes a callback of `solve`, or None.
    """
    points = differences @ prior.T
    squares = np.einsum("ij,ij->i", points, points)
    kept = (squares > 0.0) & (weights > 0.0)
    points, squares, alike, weights = points[kept], squares[kept], alike[kept], weights[kept]
    distances = np.sqrt(squares)
    upper = _percentile(distances[alike], percentiles[0]) if upper is None else float(upper)
    lower = _percentile(distances[~alike], percentiles[1]) if lower is None else float(lower)
    identity = np.eye(prior.shape[0])
    if not points.size:
        nothing = 1.0 if isinstance(stretch, str) else float(stretch)
        return Learned(prior.T @ prior, (upper, lower), nothing, None)
    # Directions that no pair differs in are left as they were.
    _, sizes, V = np.linalg.svd(points, full_matrices=False)
    V = V[sizes > SEEN * sizes[0]]
    if isinstance(stretch, str):
        stretch = max(LEAST, AN_UNKNOWN * len(points) / (0.5 * len(V) * (len(V) + 1)))
    unit = float(np.mean(squares))
    lo, hi = intervals(squares / unit, alike, upper / unit**0.5, lower / unit**0.5, stretch)

    def metric(A: Matrix) -> Matrix:
        inside = identity + V.T @ (A - np.eye(len(V))) @ V
        M = prior.T @ inside @ prior
        return np.asarray(0.5 * (M + M.T))

    result = solve(
        points @ (V.T / unit**0.5), bounds=(lo, hi), psd=True, slack=slack,  # type: ignore[arg-type]
        weights=even_weights(alike, weights), gap=gap, time_limit=time_limit,
        callback=listen(metric), **_method(slack, len(points)),
    )  # fmt: skip
    if result.status not in (Status.OPTIMAL, Status.MET):
        warnings.warn(f"gap was not reached: {result.message}", ConvergenceWarning, stacklevel=5)
    return Learned(metric(np.asarray(result.A, np.float64)), (upper, lower), stretch, result)


def _method(slack: str, m: int) -> dict[str, Any]:
    """Return the method, where that is not left to `solve`."""
    return {"method": "least_squares"} if slack == "squares" and m >= MANY_MISSABLE_ROWS else {}


def _percentile(values: Vector, percentile: float) -> float:
    return float(np.percentile(values, percentile)) if values.size else 0.0


MAX_STRETCH = 1e100
"""Largest finite `stretch`: beyond, squares of distances times it may overflow."""


class Mahalanobis(
    CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """A learnt distance ``d(x, z)^2 = (x - z)' M (x - z)``, with metric-learn's names."""

    components_: Matrix
    n_features_in_: int

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def transform(self, X: Any) -> Matrix:
        """Return points in coordinates where the learnt distance is the Euclidean one.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self, "components_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        with np.errstate(under="ignore"):
            return np.asarray(X @ self.components_.T)

    def pair_distance(self, pairs: Any) -> Vector:
        """Return the learnt distances of the two points of each pair.

        Parameters
        ----------
        pairs : array_like of shape (n_pairs, 2, n_features), or (n_pairs, 2) with a preprocessor

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        check_is_fitted(self, "components_")
        points = self._to_pairs(pairs)
        if points.shape[2] != self.n_features_in_:
            raise ValueError(
                f"pairs are of {points.shape[2]} features, but {type(self).__name__} was fitted "
                f"with {self.n_features_in_}"
            )
        with np.errstate(under="ignore"):
            images = (points[:, 1] - points[:, 0]) @ self.components_.T
            return np.asarray(np.sqrt(np.einsum("ij,ij->i", images, images)))

    def pair_score(self, pairs: Any) -> Vector:
        """Return the distances with the other sign: the larger, the more alike.

        Parameters
        ----------
        pairs : array_like of shape (n_pairs, 2, n_features), or (n_pairs, 2) with a preprocessor

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[..., float]:
        """Return the distance as a function ``(u, v, squared=False)`` of two points.

        It does not change with the learner, and serves as ``metric`` of scikit-learn's
        neighbours.
        """
        check_is_fitted(self, "components_")
        components = self.components_.copy()

        def metric(u: Any, v: Any, squared: bool = False) -> float:
            d = components.shape[1]
            image = components @ (checked_vector("u", u, d) - checked_vector("v", v, d))
            square = float(image @ image)
            return square if squared else float(np.sqrt(square))

        return metric

    def get_mahalanobis_matrix(self) -> Matrix:
        """Return M, a copy: shape (n_features, n_features)."""
        check_is_fitted(self, "components_")
        with np.errstate(under="ignore"):
            return np.asarray(self.components_.T @ self.components_)

    def _to_pairs(self, pairs: Any) -> Matrix:
        """Return pairs as an array of shape (n_pairs, 2, n_features)."""
        found = check_array(
            pairs, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name="pairs"
        )
        if found.ndim != 3 or found.shape[1] != 2:
            raise ValueError(
                f"pairs must have shape (n_pairs, 2, n_features), got {found.shape}; pairs of "
                "indices need a preprocessor"
            )
        return np.asarray(found)

    def _learn(
        self, points: Matrix, differences: Matrix, alike: Any, weights: Vector, strides: Strides,
        bounds: Any = None,
    ) -> Learned:  # fmt: skip
        """Learn from differences, and keep what was found."""
        own: Any = self
        upper, lower = (own.upper, own.lower) if bounds is None else bounds
        with np.errstate(under="ignore"), one_blas_thread():
            root = _root(own.prior, points)

            def listen(metric: Callable[[Matrix], Matrix]) -> Any:
                return strides.callback(lambda A: {"components_": components_of(metric(A))})

            found = learn(
                differences, alike, slack=own.slack, prior=root,
                stretch=own.stretch, upper=upper, lower=lower,
                percentiles=own.percentiles, weights=weights, gap=own.gap,
                time_limit=own.time_limit, listen=listen,
            )  # fmt: skip
            self.components_ = components_of(found.M)
        own.bounds_, own.stretch_ = np.array(found.bounds), found.stretch
        own.result_ = None if found.result is None else without_data(found.result)
        own.n_iter_ = 0 if found.result is None else int(found.result.n_iter)
        return found

    def _check_learning(self) -> None:
        """Refuse parameters that mean nothing."""
        own: Any = self
        if not (isinstance(own.slack, str) and own.slack in SLACKS):
            raise ValueError(f"slack must be one of {', '.join(SLACKS)}, got {own.slack!r}")
        stretch = own.stretch
        if not (isinstance(stretch, str) and stretch == "auto") and not (
            is_number(stretch) and stretch > 1.0 and (stretch <= MAX_STRETCH or stretch == np.inf)
        ):
            raise ValueError(f"stretch must be 'auto' or a number above 1, got {stretch!r}")
        for name in ("upper", "lower"):
            value = getattr(own, name)
            if value is not None and not (is_number(value) and 0.0 < value < np.inf):
                raise ValueError(f"{name} must be None or a positive distance, got {value!r}")
        both = to_list("percentiles", own.percentiles, "two numbers")
        if len(both) != 2 or not all(is_number(p) and 0.0 <= p <= 100.0 for p in both):
            raise ValueError(
                f"percentiles must be two numbers from 0 to 100, got {own.percentiles!r}"
            )
        if not (is_number(own.gap) and 0.0 < own.gap < 1.0):
            raise ValueError(f"gap must be a number between 0 and 1, got {own.gap!r}")
        if isinstance(own.prior, str) and own.prior not in ("identity", "covariance"):
            raise ValueError(
                f"prior must be 'identity', 'covariance' or a matrix, got {own.prior!r}"
            )


def components_of(M: Matrix) -> Matrix:
    """Return L of ``M = L'L``, its rows by size, the largest entry of each positive."""
    values, vectors = np.linalg.eigh(M)
    rows = (vectors * np.sqrt(np.maximum(values, 0.0))).T[::-1]
    largest = rows[np.arange(len(rows)), np.argmax(np.abs(rows), axis=1)]
    return np.ascontiguousarray(rows * np.where(largest < 0.0, -1.0, 1.0)[:, None])


def _root(prior: Any, points: Matrix) -> Matrix:
    """Return R of the prior R'R."""
    d = points.shape[1]
    if isinstance(prior, str) and prior == "identity":
        return np.eye(d)
    if isinstance(prior, str):
        scale = float(np.max(np.abs(points), initial=0.0)) or 1.0
        spread = (
            np.atleast_2d(np.cov(points / scale, rowvar=False)) if len(points) > 1 else (np.eye(d))
        )
        values, vectors = np.linalg.eigh(spread)
        # Directions in which nothing varies are as those that vary most.
        most = float(values[-1]) if values[-1] > 0.0 else 1.0
        values = np.where(values > ZERO_SHARE * most, values, most)
        return np.asarray((vectors / np.sqrt(values)).T / scale)
    M = as_numbers("prior", prior)
    if M.dtype.kind == "c" or not np.isfinite(M).all():
        raise ValueError("prior must hold finite real numbers")
    M = M.astype(np.float64)
    if M.shape != (d, d) or np.abs(M - M.T).max() > SEEN * np.abs(M).max():
        raise ValueError(f"prior must be a symmetric matrix of shape ({d}, {d}), got {M.shape}")
    values, vectors = np.linalg.eigh(M)
    if not values[0] > 0.0:
        raise ValueError(
            f"prior must be positive definite, but its smallest eigenvalue is {values[0]:.3g}"
        )
    return np.asarray((vectors * np.sqrt(values)).T)


# --- pairs of points: intervals of their distances, and pairs made from classes ------------------


Labels = npt.NDArray[np.int64]

WIDTH = 0.05
"""Least width of an interval, as a part of its ends: an empty one would be a hard equality."""


def intervals(
    squares: Vector, alike: npt.NDArray[np.bool_], upper: float, lower: float, stretch: float
) -> tuple[Vector, Vector]:
    """Return intervals that squared distances are to lie in.

    Those of pairs that are alike are to be at most ``upper^2``, those of others at least
    ``lower^2``, and none is to be more than `stretch` times, or less than one over `stretch` of
    what it was: where that is asked for, as near to it as this lets it.

    Parameters
    ----------
    squares : ndarray of shape (m,)
        Squared distances by the prior, all positive.
    alike : ndarray of bool, shape (m,)
    upper, lower : float
    stretch : float
        At least 1; may be infinite.
    """
    least = squares / stretch
    most = squares * stretch
    lo = np.where(alike, least, np.minimum(lower * lower, most))
    hi = np.where(alike, np.maximum(upper * upper, (1.0 + WIDTH) * least), (1.0 + WIDTH) * most)
    if not np.isfinite(stretch):
        lo = np.where(alike, -np.inf, lo)
    return lo, np.where(hi <= lo, (1.0 + WIDTH) * lo, hi)


def even_weights(alike: npt.NDArray[np.bool_], weights: Vector) -> Vector:
    """Return weights with which the two kinds of pairs count alike, 1 in the mean."""
    weights = weights.copy()
    for kind in (alike, ~alike):
        total = float(weights[kind].sum())
        if total > 0.0:
            weights[kind] *= 0.5 * alike.size / total
    return weights


def pairs_of_classes(
    X: Matrix, classes: Labels, neighbors: int, random: int, rng: Any
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return pairs of indices, each once, and whether they are alike.

    For every point the nearest `neighbors` of its class, as many of the others, and `random` points
    from anywhere.

    Parameters
    ----------
    X : ndarray of shape (m, n)
    classes : ndarray of int, shape (m,)
    neighbors, random : int
    rng : numpy.random.RandomState
    """
    m = len(X)
    first: list[Any] = []
    second: list[Any] = []
    for each in np.unique(classes):
        mine, others = np.flatnonzero(classes == each), np.flatnonzero(classes != each)
        for pool, extra in ((mine, 1), (others, 0)):
            count = min(neighbors, len(pool) - extra)
            if count < 1:
                continue
            near = NearestNeighbors(n_neighbors=count + extra).fit(X[pool])
            found = near.kneighbors(X[mine], return_distance=False)
            first.append(np.repeat(mine, count + extra))
            second.append(pool[found].ravel())
    if random and m > 1:
        first.append(np.repeat(np.arange(m), random))
        second.append(rng.randint(m, size=random * m))
    if not first:
        return np.empty((0, 2), np.int64), np.empty(0, bool)
    both = np.stack([np.concatenate(first), np.concatenate(second)], axis=1)
    both = np.unique(np.sort(both[both[:, 0] != both[:, 1]], axis=1), axis=0)
    return both, np.asarray(classes[both[:, 0]] == classes[both[:, 1]])


# --- from classes --------------------------------------------------------------------------------


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
        percentiles: Any = PERCENTILES,
        gap: float = GAP,
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
