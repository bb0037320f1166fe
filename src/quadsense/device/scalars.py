"""Numbers of no dimension, wherever they are, and small choices by them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import placed
from quadsense.device.array import DeviceArray, Tensor, on_device, torch_module


def numbers(*values: Any) -> tuple[float, ...]:
    """Numbers of no dimension as Python's: those on a device come over together."""
    there = [value.tensor for value in values if isinstance(value, DeviceArray)]
    if not there:
        return tuple(map(float, values))
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
    """A number of no dimension: Python's own of NumPy's; one on a device is left there."""
    return value if isinstance(value, DeviceArray) else float(value)


def chosen(condition: Any, a: Any, b: Any) -> Any:
    """`a` where a condition holds, else `b`: numbers, of which none on a device is waited for."""
    return (
        np.where(condition, a, b) if isinstance(condition, DeviceArray) else a if condition else b
    )


def inverse(a: Any) -> Any:
    """Return ``np.linalg.inv``; on a device a singular matrix is not reported."""
    if not isinstance(a, DeviceArray):
        return np.linalg.inv(a)
    return DeviceArray(torch_module().linalg.inv_ex(a.tensor).inverse)
