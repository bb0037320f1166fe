"""States that counts admit with stated confidence, and what these say of an observable.

With Pauli settings the parity of a Pauli string has one mean in every setting that measures the
string: the results of all of them together are exactly binomial. Intervals of these means that hold
at once are a region of states, narrower than one interval per outcome would be. An observable that
was named beforehand has an interval of its own, too, from a linear estimate of it [Hoeffding 1963].
"""

from __future__ import annotations

import math
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Vector
from quadsense.core.noise import bounds_from_counts
from quadsense.core.records import cached_property
from quadsense.interval import interval
from quadsense.probes.grid import Grid
from quadsense.probes.observables import observables
from quadsense.probes.product_povm import ProductPovm, product_povm
from quadsense.ranges import NothingFits
from quadsense.tomography.bases import LETTERS, Bases, pauli_matrix, probes_of
from quadsense.tomography.counts import Counts, Expectations

MAX_REGION_QUBITS = 5
"""Qubits up to which an observable is optimized over the region; beyond, its terms are bounded one
by one."""

MIN_CONTRAST = 1e-6
"""Difference of readout probabilities below which a readout tells nothing."""

MIN_COEFFICIENT = 1e-14
"""Coefficient of a Pauli string, relative to the largest, that is rounding."""

PARITIES = np.zeros((len(LETTERS), 2, len(LETTERS) + 1))
"""What each setting and outcome reads of I, X, Y and Z: 0 where it says nothing."""
PARITIES[:, :, 0] = 1.0
for _setting in range(len(LETTERS)):
    PARITIES[_setting, :, _setting + 1] = 1.0, -1.0

PAULIS = np.array([pauli_matrix(letter, 1) for letter in "I" + LETTERS])
"""I, X, Y and Z."""


