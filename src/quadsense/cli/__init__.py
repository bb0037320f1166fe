"""The command ``quadsense``: one subcommand per file, listed in `group`."""

from quadsense.cli.group import cli, main

__all__ = ["cli", "main"]
