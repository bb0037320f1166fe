"""Numbers in columns of text: commas, semicolons, tabs or spaces between them.

The first line names the columns where it holds anything but numbers, and so does the comment
before the data, as `numpy.savetxt` writes it, where it names b.
"""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np

from quadsense.files.contents import Entry, Unreadable, reading
from quadsense.files.roles import NAMES
from quadsense.files.table import Table
from quadsense.system.machine import BLOCK_ELEMENTS

TITLE = "a CSV file"
IMAGINARY = re.compile(r"(?<=[0-9.])i(?=[\s,;\")]|$)")
"""The i of MATLAB's complex numbers."""


def read_table(path: Path) -> Table:
    """Return the columns; those whose first entry is no number are told of, and left out."""
    with reading(path, TITLE):
        with open(path, encoding="utf-8-sig", newline="") as stream:
            comment, before, first = _begin(stream)
            if not first:
                raise Unreadable(f"{path} is empty")
            mark = _delimiter(first, path)
            names: list[str] | None = _fields(first, mark)
            if all(_is_number(name) for name in names or ()):
                names = _named_by(comment, mark, len(names or ()))
            else:
                _, more, first = _begin(stream)
                before += more + 1
                if not first:
                    raise Unreadable(f"{path} has names of columns, but no rows")
        fields = _fields(first, mark)
        if names is not None and len(names) != len(fields):
            raise Unreadable(
                f"{path} names {len(names)} columns, but its first row has {len(fields)} entries"
            )
        numeric = [i for i, text in enumerate(fields) if _is_number(text)]
        others = [i for i, text in enumerate(fields) if not _is_number(text)]
        line = before + 1
        texts = {names[i]: _said(line, fields[i]) for i in others} if names else {}
        if not numeric:
            return Table(names and [], [], _left(names, others, 0), texts)
        values = _numbers(path, before, mark, names, numeric, not others)
        return _without_index(_table(names, numeric, others, values, texts))


def write_table(path: Path, table: Table) -> None:
    """Write columns, every number to the last bit; complex ones must be in pairs."""
    mark = "\t" if path.suffix.lower() == ".tsv" else ","
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=mark, lineterminator="\n")
        if table.names is not None:
            writer.writerow(table.names)
        block = max(1, BLOCK_ELEMENTS // max(1, len(table.columns)))
        for start in range(0, table.columns[0].shape[0], block):
            part = [column[start : start + block].tolist() for column in table.columns]
            writer.writerows(zip(*part, strict=True))  # Python's shortest text that reads back


def _begin(stream: Any) -> tuple[str, int, str]:
    """Return the last comment before the data, the lines up to there, and the first of data."""
    comment, before = "", 0
    for line in stream:
        if line.lstrip().startswith("#"):
            comment = line.lstrip().lstrip("#").strip()
        elif line.strip():
            return comment, before, line
        before += 1
    return comment, before, ""


def _delimiter(line: str, path: Path) -> str | None:
    """Return what stands between the entries of a line; None for spaces."""
    for mark in ("\t", ";", ","):
        if mark in line:
            return mark
    if '"' in line or path.suffix.lower() == ".csv":
        return ","  # one column
    return None


def _fields(line: str, mark: str | None) -> list[str]:
    if mark is None:
        return line.split()
    return [field.strip() for field in next(csv.reader([line.rstrip("\r\n")], delimiter=mark))]


def _is_number(text: str) -> bool:
    try:
        complex(IMAGINARY.sub("j", text))
    except ValueError:
        return False
    return "_" not in text


def _named_by(comment: str, mark: str | None, count: int) -> list[str] | None:
    """Return the names in a comment before the data, where it names readings or intervals."""
    names = _fields(comment, mark) if comment else []
    known = {*NAMES["b"], *NAMES["lo"]}
    if len(names) == count and known & {name.lower() for name in names}:
        return names
    return None


def _numbers(
    path: Path,
    before: int,
    mark: str | None,
    names: list[str] | None,
    columns: list[int],
    whole: bool,
) -> Any:
    """Return the columns as one array: real, and complex where some entry is."""
    chosen = None if whole else columns  # without, rows of another length are refused
    given: Any = {"delimiter": mark, "usecols": chosen, "quotechar": '"', "ndmin": 2}
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            return np.loadtxt(itertools.islice(stream, before, None), dtype=np.float64, **given)
    except ValueError as error:
        try:
            with open(path, encoding="utf-8-sig", newline="") as stream:
                lines = itertools.islice(stream, before, None)
                plain = (IMAGINARY.sub("j", line) for line in lines)
                return np.loadtxt(plain, dtype=np.complex128, **given)
        except ValueError:
            _refuse_first_text(path, before, mark, names, columns)
            raise ValueError(str(error).partition(";")[0].rstrip(".")) from None


def _refuse_first_text(
    path: Path, before: int, mark: str | None, names: list[str] | None, columns: list[int]
) -> None:
    """Raise `Unreadable` for the first entry of these columns that is no number."""
    with open(path, encoding="utf-8-sig", newline="") as stream:
        for line, text in enumerate(itertools.islice(stream, before, None), before + 1):
            text = text.partition("#")[0]
            fields = _fields(text, mark) if text.strip() else []
            for i in columns if len(fields) > columns[-1] else ():
                if not _is_number(fields[i]):
                    name = repr(names[i]) if names else f"{i + 1}"
                    raise Unreadable(
                        f"{path}: column {name} must hold numbers, but {_said(line, fields[i])}"
                    )


def _said(line: int, text: str) -> str:
    """Return what a line of the file holds, for messages."""
    return f"line {line} holds {text!r}" if text else f"line {line} holds nothing"


def _left(names: list[str] | None, others: list[int], rows: int) -> tuple[Entry, ...]:
    return tuple(Entry(names[i] if names else f"column {i + 1}", (rows,), "text") for i in others)


def _table(
    names: list[str] | None, numeric: list[int], others: list[int], values: Any, texts: Any
) -> Table:
    columns = [column if np.any(column.imag) else column.real for column in values.T]
    left = _left(names, others, len(values))
    return Table(names and [names[i] for i in numeric], columns, left, texts)


def _without_index(table: Table) -> Table:
    """Without a first column that has no name and counts the rows, as pandas writes it."""
    if table.names is None or not table.names or table.names[0] or len(table.columns) == 1:
        return table
    count = table.columns[0]
    if not np.array_equal(count, np.arange(count.size)):
        return table
    index = Entry("the numbers of the rows", count.shape, "index")
    return Table(table.names[1:], table.columns[1:], (*table.others, index), table.texts)
