"""NumPy's functions on the arrays of a GPU, by NumPy's own protocols.

Methods are written once, for NumPy. Given a `DeviceArray` in place of an array, what they say with
``np.abs(z)``, ``z @ q`` or ``np.linalg.eigh(A)`` is done by torch where the array lives
[NEP 13, NEP 18]. Reductions stay there too, as arrays of no dimension: only ``float``, ``bool`` and
``int`` of one wait for the device. A function that torch is not told of below is NumPy's, on a copy
in the memory of the host, so that nothing is wrong, but slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

Tensor = Any
"""A torch tensor; torch is imported by those who make them."""


class Flags(NamedTuple):
    """Those of an array that methods ask for."""

    writeable: bool
    c_contiguous: bool
    f_contiguous: bool


class DeviceArray(NDArrayOperatorsMixin):
    """A torch tensor that NumPy's functions take.

    Parameters
    ----------
    tensor : torch.Tensor
    """

    __slots__ = ("tensor",)
    __array_priority__ = 1000.0

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    # --- what an array says of itself --------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return int(self.tensor.ndim)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.tensor.numel())

    @property
    def dtype(self) -> np.dtype[Any]:
        """As NumPy has it."""
        return np.dtype(str(self.tensor.dtype).removeprefix("torch."))

    @property
    def itemsize(self) -> int:
        """Bytes of an entry."""
        return int(self.tensor.element_size())

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.size * self.itemsize

    @property
    def T(self) -> DeviceArray:
        """Transposed."""
        return DeviceArray(self.tensor.T if self.ndim == 2 else self.tensor)

    @property
    def real(self) -> DeviceArray:
        """Real part: a view."""
        return DeviceArray(self.tensor.real)

    @property
    def imag(self) -> DeviceArray:
        """Imaginary part; zeros of a real array."""
        own = self.tensor
        return DeviceArray(own.imag if own.is_complex() else _torch().zeros_like(own))

    def __len__(self) -> int:
        """Length of the first dimension."""
        return int(self.tensor.shape[0])

    def __repr__(self) -> str:
        """Shape, type and device."""
        return f"DeviceArray({self.shape}, {self.dtype}, {self.tensor.device})"

    @property
    def flags(self) -> Flags:
        """Whether it may be written to, and how it lies in memory."""
        own = self.tensor
        lies = bool(own.is_contiguous()), self.ndim == 2 and bool(own.T.is_contiguous())
        return Flags(True, *lies)

    # --- to the host -------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """A copy in the memory of the host."""
        found = self.tensor.cpu().resolve_conj().resolve_neg().numpy()
        if copy or self.tensor.device.type == "cpu":  # as from any device: a copy
            found = found.copy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __float__(self) -> float:
        """Of the only entry."""
        return float(self.tensor.item())

    def __int__(self) -> int:
        """Of the only entry."""
        return int(self.tensor.item())

    def __complex__(self) -> complex:
        """Of the only entry."""
        return complex(self.tensor.item())

    def __bool__(self) -> bool:
        """Of the only entry."""
        return bool(self.tensor.item())

    def __index__(self) -> int:
        """Of a whole number, of no dimension: else NumPy would take a mask of one entry for it."""
        if self.ndim or self.dtype.kind not in "iu":
            raise TypeError("only a whole number is an index")
        return int(self.tensor.item())

    def item(self) -> Any:
        """The only entry."""
        return self.tensor.item()

    def tolist(self) -> Any:
        """As lists."""
        return self.tensor.tolist()

    def __iter__(self) -> Iterator[DeviceArray]:
        """Rows."""
        return (DeviceArray(part) for part in self.tensor)

    # --- entries -----------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> DeviceArray:
        """As NumPy: slices are views, arrays of indices and truth values make copies."""
        key, turned = _forwards(key, self.shape)
        found = self.tensor[_key(key, self.tensor)]
        return DeviceArray(found.flip(turned) if turned else found)

    def __setitem__(self, key: Any, values: Any) -> None:
        """In place."""
        self.tensor[_key(key, self.tensor)] = _beside(values, self.tensor)

    # --- other arrays of the same ------------------------------------------------------------

    def astype(self, dtype: npt.DTypeLike, copy: bool = True, order: str = "K") -> DeviceArray:
        """In another type."""
        own = self.tensor
        if own.is_complex() and np.dtype(dtype).kind != "c":
            own = own.real
        return DeviceArray(own.to(_type(dtype), copy=copy))

    def copy(self, order: str = "C") -> DeviceArray:
        """A copy."""
        return DeviceArray(self.tensor.clone())

    def conj(self) -> DeviceArray:
        """Conjugated."""
        return DeviceArray(self.tensor.conj().resolve_conj())

    conjugate = conj

    def reshape(self, *shape: Any) -> DeviceArray:
        """In another shape."""
        return DeviceArray(self.tensor.reshape(*shape))

    def ravel(self) -> DeviceArray:
        """As a vector."""
        return DeviceArray(self.tensor.reshape(-1))

    def view(self, dtype: npt.DTypeLike) -> DeviceArray:
        """Complex numbers as pairs of real ones."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        if self.dtype.kind != "c" or wanted.kind != "f":
            raise TypeError(f"an array of {self.dtype} on a device is not seen as {wanted}")
        pairs = _torch().view_as_real(self.tensor.resolve_conj())
        return DeviceArray(pairs.reshape(*self.shape[:-1], -1))

    def diagonal(self) -> DeviceArray:
        """Of a matrix: a view."""
        return DeviceArray(self.tensor.diagonal())

    def fill(self, value: Any) -> None:
        """Every entry, in place."""
        self.tensor.fill_(value)

    # --- reductions --------------------------------------------------------------------------

    def sum(self, axis: Any = None) -> DeviceArray:
        """Sum."""
        return _sum(self, axis)

    def mean(self, axis: Any = None) -> DeviceArray:
        """Mean."""
        own = self.tensor
        return DeviceArray(own.mean() if axis is None else own.mean(dim=axis))

    def max(self, axis: Any = None, initial: Any = None) -> Any:
        """Largest entry."""
        return _largest(self, axis, initial)

    def min(self, axis: Any = None, initial: Any = None) -> Any:
        """Smallest entry."""
        return _smallest(self, axis, initial)

    def any(self, axis: Any = None) -> DeviceArray:
        """Whether some entry is not zero."""
        own = self.tensor
        return DeviceArray(own.any() if axis is None else own.any(dim=axis))

    def all(self, axis: Any = None) -> DeviceArray:
        """Whether no entry is zero."""
        own = self.tensor
        return DeviceArray(own.all() if axis is None else own.all(dim=axis))

    def dot(self, other: Any) -> DeviceArray:
        """Product."""
        return _matmul(self, other)

    # --- NumPy's protocols -------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """What a universal function is, done by torch or on the host."""
        out = named.pop("out", None)
        if out and isinstance(out[0], DeviceArray):
            named.pop("dtype", None)  # that of what it is written to
        if out and out[0] is inputs[0] and _in_place(ufunc.__name__, method, named, *inputs):
            return out[0]
        own = UFUNCS.get(ufunc.__name__) if method == "__call__" else None
        partly = bool(out) and named.keys() == {"where"}
        if own is None or (named and not partly):
            found = getattr(ufunc, method)(*map(_on_host, inputs), **_each_on_host(named))
            found = on_device(found, self) if isinstance(found, np.ndarray) else found
        elif partly:
            found = _where(named["where"], own(*inputs), out[0])
        else:
            found = own(*inputs)
        if out is None:
            return found
        (target,) = out
        if isinstance(target, DeviceArray):
            target.tensor.copy_(_beside(found, target.tensor))
        else:
            target[...] = found
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What a function of NumPy's is, done by torch or on the host."""
        own = FUNCTIONS.get(function)
        if own is not None:
            try:
                return own(*args, **kwargs)
            except NotOnDevice:
                pass
        return function(*map(_on_host, args), **_each_on_host(kwargs))


