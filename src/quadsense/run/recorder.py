"""What a run has come to, stride by stride: its history, and the bar of its progress."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from quadsense.core.records import cached_property
from quadsense.device import on_device, waits
from quadsense.methods import Method, Problem, State
from quadsense.system.watch import Watch
from quadsense.vocabulary import History

NAMES = [each.name for each in fields(History)]
WIDTH, RATIO = len(NAMES), NAMES.index("max_ratio")
"""Numbers of an entry, and which of them is the worst ratio."""

FEWEST = 6
"""Looks before anything is said of the time that is left."""

AGREEMENT = 2.0
"""Factor within which two estimates must be for one to be given."""


class Recorder:
    """History under construction, and the bar.

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
        self._made = np.empty((0, WIDTH))  # of these, as an array
        self._sent: Any = None  # the tolerances, on a device
        self.bar: Any = None
        self.clock = watch.clock
        self.begin = self.clock()
        if progress:
            from tqdm.auto import tqdm

            form = "{desc} |{bar}| {elapsed}{postfix}"
            self.bar = tqdm(total=100, bar_format=form, leave=False)

    @cached_property
    def even(self) -> bool:
        """Whether all tolerances are the same."""
        return bool((self.tolerance == self.tolerance[0]).all())

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
            self._show(row, delta)
        return row

    def _show(self, row: tuple[float, ...], delta: float) -> None:
        first, now = self.rows[0][RATIO], row[RATIO]
        if first > 1.0:  # how far down, on a log scale, the worst ratio has come
            share = math.log(max(first / max(now, 1e-300), 1.0)) / math.log(first)
            self.bar.n = round(100 * min(1.0, max(0.0, share)))
        self.bar.set_description_str(f"iteration {int(row[0]):>8,}", refresh=False)
        against = f" against delta {delta:.3g}" if self.problem.target else ""
        sweeps = getattr(self.problem.rows.raw.kind, "sweeps", 0)  # of rows that are not in memory
        passes = f", {sweeps:,} sweeps" if sweeps else ""
        text = f"worst residual {now * delta:.3g}{against}{passes}{self._time_left()}"
        self.bar.set_postfix_str(text, refresh=True)

    def _time_left(self) -> str:
        """In words for the bar; nothing where it is not known."""
        if not self.problem.target:
            return ""
        left = seconds_left([row[1] for row in self.rows], [row[RATIO] for row in self.rows])
        return "" if left is None else f", about {_rounded(left)} left"

    def table(self, count: int) -> Any:
        """Return the first `count` entries, (count, WIDTH)."""
        if count > len(self._made):
            new = np.array(self.rows[len(self._made) : count], dtype=np.float64)
            self._made = np.concatenate([self._made, new.reshape(-1, WIDTH)])
        return self._made[:count]

    def take_up(self, table: Any) -> None:
        """Go on from these entries, and from their time."""
        self.rows = [tuple(row) for row in table.tolist()]
        if self.rows:
            self.begin = self.clock() - self.rows[-1][1]

    def close(self) -> None:
        """Take the bar down."""
        if self.bar is not None:
            self.bar.close()


def _rounded(seconds: float) -> str:
    """A time that is not known exactly."""
    if seconds < 100:
        return f"{max(seconds, 1.0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def to_history(rows: list[tuple[float, ...]]) -> History:
    """Return the history of these entries, each with the numbers of `History` in their order."""
    columns = np.array(rows, dtype=np.float64).reshape(-1, WIDTH).T
    return History(columns[0].astype(np.int64), *columns[1:])


def seconds_left(seconds: Sequence[float], ratios: Sequence[float]) -> float | None:
    """Seconds until the worst ratio is 1, where it falls evenly enough to say so.

    Parameters
    ----------
    seconds : sequence of float
        When each look was, from the beginning of the run.
    ratios : sequence of float
        The worst ratio to the tolerance at each look.

    Returns
    -------
    float or None
        None where nothing can be said: after few looks, where the ratio does not fall, or where
        its logarithm fell in the last quarter of the time at another rate than in the last half.
    """
    now, ratio = seconds[-1], ratios[-1]
    if len(seconds) < FEWEST or not (1.0 < ratio < math.inf and now > seconds[0]):
        return None
    found = []
    for share in (0.5, 0.25):
        since = now - share * (now - seconds[0])
        at = next(i for i, second in enumerate(seconds) if second >= since)
        before, span = ratios[at], now - seconds[at]
        if not (span > 0.0 and ratio < before < math.inf):
            return None
        found.append(math.log(ratio) * span / math.log(before / ratio))
    return max(found) if max(found) <= AGREEMENT * min(found) else None
