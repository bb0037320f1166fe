"""The facts of a run, and the verdict that follows from them, from the claim and from A."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.measurements import Measurements
from quadsense.result.certificate import AGREE, Certificate
from quadsense.result.values import NEGLIGIBLE, Comparison, agree, evaluate
from quadsense.typing import is_number
from quadsense.vocabulary import Check, Reason, Status

if TYPE_CHECKING:
    from quadsense.result.result import Result

NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Row:
    """One measurement and what A reads there, in the units of b.

    Attributes
    ----------
    index : int
        Its place in the data.
    size : float
        Size of its residual; of `missed`, how far the interval is missed.
    reading : float or None
        b, where it was given.
    tolerance : float or None
        delta, where it was given.
    lo : float or None
        The lower end of the interval, where that was given and has one.
    hi : float or None
        The upper end of the interval, where that was given and has one.
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
    code : {"psd", "counts", "outside"}
        Give ``psd=True``: A has a negative eigenvalue though no reading is negative. Divide counts
        by shots, or look at the units: readings lie outside their own intervals.
    number : float
        What it rests on: that eigenvalue; how many readings.
    """

    code: str
    number: float


@dataclass(frozen=True)
class Determined:
    """How far the measurements determine A.

    Attributes
    ----------
    unseen : int or None
        Dimensions of A that no measurement sees; None where that was not computed. Among matrices
        of a given rank: the free ones of `directions`.
    unknowns : int
        Dimensions of A.
    exact : bool
        Whether `unseen` is the number; otherwise it is a lower bound.
    directions : int
        Of a given rank: real dimensions of the matrices of that rank near A. Otherwise 0.
    rank_seconds : float
        About how long it takes to compute `unseen` where it was not computed, infinite where it is
        never computed.
    by_cone : bool
        Whether no other positive semidefinite matrix has the readings of A, although there are
        unseen directions.
    """

    unseen: int | None
    unknowns: int
    exact: bool
    directions: int = 0
    rank_seconds: float = 0.0
    by_cone: bool = False

    @property
    def unique(self) -> bool | None:
        """Whether the measurements determine A; None where that was not computed."""
        return None if self.unseen is None else self.unseen == 0 or self.by_cone


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run and follows neither from A nor from the claim.

    Attributes
    ----------
    asked : {"delta", "bounds", "least", "accuracy"}
        See `Verdict`, as for all that has no description here.
    determined : Determined
        How far the measurements determine A.
    sought : str
        The preference by which A was sought.
    wanted : str
        The preference that was asked for.
    exact_fit : bool
    worst, nearest : Row
    missed, contradiction : Row or None
    broken, blamed, without : tuple of str
    suspects : tuple of int
    reason : Reason or None
    advice : tuple of Advice
    operator_error : float or None
    unmeasured : int
    reached : bool
        Whether the matrix of the certificate may keep the constraints: what it misses of the
        readings is achievable only then.
    """

    asked: Literal["delta", "bounds", "least", "accuracy"]
    determined: Determined
    worst: Row
    nearest: Row
    missed: Row | None = None
    contradiction: Row | None = None
    exact_fit: bool = False
    sought: str = "any"
    wanted: str = "any"
    suspects: tuple[int, ...] = ()
    blamed: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    reason: Reason | None = None
    advice: tuple[Advice, ...] = ()
    operator_error: float | None = None
    unmeasured: int = 0
    reached: bool = True


