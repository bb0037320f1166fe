"""Readers and writers of named arrays. Never unpickles, never leaves a half-written file."""

from quadsense.files.npz import (
    Arrays,
    check_writable,
    read_arrays,
    write_array,
    write_arrays,
    write_text,
)

__all__ = [
    "Arrays",
    "check_writable",
    "read_arrays",
    "write_array",
    "write_arrays",
    "write_text",
]
