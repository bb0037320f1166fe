"""Coordinates in which a problem is solved where the columns of U differ much in size.

With ``D = diag(2^e)`` the probes become ``D u_i`` and the unknown ``D^-1 A D^-1``: readings, their
tolerances, the cone, the rank and every proof stay what they are, and no digit changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, to_numpy
from quadsense.measurements import Measurements
from quadsense.measurements.arrays import MIN_SPREAD, columns_differ
from quadsense.measurements.constraints import Constraint
from quadsense.measurements.views import Framed

MIN_ENTRIES = 16
"""Entries of a column from which on `MIN_SPREAD` is enough. With k < 16 entries it is
``MIN_SPREAD**(16/k)``, which is as unlikely by chance: that all k entries of a column are smaller
by a factor t has a probability of about ``t**-k``."""

MAX_EXPONENT = 128
"""Largest exponent, up or down: larger differences are scaled by so much only."""

ROUNDED_AT = 0.53
"""Share of a factor of two at which exponents are rounded up: not a half, so that ratios such as
the square root of 2 are not on the edge, where the order of a sum would decide."""

MAX_ROUNDS = 4
"""How often columns are measured: once they are scaled, rows of unit norm are others."""

SCALED = " once the columns of U are scaled"
"""What is added to a condition on the size of the scaled unknown."""

TINY = float(np.finfo(np.float64).tiny)
"""Mean square of a column below which it is taken for this."""

Columns = npt.NDArray[np.int64]
"""The exponents e; None stands for no scaling."""


def columns_of(data: Measurements) -> Columns | None:
    """Return the exponents by which the columns of these rows are scaled; None where they are not.

    They bring the root mean square of each column, over its entries that are not 0, near to that of
    the others in rows of unit norm. None where the columns are alike (see `MIN_SPREAD`, both over
    these entries and over all rows), where the rows are orthonormal, and for probes whose entries
    are not held. The column of median size stays as it is, as does a column of fewer than
    `MIN_ENTRIES` entries where others have more.
    """
    data = data.plain
    kind: Any = data.unit_rows.raw.kind
    if not columns_differ(kind):
        return None
    squares, counts = to_numpy(kind.column_squares()), kind.column_counts()
    enough = max(1, min(MIN_ENTRIES, int(counts.max(initial=0))))
    known = (counts >= enough) & (squares > 0.0)
    if not known.any():
        return None
    means = squares[known] / counts[known]
    spread = MIN_SPREAD ** (MIN_ENTRIES / enough)
    if float(means.max()) < spread**2 * float(means.min()) or data.orthonormal:
        return None
    columns = np.zeros(kind.n, np.int64)
    for _ in range(MAX_ROUNDS):
        change = np.floor(-0.5 * np.log2(means) + ROUNDED_AT).astype(np.int64)
        change -= int(np.sort(change)[change.size // 2])
        before = columns.copy()
        columns[known] = np.clip(columns[known] + change, -MAX_EXPONENT, MAX_EXPONENT)
        if np.array_equal(columns, before):
            break
        means = np.maximum(Framed(kind, columns).column_squares()[known] / counts[known], TINY)
    columns[known] -= int(np.sort(columns[known])[change.size // 2])
    return columns if columns.any() else None


def can_be_columns(columns: Any, n: int) -> bool:
    """Return whether these can be the exponents of a scaling of n columns."""
    return columns is None or (
        np.shape(columns) == (n,)
        and bool(np.all((columns >= -MAX_EXPONENT) & (columns <= MAX_EXPONENT)))
    )


def described(columns: Columns) -> str:
    """Return the scaling in words."""
    least, most = int(columns.min()), int(columns.max())
    return f"the columns of U are scaled by powers of two, from 2^{least} to 2^{most}"


def condition_outside(condition: str) -> str:
    """Return what a proof about the scaled unknown takes for granted, said of it."""
    return condition + SCALED if condition else ""


def condition_inside(condition: str) -> str:
    """Return the same as the proof says it."""
    return condition.removesuffix(SCALED)


def framed(data: Measurements, columns: Columns | None) -> Measurements:
    """Return the measurements, constraints included, with their columns scaled."""
    if columns is None:
        return data
    scaled = data.plain.framed(columns)
    return scaled.constrained(None, constraints_of(data.constraints, columns))


def constraints_of(
    constraints: tuple[Constraint, ...], columns: Columns | None
) -> tuple[Constraint, ...]:
    """Return ``<C, A>`` as ``<D C D, A'>`` of the scaled unknown ``A' = D^-1 A D^-1``."""
    if columns is None:
        return constraints
    return tuple(
        replace(
            each,
            matrix=_down(each.matrix, columns) if each.signs is not None
            else _both(each.matrix, columns),
        )
        for each in constraints
    )  # fmt: skip


def _down(X: Any, columns: Columns) -> Any:
    """Return ``D X``."""
    D = np.ldexp(1.0, columns)
    return sp.csr_array(sp.diags_array(D) @ X) if sp.issparse(X) else D[:, None] * X


def _both(C: Any, columns: Columns) -> Any:
    """Return ``D C D``, no digit changed."""
    D = np.ldexp(1.0, columns)
    if sp.issparse(C):
        return sp.csr_array(sp.diags_array(D) @ C @ sp.diags_array(D))
    return (C * D) * D[:, None]


def dense_in(A: Array, columns: Columns | None) -> Array:
    """Return ``D^-1 A D^-1`` of an (n, n) array, or ``D^-1 x`` of a vector."""
    if columns is None:
        return A
    return _both(A, -columns) if np.ndim(A) == 2 else np.ldexp(1.0, -columns) * A


def dense_out(A: Array, columns: Columns | None) -> Array:
    """Return ``D A D`` of an (n, n) array, or ``D x`` of a vector."""
    return A if columns is None else dense_in(A, -columns)


def shown_outside(
    callback: Callable[[Any], Any] | None, columns: Columns
) -> Callable[[Any], Any] | None:
    """Return the user's callback, which is shown A and not the scaled unknown."""
    if callback is None:
        return None

    def shown(intermediate: Any) -> None:
        make = intermediate.make_matrix
        callback(replace(intermediate, make_matrix=lambda: make().stretched(columns)))

    return shown
