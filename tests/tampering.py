"""What a result states, judged anew: which statements of a changed result are false.

Written without the package's own checks, for small problems: values of the matrix are exact, and a
dual vector is held against Farkas' lemma in plain linear algebra.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

import exact
import numpy as np
import programs

CLOSE = 1e-6
"""Relative difference below which two numbers count as equal."""


@dataclass(frozen=True)
class Subject:
    """Honest data and result.

    Attributes
    ----------
    U, b : ndarray; b is None with bounds
    question : dict
        `delta`, `bounds`, `conjugate` as given to `solve`.
    result : Result
    """

    name: str
    U: Any
    b: Any
    question: dict[str, Any]
    result: Any


def rows_of(subject: Subject, result: Any) -> Any:
    """The rows, as the result's own claim takes them."""
    U = subject.U
    return U.conj() if result.certificate.conjugate and np.iscomplexobj(U) else U


def ends_of(subject: Subject, result: Any) -> tuple[Any, Any]:
    """The intervals that the claim is about, by the result itself."""
    claim = result.certificate
    if claim.kind == "optimal":  # no tolerance: ratios are plain errors
        return subject.b - 1.0, subject.b + 1.0
    if claim.lo is not None and claim.hi is not None:
        return np.asarray(claim.lo, float), np.asarray(claim.hi, float)
    width = np.broadcast_to(np.asarray(claim.tolerance, float), subject.b.shape)
    return subject.b - width, subject.b + width


def values_of(subject: Subject, result: Any, matrix: Any) -> Any:
    """``u_i* A u_i``, correct to the last bit."""
    A = np.asarray(matrix)
    if not np.isfinite(A).all():
        return np.full(len(subject.U), np.nan)
    U = rows_of(subject, result)
    key = (U.tobytes(), A.tobytes())
    if key not in _KNOWN:
        _KNOWN[key] = np.array([exact.number(v) for v in exact.quadratic(U, A)])
    return _KNOWN[key].copy()


_KNOWN: dict[tuple[bytes, bytes], Any] = {}
"""Exact values, which take their time, of rows and matrices seen before."""


def false_statements(subject: Subject, result: Any) -> list[str]:
    """Every statement of the result that is false, or that nothing in it proves."""
    claim, honest = result.certificate, subject.result
    if claim.kind != honest.certificate.kind:
        return ["kind"]
    false = [] if str(result.status) == claim.kind else ["status"]
    aside = np.asarray(claim.set_aside)
    if sorted(aside) != sorted(result.set_aside) or len(set(aside)) != aside.size:
        return [*false, "set aside: two opinions"]
    if aside.size > claim.allowed:
        false.append("more set aside than allowed")
    lo, hi = ends_of(subject, result)
    if claim.kind == "infeasible" and np.all(lo <= hi) and np.any(lo == hi):
        return [*false, *_false_proof(subject, result, lo, hi)]  # equalities have no ratios
    if not np.all(lo < hi):
        return [*false, "intervals are none"]
    false += _false_numbers(subject, result, lo, hi)
    false += _false_verdict(subject, result, lo, hi)
    false += _false_objective(subject, result, lo, hi)
    values = values_of(subject, result, claim.matrix)
    kept = np.setdiff1d(np.arange(values.size), aside)
    if not claim.upper_bound >= _ratio(subject, result, values, lo, hi, kept) * (1.0 - CLOSE):
        false.append("upper bound")
    if claim.kind != "infeasible":
        false += _false_cone(claim)
    if claim.kind == "met":
        over = np.maximum(lo - values, values - hi)[kept]
        if not np.all(over <= 0):
            false.append("met")
        if not claim.lower_bound <= 0:
            false.append("lower bound of a fit")
        if claim.dual is not None:
            false += _false_proof_of_fewest(subject, result, lo, hi)
    elif claim.kind == "optimal":
        false += _false_optimum(subject, result)
    elif claim.kind == "infeasible":
        false += _false_proof(subject, result, lo, hi)
    return false


