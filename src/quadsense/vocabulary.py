"""The words that every part shares: how a solve ended, what is claimed, the verdict in numbers.

Only numbers, names and advice; `view.words` alone makes sentences of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector


class Status(StrEnum):
    """How a solve ended."""

    MET = "met"
    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    LOCAL = "local"
    UNDECIDED = "undecided"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"

    @property
    def success(self) -> bool:
        """Whether the question was answered with a fit: MET or OPTIMAL."""
        return self in (Status.MET, Status.OPTIMAL)


@dataclass(frozen=True)
class History:
    """One entry per stride, the start included; every array has the same length.

    Attributes
    ----------
    iteration : ndarray of int
    seconds : ndarray
    max_residual, max_ratio : ndarray
        ``max|z_i|`` and ``max|z_i|/delta_i``, as maintained.
    log_potential : ndarray
        log Phi at the sharpness of that moment.
    lam, step : ndarray
        The paper's lambda (the sharpest row's) and epsilon, for unit rows.
    sharpness : ndarray
        ``lam * delta``: log Phi bounds the worst ratio by ``arccosh(Phi)/sharpness``.
    """

    iteration: npt.NDArray[np.int64]
    seconds: Vector
    max_residual: Vector
    max_ratio: Vector
    log_potential: Vector
    lam: Vector
    step: Vector
    sharpness: Vector

    def __len__(self) -> int:
        """Number of entries."""
        return int(self.iteration.size)

    def __repr__(self) -> str:
        """How many entries, and where they end."""
        last = f", last iteration {int(self.iteration[-1])}" if len(self) else ""
        return f"<History of {len(self)} entries{last}>"


@dataclass(frozen=True)
class Reason:
    """Why a run ended as it did.

    Attributes
    ----------
    code : str
        One that `view.words.REASONS` knows; "said" for the words of a method from elsewhere.
    numbers : dict
        Numbers and names that go with it.
    """

    code: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


def because(code: str, **numbers: Any) -> Reason:
    """The reason of that code, with its numbers: plain ones, that a file can hold."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in numbers.items()}
    return Reason(code, plain)


Why: TypeAlias = Reason | str | None
"""A reason; a method that the package does not know gives it in words of its own."""


def to_reason(why: Why) -> Reason | None:
    """The reason behind either; None where there is none."""
    if isinstance(why, str):
        return because("said", text=why) if why else None
    return why


@dataclass(frozen=True)
class Claim:
    """What a method says of its state. The loop has it checked before anybody hears of it.

    Attributes
    ----------
    kind : {"met", "optimal", "infeasible", "local", "inconsistent", "undecided", "stalled"}
        Within tolerance; the smallest worst error, to the gap; no matrix fits; at rest, where
        nothing better is near; least squares does not fit, so another method should look; neither
        shown nor refuted and no further progress; nothing moves any more.
    reason : Reason, str or None
        Where the kind alone does not say it.
    dual : ndarray of shape (m,), optional
        With "infeasible" and "optimal": the vector of the lower bound, for the unit rows.
    lower : float
        Lower bound on the best ratio that goes with `dual`.
    """

    kind: str
    reason: Why = None
    dual: Vector | None = None
    lower: float = 0.0


@dataclass(frozen=True)
class Row:
    """One measurement and what A reads there, in the user's units.

    Attributes
    ----------
    index : int
    size : float
        Of its residual; of an interval, where so named, how far it is missed.
    reading, tolerance : float or None
        b and delta, where these were given.
    lo, hi : float or None
        The ends of the interval, where that was given and has them.
    """

    index: int
    size: float
    reading: float | None = None
    tolerance: float | None = None
    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True)
class Advice:
    """What to try.

    Attributes
    ----------
    code : {"psd"}
        Give ``psd=True``: A has a negative eigenvalue though no reading is negative.
    number : float
        What it rests on: that eigenvalue.
    """

    code: str
    number: float


