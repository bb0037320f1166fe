"""The last digits of least squares in the cone: Newton's method on the face where it ends.

Steps of the first order find which eigenvalues of A are 0 and which ends bind, and then creep; what
they leave of ``T X`` is multiplied, in a proof, by all of A. On matrices ``X X*`` of that rank,
with those ends held, nothing but a system of equations is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.arrays import Vector
from quadsense.core.intervals import ZERO_SHARE
from quadsense.core.products import real_units, upper
from quadsense.core.records import changed
from quadsense.methods.balance import EIGENVALUE_PRICE, balanced
from quadsense.methods.least_squares.bounds import (
    KEPT_ROOM,
    MAX_ZERO_COST,
    SquaresState,
    at,
    crossed,
    judge_of,
    margins,
    mass,
)
from quadsense.methods.least_squares.program import (
    LeastSquaresCone,
    QuadraticPoint,
    Rows,
    SquaresProgram,
)
from quadsense.proofs.costs import conjugate_above, permitted
from quadsense.system.machine import MAX_ARRAY_ENTRIES
from quadsense.system.watch import eigen_flops, look

Array = npt.NDArray[Any]

MAX_CORRECTIONS = 6
"""Each squares the error: three reach rounding from where the first-order steps end."""


def with_trace(cone: LeastSquaresCone, X: Array) -> Array:
    """The factor of the trace that the cone asks for."""
    if cone.trace is None:
        return X
    trace = float((np.abs(X) ** 2).sum())
    return np.sqrt(cone.trace / trace) * X if trace > 0.0 else X


def shifted_matrix(program: SquaresProgram, x: Vector, rows: Rows, errors: Vector) -> Vector:
    """x changed as little as possible for its readings to change by `errors`, without a cone."""
    if rows.size == 0:
        return x
    return x + np.linalg.lstsq(program.cost.features(rows), errors)[0]


def multipliers(program: SquaresProgram, X: Array, slope: Vector, rows: Rows, mu: Vector) -> Vector:
    """Multipliers of the rows that pull, such that ``T X`` is as near to 0 as can be.

    At a solution it is 0, and what steps of the first order leave of it is rounding many times
    over. Signs stay.
    """
    cone = program.cone
    pulling = np.flatnonzero(mu)
    if pulling.size == 0 or float(pulling.size) * cone.n**2 > MAX_ARRAY_ENTRIES:
        return mu
    images = [cone.unpack(line) @ X for line in program.cost.features(rows[pulling])]
    if cone.trace is not None:
        images.append(X)
    M = np.stack(images).reshape(len(images), -1)
    right = -(cone.unpack(2.0 * slope) @ X).ravel()
    M, right = np.hstack([M.real, M.imag]), np.concatenate([right.real, right.imag])
    found = np.linalg.lstsq(M.T, right, rcond=ZERO_SHARE)[0][: pulling.size]
    equal = (program.lo == program.hi)[rows[pulling]]
    better = mu.copy()
    better[pulling] = np.where((found * mu[pulling] >= 0.0) | equal, found, 0.0)
    return better


def moved_factor(program: SquaresProgram, X: Array, rows: Rows, targets: Vector) -> Array | None:
    """X changed as little as possible, to first order, for ``F(X X*)`` of rows to be targets.

    None where that leads nowhere: X is too small there, or the rows are too many.
    """
    cone = program.cone
    if rows.size == 0:
        return with_trace(cone, X)
    if float(rows.size) * cone.n**2 > MAX_ARRAY_ENTRIES:
        return None
    matrices = [cone.unpack(line) for line in program.cost.features(rows)]
    if cone.trace is not None:
        matrices.append(np.eye(cone.n, dtype=cone.dtype) / np.sqrt(cone.n))
        targets = np.append(targets, cone.trace / np.sqrt(cone.n))
    M = np.stack(matrices)
    last = np.inf
    for _ in range(MAX_CORRECTIONS):
        images = M @ X
        errors = targets - np.einsum("kij,ij->k", images, X.conj()).real
        size = float(np.abs(errors).max())
        if not size < 0.5 * last:  # rounding, or no way
            break
        last = size
        flat = images.reshape(len(M), -1)
        G = 2.0 * (flat @ flat.conj().T).real
        by = np.linalg.lstsq(G, errors, rcond=ZERO_SHARE)[0]
        X = X + np.tensordot(by, images, axes=1)
    return with_trace(cone, X) if np.isfinite(X).all() else None


MAX_FACTOR_UNKNOWNS, MAX_FEATURE_ENTRIES = 400, 2_000_000
"""Unknowns of a factor, and entries of all rows packed, up to which equations are formed."""

MAX_FACE_GAP = 1e-5
"""Relative gap that is small enough, unless a smaller one is asked for."""

MAX_NEWTON_STEPS = 8
"""Each squares the error."""

ZERO_EIGENVALUE_SHARES = (1e-12, 1e-8, 1e-5, 1e-3)
"""Of the largest eigenvalue: smaller ones are taken for none, first those that surely are."""


def refined(program: SquaresProgram, state: SquaresState) -> SquaresState:
    """The state, or one on a face near it whose gap is smaller and that crosses no end."""
    cone, point = program.cone, state.point
    if point is None or not cone.psd or cone.trace is not None:
        return state
    enough = min(MAX_FACE_GAP, float(program.problem.options.gap)) * point.cost
    enough = max(enough, KEPT_ROOM * MAX_ZERO_COST * program.nothing)
    if not state.judged.gap > enough or program.F.m * cone.size > MAX_FEATURE_ENTRIES:
        return state
    values, V = cone.eigen(point.x)
    ranks = [
        int(np.count_nonzero(values > share * float(values[-1])))
        for share in ZERO_EIGENVALUE_SHARES
    ]
    best = state
    for rank in dict.fromkeys(ranks):
        if not 0 < rank * cone.n * (2 if cone.is_complex else 1) <= MAX_FACTOR_UNKNOWNS:
            continue
        X = np.asarray(V[:, -rank:] * np.sqrt(values[-rank:]))
        other = on_face(program, state, X)
        if other is not None and other.judged.gap < best.judged.gap:
            best = other
            if other.judged.gap <= enough:
                break
    return best


def on_face(program: SquaresProgram, state: SquaresState, X: Array) -> SquaresState | None:
    """Where Newton's method leads on matrices of that rank; None: to none that is admitted.

    Small systems, NumPy's wherever the rows are.
    """
    cone = program.cone
    rows, mu, targets = _held(program, state)
    sides = np.where(np.asarray(program.lo == program.hi)[rows], 0.0, np.sign(mu))
    E = np.asarray(program.cost.features(rows))
    G = np.asarray(program.cost.features(np.arange(program.F.m)))
    last = np.inf
    best: tuple[Array, Vector, QuadraticPoint] | None = None
    for _ in range(MAX_NEWTON_STEPS):
        now = program.cost.point(cone.placed(cone.pack(X @ X.conj().T)))
        T = 2.0 * np.asarray(now.slope) + E.T @ mu
        missing = targets - np.asarray(now.values)[rows]
        slope = 2.0 * _flat(cone.unpack(T) @ X)
        size = float(np.linalg.norm(slope)) + float(np.linalg.norm(missing))
        if not size < last:  # NaN too
            break
        last, best = size, (X, mu, now)
        step = _step(program, X, T, G, E, slope, missing)
        if step is None:
            break
        X, mu = X + step[0], mu + step[1]
    if best is None:
        return None
    X, mu, now = best
    if np.any(mu * sides < 0.0):  # an end that would be left inwards
        return None
    state = changed(state, factor=X, rows=rows, mu=cone.placed(mu))
    judge, mu = judge_of(program), state.mu
    loose = judge.loose(rows, now.values[rows], mu, program.lo[rows], program.hi[rows])
    T = 2.0 * now.slope + cone.placed(E).T @ mu
    judged = judge.judge(now.x, now.cost, T, loose, mass(program, now.values, mu))
    if crossed(program, now, KEPT_ROOM * state.room).size:
        return None
    # What rounding makes of T is a matter of the last bits: these are balanced before any proof.
    judged = changed(judged, shift=0.0)
    gap = _balanced_gap(program, changed(state, judged=judged), now)
    return at(program, changed(state, judged=changed(judged, gap=gap, trivial=False)), now)


def _balanced_gap(program: SquaresProgram, state: SquaresState, now: QuadraticPoint) -> float:
    """What is left between the cost and what the dual vector proves once it is balanced."""
    F = program.problem.rows.on_numpy()
    A = np.asarray(program.scale * program.cone.unpack(now.x))
    y = judge_of(program).dual(now.values, state.rows, state.mu, state.judged)
    y = balanced(F, program.question, y, A)
    T = np.asarray(F.adjoint(y))
    if program.cost.alpha > 0.0 or not np.isfinite(T).all() or program.unit == 0.0:
        return state.judged.gap
    bound = -conjugate_above(program.question, permitted(program.question, y))
    bound += EIGENVALUE_PRICE * min(float(np.linalg.eigvalsh(T)[0]), 0.0) * float(np.trace(A).real)
    return max(now.cost - bound / program.unit, 0.0)


def _held(program: SquaresProgram, state: SquaresState) -> tuple[Rows, Vector, Vector]:
    """Rows at their ends, their multipliers, and what they are to read."""
    equal = np.asarray(program.lo == program.hi)
    mu = np.zeros(equal.size)
    mu[state.rows] = state.mu
    rows = np.flatnonzero(equal | (mu != 0.0))
    lo, hi = map(np.asarray, margins(program, state.room))
    return rows, mu[rows], np.where(mu > 0.0, hi, lo)[rows]


def _step(
    program: SquaresProgram,
    X: Array,
    T: Vector,
    G: Array,
    E: Array,
    slope: Vector,
    missing: Vector,
) -> tuple[Array, Vector] | None:
    """Newton's change of X and of the multipliers."""
    cone, cost = program.cone, program.cost
    n, r = X.shape
    L = _changes(cone, X)
    size = L.shape[1]
    look(eigen_flops(size) + 2.0 * len(G) * float(size) * cone.size)
    J = np.sqrt(2.0 * np.asarray(cost.w))[:, None] * (G @ L)
    K = np.zeros((size + len(E), size + len(E)))
    K[:size, :size] = J.T @ J + 2.0 * cost.alpha * (L.T @ L) + 2.0 * _times(cone.unpack(T), r)
    K[size:, :size] = E @ L
    K[:size, size:] = K[size:, :size].T
    found = _solved(K, np.concatenate([-slope, missing]), X)
    if not np.isfinite(found).all():
        return None
    D = np.ascontiguousarray(found[:size]).view(X.dtype).reshape(n, r)
    return D, found[size:]


