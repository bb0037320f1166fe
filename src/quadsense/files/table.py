"""Columns as U and b: `b` (or `lo` and `hi`), `delta`, `weights` by name, the rest are U's.

Complex numbers are pairs of columns: ``u1_re`` and ``u1_im``, ``u1.re`` and ``u1.im``,
``u1_real`` and ``u1_imag``, ``re(u1)`` and ``im(u1)``. Without names the last column is b.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from quadsense.files.contents import Arrays, Entry, Unreadable, listed
from quadsense.files.roles import NAMES

PARTS = "re|im|real|imag"
PAIR = re.compile(
    rf"(?:(?P<stem>.+)[_.](?P<part>{PARTS})|(?P<before>{PARTS})\((?P<inside>.+)\))", re.IGNORECASE
)
NUMBERED = re.compile(r"(.*?[^\W\d_])[\W_]*\d+\W*")
SINGLE = ("lo", "hi", "delta", "rtol", "weights")
"""What a table may hold in addition to U and b, one value per row."""


@dataclass(frozen=True)
class Table:
    """Columns in order.

    Attributes
    ----------
    names : list of str or None
        None where the file has none.
    columns : list of ndarray
        Of shape (m,), or (m, k) where an entry is a list.
    others : tuple of Entry
        Columns that hold no numbers.
    texts : dict
        From the name of such a column to where something else was found, and what.
    """

    names: list[str] | None
    columns: list[Any] = field(default_factory=list)
    others: tuple[Entry, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)

    def entries(self) -> tuple[Entry, ...]:
        """Return all columns."""
        names = self.names or [f"column {i + 1}" for i in range(len(self.columns))]
        pairs = zip(names, self.columns, strict=True)
        own = [Entry(name, column.shape, column.dtype.name) for name, column in pairs]
        return (*own, *self.others)


def arrays_of(
    path: object,
    table: Table,
    U: str | None,
    b: str | None,
    apart: bool,
    beside: tuple[str, ...] = (),
    optional: bool = False,
) -> Arrays:
    """Return U, b and what goes with them.

    Parameters
    ----------
    path : object
        For messages.
    table : Table
    U : str, optional
        Columns of U: names with commas between, or a pattern such as ``u*``.
    b : str, optional
        Column of the readings.
    apart : bool
        Whether the readings are in another file.
    beside : tuple of str
        Columns that are asked for otherwise, and are not U's.
    optional : bool
        Whether there need be no readings.
    """
    _check_texts(path, table, U, b, optional)
    if not table.columns:
        raise Unreadable(f"{path} has no columns of numbers")
    notes = []
    if table.others:
        notes.append(f"left out, being no numbers: {listed(table.others)}")
    if table.names is None:
        if U is not None or b is not None:
            raise Unreadable(f"{path} names no columns, so that none can be named")
        values = {} if apart else {"b": table.columns[-1]}
        rest = table.columns if apart else table.columns[:-1]
        if not apart:
            notes.append("no names of columns: the last is b, the others are U")
        numbers = [entry.name for entry in table.entries()][: len(table.columns)]
        roles = {"U": tuple(numbers[: len(rest)])} | ({} if apart else {"b": (numbers[-1],)})
        return _assembled(path, rest, values, roles, tuple(notes))
    columns = _paired(path, table.names, table.columns)
    said = None if b is None else _column(path, columns, b)
    taken = _by_role(path, columns, said, apart, notes, optional)
    used, other = set(taken.values()), {name.lower() for name in beside}
    chosen = [name for name in columns if name not in used and name.lower() not in other]
    if U is not None:
        chosen = _matching(path, columns, U)
    wide = [name for name in chosen if columns[name].ndim == 2]
    if wide and U is None:
        if len(wide) > 1:
            raise Unreadable(
                f"{path} may have its probes U in any of {', '.join(wide)}: say which with U= (--U)"
            )
        if wide != ["U"]:
            notes.append(f"U is {wide[0]!r}")
        left = [name for name in chosen if name not in wide]
        if left:
            notes.append(f"left out: {', '.join(left)}")
        chosen = wide
    values = {role: columns[name] for role, name in taken.items()}
    roles = {"U": tuple(chosen)} | {role: (name,) for role, name in taken.items()}
    return _assembled(path, [columns[c] for c in chosen], values, roles, tuple(notes))


def _check_texts(path: object, table: Table, U: str | None, b: str | None, optional: bool) -> None:
    """Raise `Unreadable` for a column that U, b or a value per row needs, and that holds text.

    That is one that was asked for by name; one called b, u or u and a number; one called as the
    columns of U are, except for the number; and the first name of a role that the file has.
    """
    numbers = {name.lower() for name in table.names or ()}
    series = {_series(name) for name in numbers} - {None}
    needed = set() if b is None else {b.lower()}
    for role in SINGLE if optional or b is not None else ("b", *SINGLE):
        first = next((n for n in NAMES[role] if n in numbers | {*map(str.lower, table.texts)}), "")
        needed |= {first} - numbers
    wanted = [] if U is None else [word.strip().lower() for word in U.split(",")]
    for name, found in table.texts.items():
        own = name.lower()
        if U is None:
            asked = own == "b" or _series(own) in {"u", *series} or stem(own) == "u"
        else:
            asked = any(fnmatchcase(each, word) for each in (own, stem(own)) for word in wanted)
        if asked or own in needed:
            raise Unreadable(
                f"{path}: column {name!r} must hold numbers, but {found}: correct that, or rename "
                "the column if it is not a part of the measurements"
            )


def _series(name: str) -> str | None:
    """Return the name of a numbered column without its number, and None for other columns."""
    found = NUMBERED.fullmatch(stem(name))
    return None if found is None else found[1]


def stem(name: str) -> str:
    """Return what a column is called without saying which part of complex numbers it is."""
    found = PAIR.fullmatch(name)
    return name if found is None else found["stem"] or found["inside"]


def matrix_of(path: object, table: Table) -> Any:
    """Return all columns as one array: a matrix, or a vector where there is one column."""
    _check_texts(path, table, None, None, True)
    if not table.columns:
        raise Unreadable(f"{path} has no columns of numbers")
    names = table.names or [str(i) for i in range(len(table.columns))]
    found = _joined(path, list(_paired(path, names, table.columns).values()))
    return found[:, 0] if found.shape[1] == 1 else found


def columns_of(arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> Table:
    """Return the table to write: columns of U, complex ones in pairs, then the others.

    Rows given as ``u*`` are written as u: a table has no place to say so.
    """
    if "U" not in arrays:
        (values,) = arrays.values()
        matrix = np.atleast_2d(np.asarray(values))
        if not np.iscomplexobj(matrix):
            return Table(None, list(matrix.T))
        return Table(*_split("a", matrix))
    rows = np.asarray(arrays["U"])
    rows = rows.conj() if metadata.get("conjugate") else rows
    names, columns = _split("u", rows)
    for name, values in arrays.items():
        if name != "U":
            names.append(name)
            columns.append(np.broadcast_to(np.asarray(values), rows.shape[:1]))
    return Table(names, columns)


def _split(letter: str, matrix: Any) -> tuple[list[str], list[Any]]:
    """Return names and columns of a matrix."""
    count = range(1, matrix.shape[1] + 1)
    if not np.iscomplexobj(matrix):
        return [f"{letter}{i}" for i in count], list(matrix.T)
    names = [f"{letter}{i}_{part}" for i in count for part in ("re", "im")]
    return names, [part for column in matrix.T for part in (column.real, column.imag)]


def _paired(path: object, names: list[str], columns: list[Any]) -> dict[str, Any]:
    """Return columns by name, a complex one where the first of its two parts stands."""
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"{path} has two columns named {twice!r}")
    parts: dict[str, dict[str, str]] = {}
    for name in names:
        found = PAIR.fullmatch(name)
        if found:
            stem = found["stem"] or found["inside"]
            part = (found["part"] or found["before"]).lower()
            parts.setdefault(stem, {})[part[:2]] = name
    whole = {stem: pair for stem, pair in parts.items() if len(pair) == 2 and stem not in names}
    home = {name: stem for stem, pair in whole.items() for name in pair.values()}
    by_name = dict(zip(names, columns, strict=True))
    result: dict[str, Any] = {}
    for name in names:
        if name not in home:
            result[name] = by_name[name]
        elif home[name] not in result:
            pair = whole[home[name]]
            real, imag = by_name[pair["re"]], by_name[pair["im"]]
            if real.shape != imag.shape:
                raise Unreadable(f"{path}: {pair['re']} and {pair['im']} differ in shape")
            joined = np.empty(real.shape, np.complex128)
            joined.real, joined.imag = real, imag
            result[home[name]] = joined
    return result


def _by_role(
    path: object,
    columns: dict[str, Any],
    b: str | None,
    apart: bool,
    notes: list[str],
    optional: bool,
) -> dict[str, str]:
    """Return names of the columns that are not U's."""
    lower: dict[str, str] = {}
    for name, values in columns.items():
        if values.ndim == 1:
            lower.setdefault(name.lower(), name)
    taken = {}
    for role in SINGLE:
        found = next((lower[name] for name in NAMES[role] if name in lower), None)
        if found is not None and found != b:
            taken[role] = found
    if b is not None:
        taken["b"] = b
    elif not apart:
        optional = optional or ("lo" in taken and "hi" in taken)
        found = _readings(path, lower, optional, list(columns))
        if found is not None:
            taken["b"] = found
            if found != "b":
                notes.append(f"b is {found!r}")
    return taken


