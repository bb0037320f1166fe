"""The runs behind a solve: the plan's methods in turn."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import to_numpy
from quadsense.core.forms import FactorForm, MeasuredForm
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import changed
from quadsense.measurements import Measurements
from quadsense.measurements.gram import ExplicitGram, make_gram
from quadsense.methods import COLD, METHODS, Method, Problem, Warm
from quadsense.methods.steps import nothing, own
from quadsense.preferences import TERMS, Preference, make_question, with_set_aside, without_far_ends
from quadsense.proofs.infeasible import Prover, user_dual
from quadsense.proofs.rounding import Enclosure, enclosure, is_met, measured_enclosure
from quadsense.query.decision import Decision
from quadsense.query.plan import Plan
from quadsense.query.request import Start, error_units, options_of, start_value
from quadsense.result.values import Values, allowed_size, is_admitted, make_objective
from quadsense.run.loop import Limits, Outcome, reference, run
from quadsense.system.watch import FLOPS, Stop, Watch
from quadsense.vocabulary import Claim, Status

NONE = np.empty(0, dtype=np.int64)

ANY = Preference("any")
"""Whichever fit comes first."""

MISSES_NOTHING = 1e-3
"""Misses under slack, in units of the tolerance, at which a fit without any is sought."""

SETTLED = (
    Status.MET, Status.OPTIMAL, Status.LOCAL, Status.INTERRUPTED, Status.TIME_LIMIT, Status.MAX_ITER
)  # fmt: skip
"""How a run ends that nothing should follow."""

KNOWN_GAP = 1e-6
"""Relative gap of the bounds at which a start is taken for the answer: methods come as close."""

FEW_RESTARTS = 5
"""Starts of `low_rank` for each choice of what to set aside."""

LARGEST_SQUARED = 1e75
"""Readings of unit rows up to which fourth powers stay within float64's range; below its inverse,
their inverses."""

LARGEST_RATIO = 1e30
"""Readings in tolerances up to which all that is computed from them does, and which float64 can
hope to tell apart."""

LARGEST_ENTRY = 1e220
"""Bound on entries of A below which they, over squared norms of rows too, stay finite."""

PROOF_PRODUCTS = 10.0
"""Multiplications per row and entry of A that a dual vector and the proof of its bound on the
objective take (the proof alone took 4 at n = 300, m = 15,000)."""

PROOF_SHARE = 0.25
"""Share of a time limit that is left for it, at most."""

PROOF_SECONDS_PER_ROW = 1e-6
"""Seconds per row that their sums take, each entry with its rounding error (the proof alone took .4
to .7 s at n = 3, m = 10^6)."""

FORGOTTEN = 1e30
"""Tolerance, in units of the largest reading, of a measurement that is set aside."""


@dataclass(frozen=True)
class Request(Decision):
    """A solve that is ready to run: what was decided, the problem on unit rows, and the limits.

    Attributes
    ----------
    problem : Problem
        Its `options` are those of the plan's last method.
    limits : Limits
    warm : Warm
        What an earlier result knows.
    refused : dict
        By name, why methods of the plan cannot run: for want of memory.
    """

    problem: Problem = field(kw_only=True)
    limits: Limits = field(kw_only=True)
    warm: Warm = COLD
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """How the last run ended, by which method, with which measurements left out.

    `proofs` are dual vectors of the user's rows, one per row, whose supports no set of that many
    measurements as may be set aside hits. `hard`: what the claim is about is constraints and
    equalities alone.
    """

    outcome: Outcome
    matrix: SensedMatrix
    method: str
    lemma: str
    set_aside: npt.NDArray[np.int64]
    proofs: npt.NDArray[np.float64] | None = None
    preference: Preference = ANY
    asked: bool = False
    hard: bool = False


def to_problem(
    data: Measurements,
    plan: Plan,
    *,
    target: bool,
    positive: bool,
    rank: int | None = None,
    signs: tuple[int, int] | None = None,
    start: Start | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    seed: int = 0,
) -> Problem:
    """Return the problem on rows of unit norm; its start is a multiple of I where none is given."""
    scaled = data.scaled()
    unit, units = 1.0, scaled.delta
    if not target:
        unit, units = error_units(data)
    if start is None:
        start = Start(start_value("mean", scaled.b, scaled.telling, data.unit_rows))
    return Problem(
        rows=data.unit_rows,
        b=scaled.b,
        delta=units,
        tau=start.tau,
        base=start.base,
        c_start=start.c,
        sides=data.sides,
        given_ends=data.unit_ends,
        target=target,
        error_unit=unit,
        rank=rank,
        signs=signs,
        prove=Prover(data, positive) if target else None,
        options=options_of(plan.methods[-1], options),
        seed=seed,
    )


def run_plan(request: Request) -> Answer:
    """Ask for the A that is preferred; where no method finds it, for any fit or a proof of none."""
    questions, others = by_question(request)
    answer: Answer | None = None
    for preference in request.preferences if questions else ():
        asking = changed(request, problem=_asking(request, preference))
        answer = _known(asking, preference)
        if answer is not None:
            return answer
        answer = _preferred(asking, preference, questions)
        answer = changed(answer, preference=preference, asked=not _is_worst_error(asking))
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
        again = _in_turn(changed(asking, warm=found.outcome.warm), questions)
        if again.outcome.status is Status.MET:
            return changed(again, preference=preference, asked=True)
    return found


def answer_question(request: Request) -> Answer:
    """Ask for the A that is preferred, and for nothing in its place."""
    preference = request.preferences[0]
    questions, _ = by_question(request)
    asking = changed(request, problem=_asking(request, preference))
    return changed(_in_turn(asking, questions), preference=preference, asked=True)


def _preferred(request: Request, preference: Preference, methods: tuple[str, ...]) -> Answer:
    """Run the methods on the question, first without what seldom binds.

    That is the band of a row of weight 0, which is not in the sum, and an end far beyond all that
    is forced on A. An A that is within them all the same is the preferred one. Where it is not, the
    question is asked again with them; but where no fit of the rows that have a weight was found,
    none would be with the others.
    """
    data = request.data
    rows = _rows_of_no_weight(data, preference)
    problem = _asking(request, preference, rows) if rows.size else request.problem
    assert problem.question is not None
    question, far = without_far_ends(problem.question)
    loose = far.copy()
    loose[rows] = True
    if loose.any():
        kept = changed(request, problem=changed(problem, question=question))
        answer = _in_turn(kept, methods, rows)
        matrix = answer.matrix
        found = found_in(matrix, request.problem)
        met = Values(data, found, size=allowed_size(data, matrix)).met[loose].all()
        if met or (answer.outcome.status is not Status.MET and not far.any()):
            return changed(answer, outcome=changed(answer.outcome, found=found), set_aside=NONE)
    return _in_turn(request, methods)


def _rows_of_no_weight(data: Measurements, preference: Preference) -> npt.NDArray[np.int64]:
    """Return the rows that the user keeps out of the sum of squares, and that have a band."""
    weights, ends = preference.weights, data.ends
    if weights is None or TERMS[preference.name] != "squares" or not preference.target:
        return NONE
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
    squares = preference.name == "least_squares" and not preference.ridge
    by_misses = squares or (preference.name == "minimax" and not preference.target)
    # No trace is less than that of A = 0, if A = 0 fits; and it reads 0.
    if preference.name == "min_trace" or (by_misses and not np.any(to_numpy(problem.b))):
        found = _proved(request, preference, _zero(request), np.zeros(problem.m))
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
        values = Values(data, found, size=allowed_size(data, matrix))
        if not is_admitted(preference, values.met, NONE, data.measured):
            return None
        gap = min(KNOWN_GAP, float(request.options.get("gap", KNOWN_GAP)))
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
        return Answer(outcome, matrix, name, "", NONE, preference=preference, asked=True)
    return None


def _is_settled(answer: Answer) -> bool:
    """Whether nothing should follow.

    The smallest worst ratio, where it is above 1, is for the others to refute.
    """
    status, preference = answer.outcome.status, answer.preference
    refuted = preference.name == "minimax" and preference.target
    return status in SETTLED and not (status is Status.OPTIMAL and (refuted or preference.slack))


def _refuted(request: Request, answer: Answer) -> Answer | None:
    """Return the smallest worst ratio as a proof that nothing fits; None where it is no proof."""
    outcome, preference, prove = answer.outcome, answer.preference, request.problem.prove
    least = preference.name == "minimax" and preference.target
    if not least or prove is None or outcome.status is not Status.OPTIMAL or outcome.dual is None:
        return None
    # In questions y > 0 leans on the upper end, as in proofs about the cone, but not in others.
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
    if float(np.max(misses / ends.unit)) > MISSES_NOTHING:
        return answer
    found = _by_any_fit(changed(request, warm=outcome.warm), others)
    if found.outcome.status is not Status.MET:
        return answer
    return changed(found, preference=preference, asked=True)


def by_question(request: Request) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The methods of the plan that answer the question, and those that take any fit.

    A method that knows the preference answers it only for data of such a shape as it serves.
    """
    methods, prefer = request.plan.methods, request.preferences[0].name
    if prefer == "any":
        return (), methods
    shape = changed(request.shape, prefer=prefer)
    able, others = [], []
    for name in methods:
        kind = METHODS.traits(name)
        if _asks(kind.preferences, prefer) and kind.serves(shape):
            able.append(name)
        if "any" in kind.preferences:
            others.append(name)
    return tuple(able), tuple(others)


