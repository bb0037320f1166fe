"""Conjugate residuals on ``K y = z_1``, stopped on the largest residual ratio.

The iterate is ``A = A_1 - F*(y)`` (``A_1 = tau I`` unless given) and its residual
``z = z_1 - K y`` with ``K = F F*``. Each step takes the direction w (z itself, or a preconditioned
z), makes its image ``q = K w`` orthogonal to the images before it, and so minimises ``||z||_2``
over everything spanned so far (see `Span`). In exact arithmetic that is the conjugate residual
method, the member of the conjugate gradient family that minimises the residual rather than the
error: near ``m = N`` it needs a quarter of the products that textbook conjugate gradients need to
bring ``max |z_i|/delta_i`` to 1, and on inconsistent data it tends to the least-squares fit where
the textbook method diverges. Keeping the last images costs ``O(m)`` each per step and makes the
method indifferent to rounding: products in single precision, with a float64 residual, need no more
steps than products in double precision. Products that are coarser still (TF32, on a GPU, where the
user allows it) come in stretches of three digits, after each of which the residual is recomputed in
float64, as in iterative refinement.

What is claimed is recomputed from the data in float64 with a rounding bound. Between such checks
``z`` is the recurrence's.

Departs from [QSZ24]: the direction is z, not ``sinh(lambda z)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.core.products import Float, Inexact, pack, unpack
from quadsense.core.records import changed, record
from quadsense.device import numbers, waits
from quadsense.methods.cg import (
    FIRST_FORECAST,
    MAX_WINDOW,
    SINGLE_GAIN,
    window_bytes,
)
from quadsense.methods.cg.system import (
    RATE_STEPS,
    CGSystem,
    Vector,
    direction_of,
    distance_left,
    prepare,
    steps_left,
)
from quadsense.system.machine import FLOAT64_BYTES
from quadsense.system.watch import look

__all__ = ["CGState", "CGSystem", "advance", "coefficients", "matrix", "prepare", "start"]

# Of a full window of images, the share that stays.
WINDOW_SHARE_KEPT = 0.5
# Matrices of the directions are kept up to this share of the size of U.
MAX_MATRICES_SHARE = 0.5
# Relative gradient ||F*(z)|| / (||F|| ||z||) below which z is taken for a least-squares residual.
MAX_GRADIENT = 1e-4
# Where the gradient is nothing but rounding.
MIN_GRADIENT = 1e-12
# Distance to the least-squares residual, in units of delta, at which that fit is kept.
MAX_DISTANCE = 1e-2
# Preconditioned steps in which the largest ratio must halve.
MAX_STEPS_PER_HALVING = 64
# Coarse products (TF32, of roundoff 2^-11): what they make of the residual that a stretch of them
# began with, in units of it (2e-5 to 8e-5 seen); the share of it at which a stretch ends; the share
# to which it must have fallen for another to follow; after how many steps at the latest; and the
# relative gradient below which double precision takes over, for it is no longer seen.
COARSE_DRIFT = 2.0**-12
COARSE_STRETCH = 1e-3
MAX_RATIO_LEFT = 0.5
MIN_COARSE_GRADIENT = 1e-2


@record(frozen=True)
class Span:
    """Directions D, rows of length dim, and their images: ``D K = R^T Q``, rows of Q orthonormal.

    Directions are kept as they came, and only their images are made orthogonal: half the work of
    making both so. The combination that takes the component ``steps`` of each image away from the
    residual is ``coefficients @ D``.

    Attributes
    ----------
    directions, images : (room, .) array
        D and Q, of which the first `size` rows count; single precision where products are.
    triangle : (room, room) array
        R, upper triangular; where the images are, so that no step waits for it.
    steps : (room,) array
    size : int
    matrices : tuple of (n, n) arrays, or None
        ``F*`` of each direction, while these are few enough to be kept and all there is.
    """

    directions: Float
    images: Float
    triangle: Vector
    steps: Vector
    size: int
    matrices: tuple[Inexact, ...] | None

    @classmethod
    def empty(cls, x: Vector, z: Vector, dtype: npt.DTypeLike, whole: bool) -> Span:
        """Of no directions like x, and no images like z; `whole` where no step was before."""
        if type(z) is np.ndarray:
            return _no_directions(x.size, z.size, np.dtype(dtype), whole)
        empty = partial(np.empty_like, z)
        directions, images = (empty(shape=(0, each.size), dtype=dtype) for each in (x, z))
        triangle, steps = empty(shape=(0, 0)), empty(shape=(0,))
        return cls(directions, images, triangle, steps, 0, () if whole else None)

    def with_room(self, room: int) -> Span:
        """A copy that `add` may write to, with room for that many directions."""
        k = self.size
        triangle = np.zeros_like(self.triangle, shape=(room, room))
        triangle[:k, :k] = self.triangle[:k, :k]
        parts = (_grown(each[:k], room) for each in (self.directions, self.images, self.steps))
        directions, images, steps = parts
        return replace(self, directions=directions, images=images, triangle=triangle, steps=steps)

    def add(
        self, w: Vector, q: Vector, z: Vector, S: Inexact | None, roundoff: float = 0.0
    ) -> tuple[Span, Vector]:
        """Take the direction w with image q in; return the step along its new part too.

        Writes to the arrays of this span, beyond its size.

        Parameters
        ----------
        w, q : (dim,), (m,) array
        z : (m,) array
            The residual.
        S : (n, n) array, optional
            ``F*`` of w.
        roundoff : float
            Of the image, where that is more than what images are kept with.

        Returns
        -------
        span : Span
        change : (m,) array
            What the step takes from z; nan where the image has no new part.
        """
        k = self.size
        least: Any = 0.0
        if k:
            known, whole = self.images[:k], np.linalg.norm(q)
            overlap = known @ q.astype(known.dtype)
            q = q - overlap @ known
            self.triangle[:k, k] = overlap
            # What rounding leaves.
            least = 4.0 * max(float(np.finfo(known.dtype).eps), 2.0 * roundoff) * whole
        length = np.linalg.norm(q)
        unit = q / np.where(length > least, length, np.nan)
        self.directions[k], self.images[k] = w, unit
        self.triangle[k, k] = length
        self.steps[k] = step = z @ unit
        kept = None if S is None or self.matrices is None else (*self.matrices, S)
        return replace(self, size=k + 1, matrices=kept), step * unit

    @property
    def coefficients(self) -> Vector:
        """Of the directions, in the combination."""
        k = self.size
        if not k:
            return np.empty(0)
        found, _ = lapack.dtrtrs(np.asarray(self.triangle[:k, :k]), np.asarray(self.steps[:k]))
        return np.asarray(found)

    def combination(self) -> Vector:
        """The step that all steps together are, in the coordinates of the directions."""
        c = self.coefficients
        scale = float(np.max(np.abs(c), initial=0.0)) or 1.0  # which single precision may not hold
        found = (c / scale).astype(self.directions.dtype) @ self.directions[: self.size]
        return scale * found.astype(np.float64, copy=False)

    def matrix(self) -> Inexact:
        """``F*`` of the combination, if `matrices` are there."""
        assert self.matrices
        terms = zip(self.coefficients, self.matrices, strict=True)
        wide = (float(c) * S.astype(np.result_type(S.dtype, np.float64)) for c, S in terms)
        return sum(wide, start=np.zeros(()))

    @property
    def double(self) -> bool:
        """Whether it is kept in double precision."""
        return self.images.dtype == np.float64

    def last(self, count: int) -> Span:
        """The last images with directions of their own; what the steps made is no longer in it."""
        k = self.size
        inverse = lapack.dtrtri(np.asarray(self.triangle[:k, :k]))[0][:, k - count :]
        directions = inverse.T.astype(self.directions.dtype) @ self.directions[:k]
        images = self.images[k - count : k].copy()
        triangle = np.zeros_like(self.triangle, shape=(count, count))
        triangle[np.diag_indices(count)] = 1.0
        steps = np.zeros_like(self.steps, shape=(count,))
        return Span(directions, images, triangle, steps, count, None)


def _grown(rows: Any, room: int) -> Any:
    grown = np.empty_like(rows, shape=(max(room, len(rows)), *rows.shape[1:]))
    grown[: len(rows)] = rows
    return grown


@lru_cache(maxsize=8)
def _no_directions(x: int, z: int, dtype: np.dtype[Any], whole: bool) -> Span:
    """Return the span of no directions of these sizes: small solves begin with one."""
    directions, images = np.empty((0, x), dtype), np.empty((0, z), dtype)
    return Span(directions, images, np.empty((0, 0)), np.empty(0), 0, () if whole else None)


@record(frozen=True)
class CGState:
    """Where the iteration stands.

    Attributes
    ----------
    iteration : int
        Steps taken.
    base : (m,) or (N,) array
        The part of `x` that `span` no longer holds.
    z : (m,) array
        Residual ``F(A) - b``.
    A : (n, n) array or None
        The iterate, where it was formed to be verified.
    max_ratio : float
        ``max |z_i|/delta_i``; where `verified`, of z recomputed from the data, rounding bound
        included.
    verified : bool
        Whether z was recomputed from the data at this very x.
    met, inconsistent, stalled : bool
        How the iteration ended, if it did: within delta; at a least-squares residual that is not
        (no proof of infeasibility, but the sign to look for one); or where rounding stops it.
    distance : float
        Estimate of ``||z - z_LS||_2``, what further steps can still take away.
    gradient : float
        ``||F*(z)||_F / (||F|| ||z||)`` before the last step, with ``||F||`` from `norm`; infinite
        while the preconditioner reaches most of z.
    norm : float
        Estimate of the largest eigenvalue of K.
    ratios, decreases : (iteration + 1,), (iteration,) array
        ``max_ratio`` after each step; how much of ``||z||^2`` each step took away.
    span : Span
        The last directions and their images.
    double : bool
        Whether products are in double precision.
    plain : int or None
        Steps taken before the preconditioner, if it is in use.
    goal : float
        Share of the tolerances aimed at: below 1 where rounding wants room (`System.aiming`).
    """

    iteration: int
    base: Vector
    z: Vector
    A: Inexact | None
    max_ratio: float
    verified: bool
    met: bool
    inconsistent: bool
    stalled: bool
    distance: float
    gradient: float
    norm: float
    ratios: Vector
    decreases: Vector
    span: Span
    double: bool
    plain: int | None
    goal: float = 1.0

    @property
    def x(self) -> Vector:
        """``y``, or ``F*(y)`` as `pack` has it where there are more rows than unknowns."""
        return self.base + self.span.combination() if self.span.size else self.base

    @property
    def preconditioned(self) -> bool:
        """Whether directions are preconditioned."""
        return self.plain is not None

    @property
    def finished(self) -> bool:
        """Whether a further step would change nothing that is claimed."""
        return self.met or self.inconsistent or self.stalled


def start(system: CGSystem, y: Vector | None = None, factored: bool = False) -> CGState:
    """The state before the first step, at ``A_1`` or at ``A_1 - F*(y)``.

    Parameters
    ----------
    system : CGSystem
    y : (m,) array, optional
        Measurement coordinates of an earlier answer to start from.
    factored : bool
        Whether the first step has the preconditioner.
    """
    if system.in_matrix_coordinates:
        x = system.nothing if y is None else pack(system.F.adjoint(y))
    else:
        x = np.zeros_like(system.b) if y is None else y.astype(np.float64)
    z, A, ratio = system.z1, None, system.start_ratio
    if y is not None:
        here = _begun(x, z, A, np.inf, system.explicit, None, met=False, whole=False)
        z, A, ratio = recomputed(system, here)
    plain = 0 if factored else None
    double = system.explicit or plain is not None or (ratio > SINGLE_GAIN and not system.coarse)
    # A multiple of I that meets delta is no estimate where least squares would be one.
    guess = system.overdetermined and y is None and isinstance(system.A1, float)
    met = ratio <= 1.0 and not (guess and bool(z.any()))
    return _begun(x, z, A, ratio, double, plain, met, whole=y is None)


def _begun(
    x: Vector, z: Vector, A: Inexact | None, ratio: float, double: bool, plain: int | None,
    met: bool, whole: bool,
) -> CGState:  # fmt: skip
    """The state of no steps; `whole` where x is 0."""
    return CGState(
        iteration=0, base=x, z=z, A=A, max_ratio=ratio, verified=True, met=met, inconsistent=False,
        stalled=False, distance=np.inf, gradient=np.inf, norm=0.0, ratios=np.array([ratio]),
        decreases=np.empty(0), double=double, plain=plain,
        span=Span.empty(x, z, np.float64 if double else np.float32, whole),
    )  # fmt: skip


def advance(system: CGSystem, state: CGState, steps: int) -> CGState:
    """Take up to `steps` steps; fewer where the state is finished before.

    Parameters
    ----------
    system : CGSystem
    state : CGState
        Not modified.
    steps : int
        Each costs one product with K, ``2 m n^2`` flops unless K is explicit.
    """
    F = system.F
    room = window_bytes(F.m * F.n * FLOAT64_BYTES * (2 if F.is_complex else 1))
    window = max(2, min(MAX_WINDOW, room // (FLOAT64_BYTES * (state.base.size + state.z.size))))
    span, left = state.span.with_room(min(window, state.span.size + steps)), steps
    while left and not state.finished:
        if span.size == window:
            base, span = state.x, span.last(int(WINDOW_SHARE_KEPT * window))
            state = changed(state, base=base, span=span)
            span = span.with_room(window)
        elif span.size == len(span.steps):  # made anew in these very steps
            span = span.with_room(min(window, span.size + steps))
        ahead = _ahead(system, state, min(left, len(span.steps) - span.size))
        for taken, told in _looked_at(_taken(system, state, span, ahead)):
            left -= 1
            state = _after(system, state, taken, told)
            if state.z is not taken.z:  # the steps that follow were not taken from here
                break
        span = state.span
    return state


def _ahead(system: CGSystem, state: CGState, most: int) -> int:
    """Steps to take before anyone looks at the numbers of the first of them.

    On a device, which has then no gaps in its work; steps that a decision leaves behind cost their
    time and nothing else. So no more than bring the residual down to where one is due, by the rate
    of the last steps. Those with the preconditioner gain digits each, and are looked at one by one.
    """
    if not waits(state.z) or state.preconditioned:
        return 1
    if len(state.decreases) <= RATE_STEPS:
        return min(most, RATE_STEPS)
    before, last = float(state.decreases[-1 - RATE_STEPS]), float(state.decreases[-1])
    rate = 0.5 * math.log(before / last) / RATE_STEPS if before > last > 0.0 else 0.0
    if system.coarse and not state.double:
        due = state.max_ratio / max(1.0, COARSE_STRETCH * float(state.ratios[-1 - state.span.size]))
    elif system.overdetermined:
        due = state.distance / (MAX_DISTANCE * system.narrowest)
    else:
        due = state.max_ratio
    far = math.log(max(due, 1.0))
    return most if far >= rate * most else max(1, math.ceil(far / rate))


class _Taken(NamedTuple):
    """A step: what is spanned with it, the residual after it, and numbers left where they are."""

    span: Span
    z: Vector
    told: tuple[Any, ...]


def _taken(system: CGSystem, state: CGState, span: Span, count: int) -> list[_Taken]:
    """Take `count` steps one after the other, each as if the one before had decided nothing.

    Writes to the arrays of the span, beyond its size.
    """
    found, roundoff = [], system.roundoff(state.double)
    most = MAX_MATRICES_SHARE * system.F.m  # the matrices are kept while there is memory
    for _ in range(count):
        look()
        direction = direction_of(system, state.z, state.double, state.preconditioned)
        w, q = direction.w, direction.q
        kept = direction.S if (state.span.size + 1) * system.F.n <= most else None
        span, change = span.add(w, q, state.z, kept, roundoff)
        z = state.z - change
        told = (
            direction.scale, direction.slope, np.linalg.norm(q), np.linalg.norm(w),
            np.linalg.norm(state.z), state.z @ q, change @ change,
            (np.abs(z) / system.delta).max(), z @ z,
        )  # fmt: skip
        found.append(_Taken(span, z, told))
        state = changed(state, span=span, z=z)
    return found


def _looked_at(steps: list[_Taken]) -> Iterator[tuple[_Taken, tuple[float, ...]]]:
    """Steps and their numbers, all at once, so that a device is waited for once."""
    told = numbers(*(number for step in steps for number in step.told))
    size = len(steps[0].told)
    return ((step, told[k * size : (k + 1) * size]) for k, step in enumerate(steps))


def _after(system: CGSystem, state: CGState, step: _Taken, told: tuple[float, ...]) -> CGState:
    """The state after a step, judged; without its span where the next is not to go on from it."""
    scale, slope, of_q, of_w, of_z, along, taken, ratio, left = told
    norm = max(state.norm, _quotient(of_q, of_w))
    reach = float(np.sqrt(scale) * np.sqrt(abs(along)))
    steepness = np.sqrt(_quotient(max(scale * scale * slope, 0.0), norm))
    gradient = _quotient(steepness, of_z)
    if not np.isfinite(taken):  # nothing is left that K can reach, in this precision
        if not state.double:
            return corrected(system, state)
        state = _verify(system, state)
        met, least_squares = state.max_ratio <= 1.0, gradient <= MAX_GRADIENT
        return changed(
            state, met=met, inconsistent=not met and least_squares,
            stalled=not (met or least_squares),
        )  # fmt: skip
    decreases = np.append(state.decreases, taken)
    state = changed(
        state, iteration=state.iteration + 1, span=step.span, z=step.z, A=None, max_ratio=ratio,
        verified=False, distance=distance_left(decreases, left), gradient=gradient,
        norm=norm, ratios=np.append(state.ratios, ratio), decreases=decreases,
    )  # fmt: skip
    if state.preconditioned:
        # There ``z.q`` is nearly the square of what is left of z within the range of F.
        state = changed(state, distance=max(state.distance, reach))
    judged = _judge(system, state, math.sqrt(left))
    refined = judged.verified and not (judged.double or judged.finished)
    if refined or (judged.double, judged.plain) != (state.double, state.plain):
        judged = _begun_anew(judged)
    return judged


def corrected(system: CGSystem, state: CGState) -> CGState:
    """The state in double precision, its residual recomputed from the data."""
    return _begun_anew(_verify(system, changed(state, double=True)))


def _begun_anew(state: CGState) -> CGState:
    """The state without its span.

    A recomputed z is not orthogonal to coarser images, and directions made orthogonal to them
    could not reach that part of it.
    """
    dtype = np.float64 if state.double else np.float32
    span = Span.empty(state.base, state.z, dtype, whole=False)
    return changed(state, base=state.x, span=span)


def coefficients(system: CGSystem, state: CGState) -> Vector | None:
    """The y of ``A = A_1 - F*(y)``, or None where the iterate is kept as a matrix."""
    return None if system.in_matrix_coordinates else state.x


def matrix(system: CGSystem, state: CGState) -> Inexact:
    """The iterate A, shape (n, n)."""
    return _matrix(system, state) if state.A is None else state.A


def _judge(system: CGSystem, state: CGState, size: float) -> CGState:
    """Decide whether to end, and whether to precondition from here on; `size` is ``||z||_2``."""
    # More rows than unknowns: under noise the least-squares fit is the better estimate, so the
    # iteration goes on to it. Elsewhere least squares is any exact fit, and delta ends it.
    settled = (
        not system.overdetermined
        or _unsettled(system, state, size) <= 1.0
        or state.gradient <= MIN_GRADIENT
    )
    coarse = system.coarse and not state.double
    begun = float(state.ratios[-1 - state.span.size]) if coarse else 0.0
    if state.max_ratio + COARSE_DRIFT * begun <= 1.0 and settled:
        state = _verify(system, state)
        if state.max_ratio > 1.0 and not state.double:
            # Single precision has given its all: go on from the residual of the exact sum.
            state = _refined(system, state, begun)
        return changed(state, met=state.max_ratio <= 1.0)
    if state.gradient <= MAX_GRADIENT and _beyond(system, state) > 1.0:
        state = _verify(system, changed(state, double=True))
        return changed(state, inconsistent=_beyond(system, state) > 1.0)
    if coarse and 1.0 < COARSE_STRETCH * begun >= state.max_ratio:
        return _refined(system, state, begun)
    late = state.span.size >= FIRST_FORECAST and state.max_ratio > MAX_RATIO_LEFT * begun
    if coarse and (late or state.gradient <= MIN_COARSE_GRADIENT):
        return _refined(system, state, 0.0)
    if _should_precondition(system, state, size):
        return _verify(system, changed(state, plain=state.iteration, double=True))
    patient = state.plain is None or state.iteration - state.plain < MAX_STEPS_PER_HALVING
    if not patient and state.max_ratio > 0.5 * state.ratios[-MAX_STEPS_PER_HALVING]:
        return changed(_verify(system, state), stalled=True)
    return state


def _refined(system: CGSystem, state: CGState, begun: float) -> CGState:
    """The state with the residual of the exact sum, and in double precision from there on, unless
    coarse steps have brought the ratio down by enough from where they began.
    """
    state = _verify(system, changed(state, double=True))
    return changed(state, double=not state.max_ratio <= MAX_RATIO_LEFT * begun)


def _unsettled(system: CGSystem, state: CGState, size: float) -> float:
    """Distance to the least-squares residual over the one at which it is kept."""
    settled = max(MAX_DISTANCE * system.narrowest, np.finfo(np.float64).tiny)
    return min(state.distance, size) / float(settled)


def _beyond(system: CGSystem, state: CGState) -> float:
    """The largest ratio less what further steps can still take away, twice over."""
    return float(((np.abs(state.z) - 2.0 * state.distance) / system.delta).max())


def _should_precondition(system: CGSystem, state: CGState, size: float) -> bool:
    """Whether the factorisation costs less than the steps that plain directions still need.

    It is also made when twice its cost is spent, so that a wrong forecast costs a bounded factor.
    """
    k = state.iteration
    if state.preconditioned or k < FIRST_FORECAST or k % RATE_STEPS:
        return False
    if not system.factor_fits:
        return False
    target = max(state.max_ratio, 1.0)
    if system.overdetermined:
        # To the least-squares fit, or to where it is seen not to meet delta.
        target = max(target, min(_unsettled(system, state, size), 1.0 / MAX_GRADIENT))
    remaining = steps_left(state.decreases, float(np.log(target)))
    return system.step_cost(state.double) * max(remaining, 0.5 * k) > system.factor_cost


def _matrix(system: CGSystem, state: CGState) -> Inexact:
    """The iterate A in double precision.

    After single-precision steps ``F*(y)`` is summed in single precision too: A is verified as it
    is stored, and then differs from the exact sum by no more than the steps differ from theirs.
    After several stretches of coarse steps it would not.
    """
    F = system.F
    if system.in_matrix_coordinates:
        A = unpack(-state.x, F.n, F.dtype)
    elif state.span.matrices and state.double == state.span.double:
        A = (-state.span.matrix()).astype(F.dtype, copy=False)
    else:
        return system.from_coefficients(state.x, state.double or system.coarse)
    return system.from_start(A)


def _verify(system: CGSystem, state: CGState) -> CGState:
    """The state with z recomputed from the data."""
    z, A, ratio = recomputed(system, state)
    return changed(state, z=z, A=A, max_ratio=ratio, verified=True)


def recomputed(system: CGSystem, state: CGState) -> tuple[Vector, Inexact | None, float]:
    """Return z from the data in float64, A where it was formed, and the ratio, rounding included.

    Where A is formed the bound is that of evaluating ``u* A u`` at the stored A, otherwise that of
    ``K y``.
    """
    if not state.span.size and not state.base.any():
        return system.z1, None, system.start_ratio
    if not system.explicit:
        return system.measured(_matrix(system, state))
    z, ratio = system.applied(state.x)
    return z, None, ratio


def _quotient(a: float | np.floating, b: float | np.floating) -> float:
    return float(a) / float(b) if b > 0.0 else 0.0
