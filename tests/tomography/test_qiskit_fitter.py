"""`tomography.qiskit_fitter`, called as qiskit-experiments calls its fitters."""

import itertools
import re

import numpy as np
import pytest

from quadsense.tomography import QiskitFitter, qiskit_fitter

PAULIS = [np.diag([1, -1]), np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]])]


class LocalBasis:
    """What the fitter asks of a measurement basis: settings Z, X and Y, or others."""

    def __init__(self, readout=None, observables=PAULIS):
        self.readout, self.observables = readout, observables

    def outcome_shape(self, qubits):
        return (2,) * len(qubits)

    def matrix(self, index, outcome, qubits):
        found = np.ones((1, 1))
        for j, (i, qubit) in enumerate(zip(index, qubits, strict=True)):
            bit = outcome >> j & 1
            ideal = [(np.eye(2) + sign * self.observables[i]) / 2 for sign in (1, -1)]
            M = np.eye(2) if self.readout is None else self.readout[qubit]
            found = np.kron(M[bit, 0] * ideal[0] + M[bit, 1] * ideal[1], found)
        return found


def data(basis, q, seed=0, shots=10**6):
    """Return a state and what the experiment hands over."""
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((2**q, 2)) + 1j * rng.standard_normal((2**q, 2))
    rho = G @ G.conj().T
    rho /= np.trace(rho).real
    indices = np.array(list(itertools.product(range(3), repeat=q)))
    qubits = tuple(range(q))
    p = np.array([
        [np.trace(basis.matrix(i, o, qubits) @ rho).real for o in range(2**q)] for i in indices
    ])  # fmt: skip
    counts = rng.multinomial(shots, p.clip(0.0) / p.clip(0.0).sum(axis=1, keepdims=True))
    none = np.zeros((len(indices), 0), int)
    return rho, (counts[None], counts.sum(axis=1), indices, none)


READOUT = [np.array([[0.97, 0.06], [0.03, 0.94]]), np.array([[0.9, 0.02], [0.1, 0.98]])]
TURN = np.array([[1, 1], [1, -1]]) / np.sqrt(2) @ np.diag([1, np.exp(0.3j)])


@pytest.mark.parametrize(
    "basis",
    [
        LocalBasis(),
        LocalBasis(READOUT),
        LocalBasis(observables=[TURN @ P @ TURN.conj().T for P in PAULIS]),
    ],
    ids=["pauli", "readout", "other"],
)
def test_states_come_back_in_qiskit_order(basis):
    rho, arguments = data(basis, 2)
    fitter = QiskitFitter()
    fits, metadata = fitter(*arguments, measurement_basis=basis, measurement_qubits=(0, 1))
    assert np.abs(fits[0] - rho).max() < 0.01
    assert metadata["status"] == "optimal"
    assert fitter.estimate.consistent is True


REFUSED = [
    ({"conditional_measurement_indices": [0]}, "conditional_measurement_indices: conditional"),
    ({"conditional_preparation_indices": [0]}, "conditional_preparation_indices: conditional"),
    ({"preparation_basis": 1}, "preparation_basis: process tomography"),
    ({"psd": False}, "psd: "),
    ({"trace": 2}, "not 2"),
    ({"measurement_basis": None}, "needs a measurement_basis"),
]


@pytest.mark.parametrize(("more", "message"), REFUSED)
def test_what_is_no_state_tomography_is_refused_by_name(more, message):
    basis = LocalBasis()
    arguments = data(basis, 1)[1]
    with pytest.raises(ValueError, match=re.escape(message)):
        qiskit_fitter(*arguments, **{"measurement_basis": basis, **more})


def test_conditional_counts_are_refused():
    basis = LocalBasis()
    counts, *rest = data(basis, 1)[1]
    with pytest.raises(ValueError, match="conditional fits are no part"):
        qiskit_fitter(np.repeat(counts, 2, axis=0), *rest, measurement_basis=basis)
