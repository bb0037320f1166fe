"""Where `least_squares` stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.methods.least_squares.bounds import NONE, UNKNOWN, Judgement, Rows
from quadsense.methods.least_squares.descent import ConeDescent
from quadsense.methods.least_squares.quadratic import QuadraticPoint
from quadsense.methods.least_squares.splitting import Splitting

ROOM = 1e-10
"""How far inside its interval a reading is put, in half-widths, unless rounding takes more."""


class SquaresStage(Enum):
    """What the next step is."""

    DIRECT = "direct"
    DESCENT = "descent"
    SPLITTING = "splitting"


class SquaresVerdict(Enum):
    """What is known of the point."""

    OPEN = "open"
    OPTIMAL = "optimal"
    STALLED = "stalled"


@dataclass(frozen=True)
class SquaresState:
    """Where the method stands.

    Attributes
    ----------
    stage : SquaresStage
    verdict : SquaresVerdict
    point : QuadraticPoint or None
        The last matrix that was evaluated from the rows.
    factor : ndarray of shape (n, r) or None
        X of that, where it is positive semidefinite.
    rows : ndarray of int, shape (k,)
    mu : ndarray of shape (k,)
        Rows whose ends pull, and their multipliers.
    judged : Judgement
    descent : ConeDescent or None
    splitting : Splitting or None
    iteration, since : int
        Steps taken, and those in this stage.
    orthogonal : bool
        Whether the point is of rows made orthogonal: no other method comes nearer.
    room : float
        See `ROOM`.
    mark, marked : float, int
        The least that remained to be done, in units of what suffices, and when that was.
    care : float
        Share of what suffices that is aimed at, below 1 where it did not.
    max_ratio : float
    """

    stage: SquaresStage
    verdict: SquaresVerdict = SquaresVerdict.OPEN
    point: QuadraticPoint | None = None
    factor: npt.NDArray[Any] | None = None
    rows: Rows = field(default_factory=lambda: NONE)
    mu: Vector = field(default_factory=lambda: np.empty(0))
    judged: Judgement = UNKNOWN
    descent: ConeDescent | None = None
    splitting: Splitting | None = None
    iteration: int = 0
    since: int = 0
    room: float = ROOM
    orthogonal: bool = False
    mark: float = np.inf
    marked: int = 0
    care: float = 1.0
    max_ratio: float = np.inf
