"""What every method is given, what it must answer, and what it carries between strides."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

import numpy as np

from quadsense.arrays import Array, is_numpy, to_numpy
from quadsense.core import theory
from quadsense.core.matrix import MeasuredForm, SensedMatrix
from quadsense.measurements.gram import Gram
from quadsense.measurements.rows import BaseRows


@dataclass(frozen=True)
class Options:
    """What a user may ask of `gd` and `sgd`, beside the tolerance.

    Attributes
    ----------
    schedule : {"continuation", "paper"}
        Sharpen the potential stage by stage with the largest step that descends, or run with the
        lemma's fixed constants.
    lam, step, c : float, optional
        Override sharpness (for unit rows), step length, or their product.
    batch_size : int, optional
        `sgd` only: samples a step; default ``min(m, 32)``.
    norm : {"exact", "bound"}, optional
        `sgd` on rows that are not orthonormal: norm of the full gradient in O(m^2) or its bound
        in O(m). Default: exact with the paper's schedule, else the bound.
    failure : float
        `sgd` with the paper's schedule: allowed probability of failure.
    """

    schedule: str = "continuation"
    lam: float | None = None
    step: float | None = None
    c: float | None = None
    batch_size: int | None = None
    norm: str | None = None
    failure: float = 0.1


@dataclass(frozen=True)
class Problem:
    """A fit to be found, in unit rows and in units of the tolerance.

    Attributes
    ----------
    rows : BaseRows
        Measurement vectors, seen with unit norm.
    gram : Gram
        K.
    b, delta : arrays of shape (m,)
        Readings and tolerances of the unit rows.
    tau : float
        The start is ``A_1 = tau I``.
    options : Options
        The user's wishes.
    seed : numpy.random.Generator
        Source of the batches.

    Notes
    -----
    Methods carry ratios ``y = z / delta`` and coefficients ``d`` with ``c = weight * d``. A step
    along sigma = sinh(L y) moves d by sigma and y by ``-G K G sigma``. With orthonormal rows G = I
    and weight = delta: every row moves in units of its own tolerance, and the lemma holds as if
    all tolerances were equal. Otherwise ``G = min(delta)/delta`` and ``weight = min(delta) G``: the
    gradient of the potential with ``lam_i = L/delta_i``, the step limited by the sharpest row.
    """

    rows: BaseRows
    gram: Gram
    b: Array
    delta: Array
    tau: float
    options: Options = field(default_factory=Options)
    seed: np.random.Generator = field(default_factory=np.random.default_rng)

    @property
    def m(self) -> int:
        """Number of measurements."""
        return self.gram.m

    @property
    def compiled(self) -> bool:
        """Whether compiled loops serve: NumPy vectors and K explicit or the identity."""
        return is_numpy(self.delta) and self.gram.kind in ("identity", "explicit")

    @property
    def kernel_gram(self) -> Any:
        """K as the loops want it: the array (empty for the identity) or the operator."""
        if not self.compiled:
            return self.gram
        return np.empty((0, 0)) if self.gram.kind == "identity" else self.gram.values  # type: ignore[attr-defined]

    @property
    def least_delta(self) -> float:
        """Smallest tolerance of a unit row."""
        return float(to_numpy(self.delta).min())

    @property
    def spread(self) -> float:
        """Largest over smallest tolerance, where that slows the lemma down."""
        if self.gram.kind == "identity":
            return 1.0
        return float(to_numpy(self.delta).max()) / self.least_delta

    @property
    def scale(self) -> Array:
        """G's diagonal."""
        if self.gram.kind == "identity":
            return 0.0 * self.delta + 1.0
        return self.least_delta / self.delta

    @property
    def weight(self) -> Array:
        """``c / d``."""
        return self.delta if self.gram.kind == "identity" else self.least_delta * self.scale

    def initial_residual(self) -> Array:
        """``z_1 = F(tau I) - b``."""
        return self.tau * self.rows.nonzero - self.b

    def matrix(self, c: Array) -> SensedMatrix:
        """``tau I - F*(c)``."""
        return SensedMatrix(MeasuredForm(self.tau, c, self.rows))


@dataclass(frozen=True)
class State:
    """All that a method carries between strides; written down, it is a checkpoint.

    Attributes
    ----------
    iteration : int
        Steps taken.
    y, d : arrays of shape (m,)
        Residual ratios and coefficients (see `Problem`).
    top : float
        ``max|y|``, as maintained: 1 or less means that the tolerance seems met.
    goal : float
        What `top` must come down to (below 1 where rounding wants room).
    sharpness, target, c : float
        L = lam delta, the ratio that this stage aims at, step times lam.
    log_potential : float
        log Phi.
    limit : int or None
        Steps after which the paper's lemma has delivered, and a run at its constants ends.
    lemma : str
        The lemma whose constants are used, if any.
    """

    iteration: int
    y: Array
    d: Array
    top: float
    goal: float
    sharpness: float
    target: float
    c: float
    log_potential: float
    limit: int | None = None
    lemma: str = ""


class Method(Protocol):
    """One algorithm: its mathematics only, run by `quadsense.loop`."""

    name: ClassVar[str]
    options: ClassVar[frozenset[str]]

    def start(self, problem: Problem) -> State:
        """State before the first step."""

    def stride(self, problem: Problem) -> int:
        """Steps between two looks at the clock: some fraction of a millisecond's work."""

    def patience(self, problem: Problem) -> int:
        """Strides without progress that count as stalled."""

    def advance(self, problem: Problem, state: State, steps: int) -> State:
        """At most so many steps on; `state` is left as it was."""

    def correct(self, problem: Problem, state: State, z: Array, goal: float) -> State:
        """The same iterate with its residual as recomputed from the data, and another goal."""

    def coefficients(self, problem: Problem, state: State) -> Array:
        """``c`` of ``A = tau I - F*(c)``."""

    def matrix(self, problem: Problem, state: State) -> SensedMatrix:
        """A of the state."""


def option_names() -> list[str]:
    """Every option that some method knows."""
    return [entry.name for entry in fields(Options)]


def first_state(problem: Problem, batch_size: int | None = None) -> State:
    """State at ``A_1 = tau I`` with the schedule's constants [QSZ24, Alg. 1-4, line 1-3]."""
    options = problem.options
    y = problem.initial_residual() / problem.delta
    top = float(abs(to_numpy(y)).max())
    base = theory.sharpness(problem.m)
    fixed: dict[str, Any] = {}
    if options.schedule == "paper":
        lemma = theory.schedule(
            m=problem.m,
            radius=top,
            delta=1.0,
            batch_size=batch_size,
            failure=options.failure,
            c=theory.PAPER_C if options.c is None else options.c,
            spread=problem.spread,
            orthonormal=problem.gram.kind == "identity",
        )
        sharpness, target = lemma.lam, 1.0
        c = theory.PAPER_C
        fixed = {"limit": lemma.iterations, "lemma": lemma.lemma}
    else:
        target = max(1.0, 0.5 * top)
        sharpness, c = base / target, 1.0
    if options.lam is not None:
        sharpness, target = options.lam * problem.least_delta, 1.0
    if options.c is not None:
        c = options.c
    if options.step is not None:
        share = 1.0 if batch_size is None else batch_size / problem.m
        c = options.step * (sharpness / problem.least_delta) / share
    return State(
        iteration=0,
        y=y,
        d=0.0 * y,
        top=top,
        goal=1.0,
        sharpness=sharpness,
        target=target,
        c=c,
        log_potential=float("nan"),
        **fixed,
    )
