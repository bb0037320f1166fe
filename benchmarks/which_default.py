"""Which A the default returns: its error next to the best of a fixed list of candidates.

    python benchmarks/which_default.py [--group NAME ...] [--seeds 2] [--quick] [--beta 0.1 0.3]
                                       [--draws K]

For every cell (truth, readings per unknown m/N, noise) the relative error in the Frobenius norm is
averaged over seeds. A row of the table has the mean over all cells of the excess over the best
candidate of the cell, and the largest. "old rule" is the default of earlier versions: least squares
with m >= N, otherwise the center (psd) or the nearest to the best multiple of I. `held out` draws
other kinds of rows, truths and noise than those by which the rule was chosen. With `--beta` the
default is also tried with these strengths of its pull, which are then among the candidates. With
`--draws K` each group is drawn K times per truth and kind of noise with m = N readings, and the
table counts the single draws in which an estimator's error is more than twice that of the best one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import quadsense
from quadsense.query import choice

RATIOS = (0.1, 0.2, 0.4, 0.7, 0.95, 1.0, 1.05, 1.2, 1.5, 2.0, 5.0)
GROUPS: dict[str, tuple[str, int]] = {
    "symmetric, n = 10": ("symmetric", 10),
    "symmetric, n = 30": ("symmetric", 30),
    "psd, n = 10": ("psd", 10),
    "psd, n = 30": ("psd", 30),
    "psd, n = 60": ("psd", 60),
    "psd and trace 1, n = 4": ("state", 4),
    "psd and trace 1, n = 16": ("state", 16),
    "psd and trace 1, n = 32": ("state", 32),
    "held out, symmetric, n = 12": ("held out symmetric", 12),
    "held out, psd, n = 12": ("held out psd", 12),
}
GOAL, HELD_OUT = 0.01, 0.02
"""Largest mean excess, and on the held-out problems."""

TWICE = 2.0
"""Largest error of the default with m = N, in units of the best candidate's."""

HELD_OUT_SEEDS = 100
"""First seed of the single draws: none of the table's."""

OURS = ("default", "old rule")
"""What is measured, and is no candidate."""

Truth = Callable[[int, np.random.Generator], np.ndarray]


def wishart(n: int, rng: np.random.Generator) -> np.ndarray:
    """Full rank, all eigenvalues of one size."""
    G = rng.standard_normal((n, 2 * n))
    return G @ G.T / (2 * n)


