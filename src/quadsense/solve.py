"""`solve`: the road of the data, top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from quadsense.answer import to_result
from quadsense.arrays import namespace, to_numpy
from quadsense.core.certificate import Enclosure, enclosure, measured_enclosure
from quadsense.core.matrix import MeasuredForm, SensedMatrix
from quadsense.loop import run
from quadsense.methods import METHODS, Problem
from quadsense.plan import blas_threads, make_plan
from quadsense.request import (
    STARTS,
    check_options,
    start_value,
    to_generator,
    to_limits,
    to_measurements,
    to_options,
)
from quadsense.result import Result


def solve(
    data: Any,
    b: Any = None,
    *,
    delta: Any = None,
    rtol: float = 0.0,
    bounds: tuple[Any, Any] | None = None,
    method: str = "auto",
    start: str | None = None,
    schedule: str = "continuation",
    max_iter: int | None = None,
    time_limit: float | None = None,
    rng: Any = None,
    callback: Callable[[Any], Any] | None = None,
    progress: bool = False,
    conjugate: bool = False,
    **options: Any,
) -> Result:
    """Find A with ``|u_i* A u_i - b_i| <= delta_i`` for every i, of any rank, with a certificate.

    Parameters
    ----------
    data : array or sparse array of shape (m, n), or Measurements
        The probes, row i is ``u_i`` (then `b` or `bounds` is needed), or measurements.
    b : array_like of shape (m,), optional
        Readings.
    delta : float or array_like of shape (m,)
        Tolerance, one for all or one a measurement. For Gaussian noise of known sigma see
        `delta_from_sigma`.
    rtol : float, default=0.0
        Relative tolerance beside it: ``delta_i + rtol |b_i|``.
    bounds : (lo, hi), optional
        Finite intervals in place of `b` and `delta`.
    method : {"auto", "closed_form", "gd", "sgd"}, default="auto"
        "auto" is the closed form for orthonormal rows, else "gd".
    start : {"mean", "tau", "zero"}, optional
        The A_1 from which the nearest fit is sought: the multiple of I that fits best, the
        largest reading times I (the paper's, and the default of its schedule), or 0; readings
        taken for rows of unit norm.
    schedule : {"continuation", "paper"}, default="continuation"
        "paper" runs with the constants of the lemmas, at most as many steps as they ask for.
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
        `sgd`: `batch_size`, `norm` ("exact" or "bound"), `failure`.

    Returns
    -------
    Result
        Non-convergence is a status, never an exception, and A is there in every status.

    Raises
    ------
    ValueError
        For bad input, naming the argument, the row and the value.

    Notes
    -----
    Of all matrices that fit, `gd`, `sgd` and the closed form tend, as delta shrinks, to the one
    nearest to A_1 in Frobenius norm: they stay in ``A_1 + range(F*)``.

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
    measured = to_measurements(data, b, delta, rtol, bounds, conjugate)
    settings = to_options(method, schedule, options, measured.m)
    limits = to_limits(max_iter, time_limit, callback, progress)
    generator = to_generator(rng)
    if start is None:
        start = "tau" if schedule == "paper" else "mean"
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")

    plan = make_plan(measured, method)
    solver = METHODS[plan.method]()
    check_options(solver, options, schedule)
    scaled = measured.scaled()
    problem = Problem(
        rows=measured.unit_rows,
        gram=plan.gram,
        b=scaled.b,
        delta=scaled.delta,
        tau=start_value(start, scaled.b, measured.unit_rows.nonzero),
        options=settings,
        seed=generator,
    )
    norms2 = to_numpy(measured.unit_rows.norms) ** 2
    preparing = time.perf_counter() - begin
    with blas_threads(plan.threads):
        outcome = run(solver, problem, lambda matrix: _enclosure(matrix, problem), norms2, limits)
    return to_result(measured, plan, solver, problem, outcome, norms2, preparing)


def _enclosure(matrix: SensedMatrix, problem: Problem) -> Enclosure:
    """Residuals from the data; an explicit K, itself computed from them, is used again."""
    gram, form = problem.gram, matrix.form
    shared = gram is not None and gram.kind in ("explicit", "sparse")
    if not shared or not isinstance(form, MeasuredForm):
        return enclosure(matrix, problem.rows, problem.b)
    assert gram is not None
    mass = namespace(form.c).abs(form.c)
    return measured_enclosure(form, problem.b, gram.apply(form.c), gram.apply(mass), problem.m)