def _false_numbers(subject: Subject, result: Any, lo: Any, hi: Any) -> list[str]:
    """Residuals, their largest, the ratio, the violations."""
    claim, false = result.certificate, []
    values = values_of(subject, result, result.matrix)
    two = np.isfinite(lo) & np.isfinite(hi)
    crossed = np.maximum(np.maximum(lo - values, values - hi), 0.0)
    middle = subject.b if subject.b is not None else np.where(two, lo / 2 + hi / 2, 0.0)
    true = np.where(two, values - middle, crossed)
    scale = float(np.max(np.abs(values)) + np.max(np.abs(np.where(two, middle, 0.0))))
    stated = np.asarray(result.residuals)
    stated = np.where(two, stated, np.abs(stated))  # which end is crossed, a sign may tell
    if not np.all(np.abs(stated - true) <= 1e-9 * scale):
        false.append("residuals")
    kept = np.setdiff1d(np.arange(true.size), claim.set_aside)
    if not abs(result.max_residual - np.abs(true[kept]).max()) <= 1e-9 * scale:
        false.append("max_residual")
    ratio = _ratio(subject, result, values, lo, hi, kept)
    if not abs(result.max_ratio - ratio) <= CLOSE * max(ratio, result.max_ratio) + 1e-9:
        false.append("max_ratio")
    over = {int(i) for i in kept if crossed[i] > 0} if claim.kind != "optimal" else set()
    if len(result.violations) != len(over) or {int(i) for i in result.violations} != over:
        false.append("violations")
    return false


def _false_verdict(subject: Subject, result: Any, lo: Any, hi: Any) -> list[str]:
    """What the verdict states of A, its rows and its bounds."""
    v, claim, m = result.verdict, result.certificate, len(subject.U)
    aside = np.asarray(claim.set_aside, dtype=int)
    optimal, bounds = claim.kind == "optimal", subject.b is None
    kept = np.setdiff1d(np.arange(m), aside)
    values = values_of(subject, result, result.matrix)
    crossed = np.maximum(np.maximum(lo - values, values - hi), 0.0)
    over = 0 if optimal else int(np.sum(crossed[kept] > 0))
    half, n = hi / 2 - lo / 2, subject.U.shape[1]
    unknowns = n * n if np.iscomplexobj(subject.U) else n * (n + 1) // 2
    true = {
        "status": str(result.status),
        "claim": claim.kind,
        "asked": "least" if optimal else "bounds" if bounds else "delta",
        "psd": claim.psd,
        "measurements": m,
        "set_aside": tuple(aside.tolist()),
        "fewest": claim.kind == "met" and claim.dual is not None,
        "allowed": claim.allowed,
        "over": over,
        "lower_bound": claim.lower_bound,
        "upper_bound": claim.upper_bound,
        "condition": claim.condition,
        "unknowns": unknowns,
        "unique": None if v.unseen is None else v.unseen == 0 or result.facts.determined.by_cone,
        "even": not (optimal or bounds) and bool(np.ptp(half) <= 1e-12 * np.max(half)),
        "broken": (),
        "interpolates": optimal and m <= unknowns,
        **_preferred(claim),
    }
    if not bounds:
        exact_fit = optimal and claim.upper_bound <= 1e-8 * np.max(np.abs(subject.b))
        true["exact_fit"] = bool(exact_fit)
    false = [f"verdict: {name}" for name, value in true.items() if getattr(v, name) != value]
    if v.unseen is not None and not max(0, unknowns - kept.size) <= v.unseen <= unknowns:
        false.append("verdict: unseen")
    # No more than what the honest matrix misses, whose own bounds are 1% apart.
    found = values_of(subject, subject.result, subject.result.matrix)
    least = np.max(np.maximum(np.maximum(lo - found, found - hi), 0.0)[kept], initial=0.0)
    if not v.least_miss <= (least if bounds else 0.0) * (1 + CLOSE):
        false.append("verdict: least_miss")
    false += [f"verdict: {text}" for text in _false_rows(subject, result, lo, hi, values)]
    return false


