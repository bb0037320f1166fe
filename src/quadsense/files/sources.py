"""Files of any format: what is in one, the measurements in it, and single arrays by reference."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files import table as tables
from quadsense.files.contents import Arrays, Entry, Unreadable, check_room, listed, place_in
from quadsense.files.formats import Format, by_name, format_of, known
from quadsense.files.roles import NAMES, NOTHING, Given, base, find_roles, named
from quadsense.files.strips import STRIP_BYTES, Strips, native, strips_of
from quadsense.files.table import Table
from quadsense.files.zarr import is_store

RESULT = "quadsense-result"
"""What the metadata of a result's file says it is."""

EAGER_BYTES = 2 * STRIP_BYTES
"""Bytes of U up to which it is read when its file is opened, rather than when it is needed."""

APART = "::"
"""Between a file and the name of an array in it."""


@dataclass(frozen=True)
class Source:
    """A file, and what is in it.

    Attributes
    ----------
    path : Path
    format : Format
    entries : tuple of Entry
    metadata : dict
    table : Table or None
        Its columns, where it is made of them.
    """

    path: Path
    format: Format
    entries: tuple[Entry, ...]
    metadata: dict[str, Any]
    table: Table | None = None

    @property
    def is_result(self) -> bool:
        """Whether `Result.save` wrote it."""
        return isinstance(self.metadata, dict) and self.metadata.get("format") == RESULT

    def load(self, names: list[str]) -> dict[str, Any]:
        """Return the arrays of these names, in numbers that the machine computes with."""
        held = self.format.code(self.path).load(self.path, names)
        return {name: _native(values) for name, values in held.items()}

    @property
    def size(self) -> int:
        """Bytes of all that it holds, once it is read; of a table, of what was read."""
        return sum(entry.nbytes for entry in self.entries)

    def strips(self, entry: Entry, by_columns: bool) -> Strips:
        """Return a matrix that stays in its file; its rows, or its columns."""
        shape, dtype = entry.shape, np.dtype(entry.dtype)
        if len(shape) != 2:
            raise Unreadable(f"{self.path}: U has shape {shape}, and must have two dimensions")
        return Strips(strips_of(self.path, entry.name, shape, dtype, by_columns))


@dataclass(frozen=True)
class ShardFiles(Source):
    """Files that hold some of the measurements each.

    Attributes
    ----------
    parts : tuple of Source
    """

    parts: tuple[Source, ...] = ()

    def load(self, names: list[str]) -> dict[str, Any]:
        """Return the arrays of these names, one file's below the other's."""
        held = [(part.path, part.load(names)) for part in self.parts]
        return {name: stacked([(path, each[name]) for path, each in held]) for name in names}


def look_at(path: str | os.PathLike[str]) -> Source:
    """Return what a file holds: names, shapes and types; of tables the numbers are read too.

    Raises
    ------
    ValueError
        Where it is missing, damaged, or of no known format.
    """
    several = shards_in(path)
    if several is not None:
        return _look_at_all(Path(path), several)
    kind, place = format_of(path), Path(path)
    code = kind.code(path)
    if kind.table:
        table = code.read_table(place)
        return Source(place, kind, table.entries(), {}, table)
    entries, metadata = code.contents(place)
    return Source(place, kind, entries, metadata)


def _look_at_all(path: Path, several: list[Path]) -> Source:
    """Return what many files hold together."""
    parts = tuple(look_at(each) for each in several)
    if path.is_dir():  # a result may lie next to its data
        parts = tuple(part for part in parts if not part.is_result) or parts
    held = joined_entries([part.entries for part in parts])
    first = parts[0]
    for part in parts:
        if part.is_result:
            raise Unreadable(f"{part.path} is a quadsense result, and no measurements")
    return ShardFiles(path, first.format, held, first.metadata, first.table, parts)


def read_measured(
    path: str | os.PathLike[str],
    U: str | None = None,
    b: Any = None,
    most: float = math.inf,
    given: Given = NOTHING,
) -> Arrays:
    """Return the measurements in a file: arrays by the names that `Measurements` has for them.

    Parameters
    ----------
    path : path-like
    U : str, optional
        Name of the probes in the file; of a table, names of columns or a pattern.
    b : str or ndarray, optional
        Name of the readings in the file, another file, or ``FILE::NAME``; the readings themselves.
    most : float
        Bytes that U may take in memory: a larger one stays in its file (`Strips`), and so does one
        of more than `EAGER_BYTES` whose rows can be read by themselves, until it is needed.
    given : Given
        What else is not taken from the file.
    """
    return measured_in(look_at(path), U, b, most=most, given=given)


