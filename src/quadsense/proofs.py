"""Claims checked from the data alone: infeasible, and optimal to a gap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.measurements import Measurements
from quadsense.methods.interior.adjoint import adjoint_norm
from quadsense.methods.interior.infeasible import (
    NORM_FACTOR,
    data_scale,
    lower_bound,
    smallest_singular_value,
    verify_infeasible,
)
from quadsense.methods.positive.infeasible import certify
from quadsense.methods.positive.maps import Intervals


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


def unit_dual(data: Measurements, dual: Vector) -> Vector:
    """The dual vector for unit rows from the one for the user's rows."""
    norms = to_numpy(data.unit_rows.norms)
    return np.asarray(dual * norms * norms)


def user_dual(data: Measurements, y: Vector) -> Vector:
    """The dual vector for the user's rows from the one for unit rows."""
    norms = to_numpy(data.unit_rows.norms)
    safe = np.where(norms > 0, norms, 1.0)
    return np.asarray(np.where(norms > 0, y / safe / safe, y))


def check_infeasible(data: Measurements, dual: Vector, psd: bool) -> Proof:
    """Check that `dual` proves the tolerances of `data` impossible.

    Parameters
    ----------
    data : Measurements
        With tolerances.
    dual : ndarray of shape (m,)
        ``y.b > sum |y_i| delta_i`` and ``F*(y) = 0``; for positive semidefinite matrices
        ``y.b < -sum |y_i| delta_i`` and ``F*(y) >= 0``.
    psd : bool
        Whether the claim is about positive semidefinite matrices only.
    """
    suspects = data.contradictions()
    if suspects.size and np.any(dual[suspects] != 0):
        worst = np.abs(to_numpy(data.b)[suspects]) / to_numpy(data.tolerance)[suspects]
        return Proof(True, True, float(worst.max()), "")
    scaled = data.scaled()
    b, delta = to_numpy(scaled.b), to_numpy(scaled.delta)
    U, y = data.unit_rows.as_numpy(), unit_dual(data, dual)
    upper: Any = None
    lower: Any = None
    if data.sides is not None:
        upper, lower = data.sides
    if not psd:
        check = verify_infeasible(U, b, delta, y, upper=upper, lower=lower)
        condition = f"among matrices of Frobenius norm up to {check.max_norm:.3g} for unit rows"
        return Proof(
            check.proved, check.unconditional, max(check.ratio, float(check.proved)),
            "" if check.unconditional else condition,
        )  # fmt: skip
    lo, hi = b - delta, b + delta
    if data.sides is not None:
        lo, hi = np.where(lower, lo, -np.inf), np.where(upper, hi, np.inf)
    proof = certify(U, Intervals(lo, hi, delta), y)
    largest = 1e6 * data.n * float(np.max(np.abs(b) + delta))
    proved = proof.infeasible or proof.trace_bound > largest
    condition = f"among matrices of trace up to {largest:.3g} for unit rows"
    return Proof(
        proved, proof.infeasible, max(proof.lower_bound, float(proved)),
        "" if proof.infeasible else condition,
    )  # fmt: skip


def best_error_bound(
    data: Measurements, dual: Vector, upper: float, psd: bool
) -> tuple[float, str]:
    """Proven lower bound on ``min_A max_i |z_i|/delta_i`` for fits of at most `upper`.

    Returns
    -------
    bound : float
    condition : str
        In words; empty where the bound holds without any.
    """
    scaled = data.scaled()
    b, delta = to_numpy(scaled.b), to_numpy(scaled.delta)
    U, y = data.unit_rows.as_numpy(), unit_dual(data, dual)
    largest = float(np.max(np.abs(y), initial=0.0))
    dead = to_numpy(data.unit_rows.nonzero) == 0
    floor = float(
        np.max(np.abs(to_numpy(data.b)) / to_numpy(data.tolerance), where=dead, initial=0.0)
    )
    if not (math.isfinite(largest) and largest > 0.0) or data.sides is not None:
        return floor, ""
    if psd:  # intervals as wide as the error claimed: readings are not lost beside them
        width = upper * delta
        found = upper * certify(U, Intervals(b - width, b + width, width), y).lower_bound
        return max(found, floor), ""
    y = np.ldexp(y, -int(np.frexp(largest)[1]))
    sigma = smallest_singular_value(U)
    norm, condition = NORM_FACTOR * data_scale(b, delta), ""
    if sigma > 0.0:
        norm = float(np.linalg.norm(np.abs(b) + upper * delta)) / sigma * (1.0 + 1e-12)
    else:
        condition = f"among matrices of Frobenius norm up to {norm:.3g} for unit rows"
    found = lower_bound(b, delta, y, adjoint_norm(U, y), norm)
    return (found, condition) if found > floor else (floor, "")
