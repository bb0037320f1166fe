"""A kind of probes: rows ``u_i`` that need not be stored, known by two products.

A new kind writes `times` and `combine` and says its shape; all else is derived from them, here for
the rows as they are held, in `Sensing` for rows of unit norm. What a kind can do faster it
overrides. Kinds that come with the package may have a quicker way for a function of this file: a
method of its name (`squared_columns`, `squares`), `blocks`, `same_as`, or what they are made of
(`made_of`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, device, is_array, is_tensor, like, to_numpy
from quadsense.core.records import cached_property
from quadsense.device import on_device, tensor_of
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.system.watch import look

MODULES = "modules"
"""Under which the names of modules are in a pickled state."""

Form = Literal["numpy", "device", "tf32", "single", "unit", "conjugated"]
"""In which the same rows may be held for steps and proofs, which are written for NumPy:

- "numpy": by NumPy, where that takes no copy;
- "device": by arrays on their device that NumPy's functions take (see `quadsense.device`);
- "tf32": as "device", and those "single" may be rounded to TF32 in products;
- "single": with products in single precision, where those are quicker;
- "unit", "conjugated": of unit norm, and conjugated, a rounding off, where that costs nothing.
"""


class Portable:
    """An object whose modules are pickled, and copied, by their names."""

    def __getstate__(self) -> dict[str, Any]:
        """All attributes, and the names of the modules among them."""
        held = {
            name: value.__name__
            for name, value in self.__dict__.items()
            if isinstance(value, ModuleType)
        }
        rest = {name: value for name, value in self.__dict__.items() if name not in held}
        return {**rest, MODULES: held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The attributes, the modules imported again."""
        self.__dict__.update({name: value for name, value in state.items() if name != MODULES})
        for name, module in state[MODULES].items():
            self.__dict__[name] = import_module(module)


