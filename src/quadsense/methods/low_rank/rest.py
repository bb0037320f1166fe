"""Least squares of a factored fit brought to rest: its last digits, and whether it is at rest.

Equalities are met to rounding by Newton's method on as many equations; ends of other rows that
least squares presses on are held like these. Every step is the best of a quadratic model within a
radius that its truth decides. It keeps what is held to first order, and Newton's method on what is
held follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from quadsense.core.intervals import ZERO_SHARE
from quadsense.core.products import real_units
from quadsense.methods.equalities import MAX_EQUALITIES
from quadsense.methods.low_rank.passes import FactorPoint, evaluate, rounding_bound
from quadsense.methods.low_rank.program import MAX_DENSE_UNKNOWNS, LowRankProgram, Matrix, Vector
from quadsense.methods.low_rank.steps import (
    Indices,
    as_real,
    derivative,
    flat,
    jacobian,
    shortened,
    turned,
)
from quadsense.system.watch import eigen_flops, look

# Bounds on the rounding of a residual up to which it is one, relative to the factor's own rounding.
MAX_ROUNDINGS = 4.0
# Newton steps on equalities alone: they converge quadratically.
MAX_CORRECTIONS = 8


@dataclass(frozen=True)
class HeldReadings:
    """Rows that are to be met exactly, and the residuals that they are to have.

    Attributes
    ----------
    index : (k,) int
    goal : (k,) float64
    side : (k,) float64
        0 for an equality, 1 for an upper end, -1 for a lower one: an end holds to one side only.
    """

    index: npt.NDArray[np.intp]
    goal: Vector
    side: Vector

    def joined(self, other: HeldReadings) -> HeldReadings:
        """The same and others after it."""
        return HeldReadings(
            np.concatenate([self.index, other.index]),
            np.concatenate([self.goal, other.goal]),
            np.concatenate([self.side, other.side]),
        )

    def without(self, which: int) -> HeldReadings | None:
        """Return the same without one; None where none is left."""
        kept = np.arange(self.index.size) != which
        return (
            HeldReadings(self.index[kept], self.goal[kept], self.side[kept]) if kept.any() else None
        )


def corrected(problem: LowRankProgram, point: FactorPoint, theta: float) -> FactorPoint:
    """Return the point with equalities met to rounding, by the smallest such changes of X.

    Without a tolerance, what else must hold and does not is met at its end.
    """
    held = to_hold(problem, point)
    return point if held is None else moved_onto(problem, point, held, theta)


def pressing(
    problem: LowRankProgram, point: FactorPoint, held: HeldReadings | None
) -> HeldReadings | None:
    """Return what is held and whatever else presses by now; None where nothing does."""
    now = to_hold(problem, point)
    if now is None or held is None:
        return now
    new = ~np.isin(now.index, held.index)
    if not new.any():
        return None
    return held.joined(HeldReadings(now.index[new], now.goal[new], now.side[new]))


def to_hold(problem: LowRankProgram, point: FactorPoint) -> HeldReadings | None:
    """Return the rows to be met exactly; None where there are none, or too many.

    Equalities, and without a tolerance what else must hold and presses.
    """
    bounds, z = problem.bounds, point.z
    if bounds is None:
        return None
    equal = np.zeros(z.size, bool) if bounds.equal is None else bounds.equal
    goal, sides = np.zeros(z.size), np.zeros(z.size)
    if not problem.target and bounds.told is not None:
        # A constraint that presses: met a little inside, for its rounding to stay so.
        room = MAX_ROUNDINGS * rounding_bound(problem, point.Y)
        for side, end in ((1.0, bounds.above), (-1.0, bounds.below)):
            presses = ~bounds.told & ~equal & (side * z > end - 2.0 * room)
            goal = np.where(presses, side * (end - room), goal)
            sides = np.where(presses, side, sides)
            equal = equal | presses
    index = np.flatnonzero(equal)
    return (
        HeldReadings(index, goal[index], sides[index]) if 0 < index.size <= MAX_EQUALITIES else None
    )


def moved_onto(
    problem: LowRankProgram, point: FactorPoint, held: HeldReadings, theta: float
) -> FactorPoint:
    """Return the point after Newton's method on what is held, as far as that leads nearer."""
    index, goal = held.index, held.goal
    for _ in range(MAX_CORRECTIONS):
        miss = goal - point.z[index]
        if np.all(MAX_ROUNDINGS * np.abs(miss) <= rounding_bound(problem, point.Y)[index]):
            break
        D = np.linalg.lstsq(derivative(problem, point, index), miss, rcond=ZERO_SHARE)[0]
        Y = point.Y + shortened(point.Y, D.view(point.Y.dtype).reshape(point.Y.shape))
        trial = evaluate(problem, turned(problem, Y), theta)
        if not float(np.max(np.abs(goal - trial.z[index]))) < float(np.max(np.abs(miss))):
            break
        point = trial
    return point


