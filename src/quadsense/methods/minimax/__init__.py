"""The smallest worst error, with both bounds, and proofs of infeasibility."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from quadsense.core.products import FEATURE_ROWS
from quadsense.methods.conic import CALLS
from quadsense.methods.least_squares import MAX_FORMED_UNKNOWNS
from quadsense.methods.traits import VECTORS, Cone, GapOptions, Options, Shape, Traits, Work
from quadsense.system.machine import FLOAT64_BYTES, MIB
from quadsense.system.watch import cholesky_flops

STEPS = 8.0
"""Typical factorisations: seen 1 to 15 (docs/theory.md, section 10)."""

PROOF_ENTRIES = MIB
"""Entries of F*(y) that are summed at a time."""

PROOF_ARRAYS = 12
"""Arrays of that width in a compensated sum, as measured."""

BLOCKS = 2
"""Blocks of written-out rows that are held at once, as measured."""

FIRST, MORE, MOST = 8, 6, 16
"""Where only rows that matter are in memory (`minimax.growing`), rows for each unknown: to begin
with, that join at a time, and at most. Measured: with half as many, a pass or two more."""

LEAST = 256
"""Unknowns for which they are counted at least: a few rows more cost nothing."""

MANY = 64
"""Rows for each unknown from which on that is quicker for rows in memory too; and of a great many
rows next to few unknowns, rounding stops the method on all of them."""

PASSES = 6.0
"""Typical passes over all rows then: seen 2 to 10."""

STEP_VECTORS = 40
"""Numbers per row, as measured, where all rows are in memory."""


def grows(m: int, unknowns: int, at_hand: bool) -> bool:
    """Whether some rows suffice: there are far more than unknowns, or they are slow to read."""
    return m > unknowns and (m >= MANY * max(unknowns, LEAST) or not at_hand)


class MinimaxTraits(Traits):
    """The interior-point method for the linear program."""

    name: ClassVar[str] = "minimax"
    summary: ClassVar[str] = "noisy data, no delta, one-sided bounds: both bounds on the best error"
    cones: ClassVar[frozenset[Cone]] = frozenset({"symmetric"})
    mixes: ClassVar[bool] = True
    constraints: ClassVar[bool] = True
    one_sided: ClassVar[bool] = True
    without_tolerance: ClassVar[bool] = True
    random: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    proves: ClassVar[bool] = True
    preferences: ClassVar[frozenset[str]] = frozenset({"any", "minimax"})
    built_in: ClassVar[frozenset[str]] = frozenset({"minimax"})
    options: ClassVar[type[Options]] = GapOptions

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """One-sided intervals, or no tolerance."""
        if not cls.serves(shape):
            return None
        if shape.one_sided:
            return "one-sided intervals need the interior-point method"
        return (
            None if shape.target else "no tolerance was given: the smallest worst error is sought"
        )

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """The shorter of the two."""
        return "measurement" if shape.m <= shape.unknowns else "matrix"

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """The matrices of a step, and vectors of length m."""
        if cls._grows(shape):
            some = replace(shape, m=cls._rows(shape, MOST), raw=0, at_hand=True)
            rows = cls._rows(shape, 2 * MOST) * shape.n * shape.item
            return FLOAT64_BYTES * VECTORS * shape.m + rows + cls.memory(some)
        side = min(shape.m, shape.unknowns)
        dense = FLOAT64_BYTES * side * side if side <= MAX_FORMED_UNKNOWNS else 0
        # Few rows: K is factored, A stays implicit.
        formed = FLOAT64_BYTES * shape.matrix_bytes if shape.m > shape.unknowns else 2 * dense
        blocks = FLOAT64_BYTES * BLOCKS * min(FEATURE_ROWS, shape.m) * side if side < shape.m else 0
        return FLOAT64_BYTES * STEP_VECTORS * shape.m + formed + 2 * dense + blocks

    @classmethod
    def proof_memory(cls, shape: Shape) -> int:
        """Sums of twice the working precision, some columns of F*(y) at a time, and a few rows."""
        entries = min(shape.n**2, max(shape.n, PROOF_ENTRIES))
        return FLOAT64_BYTES * (PROOF_ARRAYS * entries + FEATURE_ROWS * shape.n)

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """One normal matrix and its factor per step."""
        if cls._grows(shape):
            some = cls.work(replace(shape, m=cls._rows(shape, FIRST), raw=0, at_hand=True))
            flops = PASSES * (some.flops + shape.product)
            return Work(flops, 0.0, PASSES * some.passes)
        m, side = float(shape.m), float(min(shape.m, shape.unknowns))
        return Work(STEPS * (m * side * side + cholesky_flops(side)), 0.0, CALLS * STEPS)

    @classmethod
    def _grows(cls, shape: Shape) -> bool:
        return not shape.on_gpu and grows(shape.m, shape.unknowns, shape.at_hand)

    @classmethod
    def _rows(cls, shape: Shape, count: int) -> int:
        """Return `count` rows for each unknown, or all."""
        return min(shape.m, count * max(shape.unknowns, LEAST))
