"""Putting together what the user sees: the verdict in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, like, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import cached_property, changed, made
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import condition_outside
from quadsense.measurements.gram import QUICK_RANK_FLOPS
from quadsense.proofs.definite import cholesky
from quadsense.proofs.infeasible import Conflict, best_error_bound, check_infeasible
from quadsense.proofs.rounding import Enclosure, user_dual
from quadsense.query.plan import Plan
from quadsense.query.query import environment
from quadsense.result.certificate import Certificate, within_gap
from quadsense.result.facts import Advice, Determined, RunFacts, gather_facts, keeps_constraints
from quadsense.result.result import Result
from quadsense.result.values import (
    Comparison,
    Objective,
    allowed_size,
    evaluate,
    is_admitted,
    largest_miss,
    make_objective,
    proved_miss,
)
from quadsense.result.words import MAX_LISTED
from quadsense.stages.determined import seen
from quadsense.stages.runs import Answer, Request
from quadsense.system.machine import FLOAT64_BYTES, memory_limit
from quadsense.system.threads import with_one_blas_thread
from quadsense.system.watch import FLOPS, Stop
from quadsense.typing import DEFAULT_GAP
from quadsense.vocabulary import Reason, Status, because, to_history, to_reason

MAX_BOUND_RATIO = 1.0 / (1.0 - DEFAULT_GAP)
"""Ratio of two bounds on the smallest worst ratio that are within the gap."""

MIN_NAMED_SHARE = 0.51
"""Share of a contradiction that is most of it: of two rows that carry half each, both are named."""

RANK_FLOPS = FLOPS
"""Predicted work up to which it is found out whether the readings determine A, unless the solve was
predicted to take longer: about a second of one core."""

RANK_BYTES = 2.0 * FLOAT64_BYTES
"""Bytes that it takes per pair of rows, or of unknowns where these are fewer: two matrices."""

MIN_RANK_SECONDS, RANK_SHARE = 0.25, 0.1
"""Predicted seconds that it may take after a solve with a time limit: the larger of this and of
this share of the limit."""

MIN_OUTSIDE_SHARE = 0.5
"""Share of readings outside of intervals that were given with them, from which on both are unlikely
to be in one unit."""

MAX_KEPT_READINGS = 2**16
"""Readings up to which what the facts are made of is kept until that is read."""

MAX_ADVICE_ORDER = 50
"""Order up to which the smallest eigenvalue is looked at, for advice only."""

MAY_BE_OPTIMAL = (Status.OPTIMAL, Status.UNDECIDED, Status.STALLED, Status.TIME_LIMIT)
"""How a run may end whose answer is optimal if the proved bounds are within the gap."""

NO_ROWS: npt.NDArray[np.int64] = np.empty(0, np.int64)


def to_result(request: Request, answer: Answer, asked: Callable[[], dict[str, Any]]) -> Result:
    """Put together what the user sees; `asked` returns what `Query.recorded` says.

    The facts, the plan and the history are made when they are read.
    """
    watch = request.limits.watch
    # A ratio or bound beyond float64 is as good as infinite.
    with np.errstate(over="ignore"), watch.part("answer", grace=True):
        return _to_result(request, answer, asked)


def _outside(claim: Certificate, columns: Any, user: Measurements) -> Certificate:
    """Return the claim about the scaled unknown as one about A, which says how it was scaled."""
    objective = claim.objective
    if objective is not None:
        objective = replace(objective, condition=condition_outside(objective.condition))
    return replace(
        claim,
        matrix=claim.matrix.stretched(columns),
        condition=condition_outside(claim.condition),
        objective=objective,
        constraints=user.constraints,
        columns=columns,
        data=user,
    )


def _to_result(request: Request, answer: Answer, asked: Callable[[], dict[str, Any]]) -> Result:
    data = request.data
    size = allowed_size(data, answer.matrix)
    values = Comparison(data, answer.outcome.found, answer.set_aside, size)
    watch, outcome = request.limits.watch, answer.outcome
    upper = float(values.upper.max())
    held = not data.constraints or bool(values.met[data.measured :].all())
    try:
        claimed = _claimed(request, answer, upper, held)
    except Stop:
        claimed = _Claimed()
    certificate = _certificate(request, answer, values, claimed, upper)
    stopped = watch.stopped
    status = _status(request, answer, certificate, stopped)
    matrix, fit, cost = answer.matrix, None, None
    if certificate.kind == "infeasible" and _is_plain(request, answer):
        closed = _closed(request, certificate, values)
        if closed is not None:
            certificate, values = closed
            matrix = certificate.matrix
    if certificate.kind == "infeasible" and _comes_with_a_fit(request, answer):
        from quadsense.stages.infeasible import least_squares_fit

        fit = least_squares_fit(request)
    if fit is not None:
        matrix, values, cost = fit.matrix, fit.values, fit.cost
        upper = float(values.upper.max())
        if upper < certificate.upper_bound:  # the better of the two is what is achieved
            rounding = _rounding(data, fit.found)
            certificate = changed(
                certificate, matrix=matrix, upper_bound=upper, rounding=rounding,
                lower_bound=min(certificate.lower_bound, upper), misses=None,
            )  # fmt: skip
    if certificate.kind == "infeasible" and data.from_bounds and _is_plain(request, answer):
        certificate = changed(certificate, misses=_misses(data, certificate))
    conflict = _Conflict(data, certificate)
    reached = not data.constraints or keeps_constraints(data, certificate)
    inner = matrix
    if request.columns is not None:
        same = matrix is certificate.matrix
        certificate = _outside(certificate, request.columns, request.user)
        matrix = certificate.matrix if same else matrix.stretched(request.columns)
        if cost is not None:
            cost = replace(cost, condition=condition_outside(cost.condition))
    target, count = request.problem.target, data.measured
    ratios, residuals = values.ratios, values.residuals
    if count < data.m:
        ratios, residuals = ratios[:count], residuals[:count]
    low = request.shape.rank is not None
    determined = partial(seen, data, inner, answer.set_aside, low=low, psd=request.positive)
    at_hand = data.unit_rows.raw.kind.at_hand
    facts = partial(
        _facts,
        data,
        values,
        certificate,
        status,
        partial(determined, most=_rank_flops(request, status, at_hand)),
        advised=not (request.positive or request.problem.signs),
        target=target,
        sought=answer.preference.name,
        wanted=request.wanted,
        conflict=conflict,
        reached=reached,
        reason=_reason(request, answer, certificate, status, stopped),
    )
    later: dict[str, Callable[[], Any]] = {
        "facts": facts,
        "conflict": lambda: conflict.named.proved,
        "history": partial(to_history, outcome.entries),
        "plan": partial(_plan, request.plan, answer.method, answer.lemma, asked),
    }
    result: Result = Result.of(
        later,
        status=status,
        matrix=matrix,
        residuals=like(residuals, data.b),
        max_ratio=float(ratios.max()),
        violations=values.over[:count].nonzero()[0] if target else NO_ROWS,
        n_iter=outcome.n_iter,
        timings={},
        certificate=certificate,
        fit=cost,
    )
    result.__dict__["_settled"] = partial(_settled, partial(determined, most=math.inf))
    if not at_hand or data.m > MAX_KEPT_READINGS:
        with watch.heeded():
            # While the rows can be read, and instead of what it is made of.
            _ = result.facts, result.conflict
    result.timings.update(watch.timings())
    return result


def _plan(
    plan: Plan, method: str, lemma: str, asked: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return what `Result.plan` says."""
    made = {"method": method, "lemma": lemma, "request": asked(), "environment": environment()}
    return {**plan.describe(), **made}


