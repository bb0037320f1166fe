"""Many linear objectives at once over the same intervals, where unknowns are few.

``min c.x`` with ``lo <= G x <= hi`` for every c of a stack: predictor and corrector
[Mehrotra 1992] as in `steps`, but on stacked arrays, so that what a step costs besides its flops is
paid once for all. For all symmetric matrices; what this does not settle is left to the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.arrays import Vector
from quadsense.core import products
from quadsense.core.intervals import Array
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.conic.coordinates import reach
from quadsense.methods.conic.steps import CENTRING_POWER
from quadsense.system.watch import look

MAX_UNKNOWNS, MAX_ENTRIES = 60, 2**17
"""Unknowns, and entries of G, up to which stacks are worth it: a megabyte."""

MIN_SINGULAR_VALUE = 1e-9
"""Singular values of G below this share of the largest are rounding."""

INTERVAL_MARGIN = 1e-5
"""Share of an interval by which it is narrowed: half of that may be missed. The ends of what is
asked move in by about the same share of their distance."""

MAX_STEPS = 40
"""At most; ten are enough."""

BACKOFF = 0.995
"""Share of the way to the boundary."""

Stack = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OneRange:
    """What came of one objective.

    Attributes
    ----------
    A : ndarray, shape (n, n)
    y : ndarray, shape (m,)
        Dual vector of the rows.
    settled : bool
        Whether A is inside and the gap as small as was asked.
    """

    A: Array
    y: Vector
    settled: bool


class Many:
    """The intervals of unit rows, as they are for every C.

    Parameters
    ----------
    rows : Sensing
        Unit rows, all of which ask for something.
    question : Question
        With rows "within", not psd.
    """

    def __init__(self, rows: Sensing, question: Question) -> None:
        self.rows = rows
        self.G = G = rows.features()
        self.upper, self.lower = np.isfinite(question.hi), np.isfinite(question.lo)
        lo, hi = question.lo, question.hi
        both = self.upper & self.lower
        width = np.where(both, hi - lo, 0.0)
        typical = float(np.mean(width[both])) if both.any() else 1.0
        self.unit = np.where(both, width, typical)
        # Coordinates in which G is orthonormal, so that nothing is seen weakly.
        self.Q, values, right = sl.svd(G, full_matrices=False, check_finite=False)
        keep = values > MIN_SINGULAR_VALUE * values[0]
        self.Q, self.back = self.Q[:, keep], right[keep].T / values[keep]
        self.room = INTERVAL_MARGIN * self.unit
        self.hi = np.where(self.upper, np.where(self.upper, hi, 0.0) - self.room, 0.0)
        self.lo = np.where(self.lower, np.where(self.lower, lo, 0.0) + self.room, 0.0)

    @staticmethod
    def suits(rows: Sensing, question: Question) -> bool:
        """Whether there are few unknowns, no equalities, and intervals that have a width."""
        small = rows.unknowns <= MAX_UNKNOWNS and rows.m * rows.unknowns <= MAX_ENTRIES
        return small and rows.m > 0 and not question.psd and bool(np.all(question.lo < question.hi))

    def solve(self, matrices: list[Array], gap: float) -> list[OneRange]:
        """Both extremes of every ``<C, A>``: of C, then of -C, for each in turn.

        Parameters
        ----------
        matrices : list of ndarray, shape (n, n)
        gap : float
            Share of the distance of both extremes by which they may be off.
        """
        packs = np.array([products.pack(C) for C in matrices])
        c = np.stack([packs, -packs], axis=1).reshape(2 * len(packs), -1) @ self.back
        seen = np.linalg.norm(c @ self.Q.T @ self.G - _doubled(packs), axis=1)
        state = _Stacked(self, c, gap)
        for _ in range(MAX_STEPS):
            look()
            if state.settled.all() or not state.step():
                break
        y = state.y - (c + state.y @ self.Q) @ self.Q.T  # now C + F*(y) vanishes to rounding
        x = state.x @ self.back.T
        dtype = np.complex128 if self.rows.is_complex else np.float64
        known = state.settled & (
            seen <= MIN_SINGULAR_VALUE * np.linalg.norm(_doubled(packs), axis=1)
        )
        return [
            OneRange(products.unpack(x[i], self.rows.n, dtype), y[i], bool(known[i]))
            for i in range(len(c))
        ]


def _doubled(packs: Stack) -> Stack:
    return np.stack([packs, -packs], axis=1).reshape(2 * len(packs), -1)


class _Stacked:
    """Points of all objectives: x, (k, N), and slacks and multipliers of both ends, (k, 2, m)."""

    def __init__(self, many: Many, c: Stack, gap: float) -> None:
        self.many, self.c, self.gap = many, c, gap
        self.ends = np.stack([many.hi, -many.lo])
        self.there = np.stack([many.upper, many.lower])
        self.signs = np.array([[1.0], [-1.0]])
        Q, k = many.Q, len(c)
        middle = np.where(
            many.upper & many.lower, 0.5 * (many.hi + many.lo), many.hi + many.lo
        )  # of one end, that end
        x = np.linalg.lstsq(Q / many.unit[:, None], middle / many.unit, rcond=None)[0]
        self.x = np.tile(x, (k, 1))
        room = self.ends - self.signs * (Q @ x)
        worst = float(np.max(-room / many.unit, where=self.there, initial=0.0))
        slack = np.maximum(room, (0.1 + worst) * many.unit)
        self.slack = np.tile(np.where(self.there, slack, 1.0), (k, 1, 1))
        y = -c @ Q.T
        level = np.mean(np.abs(y), axis=1, keepdims=True)[:, :, None]
        self.dual = (np.maximum(self.signs * y[:, None, :], 0.0) + level) * self.there
        self._measure()

    @property
    def y(self) -> Stack:
        """Multipliers of the rows, (k, m)."""
        return np.asarray(self.dual[:, 0] - self.dual[:, 1])

    def _measure(self) -> None:
        """What is missed, the mean product, and which are settled."""
        many = self.many
        self.missed = np.where(
            self.there, self.ends - self.signs * (self.x @ many.Q.T)[:, None, :] - self.slack, 0.0
        )
        self.pull = self.c + self.y @ many.Q
        products = np.sum(self.slack * self.dual, axis=(1, 2))
        self.mu = products / np.count_nonzero(self.there)
        values = np.sum(self.c * self.x, axis=1)
        width = -(values[0::2] + values[1::2])
        enough = self.gap * np.repeat(np.maximum(width, 0.0), 2)
        left = self.slack + self.missed + 0.5 * many.room
        inside = np.all(left > 0.0, axis=(1, 2), where=self.there)
        off = np.linalg.norm(self.pull, axis=1) * np.linalg.norm(self.x, axis=1)
        together = inside.reshape(-1, 2).all(axis=1).repeat(2)
        self.settled = together & (products + off <= enough)

    def step(self) -> bool:
        """Take a step with all; False where there is none."""
        Q, there = self.many.Q, self.there
        weights = np.where(there, self.dual / self.slack, 0.0)
        M = np.matmul(Q.T * weights.sum(axis=1)[:, None, :], Q)
        trace = np.trace(M, axis1=1, axis2=2) / M.shape[1]
        M += (1e-15 * trace)[:, None, None] * np.eye(M.shape[1])
        try:
            inverse = np.linalg.inv(M)
        except np.linalg.LinAlgError:
            return False
        first = self._direction(M, inverse, weights, -self.slack * self.dual)
        lengths = self._lengths(first)
        reached = np.sum(
            (self.slack + lengths[0] * first[1]) * (self.dual + lengths[1] * first[2]), axis=(1, 2)
        ) / np.count_nonzero(there)
        sigma = np.clip(reached / self.mu, 0.0, 1.0) ** CENTRING_POWER
        target = (sigma * self.mu)[:, None, None] - self.slack * self.dual - first[1] * first[2]
        step = self._direction(M, inverse, weights, np.where(there, target, 0.0))
        primal, dual = (np.minimum(1.0, BACKOFF * length) for length in self._lengths(step))
        go = ~self.settled[:, None, None]
        x, slack = self.x + (primal * go)[:, :, 0] * step[0], self.slack + primal * go * step[1]
        duals = self.dual + dual * go * step[2]
        if not (np.isfinite(x).all() and np.isfinite(duals).all()):
            return False
        self.x, self.slack, self.dual = x, slack, duals
        self._measure()
        return True

    def _direction(
        self, M: Stack, inverse: Stack, weights: Stack, target: Stack
    ) -> tuple[Stack, Stack, Stack]:
        """Changes of x, slacks and multipliers, for products that change by `target`."""
        Q = self.many.Q
        # dz = (target - z ds)/s with ds = missed - sign dv, so z's part is w (sign dv - missed).
        known = np.where(self.there, target / self.slack, 0.0) - weights * self.missed
        right = -self.pull - np.sum(self.signs * known, axis=1) @ Q
        dx = np.matmul(inverse, right[:, :, None])[:, :, 0]
        rest = right - np.matmul(M, dx[:, :, None])[:, :, 0]
        dx += np.matmul(inverse, rest[:, :, None])[:, :, 0]
        change = self.signs * (dx @ Q.T)[:, None, :]
        slack = np.where(self.there, self.missed - change, 0.0)
        return dx, slack, known + weights * change

    def _lengths(self, step: tuple[Stack, Stack, Stack]) -> tuple[Stack, Stack]:
        """How far slacks and multipliers stay positive, (k, 1, 1) each, and 1 at most."""
        pairs = (self.slack, step[1]), (self.dual, step[2])
        primal, dual = (
            np.minimum(1.0, reach(now, np.where(self.there, change, 0.0), axis=(1, 2)))
            for now, change in pairs
        )
        return primal[:, None, None], dual[:, None, None]
