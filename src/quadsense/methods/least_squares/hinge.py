"""Least squared misses of intervals, ``sum w d(F(A))^2``, among positive semidefinite matrices.

Newton steps on ``f(A) - mu log det A``, mu falling. Only the rows that are missed bend f, a few of
very many; in coordinates where A = I the system is I plus a sum over these. The slope of f is
``F*(y)`` for ``y = 2 w d``, which every sign and every end permits: where it is positive
semidefinite it proves that f exceeds its least value by at most ``<F*(y), A>``, and at the point of
a mu it is, as it is ``mu A^-1`` there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core import products
from quadsense.core.cholesky import (
    add_to_diagonal,
    factor_upper,
    solve_definite,
    solve_upper,
)
from quadsense.core.intervals import UNIT, Array, Intervals
from quadsense.core.matrix import EIGENVALUE_ERROR
from quadsense.core.records import cached_property
from quadsense.core.sums import OF_ERRORS
from quadsense.device import chosen, numbers, scalar, waits
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import (
    AIMED_GAP,
    DEVICE_STEPS_PER_LOOK,
    PROGRESS_SHARE,
    SHORT_STRIDE_FLOPS,
    Problem,
)
from quadsense.methods.conic.coordinates import reach
from quadsense.methods.least_squares.bounds import (
    GAP_GOAL,
    INWARD_SHARE,
    KEPT_ROOM,
    MAX_EXACT_COST,
    ROOM_GROWTH,
    ROUNDED_COST,
    SquaresVerdict,
)
from quadsense.methods.least_squares.program import Rows, power_of_four
from quadsense.methods.traits import GapOptions
from quadsense.system.watch import cholesky_flops, eigen_flops, look, real_flops


@dataclass(frozen=True)
class MissesProgram:
    """Intervals, readings and A of the size of 1.

    Attributes
    ----------
    problem : Problem
    F : Sensing
    ends : Intervals
        Those of the problem, where the rows live.
    lo, hi, w : ndarray of shape (m,)
    scale, weight : float
        What readings, and A, and what weights were divided by.
    gap, asked : float
        Relative distance of cost and bound that is aimed at, and the one that was asked for.
    """

    problem: Problem
    F: Sensing
    ends: Intervals
    lo: Vector
    hi: Vector
    w: Vector
    scale: float
    weight: float
    gap: float
    asked: float

    @property
    def n(self) -> int:
        """Order of A."""
        return self.F.n

    def misses(self, v: Vector, room: float = 0.0) -> Vector:
        """By how much readings are above their intervals, negative below, 0 inside.

        Of intervals that are narrower by a share `room`, on either side, of their half-widths.
        """
        lo, hi = self.lo, self.hi
        if room:
            inside = room * self.half
            lo, hi = lo + inside, hi - inside
        return np.maximum(v - hi, 0.0) - np.maximum(lo - v, 0.0)

    @cached_property
    def eye(self) -> Array:
        """The identity."""
        return self.F.placed(np.eye(self.n))

    @cached_property
    def half(self) -> Vector:
        """Half-widths, 1 at most."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.minimum(0.5 * (self.hi - self.lo), 1.0)

    @cached_property
    def even(self) -> tuple[Vector, Array] | None:
        """Some ``y > 0`` and Z with ``Z* F*(y) Z = I``; None where no such y is permitted."""
        y = self.w * np.isfinite(self.hi)
        E = self.F.adjoint(y)
        values, V = np.linalg.eigh(E)
        if not values[0] > 1e-9 * values[-1]:
            return None
        return y, V / np.sqrt(values)

    @cached_property
    def rest(self) -> float:
        """What A = 0 costs."""
        return float(self.w @ self.misses(np.zeros_like(self.w)) ** 2)


@dataclass(frozen=True)
class MissesState:
    """Where the iteration stands.

    Attributes
    ----------
    A : ndarray of shape (n, n)
        Positive definite.
    values : ndarray of shape (m,)
        ``F(A)``.
    cost, mu : float
    lower : float
        The best bound so far: the cost less ``<F*(y), A>`` of a point whose ``F*(y)`` was positive
        semidefinite.
    y : ndarray of shape (m,) or None
        The vector that gives it.
    gradients : int
        Conjugate gradients of the last step.
    room : float
        By how much narrower intervals are aimed at, once it seems that all can be met.
    verdict : SquaresVerdict
    iteration : int
    left, marked : float, int
        The distance of cost and bound when it last fell, and when that was.
    max_ratio : float
    """

    A: Array
    values: Vector
    cost: float
    mu: float
    lower: float = 0.0
    y: Vector | None = None
    gradients: int = 0
    room: float = 0.0
    verdict: SquaresVerdict = SquaresVerdict.OPEN
    iteration: int = 0
    left: float = np.inf
    marked: int = 0
    max_ratio: float = np.inf


