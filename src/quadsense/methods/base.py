"""What every method is given, what it must answer, and how it speaks to the loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypedDict

import numpy as np

from quadsense.arrays import Array, Vector, is_numpy, is_tensor, placed, to_numpy
from quadsense.core.intervals import ZERO_SHARE, Intervals
from quadsense.core.matrix import MeasuredForm, SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import record
from quadsense.device import DeviceArray, tensor_of
from quadsense.measurements.gram import Gram
from quadsense.measurements.sensing import Sensing
from quadsense.methods.traits import Options
from quadsense.proofs.infeasible import Prover
from quadsense.proofs.rounding import Enclosure
from quadsense.system.watch import real_flops
from quadsense.typing import NormName
from quadsense.vocabulary import Claim


class MethodOptions(TypedDict, total=False):
    """The options of all methods as keywords of `solve`, so that type checkers know them.

    All but `schedule`, which `solve` names itself: a test keeps them equal to what the methods
    say of themselves.
    """

    lam: float | None
    step: float | None
    c: float | None
    batch_size: int | None
    norm: NormName | None
    failure: float
    gap: float
    max_restarts: int | None
    allow_tf32: bool


@record(frozen=True)
class Problem:
    """A fit to be found, on rows of unit norm.

    Attributes
    ----------
    rows : Sensing
        Measurement vectors, seen with unit norm.
    b, delta : arrays of shape (m,)
        Readings and tolerances of the unit rows.
    tau : float
        The start is ``A_1 = tau I + base - F*(c_start)``.
    gram : Gram or None
        K, for the methods that need it.
    base : array of shape (n, n), optional
        Part of the start.
    c_start : array of shape (m,), optional
        Part of the start.
    sides : ndarray of bool, shape (2, m), optional
        Which upper and which lower ends of the intervals exist; all where None.
    given_ends : Intervals, optional
        The intervals of the unit rows, as exactly as they were given, by which a fit is judged;
        those of `b` and `delta` where None.
    target : bool
        Whether there is a tolerance to meet; without, the smallest worst error is sought.
    error_unit : float
        Without a tolerance, the error that `delta` stands for: of the size of the readings.
    rank : int or None
        Largest rank of A (`low_rank`); None where it may grow.
    signs : (int, int) or None
        Most positive and most negative eigenvalues of A (`low_rank`), where some may be negative.
    prove : Prover or None
        What a dual vector proves of the user's data.
    question : Question or None
        Which A is wanted of those that fit, on the unit rows; None where any will do.
    options : Options
        The user's options: those of the method that runs.
    seed : int
        All randomness follows from it.
    followed : bool
        Whether another method continues where this one gives up.
    """

    rows: Sensing
    b: Array
    delta: Array
    tau: float
    gram: Gram | None = None
    base: Array | None = None
    c_start: Array | None = None
    sides: Any = None
    given_ends: Intervals | None = None
    target: bool = True
    error_unit: float = 1.0
    rank: int | None = None
    signs: tuple[int, int] | None = None
    prove: Prover | None = None
    question: Question | None = None
    options: Any = field(default_factory=Options)
    seed: int = 0
    followed: bool = False

    @property
    def m(self) -> int:
        """Number of measurements."""
        return int(self.b.shape[0])

    @property
    def tf32(self) -> bool:
        """Whether steps on a GPU may use TF32 products."""
        return bool(getattr(self.options, "allow_tf32", False))

    @property
    def ends(self) -> Intervals:
        """The intervals by which a fit is judged."""
        if self.given_ends is not None:
            return self.given_ends
        b, delta = to_numpy(self.b), to_numpy(self.delta)
        if self.sides is None:
            return Intervals.around(b, delta)
        above, below = np.where(self.sides, delta, np.inf)
        return Intervals(b, below, above, delta)

    def first(self) -> SensedMatrix:
        """A_1, which costs nothing to make."""
        return self._measured(self._first_coefficients())

    def _measured(self, c: Array) -> SensedMatrix:
        """``tau I + base - F*(c)``, by coefficients of the rows."""
        rows = self.rows
        return SensedMatrix(MeasuredForm(self.tau, rows.unmixed(c), rows.raw, self.base))

    def _first_coefficients(self) -> Array:
        return 0.0 * self.b if self.c_start is None else self.c_start

    def initial_residual(self) -> Array:
        """``z_1 = F(A_1) - b``."""
        z = self.tau * self.rows.squares - self.b
        if self.base is not None:
            z = z + self.rows.forward(self.base)
        if self.c_start is not None:
            apply = self.rows.gram_times if self.gram is None else self.gram.apply
            z = z - apply(self.c_start)
        return z

    def matrix(self, c: Array) -> SensedMatrix:
        """``A_1 - F*(c)``."""
        if self.c_start is not None:
            c = self.c_start + c
        found = self._measured(c)
        if self.rows.prefers_gram:
            return found
        # Many rows: A itself is the smaller array, and its readings round far less than theirs.
        return SensedMatrix.from_dense(found.to_dense())


@record(frozen=True)
class Trace:
    """What the history keeps of a state, in addition to iteration and ratio; NaN: has no meaning.

    `ratios` makes those of all rows, which are asked for only where tolerances differ.
    """

    ratios: Callable[[], Vector] | None = None
    log_potential: float = float("nan")
    lam: float = float("nan")
    step: float = float("nan")
    sharpness: float = float("nan")


@record(frozen=True)
class Warm:
    """What an earlier stage or an earlier result found, for a method to begin from.

    Where to begin only: which A is meant is the problem's affair.

    Attributes
    ----------
    fit : SensedMatrix or None
        A matrix that is, or nearly is, an answer.
    factor : array of shape (n, r) or None
        X of ``fit = X X*``, where it is known to be such.
    dual : ndarray of shape (m,) or None
        The vector of a lower bound, for the unit rows.
    """

    fit: SensedMatrix | None = None
    factor: Array | None = None
    dual: Vector | None = None


COLD = Warm()
"""Nothing is known."""


class State(Protocol):
    """All that a method carries between strides: arrays, numbers, the state of a generator.

    A frozen dataclass; written down by `quadsense.codec`, it is a checkpoint.
    """

    @property
    def iteration(self) -> int:
        """Steps taken."""

    @property
    def max_ratio(self) -> float:
        """``max|z_i|/delta_i`` of the best matrix, as maintained."""


class Method(Protocol):
    """One algorithm: its mathematics only, run by `quadsense.run.loop`.

    Nothing is kept on the instance. All that follows from the problem is in the program, which is
    made again where a run is taken up; all else is in the state. What else must be known of it is
    in its `Traits`.
    """

    name: ClassVar[str]
    short_strides_first: ClassVar[bool]  # so that the history is even on a log scale

    def prepare(self, problem: Problem) -> Any:
        """The program: all that follows from the problem. The same problem gives the same."""

    def start(self, program: Any, warm: Warm = COLD) -> Any:
        """State before the first step; the same program and `warm` give the same."""

    def stride(self, program: Any) -> int:
        """Steps between two looks at the clock: about a millisecond's work where possible."""

    def patience(self, program: Any) -> int:
        """Strides without progress that count as stalled."""

    def promise(self, program: Any) -> tuple[int | None, str]:
        """Steps after which a lemma has delivered, if one promises that, and its name."""

    def advance(self, program: Any, state: Any, steps: int) -> Any:
        """Return the state after at most `steps` more steps; `state` is left as it was."""

    def claim(self, program: Any, state: Any) -> Claim | None:
        """What the state shows, if anything."""

    def checked(self, program: Any, state: Any) -> Enclosure | None:
        """Residuals of ``matrix(state)`` if the method has just evaluated them from the data."""

    def correct(self, program: Any, state: Any, z: Array, goal: float) -> Any:
        """The same iterate with its residual as recomputed from the data, and another goal."""

    def matrix(self, program: Any, state: Any) -> SensedMatrix:
        """A of the state."""

    def first(self, problem: Problem) -> SensedMatrix:
        """What to answer where there was no time for a state."""

    def dual(self, program: Any, state: Any) -> Vector | None:
        """The vector of the best lower bound so far, for the unit rows, if there is one."""

    def trace(self, program: Any, state: Any) -> Trace:
        """What the history keeps."""


