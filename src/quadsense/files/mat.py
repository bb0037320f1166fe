"""MATLAB's files: v5 to v7.2 (`mat5`), v7.3, which is HDF5, by h5py, and v4 by SciPy.

The fields of a single struct are named as in ``data/U``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files import mat5
from quadsense.files.contents import Entry, MissingPackage, reading, to_csr

TITLE = "a MATLAB file"
SIGNATURE = b"\x89HDF\r\n\x1a\n"

LARGEST = 2**32 - 2**16
"""Bytes of an array that a file before v7.3 can hold, with room for its header."""


def contents(path: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """What the file holds."""
    if _is_hdf5(path):
        from quadsense.files import hdf5

        return hdf5.contents(path)
    with reading(path, TITLE):
        if mat5.is_mat5(path):
            entries = tuple(entry for entry, _ in mat5.scan(path))
            _refuse_repeated(entries)
            return entries, {}
        return tuple(_entry(name, values) for name, values in _read_v4(path).items()), {}


def load(path: Path, names: list[str]) -> dict[str, Any]:
    """The arrays of these names."""
    if _is_hdf5(path):
        from quadsense.files import hdf5

        return hdf5.load(path, names)
    with reading(path, TITLE):
        if mat5.is_mat5(path):
            found = {entry.name: values for entry, values in mat5.scan(path, names)}
        else:
            found = _read_v4(path)
        return {name: found[name] for name in names}


def by_rows(path: Path) -> Any:
    """The module that reads some rows of a file at a time; this one where none can."""
    from quadsense.files import hdf5, mat

    return hdf5 if _is_hdf5(path) else mat


def save(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write named arrays, vectors as columns; of the metadata whether rows are conjugated."""
    from scipy.io import savemat

    for name, values in arrays.items():
        size = values.data.nbytes if sp.issparse(values) else np.asarray(values).nbytes
        if size > LARGEST:
            raise ValueError(
                f"{name} takes {size / 2**30:.1f} GiB, and a .mat file holds arrays of 4 at most: "
                "write .h5, which MATLAB reads with h5read"
            )
    held = dict(arrays)
    if metadata.get("conjugate"):
        held["conjugate"] = True
    savemat(path, held, appendmat=False, oned_as="column")


def _refuse_repeated(entries: tuple[Entry, ...]) -> None:
    """Raise ValueError where two variables have one name, as no program writes them."""
    names = [entry.name for entry in entries]
    repeated = {entry.name for entry in entries if entry.numeric and names.count(entry.name) > 1}
    if repeated:
        raise ValueError(f"it holds two variables named {min(repeated)!r}")


def _is_hdf5(path: Path) -> bool:
    """Whether it is of v7.3, after whose header of 512 bytes HDF5 begins."""
    with reading(path, TITLE), open(path, "rb") as stream:
        head = stream.read(512 + len(SIGNATURE))
    if SIGNATURE not in (head[: len(SIGNATURE)], head[512:]):
        return False
    try:
        import h5py  # noqa: F401
    except ImportError:
        raise MissingPackage(
            f"{path} is a MATLAB file of v7.3, and reading it needs h5py: "
            "pip install 'quadsense[files]', or save it with '-v7'"
        ) from None
    return True


def _read_v4(path: Path) -> dict[str, Any]:
    """All variables of a file of v4."""
    from scipy.io import loadmat

    found = loadmat(path, appendmat=False)
    held = {name: values for name, values in found.items() if not name.startswith("__")}
    return {name: to_csr(v) if sp.issparse(v) else np.asarray(v) for name, v in held.items()}


def _entry(name: str, values: Any) -> Entry:
    known = values.dtype.name if values.dtype.kind in "buifc" else "text"
    return Entry(name, values.shape, known, sp.issparse(values))
