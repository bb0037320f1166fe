"""`Interval`: the certified range of ``<C, A>`` over all fits, and how it is found and checked.

Each end is a question, ``min <C, A>`` or ``min <-C, A>`` over what fits. The interior-point kernel
proposes a vector for it; what is claimed is what the vector proves (`proofs.objective`), or that
fits go on without end in a direction (`proofs.rays`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import UNIT
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import changed
from quadsense.core.sums import SPARE
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import (
    can_be_columns,
    condition_inside,
    condition_outside,
    dense_in,
    dense_out,
    framed,
    shown_outside,
)
from quadsense.proofs.infeasible import PROOF_PRODUCTS, check_infeasible
from quadsense.proofs.objective import ObjectiveBound, objective_bound
from quadsense.proofs.rays import is_ray
from quadsense.query.query import Query
from quadsense.ranges.extremes import LEAST_SIZE, Extreme, Extremes, falling_directions, is_stuck
from quadsense.result.certificate import AGREE
from quadsense.result.values import evaluate
from quadsense.run.loop import Limits
from quadsense.system.threads import with_one_blas_thread
from quadsense.system.watch import FLOPS, Interrupted, Stop
from quadsense.typing import DEFAULT_GAP
from quadsense.vocabulary import Check, Verification

FIRST_SHARE, NEXT_SHARE, LAST_SHARE = 0.1, 1e-3, 1e-8
"""Shares of the allowed gap to which the kernel goes at first, of that where rounding takes too
much compared with it, and at last."""


class NothingFits(ValueError):
    """Raised where an interval is asked for and nothing fits.

    Attributes
    ----------
    dual : ndarray of shape (m,) or None
        The vector that proves it, for the user's rows, constraints included.
    certificate : Certificate or None
        The same as a claim that can be checked, where there is one.
    """

    def __init__(self, message: str, dual: Vector | None = None, certificate: Any = None) -> None:
        super().__init__(message)
        self.dual, self.certificate = dual, certificate


@dataclass(frozen=True)
class Interval:
    """The certified range of ``<C, A>`` over all A that fit.

    Attributes
    ----------
    lower, upper : float
        No fit is below, none above: infinite where nothing better is proved.
    lower_found, upper_found : float
        The least and the largest value of the fits that were found: both ends are no further out
        than needed by ``lower_found - lower`` and ``upper - upper_found`` at most. NaN where no
        fit was found.
    lower_condition, upper_condition : str
        What an end takes for granted, in words; empty where it holds without any condition.
    lower_dual, upper_dual : ndarray of shape (m,) or None
        The vectors that prove the ends, one entry per row, constraints included:
        ``<C, A> >= -sum(hi_i y_i^+ - lo_i y_i^-)`` where ``C + F*(y)`` vanishes (is positive
        semidefinite); the same of -C for the upper end.
    lower_ray, upper_ray : ndarray of shape (n, n) or (n,), or None
        Where an end is proved infinite: a direction M, or the x of ``x x*``, in which fits go on
        without end.
    lower_fit, upper_fit : ndarray of shape (n, n) or None
        The fits of `lower_found` and `upper_found`.
    C : ndarray of shape (n, n)
        What was asked for.
    psd : bool
        Whether only positive semidefinite A count.
    relaxed : bool
        Whether a rank was asked for, which is not looked at here.
    set_aside : ndarray of int
        Rows that were left out.
    columns : ndarray of int, shape (n,), or None
        Exponents by which the columns of U were scaled for the proofs (see docs/theory.md).
    """

    lower: float
    upper: float
    lower_found: float
    upper_found: float
    lower_condition: str = ""
    upper_condition: str = ""
    lower_dual: Vector | None = field(default=None, repr=False)
    upper_dual: Vector | None = field(default=None, repr=False)
    lower_ray: Array | None = field(default=None, repr=False)
    upper_ray: Array | None = field(default=None, repr=False)
    lower_fit: Array | None = field(default=None, repr=False)
    upper_fit: Array | None = field(default=None, repr=False)
    C: Array = field(default=None, repr=False)
    psd: bool = False
    relaxed: bool = False
    set_aside: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64), repr=False
    )
    columns: npt.NDArray[np.int64] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """The ends, and what they take for granted."""
        text = f"[{self.lower:.9g}, {self.upper:.9g}]"
        for name in ("lower", "upper"):
            condition = getattr(self, f"{name}_condition")
            if condition:
                text += f", {name} end {condition}"
            elif math.isinf(getattr(self, name)) and getattr(self, f"{name}_ray") is None:
                text += f", {name} end not known"
        return f"<Interval {text}{', relaxed' if self.relaxed else ''}>"

    def _repr_html_(self) -> str:
        """For notebooks: the range, and what its ends rest on."""
        return str(import_module("quadsense.view.html").interval_html(self))

    def __iter__(self) -> Any:
        """The two ends, so that ``lower, upper = interval`` works."""
        return iter((self.lower, self.upper))

    def __contains__(self, value: float) -> bool:
        """Return whether a number lies between the ends."""
        return self.lower <= value <= self.upper

    @property
    def width(self) -> float:
        """``upper - lower``."""
        return self.upper - self.lower

    def verify(self, U: Any, b: Any = None, **options: Any) -> bool:
        """Return whether all that is stated holds on these data: see `check`."""
        return self.check(U, b, **options).true

    @with_one_blas_thread
    def check(self, U: Any, b: Any = None, **options: Any) -> Verification:
        """Recompute both ends from the data alone, and say what was checked.

        Parameters
        ----------
        U : array, sparse array or Measurements
            The probes, or the measurements.
        b : array_like of shape (m,), optional
            Readings.
        **options
            `delta`, `rtol`, `bounds`, `conjugate`, `mix`, `trace`, `constraints` as they were
            given for the interval.
        """
        data, own = measurements_of(Query(U, b, **options)), self
        if self.columns is not None:
            if not can_be_columns(self.columns, data.n):
                return Verification((Check("scaling of columns", False, "it cannot be one"),))
            data, own = framed(data, self.columns), self.stretched(-self.columns)
        if self.set_aside.size:
            data = data.set_aside(self.set_aside)
        checks = []
        for name, sign in (("lower", 1.0), ("upper", -1.0)):
            parts = {
                part: getattr(own, f"{name}_{part}")
                for part in ("dual", "ray", "fit", "found", "condition")
            }
            parts["condition"] = condition_inside(parts["condition"])
            end = _End(bound=sign * getattr(self, name), **parts)
            checks += _checked(name, end, data, question_of(data, sign * own.C, self.psd), sign)
        return Verification(tuple(checks))

    def save_certificate(
        self, path: str | os.PathLike[str], U: Any, b: Any = None, **options: Any
    ) -> None:
        """Write the range to a JSON file that ``quadsense_check.py`` checks without this package.

        Parameters
        ----------
        path : path-like
        U, b, **options
            As in `check`.
        """
        make = import_module("quadsense.certificates")
        make.write(path, make.fields_of_range(self, measurements_of(Query(U, b, **options))))

    def stretched(self, columns: npt.NDArray[np.int64]) -> Interval:
        """Return the same range with its matrices for ``D A D`` in place of A."""
        matrices = ("lower_ray", "upper_ray", "lower_fit", "upper_fit")
        held = {name: getattr(self, name) for name in matrices}
        changes = {name: dense_out(M, columns) for name, M in held.items() if M is not None}
        return replace(self, C=dense_in(self.C, columns), **changes)


@dataclass(frozen=True)
class _End:
    """One end of an interval, as that of a lower one."""

    dual: Vector | None
    ray: Array | None
    fit: Array | None
    found: float
    bound: float
    condition: str


def measurements_of(query: Query) -> Measurements:
    """Return the measurements of a query, with its constraints; they need a tolerance."""
    data = query.measurements()
    query.check(data)
    data = data.constrained(query.trace, query.constraints)
    if data.ends is None:
        raise ValueError("an interval needs a tolerance: give delta, rtol or bounds")
    return data


def question_of(data: Measurements, C: Array, psd: bool) -> Question:
    """Return the question for the least ``<C, A>`` over all fits; ends are rounded outwards."""
    ends = data.ends
    assert ends is not None
    lo, hi, nothing = ends.lo, ends.hi, np.zeros(data.m)
    rounds = (ends.reading != 0.0) & (lo < hi)
    with np.errstate(under="ignore"):
        lo = np.where(rounds, np.nextafter(lo, -np.inf), lo)
        hi = np.where(rounds, np.nextafter(hi, np.inf), hi)
    hard = np.zeros(data.m, bool)
    return Question("within", lo, hi, np.ones(data.m), nothing, hard, C, psd=psd)


def ranges(
    data: Measurements,
    matrices: list[Array],
    *,
    psd: bool,
    gap: float = DEFAULT_GAP,
    relaxed: bool = False,
    set_aside: Any = (),
    fit: SensedMatrix | None = None,
    columns: npt.NDArray[np.int64] | None = None,
    otherwise: Callable[[float | None], tuple[SensedMatrix | None, Any]] | None = None,
    limits: Limits | None = None,
) -> list[Interval]:
    """Return the certified range of every ``<C, A>``.

    Parameters
    ----------
    data : Measurements
        With a tolerance, and with constraints where there are any.
    matrices : list of ndarray of shape (n, n)
        The C, symmetric or Hermitian.
    psd : bool
        Whether only positive semidefinite A count.
    gap : float
        Share of its width by which an interval may be too wide.
    relaxed : bool
        Whether a rank was asked for, which is not looked at.
    set_aside : array_like of int
        Rows that are asked for nothing.
    fit : SensedMatrix, optional
        A matrix that fits, where one is known.
    columns : ndarray of int, optional
        Exponents by which the columns of U are scaled for this.
    otherwise : callable, optional
        What finds a fit, or the certificate that there is none, where the kernel does neither; its
        argument is the time limit in seconds.
    limits : Limits, optional
        At a time limit, and after Ctrl-C, ends are as far out as was proved by then.

    Raises
    ------
    NothingFits
        Where nothing fits, with the proof.
    Interrupted
        After Ctrl-C; its `result` is the list so far.
    """
    aside = np.asarray(set_aside, dtype=np.int64)
    limits = limits or Limits()
    if columns is not None:
        data, matrices = framed(data, columns), [dense_out(C, columns) for C in matrices]
        fit = None if fit is None else fit.stretched(-columns)
        limits = changed(limits, callback=shown_outside(limits.callback, columns))
    if aside.size:
        data = data.set_aside(aside)
    suspects = data.contradictions()
    if suspects.size:
        dual = np.zeros(data.m)
        dual[suspects[0]] = 1.0
        raise NothingFits(f"row {suspects[0]} of zeros cannot read what it must", dual)
    if not matrices:
        return []
    watch = limits.watch
    watch.reserve = 2.0 * PROOF_PRODUCTS * float(data.m) * data.n**2 / FLOPS
    search = _Ranges(data, psd, gap, Extremes(data, psd, fit), limits)
    with watch.interrupts:
        found = search.of(matrices)
    if search.finder.fit is None and not watch.over:
        fit = search.refuse(otherwise)
        if fit is not None:  # found after all: some proofs need one
            search.finder.fit = fit if columns is None else fit.stretched(-columns)
            with watch.interrupts:
                found = search.of(matrices)
    found = [replace(each, relaxed=relaxed, set_aside=aside) for each in found]
    if columns is not None:
        found = [_outside(each, columns) for each in found]
    if watch.interrupts.pressed:
        raise Interrupted(found)
    return found


def _outside(found: Interval, columns: npt.NDArray[np.int64]) -> Interval:
    """Return the range, found for scaled columns, as that of the user's A."""
    return replace(
        found.stretched(columns),
        columns=columns,
        lower_condition=condition_outside(found.lower_condition),
        upper_condition=condition_outside(found.upper_condition),
    )