def _asks(preferences: frozenset[str], prefer: str) -> bool:
    """Whether a method of these goes by the question: the smallest worst error has its own."""
    return prefer in preferences and not (prefer == "minimax" and "any" in preferences)


def _asking(request: Request, preference: Preference, set_aside: Any = NONE) -> Problem:
    """The problem with its question, on the unit rows."""
    data = request.data
    if set_aside.size:
        data = data.set_aside(set_aside)
        preference = with_set_aside(preference, set_aside)
    low = METHODS.traits(request.plan.methods[-1]).cones == {"rank"}  # which knows no bounds
    question = make_question(data, preference, unit=True, relative=low)
    # Methods that go by a question measure what A misses by the intervals as they are given.
    return changed(request.problem, question=question, error_unit=1.0)


def _is_worst_error(request: Request) -> bool:
    """Whether the objective is the worst error over the cone, which the certificate bounds itself.

    With constraints it is a preference like others.
    """
    name, data = request.preferences[0].name, request.data
    plain = name == "minimax" and not request.problem.target and not data.constraints
    return plain and request.positive


def preferred_among(request: Request, answer: Answer) -> Answer:
    """The wanted A of those that fit where some measurements are set aside, if that is found."""
    questions, _ = by_question(request)
    rows = answer.set_aside
    for preference in request.preferences if questions else ():
        asking = changed(request, problem=_asking(request, preference, rows))
        for name in questions:
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
    answer = _in_turn(request, methods)
    problem = request.problem
    plain = problem.base is None and problem.c_start is None
    undone = answer.outcome.status in (Status.STALLED, Status.UNDECIDED)
    if plain or not undone or not METHODS.traits(methods[0]).begins_anew:
        return answer
    tau = start_value("mean", problem.b, request.data.scaled().telling, problem.rows)
    anew = changed(problem, tau=tau, base=None, c_start=None)
    again = _in_turn(changed(request, problem=anew, warm=COLD), methods)
    decided = again.outcome.status.success or again.outcome.status is Status.INFEASIBLE
    return again if decided else answer


