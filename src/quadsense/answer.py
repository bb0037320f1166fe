"""Putting together what the user sees: the verdict in numbers and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.arrays import Array, namespace, to_numpy
from quadsense.loop import Outcome
from quadsense.measurements import Measurements
from quadsense.methods import Method, Problem
from quadsense.plan import Plan
from quadsense.result import Certificate, Result, Status


def to_result(
    data: Measurements,
    plan: Plan,
    solver: Method,
    problem: Problem,
    outcome: Outcome,
    norms2: Any,
    preparing: float,
) -> Result:
    """Put together what the user sees."""
    z, error = (to_numpy(part) for part in outcome.found)
    unit_delta = to_numpy(problem.delta)
    ratios = np.abs(z) / unit_delta
    residuals = outcome.found.z * data.unit_rows.norms * data.unit_rows.norms
    dead = to_numpy(data.unit_rows.nonzero) == 0
    suspects = data.contradictions()
    status, dual = outcome.status, None
    if dead.any():  # u = 0 reads 0 whatever A is
        residuals = namespace(residuals).where(data.unit_rows.nonzero > 0, residuals, -data.b)
        ratios = np.where(dead, np.abs(to_numpy(data.b)) / to_numpy(data.tolerance), ratios)
    if suspects.size:
        status = Status.INFEASIBLE
        dual = np.zeros(data.m)
        dual[suspects[0]] = 1.0
    matrix = solver.matrix(problem, outcome.state)
    kind = {Status.MET: "met", Status.INFEASIBLE: "infeasible"}.get(status, "none")
    certificate = Certificate(
        kind=kind,
        upper_bound=float((ratios + error / unit_delta).max()),
        lower_bound=float(ratios[suspects].max()) if suspects.size else 0.0,
        rounding=float((error / unit_delta).max()),
        matrix=matrix,
        dual=dual,
        tolerance=to_numpy(data.tolerance),
        conjugate=data.unit_rows.conjugate,
    )
    unique, unseen = _identifiability(data)
    max_residual = float(np.abs(to_numpy(residuals)).max())
    return Result(
        status=status,
        message=_message(data, status, outcome.reason, ratios, residuals, unique, unseen, suspects),
        matrix=matrix,
        residuals=residuals,
        max_residual=max_residual,
        max_ratio=float(ratios.max()),
        violations=np.flatnonzero(ratios > 1.0),
        n_iter=outcome.state.iteration,
        history=outcome.history,
        timings={
            "prepare": preparing,
            "iterate": outcome.seconds_iterating,
            "certify": outcome.seconds_certifying,
        },
        certificate=certificate,
        plan={**plan.describe(), "method": solver.name, "lemma": solver.lemma},
        unique=unique,
        unseen=unseen,
        suspects=suspects,
    )


def _identifiability(data: Measurements) -> tuple[bool | None, int | None]:
    """Whether the measurements determine A, and how many dimensions they do not see."""
    unknowns, rank = data.unit_rows.unknowns, data.rank
    if rank is not None:
        return rank == unknowns, unknowns - rank
    if data.m < unknowns:
        return False, unknowns - data.m  # at least
    return None, None


def _message(
    data: Measurements,
    status: Status,
    reason: str,
    ratios: Any,
    residuals: Array,
    unique: bool | None,
    unseen: int | None,
    suspects: Any,
) -> str:
    """One or two sentences: the verdict, and what it does not say."""
    worst = int(np.argmax(ratios))
    size = abs(float(residuals[worst]))
    tolerance = to_numpy(data.tolerance)
    delta = float(tolerance[worst])
    if status is Status.INFEASIBLE:
        i = int(suspects[0])
        return (
            f"infeasible: row {i} of U is zero, so every matrix reads 0 there, but b[{i}] = "
            f"{float(data.b[i]):.6g} with tolerance {float(tolerance[i]):.6g}"
        )
    numbers = f"worst residual {size:.4g} against delta {delta:.4g}"
    if status is Status.MET:
        head = f"met: {numbers}, all {data.m} measurements within tolerance"
    else:
        over = int(np.count_nonzero(ratios > 1.0))
        head = f"not met: {numbers}, {over} of {data.m} over; {reason}"
    unknowns = data.unit_rows.unknowns
    if unique:
        return f"{head}; the measurements determine A"
    if unseen is None:
        return f"{head}; whether the measurements determine A was too costly to find out"
    least = "" if data.rank is not None else "at least "
    fit = "A fits, but is not the only one" if status is Status.MET else "A is not determined"
    return f"{head}; {least}{unseen} of {unknowns} directions of A are unseen: {fit}"
