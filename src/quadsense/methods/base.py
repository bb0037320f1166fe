"""What every method is given, what it must answer, and how it speaks to the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, Protocol, TypedDict

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.forms import MeasuredForm
from quadsense.core.intervals import Intervals
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import record
from quadsense.measurements.gram import Gram
from quadsense.measurements.sensing import Sensing
from quadsense.methods.traits import Options
from quadsense.proofs.infeasible import Prover
from quadsense.proofs.rounding import Enclosure
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
