"""K and the normal matrix of the sensing map, formed in blocks; passes over blocks of rows.

Each takes the sensing map, a `Sensing` of single rows, as its first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, to_numpy
from quadsense.core import products
from quadsense.core.products import FEATURE_ROWS
from quadsense.device import DeviceArray, tensor_of
from quadsense.measurements.views import is_dense, is_in_parts
from quadsense.system.machine import BLOCK_ELEMENTS, FLOAT64_BYTES, GIB
from quadsense.system.watch import BLOCK_FLOPS, look

Weigh = Callable[[slice, Array], Array]
"""``weigh(rows, p)`` takes a slice of rows and their images, (k, rows), which it may change; it
returns an array of their shape."""

MIN_BLOCKS = 8
"""Blocks of K that are computed at least: above the diagonal they are about half of it."""

MIN_COLUMNS = 64
"""Columns, or rows, that a block has at least."""

DEVICE_ENTRIES = GIB // 2 // FLOAT64_BYTES
"""Entries of features formed together on a device."""


def one_pass(F: Any, Y: Array, weigh: Weigh | None) -> tuple[Array, Any]:
    """Return images of a factor, and the sum of what is weighed, in one pass where possible.

    Parameters
    ----------
    F : Sensing
    Y : array of shape (k, n)
    weigh : Weigh, optional

    Returns
    -------
    P : array of shape (k, m)
        With columns ``v_i* Y^T``, each row in one piece, writable.
    total : array of shape (k, n)
        ``sum_i weigh(P)_i v_i``; None where nothing is weighed.
    """
    X, found, total, P = F._cast(Y.T), [], None, None
    for part, rows in F.in_blocks(len(Y)):
        image = rows.times(X).T
        whole = rows is F or rows.m == F.m
        if P is None and not whole and isinstance(image, np.ndarray):
            P = F.empty((len(Y), F.m), image.dtype)
        if P is None:
            p = writable(image, Y)
            found.append(p)
        else:
            p = P[:, part]
            p[...] = image
        if weigh is not None:
            sums = rows.combine(weigh(part, p).T)
            total = sums if total is None else total + sums
    if P is None:
        P = found[0] if len(found) == 1 else F.xp.concat(found, axis=1)
    return P, None if total is None else total.T


def writable(image: Array, given: Array) -> Array:
    """Return images of a factor, (k, rows), with each row in one piece, to be written to."""
    if isinstance(image, np.ndarray):
        image = np.require(image, requirements=("C", "W"))
        return image.copy() if np.may_share_memory(image, given) else image
    tensor = tensor_of(image)
    if tensor is not None:
        return DeviceArray(tensor.contiguous())
    return image.contiguous() if hasattr(image, "contiguous") else image


def gram_triangle(F: Any, single: bool = False, lower: bool = False) -> npt.NDArray[Any]:
    """Return K in Fortran order, in either precision; its upper (lower) triangle counts."""
    kind: Any = F.kind
    if not is_dense(kind):
        whole = slice(0, F.m)
        blocks = [F.gram_block(part, whole) for part in F.slices(F.m)]
        if F.xp is not np:
            blocks = [to_numpy(block) for block in blocks]
        return np.concatenate(blocks).astype(np.float32 if single else np.float64).T
    dtype = np.dtype(np.complex64 if F.is_complex else np.float32)
    dtype, inner = dtype if single else np.dtype(kind.dtype), None
    # A copy of U is no larger than K where n <= m; else columns at a time.
    width = F.n if F.n <= F.m else max(MIN_COLUMNS, BLOCK_ELEMENTS // F.m)
    for first in range(0, F.n, width):
        block = kind.some_columns(slice(first, first + width))
        if F.factors is not None:
            block = block * F.factors[:, None]
        block = np.ascontiguousarray(block, dtype=dtype)
        if width >= F.n:
            return products.gram(block, lower)
        look()
        product = block @ block.conj().T
        inner = product if inner is None else np.add(inner, product, out=inner)
    assert inner is not None
    return np.asarray((np.abs(inner) ** 2 if F.is_complex else inner * inner).T)


def gram_times(F: Any, Y: Array) -> Array:
    """Return ``K @ Y`` with K never held whole: (m,) or (m, k) to the same.

    Only the upper half of K is computed (K is symmetric): about m^2 n flops.
    """
    xp = F.xp
    columns = Y if Y.ndim == 2 else Y[:, None]
    size = max(1, min(BLOCK_ELEMENTS // max(F.m, 1), max(MIN_COLUMNS, -(-F.m // MIN_BLOCKS))))
    size = min(size, max(MIN_COLUMNS, int(BLOCK_FLOPS / (2.0 * max(F.m * F.n, 1)))))
    below = xp.zeros_like(columns)
    parts = []
    for begin in range(0, F.m, size):
        here = slice(begin, min(begin + size, F.m))
        look()
        K = F.gram_block(here, slice(begin, F.m))
        parts.append(below[here, :] + K @ columns[begin:, :])
        rest = K[:, here.stop - begin :].T @ columns[here, :]
        head = below[: here.stop, :]
        below = xp.concat([head, below[here.stop :, :] + rest], axis=0)
    product = xp.concat(parts, axis=0)
    return product if Y.ndim == 2 else product[:, 0]


def normal(F: Any, weights: Any = None, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return ``F* diag(weights) F`` on packed matrices, its upper triangle, in Fortran order."""
    plain = (lambda values: values) if F.xp is np else to_numpy
    factors = None if weights is None else np.sqrt(np.sqrt(plain(weights)))
    kind: Any = F.kind
    if is_in_parts(kind):
        scales = F.inverse if factors is None else F.inverse * factors
        return kind.normal(scales, F.conjugate, dtype)
    size = max(1, DEVICE_ENTRIES // F.unknowns) if F.waits else FEATURE_ROWS

    def parts() -> Iterator[Array]:
        for first, rows in _groups(F, size):
            rows = plain(rows)
            yield rows if factors is None else rows * factors[first : first + len(rows), None]

    return products.normal_matrix(parts(), F.unknowns, dtype)


def _groups(F: Any, size: int) -> Iterator[tuple[int, Array]]:
    """Yield groups of dense rows ``v_i``, at most `size` each, and the number of the first.

    Rows that are not in memory are read in turn, whatever they are read by, so that each is read
    once; the groups are the same.
    """
    if F.kind.at_hand:
        for first in range(0, F.m, size):
            yield first, F.block(first, min(first + size, F.m))
        return
    first, rest = 0, None
    for part, rows in F.blocks():
        rows = rows if rest is None else F.xp.concat([rest, rows])
        while len(rows) >= size or (part.stop == F.m and len(rows)):
            yield first, rows[:size]
            first, rows = first + size, rows[size:]
        rest = rows


SPAN_COUNT = 32
"""In which some rows are taken from everywhere, so that they are like all in whatever order."""


def spread(m: int, count: int) -> npt.NDArray[np.intp]:
    """Return about `count` of m rows, in evenly spaced spans: cheap to read anywhere."""
    if count >= m:
        return np.arange(m)
    width = -(-count // SPAN_COUNT)
    begins = np.linspace(0, m - width, SPAN_COUNT).astype(np.intp)
    return np.unique(begins[:, None] + np.arange(width))