class _Ranges:
    """The ranges of several ``<C, A>`` over the same fits, within the limits."""

    def __init__(
        self, data: Measurements, psd: bool, gap: float, finder: Extremes, limits: Limits
    ) -> None:
        self.data, self.psd, self.gap = data, psd, gap
        self.finder, self.limits, self.watch = finder, limits, limits.watch

    def of(self, matrices: list[Array]) -> list[Interval]:
        """Return the range of every C: of all at once where they are small, otherwise in turn.

        Where a listener is to be told of the steps, there are steps of each.
        """
        quick: list[list[Extreme] | None] = [None] * len(matrices)
        if self.limits.callback is None and not self.limits.progress:
            with suppress(Stop), self.watch.heeded():
                quick = self.finder.at_once(matrices, FIRST_SHARE * self.gap)
        return [self._of_one(C, pair) for C, pair in zip(matrices, quick, strict=True)]

    def _of_one(self, C: Array, pair: list[Extreme] | None) -> Interval:
        """Return the range of one ``<C, A>``, from two extremes or by the kernel while it helps."""
        finder = self.finder
        if finder.nothing_asks:
            finder.fit = SensedMatrix.from_dense(np.zeros_like(C))
            nothing = np.zeros(self.data.m)
            return self._proved(C, [Extreme(nothing, np.zeros_like(C), None) for _ in range(2)])
        if pair is not None:
            found = self._proved(C, pair)
            if _is_narrow(found, self.gap):
                return found
        share, last = FIRST_SHARE * self.gap, None
        found = Interval(-math.inf, math.inf, math.nan, math.nan, C=C, psd=self.psd)
        while not self.watch.over:
            last = finder.both_ends(C, share, self.limits, last)
            if last is None:
                break
            found = self._proved(C, finder.extremes(C, last))
            stuck = is_stuck(last.low) and is_stuck(last.high)
            if _is_narrow(found, self.gap) or stuck or share < LAST_SHARE:
                break
            share *= NEXT_SHARE
        return found

    def _proved(self, C: Array, extremes: list[Extreme]) -> Interval:
        """Return what the extremes prove; neither end where that exceeds the limits."""
        with suppress(Stop), self.watch.part("proofs"), self.watch.heeded(), self.watch.grace():
            return _interval(self.data, C, self.psd, extremes, self.finder)
        return Interval(-math.inf, math.inf, math.nan, math.nan, C=C, psd=self.psd)

    def refuse(
        self, otherwise: Callable[[float | None], tuple[SensedMatrix | None, Any]] | None
    ) -> SensedMatrix | None:
        """Raise where nothing fits; return the fit where one is found after all."""
        data, psd = self.data, self.psd
        words = (
            "nothing fits: no positive semidefinite matrix" if psd else "nothing fits: no matrix"
        )
        words += " is within all intervals"
        for y in self.finder.suspicions:
            dual = y if psd else -y
            if check_infeasible(data, dual, psd).proved:
                raise NothingFits(words, dual)
        if otherwise is None:
            return None
        try:
            found, certificate = otherwise(self.watch.left)
        except KeyboardInterrupt:
            self.watch.interrupts.pressed = True
            return None
        if found is None and certificate is not None:
            raise NothingFits(words, certificate.dual, certificate)
        return found


