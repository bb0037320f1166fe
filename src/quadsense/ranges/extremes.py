"""Least and largest ``<C, A>`` over the fits, by the interior-point kernel: no proofs yet.

Both ends of one C are a method, `BothEnds`, that the one loop runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import ZERO_SHARE, Intervals
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing
from quadsense.methods import COLD, Problem, Warm
from quadsense.methods.balance import balanced
from quadsense.methods.base import Stepped, own
from quadsense.methods.conic.many import Many
from quadsense.methods.conic.program import KernelProgram, prepare
from quadsense.methods.conic.solve import MAX_STEPS, dense_of, dual_of, is_inside, matrix_of
from quadsense.methods.conic.start import Inside, balanced_point, start
from quadsense.methods.conic.steps import KernelState, advance, measured
from quadsense.methods.conic.system import MAX_REFINEMENTS
from quadsense.methods.equalities import equalities_of
from quadsense.proofs.positive import directions, flattest
from quadsense.proofs.rays import DROPPED, FLAT, seen_rows, sees, used_rows
from quadsense.proofs.rounding import enclosure, user_dual
from quadsense.result.values import evaluate
from quadsense.run.loop import Limits, reference, run
from quadsense.system.watch import eigen_flops, look
from quadsense.vocabulary import Claim

MAX_IDLE_STEPS = 8
"""Steps without progress after which it is left."""

MIN_RELATIVE_GAP = 1e-9
"""Gap relative to the size of ``<C, A>`` at which an end is as good as it gets."""

MIN_RELATIVE_EIGENVALUE = 1e-10
"""Least eigenvalue relative to the largest of a matrix that is positive definite beyond doubt."""

LEAST_SIZE = 1e-3
"""Size of ``<C, A>`` relative to C that is as good as 0."""

MAX_RESIDUAL = 1e-7
"""Residuals, in units of the readings, with which a fit may be tried."""


@dataclass(frozen=True)
class Extreme:
    """What the kernel has of one end.

    Attributes
    ----------
    dual : ndarray of shape (m,) or None
        For the user's rows.
    fit : ndarray of shape (n, n) or None
        A that fits, surely, with the least value found.
    ray : ndarray of shape (n, n) or None
        Where the kernel went, if that is far.
    """

    dual: Vector | None
    fit: Array | None
    ray: Array | None


class Extremes:
    """Both ends for many C: rows, and what is found out of them, are shared.

    Parameters
    ----------
    data : Measurements
    psd : bool
    fit : SensedMatrix or None
        A fit that is known.

    Attributes
    ----------
    fit : SensedMatrix or None
        The last fit found.
    suspicions : list of ndarray
        Vectors, for the user's rows, of runs that found no fit.
    kept : dict
        Bounds on A, from proof to proof.
    """

    def __init__(self, data: Measurements, psd: bool, fit: SensedMatrix | None) -> None:
        assert data.ends is not None
        self.data = data
        self.fit = fit if fit is not None and self._fits(fit) else None
        self.suspicions: list[Vector] = []
        self.kept: dict[bytes, float] = {}
        nothing = np.zeros(data.m)
        ends = data.unit_ends
        question = Question(
            "within", ends.lo, ends.hi, np.ones(data.m), nothing, np.zeros(data.m, bool),
            np.zeros((data.n, data.n)), psd=psd,
        )  # fmt: skip
        self.program = prepare(data.unit_rows.on_numpy(), question)
        self._programs: tuple[Array, KernelProgram, KernelProgram] | None = None

    @property
    def nothing_asks(self) -> bool:
        """Whether no row asks for anything."""
        return self.program.index.size == 0

    def at_once(self, matrices: list[Array], share: float) -> list[list[Extreme] | None]:
        """Return both extremes of small ``<C, A>``; None is left to `both_ends`."""
        rows, question = self.program.F, _asking(self.program)
        if not Many.suits(rows, question):
            return [None] * len(matrices)
        index, found = self.program.index, []
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            goals = [sign * C for C in matrices for sign in (1.0, -1.0)]
            for C, end in zip(goals, Many(rows, question).solve(matrices, share), strict=True):
                y, alone = np.zeros(self.data.m), _of_equalities(rows, question, C)
                y[index] = end.y if alone is None else alone
                fits = end.settled and self._fits(SensedMatrix.from_dense(end.A))
                fit = end.A if fits else None
                found.append(Extreme(user_dual(self.data, y), fit, None) if fits else None)
                if fits:
                    self.fit = SensedMatrix.from_dense(end.A)
        pairs = zip(found[0::2], found[1::2], strict=True)
        return [[low, high] if low and high else None for low, high in pairs]

    def both_ends(
        self, C: Array, share: float, limits: Limits, last: EndsState | None
    ) -> EndsState | None:
        """Run the kernel on ``<C, A>`` and on ``<-C, A>``; None where there was no time to begin.

        Parameters
        ----------
        C : ndarray of shape (n, n)
        share : float
            Of the distance of both ends, to which each is to be known.
        limits : Limits
        last : EndsState or None
            Where an earlier run ended, from which to go on.
        """
        method, problem = BothEnds(self, C, share, last), self.problem
        certify = partial(enclosure, rows=problem.rows, b=reference(problem))
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            outcome = run(method, problem, certify, to_numpy(self.data.tolerance), limits)
        found: EndsState | None = outcome.last
        return found

    def extremes(self, C: Array, state: EndsState) -> list[Extreme]:
        """Return what has been reached at both ends."""
        pairs = zip(self.programs(C), (state.low, state.high), strict=True)
        return [self.extreme(program, each) for program, each in pairs]

    def programs(self, C: Array) -> tuple[KernelProgram, KernelProgram]:
        """Return those of ``<C, A>`` and of ``<-C, A>``, which share the rows."""
        if self._programs is None or self._programs[0] is not C:
            low, high = (self.program.with_linear(sign * C) for sign in (1.0, -1.0))
            self._programs = C, low, high
        return self._programs[1:]

    @cached_property
    def problem(self) -> Problem:
        """The fits, as the loop sees them."""
        data = self.data
        scaled = data.scaled()
        return Problem(
            rows=data.unit_rows, b=scaled.b, delta=scaled.delta, tau=0.0, sides=data.sides,
            given_ends=data.unit_ends,
        )  # fmt: skip

    @cached_property
    def inside(self) -> Inside | None:
        """Where to begin: without C the kernel goes to the middle."""
        program = self.program.with_linear(0.0 * self.program.C)
        for d in self._directions(program):
            W = to_numpy(program.F.adjoint(d))
            values = np.linalg.eigvalsh(W)
            if values[0] > MIN_RELATIVE_EIGENVALUE * values[-1]:
                break
        else:
            return None
        state = begun(program, None)
        while not is_stuck(state) and state.iteration < MAX_STEPS:
            state = advance(program, state)
            if state.missed == 0.0:
                return Inside(state.at.A, d, W)
        return None

    @staticmethod
    def _directions(program: KernelProgram) -> Iterator[Vector]:
        question = _asking(program)
        yield from directions(program.F, question)
        if not program.F.rank_one:
            yield flattest(program.F, question)

    def extreme(self, program: KernelProgram, state: KernelState) -> Extreme:
        """Return what has been reached."""
        with np.errstate(all="ignore"):
            y, A = dual_of(program, state.at), dense_of(program, state.at)
            if not program.psd:
                y = balanced(program.given, program.question, y, A)
                y = self._alone(program, y)
            y = user_dual(self.data, y)
        dual = y if np.isfinite(y).all() else None
        if not np.isfinite(A).all():
            return Extreme(dual, None, None)
        if self._fits(SensedMatrix.from_dense(A)):
            self.fit = SensedMatrix.from_dense(A)
            return Extreme(dual, A, A)
        if dual is not None:
            self.suspicions.append(dual)
        return Extreme(dual, None, A)

    @staticmethod
    def _alone(program: KernelProgram, y: Vector) -> Vector:
        """Return the vector on equalities alone, where they say what ``<C, A>`` is; otherwise y."""
        C = np.asarray(program.question.C)
        alone = _of_equalities(program.F, _asking(program), C)
        if alone is None:
            return y
        whole = np.zeros_like(y)
        whole[program.index] = alone
        return whole

    def _fits(self, matrix: SensedMatrix) -> bool:
        return bool(evaluate(self.data, matrix).met.all())


@dataclass(frozen=True)
class EndsState:
    """Where the kernel is with both ends; `max_ratio` is of what their A read, in tolerances."""

    low: KernelState
    high: KernelState
    iteration: int
    max_ratio: float


@dataclass(frozen=True)
class EndsProgram:
    """The kernel's programs for both ends, and the intervals of the rows that ask."""

    low: KernelProgram
    high: KernelProgram
    ends: Intervals


