"""Conjugate gradients and residuals: fits, damped least squares and the nearest matrix."""

from __future__ import annotations

import math
from typing import ClassVar

from quadsense.methods.descent import (
    gram_bytes,
    gram_entries,
    gram_flops,
)
from quadsense.methods.least_squares import FEW_UNKNOWNS, LeastSquaresTraits
from quadsense.methods.traits import (
    SINGLE_TIME,
    VECTORS,
    Cone,
    DeviceOptions,
    Options,
    Shape,
    Traits,
    Work,
    factor_flops,
)
from quadsense.system.machine import FLOAT64_BYTES, MAX_FORMED_BYTES, MIB

ENTRY = 9.0
"""Flops in whose time a product reads an entry of K from memory (measured)."""

EDGE = 0.75
"""Steps at the hard edge m = N: the ratio to gain to this power (docs/theory.md, section 10)."""

FIRST_FORECAST = 16
"""Plain steps before a factorisation is considered, as in `cg.residuals`."""

MAX_CONTRACTION = 0.99
"""Of the residual in a plain step, at most: near m = N other rules hold."""

STEPS_WITH_FACTOR = 4.0
"""Steps that follow a factorization."""

SETTLED = 100.0
"""What is gained beyond delta where the least-squares fit itself is sought."""

MAX_WINDOW, WINDOW_SHARE = 128, 0.125
"""Images kept, in number, and the bytes of all that is kept, as a share of those of the rows."""

MIN_WINDOW_BYTES, MAX_WINDOW_BYTES = 8 * MIB, 256 * MIB
"""Bytes of directions and images that are kept in any case, and that are never exceeded: rows on
disk or on a cluster may be far larger than the memory of the machine that keeps the window."""


def window_bytes(row_bytes: int) -> int:
    """Return the most bytes of the directions and images that are kept."""
    return min(max(MIN_WINDOW_BYTES, int(WINDOW_SHARE * row_bytes)), MAX_WINDOW_BYTES)


SINGLE_GAIN = 1e4
"""Gain up to which products in single precision serve: four digits, before their error shows next
to the target."""


def plain_steps(m: int, unknowns: int, gain: float) -> float:
    """Return the steps without a preconditioner that reduce a residual by that factor.

    Generic rows contract it by sqrt(m/N) per step (the edges of the spectrum of K; docs/theory.md,
    section 4).
    """
    contraction = min(MAX_CONTRACTION, math.sqrt(min(m, unknowns) / max(m, unknowns)))
    return 1.0 + math.log(max(gain, 1.0)) / -math.log(contraction)


