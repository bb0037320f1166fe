"""What a matrix reads of the data, compared with its intervals, every rounding counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, device, is_numpy, like, placed, to_numpy
from quadsense.core.forms import FramedForm, MeasuredForm
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import cached_property
from quadsense.measurements import Measurements
from quadsense.proofs.rounding import Enclosure, enclosure


class Values:
    """What a matrix reads, and its intervals; each of shape (m,), computed when asked for.

    Parameters
    ----------
    data : Measurements
        With intervals.
    found : Enclosure
        Values less ``data.unit_ends.reading``.
    set_aside : ndarray of int, optional
        Rows asked for nothing: their residuals are still told, their ratios are 0.
    size : float
        ``||A||_F``, in proportion to which equalities have room.
    """

    def __init__(
        self, data: Measurements, found: Enclosure, set_aside: Any = (), size: float = 0.0
    ) -> None:
        self.data, self.set_aside = data, set_aside
        self._judging = data.unit_ends.allowing(size)
        self._z, self._spread = to_numpy(found.z), to_numpy(found.error)
        self._norms = to_numpy(data.unit_rows.norms)
        # u = 0 reads 0 whatever A is
        self._dead = self._norms == 0 if data.unit_rows.has_zero_rows else None
        assert data.ends is not None
        self._ends = data.ends

    @cached_property
    def _mine(self) -> Vector:
        """Values minus the readings, in the user's units."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            mine = self._z * self._norms * self._norms
        return mine if self._dead is None else np.where(self._dead, -self._ends.reading, mine)

    @property
    def reads(self) -> Vector:
        """``u_i* A u_i``."""
        return np.asarray(self._mine + self._ends.reading)

    @cached_property
    def residuals(self) -> Vector:
        """``u_i* A u_i - b_i`` (b the middle with bounds); of a row of one end, its crossing."""
        if not (self.data.from_bounds or self.data.constraints):
            return self._mine
        two = self._ends.two_sided
        if not self.data.from_bounds:
            two = two | (np.arange(self.data.m) < self.data.measured)
        middle = self._ends.reading - to_numpy(self.data.b)
        return np.where(two, self._mine + middle, self._ends.crossing(self._mine))

    @cached_property
    def sizes(self) -> Vector:
        """Sizes of the residuals; 0 for rows set aside."""
        sizes = np.abs(self.residuals)
        if len(self.set_aside):
            sizes[self.set_aside] = 0.0
        return sizes

    @property
    def misses(self) -> Vector:
        """With bounds: by how much each interval is missed; 0 for rows set aside."""
        two = self._ends.two_sided
        return np.where(two, np.maximum(self.sizes - self._ends.unit, 0.0), self.sizes)

    @cached_property
    def error(self) -> Vector:
        """Bound on the rounding of the residuals."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            error = self._spread * self._norms * self._norms
        return error if self._dead is None else np.where(self._dead, 0.0, error)

    @cached_property
    def ratios(self) -> Vector:
        """See `Intervals.ratios`."""
        return self._kept(self._judging.ratios(self._z))

    @cached_property
    def upper(self) -> Vector:
        """The same, rounding included."""
        return self._kept(self._judging.ratios(self._z, self._spread))

    def _kept(self, ratios: Vector) -> Vector:
        if self._dead is not None:
            ratios = np.where(self._dead, self._ends.ratios(self._mine), ratios)
        if len(self.set_aside):
            ratios[self.set_aside] = 0.0
        return ratios

    @cached_property
    def met(self) -> npt.NDArray[np.bool_]:
        """Rows surely within their intervals."""
        met = self._judging.met(self._z, self._spread)
        return met if self._dead is None else np.where(self._dead, ~self._outside, met)

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """Rows counted as outside their intervals; the ratio of a wide one may round across 1."""
        over = self.ratios > 1.0
        over = over & ~self.met if over.any() else over
        missed = self.missed
        if not missed.any():
            return over
        over = over | missed
        if len(self.set_aside):
            over[self.set_aside] = False
        return over

    @property
    def missed(self) -> npt.NDArray[np.bool_]:
        """Rows surely outside their intervals."""
        missed = self._judging.missed(self._z, self._spread)
        return missed if self._dead is None else np.where(self._dead, self._outside, missed)

    @property
    def _outside(self) -> npt.NDArray[np.bool_]:
        outside = np.zeros(self.data.m, dtype=bool)
        outside[self.data.contradictions()] = True
        return outside


def reference_of(data: Measurements) -> Array:
    """What values at the unit rows are judged against: the readings, or 0 with bounds."""
    return like(data.unit_ends.reading, data.unit_rows.norms)


def evaluate(data: Measurements, matrix: SensedMatrix, set_aside: Any = ()) -> Values:
    """What the matrix reads, recomputed from the data."""
    matrix = on_rows_of(matrix, data)
    found = enclosure(matrix, data.unit_rows, reference_of(data))
    return Values(data, found, set_aside, allowed_size(data, matrix))


def allowed_size(data: Measurements, matrix: SensedMatrix) -> float:
    """``||A||_F`` where some row is an equality; otherwise 0, as it is not needed."""
    return 0.0 if data.unit_ends.allowance is None else matrix.norm()


def on_rows_of(matrix: SensedMatrix, data: Measurements) -> SensedMatrix:
    """The same matrix held on the rows of `data`, where those are its own rows, and as they are."""
    form = matrix.form
    rows = data.unit_rows.raw
    if not isinstance(form, MeasuredForm):
        return _beside(matrix, rows)
    if form.rows is rows:
        return matrix
    own: Any = form.rows
    same = own.same_as(rows)
    if not same:
        return matrix if _alike(form.c, rows.norms) else _beside(matrix, rows)
    base = form.base if form.base is None else _as(form.base, rows)
    return SensedMatrix(replace(form, rows=rows, c=_as(form.c, rows), base=base))


def _as(values: Array, rows: Any) -> Array:
    """An array in the namespace and on the device of the rows."""
    return values if _alike(values, rows.norms) else placed(to_numpy(values), rows.norms)


def _alike(a: Array, b: Array) -> bool:
    """Whether two arrays are of one namespace and on one device."""
    return is_numpy(a) == is_numpy(b) and device(a) == device(b)


def _beside(matrix: SensedMatrix, rows: Any) -> SensedMatrix:
    """The matrix in the namespace of the rows, where it came from a file."""
    if matrix.factor is not None:
        factor = _as(matrix.factor, rows)
        if factor is matrix.factor:
            return matrix
        return SensedMatrix.from_factor(rows._cast(factor), matrix.signs)
    own: Any = matrix.form
    sample = own.c if isinstance(own, MeasuredForm | FramedForm) else own.values
    if _alike(sample, rows.norms):
        return matrix
    return SensedMatrix.from_dense(rows._cast(_as(matrix.to_dense(), rows)))
