"""States of qubits and other small systems from counts, with certified error bars."""

from quadsense.tomography.counts import Counts, Expectations
from quadsense.tomography.estimate import Estimated, StateEstimate
from quadsense.tomography.fit import fit_state

__all__ = ["Counts", "Estimated", "Expectations", "StateEstimate", "fit_state"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
