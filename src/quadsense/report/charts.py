"""Pictures of how a report's result was reached, and of what it leaves: progress, residuals."""

from __future__ import annotations

import math

import numpy as np

from quadsense.arrays import Vector
from quadsense.report.chart import RIGHT, WIDTH, Chart, left_of
from quadsense.report.scales import Scale, even_scale, log_scale
from quadsense.result.result import Result
from quadsense.view.markup import Markup, element, number
from quadsense.view.pictures import (
    MOST_POINTS,
    ReadingsPicture,
    density_of,
)
from quadsense.view.pixels import count_image

MOST_STEPS = 400
"""Points of a history that are drawn."""

COLUMNS, LEVELS = 96, 54
"""Cells of a picture of many residuals."""

NARROW = 2.5
"""Largest over smallest residual up to which an even scale shows more than decades do."""

FAR = 3.0
"""Ratio beyond which residuals outside the band are drawn by decades."""

NEAR = 0.05
"""Ratio up to which residuals are drawn without the tolerance, which is far outside."""

MIN_HISTOGRAM_ROWS = 30
"""Rows from which on a histogram of the residuals stands next to them."""

HISTOGRAM_WIDTH = 52.0
"""In units of the drawing: room for the label of the largest count."""

MIN_BINS, MAX_BINS = 10, 54
"""Bars of a histogram of residuals, about."""

MANY_POINTS = 300
"""Rows from which on points are smaller."""


def history_chart(result: Result) -> Markup | None:
    """The worst residual in tolerances over the iterations; None where no history was kept."""
    past, least = result.history, result.verdict.asked == "least"
    values = np.asarray(past.max_residual if least else past.max_ratio, dtype=np.float64)
    known = np.flatnonzero(np.isfinite(values))
    if known.size < 2 or np.ptp(values[known]) == 0.0:
        return None  # nothing to see
    if known.size > MOST_STEPS:
        known = known[np.unique(np.linspace(0, known.size - 1, MOST_STEPS).astype(np.int64))]
    values, steps = values[known], past.iteration[known].astype(np.float64)
    ends = values if least else np.append(values, 1.0)
    what = "worst residual" if least else "worst residual / tolerance"
    narrow = 0.0 < ends.max() <= NARROW * ends.min()
    y = (even_scale if narrow else log_scale)(ends, *Chart.up())
    left = left_of(y)
    x = (
        log_scale(np.maximum(steps, 1.0), *Chart.across(left))
        if steps[-1] > 200
        else Scale("linear", 0.0, max(float(steps[-1]), 1.0), *Chart.across(left), whole=True)
    )
    chart = Chart(x, y, ("iteration", what), left=left)
    if not least:
        chart.level(1.0, "limit")
    at = np.maximum(steps, x.low)
    texts = [(f"{int(k):,}", number(float(v))) for k, v in zip(steps, values, strict=True)]
    chart.line(at, values, "main", f"iteration {{0}}: {what} {{1}}", texts)
    if steps.size <= 60:
        chart.dots(at, values, "main")
    said = (
        f"From {number(values[0], 3)} to {number(values[-1], 3)} in {int(steps[-1]):,} iterations."
    )
    return chart.svg(f"{what.capitalize()} over the iterations", said)


def residual_chart(readings: ReadingsPicture, proved: float = 0.0) -> Markup:
    """Draw residuals in tolerances, row by row, and how many are where.

    Without tolerances, `proved` is the worst error that every matrix has, if there is one.
    """
    ratios, m = readings.ratios, readings.size
    room = HISTOGRAM_WIDTH + 14.0 if m >= MIN_HISTOGRAM_ROWS else 0.0
    y = _heights(readings)
    left = left_of(y)
    x = Scale("linear", -0.5, m - 0.5, *Chart.across(left, RIGHT + room), whole=True)
    what = "residual / tolerance" if readings.target else "residual"
    chart = Chart(x, y, ("row", what), left=left)
    if readings.target and y.high < 1.0:
        chart.level(0.0, "axis")
    elif readings.target:
        chart.band(-1.0, 1.0, "inside")
        chart.level(1.0, "limit")
        chart.level(-1.0, "limit")
    else:
        chart.level(0.0, "axis")
        if proved > 0.0:
            chart.level(proved, "limit")
            chart.level(-proved, "limit")
    _points(chart, readings)
    if room:
        _histogram(chart, readings)
    worst = readings.worst
    chart.ring(worst, float(ratios[worst]))
    of, over = worst_words(readings), int(np.count_nonzero(readings.over))
    said = f"{m:,} rows, {over:,} over the tolerance; the worst is {of}."
    return chart.svg("Residuals of the measurements", said if readings.target else
                     f"{m:,} rows; the largest is {of}.")  # fmt: skip


