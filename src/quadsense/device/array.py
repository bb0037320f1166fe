"""An array on a GPU as NumPy's functions take it, and what crosses to it and from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from quadsense.arrays import placed

Tensor = Any
"""A torch tensor; torch is imported by those who make them."""


UFUNCS: dict[str, Callable[..., Any]] = {}
"""What torch does for universal functions, by name: see `ufuncs`."""

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""What torch does for other functions of NumPy's: see `functions`."""


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
        return DeviceArray(own.imag if own.is_complex() else torch_module().zeros_like(own))

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
        """Return the only entry."""
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
        self.tensor[_key(key, self.tensor)] = next_to(values, self.tensor)

    # --- other arrays of the same ------------------------------------------------------------

    def astype(self, dtype: npt.DTypeLike, copy: bool = True, order: str = "K") -> DeviceArray:
        """In another type."""
        own = self.tensor
        if own.is_complex() and np.dtype(dtype).kind != "c":
            own = own.real
        return DeviceArray(own.to(type_of(dtype), copy=copy))

    def copy(self, order: str = "C") -> DeviceArray:
        """Return a copy."""
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
        """Return complex numbers as pairs of real ones."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        if self.dtype.kind != "c" or wanted.kind != "f":
            raise TypeError(f"an array of {self.dtype} on a device is not seen as {wanted}")
        pairs = torch_module().view_as_real(self.tensor.resolve_conj())
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
        return FUNCTIONS[np.sum](self, axis)

    def mean(self, axis: Any = None) -> DeviceArray:
        """Return the mean."""
        own = self.tensor
        return DeviceArray(own.mean() if axis is None else own.mean(dim=axis))

    def max(self, axis: Any = None, initial: Any = None) -> Any:
        """Return the largest entry."""
        return FUNCTIONS[np.max](self, axis, initial)

    def min(self, axis: Any = None, initial: Any = None) -> Any:
        """Return the smallest entry."""
        return FUNCTIONS[np.min](self, axis, initial)

    def any(self, axis: Any = None) -> DeviceArray:
        """Return whether some entry is not zero."""
        own = self.tensor
        return DeviceArray(own.any() if axis is None else own.any(dim=axis))

    def all(self, axis: Any = None) -> DeviceArray:
        """Return whether no entry is zero."""
        own = self.tensor
        return DeviceArray(own.all() if axis is None else own.all(dim=axis))

    def dot(self, other: Any) -> DeviceArray:
        """Return the product."""
        return UFUNCS["matmul"](self, other)

    # --- NumPy's protocols -------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """What a universal function is, done by torch or on the host."""
        out = named.pop("out", None)
        if out and isinstance(out[0], DeviceArray):
            named.pop("dtype", None)  # that of what it is written to
        if out and out[0] is inputs[0] and _in_place(ufunc.__name__, method, named, *inputs):
            return out[0]
        if method == "reduce" and out is None and self.ndim == 1 and named.keys() <= {"initial"}:
            if ufunc is np.maximum:
                return self.max(None, **named)
            if ufunc is np.minimum:
                return self.min(None, **named)
        own = UFUNCS.get(ufunc.__name__) if method == "__call__" else None
        partly = bool(out) and named.keys() == {"where"}
        if own is None or (named and not partly):
            found = getattr(ufunc, method)(*map(on_host, inputs), **_each_on_host(named))
            found = on_device(found, self) if isinstance(found, np.ndarray) else found
        elif partly:
            found = FUNCTIONS[np.where](named["where"], own(*inputs), out[0])
        else:
            found = own(*inputs)
        if out is None:
            return found
        (target,) = out
        if isinstance(target, DeviceArray):
            target.tensor.copy_(next_to(found, target.tensor))
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
        return function(*map(on_host, args), **_each_on_host(kwargs))


class NotOnDevice(TypeError):
    """A function with arguments that are left to NumPy."""


def torch_module() -> Any:
    """Torch, which takes seconds to import: for those who have tensors."""
    import torch

    return torch


def type_of(dtype: Any) -> Any:
    """Return torch's name of a type of NumPy's."""
    return getattr(torch_module(), np.dtype(dtype).name)


def placeholder(device: Any) -> Tensor:
    """Return a tensor of no length on a device, or an error that says why there is none."""
    try:
        import torch
    except ImportError:
        raise ValueError("devices are torch's: pip install quadsense[torch]") from None
    try:
        return torch.empty(0, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {str(device)!r} is not there: {reason}") from None


def on_device(values: Any, other: DeviceArray) -> DeviceArray:
    """Return an array of the host on the device of another."""
    if isinstance(values, DeviceArray):
        return values
    return DeviceArray(sent(values, other.tensor.device))


def sent(values: Any, device: Any) -> Tensor:
    """Return an array of the host on a device."""
    # Memory that is not pinned is read before this returns, without a synchronization.
    return torch_module().from_numpy(np.array(values, order="C")).to(device, non_blocking=True)


def on_host(value: Any) -> Any:
    """Return the same with all arrays in the memory of the host."""
    if isinstance(value, DeviceArray):
        found = np.asarray(value)
        return found if found.ndim else found[()]
    if isinstance(value, list | tuple):
        return type(value)(map(on_host, value))
    return value


def _each_on_host(named: dict[str, Any]) -> dict[str, Any]:
    return {key: on_host(value) for key, value in named.items()}


def next_to(value: Any, tensor: Tensor) -> Any:
    """Return what an operation with a tensor takes: a tensor on its device, or a plain number."""
    if isinstance(value, DeviceArray):
        return value.tensor
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.item() if value.ndim == 0 else sent(value, tensor.device)
    if isinstance(value, list | tuple):
        return sent(value, tensor.device)
    return value


def _key(key: Any, tensor: Tensor) -> Any:
    """Return an index as torch wants it."""
    if isinstance(key, int | slice):  # nearly always
        return key
    if isinstance(key, tuple):
        return tuple(_key(part, tensor) for part in key)
    if isinstance(key, list):
        key = np.asarray(key)
    if isinstance(key, np.ndarray | DeviceArray):
        return next_to(key, tensor)
    return key if not isinstance(key, SupportsIndex) or isinstance(key, bool) else int(key)


def _forwards(key: Any, shape: tuple[int, ...]) -> tuple[Any, list[int]]:
    """Return an index whose slices run forwards, as torch wants, and what to turn round."""
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


def first(*values: Any) -> Tensor:
    """Return the first of them that is on a device."""
    return next(value.tensor for value in values if isinstance(value, DeviceArray))


def both(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Return two operands as tensors of one type."""
    torch, device = torch_module(), _device(a, b)
    given = first(a, b).dtype
    left, right = (_operand(value, given, device) for value in (a, b))
    if left.dtype != right.dtype:
        common = torch.promote_types(left.dtype, right.dtype)
        left, right = left.to(common), right.to(common)
    return left, right


