"""The data as proofs take them: scaled by powers of two, so that no digit of them changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing


def user_dual(data: Measurements, y: Vector) -> Vector:
    """The dual vector for the user's rows from the one for unit rows."""
    norms = to_numpy(data.unit_rows.norms)
    safe = np.where(norms > 0, norms, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.where(norms > 0, y / safe / safe, y))


class Exact(NamedTuple):
    """Rows of about unit norm, their intervals and the dual vector, all scaled by powers of two."""

    F: Sensing
    ends: Intervals
    y: Vector

    def on(self, rows: npt.NDArray[np.intp]) -> Exact:
        """These rows alone."""
        return Exact(self.F.only(rows), self.ends.each(lambda values: values[rows]), self.y[rows])


def exactly(data: Measurements, dual: Vector, ends: Intervals | None = None) -> Exact:
    """The data with rows near unit norm and no digit changed: nothing rounds on the way.

    A row of zeros proves nothing here (see `Measurements.contradictions`): it reads 0, as it does.
    `ends` are those of the data unless they are given.
    """
    ends = data.ends if ends is None else ends
    assert ends is not None
    F, exponents = data.unit_rows.on_numpy().exact()
    live = to_numpy(data.unit_rows.nonzero) > 0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        y = np.ldexp(np.where(live, dual, 0.0), 2 * exponents)
    ends = ends.shifted(exponents)
    if not live.all():
        ends = ends.each(lambda values: np.where(live, values, 0.0))
    return Exact(F, ends, y)
