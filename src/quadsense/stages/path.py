"""What `solve` does, top to bottom: query, decision, runs, result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from quadsense.core.records import changed
from quadsense.measurements import Measurements
from quadsense.measurements.frame import shown_outside
from quadsense.query.decision import decided
from quadsense.query.plan import refuse_what_cannot_fit
from quadsense.query.query import PARAMETERS, Query, environment
from quadsense.query.request import (
    current_method,
    refuse_unknown,
    to_limits,
    to_measurements,
    to_seed,
    to_start,
)
from quadsense.result.result import Result
from quadsense.run.checkpoint import to_journal
from quadsense.run.checkpoint.fingerprint import marks_of
from quadsense.stages.answer import to_result
from quadsense.stages.runs import Request, preferred_among, run_plan, to_problem
from quadsense.system.memory import limited_memory, to_bytes
from quadsense.system.threads import one_blas_thread
from quadsense.system.watch import Interrupted, Watch
from quadsense.typing import to_list
from quadsense.vocabulary import Status

UNDONE = (Status.INFEASIBLE, Status.UNDECIDED, Status.STALLED)
"""How runs end that found no A as it was asked for."""


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
    refuse_unknown("solve", ("data", *PARAMETERS), query.options)
    query = changed(
        query,
        method=current_method(query.method),
        constraints=tuple(to_list("constraints", query.constraints, "(C, lo, hi)")),
    )
    journal = to_journal(query.checkpoint, query.checkpoint_every, watch)
    limit, given = to_bytes(query.memory_limit), query.data
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
        limited_memory(limit) if query.memory_limit is not None else nullcontext(),
        journal or nullcontext(),
    ):
        measured = to_measurements(query)
        limits = to_limits(query, watch, journal)
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
        scaled = data.scaled()
        start = to_start(query, data, scaled, columns)
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
        unmet = answer.outcome.status in UNDONE or data.contradictions().size
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
                answer = preferred_among(request, answer)
        result = to_result(request, answer, query.recorded(user))
    if interrupts.pressed:
        raise Interrupted(result)
    return result
