"""The interior-point method for every convex request."""

from __future__ import annotations

from typing import ClassVar

from quadsense.core.products import FEATURE_ROWS
from quadsense.methods.traits import Cone, GapOptions, Options, Shape, Traits, Work
from quadsense.preferences import names_that
from quadsense.system.machine import FLOAT64_BYTES, MAX_ARRAY_ENTRIES
from quadsense.system.watch import cholesky_flops, eigen_flops

STEPS = 14.0
"""Typical steps: seen 5 to 30 (docs/theory.md, section 10)."""

CONE_DECOMPOSITIONS = 4.0
"""Eigendecompositions in whose time a step handles the cone."""

CALLS = 12.0
"""Passes whose calls of Python a step makes: residuals, two directions, lengths (measured)."""


NEWTON_ARRAYS = 4
"""So large, which it holds at once."""


def newton_entries(m: int, n: int, size: int) -> int:
    """Entries of the largest array of an interior-point step, of m rows and `size` unknowns."""
    by_rows, by_unknowns = newton_flops(m, n, size)
    return m * m if by_rows <= by_unknowns else size * max(m, 4 * size)


def newton_flops(m: int, n: int, size: int) -> tuple[float, float]:
    """By rows, and by unknowns: there at worst twice as many rows as unknowns are solved for."""
    return cholesky_flops(m) + float(m) ** 2 * n, m * float(size) ** 2 + eigen_flops(size)


def interior_fits(m: int, n: int, size: int) -> bool:
    """Return whether the arrays of the interior-point method are small enough."""
    return newton_entries(m, n, size) <= MAX_ARRAY_ENTRIES


class ConicTraits(Traits):
    """The one interior-point kernel."""

    name: ClassVar[str] = "conic"
    summary: ClassVar[str] = "the nearest, the centre, the least trace, slack: both bounds on it"
    cones: ClassVar[frozenset[Cone]] = frozenset({"symmetric", "psd"})
    mixes: ClassVar[bool] = True
    constraints: ClassVar[bool] = True
    one_sided: ClassVar[bool] = True
    without_tolerance: ClassVar[bool] = True
    random: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    preferences: ClassVar[frozenset[str]] = frozenset(names_that(lambda kind: bool(kind.value)))
    options: ClassVar[type[Options]] = GapOptions

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """Every question, except the smallest worst error without a cone or beyond its arrays."""
        plain = shape.prefer == "minimax" and not shape.target and not shape.constrained
        plain = plain and not (shape.psd and interior_fits(shape.m, shape.n, int(shape.unknowns)))
        if plain or shape.damped_squares or shape.nearest_by_rows or not cls.serves(shape):
            return None
        return "the interior-point method solves the convex problem that defines A"

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """A, or its factor."""
        return "factor" if shape.psd else "matrix"

    @classmethod
    def side(cls, shape: Shape) -> float:
        """Order of the systems of a step."""
        return float(min(shape.m, shape.unknowns))

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """The matrices of a step."""
        side = int(cls.side(shape))
        blocks = 2 * min(FEATURE_ROWS, shape.m) * shape.unknowns
        matrices, vectors = 4 * side * side, 60 * shape.m
        return FLOAT64_BYTES * (matrices + blocks + vectors) + 24 * shape.matrix_bytes

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """One normal matrix and its factor per step, and what the cone takes."""
        m, side, n = float(shape.m), cls.side(shape), float(shape.n)
        formed = m * side * side if shape.m > shape.unknowns else shape.weight * m * m * n
        cone = shape.weight * CONE_DECOMPOSITIONS * eigen_flops(n) if shape.psd else 0.0
        flops = STEPS * (formed + cholesky_flops(side) + cone + 4.0 * shape.product)
        return Work(flops, 0.0, CALLS * STEPS)
