"""``quadsense inspect``: what is in a file, and how it would be solved."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import click

import quadsense
from quadsense import files
from quadsense.choice import by_shape, decide, to_wish
from quadsense.cli import question
from quadsense.cli.shared import echo_json, to_order
from quadsense.files.table import stem
from quadsense.frame import columns_of, described, framed
from quadsense.machine import Rates, known_rates, measure_rates
from quadsense.memory import free_memory
from quadsense.plan import Plan, Shape, make_plan, shape_of
from quadsense.scaling import Scaling
from quadsense.view import text as view

MOST = 10**18
"""The largest number that is a size: what is made of it must be one, too."""


class Whole(click.ParamType):  # type: ignore[type-arg]
    """A whole number, also as 1e9."""

    name = "integer"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Read it; refuse 1.5 and texts."""
        try:
            number: float = int(value)
        except ValueError:
            try:
                number = float(value)
            except ValueError:
                number = math.nan
        if not (abs(number) <= MOST and number == int(number)):
            self.fail(f"{value!r} is not a whole number up to 1e18", param, ctx)
        return int(number)


WHOLE = Whole()

SHOWN = 40
"""Entries of a file that are listed; of columns there may be thousands."""


@click.command()
@click.argument("file", required=False, type=click.Path())
@click.option("--n", type=WHOLE, help="Without a file: order of A.")
@click.option("--m", type=WHOLE, help="Without a file: number of measurements; 1e9 too.")
@click.option("--complex", "complex_", is_flag=True, help="Without a file: complex probes.")
@click.option(
    "--workers", type=WHOLE, metavar="W", help="Without a file: what W Dask workers would take."
)
@click.option("--single", is_flag=True, help="With --workers: rows in single precision.")
@click.option(
    "--network", metavar="BYTES", help="With --workers: a second, of a link; else 1.25 GB."
)
@click.option(
    "--disk", metavar="BYTES", help="With --workers: a second, of its files; else 500 MB."
)
@click.option(
    "--memory-limit", metavar="BYTES", help="With --workers: of a machine; else what is free here."
)
@click.option("--psd", is_flag=True, help="Plan for a positive semidefinite A.")
@click.option("--rank", help="Plan for an A of this rank; 'auto' lets it grow.")
@question.options(question.NAMING)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/command.md).")
def inspect(
    file: str | None,
    n: int | None,
    m: int | None,
    complex_: bool,
    workers: int | None,
    single: bool,
    network: str | None,
    disk: str | None,
    memory_limit: str | None,
    psd: bool,
    rank: str | None,
    probes: str | None,
    readings: str | None,
    conjugate: bool | None,
    as_json: bool,
) -> None:
    """Show what is in FILE, which of it is U and b, and how it would be solved.

    FILE may be of any format, and a result too. Without FILE, --n and --m show the plan for a
    problem of that size; with --workers what a Dask cluster of so many machines like this one takes
    for it: memory, bytes moved, and seconds (docs/scaling.md).

    \b
    Examples:
      quadsense inspect data.npz
      quadsense inspect data.mat --U probes
      quadsense inspect result.npz
      quadsense inspect --n 300 --m 15000 --psd
      quadsense inspect --n 10000 --m 1e9 --workers 64
      quadsense inspect --n 1e6 --m 1e9 --rank 10 --workers 64 --memory-limit "256 GiB"
    """
    if (file is None) == (n is None or m is None):
        raise click.UsageError("give a FILE, or both --n and --m")
    if file is not None and (n is not None or m is not None):
        raise click.UsageError("a FILE says what n and m are: give it, or --n and --m")
    if workers is None and (single or network or disk or memory_limit):
        raise click.UsageError(
            "--single, --network, --disk and --memory-limit go with --workers, --n and --m"
        )
    if workers is not None and file is not None:
        raise click.UsageError("--workers goes with --n and --m, without a FILE")
    if file is None:
        assert n is not None and m is not None
        if n < 1 or m < 1:
            raise ValueError(f"n and m must be at least 1, got n = {n}, m = {m}")
        order = to_order(rank, n)
        shape = Shape(m=m, n=n, complex=complex_, psd=psd or order is not None, rank=order)
        if workers is None:
            _show(as_json, {}, "", _planned(shape))
            return
        speeds = {
            name: question.bytes_of(f"--{name}", value)
            for name, value in (("network", network), ("disk", disk))
            if value is not None
        }
        found = Scaling(
            m, n, workers, complex_, single, order, psd, os.cpu_count() or 1, _rates(), **speeds
        )
        room = float(free_memory())
        if memory_limit is not None:
            room = question.bytes_of("--memory-limit", memory_limit)
        numbers: dict[str, Any] = {"m": m, "n": n, "complex": complex_}
        _show(
            as_json,
            {**numbers, "scaling": found.describe(room)},
            view.scaling_text(found, room),
            None,
        )
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
    planned = _planned(_shape(data, psd, to_order(rank, data.n)), data)
    about = _file_fields(source, arrays.roles, data.notes, None)
    text = f"{_file_text(about)}\n{view.data_text(data)}\n"
    _show(as_json, {**view.data_fields(data), "file": about}, text, planned)


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


def _planned(shape: Shape, data: quadsense.Measurements | None = None) -> Plan:
    """Return the plan of the default call, with the sentence that says which A it returns."""
    columns = None if data is None else columns_of(data)
    if data is None or data.tolerance is None:
        name, why = by_shape(shape)
        damped = shape.rank is None and (name == "entropy" or not shape.psd)
        reasons: tuple[str, ...] = (f"prefer={name!r}: {why}",)
    else:
        positive, low_rank = shape.psd, shape.rank is not None
        wish = to_wish(
            "auto", None, None, "auto", data, target=True, positive=positive, low_rank=low_rank
        )
        preferences, reasons = decide(wish, framed(data, columns), shape, "auto")
        name, damped = preferences[0].name, preferences[0].ridge > 0.0
    reasons += () if columns is None else (described(columns),)
    plan = make_plan(replace(shape, prefer=name, damped=damped), rates=_rates())
    return replace(plan, reasons=(*reasons, *plan.reasons))


def _rates() -> Rates:
    """Of this machine, measured once."""
    rates = known_rates()
    return rates if rates.measured else measure_rates()


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
