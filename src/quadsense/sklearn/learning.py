"""The metric of pairs: one question of least misses about a positive semidefinite matrix."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from quadsense.result.result import Result
from quadsense.sklearn.model import Matrix, Vector
from quadsense.sklearn.pairs import even_weights, intervals
from quadsense.solve import solve
from quadsense.vocabulary import Status

SEEN = 1e-9
"""Size of a direction, as a part of the largest, from which on differences see it."""

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
    """The matrix whose squared distances miss their intervals the least.

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
    """Steps that know only the pairs missed, for many of them."""
    return {"method": "least_squares"} if slack == "squares" and m >= 1000 else {}


def _percentile(values: Vector, percentile: float) -> float:
    return float(np.percentile(values, percentile)) if values.size else 0.0
