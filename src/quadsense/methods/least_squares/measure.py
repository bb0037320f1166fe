"""What a state is measured by: the gap that is aimed at, and ends a little inside the true ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.methods.least_squares.bounds import Judge, Judgement, Rows
from quadsense.methods.least_squares.program import SquaresProgram
from quadsense.methods.least_squares.quadratic import QuadraticPoint
from quadsense.methods.least_squares.state import ROOM, SquaresState

FINE = 1e-7
"""Gap in units of the cost that is aimed at: costs are compared to a hundred times that."""

ABSOLUTE = 1e-10
"""Gap in units of the cost of A = 0 that is enough where it is small in the user's units too."""

NOTHING = 1e-26
"""Cost in units of that of A = 0 that is rounding: readings of twelve digits and more."""

NO_COST = 1e-16
"""Cost in units of that of A = 0 which counts as none where a claim is judged."""

TRUE = 10.0
"""The gap between the true ends over that between those a little inside, at most."""


def judge_of(program: SquaresProgram) -> Judge:
    """The judge of a program."""
    return Judge(program)


def at(program: SquaresProgram, state: SquaresState, point: QuadraticPoint) -> SquaresState:
    """The state at a point, with its worst ratio."""
    return replace(state, point=point, max_ratio=worst_ratio(program, point.values))


def worst_ratio(program: SquaresProgram, values: Vector) -> float:
    """The worst ratio of readings, equalities and rows that ask nothing apart."""
    ends = program.ends
    with np.errstate(all="ignore"):
        ratios = ends.ratios(program.scale * values - ends.reading)
    ratios = ratios[(program.lo < program.hi) & np.isfinite(ratios)]
    return float(ratios.max(initial=0.0))


def mass(program: SquaresProgram, values: Vector, mu: Vector) -> float:
    """Sum of ``|y_i|``."""
    cost = program.cost
    return float(2.0 * cost.w @ np.abs(values - cost.b) + np.abs(mu).sum())


def goal(program: SquaresProgram, judged: Judgement, cost: float) -> float:
    """The gap that is aimed at.

    Where nothing better than 0 is known, a cost that is 0 up to rounding.
    """
    nothing = NOTHING * program.nothing
    if judged.trivial:
        return nothing
    return max(FINE * cost, nothing, small(program), judged.noise)


def small(program: SquaresProgram) -> float:
    """A gap that does not matter to the user."""
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        return float(min(np.divide(FINE, program.unit), ABSOLUTE * program.nothing))


def acceptable(program: SquaresProgram, judged: Judgement, cost: float) -> bool:
    """Whether the gap is what was asked for, though not what was aimed at."""
    asked = float(getattr(program.problem.options, "gap", 0.01))
    return judged.gap <= max(asked * cost, small(program), NOTHING * program.nothing)


def rounding(program: SquaresProgram) -> float:
    """About what rounding does to a reading of the size of 1."""
    return 128.0 * (program.cone.n + 8) * UNIT * program.F.amplification


def margins(program: SquaresProgram, room: float, size: float = 1.0) -> tuple[Vector, Vector]:
    """Intervals a little inside the true ones: more than rounding takes away for A of that size."""
    lo, hi = program.lo, program.hi
    with np.errstate(invalid="ignore", over="ignore"):
        half = np.where(lo < hi, 0.5 * (hi - lo), 0.0)
        wide = np.minimum(half, 1.0)
        rounded = room / ROOM * rounding(program) * size
        inside = np.minimum(np.maximum(room * wide, rounded), 0.25 * half)
    return lo + inside, hi - inside


def crossed(program: SquaresProgram, point: QuadraticPoint, room: float) -> Rows:
    """Rows whose readings are not inside these."""
    lo, hi = margins(program, room)
    size = float(np.linalg.norm(point.x)) + np.abs(np.where(lo == hi, lo, 0.0))
    slack = np.where(lo == hi, rounding(program) * size, 0.0)
    return np.flatnonzero((point.values < lo - slack) | (point.values > hi + slack))
