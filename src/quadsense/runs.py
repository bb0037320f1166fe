"""The runs behind a solve: the plan's methods in turn, measurements set aside, the best PSD fit."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import namespace, to_numpy
from quadsense.core.certificate import Enclosure, enclosure, measured_enclosure
from quadsense.core.forms import MeasuredForm
from quadsense.core.matrix import SensedMatrix
from quadsense.loop import Limits, Outcome, run
from quadsense.measurements import Measurements
from quadsense.measurements.gram import make_gram
from quadsense.methods import METHODS, Claim, Method, Problem
from quadsense.methods.interior import outliers
from quadsense.methods.minimax import equal_tolerances
from quadsense.methods.positive.best import best_ratio
from quadsense.methods.positive.maps import Intervals
from quadsense.methods.steps import own
from quadsense.plan import Plan
from quadsense.result import Status
from quadsense.threads import blas_threads

NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Request:
    """A checked solve: the data, the plan, the problem on unit rows, and the limits."""

    data: Measurements
    plan: Plan
    problem: Problem
    limits: Limits
    positive: bool


@dataclass(frozen=True)
class Answer:
    """How the last run ended, by which method, with which measurements left out."""

    outcome: Outcome
    matrix: SensedMatrix
    method: str
    lemma: str
    set_aside: npt.NDArray[np.int64]


def run_plan(request: Request) -> Answer:
    """Run the plan's methods in turn, until one has a verdict."""
    begin = time.perf_counter()
    answer = run_method(request, request.plan.methods[0])
    for name in request.plan.methods[1:]:
        outcome = answer.outcome
        handed_over = outcome.claim is not None and outcome.claim.kind == "inconsistent"
        if outcome.status is Status.INTERRUPTED or not (
            handed_over or outcome.status is Status.STALLED
        ):
            break
        answer = run_method(_with_less_time(request, begin), name)
    return answer


def _with_less_time(request: Request, begin: float) -> Request:
    """The request with what is left of its time limit."""
    if request.limits.time_limit is None:
        return request
    left = max(0.0, request.limits.time_limit - (time.perf_counter() - begin))
    return replace(request, limits=replace(request.limits, time_limit=left))


def run_method(request: Request, name: str, set_aside: Any = NONE) -> Answer:
    """Run one method on the request's problem."""
    problem = with_gram(request, name)
    if set_aside.size:
        problem = replace(problem, sides=request.data.set_aside(set_aside).sides)
    solver: Method = METHODS[name]()
    tolerance = to_numpy(request.data.tolerance)
    with blas_threads(request.plan.threads.get(name, "one")):
        outcome = run(
            solver, problem, lambda matrix: _enclosure(matrix, problem), tolerance, request.limits
        )
    matrix = solver.matrix(problem, outcome.state)
    return Answer(outcome, matrix, solver.name, solver.lemma, set_aside)


def with_gram(request: Request, name: str) -> Problem:
    """The problem with K, where the method needs it; K is kept for the next solve."""
    kind = request.plan.gram
    if kind == "none" or name not in ("gd", "sgd", "closed_form", "cg"):
        return request.problem
    data = request.data
    if data.gram is None or data.gram.kind != kind:
        data.gram = make_gram(data.unit_rows, kind)
    return replace(request.problem, gram=data.gram)


def _enclosure(matrix: SensedMatrix, problem: Problem) -> Enclosure:
    """Residuals from the data; an explicit K, itself computed from them, is used again."""
    gram, form = problem.gram, matrix.form
    if (
        gram is None
        or gram.kind not in ("explicit", "sparse")
        or not isinstance(form, MeasuredForm)
    ):
        return enclosure(matrix, problem.rows, problem.b)
    mass = namespace(form.c).abs(form.c)
    return measured_enclosure(form, problem.b, gram.apply(form.c), gram.apply(mass), problem.m)


def set_violations_aside(request: Request, answer: Answer, allowed: int) -> Answer:
    """Meet all but a few measurements, if a robust fit finds which to leave out."""
    problem = request.problem
    program, _ = equal_tolerances(problem)
    found = outliers.set_aside(program, allowed)
    if not found.met:
        return answer
    name = "dual" if request.positive else "minimax"
    after = run_method(request, name, np.asarray(found.set_aside, dtype=np.int64))
    return after if after.outcome.status is Status.MET else answer


def best_positive(request: Request) -> Answer:
    """The smallest worst error of a positive semidefinite matrix, from both sides."""
    problem, limits = request.problem, request.limits
    b, delta = to_numpy(problem.b), to_numpy(problem.delta)
    # Ratios are counted in units of the largest reading, so that their scale does not matter.
    unit = float(np.max(np.abs(b) / delta)) or 1.0
    intervals = Intervals.around(b, unit * delta)
    begin = time.perf_counter()

    def late() -> bool:
        seconds = time.perf_counter() - begin
        return limits.time_limit is not None and seconds >= limits.time_limit

    with blas_threads("rows"):
        best = best_ratio(problem.rows.as_numpy(), intervals, problem.options.gap, late)
    matrix = SensedMatrix.from_factor(own(problem, best.X))
    closed = best.upper_bound <= max((1.0 + problem.options.gap) * best.lower_bound, 1e-8)
    status = Status.OPTIMAL if closed else Status.TIME_LIMIT if late() else Status.UNDECIDED
    before = run_method(replace(request, limits=Limits(max_iter=0)), "dual").outcome
    claim = Claim("optimal", dual=best.certificate.y, lower=unit * best.lower_bound)
    outcome = replace(
        before,
        found=_enclosure(matrix, problem),
        status=status,
        claim=claim,
        reason="" if closed else "the two bounds did not close to the gap",
    )
    return Answer(outcome, matrix, "dual", "", NONE)
