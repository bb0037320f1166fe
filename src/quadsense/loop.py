"""The one loop: advance a stride, then stop, report, or go on."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.core.certificate import Enclosure, is_met
from quadsense.core.matrix import SensedMatrix
from quadsense.methods import Method, Problem, State
from quadsense.result import History, Status

PROGRESS = 1e-3
"""A run is stalled when the max residual has not fallen by this share in `patience` strides."""

CORRECTIONS = 6
"""How often a fit that rounding spoilt is taken up again with a tighter goal."""


@dataclass(frozen=True)
class Intermediate:
    """What a callback sees after every stride; field names are those of `Result`."""

    n_iter: int
    max_residual: float
    max_ratio: float
    seconds: float
    make_matrix: Callable[[], SensedMatrix] = field(repr=False)

    @property
    def matrix(self) -> SensedMatrix:
        """The iterate."""
        return self.make_matrix()


@dataclass(frozen=True)
class Limits:
    """When to stop and whom to tell.

    Attributes
    ----------
    max_iter : int or None
    time_limit : float or None
        Seconds.
    callback : callable or None
        Called with an `Intermediate` after every stride; StopIteration ends the run.
    progress : bool
        Show a bar with max residual against delta.
    """

    max_iter: int | None = None
    time_limit: float | None = None
    callback: Callable[[Any], Any] | None = None
    progress: bool = False


class _Interrupts:
    """Ctrl-C noted during a stride and acted on after it; a second one acts at once.

    An exception raised inside compiled code, as Python's own handler would, can be lost there.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.previous: Any = None

    def __enter__(self) -> _Interrupts:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self.previous = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __exit__(self, *exception: object) -> None:
        if self.previous is not None:
            signal.signal(signal.SIGINT, self.previous)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the best state, its recomputed residuals, and why it stopped."""

    state: State
    found: Enclosure
    status: Status
    reason: str
    history: History
    seconds_iterating: float
    seconds_certifying: float


class _Recorder:
    """History under construction, and the bar."""

    def __init__(self, problem: Problem, norms2: Any, progress: bool) -> None:
        self.problem = problem
        self.tolerance = to_numpy(problem.delta) * norms2  # in the user's scaling
        self.rows: list[tuple[float, ...]] = []
        self.bar: Any = None
        self.begin = time.perf_counter()
        if progress:
            from tqdm.auto import tqdm

            self.bar = tqdm(
                total=100,
                bar_format="{desc} |{bar}| {elapsed}{postfix}",
                leave=False,
            )

    def add(self, state: State) -> tuple[float, ...]:
        """Append the state's numbers."""
        ratios = np.abs(to_numpy(state.y))
        lam = state.sharpness / self.problem.least_delta
        row = (
            state.iteration,
            time.perf_counter() - self.begin,
            float((ratios * self.tolerance).max()),
            state.top,
            state.log_potential,
            lam,
            state.c / lam,
        )
        self.rows.append(row)
        if self.bar is not None:
            self._show(row, float(self.tolerance[np.argmax(ratios)]))
        return row

    def _show(self, row: tuple[float, ...], delta: float) -> None:
        first, now = self.rows[0][3], row[3]
        if first > 1.0:  # how far down, on a log scale, the worst ratio has come
            share = math.log(max(first / max(now, 1e-300), 1.0)) / math.log(first)
            self.bar.n = round(100 * min(1.0, max(0.0, share)))
        self.bar.set_description_str(f"iteration {int(row[0]):>8,}", refresh=False)
        self.bar.set_postfix_str(
            f"worst residual {now * delta:.3g} against delta {delta:.3g}", refresh=True
        )

    def history(self) -> History:
        """All that was recorded."""
        columns = np.array(self.rows, dtype=np.float64).T
        return History(columns[0].astype(np.int64), *columns[1:])

    def close(self) -> None:
        """Take the bar down."""
        if self.bar is not None:
            self.bar.close()


