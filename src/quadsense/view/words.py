"""The one place where a verdict becomes sentences, in the user's own units.

Low among the modules, for a result's own message is made here: it knows the vocabulary alone.
"""

from __future__ import annotations

import math
from typing import Any

from quadsense.vocabulary import Advice, Reason, Row, Status, Verdict

CLOSE = 1.1
"""Readings per unknown up to which least squares without a tolerance may follow the noise."""


def message(verdict: Verdict) -> str:
    """The verdict in one or two sentences, and what it does not say."""
    if verdict.asked == "accuracy":
        return _spectral(verdict)
    if verdict.status is Status.INFEASIBLE:
        return _infeasible(verdict) + _given(verdict)
    claimed = _given(verdict) if verdict.status in (Status.MET, Status.OPTIMAL) else ""
    parts = [
        _head(verdict) + claimed, _broken(verdict), _preferred(verdict), _interpolates(verdict),
        _seen(verdict), *(_advice(advice) for advice in verdict.advice),
    ]  # fmt: skip
    return "; ".join(part for part in parts if part)


def head(verdict: Verdict) -> str:
    """The first part of the message: how it ended."""
    return message(verdict).partition("; ")[0]


def why(reason: Reason | None) -> str:
    """A reason in words; empty where there is none."""
    return "" if reason is None else REASONS[reason.code](**reason.numbers)


# --- how it ended ----------------------------------------------------------------------------


def _head(v: Verdict) -> str:
    if v.status in (Status.OPTIMAL, Status.LOCAL) and v.objective is not None:
        return _by_objective(v)
    if v.asked == "least":
        return _best_error(v)
    rest = f", {v.set_aside} set aside as asked" if v.set_aside else ""
    if v.status is Status.MET:
        if v.asked == "bounds":
            return f"met: all {v.kept} measurements within their intervals{rest}"
        return f"met: {_against(v)}, all {v.kept} measurements within tolerance{rest}"
    reason = why(v.reason) or str(v.status)
    if not v.over and v.contradiction is None and v.broken:
        return f"not met: every measurement is within tolerance, but a constraint is not; {reason}"
    if not v.over and v.contradiction is None:
        found = "every measurement is within tolerance as computed, but not beyond rounding"
        return f"not certified: {found}; {reason}"
    if v.asked == "bounds":
        return f"not met: {_worst_miss(v)}, {v.over} of {v.kept} missed; {reason}"
    return f"not met: {_against(v)}, {v.over} of {v.kept} over; {reason}"


def _by_objective(v: Verdict) -> str:
    """Where there is nothing to meet but the preference: with slack, or without a tolerance."""
    if v.asked == "least":
        rest = _reaches(v)
    elif v.asked == "bounds":
        rest = f"{v.over} of {v.kept} intervals missed"
        rest += f", {_worst_miss(v)}" if v.over else ""
    else:
        rest = f"{v.over} of {v.kept} over, {_against(v)}"
    if v.status is Status.LOCAL:
        return (
            f"local: {objective_name(v)} {v.objective:.6g}, stationary; nothing is proved; {rest}"
        )
    return f"optimal: {_value(v)}; {rest}"


def _reaches(v: Verdict) -> str:
    """Return the worst residual where no tolerance was given, and which delta A meets."""
    text = f"worst residual {v.worst.size:.4g}"
    if v.exact_fit:
        return f"an exact fit, {text}"
    if v.status is Status.OPTIMAL and v.prefer != "minimax":
        text += f": this A meets delta = {_rounded_up(v.upper_bound)}"
        text += "; prefer='minimax' finds the smallest delta of all"
    return text


def _rounded_up(value: float) -> str:
    """Return the least number of four digits that is no less."""
    shown = f"{value:.4g}"
    while float(shown) < value:  # at most once, for "%.4g" rounds to the nearest
        digits = 3 - math.floor(math.log10(value))
        shown = f"{float(shown) + 10.0**-digits:.4g}"
    return shown


def objective_name(v: Verdict) -> str:
    """Return what the value of the objective is called."""
    if v.prefer == "minimax" and v.asked == "least":
        return "worst error"
    if v.prefer == "least_squares" and v.ridge:
        return "sum of squares and pull"
    return NAMES.get(v.prefer, v.prefer)