class BothEnds(Stepped):
    """The kernel on ``<C, A>`` and on ``<-C, A>``, step by step for whichever needs one.

    Parameters
    ----------
    extremes : Extremes
        With what is shared by all C.
    C : ndarray of shape (n, n)
    share : float
        Of the distance of both ends, to which each is to be known.
    last : EndsState or None
        Where to begin, if that is known.
    """

    name: ClassVar[str] = "interval"

    def __init__(self, extremes: Extremes, C: Array, share: float, last: EndsState | None) -> None:
        self.extremes, self.C, self.share, self.last = extremes, C, share, last

    def prepare(self, problem: Problem) -> EndsProgram:
        """Return the programs of both ends, which share the rows."""
        low, high = self.extremes.programs(self.C)
        return EndsProgram(low, high, problem.ends.opened().only(low.index))

    def start(self, program: EndsProgram, warm: Warm = COLD) -> EndsState:
        """Return both ends inside the cone and all slacks, or where they were left."""
        if self.last is not None:
            return replace(self.last, iteration=0)
        begin = self.extremes.inside if program.low.psd else None
        low, high = (begun(each, begin) for each in (program.low, program.high))
        return self._state(program, low, high, 0)

    def advance(self, program: EndsProgram, state: EndsState, steps: int) -> EndsState:
        """Return the state after at most `steps` more steps of each end that is not done."""
        for _ in range(steps):
            busy = self._busy(program, state)
            if not any(busy):
                break
            low = advance(program.low, state.low) if busy[0] else state.low
            high = advance(program.high, state.high) if busy[1] else state.high
            state = self._state(program, low, high, state.iteration + 1)
        return state

    def claim(self, program: EndsProgram, state: EndsState) -> Claim | None:
        """Say that both ends are known as well as was asked, or as they can be."""
        if any(self._busy(program, state)) and state.iteration < MAX_STEPS:
            return None
        return Claim("optimal")

    def matrix(self, program: EndsProgram, state: EndsState) -> SensedMatrix:
        """Return A of the lower end."""
        A, X = matrix_of(program.low, state.low.at)
        if X is not None:
            return SensedMatrix.from_factor(own(self.extremes.problem, X))
        return SensedMatrix.from_dense(own(self.extremes.problem, A))

    def _state(
        self, program: EndsProgram, low: KernelState, high: KernelState, done: int
    ) -> EndsState:
        ends, scale = program.ends, program.low.scale
        worst = 0.0
        for each in (low, high):
            ratios = ends.ratios(scale * each.at.v - ends.reading)
            worst = max(worst, float(np.max(ratios, initial=0.0)))
        return EndsState(low, high, done, worst if np.isfinite(worst) else np.inf)

    def _busy(self, program: EndsProgram, state: EndsState) -> tuple[bool, bool]:
        """Return which ends are not yet within that share of their distance."""
        cost, low, high = program.low.cost, state.low, state.high
        width = -(low.value + high.value) * cost
        settled = low.missed <= MAX_RESIDUAL and high.missed <= MAX_RESIDUAL
        enough = width if settled and width > 0.0 else 0.0
        return (
            not _is_done(program.low, low, self.share, enough),
            not _is_done(program.high, high, self.share, enough),
        )