def prepare(problem: Problem) -> MissesProgram | None:
    """The program; None where the question is another, or has constraints."""
    question = problem.question
    if question is None or not question.psd:
        return None
    if not (question.term.soft and question.term.power == 2):  # misses, squared
        return None
    live = (to_numpy(problem.rows.nonzero) > 0.0) & (question.weights > 0.0)
    if question.hard.any() or question.alpha or question.linear:
        return None
    ends = np.concatenate([question.lo[live], question.hi[live]])
    ends = np.abs(ends[np.isfinite(ends)])
    if not ends.any() or not np.isfinite(question.weights).all():
        return None
    scale = power_of_four(float(np.median(ends[ends > 0.0])))
    w = np.where(live, question.weights, 0.0)
    weight = power_of_four(float(w.max()))
    F = problem.rows.at_work()
    there = problem.ends.each(F.placed) if F.waits else problem.ends
    asked = gap = float(getattr(problem.options, "gap", GapOptions.gap))
    if step_flops(F) + min(system_flops(F, 0.5 * F.m)) <= SHORT_STRIDE_FLOPS:
        gap = min(gap, GAP_GOAL)
    lo, hi = np.where(live, question.lo, -np.inf), np.where(live, question.hi, np.inf)
    lo, hi, w = map(F.placed, (lo / scale, hi / scale, w / weight))
    return MissesProgram(problem, F, there, lo, hi, w, scale, weight, AIMED_GAP * gap, asked)


def step_flops(F: Sensing) -> float:
    """About what a step costs at least."""
    return 2.0 * (product_flops(F, F.raw.m) + real_flops(F.is_complex) * eigen_flops(F.n))


GRADIENT_RESIDUAL = 0.2
"""Relative residual of conjugate gradients."""

MAX_GRADIENTS = 300
"""Conjugate gradients of a step at most: then the step is what they have found."""

GRADIENT_GROWTH, MIN_EXPECTED_GRADIENTS = 1.5, 10.0
"""Conjugate gradients expected: that many times those of the last step, and at least."""


def product_flops(F: Sensing, k: int) -> float:
    """What ``F(A)`` on that many rows costs, or its transpose."""
    return 2.0 * real_flops(F.is_complex) * k * float(F.n) ** 2


def system_flops(F: Sensing, k: float) -> tuple[float, float]:
    """What a factorisation costs with k rows missed: by their inner products, or packed."""
    n, size = float(F.n), float(F.unknowns)
    few = real_flops(F.is_complex) * k * k * n + cholesky_flops(k)
    return few, k * size * size + cholesky_flops(size)


