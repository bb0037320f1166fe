"""Least squared misses of intervals, ``sum w d(F(A))^2``, among positive semidefinite matrices.

Newton steps on ``f(A) - mu log det A``, mu falling. Only the rows that are missed bend f, a few of
very many; in coordinates where A = I the system is I plus a sum over these. The slope of f is
``F*(y)`` for ``y = 2 w d``, which every sign and every end permits: where it is positive
semidefinite it proves that f exceeds its least value by at most ``<F*(y), A>``, and at the point of
a mu it is, as it is ``mu A^-1`` there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from quadsense.arrays import Vector, to_numpy
from quadsense.core import packed
from quadsense.core.cholesky import factor_upper
from quadsense.core.ends import UNIT
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.squares.program import power_of_four
from quadsense.methods.squares.state import Verdict
from quadsense.watch import look

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

FALL = 0.1
"""mu over the last one: 0.05 to 0.15 took the same time, less more steps each."""

NEAR = 2.0
"""Newton decrement below which mu falls: the next steps centre as well as they reduce."""

INEXACT = 0.1
"""Relative residual of conjugate gradients."""

GRADIENTS = 300
"""Conjugate gradients of a step at most: then the step is what they have found."""

EXPECTED = 100.0
"""Conjugate gradients of a step that a factorisation is to be cheaper than: seen 5 to 250."""

FINE = 1e-7
"""Relative gap that is aimed at where a step costs little."""

LITTLE = 2e9
"""Operations of twenty steps that are little, a tenth of a second."""

NOTHING = 1e-24
"""Cost relative to that of A = 0 which is rounding."""

SMALL = 1e-8
"""Cost relative to that of A = 0 below which it may well be that nothing need be missed."""

ROOM = 1e-6
"""Share of half-widths by which intervals are then made narrower, so that they are met within."""

SEARCH = 14
"""Halvings of the exact line search."""

PATIENCE = 25
"""Steps without a smaller gap that mean rounding: centring takes up to five."""

MOST = 200
"""Steps: seen 12 to 60."""


@dataclass(frozen=True)
class Program:
    """Intervals, readings and A of the size of 1."""

    problem: Problem
    F: Sensing
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
        return np.asarray(np.maximum(v - hi, 0.0) - np.maximum(lo - v, 0.0))

    @cached_property
    def half(self) -> Vector:
        """Half-widths, 1 at most."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(np.minimum(0.5 * (self.hi - self.lo), 1.0))

    @cached_property
    def rest(self) -> float:
        """What A = 0 costs."""
        return float(self.w @ self.misses(np.zeros_like(self.w)) ** 2)


@dataclass(frozen=True)
class State:
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
    best : ndarray of shape (m,) or None
    best_room : float
        The values of that point, and its `room`, from which y follows.
    room : float
        By how much narrower intervals are aimed at, once it seems that all can be met.
    verdict : Verdict
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
    best: Vector | None = None
    best_room: float = 0.0
    room: float = 0.0
    verdict: Verdict = Verdict.OPEN
    iteration: int = 0
    left: float = np.inf
    marked: int = 0
    max_ratio: float = np.inf


def prepare(problem: Problem) -> Program | None:
    """The program; None where the question is another, or has constraints."""
    question = problem.question
    if question is None or question.rows != "slack_squares" or not question.psd:
        return None
    live = (to_numpy(problem.rows.nonzero) > 0.0) & (question.weights > 0.0)
    if question.hard.any() or question.alpha or np.any(np.asarray(question.C) != 0.0):
        return None
    ends = np.concatenate([question.lo[live], question.hi[live]])
    ends = np.abs(ends[np.isfinite(ends)])
    if not ends.any() or not np.isfinite(question.weights).all():
        return None
    scale = power_of_four(float(np.median(ends[ends > 0.0])))
    w = np.where(live, question.weights, 0.0)
    weight = power_of_four(float(w.max()))
    F = problem.rows.on_numpy()
    asked = gap = float(getattr(problem.options, "gap", 0.01))
    if 20.0 * _step_flops(F) <= LITTLE:
        gap = min(gap, FINE)
    lo, hi = np.where(live, question.lo, -np.inf), np.where(live, question.hi, np.inf)
    return Program(problem, F, lo / scale, hi / scale, w / weight, scale, weight, 0.5 * gap, asked)


def _step_flops(F: Sensing) -> float:
    """About what a step costs at least."""
    return (4.0 if F.is_complex else 1.0) * (4.0 * F.raw.m * F.n**2 + 20.0 * float(F.n) ** 3)


