"""MATLAB's files: v5 to v7.2 read here, v7.3, which is HDF5, by h5py, and v4 by SciPy.

The fields of a single struct are named as in ``data/U``.

Files of v5 to v7.2 hold variables one after another, each packed by itself from v7 on. SciPy's
compiled reader trusts the types that stand before every piece of data: in a damaged file one that
does not exist ends the process, which happens to 1 in 40 files with one to three changed bytes. So
they are read here: arrays of numbers, sparse ones and the fields of single structs; cells, objects
and text are listed and skipped.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files.contents import MAX_DEPTH, Entry, MissingPackage, reading, to_csr
from quadsense.system.machine import GIB, MIB

# --- any version ---------------------------------------------------------------------------------


TITLE = "a MATLAB file"
SIGNATURE = b"\x89HDF\r\n\x1a\n"
USER_BLOCK = 512
"""Bytes before the signature in which a program may keep what it likes, as MATLAB does."""

MAX_ARRAY_BYTES = np.iinfo(np.uint32).max - MIB
"""Bytes of an array that a file before v7.3 can hold, with room for its header."""


def contents(path: Path) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """Return what the file holds."""
    if _is_hdf5(path):
        from quadsense.files import hdf5

        return hdf5.contents(path)
    with reading(path, TITLE):
        if _is_v5(path):
            entries = tuple(entry for entry, _ in _scan(path))
            _refuse_repeated(entries)
            return entries, {}
        return tuple(_entry(name, values) for name, values in _read_v4(path).items()), {}


def load(path: Path, names: list[str]) -> dict[str, Any]:
    """Return the arrays of these names."""
    if _is_hdf5(path):
        from quadsense.files import hdf5

        return hdf5.load(path, names)
    with reading(path, TITLE):
        if _is_v5(path):
            found = {entry.name: values for entry, values in _scan(path, names)}
        else:
            found = _read_v4(path)
        return {name: found[name] for name in names}


def by_rows(path: Path) -> Any:
    """Return the module that reads some rows of a file at a time; this one where none can."""
    from quadsense.files import hdf5, mat

    return hdf5 if _is_hdf5(path) else mat


def save(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write named arrays, vectors as columns; of the metadata whether rows are conjugated."""
    from scipy.io import savemat

    for name, values in arrays.items():
        size = values.data.nbytes if sp.issparse(values) else np.asarray(values).nbytes
        if size > MAX_ARRAY_BYTES:
            raise ValueError(
                f"{name} takes {size / GIB:.1f} GiB, and a .mat file holds arrays of 4 at most: "
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
    """Return whether it is of v7.3: HDF5 begins the file, or comes after a block of the user's."""
    with reading(path, TITLE), open(path, "rb") as stream:
        heads = [stream.read(USER_BLOCK)[: len(SIGNATURE)], stream.read(len(SIGNATURE))]
    if SIGNATURE not in heads:
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
    """Return all variables of a file of v4."""
    from scipy.io import loadmat

    found = loadmat(path, appendmat=False)
    held = {name: values for name, values in found.items() if not name.startswith("__")}
    return {name: to_csr(v) if sp.issparse(v) else np.asarray(v) for name, v in held.items()}


def _entry(name: str, values: Any) -> Entry:
    known = values.dtype.name if values.dtype.kind in "buifc" else "text"
    return Entry(name, values.shape, known, sp.issparse(values))


# --- v5 to v7.2 ----------------------------------------------------------------------------------


# What the format calls things, in the order of their numbers [MathWorks, MAT-File Format].
Element = IntEnum(
    "Element",
    "INT8 UINT8 INT16 UINT16 INT32 UINT32 SINGLE RESERVED_A DOUBLE RESERVED_B RESERVED_C INT64 "
    "UINT64 MATRIX COMPRESSED UTF8 UTF16 UTF32",
)
"""What a piece of the file is; numbers may be stored in a narrower type than that of the array."""

Class = IntEnum(
    "Class",
    "CELL STRUCT OBJECT TEXT SPARSE FLOAT64 FLOAT32 INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 "
    "UINT64 FUNCTION OPAQUE",
)
"""What an array is."""

TYPES: dict[int, str] = {
    Element.INT8: "i1", Element.UINT8: "u1", Element.INT16: "i2", Element.UINT16: "u2",
    Element.INT32: "i4", Element.UINT32: "u4", Element.SINGLE: "f4", Element.DOUBLE: "f8",
    Element.INT64: "i8", Element.UINT64: "u8", Element.UTF8: "u1", Element.UTF16: "u2",
    Element.UTF32: "u4",
}  # fmt: skip
"""Of pieces that hold numbers or text."""

NUMERIC = [kind for kind in Class if Class.FLOAT64 <= kind <= Class.UINT64]
"""Classes of arrays of numbers; NumPy's types have their names in small letters."""


Mark = IntFlag("Mark", "RESERVED LOGICAL GLOBAL COMPLEX")
"""The second byte of an array's flags; the first is its class."""

HEADER = 128  # bytes, the last two of which are "MI" in the order of bytes of the file
TAG = 8  # bytes before a piece: what it is, and how long
SHORT = 2**16  # in the tag of a piece that is in the tag itself, the length times this is added
ENDS_EARLY = "it ends in the middle of an array"


class _PackedBytes:
    """Bytes of a file, or of what is packed in it, in order."""

    def __init__(self, file: Any, packed: int | None = None) -> None:
        self._file, self._left = file, packed
        self._unpack = None if packed is None else zlib.decompressobj()
        self._ready = b""

    def read(self, count: int) -> bytes:
        """Return the next bytes, as many as asked; ValueError where there are fewer."""
        parts = []
        while count > 0:
            part = self._some(min(count, MIB))
            if not part:
                raise ValueError(ENDS_EARLY)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def skip(self, count: int) -> None:
        """Skip that number of bytes."""
        while count > 0:
            count -= len(self.read(min(count, MIB)))

    def _some(self, most: int) -> bytes:
        if self._unpack is None:
            return bytes(self._file.read(most))
        while not self._ready and not self._unpack.eof:
            given = self._unpack.unconsumed_tail
            if not given and self._left:
                given = self._file.read(min(self._left, MIB))
                self._left -= len(given)
            if not given:
                break
            self._ready = self._unpack.decompress(given, MIB)
        found, self._ready = self._ready[:most], self._ready[most:]
        return found


class _PackedArray:
    """The pieces of one array, in order."""

    def __init__(self, stream: _PackedBytes, size: int, order: str) -> None:
        self.stream, self.left, self.order = stream, size, order

    def tag(self) -> tuple[int, int, bytes]:
        """Return type and length of the next piece, and its bytes if the tag has them."""
        if self.left < TAG:
            raise ValueError(ENDS_EARLY)
        tag = self.stream.read(TAG)
        self.left -= TAG
        kind, count = struct.unpack(f"{self.order}II", tag)
        if kind >= SHORT:
            (count, kind), inside = divmod(kind, SHORT), tag[TAG // 2 :]
            if count > len(inside):
                raise ValueError("a short piece in it is longer than that")
            return kind, count, inside[:count]
        if count > self.left:
            raise ValueError("an array in it is longer than it says")
        return kind, count, b""

    def piece(self) -> Any:
        """Return the next piece as it is stored."""
        kind, count, inside = self.tag()
        if kind not in TYPES:
            raise ValueError(f"an array in it is of a type that does not exist ({kind})")
        if count and not inside:
            inside = self.stream.read(count)
            padding = min(-count % TAG, self.left - count)
            self.stream.skip(padding)
            self.left -= count + padding
        return np.frombuffer(inside, np.dtype(f"{self.order}{TYPES[kind]}"))

    def rest(self) -> None:
        """Skip what is left."""
        self.stream.skip(self.left)
        self.left = 0


def _is_v5(path: Path) -> bool:
    """Return whether the file is of v5 to v7.2 rather than older."""
    with open(path, "rb") as file:
        head = file.read(HEADER)
    return len(head) == HEADER and 0 not in head[:4]


def _scan(path: Path, wanted: list[str] | None = None) -> Iterator[tuple[Entry, Any]]:
    """Yield all variables, fields of structs by their paths, with the values of those wanted."""
    with open(path, "rb") as file:
        order = {b"IM": "<", b"MI": ">"}.get(file.read(HEADER)[-2:])
        if order is None:
            raise ValueError("its header does not say in which order its bytes are")
        size = path.stat().st_size
        while (at := file.tell()) < size:
            if size - at < TAG:
                raise ValueError(ENDS_EARLY)
            kind, count = struct.unpack(f"{order}II", file.read(TAG))
            if at + TAG + count > size:
                raise ValueError(ENDS_EARLY)
            stream = _PackedBytes(file, count if kind == Element.COMPRESSED else None)
            if kind == Element.COMPRESSED:
                kind, inside = struct.unpack(f"{order}II", stream.read(TAG))
            else:
                inside = count
            if kind != Element.MATRIX:
                raise ValueError(f"a variable in it is of a type that does not exist ({kind})")
            yield from _variable(_PackedArray(stream, inside, order), wanted, None, 0)
            file.seek(at + TAG + count)


def _variable(
    matrix: _PackedArray, wanted: list[str] | None, name: str | None, depth: int
) -> Iterator[tuple[Entry, Any]]:
    """Yield one array and what is known of it; the stream is after it then."""
    if matrix.left == 0:  # how an empty field is written
        yield Entry(name or "", (0, 0), "float64"), np.zeros((0, 0))
        return
    kind, marks = struct.pack("<I", matrix.piece()[0])[:2]
    is_complex, is_sparse = bool(marks & Mark.COMPLEX), kind == Class.SPARSE
    if kind == Class.OPAQUE:  # no shape, and names of another kind
        matrix.rest()
        yield Entry(name or "an object", (), "object"), None
        return
    shape = tuple(int(size) for size in matrix.piece())
    if len(shape) < 2 or min(shape) < 0:
        raise ValueError("an array in it has no shape")
    own = matrix.piece().astype(np.uint8).tobytes().decode("utf-8", "replace")
    name = own if name is None else name
    if kind == Class.STRUCT and math.prod(shape) == 1 and depth < MAX_DEPTH:
        yield from _fields(matrix, wanted, name, depth)
        return
    if not is_sparse and kind not in NUMERIC:
        matrix.rest()
        known = kind in (Class.CELL, Class.STRUCT, Class.TEXT, Class.FUNCTION)
        yield Entry(name, shape, Class(kind).name.lower() if known else "object"), None
        return
    if not is_sparse and math.prod(shape) > matrix.left:  # each entry takes a byte at least
        raise ValueError("an array in it has fewer entries than it says")
    dtype = "float64" if is_sparse else Class(kind).name.lower()
    dtype = "bool" if marks & Mark.LOGICAL and not is_sparse else dtype
    if is_complex:
        dtype = "complex64" if dtype == "float32" else "complex128"
    value = None
    if wanted is not None and name in wanted:
        read = _sparse if is_sparse else _dense
        value = read(matrix, shape, np.dtype(dtype), is_complex)
    matrix.rest()
    yield Entry(name, shape, dtype, is_sparse), value


def _fields(
    matrix: _PackedArray, wanted: list[str] | None, name: str, depth: int
) -> Iterator[tuple[Entry, Any]]:
    """Yield the fields of a single struct."""
    length = int(matrix.piece()[0])
    text = matrix.piece().astype(np.uint8).tobytes()
    if length < 1:
        raise ValueError("the fields of a struct in it have no names")
    for at in range(0, len(text), length):
        field = text[at : at + length].split(b"\0")[0].decode("utf-8", "replace")
        kind, count, _ = matrix.tag()
        if kind != Element.MATRIX:
            raise ValueError(f"a field in it is of a type that does not exist ({kind})")
        matrix.left -= count
        inner = _PackedArray(matrix.stream, count, matrix.order)
        yield from _variable(inner, wanted, f"{name}/{field}", depth + 1)
    matrix.rest()


def _numbers(matrix: _PackedArray, dtype: np.dtype[Any], is_complex: bool, count: int) -> Any:
    """Return the numbers of an array, real and imaginary parts together."""
    parts = [matrix.piece() for _ in range(2 if is_complex else 1)]
    if any(part.size < count for part in parts):
        raise ValueError("an array in it has fewer entries than it says")
    found = np.empty(count, dtype)
    if is_complex:
        found.real, found.imag = (part[:count] for part in parts)
    else:
        found[:] = parts[0][:count]
    return found


def _dense(
    matrix: _PackedArray, shape: tuple[int, ...], dtype: np.dtype[Any], is_complex: bool
) -> Any:
    count = math.prod(shape)
    values = _numbers(matrix, dtype, is_complex, count)
    return np.ascontiguousarray(values.reshape(shape, order="F"))


def _sparse(
    matrix: _PackedArray, shape: tuple[int, ...], dtype: np.dtype[Any], is_complex: bool
) -> Any:
    rows, starts = matrix.piece(), matrix.piece()
    if len(shape) != 2 or starts.size != shape[1] + 1 or not 0 <= starts[-1] <= rows.size:
        raise ValueError("a sparse array in it is not put together as it must be")
    count = int(starts[-1])
    values = _numbers(matrix, dtype, is_complex, count)
    parts = (values, rows[:count].astype(np.int64), starts.astype(np.int64))
    return to_csr(sp.csc_array(parts, shape=shape))
