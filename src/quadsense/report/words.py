"""What a certificate claims and what that rests on: one paragraph for each thought."""

from __future__ import annotations

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.measurements import Measurements
from quadsense.result.result import Result
from quadsense.result.words import objective_name, why
from quadsense.view.markup import number


def certificate(result: Result, data: Measurements | None) -> list[str]:
    """The claim, and what it rests on."""
    claim = result.certificate
    says = {
        "met": _met, "optimal": _optimal, "infeasible": _infeasible, "spectral": _spectral,
    }.get(claim.kind)  # fmt: skip
    if says is None:
        reason = why(result.verdict.reason)
        return [
            "Nothing is claimed"
            + (f": {reason}." if reason else ".")
            + " A is the best that was found. Its residuals below are recomputed from the data, "
            "but that a better matrix exists, or that none does, is not known."
        ]
    said = says(result, data)
    if claim.condition:
        said.append(f"That holds {claim.condition}.")
    return said


def _met(result: Result, data: Measurements | None) -> list[str]:
    claim, verdict = result.certificate, result.verdict
    rows = f"all {verdict.kept:,} readings" if verdict.kept > 1 else "the one reading"
    lead = (
        f"What A reads was recomputed from the data for {rows}, with a bound on what rounding can "
        "have done, and is within what was asked for. "
    )
    if claim.upper_bound > 0.0:
        lead += (
            f"Rounding included, the worst takes {number(claim.upper_bound, 6)} of its tolerance; "
            f"rounding itself is at most {number(claim.rounding, 2)} of it."
        )
    said = [lead, *_cone(result)]
    if verdict.objective is not None and claim.objective is not None:
        said.append(_objective(result))
    return said


def _cone(result: Result) -> list[str]:
    claim = result.certificate
    if claim.signs:
        return [
            f"A has at most {claim.signs[0]} positive and {claim.signs[1]} negative eigenvalues, "
            "by the form in which it is held."
        ]
    if claim.rank is not None:
        return [f"A is positive semidefinite of rank at most {claim.rank}, by its form A = X X*."]
    return ["A is positive semidefinite, which is checked too."] if claim.psd else []


def _objective(result: Result) -> str:
    verdict = result.verdict
    name = objective_name(verdict)
    best = verdict.objective_upper if verdict.prefer == "center" else verdict.objective_lower
    side = "more" if verdict.prefer == "center" else "less"
    text = f"Of all that fit this A was preferred: its {name} is {number(verdict.objective, 6)}"
    if best is None or not np.isfinite(best):
        return f"{text}; whether another fit is better was not proved."
    given = f" ({verdict.objective_condition})" if verdict.objective_condition else ""
    proved = (
        f"{text}, and a dual vector proves that no fit has {side} than {number(best, 6)}{given}."
    )
    return proved if verdict.optimal else f"{proved} The two are further apart than the gap."


def _optimal(result: Result, data: Measurements | None) -> list[str]:
    claim, verdict = result.certificate, result.verdict
    if claim.objective is not None:
        name = objective_name(verdict)
        lower = number(verdict.objective_lower, 6)
        given = f" ({verdict.objective_condition})" if verdict.objective_condition else ""
        return [
            f"This A has the {name} {number(verdict.objective, 6)}, recomputed from the data. A "
            f"dual vector proves that no matrix has less than {lower}{given}. The two are within "
            f"the gap that was asked for, {claim.objective.gap:g}.",
            *_cone(result),
        ]
    if verdict.exact_fit:
        return [
            "The worst residual, recomputed from the data, is zero up to rounding: no matrix can "
            "do better.",
            *_cone(result),
        ]
    return [
        f"The worst residual of this A, recomputed from the data with rounding included, is at "
        f"most {number(claim.upper_bound, 6)}. A dual vector proves that every matrix has one of "
        f"{number(claim.lower_bound, 6)} or more. The two are within the gap that was asked for, "
        f"{claim.gap:g}.",
        *_cone(result),
    ]


def _infeasible(result: Result, data: Measurements | None) -> list[str]:
    claim, verdict = result.certificate, result.verdict
    which = "positive semidefinite matrix" if claim.psd else "matrix"
    if verdict.contradiction is not None and not verdict.allowed:
        return [
            f"Row {verdict.contradiction.index} of U is zero, so that every matrix reads 0 there, "
            "and 0 is not within what was asked for."
        ]
    if verdict.allowed:
        proofs = 0 if claim.dual is None else len(np.atleast_2d(claim.dual))
        return [
            f"There are {proofs} proofs, each a combination of measurements that no {which} can "
            f"meet together, and no choice of {verdict.allowed} measurements has a part in all of "
            "them: whichever are set aside, some contradiction is left."
        ]
    combined = "is never negative" if claim.psd else "is 0"
    sums = "add up to a positive semidefinite matrix" if claim.psd else "cancel"
    said = (
        f"The certificate is a vector y, one number per measurement, for which the y_i u_i u_i* "
        f"{sums}. So the readings of any {which}, each times its y_i, have a sum that {combined}."
    )
    span = _span(result, data)
    if span is not None:
        low, high = span
        said += (
            f" Readings within what was asked for have a sum between {number(low, 4)} and "
            f"{number(high, 4)} (y scaled to a largest entry of 1): a contradiction, however A is "
            "chosen."
        )
    else:
        said += " Readings within what was asked for cannot have such a sum: a contradiction."
    return [said, *_fit(result)]


def _fit(result: Result) -> list[str]:
    """Return what is proved of the A that comes with a proof that nothing fits."""
    fit = result.fit
    if fit is None:
        return []
    if not fit.closed:
        return ["A is a least-squares fit of the rank that was asked for: it is at rest."]
    which = "positive semidefinite matrix" if result.certificate.psd else "matrix"
    return [
        "A is the least-squares fit without the tolerances. Its sum of squares, with the pull if "
        f"there is one, is {number(fit.value, 6)}, and no {which} has less than "
        f"{number(fit.lower, 6)}."
    ]


def _span(result: Result, data: Measurements | None) -> tuple[float, float] | None:
    """Between what the combined reading lies for readings within their intervals."""
    claim = result.certificate
    lo, hi = claim.lo, claim.hi
    y = None if claim.dual is None else np.asarray(claim.dual, dtype=np.float64)
    if y is None or y.ndim != 1 or not np.any(y):
        return None
    if lo is None or hi is None:
        if data is None or data.readings is None:
            return None
        b, unit = to_numpy(data.readings), to_numpy(claim.tolerance)
        lo, hi = b - unit, b + unit
    lo = np.append(lo, [each.lo for each in claim.constraints])
    hi = np.append(hi, [each.hi for each in claim.constraints])
    if y.shape != lo.shape:
        return None
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        y = y / np.abs(y).max()
        ends = np.stack([y * lo, y * hi])
    ends = np.where(y == 0.0, 0.0, ends)
    return float(ends.min(axis=0).sum()), float(ends.max(axis=0).sum())


def _spectral(result: Result, data: Measurements | None) -> list[str]:
    verdict = result.verdict
    return [
        "The eigenvalues of A*^(-1/2) A A*^(-1/2) were recomputed with the oracle of A*: all are "
        f"within {number(verdict.worst.size, 6)} of 1, the accuracy asked for being "
        f"{number(verdict.worst.tolerance, 6)}."
    ]
