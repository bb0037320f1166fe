"""Rank-one matrix sensing: a matrix of any rank that meets every measurement, certified.

>>> import quadsense
>>> p = quadsense.datasets.gaussian(n=20, m=60, seed=0)
>>> result = quadsense.solve(p.U, p.b, delta=0.01)
>>> result.success
True
"""

import importlib
from typing import TYPE_CHECKING, Any

# From here rather than from deep inside, where these take a third longer (CPython 3.11).
import scipy.linalg
import scipy.sparse.linalg  # noqa: F401

from quadsense.core.matrix import SensedMatrix
from quadsense.core.noise import delta_from_sigma
from quadsense.interval import interval
from quadsense.measurements import Measurements
from quadsense.measurements.oracle import SpectralOracle
from quadsense.result.certificate import Certificate
from quadsense.result.facts import Verdict
from quadsense.result.result import Result
from quadsense.result.stored import load_result
from quadsense.solve import solve
from quadsense.vocabulary import History, Status

if TYPE_CHECKING:
    from quadsense import datasets, diffusion, probes, tomography
    from quadsense.compare import certify, to_cvxpy
    from quadsense.core import theory
    from quadsense.core.noise import (
        bounds_from_averages,
        bounds_from_counts,
        bounds_from_ranges,
        rtol_from_dof,
    )
    from quadsense.many.prepared import prepare
    from quadsense.many.results import ManyResults, load_many
    from quadsense.many.solve import solve_many
    from quadsense.probes import check_probes
    from quadsense.ranges import Interval, NothingFits
    from quadsense.sigma import SigmaEstimate, estimate_sigma
    from quadsense.spectral import solve_spectral

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "History",
    "Interval",
    "ManyResults",
    "Measurements",
    "NothingFits",
    "Result",
    "SensedMatrix",
    "SigmaEstimate",
    "SpectralOracle",
    "Status",
    "Verdict",
    "__version__",
    "bounds_from_averages",
    "bounds_from_counts",
    "bounds_from_ranges",
    "certify",
    "check_probes",
    "datasets",
    "delta_from_sigma",
    "diffusion",
    "estimate_sigma",
    "interval",
    "load_many",
    "load_result",
    "prepare",
    "probes",
    "rtol_from_dof",
    "solve",
    "solve_many",
    "solve_spectral",
    "theory",
    "to_cvxpy",
    "tomography",
]


_LATER = {
    "SigmaEstimate": ("quadsense.sigma", "SigmaEstimate"),
    "bounds_from_averages": ("quadsense.core.noise", "bounds_from_averages"),
    "bounds_from_counts": ("quadsense.core.noise", "bounds_from_counts"),
    "bounds_from_ranges": ("quadsense.core.noise", "bounds_from_ranges"),
    "Interval": ("quadsense.ranges", "Interval"),
    "NothingFits": ("quadsense.ranges", "NothingFits"),
    "certify": ("quadsense.compare", "certify"),
    "check_probes": ("quadsense.probes.operator", "check_probes"),
    "ManyResults": ("quadsense.many.results", "ManyResults"),
    "datasets": ("quadsense.datasets", None),
    "diffusion": ("quadsense.diffusion", None),
    "estimate_sigma": ("quadsense.sigma", "estimate_sigma"),
    "load_many": ("quadsense.many.results", "load_many"),
    "plot": ("quadsense.plot", None),  # needs matplotlib, which is an extra
    "prepare": ("quadsense.many.prepared", "prepare"),
    "probes": ("quadsense.probes", None),
    "rtol_from_dof": ("quadsense.core.noise", "rtol_from_dof"),
    "solve_many": ("quadsense.many.solve", "solve_many"),
    "solve_spectral": ("quadsense.spectral", "solve_spectral"),
    "theory": ("quadsense.core.theory", None),
    "to_cvxpy": ("quadsense.compare", "to_cvxpy"),
    "tomography": ("quadsense.tomography", None),
    "watch": ("quadsense.system.watch", None),  # for kinds of probes: quadsense.system.watch.look()
}
"""Names imported when they are first asked for: by whom one of them is needed, not all are."""


def __getattr__(name: str) -> Any:
    """Import what not every program needs on first use."""
    if name not in _LATER:
        raise AttributeError(f"module 'quadsense' has no attribute {name!r}")
    home, attribute = _LATER[name]
    module = importlib.import_module(home)
    return module if attribute is None else getattr(module, attribute)


def __dir__() -> list[str]:
    """The public names: not the modules that they come from."""
    return sorted([*__all__, "plot", "__doc__", "__file__", "__name__", "__path__"])
