"""The system ``K y = z_1`` where K is known only by its products: sparse rows, other namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quadsense.arrays import like, to_numpy
from quadsense.methods.cg.system import CGSystem, Vector


@dataclass(frozen=True)
class OperatorSystem(CGSystem):
    """As `CGSystem`, with products by a `Gram` and nothing formed.

    Attributes
    ----------
    gram : Gram
        K of the unit rows.
    squares : (m,) array
        Squared norms of the rows meant: K is scaled by them on both sides.
    """

    gram: Any = None
    squares: Any = None
    _keeps_matrix: ClassVar[bool] = False

    def times(self, y: Vector, double: bool) -> tuple[Vector, None]:
        """``K y`` in float64, whatever `double` says."""
        sample = self.gram.rows.norms if hasattr(self.gram, "rows") else y
        weighted = self.squares * y
        own = weighted if isinstance(sample, np.ndarray) else like(weighted, sample)
        image = self.squares * to_numpy(self.gram.apply(own))
        return np.asarray(image, dtype=np.float64), None

    @property
    def masses(self) -> Vector:
        """What the rounding of each reading is in proportion to."""
        return np.asarray(self.squares * to_numpy(self.F.masses))

    @property
    def factor_fits(self) -> bool:
        """Never: there is no K to factor."""
        return False