def _preferred(claim: Any) -> dict[str, Any]:
    """What a verdict has to say of the preference, where the certificate is true."""
    stated = claim.objective
    if stated is None:
        nothing = dict.fromkeys(("objective", "objective_lower", "objective_upper", "optimal"))
        # Of what does not exist anything may have been wanted.
        asked = {"met": {"prefer": "any"}, "optimal": {"prefer": "minimax"}}.get(claim.kind, {})
        return {**nothing, "objective_condition": "", **asked}
    return {
        "prefer": stated.preference.name,
        "objective": stated.value,
        "objective_lower": stated.lower,
        "objective_upper": stated.upper,
        "optimal": stated.closed,
        "objective_condition": stated.condition,
    }


def _false_objective(subject: Subject, result: Any, lo: Any, hi: Any) -> list[str]:
    """What A costs, and bounds beyond which the best cost of the honest question lies."""
    claim, honest, false = result.certificate, subject.result.certificate, []
    stated, known = claim.objective, honest.objective
    if stated is None:
        return []
    cost = _cost(subject, result, lo, hi)
    if cost is not None and not abs(stated.value - cost) <= CLOSE * max(cost, abs(stated.value)):
        false.append("objective")
    same = all(
        np.array_equal(a, b)
        for a, b in zip((lo, hi, claim.set_aside), (*ends_of(subject, subject.result),
                        honest.set_aside), strict=True)
    )  # fmt: skip
    if not same or repr(stated.preference) != repr(known.preference):
        return false
    room = CLOSE * max(1.0, abs(known.value))
    if not stated.lower <= known.upper + room:
        false.append("lower bound of the objective")
    if not stated.upper >= known.lower - room:
        false.append("upper bound of the objective")
    return false


def _cost(subject: Subject, result: Any, lo: Any, hi: Any) -> float | None:
    """Sum of squares, or distance from the prior."""
    claim, A = result.certificate, np.asarray(result.certificate.matrix)
    preference = claim.objective.preference
    D = np.ones(len(A))
    if claim.columns is not None:
        D = np.ldexp(1.0, np.broadcast_to(claim.columns, D.shape).astype(int))
    off = (
        A / np.outer(D, D)
        - preference.tau * np.eye(len(A))
        - (0.0 if preference.base is None else np.asarray(preference.base))
    )
    if preference.name == "nearest":
        return float(np.linalg.norm(off))
    if preference.name != "least_squares":
        return None
    two = np.isfinite(lo) & np.isfinite(hi)
    two[claim.set_aside] = False
    middle = subject.b if subject.b is not None else np.where(two, lo / 2 + hi / 2, 0.0)
    z = (values_of(subject, result, A) - middle)[two] / (hi / 2 - lo / 2)[two]
    return float(z @ z) + (
        preference.ridge * float(np.linalg.norm(off)) ** 2 if preference.ridge else 0.0
    )


def _false_rows(subject: Subject, result: Any, lo: Any, hi: Any, values: Any) -> list[str]:
    """The rows that a verdict names: whether they are these, and as it says."""
    v, optimal, bounds = result.verdict, result.certificate.kind == "optimal", subject.b is None
    two = np.isfinite(lo) & np.isfinite(hi)
    crossed = np.maximum(np.maximum(lo - values, values - hi), 0.0)
    middle = subject.b if not bounds else np.where(two, lo / 2 + hi / 2, 0.0)
    sizes = np.where(two, np.abs(values - middle), crossed)
    sizes[result.certificate.set_aside] = crossed[result.certificate.set_aside] = 0.0
    scale = float(np.max(np.abs(values)) + np.max(np.abs(middle)))
    zero = 1.0 * (~np.any(subject.U != 0, axis=1) & ((lo > 0) | (hi < 0)))
    ratios = None
    if two.all():
        ratios = np.abs(values - middle) / (hi / 2 - lo / 2)
        ratios[result.certificate.set_aside] = 0.0
    false = []
    for name, row, these, largest in (
        ("worst", v.worst, sizes, sizes),
        ("nearest", v.nearest, sizes, ratios),
        ("missed", v.missed, crossed, crossed),
        ("contradiction", v.contradiction, sizes, zero),
    ):
        there = {"missed": bounds, "contradiction": zero.any() and not optimal}.get(name, True)
        if row is None or not there:
            false += [name] if (row is not None) or there else []
            continue
        i = row.index
        if not 0 <= i < values.size or not abs(row.size - these[i]) <= 1e-9 * scale:
            false.append(f"{name}: size")
            continue
        room = CLOSE * float(np.max(np.abs(largest))) if largest is not None else 0.0
        if largest is not None and not largest[i] >= np.max(largest) - room:
            false.append(f"{name}: row")
        given = {
            "reading": None if bounds else subject.b[i],
            "tolerance": None if bounds or optimal else hi[i] / 2 - lo[i] / 2,
            "lo": lo[i] if bounds and np.isfinite(lo[i]) else None,
            "hi": hi[i] if bounds and np.isfinite(hi[i]) else None,
        }
        for entry, value in given.items():
            stated = getattr(row, entry)
            known = stated is not None and value is not None
            if not (abs(stated - value) <= 1e-9 * scale if known else stated is value):
                false.append(f"{name}: {entry}")
    return false


