"""What a state comes to: a matrix in the user's units and coordinates, and a dual vector.

Over all symmetric matrices ``C + F*(y)`` must vanish for that vector.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import ZERO_SHARE, Array
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.conic.direction import KernelPoint
from quadsense.methods.conic.program import KernelProgram
from quadsense.methods.conic.system import MAX_REFINEMENTS
from quadsense.methods.equalities import equalities_of, held_dense, held_factor
from quadsense.system.watch import eigen_flops, look

MAX_HOLDS = 3
"""Last steps: onto the equalities, and with ends that the one before crossed."""


def matrix(program: KernelProgram, at: KernelPoint) -> tuple[Array | None, Array | None]:
    """Return A, or where it is positive semidefinite a factor X of it: the other is None."""
    scale, basis, program, at = program.scale, program.basis, program.on_host, at.on_host
    with np.errstate(all="ignore"):
        A, X = _held(program, at)
    if X is None:
        assert A is not None
        return scale * A, None
    X = np.sqrt(scale) * X
    if basis is None:
        return None, X
    inside = basis @ X
    if not program.elsewhere:
        return None, inside
    outside = _complement(basis)
    return None, np.hstack([inside, np.sqrt(scale * program.elsewhere) * outside])


def _held(program: KernelProgram, at: KernelPoint) -> tuple[Array | None, Array | None]:
    """A, or X, moved onto the equalities; ends that this moves it across are held with them."""
    goal, rows = program.level.copy(), program.equal.copy()
    A, X = (at.A, None) if at.X is None else (None, at.X)
    soft = program.priced | (program.softness > 0.0) | (program.share > 0.0)
    hard = program.finite & ~soft
    for _ in range(MAX_HOLDS if rows.any() else 0):
        index = np.flatnonzero(rows)
        E = equalities_of(program.F, index)
        if X is None:
            found = held_dense(E, goal[index], at.A)
            if found is None:
                break
            A, v = found, np.asarray(program.F.forward(found))
        else:
            assert at.X is not None
            found = held_factor(E, goal[index], at.X, None)
            if found is None:
                break
            X, v = found, np.asarray(program.F.factored(found))
        over = (program.signs * v > program.ends + 0.5 * program.margin) & hard
        crossed = np.any(over, axis=0) & ~rows
        if not crossed.any() or np.count_nonzero(rows | crossed) > program.F.unknowns:
            break
        rows = rows | crossed
        goal = np.where(crossed, np.where(over[0], program.ends[0], -program.ends[1]), goal)
    return A, X


def _complement(basis: Array) -> Array:
    """Return an orthonormal basis of what is orthogonal to one."""
    Q, _ = np.linalg.qr(basis, mode="complete")
    return np.asarray(Q[:, basis.shape[1] :])


def dual(program: KernelProgram, at: KernelPoint) -> Vector:
    """Return y for all unit rows, in the user's units."""
    question, program, at = program.question, program.on_host, at.on_host
    y = np.zeros(question.m)
    y[program.index] = at.y(program) * (program.cost / program.scale)
    y = question.term.finished(question, y + question.slope, program.homogeneous)
    silent = to_numpy(program.given.nonzero) == 0.0
    if bool(np.any(silent)):
        y = question.term.silenced(question, y, np.flatnonzero(silent))
    # An end that is not there has no multiplier, whatever rounding says.
    box = ~question.term.priced(question)
    y = np.where((y > 0.0) & ~np.isfinite(question.hi) & box, 0.0, y)
    return np.where((y < 0.0) & ~np.isfinite(question.lo) & box, 0.0, y)


MAX_EQUALITY_RESIDUAL = 4e-15
"""Residual relative to its parts of a sum of equalities."""

MAX_EQUALITIES = 200
"""Up to which it is looked whether they say it all."""


def of_equalities(F: Sensing, question: Question, C: Array) -> Vector | None:
    """The vector on equalities alone with ``C + F*(y) = 0`` to rounding: all fits read the same.

    None where there is none. No other end then takes part, however little.
    """
    equal = np.flatnonzero(question.equal)
    if not 0 < equal.size <= MAX_EQUALITIES:
        return None
    E = equalities_of(F, equal)
    size = float(np.linalg.norm(C))
    z, rest = np.zeros(equal.size), C
    K = E.gram()
    look(eigen_flops(len(K)))
    for _ in range(MAX_REFINEMENTS):
        z = z - np.linalg.lstsq(K, to_numpy(E.forward(rest)), rcond=ZERO_SHARE)[0]
        rest = C + to_numpy(E.adjoint(z))
    if not float(np.linalg.norm(rest)) <= MAX_EQUALITY_RESIDUAL * (size + float(np.sum(np.abs(z)))):
        return None
    y = np.zeros(question.m)
    y[equal] = z
    return y


def asking(program: KernelProgram) -> Question:
    """The question on the rows that ask."""
    question, index = program.question, program.index
    return replace(
        question, lo=question.lo[index], hi=question.hi[index], weights=question.weights[index],
        reading=question.reading[index], hard=question.hard[index],
    )  # fmt: skip
