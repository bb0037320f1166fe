"""Zarr: arrays by their paths in a folder or a zip file, complex and sparse ones too."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from quadsense.files.contents import Entry, Unreadable, check_stored, reading
from quadsense.files.hdf5 import (
    METADATA,
    nodes,
    read_sparse,
    sparse_entry,
    to_metadata,
    write_tree,
)
from quadsense.files.strips import Pieces
from quadsense.system.machine import MIB

TITLE = "a Zarr store"
MARKS = ("zarr.json", ".zgroup", ".zarray")
"""Files of which one is in every store that is a folder."""


def contents(path: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """Return what the store holds, nothing of it read, and its metadata."""
    with _opened(path) as root:
        entries = [_entry(path, name, node) for name, node in _walk(root, path)]
        return tuple(entries), to_metadata(root.attrs.get(METADATA))


def load(path: Path, names: list[str]) -> dict[str, Any]:
    """Return the arrays of these names."""
    with _opened(path) as root:
        return {
            name: read_sparse(node) if _is_group(node) else np.asarray(node[...])
            for name, node in _walk(root, path)
            if name in names
        }


def read_rows(path: Path, name: str, first: int, last: int, out: Any = None) -> Any:
    """Return rows of the array of that name."""
    with _opened(path, whole=False) as root:
        return np.asarray(_found(root, path, name)[first:last])


def read_columns(path: Path, name: str, first: int, last: int) -> Any:
    """Return columns of the array of that name."""
    with _opened(path, whole=False) as root:
        return np.asarray(_found(root, path, name)[:, first:last])


def rows_together(path: Path, name: str, by_columns: bool = False) -> int:
    """Return rows, or columns, that are packed together."""
    with _opened(path, whole=False) as root:
        return int(_found(root, path, name).chunks[int(by_columns)])


def _found(root: Any, path: Path, name: str) -> Any:
    return next(node for key, node in _walk(root, path) if key == name)


def save(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write named arrays and metadata."""
    import zarr

    packed = path.suffix.lower() == ".zip"
    place = path.with_name("unpacked") if packed else path
    root = zarr.open_group(place, mode="w")
    root.attrs[METADATA] = json.dumps(metadata)
    write_tree(root, arrays, _create)
    if packed:  # written into the zip file itself, what changes would be there twice
        with zipfile.ZipFile(path, "w") as archive:
            for each in sorted(place.rglob("*")):
                if each.is_file():
                    archive.write(each, each.relative_to(place))
        shutil.rmtree(place)


def is_store(path: Path) -> bool:
    """Return whether a folder is a Zarr store."""
    return any((path / mark).is_file() for mark in MARKS)


@contextmanager
def _opened(path: Path, whole: bool = True) -> Iterator[Any]:
    """The store; of a zip file, looked through for damage unless only some of it is read."""
    import zarr

    with reading(path, TITLE):
        if path.is_dir() and not is_store(path):
            raise Unreadable(f"{path} is a folder, but no Zarr store")
        if path.is_dir():
            yield zarr.open(path, mode="r")
            return
        if whole:
            with zipfile.ZipFile(path) as archive:  # Zarr reads elsewhere, and complains there
                damaged = archive.testzip()
            if damaged is not None:
                raise Unreadable(f"{path} is damaged ({damaged} in it)")
        with zarr.storage.ZipStore(path, mode="r") as store:
            yield zarr.open(store, mode="r")


def _is_group(node: Any) -> bool:
    return hasattr(node, "keys")


def _walk(root: Any, path: Path) -> Iterator[tuple[str, Any]]:
    return nodes(root, _is_group, path)


def _entry(path: Path, name: str, node: Any) -> Entry:
    if _is_group(node):
        return sparse_entry(name, node, lambda part, each: _check(path, part, each))
    _check(path, name, node)
    dtype = np.dtype(node.dtype)
    known = dtype.name if dtype.kind in "buifc" else "text"
    return Entry(name, tuple(int(size) for size in node.shape), known)


def _check(path: Path, name: str, node: Any) -> None:
    """Raise ValueError for an array that cannot be as its metadata declare it."""
    chunk = tuple(int(size) for size in getattr(node, "shards", None) or node.chunks)
    shape, itemsize = tuple(int(size) for size in node.shape), np.dtype(node.dtype).itemsize
    check_stored(name, shape, itemsize, _stored(path, node.path), chunk)


def _stored(path: Path, name: str) -> Iterator[int]:
    """Yield the bytes of each file of an array."""
    if path.is_dir():
        for folder, _, files in os.walk(path / name):
            for each in files:
                yield os.stat(os.path.join(folder, each)).st_size
        return
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.startswith(f"{name}/" if name else ""):
                yield info.compress_size


def _create(group: Any, name: str, values: Any) -> None:
    if not isinstance(values, Pieces):
        made = group.create_array(name, shape=values.shape, dtype=values.dtype)
        made[...] = values
        return
    m, n = values.shape
    together = min(m, max(1, MIB // (n * values.dtype.itemsize)))
    made = group.create_array(name, shape=(m, n), dtype=values.dtype, chunks=(together, n))
    for rows, part in values:
        made[rows] = part
