"""What the closed form says of itself."""

from __future__ import annotations

from typing import ClassVar

from quadsense.methods.descent.traits import WithGram, gram_work
from quadsense.methods.traits.shape import Shape, Work


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
