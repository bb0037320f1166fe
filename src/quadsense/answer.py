"""Putting together what the user sees: the verdict in numbers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import like, to_numpy
from quadsense.certificate import Certificate, within_gap
from quadsense.measurements import Measurements
from quadsense.methods.traits.options import GapOptions
from quadsense.objective import Objective, is_admitted, make_objective
from quadsense.proofs.definite import cholesky
from quadsense.proofs.exact import user_dual
from quadsense.proofs.infeasible import check_infeasible
from quadsense.proofs.lower import best_error_bound
from quadsense.result import Result
from quadsense.runs import Answer, Request
from quadsense.values import Values, allowed_size
from quadsense.verdict import Seen, make_verdict
from quadsense.vocabulary import Advice, Reason, Status, because, to_reason
from quadsense.watch import Stop

MOST = 0.51
"""Share of a contradiction that is most of it: of two rows that carry half each, both are named."""

MOST_SUSPECTS = 10
"""Rows named as carrying a contradiction, at most."""

RANK_SHARE = 0.1
"""Share of the predicted work of the solve that finding the rank of F may cost."""

SMALL_ORDER = 50
"""Order up to which the smallest eigenvalue is looked at, for advice only."""

DEFAULT_GAP = GapOptions().gap

NOTHING: npt.NDArray[np.int64] = np.empty(0, np.int64)


def to_result(request: Request, answer: Answer) -> Result:
    """Put together what the user sees."""
    watch = request.limits.watch
    # A ratio or bound beyond float64 is as good as infinite.
    with np.errstate(over="ignore"), watch.part("answer"), watch.grace():
        return _to_result(request, answer)


def _to_result(request: Request, answer: Answer) -> Result:
    data = request.data
    size = allowed_size(data, answer.matrix)
    values = Values(data, answer.outcome.found, answer.set_aside, size)
    try:
        with request.limits.watch.heeded():
            certificate = _certificate(request, answer, values)
    except Stop:
        answer = _unproved(request, answer)
        certificate = _certificate(request, answer, values)
    outcome = answer.outcome
    status = _status(answer, certificate)
    suspects = _suspects(data, certificate)
    target, own = request.problem.target, slice(data.measured)
    worst = float(values.ratios[own].max())
    verdict = make_verdict(
        data,
        values,
        certificate,
        status,
        _seen(request, answer),
        target=target,
        prefer=_preferred(request, answer, certificate),
        wanted=_wanted(request, answer, certificate),
        suspects=suspects,
        reason=_reason(answer, status),
        advice=_advice(request, answer, status),
    )
    return Result(
        status=status,
        verdict=verdict,
        matrix=answer.matrix,
        residuals=like(values.residuals[own], data.b),
        max_residual=verdict.worst.size,
        max_ratio=worst,
        violations=np.flatnonzero(values.ratios[own] > 1.0) if target and worst > 1.0 else NOTHING,
        n_iter=outcome.n_iter,
        history=outcome.history,
        timings=request.limits.watch.timings(),
        certificate=certificate,
        plan={**request.plan.describe(), "method": answer.method, "lemma": answer.lemma},
        suspects=suspects[suspects < data.measured],
        set_aside=answer.set_aside,
    )


def _unproved(request: Request, answer: Answer) -> Answer:
    """The answer where a limit was reached before its proof was checked."""
    limits, status = request.limits, Status.TIME_LIMIT
    reason = f"stopped after time_limit = {limits.time_limit} s"
    if limits.interrupts.pressed:
        status, reason = Status.INTERRUPTED, "interrupted by the user"
    outcome = replace(answer.outcome, status=status, reason=reason, claim=None)
    return replace(answer, outcome=outcome, proofs=None)


def _status(answer: Answer, certificate: Certificate) -> Status:
    """The status that the checked certificate bears out."""
    status, kind = answer.outcome.status, certificate.kind
    if kind != "none":
        return Status(kind)
    claims = (Status.MET, Status.OPTIMAL, Status.INFEASIBLE)
    return Status.UNDECIDED if status in claims else status  # claimed, but it did not hold


def _certificate(request: Request, answer: Answer, values: Values) -> Certificate:
    """The claim, with every bound in it checked from the data."""
    data, outcome, claim = request.data, answer.outcome, answer.outcome.claim
    upper = float(values.upper.max())
    kind, lower, dual, condition = "none", 0.0, None, ""
    target = request.problem.target
    contradictions = data.contradictions() if target else NOTHING
    gap = _gap(request)
    left = np.setdiff1d(contradictions, answer.set_aside) if contradictions.size else NOTHING
    if outcome.status is Status.MET and not left.size:
        kind = "met"
    elif answer.hard:
        assert claim is not None and claim.dual is not None
        dual = user_dual(data, claim.dual)
        with request.limits.watch.part("proofs"):
            proof = check_infeasible(data.only_hard(), dual, request.positive)
        kind = "infeasible" if proof.proved else kind
        lower, condition = float(proof.proved), proof.condition
    elif answer.asked and (answer.preference.slack or not target):
        pass  # the objective is the claim
    elif not target:
        if claim is not None and claim.dual is not None:
            dual = user_dual(data, claim.dual)
            size = answer.matrix.norm()
            with request.limits.watch.part("proofs"):
                lower, condition = best_error_bound(data, dual, upper, request.positive, size)
        ended = outcome.status in (
            Status.OPTIMAL, Status.UNDECIDED, Status.STALLED, Status.LOCAL
        )  # fmt: skip
        if ended and within_gap(data, upper, lower, gap):
            kind = "optimal"
    elif request.allowed:
        dual = answer.proofs
        if dual is not None:
            kind, lower = "infeasible", 1.0
            with request.limits.watch.part("proofs"):
                proofs = [check_infeasible(data, y, request.positive, alone=True) for y in dual]
            condition = next((proof.condition for proof in proofs if proof.condition), "")
    else:
        if contradictions.size:
            dual = np.zeros(data.m)
            dual[contradictions[0]] = np.sign(float(data.b[int(contradictions[0])])) or 1.0
            with request.limits.watch.part("proofs"):
                proof = check_infeasible(data, dual, request.positive)
        elif claim is not None and claim.dual is not None:
            assert request.problem.prove is not None
            with request.limits.watch.part("proofs"):
                dual, proof = user_dual(data, claim.dual), request.problem.prove(claim.dual)
        if dual is not None:
            lower, condition = proof.lower_bound, proof.condition
            kind = "infeasible" if proof.proved else kind
    outright = data.from_bounds
    objective = None
    if kind != "infeasible" and _has_objective(answer):
        with request.limits.watch.part("proofs"):
            objective = _objective(request, answer, values)
    if kind != "met" and objective is not None and (answer.preference.slack or not target):
        # Without a tolerance to meet, or with slack, the preference is the claim.
        settled = outcome.status in (Status.OPTIMAL, Status.UNDECIDED, Status.STALLED)
        kind = "optimal" if settled and objective.closed else "none"
        lower = 0.0
    return Certificate(
        kind=kind,
        upper_bound=upper,
        lower_bound=min(lower, upper),
        rounding=float((to_numpy(outcome.found.error) / data.unit_ends.unit).max()),
        matrix=answer.matrix,
        dual=dual,
        tolerance=data.plain.stated_tolerance,
        lo=data.plain.lo if outright else None,
        hi=data.plain.hi if outright else None,
        conjugate=data.unit_rows.conjugate,
        psd=request.positive,
        rank=request.problem.rank,
        signs=request.problem.signs or (),
        gap=gap if kind == "optimal" else 0.0,
        set_aside=answer.set_aside,
        allowed=request.allowed,
        condition=condition,
        objective=objective,
        constraints=data.constraints,
        hard=answer.hard and kind == "infeasible",
        data=data,
    )


def _has_objective(answer: Answer) -> bool:
    """Whether A costs anything by the preference.

    Of the smallest worst error the certificate itself tells.
    """
    return answer.preference.name != "any" and (answer.asked or answer.preference.target)


def _objective(request: Request, answer: Answer, values: Values) -> Objective | None:
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


def _preferred(request: Request, answer: Answer, certificate: Certificate) -> str:
    """Which A this is: any fit where nothing can be said of the preference."""
    name = answer.preference.name
    silent = certificate.kind == "met" and certificate.objective is None
    return "any" if silent and request.problem.target else name


def _wanted(request: Request, answer: Answer, certificate: Certificate) -> str:
    """What was wanted first, where the answer is to something else."""
    first = request.wanted
    return "" if first == _preferred(request, answer, certificate) else first


def _gap(request: Request) -> float:
    """The distance of the bounds at which the user is content."""
    return float(request.wishes.get("gap", DEFAULT_GAP))


def _suspects(data: Measurements, certificate: Certificate) -> npt.NDArray[np.int64]:
    """Measurements that carry most of a contradiction, the heaviest first."""
    if certificate.kind != "infeasible" or certificate.dual is None:
        return NOTHING
    contradictions = (data.only_hard() if certificate.hard else data).contradictions()
    if contradictions.size:
        return contradictions
    weight: Any = np.abs(np.atleast_2d(certificate.dual)) * to_numpy(data.tolerance)
    weight = (weight / weight.sum(axis=1, keepdims=True)).sum(axis=0)
    order = np.argsort(-weight, kind="stable")
    enough = int(np.searchsorted(np.cumsum(weight[order]), MOST * weight.sum())) + 1
    return order[: min(enough, MOST_SUSPECTS)]


def _seen(request: Request, answer: Answer) -> Seen:
    """Whether the measurements determine A, how many dimensions they do not see, and if exactly.

    Where something was set aside, only a bound is told: what is left was not looked at.
    """
    data = request.data
    unknowns, kept = data.unit_rows.unknowns, data.m - answer.set_aside.size
    rank = None
    if not answer.set_aside.size:
        with suppress(Stop), request.limits.watch.heeded():  # it can wait
            rank = data.quick_rank(RANK_SHARE * request.plan.flops)
    if rank is not None:
        return Seen(rank == unknowns, unknowns - rank, unknowns, True)
    if kept < unknowns:
        return Seen(False, unknowns - kept, unknowns, False)
    return Seen(None, None, unknowns, False)


def _reason(answer: Answer, status: Status) -> Reason | None:
    """Why nothing was decided, where nothing was."""
    if status.success or status is Status.INFEASIBLE:
        return None
    claimed = answer.outcome.status
    if claimed is not status:
        return because("unproved", claimed=str(claimed))
    return to_reason(answer.outcome.reason)


def _advice(request: Request, answer: Answer, status: Status) -> tuple[Advice, ...]:
    """Advice that costs next to nothing to give."""
    data = request.data
    indefinite = request.problem.signs is not None
    if not status.success or request.positive or indefinite or data.n > SMALL_ORDER:
        return ()
    b = to_numpy(data.b)
    if b.min() < 0.0:
        return ()
    A, shift = to_numpy(answer.matrix.form.dense()), 1e-6 * float(b.max())
    moved = A.copy()
    moved.reshape(-1)[:: len(A) + 1] += shift
    if shift > 0.0 and cholesky(moved) is not None:
        return ()
    smallest = float(np.linalg.eigvalsh(A)[0])
    return (Advice("psd", smallest),) if smallest < -shift else ()