@dataclass(frozen=True)
class Verdict:
    """All that there is to say of a solve, in numbers, names and advice.

    It is computed from the result: from A, the certificate and the facts of the run.

    Attributes
    ----------
    status : Status
        How the solve ended.
    claim : {"met", "optimal", "infeasible", "spectral", "none"}
        The kind of claim that the certificate makes.
    asked : {"delta", "bounds", "least", "accuracy"}
        Given were readings and tolerances; intervals; no tolerance, so that the smallest worst
        error was sought; or an oracle and an accuracy.
    psd : bool
        Whether only positive semidefinite matrices were meant.
    measurements : int
        How many there are.
    set_aside : tuple of int
        Which of them were left out.
    fewest : bool
        Whether it was proved that no fewer suffice.
    allowed : int
        How many might be left out.
    even : bool
        Whether one delta was given for all.
    over : int
        How many, of those not set aside, are over their tolerance or out of their interval.
    worst : Row
        The largest residual.
    nearest : Row
        The row nearest to its tolerance, or furthest over it.
    missed : Row or None
        With intervals: the one missed by most.
    contradiction : Row or None
        A row of zeros that nothing can read as asked, if there is one.
    lower_bound : float
        No matrix has a smaller worst ratio to the tolerance (asked for the least error: error).
    upper_bound : float
        Some matrix has this worst ratio to the tolerance (asked for the least error: error);
        infinite where none that keeps the constraints is known.
    condition : str
        What the lower bound takes for granted, if anything.
    least_miss : float
        With intervals none of which can all be met: some interval is missed by at least this much,
        which is proved.
    most_miss : float
        Some matrix misses none by more; infinite where none is known.
    exact_fit : bool
        Asked for the least error: whether it is zero up to rounding.
    unique : bool or None
        Whether the measurements determine A; None where that was not computed.
    unseen : int or None
        Dimensions of A that no measurement sees; None where that was not computed. Among matrices
        of a given rank: the free ones of `directions`.
    unknowns : int
        Dimensions of A.
    exact : bool
        Whether `unseen` is the number; otherwise it is a lower bound.
    suspects : tuple of int
        Rows that contradict each other, with `blamed`, or carry most of a contradiction: see
        `irreducible`. The heaviest first.
    reason : Reason or None
        Why nothing was decided, or why the preference of a fit was not certified.
    advice : tuple of Advice
        What to try.
    prefer : str
        Which A was wanted: a value of `prefer`, or "slack_max", "slack_sum", "slack_squares".
    wanted : str
        What was asked for where it was not found, so that `prefer` is another; otherwise empty.
    ridge : float
        Weight of the pull in the objective, 0 without a pull: see `Preference.ridge`. Where columns
        of U are scaled it is that of the scaled unknown.
    objective : float or None
        What A costs by `prefer`; None where any fit was wanted.
    objective_lower : float or None
        Lower bound on the best value of the objective.
    objective_upper : float or None
        Upper bound on the best value of the objective.
    optimal : bool or None
        Whether the preference is certified; None where there is none, or that was not looked into.
    objective_condition : str
        What the bounds on the objective take for granted, if anything.
    broken : tuple of str
        Linear constraints that A does not hold.
    blamed : tuple of str
        Linear constraints that are named with `suspects`.
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
    directions : int
        Of a given rank: real dimensions of the matrices of that rank near A. Otherwise 0.
    rank_seconds : float
        About how long it takes to compute `unique` where it was not computed, infinite where it is
        never computed.
    irreducible : bool or None
        Of `suspects` and `blamed`: None where they carry most of a contradiction, otherwise they
        contradict each other by themselves, and each of them was proved to be needed for that, or
        not all.
    without : tuple of str
        Those of them, "row 3" or the name of a constraint, without any one of which some matrix was
        proved to meet all other rows and constraints.
    unmeasured : int
        Measurements without a reading, or with infinite bounds: nothing is asked of them.
    constraints : int
        Linear constraints in addition to the measurements.
    """

    status: Status
    claim: Literal["met", "optimal", "infeasible", "spectral", "none"]
    asked: Literal["delta", "bounds", "least", "accuracy"]
    psd: bool
    measurements: int
    set_aside: tuple[int, ...]
    fewest: bool
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
    most_miss: float
    exact_fit: bool
    unique: bool | None
    unseen: int | None
    unknowns: int
    exact: bool
    suspects: tuple[int, ...]
    reason: Reason | None
    advice: tuple[Advice, ...]
    prefer: str
    wanted: str
    ridge: float
    objective: float | None
    objective_lower: float | None
    objective_upper: float | None
    optimal: bool | None
    objective_condition: str
    broken: tuple[str, ...]
    blamed: tuple[str, ...]
    interpolates: bool
    hard: bool
    operator_error: float | None
    fitted: Literal["", "optimal", "local"]
    directions: int
    rank_seconds: float
    irreducible: bool | None
    without: tuple[str, ...]
    unmeasured: int
    constraints: int

    @property
    def kept(self) -> int:
        """Measurements that were made and are not set aside."""
        return self.measurements - self.unmeasured - len(self.set_aside)


FROM_FACTS = (
    "asked", "worst", "nearest", "missed", "contradiction", "exact_fit", "suspects", "reason",
    "advice", "broken", "blamed", "operator_error", "without", "unmeasured",
)  # fmt: skip
"""Entries of a verdict that are those of the facts."""


