"""One damped Gauss-Newton step on the factor, by factoring the normal equations.

For small problems: it converges quadratically and, from a poor start, goes farther than
gradient steps do.  Where forming ``J^T J`` costs too much, see `quasi_newton`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from quadsense.methods.factor.passes import Matrix, Point, Program, Vector


def principal_axes(Y: Matrix) -> Matrix:
    """Return the unitary (k, k) that makes the rows of ``axes @ Y`` orthogonal, largest first."""
    _, vectors = np.linalg.eigh(Y.conj() @ Y.T)
    axes: Matrix = np.ascontiguousarray(vectors[:, ::-1].T)
    return axes


def gauss_newton_step(
    problem: Program, point: Point, penalty: Vector, damping: float, floor: float
) -> Matrix:
    """Solve ``(J^T W J + shift) D = -slope`` in principal axes.

    Parameters
    ----------
    problem : Program
    point : Point
        Its rows of Y orthogonal: the diagonal of ``J^T J`` is then nearly constant along
        a row, ``scale_k``, proportional to an eigenvalue of A.
    penalty : (k,) float64
        Weight of ``1/2 |Y_k|^2`` for each row of Y.
    damping : float
        ``shift_k = damping * max(scale_k, floor * mean(scale)) + penalty_k``.
    floor : float

    Returns
    -------
    (k, n) array
        Zero when the shift drowned in rounding, for the caller to damp more.
    """
    U, P, Y = problem.U, point.P, point.Y
    rows = np.flatnonzero(point.excess)
    root = 2.0 * np.sqrt(problem.weight[rows])
    weighted = P[rows] * root[:, None]
    # Re and Im side by side: (J D)_i = 2 Re sum conj(p_k u_j) D_kj.
    J = (weighted[:, :, None] * U[rows][:, None, :]).reshape(len(rows), -1).view(np.float64)
    H = J.T @ J
    scales: npt.NDArray[np.float64] = np.sum(np.abs(weighted) ** 2, axis=0) / Y.shape[1]
    shift = damping * np.maximum(scales, floor * float(np.mean(scales))) + penalty
    H.flat[:: len(H) + 1] += np.repeat(shift, len(H) // len(Y))
    slope = np.ascontiguousarray(point.gradient + penalty[:, None] * Y)
    right = slope.reshape(-1).view(np.float64)
    try:
        D = -cho_solve(cho_factor(H, check_finite=False), right, check_finite=False)
    except LinAlgError:
        return np.zeros_like(Y)
    step: Matrix = D.view(Y.dtype).reshape(Y.shape)
    return step
