"""Types of the arguments: what `solve` takes, in words that a type checker reads.

`numpy.typing.ArrayLike` would admit text, so that ``delta="x"`` passed: these aliases do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt


class SupportsArray(Protocol):
    """Anything that NumPy can read: its own arrays and numbers, tensors on the CPU, data frames."""

    def __array__(self) -> npt.NDArray[Any]:
        """The values as a NumPy array."""


class SupportsDLPack(Protocol):
    """An array of any namespace of the array API standard."""

    def __dlpack__(self) -> Any:
        """The values as a DLPack capsule."""


class SupportsSparse(Protocol):
    """A SciPy sparse array or matrix."""

    def tocsr(self) -> Any:
        """The values in compressed rows."""


Real: TypeAlias = float | np.floating[Any] | np.integer[Any]
"""A real number."""

Whole: TypeAlias = int | np.integer[Any]
"""A whole number."""

DenseArray: TypeAlias = SupportsArray | SupportsDLPack
"""An array of numbers of any namespace."""

VectorLike: TypeAlias = DenseArray | Sequence[Real]
"""One number a measurement, of shape (m,)."""

RealOrVector: TypeAlias = Real | VectorLike
"""One number for all measurements, or one each."""

MatrixLike: TypeAlias = DenseArray | SupportsSparse | Sequence[Sequence[complex] | DenseArray]
"""A matrix: an array, dense or sparse, or its rows."""

Seed: TypeAlias = (
    Whole | Sequence[int] | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence
)
"""What `numpy.random.default_rng` takes."""

MethodName: TypeAlias = Literal[
    "auto", "closed_form", "gd", "sgd", "cg", "minimax", "psd", "factored", "conic", "fista"
]
"""The methods of `solve`."""

PreferName: TypeAlias = Literal[
    "auto", "least_squares", "entropy", "nearest", "center", "min_trace", "minimax", "any"
]
"""Which A is wanted of those that fit."""

SlackName: TypeAlias = Literal["max", "sum", "squares"]
"""What is minimised of the misses."""

ScheduleName: TypeAlias = Literal["continuation", "paper"]
"""The schedules of `gd`, `sgd` and `solve_spectral`."""

StartName: TypeAlias = Literal["mean", "tau", "zero"]
"""The multiples of the identity to start from."""

NormName: TypeAlias = Literal["exact", "bound"]
"""How `sgd` finds the norm of the full gradient."""


def is_number(value: Any) -> bool:
    """Whether `value` is a real number (and not a truth value)."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Whether `value` is a whole number (and not a truth value)."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
