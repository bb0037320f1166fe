"""What a matrix reads of the data and what it costs, compared with intervals and bounds.

Every rounding is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, device, is_numpy, like, placed, to_numpy
from quadsense.core.matrix import FramedForm, MeasuredForm, SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.measurements import Measurements
from quadsense.preferences import KINDS, MatrixTerm, Preference, make_question
from quadsense.proofs.costs import objective_value
from quadsense.proofs.definite import cholesky
from quadsense.proofs.infeasible import least_miss
from quadsense.proofs.objective import objective_bound
from quadsense.proofs.rounding import Enclosure, enclosure
from quadsense.system.watch import Stop, look
from quadsense.vocabulary import Check

NEGLIGIBLE = 1e-8
"""Error of a reading, as a part of it, that counts as none."""

SMALLEST_VALUE = 1e-290
"""Values below this are none."""

VALUES_AGREE = 1e-7
"""Relative difference at which a stated value counts as the recomputed one."""


# --- what it reads ------------------------------------------------------------------------------


class Comparison:
    """What a matrix reads, and its intervals; each of shape (m,), computed when asked for.

    Parameters
    ----------
    data : Measurements
        With intervals.
    found : Enclosure
        Values minus ``data.unit_ends.reading``.
    set_aside : ndarray of int, optional
        Rows asked for nothing: their residuals are still told, their ratios are 0.
    size : float
        ``||A||_F``, in proportion to which equalities have room.
    """

    def __init__(
        self, data: Measurements, found: Enclosure, set_aside: Any = (), size: float = 0.0
    ) -> None:
        self.data, self.set_aside = data, set_aside
        self._judging, rows = data.unit_ends.allowing(size), data.unit_rows
        self._z, self._spread = to_numpy(found.z), to_numpy(found.error)
        self._norms = to_numpy(rows.norms)
        # u = 0 reads 0 whatever A is
        self._dead = self._norms == 0 if rows.has_zero_rows else None
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
        """``u_i* A u_i - b_i`` (b the middle with bounds); of a row of one end, its crossing.

        0 of rows that were not measured.
        """
        missing = self.data.missing
        if missing is None:
            return self._residuals
        absent = np.append(missing, np.zeros(self.data.m - len(missing), dtype=bool))
        return np.where(absent, 0.0, self._residuals)

    @property
    def _residuals(self) -> Vector:
        if not (self.data.from_bounds or self.data.constraints):
            return self._mine
        two = self._ends.two_sided
        if not self.data.from_bounds:
            two = two | (np.arange(self.data.m) < self.data.measured)
        middle = self._ends.reading - to_numpy(self.data.b)
        return np.where(two, self._mine + middle, self._ends.crossing(self._mine))

    @cached_property
    def sizes(self) -> Vector:
        """Sizes of the residuals; 0 for rows set aside or not measured."""
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
        if self.met.all():  # then no ratio rounds across 1, and none is missed
            return ~self.met
        over = (self.ratios > 1.0) & ~self.met | self.missed
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


def are_rows(index: npt.NDArray[np.int64], m: int) -> bool:
    """Return whether these are rows of m, each once."""
    return np.unique(index).size == index.size and bool(np.all((index >= 0) & (index < m)))


def agree(stated: Any, found: Any, room: Any) -> Any:
    """Return whether numbers are the same, or both finite and as near as that."""
    with np.errstate(invalid="ignore"):
        near = np.abs(stated - found) <= room
    return (stated == found) | (near & np.isfinite(stated) & np.isfinite(found) & np.isfinite(room))


def reference_of(data: Measurements) -> Array:
    """Return what values at the unit rows are judged against: the readings, or 0 with bounds."""
    return like(data.unit_ends.reading, data.unit_rows.norms)


def evaluate(data: Measurements, matrix: SensedMatrix, set_aside: Any = ()) -> Comparison:
    """Return what the matrix reads, recomputed from the data."""
    matrix = on_rows_of(matrix, data)
    found = enclosure(matrix, data.unit_rows, reference_of(data))
    return Comparison(data, found, set_aside, allowed_size(data, matrix))


def allowed_size(data: Measurements, matrix: SensedMatrix) -> float:
    """Return ``||A||_F`` where some row is an equality; otherwise 0, as it is not needed."""
    return 0.0 if data.unit_ends.allowance is None else matrix.norm()


def on_rows_of(matrix: SensedMatrix, data: Measurements) -> SensedMatrix:
    """Return the matrix with the rows of `data` in place of its own, where they are the same."""
    form = matrix.form
    rows = data.unit_rows.raw
    if not isinstance(form, MeasuredForm):
        return _in_namespace_of(matrix, rows)
    if form.rows is rows:
        return matrix
    own: Any = form.rows
    same = own.same_as(rows)
    if not same:
        return matrix if _alike(form.c, rows.norms) else _in_namespace_of(matrix, rows)
    base = form.base if form.base is None else _as(form.base, rows)
    return SensedMatrix(replace(form, rows=rows, c=_as(form.c, rows), base=base))


def _as(values: Array, rows: Any) -> Array:
    """Return an array in the namespace and on the device of the rows."""
    return values if _alike(values, rows.norms) else placed(to_numpy(values), rows.norms)


def _alike(a: Array, b: Array) -> bool:
    """Return whether two arrays are of one namespace and on one device."""
    return is_numpy(a) == is_numpy(b) and device(a) == device(b)


def _in_namespace_of(matrix: SensedMatrix, rows: Any) -> SensedMatrix:
    """Return the matrix in the namespace of the rows, where it came from a file."""
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


def proved_miss(data: Measurements, dual: Vector, psd: bool, most: float, condition: str) -> float:
    """Return how far some interval is missed by every matrix, by that dual vector; 0 if not proved.

    Parameters
    ----------
    data : Measurements
        With `bounds`.
    dual : ndarray of shape (m,)
    psd : bool
    most : float
        How far some matrix misses one at most.
    condition : str
        Of the certificate: no other may be needed.
    """
    unit = math.ldexp(1.0, math.frexp(most)[1]) if most > 0.0 else 1.0
    proof = least_miss(data, dual, psd, unit, conditional=bool(condition))
    sound = proof.proved and proof.condition in ("", condition)
    return max(0.0, (proof.lower_bound - 1.0) * unit) if sound else 0.0


def largest_miss(data: Measurements, values: Comparison) -> float:
    """Return how far an interval is missed by most, rounding included."""
    own = slice(data.measured)
    return float(np.max(values.misses[own] + values.error[own]))


# --- what it costs ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """What A costs by the preference, as the user reads it, and bounds on the best value.

    Attributes
    ----------
    preference : Preference
    value : float
        Of A.
    lower, upper : float
        The best value over all that fit lies between them; the one of them that A itself gives is
        infinite where A does not fit.
    gap : float
        Distance of the bounds, relative, at which the preference counts as certified.
    dual : ndarray of shape (m,) or None
        The vector behind the other bound, for the user's rows, constraints last.
    condition : str
        What that bound takes for granted; empty where nothing.
    closed : bool
        Whether the bounds are within the gap, or as near as rounding lets them be.
    """

    preference: Preference
    value: float
    lower: float
    upper: float
    gap: float
    dual: Vector | None
    condition: str
    closed: bool


def make_objective(
    data: Measurements,
    preference: Preference,
    matrix: SensedMatrix,
    reads: Vector,
    error: Vector,
    dual: Vector | None,
    *,
    fits: bool,
    gap: float,
    conditional: bool = False,
    bounded: bool = False,
    clipped: bool = True,
) -> Objective | None:
    """Return what A costs, with bounds proved from the data; None where nothing can be said.

    Parameters
    ----------
    data : Measurements
        Without the rows set aside.
    preference : Preference
    matrix : SensedMatrix
    reads, error : ndarray of shape (m,)
        What the matrix reads, and a bound on its rounding.
    dual : ndarray of shape (m,) or None
        For the user's rows.
    fits : bool
        Whether A is one of those that the preference is over: it meets what must be met.
    gap : float
    conditional : bool, default=False
        Whether to assume a bound on A without trying to prove one.
    bounded : bool, default=False
        Whether `dual` must give its bound even where the objective is 0 up to rounding, so that
        the bound 0 would be near enough.
    clipped : bool, default=True
        Whether the bound is to be no better than the value, of which rounding takes what it may.

    Notes
    -----
    Where a time limit is reached during the proof of the bound, the value is returned with the
    bound that needs no proof, and without the dual vector.
    """
    look()
    question = make_question(data, preference, strict=True)
    if question is None:
        return None
    value, slip = objective_value(question, matrix, reads, error)
    if not math.isfinite(value):
        return None  # beyond float64, or at the edge of a logarithm
    above = value + slip if fits else math.inf
    below, condition = -math.inf, ""
    if dual is not None and not np.isfinite(dual).all():
        dual = None  # beyond float64's range in units of the user's rows
    size = matrix.norm()
    nothing: float | None = None
    logarithms = question.log_det or question.term.logarithms
    squares = not (logarithms or question.linear)
    # With a distance the objective is 0 up to rounding for a multiple of I alone.
    if fits and squares and (not question.alpha or slip > value):
        nothing = _nothing(data, question, matrix, size)
    enough = nothing is not None and above <= nothing and not bounded
    if dual is not None and not enough:
        try:
            bound = objective_bound(
                data, question, dual, size=size, upper=above, conditional=conditional, gap=gap
            )
            below, condition = bound.value, bound.condition
        except Stop:
            dual = None
    if squares and below <= 0.0:
        below, condition = 0.0, ""  # all its terms are squares or distances
    if clipped:
        below = min(below, value if fits else above)
    unit = max(abs(above), question.term.unit)
    closed = math.isfinite(above) and above - below <= max(gap * unit, SMALLEST_VALUE)
    if not closed and math.isfinite(above):
        nothing = _nothing(data, question, matrix, size) if nothing is None else nothing
        closed = above - below <= nothing
    said = preference.reported
    ends = (said(above), said(below))
    return Objective(preference, said(value), min(ends), max(ends), gap, dual, condition, closed)


def is_admitted(
    preference: Preference, met: npt.NDArray[np.bool_], set_aside: Any, measured: int
) -> bool:
    """Return whether A is one of those that the preference is over.

    Under slack, and where there is no tolerance, only constraints, the last rows, must be met.
    """
    if preference.slack or not preference.target:
        return bool(met[measured:].all())
    return bool((np.delete(met, set_aside) if len(set_aside) else met).all())


def _nothing(data: Measurements, question: Question, matrix: SensedMatrix, norm: float) -> float:
    """Return the value at which an objective is 0 up to rounding, for A of that norm.

    Errors of `NEGLIGIBLE` times the readings, or times A, count as none: in squares its square.
    """
    if question.term.logarithms:
        return question.term.negligible(question, NEGLIGIBLE)
    if question.log_det:
        return NEGLIGIBLE * (1.0 + question.m)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        size = question.term.negligible(question, NEGLIGIBLE)
        if question.alpha:
            prior = question.prior
            far = float(np.linalg.norm(prior))
            if isinstance(prior, float):
                far *= math.sqrt(matrix.shape[0])
            size += question.alpha * (NEGLIGIBLE * (norm + far)) ** 2
        if question.linear:
            # A may be far smaller than what the data are about: the readings of a multiple of I.
            norm = max(norm, math.sqrt(matrix.shape[0]) * _about(data, question))
            size += NEGLIGIBLE * float(np.linalg.norm(question.C)) * norm
    return size if math.isfinite(size) else 0.0


def _about(data: Measurements, question: Question) -> float:
    """Return the size of the readings that force something on A, for rows of unit norm.

    Other ends may be as far away as one likes, and say nothing of it; they count where all are so.
    """
    ends, squares = data.ends, to_numpy(data.unit_rows.norms) ** 2
    assert ends is not None
    forcing = (question.lo > 0.0, question.hi < 0.0)
    sizes = [np.abs(ends.reading) + np.abs(each) for each in (ends.below, ends.above)]
    size = np.where(forcing[0], sizes[0], np.where(forcing[1], sizes[1], 0.0))
    known = (size > 0.0) & (squares > 0.0)
    if known.any():
        return float(np.mean(size[known] / squares[known]))
    least = np.minimum(np.abs(question.lo), np.abs(question.hi))
    known = np.isfinite(least) & (squares > 0.0)
    return float(np.min(least[known] / squares[known])) if known.any() else 0.0


def is_sound(stated: Objective, m: int, measured: int, n: int) -> bool:
    """Return whether what a file states of a preference can be one, of m rows and order n."""
    asked, dual = stated.preference, stated.dual
    numbers = (asked.ridge, asked.tau, stated.gap)
    vectors = (
        (asked.weights, (measured,)), (asked.background, (measured,)), (dual, (m,)),
        (asked.base, (n, n)),
    )  # fmt: skip
    return (
        type(asked.name) is str
        and asked.name in KINDS
        and bool(asked.kind.value)
        and all(type(number) is float and math.isfinite(number) for number in numbers)
        and asked.ridge >= 0.0
        and stated.gap >= 0.0
        and all(
            array is None or (array.shape == shape and bool(np.isfinite(array).all()))
            for array, shape in vectors
        )
        and (asked.weights is None or bool(np.all(asked.weights >= 0.0)))
        and (asked.background is None or bool(np.all(asked.background >= 0.0)))
        and (asked.kind.matrix is not MatrixTerm.LOG_DET or not asked.ridge)
        and (asked.kind.matrix is not MatrixTerm.ENTROPY or _has_entropy(asked))
    )


def _has_entropy(asked: Preference) -> bool:
    """Return whether a stated entropy can be one: with a ridge, a cone and a definite prior."""
    prior = asked.prior
    if isinstance(prior, float):
        return asked.psd and asked.ridge > 0.0 and (asked.fixed or prior > 0.0)
    return asked.psd and asked.ridge > 0.0 and cholesky(prior) is not None


def check_objective(
    data: Measurements,
    stated: Objective,
    matrix: SensedMatrix,
    reads: Vector,
    error: Vector,
    fits: bool,
) -> Iterator[Check]:
    """Recompute all that is stated of the preference, from the data alone."""
    again = make_objective(
        data, stated.preference, matrix, reads, error, stated.dual, fits=fits, gap=stated.gap,
        conditional=bool(stated.condition), bounded=stated.lower > 0.0, clipped=False,
    )  # fmt: skip
    if again is None:
        yield Check("objective", False, "nothing was preferred")
        return
    name = stated.preference.name
    numbers = (stated.value, stated.lower, stated.upper)
    sound = not any(math.isnan(number) for number in numbers)
    # Another evaluation rounds otherwise, within its own bound.
    edge = again.lower if stated.preference.upwards else again.upper
    rounding = abs(edge - again.value) if math.isfinite(edge) else 0.0
    room = VALUES_AGREE * max(abs(again.value), abs(stated.value)) + rounding
    text = f"{name}: claimed {stated.value:.8g}, found {again.value:.8g}"
    near = abs(stated.value - again.value) <= room + NEGLIGIBLE * 1e-3 * abs(again.upper)
    same = stated.value == again.value or near
    yield Check("objective", sound and same, text)
    slack = VALUES_AGREE * max(abs(again.value), abs(again.lower), 1e-300) if sound else 0.0
    low = stated.lower <= again.lower + slack or stated.lower == again.lower
    high = stated.upper >= again.upper - slack - rounding or stated.upper == again.upper
    text = (
        f"claimed {stated.lower:.8g} to {stated.upper:.8g}, proved {again.lower:.8g} to "
        f"{again.upper:.8g}"
    )
    assumed = not again.condition or stated.condition == again.condition
    yield Check("bounds on the objective", sound and low and high and assumed, text)
    # A claim of less than what the bounds show is true, too.
    yield Check("the preference is certified", again.closed or not stated.closed)
