"""``quadsense inspect``: what is in a file, and how it would be solved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

import quadsense
from quadsense import files
from quadsense.cli import question
from quadsense.cli.shared import echo_json, to_order
from quadsense.files.table import stem
from quadsense.machine import known_rates, measure_rates
from quadsense.plan import Plan, Shape, make_plan, shape_of
from quadsense.view import text as view

SHOWN = 40
"""Entries of a file that are listed; of columns there may be thousands."""


@click.command()
@click.argument("file", required=False, type=click.Path())
@click.option("--n", type=int, help="Without a file: order of A.")
@click.option("--m", type=int, help="Without a file: number of measurements.")
@click.option("--complex", "complex_", is_flag=True, help="Without a file: complex probes.")
@click.option("--psd", is_flag=True, help="Plan for a positive semidefinite A.")
@click.option("--rank", help="Plan for an A of this rank; 'auto' lets it grow.")
@question.options(question.NAMING)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/command.md).")
def inspect(
    file: str | None,
    n: int | None,
    m: int | None,
    complex_: bool,
    psd: bool,
    rank: str | None,
    probes: str | None,
    readings: str | None,
    conjugate: bool | None,
    as_json: bool,
) -> None:
    """Show what is in FILE, which of it is U and b, and how it would be solved.

    FILE may be of any format, and a result too. Without FILE, --n and --m show the plan for a
    problem of that size.

    \b
    Examples:
      quadsense inspect data.npz
      quadsense inspect data.mat --U probes
      quadsense inspect result.npz
      quadsense inspect --n 300 --m 15000 --psd
    """
    if (file is None) == (n is None or m is None):
        raise click.UsageError("give a FILE, or both --n and --m")
    if file is None:
        assert n is not None and m is not None
        if n < 1 or m < 1:
            raise ValueError(f"n and m must be at least 1, got n = {n}, m = {m}")
        order = to_order(rank, n)
        shape = Shape(m=m, n=n, complex=complex_, psd=psd or order is not None, rank=order)
        _show(as_json, {}, "", _planned(shape))
        return
    source = files.look_at(file)
    if source.is_result:
        _show_result(source, as_json)
        return
    try:
        arrays = files.measured_in(source, probes, readings)
    except files.Unreadable as error:
        if probes is not None or readings is not None:
            raise
        fields = {"file": _file_fields(source, {}, (), str(error))}
        _show(as_json, fields, _file_text(fields["file"]), None)
        return
    data = quadsense.Measurements.from_arrays(source.path, arrays, conjugate=conjugate)
    shape = _shape(data, psd, to_order(rank, data.n))
    about = _file_fields(source, arrays.roles, data.notes, None)
    text = f"{_file_text(about)}\n{view.data_text(data)}\n"
    _show(as_json, {**view.data_fields(data), "file": about}, text, _planned(shape))


def _shape(data: quadsense.Measurements, psd: bool, order: int | None) -> Shape:
    target = data.tolerance is not None
    shape = shape_of(
        data if target else data.without_tolerance(),
        psd=psd or order is not None,
        rank=order,
        target=True,
    )
    # which delta will be asked is not known
    return shape if target else replace(shape, ratio=Shape.ratio)


def _planned(shape: Shape) -> Plan:
    rates = known_rates()
    return make_plan(shape, rates=rates if rates.measured else measure_rates())


def _show(as_json: bool, fields: dict[str, Any], text: str, plan: Plan | None) -> None:
    if as_json:
        echo_json(fields if plan is None else {**fields, "plan": plan.describe()})
    else:
        click.echo(text + ("" if plan is None else view.plan_text(plan)))


def _show_result(source: files.Source, as_json: bool) -> None:
    """What a result says, without the measurements it was made of."""
    result = quadsense.load_result(source.path)
    if as_json:
        about = _file_fields(source, {}, (), None)
        echo_json({"file": {**about, "entries": []}, "result": view.result_fields(result)})
        return
    size = f"A is {result.matrix.shape[0]} x {result.matrix.shape[1]}"
    click.echo(f"{'file':<16} {source.path}, a quadsense result, {size}")
    click.echo(view.result_text(result))


def _file_fields(
    source: files.Source, roles: dict[str, tuple[str, ...]], notes: tuple[str, ...], why: str | None
) -> dict[str, Any]:
    """What ``--json`` prints of a file."""
    taken = {name: role for role, names in roles.items() for name in names}
    return {
        "path": str(source.path),
        "format": source.format.title,
        "result": source.is_result,
        "entries": [
            {
                "name": entry.name,
                "shape": list(entry.shape),
                "dtype": entry.dtype,
                "sparse": entry.sparse,
                "role": taken.get(entry.name, taken.get(stem(entry.name))),
            }
            for entry in source.entries
        ],
        "notes": list(notes),
        "problem": why,
    }


def _file_text(about: dict[str, Any]) -> str:
    """The same for people."""
    lines = [("file", f"{about['path']}, {about['format']}")]
    entries = about["entries"]
    for i, entry in enumerate(entries[:SHOWN]):
        shape = " x ".join(map(str, entry["shape"])) or "one value"
        kind = f"{'sparse ' if entry['sparse'] else ''}{entry['dtype']}"
        role = f", taken as {entry['role']}" if entry["role"] else ""
        lines.append(("holds" if i == 0 else "", f"{entry['name']}: {shape} {kind}{role}"))
    if len(entries) > SHOWN:
        lines.append(("", f"and {len(entries) - SHOWN:,} more"))
    lines += [("guessed" if i == 0 else "", note) for i, note in enumerate(about["notes"])]
    if about["problem"]:
        lines.append(("not solvable", about["problem"]))
    return "\n".join(f"{name:<16} {text}" for name, text in lines)
