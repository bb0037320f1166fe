"""Whether a dual vector proves that nothing fits, checked from the data alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.measurements import Measurements
from quadsense.proofs.exact import Exact, exactly, user_dual


@dataclass(frozen=True)
class Proof:
    """What a dual vector proves of some measurements.

    Attributes
    ----------
    proved : bool
        No matrix (positive semidefinite matrix) meets the tolerances.
    unconditional : bool
        Without any bound on the matrix; else none of moderate size, as `condition` says.
    lower_bound : float
        Lower bound on the best achievable ratio, under the same condition.
    condition : str
        In words; empty where unconditional.
    """

    proved: bool
    unconditional: bool
    lower_bound: float
    condition: str


@dataclass(frozen=True, eq=False)
class Conflict:
    """Rows and constraints that contradict each other by themselves.

    Attributes
    ----------
    members : ndarray of int, shape (k,)
        The heaviest in the proof first; those of constraints count on after the user's rows.
    dual : ndarray of shape (k,)
        The proof: entries of a dual vector of the user's rows, which is 0 elsewhere.
    irreducible : bool
        Whether each member was proved to be needed: some matrix meets the others.
    """

    members: npt.NDArray[np.int64]
    dual: Vector
    irreducible: bool

    def spread(self, m: int) -> Vector:
        """The dual vector of all m rows."""
        y = np.zeros(m)
        y[self.members] = self.dual
        return y


def check_infeasible(
    data: Measurements, dual: Vector, psd: bool, *, alone: bool = False, conditional: bool = False
) -> Proof:
    """Check that `dual` proves the intervals of `data` impossible.

    Parameters
    ----------
    data : Measurements
        With tolerances.
    dual : ndarray of shape (m,)
        ``sum(lo_i y_i^+ - hi_i y_i^-) > 0`` and ``F*(y) = 0``; for positive semidefinite matrices
        ``sum(hi_i y_i^+ - lo_i y_i^-) < 0`` and ``F*(y) >= 0``.
    psd : bool
        Whether the claim is about positive semidefinite matrices only.
    alone : bool
        Whether the rows on which `dual` leans must be impossible by themselves.
    conditional : bool, default=False
        Whether to assume a bound on the matrix without trying to prove one.
    """
    assert data.ends is not None
    suspects = data.contradictions()
    if suspects.size and np.any(dual[suspects] != 0):
        worst = data.ends.ratios(-data.ends.reading)[suspects]
        return Proof(True, True, float(worst.max()), "")
    exact, hard = exactly(data, dual), data.hard
    if alone:
        rows = np.flatnonzero(exact.y)
        exact, hard = exact.on(rows), hard[rows]
    return check_exactly(exact, psd, hard, conditional=conditional)


def least_miss(
    data: Measurements, dual: Vector, psd: bool, unit: float, *, conditional: bool = False
) -> Proof:
    """Prove by `dual` that some interval is missed by ``(lower_bound - 1) unit`` at least.

    Parameters
    ----------
    data : Measurements
        With `bounds`.
    dual : ndarray of shape (m,)
        As in `check_infeasible`.
    psd : bool
    unit : float
        Of the readings, a power of two about as large as the miss.
    conditional : bool, default=False
        As in `check_infeasible`.
    """
    assert data.ends is not None
    even = replace(data.ends, unit=np.full(data.m, unit))
    exact = exactly(data, dual, even)
    return check_exactly(exact, psd, data.hard, conditional=conditional)


def check_exactly(
    exact: Exact, psd: bool, hard: npt.NDArray[np.bool_], *, conditional: bool = False
) -> Proof:
    """Check what ``exact.y`` proves of those rows; `hard` ones may not be missed at all."""
    # Here, not above: a fit needs no proof, and importing these takes longer than many solves.
    from quadsense.core.intervals import Intervals
    from quadsense.proofs.positive import certify
    from quadsense.proofs.symmetric import check_proof, norm_limit

    ends, y = exact.ends, exact.y
    unit = np.where(hard, 0.0, ends.unit)
    if not np.any(np.abs(y) * unit > 0.0):  # the ratio of nothing that may be missed
        unit = ends.unit
    if not psd:
        check = check_proof(exact.F, replace(ends, unit=unit), y, conditional=conditional)
        condition = f"among matrices of Frobenius norm up to {check.max_norm:.3g}"
        return Proof(
            check.proved, check.unconditional, max(check.ratio, float(check.proved)),
            "" if check.unconditional else condition,
        )  # fmt: skip
    proof = certify(exact.F, Intervals.of(ends.lo, ends.hi, unit), y, lift=not conditional)
    largest = exact.F.n * norm_limit(exact.F, ends)
    proved = proof.infeasible or (0.0 < largest < proof.trace_bound)
    condition = f"among matrices of trace up to {largest:.3g}"
    return Proof(
        proved, proof.infeasible, max(proof.lower_bound, float(proved)),
        "" if proof.infeasible else condition,
    )  # fmt: skip


class Prover:
    """Checks dual vectors of the unit rows against the data; one at hand is not checked again.

    A method asks it before it claims that nothing fits, and the certificate rests on the same
    answer.

    Parameters
    ----------
    data : Measurements
        With tolerances.
    psd : bool
        Whether the claim is about positive semidefinite matrices only.
    """

    def __init__(self, data: Measurements, psd: bool) -> None:
        self._data, self._psd = data, psd
        self._last: tuple[Vector, Proof] | None = None

    def __call__(self, y: Vector) -> Proof:
        """What y, for the unit rows, proves."""
        if self._last is None or not np.array_equal(self._last[0], y):
            proof = check_infeasible(self._data, user_dual(self._data, y), self._psd)
            self._last = (y.copy(), proof)
        return self._last[1]
