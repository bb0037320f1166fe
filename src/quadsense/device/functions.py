"""Functions of NumPy's that are no universal ones, by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.device.array import (
    FUNCTIONS,
    UFUNCS,
    DeviceArray,
    NotOnDevice,
    Tensor,
    both,
    first,
    next_to,
    torch_module,
    type_of,
)


def _of(function: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say that this is what a function of NumPy's is on a device."""

    def note(own: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[function] = own
        return own

    return note


@_of(np.sum)
def _sum(a: Any, axis: Any = None, **rest: Any) -> DeviceArray:
    if rest:
        raise NotOnDevice
    own = a.tensor
    return DeviceArray(own.sum() if axis is None else own.sum(dim=axis))


def _extreme(word: str, pick: Any) -> Callable[..., Any]:
    def extreme(
        a: Any, axis: Any = None, initial: Any = None, where: Any = None, **rest: Any
    ) -> Any:
        if rest:
            raise NotOnDevice
        own = (a if where is None else _where(where, a, float(initial))).tensor
        if initial is not None and axis is None and not own.numel():
            return initial
        found = getattr(own, word)() if axis is None else getattr(own, word)(dim=axis)
        if initial is None:
            return DeviceArray(found)
        return pick(DeviceArray(found), float(initial))

    return extreme


_largest = _of(np.max)(_extreme("amax", np.maximum))
_smallest = _of(np.min)(_extreme("amin", np.minimum))


@_of(np.any)
def _any(a: Any, axis: Any = None) -> DeviceArray:
    return a.any(axis)


@_of(np.all)
def _all(a: Any, axis: Any = None) -> DeviceArray:
    return a.all(axis)


@_of(np.mean)
def _mean(a: Any, axis: Any = None) -> DeviceArray:
    return a.mean(axis)


@_of(np.count_nonzero)
def _count(a: Any) -> int:
    return int(torch_module().count_nonzero(a.tensor))


@_of(np.flatnonzero)
def _flatnonzero(a: Any) -> npt.NDArray[np.int64]:
    """On the host, where numbers of rows are kept; those of `np.nonzero` stay on the device."""
    return np.asarray(torch_module().nonzero(a.tensor.reshape(-1)).reshape(-1).cpu().numpy())


@_of(np.nonzero)
def _nonzero(a: Any) -> tuple[DeviceArray, ...]:
    return tuple(map(DeviceArray, torch_module().nonzero(a.tensor, as_tuple=True)))


@_of(np.array_equal)
def _array_equal(a: Any, b: Any) -> bool:
    left, right = both(a, b)
    return bool(torch_module().equal(left, right))


@_of(np.argmax)
def _argmax(a: Any, **rest: Any) -> int:
    if rest or a.dtype.kind == "b":
        raise NotOnDevice
    return int(torch_module().argmax(a.tensor))


@_of(np.where)
def _where(condition: Any, *choices: Any) -> DeviceArray:
    if len(choices) != 2:
        raise NotOnDevice
    tensor = first(condition, *choices)
    device = tensor.device
    torch = torch_module()
    asked = next_to(condition, tensor)
    asked = asked if torch.is_tensor(asked) else torch.as_tensor(asked, device=device)
    a, b = (next_to(each, tensor) for each in choices)
    if not torch.is_tensor(a) and not torch.is_tensor(b):
        a = torch.as_tensor(a, device=device, dtype=torch.float64)
    return DeviceArray(torch.where(asked, a, b))


@_of(np.clip)
def _clip(a: Any, low: Any = None, high: Any = None, **rest: Any) -> DeviceArray:
    if rest:
        raise NotOnDevice
    for end, pick in ((low, np.maximum), (high, np.minimum)):
        a = a if end is None else pick(a, end)
    return a


@_of(np.dot)
def _dot(a: Any, b: Any) -> DeviceArray:
    return UFUNCS["matmul"](a, b)


@_of(np.vdot)
def _vdot(a: Any, b: Any) -> DeviceArray:
    left, right = both(a, b)
    return DeviceArray(torch_module().vdot(left.reshape(-1), right.reshape(-1)))


@_of(np.outer)
def _outer(a: Any, b: Any) -> DeviceArray:
    left, right = both(a, b)
    return DeviceArray(torch_module().outer(left, right))


@_of(np.einsum)
def _einsum(pattern: str, *operands: Any, out: Any = None) -> DeviceArray:
    tensor = first(*operands)
    if pattern in ("ij,ij->i", "ki,ki->i", "kij,kij->i"):  # sums of products: no matrix product
        a, b = (next_to(each, tensor) for each in operands)
        dims = [k for k, letter in enumerate(pattern.split(",")[0]) if letter != "i"]
        return _into(out, (a * b).sum(dim=dims))
    found = torch_module().einsum(pattern, *(next_to(each, tensor) for each in operands))
    return _into(out, found)


def _into(out: Any, found: Tensor) -> DeviceArray:
    if out is None:
        return DeviceArray(found)
    out.tensor.copy_(found)
    return out


@_of(np.trace)
def _trace(a: Any) -> DeviceArray:
    return DeviceArray(a.tensor.diagonal().sum())


@_of(np.diagonal)
def _diagonal(a: Any) -> DeviceArray:
    return a.diagonal()


@_of(np.diag)
def _diag(a: Any) -> DeviceArray:
    return DeviceArray(torch_module().diag(a.tensor))


@_of(np.real)
def _real(a: Any) -> DeviceArray:
    return a.real


@_of(np.iscomplexobj)
def _is_complex(a: Any) -> bool:
    return bool(a.tensor.is_complex())


@_of(np.ndim)
def _ndim(a: Any) -> int:
    return a.ndim


@_of(np.size)
def _size(a: Any) -> int:
    return a.size


@_of(np.shape)
def _shape(a: Any) -> tuple[int, ...]:
    return a.shape


@_of(np.copy)
def _copy(a: Any) -> DeviceArray:
    return a.copy()


@_of(np.astype)
def _astype(a: Any, dtype: Any, copy: bool = True, **rest: Any) -> DeviceArray:
    return a.astype(dtype, copy=copy)


@_of(np.full_like)
def _full(a: Any, value: Any, dtype: Any = None, shape: Any = None, **rest: Any) -> DeviceArray:
    own = a.tensor
    kind = own.dtype if dtype is None else type_of(dtype)
    size = own.shape if shape is None else shape
    return DeviceArray(torch_module().full(size, value, dtype=kind, device=own.device))


@_of(np.empty_like)
def _empty_like(a: Any, dtype: Any = None, shape: Any = None, **rest: Any) -> DeviceArray:
    own = a.tensor
    kind = own.dtype if dtype is None else type_of(dtype)
    size = own.shape if shape is None else shape
    return DeviceArray(torch_module().empty(size, dtype=kind, device=own.device))


@_of(np.zeros_like)
def _zeros_like(a: Any, dtype: Any = None, shape: Any = None, **rest: Any) -> DeviceArray:
    return _full(a, 0, dtype, shape)


@_of(np.ones_like)
def _ones_like(a: Any, dtype: Any = None, shape: Any = None, **rest: Any) -> DeviceArray:
    return _full(a, 1, dtype, shape)


@_of(np.concatenate)
def _concatenate(arrays: Any, axis: int = 0) -> DeviceArray:
    tensor = first(*arrays)
    return DeviceArray(torch_module().cat([next_to(each, tensor) for each in arrays], dim=axis))


@_of(np.append)
def _append(a: Any, b: Any) -> DeviceArray:
    tensor = first(a, b)
    torch = torch_module()
    parts = (
        torch.as_tensor(next_to(each, tensor), device=tensor.device).reshape(-1) for each in (a, b)
    )
    return DeviceArray(torch.cat(list(parts)))


@_of(np.stack)
def _stack(arrays: Any, axis: int = 0) -> DeviceArray:
    tensor = first(*arrays)
    return DeviceArray(torch_module().stack([next_to(each, tensor) for each in arrays], dim=axis))


@_of(np.partition)
def _partition(a: Any, kth: int) -> DeviceArray:
    return DeviceArray(torch_module().sort(a.tensor).values)


@_of(np.take)
def _take(a: Any, index: Any, axis: int | None = None, **rest: Any) -> DeviceArray:
    if rest:
        raise NotOnDevice
    tensor = first(a, index)
    held, chosen = next_to(a, tensor), next_to(index, tensor)
    return DeviceArray(held[chosen] if axis in (None, 0) else held.index_select(axis, chosen))


@_of(np.triu)
def _triu(a: Any, k: int = 0) -> DeviceArray:
    return DeviceArray(a.tensor.triu(k))


@_of(np.tril)
def _tril(a: Any, k: int = 0) -> DeviceArray:
    return DeviceArray(a.tensor.tril(k))


@_of(np.cumsum)
def _cumsum(a: Any) -> DeviceArray:
    return DeviceArray(a.tensor.cumsum(dim=0))


@_of(np.linalg.norm)
def _norm(a: Any, axis: Any = None, **rest: Any) -> DeviceArray:
    if rest:
        raise NotOnDevice
    return DeviceArray(torch_module().linalg.vector_norm(a.tensor, dim=axis))


def _decomposed(name: str, a: Any, **named: Any) -> Any:
    """Return a function of ``torch.linalg``, whose failures are NumPy's."""
    try:
        found = getattr(torch_module().linalg, name)(a.tensor, **named)
    except RuntimeError as error:
        if "out of memory" in str(error):
            raise
        raise np.linalg.LinAlgError(str(error).partition("\n")[0]) from None
    if isinstance(found, tuple):
        return tuple(DeviceArray(part) for part in found)
    return DeviceArray(found)


@_of(np.linalg.eigh)
def _eigh(a: Any) -> tuple[DeviceArray, DeviceArray]:
    return _decomposed("eigh", a)


@_of(np.linalg.eigvalsh)
def _eigvalsh(a: Any) -> DeviceArray:
    return _decomposed("eigvalsh", a)


@_of(np.linalg.cholesky)
def _cholesky(a: Any) -> DeviceArray:
    return _decomposed("cholesky", a)


@_of(np.linalg.inv)
def _inv(a: Any) -> DeviceArray:
    return _decomposed("inv", a)


@_of(np.linalg.qr)
def _qr(a: Any) -> tuple[DeviceArray, DeviceArray]:
    return _decomposed("qr", a)


@_of(np.linalg.svd)
def _svd(a: Any, full_matrices: bool = True) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    return _decomposed("svd", a, full_matrices=full_matrices)
