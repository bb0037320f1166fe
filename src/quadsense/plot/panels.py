"""The panels of all figures, each drawn on axes that are given: by `quadsense.plot` and by reports.

A panel returns what a page's script shows where the pointer is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadsense.core import theory
from quadsense.core.intervals import EPS
from quadsense.methods import METHODS
from quadsense.plot.pictures import (
    MOST_CELLS,
    MOST_POINTS,
    Coherences,
    Patch,
    ReadingsPicture,
    SpectrumPicture,
    density_of,
    rounding_of,
)
from quadsense.plot.style import (
    BLUE,
    DOTS,
    EDGE,
    GREY,
    INK,
    LIMIT,
    MAX_TICKS,
    PALE,
    PAPER,
    RED,
    RING,
    ROOM,
    STRONG,
    ZERO,
    PointerValues,
    color_bar,
    legend,
    plain_decades,
    said_of_points,
    say,
    signed_colors,
    sized_colors,
    tick_text,
    tidy,
    whole,
)
from quadsense.ranges import Interval
from quadsense.result.result import Result
from quadsense.view import FINE, ROUGH, number

FAR = 3.0
"""Ratio of two values from which on their axis is logarithmic."""

MANY_DECADES = 100.0
"""The same for eigenvalues, of which the small ones matter less."""

NEAR = 0.05
"""Ratio up to which residuals are drawn without the tolerances, which are far outside."""

LARGEST = 1e200
"""Residual beyond which points are drawn there: axes have to end at a number."""

COLUMNS, LEVELS = 96, 54
"""Cells of a picture of many rows, and bars of a histogram, at most."""

EVEN_STEPS = 200
"""Iterations up to which their axis is even."""

MIN_HISTOGRAM_ROWS = 30
"""Rows from which on a histogram of the residuals stands next to them."""

MAX_CODE = 9999
"""The largest entry of a matrix as the script gets it: four digits relative to that."""

PARTS: dict[str, tuple[str, Any]] = {
    "real": ("real parts", np.real), "imag": ("imaginary parts", np.imag), "abs": ("moduli", np.abs)
}  # fmt: skip
"""What of the entries is shown: its name, and the function that takes it."""


# --- residuals -------------------------------------------------------------------------------


def draw_residuals(
    figure: Any, found: ReadingsPicture, proved: float, ax: Any = None
) -> list[PointerValues]:
    """Draw the rows, with a histogram where there are many and the axes are not given.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Empty unless `ax` is given.
    found : ReadingsPicture
    proved : float
        What is proved of the worst error of every matrix; 0 without such a proof.
    ax : matplotlib.axes.Axes, optional
        Where to draw the rows.
    """
    if ax is not None or found.size < MIN_HISTOGRAM_ROWS:
        axes = figure.subplots() if ax is None else ax
        return _draw_rows(axes, [axes], found, proved)
    axes, side = figure.subplots(1, 2, sharey=True, width_ratios=(1.0, PALE))
    values = _draw_rows(axes, [axes, side], found, proved)
    _draw_histogram(side, axes, found)
    return values


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
    size, ratio = number(abs(float(found.residuals[worst])), ROUGH), float(found.ratios[worst])
    words = f"{number(abs(ratio), ROUGH)} × tolerance" if found.target else size
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
        axes.axhspan(max(low, -1.0), min(high, 1.0), color=BLUE, alpha=0.5 * PALE, lw=0)
        for end in (end for end in (-1.0, 1.0) if low <= end <= high):
            axes.axhline(end, **LIMIT)
    else:
        axes.axhline(0.0, **ZERO)
        for sign in (1.0, -1.0) if proved > 0.0 else ():
            words = f"every matrix errs by {number(proved, ROUGH)} or more, proved"
            axes.axhline(sign * proved, **LIMIT, label=words if sign > 0.0 else "")
    edge = EDGE * found.size + 0.5
    axes.set_xlim(-edge, found.size - 1 + edge)
    values = []
    if found.size > MOST_POINTS:
        _draw_density(axes, room, found)
    else:
        plain = np.flatnonzero(~(found.over | found.aside))
        values += _draw_points(axes, found, plain, BLUE, "within tolerance" if found.target else "")
    for mask, color, label in ((found.over, RED, "over"), (found.aside, GREY, "set aside")):
        some = np.flatnonzero(mask)
        some = some[np.argsort(-np.abs(found.ratios[some]), kind="stable")[:MOST_POINTS]]
        values += _draw_points(axes, found, some, color, label)
    _name_worst(axes, found)
    axes.set(xlabel="row", ylabel="residual / tolerance" if found.target else "residual")
    whole(axes.xaxis, found.size)
    if found.over.any() or found.aside.any() or proved > 0.0:
        legend(axes, above=True)
    return values


def _draw_points(
    axes: Any, found: ReadingsPicture, rows: Any, color: str, label: str
) -> list[PointerValues]:
    """Draw some rows as points."""
    if not rows.size:
        return []
    heights = np.clip(found.ratios[rows], -LARGEST, LARGEST)
    (points,) = axes.plot(rows, heights, ls="", **DOTS, color=color, label=label)
    say_row = "row {0}: {1} × tolerance" if found.target else "row {0}: {1}"
    told = [(f"{row:,}", number(float(found.ratios[row]), ROUGH)) for row in rows]
    return [said_of_points(points, say_row, told)]


def _largest(found: ReadingsPicture) -> float:
    """Return how far the axis has to go."""
    sizes = np.abs(found.ratios[np.isfinite(found.ratios)])
    largest = min(float(np.max(sizes, initial=0.0)), LARGEST)
    if found.target and not 0.0 < largest < NEAR:
        largest = max(largest, 1.0)
    return largest


def _set_heights(axes: Any, found: ReadingsPicture) -> None:
    """Choose an even scale, or one by decades where a row is far out; words have room above."""
    largest = _largest(found) or 1.0
    if found.target and largest > FAR:
        axes.set_yscale("symlog", linthresh=1.0)
        decades = math.ceil(math.log10(largest))
        sizes = np.logspace(0, decades, decades + 1)[:: 1 + decades // MAX_TICKS]
        axes.set_yticks([*-sizes[::-1], 0.0, *sizes], minor=False)
        axes.set_yticks([], minor=True)
        axes.yaxis.set_major_formatter(lambda x, _: tick_text(x))
    transform = axes.yaxis.get_transform()
    ends = ROOM * transform.transform(np.array([-largest, largest]))
    axes.set_ylim(*transform.inverted().transform(ends))


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
        aspect="auto", cmap=sized_colors(PALE, color=BLUE), vmin=1.0, vmax=most,
        interpolation="none",
    )  # fmt: skip
    bar = color_bar(image, room, "rows per cell", below=True)
    bar.ax.xaxis.get_major_locator().set_params(integer=True)


def _draw_histogram(axes: Any, rows: Any, found: ReadingsPicture) -> None:
    """Draw how many rows are at each height; `rows` are the axes to the left."""
    tidy(axes)
    axes.tick_params(labelleft=False, left=False)
    edges = _even_heights(rows, 1 + min(2 * math.isqrt(found.size), LEVELS))
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
    some, most = counts > 0, max(int(counts.max()), 1)
    middle, high = (edges[1:] + edges[:-1]) / 2, STRONG * np.diff(edges)
    color = np.where(found.target & (np.abs(middle) > 1.0), RED, BLUE)
    axes.barh(middle[some], counts[some], height=high[some], color=color[some], alpha=STRONG)
    axes.set(xlabel="rows", xlim=(0.0, (1.0 + EDGE) * most), xticks=[most])


def _name_worst(axes: Any, found: ReadingsPicture) -> None:
    """Ring the worst row and name it."""
    worst = found.worst
    height = float(found.ratios[worst])
    if not np.isfinite(height):
        return
    height = min(max(height, -LARGEST), LARGEST)
    axes.plot([worst], [height], "o", mfc="none", mec=INK, ms=RING)
    third = min(3 * worst // found.size, 2)  # the words stay within the axes
    above = height >= 0.0
    axes.annotate(
        worst_words(found),
        (worst, height),
        xytext=(0.0, RING if above else -RING),
        textcoords="offset points",
        ha=("left", "center", "right")[third],
        va="bottom" if above else "top",
        fontsize="small",
        color=INK,
        bbox={"boxstyle": "round,pad=0.1", "fc": PAPER, "ec": "none", "alpha": STRONG},
    )


# --- history ---------------------------------------------------------------------------------


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
    tidy(axes)
    values, steps = progress_of(result), _steps(result)
    least = result.verdict.asked == "least"
    what = "worst residual" if least else "worst residual / tolerance"
    known = np.flatnonzero(np.isfinite(values))
    if known.size > MOST_POINTS:
        known = known[np.unique(np.linspace(0, known.size - 1, MOST_POINTS).astype(np.int64))]
    heights, positive = values[known], values[known][values[known] > 0.0]
    if positive.size:  # by decades a residual of 0 is where rounding begins
        lowest = min(float(positive.min()), EPS * float(positive.max()))
        heights = np.where(heights > 0.0, heights, lowest)
    (line,) = axes.plot(steps[known], heights, **DOTS, color=BLUE, label=what)
    proved = result.certificate.lower_bound
    if not least:
        axes.axhline(1.0, **LIMIT, label="tolerance")
    elif proved > 0.0:
        axes.axhline(proved, **LIMIT, label="of every matrix, proved")
    axes.set(ylabel=what)
    _set_steps(axes, result)
    low, high = axes.get_ylim()
    if low <= 0.0 or high > FAR * low:
        axes.set_yscale("log")
        plain_decades(axes.yaxis)
    legend(axes)
    told = [
        (f"{int(step):,}", number(float(value)))
        for step, value in zip(result.history.iteration[known], values[known], strict=True)
    ]
    return [said_of_points(line, f"iteration {{0}}: {what} {{1}}", told)]


def draw_potential(axes: Any, progress: Any, result: Result) -> None:
    """Draw the log potential; where the lemma holds its bound, and on `progress` what it implies.

    Parameters
    ----------
    axes, progress : matplotlib.axes.Axes
        Where to draw, and the panel of `draw_progress`.
    result : Result
        Of a method that has a potential.
    """
    tidy(axes)
    past, steps = result.history, _steps(result)
    axes.plot(steps, past.log_potential, **DOTS, color=RED, label="log potential")
    axes.set(ylabel="log potential")
    if _fixed(result) and result.plan.get("lemma"):
        m, lam, step = int(np.size(result.residuals)), float(past.lam[0]), float(past.step[0])
        bound = theory.potential_bound(
            past.iteration, log_potential=float(past.log_potential[0]), m=m, lam=lam, step=step
        )
        method = result.plan["method"]
        random = method in METHODS and METHODS.traits(method).random
        expected = ", in expectation" if random else ""
        axes.plot(steps, bound, color=GREY, label=f"bound ({result.plan['lemma']}{expected})")
        sharpness = float(past.sharpness[0])
        implied = np.array([theory.residual_bound(float(value), sharpness) for value in bound])
        progress.plot(steps, implied, color=GREY, label="implied by the bound")
    _set_steps(axes, result)
    legend(axes)
    legend(progress)


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


# --- matrices --------------------------------------------------------------------------------


def draw_entries(axes: Any, patch: Patch, part: str, label: str = "") -> list[PointerValues]:
    """Draw entries as colors: red is positive, blue negative, 0 is the color of the paper.

    Real and imaginary parts of a matrix have one scale, that of the largest entry of either.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    patch : Patch
    part : {"real", "imag", "abs"}
    label : str
        Of the color bar.

    Returns
    -------
    list of PointerValues
        The entries, of a matrix that is not too large.
    """
    values = PARTS[part][1](patch.values)
    both = np.abs(values) if part == "abs" else np.stack([patch.values.real, patch.values.imag])
    largest = float(np.max(np.abs(both), initial=0.0)) or 1.0
    signed = {"cmap": signed_colors(), "vmin": -largest, "vmax": largest}
    sized = {"cmap": sized_colors(), "vmin": 0.0, "vmax": largest}
    colors = signed if (both < 0.0).any() else sized
    image = _draw_cells(axes, values, label, patch.order, bool(patch.how), **colors)
    if len(values) > MOST_CELLS // 2 or patch.how or part == "abs":  # a page stays small
        return []
    with np.errstate(under="ignore"):
        codes = np.rint(values / largest * MAX_CODE).astype(np.int64)
    lower = codes[np.tril_indices(len(codes))]
    name = "A" if not np.iscomplexobj(patch.values) else {"real": "Re A", "imag": "Im A"}[part]
    told = {
        "data_order": len(values), "data_unit": repr(largest / MAX_CODE),
        "data_mirror": -1 if part == "imag" else 1, "data_name": name,
        "data_cells": " ".join(map(str, lower.tolist())),
    }  # fmt: skip
    return [PointerValues(image, told)]


def draw_coherences(axes: Any, found: Coherences) -> None:
    """Draw how alike probes are, as colors."""
    some = found.rows.size < found.m
    cells = {"cmap": sized_colors(color=BLUE), "vmin": 0.0, "vmax": 1.0}
    _draw_cells(axes, found.values, "", found.m, some, **cells)
    how = f"{found.rows.size:,} of {found.m:,} rows, evenly spaced" if some else "all rows"
    axes.set_title(how, fontsize="small")


def _draw_cells(axes: Any, values: Any, label: str, order: int, some: bool, **colors: Any) -> Any:
    """Draw a matrix as colors with their bar; the axes are numbered unless `some` are left out."""
    image = axes.imshow(values, interpolation="none", **colors)
    color_bar(image, axes, label)
    if some:
        axes.set(xticks=[], yticks=[])
    else:
        whole(axes.xaxis, order)
        whole(axes.yaxis, order)
    return image


def draw_spectrum(axes: Any, spectrum: SpectrumPicture) -> list[PointerValues]:
    """Draw eigenvalues in order, by decades where they differ much.

    By decades, those that are 0 to rounding are left out.
    """
    tidy(axes)
    values, order = spectrum.values, np.arange(1, spectrum.values.size + 1)
    told = np.abs(values) > rounding_of(values)
    sizes = np.abs(values[told])
    decades = bool(sizes.size) and float(sizes.max()) > MANY_DECADES * float(sizes.min())
    if decades:
        values, order = values[told], order[told]
        axes.set(yscale="log", ylabel="modulus")
        plain_decades(axes.yaxis)
    else:
        axes.axhline(0.0, **ZERO)
        axes.set(ylabel="value")
    heights = np.abs(values) if decades else values
    negative = values < 0.0
    found = []
    for mask, color, label in ((~negative, RED, "positive"), (negative, BLUE, "negative")):
        if mask.any():
            (points,) = axes.plot(
                order[mask], heights[mask], ls="", **DOTS, color=color, label=label
            )
            texts = [
                (str(k), number(float(value), FINE))
                for k, value in zip(order[mask], values[mask], strict=True)
            ]
            found.append(said_of_points(points, "eigenvalue {0}: {1}", texts))
    if negative.any() and not negative.all():
        legend(axes)
    axes.set(xlabel="eigenvalue", xlim=(0.5, spectrum.values.size + 0.5))
    if spectrum.values.size <= 2:
        axes.set_xticks(range(1, spectrum.values.size + 1))
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
    return found


def spectrum_note(spectrum: SpectrumPicture) -> str:
    """Say which eigenvalues are 0, and which were not computed."""
    values = spectrum.values
    zeros = int(np.count_nonzero(np.abs(values) <= rounding_of(values)))
    rounded = f"{zeros:,} of {values.size:,} are 0 to rounding" if zeros else ""
    return "; ".join(part for part in (rounded, spectrum.how) if part)


def draw_sizes(axes: Any, found: Coherences) -> str:
    """Draw how often each coherence of two rows comes, and return the largest in words."""
    tidy(axes)
    apart = found.apart
    if not apart.size:
        say(axes, "one row")
        return "one row"
    largest, limit = float(apart.max()), theory.coherence_limit(found.m)
    axes.hist(apart, bins=LEVELS, range=(0.0, max(largest, 2.0 * limit)), color=BLUE, alpha=STRONG)
    axes.axvline(limit, **LIMIT, label=f"the paper's 1/(10m) = {limit:.3g}")
    legend(axes)
    axes.locator_params(axis="x", nbins=MAX_TICKS)
    axes.set(xlabel="between different rows", ylabel="pairs")
    return f"coherence {largest:.3g}" + (" of these rows" if found.rows.size < found.m else "")


# --- ranges ----------------------------------------------------------------------------------


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
    tidy(axes)
    low, high = _span([end for each in intervals for end in _known(each)], values)
    told, reach = [], 0.5 * ROOM * 0.5  # a little beyond the bar
    for row, (each, value) in enumerate(zip(intervals, values, strict=True)):
        left, right = max(each.lower, low), min(each.upper, high)
        given = bool(each.lower_condition or each.upper_condition)
        alpha = PALE if given else 0.5
        axes.barh(row, right - left, left=left, height=0.5, color=BLUE, alpha=alpha)
        for end, place, marker in ((each.lower, low, "<"), (each.upper, high, ">")):
            if math.isinf(end):
                axes.plot([place], [row], marker=marker, color=BLUE, ms=RING, clip_on=False)
        label = "fits that were found" if row == 0 else ""
        ends = ((each.lower_found, "least"), (each.upper_found, "largest"))
        for end, what in ends:
            if math.isfinite(end):
                (tick,) = axes.plot([end, end], [row - reach, row + reach], color=INK, label=label)
                text = f"{what} value of a fit that was found: {number(end, FINE)}"
                told.append(said_of_points(tick, "{0}", [[text]] * 2))
                label = ""
        if value is not None and math.isfinite(value):
            label = "A" if row == 0 else ""
            (point,) = axes.plot([value], [row], ls="", **DOTS, color=RED, label=label)
            told.append(said_of_points(point, "A: {0}", [[number(value, FINE)]]))
    axes.set_xlim(low, high)
    axes.grid(visible=False, axis="y")
    return told


def draw_range(axes: Any, interval: Interval, value: float | None) -> list[PointerValues]:
    """Draw one range on an axis of its own, with its numbers above."""
    told = draw_ranges(axes, [interval], [value])
    axes.locator_params(axis="x", nbins=MAX_TICKS)
    axes.set(yticks=[], ylim=(0.5, -0.5))
    axes.spines[["top", "left", "right"]].set_visible(False)
    for end, place, side in ((interval.lower, 0.0, "left"), (interval.upper, 1.0, "right")):
        axes.text(
            place, 1.0, number(end, FINE), transform=axes.transAxes, ha=side, va="bottom",
            color=INK, weight="bold", gid="end",
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
    room = NEAR * (high - low) if high - low > math.sqrt(EPS) * size else NEAR * size or 1.0
    return low - room, high + room
