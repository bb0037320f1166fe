"""MATLAB's files: v4 to v7.2 by SciPy, v7.3, which is HDF5, by h5py. Objects are not looked into.

The fields of a single struct are named as in ``data/U``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files.contents import Entry, MissingPackage, reading

TITLE = "a MATLAB file"
SIGNATURE = b"\x89HDF\r\n\x1a\n"
NUMBERS = {
    "double": "float64", "single": "float32", "logical": "bool", "sparse": "float64",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""MATLAB's classes of numbers."""

LARGEST = 2**32 - 2**16
"""Bytes of an array that a file before v7.3 can hold, with room for its header."""


def contents(path: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """What the file holds."""
    if _is_hdf5(path):
        from quadsense.files import hdf5

        return hdf5.contents(path)
    from scipy.io import loadmat, whosmat

    with reading(path, TITLE):
        known = whosmat(path, appendmat=False)
        structs = [name for name, _, kind in known if kind == "struct"]
        loaded = loadmat(path, variable_names=structs, appendmat=False) if structs else {}
        entries = []
        for name, shape, kind in known:
            if kind == "struct":
                entries += [_entry(*field) for field in _fields(name, loaded[name])]
            else:
                # whether numbers are complex is seen only by reading them
                entries.append(Entry(name, tuple(shape), NUMBERS.get(kind, kind), kind == "sparse"))
        return tuple(entries), {}


def load(path: Path, names: list[str]) -> dict[str, Any]:
    """The arrays of these names."""
    if _is_hdf5(path):
        from quadsense.files import hdf5

        return hdf5.load(path, names)
    from scipy.io import loadmat

    with reading(path, TITLE):
        tops = [name.split("/")[0] for name in names]
        loaded = loadmat(path, variable_names=tops, appendmat=False)
        found: dict[str, Any] = {}
        for top in dict.fromkeys(tops):
            found |= dict(_fields(top, loaded[top]))
        return {name: _plain(found[name]) for name in names}


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


def _fields(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    """A variable, or those in it where it is a single struct."""
    record = getattr(values, "dtype", None)
    if record is None or sp.issparse(values) or not record.names or values.size != 1:
        yield name, values
        return
    for field in record.names:
        yield from _fields(f"{name}/{field}", values.reshape(-1)[0][field])


def _entry(name: str, values: Any) -> Entry:
    if sp.issparse(values):
        return Entry(name, values.shape, values.dtype.name, True)
    array = np.asarray(values)
    kinds = {"O": "cell", "U": "text", "S": "text", "V": "struct"}
    return Entry(name, array.shape, kinds.get(array.dtype.kind, array.dtype.name))


def _plain(values: Any) -> Any:
    if sp.issparse(values):
        found = sp.csr_array(values)
        found.check_format(full_check=True)
        return found
    return np.asarray(values)
