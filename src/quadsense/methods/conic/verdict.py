"""When the interior-point method has come to an end, and in what."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.methods.conic import finish
from quadsense.methods.conic.bound import lower_bound
from quadsense.methods.conic.program import Program
from quadsense.methods.conic.steps import IDLE, State

Ended: TypeAlias = Literal["solved", "close", "stalled", "infeasible", "unbounded"]

LEAST = 1e-12
"""Gap, in units of the program, of an objective that is 0 to rounding."""

NOTHING = 1e-6
"""The same of one that rounding stopped."""

LOGARITHM = 1e-8
"""The same of one with logarithms, in units of these."""

SQUARES = 1e-6
"""Share of the objective that counts as a logarithm: where squares are far larger than these."""

HELD = 1e-7
"""Relative error of equalities from which a last correction brings them to rounding."""

CLOSE = 1e-2
"""Relative gap up to which a state that rounding stopped is worth keeping."""

LARGE = 1e7
"""Size of A to the readings from which nothing is to be expected."""


def inside(program: Program, state: State) -> bool:
    """Whether A is within all hard intervals, and about at the equalities."""
    at = state.at
    hard = program.finite & (program.softness == 0.0) & (program.share == 0.0) & ~program.priced
    if bool(np.any((program.signs * at.v > program.ends + 0.5 * program.margin) & hard)):
        return False
    size = 1.0 + float(np.max(np.abs(program.level), initial=0.0))
    miss = float(np.max(np.abs(program.level - at.v), where=program.equal, initial=0.0))
    return miss <= HELD * size


def ended(program: Program, state: State, gap: float) -> Ended | None:
    """Return how it ended, if it has."""
    if program.contradiction:
        return "infeasible"
    size = abs(state.value)
    if _logarithms(program):  # the objective has constants that are of no account
        size = max(program.row_target, program.cone_target, SQUARES * size)
    if state.apart <= max(gap * size, LEAST) and inside(program, state):
        return "solved"
    if state.relaxed and not inside(program, state):
        return None  # next come all ends
    if state.stuck or state.idle >= IDLE:
        near = state.apart <= max(CLOSE * size, NOTHING)
        return "close" if near and inside(program, state) else "stalled"
    if program.unseen:
        return "unbounded"
    falls = state.value < -LARGE or _logarithms(program)
    if state.size > LARGE * np.sqrt(program.F.n) and falls:
        return "unbounded"
    return "infeasible" if _contradicts(program, state) else None


def is_answer(program: Program, state: State, gap: float) -> bool:
    """Whether the matrix that is handed out is inside, and its objective within the gap."""
    question = program.question
    A, X = finish.matrix(program, state.at)
    if A is None:
        assert X is not None
        A, v = X @ X.conj().T, np.asarray(program.given.factored(X))
    else:
        v = np.asarray(program.given.forward(A))
    hard = ~(question.soft | question.equal) & (to_numpy(program.given.nonzero) > 0.0)
    if bool(np.any(hard & ((v < question.lo) | (v > question.hi)))):
        return False
    objective = question.matrix_cost(A) + question.row_cost(v)
    y, size = finish.dual(program, state.at), float(np.linalg.norm(A))
    bound = lower_bound(program.given, question, y, float(np.trace(A).real), size)
    if _logarithms(program):  # whose size is that of their units: a gap is one of a logarithm
        size = min(abs(objective), max(1.0, SQUARES * abs(objective)))
        return bool(objective - bound <= max(gap * size, LOGARITHM))
    return bool(objective - bound <= max(gap * abs(objective), LEAST * program.cost))


def _logarithms(program: Program) -> bool:
    return program.row_target > 0.0 or program.cone_target > 0.0


def _contradicts(program: Program, state: State) -> bool:
    """Whether the multipliers of the hard rows alone prove, as computed, that nothing fits.

    ``F*(y) = S`` to rounding, S positive semidefinite, and ``sum hi y+ - lo y- < 0``.
    """
    at = state.at
    if state.missed < 1e-10 or float(np.max(at.duals, initial=0.0)) < 1e3:
        return False
    hard = program.finite & (program.softness == 0.0) & (program.share == 0.0) & ~program.priced
    duals = np.where(hard, at.duals, 0.0)
    held = np.where(program.equal, at.held, 0.0)
    below = -float(np.sum(program.ends * duals)) - float(program.level @ held)
    if not below > 0.0:
        return False
    rest = program.F.adjoint(duals[0] - duals[1] + held)
    if at.S is not None:
        rest = rest - at.S
    return float(np.linalg.norm(rest)) * LARGE < below
