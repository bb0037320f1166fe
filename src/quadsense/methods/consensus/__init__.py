"""Least squares within intervals by consensus ADMM: no matrix of the order of A's entries.

A question is ``min sum_i phi_i(v_i) + alpha ||A - P||_F^2`` over ``v = F(A)`` and A in a cone. The
readings v and A itself get copies of their own, and Z ties them together:

    Z   minimizes  alpha ||Z - P||^2 + sum_i rho_i (F(Z)_i - v_i + r_i)^2 + sigma ||Z - X + U||^2
    v_i minimizes  phi_i(v_i) + rho_i (F(Z)_i - v_i + r_i)^2              (`ProximalTerm`)
    X   is the member of the cone that is nearest to Z + U                (`Cone`; only where psd)
    r   += F(Z) - v,   U += Z - X

`program` has the step in Z and what a dual vector proves; `steps` puts them
together.
"""

from __future__ import annotations

from typing import ClassVar

from quadsense.core.products import FEATURE_ROWS
from quadsense.methods.least_squares import LeastSquaresTraits
from quadsense.methods.traits import (
    MAX_MOVED_UNKNOWNS,
    Cone,
    GapOptions,
    Options,
    Shape,
    Traits,
    Work,
)
from quadsense.preferences import MatrixTerm, kind_named, names_that
from quadsense.system.machine import FLOAT64_BYTES
from quadsense.system.watch import eigen_flops

TYPICAL_STEPS = 30.0
"""Typical steps: seen 10 to 200 (docs/theory.md, section 10)."""

PRODUCTS_PER_STEP = 8.0
"""Passes over the rows per step: four of conjugate gradients in single precision, the residual and
the readings in float64, and the bounds now and then."""

HELD_VECTORS, HELD_MATRICES = 40, 24
"""Vectors of length m, and matrices of order n, that are held at once."""


class ConsensusTraits(Traits):
    """Consensus ADMM, matrix-free."""

    name: ClassVar[str] = "consensus"
    summary: ClassVar[str] = (
        "least squares within intervals for large n: no normal matrix is formed"
    )
    cones: ClassVar[frozenset[Cone]] = frozenset({"symmetric", "psd"})
    mixes: ClassVar[bool] = True
    one_sided: ClassVar[bool] = True
    without_tolerance: ClassVar[bool] = True
    random: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    preferences: ClassVar[frozenset[str]] = frozenset(
        names_that(
            lambda kind: kind.row_term.splits and kind.matrix in (MatrixTerm.NONE, MatrixTerm.RIDGE)
        )
    )
    hands_over: ClassVar[tuple[str, ...]] = ("conic",)
    options: ClassVar[type[Options]] = GapOptions
    constraints: ClassVar[bool] = True

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """Least squares over the cone, where the normal matrix costs more than it saves.

        Without a cone others come first, and this one where intervals are active.
        """
        if not (shape.psd and cls.serves(shape)):
            return None
        squares = kind_named(shape.prefer).row_term.squares
        if not squares and not (shape.diagonal and shape.constrained):
            return None
        if shape.diagonal and not shape.target:
            return "the normal matrix is diagonal in a local basis: consensus ADMM"
        if LeastSquaresTraits.forms(shape):
            return None
        return "least squares without a normal matrix: consensus ADMM"

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """A, packed."""
        return "matrix"

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """The rows in single precision, the vectors and matrices of a step, and what moves y."""
        size = shape.unknowns
        rows = min(FEATURE_ROWS, shape.m)
        moves = FLOAT64_BYTES * (2 * rows + 3 * size) * size if size <= MAX_MOVED_UNKNOWNS else 0
        held = (
            shape.single_bytes
            + HELD_MATRICES * shape.matrix_bytes
            + FLOAT64_BYTES * HELD_VECTORS * shape.m
        )
        return held + moves

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """Products with the rows and, over the cone, an eigendecomposition per step."""
        cone = shape.weight * eigen_flops(shape.n) if shape.psd else 0.0
        return Work(TYPICAL_STEPS * (PRODUCTS_PER_STEP * shape.product + cone), 0.0, TYPICAL_STEPS)
