"""The one loop: advance a stride, then stop, report, or go on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from quadsense.arrays import Array, like, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.progress import looked
from quadsense.interrupts import Interrupts
from quadsense.methods import Method, Problem, State
from quadsense.proofs.rounding import Enclosure, is_met
from quadsense.vocabulary import Claim, History, Reason, Status, Why, because

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
    interrupts : Interrupts
        Whether the user wants to stop.
    """

    max_iter: int | None = None
    time_limit: float | None = None
    callback: Callable[[Any], Any] | None = None
    progress: bool = False
    interrupts: Interrupts = field(default_factory=Interrupts, compare=False)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the best state, its recomputed residuals, and why it stopped."""

    state: Any
    found: Enclosure
    status: Status
    reason: Why
    claim: Claim | None
    history: History
    seconds_iterating: float
    seconds_certifying: float

    def timings(self, preparing: float) -> dict[str, float]:
        """Seconds by part, for `Result.timings`."""
        iterating, certifying = self.seconds_iterating, self.seconds_certifying
        return {"prepare": preparing, "iterate": iterating, "certify": certifying}


class _Recorder:
    """History under construction, and the bar."""

    def __init__(self, method: Method, problem: Problem, tolerance: Any, limits: Limits) -> None:
        self.method, self.problem, self.tolerance = method, problem, tolerance
        self.rows: list[tuple[float, ...]] = []
        self.bar: Any = None
        self.begin = time.perf_counter()
        if limits.progress:
            from tqdm.auto import tqdm

            form = "{desc} |{bar}| {elapsed}{postfix}"
            self.bar = tqdm(total=100, bar_format=form, leave=False)

    @cached_property
    def typical_delta(self) -> float:
        """What a ratio is times, where the ratio is all that is known."""
        return float(np.median(self.tolerance))

    def add(self, state: State) -> tuple[float, ...]:
        """Append the state's numbers."""
        trace = self.method.trace(self.problem, state)
        unit = self.problem.error_unit
        ratio = unit * state.max_ratio
        if trace.ratios is None:  # exact where all tolerances are the same
            delta = self.typical_delta
            residual = ratio * delta
        else:
            delta = 0.0 if self.bar is None else float(self.tolerance[np.argmax(trace.ratios)])
            with np.errstate(over="ignore"):
                residual = unit * float((trace.ratios * self.tolerance).max())
        seconds = time.perf_counter() - self.begin
        row = (
            state.iteration, seconds, residual, ratio, trace.log_potential, trace.lam, trace.step,
            trace.sharpness,
        )  # fmt: skip
        self.rows.append(row)
        if self.bar is not None:
            self._show(row, delta)
        return row

    def _show(self, row: tuple[float, ...], delta: float) -> None:
        first, now = self.rows[0][3], row[3]
        if first > 1.0:  # how far down, on a log scale, the worst ratio has come
            share = math.log(max(first / max(now, 1e-300), 1.0)) / math.log(first)
            self.bar.n = round(100 * min(1.0, max(0.0, share)))
        self.bar.set_description_str(f"iteration {int(row[0]):>8,}", refresh=False)
        against = f" against delta {delta:.3g}" if self.problem.target else ""
        self.bar.set_postfix_str(f"worst residual {now * delta:.3g}{against}", refresh=True)

    def history(self) -> History:
        """All that was recorded."""
        columns = np.array(self.rows, dtype=np.float64).T
        return History(columns[0].astype(np.int64), *columns[1:])

    def close(self) -> None:
        """Take the bar down."""
        if self.bar is not None:
            self.bar.close()