@dataclass(frozen=True)
class Model:
    """The loss near a point, ``const - right.x + x.curved x / 2``.

    Attributes
    ----------
    right : (q,) float64
    H, curved : (q, q) float64
        ``J^T J``, and the second derivative itself.
    N : (size, q) float64 or None
        The changes of the factor are ``N x``; None: x is all of them.
    """

    right: Vector
    H: Matrix
    curved: Matrix
    N: Matrix | None

    def step(self, point: FactorPoint, x: Vector) -> Matrix:
        """The change of the factor at that point."""
        whole = np.ascontiguousarray(x if self.N is None else self.N @ x)
        return whole.view(point.Y.dtype).reshape(point.Y.shape)


def model_of(problem: LowRankProgram, point: FactorPoint, held: HeldReadings | None) -> Model:
    """Return the loss to second order along changes that keep what is held, and change A.

    Notes
    -----
    The second derivative of the loss is ``J^T J`` and, for every row of Y, ``2 s_k F*(y)`` with y
    the derivative of the loss by the readings; with equalities the Lagrangian's, whose multipliers
    are part of y.
    """
    counts = np.flatnonzero(point.excess)
    J: Any = jacobian(problem, point, counts if counts.size < point.z.size else None)
    H = np.array(J.T @ J if isinstance(J, np.ndarray) else (J.T @ J).toarray(), dtype=np.float64)
    slope, y = flat(point.gradient), problem.weight * point.excess
    signs = problem.signs_of(len(point.Y))
    fixed = _turns(point.Y, signs)
    if held is not None:
        E = derivative(problem, point, held.index)
        y = y.copy()
        y[held.index] -= np.linalg.lstsq(E.T, slope, rcond=ZERO_SHARE)[0]
        fixed = np.concatenate([fixed, E])
    N: Matrix | None = None
    if fixed.size:
        _, sizes, axes = np.linalg.svd(fixed, full_matrices=True)
        kept = int(np.count_nonzero(sizes > ZERO_SHARE * float(sizes.max(initial=0.0))))
        N = axes[kept:].T  # directions that change A, and nothing of what is held
    G = as_real(problem.F.adjoint(y))
    curved = H.copy()
    for k in range(len(point.Y)):
        part = slice(k * len(G), (k + 1) * len(G))
        curved[part, part] += (2.0 if signs is None else 2.0 * float(signs[k])) * G
    right = -slope
    if N is not None:
        H, curved, right = N.T @ H @ N, N.T @ curved @ N, N.T @ right
    return Model(right, H, curved, N)


def _turns(Y: Matrix, signs: Vector | None) -> Matrix:
    """Return the changes of Y that leave ``Y^T S conj(Y)`` as it is, one per row, as real numbers.

    They are ``K Y`` with ``K_ji = -s_i s_j conj(K_ij)``: without their loss of definiteness a
    second derivative could not be told from one at a saddle.
    """
    s = np.ones(len(Y)) if signs is None else signs
    parts = real_units(np.iscomplexobj(Y))
    turns = []
    for i in range(len(Y)):
        for j in range(i, len(Y)):
            for part in parts if j > i else parts[1:]:
                D = np.zeros_like(Y)
                D[i] = part * Y[j]
                if j > i:
                    D[j] = -s[i] * s[j] * np.conj(part) * Y[i]
                turns.append(flat(D))
    size = Y.size * (2 if np.iscomplexobj(Y) else 1)
    return np.array(turns) if turns else np.empty((0, size))


