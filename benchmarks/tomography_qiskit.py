"""State tomography inside qiskit-experiments with our fitter: does it give the true state?

    python benchmarks/tomography_qiskit.py [--tests CHECKOUT]

Needs qiskit-experiments and qiskit-aer. With `--tests` all of its own tests of state tomography run
with our fitter in place of theirs, from a checkout of its repository (they need ddt, testtools,
fixtures and multimethod): those of conditional fits are refused by name, all others pass. Without,
the experiments and thresholds are those of its own tests
that compare with the true state: all measurements of one and two qubits (fidelity above .99), GHZ
states of four qubits with readout errors in the measurement basis (above .945), and parts of three
qubits in another order (above .95).
"""

from __future__ import annotations

import argparse
import sys
import unittest
import warnings
from importlib import import_module
from typing import Any

import numpy as np
from qiskit import QuantumCircuit, quantum_info
from qiskit_aer import AerSimulator
from qiskit_aer.noise import NoiseModel
from qiskit_experiments.data_processing import LocalReadoutMitigator
from qiskit_experiments.library import StateTomography
from qiskit_experiments.library.tomography import StateTomographyAnalysis, TomographyAnalysis
from qiskit_experiments.library.tomography.basis import PauliMeasurementBasis
from task_list import verdict

from quadsense.tomography import QiskitFitter


def run(name: str, experiment: StateTomography, simulator: AerSimulator, least: float) -> None:
    """Run one with our fitter and print the fidelity with the target."""
    fitter = QiskitFitter()
    experiment.analysis.set_options(fitter=fitter)
    data = experiment.run(simulator, shots=5000).block_for_results()
    (found,) = [
        float(each.value) for each in data.analysis_results() if each.name == "state_fidelity"
    ]
    assert fitter.estimate is not None
    own = fitter.estimate.fidelity(quantum_info.DensityMatrix(experiment.analysis.options.target))
    same = abs(own.value - found) < 1e-6
    print(f"{name}: fidelity {found:.4f} (at least {least}: {verdict(found > least and same)}), "
          f"ours {own}, consistent {fitter.estimate.consistent}", flush=True)  # fmt: skip


def own_tests(checkout: str) -> None:
    """Run the tests of a checkout with our fitter alone, and print which fail, and why."""
    sys.path.insert(0, checkout)
    warnings.simplefilter("ignore")
    kept = warnings.filterwarnings, warnings.simplefilter
    warnings.filterwarnings = warnings.simplefilter = lambda *given, **named: None  # not errors
    fitter = QiskitFitter()
    for kind in (TomographyAnalysis, StateTomographyAnalysis):
        defaults = kind._default_options.__func__

        def ours(cls: Any, defaults: Any = defaults) -> Any:
            options = defaults(cls)
            options.fitter = fitter
            return options

        kind._default_options = classmethod(ours)
    import_module("test.library.tomography.tomo_utils").FITTERS[:] = [fitter]
    tests = import_module("test.library.tomography.test_state_tomography")
    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(tests).run(found)
    warnings.filterwarnings, warnings.simplefilter = kept
    failed = [test.id().rpartition(".")[2] for test, _ in found.errors + found.failures]
    refused = [name for name in failed if "conditional" in name]
    others = [name for name in failed if name not in refused]
    print(f"{found.testsRun - len(failed)} of {found.testsRun} tests pass; conditional fits, "
          f"refused by name: {len(refused)}; others: {', '.join(others) or 'none'}")  # fmt: skip


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", metavar="CHECKOUT", help="run their own tests")
    checkout = parser.parse_args().tests
    if checkout is not None:
        own_tests(checkout)
        return
    plain = AerSimulator(seed_simulator=1234)
    for qubits in (1, 2):
        target = quantum_info.random_statevector(2**qubits, seed=1234)
        run(f"{qubits} qubits", StateTomography(target), plain, 0.99)
    parts = QuantumCircuit(3)
    for k in range(3):
        parts.append(quantum_info.random_unitary(2, seed=1111 + k), [k])
    for chosen in ([0], [2, 0], [1, 2]):
        run(
            f"qubits {chosen} of 3", StateTomography(parts, measurement_indices=chosen), plain, 0.95
        )
    matrices = [
        np.array([[0.95 - 0.01 * k, 0.1 + 0.01 * k], [0.05 + 0.01 * k, 0.9 - 0.01 * k]])
        for k in range(4)
    ]
    noise = NoiseModel()
    for k, matrix in enumerate(matrices):
        noise.add_readout_error(matrix.T, [k])
    circuit = QuantumCircuit(4)
    circuit.h(0)
    for k in range(1, 4):
        circuit.cx(k - 1, k)
    basis = PauliMeasurementBasis(mitigator=LocalReadoutMitigator(matrices))
    noisy = AerSimulator(noise_model=noise, seed_simulator=1234)
    run("4 qubits, readout errors", StateTomography(circuit, measurement_basis=basis), noisy, 0.945)


if __name__ == "__main__":
    main()
