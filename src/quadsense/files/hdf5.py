"""HDF5: datasets by their paths, complex and sparse ones too; what MATLAB's v7.3 makes of it.

MATLAB stores arrays with their axes reversed, complex numbers as (real, imag), sparse arrays as a
group of ``data``, ``ir`` and ``jc`` (by columns) whose attribute `MATLAB_sparse` is the number of
rows, and arrays without entries as their shape, marked by `MATLAB_empty`.

What is below the line is said of any tree of groups and arrays: Zarr has them too. Both libraries
have the same `keys`, `attrs`, `shape`, `dtype` and ``[...]``. There a sparse array is a group of
``data``, ``indices`` and ``indptr``, its shape an attribute or an array ``shape``;
``encoding-type`` (AnnData), ``h5sparse_format`` or ``format`` say whether by rows (CSR, which is
what is meant where none does) or by columns (CSC).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files.contents import MAX_DEPTH, OUTSIDE, Entry, check_stored, reading, to_csr
from quadsense.files.strips import Pieces

TITLE = "an HDF5 file"
PAIRS = (("real", "imag"), ("r", "i"), ("re", "im"))
"""Names under which the parts of complex numbers are stored."""

MAX_AXES = 64
"""More axes than NumPy has."""


PARTS = ("data", "indices", "indptr")
"""Arrays of a sparse group."""

METADATA = "quadsense"
"""Attribute of the root under which the metadata is, as JSON."""


def contents(path: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """Return what the file holds, nothing of it read, and its metadata."""
    import h5py

    with reading(path, TITLE), open(path, "rb"), h5py.File(path, "r") as root:
        entries = [_entry(name, node) for name, node in _walk(root, path)]
        return tuple(entries), _metadata(root)


def load(path: Path, names: list[str]) -> dict[str, Any]:
    """Return the arrays of these names."""
    import h5py

    with reading(path, TITLE), h5py.File(path, "r") as root:
        return {name: _read(node) for name, node in _walk(root, path) if name in names}


def read_rows(path: Path, name: str, first: int, last: int, out: Any = None) -> Any:
    """Return rows of the array of that name."""
    import h5py

    with reading(path, TITLE), h5py.File(path, "r") as root:
        node = _found(root, path, name)
        if _is_matlab(node):
            return np.ascontiguousarray(_as_complex(node[:, first:last]).T)
        if out is None or out.dtype != node.dtype:
            return _as_complex(node[first:last])
        node.read_direct(out, np.s_[first:last])
        return out


def read_columns(path: Path, name: str, first: int, last: int) -> Any:
    """Return columns of the array of that name."""
    import h5py

    with reading(path, TITLE), h5py.File(path, "r") as root:
        node = _found(root, path, name)
        if _is_matlab(node):
            return _as_complex(node[first:last]).T
        return _as_complex(node[:, first:last])


def rows_together(path: Path, name: str, by_columns: bool = False) -> int:
    """Return rows, or columns, that are packed together."""
    import h5py

    with reading(path, TITLE), h5py.File(path, "r") as root:
        node = _found(root, path, name)
        return 1 if node.chunks is None else int(node.chunks[_is_matlab(node) != by_columns])


def _found(root: Any, path: Path, name: str) -> Any:
    return next(node for key, node in _walk(root, path) if key == name)


def save(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write named arrays and metadata."""
    import h5py

    # From version 1.8 on all but the numbers has checksums: damage is found, and not walked into.
    with h5py.File(path, "w", libver="v108") as root:
        root.attrs[METADATA] = np.bytes_(json.dumps(metadata))
        write_tree(root, arrays, _create, np.bytes_)


def _metadata(root: Any) -> dict[str, Any]:
    """Return the metadata, of fixed length: what is not may be anywhere in a damaged file."""
    if METADATA not in root.attrs or root.attrs.get_id(METADATA).dtype.kind != "S":
        return {}
    return to_metadata(bytes(root.attrs[METADATA]))


def _create(group: Any, name: str, values: Any) -> None:
    if not isinstance(values, Pieces):
        group.create_dataset(name, data=values)
        return
    made = group.create_dataset(name, shape=values.shape, dtype=values.dtype)
    for rows, part in values:
        made[rows] = part


def _walk(root: Any, path: Path) -> Any:
    """Return what is in the file itself, each group once, and links that lead out of the file."""
    import h5py

    seen: set[int] = set()

    def get(group: Any, key: str) -> Any:
        link = group.get(key, getlink=True)
        if not isinstance(link, h5py.HardLink):  # those within the file may lead in circles
            return link if isinstance(link, h5py.ExternalLink) else None
        node = group[key]
        if not isinstance(node, h5py.Group):
            return node
        address = int(h5py.h5o.get_info(node.id).addr)
        known = address in seen
        seen.add(address)
        return None if known else node

    def is_group(node: Any) -> bool:
        return isinstance(node, h5py.Group) and not _by_columns(node)

    seen.add(int(h5py.h5o.get_info(root.id).addr))
    return nodes(root, is_group, path, get)


def _by_columns(node: Any) -> bool:
    """Return whether a group is a sparse array of MATLAB's."""
    return "MATLAB_sparse" in node.attrs


def _is_matlab(node: Any) -> bool:
    """Return whether MATLAB wrote it, so that its axes are reversed."""
    return "MATLAB_class" in node.attrs


