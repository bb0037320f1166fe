"""NumPy's functions on the arrays of a GPU, by NumPy's own protocols.

Methods are written once, for NumPy. Given a `DeviceArray` in place of an array, what they say with
``np.abs(z)``, ``z @ q`` or ``np.linalg.eigh(A)`` is done by torch where the array lives
[NEP 13, NEP 18]. Reductions stay there too, as arrays of no dimension: only ``float``, ``bool`` and
``int`` of one wait for the device. A function that torch is not told of (`array`, `functions`) is
NumPy's, on a copy in the memory of the host, so that nothing is wrong, but slow.
"""

from quadsense.device import functions  # it fills the table
from quadsense.device.array import (
    DeviceArray,
    chosen,
    fetched,
    inverse,
    numbers,
    on_device,
    placeholder,
    put,
    scalar,
    tensor_of,
    waits,
)

__all__ = [
    "DeviceArray",
    "chosen",
    "fetched",
    "functions",
    "inverse",
    "numbers",
    "on_device",
    "placeholder",
    "put",
    "scalar",
    "tensor_of",
    "waits",
]
