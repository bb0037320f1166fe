"""What the cost of a problem depends on, and what a cost is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from quadsense.system.memory import MAX_FORMED_BYTES

Cone: TypeAlias = Literal["symmetric", "psd", "rank"]
"""Where A is sought: everywhere, among the positive semidefinite, among those of low rank."""

HALF_RATE = 70.0
"""Columns at which products with blocks of U run at half the rate of large square ones."""

MAX_WIDE = 1000
"""Columns up to which A is formed though there are fewer rows than columns."""


@dataclass(frozen=True)
class Shape:
    """All of a problem that its cost depends on.

    Attributes
    ----------
    m, n : int
    complex, sparse, orthonormal : bool
    copied : bool
        Whether rows in single precision are a copy: of a dense NumPy array in double precision.
    converted : bool
        Whether U came in another type, or in another order of magnitude than float64 squares: it
        was copied before the plan was made.
    started : bool
        Whether a dense matrix was given to start from.
    density : float
        Share of nonzeros of K, where U is sparse.
    psd : bool
    rank : int or None
        Asked rank; 0 where it may grow.
    target : bool
        Whether there is a tolerance to meet.
    one_sided : bool
        Whether some interval has only one end.
    raw : int
        Rows of U and of constraints, where readings are sums over them; else 0.
    summed : bool
        Whether the user's readings are such sums (`mix`).
    ratio : float
        Worst residual of the start in units of the tolerance, a power of two.
    gram : str
        Form of K where the method uses one, else "none".
    prefer : str
        Which A is wanted: a value of `prefer`, or "slack_max", "slack_sum", "slack_squares".
    damped : bool
        Whether least squares is pulled towards a prior.
    constrained : bool
        Whether there are linear constraints or equalities.
    in_parts : bool
        Whether some rows by themselves cost no more than their share (see `Probes.spans`).
    on_gpu : bool
        Whether the rows are on a GPU.
    strip : int
        Bytes that are read together of rows in files; 0 where they are in memory.
    at_hand : bool
        Whether a pass over the rows costs no more than its arithmetic (see `Probes.at_hand`).
    """

    m: int
    n: int
    complex: bool = False
    sparse: bool = False
    orthonormal: bool = False
    copied: bool = True
    converted: bool = False
    started: bool = False
    density: float = 1.0
    psd: bool = False
    rank: int | None = None
    target: bool = True
    one_sided: bool = False
    raw: int = 0
    summed: bool = False
    ratio: float = 32.0
    gram: str = "none"
    prefer: str = "any"
    damped: bool = False
    constrained: bool = False
    in_parts: bool = False
    on_gpu: bool = False
    strip: int = 0
    at_hand: bool = True

    @property
    def cone(self) -> Cone:
        """Where A is sought."""
        if self.rank is not None:
            return "rank"
        return "psd" if self.psd else "symmetric"

    @property
    def damped_squares(self) -> bool:
        """Whether least squares with a pull is sought, without a cone and without constraints."""
        plain = self.cone == "symmetric" and not self.constrained
        return plain and self.damped and self.prefer == "least_squares"

    @property
    def nearest_by_rows(self) -> bool:
        """Whether the nearest matrix is sought by an active set of the rows: K is formed."""
        plain = self.cone == "symmetric" and not (self.constrained or self.mixed)
        formed = self.m < self.unknowns and 4 * self.m**2 <= MAX_FORMED_BYTES
        return plain and formed and self.prefer == "nearest"

    @property
    def mixed(self) -> bool:
        """Whether readings are sums over rows."""
        return self.raw > 0

    @property
    def rows(self) -> int:
        """Rows of U."""
        return self.raw or self.m

    @property
    def is_wide(self) -> bool:
        """Whether A is so much larger than the span of the rows that it is not formed."""
        return self.n > max(self.rows, MAX_WIDE)

    @property
    def unknowns(self) -> int:
        """Real dimensions of A."""
        return self.n**2 if self.complex else self.n * (self.n + 1) // 2

    @property
    def item(self) -> int:
        """Bytes of an entry of A."""
        return 16 if self.complex else 8

    @property
    def weight(self) -> float:
        """Real multiplications in a multiplication of two entries of U."""
        return 4.0 if self.complex else 1.0

    @property
    def row_bytes(self) -> int:
        """Bytes of a dense U."""
        return self.rows * self.n * self.item

    @property
    def matrix_bytes(self) -> int:
        """Bytes of a dense A."""
        return self.n**2 * self.item

    @property
    def single_bytes(self) -> int:
        """Bytes of the rows in single precision, where they are a copy."""
        return self.row_bytes // 2 if self.copied else 0

    @property
    def product(self) -> float:
        """Operations of ``F(A)`` or of ``F*(y)``, at the rate of large products."""
        return self.weight * (1.0 + HALF_RATE / self.n) * self.rows * float(self.n) ** 2


class Work(NamedTuple):
    """What a method is expected to do until it has a verdict.

    Attributes
    ----------
    flops : float
        Float64 operations, in units of those of a large matrix product.
    traffic : float
        Bytes read from memory by what memory bounds.
    passes : float
        Steps, each of which costs some calls of Python whatever its size.
    known : bool
        Whether it is known to a factor of about five.
    """

    flops: float
    traffic: float
    passes: float
    known: bool = True
