"""What follows from the products of a kind of probes, whatever the kind.

Kinds that come with the package may have a quicker way: a method that is called as the
function here (`blocks`, `squared_columns`, `squares`, `same_as`), or what they are made of
(`made_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, is_array, like, to_numpy
from quadsense.measurements.probes import Probes


def dense_blocks(kind: Probes) -> Iterator[tuple[slice, Array]]:
    """Dense rows, one block at a time, each read once."""
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
    """``sum_i y_i |u_ij|^2`` for every j: (m,) to (n,)."""
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
    """``sum_i |u_ij|^2`` for every j over rows of unit norm."""
    held = to_numpy(kind.held_norms)
    with np.errstate(divide="ignore"):
        inverse = 1.0 / (held * held)
    inverse = like(np.where(held > 0.0, inverse, 0.0), kind.held_norms)
    return to_numpy(squared_columns(kind, inverse))


def squares(kind: Probes, X: Array, factors: Array | None, signs: Array | None) -> Array:
    """``sum_k s_k |f_i u_i* x_k|^2`` for X of shape (n, k): to (m,).

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
    """Whether two kinds are the same rows, to the last bit."""
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
    """Whether two things that rows are made of are equal."""
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