def _in_turn(request: Request, methods: tuple[str, ...], set_aside: Any = NONE) -> Answer:
    """Run the methods in turn, each from what the one before has found.

    A fit that is not what the question asks for is kept where the others find nothing better.
    """
    followed = len(methods) > 1  # whether or not they fit: memory does not change the steps
    answer = run_method(request, methods[0], set_aside, request.warm, followed)
    for name in methods[1:]:
        outcome = answer.outcome
        handed_over = outcome.claim is not None and outcome.claim.kind == "inconsistent"
        lost = outcome.status is Status.MET and is_lost(answer) and request.problem.question
        if outcome.status is Status.INTERRUPTED or not (
            handed_over or lost or outcome.status is Status.STALLED
        ):
            break
        after = run_method(request, name, set_aside, outcome.warm)
        if not lost or after.outcome.status is Status.MET:
            answer = after
    return answer


def is_lost(answer: Answer) -> bool:
    """Whether the method gave up what it was asked for, whatever it found on the way."""
    claim = answer.outcome.claim
    return claim is not None and claim.kind == "stalled"


def run_method(
    request: Request, name: str, set_aside: Any = NONE, warm: Warm = COLD, followed: bool = False
) -> Answer:
    """Run one method on the request's problem.

    Parameters
    ----------
    request : Request
    name : str
    set_aside : ndarray of int, optional
        Rows asked for nothing.
    warm : Warm
        What was found before.
    followed : bool
        Whether another method continues where this one gives up.

    Raises
    ------
    MemoryError
        If it cannot fit in memory.
    """
    if name in request.refused:
        raise MemoryError(request.refused[name])
    problem = changed(
        with_gram(request, name), options=options_of(name, request.options), followed=followed
    )
    if set_aside.size:
        problem = _without(request, problem, name, set_aside)
    if request.allowed and getattr(problem.options, "max_restarts", 0) is None:
        # Where the data may be wrong, another choice of rows helps more than another start.
        problem = changed(problem, options=replace(problem.options, max_restarts=FEW_RESTARTS))
    solver = _solver(name, problem)
    tolerance = to_numpy(request.data.tolerance)
    watch = request.limits.watch
    watch.reserve, watch.proof_reserve = _seconds_to_finish(problem, name, watch.time_limit)
    watch.has_fit |= not problem.target
    with _at_any_scale(problem):
        outcome = run(
            solver,
            problem,
            partial(_found_by, problem, request.data.gram, watch),
            tolerance,
            request.limits,
            warm,
        )
    matrix = outcome.matrix
    if not outcome.status.success and not _is_finite(matrix):
        matrix = _zero(request)
        outcome = changed(outcome, matrix=matrix, found=found_in(matrix, problem))
    return Answer(outcome, matrix, solver.name, outcome.lemma, set_aside)


