"""The steps, how far they have come, and what their penalties are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.secants import Past, combined
from quadsense.core.smooth_terms import over
from quadsense.device import numbers
from quadsense.methods.consensus.program import (
    FIRST_CONE_PENALTY,
    ByDiagonal,
    ByGradients,
    ConsensusProgram,
)
from quadsense.methods.least_squares.bounds import (
    MAX_ZERO_COST,
    ROUNDED_COST,
    SquaresVerdict,
    crossed,
    worst_ratio,
)
from quadsense.methods.least_squares.face import moved_factor, shifted_matrix
from quadsense.methods.least_squares.program import QuadraticPoint, Rows
from quadsense.proofs.rounding import PRODUCT_UNDERFLOW


@dataclass(frozen=True)
class ConsensusLook:
    """A matrix that was looked at, and the bounds that were known by then.

    Attributes
    ----------
    x : array of shape (N,)
        In the cone.
    values : array of shape (m,)
        ``F(A)`` in float64.
    cost, lower : float
        What x costs, and the largest lower bound so far.
    y : array of shape (m,)
        The dual vector of that bound.
    level : float
        What is added to ``F*(y)`` as a multiple of I, where the trace is given.
    max_ratio : float
        Worst ratio of x.
    """

    x: Vector
    values: Vector
    cost: float
    lower: float
    y: Vector
    level: float
    max_ratio: float


@dataclass(frozen=True)
class ConsensusState:
    """The iterate, and the last matrix that was looked at.

    Attributes
    ----------
    z, values : arrays of shape (N,) and (m,)
        Z, packed, and ``F(Z)``.
    v, r : arrays of shape (m,)
        Copies of the readings, and their multipliers over ``2 rho``.
    x, u : arrays of shape (N,)
        The copy in the cone, and its multiplier over ``2 sigma``; without a cone x is z, u is 0.
    y : array of shape (m,)
        Multipliers for which Z is stationary.
    rho : array of shape (m,)
    sigma : float
    share : float
        How far ends are moved inwards, in units of half an interval.
    apart, moved : float
        How far Z is from the copy in the cone, and how far that went in the last step.
    read : (float, float)
        The same of the readings and their copies.
    shown : ConsensusLook or None
    mark, marked : float, int
        The least that remained to be done, in units of what suffices, and when that was.
    past : Past or None
        The steps before, where they are accelerated.
    """

    z: Vector
    values: Vector
    v: Vector
    r: Vector
    x: Vector
    u: Vector
    y: Vector
    rho: Vector
    sigma: float
    share: float
    apart: float = 0.0
    moved: float = 0.0
    read: tuple[float, float] = (0.0, 0.0)
    shown: ConsensusLook | None = None
    verdict: SquaresVerdict = SquaresVerdict.OPEN
    iteration: int = 0
    mark: float = np.inf
    marked: int = 0
    past: Past | None = None

    @property
    def max_ratio(self) -> float:
        """Worst ratio of the matrix that was looked at."""
        return np.inf if self.shown is None else self.shown.max_ratio


RELAXATION = 1.6
"""Over-relaxation: 1.5 to 1.8 in [Boyd et al. 2011, section 3.4.3]."""

MAX_STEP_RESIDUAL, MAX_PRODUCTS = 0.1, 15
"""Residual of a step in Z, relative to that before it, and products at most. Steps in Z
that are as exact as the others are near are enough [Boyd et al. 2011, section 3.4.4]."""

MIN_CURVATURE = 1e-11
"""Of least squares without a cone, relative to the mean: what no row sees stays as it was."""

MAX_FIRST_RESIDUAL, MAX_FIRST_PRODUCTS, MAX_FIRST_ROUNDS = 1e-3, 60, 6
"""The same where there is no iterate yet: least squares without intervals; and how often."""

MAX_EXACT_COST = 100.0
"""What readings without noise may leave of the cost, in units of the residual's square."""

STEPS_PER_LOOK = 5
"""Steps between two looks at the bounds, which cost about as much as a step; penalties change
there too."""

FIRST_PENALTY_WITHOUT_COPIES = 1.0
"""First penalty of the copy in the cone where readings have no copies, in units of the mean
curvature: for 12 states of 5 to 7 qubits .1, .3, 1 and 3 took 54, 48, 44 and 49 steps."""

