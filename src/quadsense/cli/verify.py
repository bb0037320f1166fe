"""``quadsense verify``: a result's claim, recomputed from the data."""

from __future__ import annotations

import click

import quadsense
from quadsense.cli.shared import NOT_MET


@click.command()
@click.argument("file")
@click.argument("result")
@click.option("--delta", type=float, help="Check against this tolerance too.")
@click.option("--conjugate", is_flag=True, default=None, help="Rows of FILE are given as u_i*.")
@click.option("--quiet", is_flag=True, help="Print nothing; see the exit status.")
def verify(file: str, result: str, delta: float | None, conjugate: bool | None, quiet: bool) -> int:
    """Recompute the claim of RESULT from the measurements in FILE; exit 0 if true, 3 if not.

    It is checked against the tolerance of the solve and against that of FILE, where FILE has one
    and it differs; it is true only if both hold.

    \b
    Example:
      quadsense verify data.npz result.npz
    """
    claimed = quadsense.load_result(result)
    data = quadsense.Measurements.open(file, conjugate=conjugate)
    found = claimed.check(data, delta=delta)
    if quiet:
        pass
    elif claimed.certificate.kind == "none":
        click.echo(f"no claim: the result's status is {claimed.status}")
    else:
        aside = claimed.certificate.set_aside.size
        rest = f", {aside} set aside" if aside else ""
        verdict = "true" if found.true else "FALSE"
        click.echo(f"{verdict}: {claimed.status}, {data.m - aside} measurements{rest}")
        click.echo("".join(f"  {check}\n" for check in found.checks), nl=False)
    return 0 if found.true else NOT_MET
