"""The best length of a step along a line, from coefficients alone.

Along ``Y + t D`` a residual is ``z + t z1 + t^2 z2``, so least squares is a quartic in t.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadsense.device import numbers
from quadsense.methods.low_rank.passes import Point
from quadsense.methods.low_rank.program import Program, Vector

# A length below this is none: the step would be lost in rounding.
_LEAST = 1e-8
# Coefficients, in units of the last, beyond which the line is a parabola to rounding.
_QUADRATIC = 1e50
# How often the rows beyond their tolerances are looked up again.
_ROUNDS = 4


def best_length(
    problem: Program,
    point: Point,
    z1: Vector,
    z2: Vector,
    along: float,
    bend: float,
    theta: float,
) -> float:
    """Return the t that minimises the loss along a line, 0 when none descends.

    Parameters
    ----------
    problem : Program
    point : Point
        Where t = 0.
    z1, z2 : (m,) float64
        ``z(t) = z + t z1 + t^2 z2``.
    along : float
        Slope of loss and penalty at t = 0, negative.
    bend : float
        Second derivative of the penalty.
    theta : float
        Residuals inside ``theta * delta`` cost nothing.

    Notes
    -----
    While the set of rows beyond ``theta delta`` stays as it is, the loss is a quartic and its
    minimum a root of a cubic.  Where not all of every residual counts, the set is brought up to
    date and the cubic solved again, a few times.
    """
    weight, z = problem.weight, point.z
    if problem.is_whole(theta):
        w1, w2 = weight * z1, weight * z2
        squared, bent, crossed, fourth = numbers(
            np.dot(w1, z1), np.dot(w2, z), np.dot(w1, z2), np.dot(w2, z2)
        )
        return quartic_minimum(along, squared + 2.0 * bent + bend, 3.0 * crossed, 2.0 * fourth)

    def lost(t: float) -> Any:
        e = problem.excess(z + t * (z1 + t * z2), theta)
        return np.dot(weight * e, e)

    pull, least = numbers(np.dot(weight * point.excess, z1), lost(0.0))
    # The penalty's share of the slope; a penalty without curvature along the step has none, and
    # the difference would be rounding, which far from all bends leads to a step that overflows.
    pressed, start = along - pull if bend > 0.0 else 0.0, 0.5 * least
    t = 0.0
    for _ in range(_ROUNDS):
        here = z + t * (z1 + t * z2)
        e = problem.excess(here, theta)
        w = weight * (e != 0.0)
        base = z - (here - e)
        w1, w2 = w * z1, w * z2
        slope, squared, bent, crossed, fourth = numbers(
            np.dot(w1, base), np.dot(w1, z1), np.dot(w2, base), np.dot(w1, z2), np.dot(w2, z2)
        )
        slope += pressed
        if not slope < 0.0:
            break
        t = quartic_minimum(slope, squared + 2.0 * bent + bend, 3.0 * crossed, 2.0 * fourth)
    while t > _LEAST and not 0.5 * float(lost(t)) + t * pressed + 0.5 * t * t * bend < start:
        t /= 4.0
    return t if t > _LEAST else 0.0


def quartic_minimum(c1: float, c2: float, c3: float, c4: float) -> float:
    """Return the t > 0 that minimises ``c1 t + c2 t^2/2 + c3 t^3/3 + c4 t^4/4``.

    Parameters
    ----------
    c1 : float
        Negative.
    c2, c3 : float
    c4 : float
        Not negative.

    Returns
    -------
    float
        0 where none, or only one that is lost in rounding, descends.
    """
    if not c4 > 0.0:
        t = -c1 / c2 if c2 > 0.0 else 0.0
        return t if t > _LEAST and math.isfinite(t) else 0.0
    # In units of s the cubic is x^3 + a x^2 + b x - 1.
    s = (-c1 / c4) ** (1.0 / 3.0)
    if not s > 0.0:  # the slope is negligible next to the quartic
        return 0.0
    a, b = c3 / c4 / s, c2 / c4 / s / s
    if not abs(a) + abs(b) < _QUADRATIC:
        return quartic_minimum(c1, c2, 0.0, 0.0)
    found = [_polished(x, a, b) for x in _cubic_roots(a, b)]
    roots = [x for x in found if x > 0.0 and math.isfinite(x)]
    if not roots:
        return 0.0

    def value(x: float) -> float:
        return x * (-1.0 + x * (b / 2.0 + x * (a / 3.0 + x / 4.0)))

    best = min(roots, key=value)
    return best * s if value(best) < 0.0 and best * s > _LEAST else 0.0


def _cubic_roots(a: float, b: float) -> list[float]:
    """Return the real roots of ``x^3 + a x^2 + b x - 1`` [Press et al., Section 5.6]."""
    q = (a * a - 3.0 * b) / 9.0
    r = (2.0 * a**3 - 9.0 * a * b - 27.0) / 54.0
    if r * r < q**3:
        angle = math.acos(max(-1.0, min(1.0, r / q**1.5)))
        return [
            -2.0 * math.sqrt(q) * math.cos((angle + turn) / 3.0) - a / 3.0
            for turn in (0.0, 2.0 * math.pi, -2.0 * math.pi)
        ]
    edge = -math.copysign((abs(r) + math.sqrt(max(r * r - q**3, 0.0))) ** (1.0 / 3.0), r)
    return [edge + (q / edge if edge else 0.0) - a / 3.0]


def _polished(x: float, a: float, b: float) -> float:
    """Two Newton steps on a root that cancellation may have spoilt."""
    for _ in range(2):
        slope = b + x * (2.0 * a + 3.0 * x)
        if slope == 0.0:
            break
        x -= (-1.0 + x * (b + x * (a + x))) / slope
    return x