MAX_SLOPE_AT_REST = 1e-6
"""Slope of least squares, in units of what bounds it, that counts as none."""

MAX_ENTRIES = 5_000_000
"""Of a derivative, up to which equations are formed."""


def is_settled(problem: LowRankProgram, point: FactorPoint) -> bool:
    """Whether least squares is at rest: no slope, or no residual, but what is rounding.

    Equalities are held by forces of their own: what of the slope these can balance is none.
    """
    if fits_exactly(problem, point):
        return True
    held = to_hold(problem, point)
    if held is None:
        return rests(problem, point, None)
    free = beside_held(problem, held)
    return rests(free, evaluate(free, point.Y, 0.0), held)


def rests(problem: LowRankProgram, point: FactorPoint, held: HeldReadings | None) -> bool:
    """Whether no slope is left but what the held can balance, or the rounding of residuals.

    The last is what there is of it where rows weigh so much that their least digits outweigh all
    others: the point is at rest for readings that differ from these by rounding only.
    """
    slope = _unbalanced(problem, point, held)
    if _in_units(problem, point, float(np.linalg.norm(slope))) <= MAX_SLOPE_AT_REST:
        return True
    if slope.size * point.z.size > MAX_ENTRIES:
        return False
    J = derivative(problem, point, np.arange(point.z.size))
    room = MAX_ROUNDINGS * problem.weight * rounding_bound(problem, point.Y)
    E = (room[:, None] * J).T  # what each can do at most
    if held is not None:
        E = E - _along(derivative(problem, point, held.index), E)
    shares = np.linalg.lstsq(E, slope, rcond=ZERO_SHARE)[0]
    left = slope - E @ np.clip(shares, -1.0, 1.0)
    return _in_units(problem, point, float(np.linalg.norm(left))) <= MAX_SLOPE_AT_REST


def fits_exactly(problem: LowRankProgram, point: FactorPoint) -> bool:
    """Whether no residual is more than rounding: that of its evaluation, and of the factor."""
    return bool(np.all(np.abs(point.excess) <= MAX_ROUNDINGS * rounding_bound(problem, point.Y)))


def beside_held(problem: LowRankProgram, held: HeldReadings) -> LowRankProgram:
    """Return the problem with what is held weighing nothing."""
    weight = problem.weight.copy()
    weight[held.index] = 0.0
    most = float(weight.max())
    return problem if not most > 0.0 else problem.weighed(weight / most)


def relative_slope(problem: LowRankProgram, point: FactorPoint, held: HeldReadings | None) -> float:
    """Return the slope of the loss in units of what bounds it, by Cauchy and Schwarz.

    Not of its terms alone: where a reading cannot be reached, and the factor reads next to nothing
    there, the one term that is left vanishes with it.
    """
    slope = flat(point.gradient)
    if held is not None:
        slope = slope - _along(derivative(problem, point, held.index), slope)
    return _in_units(problem, point, float(np.linalg.norm(slope)))


def _along(E: Matrix, vectors: Matrix) -> Matrix:
    """Return what of vectors is combined of the rows of E."""
    return np.asarray(E.T @ np.linalg.lstsq(E.T, vectors, rcond=ZERO_SHARE)[0])


def _in_units(problem: LowRankProgram, point: FactorPoint, slope: float) -> float:
    """Return the size of a slope in units of what bounds it, less what rounding makes of it.

    Where a factor is one that no row sees, what it reads is rounding, and so is the slope.
    """
    pulls = 2.0 * float(np.linalg.norm(problem.F.unmixed(problem.weight * point.excess)))
    eps = float(np.finfo(np.float64).eps)
    blur = MAX_ROUNDINGS * point.Y.shape[1] * eps * pulls * float(np.linalg.norm(point.Y))
    return max(slope - blur, 0.0) / (pulls * float(np.linalg.norm(point.P)) or 1.0)


