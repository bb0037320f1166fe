"""Lower bounds on the smallest worst error, checked from the data alone."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import UNIT, Intervals
from quadsense.measurements import Measurements
from quadsense.proofs.exact import exactly
from quadsense.system.watch import Stop


def best_error_bound(
    data: Measurements,
    dual: Vector,
    upper: float,
    psd: bool,
    size: float,
    *,
    conditional: bool = False,
) -> tuple[float, str]:
    """Proven lower bound on ``min_A max_i |z_i|/delta_i`` for fits of at most `upper`.

    `size` is the Frobenius norm of the fit that has this error: where a bound on the norm must be
    assumed, it is not below ten times that. With `conditional`, and where a time limit is reached
    during the proof of a bound on the norm, one is assumed.

    Returns
    -------
    bound : float
    condition : str
        In words; empty where the bound holds without any.
    """
    from quadsense.proofs.adjoint import adjoint_norm
    from quadsense.proofs.positive import certify
    from quadsense.proofs.symmetric import (
        lower_bound,
        norm_limit,
        norm_within,
    )

    assert data.ends is not None
    exact = exactly(data, dual)
    if data.missing is not None and data.missing.size == data.m:
        exact = exact.on(np.flatnonzero(~data.missing))
    F, y, b, delta = exact.F, exact.y, exact.ends.reading, exact.ends.unit
    largest = float(np.max(np.abs(y), initial=0.0))
    dead = to_numpy(data.unit_rows.nonzero) == 0
    floor = float(np.max(data.ends.ratios(-data.ends.reading), where=dead, initial=0.0))
    if not (math.isfinite(largest) and largest > 0.0) or not exact.ends.two_sided.all():
        return floor, ""
    if psd:  # intervals as wide as the error claimed: readings are not lost next to them
        width = upper * delta
        intervals = Intervals.of(b - width, b + width, width)
        proof = certify(F, intervals, y, lift=not conditional)
        if proof.lower_bound > 0.0 or not proof.negative:
            return max(upper * proof.lower_bound, floor), ""
        # Rows that do not span the space leave y as it is: F*(y) >= -e I, so -e tr(A) enters.
        trace = data.n * max(norm_limit(F, Intervals.around(b, width)), 10.0 * size)
        value, error = intervals.support(proof.y)
        leans = np.flatnonzero(proof.y)
        cost = float(np.abs(proof.y[leans]) @ width[leans])
        above = value + error + proof.negative * trace
        found = upper * (1.0 - above / cost) * (1.0 - 1e-12) if math.isfinite(cost) else 0.0
        condition = f"among matrices of trace up to {trace:.3g}"
        return (found, condition) if found > floor else (floor, "")
    y = np.ldexp(y, -int(np.frexp(largest)[1]))
    norm, condition = math.inf, ""
    with suppress(Stop):
        if not conditional:
            norm = norm_within(F, (np.abs(b) + upper * delta) * (1.0 + 4.0 * UNIT))
    if norm == math.inf:
        norm = max(norm_limit(F, Intervals.around(b, upper * delta)), 10.0 * size)
        condition = f"among matrices of Frobenius norm up to {norm:.3g}"
    found = lower_bound(b, delta, y, adjoint_norm(F, y), norm)
    return (found, condition) if found > floor else (floor, "")