def _ratio(subject: Subject, result: Any, values: Any, lo: Any, hi: Any, kept: Any) -> float:
    """The worst ratio; with a missing end, that of the honest result if nothing moved."""
    if np.isfinite(lo).all() and np.isfinite(hi).all():
        middle = subject.b if subject.b is not None else lo / 2 + hi / 2
        return float(np.max((np.abs(values - middle) / (hi / 2 - lo / 2))[kept]))
    honest = subject.result
    same = np.allclose(values, values_of(subject, honest, honest.matrix), rtol=1e-9)
    return float(honest.max_ratio) if same else float(result.max_ratio)


def _false_cone(claim: Any) -> list[str]:
    eigenvalues = np.linalg.eigvalsh(np.asarray(claim.matrix))
    tiny = 1e-12 * max(float(np.abs(eigenvalues).max()), 1e-300)
    false = []
    if claim.psd and eigenvalues[0] < -tiny:
        false.append("positive")
    if claim.rank is not None and np.sum(np.abs(eigenvalues) > tiny) > claim.rank:
        false.append("rank")
    return false


def _false_optimum(subject: Subject, result: Any) -> list[str]:
    """Both bounds on the smallest worst error and their gap."""
    claim, false = result.certificate, []
    proved = 0.0
    if claim.dual is not None and np.shape(claim.dual) == subject.b.shape:
        y = np.asarray(claim.dual)
        gain = -float(y @ subject.b) if claim.psd else abs(float(y @ subject.b))
        width = subject.result.certificate.upper_bound
        lost = dual_error(subject, result, y) * _largest(subject, result, width)
        total = float(np.abs(y).sum())
        proved = (gain - lost) / total if total > 0 else 0.0
    if not claim.lower_bound <= proved * (1.0 + CLOSE):
        false.append("lower bound")
    if not claim.upper_bound - claim.lower_bound <= 1.002 * claim.gap * claim.upper_bound:
        false.append("gap")
    return false


def _largest(subject: Subject, result: Any, width: float) -> float:
    """A bound on the norm (positive: the trace) of a matrix whose errors are at most `width`."""
    U = rows_of(subject, result)
    if result.certificate.psd:
        least = np.linalg.eigvalsh(np.einsum("ij,ik->jk", U, U.conj()))[0]
        return float(np.sum(subject.b + width) / least)
    sigma = np.linalg.svd(programs.features(U), compute_uv=False)[-1]
    return float(np.linalg.norm(np.abs(subject.b) + width) / sigma)


def dual_error(subject: Subject, result: Any, y: Any) -> float:
    """How far ``F*(y)`` is from zero, or from the positive cone."""
    U = rows_of(subject, result)
    F = np.einsum("i,ij,ik->jk", y, U, U.conj())
    if result.certificate.psd:
        return max(0.0, -float(np.linalg.eigvalsh(F)[0]))
    return float(np.linalg.norm(F))


