"""Remake the pictures of the README and of docs/scaling.md: ``make figures``."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import drawing
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import quadsense
from quadsense.query.cluster_cost import ClusterCost

mpl.use("Agg")
OURS, LEAST_SQUARES, TRUTH = "#1b6ca8", "#c8553d", "#333333"
HERE = Path(__file__).parent


def least_squares(U: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The symmetric matrix of the smallest sum of squared residuals."""
    n = U.shape[1]
    i, j = np.triu_indices(n)
    design = U[:, i] * U[:, j] * np.where(i == j, 1.0, 2.0)
    A = np.zeros((n, n))
    A[i, j] = A[j, i] = np.linalg.lstsq(design, b)[0]
    return A


def readings() -> None:
    """The README's readings, rounded to 0.1: residuals in their band, and certified ranges."""
    p = quadsense.datasets.gaussian(n=5, m=1000, seed=0)
    b = p.b.round(1)
    result = quadsense.solve(p.U, b, delta=0.05)
    B = least_squares(p.U, b)
    off = np.einsum("ij,jk,ik->i", p.U, B, p.U) - b
    outside = np.abs(off) > 0.05
    rows = np.arange(b.size)

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.5), width_ratios=(1.5, 1))
    left.axhspan(-0.05, 0.05, color=OURS, alpha=0.1, lw=0)
    left.plot(rows, result.residuals, ".", color=OURS, ms=3.5, label="solve: all 1000 within")
    name = f"least squares: {outside.sum()} outside"
    left.plot(rows[outside], off[outside], "x", color=LEAST_SQUARES, ms=6.5, mew=1.7, label=name)
    left.set(xlabel="reading", ylabel="residual", ylim=(-0.066, 0.075))
    left.set_yticks([-0.05, 0.0, 0.05], ["-delta", "0", "delta"])
    left.legend(ncols=2, loc="upper center", columnspacing=1.2, handletextpad=0.3)
    left.set_title("Readings rounded to 0.1 err by at most delta = 0.05")

    place = np.arange(p.U.shape[1])
    found = result.interval([(k, k) for k in place])
    true = np.diag(p.A_star)
    lower = np.array([each.lower for each in found]) - true
    upper = np.array([each.upper for each in found]) - true
    right.axhline(0.0, color=TRUTH, lw=1.0, label="truth")
    right.vlines(place, lower, upper, color=OURS, lw=7, alpha=0.5, label="certified range")
    right.plot(place, np.diag(result.A) - true, "_", color=OURS, ms=15, mew=2.2, label="solve")
    right.plot(place, np.diag(B) - true, "x", color=LEAST_SQUARES, ms=7, mew=1.9,
               label="least squares")  # fmt: skip
    right.set_xticks(place, [f"A[{k},{k}]" for k in place])
    right.set(ylabel="minus the truth", ylim=(-0.011, 0.014))
    right.grid(axis="x", visible=False)
    right.legend(ncols=2, loc="upper center", fontsize=8.5, columnspacing=1.0)
    right.set_title("Certified ranges: all that fits")
    save(figure, "readings.png")


def scaling() -> None:
    """Sweeps measured by ``benchmarks/scaling_model.py`` and the model, with what it foresees."""
    points = json.loads((HERE / "scaling.json").read_text(encoding="utf-8"))["points"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.9))
    ways = {"memory": "o", "file": "s", "1 worker": "^", "2 workers": "D"}
    for way, mark in ways.items():
        said = [point["model"][way] for point in points]
        taken = [point["seconds"][way] for point in points]
        left.loglog(said, taken, mark, ms=6, alpha=0.85, label=way)
    ends = np.array([0.05, 12.0])
    left.loglog(ends, ends, color=TRUTH, lw=1.0)
    left.fill_between(ends, ends / 2.0, 2.0 * ends, color=TRUTH, alpha=0.08, lw=0)
    left.set(xlabel="seconds of a sweep, by the model", ylabel="measured", xlim=ends)
    left.legend(loc="lower right")
    left.set_title("Sizes that fit; the band is a factor of two")

    counts = np.unique(np.geomspace(1, 1e5, 60).astype(int))
    for n, m, color in ((10_000, 10**9, OURS), (512, 10**8, LEAST_SQUARES)):
        every = [replace(ClusterCost(m, n), workers=int(count)) for count in counts]
        name = f"n = {n:,}, m = {m:.0e}".replace("e+0", "e")
        right.loglog(counts, [each.computing for each in every], color=color, label=name)
        right.loglog(counts, [each.communicating for each in every], "--", color=color)
        cross = replace(every[0], workers=every[0].crossing)
        right.plot(cross.workers, cross.computing, "o", color=color, ms=7)
    right.set(xlabel="workers", ylabel="seconds of a sweep")
    right.legend(loc="upper right")
    right.set_title("Arithmetic (solid) and travel (dashed)")
    save(figure, "scaling.png")


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture."""
    figure.savefig(HERE / name, dpi=130)
    print(f"wrote {HERE / name}")


def main() -> None:
    """Each of them, or those that are named."""
    drawing.alike()
    for picture in (readings, scaling):
        if picture.__name__ in sys.argv[1:] or not sys.argv[1:]:
            picture()


if __name__ == "__main__":
    main()