def _solver(name: str, problem: Problem) -> Method:
    """The method of that name, as this problem needs it."""
    kind = METHODS[name]
    if hasattr(kind, "suited_to"):
        kind = kind.suited_to(problem)
    if not problem.target and hasattr(kind, "without_target"):
        solver: Method = kind.without_target(problem)
        return solver
    return kind()


def _seconds_to_finish(problem: Problem, name: str, limit: float | None) -> tuple[float, float]:
    """Return about how long it takes to form and measure a matrix, and to prove a bound for it.

    Of a time limit, proofs get a share only: a fit that is not certified to be the preferred one is
    better than none. What takes longer than the simplest bound gives way to it at the limit.
    """
    rows, cones = problem.rows, METHODS.traits(name).cones
    entries = (4.0 if rows.is_complex else 1.0) * rows.m * float(rows.n)
    products = 0.0
    if not rows.prefers_gram and "rank" not in cones:
        products = 4.0
    elif "psd" in cones:  # a factor of long rows has at most m columns, half of them say
        products = min(1.0, rows.m / rows.n)
    seconds, proofs = products * entries * rows.n / FLOPS, 0.0
    if limit is not None and (problem.question is not None or not problem.target):
        proofs = PROOF_PRODUCTS * entries * rows.n / FLOPS + PROOF_SECONDS_PER_ROW * rows.m
        proofs = min(proofs, PROOF_SHARE * limit)
    return seconds, proofs


