"""Whether a dual vector proves that nothing fits, checked from the data alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.arrays import Vector
from quadsense.measurements import Measurements
from quadsense.proofs.exact import exactly, user_dual


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
    # Here, not above: a fit needs no proof, and importing these takes longer than many solves.
    from quadsense.core.intervals import Intervals
    from quadsense.proofs.positive import certify
    from quadsense.proofs.symmetric import check_proof, norm_limit

    assert data.ends is not None
    suspects = data.contradictions()
    if suspects.size and np.any(dual[suspects] != 0):
        worst = data.ends.ratios(-data.ends.reading)[suspects]
        return Proof(True, True, float(worst.max()), "")
    exact = exactly(data, dual)
    if alone:
        exact = exact.on(np.flatnonzero(exact.y))
    if not psd:
        check = check_proof(exact.F, exact.ends, exact.y, conditional=conditional)
        condition = f"among matrices of Frobenius norm up to {check.max_norm:.3g}"
        return Proof(
            check.proved, check.unconditional, max(check.ratio, float(check.proved)),
            "" if check.unconditional else condition,
        )  # fmt: skip
    intervals = Intervals(exact.ends.lo, exact.ends.hi, exact.ends.unit)
    proof = certify(exact.F, intervals, exact.y, lift=not conditional)
    largest = data.n * norm_limit(exact.F, exact.ends)
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
