"""What a vector proves of a question: a lower bound on its objective, every rounding counted.

For every y, whatever made it, and every A that the question admits,

    objective >= -sum_i phi_i*(y_i) + inf_A ( <T, A> + alpha ||A - P||_F^2 - log det A )

with ``T = C + F*(y)``. Where alpha is positive, or a determinant counts, the infimum has a closed
form. Else it is 0 where T vanishes (is positive semidefinite) and minus infinity elsewhere: in
floating point T does so up to some e, and a bound on A enters, found in the data where there is
one; or y is moved a little until T is proved to be positive semidefinite.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import EPS, UNIT
from quadsense.core.question import Question
from quadsense.core.records import changed, record
from quadsense.core.sums import DOWN, OF_ERRORS, ROUNDINGS, UNDERFLOW, exact_sum, sum_error
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.costs import (
    conjugate_above,
    permitted,
    shifted,
    unit_of,
)
from quadsense.proofs.definite import factorisation_error, first_shift, spectrum
from quadsense.proofs.positive import lifted
from quadsense.proofs.rounding import (
    COMPLEX,
    SPARE_OF_NESTED,
    adjoint_matrix,
    frobenius,
    plain_adjoint,
    squared_length,
)
from quadsense.proofs.symmetric import norm_bound, norm_taken, seen_columns
from quadsense.system.watch import Stop, look

ROUNDED_PARTS = 4.0
"""Sizes of a product of a few factors, in whose rounding `_down` counts it."""

SQUARE_COMPLETED = 4.0
"""Of ``inf_t (a t + alpha t^2) = -a^2/(4 alpha)``, by which quadratic parts are eliminated."""

LARGEST = float(np.finfo(np.float64).max)
"""What is proved beyond it is proved of it."""

FARTHEST = 900
"""Doublings or halvings that lead nowhere near the ends of float64's range."""

LOSS = 1e-6
"""Relative loss at which a bound without condition goes before one with."""

CLOSE = 1e-4
"""Relative distance from the value of A at which a lower bound needs no other, which costs more."""


class ObjectiveBound(NamedTuple):
    """A lower bound on the objective, and what it takes for granted, in words, if anything."""

    value: float
    condition: str


@record(frozen=True)
class Asked:
    """A question on rows over powers of two, and a vector y: no digit is changed.

    Attributes
    ----------
    F : Sensing
        Rows of norm near 1.
    question : Question
        On these rows.
    y : ndarray of shape (m,)
        Permitted (see `conjugates`).
    gained : float
        What the objective of "center" gained by the scaling, rounded up.
    seen : ndarray of bool, shape (n,)
        Coordinates that are left: rows and objective are 0 in the others.
    unit : int
        The objective, and y with it, is in units of ``2^unit``.
    conditional : bool
        Whether to assume a bound on A without trying to prove one.
    gap : float
        Relative distance from the value of A at which a bound is near enough.
    """

    F: Sensing
    question: Question
    y: Vector
    gained: float
    seen: npt.NDArray[np.bool_]
    unit: int
    conditional: bool = False
    gap: float = 0.0

    def rows_above(self, y: Vector) -> float:
        """Return ``sum_i phi_i*(y_i)`` of the user's rows, rounded up."""
        found = conjugate_above(self.question, y) + self.gained
        return found + 2.0 * UNIT * (abs(found) + abs(self.gained))


def asked(data: Measurements, question: Question, dual: Vector) -> Asked:
    """Return the question and the vector as proofs take them.

    A row of zeros reads 0: its entry of y is the one that says so best.
    """
    F, exponents = data.unit_rows.on_numpy().exact()
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        unit = _unit_of_objective(question, exponents)
        scaled = shifted(question, exponents, unit)
        if unit:
            C = question.C
            C = _shifted(C, -unit) if isinstance(C, float) else _ldexp(np.asarray(C), -unit)
            scaled = changed(scaled, C=C, alpha=_shifted(question.alpha, -unit))
        y = np.ldexp(np.asarray(dual, dtype=np.float64), 2 * exponents - unit)
        if data.unit_rows.has_zero_rows:
            y = np.where(to_numpy(data.unit_rows.nonzero) == 0, scaled.slopes_at_zero, y)
        y = permitted(scaled, y)
    gained = 0.0
    if question.term.logarithms:
        ends = question.term.logarithms_of_ends(scaled)
        gained = 2.0 * math.log(2.0) * int((exponents * ends).sum())
        gained += ROUNDINGS * abs(gained)
    keep = _seen_columns(F, scaled)
    if not keep.all():
        F = F.within(np.eye(F.n, dtype=F.dtype)[:, keep])
        C = scaled.C
        if not isinstance(C, float):
            scaled = changed(scaled, C=np.ascontiguousarray(np.asarray(C)[np.ix_(keep, keep)]))
    return Asked(F, scaled, y, gained, keep, unit)


