"""Where a factored fit stands: its phases, its state, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from quadsense.core.lbfgs import Memory
from quadsense.methods.low_rank.passes import Point
from quadsense.methods.low_rank.program import Matrix
from quadsense.vocabulary import Reason, because


class Phase(StrEnum):
    """What the next step works on, or how the fit ended."""

    SQUARES = "squares"
    HINGE = "hinge"
    LIFT = "lift"
    MET = "met"
    LOCAL = "local"
    ROUNDED = "rounded"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True)
class FactoredState:
    """Where a fit stands; plain arrays and numbers, never changed in place.

    Attributes
    ----------
    rank : int
        Rank of the answer sought now.
    growing : bool
        Whether the rank may still grow.
    max_restarts : int
        Restarts allowed (at each rank, when growing).
    seed : int
        With ``starts`` it determines every random draw.
    phase : Phase
    point : Point
        The current factor, ``rank`` rows or, in a lift, a few more.
    best : (k, n) array
        The factor of the smallest ratio so far, of rank at most ``rank``.
    max_ratio : float
        ``max |z_i| / delta_i`` at ``best``, rounding included.
    damping : float
        Of Gauss-Newton steps.
    memory : triples of two (k, n) arrays and a number
        Of quasi-Newton steps.
    least, anchor : float, (k, n) array
        The smallest loss of least squares at this rank, and its factor: a larger rank starts
        from there.
    again : int
        Attempts that came to that loss again.
    goal : float
        The ratio that counts as met: 1, or less where a check of the claim asked for it.
    theta : float
        Share of each tolerance within which a residual costs nothing; 0: least squares.
    level : int
        Which of the program's weights least squares goes by.
    stage, stage_steps, slow_steps : int
        Penalty stage of a lift, or how near the ends a hinge aims; steps in this stage or phase;
        the last ones in a row that gained little.
    iteration, passes, restarts, starts : int
        Steps tried; passes over U; restarts at this rank; restarts in all.
    blur : float
        Of an ended fit: the largest rounding bound at ``best``, as a part of its tolerance.
    no_rank_fits : bool
        No further direction reduces the loss, or an interval holds negative numbers only.
        The loss is convex in A, so (to the tolerance of the descent) no PSD matrix of any
        rank fits, and ``farkas_vector`` is the candidate proof.
    """

    rank: int
    growing: bool
    max_restarts: int
    seed: int
    phase: Phase
    point: Point
    best: Matrix
    max_ratio: float
    damping: float
    anchor: Matrix
    least: float = np.inf
    again: int = 0
    memory: Memory = ()
    goal: float = 1.0
    theta: float = 0.0
    level: int = 0
    stage: int = 0
    stage_steps: int = 0
    slow_steps: int = 0
    iteration: int = 0
    passes: int = 0
    restarts: int = 0
    starts: int = 0
    blur: float = 0.0
    no_rank_fits: bool = False

    @property
    def finished(self) -> bool:
        """Whether another step would change nothing."""
        return self.phase in (Phase.MET, Phase.LOCAL, Phase.ROUNDED, Phase.EXHAUSTED)


def why_not(state: FactoredState) -> Reason:
    """Why there is no fit."""
    if state.phase is Phase.ROUNDED:
        return because("rounding", part=state.blur)
    return because(
        "no_factor",
        starts=state.starts + 1,
        ratio=state.max_ratio,
        rounding=state.blur,
        no_rank_fits=state.no_rank_fits,
        may_grow=bool(state.rank < state.best.shape[1] and not state.growing),
    )
