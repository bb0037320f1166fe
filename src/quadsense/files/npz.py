"""Named arrays and JSON metadata in ``.npz`` files.

A sparse array ``U`` is stored as ``U.data``, ``U.indices``, ``U.indptr`` and ``U.shape`` (CSR).
Metadata is one JSON text under ``metadata``. What `scipy.sparse.save_npz` wrote is one sparse
array, named as the file is.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files.contents import Arrays, Entry, Unreadable, check_stored, reading, to_csr
from quadsense.files.formats import whole
from quadsense.files.strips import Pieces

TITLE = "an .npz file"
PARTS = ("data", "indices", "indptr", "shape")


def read_arrays(path: str | os.PathLike[str]) -> Arrays:
    """Read named arrays from an ``.npz`` file.

    Parameters
    ----------
    path : path-like
        The file.

    Raises
    ------
    ValueError
        If the file is missing, damaged, not ``.npz`` or holds pickled objects.
    """
    with _opened(path) as archive:
        names = _names(archive.files)
        values = {name: _read(archive, name) for name in names}
        return Arrays(values, _metadata(archive), names)


def contents(path: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """Return what the file holds, from the headers of its arrays, and its metadata."""
    with _opened(path) as archive:
        if _is_scipy_sparse(archive.files):
            for name in archive.files:
                _header(archive, name)
            found = sp.load_npz(path)
            return (Entry(path.stem, found.shape, found.dtype.name, True),), {}
        entries = []
        for name in _names(archive.files):
            if f"{name}.indptr" in archive.files:
                for part in PARTS:
                    _header(archive, f"{name}.{part}")
                shape = tuple(int(size) for size in archive[f"{name}.shape"])
                dtype = _header(archive, f"{name}.data")[1]
                entries.append(Entry(name, shape, dtype.name, True))
            else:
                shape, dtype = _header(archive, name)
                known = dtype.name if dtype.kind in "buifc" else _other(dtype)
                entries.append(Entry(name, shape, known))
        return tuple(entries), _any_metadata(archive)


def load(path: Path, names: list[str]) -> dict[str, Any]:
    """Return the arrays of these names."""
    with _opened(path) as archive:
        if _is_scipy_sparse(archive.files):
            for name in archive.files:
                _header(archive, name)
            return {name: to_csr(sp.load_npz(path)) for name in names}
        return {name: _read(archive, name) for name in names}


def save(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write named arrays and metadata; as `numpy.savez`, which would pickle objects."""
    flat: dict[str, Any] = {"metadata": np.array(json.dumps(metadata))}
    for name, values in arrays.items():
        if sp.issparse(values):
            csr = sp.csr_array(values)
            parts = (csr.data, csr.indices, csr.indptr, np.array(csr.shape))
            flat.update({f"{name}.{key}": part for key, part in zip(PARTS, parts, strict=True)})
        else:
            flat[name] = values
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in flat.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                if isinstance(values, Pieces):
                    write_pieces(entry, values)
                else:
                    array = np.asanyarray(values)
                    np.lib.format.write_array(entry, array, allow_pickle=False)


def write_pieces(stream: Any, rows: Pieces) -> None:
    """Write rows as `numpy.lib.format.write_array` would write all of them."""
    layout = {
        "descr": np.lib.format.dtype_to_descr(rows.dtype),
        "fortran_order": False,
        "shape": rows.shape,
    }
    np.lib.format.write_array_header_1_0(stream, layout)
    for _, values in rows:
        stream.write(memoryview(values).cast("B"))


def write_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    """Write named arrays and metadata to an ``.npz`` file, whole or not at all."""
    with whole(path) as draft:
        save(draft, arrays, metadata)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The opened archive; what is wrong with it, or with what is read of it, in one sentence."""
    with reading(path, TITLE):
        try:
            with open(path, "rb") as stream:
                loaded = np.load(stream, allow_pickle=False)
                if not isinstance(loaded, np.lib.npyio.NpzFile):
                    raise ValueError("it holds a single array")
                with loaded as archive:
                    yield archive
        except ValueError as error:
            if "Object arrays" in str(error):
                raise Unreadable(
                    f"{path} holds pickled objects, which are never loaded: save plain arrays "
                    "with numpy.savez"
                ) from None
            if "pickle" in str(error):
                raise Unreadable(f"{path} is not {TITLE}") from None
            raise


def _metadata(archive: Any) -> Any:
    return json.loads(str(archive["metadata"])) if "metadata" in archive.files else {}


def _any_metadata(archive: Any) -> dict[str, Any]:
    """Return the metadata, none where what is called so is something else."""
    if "metadata" not in archive.files:
        return {}
    shape, dtype = _header(archive, "metadata")
    if shape != () or dtype.kind != "U":
        return {}
    try:
        found = _metadata(archive)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _names(stored: list[str]) -> list[str]:
    """Return names of the arrays, a sparse one's parts under one."""
    sparse = {name.removesuffix(".indptr") for name in stored if name.endswith(".indptr")}
    dense = [name for name in stored if name != "metadata" and name.rsplit(".", 1)[0] not in sparse]
    return sorted([*dense, *sparse])


def _is_scipy_sparse(stored: list[str]) -> bool:
    """Return whether `scipy.sparse.save_npz` wrote these."""
    return {"format", "shape", "data"} <= set(stored)


def _read(archive: Any, name: str) -> Any:
    if f"{name}.indptr" not in archive.files:
        return archive[name]
    data, indices, indptr, shape = (archive[f"{name}.{part}"] for part in PARTS)
    return to_csr(sp.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape)))


def _header(archive: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of an array, the rest of which is not read."""
    if f"{name}.npy" not in archive.zip.namelist():
        return (), np.dtype("S")  # a member that is no array
    info = archive.zip.getinfo(f"{name}.npy")
    with archive.zip.open(info) as stream:
        shape, dtype = read_header(stream)
        held = stream.tell() + math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and info.file_size < held:
        raise ValueError(f"array {name!r} of shape {shape} is cut off")
    check_stored(name, shape, dtype.itemsize, [info.compress_size])
    return shape, dtype


def read_header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of the array in an ``.npy`` stream."""
    shape, _, dtype = read_layout(stream)
    return shape, dtype


def read_layout(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the same, and between them whether it is held column by column."""
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:  # names of fields that are no Latin: no numbers
        raise ValueError(f"its format {version} is unknown")
    shape, by_columns, dtype = read(stream)
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    return shape, by_columns, dtype


def _other(dtype: np.dtype[Any]) -> str:
    """Return what an array holds that holds no numbers."""
    return {"U": "text", "S": "text", "O": "objects", "V": "records"}.get(dtype.kind, dtype.name)
