"""The system ``K y = z_1``: the form in which K is applied, what each part costs, and its factor.

A float32 factorization costs half of a float64 one and carries seven digits, which is mostly all
that a preconditioner needs. The small shift that keeps it positive definite leaves
``lambda/(lambda + shift)`` of each eigenvalue: 1 for all but the few near or below the shift.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, require_memory
from quadsense.core.cholesky import UNIT_ROUNDING, ScaledFactor, add_to_diagonal, scaled_factor
from quadsense.core.products import (
    FEW_ENTRIES,
    Inexact,
    gram_product,
    pack,
    summed_products,
    unpack,
)
from quadsense.core.records import cached_property, record
from quadsense.device import numbers, waits
from quadsense.measurements.arrays import Dense
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem, own, product_flops
from quadsense.methods.cg import (
    ENTRY,
    SINGLE_GAIN,
    STEPS_WITH_FACTOR,
    plain_steps,
)
from quadsense.methods.traits import HALF_RATE, SINGLE_TIME, factor_flops
from quadsense.proofs.rounding import frobenius
from quadsense.system.machine import FLOAT64_BYTES, MAX_FORMED_BYTES

# Order up to which a factorization in double precision, and the one step that it leaves, take no
# longer than one in single precision and its two or three steps (measured).
MAX_DOUBLE_ORDER = 100


def factor_normal(F: Sensing) -> ScaledFactor:
    """Factor ``F* F`` (N by N, in the coordinates of `pack`).

    In single precision, and again in double where that leaves eigenvalues unresolved: a
    least-squares fit is wanted to its last direction, which the residual alone cannot show. In
    double precision at once where a factorization takes no time.
    """
    if F.unknowns <= MAX_DOUBLE_ORDER:
        return scaled_factor(F.normal())
    first = scaled_factor(F.normal(dtype=np.float32))
    return first if first.resolves else scaled_factor(F.normal())


Vector = npt.NDArray[np.float64]

# Float64 flops in whose time passes the part of a step that does not shrink with the problem.
STEP_FLOPS = 2e6
# Time of a coarse product on a GPU, next to one in float64.
COARSE_TIME = 0.25


@record(frozen=True)
class NormalOperator:
    """``K = F F*`` as it is applied: given, formed, or through the rows.

    Attributes
    ----------
    F : Sensing
    formed : bool
        Whether the matrix K is formed.
    single : bool
        Whether a formed K, and its factor, are in single precision.
    given : callable or None
        What applies K to a vector, where that was made before; the matrix is then never formed.
    by_gram : bool
        Whether K, where it is not formed, is applied through inner products of rows.
    """

    F: Sensing
    formed: bool
    single: bool = False
    given: Callable[[Vector], Vector] | None = None
    by_gram: bool = False

    @cached_property
    def K(self) -> Vector:
        """Upper triangle of the Gram matrix."""
        require_memory(
            "method cg: the Gram matrix", FLOAT64_BYTES * self.F.m**2 // (1 + self.single)
        )
        return self.F.gram_triangle(single=self.single)

    def triangle(self, single: bool) -> Vector:
        """Return the upper triangle of K, in Fortran order, for the caller to overwrite."""
        if self.formed:
            return self.K.astype(np.float32 if single else np.float64, order="F")
        require_memory("method cg: the Gram matrix", FLOAT64_BYTES * self.F.m**2 // (1 + single))
        return self.F.gram_triangle(single=single)

    def times(self, y: Vector, double: bool) -> tuple[Vector, Inexact | None]:
        """``K y`` in float64, and ``F*(y)`` where it was formed.

        Products through the rows, or with a K in single precision, are in single precision unless
        `double`.
        """
        if self.given is not None:
            return self.given(y), None
        if self.formed and not (double and self.single):
            if not self.single:
                return gram_product(self.K, y), None
            largest = np.abs(y).max()  # single precision has a narrow range
            scale = np.where(largest > 0.0, largest, 1.0)
            return scale * gram_product(self.K, y / scale).astype(np.float64), None
        if self.by_gram:
            return self.F.gram_times(y), None
        F = self.F if double else self.F.single
        S = F.adjoint(y)
        return F.forward(S).astype(np.float64, copy=False), S


def given_gram(problem: Problem) -> Callable[[Vector], Array]:
    """Return what applies the K that came with a problem, on arrays of any type."""
    gram = problem.gram
    assert gram is not None
    return lambda y: gram.apply(own(problem, y))


def pays_to_form(F: Sensing, steps: float, entry: float, share: float) -> bool:
    """Return whether that many products cost less with K formed than through the rows.

    Parameters
    ----------
    F : Sensing
    steps : float
    entry : float
        Flops in whose time a product reads an entry of K.
    share : float
        Time of a product through the rows, next to one in float64.
    """
    m, n = map(float, F.shape)
    product = product_flops(F)
    # Without K, the steps and the check at the end, which makes A; with K, A is still to make.
    formed = 0.5 * product * (m / n + 1.0) + steps * entry * m * m
    return formed < (share * steps + 1.0) * product


@record(frozen=True)
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
    operator : NormalOperator
        K.
    memory : int
        Bytes of K or of the preconditioner up to which it is formed; `MAX_FORMED_BYTES` or less.
    start_ratio : float
        Ratio of the start, rounding included.
    steps : float
        Plain steps that are expected from there.
    masses : (m,) array or None
        What the rounding of each reading is in proportion to; None: as `F` says.
    explicit : bool
        Whether K is formed, or given; otherwise it is applied through the rows.
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
    operator: NormalOperator
    memory: int
    start_ratio: float
    steps: float
    masses: Vector | None = None
    explicit: bool = field(init=False)
    unknowns: int = field(init=False)
    overdetermined: bool = field(init=False)
    in_matrix_coordinates: bool = field(init=False)
    _factor_size: int = field(init=False)

    def __post_init__(self) -> None:
        """Sizes, which are looked at in each step."""
        F = self.F
        self.__dict__["unknowns"] = F.unknowns
        self.__dict__["overdetermined"] = F.m > F.unknowns
        explicit = self.operator.formed or self.operator.given is not None
        self.__dict__["explicit"] = explicit
        inside = F.m > F.unknowns and not explicit
        self.__dict__["in_matrix_coordinates"] = inside
        self.__dict__["_factor_size"] = F.unknowns if inside else F.m

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
        return float(np.minimum.reduce(self.delta))

    @cached_property
    def widest(self) -> float:
        """Largest tolerance."""
        return float(self.delta.max())

    @property
    def nothing(self) -> Vector:
        """0 as the iterate is kept."""
        size = self.unknowns if self.in_matrix_coordinates else self.F.m
        if type(self.b) is np.ndarray:  # in a tenth of the time
            return np.zeros(size)
        return np.zeros_like(self.b, shape=(size,))

    @cached_property
    def features(self) -> Vector | None:
        """F as an explicit matrix, of few rows of a NumPy array; otherwise None."""
        F = self.F
        small = self.in_matrix_coordinates and F.m * self.unknowns <= FEW_ENTRIES
        return F.features() if small and type(F.kind) is Dense and F.xp is np else None

    @cached_property
    def factor(self) -> ScaledFactor:
        """The preconditioner."""
        if self.in_matrix_coordinates:
            size = FLOAT64_BYTES * self._factor_size**2
            require_memory("method cg: the factored normal equations", size)
            if self.features is not None and self.unknowns <= MAX_DOUBLE_ORDER:
                return scaled_factor(summed_products((self.features,), self.unknowns, np.float64))
            return factor_normal(self.F)
        found = scaled_factor(self.operator.triangle(single=True))
        if found.resolves and self.operator.given is None and not waits(found.upper):
            self.F.learn_rank(found.upper.diagonal(), self.F.m)
        return found

    def aiming(self, goal: float) -> Self:
        """Return the system with tolerances `goal` times as wide; what is derived is shared."""
        known: dict[float, Self] = self.__dict__.setdefault("_aiming", {})
        if goal not in known:
            ratio = self.start_ratio / goal
            steps = plain_steps(self.F.m, self.unknowns, ratio)
            other = replace(self, delta=goal * self.delta, start_ratio=ratio, steps=steps)
            for name in ("factor",):
                if name in self.__dict__:
                    other.__dict__[name] = self.__dict__[name]
            known[goal] = other
        return known[goal]

    def times(self, y: Vector, double: bool) -> tuple[Vector, Inexact | None]:
        """``K y``, and ``F*(y)`` where it was formed; see `NormalOperator.times`."""
        return self.operator.times(y, double)

    def worst_ratio(self, z: Vector, bound: Vector) -> float:
        """The largest ratio of residuals that err by as much as the bound."""
        return float(np.maximum.reduce((np.abs(z) + bound) / self.delta, initial=0.0))

    def measured(self, A: Inexact) -> tuple[Vector, Inexact, float]:
        """Residuals of A from the data, A itself, and its ratio, rounding included.

        The error of evaluating ``u* A u - b`` is bounded through ``|u|^T |A| |u| <= ||A||_F``.
        """
        Psi, terms = self.features, self.F.n
        if Psi is None:
            z = self.F.forward(A) - self.b
        else:
            z, terms = Psi @ pack(A) - self.b, self.unknowns
        norm = frobenius(A) if type(A) is np.ndarray else np.linalg.norm(A)
        size = self.F.amplification * norm
        bound = 4 * (terms + 8) * UNIT_ROUNDING * size + 2 * UNIT_ROUNDING * np.abs(self.b)
        return z, A, self.worst_ratio(z, bound)

    def applied(self, y: Vector) -> tuple[Vector, float]:
        """Residuals at ``A_1 - F*(y)`` by an explicit K, and their ratio, rounding included.

        The bound is that of ``K y``: the sum, and the entries of K, whose errors are
        ``2 n eps |<u_i, u_j>|``.
        """
        (m, n), eps = self.F.shape, UNIT_ROUNDING
        z = self.z1 - self.times(y, double=True)[0]
        if self.F.raw is not self.F:  # K has entries of both signs, each off by masses of both
            masses = self.F.masses if self.masses is None else self.masses
            spread = masses * float(masses @ np.abs(y))
            return z, self.worst_ratio(z, 4 * (m + self.F.raw.m + n) * eps * spread)
        sums = self.times(np.abs(y), double=True)[0]
        roots = np.sqrt(self.times(np.ones_like(y), double=True)[0]) * np.linalg.norm(y)
        bound = eps * ((m + 4) * sums + (2 * n + 4) * (roots + np.abs(self.b + self.z1)))
        return z, self.worst_ratio(z, bound)

    def from_coefficients(self, y: Vector, double: bool) -> Inexact:
        """``A_1 - F*(y)``, summed in that precision."""
        scale = float(np.abs(y).max()) or 1.0
        summed = (self.F if double else self.F.single).adjoint(y / scale)
        return self.from_start(-scale * summed.astype(self.F.dtype, copy=False))

    def from_start(self, A: Inexact) -> Inexact:
        """A with A_1 added, in its place."""
        if isinstance(self.A1, float):
            add_to_diagonal(A, self.A1)
        else:
            A += self.A1
        return A

    def step_cost(self, double: bool) -> float:
        """Float64 flops of a plain step."""
        return STEP_FLOPS + self._product_cost * (
            1.0 if double or self.explicit else _share(self.F)
        )

    @property
    def factor_cost(self) -> float:
        """Float64 flops of the preconditioner and a few steps with it."""
        m, n = map(float, self.F.shape)
        size = float(self._factor_size)
        build = m * size if self.in_matrix_coordinates else 0.5 * product_flops(self.F) / n
        return factor_flops(size, build) + STEPS_WITH_FACTOR * self._product_cost

    @property
    def factor_fits(self) -> bool:
        """Whether the preconditioner keeps to `memory`, in double precision if need be."""
        return FLOAT64_BYTES * self._factor_size**2 <= self.memory

    @cached_property
    def _product_cost(self) -> float:
        m, n = map(float, self.F.shape)
        if self.explicit:
            return ENTRY * m * m
        return (1.0 + HALF_RATE / n) * product_flops(self.F)


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
    F = U if isinstance(U, Sensing) else Sensing.of(U)
    m, n = F.m, F.n
    if A1 is None:
        A1 = float(np.mean(b))
    if isinstance(A1, float):
        z1 = A1 * (1.0 if squares is None else squares) - b
    else:
        A1 = F.kind.own(A1)
        z1 = F.forward(A1) - b
    size = F.unknowns
    ratio = starting_ratio(F, b, delta, z1)
    steps = plain_steps(m, size, ratio)
    share = _share(F) if ratio <= SINGLE_GAIN or F.coarse else 1.0
    cheaper = FLOAT64_BYTES * m * m <= memory and pays_to_form(F, steps, ENTRY, share)
    # With n > m no n-by-n matrix is formed, whatever the cost.
    operator = NormalOperator(F, n > m or cheaper)
    return CGSystem(F, b, delta, A1, z1, operator, memory, ratio, steps)


def starting_ratio(F: Sensing, b: Vector, delta: Vector, z1: Vector) -> float:
    """Return the largest ratio of the residuals of the start, rounding included."""
    size = F.amplification * np.abs(b + z1)
    ratios = (np.abs(z1) + (F.n + 4) * UNIT_ROUNDING * size) / delta
    return float(np.maximum.reduce(ratios, initial=0.0))


def _share(F: Sensing) -> float:
    """Time of a product that is not in double precision, next to one that is."""
    return COARSE_TIME if F.kind.coarse and F.coarse else SINGLE_TIME


# Share of ||z||^2 below which a decrease is mostly rounding.
MIN_DECREASE = 1e-10
# Steps by which the rate is judged.
RATE_STEPS = 4


def distance_left(decreases: Vector, left: float) -> float:
    """Estimate ``||z - z_LS||_2``: the sum of the decreases to come, as a geometric series.

    Parameters
    ----------
    decreases : (k,) array
        What each step took from ``||z||_2^2``.
    left : float
        ``||z||_2^2`` now.
    """
    if len(decreases) > 1 and np.max(decreases[-2:]) <= MIN_DECREASE * left:
        return float(np.sqrt(np.sum(decreases[-2:])))
    if len(decreases) <= RATE_STEPS:
        return np.inf
    last, before = decreases[-1], decreases[-1 - RATE_STEPS]
    if last >= before:
        return np.inf
    rate = (last / before) ** (1.0 / RATE_STEPS)
    if rate == 1.0:
        return np.inf
    return float(np.sqrt(np.max(decreases[-2:]) * rate / (1.0 - rate)))


def steps_left(decreases: Vector, target: float) -> float:
    """Steps until the residual has fallen by another ``exp(target)``.

    From the decreases of ``||z||^2`` over the last three dyadic ranges. The logarithm of the
    residual is taken to fall like ``k^e``: e = 1 is geometric convergence, and e near 0 a power of
    the step number, as at a hard edge of the spectrum.
    """
    k = len(decreases)
    sums = [np.sum(decreases[k >> i : k >> (i - 1)]) for i in (3, 2, 1)]
    if not sums[0] > sums[1] > sums[2] > 0.0:
        # Not yet falling (or at a standstill): a slow power.
        first, second = 1.0, 0.5
    else:
        first, second = (0.5 * float(np.log(a / b)) for a, b in pairwise(sums))
    e = float(np.clip(np.log2(second / first), 0.02, 1.0))
    # The logarithm fell by `second` between the starts of the last two ranges.
    rate = second * e / (0.5**e * (1.0 - 0.5**e))
    return k * float(np.expm1(min(np.log1p(e * target / rate) / e, 50.0)))


# Share of ||z||^2 that a preconditioned direction reaches, below which the rest is taken for null.
MIN_REACHED_SHARE = 0.02


@dataclass(frozen=True)
class CGDirection:
    """A direction w, its image q, F*(w) where it was formed, and ``||F*(z)||^2``, all of z over
    `scale`; the last is infinite where it was not needed. Numbers are left where they are.
    """

    w: Vector
    q: Vector
    S: Inexact | None
    scale: Any
    slope: Any


def direction_of(system: CGSystem, z: Vector, double: bool, preconditioned: bool) -> CGDirection:
    """Return the direction of a step from a residual z."""
    F = system.F if double else system.F.single
    # Single precision has a narrow range: products are of vectors scaled to one.
    largest = np.abs(z).max()
    scale = np.where(largest > 0.0, largest, 1.0)
    z, S = z / scale, None
    slope: Any
    if system.in_matrix_coordinates:
        gradient = pack(F.adjoint(z))
        w = system.factor.solve(gradient) if preconditioned else gradient
        q = F.forward(unpack(w, F.n, F.dtype)).astype(np.float64)
        slope = gradient @ gradient
    elif preconditioned:
        w, slope = system.factor.solve(z), np.inf
        q, S = system.times(w, double)
        along, of_z = numbers(z @ q, z @ z)
        if along < MIN_REACHED_SHARE * of_z:
            # Most of z lies where K is zero or nearly so, and there the factor's inverse is large
            # and its rounding drowns the rest: remove that part first.
            image, _ = system.times(z, double)
            slope = z @ image
            w = system.factor.solve(system.factor.solve(image))
            q, S = system.times(w, double)
    else:
        w = z
        q, S = system.times(z, double)
        slope = z @ q
    return CGDirection(w, q, S, scale, slope)