def _operand(value: Any, beside: Any, device: Any) -> Tensor:
    """Return an operand as a tensor; a plain number in the type of the other, as NumPy does."""
    if isinstance(value, DeviceArray):
        return value.tensor
    if isinstance(value, np.ndarray | list | tuple) and np.ndim(value):
        return sent(value, device)
    torch, number = torch_module(), value.item() if hasattr(value, "item") else value
    if isinstance(number, bool):
        kind = torch.bool
    elif isinstance(number, int):
        kind = torch.int64 if beside == torch.bool else beside
    elif isinstance(number, float):
        kind = beside if beside.is_floating_point or beside.is_complex else torch.float64
    else:
        kind = torch.complex64 if beside == torch.float32 else torch.complex128
    return torch.tensor(number, dtype=kind)  # of no dimension: taken along, and nothing is sent


IN_PLACE = {"add": "add_", "subtract": "sub_", "multiply": "mul_", "divide": "div_"}
"""What torch does in place: nothing is written twice."""


def _in_place(name: str, method: str, named: Any, target: Any, *others: Any) -> bool:
    """Do ``target += other`` and the like where that is safe: whether it was done."""
    if method != "__call__" or named or name not in IN_PLACE:
        return False
    if not isinstance(target, DeviceArray) or target.dtype.kind not in "fc":
        return False
    torch, own, other = torch_module(), target.tensor, next_to(others[0], target.tensor)
    if torch.is_tensor(other) and _memory(other) == _memory(own):
        return False  # parts of one array that may overlap: NumPy takes care of that, torch not
    if torch.result_type(own, other) != own.dtype:
        return False
    getattr(own, IN_PLACE[name])(other)
    return True


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _matmul(a: Any, b: Any) -> DeviceArray:
    left, right = both(a, b)
    return DeviceArray(left @ right if left.ndim and right.ndim else left * right)


