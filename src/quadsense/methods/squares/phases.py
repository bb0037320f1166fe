"""Least squares in the cone, then with the ends that bind, until the bound is close."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.ends import UNIT
from quadsense.methods.squares import descent, direct, polish, splitting
from quadsense.methods.squares.bounds import NONE, Judge, Rows
from quadsense.methods.squares.program import Program, features
from quadsense.methods.squares.quadratic import Point
from quadsense.methods.squares.state import Stage, State, Verdict

FINE = 1e-7
"""Gap in units of the cost that is aimed at: costs are compared to a hundred times that."""

ABSOLUTE = 1e-10
"""Gap in units of the cost of A = 0 that is enough where it is small in the user's units too."""

NOTHING = 1e-24
"""Cost in units of that of A = 0 that is rounding."""

ROUGH = 1e-2
"""Relative gap from which on it is clear which ends bind."""

EVERY = 10
"""Steps between two bounds, each of which costs an eigendecomposition more."""

PATIENCE = 300
"""Steps in which what is left must halve."""

MOST = 5000
"""Steps of a stage: ten times what the slowest that came to an end took."""

TUNING = (40, 80, 160, 320, 640)
"""Steps of the splitting at which sigma is looked at, each costing a factorisation at most."""

INNER = 200
"""Conjugate gradients between two evaluations from the rows."""


def start(program: Program, x: Vector) -> State:
    """From the member of the cone that is nearest to x."""
    cone = program.cone
    if not cone.psd:
        return _at(program, State(Stage.DIRECT), program.cost.point(x))
    R = direct.factored(program)
    if R is not None:
        x = _across(
            program, direct.newton(program, R, program.cost.point(x), NONE, np.empty(0)).point.x, R
        )
    point = program.cost.point(cone.project(x))
    state = _at(program, State(Stage.DESCENT, descent=descent.begin(point)), point)
    return _judged_descent(program, state)


def _across(program: Program, x: Vector, R: Any) -> Vector:
    """The minimiser moved to the trace that is asked for."""
    if program.cone.trace is None:
        return x
    one = program.cone.identity
    along = direct.solved(R, one)
    return x + (program.cone.trace - float(one @ x)) / float(one @ along) * along


def advance(program: Program, state: State, steps: int) -> State:
    """At most so many steps on."""
    for _ in range(steps):
        if state.verdict is not Verdict.OPEN:
            break
        state = replace(state, iteration=state.iteration + 1, since=state.since + 1)
        if state.stage is Stage.DIRECT:
            state = _direct(program, state)
        elif state.stage is Stage.DESCENT:
            assert state.descent is not None
            state = replace(state, descent=descent.step(program, state.descent))
            if state.since % EVERY == 0:
                state = _judged_descent(program, state)
        else:
            state = _split(program, state)
    return state


def tightened(program: Program, state: State) -> State:
    """Further inside the intervals, where rounding spoilt what seemed to be a fit."""
    point = state.point
    assert point is not None
    state = replace(state, room=10.0 * state.room, verdict=Verdict.OPEN, since=0, mark=np.inf)
    if state.stage is Stage.DIRECT:
        return state
    return _to_splitting(program, state, point)


# --- what is known of a point -----------------------------------------------------------------


def judge_of(program: Program) -> Judge:
    """The judge of a program, made once."""
    if "judge" not in program.memory:
        program.memory["judge"] = Judge(program)
    judge: Judge = program.memory["judge"]
    return judge


def _at(program: Program, state: State, point: Point) -> State:
    """The state at a point, by its worst ratio."""
    ends = program.problem.ends
    with np.errstate(all="ignore"):
        ratios = ends.ratios(program.scale * point.values - ends.reading)
    ratios = ratios[(program.lo < program.hi) & np.isfinite(ratios)]
    return replace(state, point=point, max_ratio=float(np.max(ratios, initial=0.0)))


def _mass(program: Program, values: Vector, mu: Vector) -> float:
    cost = program.cost
    return float(2.0 * cost.w @ np.abs(values - cost.b) + np.sum(np.abs(mu)))


def enough(program: Program, cost: float) -> float:
    """The gap that is aimed at."""
    unit = program.unit
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        small = min(FINE / unit if unit > 0.0 else np.inf, ABSOLUTE * program.nothing)
    return max(FINE * cost, small, NOTHING * program.nothing)


def _acceptable(program: Program, cost: float, gap: float) -> bool:
    """Whether the gap is what was asked for, though not what was aimed at."""
    asked = float(getattr(program.problem.options, "gap", 0.01))
    return gap <= max(asked * cost, enough(program, cost)) or cost <= NOTHING * program.nothing


