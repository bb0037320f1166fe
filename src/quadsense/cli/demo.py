"""``quadsense demo``: every method on a problem that suits it."""

from __future__ import annotations

import click

from quadsense.cli.shared import NOT_MET
from quadsense.demo import run_demo


@click.command()
@click.option("--seed", type=int, default=0, show_default=True)
def demo(seed: int) -> int:
    """Solve a seeded problem of each kind with every method and verify each answer.

    \b
    Example:
      quadsense demo --seed 1
    """
    click.echo("Compiling (the first run only) and solving ...", err=True)
    text, failed = run_demo(seed)
    click.echo(text)
    return NOT_MET if failed else 0
