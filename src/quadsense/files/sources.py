"""Files of any format: what is in one, the measurements in it, and single arrays by reference."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files import table as tables
from quadsense.files.contents import Arrays, Entry, Unreadable, check_room, listed, place_in
from quadsense.files.formats import Format, by_name, format_of
from quadsense.files.roles import NAMES, NOTHING, Given, base, find_roles, named
from quadsense.files.shards import Series, joined, joined_entries, shards_in, stacked
from quadsense.files.strips import Strips, native, strips_of
from quadsense.files.table import Table

RESULT = "quadsense-result"
"""What the metadata of a result's file says it is."""

EAGER_BYTES = 2**26
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
        """The arrays of these names, in numbers that the machine computes with."""
        held = self.format.code(self.path).load(self.path, names)
        return {name: _native(values) for name, values in held.items()}

    @property
    def size(self) -> int:
        """Bytes of all that it holds, once it is read; of a table, of what was read."""
        return sum(entry.nbytes for entry in self.entries)

    def strips(self, entry: Entry, by_columns: bool) -> Strips:
        """A matrix that stays in its file; its rows, or its columns."""
        shape, dtype = entry.shape, np.dtype(entry.dtype)
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
        """The arrays of these names, one file's below the other's."""
        held = [(part.path, part.load(names)) for part in self.parts]
        return {name: stacked([(path, each[name]) for path, each in held]) for name in names}


@dataclass(frozen=True)
class Cut(Source):
    """Arrays that are cut into numbered files.

    Attributes
    ----------
    files : dict
        From the name of an array to its files in order.
    """

    files: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    def load(self, names: list[str]) -> dict[str, Any]:
        """The arrays of these names."""
        code, found = self.format.code(self.path), {}
        for name in names:
            parts = [(path, _native(code.load(path, [path.stem])[path.stem]))
                     for path in self.files[name]]  # fmt: skip
            plain = all(part.ndim == 1 for _, part in parts)
            found[name] = np.concatenate([part for _, part in parts]) if plain else stacked(parts)
        return found

    def places(self, name: str) -> tuple[tuple[Path, int], ...]:
        """Files of an array, and how many rows of it each holds."""
        code = self.format.code(self.path)
        return tuple((path, code.contents(path)[0][0].shape[0]) for path in self.files[name])

    def notes(self, names: dict[str, str]) -> tuple[str, ...]:
        """From which files arrays were put together, and in which order, by their roles."""
        several = {role: self.files[name] for role, name in names.items()
                   if len(self.files[name]) > 1}  # fmt: skip
        return tuple(
            f"{role} is in {len(parts)} files, {parts[0].name} to {parts[-1].name}"
            for role, parts in several.items()
        )

    def strips(self, entry: Entry, by_columns: bool) -> Strips:
        """A matrix that stays in its files."""
        if by_columns:
            raise MemoryError(
                f"{self.path}: the columns of {entry} are the vectors, each cut into "
                f"{len(self.files[entry.name])} files, and all do not fit into memory: store U "
                "with one row per measurement"
            )
        code, parts = self.format.code(self.path), []
        for path in self.files[entry.name]:
            (own,) = code.contents(path)[0]
            if len(own.shape) != 2:
                raise Unreadable(f"{path}: U has shape {own.shape}, and must have two dimensions")
            dtype = np.dtype(own.dtype)
            parts.append((path, Strips(strips_of(path, path.stem, own.shape, dtype))))
        found = stacked(parts)
        assert isinstance(found, Strips)
        return found


def look_at(path: str | os.PathLike[str]) -> Source:
    """What a file holds: names, shapes and types; of tables the numbers are read too.

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


def _look_at_all(path: Path, several: list[Path] | Series) -> Source:
    """What many files hold together."""
    if isinstance(several, list):
        parts = tuple(look_at(each) for each in several)
        if path.is_dir():  # a result may lie next to its data
            parts = tuple(part for part in parts if not part.is_result) or parts
        held = joined_entries([part.entries for part in parts])
        first = parts[0]
        for part in parts:
            if part.is_result:
                raise Unreadable(f"{part.path} is a quadsense result, and no measurements")
        return ShardFiles(path, first.format, held, first.metadata, first.table, parts)
    kind = format_of(next(iter(several.files.values()))[0])
    entries: tuple[Entry, ...] = ()
    for name, files in several.files.items():
        own = [kind.code(each).contents(each)[0][0] for each in files]
        entries += joined_entries([(replace(each, name=name),) for each in own])
    kind = replace(kind, title="numbered .npy files")
    return Cut(path, kind, entries, {}, None, several.files)


def read_measured(
    path: str | os.PathLike[str],
    U: str | None = None,
    b: Any = None,
    most: float = math.inf,
    given: Given = NOTHING,
) -> Arrays:
    """The measurements in a file: arrays by the names of `Measurements`, `conjugate` among them.

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
    places = arrays.places
    if isinstance(source, Cut):  # U and b need not be cut at the same rows
        places = source.places(arrays.roles["b"][0])
    if places:
        raise Unreadable(f"b must be finite, but b[{first}] is {b[first]}{place_in(places, first)}")


def _settled(arrays: Arrays) -> Arrays:
    """What has one value per row as vectors, or as a number where there is one for all.

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
    places = source.places(probes.name) if isinstance(source, Cut) else ()
    notes = source.notes(roles.names) if isinstance(source, Cut) else ()
    notes += roles.notes
    return Arrays(values, source.metadata, names, notes, taken, places, roles.transposed)


def _eager(source: Source, most: float) -> float:
    """Return the bytes up to which U is read when a file is opened."""
    code = source.format.code(source.path)
    code = code.by_rows(source.path) if hasattr(code, "by_rows") else code
    return min(most, EAGER_BYTES) if hasattr(code, "read_rows") else most


def _is_name(source: Source, name: str) -> bool:
    """Whether that is an array of the file rather than another file."""
    if APART in name:
        return False
    held = {entry.name.lower() for entry in source.entries}
    held |= {base(entry.name) for entry in source.entries}
    if name.lower() in held:
        return True
    return not (Path(name).exists() or by_name(name))


def array_from(reference: str, home: Source | None = None, role: str = "") -> Any:
    """One array: of the file at hand, of another, or ``FILE::NAME``.

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
    """The same numbers in the byte order and one of the widths of this machine's arithmetic."""
    return values.astype(native(values.dtype), copy=False)


def to_vector(values: Any, scalar: bool = False) -> Any:
    """Columns and rows, as MATLAB has vectors, as vectors; of one entry as a number where asked.

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
