"""Where to begin for a linear objective over the cone: inside, with multipliers that balance it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Array
from quadsense.methods.conic.point import Point
from quadsense.methods.conic.program import Program


@dataclass(frozen=True)
class Inside:
    """A in the middle, and d with ``W = F*(d)`` positive definite, in units of the program."""

    A: Array
    d: Vector
    W: Array


def balanced(program: Program, at: Point, begin: Inside) -> Point:
    """The point with multipliers that satisfy ``C + F*(y) = S``, S positive definite.

    Along d, far enough that S is well inside; without, the kernel may never come to such a y where
    some of what the rows see is seen weakly.
    """
    root = np.linalg.inv(np.linalg.cholesky(begin.W))
    values = np.linalg.eigvalsh(root @ program.C @ root.conj().T)
    t = 2.0 * max(0.0, -float(values[0])) + 0.1 * float(np.max(np.abs(values)))
    y, S = t * begin.d, program.C + t * begin.W
    mean = float(np.vdot(S, at.A).real) / len(S)
    upper, lower = program.finite
    both = np.minimum(mean / np.minimum(at.slacks[0], at.slacks[1]), t) * (upper & lower)
    duals = np.stack([np.maximum(y, 0.0) + both, np.maximum(-y, 0.0) + both]) * program.finite
    # Rows of one end that d does not press on: a share of S for all of them.
    idle = program.finite & (duals == 0.0)
    if idle.any():
        signs = idle[0].astype(np.float64) - idle[1]
        spread = np.linalg.eigvalsh(root @ to_numpy(program.F.adjoint(signs)) @ root.conj().T)
        least = float(np.linalg.eigvalsh(root @ S @ root.conj().T)[0])
        each = 0.25 * least / max(float(np.max(np.abs(spread))), 1e-300)
        duals = duals + each * idle
    held = np.where(program.equal, y, 0.0)
    rest = np.where(program.equal, 0.0, duals[0] - duals[1])
    S = program.C + to_numpy(program.F.adjoint(rest + held))
    return replace(at, S=0.5 * (S + S.conj().T), duals=duals, held=held)
