"""Readers and writers of named arrays. Never unpickles, never leaves a half-written file."""

from quadsense.files.contents import Arrays, Entry, MissingPackage, Unreadable
from quadsense.files.formats import FORMATS, Format, check_writable, write, write_text, writer_of
from quadsense.files.npz import read_arrays, write_arrays
from quadsense.files.roles import Given
from quadsense.files.sources import APART, Source, array_from, look_at, measured_in, read_measured
from quadsense.files.strips import Pieces, Strip, Strips, strips_of

__all__ = [
    "APART",
    "FORMATS",
    "Arrays",
    "Entry",
    "Format",
    "Given",
    "MissingPackage",
    "Pieces",
    "Source",
    "Strip",
    "Strips",
    "Unreadable",
    "array_from",
    "check_writable",
    "look_at",
    "measured_in",
    "read_arrays",
    "read_measured",
    "strips_of",
    "write",
    "write_arrays",
    "write_text",
    "writer_of",
]
