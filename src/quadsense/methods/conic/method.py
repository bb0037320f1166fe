"""The question itself, by the interior-point method, with both bounds on what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.intervals import Intervals
from quadsense.core.matrix import SensedMatrix
from quadsense.device import waits
from quadsense.methods.balance import UNNOTICED_SHARE, balanced
from quadsense.methods.base import COLD, LENIENT, Problem, Stepped, Warm, nothing, own
from quadsense.methods.conic import ConicTraits, steps
from quadsense.methods.conic.program import KernelProgram, prepare
from quadsense.methods.conic.solve import (
    MAX_STEPS,
    Ended,
    dense_of,
    dual_of,
    ended,
    in_units,
    is_answer,
    matrix_of,
)
from quadsense.vocabulary import Claim, because


class ConicProgram:
    """The problem, its question in one scale, and the intervals of the rows that ask.

    `known` is what the last state comes to: it is asked for several times.
    """

    ends: Intervals

    def __init__(self, problem: Problem, inner: KernelProgram) -> None:
        self.problem, self.inner = problem, inner
        self.known: tuple[steps.KernelState, dict[str, Any]] | None = None
        ends, index = problem.ends.opened(), inner.index
        if index.size < problem.m:
            ends = ends.only(index)
        there = waits(inner.ends)
        self.ends = ends.each(inner.F.placed) if there else ends

    def found(self, state: steps.KernelState, what: str, compute: Callable[[], Any]) -> Any:
        """Return what a state comes to, computed once."""
        if self.known is None or self.known[0] is not state:
            self.known = state, {}
        kept = self.known[1]
        if what not in kept:
            kept[what] = compute()
        return kept[what]


@dataclass(frozen=True)
class ConicState:
    """Where the method stands; `max_ratio` is of what A reads, in tolerances."""

    inner: steps.KernelState
    max_ratio: float

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.inner.iteration


def _level(program: ConicProgram) -> float:
    """Return the objective on which the verdict turns: the worst ratio 1, where that is sought."""
    question = program.inner.question
    ratios = question.term.common and bool(np.any(question.soft & (question.lo == question.hi)))
    return 1.0 if ratios and program.problem.target else -np.inf


class Conic(ConicTraits, Stepped):
    """The one kernel for every question."""

    def prepare(self, problem: Problem) -> ConicProgram:
        """The rows that ask for something, in units of their size."""
        assert problem.question is not None
        with LENIENT():
            return ConicProgram(problem, prepare(problem.rows, problem.question))

    def start(self, program: ConicProgram, warm: Warm = COLD) -> ConicState:
        """Return a point inside the cone and all slacks, whatever it misses.

        It is at an earlier answer, if there is one that is well inside.
        """
        inner, near = program.inner, None
        with LENIENT():
            if warm.fit is not None and inner.question.term.from_inside:
                near = in_units(inner, np.asarray(warm.fit))
            first = steps.first(inner, near)
            if not np.isfinite((first.gap, first.missed, first.imbalance, first.value)).all():
                first = replace(first, stuck=True)
            return self._state(program, first)

    def advance(self, program: ConicProgram, state: ConicState, steps_: int) -> ConicState:
        """Return the state after at most `steps_` more steps."""
        inner = state.inner
        with LENIENT():
            for _ in range(steps_):
                if self._ended(program, inner) is not None:
                    break
                inner = steps.advance(program.inner, inner)
            return self._state(program, inner)

    def _ended(self, program: ConicProgram, inner: steps.KernelState) -> Ended | None:
        """How it ended; solved only if the answer as it is given is, as long as there is a way on.

        In it the equalities hold to rounding: that may have moved others out of their intervals.
        """
        how: Ended | None = program.found(inner, "end", lambda: self._how_ended(program, inner))
        return how

    def _how_ended(self, program: ConicProgram, inner: steps.KernelState) -> Ended | None:
        gap = program.problem.options.gap
        how = ended(program.inner, inner, gap)
        if how != "solved" or inner.stuck or inner.idle >= steps.MAX_IDLE_STEPS:
            return how
        return how if is_answer(program.inner, inner, gap, _level(program)) else None

    def _state(self, program: ConicProgram, inner: steps.KernelState) -> ConicState:
        with LENIENT():
            ratios = program.ends.ratios(program.inner.scale * inner.at.v - program.ends.reading)
        ratio = float(np.max(ratios, initial=0.0))
        return ConicState(inner, ratio if np.isfinite(ratio) else np.inf)

    def claim(self, program: ConicProgram, state: ConicState) -> Claim | None:
        """Met or optimal to the gap; else another method is to look."""
        with LENIENT():
            how = self._ended(program, state.inner)
        if how is None and state.iteration < MAX_STEPS:
            return None
        if how not in ("solved", "close"):
            return Claim("stalled", because("no_answer", how=how or "stalled"))
        if program.problem.target and not program.inner.question.soft.any():
            return Claim("met")
        return Claim("optimal", dual=self.dual(program, state))

    def dual(self, program: ConicProgram, state: ConicState) -> Vector | None:
        """y of the question."""
        inner = state.inner
        y: Vector | None = program.found(inner, "dual", lambda: self._dual(program, inner))
        return y

    def _dual(self, program: ConicProgram, inner: steps.KernelState) -> Vector | None:
        with LENIENT():
            y, A = dual_of(program.inner, inner.at), dense_of(program.inner, inner.at)
            loss = UNNOTICED_SHARE * program.problem.options.gap * abs(inner.value)
            enough = loss * program.inner.cost
            y = balanced(program.inner.given, program.inner.question, y, A, enough)
        return y if np.isfinite(y).all() else None

    def matrix(self, program: ConicProgram, state: ConicState) -> SensedMatrix:
        """``X X*``, or A itself where there is no cone."""
        with LENIENT():
            A, X = matrix_of(program.inner, state.inner.at)
        if X is not None:
            return SensedMatrix.from_factor(own(program.problem, X))
        return SensedMatrix.from_dense(own(program.problem, A))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0 in the cone, else A_1."""
        question = problem.question
        return nothing(problem) if question is None or question.psd else problem.first()