def _is_finite(matrix: SensedMatrix) -> bool:
    """Whether every entry is a number: a fit may lie beyond float64's range."""
    form = matrix.form
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(form, MeasuredForm):
            size = abs(form.tau) + float(np.sum(np.abs(to_numpy(form.c))))
            base = 0.0 if form.base is None else float(np.max(np.abs(to_numpy(form.base))))
            return size + base < LARGEST_ENTRY
        if isinstance(form, FactorForm):
            return form.mass < LARGEST_ENTRY
        return bool(np.isfinite(np.asarray(matrix)).all())


def _zero(request: Request) -> SensedMatrix:
    """The matrix of zeros, in the form that is wanted."""
    problem, rows = request.problem, request.problem.rows
    if request.positive:
        return nothing(problem)
    return SensedMatrix(MeasuredForm(0.0, rows.unmixed(0.0 * problem.b), rows.raw))


def _at_any_scale(problem: Problem) -> Any:
    """Let squares overflow where readings are so large that they must.

    What becomes infinite, or no number at all, is no fit: it is judged as everything is.
    """
    largest = float((np.abs(to_numpy(problem.b)) + to_numpy(problem.delta)).max())
    ratio = largest / float(to_numpy(problem.delta).min())
    extreme = ratio > LARGEST_RATIO or not 1.0 / LARGEST_SQUARED < largest < LARGEST_SQUARED
    return np.errstate(over="ignore", invalid="ignore") if extreme else nullcontext()


def _without(request: Request, problem: Problem, name: str, rows: Any) -> Problem:
    """The problem with those measurements asked for nothing."""
    kept = request.data.set_aside(rows)
    prove = Prover(kept, request.positive)
    problem = changed(problem, sides=kept.sides, given_ends=kept.unit_ends, prove=prove)
    if METHODS.traits(name).one_sided:
        return problem
    # It knows readings and tolerances only: these are so wide that they weigh nothing, and such as
    # lean nowhere when the start is made of them.
    b, delta = to_numpy(problem.b).copy(), to_numpy(problem.delta).copy()
    delta[rows] = FORGOTTEN * float(np.max(np.abs(b) + delta))
    b[rows] = float(np.mean(np.delete(b, rows))) if len(rows) < len(b) else 0.0
    return changed(problem, b=own(problem, b), delta=own(problem, delta), sides=None)


def with_gram(request: Request, name: str) -> Problem:
    """The problem with K, where the method needs it; K is kept for the next solve."""
    kind = request.plan.gram
    if kind == "none" or "gram" not in METHODS.traits(name).needs:
        return request.problem
    data, watch = request.data, request.limits.watch
    if data.gram is None or data.gram.kind != kind:
        data.gram = make_gram(data.unit_rows, kind)
    # Where it is stopped, it is for the run to say so.
    with suppress(Stop), watch.part("K"), watch.heeded():
        data.gram.form()
    return changed(request.problem, gram=data.gram)


def _found_by(problem: Problem, gram: Any, watch: Watch, matrix: SensedMatrix) -> Enclosure:
    """`found_in`, or, where a limit is reached and K is at hand, a quicker look at what it misses.

    What seems to be met is always looked at as `verify` does.
    """
    form = matrix.form
    if not (watch.over and isinstance(gram, ExplicitGram) and isinstance(form, MeasuredForm)):
        return found_in(matrix, problem)
    if "values" not in vars(gram) or form.rows is not problem.rows:
        return found_in(matrix, problem)
    image, mass = gram.apply(form.c), gram.apply(abs(form.c))
    quick = measured_enclosure(form, reference(problem), image, mass, problem.m)
    return found_in(matrix, problem) if is_met(quick, problem.ends) else quick


def found_in(matrix: SensedMatrix, problem: Problem) -> Enclosure:
    """Values recomputed from the data, by the very function that `verify` uses."""
    return enclosure(matrix, problem.rows, reference(problem))
