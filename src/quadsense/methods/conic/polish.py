"""Dual vectors over all symmetric matrices, for which ``C + F*(y)`` must vanish."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core import packed
from quadsense.core.intervals import Array
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.conic.program import Program
from quadsense.methods.equalities import equalities_of
from quadsense.proofs.definite import cholesky, solve
from quadsense.system.watch import look

MOST_UNKNOWNS = 2000
"""Up to which a vector is polished: its cost is that of a step."""

ALIKE, SEPARATE = 4e-15, 1e-12
"""Residual relative to its parts of a sum of equalities; eigenvalues of theirs that are 0."""

MOST_EQUALITIES = 200
"""Up to which it is looked whether they say it all."""

ROUNDED, POLISHINGS = 1e-15, 4
"""Residual relative to its parts at which that is of no use, and how often."""


def polished(program: Program, y: Vector) -> Vector:
    """The vector moved a little until ``C + F*(y)`` vanishes to rounding.

    Each entry in proportion to itself, so that none leans on an end that is not there.
    """
    question, F, index = asking(program), program.F, program.index
    z, C = y[index], np.asarray(program.question.C)
    if not np.isfinite(z).all() or F.unknowns > MOST_UNKNOWNS:
        return y
    sizes = np.abs(z)
    typical = float(np.mean(sizes)) or 1.0
    freedom = sizes + 1e-3 * typical * (np.isfinite(question.lo) & np.isfinite(question.hi))
    freedom[question.equal] = typical + float(np.max(sizes, initial=0.0))
    rest = C + to_numpy(F.adjoint(z))
    least = ROUNDED * (float(np.linalg.norm(C)) + float(np.sum(sizes)))
    if float(np.linalg.norm(rest)) <= least:
        return y
    M = F.normal(freedom)
    look(len(M) ** 3 / 3.0)
    M[np.diag_indices(len(M))] += 1e-14 * float(np.trace(M)) / len(M)
    factor = cholesky(M, overwrite=True)
    if factor is None:
        return y
    for _ in range(POLISHINGS):
        X = packed.unpack(solve(factor, packed.pack(rest)), F.n, rest.dtype)
        moved = z - freedom * to_numpy(F.forward(X))
        after = C + to_numpy(F.adjoint(moved))
        if not float(np.linalg.norm(after)) < 0.5 * float(np.linalg.norm(rest)):
            break
        z, rest = moved, after
    better = y.copy()
    better[index] = z
    return better


def of_equalities(F: Sensing, question: Question, C: Array) -> Vector | None:
    """The vector on equalities alone with ``C + F*(y) = 0`` to rounding: all fits read the same.

    None where there is none. No other end then takes part, however little.
    """
    equal = np.flatnonzero(question.equal)
    if not 0 < equal.size <= MOST_EQUALITIES:
        return None
    E = equalities_of(F, equal)
    size = float(np.linalg.norm(C))
    z, rest = np.zeros(equal.size), C
    K = E.gram()
    look(20.0 * float(len(K)) ** 3)
    for _ in range(POLISHINGS):
        z = z - np.linalg.lstsq(K, to_numpy(E.forward(rest)), rcond=SEPARATE)[0]
        rest = C + to_numpy(E.adjoint(z))
    if not float(np.linalg.norm(rest)) <= ALIKE * (size + float(np.sum(np.abs(z)))):
        return None
    y = np.zeros(question.m)
    y[equal] = z
    return y


def asking(program: Program) -> Question:
    """The question on the rows that ask."""
    question, index = program.question, program.index
    return replace(
        question, lo=question.lo[index], hi=question.hi[index], weights=question.weights[index],
        reading=question.reading[index], hard=question.hard[index],
    )  # fmt: skip
