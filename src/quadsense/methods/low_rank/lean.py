"""Descent where the images of a factor are too many to be held.

Rows that have few entries are taken in turn first, each brought within its tolerance, and nothing
is held but the factor. Where that gains nothing any more, nonlinear conjugate gradients follow.
Rows are walked part by part, and of a part only sums are kept: the loss on what exceeds the
tolerances, its gradient, and the coefficients of the quartic that it is along a line. What is held
in addition to the data are then three arrays of the size of the factor: itself, its gradient and
the direction. Least squares is left out, for a fit is all that is wanted, and so is the spectral
start, which is for rows of all directions alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.core.lbfgs import Memory, dot
from quadsense.methods.low_rank.passes import FactorPoint, inner, quartic_minimum, rounding_unit
from quadsense.methods.low_rank.program import LowRankProgram, Matrix
from quadsense.methods.low_rank.traits import LEAN_BYTES

# How far a row is moved, relative to what would just suffice: seen 30 to 45 turns of all rows of a
# network of 10^5 to 10^6 nodes, and 240 with 1.
OVERSHOOT = 1.9
# Lengths tried, each a quarter of the one before, before a step counts as none.
MAX_QUARTERINGS = 12


def is_lean(problem: LowRankProgram, rank: int) -> bool:
    """Whether images of a factor of this rank are not to be held."""
    F = problem.F
    plain = problem.bounds is None and problem.signs is None and F.rank_one
    wanted = problem.target and not problem.chooses
    return plain and wanted and F.in_turn is not None and F.m * rank * 8 > LEAN_BYTES


def lean_start(problem: LowRankProgram, Y: Matrix, theta: float) -> FactorPoint:
    """Return what there is to know of a factor before the first step."""
    return _in_turn(problem, np.array(Y.T, order="C"), theta)


def takes_turns(problem: LowRankProgram, point: FactorPoint) -> bool:
    """Whether the next step takes the rows in turn, and needs no slope."""
    return not point.gradient.size


def lean_turn(
    problem: LowRankProgram, point: FactorPoint, theta: float, goal: float
) -> FactorPoint:
    """Bring one row after the other within its tolerance.

    Rows that have few entries, of few nodes in common, hardly disturb each other: no step of all
    together, whose length the worst of them sets, comes as far. Ratio and loss are those that rows
    had in their turn; what fits by them is looked at again.
    """
    X = np.array(point.Y.T, order="C")
    moved = _in_turn(problem, X, theta, OVERSHOOT)
    return _in_turn(problem, X, theta) if moved.ratio <= goal else moved


def _in_turn(problem: LowRankProgram, X: Matrix, theta: float, beyond: float = 0.0) -> FactorPoint:
    """Return the point of X, which is moved unless `beyond` is 0."""
    unit = rounding_unit(problem, X.shape[1])
    move = problem.F.in_turn
    assert move is not None
    value, ratio = move(X, problem.b, problem.delta, theta, beyond, unit)
    none, nothing = np.empty((X.shape[1], 0)), np.empty(0)
    return FactorPoint(X.T, none, nothing, nothing, value, none, ratio)


def lean_evaluate(problem: LowRankProgram, Y: Matrix, theta: float) -> FactorPoint:
    """Return loss, gradient and worst ratio at a factor; nothing of the length of the readings."""
    Y = np.ascontiguousarray(Y)
    F, k = problem.F, len(Y)
    gradient, value, worst = np.zeros_like(Y), 0.0, 0.0
    unit, size = rounding_unit(problem, k), float(np.vdot(Y, Y).real)
    for part, rows in F.in_blocks(k):
        P = rows.images(Y)
        b, delta = problem.b[part], problem.delta[part]
        z = inner(P, P)
        z -= b
        bound = np.abs(b)
        bound += size
        bound *= unit
        bound += np.abs(z)
        bound /= delta
        worst = max(worst, float(bound.max()))
        excess = problem.excess(z, theta, part)
        pulled = 2.0 * problem.weight[part] * excess
        value += 0.25 * float(np.dot(pulled, excess))
        P *= pulled
        for row, sums in zip(P, gradient, strict=True):  # one column at a time: no more is held
            sums += rows.combine(row[:, None])[:, 0]
    nothing = np.empty(0)
    return FactorPoint(Y, np.empty((k, 0)), nothing, nothing, value, gradient, worst)


def lean_step(
    problem: LowRankProgram, point: FactorPoint, theta: float, memory: Memory
) -> tuple[FactorPoint, Memory, int]:
    """Move along a conjugate direction [Nocedal & Wright 2006, (5.45): Polak-Ribiere, restarted].

    Returns
    -------
    point : FactorPoint
        The given one where no step descends.
    memory : Memory
        The direction and what share of it the next one takes along; emptied in that case.
    passes : int
    """
    slope = point.gradient
    square = dot(slope, slope)
    D = -slope
    if memory:
        last, _, share = memory[-1]
        D += share * last
    if not dot(D, slope) < 0.0:
        D = -slope
    length = _length(problem, point.Y, D, dot(D, slope), theta)
    for passes in range(2, 2 + MAX_QUARTERINGS):
        if length == 0.0:
            break
        Y = length * D
        Y += point.Y
        moved = lean_evaluate(problem, Y, theta)
        if moved.value < point.value:
            new = moved.gradient
            share = max(0.0, (dot(new, new) - dot(new, slope)) / square)
            return moved, ((D, moved.P, share),), passes
        length /= 4.0
    return point, (), 2


def _length(problem: LowRankProgram, Y: Matrix, D: Matrix, along: float, theta: float) -> float:
    """Return the best length while the rows beyond their tolerances stay the same."""
    F = problem.F
    total: Any = np.zeros(3)
    for part, rows in F.in_blocks(len(Y), sums=False):
        P, Q = rows.images(Y), rows.images(D)
        z = inner(P, P)
        z -= problem.b[part]
        e = problem.excess(z, theta, part)
        w = problem.weight[part] * (e != 0.0)
        z1, z2 = 2.0 * inner(P, Q), inner(Q, Q)
        w1, w2 = w * z1, w * z2
        total += (
            np.dot(w1, z1) + 2.0 * np.dot(w2, e),
            3.0 * np.dot(w1, z2),
            2.0 * np.dot(w2, z2),
        )
    return quartic_minimum(along, *(float(each) for each in total))
