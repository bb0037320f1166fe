"""Least squares within intervals, by steps of the first order: the mathematics of `least_squares`.

`program` brings a question to one scale and knows what least squares costs, `cone` where A may lie,
`bounds` what a dual vector proves of a state. `steps` has FISTA on the cone, `direct` the solution
without a cone and by cuts, `face` moves a factor onto ends and takes Newton steps on the face of
the answer; `phases` puts them together, and `method` goes on with `consensus` where ends of
intervals bind over the cone. Least squared misses are another matter: `hinge`.
"""

from __future__ import annotations

from typing import ClassVar

from quadsense.core.products import FEATURE_ROWS
from quadsense.methods.traits import Cone, GapOptions, Options, Shape, Traits, Work
from quadsense.system.machine import FLOAT64_BYTES
from quadsense.system.watch import cholesky_flops, eigen_flops

TYPICAL_STEPS = 200.0
"""Typical steps: seen 60 to 350 (docs/theory.md, section 10)."""

MAX_FORMED_UNKNOWNS = 16000
"""Unknowns up to which the normal matrix is formed."""

FEW_UNKNOWNS = 100
"""Unknowns up to which cuts and interior-point steps cost less than gradient steps."""

ENTRY_FLOPS = 2.0
"""Flops in whose time a product reads an entry of the normal matrix (measured)."""


NEWTON_STEPS, GRADIENT_STEPS = 16.0, 30.0
"""Newton steps of least squared misses, seen 12 to 40, and conjugate gradients in each."""

MISSED_SHARE = 0.4
"""Of rows that are missed, about."""

VECTORS = 30
"""Numbers per row that are held, as measured."""

MANY_MISSABLE_ROWS = 1000
"""Rows from which on steps that know only those missed are the quicker ones."""


class LeastSquaresTraits(Traits):
    """FISTA on the cone, consensus ADMM where ends bind."""

    name: ClassVar[str] = "least_squares"
    summary: ClassVar[str] = "least squares in the cone and within intervals: both bounds on it"
    cones: ClassVar[frozenset[Cone]] = frozenset({"symmetric", "psd"})
    mixes: ClassVar[bool] = True
    one_sided: ClassVar[bool] = True
    without_tolerance: ClassVar[bool] = True
    random: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    preferences: ClassVar[frozenset[str]] = frozenset({"least_squares", "slack_squares"})
    hands_over: ClassVar[tuple[str, ...]] = ("conic",)
    options: ClassVar[type[Options]] = GapOptions
    constraints: ClassVar[bool] = True

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """Least squares."""
        if shape.damped_squares or not cls.serves(shape) or cls._is_for_consensus(shape):
            return None
        if shape.prefer == "slack_squares":
            few = (
                shape.psd
                and not shape.constrained
                and shape.one_sided
                and shape.m >= MANY_MISSABLE_ROWS
            )
            return "of many rows, only those that are missed are in the sum" if few else None
        return "least squares by accelerated gradient steps"

    @classmethod
    def _is_for_consensus(cls, shape: Shape) -> bool:
        """Whether first-order steps over the cone would go without a normal matrix."""
        asked = shape.psd and shape.prefer == "least_squares"
        return asked and ((shape.diagonal and not shape.target) or not cls.forms(shape))

    @classmethod
    def followers(cls, shape: Shape) -> tuple[str, ...]:
        """Without a cone and a normal matrix, `consensus` where intervals are active."""
        if shape.psd or shape.prefer != "least_squares" or cls.forms(shape):
            return cls.hands_over
        return "consensus", "conic"

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """A, packed."""
        return "matrix"

    @classmethod
    def forms(cls, shape: Shape) -> bool:
        """Whether the normal matrix is formed, as `squares.quadratic` decides."""
        size = float(shape.unknowns)
        product = 2.0 * shape.weight * shape.rows * float(shape.n) ** 2
        return (
            size <= MAX_FORMED_UNKNOWNS and shape.m * size <= 2.0 * TYPICAL_STEPS * product / size
        )

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """The normal matrix, its factor and the inverse of one; vectors; a block of rows."""
        if shape.prefer == "slack_squares":
            most = min(shape.m, int(1.6 * shape.unknowns))
            return (
                2 * FLOAT64_BYTES * most * most
                + 4 * shape.row_bytes
                + 12 * shape.matrix_bytes
                + FLOAT64_BYTES * VECTORS * shape.m
            )
        formed = FLOAT64_BYTES * shape.unknowns**2 if cls.forms(shape) else 0
        blocks = (
            2 * FLOAT64_BYTES * min(FEATURE_ROWS, shape.m) * shape.unknowns
            if formed
            else 4 * shape.row_bytes
        )
        return 3 * formed + blocks + 24 * shape.matrix_bytes + FLOAT64_BYTES * VECTORS * shape.m

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """The normal matrix once; a product with it and an eigendecomposition per step."""
        if shape.prefer == "slack_squares":
            return cls._misses(shape)
        m, size, n = float(shape.m), float(shape.unknowns), float(shape.n)
        step = shape.weight * eigen_flops(n) if shape.psd else 0.0
        if cls.forms(shape):
            once = m * size * size + cholesky_flops(size)
            steps = TYPICAL_STEPS if shape.psd else 4.0
            return Work(once + steps * (step + ENTRY_FLOPS * size * size), 0.0, steps)
        return Work(TYPICAL_STEPS * (step + 2.0 * shape.product), 0.0, TYPICAL_STEPS)

    @staticmethod
    def _misses(shape: Shape) -> Work:
        """Products with all rows, and a system of those missed, a Newton step."""
        k, size = MISSED_SHARE * shape.m, float(shape.unknowns)
        few = shape.weight * k * k * shape.n + cholesky_flops(k)
        system = min(
            few,
            k * size * size + cholesky_flops(size),
            2.0 * GRADIENT_STEPS * MISSED_SHARE * shape.product,
        )
        return Work(NEWTON_STEPS * (2.0 * shape.product + system), 0.0, 4.0 * NEWTON_STEPS)
