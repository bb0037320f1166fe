"""The one loop: advance a stride, then stop, report, or go on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from quadsense.arrays import Array, Vector, like, placed, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import cached_property, record
from quadsense.device import on_device, waits
from quadsense.methods import COLD, Method, Problem, State, Warm
from quadsense.methods.base import looked
from quadsense.proofs.rounding import Enclosure, is_met
from quadsense.run.fingerprint import mark
from quadsense.system.watch import Interrupts, Stop, Watch
from quadsense.vocabulary import WIDTH, Claim, Reason, Status, Why, because

if TYPE_CHECKING:
    from quadsense.run.journal import Journal, Record
    from quadsense.run.progress import Bar

MIN_PROGRESS = 1e-3
"""A run is stalled when the max residual has not fallen by this share in `patience` strides."""

MAX_CORRECTIONS = 6
"""How often a fit that rounding spoilt is taken up again with a tighter goal."""

MAX_NARROWINGS = 10
"""How often equalities are taken for narrower intervals: from a tenth of the other widths down to
rounding it takes seven at most, unless A is 0 and rounding as well."""


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


@record(frozen=True)
class Limits:
    """When to stop and whom to tell.

    Attributes
    ----------
    max_iter : int or None
    callback : callable or None
        Called with an `Intermediate` after every stride; StopIteration ends the run.
    progress : bool
        Show a bar with max residual against delta.
    watch : Watch
        The clock, the time limit, and whether the user wants to stop.
    journal : Journal or None
        Where runs are written down, and taken up from.
    """

    max_iter: int | None = None
    callback: Callable[[Any], Any] | None = None
    progress: bool = False
    watch: Watch = field(default_factory=Watch, compare=False)
    journal: Journal | None = field(default=None, compare=False)

    @property
    def time_limit(self) -> float | None:
        """Seconds that the whole solve may take."""
        return self.watch.time_limit

    @property
    def interrupts(self) -> Interrupts:
        """Whether the user wants to stop."""
        return self.watch.interrupts


@record(frozen=True)
class Outcome:
    """How a run ended: the best matrix, its recomputed residuals, and why it stopped.

    `state` is the best state, of which `matrix` is made; None where there was no time for one.
    `entries` are those of the history (`vocabulary.to_history`), `warm` is what the next method may
    begin from, `dual` the vector of the best lower bound; `late` says that the time limit ended the
    run, whatever had been found by then. `last` is the state at which it ended.
    """

    state: Any
    matrix: SensedMatrix
    found: Enclosure
    status: Status
    reason: Why
    claim: Claim | None
    entries: list[tuple[float, ...]]
    lemma: str = ""
    warm: Warm = COLD
    dual: Vector | None = None
    late: bool = False
    last: Any = None

    @property
    def n_iter(self) -> int:
        """Steps that led to the matrix."""
        return 0 if self.state is None else int(self.state.iteration)


class Recorder:
    """What a run has come to, stride by stride: its history under construction.

    Parameters
    ----------
    method : Method
    problem : Problem
    tolerance : ndarray of shape (m,)
    watch : Watch
        Its clock says when each stride was.
    progress : bool
        Show a bar with max residual against delta.
    """

    def __init__(
        self, method: Method, problem: Problem, tolerance: Any, watch: Watch, progress: bool
    ) -> None:
        self.method, self.problem, self.tolerance = method, problem, tolerance
        self.rows: list[tuple[float, ...]] = []
        self._made: Any = None  # of these, as an array
        self._sent: Any = None  # the tolerances, on a device
        self.bar: Bar | None = None
        self.clock = watch.clock
        self.begin = self.clock()
        if progress:
            from quadsense.run.progress import Bar  # rarely needed

            self.bar = Bar(problem)

    @cached_property
    def even(self) -> bool:
        """Whether all tolerances are the same."""
        return bool(np.logical_and.reduce(self.tolerance == self.tolerance[0]))

    @cached_property
    def typical_delta(self) -> float:
        """What a ratio is times, where the ratio is all that is known."""
        return float(self.tolerance[0] if self.even else np.median(self.tolerance))

    def _units(self, ratios: Any) -> Any:
        """The tolerances where the ratios are: sent to a device once."""
        if not waits(ratios):
            return self.tolerance
        if self._sent is None:
            self._sent = on_device(self.tolerance, ratios)
        return self._sent

    def add(self, program: Any, state: State) -> tuple[float, ...]:
        """Append the state's numbers."""
        trace = self.method.trace(program, state)
        unit = self.problem.error_unit
        ratio = unit * state.max_ratio
        if trace.ratios is None or self.even:
            delta = self.typical_delta
            residual = ratio * delta
        else:
            ratios = trace.ratios()
            delta = 0.0 if self.bar is None else float(self.tolerance[np.argmax(ratios)])
            with np.errstate(over="ignore"):
                residual = unit * float((ratios * self._units(ratios)).max())
        seconds = self.clock() - self.begin
        row = (
            state.iteration, seconds, residual, ratio, trace.log_potential, trace.lam, trace.step,
            trace.sharpness,
        )  # fmt: skip
        self.rows.append(row)
        if self.bar is not None:
            self.bar.show(self.rows, delta)
        return row

    def table(self, count: int) -> Any:
        """Return the first `count` entries, (count, WIDTH)."""
        if self._made is None:
            self._made = np.empty((0, WIDTH))
        if count > len(self._made):
            new = np.array(self.rows[len(self._made) : count], dtype=np.float64)
            self._made = np.concatenate([self._made, new.reshape(-1, WIDTH)])
        return self._made[:count]

    def take_up(self, table: Any) -> None:
        """Go on from these entries, and from their time."""
        self.rows = [tuple(row) for row in table.tolist()]
        if self.rows:
            self.begin = self.clock() - self.rows[-1][1]


