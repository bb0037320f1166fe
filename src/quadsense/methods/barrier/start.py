"""Where the interior-point method begins: far inside of what is to be positive."""

from __future__ import annotations

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.intervals import Array
from quadsense.methods.barrier.direction import plain_coordinates
from quadsense.methods.barrier.point import Point
from quadsense.methods.barrier.program import SIGNS, Program
from quadsense.methods.barrier.system import System
from quadsense.methods.positive.maps import cholesky, forward


def start(program: Program, A: Array | None = None) -> Point:
    """Return the first point.

    Parameters
    ----------
    program : Program
    A : ndarray, shape (n, n), optional
        A matrix well inside, in units of the program; positive definite where that is asked.
    """
    X: Array | None = None
    y: Vector | None = None
    if program.psd:
        if A is not None:
            X = cholesky(A)
        if X is None:
            X = np.sqrt(_size(program)) * np.eye(program.F.n, dtype=program.F.dtype)
        A = X @ X.conj().T
        v = forward(program.F, X)
    else:
        fit, y = _least_squares(program)
        A = fit if A is None else A
        v = np.asarray(program.F.forward(A))
    return _around(program, A, X, v, y)


def _size(program: Program) -> float:
    """Return a multiple of the identity of the size of the readings."""
    ends, level = np.abs(program.ends[program.finite]), np.abs(program.level[program.equal])
    readings = np.abs(program.reading[program.curve > 0.0])
    known = np.concatenate([ends, level, readings])
    typical = float(np.mean(np.minimum(known, 16.0))) if known.size else 1.0
    return max(typical, 1e-2)


def _least_squares(program: Program) -> tuple[Array, Vector]:
    """Return a fit to the middles, each weighed by the width of its interval, and its dual.

    The latter is the smallest y with ``F*(y) = -C``, in the same weights.
    """
    upper, lower = program.finite
    hi, lo = program.ends[0], -program.ends[1]
    middle = np.where(upper & lower, 0.5 * (hi + lo), np.where(upper, hi, np.where(lower, lo, 0.0)))
    width = np.where(upper & lower, np.maximum(0.5 * (hi - lo), 1e-6), 1.0)
    squares = program.curve > 0.0
    middle = np.where(squares, program.reading, middle)
    middle = np.where(program.equal, program.level, middle)
    E = np.where(program.equal, 0.0, width / float(np.max(width, initial=1e-6)))
    weights = 1.0 / np.where(program.equal, 1.0, E)
    system = System(plain_coordinates(program, weights), E, program.equal)
    zero = np.zeros((program.F.n, program.F.n), dtype=program.F.dtype)
    return system.solve(zero, middle)[0], system.solve(-program.C, np.zeros(program.F.m))[1]


def _around(program: Program, A: Array, X: Array | None, v: Vector, y: Vector | None) -> Point:
    """Return a point of that A: soft ends met by what is bought, products about even."""
    finite, t = program.finite, 0.0
    room = np.where(finite, program.ends - SIGNS * v, 1.0)
    worst = float(np.max(-room, where=finite, initial=0.0))
    even = float(np.mean(np.abs(room[finite]))) if finite.any() else 1.0
    soft = program.priced | (program.softness > 0.0) | (program.share > 0.0)
    floor = 0.5 * worst if worst > 0.0 else 1e-3 * even
    slacks = np.where(finite, np.maximum(room, np.maximum(floor, 0.3 * np.abs(room))), 1.0)
    pull = _pull(program, A)
    extra = np.where(soft, np.maximum(-1.1 * room, 0.0) + max(0.1 * even, 1e-6), 0.0)
    if program.priced.any():
        extra = np.where(
            program.priced, np.maximum(extra, pull / np.where(soft, program.price, 1.0)), extra
        )
    elif program.common:
        t = float(np.max(extra / np.where(soft, program.share, 1.0)))
        t = max(t, pull * np.count_nonzero(soft))
    else:
        extra = np.maximum(extra, np.sqrt(pull * program.softness))
    extra = program.share * t if program.common else extra
    slacks = np.where(soft, room + extra, slacks)
    mu = _complementarity(program, slacks, extra, t, pull)
    duals = np.where(finite, mu / slacks, 0.0)
    if y is not None and bool(np.any(y)):
        apart = np.maximum(SIGNS * y, 0.0) + float(np.mean(np.abs(y)))
        duals = np.where(finite & ~soft, apart, duals)
        mu = float(np.mean((slacks * duals)[finite])) if finite.any() else mu
    bought, left, t_dual = np.zeros_like(slacks), np.ones_like(slacks), 1.0
    if program.priced.any():
        bought = np.where(program.priced, extra, 0.0)
        parts = np.where(program.priced, program.price / (slacks + extra), 0.0)
        duals = np.where(program.priced, parts * extra, duals)
        left = np.where(program.priced, parts * slacks, 1.0)
    elif program.common:
        t_dual = 1.0 - float(np.sum(program.share * duals))
    else:
        bends = program.softness > 0.0
        duals = np.where(bends, extra / np.where(bends, program.softness, 1.0), duals)
    S = None
    if X is not None:
        inverse = np.linalg.inv(X)
        S = mu * (inverse.conj().T @ inverse)
    return Point(A, X, S, v, slacks, duals, bought, left, t, t_dual, np.zeros(program.F.m))


def _pull(program: Program, A: Array) -> float:
    """Return what the objective pulls A by, times its size."""
    n = max(1, len(A))
    pull = float(np.linalg.norm(program.C)) / np.sqrt(n)
    if program.alpha:
        pull += 2.0 * program.alpha * float(np.linalg.norm(A - program.P)) / np.sqrt(n)
    return pull * max(float(np.linalg.norm(A)) / np.sqrt(n), 1e-3)


def _complementarity(
    program: Program, slacks: Vector, extra: Vector, t: float, pull: float
) -> float:
    """Return the first mean product: where softness has a price by that, else by the objective."""
    if program.common:  # sum share y + t_dual = 1 with all products the same
        return 1.0 / (float(np.sum(program.share / slacks)) + 1.0 / t)
    mu = max(program.row_target, program.cone_target, pull)
    priced, bends = program.priced, program.softness > 0.0
    if priced.any():
        parts = (program.price * slacks * extra / (slacks + extra))[priced]
        mu = max(mu, float(np.mean(parts)))
    elif bends.any():
        mu = max(mu, float(np.mean((slacks * extra)[bends] / program.softness[bends])))
    return mu if mu > 0.0 else 1.0