class _Run:
    """One method on one problem, from its start to a status."""

    def __init__(
        self,
        method: Method,
        problem: Problem,
        certify: Callable[[SensedMatrix], Enclosure],
        recorder: _Recorder,
        limits: Limits,
    ) -> None:
        self.method, self.problem, self.certify = method, problem, certify
        self.recorder, self.limits, self.interrupts = recorder, limits, limits.interrupts
        self.ends = problem.ends
        # Whether values are judged against the readings that the method knows.
        self.known = np.array_equal(self.ends.reading, to_numpy(problem.b))
        self.state = self.best = method.start(problem)
        self.found: Enclosure | None = None  # residuals of `best`, where recomputed
        self.status: Status | None = None
        self.reason: Why = None
        self.claim: Claim | None = None
        self.corrections = self.quiet = 0
        self.mark = self.state.max_ratio
        self.certifying = 0.0

    def go(self) -> None:
        """Advance until there is a status."""
        self.recorder.add(self.state)
        while self.status is None:
            self._judge()
            if self.status is None:
                self._stop_at_limits()
            if self.status is None:
                self._stride()
        if self.interrupts.pressed and not (self.status.success or self.status == "infeasible"):
            self.end(Status.INTERRUPTED, because("interrupted"))

    def check_best(self) -> Enclosure:
        """Residuals of the best state, recomputed from the data."""
        if self.found is None:
            begin = time.perf_counter()
            found = None
            if self.known:
                found = self.method.checked(self.problem, self.best)
            # Evaluated otherwise than `verify` does: it must hold with room for both roundings.
            if found is None or not self._surely_met(found):
                found = self.certify(self.method.matrix(self.problem, self.best))
            self.found = found
            self.certifying += time.perf_counter() - begin
        return self.found

    def end(self, status: Status, reason: Why = None) -> None:
        """Give the run its status, and say why."""
        self.status, self.reason = status, reason

    def _judge(self) -> None:
        """Check what the method claims, and end if it holds."""
        claim = self.method.claim(self.problem, self.state)
        if claim is None:
            return
        self.claim = claim
        if claim.kind == "stalled":
            self.end(Status.STALLED, claim.reason)
        elif claim.kind in ("inconsistent", "undecided"):
            self.end(Status.UNDECIDED, claim.reason)
        elif claim.kind == "infeasible":
            self.end(Status.INFEASIBLE, claim.reason)
        elif claim.kind == "optimal":
            self.best, self.found = self.state, None
            self.check_best()
            self.end(Status.OPTIMAL, claim.reason)
        else:
            self._check_met()

    def _check_met(self) -> None:
        """End if the recomputed residuals are within tolerance, or take the state up again."""
        self.best, self.found = self.state, None
        found = self.check_best()
        if is_met(found, self.ends):
            self.end(Status.MET)
            return
        excess = float((to_numpy(found.error) / to_numpy(self.problem.delta)).max())
        self.corrections += 1
        if self.corrections > CORRECTIONS or excess >= 0.5:
            self.end(Status.STALLED, because("rounding", part=excess))
            return
        goal = min(0.9**self.corrections, 1.0 - 2.0 * excess)
        z = found.z
        if not self.known:
            z = z + (reference(self.problem) - self.problem.b)
        self.state = self.best = self.method.correct(self.problem, self.state, z, goal)
        self.mark = math.inf

    def _surely_met(self, found: Enclosure) -> bool:
        return is_met(Enclosure(found.z, 2.0 * found.error), self.ends)

    def _stop_at_limits(self) -> None:
        """End if a limit is reached or nothing has moved for long."""
        limits, done, method = self.limits, self.state.iteration, self.method
        seconds = time.perf_counter() - self.recorder.begin
        if self.interrupts.pressed:
            self.end(Status.INTERRUPTED, because("interrupted"))
        elif limits.max_iter is not None and done >= limits.max_iter:
            self.end(Status.MAX_ITER, because("max_iter", most=limits.max_iter))
        elif method.limit is not None and done >= method.limit:
            self.end(Status.MAX_ITER, because("lemma", most=method.limit, lemma=method.lemma))
        elif limits.time_limit is not None and seconds >= limits.time_limit:
            self.end(Status.TIME_LIMIT, because("time_limit", seconds=limits.time_limit))
        elif self.quiet >= method.patience(self.problem) and method.limit is None:
            # With the paper's schedule the lemma says how long it takes, however slow it looks.
            self.end(Status.STALLED, self._stalled())

    def _stalled(self) -> Reason:
        strides, ratio = self.method.patience(self.problem), self.state.max_ratio
        if strides >= 2**32:
            return because("still")
        name = self.method.name
        return because("slow", share=PROGRESS, strides=strides, ratio=ratio, method=name)

    def _stride(self) -> None:
        """Advance, and tell whoever listens."""
        steps = self.method.stride(self.problem)
        if self.method.short_strides_first:
            steps = min(steps, max(1, self.state.iteration // 4))
        for most in (self.limits.max_iter, self.method.limit):
            if most is not None:
                steps = min(steps, most - self.state.iteration)
        before = self.state.iteration
        self.state = state = self.method.advance(self.problem, self.state, steps)
        row = self.recorder.add(state)
        if state.max_ratio <= self.best.max_ratio:
            self.best, self.found = state, None
        (self.mark,), self.quiet = looked(
            (self.mark,), self.quiet, (state.max_ratio,), 1.0 - PROGRESS
        )
        if state.iteration == before and self.method.claim(self.problem, state) is None:
            self.end(Status.STALLED, self._stalled())
        if self.limits.callback is not None:
            make = partial(self.method.matrix, self.problem, state)
            self.limits.callback(Intermediate(int(row[0]), row[2], row[3], row[1], make))


def reference(problem: Problem) -> Array:
    """What values are judged against: the readings as given, or 0 with intervals given outright."""
    return like(problem.ends.reading, problem.b)


def run(
    method: Method,
    problem: Problem,
    certify: Callable[[SensedMatrix], Enclosure],
    tolerance: Any,
    limits: Limits,
) -> Outcome:
    """Run a method until its claim is checked, a limit is reached, or nothing moves any more.

    Parameters
    ----------
    method, problem
        What to run, on what.
    certify : callable
        Recomputes the residuals of a matrix from the data.
    tolerance : ndarray of shape (m,)
        Tolerances in the user's scaling, for the history.
    limits : Limits

    Returns
    -------
    Outcome
        At the state with the smallest max residual; MET only if the recomputed residuals, rounding
        bounds included, are within the tolerance.
    """
    recorder = _Recorder(method, problem, tolerance, limits)
    one = _Run(method, problem, certify, recorder, limits)
    try:
        one.go()
    except KeyboardInterrupt:
        limits.interrupts.pressed = True
        one.end(Status.INTERRUPTED, because("interrupted"))
    except StopIteration:
        one.end(Status.INTERRUPTED, because("callback"))
    finally:
        recorder.close()
    iterating = time.perf_counter() - recorder.begin - one.certifying
    found = one.check_best()
    assert one.status is not None
    if problem.target and is_met(found, one.ends):  # whatever else the method had in mind
        one.end(Status.MET)
    return Outcome(
        one.best, found, one.status, one.reason, one.claim, recorder.history(), iterating,
        one.certifying,
    )  # fmt: skip
