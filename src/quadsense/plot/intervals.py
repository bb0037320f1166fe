"""Certified ranges, one per line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadsense.plot.figures import (
    BLUE,
    INK,
    RED,
    PointerValues,
    canvas,
    head,
    legend,
    plain_numbers,
    said_of_points,
    tidy,
)
from quadsense.plot.pictures import labelled, matrix_of, value_of
from quadsense.ranges.ranges import Interval
from quadsense.view.markup import number

DIGITS = 6
"""Of the numbers at the ends of a range."""


def intervals(
    intervals: Any,
    *,
    labels: Any = None,
    A: Any = None,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Certified ranges as bars: what is proved of all fits, and the fits that were found.

    Parameters
    ----------
    intervals : Interval, list of Interval, or dict of str to Interval
        Of `quadsense.interval` or `Result.interval`.
    labels : sequence of str, optional
        One per interval; by default what was asked for.
    A : Result, SensedMatrix or array of shape (n, n), optional
        A matrix, such as the answer or the truth, whose values are marked.
    title : str, optional
        Heading.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    Ticks are the least and the largest value of a fit that was found: the certified end is no
    further out than from there. An arrow is an end at infinity; a pale bar holds under a
    condition.
    """
    named = labelled(intervals, labels)
    if not named:
        raise ValueError("give at least one interval")
    figure, axes = canvas(ax, 6.4, 1.5 + 0.36 * len(named))
    tidy(axes)
    marked = None if A is None else matrix_of(A)
    values = [None if marked is None else value_of(each, marked) for each in named.values()]
    draw_ranges(axes, list(named.values()), values)
    axes.set_ylim(len(named) - 0.4, -0.6)
    axes.set(yticks=range(len(named)), yticklabels=list(named), xlabel="over all fits")
    axes.tick_params(axis="y", length=0, pad=9)
    axes.grid(visible=False, axis="y")
    legend(axes, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)
    head(figure, axes, title or "certified intervals", ax is not None)
    return figure


def draw_ranges(
    axes: Any, intervals: list[Interval], values: list[float | None]
) -> list[PointerValues]:
    """Draw ranges below each other, each at the height of its index.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    intervals : list of Interval
    values : list of float or None
        Those of a matrix, one per interval.
    """
    low, high = _span([end for each in intervals for end in _known(each)], values)
    told = []
    for row, (each, value) in enumerate(zip(intervals, values, strict=True)):
        left, right = max(each.lower, low), min(each.upper, high)
        given = bool(each.lower_condition or each.upper_condition)
        axes.barh(row, right - left, left=left, height=0.5, color=BLUE, alpha=0.2 if given else 0.5)
        for end, place, marker in ((each.lower, low, "<"), (each.upper, high, ">")):
            if math.isinf(end):
                axes.plot([place], [row], marker=marker, color=BLUE, ms=7, clip_on=False, zorder=4)
        label = "fits that were found" if row == 0 else ""
        ends = ((each.lower_found, "least"), (each.upper_found, "largest"))
        for end, what in ends:
            if math.isfinite(end):
                (tick,) = axes.plot([end, end], [row - 0.32, row + 0.32], "-", color=INK, lw=1.2,
                                    label=label)  # fmt: skip
                text = f"{what} value of a fit that was found: {number(end, DIGITS)}"
                told.append(said_of_points(tick, "{0}", [[text]] * 2))
                label = ""
        if value is not None and math.isfinite(value):
            label = "A" if row == 0 else ""
            (point,) = axes.plot([value], [row], "o", color=RED, ms=5, label=label, zorder=5)
            told.append(said_of_points(point, "A: {0}", [[number(value, DIGITS)]]))
    axes.set_xlim(low, high)
    return told


def draw_range(axes: Any, interval: Interval, value: float | None) -> list[PointerValues]:
    """Draw one range on an axis of its own, with its numbers."""
    told = draw_ranges(axes, [interval], [value])
    plain_numbers(axes.xaxis)
    axes.xaxis.get_major_locator().set_params(nbins=6)
    axes.set(yticks=[], ylim=(0.55, -1.0))
    axes.spines[["top", "left", "right"]].set_visible(False)
    low, high = axes.get_xlim()
    ends = [min(max(end, low), high) for end in (interval.lower, interval.upper)]
    texts = [number(end, DIGITS) for end in (interval.lower, interval.upper)]
    places = [(end - low) / (high - low) for end in ends]
    sides = ["left", "right"]
    wide = 0.018 * max(map(len, texts))  # of the axis, about
    if places[1] - places[0] < 2.2 * wide:  # next to each other, around the middle of the bar
        middle = min(max(sum(places) / 2, wide + 0.01), 0.99 - wide)
        places, sides = [middle - 0.015, middle + 0.015], ["right", "left"]
    for text, place, side in zip(texts, places, sides, strict=True):
        axes.text(
            place, 0.74, text, transform=axes.transAxes, ha=side, va="bottom", color=INK,
            weight="bold", gid="end",
        )  # fmt: skip
    return told


def _known(each: Any) -> list[float]:
    """Return the ends of a range that are numbers."""
    ends = (each.lower, each.upper, each.lower_found, each.upper_found)
    return [end for end in ends if math.isfinite(end)]


def _span(ends: list[float], values: list[float | None]) -> tuple[float, float]:
    """Return from where to where the axis goes, with some room for arrows."""
    known = np.array([*ends, *(x for x in values if x is not None and math.isfinite(x))])
    if not known.size:
        return -1.0, 1.0
    low, high = float(known.min()), float(known.max())
    size = max(abs(low), abs(high))
    room = 0.08 * (high - low) if high - low > 1e-9 * size else 0.1 * size or 1.0
    return low - room, high + room