FIRST_SMOOTH_PENALTY = 3.0
"""First penalty of the copy in the cone where steps with copies are combined, in the same units:
for 24 states of 4 to 6 qubits .3, 1, 3 and 10 took 112, 104, 98 and 106 steps."""

MAX_COMBINED_ORDER = 64
"""Order of A up to which steps with copies are combined: likelihoods of 3 to 6 qubits take two
thirds of the steps, a GHZ state of 8 qubits took twice as many."""

STEPS_WITHOUT_COPIES = 10
"""The same where a step costs no product with the rows: a look costs more than some steps."""


MAX_TUNED_STEPS = 300
"""Steps in which penalties may change: with changing ones nothing converges."""

MIN_PENALTY_CHANGE, MAX_PENALTY_CHANGE = 1.5, 3.0
"""Factors of sigma that are not worth a change, and the largest change at a time."""

INWARD_SHARE = 0.25
"""How far ends are moved inwards, in half-widths, in units of the gap that was asked. It costs
about as large a share of the objective, and is what readings may be off by."""

GAP_SHARE_REACHED = 0.5
"""Share of the gap that was asked at which to stop: the proof loses some, and the ends another."""

GAP_WITHOUT_COPIES = 4e-7
"""Gap at which to stop where a step costs an eigendecomposition and little more."""

MIN_INWARD_SHARE = 1e-4
"""Inward move, in units of the gap that was asked, below which intervals leave no room for it."""

INWARD_GROWTH, INWARD_DECAY = 4.0, 0.1
"""Factors of that move where rounding spoils what seemed a fit, and where steps lead nowhere."""

HOPELESS_RATIO = 10.0
"""Squared distances from the prior, in units of the last one, that no fit exceeds."""

MIN_COST = 1e-290
"""Cost of A = 0 where that is 0."""

MAX_INWARD_PRICE = 0.6
"""What the inward move may cost at most, in units of the gap that is aimed at."""

FIRST_MIXED_SHARE = 1e-3
"""Share of the mixed state in the first one where readings must be positive: none is 0 there."""

MAX_IDLE_STEPS = 100
"""Steps in which what remains must halve."""

MAX_STEPS = 3000
"""Steps at most."""


def start(program: ConsensusProgram, z: Vector, warm: bool, dual: Vector | None) -> ConsensusState:
    """From a matrix: as it is where it is near, else from least squares about it."""
    inner, term, cost = program.inner, program.term, program.inner.cost
    if program.pull is not None:
        return _start_without_copies(program, program.pull, z, warm)
    share = INWARD_SHARE * program.gap
    values = inner.F.forward(inner.cone.unpack(z))
    if program.term.smooth:
        z, values = _first_state(program, z, warm)
    elif not warm and bool(np.any(cost.w > 0.0)):
        z, values = _least_squares(program, z, values)
    v = term.proximal(values, program.penalty(values, share), share)
    y = term.permitted(term.slope(v) if dual is None else dual)
    rho = program.penalty(v, share)
    r = over(y, 2.0 * rho)
    first = FIRST_SMOOTH_PENALTY if _combines(program) else FIRST_CONE_PENALTY
    sigma = first * program.curvature(rho) if inner.cone.psd else 0.0
    x = inner.cone.project(z)
    u = 0.0 * z
    if term.smooth:  # so that Z, which is in the cone, stays where it is at first
        u = inner.cone.pack(inner.F.adjoint(y)) / (-2.0 * sigma)
    return looked(program, ConsensusState(z, values, v, r, x, u, y, rho, sigma, share))


def _start_without_copies(
    program: ConsensusProgram, pull: Vector, z: Vector, warm: bool
) -> ConsensusState:
    """From the matrix, or from the member of the cone that is nearest to least squares."""
    cone, cost, none = program.inner.cone, program.inner.cost, np.empty(0)
    curvature = program.curvature(cost.w)
    if not warm:
        shift = cost.alpha + MIN_CURVATURE * curvature
        z = program.normal.solve(cost.w, shift, pull + (shift - cost.alpha) * z, 0.0, 0)
    sigma = FIRST_PENALTY_WITHOUT_COPIES * curvature
    x = cone.project(z)
    at = ConsensusState(z, none, none, none, x, 0.0 * z, none, none, sigma, 0.0)
    return looked(program, at)


