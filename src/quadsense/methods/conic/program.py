"""A question made ready for the interior-point method: rows that ask, units near 1, softness.

Every finite end of an interval becomes an inequality ``sign v + g = end + softness``, ``g >= 0``,
in which what may be bought of softness depends on the row term (see `KernelRows`): nothing for a
hard row, else ``y/(2w)``, a variable ``q >= 0`` of price w, or a share ``1/w`` of the common ``t >=
0``. A row with equal ends is an equality; a square is one that
gives way, ``v = reading + y/(2w)``, so that no multiplier is a difference of readings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import EPS, Array
from quadsense.core.products import basis_of_span
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.device import fetched
from quadsense.measurements.sensing import Sensing
from quadsense.methods.conic.coordinates import PlainCoordinates, SeenCoordinates, forward_error

Mask = npt.NDArray[np.bool_]

SIGNS = np.array([[1.0], [-1.0]])
"""Of the upper and of the lower ends."""

MIN_MARGIN, MAX_MARGIN = 1e-8, 0.25
"""Shares of a half-width by which intervals are narrowed, so that rounding does not lead out."""

MAX_UNSEEN_SHARE = 1e-8
"""Share of C that may be rounding."""

MARGIN_ROUNDINGS = 4.0
"""Rounding errors of a reading by which they are narrowed at least, up to that share."""

MAX_END_RATIO = 1e3
"""Ends, in units of the typical one, up to which A is expected to be as large."""

MIN_ALPHA = 1e-40
"""Weight of the distance, in units of the program, below which it is left out: no step would see
it, and the first multipliers, made from it, would be as small."""


@dataclass(frozen=True)
class KernelProgram:
    """A question on the rows that ask for something, in units of `scale` and `cost`.

    Attributes
    ----------
    question : Question
        As asked, on all rows.
    given : Sensing
        All rows.
    F : Sensing
        The rows that ask, in coordinates of `basis`.
    index : ndarray of int, shape (m,)
        Which of all rows these are.
    basis : ndarray, shape (n, k), or None
        Orthonormal basis of what the rows see, where A is known elsewhere; None: no such place.
    elsewhere : float
        A is this multiple of the identity there, in units of `scale`.
    scale, cost : float
        Units of readings and A, and of the objective; powers of two.
    ends : ndarray, shape (2, m)
        Upper ends, and lower ones times -1; 0 where there is none.
    finite : ndarray of bool, shape (2, m)
        Which of them there are; of no equality.
    margin : ndarray, shape (2, m)
        How far hard ends were moved inwards.
    equal : ndarray of bool, shape (m,)
    level : ndarray, shape (m,)
        Values of the equalities, and middles of the squares; else 0.
    counted : ndarray of bool, shape (m,)
        Which rows have logarithms that cost least at their level.
    curve : ndarray, shape (m,)
        Twice the weight of a square; else 0.
    softness, share : ndarray, shape (2, m)
    price : ndarray, shape (2, m)
        What may be bought of softness at an end, see `KernelRows`; else 0.
    row_target : ndarray, shape (2, m)
        What slack times multiplier tends to: above 0 for logarithms in the objective, else 0.
    cone_target : float
        The same of the cone.
    floor : float
        What t costs at least: rows of zeros miss what they miss.
    C, P : ndarray, shape (k, k)
    alpha : float
    contradiction : bool
        Whether some row of zeros cannot read what it must.
    signs : ndarray, shape (2, 1)
        `SIGNS`, where the rows are.
    kept : dict
        What was found out of the rows alone, from step to step and for every C.
    coordinates : callable
        Makes the coordinates in which steps without a cone and without a distance are solved for.
    """

    question: Question
    given: Sensing
    F: Sensing
    index: npt.NDArray[np.intp]
    basis: Array | None
    elsewhere: float
    scale: float
    cost: float
    ends: Vector
    finite: Mask
    margin: Vector
    equal: Mask
    level: Vector
    counted: Mask
    curve: Vector
    softness: Vector
    share: Vector
    price: Vector
    row_target: Vector
    cone_target: float
    floor: float
    C: Array
    P: Array
    alpha: float
    contradiction: bool
    signs: Vector
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    coordinates: Callable[..., PlainCoordinates] = SeenCoordinates

    @property
    def psd(self) -> bool:
        """Whether A is kept positive semidefinite."""
        return self.question.psd

    @cached_property
    def row_unit(self) -> float:
        """The largest target of a row."""
        return float(np.max(self.row_target, initial=0.0))

    @cached_property
    def priced(self) -> Mask:
        """Which ends may be crossed at a price."""
        return self.price > 0.0

    @cached_property
    def yielding(self) -> Vector:
        """How far a square gives way to its multiplier, ``1/curve``; else 0."""
        curved = self.curve > 0.0
        return np.where(curved, 1.0 / np.where(curved, self.curve, 1.0), 0.0)

    @cached_property
    def counts(self) -> tuple[int, int]:
        """How many ends there are, and how many of them may be crossed at a price."""
        return int(np.count_nonzero(self.finite)), int(np.count_nonzero(self.priced))

    @cached_property
    def eye(self) -> Array:
        """The identity."""
        return self.F.placed(np.eye(self.F.n, dtype=self.F.dtype))

    @cached_property
    def relaxed(self) -> KernelProgram | None:
        """The same without the ends of rows that have squares; None where they stay.

        With logarithms, which keep A from following readings to their ends, they rarely matter, and
        without them a few steps lead to the optimum.
        """
        curved = self.curve > 0.0
        if not (self.cone_target > 0.0 and bool(np.any(self.finite & curved))):
            return None
        return replace(self, finite=self.finite & ~curved)

    @cached_property
    def common(self) -> bool:
        """Whether there is a common t."""
        return bool(np.any(self.share))

    @cached_property
    def homogeneous(self) -> bool:
        """Whether t is all of the objective, every row may miss, and there is no cone.

        Then ``F*(y) = 0`` is all that is asked of multipliers but their sum: they may be scaled.
        """
        hard = self.finite & (self.share == 0.0)
        alone = self.common and not (self.psd or self.alpha or self.floor)
        return alone and not bool(np.any(self.C) or np.any(hard) or np.any(self.equal))

    @cached_property
    def tied(self) -> bool:
        """Whether multipliers follow A: then both sides take the same step."""
        return self.alpha > 0.0 or bool(np.any(self.curve)) or bool(np.any(self.softness))

    @cached_property
    def unseen(self) -> bool:
        """Whether C has a part that nothing holds: then there is no least objective."""
        size = float(np.linalg.norm(self.C))
        if self.psd or self.alpha or not size:
            return False
        seen = SeenCoordinates(self.F, 1.0, self.kept)
        return (
            float(np.linalg.norm(self.C - seen.unpack(seen.pack(self.C)))) > MAX_UNSEEN_SHARE * size
        )

    @cached_property
    def on_host(self) -> KernelProgram:
        """The same for NumPy, where the rows are on a device: what a run ends in is judged so."""
        arrays, given = fetched(self), self.given
        if not arrays:
            return self
        F = given if self.index.size == given.m else given.only(self.index)
        return replace(self, F=F, kept={}, **arrays)

    def with_linear(self, C: Array | float) -> KernelProgram:
        """The same with another C: the rows, and what was found out of them, are shared."""
        if self.basis is not None:
            return prepare(self.given, replace(self.question, C=C))
        question = replace(self.question, C=C)
        cost = _cost_unit(question, self.scale, self.F.n)
        change = self.cost / cost
        return replace(
            self,
            question=question,
            cost=cost,
            curve=self.curve * change,
            softness=self.softness / change,
            share=self.share / change,
            price=self.price * change,
            row_target=self.row_target * change,
            cone_target=self.cone_target * change,
            floor=self.floor * change,
            C=_matrix(C, self.F, self.scale / cost),
            alpha=self.alpha * change,
        )


def prepare(rows: Sensing, question: Question) -> KernelProgram:
    """Return the program of a question on unit rows.

    Parameters
    ----------
    rows : Sensing
        All rows, of unit norm or zero.
    question : Question
        On these.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        return _prepare(rows.on_numpy(), rows.at_work(), question)


