"""The runs behind a solve: one method on one problem, and methods in turn."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, Vector, like, placed, to_numpy
from quadsense.core.intervals import HARMLESS, UnitReadings
from quadsense.core.matrix import FactorForm, MeasuredForm, SensedMatrix
from quadsense.core.records import changed, record
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import Columns
from quadsense.measurements.gram import ExplicitGram, make_gram
from quadsense.measurements.oracle import checked_square
from quadsense.measurements.sensing import Sensing
from quadsense.methods import COLD, METHODS, Method, Problem, Warm
from quadsense.methods.base import nothing, own
from quadsense.preferences import Preference, make_question, with_set_aside
from quadsense.proofs.infeasible import PROOF_PRODUCTS, Prover
from quadsense.proofs.rounding import Enclosure, enclosure, is_met, measured_enclosure
from quadsense.query.plan import Decision, Plan
from quadsense.query.query import STARTS, Query
from quadsense.result.result import Result
from quadsense.result.values import Comparison, allowed_size, on_rows_of
from quadsense.run.loop import Limits, Outcome, reference, run
from quadsense.system.watch import FLOPS, Stop, Watch, real_flops
from quadsense.typing import to_generator
from quadsense.vocabulary import Status

NO_ROWS = np.empty(0, dtype=np.int64)

ANY_FIT = Preference("any")
"""Whichever fit comes first."""

MAX_RESTARTS_EACH = 5
"""Starts of `low_rank` for each choice of what to set aside."""

MAX_SQUARED_READING = 1e75
"""Readings of unit rows up to which fourth powers stay within float64's range; below its inverse,
their inverses."""

MAX_READING_RATIO = 1e30
"""Readings in tolerances up to which all that is computed from them does, and which float64 can
hope to tell apart."""

MAX_ENTRY = 1e220
"""Bound on entries of A below which they, over squared norms of rows too, stay finite."""

MAX_PROOF_SHARE = 0.25
"""Share of a time limit that is left for it, at most."""

PROOF_SECONDS_PER_ROW = 1e-6
"""Seconds per row that their sums take, each entry with its rounding error (the proof alone took .4
to .7 s at n = 3, m = 10^6)."""

SET_ASIDE_TOLERANCE = 1e30
"""Tolerance, in units of the largest reading, of a measurement that is set aside."""


@record(frozen=True)
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


@record(frozen=True)
class Answer:
    """How the last run ended, by which method, with which measurements left out.

    `proofs` are dual vectors of the user's rows, one per row, whose supports no set of that many
    measurements as may be set aside hits; with a fit, no set smaller than the one set aside.
    `hard`: what the claim is about is constraints and equalities alone.
    """

    outcome: Outcome
    matrix: SensedMatrix
    method: str
    lemma: str
    set_aside: npt.NDArray[np.int64]
    proofs: npt.NDArray[np.float64] | None = None
    preference: Preference = ANY_FIT
    asked: bool = False
    hard: bool = False


def error_units(data: Measurements) -> tuple[float, Array]:
    """A unit of error where no tolerance is given, and what it is for each of the unit rows.

    A power of two of the size of the readings, so that their size does not matter. Rows of tiny
    norm read far less than that: for them a smaller one, still far too large, serves.
    """
    largest = float(np.max(np.abs(to_numpy(data.b))))
    unit = math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0.0 else 1.0
    b, delta = to_numpy(data.scaled().b), to_numpy(data.scaled().delta)
    with np.errstate(over="ignore"):
        units = unit * delta
    units = np.minimum(units, HARMLESS * max(float(np.max(np.abs(b))), float(units.min())))
    return unit, like(units, data.scaled().b)


@lru_cache(maxsize=16)
def _draw(methods: tuple[str, ...]) -> bool:
    """Whether one of these methods draws random numbers."""
    return any(METHODS.traits(name).random for name in methods)


def to_seed(rng: Any, methods: tuple[str, ...]) -> int:
    """A whole number for these methods from a seed, a generator, which moves on, or None."""
    draws = _draw(methods)
    if rng is None:  # NumPy's own way takes ten times as long
        return int.from_bytes(os.urandom(7), "little") if draws else 0
    generator = to_generator("rng", rng)
    return int(generator.integers(2**63)) if draws else 0


@record(frozen=True)
class Start:
    """``A_1 = tau I + base - F*(c)``, and what is known of it where it was given."""

    tau: float
    base: Array | None = None
    c: Array | None = None
    warm: Warm = COLD


def to_start(
    query: Query, data: Measurements, scaled: UnitReadings, columns: Columns | None = None
) -> Start:
    """Return A_1 from a word, a matrix or an earlier result.

    With a rank, where methods carry a factor, a start that is held as a factor stays one.
    `columns` are the exponents by which the columns of the data are scaled: the start is of the
    unscaled ones.
    """
    start: Any = query.start
    if start is None:
        start = "tau" if query.schedule == "paper" else "mean"
    if isinstance(start, str):
        if start not in STARTS:
            raise ValueError(
                f"start must be one of {', '.join(STARTS)}, a matrix or an earlier result, "
                f"got {start!r}"
            )
        return Start(start_value(start, scaled.b, scaled.telling, data.unit_rows))
    matrix = start.matrix if isinstance(start, Result) else start
    if sp.issparse(matrix):
        matrix = matrix.toarray()
    if not isinstance(matrix, SensedMatrix):
        matrix = SensedMatrix.from_dense(checked_square("start", matrix))
    if matrix.shape[0] != data.n:
        raise ValueError(f"start is of order {matrix.shape[0]}, but U has n = {data.n} columns")
    dual = _dual_of(start, data) if isinstance(start, Result) else None
    if columns is not None:
        matrix = matrix.stretched(-columns)
    form = on_rows_of(matrix, data).form
    if isinstance(form, MeasuredForm) and form.rows is data.unit_rows:
        return Start(form.tau, form.base, form.c, Warm(matrix, dual=dual))
    if query.rank is not None and isinstance(form, FactorForm):
        return _factored_start(form, data, scaled)
    values, factor = np.asarray(matrix), None if matrix.signs is not None else matrix.factor
    if np.iscomplexobj(values) and not data.unit_rows.is_complex:
        # Real rows see the real part alone.
        values, factor = np.ascontiguousarray(values.real), None
    dense = data.unit_rows._cast(placed(values, scaled.b))
    return Start(0.0, dense, warm=Warm(SensedMatrix.from_dense(dense), factor, dual))


def _dual_of(start: Result, data: Measurements) -> Vector | None:
    """Return the dual vector of an earlier result for these unit rows; None if it has none.

    Rows are taken to be in the same order, and further ones to come last: their entries are 0. Any
    vector gives a true bound, so that a wrong guess costs steps only.
    """
    claim = start.certificate.objective
    if claim is None or claim.dual is None:
        return None
    y, before = np.zeros(data.m), int(to_numpy(start.residuals).size)
    common, tied = min(before, data.measured), len(data.constraints)
    y[:common] = claim.dual[:common]
    if tied and tied == len(claim.dual) - before:
        y[data.measured :] = claim.dual[before:]
    norms = to_numpy(data.unit_rows.norms)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        y = np.where(norms > 0.0, y * norms * norms, y)
    return y if np.isfinite(y).all() else None


def _factored_start(form: FactorForm, data: Measurements, scaled: UnitReadings) -> Start:
    """Return ``X S X*`` to start from, without its (n, n) array."""
    rows, X, signs = data.unit_rows, to_numpy(form.factor), form.signs
    if np.iscomplexobj(X) and not rows.is_complex:  # real rows see the real part alone
        X = np.concatenate([np.real(X), np.imag(X)], axis=1)
        signs = None if signs is None else np.concatenate([signs, signs])
    X = rows._cast(placed(X, scaled.b))
    return Start(0.0, warm=Warm(SensedMatrix.from_factor(X, signs), X if signs is None else None))


def start_value(start: str, b: Array, telling: Array, rows: Sensing | None = None) -> float:
    """The tau of ``A_1 = tau I``, from the readings of the unit rows that say something."""
    known, readings = to_numpy(telling) > 0, to_numpy(b)
    if not np.logical_and.reduce(known):
        readings = readings[known]
    if start == "zero" or not readings.size:
        return 0.0
    if start == "mean" and not (rows is None or rows.rank_one):  # sums read other than 1 of I
        identity = to_numpy(rows.squares)[known]
        square = float(identity @ identity)
        return float(identity @ readings) / square if square > 1e-12 * identity.size else 0.0
    return float(np.add.reduce(readings) / readings.size if start == "mean" else readings.max())


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
        options=METHODS.options(plan.methods[-1], options),
        seed=seed,
    )


def in_turn(request: Request, methods: tuple[str, ...], set_aside: Any = NO_ROWS) -> Answer:
    """Run the methods in turn, each from what the one before has found.

    A fit that is not what the question asks for is kept where the others find nothing better, and
    so is an optimum that is within its constraints only up to rounding.
    """
    followed = len(methods) > 1  # whether or not they fit: memory does not change the steps
    answer = run_method(request, methods[0], set_aside, request.warm, followed)
    for name in methods[1:]:
        outcome = answer.outcome
        handed_over = outcome.claim is not None and outcome.claim.kind == "inconsistent"
        lost = outcome.status is Status.MET and is_lost(answer) and request.problem.question
        outside = outcome.status is Status.OPTIMAL and not _keeps_constraints(request, answer)
        if outcome.status is Status.INTERRUPTED or not (
            handed_over or lost or outside or outcome.status is Status.STALLED
        ):
            break
        after = run_method(request, name, set_aside, outcome.warm)
        better = after.outcome.status in (Status.MET, Status.OPTIMAL if outside else Status.MET)
        if better or not (lost or outside):
            answer = after
    return answer


def _keeps_constraints(request: Request, answer: Answer) -> bool:
    """Return whether the matrix is within all constraints, whatever rounding did."""
    data = request.data
    if not data.constraints:
        return True
    size = allowed_size(data, answer.matrix)
    values = Comparison(data, answer.outcome.found, answer.set_aside, size)
    return bool(values.met[data.measured :].all())


def is_lost(answer: Answer) -> bool:
    """Whether the method gave up what it was asked for, whatever it found on the way."""
    claim = answer.outcome.claim
    return claim is not None and claim.kind == "stalled"


def run_method(
    request: Request, name: str, set_aside: Any = NO_ROWS, warm: Warm = COLD, followed: bool = False
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
    problem = request.problem if request.plan.gram == "none" else with_gram(request, name)
    options = METHODS.options(name, request.options)
    problem = changed(problem, options=options, followed=followed)
    if set_aside.size:
        problem = _without(request, problem, name, set_aside)
    if request.allowed and getattr(problem.options, "max_restarts", 0) is None:
        # Where the data may be wrong, another choice of rows helps more than another start.
        problem = changed(problem, options=replace(problem.options, max_restarts=MAX_RESTARTS_EACH))
    solver = _solver(name, problem)
    tolerance = to_numpy(request.data.tolerance)
    watch = request.limits.watch
    if watch.time_limit is not None:
        watch.reserve, watch.proof_reserve = _seconds_to_finish(problem, name, watch.time_limit)
    watch.has_fit |= not problem.target
    certify = partial(_found_by, problem, request.data.gram, watch)
    if _is_extreme(problem, request.data):
        # What becomes infinite, or no number at all, is no fit: it is judged as everything is.
        with np.errstate(over="ignore", invalid="ignore"):
            outcome = run(solver, problem, certify, tolerance, request.limits, warm)
    else:
        outcome = run(solver, problem, certify, tolerance, request.limits, warm)
    matrix = outcome.matrix
    if outcome.status not in (Status.MET, Status.OPTIMAL) and not _is_finite(matrix):
        matrix = zero(request)
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


def _seconds_to_finish(problem: Problem, name: str, limit: float) -> tuple[float, float]:
    """Return about how long it takes to form and measure a matrix, and to prove a bound for it.

    Of a time limit, proofs get a share only: a fit that is not certified to be the preferred one is
    better than none. What takes longer than the simplest bound gives way to it at the limit.
    """
    rows, cones = problem.rows, METHODS.traits(name).cones
    entries = real_flops(rows.is_complex) * rows.m * float(rows.n)
    products = 0.0
    if not rows.prefers_gram and "rank" not in cones:
        products = 4.0
    elif "psd" in cones:  # a factor of long rows has at most m columns, half of them say
        products = min(1.0, rows.m / rows.n)
    seconds, proofs = products * entries * rows.n / FLOPS, 0.0
    if problem.question is not None or not problem.target:
        proofs = PROOF_PRODUCTS * entries * rows.n / FLOPS + PROOF_SECONDS_PER_ROW * rows.m
        proofs = min(proofs, MAX_PROOF_SHARE * limit)
    return seconds, proofs


def _is_finite(matrix: SensedMatrix) -> bool:
    """Whether every entry is a number: a fit may lie beyond float64's range."""
    form = matrix.form
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(form, MeasuredForm):
            size = abs(form.tau) + float(np.sum(np.abs(to_numpy(form.c))))
            base = 0.0 if form.base is None else float(np.max(np.abs(to_numpy(form.base))))
            return size + base < MAX_ENTRY
        if isinstance(form, FactorForm):
            return form.mass < MAX_ENTRY
        return bool(np.isfinite(np.asarray(matrix)).all())


