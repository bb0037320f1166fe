"""The system ``K y = z_1``: the data, the form in which K is applied, and what each part costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from quadsense.arrays import require_memory
from quadsense.core.products import Inexact, gram_product
from quadsense.core.records import cached_property
from quadsense.measurements.sensing import Sensing
from quadsense.methods.cg.preconditioner import CGFactor, factor, factor_normal
from quadsense.system.memory import MAX_FORMED_BYTES

Vector = npt.NDArray[np.float64]

# Single-precision products gain four digits before their error shows next to the target.
SINGLE_GAIN = 1e4
# In float64 flops, measured: an entry of K in a product that memory bounds; the part of a step
# that does not shrink with the problem; and the columns at which products run at half the rate of
# a factorisation.
_ENTRY = 9.0
_STEP = 2e6
_HALF_RATE = 70.0
# Time of a product in single precision, and of a coarse one on a GPU, next to float64.
_SINGLE_TIME = 0.5
_COARSE_TIME = 0.25


@dataclass(frozen=True)
class CGSystem:
    """The data, the start, and what is derived from them once, on first use.

    Attributes
    ----------
    F : Sensing
        Rows of norm at most 1.
    b, delta : (m,) array
        Values and tolerances, ``delta > 0``.
    A1 : float or (n, n) array
        The start: a multiple of the identity, or a matrix.
    z1 : (m,) array
        Residual of the start, ``F(A_1) - b``.
    explicit : bool
        Whether K is formed; otherwise it is applied through the rows.
    memory : int
        Bytes of K or of the preconditioner up to which it is formed; `MAX_FORMED_BYTES` or less.
    unknowns : int
        Number of real unknowns of A.
    overdetermined : bool
        Whether there are more rows than unknowns.
    in_matrix_coordinates : bool
        Whether the iterate is kept as a matrix: where that is the shorter vector.
    """

    F: Sensing
    b: Vector
    delta: Vector
    A1: float | Inexact
    z1: Vector
    explicit: bool
    memory: int
    unknowns: int = field(init=False)
    overdetermined: bool = field(init=False)
    in_matrix_coordinates: bool = field(init=False)
    _factor_size: int = field(init=False)
    _keeps_matrix: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Sizes, which are looked at in each step."""
        F = self.F
        self.__dict__["unknowns"] = F.unknowns
        self.__dict__["overdetermined"] = F.m > F.unknowns
        inside = self._keeps_matrix and F.m > F.unknowns and not self.explicit
        self.__dict__["in_matrix_coordinates"] = inside
        self.__dict__["_factor_size"] = F.unknowns if inside else F.m

    @property
    def masses(self) -> Vector:
        """What the rounding of each reading is in proportion to."""
        return self.F.masses

    @property
    def coarse(self) -> bool:
        """Whether products that are not in double precision have fewer digits than single ones."""
        return self.F.coarse and not self.explicit

    def roundoff(self, double: bool) -> float:
        """Unit roundoff of products, where that is more than that of double precision."""
        return 0.0 if double or self.explicit else self.F.single.roundoff

    @cached_property
    def narrowest(self) -> float:
        """Least tolerance."""
        return float(self.delta.min())

    @cached_property
    def widest(self) -> float:
        """Largest tolerance."""
        return float(self.delta.max())

    @property
    def nothing(self) -> Vector:
        """0 as the iterate is kept."""
        size = self.unknowns if self.in_matrix_coordinates else self.F.m
        return np.zeros_like(self.b, shape=(size,))

    @cached_property
    def K(self) -> Vector:
        """Upper triangle of the Gram matrix."""
        require_memory("method cg: the Gram matrix", 8 * self.F.m**2)
        return self.F.gram_triangle()

    @cached_property
    def factor(self) -> CGFactor:
        """The preconditioner."""
        require_memory("method cg: the factored normal equations", 8 * self._factor_size**2)
        if self.in_matrix_coordinates:
            return factor_normal(self.F)
        return factor(
            self.K.astype(np.float32) if self.explicit else self.F.gram_triangle(single=True)
        )

    def aiming(self, goal: float) -> Self:
        """Return the system with tolerances `goal` times as wide; what is derived is shared."""
        if goal == 1.0:
            return self
        known: dict[float, Self] = self.__dict__.setdefault("_aiming", {})
        if goal not in known:
            other = replace(self, delta=goal * self.delta)
            for name in ("single", "K", "factor"):
                if name in self.__dict__:
                    other.__dict__[name] = self.__dict__[name]
            known[goal] = other
        return known[goal]

    def times(self, y: Vector, double: bool) -> tuple[Vector, Inexact | None]:
        """``K y``, and ``F*(y)`` where it was formed.

        Where K is not explicit, in single precision unless `double`.
        """
        if self.explicit:
            return gram_product(self.K, y).astype(np.float64, copy=False), None
        F = self.F if double else self.F.single
        S = F.adjoint(y)
        return F.forward(S).astype(np.float64, copy=False), S

    def step_cost(self, double: bool) -> float:
        """Float64 flops of a plain step."""
        return _STEP + self._product_cost * (1.0 if double or self.explicit else _share(self.F))

    @property
    def factor_cost(self) -> float:
        """Float64 flops of the preconditioner and a few steps with it."""
        m, n = map(float, self.F.shape)
        size = self._factor_size
        build = m * size if self.in_matrix_coordinates else _weight(self.F) * m * n
        return 0.5 * size * (size * size / 3.0 + build) + 4.0 * self._product_cost

    @property
    def factor_fits(self) -> bool:
        """Whether the preconditioner keeps to `memory`, in double precision if need be."""
        return 8 * self._factor_size**2 <= self.memory

    @cached_property
    def _product_cost(self) -> float:
        m, n = map(float, self.F.shape)
        if self.explicit:
            return _ENTRY * m * m
        return (1.0 + _HALF_RATE / n) * _weight(self.F) * 2.0 * m * n * n