class NotOnDevice(TypeError):
    """A function with arguments that are left to NumPy."""


def _torch() -> Any:
    import torch

    return torch


def _type(dtype: Any) -> Any:
    return getattr(_torch(), np.dtype(dtype).name)


def on_device(values: Any, other: DeviceArray) -> DeviceArray:
    """An array of the host on the device of another."""
    if isinstance(values, DeviceArray):
        return values
    return DeviceArray(_tensor(values, other.tensor.device))


def numbers(*values: Any) -> tuple[float, ...]:
    """Numbers of no dimension as Python's: those on a device come over together."""
    there = [value.tensor for value in values if isinstance(value, DeviceArray)]
    if not there:
        return tuple(map(float, values))
    torch = _torch()
    came = iter(torch.stack([each.real.to(torch.float64) for each in there]).tolist())
    return tuple(next(came) if isinstance(value, DeviceArray) else float(value) for value in values)


def scalar(value: Any) -> Any:
    """A number of no dimension: Python's own of NumPy's; one on a device is left there."""
    return value if isinstance(value, DeviceArray) else float(value)


def inverse(a: Any) -> Any:
    """``np.linalg.inv``; on a device nobody waits to hear that there is none."""
    if not isinstance(a, DeviceArray):
        return np.linalg.inv(a)
    return DeviceArray(_torch().linalg.inv_ex(a.tensor).inverse)


