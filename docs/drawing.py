"""How the pictures of the documentation look: read by ``conf.py`` and ``figures.py``."""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib as mpl

STYLE = Path(__file__).resolve().parent / "examples" / "quadsense.mplstyle"


def alike(gallery: object = None, name: str = "") -> None:
    """Draw every example alike; what divides by zero in one of them fails the build."""
    mpl.rcParams.update(mpl.rcParamsDefault)
    mpl.style.use(STYLE)
    warnings.filterwarnings("error", category=RuntimeWarning)