@dataclass(frozen=True)
class Verdict:
    """All that there is to say of a solve, in numbers, names and advice.

    Attributes
    ----------
    status : Status
    claim : {"met", "optimal", "infeasible", "spectral", "none"}
        The kind of claim that the certificate makes.
    asked : {"delta", "bounds", "least", "accuracy"}
        Given were readings and tolerances; intervals; no tolerance, so that the smallest worst
        error was sought; or an oracle and an accuracy.
    psd : bool
        Whether only positive semidefinite matrices were meant.
    measurements, set_aside, allowed : int
        How many there are, how many of them were left out, how many might be.
    even : bool
        Whether one delta was given for all.
    over : int
        How many, of those not set aside, are over their tolerance or out of their interval.
    worst, nearest : Row
        The largest residual; the row nearest to its tolerance, or furthest over it.
    missed : Row or None
        With intervals: the one missed by most.
    contradiction : Row or None
        A row of zeros that nothing can read as asked, if there is one.
    lower_bound, upper_bound : float
        On the best worst ratio to the tolerance (asked for the least error: on that error).
    condition : str
        What the lower bound takes for granted, if anything.
    least_miss, most_miss : float
        With intervals none of which can all be met: some interval is missed by at least this much
        (proved), and by no more for some matrix, infinite where none is known.
    exact_fit : bool
        Asked for the least error: whether it is zero up to rounding.
    unique : bool or None
        Whether the measurements determine A; None where that was not computed.
    unseen, unknowns : int or None, int
        Dimensions of A that no measurement sees, of how many. Among matrices of a given rank: the
        free ones of `directions`.
    exact : bool
        Whether `unseen` is the number; otherwise it is a lower bound.
    directions : int
        Of a given rank: real dimensions of the matrices of that rank near A. Otherwise 0.
    rank_seconds : float
        About how long it takes to compute `unique` where it was not computed, infinite where it is
        never computed.
    suspects : tuple of int
        Rows that contradict each other, with `blamed`, or carry most of a contradiction: see
        `irreducible`. The heaviest first.
    reason : Reason or None
        Why nothing was decided, or why the preference of a fit was not certified.
    advice : tuple of Advice
    prefer : str
        Which A was wanted: a value of `prefer`, or "slack_max", "slack_sum", "slack_squares".
    wanted : str
        What was asked for where it was not found, so that `prefer` is another; otherwise empty.
    ridge : float
        Weight of the pull in the objective, 0 without a pull: see `Preference.ridge`. Where columns
        of U are scaled it is that of the scaled unknown.
    objective, objective_lower, objective_upper : float or None
        What A costs by that, and bounds on the best value; None where any fit was wanted.
    optimal : bool or None
        Whether the preference is certified; None where there is none, or that was not looked into.
    objective_condition : str
        What the bound takes for granted, if anything.
    broken : tuple of str
        Linear constraints that A does not hold.
    blamed : tuple of str
        Linear constraints that are named with `suspects`.
    irreducible : bool or None
        Of `suspects` and `blamed`: None where they carry most of a contradiction, otherwise they
        contradict each other by themselves, and each of them was proved to be needed for that, or
        not all.
    without : tuple of str
        Those of them, "row 3" or the name of a constraint, without any one of which some matrix was
        proved to meet all other rows and constraints.
    interpolates : bool
        Whether there are no more readings than unknowns and no tolerance: nearly any would fit.
    hard : bool
        Whether constraints and equalities alone contradict each other.
    operator_error : float or None
        Where the probes are the user's own functions: the relative error that they are said not to
        exceed, beyond inner products', on which all that is claimed rests.
    fitted : {"", "optimal", "local"}
        Where nothing fits: A is the least-squares fit, which is certified, or of low rank and at
        rest; empty where A is the matrix of `upper_bound`, and wherever something fits.
    """

    status: Status
    claim: str
    asked: Literal["delta", "bounds", "least", "accuracy"]
    psd: bool
    measurements: int
    set_aside: int
    allowed: int
    even: bool
    over: int
    worst: Row
    nearest: Row
    missed: Row | None
    contradiction: Row | None
    lower_bound: float
    upper_bound: float
    condition: str
    least_miss: float
    exact_fit: bool
    unique: bool | None
    unseen: int | None
    unknowns: int
    exact: bool
    suspects: tuple[int, ...] = ()
    reason: Reason | None = None
    advice: tuple[Advice, ...] = ()
    prefer: str = "any"
    wanted: str = ""
    ridge: float = 0.0
    objective: float | None = None
    objective_lower: float | None = None
    objective_upper: float | None = None
    optimal: bool | None = None
    objective_condition: str = ""
    broken: tuple[str, ...] = ()
    blamed: tuple[str, ...] = ()
    interpolates: bool = False
    hard: bool = False
    operator_error: float | None = None
    fitted: str = ""
    most_miss: float = math.inf
    directions: int = 0
    rank_seconds: float = 0.0
    irreducible: bool | None = field(default=None, metadata={"later": True})
    without: tuple[str, ...] = ()

    @property
    def kept(self) -> int:
        """Measurements that are not set aside."""
        return self.measurements - self.set_aside
