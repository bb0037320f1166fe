"""What the commands share: their options, the data that these name, exit codes, JSON."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import numpy as np

import quadsense
from quadsense import files
from quadsense.files.sources import APART, RESULT, Source, to_vector
from quadsense.measurements.cluster import OnCluster
from quadsense.measurements.shards import Shards
from quadsense.methods import METHODS
from quadsense.query import request
from quadsense.query.query import DEFAULTS, LIMITS, PARAMETERS, STARTS, check_rank, flag_of
from quadsense.query.request import RENAMED_METHODS, option_names
from quadsense.result import words
from quadsense.result.result import Result
from quadsense.system.machine import room_for_rows, to_bytes
from quadsense.vocabulary import Status

# --- texts, outputs and exit codes ---------------------------------------------------------------


EXIT = {
    Status.MET: 0,
    Status.OPTIMAL: 0,
    Status.INFEASIBLE: 4,
    Status.INTERRUPTED: 130,
}
"""Exit status of `solve`; every other status is `NOT_MET`."""

MAX_WIDTH = 100
"""Columns of what is printed, at most."""

NOT_MET = 3
"""Exit status where nothing was decided, and of `verify` where the claim is false."""


def to_rank(text: str | None) -> int | tuple[int, int] | Literal["auto"] | None:
    """Return what ``--rank`` says, as `solve` takes it."""
    if text is None:
        return None
    if text == "auto":
        return "auto"
    try:
        parts = [int(part) for part in text.split(",")]
        if len(parts) in (1, 2):
            return parts[0] if len(parts) == 1 else (parts[0], parts[1])
    except ValueError:
        pass
    raise ValueError(f"--rank must be a whole number or 'auto', or two as in 2,1, got {text!r}")


def to_trace(text: str | None) -> float | tuple[float, float] | None:
    """Return what ``--trace`` says, as `solve` takes it."""
    if text is None:
        return None
    try:
        parts = [float(part) for part in text.split(",")]
        if len(parts) in (1, 2):
            return parts[0] if len(parts) == 1 else (parts[0], parts[1])
    except ValueError:
        pass
    raise ValueError(f"--trace must be a number, or two as in 0.9,1.1, got {text!r}")


def to_ridge(text: str) -> float | Literal["auto"]:
    """Return what ``--ridge`` says, as `solve` takes it."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--ridge must be a number or 'auto', got {text!r}") from None


def to_order(text: str | None, n: int) -> int | None:
    """Return the rank as the plan has it, 0 where it may grow; refuse what `solve` would refuse."""
    rank = to_rank(text)
    check_rank(rank, n)
    return request.to_rank(rank)[0]


def check_outputs(inputs: Sequence[str | None], output: str | None, dense: str | None) -> None:
    """Refuse, before any work, outputs that cannot be written or would destroy something."""
    given = [each.partition(files.APART)[0] for each in inputs if each]
    taken = {Path(each).resolve(): "the input" for each in given}
    for name, path in (("-o", output), ("--dense", dense)):
        if path is None:
            continue
        if name == "-o":
            files.check_writable(path)
        else:
            files.writer_of(path, "A", several=False)
        where = Path(path).resolve()
        if where in taken:
            raise ValueError(f"{name} {path} would overwrite {taken[where]}: choose another name")
        taken[where] = f"the file of {name}"


