"""``quadsense completion``: the script by which a shell completes commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands, options, methods and files in SHELL.

    \b
    Examples:
      quadsense completion bash >> ~/.bashrc
      quadsense completion zsh >> ~/.zshrc
      quadsense completion fish > ~/.config/fish/completions/quadsense.fish
    """
    command = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(command, {}, "quadsense", "_QUADSENSE_COMPLETE")
    click.echo(script.source_template % script.source_vars())
