"""The verdict in numbers: made for a result, checked against the data, read from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.measurements import Measurements
from quadsense.result.certificate import AGREE, Certificate, agree
from quadsense.result.values import Values
from quadsense.result.verification import Check
from quadsense.typing import is_number
from quadsense.vocabulary import Advice, Reason, Row, Status, Verdict

ROUGH = {
    "over", "worst", "nearest", "missed", "suspects", "reason", "advice", "blamed", "irreducible",
    "without",
}  # fmt: skip
"""Fields of a verdict that are not compared as they are."""

COMPARED = tuple(entry.name for entry in fields(Verdict) if entry.name not in ROUGH)
"""The others."""

PLAIN = (float, int, bool, str)
"""Types whose equal values agree."""

NOTHING = np.empty(0, np.int64)

EXACT = 1e-8
"""Worst error, as a part of the largest reading, that counts as none."""


@dataclass(frozen=True)
class Seen:
    """What the measurements see of A; see `Verdict`."""

    unique: bool | None
    unseen: int | None
    unknowns: int
    exact: bool
    directions: int = 0
    rank_seconds: float = 0.0


def make_verdict(
    data: Measurements,
    values: Values,
    certificate: Certificate,
    status: Status,
    seen: Seen,
    *,
    target: bool,
    prefer: str = "any",
    wanted: str = "",
    suspects: Any = (),
    reason: Reason | None = None,
    advice: tuple[Advice, ...] = (),
    fitted: str = "",
    irreducible: bool | None = None,
    without: tuple[int, ...] = (),
) -> Verdict:
    """Put the verdict together.

    Parameters
    ----------
    data : Measurements
        All of them, those set aside included.
    values : Values
        What the answer reads.
    certificate : Certificate
    status : Status
    seen : Seen
    target : bool
        Whether there is a tolerance to meet.
    prefer, wanted : str
        Which A was sought, and which was wanted where that is another.
    suspects : ndarray of int
    reason : Reason, optional
    advice : tuple of Advice
    fitted : str
    irreducible : bool, optional
    without : tuple of int
    """
    ends, count, bounds = data.ends, data.measured, target and data.from_bounds
    assert ends is not None
    sizes, ratios = values.sizes[:count], values.ratios[:count]
    contradiction = missed = None
    zero = data.contradictions() if target and not certificate.hard else NOTHING
    if zero.size and zero[0] < count:
        contradiction = _row(data, int(zero[0]), sizes, target)
    if bounds:
        by = values.misses[:count]
        missed = _row(data, int(np.argmax(by)), by, target)
    broken = []
    if count < data.m:
        broken = [data.constraints[k].name for k in np.flatnonzero(~values.met[count:])]
    objective = certificate.objective
    least, most = (0.0, np.inf) if certificate.misses is None else certificate.misses
    rows = [int(row) for row in suspects]
    upper, lower = float(certificate.upper_bound), float(certificate.lower_bound)
    worst, nearest = int(sizes.argmax()), int(ratios.argmax())
    largest = _row(data, worst, sizes, target)
    exact = status is Status.OPTIMAL and upper <= EXACT * float(np.abs(to_numpy(data.b)).max())
    return Verdict(
        status=status,
        claim=certificate.kind,
        asked="least" if not target else "bounds" if bounds else "delta",
        psd=certificate.psd,
        measurements=count,
        set_aside=int(certificate.set_aside.size),
        allowed=certificate.allowed,
        even=target and not bounds and bool((ends.unit[:count] == ends.unit[0]).all()),
        over=int(np.count_nonzero(values.over[:count])) if target else 0,
        worst=largest,
        nearest=largest if nearest == worst else _row(data, nearest, sizes, target),
        missed=missed,
        contradiction=contradiction,
        lower_bound=lower,
        upper_bound=upper,
        condition=certificate.condition,
        least_miss=least if bounds else 0.0,
        exact_fit=exact,
        unique=seen.unique,
        unseen=seen.unseen,
        unknowns=seen.unknowns,
        exact=seen.exact,
        directions=seen.directions,
        rank_seconds=seen.rank_seconds,
        suspects=tuple(row for row in rows if row < count),
        reason=reason,
        advice=advice,
        prefer=prefer if objective is None else objective.preference.name,
        wanted=wanted,
        ridge=0.0 if objective is None else objective.preference.ridge,
        objective=None if objective is None else objective.value,
        objective_lower=None if objective is None else objective.lower,
        objective_upper=None if objective is None else objective.upper,
        optimal=None if objective is None else objective.closed,
        objective_condition="" if objective is None else objective.condition,
        broken=tuple(broken),
        blamed=tuple(data.constraints[row - count].name for row in rows if row >= count),
        interpolates=not target and data.m <= seen.unknowns,
        hard=certificate.hard,
        operator_error=data.unit_rows.kind.stated,
        fitted=fitted,
        most_miss=float(most) if bounds else np.inf,
        irreducible=irreducible,
        without=tuple(_name(data, row) for row in without),
    )


def _name(data: Measurements, row: int) -> str:
    """Return "row 3", or the name of a constraint."""
    return f"row {row}" if row < data.measured else data.constraints[row - data.measured].name


def _row(data: Measurements, index: int, sizes: Any, target: bool) -> Row:
    """One measurement, with what was given of it and nothing else."""
    size, ends = float(sizes[index]), data.ends
    assert ends is not None
    if not target:
        return Row(index, size, float(data.b[index]))
    if not data.from_bounds:
        return Row(index, size, float(data.b[index]), float(ends.unit[index]))
    lo, hi = -float(ends.below[index]), float(ends.above[index])
    return Row(index, size, lo=lo if np.isfinite(lo) else None, hi=hi if np.isfinite(hi) else None)


# --- checked ---------------------------------------------------------------------------------


def check_verdict(
    verdict: Verdict, data: Measurements, values: Values, claim: Certificate, status: Status
) -> Iterator[Check]:
    """Compare all that a verdict states of A and of its bounds with what the data say.

    How much of A the measurements see is only checked for sense, for to find it may take longer
    than the solve; the suspects, the reason and the advice are not checked.

    Parameters
    ----------
    verdict : Verdict
        As stated.
    data : Measurements
        With the intervals of the solve.
    values : Values
        What A reads there, recomputed.
    claim : Certificate
        Checked already.
    status : Status
        Of the result.
    """
    unknowns = data.unit_rows.unknowns
    unique = None if verdict.unseen is None else verdict.unseen == 0
    seen = Seen(
        unique, verdict.unseen, unknowns, verdict.exact, verdict.directions, verdict.rank_seconds
    )
    fewest, most = max(0, unknowns - (data.m - claim.set_aside.size)), unknowns
    if verdict.directions:  # of a given rank
        fewest, most = 0, verdict.directions
    sense = verdict.unseen is None or fewest <= verdict.unseen <= most
    slack = claim.objective is not None and claim.objective.preference.slack
    target = claim.kind != "optimal" or slack
    if claim.hard:  # with and without a tolerance
        target = verdict.asked != "least"
    found = make_verdict(
        data,
        values,
        claim,
        status,
        seen,
        target=target,
        prefer=verdict.prefer,
        wanted=verdict.wanted,
        fitted=verdict.fitted,
    )
    known = claim.objective is not None or claim.kind == "infeasible"
    known = known or verdict.prefer == ("any" if target else "minimax")
    names = COMPARED
    if None in (verdict.operator_error, found.operator_error):
        # The same rows, by functions there and in an array here.
        names = tuple(name for name in names if name != "operator_error")
    off = [] if sense else ["unseen"]
    off += [] if known else ["prefer"]
    off += [name for name in names if not _same(getattr(verdict, name), getattr(found, name))]
    yield Check("verdict", not off, f"differs in {', '.join(off)}" if off else "as claimed")
    least, most = 0, 0  # nothing is violated where there is no tolerance
    if target:
        kept = np.arange(data.m) < data.measured
        kept[claim.set_aside] = False
        least, most = int((values.missed & kept).sum()), int((~values.met & kept).sum())
    yield Check("its count of violations", least <= verdict.over <= most, f"{verdict.over} stated")
    with np.errstate(invalid="ignore"):  # of what is infinite nothing is known
        spread = values.upper - values.ratios
    rows: list[tuple[Row | None, Any, Any, Any]] = [
        (verdict.worst, values.sizes, values.sizes, values.error),
        (verdict.nearest, values.sizes, values.ratios, spread),
    ]
    if found.missed is not None:
        rows.append((verdict.missed, values.misses, values.misses, values.error))
    true = (found.missed is None) == (verdict.missed is None)
    for row, sizes, largest, error in rows:
        true &= _is_at(row, data, values, sizes, largest, error, target)
    yield Check("its rows", true, "recomputed, to rounding")


def _same(stated: Any, found: Any) -> bool:
    """Whether two entries agree; numbers to rounding."""
    if type(stated) is type(found) and type(stated) in PLAIN and stated == found:
        return True  # as it mostly is, in a tenth of the calls
    if isinstance(stated, Row) and isinstance(found, Row):
        return all(_same(getattr(stated, f.name), getattr(found, f.name)) for f in fields(Row))
    if is_number(stated) and is_number(found):
        return bool(agree(stated, found, AGREE * abs(found)))
    return type(stated) is type(found) and bool(stated == found)


def _is_at(
    row: Row | None,
    data: Measurements,
    values: Values,
    sizes: Any,
    largest: Any,
    error: Any,
    target: bool,
) -> bool:
    """Whether the largest is at that row, up to rounding, and the row as stated."""
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