@with_one_blas_thread
def _facts(
    data: Measurements, values: Comparison, certificate: Certificate, status: Status,
    determined: Callable[[], Determined], *, advised: bool, conflict: _Conflict,
    **said: Any,
) -> RunFacts:  # fmt: skip
    """Return the facts; `determined` finds out how far the readings determine A."""
    with np.errstate(over="ignore", under="ignore"):
        found = conflict.named
        advice = _other_unit(data)
        if advised and not advice:
            advice = _advice(data, certificate.matrix, status)
        return gather_facts(
            data, values, certificate, status, determined(), named=found.named,
            without=found.without, advice=advice, **said,
        )  # fmt: skip


def _rank_flops(request: Request, status: Status, at_hand: bool) -> float:
    """Return how much work may be spent on whether the readings determine A.

    It depends on shapes, on whether the rows are in memory, and on the limits of time and memory:
    this work is done when the facts of a result are read, which no limit stops. The cores do it,
    also where the solve ran on a device, so that the work of that solve is no measure of it.
    """
    if status is Status.INFEASIBLE:  # where nothing is said of A
        return QUICK_RANK_FLOPS
    rows = request.data.unit_rows
    if RANK_BYTES * min(rows.m, rows.unknowns) ** 2 > memory_limit():
        return 0.0
    solve = request.plan.flops if rows.xp is np else 0.0
    most, limit = max(solve, RANK_FLOPS if at_hand else 0.0), request.limits.time_limit
    return most if limit is None else min(most, max(MIN_RANK_SECONDS, RANK_SHARE * limit) * FLOPS)


