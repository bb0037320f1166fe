"""What a result says to do next."""

from __future__ import annotations

import math

from quadsense.result.facts import Advice, Verdict
from quadsense.vocabulary import Status, rounded_down, rounded_up

CLOSE = 1.1
"""Readings per unknown up to which least squares without a tolerance may follow the noise."""


def next_step(v: Verdict, hint: str) -> str:
    """Return what to do next."""
    special = [_interpolates(v), *(_advice(v, advice) for advice in v.advice), hint]
    if v.status is Status.INFEASIBLE:
        special.append(_feasible(v))
    if any(special):
        return "; ".join(part for part in special if part).replace("?; ", "? ")
    if v.status in CONTINUE:
        return CONTINUE[v.status]
    if v.asked == "accuracy":
        return "result.matrix is A: products, eigenvalues and result.A, the dense array"
    if v.status is Status.OPTIMAL and not v.exact_fit:
        if v.asked == "least":
            return (
                f"give delta = {rounded_up(v.upper_bound)} or more for certified ranges"
                if v.prefer == "minimax"
                else "prefer='minimax' finds the smallest delta of all"
            )
        if v.over:
            return "look at the rows of result.violations"
    if v.unseen and not v.unique:
        return "result.next_probe(candidates) tells which measurement to add"
    return "result.interval((i, j)) gives the certified range of A[i, j]"


CONTINUE = {
    Status.MAX_ITER: "raise max_iter, or go on from this A with start=result",
    Status.TIME_LIMIT: "raise time_limit, or go on from this A with start=result",
    Status.INTERRUPTED: "go on from this A with start=result",
    Status.LOCAL: "more starts (max_restarts) may find a better A",
    Status.UNDECIDED: "a larger delta or another method may decide",
    Status.STALLED: "a larger delta or another method may decide",
}
"""What to do next where nothing was decided."""


def _feasible(v: Verdict) -> str:
    """Return what would make the problem feasible."""
    if v.allowed:
        return f"allow_violations={v.allowed + 1} sets one more aside"
    if v.contradiction is not None:
        return f"leave row {v.contradiction.index} out"
    if v.hard:
        return "relax one of the constraints"
    wider = _wider(v)
    if v.without:
        return "; ".join([*wider, f"without {' or '.join(v.without)} all others can be met"])
    seek = "allow_violations=1 looks for a wrong reading"
    return "; ".join([*wider, seek]) if wider else f"widen the tolerances; {seek}"


def _wider(v: Verdict) -> list[str]:
    """Return which tolerance can be met, and which cannot; nothing where neither is known."""
    if v.fitted == "local":  # what is achieved is not of that rank
        return []
    if v.asked == "bounds":
        if not 0.0 < v.least_miss <= v.most_miss < math.inf:
            return []
        most, least = _apart(v.most_miss, v.least_miss)
        can, cannot = f"intervals wider by {most} at each end can be met", f"by {least} they cannot"
    elif v.upper_bound == math.inf:
        return []
    elif v.even and v.worst.tolerance is not None:
        delta = v.worst.tolerance
        most, least = _apart(delta * v.upper_bound, delta * v.lower_bound)
        can, cannot = f"delta = {most} can be met", f"{least} cannot"
    else:
        most, least = _apart(v.upper_bound, v.lower_bound)
        can = f"tolerances {most} times as wide can be met"
        cannot = f"{least} times as wide they cannot"
    return [can if v.condition else f"{can}, {cannot}"]


def _apart(most: float, least: float) -> tuple[str, str]:
    """Return two bounds, rounded outwards to three digits, or to four where these are close."""
    for digits in (3, 4):
        found = rounded_up(most, digits), rounded_down(least, digits)
        if float(found[0]) <= 1.01 * most and float(found[1]) >= 0.99 * least:
            break
    return found


def _interpolates(v: Verdict) -> str:
    """Warn that readings without a tolerance are no more, or hardly more, than the unknowns."""
    close = v.asked == "least" and v.measurements < CLOSE * v.unknowns
    if not (v.interpolates or close):
        return ""
    many = "no" if v.interpolates else "hardly"
    follows = "follows" if v.interpolates else "may follow"
    return (
        f"give delta or ridge: {v.measurements} readings are {many} more than the {v.unknowns} "
        f"unknowns, so that A {follows} the noise"
    )


def _advice(v: Verdict, advice: Advice) -> str:
    """Return what to try, and why: there is one piece of it."""
    if advice.code == "psd":
        return f"try psd=True: A has a negative eigenvalue ({advice.number:.2g}) though no b is"
    count = int(advice.number)
    which = f"all {count}" if count == v.measurements else f"{count} of {v.measurements}"
    ask = {
        "counts": "were counts not divided by shots?",
        "outside": "are b and bounds in the same unit?",
    }[advice.code]
    return f"{which} readings lie outside their intervals: {ask}"