def _unit_of_objective(question: Question, exponents: npt.NDArray[np.int64]) -> int:
    """Return a unit in which weights, C and alpha stay within float64's range; otherwise 0."""
    unit = unit_of(question, exponents)
    if not unit:
        return 0
    parts = np.abs([question.alpha, *np.ravel(question.C)])
    sizes = np.frexp(parts[parts > 0.0])[1] - unit
    return 0 if (np.abs(sizes) > FARTHEST).any() else unit


def _seen_columns(F: Sensing, question: Question) -> npt.NDArray[np.bool_]:
    """Return the coordinates in which a row or the objective is not 0: A matters nowhere else."""
    everything = np.ones(F.n, bool)
    C = question.C
    if question.alpha > 0.0 or question.log_det or (isinstance(C, float) and C != 0.0):
        return everything
    keep = seen_columns(F)
    if keep.all():
        return everything
    if not isinstance(C, float):
        keep |= (np.asarray(C) != 0.0).any(axis=0)
    return keep if keep.any() else everything


def objective_bound(
    data: Measurements,
    question: Question,
    dual: Vector,
    *,
    size: float,
    upper: float = math.inf,
    kept: dict[bytes, float] | None = None,
    conditional: bool = False,
    gap: float = 0.0,
) -> ObjectiveBound:
    """Return a lower bound on the objective over every A in the cone that satisfies the question.

    Parameters
    ----------
    data : Measurements
        With one reading per row of the question, constraints included.
    question : Question
        In the user's scaling.
    dual : ndarray of shape (m,)
        y, for the user's rows: any vector.
    size : float
        Frobenius norm of the best A known: where a bound on the norm must be taken for granted,
        it is not below ten times that.
    upper : float, optional
        The objective of that A. Where the readings are bounded by what they cost, this is how
        far: without it such bounds are conditional.
    kept : dict, optional
        Where bounds on A are kept from call to call, for the same data and intervals.
    conditional : bool, default=False
        Whether to assume a bound on A without trying to prove one. One is also assumed where a time
        limit is reached during that proof.
    gap : float, default=0
        Relative distance from `upper` at which a bound needs no other, which may cost far more.

    Returns
    -------
    Bound
        Of value ``-inf`` where nothing is proved, ``inf`` where a row of zeros cannot be met.
    """
    if _contradicts(data, question):
        return ObjectiveBound(math.inf, "")
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        case = changed(asked(data, question, dual), conditional=conditional, gap=gap)
        found = _bound(case, size, _outwards(upper, -case.unit), {} if kept is None else kept)
        found = ObjectiveBound(-_outwards(-found.value, case.unit), found.condition)
    floor = _floor(data, question)
    if not found.value > floor:  # not so for NaN
        return ObjectiveBound(floor, "")
    return ObjectiveBound(min(found.value, upper, LARGEST), found.condition)


def _bound(case: Asked, size: float, upper: float, kept: dict[bytes, float]) -> ObjectiveBound:
    F, question, y = case.F, case.question, case.y
    look()
    rows = case.rows_above(y)
    if rows == math.inf:
        return ObjectiveBound(-math.inf, "")
    unit = _unit(F, question, y)
    if (question.alpha > 0.0 or question.psd) and not question.log_det:
        quick = ObjectiveBound(_quick_bound(case, rows, unit), "")
        # Without a distance what a definite T leaves is 0, however it is summed up.
        definite = question.alpha == 0.0 and quick.value > -math.inf
        if definite or quick.value >= (1.0 - CLOSE) * upper:
            return quick
    C = _dense(question.C, F)
    T, error = adjoint_matrix(F, np.ldexp(y, -unit), _ldexp(C, -unit))
    if question.alpha > 0.0 or question.log_det:
        inside = _infimum(question, F, T, error, unit)
        whole = ObjectiveBound(_down(inside - rows, abs(inside) + abs(rows)), "")
        if question.log_det or whole.value >= (1.0 - max(CLOSE, case.gap)) * upper:
            return whole
        # A distance that hardly counts bounds next to nothing: then better none at all.
        other = _bound(changed(case, question=changed(question, alpha=0.0)), size, upper, kept)
        return other if other.value > whole.value else whole
    if not question.psd:
        e = frobenius(T) * (1.0 + sum_error(F.n * F.n)) + error
        return _symmetric(case, rows, _shifted(e, unit), size, upper, kept)
    found = spectrum(T)
    e = found.error + error - float(found.values[0])
    if e <= 0.0 or _is_sum_of_squares(case):
        return ObjectiveBound(_down(-rows, 0.0), "")
    return _positive(case, rows, _shifted(e, unit), size)


