"""Frozen dataclasses as named arrays and JSON, and back: states of methods and results.

What may be in one: arrays, numbers, texts, None, tuples, lists, dictionaries with text keys (the
state of a generator is one), enumerations and other dataclasses. Nothing is pickled: a file may
name dataclasses and enumerations of this package only, and these are made from their fields. Where
the reader lists the classes that may be there, each field must be what its annotation says, too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import to_numpy
from quadsense.device import DeviceArray, tensor_of
from quadsense.typing import LARGEST_WHOLE, is_number, is_whole

PACKAGE = "quadsense"
"""The package whose dataclasses and enumerations a file may name."""


def _array_of(kinds: str, value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in kinds and value.ndim > 0


def _is_moderate(value: Any) -> bool:
    """Return whether arithmetic can do with a number: whole ones of JSON have no bounds."""
    return not isinstance(value, int) or abs(value) <= LARGEST_WHOLE


TESTS: dict[str, Callable[[Any], bool]] = {
    "float": lambda value: is_number(value) and _is_moderate(value),
    "int": lambda value: is_whole(value) and _is_moderate(value),
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "Literal": lambda value: isinstance(value, str),
    "None": lambda value: value is None,
    "dict": lambda value: isinstance(value, dict),
    "Mapping": lambda value: isinstance(value, dict),
    "Array": lambda value: _array_of("fiuc", value),
    "Vector": lambda value: _array_of("fiu", value),
    "npt.NDArray": lambda value: _array_of("iu", value) and value.ndim == 1,
    "SupportsSparse": sp.issparse,
}
"""What annotations mean, up to their brackets; NumPy's own are written for indices."""


def encode(value: Any, also: tuple[str, ...] = ()) -> tuple[dict[str, Any], Any]:
    """Return the arrays in a value by name, and the rest as plain data for JSON.

    Parameters
    ----------
    value : object
    also : tuple of str
        Modules whose dataclasses and enumerations may be there, not only of this package.

    Raises
    ------
    TypeError
        For something that is none of the above.
    """
    writer = _Writer(also)
    return writer.arrays, writer.plain(value, "")


def decode(
    arrays: Mapping[str, Any],
    plain: Any,
    convert: Callable[[Any], Any] | None = None,
    kinds: tuple[type, ...] | None = None,
    also: tuple[str, ...] = (),
) -> Any:
    """Return the value that `encode` took apart.

    Parameters
    ----------
    arrays, plain
        As `encode` gave them, or as read from a file.
    convert : callable, optional
        Makes arrays of another namespace from NumPy's, where they were of another.
    kinds : tuple of type, optional
        The only dataclasses and enumerations to make, with all their fields, each as annotated; a
        field of a class that is none of these is None. By default any of this package, as they are.
    also : tuple of str
        Modules, imported already, whose classes may be there too.

    Raises
    ------
    ValueError
        If they are not what `encode` makes.
    """
    try:
        return _Reader(arrays, convert, kinds, also).value(plain)
    except (
        KeyError, TypeError, AttributeError, IndexError, ImportError, RecursionError
    ) as error:  # fmt: skip
        raise ValueError(f"this is no state, or a damaged one ({error!r})") from None