def newton(
    F: Sensing, rows: Rows, weights: Vector, L: Array, R: Array, gradients: int
) -> tuple[Array, int]:
    """D of ``D + sum_i weights_i <p_i p_i*, D> p_i p_i* = R`` with ``p_i = L* v_i``.

    By the rows' inner products where they are few, on packed matrices where these are small, else
    by conjugate gradients, if not much more of them are to be expected than in the last step.
    How many there were, or would be as it seems, comes along.
    """
    if rows.size == 0:
        return R, gradients
    n, size = L.shape[0], F.unknowns
    few, small = system_flops(F, float(rows.size))
    expected = max(MIN_EXPECTED_GRADIENTS, GRADIENT_GROWTH * gradients)
    chosen = F.only(rows)
    product = 2.0 * product_flops(F, rows.size)
    if not F.rank_one or min(few, small) > expected * product:
        return _by_gradients(chosen, weights, L, R)
    held = chosen.rows()
    held = held if waits(L) else to_numpy(held)
    P = (held * np.sqrt(np.sqrt(weights))[:, None]) @ L.conj()
    look(min(few, small))
    if few <= small:
        K = np.abs(P @ P.conj().T) ** 2
        add_to_diagonal(K, 1.0)
        right = np.sum(P.conj() @ R * P, axis=1).real
        c = solve_definite(K, right)
        return R - (P * c[:, None]).T @ P.conj(), gradients
    M = products.normal_matrix(np.array_split(P, 1 + len(P) // products.FEATURE_ROWS), size, float)
    add_to_diagonal(M, 1.0)
    U, info = factor_upper(M)
    if info != 0:
        return _by_gradients(chosen, weights, L, R)
    return products.unpack(solve_upper(U, products.pack(R)), n, L.dtype), gradients


def _by_gradients(F: Sensing, weights: Vector, L: Array, R: Array) -> tuple[Array, int]:
    """The same, roughly, and in how many steps."""
    adjoint = L.conj().T
    D, left = np.zeros_like(R + 0.0 * L), R + 0.0 * L
    looks = DEVICE_STEPS_PER_LOOK if waits(L) else 1
    direction, size = left, scalar(np.vdot(left, left).real)
    enough = max(GRADIENT_RESIDUAL**2 * size, UNIT**2)
    for count in range(MAX_GRADIENTS):
        if count % looks == 0 and size <= enough:
            break
        look()
        image = F.forward(L @ direction @ adjoint)
        curved = direction + adjoint @ F.adjoint(weights * image) @ L
        t = size / scalar(np.vdot(direction, curved).real)
        D, left = D + t * direction, left - t * curved
        size, last = scalar(np.vdot(left, left).real), size
        direction = left + (size / last) * direction
    return D, count


MU_FACTOR = 0.1
"""mu over the last one: 0.05 to 0.15 took the same time, less more steps each."""

NEAR_DECREMENT = 2.0
"""Newton decrement below which mu falls: the next steps centre as well as they reduce."""

LAST_GAP_SHARE = 0.7
"""Share of the gap that the last mu is to leave: the rest is for a point not quite its own."""

MAX_STEP, BACKOFF = 4.0, 0.98
"""Newton steps along a direction at most, and share of the way to the boundary of the cone."""

SEARCH_HALVINGS = 14
"""Halvings of the exact line search."""

MAX_IDLE_STEPS = 25
"""Steps without a smaller gap that mean rounding: centring takes up to five."""

MAX_STEPS = 200
"""Steps: seen 12 to 60."""


def start(program: MissesProgram) -> MissesState:
    """A multiple of I whose readings have the size of the ends."""
    A = program.eye.astype(np.dtype(program.F.dtype))
    state = _at(program, MissesState(A, np.zeros(0), np.inf, np.inf), program.F.forward(A))
    return _judged(program, replace(state, mu=state.cost / program.n))


def _at(program: MissesProgram, state: MissesState, values: Vector) -> MissesState:
    ends, miss = program.ends, program.misses(values)
    with np.errstate(all="ignore"):
        ratios = ends.ratios(program.scale * values - ends.reading)
    largest = np.max(ratios, where=np.isfinite(ratios), initial=0.0)
    cost, worst = numbers(program.w @ miss**2, largest)
    return replace(state, values=values, cost=cost, max_ratio=worst)


def advance(program: MissesProgram, state: MissesState, steps: int) -> MissesState:
    """Return the state after at most `steps` more Newton steps."""
    for _ in range(steps):
        if state.verdict is not SquaresVerdict.OPEN:
            break
        state = _judged(program, _step(program, state))
    return state


def tightened(state: MissesState) -> MissesState:
    """Further inside the intervals, where rounding spoilt what seemed to be a fit."""
    room = ROOM_GROWTH * max(state.room, INWARD_SHARE)
    return replace(state, room=room, verdict=SquaresVerdict.OPEN)


def _pulling(program: MissesProgram, values: Vector, room: float = 0.0) -> tuple[Rows, Vector]:
    """Rows that are missed, and y there."""
    miss = program.misses(values, room)
    (rows,) = np.nonzero(miss * program.w)  # which stay where the rows are
    return rows, 2.0 * program.w[rows] * miss[rows]


def dual(program: MissesProgram, state: MissesState) -> Vector:
    """y for the unit rows, in the user's scale."""
    if state.y is None:
        return np.zeros(program.w.size)
    return np.asarray(program.weight * program.scale * state.y)


def _judged(program: MissesProgram, state: MissesState) -> MissesState:
    """What the slope proves, and whether that is enough."""
    within = not np.any(program.w * program.misses(state.values, KEPT_ROOM * state.room))
    if within or (state.room and 0.0 < state.cost <= ROUNDED_COST * program.rest):
        return replace(state, lower=0.0, y=None, verdict=SquaresVerdict.OPTIMAL)
    L = _root(state.A)
    if L is None or not np.isfinite(state.cost) or state.iteration >= MAX_STEPS:
        return replace(state, verdict=SquaresVerdict.STALLED)
    inside = _slope(program, state, L)
    gap = float(np.trace(inside).real)
    eigenvalues = np.linalg.eigvalsh(inside)
    positive = float(eigenvalues[0]) >= -EIGENVALUE_ERROR * program.n * float(eigenvalues[-1])
    if positive and state.iteration == 0:
        first = max(gap / (MU_FACTOR * program.n), UNIT * state.mu)
        state = replace(state, mu=min(state.mu, first))
    y, bound = _proved(program, state, positive)
    if bound > state.lower:
        state = replace(state, lower=bound, y=y)
    zero = state.cost <= MAX_EXACT_COST * program.rest and state.lower <= 0.5 * state.cost
    if zero != (state.room > 0.0):
        state = replace(state, room=INWARD_SHARE if zero else 0.0)
    left = state.cost - state.lower
    if left <= program.gap * state.cost:
        return replace(state, verdict=SquaresVerdict.OPTIMAL)
    if left < PROGRESS_SHARE * state.left:
        return replace(state, left=left, marked=state.iteration)
    if state.iteration - state.marked > MAX_IDLE_STEPS:  # rounding
        enough = left <= program.asked * state.cost
        return replace(state, verdict=SquaresVerdict.OPTIMAL if enough else SquaresVerdict.STALLED)
    return state


def _proved(program: MissesProgram, state: MissesState, positive: bool) -> tuple[Vector, float]:
    """y with ``F*(y)`` positive semidefinite, and its bound ``-sum y^2/(4 w) + end y``.

    Where that of the misses is not, as much of another is added as makes it so.
    """
    rows, pull = _pulling(program, state.values, state.room)
    y = np.zeros_like(program.w)
    y[rows] = pull
    if not positive:
        even = program.even
        if even is None:
            return y, -np.inf
        more, Z = even
        T = program.F.only(rows).adjoint(pull) if rows.size else np.zeros_like(Z)
        least = float(np.linalg.eigvalsh(Z.conj().T @ T @ Z)[0])
        y = y + max(0.0, -least) * OF_ERRORS * more
        (rows,) = np.nonzero(y)
    y_ = y[rows]
    ends = np.where(y_ > 0.0, program.hi[rows], program.lo[rows])
    return y, -float(np.sum(y_ * (0.5 * (0.5 * y_ / program.w[rows]) + ends)))


def _root(A: Array) -> Array | None:
    """L of ``A = L L*``; None where rounding has spoilt A."""
    try:
        return np.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        return None


def root_of(A: Array) -> Array:
    """Return X of ``A = X X*``, without what rounding has made negative."""
    L = _root(A)
    if L is not None:
        return L
    values, V = np.linalg.eigh(A)
    return V * np.sqrt(np.maximum(values, 0.0))


def _slope(program: MissesProgram, state: MissesState, L: Array) -> Array:
    """``L* F*(y) L``."""
    rows, pull = _pulling(program, state.values, state.room)
    if rows.size == 0:
        return np.zeros_like(L)
    T = program.F.only(rows).adjoint(pull)
    inside = L.conj().T @ T @ L
    return 0.5 * (inside + inside.conj().T)


def _step(program: MissesProgram, state: MissesState) -> MissesState:
    """One Newton step for this mu, or for the next where the point of this one is near."""
    F, n, eye = program.F, program.n, program.eye
    look(step_flops(F))
    L = _root(state.A)
    if L is None:
        return replace(state, verdict=SquaresVerdict.STALLED)
    slope, mu = _slope(program, state, L), state.mu
    if float(np.linalg.norm(eye - slope / mu)) < NEAR_DECREMENT:
        mu = min(mu, max(MU_FACTOR * mu, LAST_GAP_SHARE * program.gap * state.cost / n))
    rows, _ = _pulling(program, state.values, state.room)
    weights = 2.0 / mu * program.w[rows]
    D, gradients = newton(F, rows, weights, L, eye - slope / mu, state.gradients)
    D = 0.5 * (D + D.conj().T)
    change = L @ D @ L.conj().T
    along = F.forward(change)
    t = _longest(program, state, along, np.linalg.eigvalsh(D), mu)
    A = state.A + t * change
    # Every few steps anew from A, as sums of changes round.
    iteration = state.iteration + 1
    values = state.values + t * along if iteration % 8 else F.forward(A)
    state = replace(state, A=A, mu=mu, iteration=iteration, gradients=gradients)
    return _at(program, state, values)


def _longest(
    program: MissesProgram, state: MissesState, along: Vector, eigenvalues: Any, mu: float
) -> Any:
    """The t of the least value along a direction; on a device it stays there."""

    def slope(t: Any) -> Any:
        pull = 2.0 * program.w * program.misses(state.values + t * along, state.room)
        return scalar(pull @ along) / mu - scalar(np.sum(eigenvalues / (1.0 + t * eigenvalues)))

    low: Any = 0.0
    high: Any = min(MAX_STEP, BACKOFF * float(reach(1.0, eigenvalues)))
    if slope(high) <= 0.0:
        return high
    for _ in range(SEARCH_HALVINGS):
        middle = 0.5 * (low + high)
        above = slope(middle) > 0.0
        low, high = chosen(above, low, middle), chosen(above, middle, high)
    return 0.5 * (low + high)
