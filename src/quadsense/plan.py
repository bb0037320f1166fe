"""The cost model: which coordinates, which K, which methods, how much memory and time, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from quadsense.arrays import available_memory
from quadsense.machine import Rates, known_rates
from quadsense.measurements import Measurements
from quadsense.measurements.gram import gram_form
from quadsense.measurements.sparse import Sparse
from quadsense.threads import LITTLE_WORK, WORTH_SHARING

SMALL_PRODUCT = 2e7
"""Flops of a product below which a second BLAS thread costs more than it gives."""

ITERATIONS = {"gd": 200.0, "sgd": 5000.0, "dual": 80.0, "factored": 150.0, "minimax": 12.0}
"""Steps that a solve typically takes; orders of magnitude (docs/theory.md, section 10)."""


@dataclass(frozen=True)
class Shape:
    """All of a problem that its cost depends on.

    Attributes
    ----------
    m, n : int
    complex, sparse, orthonormal : bool
    unit_norm : bool
        Whether the rows came with unit norm: if not, some methods copy them.
    density : float
        Share of nonzeros of K, where U is sparse.
    psd : bool
    rank : int or None
        Asked rank; 0 where it may grow.
    target : bool
        Whether there is a tolerance to meet.
    one_sided : bool
        Whether some interval has only one end.
    """

    m: int
    n: int
    complex: bool = False
    sparse: bool = False
    orthonormal: bool = False
    unit_norm: bool = True
    density: float = 1.0
    psd: bool = False
    rank: int | None = None
    target: bool = True
    one_sided: bool = False

    @property
    def unknowns(self) -> int:
        """Real dimensions of A."""
        return self.n**2 if self.complex else self.n * (self.n + 1) // 2

    @property
    def row_bytes(self) -> int:
        """Bytes of a dense U."""
        return self.m * self.n * (16 if self.complex else 8)


@dataclass(frozen=True, repr=False)
class Plan:
    """What was chosen for a problem.

    Attributes
    ----------
    methods : tuple of str
        Tried in turn: each hands over to the next what it cannot decide.
    coordinates : {"measurement", "matrix", "factor"}
        What the first method carries: m coefficients, A, or a factor of A.
    gram : str
        Form of K, where there is one.
    threads : dict
        BLAS threads of each method: see `threads.blas_threads`.
    memory : int
        Predicted bytes beside U.
    flops, seconds : float
        Predicted work and time of the first method.
    reasons : tuple of str
        In words.
    """

    methods: tuple[str, ...]
    coordinates: str
    gram: str
    threads: dict[str, str]
    memory: int
    flops: float
    seconds: float
    reasons: tuple[str, ...]

    def __repr__(self) -> str:
        """Methods and cost; the reasons are in `reasons`."""
        methods = " then ".join(self.methods)
        return f"Plan({methods}, {self.memory / 2**20:.3g} MiB, {self.seconds:.2g} s predicted)"

    def describe(self) -> dict[str, Any]:
        """The plan as plain data, for `Result.plan`."""
        return {**vars(self), "methods": list(self.methods), "reasons": list(self.reasons)}


def shape_of(data: Measurements, *, psd: bool, rank: int | None, target: bool) -> Shape:
    """Shape of measurements and wishes."""
    rows = data.unit_rows
    return Shape(
        m=data.m,
        n=data.n,
        complex=rows.is_complex,
        sparse=rows.is_sparse,
        orthonormal=data.orthonormal,
        unit_norm=rows.has_unit_norm,
        density=rows.kind.gram_density_bound() if isinstance(rows.kind, Sparse) else 1.0,
        psd=psd,
        rank=rank,
        target=target,
        one_sided=data.sides is not None,
    )


def make_plan(shape: Shape, method: str = "auto", rates: Rates | None = None) -> Plan:
    """Choose for a shape; `method` other than "auto" is the user's word."""
    return _made(shape, method, rates or known_rates(), available_memory())


@lru_cache(maxsize=16)  # many solves of one shape plan once
def _made(shape: Shape, method: str, rates: Rates, memory: int) -> Plan:
    """The plan where so much memory is free."""
    reasons: list[str] = []
    methods = _methods(shape, reasons) if method == "auto" else (method,)
    first = methods[0]
    gram, why = gram_form(
        shape.m, shape.n, shape.orthonormal, shape.density if shape.sparse else 1.0
    )
    # With n > m nothing n-by-n is formed, and no scaled copy of U is made.
    operator = first == "cg" and (shape.sparse or shape.n > shape.m)
    if first in ("gd", "sgd", "closed_form") or operator:
        reasons.append(why)
    else:
        gram = "none"
    coordinates = {"dual": "factor", "factored": "factor", "minimax": "matrix"}.get(
        first, "measurement"
    )
    if first in ("cg", "minimax"):
        coordinates = "measurement" if shape.m <= shape.unknowns else "matrix"
        side = "as many as" if shape.m == shape.unknowns else "more than"
        side = "fewer than" if shape.m < shape.unknowns else side
        reasons.append(f"{shape.m:,} measurements are {side} the {shape.unknowns:,} unknowns")
    needed = max(_memory(shape, name, gram) for name in methods)
    flops, traffic = _work(shape, first, gram)
    seconds = rates.seconds(flops, traffic)
    threads = {name: _threads(shape, name, gram) for name in methods}
    return Plan(methods, coordinates, gram, threads, needed, flops, seconds, tuple(reasons))


