"""The Gram matrix of the probes: how alike they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.measurements import Measurements
from quadsense.measurements.validate import checked_rows
from quadsense.plot.style import BLUE, INK, new_figure, say, tidy, whole
from quadsense.view.pictures import coherences_of


def gram(data: Any, *, title: str | None = None) -> Any:
    """``|<u_i, u_j>|`` of the probes scaled to unit norm: whole, and how often each size comes.

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
    figure = new_figure(9.0, 3.9)
    left, right = figure.subplots(1, 2)
    image = left.imshow(found.values, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    figure.colorbar(image, ax=left, shrink=0.85)
    some = found.rows.size < found.m
    how = f"{found.rows.size:,} of {found.m:,} rows, evenly spaced" if some else "all rows"
    left.set_title(how, fontsize=9)
    if some:
        left.set(xticks=[], yticks=[])
    else:
        whole(left.xaxis, found.m)
        whole(left.yaxis, found.m)
    tidy(right)
    apart = found.apart
    if apart.size:
        largest = float(apart.max())
        limit = 1.0 / (10 * found.m)
        bins = np.linspace(0.0, max(largest, 2.0 * limit), 41)
        right.hist(apart, bins=bins, color=BLUE)
        right.axvline(limit, color=INK, lw=0.9, ls="--", label=f"the paper's 1/(10m) = {limit:.3g}")
        right.legend(fontsize=8, edgecolor="none", framealpha=0.85)
        right.locator_params(axis="x", nbins=5)
        right.set(xlabel="between different rows", ylabel="pairs")
        said = f"coherence {largest:.3g}" + (" of these rows" if some else "")
    else:
        say(right, "one row")
        said = "one row"
    figure.suptitle(title or f"{found.m:,} probe{'s' * (found.m > 1)}: {said}", fontsize=11)
    return figure


def _measurements(data: Any) -> Measurements:
    if isinstance(data, Measurements):
        return data
    kept = getattr(getattr(data, "certificate", None), "data", data)
    if kept is None:
        raise ValueError("the result was read from a file: give its measurements")
    if isinstance(kept, Measurements):
        return kept
    kind: Any = checked_rows(kept, False).kind  # whatever says how many rows there are
    return Measurements(kind, np.zeros(kind.m))