@with_one_blas_thread
def _settled(determined: Callable[[], Determined]) -> Determined:
    """Return how far A is determined, however long that takes."""
    with np.errstate(over="ignore", under="ignore"):
        return determined()


def _is_plain(request: Request, answer: Answer) -> bool:
    """Whether a proof that nothing fits is one of all rows, none of which need be set aside."""
    special = answer.hard or answer.set_aside.size or request.allowed
    return not special and not request.data.contradictions().size


def _closed(
    request: Request, certificate: Certificate, values: Comparison
) -> tuple[Certificate, Comparison] | None:
    """Return the certificate with both bounds on the smallest miss brought together.

    What the matrix of the upper bound reads comes along, `values` of that of the certificate. None
    where the bounds are within the gap already, and where nothing better was found.
    """
    data = request.data
    if (
        not data.from_bounds
        and certificate.upper_bound <= MAX_BOUND_RATIO * certificate.lower_bound
    ):
        return None
    from quadsense.stages.infeasible import smallest_miss

    best = None
    with suppress(Stop), request.limits.watch.part("proofs", heeded=True):
        best = smallest_miss(request)
    if best is None or (best.proof.condition and not certificate.condition):
        return None
    low = request.problem.rank is not None or request.problem.signs
    if best.matrix is None or best.found is None or best.values is None or low:
        # Of the rank that was asked for nothing better is known.
        if best.proof.lower_bound <= certificate.lower_bound:
            return None
        lower = min(best.proof.lower_bound, certificate.upper_bound)
        condition = best.proof.condition
        return changed(certificate, dual=best.dual, lower_bound=lower, condition=condition), values
    upper = float(best.values.upper.max())
    better = changed(
        certificate, dual=best.dual, lower_bound=min(best.proof.lower_bound, upper),
        upper_bound=upper, condition=best.proof.condition, matrix=best.matrix,
        rounding=_rounding(data, best.found),
    )  # fmt: skip
    return better, best.values


def _misses(data: Measurements, certificate: Certificate) -> tuple[float, float] | None:
    """Return the bounds on the largest miss of an interval, in units of the readings.

    None where there is no dual vector, or where the matrix misses a constraint: what it misses of
    the intervals is then not achievable.
    """
    values = evaluate(data, certificate.matrix)
    most = largest_miss(data, values)
    held = not values.missed[data.measured :].any()
    if certificate.dual is None or not held or not np.isfinite(most):
        return None
    least = proved_miss(data, certificate.dual, certificate.psd, most, certificate.condition)
    return (least, most) if least <= most else None