def _entry(name: str, node: Any) -> Entry:
    if hasattr(node, "keys"):
        if not _by_columns(node):
            return sparse_entry(name, node, _check)
        for part in ("data", "ir", "jc"):
            if part in node:
                _check(f"{name}/{part}", node[part])
        shape: tuple[int, ...] = (int(node.attrs["MATLAB_sparse"]), int(node["jc"].shape[0]) - 1)
        dtype = np.dtype("f8") if "data" not in node else _complex_type(node["data"].dtype)
        return Entry(name, shape, dtype.name, True)
    if _is_outside(node):
        return Entry(name, (), OUTSIDE)
    if not hasattr(node, "shape") or node.shape is None:
        return Entry(name, (), "nothing")
    _check(name, node)
    shape = tuple(int(size) for size in node.shape)
    if _is_matlab(node):
        shape = _empty_shape(node) if _is_empty(node) else shape[::-1]
        kind = node.attrs["MATLAB_class"]
        kind = kind.decode() if isinstance(kind, bytes) else str(kind)
        if kind in ("char", "cell"):
            return Entry(name, shape, "text" if kind == "char" else kind)
    dtype = _complex_type(node.dtype)
    return Entry(name, shape, dtype.name if dtype.kind in "buifc" else _other(dtype))


def _read(node: Any) -> Any:
    if not hasattr(node, "keys"):
        values = _as_complex(node[()])
        if not _is_matlab(node):
            return values
        if _is_empty(node):
            return np.zeros(_empty_shape(node))
        return np.ascontiguousarray(values.T)
    if not _by_columns(node):
        return read_sparse(node, _as_complex)
    jc, rows = node["jc"][...], int(node.attrs["MATLAB_sparse"])
    filled = "data" in node  # MATLAB leaves out what is empty
    data = _as_complex(node["data"][...]) if filled else np.empty(0)
    ir = node["ir"][...] if filled else np.empty(0, np.int64)
    parts = (data, ir.astype(np.int64), jc.astype(np.int64))
    return to_csr(sp.csc_array(parts, shape=(rows, jc.size - 1)))


def _check(name: str, node: Any) -> None:
    """Raise ValueError for a dataset whose numbers are elsewhere, or that cannot be as declared."""
    if _is_outside(node):
        raise ValueError(f"array {name!r} is {OUTSIDE}")
    stored = min(int(node.id.get_storage_size()), int(node.file.id.get_filesize()))
    check_stored(name, node.shape, node.dtype.itemsize, [stored], node.chunks)


def _is_outside(node: Any) -> bool:
    """Return whether this is a link to another file, or a dataset whose numbers are in others."""
    if not hasattr(node, "id"):
        return True
    return bool(getattr(node, "is_virtual", False) or getattr(node, "external", None))


def _empty_shape(node: Any) -> tuple[int, ...]:
    """Return the shape of an array without entries, which is what MATLAB stores of it."""
    shape = tuple(int(size) for size in node[...]) if node.size <= MAX_AXES else (1,)
    if 0 not in shape:
        raise ValueError(f"{node.name} is marked as empty, and is not")
    return shape


def _is_empty(node: Any) -> bool:
    return bool(node.attrs.get("MATLAB_empty", 0))


def _complex_type(dtype: Any) -> np.dtype[Any]:
    """Return the type of what `_as_complex` makes of values of a type."""
    found = np.dtype(dtype)
    if found.names in PAIRS and all(found[name].kind in "iuf" for name in found.names):
        single = all(found[name] == np.float32 for name in found.names)
        return np.dtype(np.complex64 if single else np.complex128)
    return found


def _as_complex(values: Any) -> Any:
    """Return pairs of a real and an imaginary part as complex numbers."""
    wanted = _complex_type(values.dtype)
    if values.dtype.names is None or wanted == values.dtype:
        return values
    real, imag = values.dtype.names
    found = np.empty(values.shape, wanted)
    found.real, found.imag = values[real], values[imag]
    return found


def _other(dtype: np.dtype[Any]) -> str:
    """Return what an array holds that holds no numbers."""
    return {"U": "text", "S": "text", "O": "text", "V": "records"}.get(dtype.kind, dtype.name)


# --- trees of groups and arrays, as Zarr has them too --------------------------------------------


def nodes(
    root: Any,
    is_group: Callable[[Any], bool],
    path: Path,
    get: Callable[[Any, str], Any] = lambda group, key: group[key],
) -> Iterator[tuple[str, Any]]:
    """Return arrays and sparse groups by their paths; a root that is one has the name of the file.

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
    return _below(root, is_group, get, "")


def _below(root: Any, is_group: Any, get: Any, name: str) -> Iterator[tuple[str, Any]]:
    if name.count("/") > MAX_DEPTH:
        raise ValueError(f"its groups are nested more than {MAX_DEPTH} deep")
    for key in sorted(root.keys()):
        node = None if key.startswith("#") else get(root, key)  # MATLAB's: what its cells refer to
        if node is None:
            continue
        path = f"{name}/{key}" if name else str(key)
        if is_group(node) and not is_sparse(node):
            yield from _below(node, is_group, get, path)
        else:
            yield path, node


def is_sparse(group: Any) -> bool:
    """Return whether a group is a sparse array."""
    return set(PARTS) <= set(group.keys())


def sparse_entry(name: str, group: Any, check: Callable[[str, Any], None]) -> Entry:
    """Return what is known of a sparse group without reading it; `check` refuses its arrays."""
    for part in PARTS:
        check(f"{name}/{part}", group[part])
    return Entry(name, _shape(group), np.dtype(group["data"].dtype).name, True)


def read_sparse(group: Any, convert: Callable[[Any], Any] = lambda values: values) -> Any:
    """Return the CSR array of a sparse group."""
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
    """Return the metadata that is written so; none where it is not ours."""
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