def chosen(condition: Any, a: Any, b: Any) -> Any:
    """`a` where a condition holds, else `b`: numbers, of which none on a device is waited for."""
    return (
        np.where(condition, a, b) if isinstance(condition, DeviceArray) else a if condition else b
    )


def _tensor(values: Any, device: Any) -> Tensor:
    # Memory that is not pinned is read before this returns: nobody waits for what was told before.
    return _torch().from_numpy(np.array(values, order="C")).to(device, non_blocking=True)


def _on_host(value: Any) -> Any:
    """The same with all arrays in the memory of the host."""
    if isinstance(value, DeviceArray):
        found = np.asarray(value)
        return found if found.ndim else found[()]
    if isinstance(value, list | tuple):
        return type(value)(map(_on_host, value))
    return value


def _each_on_host(named: dict[str, Any]) -> dict[str, Any]:
    return {key: _on_host(value) for key, value in named.items()}


def _beside(value: Any, tensor: Tensor) -> Any:
    """What an operation with a tensor takes: a tensor on its device, or a plain number."""
    if isinstance(value, DeviceArray):
        return value.tensor
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.item() if value.ndim == 0 else _tensor(value, tensor.device)
    if isinstance(value, list | tuple):
        return _tensor(value, tensor.device)
    return value


def _key(key: Any, tensor: Tensor) -> Any:
    """An index as torch wants it."""
    if isinstance(key, int | slice):  # nearly always
        return key
    if isinstance(key, tuple):
        return tuple(_key(part, tensor) for part in key)
    if isinstance(key, list):
        key = np.asarray(key)
    if isinstance(key, np.ndarray | DeviceArray):
        return _beside(key, tensor)
    return key if not isinstance(key, SupportsIndex) or isinstance(key, bool) else int(key)


def _forwards(key: Any, shape: tuple[int, ...]) -> tuple[Any, list[int]]:
    """An index whose slices run forwards, and the dimensions to turn round, for torch has none."""
    parts = key if isinstance(key, tuple) else (key,)
    if not any(isinstance(part, slice) and (part.step or 1) < 0 for part in parts):
        return key, []
    found: list[Any] = []
    turned: list[int] = []
    for part, size in zip(parts, shape, strict=False):
        if isinstance(part, slice) and (part.step or 1) < 0:
            taken = range(*part.indices(size))
            turned.append(sum(isinstance(each, slice) for each in found))
            part = slice(taken[-1], taken[0] + 1, -taken.step) if taken else slice(0, 0)
        found.append(part)
    return tuple(found), turned


def _device(*values: Any) -> Any:
    return next(value.tensor.device for value in values if isinstance(value, DeviceArray))


def _first(*values: Any) -> Tensor:
    return next(value.tensor for value in values if isinstance(value, DeviceArray))


