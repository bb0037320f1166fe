"""Large arrays used again once they are released: fresh memory costs more than filling it.

The first touch of a page takes the system longer than the arithmetic on what it holds, on virtual
machines ten times as long, and an iteration makes many arrays of the size of the data.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

LARGE = 2**17
"""Bytes from which an array is worth keeping."""

MOST = 8
"""Arrays kept at most."""

# References to an array that only the list below holds: it, the loop's variable and the argument.
_ALONE = 3


class Scratch:
    """Arrays of a run. Who drops one, and all views of it, gives it back."""

    def __init__(self) -> None:
        self._held: list[npt.NDArray[Any]] = []

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of arbitrary contents that is not in use elsewhere."""
        wanted = (shape,) if isinstance(shape, int) else shape
        for array in self._held:
            free = sys.getrefcount(array) == _ALONE
            if free and array.shape == wanted and array.dtype == dtype:
                return array
        made = np.empty(wanted, dtype)
        if made.nbytes >= LARGE:
            self._held = [*self._held[-(MOST - 1) :], made]
        return made
