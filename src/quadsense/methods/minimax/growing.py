"""The smallest worst-case error over far more rows than unknowns, or rows that are slow to read.

At the optimum about as many rows are active as there are unknowns, and the others do not
matter. So the linear program is solved on some rows in memory (`program`), all rows are read once
to see what that fit misses, the rows that it misses most join, and so on:

- the multipliers of some rows, with zeros for the others, bound the error over all rows from below;
- the fit's residuals on all rows bound it from above, as do those of the best point between it and
  the best fit before: residuals are linear in A, so that the search costs no reading.

Four to seven passes close the bounds to 1%, each of a product ``F(A)`` alone, where the method on
all rows takes a hundred and as many normal matrices as steps. In memory are vectors of length m,
`MOST` rows for each unknown, and the normal matrix of those.

The rows that count most are found on the way, while all rows are read once: of those that a fit
misses by more than any fit must, half of those that are taken are the worst, and half are drawn;
where rows repeat each other, the worst are all of a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.core.products import Array, Vector
from quadsense.measurements.blockwise import spread
from quadsense.measurements.sensing import Sensing
from quadsense.methods.minimax import FIRST, LEAST, MORE, MOST, grows
from quadsense.methods.minimax import program as some_rows
from quadsense.methods.minimax.program import (
    IterationState,
    MinimaxProgram,
    leaning,
    verdict,
    worst_ratio,
)
from quadsense.system.watch import look

UNEVEN_SIZE_RATIO = 4.0
"""Size of a row over its tolerance, in that of most, from which on it matters more than they."""

NEAR_BOUND_SHARE = 0.98
"""Share of the lower bound from which on a row may come to matter."""

MAX_GAP, GAP_SHARE, LAST_GAP_SHARE = 0.05, 0.1, 0.3
"""Gap to which some rows are solved: at most, in that of all rows so far, and, where the last pass
is to close it, in the gap asked for."""

MIN_GAP = 1e-10
"""The same where the question is whether ratio 1 can be had."""

MAX_PASSES = 60
"""Passes after which nothing more is to be hoped for."""

SEARCH_STEPS = 60
"""Steps of the search between two fits."""


@dataclass(frozen=True)
class GrowingProgram(MinimaxProgram):
    """The linear program of all rows, and the rows that were held last: read again if need be."""

    held: list[tuple[Index, MinimaxProgram]] = field(default_factory=list)


@dataclass(frozen=True)
class GrowingState:
    """Where the method stands.

    Attributes
    ----------
    iteration : int
        Factorisations so far: interior-point steps, and the least squares from which they begin
        on other rows.
    x : ndarray, shape (n, n)
        Best unknowns so far.
    z : ndarray, shape (m,)
        Their residuals over tolerances.
    max_ratio, rounding : float
        Worst ratio of `x` over all rows, and how much rounding may add to it.
    lower : float
        Lower bound on the ratio, as `program.IterationState.lower`.
    y : ndarray, shape (m,)
        The vector that gives it.
    index : ndarray of int
        The rows in memory.
    inner : IterationState
        The interior-point iterate on these.
    passes : int
        Over all rows, so far.
    stalled : bool
        Nothing more can be gained.
    """

    iteration: int
    x: Array
    z: Vector
    max_ratio: float
    rounding: float
    lower: float
    y: Vector
    index: npt.NDArray[np.intp]
    inner: IterationState
    passes: int
    stalled: bool


def worth(F: Sensing) -> bool:
    """Whether some rows will do: see `traits.minimax.grows`."""
    return not F.waits and grows(F.m, F.unknowns, F.kind.at_hand)


def as_growing(problem: MinimaxProgram) -> GrowingProgram:
    """The same program, to be solved on some rows at a time."""
    return GrowingProgram(**{each.name: getattr(problem, each.name) for each in fields(problem)})


def start(problem: GrowingProgram, near: Array | None = None) -> GrowingState:
    """The first rows, and those that matter most for unknowns near a solution, if these are known.

    Without such the best so far is 0, whose readings need not be computed.
    """
    F = problem.F
    index = _first_rows(problem)
    x, z, passes = np.zeros((F.n, F.n), dtype=F.dtype), -problem.b / problem.delta, 0
    if near is not None:
        x, passes = near, 1
        z, found = _pass_over(problem, near, _known(index, F.m), 0.0, 0)
        index = np.union1d(index, found.index)
    ratio, rounding = worst_ratio(problem, x, z)
    inner = some_rows.start(_on(problem, index))
    nothing = np.zeros(F.m)
    state = GrowingState(0, x, z, ratio, rounding, 0.0, nothing, index, inner, passes, ratio == 0.0)
    return _bounded(state, inner)


def advance(
    problem: GrowingProgram,
    state: GrowingState,
    steps: int,
    *,
    target: bool = False,
    gap: float,
) -> GrowingState:
    """Take up to `steps` steps; stop early at a verdict. See `program.advance`."""
    end = state.iteration + steps
    while state.iteration < end and verdict(state, target=target, gap=gap) is None:
        goal = _enough(state, target, gap)
        if verdict(state.inner, target=False, gap=goal) is not None:
            state = _grown(problem, state, target, gap)
            continue
        some = _on(problem, state.index)
        inner = some_rows.advance(some, state.inner, 1, target=False, gap=goal)
        done = state.iteration + inner.iteration - state.inner.iteration
        state = _bounded(replace(state, iteration=done), inner)
    return state


def _enough(state: GrowingState, target: bool, gap: float) -> float:
    """The gap to which the rows in memory are worth solving."""
    apart = 1.0 - state.lower / state.max_ratio if state.max_ratio > 0.0 else 0.0
    return max(MIN_GAP if target else LAST_GAP_SHARE * gap, min(MAX_GAP, GAP_SHARE * apart))


def _bounded(state: GrowingState, inner: IterationState) -> GrowingState:
    """With the interior-point iterate there: what bounds some rows from below bounds all."""
    state = replace(state, inner=inner)
    if not inner.lower > state.lower:
        return state
    y = np.zeros(len(state.y))
    y[state.index] = inner.y
    return replace(state, lower=inner.lower, y=y)


def _grown(problem: GrowingProgram, state: GrowingState, target: bool, gap: float) -> GrowingState:
    """One pass over all rows: the best fit known, and the rows that are to join."""
    x = 0.5 * (state.inner.x + state.inner.x.conj().T)
    level = max(NEAR_BOUND_SHARE * state.lower, state.rounding)
    known = _known(state.index, problem.F.m)
    z, found = _pass_over(problem, x, known, level, state.passes + 1)
    after = _better(problem, replace(state, passes=state.passes + 1), x, z)
    if verdict(after, target=target, gap=gap) is not None:
        return after
    if after.passes >= MAX_PASSES:
        return replace(after, stalled=True)
    if not found.index.size:  # all that is missing is precision
        goal = _enough(after, target, gap)
        return replace(after, stalled=verdict(after.inner, target=False, gap=goal) is not None)
    kept = _kept(problem, after.index, z, found.index.size)
    index = np.union1d(kept, found.index)
    inner = some_rows.start(_on(problem, index, found))
    return _bounded(replace(after, index=index, iteration=after.iteration + 1), inner)


def _better(problem: GrowingProgram, state: GrowingState, x: Array, z: Vector) -> GrowingState:
    """The state with the best point between its x and that one, whose residuals are z."""
    ends = leaning(problem.sides, state.z), leaning(problem.sides, z)
    rows = np.flatnonzero(np.maximum(*ends) >= min(state.lower, float(np.max(ends[1]))))
    sides, here, there = problem.sides[:, rows], state.z[rows], z[rows]

    def worst(share: float) -> float:
        return float(np.max(leaning(sides, here + share * (there - here))))

    share = _lowest(worst)
    if share < 1.0:
        x, z = state.x + share * (x - state.x), state.z + share * (z - state.z)
    ratio, rounding = worst_ratio(problem, x, z)
    if not ratio < state.max_ratio:
        return state
    return replace(state, x=x, z=z, max_ratio=ratio, rounding=rounding)


def _lowest(convex: Any) -> float:
    """Where in [0, 1] a convex function is least, by golden section; an end where that is."""
    golden = 0.5 * (5.0**0.5 - 1.0)
    left, right = 0.0, 1.0
    a, b = right - golden * (right - left), left + golden * (right - left)
    at_a, at_b = convex(a), convex(b)
    for _ in range(SEARCH_STEPS):
        if at_a <= at_b:
            right, b, at_b = b, a, at_a
            a = right - golden * (right - left)
            at_a = convex(a)
        else:
            left, a, at_a = a, b, at_b
            b = left + golden * (right - left)
            at_b = convex(b)
    return min((1.0, 0.5 * (left + right)), key=convex)


# --- rows ------------------------------------------------------------------------------------


def _unit(F: Sensing) -> int:
    """What numbers of rows go by."""
    return max(F.unknowns, LEAST)


def _first_rows(problem: GrowingProgram) -> Index:
    """Rows from everywhere, those that feel A most, and all that stand for constraints."""
    F = problem.F
    first, sizes = spread(F.m, FIRST * _unit(F)), F.sizes / problem.delta
    if first.size < F.m and float(np.max(sizes)) > UNEVEN_SIZE_RATIO * float(np.median(sizes)):
        count = min(MORE * _unit(F), F.m)
        first = np.union1d(first, np.argpartition(-sizes, count - 1)[:count])
    if F.head is not None:
        first = np.union1d(first, np.arange(F.head.m, min(F.m, F.head.m + F.unknowns)))
    return first


def _known(index: Index, m: int) -> npt.NDArray[np.bool_]:
    known = np.zeros(m, dtype=bool)
    known[index] = True
    return known


def _pass_over(
    problem: GrowingProgram, x: Array, known: npt.NDArray[np.bool_], level: float, draw: int
) -> tuple[Vector, Worst]:
    """Residuals of x over tolerances, and the rows that it misses most, in one pass."""
    b, delta, sides, F = problem.b, problem.delta, problem.sides, problem.F
    found = Worst(MORE * _unit(F), level, known, draw)

    residuals = []
    for part, rows in F.in_blocks():
        look()
        residuals.append((rows.forward(x) - b[part]) / delta[part])
        take = rows.take_unit if rows.rank_one else None
        found.see(part, leaning(sides[:, part], residuals[-1]), take)
    return np.concatenate(residuals), found


def _kept(problem: GrowingProgram, index: Index, z: Vector, coming: int) -> Index:
    """Rows in memory that stay, where that many are to come: those missed the most."""
    room = MOST * _unit(problem.F) - coming
    if index.size <= room:
        return index
    out = leaning(problem.sides, z)[index]
    return np.sort(index[np.argsort(-out, kind="stable")[:room]])


def _on(problem: GrowingProgram, index: Index, found: Worst | None = None) -> MinimaxProgram:
    """The linear program of some rows, from those that are held and were found where possible."""
    if problem.held and np.array_equal(problem.held[0][0], index):
        return problem.held[0][1]
    F = problem.F
    if found is None or found.rows is None or not problem.held:
        some = F.held(index)
    else:
        before, program = problem.held[0]
        rows = np.concatenate([program.F.rows(), found.rows])
        numbers = np.concatenate([before, found.index])
        order = np.argsort(numbers, kind="stable")
        some = Sensing.of(rows[order[np.isin(numbers[order], index)]])
    b, delta, sides = problem.b[index], problem.delta[index], problem.sides[:, index]
    program = MinimaxProgram(some, some, b, delta, sides, problem.max_norm)
    problem.held[:] = [(index, program)]
    return program


Index = npt.NDArray[np.intp]


class Worst:
    """Up to this many rows that are missed by more than a level.

    Parameters
    ----------
    count : int
    level : float
    known : ndarray of bool, shape (m,)
        Rows that are not wanted again.
    draw : int
        Another draw for another number; the same whatever the blocks that the rows come in.
    """

    def __init__(self, count: int, level: float, known: npt.NDArray[np.bool_], draw: int) -> None:
        self.level, self.known = level, known
        self.lots = np.random.default_rng(draw).random(known.size)
        self._missed, self._drawn = _Largest(count - count // 2), _Largest(count // 2)

    def see(self, part: slice, missed: Vector, take: Callable[[Array], Array] | None) -> None:
        """Take what counts of a slice of rows, which are missed by so much."""
        found = np.flatnonzero((missed > self.level) & ~self.known[part])
        numbers = found + part.start
        self._missed.add(missed[found], numbers, found, take)
        self._drawn.add(self.lots[numbers], numbers, found, take)

    @property
    def index(self) -> Index:
        """Numbers of the rows that were taken, in their order."""
        return np.unique(np.concatenate([self._missed.numbers, self._drawn.numbers]))

    @property
    def rows(self) -> Array | None:
        """These rows; None where there are no single rows."""
        groups = [group for group in (self._missed, self._drawn) if group.rows is not None]
        if not groups:
            return None
        numbers = np.concatenate([group.numbers for group in groups])
        _, first = np.unique(numbers, return_index=True)
        return np.concatenate([group.rows for group in groups])[first]


class _Largest:
    """Those of the largest scores, with their rows."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.scores: Vector = np.empty(0)
        self.numbers: Index = np.empty(0, dtype=np.intp)
        self.rows: Any = None

    def add(
        self,
        scores: Vector,
        numbers: Index,
        places: Index,
        take: Callable[[Array], Array] | None,
    ) -> None:
        """Take those of the given rows that belong to the largest."""
        kept = len(self.scores)
        every = np.concatenate([self.scores, scores])
        best = np.arange(len(every))
        if len(every) > self.count:
            best = np.sort(np.argpartition(-every, self.count - 1)[: self.count])
        old, new = best[best < kept], best[best >= kept] - kept
        if not new.size:
            return
        if take is not None:
            rows = take(places[new])
            self.rows = rows if self.rows is None else np.concatenate([self.rows[old], rows])
        self.scores, self.numbers = every[best], np.concatenate([self.numbers[old], numbers[new]])
