"""Readers and writers of named arrays. Never unpickles, never leaves a half-written file."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quadsense.files.contents import Arrays, Entry, MissingPackage, Unreadable
    from quadsense.files.formats import (
        FORMATS,
        Format,
        check_writable,
        write,
        write_text,
        writer_of,
    )
    from quadsense.files.npz import read_arrays, write_arrays
    from quadsense.files.roles import Given
    from quadsense.files.sources import (
        APART,
        Source,
        array_from,
        look_at,
        measured_in,
        read_measured,
    )
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

_NAMES = {
    "contents": ("Arrays", "Entry", "MissingPackage", "Unreadable"),
    "formats": ("FORMATS", "Format", "check_writable", "write", "write_text", "writer_of"),
    "npz": ("read_arrays", "write_arrays"),
    "roles": ("Given",),
    "sources": ("APART", "Source", "array_from", "look_at", "measured_in", "read_measured"),
    "strips": ("Pieces", "Strip", "Strips", "strips_of"),
}
"""Names by their module, imported when they are first asked for: few programs read files."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found