def _unbalanced(problem: LowRankProgram, point: FactorPoint, held: HeldReadings | None) -> Vector:
    """Return the slope that the held cannot balance: ends can push inwards only."""
    slope = flat(point.gradient)
    if held is None:
        return slope
    ends, E = held.side != 0.0, derivative(problem, point, held.index)
    pushes = (-held.side[ends, None] * E[ends]).T
    if not ends.all():
        slope = slope - _along(E[~ends], slope)
        pushes = pushes - _along(E[~ends], pushes)
    if not ends.any():
        return slope
    sizes = np.linalg.norm(pushes, axis=0)
    pushes = pushes / np.where(sizes > 0.0, sizes, 1.0)
    unit = float(np.linalg.norm(slope)) or 1.0
    return np.asarray(slope - unit * (pushes @ nnls(pushes, slope / unit)[0]))


# Halvings of the interval in which the shift is sought: to rounding.
MAX_HALVINGS = 60
# Distance from the least shift, relative to it, at which the least curvature is next to none.
MIN_SHIFT_GAP = 1e-9


class Trusted:
    """``min -right.x + x.curved x / 2`` over ``||x|| <= radius``, for any radius.

    Notes
    -----
    ``(curved + shift I) x = right`` with the least shift, not negative, for which the matrix is
    positive semidefinite and x within the radius [Nocedal & Wright 2006, Thm. 4.1]. Where no shift
    makes x long enough, what is missing leads along the eigenvector of the least curvature.
    """

    def __init__(self, right: Vector, curved: Matrix) -> None:
        self.values, self.vectors = np.linalg.eigh(curved)
        self.right = self.vectors.T @ right

    def step(self, radius: float) -> tuple[Vector, float]:
        """The step, and what the model says that it gains."""
        values, right = self.values, self.right
        size = float(np.linalg.norm(right))
        tiny = float(np.finfo(np.float64).eps) * float(np.abs(values).max(initial=0.0))
        low = max(0.0, tiny - float(values[0]))
        first = low
        x = right / (values + low) if low > 0.0 or values[0] > 0.0 else right * 0.0
        if float(np.linalg.norm(x)) > radius:
            high = low + size / radius
            for _ in range(MAX_HALVINGS):
                shift = 0.5 * (low + high)
                x = right / (values + shift)
                low, high = (shift, high) if float(np.linalg.norm(x)) > radius else (low, shift)
            low = high
            x = right / (values + low)
        if (
            values[0] < -tiny and low - first < MIN_SHIFT_GAP * first
        ):  # where digits of the shift run out
            missing = max(radius**2 - float(x[1:] @ x[1:]), 0.0)
            x[0] = np.copysign(np.sqrt(missing), right[0])
        gain = float(right @ x) - 0.5 * float(values @ (x * x))
        return np.asarray(self.vectors @ x), gain


SLOPE_GOAL = 1e-9
"""Slope of least squares, in units of what bounds it, that is aimed at."""

MAX_HIDDEN_GAIN = 1e-13
"""Share of the loss below which rounding hides a gain: then the slope decides."""

# Trusted steps at most, the first radius of these and the least, in units of the factor.
MAX_TRUSTED_STEPS, FIRST_RADIUS, MIN_RADIUS = 100, 1.0, 1e-12
# Shares of what the model promises below which its radius is shrunk, by that share of the step, and
# above which it grows.
MIN_TRUE_SHARE, GOOD_TRUE_SHARE = 0.25, 0.75


def after_walk(
    problem: LowRankProgram,
    free: LowRankProgram,
    point: FactorPoint,
    loss: FactorPoint,
    held: HeldReadings | None,
) -> tuple[FactorPoint, FactorPoint, bool]:
    """Return the point after trusted steps, its cost besides the held rows, and if it is at rest.

    They are Newton's where the model is definite and near the truth, which decides how far a step
    may go; they lead on where curvatures are of either sign, or none.
    """
    unit = float(np.linalg.norm(point.Y)) or 1.0
    radius, slope = FIRST_RADIUS * unit, relative_slope(free, loss, held)
    model = None
    for _ in range(MAX_TRUSTED_STEPS):
        if slope <= SLOPE_GOAL or fits_exactly(free, loss):
            return point, loss, True
        if radius < MIN_RADIUS * unit:
            break
        if model is None:
            model = model_of(free, loss, held)
            if not model.right.size:  # what is held leaves nothing free
                break
            look(eigen_flops(len(model.right)))
            trusted = Trusted(model.right, model.curved)
        x, gain = trusted.step(radius)
        D = shortened(point.Y, model.step(point, x))
        trial, beside = _moved(problem, free, point.Y + D, held)
        true, length = loss.value - beside.value, float(np.linalg.norm(x))
        hidden = abs(true) <= MAX_HIDDEN_GAIN * loss.value
        better = _is_better(free, beside, loss, held, slope)
        if not better or (true < MIN_TRUE_SHARE * gain and not hidden):
            radius = MIN_TRUE_SHARE * length
        elif true > GOOD_TRUE_SHARE * gain and length > GOOD_TRUE_SHARE * radius:
            radius /= MIN_TRUE_SHARE
        if better:
            point, loss, model = trial, beside, None
            slope = relative_slope(free, loss, held)
    return point, loss, False


