"""Rows that are never formed, and how to write your own: docs/probes.md.

What these functions return is given to `solve`, `Measurements`, `interval` and `verify` in place of
the array U, and means what the array would mean.
"""

from quadsense.measurements.probes import Probes
from quadsense.measurements.stack import stack
from quadsense.probes.differences import differences
from quadsense.probes.fourier import masked_fft
from quadsense.probes.kronecker import kronecker
from quadsense.probes.observables import observables
from quadsense.probes.operator import ProbesReport, check_probes, operator
from quadsense.probes.product_povm import product_povm

__all__ = [
    "Probes",
    "ProbesReport",
    "check_probes",
    "differences",
    "kronecker",
    "masked_fft",
    "observables",
    "operator",
    "product_povm",
    "stack",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