def residual_key(readings: ReadingsPicture, proved: float = 0.0) -> list[tuple[str, str]]:
    """Name what a picture of residuals shows."""
    within = "met" if readings.target else "residual"
    if readings.size > MOST_POINTS:
        most = int(density_of(readings.ratios, COLUMNS, _edges(_heights(readings))).max())
        key = [("ramp", f"1 to {most:,} rows per cell" if most > 1 else "1 row per cell")]
    else:
        key = [("main", within)]
    over = int(np.count_nonzero(readings.over))
    key += [("bad", f"{over:,} not met")] * bool(over)
    key += [("faint", "set aside")] * bool(readings.aside.any())
    if readings.target and _heights(readings).high < 1.0:
        key.append(("none", "the tolerance is far outside the picture"))
    elif readings.target:
        key.append(("limit", "tolerance"))
    elif proved > 0.0:
        key.append(("limit", "every matrix has a residual this large, proved"))
    key.append(("ring", worst_words(readings)))
    if _heights(readings).kind == "bent":
        key.append(("none", "beyond ±1 the scale is logarithmic"))
    return key


def worst_words(readings: ReadingsPicture) -> str:
    """Say which row is worst, and by how much."""
    worst = readings.worst
    size, ratio = number(abs(readings.residuals[worst]), 3), float(readings.ratios[worst])
    of = f"{number(abs(ratio), 3)} × tolerance" if readings.target else size
    if readings.exact[worst] or readings.one_sided[worst]:
        of = f"missed by {size}" if ratio else "met"
    return f"row {worst:,}: {of}"


def _heights(readings: ReadingsPicture) -> Scale:
    """Choose an even scale, or one by decades where a row is far out."""
    shown = readings.ratios[np.isfinite(readings.ratios)]
    largest = float(np.max(np.abs(shown), initial=0.0))
    if readings.target and not 0.0 < largest < NEAR:
        largest = max(largest, 1.0)
    if readings.target and largest > FAR:
        end = 10.0 ** (math.log10(largest) + 0.15) if largest < 1e307 else largest
        return Scale("bent", -end, end, *Chart.up())
    room = 1.18 * largest or 1.0
    return Scale("linear", -room, room, *Chart.up())


def _points(chart: Chart, readings: ReadingsPicture) -> None:
    """Draw rows as points; of many, those that are not met as points and all as a density."""
    ratios, rows = readings.ratios, np.arange(readings.size)
    say = "row {0}: {1} × tolerance" if readings.target else "row {0}: {1}"
    fine = " fine" if readings.size > MANY_POINTS else ""

    def draw(some: np.ndarray, kind: str) -> None:
        texts = [(f"{row:,}", number(float(ratios[row]), 3)) for row in some]
        chart.dots(rows[some], ratios[some], kind, say, texts)

    if readings.size > MOST_POINTS:
        chart.image(count_image(density_of(ratios, COLUMNS, _edges(chart.y))))
    else:
        draw(np.flatnonzero(~(readings.over | readings.aside)), "main" + fine)
    for mask, kind in ((readings.over, "bad" + fine), (readings.aside, "faint")):
        some = np.flatnonzero(mask)
        draw(some[np.argsort(-np.abs(ratios[some]), kind="stable")[:MOST_POINTS]], kind)


def _histogram(chart: Chart, readings: ReadingsPicture) -> None:
    """Draw how many rows are at each height, to the right of the frame."""
    bins = min(max(int(math.sqrt(readings.size)), MIN_BINS), MAX_BINS)
    edges = _bins(chart.y, bins, ends=chart.y.high > 1.0 and readings.target)
    known = readings.ratios[~np.isnan(readings.ratios)]
    if chart.y.kind == "bent":  # bars beyond 1 and -1 would stand for more than those within
        edges = edges[np.abs(edges) <= 1.0 + 1e-9]
    counts = np.histogram(known, edges)[0]
    begin, end = WIDTH - RIGHT - HISTOGRAM_WIDTH, WIDTH - RIGHT
    most = max(int(counts.max()), 1)
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        if count:
            bottom, top = chart.y.at(low), chart.y.at(high)
            outside = readings.target and (low >= 1.0 - 1e-9 or high <= -1.0 + 1e-9)
            chart.parts.append(
                element(
                    "rect", x=begin, y=top + 0.25, width=(end - begin) * float(count) / most,
                    height=bottom - top - 0.5, class_="bar bad" if outside else "bar",
                )
            )  # fmt: skip
    foot = chart.y.begin
    chart.parts.append(element("line", x1=begin, x2=end, y1=foot, y2=foot, class_="axis"))
    for at in (begin, end):
        chart.parts.append(element("line", x1=at, x2=at, y1=foot, y2=foot + 4, class_="axis"))
    chart.text(begin, foot + 17, "0", anchor="middle")
    chart.text(end + RIGHT - 2, foot + 17, f"{most:,}", anchor="end")
    chart.text((begin + end) / 2, foot + 36, "rows", kind="label", anchor="middle")


def _edges(y: Scale) -> Vector:
    """Heights between the cells of a density, as numbers."""
    return y.numbers(np.linspace(-1.0, 1.0, LEVELS + 1) * y.top)


def _bins(y: Scale, most: int, *, ends: bool) -> Vector:
    """Heights between the bars of a histogram; with `ends`, 1 and -1 are among them."""
    if not ends:
        return y.numbers(np.linspace(-1.0, 1.0, most + 1) * y.top)
    each = max(int(most / (2.0 * y.top)), 1)  # bars between 0 and 1
    side = math.ceil(y.top * each - 1e-9)
    return np.clip(y.numbers(np.arange(-side, side + 1) / each), y.low, y.high)
