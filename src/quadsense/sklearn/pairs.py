"""Pairs of points: differences and what is asked of their distances; pairs made from classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import NearestNeighbors

from quadsense.sklearn.model import Matrix, Vector

Labels = npt.NDArray[np.int64]

WIDTH = 0.05
"""Least width of an interval, as a part of its ends: an empty one would be a hard equality."""


def intervals(
    squares: Vector, alike: npt.NDArray[np.bool_], upper: float, lower: float, stretch: float
) -> tuple[Vector, Vector]:
    """Intervals that squared distances are to lie in.

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
    """Weights with which the two kinds of pairs count alike, 1 in the mean."""
    weights = weights.copy()
    for kind in (alike, ~alike):
        total = float(weights[kind].sum())
        if total > 0.0:
            weights[kind] *= 0.5 * alike.size / total
    return weights


def pairs_of_classes(
    X: Matrix, classes: Labels, neighbors: int, random: int, rng: Any
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Pairs of indices, each once, and whether they are alike.

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