def _value(v: Verdict) -> str:
    """Return the value of the objective, and what is proved of better ones."""
    what = objective_name(v)
    best, bound = v.objective_upper, v.objective_lower
    less = "less than"
    if v.prefer == "center":
        best, bound, less = bound, best, "more than"
    given = f" ({v.objective_condition})" if v.objective_condition else ""
    free = v.prefer.startswith("slack_") or v.asked == "least"  # nothing need fit
    which = "no matrix" if free else "nothing that fits"
    return f"{what} {v.objective:.6g}, and {which} has {less} {bound:.6g}{given}"


NAMES = {
    "least_squares": "sum of squares",
    "entropy": "sum of squares and relative entropy",
    "nearest": "distance from the prior",
    "center": "sum of logarithms",
    "min_trace": "trace",
    "minimax": "worst ratio",
    "slack_max": "largest weighted miss",
    "slack_sum": "sum of weighted misses",
    "slack_squares": "sum of weighted squares of misses",
}
"""Names of the objective, by the name of the preference; see `objective_name`."""


def _preferred(v: Verdict) -> str:
    """Which of all fits this is, and whether that is certified."""
    cut = why(v.reason) if v.status is Status.MET else ""
    instead = f"instead of {v.wanted!r}, which was not found, " if v.wanted else ""
    if v.objective is None or v.status in (Status.OPTIMAL, Status.LOCAL):
        if cut:
            return f"any fit, not certified to be the preferred one: {cut}"
        return f"{instead}any fit" if instead and v.status is Status.MET else ""
    if v.optimal:
        return f"preferred: {instead}{_value(v)}"
    if v.status is Status.MET:
        bounded = v.objective_lower not in (0.0, float("-inf"))  # which say nothing
        value = _value(v) if bounded else f"{objective_name(v)} {v.objective:.6g}"
        return f"not certified to be the preferred one: {value}" + f"; {cut}" * bool(cut)
    return ""


def _given(v: Verdict) -> str:
    """What a claim takes for granted of functions of the user's own."""
    if v.operator_error is None:
        return ""
    if v.operator_error == 0.0:
        return ", given an operator as exact as inner products"
    return f", given operator error up to {v.operator_error:.2g}"


def _broken(v: Verdict) -> str:
    """Constraints that A does not hold."""
    return f"not held: {', '.join(v.broken)}" if v.broken else ""


def _interpolates(v: Verdict) -> str:
    """Warn that readings without a tolerance are no more, or hardly more, than the unknowns."""
    close = v.asked == "least" and v.measurements < CLOSE * v.unknowns
    if not (v.interpolates or close):
        return ""
    many = "no" if v.interpolates else "hardly"
    follows = "follows" if v.interpolates else "may follow"
    return (
        f"{v.measurements} readings are {many} more than the {v.unknowns} unknowns, so that A "
        f"{follows} the noise: give delta or ridge"
    )


def _against(v: Verdict) -> str:
    """The worst residual beside its tolerance."""
    worst, nearest = v.worst, v.nearest
    if v.even:
        return f"worst residual {worst.size:.4g} against delta {worst.tolerance:.4g}"
    text = (
        f"worst residual {worst.size:.4g} against a tolerance of {worst.tolerance:.4g} "
        f"(row {worst.index})"
    )
    if nearest.index == worst.index:
        return text
    share = f"{nearest.size:.4g} of {nearest.tolerance:.4g}"
    return f"{text}, most of its tolerance in row {nearest.index}, {share}"


def _worst_miss(v: Verdict) -> str:
    """The interval missed by most, and by how much."""
    assert v.missed is not None
    return (
        f"worst miss {v.missed.size:.4g}, of the interval {_interval(v.missed)} "
        f"in row {v.missed.index}"
    )


def _interval(row: Row) -> str:
    lo = float("-inf") if row.lo is None else row.lo
    hi = float("inf") if row.hi is None else row.hi
    return f"[{lo:.6g}, {hi:.6g}]"


def _best_error(v: Verdict) -> str:
    """The smallest worst error that was found, and what is known of smaller ones."""
    size = v.worst.size
    if v.status is not Status.OPTIMAL:
        return f"{v.status}: worst residual {size:.4g}; {why(v.reason) or v.status}"
    if v.exact_fit:
        return f"optimal: an exact fit, worst residual {size:.4g}"
    return (
        f"optimal: worst residual {size:.4g}, and no matrix does better than "
        f"{v.lower_bound:.4g}{_condition(v)}"
    )


