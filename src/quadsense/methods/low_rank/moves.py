"""A step seen from the rows: how far to go, and what is there, from the images of its direction.

All that is as long as the data is read and written once, in parts that stay in cache.
While residuals are far larger than what single precision does to them, everything is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from quadsense.device import numbers
from quadsense.methods.low_rank.line import best_length, quartic_minimum
from quadsense.methods.low_rank.passes import Point, inner
from quadsense.methods.low_rank.program import Matrix, Program, Vector

# Entries of images that are worked on together, in cache; rows of a part at least.
_PART, _LEAST_PART = 2**16, 2**10
_EPS = float(np.finfo(np.float64).eps)


def step_length(
    problem: Program, point: Point, Q: Matrix, along: Any, bend: float, theta: float, size: Any
) -> tuple[float, float]:
    """Return the best length of a step with images Q, 0 where none descends, and its direction's
    size, as given: see `best_length`.

    The slope `along` it and the size may be on a device, which is waited for once.
    """
    F, k = problem.F, len(Q)
    signs, whole = problem.signs_of(k), problem.is_whole(theta)
    z1, z2 = (problem.empty(0 if whole else F.m, np.float64) for _ in range(2))
    weight = problem.readings(point.z.dtype).weight
    told: list[Any] = []
    for part, seen in _parts(problem, k):
        p, q = point.P[:, seen], Q[:, seen].astype(point.P.dtype, copy=False)
        first, second = F.mixed(inner(p, q, signs)), F.mixed(inner(q, q, signs))
        first *= 2.0
        if not whole:
            z1[part], z2[part] = first, second
            continue
        weighed = weight[part] * first
        told += np.dot(weighed, first), np.dot(weighed, second)
        np.multiply(weight[part], second, out=weighed)
        told += np.dot(weighed, point.z[part]), np.dot(weighed, second)
    along, size, *sums = numbers(along, size, *told)
    if not along < 0.0:
        return 0.0, size
    if not whole:
        return best_length(problem, point, z1, z2, along, bend, theta), size
    quadratic, cubic, quartic = bend, 0.0, 0.0
    for squared, crossed, bent, fourth in zip(*(sums[k::4] for k in range(4)), strict=True):
        quadratic += squared
        cubic += crossed
        quadratic += 2.0 * bent
        quartic += fourth
    return quartic_minimum(along, quadratic, 3.0 * cubic, 2.0 * quartic), size


class Moved(NamedTuple):
    """Images and residuals after a step, and what half the gradient is the sum of.

    Of every part of the rows `told` has twice the loss and the largest ratio, where they are.
    """

    P: Matrix
    z: Vector
    excess: Vector
    told: list[Any]
    pulled: Matrix

    def read(self, *others: Any) -> tuple[float, ...]:
        """The loss, the largest ratio, and other numbers: a device is waited for once."""
        found = numbers(*self.told, *others)
        value, count = 0.0, len(self.told)
        for lost in found[:count:2]:
            value += lost
        return 0.5 * value, max(0.0, *found[1:count:2]), *found[count:]


def moved(problem: Program, point: Point, Q: Matrix, length: float, theta: float) -> Moved:
    """Return what a step of that length leads to, Q the images of its direction."""
    F, k, real = problem.F, len(Q), point.z.dtype
    signs, whole = problem.signs_of(k), problem.is_whole(theta)
    b, weight, inverse = problem.readings(real)
    empty = problem.empty
    P, pulled, z = empty(point.P.shape, point.P.dtype), empty(Q.shape, Q.dtype), empty(F.m, real)
    excess = z if whole else empty(F.m, real)
    narrow = Q.real.dtype
    told: list[Any] = []
    for part, seen in _parts(problem, k):
        p = np.multiply(Q[:, seen], real.type(length), out=P[:, seen])
        p += point.P[:, seen]
        np.subtract(F.mixed(inner(p, p, signs)), b[part], out=z[part])
        if not whole:
            excess[part] = problem.excess(z[part], theta, part)
        pull = weight[part] * excess[part]
        each = F.unmixed(pull).astype(narrow, copy=False)
        each = each if signs is None else each * signs[:, None].astype(narrow)
        np.multiply(p, each, out=pulled[:, seen], dtype=Q.dtype)
        told += np.dot(pull, excess[part]), _worst(problem, z[part], inverse[part], part)
    return Moved(P, z, excess, told, pulled)


def _within(rows: slice, count: int) -> Iterator[slice]:
    """Parts of some rows."""
    size = max(_LEAST_PART, _PART // count)
    for first in range(rows.start, rows.stop, size):
        yield slice(first, min(first + size, rows.stop))


def narrowed(point: Point) -> Point:
    """Return the point with its images and residuals in single precision."""
    P = point.P.astype(np.complex64 if np.iscomplexobj(point.P) else np.float32)
    z: Any = point.z.astype(np.float32)
    return Point(point.Y, P, z, z, point.value, point.gradient, point.ratio, point.drift)


def _parts(problem: Program, count: int) -> list[tuple[slice, slice]]:
    """Parts of the readings, and of the rows: all at once where readings are sums of rows."""
    F = problem.F
    if not F.rank_one or not isinstance(problem.b, np.ndarray):  # or on a device
        return [(slice(None), slice(None))]
    parts = list(_within(slice(0, F.m), count))
    return list(zip(parts, parts, strict=True))


def _worst(problem: Program, z: Vector, inverse: Vector, part: slice) -> Any:
    """Return the largest ratio of maintained residuals, where it is."""
    if problem.bounds is not None:
        return problem.bounds.ratios(z, np.full_like(z, _EPS), part).max()
    ratios = np.abs(z)
    ratios *= inverse
    return ratios.max()