def _comes_with_a_fit(request: Request, answer: Answer) -> bool:
    """Whether A is the least-squares fit where nothing fits, not the one of the proof."""
    asked = request.preferences[0]
    return not (answer.hard or answer.set_aside.size or asked.worst_error)


def _status(request: Request, answer: Answer, certificate: Certificate, stopped: bool) -> Status:
    """Return the status that the checked certificate supports.

    `stopped` tells whether a limit was reached during the proofs.
    """
    status, kind = answer.outcome.status, certificate.kind
    if kind != "none":
        return Status(kind)
    if status not in (Status.MET, Status.OPTIMAL, Status.INFEASIBLE):
        return status
    if stopped:
        return Status.INTERRUPTED if request.limits.interrupts.pressed else Status.TIME_LIMIT
    return Status.UNDECIDED  # claimed, but it did not hold


@dataclass(frozen=True)
class _Claimed:
    """What is claimed of A, apart from the preference, with a proof that was checked."""

    kind: str = "none"
    lower: float = 0.0
    dual: Vector | None = None
    condition: str = ""


def _claimed(request: Request, answer: Answer, upper: float, held: bool) -> _Claimed:
    """Return the claim that the data bear out.

    `upper` is the worst ratio of A; `held` says whether it meets the constraints.
    """
    data, outcome, claim = request.data, answer.outcome, answer.outcome.claim
    target = request.problem.target
    contradictions = data.contradictions() if target else NO_ROWS
    left = np.setdiff1d(contradictions, answer.set_aside) if contradictions.size else NO_ROWS
    if outcome.status is Status.MET and not left.size:
        return _Claimed("met", dual=answer.proofs)
    if answer.hard:
        assert claim is not None and claim.dual is not None
        dual = user_dual(data, claim.dual)
        with request.limits.watch.part("proofs", heeded=True):
            proof = check_infeasible(data.only_hard(), dual, request.positive)
        kind = "infeasible" if proof.proved else "none"
        return _Claimed(kind, float(proof.proved), dual, proof.condition)
    if answer.asked and (answer.preference.slack or not target):
        return _Claimed()  # the objective is the claim
    if not target:
        vector, lower, condition = None, 0.0, ""
        if claim is not None and claim.dual is not None:
            vector = user_dual(data, claim.dual)
            size = answer.matrix.norm()
            with request.limits.watch.part("proofs", heeded=True):
                lower, condition = best_error_bound(data, vector, upper, request.positive, size)
        ended = held and outcome.status in (*MAY_BE_OPTIMAL, Status.LOCAL)
        closed = ended and within_gap(data, upper, lower, _gap(request))
        return _Claimed("optimal" if closed else "none", lower, vector, condition)
    if request.allowed:
        duals = answer.proofs
        if duals is None:
            return _Claimed()
        with request.limits.watch.part("proofs", heeded=True):
            proofs = [check_infeasible(data, y, request.positive, alone=True) for y in duals]
        condition = next((proof.condition for proof in proofs if proof.condition), "")
        return _Claimed("infeasible", 1.0, duals, condition)
    if contradictions.size:
        dual = np.zeros(data.m)
        dual[contradictions[0]] = np.sign(float(data.b[int(contradictions[0])])) or 1.0
        with request.limits.watch.part("proofs", heeded=True):
            proof = check_infeasible(data, dual, request.positive)
    elif claim is not None and claim.dual is not None:
        assert request.problem.prove is not None
        with request.limits.watch.part("proofs", heeded=True):
            dual, proof = user_dual(data, claim.dual), request.problem.prove(claim.dual)
    else:
        return _Claimed()
    kind = "infeasible" if proof.proved else "none"
    return _Claimed(kind, proof.lower_bound, dual, proof.condition)


