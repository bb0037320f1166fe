"""The road of the data, top to bottom: request, plan, runs, answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from quadsense.answer import to_result
from quadsense.checkpoint import to_journal
from quadsense.checkpoint.fingerprint import marks_of
from quadsense.choice import check_preference, decide, frame_for, to_wish, wish_in
from quadsense.core.records import changed
from quadsense.frame import described, framed, shown_outside
from quadsense.interrupts import Interrupted
from quadsense.measurements import Measurements
from quadsense.memory import limited_memory, to_bytes
from quadsense.methods import METHODS, Problem
from quadsense.methods.base import MethodOptions
from quadsense.plan import make_plan, refuse_what_cannot_fit, shape_of
from quadsense.proofs.infeasible import Prover
from quadsense.record import environment, request_of
from quadsense.request import (
    check_options,
    check_priors,
    error_units,
    given_options,
    options_of,
    to_allowed,
    to_limits,
    to_measurements,
    to_rank,
    to_seed,
    to_start,
)
from quadsense.result import Result
from quadsense.runs import Request, preferred_among, run_plan
from quadsense.threads import one_blas_thread
from quadsense.typing import to_list
from quadsense.vocabulary import Status
from quadsense.watch import Watch


def travel(
    data: Any,
    b: Any,
    *,
    delta: Any,
    rtol: Any,
    bounds: Any,
    method: Any,
    psd: Any,
    rank: Any,
    start: Any,
    schedule: Any,
    allow_violations: Any,
    max_iter: Any,
    time_limit: Any,
    rng: Any,
    callback: Any,
    progress: bool,
    conjugate: bool,
    options: MethodOptions,
    mix: Any = None,
    weights: Any = None,
    trace: Any = None,
    constraints: Any = (),
    prefer: Any = "auto",
    prior: Any = None,
    ridge: Any = "auto",
    slack: Any = None,
    checkpoint: Any = None,
    checkpoint_every: Any = 60.0,
    memory_limit: Any = None,
    clock: Callable[[], float] | None = None,
) -> Result:
    """Solve; the parameters are those of `quadsense.solve`, not yet checked.

    `clock` is what time limits and timings go by.
    """
    watch = Watch(clock)
    constraints = tuple(to_list("constraints", constraints, "(C, lo, hi)"))  # used more than once
    journal = to_journal(checkpoint, checkpoint_every, watch)
    arguments = {
        "psd": psd, "rank": rank, "trace": trace, "constraints": constraints, "prefer": prefer,
        "prior": prior, "ridge": ridge, "slack": slack, "allow_violations": allow_violations,
        "method": method, "schedule": schedule, "start": start, "rng": rng,
        "max_iter": max_iter, "time_limit": time_limit, "memory_limit": memory_limit, **options,
    }  # fmt: skip
    limit = to_bytes(memory_limit)
    if isinstance(data, Measurements):
        with limited_memory(limit):
            data = data.settled()
        if data._read_bytes <= limit / 2.0:  # as if they were read by each solve
            limit -= data._read_bytes
    with (
        np.errstate(under="ignore"),  # what underflows is not missed
        watch.interrupts as interrupts,
        one_blas_thread(),
        limited_memory(limit) if memory_limit is not None else nullcontext(),
        journal or nullcontext(),
    ):
        measured = to_measurements(data, b, delta, rtol, bounds, conjugate, mix, weights)
        target = measured.tolerance is not None
        if not target:
            measured = measured.without_tolerance()
        measured = measured.constrained(trace, constraints)
        wishes = given_options(method, schedule, options, measured.m)
        limits = to_limits(max_iter, time_limit, callback, progress, watch, journal)
        check_priors(method, measured, psd, rank, target)
        allowed = to_allowed(allow_violations, measured.measured, target)
        named = method != "auto" and METHODS.traits(method).cones.isdisjoint({"symmetric"})
        low = to_rank(rank, measured.n)
        positive = bool(psd) or low.positive or (named and low.order is None)
        order = low.order
        raw = None if isinstance(data, Measurements) else data
        wish = to_wish(
            prefer, slack, prior, ridge, measured,
            target=target, positive=positive, low_rank=rank is not None,
        )  # fmt: skip
        user, columns = measured, frame_for(wish, measured, method, schedule)
        if columns is not None:
            measured, wish = framed(user, columns), wish_in(wish, columns)
            limits = changed(limits, callback=shown_outside(callback, columns))
        shape = shape_of(
            measured, psd=positive, rank=order, target=target, given=raw, start=start,
            tf32=bool(wishes.get("allow_tf32")),
        )  # fmt: skip
        if journal is not None:
            with watch.part("checkpoint"):
                journal.find(marks_of(user, arguments), environment())
        preferences, reasons = decide(wish, measured, shape, method, watch)
        shape = changed(
            shape, prefer=preferences[0].name, damped=preferences[0].ridge > 0.0,
        )  # fmt: skip
        check_preference(method, shape, wish)
        plan = make_plan(shape, method)
        scaling = () if columns is None else (described(columns),)
        plan = changed(plan, reasons=(*reasons, *scaling, *plan.reasons))
        check_options(plan.methods, wishes, method)
        refused = refuse_what_cannot_fit(shape, plan)
        seed = to_seed(rng, plan.methods)
        if journal is not None:
            with watch.part("checkpoint"):
                seed = journal.open(seed)
        scaled = measured.scaled()
        first = to_start(start, schedule, measured, scaled, order is not None, columns)
        unit, units = 1.0, scaled.delta
        if not target:
            unit, units = error_units(measured)
        problem = Problem(
            rows=measured.unit_rows,
            b=scaled.b,
            delta=units,
            tau=first.tau,
            base=first.base,
            c_start=first.c,
            sides=measured.sides,
            given_ends=measured.unit_ends,
            target=target,
            error_unit=unit,
            rank=order or None,
            signs=low.signs,
            prove=Prover(measured, positive) if target else None,
            options=options_of(plan.methods[-1], wishes),
            seed=seed,
        )
        request = Request(
            measured, plan, problem, limits, positive, allowed, first.warm, wishes,
            preferences, preferences[0].name if prefer in ("auto", "any") else prefer, refused,
            wish, shape, columns,
        )  # fmt: skip
        answer = run_plan(request)
        undone = (Status.INFEASIBLE, Status.UNDECIDED, Status.STALLED)
        # A row of zeros is no row to a method, but a contradiction all the same.
        unmet = answer.outcome.status in undone or measured.contradictions().size
        lost = unmet or answer.outcome.status is Status.LOCAL
        if lost and measured.hard.any() and not (target and slack is None):
            from quadsense.contradictions import refuted

            answer = refuted(request, answer)
        if allowed and unmet and not answer.hard:  # what contradicts by itself stays, whatever goes
            from quadsense.violations import set_violations_aside  # seldom needed, dear to import

            answer = set_violations_aside(request, answer)
            if answer.set_aside.size and answer.outcome.status is Status.MET:
                answer = preferred_among(request, answer)
        result = to_result(request, answer, request_of(user, arguments), user)
    if interrupts.pressed:
        raise Interrupted(result)
    return result