def _is_narrow(found: Interval, gap: float) -> bool:
    """Return whether each end is as near to a fit as was asked, or proved infinite."""
    width = found.upper_found - found.lower_found
    for end, value, ray in (
        (found.lower, found.lower_found, found.lower_ray),
        (found.upper, found.upper_found, found.upper_ray),
    ):
        size = abs(value) + LEAST_SIZE * float(np.linalg.norm(found.C))
        # Not so where there is no fit, for NaN.
        if ray is None and not abs(end - value) <= gap * min(width, size):
            return False
    return True


def _interval(
    data: Measurements, C: Array, psd: bool, extremes: list[Extreme], finder: Extremes
) -> Interval:
    """Return what two extremes prove."""
    ends: dict[str, Any] = {}
    pairs = zip(("lower", "upper"), (1.0, -1.0), extremes, strict=True)
    for name, sign, extreme in pairs:
        question = question_of(data, sign * C, psd)
        fit = extreme.fit
        if fit is None and finder.fit is not None:
            fit = to_numpy(finder.fit.to_dense())
        size = 0.0 if fit is None else float(np.linalg.norm(fit))
        bound, ray, dual = ObjectiveBound(-math.inf, ""), None, extreme.dual
        if dual is not None:
            bound = objective_bound(data, question, dual, size=size, kept=finder.kept)
        implied, of_trace = _implied(data, question)
        if of_trace is not None and (implied > bound.value or bound.condition):
            other = objective_bound(data, question, of_trace, size=size, kept=finder.kept)
            if not other.condition and (other.value > bound.value or bound.condition):
                bound, dual = other, of_trace
        if (bound.value == -math.inf or bound.condition) and fit is not None:
            ray = _ray(data, question, extreme, fit)
            bound = bound if ray is None else ObjectiveBound(-math.inf, "")
        ends[name] = sign * bound.value
        ends[f"{name}_condition"] = bound.condition
        ends[f"{name}_dual"] = dual if math.isfinite(bound.value) else None
        ends[f"{name}_ray"], ends[f"{name}_fit"] = ray, fit
        ends[f"{name}_found"] = math.nan if fit is None else float(np.vdot(C, fit).real)
    return Interval(**ends, C=C, psd=psd)