def begun(program: KernelProgram, begin: Inside | None) -> KernelState:
    """Return the kernel's first state, inside of the cone where that is known."""
    with np.errstate(over="ignore", under="ignore"):
        at = start(program, None if begin is None else begin.A)
        at = at if begin is None else balanced_point(program, at, begin)
        return measured(program, at, 0)


def is_stuck(state: KernelState) -> bool:
    """Return whether nothing changes any more."""
    return state.stuck or state.idle >= MAX_IDLE_STEPS


def _is_done(program: KernelProgram, state: KernelState, share: float, width: float) -> bool:
    """Return whether the gap is that share of the width, or of the size of ``<C, A>`` if less."""
    if is_stuck(state):
        return True
    if not is_inside(program, state):
        return False
    size = abs(state.value) + float(np.linalg.norm(program.C)) * LEAST_SIZE
    enough = share * min(width / program.cost, size)
    return state.apart <= max(enough, MIN_RELATIVE_GAP * size)


MAX_EQUALITY_RESIDUAL = 4e-15
"""Residual relative to its parts of a sum of equalities."""

MAX_EQUALITIES = 200
"""Up to which it is looked whether they say it all."""


def _of_equalities(F: Sensing, question: Question, C: Array) -> Vector | None:
    """The vector on equalities alone with ``C + F*(y) = 0`` to rounding: all fits read the same.

    None where there is none. No other end then takes part, however little.
    """
    equal = np.flatnonzero(question.equal)
    if not 0 < equal.size <= MAX_EQUALITIES:
        return None
    E = equalities_of(F, equal)
    size = float(np.linalg.norm(C))
    z, rest = np.zeros(equal.size), C
    K = E.gram()
    look(eigen_flops(len(K)))
    for _ in range(MAX_REFINEMENTS):
        z = z - np.linalg.lstsq(K, to_numpy(E.forward(rest)), rcond=ZERO_SHARE)[0]
        rest = C + to_numpy(E.adjoint(z))
    if not float(np.linalg.norm(rest)) <= MAX_EQUALITY_RESIDUAL * (size + float(np.sum(np.abs(z)))):
        return None
    y = np.zeros(question.m)
    y[equal] = z
    return y


