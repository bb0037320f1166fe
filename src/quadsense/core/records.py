"""Records that are changed often: frozen dataclasses of many fields."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

LATER = {"later": True}
"""Metadata of a field that files written before it was introduced lack: None is not written."""


def changed(record: T, **changes: Any) -> T:
    """`dataclasses.replace`, which for many fields takes as long as a step on a small problem.

    For records that keep nothing but their fields: nothing is derived anew.
    """
    other = object.__new__(type(record))
    assert changes.keys() <= record.__dict__.keys()
    other.__dict__.update(record.__dict__)
    other.__dict__.update(changes)
    return other
