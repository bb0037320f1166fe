"""Trees of groups and arrays, as HDF5 and Zarr have them, and sparse arrays inside.

A sparse array is a group of ``data``, ``indices`` and ``indptr``, its shape an attribute or an
array ``shape``; ``encoding-type`` (AnnData), ``h5sparse_format`` or ``format`` say whether by rows
(CSR, which is what is meant where none does) or by columns (CSC). Both libraries have the same
`keys`, `attrs`, `shape`, `dtype` and ``[...]``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files.contents import Entry, to_csr
from quadsense.files.strips import Pieces

DEPTH = 32
"""Groups within groups that are looked into."""

PARTS = ("data", "indices", "indptr")
"""Arrays of a sparse group."""

METADATA = "quadsense"
"""Attribute of the root under which the metadata is, as JSON."""


def nodes(
    root: Any,
    is_group: Callable[[Any], bool],
    path: Path,
    get: Callable[[Any, str], Any] = lambda group, key: group[key],
) -> Iterator[tuple[str, Any]]:
    """Arrays and sparse groups by their paths; the root, where it is one, is named as the file.

    Parameters
    ----------
    root : group or array
    is_group : callable
        Whether to look into a node.
    path : Path
        Of the file.
    get : callable
        What a group has under a key; None where that is to be left out.
    """
    if not is_group(root) or is_sparse(root):
        return iter([(path.name.split(".")[0], root)])
    return _walk(root, is_group, get, "")


def _walk(root: Any, is_group: Any, get: Any, name: str) -> Iterator[tuple[str, Any]]:
    if name.count("/") > DEPTH:
        raise ValueError(f"its groups are nested more than {DEPTH} deep")
    for key in sorted(root.keys()):
        node = None if key.startswith("#") else get(root, key)  # MATLAB's: what its cells refer to
        if node is None:
            continue
        path = f"{name}/{key}" if name else str(key)
        if is_group(node) and not is_sparse(node):
            yield from _walk(node, is_group, get, path)
        else:
            yield path, node


def is_sparse(group: Any) -> bool:
    """Whether a group is a sparse array."""
    return set(PARTS) <= set(group.keys())


def sparse_entry(name: str, group: Any, check: Callable[[str, Any], None]) -> Entry:
    """Return what is known of a sparse group without reading it; `check` refuses its arrays."""
    for part in PARTS:
        check(f"{name}/{part}", group[part])
    return Entry(name, _shape(group), np.dtype(group["data"].dtype).name, True)


def read_sparse(group: Any, convert: Callable[[Any], Any] = lambda values: values) -> Any:
    """The CSR array of a sparse group."""
    data, indices, indptr = (group[part][...] for part in PARTS)
    kind = sp.csc_array if _format(group).startswith("csc") else sp.csr_array
    return to_csr(kind((convert(data), indices, indptr), shape=_shape(group)))


def write_tree(
    root: Any, arrays: Mapping[str, Any], create: Callable[[Any, str, Any], object], text: Any = str
) -> None:
    """Write arrays into an open root.

    Parameters
    ----------
    root : group
    arrays : mapping
        Dense and sparse ones, and `Pieces`.
    create : callable
        Makes an array of a group, a name and its values.
    text : callable
        Makes of a text what an attribute is to be.
    """
    for name, values in arrays.items():
        if not sp.issparse(values):
            create(root, name, values if isinstance(values, Pieces) else np.asarray(values))
            continue
        csr, group = sp.csr_array(values), root.create_group(name)
        group.attrs["encoding-type"] = text("csr_matrix")
        group.attrs["encoding-version"] = text("0.1.0")
        group.attrs["shape"] = [int(size) for size in csr.shape]
        for part in PARTS:
            create(group, part, getattr(csr, part))


def to_metadata(text: Any) -> dict[str, Any]:
    """The metadata that is written so; none where it is not ours."""
    found = json.loads(text) if isinstance(text, str | bytes) else {}
    return found if isinstance(found, dict) else {}


def _shape(group: Any) -> tuple[int, ...]:
    for name in ("shape", "h5sparse_shape"):
        if name in group.attrs:
            return tuple(int(size) for size in group.attrs[name])
    if "shape" in group and group["shape"].shape == (2,):
        return tuple(int(size) for size in group["shape"][...])
    raise ValueError("a sparse array in it has no shape")


def _format(group: Any) -> str:
    for name in ("encoding-type", "h5sparse_format", "format"):
        if name in group.attrs:
            found = group.attrs[name]
            return found.decode() if isinstance(found, bytes) else str(found)
    return "csr"
