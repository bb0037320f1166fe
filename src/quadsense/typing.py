"""Types of the arguments: what `solve` takes, in words that a type checker reads.

`numpy.typing.ArrayLike` would admit text, so that ``delta="x"`` passed: these aliases do not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

DEFAULT_GAP = 0.01
"""Relative distance of two bounds at which an optimum is found, unless another was asked for."""


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
"""One number per measurement, of shape (m,)."""

RealOrVector: TypeAlias = Real | VectorLike
"""One number for all measurements, or one each."""

MatrixLike: TypeAlias = DenseArray | SupportsSparse | Sequence[Sequence[complex] | DenseArray]
"""A matrix: an array, dense or sparse, or its rows."""

Seed: TypeAlias = (
    Whole | Sequence[int] | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence
)
"""What `numpy.random.default_rng` takes."""

MethodName: TypeAlias = Literal[
    "auto",
    "closed_form",
    "gd",
    "sgd",
    "cg",
    "minimax",
    "psd",
    "low_rank",
    "conic",
    "least_squares",
    "consensus",
]
"""The methods of `solve`."""

PreferName: TypeAlias = Literal[
    "auto",
    "least_squares",
    "likelihood",
    "entropy",
    "nearest",
    "center",
    "min_trace",
    "minimax",
    "any",
]
"""Which A is wanted of those that fit."""

SlackName: TypeAlias = Literal["max", "sum", "squares"]
"""What is minimised of the misses."""

ScheduleName: TypeAlias = Literal["continuation", "paper"]
"""The schedules of `gd`, `sgd` and `solve_spectral`."""

StartName: TypeAlias = Literal["mean", "tau", "zero"]
"""The multiples of the identity to start from."""

MissingName: TypeAlias = Literal["raise", "drop"]
"""What may be done about readings that are NaN."""

NormName: TypeAlias = Literal["exact", "bound"]
"""How `sgd` finds the norm of the full gradient."""


LARGEST_EXPONENT = sys.float_info.max_exp - 1
"""Bits of a whole number that surely does not overflow as a float."""

LARGEST_WHOLE = int(np.iinfo(np.int64).max)
"""Largest whole number that an array of integers holds."""


def is_number(value: Any) -> bool:
    """Return whether `value` is a real number that a float can hold (and not a truth value)."""
    if isinstance(value, int):
        return not isinstance(value, bool) and value.bit_length() <= LARGEST_EXPONENT
    return isinstance(value, float | np.integer | np.floating)


def is_whole(value: Any) -> bool:
    """Return whether `value` is a whole number of 64 bits (and not a truth value)."""
    if isinstance(value, int):
        return not isinstance(value, bool) and -LARGEST_WHOLE <= value <= LARGEST_WHOLE
    return isinstance(value, np.integer)


def check_flag(name: str, value: Any) -> None:
    """Raise a ValueError unless `value` is a truth value."""
    if not isinstance(value, bool | np.bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def to_list(name: str, values: Any, of: str) -> list[Any]:
    """Return the entries of an iterable as a list, or raise a ValueError that names the argument.

    Parameters
    ----------
    name : str
        The argument, for the message.
    values : iterable
        Neither text, a dictionary nor a set.
    of : str
        What it must hold, for the message.
    """
    if not isinstance(values, str | bytes | bytearray | dict | set):
        try:
            return list(values)
        except Exception:  # of what no list can be made of, each kind raises its own
            pass
    raise ValueError(f"{name} must be a sequence of {of}, got {type(values).__name__}")


def check_path(name: str, value: Any, what: str = "file") -> None:
    """Raise a ValueError unless `value` is a path: `open` would take a number for an open file."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f"{name} must be the path of a {what}, got {value!r}")


def to_generator(name: str, seed: Any) -> np.random.Generator:
    """Return the generator that a seed stands for, or raise a ValueError that names the argument.

    Parameters
    ----------
    name : str
        The argument, for the message.
    seed : Seed or None
        None asks for a seed from the operating system.
    """
    numbers = seed.tolist() if isinstance(seed, np.ndarray) else seed
    numbers = list(numbers) if isinstance(numbers, list | tuple | range) else [numbers]
    objects = np.random.Generator | np.random.BitGenerator | np.random.SeedSequence
    plain = all(
        isinstance(each, int | np.integer) and not isinstance(each, bool) and each >= 0
        for each in numbers
    )
    if not (seed is None or isinstance(seed, objects) or (numbers and plain)):
        raise ValueError(
            f"{name} must be a seed (whole numbers, not negative) or a numpy.random.Generator, "
            f"got {seed!r}"
        )
    return np.random.default_rng(seed)
