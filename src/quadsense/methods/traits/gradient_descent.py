"""What gradient descent says of itself."""

from __future__ import annotations

from typing import ClassVar

from quadsense.methods.traits.descent import DescentOptions, WithGram, gram_work
from quadsense.methods.traits.options import Options
from quadsense.methods.traits.shape import Shape, Work

STEPS = 50.0
"""Typical steps: seen 15 to 45, some thousands with m near N (docs/theory.md, section 10)."""


class GradientDescentTraits(WithGram):
    """The paper's Algorithm 1."""

    name: ClassVar[str] = "gd"
    summary: ClassVar[str] = "the paper's descent: a uniform bound at a proven rate"
    random: ClassVar[bool] = False
    options: ClassVar[type[Options]] = DescentOptions

    @classmethod
    def work(cls, shape: Shape) -> Work:
        """Products with K."""
        return gram_work(shape, STEPS)
