"""Rows that are tensor products of local ones: settings and outcomes of every factor.

A row is ``t_1 x t_2 x ... x t_q``; its number says which setting each factor was in, and which
outcome each had. All products go one factor at a time, in local real coordinates of A, and cost
little more than their results have numbers: rows are formed for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector
from quadsense.core.intervals import EPS
from quadsense.core.records import cached_property
from quadsense.device import DeviceArray, put, waits
from quadsense.measurements.arrays import LARGEST_NORM, SMALLEST_NORM
from quadsense.measurements.gram import Diagonal
from quadsense.measurements.probes import Probes
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.system.watch import look

MAX_CROSS_TERM = 1e-12
"""Entries off the diagonal, relative to the matrix, that are rounding."""

CALL_FLOPS = 2e4
"""Operations in the time that Python takes for a product by itself."""

Factors = list[npt.NDArray[Any]]
"""One array per factor."""


class Grid:
    """Settings and outcomes of every factor: products with tables, one factor at a time.

    `settings` are (k, q); `counts`, `outcomes` and `widths` say how many settings and outcomes
    each factor has, and how long what they read is.
    """

    def __init__(
        self,
        settings: npt.NDArray[np.int64],
        counts: list[int],
        outcomes: list[int],
        widths: list[int],
    ) -> None:
        self.settings, self.counts, self.outcomes = settings, counts, outcomes
        self.widths, self.per_setting = widths, prod(outcomes)

    @cached_property
    def is_full(self) -> bool:
        """Whether all combinations of settings are read, of which those measured are taken.

        Otherwise those with the same first settings are read together.
        """
        full = paths = 0.0
        combined, below = 1, prod(self.counts)
        for j, (count, outcomes) in enumerate(zip(self.counts, self.outcomes, strict=True)):
            rest = prod(self.widths[j:]) ** 2
            combined, below = combined * count * outcomes, below // count
            begun = len(np.unique(self._combined // below))
            full += combined * rest + CALL_FLOPS
            paths += begun * (prod(self.outcomes[: j + 1]) * rest + CALL_FLOPS)
        return full <= paths

    @cached_property
    def _combined(self) -> npt.NDArray[np.int64]:
        """Number of each setting among all combinations, (k,)."""
        return np.ravel_multi_index(tuple(self.settings.T), self.counts).astype(np.int64)

    @cached_property
    def _places(self) -> npt.NDArray[np.int64]:
        """Where each row is among all combinations of settings and outcomes."""
        places = np.zeros((len(self.settings), 1), dtype=np.int64)
        for j, (count, outcomes) in enumerate(zip(self.counts, self.outcomes, strict=True)):
            own = self.settings[:, j, None] * outcomes + np.arange(outcomes)
            places = places[:, :, None] * (count * outcomes) + own[:, None, :]
            places = places.reshape(len(self.settings), -1)
        return places.ravel()

    def _placed(self, beside: Array) -> Any:
        """The same where an array is; kept there, for they are as many as rows."""
        if not waits(beside):
            return self._places
        kept = self.__dict__.get("_kept")
        if kept is None or kept.tensor.device != beside.tensor.device:
            kept = self.__dict__["_kept"] = put(self._places, beside)
        return kept

    @cached_property
    def is_even(self) -> bool:
        """Whether all combinations of settings were measured equally often."""
        often = np.bincount(self._combined, minlength=prod(self.counts))
        return bool(often.min() == often.max())

    @cached_property
    def most_equal(self) -> int:
        """How often a setting occurs at most."""
        return int(np.unique(self._combined, return_counts=True)[1].max())

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """An order of the settings in which equal beginnings are next to each other."""
        order = np.argsort(self._combined, kind="stable")
        return order, self.settings[order]

    def expanded(self, X: Array, tables: Factors) -> Array:
        """What every row reads: ``(x) tables_j X``, (K_1 ... K_q, k) to (m, k)."""
        count = int(X.shape[1])
        if self.is_full:
            for table in tables:
                look()
                flat = table.reshape(-1, table.shape[2])
                X = X.reshape(flat.shape[1], -1).T @ flat.T
            return X.reshape(count, -1)[:, self._placed(X)].T
        order, chosen = self._sorted
        kind = np.result_type(X, tables[0])
        found = np.empty((len(chosen), count, self.per_setting), kind)

        def walk(j: int, X: Array, first: int, last: int) -> None:
            if j == len(tables):
                found[order[first:last]] = X.reshape(count, -1)
                return
            for here, then in _runs(chosen[:, j], first, last):
                own = tables[j][chosen[here, j]]
                walk(j + 1, X.reshape(own.shape[1], -1).T @ own.T, here, then)

        walk(0, X, 0, len(chosen))
        return found.swapaxes(1, 2).reshape(-1, count)

    def contracted(self, Y: Array, tables: Factors) -> Array:
        """``sum_i y_i (x) tables_j,i``: (m, k) to (K_1 ... K_q, k)."""
        count = int(Y.shape[1])
        if self.is_full:
            combined = prod(self.counts) * self.per_setting
            full = np.zeros_like(Y, shape=(combined, count), dtype=np.result_type(Y, tables[0]))
            if self.most_equal == 1:
                full[self._placed(Y)] = Y
            else:
                np.add.at(full, self._places, Y)
            for table in tables:
                look()
                flat = table.reshape(-1, table.shape[2])
                full = full.reshape(len(flat), -1).T @ flat
            return full.reshape(count, -1).T
        order, chosen = self._sorted
        given = Y.reshape(len(chosen), self.per_setting, count).swapaxes(1, 2)

        def walk(j: int, first: int, last: int) -> Array:
            if j == len(tables):
                return np.sum(given[order[first:last]], axis=0)
            total: Array = 0.0
            for here, then in _runs(chosen[:, j], first, last):
                own = tables[j][chosen[here, j]]
                total = total + own.T @ walk(j + 1, here, then).reshape(-1, len(own)).T
            return total

        return walk(0, 0, len(chosen)).reshape(-1, count)


def _runs(values: npt.NDArray[np.int64], first: int, last: int) -> list[tuple[int, int]]:
    """Where equal values begin and end, from `first` to `last`."""
    look()
    begins = first + np.flatnonzero(np.diff(values[first:last], prepend=-1))
    return list(zip(begins.tolist(), [*begins[1:].tolist(), last], strict=True))


# --- the rows --------------------------------------------------------------------------------


class ProductPovm(Probes):
    """See `product_povm`.

    `tables` are vectors t (S_j, R_j, d_j), R_j per setting; `confusions`, (S_j, outcomes, R_j), are
    of which sums readings are, None where they are those of the rows. `there` is an array on the
    device where methods work, None for the host: `forward`, `adjoint`, `local` and `whole` take
    arrays of either.
    """

    storage = "product POVM"

    def __init__(
        self,
        tables: Factors,
        settings: npt.NDArray[np.int64],
        confusions: Factors | None = None,
        device: Any = None,
    ) -> None:
        self.there = None if device is None else _on(device)
        self.is_complex = any(np.iscomplexobj(each) for each in tables)
        kind = np.complex128 if self.is_complex else np.float64
        self.tables = [np.ascontiguousarray(each, dtype=kind) for each in tables]
        self.settings, self.confusions = settings, confusions
        self.widths = [each.shape[2] for each in self.tables]
        self.outcomes = [each.shape[1] for each in self.tables]
        self.n = prod(self.widths)
        self.per_setting = prod(self.outcomes)
        self.m = len(settings) * self.per_setting
        _check_norms(self.tables)
        self.grid = Grid(settings, [len(each) for each in tables], self.outcomes, self.widths)
        found = [self._basis(j) for j in range(len(tables))]
        self.bases, self.diagonals, alone = zip(*found, strict=True)
        # Diagonal for weights per setting, or else for equal ones of all combinations.
        self.by_setting = all(alone)
        self.is_diagonal = self.by_setting or self.grid.is_even
        # (S_j, R_j, K_j): what a matrix of the basis reads
        self.real_tables = [
            np.einsum("sra,kab,srb->srk", table.conj(), basis, table).real.copy()
            for table, basis in zip(self.tables, self.bases, strict=True)
        ]
        self.into = [basis.conj().reshape(len(basis), -1) for basis in self.bases]
        # Nested inner products of that many terms, into coordinates and with tables, which round
        # too; moduli of coordinates grow on their way.
        terms = 3.0 * sum(width * width for width in self.widths)
        growth = prod(float(np.linalg.norm(np.abs(each), 2)) for each in self.into)
        # The last term is that of a matrix made of a factor, over the least norm that it may have.
        self.rounding = EPS * (terms * growth + self.n**1.25)

    def _basis(self, j: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], bool]:
        """Orthonormal Hermitian matrices (K, d, d), and the diagonals of ``F* F`` of each setting.

        True where it is diagonal for each by itself; else it is for the sum of all.
        """
        plain = _hermitian_basis(self.widths[j], self.is_complex)
        table = self.tables[j]
        read = np.einsum("sra,kab,srb->srk", table.conj(), plain, table).real
        if self.confusions is not None:
            read = self.confusions[j] @ read
        normals = read.swapaxes(1, 2) @ read
        shared = joint_basis(normals)
        turned = np.linalg.eigh(normals.sum(axis=0))[1] if shared is None else shared
        diagonals = np.einsum("ki,skl,li->si", turned, normals, turned)
        basis = np.einsum("ki,kab->iab", turned, plain)
        return basis, np.maximum(diagonals, 0.0), shared is not None

    # --- facts -------------------------------------------------------------------------------

    @property
    def works_there(self) -> bool:
        """Whether there is a device, and all products can be made there."""
        plain = self.grid.is_full and self.grid.most_equal == 1 and self.mix is None
        return self.there is not None and plain

    @cached_property
    def held_norms(self) -> Array:
        """Products of the local norms."""
        norms = [np.linalg.norm(each, axis=2)[:, :, None] for each in self.tables]
        return self.grid.expanded(np.ones((1, 1)), norms)[:, 0]

    @cached_property
    def adjoint_terms(self) -> int:
        """Terms of the nested sums of `adjoint`: those of each factor, and of equal settings."""
        nested = sum(len(table) * table.shape[1] for table in self.tables)
        return min(self.m, nested + self.grid.most_equal)

    def made_of(self) -> tuple[Any, ...]:
        """The tables and the settings, and of which sums readings are."""
        return self.tables, self.settings, self.confusions or ()

    # --- rows --------------------------------------------------------------------------------

    def _parts_of(self, index: Any) -> list[npt.NDArray[Any]]:
        """Vectors of each factor, (k, d_j), of those rows."""
        setting, outcome = np.divmod(np.asarray(index, dtype=np.int64), self.per_setting)
        digits = np.unravel_index(outcome, self.outcomes)
        return [table[self.settings[setting, j], digits[j]] for j, table in enumerate(self.tables)]

    def take(self, index: Array) -> Array:
        """Those rows, dense."""
        parts = self._parts_of(index)
        count = len(parts[0])
        return reduce(
            lambda one, two: (one[:, :, None] * two[:, None, :]).reshape(
                count, one.shape[1] * two.shape[1]
            ),
            parts,
        )

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """``u_i* x``, some columns at a time."""
        tables = [each.conj() for each in self.tables]
        X = X.astype(self.dtype, copy=False)
        parts = [self.grid.expanded(X[:, part], tables) for part in self._columns(X)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((self.m, 0), self.dtype)

    def _columns(self, X: Array) -> list[slice]:
        """Columns of a product that are made together."""
        width = max(1, BLOCK_ELEMENTS // self.m)
        return [slice(first, first + width) for first in range(0, int(X.shape[1]), width)]

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``."""
        Y = Y.astype(self.dtype, copy=False)
        parts = [self.grid.contracted(Y[:, part], self.tables) for part in self._columns(Y)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((self.n, 0), self.dtype)

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i``."""
        return self.grid.expanded(self.local(A)[:, None], self.real_tables)[:, 0]

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``."""
        return self.whole(self.grid.contracted(y[:, None], self.real_tables)[:, 0])

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """``sum_k s_k |f_i u_i* x_k|^2``: what ``X S X*`` reads."""
        found = self.forward((X if signs is None else X * signs) @ X.conj().T)
        return found if factors is None else found * factors * factors

    def squared_columns(self, y: Array) -> Array:
        """``sum_i y_i |u_ij|^2`` for every j."""
        return self.grid.contracted(y[:, None], [np.abs(each) ** 2 for each in self.tables])[:, 0]

    def gram(self, rows: slice, columns: slice) -> Array:
        """``|<u_i, u_j>|^2``: products of those of each factor."""
        one = self._parts_of(np.arange(rows.start, rows.stop))
        two = self._parts_of(np.arange(columns.start, columns.stop))
        inner = [a.conj() @ b.T for a, b in zip(one, two, strict=True)]
        return np.abs(reduce(np.multiply, inner)) ** 2

    # --- local coordinates -------------------------------------------------------------------

    def local(self, A: Array) -> Vector:
        """``<B_1 x ... x B_q, A>``, (K_1 ... K_q,); complex A Hermitian."""
        q = len(self.widths)
        order = [axis for j in range(q) for axis in (j, q + j)]
        pairs = _permuted(A.reshape(self.widths + self.widths), order)
        found = _turned(pairs, self.into).real
        return found.copy() if waits(found) else np.ascontiguousarray(found)

    def whole(self, c: Vector) -> Array:
        """``sum_k c_k B_k1 x ... x B_kq``, (n, n)."""
        q = len(self.widths)
        spread = _turned(c, [each.conj().T for each in self.into])
        pairs = spread.reshape([d for width in self.widths for d in (width, width)])
        order = [2 * j for j in range(q)] + [2 * j + 1 for j in range(q)]
        found = _permuted(pairs, order)
        if not waits(found):
            found = np.ascontiguousarray(found)
        return found.reshape(self.n, self.n)

    @cached_property
    def _alone(self) -> Grid:
        """The settings, without outcomes."""
        ones = [1] * len(self.widths)
        return Grid(self.settings, self.grid.counts, ones, self.widths)

    def pooled(self, weights: Vector) -> Vector:
        """Means of weights within each setting, or over all, one per reading."""
        if not self.by_setting:
            return np.zeros_like(weights) + weights.mean()
        table = weights.reshape(len(self.settings), -1)
        return (np.zeros_like(table) + table.mean(axis=1)[:, None]).reshape(-1)

    def normal_diagonal(self, weights: Vector) -> Diagonal | None:
        """``F* W F`` in local coordinates, where it is diagonal there; one weight per reading."""
        if not self.is_diagonal:
            return None
        table = weights.reshape(len(self.settings), -1)
        most = float(np.max(np.abs(weights)))
        axis = 1 if self.by_setting else None
        uneven = np.max(np.max(table, axis=axis) - np.min(table, axis=axis))
        if float(uneven) > MAX_CROSS_TERM * most:
            return None
        each = [diagonal[:, None, :] for diagonal in self.diagonals]
        first = np.ascontiguousarray(table[:, :1])  # few, and by the host
        values = self._alone.contracted(first, each)[:, 0]
        return Diagonal(put(values, weights), self.local, self.whole)


def joint_basis(matrices: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """An orthonormal basis in which Hermitian matrices (k, d, d) are all diagonal, if there is one.

    That of a sum with weights of no relation has it, if any has.
    """
    weights = np.random.default_rng(0).uniform(1.0, 2.0, len(matrices))
    sizes = np.linalg.norm(matrices, axis=(1, 2))
    weights /= np.where(sizes > 0.0, sizes, 1.0)
    basis: npt.NDArray[Any] = np.linalg.eigh(np.einsum("k,kij->ij", weights, matrices))[1]
    turned = basis.conj().T @ matrices @ basis
    across = turned - np.einsum("kii->ki", turned)[:, :, None] * np.eye(len(basis))
    small = np.linalg.norm(across, axis=(1, 2)) <= MAX_CROSS_TERM * sizes
    return basis if bool(small.all()) else None


def _on(device: Any) -> Any:
    """Return an array of no length on a device of torch's."""
    try:
        import torch

        return DeviceArray(torch.empty(0, dtype=torch.float64, device=device))
    except ImportError:
        raise ValueError("devices are torch's: pip install quadsense[torch]") from None
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {str(device)!r} is not there: {reason}") from None


def _permuted(X: Any, order: list[int]) -> Any:
    """Return an array with its axes in another order."""
    return DeviceArray(X.tensor.permute(order)) if waits(X) else X.transpose(order)


def _turned(X: Array, matrices: Sequence[Array]) -> Array:
    """``(x) matrices_j X``, flat."""
    for matrix in matrices:
        X = X.reshape(matrix.shape[1], -1).T @ matrix.T
    return X.reshape(-1)


def _hermitian_basis(d: int, is_complex: bool) -> npt.NDArray[Any]:
    """Orthonormal matrices: symmetric ones, (d (d + 1)/2, d, d), or Hermitian ones, (d^2, d, d)."""
    unit, found = np.eye(d), []
    for a in range(d):
        for b in range(a, d):
            both = np.outer(unit[a], unit[b])
            found.append(both if a == b else np.sqrt(0.5) * (both + both.T))
            if is_complex and a != b:
                found.append(np.sqrt(0.5) * 1j * (both - both.T))
    return np.array(found)


def _check_norms(tables: Factors) -> None:
    """Refuse rows whose norms leave the range in which squares are safe."""
    least = most = 0.0
    for table in tables:
        sizes = np.linalg.norm(table, axis=2)
        logs = np.log(sizes[sizes > 0.0])
        least, most = least + logs.min(initial=0.0), most + logs.max(initial=0.0)
    if not np.log(SMALLEST_NORM) < least <= most < np.log(LARGEST_NORM):
        raise ValueError(
            f"effects: the norms of rows range from exp({least:.4g}) to exp({most:.4g}), out of "
            "float64's range of squares: rescale the tables"
        )
