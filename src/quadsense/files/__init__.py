"""Readers and writers of named arrays. Never unpickles, never leaves a half-written file."""

from quadsense.files.atomic import write_text
from quadsense.files.contents import Arrays, Entry, MissingPackage, Unreadable
from quadsense.files.formats import FORMATS, Format, check_writable, write, writer_of
from quadsense.files.npz import read_arrays, write_arrays
from quadsense.files.sources import APART, Source, array_from, look_at, measured_in, read_measured

__all__ = [
    "APART",
    "FORMATS",
    "Arrays",
    "Entry",
    "Format",
    "MissingPackage",
    "Source",
    "Unreadable",
    "array_from",
    "check_writable",
    "look_at",
    "measured_in",
    "read_arrays",
    "read_measured",
    "write",
    "write_arrays",
    "write_text",
    "writer_of",
]
