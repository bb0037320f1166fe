"""Residuals against tolerances, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.plot.style import BLUE, GREY, INK, RED, canvas, head, tidy, whole
from quadsense.result.result import Result
from quadsense.view.markup import number
from quadsense.view.pictures import MOST_POINTS, ReadingsPicture, density_of, readings_of

FAR = 12.0
"""Ratio beyond which residuals are drawn by decades."""

COLUMNS, LEVELS = 160, 80
"""Cells of a picture of many rows."""


def residuals(result: Result, *, title: str | None = None, ax: Any = None) -> Any:
    """Every residual in units of its tolerance, the worst row named.

    Parameters
    ----------
    result : Result
    title : str, optional
        Heading; how many are over by default.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

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
    figure, axes = canvas(ax, 7.0, 3.8)
    tidy(axes)
    rows = np.arange(found.size)
    if found.target:
        axes.axhspan(-1.0, 1.0, color=BLUE, alpha=0.07, lw=0)
        for end in (-1.0, 1.0):
            axes.axhline(end, color=INK, lw=0.8, ls="--")
    else:
        _error_levels(axes, result)
    _heights(axes, found)
    axes.set_xlim(-0.02 * found.size - 0.5, 1.02 * found.size - 0.5)
    plain = ~(found.over | found.aside)
    if found.size > MOST_POINTS:
        _density(axes, found)
    else:
        inside = "within tolerance" if found.target else None
        axes.scatter(rows[plain], found.ratios[plain], s=9, color=BLUE, lw=0, label=inside)
    for mask, color, label in ((found.over, RED, "over"), (found.aside, GREY, "set aside")):
        if mask.any():
            axes.scatter(rows[mask], found.ratios[mask], s=11, color=color, lw=0, label=label)
    _name(axes, found)
    what = "residual / tolerance" if found.target else "residual"
    axes.set(xlabel="row", ylabel=what)
    whole(axes.xaxis, found.size)
    if found.over.any() or found.aside.any():
        axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=3, borderaxespad=0.1)
    over = int(np.count_nonzero(found.over))
    said = f"{over:,} of {found.size:,} over their tolerance" if found.target else "residuals"
    head(figure, axes, title or f"{result.status}: {said}", ax is not None)
    return figure


def _heights(axes: Any, found: ReadingsPicture) -> None:
    """An even scale, or by decades where some row is far out; room for a legend above."""
    sizes = np.abs(found.ratios[np.isfinite(found.ratios)])
    largest = float(np.max(sizes, initial=1.0 if found.target else 0.0)) or 1.0
    if found.target and largest > FAR:
        axes.set_yscale("symlog", linthresh=1.0)
        axes.yaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.set_ylim(-6.0 * largest, 6.0 * largest)
    else:
        axes.set_ylim(-1.25 * largest, 1.35 * largest)


def _error_levels(axes: Any, result: Result) -> None:
    """What the worst error is, and what is proved of every matrix."""
    claim = result.certificate
    axes.axhline(0.0, color=GREY, lw=0.8)
    if claim.kind != "optimal" or claim.objective is not None or claim.lower_bound <= 0.0:
        return
    for sign in (-1.0, 1.0):
        label = f"every matrix errs by {number(claim.lower_bound, 3)} or more, proved"
        axes.axhline(
            sign * claim.lower_bound, color=INK, lw=0.8, ls="--", label=label if sign > 0 else None
        )
    axes.legend(frameon=False, fontsize=8, loc="upper right", borderaxespad=0.1)


def _density(axes: Any, found: ReadingsPicture) -> None:
    """How many rows are where, on cells that are even to the eye."""
    transform = axes.yaxis.get_transform()
    ends = transform.transform(np.array(axes.get_ylim()))
    edges = transform.inverted().transform(np.linspace(ends[0], ends[1], LEVELS + 1))
    counts = density_of(found.ratios, COLUMNS, np.asarray(edges))[::-1]
    across = np.linspace(-0.5, found.size - 0.5, COLUMNS + 1)
    most = float(counts.max())
    cells = axes.pcolormesh(
        across, edges, np.ma.masked_equal(counts, 0), cmap="Blues", vmin=-0.25 * most, vmax=most,
        rasterized=True,
    )  # fmt: skip
    bar = axes.figure.colorbar(cells, ax=axes, label="rows per cell", shrink=0.85)
    bar.ax.set_ylim(1.0 if most > 1.0 else 0.0, most)


def _name(axes: Any, found: ReadingsPicture) -> None:
    """The worst row, by number and by how much."""
    worst = found.worst
    height, size = float(found.ratios[worst]), number(abs(float(found.residuals[worst])), 3)
    words = f"{number(abs(height), 3)} × tolerance" if found.target else size
    if found.exact[worst] or found.one_sided[worst]:
        words = f"missed by {size}" if height else "met"
    if not np.isfinite(height):
        return
    axes.scatter([worst], [height], s=55, facecolors="none", edgecolors=INK, lw=1.0, zorder=4)
    left = worst < 0.5 * found.size
    axes.annotate(
        f"row {worst:,}: {words}",
        (worst, height),
        xytext=(9 if left else -9, 6 if height >= 0.0 else -12),
        textcoords="offset points",
        ha="left" if left else "right",
        fontsize=8.5,
        bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8},
        zorder=5,
    )
