"""The inner loops of stochastic gradient descent; see `kernels` for the conventions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from quadsense.arrays import device, like, namespace
from quadsense.methods.descent.kernels import (
    FAST,
    apply_gram,
    dot,
    evaluate,
    exp_clipped,
    next_target,
)


@njit(cache=True)
def draw_batch(rng: Any, order: Any, size: int) -> None:
    """Put a uniform subset of that size at the head of the permutation `order`, in place."""
    m = order.shape[0]
    for k in range(size):
        j = k + int(rng.random() * (m - k))
        held = order[k]
        order[k] = order[j]
        order[j] = held


@njit(cache=True, fastmath=FAST, error_model="numpy")
def sample_orthonormal(
    rng: Any,
    order: Any,
    y: Any,
    d: Any,
    base: float,
    sharpness: float,
    target: float,
    goal: float,
    c: float,
    adapt: bool,
    sharpen: bool,
    batch_size: int,
    mark: float,
    age: int,
    steps: int,
) -> Any:
    """At most `steps` steps of SGD with K = I [QSZ24, Alg. 2], amortised O(batch) each.

    `order`, `y` and `d` are changed in place. `mark` and `age` are the log potential at the last
    change of c and the steps since; the rest is as in `descend`.

    Notes
    -----
    The squared norm of sinh is kept by adding and subtracting the batch's terms. It is rebuilt in
    O(m) once it has fallen by 1e6, where cancellation would begin to show, or after 4 m samples:
    amortised O(1) per sample. The number of measurements over the goal (and over the stage's
    target) is kept the same way, so that *met* is seen at once.
    """
    m = y.shape[0]
    sigma = np.empty(m)
    epoch = max(1, 4 * m // batch_size)
    shift, floor, norm2, peak2 = 0.0, 0.0, 0.0, 0.0
    since, over = 0, 0  # none over: a rebuild is due
    taken = 0
    while True:
        if over == 0 or since >= epoch or norm2 <= 1e-6 * peak2 or taken >= steps:
            top = 0.0
            for i in range(m):
                top = max(top, abs(y[i]))
            if sharpen and top <= target:
                target = next_target(target, goal, top)
                sharpness = base / target
                mark, age = np.inf, 0
            shift = sharpness * top
            floor = math.exp(-2.0 * shift)
            total, norm2 = 0.0, 0.0
            over = 0
            aim = target if sharpen else goal
            for i in range(m):
                size = abs(y[i])
                grown = exp_clipped(sharpness * size - shift)
                decayed = floor / grown
                total += grown + decayed
                sigma[i] = math.copysign(0.5 * (grown - decayed), y[i])
                norm2 += sigma[i] * sigma[i]
                over += int(size > aim)
            value = shift + math.log(0.5 * total)
            if adapt and age >= epoch:  # four passes over the data have gone by
                c = max(0.5 * c, 1e-6) if value >= mark else min(1.5 * c, 4.0 * base)
                mark, age = value, 0
            peak2, since = norm2, 0
            if top <= goal or taken >= steps or norm2 == 0.0:
                return sharpness, target, c, value, top, taken, mark, age
        draw_batch(rng, order, batch_size)
        # The step's factor B/m cancels the gradient's m/B.
        eta = c / (sharpness * math.sqrt(norm2))
        aim = target if sharpen else goal
        for k in range(batch_size):
            i = order[k]
            before, old = y[i], sigma[i]
            after = before - eta * old
            grown = exp_clipped(min(sharpness * abs(after) - shift, 700.0))
            new = math.copysign(0.5 * (grown - floor / grown), after)
            y[i] = after
            d[i] += eta * old
            sigma[i] = new
            norm2 += new * new - old * old
            over += int(abs(after) > aim) - int(abs(before) > aim)
        since += 1
        age += 1
        taken += 1


def apply_columns(gram: Any, scale: Any, sigma: Any, batch: Any) -> Any:
    """``G K G chosen`` and ``chosen``: sigma with all but the batch set to zero."""
    mask = np.zeros(sigma.shape[0])
    mask[batch] = 1.0
    chosen = sigma * like(mask, sigma)
    index = namespace(sigma).asarray(batch, device=device(sigma))
    return scale * gram.apply_part(scale * chosen, index), chosen


@overload(apply_columns, jit_options={"fastmath": FAST})
def _apply_columns_compiled(gram: Any, scale: Any, sigma: Any, batch: Any) -> Any:
    def implementation(gram: Any, scale: Any, sigma: Any, batch: Any) -> Any:
        m = sigma.shape[0]
        image, chosen = np.zeros(m), np.zeros(m)
        for i in batch:  # K is symmetric: its rows lie contiguous
            weight = scale[i] * sigma[i]
            chosen[i] = sigma[i]
            for j in range(m):
                image[j] += weight * gram[i, j]
        return scale * image, chosen

    return implementation


def sample_general(
    gram: Any,
    scale: Any,
    rng: Any,
    order: Any,
    y: Any,
    d: Any,
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
    """At most `steps` steps of SGD for any K [QSZ24, Alg. 4].

    `order` is changed in place; the rest is as in `descend`. With ``eigenvalue > 0`` the norm of
    the gradient is replaced by its bound ``||sigma|| sqrt(eigenvalue)``, eigenvalue at least the
    largest one of G K G; with 0 it is exact, in O(m^2). `mark` and `age` are the log potential at
    the last change of c and the steps since; they come back at the end of what `descend` returns.

    Notes
    -----
    All residuals move by the sinh values from before the step: run in place, as printed, they
    would stop matching A (erratum 3).
    """
    _, _, _, top = evaluate(y, y, 0.0, sharpness, 0.0)
    shift = sharpness * top
    y, sigma, total, top = evaluate(y, y, 0.0, sharpness, shift)
    value = shift + math.log(total)
    epoch = max(1, 4 * order.shape[0] // batch_size)
    taken = 0
    while taken < steps and top > goal:
        if sharpen and top <= target:
            target = next_target(target, goal, top)
            sharpness = base / target
            shift = sharpness * top
            y, sigma, total, top = evaluate(y, y, 0.0, sharpness, shift)
            mark, age = shift + math.log(total), 0
        draw_batch(rng, order, batch_size)
        if eigenvalue > 0.0:
            norm = math.sqrt(dot(sigma, sigma) * eigenvalue)
        else:
            norm = math.sqrt(max(dot(sigma, apply_gram(gram, scale, sigma)), 0.0))
        if norm == 0.0:
            break
        q, chosen = apply_columns(gram, scale, sigma, order[:batch_size])
        eta = c / (sharpness * norm)
        d = d + eta * chosen
        shift = sharpness * top
        y, sigma, total, top = evaluate(y, q, eta, sharpness, shift)
        value = shift + math.log(total)
        taken += 1
        age += 1
        if adapt and age >= epoch:
            c = max(0.5 * c, 1e-6) if value >= mark else min(1.5 * c, 4.0 * base)
            mark, age = value, 0
    return y, d, sharpness, target, c, value, top, taken, mark, age


sample_general_compiled = njit(cache=True, error_model="numpy")(sample_general)