class Region:
    """All states whose readings lie within intervals that hold together with stated confidence.

    Parameters
    ----------
    given : Counts or Expectations
    bases : Bases
    readout : ndarray, shape (q, outcomes, outcomes), or None
    confidence : float

    Attributes
    ----------
    probes : Probes of the package
    mix : sparse array or None
        Readings as sums over rows, where the probes have none of their own.
    lower, upper : ndarray
        One interval per reading.
    means : ndarray
        What was read.
    names : list of str
        Of the readings.
    """

    probes: Any
    mix: sp.csr_array | None
    lower: Vector
    upper: Vector
    means: Vector
    names: list[str]

    def __init__(
        self,
        given: Counts | Expectations,
        bases: Bases,
        readout: npt.NDArray[np.float64] | None,
        confidence: float,
    ) -> None:
        self.given, self.readout, self.confidence = given, readout, confidence
        self.mix = None
        self.pooled = bases.is_pauli
        if isinstance(given, Expectations):
            self.probes, self.names = observables(given.strings), given.strings
            self.q, self.means, self.totals = len(given.strings[0]), given.means, given.shots
            ones = 0.5 * (1.0 + given.means) * given.shots
            low = bounds_from_counts(np.floor(ones + MIN_CONTRAST), given.shots, confidence)[0]
            high = bounds_from_counts(np.ceil(ones - MIN_CONTRAST), given.shots, confidence)[1]
            self.lower, self.upper = 2.0 * low - 1.0, 2.0 * high - 1.0
            return
        self.q = given.settings.shape[1]
        if self.pooled:
            self._pool(given, readout)
            return
        self.probes = probes_of(bases, given.settings, readout)
        totals = np.broadcast_to(given.shots[:, None], given.table.shape)
        self.means = (given.table / totals).ravel()
        self.totals = totals.ravel()
        self.lower, self.upper = bounds_from_counts(given.table.ravel(), self.totals, confidence)
        self.names = [name for name in given.names for _ in range(given.table.shape[1])]

    def _pool(self, given: Counts, readout: npt.NDArray[np.float64] | None) -> None:
        """Take the parities of all Pauli strings that some setting measures."""
        q, settings = self.q, given.settings
        rows = product_povm(["pauli"] * q, settings)
        assert isinstance(rows, ProductPovm)
        self.rows = rows
        sums, totals = pooled(rows.grid, given.table)
        strings = np.indices((len(PAULIS),) * q).reshape(q, -1).T
        self.places = np.flatnonzero((totals > 0.0) & strings.any(axis=1))
        self.strings, self.totals = strings[self.places], totals[self.places]
        ones = np.rint(0.5 * (sums + totals)[self.places])
        low, high = bounds_from_counts(ones, self.totals, self.confidence)
        self.lower, self.upper = 2.0 * low - 1.0, 2.0 * high - 1.0
        self.means = sums[self.places] / self.totals
        self.names = ["".join(("I" + LETTERS)[k] for k in string) for string in self.strings]
        self.probes = rows

    @cached_property
    def _sums(self) -> sp.csr_array:
        """Each mean as a sum over the rows of one setting that measures the string."""
        q = self.q
        assert isinstance(self.given, Counts)
        settings = self.given.settings
        first = np.full(len(self.strings), -1)
        left = np.arange(len(self.strings))
        for number, setting in enumerate(settings):
            own = self.strings[left]
            fits = np.all((own == 0) | (own == setting + 1), axis=1)
            first[left[fits]] = number
            left = left[~fits]
            if not left.size:
                break
        values = np.ones((len(self.strings), 1))
        for j in range(q):
            parity = np.array([1.0, -1.0])
            if self.readout is not None:
                parity = parity @ self.readout[j]
            own = np.where(self.strings[:, j, None] > 0, parity, 1.0)
            values = (values[:, :, None] * own[:, None, :]).reshape(len(values), -1)
        per = values.shape[1]
        columns = first[:, None] * per + np.arange(per)
        starts = per * np.arange(len(values) + 1)
        shape = (len(values), self.probes.m)
        return sp.csr_array((values.ravel(), columns.ravel(), starts), shape=shape)

    def model(self, rho: npt.NDArray[Any]) -> Vector:
        """Return what a state reads."""
        found = np.asarray(self.probes.forward(rho))
        mix = self._sums if self.pooled and isinstance(self.given, Counts) else self.probes.mix
        return found if mix is None else np.asarray(mix @ found)

    # --- what it says of an observable -------------------------------------------------------

    @cached_property
    def is_empty(self) -> bool:
        """Whether no state is in the region, proved; False where that was not found out."""
        return self.interval(np.eye(self.probes.n)) is None

    def interval(self, C: npt.NDArray[Any], quick: bool = False) -> tuple[float, float] | None:
        """Return certified ends of ``tr(C rho)`` over the region; None where it is empty.

        With `quick`, and beyond `MAX_REGION_QUBITS`, its strings are bounded one by one.
        """
        values = np.linalg.eigvalsh(C)
        least, most = float(values[0]), float(values[-1])
        if self.pooled and isinstance(self.given, Counts):
            found = self._term_by_term(C)
            least, most = max(least, found[0]), min(most, found[1])
            if quick or self.q > MAX_REGION_QUBITS:
                return least, most
        kind = C.astype(np.complex128 if self.probes.is_complex else np.float64)
        mix = self._sums if self.pooled and isinstance(self.given, Counts) else None
        try:
            ends = interval(
                self.probes, None, kind, bounds=(self.lower, self.upper), mix=mix, psd=True,
                trace=1.0,
            )  # fmt: skip
        except NothingFits:
            return None
        return max(least, float(ends.lower)), min(most, float(ends.upper))

    def _term_by_term(self, C: npt.NDArray[Any]) -> tuple[float, float]:
        """Return ends of the sum of the Pauli strings that C is made of."""
        c = self._read(C)
        if c is None:
            return -math.inf, math.inf
        constant, own = float(c[0]), c[self.places]
        ends = own * self.lower, own * self.upper
        size = float(np.abs(own).sum()) + abs(constant)
        rest = float(np.abs(c).sum()) - size  # of strings that no setting measures
        room = max(rest, 0.0) + MIN_COEFFICIENT * size
        low = constant + float(np.minimum(*ends).sum()) - room
        return low, constant + float(np.maximum(*ends).sum()) + room

    def _read(self, C: npt.NDArray[Any]) -> Vector | None:
        """Return the coefficients of C in the strings as they are read out."""
        c = coefficients(C, self.q)
        if self.readout is None:
            return c
        for matrix in self.readout:
            parity = np.array([1.0, -1.0]) @ matrix
            shift, contrast = 0.5 * (parity[0] + parity[1]), 0.5 * (parity[0] - parity[1])
            if abs(contrast) < MIN_CONTRAST:
                return None
            turn = np.eye(len(PAULIS)) / contrast
            turn[0, 0], turn[0, 1:] = 1.0, -shift / contrast
            c = (turn @ c.reshape(len(PAULIS), -1)).T.ravel()
        return c

    def direct(self, C: npt.NDArray[Any]) -> tuple[float, float]:
        """Return ends of ``tr(C rho)`` for a C that was named before the counts were seen.

        They hold with the confidence by themselves; infinite where some string of C was not
        measured.
        """
        everything = -math.inf, math.inf
        c = self._read(C) if self.pooled and isinstance(self.given, Counts) else None
        if c is None:
            return everything
        assert isinstance(self.given, Counts)
        each = np.zeros_like(c)
        each[self.places] = c[self.places] / self.totals
        unread = np.abs(c).copy()
        unread[[0, *self.places]] = 0.0
        if unread.max() > MIN_COEFFICIENT * np.abs(c).max():
            return everything
        shape = self.given.table.shape
        gains = self.rows.grid.expanded(each[:, None], [PARITIES] * self.q).reshape(shape)
        estimate = float(c[0] + np.sum(gains * self.given.table))
        spread = float(self.given.shots @ np.ptp(gains, axis=1) ** 2)
        reach = math.sqrt(0.5 * math.log(2.0 / (1.0 - self.confidence)) * spread)
        return float(estimate - reach), float(estimate + reach)

    def squares(self) -> float:
        """Return the most that ``tr(rho^2)`` can be by the means alone."""
        if not self.pooled or self.readout is not None:
            return 1.0
        most = np.maximum(self.lower**2, self.upper**2).sum()
        n = self.probes.n
        unseen = n * n - 1 - len(self.means)
        return min(1.0, float((1.0 + most + unseen) / n))


