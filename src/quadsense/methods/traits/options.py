"""What a user may ask of a method in addition to the question: one typed dataclass each."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np

from quadsense.typing import is_number

T = TypeVar("T")


def option(default: T, text: str) -> T:
    """A field of an `Options`: its default, and what it is, in a line."""
    described: T = field(default=default, metadata={"help": text})
    return described


@dataclass(frozen=True)
class Options:
    """No options: the base of those of every method, whose fields are keywords of `solve`."""

    def check(self, m: int) -> None:
        """Raise ValueError for a value that makes no sense for m measurements."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The keywords."""
        return tuple(entry.name for entry in fields(cls))


@dataclass(frozen=True)
class GapOptions(Options):
    """Of methods that know both bounds on the smallest worst error."""

    gap: float = option(0.01, "relative gap of the two bounds at which the optimum is found")

    def check(self, m: int) -> None:
        """Refuse a gap that is none."""
        super().check(m)
        if not (is_number(self.gap) and 0 < self.gap < 1):
            raise ValueError(f"gap must lie strictly between 0 and 1, got {self.gap!r}")


@dataclass(frozen=True)
class DeviceOptions(Options):
    """Of methods whose steps may be less precise than what is claimed of them."""

    allow_tf32: bool = option(
        False, "let steps on a GPU use TF32 products; what is claimed stays float64"
    )

    def check(self, m: int) -> None:
        """Refuse what is neither yes nor no."""
        super().check(m)
        if not isinstance(self.allow_tf32, bool | np.bool):
            raise ValueError(f"allow_tf32 must be True or False, got {self.allow_tf32!r}")


@dataclass(frozen=True)
class PsdOptions(DeviceOptions, GapOptions):
    """Of `psd`."""