def run(
    method: Method,
    problem: Problem,
    certify: Callable[[SensedMatrix], Enclosure],
    norms2: Any,
    limits: Limits,
) -> Outcome:
    """Run a method until its fit is certified, a limit is reached, or nothing moves any more.

    Parameters
    ----------
    method, problem
        What to run, on what.
    certify : callable
        Recomputes the residuals of a matrix from the data.
    norms2 : ndarray of shape (m,)
        Squared row norms: residuals of the unit rows times these are the user's.
    limits : Limits

    Returns
    -------
    Outcome
        At the state with the smallest max residual; MET only if the recomputed residuals, rounding
        bounds included, are within the tolerance.
    """
    recorder = _Recorder(problem, norms2, limits.progress)
    certifying = 0.0
    state = best = method.start(problem)
    found: Enclosure | None = None
    status: Status | None = None
    reason = ""
    corrections = quiet = 0
    mark, patience = state.top, method.patience(problem)
    if state.limit is not None:  # the lemma says how long it takes, however slow it looks
        patience = sys.maxsize
    try:
        with _Interrupts() as interrupts:
            recorder.add(state)
            while status is None:
                if state.top <= state.goal:
                    begin = time.perf_counter()
                    found = certify(method.matrix(problem, state))
                    certifying += time.perf_counter() - begin
                    best = state
                    if is_met(found, problem.delta):
                        status = Status.MET
                        break
                    excess = float((to_numpy(found.error) / to_numpy(problem.delta)).max())
                    corrections += 1
                    if corrections > CORRECTIONS or excess >= 0.5:
                        status = Status.STALLED
                        reason = (
                            f"rounding alone is {excess:.2g} of the tolerance: float64 cannot "
                            "certify a delta this small; raise delta"
                        )
                        break
                    goal = min(0.9 * state.goal, 1.0 - 2.0 * excess)
                    state = best = method.correct(problem, state, found.z, goal)
                    mark = math.inf
                status, reason = _limit(state, limits, recorder.begin)
                if interrupts.pressed:
                    status, reason = Status.INTERRUPTED, "interrupted by the user"
                if status is not None:
                    break
                if quiet >= patience:
                    status = Status.STALLED
                    reason = _stalled(method, state, patience)
                    break
                # Short strides at first, so that the history is even on a log scale.
                steps = min(method.stride(problem), max(1, state.iteration // 4))
                for most in (limits.max_iter, state.limit):
                    if most is not None:
                        steps = min(steps, most - state.iteration)
                before = state.iteration
                state = method.advance(problem, state, steps)
                row = recorder.add(state)
                if state.top <= best.top or (best.top > 1.0 and state.top <= 1.0):
                    best, found = state, None
                if state.top <= (1.0 - PROGRESS) * mark:
                    mark, quiet = state.top, 0
                else:
                    quiet = patience if state.iteration == before else quiet + 1
                if limits.callback is not None:
                    at = state
                    limits.callback(
                        Intermediate(
                            int(row[0]),
                            row[2],
                            row[3],
                            row[1],
                            lambda at=at: method.matrix(problem, at),  # type: ignore[misc]
                        )
                    )
    except KeyboardInterrupt:
        status, reason = Status.INTERRUPTED, "interrupted by the user"
    except StopIteration:
        status, reason = Status.INTERRUPTED, "stopped by the callback"
    finally:
        recorder.close()
    iterating = time.perf_counter() - recorder.begin - certifying
    if found is None:
        begin = time.perf_counter()
        found = certify(method.matrix(problem, best))
        certifying += time.perf_counter() - begin
    assert status is not None
    return Outcome(best, found, status, reason, recorder.history(), iterating, certifying)


def _limit(state: State, limits: Limits, begin: float) -> tuple[Status | None, str]:
    """Status and reason if a limit is reached."""
    if limits.max_iter is not None and state.iteration >= limits.max_iter:
        return Status.MAX_ITER, f"stopped after max_iter = {limits.max_iter} iterations"
    if state.limit is not None and state.iteration >= state.limit:
        return Status.MAX_ITER, f"the {state.limit} iterations of {state.lemma} are over"
    if limits.time_limit is not None and time.perf_counter() - begin >= limits.time_limit:
        return Status.TIME_LIMIT, f"stopped after time_limit = {limits.time_limit} s"
    return None, ""


def _stalled(method: Method, state: State, patience: int) -> str:
    return (
        f"the max residual has not fallen by {PROGRESS:.1%} in {patience} strides (worst ratio to "
        f"delta {state.top:.3g}): either no matrix meets this delta, and a larger one is needed, "
        f"or '{method.name}' is too slow for rows as nearly dependent as these"
    )
