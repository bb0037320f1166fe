"""The steps of `gd` and `sgd` over any form of K, on arrays of any namespace.

Every number of a step is an array of no dimension, and what would be a branch is a choice between
two values, so that a device is waited for once, after the last step. Where K is an array of NumPy's
or the identity, the compiled loops of `kernels` take the same steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, device, is_tensor, like, namespace, placed, to_numpy
from quadsense.methods.descent.gd import (
    BATCH_STEP_GROWTH,
    MAX_BATCH_STEP,
    MAX_EXPONENT,
    MAX_SHARPENING,
    MIN_BATCH_STEP,
    MIN_STEP,
    PASSES_PER_CHANGE,
    STEP_GROWTH,
)
from quadsense.system.watch import look

HALVINGS = 8
"""Lengths of a step that are tried before K is applied again, each half of the one before: on a
device at once, for next to a product with K they take no time."""


class Potential(NamedTuple):
    """At one or several y, (k, m): sinh over exp(shift), log Phi, and the largest ratio."""

    sigma: Array
    value: Array
    top: Array


def potential(y: Array, sharpness: Array, shift: Array | None = None) -> Potential:
    """Return the potential at y, or at every row of y, with that shift of all exponents."""
    xp = namespace(y)
    size = xp.abs(y)
    top = xp.max(size, axis=-1)
    x = sharpness * size
    shift = sharpness * top if shift is None else shift
    grown = xp.exp(xp.minimum(x - shift, xp.full_like(shift, MAX_EXPONENT)))
    decayed = xp.exp(-x - shift)
    total = 0.5 * xp.sum(grown + decayed, axis=-1)
    half = 0.5 * (grown - decayed)
    return Potential(xp.where(y < 0.0, -half, half), shift + xp.log(total), top)


def apply_gram(gram: Any, scale: Array, sigma: Array) -> Array:
    """Return ``G K G sigma``, G = diag(scale)."""
    return sigma if gram.kind == "identity" else scale * gram.apply(scale * sigma)


def draw_batch(rng: np.random.Generator, order: npt.NDArray[np.int64], size: int) -> None:
    """Put a uniform subset of that size at the head of the permutation `order`, in place."""
    for k in range(size):
        j = k + int(rng.random() * (order.shape[0] - k))
        held = order[k]
        order[k] = order[j]
        order[j] = held


def next_aim(aim: Array, goal: float, top: Array) -> Array:
    """Return the ratio that the next stage aims at: halved until it is below `top`, or the goal."""
    xp = namespace(aim)
    lower = aim * 2.0 ** -(xp.floor(xp.log2(aim / top)) + 1.0)
    # Where rounding of the logarithm has hit a power of two.
    lower = xp.where(lower < top, lower, 0.5 * lower)
    lower = xp.where(2.0 * lower >= top, lower, 2.0 * lower)
    return xp.maximum(lower, xp.full_like(lower, goal))


def descend(
    gram: Any,
    scale: Array,
    y: Array,
    d: Array,
    base: float,
    sharpness: float,
    target: float,
    goal: float,
    c: float,
    adapt: bool,
    sharpen: bool,
    steps: int,
) -> Any:
    """As `kernels.descend`; where no length descends, the next step tries shorter ones."""
    xp = namespace(y)
    lam, aim, c_now = _parts(like([sharpness, target, c], y))
    taken = 0.0 * lam
    waits = is_tensor(y)
    trials = like(0.5 ** np.arange(HALVINGS if adapt else 1), y)
    parts = [trials] if waits else [trials[k : k + 1] for k in range(trials.shape[0])]
    here = potential(y, lam)
    going = here.top > goal
    while True:
        for _ in range(steps):
            look()
            if sharpen:
                reached = going & (here.top <= aim)
                aim = xp.where(reached, next_aim(aim, goal, here.top), aim)
                lam = xp.where(reached, xp.maximum(lam, base / aim), lam)
                here = potential(y, lam)
            q = apply_gram(gram, scale, here.sigma)
            square = xp.sum(here.sigma * q)
            going = going & (square > 0.0)  # else the residual cannot be moved by any measurement
            unit = lam * xp.sqrt(xp.where(going, square, xp.ones_like(square)))
            for halves in parts:
                lengths = c_now * halves
                tried = potential(y - (lengths / unit)[:, None] * q, lam, lam * here.top)
                good = (tried.value < here.value) | (lengths < MIN_STEP)
                good = good if adapt else good | (lengths > 0.0)
                if not waits and bool(xp.any(good)):
                    break
            moves = going & xp.any(good)
            longest = xp.max(xp.where(good, lengths, xp.zeros_like(lengths)))
            step = xp.where(moves, longest / unit, xp.zeros_like(unit))
            y, d = y - step * q, d + step * here.sigma
            taken = taken + xp.astype(moves, y.dtype)
            if adapt:
                c_new = xp.where(xp.any(good), longest, 0.5 * lengths[-1])
                least = moves & (c_new < MIN_STEP)  # at this potential's minimum
                sharper = least & (lam < MAX_SHARPENING * base / goal)
                sharper = sharper if sharpen else sharper & ~sharper
                going = going & (sharper | ~least)
                lam = xp.where(sharper, 2.0 * lam, lam)
                grown = STEP_GROWTH * xp.where(sharper, xp.ones_like(c_new), c_new)
                c_now = xp.where(moves & going, grown, xp.where(going, c_new, c_now))
            here = potential(y, lam)
            going = going & (here.top > goal)
            if not waits and not bool(going):
                break
        last = xp.stack([lam, aim, c_now, here.value, here.top, taken, xp.astype(going, y.dtype)])
        sharpness, target, c, value, top, count, more = to_numpy(last).tolist()
        if count or not more:
            return y, d, sharpness, target, c, value, top, int(count)


def sample(
    gram: Any,
    scale: Array,
    rng: Any,
    order: npt.NDArray[np.int64],
    y: Array,
    d: Array,
    base: float,
    sharpness: float,
    target: float,
    goal: float,
    c: float,
    adapt: bool,
    sharpen: bool,
    batch_size: int,
    eigenvalue: float,
    mark: float,
    age: int,
    steps: int,
) -> Any:
    """As `kernels.sample_general`; the batches of all steps are drawn, and sent over, at once.

    Where nothing is waited for, no batch is drawn after the last step.
    """
    xp = namespace(y)
    waits = is_tensor(y)
    batches = placed(_drawn(rng, order, batch_size, steps if waits else 0), y)
    lam, aim, c_now, marked, since = _parts(like([sharpness, target, c, mark, age], y))
    taken = 0.0 * lam
    epoch = max(1, PASSES_PER_CHANGE * order.shape[0] // batch_size)
    places = xp.arange(order.shape[0], device=device(y))[:, None]
    here = potential(y, lam)
    going = here.top > goal
    for k in range(steps):
        look()
        if not waits and not bool(going):
            break
        if sharpen:
            reached = going & (here.top <= aim)
            aim = xp.where(reached, next_aim(aim, goal, here.top), aim)
            lam = xp.where(reached, base / aim, lam)
            here = potential(y, lam)
            marked = xp.where(reached, here.value, marked)
            since = xp.where(reached, xp.zeros_like(since), since)
        index = batches[k] if waits else placed(_drawn(rng, order, batch_size, 1)[0], y)
        only = xp.where(xp.any(places == index, axis=1), here.sigma, xp.zeros_like(y))
        if eigenvalue > 0.0:
            square = xp.sum(here.sigma * here.sigma) * eigenvalue
        else:
            square = xp.sum(here.sigma * apply_gram(gram, scale, here.sigma))
        going = going & (square > 0.0)
        unit = lam * xp.sqrt(xp.where(going, square, xp.ones_like(square)))
        eta = xp.where(going, c_now / unit, xp.zeros_like(unit))
        q = only if gram.kind == "identity" else scale * gram.apply_part(scale * only, index)
        y, d = y - eta * q, d + eta * only
        here = potential(y, lam)
        moved = xp.astype(going, y.dtype)
        taken, since = taken + moved, since + moved
        if adapt:
            due = going & (since >= epoch)
            shorter = xp.maximum(0.5 * c_now, xp.full_like(c_now, MIN_BATCH_STEP))
            longer = xp.full_like(c_now, MAX_BATCH_STEP * base)
            longer = xp.minimum(BATCH_STEP_GROWTH * c_now, longer)
            c_now = xp.where(due, xp.where(here.value >= marked, shorter, longer), c_now)
            marked = xp.where(due, here.value, marked)
            since = xp.where(due, xp.zeros_like(since), since)
        going = going & (here.top > goal)
    last = xp.stack([lam, aim, c_now, here.value, here.top, taken, marked, since])
    sharpness, target, c, value, top, count, mark, passed = to_numpy(last).tolist()
    return y, d, sharpness, target, c, value, top, int(count), mark, int(passed)


def _parts(held: Array) -> list[Array]:
    """Return the entries of a vector as arrays of no dimension."""
    return [held[k] for k in range(held.shape[0])]


def _drawn(
    rng: np.random.Generator, order: npt.NDArray[np.int64], size: int, count: int
) -> npt.NDArray[np.int64]:
    """Return that many batches, (count, size), drawn one after the other."""
    chosen = np.empty((count, size), dtype=np.int64)
    for k in range(count):
        draw_batch(rng, order, size)
        chosen[k] = order[:size]
    return chosen
