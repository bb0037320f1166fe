"""The options that say what is measured and asked of A, which several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

import quadsense
from quadsense import files
from quadsense.cli.method_options import MethodChoice
from quadsense.cli.shared import to_rank, to_ridge, to_trace
from quadsense.files.sources import APART, RESULT, Source, to_vector
from quadsense.measurements.cluster import OnCluster
from quadsense.measurements.shards import Shards
from quadsense.query.query import DEFAULTS, LIMITS, PARAMETERS, STARTS, flag_of
from quadsense.query.request import option_names
from quadsense.system.memory import room_for_rows, to_bytes

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
    """A decorator that gives a command these options, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([each for group in groups for each in group]):
            command = option(command)
        return command

    return decorate


KEYWORDS = ("rng", "max_iter", *LIMITS, "checkpoint", "checkpoint_every")
"""Names of `RUN`."""

READING = ("probes", "conjugate", "delta", "rtol", "sigma", "confidence")
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
    confidence: float = 0.95,
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
    delta, rtol, bounds, sigma, shots, confidence
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
    if given and given != ["--delta"]:
        for name in ("lo", "hi", "delta"):
            arrays.pop(name, None)
    if bounds is not None:
        arrays["lo"], arrays["hi"] = (values_of(end, source, "bounds") for end in bounds)
    elif "b" not in arrays and given and given != ["--delta"]:
        raise ValueError(f"{given[0]} is about readings, and {source.path} holds none: use --b")
    elif sigma is not None:
        delta = quadsense.delta_from_sigma(sigma, int(np.size(arrays["b"])), confidence)
    elif shots is not None:
        counts, total = arrays["b"], values_of(shots, source, "shots")
        arrays["lo"], arrays["hi"] = quadsense.bounds_from_counts(counts, total, confidence)
        arrays["b"] = counts / total
    data = quadsense.Measurements.from_arrays(
        source.path,
        arrays,
        delta=delta,
        rtol=rtol,
        conjugate=conjugate,
        weights=None if weights is None else values_of(weights, source, "weights"),
    )
    return data, arrays


def bytes_of(option: str, value: str) -> float:
    """A number of bytes, or an error that names its option."""
    try:
        return to_bytes(value)
    except ValueError as error:
        raise ValueError(str(error).replace("memory_limit", option, 1)) from None


def loaded_by(client: Any, rows: Any, source: Source) -> OnCluster:
    """Rows of files as the workers of a cluster load them."""
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
    """A number, or a vector by reference."""
    try:
        return float(text)
    except ValueError:
        return to_vector(files.array_from(text, source, role), scalar=True)


def matrix_of(text: str, source: Source, role: str) -> Any:
    """A number, an earlier result, or a matrix by reference."""
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
    """What ``--constraint`` says, as `solve` takes it."""
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
    """A vector of any shape as one, complex or not."""
    dense = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
    return dense.reshape(-1)
