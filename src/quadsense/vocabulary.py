"""The words that every part shares: how a solve ended and why, and what a check found.

Only numbers and names; `result.words` alone makes sentences of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        One that `result.words.REASONS` knows; "said" for the words of a method from elsewhere.
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
        """Whether every statement holds."""
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
