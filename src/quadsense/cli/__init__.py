"""The command ``quadsense``: one subcommand a file, listed in `group`."""

from quadsense.cli.group import cli, main

__all__ = ["cli", "main"]
