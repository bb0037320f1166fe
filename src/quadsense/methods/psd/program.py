"""The data of the positive semidefinite solver, in coordinates of the span of the rows.

What no row sees is left out: A is 0 there. So n may be far above m, and the interior-point method
has an interior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.core.intervals import EPS, Array, Intervals
from quadsense.core.products import basis_of_span
from quadsense.core.records import cached_property
from quadsense.measurements.sensing import Sensing
from quadsense.methods.cg.system import CGSystem
from quadsense.methods.conic.program import KernelProgram
from quadsense.methods.conic.ratio import ratio_program
from quadsense.methods.psd.maps import forward_error
from quadsense.methods.psd.nearest import symmetric_system
from quadsense.proofs.positive import lift_floor


@dataclass(frozen=True)
class ConeProgram:
    """The data, in coordinates of the span of the rows.

    Attributes
    ----------
    F : Sensing
        The rows as given, for proofs: NumPy's arrays.
    rows : Sensing
        The rows in coordinates, of length k, for steps: F itself, or the same on its device, where
        they span the space.
    basis : ndarray, shape (n, k), or None
        Orthonormal basis of the span; None where it is everything.
    intervals, wide : Intervals
        As asked: for proofs, and those of `rows`.
    inner : Intervals
        Narrowed a little, so that what meets them meets the others whatever the rounding.
    origin : ndarray, shape (k, k)
        The matrix to stay near to.
    floor : float
        See `infeasible.lift_floor`; of F.
    max_trace : float
        Where the rows do not span the space: a fit of a larger trace counts as none.
    """

    F: Sensing
    rows: Sensing
    basis: Array | None
    intervals: Intervals
    wide: Intervals
    inner: Intervals
    origin: Array
    floor: float
    max_trace: float

    @cached_property
    def system(self) -> CGSystem:
        """That of the symmetric fit."""
        return symmetric_system(self.rows, self.inner, self.origin)

    @cached_property
    def kernel(self) -> KernelProgram:
        """That of the smallest worst ratio."""
        return ratio_program(self.rows, self.intervals, psd=True)


def prepare(
    U: Array | Sensing,
    intervals: Intervals,
    origin: Array | float | None = None,
    max_trace: float = np.inf,
    works: Sensing | None = None,
) -> ConeProgram:
    """Return the problem in coordinates of the span of the rows.

    Parameters
    ----------
    U : Sensing, or ndarray of shape (m, n)
        Rows, about unit norm.
    intervals : Intervals
        Of the m measurements.
    origin : ndarray (n, n) or float, optional
        The matrix to stay near to; a number is that multiple of I. By default the mean reading.
    max_trace : float, optional
        1e6 times ``n max|b|`` unless finite.
    works : Sensing, optional
        The same rows for the steps, where these are done elsewhere.
    """
    F = Sensing.of(U)
    raw = F.narrowed().raw
    m, n = raw.shape
    floor = lift_floor(F, intervals) if n <= m else 0.0
    basis: Array | None = None
    if n > m:
        basis = basis_of_span(raw.rows())
    elif floor == 0.0:
        values, vectors = np.linalg.eigh(raw.adjoint(np.ones(m)))
        keep = values > m * EPS * values[-1]
        basis = None if bool(np.all(keep)) else vectors[:, keep]
    rows = F.within(basis) if basis is not None else F if works is None else works
    wide = Intervals.of(*map(rows.beside, (intervals.lo, intervals.hi, intervals.unit)))
    k = rows.n
    ends = np.concatenate([intervals.lo, intervals.hi])
    ends = ends[np.isfinite(ends)]
    if origin is None:
        origin = max(0.0, float(np.mean(ends))) if ends.size else 0.0
    if isinstance(origin, float):
        near = origin * np.eye(k, dtype=F.dtype)
    else:
        near = origin if basis is None else basis.conj().T @ origin @ basis
    size = float(np.max(np.abs(ends), initial=0.0))
    error = forward_error(rows, np.sqrt(size) * np.eye(k))
    margin = np.clip(4.0 * error / intervals.unit, 1e-7, 0.25)
    limit = max_trace if np.isfinite(max_trace) else 1e6 * n * size
    inner = wide.widened(rows.beside(1.0 - margin))
    return ConeProgram(F, rows, basis, intervals, wide, inner, rows.beside(near), floor, limit)