def _methods(shape: Shape, reasons: list[str]) -> tuple[str, ...]:
    """Methods for ``auto``, in the order in which they are tried."""
    if shape.rank is not None:
        reasons.append("a rank was asked for: the factor of A is sought")
        return ("factored",)
    if shape.psd:
        reasons.append("A is to be positive semidefinite")
        return ("dual",)
    if shape.orthonormal and shape.target and not shape.one_sided:
        reasons.append("orthonormal rows are solved in one step")
        return ("closed_form",)
    if shape.one_sided or not shape.target:
        reasons.append(
            "one-sided intervals need the interior-point method"
            if shape.one_sided
            else "no tolerance was given: the smallest worst error is sought"
        )
        return ("minimax",)
    reasons.append("least squares by conjugate gradients first; minimax where that does not fit")
    return ("cg", "minimax")


def _memory(shape: Shape, method: str, gram: str) -> int:
    """Bytes that a method takes beside U, to a factor of about two."""
    m, n, N = shape.m, shape.n, shape.unknowns
    item = 16 if shape.complex else 8
    matrix = n * n * item
    k = 3 * 8 * m * m if gram == "explicit" else int(20 * shape.density * m * m)
    if method in ("closed_form", "gd", "sgd"):
        return 8 * 20 * m + {"explicit": k, "sparse": k, "identity": 0}.get(gram, 4 * matrix)
    copies = shape.row_bytes * (0.5 if shape.unit_norm and not shape.sparse else 1.5)
    if method == "cg":
        if shape.sparse or n > m:
            return 8 * 150 * m + (k if gram != "matrix-free" else 4 * matrix)
        return int(copies) + 8 * 150 * m + 6 * matrix
    if method == "minimax":
        side = min(m, N)
        dense = 8 * side * side if side <= 16000 else 0
        formed = 8 * matrix if m > N else 2 * dense  # few rows: K is factored, A stays implicit
        return int(copies) + 8 * 40 * m + formed + 2 * dense
    if method == "dual":  # within the span of the rows, where these are few
        reduced = 4 * shape.row_bytes if n > m else 0
        return int(copies + reduced) + 24 * min(m, n) ** 2 * item + 8 * 60 * m
    return int(copies) + 40 * n * max(shape.rank or 1, 1) * item + 8 * 20 * m


def _work(shape: Shape, method: str, gram: str) -> tuple[float, float]:
    """Flops and bytes of a typical solve, to an order of magnitude."""
    m, n, N = float(shape.m), float(shape.n), float(shape.unknowns)
    weight = 4.0 if shape.complex else 1.0
    steps = ITERATIONS.get(method, 1.0)
    if method == "closed_form" or gram == "identity":
        return weight * m * m * n + steps * 30.0 * m, 2.0 * shape.row_bytes
    if method in ("gd", "sgd"):
        if gram == "explicit":
            share = 1.0 if method == "gd" else 64.0 / m
            return 2.0 * weight * m * m * n, share * steps * 8.0 * m * m
        return steps * weight * 4.0 * m * n * n, steps * 2.0 * shape.row_bytes
    if method == "cg":
        # Generic rows contract the residual by sqrt(m/N) a step.
        closeness = min(m, N) / max(m, N)
        steps = min(200.0, 8.0 / max(1e-3, 1.0 - closeness**0.5))
        if gram in ("explicit", "sparse"):
            return weight * m * m * n, steps * 8.0 * m * m * min(1.0, 2.0 * shape.density)
        return steps * weight * 2.0 * m * n * n, steps * shape.row_bytes
    if method == "minimax":
        side = min(m, N)
        return ITERATIONS[method] * (m * side * side + side**3 / 3.0), 0.0
    if method == "dual":
        k = min(m, n)
        reduce = weight * 4.0 * m * m * n if n > m else 0.0
        return ITERATIONS[method] * weight * (3.0 * m * k * k + 10.0 * k**3) + reduce, 0.0
    rank = float(max(shape.rank or 1, 1))
    return ITERATIONS[method] * weight * 4.0 * m * n * rank, ITERATIONS[method] * shape.row_bytes


def _threads(shape: Shape, method: str, gram: str) -> str:
    """Threads of BLAS (see `threads.blas_threads`), as measured to be fastest."""
    product = (4.0 if shape.complex else 1.0) * 2.0 * shape.m * shape.n**2
    if product <= LITTLE_WORK:
        return "one"
    if gram == "identity":
        return "as set"
    if method == "dual":
        return "rows"
    if method == "factored":
        return "one"
    if method == "cg" and gram == "none":
        product = (4.0 if shape.complex else 1.0) * shape.m * shape.n**2
        return "rows" if product >= WORTH_SHARING else "one for NumPy"
    if method == "minimax":
        return "one" if shape.n <= 60 else "as set"
    product = 2.0 * shape.m**2 if gram == "explicit" else 4.0 * shape.m * shape.n**2
    return "one" if product < SMALL_PRODUCT else "as set"


def refuse_what_cannot_fit(shape: Shape, plan: Plan) -> None:
    """Raise MemoryError, before anything is allocated, if the plan cannot fit."""
    free = available_memory()
    if plan.memory <= free:
        return
    fitting = [name for name in ("cg", "gd", "sgd") if make_plan(shape, name).memory <= free]
    if shape.psd or shape.rank is not None:
        fitting = []
    advice = (
        f"method={fitting[0]!r} would fit" if fitting else "use fewer measurements, or a smaller n"
    )
    raise MemoryError(
        f"method {' then '.join(plan.methods)} would take {plan.memory / 2**30:.1f} GiB beside U "
        f"and {free / 2**30:.1f} GiB are free: {advice}"
    )