def verdict_of(result: Result) -> Verdict:
    """Return what a result says of itself, in numbers, names and advice."""
    claim, facts, cost = result.certificate, result.facts, result.certificate.objective
    known, count = facts.determined, int(result.residuals.shape[0])
    bounds, least = facts.asked == "bounds", facts.asked == "least"
    width = to_numpy(claim.tolerance)[:count]
    misses = claim.misses if bounds and claim.misses is not None else (0.0, math.inf)
    prefer, fit = result.prefer, result.fit
    kind: Any = claim.kind
    return Verdict(
        status=result.status,
        claim=kind,
        psd=claim.psd,
        measurements=count,
        set_aside=tuple(claim.set_aside.tolist()),
        fewest=claim.kind == "met" and claim.dual is not None,
        allowed=claim.allowed,
        even=not (bounds or least) and bool(width[0] > 0.0 and (width == width[0]).all()),
        over=int(result.violations.size),
        lower_bound=float(claim.lower_bound),
        upper_bound=float(claim.upper_bound) if facts.reached else math.inf,
        condition=claim.condition,
        least_miss=float(misses[0]),
        most_miss=float(misses[1]),
        unique=known.unique,
        unseen=known.unseen,
        unknowns=known.unknowns,
        exact=known.exact,
        directions=known.directions,
        rank_seconds=known.rank_seconds,
        prefer=prefer,
        wanted="" if facts.wanted == prefer else facts.wanted,
        ridge=0.0 if cost is None else cost.preference.ridge,
        objective=None if cost is None else cost.value,
        objective_lower=None if cost is None else cost.lower,
        objective_upper=None if cost is None else cost.upper,
        optimal=None if cost is None else cost.closed,
        objective_condition="" if cost is None else cost.condition,
        interpolates=least and count + len(claim.constraints) <= known.unknowns,
        hard=claim.hard,
        fitted="" if fit is None else "optimal" if fit.closed else "local",
        irreducible=_irreducible(result),
        constraints=len(claim.constraints),
        **{name: getattr(facts, name) for name in FROM_FACTS},
    )


def _irreducible(result: Result) -> bool | None:
    """Return what is known of the rows that are named; see `Verdict`."""
    facts, found, count = result.facts, result.conflict, int(result.residuals.shape[0])
    if found is None:
        return None
    constraints = [each.name for each in result.certificate.constraints]
    named = [*facts.suspects, *(count + constraints.index(name) for name in facts.blamed)]
    return found.irreducible if sorted(named) == sorted(found.members.tolist()) else None


# --- gathered from the data --------------------------------------------------------------------


def gather_facts(
    data: Measurements,
    values: Comparison,
    certificate: Certificate,
    status: Status,
    determined: Determined,
    *,
    target: bool,
    named: Any = (),
    without: tuple[int, ...] = (),
    **said: Any,
) -> RunFacts:
    """Return the facts of a run.

    Parameters
    ----------
    data : Measurements
        All of them, those set aside included.
    values : Comparison
        What the answer reads.
    certificate : Certificate
    status : Status
    determined : Determined
    target : bool
        Whether there is a tolerance to meet.
    named : ndarray of int
        Rows and constraints that are named where nothing fits; constraints count on after rows.
    without : tuple of int
        Those without any one of which all others can be met.
    **said
        Fields of `RunFacts` that do not follow from the data.
    """
    assert data.ends is not None
    count, bounds = data.measured, target and data.from_bounds
    sizes, ratios = values.sizes[:count], values.ratios[:count]
    contradiction = missed = None
    zero = data.contradictions() if target and not certificate.hard else NO_ROWS
    if zero.size and zero[0] < count:
        contradiction = _row(data, int(zero[0]), sizes, target)
    if bounds:
        by = values.misses[:count]
        missed = _row(data, int(np.argmax(by)), by, target)
    broken = []
    if count < data.m:
        broken = [data.constraints[k].name for k in np.flatnonzero(~values.met[count:])]
    rows, upper = [int(row) for row in named], float(certificate.upper_bound)
    worst, nearest = int(sizes.argmax()), int(ratios.argmax())
    largest = _row(data, worst, sizes, target)
    largest_reading = float(np.abs(to_numpy(data.b)).max())
    return RunFacts(
        asked="least" if not target else "bounds" if bounds else "delta",
        determined=determined,
        worst=largest,
        nearest=largest if nearest == worst else _row(data, nearest, sizes, target),
        missed=missed,
        contradiction=contradiction,
        exact_fit=status is Status.OPTIMAL and upper <= NEGLIGIBLE * largest_reading,
        suspects=tuple(row for row in rows if row < count),
        blamed=tuple(data.constraints[row - count].name for row in rows if row >= count),
        without=tuple(_name(data, row) for row in without),
        broken=tuple(broken),
        operator_error=data.unit_rows.kind.stated,
        unmeasured=int(np.count_nonzero(~data.ends.sides[:, :count].any(axis=0))),
        **said,
    )


def keeps_constraints(data: Measurements, claim: Certificate) -> bool:
    """Return whether the matrix of a proof that nothing fits may keep the constraints."""
    if claim.kind != "infeasible" or not data.constraints:
        return True
    return not evaluate(data, claim.matrix).missed[data.measured :].any()