def toeplitz(n: int, rng: np.random.Generator) -> np.ndarray:
    """Correlations that decay."""
    return 0.8 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def low_rank(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rank 2."""
    G = rng.standard_normal((n, 2))
    return G @ G.T


def spiked(n: int, rng: np.random.Generator) -> np.ndarray:
    """The identity and two large eigenvalues."""
    return np.eye(n) + 5.0 * low_rank(n, rng)


def indefinite(n: int, rng: np.random.Generator) -> np.ndarray:
    """Eigenvalues of both signs."""
    G = rng.standard_normal((n, n))
    return G + G.T


def pure(n: int, rng: np.random.Generator) -> np.ndarray:
    """A pure state."""
    x = rng.standard_normal((n, 1))
    return x @ x.T


def mixed(n: int, rng: np.random.Generator) -> np.ndarray:
    """A mixed state of full rank."""
    return wishart(n, rng) + 0.1 * np.eye(n)


def decaying(n: int, rng: np.random.Generator) -> np.ndarray:
    """Held out: eigenvalues 1/k^2 in a random basis."""
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return (Q / np.arange(1, n + 1) ** 2) @ Q.T


def blocks(n: int, rng: np.random.Generator) -> np.ndarray:
    """Held out: two blocks of equal correlation."""
    return np.kron(np.eye(2), 0.5 * np.ones((n // 2, n // 2))) + 0.5 * np.eye(n)


TRUTHS: dict[str, tuple[Truth, ...]] = {
    "symmetric": (wishart, toeplitz, low_rank, spiked, indefinite),
    "psd": (wishart, toeplitz, low_rank, spiked),
    "state": (pure, mixed, low_rank),
    "held out symmetric": (decaying, blocks, indefinite),
    "held out psd": (decaying, blocks),
}
LARGE, FEW = 60, 0.4
"""Order from which only few readings per unknown are tried: more take hours."""

NOISE = ("none", "uniform", "gaussian")
ENTROPIES = (1.0, 0.3, 0.1)
"""Strengths of the pull of the candidates by relative entropy."""


def readings(
    kind: str, truth: Truth, ratio: float, noise: str, n: int, seed: int
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """U, b, delta and the truth."""
    rng = np.random.default_rng([seed, n, int(100 * ratio), NOISE.index(noise)])
    A = truth(n, rng)
    A = A / (np.trace(A) if kind == "state" else np.linalg.norm(A))
    m = max(2, round(ratio * n * (n + 1) / 2))
    held_out = kind.startswith("held out")
    U = rng.choice([-1.0, 1.0], (m, n)) if held_out else rng.standard_normal((m, n))
    if held_out:  # rows of different length
        U = U * np.exp(0.3 * rng.standard_normal((m, 1)))
    b = np.einsum("ij,jk,ik->i", U, A, U)
    size = (0.1 if held_out else 0.05) * float(np.std(b))
    if noise == "none":
        return U, b, 1e-3 * float(np.std(b)), A
    if noise == "uniform":
        return U, b + rng.uniform(-size, size, m), size, A
    return U, b + size * rng.standard_normal(m), quadsense.delta_from_sigma(size, m), A


def candidates(kind: str, many: bool, betas: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Keywords of `solve`, and `beta` for the strength of the pull: the default and its rivals."""
    ways: dict[str, dict[str, Any]] = {
        "default": {},
        **{f"default, beta = {beta:g}": {"beta": beta} for beta in betas},
        "least squares": {"prefer": "least_squares", "ridge": 0.0},
        "any": {"prefer": "any"},
        "nearest": {"prefer": "nearest"},
    }
    if kind.endswith("symmetric"):
        return {**ways, "old rule": ways["least squares"] if many else ways["nearest"]}
    ways["center"] = {"prefer": "center"}
    ways["min_trace"] = {"prefer": "min_trace"}
    for beta in ENTROPIES:
        ways[f"entropy, beta = {beta:g}"] = {"prefer": "entropy", "beta": beta}
    cone = {"psd": True} | ({"trace": 1.0} if kind == "state" else {})
    if kind == "state":
        del ways["min_trace"]
    ways["old rule"] = ways["least squares"] if many else ways["center"]
    return {name: {**way, **cone} for name, way in ways.items()}


def error(U: np.ndarray, b: np.ndarray, delta: float, A: np.ndarray, way: dict[str, Any]) -> float:
    """Relative error of the A that a candidate returns; infinite where it finds none."""
    asked, usual = dict(way), choice.BETA
    try:
        choice.BETA = asked.pop("beta", usual)
        result = quadsense.solve(U, b, delta=delta, **asked)
    finally:
        choice.BETA = usual
    if not result.met and "prefer" in asked:
        return float("inf")
    return float(np.linalg.norm(result.A - A) / np.linalg.norm(A))


def cells(
    kind: str, n: int, seeds: int, quick: bool, betas: Sequence[float]
) -> Iterator[dict[str, float]]:
    """Mean error of each candidate, cell by cell."""
    for truth in TRUTHS[kind]:
        for ratio in RATIOS[1::3] if quick else RATIOS:
            if ratio * n * (n + 1) / 2 < 2 or (n >= LARGE and ratio > FEW):
                continue
            for noise in NOISE:
                sums: dict[str, list[float]] = {}
                for seed in range(seeds):
                    U, b, delta, A = readings(kind, truth, ratio, noise, n, seed)
                    for name, way in candidates(kind, ratio >= 1.0, betas).items():
                        sums.setdefault(name, []).append(error(U, b, delta, A, way))
                yield {name: float(np.mean(found)) for name, found in sums.items()}


def draws(kind: str, n: int, count: int, betas: Sequence[float]) -> Iterator[dict[str, float]]:
    """Errors in single draws with m = N noisy readings, in units of the best candidate's."""
    for truth in TRUTHS[kind]:
        for noise in NOISE[1:]:
            for seed in range(HELD_OUT_SEEDS, HELD_OUT_SEEDS + count):
                U, b, delta, A = readings(kind, truth, 1.0, noise, n, seed)
                ways = candidates(kind, True, betas)
                found = {name: error(U, b, delta, A, way) for name, way in ways.items()}
                best = min(size for name, size in found.items() if name not in OURS)
                yield {name: size / best for name, size in found.items()}


def print_draws(group: str, count: int, betas: Sequence[float]) -> None:
    """Print for each estimator in how many draws it is above `TWICE` the best, and the worst."""
    found = list(draws(*GROUPS[group], count, betas))
    print(f"{group}, m = N: {len(found)} draws", flush=True)
    for name in found[0]:
        ratios = np.array([each[name] for each in found])
        above = int(np.sum(ratios > TWICE))
        print(f"  {name:21} above twice the best {above:4}  worst {ratios.max():8.2f}", flush=True)


def main() -> int:
    """Print a row per group and candidate; 1 where the default exceeds its goal."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--group", nargs="*", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--beta", type=float, nargs="*", default=[])
    parser.add_argument("--draws", type=int, default=0)
    asked = parser.parse_args()
    missed = 0
    for group in asked.group:
        if asked.draws:
            print_draws(group, asked.draws, asked.beta)
            continue
        kind, n = GROUPS[group]
        found = list(cells(kind, n, asked.seeds, asked.quick, asked.beta))
        print(f"{group}: {len(found)} cells", flush=True)
        rivals = [name for name in found[0] if name not in OURS]
        for name in found[0]:
            # A default that is better than all rivals has no excess.
            excess = [max(0.0, cell[name] - min(cell[each] for each in rivals)) for cell in found]
            mean, worst = float(np.mean(excess)), float(np.max(excess))
            print(f"  {name:21} mean excess {mean:8.4f}  worst {worst:8.3f}", flush=True)
            goal = HELD_OUT if kind.startswith("held out") else GOAL
            missed += name == "default" and mean > goal
    return min(missed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