def _false_proof_of_fewest(subject: Subject, result: Any, lo: Any, hi: Any) -> list[str]:
    """The dual vectors by which fewer rows set aside would not do."""
    claim = result.certificate
    if np.ndim(claim.dual) != 2 or not len(claim.dual) or claim.dual.shape[1] != lo.size:
        return ["dual"]
    fewer = len(claim.set_aside) - 1
    hit = fewer < 0 or any(
        all(np.any(y[list(rows)] != 0) for y in claim.dual)
        for rows in itertools.combinations(range(lo.size), fewer)
    )
    proved = all(proves(subject, result, y, lo, hi) for y in claim.dual)
    return ["fewer may do"] * hit + ["dual"] * (not proved)


def _false_proof(subject: Subject, result: Any, lo: Any, hi: Any) -> list[str]:
    """The dual vectors, the bound that they prove, and under which condition."""
    claim, honest = result.certificate, subject.result.certificate
    if claim.dual is None or np.shape(claim.dual)[-1] != lo.size:
        return ["dual"]
    false, duals = [], np.atleast_2d(claim.dual)
    if not all(proves(subject, result, y, lo, hi) for y in duals):
        false.append("dual")
    if any(
        all(np.any(y[list(rows)] != 0) for y in duals)
        for rows in itertools.combinations(range(lo.size), claim.allowed)
    ):
        false.append("supports can be hit")
    if not claim.lower_bound <= honest.lower_bound * (1.0 + CLOSE):
        false.append("lower bound")
    if _reach(claim.condition) > 1.01 * _reach(honest.condition):
        false.append("condition")
    zero = ~np.any(subject.U != 0, axis=1)
    if not honest.psd and not np.any(duals[:, zero]) and duals.shape[0] == 1:
        y = duals[0]
        gain, total = gain_of(y, lo, hi, claim.psd), float(np.abs(y) @ (hi - lo)) / 2.0
        bound = 1.0 + gain / total if total > 0 and np.isfinite(total) else np.inf
        if not claim.lower_bound <= bound * (1.0 + CLOSE):
            false.append("lower bound by this dual")
    return false


def _reach(condition: str) -> float:
    """The size of matrices up to which a claim holds."""
    found = re.findall(r"up to ([-+0-9.e]+)", condition)
    return float(found[0].rstrip(".")) if found else np.inf


def gain_of(y: Any, lo: Any, hi: Any, psd: bool) -> float:
    """By how much ``y`` separates the intervals from what matrices can read."""

    def least(y: Any) -> float:
        """The least of ``y . v`` over ``lo <= v <= hi``."""
        with np.errstate(invalid="ignore"):
            parts = np.where(y > 0, y * lo, np.where(y < 0, y * hi, 0.0))
        return float(parts.sum())

    return least(-y) if psd else max(least(y), least(-y))


def proves(subject: Subject, result: Any, y: Any, lo: Any, hi: Any) -> bool:
    """Whether no matrix reads within the intervals, by Farkas' lemma."""
    U, claim = rows_of(subject, result), result.certificate
    zero = ~np.any(U != 0, axis=1)
    if np.any(zero & (y != 0) & ((lo > 0) | (hi < 0))):
        return True
    gain, error = gain_of(y, lo, hi, claim.psd), dual_error(subject, result, y)
    size = float(np.abs(y) @ np.sum(np.abs(U) ** 2, axis=1))
    if not gain > 0:
        return False
    if error <= 1e-12 * size:
        return True
    if claim.psd:
        return gain > error * _reach(claim.condition) if claim.condition else False
    sigma = np.linalg.svd(programs.features(U), compute_uv=False)
    full = U.shape[0] >= len(programs.basis(U.shape[1], np.iscomplexobj(U)))
    if np.isfinite(lo).all() and np.isfinite(hi).all() and full and sigma[-1] > 1e-9:
        return gain > error * float(np.linalg.norm(np.maximum(abs(lo), abs(hi)))) / sigma[-1]
    return gain > error * _reach(claim.condition)
