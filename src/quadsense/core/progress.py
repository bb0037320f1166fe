"""How a run goes on: when nothing moves any more, and how long it will still take.

The first is the one rule by which loops and inner methods count idle looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

FEWEST = 6
"""Looks before anything is said of the time that is left."""

AGREEMENT = 2.0
"""Factor within which two estimates must be for one to be given."""


class Progress(NamedTuple):
    """What was reached when there was progress last, and how often there was none since."""

    marks: tuple[float, ...]
    idle: int


def looked(marks: Sequence[float], idle: int, now: Sequence[float], share: float) -> Progress:
    """Look once more: it is progress where some number is below `share` of its mark.

    Parameters
    ----------
    marks : sequence of float
        What was reached when there was progress last; all of them should fall.
    idle : int
        Looks since then.
    now : sequence of float
        What is reached now, in the same order.
    share : float
        Just below 1 where slow progress counts, far below where it does not.
    """
    for here, mark in zip(now, marks, strict=True):
        if here < share * mark:
            return Progress(tuple(now), 0)
    return Progress(tuple(marks), idle + 1)


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
