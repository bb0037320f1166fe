"""One limited-memory quasi-Newton step on the factor, for problems too large to factor.

Three things make it cheap.  The memory acts on top of the Hessian expected of isotropic
rows, inverted in closed form, which also makes the number of steps independent of the
condition number of A (the scaled steps of [Tong, Ma, Chi 2021]).  Along a line the
residuals are quadratics of the length t, so the best t comes from the coefficients,
without a pass (see `passes`).  And the products run in single precision: only changes are
computed so, and ``P`` is renewed in double precision before their error could matter, as
in iterative refinement.

All that is as long as the data is read and written once, in parts that stay in cache: the length of
a step, and what is there, come from the images of its direction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from quadsense.core.lbfgs import Memory, direction, dot, remember
from quadsense.device import chosen, inverse, numbers, scalar, waits
from quadsense.methods.low_rank.passes import (
    EPS,
    FactorPoint,
    back_project,
    best_length,
    conjugate,
    evaluate,
    inner,
    project,
    quartic_minimum,
)
from quadsense.methods.low_rank.program import LowRankProgram, Matrix, Vector

# Entries of images that are worked on together, in cache; rows of a part at least.
PART_ENTRIES, MIN_PART_ROWS = 2**16, 2**10


def step_length(
    problem: LowRankProgram,
    point: FactorPoint,
    Q: Matrix,
    along: Any,
    bend: float,
    theta: float,
    size: Any,
) -> tuple[float, float]:
    """Return the best length of a step with images Q, 0 where none descends, and its direction's
    size, as given: see `best_length`.

    The slope `along` it and the size may be on a device, which is waited for once.
    """
    F, k = problem.F, len(Q)
    signs, whole = problem.signs_of(k), problem.is_whole(theta)
    z1, z2 = (problem.empty(0 if whole else F.m, np.float64) for _ in range(2))
    weight = problem.readings(point.z.dtype).weight
    told: list[Any] = []
    for part, seen in _parts(problem, k):
        p, q = point.P[:, seen], Q[:, seen].astype(point.P.dtype, copy=False)
        first, second = F.mixed(inner(p, q, signs)), F.mixed(inner(q, q, signs))
        first *= 2.0
        if not whole:
            z1[part], z2[part] = first, second
            continue
        weighed = weight[part] * first
        told += np.dot(weighed, first), np.dot(weighed, second)
        np.multiply(weight[part], second, out=weighed)
        told += np.dot(weighed, point.z[part]), np.dot(weighed, second)
    along, size, *sums = numbers(along, size, *told)
    if not along < 0.0:
        return 0.0, size
    if not whole:
        return best_length(problem, point, z1, z2, along, bend, theta), size
    quadratic, cubic, quartic = bend, 0.0, 0.0
    for squared, crossed, bent, fourth in zip(*(sums[k::4] for k in range(4)), strict=True):
        quadratic += squared
        cubic += crossed
        quadratic += 2.0 * bent
        quartic += fourth
    return quartic_minimum(along, quadratic, 3.0 * cubic, 2.0 * quartic), size


class Moved(NamedTuple):
    """Images and residuals after a step, and what half the gradient is the sum of.

    Of every part of the rows `told` has twice the loss and the largest ratio, where they are.
    """

    P: Matrix
    z: Vector
    excess: Vector
    told: list[Any]
    pulled: Matrix

    def read(self, *others: Any) -> tuple[float, ...]:
        """The loss, the largest ratio, and other numbers: a device is waited for once."""
        found = numbers(*self.told, *others)
        value, count = 0.0, len(self.told)
        for lost in found[:count:2]:
            value += lost
        return 0.5 * value, max(0.0, *found[1:count:2]), *found[count:]


def moved(
    problem: LowRankProgram, point: FactorPoint, Q: Matrix, length: float, theta: float
) -> Moved:
    """Return what a step of that length leads to, Q the images of its direction."""
    F, k, real = problem.F, len(Q), point.z.dtype
    signs, whole = problem.signs_of(k), problem.is_whole(theta)
    b, weight, inverse = problem.readings(real)
    empty = problem.empty
    P, pulled, z = empty(point.P.shape, point.P.dtype), empty(Q.shape, Q.dtype), empty(F.m, real)
    excess = z if whole else empty(F.m, real)
    narrow = Q.real.dtype
    told: list[Any] = []
    for part, seen in _parts(problem, k):
        p = np.multiply(Q[:, seen], real.type(length), out=P[:, seen])
        p += point.P[:, seen]
        np.subtract(F.mixed(inner(p, p, signs)), b[part], out=z[part])
        if not whole:
            excess[part] = problem.excess(z[part], theta, part)
        pull = weight[part] * excess[part]
        each = F.unmixed(pull).astype(narrow, copy=False)
        each = each if signs is None else each * signs[:, None].astype(narrow)
        np.multiply(p, each, out=pulled[:, seen], dtype=Q.dtype)
        told += np.dot(pull, excess[part]), _worst(problem, z[part], inverse[part], part)
    return Moved(P, z, excess, told, pulled)


def _within(rows: slice, count: int) -> Iterator[slice]:
    """Parts of some rows."""
    size = max(MIN_PART_ROWS, PART_ENTRIES // count)
    for first in range(rows.start, rows.stop, size):
        yield slice(first, min(first + size, rows.stop))


def narrowed(point: FactorPoint) -> FactorPoint:
    """Return the point with its images and residuals in single precision."""
    P = point.P.astype(np.complex64 if np.iscomplexobj(point.P) else np.float32)
    z: Any = point.z.astype(np.float32)
    return FactorPoint(point.Y, P, z, z, point.value, point.gradient, point.ratio, point.drift)


def _parts(problem: LowRankProgram, count: int) -> list[tuple[slice, slice]]:
    """Parts of the readings, and of the rows: all at once where readings are sums of rows."""
    F = problem.F
    if not F.rank_one or not isinstance(problem.b, np.ndarray):  # or on a device
        return [(slice(None), slice(None))]
    parts = list(_within(slice(0, F.m), count))
    return list(zip(parts, parts, strict=True))


def _worst(problem: LowRankProgram, z: Vector, inverse: Vector, part: slice) -> Any:
    """Return the largest ratio of maintained residuals, where it is."""
    if problem.bounds is not None:
        return problem.bounds.ratios(z, np.full_like(z, EPS), part).max()
    ratios = np.abs(z)
    ratios *= inverse
    return ratios.max()


# Lengths are exact, so that on a quadratic two pairs make conjugate gradients; more is for bends.
MAX_PAIRS = 3
# Renew P once the bound on its error could change the residuals by this share.
MAX_DRIFT = 0.2
# Least eigenvalue of the expected Hessian, as a share of the mean one.
MIN_SCALE_SHARE = 1e-3


def quasi_newton_step(
    problem: LowRankProgram,
    point: FactorPoint,
    penalty: Vector | None,
    theta: float,
    memory: Memory,
) -> tuple[FactorPoint, Memory, int]:
    """Move to the best point along the quasi-Newton direction.

    Parameters
    ----------
    problem : LowRankProgram
    point : FactorPoint
    penalty : (k,) float64, optional
        Weight of ``1/2 |Y_k|^2`` for each row of Y.
    theta : float
        Residuals inside ``theta * delta`` cost nothing.
    memory : Memory
        Of (k, n) arrays.

    Returns
    -------
    point : FactorPoint
        The given one, unchanged, when no step along the direction descends.
    memory : Memory
        Emptied in that case.
    passes : int
    """
    F = problem.F if problem.low is None else problem.low
    kind = np.dtype(F.dtype)
    slope = _slope(point, penalty)
    D = direction(memory, slope, lambda q: _expected_solve(problem, point, penalty, q))
    along, size = (np.vdot(D, each).real for each in (slope, D))
    single = problem.low is not None and problem.is_whole(theta) and F.rank_one
    double = point.z.dtype == np.float64
    if single and double and 3.0 * problem.blur <= MAX_DRIFT * point.ratio < math.inf:
        point = narrowed(point)
    Q = project(F, D.astype(kind, copy=False))
    length, squared = step_length(problem, point, Q, along, _bend(D, penalty), theta, size)
    if length == 0.0:
        return point, (), 1
    move = length * D
    Y = point.Y + move
    drift = point.drift + 2.0 * F.roundoff * length * math.sqrt(squared)
    found = moved(problem, point, Q, length, theta)

    def maintained(value: float) -> FactorPoint:
        gradient = back_project(F, found.pulled).astype(Y.dtype, copy=False)
        gradient *= 2.0
        return FactorPoint(Y, found.P, found.z, found.excess, value, gradient, np.inf, drift)

    ahead: FactorPoint | None = None
    curvature: Any = np.nan
    if waits(found.z):  # before it is known to serve, for that is waited for
        ahead = maintained(np.nan)
        curvature = np.vdot(move, _slope(ahead, penalty) - slope).real
    value, worst, curvature = found.read(curvature)
    error = 2.0 * drift * (problem.steepest + math.sqrt(worst * problem.sharpest))
    if found.z.dtype == np.float32:
        error += problem.blur
    if worst <= 1.0 or error > MAX_DRIFT * worst:
        there, passes = evaluate(problem, Y, theta), 2
    else:
        there, passes = maintained(value) if ahead is None else replace(ahead, value=value), 1
    known = None if ahead is None or passes == 2 else (curvature, 0.0)
    change = _slope(there, penalty) - slope
    return there, remember(memory, move, change, MAX_PAIRS, known=known), passes


def line_minimum(
    problem: LowRankProgram, point: FactorPoint, D: Matrix, penalty: Vector | None, theta: float
) -> float:
    """Return the length t of the best step ``t D``, 0 when none descends."""
    along = dot(D, _slope(point, penalty))
    if not along < 0.0:
        return 0.0
    Q = project(problem.F, D)
    mixed, signs = problem.F.mixed, problem.signs_of(len(point.Y))
    z1, z2 = 2.0 * mixed(inner(point.P, Q, signs)), mixed(inner(Q, Q, signs))
    return best_length(problem, point, z1, z2, along, _bend(D, penalty), theta)


def _slope(point: FactorPoint, penalty: Vector | None) -> Matrix:
    return point.gradient if penalty is None else point.gradient + penalty[:, None] * point.Y


def _bend(D: Matrix, penalty: Vector | None) -> float:
    """Return the second derivative of the penalty along D."""
    return 0.0 if penalty is None else float(np.dot(penalty, np.sum(np.abs(D) ** 2, axis=1)))


def _expected_solve(
    problem: LowRankProgram, point: FactorPoint, penalty: Vector | None, q: Matrix
) -> Matrix:
    """Apply the inverse of the Hessian expected of isotropic rows.

    Notes
    -----
    With ``beta = 2`` (real) or 1 (complex), ``E F*F(S) = c (beta S + tr(S) I)``, whence the
    Gauss-Newton matrix maps D to a multiple of ``D Sigma + X D* X + tau Re tr(X* D) X``,
    ``Sigma = X* X``, ``tau = 2/beta``.  Off the span of X that is ``D Sigma``; on it,
    ``D = X M`` with M Hermitian, ``X (2 M Sigma + tau tr(Sigma M) I)``, which the trace
    solves.  A penalty, or signs, leave only the first part simple, so that alone is then used.

    Written out for ``q^T = X N + rest``, ``N = B T``, ``B = Sigma^-1``, ``T = X* q^T``: the
    part off the span is ``(q^T - X N) B`` and the other ``X M`` with
    ``2 M = H - tau tr(N) / (2 + tau k) B``, H the Hermitian part of ``N B``.
    """
    Y = point.Y
    k, n = Y.shape
    beta, tau = (1.0, 2.0) if np.iscomplexobj(Y) else (2.0, 1.0)
    active = problem.total
    if point.excess is not point.z:
        active = scalar(np.dot(problem.weight, point.excess != 0.0))
        active = chosen(active > 0.0, active, problem.total)  # rows may all be within bounds
    unit = 2.0 * beta * active / (n * (n + beta))
    Y_conj = conjugate(Y)
    sigma = Y_conj @ Y.T
    diagonal = sigma.reshape(-1)[:: k + 1]
    diagonal += MIN_SCALE_SHARE * diagonal.real.mean()
    signs = problem.signs_of(k)
    if penalty is not None or signs is not None:
        sigma *= unit
        if signs is not None:
            sigma *= signs[:, None] * signs
        if penalty is not None:
            diagonal += penalty
        scaled: Matrix = inverse(sigma).T @ q
        return scaled
    B = inverse(sigma)
    N = B @ (Y_conj @ q.T)
    NB = N @ B
    M = 0.25 * (NB + conjugate(NB).T) - NB
    M -= (0.5 * tau / (2.0 + tau * k) * np.trace(N).real) * B
    D: Matrix = B.T @ q
    D += M.T @ Y
    D *= 1.0 / unit
    return D