class _Run:
    """One method on one problem, from its start to a status."""

    def __init__(
        self,
        method: Method,
        problem: Problem,
        certify: Callable[[SensedMatrix], Enclosure],
        recorder: Recorder,
        limits: Limits,
    ) -> None:
        self.method, self.problem, self.certify = method, problem, certify
        self.recorder, self.limits, self.watch = recorder, limits, limits.watch
        self.program: Any = None
        self.state: Any = None
        self.best: Any = None
        self.found: Enclosure | None = None  # residuals of `best`, where recomputed
        self.near = False  # whether it misses equalities only, none by more than its width
        self.met = False  # whether these are within all tolerances, rounding included
        self.matrix: SensedMatrix | None = None  # that of `best`, where made
        self.status: Status | None = None
        self.reason: Why = None
        self.claim: Claim | None = None
        self.limit: int | None = None
        self.lemma = ""
        self.corrections = self.quiet = 0
        self.mark = math.inf
        self.kept: Record | None = None  # between the last two strides, where there is a journal
        self.ends: Intervals = problem.ends  # by which a fit is judged

    @cached_property
    def known(self) -> bool:
        """Whether values are judged against the readings that the method knows."""
        reading, b = self.ends.reading, to_numpy(self.problem.b)
        return reading is b or np.array_equal(reading, b)

    def go(self, warm: Warm) -> None:
        """Prepare and start, then advance until there is a status."""
        journal, known = self.limits.journal, None
        if journal is not None:
            known = journal.begin(self.origin, self._placed, self._home())
        self.watch.look()
        self.program = self.method.prepare(self.problem)
        self.limit, self.lemma = self.method.promise(self.program)
        if known is not None:
            self._take_up(known)
        else:
            self.state = self.method.start(self.program, warm)
            self._take(self.state)
            self.mark = self.state.max_ratio
            self.recorder.add(self.program, self.state)
        self._keep()
        while self.status is None:
            self._judge()
            if self.status is None:
                self._stop_at_limits()
            if self.status is None:
                self._stride()
        pressed = self.watch.interrupts.pressed
        if pressed and not (self.status.success or self.status == "infeasible"):
            self.end(Status.INTERRUPTED, because("interrupted"))

    @cached_property
    def origin(self) -> str:
        """By which a record is known to be of this run."""
        problem, ends, asked = self.problem, self.problem.given_ends, self.problem.question
        sides = None if ends is None else ends.sides
        problem_asked = None if asked is None else (asked.rows, asked.lo, asked.hi, asked.weights)
        what = mark((problem.b, problem.delta, problem.seed, sides, problem_asked))
        return f"{self.method.name} {what}"

    def _placed(self, values: Any) -> Array:
        """An array of a record where the data live, as it lay in memory."""
        return placed(values, self.problem.b, order="K")

    def _home(self) -> tuple[str, ...]:
        """The module of a method that did not come with the package, whose states it may hold."""
        module = type(self.method).__module__
        return () if module.split(".")[0] == "quadsense" else (module,)

    def _keep(self) -> None:
        """Keep in mind where to go on, where there is a journal."""
        if self.limits.journal is not None and self.status is None:
            from quadsense.run.journal import Record

            self.kept = Record(
                self.origin, self.state, self.best, self.claim, self.corrections, self.quiet,
                self.mark, len(self.recorder.rows),
            )  # fmt: skip
            self.limits.journal.note(self.kept, self.recorder.table)

    def _take_up(self, known: Record) -> None:
        """Go on from a record, also where that is the end."""
        self.state, self.best, self.claim = known.state, known.best, known.claim
        self.corrections, self.quiet, self.mark = known.corrections, known.quiet, known.mark
        self.recorder.take_up(known.history)

    def leave(self) -> None:
        """Tell the journal how the run ended."""
        journal, record = self.limits.journal, self.kept
        assert journal is not None
        if self.status not in (Status.TIME_LIMIT, Status.INTERRUPTED) and record is not None:
            record = replace(record, ended=True)
        journal.end(record, self.recorder.table)

    def check_best(self) -> Enclosure:
        """Residuals of the best state, recomputed from the data, however late it is."""
        if self.found is None:
            with self.watch.part("certify", heeded=False):
                found = None
                if self.known and self.best is not None:
                    found = self.method.checked(self.program, self.best)
                # Evaluated otherwise than `verify` does: it must hold with room for both roundings.
                if found is None or not self._surely_met(found):
                    found = self._judged(self.best_matrix())
                else:
                    self.met = True
                self.found = found
        return self.found

    def _judged(self, matrix: SensedMatrix) -> Enclosure:
        """Residuals of a matrix; where only equalities are missed, of one near it that has them."""
        found = self.certify(matrix)
        if self.ends.allowance is None:
            self.met = is_met(found, self.ends)
            return found
        self.met = is_met(found, self.ends, matrix.norm())
        self.near = not self.met and is_met(found, self.ends.opened())
        if not self.near:
            return found
        from quadsense.methods.equalities import nearest_exact  # rarely needed

        other = nearest_exact(self.problem.rows, self.ends, matrix)
        if other is not None:
            moved = self.certify(other)
            if is_met(moved, self.ends, other.norm()):
                self.met, self.matrix = True, other
                return moved
        return found

    def best_matrix(self) -> SensedMatrix:
        """A of the best state, or what to answer where there is none."""
        if self.matrix is None:
            if self.best is None:
                self.matrix = self.method.first(self.problem)
            else:
                self.matrix = self.method.matrix(self.program, self.best)
        return self.matrix

    def end(self, status: Status, reason: Why = None) -> None:
        """Give the run its status, and say why."""
        self.status, self.reason = status, reason

    def stopped(self) -> None:
        """Give the run the status of whatever stopped it in the middle of something."""
        if self.watch.interrupts.pressed:
            self.end(Status.INTERRUPTED, because("interrupted"))
            return
        early = {} if self.watch.late else {"after": self.watch.elapsed}
        self.end(Status.TIME_LIMIT, because("time_limit", seconds=self.limits.time_limit, **early))

    def _take(self, state: Any) -> None:
        """Make that state the best."""
        self.best, self.found, self.matrix = state, None, None
        self.watch.has_fit |= bool(state.max_ratio <= 1.0)

    def _judge(self) -> None:
        """Check what the method claims, and end if it holds."""
        claim = self.method.claim(self.program, self.state)
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
            self._take(self.state)
            self.check_best()
            self.end(Status.OPTIMAL, claim.reason)
        elif claim.kind == "local":
            self._take(self.state)
            self.check_best()
            self.end(Status.LOCAL, claim.reason)
        else:
            self._check_met()

    def _check_met(self) -> None:
        """End if the recomputed residuals are within tolerance, or take the state up again."""
        self._take(self.state)
        found = self.check_best()
        if self.met:
            self.end(Status.MET)
            return
        excess = float((to_numpy(found.error) / to_numpy(self.problem.delta)).max())
        self.corrections += 1
        if self.corrections > MAX_CORRECTIONS or excess >= 0.5:
            self.end(Status.STALLED, because("rounding", part=excess))
            return
        goal = min(0.9**self.corrections, 1.0 - 2.0 * excess)
        z = found.z
        if not self.known:
            z = z + (reference(self.problem) - self.problem.b)
        self.state = self.method.correct(self.program, self.state, z, goal)
        self._take(self.state)
        self.mark = math.inf

    def _surely_met(self, found: Enclosure) -> bool:
        return is_met(Enclosure(found.z, 2.0 * found.error), self.ends)

    def _stop_at_limits(self) -> None:
        """End if a limit is reached or nothing has moved for long."""
        limits, done = self.limits, self.state.iteration
        if self.watch.interrupts.pressed:
            self.stopped()
        elif limits.max_iter is not None and done >= limits.max_iter:
            self.end(Status.MAX_ITER, because("max_iter", most=limits.max_iter))
        elif self.limit is not None and done >= self.limit:
            self.end(Status.MAX_ITER, because("lemma", most=self.limit, lemma=self.lemma))
        elif self.watch.time_limit is not None and self.watch.late:
            self.stopped()
        elif self.quiet and self.limit is None and self._is_stuck():
            # With the paper's schedule the lemma says how long it takes, however slow it looks.
            self.end(Status.STALLED, self._stalled())

    def _is_stuck(self) -> bool:
        return self.quiet >= self.method.patience(self.program)

    def _stalled(self) -> Reason:
        strides, ratio = self.method.patience(self.program), self.state.max_ratio
        if strides >= 2**32:
            return because("still")
        name = self.method.name
        return because("slow", share=MIN_PROGRESS, strides=strides, ratio=ratio, method=name)

    def _stride(self) -> None:
        """Advance one stride, record it and call the callback."""
        steps = self.method.stride(self.program)
        if self.method.short_strides_first:
            steps = min(steps, max(1, self.state.iteration // 4))
        for most in (self.limits.max_iter, self.limit):
            if most is not None:
                steps = min(steps, most - self.state.iteration)
        before = self.state.iteration
        self.state = state = self.method.advance(self.program, self.state, steps)
        row = self.recorder.add(self.program, state)
        if state.max_ratio <= self.best.max_ratio:
            self._take(state)
        (self.mark,), self.quiet = looked(
            (self.mark,), self.quiet, (state.max_ratio,), 1.0 - MIN_PROGRESS
        )
        if state.iteration == before and self.method.claim(self.program, state) is None:
            self.end(Status.STALLED, self._stalled())
        self._keep()
        if self.limits.callback is not None:
            make = partial(self.method.matrix, self.program, state)
            self.limits.callback(Intermediate(int(row[0]), row[2], row[3], row[1], make))

    def outcome(self) -> Outcome:
        """What the run came to."""
        found, late = self.check_best(), self.status is Status.TIME_LIMIT
        if self.problem.target and self.met:  # whatever the method had in mind
            self.end(Status.MET)
        assert self.status is not None
        matrix = self.matrix
        if matrix is None:
            with self.watch.part("certify", heeded=False):
                matrix = self.best_matrix()
        claim, dual = self.claim, None
        if self.state is not None:
            try:
                # Past the limit a bound on the preference is worth time only where there is a fit.
                proves = not late or self.met or not self.problem.target
                with self.watch.part(self.method.name, heeded=True, grace=proves):
                    dual = self.method.dual(self.program, self.state)
            except Stop:
                late = True
        if claim is None and dual is not None and not self.problem.target:
            claim = Claim("undecided", self.reason, dual)  # at a limit: what is known by then
        form = matrix.form
        factor = getattr(form, "factor", None) if getattr(form, "signs", None) is None else None
        warm = Warm(matrix, factor, dual if claim is None else claim.dual)
        return Outcome(
            self.best, matrix, found, self.status, self.reason, claim, self.recorder.rows,
            self.lemma, warm, dual, late, self.state,
        )  # fmt: skip


def reference(problem: Problem) -> Array:
    """What values are judged against: the readings as given, or 0 with intervals given outright."""
    return like(problem.ends.reading, problem.b)


def run(
    method: Method,
    problem: Problem,
    certify: Callable[[SensedMatrix], Enclosure],
    tolerance: Any,
    limits: Limits,
    warm: Warm = COLD,
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
    warm : Warm
        What was found before.

    Returns
    -------
    Outcome
        At the state with the smallest max residual; MET only if the recomputed residuals, rounding
        bounds included, are within the tolerance.
    """
    outcome, near = _run(method, problem, certify, tolerance, limits, warm)
    undone = (Status.STALLED, Status.UNDECIDED)
    for _ in range(MAX_NARROWINGS):
        if not (near and outcome.status in undone):
            break  # else the fit that was found has no room for a step
        ends = problem.ends.narrowed(outcome.matrix.norm())
        if ends is None:
            break
        delta = np.where(ends.exact, ends.unit, to_numpy(problem.delta))
        problem = replace(problem, given_ends=ends, delta=like(delta, problem.delta))
        outcome, near = _run(method, problem, certify, tolerance, limits, outcome.warm)
    return outcome


def _run(
    method: Method,
    problem: Problem,
    certify: Callable[[SensedMatrix], Enclosure],
    tolerance: Any,
    limits: Limits,
    warm: Warm,
) -> tuple[Outcome, bool]:
    """The same with equalities of one width, and whether it missed nothing else."""
    recorder = Recorder(method, problem, tolerance, limits.watch, limits.progress)
    one = _Run(method, problem, certify, recorder, limits)
    with limits.watch.part(method.name):
        try:
            with limits.watch.heeded():
                one.go(warm)
        except Stop:
            one.stopped()
        except KeyboardInterrupt:
            limits.interrupts.pressed = True
            one.stopped()
        except StopIteration:
            one.end(Status.INTERRUPTED, because("callback"))
        finally:
            if recorder.bar is not None:
                recorder.bar.close()
        if limits.journal is not None:
            one.leave()
        outcome = one.outcome()
        return outcome, one.near and not one.met