def _prepare(given: Sensing, works: Sensing, question: Question) -> KernelProgram:
    term, soft = question.term, question.soft
    rows, hard = term.kernel(question), ~soft
    live = to_numpy(given.nonzero) > 0.0
    equal = question.equal & hard
    bounded = np.isfinite(question.lo) | np.isfinite(question.hi)
    asks = live & ((rows.curve > 0.0) | (bounded & (hard | (question.weights > 0.0))))
    if question.psd and np.any(rows.spare):
        asks &= ~(rows.spare & _never_negative(given))
    contradiction = bool(np.any(~live & term.impossible(question)))
    index = np.flatnonzero(asks)
    F = works if index.size == question.m else works.only(index)
    sloping = bool(np.any(question.slope))
    F, basis, elsewhere = (F, None, 0.0) if sloping else _seen(F, question)
    put = F.placed

    def asking(values: Vector | float) -> Vector:
        """Return the values of the rows that ask."""
        return values[index] if isinstance(values, np.ndarray) else np.full(index.size, values)

    lo, hi = question.lo[index], question.hi[index]
    equal, soft = equal[index], soft[index]
    scale = _scale_unit(term.sizes(question)[index], lo, hi, question)
    cost = _cost_unit(question, scale, F.n)
    ends = np.stack([hi, -lo]) / scale
    finite = np.isfinite(ends) & ~equal
    ends = np.where(finite, ends, 0.0)
    margin = _margin(F, ends, finite & rows.walls[index], lo / scale, hi / scale)
    bought = finite & soft
    unit = scale / cost
    alpha = question.alpha * scale * unit
    target = np.where(finite, asking(rows.target) / cost, 0.0)
    C = _matrix(question.C, F, unit)
    if sloping:
        C = C + unit * works.adjoint(put(np.asarray(question.slope)))
    share = np.where(bought, asking(rows.share) / unit, 0.0)
    floor = term.floor(question, ~live) / cost
    level = asking(0.0 if rows.level is None else rows.level)
    counted = np.any(target > 0.0, axis=0) & (rows.level is not None)
    return KernelProgram(
        question, given, F, index, basis, elsewhere / scale, scale, cost,
        ends=put(ends - margin + share * floor),
        finite=put(finite),
        margin=put(margin),
        equal=put(equal),
        level=put(np.where(equal, lo, level) / scale),
        counted=put(counted),
        curve=put(asking(rows.curve) * scale * unit),
        softness=put(np.where(bought, asking(rows.softness) / (scale * unit), 0.0)),
        share=put(share),
        price=put(np.where(bought, asking(rows.price) * unit, 0.0)),
        row_target=put(target),
        cone_target=1.0 / cost if question.log_det else 0.0,
        floor=floor,
        C=C,
        P=_matrix(question.prior if question.alpha else 0.0, F, 1.0 / scale),
        alpha=alpha if alpha >= MIN_ALPHA else 0.0,
        contradiction=contradiction,
        signs=put(SIGNS),
    )  # fmt: skip


