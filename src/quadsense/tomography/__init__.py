"""States of qubits and other small systems from counts, with certified error bars."""

from quadsense.tomography.counts import Counts, Expectations
from quadsense.tomography.estimate import Estimated, StateEstimate
from quadsense.tomography.fit import fit_state
from quadsense.tomography.qiskit import QiskitFitter, qiskit_fitter

__all__ = [
    "Counts",
    "Estimated",
    "Expectations",
    "QiskitFitter",
    "StateEstimate",
    "fit_state",
    "qiskit_fitter",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