def _moved(
    problem: LowRankProgram, free: LowRankProgram, Y: Matrix, held: HeldReadings | None
) -> tuple[FactorPoint, FactorPoint]:
    """Return the point there, moved onto what is held, and what it costs besides that."""
    trial = evaluate(problem, turned(problem, Y), 0.0)
    if held is None:
        return trial, trial
    trial = moved_onto(problem, trial, held, 0.0)
    return trial, evaluate(free, trial.Y, 0.0)


def _is_better(
    free: LowRankProgram,
    trial: FactorPoint,
    loss: FactorPoint,
    held: HeldReadings | None,
    slope: float,
) -> bool:
    """Whether the loss is less, or, where rounding hides that, its slope."""
    hidden = abs(trial.value - loss.value) <= MAX_HIDDEN_GAIN * loss.value
    return relative_slope(free, trial, held) < slope if hidden else trial.value < loss.value


# Residual, where readings are at most 1, that is next to none; how much more a row weighs that
# outweighs others; and how often what it is to read is found anew.
MAX_HEAVY_RESIDUAL, MIN_HEAVY_RATIO, MAX_HEAVY_ROUNDS = 1e-5, 1e3, 4
# How often a constraint is added to those held, or let go.
MAX_HELD_SETS = 12


def settled(problem: LowRankProgram, point: FactorPoint) -> FactorPoint:
    """Return a point of no larger least squares among those that meet the equalities, at rest.

    Notes
    -----
    Penalties bring least squares near equalities only, and Gauss-Newton steps creep where much is
    left over. From there Newton steps that keep the equalities to first order, each followed by
    Newton's method on these, lead to where no slope is left that they do not hold.
    """
    held = to_hold(problem, point)
    size = point.Y.size * (2 if np.iscomplexobj(point.Y) else 1)
    if size > MAX_DENSE_UNKNOWNS or size * max(problem.F.m, problem.F.raw.m) > MAX_ENTRIES:
        return point if held is None else moved_onto(problem, point, held, 0.0)
    best: FactorPoint | None = None
    released: list[int] = []
    for _ in range(MAX_HELD_SETS):
        free, loss = problem, point
        if held is not None:
            point, free = moved_onto(problem, point, held, 0.0), beside_held(problem, held)
            loss = evaluate(free, point.Y, 0.0)
        point, loss, still = _with_idle_rows_dropped(problem, free, point, loss, held)
        more = None if still else pressing(problem, point, held)
        if not still and more is None:
            point, loss, still = _with_heavy_rows_held(problem, free, point, loss, held)
            more = pressing(problem, point, held)
        best = point if best is None or point.value < best.value else best
        if more is not None:
            held = more
        elif still:
            if held is None or rests(free, loss, held):
                more = pressing(problem, point, held)
                if more is None:
                    return point
                held = more  # it was let go, and leads outwards all the same
                continue
            wrong = _wrongly_held(free, loss, held, released)
            if wrong is None:
                break
            released.append(int(held.index[wrong]))
            held = held.without(wrong)
        else:
            break
    return point if best is None else best


def _with_idle_rows_dropped(
    problem: LowRankProgram,
    free: LowRankProgram,
    point: FactorPoint,
    loss: FactorPoint,
    held: HeldReadings | None,
) -> tuple[FactorPoint, FactorPoint, bool]:
    """Return what `after_walk` does, rows of Y that serve for nothing dropped one by one."""
    for _ in range(len(point.Y) + 1):
        point, loss, still = after_walk(problem, free, point, loss, held)
        dropped = _without_idle_rows(problem, free, point, loss, held)
        if dropped is None:
            break
        point, loss = dropped
    return point, loss, still


