"""What was asked of a solve, and with what it was made: plain data that a result keeps.

From it a report writes the line of Python, and the command, that ask the same again.
"""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from quadsense.arrays import is_numpy
from quadsense.measurements import Measurements

if TYPE_CHECKING:
    from quadsense.result.result import Result

DEFAULTS: dict[str, Any] = {
    "rtol": 0.0,
    "constraints": (),
    "prefer": "auto",
    "ridge": "auto",
    "allow_violations": 0,
    "method": "auto",
    "schedule": "continuation",
}
"""Of the arguments of `solve` whose default is neither None nor False."""


def asks_rank(result: Result) -> bool:
    """Return whether a rank was asked for, of which certified ranges take no account.

    With "auto" the certificate names none: only the request tells.
    """
    claim = result.certificate
    known = result.plan.get("request", {}).get("rank") is not None
    return known or claim.rank is not None or bool(claim.signs)


def request_of(data: Measurements, arguments: dict[str, Any]) -> dict[str, Any]:
    """What was asked, as far as it is not the default.

    Parameters
    ----------
    data : Measurements
        With their tolerance as it was given, wherever that was.
    arguments : dict
        The other arguments of `solve` by name.

    Returns
    -------
    dict
        Numbers, texts and lists of numbers by name of the argument; under "arrays" the names of
        those that are more than that, "b" among them where there are readings.
    """
    plain = data.plain
    given: dict[str, Any] = {"b": plain.readings}
    if plain.from_bounds:
        given["bounds"] = (plain.lo, plain.hi)
    else:
        given["delta"], given["rtol"] = plain._delta, plain._rtol
    given["weights"], given["mix"], given["conjugate"] = plain.weights, plain.mix, plain.conjugate
    request: dict[str, Any] = {}
    arrays = []
    for name, value in (*given.items(), *arguments.items()):
        if value is None or value is False or value is DEFAULTS.get(name):
            continue
        small = _plain(value)
        if small is False or (small is not None and small == DEFAULTS.get(name)):
            continue
        if small is None:
            arrays.append(name)
        elif not (name == "constraints" and small == []):
            request[name] = small
    request["arrays"] = arrays
    return request


def _plain(value: Any) -> Any:
    """A number, a text or a few numbers as a file and JSON can hold them; None for more."""
    if is_numpy(value) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list) and len(value) <= 2:
        parts = [_plain(part) for part in value]
        return parts if all(isinstance(part, int | float) for part in parts) else None
    return None


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return {
        "quadsense": str(import_module("quadsense").__version__),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": f"{platform.system()} {platform.machine()}".strip(),
    }


def environment() -> dict[str, str]:
    """Versions and kind of machine; nothing that names it or whose it is."""
    return dict(_versions())
