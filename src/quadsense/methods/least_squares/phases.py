"""Least squares in the cone, then with the ends that bind, until the bound is close."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.core.records import changed
from quadsense.methods.least_squares import direct
from quadsense.methods.least_squares.bounds import (
    MAX_TRUE_GAP_RATIO,
    SquaresStage,
    SquaresState,
    SquaresVerdict,
    acceptable,
    at,
    crossed,
    goal,
    judge_of,
    margins,
    mass,
    small,
)
from quadsense.methods.least_squares.direct import HeldRows, cut_minimizer
from quadsense.methods.least_squares.face import (
    MAX_FACE_GAP,
    moved_factor,
    multipliers,
    on_face,
    refined,
    shifted_matrix,
    with_trace,
)
from quadsense.methods.least_squares.program import NONE, QuadraticPoint, SquaresProgram
from quadsense.methods.least_squares.steps import (
    AdmmFactor,
    Splitting,
    begin_descent,
    begin_splitting,
    descent_anew,
    descent_step,
    splitting_factor,
    splitting_step,
    splitting_tuned,
)

Array = npt.NDArray[Any]

MIN_GOAL = 1e-290
"""A gap to reach where the least squares are 0."""

ROUGH_GAP = 1e-2
"""Relative gap from which on it is clear which ends bind."""

STEPS_PER_BOUND = 10
"""Steps between two bounds, each of which costs an eigendecomposition more."""

MAX_IDLE_STEPS = 300
"""Steps in which what is left must halve."""

MAX_STAGE_STEPS = 2000
"""Steps of a stage: some times what the slowest that came to an end took."""

MAX_SMALL_UNKNOWNS = 80
"""Unknowns up to which the methods that follow take less time than many steps."""

MAX_BINDING_UNKNOWNS, MIN_AMPLE_ROWS = 800, 6.0
"""Unknowns up to which they take less time over the cone as soon as ends bind, unless there are
this many readings per unknown and more than `MAX_SMALL_UNKNOWNS` unknowns (measured)."""

MIN_COST_SHARE = 1e-6
"""Cost, in units of that of A = 0, below which an interior-point method lacks the digits."""

STEPS_BEFORE_OTHERS = {SquaresStage.DESCENT: 30, SquaresStage.SPLITTING: 10}
"""Steps of each stage after which so small a problem is left to them (measured)."""

TUNED_STEPS = (40, 80, 160, 320, 640)
"""Steps of the splitting at which sigma is looked at, each costing a factorisation at most."""

MAX_INNER_STEPS = 200
"""Conjugate gradients between two evaluations from the rows."""

MAX_COPIES = 2e7
"""Entries of the rows that are written out, at most."""

MIN_CARE = 1e-3
"""Share of what suffices below which more care leads no further: rounding, or no interior."""

MAX_OUTSIDE = 1e-7
"""Half-widths that a reading may be outside for a correction of the factor to bring it inside."""

EMPTY: Vector = np.empty(0)


def start(program: SquaresProgram, x: Vector) -> SquaresState:
    """Return the state at the member of the cone that costs less: nearest to least squares or to x.

    Where least squares without the cone is open, it is the one nearest to x.
    """
    cone = program.cone
    if not cone.psd:
        return at(program, SquaresState(SquaresStage.DIRECT), program.cost.point(x))
    R, others = direct.factored(program, quick=True), [x]
    if R is not None:
        least = direct.of_trace(program, R, direct.nearly(program, R, program.cost.point(x)))
        X = cone.factor(least)
        if X.shape[1] == cone.n and cone.trace is None:  # least squares is inside the cone
            point = program.cost.point(_member(program, X)[0])
            state = SquaresState(SquaresStage.DESCENT, descent=begin_descent(point), factor=X)
            state = _settled(program, state, point)
            if state.verdict is SquaresVerdict.OPTIMAL or state.stage is SquaresStage.SPLITTING:
                return state
        cut = _cut(program, R, least)
        if cut is not None:
            return cut
        others.insert(0, least)
    points = [program.cost.point(cone.project(each)) for each in others]
    point = min(points, key=lambda one: one.cost)
    state = at(program, SquaresState(SquaresStage.DESCENT, descent=begin_descent(point)), point)
    if _binds_for_others(program, state, point):  # they begin anew, and gain nothing by steps
        return changed(state, verdict=SquaresVerdict.STALLED)
    state = _judged_descent(program, state)
    return state if state.verdict is SquaresVerdict.OPEN else _refined(program, state)


def _cut(program: SquaresProgram, R: Array, least: Vector) -> SquaresState | None:
    """Return the minimizer over the cone and the intervals by cuts, None if that is not found.

    Parameters
    ----------
    program : SquaresProgram
    R : ndarray of shape (N, N)
        Cholesky factor of the normal matrix.
    least : ndarray of shape (N,)
        Least squares without cone and intervals.
    """
    found = cut_minimizer(program, R, least)
    if found is None:
        return None
    state = SquaresState(SquaresStage.DESCENT, factor=found.X, rows=found.rows, mu=found.mu)
    point = program.cost.point(_member(program, found.X)[0])
    state = _judged_point(program, state, point)
    asked = min(MAX_FACE_GAP, float(program.problem.options.gap))
    enough = max(asked * point.cost, small(program))
    if crossed(program, point, 0.0).size or state.judged.gap > enough:
        other = on_face(program, state, found.X)
        if other is None or other.judged.gap > enough:
            return None
        state = other
    return changed(state, verdict=SquaresVerdict.OPTIMAL)


def advance(program: SquaresProgram, state: SquaresState, steps: int) -> SquaresState:
    """Return the state after at most `steps` more steps."""
    end = state.iteration + steps
    while state.iteration < end and state.verdict is SquaresVerdict.OPEN:
        if state.stage is SquaresStage.DESCENT:
            state = _descend(program, state, end - state.iteration)
            continue
        state = changed(state, iteration=state.iteration + 1, since=state.since + 1)
        state = (_direct if state.stage is SquaresStage.DIRECT else _split)(program, state)
    return state if state.verdict is SquaresVerdict.OPEN else _refined(program, state)


def _refined(program: SquaresProgram, state: SquaresState) -> SquaresState:
    """What the face of the last point adds to it; nothing where ends bind that others take on."""
    stalled, point = state.verdict is SquaresVerdict.STALLED, state.point
    if stalled and point is not None and _binds_for_others(program, state, point):
        return state
    other = refined(program, state)
    if other is state or other.point is None:
        return state
    taken = acceptable(program, other.judged, other.point.cost)
    return changed(other, verdict=SquaresVerdict.OPTIMAL if taken else state.verdict)


def tightened(program: SquaresProgram, state: SquaresState) -> SquaresState:
    """Further inside the intervals, where rounding spoilt what seemed to be a fit."""
    point = state.point
    assert point is not None
    state = changed(
        state, room=10.0 * state.room, verdict=SquaresVerdict.OPEN, since=0, mark=np.inf
    )
    return state if state.stage is SquaresStage.DIRECT else _to_splitting(program, state, point)


def factor_of(program: SquaresProgram, x: Vector) -> Array:
    """X of x, with the trace that is asked for."""
    return with_trace(program.cone, program.cone.factor(x))


# --- steps of the first order -----------------------------------------------------------------


def _descend(program: SquaresProgram, state: SquaresState, steps: int) -> SquaresState:
    """Return the state after at most `steps` more steps, up to the next bound."""
    now, count = state.descent, min(steps, STEPS_PER_BOUND - state.since % STEPS_PER_BOUND)
    assert now is not None
    for _ in range(count):
        now = descent_step(program, now)
    iteration, since = state.iteration + count, state.since + count
    state = changed(state, descent=now, iteration=iteration, since=since)
    return state if since % STEPS_PER_BOUND else _judged_descent(program, state)


def _judged_descent(program: SquaresProgram, state: SquaresState) -> SquaresState:
    """What the iterate shows; where it seems close, evaluated from the rows."""
    now, judge, last = state.descent, judge_of(program), state.point
    assert now is not None and last is not None
    cost = max(now.cost, 0.0)
    judged = judge.judge(now.x, cost, 2.0 * now.slope, 0.0, mass(program, last.values, EMPTY))
    left = judged.gap / max(goal(program, judged, cost), MIN_GOAL)
    rough = judged.gap <= ROUGH_GAP * cost and not np.isfinite(
        state.judged.gap
    )  # for the first time
    if left <= state.care or rough:
        now = descent_anew(program, now)
        state = _at_iterate(program, changed(state, descent=now), now.about)
        cost, judged = now.about.cost, state.judged
        if judged.gap <= max(ROUGH_GAP * cost, goal(program, judged, cost)):
            if crossed(program, now.about, 0.0).size:
                return _to_splitting(program, state, now.about)
            if judged.gap <= goal(program, judged, cost):
                return _settle(program, state, *_member(program, factor_of(program, now.x)))
        if left <= state.care:
            state = changed(state, care=0.5 * state.care)
    return _progress(program, state, left)


def _at_iterate(
    program: SquaresProgram, state: SquaresState, point: QuadraticPoint
) -> SquaresState:
    """The state at a point of the descent."""
    weight = mass(program, point.values, EMPTY)
    judged = judge_of(program).judge(point.x, point.cost, 2.0 * point.slope, 0.0, weight)
    return at(program, changed(state, judged=judged, rows=NONE, mu=EMPTY), point)


def _progress(program: SquaresProgram, state: SquaresState, left: float) -> SquaresState:
    """The state with its mark, or the next stage where nothing has moved for long."""
    if _is_for_others(program, state):
        if state.stage is SquaresStage.DESCENT:
            assert state.descent is not None
            state = _at_iterate(program, state, program.cost.point(state.descent.x))
        return changed(state, verdict=SquaresVerdict.STALLED)
    if left < 0.5 * state.mark:
        return changed(state, mark=left, marked=state.since)
    if state.since - state.marked <= MAX_IDLE_STEPS and state.since <= MAX_STAGE_STEPS:
        return state
    if state.stage is SquaresStage.DESCENT:
        assert state.descent is not None
        x = state.descent.x
        state = _at_iterate(program, state, program.cost.point(x))
        if program.cost.formed:
            assert state.point is not None
            return _to_splitting(program, state, state.point)
        ended = _settle(program, state, *_member(program, factor_of(program, x)))
    else:
        assert state.splitting is not None
        found = _inside(program, state, state.splitting.about.x + state.splitting.d)
        if found is None:
            return changed(state, verdict=SquaresVerdict.STALLED)
        ended = _settle(program, state, *found)
    assert ended.point is not None
    if ended.splitting is not state.splitting:  # more ends bind
        return ended
    taken = ended.verdict is SquaresVerdict.OPTIMAL or (
        crossed(program, ended.point, 0.1 * state.room).size == 0
        and acceptable(program, ended.judged, ended.point.cost)
    )
    return changed(ended, verdict=SquaresVerdict.OPTIMAL if taken else SquaresVerdict.STALLED)


def _is_for_others(program: SquaresProgram, state: SquaresState) -> bool:
    """Whether the methods that follow take less time than what is left, and have the digits.

    With a given trace they end at larger gaps.
    """
    assert state.point is not None
    late = state.since >= STEPS_BEFORE_OTHERS[state.stage]
    return late and _may_leave(program, state.point, MAX_SMALL_UNKNOWNS)


def _may_leave(program: SquaresProgram, point: QuadraticPoint, most: int) -> bool:
    """Whether other methods follow that can answer, for that many unknowns at most."""
    cone = program.cone
    if not program.problem.followed or cone.size > most or cone.trace is not None:
        return False
    return point.cost > MIN_COST_SHARE * program.nothing


def _binds_for_others(program: SquaresProgram, state: SquaresState, point: QuadraticPoint) -> bool:
    """Whether ends bind over the cone, and others take less time with these."""
    most = (
        MAX_BINDING_UNKNOWNS
        if program.F.m <= MIN_AMPLE_ROWS * program.cone.size
        else MAX_SMALL_UNKNOWNS
    )
    leaves = program.cone.psd and _may_leave(program, point, most)
    return leaves and bool(crossed(program, point, state.room).size)


def _member(program: SquaresProgram, X: Array) -> tuple[Vector, Array]:
    """``X X*``, packed, and X."""
    return program.cone.pack(X @ X.conj().T), X


def _settle(
    program: SquaresProgram, state: SquaresState, x: Vector, X: Array | None
) -> SquaresState:
    """The same at x, with its factor X."""
    return _settled(program, changed(state, factor=X), program.cost.point(x))


def _settled(program: SquaresProgram, state: SquaresState, point: QuadraticPoint) -> SquaresState:
    """The end where all readings are inside their intervals, else on with the ends that bind.

    The factor of the state is that of the point.
    """
    X = state.factor
    state = _judged_point(program, state, point)
    if X is not None and state.judged.gap > goal(program, state.judged, point.cost):
        mu = multipliers(program, X, point.slope, state.rows, state.mu)
        other = _judged_point(program, changed(state, mu=mu), point)
        state = min(state, other, key=lambda one: one.judged.gap)
    if X is None:
        state = _without_cone(program, state, point)
        assert state.point is not None
        point = state.point
    beyond = crossed(program, point, 0.1 * state.room)
    close = state.judged.gap <= MAX_TRUE_GAP_RATIO * goal(program, state.judged, point.cost)
    if beyond.size == 0 and close:
        return changed(state, verdict=SquaresVerdict.OPTIMAL)
    if state.stage is SquaresStage.SPLITTING and np.isin(beyond, state.rows).all():
        if state.care < MIN_CARE:
            return state
        now = state.splitting
        assert now is not None
        about = begin_splitting(program, point, now.rows, now.lo, now.hi, now)
        care = 0.1 * state.care
        return changed(state, splitting=about, care=care, mark=np.inf, marked=state.since)
    return _to_splitting(program, state, point)


def _without_cone(
    program: SquaresProgram, state: SquaresState, point: QuadraticPoint
) -> SquaresState:
    """Where nothing but ends binds, they make a system of equations."""
    now = state.splitting
    if now is None or point.x.size > direct.MAX_SINGULAR_UNKNOWNS:
        return state
    targets = np.where(state.mu > 0.0, now.hi, now.lo)
    held = direct.held_at(program, point, state.rows, state.mu, targets)
    if not held.settled or crossed(program, held.point, 0.1 * state.room).size:
        return state
    other = _judged_point(program, changed(state, mu=held.mu), held.point)
    return min(state, other, key=lambda one: one.judged.gap)


def _judged_point(
    program: SquaresProgram, state: SquaresState, point: QuadraticPoint
) -> SquaresState:
    """The state at a point with multipliers, judged by the true ends."""
    judge, rows, mu = judge_of(program), state.rows, state.mu
    T, loose = 2.0 * point.slope, 0.0
    if rows.size:
        pull = np.zeros_like(point.values)
        pull[rows] = mu
        T = T + program.cost.sum_up(pull)
        loose = judge.loose(rows, point.values[rows], mu, program.lo[rows], program.hi[rows])
    judged = judge.judge(point.x, point.cost, T, loose, mass(program, point.values, mu))
    return at(program, changed(state, judged=judged), point)


# --- ends that bind ---------------------------------------------------------------------------


def _to_splitting(
    program: SquaresProgram, state: SquaresState, point: QuadraticPoint
) -> SquaresState:
    """On with the ends that the point crosses."""
    before = state.splitting
    known = NONE if before is None else before.rows
    fresh = np.setdiff1d(crossed(program, point, state.room), known)
    equal = np.setdiff1d(np.flatnonzero(program.lo == program.hi), known)
    rows = np.concatenate([known, np.union1d(fresh, equal)])
    copies = float(rows.size) * program.cone.size
    if not program.cost.formed or copies > MAX_COPIES or _binds_for_others(program, state, point):
        return changed(state, verdict=SquaresVerdict.STALLED)
    lo, hi = margins(program, state.room)
    split = begin_splitting(program, point, rows, lo[rows], hi[rows], before)
    return changed(
        state,
        stage=SquaresStage.SPLITTING,
        splitting=split,
        point=point,
        since=0,
        mark=np.inf,
        marked=0,
        care=1.0,
    )


def _split(program: SquaresProgram, state: SquaresState) -> SquaresState:
    now = state.splitting
    assert now is not None
    by = splitting_factor(program, now)
    if by is None:
        return changed(state, verdict=SquaresVerdict.STALLED)
    now = splitting_step(program, now, by)
    state = changed(state, splitting=now)
    if state.since % STEPS_PER_BOUND == 0:
        state = _judged_split(program, state, by)
    if state.since in TUNED_STEPS and state.splitting is now:
        state = changed(state, splitting=splitting_tuned(now))
    return state


def _judged_split(program: SquaresProgram, state: SquaresState, by: AdmmFactor) -> SquaresState:
    """What the copy in the cone shows; where it is close, it is put within all intervals."""
    now, judge = state.splitting, judge_of(program)
    assert now is not None
    Hd = program.cost.apply(now.d)
    values, x = now.about.values[now.rows] + by.J @ now.d, now.about.x + now.d
    cost = max(now.about.cost + float(2.0 * now.about.slope @ now.d + now.d @ Hd), 0.0)
    T = 2.0 * (now.about.slope + Hd) + by.J.T @ now.mu
    loose = judge.loose(now.rows, values, now.mu, now.lo, now.hi)
    weight = mass(program, now.about.values, now.mu)
    judged = judge.judge(x, cost, T, loose, weight)
    noise = judged.noise + 8.0 * UNIT * float(np.sum(now.rho)) * float(np.linalg.norm(x))
    judged = changed(judged, noise=noise)
    outside = np.maximum(np.maximum(now.lo - values, values - now.hi), 0.0)
    far = float(np.max(outside / _suffices(now), initial=0.0))
    left = max(judged.gap / max(goal(program, judged, cost), MIN_GOAL), far)
    state = changed(state, rows=now.rows, mu=now.mu, judged=judged)
    if left <= state.care:
        found = _inside(program, state, x)
        if found is None:
            return changed(state, verdict=SquaresVerdict.STALLED)
        state = _settle(program, state, *found)
        if state.verdict is not SquaresVerdict.OPEN or state.splitting is not now:
            return state
    return _progress(program, state, left)


def _suffices(now: Splitting) -> Vector:
    """By how much a reading may be outside for a correction of the factor to bring it inside."""
    with np.errstate(over="ignore"):
        half = np.where(now.lo < now.hi, np.minimum(0.5 * (now.hi - now.lo), 1.0), 1.0)
    return MAX_OUTSIDE * half


def _inside(
    program: SquaresProgram, state: SquaresState, x: Vector
) -> tuple[Vector, Array | None] | None:
    """What is near x with all readings that have copies within their intervals; its factor."""
    now = state.splitting
    assert now is not None
    values = program.cost.point(x).values[now.rows]
    wrong = np.flatnonzero((values < now.lo) | (values > now.hi) | (now.lo == now.hi))
    targets = np.clip(values[wrong], now.lo[wrong], now.hi[wrong])
    if not program.cone.psd:
        return shifted_matrix(program, x, now.rows[wrong], targets - values[wrong]), None
    X = moved_factor(program, program.cone.factor(x), now.rows[wrong], targets)
    return None if X is None else _member(program, X)


# --- without a cone ---------------------------------------------------------------------------


def _direct(program: SquaresProgram, state: SquaresState) -> SquaresState:
    """The normal equations, or conjugate gradients where they have no unique solution."""
    point = state.point
    assert point is not None
    by: Any = direct.factored(program)
    held: HeldRows | None = None
    if by is None or direct.is_poor(by):
        finer = direct.Orthogonal.of(program)
        held = direct.smallest(program, point) if finer is None else None
        if finer is not None or held is not None:
            by, state = finer, changed(state, orthogonal=True)
    if by is not None:
        held = direct.with_ends(program, by, point, *margins(program, state.room))
        size = float(np.linalg.norm(held.point.x))
        if held.rows.size and size > 1.0:  # rounding of readings goes with A
            ends = margins(program, state.room, size)
            held = direct.with_ends(program, by, held.point, *ends)
    if held is not None:
        state = _judged_point(program, changed(state, rows=held.rows, mu=held.mu), held.point)
        settled = held.settled
    else:
        found = direct.conjugate(program, point, MAX_INNER_STEPS)
        before, after = (float(np.linalg.norm(there.slope)) for there in (point, found))
        if not np.isfinite(after):  # beyond float64's range, where inf is half of inf
            return changed(state, verdict=SquaresVerdict.STALLED)
        state = _judged_point(program, state, found if after < before else point)
        if after <= 0.5 * before and after > 1e-15 * program.pull:
            return state
        settled = after <= 1e-9 * program.pull
    assert state.point is not None
    if settled and crossed(program, state.point, 0.0).size == 0:
        return changed(state, verdict=SquaresVerdict.OPTIMAL)
    return _to_splitting(program, state, state.point)
