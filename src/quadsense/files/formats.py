"""The formats, by the ends of their names: one module each, imported when a file asks for it.

A module has `contents(path)`, what is there without reading the numbers; `load(path, names)`; and
`save(path, arrays, metadata)`. Those of tables have `read_table(path)` and `write_table` instead.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from quadsense.files.contents import MissingPackage, Unreadable
from quadsense.system.machine import in_bytes, room_for_rows
from quadsense.typing import check_path


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Attributes
    ----------
    title : str
        With its article.
    suffixes : tuple of str
        Intervals of the names of such files.
    module : str
        Where it is read and written, in this package.
    package : str
        What must be installed for it in addition to the dependencies; "" where nothing must.
    table : bool
        Whether it is made of columns: it holds U, and what has one value per row.
    many : bool
        Whether it holds several arrays, or one.
    folder : bool
        Whether it is a folder rather than a file.
    pieces : bool
        Whether rows are written some at a time, so that they need not all be in memory.
    """

    title: str
    suffixes: tuple[str, ...]
    module: str
    package: str = ""
    table: bool = False
    many: bool = True
    folder: bool = False
    pieces: bool = False

    def code(self, path: str | os.PathLike[str]) -> Any:
        """Return the module, or one sentence on what is missing for it."""
        if self.package:
            try:
                importlib.import_module(self.package)
            except ImportError:
                raise MissingPackage(
                    f"{path} is {self.title}, which needs the package {self.package}: "
                    "pip install 'quadsense[files]'"
                ) from None
        return importlib.import_module(f"quadsense.files.{self.module}")


FORMATS = (
    Format("an .npz file", (".npz",), "npz", pieces=True),
    Format("an .npy file", (".npy",), "npy", many=False),
    Format("a MATLAB file", (".mat",), "mat"),
    Format("an HDF5 file", (".h5", ".hdf5", ".hdf"), "hdf5", "h5py", pieces=True),
    Format("a Zarr store", (".zarr",), "zarr", "zarr", folder=True, pieces=True),
    Format("a Zarr store", (".zarr.zip",), "zarr", "zarr", pieces=True),
    Format("a Parquet file", (".parquet", ".pq"), "parquet", "pyarrow", table=True),
    Format("a CSV file", (".csv", ".tsv", ".txt"), "csv", table=True),
)
FOLDER = Format("a folder of .npy files", (), "npy", folder=True)


