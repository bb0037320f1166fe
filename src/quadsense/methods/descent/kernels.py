"""The compiled loops of `gd` and `sgd`, where K is an array of NumPy's or the identity.

Residuals come as ratios ``y_i = z_i / delta_i``, coefficients as ``d_i`` (see `Problem`), so that
*met* is ``max|y| <= 1`` and the sharpness is a number ``L = lam * delta``. Values of sinh and cosh
are divided by ``exp(shift)`` (see `theory.log_potential`). K is an empty array where it is the
identity.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from quadsense.methods.descent import loops
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

# Sums may be reordered and fused, but NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}

# Coefficients of the Taylor series of exp, the highest first: to rounding on [-ln2/2, ln2/2].
TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
# ln 2 in two parts, as in Cody and Waite: few bits in the first, so that its multiples are exact.
HIGH_BITS = 32
LN2_HIGH = math.ldexp(math.floor(math.ldexp(math.log(2.0), HIGH_BITS)), -HIGH_BITS)
# What is left of it, to all digits of float64, and its inverse.
LN2_LOW, LOG2_E = float(Decimal(2).ln() - Decimal(LN2_HIGH)), 1.0 / math.log(2.0)
# Of float64: bits of the mantissa, what is added to an exponent, and the logarithm of the smallest
# number of all digits.
MANTISSA, BIAS = int(np.finfo(np.float64).nmant), 1 - int(np.finfo(np.float64).minexp)
LEAST_EXPONENT = math.log(float(np.finfo(np.float64).tiny))
# Share of its largest value to which a maintained norm may fall before rounding shows in it.
MIN_NORM_LEFT = 1e-6


@intrinsic
def _float_from_bits(typing_context: Any, bits: Any) -> Any:
    """The float64 with these 64 bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit(inline="always")
def exp_clipped(x: float) -> float:
    """``exp(x)`` for x up to 709, clipped below where float64 ends: Taylor's series, 1 ulp.

    Unlike a call into the C library it vectorises.
    """
    x = max(x, LEAST_EXPONENT)
    k = np.floor(x * LOG2_E + 0.5)
    r = x - k * LN2_HIGH
    r = r - k * LN2_LOW
    p = 0.0
    for coefficient in TAYLOR:
        p = p * r + coefficient
    return p * _float_from_bits((np.int64(k) + BIAS) << MANTISSA)  # type: ignore[call-arg]


@njit(cache=True, fastmath=FAST, error_model="numpy")
def evaluate(y: Any, q: Any, eta: float, sharpness: float, shift: float) -> Any:
    """Move to ``y - eta q`` and evaluate the potential there.

    Returns
    -------
    moved : array of shape (m,)
    sigma : array of shape (m,)
        ``sinh(L moved) / exp(shift)``.
    total : float
        ``sum cosh(L moved) / exp(shift)``.
    top : float
        ``max|moved|``.
    """
    m = y.shape[0]
    moved, sigma = np.empty(m), np.empty(m)
    floor = math.exp(-2.0 * shift)
    total, top = 0.0, 0.0
    for i in range(m):  # apart from the next loop: together they would not vectorise
        v = y[i] - eta * q[i]
        moved[i] = v
        top = max(top, abs(v))
    limit = (MAX_EXPONENT + shift) / sharpness  # a step far too long must not overflow
    for i in range(m):
        v = moved[i]
        a = abs(v)
        a = a if a < limit else limit
        grown = exp_clipped(sharpness * a - shift)
        decayed = floor / grown
        total += grown + decayed
        sigma[i] = math.copysign(0.5 * (grown - decayed), v)
    return moved, sigma, 0.5 * total, top


@njit(cache=True, error_model="numpy")
def apply_gram(gram: Any, scale: Any, sigma: Any) -> Any:
    """``G K G sigma``, G = diag(scale)."""
    if gram.shape[0] == 0:
        return sigma
    return scale * np.dot(gram, scale * sigma)