def _certificate(
    request: Request, answer: Answer, values: Comparison, claimed: _Claimed, upper: float
) -> Certificate:
    """Return the claim with what is proved of the preference.

    The claim stands where a limit is reached before a bound on the objective is proved.
    """
    data, outcome, target = request.data, answer.outcome, request.problem.target
    kind, lower = claimed.kind, claimed.lower
    outright = data.from_bounds
    objective = None
    if kind != "infeasible" and _has_objective(answer):
        try:
            with request.limits.watch.part("proofs", heeded=True):
                objective = _objective(request, answer, values)
        except Stop:
            objective = None
    if kind != "met" and objective is not None and (answer.preference.slack or not target):
        # Without a tolerance to meet, or with slack, the preference is the claim.
        kind = "optimal" if outcome.status in MAY_BE_OPTIMAL and objective.closed else "none"
        lower = 0.0
    gap = _gap(request)
    return made(
        Certificate,
        {
            "kind": kind,
            "upper_bound": upper,
            "lower_bound": min(lower, upper),
            "rounding": _rounding(data, outcome.found),
            "matrix": answer.matrix,
            "dual": claimed.dual,
            "tolerance": data.plain.stated_tolerance,
            "lo": data.plain.lo if outright else None,
            "hi": data.plain.hi if outright else None,
            "conjugate": data.unit_rows.conjugate,
            "psd": request.positive,
            "rank": request.problem.rank,
            "signs": request.problem.signs or (),
            "gap": gap if kind == "optimal" else 0.0,
            "set_aside": answer.set_aside,
            "allowed": request.allowed,
            "condition": claimed.condition,
            "objective": objective,
            "constraints": data.constraints,
            "columns": None,
            "hard": answer.hard and kind == "infeasible",
            "misses": None,
            "data": data,
        },
    )


def _rounding(data: Measurements, found: Enclosure) -> float:
    """Return the largest rounding bound, as a part of the tolerance."""
    return float((to_numpy(found.error) / data.unit_ends.unit).max())


def _has_objective(answer: Answer) -> bool:
    """Whether A costs anything by the preference.

    Of the smallest worst error the certificate itself tells.
    """
    return answer.preference.name != "any" and (answer.asked or answer.preference.target)


def _objective(request: Request, answer: Answer, values: Comparison) -> Objective | None:
    """What A costs by the preference, and the bounds on it."""
    data, outcome, preference = request.data, answer.outcome, answer.preference
    if answer.set_aside.size:
        data = data.set_aside(answer.set_aside)
    dual = outcome.dual if answer.asked else None
    dual = None if dual is None else user_dual(request.data, dual)
    return make_objective(
        data,
        preference,
        answer.matrix,
        values.reads,
        values.error,
        dual,
        fits=is_admitted(preference, values.met, answer.set_aside, data.measured),
        gap=_gap(request),
    )


def _gap(request: Request) -> float:
    """The distance of the bounds at which the user is content."""
    return float(request.options.get("gap", DEFAULT_GAP))


class Named(NamedTuple):
    """Rows and constraints that are named where nothing fits.

    Attributes
    ----------
    named : ndarray of int
        The heaviest in the proof first; those of constraints count on after the user's rows.
    proved : Conflict or None
        Those that contradict each other by themselves, where few were found.
    without : tuple of int
        Rows, without any one of which a matrix meets all others, constraints included.
    """

    named: npt.NDArray[np.int64]
    proved: Conflict | None = None
    without: tuple[int, ...] = ()


class _Conflict:
    """What is named where nothing fits, found when it is first asked for."""

    def __init__(self, data: Measurements, certificate: Certificate) -> None:
        self.data, self.certificate = data, certificate

    @cached_property
    def named(self) -> Named:
        """By default what carries most of the proof."""
        return _conflict(self.data, self.certificate)


