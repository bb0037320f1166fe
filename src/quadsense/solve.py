"""`solve` and `solve_spectral`: the road of the data, top to bottom."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm as gaussian

from quadsense.arrays import Array, namespace, to_numpy
from quadsense.core.certificate import UNIT, Enclosure, enclosure, is_met, measured_enclosure
from quadsense.core.matrix import SensedMatrix
from quadsense.loop import Limits, Outcome, run
from quadsense.measurements import Gram, Measurements
from quadsense.measurements.dense import DenseRows
from quadsense.measurements.gram import IdentityGram
from quadsense.measurements.validate import is_number, is_whole
from quadsense.methods import METHODS, Method, Options, Problem
from quadsense.methods.base import option_names
from quadsense.methods.spectral import (
    Spectral,
    SpectralOracle,
    SpectralProblem,
    _checked_square,
    symmetrised,
)
from quadsense.plan import Plan, blas_threads, make_plan
from quadsense.result import Certificate, Result, Status

STARTS = ("mean", "tau", "zero")
SCHEDULES = ("continuation", "paper")
DEFAULT_MAX_ITER = 10_000_000


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
        Most iterations; 10 million by default.
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
    measured = _measurements(data, b, delta, rtol, bounds, conjugate)
    settings = _options(method, schedule, options, measured.m)
    limits = _limits(max_iter, time_limit, callback, progress)
    generator = _generator(rng)
    if start is None:
        start = "tau" if schedule == "paper" else "mean"
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")

    plan = make_plan(measured, method)
    solver = METHODS[plan.method]()
    _check_options(solver, options, schedule)
    scaled = measured.scaled()
    problem = Problem(
        rows=measured.unit_rows,
        gram=plan.gram,
        b=scaled.b,
        delta=scaled.delta,
        tau=_start_value(start, scaled.b, measured.unit_rows.nonzero),
        options=settings,
        seed=generator,
    )
    norms2 = to_numpy(measured.unit_rows.norms) ** 2
    preparing = time.perf_counter() - begin
    with blas_threads(plan.threads):
        outcome = run(solver, problem, lambda matrix: _enclosure(matrix, problem), norms2, limits)
    return _result(measured, plan, solver, problem, outcome, norms2, preparing)


def _enclosure(matrix: SensedMatrix, problem: Problem) -> Enclosure:
    """Residuals from the data; an explicit K, itself computed from them, is used again."""
    gram: Gram = problem.gram
    form: Any = matrix.form
    if gram.kind not in ("explicit", "sparse"):
        return enclosure(matrix, problem.rows, problem.b)
    mass = namespace(form.c).abs(form.c)
    return measured_enclosure(form, problem.b, gram.apply(form.c), gram.apply(mass), problem.m)


def _result(
    data: Measurements,
    plan: Plan,
    solver: Method,
    problem: Problem,
    outcome: Outcome,
    norms2: Any,
    preparing: float,
) -> Result:
    """Put together what the user sees."""
    z, error = (to_numpy(part) for part in outcome.found)
    unit_delta = to_numpy(problem.delta)
    ratios = np.abs(z) / unit_delta
    residuals = outcome.found.z * data.unit_rows.norms * data.unit_rows.norms
    dead = to_numpy(data.unit_rows.nonzero) == 0
    suspects = data.contradictions()
    status, dual = outcome.status, None
    if dead.any():  # u = 0 reads 0 whatever A is
        residuals = namespace(residuals).where(data.unit_rows.nonzero > 0, residuals, -data.b)
        ratios = np.where(dead, np.abs(to_numpy(data.b)) / to_numpy(data.tolerance), ratios)
    if suspects.size:
        status = Status.INFEASIBLE
        dual = np.zeros(data.m)
        dual[suspects[0]] = 1.0
    matrix = solver.matrix(problem, outcome.state)
    kind = {Status.MET: "met", Status.INFEASIBLE: "infeasible"}.get(status, "none")
    certificate = Certificate(
        kind=kind,
        upper_bound=float((ratios + error / unit_delta).max()),
        lower_bound=float(ratios[suspects].max()) if suspects.size else 0.0,
        rounding=float((error / unit_delta).max()),
        matrix=matrix,
        dual=dual,
        tolerance=to_numpy(data.tolerance),
    )
    unique, unseen = _identifiability(data)
    max_residual = float(np.abs(to_numpy(residuals)).max())
    return Result(
        status=status,
        message=_message(data, status, outcome.reason, ratios, residuals, unique, unseen, suspects),
        matrix=matrix,
        residuals=residuals,
        max_residual=max_residual,
        max_ratio=float(ratios.max()),
        violations=np.flatnonzero(ratios > 1.0),
        n_iter=outcome.state.iteration,
        history=outcome.history,
        timings={
            "prepare": preparing,
            "iterate": outcome.seconds_iterating,
            "certify": outcome.seconds_certifying,
        },
        certificate=certificate,
        plan={**plan.describe(), "method": solver.name, "lemma": outcome.state.lemma},
        unique=unique,
        unseen=unseen,
        suspects=suspects,
    )


def _identifiability(data: Measurements) -> tuple[bool | None, int | None]:
    """Whether the measurements determine A, and how many dimensions they do not see."""
    unknowns, rank = data.unit_rows.unknowns, data.rank
    if rank is not None:
        return rank == unknowns, unknowns - rank
    if data.m < unknowns:
        return False, unknowns - data.m  # at least
    return None, None


def _message(
    data: Measurements,
    status: Status,
    reason: str,
    ratios: Any,
    residuals: Array,
    unique: bool | None,
    unseen: int | None,
    suspects: Any,
) -> str:
    """One or two sentences: the verdict, and what it does not say."""
    worst = int(np.argmax(ratios))
    size = abs(float(residuals[worst]))
    tolerance = to_numpy(data.tolerance)
    delta = float(tolerance[worst])
    if status is Status.INFEASIBLE:
        i = int(suspects[0])
        return (
            f"infeasible: row {i} of U is zero, so every matrix reads 0 there, but b[{i}] = "
            f"{float(data.b[i]):.6g} with tolerance {float(tolerance[i]):.6g}"
        )
    numbers = f"worst residual {size:.4g} against delta {delta:.4g}"
    if status is Status.MET:
        head = f"met: {numbers}, all {data.m} measurements within tolerance"
    else:
        over = int(np.count_nonzero(ratios > 1.0))
        head = f"not met: {numbers}, {over} of {data.m} over; {reason}"
    unknowns = data.unit_rows.unknowns
    if unique:
        return f"{head}; the measurements determine A"
    if unseen is None:
        return f"{head}; whether the measurements determine A was too costly to find out"
    least = "" if data.rank is not None else "at least "
    fit = "A fits, but is not the only one" if status is Status.MET else "A is not determined"
    return f"{head}; {least}{unseen} of {unknowns} directions of A are unseen: {fit}"


# --- what the user gave, checked ---------------------------------------------------------------


def _measurements(
    data: Any, b: Any, delta: Any, rtol: float, bounds: Any, conjugate: bool
) -> Measurements:
    if isinstance(data, Measurements):
        if b is not None or bounds is not None or conjugate:
            raise ValueError(
                "b, bounds and conjugate belong to Measurements: give them when making it"
            )
        measured = data
        if delta is not None or rtol != 0.0:
            measured = data.with_tolerance(delta, rtol)
    else:
        measured = Measurements(data, b, delta=delta, rtol=rtol, bounds=bounds, conjugate=conjugate)
    if measured.tolerance is None:
        spread = float(np.std(to_numpy(measured.b)))
        raise ValueError(
            "delta is missing: give the largest error that you accept in a reading, for example "
            f"1% of the readings' spread, delta={0.01 * spread:.2g}; for Gaussian noise of known "
            f"sigma use delta=quadsense.delta_from_sigma(sigma, m={measured.m})"
        )
    return measured


def _options(method: str, schedule: str, options: dict[str, Any], m: int) -> Options:
    """`options` as `Options`, each value checked."""
    if method != "auto" and method not in METHODS:
        raise ValueError(
            f"unknown method {method!r}: the methods are auto, {', '.join(METHODS)}"
            + _nearest(method, [*METHODS, "auto"])
        )
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")
    known = [name for name in option_names() if name != "schedule"]
    for name in options:
        if name not in known:
            raise ValueError(
                f"unknown option {name!r}: the options are {', '.join(known)}"
                + _nearest(name, known)
            )
    for name in ("lam", "step", "c"):
        value = options.get(name)
        if value is not None and not (is_number(value) and math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, got {value!r}")
    if options.get("step") is not None and options.get("c") is not None:
        raise ValueError("give step or c = step x lam, not both")
    batch = options.get("batch_size")
    if batch is not None and not (is_whole(batch) and 1 <= batch <= m):
        raise ValueError(f"batch_size must be a whole number between 1 and m = {m}, got {batch!r}")
    if options.get("norm") not in (None, "exact", "bound"):
        raise ValueError(f"norm must be 'exact' or 'bound', got {options['norm']!r}")
    failure = options.get("failure", 0.1)
    if not (is_number(failure) and 0 < failure < 1):
        raise ValueError(f"failure must lie strictly between 0 and 1, got {failure!r}")
    return Options(schedule=schedule, **options)


def _check_options(solver: Method, options: dict[str, Any], schedule: str) -> None:
    """Refuse options that the chosen method would ignore."""
    asked = set(options) | ({"schedule"} if schedule != "continuation" else set())
    for name in sorted(asked - solver.options):
        takers = [key for key, kind in METHODS.items() if name in kind.options]
        raise ValueError(
            f"method {solver.name!r} takes no {name!r}; {' and '.join(takers)} do: "
            f"give method={takers[-1]!r}"
        )


def _limits(max_iter: Any, time_limit: Any, callback: Any, progress: bool) -> Limits:
    if max_iter is not None and not (is_whole(max_iter) and max_iter >= 0):
        raise ValueError(f"max_iter must be a whole number, not negative, got {max_iter!r}")
    if time_limit is not None and not (is_number(time_limit) and time_limit >= 0):
        raise ValueError(f"time_limit must be a number of seconds, got {time_limit!r}")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be callable, got {callback!r}")
    most = DEFAULT_MAX_ITER if max_iter is None else int(max_iter)
    return Limits(most, time_limit, callback, progress)


def _generator(rng: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"rng must be a seed or a numpy.random.Generator, got {rng!r} ({error})"
        ) from None


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _start_value(start: str, b: Array, nonzero: Array) -> float:
    """The tau of ``A_1 = tau I``, from the readings of the unit rows."""
    readings = to_numpy(b)[to_numpy(nonzero) > 0]
    if start == "zero" or not readings.size:
        return 0.0
    return float(readings.mean() if start == "mean" else readings.max())


# --- beside solve ------------------------------------------------------------------------------


def delta_from_sigma(sigma: float, m: int, confidence: float = 0.95) -> float:
    """Tolerance that covers all m Gaussian errors at once.

    Parameters
    ----------
    sigma : float
        Standard deviation of one reading's error.
    m : int
        Number of measurements.
    confidence : float, default=0.95
        Probability that no error exceeds the answer.

    Returns
    -------
    float
        delta with ``P(max|e_i| <= delta) = confidence`` for independent errors.

    Examples
    --------
    >>> import quadsense
    >>> round(quadsense.delta_from_sigma(1.0, m=1), 2)
    1.96
    """
    if not (is_number(sigma) and math.isfinite(sigma) and sigma > 0):
        raise ValueError(f"sigma must be a positive number, got {sigma!r}")
    if not (is_whole(m) and m >= 1):
        raise ValueError(f"m must be a whole number, at least 1, got {m!r}")
    if not (is_number(confidence) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    # 1 - confidence^(1/m), without cancellation
    tail = -math.expm1(math.log(confidence) / m)
    return float(sigma * gaussian.isf(tail / 2.0))


def solve_spectral(
    oracle: SpectralOracle,
    A1: Any,
    *,
    accuracy: float = 0.1,
    schedule: str = "continuation",
    max_iter: int | None = None,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    progress: bool = False,
    **options: Any,
) -> Result:
    """Find A with ``(1 - accuracy) A* <= A <= (1 + accuracy) A*`` [QSZ24, Alg. 3].

    Parameters
    ----------
    oracle : SpectralOracle
        Both directions of ``A*^{-1/2} . A*^{-1/2}``.
    A1 : array of shape (n, n)
        The start, symmetric or Hermitian.
    accuracy : float, default=0.1
        The delta of the spectral guarantee, below 1.
    schedule, max_iter, time_limit, callback, progress, **options
        As in `solve` (`lam`, `step`, `c`).

    Returns
    -------
    Result
        `max_residual` is ``||I - A*^{-1/2} A A*^{-1/2}||``; `residuals` are its eigenvalues.

    Examples
    --------
    >>> import numpy as np, quadsense
    >>> A_star = np.diag([1.0, 2.0, 4.0])
    >>> result = quadsense.solve_spectral(quadsense.SpectralOracle(A_star), np.eye(3))
    >>> result.status, bool(result.max_residual <= 0.1)
    (<Status.MET: 'met'>, True)
    """
    begin = time.perf_counter()
    if not isinstance(oracle, SpectralOracle):
        raise ValueError(f"oracle must be a quadsense.SpectralOracle, got {type(oracle).__name__}")
    if not (is_number(accuracy) and 0 < accuracy < 1):
        raise ValueError(f"accuracy must lie strictly between 0 and 1, got {accuracy!r}")
    A_1 = _checked_square("A1", A1)
    xp = namespace(A_1)
    n = int(A_1.shape[0])
    settings = _options("gd", schedule, options, n)
    _check_options(Spectral(), options, schedule)
    limits = _limits(max_iter, time_limit, callback, progress)
    values, vectors = xp.linalg.eigh(symmetrised(oracle.whiten(A_1)))
    problem = SpectralProblem(
        rows=DenseRows(xp.eye(n)),
        gram=IdentityGram(n),
        b=1.0 - values,
        delta=0.0 * values + accuracy,
        tau=0.0,
        options=settings,
        A_1=A_1,
        vectors=vectors,
        color=oracle.color,
    )

    def certify(matrix: SensedMatrix) -> Enclosure:
        whitened = symmetrised(oracle.whiten(matrix.to_dense()))
        found = xp.linalg.eigvalsh(whitened) - 1.0
        # A backward stable eigensolver errs by a modest multiple of n u ||.||; the oracle's own
        # errors are the oracle's to know.
        size = 1.0 + float(xp.max(xp.abs(found)))
        return Enclosure(found, 0.0 * found + 16.0 * n * UNIT * size)

    preparing = time.perf_counter() - begin
    outcome = run(Spectral(), problem, certify, np.ones(n), limits)
    z, error = (to_numpy(part) for part in outcome.found)
    worst, rounding = float(np.abs(z).max()), float(error.max())
    met = outcome.status is Status.MET and is_met(outcome.found, problem.delta)
    matrix = Spectral().matrix(problem, outcome.state)
    head = "met" if met else "not met"
    message = f"{head}: ||I - A*^(-1/2) A A*^(-1/2)|| = {worst:.4g} against accuracy {accuracy:.4g}"
    return Result(
        status=outcome.status,
        message=message if met else f"{message}; {outcome.reason}",
        matrix=matrix,
        residuals=outcome.found.z,
        max_residual=worst,
        max_ratio=worst / accuracy,
        violations=np.flatnonzero(np.abs(z) > accuracy),
        n_iter=outcome.state.iteration,
        history=outcome.history,
        timings={
            "prepare": preparing,
            "iterate": outcome.seconds_iterating,
            "certify": outcome.seconds_certifying,
        },
        certificate=Certificate(
            kind="spectral" if met else "none",
            upper_bound=(worst + rounding) / accuracy,
            lower_bound=0.0,
            rounding=rounding / accuracy,
            matrix=matrix,
            tolerance=to_numpy(problem.delta),
        ),
        plan={
            "method": "spectral",
            "gram": "identity",
            "threads": None,
            "reasons": ["one eigendecomposition serves every iteration"],
            "lemma": outcome.state.lemma and "Lemma C.1 and C.2",
        },
        unique=True,
        unseen=0,
    )
