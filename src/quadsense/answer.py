"""Putting together what the user sees: the verdict in numbers and in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, namespace, to_numpy
from quadsense.certificate import Certificate, ratios_of, within_gap
from quadsense.measurements import Measurements
from quadsense.proofs import best_error_bound, check_infeasible, user_dual
from quadsense.result import Result, Status
from quadsense.runs import Answer, Request

SMALL_ORDER = 50
"""Order up to which the smallest eigenvalue is looked at, for a remark only."""

MOST_SUSPECTS = 10


def to_result(request: Request, answer: Answer, preparing: float) -> Result:
    """Put together what the user sees."""
    data, outcome = request.data, answer.outcome
    if answer.set_aside.size:
        data = data.set_aside(answer.set_aside)
    z = residuals = outcome.found.z * data.unit_rows.norms * data.unit_rows.norms
    dead = data.unit_rows.nonzero == 0
    if bool(namespace(z).any(dead)):  # u = 0 reads 0 whatever A is
        residuals = namespace(z).where(dead, -data.b, z)
    ratios = ratios_of(data, outcome.found.z)
    certificate = _certificate(request, answer, data, ratios)
    status = outcome.status
    if certificate.kind == "infeasible":
        status = Status.INFEASIBLE
    elif status is Status.INFEASIBLE or (
        status is Status.OPTIMAL
        and not within_gap(data, certificate.upper_bound, certificate.lower_bound, certificate.gap)
    ):  # claimed, but the check from the data did not hold
        status = Status.UNDECIDED
    unique, unseen = _identifiability(data)
    suspects = _suspects(data, certificate)
    words = _Words(request, answer, data, ratios, residuals, certificate, status)
    return Result(
        status=status,
        message=words.message(unique, unseen, suspects),
        matrix=answer.matrix,
        residuals=residuals,
        max_residual=float(np.abs(to_numpy(residuals)).max()),
        max_ratio=float(ratios.max()),
        violations=np.flatnonzero(ratios > 1.0) if request.problem.target else NOTHING,
        n_iter=outcome.state.iteration,
        history=outcome.history,
        timings=outcome.timings(preparing),
        certificate=certificate,
        plan={**request.plan.describe(), "method": answer.method, "lemma": answer.lemma},
        unique=unique,
        unseen=unseen,
        suspects=suspects,
        set_aside=answer.set_aside,
    )


NOTHING: npt.NDArray[np.int64] = np.empty(0, np.int64)


def _certificate(request: Request, answer: Answer, data: Measurements, ratios: Any) -> Certificate:
    """The claim, with every bound in it checked from the data."""
    outcome, claim = answer.outcome, answer.outcome.claim
    slack = to_numpy(outcome.found.error) / to_numpy(data.scaled().delta)
    kind, lower, dual, condition = "none", 0.0, None, ""
    if outcome.status is Status.MET:
        kind = "met"
    contradictions = data.contradictions()
    if contradictions.size:
        dual = np.zeros(data.m)
        dual[contradictions[0]] = np.sign(float(data.b[int(contradictions[0])]))
    elif claim is not None and claim.dual is not None and outcome.status is not Status.MET:
        dual = user_dual(data, claim.dual)
    upper = float((ratios + slack).max())
    if dual is not None and outcome.status is Status.OPTIMAL:
        kind = "optimal"
        lower, condition = best_error_bound(data, dual, upper, request.positive)
    elif dual is not None:
        proof = check_infeasible(data, dual, request.positive)
        lower, condition = proof.lower_bound, proof.condition
        kind = "infeasible" if proof.proved else kind
    return Certificate(
        kind=kind,
        upper_bound=upper,
        lower_bound=min(lower, upper),
        rounding=float(slack.max()),
        matrix=answer.matrix,
        dual=dual,
        tolerance=to_numpy(data.tolerance),
        conjugate=data.unit_rows.conjugate,
        psd=request.positive,
        gap=request.problem.options.gap if kind == "optimal" else 0.0,
        set_aside=answer.set_aside,
        condition=condition,
        data=request.data,
    )


def _suspects(data: Measurements, certificate: Certificate) -> npt.NDArray[np.int64]:
    """Measurements that carry most of a contradiction, the heaviest first."""
    if certificate.kind != "infeasible" or certificate.dual is None:
        return NOTHING
    contradictions = data.contradictions()
    if contradictions.size:
        return contradictions
    weight = np.abs(certificate.dual) * to_numpy(data.tolerance)
    order = np.argsort(-weight, kind="stable")
    enough = int(np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum())) + 1
    return order[: min(enough, MOST_SUSPECTS)]


def _identifiability(data: Measurements) -> tuple[bool | None, int | None]:
    """Whether the measurements determine A, and how many dimensions they do not see."""
    unknowns, rank = data.unit_rows.unknowns, data.quick_rank
    if rank is not None:
        return rank == unknowns, unknowns - rank
    if data.m < unknowns:
        return False, unknowns - data.m  # at least
    return None, None


class _Words:
    """The message: one or two sentences, the verdict and what it does not say."""

    def __init__(
        self,
        request: Request,
        answer: Answer,
        data: Measurements,
        ratios: Any,
        residuals: Array,
        certificate: Certificate,
        status: Status,
    ) -> None:
        self.request, self.answer, self.data = request, answer, data
        self.ratios, self.certificate, self.status = ratios, certificate, status
        worst = int(np.argmax(ratios))
        self.size = abs(float(residuals[worst]))
        self.delta = float(to_numpy(data.tolerance)[worst])

    def message(self, unique: bool | None, unseen: int | None, suspects: Any) -> str:
        """Everything."""
        if self.status is Status.INFEASIBLE:
            return self._infeasible(suspects)
        parts = [self._head(), self._seen(unique, unseen), self._remark()]
        return "; ".join(part for part in parts if part)

    def _head(self) -> str:
        data, certificate = self.data, self.certificate
        numbers = f"worst residual {self.size:.4g} against delta {self.delta:.4g}"
        kept = data.m - self.answer.set_aside.size
        if self.status is Status.MET:
            aside = self.answer.set_aside.size
            rest = f", {aside} set aside as asked" if aside else ""
            return f"met: {numbers}, all {kept} measurements within tolerance{rest}"
        if self.status is Status.OPTIMAL:
            if certificate.upper_bound <= 1e-8 * float(np.abs(to_numpy(data.b)).max()):
                return f"optimal: an exact fit, worst residual {self.size:.4g}"
            return (
                f"optimal: worst residual {self.size:.4g}, and no matrix does better than "
                f"{certificate.lower_bound:.4g}"
                + (f" ({certificate.condition})" if certificate.condition else "")
            )
        if not self.request.problem.target:
            return f"{self.status}: worst residual {self.size:.4g}; {self.answer.outcome.reason}"
        over = int(np.count_nonzero(self.ratios > 1.0))
        return f"not met: {numbers}, {over} of {kept} over; {self.answer.outcome.reason}"

    def _infeasible(self, suspects: Any) -> str:
        data, certificate = self.data, self.certificate
        if data.contradictions().size:
            i = int(suspects[0])
            return (
                f"infeasible: row {i} of U is zero, so every matrix reads 0 there, but b[{i}] = "
                f"{float(data.b[i]):.6g} with tolerance {float(to_numpy(data.tolerance)[i]):.6g}"
            )
        which = "no positive semidefinite matrix" if certificate.psd else "no matrix"
        condition = f" ({certificate.condition})" if certificate.condition else ""
        rows = ", ".join(str(int(i)) for i in suspects)
        return (
            f"infeasible: {which} meets delta{condition}; the best worst-case error is between "
            f"{certificate.lower_bound:.6g} and {certificate.upper_bound:.6g} times delta; rows "
            f"{rows} carry most of the contradiction"
        )

    def _seen(self, unique: bool | None, unseen: int | None) -> str:
        unknowns = self.data.unit_rows.unknowns
        if unique:
            return "the measurements determine A"
        if unseen is None:
            return "whether the measurements determine A was too costly to find out"
        least = "" if self.data.quick_rank is not None else "at least "
        fits = self.status.success
        fit = "A fits, but is not the only one" if fits else "A is not determined"
        return f"{least}{unseen} of {unknowns} directions of A are unseen: {fit}"

    def _remark(self) -> str:
        """Advice that costs next to nothing to give."""
        if not self.status.success or self.request.positive or self.data.n > SMALL_ORDER:
            return ""
        b = to_numpy(self.data.b)
        if b.min() < 0.0:
            return ""
        smallest = float(np.linalg.eigvalsh(np.asarray(self.answer.matrix))[0])
        if smallest < -1e-6 * b.max():
            return f"A has a negative eigenvalue ({smallest:.2g}) though no b is: try psd=True"
        return ""
