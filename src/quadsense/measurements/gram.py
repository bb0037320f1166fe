"""The Gram matrix ``K = F F*``, K_ij = |<u_i, u_j>|^2, in the cheapest of four forms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from quadsense.arrays import Array
from quadsense.core.records import cached_property
from quadsense.measurements.probes import BLOCK_ELEMENTS
from quadsense.measurements.sensing import Sensing
from quadsense.system.memory import MAX_FORMED_BYTES
from quadsense.system.watch import BLOCK_FLOPS


class Gram(Protocol):
    """K as an operator on (m,) vectors."""

    kind: str
    m: int

    def form(self) -> None:
        """Form K, where it is held; else it is formed when first used."""

    def apply(self, s: Array) -> Array:
        """``K @ s``."""

    def apply_part(self, s: Array, index: Array) -> Array:
        """``K @ s`` for an s that is zero outside `index`, reading those columns of K only."""

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
        cost = (8.0 if rows.is_complex else 2.0) * self.m * rows.n
        width = max(self.m, int(BLOCK_ELEMENTS * cost / max(BLOCK_FLOPS, 64.0 * cost)))
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
        """``K @ s`` in 2 m^2 flops."""
        return self.values @ s

    def apply_part(self, s: Array, index: Array) -> Array:
        """``K @ s`` from the rows of K in `index` (K is symmetric)."""
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
        """``K @ s`` in 2 nnz(K) flops."""
        return self.values @ s

    def apply_part(self, s: Array, index: Array) -> Array:
        """``K @ s`` from the rows of K in `index` (K is symmetric)."""
        return self.values[index, :].T @ s[index]


class MatrixFreeGram(_Operator):
    """K never formed: ``F(F*(s))`` when n is the smaller side, blocks of K otherwise."""

    kind = "matrix-free"

    def __init__(self, rows: Sensing) -> None:
        self.rows, self.m = rows, rows.m

    def apply(self, s: Array) -> Array:
        """``K @ s`` in 4 m n^2 or about m^2 n flops."""
        if 4 * self.rows.n <= self.rows.m:
            return self.rows.forward(self.rows.adjoint(s))
        return self.rows.gram_times(s)

    def apply_part(self, s: Array, index: Array) -> Array:
        """``K @ s`` from products with the rows in `index`."""
        return self.rows.gram_part(s, index)


# Streaming one entry of an explicit K from memory costs as much as this many flops of a matrix
# product (8 bytes at 20 GB/s against 80 Gflop/s), and a solve applies K some hundreds of times.
FLOPS_AN_ENTRY = 30.0
APPLICATIONS = 500.0
# A K of this size stays in the last-level cache, where no other form comes near it.
CACHED_BYTES = 2**25


def gram_form(m: int, n: int, orthonormal: bool, density: float = 1.0) -> tuple[str, str]:
    """Cheapest form of K, and why.

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
    if density <= 0.1 and 20.0 * density * m * m <= MAX_FORMED_BYTES:
        return "sparse", "the rows share few entries: K is kept sparse"
    bytes_needed = 8 * m * m
    small = bytes_needed <= MAX_FORMED_BYTES
    explicit = m * m * (2.0 * n + APPLICATIONS * FLOPS_AN_ENTRY)
    without = APPLICATIONS * min(4.0 * m * n * n, float(m) * m * n)
    if small and (explicit <= without or bytes_needed <= CACHED_BYTES):
        return "explicit", f"K is formed once ({bytes_needed / 2**20:.0f} MiB)"
    why = "it would take more time to form it" if small else "it is larger than 2 GiB"
    return "matrix-free", f"K is applied without being formed: {why}"


def make_gram(rows: Sensing, kind: str) -> Gram:
    """K of these rows in that form."""
    if kind == "identity":
        return IdentityGram(rows.m)
    if kind == "sparse":
        return SparseGram(rows)
    return ExplicitGram(rows) if kind == "explicit" else MatrixFreeGram(rows)
