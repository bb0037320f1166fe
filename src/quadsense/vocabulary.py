"""The words that every part shares: how a solve ended and why, and what a check found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from enum import StrEnum
from typing import Any, TypeAlias

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
        """Return the number of entries."""
        return int(self.iteration.size)

    def __repr__(self) -> str:
        """Return how many entries, and where they end."""
        last = f", last iteration {int(self.iteration[-1])}" if len(self) else ""
        return f"<History of {len(self)} entries{last}>"


NAMES = [each.name for each in fields(History)]
WIDTH, RATIO = len(NAMES), NAMES.index("max_ratio")
"""Numbers of an entry, and which of them is the worst ratio."""


def to_history(rows: list[tuple[float, ...]]) -> History:
    """Return the history of these entries, each with the numbers of `History` in their order."""
    columns = np.array(rows, dtype=np.float64).reshape(-1, WIDTH).T
    return History(columns[0].astype(np.int64), *columns[1:])


@dataclass(frozen=True)
class Reason:
    """Why a run ended as it did.

    Attributes
    ----------
    code : str
        One of `REASONS`; "said" for the words of a method from elsewhere.
    numbers : dict
        Numbers and names that go with it.
    """

    code: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the reason in words."""
        return REASONS[self.code](**self.numbers)

    @property
    def parts(self) -> tuple[str, str]:
        """Why, and what the reason says to try, which may be empty."""
        said, _, hint = str(self).partition(": ") if self.code in HINTING else (str(self), "", "")
        return said, hint


def because(code: str, **numbers: Any) -> Reason:
    """Return the reason of that code, with its numbers as plain ones, which a file can hold."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in numbers.items()}
    return Reason(code, plain)


Why: TypeAlias = Reason | str | None
"""A reason; a method that the package does not know gives it in words of its own."""


def to_reason(why: Why) -> Reason | None:
    """Return the reason behind either; None where there is none."""
    if isinstance(why, str):
        return because("said", text=why) if why else None
    return why


@dataclass(frozen=True)
class Claim:
    """What a method says of its state. The loop has it checked before it is reported.

    Attributes
    ----------
    kind : {"met", "optimal", "infeasible", "local", "inconsistent", "undecided", "stalled"}
        Within tolerance; the smallest worst error, to the gap; no matrix fits; stationary, where
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
class Check:
    """One statement of a claim, whether it holds, and what it was compared with.

    Attributes
    ----------
    statement : str
        What is claimed.
    holds : bool
        Whether it holds.
    detail : str
        What it was compared with; it may be empty.
    """

    statement: str
    holds: bool
    detail: str = ""

    def __str__(self) -> str:
        """Return the line of a report."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{'true ' if self.holds else 'FALSE'} {self.statement}{detail}"


@dataclass(frozen=True)
class Verification:
    """All that was checked; true only if every statement holds."""

    checks: tuple[Check, ...]

    @property
    def true(self) -> bool:
        """Whether every statement holds."""
        return all(check.holds for check in self.checks)

    def __bool__(self) -> bool:
        """Return whether every statement holds."""
        return self.true

    def __str__(self) -> str:
        """Return one line per statement."""
        return "\n".join(str(check) for check in self.checks)

    def __repr__(self) -> str:
        """Return whether all hold, and how many statements there are."""
        return f"<Verification {'true' if self.true else 'FALSE'}: {len(self.checks)} checks>"

    def __add__(self, other: Verification) -> Verification:
        """Return both together."""
        return Verification(self.checks + other.checks)


# --- reasons in words, by code ------------------------------------------------------------------


def rounded_up(value: float, digits: int = 4) -> str:
    """Return the least number of that many digits that is at least the value."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """Return the largest number of that many digits that is at most the value."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    found = Context(prec=digits, rounding=rounding).create_decimal(Decimal(float(value)))
    return f"{float(found):.{digits}g}"


def counted(number: int, noun: str) -> str:
    """Return a number of things, in words."""
    return f"{number} {noun}" + "s" * (number > 1)


def _rounding(part: float) -> str:
    return (
        f"rounding alone is {part:.2g} of the tolerance: float64 cannot certify a delta this "
        "small; raise delta"
    )


def _slow(share: float, strides: int, ratio: float, method: str) -> str:
    return (
        f"the max residual has not fallen by {share:.1%} in {strides} strides (worst ratio "
        f"to delta {ratio:.3g}): either no matrix meets this delta, and a "
        f"larger one is needed, or '{method}' is too slow for rows as nearly "
        "dependent as these; method='auto' finds out which"
    )


