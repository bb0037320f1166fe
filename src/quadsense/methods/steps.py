"""What the methods that carry a matrix or a factor share, as the loop sees them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from quadsense.arrays import Array, Vector, is_numpy, is_tensor, placed, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.device import DeviceArray, tensor_of
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem, Trace
from quadsense.proofs.rounding import Enclosure

LENIENT = partial(np.errstate, over="ignore", under="ignore", invalid="ignore", divide="ignore")
"""What leaves float64's range is no answer, and is not taken for one."""


class Stepped:
    """A method that advances a few costly steps at a time and knows itself when it is stuck."""

    name: ClassVar[str]
    short_strides_first: ClassVar[bool] = False

    def stride(self, program: Any) -> int:
        """One step: it may take long."""
        return 1

    def promise(self, program: Any) -> tuple[int | None, str]:
        """No lemma."""
        return None, ""

    def checked(self, program: Any, state: Any) -> Enclosure | None:
        """Residuals that the method has just evaluated from the data itself: none."""
        return None

    def patience(self, program: Any) -> int:
        """No end: the method itself says when it is stuck."""
        return 2**62

    def correct(self, program: Any, state: Any, z: Array, goal: float) -> Any:
        """The same state: its ratio includes a rounding bound already."""
        return state

    def first(self, problem: Problem) -> SensedMatrix:
        """A_1."""
        return problem.first()

    def dual(self, program: Any, state: Any) -> Vector | None:
        """None: the method bounds nothing from below."""
        return None

    def trace(self, program: Any, state: Any) -> Trace:
        """Nothing but the ratio."""
        return Trace()


def start_matrix(problem: Problem) -> Any:
    """A_1 as a dense NumPy array."""
    if problem.c_start is not None:
        return np.asarray(problem.matrix(0.0 * problem.b))
    n = problem.rows.n
    A = problem.tau * np.eye(n, dtype=np.complex128 if problem.rows.is_complex else np.float64)
    return A if problem.base is None else A + to_numpy(problem.base)


def weighed_rows(problem: Problem) -> tuple[Sensing, Vector]:
    """Unit rows scaled so that all tolerances are the same, and the squares of the scales.

    Row i gets the squared norm ``min(delta)/delta_i``: least squares then weighs every residual by
    its tolerance, and weights stay within float64's range whatever the spread of the tolerances.
    """
    delta = at_work(problem, problem.delta)
    least, rows = float(delta.min()), problem.rows.at_work(problem.tf32)
    if least > (1.0 - 1e-12) * float(delta.max()):  # equal up to rounding
        return rows, np.ones_like(delta)
    squares = least / delta
    return rows.weighed(np.sqrt(squares)), squares


def own(problem: Problem, values: Any) -> Array:
    """What a method found, in the namespace and on the device of the data."""
    tensor = tensor_of(values)
    if tensor is not None:
        return tensor
    if not is_numpy(values) or isinstance(problem.b, np.ndarray):
        return values
    return placed(values, problem.b)


def at_work(problem: Problem, values: Array) -> Any:
    """An array of the data as methods see it: NumPy's, or on a device, as `Sensing.at_work`."""
    if isinstance(problem.b, np.ndarray) or not works_on_device(problem):
        return to_numpy(values)
    return DeviceArray(values)


def works_on_device(problem: Problem) -> bool:
    """Whether methods work by arrays on a device."""
    if isinstance(problem.b, np.ndarray):
        return False
    rows = problem.rows
    return rows.raw is rows and is_tensor(problem.b) and rows.kind.held_as("device") is not None


def nothing(problem: Problem) -> SensedMatrix:
    """A = 0 as a positive semidefinite matrix."""
    dtype = np.complex128 if problem.rows.is_complex else np.float64
    return SensedMatrix.from_factor(own(problem, np.zeros((problem.rows.n, 1), dtype)))


# --- when nothing moves any more: the one rule of the loop and of inner methods ------------------


class Progress(NamedTuple):
    """What was reached when there was progress last, and how often there was none since."""

    marks: tuple[float, ...]
    idle: int


def looked(marks: Sequence[float], idle: int, now: Sequence[float], share: float) -> Progress:
    """Look once more: it is progress where some number is below `share` of its mark.

    Parameters
    ----------
    marks : sequence of float
        What was reached when there was progress last; all of them should fall.
    idle : int
        Looks since then.
    now : sequence of float
        What is reached now, in the same order.
    share : float
        Just below 1 where slow progress counts, far below where it does not.
    """
    for here, mark in zip(now, marks, strict=True):
        if here < share * mark:
            return Progress(tuple(now), 0)
    return Progress(tuple(marks), idle + 1)
