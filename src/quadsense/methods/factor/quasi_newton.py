"""One limited-memory quasi-Newton step on the factor, for problems too large to factor.

Three things make it cheap.  The memory acts on top of the Hessian expected of isotropic
rows, inverted in closed form, which also makes the number of steps independent of the
condition number of A (the scaled steps of [Tong, Ma, Chi 2021]).  Along a line the
residuals are quadratics of the length t, so the best t comes from the coefficients,
without a pass.  And the products run in single precision: only changes are computed so,
and ``P`` is renewed in double precision before their error could matter, as in iterative
refinement.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from quadsense.methods.factor.passes import (
    Matrix,
    Point,
    Program,
    Vector,
    back_project,
    evaluate,
    excess_of,
    inner,
    project,
)

Memory = tuple[tuple[Matrix, Matrix], ...]

_PAIRS = 10
# Renew P once the bound on its error could change the residuals by this share.
_DRIFT = 0.1
# Least eigenvalue of the expected Hessian, as a share of the mean one.
_SCALE_FLOOR = 1e-3


def quasi_newton_step(
    problem: Program, point: Point, penalty: Vector, theta: float, memory: Memory
) -> tuple[Point, Memory, int]:
    """Move to the best point along the quasi-Newton direction.

    Parameters
    ----------
    problem : Program
    point : Point
    penalty : (k,) float64
        Weight of ``1/2 |Y_k|^2`` for each row of Y.
    theta : float
        Residuals inside ``theta * delta`` cost nothing.
    memory : pairs of (k, n) arrays
        Recent moves and the change of slope along each, oldest first.

    Returns
    -------
    point : Point
        The given one, unchanged, when no step along the direction descends.
    memory : pairs of (k, n) arrays
        Emptied in that case.
    passes : int
    """
    U = problem.U if problem.low is None else problem.low
    slope = point.gradient + penalty[:, None] * point.Y
    D = _direction(problem, point, slope, penalty, memory)
    if not _dot(D, slope) < 0.0:
        return point, (), 0
    Q = project(U, D.astype(U.dtype)).astype(point.P.dtype)
    length = _best_length(problem, point, D, Q, penalty, theta)
    if length == 0.0:
        return point, (), 1
    Y = point.Y + length * D
    drift = point.drift + float(np.finfo(U.dtype).eps) * length * float(np.linalg.norm(D))
    P = point.P + length * Q
    z = inner(P, P) - problem.b
    worst = float(np.max(np.abs(z) / problem.delta))
    error = 2.0 * drift * float(np.sqrt(np.max(inner(P, P) / problem.delta**2)))
    if worst <= 1.0 or error > _DRIFT * worst:
        moved, passes = evaluate(problem, Y, theta), 2
    else:
        excess = excess_of(z, theta * problem.delta)
        pull = (2.0 * problem.weight * excess)[:, None] * P
        gradient = back_project(U, pull.astype(U.dtype)).astype(Y.dtype)
        value = 0.5 * float(np.dot(problem.weight * excess, excess))
        moved, passes = Point(Y, P, z, excess, value, gradient, np.inf, drift), 1
    change = moved.gradient + penalty[:, None] * Y - slope
    move = length * D
    if _dot(move, change) > 0.0:
        memory = (*memory[-_PAIRS + 1 :], (move, change))
    return moved, memory, passes


def _dot(V: Matrix, W: Matrix) -> float:
    return float(np.vdot(V, W).real)


def _direction(
    problem: Program, point: Point, slope: Matrix, penalty: Vector, memory: Memory
) -> Matrix:
    """Two-loop recursion [Nocedal, Wright, Alg. 7.4] around the expected Hessian."""
    q = slope.copy()
    coefficients: list[float] = []
    for move, change in reversed(memory):
        coefficients.append(_dot(move, q) / _dot(move, change))
        q -= coefficients[-1] * change
    solve = _expected_inverse(problem, point, penalty)
    D = solve(q)
    if memory:
        move, change = memory[-1]
        D *= _dot(move, change) / _dot(change, solve(change))
    for (move, change), coefficient in zip(memory, reversed(coefficients), strict=True):
        D += (coefficient - _dot(change, D) / _dot(move, change)) * move
    return np.negative(D)


def _expected_inverse(
    problem: Program, point: Point, penalty: Vector
) -> Callable[[Matrix], Matrix]:
    """Return a function applying the inverse of the Hessian expected of isotropic rows.

    Notes
    -----
    With ``beta = 2`` (real) or 1 (complex), ``E F*F(S) = c (beta S + tr(S) I)``, whence the
    Gauss-Newton matrix maps D to a multiple of ``D Sigma + X D* X + tau Re tr(X* D) X``,
    ``Sigma = X* X``, ``tau = 2/beta``.  Off the span of X that is ``D Sigma``; on it,
    ``D = X M`` with M Hermitian, ``X (2 M Sigma + tau tr(Sigma M) I)``, which the trace
    solves.  A penalty leaves only the first part simple, so that alone is then used.
    """
    Y = point.Y
    n = Y.shape[1]
    complex_rows = np.iscomplexobj(Y)
    beta, tau = (1.0, 2.0) if complex_rows else (2.0, 1.0)
    active = float(np.sum(problem.weight * (point.excess != 0.0)))
    unit = 2.0 * beta * active / (n * (n + beta))
    gram = Y @ Y.conj().T
    k = len(gram)
    floor = _SCALE_FLOOR * float(np.trace(gram).real) / k
    # Rows of Y transform by the transpose of what acts on the columns of X.
    scale = gram.conj() + floor * np.eye(k)
    inverse = np.linalg.inv(unit * scale + np.diag(penalty))
    if penalty.any():

        def scaled(q: Matrix) -> Matrix:
            result: Matrix = inverse.conj() @ q
            return result

        return scaled
    bare = np.linalg.inv(scale)

    def solve(q: Matrix) -> Matrix:
        N = bare @ (Y.conj() @ q.T)  # q^T = X N + rest
        rest = q - N.T @ Y
        M = N @ bare
        M = (M + M.conj().T) / 2.0
        t = float(np.trace(scale @ M).real) / (2.0 + tau * k)
        M = (M - tau * t * bare) / 2.0
        result: Matrix = inverse.conj() @ rest + (M.T @ Y) / unit
        return result

    return solve


def _best_length(
    problem: Program, point: Point, D: Matrix, Q: Matrix, penalty: Vector, theta: float
) -> float:
    """Return the t that minimises the loss along ``Y + t D``, 0 when none descends.

    Notes
    -----
    ``z(t) = z + t z1 + t^2 z2``; while the set of rows beyond ``theta delta`` stays as it
    is, the loss is a quartic and its minimum a root of a cubic.  With theta > 0 the set
    is brought up to date and the cubic solved again, a few times.
    """
    z1, z2 = 2.0 * inner(point.P, Q), inner(Q, Q)
    weight, allowed = problem.weight, theta * problem.delta
    penalty_slope = float(np.dot(penalty, inner(point.Y, D)))
    penalty_bend = float(np.dot(penalty, inner(D, D)))

    def loss(t: float) -> float:
        e = excess_of(point.z + t * (z1 + t * z2), allowed)
        quadratic = t * penalty_slope + 0.5 * t * t * penalty_bend
        return 0.5 * float(np.dot(weight * e, e)) + quadratic

    t = 0.0
    for _ in range(1 if theta == 0.0 else 4):
        z = point.z + t * (z1 + t * z2)
        e = excess_of(z, allowed)
        w = weight * (e != 0.0)
        base = point.z - (z - e)
        cubic = [
            2.0 * float(np.dot(w * z2, z2)),
            3.0 * float(np.dot(w * z1, z2)),
            float(np.dot(w * z1, z1)) + 2.0 * float(np.dot(w * base, z2)) + penalty_bend,
            float(np.dot(w * base, z1)) + penalty_slope,
        ]
        roots = np.roots(cubic)
        lengths = [float(x.real) for x in roots if x.real > 0.0 and abs(x.imag) < 1e-8 * abs(x)]
        if not lengths:
            break
        t = min(lengths, key=loss)
    start = loss(0.0)
    while t > 1e-8 and not loss(t) < start:
        t /= 4.0
    return t if t > 1e-8 else 0.0