class RowFacts(Portable):
    """What is known of the rows of a kind.

    A kind states `m`, `n` and whether it `is_complex`; the rest where it is not as usual.

    Attributes
    ----------
    m, n : int
    is_complex : bool
    rounding : float
        Relative error of `times` and `combine` beyond that of inner products of length `length`.
    stated : float or None
        The same where it is the user's word for functions that cannot be looked into, so that
        what is certified says it; None for kinds that are proved to be as good.
    storage : str
        In a word, for people.
    mix : sparse array or None
        Sums over the rows that readings are, where the rows come with such; see `observables`.
    frame_shape : tuple of int or None
        Shape of an image, where readings may be given as a stack of images; see `masked_fft`.
    constraints : tuple of (C, lo, hi)
        What A must meet for these rows to mean what they say; see `differences`.
    at_hand : bool
        Whether a pass over the rows costs no more than its arithmetic: not so of rows in files.
    by_column : bool
        Whether products cost by the column, however many are taken at once.
    coarse : bool
        Whether those in "single" precision have fewer digits than that: TF32, on a GPU.
    roundoff : float or None
        Unit roundoff of products, where it is not that of their type.
    block_elements : int
        Elements of a temporary block.
    xp : module
        Array namespace of vectors and dense results.
    on_device : bool
        Whether those are arrays on a device that NumPy's functions take: then xp is NumPy.
    is_diagonal : bool
        Whether the kind knows a basis in which normal matrices are diagonal: see `Diagonal`.
    """

    m: int
    n: int
    is_complex: bool = False
    rounding: float = 0.0
    stated: float | None = None
    storage: str = "operator"
    mix: Any = None
    frame_shape: tuple[int, ...] | None = None
    constraints: tuple[Any, ...] = ()
    at_hand: bool = True
    by_column: bool = False
    coarse: bool = False
    roundoff: float | None = None
    block_elements: int = BLOCK_ELEMENTS
    xp: Any = np
    on_device: bool = False
    is_diagonal: bool = False

    held_norms: Any

    @cached_property
    def device(self) -> Any:
        """Where vectors live."""
        return "cpu" if self.xp is np else device(self.held_norms)

    @cached_property
    def dtype(self) -> Any:
        """Float64 or complex128 of the namespace: the type of the arithmetic."""
        return self.xp.complex128 if self.is_complex else self.xp.float64

    @cached_property
    def exponents(self) -> npt.NDArray[np.int64]:
        """The user's rows are those held times these powers of two."""
        return np.zeros(self.m, dtype=np.int64)

    @cached_property
    def norms(self) -> Array:
        """Norms of the user's rows, (m,)."""
        held, exponents = self.held_norms, self.exponents
        if not exponents.any():
            return held
        with np.errstate(over="ignore", under="ignore"):
            return self.own_vector(np.ldexp(to_numpy(held), exponents))

    @cached_property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return bool((to_numpy(self.held_norms) == 0.0).any())

    @cached_property
    def length(self) -> int:
        """Most terms of an inner product with a row: n, or as many entries as are not zero."""
        return self.n

    @cached_property
    def adjoint_terms(self) -> int:
        """Terms of a sum of `adjoint` at most: m, or fewer where sums are nested."""
        return self.m

    @cached_property
    def has_nested_sums(self) -> bool:
        """Whether a kind, that of a part at least, nests the sums of `adjoint` by itself."""
        return self.adjoint_terms < self.m

    @cached_property
    def row_rounding(self) -> float:
        """Relative error of the rows that `take` and `block` form."""
        return self.rounding

    def own(self, values: Any) -> Array:
        """Return an array where vectors live, in the type of products; of the host or there."""
        if self.on_device:
            return on_device(values, self.held_norms).astype(self.dtype, copy=False)
        if self.xp is np:
            return np.asarray(values).astype(self.dtype, copy=False)
        tensor = values if is_tensor(values) else tensor_of(values)
        if tensor is not None:
            return tensor.to(device=self.device, dtype=self.dtype)
        return self.xp.asarray(np.asarray(values), dtype=self.dtype, device=self.device)

    def own_vector(self, values: Any) -> Array:
        """Return numbers, one per row, where vectors live, in float64."""
        if self.on_device:
            return on_device(values, self.held_norms).astype(np.float64, copy=False)
        tensor = tensor_of(values)
        if tensor is not None:
            return tensor.to(device=self.device, dtype=self.xp.float64)
        return like(values, self.held_norms)

    def real(self, x: Array) -> Array:
        """Return the real part; x itself where rows are real."""
        return self.xp.real(x) if self.is_complex else x

    def slices(self, width: int | None = None) -> Iterator[slice]:
        """Yield slices of rows whose temporaries, `width` numbers per row, stay within a block."""
        size = max(1, self.block_elements // max(self.n if width is None else width, 1))
        for begin in range(0, self.m, size):
            look()
            yield slice(begin, min(begin + size, self.m))

    def unit_vectors(self) -> Iterator[tuple[slice, Array]]:
        """Yield unit vectors ``e_j``, some at a time, so that their images fit in a block."""
        size = max(1, BLOCK_ELEMENTS // max(self.m, self.n))
        for begin in range(0, self.n, size):
            look()
            part = slice(begin, min(begin + size, self.n))
            unit = np.zeros((self.n, part.stop - begin))
            unit[np.arange(begin, part.stop), np.arange(part.stop - begin)] = 1.0
            yield part, self.own(unit)


class Probes(RowFacts, ABC):
    """Rows ``u_i``, i = 1..m, of length n, as their kind holds them: what a kind may write."""

    def __repr__(self) -> str:
        """Return the kind, and how many rows of which length."""
        kind = "complex" if self.is_complex else "real"
        return f"<{type(self).__name__}: m = {self.m}, n = {self.n}, {kind}>"

    # --- what a kind must write --------------------------------------------------------------

    @abstractmethod
    def times(self, X: Array) -> Array:
        """Return ``u_i* x`` for every row: (n, k) to (m, k)."""

    @abstractmethod
    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``: (m, k) to (n, k)."""

    # --- what it may do faster ---------------------------------------------------------------

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held, (m,); their namespace and device are the kind's."""
        with np.errstate(under="ignore"):  # squares of entries that are next to nothing
            if self.n < self.m:  # as many products as there are columns
                squares = sum(
                    np.sum(np.abs(self.times(unit)) ** 2, axis=1) for _, unit in self.unit_vectors()
                )
                return np.sqrt(squares)
            rows = (self.block(part.start, part.stop) for part in self.slices(self.m))
            return np.sqrt(np.concatenate([np.sum(np.abs(each) ** 2, axis=1) for each in rows]))

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`: (last - first, n)."""
        where = {} if self.xp is np else {"device": self.device}
        return self.take(self.xp.arange(first, last, **where))

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        if self.m * self.n <= BLOCK_ELEMENTS:
            return self.xp.take(self._few, index, axis=0)
        chosen = to_numpy(index)
        picked = np.zeros((self.m, chosen.size))
        picked[chosen, np.arange(chosen.size)] = 1.0
        return self.combine(self.own(picked)).T

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``: (n, n) to (m,); ``sum_j (u* A e_j) conj(u* e_j)``."""
        xp, total = self.xp, 0.0
        for part, unit in self.unit_vectors():
            left, right = self.times(A[:, part]), self.times(unit)
            product = left * xp.conj(right) if self.is_complex else left * right
            total = total + xp.sum(self.real(product), axis=1)
        return total

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``, (n, n); columns are ``sum_i u_i y_i (u_i* e_j)``."""
        xp = self.xp
        weights = xp.astype(y, self.dtype, copy=False)[:, None]
        parts = [self.combine(weights * self.times(unit)) for _, unit in self.unit_vectors()]
        return xp.concat(parts, axis=1)

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2`` for those rows and columns."""
        images = self.times(self.block(columns.start, columns.stop).T)
        return self.xp.abs(images[rows, :]) ** 2

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Yield all rows, some at a time where that saves reading them twice, as rows of their own.

        Parameters
        ----------
        width : int, optional
            How many columns products with them will have.
        sums : bool
            Whether they are also summed up, and not only multiplied.
        """
        yield slice(0, self.m), self

    def held_as(self, form: Form) -> Probes | None:
        """Return the same rows in another form, None where they do not have it: see `Form`."""
        return None

    @cached_property
    def _few(self) -> Array:
        """All rows, dense, where they are no more than a block: made once."""
        xp = self.xp
        if self.m <= self.n:
            return self.combine(self.own(np.eye(self.m))).T
        rows = self.times(self.own(np.eye(self.n)))
        return xp.conj(rows) if self.is_complex else rows


def dense_blocks(kind: Probes) -> Iterator[tuple[slice, Array]]:
    """Yield dense rows, one block at a time, each read once."""
    own = getattr(kind, "blocks", None)
    if own is not None:
        yield from own()
        return
    for outer, rows in kind.in_blocks():
        formed = type(rows).block is Probes.block and type(rows).take is Probes.take
        # A block of a kind without stored rows is made from as many columns of length m.
        for part in rows.slices(max(rows.n, rows.m) if formed else None):
            here = slice(outer.start + part.start, outer.start + part.stop)
            yield here, rows.block(part.start, part.stop)


def squared_columns(kind: Probes, y: Array) -> Array:
    """Return ``sum_i y_i |u_ij|^2`` for every j: (m,) to (n,)."""
    own = getattr(kind, "squared_columns", None)
    if own is not None:
        return own(y)
    xp = kind.xp
    parts = [
        xp.sum(y[:, None] * xp.abs(kind.times(unit)) ** 2, axis=0)
        for _, unit in kind.unit_vectors()
    ]
    return xp.concat(parts)


def unit_column_squares(kind: Probes) -> npt.NDArray[np.float64]:
    """Return ``sum_i |u_ij|^2`` for every j over rows of unit norm."""
    held = to_numpy(kind.held_norms)
    with np.errstate(divide="ignore"):
        inverse = 1.0 / (held * held)
    inverse = like(np.where(held > 0.0, inverse, 0.0), kind.held_norms)
    return to_numpy(squared_columns(kind, inverse))


def squares(kind: Probes, X: Array, factors: Array | None, signs: Array | None) -> Array:
    """Return ``sum_k s_k |f_i u_i* x_k|^2`` for X of shape (n, k): to (m,).

    All factors are 1 where None, all signs plus.
    """
    own = getattr(kind, "squares", None)
    if own is not None:
        return own(X, factors, signs)
    found = []
    for part, rows in kind.in_blocks(int(X.shape[1]), sums=False):
        images = rows.times(X)
        if factors is not None:
            images = images * kind.xp.astype(factors[part], images.dtype, copy=False)[:, None]
        if isinstance(images, np.ndarray) and signs is None:
            found.append(np.vecdot(images, images).real)
            continue
        moduli = kind.xp.abs(images) ** 2
        found.append(kind.xp.sum(moduli, axis=1) if signs is None else moduli @ signs)
    return found[0] if len(found) == 1 else kind.xp.concat(found)


def same_rows(one: Probes, two: Probes) -> bool:
    """Return whether two kinds are the same rows, to the last bit."""
    if one is two:
        return True
    own = getattr(one, "same_as", None) or getattr(two, "same_as", None)
    if own is not None:  # of rows in parts, which may be compared with an array
        return bool(own(two if getattr(one, "same_as", None) else one))
    made_of = getattr(one, "made_of", None)
    if made_of is None or type(one) is not type(two):
        return False
    mine, theirs = made_of(), two.made_of()  # type: ignore[attr-defined]
    return len(mine) == len(theirs) and all(map(_same, mine, theirs))


def _same(one: Any, two: Any) -> bool:
    """Return whether two things that rows are made of are equal."""
    if one is two:
        return True
    if isinstance(one, Probes):
        return isinstance(two, Probes) and same_rows(one, two)
    if sp.issparse(one):
        return one.shape == two.shape and (one != two).nnz == 0
    if is_array(one) and is_array(two):
        return tuple(one.shape) == tuple(two.shape) and bool(
            np.array_equal(to_numpy(one), to_numpy(two))
        )
    if isinstance(one, list | tuple):
        return type(one) is type(two) and len(one) == len(two) and all(map(_same, one, two))
    return bool(np.array_equal(one, two))
