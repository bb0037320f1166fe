"""``quadsense verify``, ``report`` and ``schema``: a result's claim, its page, and what is printed.

A schema is made from the classes that say what ``--json`` prints: types from their annotations,
descriptions from the Attributes sections of their docstrings.
"""

from __future__ import annotations

import json
import re
import webbrowser
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import click

import quadsense
from quadsense import files
from quadsense.cli import shared
from quadsense.cli.interval import to_functional
from quadsense.cli.shared import NOT_MET, echo_json
from quadsense.query.plan import Plan
from quadsense.query.query import REFERENCE
from quadsense.view.json_fields import (
    DataFields,
    InspectFields,
    IntervalFields,
    SolveFields,
    VerifyFields,
    verify_fields,
)


@click.command()
@click.argument("file", type=click.Path())
@click.argument("result", type=click.Path())
@shared.options(shared.NAMING, shared.TOLERANCE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/command.md).")
@click.option("--quiet", is_flag=True, help="Print nothing; see the exit status.")
def verify(
    file: str,
    result: str,
    delta: float | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Recompute the claim of RESULT from the measurements in FILE; exit 0 if true, 3 if not.

    It is checked against the tolerance of the solve and against that of FILE, or the one given
    here, where there is one and it differs; it is true only if both hold. Data that solve was told
    how to read (--U, --b, --shots, --bounds) are read with the same options here.

    \b
    Examples:
      quadsense verify data.npz result.npz
      quadsense verify data.mat result.npz --json
    """
    claimed = quadsense.load_result(result)
    source = files.look_at(file)
    data = shared.open_data(source, **given)
    found = claimed.check(data, delta=delta)
    if quiet:
        pass
    elif as_json:
        echo_json(verify_fields(claimed, data, found))
    elif claimed.certificate.kind == "none":
        click.echo(f"no claim: the result's status is {claimed.status}")
    else:
        aside = claimed.certificate.set_aside.size
        rest = f", {aside} set aside" if aside else ""
        verdict = "true" if found.true else "FALSE"
        click.echo(f"{verdict}: {claimed.status}, {data.m - aside} measurements{rest}")
        click.echo("".join(f"  {check}\n" for check in found.checks), nl=False)
    return 0 if found.true else NOT_MET


# --- certificate ---------------------------------------------------------------------------------


@click.command()
@click.argument("file", type=click.Path())
@click.argument("result", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), required=True, help="Write the certificate here (.json)."
)
@click.option("--objective", is_flag=True, help="Claim the bounds on what was preferred.")
@click.option(
    "--interval",
    "what",
    metavar=f"trace|I,J|{REFERENCE}",
    help="Claim the certified range of this, as 'interval' finds it.",
)
@shared.options(shared.NAMING, shared.TOLERANCE)
@click.option("--quiet", is_flag=True, help="Print nothing; see the exit status.")
def certificate(
    file: str,
    result: str,
    output: str,
    objective: bool,
    what: str | None,
    quiet: bool,
    **given: Any,
) -> int:
    """Write the claim of RESULT, found for the measurements in FILE, for others to check.

    The file is read by quadsense_check.py, one file that needs Python alone (CERTIFICATE.md). What
    exact arithmetic does not show is not written: exit 3.

    \b
    Examples:
      quadsense certificate data.npz result.npz -o certificate.json
      python -m quadsense_check certificate.json
    """
    from quadsense import certificates  # rarely needed

    files.check_writable(output, ".json")
    found, source = quadsense.load_result(result), files.look_at(file)
    data = shared.open_data(source, **given)
    shared.say_notes(source, data)
    try:
        if what is None:
            held = certificates.fields_of(found.certificate, data, objective)
        else:
            bounds = found.interval(to_functional(what, source), data=data)
            own = replace(found.certificate, columns=None).own_data(data, None, {})
            held = certificates.fields_of_range(bounds, own)
        certificates.write(output, held)
    except certificates.CannotCertify as error:
        click.echo(f"quadsense: {error}", err=True)
        return NOT_MET
    if not quiet:
        click.echo(f"wrote {output}: {held['claim']}")
    return 0


# --- report --------------------------------------------------------------------------------------


@click.command()
@click.argument("file", type=click.Path())
@click.argument("result", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), required=True, help="Write the report here (.html)."
)
@click.option("--title", help="Shown above the verdict.")
@click.option(
    "--interval",
    "intervals",
    multiple=True,
    metavar=f"trace|I,J|{REFERENCE}",
    help="Find the certified range of this too, as 'interval' does; may be given again.",
)
@click.option("--no-check", is_flag=True, help="Do not check the result against FILE.")
@shared.options(shared.NAMING, shared.TOLERANCE)
@click.option("--open", "show", is_flag=True, help="Show it in the browser.")
@click.option("--quiet", is_flag=True, help="Print nothing; see the exit status.")
def report(
    file: str,
    result: str,
    output: str,
    title: str | None,
    intervals: tuple[str, ...],
    no_check: bool,
    show: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Write all there is to say of RESULT, found for the measurements in FILE, as one HTML file.

    Verdict, certificate, pictures, suspects, plan, and how to ask the same again; nothing in it
    needs the network. All that the result states is checked against FILE: exit 3 if it is false.
    Data that solve was told how to read (--U, --b, --shots, --bounds) are read with the same
    options here.

    \b
    Examples:
      quadsense report data.npz result.npz -o report.html
      quadsense report data.npz result.npz -o report.html --interval trace --interval 0,1
    """
    files.check_writable(output, ".html")
    found, source = quadsense.load_result(result), files.look_at(file)
    data = shared.open_data(source, **given)
    shared.say_notes(source, data)
    asked = [to_functional(text, source) for text in intervals]
    page = found.report(
        data,
        intervals=found.interval(asked, data=data) if asked else None,
        title=title,
        check=not no_check,
        names=(Path(file).name, Path(result).name),
    )
    page.write_html(output)
    false = page.checked is not None and not page.checked.true
    if not quiet:
        click.echo(f"wrote {output}: {found.status}")
    if false:
        click.echo(f"quadsense: {file} does not bear out what {result} states", err=True)
    if show:
        webbrowser.open(Path(output).resolve().as_uri())
    return NOT_MET if false else 0


# --- schema --------------------------------------------------------------------------------------


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
