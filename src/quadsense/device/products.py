"""The sensing map of rows in torch tensors and its adjoint: half the flops of plain products.

As in `products`, both maps are symmetric in their two row factors. GPUs have no quick ``syrk`` or
``trmm``, so the upper triangle is taken block of columns by block of columns, each by one plain
product: with 8 blocks 9/16 of the flops. Rows come some at a time, on the device and in the type of
the arithmetic, from wherever they are held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Tensor = Any
"""A torch tensor; torch is imported by those who make them."""

BLOCKS = 8
"""Blocks of columns: more save flops, fewer run faster. On an H200, .61 of the plain time."""

SINGLE_BLOCKS = 4
"""The same in single precision, where products of TF32 take less time than the rest."""

NARROWEST = 128
"""Columns that a block has at least, for products that run at full speed."""


def column_blocks(n: int, blocks: int = BLOCKS) -> list[tuple[int, int]]:
    """First and last column of every block."""
    width = max(NARROWEST, -(-n // blocks))
    return [(first, min(first + width, n)) for first in range(0, n, width)]


def _blocks_of(rows: Tensor) -> list[tuple[int, int]]:
    """Those of rows, or of an (n, n), in the precision that they are of."""
    single = rows.element_size() == (8 if rows.is_complex() else 4)
    return column_blocks(rows.shape[1], SINGLE_BLOCKS if single else BLOCKS)


def adjoint_upper(total: Tensor, rows: Tensor, weights: Tensor) -> None:
    """Add the upper blocks of ``sum_i y_i u_i u_i*`` to `total`, in place.

    Parameters
    ----------
    total : (n, n) tensor
    rows : (k, n) tensor
    weights : (k,) tensor
        y, real.
    """
    right = (rows.conj() if rows.is_complex() else rows) * weights[:, None]
    left = rows.T
    for first, last in _blocks_of(rows):
        total[:last, first:last].addmm_(left[:last], right[:, first:last])


def adjoint(rows: Tensor, weights: Tensor) -> Tensor:
    """``sum_i y_i u_i u_i*``."""
    total = rows.new_zeros((rows.shape[1], rows.shape[1]))
    adjoint_upper(total, rows, weights)
    return mirrored(total)


def mirrored(total: Tensor) -> Tensor:
    """The Hermitian matrix of which only the upper blocks are right; `total` is changed."""
    for first, last in _blocks_of(total):
        total[last:, first:last] = total[first:last, last:].mH
        corner = total[first:last, first:last]
        total[first:last, first:last] = 0.5 * (corner + corner.mH)
    return total


def upper_columns(S: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Blocks of columns whose products with rows, summed, are ``u* S u`` (its real part).

    What is above a block on the diagonal counts twice, what is below not at all.
    """
    S = 0.5 * (S + S.mH)
    for first, last in _blocks_of(S):
        block = S[:last, first:last].clone()
        block[:first] *= 2.0
        yield first, last, block


def forward_upper(rows: Tensor, columns: list[tuple[int, int, Tensor]]) -> Tensor:
    """``u_i* S u_i`` for some rows, from the blocks of `upper_columns`: (k, n) to (k,)."""
    left = rows.conj() if rows.is_complex() else rows
    total = rows.new_zeros(rows.shape[0])
    for first, last, block in columns:
        total += ((left[:, :last] @ block) * rows[:, first:last]).sum(dim=1)
    return total.real if rows.is_complex() else total
