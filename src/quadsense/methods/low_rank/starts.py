"""Where a factored fit begins: the spectral start, random starts and rank growth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, lapack
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh, minres

from quadsense.arrays import complex_of, to_numpy
from quadsense.core.intervals import ZERO_SHARE
from quadsense.core.matrix import FactorForm, SensedMatrix
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import MAX_FORMED_ORDER
from quadsense.methods.low_rank.passes import (
    TINY,
    FactorPoint,
    back_project,
    conjugate,
    inner,
    project,
    weighted_rows_product,
)
from quadsense.methods.low_rank.program import LowRankProgram, Matrix, rows_are_ample
from quadsense.system.watch import eigen_flops, look

# Powers of two between which the largest entry of a factor is a start.
MIN_START_POWER, MAX_START_POWER = -60, 20
# What an eigenvalue of the wrong sign is replaced by, as a share of the largest.
WRONG_SIGN_SHARE = 1e-2


def leading_factor(
    problem: LowRankProgram, fit: SensedMatrix, exponent: int, rank: int | None
) -> Matrix | None:
    """Return X (n, k) of the part of a matrix that its largest eigenvalues make up.

    Parameters
    ----------
    problem : LowRankProgram
    fit : SensedMatrix
        In the readings' own scaling; `problem` has it over ``4**exponent``.
    exponent : int
    rank : int or None
        Most columns; None: as many as meet the tolerances, or one where none do. Where the
        problem has signs, as many as these, those of minus signs of the smallest eigenvalues.

    Returns
    -------
    ndarray or None
        None where the matrix has no positive eigenvalue, is next to nothing, or is too large to
        tell.
    """
    n = problem.F.n
    if problem.signs is not None:
        return _signed_factor(problem, fit, exponent)
    count = n if rank is None else min(rank, n)
    if isinstance(fit.form, FactorForm):
        values, vectors = _spectrum(fit.form)
        values, vectors = values[-count:], vectors[:, -count:]
    elif n <= MAX_FORMED_ORDER:
        look(eigen_flops(n))
        values, vectors = eigh(np.asarray(fit), subset_by_index=(n - count, n - 1))
    elif rank is None or rank >= n - 1:
        return None
    else:
        found = _by_products(problem, fit, count)
        if found is None:
            return None
        values, vectors = found
    order = np.argsort(-values)
    values, vectors = values[order], vectors[:, order]
    keep = values > ZERO_SHARE * float(np.max(np.abs(values), initial=0.0))
    if not keep.any():
        return None
    X = in_range(vectors[:, keep] * np.sqrt(values[keep]), exponent)
    return X if rank is not None or X is None else X[:, : _enough(problem, X)]


def in_range(X: Matrix, exponent: int) -> Matrix | None:
    """Return a factor over ``2**exponent``, or None if negligible next to readings up to 1.

    One that is far larger is made smaller: squares of what it reads would overflow. At one that is
    far smaller the loss has no slope to speak of, as at zero.
    """
    size = int(np.frexp(float(np.max(np.abs(X), initial=0.0)))[1]) - exponent
    if size < MIN_START_POWER:
        return None
    power = -exponent - max(size - MAX_START_POWER, 0)
    # In two parts: a power of two by itself may be out of range where the factor is not.
    scaled: Matrix = X * 2.0 ** (power // 2) * 2.0 ** (power - power // 2)
    return scaled


def _signed_factor(problem: LowRankProgram, fit: SensedMatrix, exponent: int) -> Matrix | None:
    """Return X of ``X S X*`` for the outermost eigenvalues, plus signs first."""
    assert problem.signs is not None
    n, (plus, minus) = problem.F.n, problem.signs
    form = fit.form
    if isinstance(form, FactorForm) and form.factor.shape[1] >= plus + minus:
        values, vectors = _spectrum(form)
    elif n <= MAX_FORMED_ORDER:
        look(eigen_flops(n))
        values, vectors = eigh(np.asarray(fit))
    else:
        return None
    if not values.any():
        return None
    return in_range(signed_part(values, vectors, plus, minus), exponent)


def _spectrum(form: FactorForm) -> tuple[Matrix, Matrix]:
    """Return the eigenvalues of ``X S X*`` in the span of X, in ascending order, and vectors."""
    X = to_numpy(form.factor)
    look(2.0 * float(X.shape[0]) * X.shape[1] ** 2)
    Q, R = np.linalg.qr(X)
    signs = np.ones(X.shape[1]) if form.signs is None else form.signs
    values, vectors = np.linalg.eigh((R * signs) @ R.conj().T)
    return values, Q @ vectors


def signed_part(values: Matrix, vectors: Matrix, plus: int, minus: int) -> Matrix:
    """Return X for the largest and the smallest of eigenvalues in ascending order.

    An eigenvalue of the wrong sign is replaced by a small one of the right: a column of zeros
    would stay so, the loss having no slope in it.
    """
    n = values.size
    index = np.concatenate([np.arange(n - 1, n - 1 - plus, -1), np.arange(minus)])
    signs = np.concatenate([np.ones(plus), -np.ones(minus)])
    sizes = signs * values[index]
    floor = WRONG_SIGN_SHARE * (float(np.max(np.abs(values), initial=0.0)) or 1.0)
    X: Matrix = vectors[:, index] * np.sqrt(np.maximum(sizes, floor))
    return X


def _by_products(
    problem: LowRankProgram, fit: SensedMatrix, count: int
) -> tuple[Matrix, Matrix] | None:
    """Return the largest eigenvalues and their vectors, by Lanczos; None if that fails."""
    n, dtype = problem.F.n, problem.F.dtype

    def times(x: Matrix) -> Matrix:
        look()
        return np.asarray(to_numpy(fit.times(x.reshape(n, -1)))).reshape(x.shape)

    operator = LinearOperator((n, n), dtype=dtype, matvec=times)
    try:
        values, vectors = eigsh(operator, k=count, which="LA", v0=np.ones(n, dtype=dtype))
    except ArpackError:
        return None
    return values, vectors


def _enough(problem: LowRankProgram, X: Matrix) -> int:
    """Return how many columns meet the tolerances; 1 where not even all do."""
    F = problem.F
    reached = F.mixed(np.cumsum(np.abs(F.raw.times(X)) ** 2, axis=1))
    ratios = np.max(np.abs(reached - problem.b[:, None]) / problem.delta[:, None], axis=0)
    meets = np.flatnonzero(ratios <= 1.0)
    return int(meets[0]) + 1 if meets.size else 1


Draw: TypeAlias = np.random.Generator | tuple[int, ...]
"""A generator, or the seed of one: making it takes as long as a step on a small problem."""

# Up to here the smallest eigenvector of an n-by-n matrix is cheaper found by decomposing it.
MAX_DECOMPOSED_ORDER = 200
# Restarts of Lanczos after which an eigenvector is near enough for a direction to go.
MAX_LANCZOS_RESTARTS = 100
# Steps by which a symmetric fit to sums of rows is found to start from.
MAX_FIT_STEPS = 20
# What a step of block Krylov costs besides its products, in flops of the same time.
KRYLOV_STEP_FLOPS = 1.6e6
# Block Krylov: steps, and rows carried in addition to the rank asked for, among which a weak
# eigenvector may hide until the strong ones are fitted.
EXTRA_ROWS = 3
KRYLOV_STEPS = 3
# Refinements by the residual: with three, the later steps no longer grow with the condition
# number of A, where they are quasi-Newton steps; with few rows per unknown they lead astray.
MAX_REFINEMENTS = 3
# A refinement that leaves this share of the misfit, a sum of squares, is worth another.
MAX_MISFIT_LEFT = 0.7
# A weight of the start is at least this share of the largest: a direction started
# at zero would stay there, the gradient with respect to it being zero.
MIN_WEIGHT_SHARE = 0.02
HOUSEHOLDER = {
    "f": (lapack.sgeqrf, lapack.sorgqr),
    "d": (lapack.dgeqrf, lapack.dorgqr),
    "F": (lapack.cgeqrf, lapack.cungqr),
    "D": (lapack.zgeqrf, lapack.zungqr),
}


def spectral_start(problem: LowRankProgram, rank: int, rng: Draw) -> Matrix:
    """Return a factor whose directions are leading eigenvectors of ``F*(T(b))``.

    Parameters
    ----------
    problem : LowRankProgram
    rank : int
    rng : Generator, or the seed of one
        Draws the factor where the readings lead to none.

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
    F = problem.F
    if not F.rank_one or problem.signs is not None:
        return _fitted_start(problem, F, rank, rng)
    m, n = F.shape
    beta = 1.0 if F.is_complex else 2.0
    if not float(np.max(problem.b)) > 0.0:
        # No positive semidefinite matrix fits readings that are not positive better than zero.
        return np.zeros((rank, n), dtype=F.dtype)
    if problem.level <= 0.0:
        return random_start(problem, rank, rng)
    y = np.maximum(problem.readings("f" if problem.low is not None else "d").b, 0.0)
    y /= problem.level
    y -= 1.0
    shaped = np.divide(y, y + max(1.05, float(np.sqrt(beta * m / (n * rank)))), out=y)
    narrow = F.kind.by_column  # refinements would cost as much as the steps that they save
    Q = _leading_eigenvectors(problem, shaped, rank if narrow else min(rank + EXTRA_ROWS, n), rng)
    found = _weighed(problem, Q, rank)
    refined = rows_are_ample(F, rank) and not narrow
    for _ in range(MAX_REFINEMENTS if refined else 0):
        better = _weighed(problem, _refined(problem, found), rank)
        if not better.misfit < found.misfit:
            break
        worth_more = better.misfit < MAX_MISFIT_LEFT * found.misfit
        found = better
        if not worth_more:
            break
    return found.Y


