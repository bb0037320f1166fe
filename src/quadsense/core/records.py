"""Records that are made and changed often: dataclasses of many fields that stay as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from functools import cached_property
else:

    def record(*, frozen: bool, eq: bool = True) -> Any:
        """Make a `dataclass`, which only type checkers keep frozen.

        To set a field of a frozen one takes four times as long, and a small solve makes 200.
        """
        return dataclass(eq=eq, unsafe_hash=frozen and eq)

    class cached_property(functools.cached_property):
        """The same without its lock, by which a first look takes three times as long.

        Two threads that look at once may both make the value.
        """

        def __get__(self, record: Any, owner: Any = None) -> Any:
            """Make the value, which from then on is an attribute."""
            if record is None:
                return self
            value = record.__dict__[self.attrname] = self.func(record)
            return value


__all__ = ["LATER", "Lazy", "cached_property", "changed", "made", "record"]

T = TypeVar("T")

LATER = {"later": True}
"""Metadata of a field that files written before it was introduced lack: None is not written."""


class Lazy:
    """A record, some fields of which are made when they are first read."""

    _later: dict[str, Callable[[], Any]] | None = None

    @classmethod
    def of(cls, later: dict[str, Callable[[], Any]], **fields: Any) -> Any:
        """Return the record with these fields; `later` has, by name, what makes the others."""
        record = object.__new__(cls)
        record.__dict__.update(fields, _later=later)
        return record

    if not TYPE_CHECKING:  # the fields are declared where the class is

        def __getattr__(self, name: str) -> Any:
            """Make a field."""
            make = (self.__dict__.get("_later") or {}).get(name)
            if make is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            value = self.__dict__[name] = make()
            self._later.pop(name, None)
            return value

    def __getstate__(self) -> dict[str, Any]:
        """All fields, for copies and other processes."""
        for name in tuple(self._later or ()):
            getattr(self, name)
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


def made(kind: type[T], fields: dict[str, Any]) -> T:
    """Return the record of these fields, all of them, which it keeps as they are."""
    record = object.__new__(kind)
    record.__dict__.update(fields)
    assert len(fields) == len(record.__dataclass_fields__)  # type: ignore[attr-defined]
    return record


def changed(record: T, **changes: Any) -> T:
    """`dataclasses.replace`, which for many fields takes as long as a step on a small problem.

    For records that keep nothing but their fields: nothing is derived anew.
    """
    other = object.__new__(type(record))
    values = other.__dict__
    values.update(record.__dict__, **changes)
    assert len(values) == len(record.__dict__)  # only fields that there are
    return other
