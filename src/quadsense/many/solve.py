"""`solve_many`: least squares for many readings of one set of probes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import as_numbers, is_array, is_dask, to_numpy
from quadsense.many.batch import Answers, Batch
from quadsense.many.fallback import solve_alone, take
from quadsense.many.normal import Features
from quadsense.many.readings import Readings
from quadsense.many.results import STATUSES, ManyResults
from quadsense.measurements.probes import Probes
from quadsense.measurements.validate import checked_rows, widened
from quadsense.query.request import refuse_unknown
from quadsense.system.threads import by_rows, one_blas_thread, shared_by
from quadsense.system.watch import Interrupted, Stop, Watch, look, watched, with_watch
from quadsense.typing import check_flag, is_number
from quadsense.vocabulary import Status

if TYPE_CHECKING:
    from quadsense.typing import MatrixLike, MissingName, Real

MAX_ORDER = 16
"""Order of A up to which many problems are solved at once; beyond it a loop over `solve` is as
fast."""

SMALLEST_NORM, LARGEST_NORM = 1e-25, 1e25
"""Norms of rows of which fourth powers, times squares of readings, stay within range."""

MAX_CONDITION = 1e14
"""Ratio of the norms of rows beyond which their normal matrix has no digits left."""

CODE = {status: number for number, status in enumerate(STATUSES)}

FLOPS_PER_PROBLEM = 2e4
"""Operations of a problem at least, with what surrounds them: what threads are shared out by."""

ONLY_HERE = {
    "rank": "seeks matrices of low rank",
    "prefer": "has other preferences",
    "prior": "takes a prior",
    "ridge": "adds a pull",
    "slack": "lets intervals be missed",
    "constraints": "takes linear constraints",
    "mix": "takes sums over rows",
    "allow_violations": "sets readings aside",
    "method": "has other methods",
}
"""Parameters of `solve` that many problems at once do not have, and what it does with them."""


def solve_many(
    U: MatrixLike,
    B: Any,
    *,
    delta: Any = None,
    rtol: Real = 0.0,
    bounds: Any = None,
    weights: Any = None,
    psd: bool = False,
    trace: Real | tuple[Real, Real] | None = None,
    covariates: Any = None,
    conjugate: bool = False,
    missing: MissingName = "raise",
    fallback: bool = True,
    gap: Real = 1e-6,
    time_limit: Real | None = None,
    progress: bool = False,
    **options: Any,
) -> ManyResults:
    """Find the least-squares A of each of many sets of readings of the same probes, certified.

    Every answer is that of ``solve(U, b, prefer="least_squares", ridge=0)`` with the same claims:
    hundreds of thousands per second for 3 by 3 matrices.

    Parameters
    ----------
    U : array of shape (m, n)
        The probes, dense, n up to 16.
    B : array of shape (k, m)
        One problem per row: an array, a memory map, an HDF5 or Zarr dataset, or a torch tensor. It
        is read in chunks, to float64 in main memory.
    delta : float or array_like, optional
        Tolerance: a number, or of shape (m,), (k, 1) or (k, m). Without one the answers are
        optimal instead of met.
    rtol : float, default=0.0
        Relative tolerance, added to `delta`: ``delta + rtol |B|``.
    bounds : (lo, hi), optional
        Intervals in place of `delta`, each of one of these shapes; an end may be infinite. Least
        squares is about B.
    weights : float or array_like, optional
        How much each reading counts, of one of these shapes. By default 1/half-width^2, 1 without
        a tolerance.
    psd : bool, default=False
        Seek A among the positive semidefinite matrices.
    trace : float or (float, float), optional
        What the trace of A must be, or between.
    covariates : array_like of shape (m, p), optional
        Columns with free coefficients: readings are ``u_i* A u_i + sum_j covariates_ij coef_j``.
    conjugate : bool, default=False
        Rows are given as ``u_i*``.
    missing : {"raise", "drop"}, default="raise"
        "drop" leaves out readings that are NaN, each problem its own. One without any reading is
        UNDECIDED, its A is NaN.
    fallback : bool, default=True
        Give to `solve` what is not decided at once: where an interval binds, where the readings
        do not determine A, and equalities. Otherwise these are UNDECIDED.
    gap : float, default=1e-6
        Relative distance of the two bounds on a sum of squares at which it counts as certified.
    time_limit : float, optional
        Most seconds: what is done by then is in the results, the rest has the status TIME_LIMIT.
    progress : bool, default=False
        Show a bar.

    Returns
    -------
    ManyResults
        Of NumPy arrays; where B is a tensor, of tensors on its device.

    Raises
    ------
    ValueError
        For bad input, naming the argument, the row and the value.
    KeyboardInterrupt
        After Ctrl-C; its ``.result`` has what was done, the rest has the status INTERRUPTED.

    Examples
    --------
    >>> import numpy as np, quadsense
    >>> rng = np.random.default_rng(0)
    >>> U = rng.standard_normal((30, 3))
    >>> truth = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.1]])
    >>> B = np.einsum("ia,ab,ib->i", U, truth, U) + 0.1 * rng.standard_normal((1000, 30))
    >>> results = quadsense.solve_many(U, B, delta=0.5, psd=True)
    >>> results.counts(), results.A.shape
    ({'met': 1000}, (1000, 3, 3))
    >>> bool(results.verify().all())
    True
    """
    watch = Watch()
    _refuse(options)
    _check_limit(time_limit)
    check_flag("fallback", fallback)
    check_flag("progress", progress)
    watch.time_limit = None if time_limit is None else float(time_limit)
    with np.errstate(under="ignore"), watch.interrupts as interrupts, one_blas_thread():
        asked = {
            "delta": delta, "rtol": rtol, "bounds": bounds, "weights": weights, "psd": psd,
            "trace": trace, "covariates": covariates, "conjugate": conjugate, "missing": missing,
            "gap": gap,
        }  # fmt: skip
        batch = make_batch(U, B, **asked)
        answers = Answers.empty(batch.readings.k, batch.features.size, batch.features.p)
        with watch.heeded():
            _run(batch, answers, fallback, _Bar(batch.readings.k, progress))
        undone = answers.status < 0
        ended = Status.INTERRUPTED if interrupts.pressed else Status.TIME_LIMIT
        answers.status[undone] = CODE[ended]
    results = ManyResults(
        answers, batch.features.n, batch.features.is_complex, batch.readings.target, asked,
        batch, watch.elapsed,
    )  # fmt: skip
    if interrupts.pressed:
        raise Interrupted(results)
    return results


def make_batch(
    U: Any, B: Any, *, psd: Any, trace: Any, covariates: Any, conjugate: Any, gap: Any,
    **readings: Any,
) -> Batch:  # fmt: skip
    """Check everything but the numbers in B, and return what is asked."""
    rows = _checked_probes(U, conjugate)
    psd = False if psd is None else psd
    check_flag("psd", psd)
    if not (is_number(gap) and 0 < gap < 1):
        raise ValueError(f"gap must lie strictly between 0 and 1, got {gap!r}")
    trace = _checked_trace(trace)
    m = len(rows)
    if covariates is not None:
        given = is_array(covariates)
        covariates = to_numpy(covariates) if given else as_numbers("covariates", covariates)
        covariates = covariates[:, None] if covariates.ndim == 1 else covariates
        if covariates.ndim != 2 or len(covariates) != m or covariates.dtype.kind not in "uif":
            raise ValueError(
                f"covariates has shape {covariates.shape}, but must hold real numbers of shape "
                f"({m}, p), one row per row of U"
            )
        covariates = np.asarray(covariates, np.float64)
        if not np.isfinite(covariates).all():
            row = int(np.argmin(np.isfinite(covariates).all(axis=1)))
            raise ValueError(f"covariates contains NaN or infinity, first in row {row}")
    fixed = trace if isinstance(trace, float) else None
    features = Features.of(rows, covariates, fixed)
    squares = np.ascontiguousarray((np.abs(rows) ** 2).sum(axis=1))
    return Batch(
        rows, bool(conjugate), features, Readings(B, m, squares, **readings), bool(psd), trace,
        float(gap),
    )  # fmt: skip


def _checked_probes(U: Any, conjugate: Any) -> npt.NDArray[Any]:
    """Return U as a NumPy array of probes, or raise a ValueError that names what to do."""
    check_flag("conjugate", conjugate)
    if sp.issparse(U) or isinstance(U, Probes) or is_dask(U):
        raise ValueError(
            f"solve_many takes U as a dense array, got {type(U).__name__}: call solve for each b"
        )
    rows = checked_rows(U, False)
    if rows.n > MAX_ORDER:
        raise ValueError(
            f"solve_many takes n up to {MAX_ORDER}, but U has n = {rows.n} columns: call solve for "
            "each b"
        )
    values = np.array(to_numpy(widened(U if is_array(U) else as_numbers("U", U))))
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values).all(axis=1)))
        raise ValueError(f"U contains NaN or infinity, first in row {row}")
    return values.conj() if conjugate else values


def _checked_trace(trace: Any) -> float | tuple[float, float] | None:
    if trace is None:
        return None
    ends = trace if isinstance(trace, tuple | list) else (trace, trace)
    if len(ends) != 2 or not all(is_number(end) for end in ends) or not ends[0] <= ends[1]:
        raise ValueError(f"trace must be a number or a pair (lo, hi) with lo <= hi, got {trace!r}")
    lo, hi = float(ends[0]), float(ends[1])
    if lo == hi and np.isfinite(lo):
        return lo
    if not (lo < np.inf and hi > -np.inf and lo < hi):
        raise ValueError(f"trace must be finite at one end, got {trace!r}")
    return lo, hi


def _refuse(options: dict[str, Any]) -> None:
    """Raise for what `solve` alone takes, and for what nothing takes."""
    for name, value in options.items():
        if name == "prefer" and value == "least_squares":
            continue
        if name == "ridge" and value == 0:
            continue
        if name in ONLY_HERE:
            raise ValueError(
                f"solve_many finds least squares only, and takes no {name}: solve {ONLY_HERE[name]}"
            )
    known = {"prefer", "ridge"}
    unknown = {name: value for name, value in options.items() if name not in known}
    refuse_unknown("solve_many", ARGUMENTS, unknown)


ARGUMENTS = (
    "U", "B", "delta", "rtol", "bounds", "weights", "psd", "trace", "covariates", "conjugate",
    "missing", "fallback", "gap", "time_limit", "progress",
)  # fmt: skip


def _check_limit(time_limit: Any) -> None:
    if not (time_limit is None or (is_number(time_limit) and time_limit >= 0)):
        raise ValueError(f"time_limit must be a number of seconds, got {time_limit!r}")


class _Bar:
    """A bar of problems that are done, where one is wanted; several threads move it."""

    def __init__(self, total: int, shown: bool) -> None:
        self._bar: Any = None
        self._lock = threading.Lock()
        if shown:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, unit="problem", leave=False)

    def move(self, count: int) -> None:
        if self._bar is not None:
            with self._lock:
                self._bar.update(count)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _run(batch: Batch, answers: Answers, fallback: bool, bar: _Bar) -> None:
    """Answer all problems, until a limit is reached; of values that are wrong, name the first."""
    k, size = batch.readings.k, batch.chunk_rows
    wrong: list[tuple[int, Exception]] = []
    try:
        with suppress(Stop):
            look()
            _ = batch.normal, [each.normal for each in batch.at_ends]
            flops = max(FLOPS_PER_PROBLEM, 40.0 * batch.features.psi.size) * k
            starts = iter(range(0, k, size))
            by_rows(partial(_chunks, batch, answers, fallback, bar, starts, wrong), k, flops)
            if wrong:
                raise min(wrong, key=itemgetter(0))[1]
            if fallback:
                _decide_others(batch, answers, bar)
    finally:
        bar.close()


def _chunks(
    batch: Batch, answers: Answers, fallback: bool, bar: _Bar, starts: Iterator[int],
    wrong: list[tuple[int, Exception]], *_range: int,
) -> None:  # fmt: skip
    """Answer the next chunk until there is none: of several threads, none waits for another."""
    for begin in starts:
        end = min(begin + batch.chunk_rows, batch.readings.k)
        try:
            look()
            chunk = batch.readings.chunk(begin, end)
            batch.work(chunk, answers)
        except Stop:
            return
        except Exception as error:
            wrong.append((begin, error))
            for _ in starts:
                pass
            return
        part = slice(begin, end)
        status, decided = judged(batch, answers, part)
        done = decided | chunk.empty | (not fallback)
        answers.status[part] = np.where(done, status, -1)
        bar.move(int(done.sum()))


def judged(batch: Batch, answers: Answers, part: slice) -> tuple[Any, Any]:
    """Return the status of each of these problems, and which are decided."""
    met, closed, lower = answers.met[part], answers.closed[part], answers.lower_bound[part]
    held = batch.trace_held(answers.packed[part])
    found = np.full(len(met), CODE[Status.UNDECIDED], np.int8)
    if batch.readings.target:
        infeasible = lower > 1.0
        found[infeasible] = CODE[Status.INFEASIBLE]
        good = met & held
        answers.met[part] = good
        found[good] = CODE[Status.MET]
        return found, infeasible | (good & closed)
    good = closed & held
    found[good] = CODE[Status.OPTIMAL]
    return found, good


def _decide_others(batch: Batch, answers: Answers, bar: _Bar) -> None:
    """Give to `solve` what is not decided, on as many threads as there may be."""
    open_ones = np.flatnonzero(answers.status < 0)
    count = min(shared_by(), open_ones.size)
    if not count:
        return
    watch = watched()

    def decide(numbers: Any) -> None:
        for number in numbers:
            if watch is not None and watch.over:
                return
            left = None if watch is None else watch.left
            result = solve_alone(batch, int(number), left)
            if result.status not in (Status.TIME_LIMIT, Status.INTERRUPTED):
                take(batch, answers, int(number), result)
                bar.move(1)

    if count == 1:
        decide(open_ones)
        return
    with ThreadPoolExecutor(count) as pool:
        parts = [pool.submit(with_watch, watch, partial(decide, open_ones[i::count]))
                 for i in range(count)]  # fmt: skip
        for each in parts:
            each.result()
