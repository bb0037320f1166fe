"""How a result was reached, and what it leaves: the history and the residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadsense.core import theory
from quadsense.core.intervals import EPS
from quadsense.core.theory import residual_bound
from quadsense.methods import METHODS
from quadsense.plot.figures import (
    BLUE,
    FAINTEST,
    GREY,
    INK,
    PAPER,
    RED,
    PointerValues,
    canvas,
    color_bar,
    head,
    legend,
    new_figure,
    plain_decades,
    said_of_points,
    say,
    sized_colors,
    tick_text,
    tidy,
    whole,
)
from quadsense.plot.pictures import MOST_POINTS, ReadingsPicture, density_of, readings_of
from quadsense.result.result import Result
from quadsense.view.markup import number

NARROW = 2.5
"""Largest over smallest residual up to which an even scale shows more than decades do."""

FAR = 3.0
"""Ratio beyond which residuals outside of the tolerances are drawn by decades."""

NEAR = 0.05
"""Ratio up to which residuals are drawn without the tolerances, which are far outside."""

LARGEST = 1e300
"""Residual beyond which points are drawn there: axes have to end at a number."""

COLUMNS, LEVELS = 96, 54
"""Cells of a picture of many rows."""

FEW_POINTS = 300
"""Rows up to which points are larger."""

EVEN_STEPS = 200
"""Iterations up to which their axis is even."""

MIN_HISTOGRAM_ROWS = 30
"""Rows from which on a histogram of the residuals stands next to them."""

MIN_BINS, MAX_BINS = 10, 54
"""Bars of a histogram of residuals, about."""

MOST_STEPS = 400
"""Points of a history that are drawn."""


# --- residuals -------------------------------------------------------------------------------


def residuals(result: Result, *, title: str | None = None, ax: Any = None) -> Any:
    """Every residual in units of its tolerance, the worst row named, and how many are where.

    Parameters
    ----------
    result : Result
    title : str, optional
        Heading; how many are over by default.
    ax : matplotlib.axes.Axes, optional
        Where to draw, without the histogram; a new figure by default.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    1 and -1 are the ends of a row's interval, whatever its width. A row with one end, and an
    equality, is at 0 where it is met; beyond, it is as far out as its end is crossed. Without a
    tolerance the residuals themselves are drawn, between the smallest worst error that is proved
    of every matrix and that of this one. Of more than 1,500 rows the picture shows how many are
    where, and each of those over its tolerance as a point.
    """
    found = readings_of(result)
    if ax is None:
        figure = new_figure(7.0, 3.8)
        axes = draw_residuals(figure, found, proved_of(result))[0]
    else:
        figure, axes = canvas(ax, 7.0, 3.8)
        _draw_rows(axes, [axes], found, proved_of(result))
    over = int(np.count_nonzero(found.over))
    said = f"{over:,} of {found.size:,} over their tolerance" if found.target else "residuals"
    head(figure, axes, title or f"{result.status}: {said}", ax is not None)
    return figure


def draw_residuals(
    figure: Any, found: ReadingsPicture, proved: float
) -> tuple[Any, list[PointerValues]]:
    """Draw the rows, with a histogram where there are many, on an empty figure.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    found : ReadingsPicture
    proved : float
        What is proved of the worst error of every matrix; 0 without such a proof.

    Returns
    -------
    axes : matplotlib.axes.Axes
        Those of the rows.
    values : list of PointerValues
        Of the points.
    """
    if found.size < MIN_HISTOGRAM_ROWS:
        axes = figure.subplots()
        return axes, _draw_rows(axes, [axes], found, proved)
    axes, side = figure.subplots(1, 2, sharey=True, width_ratios=(1.0, 0.16))
    values = _draw_rows(axes, [axes, side], found, proved)
    _draw_histogram(side, axes, found)
    return axes, values


def proved_of(result: Result) -> float:
    """Return the worst error that every matrix has, where that is what was asked for."""
    claim = result.certificate
    least = result.verdict.asked == "least" and claim.kind == "optimal" and claim.objective is None
    return max(claim.lower_bound, 0.0) if least else 0.0


def residual_notes(found: ReadingsPicture) -> list[str]:
    """Say what a picture of residuals does not show by itself."""
    notes = []
    if found.one_sided.any() or found.exact.any():
        notes.append("a row of one end, or an equality, is at 0 where it is met")
    largest = _largest(found)
    if found.target and largest > FAR:
        notes.append("beyond ±1 the scale is logarithmic")
    elif found.target and largest < 1.0:
        notes.append("the tolerance is far outside the picture")
    return notes


def worst_words(found: ReadingsPicture) -> str:
    """Say which row is worst, and by how much."""
    worst = found.worst
    size, ratio = number(abs(float(found.residuals[worst])), 3), float(found.ratios[worst])
    words = f"{number(abs(ratio), 3)} × tolerance" if found.target else size
    if found.exact[worst] or found.one_sided[worst]:
        words = f"missed by {size}" if ratio else "met"
    return f"row {worst:,}: {words}"


def _draw_rows(
    axes: Any, room: list[Any], found: ReadingsPicture, proved: float
) -> list[PointerValues]:
    """Draw each row at its residual; `room` are the axes that make room for a color bar."""
    tidy(axes)
    _set_heights(axes, found)
    if found.target:
        low, high = axes.get_ylim()  # the figures of a report have no clips
        axes.axhspan(max(low, -1.0), min(high, 1.0), color=BLUE, alpha=0.07, lw=0)
        for end in (end for end in (-1.0, 1.0) if low <= end <= high):
            axes.axhline(end, color=INK, lw=0.8, ls="--")
    else:
        axes.axhline(0.0, color=GREY, lw=0.8)
        for sign in (1.0, -1.0) if proved > 0.0 else ():
            label = f"every matrix errs by {number(proved, 3)} or more, proved" if sign > 0 else ""
            axes.axhline(sign * proved, color=INK, lw=0.8, ls="--", label=label)
    axes.set_xlim(-0.02 * found.size - 0.5, 1.02 * found.size - 0.5)
    inside = "within tolerance" if found.target else ""
    values = []
    if found.size > MOST_POINTS:
        _draw_density(axes, room, found)
    else:
        plain = np.flatnonzero(~(found.over | found.aside))
        values += _draw_points(axes, found, plain, BLUE, inside)
    for mask, color, label in ((found.over, RED, "over"), (found.aside, GREY, "set aside")):
        some = np.flatnonzero(mask)
        some = some[np.argsort(-np.abs(found.ratios[some]), kind="stable")[:MOST_POINTS]]
        values += _draw_points(axes, found, some, color, label)
    _name_worst(axes, found)
    axes.set(xlabel="row", ylabel="residual / tolerance" if found.target else "residual")
    whole(axes.xaxis, found.size)
    if found.size > 2:
        axes.xaxis.get_major_locator().set_params(nbins=6)
    if found.over.any() or found.aside.any() or proved > 0.0:
        legend(axes, loc="upper right", ncols=3, borderaxespad=0.1, columnspacing=1.0)
    return values


def _draw_points(
    axes: Any, found: ReadingsPicture, rows: Any, color: str, label: str
) -> list[PointerValues]:
    """Draw some rows as points."""
    if not rows.size:
        return []
    heights = np.clip(found.ratios[rows], -LARGEST, LARGEST)
    size = 4.2 if found.size <= FEW_POINTS else 3.0
    (points,) = axes.plot(rows, heights, "o", color=color, ms=size, mew=0.0, label=label)
    say_row = "row {0}: {1} × tolerance" if found.target else "row {0}: {1}"
    told = [(f"{row:,}", number(float(found.ratios[row]), 3)) for row in rows]
    return [said_of_points(points, say_row, told)]


def _largest(found: ReadingsPicture) -> float:
    """Return how far the axis has to go."""
    sizes = np.abs(found.ratios[np.isfinite(found.ratios)])
    largest = min(float(np.max(sizes, initial=0.0)), LARGEST)
    if found.target and not 0.0 < largest < NEAR:
        largest = max(largest, 1.0)
    return largest


def _set_heights(axes: Any, found: ReadingsPicture) -> None:
    """Choose an even scale, or one by decades where a row is far out; a legend has room above."""
    largest = _largest(found) or 1.0
    if found.target and largest > FAR:
        axes.set_yscale("symlog", linthresh=1.0)
        tens = range(1, math.ceil(math.log10(largest)) + 1)
        step = 1 + len(tens) // 4
        sizes = [1.0, *([3.0] * (len(tens) < 2)), *(10.0**k for k in tens if k % step == 0)]
        axes.set_yticks([-size for size in reversed(sizes)] + [0.0, *sizes], minor=False)
        axes.set_yticks([], minor=True)
        axes.yaxis.set_major_formatter(lambda x, _: tick_text(x))
        axes.set_ylim(-4.0 * largest, 5.0 * largest)
    else:
        axes.set_ylim(-1.25 * largest, 1.35 * largest)


def _even_heights(axes: Any, count: int) -> Any:
    """Return `count` heights that are evenly spaced on the page, as numbers."""
    transform = axes.yaxis.get_transform()
    low, high = transform.transform(np.array(axes.get_ylim()))
    return np.asarray(transform.inverted().transform(np.linspace(low, high, count)))


def _draw_density(axes: Any, room: list[Any], found: ReadingsPicture) -> None:
    """Draw how many rows are where, on cells that are even to the eye."""
    counts = density_of(found.ratios, COLUMNS, _even_heights(axes, LEVELS + 1))
    most = max(float(counts.max()), 2.0)
    x = axes.transData.transform([(-0.5, 0.0), (found.size - 0.5, 0.0)])
    left, right = axes.transAxes.inverted().transform(x)[:, 0]
    image = axes.imshow(
        np.ma.masked_equal(counts, 0), extent=(left, right, 0.0, 1.0), transform=axes.transAxes,
        aspect="auto", cmap=sized_colors(FAINTEST, color=BLUE), vmin=1.0, vmax=most,
        interpolation="none",
    )  # fmt: skip
    bar = color_bar(image, room, "rows per cell", below=True)
    bar.ax.xaxis.get_major_locator().set_params(integer=True)


def _draw_histogram(axes: Any, rows: Any, found: ReadingsPicture) -> None:
    """Draw how many rows are at each height; `rows` are the axes to the left."""
    tidy(axes)
    axes.tick_params(labelleft=False, left=False)
    bins = min(max(int(math.sqrt(found.size)), MIN_BINS), MAX_BINS)
    edges = _even_heights(rows, bins + 1)
    if found.target and edges[-1] > 1.0:  # 1 and -1 are between bars
        middle = (edges[1:] + edges[:-1]) / 2
        each = max(int(np.count_nonzero(np.abs(middle) < 1.0)) // 2, 1)
        if rows.get_yscale() == "linear":
            side = math.ceil(edges[-1] * each)
            edges = np.clip(np.arange(-side, side + 1) / each, *rows.get_ylim())
        else:  # bars beyond 1 and -1 would stand for more than those within
            edges = np.linspace(-1.0, 1.0, 2 * each + 1)
    known = found.ratios[np.isfinite(found.ratios)]
    counts = np.histogram(known, edges)[0]
    some = counts > 0
    middle, high = (edges[1:] + edges[:-1]) / 2, 0.9 * np.diff(edges)
    color = np.where(found.target & (np.abs(middle) > 1.0), RED, BLUE)
    axes.barh(middle[some], counts[some], height=high[some], color=color[some], alpha=0.7)
    axes.set(xlabel="rows", xlim=(0.0, 1.05 * max(int(counts.max()), 1)))
    axes.set_xticks([max(int(counts.max()), 1)])


def _name_worst(axes: Any, found: ReadingsPicture) -> None:
    """Ring the worst row and name it."""
    worst = found.worst
    height = float(found.ratios[worst])
    if not np.isfinite(height):
        return
    height = min(max(height, -LARGEST), LARGEST)
    axes.plot([worst], [height], "o", mfc="none", mec=INK, mew=1.0, ms=8, zorder=4)
    third = min(3 * worst // found.size, 2)  # the words stay within the axes
    shift, side = ((9, "left"), (0, "center"), (-9, "right"))[third]
    away = 6 if third != 1 else 9
    axes.annotate(
        worst_words(found),
        (worst, height),
        xytext=(shift, away if height >= 0.0 else -away - 6),
        textcoords="offset points",
        ha=side,
        fontsize="small",
        color=INK,
        bbox={"boxstyle": "round,pad=0.15", "fc": PAPER, "ec": "none", "alpha": 0.8},
        zorder=5,
    )


# --- history ---------------------------------------------------------------------------------


def history(result: Result, *, title: str | None = None) -> Any:
    """Max residual and log potential over iterations, with the paper's bound drawn in.

    Parameters
    ----------
    result : Result
        Of `solve` or `solve_spectral`.
    title : str, optional
        Heading; the method and status by default.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    The potential is drawn of methods that have one, `gd` and `sgd`. The lemma's bound on it is
    drawn where it holds: with ``schedule="paper"`` on rows that meet its assumptions, from the
    start's potential on. The left panel shows what it implies for the worst residual,
    ``arccosh(Phi)/lam``. Without a tolerance the residual itself is shown, and what is proved of
    every matrix.
    """
    past = result.history
    potential = len(past) > 0 and bool(np.isfinite(past.log_potential).any())
    figure = new_figure(9.0 if potential else 6.0, 3.6)
    panels = figure.subplots(1, 2) if potential else [figure.subplots()]
    figure.suptitle(title or f"{result.plan.get('method', '')}: {result.status}", fontsize=11)
    tidy(*panels)
    if not has_progress(result):
        say(panels[0], "no iterations" if not len(past) else "nothing was left to do")
        return figure
    draw_progress(panels[0], result)
    if potential:
        steps = _steps(result)
        panels[1].plot(steps, past.log_potential, color=RED, label="log potential", marker=".",
                       markersize=3)  # fmt: skip
        panels[1].set(ylabel="log potential")
        if _fixed(result) and result.plan.get("lemma"):
            _draw_bound(panels, result, steps)
        _set_steps(panels[1], result)
    for panel in panels:
        legend(panel)
    return figure


def progress_of(result: Result) -> Any:
    """Return the worst residual of each recorded step, in tolerances where there are any."""
    least = result.verdict.asked == "least"
    past = result.history
    return np.asarray(past.max_residual if least else past.max_ratio, dtype=np.float64)


def has_progress(result: Result) -> bool:
    """Return whether there is a residual to draw."""
    values = progress_of(result)
    return bool(np.any(np.isfinite(values) & (values > 0.0)))


def draw_progress(axes: Any, result: Result) -> list[PointerValues]:
    """Draw the worst residual over the iterations."""
    values, steps = progress_of(result), _steps(result)
    least = result.verdict.asked == "least"
    what = "worst residual" if least else "worst residual / tolerance"
    known = np.flatnonzero(np.isfinite(values))
    if known.size > MOST_STEPS:
        known = known[np.unique(np.linspace(0, known.size - 1, MOST_STEPS).astype(np.int64))]
    heights, positive = values[known], values[known][values[known] > 0.0]
    if positive.size:  # by decades a residual of 0 is where rounding begins
        lowest = min(float(positive.min()), EPS * float(positive.max()))
        heights = np.where(heights > 0.0, heights, lowest)
    (line,) = axes.plot(steps[known], heights, color=BLUE, label=what, marker="o", ms=2.5, mew=0)
    proved = result.certificate.lower_bound
    if not least:
        axes.axhline(1.0, color=INK, lw=0.8, ls="--", label="tolerance")
    elif proved > 0.0:
        axes.axhline(proved, color=INK, lw=0.8, ls="--", label="of every matrix, proved")
    axes.set(ylabel=what)
    _set_steps(axes, result)
    low, high = axes.get_ylim()
    if low <= 0.0 or high > NARROW * low:
        axes.set_yscale("log")
        plain_decades(axes.yaxis)
    legend(axes)
    told = [
        (f"{int(step):,}", number(float(value)))
        for step, value in zip(result.history.iteration[known], values[known], strict=True)
    ]
    return [said_of_points(line, f"iteration {{0}}: {what} {{1}}", told)]


def _fixed(result: Result) -> bool:
    """Return whether all steps were alike."""
    past = result.history
    return len(past) > 1 and np.ptp(past.lam) == 0.0 and np.ptp(past.step) == 0.0


def _even_steps(result: Result) -> bool:
    """Return whether the axis of steps is even.

    Fixed steps move evenly; with continuation the first few iterations do most of the work.
    """
    return _fixed(result) or bool(result.history.iteration[-1] <= EVEN_STEPS)


def _steps(result: Result) -> Any:
    """Return where on the axis the recorded steps are."""
    past = result.history
    return past.iteration if _even_steps(result) else np.maximum(past.iteration, 0.5)


def _set_steps(axes: Any, result: Result) -> None:
    """Set the axis of steps."""
    axes.set(xlabel="iteration")
    if _even_steps(result):
        axes.xaxis.get_major_locator().set_params(integer=True)
    else:
        axes.set_xscale("log")
        plain_decades(axes.xaxis)


def _draw_bound(panels: Any, result: Result, x: Any) -> None:
    """Draw the lemma's bound on the potential, and what it implies."""
    past, (left, right) = result.history, panels
    m, lam, step = int(np.size(result.residuals)), float(past.lam[0]), float(past.step[0])
    bound = theory.potential_bound(
        past.iteration, log_potential=float(past.log_potential[0]), m=m, lam=lam, step=step
    )
    method = result.plan["method"]
    random = method in METHODS and METHODS.traits(method).random
    expected = ", in expectation" if random else ""
    right.plot(x, bound, color=GREY, lw=1.2, label=f"bound ({result.plan['lemma']}{expected})")
    sharpness = float(past.sharpness[0])
    implied = np.array([residual_bound(float(value), sharpness) for value in bound])
    left.plot(x, implied, color=GREY, lw=1.2, label="implied by the bound")