# --- what methods that carry a matrix or a factor share ------------------------------------------

LENIENT = partial(np.errstate, over="ignore", under="ignore", invalid="ignore", divide="ignore")
"""What leaves float64's range is no answer, and is not taken for one."""


MAX_STRIDE, STRIDE_FLOPS, DEVICE_STRIDE_FLOPS = 12, 1e9, 1e11
"""Steps between two looks at the clock, and the work of these, some tens of milliseconds: on
a core, and on a GPU, where steps that a decision leaves behind are wasted."""

MAX_FORMED_ORDER = 2000
"""Order up to which A is made dense although products with it would do."""

MAX_REFINEMENTS = 3
"""Solves with one factor, each of which takes away what the rounding of the last one left."""

MIN_AMPLE_ROWS = 4
"""Rows per unknown from which they are ample: almost any search ends at the fit."""

DEVICE_STEPS_PER_LOOK = 10
"""Conjugate gradients on a device between two looks at their residual, which wait for it."""

AIMED_GAP = 0.9
"""Share of the gap that is aimed at: what is proved from the data loses a little to rounding."""

MIN_RESIDUAL = 1e-15
"""Residual, relative to its parts, at which a solution is left alone."""

DIAGONAL_SHIFT = 1e-14
"""Share of its mean or largest entry that is added to a diagonal before it is factored."""

PROGRESS_SHARE = 0.9
"""What is left must fall below that share of what was left, in some steps, to count as progress."""

SHORT_STRIDE_FLOPS = 1e8
"""Work of the steps between two looks, of methods whose steps are cheap: some milliseconds."""

SAME = 1.0 - ZERO_SHARE
"""Ratio of two numbers from which they are equal up to rounding."""


def product_flops(F: Sensing) -> float:
    """Return the float64 flops of F or of its adjoint, of rows that are dense."""
    return 2.0 * real_flops(F.is_complex) * F.m * float(F.n) ** 2


def stride_of(problem: Problem, flops: float) -> int:
    """Return how many steps of that work are taken between two looks at the clock."""
    if MAX_STRIDE * flops <= STRIDE_FLOPS:
        return MAX_STRIDE
    worth = DEVICE_STRIDE_FLOPS if works_on_device(problem) else STRIDE_FLOPS
    return max(1, min(MAX_STRIDE, int(worth // flops)))


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
        return sys.maxsize

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
    delta, tf32 = problem.delta, False
    if type(delta) is not np.ndarray:
        delta, tf32 = at_work(problem, delta), problem.tf32
    least, rows = float(np.minimum.reduce(delta)), problem.rows.at_work(tf32)
    if least > SAME * float(np.maximum.reduce(delta)):
        return rows, np.ones_like(delta)
    squares = least / delta
    return rows.weighed(np.sqrt(squares)), squares


def own(problem: Problem, values: Any) -> Array:
    """What a method found, in the namespace and on the device of the data."""
    numpy = isinstance(problem.b, np.ndarray)
    if numpy and type(values) is np.ndarray:
        return values
    tensor = tensor_of(values)
    if tensor is not None:
        return np.asarray(values) if numpy else tensor
    if numpy or not is_numpy(values):
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