def _solved(K: Array, right: Vector, X: Array) -> Vector:
    """The least solution of the equations, whose turns of X are singular.

    With these weighed down the system is regular, unless more is singular.
    """
    turns = _turns(X)
    size = len(turns)
    fixed = K.copy(order="F")
    fixed[:size, :size] += float(np.trace(K[:size, :size])) / size * (turns @ turns.T)
    *_, found, rcond, _, _, info = lapack.dsysvx(fixed, right)
    if info == 0 and rcond > ZERO_SHARE:
        return np.asarray(found).reshape(-1)
    return np.asarray(np.linalg.lstsq(K, right, rcond=ZERO_SHARE)[0])


def _turns(X: Array) -> Array:
    """Columns ``X S`` of unit norm for skew S, which leave ``X X*`` as it is."""
    r = X.shape[1]
    i, j = upper(r)
    S = np.zeros((i.size, r, r), X.dtype)
    S[np.arange(i.size), i, j], S[np.arange(i.size), j, i] = 1.0, -1.0
    if np.iscomplexobj(X):
        i, j = np.triu_indices(r)
        other = np.zeros((i.size, r, r), X.dtype)
        other[np.arange(i.size), i, j] = other[np.arange(i.size), j, i] = 1j
        S = np.concatenate([S, other])
    moved = np.ascontiguousarray(X @ S)
    columns = moved.reshape(len(S), X.size).view(np.float64)
    return (columns / np.linalg.norm(columns, axis=1)[:, None]).T


