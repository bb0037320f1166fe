"""Steps of the interior-point method: predictor and corrector [Mehrotra 1992]."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sl

from quadsense.arrays import Vector
from quadsense.core.cholesky import factor_lower
from quadsense.core.intervals import TINY, Array
from quadsense.device import numbers
from quadsense.methods.base import MIN_RESIDUAL, PROGRESS_SHARE
from quadsense.methods.conic.direction import (
    ConeScaling,
    KernelDirection,
    KernelPoint,
    Newton,
    ProductTargets,
    count_of_pairs,
    gap_of,
    hermitian,
    objective_of,
    residuals,
    sum_of_products,
    sum_of_targets,
)
from quadsense.methods.conic.program import KernelProgram
from quadsense.methods.conic.start import restored, start
from quadsense.methods.conic.system import ROUGH_RESIDUAL

SHORT_STEP, CENTRING_TRIALS = 0.2, ((0.5, 0.5), (0.5, 5.0), (0.1, 10.0), (0.0, 1.0))
"""Steps below that length are tried again with such a share of the residuals taken off at most, and
aiming for so much of the mean product."""

MAX_CORRECTIONS, MIN_LENGTH_GAIN = 2, 0.02
"""So often at most the second-order terms are taken anew, of the direction that they gave, and
lengths are to grow by that in sum: the system is factored, and a direction costs little."""

MAX_RELAXED_GAP = 1e-2
"""Gap, in units of a logarithm, from which it is known which ends are crossed."""

MAX_IDLE_STEPS = 6
"""Steps without progress that are the end."""

MIN_DIRECT_STEP = 0.25
"""A step at least so long leads to logarithms directly; else multipliers of the cone are to be
large first, so that A does not run into its boundary."""

MIN_PRODUCT_SHARE, MIN_LATE_PRODUCT_SHARE, LATE_STEPS = 5e-5, 0.1, 2
"""Products, in units of what the missed readings amount to, below which multipliers of the cone are
made larger once more, to the geometric mean of the two; the same after steps without progress, and
how many."""

HOPELESS_STEP = 0.01
"""Above this, a step that takes something off the residuals goes before one that does not."""

MIN_BACKOFF, MAX_BACKOFF = 0.9, 0.99
"""Shares of the way to the boundary that steps take, short ones and long ones; all of a linear
program take the latter."""

MIN_STEP = 1e-7
"""Steps below this are none."""

MIN_PRODUCTS = 1e-11
"""Share of the objective that the products are not to go below."""

NEAR_GAP = 1e-5
"""Relative distance of the bounds from which rounding may be what is left."""

NEGLIGIBLE_MISS, NEGLIGIBLE_IMBALANCE = 1e-9, 1e-8
"""Residuals left alone: of readings, and of the matrix equation relative to the objective."""

RESIDUAL_PER_GAP, LINEAR_RESIDUAL_PER_GAP = 1e-7, 1e-3
"""Relative residual of the systems over the relative gap at which they are left alone; the same
where the objective is the largest miss alone."""

MAX_GROWTH = 10.0
"""Growth of residuals from which rounding has taken back what was reached."""

CENTRING_POWER = 3
"""What is left of products after a step: what the affine one leaves, to it [Mehrotra 1992]."""

MIN_OBJECTIVE_SHARE = 1e-2
"""Objective, in units of the program, below which products are not bounded by it."""

FRESH_SHARE = 0.1
"""Slacks that are computed anew replace those that were carried from this share of these on;
residuals are left out below the same share of them."""


@dataclass(frozen=True)
class KernelState:
    """A point and how far it is from the optimum.

    Attributes
    ----------
    at : KernelPoint
    gap : float
        Objective minus lower bound in units of the program, without what is missed.
    slip : float
        What the missed parts of ends, levels and prices amount to, by their multipliers.
    missed : float
        Largest residual of ends and levels, in units of readings.
    imbalance : float
        Norm of the matrix residual.
    size : float
        Norm of A, and no less than the unit.
    value : float
        Objective without logarithms.
    iteration : int
    idle : int
        Steps without progress.
    stuck : bool
        Whether rounding leaves no step to take.
    least : float
        The least `apart` so far.
    single : bool
        Whether factors in single precision have done so far.
    relaxed : bool
        Whether it is of `KernelProgram.relaxed`.
    """

    at: KernelPoint
    gap: float
    slip: float
    missed: float
    imbalance: float
    size: float
    value: float
    iteration: int
    idle: int
    stuck: bool
    least: float = np.inf
    single: bool = True
    relaxed: bool = False

    @property
    def apart(self) -> float:
        """How far objective and lower bound may be apart, in units of the program."""
        return self.gap + self.slip + self.imbalance * self.size


def first(program: KernelProgram, A: Array | None = None, y: Vector | None = None) -> KernelState:
    """Return the state to begin with, at an A well inside where one is known; see `start`."""
    relaxed = program.relaxed
    if relaxed is None or A is not None:
        return measured(program, start(program, A, y), 0)
    return replace(measured(relaxed, start(relaxed), 0), relaxed=True)


def measured(program: KernelProgram, at: KernelPoint, iteration: int, idle: int = 0) -> KernelState:
    """Return the state of a point."""
    missed = residuals(program, at)
    program.kept["missed"] = at, missed  # for the step from there
    values: Vector | None = None
    if at.S is not None and at.X is not None:
        # Of no logarithm the gap is their sum alone.
        values = np.vecdot(at.X.T, (at.S @ at.X).T).real
        if program.cone_target:
            values = _eigenvalues(at.X.conj().T @ at.S @ at.X)
    *missing, imbalance, norm, slip, unpaid = numbers(
        np.max(np.abs(missed.ends), initial=0.0),
        np.max(np.abs(missed.held), initial=0.0),
        np.linalg.norm(missed.matrix),
        np.linalg.norm(at.A),
        np.sum(at.duals * np.abs(missed.ends))
        + np.abs(at.held) @ np.abs(missed.held)
        + 0.5 * (program.curve @ missed.held**2),
        np.sum(at.bought * np.abs(missed.prices)),
    )
    off, size = max(missing), max(1.0, norm)
    slip += unpaid + at.t * abs(missed.t)
    gap = gap_of(program, at, values)
    value = objective_of(program, at)
    return KernelState(at, gap, slip, off, imbalance, size, value, iteration, idle, False)


def _eigenvalues(M: Array) -> Vector:
    """Return those of the products of A and S; none is a number where M has left the range."""
    if not np.isfinite(M).all():
        return np.full(len(M), np.nan)
    try:
        return np.maximum(np.linalg.eigvalsh(M), TINY)
    except np.linalg.LinAlgError:  # entries near the end of the range, whose squares are beyond it
        return np.full(len(M), np.nan)


def advance(program: KernelProgram, state: KernelState) -> KernelState:
    """Return the state after one more step, or the same state marked as stuck."""
    if state.relaxed:
        assert program.relaxed is not None
        known = state.stuck or state.apart <= MAX_RELAXED_GAP * program.cone_target
        crossed = program.finite & (program.signs * state.at.v > program.ends)
        if not (known and bool(np.any(crossed))):
            return replace(advance(program.relaxed, replace(state, relaxed=False)), relaxed=True)
        whole = measured(program, restored(program, state.at), state.iteration)
        state = replace(whole, single=state.single)  # and on: a run in which nothing moves is ended
    if state.stuck:
        return state
    at: KernelPoint | None
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        try:
            at, single = _step(program, state)
        except (sl.LinAlgError, ValueError):  # the latter from SciPy, for what is no number
            at, single = None, False
        after = None if at is None else measured(program, at, state.iteration + 1)
    if after is None or not _sound(after) or _spoilt(state, after):
        return replace(state, stuck=True)
    if count_of_pairs(program) == 0 and after.apart > 0.5 * state.apart:  # solved up to rounding
        return replace(state if state.apart <= after.apart else after, stuck=True)
    # Near the end rounding moves it up and down: then the least so far is to be beaten.
    near = state.least <= NEAR_GAP * abs(state.value)
    before = state.least if near else state.apart
    better = (
        after.apart < PROGRESS_SHARE * before
        or NEGLIGIBLE_MISS < after.missed < PROGRESS_SHARE * state.missed
    )
    least = min(state.least, after.apart)
    idle = 0 if better else state.idle + int(not _lifted(state, after))
    return replace(after, idle=idle, least=least, single=single)


def _sound(state: KernelState) -> bool:
    numbers = (state.gap, state.missed, state.imbalance, state.value, state.at.t)
    return all(np.isfinite(numbers)) and bool(np.all(np.isfinite(state.at.duals)))


def _lifted(before: KernelState, after: KernelState) -> bool:
    """Whether the step changed nothing but multipliers of the cone."""
    return after.at.A is before.at.A


def _spoilt(before: KernelState, after: KernelState) -> bool:
    """Whether rounding has taken back what was reached: residuals never grow but by that."""
    first = before.iteration == 0 or _lifted(before, after)
    if after.apart <= before.apart or first:
        return False
    balanced = NEGLIGIBLE_IMBALANCE * (1.0 + abs(before.value)) / after.size
    misses = after.missed > MAX_GROWTH * max(before.missed, NEGLIGIBLE_MISS)
    return misses or after.imbalance > MAX_GROWTH * max(before.imbalance, balanced)


def _step(program: KernelProgram, state: KernelState) -> tuple[KernelPoint | None, bool]:
    """Return the next point, None where there is no step, and whether single precision did."""
    at = state.at
    known = program.kept.get("missed")
    missed = known[1] if known is not None and known[0] is at else residuals(program, at)
    cone = ConeScaling.at(at, program.alpha > 0.0) if program.psd else None
    # A system need not be solved more finely than what is left to do asks for, by far.
    left = state.apart / (1.0 + abs(state.value))
    enough = float(np.clip(RESIDUAL_PER_GAP * left, MIN_RESIDUAL, ROUGH_RESIDUAL))
    if program.homogeneous:  # multipliers are balanced to rounding before they bound anything
        enough = max(enough, LINEAR_RESIDUAL_PER_GAP * left)
    newton = Newton(program, at, missed, cone, enough, state.single)
    count, aim = count_of_pairs(program), sum_of_targets(program)
    step = newton.direction(_targets(program, 0.0, cone, None))
    if count == 0:
        return _moved(newton, step, 1.0, 1.0, 1.0), newton.system.single
    mean = aim / count
    mu = sum_of_products(program, at) / count - mean
    lengths = _tied(program, *newton.lengths(step))
    primal, dual = (min(1.0, a) for a in lengths)
    if primal < MIN_DIRECT_STEP and _may_lift(program, state):
        assert at.S is not None
        sum_ = sum_of_products(program, at)
        low = MIN_LATE_PRODUCT_SHARE if state.idle >= LATE_STEPS else MIN_PRODUCT_SHARE
        if state.iteration == 0 or sum_ < low * state.slip:
            factor = float(np.sqrt(state.slip / sum_)) if sum_ < state.slip < np.inf else 1.0
            return replace(at, S=factor * at.S), newton.system.single
    reached = _reached(program, at, cone, step, primal, dual) / count - mean
    sigma = min(1.0, max(reached, 0.0) / mu) ** CENTRING_POWER if mu > 0.0 else 0.0
    # No lower than can matter: beyond that the systems only get worse.
    size = max(abs(objective_of(program, at)), MIN_OBJECTIVE_SHARE)
    least = MIN_PRODUCTS * size / count
    goal = max(sigma * mu, min(mu, least), 0.0)
    step = newton.direction(_targets(program, goal, cone, step))
    primal, dual = _tied(program, *newton.lengths(step))
    for _ in range(MAX_CORRECTIONS):
        if min(primal, dual) >= 1.0:
            break
        other = newton.direction(_targets(program, goal, cone, step))
        lengths = _tied(program, *newton.lengths(other))
        if sum(lengths) < primal + dual + MIN_LENGTH_GAIN:
            break
        step, (primal, dual) = other, lengths
    taken = 1.0
    for share, part in CENTRING_TRIALS:  # where products have gone apart: first even them out
        if min(primal, dual) >= (SHORT_STEP if share else HOPELESS_STEP):
            break
        other = newton.direction(_targets(program, part * max(mu, 0.0), cone, None), share)
        lengths = _tied(program, *newton.lengths(other))
        if min(lengths) > min(primal, dual):
            step, taken, (primal, dual) = other, share, lengths
    backoff = MAX_BACKOFF
    if program.psd or program.tied:
        backoff = MIN_BACKOFF + (MAX_BACKOFF - MIN_BACKOFF) * min(1.0, primal, dual)
    primal, dual = min(1.0, backoff * primal), min(1.0, backoff * dual)
    if max(primal, dual) < MIN_STEP:
        return None, newton.system.single
    return _moved(newton, step, primal, dual, taken), newton.system.single


def _may_lift(program: KernelProgram, state: KernelState) -> bool:
    """Whether multipliers of the cone may be made larger: at first, or where rows have no ends."""
    logarithm = program.cone_target > 0.0 and program.row_unit == 0.0
    return logarithm and (state.iteration == 0 or not any(program.counts))


def _tied(program: KernelProgram, primal: float, dual: float) -> tuple[float, float]:
    if program.tied:
        primal = dual = min(primal, dual)
    return primal, dual


def _targets(
    program: KernelProgram, mu: float, cone: ConeScaling | None, second: KernelDirection | None
) -> ProductTargets:
    """Return the products to aim for, minus the second-order terms of a direction."""
    rows = np.where(program.finite, program.row_target + mu, 0.0)
    prices = np.where(program.priced, mu, 0.0)
    t, matrix = mu, None
    if cone is not None:
        matrix = (program.cone_target + mu) * program.eye
    if second is not None:
        rows = rows - second.slacks * second.duals
        prices = prices - second.bought * second.left
        t = t - second.t * second.t_dual
        if matrix is not None:
            assert second.S is not None
            matrix = matrix - hermitian(second.A @ second.S)
    return ProductTargets(rows, prices, t, matrix)


def _reached(
    program: KernelProgram,
    at: KernelPoint,
    cone: ConeScaling | None,
    step: KernelDirection,
    primal: float,
    dual: float,
) -> float:
    """Return the sum of products where a step leads."""
    total = np.sum((at.slacks + primal * step.slacks) * (at.duals + dual * step.duals))
    total += np.sum((at.bought + primal * step.bought) * (at.left + dual * step.left))
    if program.common:
        total += (at.t + primal * step.t) * (at.t_dual + dual * step.t_dual)
    if cone is not None:
        assert step.S is not None
        D = np.diag(cone.d)
        total += np.vdot(D + primal * step.A, D + dual * step.S).real
    return float(total)


def _moved(
    newton: Newton, step: KernelDirection, primal: float, dual: float, share: float
) -> KernelPoint:
    """Return the point so far along a direction that takes that share off the residuals."""
    program, at, cone = newton.program, newton.at, newton.cone
    A: Array
    X = S = None
    if cone is not None:
        assert step.S is not None
        D = np.diag(cone.d)
        A = hermitian(cone.G @ (D + primal * step.A) @ cone.G.conj().T)
        X = factor_lower(A)
        change = share * newton.missed.matrix + program.F.adjoint(step.y)
        if program.alpha:
            change = change + (2.0 * program.alpha / primal) * (A - at.A)
        assert at.S is not None
        S = cone.dual(hermitian(at.S + dual * change), D + dual * step.S)
        v = program.F.factored(X)
    else:
        A = at.A + primal * step.A
        v = program.F.forward(A)
    duals = at.duals + dual * step.duals
    bought, t = at.bought + primal * step.bought, at.t + primal * step.t
    moved = at.slacks + primal * step.slacks
    soft = program.softness * duals + bought + program.share * t
    # Recomputed, not carried: the slack of a row near its end is a small difference.
    fresh = np.where(program.finite, program.ends - program.signs * v + soft, 1.0)
    rest = (1.0 - primal * share) * newton.missed.ends
    fresh = np.where(np.abs(rest) <= FRESH_SHARE * fresh, fresh, fresh - rest)
    slacks = np.where(fresh > FRESH_SHARE * moved, fresh, moved)
    return KernelPoint(
        A, X, S, v, slacks, duals, bought, at.left + dual * step.left, t,
        at.t_dual + dual * step.t_dual, at.held + dual * step.held,
    )  # fmt: skip
