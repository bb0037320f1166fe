"""Pictures of a run; needs the extra ``plot`` (matplotlib)."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.core import theory
from quadsense.core.potential import residual_bound
from quadsense.methods import METHODS
from quadsense.result import Result

RESIDUAL, POTENTIAL, BOUND = "#1b6ca8", "#c8553d", "#6b6b6b"


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
    The lemma's bound on the potential is drawn where it holds: with ``schedule="paper"`` on rows
    that meet its assumptions, from the start's potential on. The left panel shows what it implies
    for the worst residual, ``arccosh(Phi)/lam``.
    """
    try:
        import matplotlib.pyplot as plt
        from matplotlib import ticker
    except ImportError:
        raise ImportError(
            "quadsense.plot needs matplotlib: pip install 'quadsense[plot]'"
        ) from None
    past = result.history
    x = past.iteration
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    fixed = len(past) > 1 and np.ptp(past.lam) == 0.0 and np.ptp(past.step) == 0.0
    # Fixed steps move evenly; with continuation the first few iterations do most of the work.
    scale = "linear" if fixed else "log"
    shown = x if fixed else np.maximum(x, 0.5)
    style = {"marker": ".", "markersize": 3}
    left.plot(shown, past.max_ratio, color=RESIDUAL, label="worst residual / delta", **style)
    left.axhline(1.0, color="black", lw=0.8, ls="--", label="delta")
    right.plot(shown, past.log_potential, color=POTENTIAL, label="log potential", **style)
    if fixed and result.plan.get("lemma"):
        m, lam, step = int(np.size(result.residuals)), float(past.lam[0]), float(past.step[0])
        bound = theory.potential_bound(
            x, log_potential=float(past.log_potential[0]), m=m, lam=lam, step=step
        )
        method = result.plan["method"]
        random = method in METHODS and METHODS.traits(method).random
        expected = ", in expectation" if random else ""
        label = f"bound ({result.plan['lemma']}{expected})"
        right.plot(shown, bound, color=BOUND, lw=1.2, label=label)
        sharpness = float(past.sharpness[0])
        implied = np.array([residual_bound(float(value), sharpness) for value in bound])
        left.plot(shown, implied, color=BOUND, lw=1.2, label="implied by the bound")
    left.set(xlabel="iteration", ylabel="worst residual / delta", yscale="log")
    right.set(xlabel="iteration", ylabel="log potential")
    for axis in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
        axis(ticker.LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    for axes in (left, right):
        axes.set_xscale(scale)
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    figure.suptitle(title or f"{result.plan['method']}: {result.status}", fontsize=11)
    return figure