def _changes(cone: LeastSquaresCone, X: Array) -> Array:
    """Columns ``pack(D X* + X D*)`` for D one entry of X each, its real and its imaginary part."""
    n, r = X.shape
    parts = np.array(real_units(cone.is_complex))
    M = np.zeros((n, r, parts.size, n, n), X.dtype)
    for i in range(n):
        M[i, :, :, i, :] = parts[:, None] * X.conj().T[:, None, :]
    M += np.swapaxes(M.conj(), -1, -2)
    return np.ascontiguousarray(cone.pack(M.reshape(-1, n, n)).T)


def _times(T: Array, r: int) -> Array:
    """``D -> T D`` on n by r matrices of real numbers, Re and Im side by side."""
    n = len(T)
    if not np.iscomplexobj(T):
        plain, each = np.zeros((n, r, n, r)), np.arange(r)
        plain[:, each, :, each] = T
        return plain.reshape(n * r, n * r)
    whole = np.zeros((n, r, 2, n, r, 2))
    for k in range(r):
        whole[:, k, 0, :, k, 0] = whole[:, k, 1, :, k, 1] = T.real
        whole[:, k, 1, :, k, 0], whole[:, k, 0, :, k, 1] = T.imag, -T.imag
    return whole.reshape(2 * n * r, 2 * n * r)


def _flat(M: Array) -> Vector:
    """As real numbers, Re and Im side by side."""
    return np.ascontiguousarray(M).reshape(-1).view(np.float64)
