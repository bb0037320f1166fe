"""When nothing moves any more: the one rule by which loops and inner methods count idle looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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
