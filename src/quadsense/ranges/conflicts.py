"""A small set of rows and constraints that contradict each other by themselves.

A dual vector that rules every matrix out uses some rows only. On these the smallest worst ratio
is sought again, with weights that favour few rows; then each row is left out in turn: either the
others still contradict each other, with a dual vector of their own, or a matrix meets them all, so
that the row is needed. Every such statement is proved from the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import ZERO_SHARE, Intervals
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import LENIENT
from quadsense.methods.conic import STEPS
from quadsense.methods.conic.solve import Solution, solve_question
from quadsense.proofs.definite import EIGEN_FLOPS
from quadsense.proofs.infeasible import Conflict, Exact, check_exactly, exactly
from quadsense.proofs.rounding import enclosure, user_dual
from quadsense.system.watch import BLOCK_FLOPS, FLOPS, Stop, look

SHARES = (1e-2, 1e-4, 0.0)
"""Shares of the largest entry of a dual vector: the first set of larger entries that contradict
each other is where to begin."""

SHARE = 1e-8
"""Share of a dual vector below which an entry is left out, if the others prove as much."""

ROUNDS = 4
"""Solves with weights that favour few rows; the set is settled after two or three."""

FLOOR = 0.1
"""What is added to the share of a row before its weight is the inverse: rows that are left out may
come back."""

GAP = 1e-6
"""Relative gap of these solves."""

SMALL = 2
"""Members of a set than which no smaller one is looked for."""

LIGHT = 0.1
"""Weight of a constraint where a row weighs 1: where either explains a contradiction, it does."""

HEAVIEST = 6
"""Members, the heaviest first, for which it is asked which other rows lie in a plane with them."""

MOST_WORK = BLOCK_FLOPS
"""Flops that leaving rows out in turn may take: about a tenth of a second."""

MOST_FIRST_WORK = FLOPS
"""Flops that the first set may take: about a second."""

MAX_LEFT_OUT = 3
"""Rows of a set for which it is found out whether all others can be met without them."""

Indices = npt.NDArray[np.int64]


def conflict(data: Measurements, psd: bool, dual: Vector) -> Conflict | None:
    """Return few rows and constraints that contradict each other by themselves.

    Parameters
    ----------
    data : Measurements
        With intervals; rows without an end take no part.
    psd : bool
        Whether only positive semidefinite matrices are meant.
    dual : ndarray of shape (m,)
        For the user's rows: a proof that nothing fits, which says where to begin.

    Returns
    -------
    Conflict or None
        With its own proof; None where none was proved of fewer rows than `dual` uses. It is
        called irreducible only where each of its members was proved to be needed. A time limit ends
        the search, not what was proved until then.
    """
    zero = data.contradictions()
    if zero.size:
        return Conflict(zero[:1], np.ones(1), True)
    search = _ConflictSearch(data, psd)
    with suppress(Stop), LENIENT():
        search.look(dual)
    return search.found()


def dispensable(data: Measurements, psd: bool, members: Indices) -> tuple[int, ...]:
    """Return members without any one of which a matrix surely meets all others.

    The heaviest `MAX_LEFT_OUT` rows and the heaviest constraint are tried, as far as that is within
    `MOST_WORK`.
    """
    search, found = _ConflictSearch(data, psd), []
    fixed = members >= data.measured
    with suppress(Stop), LENIENT():
        for row in (*members[~fixed][:MAX_LEFT_OUT], *members[fixed][:1]):
            if not search.affordable(search.asks.size, 1):
                break
            others = search.asks[search.asks != row]
            if others.size:
                after, solution = search.refuted(others)
                if after is not None or not search.meets(others, solution):
                    continue
            found.append(int(row))
    return tuple(found)


class _Set(NamedTuple):
    """Rows that contradict each other, and the proof: a dual vector of the unit rows."""

    members: Indices
    dual: Vector


class _ConflictSearch:
    """The smallest set so far."""

    def __init__(self, data: Measurements, psd: bool) -> None:
        self.data, self.psd = data, psd
        self.rows, self.ends = data.unit_rows.on_numpy(), data.unit_ends
        self.opened = self.ends.opened()
        self.exact: Exact = exactly(data, np.zeros(data.m))
        self.asks = np.flatnonzero(self.ends.sides.any(axis=0))
        self.best: _Set | None = None
        self.irreducible = False
        self.spent = 0.0

    def found(self) -> Conflict | None:
        """Return what was proved."""
        if self.best is None:
            return None
        members, dual = self.best
        y = np.zeros(self.data.m)
        y[members] = dual
        order = np.argsort(-self.shares(self.best), kind="stable")
        y = user_dual(self.data, y)[members]
        return Conflict(members[order], y[order], self.irreducible)

    def shares(self, found: _Set) -> Vector:
        """Return how much each member weighs in the proof."""
        return np.abs(found.dual) * self.ends.unit[found.members]

    def look(self, dual: Vector) -> None:
        """Look for a small set, from this dual vector of the user's rows and from weights."""
        self.best = self.begin(dual)
        if self.best is None:
            return
        self.best = self.sparse(self.best)
        self.best, self.irreducible = self.reduced(self.best)
        for found in self.others():
            if found is None:
                continue
            found, irreducible = self.reduced(self.sparse(found))
            if found.members.size < self.best.members.size:
                self.best, self.irreducible = found, irreducible

    def others(self) -> Iterator[_Set | None]:
        """Yield sets from elsewhere, as long as the best is not small."""
        assert self.best is not None
        data = self.data
        if data.constraints and self.worth(self.asks.size, ROUNDS):
            yield self.from_all(np.where(self.asks < data.measured, 1.0, LIGHT))
        plain = data.plain.unit_rows
        if not plain.rank_one or not self.worth(0, 0):
            return
        cost = float(plain.m) ** 2 * plain.n
        if self.spent + HEAVIEST * cost > MOST_WORK:
            return
        rows = plain.on_numpy().take_unit(np.arange(plain.m))
        heavy = self.best.members[np.argsort(-self.shares(self.best), kind="stable")]
        for row in heavy[heavy < plain.m][:HEAVIEST]:
            for plane in _planes(rows, int(row)):
                if plane.size < self.best.members.size and self.worth(plane.size, 1):
                    yield self.refuted(plane)[0]

    def worth(self, size: int, times: int) -> bool:
        """Return whether to look further, by that number of solves on that number of rows."""
        assert self.best is not None
        return self.best.members.size > SMALL and self.affordable(size, times)

    def begin(self, dual: Vector) -> _Set | None:
        """Seek a proof on the rows that a dual vector of the user's rows weighs most."""
        norms = to_numpy(self.data.unit_rows.norms)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            share = np.abs(dual) * norms * norms * self.ends.unit
        asks = self.ends.sides.any(axis=0) & np.isfinite(share) & (share > 0.0)
        most, before = float(np.max(share, where=asks, initial=0.0)), 0
        for part in SHARES:
            members = np.flatnonzero(asks & (share > part * most))
            if self.spent + self.work(members.size) > MOST_FIRST_WORK:
                return None
            found = self.refuted(members)[0] if members.size > before else None
            if found is not None:
                return found
            before = members.size
        return None

    def from_all(self, weights: Vector) -> _Set | None:
        """Seek a proof that uses few of all rows, by weights that follow its last shares."""
        found, first = None, weights
        for _ in range(ROUNDS):
            after = self.refuted(self.asks, weights)[0]
            if after is None:
                return found
            if found is not None and after.members.size >= found.members.size:
                return found
            found = after
            share = np.zeros(self.data.m)
            share[found.members] = self.shares(found)
            weights = first / (share[self.asks] / float(share.max()) + FLOOR)
        return found

    # --- a set of rows -----------------------------------------------------------------------

    def on(self, members: Indices) -> tuple[Sensing, Intervals]:
        """Return those rows alone, of unit norm, and their intervals."""
        F = self.rows.only(members)
        return F.narrowed(), self.opened.only(members)

    def refuted(
        self, members: Indices, weights: Vector | None = None
    ) -> tuple[_Set | None, Solution]:
        """Seek a proof that the rows contradict each other.

        Parameters
        ----------
        members : ndarray of int
        weights : ndarray of float, optional
            Of the members: the heavier a row, the less of it in the proof.

        Returns
        -------
        found : _Set or None
        solution : Solution
            The matrix that misses least.
        """
        equal = weights is None and bool(self.ends.exact[members].any())
        solution = self.solved(members, weights, equal)
        found = self.proof(members, solution, 0.0 if weights is not None else 1.0)
        if found is None and equal and not self.meets(members, solution):
            solution = self.solved(members, weights, False)
            found = self.proof(members, solution, 1.0)
        return found, solution

    def solved(self, members: Indices, weights: Vector | None, held: bool) -> Solution:
        """Return the matrix that misses the rows least; `held` ones are equalities, and not missed.

        Without weights misses are counted from the middles of the intervals, in half-widths.
        """
        work = self.work(members.size)
        look(work)
        self.spent += work
        F, ends = self.on(members)
        hard = self.ends.exact[members] if held else np.zeros(members.size, bool)
        if weights is None:
            middle, (upper, lower) = ends.middle(), ends.sides
            lo, hi = np.where(lower, middle, -np.inf), np.where(upper, middle, np.inf)
            lo[hard] = hi[hard] = self.ends.only(members).middle()[hard]
            scale = ends.unit
        else:
            lo, hi, scale = ends.lo, ends.hi, ends.unit * weights
        question = Question(
            rows="slack_max",
            lo=lo,
            hi=hi,
            weights=np.where(hard, 0.0, 1.0 / scale),
            reading=np.zeros(members.size),
            hard=hard,
            psd=self.psd,
        )
        return solve_question(F, question, gap=GAP)

    def proof(self, members: Indices, solution: Solution, least: float) -> _Set | None:
        """Return what the dual vector of a solution proves, its smallest entries left out."""
        if not solution.objective > least:
            return None
        y = solution.y if self.psd else -solution.y
        share = np.abs(y) * self.opened.unit[members]
        total = float(share.sum())
        for part in (SHARE, 0.0) if 0.0 < total < np.inf else ():
            kept = share > part * total
            if self.proves(members[kept], y[kept]):
                return _Set(members[kept], y[kept])
        return None

    def proves(self, members: Indices, y: Vector) -> bool:
        """Return whether y proves that the rows contradict each other by themselves."""
        full = np.zeros(self.data.m)
        full[members] = y
        exact = self.exact._replace(y=exactly(self.data, user_dual(self.data, full)).y)
        return check_exactly(exact.on(members), self.psd, self.data.hard[members]).proved

    def meets(self, members: Indices, solution: Solution) -> bool:
        """Return whether the matrix surely meets those rows."""
        if solution.X is not None:
            matrix = SensedMatrix.from_factor(solution.X)
        else:
            matrix = SensedMatrix.from_dense(solution.A)
        F, _ = self.on(members)
        ends = self.ends.only(members)
        found = enclosure(matrix, F, ends.reading)
        ends = ends.allowing(matrix.norm())
        return bool(ends.met(to_numpy(found.z), to_numpy(found.error)).all())

    def work(self, size: int) -> float:
        """Return the flops of a solve on that number of rows."""
        n, k, unknowns = float(self.data.n), float(size), float(self.rows.unknowns)
        formed = k * unknowns**2 if k > unknowns else k * k * n
        order = n if not self.rows.rank_one else min(n, k)
        small = min(k, unknowns)
        return STEPS * (formed + small * small * small + EIGEN_FLOPS * order * order * order)

    def affordable(self, size: int, times: int) -> bool:
        """Return whether that number of solves is within what the search may take."""
        return self.spent + times * self.work(size) <= MOST_WORK

    # --- fewer of them -----------------------------------------------------------------------

    def sparse(self, found: _Set) -> _Set:
        """Seek proofs on the same rows with weights that favour few of them."""
        for _ in range(ROUNDS):
            if found.members.size <= 2:
                break
            share = self.shares(found)
            weights = 1.0 / (share / float(share.max()) + FLOOR)
            after = self.refuted(found.members, weights)[0]
            if after is None or after.members.size >= found.members.size:
                break
            found = after
        return found

    def reduced(self, found: _Set) -> tuple[_Set, bool]:
        """Leave out each row in turn, the lightest first; those without which others fit stay.

        Returns
        -------
        found : _Set
        irreducible : bool
            Whether each of its members was proved to be needed.
        """
        needed: set[int] = set()
        proved = True
        while True:
            order = found.members[np.argsort(self.shares(found), kind="stable")]
            left = [int(row) for row in order if int(row) not in needed]
            if not left:
                return found, proved
            if not self.affordable(found.members.size, len(left)):
                return found, False
            others = found.members[found.members != left[0]]
            if not others.size:
                return found, proved
            after, solution = self.refuted(others)
            if after is not None:
                found = after
            else:
                needed.add(left[0])
                proved &= self.meets(others, solution)


def _planes(rows: Array, row: int) -> Iterator[Indices]:
    """Yield sets of rows in one plane with that row: three such may contradict each other.

    In the plane of two vectors a positive semidefinite matrix has three entries only; distances
    between three points are such rows.
    """
    w = rows[row]
    rest = rows - np.outer(rows @ w.conj(), w)
    sizes = np.linalg.norm(rest, axis=1)
    live = np.flatnonzero(sizes > np.sqrt(ZERO_SHARE))
    along = np.setdiff1d(np.arange(len(rows)), live)
    if along.size > 1:
        yield along
    if not live.size:
        return
    rest = rest[live] / sizes[live, None]
    same = np.abs(rest @ rest.conj().T) ** 2 > 1.0 - ZERO_SHARE
    first = np.argmax(same, axis=1)
    for leader in np.unique(first[same.sum(axis=1) > 1]):
        yield np.sort(np.append(along, live[same[leader]]))
