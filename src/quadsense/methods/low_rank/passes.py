"""Passes over the rows for a factored matrix ``A = X S X*``, each row block read once.

A value and a gradient are two products with the rows.  Done whole, each streams them from
memory; done block by block (`Sensing.through`), the second product finds its rows still in cache,
which makes a pass two to three times as fast.  The factor and its images are kept with one row
a rank, ``Y = X^T`` and ``P``, so that every product is a row-major one and sums over ranks
run along rows.

Along ``Y + t D`` a residual is ``z + t z1 + t^2 z2``, so least squares is a quartic in t: the best
length of a step along a line comes from coefficients alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.device import numbers, scalar
from quadsense.measurements.sensing import Sensing
from quadsense.methods.low_rank.program import LowRankProgram, Matrix, Vector

# Of float64: the distance of 1 from the next number, and the smallest one of all digits.
EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
# Rows that are judged together.
PART_ROWS = 2**14


@dataclass(frozen=True)
class FactorPoint:
    """A factor with everything one pass over the rows tells about it.

    Attributes
    ----------
    Y : (k, n) array
        The factor, ``A = Y^T S conj(Y)``, S the signs (see `LowRankProgram.signs_of`).
    P : (k, m) array
        ``P[:, i] = u_i* X``, for every row where readings are sums of rows.
    z : (m,) float64
        Residual ``F(A) - b``.
    excess : (m,) float64
        ``sign(z) max(|z| - theta delta, 0)``, z itself for theta = 0: see `LowRankProgram.excess`.
    value : float
        ``1/2 sum weight excess^2``.
    gradient : (k, n) array
        Of ``value`` with respect to Y, for the inner product ``Re <., .>``.
    ratio : float
        ``max (|z_i| + rounding_i) / delta_i``, rounding bounded from above (of other intervals
        what `FactorBounds.ratios` says); infinite while P is maintained and not computed from Y.
    drift : float
        Bound on the error of a row of a maintained P.
    """

    Y: Matrix
    P: Matrix
    z: Vector
    excess: Vector
    value: float
    gradient: Matrix
    ratio: float
    drift: float = 0.0


def conjugate(M: Matrix) -> Matrix:
    """Return conj(M), M itself where it is real: NumPy would copy it."""
    return M.conj() if np.iscomplexobj(M) else M


def inner(P: Matrix, Q: Matrix, signs: Vector | None = None) -> npt.NDArray[Any]:
    """Return ``Re sum_k s_k conj(P_ki) Q_ki`` for every i; all signs s are plus where None."""
    if signs is not None:
        P = P * signs[:, None]
    if not np.iscomplexobj(P):
        return P[0] * Q[0] if len(P) == 1 else np.einsum("ki,ki->i", P, Q)
    # Real and imaginary parts next to each other: three times as fast as einsum has it.
    products = P.view(P.real.dtype) * Q.view(Q.real.dtype)
    total = products[0] if len(P) == 1 else products.sum(axis=0)
    return total[0::2] + total[1::2]


def rounding_unit(problem: LowRankProgram, k: int) -> float:
    """Return what a residual of a factor of k rows errs by, relatively: see `rounding_bound`."""
    terms = 4 * problem.F.raw.length + 2 * k + 8
    return float(terms * EPS + 4.0 * problem.F.rounding)


def rounding_bound(problem: LowRankProgram, Y: Matrix, part: slice = slice(None)) -> Vector:
    """Bound the rounding error of every computed residual, or of part of them.

    Notes
    -----
    An inner product of length n, of a sparse row as many as it has entries, errs by at most
    ``gamma_n ||u|| ||x||`` [Higham 2002, 3.5], complex arithmetic at most doubles the length, and
    squares and sums add k + 3 operations; rows have unit norm to within rounding, so
    ``|error_i| <= gamma (||X||_F^2 + |b_i|)`` with ``gamma = gamma_{4n + 2k + 8}``, and the kind of
    probes adds its own.
    What underflows is less than the smallest normal number in all. Sums of rows round by as much
    as their parts together, and by the sum.
    """
    unit = rounding_unit(problem, len(Y))
    size = scalar(np.vdot(Y, Y).real)
    bound: Vector = np.abs(problem.b[part])
    if not problem.F.rank_one:
        unit += 2 * problem.F.sum_terms(8) * EPS
        size = size * problem.F.masses[part]
    bound *= unit
    bound += size * unit + TINY
    return bound


def rounding_share(problem: LowRankProgram, Y: Matrix) -> float:
    """Return the largest rounding bound as a part of its tolerance: 1 leaves no room."""
    share = rounding_bound(problem, Y) / problem.delta
    if problem.bounds is not None and problem.bounds.equal is not None:
        share = share[~problem.bounds.equal]
    return float(np.max(share, initial=0.0))


def within_rounding(problem: LowRankProgram, point: FactorPoint, goal: float) -> bool:
    """Whether every residual is within ``goal`` tolerances up to its rounding bound."""
    bound = rounding_bound(problem, point.Y)
    if problem.bounds is not None:
        return bool(np.all(problem.bounds.ratios(point.z, -bound) <= goal))
    return bool(np.all(np.abs(point.z) <= goal * problem.delta + bound))


def evaluate(problem: LowRankProgram, Y: Matrix, theta: float) -> FactorPoint:
    """Evaluate residual, loss and gradient at a factor in one pass over U.

    Parameters
    ----------
    problem : LowRankProgram
    Y : (k, n) array
    theta : float
        Residuals inside ``theta * delta`` cost nothing; 0 gives least squares.
    """
    F, b, weight = problem.F, problem.b, problem.weight
    if not F.rank_one:
        return _evaluate_sums(problem, F, Y, theta)
    z, signs = problem.empty(F.m, np.float64), problem.signs_of(len(Y))
    whole = problem.is_whole(theta)
    excess = z if whole else problem.empty(F.m, np.float64)
    values: list[Any] = []

    def weigh(rows: slice, p: Matrix) -> Matrix:
        np.subtract(inner(p, p, signs), b[rows], out=z[rows])
        if not whole:
            excess[rows] = problem.excess(z[rows], theta, rows)
        pull = weight[rows] * excess[rows]
        values.append(np.dot(pull, excess[rows]))  # a device is not waited for in between
        weighed: Matrix = p * pull
        if signs is not None:
            weighed *= signs[:, None]
        return weighed

    P, gradient = F.through(Y, weigh)
    gradient = 2.0 * gradient  # which another namespace may have given to be read only
    *parts, ratio = numbers(*values, _worst(problem, Y, z))
    return FactorPoint(Y, P, z, excess, 0.5 * math.fsum(parts), gradient, ratio)


def _evaluate_sums(problem: LowRankProgram, F: Sensing, Y: Matrix, theta: float) -> FactorPoint:
    """Evaluate where readings are sums of rows: all rows are seen before any is weighed."""
    P = F.raw.images(Y)
    signs = problem.signs_of(len(Y))
    z: Vector = F.mixed(inner(P, P, signs)) - problem.b
    excess = problem.excess(z, theta)
    pulled = problem.weight * excess
    gradient = 2.0 * F.raw.combine((P * F.unmixed(pulled)).T).T
    if signs is not None:
        gradient = gradient * signs[:, None]
    value = 0.5 * float(np.dot(pulled, excess))
    return FactorPoint(Y, P, z, excess, value, gradient, float(_worst(problem, Y, z)))


def _worst(problem: LowRankProgram, Y: Matrix, z: Vector) -> Any:
    """Return the largest ratio, computed in parts of the rows that stay in cache."""
    size = PART_ROWS if isinstance(z, np.ndarray) else len(z)
    parts = (slice(first, first + size) for first in range(0, len(z), size))
    ratios = (problem.ratios(z[part], rounding_bound(problem, Y, part), part) for part in parts)
    largest = [scalar(each.max()) for each in ratios]
    return largest[0] if len(largest) == 1 else max(largest)


def project(F: Sensing, D: Matrix) -> Matrix:
    """Return ``u_i* D^T`` for every row i, (k, m), for rows D (k, n)."""
    return F.raw.images(D)


def back_project(F: Sensing, C: Matrix) -> Matrix:
    """Return ``sum_i C[k, i] u_i``, (k, n): the adjoint of `project`."""
    return F.raw.combine(C.T).T


def weighted_rows_product(F: Sensing, scale: npt.NDArray[Any], V: Matrix) -> Matrix:
    """Return ``F*(scale) V^T`` transposed, for rows V (k, n), in one pass over U."""
    scale = F.unmixed(scale)
    return F.raw.through(V, lambda rows, p: p * scale[rows])[1]


# A length below this is none: the step would be lost in rounding.
MIN_LENGTH = 1e-8
# Coefficients, in units of the last, beyond which the line is a parabola to rounding.
MAX_CUBIC_COEFFICIENT = 1e50
# How often the rows beyond their tolerances are looked up again.
MAX_LOOKUPS = 4


def best_length(
    problem: LowRankProgram,
    point: FactorPoint,
    z1: Vector,
    z2: Vector,
    along: float,
    bend: float,
    theta: float,
) -> float:
    """Return the t that minimises the loss along a line, 0 when none descends.

    Parameters
    ----------
    problem : LowRankProgram
    point : FactorPoint
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
        return quartic_minimum(along, squared + 2.0 * bent + bend, crossed, fourth)

    def lost(t: float) -> Any:
        e = problem.excess(z + t * (z1 + t * z2), theta)
        return np.dot(weight * e, e)

    pull, least = numbers(np.dot(weight * point.excess, z1), lost(0.0))
    # The penalty's share of the slope; a penalty without curvature along the step has none, and
    # the difference would be rounding, which far from all bends leads to a step that overflows.
    pressed, start = along - pull if bend > 0.0 else 0.0, 0.5 * least
    t = 0.0
    for _ in range(MAX_LOOKUPS):
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
        t = quartic_minimum(slope, squared + 2.0 * bent + bend, crossed, fourth)
    while t > MIN_LENGTH and not 0.5 * float(lost(t)) + t * pressed + 0.5 * t * t * bend < start:
        t *= 0.5
    return t if t > MIN_LENGTH else 0.0


