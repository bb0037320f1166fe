"""Claims checked from the data alone: infeasible, and optimal to a gap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.ends import Ends
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing


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


def user_dual(data: Measurements, y: Vector) -> Vector:
    """The dual vector for the user's rows from the one for unit rows."""
    norms = to_numpy(data.unit_rows.norms)
    safe = np.where(norms > 0, norms, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.where(norms > 0, y / safe / safe, y))


class _Exact(NamedTuple):
    """Rows of about unit norm, their intervals and the dual vector, all scaled by powers of two."""

    F: Sensing
    ends: Ends
    y: Vector

    def on(self, rows: npt.NDArray[np.intp]) -> _Exact:
        """These rows alone."""
        return _Exact(self.F.only(rows), self.ends.each(lambda values: values[rows]), self.y[rows])


def _exact(data: Measurements, dual: Vector) -> _Exact:
    """The data with rows near unit norm and no digit changed: nothing rounds on the way.

    A row of zeros proves nothing here (see `Measurements.contradictions`): it reads 0, as it does.
    """
    assert data.ends is not None
    F, exponents = data.unit_rows.on_numpy().exact()
    live = to_numpy(data.unit_rows.nonzero) > 0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        y = np.ldexp(np.where(live, dual, 0.0), 2 * exponents)
    ends = data.ends.shifted(exponents)
    if not live.all():
        ends = ends.each(lambda values: np.where(live, values, 0.0))
    return _Exact(F, ends, y)


def check_infeasible(data: Measurements, dual: Vector, psd: bool, *, alone: bool = False) -> Proof:
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
    """
    # Here, not above: a fit needs no proof, and importing these takes longer than many a solve.
    from quadsense.methods.interior.infeasible import check_proof, norm_limit
    from quadsense.methods.positive.infeasible import certify
    from quadsense.methods.positive.maps import Intervals

    assert data.ends is not None
    suspects = data.contradictions()
    if suspects.size and np.any(dual[suspects] != 0):
        worst = data.ends.ratios(-data.ends.reading)[suspects]
        return Proof(True, True, float(worst.max()), "")
    exact = _exact(data, dual)
    if alone:
        exact = exact.on(np.flatnonzero(exact.y))
    if not psd:
        check = check_proof(exact.F, exact.ends, exact.y)
        condition = f"among matrices of Frobenius norm up to {check.max_norm:.3g}"
        return Proof(
            check.proved, check.unconditional, max(check.ratio, float(check.proved)),
            "" if check.unconditional else condition,
        )  # fmt: skip
    proof = certify(exact.F, Intervals(exact.ends.lo, exact.ends.hi, exact.ends.unit), exact.y)
    largest = data.n * norm_limit(exact.F, exact.ends)
    proved = proof.infeasible or (0.0 < largest < proof.trace_bound)
    condition = f"among matrices of trace up to {largest:.3g}"
    return Proof(
        proved, proof.infeasible, max(proof.lower_bound, float(proved)),
        "" if proof.infeasible else condition,
    )  # fmt: skip


def best_error_bound(
    data: Measurements, dual: Vector, upper: float, psd: bool, size: float
) -> tuple[float, str]:
    """Proven lower bound on ``min_A max_i |z_i|/delta_i`` for fits of at most `upper`.

    `size` is the Frobenius norm of the fit that has this error: where a bound on the norm must be
    taken for granted, it is not below ten times that.

    Returns
    -------
    bound : float
    condition : str
        In words; empty where the bound holds without any.
    """
    from quadsense.methods.interior.adjoint import adjoint_norm
    from quadsense.methods.interior.infeasible import (
        lower_bound,
        norm_limit,
        smallest_singular_value,
    )
    from quadsense.methods.positive.infeasible import certify
    from quadsense.methods.positive.maps import Intervals

    assert data.ends is not None
    exact = _exact(data, dual)
    F, y, b, delta = exact.F, exact.y, exact.ends.reading, exact.ends.unit
    largest = float(np.max(np.abs(y), initial=0.0))
    dead = to_numpy(data.unit_rows.nonzero) == 0
    floor = float(np.max(data.ends.ratios(-data.ends.reading), where=dead, initial=0.0))
    if not (math.isfinite(largest) and largest > 0.0) or not exact.ends.sides.all():
        return floor, ""
    if psd:  # intervals as wide as the error claimed: readings are not lost beside them
        width = upper * delta
        intervals = Intervals(b - width, b + width, width)
        proof = certify(F, intervals, y)
        if proof.lower_bound > 0.0 or not proof.negative:
            return max(upper * proof.lower_bound, floor), ""
        # Rows that do not span the space leave y as it is: F*(y) >= -e I, so -e tr(A) enters.
        trace = data.n * max(norm_limit(F, Ends.around(b, width)), 10.0 * size)
        value, error = intervals.support(proof.y)
        leans = np.flatnonzero(proof.y)
        cost = float(np.abs(proof.y[leans]) @ width[leans])
        above = value + error + proof.negative * trace
        found = upper * (1.0 - above / cost) * (1.0 - 1e-12) if math.isfinite(cost) else 0.0
        condition = f"among matrices of trace up to {trace:.3g}"
        return (found, condition) if found > floor else (floor, "")
    y = np.ldexp(y, -int(np.frexp(largest)[1]))
    sigma = smallest_singular_value(F)
    norm, condition = max(norm_limit(F, Ends.around(b, upper * delta)), 10.0 * size), ""
    if sigma > 0.0:
        norm = float(np.linalg.norm(np.abs(b) + upper * delta)) / sigma * (1.0 + 1e-12)
    else:
        condition = f"among matrices of Frobenius norm up to {norm:.3g}"
    found = lower_bound(b, delta, y, adjoint_norm(F, y), norm)
    return (found, condition) if found > floor else (floor, "")
