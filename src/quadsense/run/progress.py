"""The bar of a run: its worst residual against the tolerance, and the time that is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from quadsense.methods import Problem
from quadsense.vocabulary import RATIO

FEWEST = 6
"""Looks before anything is said of the time that is left."""

AGREEMENT = 2.0
"""Factor within which two estimates must be for one to be given."""


class Bar:
    """A bar that shows entries of the history of a run on this problem."""

    def __init__(self, problem: Problem) -> None:
        from tqdm.auto import tqdm

        self.problem = problem
        form = "{desc} |{bar}| {elapsed}{postfix}"
        self.bar: Any = tqdm(total=100, bar_format=form, leave=False)

    def show(self, rows: Sequence[tuple[float, ...]], delta: float) -> None:
        """Show the last of these entries, of a worst residual with that tolerance."""
        first, row = rows[0][RATIO], rows[-1]
        now = row[RATIO]
        if first > 1.0:  # how far down, on a log scale, the worst ratio has come
            share = math.log(max(first / max(now, 1e-300), 1.0)) / math.log(first)
            self.bar.n = round(100 * min(1.0, max(0.0, share)))
        self.bar.set_description_str(f"iteration {int(row[0]):>8,}", refresh=False)
        against = f" against delta {delta:.3g}" if self.problem.target else ""
        sweeps = getattr(self.problem.rows.raw.kind, "sweeps", 0)  # of rows that are not in memory
        passes = f", {sweeps:,} sweeps" if sweeps else ""
        text = f"worst residual {now * delta:.3g}{against}{passes}{self._time_left(rows)}"
        self.bar.set_postfix_str(text, refresh=True)

    def _time_left(self, rows: Sequence[tuple[float, ...]]) -> str:
        """In words for the bar; nothing where it is not known."""
        if not self.problem.target:
            return ""
        left = seconds_left([row[1] for row in rows], [row[RATIO] for row in rows])
        return "" if left is None else f", about {_rounded(left)} left"

    def close(self) -> None:
        """Take the bar down."""
        self.bar.close()


def _rounded(seconds: float) -> str:
    """A time that is not known exactly."""
    if seconds < 100:
        return f"{max(seconds, 1.0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


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
