"""Which A is wanted of those that fit: what can be preferred, what was, and the question of that.

`KINDS` declares each way to prefer an A; checks, words and the choice of methods go by these.

A `Preference` is what a result keeps and what `verify` makes the question from again, on the data
that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import TINY, Intervals
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.core.row_terms import RowTerm
from quadsense.core.smooth_terms import ROW_TERMS
from quadsense.measurements import Measurements


class MatrixTerm(Enum):
    """What A itself costs, in addition to its readings."""

    NONE = "nothing"
    RIDGE = "a multiple, which may be 0, of its squared distance from the prior"
    DISTANCE = "its squared distance from the prior alone"
    ENTROPY = "a multiple of its relative entropy to the prior"
    LOG_DET = "minus the logarithm of its determinant, among positive semidefinite matrices"
    TRACE = "its trace"


@dataclass(frozen=True)
class PreferenceKind:
    """One way to prefer an A: all that distinguishes it from the others.

    Attributes
    ----------
    name : str
        A value of `prefer`, or "slack_" and a value of `slack`.
    term : str
        What a reading costs, a name of `ROW_TERMS`.
    value : str
        What the value of the objective is called; empty where nothing is preferred.
    chosen : str
        What A is called among those that fit, or the name where empty.
    with_ridge : (str, str)
        The two where there is a ridge.
    matrix : MatrixTerm
        What A costs.
    slack : str
        The value of `slack` that asks for it.
    ratios : bool
        Whether readings cost their errors over their tolerances, which then are no intervals.
    counts : bool
        Whether readings are counts, of shots or exposures.
    needs_tolerance, needs_cone : bool
        What must be given.
    takes_tolerance, takes_prior, takes_ridge, takes_rank : bool
        What may be given.
    upwards : bool
        Whether what is reported is the larger the better.
    otherwise : str
        What is preferred instead where there is no such A, if that is known to happen.
    """

    name: str
    term: str
    value: str = ""
    chosen: str = ""
    with_ridge: tuple[str, str] = ("", "")
    matrix: MatrixTerm = MatrixTerm.NONE
    slack: str = ""
    ratios: bool = False
    counts: bool = False
    needs_tolerance: bool = False
    needs_cone: bool = False
    takes_tolerance: bool = True
    takes_prior: bool = False
    takes_ridge: bool = False
    takes_rank: bool = False
    upwards: bool = False
    otherwise: str = ""

    @cached_property
    def row_term(self) -> RowTerm:
        """What a reading costs."""
        return ROW_TERMS[self.term]

    @cached_property
    def by_norm(self) -> bool:
        """Whether A is measured by a norm of its own, which scaled columns would change."""
        return self.matrix in (MatrixTerm.DISTANCE, MatrixTerm.TRACE)

    @property
    def said(self) -> str:
        """The argument that asks for it."""
        return f"slack={self.slack!r}" if self.slack else f"prefer={self.name!r}"


KINDS = {
    kind.name: kind
    for kind in (
        PreferenceKind(
            "least_squares", "squares", "sum of squares", "least squares",
            ("regularized sum of squares", "regularized least squares"), MatrixTerm.RIDGE,
            takes_prior=True, takes_ridge=True, takes_rank=True,
        ),
        PreferenceKind(
            "likelihood", "likelihood", "deviance", "maximum likelihood, deviance", counts=True,
            takes_tolerance=False,
        ),
        PreferenceKind(
            "entropy", "squares", "sum of squares with relative entropy",
            "least squares, regularized by relative entropy", matrix=MatrixTerm.ENTROPY,
            needs_cone=True, takes_prior=True, otherwise="least_squares",
        ),
        PreferenceKind(
            "nearest", "within", "distance from the prior", "nearest to the prior, distance",
            matrix=MatrixTerm.DISTANCE, needs_tolerance=True, takes_prior=True,
        ),
        PreferenceKind(
            "center", "center", "sum of logarithms", "analytic center, sum of logarithms",
            matrix=MatrixTerm.LOG_DET, needs_tolerance=True, upwards=True, otherwise="nearest",
        ),
        PreferenceKind(
            "min_trace", "within", "trace", "least trace",
            matrix=MatrixTerm.TRACE, needs_tolerance=True, needs_cone=True,
        ),
        PreferenceKind(
            "minimax", "slack_max", "worst ratio", "smallest worst ratio", ratios=True
        ),
        PreferenceKind("any", "within", needs_tolerance=True, takes_rank=True),
        PreferenceKind("slack_max", "slack_max", "largest weighted miss", slack="max"),
        PreferenceKind("slack_sum", "slack_sum", "sum of weighted misses", slack="sum"),
        PreferenceKind(
            "slack_squares", "slack_squares", "sum of weighted squares of misses", slack="squares"
        ),
    )
}  # fmt: skip
"""Everything that can be preferred, by name."""

PREFERENCES = tuple(kind.name for kind in KINDS.values() if not kind.slack)
"""The values of `prefer` other than "auto"."""

SLACKS = tuple(kind.slack for kind in KINDS.values() if kind.slack)
"""The values of `slack`."""

AUTO = PreferenceKind("auto", "within", takes_prior=True, takes_ridge=True, takes_rank=True)
"""What may be asked for before it is known what "auto" prefers."""


_NAMED = {AUTO.name: AUTO, **KINDS}


def kind_named(name: str) -> PreferenceKind:
    """Return the kind of that name; of one that is not known nothing is said."""
    return _NAMED.get(name) or PreferenceKind(name, "within", name)


def names_that(take: Callable[[PreferenceKind], bool]) -> tuple[str, ...]:
    """Return the names of the kinds of which that holds."""
    return tuple(kind.name for kind in KINDS.values() if take(kind))


MIN_FAR_RATIO = 1e6
"""An end this many times as far from 0 as all that is asked of A is rarely reached."""

MAX_KEPT_ROWS = 2**16
"""Rows up to which a question is kept for those who ask for it again: it takes no memory to speak
of."""


@dataclass(frozen=True)
class Preference:
    """Which A is wanted.

    Attributes
    ----------
    name : str
        One of `KINDS`.
    psd : bool
        Among the positive semidefinite matrices.
    target : bool
        Whether there is a tolerance.
    ridge : float
        ``ridge ||A - prior||_F^2`` is added, or relative to an entropy
        ``ridge (tr(prior^-1 A) - log det A)``, without the trace where `fixed`.
    fixed : bool
        Whether the trace of A is given.
    tau : float
        The prior is ``tau I + base``.
    base : ndarray of shape (n, n) or None
    weights : ndarray of shape (m,) or None
        One per reading, as given. Of counts exposures or shots: readings times these are counts.
    poisson : bool
        Whether counts are Poisson numbers, of exposures; otherwise shares of
        shots.
    background : ndarray of shape (m,) or None
        What is counted without A, in units of readings.
    """

    name: str
    psd: bool = False
    target: bool = True
    ridge: float = 0.0
    tau: float = 0.0
    base: Array | None = None
    weights: Vector | None = None
    fixed: bool = False
    poisson: bool = False
    background: Vector | None = None

    @property
    def kind(self) -> PreferenceKind:
        """All that follows from the name."""
        return _NAMED.get(self.name) or kind_named(self.name)

    @property
    def slack(self) -> bool:
        """Whether intervals may be missed, at a price."""
        return bool(self.kind.slack)

    @property
    def worst_error(self) -> bool:
        """Whether it is the smallest worst ratio of an error to its tolerance."""
        return self.kind.ratios

    @property
    def refutes(self) -> bool:
        """Whether a value above 1 says that nothing fits."""
        return self.kind.ratios and self.target

    @property
    def upwards(self) -> bool:
        """Whether what is reported is the larger the better: the sum of logarithms."""
        return self.kind.upwards

    @property
    def unit(self) -> float:
        """What the value of the question is times, to be reported."""
        return self.ridge if self.kind.matrix is MatrixTerm.ENTROPY else 1.0

    @property
    def prior(self) -> Array | float:
        """The matrix that A is to be near to."""
        if self.base is None:
            return float(self.tau)
        return to_numpy(self.base) + self.tau * np.eye(len(self.base))

    def reported(self, cost: float) -> float:
        """What the user reads for the value of the question: a distance for its square."""
        kind = self.kind
        if kind.matrix is MatrixTerm.DISTANCE:
            return math.sqrt(max(cost, 0.0))
        if kind.matrix is MatrixTerm.ENTROPY:
            return self.unit * cost
        return -cost if kind.upwards else cost


def make_question(
    data: Measurements,
    preference: Preference,
    *,
    unit: bool = False,
    relative: bool = False,
    strict: bool = False,
) -> Question | None:
    """The question on the user's rows, or on the unit rows; None where any fit will do.

    Parameters
    ----------
    data : Measurements
        With intervals (or a unit of error, where there is no tolerance), constraints included.
    preference : Preference
    unit : bool
        On rows of unit norm, which methods see. There a row of zeros, which reads 0 whatever A is,
        is asked for nothing.
    relative : bool
        Weights of squares that would overflow are all taken over the largest: for methods that
        only compare them, and have no other term.
    strict : bool
        Weights of squares below float64's range, or of fewer digits there, are infinite, so that a
        sum which would leave them out is known to be none.
    """
    kind = preference.kind
    if not kind.value:
        return None
    if not kind.row_term.squares:
        rows = _rows_of(data, preference, unit, relative, strict)
    else:  # each kind is made once: the same rows are asked for by the choice, the method, proofs
        key = (unit, relative, strict, preference.target)
        known = data.squares.get(key)
        if known is None or known[0] is not preference.weights:
            rows = _rows_of(data, preference, unit, relative, strict)
            known = (preference.weights, rows)
            if data.m <= MAX_KEPT_ROWS:
                data.squares[key] = known
        rows = known[1]
    lo, hi, weights, reading, hard = rows
    slope: Vector | float = 0.0
    if kind.counts:
        lo, hi, weights, reading, slope = _counted(data, preference, unit, hard, lo, hi)
    matrix, prior = kind.matrix, preference.prior
    C: Array | float = float(matrix is MatrixTerm.TRACE)
    alpha, log_det = float(matrix is MatrixTerm.DISTANCE), False
    if matrix is MatrixTerm.RIDGE:
        alpha = preference.ridge
    elif matrix is MatrixTerm.LOG_DET:
        log_det = preference.psd
    elif matrix is MatrixTerm.ENTROPY:
        log_det, weights = True, weights / preference.ridge
        if not preference.fixed:
            C = 1.0 / prior if isinstance(prior, float) else np.linalg.inv(prior)
    return Question(
        rows=kind.term,
        lo=lo,
        hi=hi,
        weights=weights,
        reading=reading,
        hard=hard,
        C=C,
        alpha=alpha,
        prior=prior,
        psd=preference.psd,
        log_det=log_det,
        slope=slope,
    )


def _counted(
    data: Measurements, preference: Preference, unit: bool, hard: Any, lo: Vector, hi: Vector
) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    """Return lo, hi, weights, readings and slopes of counts.

    With counts ``k = w b`` and w the exposure, or with slope 0 the shots, of a row: the deviance is
    ``2 sum (w v - k) - k log(w (v + background)/k)``.
    """
    m, count = data.m, data.measured
    shots, base = np.zeros(m), np.zeros(m)
    shots[:count] = 1.0 if preference.weights is None else preference.weights
    if preference.background is not None:
        base[:count] = preference.background
    squares = np.ones(m)
    if unit:
        norms = to_numpy(data.unit_rows.norms)
        squares = np.where(to_numpy(data.unit_rows.nonzero) > 0.0, norms * norms, 1.0)
    counts = ~hard
    counts[count:] = False
    given = data.readings if data.from_bounds and data.readings is not None else data.b
    b = np.zeros(m)
    b[:count] = np.maximum(to_numpy(given)[:count], 0.0)
    shots = np.where(counts, shots, 0.0)
    weights = 2.0 * shots * b
    slope = 2.0 * shots * squares if preference.poisson else np.zeros(m)
    lo, hi = np.where(counts, -base / squares, lo), np.where(counts, np.inf, hi)
    reading = np.where(counts, (np.where(weights > 0.0, b, 0.0) - base) / squares, 0.0)
    return lo, hi, weights, reading, slope


def _rows_of(
    data: Measurements, preference: Preference, unit: bool, relative: bool, strict: bool
) -> tuple[Vector, Vector, Vector, Vector, Any]:
    """Return `lo`, `hi`, `weights`, `reading` and `hard` of the question."""
    kind = preference.kind
    term = kind.row_term
    ends = data.unit_ends if unit else data.ends
    assert ends is not None
    target, m = preference.target, data.m
    norms: Any = None  # 1
    dead = None
    if unit:
        norms = to_numpy(data.unit_rows.norms)
        if data.unit_rows.has_zero_rows:
            dead = to_numpy(data.unit_rows.nonzero) == 0.0
            norms = np.where(dead, 1.0, norms)
    lo, hi = ends.lo, ends.hi
    if not target:
        lo[: data.measured], hi[: data.measured] = -np.inf, np.inf
    # Intervals that are the same by rounding alone are equal to methods, not to what is claimed.
    hard = lo == hi if unit else (lo == hi) & ends.exact
    hard[data.measured :] = True
    if term.squares:
        weights, reading = _squares(data, preference, hard, ends, norms, relative, strict)
    else:
        weights, reading = np.zeros(m), np.zeros(m)
    if kind.slack:
        weights[~hard] = (
            1.0 if preference.weights is None else preference.weights[~hard[: data.measured]]
        )
        with np.errstate(over="ignore", under="ignore"):
            squares = 1.0 if norms is None else norms * norms
            weights = weights * squares
            weights = weights * squares if term.power > 1 else weights
    elif kind.ratios:
        two = ~hard & (np.isfinite(lo) & np.isfinite(hi) if target else True)
        hard = hard | ~two
        with np.errstate(over="ignore", under="ignore"):
            middle = ends.middle() if target else _over(to_numpy(data.b), norms)
            lo[two] = hi[two] = middle[two]
            weights[two] = 1.0 / ends.unit[two]
    if dead is not None:
        lo[dead], hi[dead], weights[dead], reading[dead] = -np.inf, np.inf, 0.0, 0.0
        hard = hard & ~dead
    return lo, hi, weights, reading, hard


def _over(values: Vector, norms: Any) -> Vector:
    """Values over squared norms, which are 1 where None."""
    return values if norms is None else values / norms / norms


def without_far_ends(question: Question) -> tuple[Question, npt.NDArray[np.bool_]]:
    """Return the question without the ends that are far beyond all that is asked of A.

    Methods take their units from the ends. Which rows have lost an end is told too; some terms, as
    that of the analytic center, depend on every one.
    """
    lo, hi = question.lo, question.hi
    most = float(np.maximum(lo, -hi).max(initial=0.0))
    if most > 0.0 and question.term.squares:
        most = max(most, float(np.abs(question.reading).max(initial=0.0)))
    if most > 0.0 and (question.alpha or question.log_det):
        prior = question.prior
        entries = prior if isinstance(prior, float) else len(prior) * float(np.max(np.abs(prior)))
        most = max(most, abs(entries))
    most *= MIN_FAR_RATIO
    if most > 0.0 and float(np.maximum(hi, -lo).max(initial=0.0)) <= most:
        return question, np.zeros(question.m, bool)  # as most often: no end is so far
    far = (hi > most) & (hi < np.inf), (lo < -most) & (lo > -np.inf)
    rows = far[0] | far[1]
    if most == 0.0 or question.term.every_end or not rows.any():
        return question, np.zeros(question.m, bool)
    lo, hi = np.where(far[1], -np.inf, lo), np.where(far[0], np.inf, hi)
    return replace(question, lo=lo, hi=hi), rows


def _squares(
    data: Measurements,
    preference: Preference,
    hard: Any,
    ends: Intervals,
    norms: Any,
    relative: bool,
    strict: bool,
) -> tuple[Vector, Vector]:
    """Return weights and readings of least squares; both are 0 where a row is not in the sum.

    The weights are those given, otherwise ``1/half-width^2``. A row with one end has no half-width
    and no middle: it is in the sum only if both a weight and a reading are given for it.
    """
    known = ~hard
    reading = to_numpy(data.b)
    if data.from_bounds and data.readings is not None:
        reading = np.append(to_numpy(data.readings), np.zeros(data.m - data.measured))
    if preference.target:
        outright = data.from_bounds and data.readings is None
        weighted = preference.weights is not None and not outright
        # A row without ends is set aside.
        known &= ends.sides.any(axis=0) if weighted else ends.two_sided
    known[data.measured :] = False
    whole = bool(known.all())
    weights: Any = 1.0
    if preference.weights is not None:
        weights = np.append(preference.weights, np.ones(data.m - data.measured))
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        units = np.ones(data.m) if norms is None else norms * norms
        if preference.target and preference.weights is None:
            units = 1.0 / (ends.unit if whole else np.where(known, ends.unit, 1.0))
        found = weights * units * units
        if relative and not np.isfinite(found[known]).all():
            most = float(np.max(units, where=known, initial=0.0))
            found = weights * (units / most) ** 2 if np.isfinite(most) else found
        if strict:
            found[(found < TINY) & (weights > 0.0)] = np.inf
        reading = _over(reading, norms)
    if whole:
        return found, reading
    return np.where(known, found, 0.0), np.where(known, reading, 0.0)


def with_set_aside(preference: Preference, rows: Any) -> Preference:
    """The same where those readings are left out."""
    if preference.weights is None or not len(rows):
        return preference
    weights = preference.weights.copy()
    weights[rows] = 0.0
    return replace(preference, weights=weights)