def _asking(program: KernelProgram) -> Question:
    """The question on the rows that ask."""
    question, index = program.question, program.index
    return replace(
        question, lo=question.lo[index], hi=question.hi[index], weights=question.weights[index],
        reading=question.reading[index], hard=question.hard[index],
    )  # fmt: skip


# --- directions in which fits may go on: `proofs.rays` decides -----------------------------------


LITTLE = (0.0, 1e-6, 1e-3, 0.05)
"""Readings of a unit direction that may be meant to be 0."""


def falling_directions(
    data: Measurements, question: Question, C: Array, far: Array | None
) -> Iterator[Array]:
    """Yield directions along which ``<C, A>`` may fall without an end.

    Parameters
    ----------
    data : Measurements
    question : Question
        On their unit rows.
    C : ndarray, shape (n, n)
    far : ndarray, shape (n, n), optional
        A large matrix, to which the kernel was led.
    """
    if question.psd:
        yield from _unseen_vectors(data, question, C)
        return
    yield from _unseen_directions(data, question, C)
    if far is not None:
        yield from _led_away(data, question, far)


def _unseen_directions(data: Measurements, question: Question, C: Array) -> Iterator[Array]:
    """Yield parts of -C that no row sees, of coordinates that are 0 in every row first."""
    F = data.unit_rows.on_numpy()
    asks = np.flatnonzero((question.hi < np.inf) | (question.lo > -np.inf))
    if not asks.size:
        yield -C
        return
    rows = F if asks.size == F.m else F.only(asks)
    seen = _coordinates(rows)
    for pattern in (~np.outer(seen, seen), np.ones(C.shape, bool)):
        asked = np.flatnonzero(sees(rows, pattern))
        some = rows if asked.size == rows.m else rows.only(asked)
        rest = np.where(pattern, -C, 0.0)
        for _ in range(2 if some.m else 0):  # once leaves rounding of the size of what goes
            y = _least_squares(some, pattern, to_numpy(some.forward(rest)))
            rest = rest - np.where(pattern, to_numpy(some.adjoint(y)), 0.0)
        if float(np.linalg.norm(rest)) > FLAT * float(np.linalg.norm(C)):
            yield rest


