"""Pictures of results, matrices, probes and intervals; needs the extra ``plot`` (matplotlib).

Each function returns a `matplotlib.figure.Figure` that pyplot does not know: nothing is left open,
and nothing is shown until asked (``figure.savefig(path)``; a notebook shows it by itself). With
``ax=`` it draws on axes of one's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.measurements import Measurements
from quadsense.measurements.validate import checked_rows
from quadsense.plot.panels import (
    PARTS,
    draw_coherences,
    draw_entries,
    draw_potential,
    draw_progress,
    draw_ranges,
    draw_residuals,
    draw_sizes,
    draw_spectrum,
    has_progress,
    proved_of,
)
from quadsense.plot.pictures import (
    coherences_of,
    labelled,
    matrix_of,
    patch_of,
    readings_of,
    spectrum_of,
    value_of,
)
from quadsense.plot.style import HEIGHT, LINE_HEIGHT, RING, head, legend, new_figure, say
from quadsense.result.result import Result

__all__ = ["gram", "history", "intervals", "matrix", "residuals"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def residuals(result: Result, *, title: str | None = None, ax: Any = None) -> Any:
    """Draw every residual in units of its tolerance, and how many are where; name the worst row.

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
    figure = new_figure() if ax is None else ax.get_figure()
    draw_residuals(figure, found, proved_of(result), ax)
    over = int(np.count_nonzero(found.over))
    said = f"{over:,} of {found.size:,} over their tolerance" if found.target else "residuals"
    head(figure, title or f"{result.status}: {said}", ax)
    return figure


def history(result: Result, *, title: str | None = None) -> Any:
    """Draw max residual and log potential over iterations, with the paper's bound.

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
    potential = has_progress(result) and bool(np.isfinite(past.log_potential).any())
    figure = new_figure(1 + potential)
    left, *right = figure.subplots(1, 1 + potential, squeeze=False)[0]
    head(figure, title or f"{result.plan.get('method', '')}: {result.status}")
    if has_progress(result):
        draw_progress(left, result)
    else:
        say(left, "no iterations" if not len(past) else "nothing was left to do")
    for axes in right:
        draw_potential(axes, left, result)
    return figure


def matrix(A: Any, *, part: str = "auto", title: str | None = None) -> Any:
    """Draw the heat map and the spectrum of a symmetric or Hermitian matrix.

    Parameters
    ----------
    A : Result, SensedMatrix or array of shape (n, n)
    part : {"auto", "real", "imag", "abs"}, default="auto"
        What of the entries to show: by default all of a real matrix, the modulus of a complex one.
    title : str, optional
        Heading; the order by default.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    Red is positive, blue negative. A matrix of more than 200 rows is shown made smaller, and one
    too large to form by evenly spaced rows and columns; the picture says which. Of large matrices
    only the largest eigenvalues are found.
    """
    if part not in ("auto", *PARTS):
        raise ValueError(f"part must be one of auto, {', '.join(PARTS)}, got {part!r}")
    held = matrix_of(A)
    patch, spectrum = patch_of(held), spectrum_of(held)
    figure = new_figure(2)
    left, right = figure.subplots(1, 2)
    complex_ = np.iscomplexobj(patch.values)
    chosen = ("abs" if complex_ else "real") if part == "auto" else part
    draw_entries(left, patch, chosen)
    name = PARTS[chosen][0] if complex_ or chosen != "real" else "entries"
    left.set_title(f"{name}{'; ' * bool(patch.how)}{patch.how}", fontsize="small")
    if spectrum is None or not spectrum.values.size:
        say(right, "too large for its eigenvalues")
    else:
        draw_spectrum(right, spectrum)
        how = f"; {spectrum.how}" if spectrum.how else ""
        right.set_title(f"eigenvalues{how}", fontsize="small")
    head(figure, title or f"A, {patch.order:,} × {patch.order:,}")
    return figure


def gram(data: Any, *, title: str | None = None) -> Any:
    """Draw ``|<u_i, u_j>|`` of the probes scaled to unit norm, and how often each size comes.

    Parameters
    ----------
    data : Measurements, Result, or array or probes of shape (m, n)
        A result must have its measurements: it must not come from a file.
    title : str, optional
        Heading; the coherence by default.

    Returns
    -------
    matplotlib.figure.Figure

    Notes
    -----
    K, on which the methods work, is the square of what is shown. The dashed line is what the
    paper's lemmas ask of the coherence, ``1/(10 m)``. Of more than 200 rows some are shown, evenly
    spaced.
    """
    found = coherences_of(_measurements(data))
    figure = new_figure(2)
    left, right = figure.subplots(1, 2)
    draw_coherences(left, found)
    said = draw_sizes(right, found)
    head(figure, title or f"{found.m:,} probe{'s' * (found.m > 1)}: {said}")
    return figure


def _measurements(data: Any) -> Measurements:
    """Return the measurements in, or of, what was given."""
    if isinstance(data, Measurements):
        return data
    kept = getattr(getattr(data, "certificate", None), "data", data)
    if kept is None:
        raise ValueError("the result was read from a file: give its measurements")
    if isinstance(kept, Measurements):
        return kept
    kind: Any = checked_rows(kept, False).kind  # whatever says how many rows there are
    return Measurements(kind, np.zeros(kind.m))


def intervals(
    intervals: Any,
    *,
    labels: Any = None,
    A: Any = None,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw certified ranges as bars: what is proved of all fits, and the fits that were found.

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
    figure = new_figure(height=0.5 * HEIGHT + LINE_HEIGHT * len(named)) if ax is None else None
    axes = ax if figure is None else figure.subplots()
    marked = None if A is None else matrix_of(A)
    values = [None if marked is None else value_of(each, marked) for each in named.values()]
    draw_ranges(axes, list(named.values()), values)
    axes.set(yticks=range(len(named)), yticklabels=list(named), xlabel="over all fits")
    axes.set_ylim(len(named) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, pad=RING)
    legend(axes, above=True)
    head(axes.get_figure(), title or "certified intervals", ax)
    return axes.get_figure()