def _quick_bound(case: Asked, rows: float, unit: int) -> float:
    """Return the bound of a question from one product and its a-priori error.

    It has a distance; otherwise the bound is ``-inf`` unless that proves T to be definite.
    """
    F, question, y = case.F, case.question, np.ldexp(case.y, -unit)
    long = F.prefers_gram and not question.psd and isinstance(question.prior, float)
    if not (long and isinstance(question.C, float) and question.C == 0.0):
        T, error = plain_adjoint(F, y)
        C = _ldexp(_dense(question.C, F), -unit)
        inside = _infimum(question, F, T + C, error + 2.0 * UNIT * frobenius(C), unit)
        return _down(inside - rows, abs(inside) + abs(rows))
    square, error = squared_length(F, y)
    quadratic = _shifted(square + error, 2 * unit) / (SQUARE_COMPLETED * question.alpha)
    identity = question.prior * np.ldexp(y * to_numpy(F.squares), unit)
    linear, size = exact_sum(identity), exact_sum(np.abs(identity))
    slip = (sum_error(2.0 * F.n + SPARE_OF_NESTED) + 2.0 * COMPLEX * F.rounding) * size
    return _down(linear - slip - quadratic - rows, size + ROUNDED_PARTS * quadratic + abs(rows))


def _symmetric(
    case: Asked, rows: float, e: float, size: float, upper: float, kept: dict[bytes, float]
) -> ObjectiveBound:
    """Return ``-sum phi* - e ||A||_F``."""
    C = case.question.C
    key = case.seen.tobytes() + bytes([isinstance(C, float) and C == 0.0])
    if upper == math.inf and key in kept:
        norm = kept[key]
    else:
        norm = math.inf
        with suppress(Stop):
            if not case.conditional:
                norm = kept[key] = norm_bound(case.F, case.question, upper)
    condition = ""
    if not norm < math.inf:
        norm = norm_taken(case.F, case.question, size, upper)
        condition = f"among matrices of Frobenius norm up to {norm:.3g}"
    loss = e * norm
    return ObjectiveBound(_down(-rows - loss, abs(rows) + ROUNDED_PARTS * loss), condition)


def _positive(case: Asked, rows: float, e: float, size: float) -> ObjectiveBound:
    """Return the better bound: with y moved until T is definite, or ``-sum phi* - e tr A``."""
    best = -math.inf
    with suppress(Stop):
        for y in () if case.conditional else lifted(case.F, case.question, case.y, e):
            look()
            best = max(best, _down(-case.rows_above(y), 0.0))
    trace = case.F.n * norm_taken(case.F, case.question, size, math.inf)
    loss = e * trace
    granted = _down(-rows - loss, abs(rows) + ROUNDED_PARTS * loss)
    if best >= granted - LOSS * abs(granted):
        return ObjectiveBound(best, "")
    return ObjectiveBound(granted, f"among matrices of trace up to {trace:.3g}")


def _infimum(question: Question, F: Sensing, T: npt.NDArray[Any], error: float, unit: int) -> float:
    """Return ``inf_A <T, A> + alpha ||A - P||_F^2 - log det A``, rounded down.

    Notes
    -----
    Without the determinant it is ``<T, P> - ||T||^2/(4 alpha)`` and, for positive semidefinite A,
    ``alpha`` times the squared distance of ``P - T/(2 alpha)`` from them; with it a sum over the
    eigenvalues of ``T - 2 alpha P``, which grows with each. T is in units of ``2^unit``. Without
    either it is 0 where a Cholesky factorization proves T to be positive semidefinite.
    """
    n, alpha = F.n, question.alpha
    if alpha == 0.0 and not question.log_det:
        rounding = EPS * (COMPLEX if F.is_complex else 1.0)
        slip = error + factorisation_error(n, float(np.trace(T).real) + error, rounding)
        return -math.inf if first_shift(T, (1.0,), 0.0, slip) is None else 0.0
    if question.log_det:
        M, slip = T, error
        if alpha > 0.0:
            shift = _ldexp(2.0 * alpha * _dense(question.prior, F), -unit)
            M = T - shift
            slip += 2.0 * UNIT * float(np.linalg.norm(M) + np.linalg.norm(shift))
        found = spectrum(M)
        values = np.ldexp(found.values - (found.error + slip), unit)
        extra = 0.0
        if alpha > 0.0:
            P = _dense(question.prior, F)
            extra = alpha * float(np.vdot(P, P).real)
        return _determinant_part(values - ROUNDINGS * np.abs(values), alpha) + _down(
            extra, sum_error(n * n) * extra / UNIT
        )
    P = _dense(question.prior, F)
    length = frobenius(T) * (1.0 + sum_error(n * n)) + error
    linear = float(np.vdot(P, T).real)
    slip = (error + 2.0 * sum_error(n * n) * length) * frobenius(P) * OF_ERRORS
    # In units of T: every term times 2^-unit.
    quadratic = _shifted(length * length, unit) / (SQUARE_COMPLETED * alpha)
    value = _down(linear - slip - quadratic, abs(linear) + slip + ROUNDED_PARTS * quadratic)
    if question.psd:
        half = _shifted(1.0, unit) / (2.0 * alpha)
        G = P - half * T
        found = spectrum(G)
        rounded = ROUNDINGS * float(np.linalg.norm(P) + half * np.linalg.norm(T))
        outside = np.minimum(found.values, 0.0)
        distance = frobenius(outside) * (1.0 - sum_error(n))
        distance = max(0.0, distance - found.error - half * error * OF_ERRORS - rounded)
        gain = _shifted(alpha * distance * distance, -unit)
        value = _down(value + gain, abs(value) + ROUNDED_PARTS * gain)
    return _shifted(value, unit)


