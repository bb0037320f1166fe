"""Pictures of an estimated state: a city of its entries, bars of what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from quadsense.plot.style import BLUE, GREY, INK, RED, legend, new_figure, tidy
from quadsense.tomography.counts import Counts

if TYPE_CHECKING:
    from quadsense.tomography.estimate import StateEstimate

MAX_CITY = 16
"""Order up to which entries are drawn as towers; larger ones are a map of colors."""

MAX_BARS = 32
"""Means that are drawn: those of largest modulus."""

KINDS = ("both", "city", "bars")
"""What `StateEstimate.plot` draws."""

ROOM = {"left": 0.01, "right": 0.98, "bottom": 0.16, "top": 0.85, "wspace": 0.3}
"""Where the panels lie in a picture with a city."""

SIZE, TOWER = 4.2, 0.62
"""Height of a picture in inches, and width of a tower."""


def draw(state: StateEstimate, kind: str, title: str | None) -> Any:
    """Return the figure."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    both = kind == "both"
    figure = new_figure(2 if both else 1, SIZE)
    if kind != "bars":  # older versions of Matplotlib find no room for a city by themselves
        figure.set_layout_engine("none")
    places = figure.add_gridspec(1, 2 if both else 1, **({} if kind == "bars" else ROOM))
    if kind != "bars":
        _city(figure, state, places[0, 0])
    if kind != "city":
        _bars(figure.add_subplot(places[0, -1]), state)
    figure.suptitle(title or str(state).split("\n")[0], fontsize="medium")
    return figure


def _labels(state: StateEstimate) -> list[str]:
    n, q = state.n, state.factors
    if n != 2**q:
        return [str(k) for k in range(n)]
    return [f"{k:0{q}b}" for k in range(n)]


def _city(figure: Any, state: StateEstimate, where: Any) -> None:
    """Draw the real parts of the entries; the imaginary part of the largest is said."""
    values, n = state.rho.real, state.n
    labels, imaginary = _labels(state), float(np.abs(state.rho.imag).max())
    said = f"real part of $\\rho$ (imaginary up to {imaginary:.2f})"
    if n > MAX_CITY:
        axes = figure.add_subplot(where)
        most = float(np.abs(values).max())
        axes.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most)
        axes.set_title(said, fontsize="small", color=INK)
        return
    axes = figure.add_subplot(where, projection="3d")
    x, y = (each.ravel() - 0.5 * TOWER for each in np.meshgrid(range(n), range(n), indexing="ij"))
    heights = values.ravel()
    colors = np.where(heights >= 0.0, BLUE, RED)
    axes.bar3d(
        x, y, np.minimum(heights, 0.0), TOWER, TOWER, np.abs(heights), color=colors, shade=True,
        edgecolor="white", linewidth=0.2,
    )  # fmt: skip
    ticks = np.arange(n)
    axes.set_xticks(ticks, labels, fontsize="xx-small")
    axes.set_yticks(ticks, labels, fontsize="xx-small")
    axes.tick_params(axis="z", labelsize="x-small")
    axes.set_title(said, fontsize="small", color=INK)


def _bars(axes: Any, state: StateEstimate) -> None:
    """Draw what was read with its intervals, next to what the estimate reads."""
    tidy(axes)
    region = state.region
    if region.pooled:
        found = np.asarray(region.model(state.rho))
        what = "mean of Pauli string"
    else:
        found = state.probabilities.ravel()
        what = "probability"
    order = np.argsort(-np.abs(region.means), kind="stable")[:MAX_BARS]
    names = list(region.names)
    if isinstance(state.counts, Counts) and not region.pooled:
        outcomes = state.outcomes()
        names = [f"{name}:{outcomes[i % len(outcomes)]}" for i, name in enumerate(names)]
    places = np.arange(order.size)
    axes.bar(places, found[order], color=BLUE, alpha=0.5, width=0.7, label="estimate")
    low, high = region.means - region.lower, region.upper - region.means
    axes.errorbar(
        places, region.means[order], yerr=[low[order], high[order]], fmt="o", color=INK, ms=2.5,
        lw=1.0, capsize=2.0, label="measured",
    )  # fmt: skip
    axes.axhline(0.0, color=GREY, lw=0.6)
    axes.set_xticks(places, [names[k] for k in order], rotation=90, fontsize="x-small")
    left = len(names) - order.size
    axes.set_ylabel(what + (f" ({order.size} largest of {len(names)})" if left else ""))
    legend(axes, above=True)
