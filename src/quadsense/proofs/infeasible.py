"""What dual vectors prove about the user's data: that nothing fits, or how well A can fit.

The data are taken as proofs need them: scaled by powers of two, so that no digit of them changes.
Where rows may be set aside, the last part finds the fewest rows that all proofs have a share in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Intervals
from quadsense.core.records import record
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.rounding import user_dual
from quadsense.system.watch import Stop, look, watched

# --- the data and the vector, scaled exactly -------------------------------------------------


class Exact(NamedTuple):
    """Rows of about unit norm, their intervals and the dual vector, all scaled by powers of two."""

    F: Sensing
    ends: Intervals
    y: Vector

    def on(self, rows: npt.NDArray[np.intp]) -> Exact:
        """Return these rows alone."""
        return Exact(
            self.F.only(rows).narrowed(), self.ends.each(lambda values: values[rows]), self.y[rows]
        )


def exactly(data: Measurements, dual: Vector, ends: Intervals | None = None) -> Exact:
    """Return the data with rows scaled by powers of two to about unit norm: nothing is rounded.

    A row of zeros proves nothing here (see `Measurements.contradictions`): it reads 0, as it does.
    `ends` are those of the data unless they are given.
    """
    ends = data.ends if ends is None else ends
    assert ends is not None
    F, exponents = data.unit_rows.on_numpy().exact()
    live = to_numpy(data.unit_rows.nonzero) > 0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        y = np.ldexp(np.where(live, dual, 0.0), 2 * exponents)
    ends = ends.shifted(exponents)
    if not live.all():
        ends = ends.each(lambda values: np.where(live, values, 0.0))
    return Exact(F, ends, y)


# --- that nothing fits -----------------------------------------------------------------------


@dataclass(frozen=True)
class Proof:
    """What a dual vector proves of some measurements.

    Attributes
    ----------
    proved : bool
        No matrix (positive semidefinite matrix) meets the tolerances.
    unconditional : bool
        Without any bound on the matrix; else none of moderate size, as `condition` says.
    lower_bound : float
        Lower bound on the best achievable ratio, under the same condition.
    condition : str
        In words; empty where unconditional.
    """

    proved: bool
    unconditional: bool
    lower_bound: float
    condition: str


@dataclass(frozen=True, eq=False)
class Conflict:
    """Rows and constraints that contradict each other by themselves.

    Attributes
    ----------
    members : ndarray of int, shape (k,)
        The heaviest in the proof first; those of constraints count on after the user's rows.
    dual : ndarray of shape (k,)
        The proof: entries of a dual vector of the user's rows, which is 0 elsewhere.
    irreducible : bool
        Whether each member was proved to be needed: some matrix meets the others.
    """

    members: npt.NDArray[np.int64]
    dual: Vector
    irreducible: bool

    def spread(self, m: int) -> Vector:
        """Return the dual vector of all m rows."""
        y = np.zeros(m)
        y[self.members] = self.dual
        return y


def check_infeasible(
    data: Measurements, dual: Vector, psd: bool, *, alone: bool = False, conditional: bool = False
) -> Proof:
    """Check that `dual` proves the intervals of `data` impossible.

    Parameters
    ----------
    data : Measurements
        With tolerances.
    dual : ndarray of shape (m,)
        ``sum(lo_i y_i^+ - hi_i y_i^-) > 0`` and ``F*(y) = 0``; for positive semidefinite matrices
        ``sum(hi_i y_i^+ - lo_i y_i^-) < 0`` and ``F*(y) >= 0``.
    psd : bool
        Whether the claim is about positive semidefinite matrices only.
    alone : bool
        Whether the rows on which `dual` leans must be impossible by themselves.
    conditional : bool, default=False
        Whether to assume a bound on the matrix without trying to prove one.
    """
    assert data.ends is not None
    suspects = data.contradictions()
    if suspects.size and np.any(dual[suspects] != 0):
        worst = data.ends.ratios(-data.ends.reading)[suspects]
        return Proof(True, True, float(worst.max()), "")
    exact, hard = exactly(data, dual), data.hard
    if alone:
        rows = np.flatnonzero(exact.y)
        exact, hard = exact.on(rows), hard[rows]
    return check_exactly(exact, psd, hard, conditional=conditional)


def least_miss(
    data: Measurements, dual: Vector, psd: bool, unit: float, *, conditional: bool = False
) -> Proof:
    """Prove by `dual` that some interval is missed by ``(lower_bound - 1) unit`` at least.

    Parameters
    ----------
    data : Measurements
        With `bounds`.
    dual : ndarray of shape (m,)
        As in `check_infeasible`.
    psd : bool
    unit : float
        Of the readings, a power of two about as large as the miss.
    conditional : bool, default=False
        As in `check_infeasible`.
    """
    assert data.ends is not None
    even = replace(data.ends, unit=np.full(data.m, unit))
    exact = exactly(data, dual, even)
    return check_exactly(exact, psd, data.hard, conditional=conditional)


def check_exactly(
    exact: Exact, psd: bool, hard: npt.NDArray[np.bool_], *, conditional: bool = False
) -> Proof:
    """Check what ``exact.y`` proves of those rows; `hard` ones may not be missed at all."""
    # Here, not above: a fit needs no proof, and importing these takes longer than many solves.
    from quadsense.core.intervals import Intervals
    from quadsense.proofs.positive import certify
    from quadsense.proofs.symmetric import check_proof, norm_limit

    ends, y = exact.ends, exact.y
    unit = np.where(hard, 0.0, ends.unit)
    if not np.any(np.abs(y) * unit > 0.0):  # the ratio of nothing that may be missed
        unit = ends.unit
    if not psd:
        check = check_proof(exact.F, replace(ends, unit=unit), y, conditional=conditional)
        condition = f"among matrices of Frobenius norm up to {check.max_norm:.3g}"
        return Proof(
            check.proved, check.unconditional, max(check.ratio, float(check.proved)),
            "" if check.unconditional else condition,
        )  # fmt: skip
    proof = certify(exact.F, Intervals.of(ends.lo, ends.hi, unit), y, lift=not conditional)
    largest = exact.F.n * norm_limit(exact.F, ends)
    proved = proof.infeasible or (0.0 < largest < proof.trace_bound)
    condition = f"among matrices of trace up to {largest:.3g}"
    return Proof(
        proved, proof.infeasible, max(proof.lower_bound, float(proved)),
        "" if proof.infeasible else condition,
    )  # fmt: skip


@record(frozen=False, eq=False)
class Prover:
    """Checks dual vectors of the unit rows against the data; one at hand is not checked again.

    A method asks it before it claims that nothing fits, and the certificate rests on the same
    answer.

    Parameters
    ----------
    data : Measurements
        With tolerances.
    psd : bool
        Whether the claim is about positive semidefinite matrices only.
    """

    data: Measurements
    psd: bool
    _last: tuple[Vector, Proof] | None = None

    def __call__(self, y: Vector) -> Proof:
        """Return what y proves, a vector for the unit rows."""
        if self._last is None or not np.array_equal(self._last[0], y):
            proof = check_infeasible(self.data, user_dual(self.data, y), self.psd)
            self._last = (y.copy(), proof)
        return self._last[1]


# --- lower bounds on the smallest worst error ------------------------------------------------


def best_error_bound(
    data: Measurements,
    dual: Vector,
    upper: float,
    psd: bool,
    size: float,
    *,
    conditional: bool = False,
) -> tuple[float, str]:
    """Return a proved lower bound on ``min_A max_i |z_i|/delta_i`` for fits of at most `upper`.

    `size` is the Frobenius norm of the fit that has this error: where a bound on the norm must be
    assumed, it is not below ten times that. With `conditional`, and where a time limit is reached
    during the proof of a bound on the norm, one is assumed.

    Returns
    -------
    bound : float
    condition : str
        In words; empty where the bound holds without any.
    """
    from quadsense.core.sums import DOWN, ROUNDINGS, UP, sum_error
    from quadsense.proofs.positive import certify
    from quadsense.proofs.rounding import adjoint_norm
    from quadsense.proofs.symmetric import (
        ASSUMED_FACTOR,
        lower_bound,
        norm_limit,
        norm_within,
    )

    assert data.ends is not None
    exact = exactly(data, dual)
    if data.missing is not None and data.missing.size == data.m:
        exact = exact.on(np.flatnonzero(~data.missing))
    F, y, b, delta = exact.F, exact.y, exact.ends.reading, exact.ends.unit
    largest = float(np.max(np.abs(y), initial=0.0))
    dead = to_numpy(data.unit_rows.nonzero) == 0
    floor = float(np.max(data.ends.ratios(-data.ends.reading), where=dead, initial=0.0))
    if not (math.isfinite(largest) and largest > 0.0) or not exact.ends.two_sided.all():
        return floor, ""
    if psd:  # intervals as wide as the error claimed: readings are not lost next to them
        width = upper * delta
        intervals = Intervals.of(b - width, b + width, width)
        proof = certify(F, intervals, y, lift=not conditional)
        if proof.lower_bound > 0.0 or not proof.negative:
            return max(upper * proof.lower_bound, floor), ""
        # Rows that do not span the space leave y as it is: F*(y) >= -e I, so -e tr(A) enters.
        trace = data.n * max(norm_limit(F, Intervals.around(b, width)), ASSUMED_FACTOR * size)
        value, error = intervals.support(proof.y)
        leans = np.flatnonzero(proof.y)
        cost = float(np.abs(proof.y[leans]) @ width[leans])
        loss = proof.negative * trace
        above = value + error + loss + ROUNDINGS * (abs(value) + error + loss)
        # A larger cost takes less from the bound where `above` is positive, and adds less to it
        # where it is negative: it is rounded to the side that weakens the bound.
        cost *= 1.0 - math.copysign(sum_error(leans.size), above)
        found = upper * (1.0 - above / cost) * DOWN * DOWN if math.isfinite(cost) else 0.0
        condition = f"among matrices of trace up to {trace:.3g}"
        return (found, condition) if found > floor else (floor, "")
    y = np.ldexp(y, -int(np.frexp(largest)[1]))
    norm, condition = math.inf, ""
    with suppress(Stop):
        if not conditional:
            norm = norm_within(F, (np.abs(b) + upper * delta) * UP)
    if norm == math.inf:
        norm = max(norm_limit(F, Intervals.around(b, upper * delta)), ASSUMED_FACTOR * size)
        condition = f"among matrices of Frobenius norm up to {norm:.3g}"
    found = lower_bound(b, delta, y, adjoint_norm(F, y), norm)
    return (found, condition) if found > floor else (floor, "")


# --- proofs with small supports, and the fewest rows that all supports have a share in ------


PROOF_PRODUCTS = 10.0
"""Multiplications per row and entry of A that a dual vector and the proof of its bound take."""

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
