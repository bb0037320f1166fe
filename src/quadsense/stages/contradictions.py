"""Where the A that is wanted was not found: do constraints and equalities contradict each other?

Without a tolerance, and under slack, nothing else must be met. Then the readings are asked for
nothing, and any matrix that meets the rest is sought as with a tolerance: a dual vector proves that
there is none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.measurements import Measurements
from quadsense.methods import Problem
from quadsense.methods.base import COLD
from quadsense.proofs.infeasible import Prover
from quadsense.query.plan import make_plan, shape_of
from quadsense.query.request import options_of, start_value
from quadsense.result.values import allowed_size
from quadsense.stages.runs import ANY, Answer, Request, found_in, run_plan
from quadsense.vocabulary import Claim, Status


def _some_are_missed(data: Measurements, answer: Answer) -> bool:
    """Whether the best that was found surely misses a constraint or an equality."""
    found, size = answer.outcome.found, allowed_size(data, answer.matrix)
    missed = data.unit_ends.allowing(size).missed(to_numpy(found.z), to_numpy(found.error))
    missed[data.contradictions()] = True
    return bool(np.any(missed & data.hard))


def refuted(request: Request, answer: Answer) -> Answer:
    """The answer, or one that says what was proved: nothing meets constraints and equalities.

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
        outcome = replace(
            answer.outcome, status=Status.INFEASIBLE, claim=Claim("infeasible", dual=y)
        )
        return replace(answer, outcome=outcome, preference=ANY, asked=False, hard=True)
    shape = shape_of(hard, psd=request.positive, rank=None, target=True)
    plan = make_plan(shape, "auto")
    scaled = hard.scaled()
    alone = Problem(
        rows=hard.unit_rows,
        b=scaled.b,
        delta=scaled.delta,
        tau=start_value("mean", scaled.b, scaled.telling, hard.unit_rows),
        sides=hard.sides,
        given_ends=hard.unit_ends,
        prove=Prover(hard, request.positive),
        options=options_of(plan.methods[-1], {}),
        seed=problem.seed,
    )
    asked = replace(
        request, data=hard, plan=plan, problem=alone, allowed=0, warm=COLD, wishes={},
        preferences=(ANY,), wanted="any",
    )  # fmt: skip
    found = run_plan(asked)
    if found.outcome.status is not Status.INFEASIBLE:
        return answer
    outcome = replace(found.outcome, found=found_in(found.matrix, problem))
    return replace(found, outcome=outcome, preference=ANY, asked=False, hard=True)
