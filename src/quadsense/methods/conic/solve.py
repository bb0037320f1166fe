"""A question solved outright: for intervals, and other callers that need no loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.intervals import Array
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.conic import finish, steps
from quadsense.methods.conic.bound import lower_bound
from quadsense.methods.conic.program import Program, prepare
from quadsense.methods.conic.verdict import Ended, ended

GAP = 1e-7
"""Relative gap at which a question counts as solved."""

LONGEST = 100
"""Steps at most; seen 5 to 30."""


@dataclass(frozen=True)
class Solution:
    """What a question came to.

    Attributes
    ----------
    A : ndarray, shape (n, n)
    X : ndarray, shape (n, k), or None
        Factor of A, where it is positive semidefinite.
    y : ndarray, shape (m,)
        Dual vector of the unit rows.
    objective, bound : float
        Of the question, and the bound by y in floating point.
    status : {"solved", "close", "stalled", "infeasible", "unbounded"}
        Solved to the gap; inside, but as close as rounding lets; no way on; as computed nothing
        fits; as computed there is no least objective.
    iterations : int
    """

    A: Array
    X: Array | None
    y: Vector
    objective: float
    bound: float
    status: Ended | Literal["stalled"]
    iterations: int


def solve_question(
    rows: Sensing | Program,
    question: Question | None = None,
    *,
    start: Array | None = None,
    gap: float = GAP,
    max_steps: int = LONGEST,
) -> Solution:
    """Solve a question on unit rows.

    Parameters
    ----------
    rows : Sensing or Program
        Unit rows, or what `prepare` made of them; for another C see `Program.with_linear`.
    question : Question, optional
        On these rows; not with a program.
    start : ndarray, shape (n, n), optional
        A matrix well inside of all intervals (and positive definite) to begin from.
    gap : float
        Relative gap of objective and lower bound.
    max_steps : int
    """
    if isinstance(rows, Program):
        program = rows
    else:
        assert question is not None
        program = prepare(rows, question)
    with np.errstate(over="ignore", under="ignore"):
        state = steps.first(program, None if start is None else inside(program, start))
        status: Ended | None = None
        while (status := ended(program, state, gap)) is None and state.iteration < max_steps:
            state = steps.advance(program, state)
        return _solution(program, state, status or "stalled")


def inside(program: Program, start: Array) -> Array:
    """Return a start in units and coordinates of the program, where its rows are."""
    if program.basis is not None:
        start = program.basis.conj().T @ start @ program.basis
    if not program.F.is_complex:
        start = start.real
    return program.F.beside(np.asarray(start / program.scale, dtype=program.F.dtype))


def _solution(program: Program, state: steps.State, status: Ended | Literal["stalled"]) -> Solution:
    A, X = finish.matrix(program, state.at)
    if A is None:
        assert X is not None
        A = X @ X.conj().T
        v = np.asarray(program.given.factored(X))
    else:
        v = np.asarray(program.given.forward(A))
    question, y = program.question, finish.dual(program, state.at)
    objective = question.matrix_cost(A) + question.row_cost(v)
    norm, trace = float(np.linalg.norm(A)), float(np.trace(A).real)
    bound = lower_bound(program.given, question, y, trace, norm)
    return Solution(A, X, y, objective, bound, status, state.iteration)
