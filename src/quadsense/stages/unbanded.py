"""The A that comes with INFEASIBLE: least squares in units of the tolerances, without the bands.

The proof that nothing fits has a matrix of its own, the one with the smallest worst miss. That is
rarely the estimate that is wanted: it spreads one wrong reading over all the others.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import changed
from quadsense.core.signature import is_positive
from quadsense.measurements import Measurements
from quadsense.methods import COLD, Problem
from quadsense.methods.traits import MAX_WIDE, GapOptions
from quadsense.preferences import Preference, make_question
from quadsense.proofs.exact import user_dual
from quadsense.proofs.rounding import Enclosure
from quadsense.query.choice import least_squares_of
from quadsense.query.plan import make_plan, refuse_what_cannot_fit, shape_of
from quadsense.query.request import error_units, options_of, start_value
from quadsense.result.objective import Objective, is_admitted, make_objective
from quadsense.result.values import Values, allowed_size
from quadsense.stages.runs import NONE, Request, answer_question, found_in
from quadsense.system.watch import Stop
from quadsense.vocabulary import Status

EQUALITY_WIDTH = 1e-2
"""What an equality counts as: a tolerance of this part of the narrowest other one."""


class Fit(NamedTuple):
    """A least-squares fit, its residuals, what it reads of the banded data, and what it costs."""

    matrix: SensedMatrix
    found: Enclosure
    values: Values
    cost: Objective


def least_squares_fit(request: Request) -> Fit | None:
    """Return the fit, certified; None where none is within the limits of the solve.

    One of a given rank is at rest, which is all that can be said of it. Where the rank may grow, it
    is the fit of any rank. With more than `MAX_WIDE` columns, and fewer rows than columns, there is
    none either: its bound takes arrays of n by n, which the proof does without.
    """
    data, problem = request.data, request.problem
    wish, shape = request.wish, request.shape
    if wish is None or shape is None or shape.n > max(shape.rows, MAX_WIDE):
        return None
    low = shape.rank or None
    banded = least_squares_of(wish, data, shape)
    weights = _weights(data, banded)
    if weights is None:
        return None
    preference = changed(banded, target=False, weights=weights)
    plain = data.without_tolerance()
    shape = changed(
        shape_of(plain, psd=request.positive, rank=low, target=False),
        prefer="least_squares", damped=preference.ridge > 0.0,
    )  # fmt: skip
    plan, scaled = make_plan(shape, "auto"), plain.scaled()
    unit, units = error_units(plain)
    alone = Problem(
        rows=plain.unit_rows,
        b=scaled.b,
        delta=units,
        tau=start_value("mean", scaled.b, scaled.telling, plain.unit_rows),
        sides=plain.sides,
        given_ends=plain.unit_ends,
        target=False,
        error_unit=unit,
        rank=problem.rank,
        signs=problem.signs,
        options=options_of(plan.methods[-1], {}),
        seed=problem.seed,
    )
    with suppress(Stop, MemoryError):
        asked = changed(
            request, data=plain, plan=plan, shape=shape, problem=alone, allowed=0, warm=COLD,
            wishes={}, preferences=(preference,), wanted="least_squares",
            limits=changed(request.limits, callback=None, progress=False),
            refused=refuse_what_cannot_fit(shape, plan),
        )  # fmt: skip
        answer = answer_question(asked)
        if request.positive and low is None and not is_positive(answer.matrix):
            return None
        found = found_in(answer.matrix, problem)
        values = Values(data, found, size=allowed_size(data, answer.matrix))
        dual = answer.outcome.dual
        with request.limits.watch.heeded(), request.limits.watch.part("proofs"):
            cost = make_objective(
                plain,
                preference,
                answer.matrix,
                values.reads,
                values.error,
                None if dual is None else user_dual(plain, dual),
                fits=is_admitted(preference, values.met, NONE, data.measured),
                gap=GapOptions().gap,
            )
        good = cost is not None and (cost.closed or answer.outcome.status is Status.LOCAL)
        return Fit(answer.matrix, found, values, cost) if cost is not None and good else None
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