def quartic_minimum(slope: float, curvature: float, cubic: float, quartic: float) -> float:
    """Return the t > 0 that minimises ``slope t + curvature t^2/2 + cubic t^3 + quartic t^4/2``.

    Parameters
    ----------
    slope : float
        Negative.
    curvature, cubic : float
    quartic : float
        Not negative.

    Returns
    -------
    float
        0 where none, or only one that is lost in rounding, descends.
    """
    c1, c2, c3, c4 = slope, curvature, 3.0 * cubic, 2.0 * quartic
    if not c4 > 0.0:
        t = -c1 / c2 if c2 > 0.0 else 0.0
        return t if t > MIN_LENGTH and math.isfinite(t) else 0.0
    # In units of s the cubic is x^3 + a x^2 + b x - 1.
    s = (-c1 / c4) ** (1.0 / 3.0)
    if not s > 0.0:  # the slope is negligible next to the quartic
        return 0.0
    a, b = c3 / c4 / s, c2 / c4 / s / s
    if not abs(a) + abs(b) < MAX_CUBIC_COEFFICIENT:
        return quartic_minimum(c1, c2, 0.0, 0.0)
    # Where cancellation has spoilt a root, or a pair is complex, its value is the larger.
    found = np.linalg.eigvals([[-a, -b, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).real.tolist()
    roots = [x for x in (_polished(x, a, b) for x in found) if x > 0.0 and math.isfinite(x)]
    if not roots:
        return 0.0

    def value(x: float) -> float:
        return x * (-1.0 + x * (b / 2.0 + x * (a / 3.0 + x / 4.0)))

    best = min(roots, key=value)
    return best * s if value(best) < 0.0 and best * s > MIN_LENGTH else 0.0


def _polished(x: float, a: float, b: float) -> float:
    """Two Newton steps on a root that cancellation may have spoilt."""
    for _ in range(2):
        slope = b + x * (2.0 * a + 3.0 * x)
        if slope == 0.0:
            break
        x -= (-1.0 + x * (b + x * (a + x))) / slope
    return x
