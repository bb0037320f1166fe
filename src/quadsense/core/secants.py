"""What differences of earlier steps tell of the next: limited-memory BFGS, Anderson's acceleration.

Anderson's is the combination of the last steps that changes least [Anderson 1965], of the type of
[Walker & Ni 2011, section 2]. What is proved of a state does not depend on how it was come by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
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


# --- Anderson's acceleration ---------------------------------------------------------------------


MAX_REMEMBERED = 10
"""Differences of steps that are combined: with 3 to 12 for states of 5 and 6 qubits 25 to 40 steps
where 30 to 105 are needed without."""

MAX_GROWTH = 2.0
"""Growth of what a step changes, from which on the steps before are no guide."""

MIN_INDEPENDENT = 1e-10
"""Share of their squares by which the changes that are combined are kept apart."""


@dataclass(frozen=True)
class Past:
    """The last step, and differences of those before.

    Attributes
    ----------
    found, change : arrays of shape (N,)
        Where the last step went, and by how much.
    moves, turns : tuples of such arrays
        Differences of both from step to step.
    products : array of shape (k, k)
        Inner products of the turns.
    """

    found: Vector
    change: Vector
    moves: tuple[Vector, ...]
    turns: tuple[Vector, ...]
    products: npt.NDArray[np.float64]


def combined(past: Past | None, here: Vector, change: Vector) -> tuple[Vector, Past]:
    """Return where to go from `here`, in place of ``here + change``."""
    found, none = here + change, np.empty((0, 0))
    if past is None:
        return found, Past(found, change, (), (), none)
    now, before = numbers(change @ change, past.change @ past.change)
    if not now <= MAX_GROWTH**2 * before:
        return found, Past(found, change, (), (), none)
    moves = (*past.moves, found - past.found)[-MAX_REMEMBERED:]
    turns = (*past.turns, change - past.change)[-MAX_REMEMBERED:]
    count, last = len(turns), turns[-1]
    inner = numbers(*(last @ turn for turn in turns), *(turn @ change for turn in turns))
    products = np.empty((count, count))
    products[:-1, :-1] = past.products[-(count - 1) :, -(count - 1) :] if count > 1 else 0.0
    products[-1] = products[:, -1] = inner[:count]
    kept = products + MIN_INDEPENDENT * np.trace(products) * np.eye(count)
    after = Past(found, change, moves, turns, products)
    if not (np.isfinite(kept).all() and products[-1, -1] > 0.0):
        return found, after
    shares = np.linalg.solve(kept, np.array(inner[count:]))
    lead = found
    for share, move in zip(shares.tolist(), moves, strict=True):
        lead = lead - share * move
    return lead, after
