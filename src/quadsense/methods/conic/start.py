"""Where the interior-point method begins: far inside of what is to be positive.

For a linear objective over the cone, with multipliers that balance it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sl

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import TINY, Array
from quadsense.methods.conic.coordinates import cholesky
from quadsense.methods.conic.direction import KernelPoint, plain_coordinates
from quadsense.methods.conic.program import KernelProgram, Mask
from quadsense.methods.conic.system import ROUGH_RESIDUAL, system_of

CONE_START_FACTOR = 3.0
"""Times the size of the readings that A is at first, where ends are missed anyway: within the cone
it is more easily made less than more."""

MIN_ROOM = 1e-5
"""Room at the ends, in the mean and in units of the readings, below which there is none."""

LEVEL_FACTOR = 1.1
"""Times the largest miss that a common t buys at first."""

ROOM_SHARE = 0.1
"""Room at soft ends at first, in units of the mean at all ends."""

MIN_ROOM_SHARE, MIN_SLACK_SHARE = 1e-3, 0.3
"""Slacks of hard ends at first: at least this share of the mean room at all ends, and that of what
the end is missed by."""

MAX_SIZE, MIN_SIZE = 16.0, 1e-2
"""The largest that an end counts for in the first A, and the least A, in units of the program."""

MIN_WIDTH = 1e-6
"""The least half-width of an interval in the first least squares, in units of the program."""

MIN_PULLED_SIZE = 1e-3
"""Size of A below which its objective pulls it as if it were that large."""

INSIDE_SHARE = 0.1
"""Share of C's largest eigenvalue, relative to W, that the first multiplier of the cone is inside
by, and more."""

IDLE_SHARE = 0.25
"""Share of that which rows without a multiplier may take from it."""

MAX_BALANCES = 8
"""Looks at the size of the first products."""


def start(program: KernelProgram, A: Array | None = None, y: Vector | None = None) -> KernelPoint:
    """Return the first point.

    Parameters
    ----------
    program : KernelProgram
    A : ndarray, shape (n, n), optional
        A matrix well inside, in units of the program; positive definite where that is asked.
    y : ndarray, shape (m,), optional
        Its dual vector, where least squares are known.
    """
    X: Array | None = None
    if program.psd:
        if A is not None:
            X = cholesky(A)
        if X is None:
            X = np.sqrt(_size(program)) * program.eye
        A = X @ X.conj().T
        v = program.F.factored(X)
    else:
        if A is None or y is None:
            fit, y = _least_squares(program)
            A = fit if A is None else A
        v = program.F.forward(A)
    return _around(program, A, X, v, y)


def restored(program: KernelProgram, at: KernelPoint) -> KernelPoint:
    """Return a point of `KernelProgram.relaxed` as one of the whole program."""
    around = _around(program, at.A, at.X, at.v, None)
    squares = program.curve > 0.0
    held = np.where(squares, at.held - (around.duals[0] - around.duals[1]), at.held)
    return replace(around, S=at.S, held=held)


def _size(program: KernelProgram) -> float:
    """Return a multiple of the identity of the size of the readings."""
    levels = np.abs(program.level[program.equal | (program.curve > 0.0) | program.counted])
    known = np.concatenate([np.abs(program.ends[program.finite & ~program.counted]), levels])
    typical = float(np.mean(np.minimum(known, MAX_SIZE))) if known.size else 1.0
    bought = program.common or program.priced.any() or program.softness.any()
    if bought and (held := _held_size(program)) is not None:
        return held
    return max(typical, MIN_SIZE) * (1.0 if program.cone_target or bought else CONE_START_FACTOR)


def _held_size(program: KernelProgram) -> float | None:
    """Return the multiple of the identity that equalities ask for where ends may be missed.

    The other readings, which they may contradict by any factor, say nothing then. None without
    equalities that ask for a positive one.
    """
    if not program.equal.any():
        return None
    F = program.F
    reads = to_numpy(F.factored(program.eye))[program.equal]
    level = to_numpy(program.level)[program.equal]
    asks = (reads > 0.0) & (level > 0.0)
    return float(np.median(level[asks] / reads[asks])) if asks.any() else None


def _least_squares(program: KernelProgram) -> tuple[Array, Vector]:
    """Return a fit to the middles, each weighed by the width of its interval, and its dual.

    The latter is the smallest y with ``F*(y) = -C``, in the same weights; under a common t, the
    residuals, for which ``F*(y) = 0``. Both are 0 where rounding leaves neither.
    """
    zero, nothing = np.zeros_like(program.C), np.zeros_like(program.level)
    if program.F.m == 0:
        return zero, nothing
    upper, lower = program.finite
    hi, lo = program.ends[0], -program.ends[1]
    middle = np.where(upper & lower, 0.5 * (hi + lo), np.where(upper, hi, np.where(lower, lo, 0.0)))
    width = np.where(upper & lower, np.maximum(0.5 * (hi - lo), MIN_WIDTH), 1.0)
    squares = (program.curve > 0.0) | program.counted
    middle = np.where(squares | program.equal, program.level, middle)
    E = np.where(program.equal, 0.0, width / float(np.max(width, initial=MIN_WIDTH)))
    weights = 1.0 / np.where(program.equal, 1.0, E)
    try:
        system = system_of(
            plain_coordinates(program, weights), E, program.equal, ROUGH_RESIDUAL, True
        )
        fit, y, _ = system.solve(zero, middle)
        if not program.homogeneous:
            y = system.solve(-program.C, nothing)[1]
    except (sl.LinAlgError, ValueError):  # the latter from SciPy, for what is no number
        return zero, nothing
    sound = np.isfinite(fit).all() and np.isfinite(y).all()
    return (fit, y) if sound else (zero, nothing)


def _around(
    program: KernelProgram, A: Array, X: Array | None, v: Vector, y: Vector | None
) -> KernelPoint:
    """Return a point of that A: all products even, soft ends met by what is bought."""
    finite = program.finite
    room = np.where(finite, program.ends - program.signs * v, 1.0)
    worst = float(np.max(-room, where=finite, initial=0.0))
    even = max(float(np.mean(np.abs(room[finite]))), MIN_ROOM) if finite.any() else 1.0
    soft = program.priced | (program.softness > 0.0) | (program.share > 0.0)
    floor = max(0.5 * worst, MIN_ROOM_SHARE * even)
    least = np.maximum(floor, MIN_SLACK_SHARE * np.abs(room))
    hard = np.where(finite, np.maximum(room, least), 1.0)
    t, mu = 0.0, max(program.row_unit, program.cone_target, _pull(program, A))
    misses = worst > MIN_ROOM  # residuals are more than rounding
    if program.homogeneous and misses and y is not None and bool(np.all(finite)):
        return _around_residuals(program, A, v, y, even)
    if program.common:
        shares = np.where(program.share > 0.0, program.share, 1.0)
        least = np.where(soft, np.maximum(-LEVEL_FACTOR * room, 0.0) + ROOM_SHARE * even, 0.0)
        t = max(float(np.max(least / shares)), mu * np.count_nonzero(soft))
        slacks = np.where(soft, room + program.share * t, hard)
        # sum share y + t_dual = 1 with all products the same
        mu = 1.0 / (float(np.sum(program.share / slacks)) + 1.0 / t)
    elif soft.any():
        mu = _enough(program, A, room, soft, mu, even)
        slacks = np.where(soft, _bought(program, room, mu), hard)
    else:
        mu = mu if mu > 0.0 else 1.0
        slacks = hard
    duals = np.where(finite, mu / slacks, 0.0)
    if y is not None and bool(np.any(y)):
        apart = np.maximum(program.signs * y, 0.0) + float(np.mean(np.abs(y)))
        duals = np.where(finite & ~soft, apart, duals)
    priced = program.priced
    left = np.where(priced, program.price - duals, 1.0)
    bought = np.where(priced, mu / left, 0.0)
    S = None
    if X is not None:
        inverse = np.linalg.inv(X)
        S = mu * (inverse.conj().T @ inverse)
    t_dual = mu / t if program.common else 1.0
    held = np.zeros_like(program.level)
    return KernelPoint(A, X, S, v, slacks, duals, bought, left, t, t_dual, held)


def _around_residuals(
    program: KernelProgram, A: Array, v: Vector, y: Vector, even: float
) -> KernelPoint:
    """Return a point of that A and residuals y: its multipliers satisfy ``F*(y) = 0``.

    The even part that keeps all of them away from 0 does not take part in that sum.
    """
    zero, one = np.zeros_like(program.ends), np.ones_like(program.ends)
    room = program.ends - program.signs * v
    # Where all are inside, or nearly.
    least = float(np.max((ROOM_SHARE * even - room) / program.share))
    t = max(LEVEL_FACTOR * float(np.max(-room / program.share)), least, ROOM_SHARE * even)
    duals = np.maximum(program.signs * y, 0.0) + float(np.mean(np.abs(y)))
    t_dual = 1.0 / (1.0 + duals.size)
    duals = duals * ((1.0 - t_dual) / float(np.sum(program.share * duals)))
    slacks, held = room + program.share * t, np.zeros_like(v)
    return KernelPoint(A, None, None, v, slacks, duals, zero, one, t, t_dual, held)


def _bought(program: KernelProgram, room: Vector, mu: float) -> Vector:
    """Return the slacks of soft ends at which all products are mu.

    With a price w, ``g = room + q``, ``g y = q (w - y) = mu``; with a softness s, ``g = room + s
    y``: both are quadratic equations.
    """
    w = np.where(program.priced, program.price, 1.0)
    sold = room + (2.0 * mu / w)
    priced = 0.5 * (sold + np.hypot(room, 2.0 * mu / w))
    root = np.hypot(room, 2.0 * np.sqrt(program.softness * mu))
    below = np.where(room > 0.0, 1.0, np.maximum(root - room, np.finfo(float).tiny))
    bent = np.where(room > 0.0, 0.5 * (room + root), 2.0 * program.softness * mu / below)
    return np.where(program.priced, priced, bent)


def _enough(
    program: KernelProgram, A: Array, room: Vector, soft: Mask, mu: float, even: float
) -> float:
    """Return a product so large that A's multiplier can follow those of the soft ends.

    Where these are bounded by prices, it is the larger for that.
    """
    if not program.priced.any():
        return max(mu, even * even / float(np.median(program.softness[soft])))
    mu = max(mu, even * float(np.median(program.price[program.priced])))
    size = float(np.linalg.norm(A)) / max(1, len(A))
    for _ in range(MAX_BALANCES):
        y = np.where(soft, mu / np.where(soft, _bought(program, room, mu), 1.0), 0.0)
        Z = program.C + program.F.adjoint(y[0] - y[1])
        need = size * float(np.linalg.norm(Z))
        if need <= 2.0 * mu:
            break
        mu = need
    return mu


def _pull(program: KernelProgram, A: Array) -> float:
    """Return what the objective pulls A by, times its size."""
    n = max(1, len(A))
    pull = float(np.linalg.norm(program.C)) / np.sqrt(n)
    if program.alpha:
        pull += 2.0 * program.alpha * float(np.linalg.norm(A - program.P)) / np.sqrt(n)
    return pull * max(float(np.linalg.norm(A)) / np.sqrt(n), MIN_PULLED_SIZE)


@dataclass(frozen=True)
class Inside:
    """A in the middle, and d with ``W = F*(d)`` positive definite, in units of the program."""

    A: Array
    d: Vector
    W: Array


def balanced_point(program: KernelProgram, at: KernelPoint, begin: Inside) -> KernelPoint:
    """The point with multipliers that satisfy ``C + F*(y) = S``, S positive definite.

    Along d, far enough that S is well inside; without, the kernel may never come to such a y where
    some of what the rows see is seen weakly.
    """
    root = np.linalg.inv(np.linalg.cholesky(begin.W))
    values = np.linalg.eigvalsh(root @ program.C @ root.conj().T)
    t = 2.0 * max(0.0, -float(values[0])) + INSIDE_SHARE * float(np.max(np.abs(values)))
    y, S = t * begin.d, program.C + t * begin.W
    mean = float(np.vdot(S, at.A).real) / len(S)
    upper, lower = program.finite
    both = np.minimum(mean / np.minimum(at.slacks[0], at.slacks[1]), t) * (upper & lower)
    duals = np.stack([np.maximum(y, 0.0) + both, np.maximum(-y, 0.0) + both]) * program.finite
    # Rows of one end that d does not press on: a share of S for all of them.
    idle = program.finite & (duals == 0.0)
    if idle.any():
        signs = idle[0].astype(np.float64) - idle[1]
        spread = np.linalg.eigvalsh(root @ to_numpy(program.F.adjoint(signs)) @ root.conj().T)
        least = float(np.linalg.eigvalsh(root @ S @ root.conj().T)[0])
        each = IDLE_SHARE * least / max(float(np.max(np.abs(spread))), TINY)
        duals = duals + each * idle
    held = np.where(program.equal, y, 0.0)
    rest = np.where(program.equal, 0.0, duals[0] - duals[1])
    S = program.C + to_numpy(program.F.adjoint(rest + held))
    return replace(at, S=0.5 * (S + S.conj().T), duals=duals, held=held)
