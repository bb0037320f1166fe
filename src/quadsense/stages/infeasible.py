"""Where the A that is wanted was not found, and where nothing fits.

Three questions remain then. Do constraints and equalities contradict each other by themselves
(`refuted`)? How small can the largest miss be, between a proved bound and a matrix
(`smallest_miss`)? And which A comes with the verdict (`least_squares_fit`)?
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import changed
from quadsense.measurements import Measurements
from quadsense.methods import COLD, METHODS
from quadsense.methods.base import LENIENT, own
from quadsense.methods.conic.solve import solve_question
from quadsense.methods.traits import MAX_WIDE, GapOptions
from quadsense.preferences import Preference, make_question
from quadsense.proofs.definite import is_positive
from quadsense.proofs.infeasible import Proof, check_infeasible
from quadsense.proofs.rounding import Enclosure, user_dual
from quadsense.query.choice import least_squares_of
from quadsense.query.plan import make_plan, refuse_what_cannot_fit, shape_of
from quadsense.result.values import Comparison, Objective, allowed_size, is_admitted, make_objective
from quadsense.stages.path import answer_question, run_plan
from quadsense.stages.runs import (
    ANY_FIT,
    NO_ROWS,
    Answer,
    Request,
    found_in,
    start_value,
    to_problem,
)
from quadsense.system.watch import FLOPS, Stop
from quadsense.vocabulary import Claim, Status

MAX_FLOPS = 5.0 * FLOPS
"""Predicted work up to which the gap is closed, unless the solve itself was predicted to take as
much: about five seconds of one core."""

QUESTION_GAP = 0.25 * GapOptions().gap
"""Relative gap of the question: what rounding costs comes on top."""

STARTS = (None, 10.0, 0.3, 3.0)
"""Multiples of the identity to begin from, in units of the one that fits constraints or readings;
None for the kernel's own. Others than the first are rarely needed."""

EQUALITY_WIDTH = 1e-2
"""What an equality counts as: a tolerance of this part of the narrowest other one."""


# --- constraints and equalities alone ----------------------------------------------------------


def _some_are_missed(data: Measurements, answer: Answer) -> bool:
    """Whether the best that was found surely misses a constraint or an equality."""
    found, size = answer.outcome.found, allowed_size(data, answer.matrix)
    missed = data.unit_ends.allowing(size).missed(to_numpy(found.z), to_numpy(found.error))
    missed[data.contradictions()] = True
    return bool(np.any(missed & data.hard))


def refuted(request: Request, answer: Answer) -> Answer:
    """Return the answer, or the proof that nothing meets constraints and equalities.

    Without a tolerance, and under slack, nothing else must be met. So the readings are asked for
    nothing, and any matrix that meets the rest is sought as with a tolerance: a dual vector proves
    that there is none.

    Parameters
    ----------
    request : Request
        Of a solve in which nothing else must be met.
    answer : Answer
        What it came to.
    """
    data, problem = request.data, request.problem
    if not _some_are_missed(data, answer):
        return answer
    hard = data.only_hard()
    zero = hard.contradictions()
    if zero.size:
        y = np.zeros(data.m)
        y[zero[0]] = 1.0
        outcome = changed(
            answer.outcome, status=Status.INFEASIBLE, claim=Claim("infeasible", dual=y)
        )
        return changed(answer, outcome=outcome, preference=ANY_FIT, asked=False, hard=True)
    plan = make_plan(shape_of(hard, psd=request.positive, rank=None, target=True), "auto")
    alone = to_problem(hard, plan, target=True, positive=request.positive, seed=problem.seed)
    asked = changed(
        request, data=hard, plan=plan, problem=alone, allowed=0, warm=COLD, options={},
        preferences=(ANY_FIT,),
    )  # fmt: skip
    found = run_plan(asked)
    if found.outcome.status is not Status.INFEASIBLE:
        return answer
    outcome = changed(found.outcome, found=found_in(found.matrix, problem))
    return changed(found, outcome=outcome, preference=ANY_FIT, asked=False, hard=True)


# --- the smallest miss -------------------------------------------------------------------------


class Smallest(NamedTuple):
    """What was found: a dual vector of the user's rows with what it proves, and a matrix.

    `matrix` is None, and all that is about it, where none meets constraints and equalities.
    """

    dual: Vector
    proof: Proof
    matrix: SensedMatrix | None = None
    found: Enclosure | None = None
    values: Comparison | None = None


