"""`Certificate`: a claim that anyone can check against the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import UNIT, Intervals
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import LATER
from quadsense.measurements import Measurements
from quadsense.measurements.column_scaling import can_be_columns, condition_inside, constraints_of
from quadsense.measurements.constraints import Constraint
from quadsense.measurements.oracle import SpectralOracle
from quadsense.measurements.validate import checked_vector
from quadsense.proofs.definite import inertia_of, is_positive, rank_of
from quadsense.proofs.infeasible import (
    best_error_bound,
    cannot_be_hit,
    check_infeasible,
    smallest_hitting_set,
)
from quadsense.result.values import (
    NEGLIGIBLE,
    Comparison,
    Objective,
    are_rows,
    check_objective,
    evaluate,
    is_admitted,
    is_sound,
    largest_miss,
    proved_miss,
)
from quadsense.system.threads import with_one_blas_thread
from quadsense.typing import MissingName, is_number
from quadsense.vocabulary import Check, Verification

if TYPE_CHECKING:
    from quadsense.proofs.spectral import SpectralCertificate

AGREE = 1e-9
"""Relative difference at which a stored number counts as the recomputed one: sums in another order
differ by far less, a tampered digit by more."""


def within_gap(data: Measurements, upper: float, lower: float, gap: float) -> bool:
    """Return whether two bounds on the worst error are within the gap, or the fit is exact."""
    ratios = np.abs(to_numpy(data.b)) / to_numpy(data.tolerance)
    # Constraints and equalities have no error to weigh.
    scale = float(np.max(ratios, initial=0.0, where=~data.hard))
    return upper <= NEGLIGIBLE * scale or upper - lower <= 1.001 * gap * upper


@dataclass(frozen=True)
class Certificate:
    """A claim that anyone can check against the data.

    Attributes
    ----------
    kind : {"met", "optimal", "infeasible", "spectral", "none"}
        What is claimed: every measurement is within its tolerance; no matrix has a smaller worst
        error, up to `gap`; no matrix is within tolerance;
        ``(1 - accuracy) A* <= A <= (1 + accuracy) A*``; or nothing.
    upper_bound : float
        ``max|z_i|/delta_i`` recomputed from the data, rounding bound included.
    lower_bound : float
        Proven lower bound on the best achievable ``max|z_i|/delta_i``.
    rounding : float
        Largest rounding bound, as a part of the tolerance.
    matrix : SensedMatrix
        The A that the claim is about.
    dual : ndarray of shape (m,) or (p, m), or None
        With "infeasible": y with ``F*(y) = 0`` and ``|y.b| > sum |y_i| delta_i``; several where
        measurements may be set aside, whose supports no set of `allowed` rows hits. With "met" and
        `set_aside`: several, whose supports no smaller set hits; None where that is not proved.
    tolerance : ndarray of shape (m,)
        The tolerances of the solve: half-widths (see `Measurements.tolerance`).
    lo, hi : ndarray of shape (m,) or None
        The intervals of the solve, where these were given.
    conjugate : bool
        Whether the solve took the rows as ``u_i*``.
    psd : bool
        Whether the claim is about positive semidefinite matrices only.
    gap : float
        With "optimal": the claimed relative distance of the two bounds.
    rank : int or None
        The largest rank that was asked for, of a positive semidefinite A.
    signs : tuple of int
        The most positive and the most negative eigenvalues that were asked for; () where neither.
    set_aside : ndarray of int
        Measurements that the claim leaves out, all of which the matrix misses.
    allowed : int
        How many may be left out.
    condition : str
        With "infeasible" and "optimal": what the lower bound takes for granted, if anything.
    objective : Objective or None
        What A costs by the preference and bounds on it; None where any fit was wanted.
    constraints : tuple of Constraint
        Linear constraints of the solve, the last entries of `dual`.
    columns : ndarray of int, shape (n,), or None
        Exponents of ``D = diag(2^columns)`` where the columns of U were scaled (see
        docs/theory.md): what is stated, the objective among it, is about the probes ``D u_i`` and
        ``D^-1 A D^-1``.
    hard : bool
        With "infeasible": whether constraints and equalities contradict each other by themselves,
        so that the other readings are left out of the claim.
    misses : (float, float) or None
        With "infeasible" and `bounds`: how far the interval that is missed by most is missed, at
        least (proved by `dual`) and by `matrix`, in units of the readings; None where that is not
        known.
    data : Measurements or None
        The measurements of the solve; None for a result read from a file.
    """

    kind: str
    upper_bound: float
    lower_bound: float
    rounding: float
    matrix: SensedMatrix
    dual: Vector | None = None
    tolerance: Array = None
    lo: Vector | None = None
    hi: Vector | None = None
    conjugate: bool = False
    psd: bool = False
    rank: int | None = None
    signs: tuple[int, ...] = ()
    gap: float = 0.0
    set_aside: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    allowed: int = 0
    condition: str = ""
    objective: Objective | None = None
    constraints: tuple[Constraint, ...] = ()
    hard: bool = False
    columns: npt.NDArray[np.int64] | None = field(default=None, metadata=LATER)
    misses: tuple[float, ...] | None = field(default=None, metadata=LATER)
    data: Measurements | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Return the claim in a line."""
        numbers = f"ratio {self.lower_bound:.6g} to {self.upper_bound:.6g}"
        return f"<Certificate {self.kind}: {numbers}, order {self.matrix.shape[0]}>"

    def verify(self, U: Any, b: Any = None, *, delta: Any = None, **options: Any) -> bool:
        """Recompute the claim from the data alone.

        Parameters
        ----------
        U : array, sparse array, Measurements or SpectralOracle
            The probes (then `b` is needed, except for a claim about `bounds`), or the measurements;
            for a result of `solve_spectral`, the oracle.
        b : array_like of shape (m,), optional
            Readings.
        delta : float or array_like of shape (m,), optional
            Tolerance to check against in addition to that of the solve.
        **options
            `rtol`, `bounds`, `shots`, `sigma`, `conjugate`, `mix`, `missing` of `Measurements`.

        Returns
        -------
        bool
            Whether all that the certificate states holds on these data, for the tolerance of the
            solve and, where `Measurements` come with another, for that one too; False for kind
            "none". `check` says what was checked.
        """
        return self.check(U, b, delta=delta, **options).true

    @with_one_blas_thread
    def check(self, U: Any, b: Any = None, *, delta: Any = None, **options: Any) -> Verification:
        """Recompute the claim, and say statement by statement what was checked against what.

        Parameters
        ----------
        U, b, delta, **options
            As in `verify`.
        """
        return self.checked(U, b, delta, options)[0]

    def checked(
        self, U: Any, b: Any, delta: Any, options: dict[str, Any]
    ) -> tuple[Verification, tuple[Measurements, Comparison] | None]:
        """The same, and of a fit also what its matrix reads, with the tolerance of the solve."""
        if isinstance(U, SpectralOracle):
            return Verification((self._check_spectral(U),)), None
        known: list[tuple[Measurements, Comparison]] = []
        with np.errstate(over="ignore", under="ignore"):
            if not can_be_columns(self.columns, self.matrix.shape[0]):
                said = Check("scaling of columns", False, "it cannot be one")
                return Verification((said,)), None
            claim = self.inside
            parts = [
                claim._check(data, words, own, known)
                for data, words, own in self._tasks(U, b, delta, options)
            ]
        read = known[0] if known and self.kind == "met" else None
        return sum(parts[1:], parts[0]), read

    @property
    def inside(self) -> Certificate:
        """The same claim about the scaled unknown, which is what is checked."""
        if self.columns is None:
            return self
        objective = self.objective
        if objective is not None:
            objective = replace(objective, condition=condition_inside(objective.condition))
        return replace(
            self,
            matrix=self.matrix.stretched(-self.columns),
            condition=condition_inside(self.condition),
            objective=objective,
            constraints=constraints_of(self.constraints, self.columns),
            columns=None,
            data=None,
        )

    def _tasks(
        self, U: Any, b: Any, delta: Any, options: dict[str, Any]
    ) -> Iterator[tuple[Measurements, str, bool]]:
        """Yield the measurements with each tolerance to check, and whether it is their own."""
        rtol = options.get("rtol")
        none = rtol is None or (is_number(rtol) and rtol == 0.0)
        names = ("bounds", "sigma", "shots")
        given = {name: options.get(name) for name in names}
        given |= {"rtol": None if none else rtol, "delta": delta}
        if none:
            options.pop("rtol", None)
        explicit = [name for name, value in given.items() if value is not None]
        if isinstance(U, Measurements):
            given_too = options.get("bounds") is not None or options.get("mix") is not None
            if b is not None or given_too or "conjugate" in options:
                raise ValueError(
                    "b, bounds, conjugate and mix belong to Measurements: give U and b"
                )
            data = U if not explicit else U.with_tolerance(delta, options.get("rtol", 0.0))
        else:
            options.setdefault("conjugate", self.conjugate)
            options.setdefault("missing", self._missing)
            if self.lo is not None and not explicit:
                options["bounds"] = (self.lo, self.hi)
            data = Measurements(U, b, delta=delta, **options)
        data = data.plain
        if data.n != self.matrix.shape[0]:
            raise ValueError(
                f"the result is of order {self.matrix.shape[0]}, but the data have n = {data.n}"
            )
        if data.m != np.size(self.tolerance):
            raise ValueError(
                f"the result is about {np.size(self.tolerance)} measurements, the data are {data.m}"
            )
        if self.kind == "optimal" and not self._slack:
            if data.from_bounds:
                raise ValueError("the result is about readings b, but the data are intervals")
            yield self._constrained(data.without_tolerance()), "no tolerance", True
            return
        own = self._own_ends(data)
        if data.ends is None or _same(data.ends, data.with_ends(own).ends):
            yield self._constrained(data.with_ends(own)), _words(own), True
            return
        text = f"the result's own tolerance, {_words(own)}"
        yield self._constrained(data.with_ends(own)), text, True
        which = f"the {' and '.join(explicit)} given" if explicit else "the data's tolerance"
        yield self._constrained(data), f"{which}, which differs, {_words(data.ends)}", False

    @property
    def _missing(self) -> MissingName:
        """What to make of readings that are NaN: with a tolerance, rows without ends say it."""
        return "drop" if self.kind == "optimal" and self.lo is None else "raise"

    @property
    def _slack(self) -> bool:
        return self.objective is not None and self.objective.preference.slack

    def _constrained(self, data: Measurements) -> Measurements:
        """Return the data with the constraints of the solve, their columns scaled as there."""
        data = data if self.columns is None else data.framed(self.columns)
        constraints = constraints_of(self.constraints, self.columns)
        return data.constrained(None, constraints) if constraints else data

    def own_data(self, U: Any, b: Any, options: dict[str, Any]) -> Measurements:
        """Return the measurements with the intervals of the solve in place of their own.

        Their columns are scaled as in the solve: what they are compared with is `inside`.
        """
        conjugate, mix = options.get("conjugate", self.conjugate), options.get("mix")
        if isinstance(U, Measurements):
            data = U
        elif self.lo is not None or options.get("bounds") is not None:
            bounds: Any = options.get("bounds") or (self.lo, self.hi)
            data = Measurements(U, b, bounds=bounds, conjugate=conjugate, mix=mix)
        else:
            data = Measurements(U, b, conjugate=conjugate, mix=mix, missing=self._missing)
        data = data.plain
        return self._constrained(data.with_ends(self._own_ends(data)))

    def _own_ends(self, data: Measurements) -> Intervals:
        """Return the intervals of the solve, on readings of these data."""
        if self.lo is not None and self.hi is not None:
            if not np.all(self.lo <= self.hi):
                return Intervals.around(to_numpy(data.b), np.full(data.m, np.nan))
            norms = to_numpy(data.unit_rows.norms)
            return Intervals.between(to_numpy(self.lo), to_numpy(self.hi), norms)
        tolerance = np.asarray(to_numpy(self.tolerance), dtype=np.float64)
        return data.around(to_numpy(data.b), tolerance)

    def _check(self, data: Measurements, words: str, own: bool, read: list[Any]) -> Verification:
        """Check every statement against one tolerance; `read` gets what A reads with its own."""
        checks = [self._check_form(data)]
        if not checks[0].holds:
            return Verification(tuple(checks))
        values = evaluate(data, self.matrix, self.set_aside)
        if own:
            read.append((data, values))
            upper = float(values.upper.max())
            text = f"claimed {self.upper_bound:.6g}, found {upper:.6g}"
            # Another evaluation rounds otherwise, within its own bound.
            with np.errstate(invalid="ignore"):
                slack = 2.0 * float((values.upper - values.ratios).max())
            known = math.isfinite(upper) and _at_most(upper, self.upper_bound + slack)
            checks.append(Check("upper bound", known or self.upper_bound == math.inf, text))
        if self.psd and self.kind != "infeasible":
            checks.append(Check("positive semidefinite", is_positive(self.matrix)))
        if self.signs and self.kind != "infeasible":
            found, asked = inertia_of(self.matrix), self.signs
            text = f"found {found}, asked for at most {asked}"
            held = len(asked) == 2 and found[0] <= asked[0] and found[1] <= asked[1]
            checks.append(Check("positive and negative eigenvalues", held, text))
        if self.rank is not None and self.kind != "infeasible":
            rank = rank_of(self.matrix)
            text = f"found {rank}, asked for at most {self.rank}"
            checks.append(Check("rank", rank <= self.rank, text))
        if self.set_aside.size:
            kept = bool(np.all(~values.met[self.set_aside]))
            few = self.set_aside.size <= self.allowed
            text = f"{self.set_aside.size} rows, at most {self.allowed}, none of which is met"
            checks.append(Check("set aside", kept and few, text))
            if self.kind == "met" and self.dual is not None:
                proved, fewest, _ = _hits(data, self.dual, self.psd)
                enough = proved and fewest >= self.set_aside.size
                text = f"{len(self.dual)} proofs, which only {fewest} rows can hit"
                checks.append(Check("no fewer rows suffice", enough, text))
        kept_data = data.set_aside(self.set_aside) if self.set_aside.size else data
        claim = {"met": self._check_met, "optimal": self._check_optimal}.get(
            self.kind, self._check_infeasible
        )
        checks.extend(claim(kept_data, values, words, own))
        if own and self.objective is not None:
            if self.kind == "infeasible":
                checks.append(Check("objective", False, "none is claimed where nothing fits"))
            else:
                preference = self.objective.preference
                fits = is_admitted(preference, values.met, self.set_aside, data.measured)
                reads, error = values.reads, values.error
                checks.extend(
                    check_objective(kept_data, self.objective, self.matrix, reads, error, fits)
                )
        return Verification(tuple(checks))

    def _check_form(self, data: Measurements) -> Check:
        """Return whether the certificate is well formed."""
        if self.kind not in ("met", "optimal", "infeasible"):
            return Check("claim", False, "the result claims nothing")
        aside = self.set_aside
        numbers = [self.upper_bound, self.lower_bound, self.gap, self.rounding]
        sound = (
            not any(math.isnan(number) for number in numbers)
            and (not aside.size or are_rows(aside, data.m))
            and data.unit_rows.conjugate == (self.conjugate and data.unit_rows.is_complex)
            and (data.ends is None or bool((data.ends.unit > 0).all()))  # not so for NaN
            and self.allowed >= 0
            and self._dual_fits(data.m)
            and (not self.hard or (self.dual is not None and self.dual.ndim == 1))
            and (not self.hard or bool(data.hard.any()))
            and self._preference_fits(data)
        )
        return Check(f"claim: {self.kind}", sound, "" if sound else "the certificate is damaged")

    def _preference_fits(self, data: Measurements) -> bool:
        if self.objective is None:
            return True
        return self.objective.preference.psd == self.psd and is_sound(
            self.objective, data.m, data.measured, data.n
        )

    def _dual_fits(self, m: int) -> bool:
        if self.dual is None:
            return self.kind in ("met", "optimal")
        if not np.isfinite(self.dual).all():
            return False
        several = self.dual.ndim == 2 and len(self.dual) > 0
        if self.kind == "met":
            shaped = several and self.set_aside.size > 0
        else:
            shaped = self.dual.ndim == 1 or (several and self.kind == "infeasible")
        return self.dual.shape[-1:] == (m,) and shaped

    def _check_met(
        self, data: Measurements, values: Comparison, words: str, own: bool
    ) -> Iterator[Check]:
        met = values.met
        if self.set_aside.size:
            met[self.set_aside] = True
        over = np.flatnonzero(~met)
        text = f"against {words}"
        if over.size:
            text += (
                f"; {over.size} of {met.size - self.set_aside.size} are not, first row {over[0]}"
            )
        yield Check("every measurement within its interval, rounding included", not over.size, text)
        yield Check("lower bound", self.lower_bound <= 0.0, "none is claimed with a fit")

    def _check_optimal(
        self, data: Measurements, values: Comparison, words: str, own: bool
    ) -> Iterator[Check]:
        if self.objective is not None:
            yield Check("lower bound", self.lower_bound <= 0.0, "none is claimed on the ratio")
            yield Check("no matrix is preferred, up to the gap", self.objective.closed)
            return
        upper, lower, condition = float(values.upper.max()), 0.0, ""
        if self.dual is not None:
            size = self.matrix.norm()
            lower, condition = best_error_bound(
                data, self.dual, upper, self.psd, size, conditional=bool(self.condition)
            )
        yield self._check_lower(lower, condition)
        if data.constraints:
            yield Check("every constraint holds", bool(values.met[data.measured :].all()))
        found = within_gap(data, upper, lower, self.gap)
        stated = within_gap(data, self.upper_bound, self.lower_bound, self.gap)
        text = f"worst error {upper:.6g}, and none below {lower:.6g}, gap {self.gap:g}"
        yield Check("no matrix does better, up to the gap", found and stated, text)

    def _check_infeasible(
        self, data: Measurements, values: Comparison, words: str, own: bool
    ) -> Iterator[Check]:
        assert self.dual is not None
        which = "no positive semidefinite matrix" if self.psd else "no matrix"
        if self.hard:
            alone = data.only_hard()
            proof = check_infeasible(alone, self.dual, self.psd, conditional=bool(self.condition))
            yield Check(f"{which} meets constraints and equalities", proof.proved)
            if own:
                yield self._check_lower(1.0, proof.condition)
            return
        if self.dual.ndim == 1 and not self.allowed:
            proof = check_infeasible(data, self.dual, self.psd, conditional=bool(self.condition))
            yield Check(f"{which} is within the intervals", proof.proved, f"against {words}")
            if own:
                yield self._check_lower(proof.lower_bound, proof.condition)
            if own and self.misses is not None:
                yield self._check_misses(data, values)
            return
        duals = np.atleast_2d(self.dual)
        proved, fewest, condition = _hits(data, duals, self.psd)
        enough = proved and fewest > self.allowed
        text = f"against {words}; {len(duals)} proofs, which only {fewest} rows can hit"
        yield Check(f"{which} misses {self.allowed} rows or fewer", enough, text)
        if own:
            yield self._check_lower(1.0, condition)

    def _check_misses(self, data: Measurements, values: Comparison) -> Check:
        """Return whether the bounds on the smallest largest miss of an interval are as claimed."""
        assert self.misses is not None and self.dual is not None
        least, most = self.misses if len(self.misses) == 2 else (math.nan, math.nan)
        sound = data.from_bounds and math.isfinite(most) and 0.0 <= least <= most
        proved, found = 0.0, math.inf
        if sound:
            proved = proved_miss(data, self.dual, self.psd, most, self.condition)
            found = largest_miss(data, values)
        text = f"claimed {least:.6g} to {most:.6g}, found {proved:.6g} to {found:.6g}"
        room = 4.0 * float(np.max(values.error)) + AGREE * abs(most)
        return Check(
            "smallest miss", sound and _at_most(least, proved) and found <= most + room, text
        )

    def _check_lower(self, lower: float, condition: str) -> Check:
        """Return whether the lower bound and what it takes for granted are as claimed."""
        text = f"claimed {self.lower_bound:.6g}, proved {lower:.6g}"
        sound = not condition or self.condition == condition
        text += f" {condition}" if condition else ""
        return Check("lower bound", _at_most(self.lower_bound, lower) and sound, text)

    @with_one_blas_thread
    def spectral(
        self,
        noise: Any = 0.0,
        *,
        confidence: float | None = None,
        data: Measurements | None = None,
    ) -> SpectralCertificate:
        """Bound how near A is to the true A*, from the data alone, without an oracle.

        Parameters
        ----------
        noise : float or array_like of shape (m,), default=0.0
            Bound on the error of each reading, ``|b_i - u_i* A* u_i|``. With `bounds` it is at
            least half the width of the interval, and rows of one end are left out, as are those
            that were set aside.
        confidence : float, optional
            In (0, 1): the far tighter bound for errors of random sign, by simulation.
        data : Measurements, optional
            Those of the solve by default; needed for a result read from a file.

        Returns
        -------
        SpectralCertificate
            `delta` of ``(1 - delta) A* <= A <= (1 + delta) A*`` where the measurements determine
            A*, else `unseen`, the number of dimensions that they do not see; `message` says it.

        Notes
        -----
        The paper leaves this open. Its coherence bound forces m <= n, where A* is never
        determined: this certificate lives outside its assumptions.
        """
        data = self.data if data is None else data
        if data is None:
            raise ValueError("this certificate was read from a file: give data=Measurements(U, b)")
        if not isinstance(data, Measurements):
            raise ValueError(f"data must be Measurements, got {type(data).__name__}")
        if confidence is not None and not (is_number(confidence) and 0 < confidence < 1):
            raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
        levels = checked_vector("noise", noise, data.m, scalar=True)
        if np.any(levels < 0):
            raise ValueError(f"noise must not be negative, got {levels.min()}")
        norms = to_numpy(data.unit_rows.norms)
        known = norms > 0
        known[self.set_aside] = False
        if data.from_bounds:  # the interval is all that is known of a reading
            assert data.ends is not None
            known &= data.ends.two_sided
            levels = np.maximum(levels, to_numpy(data.tolerance))
        live = np.flatnonzero(known)
        squares = norms[live] ** 2
        with np.errstate(over="ignore"):
            levels = levels[live] / squares
        if not np.isfinite(levels).all():
            raise ValueError("noise is too large for the norms of the rows: rescale U and b")
        rows = data.unit_rows.on_numpy().only(live)
        from quadsense.proofs.spectral import spectral_certificate  # rarely needed

        return spectral_certificate(
            rows.raw.rows(),
            to_numpy(data.b)[live] / squares,
            np.asarray(self.matrix),
            levels,
            confidence=confidence,
            mix=rows.weights,
        )

    def _check_spectral(self, oracle: SpectralOracle) -> Check:
        """Check that ``(1 - accuracy) A* <= A <= (1 + accuracy) A*``, with the oracle's A*."""
        found = oracle.eigenvalues(self.matrix.to_dense()) - 1.0
        worst = float(np.abs(to_numpy(found)).max()) + oracle.rounding(found)
        accuracy = float(np.min(self.tolerance))
        true = (
            self.kind == "spectral"
            and worst <= accuracy
            and _at_most(worst / accuracy, self.upper_bound)
        )
        text = f"found {worst:.6g} against {accuracy:.6g}"
        return Check("(1 - accuracy) A* <= A <= (1 + accuracy) A*", true, text)


