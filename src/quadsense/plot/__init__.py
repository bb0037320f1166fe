"""Pictures of results, matrices, probes and intervals; needs the extra ``plot`` (matplotlib).

Each function returns a `matplotlib.figure.Figure` that pyplot does not know: nothing is left open,
and nothing is shown until asked (``figure.savefig(path)``; a notebook shows it by itself). With
``ax=`` it draws on axes of one's own.
"""

from quadsense.plot.intervals import intervals
from quadsense.plot.matrices import gram, matrix
from quadsense.plot.residuals import history, residuals

__all__ = ["gram", "history", "intervals", "matrix", "residuals"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
