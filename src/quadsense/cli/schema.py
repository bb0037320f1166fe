"""``quadsense schema``: what the commands print with ``--json``, as JSON Schema.

It is made from the classes that say what is printed: types from their annotations, descriptions
from the Attributes sections of their docstrings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import click

from quadsense.query.plan import Plan
from quadsense.view.fields import (
    DataFields,
    InspectFields,
    IntervalFields,
    SolveFields,
    VerifyFields,
)

PRINTED: dict[str, tuple[Any, ...]] = {
    "inspect": (InspectFields, DataFields),
    "interval": (IntervalFields,),
    "solve": (SolveFields,),
    "verify": (VerifyFields,),
}
"""What each command prints: a class, and its bases, which a `TypedDict` forgets."""

VERSION = 1
"""Of what is printed: it rises when a key vanishes or means something else."""

OPEN = (Plan,)
"""Classes that are printed with further keys: a result's plan has the request and more."""

PLAIN = {bool: "boolean", int: "integer", str: "string"}
"""JSON's names of types."""

NUMBER = {
    "description": 'A number; what JSON lacks is null (not a number), "inf" or "-inf".',
    "anyOf": [{"type": "number"}, {"type": "null"}, {"enum": ["inf", "-inf"]}],
}


@click.command()
@click.argument("name", metavar="COMMAND", type=click.Choice(tuple(PRINTED)))
def schema(name: str) -> None:
    """Print the JSON Schema of what COMMAND prints with --json.

    \b
    Example:
      quadsense schema solve > solve.schema.json
    """
    click.echo(json.dumps(schema_of(name), indent=1))


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of what a command prints."""
    parts: dict[str, Any] = {"number": NUMBER}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"quadsense/{name}",
        "title": f"What `quadsense {name} --json` prints",
        "version": VERSION,
        **_object(*PRINTED[name], parts=parts),
        "$defs": parts,
    }


def _object(kind: Any, *bases: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a class; `parts` gets those of the classes that it names."""
    types = get_type_hints(kind)
    texts: dict[str, str] = {}
    for each in (*bases, kind):
        texts |= descriptions(each)
    if types.keys() != texts.keys():
        missing = ", ".join(sorted(types.keys() ^ texts.keys()))
        raise TypeError(f"{kind.__name__}: fields and descriptions differ in {missing}")
    properties = {name: {**_type(types[name], parts), "description": texts[name]} for name in types}
    required = kind.__required_keys__ if is_typeddict(kind) else types.keys()
    return {
        "type": "object",
        "description": str(kind.__doc__).partition("\n")[0],
        "properties": properties,
        "required": [name for name in types if name in required],
        "additionalProperties": kind in OPEN,
    }


def _type(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an annotation."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(args, parts)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple and args[-1] is not Ellipsis:
        (each,) = set(args)
        return {"type": "array", "items": _type(each, parts), "minItems": len(args),
                "maxItems": len(args)}  # fmt: skip
    if origin in (list, tuple):
        return {"type": "array", "items": _type(args[0], parts)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _type(args[1], parts)}
    if kind is Any:
        return {}
    if kind is float:
        return {"$ref": "#/$defs/number"}
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if issubclass(kind, StrEnum):
        return {"enum": [str(each) for each in kind]}
    name = kind.__name__.removesuffix("Fields").lower()
    if name not in parts:
        parts[name] = {}  # its place, before those of its own parts
        parts[name] = _object(kind, parts=parts)
    return {"$ref": f"#/$defs/{name}"}


def _union(kinds: tuple[Any, ...], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that may be missing."""
    each = [_type(kind, parts) for kind in kinds if kind is not NoneType]
    if NoneType in kinds and float not in kinds:  # a number may be null anyway
        each.append({"type": "null"})
    return each[0] if len(each) == 1 else {"anyOf": each}


def descriptions(kind: Any) -> dict[str, str]:
    """Return what the docstring of a class says of each attribute."""
    found: dict[str, str] = {}
    lines = str(kind.__doc__).splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    lines = [line[margin:] for line in lines[1:]]
    if "Attributes" not in lines:
        return found
    names: list[str] = []
    for line in lines[lines.index("Attributes") + 2 :]:
        entry = re.match(r"([\w, ]+) : ", line)
        if entry:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, "")
        elif re.match(r"\S", line):
            break
        else:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    empty = [name for name, text in found.items() if not text]
    if empty:
        raise TypeError(f"{kind.__name__}: no description of {', '.join(empty)}")
    return found