def in_terminal(result: Result, *, verbose: bool) -> str:
    """Return the summary of a result, as wide as the terminal is and colored where it can be."""
    width = min(max(shutil.get_terminal_size().columns, words.WIDTH // 2), MAX_WIDTH)
    colors = {"good": "green", "bad": "red", "open": "yellow"}
    head = colors[words.kind(result.verdict)]

    def paint(label: str, text: str) -> str:
        if label == "label":
            return click.style(text, dim=True)
        return click.style(text, fg=head, bold=True) if label == "verdict" else text

    return result_text(result, width=width, verbose=verbose, paint=paint, told=in_options)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a text table; a column whose cells all start with a digit is aligned right."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    right = [all(cell[:1].isdigit() for cell in column[1:] if cell) for column in columns]
    lines = []
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def result_text(
    result: Result,
    *,
    width: int = words.WIDTH,
    verbose: bool = False,
    paint: Callable[[str, str], str] | None = None,
    told: Callable[[str], str] = str,
) -> str:
    """Return the facts of a result and the method that found it.

    Parameters
    ----------
    result : Result
    width : int
        Of the lines, in columns.
    verbose : bool
        Whether to add what each fact means and the reasons for the method.
    paint, told : callable, optional
        As in `words.summary`.
    """
    seconds = f"{sum(result.timings.values()):.3g} s"
    found = words.found_by(result.plan, result.n_iter, seconds, verbose)
    return words.summary(
        result.verdict, width=width, more=(found,), notes=verbose, paint=paint, told=told
    )


def in_options(message: str) -> str:
    """Return a message with arguments as options: ``psd=True`` becomes ``--psd``."""
    names = sorted({*PARAMETERS, *option_names()}, key=len, reverse=True)

    def option(match: re.Match[str]) -> str:
        name, value = match.group(1), match.group(2).strip("'\"")
        return flag_of(name) if value == "True" else f"{flag_of(name)} {value}".rstrip()

    pattern = rf"\b({'|'.join(map(re.escape, names))})=('[^']*'|\"[^\"]*\"|[\w.]*)"
    message = re.sub(pattern, option, message)
    for limit in LIMITS:
        message = message.replace(f"raise {limit}", f"raise {flag_of(limit)}")
    return message.replace("result.interval((i, j))", "quadsense interval FILE i,j")


def echo_json(fields: Any) -> None:
    """Print JSON as its standard has it, on one line: see docs/command.md."""
    click.echo(json.dumps(strict(fields), allow_nan=False))


def strict(value: Any) -> Any:
    """Return the value with what JSON lacks: NaN is null, infinities are "inf" and "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return strict(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


# --- options of methods --------------------------------------------------------------------------


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
        """Return all names."""
        return self._choice().get_metavar(*args, **kwargs)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[Any]:
        """Return all names that begin so."""
        return self._choice().shell_complete(ctx, param, incomplete)


class MethodCommand(click.Command):
    """A command with an option for each that some method takes, and a list of the methods."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters, then those of the methods; help comes last."""
        own = super().get_params(ctx)
        return [*own[:-1], *method_parameters(), *own[-1:]]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the methods, each in a line."""
        with formatter.section("Methods"):
            kinds = [METHODS.traits(name) for name in METHODS]
            formatter.write_dl([(kind.name, kind.summary) for kind in kinds])
        super().format_epilog(ctx, formatter)


def method_parameters() -> list[click.Parameter]:
    """Return an option of the command for each option of a method."""
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
    """Return how a parameter is written: a truth value by its name alone; not given, it is None."""
    kind = _parameter_type(hint)
    return {"is_flag": True, "default": None} if kind is bool else {"type": kind}


def _parameter_type(hint: Any) -> Any:
    """Return the type of a parameter of the command, from that of a field; None is its default."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    if get_origin(kinds[0]) is Literal:
        return click.Choice(get_args(kinds[0]))
    return kinds[0]


# --- options and data of a problem ---------------------------------------------------------------


Option = Callable[..., Any]


def option(name: str, *spelled: str, **other: Any) -> Option:
    """Return the option of the command for a parameter of `solve`, as its declaration says.

    Parameters
    ----------
    name : str
        Of the parameter.
    *spelled : str
        The option's own spelling and name, where they differ.
    **other
        What is different in the command, as `click.option` takes it.
    """
    declared, default = PARAMETERS[name], DEFAULTS[name]
    kind: dict[str, Any] = {"type": declared.kind, "metavar": declared.metavar}
    if declared.kind is bool:
        kind = {"is_flag": True}
    elif isinstance(declared.kind, tuple):
        kind = {"type": click.Choice(declared.kind)}
    if default is not None and declared.kind is not bool and default != ():
        kind |= {"default": default, "show_default": True}
    return click.option(
        *(spelled or (flag_of(name), name)), **{**kind, "help": declared.help, **other}
    )


NAMING = (
    click.option("--U", "probes", metavar="NAME", help="Which array, or columns u*, is U."),
    option("b", "--b", "readings"),
    option("conjugate", default=None),
)
"""Which arrays are meant."""

TOLERANCE = (
    option("delta"),
    option("rtol"),
    option("bounds", nargs=2),
    option("sigma"),
    option("shots"),
    option("confidence"),
    option("missing"),
)
"""How far readings may be off."""

SET = (
    option("psd"),
    option("rank"),
    option("trace"),
    option("constraints", nargs=3, multiple=True),
)
"""Which A count."""

WHICH = (
    option("method", type=MethodChoice()),
    option("prefer"),
    option("prior"),
    option("ridge"),
    option("weights"),
    option("slack"),
    option("allow_violations"),
    option("start"),
)
"""Which of them is returned, and by which method."""

RUN = (
    option("rng", default=0, show_default=True),
    *map(option, ("max_iter", *LIMITS)),
    option("checkpoint", type=click.Path()),
    option("checkpoint_every"),
)
"""What a solve may take, and where it is written down: keywords of `solve` as they are."""


def options(*groups: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    """Return a decorator that gives a command these options, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([each for group in groups for each in group]):
            command = option(command)
        return command

    return decorate


KEYWORDS = ("rng", "max_iter", *LIMITS, "checkpoint", "checkpoint_every")
"""Names of `RUN`."""

READING = ("probes", "conjugate", "delta", "rtol", "sigma", "confidence", "missing")
"""Options of `NAMING` and `TOLERANCE` that name neither an array nor a file of b or its ends."""

ARRAYS = ("readings", "bounds", "shots", "weights")
"""Options that do."""


def others_of(asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what `SET` and `WHICH` ask for by name, in addition to U and b."""
    named = (asked["prior"], asked["start"], *(each[0] for each in asked["constraints"]))
    return tuple(each for each in named if each is not None)


def arguments_of(asked: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Return what `SET` and `WHICH`, except ``--weights``, say, as `quadsense.solve` takes it.

    Parameters
    ----------
    asked : dict
        Every option by name, those of methods included.
    source : Source
        The data file.
    """
    prior, start = asked["prior"], asked["start"]
    if start is not None and start not in STARTS:
        start = matrix_of(start, source, "start")
    methods = {name: asked[name] for name in option_names() if asked.get(name) is not None}
    schedule = asked.get("schedule")
    return {
        "psd": asked["psd"] or None,
        "rank": to_rank(asked["rank"]),
        "trace": to_trace(asked["trace"]),
        "constraints": constraints_of(asked["constraints"], source),
        "method": asked["method"],
        "prefer": asked["prefer"],
        "prior": None if prior is None else matrix_of(prior, source, "prior"),
        "ridge": to_ridge(asked["ridge"]),
        "slack": asked["slack"],
        "allow_violations": asked["allow_violations"],
        "start": start,
        **({} if schedule is None else {"schedule": schedule}),
        "options": methods,
    }


def open_data(source: Source, **given: Any) -> quadsense.Measurements:
    """Return the measurements that a command is about; the options are those of `read_data`."""
    return read_data(source, **given)[0]


def read_data(
    source: Source,
    *,
    probes: str | None,
    readings: str | None,
    conjugate: bool | None,
    delta: float | None = None,
    rtol: float = 0.0,
    bounds: tuple[str, str] | None = None,
    sigma: float | None = None,
    shots: str | None = None,
    confidence: Any = DEFAULTS["confidence"],
    missing: Any = "raise",
    weights: str | None = None,
    beside: tuple[str, ...] = (),
    memory_limit: str | None = None,
    client: Any = None,
) -> tuple[quadsense.Measurements, files.Arrays]:
    """Return the measurements that a command is about, and what was read for them.

    Parameters
    ----------
    source : Source
        The data file.
    probes, readings, conjugate
        See `NAMING`.
    delta, rtol, bounds, sigma, shots, confidence, missing
        See `TOLERANCE`.
    weights : str, optional
        A number, an array of the file, or another file.
    beside : tuple of str
        What else is asked for by name: of a table no columns of U.
    memory_limit : str, optional
        As in `Measurements.open`.
    client : distributed.Client, optional
        Whose workers are to load the rows.
    """
    ways = {"--delta": delta, "--bounds": bounds, "--sigma": sigma, "--shots": shots}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} do not go together: give one of them")
    asked = (*(bounds or ()), shots or "", weights or "", *beside)
    room = room_for_rows(memory_limit) if client is None else 0.0
    beside_file = files.Given(bounds=bounds is not None)
    arrays = files.measured_in(source, probes, readings, tuple(asked), room, beside_file)
    if client is not None:
        arrays["U"] = loaded_by(client, arrays["U"], source)
    if bounds is not None:
        arrays.pop("delta", None)
    if bounds is not None:
        arrays["lo"], arrays["hi"] = (values_of(end, source, "bounds") for end in bounds)
    elif "b" not in arrays and given and given != ["--delta"]:
        raise ValueError(f"{given[0]} is about readings, and {source.path} holds none: use --b")
    data = quadsense.Measurements.from_arrays(
        source.path,
        arrays,
        delta=delta,
        rtol=rtol,
        conjugate=conjugate,
        weights=None if weights is None else values_of(weights, source, "weights"),
        sigma=sigma,
        shots=None if shots is None else values_of(shots, source, "shots"),
        confidence=confidence,
        missing=missing,
    )
    return data, arrays


def bytes_of(option: str, value: str) -> float:
    """Return a number of bytes, or an error that names its option."""
    try:
        return to_bytes(value)
    except ValueError as error:
        raise ValueError(str(error).replace("memory_limit", option, 1)) from None


def loaded_by(client: Any, rows: Any, source: Source) -> OnCluster:
    """Return rows of files as the workers of a cluster load them."""
    if not isinstance(rows, files.Strips):
        raise ValueError(
            f"workers load dense rows, and U of {source.path} is sparse: solve it without a "
            "cluster, or write it as .npy, HDF5 or Zarr"
        )
    return OnCluster(client, Shards.of_files(rows))


def say_notes(source: Source, data: quadsense.Measurements) -> None:
    """Print to stderr what was guessed of the file."""
    for note in data.notes:
        click.echo(f"{source.path}: {note}", err=True)


def values_of(text: str, source: Source, role: str) -> Any:
    """Return a number, or a vector by reference."""
    try:
        return float(text)
    except ValueError:
        return to_vector(files.array_from(text, source, role), scalar=True)


def matrix_of(text: str, source: Source, role: str) -> Any:
    """Return a number, an earlier result, or a matrix by reference."""
    try:
        return float(text)
    except ValueError:
        pass
    if APART not in text and Path(text).is_file() and text.lower().endswith(".npz"):
        found = files.look_at(text)
        if found.metadata.get("format") == RESULT:
            return quadsense.load_result(text)
    return files.array_from(text, source, role)


def constraints_of(given: tuple[tuple[str, str, str], ...], source: Source) -> list[Any]:
    """Return what ``--constraint`` says, as `solve` takes it."""
    found = []
    for C, lo, hi in given:
        try:
            ends = float(lo), float(hi)
        except ValueError:
            raise click.UsageError(
                f"--constraint takes a matrix and two numbers, got {lo!r} and {hi!r}"
            ) from None
        matrix = files.array_from(C, source, "C")
        if getattr(matrix, "ndim", 2) == 1 or 1 in matrix.shape != (1, 1):
            v = to_vector_kept(matrix)
            matrix = (v[:, None], np.ones(1))  # v* A v
        found.append((matrix, *ends))
    return found


def to_vector_kept(values: Any) -> Any:
    """Return a vector of any shape as one, complex or not."""
    dense = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
    return dense.reshape(-1)
