"""The dense algebra on a device: what `packed` and `cholesky` do for arrays of NumPy, by torch.

Those two know which of the two an array is and call this; tests/test_dense_algebra.py asks both the
same.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from quadsense.core import tensor_products
from quadsense.device import DeviceArray
from quadsense.system.watch import look

Tensor = Any
"""A torch tensor."""


@lru_cache(maxsize=16)
def _upper(n: int, device: Any) -> tuple[Tensor, Tensor]:
    """Indices above the diagonal, by rows; kept, for they are as large as what is packed."""
    import torch

    index = torch.triu_indices(n, n, offset=1, device=device)
    return index[0], index[1]


def pack(A: DeviceArray, root: float) -> DeviceArray:
    """See `packed.pack`; `root` is that of 2."""
    import torch

    own = A.tensor
    above = own[_upper(len(own), own.device)]
    diagonal = own.diagonal()
    if not own.is_complex():
        return DeviceArray(torch.cat([diagonal, root * above]))
    return DeviceArray(torch.cat([diagonal.real, root * above.real, root * above.imag]))


def unpack(x: DeviceArray, n: int, is_complex: bool, root: float) -> DeviceArray:
    """See `packed.unpack`."""
    import torch

    own = x.tensor
    count = n * (n - 1) // 2
    values = own[n : n + count] / root
    if is_complex:
        values = torch.complex(values, own[n + count :] / root)
    A = torch.zeros((n, n), dtype=values.dtype, device=own.device)
    A[_upper(n, own.device)] = values
    A = A + A.mH
    A.diagonal().copy_(own[:n])
    return DeviceArray(A)


def entries(H: DeviceArray, twice: bool) -> DeviceArray:
    """See `packed.entries`."""
    import torch

    own = H.tensor
    above = own[_upper(len(own), own.device)]
    return DeviceArray(torch.cat([own.diagonal(), above, *([above] if twice else [])]))


def features(rows: DeviceArray, dtype: Any, root: float) -> DeviceArray:
    """See `packed.features`."""
    import torch

    own = rows.tensor
    first, second = _upper(own.shape[1], own.device)
    kind = getattr(torch, dtype.name)
    if not own.is_complex():
        own = own.to(kind)
        return DeviceArray(torch.cat([own * own, (root * own)[:, first] * own[:, second]], dim=1))
    squares = own.real**2 + own.imag**2
    pairs = root * own[:, first] * own[:, second].conj()
    return DeviceArray(torch.cat([squares, pairs.real, pairs.imag], dim=1).to(kind))


def summed_products(parts: Iterable[DeviceArray], size: int, dtype: Any) -> DeviceArray:
    """See `packed.summed_products`: the upper triangle of the sum of ``part^T part``."""
    import torch

    total: Tensor = None
    for part in parts:
        look()
        own = part.tensor
        if total is None:
            total = torch.zeros((size, size), dtype=getattr(torch, dtype.name), device=own.device)
        for first, last in tensor_products.column_blocks(size):
            total[:last, first:last].addmm_(own[:, :last].T, own[:, first:last])
    return DeviceArray(total)


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


def solve_triangular(
    T: DeviceArray, right: DeviceArray, lower: bool, adjoint: bool = False
) -> DeviceArray:
    """``T^-1 right``, or that of the conjugate transpose of T."""
    import torch

    own = T.tensor.mH if adjoint else T.tensor
    columns = right.tensor[:, None] if right.ndim == 1 else right.tensor
    found = torch.linalg.solve_triangular(own, columns, upper=lower == adjoint)
    return DeviceArray(found[:, 0] if right.ndim == 1 else found)
