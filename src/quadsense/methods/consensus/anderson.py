"""Anderson's acceleration of the steps: the combination of the last ones that changes least.

[Anderson 1965], of the type of [Walker & Ni 2011, section 2]. What is proved of a state does not
depend on how it was come by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.device import numbers

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
