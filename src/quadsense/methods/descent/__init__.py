"""The paper's gradient descent (`gd`) and stochastic gradient descent (`sgd`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, get_args

from quadsense.methods.traits import Cone, Options, Shape, Traits, Work, option
from quadsense.system.machine import BLOCK_ELEMENTS, FLOAT64_BYTES
from quadsense.typing import NormName, ScheduleName, is_number, is_whole

SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)
NORMS: tuple[NormName, ...] = get_args(NormName)

GRAM_BLOCKS, VECTORS = 5, 16
"""Blocks that a product with K holds at once where K is not formed, as measured, and vectors of the
length of the readings."""

SPARSE_ENTRY = 200.0
"""Flops in whose time an entry of a sparse K is found, as measured: 4 ns."""

GD_STEPS = 50.0
"""Typical steps of `gd`: 15 to 45, some thousands with m near N (docs/theory.md, section 10)."""

SGD_STEPS = 1000.0
"""Typical steps of `sgd`: seen 60 to 1,700 (docs/theory.md, section 10)."""

SGD_BATCH = 32
"""Samples per step by default."""


@dataclass(frozen=True)
class DescentOptions(Options):
    """The schedule, and what overrides it; `lam` and `step` are for unit rows."""

    schedule: ScheduleName = option(
        "continuation",
        "'continuation': sharpen stage by stage with the largest step that descends; 'paper': the "
        "constants of the paper's lemmas",
    )
    lam: float | None = option(None, "sharpness of the potential")
    step: float | None = option(None, "length of a step")
    c: float | None = option(None, "step x lam, in place of step")

    def check(self, m: int) -> None:
        """Refuse unknown schedules and what is not positive."""
        if not (isinstance(self.schedule, str) and self.schedule in SCHEDULES):
            raise ValueError(
                f"schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}"
            )
        for name in ("lam", "step", "c"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if self.step is not None and self.c is not None:
            raise ValueError("give step or c = step x lam, not both")


@dataclass(frozen=True)
class StochasticOptions(DescentOptions):
    """Those of descent, and how batches are drawn and measured."""

    batch_size: int | None = option(None, "samples per step; min(m, 32) by default")
    norm: NormName | None = option(
        None,
        "norm of the full gradient on rows that are not orthonormal: 'exact' in O(m^2) (the "
        "default of the paper's schedule), or its 'bound' in O(m)",
    )
    failure: float = option(0.1, "allowed probability of failure, with the paper's schedule")

    def check(self, m: int) -> None:
        """Refuse batches larger than the data, unknown norms, and no probabilities."""
        super().check(m)
        batch, norm, failure = self.batch_size, self.norm, self.failure
        if batch is not None and not (is_whole(batch) and 1 <= batch <= m):
            raise ValueError(
                f"batch_size must be a whole number between 1 and m = {m}, got {batch!r}"
            )
        if not (norm is None or (isinstance(norm, str) and norm in NORMS)):
            raise ValueError(f"norm must be 'exact' or 'bound', got {norm!r}")
        if not (is_number(failure) and 0 < failure < 1):
            raise ValueError(f"failure must lie strictly between 0 and 1, got {failure!r}")


class WithGram(Traits):
    """Methods that carry m coefficients and residuals, and apply K."""

    cones: ClassVar[frozenset[Cone]] = frozenset({"symmetric"})
    mixes: ClassVar[bool] = True
    one_sided: ClassVar[bool] = False
    without_tolerance: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"gram"})
    begins_anew: ClassVar[bool] = False

    @classmethod
    def coordinates(cls, shape: Shape) -> str:
        """The coefficients c of ``A = A_1 - F*(c)``."""
        return "measurement"

    @classmethod
    def memory(cls, shape: Shape) -> int:
        """K, and some vectors."""
        return VECTORS * FLOAT64_BYTES * shape.m + gram_bytes(shape)


def gram_bytes(shape: Shape) -> int:
    """Bytes of K in its form, with what is held while it is made."""
    m = shape.m
    if shape.gram == "explicit":
        return 3 * FLOAT64_BYTES * m * m
    if shape.gram == "sparse":
        return int(20 * shape.density * m * m)
    if shape.gram == "identity":
        return 0
    return 4 * shape.matrix_bytes + FLOAT64_BYTES * GRAM_BLOCKS * min(BLOCK_ELEMENTS, m * m)


def gram_entries(shape: Shape) -> float:
    """Entries of K that are kept; the bound on their share is taken for what it is."""
    return float(shape.m) ** 2 * (shape.density if shape.gram == "sparse" else 1.0)


def gram_flops(shape: Shape) -> float:
    """Operations that form K."""
    if shape.gram == "sparse":
        return SPARSE_ENTRY * gram_entries(shape)
    return shape.weight * float(shape.m) ** 2 * shape.n


def gram_work(shape: Shape, steps: float, share: float = 1.0) -> Work:
    """Forming K, and `steps` products with that share of it."""
    m = float(shape.m)
    if shape.gram == "identity":
        return Work(shape.weight * m * m * shape.n, 2.0 * shape.row_bytes, steps)
    if shape.gram in ("explicit", "sparse"):
        return Work(gram_flops(shape), share * steps * FLOAT64_BYTES * gram_entries(shape), steps)
    return Work(steps * 2.0 * shape.product, steps * 2.0 * shape.row_bytes, steps)


class GradientDescentTraits(WithGram):
    """The paper's Algorithm 1."""

    name: ClassVar[str] = "gd"
    summary: ClassVar[str] = "the paper's descent: a uniform bound at a proven rate"
    random: ClassVar[bool] = False
    options: ClassVar[type[Options]] = DescentOptions

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """Products with K."""
        return gram_work(shape, GD_STEPS)


class StochasticDescentTraits(WithGram):
    """The paper's Algorithms 2 and 4."""

    name: ClassVar[str] = "sgd"
    summary: ClassVar[str] = "the paper's stochastic descent: steps from a batch of rows"
    random: ClassVar[bool] = True
    options: ClassVar[type[Options]] = StochasticOptions

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """One batch of the rows of K per step."""
        work = gram_work(shape, SGD_STEPS, share=min(1.0, SGD_BATCH / shape.m))
        return work._replace(passes=SGD_STEPS / 20.0)  # compiled: Python runs once in many steps


class ClosedFormTraits(WithGram):
    """The answer in one step, for orthonormal rows."""

    name: ClassVar[str] = "closed_form"
    summary: ClassVar[str] = "orthonormal rows: the nearest fit, in one step"
    random: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"gram", "orthonormal"})
    begins_anew: ClassVar[bool] = True

    @classmethod
    def suits(cls, shape: Shape) -> str | None:
        """Wherever it applies."""
        return "orthonormal rows are solved in one step" if cls.serves(shape) else None

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """The check of the answer, above all."""
        return gram_work(shape, 1.0)
