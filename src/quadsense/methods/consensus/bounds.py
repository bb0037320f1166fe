"""What a dual vector proves of the least cost, to rounding: the rigorous proof is in `proofs`.

For every y the cost is at least ``-sum phi*(y) + inf_A (<T, A> + alpha ||A - P||^2)`` with
``T = F*(y)``. Over the cone, T is made positive semidefinite by a little of ``F*(lift)``, or by the
multiplier of the trace.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from quadsense.arrays import Vector
from quadsense.device import numbers
from quadsense.methods.consensus.rows import RowTerm
from quadsense.methods.least_squares.program import SquaresProgram

SEEN = 1e-13
"""Eigenvalue of ``F*(lift)``, as a part of the largest, above which its direction is seen."""


SIZE = 10.0
"""Norm of a matrix that is reckoned with where nothing bounds it, in units of that of the best one
known: what proofs take for granted at least."""


class ConsensusBound(NamedTuple):
    """A lower bound, its dual vector, and the multiple of I that the trace adds to T."""

    value: float
    y: Vector
    level: float = 0.0


class ConsensusBounds:
    """Lower bounds for one program."""

    def __init__(self, program: SquaresProgram, term: RowTerm) -> None:
        self.program, self.term = program, term

    @cached_property
    def _even(self) -> tuple[Vector, Any]:
        """``E = F*(lift)``, packed, and Z with ``Z* E Z = I`` on its range."""
        cone = self.program.cone
        E = cone.pack(self.program.F.adjoint(self.term.lift))
        values, V = cone.eigen(E)
        seen = values > SEEN * values[-1]
        return E, V[:, seen] / np.sqrt(values[seen])

    def lower(self, y: Vector, x: Vector) -> ConsensusBound:
        """The bound that y gives, or y lifted; x is where the cost of A itself is linearized."""
        program, cone, alpha = self.program, self.program.cone, self.program.cost.alpha
        y = self.term.permitted(y)
        T = cone.pack(program.F.adjoint(y))
        if cone.trace is not None:
            level = -float(cone.eigenvalues(T + 2.0 * alpha * (x - program.cost.p))[0])
            inside = -cone.trace * level
            if alpha:
                inside += self._linearized(x)
            return ConsensusBound(inside - self.term.conjugate(y), y, level)
        if not cone.psd:
            return ConsensusBound(self._infimum(T, x) - self.term.conjugate(y), y)
        best = ConsensusBound(-np.inf, y)
        if alpha:
            best = ConsensusBound(self._infimum(T, x) - self.term.conjugate(y), y)
        E, Z = self._even
        if Z.shape[1] == cone.n:
            S = cone.unpack(T + 2.0 * alpha * (x - program.cost.p))
            shift = max(0.0, -float(np.linalg.eigvalsh(Z.conj().T @ S @ Z)[0]))
            moved = y + shift * self.term.lift
            inside = self._infimum(T + shift * E, x) if alpha else 0.0
            other = ConsensusBound(inside - self.term.conjugate(moved), moved)
            best = max(best, other, key=lambda each: each.value)
        return best

    def _linearized(self, x: Vector) -> float:
        """Return what is left of ``alpha ||A - P||^2`` without its slope at x, for every A."""
        p = self.program.cost.p
        away, along = numbers((x - p) @ (x - p), (x - p) @ x)
        return self.program.cost.alpha * (away - 2.0 * along)

    def _infimum(self, T: Vector, x: Vector) -> float:
        """``inf_A (<T, A> + alpha ||A - P||^2)``; 0 only where T is, without alpha."""
        cone, alpha, p = self.program.cone, self.program.cost.alpha, self.program.cost.p
        if not alpha:
            pull, size = numbers(np.linalg.norm(T), np.linalg.norm(x))
            return -SIZE * pull * size
        linear, square = numbers(T @ p, T @ T)
        found = linear - square / (4.0 * alpha)
        if cone.psd:
            outside = np.minimum(cone.eigenvalues(p - T / (2.0 * alpha)), 0.0)
            found += alpha * float(outside @ outside)
        return found
