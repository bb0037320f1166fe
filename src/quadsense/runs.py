"""The runs behind a solve: the plan's methods in turn, and the best PSD fit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import to_numpy
from quadsense.core.forms import MeasuredForm
from quadsense.core.matrix import SensedMatrix
from quadsense.loop import Limits, Outcome, reference, run
from quadsense.measurements import Measurements
from quadsense.measurements.gram import make_gram
from quadsense.methods import METHODS, Method, Problem
from quadsense.methods.steps import own
from quadsense.plan import Plan
from quadsense.proofs.infeasible import Prover
from quadsense.proofs.rounding import Enclosure, enclosure
from quadsense.request import options_of, start_value
from quadsense.threads import blas_threads
from quadsense.vocabulary import Claim, Status, because

NONE = np.empty(0, dtype=np.int64)

FEW_RESTARTS = 5
"""Starts of `factored` for each choice of what to set aside."""

LARGEST_SQUARED = 1e75
"""Readings of unit rows up to which fourth powers stay within float64's range; below its inverse,
their inverses."""

LARGEST_RATIO = 1e30
"""Readings in tolerances up to which all that is computed from them does, and which float64 can
hope to tell apart."""

LARGEST_ENTRY = 1e220
"""Bound on entries of A below which they, over squared norms of rows too, stay finite."""

FORGOTTEN = 1e30
"""Tolerance, in units of the largest reading, of a measurement that is set aside."""


@dataclass(frozen=True)
class Request:
    """A checked solve: the data, the plan, the problem on unit rows, and the limits.

    At most `allowed` measurements may be set aside; `wishes` are the options as given, for
    whichever method runs (`problem.options` are those of the plan's last).
    """

    data: Measurements
    plan: Plan
    problem: Problem
    limits: Limits
    positive: bool
    allowed: int = 0
    wishes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """How the last run ended, by which method, with which measurements left out.

    `proofs` are dual vectors of the user's rows, one a row, whose supports no set of so many
    measurements as may be set aside hits.
    """

    outcome: Outcome
    matrix: SensedMatrix
    method: str
    lemma: str
    set_aside: npt.NDArray[np.int64]
    proofs: npt.NDArray[np.float64] | None = None


def run_plan(request: Request) -> Answer:
    """Run the plan's methods in turn, until one has a verdict.

    A start far larger than the readings takes their digits along: where it leads nowhere, all
    begins anew without it.
    """
    begin = time.perf_counter()
    answer = _in_turn(request)
    problem = request.problem
    plain = problem.base is None and problem.c_start is None
    undone = answer.outcome.status in (Status.STALLED, Status.UNDECIDED)
    if plain or not undone or not METHODS.traits(request.plan.methods[0]).begins_anew:
        return answer
    tau = start_value("mean", problem.b, request.data.scaled().telling)
    anew = replace(problem, tau=tau, base=None, c_start=None, factor_start=None)
    again = _in_turn(replace(with_less_time(request, begin), problem=anew))
    decided = again.outcome.status.success or again.outcome.status is Status.INFEASIBLE
    return again if decided else answer


def _in_turn(request: Request) -> Answer:
    """Run the plan's methods in turn, from the start as given."""
    begin = time.perf_counter()
    answer = run_method(request, request.plan.methods[0])
    for name in request.plan.methods[1:]:
        outcome = answer.outcome
        handed_over = outcome.claim is not None and outcome.claim.kind == "inconsistent"
        if outcome.status is Status.INTERRUPTED or not (
            handed_over or outcome.status is Status.STALLED
        ):
            break
        answer = run_method(with_less_time(request, begin), name)
    return answer


def with_less_time(request: Request, begin: float) -> Request:
    """The request with what is left of its time limit."""
    if request.limits.time_limit is None:
        return request
    left = max(0.0, request.limits.time_limit - (time.perf_counter() - begin))
    return replace(request, limits=replace(request.limits, time_limit=left))


def run_method(request: Request, name: str, set_aside: Any = NONE) -> Answer:
    """Run one method on the request's problem."""
    problem = replace(with_gram(request, name), options=options_of(name, request.wishes))
    if set_aside.size:
        problem = _without(request, problem, name, set_aside)
    if request.allowed and getattr(problem.options, "max_restarts", 0) is None:
        # Where the data may be wrong, another choice of rows helps more than another start.
        problem = replace(problem, options=replace(problem.options, max_restarts=FEW_RESTARTS))
    solver: Method = METHODS[name]()
    tolerance = to_numpy(request.data.tolerance)
    with blas_threads(request.plan.threads.get(name, "one")), _at_any_scale(problem):
        outcome = run(
            solver, problem, lambda matrix: found_in(matrix, problem), tolerance, request.limits
        )
    matrix = solver.matrix(problem, outcome.state)
    if not outcome.status.success and not _is_finite(matrix):
        matrix = _zero(request)
        outcome = replace(outcome, found=found_in(matrix, problem))
    return Answer(outcome, matrix, solver.name, solver.lemma, set_aside)


def _is_finite(matrix: SensedMatrix) -> bool:
    """Whether every entry is a number: a fit may lie beyond float64's range."""
    form = matrix.form
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(form, MeasuredForm):
            size = abs(form.tau) + float(np.sum(np.abs(to_numpy(form.c))))
            base = 0.0 if form.base is None else float(np.max(np.abs(to_numpy(form.base))))
            return size + base < LARGEST_ENTRY
        if matrix.factor is not None:
            return matrix.trace() < LARGEST_ENTRY
        return bool(np.isfinite(np.asarray(matrix)).all())


def _zero(request: Request) -> SensedMatrix:
    """The matrix of zeros, in the form that is wanted."""
    problem, rows = request.problem, request.problem.rows
    if request.positive:
        return SensedMatrix.from_factor(own(problem, np.zeros((rows.n, 1), np.dtype(rows.dtype))))
    return SensedMatrix(MeasuredForm(0.0, 0.0 * problem.b, rows))


def _at_any_scale(problem: Problem) -> Any:
    """Let squares overflow where readings are so large that they must.

    What becomes infinite, or no number at all, is no fit: it is judged as everything is.
    """
    largest = float(np.max(np.abs(to_numpy(problem.b)) + to_numpy(problem.delta)))
    ratio = largest / float(to_numpy(problem.delta).min())
    extreme = ratio > LARGEST_RATIO or not 1.0 / LARGEST_SQUARED < largest < LARGEST_SQUARED
    return np.errstate(over="ignore", invalid="ignore") if extreme else nullcontext()


def _without(request: Request, problem: Problem, name: str, rows: Any) -> Problem:
    """The problem with those measurements asked for nothing."""
    kept = request.data.set_aside(rows)
    prove = Prover(kept, request.positive)
    problem = replace(problem, sides=kept.sides, given_ends=kept.unit_ends, prove=prove)
    if METHODS.traits(name).one_sided:
        return problem
    # It knows readings and tolerances only: these are so wide that they weigh nothing, and such as
    # lean nowhere when the start is made of them.
    b, delta = to_numpy(problem.b).copy(), to_numpy(problem.delta).copy()
    delta[rows] = FORGOTTEN * float(np.max(np.abs(b) + delta))
    b[rows] = float(np.mean(np.delete(b, rows))) if len(rows) < len(b) else 0.0
    return replace(problem, b=own(problem, b), delta=own(problem, delta), sides=None)


def with_gram(request: Request, name: str) -> Problem:
    """The problem with K, where the method needs it; K is kept for the next solve."""
    kind = request.plan.gram
    if kind == "none" or "gram" not in METHODS.traits(name).needs:
        return request.problem
    data = request.data
    if data.gram is None or data.gram.kind != kind:
        data.gram = make_gram(data.unit_rows, kind)
    return replace(request.problem, gram=data.gram)


def found_in(matrix: SensedMatrix, problem: Problem) -> Enclosure:
    """Values recomputed from the data, by the very function that `verify` uses."""
    return enclosure(matrix, problem.rows, reference(problem))


def best_positive(request: Request) -> Answer:
    """The smallest worst error of a positive semidefinite matrix, from both sides."""
    from quadsense.methods.positive.best import best_ratio  # as methods are: when first needed
    from quadsense.methods.positive.maps import Intervals

    problem, limits = request.problem, request.limits
    b, delta = to_numpy(problem.b), to_numpy(problem.delta)
    # Where every unit is that of the largest reading, a ratio of 1e-8 is an exact fit.
    unit = float(np.max(np.abs(b) / delta)) or 1.0
    width = unit * delta
    intervals = Intervals.around(b, width)
    begin = time.perf_counter()

    def late() -> bool:
        seconds = time.perf_counter() - begin
        late = limits.time_limit is not None and seconds >= limits.time_limit
        return late or limits.interrupts.pressed

    with blas_threads("rows"):
        best = best_ratio(problem.rows.on_numpy(), intervals, problem.options.gap, late)
    matrix = SensedMatrix.from_factor(own(problem, best.X))
    closed = best.upper_bound <= max((1.0 + problem.options.gap) * best.lower_bound, 1e-8)
    status = Status.OPTIMAL if closed else Status.TIME_LIMIT if late() else Status.UNDECIDED
    if limits.interrupts.pressed and not closed:
        status = Status.INTERRUPTED
    before = run_method(replace(request, limits=Limits(max_iter=0)), "psd").outcome
    claim = Claim("optimal", dual=best.certificate.y, lower=unit * best.lower_bound)
    outcome = replace(
        before,
        found=found_in(matrix, problem),
        status=status,
        claim=claim,
        reason=None if closed else because("gap_open"),
    )
    return Answer(outcome, matrix, "psd", "", NONE)