def known(formats: tuple[Format, ...] = FORMATS) -> str:
    """Return the ends of names that are known, for messages."""
    names = [suffix for each in formats for suffix in each.suffixes]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def by_name(path: str | os.PathLike[str]) -> Format | None:
    """Return the format that a name promises, None where it is none of these."""
    name = Path(path).name.lower()
    for each in FORMATS:
        if name.endswith(each.suffixes):
            return each
    return None


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format to read a file or folder in.

    Raises
    ------
    ValueError
        Where its name is none of a known format; that it does not exist is said first.
    """
    place, found = Path(path), by_name(path)
    if place.is_dir() and (found is None or not found.folder):
        from quadsense.files.zarr import is_store

        if is_store(place):
            return next(each for each in FORMATS if each.module == "zarr" and each.folder)
        if any(each.suffix.lower() == ".npy" for each in place.iterdir()):
            return FOLDER
        raise Unreadable(f"{path} is a directory without files of measurements")
    if found is None:
        if not place.exists():
            raise Unreadable(f"{path} does not exist")
        raise Unreadable(f"{path} is of no known format: its name must end in {known()}")
    return found


def writer_of(
    path: str | os.PathLike[str], what: str, *, several: bool = True, square: bool = False
) -> Format:
    """Return the format to write in, or a ValueError before any work is done for it.

    Parameters
    ----------
    path : path-like
    what : str
        What is to be written, for messages.
    several : bool
        Whether that is more than one array.
    square : bool
        Whether it is more than U and what has one value per row, which is all that tables hold.
    """
    check_path("path", path)
    able = tuple(
        each for each in FORMATS if (each.many or not several) and not (each.table and square)
    )
    found, place = by_name(path), Path(path)
    if place.is_dir() and (found is None or not found.folder):
        raise ValueError(f"{path} is a directory, not a file to write")
    if found is None or found not in able:
        raise ValueError(
            f"{path} is no name for {what}: it must end in {known(able)}"
            if found is None
            else f"{path} cannot hold {what}, being {found.title}: give a name that ends in "
            f"{known(able)}"
        )
    found.code(path)
    if found.folder and place.is_dir() and any(place.iterdir()):
        from quadsense.files.zarr import is_store

        if not is_store(place):
            raise ValueError(f"{path} is a folder, but no Zarr store: nothing in it is replaced")
    check_place(path, folder_allowed=found.folder)
    return found


def check_writable(path: str | os.PathLike[str], suffix: str = ".npz") -> None:
    """Raise ValueError if `path` cannot be written, before any work is done for it.

    A name that promises another format than the one written is refused too.
    """
    check_path("path", path)
    if Path(path).suffix.lower() != suffix and not Path(path).is_dir():
        raise ValueError(f"{path} is no name for what is written there: it must end in {suffix}")
    check_place(path)


def write(
    path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    """Write named arrays in the format that the name promises, whole or not at all."""
    beside = [name for name in arrays if name in ("A_star", "mix")]
    square = bool(beside) and "U" in arrays
    found = writer_of(path, " and ".join(["U", *beside]), several=len(arrays) > 1, square=square)
    if found.table and any(sp.issparse(values) for values in arrays.values()):
        raise ValueError(f"{path} cannot keep a sparse U, being {found.title}: write .npz or .h5")
    if not found.pieces:
        arrays = {name: _loaded(path, found, values) for name, values in arrays.items()}
    with whole(path) as draft:
        code = found.code(path)
        if found.table:
            from quadsense.files import table

            code.write_table(draft, table.columns_of(arrays, metadata))
        else:
            code.save(draft, arrays, metadata)


def _loaded(path: str | os.PathLike[str], kind: Format, values: Any) -> Any:
    """Return an array, all of it in memory; a MemoryError where it would not fit."""
    if not hasattr(values, "load"):
        return values
    if values.nbytes > 2.0 * room_for_rows():
        able = known(tuple(each for each in FORMATS if each.pieces))
        raise MemoryError(
            f"{path} is {kind.title}, which is written from memory, and U takes "
            f"{in_bytes(values.nbytes)}, more than is free: give a name that ends in {able}"
        )
    return values.load()


# --- files written whole or not at all -----------------------------------------------------------


@contextmanager
def whole(path: str | os.PathLike[str], previous: Path | None = None) -> Iterator[Path]:
    """A draft next to `path` to write, which takes its place where nothing was raised.

    The draft ends as `path` does, and does not exist yet, so that it may become a folder too. With
    `previous`, what was at `path` is kept there, and all of it is on disk before anything moves:
    whenever power fails, one of the two is there and whole.
    """
    target = Path(path).resolve()
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    draft = folder / target.name
    try:
        yield draft
        if previous is not None:
            _onto_disk(draft)
            if target.exists():
                os.replace(target, previous)
        _put(draft, target, folder)
        if previous is not None:
            _onto_disk(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text in UTF-8, whole or not at all."""
    with whole(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="")


def _put(draft: Path, target: Path, folder: Path) -> None:
    """The draft in the target's place; a folder that was there is moved aside first."""
    if not target.is_dir():
        os.replace(draft, target)
        return
    aside = folder / "before"
    os.rename(target, aside)
    try:
        os.rename(draft, target)
    except BaseException:
        os.rename(aside, target)
        raise


def _onto_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a loss of power."""
    try:
        number = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    except PermissionError:  # a folder, on Windows
        return
    try:
        os.fsync(number)
    finally:
        os.close(number)


def check_place(path: str | os.PathLike[str], folder_allowed: bool = False) -> None:
    """Raise ValueError if nothing can be written at `path`, before any work is done for it."""
    target = Path(path).resolve()
    folder = target.parent
    if target.is_dir() and not folder_allowed:
        raise ValueError(f"{path} is a directory, not a file to write")
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise ValueError(f"{path} is not a regular file")
    if not folder.is_dir():
        raise ValueError(f"{path} cannot be written: the folder {folder.name} does not exist")
    if target.exists() and not os.access(target, os.W_OK):
        raise ValueError(f"{path} cannot be written: it is read-only")
    try:
        Path(tempfile.mkdtemp(prefix=".quadsense.", dir=folder)).rmdir()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from None
