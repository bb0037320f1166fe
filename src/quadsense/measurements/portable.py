"""Objects that hold a namespace, which is a module, and can be pickled and copied all the same."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

MODULES = "modules"
"""Under which the names of modules are in a state."""


class Portable:
    """An object whose modules are pickled, and copied, by their names."""

    def __getstate__(self) -> dict[str, Any]:
        """All attributes, and the names of the modules among them."""
        held = {
            name: value.__name__
            for name, value in self.__dict__.items()
            if isinstance(value, ModuleType)
        }
        rest = {name: value for name, value in self.__dict__.items() if name not in held}
        return {**rest, MODULES: held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The attributes, the modules imported again."""
        self.__dict__.update({name: value for name, value in state.items() if name != MODULES})
        for name, module in state[MODULES].items():
            self.__dict__[name] = import_module(module)
