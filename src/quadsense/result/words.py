"""The one place where a verdict becomes words, in the user's own units: a list of facts.

A result's text and message, the terminal, the notebook's card and the top of a report all show
this list. Low among the modules, for a result's own message is made here: it knows the vocabulary
alone.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from quadsense.preferences import kind_named
from quadsense.result.advice import next_step
from quadsense.result.facts import Row, Verdict
from quadsense.vocabulary import Status, counted, rounded_down, rounded_up

WIDTH = 80
"""Columns of a result's text."""

MAX_LISTED = 10
"""Rows set aside, or in conflict, that are listed at most; the others are counted."""


class Fact(NamedTuple):
    """One line of what there is to say of a result.

    Attributes
    ----------
    label : str
        "verdict", "why", "conflict", "outliers", "which A", "determined", "checked" or "next step".
    value : str
        A short sentence.
    note : str
        What it means, where there is room to say so; it may be empty.
    """

    label: str
    value: str
    note: str = ""


def facts(verdict: Verdict) -> tuple[Fact, ...]:
    """Return what there is to say of a verdict, the verdict first and the next step last."""
    why, hint = _why_and_hint(verdict)
    spectral = verdict.asked == "accuracy"
    found = [
        Fact("verdict", _verdict(verdict)),
        Fact("why", why),
        Fact("conflict", _conflict(verdict)),
        Fact("outliers", _set_aside(verdict)),
        Fact("which A", "" if spectral else _which(verdict), _missed_by(verdict)),
        Fact("determined", _determined(verdict), _meaning(verdict)),
        Fact("checked", _checked(verdict)),
        Fact("next step", next_step(verdict, hint)),
    ]
    return tuple(fact for fact in found if fact.value)


def kind(verdict: Verdict) -> str:
    """Return "good", "bad" or "open", which decides the color of a verdict."""
    if verdict.status is Status.INFEASIBLE:
        return "bad"
    return "good" if verdict.status.success else "open"


def message(verdict: Verdict) -> str:
    """Return the verdict in short sentences, and what to do next."""
    said = [fact.value for fact in facts(verdict) if fact.label != "checked"]
    return ". ".join([said[0], *(sentence(part) for part in said[1:])]) + "."


def head(verdict: Verdict) -> str:
    """Return the status and the verdict in one sentence."""
    said = _verdict(verdict)
    same = said.startswith(f"{verdict.status}: ")
    return said if same else f"{verdict.status}, {said}"


def found_by(plan: Mapping[str, Any], n_iter: int, seconds: str, reasons: bool = False) -> Fact:
    """Return the fact that tells by which method A was found, and why by that one if asked."""
    steps = f"{n_iter:,} iteration" + "s" * (n_iter != 1)
    value = ", ".join(part for part in (plan.get("method", ""), steps, seconds) if part)
    return Fact("found by", value, "; ".join(plan.get("reasons", ())) * reasons)