def _determinant_part(values: Vector, alpha: float) -> float:
    """Return ``sum_i inf_a (values_i a + alpha a^2 - log a)``, rounded down."""
    if alpha > 0.0:
        root = np.sqrt(values * values + 2.0 * SQUARE_COMPLETED * alpha)
        # Any multiplier s of a^2 >= 2 r a - r^2 serves: 1 + log(values + 2 alpha r) - alpha r^2.
        r = np.where(
            values > 0.0, 2.0 / (root + values), (root - values) / (SQUARE_COMPLETED * alpha)
        )
        slopes = values + 2.0 * alpha * r
        parts = 1.0 + np.log(slopes) - alpha * r * r
        sizes = 1.0 + np.abs(np.log(slopes)) + alpha * r * r
        sizes += (np.abs(values) + 2.0 * alpha * r) / slopes
    else:
        if not bool((values > 0.0).all()):
            return -math.inf
        parts, sizes = 1.0 + np.log(values), 1.0 + np.abs(np.log(values))
    if not np.isfinite(parts).all():
        return -math.inf
    return exact_sum(parts) - 2.0 * ROUNDINGS * exact_sum(sizes)


def _is_sum_of_squares(case: Asked) -> bool:
    """Return whether T is a sum of squares: C is ``c I`` with c >= 0, and y is nonnegative."""
    C = case.question.C
    plain = case.F.raw is case.F
    return plain and isinstance(C, float) and C >= 0.0 and bool((case.y >= 0.0).all())


def _floor(data: Measurements, question: Question) -> float:
    """Return a lower bound on the objective that holds for every y; rows of zeros are looked at."""
    free = isinstance(question.C, float) and (
        question.C == 0.0 or (question.psd and question.C > 0.0)
    )
    if not free or question.log_det or question.term.logarithms:
        return -math.inf
    if not data.unit_rows.has_zero_rows:
        return 0.0
    return question.term.floor(question, to_numpy(data.unit_rows.nonzero) == 0) * DOWN


def _contradicts(data: Measurements, question: Question) -> bool:
    """Return whether a row of zeros must read what it cannot."""
    if not data.unit_rows.has_zero_rows:
        return False
    dead = to_numpy(data.unit_rows.nonzero) == 0
    bound = dead & ~question.soft
    return bool((bound & ((question.lo > 0.0) | (question.hi < 0.0))).any())


def _unit(F: Sensing, question: Question, y: Vector) -> int:
    """Return the exponent of the size of T's parts."""
    largest = float((np.abs(y) * F.masses).max(initial=0.0))
    C = question.C
    largest = max(largest, abs(C) if isinstance(C, float) else float(np.abs(C).max()))
    return math.frexp(largest)[1] if 0.0 < largest < math.inf else 0


def _dense(M: Any, F: Sensing) -> npt.NDArray[Any]:
    """Return a matrix, or a multiple of I, in the type of A: real rows see its real part alone."""
    if isinstance(M, float):
        return M * np.eye(F.n, dtype=np.complex128 if F.is_complex else np.float64)
    M = np.asarray(M)
    return M.astype(np.complex128) if F.is_complex else np.ascontiguousarray(M.real)


def _shifted(value: float, exponent: int) -> float:
    """Return ``value 2^exponent``, infinite beyond float64's range."""
    return float(np.ldexp(value, exponent))


def _outwards(value: float, exponent: int) -> float:
    """Return the same, rounded up where it is rounded at all."""
    return float(np.nextafter(np.ldexp(value, exponent), np.inf)) if exponent else value


def _ldexp(M: npt.NDArray[Any], exponent: int) -> npt.NDArray[Any]:
    if np.iscomplexobj(M):
        return np.ldexp(np.ascontiguousarray(M).view(M.real.dtype), exponent).view(M.dtype)
    return np.ldexp(M, exponent)


def _down(value: float, size: float) -> float:
    """Return a number rounded down by a few roundings of it and of its parts."""
    return value - ROUNDINGS * (abs(value) + size) - UNDERFLOW if math.isfinite(value) else value
