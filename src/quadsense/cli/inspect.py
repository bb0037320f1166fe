"""``quadsense inspect``: what is in a file, and how it would be solved."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

import quadsense
from quadsense import files
from quadsense.cli import shared
from quadsense.cli.shared import MethodCommand, echo_json, to_order
from quadsense.files.table import stem
from quadsense.query.choice import by_shape
from quadsense.query.cluster_cost import ClusterCost
from quadsense.query.plan import Plan, Shape, make_plan, planned
from quadsense.query.query import Query
from quadsense.system.machine import Rates, known_rates, measure_rates
from quadsense.system.memory import free_memory
from quadsense.view import text as view
from quadsense.view.json_fields import data_fields, result_fields

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

OWN = (
    "file",
    "n",
    "m",
    "complex_",
    "workers",
    "single",
    "network",
    "disk",
    "memory_limit",
    "as_json",
)
"""Parameters that are not those of `solve`."""

SHOWN = 40
"""Entries of a file that are listed; of columns there may be thousands."""


@click.command(cls=MethodCommand)
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
    "--memory-limit",
    metavar="BYTES",
    help="As in solve; with --workers: of a machine; else what is free here.",
)
@shared.options(shared.NAMING, shared.TOLERANCE, shared.SET, shared.WHICH)
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
    as_json: bool,
    **asked: Any,
) -> None:
    """Show what is in FILE, which of it is U and b, and how it would be solved.

    FILE may be of any format, and a result too. The options of `solve` say what would be asked;
    the plan is the one that it follows. Without FILE, --n and --m show the plan for a problem of
    that size with a tolerance, and with --psd or --rank; with --workers what a Dask cluster of that
    many machines like this one takes for it: memory, bytes moved, and seconds (docs/scaling.md).

    \b
    Examples:
      quadsense inspect data.npz
      quadsense inspect data.mat --U probes
      quadsense inspect data.npz --delta 0.01 --psd --prefer min_trace
      quadsense inspect result.npz
      quadsense inspect --n 300 --m 15000 --psd
      quadsense inspect --n 10000 --m 1e9 --workers 64
      quadsense inspect --n 1e6 --m 1e9 --rank 10 --workers 64 --memory-limit "256 GiB"
    """
    if (file is None) == (n is None or m is None):
        raise click.UsageError("give a FILE, or both --n and --m")
    if file is not None and (n is not None or m is not None):
        raise click.UsageError("a FILE says what n and m are: give it, or --n and --m")
    if workers is None and (single or network or disk or (memory_limit and file is None)):
        raise click.UsageError(
            "--single, --network, --disk and --memory-limit go with --workers, --n and --m"
        )
    if workers is not None and file is not None:
        raise click.UsageError("--workers goes with --n and --m, without a FILE")
    if file is None:
        assert n is not None and m is not None
        if n < 1 or m < 1:
            raise ValueError(f"n and m must be at least 1, got n = {n}, m = {m}")
        _refuse_without_data()
        psd, order = asked["psd"], to_order(asked["rank"], n)
        shape = Shape(m=m, n=n, complex=complex_, psd=psd or order is not None, rank=order)
        if workers is None:
            _show(as_json, {}, "", _planned(shape))
            return
        speeds = {
            name: shared.bytes_of(f"--{name}", value)
            for name, value in (("network", network), ("disk", disk))
            if value is not None
        }
        found = ClusterCost(
            m, n, workers, complex_, single, order, psd, os.cpu_count() or 1, _rates(), **speeds
        )
        room = float(free_memory())
        if memory_limit is not None:
            room = shared.bytes_of("--memory-limit", memory_limit)
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
        data, arrays = shared.read_data(
            source,
            beside=shared.others_of(asked),
            memory_limit=memory_limit,
            **{name: asked[name] for name in (*shared.READING, *shared.ARRAYS)},
        )
    except files.Unreadable as error:
        if asked["probes"] is not None or asked["readings"] is not None:
            raise
        fields = {"file": _file_fields(source, {}, (), str(error))}
        _show(as_json, fields, _file_text(fields["file"]), None)
        return
    query = Query(data, memory_limit=memory_limit, **shared.arguments_of(asked, source))
    plan = planned(query, _rates())
    about = _file_fields(source, arrays.roles, data.notes, None)
    text = f"{_file_text(about)}\n{view.data_text(data)}\n"
    _show(as_json, {**data_fields(data), "file": about}, text, plan)


def _planned(shape: Shape) -> Plan:
    """Return the plan for a problem of that shape, with the sentence that says which A it seeks."""
    name, why = by_shape(shape)
    damped = shape.rank is None and (name == "entropy" or not shape.psd)
    plan = make_plan(replace(shape, prefer=name, damped=damped), rates=_rates())
    return replace(plan, reasons=(f"prefer={name!r}: {why}", *plan.reasons))


def _refuse_without_data() -> None:
    """Refuse options that ask something of readings where there are none."""
    context = click.get_current_context()
    own = (*OWN, "psd", "rank")
    for each in context.command.params:
        given = context.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
        if given and each.name not in own:
            raise click.UsageError(f"{each.opts[0]} is about readings: it goes with a FILE")


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
        echo_json({"file": {**about, "entries": []}, "result": result_fields(result)})
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