def summary(
    verdict: Verdict,
    *,
    width: int = WIDTH,
    more: Iterable[Fact] = (),
    notes: bool = False,
    paint: Callable[[str, str], str] | None = None,
    told: Callable[[str], str] = str,
) -> str:
    """Return the facts as lines of at most that width.

    Parameters
    ----------
    verdict : Verdict
    width : int
    more : iterable of Fact
        Facts to be shown after those of the verdict.
    notes : bool
        Whether to show the notes too.
    paint : callable, optional
        Colors a label and a piece of its value: ``paint(label, text)``.
    told : callable, optional
        Puts a value in other words, such as those of the command.
    """
    lines = []
    margin = " " * 12
    for fact in (*facts(verdict), *more):
        parts = textwrap.wrap(
            told(f"{fact.value}; {fact.note}" if notes and fact.note else fact.value),
            max(width - len(margin), 20),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for i, part in enumerate(parts):
            begin = margin if i else f"{fact.label:<12}"
            if paint is not None:
                begin, part = paint("label", begin), paint(fact.label, part)
            lines.append(begin + part)
    return "\n".join(lines)


def sentence(text: str) -> str:
    """Return the text with a capital, unless it begins with a name from the code."""
    plain = re.match(r"(a|[a-z]{2,})[,:]? (?!=)", text)
    return text[:1].upper() + text[1:] if plain else text


# --- the verdict -----------------------------------------------------------------------------


def _verdict(v: Verdict) -> str:
    """Return how it ended."""
    if v.asked == "accuracy":
        return _spectral(v)
    if v.status is Status.INFEASIBLE:
        return _infeasible(v) + _given(v)
    return _head(v) + (_given(v) if v.status.success else "")


def _head(v: Verdict) -> str:
    if v.asked == "least" and v.exact_fit:
        return f"optimal: an exact fit, worst residual {v.worst.size:.4g}"
    if v.status in (Status.OPTIMAL, Status.LOCAL) and v.objective is not None:
        return _by_objective(v)
    if v.asked == "least":
        return _best_error(v)
    if v.status is Status.MET:
        kept = f"all {v.kept} other measurements" if v.set_aside else f"all {v.kept} measurements"
        rest = f", {v.unmeasured} not measured" if v.unmeasured else ""
        if v.asked == "bounds":
            return f"met: {kept} within their intervals{rest}"
        within = _within(v) if v.even else f"their tolerances ({_against(v, 'closest')})"
        return f"met: {kept} within {within}{rest}"
    if not v.over and v.contradiction is None and v.broken:
        return "not met: every measurement is within tolerance, but a constraint is not"
    if not v.over and v.contradiction is None:
        return "not certified: all within tolerance as computed, but not beyond rounding"
    if v.asked == "bounds":
        return f"not met: {v.over} of {v.kept} intervals missed; {_worst_miss(v)}"
    over = _within(v) if v.even else f"their tolerances ({_against(v, 'worst')})"
    return f"not met: {v.over} of {v.kept} measurements over {over}"


def _within(v: Verdict) -> str:
    """Return the one delta, and the worst residual."""
    return f"delta = {v.worst.tolerance:.4g} (worst {v.worst.size:.4g})"


def _by_objective(v: Verdict) -> str:
    """Return the value and its bound where nothing must be met: with slack, without a tolerance."""
    if v.status is Status.LOCAL:
        return f"local: {objective_name(v)} {v.objective:.6g}, stationary; nothing is proved"
    return f"optimal: {_value(v)}"


def _best_error(v: Verdict) -> str:
    """Return the smallest worst error that was found, and what is known of smaller ones."""
    size = v.worst.size
    if v.status is not Status.OPTIMAL:
        return f"{v.status}: worst residual {size:.4g}, not proved to be the smallest"
    return (
        f"optimal: worst residual {size:.4g}, and no matrix does better than "
        f"{rounded_down(v.lower_bound)}{_condition(v)}"
    )


def _infeasible(v: Verdict) -> str:
    """Return what was proved: that nothing fits, and by how much."""
    which = kind_of_matrix(v)
    if v.allowed:
        but = counted(v.allowed, "measurement")
        return f"infeasible: no {which} meets all but {but}, whichever these are{_condition(v)}"
    if v.contradiction is not None:
        return f"infeasible: {_contradiction(v)}"
    if _constraints_alone(v):
        return f"infeasible: no {which} meets {' and '.join(v.blamed)}, whatever the readings are"
    if v.hard:
        what = "constraints and equalities" if v.suspects else "constraints"
        return f"infeasible: no {which} meets the {what}{_condition(v)}"
    if v.asked == "bounds":
        said = f"infeasible: no {which} is within all intervals{_condition(v)}"
        if not v.least_miss > 0.0:
            return said
        known = v.most_miss < math.inf and v.fitted != "local"
        reached = f"; {rounded_up(v.most_miss)} is achievable" * known
        least = rounded_down(v.least_miss)
        return f"{said}; some interval is missed by at least {least} (proved{reached})"
    least = f"infeasible: no {which} fits{_condition(v)}; some reading is missed by at least "
    known = v.upper_bound < math.inf and v.fitted != "local"  # which has a rank to keep to
    reached = f"; {rounded_up(v.upper_bound)} is achievable" * known
    return f"{least}{rounded_down(v.lower_bound)} {_unit(v)} (proved{reached})"


def _constraints_alone(v: Verdict) -> bool:
    """Return whether constraints contradict each other, or the cone, without any reading."""
    return v.irreducible is not None and bool(v.blamed) and not v.suspects


def kind_of_matrix(v: Verdict) -> str:
    """Return of what kind A was to be."""
    return "positive semidefinite matrix" if v.psd else "matrix"


def _spectral(v: Verdict) -> str:
    head = "met" if v.claim == "spectral" else "not met"
    size, accuracy = v.worst.size, v.worst.tolerance
    return f"{head}: ||I - A*^(-1/2) A A*^(-1/2)|| = {size:.4g} against accuracy {accuracy:.4g}"


def _value(v: Verdict) -> str:
    """Return the value of the objective, and what is proved of better ones."""
    assert v.objective_lower is not None and v.objective_upper is not None
    less, bound = "less than", rounded_down(v.objective_lower, 6)
    kind = kind_named(v.prefer)
    if kind.upwards:
        less, bound = "more than", rounded_up(v.objective_upper, 6)
    given = f" ({v.objective_condition})" if v.objective_condition else ""
    free = bool(kind.slack) or v.asked == "least"  # nothing need fit
    which = "no matrix" if free else "no fit"
    return f"{objective_name(v)} {v.objective:.6g}, and {which} has {less} {bound}{given}"


def objective_name(v: Verdict) -> str:
    """Return what the value of the objective is called."""
    kind = kind_named(v.prefer)
    if kind.ratios and v.asked == "least":
        return "worst error"
    return (kind.with_ridge[0] if v.ridge else "") or kind.value or v.prefer


def _given(v: Verdict) -> str:
    """Return what a claim takes for granted of functions of the user's own."""
    if v.operator_error is None:
        return ""
    if v.operator_error == 0.0:
        return ", given an operator as exact as inner products"
    return f", given operator error up to {v.operator_error:.2g}"


def _against(v: Verdict, what: str) -> str:
    """Return the row with the largest ratio of a residual to its tolerance."""
    row = v.nearest
    return f"{what}: row {row.index}, {row.size:.4g} of {row.tolerance:.4g}"


def _worst_miss(v: Verdict) -> str:
    """Return the interval missed by most, and by how much."""
    assert v.missed is not None
    interval = _interval(v.missed)
    return f"worst miss {v.missed.size:.4g}, of the interval {interval} in row {v.missed.index}"


def _interval(row: Row) -> str:
    lo = float("-inf") if row.lo is None else row.lo
    hi = float("inf") if row.hi is None else row.hi
    return f"[{lo:.6g}, {hi:.6g}]"


def _condition(v: Verdict) -> str:
    return f" ({v.condition})" if v.condition else ""


def _unit(v: Verdict) -> str:
    """Return what residuals are compared with."""
    return "delta" if v.even else "times its tolerance"


def _contradiction(v: Verdict) -> str:
    row = v.contradiction
    assert row is not None
    wanted = f"its interval is {_interval(row)}"
    if v.asked != "bounds":
        wanted = f"b[{row.index}] = {row.reading:.6g} with tolerance {row.tolerance:.6g}"
    return f"row {row.index} of U is zero, so every matrix reads 0 there, but {wanted}"


# --- why, and which A ------------------------------------------------------------------------


def _why_and_hint(v: Verdict) -> tuple[str, str]:
    """Return why nothing was decided, and what the reason says to try."""
    if v.status.success or v.status is Status.INFEASIBLE:
        return "", ""
    said, hint = ("", "") if v.reason is None else v.reason.parts
    broken = f"not held: {', '.join(v.broken)}" if v.broken else ""
    return "; ".join(part for part in (said, broken) if part), hint


def _conflict(v: Verdict) -> str:
    """Return the rows and constraints that contradict each other, or the heaviest in the proof."""
    several = v.status is Status.INFEASIBLE and not v.allowed and v.contradiction is None
    if not several or not (v.suspects or v.blamed) or _constraints_alone(v):
        return ""
    count = len(v.suspects) + len(v.blamed)
    rows = "row" + "s" * (len(v.suspects) > 1) + " " + ", ".join(str(row) for row in v.suspects)
    named = " and ".join([rows] * bool(v.suspects) + list(v.blamed))
    if v.irreducible is None:
        return f"{named} {'carries' if count == 1 else 'carry'} most of the contradiction"
    least = " (irreducible: leave out any one and the rest can be met)" * v.irreducible
    if count == 1:
        return f"no {kind_of_matrix(v)} meets {named}, whatever the others are"
    return f"{named} contradict each other{least}"


def _which(v: Verdict) -> str:
    """Return which of all matrices A is, and whether that is certified."""
    if v.status is Status.INFEASIBLE:
        return _fitted(v)
    instead = f", instead of {v.wanted!r}, which was not found" if v.wanted else ""
    if v.status in (Status.OPTIMAL, Status.LOCAL):
        return _misses(v)
    if v.status is not Status.MET:
        return "the best that was found; nothing is proved of it"
    cut = "" if v.reason is None else str(v.reason)
    if v.objective is None:
        if cut:
            return f"any fit, not certified to be the preferred one: {cut}"
        return f"any fit{instead}" if instead else "any fit (prefer='any')"
    chosen = f"{_chosen(v)}: {v.objective:.6g}"
    more = kind_named(v.prefer).upwards
    bound, infinite = (v.objective_upper, math.inf) if more else (v.objective_lower, -math.inf)
    assert bound is not None
    if v.optimal or bound not in (0.0, infinite):  # which say nothing
        stated = f"above {rounded_up(bound, 6)}" if more else f"below {rounded_down(bound, 6)}"
        given = f"; {v.objective_condition}" if v.objective_condition else ""
        chosen = f"{chosen} (no fit is {stated}{given})"
    return chosen + instead if v.optimal else f"{chosen}, not certified" + f"; {cut}" * bool(cut)


def _chosen(v: Verdict) -> str:
    """Return which of all fits was wanted."""
    kind = kind_named(v.prefer)
    return (kind.with_ridge[1] if v.ridge else "") or kind.chosen or v.prefer


def _set_aside(v: Verdict) -> str:
    """Return which measurements were set aside."""
    if v.status is not Status.MET or not v.set_aside:
        return ""
    count = len(v.set_aside)
    rows = ", ".join(str(row) for row in v.set_aside[:MAX_LISTED])
    more = f" and {count - MAX_LISTED} more" if count > MAX_LISTED else ""
    proved = "; with it nothing fits" if count == 1 else "; no smaller set is enough"
    return f"row{'s' * (count > 1)} {rows}{more} set aside{proved * v.fewest}"


def _misses(v: Verdict) -> str:
    """Return what an A that need not meet anything misses, and which delta it meets."""
    if v.asked == "bounds":
        return f"{v.over} of {v.kept} intervals missed" + f", {_worst_miss(v)}" * bool(v.over)
    if v.asked == "delta":
        against = f"worst {v.worst.size:.4g}" if v.even else _against(v, "worst")
        over = f"over delta = {v.worst.tolerance:.4g}" if v.even else "over their tolerances"
        return f"{v.over} of {v.kept} {over} ({against})"
    if v.exact_fit:
        return "" if v.objective is None else _value(v)
    if v.objective is None:
        return "the smallest worst residual" + " that was found" * (not v.status.success)
    text = f"worst residual {v.worst.size:.4g}"
    met = v.status is Status.OPTIMAL and v.prefer != "minimax"
    return f"{text}: this A meets delta = {rounded_up(v.upper_bound)}" if met else text


def _fitted(v: Verdict) -> str:
    """Return which A comes with the proof that nothing fits."""
    if not v.fitted:
        nothing = v.hard or v.contradiction or _constraints_alone(v)
        return "" if nothing else "A has the smallest worst miss that was found"
    which = {"optimal": "the least-squares fit", "local": "a least-squares fit of that rank"}
    return f"A is {which[v.fitted]}: it misses {v.over} of {counted(v.kept, 'measurement')}"


def _missed_by(v: Verdict) -> str:
    """Return by how much the A that comes with the proof misses."""
    if v.status is not Status.INFEASIBLE or not v.fitted:
        return ""
    if v.asked == "bounds":
        return f"by at most {rounded_up(0.0 if v.missed is None else v.missed.size)}"
    return f"by up to {rounded_up(_ratio(v))} {_unit(v)}"


def _ratio(v: Verdict) -> float:
    """Return the largest ratio of a residual to its tolerance."""
    tolerance = v.nearest.tolerance
    return v.nearest.size / tolerance if tolerance else math.inf


# --- determined, checked ---------------------------------------------------------------------


def _determined(v: Verdict) -> str:
    """Return how far A is determined; empty where nothing fits."""
    if v.asked == "accuracy":
        return "the oracle sees all of A*"
    return "" if v.status is Status.INFEASIBLE else _seen(v)


def _seen(v: Verdict) -> str:
    """Return what the measurements do not see."""
    if v.unseen is None:
        return _not_computed(v)
    least = "" if v.exact else "at least "
    if v.directions:
        free = f"{least}{v.unseen:,} free directions of {v.directions:,}"
        if v.unique:
            return f"unique near this A among matrices of its rank; {free}"
        return f"not unique near this A among matrices of its rank; {free}"
    if v.unique:
        among = " among positive semidefinite matrices" if v.unseen else ""
        return f"the measurements determine A{among}"
    fit = "other matrices fit as well" if v.status.success else "A is not determined"
    return f"{least}{v.unseen} of {v.unknowns} directions of A are unseen: {fit}"


def _not_computed(v: Verdict) -> str:
    """Return that it was not computed whether A is determined, and how long that takes."""
    what = "whether the measurements determine A is not computed"
    if v.rank_seconds == math.inf:
        return what
    seconds = v.rank_seconds
    about = f"{seconds:.1g} s" if seconds < 10.0 else f"{seconds:.2g} s"
    return f"{what}; result.unique computes it, about {about}"


def _meaning(v: Verdict) -> str:
    """Return what it means that the measurements see all of A, or not all."""
    if v.asked == "accuracy" or v.unique is None:
        return ""
    if v.directions:
        return (
            "judged at this A by the null space of the Jacobian; a factor of A is meant up to its "
            "rotations (of rank one: up to a sign or a global phase)"
        )
    if v.unique and v.unseen:
        return (
            f"{v.unseen} of {v.unknowns} directions are unseen, but no other positive semidefinite "
            "matrix has the readings of A; eigenvalues that the tolerances hide count as 0"
        )
    if v.unique:
        return (
            f"all {v.unknowns} directions of A are seen; another fit differs only as far as the "
            "tolerances let it"
        )
    return (
        "matrices that differ along unseen directions have the same readings, so a met tolerance "
        "is no recovered A; what all fits have in common is certain: result.interval(C) gives it"
    )


CHECKED = {
    "met": "every measurement recomputed from the data, rounding included",
    "optimal": "its value and the bound recomputed from the data, rounding included",
    "infeasible": "the proof that nothing fits, recomputed from the data",
    "spectral": "eigenvalues of A*^(-1/2) A A*^(-1/2) recomputed with the oracle",
    "none": "nothing is claimed; the residuals are recomputed from the data",
}
"""What was checked, by the kind of claim."""


def _checked(v: Verdict) -> str:
    """Return what was checked, constraints counted."""
    said = CHECKED[v.claim]
    if v.claim != "met" or not v.constraints:
        return said
    also = f"every measurement and {v.constraints} constraint" + "s" * (v.constraints > 1)
    return said.replace("every measurement", also, 1)