def measured_in(
    source: Source,
    U: str | None = None,
    b: Any = None,
    beside: tuple[str, ...] = (),
    most: float = math.inf,
    given: Given = NOTHING,
) -> Arrays:
    """Return the same from a file that was looked at; columns named in `beside` are not U's."""
    if source.is_result:
        raise Unreadable(f"{source.path} is a quadsense result, and no measurements")
    apart = None
    if isinstance(b, np.ndarray):
        apart = to_vector(b)
    elif b is not None and not _is_name(source, b):
        apart = to_vector(array_from(b, source, role="b"))
    inside = b if apart is None else None
    arrays = _arrays(source, U, inside, apart, beside, most, given)
    if apart is not None:
        arrays["b"] = apart
    arrays = _settled(arrays)
    arrays.room = most
    if apart is None and given.sums is None and "b" in arrays:
        _check_readings(source, arrays)
    return arrays


def _check_readings(source: Source, arrays: Arrays) -> None:
    """Refuse NaN and infinity among readings of several files, with file and row."""
    b = arrays["b"]
    sound = np.isfinite(b) if b.dtype.kind in "fc" else np.ones(1, bool)
    if sound.all():
        return
    first = int(np.argmin(sound))
    if arrays.places:
        place = place_in(arrays.places, first)
        raise Unreadable(f"b must be finite, but b[{first}] is {b[first]}{place}")


def _settled(arrays: Arrays) -> Arrays:
    """Return what has one value per row as vectors, or as a number where there is one for all.

    Whether rows are given as ``u*`` is said by an array, or else by the metadata.
    """
    for name in ("b", "lo", "hi", "delta", "weights", "rtol"):
        if name in arrays:
            arrays[name] = to_vector(arrays[name], scalar=name != "b")
    said = arrays.get("conjugate", arrays.metadata.get("conjugate", False))
    arrays["conjugate"] = bool(np.any(said))
    return arrays


def _arrays(
    source: Source,
    U: str | None,
    b: str | None,
    apart: Any,
    beside: tuple[str, ...],
    most: float,
    given: Given,
) -> Arrays:
    if isinstance(source, ShardFiles):
        # All of them stay where they are, those without rows too, or none.
        limit = math.inf if source.size <= _eager(source.parts[0], most) else -1.0
        # Readings of all say nothing of the shape of one.
        other = None if apart is None else np.empty(0)
        found = [_arrays(part, U, b, other, beside, limit, given) for part in source.parts]
        parts = zip((part.path for part in source.parts), map(_settled, found), strict=True)
        return joined(parts, mixed=given.sums is not None)
    if source.table is not None:
        outside, optional = apart is not None, given.bounds
        arrays = tables.arrays_of(source.path, source.table, U, b, outside, beside, optional)
        if arrays["U"].nbytes > most and source.table.names is not None:
            columns, held = ",".join(arrays.roles["U"]), arrays["U"]
            arrays["U"] = Strips(strips_of(source.path, columns, held.shape, held.dtype))
        return arrays
    return _from_arrays(source, U, b, apart, most, given)


def _from_arrays(
    source: Source, U: str | None, b: str | None, apart: Any, most: float, given: Given
) -> Arrays:
    count = None if apart is None else int(np.size(apart))
    roles = find_roles(source.path, source.entries, U, b, count, given)
    probes = next(entry for entry in source.entries if entry.name == roles.names["U"])
    most = most if roles.transposed else _eager(source, most)
    stays = not probes.sparse and probes.nbytes > most
    wanted = {name for role, name in roles.names.items() if not (stays and role == "U")}
    sizes = (each.nbytes for each in source.entries if each.name in wanted and not each.sparse)
    check_room(source.path, sum(sizes))
    loaded = source.load(sorted(wanted))
    if stays:
        loaded[probes.name] = source.strips(probes, roles.transposed)
    values = {role: loaded[name] for role, name in roles.names.items()}
    if roles.transposed and not stays:
        values["U"] = sp.csr_array(values["U"].T) if sp.issparse(values["U"]) else values["U"].T
    names = [entry.name for entry in source.entries]
    taken = {role: (name,) for role, name in roles.names.items()}
    return Arrays(values, source.metadata, names, roles.notes, taken, by_columns=roles.transposed)


