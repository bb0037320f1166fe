"""Products of local measurements: every qubit is measured in one of a few settings.

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
import scipy.sparse as sp

from quadsense.arrays import Array, Vector, as_numbers
from quadsense.core.records import cached_property
from quadsense.device import DeviceArray, placeholder, put, waits
from quadsense.measurements.arrays import LARGEST_NORM, SMALLEST_NORM
from quadsense.measurements.gram import Diagonal
from quadsense.measurements.probes import Probes
from quadsense.probes.grid import Factors, Grid
from quadsense.probes.observables import EIGENVECTORS
from quadsense.system.machine import BLOCK_ELEMENTS, MAX_FORMED_BYTES
from quadsense.typing import to_list

EPS = float(np.finfo(np.float64).eps)
"""Twice the unit roundoff."""

MAX_CROSS_TERM = 1e-12
"""Entries off the diagonal, relative to the matrix, that are rounding."""

MIN_EIGENVALUE = 1e-14
"""Eigenvalues of an effect below this share of the largest count as 0."""

MAX_SKEW = 1e-10
"""Largest ``||E - E*||``, and negative eigenvalue, as a share of ``||E||``, that is rounding."""

PAULI = "XYZ"
"""Settings of the table "pauli", in their order; each has the eigenvalues 1 and -1 as outcomes."""


def product_povm(effects: Sequence[Any], settings: Any = None, *, device: Any = None) -> Probes:
    """Rows that are tensor products of local effects: settings and outcomes of every qubit.

    Products with all rows go one factor at a time, so ten qubits need no array of rows. Where
    settings are measured with weights of their own, least squares is diagonal in a local basis
    (for Pauli settings the Pauli strings), which `quadsense.solve` uses.

    Parameters
    ----------
    effects : sequence of q tables
        What the j-th factor can be measured in: "pauli" (settings X, Y and Z, outcomes 1 and -1),
        an array (settings, outcomes, d_j) of vectors t, for effects ``t t*``, or an array
        (settings, outcomes, d_j, d_j) of positive semidefinite effects, with readout error for
        example. A row of zeros is an outcome that a setting does not have.
    settings : (k, q) array of int, or sequence of k strings of X, Y and Z, optional
        Which settings were measured, one number per factor; by default all combinations, the
        last factor changing fastest.
    device : str or torch.device, optional
        Where least squares and likelihood of states work, for instance ``"cuda"``: one on which all
        combinations of settings fit. Readings and answers stay in the memory of the host, where
        all that is proved is computed.

    Returns
    -------
    Probes
        One reading per setting and combination of outcomes, the outcome of the last factor changing
        fastest: b is a table (k, outcomes) of frequencies, `ravel`\\ ed. To be given to
        `quadsense.solve`, `Measurements` and others in place of U. Where effects have more than
        one eigenvector, sums over rows come with it (`mix`).

    Examples
    --------
    A Bell state of two qubits, each measured in X, Y and Z:

    >>> import numpy as np, quadsense
    >>> U = quadsense.probes.product_povm(["pauli", "pauli"])
    >>> (U.m, U.n)
    (36, 4)
    >>> bell = np.array([1, 0, 0, 1]) / np.sqrt(2)
    >>> b = U.forward(np.outer(bell, bell).astype(complex))
    >>> state = quadsense.solve(U, b, psd=True, trace=1)
    >>> bool(np.allclose(state.A, np.outer(bell, bell), atol=1e-4))
    True
    """
    if isinstance(effects, str):
        raise ValueError(f"effects must have one table per factor: give [{effects!r}] * q")
    given = to_list("effects", effects, "tables, one per factor")
    if not given:
        raise ValueError("effects is empty: there must be one table at least")
    tables, confusions = [], []
    for j, each in enumerate(given):
        vectors, confusion = _table(j, each)
        tables.append(vectors)
        confusions.append(confusion)
    chosen = _settings(settings, [len(table) for table in tables])
    mixed = any(each is not None for each in confusions)
    confused = [
        np.broadcast_to(np.eye(table.shape[1]), (len(table), *2 * (table.shape[1],)))
        if confusion is None
        else confusion
        for table, confusion in zip(tables, confusions, strict=True)
    ]
    found = ProductPovm(tables, chosen, confused if mixed else None, device)
    if mixed:
        found.mix = _mix(confused, found.settings)
    return found


# --- what was given --------------------------------------------------------------------------


def _table(j: int, given: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Vectors (settings, outcomes, d), and for effects of higher rank what they are sums of."""
    name = f"effects[{j}]"
    if isinstance(given, str):
        if given != "pauli":
            raise ValueError(f"{name} is {given!r}: the table with a name is 'pauli'")
        return np.array([EIGENVECTORS[letter] for letter in PAULI]), None
    values = as_numbers(name, given)
    if values.dtype.kind not in "buifc" or values.ndim not in (3, 4) or not values.size:
        raise ValueError(
            f"{name} must be 'pauli', vectors of shape (settings, outcomes, d) or effects of shape "
            f"(settings, outcomes, d, d), got an array of {values.dtype} of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        s, o = np.argwhere(~np.isfinite(values))[0][:2]
        raise ValueError(f"{name} contains NaN or infinity, first in setting {s}, outcome {o}")
    values = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    if values.ndim == 3:
        return np.asarray(values), None
    if values.shape[2] != values.shape[3]:
        raise ValueError(f"{name}: effects must be square, got shape {values.shape}")
    return _taken_apart(name, values)


def _taken_apart(
    name: str, effects: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Vectors of which the effects of each setting are sums, and these sums (S, outcomes, R).

    Effects of rank one are their vectors. Those of a setting that commute, as with readout error,
    share their eigenvectors; of others each has its own.
    """
    sizes = np.linalg.norm(effects, axis=(2, 3))
    skew = np.linalg.norm(effects - effects.conj().swapaxes(2, 3), axis=(2, 3))
    values, vectors = np.linalg.eigh(0.5 * (effects + effects.conj().swapaxes(2, 3)))
    for wrong, what in (
        (skew > MAX_SKEW * sizes, "is not Hermitian"),
        (values[..., 0] < -MAX_SKEW * sizes, "has a negative eigenvalue"),
    ):
        if wrong.any():
            s, o = np.argwhere(wrong)[0]
            raise ValueError(f"{name}: the effect of setting {s}, outcome {o} {what}")
    values = np.where(values > MIN_EIGENVALUE * values[..., -1:], values, 0.0)
    if np.all(values[..., :-1] == 0.0):
        return np.sqrt(values[..., -1:]) * vectors[..., -1], None
    shared = [_joint(np.asarray(setting)) for setting in effects]
    if all(basis is not None for basis in shared):
        basis = np.array(shared)  # (S, d, R): columns
        weights = np.einsum("sdr,sode,ser->sor", basis.conj(), effects, basis).real
        return np.ascontiguousarray(basis.swapaxes(1, 2)), np.maximum(weights, 0.0)
    count, outcomes, d = values.shape
    own = np.zeros((count, outcomes, outcomes, d))
    own[:, np.arange(outcomes), np.arange(outcomes)] = values
    return (
        vectors.swapaxes(2, 3).reshape(count, outcomes * d, d),
        own.reshape(count, outcomes, outcomes * d),
    )


def _joint(matrices: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
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


def _settings(given: Any, counts: list[int]) -> npt.NDArray[np.int64]:
    """Settings that were measured, (k, q)."""
    if given is None:
        return np.indices(counts).reshape(len(counts), -1).T.copy()
    listed = to_list("settings", given, "strings of X, Y and Z, or whole numbers (k, q)")
    if not listed:
        raise ValueError("settings is empty: there must be one at least")
    if all(isinstance(each, str) for each in listed):
        listed = [_letters(i, each, counts) for i, each in enumerate(listed)]
    try:
        values = np.asarray(listed)
    except ValueError:  # of unequal lengths
        values = np.empty(0)
    if values.ndim != 2 or values.shape[1] != len(counts) or values.dtype.kind not in "iuf":
        raise ValueError(
            f"settings must have one row per setting and one column for each of the {len(counts)} "
            f"factors, got shape {values.shape}"
        )
    bad = (values != np.rint(values)) | (values < 0) | (values >= np.array(counts))
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"settings[{i}, {j}] is {values[i, j]:g}, but effects[{j}] has the settings 0 to "
            f"{counts[j] - 1}"
        )
    return values.astype(np.int64)


def _letters(i: int, string: str, counts: list[int]) -> list[int]:
    """Numbers of the settings that a string of X, Y and Z names."""
    if len(string) != len(counts) or set(string) - set(PAULI):
        raise ValueError(
            f"settings[{i}] is {string!r}, but must have one of the letters X, Y and Z for each of "
            f"the {len(counts)} factors"
        )
    return [PAULI.index(letter) for letter in string]


def _mix(confusions: Factors, settings: npt.NDArray[np.int64]) -> sp.csr_array:
    """Readings as sums over rows: within each setting a Kronecker product."""
    readings = prod(each.shape[1] for each in confusions)
    rows = prod(each.shape[2] for each in confusions)
    count = len(settings)
    if 12 * count * readings * rows > MAX_FORMED_BYTES:
        raise ValueError(
            f"effects of rank two or more make {count * readings:,} sums of {rows:,} rows each, "
            "which take too much memory: give fewer settings, or effects of rank one"
        )
    blocks = np.ones((count, 1, 1))
    for j, each in enumerate(confusions):
        own = each[settings[:, j]]
        shape = (count, blocks.shape[1] * own.shape[1], blocks.shape[2] * own.shape[2])
        blocks = (blocks[:, :, None, :, None] * own[:, None, :, None, :]).reshape(shape)
    columns = rows * np.arange(count)[:, None, None] + np.arange(rows)
    columns = np.broadcast_to(columns, blocks.shape).ravel()
    starts = rows * np.arange(count * readings + 1)
    found = sp.csr_array((blocks.ravel(), columns, starts), shape=(count * readings, count * rows))
    found.eliminate_zeros()
    return found


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
        self.there = None if device is None else DeviceArray(placeholder(device))
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
        shared = _joint(normals)
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
