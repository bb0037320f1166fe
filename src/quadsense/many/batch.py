"""What is asked of many problems, and the work on a chunk of them: answers and what is proved.

For f the sum of squares, G its gradient at A, P any positive semidefinite matrix, nu any number
(0 where the trace is free) and ``Q = P + nu I - G``, every A' in the cone, of that trace, has

    f(A') >= f(A) - <P, A> - ||Q||^2/(4 sigma),

sigma the least eigenvalue of the normal matrix: f(A') >= f(A) + <G, A' - A> + sigma ||A' - A||^2,
and ``<P, A'> >= 0``. The coefficients of covariates count among the unknowns. As ``G/2 = F*(y)``
with ``y = W z``, the same numbers prove infeasibility (see `Batch._least_ratio`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.core.records import cached_property
from quadsense.core.sums import gamma
from quadsense.many import kernels
from quadsense.many.interior import INWARD, interior_least_squares
from quadsense.many.normal import Features, Normal, least_squares, own_normals, shared_normal
from quadsense.many.readings import Chunk, Ends, Readings

Array = npt.NDArray[np.float64]

INTERIOR_SHARE = 1e-2
"""The same of the interior-point method."""

NEGLIGIBLE = 1e-8
"""Error of a reading, as a part of it, that counts as none (see `result.values`)."""

MAX_STEPS = 2000
"""Steps after which a problem is left to `solve`; 5 to 60 are usual."""

GAP_SHARE = 1e-3
"""Share of the gap at which steps stop: A is then known to more digits than its cost, and the bound
that is proved counts every rounding."""

CHUNK_ENTRIES = 2**18
"""Readings, or entries of normal matrices, that are worked on at once: they stay in cache."""

READING_TERMS = 32
"""Roundings of a residual in addition to those of its sum: of the features, of A and its norm."""

UP = 1.0 + 1e-12
"""Factor that covers the few operations on bounds, each of some roundings."""


@dataclass
class Answers:
    """What is known of k problems, one entry each; written chunk by chunk.

    Attributes
    ----------
    packed : ndarray of shape (k, N)
    coef : ndarray of shape (k, p)
    status : ndarray of int8, shape (k,)
        Numbers in `results.STATUSES`.
    max_ratio, lower_bound, objective, objective_lower : ndarray of shape (k,)
    worst_row : ndarray of int, shape (k,)
    met, corrected, closed : ndarray of bool, shape (k,)
    """

    packed: Array
    coef: Array
    status: npt.NDArray[np.int8]
    max_ratio: Vector
    worst_row: npt.NDArray[np.int32]
    lower_bound: Vector
    objective: Vector
    objective_lower: Vector
    met: npt.NDArray[np.bool_]
    corrected: npt.NDArray[np.bool_]
    closed: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, k: int, size: int, p: int) -> Answers:
        """Return answers of which nothing is known."""
        return cls(
            np.full((k, size), np.nan), np.full((k, p), np.nan), np.full(k, -1, np.int8),
            np.full(k, np.nan), np.full(k, -1, np.int32), np.zeros(k), np.full(k, np.nan),
            np.zeros(k), np.zeros(k, bool), np.zeros(k, bool), np.zeros(k, bool),
        )  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """What is asked of all problems.

    Attributes
    ----------
    U : ndarray of shape (m, n)
        The probes.
    conjugate : bool
        Whether they were given conjugated.
    features : Features
    readings : Readings
    psd : bool
    trace : float, (float, float) or None
    gap : float
    side : int
        1 where the features fix the trace next to the lower one of its ends, -1 at the upper one.
    """

    U: npt.NDArray[Any]
    conjugate: bool
    features: Features
    readings: Readings
    psd: bool
    trace: Any
    gap: float
    side: int = 0

    @property
    def given(self) -> npt.NDArray[Any]:
        """The rows of U as they were given."""
        return self.U.conj() if self.conjugate else self.U

    @property
    def chunk_rows(self) -> int:
        """Problems of a chunk."""
        q = self.features.psi.shape[1]
        entries = self.readings.m + 4 * q
        if not self.readings.shared or self.readings.drop:
            entries = max(entries, 3 * q * q)
        return max(1, CHUNK_ENTRIES // entries)

    @property
    def rounding(self) -> float:
        """Error of a residual, relative to the norms of the row and of the unknowns."""
        return gamma(self.features.psi.shape[1] + READING_TERMS)

    @cached_property
    def normal(self) -> Normal | None:
        """The normal matrix of the weights that all problems have, if they do."""
        if not self.readings.shared:
            return None
        found = self.readings.chunk(0, 1)
        weights = found.weights
        if found.missing is not None:
            whole = Readings.chunk(self._without_missing, 0, 1)
            weights = whole.weights
        return shared_normal(self.features, self.features.weights(weights[:1]))

    @property
    def _without_missing(self) -> Readings:
        """The same tolerances and weights with a problem whose readings are all there."""
        other = object.__new__(Readings)
        other.__dict__.update(self.readings.__dict__)
        other.B = np.zeros((1, self.readings.m))
        return other

    @property
    def end(self) -> Any:
        """The end of the trace that the features fix it next to."""
        return self.features.trace if self.side == 0 else self.trace[0 if self.side > 0 else 1]

    @cached_property
    def at_ends(self) -> tuple[Batch, ...]:
        """The same with the trace next to each of its ends, by more than rounding inside."""
        if not isinstance(self.trace, tuple) or self.side:
            return ()
        return tuple(
            replace(self, features=self.features.with_trace(end + side * (UP - 1.0) * abs(end)),
                    side=side)
            for end, side in zip(self.trace, (1, -1), strict=True) if np.isfinite(end)
        )  # fmt: skip

    def work(self, chunk: Chunk, answers: Answers, within: bool = True, places: Any = None) -> None:
        """Answer the problems of a chunk as far as the compiled loops can.

        Without `within` those whose intervals bind keep the answer without the intervals. `places`
        are the numbers of the problems, where they are not in turn.
        """
        places = chunk.first + np.arange(len(chunk.b)) if places is None else places
        for index, normal in self.groups(chunk):
            self._answer(chunk.taken(index), normal, answers, places[index], within)
        for other in self.at_ends:  # a trace beyond an end: the best one is at that end
            total = answers.packed[places, : self.features.n].sum(axis=1)
            beyond = (other.side * (total - other.features.trace) < 0.0) & chunk.plain
            index = np.flatnonzero(beyond & (answers.lower_bound[places] <= 1.0))
            if index.size:
                other.work(chunk.taken(index), answers, within, places[index])

    def groups(self, chunk: Chunk) -> Iterator[tuple[npt.NDArray[np.intp], Normal]]:
        """Yield problems of a chunk that the compiled loops can take, and their normal matrices.

        Where these are singular the readings do not determine A: `solve` knows which one is meant.
        """
        own, trace = chunk.plain, self.features.trace
        if self.psd and trace is not None and trace <= 0.0:
            return  # A = 0 at most: nothing to iterate on
        if self.normal is not None:
            same = (chunk.weights == self.normal.w[:, : self.readings.m]).all(axis=1)
            whole = chunk.plain & same  # nothing is missing, and no reading is without both ends
            if whole.any() and self.normal.sigma[0] > 0.0:
                yield np.flatnonzero(whole), self.normal
            own = chunk.plain & ~whole
        index = np.flatnonzero(own)
        if index.size:
            part = chunk.taken(index)
            w = np.require(np.broadcast_to(part.weights, part.b.shape), requirements=("C", "W"))
            found = own_normals(self.features, self.features.weights(w))
            sound = np.flatnonzero(found.sigma > 0.0)
            if sound.size:
                yield index[sound], found.taken(sound)

    def floor_of(self, chunk: Chunk, normal: Normal) -> Vector:
        """Return sums of squares that count as none."""
        return NEGLIGIBLE**2 * weighted_squares(normal.w[:, : self.readings.m], chunk.b)

    def trace_held(self, x: Array) -> npt.NDArray[np.bool_]:
        """Return which packed matrices have a trace between the ends, where there are two."""
        if not isinstance(self.trace, tuple):
            return np.ones(len(x), np.bool_)
        total = x[:, : self.features.n].sum(axis=1)
        room = gamma(2 * self.features.n) * np.abs(x[:, : self.features.n]).sum(axis=1)
        return (total - room >= self.trace[0]) & (total + room <= self.trace[1])

    def _answer(
        self, chunk: Chunk, normal: Normal, answers: Answers, index: Any, within: bool
    ) -> None:
        features, p, n = self.features, self.features.p, self.features.n
        b = features.readings(chunk.b)
        y = least_squares(features, normal, b)
        x = np.ascontiguousarray(y[:, p:])
        k = len(y)
        floor = self.floor_of(chunk, normal)
        P, steps = np.zeros_like(x), np.zeros(k, np.int64)
        if self.psd:
            z = y @ features.psi.T - b
            rest = weighted_squares(normal.w, z)
            fixed = math.nan if features.trace is None else features.trace
            best = np.empty_like(x)
            kernels.cone_least_squares(
                normal.schur, normal.least, normal.most, normal.sigma, x, rest, floor, fixed,
                GAP_SHARE * self.gap, MAX_STEPS, n, features.is_complex, best, P, steps,
            )  # fmt: skip
            y = np.concatenate([y[:, :p], best], axis=1)
            if p:
                moved = np.flatnonzero(steps)
                y[moved] = self._with_best_covariates(normal, b, y, moved)
        found = self.claims(chunk, normal, b, y, P, floor)
        self._write(answers, index, y, found, (steps > 0) | (self.side != 0))
        if within and chunk.ends is not None:
            left = ~(found["met"] & found["closed"]) & (found["lower_bound"] <= 1.0)
            if left.any():
                self._keep_within(chunk, normal, y, np.flatnonzero(left), answers, index)

    def _write(
        self, answers: Answers, index: Any, y: Array, found: dict[str, Any], corrected: Any
    ) -> None:
        """Write down answers and what is known of them."""
        p = self.features.p
        answers.packed[index] = y[:, p:]
        answers.coef[index] = y[:, :p] / self.features.scales
        answers.corrected[index] = corrected
        for name, values in found.items():
            getattr(answers, name)[index] = values

    def _keep_within(
        self, chunk: Chunk, normal: Normal, y: Array, left: Any, answers: Answers, index: Any
    ) -> None:
        """Find the answers whose intervals bind, and prove of others that there is none."""
        m, chunk, normal, own = self.readings.m, chunk.taken(left), normal.taken(left), index[left]
        assert chunk.ends is not None
        unit = _power_of_two(float(np.abs(chunk.b).max()))
        w, mass = normal.w[:, :m], _power_of_two(normal.w.max(axis=1, keepdims=True))
        half = chunk.ends.unit / unit
        below = chunk.ends.below / unit - INWARD * half
        above = chunk.ends.above / unit - INWARD * half
        floor = INTERIOR_SHARE * self.floor_of(chunk, normal) / (mass[:, 0] * unit**2)
        Y, sigma = y[left] / unit, normal.sigma / mass[:, 0]
        P, rows, closed = self._interior(
            self.features.psi[:m],
            w / mass,
            chunk.b / unit,
            below,
            above,
            half,
            sigma,
            floor,
            Y,
            unit,
        )
        scale = unit * np.broadcast_to(mass, (len(Y), 1))
        found = self._claims_of(chunk, normal, unit * Y, scale * P, scale * rows)
        sure = closed & found["met"] & found["closed"]
        self._write(
            answers, own[sure], unit * Y[sure], {n: v[sure] for n, v in found.items()}, True
        )
        rest = np.flatnonzero(~sure)
        if rest.size:
            bound = self._separated(
                chunk.taken(rest), normal.taken(rest), y[left][rest] / unit, unit
            )
            answers.lower_bound[own[rest]] = np.maximum(answers.lower_bound[own[rest]], bound)

    def _separated(self, chunk: Chunk, normal: Normal, Y: Array, unit: float) -> Vector:
        """Return proved lower bounds on the largest ratio that any A must have, where above 1.

        The least t is sought with which widening all ends by t half-widths admits some A: rows
        twice, once with each end, and t as a further covariate. Its multipliers separate the
        intervals from the cone where t is positive.
        """
        m, psi, ends = self.readings.m, self.features.psi, chunk.ends
        assert ends is not None
        k, b = len(Y), chunk.b / unit
        half, below, above = ends.unit / unit, ends.below / unit, ends.above / unit
        wide = half.mean(axis=0)  # of one size for all problems
        z = Y @ psi[:m].T - b
        off = ((np.abs(z) + np.abs(b).max(axis=1, keepdims=True)) / wide).max(axis=1) + 1.0
        ones, none = np.ones((len(half), 1)), np.full(half.shape, np.inf)
        columns = np.concatenate([-wide, wide, [1.0]])
        rows = np.concatenate([psi[:m], psi[:m], np.zeros((1, psi.shape[1]))])
        w = np.zeros((1, 2 * m + 1))
        w[0, -1] = 1.0
        start = np.concatenate([off[:, None], Y], axis=1)
        P, pushes, _ = self._interior(
            np.column_stack([columns, rows]), w, np.concatenate([b, b, -np.ones((k, 1))], axis=1),
            np.concatenate([none, below, np.inf * ones], axis=1),
            np.concatenate([above, none, np.inf * ones], axis=1),
            np.concatenate([half, half, ones], axis=1), normal.sigma / normal.w.max(axis=1),
            np.full(k, INTERIOR_SHARE), start, unit,
        )  # fmt: skip
        pushes = pushes[:, :m] + pushes[:, m : 2 * m]
        with np.errstate(divide="ignore", invalid="ignore"):  # next to these the cost is nothing
            scale = np.abs(normal.w[:, :m] * z * unit).max(axis=1) / np.abs(pushes).max(axis=1)
        scale = _power_of_two(np.where(np.isfinite(scale), scale, 0.0))[:, None] / NEGLIGIBLE
        found = self._claims_of(chunk, normal, unit * start[:, 1:], scale * P, scale * pushes)
        return np.asarray(found["lower_bound"])

    def _interior(
        self, psi: Array, w: Array, b: Array, below: Array, above: Array, half: Array,
        sigma: Array, floor: Vector, Y: Array, unit: float,
    ) -> tuple[Array, Array, npt.NDArray[np.bool_]]:  # fmt: skip
        """Run the interior-point method from Y, which it overwrites; return both kinds of
        multipliers, and where the gap was closed."""
        features, k = self.features, len(Y)
        P, rows, closed = np.zeros((k, features.size)), np.zeros(b.shape), np.zeros(k, np.bool_)
        fixed = math.nan if features.trace is None else features.trace / unit
        interior_least_squares(
            np.ascontiguousarray(psi), w, b, below, above, half, psi.shape[1] - features.size,
            features.n, features.is_complex, self.psd, fixed, INTERIOR_SHARE * self.gap, sigma,
            floor, Y, P, rows, closed,
        )  # fmt: skip
        return P, rows, closed

    def _claims_of(
        self, chunk: Chunk, normal: Normal, Y: Array, P: Array, rows: Array
    ) -> dict[str, Any]:
        """Return what is known of answers with multipliers of ends."""
        b, floor = self.features.readings(chunk.b), self.floor_of(chunk, normal)
        return self.claims(chunk, normal, b, Y, P, floor, rows)

    def _with_best_covariates(self, normal: Normal, b: Array, y: Array, moved: Any) -> Array:
        """Return y with the coefficients of least cost next to A."""
        p, psi, y = self.features.p, self.features.psi, y[moved]
        one = len(normal.w) == 1
        w, H = (normal.w, normal.inverse) if one else (normal.w[moved], normal.inverse[moved])
        H = H[:, :p, :p]
        for _ in range(2):
            right = (w * (b[moved] - y @ psi.T)) @ psi[:, :p]
            half = np.matmul(H, right[:, :, None])
            y[:, :p] += np.matmul(H.swapaxes(1, 2), half)[:, :, 0]
        return y

    def claims(
        self, chunk: Chunk, normal: Normal, b: Array, y: Array, P: Array, floor: Vector,
        pushes: Array | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return what is known of these answers, from the data, every rounding counted.

        Parameters
        ----------
        chunk : Chunk
        normal : Normal
        b : ndarray of shape (k, r)
            Readings, with that of the trace.
        y : ndarray of shape (k, q)
            Coefficients and packed matrices.
        P : ndarray of shape (k, N)
            Positive semidefinite, as sums of squares.
        floor : ndarray of shape (k,)
            Cost that counts as none.
        pushes : ndarray of shape (k, m), optional
            Multipliers of ends, positive at an upper one.
        """
        features, p, n, readings = self.features, self.features.p, self.features.n, self.readings
        k, r = b.shape
        z = y @ features.psi.T
        z -= b
        x = y[:, p:]
        sizes = np.sqrt(np.einsum("kj,kj->k", y, y)) * UP
        ends = chunk.ends
        slack, pushed = np.zeros(k), np.zeros(k)
        if pushes is None or ends is None:
            pushes = np.empty((0, readings.m))
        else:
            slack, pushed = self._leaning(z, chunk, ends, sizes, pushes)
        if ends is None:  # then these say alone which readings are missing
            none = np.zeros((1, readings.m))
            none = none if chunk.missing is None else np.where(chunk.missing, np.inf, none)
            ends = Ends(none, none, none)
        ratio, row, met = np.empty(k), np.empty(k, np.int32), np.empty(k, np.bool_)
        most, fewest, errors = np.empty(k), np.empty(k), np.empty(k)
        support, rooms = np.empty((k, 3)), np.empty(k)
        kernels.judge(
            z, chunk.b, normal.w, features.lengths, sizes, self.rounding, chunk.ends is not None,
            ends.below, ends.above, ends.unit, pushes,
            ratio, row, met, most, fewest, errors, support, rooms,
        )  # fmt: skip
        total = gamma(r + 16)
        mass = normal.w @ features.lengths**2 * UP
        g = 2.0 * (z @ features.psi)
        slip = total * pushed
        slip += 2.0 * (np.sqrt(errors * mass) + total * np.sqrt(most * mass))
        loss = slack
        Q = P - g[:, p:]
        nu = np.zeros(k)
        if features.trace is not None:
            nu = -Q[:, :n].mean(axis=1)
            if self.side:  # a trace further inside costs more
                nu = self.side * np.maximum(self.side * nu, 0.0)
            Q[:, :n] += nu[:, None]
        far = np.sqrt(np.einsum("kj,kj->k", Q, Q) + (g[:, :p] ** 2).sum(axis=1))
        multiplier = P[:, :n].sum(axis=1)
        root = math.sqrt(n)
        slip += gamma(4 * n + 16) * multiplier + 8.0 * UNIT * (far + multiplier + root * abs(nu))
        far = (far + slip) * UP
        size = np.sqrt(np.einsum("kj,kj->k", x, x))
        loss += np.abs(np.einsum("kj,kj->k", P, x)) + gamma(len(x.T) + 16) * multiplier * size
        if features.trace is not None:
            off = np.abs(x[:, :n].sum(axis=1) - self.end) + gamma(2 * n) * root * size
            loss += np.abs(nu) * off
        with np.errstate(divide="ignore", invalid="ignore"):
            curved = np.where(normal.sigma > 0.0, far**2 / (4.0 * normal.sigma), np.inf)
        loss = (loss + curved) * UP
        upper, low = most * (1.0 + total), fewest * (1.0 - total)
        lower = np.maximum(low - loss, 0.0)
        closed = upper - lower <= np.maximum(self.gap * upper, floor)
        found: dict[str, Any] = {
            "max_ratio": ratio, "worst_row": row, "met": met & (chunk.ends is not None),
            "objective": 0.5 * (most + fewest), "objective_lower": lower, "closed": closed,
            "lower_bound": np.zeros(k),
        }  # fmt: skip
        if chunk.ends is not None:
            weighed = weighted_squares(normal.w, b)
            found["lower_bound"] = self._least_ratio(far, nu, z, support, rooms, weighed, normal)
        return found

    def _leaning(
        self, z: Array, chunk: Chunk, ends: Ends, sizes: Vector, pushes: Array
    ) -> tuple[Vector, Vector]:
        """Return what multipliers of ends take from the bound, and the sum of their norms.

        For A' within the intervals, ``<F*(mu), A' - A> <= sum_i mu_i (end_i - v_i)``, v the values
        at A.
        """
        m, lengths = self.readings.m, self.features.lengths
        z, size = z[:, :m], np.abs(pushes)
        far = np.where(pushes > 0.0, ends.above - z, ends.below + z)
        far = np.where(size > 0.0, far, 0.0)
        error = self.rounding * lengths[:m] * sizes[:, None] + 8.0 * UNIT * np.abs(chunk.b)
        error += 16.0 * UNIT * (np.abs(far) + np.abs(z))
        lost = (size * (np.abs(far) + error)).sum(axis=1) * UP
        return lost, (size @ lengths[:m]) * UP

    def _least_ratio(
        self, far: Vector, nu: Vector, z: Array, support: Array, rooms: Vector, weighed: Vector,
        normal: Normal,
    ) -> Vector:  # fmt: skip
        """Return a proved lower bound on the largest ratio that any A must have, where above 1.

        With y half the gradient of cost and pushes, ``2 sum_i y_i v_i`` is at least
        ``nu tr A' - |Q| |x|`` for the values v of any A' that is admitted, x its unknowns. Where A'
        meets all intervals its sum of squares is at most `rooms`, and ``sqrt(sigma) |x| <=
        sqrt(rooms) + sqrt(sum_i w_i b_i^2)``.

        Parameters
        ----------
        far, nu : ndarray of shape (k,)
            Norm of Q, with that of the gradient on covariates, and nu.
        z : ndarray of shape (k, r)
            y.
        support, rooms
            As `judge` has written them.
        weighed : ndarray of shape (k,)
            ``sum_i w_i b_i^2``.
        normal : Normal
        """
        error = gamma(self.readings.m + 16) * support[:, 1] + 8.0 * UNIT * np.abs(support[:, 0])
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            share = 0.5 * far / np.sqrt(normal.sigma) * UP
            above = support[:, 0] + share * (np.sqrt(rooms) + np.sqrt(weighed)) * UP
            cost = support[:, 2] + share * np.sqrt(rooms) * UP
            if self.features.trace is not None:
                push = z[:, -1] - 0.5 * nu
                above += np.where(self.side * push > 0.0, np.inf, push * self.end)
                error += 8.0 * UNIT * abs(self.end) * (np.abs(nu) + abs(z[:, -1]))
            above += error
            bound = 1.0 - above / (cost * (1.0 + gamma(self.readings.m + 16))) * (1.0 - 1e-12)
        return np.where((above < 0.0) & np.isfinite(bound), bound, 0.0)


def weighted_squares(w: Array, z: Array) -> Vector:
    """Return ``sum_i w_i z_i^2``, with weights of shape (1, m) or (k, m)."""
    if len(w) == 1:
        return np.asarray(z**2 @ w[0])
    return np.asarray(np.einsum("ki,ki,ki->k", w, z, z))


def _power_of_two(values: Any) -> Any:
    """Return the powers of two above numbers; 1 for 0."""
    return np.ldexp(1.0, np.frexp(values)[1])