@njit(cache=True, fastmath=FAST)
def dot(a: Any, b: Any) -> float:
    """Inner product."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@njit(cache=True)
def next_target(target: float, goal: float, top: float) -> float:
    """The ratio that the next stage aims at: halved until it is below `top`, or the goal."""
    while target > goal and top <= target:
        target = max(0.5 * target, goal)
    return target


draw_batch = njit(cache=True)(loops.draw_batch)


@njit(cache=True, error_model="numpy")
def descend(
    gram: Any,
    scale: Any,
    y: Any,
    d: Any,
    base: float,
    sharpness: float,
    target: float,
    goal: float,
    c: float,
    adapt: bool,
    sharpen: bool,
    steps: int,
) -> Any:
    """At most `steps` steps of normalised gradient descent [QSZ24, Alg. 1] on the potential.

    Parameters
    ----------
    gram, scale
        K and the scaling of its rows and columns.
    y, d : arrays of shape (m,)
        Residual ratios and coefficients; not changed.
    base, sharpness, target : float
        ``arccosh(2.2 m)``, the present L, and the ratio that the present stage aims at.
    goal : float
        Stop once ``max|y| <= goal``.
    c : float
        Step times sharpness.
    adapt : bool
        Halve c (and take the step back) where the potential rises, raise it where it falls.
    sharpen : bool
        Halve `target` and set ``L = base / target`` whenever it is reached.
    steps : int
        Steps to take.

    Returns
    -------
    y, d, sharpness, target, c, log_potential, top, taken
        The state after `taken` accepted steps.
    """
    _, _, _, top = evaluate(y, y, 0.0, sharpness, 0.0)
    shift = sharpness * top
    y, sigma, total, top = evaluate(y, y, 0.0, sharpness, shift)
    value = shift + math.log(total)
    taken = 0
    while taken < steps and top > goal:
        if sharpen and top <= target:
            target = next_target(target, goal, top)
            sharpness = max(sharpness, base / target)
            shift = sharpness * top
            y, sigma, total, top = evaluate(y, y, 0.0, sharpness, shift)
            value = shift + math.log(total)
        q = apply_gram(gram, scale, sigma)
        norm = math.sqrt(max(dot(sigma, q), 0.0))
        if norm == 0.0:  # the residual cannot be moved by any measurement
            break
        shift = sharpness * top
        while True:
            eta = c / (sharpness * norm)
            moved, bent, total, peak = evaluate(y, q, eta, sharpness, shift)
            new = shift + math.log(total)
            if not adapt or new < value or c < MIN_STEP:
                break
            c = 0.5 * c
        d = d + eta * sigma
        y, sigma, value, top = moved, bent, new, peak
        taken += 1
        if adapt:
            if c < MIN_STEP:  # no step descends: at this potential's minimum
                if not sharpen or sharpness >= MAX_SHARPENING * base / goal:
                    break
                # A sharper potential has its minimum nearer to the smallest worst residual.
                sharpness = 2.0 * sharpness
                shift = sharpness * top
                y, sigma, total, top = evaluate(y, y, 0.0, sharpness, shift)
                value = shift + math.log(total)
                c = 1.0
            c = STEP_GROWTH * c
    return y, d, sharpness, target, c, value, top, taken


@njit(cache=True)
def _batch_step(c: float, base: float, worse: bool) -> float:
    """The next step of batches: halved where the potential rose, else raised."""
    if worse:
        return max(0.5 * c, MIN_BATCH_STEP)
    return min(BATCH_STEP_GROWTH * c, MAX_BATCH_STEP * base)


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
    epoch = max(1, PASSES_PER_CHANGE * m // batch_size)
    shift, floor, norm2, peak2 = 0.0, 0.0, 0.0, 0.0
    since, over = 0, 0  # none over: a rebuild is due
    taken = 0
    while True:
        if over == 0 or since >= epoch or norm2 <= MIN_NORM_LEFT * peak2 or taken >= steps:
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
                c = _batch_step(c, base, value >= mark)
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
            grown = exp_clipped(min(sharpness * abs(after) - shift, MAX_EXPONENT))
            new = math.copysign(0.5 * (grown - floor / grown), after)
            y[i] = after
            d[i] += eta * old
            sigma[i] = new
            norm2 += new * new - old * old
            over += int(abs(after) > aim) - int(abs(before) > aim)
        since += 1
        age += 1
        taken += 1


@njit(cache=True, fastmath=FAST)
def apply_columns(gram: Any, scale: Any, sigma: Any, batch: Any) -> Any:
    """``G K G chosen`` and ``chosen``: sigma with all but the batch set to zero."""
    m = sigma.shape[0]
    image, chosen = np.zeros(m), np.zeros(m)
    for i in batch:  # K is symmetric: its rows lie contiguous
        weight = scale[i] * sigma[i]
        chosen[i] = sigma[i]
        for j in range(m):
            image[j] += weight * gram[i, j]
    return scale * image, chosen


@njit(cache=True, error_model="numpy")
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
    epoch = max(1, PASSES_PER_CHANGE * order.shape[0] // batch_size)
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
            c = _batch_step(c, base, value >= mark)
            mark, age = value, 0
    return y, d, sharpness, target, c, value, top, taken, mark, age
