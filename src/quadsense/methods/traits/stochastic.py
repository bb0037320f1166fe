"""What stochastic gradient descent says of itself."""

from __future__ import annotations

from typing import ClassVar

from quadsense.methods.traits.descent import StochasticOptions, WithGram, gram_work
from quadsense.methods.traits.options import Options
from quadsense.methods.traits.shape import Shape, Work

STEPS = 1000.0
"""Typical steps: seen 60 to 1,700 (docs/theory.md, section 10)."""

BATCH = 32
"""Samples per step by default."""


class StochasticDescentTraits(WithGram):
    """The paper's Algorithms 2 and 4."""

    name: ClassVar[str] = "sgd"
    summary: ClassVar[str] = "the paper's stochastic descent: steps from a batch of rows"
    random: ClassVar[bool] = True
    options: ClassVar[type[Options]] = StochasticOptions

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """One batch of the rows of K per step."""
        work = gram_work(shape, STEPS, share=min(1.0, BATCH / shape.m))
        return work._replace(passes=STEPS / 20.0)  # compiled: Python runs once in many steps
