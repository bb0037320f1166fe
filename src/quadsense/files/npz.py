"""Named arrays and JSON metadata in ``.npz`` files.

A sparse array ``U`` is stored as ``U.data``, ``U.indices``, ``U.indptr`` and ``U.shape`` (CSR).
Metadata is one JSON text under ``metadata``.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

PARTS = ("data", "indices", "indptr", "shape")
_DAMAGED = (LookupError, TypeError, RecursionError)  # of contents that are not as they should be


class Arrays(dict[str, Any]):
    """Arrays read from a file, with its metadata and the names of all that it holds."""

    def __init__(self, values: Mapping[str, Any], metadata: dict[str, Any], names: list[str]):
        super().__init__(values)
        self.metadata = metadata
        self.names = names

    @property
    def listing(self) -> str:
        """Names in the file, for messages."""
        return ", ".join(self.names) or "nothing"


def read_arrays(path: str | os.PathLike[str], wanted: tuple[str, ...] | None = None) -> Arrays:
    """Read named arrays from an ``.npz`` file.

    Parameters
    ----------
    path : path-like
        The file.
    wanted : tuple of str, optional
        Names to read (those that are there); all by default.

    Raises
    ------
    ValueError
        If the file is missing, damaged, not ``.npz`` or holds pickled objects.
    """
    try:
        with open(path, "rb") as stream, _archive(stream) as archive:
            stored = list(archive.files)
            sparse = {name.removesuffix(".indptr") for name in stored if name.endswith(".indptr")}
            dense = [
                name
                for name in stored
                if name != "metadata" and name.rsplit(".", 1)[0] not in sparse
            ]
            names = sorted([*dense, *sparse])
            take = [name for name in names if wanted is None or name in wanted]
            values = {
                name: _read_sparse(archive, name) if name in sparse else archive[name]
                for name in take
            }
            metadata = json.loads(str(archive["metadata"])) if "metadata" in stored else {}
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a directory, not an .npz file") from None
    except PermissionError:
        raise ValueError(f"{path} cannot be read: permission denied") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, *_DAMAGED) as error:
        raise ValueError(f"{path} is damaged or not an .npz file ({error})") from None
    except ValueError as error:
        if "Object arrays" in str(error):
            raise ValueError(
                f"{path} holds pickled objects, which are never loaded: save plain arrays with "
                "numpy.savez"
            ) from None
        if "pickle" in str(error):
            raise ValueError(f"{path} is not an .npz file") from None
        raise ValueError(f"{path} is damaged or not an .npz file ({error})") from None
    return Arrays(values, metadata, names)


def _archive(stream: Any) -> Any:
    """The opened .npz, or a ValueError where the file is something else that NumPy reads."""
    loaded = np.load(stream, allow_pickle=False)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise ValueError("it holds a single array")
    return loaded


def _read_sparse(archive: Any, name: str) -> Any:
    data, indices, indptr, shape = (archive[f"{name}.{part}"] for part in PARTS)
    array = sp.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape))
    array.check_format(full_check=True)
    return array


def write_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    """Write named arrays and metadata to an ``.npz`` file, whole or not at all."""
    flat: dict[str, Any] = {"metadata": np.array(json.dumps(metadata))}
    for name, values in arrays.items():
        if sp.issparse(values):
            csr = sp.csr_array(values)
            parts = (csr.data, csr.indices, csr.indptr, np.array(csr.shape))
            flat.update({f"{name}.{key}": part for key, part in zip(PARTS, parts, strict=True)})
        else:
            flat[name] = values
    _replace(Path(path).resolve(), lambda stream: _write_archive(stream, flat))


def _write_archive(stream: Any, flat: Mapping[str, Any]) -> None:
    """As `numpy.savez`, which would pickle objects, and before NumPy 2.2 not close on errors."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, values in flat.items():
            array = np.asanyarray(values)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def write_array(path: str | os.PathLike[str], values: Any) -> None:
    """Write one array to an ``.npy`` file, whole or not at all."""
    array = np.asarray(values)
    _replace(Path(path).resolve(), lambda stream: np.save(stream, array, allow_pickle=False))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text in UTF-8, whole or not at all."""
    _replace(Path(path).resolve(), lambda stream: stream.write(text.encode("utf-8")))


def _replace(target: Path, write: Callable[[Any], object]) -> None:
    """Let `write` fill a draft beside the target, then put it in the target's place."""
    handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(draft, 0o666 & ~umask)  # mkstemp made it private
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def check_writable(path: str | os.PathLike[str], suffix: str = ".npz") -> None:
    """Raise ValueError if `path` cannot be written, before any work is done for it.

    A name that promises another format than the one written is refused too.
    """
    target = Path(path).resolve()
    folder = target.parent
    if target.is_dir():
        raise ValueError(f"{path} is a directory, not a file to write")
    if Path(path).suffix.lower() != suffix:
        raise ValueError(f"{path} is no name for what is written there: it must end in {suffix}")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is not a regular file")
    if not folder.is_dir():
        raise ValueError(f"{path} cannot be written: the folder {folder.name} does not exist")
    if target.exists() and not os.access(target, os.W_OK):
        raise ValueError(f"{path} cannot be written: it is read-only")
    try:
        handle, draft = tempfile.mkstemp(prefix=".quadsense.", dir=folder)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from None
    os.close(handle)
    Path(draft).unlink()