def _first_state(program: ConsensusProgram, z: Vector, warm: bool) -> tuple[Vector, Vector]:
    """Least squares, or what was known, in the cone, with some of every state in it."""
    inner, cone = program.inner, program.inner.cone
    cost = inner.cost
    if not warm:
        assert isinstance(program.normal, ByDiagonal)
        w = program.normal.basis.pooled(cost.w)
        g = cone.pack(inner.F.adjoint(w * cost.b))
        z = program.normal.solve(w, MIN_CURVATURE * program.curvature(w), g, 0.0, 0)
    z = mixed(program, cone.project(z), FIRST_MIXED_SHARE)
    return z, inner.F.forward(cone.unpack(z))


def mixed(program: ConsensusProgram, x: Vector, share: float) -> Vector:
    """With a share of the multiple of I that has the trace."""
    cone = program.inner.cone
    assert cone.trace is not None
    return (1.0 - share) * x + (share * cone.trace / cone.n) * cone.identity


def _least_squares(program: ConsensusProgram, z: Vector, values: Vector) -> tuple[Vector, Vector]:
    """Least squares without intervals and cone, and its readings.

    Once where there is noise; until nothing remains where readings may be exact.
    """
    inner, term, cost, cone = program.inner, program.term, program.inner.cost, program.inner.cone
    price, normal = term.value(values), ByGradients(inner.F, cone)  # for any weights
    for _ in range(MAX_FIRST_ROUNDS):
        g = cone.pack(inner.F.adjoint(cost.w * (cost.b - values))) + cost.alpha * (cost.p - z)
        z = z + normal.solve(cost.w, cost.alpha, g, MAX_FIRST_RESIDUAL, MAX_FIRST_PRODUCTS)
        values = inner.F.forward(cone.unpack(z))
        before, price = price, term.value(values)
        if (
            not ROUNDED_COST * inner.nothing
            < price
            < MAX_EXACT_COST * MAX_FIRST_RESIDUAL**2 * before
        ):
            break
    return z, values


def advance(program: ConsensusProgram, state: ConsensusState, steps: int) -> ConsensusState:
    """Return the state after at most `steps` more steps."""
    for _ in range(steps):
        if state.verdict is not SquaresVerdict.OPEN:
            break
        state = _step(program, state)
        if program.pull is not None and state.iteration % STEPS_WITHOUT_COPIES:
            state = _balanced(state) if state.iteration % STEPS_PER_LOOK == 0 else state
        elif state.iteration % STEPS_PER_LOOK == 0:
            state = looked(program, state)
    return state


def tightened(state: ConsensusState) -> ConsensusState:
    """On with ends further inside, where rounding spoilt what seemed to be a fit."""
    share = min(0.5, INWARD_GROWTH * state.share)
    return replace(
        state, share=share, verdict=SquaresVerdict.OPEN, mark=np.inf, marked=state.iteration
    )


def pulling(program: ConsensusProgram, at: ConsensusState) -> tuple[Rows, Vector]:
    """Rows whose ends pull, and their multipliers."""
    inner, cost = program.inner, program.inner.cost
    mu = at.y - 2.0 * cost.w * (at.v - cost.b)
    inwards = at.share * program.term.unit
    upper = (mu > 0.0) & (at.v >= inner.hi - inwards)
    lower = (mu < 0.0) & (at.v <= inner.lo + inwards)
    (rows,) = np.nonzero((inner.lo == inner.hi) | upper | lower)
    return rows, mu[rows]


def _step(program: ConsensusProgram, at: ConsensusState) -> ConsensusState:
    inner, term, cost, cone = program.inner, program.term, program.inner.cost, program.inner.cone
    if program.pull is not None:
        g = program.pull + at.sigma * (at.x - at.u)
        z = program.normal.solve(cost.w, cost.alpha + at.sigma, g, 0.0, 0)
        past: Past | None
        lead, past = combined(at.past, at.x + at.u, RELAXATION * (z - at.x))
        return _led(program, replace(at, z=z, past=past, iteration=at.iteration + 1), lead)
    pull = at.rho * (at.v - at.r - at.values)
    g = cone.pack(inner.F.adjoint(pull)) + cost.alpha * (cost.p - at.z)
    if cone.psd:
        g = g + at.sigma * (at.x - at.u - at.z)
    shift = cost.alpha + at.sigma
    z = at.z + program.normal.solve(at.rho, shift, g, MAX_STEP_RESIDUAL, MAX_PRODUCTS)
    values = inner.F.forward(cone.unpack(z))
    y = 2.0 * at.rho * (values - at.v + at.r)
    lead = RELAXATION * values + (1.0 - RELAXATION) * at.v + at.r
    inwards = RELAXATION * z + (1.0 - RELAXATION) * at.x + at.u
    past = None
    if _combines(program):
        lead, inwards, past = _accelerated(at, lead, inwards)
    v = term.proximal(lead, at.rho, at.share)
    r = np.where(at.rho > 0.0, lead - v, 0.0)
    if term.smooth:  # whose conjugate is finite for its own slopes alone
        y = term.slope(v)
    apart, moved = numbers(np.linalg.norm(values - v), np.linalg.norm(v - at.v))
    after = replace(
        at, z=z, values=values, v=v, r=r, y=y, read=(apart, moved), past=past,
        iteration=at.iteration + 1,
    )  # fmt: skip
    return _led(program, after, inwards) if cone.psd else replace(after, x=z)