def _eager(source: Source, most: float) -> float:
    """Return the bytes up to which U is read when a file is opened."""
    code = source.format.code(source.path)
    code = code.by_rows(source.path) if hasattr(code, "by_rows") else code
    return min(most, EAGER_BYTES) if hasattr(code, "read_rows") else most


def _is_name(source: Source, name: str) -> bool:
    """Return whether that is an array of the file rather than another file."""
    if APART in name:
        return False
    held = {entry.name.lower() for entry in source.entries}
    held |= {base(entry.name) for entry in source.entries}
    if name.lower() in held:
        return True
    return not (Path(name).exists() or by_name(name))


def array_from(reference: str, home: Source | None = None, role: str = "") -> Any:
    """Return one array: of the file at hand, of another, or ``FILE::NAME``.

    Parameters
    ----------
    reference : str
        A name in `home`; a file that holds one array, or one of that role; a file and a name.
    home : Source, optional
        Where names are looked for first.
    role : str, optional
        What it is for, in messages, and a name under which it is looked for.
    """
    file, mark, name = reference.rpartition(APART)
    if not mark and home is not None and _is_name(home, reference):
        if home.table is not None:
            return tables.arrays_of(home.path, home.table, reference, None, True)["U"]
        return _one(home, named(home.path, home.entries, reference))
    source = look_at(file if mark else reference)
    if source.is_result:
        raise Unreadable(f"{source.path} is a quadsense result, and no array")
    if source.table is not None:
        if mark:
            return tables.arrays_of(source.path, source.table, name, None, True)["U"]
        return tables.matrix_of(source.path, source.table)
    if mark:
        return _one(source, named(source.path, source.entries, name))
    numbers = [entry for entry in source.entries if entry.numeric]
    called = [entry for entry in numbers if base(entry.name) in NAMES.get(role, (role.lower(),))]
    for candidates in (numbers, called[:1]):
        if len(candidates) == 1:
            return _one(source, candidates[0])
    what = f" for {role}" if role else ""
    raise Unreadable(
        f"{source.path} holds several arrays, {listed(numbers)}: say which{what}, as in "
        f"{source.path}{APART}{numbers[0].name if numbers else 'NAME'}"
        if numbers
        else f"{source.path} holds no numbers"
    )


def _one(source: Source, entry: Entry) -> Any:
    if not entry.numeric:
        raise Unreadable(f"{source.path}: {entry.name} holds no numbers, but {entry.dtype}")
    return source.load([entry.name])[entry.name]


def _native(values: Any) -> Any:
    """Return the same numbers in a type that this machine computes with."""
    return values.astype(native(values.dtype), copy=False)


def to_vector(values: Any, scalar: bool = False) -> Any:
    """Return columns and rows, as MATLAB has vectors, as vectors; one entry as a number if asked.

    Complex numbers without an imaginary part are real ones.
    """
    found = values.toarray() if sp.issparse(values) else np.asarray(values)
    if found.ndim == 2 and 1 in found.shape:
        found = found.reshape(-1)
        if scalar and found.size == 1:
            found = found.reshape(())
    if np.iscomplexobj(found) and not np.any(found.imag):
        found = found.real
    return found


# --- measurements in many files -----------------------------------------------------------------


ONCE = ("rtol", "conjugate")
"""What every file must say alike."""


def shards_in(path: str | os.PathLike[str]) -> list[Path] | None:
    """Return files that a folder or a pattern stands for; None where it is a file, or one store.

    Raises
    ------
    ValueError
        Where a pattern matches nothing, or files of several formats, or of one array each, are
        together.
    """
    place = Path(path)
    if glob.has_magic(os.fspath(path)) and not place.exists():
        found = [Path(each) for each in glob.glob(os.fspath(path))]
        if not found:
            raise Unreadable(f"{path} matches no file")
    elif place.is_dir() and by_name(path) is None and not is_store(place):
        found = [each for each in place.iterdir() if by_name(each) and each.name[0] != "."]
        if any(each.suffix.lower() == ".npy" for each in found):
            return None  # a folder of whole arrays, next to which there may be files of any kind
    else:
        return None
    found = sorted(found, key=lambda each: natural(each.name))
    formats = {_format(each, path) for each in found}
    if len(formats) > 1:
        one, two, *_ = sorted(each.title for each in formats)
        raise Unreadable(f"{path} holds files of several formats, {one} and {two}: give a pattern")
    if formats and next(iter(formats)).module == "npy":
        raise Unreadable(
            f"{path} holds .npy files, each a single array: write U and b of each part into one "
            "file (.npz, .h5 or .zarr), or name the arrays, as in open('U.npy', b='b.npy')"
        )
    return found or None


