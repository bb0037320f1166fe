"""The memory of a limited-memory BFGS method, and the direction that it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quadsense.device import numbers, scalar

Array = npt.NDArray[Any]

Memory: TypeAlias = tuple[tuple[Array, Array, float], ...]
"""Recent moves, the change of slope along each, and the inner product of the two (positive), oldest
first; arrays of any one shape, real or complex."""


def dot(V: Array, W: Array) -> float:
    """Return ``Re <V, W>``."""
    return float(np.vdot(V, W).real)


def remember(
    memory: Memory,
    move: Array,
    change: Array,
    most: int,
    least: float = 0.0,
    known: tuple[float, ...] | None = None,
) -> Memory:
    """Return the memory with one more pair, the oldest dropped beyond `most`.

    A pair whose curvature is not above `least`, in units of its two norms, is left out; `known` are
    that curvature, the inner product of the two, and the product of their norms, where they came
    over before.
    """
    if known is None:
        size = np.linalg.norm(move) * np.linalg.norm(change) if least else 0.0
        known = numbers(np.vdot(move, change).real, size)
    curvature, size = known
    if not curvature > least * size:
        return memory
    return (*memory[max(0, len(memory) - most + 1) :], (move, change, curvature))


def direction(memory: Memory, slope: Array, solve: Callable[[Array], Array]) -> Array:
    """Return ``-H slope`` by the two-loop recursion [Nocedal & Wright 2006, Alg. 7.4].

    Parameters
    ----------
    memory : Memory
    slope : ndarray
    solve : callable
        Applies the inverse of the Hessian on which the memory builds; may overwrite.
    """
    q = np.negative(slope)
    coefficients: list[Any] = []  # left where they are, which spares a synchronization
    for move, change, curvature in reversed(memory):
        coefficients.append(np.vdot(move, q).real / curvature)
        q -= coefficients[-1] * change
    D = solve(q)
    for (move, change, curvature), coefficient in zip(memory, reversed(coefficients), strict=True):
        D += (coefficient - np.vdot(change, D).real / curvature) * move
    return D


def scaled(memory: Memory) -> Callable[[Array], Array]:
    """Return the simplest Hessian to build on: a multiple of I, by the last pair."""
    if not memory:
        return lambda q: q
    _, change, curvature = memory[-1]
    factor = curvature / scalar(np.vdot(change, change).real)
    return lambda q: np.multiply(q, factor, out=q)
