"""`Measurements`: probes, readings and tolerances, checked once and scaled to unit rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import (
    Array,
    Vector,
    as_numbers,
    compact,
    device,
    is_array,
    is_numpy,
    like,
    placed,
    to_numpy,
)
from quadsense.core.intervals import (
    EXACTNESS,
    KIND_EXACTNESS,
    Intervals,
    UnitReadings,
    unit_intervals,
    unit_readings,
)
from quadsense.core.noise import CONFIDENCE
from quadsense.core.records import cached_property
from quadsense.measurements.constraints import Constraint, checked_constraints, with_constraints
from quadsense.measurements.gram import (
    LARGEST_RANK_PROBLEM,
    Gram,
    ProbeFacts,
    Rank,
    facts_of,
    find_rank,
    is_orthonormal,
)
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.storage import StoredMeasurements
from quadsense.measurements.validate import (
    GivenReadings,
    check_beside,
    checked_bounds,
    checked_mix,
    checked_rows,
    checked_tolerance,
    checked_vector,
    checked_weights,
    interpreted,
    rows_chosen,
)
from quadsense.system.threads import one_blas_thread
from quadsense.typing import (
    MatrixLike,
    MissingName,
    Real,
    RealOrVector,
    VectorLike,
    is_number,
)

NO_ROWS: npt.NDArray[np.int64] = np.empty(0, np.int64)


def _mix_of(rows: Sensing, mix: MatrixLike | None) -> MatrixLike | None:
    """Return the sums that were given, or else come with the rows."""
    own: MatrixLike | None = rows.kind.mix
    if own is not None and mix is not None:
        raise ValueError("U has its own sums over rows (U.mix): do not give mix")
    return own if mix is None else mix


def _all_known(b: Vector) -> bool:
    """Return whether no reading is NaN."""
    return not math.isnan(np.minimum.reduce(b, axis=None, initial=np.inf))


class Measurements(StoredMeasurements):
    """Probes ``u_i``, readings ``b_i`` and tolerances: what is to be met.

    Parameters
    ----------
    U : array or sparse array of shape (m, n)
        Row i is ``u_i``; a reading is ``u_i* A u_i``. Real or complex, any row norms.
    b : array_like of shape (m,), optional
        Readings, real. Not needed with `bounds`; with them they are what least squares is about,
        inside their intervals or not.
    delta : float or array_like of shape (m,), optional
        Tolerance, one for all or one per measurement. A tolerance of 0 asks for the reading itself:
        an equality, met within ``256 eps n ||u_i||^2 ||A||_F``.
    rtol : float, default=0.0
        Added tolerance in proportion to the reading: ``delta_i + rtol |b_i|``.
    bounds : (lo, hi), optional
        Intervals in place of `delta`: each a float or of shape (m,); an end may be infinite, and
        ``lo == hi`` is an equality.
    weights : float or array_like of shape (m,), optional
        Weights of least squares and of slack, not negative.
    sigma, shots, confidence, missing
        As in `quadsense.solve`.
    conjugate : bool, default=False
        Rows are given as ``u_i*`` (as in ``b = |U x|^2``).
    mix : array or sparse array of shape (p, m), optional
        W, real: reading i is ``sum_k W_ik u_k* A u_k``, and there are p readings. Expectation
        values of observables, sums over groups of rows and differences of rows are such readings.

    Attributes
    ----------
    m, n : int
        Number of measurements (p with `mix`), order of A.
    b : array of shape (m,)
        Readings; with `bounds` the middle of the interval, its one end, or 0 where it has none.
    tolerance : array of shape (m,) or None
        Half-width of each interval; for a row of one end, the unit in which a crossing is counted
        (see `Intervals.between`).
    ends : Intervals or None
        The intervals exactly as given.
    conjugate : bool
        Whether rows are given as ``u_i*``.
    weights : float or ndarray of shape (m,) or None
        As given.
    constraints : tuple of Constraint
        What `constrained` added: their readings are the last.
    notes : tuple of str
        What was guessed where they were read from a file.

    Examples
    --------
    >>> import numpy as np
    >>> from quadsense import Measurements
    >>> data = Measurements(np.eye(2), [1.0, 2.0], delta=0.1)
    >>> data.facts.orthonormal, data.facts.rank, data.facts.unknowns
    (True, 2, 3)
    """

    missing: Any = None  # which rows have no reading

    def __init__(
        self,
        U: MatrixLike,
        b: VectorLike | None = None,
        *,
        delta: RealOrVector | None = None,
        rtol: Real = 0.0,
        bounds: tuple[RealOrVector, RealOrVector] | None = None,
        conjugate: bool = False,
        mix: MatrixLike | None = None,
        weights: RealOrVector | None = None,
        sigma: Real | None = None,
        shots: RealOrVector | None = None,
        confidence: Real = CONFIDENCE,
        missing: MissingName = "raise",
    ) -> None:
        rows, of = checked_rows(U, conjugate), "U"
        if mix is not None or rows.kind.mix is not None:
            mix = _mix_of(rows, mix)
        frame = None if mix is not None else rows.kind.frame_shape
        check_beside(
            U, rows, b=b, delta=delta, bounds=bounds, mix=mix, weights=weights, shots=shots
        )
        if mix is not None:
            rows, of = Mixed.over(rows, checked_mix(mix, rows.m)), "mix"
        if bounds is not None and (delta is not None or rtol != 0.0):
            raise ValueError("bounds replaces delta and rtol: give either, not both")
        usual = sigma is None and shots is None and frame is None and missing == "raise"
        if not (usual and type(b) is np.ndarray and b.dtype == np.float64 and _all_known(b)):
            b, delta, rtol, bounds, weights, self.missing = interpreted(
                rows.m, of, GivenReadings(b, delta, rtol, bounds, weights), frame,
                sigma=sigma, shots=shots, confidence=confidence, missing=missing,
            )  # fmt: skip
        readings = None if b is None else checked_vector("b", b, rows.m, of=of)
        self.weights = None if weights is None else checked_weights(weights, rows.m, of)
        if bounds is not None:
            lo, hi = checked_bounds(bounds, rows.m, of)
            self._fill(rows, None, Intervals.between(lo, hi, to_numpy(rows.norms)), readings)
        else:
            if readings is None:
                raise ValueError("b is missing: give the readings b, or bounds=(lo, hi)")
            tolerance = checked_tolerance(delta, rtol, readings, of)
            self._fill(
                rows, readings, None if tolerance is None else Intervals.around(readings, tolerance)
            )
        self._delta, self._rtol = delta, rtol
        self.conjugate = bool(conjugate)

    def _fill(
        self,
        rows: Sensing,
        b: Vector | None,
        ends: Intervals | None,
        readings: Vector | None = None,
    ) -> None:
        self._rows = rows
        self.m, self.n = rows.m, rows.n
        if ends is not None and ends.allowance is None and ends.has_equalities:
            norms = to_numpy(rows.norms)
            eps = float(np.finfo(np.float64).eps)
            relative = EXACTNESS * eps * self.n + KIND_EXACTNESS * rows.rounding
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                masses = to_numpy(rows.masses) * norms * norms
                ends = ends.with_allowance(relative * masses, norms)
        self.ends = ends
        self.from_bounds = b is None
        self._readings = readings if b is None else b
        if b is None:
            assert ends is not None
            b = ends.centers()
        on_host = rows.xp is np
        self.b = b if on_host else like(b, rows.norms)
        self.tolerance = None
        if ends is not None:
            self.tolerance = ends.unit if on_host else like(ends.unit, rows.norms)
        self.constraints: tuple[Constraint, ...] = ()
        self._plain: Measurements | None = None
        self.judged = True  # by these intervals; else they are a unit of error only
        self.squares: dict[Any, Any] = {}  # what `make_question` makes of them
        self.gram: Gram | None = None  # K as formed by a solve: the facts reuse it

    def _with_ends(self, ends: Intervals, known: tuple[str, ...]) -> Measurements:
        """Return the same probes and readings with other intervals; `known` is kept."""
        other = object.__new__(Measurements)
        other._fill(self._rows, None if ends.outright else to_numpy(self.b), ends)
        other._take(self)
        other._deferred, other._read_bytes = self._deferred, self._read_bytes
        other.from_bounds = ends.outright
        other.constraints, other._plain = self.constraints, self._plain
        other.__dict__.update({key: self.__dict__[key] for key in known if key in self.__dict__})
        return other

    def _take(self, other: Measurements) -> None:
        """Copy what was given in addition to rows and intervals from other measurements."""
        self._delta, self._rtol, self.conjugate = other._delta, other._rtol, other.conjugate
        self.missing = other.missing
        self.weights, self._readings = other.weights, other._readings

    def constrained(self, trace: Any = None, constraints: Iterable[Any] = ()) -> Measurements:
        """Return the same with further readings ``lo <= <C, A> <= hi``, which A must meet.

        Parameters
        ----------
        trace : float or (lo, hi), optional
            What the trace of A must be, or lie between.
        constraints : iterable of (C, lo, hi), optional
            C, (n, n), is an array, a SciPy sparse array, a `SensedMatrix`, or a pair ``(X, signs)``
            that stands for ``X diag(signs) X*``. An end may be infinite; ``lo == hi`` is an
            equality.

        Those that come with the rows (`Probes.constraints`) are added.

        Returns
        -------
        Measurements
            With the readings of the constraints after the user's: `measured` of these. Nothing of
            U is copied. Without constraints, these measurements themselves.

        Examples
        --------
        >>> import numpy as np
        >>> from quadsense import Measurements
        >>> data = Measurements(np.eye(2), [1.0, 2.0], delta=0.1)
        >>> data.constrained(trace=3.0, constraints=[([[0, 1], [1, 0]], -1.0, 1.0)])
        Measurements(m=2, n=2, dense, real, 2 constraints)
        """
        own = self._rows.kind.constraints if self._plain is None else ()
        if trace is None and type(constraints) is tuple and not (constraints or own):
            return self
        found = checked_constraints(trace, constraints, self.n, self._rows.is_complex)
        names = {each.name for each in found}
        own = checked_constraints(None, own, self.n, False)
        found += tuple(each for each in own if each.name not in names)
        if not found:
            return self
        if self._plain is not None:
            raise ValueError("these measurements have their constraints: use `plain`")
        if self._deferred is not None and self.settled() is not self:
            return self.settled().constrained(trace, constraints)
        rows = Mixed.over(*with_constraints(self._rows.raw, self.mix, found))
        lo, hi = np.array([(each.lo, each.hi) for each in found]).T
        b, norms = to_numpy(self.b), to_numpy(rows.norms)
        # Without a tolerance the user's rows are asked for nothing: the constraints are.
        nothing = np.full(self.m, np.inf)
        ends = self.ends or Intervals(b, nothing, nothing, np.ones(self.m))
        below = Intervals.between(lo, hi, norms[self.m :], ends.typical_unit(norms[: self.m]))
        other = object.__new__(Measurements)
        other._fill(rows, np.append(b, below.centers()), Intervals.joined(ends, below))
        other._take(self)
        other.from_bounds = self.from_bounds
        other.constraints, other._plain, other.judged = found, self, self.judged
        return other

    def framed(self, columns: npt.NDArray[np.int64]) -> Measurements:
        """Return the same readings of probes whose columns are multiplied by ``2^columns``.

        Nothing is copied, and the unknown becomes ``D^-1 A D^-1`` for ``D = diag(2^columns)``.
        """
        if self._plain is not None:
            raise ValueError("these measurements have constraints: use plain.framed(columns)")
        rows = self.unit_rows
        raw = rows.raw.framed(columns)
        other = object.__new__(Measurements)
        ends = None if self.ends is None else replace(self.ends, allowance=None)
        other._fill(
            Mixed.over(raw, rows.given) if isinstance(rows, Mixed) else raw,
            None if self.from_bounds else to_numpy(self.b),
            ends,
        )
        other._take(self)
        other.from_bounds, other.judged = self.from_bounds, self.judged
        return other

    @property
    def fixed_trace(self) -> float | None:
        """The trace that A must have, where one is given."""
        given = self._fixed_trace
        return None if given is None or np.any(given.matrix.diagonal() != 1.0) else given.lo

    @property
    def fixed_multiple(self) -> float | None:
        """The t of the multiple ``t I`` that has the trace that A must have, where one is given."""
        given = self._fixed_trace
        return None if given is None else given.lo / float(np.sum(given.matrix.diagonal().real))

    @property
    def _fixed_trace(self) -> Any:
        """The constraint on the trace, where it is an equality; with scaled columns ``D^2``."""
        found = [each for each in self.constraints if each.name == "trace"]
        return found[0] if found and found[0].lo == found[0].hi else None

    @property
    def readings(self) -> Vector | None:
        """b as given, (measured,), which may be given with intervals; None where it was not."""
        return self._readings

    @property
    def stated_tolerance(self) -> Vector:
        """Half-widths as `tolerance` has them, and 0 of equalities."""
        ends = self._known_ends()
        stated = (
            ends.unit.copy() if ends.allowance is None else np.where(ends.exact, 0.0, ends.unit)
        )
        return np.asarray(compact(stated))

    @property
    def hard(self) -> npt.NDArray[np.bool_]:
        """Which rows A must meet whatever else is wanted: constraints and equalities."""
        hard = np.arange(self.m) >= self.measured
        return hard if self.ends is None else hard | self.ends.exact

    @property
    def has_hard(self) -> bool:
        """Whether there are such rows."""
        allowance = None if self.ends is None else self.ends.allowance
        return bool(self.constraints) or (allowance is not None and bool((allowance > 0.0).any()))

    @property
    def measured(self) -> int:
        """How many readings are the user's: the first; those after them are of constraints."""
        return self.m - len(self.constraints)

    @property
    def plain(self) -> Measurements:
        """The same without constraints."""
        return self if self._plain is None else self._plain

    @property
    def mix(self) -> Any:
        """W as given, None where every reading is of one row."""
        rows = self.plain._rows
        return rows.given if isinstance(rows, Mixed) else None

    @property
    def _of(self) -> str:
        """What has one row per reading."""
        return "U" if self.mix is None else "mix"

    @property
    def sides(self) -> npt.NDArray[np.bool_] | None:
        """Which upper and which lower ends exist, (2, m), where one is missing; else None."""
        ends = self.ends
        if ends is None or ends.below is ends.above:
            return None
        sides = ends.sides
        return None if sides.all() else sides

    @property
    def lo(self) -> Vector:
        """Lower ends of the intervals as given, minus infinity where there is none."""
        return self._known_ends().lo

    @property
    def hi(self) -> Vector:
        """Upper ends of the intervals as given, infinity where there is none."""
        return self._known_ends().hi

    def _known_ends(self) -> Intervals:
        if self.ends is None:
            raise ValueError("these measurements have no tolerance: use with_tolerance(delta)")
        return self.ends

    def with_tolerance(self, delta: RealOrVector | None = None, rtol: Real = 0.0) -> Measurements:
        """Return the same probes and readings, nothing copied, with another tolerance.

        What is not given stays: `delta` alone keeps the measurements' own rtol, and `rtol` alone
        their own delta.
        """
        if self.from_bounds:
            raise ValueError(
                "these measurements are intervals (bounds): delta and rtol do not apply to them"
            )
        delta = self._delta if delta is None else delta
        rtol = self._rtol if is_number(rtol) and rtol == 0.0 else rtol
        if self._plain is not None:
            raise ValueError("these measurements have constraints: use plain.with_tolerance(delta)")
        b = to_numpy(self.b)
        tolerance = checked_tolerance(delta, rtol, b, self._of)
        if tolerance is None:
            raise ValueError("give delta or rtol: these measurements have neither")
        other = self.with_ends(self.around(b, tolerance))
        other._delta, other._rtol = delta, rtol
        return other

    def around(self, b: Vector, tolerance: Vector) -> Intervals:
        """Return the intervals about readings, without ends in rows that were not measured."""
        ends = Intervals.around(b, tolerance)
        return ends if self.missing is None else ends.without(self.missing)

    def with_ends(self, ends: Intervals) -> Measurements:
        """Return the same probes with these intervals, whatever they had.

        Constraints keep theirs where there are intervals of the user's rows only.
        """
        if self._plain is not None and ends.reading.size == self.measured:
            own = np.arange(self.measured, self.m)
            ends = Intervals.joined(ends, self._known_ends().each(lambda values: values[own]))
        return self._with_ends(ends, ("facts", "orthonormal", "_known_rank", "gram"))

    def without_tolerance(self) -> Measurements:
        """Return the same with ends one away from the readings, so that ratios are plain errors.

        Constraints stay what they are.
        """
        plain, given = self.plain, self.plain.readings
        b = given if plain.from_bounds and given is not None else to_numpy(plain.b)
        other = self.with_ends(self.around(b, np.ones_like(b)))
        if b is given:  # next to intervals
            other.b = like(np.append(b, to_numpy(self.b)[self.measured :]), self.b)
        other.judged = False
        return other

    def set_aside(self, index: Any) -> Measurements:
        """Return the same measurements with those in `index` asked for nothing."""
        index = rows_chosen(index, self.m)
        return self._with_ends(self._known_ends().without(index), ("orthonormal", "gram"))

    def only_hard(self) -> Measurements:
        """Return the same, nothing asked of rows but of those that A must meet (see `hard`)."""
        hard, norms = self.hard, to_numpy(self._rows.norms)
        ends = self._known_ends().without(np.flatnonzero(~hard))
        safe = np.where(norms > 0, norms, 1.0)
        with np.errstate(over="ignore", under="ignore"):
            unit = float(np.median((ends.unit / safe / safe)[hard])) * safe * safe
        usual = np.where((unit > 0.0) & (unit < np.inf), unit, ends.unit)
        ends = replace(
            ends,
            reading=np.where(hard, ends.reading, 0.0),
            unit=np.where(hard, ends.unit, usual),
        )
        return self._with_ends(ends, ("orthonormal", "gram"))

    # --- the sensing map, in the user's scaling ----------------------------------------------

    @property
    def unit_rows(self) -> Sensing:
        """The probes scaled to unit norm, for the methods."""
        if self._deferred is not None:
            self.settled()
        return self._rows

    @property
    def dtype(self) -> Any:
        """Type of A: float64 or complex128."""
        return self._rows.dtype

    def forward(self, A: Array) -> Array:
        """Return ``F(A)_i = u_i* A u_i``, mixed where asked: (n, n) to (m,)."""
        A = A if is_array(A) and not is_numpy(A) else as_numbers("A", A)
        if A.shape != (self.n, self.n):
            raise ValueError(f"A must have shape {(self.n, self.n)}, got {tuple(A.shape)}")
        A = A if is_numpy(A) == is_numpy(self.b) else placed(to_numpy(A), self.b)
        return self.unit_rows.forward(A) * self.unit_rows.norms * self.unit_rows.norms

    def adjoint(self, y: Array) -> Array:
        """Return ``F*(y) = sum_i y_i u_i u_i*``: (m,) to (n, n)."""
        y = like(checked_vector("y", y, self.m), self.unit_rows.norms)
        return self.unit_rows.adjoint(y * self.unit_rows.norms * self.unit_rows.norms)

    def rows(self, index: Any = slice(None)) -> Array:
        """Return dense measurement vectors ``u_i``, as meant (conjugated where asked): (k, n)."""
        raw = self._rows.raw
        chosen = rows_chosen(index, raw.m)
        return raw.take(raw.xp.asarray(chosen, device=device(raw.norms)))

    def scaled(self) -> UnitReadings:
        """Return readings and tolerances divided by the squared row norms.

        A row of zeros measures nothing: it gets reading 0 and tolerance 1, which every A meets.
        An interval is narrowed to sizes that a fit may have, and a tolerance kept within float64's
        range of them: a fit is judged by `unit_ends`.
        """
        known: UnitReadings | None = self.__dict__.get("_scaled")
        if known is None:
            known = self.__dict__["_scaled"] = unit_readings(
                self._rows, self.unit_ends, self.judged
            )
        return known

    @cached_property
    def unit_ends(self) -> Intervals:
        """The intervals of the unit rows: divided by the squared norms of the rows."""
        given, norms = self._known_ends(), to_numpy(self._rows.norms)
        return unit_intervals(given, norms, self.b, self._of, self.judged)

    def contradictions(self) -> npt.NDArray[np.int64]:
        """Return rows of zeros whose interval leaves out zero: no matrix meets them."""
        if self.ends is None or not self._rows.has_zero_rows:
            return NO_ROWS
        dead = to_numpy(self._rows.nonzero) == 0
        reading, below, above = self.ends.reading, self.ends.below, self.ends.above
        return np.flatnonzero(dead & ((reading > below) | (-reading > above)))

    def __len__(self) -> int:
        """Number of measurements."""
        return self.m

    def __repr__(self) -> str:
        """Sizes and storage."""
        plain = self.plain._rows
        storage = plain.kind.storage
        kind = "complex" if self._rows.is_complex else "real"
        mixed = "" if self.mix is None else f", mixed from {plain.raw.m} rows"
        count = len(self.constraints)
        mixed += "" if not count else f", {count} constraint{'s' if count > 1 else ''}"
        return f"Measurements(m={self.measured}, n={self.n}, {storage}, {kind}{mixed})"

    def _repr_html_(self) -> str:
        """For notebooks: sizes, readings and tolerances, and what is known of the probes."""
        return str(import_module("quadsense.view.html").measurements_html(self))

    # --- the facts ---------------------------------------------------------------------------

    @cached_property
    def orthonormal(self) -> bool:
        """Whether the unit rows are orthonormal, by random probes in O(mn).

        A wrong guess costs time, never truth: every claim is recomputed from the data.
        """
        return is_orthonormal(self.unit_rows)

    @cached_property
    def facts(self) -> ProbeFacts:
        """Orthonormality, coherence, rank: what is known of the probes."""
        return facts_of(self.unit_rows, self.orthonormal, self.rank, self.gram)

    def find_rank(self, most: float = math.inf) -> Rank:
        """Return the numerical rank of F, unless finding it takes more than that many flops."""
        known = self.__dict__.get("_known_rank")
        if known is not None:
            return Rank(known)
        found = self._found_rank(most)
        if found.rank is not None:
            self.__dict__["_known_rank"] = found.rank
        return found

    def _found_rank(self, most: float) -> Rank:
        rows, size = self.unit_rows, self.unit_rows.unknowns
        if self.orthonormal:
            return Rank(int(np.count_nonzero(to_numpy(rows.nonzero))))
        # Constraints add to what readings see.
        if self._plain is not None and self.measured >= size:
            plain = self._plain.find_rank(most)
            if plain.rank is None or plain.rank == size:
                return plain
        with one_blas_thread():
            return find_rank(rows, self.gram, most)

    @property
    def rank(self) -> int | None:
        """Numerical rank of F (that of K), None where it would cost too much to find."""
        few = min(self.m, self.unit_rows.unknowns) <= LARGEST_RANK_PROBLEM
        return self.find_rank().rank if few else self.find_rank(0.0).rank