class ConjugateGradientTraits(Traits):
    """Least squares, stopped on the largest residual."""

    name: ClassVar[str] = "cg"
    summary: ClassVar[str] = "consistent data, and noisy data whose least-squares fit meets delta"
    cones: ClassVar[frozenset[Cone]] = frozenset({"symmetric"})
    mixes: ClassVar[bool] = True
    constraints: ClassVar[bool] = True
    one_sided: ClassVar[bool] = False
    without_tolerance: ClassVar[bool] = False
    random: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"rows", "gram"})
    preferences: ClassVar[frozenset[str]] = frozenset({"any", "least_squares", "nearest"})
    hands_over: ClassVar[tuple[str, ...]] = ("minimax",)
    options: ClassVar[type[Options]] = DeviceOptions

    @classmethod
    def serves(cls, shape: Shape) -> bool:
        """Any fit, least squares that is pulled towards a prior, and the nearest to one."""
        if shape.prefer == "nearest":
            return shape.nearest_by_rows
        if shape.damped_squares:  # ends are looked at when the minimizer is known
            return not shape.mixed or cls.mixes
        return shape.prefer != "least_squares" and super().serves(shape)

    @classmethod
    def followers(cls, shape: Shape) -> tuple[str, ...]:
        """For any fit the smallest worst error; where intervals bind, least squares within them.

        Those form A, which rows far longer than they are many do not need.
        """
        if shape.prefer == "nearest":
            return ("conic",)
        if not shape.damped_squares or shape.is_wide:
            return cls.hands_over
        if shape.unknowns <= FEW_UNKNOWNS:
            return "conic", "least_squares"
        return ("least_squares" if LeastSquaresTraits.forms(shape) else "consensus"), "conic"

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """A tolerance on both sides, and rows that are not orthonormal, constraints apart."""
        if cls.serves(shape) and shape.prefer == "least_squares":
            return "least squares by conjugate gradients; another method where intervals are active"
        if cls.serves(shape) and shape.prefer == "nearest":
            return "the nearest matrix by an active set of rows"
        if not cls.serves(shape) or (shape.orthonormal and not shape.constrained):
            return None
        return "conjugate gradients first; where their fit misses a reading, minimax decides"

    @classmethod
    def uses_gram(cls, shape: Shape) -> bool:
        """With n > m nothing n-by-n is formed, and no scaled copy of U is made."""
        return shape.sparse or shape.n > shape.m

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """The shorter of the two."""
        return "measurement" if shape.m <= shape.unknowns else "matrix"

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """K, or the rows in single precision, and the images that are kept."""
        kept = min(MAX_WINDOW * FLOAT64_BYTES * shape.m, window_bytes(shape.row_bytes))
        images = kept + VECTORS * FLOAT64_BYTES * shape.m
        if shape.prefer == "nearest":  # K and a copy, in single precision
            images += FLOAT64_BYTES * shape.m**2
        if cls.uses_gram(shape):
            return images + gram_bytes(shape)
        formed = cls._dense_work(shape)[1]
        return shape.single_bytes + images + 6 * shape.matrix_bytes + formed

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """Steps until the tolerance is met; a factorisation where these would be many."""
        steps = cls._steps(shape)
        if shape.gram in ("explicit", "sparse"):
            return Work(gram_flops(shape), steps * FLOAT64_BYTES * gram_entries(shape), steps)
        if shape.gram == "matrix-free":
            return Work(2.0 * steps * shape.product, 0.0, steps)
        return cls._dense_work(shape)[0]

    @staticmethod
    def _gain(shape: Shape) -> float:
        """By how much the residual is to fall."""
        return max(2.0, shape.ratio) * (SETTLED if shape.m > shape.unknowns else 1.0)

    @classmethod
    def _steps(cls, shape: Shape) -> float:
        """Sparse rows are not generic: K is as if its spectrum began at 0."""
        gain = cls._gain(shape)
        edge = 1.0 + gain**EDGE
        return edge if shape.sparse else min(plain_steps(shape.m, shape.unknowns, gain), edge)

    @classmethod
    def _dense_work(cls, shape: Shape) -> tuple[Work, int]:
        """The cheapest of three ways, as `cg.system` finds it, and what it forms, in bytes."""
        m, n, N = float(shape.m), float(shape.n), float(shape.unknowns)
        steps, side = cls._steps(shape), min(m, N)
        both, share = 2.0 * shape.product, SINGLE_TIME if cls._gain(shape) <= SINGLE_GAIN else 1.0
        free = (share * steps + 1.0) * both
        explicit = shape.weight * m * n * (m + n) + steps * ENTRY * m * m
        build = m * side if m > N else shape.weight * m * n
        early = min(steps, FIRST_FORECAST + STEPS_WITH_FACTOR)
        factored = factor_flops(side, build) + (share * FIRST_FORECAST + STEPS_WITH_FACTOR) * both
        ways = [(free, steps, 0.0), (explicit, steps, m), (factored, early, side)]
        flops, passes, order = min(
            way for way in ways if FLOAT64_BYTES * way[2] ** 2 <= MAX_FORMED_BYTES
        )
        return Work(flops, 0.0, passes), int(2 * FLOAT64_BYTES * order * order)

    @classmethod
    def settles(cls, shape: Shape) -> bool:
        """Where there are more rows than unknowns the noise decides."""
        return shape.m <= shape.unknowns
