"""Where a factored fit begins: the spectral start, random starts and rank growth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from quadsense.methods.factor.passes import Matrix, Point, Program, project, weighted_rows_product

# Up to here forming and decomposing an n-by-n matrix is cheaper than passes over U.
_DENSE_ORDER = 200
# Block Krylov: steps, and rows carried beside the rank asked for, among which a weak
# eigenvector may hide until the strong ones are fitted.
_EXTRA_ROWS = 3
_KRYLOV_STEPS = 4
# Refinements by the residual: with three, the later steps no longer grow with the
# condition number of A; with few rows an unknown they lead astray.
_REFINEMENTS, _AMPLE_ROWS = 3, 4
# A weight of the start is at least this share of the largest: a direction started
# at zero would stay there, the gradient with respect to it being zero.
_WEIGHT_FLOOR = 0.02


def spectral_start(problem: Program, rank: int, rng: np.random.Generator) -> Matrix:
    """Return a factor whose directions are leading eigenvectors of ``F*(T(b))``.

    Parameters
    ----------
    problem : Program
    rank : int
    rng : Generator
        Draws the first block of the Krylov space.

    Returns
    -------
    (rank, n) array

    Notes
    -----
    For isotropic rows ``E[b u u*]`` is a multiple of ``beta A + tr(A) I`` (beta = 2 real,
    1 complex).  With few rows its heavy tail drowns the signal, so b is first passed
    through ``T(y) = (y - 1)/(y - 1 + c)``, ``y = b / mean(b)``, which is optimal for
    rank one with ``c = sqrt(beta m / n)`` [Luo, Alghamdi, Lu 2019]; y has variance
    ``beta / rank`` for equal eigenvalues, whence ``c = sqrt(beta m / (n rank))`` here.
    """
    U = problem.U
    rows = U if problem.low is None else problem.low
    m, n = U.shape
    beta = 1.0 if np.iscomplexobj(U) else 2.0
    if not float(np.max(problem.b)) > 0.0:
        # No positive semidefinite matrix fits readings that are not positive better than zero.
        return np.zeros((rank, n), dtype=U.dtype)
    level = float(np.mean(problem.b))
    if level <= 0.0:
        return random_start(problem, rank, rng)
    y = np.maximum(problem.b, 0.0) / level
    c = max(1.05, float(np.sqrt(beta * m / (n * rank))))
    shaped = (y - 1.0) / (y - 1.0 + c)
    Q = _leading_eigenvectors(problem, shaped, min(rank + _EXTRA_ROWS, n), rng)
    Y, z = _weighed(problem, Q[-rank:])
    ample = m >= _AMPLE_ROWS * n * rank * 2.0 / beta
    for _ in range(_REFINEMENTS if ample else 0):
        # E[F*(z)] is a multiple of beta E + tr(E) I, E the error of A: subtracting the
        # estimate of E brings out the weaker eigenvectors, which b alone hides.
        scale = (np.mean(z) - z * (n + beta)) * (n / (beta * m))
        image = (Q @ Y.conj().T) @ Y + weighted_rows_product(
            rows, scale.astype(rows.real.dtype), Q.astype(rows.dtype)
        )
        columns, _, _ = np.linalg.svd(image.T, full_matrices=False)
        Q = np.ascontiguousarray(columns.T[::-1])
        Y, z = _weighed(problem, Q[-rank:])
    return Y


def _weighed(problem: Program, Q: Matrix) -> tuple[Matrix, npt.NDArray[np.float64]]:
    """Weigh orthonormal directions (rank, n) by least squares on the readings.

    The axes are those of the moment matrix of b within the span; the weights need no
    assumption on the rows.  Also returns the residual z of the weighted directions.
    """
    rows = problem.U if problem.low is None else problem.low
    W = project(rows, Q.astype(rows.dtype)).astype(Q.dtype)
    _, axes = np.linalg.eigh((W * problem.b[:, None]).conj().T @ W)
    features = np.abs(W @ axes) ** 2
    weights = np.linalg.lstsq(features, problem.b, rcond=None)[0]
    least = _WEIGHT_FLOOR * max(float(weights.max()), float(np.mean(problem.b)))
    weights = np.maximum(weights, least)
    return np.sqrt(weights)[:, None] * (axes.T @ Q), features @ weights - problem.b


def random_start(problem: Program, rank: int, rng: np.random.Generator) -> Matrix:
    """Return a Gaussian factor (rank, n) whose trace agrees with the readings."""
    n = problem.U.shape[1]
    level = float(np.mean(np.abs(problem.b))) or 1.0
    Y = rng.standard_normal((rank, n))
    if np.iscomplexobj(problem.U):
        Y = (Y + 1j * rng.standard_normal((rank, n))) / np.sqrt(2.0)
    scaled: Matrix = Y * np.sqrt(level / rank)
    return scaled


def descent_row(problem: Program, point: Point) -> tuple[Matrix, float, float]:
    """Return the row that most reduces the loss if the rank grows by one.

    Returns
    -------
    row : (1, n) array
        ``t v``, v the eigenvector of the smallest eigenvalue of ``G = F*(weight z)``,
        and t the best length along it.
    value : float
        That eigenvalue.
    curvature : float
        That eigenvalue over the mean one of ``F*(weight |z|)``.  Not negative (to
        rounding) at a minimum over the factor: no rank fits better.
    """
    U, slope = problem.U, problem.weight * point.excess
    n = U.shape[1]
    if n <= _DENSE_ORDER:
        values, vectors = np.linalg.eigh(U.T @ (slope[:, None] * U.conj()))
        value, v = float(values[0]), vectors[:, 0]
    else:
        value, v = _smallest_eigenvector(U, slope)
    seen = np.abs(U.conj() @ v) ** 2
    response = float(np.dot(problem.weight * seen, seen)) or 1.0
    length = np.sqrt(max(-value, 0.0) / response)
    scale = float(np.sum(np.abs(slope))) / n or 1.0
    return (length * v)[None, :], value, value / scale


def _smallest_eigenvector(
    U: Matrix, slope: npt.NDArray[np.float64]
) -> tuple[float, npt.NDArray[Any]]:
    """Return the smallest eigenvalue of ``F*(slope)`` and its vector, by Lanczos."""
    n = U.shape[1]
    operator = LinearOperator(
        (n, n),
        dtype=U.dtype,
        matvec=lambda x: weighted_rows_product(U, slope, x.reshape(1, -1))[0],
    )
    first = np.ones(n, dtype=U.dtype)
    try:
        values, vectors = eigsh(operator, k=1, which="SA", tol=1e-3, v0=first)
    except ArpackError:  # it did not converge, or F*(slope) is zero
        values, vectors = np.linalg.eigh(U.T @ (slope[:, None] * U.conj()))
    return float(values[0]), vectors[:, 0]


def _leading_eigenvectors(
    problem: Program, scale: npt.NDArray[np.float64], rank: int, rng: np.random.Generator
) -> Matrix:
    """Return leading eigenvectors of ``F*(scale)`` as rows, (rank, n).

    Block Krylov with Rayleigh-Ritz, in single precision where there is a copy of U in it;
    directly where n is small.
    """
    U = problem.U
    n = U.shape[1]
    if n <= max(_DENSE_ORDER, rank * _KRYLOV_STEPS):
        _, vectors = np.linalg.eigh(U.T @ (scale[:, None] * U.conj()))
        leading: Matrix = np.ascontiguousarray(vectors[:, -rank:].T)
        return leading
    U = U if problem.low is None else problem.low
    scale = scale.astype(U.real.dtype)
    image = random_start(problem, rank, rng).astype(U.dtype)
    basis = np.empty((0, n), dtype=U.dtype)
    images: list[Matrix] = []
    for _ in range(_KRYLOV_STEPS):
        block = image - (image @ basis.conj().T) @ basis
        block = np.ascontiguousarray(np.linalg.qr(block.T)[0].T)
        basis = np.concatenate([basis, block])
        image = weighted_rows_product(U, scale, block)
        images.append(image)
    # Gram-Schmidt in single precision loses orthogonality; restore it once for all.
    dtype = problem.U.dtype
    Q, R = np.linalg.qr(basis.T.astype(dtype))
    T = (np.linalg.solve(R.T, np.concatenate(images).astype(dtype)) @ Q.conj()).T
    _, coefficients = np.linalg.eigh((T + T.conj().T) / 2.0)
    ritz: Matrix = np.ascontiguousarray(coefficients[:, -rank:].T @ Q.T)
    return ritz
