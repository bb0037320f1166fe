"""The result of a fit that was found in closed form: certified as that of any solve is."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from quadsense.core.matrix import SensedMatrix
from quadsense.measurements import Measurements
from quadsense.methods.traits import GapOptions
from quadsense.preferences import Preference
from quadsense.result.certificate import Certificate
from quadsense.result.facts import Determined, gather_facts
from quadsense.result.result import Result
from quadsense.result.values import evaluate, make_objective
from quadsense.sklearn.joint import tolerances
from quadsense.sklearn.model import Matrix, Vector
from quadsense.vocabulary import History, Status

NOTHING = np.empty(0, np.int64)


def stated(
    X: Matrix, b: Vector, weights: Vector, A: Matrix, *, alpha: float, psd: bool,
    local: bool = False, delta: Vector | None = None, dual: Vector | None = None,
    method: str = "closed form",
) -> Result:  # fmt: skip
    """What ``sum s (x'Ax - b)^2 + alpha ||A||^2`` is at A, and how little it can be.

    Parameters
    ----------
    X, b, weights : rows, readings and their weights
    A : ndarray of shape (n, n)
    alpha : float
    psd : bool
        Over positive semidefinite matrices.
    local : bool
        A is of a rank: at rest, with nothing proved.
    delta : ndarray of shape (m,), optional
        Tolerances, all of them met.
    dual : ndarray of shape (m,), optional
        What proves how little it can be; by default what A leaves over, with its weights.
    method : str
        How A was found.
    """
    begin = time.perf_counter()
    target = delta is not None
    data = Measurements(X, b, weights=weights, **({} if delta is None else tolerances(b, delta)))
    if not target:
        data = data.without_tolerance()
    matrix = SensedMatrix.from_dense(A)
    values = evaluate(data, matrix)
    preference = Preference(
        "least_squares", psd=psd, target=target, ridge=float(alpha), weights=weights
    )
    if dual is None:
        dual = 2.0 * weights * (values.reads - b)
    gap = GapOptions().gap
    objective = make_objective(
        data, preference, matrix, values.reads, values.error, None if local else dual,
        fits=True, gap=gap,
    )  # fmt: skip
    closed = objective is not None and objective.closed and not local
    status = Status.LOCAL if local else Status.OPTIMAL if closed else Status.UNDECIDED
    if target and bool(values.met.all()):
        status = Status.MET
    claims = {Status.OPTIMAL: "optimal", Status.MET: "met"}
    upper = float(values.upper.max())
    certificate = Certificate(
        kind=claims.get(status, "none"),
        upper_bound=upper,
        lower_bound=0.0,
        rounding=float((values.error / data.unit_ends.unit).max()),
        matrix=matrix,
        psd=psd,
        gap=gap if status is Status.OPTIMAL else 0.0,
        tolerance=data.plain.stated_tolerance,
        lo=data.plain.lo if data.from_bounds else None,
        hi=data.plain.hi if data.from_bounds else None,
        objective=objective,
    )
    facts = gather_facts(
        data, values, certificate, status, Determined(None, data.unit_rows.unknowns, False),
        target=target, sought="least_squares", wanted="least_squares",
    )  # fmt: skip
    empty = np.empty(0)
    return Result(
        status=status,
        matrix=matrix,
        residuals=values.residuals,
        max_ratio=float(values.ratios.max()),
        violations=NOTHING,
        n_iter=0,
        history=History(NOTHING, *[empty] * 7),
        timings={"proofs": time.perf_counter() - begin},
        certificate=certificate,
        plan={"method": method, "lemma": "", "reasons": ["least squares with a ridge: " + method]},
        facts=facts,
    )


def without_data(result: Result) -> Result:
    """The result with A alone: no row of the data is kept."""
    matrix = SensedMatrix.from_dense(np.array(result.A, np.float64))
    claim = replace(result.certificate, matrix=matrix, data=None)
    kept: Any = replace(result, matrix=matrix, certificate=claim)
    return kept