def margins(program: Program, room: float) -> tuple[Vector, Vector]:
    """Ends a little inside the true ones."""
    lo, hi = program.lo, program.hi
    with np.errstate(invalid="ignore"):
        inside = room * np.minimum(np.where(lo < hi, 0.5 * (hi - lo), 0.0), 1.0)
    return lo + inside, hi - inside


def crossed(program: Program, point: Point, room: float) -> Rows:
    """Rows whose readings are not inside these."""
    lo, hi = margins(program, room)
    size = float(np.linalg.norm(point.x)) + np.abs(np.where(np.isfinite(lo), lo, 0.0))
    slack = np.where(lo == hi, 32.0 * (program.cone.n + 8) * UNIT * size, 0.0)
    slack = slack * program.F.amplification
    return np.flatnonzero((point.values < lo - slack) | (point.values > hi + slack))


# --- steps of the first order -----------------------------------------------------------------


def _judged_descent(program: Program, state: State) -> State:
    """What the iterate shows; where it seems close, evaluated from the rows."""
    at, judge = state.descent, judge_of(program)
    assert at is not None and state.point is not None
    mass = _mass(program, state.point.values, np.empty(0))
    cost = max(at.cost, 0.0)
    judged = judge.judge(at.x, 2.0 * at.slope, 0.0, mass)
    goal = state.care * enough(program, cost)
    if judged.gap <= goal or (judged.gap <= ROUGH * cost and state.care == 1.0):
        at = descent.anew(program, at)
        exact = judge.judge(at.x, 2.0 * at.slope, 0.0, _mass(program, at.about.values, state.mu))
        state = _at(program, replace(state, descent=at, judged=exact), at.about)
        beyond = crossed(program, at.about, 0.0)
        if beyond.size and exact.gap <= ROUGH * at.about.cost:
            return _to_splitting(program, state, at.about)
        if (
            exact.gap <= enough(program, at.about.cost)
            or at.about.cost <= NOTHING * program.nothing
        ):
            return _settle(program, state, cone_factor(program, at.x), NONE, np.empty(0))
        state = replace(state, care=0.5 * state.care)
    return _progress(program, state, judged.gap / enough(program, cost))


def _progress(program: Program, state: State, left: float) -> State:
    """The state with its mark, or the next stage where nothing has moved for long."""
    if left <= 0.5 * state.mark:
        return replace(state, mark=left, marked=state.since)
    if state.since - state.marked <= PATIENCE and state.since <= MOST:
        return state
    if state.stage is Stage.DESCENT and program.cost.formed:
        assert state.descent is not None
        return _to_splitting(program, state, program.cost.point(state.descent.x))
    return _end(program, state)


def _end(program: Program, state: State) -> State:
    """Where no more is to be had: take it if it is what was asked for."""
    point = state.point
    assert point is not None
    if state.descent is not None and state.stage is Stage.DESCENT:
        point = program.cost.point(state.descent.x)
        mass = _mass(program, point.values, np.empty(0))
        judged = judge_of(program).judge(point.x, 2.0 * point.slope, 0.0, mass)
        state = _at(program, replace(state, judged=judged), point)
    if not _acceptable(program, point.cost, state.judged.gap):
        return replace(state, verdict=Verdict.STALLED)
    state = _settle(program, state, cone_factor(program, point.x), state.rows, state.mu)
    return state if state.verdict is Verdict.OPTIMAL else replace(state, verdict=Verdict.STALLED)


def cone_factor(program: Program, x: Vector) -> npt.NDArray[Any]:
    """X of x, with the trace that is asked for."""
    return polish.with_trace(program.cone, program.cone.factor(x))


def _settle(program: Program, state: State, X: npt.NDArray[Any], rows: Rows, mu: Vector) -> State:
    """The end where all readings are inside their intervals, else on with the ends that bind."""
    cone = program.cone
    point = program.cost.point(cone.pack(X @ X.conj().T))
    state = _at(program, replace(state, factor=X, rows=rows, mu=mu), point)
    judge, T = judge_of(program), 2.0 * point.slope
    if rows.size:
        by = program.memory["factor"]
        T = T + by.J.T @ mu
    judged = judge.judge(
        point.x, T, judge.loose(rows, point.values[rows], mu), _mass(program, point.values, mu)
    )
    state = replace(state, judged=judged)
    beyond = crossed(program, point, 0.1 * state.room)
    if beyond.size == 0:
        return replace(state, verdict=Verdict.OPTIMAL)
    if state.stage is Stage.SPLITTING and np.isin(beyond, rows).all():
        return replace(state, care=0.1 * state.care)
    return _to_splitting(program, state, point)


# --- ends that bind ---------------------------------------------------------------------------