def pooled(grid: Grid, table: Vector) -> tuple[Vector, Vector]:
    """Return sums of the parities of all Pauli strings, that of I first, and of how many results.

    Each string is read in every setting that has its letters.
    """
    counts, q = table.reshape(-1, 1), len(grid.counts)
    sums = grid.contracted(counts, [PARITIES] * q)[:, 0]
    if grid.is_even and np.ptp(shots := table.sum(axis=1)) == 0.0:
        often = len(shots) / prod(grid.counts) * shots[0]
        each = [float(len(LETTERS)), *[1.0] * len(LETTERS)]  # settings that read I, X, Y and Z
        return sums, often * reduce(np.kron, [np.array(each)] * q)
    return sums, grid.contracted(counts, [np.abs(PARITIES)] * q)[:, 0]


def coefficients(C: npt.NDArray[Any], q: int) -> Vector:
    """Return the coefficients of Pauli strings in a Hermitian matrix, those of I first."""
    pairs = C.reshape((2,) * (2 * q)).transpose([k for j in range(q) for k in (j, q + j)])
    turn = 0.5 * PAULIS.conj().reshape(len(PAULIS), -1)
    found = pairs.ravel()
    for _ in range(q):
        found = (turn @ found.reshape(turn.shape[1], -1)).T.ravel()
    return np.ascontiguousarray(found.real)
