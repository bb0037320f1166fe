"""Proofs with small supports, and the fewest rows that all supports have a share in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import Intervals
from quadsense.measurements.sensing import Sensing
from quadsense.system.watch import look, watched

MOST_NODES = 100
"""Nodes of the branch and bound for a hitting set: a second at the most."""

MOST_TRIED = 500
"""Sets of rows that are looked at one by one before that: some hundredths of a second."""

UNLIKE = 1e-3
"""Cost, of all rows together, by which rows are told apart."""

MOST_WORK = 2e8
"""Flops that thinning a proof may take; a proof left dense still counts."""

SVD_FLOPS = 20.0
"""Flops of a singular value decomposition over the cube of the order, about."""

LEAST_GAIN = 1e-9
"""Margin of a direction, relative to its terms, from which it is a proof by itself."""


def cannot_be_hit(supports: Sequence[npt.NDArray[np.bool_]]) -> bool:
    """Return whether some proof uses no row that may be set aside, but constraints alone."""
    return any(not support.any() for support in supports)


def smallest_hitting_set(
    supports: Sequence[npt.NDArray[np.bool_]],
) -> npt.NDArray[np.int64] | None:
    """Return the fewest rows of which every support has one; rows in many supports go first.

    Parameters
    ----------
    supports : sequence of ndarray of bool, shape (m,)

    Returns
    -------
    ndarray of int, or None
        None where finding it takes too long.
    """
    if not len(supports):
        return np.empty(0, np.int64)
    found = _HittingSearch(np.array(supports, dtype=bool)).fewest()
    return _by_branch_and_bound(supports) if found is None else found


class _HittingSearch:
    """All sets of one row, of two rows, and so on, that hit every support, as far as nodes last."""

    def __init__(self, supports: npt.NDArray[np.bool_]) -> None:
        self.shares = supports.sum(axis=0)
        self.rows = [int(row) for row in np.argsort(-self.shares, kind="stable")]
        # One bit per row, those in many supports first.
        self.masks = [
            sum(1 << place for place, row in enumerate(self.rows) if support[row])
            for support in supports
        ]
        self.nodes = 0
        self.best: tuple[int, int] = (-1, 0)  # share of all supports, and the set

    def fewest(self) -> npt.NDArray[np.int64] | None:
        """Return the smallest, of most shares; None where that takes too many nodes."""
        for size in range(1, len(self.rows) + 1):
            look()
            if not self._look(self.masks, 0, size, 0):
                return None
            share, chosen = self.best
            if share >= 0:
                bits = [row for place, row in enumerate(self.rows) if chosen >> place & 1]
                return np.array(sorted(bits), dtype=np.int64)
        return None

    def _look(self, left: list[int], chosen: int, size: int, share: int) -> bool:
        """Look for sets with `size` more rows; False where nodes are spent."""
        self.nodes += 1
        if self.nodes > MOST_TRIED:
            return False
        if not left:
            self.best = max(self.best, (share, chosen), key=lambda pair: pair[0])
            return True
        if size == 0 or _disjoint(left) > size:
            return True
        least = min(left, key=int.bit_count)
        while least:
            bit = least & -least
            least ^= bit
            further = [mask for mask in left if not mask & bit]
            row = self.rows[bit.bit_length() - 1]
            if not self._look(further, chosen | bit, size - 1, share + int(self.shares[row])):
                return False
            left = [mask & ~bit for mask in left]  # sets with it have all been seen
            if not all(left):
                return True
        return True


def _disjoint(masks: list[int]) -> int:
    """Count supports no two of which share a row: at least that many rows are needed."""
    seen = count = 0
    for mask in sorted(masks, key=int.bit_count):
        if not mask & seen:
            seen, count = seen | mask, count + 1
    return count


def _by_branch_and_bound(
    supports: Sequence[npt.NDArray[np.bool_]],
) -> npt.NDArray[np.int64] | None:
    """Return the same, found by HiGHS."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, rarely needed

    look()
    watch = watched()
    left = None if watch is None else watch.left
    A = np.array(supports, dtype=np.float64)
    used = np.flatnonzero(A.any(axis=0))
    share = A[:, used].sum(axis=0)
    # Below 1 in all: the number of rows comes first. No two are alike: where rows may be exchanged
    # for each other, HiGHS has crashed.
    cost = 1.0 - 0.5 * share / (share.max() * (len(supports) + 1.0))
    cost -= UNLIKE * np.arange(used.size) / (used.size * (len(supports) + 1.0))
    found = milp(
        cost,
        integrality=np.ones(used.size),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(A[:, used], lb=1.0),
        options={"node_limit": MOST_NODES, **({} if left is None else {"time_limit": left})},
    )
    if found.status != 0:
        return None
    return np.asarray(used[found.x > 0.5], dtype=np.int64)


def thinned(rows: Sensing, ends: Intervals, dual: Vector, psd: bool) -> Vector:
    """Return a proof with the same ``F*(y)`` as `dual` and as few nonzero entries as possible.

    By Caratheodory's argument as many rows as unknowns and one more are enough: along a vector v
    with ``F*(v) = 0`` the margin is linear while no sign changes, so y moves along it, the way the
    margin does not fall, until an entry is zero.

    Parameters
    ----------
    rows : Sensing
        Seen with unit norm.
    ends : Intervals
        Of these rows.
    dual : ndarray of shape (m,)
        For the unit rows.
    psd : bool
        Whether it is a proof about positive semidefinite matrices (see `check_infeasible`).
    """
    F = rows.on_numpy()
    size = F.unknowns + 1
    support = np.flatnonzero(dual)
    work = (support.size - size) * SVD_FLOPS * float(size) * size * size
    if support.size <= size or work > MOST_WORK:
        return dual
    lo, hi = ends.lo, ends.hi
    y = dual / float(np.abs(dual).max())
    values = np.where(y > 0, -hi, -lo) if psd else np.where(y > 0, lo, hi)
    while support.size > size:
        look()
        # The smallest entries first: those are the ones that the proof needs least.
        order = support[np.argsort(np.abs(y[support]), kind="stable")[:size]]
        vectors = np.linalg.svd(F.only(order).features().T, full_matrices=True)[2]
        v = vectors[-1].conj()
        gain = float(values[order] @ v)
        v = v if gain >= 0.0 else -v
        shrinking = v * y[order] < 0.0
        if not shrinking.any():
            if abs(gain) > LEAST_GAIN * float(np.abs(values[order]) @ np.abs(v)):
                y = np.zeros_like(y)
                y[order] = v
                return y
            v, shrinking = -v, v * y[order] > 0.0
            if not shrinking.any():
                return y
        lengths = np.where(shrinking, -y[order] / np.where(shrinking, v, 1.0), np.inf)
        nearest = int(np.argmin(lengths))
        y = y.copy()
        y[order] += lengths[nearest] * v
        y[order[nearest]] = 0.0
        support = np.flatnonzero(y)
    return y
