"""The step to the boundary, one rule for every interior-point method."""

from __future__ import annotations

from typing import Any

import numpy as np


def reach(values: Any, change: Any, axis: tuple[int, ...] | None = None) -> Any:
    """Return the longest step along a change that leaves no value negative; infinite without one.

    It stays where the values are. For a matrix these are 1 and the eigenvalues of the change in
    coordinates in which the matrix is the identity.

    Parameters
    ----------
    values : array or number
        Not negative.
    change : array or number
    axis : tuple of int, optional
        Axes of which each step is the longest; all of them by default.
    """
    falls = change < 0.0
    with np.errstate(over="ignore"):  # then the step is not limited
        lengths = np.where(falls, -values / np.where(falls, change, -1.0), np.inf)
    return np.min(lengths, axis=axis, initial=np.inf)
