"""Probes in a torch tensor, on whatever device; they may be held on one and used on another."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, is_tensor, namespace, to_numpy
from quadsense.core import products
from quadsense.core.records import cached_property
from quadsense.device import DeviceArray, placeholder, tensor_of
from quadsense.device import algebra as tensor_products
from quadsense.measurements.arrays import Dense
from quadsense.measurements.probes import Form, Probes
from quadsense.measurements.views import View
from quadsense.system.watch import look

CHUNK_ENTRIES = 2**25
"""Entries of rows handled together: 256 MiB, 8192 rows of length 4096."""

SINGLE_CHUNK_ENTRIES = 2**27
"""The same in single precision, whose products take a fourth of the time."""

TF32 = 2.0**-11
"""Unit roundoff of TF32, to which GPUs round the factors of a product of float32."""


@contextlib.contextmanager
def tf32_allowed(torch: Any) -> Iterator[None]:
    """Let products of float32 on a GPU be of TF32 inside; the setting before is that after.

    It is torch's own, for all threads of the process.
    """
    held: Any = torch.backends.cuda.matmul
    before = held.fp32_precision
    held.fp32_precision = "tf32"
    try:
        yield
    finally:
        held.fp32_precision = before


class Tensors(Dense):
    """Rows of a dense (m, n) torch tensor.

    Parameters
    ----------
    U : tensor of shape (m, n)
        Stays as it is: rows of float32, of integers, or on another device than that of the
        arithmetic are widened and sent there some at a time, as they are used.
    device : torch.device, optional
        Where the arithmetic is done: by default, where U is.
    single : bool
        Whether it is in single precision, for steps.
    norms : tensor of shape (m,), optional
        Those of the rows, where they are known.

    Notes
    -----
    On a CPU the products, and all that methods do, are NumPy's, which reads the same memory, unless
    `by_torch` says otherwise: tests of what is done on a GPU do.
    """

    by_torch: ClassVar[bool] = False

    def __init__(self, U: Any, device: Any = None, single: bool = False, norms: Any = None) -> None:
        import torch

        self._torch: Any = torch
        self.block_elements = CHUNK_ENTRIES
        self._device = U.device if device is None else torch.empty(0, device=device).device
        self.device = self._device  # where vectors live, and the arithmetic is done
        self._host = self._device.type == "cpu" and not self.by_torch
        self.is_single = single
        self._real = torch.float32 if single else torch.float64
        pairs = torch.complex64 if single else torch.complex128
        self.dtype = pairs if U.is_complex() else self._real
        super().__init__(U, norms=norms)
        self.dtype = pairs if self.is_complex else self._real

    @property
    def _streamed(self) -> bool:
        """Whether rows are held elsewhere."""
        return bool(self.U.device != self._device)

    def _wide(self, rows: Array) -> Array:
        return rows.to(device=self._device, dtype=self.dtype)

    def _row_norms(self) -> Array:
        if self._known is not None:
            return self._known
        parts = [self._torch.linalg.vector_norm(rows, dim=1) for _, rows in self._chunks()]
        return parts[0] if len(parts) == 1 else self._torch.cat(parts)

    def _row_maxima(self) -> Array:
        return self._torch.cat([rows.abs().amax(dim=1) for _, rows in self._chunks()])

    def _scaled(self, rows: Array, factors: Array) -> Array:
        return rows.to(self.dtype) * factors.to(rows.device)[:, None]

    # --- rows where the arithmetic is done ---------------------------------------------------

    def _chunks(self, whole: bool = False) -> Iterator[tuple[slice, Array]]:
        """Yield rows on the device, in the type of the arithmetic, some at a time.

        With `whole`, all at once where that takes no copy. Of rows held elsewhere the next ones
        travel while these are used.
        """
        at_hand = not self._streamed and self.U.dtype == self.dtype
        chunk = SINGLE_CHUNK_ENTRIES if self.is_single else CHUNK_ENTRIES
        size = (self.m or 1) if whole and at_hand else max(1, chunk // self.n)
        parts = [slice(first, min(first + size, self.m)) for first in range(0, self.m, size)]
        parts = parts or [slice(0, 0)]  # products of no rows have their shape
        if not self._streamed:
            for part in parts:
                look()
                yield part, self._wide(self.U[part])
            return
        coming = self._sent(parts[0])
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            look()
            rows = coming()
            if following is not None:
                coming = self._sent(following)
            yield part, rows

    def _sent(self, part: slice) -> Any:
        """Send rows on their way; the function returned waits for them, on the device."""
        torch = self._torch
        if self._device.type != "cuda":
            return lambda: self._wide(self.U[part])
        with torch.cuda.device(self._device):
            stream = self._stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                rows = self.U[part].to(self._device, non_blocking=True)

        def arrived() -> Array:
            current = torch.cuda.current_stream(self._device)
            current.wait_stream(stream)
            rows.record_stream(current)
            return rows.to(self.dtype)

        return arrived

    def _stream(self) -> Any:
        if not hasattr(self, "_own_stream"):
            self._own_stream = self._torch.cuda.Stream(self._device)
        return self._own_stream

    # --- products ----------------------------------------------------------------------------

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return a copy of those rows."""
        chosen: Any = index if is_tensor(index) else self._torch.as_tensor(np.asarray(index))
        return type(self)(self.U[chosen.to(self.U.device)], self._device)

    def take(self, index: Array) -> Array:
        """Return those rows."""
        chosen = index if is_tensor(index) else self._torch.as_tensor(np.asarray(index))
        return self._wide(self.U[chosen.to(self.U.device)])

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``."""
        X = self._conj(X)
        found = [rows @ X for _, rows in self._chunks(whole=True)]
        return self._conj(found[0] if len(found) == 1 else self._torch.cat(found))

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        total: Any = 0.0
        for part, rows in self._chunks(whole=True):
            total = total + rows.T @ Y[part]
        return total

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``, half the flops."""
        if self._host and not self._streamed:
            found = products.forward(to_numpy(self.U), to_numpy(A), self._numpy_type)
            return self._torch.from_numpy(found)
        columns = list(tensor_products.upper_columns(A.to(self.dtype)))
        parts = [tensor_products.forward_upper(rows, columns) for _, rows in self._chunks()]
        return parts[0] if len(parts) == 1 else self._torch.cat(parts)

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``, half the flops."""
        if self._host and not self._streamed:
            found = products.adjoint(to_numpy(self.U), to_numpy(y), self._numpy_type)
            return self._torch.from_numpy(found)
        total = self._torch.zeros((self.n, self.n), dtype=self.dtype, device=self._device)
        y = y.to(self._real)
        for part, rows in self._chunks():
            tensor_products.adjoint_upper(total, rows, y[part])
        return tensor_products.mirrored(total)

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2`` for every j."""
        total: Any = 0.0
        y = y.to(self._real)
        for part, rows in self._chunks():
            total = total + y[part] @ (rows.abs() ** 2 if self.is_complex else rows * rows)
        return total

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Yield all rows; those held elsewhere some at a time, so that they travel once."""
        for part, rows in self._chunks(whole=True):
            yield part, self._some(rows, part)

    def _some(self, rows: Array, part: slice) -> Tensors:
        """Return some of the rows, which are where the arithmetic is done."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.U, other.m = rows, part.stop - part.start
        for name in ("norms", "held_norms", "exponents"):
            if name in other.__dict__:
                other.__dict__[name] = other.__dict__[name][part]
        return other

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Return dense rows, one block at a time."""
        return self._chunks()

    def _conj(self, x: Array) -> Array:
        return x.conj().resolve_conj() if self.is_complex else x

    @property
    def _numpy_type(self) -> Any:
        return np.dtype(str(self.dtype).removeprefix("torch."))

    def narrowed(self) -> Tensors:
        """Return the same in single precision, for steps: a copy, unless they are so."""
        kind = self._torch.complex64 if self.is_complex else self._torch.float32
        return type(self)(self.U.to(kind), self._device, single=True, norms=self.held_norms)

    def held_as(self, form: Form) -> Probes | None:
        """Return the same rows for NumPy, which reads their memory, or by arrays on their device.

        None where the memory cannot be read, and where methods may use NumPy itself.
        """
        if form in ("device", "tf32"):
            return None if self._host else Working(self, form == "tf32")
        if form != "numpy" or not self._host or self._streamed:
            return None
        found = Dense(to_numpy(self.U), norms=to_numpy(self.held_norms))
        found.norms, found.exponents = to_numpy(self.norms), self.exponents
        return found


def elsewhere(U: Any, device: Any) -> Tensors:
    """Return rows held where U is, a tensor or an array of NumPy's, and used on that device.

    Memory of the host is pinned where it is, so that rows travel while others are used; where the
    system does not allow that they travel all the same.
    """
    wanted = placeholder(device).device
    import torch

    if not is_tensor(U):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arrays that may not be written to: none is
            U = torch.from_numpy(np.asarray(U))
    release = _pinned(torch, U, wanted) if wanted.type == "cuda" else None
    found = Tensors(U, wanted)
    if release is not None:
        weakref.finalize(found, release)
    return found


def _pinned(torch: Any, U: Any, device: Any) -> Callable[[], None] | None:
    """Pin the memory of U where it is; what lets go of it again, None where nothing was done."""
    if U.device.type != "cpu" or U.is_pinned():
        return None
    runtime, memory = torch.cuda.cudart(), U.untyped_storage()
    if int(runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes(), 0)) != 0:
        with contextlib.suppress(RuntimeError):  # torch says of the next call that this one failed
            torch.zeros(1, device=device).cpu()
        return None

    def release() -> None:
        runtime.cudaHostUnregister(memory.data_ptr())

    return release


class Working(View):
    """Rows of `Tensors` as methods written for NumPy see them: by arrays on their device.

    Parameters
    ----------
    kind : Tensors
    tf32 : bool
        Whether products in single precision may be of TF32. Without, steps are in double precision:
        on a GPU products of float32 take as long.
    """

    on_device = True

    def __init__(self, kind: Tensors, tf32: bool = False) -> None:
        super().__init__(kind)
        self.xp, self.dtype, self.tf32 = np, kind._numpy_type, tf32
        self.coarse = tf32 and not (kind.is_single or kind._streamed)
        self.roundoff = TF32 if tf32 and kind.is_single else None

    def inward(self, values: Any, axes: str) -> Any:
        """Return a tensor."""
        return (self.own_vector(values) if axes == "m" else self.own(values)).tensor

    def outward(self, values: Any, axes: str) -> Any:
        """Return a tensor as NumPy's functions take it."""
        return DeviceArray(values)

    def product(self, name: str, values: Any, given: str, returned: str) -> Any:
        """Return a product in the precision that is allowed."""
        with tf32_allowed(self.kind._torch) if self.roundoff else contextlib.nullcontext():
            return super().product(name, values, given, returned)

    def held_as(self, form: Form) -> Probes | None:
        """Return the same rows by products of TF32, where that is allowed; they are kept.

        Not those held elsewhere, whose way here takes longer than any product.
        """
        return self._single if form == "single" and self.coarse else None

    @cached_property
    def _single(self) -> Working:
        return Working(self.kind.narrowed(), tf32=True)

    def like(self, kind: Any) -> Probes:
        """Return other rows, seen alike."""
        return Working(kind, self.tf32)

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        tensor = tensor_of(index)
        return DeviceArray(self.kind.take(index if tensor is None else tensor))

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return a copy of those rows."""
        tensor = tensor_of(index)
        return self.like(self.kind.only(index if tensor is None else tensor))


class OfTensors(View):
    """Probes of arrays on a device (`quadsense.device`): tensors go in, and tensors come out.

    Parameters
    ----------
    work : Probes
        The same, as methods see them that are written for NumPy.
    tensor : torch.Tensor
        One that lies where they do.

    Notes
    -----
    Methods see the memory of a CPU by NumPy.
    """

    def __init__(self, work: Any, tensor: Any) -> None:
        super().__init__(work)
        self.xp, self.device, self._tensor = namespace(tensor), tensor.device, tensor
        self._host = self.device.type == "cpu"

    def inward(self, values: Any, axes: str) -> Any:
        """As NumPy's functions take it."""
        return DeviceArray(values)

    def outward(self, values: Any, axes: str) -> Any:
        """Return a tensor."""
        return values.tensor

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        chosen = to_numpy(index) if is_tensor(index) else np.asarray(index)
        return self.outward(self.kind.take(chosen), "bn")

    def like(self, kind: Any) -> Probes:
        """Return other rows, seen alike."""
        return type(self)(kind, self._tensor)

    def held_as(self, form: Form) -> Probes | None:
        """Return the same rows for NumPy, which reads their memory, or by arrays on their device.

        None where the memory cannot be read, and where methods may use NumPy itself.
        """
        if form == "numpy":
            found: Probes | None = self.kind.on_host() if self._host else None
            return found
        return self.kind if form in ("device", "tf32") and not self._host else None
