"""What a factored fit decides by cost: which kind of step, and how many restarts."""

from __future__ import annotations

from typing import Any

from quadsense.measurements.framed import beneath
from quadsense.measurements.sensing import Sensing

LIFT = 2
"""Ranks that a lift has too many."""

# Normal equations are formed up to this many unknowns and entries of J, and up to this many flops
# where rows are ample and a dozen quasi-Newton steps serve as well.
_DENSE_UNKNOWNS, _DENSE_ENTRIES, _DENSE_FLOPS = 1000, 500_000, 5e7
# Those of sparse rows up to this many unknowns and flops.
_SPARSE_UNKNOWNS, _SPARSE_FLOPS = 4000, 5e7
# With this many rows per unknown, plain descent mostly finds the fit of the right rank if there
# is one, so a growing rank wastes no restarts below it, and a given one not many.
_AMPLE_ROWS = 4
# Restarts unless the caller says how many: few where rows are ample and a step takes more flops
# than this, or the rank is so large that a descent hardly ends anywhere but at a fit; else as many
# as take some ten seconds, between few and many.
_FEW_RESTARTS, _MANY_RESTARTS = 20, 200
_CHEAP_FLOPS, _PATIENCE = 1e6, 10.0
# Steps of an attempt, seconds of a step's overhead, and flops per second in products that a
# factorisation or a thin factor allows, as measured on a server core of 2024.
_STEPS, _OVERHEAD, _FLOPS = 160.0, 1e-4, 2e10


def unknowns(F: Sensing, rank: int) -> int:
    """Return the number of real unknowns of a factor."""
    return F.n * rank * (2 if F.is_complex else 1)


def rows_are_ample(F: Sensing, rank: int) -> bool:
    """Whether plain descent mostly finds a fit of this rank."""
    return F.m >= _AMPLE_ROWS * unknowns(F, rank)


def takes_normal_equations(F: Sensing, rank: int) -> bool:
    """Whether Gauss-Newton steps are the quicker way, or the only sure one."""
    m, size = max(F.m, F.raw.m), unknowns(F, rank)
    if F.raw.is_sparse and size <= _SPARSE_UNKNOWNS:
        # Sparse rows are seldom isotropic, which quasi-Newton steps rely on.
        return m * _row_length(F) ** 2 * rank**2 <= _SPARSE_FLOPS
    quick = m * size * size <= _DENSE_FLOPS or not rows_are_ample(F, rank)
    return size <= _DENSE_UNKNOWNS and m * size <= _DENSE_ENTRIES and quick


def _row_length(F: Sensing) -> float:
    """Return the nonzeros of a sparse row, on average."""
    kind: Any = beneath(F.raw.kind)
    return float(kind.U.nnz) / max(F.raw.m, 1)


def default_restarts(F: Sensing, rank: int, lifted: int) -> int:
    """Return how many restarts are worth their while; ``lifted`` is the rank of a lift."""
    m, size = float(F.m), float(unknowns(F, lifted))
    if F.raw.is_sparse:
        return _MANY_RESTARTS if size <= _DENSE_UNKNOWNS else _FEW_RESTARTS
    if rows_are_ample(F, rank) and m * size**2 > _CHEAP_FLOPS:
        return _FEW_RESTARTS
    of_rank = rank**2 if F.is_complex else rank * (rank + 1) // 2
    if rank >= F.n or of_rank > m:
        return _FEW_RESTARTS
    flops = 8.0 * m * size
    if takes_normal_equations(F, lifted):
        flops = m * size**2 + size**3 / 3.0
    seconds = _STEPS * (_OVERHEAD + flops / _FLOPS)
    return int(min(_MANY_RESTARTS, max(_FEW_RESTARTS, _PATIENCE / seconds)))
