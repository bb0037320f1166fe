"""`Measurements`: probes, readings and tolerances, checked once and scaled to unit rows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense import files
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
from quadsense.core.intervals import EXACTNESS, KIND_EXACTNESS, Intervals
from quadsense.core.records import cached_property
from quadsense.measurements.constraints import Constraint, checked_constraints, with_constraints
from quadsense.measurements.dense import NotFinite
from quadsense.measurements.gram import ExplicitGram, Gram, Rank, find_rank
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.readings import Readings, interpreted
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.storage import (
    Deferred,
    beside_file,
    into_arrays,
    name_or_readings,
    of_arrays,
    placed_on,
    with_further,
)
from quadsense.measurements.validate import (
    check_beside,
    checked_bounds,
    checked_mix,
    checked_rows,
    checked_tolerance,
    checked_vector,
    checked_weights,
    rows_chosen,
)
from quadsense.system.memory import room_for_rows
from quadsense.system.threads import one_blas_thread
from quadsense.typing import (
    MatrixLike,
    MissingName,
    Real,
    RealOrVector,
    VectorLike,
    check_path,
    is_number,
)

ORTHONORMAL = 1e-6
"""Frobenius distance of U U* from I below which K = I: K differs from I by its square."""

LARGEST_RANK_PROBLEM = 4000
"""Measurements or unknowns, whichever are fewer, up to which `Measurements.facts` has the rank."""

HARMLESS = 1e20
"""Size of a reading, in units of the largest that some row asks for, that no fit has."""

LARGEST_READING = 1e290
"""Largest reading or tolerance of a row of unit norm, and inverse of the largest that is too small:
sums over rows, and the scales that methods bring them to, stay within float64."""

MOST_DIGITS = 1e60
"""Largest size over smallest tolerance that methods are given; 1e36 is beyond float64 anyway."""

QUICK_RANK_FLOPS = 2e6
"""Work below which the rank is found without anybody asking for it: a tenth of a millisecond."""


@dataclass(frozen=True)
class Facts:
    """What is known of the probes.

    Where readings are sums of rows (`mix`), read ``F_i = sum_k W_ik u_k u_k*`` of unit norm for
    ``u_i u_i*``: ``|<u_i, u_j>|^2`` is ``|<F_i, F_j>|``.

    Attributes
    ----------
    orthonormal : bool
        Whether the rows, scaled to unit norm, are orthonormal (found by random probes).
    unit_norm : bool
        Whether the rows came with unit norm (they are scaled to it in any case).
    coherence : float or None
        Largest ``|<u_i, u_j>|``, i != j, of the scaled rows: the paper's rho. None where it would
        cost more than some seconds to find; with m > n it is over 1/(10m) in any case.
    paper_holds : bool
        Whether ``rho <= 1/(10 m)``, the assumption of the paper's lemmas on the scaled rows.
    rank : int or None
        Rank of the sensing map F (numerical, at 1e-7), None where too costly to find.
    unknowns : int
        Real dimensions of A.
    """

    orthonormal: bool
    unit_norm: bool
    coherence: float | None
    paper_holds: bool
    rank: int | None
    unknowns: int


class UnitReadings(NamedTuple):
    """Readings and tolerances of the unit rows, each of shape (m,).

    `telling` is 1.0 for rows that say something of A, 0.0 for rows of zeros and for those with
    intervals so wide that they were narrowed.
    """

    b: Array
    delta: Array
    telling: Array


def _mix_of(rows: Sensing, mix: MatrixLike | None) -> MatrixLike | None:
    """The sums that were given, or else come with the rows."""
    own: MatrixLike | None = rows.kind.mix
    if own is not None and mix is not None:
        raise ValueError("U has its own sums over rows (U.mix): do not give mix")
    return own if mix is None else mix


def _of_intervals(ends: Intervals) -> Vector:
    """The middles of intervals; of one with one end that end, and 0 where there is none."""
    one = np.where(np.isfinite(ends.above), ends.above, -ends.below)
    one = ends.reading + np.where(np.isfinite(one), one, 0.0)
    return np.where(ends.sides.all(axis=0), ends.middle(), one)


def _narrowed(b: Vector, delta: Vector, live: Any) -> tuple[Vector, Vector, Any]:
    """Intervals within what a fit may read, and which rows say something all the same."""
    forced = np.maximum(np.abs(b) - delta, 0.0)  # the least that a row makes A read
    least = float(np.min(delta, where=live, initial=np.inf))
    most = HARMLESS * max(float(forced.max()), least if np.isfinite(least) else 1.0)
    lo, hi = np.maximum(b - delta, -most), np.minimum(b + delta, most)
    wide = (np.abs(b) + delta > most) & live
    b, delta = np.where(wide, lo / 2 + hi / 2, b), np.where(wide, hi / 2 - lo / 2, delta)
    # Far below what rounding leaves of such readings:
    return b, np.maximum(delta, most / MOST_DIGITS), live & ~wide


class Measurements:
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

    notes: tuple[str, ...] = ()
    missing: Any = None  # which rows have no reading
    _opened: Any = None  # path and names of arrays, where they were read from a file
    _deferred: Deferred | None = None  # rows that stay in their files until they are needed
    _read_bytes = 0  # what such rows take in memory once they were read

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
        confidence: Real = 0.95,
        missing: MissingName = "raise",
    ) -> None:
        rows, of = checked_rows(U, conjugate), "U"
        mix = _mix_of(rows, mix)
        frame = None if mix is not None else rows.kind.frame_shape
        check_beside(
            U, rows, b=b, delta=delta, bounds=bounds, mix=mix, weights=weights, shots=shots
        )
        if mix is not None:
            rows, of = Mixed.over(rows, checked_mix(mix, rows.m)), "mix"
        if bounds is not None and (delta is not None or rtol != 0.0):
            raise ValueError("bounds replaces delta and rtol: give either, not both")
        b, delta, rtol, bounds, weights, self.missing = interpreted(
            rows.m, of, Readings(b, delta, rtol, bounds, weights), frame,
            sigma=sigma, shots=shots, confidence=confidence, missing=missing,
        )  # fmt: skip
        readings = None if b is None else checked_vector("b", b, rows.m, of=of)
        self.weights = checked_weights(weights, rows.m, of)
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
            b = _of_intervals(ends)
        self.b = like(b, rows.norms)
        self.tolerance = None if ends is None else like(ends.unit, rows.norms)
        self.constraints: tuple[Constraint, ...] = ()
        self._plain: Measurements | None = None
        self.judged = True  # by these intervals; else they are a unit of error only
        self.squares: dict[Any, Any] = {}  # what `make_question` makes of them
        self.gram: Gram | None = None  # K as formed by a solve: the facts reuse it

    def _with_ends(self, ends: Intervals, known: tuple[str, ...]) -> Measurements:
        """The same probes and readings with other intervals, and what is known of the probes."""
        other = object.__new__(Measurements)
        other._fill(self._rows, None if ends.outright else to_numpy(self.b), ends)
        other._take(self)
        other._deferred, other._read_bytes = self._deferred, self._read_bytes
        other.from_bounds = ends.outright
        other.constraints, other._plain = self.constraints, self._plain
        other.__dict__.update({key: self.__dict__[key] for key in known if key in self.__dict__})
        return other

    def on(self, device: Any) -> Measurements:
        """The same measurements, with the arithmetic done on another device, or on a cluster.

        Rows stay where they are and travel to a device some at a time, the next ones while these
        are used: for data larger than the memory of a GPU. Those that fit are quicker there from
        the start (``U.to("cuda")``). Answers are on that device.

        Rows in files are loaded by the workers of a Dask cluster, each its own, and stay in their
        memory: every one of them must have the files under the same names. Answers are NumPy's.

        Parameters
        ----------
        device : str, torch.device or dask.distributed.Client
            For instance ``"cuda"``.

        Returns
        -------
        Measurements

        Examples
        --------
        >>> import quadsense  # U and b in the memory of the host
        >>> data = quadsense.Measurements(U, b, delta=0.1).on("cuda")  # doctest: +SKIP
        >>> quadsense.solve(data).A.device  # doctest: +SKIP
        device(type='cuda', index=0)
        """
        rows, readings, named = placed_on(self, device)
        return Measurements(rows, readings, **named)

    def _take(self, other: Measurements) -> None:
        """Copy what was given in addition to rows and intervals from other measurements."""
        self._delta, self._rtol, self.conjugate = other._delta, other._rtol, other.conjugate
        self.missing = other.missing
        self.weights, self._readings = other.weights, other._readings

    def constrained(self, trace: Any = None, constraints: Iterable[Any] = ()) -> Measurements:
        """The same measurements with further readings ``lo <= <C, A> <= hi``, which A must meet.

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
        found = checked_constraints(trace, constraints, self.n, self._rows.is_complex)
        if self._plain is None:
            names = {each.name for each in found}
            own = checked_constraints(None, self._rows.raw.kind.constraints, self.n, False)
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
        other._fill(rows, np.append(b, _of_intervals(below)), Intervals.joined(ends, below))
        other._take(self)
        other.from_bounds = self.from_bounds
        other.constraints, other._plain, other.judged = found, self, self.judged
        return other

    def framed(self, columns: npt.NDArray[np.int64]) -> Measurements:
        """The same readings of probes whose columns are multiplied by ``2^columns``.

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
        if self.ends is None or self.ends.even:
            return None
        sides = self.ends.sides
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
        """The same probes and readings, nothing copied, with another tolerance.

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
        """The same probes with these intervals, whatever they had.

        Constraints keep theirs where there are intervals of the user's rows only.
        """
        if self._plain is not None and ends.reading.size == self.measured:
            own = np.arange(self.measured, self.m)
            ends = Intervals.joined(ends, self._known_ends().each(lambda values: values[own]))
        return self._with_ends(ends, ("facts", "orthonormal", "_known_rank", "gram"))

    def without_tolerance(self) -> Measurements:
        """The same with ends one away from the readings, so that ratios are plain errors.

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
        """The same measurements with those in `index` asked for nothing."""
        index = rows_chosen(index, self.m)
        return self._with_ends(self._known_ends().without(index), ("orthonormal", "gram"))

    def only_hard(self) -> Measurements:
        """The same with all rows asked for nothing but those that A must meet (see `hard`)."""
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

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        U: str | None = None,
        b: str | os.PathLike[str] | VectorLike | None = None,
        delta: RealOrVector | None = None,
        rtol: Real = 0.0,
        bounds: tuple[RealOrVector, RealOrVector] | None = None,
        conjugate: bool | None = None,
        mix: MatrixLike | None = None,
        weights: RealOrVector | None = None,
        memory_limit: Real | str | None = None,
    ) -> Measurements:
        """Read measurements from a file or many; what is in it is never unpickled.

        Parameters
        ----------
        path : path-like
            ``.npz``, ``.npy`` or a folder of such, ``.mat``, HDF5, Zarr, Parquet or CSV: see
            docs/files.md; a folder of such files, or a pattern (``run7/part-*.h5``), that hold some
            of the measurements each. `delta` and `rtol`, or `lo` and `hi`, are taken from it too
            where present and no tolerance is given here, and so are `mix` and `weights`.
        U, b : str, optional
            Names of the arrays in the file, by default those called so, or what else they can only
            be (`notes` says what was guessed). `b` may be another file, or ``FILE::NAME``, or the
            readings themselves, an array; U of a table is names of columns with commas between, or
            a pattern.
        delta, rtol, bounds, mix, weights
            As in the constructor; what the file says by default. With `bounds`, no b is needed.
        conjugate : bool, optional
            As in the constructor; what the file says by default.
        memory_limit : int or str, optional
            Bytes, as a number or as "1 GiB". A dense U that would take more than half of that, or
            of what is free, stays in its file and is read as it is used, again for each pass: see
            docs/scaling.md. One that would not, of more than 64 MiB in a format whose rows can be
            read by themselves (``.npy``, HDF5, Zarr), is read into memory when it is needed, if
            the limit of the solve that needs it allows. Leave the file as it is meanwhile.
        """
        b, given = name_or_readings(b), beside_file(mix, bounds)
        check_path("path", path)
        arrays = files.read_measured(path, U, b, room_for_rows(memory_limit), given)
        found = cls.from_arrays(
            path,
            arrays,
            delta=delta,
            rtol=rtol,
            bounds=bounds,
            conjugate=conjugate,
            mix=mix,
            weights=weights,
        )
        found._opened = path, U, b
        return found

    def append(
        self,
        U: MatrixLike | Measurements,
        b: VectorLike | None = None,
        *,
        delta: RealOrVector | None = None,
        bounds: tuple[RealOrVector, RealOrVector] | None = None,
        weights: RealOrVector | None = None,
    ) -> Measurements:
        """These measurements and further ones after them, for data that keep arriving.

        Parameters
        ----------
        U : array or sparse array of shape (k, n), probes, or Measurements
            Further rows, in the form of these or another; or measurements, which may be in files,
            with all that they have.
        b, delta, bounds, weights
            As in the constructor, of the further rows. One `delta`, `rtol` and weight for all hold
            for the further rows too; where each row has its own, theirs are needed.

        Returns
        -------
        Measurements
            Others: these stay what they are. An earlier result is a warm start of their solve.

        Examples
        --------
        >>> import numpy as np
        >>> import quadsense
        >>> data = quadsense.Measurements(np.eye(2), [1.0, 2.0], delta=0.1)
        >>> first = quadsense.solve(data)
        >>> more = data.append([[1.0, 1.0]], [4.0])
        >>> more, quadsense.solve(more, start=first).met
        (Measurements(m=3, n=2, dense, real), True)
        """
        rows, readings, named = with_further(self, U, b, delta, bounds, weights)
        return Measurements(rows, readings, **named)

    @classmethod
    def from_arrays(
        cls,
        path: str | os.PathLike[str],
        arrays: files.Arrays,
        *,
        delta: RealOrVector | None = None,
        rtol: Real = 0.0,
        bounds: tuple[RealOrVector, RealOrVector] | None = None,
        conjugate: bool | None = None,
        mix: MatrixLike | None = None,
        weights: RealOrVector | None = None,
    ) -> Measurements:
        """Measurements of what `files.read_measured` read; what is given here goes before."""
        U, b, named = of_arrays(path, arrays, delta, rtol, bounds, conjugate, mix, weights)
        try:
            found = cls(U, b, **named)
        except NotFinite as error:
            raise ValueError(f"{error}{arrays.place(error.row)}") from None
        found.notes = arrays.notes
        if isinstance(U, files.Strips) and U.nbytes <= arrays.room:
            found._deferred = Deferred(U, found.conjugate, found.mix)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the measurements to a file that `open` and the command read.

        The end of its name says the format: ``.npz``, ``.mat``, ``.h5``, ``.zarr``, and where U is
        dense and there is no mix, ``.parquet`` and ``.csv``. Arrays `U` and `b`, `delta` and `rtol`
        as given, or `lo` and `hi`, `mix` and `weights`. Constraints belong to a solve and are not
        written. Rows that are in files are copied strip by strip into ``.npz``, ``.h5`` and
        ``.zarr``; for the others they must fit into memory.
        """
        if self._plain is not None:
            self._plain.save(path)
            return
        files.writer_of(path, "measurements", square=self.mix is not None)
        metadata = {"format": "quadsense-measurements", "conjugate": self.conjugate}
        files.write(path, into_arrays(self), metadata)

    # --- the sensing map, in the user's scaling ----------------------------------------------

    @property
    def unit_rows(self) -> Sensing:
        """The probes scaled to unit norm, for the methods."""
        if self._deferred is not None:
            self.settled()
        return self._rows

    def settled(self) -> Measurements:
        """Return these measurements with their rows where they are for a whole solve.

        Rows that were left in their files are read into memory here if they fit there, for good;
        otherwise these measurements may read them later, and those returned never do.
        """
        if self._deferred is None:
            return self
        rows = self._deferred.rows()
        if rows is None:
            other = copy(self)
            other._deferred = None
            return other
        self._read_bytes = self._deferred.strips.nbytes
        self._rows, self._deferred = rows, None
        return self

    @property
    def dtype(self) -> Any:
        """Type of A: float64 or complex128."""
        return self._rows.dtype

    def forward(self, A: Array) -> Array:
        """``F(A)_i = u_i* A u_i``, mixed where asked: (n, n) to (m,)."""
        A = A if is_array(A) and not is_numpy(A) else as_numbers("A", A)
        if A.shape != (self.n, self.n):
            raise ValueError(f"A must have shape {(self.n, self.n)}, got {tuple(A.shape)}")
        A = A if is_numpy(A) == is_numpy(self.b) else placed(to_numpy(A), self.b)
        return self.unit_rows.forward(A) * self.unit_rows.norms * self.unit_rows.norms

    def adjoint(self, y: Array) -> Array:
        """``F*(y) = sum_i y_i u_i u_i*``: (m,) to (n, n)."""
        y = like(checked_vector("y", y, self.m), self.unit_rows.norms)
        return self.unit_rows.adjoint(y * self.unit_rows.norms * self.unit_rows.norms)

    def rows(self, index: Any = slice(None)) -> Array:
        """Dense measurement vectors ``u_i``, as meant (conjugated where asked): (k, n)."""
        raw = self._rows.raw
        chosen = rows_chosen(index, raw.m)
        return raw.take(raw.xp.asarray(chosen, device=device(raw.norms)))

    def scaled(self) -> UnitReadings:
        """Readings and tolerances divided by the squared row norms.

        A row of zeros measures nothing: it gets reading 0 and tolerance 1, which every A meets.
        An interval is narrowed to sizes that a fit may have, and a tolerance kept within float64's
        range of them: a fit is judged by `unit_ends`.
        """
        self._known_ends()
        return self._unit_readings

    @cached_property
    def _unit_readings(self) -> UnitReadings:
        ends = self.unit_ends
        telling, norms = to_numpy(self._rows.nonzero) > 0, self._rows.norms
        b, delta = ends.reading if ends.even else ends.middle(), ends.unit
        if self._rows.has_zero_rows:
            b, delta = np.where(telling, b, 0.0), np.where(telling, delta, 1.0)
        least = float(delta.min())
        if self.judged and float((np.abs(b) + delta).max()) > HARMLESS * least:
            b, delta, telling = _narrowed(b, delta, telling)
        return UnitReadings(like(b, norms), like(delta, norms), compact(like(telling, norms)))

    @cached_property
    def unit_ends(self) -> Intervals:
        """The intervals of the unit rows: divided by the squared norms of the rows."""
        given = self._known_ends()
        norms = to_numpy(self._rows.norms)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            ends = given.over(norms)
        sizes = np.abs(ends.reading)
        if self.judged and ends.even and ends.allowance is None:  # as most are: by their extremes
            least, largest = float(ends.unit.min()), max(float(sizes.max()), float(ends.unit.max()))
            if least > 0.0 and 1.0 / LARGEST_READING < largest < LARGEST_READING:
                return ends
        kept = np.isfinite(ends.reading) & np.isfinite(ends.unit) & (ends.unit > 0)
        if not ends.even:
            kept &= np.all(ends.sides == given.sides, axis=0) | (norms == 0)
        if not kept.all():
            i = int(np.argmin(kept))
            raise ValueError(
                f"row {i} of {self._of} has norm {norms[i]:.3g}, which takes b[{i}] = "
                f"{float(self.b[i]):.3g} or its tolerance {float(given.unit[i]):.3g} out of "
                "float64's range when scaled to a unit row: rescale the row"
            )
        for part in (
            () if not self.judged else (ends.above,) if ends.even else (ends.below, ends.above)
        ):
            sizes = np.maximum(sizes, np.where(np.isfinite(part), np.abs(part), 0.0))
        largest = float(sizes.max())
        something = largest > 0.0 or bool(np.any(given.reading[norms > 0] != 0.0))
        tiny = something and largest < 1.0 / LARGEST_READING
        if largest > LARGEST_READING or tiny:
            i = int(np.argmax(sizes))
            word = "large" if largest > 1.0 else "small"
            raise ValueError(
                f"readings and tolerances are too {word} to compute with in float64: for a row of "
                f"unit norm that of row {i} is {sizes[i]:.3g}; divide b and delta (or bounds) by a "
                "common factor, and A is divided by it, too"
            )
        return ends

    def contradictions(self) -> npt.NDArray[np.int64]:
        """Rows of zeros whose interval leaves out zero: no matrix meets them."""
        if self.ends is None or not self._rows.has_zero_rows:
            return np.empty(0, np.int64)
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
        rows = self.unit_rows
        live = int(np.count_nonzero(to_numpy(rows.nonzero))) if rows.has_zero_rows else self.m
        mixed = isinstance(rows, Mixed)
        if live > (rows.unknowns if mixed else self.n):
            return False
        X = np.random.default_rng(0).standard_normal((self.m, 3)) * to_numpy(rows.nonzero)[:, None]
        xp, probe = rows.xp, like(X, rows.norms)
        if mixed:
            image = rows.gram_times(probe)
        else:
            probe = rows._cast(probe)
            image = rows.times(rows.combine(probe))
        distance = xp.sqrt(xp.sum(xp.abs(image - probe) ** 2, axis=0))
        return float(xp.max(distance)) <= (ORTHONORMAL**2 if mixed else ORTHONORMAL)

    @cached_property
    def facts(self) -> Facts:
        """Orthonormality, coherence, rank: what is known of the probes."""
        rows = self.unit_rows
        norms = to_numpy(rows.norms)
        costly = float(self.m) ** 2 * self.n > 1e12
        coherence = 0.0 if self.orthonormal else None if costly else self._coherence()
        return Facts(
            orthonormal=self.orthonormal,
            unit_norm=bool(np.all(np.abs(norms - 1.0) <= 1e-10)),
            coherence=coherence,
            # Up to rounding.
            paper_holds=coherence is not None and coherence <= (1.0 + 1e-9) / (10 * self.m),
            rank=self.rank,
            unknowns=rows.unknowns,
        )

    def _coherence(self) -> float:
        rows, best = self.unit_rows, 0.0
        explicit = self.gram.values if isinstance(self.gram, ExplicitGram) else None
        for block in rows.slices(self.m):
            K = to_numpy(
                explicit[block, :]
                if explicit is not None
                else rows.gram_block(block, slice(0, self.m))
            ).copy()
            K = np.abs(K) if isinstance(rows, Mixed) else K
            K[np.arange(K.shape[0]), np.arange(block.start, block.stop)] = 0.0
            best = max(best, float(K.max(initial=0.0)))
        return float(np.sqrt(best))

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
