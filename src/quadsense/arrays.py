"""Array namespaces and memory: the one place that asks what kind of array this is.

NumPy is a namespace of the standard itself; array-api-compat is imported for the arrays of others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from quadsense.system.machine import free_memory, in_bytes, memory_limit, room_in_words

Array: TypeAlias = Any
"""An array of any namespace of the array API standard."""

Vector: TypeAlias = npt.NDArray[np.float64]

NUMPY = (np.ndarray, np.generic)
"""Types of NumPy's arrays and numbers: as a tuple, told in a quarter of the time of a union."""

FEW = 2**16
"""Entries up to which what many problems have in common is kept."""

LONG = 2**22
"""Entries from which a vector is worth a look whether they are all the same."""


def namespace(x: Array) -> Any:
    """Return the array namespace of `x`: NumPy, or another wrapped by array-api-compat."""
    if isinstance(x, NUMPY):
        return np
    import array_api_compat

    return array_api_compat.array_namespace(x)


def complex_of(real: npt.NDArray[Any], imag: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return complex numbers of NumPy's from their parts, which may be infinite."""
    found = np.empty(real.shape, np.complex128)
    found.real, found.imag = real, imag
    return found


def is_numpy(x: Array) -> bool:
    """Return whether `x` is a NumPy array, so that compiled kernels may read it."""
    return isinstance(x, NUMPY)


def is_array(x: object) -> bool:
    """Return whether `x` already is an array of some namespace."""
    if isinstance(x, NUMPY):
        return True
    if x is None or isinstance(x, (int, float, list, tuple)):  # of others it takes long to tell
        return False
    if is_dask(x):  # whose namespace older versions of array-api-compat cannot import
        return True
    import array_api_compat

    return bool(array_api_compat.is_array_api_obj(x))


def is_tensor(x: object) -> bool:
    """Return whether `x` is a torch tensor, decided without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_dask(x: object) -> bool:
    """Return whether `x` is a dask.array, decided without importing Dask."""
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(x, dask.Array)


def on_gpu(x: Any) -> bool:
    """Return whether `x` is a torch tensor in the memory of a GPU."""
    return is_tensor(x) and bool(x.is_cuda)


def kind_of(x: object) -> str:
    """Return what kind of array `x` is and where it lives, in words, for those who mixed two."""
    if is_numpy(x):
        return "a NumPy array"
    if is_tensor(x):
        return f"a torch tensor on {device(x)}"
    name = getattr(namespace(x), "__name__", type(x).__module__)
    return f"an array of {name.rpartition('array_api_compat.')[2]}"


def device(x: Array) -> Any:
    """Return the device on which `x` lives."""
    if is_numpy(x):
        return "cpu"
    import array_api_compat

    return array_api_compat.device(x)


def has_type(x: Array, name: str) -> bool:
    """Whether the namespace and device of `x` have this type: JAX has float64 on demand only."""
    described = getattr(namespace(x), "__array_namespace_info__", None)
    return described is None or name in described().dtypes(device=device(x))


def to_numpy(x: Array) -> npt.NDArray[Any]:
    """Return `x` as a NumPy array; no copy where it is one, or a tensor in the same memory."""
    if isinstance(x, np.ndarray):
        return x
    if is_tensor(x):
        check_tensor("this array", x)
        return x.cpu().resolve_conj().resolve_neg().numpy()
    if is_dask(x):
        return np.asarray(x.compute())
    if is_array(x) and hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    return np.asarray(x)


def as_numbers(name: str, values: Any, kind: str = "numbers") -> npt.NDArray[Any]:
    """Return an argument as a plain NumPy array of numbers or truth values, or raise a ValueError.

    Parameters
    ----------
    name : str
        The argument, for the message.
    values : array_like
        An array of any namespace (not sparse), or whatever NumPy makes an array of.
    kind : str
        What it must hold, for the message.
    """
    if type(values) is np.ndarray and values.dtype.kind in "buifc":
        return values
    if isinstance(values, np.ma.MaskedArray):
        fill = f" ({name}.filled(numpy.nan) goes with missing='drop')" if name == "b" else ""
        raise ValueError(f"{name} is a masked array: drop or fill the masked values first{fill}")
    if is_tensor(values):
        check_tensor(name, values)
    try:
        found = to_numpy(values) if is_array(values) else _from_table(values)
    except ValueError as error:
        raise ValueError(f"{name} is not a rectangular array: {error}") from None
    except Exception as error:  # whatever an object raises that says how it becomes an array
        raise ValueError(f"{name} cannot be read as an array ({type(error).__name__})") from error
    if found.dtype.kind not in "buifc":
        column = _text_column(values)
        if column is not None:
            raise ValueError(f"{name} must hold {kind}, but its column {column!r} does not")
        raise ValueError(f"{name} must hold {kind}, got an array of type {found.dtype.name}")
    return np.asarray(found)  # no subclass: the products of `numpy.matrix` are other ones


def _from_table(values: Any) -> npt.NDArray[Any]:
    """Return what is no array as one; nullable and Arrow types of pandas as float64, NA as NaN."""
    found = np.asarray(values)
    if found.dtype.kind != "O" or not hasattr(values, "to_numpy"):
        return found
    if any(kind not in "buif" for _, kind in _columns(values)):
        return found
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))


def _columns(values: Any) -> list[tuple[Any, str]]:
    """Return the names of the columns of a table or series, and the kinds of their types."""
    types: Any = getattr(values, "dtypes", None)
    if hasattr(types, "items"):
        return [(name, getattr(each, "kind", "O")) for name, each in types.items()]
    if isinstance(types, list):  # of polars
        kinds = ["f" if each.is_numeric() else "O" for each in types]
        return list(zip(values.columns, kinds, strict=True))
    return [(getattr(values, "name", None), getattr(types, "kind", "O"))]


def _text_column(values: Any) -> Any:
    """Return the name of the first column of a table that holds no numbers; None without one."""
    if not hasattr(values, "columns"):
        return None
    return next((name for name, kind in _columns(values) if kind not in "buifc"), None)


def check_tensor(name: str, x: Any) -> None:
    """Raise a ValueError for a torch tensor that cannot be read as plain numbers."""
    if x.is_nested:
        raise ValueError(f"{name} is a nested torch tensor, whose rows differ in length")
    if x.is_quantized:
        raise ValueError(f"{name} is a quantized torch tensor: pass it as dequantize() returns it")
    kind = str(x.dtype).removeprefix("torch.")
    if kind in ("float16", "bfloat16", "complex32") or kind.startswith("float8"):
        raise ValueError(
            f"{name} is a torch tensor of {kind}, which has too few digits to measure with: "
            "give float32 or float64, for instance U.double()"
        )
    if x.requires_grad:
        raise ValueError(
            f"{name} is a torch tensor that requires grad, and nothing here is differentiated: "
            f"pass {name if name.isidentifier() else 'it'}.detach()"
        )
    if x.device.type == "meta":
        raise ValueError(f"{name} is a torch tensor on the meta device, which holds no numbers")
    if str(x.layout) != "torch.strided":
        raise ValueError(
            f"{name} is a torch tensor of layout {str(x.layout).removeprefix('torch.')}: "
            "pass it dense (to_dense()), or a SciPy sparse array"
        )


Function = TypeVar("Function", bound=Callable[..., Any])


def or_there(own: Callable[..., Any]) -> Callable[[Function], Function]:
    """Decorate a function of NumPy's arrays: `own` is called where the first is on a device."""

    def decorated(function: Function) -> Function:
        @wraps(function)
        def found(first: Any, *others: Any, **named: Any) -> Any:
            if type(first) is np.ndarray:
                return function(first, *others, **named)
            from quadsense.device.array import waits

            return (own if waits(first) else function)(first, *others, **named)

        return cast("Function", found)

    return decorated


def like(values: npt.ArrayLike, other: Array) -> Array:
    """Return `values` in float64, in the namespace and on the device of `other`."""
    own = np.asarray(values, dtype=np.float64)
    return own if type(other) is np.ndarray else placed(own, other)


def placed(values: npt.ArrayLike, other: Array, order: Literal["C", "K"] = "C") -> Array:
    """Return `values` in the namespace and on the device of `other`, their type kept.

    A tensor lies in memory in that order: "K" is that of the values.
    """
    own = np.asarray(values)
    if isinstance(other, np.ndarray):
        return own
    if is_tensor(other):  # which wants memory of its own, and to write to it
        return sys.modules["torch"].from_numpy(np.array(own, order=order)).to(other.device)
    return namespace(other).asarray(own, device=device(other))


@lru_cache(maxsize=8)
def few_ones(count: int) -> Vector:
    """Return `count` ones, at most `FEW`, to be read only: those that an earlier call made."""
    ones = np.ones(count)
    ones.flags.writeable = False
    return ones


def compact(values: Array) -> Array:
    """A long vector whose entries are all the same as a view of one of them, to be read only.

    One tolerance for all, and all that follows from it, then takes no memory.
    """
    if type(values) is not np.ndarray or values.ndim != 1 or values.size < LONG:
        return values
    if values.strides == (0,) or values[0] != values[-1] or not np.all(values == values[0]):
        return values
    return np.broadcast_to(values[:1].copy(), values.shape)


def available_memory() -> int:
    """Return bytes that can still be taken, as of a second ago at most: see `memory.free_memory`.

    No more than `memory_limit` of the solve under way.
    """
    return int(min(_memory_at(int(time.monotonic())), memory_limit()))


def require_memory(what: str, needed: int) -> None:
    """Raise MemoryError, before it is allocated, for what does not fit in memory.

    Only what a method turns out to need on its way is looked at so: what it needs in any case is
    part of its plan.
    """
    free = available_memory()
    if needed > free:
        raise MemoryError(
            f"{what} would take {in_bytes(needed)} and {room_in_words(free)}: raise memory_limit, "
            "use fewer measurements, or another method"
        )


@lru_cache(maxsize=1)
def _memory_at(second: int) -> int:
    return free_memory()
