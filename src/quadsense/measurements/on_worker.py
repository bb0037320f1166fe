"""What runs on the workers of a cluster: one thread of BLAS, whatever they have, for the same bits.

Sums are made of neighbours first, and so on: in a binary tree of all parts, however many of them a
worker has.
"""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from quadsense.arrays import Array
from quadsense.measurements.dense import Dense
from quadsense.measurements.parted import Work, apply_to_part, rows_of, squared, survey
from quadsense.measurements.probes import Probes
from quadsense.measurements.tensors import Tensors
from quadsense.measurements.views import OnNumpy
from quadsense.system.threads import one_blas_thread

Branches = dict[tuple[int, int], Any]
"""Sums of whole branches of the tree, by level and place: of part i, (0, i)."""


def of_share(work: Work, dtype: str, own: Sequence[Any], *given: Any) -> list[Any]:
    """What `work` makes of every part of a share.

    Parameters
    ----------
    work : callable
    dtype : str
        Of the arithmetic.
    own : sequence of sequences
        What each part is given alone.
    *given
        Rows of every part, their facts, and what all of them are given.
    """
    return list(_each(work, dtype, own, given))


def sums_of_share(
    parts: Sequence[int], count: int, work: Work, dtype: str, own: Sequence[Any], *given: Any
) -> Branches:
    """The sum of what `work` makes of a share, as far as it has whole branches.

    Parameters
    ----------
    parts : sequence of int
        Which parts those are.
    count : int
        Of all.
    *others
        As `of_share` has them.
    """
    sums: Branches = {}
    for part, found in zip(parts, _each(work, dtype, own, given), strict=True):
        sums[0, part] = found
        add_up(sums, count, operator.iadd)
    return sums


def _each(work: Work, dtype: str, own: Sequence[Any], given: Sequence[Any]) -> Iterator[Any]:
    size = len(own)
    shared = given[2 * size :]
    for rows, facts, mine in zip(given[:size], given[size : 2 * size], own, strict=True):
        yield at_part(work, dtype, rows, facts, *shared, *mine)


def joined(count: int, *sums: Branches) -> Branches:
    """Sums of several shares, as far as they have whole branches together."""
    found: Branches = {}
    for each in sums:
        found |= each
    add_up(found, count, operator.add)
    return found


def add_up(sums: Branches, count: int, add: Callable[[Any, Any], Any]) -> None:
    """Put the sum of two halves in their place wherever both are there.

    Parameters
    ----------
    sums : dict
    count : int
        Parts of the tree.
    add : callable
        Whether the left one may be written to, `operator.iadd`, or not, `operator.add`.
    """
    level = 0
    while count > 1:
        for place in sorted(place for at, place in sums if at == level and place % 2 == 0):
            if place + 1 == count:  # it has no neighbour
                sums[level + 1, place // 2] = sums.pop((level, place))
            elif (level, place + 1) in sums:
                left, right = sums.pop((level, place)), sums.pop((level, place + 1))
                sums[level + 1, place // 2] = add(left, right)
        level, count = level + 1, (count + 1) // 2


def at_part(work: Work, dtype: str, rows: Any, facts: Any, *arguments: Any) -> Any:
    """What `work` makes of a part."""
    known: Any = None
    seen: Callable[..., Probes] = rows_of
    if facts is not None and not facts[1].any():
        known = facts[0]
        if work in PRODUCTS and gpu() is not None:
            seen = rows_on_gpu
    with one_blas_thread(share=False), np.errstate(under="ignore"):
        return apply_to_part(work, rows, np.dtype(dtype), known, *arguments, seen=seen)


PRODUCTS = ("times", "combine", "forward", "adjoint", squared)
"""What a GPU of a worker does, where it has one."""


@cache
def gpu() -> Any:
    """The device of this worker's GPU, None where torch sees none.

    Torch takes seconds to import, so it is asked only where there may be one.
    """
    if not ("torch" in sys.modules or os.path.exists("/dev/nvidiactl")):
        return None
    try:
        import torch
    except ImportError:
        return None
    return torch.device("cuda") if torch.cuda.is_available() else None


def rows_on_gpu(rows: Any, dtype: Any, known: Any) -> Probes:
    """A part that is sent to the GPU of the worker, by what NumPy's functions take and give."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of arrays that may not be written to: none is
        held, norms = (torch.from_numpy(np.asarray(each)).to(gpu()) for each in (rows, known))
    return OnNumpy(Tensors(held, norms=norms))


def surveyed(rows: Any, dtype: str) -> Any:
    """Norms and exponents of a part."""
    return at_part(survey, dtype, rows, None)


def same(value: Any) -> Any:
    """What it is given."""
    return value


def nothing(*_: Any) -> None:
    """Nothing: but a worker that is to do this gets what it is to do it with."""


def cut(rows: Dense, ends: tuple[int, int]) -> Array:
    """Some rows of a part."""
    return rows.block(*ends)


def moduli(rows: Dense, few: Array, ends: tuple[int, int]) -> Array:
    """``|<u_i, u_j>|`` of other rows and some of a part."""
    left = few.conj() if rows.is_complex else few
    return np.abs(left @ rows.block(*ends).T)
