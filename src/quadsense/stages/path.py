"""What `solve` does, top to bottom: query, decision, runs, result.

`answered` is the solve; `run_plan` is the order in which the plan's methods run: those that go by
the objective that is preferred, then, where none of them finds its A, those that take any fit or
prove that there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import changed
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import shown_outside
from quadsense.methods import COLD, METHODS, Warm
from quadsense.methods.base import own
from quadsense.preferences import (
    MatrixTerm,
    Preference,
    with_set_aside,
    without_far_ends,
)
from quadsense.proofs.rounding import user_dual
from quadsense.query.choice import counts_of
from quadsense.query.plan import Shape, decided, refuse_what_cannot_fit
from quadsense.query.query import DEFAULTS, PARAMETERS, Query, check_every, environment
from quadsense.query.request import (
    current_method,
    refuse_unknown,
)
from quadsense.result.result import Result
from quadsense.result.values import Comparison, allowed_size, is_admitted, make_objective
from quadsense.run.fingerprint import marks_of
from quadsense.run.loop import Outcome
from quadsense.stages.answer import to_result
from quadsense.stages.runs import (
    NO_ROWS,
    Answer,
    Request,
    asking_for,
    found_in,
    in_turn,
    is_lost,
    run_method,
    start_value,
    to_problem,
    to_seed,
    to_start,
    zero,
)
from quadsense.system.machine import limited_memory, to_bytes
from quadsense.system.threads import one_blas_thread
from quadsense.system.watch import Interrupted, Stop, Watch
from quadsense.typing import to_list
from quadsense.vocabulary import Claim, Status

if TYPE_CHECKING:
    from quadsense.run.journal import Journal

UNDONE_STATUSES = (Status.INFEASIBLE, Status.UNDECIDED, Status.STALLED)
"""How runs end that found no A as it was asked for."""

MAX_SLACK_MISS = 1e-3
"""Misses under slack, in units of the tolerance, at which a fit without any is sought."""

SETTLED_STATUSES = (
    Status.MET, Status.OPTIMAL, Status.LOCAL, Status.INTERRUPTED, Status.TIME_LIMIT, Status.MAX_ITER
)  # fmt: skip
"""How a run ends that nothing should follow."""

MAX_KNOWN_GAP = 1e-6
"""Relative gap of the bounds at which a start is taken for the answer: methods come as close."""


def answered(query: Query, clock: Callable[[], float] | None = None) -> Result:
    """Return the result of a solve.

    Parameters
    ----------
    query : Query
        Not yet checked.
    clock : callable, optional
        What time limits and timings go by.
    """
    watch = Watch(clock)
    if query.options:
        refuse_unknown("solve", ("data", *PARAMETERS), query.options)
    if query.constraints is not DEFAULTS["constraints"]:
        constraints = tuple(to_list("constraints", query.constraints, "(C, lo, hi)"))
        query = changed(query, constraints=constraints)
    if query.method is not DEFAULTS["method"]:
        query = changed(query, method=current_method(query.method))
    journal = None
    if query.checkpoint is not None:
        from quadsense.run.journal import to_journal  # rarely needed, slow to import

        check_every(query.checkpoint_every)
        journal = to_journal(query.checkpoint, float(query.checkpoint_every), watch)
    given, limit = query.data, math.inf
    if query.memory_limit is not None:
        limit = to_bytes(query.memory_limit)
    if isinstance(given, Measurements):
        with limited_memory(limit):
            given = given.settled()
        if given._read_bytes <= limit / 2.0:  # as if they were read by each solve
            limit -= given._read_bytes
        query = changed(query, data=given)
    with (
        np.errstate(under="ignore"),  # what underflows is not missed
        watch.interrupts as interrupts,
        one_blas_thread(),
    ):
        if journal is None and limit == math.inf:
            result = _answered(query, watch)
        else:
            with limited_memory(limit), journal or nullcontext():
                result = _answered(query, watch, journal)
    if interrupts.pressed:
        raise Interrupted(result)
    return result


def _answered(query: Query, watch: Watch, journal: Journal | None = None) -> Result:
    """Return the result of a solve whose surroundings are as it needs them."""
    given = query.data
    counted = query.exposure is not None or query.background is not None
    if counted or query.prefer is not DEFAULTS["prefer"]:
        query = counts_of(query)
    measured = query.measurements()
    limits = query.limits(watch, journal)
    raw = None if isinstance(given, Measurements) else given
    decision = decided(query, measured, watch, raw)
    data, user, columns = decision.data, decision.user, decision.columns
    if columns is not None:
        limits = changed(limits, callback=shown_outside(limits.callback, columns))
    refused = refuse_what_cannot_fit(decision.shape, decision.plan)
    if journal is not None:
        with watch.part("checkpoint"):
            journal.find(marks_of(user, query.identity(user)), environment())
    seed = to_seed(query.rng, decision.plan.methods)
    if journal is not None:
        with watch.part("checkpoint"):
            seed = journal.open(seed)
    start = to_start(query, data, data.scaled(), columns)
    problem = to_problem(
        data, decision.plan, target=decision.shape.target, positive=decision.positive,
        rank=decision.order or None, signs=decision.signs, start=start,
        options=decision.options, seed=seed,
    )  # fmt: skip
    request = Request(
        **vars(decision), problem=problem, limits=limits, warm=start.warm, refused=refused
    )
    answer = run_plan(request)
    # A row of zeros is no row to a method, but a contradiction all the same.
    unmet = answer.outcome.status in UNDONE_STATUSES or data.contradictions().size
    lost = unmet or answer.outcome.status is Status.LOCAL
    if lost and data.hard.any() and not (problem.target and query.slack is None):
        from quadsense.stages.infeasible import refuted  # rarely needed, slow to import

        answer = refuted(request, answer)
    if request.allowed and unmet and not answer.hard:  # what contradicts by itself stays
        from quadsense.stages.violations import (
            set_violations_aside,  # rarely needed, slow to import
        )

        answer = set_violations_aside(request, answer)
        if answer.set_aside.size and answer.outcome.status is Status.MET:
            answer = changed(preferred_among(request, answer), proofs=answer.proofs)
    return to_result(request, answer, partial(query.recorded, user))


def run_plan(request: Request) -> Answer:
    """Ask for the A that is preferred; where no method finds it, for any fit or a proof of none."""
    able, others = _by_objective(request)
    answer: Answer | None = None
    for preference in request.preferences if able else ():
        asking = changed(request, problem=asking_for(request, preference))
        answer = _known(asking, preference)
        if answer is not None:
            return answer
        answer = _preferred(asking, preference, able)
        # The worst error over the cone, without constraints, the certificate bounds by itself.
        plain = preference.worst_error and not (preference.target or request.data.constraints)
        answer = changed(answer, preference=preference, asked=not (plain and request.positive))
        refuted = _refuted(asking, answer)
        if refuted is not None:
            return refuted
        last = preference is request.preferences[-1]
        if _is_settled(answer) and (last or not is_lost(answer)):
            return answer
    if answer is not None and (preference.slack or not others):
        return _fit_instead(request, others, answer)
    found = changed(_by_any_fit(request, others), preference=request.preferences[0])
    if answer is None:
        return found
    if found.outcome.status is Status.MET:  # from which the preferred one may be found after all
        again = in_turn(changed(asking, warm=found.outcome.warm), able)
        if again.outcome.status is Status.MET:
            return changed(again, preference=preference, asked=True)
    return found


def answer_question(request: Request) -> Answer:
    """Ask for the A that is preferred, and for nothing in its place."""
    preference = request.preferences[0]
    able, _ = _by_objective(request)
    asking = changed(request, problem=asking_for(request, preference))
    return changed(in_turn(asking, able), preference=preference, asked=True)


def _preferred(request: Request, preference: Preference, methods: tuple[str, ...]) -> Answer:
    """Run the methods on the question, first without what rarely is active.

    That is the band of a row of weight 0, which is not in the sum, and an end far beyond all that
    is forced on A. An A that is within them all the same is the preferred one. Where it is not, the
    question is asked again with them; but where no fit of the rows that have a weight was found,
    none would be with the others.
    """
    data = request.data
    rows = _rows_of_no_weight(data, preference)
    problem = asking_for(request, preference, rows) if rows.size else request.problem
    assert problem.question is not None
    question, far = without_far_ends(problem.question)
    loose = far.copy()
    loose[rows] = True
    if loose.any():
        kept = changed(request, problem=changed(problem, question=question))
        answer = in_turn(kept, methods, rows)
        matrix = answer.matrix
        found = found_in(matrix, request.problem)
        met = Comparison(data, found, size=allowed_size(data, matrix)).met[loose].all()
        if met or (answer.outcome.status is not Status.MET and not far.any()):
            return changed(answer, outcome=changed(answer.outcome, found=found), set_aside=NO_ROWS)
    return in_turn(request, methods)


def _rows_of_no_weight(data: Measurements, preference: Preference) -> npt.NDArray[np.int64]:
    """Return the rows that the user keeps out of the sum of squares, and that have a band."""
    weights, ends = preference.weights, data.ends
    if weights is None or not preference.kind.row_term.squares or not preference.target:
        return NO_ROWS
    assert ends is not None
    band = ends.sides.any(axis=0) & ~ends.exact
    return np.flatnonzero((weights == 0.0) & band[: data.measured])


def _known(request: Request, preference: Preference) -> Answer | None:
    """Return the answer that needs no step: the start, or A = 0 for the least trace, if optimal.

    Optimal means that proven bounds on the objective, by the dual vector of the earlier result, are
    as close as a method would bring them. None otherwise.
    """
    problem, warm = request.problem, request.warm
    if problem.rank is not None or problem.signs is not None:
        return None  # bounds on the objective are those of the convex relaxation
    squares = preference.kind.row_term.squares and not preference.ridge
    by_misses = squares or (preference.worst_error and not preference.target)
    # No trace is less than that of A = 0, if A = 0 fits; and it reads 0. In the cone it is also the
    # nearest to a multiple of I that is not positive.
    matrix = preference.kind.matrix
    below = matrix is MatrixTerm.DISTANCE and preference.base is None and preference.tau <= 0.0
    least = matrix is MatrixTerm.TRACE or (below and request.positive)
    b = to_numpy(problem.b)
    if least or (by_misses and b[0] == 0.0 and not b.any()):
        found = _proved(request, preference, zero(request), np.zeros(problem.m))
        if found is not None:
            return found
    if warm.fit is None or warm.dual is None or (request.positive and warm.factor is None):
        return None
    matrix = warm.fit
    if request.positive:
        matrix = SensedMatrix.from_factor(own(problem, to_numpy(warm.factor)))
    return _proved(request, preference, matrix, warm.dual)


def _proved(
    request: Request, preference: Preference, matrix: SensedMatrix, dual: Any
) -> Answer | None:
    """Return that matrix as the answer, if this dual vector of the unit rows proves it optimal."""
    data, problem, watch = request.data, request.problem, request.limits.watch
    with suppress(Stop), watch.part("proofs"), watch.heeded():
        found = found_in(matrix, problem)
        values = Comparison(data, found, size=allowed_size(data, matrix))
        if not is_admitted(preference, values.met, NO_ROWS, data.measured):
            return None
        gap = min(MAX_KNOWN_GAP, float(request.options.get("gap", MAX_KNOWN_GAP)))
        y = user_dual(data, dual)
        claim = make_objective(
            data, preference, matrix, values.reads, values.error, y, fits=True, gap=gap
        )
        if claim is None or not claim.closed:
            return None
        status = Status.MET if problem.target and bool(values.met.all()) else Status.OPTIMAL
        worst, unknown = (float(np.max(each)) for each in (values.sizes, values.ratios)), np.nan
        entry = (0.0, watch.elapsed, *worst, unknown, unknown, unknown, unknown)
        outcome = Outcome(
            None, matrix, found, status, None, Claim(str(status), dual=dual), [entry],
            warm=Warm(matrix, request.warm.factor, dual), dual=dual,
        )  # fmt: skip
        name = request.plan.methods[0]
        return Answer(outcome, matrix, name, "", NO_ROWS, preference=preference, asked=True)
    return None


def _is_settled(answer: Answer) -> bool:
    """Whether nothing should follow.

    The smallest worst ratio, where it is above 1, is for the others to refute.
    """
    status, preference = answer.outcome.status, answer.preference
    undone = preference.refutes or preference.slack
    return status in SETTLED_STATUSES and not (status is Status.OPTIMAL and undone)


def _refuted(request: Request, answer: Answer) -> Answer | None:
    """Return the smallest worst ratio as a proof that nothing fits; None where it is no proof."""
    outcome, preference, prove = answer.outcome, answer.preference, request.problem.prove
    if not preference.refutes or outcome.status is not Status.OPTIMAL or outcome.dual is None:
        return None
    assert prove is not None
    # In questions y > 0 belongs to the upper end, as in proofs about the cone, but not in others.
    dual = outcome.dual if request.positive else -outcome.dual
    watch = request.limits.watch
    try:
        with watch.part("proofs"), watch.heeded(), watch.grace():
            proof = prove(dual)
    except Stop:
        return None
    if not proof.proved:
        return None
    claim = Claim("infeasible", dual=dual, lower=proof.lower_bound)
    outcome = changed(outcome, status=Status.INFEASIBLE, reason=None, claim=claim)
    return changed(answer, outcome=outcome, asked=False)


def _fit_instead(request: Request, others: tuple[str, ...], answer: Answer) -> Answer:
    """The answer, or, where next to nothing is missed under slack, a fit that misses nothing."""
    preference, outcome = answer.preference, answer.outcome
    if not (preference.slack and others and outcome.status is Status.OPTIMAL):
        return answer
    ends = request.data.unit_ends
    misses = np.abs(ends.crossing(to_numpy(outcome.found.z)))
    if float(np.max(misses / ends.unit)) > MAX_SLACK_MISS:
        return answer
    found = _by_any_fit(changed(request, warm=outcome.warm), others)
    if found.outcome.status is not Status.MET:
        return answer
    return changed(found, preference=preference, asked=True)


def _by_objective(request: Request) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The methods of the plan that go by the objective, and those that take any fit.

    A method that knows the preference goes by it only for data of such a shape as it serves, and
    not where it seeks it by itself.
    """
    methods, prefer = request.plan.methods, request.preferences[0].name
    if prefer == "any":
        return (), methods
    shape = request.shape
    return _able(methods, shape if shape.prefer == prefer else changed(shape, prefer=prefer))


