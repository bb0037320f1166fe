"""The smallest worst-case error, with both bounds, or a proof that a tolerance cannot be met.

In stages: the start itself, the interior-point kernel on the difference from it, and on A itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import UNIT
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.core.sums import ROUNDINGS, SPARE
from quadsense.measurements.sensing import Sensing
from quadsense.methods.balance import UNNOTICED_SHARE, balanced
from quadsense.methods.base import COLD, MAX_FORMED_ORDER, Problem, Stepped, Warm, own, start_matrix
from quadsense.methods.minimax import MinimaxTraits, growing
from quadsense.methods.minimax import program as all_rows
from quadsense.methods.minimax.coordinates import by_gram
from quadsense.methods.minimax.growing import GrowingProgram, as_growing, worth
from quadsense.methods.minimax.program import (
    MinimaxProgram,
    asked,
    leaning,
    prepare,
    reading_rounding,
)
from quadsense.proofs.symmetric import check_proof
from quadsense.system.watch import part
from quadsense.vocabulary import Claim, Reason, because


class Stage(IntEnum):
    """What the state is of."""

    START = 0  # A_1 itself
    FAST = 1  # the interior-point kernel on the difference from A_1
    KERNEL = 2  # the same for A itself


class Stages:
    """All that follows from a problem: the rows that ask, and the program of each stage.

    Attributes
    ----------
    given, problem : Problem
        As it came, and with a start that makes sense.
    asked : AskedRows
    fast : MinimaxProgram or None
        For the difference from A_1, in units of ``asked.scale``; None where nothing is asked.
    balanced : (ndarray, ndarray) or None
        The last dual vector that was balanced, and what came of it: it is asked for several times.
    """

    def __init__(self, problem: Problem) -> None:
        self.given, self.asked = problem, asked(problem)
        what = self.asked
        largest = what.scale * float(np.max(np.abs(what.b) + what.delta, initial=0.0))
        plain = problem.base is None and problem.c_start is None
        if plain and abs(problem.tau) > largest:  # a mean of middles, not given by the user
            problem = replace(problem, tau=0.0)
        self.problem = problem
        self.balanced: tuple[Vector, Vector] | None = None
        self.fast: MinimaxProgram | None = None
        if what.b.size:
            image = to_numpy(replace(problem, b=0.0 * problem.b).initial_residual())
            self.fast = self._program(what.b - what.of(image) / what.scale)
            if isinstance(self.fast.F, Sensing) and worth(self.fast.F):
                self.fast = as_growing(self.fast)

    def _program(self, b: Vector) -> MinimaxProgram:
        """That of these readings of the rows that ask."""
        what = self.asked
        F = what.on(self.problem.rows)
        if by_gram(F):  # factored with pivots, by LAPACK
            F = what.on(self.problem.rows.on_numpy())
        return prepare(F, b, what.delta, what.sides)

    @cached_property
    def kernel(self) -> MinimaxProgram | None:
        """For A itself; None where rows are slow to read."""
        if self.fast is None or isinstance(self.fast, GrowingProgram):
            return None
        return replace(self._program(self.asked.b), even=self.problem.target)

    def unknowns(self, fit: SensedMatrix) -> Array | None:
        """What `fast` has for a matrix, where that tells which rows matter."""
        if not isinstance(self.fast, GrowingProgram):
            return None
        near = (np.asarray(fit) - start_matrix(self.problem)) / self.asked.scale
        return self.fast.F.placed(near)

    def program(self, stage: Stage) -> MinimaxProgram:
        """The linear program of a stage."""
        program = self.kernel if stage is Stage.KERNEL else self.fast
        assert program is not None
        return program

    def dual(self, y: Vector) -> Vector:
        """The vector of a lower bound on all unit rows."""
        return self.asked.spread(np.asarray(y), self.problem.m)


Inner: TypeAlias = all_rows.IterationState | growing.GrowingState

CLOSE_GAP = 1e-9
"""Relative gap of the bounds where the one asked for did not suffice."""


@dataclass(frozen=True)
class MinimaxState:
    """Where the method stands.

    Attributes
    ----------
    stage : Stage
    inner : IterationState, GrowingState or None
        The interior-point iterate, on all rows or on those that matter; None at the start.
    max_ratio, rounding : float
        Worst ratio of the best matrix of this stage, and a bound on its rounding error.
    lower : float
        Lower bound on the best ratio.
    dual : ndarray of shape (m,)
        The vector that gives it, for the unit rows.
    goal, gap : float
        The ratio that is good enough, 1 unless rounding spoilt a fit of that; the distance of the
        bounds at which to stop.
    iteration : int
        Steps taken, in all stages.
    formed : bool
        Whether A is to be formed though its coefficients are known, as those round more.
    """

    stage: Stage
    inner: Inner | None
    max_ratio: float
    rounding: float
    lower: float
    dual: Vector
    goal: float
    gap: float
    iteration: int
    formed: bool = False


class Minimax(MinimaxTraits, Stepped):
    """``min_A max_i |z_i|/delta_i`` by a primal-dual interior-point method (see `interior`).

    With a tolerance it stops once that is met or proved impossible; proved, it goes on to the gap,
    so that both bounds on the best achievable error are known. Without one it stops at the gap. A
    start within all tolerances is the answer. Where rounding stops the fast way, and the data are
    few enough, a slower one that rounds less begins anew.
    """

    def prepare(self, problem: Problem) -> Stages:
        """The rows that ask for something, and the linear program of each stage."""
        with np.errstate(under="ignore"):
            return Stages(problem)

    def start(self, program: Stages, warm: Warm = COLD) -> MinimaxState:
        """A_1 if it is within all tolerances, else least squares on the difference from it.

        From the fit of an earlier stage, which mostly is least squares already.
        """
        with np.errstate(under="ignore"):
            problem = program.given
            ratio, rounding = self._at_start(program)
            if program.fast is None or (problem.target and ratio + rounding <= 1.0):
                nothing = np.zeros(problem.m)
                gap = problem.options.gap
                return MinimaxState(Stage.START, None, ratio, rounding, 0.0, nothing, 1.0, gap, 0)
            return self._begin(program, Stage.FAST, 1.0, 0, warm.fit)

    def _at_start(self, stages: Stages) -> tuple[float, float]:
        """Worst ratio of A_1, and a bound on its rounding error where the ratio is at most 1."""
        program = stages.fast
        if program is None:
            return 0.0, 0.0
        ratio = float(np.max(leaning(program.sides, -program.b / program.delta)))
        if ratio > 1.0:
            return ratio, 0.0
        problem, what = stages.problem, stages.asked
        size = abs(problem.tau) * float(np.sqrt(problem.rows.n))
        if problem.base is not None or problem.c_start is not None:
            size = problem.matrix(0.0 * problem.b).norm()
        errors = reading_rounding(problem.rows) * size / what.scale + 2.0 * UNIT * np.abs(what.b)
        return ratio, float(np.max(errors / what.delta))

    def _begin(
        self, stages: Stages, stage: Stage, goal: float, done: int, fit: SensedMatrix | None = None
    ) -> MinimaxState:
        """The first state of a stage; bounds that an earlier one could not prove are dropped."""
        program = stages.program(stage)
        inner: Inner
        if isinstance(program, GrowingProgram):
            inner = growing.start(program, None if fit is None else stages.unknowns(fit))
        else:
            inner = all_rows.start(program)
        dual = stages.dual(inner.y)
        ratio, rounding, lower = inner.max_ratio, inner.rounding, inner.lower
        gap = stages.problem.options.gap if goal == 1.0 else CLOSE_GAP
        return MinimaxState(stage, inner, ratio, rounding, lower, dual, goal, gap, done)

    def _after(
        self,
        stages: Stages,
        state: MinimaxState,
        inner: Inner,
    ) -> MinimaxState:
        """The state with the interior-point iterate moved on to `inner`."""
        done = 0 if state.inner is None else inner.iteration - state.inner.iteration
        lower, dual = state.lower, state.dual
        if inner.lower > lower:
            lower, dual = inner.lower, stages.dual(inner.y)
        return replace(
            state,
            inner=inner,
            max_ratio=inner.max_ratio,
            rounding=inner.rounding,
            lower=lower,
            dual=dual,
            iteration=state.iteration + done,
        )

    def _deciding(self, stages: Stages, state: MinimaxState) -> bool:
        """Whether the question still is if the tolerance can be met."""
        return stages.given.target and state.lower <= 1.0 and state.goal == 1.0

    def _verdict(self, stages: Stages, state: MinimaxState) -> all_rows.RatioVerdict | None:
        assert state.inner is not None
        target = self._deciding(stages, state)
        return all_rows.verdict(state.inner, target=target, gap=state.gap)

    def advance(self, program: Stages, state: MinimaxState, steps: int) -> MinimaxState:
        """Return the state after at most `steps` more factorisations."""
        with np.errstate(under="ignore"):
            end = state.iteration + steps
            while state.iteration < end:
                if state.inner is None or self._verdict(program, state) is not None:
                    if self.claim(program, state) is not None:
                        break
                    state = self._following(program, state)
                state = self._after(program, state, self._inner(program, state, end))
            return state

    def _inner(self, stages: Stages, state: MinimaxState, end: int) -> Inner:
        """Return the interior-point iterate, advanced to iteration `end`."""
        target, linear = self._deciding(stages, state), stages.program(state.stage)
        left, inner = end - state.iteration, state.inner
        if isinstance(linear, GrowingProgram):
            assert isinstance(inner, growing.GrowingState)
            return growing.advance(linear, inner, left, target=target, gap=state.gap)
        assert isinstance(inner, all_rows.IterationState)
        return all_rows.advance(linear, inner, left, target=target, gap=state.gap)

    def _goes_on(self, stages: Stages, state: MinimaxState) -> bool:
        """Whether something is left to do where a stage has ended without a claim that holds."""
        if state.inner is None:
            return stages.fast is not None
        if state.stage is Stage.FAST and stages.kernel is not None:
            return True
        return state.gap > CLOSE_GAP and not state.inner.stalled

    def _following(self, stages: Stages, state: MinimaxState) -> MinimaxState:
        """The state to go on from there."""
        if state.stage is Stage.START:
            return self._begin(stages, Stage.FAST, state.goal, state.iteration)
        if state.stage is Stage.FAST and stages.kernel is not None:
            return self._begin(stages, Stage.KERNEL, state.goal, state.iteration)
        return replace(state, gap=CLOSE_GAP)

    def claim(self, program: Stages, state: MinimaxState) -> Claim | None:
        """Met, optimal to the gap, or infeasible, the last only with a checked proof."""
        problem = program.given
        with np.errstate(under="ignore"):
            if problem.target and state.max_ratio + state.rounding <= state.goal:
                return Claim("met")
            if state.inner is None:
                return None if problem.target else Claim("optimal", dual=state.dual)
            verdict = self._verdict(program, state)
            if verdict is None:
                return None
            if problem.target and state.lower > 1.0:
                proof = self._infeasible(program, state)
                if proof is not None:
                    return proof
            elif verdict == "optimal" and not problem.target:
                return Claim("optimal", dual=self._balanced(program, state), lower=state.lower)
            if self._goes_on(program, state):
                return None
            reason = self._reason(problem, state)
            return Claim("undecided", reason, state.dual, state.lower)

    def _balanced(self, stages: Stages, state: MinimaxState) -> Vector:
        """The dual vector with ``F*(y) = 0`` to rounding, where one is found."""
        if stages.balanced is not None and stages.balanced[0] is state.dual:
            return stages.balanced[1]
        problem, rows = stages.given, stages.given.rows.on_numpy()
        b, delta, y = to_numpy(problem.b), to_numpy(problem.delta), state.dual
        used = np.flatnonzero(y)
        if by_some := isinstance(stages.fast, GrowingProgram) and used.size > 0:
            # The others stay as they are: all these rows need not be read again.
            rows, b, delta, y = rows.held(used), b[used], delta[used], y[used]
        question = Question("slack_max", b, b, 1.0 / delta, 0.0 * b, np.zeros(b.size, bool))
        # In units of the sum of |y_i| delta_i; the size of the readings is about that of A.
        size = float(np.max(np.abs(b), initial=0.0)) * np.eye(rows.n)
        enough = UNNOTICED_SHARE * state.gap * state.max_ratio * float(np.abs(y) @ delta)
        found = balanced(rows, question, y, size, enough)
        if by_some:
            whole = np.zeros(problem.m)
            whole[used], found = found, whole
        stages.balanced = (state.dual, found)
        return found

    def _reason(self, problem: Problem, state: MinimaxState) -> Reason:
        if problem.target and state.lower > 1.0:
            return because("neither_closes")
        unit, of = (1.0, "ratio") if problem.target else (problem.error_unit, "error")
        lower, upper = unit * state.lower, unit * state.max_ratio
        return because("bounds_apart", lower=lower, upper=upper, of=of)

    def _infeasible(self, stages: Stages, state: MinimaxState) -> Claim | None:
        """The claim that nothing fits, where the dual vector proves it."""
        problem = stages.given
        with part("proofs"):
            if problem.prove is not None:
                proof = problem.prove(state.dual)
                proved, lower = proof.proved, proof.lower_bound
            else:  # no data but the unit rows
                check = check_proof(problem.rows.on_numpy(), problem.ends, state.dual)
                proved, lower = check.proved, check.ratio
        return Claim("infeasible", dual=state.dual, lower=max(lower, 1.0)) if proved else None

    def correct(self, program: Stages, state: MinimaxState, z: Array, goal: float) -> MinimaxState:
        """The same fit in a form that rounds less, else one of the goal.

        At the next stage where this one has reached that already, or where the fit is far from
        what its coordinates say.
        """
        stages, problem = program, program.given
        values = to_numpy(z + problem.b) - problem.ends.reading
        found = float(np.max(problem.ends.ratios(values)))
        if state.stage is Stage.FAST:
            if found <= 1.0 and not state.formed and problem.rows.n <= MAX_FORMED_ORDER:
                return replace(state, formed=True)
            reached = state.max_ratio + state.rounding <= goal
            if stages.kernel is not None and (found > 1.0 or reached):
                goal = state.goal if found > 1.0 else goal
                return self._begin(stages, Stage.KERNEL, goal, state.iteration)
        return replace(state, goal=goal, gap=CLOSE_GAP)

    def _cancels(self, problem: Problem, c: Vector) -> bool:
        """Whether coefficients are so large that rounding their sum matters, and n is not."""
        n, mass = problem.rows.n, float(np.sum(np.abs(c)))
        errors = 2.0 * ROUNDINGS * (n + problem.m + SPARE) * mass
        return n <= MAX_FORMED_ORDER and errors > 0.01 * float(np.min(to_numpy(problem.delta)))

    def dual(self, program: Stages, state: MinimaxState) -> Vector | None:
        """The vector of the best lower bound so far."""
        return state.dual if state.lower > 0.0 else None

    def matrix(self, program: Stages, state: MinimaxState) -> SensedMatrix:
        """A_1 plus the fit to what it leaves, or the fit alone."""
        stages = program
        problem, scale = stages.problem, stages.asked.scale
        if state.inner is None:
            return problem.matrix(0.0 * problem.b)
        with np.errstate(under="ignore"):
            fit, formed = all_rows.matrix(stages.program(state.stage), state.inner)
            if not formed:
                c = stages.dual(scale * np.asarray(fit))
                if not (state.formed or self._cancels(problem, c)):
                    return problem.matrix(own(problem, -c))
                fit = to_numpy(problem.rows.adjoint(own(problem, c))) / scale
            A = scale * fit
            if state.stage is Stage.FAST:
                A = A + start_matrix(problem)
            return SensedMatrix.from_dense(own(problem, A))
