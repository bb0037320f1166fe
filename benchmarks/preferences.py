"""What it matters which A is returned: every preference on the same data.

    python benchmarks/tasks.py --only preferences [--seeds 10]

A line a preference: fidelity with the true state of three qubits, pure, of rank 2 and of full rank
(more readings than unknowns), and the relative error of a covariance (fewer).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from simulate import fidelity, sketches, tomography

import quadsense

QUBITS, RANKS = 3, (1, 2, 8)
"""Of the states: 216 readings of 64 unknowns."""

WAYS: dict[str, tuple[bool, dict[str, Any]]] = {
    "auto": (True, {}),
    "least_squares about b": (True, {"prefer": "least_squares"}),
    "least_squares about the middles": (False, {"prefer": "least_squares"}),
    "least_squares without a pull": (True, {"prefer": "least_squares", "ridge": 0.0}),
    "entropy": (True, {"prefer": "entropy"}),
    "center": (True, {"prefer": "center"}),
    "nearest to a multiple of I": (True, {"prefer": "nearest"}),
    "minimax": (True, {"prefer": "minimax"}),
    "any": (True, {"prefer": "any"}),
}
"""Whether b is given with the bounds, and what is preferred."""


def states(seeds: int) -> Iterator[str]:
    """Mean fidelity from 1000 shots a Pauli basis, trace 1, and of the least trace without that."""
    for name, (beside, preference) in {
        **WAYS,
        "min_trace": (True, {"prefer": "min_trace"}),
    }.items():
        means = []
        for rank in RANKS:
            found = []
            for seed in range(seeds):
                t = tomography(QUBITS, rank, seed=seed)
                bounds = quadsense.bounds_from_counts(t.counts, t.shots)
                trace = None if name == "min_trace" else 1.0
                b = t.frequencies if beside else None
                result = quadsense.solve(t.U, b, bounds=bounds, psd=True, trace=trace, **preference)
                found.append(fidelity(t.state, result.A) if result.met else np.nan)
            means.append(float(np.mean(found)))
        text = ", ".join(f"rank {r} {value:.4f}" for r, value in zip(RANKS, means, strict=True))
        yield f"{QUBITS} qubits, {name}: fidelity {text}"


def covariances(seeds: int) -> Iterator[str]:
    """Mean relative error, n = 20, from 147 sketches (0.7 of the unknowns) of 10,000 samples."""
    for name, (beside, preference) in {
        **WAYS,
        "min_trace": (True, {"prefer": "min_trace"}),
    }.items():
        means = []
        for truth in ("toeplitz", "spikes"):
            found = []
            for seed in range(seeds):
                U, b, covariance = sketches(truth, n=20, m=147, seed=seed)
                bounds = quadsense.bounds_from_averages(b, dof=10_000)
                result = quadsense.solve(
                    U, b if beside else None, bounds=bounds, psd=True, **preference
                )
                off = float(np.linalg.norm(result.A - covariance) / np.linalg.norm(covariance))
                found.append(off if result.met else np.nan)
            means.append(float(np.mean(found)))
        yield f"covariance, {name}: error {means[0]:.3f} (toeplitz), {means[1]:.3f} (spikes)"


def preferences(seeds: int) -> Iterator[str]:
    """Every preference on both."""
    yield from states(seeds)
    yield from covariances(seeds)