@with_one_blas_thread
def _conflict(data: Measurements, certificate: Certificate) -> Named:
    """Return what is named, by default what carries most of the proof."""
    shares = _heaviest(data, certificate)
    plain = certificate.dual is not None and certificate.dual.ndim == 1 and not certificate.hard
    if not shares.size or not plain or data.contradictions().size:
        return Named(shares)
    from quadsense.ranges.conflicts import conflict, dispensable  # rarely needed, slow to import

    assert certificate.dual is not None
    with np.errstate(over="ignore", under="ignore"):
        found = conflict(data, certificate.psd, certificate.dual)
        if found is None:
            return Named(shares)
        without = dispensable(data, certificate.psd, found.members)
    named = found.members
    if named.size > MAX_LISTED:  # the heaviest rows, and every constraint
        constraints = named[(named >= data.measured) & ~np.isin(named, shares)]
        named = np.concatenate([shares, constraints])
    return Named(named, found, without)


def _heaviest(data: Measurements, certificate: Certificate) -> npt.NDArray[np.int64]:
    """Return the rows that carry most of a contradiction, the heaviest first."""
    if certificate.kind != "infeasible" or certificate.dual is None:
        return NO_ROWS
    contradictions = (data.only_hard() if certificate.hard else data).contradictions()
    if contradictions.size:
        return contradictions
    weight: Any = np.abs(np.atleast_2d(certificate.dual)) * to_numpy(data.tolerance)
    weight = (weight / weight.sum(axis=1, keepdims=True)).sum(axis=0)
    order = np.argsort(-weight, kind="stable")
    enough = int(np.searchsorted(np.cumsum(weight[order]), MIN_NAMED_SHARE * weight.sum())) + 1
    return order[: min(enough, MAX_LISTED)]


def _reason(
    request: Request, answer: Answer, certificate: Certificate, status: Status, stopped: bool
) -> Reason | None:
    """Return why nothing was decided, or why the preference of a fit was not certified."""
    limits, claimed, objective = request.limits, answer.outcome.status, certificate.objective
    seconds = None if limits.interrupts.pressed else limits.time_limit
    if status is Status.MET:
        if answer.preference.name == "any":
            return None
        cut = stopped or answer.outcome.late
        proved = objective is not None and objective.closed
        return because("no_bound", seconds=seconds) if cut and not proved else None
    if status.success or status is Status.INFEASIBLE:
        return None
    if claimed is status:
        return to_reason(answer.outcome.reason)
    if stopped:
        return because("no_proof", claimed=str(claimed), seconds=seconds)
    return because("unproved", claimed=str(claimed))


def _other_unit(data: Measurements) -> tuple[Advice, ...]:
    """Return the suspicion that readings are not in the unit of the intervals given with them."""
    if not data.from_bounds or data.readings is None:
        return ()
    assert data.ends is not None
    b, own = to_numpy(data.readings), slice(data.measured)
    lo, hi = data.ends.lo[own], data.ends.hi[own]
    outside = int(np.count_nonzero((b < lo) | (b > hi)))
    if outside < max(2.0, MIN_OUTSIDE_SHARE * b.size):
        return ()
    ends = np.concatenate([lo, hi])
    shares = bool(np.all((ends >= 0.0) & (ends <= 1.0) | ~np.isfinite(ends)))
    counts = shares and bool(np.all((b >= 0.0) & (b == np.floor(b)))) and float(b.max()) > 1.0
    return (Advice("counts" if counts else "outside", float(outside)),)


def _advice(data: Measurements, matrix: SensedMatrix, status: Status) -> tuple[Advice, ...]:
    """Advice that costs next to nothing to give."""
    if not status.success or data.n > MAX_ADVICE_ORDER:
        return ()
    b = to_numpy(data.b)
    if b.min() < 0.0:
        return ()
    A, shift = to_numpy(matrix.form.dense()), 1e-6 * float(b.max())
    moved = A + shift * np.eye(len(A))
    if shift > 0.0 and cholesky(moved) is not None:
        return ()
    smallest = float(np.linalg.eigvalsh(A)[0])
    return (Advice("psd", smallest),) if smallest < -shift else ()
