"""`StateEstimate`: a density matrix, what follows from it, and how far the counts determine it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, as_numbers
from quadsense.core.noise import bounds_from_counts
from quadsense.core.records import cached_property
from quadsense.tomography.bases import Bases, pauli_matrix, probes_of, read_target
from quadsense.tomography.counts import Counts, Expectations, all_outcomes
from quadsense.tomography.region import MAX_REGION_QUBITS, Region

if TYPE_CHECKING:
    import os

    from quadsense.result.result import Result

MIN_EIGENVALUE = 1e-6
"""Eigenvalue from which a state counts as having a direction: what rounding and gaps leave."""

PURE = 1e-9
"""What the trace of a square lacks to 1 in a pure state, by rounding."""

MIN_DIRECT_QUBITS = 3
"""Qubits from which the linear estimate of a named target is narrower than the region: seen with
2 qubits 1.2 times as wide, with 3 four fifths, with 4 three fifths."""

LISTED_SETTINGS = 5
"""Settings that a summary names."""

DIGITS = 4
"""Digits of a summary."""

CONFIDENCE_STEPS = 12
"""Halvings of the doubt, by its logarithm, that the smallest confidence is found by."""

MIN_DOUBT = 1e-15
"""Doubt that no confidence below 1 leaves room for."""

FITS = {
    "likelihood": "maximum likelihood",
    "least_squares": "least squares",
    "weighted": "weighted least squares",
}
"""Estimates in words."""


@dataclass(frozen=True)
class Estimated:
    """A number with a certified interval.

    Attributes
    ----------
    value : float
        Of the estimate.
    lower, upper : float
        Ends that hold with the confidence of the estimate; NaN where the counts contradict every
        state.
    """

    value: float
    lower: float
    upper: float

    def __float__(self) -> float:
        """Return the number alone."""
        return self.value

    def __str__(self) -> str:
        """Return the number with its interval, in a few digits."""
        if math.isnan(self.lower):
            return f"{self.value:.{DIGITS}f} (no interval: the counts contradict every state)"
        return f"{self.value:.{DIGITS}f} [{self.lower:.{DIGITS}f}, {self.upper:.{DIGITS}f}]"


class StateEstimate:
    """A state that was estimated from counts; see `fit_state`.

    Attributes
    ----------
    rho : ndarray, shape (n, n)
        The density matrix.
    result : Result
        What `solve` returned: the objective with its proved bounds, the certificate.
    prefer : {"likelihood", "least_squares", "weighted"}
        Which estimate it is.
    confidence : float
        With which all intervals hold at once.
    target : ndarray, shape (n, n), or None
        The state that was named beforehand.
    counts : Counts or Expectations
        What it was made of.
    """

    def __init__(
        self,
        result: Result,
        counts: Counts | Expectations,
        bases: Bases,
        readout: npt.NDArray[np.float64] | None,
        *,
        prefer: str,
        confidence: float,
        target: npt.NDArray[np.complex128] | None = None,
    ) -> None:
        self.result, self.counts, self.bases, self.readout = result, counts, bases, readout
        self.prefer, self.confidence, self.target = prefer, confidence, target
        self.rho: npt.NDArray[np.complex128] = np.asarray(result.A, np.complex128)

    # --- the state ---------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Order of the density matrix."""
        return len(self.rho)

    @property
    def factors(self) -> int:
        """How many qubits, or other factors, there are."""
        given = self.counts
        return len(given.strings[0]) if isinstance(given, Expectations) else given.settings.shape[1]

    @cached_property
    def eigenvalues(self) -> Vector:
        """Eigenvalues of `rho`, the largest first."""
        return np.asarray(np.linalg.eigvalsh(self.rho)[::-1])

    @property
    def rank(self) -> int:
        """Number of eigenvalues above 1e-6."""
        return int(np.count_nonzero(self.eigenvalues > MIN_EIGENVALUE))

    @property
    def entropy(self) -> float:
        """Von Neumann entropy in bits."""
        values = self.eigenvalues[self.eigenvalues > 0.0]
        return float(-(values @ np.log2(values)))

    @cached_property
    def purity(self) -> Estimated:
        """``tr(rho^2)``.

        The lower end is that of the linear function that touches it at the estimate; the upper end
        is that of the intervals of Pauli means, and 1 for other bases or with readout errors.
        """
        value = float(np.vdot(self.rho, self.rho).real)
        ends = self._interval(self.rho)
        if ends is None:
            return Estimated(value, math.nan, math.nan)
        least = max(1.0 / self.n, 2.0 * ends[0] - value)
        return Estimated(value, min(least, value), max(value, self.region.squares()))

    @cached_property
    def probabilities(self) -> Vector:
        """What the estimate reads: a table (settings, outcomes), or means of Pauli strings."""
        rows = self.region.probes if isinstance(self.counts, Expectations) else self.probes
        found = np.asarray(rows.forward(self.rho))
        if rows.mix is not None:
            found = np.asarray(rows.mix @ found)
        if isinstance(self.counts, Expectations):
            return found
        return found.clip(0.0).reshape(self.counts.table.shape)

    @cached_property
    def probes(self) -> Any:
        """The rows of the counts."""
        assert isinstance(self.counts, Counts)
        return probes_of(self.bases, self.counts.settings, self.readout)

    # --- numbers with intervals --------------------------------------------------------------

    @cached_property
    def region(self) -> Region:
        """The states that the counts admit. A target that was named has half of the doubt."""
        share = 0.5 if self._has_direct() else 1.0
        doubt = share * (1.0 - self.confidence)
        return Region(self.counts, self.bases, self.readout, 1.0 - doubt)

    def _interval(self, C: npt.NDArray[Any]) -> tuple[float, float] | None:
        """Return ends of ``tr(C rho)``; None where the counts contradict every state."""
        named = self.target
        direct = named is not None and self._has_direct() and bool((named == C).all())
        # Of many qubits the named target's own interval is the narrower one by far.
        found = self.region.interval(C, quick=direct and not self._quick())
        if found is None or not direct:
            return found
        own = self.region.direct(C)
        return max(found[0], own[0]), min(found[1], own[1])

    def _has_direct(self) -> bool:
        """Whether an interval of the named target's own is narrow enough to take its share."""
        counts = isinstance(self.counts, Counts) and self.bases.is_pauli
        return self.target is not None and counts and self.factors >= MIN_DIRECT_QUBITS

    def _linear(self, C: npt.NDArray[Any]) -> Estimated:
        value = float(np.vdot(C, self.rho).real)
        ends = self._interval(C)
        if ends is None or ends[0] > ends[1]:
            return Estimated(value, math.nan, math.nan)
        return Estimated(value, *ends)

    def expectation(self, P: Any) -> Estimated:
        """``tr(P rho)`` of a Pauli string or of a Hermitian matrix, with its interval."""
        if isinstance(P, str):
            C = pauli_matrix(P, round(math.log2(self.n)))
        else:
            C = as_numbers("P", P).astype(np.complex128)
            if C.shape != self.rho.shape or not np.allclose(C, C.conj().T):
                raise ValueError(
                    f"P must be a Pauli string or a Hermitian matrix {self.rho.shape}, got shape "
                    f"{C.shape}"
                )
        return self._linear(C)

    def fidelity(self, target: Any = None) -> Estimated:
        """Fidelity ``(tr sqrt(sqrt(s) rho sqrt(s)))^2`` with a state s.

        With a pure state it is linear and has the interval of that. With a mixed one the upper end
        is 1, and the lower end is that of ``tr(s rho)``, which never exceeds it.

        Parameters
        ----------
        target : array of shape (n,) or (n, n), optional
            By default the one that was given to `fit_state`, whose interval is narrower for having
            been named beforehand.
        """
        s = self._named(target)
        if np.vdot(s, s).real > 1.0 - PURE:
            found = self._linear(s)
            value = min(max(found.value, 0.0), 1.0)
            lower, upper = np.clip([found.lower, found.upper], 0.0, 1.0).tolist()
            return Estimated(value, lower, upper)
        values, vectors = np.linalg.eigh(s)
        root = (vectors * np.sqrt(values.clip(0.0))) @ vectors.conj().T
        inner = np.linalg.eigvalsh(root @ self.rho @ root).clip(0.0)
        value = min(1.0, float(np.sum(np.sqrt(inner))) ** 2)
        lower = self._linear(s).lower
        upper = 1.0 + 0.0 * lower  # NaN where that is
        return Estimated(value, max(0.0, lower) + 0.0 * lower, upper)

    def trace_distance(self, target: Any = None) -> Estimated:
        """Half the trace norm of ``rho - s``.

        The lower end is that of the projector which tells the estimate from s best. The upper end
        follows from the fidelity where s is pure, and is 1 otherwise.
        """
        s = self._named(target)
        values, vectors = np.linalg.eigh(self.rho - s)
        value = 0.5 * float(np.abs(values).sum())
        above = vectors[:, values > 0.0]
        E = above @ above.conj().T
        ends = self._interval(E)
        if ends is None:
            return Estimated(value, math.nan, math.nan)
        lower = max(0.0, ends[0] - float(np.vdot(E, s).real))
        upper = 1.0
        if np.vdot(s, s).real > 1.0 - PURE:
            upper = math.sqrt(max(0.0, 1.0 - max(0.0, self._linear(s).lower)))
        return Estimated(value, min(lower, value), max(min(1.0, upper), value))

    def _named(self, target: Any) -> npt.NDArray[np.complex128]:
        if target is not None:
            return read_target(target, self.n)
        if self.target is None:
            raise ValueError("no target was given to fit_state: give target=")
        return self.target

    # --- do the counts fit a state -----------------------------------------------------------

    @cached_property
    def deviance(self) -> float:
        """``2 sum k log(k/(N p))``: twice what the estimate's likelihood lacks to the best."""
        given = self.counts
        if isinstance(given, Expectations):
            ones = 0.5 * (1.0 + given.means)
            p = 0.5 * (1.0 + self.probabilities.clip(-1.0, 1.0))
            table, model = np.stack([ones, 1.0 - ones], 1), np.stack([p, 1.0 - p], 1)
            table, totals = table * given.shots[:, None], given.shots[:, None]
        else:
            table, model, totals = given.table, self.probabilities, given.shots[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(table > 0.0, table * np.log(table / (totals * model)), 0.0)
        return max(0.0, 2.0 * float(terms.sum()))  # rounding apart

    @cached_property
    def _missed(self) -> Any:
        """Which readings of the estimate are outside of their own intervals."""
        lower, upper = self._bounds(self.confidence)
        found = self.probabilities.ravel()
        return (found < lower) | (found > upper)

    def _bounds(self, confidence: float) -> tuple[Vector, Vector]:
        """Intervals of all readings that hold together."""
        if isinstance(self.counts, Expectations):
            region = Region(self.counts, self.bases, self.readout, confidence)
            return region.lower, region.upper
        totals = np.broadcast_to(self.counts.shots[:, None], self.counts.table.shape).ravel()
        return bounds_from_counts(self.counts.table.ravel(), totals, confidence)

    @cached_property
    def consistent(self) -> bool | None:
        """Whether some state has all its readings within intervals that hold together.

        False is proved. True says that there is one; None that it was not found out.
        """
        return self._admits(self.confidence)

    def _admits(self, confidence: float) -> bool | None:
        from quadsense.solve import solve

        lower, upper = self._bounds(confidence)
        found = self.probabilities.ravel()
        if bool(np.all((found >= lower) & (found <= upper))):
            return True
        rows = self.region.probes if isinstance(self.counts, Expectations) else self.probes
        result = solve(rows, bounds=(lower, upper), psd=True, trace=1.0, prefer="any")
        if result.met:
            return True
        return False if str(result.status) == "infeasible" else None

    @cached_property
    def smallest_confidence(self) -> float:
        """The smallest confidence, from `confidence` on, at which the counts admit a state.

        Up to a factor of two in what it lacks to 1. Where they admit one at `confidence`, that.
        """
        if self.consistent is not False:
            return self.confidence
        doubt, least = 1.0 - self.confidence, MIN_DOUBT
        for _ in range(CONFIDENCE_STEPS):
            if doubt <= 2.0 * least:
                break
            middle = math.sqrt(doubt * least)
            if self._admits(1.0 - middle) is False:
                doubt = middle
            else:
                least = middle
        return 1.0 - least

    @property
    def missed_settings(self) -> list[str]:
        """Settings with a reading that the estimate misses by more than its interval."""
        given = self.counts
        if isinstance(given, Expectations):
            return [s for s, missed in zip(given.strings, self._missed, strict=True) if missed]
        rows = self._missed.reshape(given.table.shape).any(axis=1)
        return [name for name, missed in zip(given.names, rows, strict=True) if missed]

    # --- in words and pictures ---------------------------------------------------------------

    def __repr__(self) -> str:
        """Return the order, the estimate and where it comes from."""
        return f"<StateEstimate: {self._system()} by {FITS[self.prefer]}, purity {self._purity()}>"

    def _purity(self) -> str:
        return f"{float(np.vdot(self.rho, self.rho).real):.{DIGITS}f}"

    def _system(self) -> str:
        q, n = self.factors, self.n
        if n == 2**q:
            return f"{q} qubit{'s' * (q > 1)}"
        return f"a system of dimension {n}"

    def __str__(self) -> str:
        """Return a summary: the state, its numbers with intervals, whether the counts agree."""
        given = self.counts
        if isinstance(given, Expectations):
            what = f"{len(given.strings)} mean values"
        else:
            many = len(given.table)
            what = f"{int(given.table.sum()):,} counts in {many} setting{'s' * (many > 1)}"
        lines = [f"state of {self._system()} from {what}, by {FITS[self.prefer]}"]
        rows: list[tuple[str, str]] = []
        if self.target is not None:
            rows.append(("fidelity", str(self.fidelity())))
        rows.append(("purity", str(self.purity) if self._quick() else self._purity()))
        largest = ", ".join(f"{value:.{DIGITS}f}" for value in self.eigenvalues[:LISTED_SETTINGS])
        more = ", ..." if self.n > LISTED_SETTINGS else ""
        rows.append(("eigenvalues", f"{largest}{more} (rank {self.rank} of {self.n})"))
        rows.append(("entropy", f"{self.entropy:.{DIGITS}f} bits"))
        rows.append(("deviance", f"{self.deviance:.5g}{self._expected()}"))
        lines += [f"  {name:<12}{value}" for name, value in rows]
        lines += self._verdict()
        share = f"{self.confidence:.10g}"
        lines.append(f"Intervals hold together with confidence {share}.")
        return "\n".join(lines)

    def _expected(self) -> str:
        """Return what the deviance of a full-rank state is on average, about."""
        if isinstance(self.counts, Expectations):
            return ""
        table = self.counts.table
        free = table.shape[0] * (table.shape[1] - 1) - (self.n**2 - 1)
        return f" (about {free} is usual)" if free > 0 else ""

    def _quick(self) -> bool:
        return self.factors <= MAX_REGION_QUBITS - 1

    def _verdict(self) -> list[str]:
        """Return whether the counts agree with a state, in words."""
        missed = self.missed_settings
        if not missed:
            return ["The counts agree with a state."]
        named = ", ".join(missed[:LISTED_SETTINGS]) + (", ..." if len(missed) > LISTED_SETTINGS
                                                       else "")  # fmt: skip
        one = len(missed) == 1
        said = f"The estimate misses counts of {len(missed)} setting{'' if one else 's'}: {named}."
        if not self._quick():
            return [said]
        if self.consistent is False:
            least = 1.0 - self.smallest_confidence
            return [
                f"The counts contradict every state at this confidence (up to 1 - {least:.1g}): "
                "drift, crosstalk or a wrong label.",
                said,
            ]
        return [said, "Another state agrees with all counts." if self.consistent else ""]

    def plot(self, kind: str = "both", *, title: str | None = None) -> Any:
        """Draw the density matrix as a city plot, and what was measured as bars.

        Parameters
        ----------
        kind : {"both", "city", "bars"}
        title : str, optional

        Returns
        -------
        matplotlib.figure.Figure
        """
        from quadsense.tomography.figures import draw

        return draw(self, kind, title)

    def report(self, path: str | os.PathLike[str] | None = None, **more: Any) -> Any:
        """Return all that there is to say of the fit as one HTML file; see `Result.report`."""
        more.setdefault("title", str(self).split("\n")[0])
        return self.result.report(path=path, **more)

    def outcomes(self) -> list[str]:
        """Return the outcomes of a setting in the order of `probabilities`, as digits."""
        return all_outcomes(self.bases.outcomes(self.factors))
