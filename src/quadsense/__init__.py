"""Rank-one matrix sensing: a matrix of any rank that meets every measurement, certified.

>>> import quadsense
>>> p = quadsense.datasets.gaussian(n=20, m=60, seed=0)
>>> result = quadsense.solve(p.U, p.b, delta=0.01)
>>> result.success
True
"""

import importlib
from typing import Any

# From here rather than from deep inside, where these take a third longer (CPython 3.11).
import scipy.linalg
import scipy.sparse.linalg  # noqa: F401

from quadsense import datasets
from quadsense.certificate import Certificate
from quadsense.core import theory
from quadsense.core.matrix import SensedMatrix
from quadsense.core.noise import delta_from_sigma
from quadsense.measurements import Measurements
from quadsense.methods.spectral import SpectralOracle
from quadsense.result import History, Result, Status, load_result
from quadsense.solve import solve
from quadsense.spectral import solve_spectral

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "History",
    "Measurements",
    "Result",
    "SensedMatrix",
    "SpectralOracle",
    "Status",
    "__version__",
    "datasets",
    "delta_from_sigma",
    "load_result",
    "solve",
    "solve_spectral",
    "theory",
]


def __getattr__(name: str) -> Any:
    """Import `quadsense.plot` on first use: it needs matplotlib, which is an extra."""
    if name == "plot":
        return importlib.import_module("quadsense.plot")
    raise AttributeError(f"module 'quadsense' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names: not the modules that they come from."""
    return sorted([*__all__, "plot", "__doc__", "__file__", "__name__", "__path__"])