def _name(data: Measurements, row: int) -> str:
    """Return "row 3", or the name of a constraint."""
    return f"row {row}" if row < data.measured else data.constraints[row - data.measured].name


def _row(data: Measurements, index: int, sizes: Any, target: bool) -> Row:
    """Return one measurement, with what was given of it and nothing else."""
    size, ends = float(sizes[index]), data.ends
    assert ends is not None
    if not target:
        return Row(index, size, float(data.b[index]))
    if not data.from_bounds:
        return Row(index, size, float(data.b[index]), float(ends.unit[index]))
    lo, hi = -float(ends.below[index]), float(ends.above[index])
    return Row(index, size, lo=lo if np.isfinite(lo) else None, hi=hi if np.isfinite(hi) else None)


# --- checked ---------------------------------------------------------------------------------


def check_facts(result: Result, data: Measurements, values: Comparison) -> Iterator[Check]:
    """Compare what the facts state of A with what the data say.

    How much of A the measurements see is only checked for sense, for to find it may take longer
    than the solve; the suspects, the reason and the advice are not checked.

    Parameters
    ----------
    result : Result
        Its claim was checked already.
    data : Measurements
        With the intervals of the solve.
    values : Comparison
        What A reads there, recomputed.
    """
    claim, facts = result.certificate, result.facts
    known, cost = facts.determined, claim.objective
    target = claim.kind != "optimal" or (cost is not None and cost.preference.slack)
    if claim.hard:  # with and without a tolerance
        target = facts.asked != "least"
    again = replace(known, unknowns=data.unit_rows.unknowns)
    reached = keeps_constraints(data, claim.inside)
    found = gather_facts(data, values, claim, result.status, again, target=target, reached=reached)
    names = ["asked", "exact_fit", "contradiction", "broken", "operator_error", "unmeasured"]
    names.append("reached")
    if None in (facts.operator_error, found.operator_error):
        # The same rows, by functions there and in an array here.
        names.remove("operator_error")
    off = [name for name in names if not _same(getattr(facts, name), getattr(found, name))]
    off += [] if _makes_sense(known, again, data.m - claim.set_aside.size) else ["determined"]
    yield Check("facts", not off, f"differs in {', '.join(off)}" if off else "as stated")
    with np.errstate(invalid="ignore"):  # of what is infinite nothing is known
        spread = values.upper - values.ratios
    rows: list[tuple[Row | None, Any, Any, Any]] = [
        (facts.worst, values.sizes, values.sizes, values.error),
        (facts.nearest, values.sizes, values.ratios, spread),
    ]
    if found.missed is not None:
        rows.append((facts.missed, values.misses, values.misses, values.error))
    true = (found.missed is None) == (facts.missed is None)
    for row, sizes, largest, error in rows:
        true &= _is_at(row, data, values, sizes, largest, error, target)
    yield Check("the rows that are named", true, "recomputed, to rounding")


def _makes_sense(stated: Determined, known: Determined, readings: int) -> bool:
    """Return whether that many readings can see as much of A as is stated."""
    most, fewest = known.unknowns, max(0, known.unknowns - readings)
    if stated.directions:  # of a given rank
        fewest, most = 0, stated.directions
    possible = stated.unseen is None or fewest <= stated.unseen <= most
    return possible and stated.unknowns == known.unknowns


def _same(stated: Any, found: Any) -> bool:
    """Return whether two entries agree; numbers to rounding."""
    if isinstance(stated, Row) and isinstance(found, Row):
        return all(_same(getattr(stated, f.name), getattr(found, f.name)) for f in fields(Row))
    if is_number(stated) and is_number(found):
        return bool(agree(stated, found, AGREE * abs(found)))
    return type(stated) is type(found) and bool(stated == found)


def _is_at(
    row: Row | None,
    data: Measurements,
    values: Comparison,
    sizes: Any,
    largest: Any,
    error: Any,
    target: bool,
) -> bool:
    """Return whether the largest is at that row, up to rounding, and the row as stated."""
    count = data.measured
    if row is None or not 0 <= row.index < count:
        return False
    largest, error = largest[:count], error[:count]
    with np.errstate(invalid="ignore"):
        room = 4.0 * float(np.nan_to_num(error).max()) + AGREE * float(largest.max())
    found = _row(data, row.index, sizes, target)
    near = 4.0 * float(values.error[row.index]) + AGREE * found.size
    names = ("index", "reading", "tolerance", "lo", "hi")
    return (
        bool(agree(float(largest[row.index]), float(largest.max()), room))
        and bool(agree(row.size, found.size, near))
        and all(_same(getattr(row, name), getattr(found, name)) for name in names)
    )