def _never_negative(F: Sensing) -> Mask:
    """Return which readings no positive semidefinite A makes negative."""
    if F.rank_one:
        return np.ones(F.m, bool)
    return np.asarray((F.weights < 0).sum(axis=1)).ravel() == 0


def _matrix(value: Array | float, F: Sensing, factor: float) -> Array:
    """Return a matrix of the order of the rows; a number is a multiple of the identity."""
    if isinstance(value, np.ndarray):
        return F.placed(np.asarray(value * factor, dtype=F.dtype))
    multiple = np.zeros((F.n, F.n), dtype=F.dtype)  # no memory is taken until it is written to
    if value:
        np.fill_diagonal(multiple, float(value) * factor)
    return F.placed(multiple)


def _seen(F: Sensing, question: Question) -> tuple[Sensing, Array | None, float]:
    """Return the rows in coordinates of their span, that basis, and A elsewhere.

    Among positive semidefinite matrices an objective that knows only multiples of the identity
    outside of the rows is least where A is block diagonal, for reflections leave it alone; and what
    is best outside of the span can be said at once.
    """
    plain = not isinstance(question.C, np.ndarray)
    plain = plain and (not question.alpha or not isinstance(question.prior, np.ndarray))
    if not question.psd or not plain or F.m == 0:
        return F, None, 0.0
    raw = F.narrowed().raw
    basis: Array | None = None
    if raw.n > raw.m:
        basis = basis_of_span(to_numpy(raw.rows()))
    else:
        values, vectors = np.linalg.eigh(raw.adjoint(np.ones_like(raw.squares)))
        keep = values > raw.m * EPS * values[-1]
        basis = None if bool(np.all(keep)) else np.asarray(vectors[:, keep])
    if basis is None:
        return F, None, 0.0
    best = _best_elsewhere(question)
    return (F, None, 0.0) if best is None else (F.within(basis), basis, best)


