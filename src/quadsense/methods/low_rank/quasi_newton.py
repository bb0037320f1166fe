"""One limited-memory quasi-Newton step on the factor, for problems too large to factor.

Three things make it cheap.  The memory acts on top of the Hessian expected of isotropic
rows, inverted in closed form, which also makes the number of steps independent of the
condition number of A (the scaled steps of [Tong, Ma, Chi 2021]).  Along a line the
residuals are quadratics of the length t, so the best t comes from the coefficients,
without a pass (see `line`).  And the products run in single precision: only changes are
computed so, and ``P`` is renewed in double precision before their error could matter, as
in iterative refinement.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from quadsense.core.lbfgs import Memory, direction, dot, remember
from quadsense.device import chosen, inverse, scalar, waits
from quadsense.methods.low_rank.line import best_length
from quadsense.methods.low_rank.moves import moved, narrowed, step_length
from quadsense.methods.low_rank.passes import (
    Point,
    back_project,
    conjugate,
    evaluate,
    inner,
    project,
)
from quadsense.methods.low_rank.program import Matrix, Program, Vector

# Lengths are exact, so that on a quadratic two pairs make conjugate gradients; more is for bends.
_PAIRS = 3
# Renew P once the bound on its error could change the residuals by this share.
_DRIFT = 0.2
# Least eigenvalue of the expected Hessian, as a share of the mean one.
_SCALE_FLOOR = 1e-3


def quasi_newton_step(
    problem: Program, point: Point, penalty: Vector | None, theta: float, memory: Memory
) -> tuple[Point, Memory, int]:
    """Move to the best point along the quasi-Newton direction.

    Parameters
    ----------
    problem : Program
    point : Point
    penalty : (k,) float64, optional
        Weight of ``1/2 |Y_k|^2`` for each row of Y.
    theta : float
        Residuals inside ``theta * delta`` cost nothing.
    memory : Memory
        Of (k, n) arrays.

    Returns
    -------
    point : Point
        The given one, unchanged, when no step along the direction descends.
    memory : Memory
        Emptied in that case.
    passes : int
    """
    F = problem.F if problem.low is None else problem.low
    kind = np.dtype(F.dtype)
    slope = _slope(point, penalty)
    D = direction(memory, slope, lambda q: _scaled_solve(problem, point, penalty, q))
    along, size = (np.vdot(D, each).real for each in (slope, D))
    single = problem.low is not None and problem.is_whole(theta) and F.rank_one
    double = point.z.dtype == np.float64
    if single and double and 3.0 * problem.blur <= _DRIFT * point.ratio < math.inf:
        point = narrowed(point)
    Q = project(F, D.astype(kind, copy=False))
    length, squared = step_length(problem, point, Q, along, _bend(D, penalty), theta, size)
    if length == 0.0:
        return point, (), 1
    move = length * D
    Y = point.Y + move
    drift = point.drift + 2.0 * F.roundoff * length * math.sqrt(squared)
    found = moved(problem, point, Q, length, theta)

    def maintained(value: float) -> Point:
        gradient = back_project(F, found.pulled).astype(Y.dtype, copy=False)
        gradient *= 2.0
        return Point(Y, found.P, found.z, found.excess, value, gradient, np.inf, drift)

    ahead: Point | None = None
    curvature: Any = np.nan
    if waits(found.z):  # before it is known to serve, for that is waited for
        ahead = maintained(np.nan)
        curvature = np.vdot(move, _slope(ahead, penalty) - slope).real
    value, worst, curvature = found.read(curvature)
    error = 2.0 * drift * (problem.steepest + math.sqrt(worst * problem.sharpest))
    if found.z.dtype == np.float32:
        error += problem.blur
    if worst <= 1.0 or error > _DRIFT * worst:
        there, passes = evaluate(problem, Y, theta), 2
    else:
        there, passes = maintained(value) if ahead is None else replace(ahead, value=value), 1
    known = None if ahead is None or passes == 2 else (curvature, 0.0)
    change = _slope(there, penalty) - slope
    return there, remember(memory, move, change, _PAIRS, known=known), passes


def line_minimum(
    problem: Program, point: Point, D: Matrix, penalty: Vector | None, theta: float
) -> float:
    """Return the length t of the best step ``t D``, 0 when none descends."""
    along = dot(D, _slope(point, penalty))
    if not along < 0.0:
        return 0.0
    Q = project(problem.F, D)
    mixed, signs = problem.F.mixed, problem.signs_of(len(point.Y))
    z1, z2 = 2.0 * mixed(inner(point.P, Q, signs)), mixed(inner(Q, Q, signs))
    return best_length(problem, point, z1, z2, along, _bend(D, penalty), theta)


def _slope(point: Point, penalty: Vector | None) -> Matrix:
    return point.gradient if penalty is None else point.gradient + penalty[:, None] * point.Y


def _bend(D: Matrix, penalty: Vector | None) -> float:
    """Return the second derivative of the penalty along D."""
    return 0.0 if penalty is None else float(np.dot(penalty, np.sum(np.abs(D) ** 2, axis=1)))


def _scaled_solve(problem: Program, point: Point, penalty: Vector | None, q: Matrix) -> Matrix:
    """Apply the inverse of the Hessian expected of rows that see some entries more than others.

    Rows are isotropic up to a scale c_j of every entry: so they are in terms of ``c_j x_j``.
    """
    scale = problem.sight
    if scale is None:
        return _expected_solve(problem, point, point.Y, penalty, q)
    D: Matrix = _expected_solve(problem, point, point.Y * scale, penalty, q / scale)
    D /= scale
    return D


def _expected_solve(
    problem: Program, point: Point, Y: Matrix, penalty: Vector | None, q: Matrix
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
    diagonal += _SCALE_FLOOR * diagonal.real.mean()
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
