"""The road of the data, top to bottom: request, plan, runs, answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from quadsense.core.records import changed
from quadsense.measurements import Measurements
from quadsense.measurements.frame import Columns, described, framed, shown_outside
from quadsense.methods import METHODS, Problem
from quadsense.methods.base import MethodOptions
from quadsense.preferences import Preference
from quadsense.proofs.infeasible import Prover
from quadsense.query.choice import Wish, check_preference, decide, frame_for, to_wish, wish_in
from quadsense.query.plan import Plan, Shape, make_plan, refuse_what_cannot_fit, shape_of
from quadsense.query.record import DEFAULTS, environment, request_of
from quadsense.query.request import (
    Rank,
    check_options,
    check_priors,
    current_method,
    error_units,
    given_options,
    option_names,
    options_of,
    to_allowed,
    to_limits,
    to_measurements,
    to_rank,
    to_seed,
    to_start,
)
from quadsense.result.result import Result
from quadsense.run.checkpoint import Journal, to_journal
from quadsense.run.checkpoint.fingerprint import marks_of
from quadsense.stages.answer import to_result
from quadsense.stages.runs import Request, preferred_among, run_plan
from quadsense.system.interrupts import Interrupted
from quadsense.system.machine import Rates
from quadsense.system.memory import limited_memory, to_bytes
from quadsense.system.threads import one_blas_thread
from quadsense.system.watch import Watch
from quadsense.typing import to_list
from quadsense.vocabulary import Status


class Decided(NamedTuple):
    """What follows from the data and the arguments before anything is computed.

    Attributes
    ----------
    user, measured : Measurements
        With the constraints; and with the columns of U scaled, where they are.
    columns : ndarray of int or None
        The exponents of that scaling.
    wish : Wish
    preferences : tuple of Preference
        To be tried in turn.
    shape : Shape
    plan : Plan
    options : dict
        Those of methods.
    low : Rank
    positive : bool
        Whether A is sought among positive semidefinite matrices.
    allowed : int
        Measurements that may be set aside.
    """

    user: Measurements
    measured: Measurements
    columns: Columns | None
    wish: Wish
    preferences: tuple[Preference, ...]
    shape: Shape
    plan: Plan
    options: dict[str, Any]
    low: Rank
    positive: bool
    allowed: int


def decided_on(
    measured: Measurements,
    arguments: dict[str, Any],
    options: MethodOptions,
    watch: Watch,
    journal: Journal | None = None,
    given: Any = None,
    rates: Rates | None = None,
) -> Decided:
    """Check the arguments and decide which A is sought, and by which plan.

    Parameters
    ----------
    measured : Measurements
        With their tolerance, if they have one.
    arguments : dict
        Those of `quadsense.solve` by name, not yet checked.
    options : dict
        Those of methods among them.
    watch : Watch
    journal : Journal, optional
    given : object, optional
        The U from which `measured` was made, where it was made for this solve.
    rates : Rates, optional
        Of this machine, for the predicted seconds; by default what is known of it.
    """
    method, schedule, rank = arguments["method"], arguments["schedule"], arguments["rank"]
    target = measured.tolerance is not None
    if not target:
        measured = measured.without_tolerance()
    measured = measured.constrained(arguments["trace"], arguments["constraints"])
    wishes = given_options(method, schedule, options, measured.m)
    check_priors(method, measured, arguments["psd"], rank, target)
    allowed = to_allowed(arguments["allow_violations"], measured.measured, target)
    named = method != "auto" and METHODS.traits(method).cones.isdisjoint({"symmetric"})
    low = to_rank(rank, measured.n)
    positive = bool(arguments["psd"]) or low.positive or (named and low.order is None)
    wish = to_wish(
        arguments["prefer"], arguments["slack"], arguments["prior"], arguments["ridge"], measured,
        target=target, positive=positive, low_rank=rank is not None,
    )  # fmt: skip
    user, columns = measured, frame_for(wish, measured, method, schedule)
    if columns is not None:
        measured, wish = framed(user, columns), wish_in(wish, columns)
    shape = shape_of(
        measured, psd=positive, rank=low.order, target=target, given=given,
        start=arguments["start"], tf32=bool(wishes.get("allow_tf32")),
    )  # fmt: skip
    if journal is not None:
        with watch.part("checkpoint"):
            journal.find(marks_of(user, arguments), environment())
    preferences, reasons = decide(wish, measured, shape, method, watch)
    shape = changed(shape, prefer=preferences[0].name, damped=preferences[0].ridge > 0.0)
    check_preference(method, shape, wish)
    plan = make_plan(shape, method, rates)
    scaling = () if columns is None else (described(columns),)
    plan = changed(plan, reasons=(*reasons, *scaling, *plan.reasons))
    check_options(plan.methods, wishes, method)
    return Decided(
        user, measured, columns, wish, preferences, shape, plan, wishes, low, positive, allowed
    )


def planned(data: Measurements, rates: Rates, memory_limit: Any, **given: Any) -> Plan:
    """Return the plan that `quadsense.solve` follows for these measurements and arguments.

    Parameters
    ----------
    data : Measurements
    rates : Rates
        Of this machine.
    memory_limit : int, str or None
    **given
        Arguments of `solve`; those that are left out have their default.
    """
    arguments = {**dict.fromkeys(("psd", "rank", "trace", "prior", "slack", "start")), **DEFAULTS}
    options: Any = {name: value for name, value in given.items() if name in option_names()}
    with np.errstate(under="ignore"), one_blas_thread():
        with limited_memory(to_bytes(memory_limit)):
            data = data.settled()
        return decided_on(data, {**arguments, **given}, options, Watch(), rates=rates).plan


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
    method = current_method(method)
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
        limits = to_limits(max_iter, time_limit, callback, progress, watch, journal)
        raw = None if isinstance(data, Measurements) else data
        decided = decided_on(measured, arguments, options, watch, journal, raw)
        user, measured, columns = decided.user, decided.measured, decided.columns
        wish, shape, plan, preferences = (
            decided.wish, decided.shape, decided.plan, decided.preferences
        )  # fmt: skip
        wishes, low, positive = decided.options, decided.low, decided.positive
        target, allowed = shape.target, decided.allowed
        if columns is not None:
            limits = changed(limits, callback=shown_outside(callback, columns))
        refused = refuse_what_cannot_fit(shape, plan)
        seed = to_seed(rng, plan.methods)
        if journal is not None:
            with watch.part("checkpoint"):
                seed = journal.open(seed)
        scaled = measured.scaled()
        first = to_start(start, schedule, measured, scaled, low.order is not None, columns)
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
            rank=low.order or None,
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
            from quadsense.stages.contradictions import refuted

            answer = refuted(request, answer)
        if allowed and unmet and not answer.hard:  # what contradicts by itself stays, whatever goes
            from quadsense.stages.violations import (
                set_violations_aside,  # rarely needed, slow to import
            )

            answer = set_violations_aside(request, answer)
            if answer.set_aside.size and answer.outcome.status is Status.MET:
                answer = preferred_among(request, answer)
        result = to_result(request, answer, request_of(user, arguments), user)
    if interrupts.pressed:
        raise Interrupted(result)
    return result