def natural(name: str) -> list[Any]:
    """Return what to sort names by, so that 10 comes after 9."""
    return [int(each) if each.isdigit() else each.lower() for each in re.split(r"(\d+)", name)]


def _format(path: Path, pattern: Any) -> Format:
    found = by_name(path)
    if found is None:
        raise Unreadable(f"{pattern}: {path} is of no known format, its name must end in {known()}")
    return found


def joined(parts: Iterable[tuple[Path, Arrays]], mixed: bool = False) -> Arrays:
    """Return measurements of several files as one; `mixed` where readings are sums of their rows.

    Raises
    ------
    ValueError
        Where a file holds something that another does not, or rows of another kind; it is named.
    """
    found = list(parts)
    (first_path, first), *_ = found
    values: dict[str, Any] = {}
    for where, arrays in found:
        missing = set(first) ^ set(arrays)
        if missing:
            name = min(missing)
            here, there = (where, first_path) if name in arrays else (first_path, where)
            raise Unreadable(f"{here} holds {name} and {there} does not: shards must be alike")
        if "mix" in arrays:
            raise Unreadable(f"{where} holds a mix, which is of all rows: use one file for U and b")
        if not mixed:
            _check_rows(where, arrays)
        if arrays.by_columns != first.by_columns:
            here, there = (where, first_path) if arrays.by_columns else (first_path, where)
            raise Unreadable(
                f"the vectors are the columns of U in {here} and its rows in {there}: shards must "
                "be alike"
            )
    for role in first:
        values[role] = _column(role, [(where, arrays[role]) for where, arrays in found])
    notes = tuple(dict.fromkeys(note for _, arrays in found for note in arrays.notes))
    notes = (f"{len(found)} files, {first_path.name} to {found[-1][0].name}", *notes)
    places = tuple((where, int(arrays["U"].shape[0])) for where, arrays in found)
    return Arrays(values, first.metadata, first.names, notes, first.roles, places)


def _check_rows(where: Path, arrays: Arrays) -> None:
    """Refuse a file whose values are not one per row of its U: those of all would be shifted."""
    rows = int(arrays["U"].shape[0])
    for role in ("b", "lo", "hi", "delta", "weights"):
        shape: tuple[int, ...] = np.shape(arrays[role]) if role in arrays else ()
        if len(shape) == 1 and shape[0] != rows:
            raise Unreadable(f"{where} holds {rows} rows of U and {shape[0]} values of {role}")


def _column(role: str, parts: list[tuple[Path, Any]]) -> Any:
    (first_path, first), *others = parts
    if role == "U":
        return stacked(parts)
    if role in ONCE or np.ndim(first) == 0:
        for where, value in others:
            if not np.array_equal(value, first):
                raise Unreadable(
                    f"{role} is {value} in {where} and {first} in {first_path}: shards must agree"
                )
        return first
    return np.concatenate([np.atleast_1d(value) for _, value in parts])


def stacked(parts: list[tuple[Path, Any]]) -> Any:
    """Return rows of several files, one below the other."""
    first_path, first = parts[0]
    for where, rows in parts:
        if rows.ndim != 2:
            raise Unreadable(
                f"{where} holds an array of shape {rows.shape}, and others of two axes"
            )
        for what, here, there in (
            ("rows of length", first.shape[1], rows.shape[1]),
            ("numbers of type", first.dtype, rows.dtype),
        ):
            if here != there:
                raise Unreadable(
                    f"{where} holds {what} {there} and {first_path} {what} {here}: the parts of "
                    "one U must be alike"
                )
    if isinstance(first, Strips):
        return Strips([strip for _, rows in parts for strip in rows])
    if sp.issparse(first):
        return sp.csr_array(sp.vstack([rows for _, rows in parts]))
    return np.concatenate([rows for _, rows in parts])


def joined_entries(parts: list[tuple[Entry, ...]]) -> tuple[Entry, ...]:
    """Return what several files hold together, by the names that the first has."""
    found = []
    for entry in parts[0]:
        same = [each for entries in parts for each in entries if each.name == entry.name]
        shape = entry.shape
        if shape and all(each.shape for each in same):
            shape = (sum(each.shape[0] for each in same), *shape[1:])
        found.append(Entry(entry.name, shape, entry.dtype, entry.sparse))
    return tuple(found)
