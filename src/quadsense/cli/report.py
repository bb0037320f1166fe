"""``quadsense report``: a result as one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import click

import quadsense
from quadsense import files
from quadsense.cli import shared
from quadsense.cli.interval import to_functional
from quadsense.cli.shared import NOT_MET
from quadsense.query.query import REFERENCE


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
    metavar=f"trace|I,J|{REFERENCE}",
    help="Find the certified range of this too, as 'interval' does; may be given again.",
)
@click.option("--no-check", is_flag=True, help="Do not check the result against FILE.")
@shared.options(shared.NAMING, shared.TOLERANCE)
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
    Data that solve was told how to read (--U, --b, --shots, --bounds) are read with the same
    options here.

    \b
    Examples:
      quadsense report data.npz result.npz -o report.html
      quadsense report data.npz result.npz -o report.html --interval trace --interval 0,1
    """
    files.check_writable(output, ".html")
    found, source = quadsense.load_result(result), files.look_at(file)
    data = shared.open_data(source, **given)
    shared.say_notes(source, data)
    asked = [to_functional(text, source) for text in intervals]
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
