"""What the search among positive semidefinite matrices says of itself."""

from __future__ import annotations

from typing import ClassVar

from quadsense.methods.traits.base import Traits
from quadsense.methods.traits.options import GapOptions, Options
from quadsense.methods.traits.shape import Cone, Shape, Work
from quadsense.threads import LITTLE_WORK

STEPS = 18.0
"""Typical evaluations: seen 6 to 50 (docs/theory.md, section 10)."""


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
    options: ClassVar[type[Options]] = GapOptions

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
        """Products with the rows, and matrices of the order of their span."""
        reduced = (4 if shape.n > shape.m else 2 if shape.complex else 1) * shape.row_bytes
        if shape.strip and shape.n <= shape.m:
            reduced = 0  # rows in files stay there
        matrices = 24 * min(shape.m, shape.n) ** 2 * shape.item
        return shape.single_bytes + reduced + matrices + 8 * (60 if reduced else 30) * shape.m

    @classmethod
    def proof_memory(cls, shape: Shape) -> int:
        """F*(y), its factor, and what rounds; few rows are looked at within their span."""
        return 4 * min(shape.matrix_bytes, 2 * shape.row_bytes)

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """Products with the rows and an eigendecomposition an evaluation."""
        m, k = float(shape.m), float(min(shape.m, shape.n))
        reduce = shape.weight * 4.0 * m * m * shape.n if shape.n > shape.m else 0.0
        flops = STEPS * shape.weight * (3.0 * m * k * k + 10.0 * k**3) + reduce
        return Work(flops, 0.0, STEPS, known=shape.target and not shape.one_sided)

    @classmethod
    def threads(cls, shape: Shape) -> str:
        """Ranges of rows."""
        return "one" if 2.0 * shape.weight * shape.m * shape.n**2 <= LITTLE_WORK else "rows"
