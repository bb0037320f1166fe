"""One damped Gauss-Newton step on the factor, by factoring the normal equations.

For small problems: it converges quadratically and, from a poor start, goes farther than
gradient steps do.  Where forming ``J^T J`` costs too much, see `quasi_newton`.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.lapack import dposv, sposv

from quadsense.measurements.mixed import Mixed
from quadsense.methods.factor.passes import Point, conjugate
from quadsense.methods.factor.program import Matrix, Program, Vector


def principal_axes(Y: Matrix) -> Matrix:
    """Return the unitary (k, k) that makes the rows of ``axes @ Y`` orthogonal, largest first."""
    if len(Y) == 1:
        return np.ones((1, 1))
    if len(Y) == 2 and not np.iscomplexobj(Y):
        (a, c), (_, b) = (Y @ Y.T).tolist()
        angle = 0.5 * math.atan2(2.0 * c, a - b)  # the Jacobi rotation
        cos, sin = math.cos(angle), math.sin(angle)
        return np.array([[cos, sin], [-sin, cos]])
    _, vectors = np.linalg.eigh(conjugate(Y) @ Y.T)
    axes: Matrix = np.ascontiguousarray(vectors[:, ::-1].T)
    return axes


def gauss_newton_step(
    problem: Program,
    point: Point,
    penalty: Vector | None,
    damping: float,
    floor: float,
    single: bool = False,
) -> Matrix:
    """Solve ``(J^T W J + shift) D = -slope`` in principal axes.

    Parameters
    ----------
    problem : Program
    point : Point
        Its rows of Y orthogonal: the diagonal of ``J^T J`` is then nearly constant along
        a row, ``scale_k``, proportional to an eigenvalue of A.
    penalty : (k,) float64, optional
        Weight of ``1/2 |Y_k|^2`` for each row of Y.
    damping : float
        ``shift_k = damping * max(scale_k, floor * mean(scale)) + penalty_k``.
    floor : float
    single : bool
        Solve in single precision, from ``problem.low``: half the time, and as good while
        the damping is far above the rounding.

    Returns
    -------
    (k, n) array
        Zero when the shift drowned in rounding, for the caller to damp more, and where no row
        asks for a step.
    """
    sums: Mixed | None = None
    P, Y, root = point.P, point.Y, problem.root
    U = problem.rows if not single or problem.low is None else problem.low_rows
    active = point.excess != 0.0
    if isinstance(problem.F, Mixed):
        sums = problem.F if active.all() else problem.F.only(np.flatnonzero(active))
        root = root[active]
    elif not active.all():
        U, P, root = U[active], np.ascontiguousarray(P[:, active]), root[active]
    if not root.size:
        return np.zeros_like(Y)
    weighted = P if sums is not None else P * root
    # Re and Im side by side: (J D)_i = 2 Re sum conj(p_k u_j) D_kj.
    J = _products(np.ascontiguousarray(weighted.T, dtype=U.dtype), U)
    if sums is not None:
        J = root[:, None] * sums.mixed(J)
    H = J.T @ J
    if sums is None:
        flat = weighted.view(np.float64)
        scales = np.einsum("ki,ki->k", flat, flat) / Y.shape[1]
    else:
        scales = H.diagonal().reshape(len(Y), -1).sum(axis=1) / Y.shape[1]
    shift = damping * np.maximum(scales, floor * float(scales.mean()))
    slope = point.gradient
    if penalty is not None:
        shift += penalty
        slope = slope + penalty[:, None] * Y
    H.reshape(-1)[:: len(H) + 1] += np.repeat(shift, len(H) // len(Y))
    right = np.ascontiguousarray(slope).reshape(-1).view(np.float64)
    # H is symmetric, so its transpose is it in the order that LAPACK reads.
    _, D, info = (sposv if H.dtype == np.float32 else dposv)(H.T, right, overwrite_a=True)
    if info != 0:
        return np.zeros_like(Y)
    step: Matrix = np.negative(D, dtype=np.float64).view(Y.dtype).reshape(Y.shape)
    return step


def _products(weighted: Matrix, U: Matrix) -> Matrix:
    """Return all products of the entries of two rows, (m, k) and (m, n), as real (m, k n)."""
    # Written in the order in which it is read: U may come in Fortran order.
    products = np.empty((*weighted.shape, U.shape[1]), dtype=U.dtype)
    np.multiply(weighted[:, :, None], U[:, None, :], out=products)
    flat: Matrix = products.reshape(len(U), -1).view(U.real.dtype)
    return flat
