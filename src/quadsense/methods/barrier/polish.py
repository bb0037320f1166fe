"""Dual vectors over all symmetric matrices, for which ``C + F*(y)`` must vanish."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core import packed
from quadsense.core.question import Question
from quadsense.methods.barrier.program import Program
from quadsense.proofs.definite import cholesky, solve
from quadsense.watch import look

MOST_UNKNOWNS = 2000
"""Up to which a vector is polished: its cost is that of a step."""

ROUNDED, POLISHINGS = 1e-15, 4
"""Residual beside its parts at which that is of no use, and how often."""


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


def asking(program: Program) -> Question:
    """The question on the rows that ask."""
    question, index = program.question, program.index
    return replace(
        question, lo=question.lo[index], hi=question.hi[index], weights=question.weights[index],
        reading=question.reading[index], hard=question.hard[index],
    )  # fmt: skip
