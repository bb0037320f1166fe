"""Fits in the cone of positive semidefinite matrices, and proofs that none exists."""

from __future__ import annotations

from typing import ClassVar

from quadsense.methods.conic import NEWTON_ARRAYS, interior_fits, newton_entries
from quadsense.methods.traits import Cone, Options, PsdOptions, Shape, Traits, Work
from quadsense.system.machine import FLOAT64_BYTES, MIB
from quadsense.system.watch import eigen_flops

STEPS = 18.0
"""Typical evaluations: seen 6 to 50 (docs/theory.md, section 10)."""

PAIRS = 20
"""Of vectors that the nearest fit remembers; from 7 to 60 the number of steps hardly changes."""

FEWEST_PAIRS = 7
"""Of very long vectors."""

PAIR_BYTES = FLOAT64_BYTES * MIB
"""Bytes of all these vectors, from which on fewer pairs are kept."""


def kept_pairs(m: int) -> int:
    """Return how many pairs of vectors of length m the nearest fit remembers."""
    return max(FEWEST_PAIRS, min(PAIRS, PAIR_BYTES // (2 * FLOAT64_BYTES * max(m, 1))))


def evaluation_flops(m: float, n: float) -> float:
    """Return the operations of an evaluation: products with the rows, and eigenvectors."""
    return 3.0 * m * n * n + eigen_flops(n)


class PsdTraits(Traits):
    """Symmetric fit, nearest fit, least misses, interior point."""

    name: ClassVar[str] = "psd"
    summary: ClassVar[str] = "A positive semidefinite: a fit, or a proof that there is none"
    cones: ClassVar[frozenset[Cone]] = frozenset({"psd"})
    mixes: ClassVar[bool] = True
    constraints: ClassVar[bool] = True
    one_sided: ClassVar[bool] = True
    without_tolerance: ClassVar[bool] = True
    random: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    proves: ClassVar[bool] = True
    preferences: ClassVar[frozenset[str]] = frozenset({"any", "minimax"})
    built_in: ClassVar[frozenset[str]] = frozenset({"minimax"})
    options: ClassVar[type[Options]] = PsdOptions

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """Wherever A is to be positive semidefinite, of any rank."""
        return "A is to be positive semidefinite" if cls.serves(shape) else None

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """``A = X X*``."""
        return "factor"

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """Products with the rows, and matrices of the order of their span.

        Those of the interior-point method are counted wherever it may run.
        """
        reduced = (4 if shape.n > shape.m else 2 if shape.complex else 1) * shape.row_bytes
        if shape.strip and shape.n <= shape.m:
            reduced = 0  # rows in files stay there
        matrices = 24 * min(shape.m, shape.n) ** 2 * shape.item
        vectors = 22 + 2 * kept_pairs(shape.m)
        m, size = max(shape.m, shape.raw), shape.unknowns
        if interior_fits(m, shape.n, size):
            entries = newton_entries(m, shape.n, size)
            matrices += FLOAT64_BYTES * NEWTON_ARRAYS * entries
        return shape.single_bytes + reduced + matrices + FLOAT64_BYTES * vectors * shape.m

    @classmethod
    def proof_memory(cls, shape: Shape) -> int:
        """F*(y), its factor, and what rounds; few rows are looked at within their span."""
        return 4 * min(shape.matrix_bytes, 2 * shape.row_bytes)

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """Products with the rows and one eigendecomposition per evaluation."""
        m, k = float(shape.m), float(min(shape.m, shape.n))
        reduce = shape.weight * 4.0 * m * m * shape.n if shape.n > shape.m else 0.0
        flops = STEPS * shape.weight * evaluation_flops(m, k) + reduce
        return Work(flops, 0.0, STEPS, known=shape.target and not shape.one_sided)
