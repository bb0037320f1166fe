"""The road of the data, top to bottom: request, plan, runs, answer."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from quadsense.answer import to_result
from quadsense.arrays import to_numpy
from quadsense.interrupts import Interrupted, Interrupts
from quadsense.methods import Problem
from quadsense.methods.base import MethodOptions
from quadsense.plan import make_plan, refuse_what_cannot_fit, shape_of
from quadsense.request import (
    check_options,
    check_priors,
    to_allowed,
    to_generator,
    to_limits,
    to_measurements,
    to_options,
    to_start,
)
from quadsense.result import Result, Status
from quadsense.runs import Request, best_positive, run_plan


def power_of_two(size: float) -> float:
    """The least power of two that is not below a size; 1 for 0."""
    return math.ldexp(1.0, math.frexp(size)[1]) if size > 0.0 else 1.0


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
) -> Result:
    """Solve; the parameters are those of `quadsense.solve`, not yet checked."""
    begin = time.perf_counter()
    with np.errstate(under="ignore"), Interrupts() as interrupts:  # what underflows is not missed
        measured = to_measurements(data, b, delta, rtol, bounds, conjugate)
        target = measured.tolerance is not None
        if not target:
            measured = measured.without_tolerance()
        settings = to_options(method, schedule, options, measured.m)
        limits = to_limits(max_iter, time_limit, callback, progress, interrupts)
        check_priors(method, measured, psd, rank, target)
        allowed = to_allowed(allow_violations, measured.m, target)
        positive = bool(psd) or rank is not None or method == "dual"
        # 0: it may grow
        order = None if rank is None else 0 if isinstance(rank, str) else int(rank)
        shape = shape_of(measured, psd=positive, rank=order, target=target)
        plan = make_plan(shape, method)
        check_options(plan.methods, options, schedule)
        refuse_what_cannot_fit(shape, plan)
        generator = to_generator(rng, plan.methods)
        scaled = measured.scaled()
        first = to_start(start, schedule, measured, scaled)
        # Errors are counted in units of the readings, so that their size does not matter.
        unit = 1.0 if target else power_of_two(float(np.max(np.abs(to_numpy(measured.b)))))
        problem = Problem(
            rows=measured.unit_rows,
            b=scaled.b,
            delta=unit * scaled.delta,
            tau=first.tau,
            base=first.base,
            c_start=first.c,
            factor_start=first.factor,
            sides=measured.sides,
            given_ends=measured.unit_ends,
            target=target,
            error_unit=unit,
            rank=order or None,
            options=settings,
            seed=generator,
        )
        request = Request(measured, plan, problem, limits, positive, allowed)
        preparing = time.perf_counter() - begin
        answer = run_plan(request) if target or not positive else best_positive(request)
        undone = (Status.INFEASIBLE, Status.UNDECIDED, Status.STALLED)
        # A row of zeros is no row to a method, but a contradiction all the same.
        unmet = answer.outcome.status in undone or measured.contradictions().size
        if allowed and unmet:
            from quadsense.violations import set_violations_aside  # seldom needed, dear to import

            answer = set_violations_aside(request, answer, begin)
        result = to_result(request, answer, preparing)
    if interrupts.pressed:
        raise Interrupted(result)
    return result
