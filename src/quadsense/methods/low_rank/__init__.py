"""Fits of low rank by descent on a factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quadsense.methods.traits import Cone, Options, Shape, Traits, Work, option
from quadsense.system.machine import FLOAT64_BYTES, MIB
from quadsense.typing import is_whole

TYPICAL_STEPS = 20.0
"""Typical steps: seen 1 to 30 where rows are ample (docs/theory.md, section 10)."""

READINGS_PER_STEP = 4.0
"""Times that a step reads U: the residual, its gradient, and a few products (measured)."""

LIFT = 2
"""Ranks that a lift has too many (see `low_rank.method`)."""

HELD_IMAGES, HELD_FACTORS, VECTORS = 8, 40, 20
"""Images of the factor that are held at once, of the point, its trial and the memory; factors, with
those of the start; and vectors of the length of the readings."""


LEAN_BYTES = 64 * MIB
"""Size of the images of a factor from which they are not held (see `low_rank.method`)."""


@dataclass(frozen=True)
class LowRankOptions(Options):
    """How often to begin again."""

    max_restarts: int | None = option(None, "random starts, at each rank where it grows")

    def check(self, m: int) -> None:
        """Refuse what is no count."""
        restarts = self.max_restarts
        if restarts is not None and not (is_whole(restarts) and restarts >= 0):
            raise ValueError(f"max_restarts must be a whole number, not negative, got {restarts!r}")


def is_lean(shape: Shape) -> bool:
    """Whether images of a factor are too many to be held, so that rows are taken in turn."""
    return shape.in_parts and FLOAT64_BYTES * shape.m * max(shape.rank or 1, 1) > LEAN_BYTES


class LowRankTraits(Traits):
    """Descent on the factor of A."""

    name: ClassVar[str] = "low_rank"
    summary: ClassVar[str] = "A of low rank, positive semidefinite or not: descent on its factor"
    cones: ClassVar[frozenset[Cone]] = frozenset({"rank"})
    mixes: ClassVar[bool] = True
    constraints: ClassVar[bool] = True
    one_sided: ClassVar[bool] = True
    without_tolerance: ClassVar[bool] = True
    local: ClassVar[bool] = True
    random: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    preferences: ClassVar[frozenset[str]] = frozenset({"any", "least_squares"})
    options: ClassVar[type[Options]] = LowRankOptions

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """Wherever a rank is asked for."""
        if shape.cone != "rank":
            return None
        return "a rank was asked for: the factor of A is sought"

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """``A = X X*``."""
        return "factor"

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """Rows in single precision, some factors and their images."""
        rank = max(shape.rank or 1, 1)
        if shape.prefer == "any" and is_lean(shape):
            return FLOAT64_BYTES * HELD_IMAGES * (shape.n * rank + shape.m)
        lean = bool(shape.strip)  # rows in files are ample, so that nothing is lifted (measured)
        rank += 0 if lean else LIFT
        factors = HELD_FACTORS * shape.n * rank * shape.item
        vectors = (VECTORS * FLOAT64_BYTES + HELD_IMAGES * rank * shape.item) * shape.m
        if lean:
            return factors + vectors // 2
        if shape.sparse and shape.prefer != "any" and shape.density == 1.0:  # the Jacobian
            factors += int(1.5 * rank * shape.row_bytes)
        return shape.single_bytes + factors + vectors

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """Passes over the rows."""
        rank = float(max(shape.rank or 1, 1))
        flops = TYPICAL_STEPS * shape.weight * READINGS_PER_STEP * shape.m * shape.n * rank
        return Work(
            flops,
            TYPICAL_STEPS * READINGS_PER_STEP * shape.row_bytes,
            TYPICAL_STEPS,
            known=shape.rank != 0,
        )
