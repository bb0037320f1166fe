"""The smallest worst ratio over positive semidefinite matrices, for data that `newton` loses.

The same problem and the same directions as in `newton`, but every step is a least-squares problem
in the unknowns, solved by QR of its rows (see `interior.rows`): tolerances that differ by many
powers of ten are not squared. With t >= 0, and rows with one end held back on their open side, a
central path exists whatever the ends. It costs some multiples of `newton` and is for small data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.core.packed import features, pack, unpack
from quadsense.core.progress import looked
from quadsense.measurements.sensing import Sensing
from quadsense.methods.minimax import rows
from quadsense.methods.minimax.mehrotra import SIGNS, Point, longest, slacks_of
from quadsense.methods.minimax.rows import Cone, RowCoordinates, RowSystem, row_system
from quadsense.methods.psd.maps import Array, Intervals, Real, forward, project

FAR = 3.0  # next to the first level and the readings: what the barrier holds back on an open side
FALL = 0.9  # share of a mark below which something was gained
IDLE = 12  # steps without progress after which rounding has won
LONGEST = 200  # steps after which nothing more is to be hoped for


@dataclass(frozen=True)
class CarefulState:
    """A primal and a dual point, both strictly inside.

    Attributes
    ----------
    A, S : ndarray, shape (n, n)
        Matrix, and the slack of ``F*(y) >= 0``.
    X : ndarray, shape (n, n)
        Factor of A.
    level, floor : float
        t, and the multiplier of ``t >= 0``.
    duals : ndarray, shape (2, m)
        Multipliers of the upper and the lower ends, 0 where there is none.
    far : ndarray, shape (m,), or None
        See `interior.mehrotra.Point`.
    y : ndarray, shape (m,)
        The dual vector, upper less lower multipliers.
    max_ratio : float
    marks, idle
        Mean complementarity, distance from dual feasible and ratio when one of them had last
        fallen by a tenth; and how many steps ago that was.
    iteration : int
    stalled : bool
        Rounding left no step to take.
    """

    A: Array
    S: Array
    X: Array
    level: float
    floor: float
    duals: Real
    far: Real | None
    y: Real
    max_ratio: float
    marks: tuple[float, ...]
    idle: int
    iteration: int
    stalled: bool


def fits(F: Sensing) -> bool:
    """Return whether a step is affordable."""
    return rows.fits(len(F) + F.unknowns, F.unknowns)


@dataclass(frozen=True)
class _Data:
    """Rows, middles, units and ends."""

    F: Sensing
    b: Real
    delta: Real
    sides: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, F: Sensing, intervals: Intervals) -> _Data:
        sides = np.stack([np.isfinite(intervals.hi), np.isfinite(intervals.lo)])
        w = intervals.width
        lo, hi = np.where(sides[1], intervals.lo, 0.0), np.where(sides[0], intervals.hi, 0.0)
        b = np.where(sides[0], hi - w, np.where(sides[1], lo + w, 0.0))
        return cls(F, b, w, sides)

    def residual(self, X: Array) -> Real:
        return (forward(self.F, X) - self.b) / self.delta

    def ratio(self, z: Real) -> float:
        return max(0.0, float(np.max(np.where(self.sides, -SIGNS * z, 0.0))))


def start(F: Sensing, intervals: Intervals) -> CarefulState:
    """Return a multiple of I with all products of slacks and multipliers alike."""
    data = _Data.of(F, intervals)
    n = F.shape[1]
    size = float(np.max(np.abs(data.b)))
    ends = np.abs(data.b[np.any(data.sides, axis=0)])
    scale = max(float(np.mean(ends, where=ends > 0.0)) if np.any(ends > 0.0) else 1.0, 1e-3 * size)
    X = np.sqrt(scale) * np.eye(n, dtype=F.dtype)
    z = data.residual(X)
    ratio = data.ratio(z)
    level = 2.0 * max(ratio, 1e-3)
    duals = np.where(data.sides, 1.0 / slacks_of(data.sides, z, level), 0.0)
    total = float(duals.sum()) + 1.0 / level
    far = None
    if not data.sides.all():
        far = FAR * np.maximum(level, size / data.delta)
        far = np.where(np.all(data.sides, axis=0), np.inf, far)
    duals, floor = duals / total, 1.0 / (level * total)
    return CarefulState(
        A=scale * np.eye(n, dtype=F.dtype),
        S=np.eye(n, dtype=F.dtype) / (scale * total),
        X=X,
        level=level,
        floor=floor,
        duals=duals,
        far=far,
        y=(duals[0] - duals[1]) / data.delta,
        max_ratio=ratio,
        marks=(np.inf, np.inf, np.inf),
        idle=0,
        iteration=0,
        stalled=False,
    )


def advance(F: Sensing, intervals: Intervals, state: CarefulState, steps: int) -> CarefulState:
    """Return the state after at most ``steps`` steps; the caller looks at both bounds between."""
    data = _Data.of(F, intervals)
    for _ in range(steps):
        if state.stalled:
            break
        try:
            state = _step(data, state)
        except sl.LinAlgError:
            state = replace(state, stalled=True)
    return state


def _hermitian(B: Array) -> Array:
    return np.asarray(0.5 * (B + B.conj().T))


@dataclass(frozen=True)
class _Scaled:
    """The point in coordinates in which A and S are the same diagonal.

    ``A = G diag(d) G*``, ``S = W diag(d) W*``, ``G* W = I`` [Nesterov & Todd 1998].
    """

    d: Real
    G: Array
    W: Array
    at: Point
    coordinates: RowCoordinates
    system: RowSystem


@dataclass(frozen=True)
class _Direction:
    matrix: Array
    dual_matrix: Array
    dt: float
    slacks: Real
    duals: Real
    floor: float
    primal: float
    dual: float


def _longest_matrix(d: Real, change: Array) -> float:
    """Return the largest step at most 1 with ``diag(d) + step change >= 0``."""
    root = np.sqrt(d)
    least = float(np.linalg.eigvalsh(change / root / root[:, None])[0])
    return min(1.0, -1.0 / least) if least < 0.0 else 1.0


def _scaled(data: _Data, state: CarefulState) -> _Scaled | None:
    factor = sl.cholesky(state.S, lower=True, check_finite=False)
    left, d, right = sl.svd(factor.conj().T @ state.X, check_finite=False)
    if not float(d[-1]) > 0.0:
        return None
    root = np.sqrt(d)
    G, W = (state.X @ right.conj().T) / root, (factor @ left) / root
    z = data.residual(state.X)
    slacks = slacks_of(data.sides, z, state.level)
    at = Point(
        data.sides, slacks, state.duals, state.level, state.floor, z, state.far,
        (float(np.sum(d * d)), d.size),
    )  # fmt: skip
    map_rows = np.ascontiguousarray(data.F.mixed(features(project(data.F, G))))
    coordinates = RowCoordinates(map_rows, None, data.delta)
    system = row_system(coordinates, at, in_cone=True)
    return None if system is None else _Scaled(d, G, W, at, coordinates, system)


def _newton(p: _Scaled, aim: float, goal: Real, floor_goal: float, twist: Array) -> _Direction:
    """Return the step towards the complementarity `aim`, minus the second-order terms."""
    at, n = p.at, p.d.size
    averages = 0.5 * (p.d[:, None] + p.d)
    R = (aim * np.eye(n) - np.diag(p.d**2) - twist) / averages
    wanted = np.where(at.sides, goal / at.slacks, 0.0)
    push = floor_goal / at.level
    pull = None if at.far is None else -aim / at.far**2 * at.z
    dual = pack(np.diag(p.d).astype(R.dtype))
    dx, dt = p.system.solve(wanted, push, pull, Cone(pack(R), dual))
    change = unpack(dx, n, R.dtype)
    moved = np.where(at.sides, dt + SIGNS * p.coordinates.forward(dx), 0.0)
    duals = wanted - at.duals * moved / at.slacks - at.duals
    floor = push - at.floor * dt / at.level - at.floor
    primal = min(longest(at.slacks, moved), _longest_matrix(p.d, change))
    primal = min(primal, -at.level / dt if dt < 0.0 else 1.0)
    follow = min(longest(at.duals, duals), _longest_matrix(p.d, R - change))
    follow = min(follow, -at.floor / floor if floor < 0.0 else 1.0)
    if at.far is not None:  # what holds A back ties the multipliers to it
        primal = follow = min(primal, follow)
    return _Direction(change, R - change, dt, moved, duals, floor, primal, follow)


def _reached(p: _Scaled, step: _Direction) -> float:
    """Return the mean complementarity where a step leads."""
    at, D = p.at, np.diag(p.d)
    matrices = np.vdot(D + step.primal * step.matrix, D + step.dual * step.dual_matrix)
    return replace(
        at,
        slacks=at.slacks + step.primal * step.slacks,
        duals=at.duals + step.dual * step.duals,
        level=at.level + step.primal * step.dt,
        floor=at.floor + step.dual * step.floor,
        rest=(float(matrices.real), p.d.size),
    ).mu


def _step(data: _Data, state: CarefulState) -> CarefulState:
    """Take one predictor-corrector step [Mehrotra 1992]."""
    p = _scaled(data, state)
    if p is None or state.iteration >= LONGEST:
        return replace(state, stalled=True)
    mu, n = p.at.mu, p.d.size
    zero = np.zeros((n, n), dtype=data.F.dtype)
    step = _newton(p, 0.0, np.zeros_like(p.at.slacks), 0.0, zero)
    aim = mu * min(1.0, max(_reached(p, step), 0.0) / mu) ** 3
    twist = _hermitian(step.matrix @ step.dual_matrix)
    step = _newton(p, aim, aim - step.slacks * step.duals, aim - step.dt * step.floor, twist)
    backoff = 0.9 + 0.09 * min(step.primal, step.dual)
    primal, dual = backoff * step.primal, backoff * step.dual
    A = _hermitian(p.G @ (np.diag(p.d) + primal * step.matrix) @ p.G.conj().T)
    S = _hermitian(p.W @ (np.diag(p.d) + dual * step.dual_matrix) @ p.W.conj().T)
    X = sl.cholesky(A, lower=True, check_finite=False)
    z = data.residual(X)
    ratio = data.ratio(z)
    if not np.isfinite(ratio) or max(primal, dual) < 1e-6:
        return replace(state, stalled=True)
    duals = state.duals + dual * step.duals
    after = replace(
        state,
        A=A,
        S=S,
        X=X,
        # Rounding must not let the level touch the largest residual.
        level=max(state.level + primal * step.dt, ratio * (1.0 + 1e-12)),
        floor=state.floor + dual * step.floor,
        duals=duals,
        y=(duals[0] - duals[1]) / data.delta,
        max_ratio=ratio,
        iteration=state.iteration + 1,
    )
    return _judged(data, after, z)


def _judged(data: _Data, state: CarefulState, z: Real) -> CarefulState:
    """Note whether the last step was progress: of multipliers, complementarity or ratio."""
    slacks = slacks_of(data.sides, z, state.level)
    matrices = float(np.vdot(state.A, state.S).real), len(state.A)
    at = Point(data.sides, slacks, state.duals, state.level, state.floor, z, state.far, matrices)
    y = state.y if at.held is None else state.y + at.held * z / data.delta
    left = np.linalg.norm(data.F.adjoint(y) - state.S)
    scale = float(np.sum(np.abs(y))) + float(np.linalg.norm(state.S))
    imbalance = float(left) * float(np.min(data.delta)) if left > 1e-12 * scale else 0.0
    reached = at.mu, imbalance, state.max_ratio
    marks, idle = looked(state.marks, state.idle, reached, FALL)
    return replace(state, marks=marks, idle=idle, stalled=state.stalled or idle >= IDLE)