class _Writer:
    """Takes a value apart; an array that is met twice is written once."""

    def __init__(self, also: tuple[str, ...] = ()) -> None:
        self._also = also
        self.arrays: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no two arrays have the same id

    def plain(self, value: Any, name: str) -> Any:
        """Return the value for JSON, its arrays by name: where they are in the whole."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Enum):
            return {"enum": _name_of(type(value), self._also), "name": value.name}
        if is_dataclass(value) and not isinstance(value, type):
            held = {part.name: getattr(value, part.name) for part in fields(value)}
            for part in _later(value):
                if held[part] is None:
                    del held[part]
            return {"kind": _name_of(type(value), self._also), "fields": self._each(held, name)}
        if type(value) in (tuple, list):
            each = self._each({str(i): item for i, item in enumerate(value)}, name)
            return {type(value).__name__: list(each.values())}
        if type(value) is dict:
            if not all(type(key) is str for key in value):
                raise TypeError("a dictionary in a state has keys that are no texts")
            return {"dict": self._each(value, name)}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), name)}
        if isinstance(value, np.ndarray) or sp.issparse(value):
            return {"array": self._array(value, name)}
        if tensor_of(value) is not None:
            return {"device": self._array(value, name)}
        if hasattr(value, "__array_namespace__") or hasattr(value, "__dlpack__"):
            return {"foreign": self._array(value, name)}
        raise TypeError(f"{type(value).__name__} in a state: it holds arrays and plain data only")

    def _each(self, values: dict[str, Any], name: str) -> dict[str, Any]:
        return {key: self.plain(item, f"{name}.{key}".lstrip(".")) for key, item in values.items()}

    def _array(self, values: Any, name: str) -> str:
        if id(values) not in self._names:
            tensor = tensor_of(values)
            own = values if tensor is None else tensor
            own = own if sp.issparse(own) else to_numpy(own)  # in memory order
            if own.dtype.hasobject:
                raise TypeError("an array of objects in a state: it holds numbers only")
            name = name or "value"
            while name in self.arrays or name == "metadata":
                name += "_"
            self._names[id(values)] = name
            self.arrays[name] = own
            self._kept.append(values)
        return self._names[id(values)]


class _Reader:
    """Puts a value together."""

    def __init__(
        self,
        arrays: Mapping[str, Any],
        convert: Callable[[Any], Any] | None,
        kinds: tuple[type, ...] | None,
        also: tuple[str, ...],
    ) -> None:
        self._arrays, self._convert, self._kinds, self._also = arrays, convert, kinds, also
        self._converted: dict[tuple[str, str], Any] = {}  # what is held twice stays one

    def value(self, plain: Any) -> Any:
        """Return the value that was written as this."""
        if not isinstance(plain, dict):
            if isinstance(plain, list):
                raise ValueError("this is no state, or a damaged one (a bare list)")
            return plain
        if "kind" in plain:
            kind = self._kind(plain["kind"], is_dataclass)
            held = dict.fromkeys(_later(kind))
            held |= {name: self.value(item) for name, item in plain["fields"].items()}
            if self._kinds is not None:
                self._check(kind, held)
            return kind(**held)
        if "enum" in plain:
            return self._kind(plain["enum"], _is_enum)[plain["name"]]
        ((what, held),) = plain.items()
        if what in ("tuple", "list"):
            items = [self.value(item) for item in held]
            return tuple(items) if what == "tuple" else items
        if what == "dict":
            return {key: self.value(item) for key, item in held.items()}
        array = self._arrays[held]
        if what == "scalar":
            return array[()]
        if what in ("foreign", "device"):
            if (what, held) not in self._converted:
                self._converted[what, held] = self._foreign(what, array)
            return self._converted[what, held]
        if what != "array":
            raise ValueError(f"this is no state, or a damaged one ({what!r})")
        return array

    def _foreign(self, what: str, array: Any) -> Any:
        """Return an array of the namespace of the data, or on their device."""
        if self._convert is None:
            raise ValueError("the state has arrays of another namespace than NumPy's")
        own = self._convert(array)
        return own if what == "foreign" else DeviceArray(own)

    def _kind(self, name: str, fits: Callable[[Any], bool]) -> Any:
        """Return the class of that name, if it is one of those that may be there."""
        if self._kinds is None:
            return _of_this_package(name, fits, self._also)
        # By the name alone: a class may have moved to another module since.
        found = {kind.__name__: kind for kind in self._kinds}[name.rpartition(":")[2]]
        if not fits(found):
            raise ValueError(f"a state cannot hold a {name!r} so")
        return found

    def _check(self, kind: Any, held: dict[str, Any]) -> None:
        """Raise unless all fields are there, and are what their annotations say.

        One that has a default may be missing: the file may be older than the field.
        """
        needed = {e.name for e in fields(kind) if MISSING is e.default is e.default_factory}
        if not needed <= held.keys() <= {entry.name for entry in fields(kind)}:
            raise ValueError(f"a {kind.__name__.lower()} is none")
        for entry in fields(kind):
            if entry.name in held and not self._fits(str(entry.type), held[entry.name]):
                raise ValueError(f"{entry.name} is no {entry.type}")

    def _fits(self, written: str, value: Any) -> bool:
        """Return whether a value is of the type that is written so."""
        if written.startswith("tuple[") and written.endswith(" | None"):
            return value is None or self._fits(written.removesuffix(" | None"), value)
        if written.startswith("tuple["):
            inner = written.removeprefix("tuple[").removesuffix(", ...]")
            return type(value) is tuple and all(self._fits(inner, item) for item in value)
        for name in (each.partition("[")[0] for each in written.split(" | ")):
            made = [kind for kind in self._kinds or () if kind.__name__ == name]
            if isinstance(value, made[0]) if made else TESTS.get(name, TESTS["None"])(value):
                return True
        return False


def _later(kind: Any) -> list[str]:
    """Return fields that a file need not have (see `LATER`)."""
    return [part.name for part in fields(kind) if "later" in part.metadata]


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _name_of(kind: type, also: tuple[str, ...] = ()) -> str:
    if kind.__module__.split(".")[0] != PACKAGE and kind.__module__ not in also:
        raise TypeError(f"{kind.__qualname__} in a state: it is not of this package")
    return f"{kind.__module__}:{kind.__qualname__}"


def _of_this_package(name: str, fits: Callable[[Any], bool], also: tuple[str, ...] = ()) -> Any:
    """Return the dataclass or enumeration of that name; nothing else is looked up."""
    module, _, kind = name.partition(":")
    if module in also:
        home = sys.modules[module]
    elif module.split(".")[0] == PACKAGE and all(p.isidentifier() for p in module.split(".")):
        home = importlib.import_module(module)
    else:
        raise ValueError(f"a state cannot hold a {name!r}")
    found = getattr(home, kind)
    if not (isinstance(found, type) and fits(found) and found.__module__ == module):
        raise ValueError(f"a state cannot hold a {name!r}")
    return found
