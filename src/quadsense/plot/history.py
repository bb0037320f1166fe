"""How the worst residual fell, and the potential under the paper's bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.core import theory
from quadsense.core.potential import residual_bound
from quadsense.methods import METHODS
from quadsense.plot.style import BLUE, GREY, RED, new_figure, plain_decades, say, tidy
from quadsense.result.result import Result

NARROW = 2.5
"""Largest over smallest residual up to which an even scale shows more than decades do."""


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
    least = result.verdict.asked == "least"
    values = np.asarray(past.max_residual if least else past.max_ratio, dtype=np.float64)
    tidy(*panels)
    if not np.any(np.isfinite(values) & (values > 0.0)):
        say(panels[0], "no iterations" if not len(past) else "nothing was left to do")
        return figure
    fixed = len(past) > 1 and np.ptp(past.lam) == 0.0 and np.ptp(past.step) == 0.0
    # Fixed steps move evenly; with continuation the first few iterations do most of the work.
    even = fixed or past.iteration[-1] <= 50
    shown = past.iteration if even else np.maximum(past.iteration, 0.5)
    for panel in panels:
        panel.set(xlabel="iteration", xscale="linear" if even else "log")
        if even:
            panel.xaxis.get_major_locator().set_params(integer=True)
    _residual(panels[0], result, shown, values, least)
    if potential:
        panels[1].plot(
            shown, past.log_potential, color=RED, label="log potential", marker=".", markersize=3
        )
        panels[1].set(ylabel="log potential")
        if fixed and result.plan.get("lemma"):
            _bound(panels, result, shown)
    for panel in panels:
        panel.legend(frameon=False, fontsize=8)
    return figure


def _residual(axes: Any, result: Result, x: Any, values: Any, least: bool) -> None:
    label = "worst residual" if least else "worst residual / delta"
    axes.plot(x, values, color=BLUE, label=label, marker=".", markersize=3)
    if not least:
        axes.axhline(1.0, color="black", lw=0.8, ls="--", label="delta")
    elif result.certificate.lower_bound > 0.0:
        bound = result.certificate.lower_bound
        axes.axhline(bound, color="black", lw=0.8, ls="--", label="of every matrix, proved")
    axes.set(ylabel=label)
    low, high = axes.get_ylim()
    if low <= 0.0 or high > NARROW * low:
        axes.set_yscale("log")
        plain_decades(axes.yaxis)


def _bound(panels: Any, result: Result, x: Any) -> None:
    """The lemma's bound on the potential, and what it implies."""
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