def start(program: Program, A: Array | None = None) -> State:
    """A given positive semidefinite matrix and a little more, or the best multiple of I."""
    eye = np.eye(program.n, dtype=np.dtype(program.F.dtype))
    if A is None:
        ones = np.asarray(program.F.squares)
        sizes = np.geomspace(1e-6, 1e6, 200)
        costs = [program.w @ program.misses(t * ones) ** 2 for t in sizes]
        A = float(sizes[int(np.argmin(costs))]) * eye
    else:
        A = A + 1e-2 * max(float(np.trace(A).real) / program.n, 1e-6) * eye
    state = _at(program, State(A, np.zeros(0), np.inf, np.inf), np.asarray(program.F.forward(A)))
    return _judged(program, replace(state, mu=state.cost / program.n))


def _at(program: Program, state: State, values: Vector) -> State:
    ends, miss = program.problem.ends, program.misses(values)
    with np.errstate(all="ignore"):
        ratios = ends.ratios(program.scale * values - ends.reading)
    worst = float(np.max(ratios, where=np.isfinite(ratios), initial=0.0))
    return replace(state, values=values, cost=float(program.w @ miss**2), max_ratio=worst)


def advance(program: Program, state: State, steps: int) -> State:
    """At most so many Newton steps on."""
    for _ in range(steps):
        if state.verdict is not Verdict.OPEN:
            break
        state = _judged(program, _step(program, state))
    return state


def tightened(state: State) -> State:
    """Further inside the intervals, where rounding spoilt what seemed to be a fit."""
    return replace(state, room=10.0 * max(state.room, ROOM), verdict=Verdict.OPEN)


def _pulling(program: Program, values: Vector, room: float = 0.0) -> tuple[Rows, Vector]:
    """Rows that are missed, and y there."""
    miss = program.misses(values, room)
    rows = np.flatnonzero(miss * program.w)
    return rows, 2.0 * program.w[rows] * miss[rows]


def dual(program: Program, state: State) -> Vector:
    """y for the unit rows, in the user's scale."""
    y = np.zeros(program.w.size)
    if state.best is not None and state.cost > 0.0:
        rows, pull = _pulling(program, state.best, state.best_room)
        y[rows] = program.weight * program.scale * pull
    return y


def _judged(program: Program, state: State) -> State:
    """What the slope proves, and whether that is enough."""
    within = not np.any(program.w * program.misses(state.values, 0.1 * state.room))
    if within or (state.room and 0.0 < state.cost <= NOTHING * program.rest):
        return replace(state, lower=0.0, best=None, verdict=Verdict.OPTIMAL)
    L = _root(state.A)
    if L is None or not np.isfinite(state.cost) or state.iteration >= MOST:
        return replace(state, verdict=Verdict.STALLED)
    inside = _slope(program, state, L)
    gap = float(np.trace(inside).real)
    eigenvalues = np.linalg.eigvalsh(inside)
    if float(eigenvalues[0]) >= -16.0 * program.n * UNIT * float(eigenvalues[-1]):
        if state.iteration == 0:
            state = replace(state, mu=min(state.mu, max(10.0 * gap / program.n, 1e-6 * state.mu)))
        bound = _bound(program, state)
        if bound > state.lower:
            state = replace(state, lower=bound, best=state.values, best_room=state.room)
    zero = state.cost <= SMALL * program.rest and state.lower <= 0.1 * state.cost
    if zero != (state.room > 0.0):
        state = replace(state, room=ROOM if zero else 0.0)
    left = state.cost - state.lower
    if left <= program.gap * state.cost:
        return replace(state, verdict=Verdict.OPTIMAL)
    if left < 0.9 * state.left:
        return replace(state, left=left, marked=state.iteration)
    if state.iteration - state.marked > PATIENCE:  # rounding
        enough = left <= program.asked * state.cost
        return replace(state, verdict=Verdict.OPTIMAL if enough else Verdict.STALLED)
    return state


def _bound(program: Program, state: State) -> float:
    """What y proves where ``F*(y)`` is positive semidefinite: ``-sum y^2/(4 w) + end y``."""
    rows, y = _pulling(program, state.values, state.room)
    ends = np.where(y > 0.0, program.hi[rows], program.lo[rows])
    return -float(np.sum(y * (y / (4.0 * program.w[rows]) + ends)))


def _root(A: Array) -> Array | None:
    """L of ``A = L L*``; None where rounding has spoilt A."""
    try:
        return np.asarray(np.linalg.cholesky(A))
    except np.linalg.LinAlgError:
        return None