def prepare(
    U: Inexact | Sensing,
    b: Vector,
    delta: Vector,
    A1: float | Inexact | None = None,
    memory: int = MAX_FORMED_BYTES,
    squares: Vector | None = None,
) -> CGSystem:
    """Evaluate the start, and choose the form of K by cost.

    Parameters
    ----------
    U : Sensing, or (m, n) array
    b, delta, memory
        See `CGSystem`.
    A1 : float or (n, n) array, optional
        The start; by default ``mean(b) I``.
    squares : (m,) array, optional
        F of the identity: squared row norms, at most 1; all 1 by default.
    """
    F = Sensing.of(U)
    m, n = F.shape
    if A1 is None:
        A1 = float(np.mean(b))
    if isinstance(A1, float):
        z1 = A1 * (1.0 if squares is None else squares) - b
    else:
        A1 = F.kind.own(A1)
        z1 = F.forward(A1) - b
    size = F.unknowns
    ratio = float((np.abs(z1) / delta).max(initial=1.0))
    # Generic rows contract the residual by sqrt(m/N) per step (the edges of the spectrum of K).
    contraction = min(0.99, math.sqrt(min(m, size) / max(m, size)))
    steps = 1.0 - math.log(ratio) / math.log(contraction)
    share = _share(F) if ratio <= SINGLE_GAIN or F.coarse else 1.0
    explicit = _weight(F) * m * m * n + steps * _ENTRY * m * m
    # Without K, the steps and the check at the end, which makes A; with K, A is still to make.
    free = (share * steps + 1.0) * _weight(F) * 2.0 * m * n * n
    cheaper = explicit + _weight(F) * m * n * n < free and 8 * m * m <= memory
    # With n > m no n-by-n matrix is formed, whatever the cost.
    return CGSystem(F, b, delta, A1, z1, n > m or cheaper, memory)


def _weight(F: Sensing) -> float:
    """Real multiplications in a multiplication of two entries of a row."""
    return 4.0 if F.is_complex else 1.0


def _share(F: Sensing) -> float:
    """Time of a product that is not in double precision, next to one that is."""
    return _COARSE_TIME if F.coarse else _SINGLE_TIME
