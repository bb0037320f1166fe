"""What a cluster loads, part by part: rows of files, or chunks of a dask.array; and its tasks.

How rows are divided follows from the data alone, never from the workers, and sums are made part by
part: the bits of an answer do not depend on who computes. A task runs with one thread of BLAS,
whatever the worker has, and sums are made of neighbors first, in a binary tree of all parts.
"""

from __future__ import annotations

import hashlib
import operator
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from quadsense.arrays import Array
from quadsense.files import Strip, Strips, Unreadable
from quadsense.files.strips import STRIP_BYTES, native
from quadsense.measurements.arrays import Dense
from quadsense.measurements.parted import Work, apply_to_part, rows_of, squared, survey
from quadsense.measurements.probes import Probes
from quadsense.measurements.tensors import Tensors
from quadsense.measurements.views import OnNumpy
from quadsense.system.threads import one_blas_thread

MAX_PARTS = 1024
"""Parts of all rows: a scheduler hands out some thousand tasks per second."""


@dataclass(frozen=True)
class Bundle:
    """Consecutive strips of files, loaded together by whichever worker needs them."""

    strips: tuple[Strip, ...]

    def __len__(self) -> int:
        """Number of rows."""
        return sum(map(len, self.strips))

    @property
    def width(self) -> int:
        """Length of a row."""
        return self.strips[0].width

    @property
    def dtype(self) -> str:
        """As the numbers come out."""
        return self.strips[0].dtype

    @property
    def key(self) -> str:
        """The same for the same rows of the same files, so that a cluster holds them once."""
        text = hashlib.blake2s(repr(self.strips).encode()).hexdigest()
        return f"quadsense_load-{text}"

    def read(self, out: Any = None) -> Any:
        """Return the rows, (rows, n)."""
        for strip in self.strips:
            if not os.access(strip.path, os.R_OK):
                raise Unreadable(
                    f"{strip.path} cannot be read on {socket.gethostname()} (rows {strip.first} to "
                    f"{strip.last - 1} were wanted): workers read the files themselves, so every "
                    "one of them must have them under this name"
                )
        return self.strips[0].read() if len(self.strips) == 1 else Strips(self.strips).load()

    def row(self, i: int) -> str:
        """Return row i of these, for messages."""
        return Strips(self.strips).row(i)


@dataclass(frozen=True)
class ArrayChunk:
    """A chunk of rows of a dask.array.

    Attributes
    ----------
    array : dask.array
        Of whole rows.
    number : int
        Of the chunk.
    """

    array: Any
    number: int

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.array.chunks[0][self.number])

    def __eq__(self, other: object) -> bool:
        """Whether they are the same chunk of the same array, which its name says."""
        same = isinstance(other, ArrayChunk) and self.array.name == other.array.name
        return same and self.number == other.number  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        """By name and number."""
        return hash((self.array.name, self.number))

    @property
    def width(self) -> int:
        """Length of a row."""
        return int(self.array.shape[1])

    @property
    def dtype(self) -> Any:
        """As the numbers come out."""
        return self.array.dtype

    def read(self, out: Any = None) -> Any:
        """Return the rows, (rows, n), as Dask's default scheduler computes them."""
        return self.array.blocks[self.number].compute()

    def row(self, i: int) -> str:
        """Return row i of these, for messages."""
        return f"row {i} of chunk {self.number} of the dask.array"


