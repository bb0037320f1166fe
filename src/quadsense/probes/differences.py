"""Differences of unit vectors: rows ``e_i - e_j`` of a network, known by two numbers each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import LONG, Array, Vector, compact
from quadsense.core.records import cached_property
from quadsense.measurements.arrays import LARGEST_NORM, Sparse
from quadsense.measurements.constraints import Constraint
from quadsense.measurements.probes import Probes
from quadsense.measurements.validate import checked_count, checked_integers, checked_matrix
from quadsense.system.machine import BLOCK_ELEMENTS, CACHE_BYTES, FLOAT64_BYTES
from quadsense.system.watch import look
from quadsense.typing import MatrixLike

GATHERED_ROWS = CACHE_BYTES // FLOAT64_BYTES
"""Rows whose indices and values are gathered together: they stay in cache."""

MAX_ROWS_IN_TURN = BLOCK_ELEMENTS
"""Rows that are taken in turn between two looks at the clock."""

MAX_SORTED_ROWS = 2**18
"""Rows up to which they are also held by node: sums are then gathered, not scattered."""


def differences(pairs: Any, n: int, offsets: MatrixLike | None = None) -> Probes:
    """Return rows ``e_i - e_j`` for pairs (i, j), which read squared distances of a Gram matrix.

    With ``A = X X^T``, X one position per row, ``u* A u = |x_i - x_j|^2``. A product with a row
    takes two additions, and two numbers are kept of it.

    Parameters
    ----------
    pairs : array_like of shape (m, 2)
        Whole numbers from 0 to n - 1; a second of -1 stands for none: the row is ``e_i`` alone.
    n : int
        How many unit vectors there are.
    offsets : array_like of shape (m, d), optional
        Known vectors ``o``, so that ``|x_i - x_j - o|^2`` is read. The rows are then
        ``(e_i - e_j, -o)`` of length n + d, and A is ``[[X X^T, X], [X^T, I]]``: its last d rows
        are the positions. That its last block is I comes with the rows as constraints. An
        anchor at a known point a is the pair ``(i, -1)`` with offset a; rows without an offset
        have zeros there.

    Returns
    -------
    Probes
        To be given to `quadsense.solve`, `Measurements` and others in place of U.

    Examples
    --------
    Three points on a line, by their distances:

    >>> import quadsense
    >>> U = quadsense.probes.differences([(0, 1), (1, 2), (0, 2)], n=3)
    >>> result = quadsense.solve(U, [1.0, 4.0, 9.0], delta=1e-6, psd=True)
    >>> bool(result.met)
    True

    One point in the plane, by its distances from three anchors:

    >>> import numpy as np
    >>> anchors = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    >>> x = np.array([1.0, 2.0])
    >>> b = np.sum((x - anchors) ** 2, axis=1)
    >>> U = quadsense.probes.differences([(0, -1)] * 3, n=1, offsets=anchors)
    >>> result = quadsense.solve(U, b, delta=1e-9, psd=True)
    >>> result.A[0, 1:].round(4).tolist()
    [1.0, 2.0]
    """
    count = checked_count("n", n)
    found = checked_integers("pairs", pairs)
    if found.ndim != 2 or found.shape[1] != 2:
        raise ValueError(
            f"pairs must have shape (m, 2), one pair (i, j) per row and (i, -1) for e_i alone, got "
            f"shape {found.shape}"
        )
    if not len(found):
        raise ValueError("pairs is empty: there must be a measurement")
    for column, least in ((0, 0), (1, -1)):
        values = found[:, column]
        if int(values.min()) < least or int(values.max()) >= count:
            row = int(np.argmax((values < least) | (values >= count)))
            also = "" if column == 0 else ", or -1 for none"
            raise ValueError(
                f"pairs[{row}, {column}] is {values[row]}, but must be from 0 to n - 1 = "
                f"{count - 1}{also}"
            )
    # Half the size where there are many; else as they are used.
    kind = np.int32 if count <= np.iinfo(np.int32).max and len(found) > LONG else np.intp
    first, second = (np.ascontiguousarray(found[:, k], dtype=kind) for k in (0, 1))
    known = None
    if offsets is not None:
        known = np.ascontiguousarray(checked_matrix("offsets", offsets, real=True))
        if len(known) != len(first):
            raise ValueError(
                f"offsets has shape {known.shape}, but must have one row for each of the "
                f"{len(first)} pairs"
            )
        largest = np.abs(known).max(axis=1)
        if float(largest.max()) > LARGEST_NORM:
            row = int(np.argmax(largest))
            raise ValueError(
                f"offsets[{row}] is as large as {largest[row]:.3g}: measure in a larger unit"
            )
    return Differences(first, second, count, known)


def _identity_block(nodes: int, n: int) -> tuple[Constraint, ...]:
    """Return the constraints that say that A is I in the rows and columns from `nodes` on."""
    found = []
    for p in range(nodes, n):
        for q in range(p, n):
            C = sp.csr_array(([0.5, 0.5], ([p, q], [q, p])), shape=(n, n))  # summed where p == q
            value = float(p == q)
            name = f"identity block ({p - nodes}, {q - nodes})"
            found.append(Constraint(name, C, value, value))
    return tuple(found)


class Differences(Sparse):
    """Rows ``(e_i - e_j, -o)``; a sparse array, where one is needed, is made when first used.

    Parameters
    ----------
    first, second : ndarray of shape (m,), whole numbers
        Second is -1 where there is none.
    nodes : int
    offsets : ndarray of shape (m, d), optional
    """

    storage = "differences"
    lasting = True  # long enough for what is made once to pay

    def __init__(
        self,
        first: npt.NDArray[Any],
        second: npt.NDArray[Any],
        nodes: int,
        offsets: npt.NDArray[Any] | None = None,
    ) -> None:
        self.first, self.second, self.nodes, self.offsets = first, second, nodes, offsets
        self.m = int(first.size)
        self.n = nodes + (0 if offsets is None else int(offsets.shape[1]))
        self.is_complex = False
        self.constraints = () if offsets is None else _identity_block(nodes, self.n)
        self.alone = np.flatnonzero(second < 0)
        self.void = np.flatnonzero(first == second)

    # --- facts -------------------------------------------------------------------------------

    @cached_property
    def held_norms(self) -> Vector:
        """The root of 2, or of 1, and of the offset's own square."""
        squares = np.full(self.m, 2.0)
        squares[self.alone], squares[self.void] = 1.0, 0.0
        if self.offsets is not None:
            squares += np.einsum("ij,ij->i", self.offsets, self.offsets)
        return compact(np.sqrt(squares, out=squares))

    @cached_property
    def length(self) -> int:
        """Two, and those of an offset."""
        return 2 + self.n - self.nodes

    @cached_property
    def has_zero_rows(self) -> bool:  # type: ignore[override]
        """Whether some row is zero: of a node and itself."""
        return bool((self.held_norms[self.void] == 0.0).any())

    @cached_property
    def given(self) -> Any:
        """The rows as a sparse array, for files."""
        return self.U

    @cached_property
    def U(self) -> Any:
        """The same rows as a CSR array."""
        rows = np.arange(self.m)
        i, j = self._pairs(slice(0, self.m))
        twice = self.second >= 0
        values = np.concatenate([np.ones(self.m), -np.ones(int(twice.sum()))])
        places = (np.concatenate([rows, rows[twice]]), np.concatenate([i, j[twice]]))
        found = sp.csr_array((values, places), shape=(self.m, self.nodes))
        found.eliminate_zeros()
        if self.offsets is not None:
            found = sp.csr_array(sp.hstack([found, sp.csr_array(-self.offsets)]))
        return found

    def made_of(self) -> tuple[Any, ...]:
        """Return the pairs and the offsets."""
        return self.n, self.nodes, self.first, self.second, self.offsets

    def gram_density_bound(self) -> float:
        """Return the upper bound on the share of nonzeros of K: from how many rows have a node."""
        if self.offsets is not None:
            return 1.0
        counts = np.bincount(self.first, minlength=self.nodes).astype(np.float64)
        counts += np.bincount(self.second[self.second >= 0], minlength=self.nodes)
        return float(min(1.0, np.sum(counts**2) / self.m**2))

    # --- rows --------------------------------------------------------------------------------

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return those rows alone."""
        offsets = None if self.offsets is None else self.offsets[index]
        return Differences(self.first[index], self.second[index], self.nodes, offsets)

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`."""
        return self.take(np.arange(first, last))

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        chosen = np.asarray(index)
        rows, here = np.zeros((chosen.size, self.n)), np.arange(chosen.size)
        rows[here, self.first[chosen]] = 1.0
        twice = self.second[chosen] >= 0
        rows[here[twice], self.second[chosen[twice]]] -= 1.0
        if self.offsets is not None:
            rows[:, self.nodes :] = -self.offsets[chosen]
        return rows

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``: the differences of two entries of each column."""
        Y, P = X.T, np.empty((int(X.shape[1]), self.m))
        for part in self._spans(GATHERED_ROWS):
            self._gather(Y, part, P[:, part])
        return P.T

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        C, total = Y.T, np.zeros((int(Y.shape[1]), self.n))
        for part in self._spans(self._counted):
            self._add(C[:, part], part, total)
        return total.T

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Yield all rows, as many at a time as sums count; for images those that stay in cache."""
        for part in self._spans(self._counted if sums else GATHERED_ROWS):
            yield part, self if part.stop - part.start == self.m else self._some(part)

    def _some(self, part: slice) -> Differences:
        """Return some of the rows: views of these."""
        other = object.__new__(Differences)
        other.first, other.second, other.nodes = self.first[part], self.second[part], self.nodes
        other.offsets = None if self.offsets is None else self.offsets[part]
        other.m, other.n, other.lasting = part.stop - part.start, self.n, False
        for name in ("alone", "void"):
            rows = getattr(self, name)
            low, high = np.searchsorted(rows, (part.start, part.stop))
            setattr(other, name, rows[low:high] - part.start)
        return other

    def _gather(self, Y: Array, part: slice, out: Array) -> None:
        """``u_i* Y^T`` of some rows."""
        i, j = self._pairs(part)
        low, high = np.searchsorted(self.alone, (part.start, part.stop))
        alone = self.alone[low:high] - part.start
        other = np.empty(len(j))
        for y, p in zip(Y, out, strict=True):
            y.take(i, out=p, mode="clip")
            y.take(j, out=other, mode="clip")
            if alone.size:
                other[alone] = 0.0
            p -= other
        if self.offsets is not None:
            out -= Y[:, self.nodes :] @ self.offsets[part].T

    def _add(self, C: Array, part: slice, total: Array) -> None:
        """Add ``sum_i C_ki u_i`` of some rows."""
        if self.m <= MAX_SORTED_ROWS and part == slice(0, self.m) and self.lasting:
            for c, out in zip(C, total, strict=True):
                look()
                out += self._by_node @ c
            return
        i, j = self._pairs(part)
        low, high = np.searchsorted(self.alone, (part.start, part.stop))
        alone = self.alone[low:high] - part.start
        nodes = slice(0, self.nodes)
        for c, out in zip(C, total, strict=True):
            look()
            out[nodes] += np.bincount(i, c, self.nodes)
            if alone.size:
                c = c.copy()
                c[alone] = 0.0
            out[nodes] -= np.bincount(j, c, self.nodes)
        if self.offsets is not None:
            total[:, self.nodes :] -= C @ self.offsets[part]

    def in_turn(
        self,
        factors: Array | None,
        X: Array,
        b: Array,
        delta: Array,
        theta: float,
        beyond: float,
        unit: float,
    ) -> tuple[float, float]:
        """Move a factor X, (n, k), by one row after the other.

        Row ``v = f u`` reads ``|X^T v|^2``. Where that is farther from b than ``theta delta``, X is
        moved along v to where it is not, the least move that does it [Kaczmarz 1937], times
        `beyond`, up to 2; with 0 nothing is moved. All factors f are 1 where None.

        Returns
        -------
        value : float
            ``1/2 sum (excess / delta)^2`` of what rows read when it was their turn.
        worst : float
            The largest of ``(|z| + unit (|b| + ||X||_F^2)) / delta``, likewise.
        """
        scales = np.broadcast_to(1.0, (self.m,)) if factors is None else factors
        offsets = np.empty((self.m, 0)) if self.offsets is None else self.offsets
        size, value, worst = float(np.vdot(X, X)), 0.0, 0.0
        for part in self._spans(MAX_ROWS_IN_TURN):
            some, most = _compiled()(
                X, self.first, self.second, offsets, scales, b, delta,
                theta, beyond, unit, size, part.start, part.stop,
            )  # fmt: skip
            value, worst = value + some, max(worst, most)
        return value, worst

    @cached_property
    def _by_node(self) -> Any:
        """The rows as columns: a third quicker than two counts."""
        return sp.csr_array(self.U.T)

    def _pairs(self, part: slice) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return both nodes of some rows, as what NumPy counts and gathers by; 0 for none."""
        first, second = (
            nodes[part].astype(np.intp, copy=False) for nodes in (self.first, self.second)
        )
        return first, np.maximum(second, 0) if self.alone.size else second

    @property
    def _counted(self) -> int:
        """Rows whose sums are counted together: not far fewer than what they are counted into."""
        return max(BLOCK_ELEMENTS, self.nodes // 2)

    def _spans(self, size: int) -> Iterator[slice]:
        """Yield slices of `size` rows."""
        for start in range(0, self.m, size):
            look()
            yield slice(start, min(start + size, self.m))

    # --- the sensing map ---------------------------------------------------------------------

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i`` from four entries of A, and the offsets' share."""
        parts, diagonal = [], A.diagonal()
        for part in self._spans(GATHERED_ROWS):
            i, j = self._pairs(part)
            there = (self.second[part] >= 0).astype(np.float64)
            value = diagonal[i] + there * (diagonal[j] - A[i, j] - A[j, i])
            if self.offsets is not None:
                o, nodes = self.offsets[part], self.nodes
                right = A[i, nodes:] - there[:, None] * A[j, nodes:]
                left = A[nodes:, i].T - there[:, None] * A[nodes:, j].T
                value += np.einsum("ij,ij->i", o @ A[nodes:, nodes:] - left - right, o)
            parts.append(value)
        return np.concatenate(parts)

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2`` for every j."""
        total = np.empty(self.n)
        i, j = self._pairs(slice(0, self.m))
        weights = np.array(y, dtype=np.float64)
        weights[self.void] = 0.0
        total[: self.nodes] = np.bincount(i, weights, self.nodes)
        weights[self.alone] = 0.0
        total[: self.nodes] += np.bincount(j, weights, self.nodes)
        if self.offsets is not None:
            total[self.nodes :] = y @ self.offsets**2
        return total


@cache
def _compiled() -> Any:
    """Return `_turned_in` as compiled by Numba, which is imported when it is first needed."""
    from numba import njit

    return njit(cache=True, nogil=True, error_model="numpy")(_turned_in)


def _turned_in(
    X: Any,
    first: Any,
    second: Any,
    offsets: Any,
    factors: Any,
    b: Any,
    delta: Any,
    theta: float,
    beyond: float,
    unit: float,
    size: float,
    begin: int,
    end: int,
) -> Any:
    """Move X, (n, k), by the rows `begin` to `end` in turn: see `Differences.in_turn`.

    A row is ``f (e_i - e_j, -o)``, f one of `factors` and o one of `offsets`, of shape (m, 0) where
    there are none.
    """
    k, known = X.shape[1], offsets.shape[1]
    nodes = X.shape[0] - known
    image = np.empty(k)
    value, worst = 0.0, 0.0
    for r in range(begin, end):
        i, j, f = first[r], second[r], factors[r]
        read = 0.0
        for c in range(k):
            p = X[i, c]
            if j >= 0:
                p -= X[j, c]
            for q in range(known):
                p -= offsets[r, q] * X[nodes + q, c]
            p *= f
            image[c] = p
            read += p * p
        z = read - b[r]
        miss = abs(z)
        allowed = theta * delta[r]
        worst = max(worst, (miss + unit * (abs(b[r]) + size)) / delta[r])
        if not miss > allowed:
            continue
        miss -= allowed
        value += 0.5 * (miss / delta[r]) ** 2
        if beyond == 0.0 or not read > 0.0:
            continue
        aim = max(read - miss if z > 0.0 else read + miss, 0.0)
        share = beyond * (math.sqrt(aim / read) - 1.0) * f
        for c in range(k):
            move = share * image[c]
            X[i, c] += move
            if j >= 0:
                X[j, c] -= move
            for q in range(known):
                X[nodes + q, c] -= offsets[r, q] * move
    return value, worst