def _fitted_start(problem: LowRankProgram, F: Sensing, rank: int, rng: Draw) -> Matrix:
    """Return the outer part of a symmetric fit: for readings that are not all of one sign.

    The fit is the smallest one, by some steps on ``K y = b``.
    """
    if F.n > MAX_FORMED_ORDER:
        return random_start(problem, rank, rng)

    def gram_times(y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        look()
        product = F.gram_times(y) if F.prefers_gram else F.forward(F.adjoint(y))
        return np.asarray(product)

    K = LinearOperator((F.m, F.m), dtype=np.float64, matvec=gram_times)
    y, _ = minres(K, problem.b, maxiter=MAX_FIT_STEPS)
    if problem.signs is not None:
        values, vectors = eigh(F.adjoint(y))
        return np.ascontiguousarray(signed_part(values, vectors, *problem.signs).T)
    count = min(rank, F.n)
    values, vectors = eigh(F.adjoint(y), subset_by_index=(F.n - count, F.n - 1))
    least = MIN_WEIGHT_SHARE * max(float(np.max(np.abs(values))), float(np.mean(np.abs(problem.b))))
    Y = np.zeros((rank, F.n), dtype=F.dtype)
    Y[:count] = (vectors * np.sqrt(np.maximum(values, least))).T[::-1]
    return Y


@dataclass(frozen=True)
class _Weighed:
    """Directions Q (k, n), their images W (k, m), the factor Y of the last ones, its residual."""

    Q: Matrix
    W: Matrix
    Y: Matrix
    z: npt.NDArray[np.float64]
    misfit: float


def _weighed(problem: LowRankProgram, Q: Matrix, rank: int) -> _Weighed:
    """Weigh the last ``rank`` of some orthonormal directions by least squares on the readings.

    The axes are those of the moment matrix of b within the span; the weights need no
    assumption on the rows.
    """
    rows, b = problem.F if problem.low is None else problem.low, problem.b
    W = project(rows, Q.astype(rows.dtype, copy=False))
    if rank == 1:
        axes, features = np.ones((1, 1)), inner(W[-1:], W[-1:])[None].astype(np.float64)
    else:
        last = W[-rank:].astype(Q.dtype)
        _, axes = np.linalg.eigh(conjugate(last * b) @ last.T)
        features = np.square(np.abs(axes.T @ last))
    normal = np.asarray(features @ features.T)
    # Directions that are seen alike share what they read.
    normal.reshape(-1)[:: rank + 1] += ZERO_SHARE * float(normal.trace()) + TINY
    weights = lapack.dposv(normal, np.asarray(features @ b))[1]
    least = MIN_WEIGHT_SHARE * max(float(weights.max()), problem.level)
    weights = np.maximum(weights, least)
    z = weights @ features
    z -= b
    Y = np.sqrt(weights)[:, None] * (axes.T @ Q[-rank:])
    return _Weighed(Q, W, Y, z, float(np.dot(z, z)))


def _refined(problem: LowRankProgram, found: _Weighed) -> Matrix:
    """Return directions of ``A`` minus the error that the residual tells of.

    E[F*(z)] is a multiple of beta E + tr(E) I, E the error of A: subtracting the estimate
    of E brings out the weaker eigenvectors, which b alone hides.
    """
    rows = problem.F if problem.low is None else problem.low
    m, n = rows.shape
    beta = 1.0 if rows.is_complex else 2.0
    scale = found.z * (-(n + beta) * n / (beta * m))
    scale += float(found.z.mean()) * n / (beta * m)
    image = (found.Q @ conjugate(found.Y).T) @ found.Y
    image += back_project(rows, found.W * scale.astype(found.W.real.dtype, copy=False))
    columns, _, _ = np.linalg.svd(image.T, full_matrices=False)
    return np.ascontiguousarray(columns.T[::-1])


def random_start(problem: LowRankProgram, rank: int, rng: Draw) -> Matrix:
    """Return a Gaussian factor (rank, n) whose trace agrees with the readings."""
    n, rng = problem.F.n, np.random.default_rng(rng)
    level = float(np.mean(np.abs(problem.b))) or 1.0
    Y = rng.standard_normal((rank, n))
    if problem.F.is_complex:
        Y = complex_of(Y, rng.standard_normal((rank, n))) / np.sqrt(2.0)
    Y *= np.sqrt(level / rank)
    return Y


def descent_row(problem: LowRankProgram, point: FactorPoint) -> tuple[Matrix, float, float]:
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
    F, slope = problem.F, problem.weight * point.excess
    n = F.n
    if n <= MAX_DECOMPOSED_ORDER:
        values, vectors = np.linalg.eigh(F.adjoint(slope))
        value, v = float(values[0]), vectors[:, 0]
    else:
        value, v = _smallest_eigenvector(F, slope)
    seen = F.factored(v[:, None])
    response = float(np.dot(problem.weight * seen, seen)) or 1.0
    length = np.sqrt(max(-value, 0.0) / response)
    scale = float(np.sum(np.abs(slope))) / n or 1.0
    return (length * v)[None, :], value, value / scale


def _smallest_eigenvector(
    F: Sensing, slope: npt.NDArray[np.float64]
) -> tuple[float, npt.NDArray[Any]]:
    """Return the smallest eigenvalue of ``F*(slope)`` and its vector, by Lanczos."""
    n = F.n

    def times(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        look()
        return weighted_rows_product(F, slope, x.reshape(1, -1))[0]

    operator = LinearOperator((n, n), dtype=F.dtype, matvec=times)
    # Not the vector of ones, which differences of unit vectors do not see.
    first = np.random.default_rng(0).standard_normal(n).astype(F.dtype)
    try:
        values, vectors = eigsh(
            operator, k=1, which="SA", tol=1e-3, v0=first, maxiter=MAX_LANCZOS_RESTARTS
        )
    except ArpackNoConvergence as found:  # as near as it came; a candidate, not a proof
        if found.eigenvalues.size:
            return float(found.eigenvalues[0]), found.eigenvectors[:, 0]
        v = first / np.linalg.norm(first)
        return float(np.vdot(v, times(v)).real), v
    except ArpackError:  # F*(slope) is zero
        return 0.0, first / np.linalg.norm(first)
    return float(values[0]), vectors[:, 0]


def _factored(columns: Matrix) -> tuple[Matrix, Matrix]:
    """Return Q and R, whose upper triangle counts, of a matrix of no more columns than rows.

    By LAPACK itself: they are few, and NumPy's qr takes five times as long.
    """
    factor, form = HOUSEHOLDER[columns.dtype.char]
    reflectors, scales, _, _ = factor(columns)
    R = reflectors[: columns.shape[1]].copy()
    return form(reflectors, scales, overwrite_a=1)[0], R


def _leading_eigenvectors(
    problem: LowRankProgram, scale: npt.NDArray[np.float64], rank: int, rng: Draw
) -> Matrix:
    """Return leading eigenvectors of ``F*(scale)`` as rows, (rank, n).

    Block Krylov with Rayleigh-Ritz, in single precision where there is a copy of U in it;
    directly where that takes fewer flops.
    """
    F = problem.F
    m, n = F.shape
    products = 4 * m * n * rank // (1 if problem.low is None else 2)
    # Where a product costs by the column there are more steps, and no additional rows.
    steps = 2 * KRYLOV_STEPS if F.kind.by_column else KRYLOV_STEPS
    krylov = steps * (products + KRYLOV_STEP_FLOPS)
    if n <= rank * steps or 2 * m * n**2 <= krylov:
        _, vectors = eigh(
            F.adjoint(scale),
            subset_by_index=(n - rank, n - 1),
            overwrite_a=True,
            check_finite=False,
        )
        leading: Matrix = np.ascontiguousarray(vectors.T)
        return leading
    dtype = np.dtype(F.dtype)
    F = F if problem.low is None else problem.low
    kind = np.dtype(F.dtype)
    scale = scale.astype(np.empty(0, kind).real.dtype, copy=False)
    # Rows of large readings lean towards the leading eigenvectors.
    if m >= rank:
        if rank > 1:
            largest = np.argpartition(scale, m - rank)[m - rank :]
        else:
            largest = np.array([int(np.argmax(scale))])
        image = F.take_unit(largest)
    else:
        image = random_start(problem, rank, rng).astype(kind)
    blocks: list[Matrix] = []
    seen: list[Matrix] = []
    for step in range(steps):
        if step:
            known = np.concatenate(blocks)
            image = image - (image @ conjugate(known).T) @ known
        blocks.append(_orthonormal(image))
        image = weighted_rows_product(F, scale, blocks[-1])
        seen.append(image)
    basis, images = np.concatenate(blocks), np.concatenate(seen)
    # Gram-Schmidt in single precision loses orthogonality: it is restored within the span, and
    # directions in which nothing new was left are left out.
    bases = conjugate(basis)
    sizes, axes = np.linalg.eigh(bases @ basis.T)
    kept = sizes >= min(0.25, float(sizes[-rank]))
    axes = axes[:, kept] / np.sqrt(sizes[kept])
    T = conjugate(axes).T @ (bases @ images.T) @ axes
    _, coefficients = np.linalg.eigh((T + conjugate(T).T) / 2.0)
    ritz: Matrix = ((axes @ coefficients[:, -rank:]).T @ basis).astype(dtype)
    return ritz


def _orthonormal(block: Matrix) -> Matrix:
    """Return an orthonormal basis of the span of some rows, as rows."""
    if len(block) == 1:
        size = float(np.linalg.norm(block))
        return block / size if size > 0.0 else block
    return np.ascontiguousarray(_factored(block.T)[0].T)