class Shards(Strips):
    """The parts of all rows on a cluster: bundles, or chunks."""

    @classmethod
    def of_files(cls, strips: Strips) -> Shards:
        """Return consecutive strips together, up to a size that follows from all of them."""
        rows, n = strips.shape
        most = part_bytes(rows, n, strips.dtype.itemsize)
        parts: list[list[Strip]] = []
        held = most
        for strip in strips:
            size = len(strip) * n * strips.dtype.itemsize
            if held + size > most:
                parts.append([])
                held = 0
            parts[-1].append(replace(strip, path=strip.path.absolute()))  # workers are elsewhere
            held += size
        return cls([Bundle(tuple(part)) for part in parts])

    @classmethod
    def of_array(cls, U: Any) -> Shards:
        """Return the chunks of a dask.array, of whole rows; many small ones are put together."""
        rows, n = U.shape
        dtype = native(U.dtype)
        U = U.map_blocks(_as_declared, U.dtype, dtype=U.dtype, meta=np.empty((0, 0), U.dtype))
        columns = {1: -1} if U.numblocks[1] > 1 else {}
        if U.numblocks[0] > MAX_PARTS:
            columns |= {0: -(-part_bytes(rows, n, dtype.itemsize) // (n * dtype.itemsize)), 1: -1}
        U = U.rechunk(columns) if columns else U
        U = U.map_blocks(_plain, dtype, dtype=dtype, meta=np.empty((0, 0), dtype))
        return cls([ArrayChunk(U, number) for number in range(U.numblocks[0])])

    def submit(self, client: Any, wanted: Sequence[int], attempt: int) -> list[Any]:
        """Return futures of the rows of some parts.

        Loaded on the workers and never sent there, so that Dask loads again what it loses; and by
        whichever is free: what was to be on a worker that is gone would wait for ever, also where
        others were allowed, if none was there meanwhile.

        Parameters
        ----------
        client : distributed.Client
        wanted : sequence of int
        attempt : int
            Which one: what failed before is asked for by another name.
        """
        if isinstance(self[0], ArrayChunk):
            blocks = self[0].array.to_delayed().ravel()
            return list(client.compute([blocks[self[part].number] for part in wanted]))
        bundles = [self[part] for part in wanted]
        return list(client.map(load, bundles, key=[f"{each.key}-{attempt}" for each in bundles]))


def current_client(U: Any) -> Any:
    """Return the client by which Dask would compute an array now; None where none would."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(collections=[U]), "__self__", None)
    return client if is_client(client) else None


def is_client(value: object) -> bool:
    """Return whether that is a Dask client, decided without importing Dask."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(value, distributed.Client)


def refuse_other_than_client(value: object) -> None:
    """Refuse what a client could be made of: the caller makes it, and closes it."""
    distributed = sys.modules.get("distributed")
    is_cluster = distributed is not None and isinstance(value, distributed.deploy.Cluster)
    if is_cluster or (isinstance(value, str) and "://" in value):
        given = repr(value) if isinstance(value, str) else "cluster"
        raise ValueError(
            f"a {'Dask cluster' if is_cluster else 'scheduler'} is no client: give a "
            f"distributed.Client, Client({given})"
        )


def part_bytes(rows: int, n: int, itemsize: int) -> int:
    """Return bytes of a part, at most, unless a single strip is larger.

    As many as of a strip, if the sums of a part, (n, n), are not larger than its rows, and there
    are not too many parts.
    """
    return max(STRIP_BYTES, n * n * itemsize, rows * n * itemsize // MAX_PARTS)


def load(bundle: Bundle) -> Any:
    """Return the rows of a bundle, on a worker."""
    return bundle.read()


def _as_declared(block: Any, dtype: Any, block_info: Any = None) -> Any:
    """Return a chunk that has the type and shape that the dask.array declares, or raise.

    Dask takes its word for both; what a type of the same or more numbers holds as well is let be.
    """
    found, shape = np.asanyarray(block), tuple(block_info[None]["chunk-shape"])
    fits = np.can_cast(found.dtype, dtype, "safe")
    if fits and found.shape == shape and not np.ma.is_masked(found):
        return found
    place = tuple(map(int, block_info[0]["chunk-location"]))
    which = place[0] if block_info[0]["num-chunks"][1] == 1 else place
    if np.ma.is_masked(found):
        raise ValueError(f"chunk {which} of the dask.array has masked numbers: fill them first")
    raise ValueError(
        f"chunk {which} of the dask.array computes to {found.dtype} of shape {found.shape}, but "
        f"{np.dtype(dtype)} of shape {shape} is declared: state what its chunks are by "
        f"{'chunks=' if fits else 'dtype= or meta='} where it is made"
    )


def _plain(block: Any, dtype: Any) -> Any:
    """Return a chunk as rows one after the other, in a type that the machine computes with."""
    return np.ascontiguousarray(block, dtype=dtype)


Branches = dict[tuple[int, int], Any]
"""Sums of whole branches of the tree, by level and place: of part i, (0, i)."""


def of_share(work: Work, dtype: str, own: Sequence[Any], *given: Any) -> list[Any]:
    """Return what `work` makes of every part of a share.

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
    """Return the sum of what `work` makes of a share, as far as it has whole branches.

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
    """Return sums of several shares, as far as they have whole branches together."""
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
    """Return what `work` makes of a part."""
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
    """Return the device of this worker's GPU, None where torch sees none.

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
    """Return a part that is sent to the GPU of the worker; NumPy's arrays go in and out."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of arrays that may not be written to: none is
        held, norms = (torch.from_numpy(np.asarray(each)).to(gpu()) for each in (rows, known))
    return OnNumpy(Tensors(held, norms=norms))


def surveyed(rows: Any, dtype: str) -> Any:
    """Return norms and exponents of a part."""
    return at_part(survey, dtype, rows, None)


def same(value: Any) -> Any:
    """Return what it is given."""
    return value


def nothing(*_: Any) -> None:
    """Nothing: but a worker that is to do this gets what it is to do it with."""


def cut(rows: Dense, ends: tuple[int, int]) -> Array:
    """Return some rows of a part."""
    return rows.block(*ends)


def moduli(rows: Dense, few: Array, ends: tuple[int, int]) -> Array:
    """Return ``|<u_i, u_j>|`` of other rows and some of a part."""
    left = few.conj() if rows.is_complex else few
    return np.abs(left @ rows.block(*ends).T)