def _implied(data: Measurements, question: Question) -> tuple[float, Vector | None]:
    """Return what the cone and the trace alone imply of ``<C, A>``, and the vector that proves it.

    With positive semidefinite A, and l the smallest eigenvalue of C, ``<C, A> >= l tr A``: the
    vector is -l at the constraint on the trace. Where l is not negative, 0 is a bound, too.
    """
    y = np.zeros(data.m)
    if not question.psd:
        return -math.inf, None
    trace = next((each for each in data.constraints if each.name == "trace"), None)
    if trace is None:
        values = np.linalg.eigvalsh(np.asarray(question.C))
    else:  # of scaled columns the trace is ``<D^2, A>``
        scales: Any = 1.0 / np.sqrt(trace.matrix.diagonal().real)  # type: ignore[union-attr]
        values = np.linalg.eigvalsh(np.asarray(question.C) * scales * scales[:, None])
    slip = SPARE * len(values) * UNIT * float(np.max(np.abs(values)))
    least = float(values[0]) - slip  # below the true one, so that the remainder is definite
    best, vector = (0.0, y) if float(values[0]) >= -slip else (-math.inf, None)
    for row, constraint in enumerate(data.constraints, start=data.measured):
        end = constraint.lo if least >= 0.0 else constraint.hi
        if constraint.name == "trace" and math.isfinite(end) and least * end > best:
            best, vector = least * end, y.copy()
            vector[row] = -least
    return best, vector