@lru_cache(maxsize=16)  # as the plan
def _able(methods: tuple[str, ...], shape: Shape) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return those that go by the objective for this shape, and those that take any fit."""
    prefer, able, others = shape.prefer, [], []
    for name in methods:
        kind = METHODS.traits(name)
        if prefer in kind.preferences - kind.built_in and kind.serves(shape):
            able.append(name)
        if "any" in kind.preferences:
            others.append(name)
    return tuple(able), tuple(others)


def preferred_among(request: Request, answer: Answer) -> Answer:
    """The wanted A of those that fit where some measurements are set aside, if that is found."""
    able, _ = _by_objective(request)
    rows = answer.set_aside
    for preference in request.preferences if able else ():
        asking = changed(request, problem=asking_for(request, preference, rows))
        for name in able:
            found = run_method(asking, name, rows, answer.outcome.warm)
            if found.outcome.status is Status.MET and _all_missed(request, found, rows):
                preference = with_set_aside(preference, rows)
                return changed(found, preference=preference, asked=True)
    return answer


def _all_missed(request: Request, answer: Answer, rows: Any) -> bool:
    """Whether the matrix surely misses every one of those measurements."""
    found, ends = answer.outcome.found, request.data.unit_ends
    return bool(ends.missed(to_numpy(found.z), to_numpy(found.error))[rows].all())


def _by_any_fit(request: Request, methods: tuple[str, ...]) -> Answer:
    """Run the methods in turn, until one has a verdict.

    A start far larger than the readings takes their digits along: where it leads nowhere, all
    begins anew without it.
    """
    answer = in_turn(request, methods)
    problem = request.problem
    plain = problem.base is None and problem.c_start is None
    undone = answer.outcome.status in (Status.STALLED, Status.UNDECIDED)
    if plain or not undone or not METHODS.traits(methods[0]).begins_anew:
        return answer
    tau = start_value("mean", problem.b, request.data.scaled().telling, problem.rows)
    anew = changed(problem, tau=tau, base=None, c_start=None)
    again = in_turn(changed(request, problem=anew, warm=COLD), methods)
    decided = again.outcome.status.success or again.outcome.status is Status.INFEASIBLE
    return again if decided else answer
