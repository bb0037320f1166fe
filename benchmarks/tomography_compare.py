"""Fidelity of estimates of states from simulated Pauli counts, next to other estimators.

    python benchmarks/tomography_compare.py [--qubits 2 3 4] [--shots 100 1000] [--seeds 10]
    python benchmarks/tomography_compare.py --intervals

For GHZ, W, pure, rank-4 and mixed states: mean fidelity with the state over the seeds, and CPU
seconds on one thread, of `quadsense.tomography.fit_state` (likelihood, least squares, and least
squares weighted by the variances of frequencies), projected least squares, an iterated maximum
likelihood (R rho R) and, where qiskit-experiments is installed, its `cvxpy_gaussian_lstsq`, which
is that weighted one, up to `--rivals` qubits. A line says whether the default (likelihood) is at
least as good as the others, and whether the weighted one is as good as theirs. With `--intervals`
the widths of fidelity intervals next to those of one interval per outcome, and their time.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from task_list import verdict
from tomography import fidelity, ghz, projected

import quadsense
from quadsense.tomography import fit_state

MAX_ITERATIONS = 2000
"""Of R rho R."""

WORSE = 0.003
"""Mean fidelity that an estimate may lack."""


def state_of(kind: str, qubits: int, rng: np.random.Generator) -> Any:
    """Return a density matrix."""
    n = 2**qubits
    if kind == "ghz":
        return ghz(qubits)
    if kind == "w":
        v = np.zeros(n)
        v[2 ** np.arange(qubits)] = qubits**-0.5
        return 0.9 * np.outer(v, v).astype(complex) + 0.1 * np.eye(n) / n
    rank = {"pure": 1, "rank4": 4, "mixed": n}[kind]
    G = rng.standard_normal((n, rank)) + 1j * rng.standard_normal((n, rank))
    rho = G @ G.conj().T
    return rho / np.trace(rho).real


def counted(U: Any, rho: Any, shots: int, rng: np.random.Generator) -> Any:
    """Return counts (settings, outcomes)."""
    p = U.forward(rho).clip(0.0).reshape(len(U.settings), -1)
    return rng.multinomial(shots, p / p.sum(axis=1, keepdims=True))


def iterated(U: Any, counts: Any) -> Any:
    """Return the maximum likelihood by R rho R, until the likelihood hardly rises."""
    k, rho, last = counts.ravel(), np.eye(U.n, dtype=complex) / U.n, -np.inf
    on = k > 0
    for _ in range(MAX_ITERATIONS):
        p = U.forward(rho)
        value = float(k[on] @ np.log(p[on]))
        if value - last < 1e-12 * abs(value):
            break
        last = value
        R = U.adjoint(np.where(on, k / np.where(on, p, 1.0), 0.0))
        rho = R @ rho @ R
        rho /= np.trace(rho).real
    return rho


def by_qiskit(qubits: int) -> Callable[[Any], Any] | None:
    """Return qiskit-experiments' fit of counts; None where it is not installed."""
    try:
        from qiskit_experiments.library.tomography.basis import PauliMeasurementBasis
        from qiskit_experiments.library.tomography.fitters import cvxpy_gaussian_lstsq
    except ImportError:
        return None
    order = np.array([1, 2, 0])  # X, Y, Z in its basis
    settings = np.indices((3,) * qubits).reshape(qubits, -1).T
    indices, none = order[settings[:, ::-1]], np.zeros((len(settings), 0), int)

    def fit(counts: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cvxpy_gaussian_lstsq(
                counts[None], counts.sum(axis=1), indices, none,
                measurement_basis=PauliMeasurementBasis(), trace=1,
            )[0]  # fmt: skip

    return fit


def compare(options: argparse.Namespace) -> None:
    """Print a line per state, number of qubits and of shots."""
    for qubits in options.qubits:
        U: Any = quadsense.probes.product_povm(["pauli"] * qubits)
        able: dict[str, Callable[[Any], Any]] = {
            "likelihood": lambda k: fit_state(k, prefer="likelihood").rho,
            "least squares": lambda k: fit_state(k, prefer="least_squares").rho,
            "weighted": lambda k: fit_state(k, prefer="weighted").rho,
            "projected": lambda k, U=U: projected(U, k.ravel() / k.sum(axis=1).repeat(k.shape[1])),
        }
        if qubits <= options.rivals:
            able["R rho R"] = lambda k, U=U: iterated(U, k)
            qiskit = by_qiskit(qubits)
            if qiskit is not None:
                able["qiskit cvxpy"] = qiskit
        for shots in options.shots:
            for kind in options.states:
                found: dict[str, list[tuple[float, float]]] = {name: [] for name in able}
                for seed in range(options.seeds):
                    rng = np.random.default_rng(seed)
                    rho = state_of(kind, qubits, rng)
                    k = counted(U, rho, shots, rng)
                    for name, fit in able.items():
                        start = time.process_time()
                        A = fit(k)
                        seconds = time.process_time() - start
                        found[name].append((fidelity(rho, A), seconds))
                means = {name: np.mean(values, axis=0) for name, values in found.items()}
                own = max(means["likelihood"][0], means["least squares"][0])
                rivals = [means[name][0] for name in ("R rho R", "qiskit cvxpy") if name in means]
                kept = means["likelihood"][0] >= max(rivals, default=0.0) - WORSE
                kept &= own >= means["projected"][0]
                text = ", ".join(f"{n} {f:.4f} ({s:.3f} s)" for n, (f, s) in means.items())
                if "qiskit cvxpy" in means:
                    alike = means["weighted"][0] >= means["qiskit cvxpy"][0] - WORSE
                    text += f": weighted {verdict(bool(alike))}"
                print(f"{qubits} qubits, {shots} shots, {kind}: {text}: {verdict(bool(kept))}",
                      flush=True)  # fmt: skip


def intervals(options: argparse.Namespace) -> None:
    """Print widths and times of fidelity intervals."""
    for qubits in options.qubits:
        rho, n = ghz(qubits), 2**qubits
        v = np.zeros(n)
        v[[0, -1]] = np.sqrt(0.5)
        U: Any = quadsense.probes.product_povm(["pauli"] * qubits)
        k = counted(U, rho, options.shots[-1], np.random.default_rng(0))
        state = fit_state(k)
        start = time.process_time()
        plain = state.fidelity(v)
        seconds = time.process_time() - start
        named = fit_state(k, target=v).fidelity()
        line = (
            f"{qubits} qubits: {plain} in {seconds:.3f} s; named beforehand {named}; width "
            f"{plain.upper - plain.lower:.4f}, named {named.upper - named.lower:.4f}"
        )
        if qubits <= 4:
            C = np.outer(v, v).astype(complex)
            box = quadsense.interval(U, k.ravel(), C, shots=options.shots[-1], psd=True, trace=1)
            width = min(box.upper, 1.0) - box.lower
            line += f"; one interval per outcome {width:.4f}: {plain.upper - plain.lower:.4f} is "
            line += f"{(plain.upper - plain.lower) / width:.2f} and named "
            line += f"{(named.upper - named.lower) / width:.2f} of it"
        print(line, flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--qubits", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--shots", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rivals", type=int, default=4, help="qubits up to which they run")
    parser.add_argument(
        "--states", nargs="+", default=["ghz", "w", "pure", "rank4", "mixed"], help="which"
    )
    parser.add_argument("--intervals", action="store_true")
    options = parser.parse_args()
    (intervals if options.intervals else compare)(options)


if __name__ == "__main__":
    main()
