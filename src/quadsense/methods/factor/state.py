"""Where a factored fit stands: its phases, its state and its words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quadsense.methods.factor.passes import Matrix, Point


class Phase(StrEnum):
    """What the next step works on."""

    SQUARES = "squares"
    HINGE = "hinge"
    LIFT = "lift"
    MET = "met"
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
    memory : pairs of (k, n) arrays
        Of quasi-Newton steps.
    stage, stage_steps, slow_steps : int
        Penalty stage of a lift; steps in this stage or phase; the last ones in a row that
        gained little.
    iteration, passes, restarts, starts : int
        Steps tried; passes over U; restarts at this rank; restarts in all.
    no_rank_fits : bool
        Growth ended because no further direction reduces the loss.  The loss is convex
        in A, so (to the tolerance of the descent) no PSD matrix of any rank fits, and
        ``farkas_vector`` is the candidate proof.
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
    memory: tuple[tuple[Matrix, Matrix], ...] = ()
    stage: int = 0
    stage_steps: int = 0
    slow_steps: int = 0
    iteration: int = 0
    passes: int = 0
    restarts: int = 0
    starts: int = 0
    no_rank_fits: bool = False

    @property
    def finished(self) -> bool:
        """Whether another step would change nothing."""
        return self.phase in (Phase.MET, Phase.EXHAUSTED)


def message(state: FactoredState) -> str:
    """Say in words where the fit stands, and what a failure does and does not mean."""
    rank = state.best.shape[0]
    found = f"worst ratio {state.max_ratio:.3g}, {state.starts} restarts"
    if state.phase is Phase.MET:
        return f"met at rank {rank} ({found})"
    if state.phase is not Phase.EXHAUSTED:
        return f"under way at rank {state.rank} ({found})"
    if state.no_rank_fits:
        return f"no positive semidefinite matrix seems to fit, of any rank ({found})"
    return (
        f"rank {state.rank} seems too small: no fit found ({found}); this is no proof, "
        f"a larger rank or more restarts may fit"
    )