def _to_splitting(program: Program, state: State, point: Point) -> State:
    """On with the ends that the point crosses."""
    before = state.splitting
    known = NONE if before is None else before.rows
    fresh = np.setdiff1d(crossed(program, point, state.room), known)
    equal = np.setdiff1d(np.flatnonzero(program.lo == program.hi), known)
    rows = np.concatenate([known, np.union1d(fresh, equal)])
    if not program.cost.formed or rows.size > max(program.cone.size, 64):
        return replace(state, verdict=Verdict.STALLED)
    lo, hi = margins(program, state.room)
    split = splitting.begin(program, point, rows, lo[rows], hi[rows], before)
    return replace(
        state, stage=Stage.SPLITTING, splitting=split, point=point, since=0, mark=np.inf, marked=0
    )


def _split(program: Program, state: State) -> State:
    at = state.splitting
    assert at is not None
    by = splitting.factor(program, at)
    if by is None:
        return replace(state, verdict=Verdict.STALLED)
    at = splitting.step(program, at, by)
    state = replace(state, splitting=at)
    if state.since % EVERY == 0:
        state = _judged_split(program, state, by)
    if state.since in TUNING and state.splitting is at:
        state = replace(state, splitting=splitting.tuned(at))
    return state


def _judged_split(program: Program, state: State, by: splitting.Factor) -> State:
    """What the copy in the cone shows; where it is close, it is put within all intervals."""
    at, judge = state.splitting, judge_of(program)
    assert at is not None
    Hd = program.cost.apply(at.d)
    values, x = at.about.values[at.rows] + by.J @ at.d, at.about.x + at.d
    cost = max(at.about.cost + float(2.0 * at.about.slope @ at.d + at.d @ Hd), 0.0)
    T = 2.0 * (at.about.slope + Hd) + by.J.T @ at.mu
    judged = judge.judge(
        x, T, judge.loose(at.rows, values, at.mu), _mass(program, at.about.values, at.mu)
    )
    outside = np.maximum(np.maximum(at.lo - values, values - at.hi), 0.0)
    far = float(np.max(outside / _suffices(at, state.room), initial=0.0))
    left = max(judged.gap / enough(program, cost), far)
    state = replace(state, rows=at.rows, mu=at.mu, judged=judged)
    if left <= state.care:
        found = _within(program, state, x)
        if found.verdict is not Verdict.OPEN or found.splitting is not at:
            return found
        state = found
    return _progress(program, state, left)


def _suffices(at: splitting.Splitting, room: float) -> Vector:
    """By how much a reading may be outside for a correction of the factor to bring it inside."""
    half = np.where(at.lo < at.hi, np.minimum(0.5 * (at.hi - at.lo), 1.0), 1.0)
    return np.asarray(10.0 * room * half)


def _within(program: Program, state: State, x: Vector) -> State:
    """The state at x with all readings that are copied put within their intervals."""
    at = state.splitting
    assert at is not None
    X = program.cone.factor(x)
    values = program.cost.point(x).values[at.rows]
    wrong = np.flatnonzero((values < at.lo) | (values > at.hi) | (at.lo == at.hi))
    targets = np.clip(values[wrong], at.lo[wrong], at.hi[wrong])
    moved = polish.moved(program, X, at.rows[wrong], targets)
    if moved is None:
        return replace(state, verdict=Verdict.STALLED)
    return _settle(program, state, moved, at.rows, at.mu)


# --- without a cone ---------------------------------------------------------------------------


def _direct(program: Program, state: State) -> State:
    """The normal equations, or conjugate gradients where they have no unique solution."""
    point = state.point
    assert point is not None
    R = direct.factored(program)
    lo, hi = margins(program, state.room)
    if R is not None:
        held = direct.with_ends(program, R, point, lo, hi)
        state = replace(state, rows=held.rows, mu=held.mu)
        verdict = Verdict.OPTIMAL if held.settled else Verdict.STALLED
        return _judged_direct(program, state, held.point, verdict)
    found = direct.conjugate(program, point, INNER)
    before, after = (float(np.linalg.norm(at.slope)) for at in (point, found))
    ended = not after <= 0.5 * before or after <= 1e-15 * program.pull
    if ended and after > 1e-9 * program.pull:
        return replace(state, verdict=Verdict.STALLED)
    found = found if after < before else point
    verdict = Verdict.OPEN if not ended else Verdict.OPTIMAL
    return _judged_direct(program, state, found, verdict)


def _judged_direct(program: Program, state: State, point: Point, verdict: Verdict) -> State:
    T = 2.0 * point.slope
    if state.rows.size:
        T = T + features(program.F, state.rows).T @ state.mu
    judge = judge_of(program)
    loose = judge.loose(state.rows, point.values[state.rows], state.mu)
    judged = judge.judge(point.x, T, loose, 0.0)
    state = _at(program, replace(state, judged=judged), point)
    if verdict is Verdict.OPTIMAL and crossed(program, point, 0.0).size:
        verdict = Verdict.STALLED
    return replace(state, verdict=verdict)