def _condition(v: Verdict) -> str:
    return f" ({v.condition})" if v.condition else ""


def _infeasible(v: Verdict) -> str:
    which = "positive semidefinite matrix" if v.psd else "matrix"
    if v.allowed:
        return (
            f"infeasible: no {which} meets all but {_measurements(v.allowed)}, whichever these are"
            f"{_condition(v)}{_fitted(v)}"
        )
    if v.contradiction is not None:
        return f"infeasible: {_contradiction(v)}{_fitted(v)}"
    carry = "carries" if len(v.suspects) + len(v.blamed) == 1 else "carry"
    rows = "row" + "s" * (len(v.suspects) > 1) + " " + ", ".join(str(row) for row in v.suspects)
    blamed = " and ".join([rows] * bool(v.suspects) + list(v.blamed))
    if v.hard:
        what = "constraints and equalities" if v.suspects else "constraints"
        said = f"no {which} meets the {what}{_condition(v)}"
    elif v.asked == "bounds":
        least = f" by {v.least_miss:.4g} or more" if v.least_miss > 0.0 else ""
        said = (
            f"no {which} is within all intervals{_condition(v)}; each misses some interval{least}"
        )
    else:
        unit = _unit(v)
        said = (
            f"no {which} meets {unit}{_condition(v)}; the best worst-case error is between "
            f"{v.lower_bound:.6g} and {v.upper_bound:.6g} times {unit}"
        )
    return f"infeasible: {said}; {blamed} {carry} most of the contradiction{_fitted(v)}"


def _fitted(v: Verdict) -> str:
    """Return which A comes with the proof, and by how much it misses."""
    if not v.fitted:
        return ""
    which = {"optimal": "the least-squares fit", "local": "a least-squares fit of that rank"}
    text = f"; A is {which[v.fitted]}: it misses {v.over} of {_measurements(v.kept)}, by "
    if v.asked == "bounds":
        return f"{text}at most {0.0 if v.missed is None else v.missed.size:.4g}"
    return f"{text}a residual of at most {_rounded_up(_ratio(v))} times {_unit(v)}"


def _ratio(v: Verdict) -> float:
    """Return the largest ratio of a residual to its tolerance."""
    tolerance = v.nearest.tolerance
    return v.nearest.size / tolerance if tolerance else math.inf


def _unit(v: Verdict) -> str:
    """Return what residuals are compared with."""
    return "delta" if v.even else "its tolerance"


def _contradiction(v: Verdict) -> str:
    row = v.contradiction
    assert row is not None
    wanted = (
        f"its interval is {_interval(row)}"
        if v.asked == "bounds"
        else f"b[{row.index}] = {row.reading:.6g} with tolerance {row.tolerance:.6g}"
    )
    return f"row {row.index} of U is zero, so every matrix reads 0 there, but {wanted}"


def _measurements(count: int) -> str:
    return f"{count} measurement" + "s" * (count > 1)


def _seen(v: Verdict) -> str:
    """What the measurements do not see."""
    if v.unique:
        return "the measurements determine A"
    if v.unseen is None:
        return "whether the measurements determine A was too costly to find out"
    least = "" if v.exact else "at least "
    fit = "A fits, but is not the only one" if v.status.success else "A is not determined"
    return f"{least}{v.unseen} of {v.unknowns} directions of A are unseen: {fit}"


def _spectral(v: Verdict) -> str:
    met = v.claim == "spectral"
    head = "met" if met else "not met"
    size, accuracy = v.worst.size, v.worst.tolerance
    text = f"{head}: ||I - A*^(-1/2) A A*^(-1/2)|| = {size:.4g} against accuracy {accuracy:.4g}"
    return text if met else f"{text}; {why(v.reason)}"


def _advice(advice: Advice) -> str:
    """What to try, and why: there is one piece of it."""
    return f"A has a negative eigenvalue ({advice.number:.2g}) though no b is: try psd=True"


# --- reasons, by code ------------------------------------------------------------------------


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
    """What was not found is no claim about the rank."""
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
    return f"whether the others can be met without {_measurements(allowed)} is not known: {over}"


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
        "the least-squares fit does not meet delta; whether any matrix does, "
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
        f"least squares is at rest, the best of {starts} start{'s' * (starts > 1)}, and whether "
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
