"""``quadsense schema``: what the commands print with ``--json``, as JSON Schema."""

from __future__ import annotations

from importlib.resources import files

import click

NAMES = ("inspect", "interval", "solve", "verify")


@click.command()
@click.argument("name", metavar="COMMAND", type=click.Choice(NAMES))
def schema(name: str) -> None:
    """Print the JSON Schema of what COMMAND prints with --json.

    \b
    Example:
      quadsense schema solve > solve.schema.json
    """
    click.echo(files("quadsense").joinpath("schemas", f"{name}.json").read_text("utf-8"), nl=False)
