"""The loops of `gd` and `sgd` on a device: many steps without waiting for a number.

The steps are those of `kernels`. There every scalar is a number of Python's, for
which a device would be waited for several times per step; here they are arrays of no dimension,
what would be a branch is a choice between two values, and the scalars come over once, at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import placed
from quadsense.methods.descent.program import (
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

Tensor = Any
"""A torch tensor."""

HALVINGS = 8
"""Lengths of a step tried at once, each half of the one before: next to a product with K, free."""


class Potential(NamedTuple):
    """At one or several y, (k, m): sinh over exp(shift), log Phi, and the largest ratio."""

    sigma: Tensor
    value: Tensor
    top: Tensor


def evaluate(y: Tensor, sharpness: Tensor, shift: Tensor | None = None) -> Potential:
    """The potential at y, or at every row of y; see `kernels.evaluate`."""
    size = y.abs()
    top = size.amax(dim=-1)
    x = sharpness * size
    shift = sharpness * top if shift is None else shift
    grown = (x - shift).clamp(max=MAX_EXPONENT).exp()
    decayed = (-x - shift).exp()
    total = 0.5 * (grown + decayed).sum(dim=-1)
    return Potential(0.5 * y.sign() * (grown - decayed), shift + total.log(), top)


def apply_gram(gram: Any, scale: Tensor, sigma: Tensor) -> Tensor:
    """``G K G sigma``, G = diag(scale)."""
    return sigma if gram.kind == "identity" else scale * gram.apply(scale * sigma)


def draw_batch(rng: np.random.Generator, order: npt.NDArray[np.int64], size: int) -> None:
    """`kernels.draw_batch`: a uniform subset at the head of `order`, in place."""
    for k in range(size):
        j = k + int(rng.random() * (order.size - k))
        order[k], order[j] = order[j], order[k]


def aimed(target: Tensor, goal: float, top: Tensor) -> Tensor:
    """`kernels.next_target`: halved until it is below `top`, or the goal."""
    halvings = (target / top).log2().floor() + 1.0
    lower = target * (-halvings).exp2()
    # Where rounding of the logarithm has hit a power of two.
    lower = lower.where(lower < top, 0.5 * lower)
    lower = lower.where(2.0 * lower >= top, 2.0 * lower)
    return lower.clamp(min=goal)


def descend(
    gram: Any,
    scale: Tensor,
    y: Tensor,
    d: Tensor,
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
    held = y.new_tensor([sharpness, target, c])
    lam, aim, c_now = held.unbind()
    taken = y.new_zeros(())
    halves = y.new_tensor(0.5) ** y.new_tensor(range(HALVINGS if adapt else 1))
    here = evaluate(y, lam)
    going = here.top > goal
    while True:
        for _ in range(steps):
            look()
            if sharpen:
                reached = going & (here.top <= aim)
                aim = aimed(aim, goal, here.top).where(reached, aim)
                lam = lam.maximum(base / aim).where(reached, lam)
                here = evaluate(y, lam)
            q = apply_gram(gram, scale, here.sigma)
            norm = (here.sigma @ q).clamp(min=0.0).sqrt()
            going = going & (norm > 0.0)  # else the residual cannot be moved by any measurement
            lengths = c_now * halves / (lam * norm.where(norm > 0.0, 1.0))
            tried = evaluate(y - lengths[:, None] * q, lam, lam * here.top)
            good = (tried.value < here.value) | (c_now * halves < MIN_STEP)
            good = good if adapt else good | True
            which = good.to(y.dtype).argmax()
            moves = going & good.any()
            step = lengths.take(which).where(moves, 0.0)  # an index would be waited for
            y, d = y - step * q, d + step * here.sigma
            taken = taken + moves
            if adapt:
                c_new = c_now * halves.take(which).where(good.any(), 0.5**HALVINGS)
                least = moves & (c_new < MIN_STEP)  # at this potential's minimum
                sharper = least & sharpen & (lam < MAX_SHARPENING * base / goal)
                going = going & ~(least & ~sharper)
                lam = (2.0 * lam).where(sharper, lam)
                grown = STEP_GROWTH * c_new.where(~sharper, 1.0)
                c_now = grown.where(moves & going, c_new.where(going, c_now))
            here = evaluate(y, lam)
            going = going & (here.top > goal)
        last = y.new_zeros(7)
        last[0], last[1], last[2], last[3], last[4] = lam, aim, c_now, here.value, here.top
        last[5], last[6] = taken, going
        sharpness, target, c, value, top, count, more = last.tolist()
        if count or not more:
            return y, d, sharpness, target, c, value, top, int(count)


def sample(
    gram: Any,
    scale: Tensor,
    rng: Any,
    order: npt.NDArray[np.int64],
    y: Tensor,
    d: Tensor,
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
    """As `kernels.sample_general`; the batches of all steps are drawn, and sent over, at once."""
    chosen = np.empty((steps, batch_size), dtype=np.int64)
    for k in range(steps):
        draw_batch(rng, order, batch_size)
        chosen[k] = order[:batch_size]
    batches = placed(chosen, y)
    lam, aim, c_now, marked, since = y.new_tensor([sharpness, target, c, mark, age]).unbind()
    taken = y.new_zeros(())
    epoch = max(1, PASSES_PER_CHANGE * order.shape[0] // batch_size)
    here = evaluate(y, lam)
    going = here.top > goal
    for k in range(steps):
        look()
        if sharpen:
            reached = going & (here.top <= aim)
            aim = aimed(aim, goal, here.top).where(reached, aim)
            lam = (base / aim).where(reached, lam)
            here = evaluate(y, lam)
            marked = here.value.where(reached, marked)
            since = since.where(~reached, 0.0)
        index = batches[k]
        if eigenvalue > 0.0:
            norm = ((here.sigma @ here.sigma) * eigenvalue).sqrt()
        else:
            product = here.sigma @ apply_gram(gram, scale, here.sigma)
            norm = product.clamp(min=0.0).sqrt()
        going = going & (norm > 0.0)
        only = y.new_zeros(y.shape).index_copy(0, index, here.sigma[index])
        q = only if gram.kind == "identity" else scale * gram.apply_part(scale * only, index)
        eta = (c_now / (lam * norm.where(norm > 0.0, 1.0))).where(going, 0.0)
        y, d = y - eta * q, d + eta * only
        here = evaluate(y, lam)
        taken = taken + going
        since = since + going
        if adapt:
            due = going & (since >= epoch)
            worse = (0.5 * c_now).clamp(min=MIN_BATCH_STEP)
            better = (BATCH_STEP_GROWTH * c_now).clamp(max=MAX_BATCH_STEP * base)
            c_now = worse.where(here.value >= marked, better).where(due, c_now)
            marked, since = here.value.where(due, marked), since.where(~due, 0.0)
        going = going & (here.top > goal)
    last = y.new_zeros(8)
    for k, number in enumerate((lam, aim, c_now, here.value, here.top, taken, marked, since)):
        last[k] = number
    sharpness, target, c, value, top, count, mark, passed = last.tolist()
    return y, d, sharpness, target, c, value, top, int(count), mark, int(passed)
