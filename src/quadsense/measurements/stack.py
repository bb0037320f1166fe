"""Kinds of probes one below the other, and the unit vectors, which are never stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, to_numpy
from quadsense.core.records import cached_property
from quadsense.measurements.probes import Probes, dense_blocks, squared_columns, squares
from quadsense.measurements.views import Chosen, View, only
from quadsense.typing import to_list


class Stack(Probes):
    """The rows of several kinds of probes, one kind below the other; nothing is copied.

    Parameters
    ----------
    *parts : Probes
        Of one length, all real or all complex, of one namespace and device.
    """

    storage = "stacked"

    def __init__(self, *parts: Probes) -> None:
        self.parts: tuple[Probes, ...] = ()
        for part in parts:
            self.parts += part.parts if isinstance(part, Stack) else (part,)
        first = self.parts[0]
        alike = all((p.n, p.is_complex, p.xp) == (first.n, first.is_complex, first.xp)
                    for p in self.parts)  # fmt: skip
        if not alike:
            raise ValueError("probes of one stack must have one length, type and namespace")
        self.n, self.is_complex = first.n, first.is_complex
        self.begins = np.cumsum([0, *(part.m for part in self.parts)])
        self.m = int(self.begins[-1])
        self.rounding = max(part.rounding for part in self.parts)
        self.stated = max((p.stated for p in self.parts if p.stated is not None), default=None)
        self.at_hand, self.xp = all(part.at_hand for part in self.parts), first.xp
        self.row_rounding = max(part.row_rounding for part in self.parts)

    @cached_property
    def device(self) -> Any:
        """Where vectors live."""
        return self.parts[0].device

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held."""
        return self._joined([part.held_norms for part in self.parts])

    @cached_property
    def norms(self) -> Array:
        """Norms of the user's rows."""
        return self._joined([part.norms for part in self.parts])

    @cached_property
    def exponents(self) -> npt.NDArray[np.int64]:
        """The user's rows are those held times these powers of two."""
        return np.concatenate([part.exponents for part in self.parts])

    @cached_property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return any(part.has_zero_rows for part in self.parts)

    @cached_property
    def length(self) -> int:
        """The longest of the parts."""
        return max(part.length for part in self.parts)

    @cached_property
    def adjoint_terms(self) -> int:
        """Those of the longest part, and one per part."""
        return min(self.m, max(part.adjoint_terms for part in self.parts) + len(self.parts))

    @cached_property
    def has_nested_sums(self) -> bool:
        """Whether a part has."""
        return any(part.has_nested_sums for part in self.parts)

    def made_of(self) -> tuple[Any, ...]:
        """Return the parts."""
        return self.parts

    def column_squares(self) -> Any:
        """Return those of all parts together, where every part knows its own."""
        found = [getattr(part, "column_squares", lambda: None)() for part in self.parts]
        return None if any(each is None for each in found) else sum(found)

    def column_counts(self) -> Any:
        """Return how many entries of each column are not 0."""
        return sum(part.column_counts() for part in self.parts)  # type: ignore[attr-defined]

    # --- rows --------------------------------------------------------------------------------

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Yield all rows, each part as it likes."""
        for part, whole in self._each():
            for here, rows in part.in_blocks(width, sums):
                yield slice(whole.start + here.start, whole.start + here.stop), rows

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield dense rows, one block at a time."""
        for part, whole in self._each():
            for here, rows in dense_blocks(part):
                yield slice(whole.start + here.start, whole.start + here.stop), rows

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`; a view where one part has them all as a view."""
        pieces = [part.block(rows.start, rows.stop) for part, rows, _ in self._across(first, last)]
        return self._joined(pieces) if pieces else self.parts[0].block(0, 0)

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        chosen = to_numpy(index)
        homes = np.searchsorted(self.begins, chosen, side="right") - 1
        order = np.argsort(homes, kind="stable")
        pieces = []
        for home, part in enumerate(self.parts):
            own = chosen[order[homes[order] == home]] - self.begins[home]
            if own.size:
                pieces.append(part.take(self._index(own)))
        if not pieces:
            return self.parts[0].take(index)
        rows = self._joined(pieces)
        if len(pieces) == 1:
            return rows
        return self.xp.take(rows, self._index(np.argsort(order, kind="stable")), axis=0)

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return those rows alone; parts that are there whole, as they are."""
        index = np.asarray(index, dtype=np.int64)
        homes = np.searchsorted(self.begins, index, side="right") - 1
        if np.any(np.diff(homes) < 0):
            return Chosen(self, index)
        kept: list[Probes] = []
        for home, part in enumerate(self.parts):
            own = index[homes == home] - self.begins[home]
            if own.size:
                whole = own.size == part.m and bool(np.array_equal(own, np.arange(part.m)))
                kept.append(part if whole else only(part, own))
        return kept[0] if len(kept) == 1 else Stack(*kept)

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``."""
        return self._joined([part.times(X) for part in self.parts])

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        return sum((part.combine(Y[rows, :]) for part, rows in self._each()), start=0.0)

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``."""
        return self._joined([part.forward(A) for part in self.parts])

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``."""
        return sum((part.adjoint(y[rows]) for part, rows in self._each()), start=0.0)

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2`` for every j."""
        return sum((squared_columns(part, y[rows]) for part, rows in self._each()), start=0.0)

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """Return ``sum_k s_k |f_i u_i* x_k|^2`` for X of shape (n, k), each part as it likes."""
        return self._joined([
            squares(part, X, None if factors is None else factors[rows], signs)
            for part, rows in self._each()
        ])  # fmt: skip

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2`` for those rows and columns."""
        lines = []
        for part, here, _ in self._across(rows.start, rows.stop):
            line = []
            for other, there, _ in self._across(columns.start, columns.stop):
                line.append(part.gram(here, there) if other is part else
                            self._between(part, here, other, there))  # fmt: skip
            lines.append(self._joined(line, axis=1))
        return self._joined(lines)

    def _between(self, one: Probes, rows: slice, other: Probes, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2`` of rows of two parts, by products of the larger one."""
        xp = self.xp
        if isinstance(one, Axes) and isinstance(other, Axes):
            return one.gram(rows, columns)
        few = rows.stop - rows.start < columns.stop - columns.start
        if isinstance(one, Axes) or (few and not isinstance(other, Axes)):
            return self._between(other, columns, one, rows).T
        left = one.block(rows.start, rows.stop)
        if isinstance(other, Axes):
            return xp.abs(left[:, columns]) ** 2
        right = other.block(columns.start, columns.stop)
        return xp.abs((xp.conj(left) if self.is_complex else left) @ right.T) ** 2

    # --- where the parts are -----------------------------------------------------------------

    def _each(self) -> Iterator[tuple[Probes, slice]]:
        """Yield every part, and which rows of the whole are its."""
        for k, part in enumerate(self.parts):
            yield part, slice(int(self.begins[k]), int(self.begins[k + 1]))

    def _across(self, first: int, last: int) -> Iterator[tuple[Probes, slice, slice]]:
        """Yield parts that have rows from `first` to `last`: their rows, and those of these."""
        for part, rows in self._each():
            low, high = max(first, rows.start), min(last, rows.stop)
            if low < high:
                own = slice(low - rows.start, high - rows.start)
                yield part, own, slice(low - first, high - first)

    def _joined(self, pieces: list[Array], axis: int = 0) -> Array:
        return pieces[0] if len(pieces) == 1 else self.xp.concat(pieces, axis=axis)

    def _index(self, index: npt.NDArray[np.intp]) -> Array:
        return index if self.xp is np else self.xp.asarray(index, device=self.device)


class AsComplex(View):
    """Real rows that stand among complex ones; their products are those of both parts."""

    def __init__(self, kind: Probes) -> None:
        super().__init__(kind)
        self.is_complex = True

    def inward(self, values: Array, axes: str) -> Array:
        """Return both parts next to each other, of a matrix the real one: the other is skew."""
        if axes == "m":
            return values
        values = self.own(values)
        real = self.xp.real(values)
        return real if axes == "nn" else self.xp.concat([real, self.xp.imag(values)], axis=1)

    def outward(self, values: Array, axes: str) -> Array:
        """Return both parts as complex numbers."""
        if axes in ("m", "n", "bb"):
            return values
        if axes[-1] == "k":
            count = int(values.shape[1]) // 2
            return values[:, :count] + 1j * values[:, count:]
        return self.xp.astype(values, self.dtype, copy=False)

    def column_squares(self) -> Any:
        """Return those of the real rows."""
        return getattr(self.kind, "column_squares", lambda: None)()

    def column_counts(self) -> Any:
        """Return those of the real rows."""
        return self.kind.column_counts()


class Axes(Probes):
    """The unit vectors ``e_1, ..., e_n``: what they read is the diagonal of A.

    Parameters
    ----------
    n : int
    beside : Probes, optional
        Rows of the type, namespace and device wanted; NumPy's real ones where None.
    """

    storage = "axes"

    def __init__(self, n: int, beside: Probes | None = None) -> None:
        self.m = self.n = n
        self._beside = beside
        self.is_complex = beside is not None and beside.is_complex
        self.xp = np if beside is None else beside.xp

    @cached_property
    def device(self) -> Any:
        """That of the other rows."""
        return None if self._beside is None else self._beside.device

    @cached_property
    def held_norms(self) -> Array:
        """Ones."""
        return self.xp.ones(self.n, dtype=self.xp.float64, device=self.device)

    def made_of(self) -> tuple[Any, ...]:
        """Return how many there are, and of which type."""
        return self.n, self.is_complex

    def times(self, X: Array) -> Array:
        """Return ``X``."""
        return self.xp.asarray(X, copy=True)

    def combine(self, Y: Array) -> Array:
        """Return ``Y``."""
        return self.xp.asarray(Y, copy=True)

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`."""
        return self.take(np.arange(first, last))

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        chosen = to_numpy(index)
        rows = np.zeros((chosen.size, self.n))
        rows[np.arange(chosen.size), chosen] = 1.0
        return self.own(rows)

    def forward(self, A: Array) -> Array:
        """Return the diagonal of A."""
        return self.real(self.xp.linalg.diagonal(A))

    def adjoint(self, y: Array) -> Array:
        """Return the matrix with that diagonal."""
        values = self.xp.astype(y, self.dtype, copy=False)
        return values[:, None] * self._identity

    def squared_columns(self, y: Array) -> Array:
        """Return the same vector."""
        return y

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return 1 for the same vector, else 0."""
        i, j = (np.arange(part.start, part.stop) for part in (rows, columns))
        return self.xp.asarray(np.equal.outer(i, j).astype(np.float64), device=self.device)

    @cached_property
    def _identity(self) -> Array:
        return self.xp.eye(self.n, dtype=self.dtype, device=self.device)