def _readings(path: object, lower: dict[str, str], optional: bool, names: list[str]) -> str | None:
    if "b" in lower:
        return lower["b"]
    called = [lower[name] for name in NAMES["b"] if name in lower]
    if "y" in lower and {"x", "z"} & set(lower):  # coordinates
        called.remove(lower["y"])
    if len(called) == 1:
        return called[0]
    if optional:
        return None
    raise Unreadable(
        f"{path} has {'several columns' if called else 'no column'} for the readings b; it has "
        f"{listed(names)}: say which with b= (--b)"
    )


def _column(path: object, columns: dict[str, Any], name: str) -> str:
    found = [each for each in columns if each == name] or [
        each for each in columns if each.lower() == name.lower()
    ]
    if len(found) != 1:
        raise Unreadable(f"{path} has no column named {name!r}; it has {listed(columns)}")
    return found[0]


def _matching(path: object, columns: dict[str, Any], wanted: str) -> list[str]:
    """Return the columns that were named for U, in the order of the names, each once."""
    chosen: dict[str, None] = {}
    for word in (part.strip() for part in wanted.split(",")):
        if any(mark in word for mark in "*?["):
            found = [name for name in columns if fnmatchcase(name, word)]
            if not found:
                raise Unreadable(f"{path} has no column like {word!r}; it has {listed(columns)}")
            chosen.update(dict.fromkeys(found))
        else:
            chosen[_column(path, columns, word)] = None
    return list(chosen)


def _assembled(
    path: object, probes: list[Any], beside: dict[str, Any], roles: dict[str, Any], notes: Any
) -> Arrays:
    """Return the arrays; what stands the same in every row of `rtol` is one number."""
    if not probes:
        raise Unreadable(f"{path} has no columns for U in addition to its readings")
    values = {"U": _joined(path, probes), **beside}
    rtol = values.get("rtol")
    if rtol is not None:
        if rtol.size == 0 or np.any(rtol != rtol[0]):
            raise Unreadable(f"{path}: rtol must be the same in every row")
        values["rtol"] = rtol[0]
    names = [name for taken in roles.values() for name in taken]
    return Arrays(values, {}, names, notes, roles)


def _joined(path: object, columns: list[Any]) -> Any:
    try:
        return np.ascontiguousarray(np.column_stack(columns))
    except ValueError as error:
        raise Unreadable(f"{path}: {error}") from None
