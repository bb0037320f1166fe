"""The two kinds of steps on the factor: Gauss-Newton, and limited-memory quasi-Newton.

Damped Gauss-Newton steps factor the normal equations. They are for small problems: they converge
quadratically and, from a poor start, go farther than gradient steps do.

Quasi-Newton steps are for problems too large to factor. Three things make one cheap. The memory
acts on top of the Hessian expected of isotropic rows, inverted in closed form, which also makes the
number of steps independent of the condition number of A (the scaled steps of [Tong, Ma, Chi 2021]).
Along a line the residuals are quadratics of the length t, so the best t comes from the
coefficients, without a pass (see `passes`). And the products run in single precision: only changes
are computed so, and ``P`` is renewed in double precision before their error could matter, as in
iterative refinement. All that is as long as the data is read and written once, in parts that stay
in cache: the length of a step, and what is there, come from the images of its direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.sparse.linalg import splu

from quadsense.core.secants import Memory, direction, dot, remember
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


def derivative(problem: LowRankProgram, point: FactorPoint, index: npt.NDArray[np.intp]) -> Matrix:
    """Return that of some residuals by the entries of Y, Re and Im side by side, dense."""
    even = problem.weighed(np.ones_like(problem.weight))
    J: Any = jacobian(even, point, index)
    return np.asarray(J if isinstance(J, np.ndarray) else J.toarray(), dtype=np.float64)


def flat(slope: Matrix) -> Vector:
    """Return a factor's changes as a vector of real numbers, Re and Im side by side."""
    return np.asarray(np.ascontiguousarray(slope).reshape(-1).view(np.float64))


def as_real(G: Matrix) -> Matrix:
    """Return a Hermitian matrix as one of real and imaginary parts side by side."""
    if not np.iscomplexobj(G):
        return np.asarray(G)
    n = len(G)
    real = np.empty((n, 2, n, 2))
    real[:, 0, :, 0] = real[:, 1, :, 1] = G.real
    real[:, 1, :, 0], real[:, 0, :, 1] = G.imag, -G.imag
    return real.reshape(2 * n, 2 * n)


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


# --- quasi-Newton steps ---------------------------------------------------------------------------

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
    return quartic_minimum(along, quadratic, cubic, quartic), size


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
# Least scale of damping, or eigenvalue of the expected Hessian, as a share of the mean one.
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