def _bounds_apart(lower: float, upper: float, of: str) -> str:
    what = {"error": "the smallest worst error", "ratio": "the best ratio to delta"}[of]
    return (
        f"rounding stops the interior-point method between the bounds {lower:.6g} and "
        f"{upper:.6g} on {what}"
    )


def _no_factor(
    starts: int, ratio: float, rounding: float, no_rank_fits: bool, may_grow: bool
) -> str:
    """Return what to try where no fit of that rank was found, which proves nothing."""
    begun = "1 start" if starts == 1 else f"{starts} starts"
    head = f"no fit found from {begun} (worst ratio {ratio:.3g})"
    if rounding >= 1.0:
        return f"{head}, and {_rounding(rounding)}"
    if no_rank_fits:
        return f"{head}, and no higher rank comes nearer: a larger delta may help"
    helps = "more starts (max_restarts)" + ", a larger rank" * may_grow + " or a larger delta"
    return f"{head}, which proves nothing: {helps} may help"


def _reached(seconds: float | None) -> str:
    """Return what ended the work: that limit in seconds, or the user if it is None."""
    return "interrupted" if seconds is None else f"time_limit = {seconds} s was reached"


def _no_set(allowed: int, ended: str, seconds: float | None = None, most: int | None = None) -> str:
    over = {
        "search": "no such set found",
        "interrupted": "interrupted by the user",
        "callback": "stopped by the callback",
        "time_limit": f"time_limit = {seconds} s is over",
        "max_iter": f"no such set found by fits of max_iter = {most} iterations",
    }[ended]
    few = counted(allowed, "measurement")
    return f"whether it is enough to set {few} aside is not known: {over}"


def _out_of_time(seconds: float | None, after: float | None = None) -> str:
    if after is None:
        return f"stopped after time_limit = {seconds} s"
    return f"stopped after {after:.2g} s: the next step would exceed time_limit = {seconds} s"


REASONS: dict[str, Any] = {
    "said": lambda text: text,
    "interrupted": lambda: "interrupted by the user",
    "callback": lambda: "stopped by the callback",
    "max_iter": lambda most: f"stopped after max_iter = {most} iterations",
    "lemma": lambda most, lemma: f"the {most} iterations of {lemma} are over",
    "time_limit": _out_of_time,
    "slow": _slow,
    "passes": lambda passes, ratio: (
        f"the residuals fall no more after {passes} passes over the rows (worst ratio to delta "
        f"{ratio:.3g}): whether any matrix meets delta, method='minimax' decides"
    ),
    "still": lambda: "rounding keeps the method from moving any further: raise delta",
    "rounding": _rounding,
    "least_squares": lambda: (
        "the least-squares fit does not meet delta: whether any matrix does, "
        "method='minimax' decides"
    ),
    "residuals_rounded": lambda: (
        "rounding stops the conjugate residuals before delta is met"
    ),
    "bounds_apart": _bounds_apart,
    "neither_closes": lambda: (
        "rounding keeps both a fit and a proof that there is none from closing: raise delta"
    ),
    "psd_between": lambda lower, upper: (
        "the best ratio to delta of a positive semidefinite matrix lies between "
        f"{lower:.6g} and {upper:.6g}"
    ),
    "no_answer": lambda how: {
        "stalled": "rounding stops the interior-point method before the question is answered",
        "infeasible": "as computed nothing fits, which is not proved",
        "unbounded": "as computed there is no least objective: what is asked leaves A free",
    }[how],
    "gap_open": lambda: "the two bounds did not close to the gap",
    "no_factor": _no_factor,
    "at_rest": lambda starts: (
        f"least squares is stationary, the best of {starts} start{'s' * (starts > 1)}, and whether "
        "another matrix of this rank does better is not known"
    ),
    "restless": lambda starts: (
        f"least squares was not brought to rest from {starts} start{'s' * (starts > 1)}: more "
        "starts (max_restarts), or rows and readings of less uneven sizes, may help"
    ),
    "no_set": _no_set,
    "no_bound": lambda seconds: (
        f"{_reached(seconds)} before the bound on the objective was proved"
    ),
    "no_proof": lambda claimed, seconds: (
        f"{_reached(seconds)} before the proof that it is {claimed} was complete"
    ),
    "unproved": lambda claimed: (
        f"that it is {claimed} could not be proved from the data, rounding included"
    ),
}  # fmt: skip
"""Sentences of the reasons, from the numbers that go with each."""

HINTING = frozenset(
    {
        "slow", "passes", "still", "rounding", "least_squares", "neither_closes", "no_factor",
        "restless",
    }
)  # fmt: skip
"""Reasons whose sentence goes on, after a colon, with what to try."""
