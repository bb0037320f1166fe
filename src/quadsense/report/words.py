"""What a certificate rests on, as far as the facts of the result do not say it."""

from __future__ import annotations

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.measurements import Measurements
from quadsense.result.result import Result
from quadsense.result.words import CHECKED, kind_of_matrix, sentence
from quadsense.view.markup import number


def certificate(result: Result, data: Measurements | None) -> list[str]:
    """Return what was checked and what the claim rests on, one paragraph for each thought."""
    claim = result.certificate
    said = [f"{sentence(CHECKED[claim.kind])}."]
    if claim.kind == "met" and claim.upper_bound > 0.0:
        said.append(
            f"Rounding included, the worst takes {number(claim.upper_bound, 6)} of its tolerance; "
            f"rounding itself is at most {number(claim.rounding, 2)} of it."
        )
    if claim.kind == "optimal":
        gap = claim.gap if claim.objective is None else claim.objective.gap
        said.append(f"Value and bound are within the gap that was asked for, {gap:g}.")
    said += _contradiction(result, data) if claim.kind == "infeasible" else _cone(result)
    said += _fit(result)
    if claim.condition:
        said.append(f"That holds {claim.condition}.")
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


def _contradiction(result: Result, data: Measurements | None) -> list[str]:
    """Return why the dual vectors prove that nothing fits."""
    claim, verdict = result.certificate, result.verdict
    which = kind_of_matrix(verdict)
    if verdict.contradiction is not None and not verdict.allowed:
        return []
    if verdict.allowed:
        proofs = 0 if claim.dual is None else len(np.atleast_2d(claim.dual))
        return [
            f"There are {proofs} proofs, each a combination of measurements that no {which} can "
            f"meet together, and no choice of {verdict.allowed} measurements has a part in all of "
            "them: whichever are set aside, some contradiction is left."
        ]
    combined = "is never negative" if claim.psd else "is 0"
    sums = "add up to a positive semidefinite matrix" if claim.psd else "cancel"
    span = _span(result, data)
    between = "cannot have such a sum"
    if span is not None:
        between = (
            f"have a sum between {number(span[0], 4)} and {number(span[1], 4)} (y scaled to a "
            "largest entry of 1)"
        )
    return [
        f"The certificate is a vector y, one number per measurement, for which the y_i u_i u_i* "
        f"{sums}. So the readings of any {which}, each times its y_i, have a sum that {combined}. "
        f"Readings within what was asked for {between}: a contradiction."
    ]


def _fit(result: Result) -> list[str]:
    """Return what is proved of the A that comes with a proof that nothing fits."""
    fit = result.fit
    if fit is None:
        return []
    if not fit.closed:
        return ["A is a least-squares fit of the rank that was asked for: it is at rest."]
    which = kind_of_matrix(result.verdict)
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
