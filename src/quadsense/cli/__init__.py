"""The command ``quadsense``: its subcommands, and what becomes of errors."""

import json
import sys

import click
import numpy as np
from click.shell_completion import get_completion_class

import quadsense
from quadsense.cli.data import demo, generate, inspect
from quadsense.cli.results import certificate, interval, report, schema, solve, verify
from quadsense.cli.shared import EXIT, MAX_WIDTH, in_options
from quadsense.query.query import SYNONYMS, flag_of
from quadsense.vocabulary import Status

__all__ = ["cli", "main"]


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


def main() -> None:
    """Run the command: bad input is one line and status 2, an interrupt 130.

    With ``--json`` errors are JSON too, on the standard output.
    """
    try:
        status = cli.main(prog_name="quadsense", standalone_mode=False)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            error = _suggesting(error)
        if _wants_json():
            _echo_error(error.format_message(), error.exit_code)
        else:
            error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("quadsense: interrupted", err=True)
        status = EXIT[Status.INTERRUPTED]
    except (ValueError, MemoryError, OSError) as error:
        if isinstance(error, np.linalg.LinAlgError | BrokenPipeError):
            raise
        message, status = in_options(str(error)), 2
        if _wants_json():
            _echo_error(message, status)
        else:
            click.echo(f"quadsense: {message}", err=True)
    sys.exit(status or 0)


def _suggesting(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with the option that other tools call so, where there is one."""
    meant = SYNONYMS.get(error.option_name.lstrip("-").replace("-", "_"))
    if meant is None:
        return error
    said = f"No such option '{error.option_name}'. Did you mean '{flag_of(meant)}'?"
    return click.NoSuchOption(error.option_name, said, ctx=error.ctx)


def _wants_json() -> bool:
    return "--json" in sys.argv[1:]


def _echo_error(message: str, status: int) -> None:
    click.echo(json.dumps({"error": {"message": message, "exit_status": status}}))


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH},
    epilog="Exit status: 0 met, 2 bad input, 3 not met (verify: claim false), 4 proved "
    "infeasible, 130 interrupted.",
)
@click.version_option(quadsense.__version__)
def cli() -> None:
    """Find a matrix A, of any rank, with |u_i* A u_i - b_i| <= delta for every measurement i.

    \b
    Examples:
      quadsense demo
      quadsense generate --kind gaussian --n 50 --m 600 --seed 0 -o data.npz
      quadsense inspect data.npz
      quadsense solve data.npz --delta 0.01 -o result.npz
      quadsense verify data.npz result.npz
      quadsense report data.npz result.npz -o report.html
    """


for command in (
    certificate, completion, demo, generate, inspect, interval, report, schema, solve, verify
):  # fmt: skip
    cli.add_command(command)
