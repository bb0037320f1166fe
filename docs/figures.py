"""Remake the README's picture: ``make figures``."""

from pathlib import Path

import matplotlib as mpl

import quadsense
from quadsense import plot

mpl.use("Agg")


def main() -> None:
    """Algorithm 1 with the lemma's constants, and the lemma's bound above it."""
    p = quadsense.datasets.orthonormal(n=200, m=200, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.02, method="gd", schedule="paper")
    title = f"Algorithm 1, n = m = 200, delta = 0.02: met after {result.n_iter:,} iterations"
    figure = plot.history(result, title=title)
    path = Path(__file__).parent / "history.png"
    figure.savefig(path, dpi=130)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