def _elementwise(name: str) -> Callable[..., DeviceArray]:
    """Return a function of one or two operands that torch has under this name."""

    def apply(*operands: Any) -> DeviceArray:
        torch, tensor = torch_module(), first(*operands)
        return DeviceArray(getattr(torch, name)(*(next_to(each, tensor) for each in operands)))

    return apply


def _operands(name: str) -> Callable[..., DeviceArray]:
    """Return the same where torch wants tensors only, of one type."""

    def apply(a: Any, b: Any) -> DeviceArray:
        left, right = both(a, b)
        return DeviceArray(getattr(torch_module(), name)(left, right))

    return apply


def _reciprocal_of(power: Callable[..., DeviceArray]) -> Callable[..., DeviceArray]:
    """Powers: torch has no whole numbers to negative ones, and squares are quicker as products."""

    def apply(a: Any, b: Any) -> DeviceArray:
        if isinstance(b, int | float) and b == 2:
            return DeviceArray(a.tensor * a.tensor)
        return power(a, b)

    return apply


def _vecdot(a: Any, b: Any) -> DeviceArray:
    left, right = both(a, b)
    return DeviceArray(torch_module().linalg.vecdot(left, right, dim=-1))


# Those of two arrays give no warnings, as with `errstate`.
UFUNCS |= {
    "add": _elementwise("add"),
    "subtract": _operands("subtract"),
    "multiply": _elementwise("mul"),
    "divide": _operands("true_divide"),
    "power": _reciprocal_of(_operands("pow")),
    "matmul": _matmul,
    "vecdot": _vecdot,
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
    "clip": lambda a, low, high: FUNCTIONS[np.clip](a, low, high),
}


def numbers(*values: Any) -> tuple[float, ...]:
    """Return numbers of no dimension as Python's: those on a device come over together."""
    if DeviceArray not in map(type, values):
        return tuple(map(float, values))
    there = [value.tensor for value in values if isinstance(value, DeviceArray)]
    torch = torch_module()
    came = iter(torch.stack([each.real.to(torch.float64) for each in there]).tolist())
    return tuple(next(came) if isinstance(value, DeviceArray) else float(value) for value in values)


def waits(value: Any) -> bool:
    """Return whether a look at a number of this array waits for a device."""
    return isinstance(value, DeviceArray)


def tensor_of(value: Any) -> Tensor | None:
    """Return the tensor of an array on a device, None of anything else."""
    return value.tensor if isinstance(value, DeviceArray) else None


def fetched(record: Any) -> dict[str, Any]:
    """Return copies on the host of the fields of a dataclass that are on a device."""
    held = {each.name: getattr(record, each.name) for each in fields(record)}
    return {
        name: np.asarray(value) for name, value in held.items() if isinstance(value, DeviceArray)
    }


def put(values: npt.NDArray[Any], other: Any) -> Any:
    """Return an array of NumPy's where another one is, and as that is."""
    return on_device(values, other) if isinstance(other, DeviceArray) else placed(values, other)


def scalar(value: Any) -> Any:
    """Return a number of no dimension: Python's own of NumPy's; one on a device is left there."""
    return value if isinstance(value, DeviceArray) else float(value)


def chosen(condition: Any, a: Any, b: Any) -> Any:
    """Return `a` where a condition holds, else `b`; numbers on a device are not waited for."""
    return (
        np.where(condition, a, b) if isinstance(condition, DeviceArray) else a if condition else b
    )


def inverse(a: Any) -> Any:
    """Return ``np.linalg.inv``; on a device a singular matrix is not reported."""
    if not isinstance(a, DeviceArray):
        return np.linalg.inv(a)
    return DeviceArray(torch_module().linalg.inv_ex(a.tensor).inverse)
