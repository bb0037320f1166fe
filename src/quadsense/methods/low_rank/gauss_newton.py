"""Damped Gauss-Newton steps on the factor, by factoring the normal equations.

For small problems: it converges quadratically and, from a poor start, goes farther than
gradient steps do.  Where forming ``J^T J`` costs too much, see `quasi_newton`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.sparse.linalg import splu

from quadsense.methods.low_rank.passes import FactorPoint, conjugate
from quadsense.methods.low_rank.program import LowRankProgram, Matrix, Vector
from quadsense.system.watch import look

# Share of ``||X* X||_F`` below which ``||X S X*||_F`` counts as what cancellation left.
MAX_CANCELLED_SHARE = 0.3


def balanced(problem: LowRankProgram, Y: Matrix) -> Matrix:
    """Return the rows of the eigenvectors of ``A = Y^T S conj(Y)`` where its signs cancel.

    Notes
    -----
    ``X S X*`` stays as it is where ``x+`` and ``x-`` are turned by a hyperbolic angle, and nothing
    keeps a descent from drifting along: both grow without bound, and rounding, which goes by
    ``||X||_F^2``, with them. Of all factors that of the eigenvectors is the smallest:
    ``||X||_F^2`` is then the sum of the moduli of the eigenvalues. No sign is lost: ``X S X*`` has
    no more eigenvalues of a sign than S [Sylvester's law of inertia].
    """
    if problem.signs is None or min(problem.signs) == 0 or len(Y) != sum(problem.signs):
        return Y
    signs: Any = problem.signs_of(len(Y))
    plus, minus = problem.signs
    mass = float(np.vdot(Y, Y).real) or 1.0
    with np.errstate(under="ignore"):
        squares = np.abs((conjugate(Y) @ Y.T) / mass) ** 2
        if float(signs @ squares @ signs) >= MAX_CANCELLED_SHARE**2 * float(squares.sum()):
            return Y
        Q, R = np.linalg.qr(Y.T)
        values, vectors = np.linalg.eigh((R * signs) @ conjugate(R).T)
        index = np.concatenate([np.arange(plus + minus - 1, minus - 1, -1), np.arange(minus)])
        # A row of zeros would stay so: what rounding hides is left to it.
        sizes = np.maximum(signs * values[index], np.finfo(np.float64).eps * mass)
        X: Matrix = Q @ (vectors[:, index] * np.sqrt(sizes))
    return np.ascontiguousarray(X.T)


Indices = npt.NDArray[np.intp]

# Unknowns up to which the normal equations of sparse rows are solved as dense ones.
MAX_UNKNOWNS_AS_DENSE = 600
# Least scale of an unknown of its own, as a share of the largest.
MIN_UNKNOWN_SCALE = 1e-12
# Longest entry of a step, in those of the factor or of one that reads 1.
MAX_STEP_ENTRY = 1e3


def shortened(Y: Matrix, D: Matrix) -> Matrix:
    """Return a step cut where it leads far beyond the factor and all readings, which are at most 1.

    Where a factor reads next to nothing of a row, Newton's step to what the row should read grows
    as one over that: squares of what it leads to would overflow, and nothing is to be found there.
    One that is out of range itself is none.
    """
    longest = float(np.abs(D).max(initial=0.0))
    if longest <= MAX_STEP_ENTRY:
        return D
    if not np.isfinite(longest):
        return np.zeros_like(D)
    most = MAX_STEP_ENTRY * max(1.0, float(np.abs(Y).max(initial=0.0)))
    return D if longest <= most else D * (most / longest)


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


def turned(problem: LowRankProgram, Y: Matrix) -> Matrix:
    """Return Y in principal axes: those of the plus and those of the minus signs apart."""
    Y = balanced(problem, Y)
    return axes_of(problem, Y) @ Y


def axes_of(problem: LowRankProgram, Y: Matrix) -> Matrix:
    """Return the unitary matrix that turns Y to principal axes and keeps A."""
    signs = problem.signs_of(len(Y))
    if signs is None:
        return principal_axes(Y)
    axes: Matrix = np.zeros((len(Y), len(Y)), dtype=Y.dtype)
    for sign in (1.0, -1.0):
        index = np.flatnonzero(signs == sign)
        if index.size:
            axes[np.ix_(index, index)] = principal_axes(Y[index])
    return axes


def normal_equations(
    problem: LowRankProgram,
    point: FactorPoint,
    penalty: Vector | None,
    damping: float,
    floor: float,
) -> Callable[[Matrix], Matrix]:
    """Factor ``J^T W J + shift`` in principal axes.

    Parameters
    ----------
    problem : LowRankProgram
    point : FactorPoint
        Its rows of Y orthogonal: the diagonal of ``J^T J`` is then nearly constant along
        a row, ``scale_k``, proportional to an eigenvalue of A.
    penalty : (k,) float64, optional
        Weight of ``1/2 |Y_k|^2`` for each row of Y.
    damping : float
        ``shift_k = damping * max(scale_k, floor * mean(scale)) + penalty_k``. Where rows are
        sparse, or tolerances differ by much, every unknown has a scale of its own, that of its
        entry in the diagonal.
    floor : float

    Returns
    -------
    callable
        The step D, (k, n), with ``(J^T W J + shift) D = -slope`` of a slope (k, n). Zero when the
        shift drowned in rounding, for the caller to damp more, and where no row asks for a step.
    """
    Y = point.Y
    asking = np.count_nonzero(point.excess)
    if not asking:
        return np.zeros_like
    everything = asking == point.excess.size
    kept = problem.uneven and penalty is None and not everything
    index = None if everything or kept else np.flatnonzero(point.excess)
    J = jacobian(problem, point, index)
    if kept:
        # Rows that are met get the weight of the damping: otherwise a step would break them.
        J = _rows_times(np.sqrt(np.where(point.excess != 0.0, 1.0, min(damping, 1.0))), J)
    H = J.T @ J
    count = H.shape[0] // len(Y)
    diagonal = np.asarray(H.diagonal(), dtype=np.float64)
    if problem.uneven and penalty is None:
        shifts = damping * np.maximum(diagonal, MIN_UNKNOWN_SCALE * float(diagonal.max()))
    else:
        scales = diagonal.reshape(len(Y), -1).sum(axis=1) / Y.shape[1]
        least = floor * float(scales.sum()) / len(scales)
        shifts = np.repeat(damping * np.maximum(scales, least), count)
    if penalty is not None:
        shifts += np.repeat(penalty, count)
    solve = _factored(H, shifts)
    if solve is None:
        return np.zeros_like

    def step(slope: Matrix) -> Matrix:
        D = solve(np.ascontiguousarray(slope).reshape(-1).view(np.float64))
        return shortened(Y, np.negative(D, dtype=np.float64).view(Y.dtype).reshape(Y.shape))

    return step


def jacobian(problem: LowRankProgram, point: FactorPoint, index: Indices | None) -> Any:
    """Return the derivative of ``sqrt(weight) z`` by the entries of Y, Re and Im side by side.

    Parameters
    ----------
    problem : LowRankProgram
    point : FactorPoint
    index : (q,) int, optional
        The rows wanted; all by default.

    Returns
    -------
    (q, k n) array or sparse array
        ``(J D)_i = 2 sqrt(weight_i) Re sum s_k conj(p_k u_j) D_kj``.
    """
    P, root, F = point.P, problem.root, problem.F
    signs = problem.signs_of(len(point.Y))
    if signs is not None:
        P = P * signs[:, None]
    sparse = problem.shared.sparse
    U: Any = problem.rows if sparse is None else sparse
    root = root if index is None else root[index]
    if not F.rank_one:
        part = F if index is None else F.only(index)
        J = _products(np.ascontiguousarray(P.T, dtype=U.dtype), U)
        return _rows_times(
            root, sp.csr_array(part.weights) @ J if sp.issparse(J) else part.mixed(J)
        )
    if index is not None:
        U, P = U[index], P[:, index]
    return _products(np.ascontiguousarray((P * root).T, dtype=U.dtype), U)


def _factored(H: Any, shifts: Vector) -> Callable[[Vector], Vector] | None:
    """Return what solves ``(H + diag(shifts)) D = right``; None where that is not definite."""
    size = H.shape[0]
    if sp.issparse(H) and size > MAX_UNKNOWNS_AS_DENSE:
        shifted = sp.csc_array(H + sp.diags_array(shifts))
        look(float(size) ** 2)
        try:
            return splu(shifted, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).solve
        except RuntimeError:  # it is singular
            return None
    if sp.issparse(H):
        H = H.toarray(order="C")
    H.reshape(-1)[:: size + 1] += shifts
    # H is symmetric, so its transpose is it in the order that LAPACK reads; from the lower triangle
    # it is factored the quicker.
    L, info = dpotrf(H.T, lower=1, clean=0, overwrite_a=1)
    return None if info else lambda right: dpotrs(L, right, lower=1)[0]


def _rows_times(scales: Vector, J: Any) -> Any:
    """Return J with its rows scaled."""
    return sp.csr_array(sp.diags_array(scales) @ J) if sp.issparse(J) else scales[:, None] * J


def _products(weighted: Matrix, U: Any) -> Any:
    """Return all products of the entries of two rows, (m, k) and (m, n), as real (m, k n)."""
    if sp.issparse(U):
        return _sparse_products(weighted, U)
    # Written in the order in which it is read: U may come in Fortran order.
    products = np.empty((*weighted.shape, U.shape[1]), dtype=U.dtype)
    np.multiply(weighted[:, :, None], U[:, None, :], out=products)
    flat: Matrix = products.reshape(len(U), -1).view(U.real.dtype)
    return flat


def _sparse_products(weighted: Matrix, U: Any) -> Any:
    """Return the same of sparse rows, sparse."""
    (m, k), n = weighted.shape, U.shape[1]
    counts = np.diff(U.indptr)
    values = np.repeat(weighted, counts, axis=0) * U.data[:, None]
    columns = U.indices[:, None].astype(np.int64) + n * np.arange(k)
    width = 1
    if np.iscomplexobj(values):
        width = 2
        columns = 2 * columns[:, :, None] + np.arange(2)
    data = np.ascontiguousarray(values).reshape(-1).view(np.float64)
    pointers = U.indptr.astype(np.int64) * (k * width)
    return sp.csr_array((data, columns.reshape(-1), pointers), shape=(m, k * n * width))
