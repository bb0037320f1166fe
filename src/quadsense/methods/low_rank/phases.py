"""Where a factored fit stands, and what follows a stalled stage: a phase, an attempt, a rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from quadsense.core.records import changed
from quadsense.core.secants import Memory
from quadsense.methods.low_rank import LIFT
from quadsense.methods.low_rank.passes import FactorPoint, evaluate, rounding_share, within_rounding
from quadsense.methods.low_rank.program import LowRankProgram, Matrix, Vector, rows_are_ample
from quadsense.methods.low_rank.rest import corrected, fits_exactly, is_settled, settled
from quadsense.methods.low_rank.starts import descent_row, random_start
from quadsense.methods.low_rank.steps import balanced, turned
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
class LowRankState:
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
    point : FactorPoint
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
    point: FactorPoint
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


def why_not(state: LowRankState) -> Reason:
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


LIFT_STAGES = 8
"""Stages of a lift, each with a larger penalty."""

FIRST_DAMPING = 1e-2
"""Damping of the first Gauss-Newton step of a phase."""

HINGE_SHARES = (0.95, 0.99, 0.999)
"""Shares of the tolerances that a hinge aims at, one after the other: a little inside, to get there
in finitely many steps."""

# The next share is taken where one is too far inside, but the worst ratio no larger than this.
MAX_RATIO_NEAR = 1.5
# Share of the tolerance that rounding may take before a stall is put down to it.
MIN_ROUNDED_SHARE = 0.5
# Eigenvalue, relative to its matrix, that counts as not negative when the rank grows.
MAX_FLAT_CURVATURE = 1e-6
# Size of the extra rows of a lift from the least squares so far, relative to its own rows.
NUDGE_SIZE = 0.01
# Number of attempts from random factors that end at the best least-squares value so far: more of
# them would find nothing better. Values count as the same within _SAME where least squares is
# brought to rest, and within _SAME_UNSETTLED where an attempt ends as soon as it is slow, which
# leaves up to a percent of the loss (measured).
MAX_REPEATS, SAME_LOSS, SAME_LOSS_UNSETTLED = 20, 1e-6, 1e-2
# How many times the usual trace any fit would need before none is believed to exist.
MAX_USUAL_TRACES = 100.0


def level_of(problem: LowRankProgram, state: LowRankState) -> LowRankProgram:
    """Return the problem with the weights that the state goes by."""
    return problem if state.phase is Phase.HINGE else problem.levels[state.level]


def settles(problem: LowRankProgram, state: LowRankState) -> bool:
    """Whether least squares is to be brought to rest, not only to a fit."""
    last = state.level + 1 == len(problem.levels)
    return problem.chooses and state.phase is Phase.SQUARES and last


def noted(problem: LowRankProgram, state: LowRankState, **changes: Any) -> LowRankState:
    """Return the state with these changes, none of which is a phase or a rank.

    Its point becomes the best if it is one of the asked rank, and ends the fit if it fits.
    """
    point = changes.get("point", state.point)
    if len(point.Y) <= state.rank and point.ratio < state.max_ratio:
        changes |= {"best": point.Y, "max_ratio": point.ratio}
        # Where a choice is to be made, a better one may be ahead.
        ahead = problem.chooses and state.phase is Phase.SQUARES
        if point.ratio <= state.goal and problem.target and not ahead:
            changes["phase"] = Phase.MET
    return changed(state, **changes)


def next_phase(problem: LowRankProgram, state: LowRankState) -> LowRankState:
    """Leave a stalled stage for what follows it."""
    if state.phase is Phase.LIFT:
        if state.stage + 1 < LIFT_STAGES:
            return replace(state, stage=state.stage + 1, stage_steps=0, slow_steps=0, memory=())
        return begin(problem, state, state.point.Y[: state.rank], Phase.SQUARES, state.level)
    squares = state.phase is Phase.SQUARES
    if squares and state.level + 1 < len(problem.levels):
        return begin(problem, state, state.point.Y, Phase.SQUARES, state.level + 1)
    # The maintained residuals of quasi-Newton steps are renewed before they are judged.
    weighed = level_of(problem, state)
    point = evaluate(weighed, balanced(problem, state.point.Y), state.theta)
    if squares and problem.chooses:
        point = settled(weighed, point)
    else:
        point = corrected(weighed, point, state.theta)
    state = noted(problem, state, point=point)
    if state.finished:
        return state
    if squares:
        state = _with_least(state, point, SAME_LOSS if problem.chooses else SAME_LOSS_UNSETTLED)
    if not problem.target:
        return _after_squares(problem, state)
    if squares and problem.chooses and point.ratio <= state.goal:
        return replace(state, phase=Phase.MET, best=point.Y, max_ratio=point.ratio)
    blur = rounding_share(problem, point.Y)
    if blur >= MIN_ROUNDED_SHARE and within_rounding(problem, point, state.goal):
        return replace(state, phase=Phase.ROUNDED, best=point.Y, blur=blur)
    if squares and blur < state.goal and (problem.chooses or _may_fit(problem, state)):
        return begin(problem, state, point.Y, Phase.HINGE, state.level)
    near = not squares and point.ratio <= MAX_RATIO_NEAR * state.goal
    if near and state.stage + 1 < len(HINGE_SHARES):
        return begin(problem, state, point.Y, Phase.HINGE, state.level, state.stage + 1)
    if _is_hopeless(problem, state):
        return _exhausted(problem, state, no_rank_fits=True)
    if state.restarts < _restarts_allowed(problem, state):
        return _restart(problem, state)
    return _grow(problem, state) if state.growing else _exhausted(problem, state)


def _with_least(state: LowRankState, point: FactorPoint, same: float) -> LowRankState:
    """Return the state with the least of least squares, and how often attempts came to it.

    Values that differ by at most the share `same` count as one.
    """
    if point.value >= state.least:
        again = state.again + int(point.value <= state.least * (1.0 + same))
        return replace(state, again=again)
    again = state.again + 1 if point.value >= state.least * (1.0 - same) else 0
    return replace(state, least=point.value, anchor=point.Y, again=again)


def _after_squares(problem: LowRankProgram, state: LowRankState) -> LowRankState:
    """Go on without a tolerance: some more starts, then the least of the least squares."""
    weighed = problem.levels[-1]
    point = evaluate(weighed, state.anchor, 0.0)
    exact = fits_exactly(weighed, point)
    if not exact and state.restarts < _restarts_allowed(problem, state):
        return _restart(problem, state)
    phase = Phase.LOCAL if exact or is_settled(weighed, point) else Phase.EXHAUSTED
    # The loop keeps the last state with the smallest ratio: the least of squares may have a larger.
    ratio = min(point.ratio, state.max_ratio)
    return replace(state, phase=phase, point=point, best=point.Y, max_ratio=ratio)


def _may_fit(problem: LowRankProgram, state: LowRankState) -> bool:
    """Whether least squares ended with no larger a loss than a fit has at most."""
    excess = state.point.excess * problem.inverse
    return float(np.mean(excess * excess)) <= state.goal**2


def upper_ends(problem: LowRankProgram) -> Vector:
    """Return the upper ends of the intervals, infinite where there is none."""
    reach = problem.delta if problem.bounds is None else problem.bounds.above
    return np.asarray(problem.b + reach)


def _is_hopeless(problem: LowRankProgram, state: LowRankState) -> bool:
    """Whether no PSD matrix of any rank seems to fit, as the first attempt can tell."""
    if problem.signs is not None:
        return False  # a factor gives no proofs about matrices of any sign
    sums = not problem.F.rank_one  # which may well be negative
    negative = float(np.min(upper_ends(problem))) < 0.0
    if problem.bounds is None and float(np.max(problem.b)) <= 0.0:
        negative = True  # zero is the best fit
    if negative and not sums:
        return True
    if state.starts > 0 or state.growing:
        return False
    point = evaluate(problem, state.anchor, 0.0)
    return _shows_infeasible(problem, point, descent_row(problem, point)[1])


def _shows_infeasible(problem: LowRankProgram, point: FactorPoint, smallest: float) -> bool:
    """Whether the slope y at a point shows that no PSD matrix of usual size fits.

    With ``smallest`` the least eigenvalue of ``F*(y)``, every A that fits has
    ``-(y.b + sum |y_i| delta_i) <= -smallest tr(A)``.
    """
    y = problem.weight * point.excess
    if problem.bounds is None:
        margin = -float(np.dot(y, problem.b) + np.dot(np.abs(y), problem.delta))
    else:
        margin = -problem.bounds.support(y, problem.b)
    usual = problem.F.n * float(np.max(np.abs(problem.b) + problem.delta))
    return margin > 0.0 and margin >= -smallest * MAX_USUAL_TRACES * usual


def _exhausted(
    problem: LowRankProgram, state: LowRankState, no_rank_fits: bool = False
) -> LowRankState:
    blur = rounding_share(problem, state.best)
    return replace(state, phase=Phase.EXHAUSTED, blur=blur, no_rank_fits=no_rank_fits)


def begin(
    problem: LowRankProgram,
    state: LowRankState,
    Y: Matrix,
    phase: Phase,
    level: int = 0,
    stage: int = 0,
) -> LowRankState:
    """Begin a phase at a factor, with fresh damping and memory."""
    theta = 0.0
    if phase is Phase.HINGE:  # aim inside what rounding leaves of the tolerances
        theta = HINGE_SHARES[stage] * max(state.goal - rounding_share(problem, Y), 0.0)
    state = replace(state, phase=phase, level=level)
    return noted(
        problem,
        state,
        theta=theta,
        point=evaluate(level_of(problem, state), turned(problem, Y), theta),
        damping=FIRST_DAMPING,
        memory=(),
        stage=stage,
        stage_steps=0,
        slow_steps=0,
        passes=state.passes + 1,
    )


def _restarts_allowed(problem: LowRankProgram, state: LowRankState) -> int:
    if state.again >= MAX_REPEATS and problem.shared.sparse is None:
        return 0
    ample = rows_are_ample(problem.F, state.rank)
    return 0 if state.growing and ample else state.max_restarts


def _restart(problem: LowRankProgram, state: LowRankState) -> LowRankState:
    """Begin the next attempt: a lift, from a random factor or from the least squares so far.

    Of sparse rows a local minimum is often wrong in few unknowns only. The extra room of a lift
    from there lets them pass, or some of those that missed rows see are put elsewhere; with all
    weights as they are, for weights of limited spread lead back to where this came from.
    """
    starts = state.starts + 1
    rng = np.random.default_rng((state.seed, starts))
    state = replace(state, restarts=state.restarts + 1, starts=starts)
    Y = random_start(problem, state.rank + LIFT, rng)
    last = len(problem.levels) - 1
    local = problem.shared.sparse is not None and len(state.anchor) == state.rank
    if local and starts % 4 == 0:
        size = float(np.linalg.norm(state.anchor) / np.linalg.norm(Y[: state.rank]))
        Y = np.concatenate([state.anchor, NUDGE_SIZE * size * Y[state.rank :]])
        return begin(problem, state, Y, Phase.LIFT, last)
    if local and starts % 4 != 1 and len(state.best) == state.rank:
        base = state.best if starts % 4 == 2 else state.anchor
        return begin(problem, state, relocated(problem, base, rng), Phase.SQUARES, last)
    return begin(problem, state, Y, Phase.LIFT)


def _grow(problem: LowRankProgram, state: LowRankState) -> LowRankState:
    """Add the steepest direction to the factor of least squares, or end where there is none."""
    weighed = problem.levels[-1]
    point = evaluate(weighed, state.anchor, 0.0)
    row, value, curvature = descent_row(weighed, point)
    if curvature > -MAX_FLAT_CURVATURE or state.rank >= problem.F.n:
        hopeless = _shows_infeasible(weighed, point, value)
        return _exhausted(problem, state, no_rank_fits=hopeless)
    state = replace(
        state, rank=state.rank + 1, restarts=0, passes=state.passes + 1, least=np.inf, again=0
    )
    return begin(problem, state, np.concatenate([state.anchor, row]), Phase.SQUARES)


# Unknowns that are put elsewhere at once, at most.
MAX_RELOCATED = 3


def relocated(problem: LowRankProgram, Y: Matrix, rng: np.random.Generator) -> Matrix:
    """Return a factor some columns of which, that a missed row sees, are somewhere else nearby.

    For sparse rows: an unknown is seen by few of them, so that the others hardly mind.
    """
    U, F = problem.shared.sparse, problem.F
    assert U is not None
    point = evaluate(problem, Y, 1.0)
    blame = np.abs(F.unmixed((point.excess / problem.delta) ** 2))
    total = float(blame.sum())
    if not total > 0.0:
        return Y
    moved = Y.copy()
    reads = np.sqrt(np.sum(np.abs(point.P) ** 2, axis=0))
    seen = abs(U)
    for row in rng.choice(
        blame.size, size=int(rng.integers(1, MAX_RELOCATED + 1)), p=blame / total
    ):
        columns = U.indices[U.indptr[row] : U.indptr[row + 1]]
        column = int(rng.choice(columns))
        # As far as the row reads, or as all that see the unknown do, or between.
        others = seen[:, [column]]
        far = float(reads @ others.toarray().ravel()) / float(others.sum())
        near = min(float(reads[row]), far) or far
        size = near * (far / near) ** rng.random() if near > 0.0 else 1.0
        noise = random_start(problem, len(Y), rng)[:, column]
        moved[:, column] += noise * (2.0 * size * rng.random() / float(np.linalg.norm(noise)))
    return moved