def _hits(data: Measurements, duals: Array, psd: bool) -> tuple[bool, float, str]:
    """Return whether each dual vector is a proof, how few rows hit all, and what they presume."""
    proofs = [check_infeasible(data, dual, psd, alone=True) for dual in duals]
    supports = [dual[: data.measured] != 0.0 for dual in duals]
    fewest: float = math.inf
    if not cannot_be_hit(supports):
        hitting = smallest_hitting_set(supports)
        fewest = 0 if hitting is None else hitting.size
    condition = next((proof.condition for proof in proofs if proof.condition), "")
    return all(proof.proved for proof in proofs), fewest, condition


def _at_most(small: float, large: float) -> bool:
    """Return whether a number is at most another, up to `AGREE`."""
    return small <= large + AGREE * max(abs(small), abs(large))


def _same(one: Intervals, other: Intervals | None) -> bool:
    """Return whether two sets of intervals agree to the last bit but one."""
    return other is not None and all(
        bool(np.allclose(a, b, rtol=4.0 * UNIT, atol=0.0))
        for a, b in ((one.lo, other.lo), (one.hi, other.hi), (one.unit, other.unit))
    )


def _words(ends: Intervals) -> str:
    """Return intervals in words."""
    if not ends.even:
        return f"{ends.unit.size} intervals"
    least, most = float(ends.unit.min()), float(ends.unit.max())
    return f"delta {least:.6g}" if least == most else f"deltas {least:.6g} to {most:.6g}"