def _ray(data: Measurements, question: Question, extreme: Extreme, fit: Array) -> Array | None:
    """Return a direction that proves that there is no lower end."""
    C = np.asarray(question.C)
    rays = falling_directions(data, question, C, extreme.ray)
    return next((ray for ray in rays if is_ray(data, question, ray, fit)), None)


def _checked(
    name: str, end: _End, data: Measurements, question: Question, sign: float
) -> list[Check]:
    """Return what is stated of one end, as that of a lower one."""
    checks, size, fits = [], 0.0, False
    C = np.asarray(question.C)
    if end.fit is not None:
        shaped = np.shape(end.fit) == C.shape and bool(np.isfinite(end.fit).all())
        value = math.nan
        if shaped:
            fits = is_fit(data, end.fit, question.psd)
            value, size = float(np.vdot(C, end.fit).real), float(np.linalg.norm(end.fit))
        room = AGREE * (1.0 + size * float(np.linalg.norm(C)))
        near = fits and abs(value - sign * end.found) <= room
        checks.append(Check(f"a fit has the {name} value found", near, f"{end.found:.9g}"))
    else:
        checks.append(Check(f"no {name} value found", math.isnan(end.found)))
    if end.ray is not None:
        proved = end.bound == -math.inf and fits
        shaped = np.shape(end.ray) in (C.shape, C.shape[:1])
        proved = (
            proved and shaped and is_ray(data, question, np.asarray(end.ray), np.asarray(end.fit))
        )
        checks.append(Check(f"no {name} end exists", proved))
    elif end.dual is None:
        checks.append(Check(f"{name} end not known", end.bound == -math.inf))
    else:
        fitting = np.shape(end.dual) == (data.m,) and bool(np.isfinite(end.dual).all())
        found = ObjectiveBound(math.nan, "")
        if fitting:
            found = objective_bound(data, question, np.asarray(end.dual), size=size)
        room = AGREE * max(abs(end.bound), abs(found.value))
        true = end.bound <= found.value + room and end.condition == found.condition
        text = f"claimed {sign * end.bound:.9g}, proved {sign * found.value:.9g}"
        checks.append(Check(f"{name} end", true, text))
    return checks


def is_fit(data: Measurements, A: Array, psd: bool) -> bool:
    """Whether a matrix surely meets every interval, and is positive semidefinite to rounding."""
    if psd:
        values = np.linalg.eigvalsh(A)
        if values[0] < -1e-14 * len(A) * max(float(values[-1]), 0.0):
            return False
    return bool(evaluate(data, SensedMatrix.from_dense(A)).met.all())