def zero(request: Request) -> SensedMatrix:
    """The matrix of zeros, in the form that is wanted."""
    problem, rows = request.problem, request.problem.rows
    if request.positive:
        return nothing(problem)
    return SensedMatrix(MeasuredForm(0.0, rows.unmixed(0.0 * problem.b), rows.raw))


def _is_extreme(problem: Problem, data: Measurements) -> bool:
    """Return whether readings are so large, or tolerances so small, that squares overflow."""
    scaled = data.scaled()
    least, largest = scaled.least, scaled.largest
    if problem.b is not scaled.b or problem.delta is not scaled.delta:
        least = float(to_numpy(problem.delta).min())
        largest = float((np.abs(to_numpy(problem.b)) + to_numpy(problem.delta)).max())
    ratio = largest / least
    usual = 1.0 / MAX_SQUARED_READING < largest < MAX_SQUARED_READING
    return ratio > MAX_READING_RATIO or not usual


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
    delta[rows] = SET_ASIDE_TOLERANCE * float(np.max(np.abs(b) + delta))
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


def asking_for(request: Request, preference: Preference, set_aside: Any = NO_ROWS) -> Problem:
    """The problem with its question, on the unit rows."""
    data = request.data
    if set_aside.size:
        data = data.set_aside(set_aside)
        preference = with_set_aside(preference, set_aside)
    low = METHODS.traits(request.plan.methods[-1]).cones == {"rank"}  # which knows no bounds
    question = make_question(data, preference, unit=True, relative=low)
    # Methods that go by a question measure what A misses by the intervals as they are given.
    return changed(request.problem, question=question, error_unit=1.0)