def stack(parts: Iterable[Any]) -> Probes:
    """Return the rows of several arrays, sparse arrays, operators and kinds of probes as one.

    Parameters
    ----------
    parts : iterable of arrays of shape (m_k, n), sparse arrays, operators or probes
        Of one length n. Nothing is copied. With complex rows, real ones become complex too.

    Returns
    -------
    Probes
        All rows, those of the first part first.

    Examples
    --------
    Distances within a network, and the sum of all positions, which is to be zero:

    >>> import numpy as np, quadsense
    >>> network = quadsense.probes.differences([(0, 1), (1, 2)], n=3)
    >>> U = quadsense.probes.stack([network, np.ones((1, 3))])
    >>> quadsense.Measurements(U, [1.0, 1.0, 0.0], delta=0.1)
    Measurements(m=3, n=3, stacked, real)
    """
    from quadsense.measurements.validate import checked_rows  # which knows all kinds of rows

    kinds: list[Probes] = []
    for k, part in enumerate(to_list("parts", parts, "probes")):
        try:
            kinds.append(checked_rows(part, False).kind)
        except ValueError as error:
            raise ValueError(f"parts[{k}]: {error}") from None
        if kinds[k].n != kinds[0].n:
            raise ValueError(
                f"parts[{k}] has rows of length {kinds[k].n}, but those of parts[0] have "
                f"{kinds[0].n}"
            )
        if kinds[k].xp is not kinds[0].xp or kinds[k].device != kinds[0].device:
            raise ValueError(
                f"parts[{k}] is of another namespace or device than parts[0]: bring all to one"
            )
    if not kinds:
        raise ValueError("parts is empty: there must be one part at least")
    if any(kind.is_complex for kind in kinds):
        kinds = [kind if kind.is_complex else AsComplex(kind) for kind in kinds]
    return kinds[0] if len(kinds) == 1 else Stack(*kinds)
