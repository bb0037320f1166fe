"""Pictures of how a report's result was reached, and of what it leaves: progress, residuals."""

from __future__ import annotations

import math

import numpy as np

from quadsense.arrays import Vector
from quadsense.report.chart import Chart
from quadsense.report.scales import Scale, even_scale, log_scale
from quadsense.result import Result
from quadsense.view.markup import Markup, number
from quadsense.view.pictures import (
    MOST_POINTS,
    Readings,
    density_of,
)
from quadsense.view.pixels import share_image

MOST_STEPS = 400
"""Points of a history that are drawn."""

COLUMNS, LEVELS = 96, 54
"""Cells of a picture of many residuals."""

NARROW = 2.5
"""Largest over smallest residual up to which an even scale shows more than decades do."""

FAR = 12.0
"""Ratio beyond which residuals are drawn by decades."""


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
    wide = steps[-1] > 200
    x = (
        log_scale(np.maximum(steps, 1.0), *Chart.across())
        if wide
        else Scale("linear", 0.0, max(float(steps[-1]), 1.0), *Chart.across(), whole=True)
    )
    ends = values if least else np.append(values, 1.0)
    what = "worst residual" if least else "worst residual / tolerance"
    narrow = 0.0 < ends.max() <= NARROW * ends.min()
    y = (even_scale if narrow else log_scale)(ends, *Chart.up())
    chart = Chart(x, y, ("iteration", what))
    if not least:
        chart.level(1.0, "limit", "tolerance")
    chart.line(np.maximum(steps, x.low), values, "main")
    if steps.size <= 60:
        chart.dots(np.maximum(steps, x.low), values, "main")
    said = (
        f"From {number(values[0], 3)} to {number(values[-1], 3)} in {int(steps[-1]):,} iterations."
    )
    return chart.svg(f"{what.capitalize()} over the iterations", said)


def residual_chart(readings: Readings, proved: float = 0.0) -> Markup:
    """Residuals in tolerances, row by row; of many rows, how many are where.

    Without tolerances, `proved` is the worst error that every matrix has, if there is one.
    """
    ratios, m = readings.ratios, readings.size
    shown = ratios[np.isfinite(ratios)]
    largest = float(np.max(np.abs(shown), initial=1.0 if readings.target else 0.0))
    if readings.target and largest > FAR:
        end = 10.0 ** (math.log10(largest) + 0.15) if largest < 1e307 else largest
        y = Scale("bent", -end, end, *Chart.up())
    else:
        room = 1.18 * largest or 1.0
        y = Scale("linear", -room, room, *Chart.up())
    x = Scale("linear", -0.5, m - 0.5, *Chart.across(), whole=True)
    what = "residual / tolerance" if readings.target else "residual"
    chart = Chart(x, y, ("row", what))
    rows = np.arange(m)
    plain = ~(readings.over | readings.aside)
    if readings.target:
        chart.band(-1.0, 1.0, "inside")
        chart.level(1.0, "limit", "tolerance")
        chart.level(-1.0, "limit")
    else:
        chart.level(0.0, "axis")
        if proved > 0.0:
            chart.level(proved, "limit", "every matrix errs by so much, proved")
            chart.level(-proved, "limit")
    if m > MOST_POINTS:
        chart.image(share_image(density_of(ratios, COLUMNS, _edges(y))))
    else:
        chart.dots(rows[plain], ratios[plain], "main")
    for mask, kind in ((readings.over, "bad"), (readings.aside, "faint")):
        some = np.flatnonzero(mask)
        some = some[np.argsort(-np.abs(ratios[some]), kind="stable")[:MOST_POINTS]]
        chart.dots(rows[some], ratios[some], kind)
    worst = readings.worst
    size = number(abs(readings.residuals[worst]), 3)
    of = f"{number(abs(float(ratios[worst])), 3)} × tolerance" if readings.target else size
    if readings.exact[worst] or readings.one_sided[worst]:
        of = f"missed by {size}" if ratios[worst] else "met"
    chart.named(worst, float(ratios[worst]), f"row {worst:,}: {of}")
    over = int(np.count_nonzero(readings.over))
    said = f"{m:,} rows, {over:,} over the tolerance; the worst is row {worst:,}, {of}."
    return chart.svg("Residuals of the measurements", said if readings.target else
                     f"{m:,} rows; the largest is row {worst:,}, {of}.")  # fmt: skip


def _edges(y: Scale) -> Vector:
    """Heights between the cells, as numbers."""
    parts = np.linspace(-1.0, 1.0, LEVELS + 1)
    if y.kind == "linear":
        return np.asarray(parts * y.high)
    bent = parts * (1.0 + math.log10(y.high))
    return np.asarray(
        np.sign(bent) * np.where(np.abs(bent) <= 1.0, np.abs(bent), 10.0 ** (np.abs(bent) - 1.0))
    )
