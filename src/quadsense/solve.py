"""`solve`: the road of the data, top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, Unpack

import numpy as np

from quadsense.answer import to_result
from quadsense.core.matrix import SensedMatrix
from quadsense.interrupts import Interrupted, Interrupts
from quadsense.loop import Intermediate
from quadsense.measurements import Measurements
from quadsense.methods import Problem
from quadsense.methods.base import MethodOptions
from quadsense.plan import make_plan, refuse_what_cannot_fit, shape_of
from quadsense.request import (
    check_options,
    check_priors,
    refuse_unknown,
    to_allowed,
    to_generator,
    to_limits,
    to_measurements,
    to_options,
    to_start,
)
from quadsense.result import Result, Status
from quadsense.runs import Request, best_positive, run_plan
from quadsense.typing import (
    MatrixLike,
    MethodName,
    Real,
    RealOrVector,
    ScheduleName,
    Seed,
    StartName,
    VectorLike,
    Whole,
)


def solve(
    data: MatrixLike | Measurements,
    b: VectorLike | None = None,
    *,
    delta: RealOrVector | None = None,
    rtol: Real = 0.0,
    bounds: tuple[RealOrVector, RealOrVector] | None = None,
    method: MethodName = "auto",
    psd: bool | None = None,
    rank: Whole | Literal["auto"] | None = None,
    start: StartName | MatrixLike | SensedMatrix | Result | None = None,
    schedule: ScheduleName = "continuation",
    allow_violations: Whole = 0,
    max_iter: Whole | None = None,
    time_limit: Real | None = None,
    rng: Seed | None = None,
    callback: Callable[[Intermediate], Any] | None = None,
    progress: bool = False,
    conjugate: bool = False,
    **options: Unpack[MethodOptions],
) -> Result:
    """Find A with ``|u_i* A u_i - b_i| <= delta_i`` for every i, of any rank, with a certificate.

    Parameters
    ----------
    data : array or sparse array of shape (m, n), or Measurements
        The probes, row i is ``u_i`` (then `b` or `bounds` is needed), or measurements.
    b : array_like of shape (m,), optional
        Readings.
    delta : float or array_like of shape (m,), optional
        Tolerance, one for all or one a measurement. For Gaussian noise of known sigma see
        `delta_from_sigma`. Without one, the smallest worst error is sought, and both bounds on it.
    rtol : float, default=0.0
        Relative tolerance beside it: ``delta_i + rtol |b_i|``.
    bounds : (lo, hi), optional
        Intervals in place of `b` and `delta`; an end may be infinite.
    method : {"auto", "closed_form", "gd", "sgd", "cg", "minimax", "dual", "factored"}
        "auto" (the default) is the closed form for orthonormal rows; else least squares by "cg",
        and where that does not meet delta "minimax", which ends in MET or INFEASIBLE; "dual" for
        `psd`, "factored" for `rank`.
    psd : bool, optional
        Seek A among the positive semidefinite matrices only.
    rank : int or "auto", optional
        Seek A among the positive semidefinite matrices of at most this rank, or let the rank grow
        until delta is met.
    start : {"mean", "tau", "zero"}, matrix or Result, optional
        The A_1 from which the nearest fit is sought: the multiple of I that fits best, the
        largest reading times I (the paper's, and the default of its schedule), 0 (readings
        taken for rows of unit norm), or any matrix; an earlier result makes a warm start.
    schedule : {"continuation", "paper"}, default="continuation"
        "paper" runs with the constants of the lemmas, at most as many steps as they ask for.
    allow_violations : int, default=0
        Set at most so many measurements aside if the others can be met without them.
    max_iter : int, optional
        Most iterations; by default only the lemma's number with the paper's schedule, and none
        otherwise: a run that no longer moves ends as STALLED.
    time_limit : float, optional
        Most seconds of iterating.
    rng : int or numpy.random.Generator, optional
        Seed of `sgd`'s batches; the same seed gives the same bits.
    callback : callable, optional
        ``callback(intermediate_result)`` after every stride: `n_iter`, `max_residual`,
        `max_ratio`, `matrix`. StopIteration ends the run.
    progress : bool, default=False
        Show a bar with the worst residual against delta.
    conjugate : bool, default=False
        Rows are given as ``u_i*`` (as in ``b = |U x|^2``).
    **options
        `gd` and `sgd`: `lam`, `step` or `c` = step x lam override the schedule (for unit rows);
        `sgd`: `batch_size`, `norm` ("exact" or "bound"), `failure`; `minimax`: `gap`, the
        relative distance of the two bounds at which to stop; `factored`: `max_restarts`.

    Returns
    -------
    Result
        Non-convergence is a status, never an exception, and A is there in every status.

    Raises
    ------
    ValueError
        For bad input, naming the argument, the row and the value.
    TypeError
        For an unknown keyword, with the nearest one that exists.
    KeyboardInterrupt
        After Ctrl-C or SIGTERM, once the stride at hand is over; its ``.result`` is the best so
        far. A second Ctrl-C acts at once.
    MemoryError
        Before anything is allocated, if the method cannot fit in memory.

    Notes
    -----
    Of all matrices that fit, `gd`, `sgd`, `cg` and the closed form tend, as delta shrinks, to the
    one nearest to A_1 in Frobenius norm: they stay in ``A_1 + range(F*)``.

    References
    ----------
    [QSZ24] Qin, Song, Zhang, "A General Algorithm for Solving Rank-one Matrix Sensing",
    AISTATS 2024.

    Examples
    --------
    >>> import quadsense
    >>> p = quadsense.datasets.orthonormal(n=50, m=30, seed=0)
    >>> result = quadsense.solve(p.U, p.b, delta=0.01)
    >>> result.status, bool(result.certificate.verify(p.U, p.b))
    (<Status.MET: 'met'>, True)
    """
    begin = time.perf_counter()
    with np.errstate(under="ignore"), Interrupts() as interrupts:  # what underflows is not missed
        refuse_unknown(solve, options)
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
        problem = Problem(
            rows=measured.unit_rows,
            b=scaled.b,
            delta=scaled.delta,
            tau=first.tau,
            base=first.base,
            c_start=first.c,
            factor_start=first.factor,
            sides=measured.sides,
            given_ends=measured.unit_ends,
            target=target,
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