def _both(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Two operands as tensors of one type."""
    torch, device = _torch(), _device(a, b)
    given = _first(a, b).dtype
    left, right = (_operand(value, given, device) for value in (a, b))
    if left.dtype != right.dtype:
        common = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(common), right.to(common)
    return left, right


def _operand(value: Any, beside: Any, device: Any) -> Tensor:
    """An operand as a tensor; a plain number in the type of what it stands beside, as NumPy."""
    if isinstance(value, DeviceArray):
        return value.tensor
    if isinstance(value, np.ndarray | list | tuple) and np.ndim(value):
        return _tensor(value, device)
    torch, number = _torch(), value.item() if hasattr(value, "item") else value
    if isinstance(number, bool):
        kind = torch.bool
    elif isinstance(number, int):
        kind = torch.int64 if beside == torch.bool else beside
    elif isinstance(number, float):
        kind = beside if beside.is_floating_point or beside.is_complex else torch.float64
    else:
        kind = torch.complex64 if beside == torch.float32 else torch.complex128
    return torch.tensor(number, dtype=kind)  # of no dimension: taken along, and nothing is sent


def _matmul(a: Any, b: Any) -> DeviceArray:
    left, right = _both(a, b)
    return DeviceArray(left @ right if left.ndim and right.ndim else left * right)


def _elementwise(name: str) -> Callable[..., DeviceArray]:
    """A function of one or two operands that torch has under this name."""

    def apply(*operands: Any) -> DeviceArray:
        torch, tensor = _torch(), _first(*operands)
        return DeviceArray(getattr(torch, name)(*(_beside(each, tensor) for each in operands)))

    return apply


def _operands(name: str) -> Callable[..., DeviceArray]:
    """The same where torch wants tensors only, of one type."""

    def apply(a: Any, b: Any) -> DeviceArray:
        left, right = _both(a, b)
        return DeviceArray(getattr(_torch(), name)(left, right))

    return apply


def _reciprocal_of(power: Callable[..., DeviceArray]) -> Callable[..., DeviceArray]:
    """Powers: torch has no whole numbers to negative ones, and squares are quicker as products."""

    def apply(a: Any, b: Any) -> DeviceArray:
        if isinstance(b, int | float) and b == 2:
            return DeviceArray(a.tensor * a.tensor)
        return power(a, b)

    return apply


IN_PLACE = {"add": "add_", "subtract": "sub_", "multiply": "mul_", "divide": "div_"}
"""What torch does in place: nothing is written twice."""


def _in_place(name: str, method: str, named: Any, target: Any, *others: Any) -> bool:
    """Do ``target += other`` and the like where that is safe: whether it was done."""
    if method != "__call__" or named or name not in IN_PLACE:
        return False
    if not isinstance(target, DeviceArray) or target.dtype.kind not in "fc":
        return False
    torch, own, other = _torch(), target.tensor, _beside(others[0], target.tensor)
    if torch.is_tensor(other) and _memory(other) == _memory(own):
        return False  # parts of one array that may overlap: NumPy takes care of that, torch not
    if torch.result_type(own, other) != own.dtype:
        return False
    getattr(own, IN_PLACE[name])(other)
    return True


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


UFUNCS: dict[str, Callable[..., Any]] = {
    "add": _elementwise("add"),
    "subtract": _operands("subtract"),
    "multiply": _elementwise("mul"),
    "divide": _operands("true_divide"),
    "power": _reciprocal_of(_operands("pow")),
    "matmul": _matmul,
    "vecdot": lambda a, b: _vecdot(a, b),
    "negative": _elementwise("neg"),
    "positive": lambda a: a,
    "absolute": _elementwise("abs"),
    "fabs": _elementwise("abs"),
    "sqrt": _elementwise("sqrt"),
    "square": _elementwise("square"),
    "exp": _elementwise("exp"),
    "log": _elementwise("log"),
    "sign": _elementwise("sign"),
    "conjugate": lambda a: a.conj(),
    "isfinite": _elementwise("isfinite"),
    "isnan": _elementwise("isnan"),
    "maximum": _operands("maximum"),
    "minimum": _operands("minimum"),
    "less": _operands("less"),
    "less_equal": _operands("less_equal"),
    "greater": _operands("greater"),
    "greater_equal": _operands("greater_equal"),
    "equal": _operands("eq"),
    "not_equal": _operands("ne"),
    "logical_and": _operands("logical_and"),
    "logical_or": _operands("logical_or"),
    "logical_not": _elementwise("logical_not"),
    "bitwise_and": _operands("bitwise_and"),
    "bitwise_or": _operands("bitwise_or"),
    "bitwise_xor": _operands("bitwise_xor"),
    "invert": _elementwise("bitwise_not"),
    "copysign": _operands("copysign"),
    "hypot": _operands("hypot"),
    "clip": lambda a, low, high: _clip(a, low, high),
}
"""Universal functions by name; those of two arrays give no warnings, as with `errstate`."""


def _vecdot(a: Any, b: Any) -> DeviceArray:
    left, right = _both(a, b)
    return DeviceArray(_torch().linalg.vecdot(left, right, dim=-1))


FUNCTIONS: dict[Any, Callable[..., Any]] = {}


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
    return int(_torch().count_nonzero(a.tensor))


@_of(np.flatnonzero)
def _flatnonzero(a: Any) -> npt.NDArray[np.int64]:
    """On the host, where numbers of rows are kept; those of `np.nonzero` stay on the device."""
    return np.asarray(_torch().nonzero(a.tensor.reshape(-1)).reshape(-1).cpu().numpy())


@_of(np.nonzero)
def _nonzero(a: Any) -> tuple[DeviceArray, ...]:
    return tuple(map(DeviceArray, _torch().nonzero(a.tensor, as_tuple=True)))


@_of(np.array_equal)
def _array_equal(a: Any, b: Any) -> bool:
    left, right = _both(a, b)
    return bool(_torch().equal(left, right))


@_of(np.argmax)
def _argmax(a: Any, **rest: Any) -> int:
    if rest or a.dtype.kind == "b":
        raise NotOnDevice
    return int(_torch().argmax(a.tensor))


@_of(np.where)
def _where(condition: Any, *choices: Any) -> DeviceArray:
    if len(choices) != 2:
        raise NotOnDevice
    tensor = _first(condition, *choices)
    device = tensor.device
    torch = _torch()
    asked = _beside(condition, tensor)
    asked = asked if torch.is_tensor(asked) else torch.as_tensor(asked, device=device)
    a, b = (_beside(each, tensor) for each in choices)
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
    return _matmul(a, b)


@_of(np.vdot)
def _vdot(a: Any, b: Any) -> DeviceArray:
    left, right = _both(a, b)
    return DeviceArray(_torch().vdot(left.reshape(-1), right.reshape(-1)))


@_of(np.outer)
def _outer(a: Any, b: Any) -> DeviceArray:
    left, right = _both(a, b)
    return DeviceArray(_torch().outer(left, right))


@_of(np.einsum)
def _einsum(pattern: str, *operands: Any, out: Any = None) -> DeviceArray:
    tensor = _first(*operands)
    if pattern in ("ij,ij->i", "ki,ki->i", "kij,kij->i"):  # sums of products: no matrix product
        a, b = (_beside(each, tensor) for each in operands)
        dims = [k for k, letter in enumerate(pattern.split(",")[0]) if letter != "i"]
        return _into(out, (a * b).sum(dim=dims))
    found = _torch().einsum(pattern, *(_beside(each, tensor) for each in operands))
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
    return DeviceArray(_torch().diag(a.tensor))


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
    kind = own.dtype if dtype is None else _type(dtype)
    size = own.shape if shape is None else shape
    return DeviceArray(_torch().full(size, value, dtype=kind, device=own.device))


@_of(np.empty_like)
def _empty_like(a: Any, dtype: Any = None, shape: Any = None, **rest: Any) -> DeviceArray:
    own = a.tensor
    kind = own.dtype if dtype is None else _type(dtype)
    size = own.shape if shape is None else shape
    return DeviceArray(_torch().empty(size, dtype=kind, device=own.device))


@_of(np.zeros_like)
def _zeros_like(a: Any, dtype: Any = None, shape: Any = None, **rest: Any) -> DeviceArray:
    return _full(a, 0, dtype, shape)


@_of(np.ones_like)
def _ones_like(a: Any, dtype: Any = None, shape: Any = None, **rest: Any) -> DeviceArray:
    return _full(a, 1, dtype, shape)


@_of(np.concatenate)
def _concatenate(arrays: Any, axis: int = 0) -> DeviceArray:
    tensor = _first(*arrays)
    return DeviceArray(_torch().cat([_beside(each, tensor) for each in arrays], dim=axis))


@_of(np.append)
def _append(a: Any, b: Any) -> DeviceArray:
    tensor = _first(a, b)
    torch = _torch()
    parts = (
        torch.as_tensor(_beside(each, tensor), device=tensor.device).reshape(-1) for each in (a, b)
    )
    return DeviceArray(torch.cat(list(parts)))


@_of(np.stack)
def _stack(arrays: Any, axis: int = 0) -> DeviceArray:
    tensor = _first(*arrays)
    return DeviceArray(_torch().stack([_beside(each, tensor) for each in arrays], dim=axis))


@_of(np.partition)
def _partition(a: Any, kth: int) -> DeviceArray:
    return DeviceArray(_torch().sort(a.tensor).values)


@_of(np.take)
def _take(a: Any, index: Any, axis: int | None = None, **rest: Any) -> DeviceArray:
    if rest:
        raise NotOnDevice
    tensor = _first(a, index)
    held, chosen = _beside(a, tensor), _beside(index, tensor)
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
    return DeviceArray(_torch().linalg.vector_norm(a.tensor, dim=axis))


def _decomposed(name: str, a: Any, **named: Any) -> Any:
    """A function of ``torch.linalg``, whose failures are NumPy's."""
    try:
        found = getattr(_torch().linalg, name)(a.tensor, **named)
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
