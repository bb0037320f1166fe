"""The part of the command that follows from `METHODS`: names, summaries, options of each."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from quadsense.methods import METHODS
from quadsense.query.request import RENAMED_METHODS


class MethodChoice(click.ParamType):  # type: ignore[type-arg]
    """A method's name, or "auto": of those that there are when it is asked."""

    name = "method"

    def _choice(self) -> click.Choice[str]:
        return click.Choice(["auto", *METHODS])

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The name, or an error that lists all."""
        if value in RENAMED_METHODS:
            new = RENAMED_METHODS[value]
            click.echo(f"--method {value} is now called {new}: write --method {new}", err=True)
            value = new
        return self._choice().convert(value, param, ctx)

    def get_metavar(self, *args: Any, **kwargs: Any) -> str | None:
        """All names."""
        return self._choice().get_metavar(*args, **kwargs)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[Any]:
        """All names that begin so."""
        return self._choice().shell_complete(ctx, param, incomplete)


class MethodCommand(click.Command):
    """A command with an option for each that some method takes, and a list of the methods."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own parameters, then those of the methods; help comes last."""
        own = super().get_params(ctx)
        return [*own[:-1], *method_parameters(), *own[-1:]]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The methods, each in a line."""
        with formatter.section("Methods"):
            kinds = [METHODS.traits(name) for name in METHODS]
            formatter.write_dl([(kind.name, kind.summary) for kind in kinds])
        super().format_epilog(ctx, formatter)


def method_parameters() -> list[click.Parameter]:
    """An option of the command for each option of a method."""
    takers: dict[str, list[str]] = {}
    described: dict[str, tuple[Any, str]] = {}
    for name in METHODS:
        known = METHODS.traits(name).options
        hints = get_type_hints(known)
        for entry in fields(known):
            takers.setdefault(entry.name, []).append(name)
            described[entry.name] = hints[entry.name], entry.metadata.get("help", "")
    return [
        click.Option(
            [f"--{key.replace('_', '-')}"],
            help=f"{', '.join(names)}: {described[key][1]}.",
            **_form(described[key][0]),
        )
        for key, names in takers.items()
    ]


def _form(hint: Any) -> dict[str, Any]:
    """How a parameter is written: a truth value by its name alone; not given, it is None."""
    kind = _parameter_type(hint)
    return {"is_flag": True, "default": None} if kind is bool else {"type": kind}


def _parameter_type(hint: Any) -> Any:
    """The type of a parameter of the command, from that of a field; None stands for its default."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    if get_origin(kinds[0]) is Literal:
        return click.Choice(get_args(kinds[0]))
    return kinds[0]