def _with_heavy_rows_held(
    problem: LowRankProgram,
    free: LowRankProgram,
    point: FactorPoint,
    loss: FactorPoint,
    held: HeldReadings | None,
) -> tuple[FactorPoint, FactorPoint, bool]:
    """Return the same, rows that outweigh all others being held at what these leave.

    Their digits would drown what the others ask for: of these alone a slope is known. What their
    pull is to balance says where the heavy ones come to rest.
    """
    heavy = _heavy_rows(free, loss, held)
    goal = loss.z[heavy]
    for _ in range(MAX_HEAVY_ROUNDS if heavy.size else 0):
        both = HeldReadings(heavy, goal, np.zeros(heavy.size))
        if held is not None:
            both = both.joined(held)
        light = beside_held(free, both)
        found = moved_onto(problem, point, both, 0.0)
        beside = evaluate(light, found.Y, 0.0)
        found, beside, _ = after_walk(problem, light, found, beside, both)
        after = found if held is None else evaluate(free, found.Y, 0.0)
        if after.value > loss.value * (1.0 + MAX_HIDDEN_GAIN):
            break
        point, loss = found, after
        if relative_slope(free, loss, held) <= SLOPE_GOAL or rests(free, loss, held):
            return point, loss, True
        E = derivative(problem, found, both.index)
        forces = -np.linalg.lstsq(E.T, flat(beside.gradient), rcond=ZERO_SHARE)[0][: heavy.size]
        unit = float(np.max(np.delete(free.weight, both.index), initial=0.0)) or 1.0
        goal = forces * unit / free.weight[heavy]
    return point, loss, False


def _heavy_rows(problem: LowRankProgram, loss: FactorPoint, held: HeldReadings | None) -> Indices:
    """Return rows of next to no residual that weigh far more than all that have some."""
    small = np.abs(loss.excess) <= MAX_HEAVY_RESIDUAL
    most = float(np.max(problem.weight[~small], initial=0.0))
    heavy = small & (problem.weight > MIN_HEAVY_RATIO * most) & (problem.weight > 0.0)
    if problem.bounds is not None and problem.bounds.told is not None:
        heavy &= problem.bounds.told  # what must hold presses or does not
    if held is not None:
        heavy[held.index] = False
    return np.flatnonzero(heavy) if most > 0.0 else np.flatnonzero(heavy)[:0]


def _without_idle_rows(
    problem: LowRankProgram,
    free: LowRankProgram,
    point: FactorPoint,
    loss: FactorPoint,
    held: HeldReadings | None,
) -> tuple[FactorPoint, FactorPoint] | None:
    """Return the same without rows of Y that the loss is no worse without; None: there are none.

    Such a row goes to zero ever more slowly, and its slope, in units of it, stays what it is: zero
    itself is the place of rest.
    """
    shrinks = np.flatnonzero(np.sum((loss.gradient * loss.Y.conj()).real, axis=1) > 0.0)
    for rows in (shrinks, *shrinks) if shrinks.size else ():
        Y = point.Y.copy()
        Y[rows] = 0.0
        trial = evaluate(problem, Y, 0.0)
        if held is not None:
            trial = moved_onto(problem, trial, held, 0.0)
            miss = np.abs(held.goal - trial.z[held.index])
            if np.any(miss > rounding_bound(problem, trial.Y)[held.index]):
                continue
        beside = trial if held is None else evaluate(free, trial.Y, 0.0)
        if beside.value <= loss.value:
            return trial, beside
    return None


def _wrongly_held(
    problem: LowRankProgram, point: FactorPoint, held: HeldReadings, released: list[int]
) -> int | None:
    """Return the held end, never let go, that the loss would most leave inwards; None without."""
    E = derivative(problem, point, held.index)
    forces = np.linalg.lstsq(E.T, flat(point.gradient), rcond=ZERO_SHARE)[0]
    gains = held.side * forces * np.linalg.norm(E, axis=1)
    gains[np.isin(held.index, released)] = 0.0
    wrong = int(np.argmax(gains))
    return wrong if gains[wrong] > 0.0 else None
