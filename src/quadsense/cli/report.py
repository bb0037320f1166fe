"""``quadsense report``: a result as one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import click

import quadsense
from quadsense import files
from quadsense.cli import question
from quadsense.cli.shared import NOT_MET


@click.command()
@click.argument("file", type=click.Path())
@click.argument("result", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), required=True, help="Write the report here (.html)."
)
@click.option("--title", help="Shown above the verdict.")
@click.option(
    "--interval",
    "intervals",
    multiple=True,
    metavar="trace|I,J",
    help="Find the certified range of the trace or of A[I, J] too; may be given again.",
)
@click.option("--no-check", is_flag=True, help="Do not check the result against FILE.")
@question.options(question.NAMING, question.TOLERANCE)
@click.option("--open", "show", is_flag=True, help="Show it in the browser.")
@click.option("--quiet", is_flag=True, help="Print nothing; see the exit status.")
def report(
    file: str,
    result: str,
    output: str,
    title: str | None,
    intervals: tuple[str, ...],
    no_check: bool,
    show: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Write all there is to say of RESULT, found for the measurements in FILE, as one HTML file.

    Verdict, certificate, pictures, suspects, plan, and how to ask the same again; nothing in it
    needs the network. All that the result states is checked against FILE: exit 3 if it is false.

    \b
    Examples:
      quadsense report data.npz result.npz -o report.html
      quadsense report data.npz result.npz -o report.html --interval trace --interval 0,1
    """
    files.check_writable(output, ".html")
    asked = [_asked(text) for text in intervals]
    found = quadsense.load_result(result)
    data = question.open_data(files.look_at(file), **given)
    page = found.report(
        data,
        intervals=found.interval(asked, data=data) if asked else None,
        title=title,
        check=not no_check,
        names=(Path(file).name, Path(result).name),
    )
    page.write_html(output)
    false = page.checked is not None and not page.checked.true
    if not quiet:
        click.echo(f"wrote {output}: {found.status}")
    if false:
        click.echo(f"quadsense: {file} does not bear out what {result} states", err=True)
    if show:
        webbrowser.open(Path(output).resolve().as_uri())
    return NOT_MET if false else 0


def _asked(text: str) -> Any:
    """What ``--interval`` says, as `Result.interval` takes it."""
    if text == "trace":
        return text
    try:
        i, j = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--interval must be trace, or I,J as in 0,1, got {text!r}") from None
    return (i, j)