def _slope(program: Program, state: State, L: Array) -> Array:
    """``L* F*(y) L``."""
    rows, pull = _pulling(program, state.values, state.room)
    if rows.size == 0:
        return np.zeros_like(L)
    T = np.asarray(program.F.only(rows).adjoint(pull))
    inside = L.conj().T @ T @ L
    return 0.5 * (inside + inside.conj().T)


def _step(program: Program, state: State) -> State:
    """One Newton step for this mu, or for the next where the point of this one is near."""
    F, n = program.F, program.n
    look(_step_flops(F))
    L = _root(state.A)
    if L is None:
        return replace(state, verdict=Verdict.STALLED)
    slope, eye, mu = _slope(program, state, L), np.eye(n), state.mu
    if float(np.linalg.norm(eye - slope / mu)) < NEAR:
        mu *= FALL
    rows, _ = _pulling(program, state.values, state.room)
    D = _newton(F, rows, 2.0 / mu * program.w[rows], L, eye - slope / mu)
    D = 0.5 * (D + D.conj().T)
    change = L @ D @ L.conj().T
    along = np.asarray(F.forward(change))
    t = _longest(program, state, along, np.asarray(np.linalg.eigvalsh(D), np.float64), mu)
    A = state.A + t * change
    # Every few steps anew from A, as sums of changes round.
    iteration = state.iteration + 1
    values = state.values + t * along if iteration % 8 else np.asarray(F.forward(A))
    return _at(program, replace(state, A=A, mu=mu, iteration=iteration), values)


def _longest(
    program: Program, state: State, along: Vector, eigenvalues: Vector, mu: float
) -> float:
    """The t of the least value along a direction."""

    def slope(t: float) -> float:
        pull = 2.0 * program.w * program.misses(state.values + t * along, state.room)
        return float(pull @ along) / mu - float(np.sum(eigenvalues / (1.0 + t * eigenvalues)))

    least = float(eigenvalues[0])
    low, high = 0.0, min(4.0, 0.98 / -least) if least < 0.0 else 4.0
    if slope(high) <= 0.0:
        return high
    for _ in range(SEARCH):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if slope(middle) > 0.0 else (middle, high)
    return 0.5 * (low + high)


# --- the Newton system -------------------------------------------------------------------------


def _newton(F: Sensing, rows: Rows, weights: Vector, L: Array, R: Array) -> Array:
    """D of ``D + sum_i weights_i <p_i p_i*, D> p_i p_i* = R`` with ``p_i = L* v_i``.

    By the rows' inner products where they are few, on packed matrices where these are small, else
    by conjugate gradients.
    """
    if rows.size == 0:
        return R
    k, n, size = float(rows.size), L.shape[0], float(packed.size_of(L.shape[0], F.is_complex))
    weight = 4.0 if F.is_complex else 1.0
    few, small = weight * k * k * n + k**3 / 3.0, k * size * size + size**3 / 3.0
    chosen = F.only(rows)
    if isinstance(F, Mixed) or min(few, small) > EXPECTED * weight * 4.0 * k * n * n:
        return _by_gradients(chosen, weights, L, R)
    P = (to_numpy(chosen.rows()) * np.sqrt(np.sqrt(weights))[:, None]) @ L.conj()
    look(min(few, small))
    if few <= small:
        K = np.abs(P @ P.conj().T) ** 2
        K.flat[:: len(K) + 1] += 1.0
        right = np.sum(P.conj() @ R * P, axis=1).real
        c = cho_solve(cho_factor(K, overwrite_a=True, check_finite=False), right)
        return R - (P * c[:, None]).T @ P.conj()
    M = packed.normal_matrix([P[i : i + 1024] for i in range(0, len(P), 1024)], int(size), float)
    M.flat[:: len(M) + 1] += 1.0
    U, info = factor_upper(M)
    if info != 0:
        return _by_gradients(chosen, weights, L, R)
    d = cho_solve((U, False), packed.pack(R), check_finite=False)
    return packed.unpack(d, n, L.dtype)


def _by_gradients(F: Sensing, weights: Vector, L: Array, R: Array) -> Array:
    """The same, roughly."""
    adjoint = L.conj().T
    D, left = np.zeros_like(R + 0.0 * L), R + 0.0 * L
    direction, size = left, float(np.vdot(left, left).real)
    enough = max(INEXACT**2 * size, UNIT**2)
    for _ in range(GRADIENTS):
        if size <= enough:
            break
        look()
        image = np.asarray(F.forward(L @ direction @ adjoint))
        curved = direction + adjoint @ np.asarray(F.adjoint(weights * image)) @ L
        t = size / float(np.vdot(direction, curved).real)
        D, left = D + t * direction, left - t * curved
        size, last = float(np.vdot(left, left).real), size
        direction = left + (size / last) * direction
    return D
