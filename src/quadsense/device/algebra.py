"""The dense algebra on a device: what `cholesky` and `products` of `core` do by LAPACK.

A function of theirs is decorated with `or_there`, which names the one of this module that takes its
place where its first argument is on a device; tests/core/test_dense_algebra.py asks both the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from quadsense.device.array import DeviceArray, Tensor
from quadsense.system.watch import look

SQRT2 = math.sqrt(2.0)


@lru_cache(maxsize=16)
def _upper(n: int, device: Any) -> tuple[Tensor, Tensor]:
    """Return indices above the diagonal, by rows; kept, for they are as large as what is packed."""
    import torch

    index = torch.triu_indices(n, n, offset=1, device=device)
    return index[0], index[1]


def pack(A: DeviceArray) -> DeviceArray:
    """See `products.pack`."""
    import torch

    own = A.tensor
    above = own[_upper(len(own), own.device)]
    diagonal = own.diagonal()
    if not own.is_complex():
        return DeviceArray(torch.cat([diagonal, SQRT2 * above]))
    return DeviceArray(torch.cat([diagonal.real, SQRT2 * above.real, SQRT2 * above.imag]))


def unpack(x: DeviceArray, n: int, dtype: Any) -> DeviceArray:
    """See `products.unpack`."""
    import torch

    own = x.tensor
    count = n * (n - 1) // 2
    values = own[n : n + count] / SQRT2
    if np.dtype(dtype).kind == "c":
        values = torch.complex(values, own[n + count :] / SQRT2)
    A = torch.zeros((n, n), dtype=values.dtype, device=own.device)
    A[_upper(n, own.device)] = values
    A = A + A.mH
    A.diagonal().copy_(own[:n])
    return DeviceArray(A)


def entries(H: DeviceArray, twice: bool) -> DeviceArray:
    """See `products.entries`."""
    import torch

    own = H.tensor
    above = own[_upper(len(own), own.device)]
    return DeviceArray(torch.cat([own.diagonal(), above, *([above] if twice else [])]))


def features(rows: DeviceArray, dtype: Any = None, room: Any = None) -> DeviceArray:
    """See `products.features`; in float64 unless another type is given."""
    import torch

    own = rows.tensor
    first, second = _upper(own.shape[1], own.device)
    kind = getattr(torch, np.dtype(np.float64 if dtype is None else dtype).name)
    if not own.is_complex():
        own = own.to(kind)
        return DeviceArray(torch.cat([own * own, (SQRT2 * own)[:, first] * own[:, second]], dim=1))
    squares = own.real**2 + own.imag**2
    pairs = SQRT2 * own[:, first] * own[:, second].conj()
    return DeviceArray(torch.cat([squares, pairs.real, pairs.imag], dim=1).to(kind))


def summed_products(
    first: DeviceArray, rest: Iterator[DeviceArray], size: int, dtype: Any
) -> DeviceArray:
    """See `products.summed_products`: the upper triangle of the sum of ``part^T part``."""
    import torch

    kind = getattr(torch, np.dtype(dtype).name)
    total = torch.zeros((size, size), dtype=kind, device=first.tensor.device)
    for part in chain((first,), rest):
        look()
        own = part.tensor
        for begin, end in column_blocks(size):
            total[:end, begin:end].addmm_(own[:, :end].T, own[:, begin:end])
    return DeviceArray(total)


def inner_upper(X: DeviceArray) -> DeviceArray:
    """See `cholesky.inner_upper`."""
    return summed_products(X, iter(()), X.shape[1], X.dtype)


def adjoint(U: DeviceArray, y: DeviceArray, dtype: Any = None) -> DeviceArray:
    """See `products.adjoint`."""
    return DeviceArray(sum_of_rows(U.tensor, y.tensor))


def forward(U: DeviceArray, S: DeviceArray, dtype: Any = None) -> DeviceArray:
    """See `products.forward`."""
    columns = list(upper_columns(S.tensor))
    return DeviceArray(forward_upper(U.tensor, columns))


def product(M: DeviceArray, x: DeviceArray) -> DeviceArray:
    """Return ``M x`` for a symmetric M that is whole."""
    return M @ x


def symmetric(M: DeviceArray) -> DeviceArray:
    """See `cholesky.symmetric`: from the upper triangle."""
    return np.triu(M) + np.triu(M, 1).T


def add_inner(M: DeviceArray, X: DeviceArray) -> DeviceArray:
    """See `cholesky.add_inner`."""
    return M + X.T @ X


def add_to_diagonal(M: DeviceArray, value: DeviceArray | float) -> None:
    """See `cholesky.add_to_diagonal`."""
    M.tensor.diagonal().add_(value.tensor if isinstance(value, DeviceArray) else value)


def set_diagonal(M: DeviceArray, values: DeviceArray) -> None:
    """See `cholesky.set_diagonal`."""
    M.tensor.diagonal().copy_(values.tensor)


def squared_moduli(U: DeviceArray) -> DeviceArray:
    """See `cholesky.squared_moduli`."""
    return np.abs(U @ U.conj().T) ** 2


def least_eigenvalue(M: DeviceArray) -> Any:
    """See `cholesky.least_eigenvalue`."""
    return np.linalg.eigvalsh(M)[0]


def singular(M: DeviceArray) -> Any:
    """See `cholesky.singular`."""
    return np.linalg.svd(M)


def factor_upper(M: DeviceArray) -> tuple[DeviceArray, int]:
    """See `cholesky.factor_upper`; M is left as it is."""
    import torch

    # From the lower triangle of the transpose: only the upper one of M is right.
    lower, info = torch.linalg.cholesky_ex(M.tensor.mH)
    return DeviceArray(lower.mH), int(info)


def solve_upper(R: DeviceArray, x: DeviceArray) -> DeviceArray:
    """See `cholesky.solve_upper`."""
    import torch

    right = x.tensor[:, None] if x.ndim == 1 else x.tensor
    found = torch.cholesky_solve(right.to(R.tensor.dtype), R.tensor.contiguous(), upper=True)
    return DeviceArray(found[:, 0] if x.ndim == 1 else found)


def inverse_upper(R: DeviceArray) -> DeviceArray:
    """See `cholesky.inverse_upper`."""
    import torch

    return DeviceArray(torch.cholesky_inverse(R.tensor.contiguous(), upper=True))


def cholesky(B: DeviceArray) -> DeviceArray | None:
    """Return L with ``B = L L*``, or None where B is not positive definite."""
    import torch

    lower, info = torch.linalg.cholesky_ex(B.tensor)
    definite = (info == 0) & torch.isfinite(lower.diagonal().real).all()
    return DeviceArray(lower) if bool(definite) else None


def factor_lower(S: DeviceArray) -> DeviceArray:
    """See `cholesky.factor_lower`."""
    found = cholesky(S)
    if found is None:
        raise np.linalg.LinAlgError("not positive definite")
    return found


def solve_definite(K: DeviceArray, right: DeviceArray) -> DeviceArray:
    """See `cholesky.solve_definite`."""
    R, info = factor_upper(K)
    if info != 0:
        raise np.linalg.LinAlgError("not positive definite")
    return solve_upper(R, right)


def solve_lower(L: DeviceArray, right: DeviceArray) -> DeviceArray:
    """See `cholesky.solve_lower`."""
    return _solved(L.tensor, right, upper=False)


def solve_lower_transposed(L: DeviceArray, right: DeviceArray) -> DeviceArray:
    """See `cholesky.solve_lower_transposed`."""
    return _solved(L.tensor.mH, right, upper=True)


def _solved(T: Tensor, right: DeviceArray, upper: bool) -> DeviceArray:
    """Return ``T^-1 right`` for a triangular T."""
    import torch

    columns = right.tensor[:, None] if right.ndim == 1 else right.tensor
    found = torch.linalg.solve_triangular(T, columns, upper=upper)
    return DeviceArray(found[:, 0] if right.ndim == 1 else found)


"""A torch tensor; torch is imported by those who make them."""

MAX_BLOCKS = 8
"""Blocks of columns: more save flops, fewer run faster. On an H200, .61 of the plain time."""

MAX_SINGLE_BLOCKS = 4
"""The same in single precision, where products of TF32 take less time than the rest."""

MIN_COLUMNS = 128
"""Columns that a block has at least, for products that run at full speed."""


def column_blocks(n: int, blocks: int = MAX_BLOCKS) -> list[tuple[int, int]]:
    """Return the first and last column of every block."""
    width = max(MIN_COLUMNS, -(-n // blocks))
    return [(first, min(first + width, n)) for first in range(0, n, width)]


def _blocks_of(rows: Tensor) -> list[tuple[int, int]]:
    """Return those of rows, or of an (n, n), in the precision that they are of."""
    import torch

    single = rows.real.dtype == torch.float32
    return column_blocks(rows.shape[1], MAX_SINGLE_BLOCKS if single else MAX_BLOCKS)


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


def sum_of_rows(rows: Tensor, weights: Tensor) -> Tensor:
    """Return ``sum_i y_i u_i u_i*``."""
    total = rows.new_zeros((rows.shape[1], rows.shape[1]))
    adjoint_upper(total, rows, weights)
    return mirrored(total)


def mirrored(total: Tensor) -> Tensor:
    """Return the Hermitian matrix of which only the upper blocks are right; `total` is changed."""
    for first, last in _blocks_of(total):
        total[last:, first:last] = total[first:last, last:].mH
        corner = total[first:last, first:last]
        total[first:last, first:last] = 0.5 * (corner + corner.mH)
    return total


def upper_columns(S: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Yield blocks of columns whose products with rows, summed, are ``u* S u`` (its real part).

    What is above a block on the diagonal counts twice, what is below not at all.
    """
    S = 0.5 * (S + S.mH)
    for first, last in _blocks_of(S):
        block = S[:last, first:last].clone()
        block[:first] *= 2.0
        yield first, last, block


def forward_upper(rows: Tensor, columns: list[tuple[int, int, Tensor]]) -> Tensor:
    """Return ``u_i* S u_i`` for some rows, from the blocks of `upper_columns`: (k, n) to (k,)."""
    left = rows.conj() if rows.is_complex() else rows
    total = rows.new_zeros(rows.shape[0])
    for first, last, block in columns:
        total += ((left[:, :last] @ block) * rows[:, first:last]).sum(dim=1)
    return total.real if rows.is_complex() else total