def _combines(program: ConsensusProgram) -> bool:
    """Whether steps with copies are combined."""
    return program.term.smooth and program.inner.cone.n <= MAX_COMBINED_ORDER


def _accelerated(at: ConsensusState, lead: Vector, inwards: Vector) -> tuple[Vector, Vector, Past]:
    """What is brought to the counts, and to the cone, after a step that is accelerated.

    In units in which steps never grow apart: roots of the penalties.
    """
    size, root = len(lead), np.sqrt(at.rho)
    here = np.concatenate([root * (at.v + at.r), at.sigma**0.5 * (at.x + at.u)])
    there = np.concatenate([root * lead, at.sigma**0.5 * inwards])
    found, past = combined(at.past, here, there - here)
    lead = np.where(root > 0.0, over(found[:size], root), lead)
    return lead, found[size:] / at.sigma**0.5, past


def _led(program: ConsensusProgram, at: ConsensusState, lead: Vector) -> ConsensusState:
    """The copy in the cone that is nearest, and its multiplier."""
    x = program.inner.cone.project(lead)
    apart, moved = numbers(np.linalg.norm(at.z - x), np.linalg.norm(x - at.x))
    return replace(at, x=x, u=lead - x, apart=apart, moved=moved)


def looked(program: ConsensusProgram, at: ConsensusState) -> ConsensusState:
    """The state with its bounds, a verdict where they allow one, and new penalties."""
    after = _judged(program, at)
    shown = after.shown
    if shown is None or program.pull is None or after.verdict is SquaresVerdict.OPEN:
        return after
    ratio = worst_ratio(program.inner, shown.values)  # which decides nothing before
    return replace(after, shown=replace(shown, max_ratio=ratio))


def _judged(program: ConsensusProgram, at: ConsensusState) -> ConsensusState:
    shown = _shown(program, at)
    at = replace(at, shown=shown)
    inner, enough = program.inner, GAP_SHARE_REACHED * program.gap
    if program.pull is not None:
        fits, enough = True, min(enough, GAP_WITHOUT_COPIES)
    else:
        point = QuadraticPoint(shown.x, shown.values, shown.cost, shown.x)
        fits = crossed(inner, point, 0.0).size == 0
    least = program.term.least
    gap, nothing = shown.cost - shown.lower, -np.inf if least else MAX_ZERO_COST * inner.nothing
    size = max(shown.cost, least)
    spoilt = fits and -gap > max(program.gap * size, nothing)  # a bound above a cost
    if spoilt or not np.isfinite(shown.cost):
        return replace(at, verdict=SquaresVerdict.STALLED)
    if fits and (gap <= enough * size or shown.cost <= nothing):
        return replace(at, verdict=SquaresVerdict.OPTIMAL)
    accepted = fits and gap <= program.asked * size
    left = max(gap / max(inner.nothing, PRODUCT_UNDERFLOW), program.term.outside(shown.values))
    if left < 0.5 * at.mark:
        at = replace(at, mark=left, marked=at.iteration)
    elif (
        at.iteration - at.marked > MAX_IDLE_STEPS
        or at.iteration >= MAX_STEPS
        or _hopeless(program, shown)
    ):
        if accepted:
            return replace(at, verdict=SquaresVerdict.OPTIMAL)
        share = INWARD_DECAY * at.share
        if (
            share < MIN_INWARD_SHARE * program.gap
            or at.iteration >= MAX_STEPS
            or _hopeless(program, shown)
        ):
            return replace(at, verdict=SquaresVerdict.STALLED)
        at = replace(at, share=share, mark=np.inf, marked=at.iteration)
    return _tuned(program, at) if at.iteration <= MAX_TUNED_STEPS else at


