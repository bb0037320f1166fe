"""States of qubits from counts of all Pauli settings: time, certified gap, error.

    python benchmarks/tomography.py [--qubits 5 6 7 8] [--shots 1000] [--seeds 3] [--settings .5]
    python benchmarks/tomography.py --likelihood
    python benchmarks/tomography.py --device cuda --qubits 10 11 12 --seeds 1

The state is a GHZ state with 10% of white noise; counts are simulated. For every number of qubits
`quadsense.tomography.fit_state` finds the least-squares state, in CPU seconds on one thread, proof
and reading of the counts included, after a smaller one that imports and compiles all. With
`--solve`, and for part of the settings or `--intervals`, it is `quadsense.solve` on the rows of all
outcomes (`probes.product_povm`). From 11 qubits on, whose counts are billions, the means of Pauli
strings are simulated, each with the binomial error of the settings that read it. With `--device`
the steps run there, and seconds are those of the clock. In the same run, below 10 qubits: projected
least squares, which is linear inversion with its eigenvalues projected, what it costs more than the
optimum, and the fidelities of both with the state itself. With `--likelihood` the state of maximum
likelihood, with a gap of 1e-6 of the deviance, takes the place of least squares. With `--intervals`
the counts are given with `shots=`: least squares within intervals that hold together with 95%
confidence.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
import time
from functools import reduce
from typing import Any

import numpy as np
from task_list import verdict

import quadsense
from quadsense.tomography import fit_state
from quadsense.tomography.fit import tetrahedral
from quadsense.tomography.region import coefficients

TARGETS = {5: 0.05, 6: 0.1, 7: 0.4, 8: 2.0, 9: 15.0, 10: 120.0}
"""Seconds at most."""

LIKELIHOOD_TARGETS = {5: 0.5, 6: 2.0, 7: 12.0, 8: 70.0}
"""The same of the likelihood."""

GAP = 1e-6
"""Certified gap at most, relative to the sum of squares, or to the deviance."""


MAX_COUNTED_QUBITS = 10
"""Qubits up to which counts of all settings are simulated: 60 million outcomes."""

WARM_QUBITS = 4
"""Of the state that is fitted first."""


def ghz(qubits: int, noise: float = 0.1) -> Any:
    """A GHZ state with white noise."""
    n = 2**qubits
    state = np.zeros((n, n), dtype=complex)
    state[np.ix_([0, n - 1], [0, n - 1])] = 0.5
    return (1.0 - noise) * state + noise * np.eye(n) / n


def fidelity(one: Any, two: Any) -> float:
    """``(tr sqrt(sqrt(one) two sqrt(one)))^2``."""
    values, vectors = np.linalg.eigh(one)
    root = (vectors * np.sqrt(values.clip(0.0))) @ vectors.conj().T
    return float(np.sum(np.sqrt(np.linalg.eigvalsh(root @ two @ root).clip(0.0))) ** 2)


def closeness(A: Any, rho: Any) -> str:
    """The fidelity with the state; of large ones, where that takes long, the distance."""
    if len(A) <= 2**MAX_COUNTED_QUBITS:
        return f"fidelity {fidelity(A, rho):.4f}"
    away = float(np.linalg.norm(A - rho))
    return f"distance from the state {away:.4f}, in the Frobenius norm"


def projected(U: Any, b: Any) -> Any:
    """Least squares, its eigenvalues moved to the nearest probabilities."""
    normal = U.normal_diagonal(np.ones(U.m))
    free = normal.back(normal.into(U.adjoint(b)) / normal.values.clip(1e-9 * normal.values.max()))
    values, vectors = np.linalg.eigh(free)
    excess = (np.cumsum(values[::-1]) - 1.0) / np.arange(1, len(values) + 1)
    kept = (values - excess.max()).clip(0.0)
    return (vectors * kept) @ vectors.conj().T


def simulated(qubits: int, options: argparse.Namespace, seed: int) -> tuple[Any, Any, Any]:
    """Rows of settings, their counts, and the state."""
    rng, rho = np.random.default_rng(seed), ghz(qubits)
    settings = quadsense.probes.product_povm(["pauli"] * qubits).settings
    kept = max(1, round(options.settings * len(settings)))
    settings = settings[np.sort(rng.permutation(len(settings))[:kept])]
    U: Any = quadsense.probes.product_povm(["pauli"] * qubits, settings, device=options.device)
    p = U.forward(rho).clip(0.0).reshape(len(settings), -1)
    return U, rng.multinomial(options.shots, p / p.sum(axis=1, keepdims=True)), rho


def from_means(qubits: int, options: argparse.Namespace, seed: int) -> tuple[Any, Any]:
    """Least squares of simulated means of Pauli strings, and the state."""
    rng, rho = np.random.default_rng(seed), ghz(qubits)
    means = (2**qubits * coefficients(rho, qubits)).clip(-1.0, 1.0)
    often = reduce(np.kron, [np.array([3.0, 1.0, 1.0, 1.0])] * qubits)
    totals = (options.shots * often).astype(np.int64)
    means = 2.0 * rng.binomial(totals, 0.5 * (1.0 + means)) / totals - 1.0
    rows, readings, shots = tetrahedral(means, float(totals[0]), options.device)
    weights = np.repeat(shots, rows.m)
    start = clock(options)
    result = quadsense.solve(
        rows, readings.ravel(), weights=weights, psd=True, trace=1, prefer="least_squares",
        time_limit=options.time_limit,
    )  # fmt: skip
    return (result, clock(options) - start), rho


def clock(options: argparse.Namespace) -> float:
    """CPU seconds, or with a device those of the clock."""
    return time.process_time() if options.device is None else time.perf_counter()


def fitted(U: Any, counts: Any, options: argparse.Namespace) -> Any:
    """Result of the estimate that was asked for."""
    asked: dict[str, Any] = {"psd": True, "trace": 1, "time_limit": options.time_limit}
    if options.likelihood:
        asked |= {"shots": options.shots, "prefer": "likelihood", "gap": options.gap}
        return quadsense.solve(U, counts.ravel(), **asked)
    if options.intervals:
        return quadsense.solve(U, counts.ravel(), shots=options.shots, **asked)
    if options.solve or options.settings < 1.0:
        return quadsense.solve(U, counts.ravel() / options.shots, **asked)
    return fit_state(counts, prefer="least_squares", device=options.device).result


def measure(qubits: int, options: argparse.Namespace, seed: int) -> tuple[float, float, str]:
    """Seconds, gap, and a line."""
    line = ""
    if qubits > MAX_COUNTED_QUBITS:
        (result, seconds), rho = from_means(qubits, options, seed)
    else:
        U, counts, rho = simulated(qubits, options, seed)
        start = clock(options)
        result = fitted(U, counts, options)
        seconds = clock(options) - start
        if qubits < MAX_COUNTED_QUBITS:
            b = counts.ravel() / options.shots
            start = clock(options)
            quick = projected(U, b)
            quickly = clock(options) - start
            misses = np.sum((U.forward(quick) - b) ** 2) / np.sum((U.forward(result.A) - b) ** 2)
            line = (
                f"; projected least squares {quickly:.3f} s, fidelity {fidelity(quick, rho):.4f}, "
                f"{misses:.3f} times the sum of squares"
            )
    gap = 1.0 - result.objective_bounds[0] / result.objective
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line = (
        f"{qubits} qubits, seed {seed}: {result.status} by {result.plan['methods'][0]} in "
        f"{seconds:.3f} s, {result.n_iter} steps, gap {gap:.1e}, at most {most:.1f} GiB, "
        f"{closeness(result.A, rho)}{line}; {result.timings}"
    )
    return seconds, gap, line


def main() -> None:
    """Print a line per state and one per number of qubits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--qubits", type=int, nargs="+", default=[3, 4, 5, 6, 7, 8])
    parser.add_argument("--shots", type=int, default=1000, help="per setting")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--settings", type=float, default=1.0, help="share that is measured")
    parser.add_argument("--intervals", action="store_true", help="give shots=")
    parser.add_argument("--likelihood", action="store_true", help="maximum likelihood")
    parser.add_argument("--gap", type=float, default=GAP, help="of the likelihood")
    parser.add_argument("--solve", action="store_true", help="least squares of all outcomes")
    parser.add_argument("--device", help="of torch, for instance cuda")
    parser.add_argument("--time-limit", type=float, help="seconds")
    options = parser.parse_args()
    measure(WARM_QUBITS, options, 0)  # what is imported and compiled once
    for qubits in options.qubits:
        found = []
        for seed in range(options.seeds):
            *numbers, line = measure(qubits, options, seed)
            found.append(numbers)
            print(line, flush=True)
        seconds, gap = np.median([s for s, _ in found]), max(g for _, g in found)
        target = (LIKELIHOOD_TARGETS if options.likelihood else TARGETS).get(qubits)
        if target is None or options.intervals:
            continue
        print(
            f"{qubits} qubits: median {seconds:.3f} s (at most {target:g} s: "
            f"{verdict(bool(seconds <= target))}), largest gap {gap:.1e} (at most {GAP:g}: "
            f"{verdict(bool(gap <= GAP))})"
        )


if __name__ == "__main__":
    main()
