"""Measurements in many files: a folder of them, or all whose names match a pattern.

Either each file holds some of the measurements whole (U and b, and what goes with them), or arrays
are cut into numbered ``.npy`` files, ``U-000.npy``, ``U-001.npy``, ..., ``b-000.npy``, ...
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.files.contents import Arrays, Entry, Unreadable
from quadsense.files.formats import Format, by_name, known
from quadsense.files.strips import Strips
from quadsense.files.zarr import is_store

NUMBERED = re.compile(r"(.*?)[-_. ]?(\d+)")
"""A name that ends in a number, and what it is without."""

ONCE = ("rtol", "conjugate")
"""What every file must say alike."""


@dataclass(frozen=True)
class Series:
    """Arrays cut into numbered files.

    Attributes
    ----------
    files : dict
        From the name of an array to its files in order.
    """

    files: dict[str, tuple[Path, ...]]


def shards_in(path: str | os.PathLike[str]) -> list[Path] | Series | None:
    """Files that a folder or a pattern stands for; None where it is a file, or one store.

    Raises
    ------
    ValueError
        Where a pattern matches nothing, or files of several formats are together.
    """
    place = Path(path)
    if glob.has_magic(os.fspath(path)) and not place.exists():
        found = [Path(each) for each in glob.glob(os.fspath(path))]
        if not found:
            raise Unreadable(f"{path} matches no file")
    elif place.is_dir() and by_name(path) is None and not is_store(place):
        found = [each for each in place.iterdir() if by_name(each) and each.name[0] != "."]
        # Next to arrays in .npy files there may be files of any other kind.
        found = [each for each in found if each.suffix.lower() == ".npy"] or found
    else:
        return None
    found = sorted(found, key=lambda each: natural(each.name))
    formats = {_format(each, path) for each in found}
    if len(formats) > 1:
        one, two, *_ = sorted(each.title for each in formats)
        raise Unreadable(f"{path} holds files of several formats, {one} and {two}: give a pattern")
    if formats and next(iter(formats)).module == "npy":
        series = _series(found)
        return series if any(len(each) > 1 for each in series.files.values()) else _single(series)
    return found or None


def natural(name: str) -> list[Any]:
    """What to sort names by, so that 10 comes after 9."""
    return [int(each) if each.isdigit() else each.lower() for each in re.split(r"(\d+)", name)]


def _format(path: Path, pattern: Any) -> Format:
    found = by_name(path)
    if found is None:
        raise Unreadable(f"{pattern}: {path} is of no known format, its name must end in {known()}")
    return found


def _series(found: list[Path]) -> Series:
    files: dict[str, tuple[Path, ...]] = {}
    for each in found:
        match = NUMBERED.fullmatch(each.stem)
        name = (match[1] if match else "") or each.stem
        files[name] = (*files.get(name, ()), each)
    return Series(files)


def _single(series: Series) -> Series | None:
    """A folder of arrays that are not cut is what it always was; a pattern is a series of one."""
    folders = {each.parent for files in series.files.values() for each in files}
    return None if len(series.files) != 1 or len(folders) != 1 else series


def joined(parts: Iterable[tuple[Path, Arrays]], mixed: bool = False) -> Arrays:
    """Measurements of several files as one; `mixed` where readings are sums of their rows.

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
    """Rows of several files, one below the other."""
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
    """What several files hold together, by the names that the first has."""
    found = []
    for entry in parts[0]:
        same = [each for entries in parts for each in entries if each.name == entry.name]
        shape = entry.shape
        if shape and all(each.shape for each in same):
            shape = (sum(each.shape[0] for each in same), *shape[1:])
        found.append(Entry(entry.name, shape, entry.dtype, entry.sparse))
    return tuple(found)
