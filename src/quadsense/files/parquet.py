"""Parquet: columns of numbers, lists of numbers as rows of a matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from quadsense.arrays import complex_of
from quadsense.files.contents import Entry, Unreadable, check_room, check_stored, reading
from quadsense.files.hdf5 import PAIRS
from quadsense.files.table import Table
from quadsense.system.machine import FLOAT64_BYTES

TITLE = "a Parquet file"
INDEX = "__index_level_"
"""How the names begin of the columns in which pandas keeps the names of rows."""


def read_table(path: Path) -> Table:
    """Return the columns; those of no numbers, and the names of rows, are told of and left out."""
    import pyarrow.parquet as pq

    with reading(path, TITLE), open(path, "rb") as stream:
        source = pq.ParquetFile(stream)
        _check(path, source.metadata)
        held = source.read()
        if held.num_rows == 0:
            raise Unreadable(f"{path} has no rows")
        names, columns, others, texts = [], [], [], {}
        for name, column in zip(held.column_names, held.columns, strict=True):
            values = None if name.startswith(INDEX) else _numbers(column, column.type)
            if values is None:
                others.append(Entry(name, (held.num_rows,), str(column.type)))
                if not name.startswith(INDEX):
                    texts[name] = _said(column)
            else:
                names.append(name)
                columns.append(values)
        return Table(names, columns, tuple(others), texts)


def _check(path: Path, metadata: Any) -> None:
    """Raise where the rows would take far more than what is stored, or than is free.

    Metadata of single columns are not looked at: of a damaged file they end the process.
    """
    check_stored("rows", (metadata.num_rows,), FLOAT64_BYTES, [path.stat().st_size])
    check_room(path, float(FLOAT64_BYTES) * metadata.num_rows * metadata.num_columns)


def _said(column: Any) -> str:
    """Return the first row of a column that holds no number, for messages."""
    import pyarrow.types as types

    if not (types.is_string(column.type) or types.is_large_string(column.type)):
        return f"its type is {column.type}"
    for row, each in enumerate(column):
        try:
            float(text := each.as_py())
        except (TypeError, ValueError):
            return f"row {row} holds {text!r}"
    return "its numbers are stored as text"


def write_table(path: Path, table: Table) -> None:
    """Write columns; those without names are called by their numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = table.names or [f"a{i + 1}" for i in range(len(table.columns))]
    columns = [np.ascontiguousarray(column) for column in table.columns]
    pq.write_table(pa.table(columns, names=names), path)


def _numbers(column: Any, kind: Any) -> Any:
    """Return the values of a column, (m,), or (m, k) of lists; None where they are no numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    # of one array, a copy must be allowed by name; of chunks it is always made
    whole = {} if isinstance(column, pa.ChunkedArray) else {"zero_copy_only": False}
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return column.to_numpy(**whole)
    if types.is_decimal(kind):
        return column.cast(pa.float64()).to_numpy(**whole)
    if types.is_struct(kind):
        names = tuple(kind.field(i).name for i in range(kind.num_fields))
        pair = next((pair for pair in PAIRS if set(pair) == set(names)), None)
        if pair is None:
            return None
        flat = column.combine_chunks()
        parts = [_numbers(flat.field(name), kind.field(name).type) for name in pair]
        return None if any(part is None for part in parts) else complex_of(*parts)
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not lists or _numbers(pa.array([], kind.value_type), kind.value_type) is None:
        return None
    held = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if held.null_count or len(set(pc.list_value_length(held).to_pylist())) != 1:
        raise ValueError("the lists of a column differ in length")
    return _numbers(held.flatten(), kind.value_type).reshape(len(held), -1)
