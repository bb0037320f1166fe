"""The distance up to which pairs are predicted to be alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.sklearn.model import Vector
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
    """The smallest of the best thresholds: one of the distances, or less than all of them.

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
