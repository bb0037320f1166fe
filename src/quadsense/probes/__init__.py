"""Rows that are never formed, and how to write your own: docs/probes.md.

What these functions return is given to `solve`, `Measurements`, `interval` and `verify` in place of
the array U, and means what the array would mean.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quadsense.probes.fourier import masked_fft

__all__ = [
    "masked_fft",
]

_HOMES = {
    "masked_fft": "quadsense.probes.fourier",
}


def __getattr__(name: str) -> Any:
    """Import a kind when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'quadsense.probes' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found  # the function, where a module of its name was imported
    return found


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__path__"])
