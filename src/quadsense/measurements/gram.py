"""The Gram matrix ``K = F F*``, K_ij = |<u_i, u_j>|^2, in the cheapest of four forms; its rank.

What is known of the probes (`ProbeFacts`) follows from it.

The rank of F is found by a rank-revealing Cholesky factorization of the smaller of ``F F*`` and
``F* F``, for rows of unit norm: a pivot is the squared distance of a ``u_i u_i*`` from the span of
those before it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpstrf, spotrf

from quadsense.arrays import Array, Vector, device, like, to_numpy
from quadsense.core import products
from quadsense.core.records import cached_property
from quadsense.measurements.arrays import SPARSE_SHARE
from quadsense.measurements.blockwise import MIN_COLUMNS
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import CLEAR_PIVOT, Sensing
from quadsense.measurements.stack import Stack
from quadsense.system.machine import BLOCK_ELEMENTS, FLOAT64_BYTES, MAX_FORMED_BYTES, MIB
from quadsense.system.watch import BLOCK_FLOPS, cholesky_flops, real_flops


class Gram(Protocol):
    """K as an operator on (m,) vectors."""

    kind: str
    m: int

    def form(self) -> None:
        """Form K, where it is held; else it is formed when first used."""

    def apply(self, s: Array) -> Array:
        """Return ``K @ s``."""

    def apply_part(self, s: Array, index: Array) -> Array:
        """Return ``K @ s`` for an s that is zero outside `index`, by those columns of K only."""

    @property
    def top(self) -> float:
        """Upper bound on the largest eigenvalue of K."""


class _Operator(ABC):
    """Shared by every form: the row sums of K, entry-wise nonnegative, bound its spectrum."""

    rows: Sensing

    def form(self) -> None:
        """Form K, where a form holds it."""
        getattr(self, "values", None)

    @abstractmethod
    def apply(self, s: Array) -> Array: ...

    @cached_property
    def top(self) -> float:
        """Largest row sum (Perron-Frobenius)."""
        return float(self.rows.xp.max(self.rows.row_sums(self.apply)))


class IdentityGram:
    """K = I: the unit rows are orthonormal (a row of zeros never moves)."""

    kind = "identity"
    top = 1.0

    def __init__(self, m: int) -> None:
        self.m = m

    def form(self) -> None:
        """Nothing is held."""

    def apply(self, s: Array) -> Array:
        """Return ``s`` itself."""
        return s

    def apply_part(self, s: Array, index: Array) -> Array:
        """Return ``s`` itself."""
        return s


class ExplicitGram(_Operator):
    """K as an (m, m) array."""

    kind = "explicit"

    def __init__(self, rows: Sensing) -> None:
        self.rows, self.m = rows, rows.m

    @cached_property
    def values(self) -> Array:
        """K, blocks of rows at a time: of each only what the blocks before it do not have."""
        rows, xp = self.rows, self.rows.xp
        # No block is so large that it could not be interrupted.
        cost = 2.0 * real_flops(rows.is_complex) * self.m * rows.n
        width = max(self.m, int(BLOCK_ELEMENTS * cost / max(BLOCK_FLOPS, MIN_COLUMNS * cost)))
        found: list[tuple[int, Array]] = []  # where a block begins, and K from there on
        whole = []
        for block in rows.slices(width):
            known = [right[:, block.start - at : block.stop - at].T for at, right in found]
            right = rows.gram_block(block, slice(block.start, self.m))
            whole.append(xp.concat([*known, right], axis=1) if known else right)
            found.append((block.start, right))
        del found
        return xp.concat(whole, axis=0) if len(whole) > 1 else whole[0]

    def apply(self, s: Array) -> Array:
        """Return ``K @ s`` in 2 m^2 flops."""
        return self.values @ s

    def apply_part(self, s: Array, index: Array) -> Array:
        """Return ``K @ s`` from the rows of K in `index` (K is symmetric)."""
        xp = self.rows.xp
        return xp.take(s, index) @ xp.take(self.values, index, axis=0)


class SparseGram(_Operator):
    """K as a sparse array: rows that mostly share no entry."""

    kind = "sparse"

    def __init__(self, rows: Sensing) -> None:
        self.rows, self.m = rows, rows.m

    @cached_property
    def values(self) -> Any:
        """K, sparse."""
        kind: Any = self.rows.kind
        return kind.sparse_gram(self.rows.inverse)

    def apply(self, s: Array) -> Array:
        """Return ``K @ s`` in 2 nnz(K) flops."""
        return self.values @ s

    def apply_part(self, s: Array, index: Array) -> Array:
        """Return ``K @ s`` from the rows of K in `index` (K is symmetric)."""
        return self.values[index, :].T @ s[index]


class MatrixFreeGram(_Operator):
    """K never formed: ``F(F*(s))`` when n is the smaller side, blocks of K otherwise."""

    kind = "matrix-free"

    def __init__(self, rows: Sensing) -> None:
        self.rows, self.m = rows, rows.m

    def apply(self, s: Array) -> Array:
        """Return ``K @ s`` in 4 m n^2 or about m^2 n flops."""
        if 4 * self.rows.n <= self.rows.m:
            return self.rows.forward(self.rows.adjoint(s))
        return self.rows.gram_times(s)

    def apply_part(self, s: Array, index: Array) -> Array:
        """Return ``K @ s`` for an s that is zero outside `index`, from products with those rows."""
        rows = self.rows
        if not rows.rank_one:
            return rows.gram_times(s)
        columns = rows.xp.abs(rows.times(rows.take_unit(index).T)) ** 2
        return columns @ rows.xp.take(s, index)


# Streaming one entry of an explicit K from memory costs as much as this many flops of a matrix
# product (8 bytes at 20 GB/s against 80 Gflop/s), and a solve applies K some hundreds of times.
FLOPS_AN_ENTRY = 30.0
APPLICATIONS = 500.0
# A K of this size stays in the last-level cache, where no other form comes near it.
CACHED_BYTES = 32 * MIB


def gram_form(m: int, n: int, orthonormal: bool, density: float = 1.0) -> tuple[str, str]:
    """Return the cheapest form of K, and why.

    Parameters
    ----------
    m, n : int
        Shape of U.
    orthonormal : bool
        Whether K was found to be the identity.
    density : float
        Bound on the share of nonzeros of K.

    Returns
    -------
    kind : {"identity", "sparse", "explicit", "matrix-free"}
    reason : str
        In words, for the plan.
    """
    if orthonormal:
        return "identity", "the rows are orthonormal: K is the identity"
    if density <= SPARSE_SHARE and 20.0 * density * m * m <= MAX_FORMED_BYTES:
        return "sparse", "the rows share few entries: K is kept sparse"
    bytes_needed = FLOAT64_BYTES * m * m
    small = bytes_needed <= FLOAT64_BYTES, MAX_FORMED_BYTES, MIB
    explicit = m * m * (2.0 * n + APPLICATIONS * FLOPS_AN_ENTRY)
    without = APPLICATIONS * min(4.0 * m * n * n, float(m) * m * n)
    if small and (explicit <= without or bytes_needed <= CACHED_BYTES):
        return "explicit", f"K is formed once ({bytes_needed / MIB:.0f} MiB)"
    why = "it would take more time to form it" if small else "it is larger than 2 GiB"
    return "matrix-free", f"K is applied without being formed: {why}"


def make_gram(rows: Sensing, kind: str) -> Gram:
    """Return K of these rows in that form."""
    if kind == "identity":
        return IdentityGram(rows.m)
    if kind == "sparse":
        return SparseGram(rows)
    return ExplicitGram(rows) if kind == "explicit" else MatrixFreeGram(rows)


# --- normal matrices that are diagonal in a basis of matrices, which the rows know ---------------

# A kind of probes that knows one says `is_diagonal` and has two methods:
# ``normal_diagonal(weights)`` is a `Diagonal` or None, ``pooled(weights)`` are weights near these
# for which there is one. Both take one weight per reading of the kind: of its `mix`, where it has
# one.

MAX_RATIO_ERROR = 1e-12
"""Relative difference of numbers that differ by rounding alone."""


@dataclass(frozen=True)
class Diagonal:
    """A normal matrix ``F* W F`` that is diagonal in an orthonormal basis of matrices.

    Attributes
    ----------
    values : array of shape (K,)
        Its diagonal.
    into, back : callable
        Coordinates of a matrix in that basis, and the matrix of coordinates. For matrices that are
        orthogonal to the basis the normal matrix is 0.
    """

    values: Vector
    into: Callable[[Array], Vector]
    back: Callable[[Vector], Array]


@dataclass(frozen=True)
class KnownBasis:
    """The basis that the user's rows know, for readings that are multiples of theirs.

    Attributes
    ----------
    kind : Probes
    squares : array of shape (k,)
        Squares of the multiples that the first k readings are.
    conjugate : bool
        Whether A is conjugated on its way in and out.
    """

    kind: Any
    squares: Vector
    conjugate: bool

    def normal(self, weights: Vector) -> Diagonal | None:
        """Return ``F* diag(weights) F``; None where these weights do not make it diagonal."""
        count = self.squares.size
        if np.any(weights[count:]):
            return None
        found: Diagonal | None = self.kind.normal_diagonal(weights[:count] * self.squares)
        if found is None or not self.conjugate:
            return found
        into, back = found.into, found.back
        return Diagonal(found.values, lambda A: into(A.conj()), lambda c: back(c).conj())

    def pooled(self, weights: Vector) -> Vector:
        """Return weights near these that make it diagonal, if those of other readings allow."""
        count, found = self.squares.size, weights.copy()
        found[:count] = self.kind.pooled(weights[:count] * self.squares) / self.squares
        return found


def known_basis(F: Sensing) -> KnownBasis | None:
    """Return the basis that the rows know, where the first readings are those of the kind."""
    kind: Any = F.kind.parts[0] if isinstance(F.kind, Stack) else F.kind
    if not kind.is_diagonal or F.has_zero_rows:
        return None
    inverse, W, own = to_numpy(F.raw.inverse), F.weights, kind.mix
    if W is None:
        return KnownBasis(kind, (inverse * inverse) ** 2, F.conjugate)
    count = kind.m if own is None else own.shape[0]
    if not sp.issparse(W) or W.shape[0] < count:
        return None
    starts = W.indptr[: count + 1]
    columns = W.indices[: starts[-1]]
    if own is None:
        own_starts, own_columns, values = np.arange(count + 1), np.arange(count), 1.0
    else:
        own_starts, own_columns, values = own.indptr, own.indices, own.data
    if not (np.array_equal(starts, own_starts) and np.array_equal(columns, own_columns)):
        return None
    ratios = W.data[: starts[-1]] * inverse[columns] ** 2 / values
    if own is None:
        return KnownBasis(kind, ratios**2, F.conjugate)
    multiples = ratios[starts[:-1]]
    off = np.abs(ratios - np.repeat(multiples, np.diff(starts)))
    if np.any(off > MAX_RATIO_ERROR * np.abs(ratios)):
        return None
    return KnownBasis(kind, multiples**2, F.conjugate)


# --- the rank ------------------------------------------------------------------------------------

MAX_ORDER = 20_000
"""Order of a Gram matrix up to which it is factorized: 3.2 GB."""

MIN_PIVOT = 1e-7
"""Distance of a ``u_i u_i*`` of unit norm from the span of others that counts as none."""


SURE_PIVOT = 1e-5
"""The same in a factorization without pivoting: its square is far above what rounding leaves."""


class Rank(NamedTuple):
    """The rank of F; None where it takes too long to find.

    `flops` is about what the next stage of finding it takes; infinite where it is never found.
    """

    rank: int | None
    flops: float = 0.0


def find_rank(rows: Sensing, gram: Any = None, most: float = math.inf) -> Rank:
    """Return the numerical rank of F, if no stage of finding it takes more than `most` flops.

    Parameters
    ----------
    rows : Sensing
        Of unit norm, or zero.
    gram : Gram, optional
        K of these rows, which is used where it is held.
    most : float
        It is compared with numbers that depend on the shape of the rows alone.
    """
    if rows.known_rank is not None:
        return Rank(rows.known_rank)
    live = np.flatnonzero(to_numpy(rows.nonzero))
    if live.size <= 1:
        return Rank(live.size)
    size, known = rows.unknowns, _diagonal_rank(rows)
    if known is not None:
        return Rank(known)
    order = float(min(live.size, size))
    weight = real_flops(rows.is_complex)
    formed = isinstance(gram, ExplicitGram) and live.size <= size
    flops = cholesky_flops(order) + (0.0 if formed else weight * order * order * rows.n)
    if order > MAX_ORDER:
        return Rank(None, math.inf)
    if flops > most:
        return Rank(None, flops)
    if live.size > size:
        if _some_rows_see_all(rows, live):
            return Rank(size)
        flops = cholesky_flops(order) + order * order * float(rows.m)
        if flops > most:
            return Rank(None, flops)
    return Rank(_factorized_rank(rows, live.size, gram))


def _diagonal_rank(rows: Sensing) -> int | None:
    """Return the rank where a normal matrix is diagonal in a basis that the rows know."""
    basis = known_basis(rows)
    if basis is None:
        return None
    found = basis.normal(basis.pooled(np.ones(rows.m)))
    if found is None:  # there are constraints
        return None
    return int(np.count_nonzero(found.values > MIN_PIVOT * found.values.max()))


def _some_rows_see_all(rows: Sensing, live: npt.NDArray[np.int64]) -> bool:
    """Return whether as many rows as unknowns, spread evenly over all, determine A already."""
    chosen = live[np.linspace(0, live.size - 1, rows.unknowns).astype(np.int64)]
    if isinstance(rows, Mixed):
        K = rows.only(chosen).narrowed().gram_triangle()
    else:
        index = rows.xp.asarray(chosen, device=device(rows.norms))
        K = products.gram(np.ascontiguousarray(to_numpy(rows.take_unit(index))))
    R, info = dpotrf(K, lower=0, clean=0, overwrite_a=1)
    return bool(info == 0 and np.diagonal(R).min() > SURE_PIVOT)


def _factorized_rank(rows: Sensing, live: int, gram: Any) -> int:
    """Return the rank by a Cholesky factorization; `live` rows are not zero.

    Without pivoting the factorization is several times faster, and in single precision twice as
    fast again.
    """
    full = live == rows.m <= rows.unknowns
    known = to_numpy(gram.values).T if isinstance(gram, ExplicitGram) else None
    if full:
        if known is None:  # LAPACK factors the lower triangle a sixth faster
            K, lower = rows.gram_triangle(single=True, lower=True), 1
        else:
            K, lower = known.astype(np.float32), 0
        R, info = spotrf(K, lower=lower, clean=0, overwrite_a=1)
        if info == 0 and np.diagonal(R).min() > CLEAR_PIVOT:
            return live
    if rows.unknowns < rows.m:  # F* F has the rank of F F*, and is smaller
        M = rows.normal(dtype=np.float32)
        R, info = spotrf(M, lower=0, clean=0, overwrite_a=1)
        pivots = np.abs(np.diagonal(R)) ** 2
        if info == 0 and pivots.min() > 1e-2 * pivots.max():
            return rows.unknowns
        M = rows.normal()
        tolerance = MIN_PIVOT**2 * float(M.diagonal().max())
        return int(dpstrf(M, tol=tolerance, lower=0, overwrite_a=1)[2])
    K = rows.gram_triangle() if known is None else known.copy(order="F")
    if full:
        R, info = dpotrf(K, lower=0, clean=0)
        if info == 0 and np.diagonal(R).min() > SURE_PIVOT:
            return live
    return int(min(dpstrf(K, tol=MIN_PIVOT**2, lower=0, overwrite_a=1)[2], rows.unknowns))


# --- what is known of the probes -----------------------------------------------------------------


ORTHONORMAL = 1e-6
"""Frobenius distance of U U* from I below which K = I: K differs from I by its square."""

LARGEST_RANK_PROBLEM = 4000
"""Measurements or unknowns, whichever are fewer, up to which `Measurements.facts` has the rank."""

QUICK_RANK_FLOPS = 2e6
"""Work below which the rank is found without being asked for: a tenth of a millisecond."""


@dataclass(frozen=True)
class ProbeFacts:
    """What is known of the probes.

    Where readings are sums of rows (`mix`), read ``F_i = sum_k W_ik u_k u_k*`` of unit norm for
    ``u_i u_i*``: ``|<u_i, u_j>|^2`` is ``|<F_i, F_j>|``.

    Attributes
    ----------
    orthonormal : bool
        Whether the rows, scaled to unit norm, are orthonormal (found by random probes).
    unit_norm : bool
        Whether the rows came with unit norm (they are scaled to it in any case).
    coherence : float or None
        Largest ``|<u_i, u_j>|``, i != j, of the scaled rows: the paper's rho. None where it would
        cost more than some seconds to find; with m > n it is over 1/(10m) in any case.
    paper_holds : bool
        Whether ``rho <= 1/(10 m)``, the assumption of the paper's lemmas on the scaled rows.
    rank : int or None
        Rank of the sensing map F (numerical, at 1e-7), None where too costly to find.
    unknowns : int
        Real dimensions of A.
    """

    orthonormal: bool
    unit_norm: bool
    coherence: float | None
    paper_holds: bool
    rank: int | None
    unknowns: int


def is_orthonormal(rows: Sensing) -> bool:
    """Return whether rows of unit norm are orthonormal, by random probes in O(mn)."""
    live = int(np.count_nonzero(to_numpy(rows.nonzero))) if rows.has_zero_rows else rows.m
    mixed = isinstance(rows, Mixed)
    if live > (rows.unknowns if mixed else rows.n):
        return False
    X = np.random.default_rng(0).standard_normal((rows.m, 3)) * to_numpy(rows.nonzero)[:, None]
    xp, probe = rows.xp, like(X, rows.norms)
    if mixed:
        image = rows.gram_times(probe)
    else:
        probe = rows._cast(probe)
        image = rows.times(rows.combine(probe))
    distance = xp.sqrt(xp.sum(xp.abs(image - probe) ** 2, axis=0))
    return float(xp.max(distance)) <= (ORTHONORMAL**2 if mixed else ORTHONORMAL)


def facts_of(rows: Sensing, orthonormal: bool, rank: int | None, gram: Any) -> ProbeFacts:
    """Return what is known of rows of unit norm; `gram` is K where it was formed."""
    norms = to_numpy(rows.norms)
    costly = float(rows.m) ** 2 * rows.n > 1e12
    coherence = 0.0 if orthonormal else None if costly else _coherence(rows, gram)
    return ProbeFacts(
        orthonormal=orthonormal,
        unit_norm=bool(np.all(np.abs(norms - 1.0) <= 1e-10)),
        coherence=coherence,
        # Up to rounding.
        paper_holds=coherence is not None and coherence <= (1.0 + 1e-9) / (10 * rows.m),
        rank=rank,
        unknowns=rows.unknowns,
    )


def _coherence(rows: Sensing, gram: Any) -> float:
    """Return the largest inner product of two rows of unit norm."""
    best = 0.0
    explicit = gram.values if isinstance(gram, ExplicitGram) else None
    for block in rows.slices(rows.m):
        K = to_numpy(
            explicit[block, :] if explicit is not None else rows.gram_block(block, slice(0, rows.m))
        ).copy()
        K = np.abs(K) if isinstance(rows, Mixed) else K
        K[np.arange(K.shape[0]), np.arange(block.start, block.stop)] = 0.0
        best = max(best, float(K.max(initial=0.0)))
    return float(np.sqrt(best))
