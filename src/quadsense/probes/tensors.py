"""Probes that compute on a device, for those who hold torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.arrays import Array, is_tensor, namespace, to_numpy
from quadsense.core.records import cached_property
from quadsense.device import DeviceArray
from quadsense.measurements.probes import Around, Probes


class OfTensors(Around):
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
        super().__init__(work)
        self._device, self.by_column = tensor.device, work.by_column

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

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held."""
        return self.kind.held_norms.tensor

    @cached_property
    def norms(self) -> Array:
        """Norms of the user's rows."""
        return self.kind.norms.tensor

    def same_as(self, other: Probes) -> bool:
        """Whether these are the same rows, to the last bit."""
        return isinstance(other, OfTensors) and bool(self.kind.same_as(other.kind))

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """``u_i* x``."""
        return self.kind.times(DeviceArray(X)).tensor

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``."""
        return self.kind.combine(DeviceArray(Y)).tensor

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i``."""
        return self.kind.forward(DeviceArray(A)).tensor

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``."""
        return self.kind.adjoint(DeviceArray(y)).tensor

    def squared_columns(self, y: Array) -> Array:
        """``sum_i y_i |u_ij|^2`` for every j."""
        return self.kind.squared_columns(DeviceArray(y)).tensor

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """``sum_k s_k |f_i u_i* x_k|^2``."""
        given = (None if each is None else DeviceArray(each) for each in (factors, signs))
        return self.kind.squares(DeviceArray(X), *given).tensor

    def take(self, index: Array) -> Array:
        """Those rows, dense."""
        chosen = to_numpy(index) if is_tensor(index) else np.asarray(index)
        return self.kind.take(chosen).tensor

    # --- for methods and proofs, which are written for NumPy ---------------------------------

    def on_numpy(self) -> Probes | None:
        """The same rows for NumPy, which reads their memory; None where that cannot be."""
        found: Probes | None = self.kind.on_host() if self._host else None
        return found

    def at_work(self, tf32: bool = False) -> Any:
        """The same rows by arrays on their device; None where methods may use NumPy itself."""
        return None if self._host else self.kind
