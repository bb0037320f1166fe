"""Probes that compute on a device, for those who hold torch tensors."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from quadsense.arrays import Array, is_tensor, namespace, to_numpy
from quadsense.device import DeviceArray
from quadsense.measurements.probes import Probes


class OfTensors(Probes):
    """Probes of arrays on a device (`quadsense.device`): tensors go in, and tensors come out.

    Parameters
    ----------
    work : Probes
        The same, as methods see them that are written for NumPy.
    tensor : torch.Tensor
        One that lies where they do.

    Notes
    -----
    Methods see the memory of a CPU by NumPy, unless `by_torch` says otherwise: tests of what is
    done on a GPU do.
    """

    by_torch: bool = False

    def __init__(self, work: Any, tensor: Any) -> None:
        self.work, self._device = work, tensor.device
        self.m, self.n, self.is_complex = work.m, work.n, work.is_complex
        self.rounding, self.stated = work.rounding, work.stated
        self.storage, self.by_column = work.storage, work.by_column

    @property
    def xp(self) -> Any:
        """That of torch."""
        return namespace(self.held_norms)

    @property
    def device(self) -> Any:
        """Where vectors live."""
        return self._device

    @property
    def _host(self) -> bool:
        return self._device.type == "cpu" and not self.by_torch

    # --- facts -------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """That of the probes."""
        return int(self.work.length)

    @property
    def row_rounding(self) -> float:
        """The same."""
        return float(self.work.row_rounding)

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held."""
        return self.work.held_norms.tensor

    @cached_property
    def norms(self) -> Array:
        """Norms of the user's rows."""
        return self.work.norms.tensor

    @property
    def exponents(self) -> Any:
        """The user's rows are those held times these powers of two."""
        return self.work.exponents

    @property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return bool(self.work.has_zero_rows)

    def same_as(self, other: Probes) -> bool:
        """Whether these are the same rows, to the last bit."""
        return isinstance(other, OfTensors) and bool(self.work.same_as(other.work))

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """``u_i* x``."""
        return self.work.times(DeviceArray(X)).tensor

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``."""
        return self.work.combine(DeviceArray(Y)).tensor

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i``."""
        return self.work.forward(DeviceArray(A)).tensor

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``."""
        return self.work.adjoint(DeviceArray(y)).tensor

    def squared_columns(self, y: Array) -> Array:
        """``sum_i y_i |u_ij|^2`` for every j."""
        return self.work.squared_columns(DeviceArray(y)).tensor

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """``sum_k s_k |f_i u_i* x_k|^2``."""
        given = (None if each is None else DeviceArray(each) for each in (factors, signs))
        return self.work.squares(DeviceArray(X), *given).tensor

    def take(self, index: Array) -> Array:
        """Those rows, dense."""
        chosen = to_numpy(index) if is_tensor(index) else np.asarray(index)
        return self.work.take(chosen).tensor

    # --- for methods and proofs, which are written for NumPy ---------------------------------

    def on_numpy(self) -> Probes | None:
        """The same rows for NumPy, which reads their memory; None where that cannot be."""
        found: Probes | None = self.work.on_host() if self._host else None
        return found

    def at_work(self) -> Any:
        """The same rows by arrays on their device; None where methods may use NumPy itself."""
        return None if self._host else self.work