def _shown(program: ConsensusProgram, at: ConsensusState) -> ConsensusLook:
    """The copy in the cone, with its readings from the rows, and the better of two bounds."""
    inner, cone, cost = program.inner, program.inner.cone, program.inner.cost
    x, values = at.x, at.values
    if program.equal.size:
        x = _equalized(program, x)
    if x is not at.z:
        values = inner.F.forward(cone.unpack(x))
    away = x - cost.p
    price = program.term.value(values) + cost.alpha * numbers(away @ away)[0]
    if not price < np.inf:  # a count where x reads nothing
        x = mixed(program, x, FIRST_MIXED_SHARE)
        values = inner.F.forward(cone.unpack(x))
        price = program.term.value(values)
    y = at.y if program.pull is None else 2.0 * cost.w * (values - cost.b)
    bound = program.bounds.lower(y, x)
    last = at.shown
    if last is None:  # what y = 0 proves: no cost is negative
        bound = max(bound, program.bounds.lower(0.0 * y, x), key=lambda each: each.value)
    y, lower, level = bound.y, bound.value, bound.level
    if last is not None and not lower > last.lower:
        y, lower, level = last.y, last.lower, last.level
    stale = None if program.pull is None else last
    ratio = worst_ratio(inner, values) if stale is None else stale.max_ratio
    return ConsensusLook(x, values, price, lower, y, level, ratio)


def _equalized(program: ConsensusProgram, x: Vector) -> Vector:
    """The matrix near x whose equalities hold to rounding; x where there is none."""
    inner, cone, rows = program.inner, program.inner.cone, program.equal
    targets = inner.lo[rows]
    if cone.psd:
        X = moved_factor(inner, cone.factor(x), rows, targets)
        return x if X is None else cone.pack(X @ X.conj().T)
    values = inner.F.forward(cone.unpack(x))
    return shifted_matrix(inner, x, rows, targets - values[rows])


def _hopeless(program: ConsensusProgram, shown: ConsensusLook) -> bool:
    """Whether a fit would cost more than any can."""
    cost = program.inner.cost
    away = shown.x - cost.p
    return shown.lower > program.term.most + HOPELESS_RATIO * cost.alpha * numbers(away @ away)[0]


def _tuned(program: ConsensusProgram, at: ConsensusState) -> ConsensusState:
    """With firmer penalties of the readings at ends, and that of the cone in balance.

    Intervals are moved inwards by less where that turns out to cost too much.
    """
    shown, term = at.shown, program.term
    assert shown is not None
    if program.pull is not None:
        return _balanced(at)
    if term.smooth:
        factor = _change(*at.read)
        if factor != 1.0:
            at = replace(at, rho=at.rho * factor, r=at.r / factor, past=None)
        return _balanced(at)
    price = term.conjugate(shown.y) - term.conjugate(shown.y, at.share)
    enough = MAX_INWARD_PRICE * GAP_SHARE_REACHED * program.gap * shown.cost
    share = at.share * enough / price if price > enough > 0.0 else at.share
    at = replace(at, share=min(at.share, max(share, MIN_INWARD_SHARE * program.gap)))
    rho = program.penalty(at.v, at.share)
    return _balanced(replace(at, rho=rho, r=at.r * over(at.rho, rho)))


def _balanced(at: ConsensusState) -> ConsensusState:
    """With a penalty of the cone for which the copies move as far as they are apart."""
    factor = _change(at.apart, at.moved)
    if factor == 1.0:
        return at
    return replace(at, sigma=at.sigma * factor, u=at.u / factor, past=None)


def _change(apart: float, moved: float) -> float:
    """Factor of a penalty for which copies move as far as they are apart; 1 where it is near."""
    if not (apart > 0.0 and moved > 0.0):
        return 1.0
    factor = float(np.clip(np.sqrt(apart / moved), 1.0 / MAX_PENALTY_CHANGE, MAX_PENALTY_CHANGE))
    return 1.0 if 1.0 / MIN_PENALTY_CHANGE < factor < MIN_PENALTY_CHANGE else factor
