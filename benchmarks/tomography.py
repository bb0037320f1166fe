"""States of qubits from counts of all Pauli settings: time, certified gap, error.

    python benchmarks/tomography.py [--qubits 5 6 7 8] [--shots 1000] [--seeds 3] [--settings .5]
    python benchmarks/tomography.py --likelihood

The state is a GHZ state with 10% of white noise; counts are simulated. For every number of qubits
`quadsense.solve` finds the least-squares state (`probes.product_povm`), once before its time is
taken, in CPU seconds on one thread, proof included. In the same run: projected least squares, which
is linear inversion with its eigenvalues projected, what it costs more than the optimum, and the
fidelities of both with the state itself. With `--likelihood` the state of maximum likelihood, with
a gap of 1e-6 of the deviance, takes the place of least squares. With `--intervals` the counts are
given with `shots=`: least squares within intervals that hold together with 95% confidence.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from typing import Any

import numpy as np
from task_list import verdict

import quadsense

TARGETS = {5: 0.05, 6: 0.1, 7: 0.4, 8: 2.0, 9: 15.0}
"""Seconds at most."""

LIKELIHOOD_TARGETS = {5: 0.5, 6: 2.0, 7: 12.0, 8: 70.0}
"""The same of the likelihood."""

GAP = 1e-6
"""Certified gap at most, relative to the sum of squares, or to the deviance."""


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


def projected(U: Any, b: Any) -> Any:
    """Least squares, its eigenvalues moved to the nearest probabilities."""
    normal = U.normal_diagonal(np.ones(U.m))
    free = normal.back(normal.into(U.adjoint(b)) / normal.values.clip(1e-9 * normal.values.max()))
    values, vectors = np.linalg.eigh(free)
    excess = (np.cumsum(values[::-1]) - 1.0) / np.arange(1, len(values) + 1)
    kept = (values - excess.max()).clip(0.0)
    return (vectors * kept) @ vectors.conj().T


def measure(qubits: int, options: argparse.Namespace, seed: int) -> tuple[float, float, str]:
    """Seconds, gap, and a line."""
    rng, rho = np.random.default_rng(seed), ghz(qubits)
    settings = quadsense.probes.product_povm(["pauli"] * qubits).settings
    kept = max(1, round(options.settings * len(settings)))
    settings = settings[np.sort(rng.permutation(len(settings))[:kept])]
    U = quadsense.probes.product_povm(["pauli"] * qubits, settings)
    p = U.forward(rho).clip(0.0).reshape(len(settings), -1)
    counts = rng.multinomial(options.shots, p / p.sum(axis=1, keepdims=True)).ravel()
    b = counts / options.shots
    asked: dict[str, Any] = {"psd": True, "trace": 1}
    given = counts if options.intervals else b
    asked |= {"shots": options.shots} if options.intervals else {}
    if options.likelihood:
        given = counts
        asked |= {"shots": options.shots, "prefer": "likelihood", "gap": GAP}
    if seed == 0:
        quadsense.solve(U, given, **asked)  # what is imported and compiled once
    start = time.process_time()
    result = quadsense.solve(U, given, **asked)
    seconds = time.process_time() - start
    start = time.process_time()
    quick = projected(U, b)
    quickly = time.process_time() - start
    gap = 1.0 - result.objective_bounds[0] / result.objective
    misses = np.sum((U.forward(quick) - b) ** 2) / np.sum((U.forward(result.A) - b) ** 2)
    line = (
        f"{qubits} qubits, seed {seed}: {result.status} by {result.plan['methods'][0]} in "
        f"{seconds:.3f} s, gap {gap:.1e}, fidelity {fidelity(result.A, rho):.4f}; projected least "
        f"squares {quickly:.3f} s, fidelity {fidelity(quick, rho):.4f}, {misses:.3f} times the "
        "sum of squares"
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
    options = parser.parse_args()
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
