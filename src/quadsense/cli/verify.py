"""``quadsense verify``: a result's claim, recomputed from the data."""

from __future__ import annotations

from typing import Any

import click

import quadsense
from quadsense import files
from quadsense.cli import shared
from quadsense.cli.shared import NOT_MET, echo_json
from quadsense.view.fields import verify_fields


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
