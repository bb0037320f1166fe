"""Settings and outcomes of every factor: products with tables, one factor at a time."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array
from quadsense.core.records import cached_property
from quadsense.device import put, waits
from quadsense.system.watch import look

CALL_FLOPS = 2e4
"""Operations in the time that Python takes for a product by itself."""

Factors = list[npt.NDArray[Any]]
"""One array per factor."""


class Grid:
    """Settings and outcomes of every factor: products with tables, one factor at a time.

    `settings` are (k, q); `counts`, `outcomes` and `widths` say how many settings and outcomes
    each factor has, and how long what they read is.
    """

    def __init__(
        self,
        settings: npt.NDArray[np.int64],
        counts: list[int],
        outcomes: list[int],
        widths: list[int],
    ) -> None:
        self.settings, self.counts, self.outcomes = settings, counts, outcomes
        self.widths, self.per_setting = widths, prod(outcomes)

    @cached_property
    def is_full(self) -> bool:
        """Whether all combinations of settings are read, of which those measured are taken.

        Otherwise those with the same first settings are read together.
        """
        full = paths = 0.0
        combined, below = 1, prod(self.counts)
        for j, (count, outcomes) in enumerate(zip(self.counts, self.outcomes, strict=True)):
            rest = prod(self.widths[j:]) ** 2
            combined, below = combined * count * outcomes, below // count
            begun = len(np.unique(self._combined // below))
            full += combined * rest + CALL_FLOPS
            paths += begun * (prod(self.outcomes[: j + 1]) * rest + CALL_FLOPS)
        return full <= paths

    @cached_property
    def _combined(self) -> npt.NDArray[np.int64]:
        """Number of each setting among all combinations, (k,)."""
        return np.ravel_multi_index(tuple(self.settings.T), self.counts).astype(np.int64)

    @cached_property
    def _places(self) -> npt.NDArray[np.int64]:
        """Where each row is among all combinations of settings and outcomes."""
        places = np.zeros((len(self.settings), 1), dtype=np.int64)
        for j, (count, outcomes) in enumerate(zip(self.counts, self.outcomes, strict=True)):
            own = self.settings[:, j, None] * outcomes + np.arange(outcomes)
            places = places[:, :, None] * (count * outcomes) + own[:, None, :]
            places = places.reshape(len(self.settings), -1)
        return places.ravel()

    def _placed(self, beside: Array) -> Any:
        """The same where an array is; kept there, for they are as many as rows."""
        if not waits(beside):
            return self._places
        kept = self.__dict__.get("_kept")
        if kept is None or kept.tensor.device != beside.tensor.device:
            kept = self.__dict__["_kept"] = put(self._places, beside)
        return kept

    @cached_property
    def is_even(self) -> bool:
        """Whether all combinations of settings were measured equally often."""
        often = np.bincount(self._combined, minlength=prod(self.counts))
        return bool(often.min() == often.max())

    @cached_property
    def most_equal(self) -> int:
        """How often a setting occurs at most."""
        return int(np.unique(self._combined, return_counts=True)[1].max())

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """An order of the settings in which equal beginnings are next to each other."""
        order = np.argsort(self._combined, kind="stable")
        return order, self.settings[order]

    def expanded(self, X: Array, tables: Factors) -> Array:
        """What every row reads: ``(x) tables_j X``, (K_1 ... K_q, k) to (m, k)."""
        count = int(X.shape[1])
        if self.is_full:
            for table in tables:
                look()
                flat = table.reshape(-1, table.shape[2])
                X = X.reshape(flat.shape[1], -1).T @ flat.T
            return X.reshape(count, -1)[:, self._placed(X)].T
        order, chosen = self._sorted
        kind = np.result_type(X, tables[0])
        found = np.empty((len(chosen), count, self.per_setting), kind)

        def walk(j: int, X: Array, first: int, last: int) -> None:
            if j == len(tables):
                found[order[first:last]] = X.reshape(count, -1)
                return
            for here, then in _runs(chosen[:, j], first, last):
                own = tables[j][chosen[here, j]]
                walk(j + 1, X.reshape(own.shape[1], -1).T @ own.T, here, then)

        walk(0, X, 0, len(chosen))
        return found.swapaxes(1, 2).reshape(-1, count)

    def contracted(self, Y: Array, tables: Factors) -> Array:
        """``sum_i y_i (x) tables_j,i``: (m, k) to (K_1 ... K_q, k)."""
        count = int(Y.shape[1])
        if self.is_full:
            combined = prod(self.counts) * self.per_setting
            full = np.zeros_like(Y, shape=(combined, count), dtype=np.result_type(Y, tables[0]))
            if self.most_equal == 1:
                full[self._placed(Y)] = Y
            else:
                np.add.at(full, self._places, Y)
            for table in tables:
                look()
                flat = table.reshape(-1, table.shape[2])
                full = full.reshape(len(flat), -1).T @ flat
            return full.reshape(count, -1).T
        order, chosen = self._sorted
        given = Y.reshape(len(chosen), self.per_setting, count).swapaxes(1, 2)

        def walk(j: int, first: int, last: int) -> Array:
            if j == len(tables):
                return np.sum(given[order[first:last]], axis=0)
            total: Array = 0.0
            for here, then in _runs(chosen[:, j], first, last):
                own = tables[j][chosen[here, j]]
                total = total + own.T @ walk(j + 1, here, then).reshape(-1, len(own)).T
            return total

        return walk(0, 0, len(chosen)).reshape(-1, count)


def _runs(values: npt.NDArray[np.int64], first: int, last: int) -> list[tuple[int, int]]:
    """Where equal values begin and end, from `first` to `last`."""
    look()
    begins = first + np.flatnonzero(np.diff(values[first:last], prepend=-1))
    return list(zip(begins.tolist(), [*begins[1:].tolist(), last], strict=True))