def _led_away(data: Measurements, question: Question, A: Array) -> Iterator[Array]:
    """Yield directions near that of a large A, of which rows that read little read 0."""
    F = data.unit_rows.on_numpy()
    upper, lower = question.hi < np.inf, question.lo > -np.inf
    size = float(np.linalg.norm(A))
    if not (size > 0.0 and np.isfinite(size)):
        return
    v = np.abs(to_numpy(F.forward(A / size)))
    for little in LITTLE:
        held = np.flatnonzero((upper & lower) | ((upper | lower) & (v <= little)))
        rest = A / size
        if held.size:
            some, whole = F.only(held), np.ones(A.shape, bool)
            for _ in range(2):
                y = _least_squares(some, whole, to_numpy(some.forward(rest)))
                rest = rest - to_numpy(some.adjoint(y))
        yield rest


def _coordinates(F: Sensing) -> npt.NDArray[np.bool_]:
    """Return the coordinates that are not 0 in at least half as many rows as the most used one."""
    counts = sum(np.sum(to_numpy(rows) != 0.0, axis=0) for _, rows in F.raw.blocks())
    return np.asarray(counts > 0.5 * np.max(counts))


def _least_squares(F: Sensing, pattern: npt.NDArray[np.bool_], v: Vector) -> Vector:
    """Return the y of least norm for which ``F*(y)`` on the pattern has readings nearest to v."""
    if pattern.all():
        K = F.gram()
    else:
        rows = [np.where(pattern, to_numpy(F.adjoint(e)), 0.0).ravel() for e in np.eye(F.m)]
        K = (np.array(rows) @ np.array(rows).conj().T).real
    values, vectors = np.linalg.eigh(K)
    keep = values > DROPPED * values[-1]
    V = vectors[:, keep]
    return np.asarray(V @ ((V.T @ v) / values[keep]))


def _unseen_vectors(data: Measurements, question: Question, C: Array) -> Iterator[Array]:
    """Yield x that nothing bounded above sees, with ``x* C x`` least and negative."""
    F = data.unit_rows.on_numpy()
    live = to_numpy(F.nonzero) > 0
    rows = seen_rows(F, question, live)
    unit = np.eye(F.n, dtype=C.dtype)
    outside = unit[:, ~np.any(rows != 0.0, axis=0)] if len(rows) else unit
    spaces = [outside]
    if 0 < len(rows) < F.n:
        _, values, right = sl.svd(rows.conj(), full_matrices=True)
        rank = int(np.count_nonzero(values > DROPPED * values[0]))
        spaces.append(right[rank:].conj().T)
    for null in spaces:
        if null.shape[1]:
            values, vectors = np.linalg.eigh(null.conj().T @ C @ null)
            if values[0] < -DROPPED * float(np.linalg.norm(C)):
                yield np.asarray(null @ vectors[:, 0])
    asks = np.flatnonzero(live & ((question.hi < np.inf) | (question.lo > -np.inf)))
    unseen = ~np.any(used_rows(F, asks) != 0.0, axis=0) if asks.size else np.ones(F.n, bool)
    for k in np.flatnonzero(unseen & (np.diagonal(C) == 0.0) & np.any(C != 0.0, axis=0)):
        yield unit[:, k]
