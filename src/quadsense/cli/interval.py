"""``quadsense interval``: the certified range of what is asked of A, over all that fit."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

import quadsense
from quadsense import files
from quadsense.cli import shared
from quadsense.cli.shared import EXIT, echo_json, to_rank, to_trace
from quadsense.ranges.ranges import Interval, NothingFits
from quadsense.system.watch import Interrupted
from quadsense.view import text as view
from quadsense.view.json_fields import range_fields
from quadsense.vocabulary import Status

PAIR = re.compile(r"(-?[0-9]+),(-?[0-9]+)")


@click.command()
@click.argument("file", type=click.Path())
@click.argument("what", nargs=-1)
@shared.options(shared.NAMING, shared.TOLERANCE, shared.SET)
@click.option(
    "--gap",
    type=float,
    default=0.01,
    show_default=True,
    help="Share of its width by which an interval may be too wide.",
)
@shared.options((shared.option("time_limit"),))
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/command.md).")
def interval(
    file: str,
    what: tuple[str, ...],
    psd: bool,
    rank: str | None,
    trace: str | None,
    constraints: tuple[tuple[str, str, str], ...],
    gap: float,
    time_limit: float | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Bound what all matrices that meet the measurements in FILE have in common, with proof.

    WHAT is 'trace', an entry I,J (from 0), or an array: a matrix C for <C, A>, a vector v for
    v* A v; an array of FILE by its name, or another file, or FILE::NAME. The trace by default.
    Exit status 4 where nothing fits. At the time limit, and after Ctrl-C, ends are as far out as
    was proved by then.

    \b
    Examples:
      quadsense interval data.npz --delta 0.01
      quadsense interval data.npz trace 0,0 0,1 --delta 0.01 --psd
      quadsense interval data.mat target.npy --delta 0.01 --json
    """
    source = files.look_at(file)
    data = shared.open_data(source, **given)
    shared.say_notes(source, data)
    asked, interrupted = what or ("trace",), False
    try:
        found = quadsense.interval(
            data,
            C=[to_functional(each, source) for each in asked],
            psd=psd,
            rank=to_rank(rank),
            trace=to_trace(trace),
            constraints=shared.constraints_of(constraints, source),
            gap=gap,
            time_limit=time_limit,
            progress=not as_json and sys.stderr.isatty(),
        )
    except Interrupted as interrupt:
        found, interrupted = interrupt.result, True
    except NothingFits as error:
        if as_json:
            echo_json({"fits": False, "message": str(error), "intervals": []})
        else:
            click.echo(str(error))
        return EXIT[Status.INFEASIBLE]
    if as_json:
        pairs = zip(asked, found, strict=True)
        listed = [range_fields(name, each) for name, each in pairs]
        echo_json({"fits": True, "message": "", "intervals": listed})
        return EXIT[Status.INTERRUPTED] if interrupted else 0
    rows = [
        [name, f"{each.lower:.9g}", f"{each.upper:.9g}", _remark(each)]
        for name, each in zip(asked, found, strict=True)
    ]
    click.echo(view.table(["what", "lower", "upper", "remark"], rows))
    return EXIT[Status.INTERRUPTED] if interrupted else 0


def to_functional(text: str, source: files.Source) -> Any:
    """What one WHAT stands for, as `quadsense.interval` takes it."""
    if text == "trace":
        return "trace"
    pair = PAIR.fullmatch(text)
    if pair:
        return int(pair[1]), int(pair[2])
    found = files.array_from(text, source, "C")
    return shared.to_vector_kept(found) if 1 in found.shape or found.ndim == 1 else found


def _remark(found: Interval) -> str:
    """What the ends take for granted, and that a rank was not looked at."""
    parts = [
        f"{end} end {condition}"
        for end in ("lower", "upper")
        if (condition := getattr(found, f"{end}_condition"))
    ]
    return "; ".join([*parts, *(["over all ranks"] if found.relaxed else [])])