def _best_elsewhere(question: Question) -> float | None:
    """Return the least of ``c a + alpha (a - p)^2 - log a`` (where `log_det`) over ``a >= 0``.

    None where there is none.
    """
    c, alpha, p = float(question.C), question.alpha, 0.0
    if alpha:
        p = float(question.prior)
    slope = c - 2.0 * alpha * p
    if not question.log_det:
        if alpha:
            return max(0.0, -slope / (2.0 * alpha))
        return 0.0 if c >= 0.0 else None
    if alpha:
        return float(with_logarithm(np.float64(slope), alpha))
    return 1.0 / c if c > 0.0 else None


def with_logarithm(slope: Any, alpha: float) -> Any:
    """Return the a > 0 with the least ``slope a + alpha a^2 - log a``, a root of its slope."""
    root = np.hypot(slope, np.sqrt(8.0 * alpha))
    return np.where(slope > 0.0, 2.0 / (root + np.abs(slope)), (root - slope) / (4.0 * alpha))


def _power(size: float) -> float:
    """Return the power of four next to a size; 1 where it has none."""
    if not (size > 0.0 and np.isfinite(size)):
        return 1.0
    return float(2.0 ** (2 * round(float(np.log2(size)) / 2.0)))


def _scale_unit(typical: Vector, lo: Vector, hi: Vector, question: Question) -> float:
    """Return the size of readings: the mean of their least ends, and widths where these are 0."""
    size = float(np.mean(typical)) if typical.size else 0.0
    if size == 0.0:
        widths = (hi - lo)[np.isfinite(hi - lo)]
        size = float(np.mean(widths)) if widths.size else 0.0
    if size == 0.0 and question.alpha:
        size = _size(question.prior)
    return _power(size)


def _size(value: Array | float) -> float:
    if isinstance(value, np.ndarray):
        return float(np.linalg.norm(value)) / max(1.0, float(np.sqrt(len(value))))
    return abs(float(value))


def _cost_unit(question: Question, scale: float, n: int) -> float:
    """Return the size of the objective, for A of the size of the readings."""
    size = _size(question.C) * scale
    logarithms = question.term.logarithms or question.log_det
    if size == 0.0 and question.term.weighed and not logarithms:
        weights = question.weights[(question.weights > 0.0) & ~question.hard]
        per = scale * scale if question.term.power > 1 else scale  # infinite beyond the range
        size = float(np.median(weights)) * per if weights.size else 0.0
    if size == 0.0:
        size = question.alpha * scale * scale
    if logarithms:
        size = max(size, 1.0)
    return _power(size)


def _margin(F: Sensing, ends: Vector, which: Mask, lo: Vector, hi: Vector) -> Vector:
    """Return by how much to move the ends of hard intervals inwards."""
    if not bool(np.any(which)):
        return np.zeros_like(ends)
    size = float(np.max(np.abs(ends), where=which, initial=0.0))
    typical = float(np.median(np.abs(ends[which])))
    error = forward_error(F, np.sqrt(min(size, MAX_END_RATIO * max(typical, 1.0))) * np.eye(F.n))
    half = 0.5 * (hi - lo)
    half = np.where(np.isfinite(half), half, np.maximum(np.max(np.abs(ends), axis=0), typical))
    margin = np.clip(MARGIN_ROUNDINGS * error, MIN_MARGIN * half, MAX_MARGIN * half)
    return np.where(which, margin, 0.0)