def smallest_miss(request: Request) -> Smallest | None:
    """Return the dual vector of the best bound on the smallest miss, and the best matrix.

    A method that proves that nothing fits stops there. For the message the smallest worst ratio
    (with `bounds`, the smallest largest miss) is sought once more, until both bounds on it are
    within the gap.

    With `bounds` the miss is the largest of an interval in units of the readings, otherwise the
    worst ratio to the tolerance. Constraints and equalities are not missed. None where that takes
    too long or proves nothing.
    """
    data, problem, psd = request.data, request.problem, request.positive
    name = "slack_max" if data.from_bounds else "minimax"
    shape = changed(shape_of(data, psd=psd, rank=None, target=True), prefer=name, damped=False)
    conic = METHODS.traits("conic")
    if not conic.serves(shape) or conic.work(shape).flops > max(MAX_FLOPS, request.plan.flops):
        return None
    question = make_question(data, Preference(name, psd, True), unit=True)
    assert question is not None
    scaled = data.scaled()
    size = data.fixed_multiple or start_value("mean", scaled.b, scaled.telling, data.unit_rows)
    eye, best = np.eye(data.n), None
    starts = STARTS if data.has_hard and psd and size > 0.0 else STARTS[:1]
    with suppress(Stop, MemoryError), LENIENT():
        for factor in starts:
            start = None if factor is None else factor * size * eye
            solution = solve_question(data.unit_rows, question, start=start, gap=QUESTION_GAP)
            # In questions, as in proofs about the cone, y > 0 belongs to the upper end.
            dual = user_dual(data, solution.y if psd else -solution.y)
            proof = check_infeasible(data, dual, psd)
            if proof.proved and (best is None or proof.lower_bound > best.proof.lower_bound):
                best = (
                    Smallest(dual, proof) if best is None else best._replace(dual=dual, proof=proof)
                )
            if solution.X is not None:
                matrix = SensedMatrix.from_factor(own(problem, solution.X))
            else:
                matrix = SensedMatrix.from_dense(own(problem, solution.A))
            found = found_in(matrix, problem)
            values = Comparison(data, found, size=allowed_size(data, matrix))
            if best is not None and bool(values.met[data.hard].all()):
                return best._replace(matrix=matrix, found=found, values=values)
    return best


# --- the A that comes with the verdict ---------------------------------------------------------


class LeastSquaresFit(NamedTuple):
    """A least-squares fit, its residuals, what it reads of the banded data, and what it costs."""

    matrix: SensedMatrix
    found: Enclosure
    values: Comparison
    cost: Objective


def least_squares_fit(request: Request) -> LeastSquaresFit | None:
    """Return the fit, certified; None where none is within the limits of the solve.

    It is least squares in units of the tolerances, without the bands. The proof that nothing fits
    has a matrix of its own, the one with the smallest worst miss, which is rarely the estimate that
    is wanted: it spreads one wrong reading over all the others.

    One of a given rank is stationary; nothing more is known of it. Where the rank may grow, it
    is the fit of any rank. With more than `MAX_WIDE` columns, and fewer rows than columns, there is
    none either: its bound takes arrays of n by n, which the proof does without.
    """
    data, problem, shape = request.data, request.problem, request.shape
    if shape.n > max(shape.rows, MAX_WIDE):
        return None
    low = shape.rank or None
    banded = least_squares_of(request.query, data, shape)
    weights = _weights(data, banded)
    if weights is None:
        return None
    preference = changed(banded, target=False, weights=weights)
    plain = data.without_tolerance()
    shape = changed(
        shape_of(plain, psd=request.positive, rank=low, target=False),
        prefer="least_squares", damped=preference.ridge > 0.0,
    )  # fmt: skip
    plan = make_plan(shape, "auto")
    alone = to_problem(
        plain, plan, target=False, positive=request.positive, rank=problem.rank,
        signs=problem.signs, seed=problem.seed,
    )  # fmt: skip
    with suppress(Stop, MemoryError):
        asked = changed(
            request, data=plain, plan=plan, shape=shape, problem=alone, allowed=0, warm=COLD,
            options={}, preferences=(preference,),
            limits=changed(request.limits, callback=None, progress=False),
            refused=refuse_what_cannot_fit(shape, plan),
        )  # fmt: skip
        answer = answer_question(asked)
        if request.positive and low is None and not is_positive(answer.matrix):
            return None
        found = found_in(answer.matrix, problem)
        values = Comparison(data, found, size=allowed_size(data, answer.matrix))
        dual = answer.outcome.dual
        with request.limits.watch.heeded(), request.limits.watch.part("proofs"):
            cost = make_objective(
                plain,
                preference,
                answer.matrix,
                values.reads,
                values.error,
                None if dual is None else user_dual(plain, dual),
                fits=is_admitted(preference, values.met, NO_ROWS, data.measured),
                gap=GapOptions().gap,
            )
        good = cost is not None and (cost.closed or answer.outcome.status is Status.LOCAL)
        return (
            LeastSquaresFit(answer.matrix, found, values, cost)
            if cost is not None and good
            else None
        )
    return None


def _weights(data: Measurements, preference: Preference) -> Vector | None:
    """Return a weight per reading: 1/half-width^2, or as given; None where nothing is in the sum.

    A row with one end is not in the sum, as within the bands.
    """
    question = make_question(data, preference)
    assert question is not None and data.ends is not None
    weights = question.weights[: data.measured].copy()
    equal = (question.equal & data.ends.exact)[: data.measured]
    if preference.weights is not None:
        weights[equal] = preference.weights[equal]
    elif equal.any():
        norms = to_numpy(data.unit_rows.norms)[: data.measured]
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            squares = norms * norms
            widths = 1.0 / np.sqrt(weights) / squares
            narrowest = float(np.min(widths[weights > 0.0], initial=np.inf))
            width = EQUALITY_WIDTH * narrowest if np.isfinite(narrowest) else 1.0
            weights[equal] = np.where(norms > 0.0, (width * squares) ** -2.0, 0.0)[equal]
    return weights if weights.any() and np.isfinite(weights).all() else None
