"""One array in an ``.npy`` file, named as the file is; a folder of them is several."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files.contents import Entry, Unreadable, reading
from quadsense.files.npz import read_header, read_layout

TITLE = "an .npy file"


def contents(path: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """Return the array of the file, or those of the folder, from their headers."""
    return tuple(_entry(each) for each in _files(path)), {}


def load(path: Path, names: list[str]) -> dict[str, Any]:
    """Return the arrays of these names."""
    return {each.stem: _load(each) for each in _files(path) if each.stem in names}


def read_rows(path: Path, name: str, first: int, last: int, out: Any = None) -> Any:
    """Return rows of the array of that name, into `out` where it is of their type."""
    (place,) = (each for each in _files(path) if each.stem == name)
    with reading(place, TITLE), open(place, "rb", buffering=0) as stream:
        shape, by_columns, dtype = read_layout(stream)
        if by_columns:
            return np.array(np.load(place, mmap_mode="r", allow_pickle=False)[first:last])
        if out is None or out.dtype != dtype:
            out = np.empty((last - first, shape[1]), dtype)
        begin = stream.tell() + first * shape[1] * dtype.itemsize
        stream.seek(begin)
        view = memoryview(out.reshape(-1).view(np.uint8))
        done = 0
        while done < len(view):
            taken = stream.readinto(view[done:])
            if not taken:
                row = first + done // (shape[1] * dtype.itemsize)
                raise Unreadable(f"{place} is cut off: it ends in row {row} of {shape[0]}")
            done += taken
        return out


def read_columns(path: Path, name: str, first: int, last: int) -> Any:
    """Return columns of the array of that name."""
    (place,) = (each for each in _files(path) if each.stem == name)
    with reading(place, TITLE):
        return np.array(np.load(place, mmap_mode="r", allow_pickle=False)[:, first:last])


def save(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write the one array."""
    (values,) = arrays.values()
    dense = values.toarray() if sp.issparse(values) else np.asarray(values)
    with open(path, "wb") as stream:
        np.save(stream, dense, allow_pickle=False)


def _files(path: Path) -> list[Path]:
    """Return the file itself, or those of a folder."""
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.suffix.lower() == ".npy")
    return [path]


def _entry(path: Path) -> Entry:
    with reading(path, TITLE), open(path, "rb") as stream:
        shape, dtype = read_header(stream)
        known = dtype.name if dtype.kind in "buifc" else "objects" if dtype.hasobject else "text"
        held = math.prod(shape) * dtype.itemsize
        if known not in ("objects", "text") and path.stat().st_size < stream.tell() + held:
            row = (path.stat().st_size - stream.tell()) * shape[0] // held
            raise Unreadable(f"{path} is cut off: it ends in row {row} of {shape[0]}")
        return Entry(path.stem, shape, known)


def _load(path: Path) -> Any:
    with reading(path, TITLE):
        try:
            with open(path, "rb") as stream:
                return np.lib.format.read_array(stream, allow_pickle=False)
        except ValueError as error:
            if "Object arrays" in str(error):
                raise Unreadable(
                    f"{path} holds pickled objects, which are never loaded: save a plain array "
                    "with numpy.save"
                ) from None
            raise
