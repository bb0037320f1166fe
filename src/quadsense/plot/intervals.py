"""Certified ranges, one per line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadsense.plot.style import BLUE, INK, RED, canvas, head, tidy
from quadsense.view.pictures import labelled, matrix_of, value_of


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
    values = {
        name: None if marked is None else value_of(each, marked) for name, each in named.items()
    }
    low, high = _span([end for each in named.values() for end in _known(each)], values)
    for row, (name, each) in enumerate(named.items()):
        left, right = max(each.lower, low), min(each.upper, high)
        given = bool(each.lower_condition or each.upper_condition)
        axes.barh(row, right - left, left=left, height=0.5, color=BLUE, alpha=0.2 if given else 0.5)
        for end, place, marker in ((each.lower, low, "<"), (each.upper, high, ">")):
            if math.isinf(end):
                axes.plot([place], [row], marker=marker, color=BLUE, ms=7, clip_on=False, zorder=4)
        found = [x for x in (each.lower_found, each.upper_found) if math.isfinite(x)]
        label = "fits that were found" if row == 0 else None
        axes.plot(found, [row] * len(found), "|", color=INK, ms=13, mew=1.2, label=label)
        if values[name] is not None:
            label = "A" if row == 0 else None
            axes.plot([values[name]], [row], "o", color=RED, ms=5, label=label, zorder=5)
    axes.set_xlim(low, high)
    axes.set_ylim(len(named) - 0.4, -0.6)
    axes.set(yticks=range(len(named)), yticklabels=list(named), xlabel="over all fits")
    axes.tick_params(axis="y", length=0, pad=9)
    axes.grid(visible=False, axis="y")
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0),
            borderaxespad=0.0,
        )  # fmt: skip
    head(figure, axes, title or "certified intervals", ax is not None)
    return figure


def _known(each: Any) -> list[float]:
    ends = (each.lower, each.upper, each.lower_found, each.upper_found)
    return [end for end in ends if math.isfinite(end)]


def _span(ends: list[float], values: dict[str, float | None]) -> tuple[float, float]:
    """From where to where, with some room for arrows."""
    known = np.array([*ends, *(x for x in values.values() if x is not None)])
    if not known.size:
        return -1.0, 1.0
    low, high = float(known.min()), float(known.max())
    size = max(abs(low), abs(high))
    room = 0.08 * (high - low) if high - low > 1e-9 * size else 0.1 * size or 1.0
    return low - room, high + room
