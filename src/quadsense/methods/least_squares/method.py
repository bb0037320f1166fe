"""Least squares in the cone and within intervals, with both bounds on what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import cached_property, changed
from quadsense.methods.balance import UNNOTICED_SHARE, balanced
from quadsense.methods.base import (
    COLD,
    LENIENT,
    MIN_RESIDUAL,
    SHORT_STRIDE_FLOPS,
    Problem,
    Stepped,
    Warm,
    nothing,
    own,
)
from quadsense.methods.consensus.method import Consensus, PreparedConsensus
from quadsense.methods.consensus.program import program_of
from quadsense.methods.consensus.steps import ConsensusState, pulling, start
from quadsense.methods.least_squares import LeastSquaresTraits, direct, hinge
from quadsense.methods.least_squares.bounds import (
    KEPT_ROOM,
    MAX_TRUE_GAP_RATIO,
    MAX_ZERO_COST,
    MIN_COST_SHARE,
    ROOM_GROWTH,
    SquaresStage,
    SquaresState,
    SquaresVerdict,
    acceptable,
    at,
    begin_descent,
    crossed,
    descent_anew,
    descent_step,
    goal,
    judge_of,
    margins,
    mass,
    small,
)
from quadsense.methods.least_squares.direct import HeldRows, cut_minimizer
from quadsense.methods.least_squares.face import (
    MAX_FACE_GAP,
    multipliers,
    on_face,
    refined,
    with_trace,
)
from quadsense.methods.least_squares.program import (
    NONE,
    QuadraticPoint,
    Rows,
    SquaresProgram,
    packed,
    prepare,
)
from quadsense.methods.traits import GapOptions
from quadsense.proofs.rounding import PRODUCT_UNDERFLOW
from quadsense.vocabulary import Claim, because

ROUGH_GAP = 1e-2
"""Relative gap from which on it is clear which ends bind."""

STEPS_PER_BOUND = 10
"""Steps between two bounds, each of which costs an eigendecomposition more."""

MAX_IDLE_STEPS = 300
"""Steps in which what is left must halve."""

MAX_STAGE_STEPS = 2000
"""Steps of a stage: some times what the slowest that came to an end took."""

MAX_BINDING_UNKNOWNS = 800
"""Unknowns up to which the methods that follow take less time over the cone as soon as ends bind
(measured: half the time, and at most a fifth more)."""

MAX_INNER_STEPS = 200
"""Conjugate gradients between two evaluations from the rows."""

EMPTY: Vector = np.empty(0)


def begun(program: SquaresProgram, x: Vector) -> SquaresState:
    """Return the state at the member of the cone that costs less: nearest to least squares or to x.

    Where least squares without the cone is open, it is the one nearest to x.
    """
    cone = program.cone
    if not cone.psd:
        return at(program, SquaresState(SquaresStage.DIRECT), program.cost.point(x))
    R, others, inside = direct.factored(program, quick=True), [x], None
    if R is not None:
        least = direct.of_trace(program, R, direct.nearly(program, R, program.cost.point(x)))
        X = cone.factor(least)
        if X.shape[1] == cone.n and cone.trace is None:  # least squares is inside the cone
            point = program.cost.point(_member(program, X)[0])
            state = SquaresState(SquaresStage.DESCENT, descent=begin_descent(point), factor=X)
            inside = _settled(program, state, point)
            if inside.verdict is SquaresVerdict.OPTIMAL:
                return inside
        cut = _cut(program, R, least)
        if cut is not None:
            return cut
        if inside is not None and inside.verdict is SquaresVerdict.BINDS:
            return inside
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


def advanced(program: SquaresProgram, state: SquaresState, steps: int) -> SquaresState:
    """Return the state after at most `steps` more steps."""
    end = state.iteration + steps
    while state.iteration < end and state.verdict is SquaresVerdict.OPEN:
        if state.stage is SquaresStage.DESCENT:
            state = _descend(program, state, end - state.iteration)
            continue
        state = changed(state, iteration=state.iteration + 1, since=state.since + 1)
        state = _direct(program, state)
    return state if state.verdict is SquaresVerdict.OPEN else _refined(program, state)


def _refined(program: SquaresProgram, state: SquaresState) -> SquaresState:
    """What the face of the last point adds to it; nothing where ends bind that others take on."""
    if state.verdict is SquaresVerdict.BINDS:
        return state
    stalled, point = state.verdict is SquaresVerdict.STALLED, state.point
    if stalled and point is not None and _binds_for_others(program, state, point):
        return state
    other = refined(program, state)
    if other is state or other.point is None:
        return state
    taken = acceptable(program, other.judged, other.point.cost)
    return changed(other, verdict=SquaresVerdict.OPTIMAL if taken else state.verdict)


def polished(program: SquaresProgram, x: Vector, rows: Rows, mu: Vector) -> SquaresState | None:
    """The state on the face of the cone next to a matrix, with the ends that pull held.

    None where that leads to none whose gap is as small as was asked.
    """
    state = SquaresState(SquaresStage.DESCENT, SquaresVerdict.OPTIMAL, rows=rows, mu=mu)
    state = refined(program, _judged_point(program, state, program.cost.point(x)))
    point = state.point
    if (
        point is None
        or state.factor is None
        or crossed(program, point, KEPT_ROOM * state.room).size
    ):
        return None
    return state if acceptable(program, state.judged, point.cost) else None


def tightened(program: SquaresProgram, state: SquaresState) -> SquaresState:
    """Further inside the intervals, where rounding spoilt what seemed to be a fit."""
    point = state.point
    assert point is not None
    state = changed(
        state, room=ROOM_GROWTH * state.room, verdict=SquaresVerdict.OPEN, since=0, mark=np.inf
    )
    return state if state.stage is SquaresStage.DIRECT else _binding(program, state, point)


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
    left = judged.gap / max(goal(program, judged, cost), PRODUCT_UNDERFLOW)
    rough = judged.gap <= ROUGH_GAP * cost and not np.isfinite(
        state.judged.gap
    )  # for the first time
    if left <= state.care or rough:
        now = descent_anew(program, now)
        state = _at_iterate(program, changed(state, descent=now), now.about)
        cost, judged = now.about.cost, state.judged
        if judged.gap <= max(ROUGH_GAP * cost, goal(program, judged, cost)):
            if crossed(program, now.about, 0.0).size:
                return _binding(program, state, now.about)
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
    assert state.descent is not None
    x = state.descent.x
    if left < 0.5 * state.mark:
        return changed(state, mark=left, marked=state.since)
    if state.since - state.marked <= MAX_IDLE_STEPS and state.since <= MAX_STAGE_STEPS:
        return state
    state = _at_iterate(program, state, program.cost.point(x))
    if program.cost.formed:
        assert state.point is not None
        return _binding(program, state, state.point)
    ended = _settle(program, state, *_member(program, factor_of(program, x)))
    assert ended.point is not None
    taken = ended.verdict is SquaresVerdict.OPTIMAL or (
        crossed(program, ended.point, KEPT_ROOM * state.room).size == 0
        and acceptable(program, ended.judged, ended.point.cost)
    )
    return changed(ended, verdict=SquaresVerdict.OPTIMAL if taken else ended.verdict)


def _binds_for_others(program: SquaresProgram, state: SquaresState, point: QuadraticPoint) -> bool:
    """Whether ends bind over the cone, and methods that follow take less time and have the digits.

    With a given trace they end at larger gaps.
    """
    cone = program.cone
    small = cone.psd and cone.trace is None and cone.size <= MAX_BINDING_UNKNOWNS
    leaves = program.problem.followed and small and point.cost > MIN_COST_SHARE * program.nothing
    return leaves and bool(crossed(program, point, state.room).size)


def _member(program: SquaresProgram, X: Array) -> tuple[Vector, Array]:
    """``X X*``, packed, and X."""
    return program.cone.pack(X @ X.conj().T), X


def _settle(program: SquaresProgram, state: SquaresState, x: Vector, X: Array) -> SquaresState:
    """The same at x, with its factor X."""
    return _settled(program, changed(state, factor=X), program.cost.point(x))


def _settled(program: SquaresProgram, state: SquaresState, point: QuadraticPoint) -> SquaresState:
    """The end where all readings are inside their intervals, else on with the ends that bind.

    The factor of the state is that of the point.
    """
    X = state.factor
    assert X is not None
    state = _judged_point(program, state, point)
    if state.judged.gap > goal(program, state.judged, point.cost):
        mu = multipliers(program, X, point.slope, state.rows, state.mu)
        other = _judged_point(program, changed(state, mu=mu), point)
        state = min(state, other, key=lambda one: one.judged.gap)
    beyond = crossed(program, point, KEPT_ROOM * state.room)
    close = state.judged.gap <= MAX_TRUE_GAP_RATIO * goal(program, state.judged, point.cost)
    if beyond.size == 0 and close:
        return changed(state, verdict=SquaresVerdict.OPTIMAL)
    return _binding(program, state, point)


def _binding(program: SquaresProgram, state: SquaresState, point: QuadraticPoint) -> SquaresState:
    """The end of these steps: where intervals bind `consensus` goes on, or what follows."""
    binds = crossed(program, point, state.room).size or bool(np.any(program.lo == program.hi))
    others = not binds or _binds_for_others(program, state, point)
    verdict = SquaresVerdict.STALLED if others else SquaresVerdict.BINDS
    return changed(state, point=point, verdict=verdict)


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
        if after <= 0.5 * before and after > MIN_RESIDUAL * program.pull:
            return state
        settled = after <= 1e-9 * program.pull
    assert state.point is not None
    binds = crossed(program, state.point, 0.0).size > 0
    if settled and not binds:
        return changed(state, verdict=SquaresVerdict.OPTIMAL)
    others = program.problem.followed or not binds
    return changed(state, verdict=SquaresVerdict.STALLED if others else SquaresVerdict.BINDS)


# --- the method -----------------------------------------------------------------------------------


MAX_ROUGH_GAP, MAX_ROUGH_UNKNOWNS = 1e-5, 500
"""Relative gap above which, with so few unknowns, another method is to look, unless one is asked
for."""

OVERFLOW_ERRORS = (np.linalg.LinAlgError, ValueError)
"""What NumPy and SciPy raise, each where it meets what is no number any more."""


@dataclass(frozen=True)
class LeastSquaresProgram:
    """The problem, and its question brought to one scale: of either kind, or None of another."""

    problem: Problem
    squares: SquaresProgram | None
    misses: hinge.MissesProgram | None

    @cached_property
    def within(self) -> PreparedConsensus:
        """The same for `consensus`."""
        assert self.squares is not None
        return PreparedConsensus(self.problem, program_of(self.squares, MAX_ROUGH_GAP))


LeastSquaresState: TypeAlias = SquaresState | hinge.MissesState | ConsensusState

WITHIN = Consensus()
"""What goes on where intervals bind over the cone."""


class LeastSquares(LeastSquaresTraits, Stepped):
    """FISTA on the positive semidefinite cone or those of one trace; `consensus` where ends bind.

    The normal matrix is formed once. Without a cone it is factored, and rows are held at the ends
    that bind. See `phases`. Squared misses of intervals, where few of many rows are missed,
    are minimized by `hinge`.
    """

    def prepare(self, problem: Problem) -> LeastSquaresProgram:
        """The question on unit rows, over powers of two, and the normal matrix."""
        with LENIENT():
            return LeastSquaresProgram(problem, prepare(problem), hinge.prepare(problem))

    def start(self, program: LeastSquaresProgram, warm: Warm = COLD) -> LeastSquaresState:
        """Least squares without the cone, brought into it; else A_1, or what came before."""
        with LENIENT():
            inner = program.squares
            if program.misses is not None:
                return hinge.start(program.misses)
            if inner is None:
                return SquaresState(SquaresStage.DIRECT, SquaresVerdict.STALLED)
            cone, prior = inner.cone, inner.question.prior
            near = prior if warm.fit is None or not cone.psd else to_numpy(warm.fit.to_dense())
            try:
                x = packed(cone, near) / inner.scale
                return self._onward(program, begun(inner, x))
            except OVERFLOW_ERRORS:
                return SquaresState(SquaresStage.DIRECT, SquaresVerdict.STALLED)

    def stride(self, program: LeastSquaresProgram) -> int:
        """Steps worth some milliseconds."""
        if program.squares is None or not program.squares.cone.psd:
            return 1
        cost = program.squares.cost
        product = 2.0 * cost.cone.size**2 if cost.formed else 2.0 * cost.product_flops
        return max(
            1, min(2 * STEPS_PER_BOUND, int(0.5 * SHORT_STRIDE_FLOPS / (product + cost.cone.flops)))
        )

    def advance(
        self, program: LeastSquaresProgram, state: LeastSquaresState, steps: int
    ) -> LeastSquaresState:
        """Return the state after at most `steps` more steps."""
        end = state.iteration + steps
        with LENIENT():
            try:
                if isinstance(state, hinge.MissesState):
                    assert program.misses is not None
                    return hinge.advance(program.misses, state, steps)
                if program.squares is None:
                    return state
                if isinstance(state, SquaresState):
                    state = advanced(program.squares, state, steps)
                    state = self._onward(program, state)
                if (
                    not isinstance(state, ConsensusState)
                    or state.verdict is not SquaresVerdict.OPEN
                ):
                    return state
                return self._polished(
                    program, WITHIN.advance(program.within, state, end - state.iteration)
                )
            except OVERFLOW_ERRORS:
                return changed(state, verdict=SquaresVerdict.STALLED)

    def _onward(
        self, program: LeastSquaresProgram, state: SquaresState
    ) -> SquaresState | ConsensusState:
        """The state, or where intervals bind the first one of `consensus` from there."""
        if state.verdict is not SquaresVerdict.BINDS:
            return state
        asked = program.within.asked
        assert asked is not None and state.point is not None
        return replace(
            start(asked, state.point.x, warm=True, dual=None),
            iteration=state.iteration,
            marked=state.iteration,
        )

    def _polished(
        self, program: LeastSquaresProgram, state: ConsensusState
    ) -> SquaresState | ConsensusState:
        """The state, or where its steps lead no further what Newton's method makes of it."""
        if state.verdict is not SquaresVerdict.STALLED:
            return state
        asked = program.within.asked
        assert asked is not None
        found = polished(asked.inner, state.x, *pulling(asked, state))
        if found is None:
            return state
        return changed(found, iteration=state.iteration)

    def correct(
        self,
        program: LeastSquaresProgram,
        state: LeastSquaresState,
        z: Array,
        goal: float,
    ) -> LeastSquaresState:
        """Further inside the intervals."""
        if isinstance(state, hinge.MissesState):
            return hinge.tightened(state)
        if isinstance(state, ConsensusState):
            return WITHIN.correct(program.within, state, z, goal)
        assert program.squares is not None
        with LENIENT():
            return self._onward(program, tightened(program.squares, state))

    def claim(self, program: LeastSquaresProgram, state: LeastSquaresState) -> Claim | None:
        """Met or optimal to the gap; else another method is to look."""
        if isinstance(state, ConsensusState):
            return WITHIN.claim(program.within, state)
        if state.verdict is SquaresVerdict.OPEN:
            return None
        if state.verdict is SquaresVerdict.STALLED or self._rough(program, state):
            return Claim("stalled", because("gap_open"))
        missed = isinstance(state, hinge.MissesState) and (
            state.cost > 0.0 or state.max_ratio > 1.0
        )
        if program.problem.target and not missed:
            return Claim("met")
        return Claim("optimal", dual=self.dual(program, state))

    def _rough(self, program: LeastSquaresProgram, state: SquaresState | hinge.MissesState) -> bool:
        """Whether the bounds are near enough, but another method would soon have them nearer."""
        small = program.problem.rows.unknowns <= MAX_ROUGH_UNKNOWNS
        asked = program.problem.options.gap
        if isinstance(state, hinge.MissesState) or state.point is None or state.orthogonal:
            return False
        inner = program.squares
        if not small or inner is None:
            return False
        enough = MAX_ROUGH_GAP if asked == GapOptions().gap else asked
        nothing = MAX_ZERO_COST * inner.nothing
        return state.judged.gap > max(enough * abs(state.point.cost), nothing)

    def dual(self, program: LeastSquaresProgram, state: LeastSquaresState) -> Vector | None:
        """y of the last point that was evaluated from the rows."""
        if isinstance(state, ConsensusState):
            return WITHIN.dual(program.within, state)
        with LENIENT():
            if isinstance(state, hinge.MissesState):
                assert program.misses is not None
                return hinge.dual(program.misses, state)
            inner = program.squares
            if inner is None or state.point is None or not np.isfinite(state.judged.gap):
                return None
            judge, judged = judge_of(inner), state.judged
            if state.orthogonal:  # whatever rounding makes of it: that is balanced below
                judged = changed(judged, trivial=False)
            y = judge.dual(state.point.values, state.rows, state.mu, judged)
            question, rows = program.problem.question, program.problem.rows
            assert question is not None
            loss = UNNOTICED_SHARE * program.problem.options.gap * abs(state.point.cost)
            shown = judged.trivial or (judged.shift > 0.0 and judged.gap <= loss)
            if inner.cone.psd and shown:  # the gap counts all that rounding does
                return y
            A = np.asarray(inner.scale * inner.cone.unpack(state.point.x))
            return balanced(rows.on_numpy(), question, y, A, loss * inner.unit)

    def matrix(self, program: LeastSquaresProgram, state: LeastSquaresState) -> SensedMatrix:
        """``X X*``, or A itself where there is no cone."""
        problem = program.problem
        if isinstance(state, ConsensusState):
            return WITHIN.matrix(program.within, state)
        with LENIENT():
            if isinstance(state, hinge.MissesState):
                assert program.misses is not None
                X = np.sqrt(program.misses.scale) * hinge.root_of(state.A)
                return SensedMatrix.from_factor(own(problem, X))
            inner = program.squares
            if inner is None or state.point is None:
                return self.first(problem)
            if not inner.cone.psd:
                A = inner.scale * inner.cone.unpack(state.point.x)
                return SensedMatrix.from_dense(own(problem, A))
            found = state.factor
            if found is None or state.verdict is not SquaresVerdict.OPTIMAL:
                found = factor_of(inner, state.point.x)
            return SensedMatrix.from_factor(own(problem, np.sqrt(inner.scale) * found))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0 in the cone, else A_1."""
        question = problem.question
        return nothing(problem) if question is None or question.psd else problem.first()
