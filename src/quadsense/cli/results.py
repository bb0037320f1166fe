"""Commands about results: ``quadsense solve``, ``interval``, ``verify``, ``report``, ``schema``."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import quadsense
from quadsense import files
from quadsense.cli import shared
from quadsense.cli.shared import (
    EXIT,
    NOT_MET,
    MethodCommand,
    check_outputs,
    echo_json,
    in_terminal,
    table,
    to_rank,
    to_trace,
)
from quadsense.query.query import REFERENCE
from quadsense.ranges import Interval, NothingFits
from quadsense.system.watch import Interrupted
from quadsense.typing import DEFAULT_GAP
from quadsense.view.json_fields import (
    PRINTED,
    range_fields,
    result_fields,
    schema_of,
    verify_fields,
)
from quadsense.vocabulary import Status


@click.command(cls=MethodCommand)
@click.argument("file", type=click.Path())
@shared.options(shared.NAMING, shared.TOLERANCE, shared.SET, shared.WHICH, shared.RUN)
@click.option(
    "--scheduler", metavar="ADDRESS", help="Compute on the Dask cluster of this scheduler."
)
@click.option("--workers", type=int, metavar="N", help="Compute on N Dask workers, started here.")
@click.option("-o", "--output", type=click.Path(), help="Write the result here (.npz).")
@click.option(
    "--dense", type=click.Path(), help="Also write A here, dense: .npy, .mat, .h5, .csv, ..."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/command.md).")
@click.option(
    "--verbose", is_flag=True, help="Also print what each fact means, and why this method."
)
@click.option("--quiet", is_flag=True, help="No progress bar, no report; see the exit status.")
def solve(
    file: str,
    scheduler: str | None,
    workers: int | None,
    output: str | None,
    dense: str | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    readings: str | None,
    bounds: tuple[str, str] | None,
    shots: str | None,
    weights: str | None,
    **asked: Any,
) -> int:
    """Find a matrix that meets every measurement in FILE (arrays U and b, or U, lo and hi).

    FILE is .npz, .npy, .mat, HDF5, Zarr, Parquet or CSV. Without a tolerance, given here or in
    FILE, A is the least-squares fit. Ctrl-C and SIGTERM stop at the best matrix so far and write
    it. With --checkpoint, the same command goes on where one that was stopped or killed was.

    \b
    Examples:
      quadsense solve data.npz --delta 0.01 -o result.npz
      quadsense solve data.npz                       # no tolerance: least squares
      quadsense solve data.npz --prefer minimax      # the smallest worst error
      quadsense solve data.mat --U probes --b readings --delta 0.01 --dense A.mat
      quadsense solve U.npy --b b.npy --sigma 0.003
      quadsense solve counts.csv --shots 1000 --psd --trace 1
      quadsense solve data.npz --delta 0.01 --psd --prefer min_trace
      quadsense solve data.h5 --delta 0.01 --prior A0.npy               # pulled towards A0
      quadsense solve data.h5 --delta 0.01 --prior A0.npy --prefer nearest
      quadsense solve data.npz --delta 0.01 --constraint C.npy 0 1
      quadsense solve data.npz --delta 0.01 --slack squares
      quadsense solve data.npz --delta 0.01 --method sgd --batch-size 32 --seed 1 --json
      quadsense solve data.npz --delta 0.1 --method gd --schedule paper --dense A.npy
      quadsense solve data.npz --delta 0.01 --checkpoint run --checkpoint-every 600 -o result.npz
      quadsense solve more.npz --delta 0.01 --start result.npz
      quadsense solve "run7/part-*.h5" --delta 0.01 --memory-limit "1 GiB"
      quadsense solve "run7/part-*.h5" --delta 0.01 --scheduler tcp://10.0.0.1:8786
    """
    others = shared.others_of(asked)
    check_outputs([file, readings, *(bounds or ()), shots, weights, *others], output, dense)
    memory_limit = asked["memory_limit"]
    if memory_limit is not None:
        shared.bytes_of("--memory-limit", memory_limit)  # refuses what is none
    source = files.look_at(file)
    client = click.get_current_context().with_resource(cluster(scheduler, workers, quiet))
    data = shared.open_data(
        source,
        readings=readings,
        bounds=bounds,
        shots=shots,
        weights=weights,
        beside=others,
        memory_limit=memory_limit,
        client=client,
        **{name: asked[name] for name in shared.READING},
    )
    if not quiet:
        shared.say_notes(source, data)
    interrupted = False
    arguments = shared.arguments_of(asked, source)
    try:
        result = quadsense.solve(
            data,
            progress=not quiet and sys.stderr.isatty(),
            **{name: asked[name] for name in shared.KEYWORDS},
            **arguments.pop("options"),
            **arguments,
        )
    except MemoryError as error:
        raise MemoryError(str(error).replace("memory_limit", "--memory-limit")) from None
    except KeyboardInterrupt as interrupt:
        if not isinstance(interrupt, Interrupted):
            raise
        result, interrupted = interrupt.result, True
    if output is not None:
        result.save(output)
    if dense is not None:
        result.save_matrix(dense)
    if as_json:
        echo_json(result_fields(result))
    elif not quiet:
        click.echo(in_terminal(result, verbose=verbose))
    return EXIT[Status.INTERRUPTED] if interrupted else EXIT.get(result.status, NOT_MET)


# --- interval -------------------------------------------------------------------------------------


PAIR = re.compile(r"(-?[0-9]+),(-?[0-9]+)")


@click.command()
@click.argument("file", type=click.Path())
@click.argument("what", nargs=-1)
@shared.options(shared.NAMING, shared.TOLERANCE, shared.SET)
@click.option(
    "--gap",
    type=float,
    default=DEFAULT_GAP,
    show_default=True,
    help="Share of its width by which an interval may be too wide.",
)
@shared.options((shared.option("time_limit"),))
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/command.md).")
def interval(
    file: str,
    what: tuple[str, ...],
    psd: bool,
    rank: str | None,
    trace: str | None,
    constraints: tuple[tuple[str, str, str], ...],
    gap: float,
    time_limit: float | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Bound what all matrices that meet the measurements in FILE have in common, with proof.

    WHAT is 'trace', an entry I,J (from 0), or an array: a matrix C for <C, A>, a vector v for
    v* A v; an array of FILE by its name, or another file, or FILE::NAME. The trace by default.
    Exit status 4 where nothing fits. At the time limit, and after Ctrl-C, ends are as far out as
    was proved by then.

    \b
    Examples:
      quadsense interval data.npz --delta 0.01
      quadsense interval data.npz trace 0,0 0,1 --delta 0.01 --psd
      quadsense interval data.mat target.npy --delta 0.01 --json
    """
    source = files.look_at(file)
    data = shared.open_data(source, **given)
    shared.say_notes(source, data)
    asked, interrupted = what or ("trace",), False
    try:
        found = quadsense.interval(
            data,
            C=[to_functional(each, source) for each in asked],
            psd=psd,
            rank=to_rank(rank),
            trace=to_trace(trace),
            constraints=shared.constraints_of(constraints, source),
            gap=gap,
            time_limit=time_limit,
            progress=not as_json and sys.stderr.isatty(),
        )
    except Interrupted as interrupt:
        found, interrupted = interrupt.result, True
    except NothingFits as error:
        if as_json:
            echo_json({"fits": False, "message": str(error), "intervals": []})
        else:
            click.echo(str(error))
        return EXIT[Status.INFEASIBLE]
    if as_json:
        pairs = zip(asked, found, strict=True)
        listed = [range_fields(name, each) for name, each in pairs]
        echo_json({"fits": True, "message": "", "intervals": listed})
        return EXIT[Status.INTERRUPTED] if interrupted else 0
    rows = [
        [name, f"{each.lower:.9g}", f"{each.upper:.9g}", _remark(each)]
        for name, each in zip(asked, found, strict=True)
    ]
    click.echo(table(["what", "lower", "upper", "remark"], rows))
    return EXIT[Status.INTERRUPTED] if interrupted else 0


def to_functional(text: str, source: files.Source) -> Any:
    """Return what one WHAT stands for, as `quadsense.interval` takes it."""
    if text == "trace":
        return "trace"
    pair = PAIR.fullmatch(text)
    if pair:
        return int(pair[1]), int(pair[2])
    found = files.array_from(text, source, "C")
    return shared.to_vector_kept(found) if 1 in found.shape or found.ndim == 1 else found


def _remark(found: Interval) -> str:
    """Return what the ends take for granted, and that a rank was not looked at."""
    parts = [
        f"{end} end {condition}"
        for end in ("lower", "upper")
        if (condition := getattr(found, f"{end}_condition"))
    ]
    return "; ".join([*parts, *(["over all ranks"] if found.relaxed else [])])


# --- verify ---------------------------------------------------------------------------------------


@click.command()
@click.argument("file", type=click.Path())
@click.argument("result", type=click.Path())
@shared.options(shared.NAMING, shared.TOLERANCE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/command.md).")
@click.option("--quiet", is_flag=True, help="Print nothing; see the exit status.")
def verify(
    file: str,
    result: str,
    delta: float | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Recompute the claim of RESULT from the measurements in FILE; exit 0 if true, 3 if not.

    It is checked against the tolerance of the solve and against that of FILE, or the one given
    here, where there is one and it differs; it is true only if both hold. Data that solve was told
    how to read (--U, --b, --shots, --bounds) are read with the same options here.

    \b
    Examples:
      quadsense verify data.npz result.npz
      quadsense verify data.mat result.npz --json
    """
    claimed = quadsense.load_result(result)
    source = files.look_at(file)
    data = shared.open_data(source, **given)
    found = claimed.check(data, delta=delta)
    if quiet:
        pass
    elif as_json:
        echo_json(verify_fields(claimed, data, found))
    elif claimed.certificate.kind == "none":
        click.echo(f"no claim: the result's status is {claimed.status}")
    else:
        aside = claimed.certificate.set_aside.size
        rest = f", {aside} set aside" if aside else ""
        verdict = "true" if found.true else "FALSE"
        click.echo(f"{verdict}: {claimed.status}, {data.m - aside} measurements{rest}")
        click.echo("".join(f"  {check}\n" for check in found.checks), nl=False)
    return 0 if found.true else NOT_MET


# --- certificate ---------------------------------------------------------------------------------


@click.command()
@click.argument("file", type=click.Path())
@click.argument("result", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), required=True, help="Write the certificate here (.json)."
)
@click.option("--objective", is_flag=True, help="Claim the bounds on what was preferred.")
@click.option(
    "--interval",
    "what",
    metavar=f"trace|I,J|{REFERENCE}",
    help="Claim the certified range of this, as 'interval' finds it.",
)
@shared.options(shared.NAMING, shared.TOLERANCE)
@click.option("--quiet", is_flag=True, help="Print nothing; see the exit status.")
def certificate(
    file: str,
    result: str,
    output: str,
    objective: bool,
    what: str | None,
    quiet: bool,
    **given: Any,
) -> int:
    """Write the claim of RESULT, found for the measurements in FILE, for others to check.

    The file is read by quadsense_check.py, one file that needs Python alone (CERTIFICATE.md). What
    exact arithmetic does not show is not written: exit 3.

    \b
    Examples:
      quadsense certificate data.npz result.npz -o certificate.json
      python -m quadsense_check certificate.json
    """
    from quadsense import certificates  # rarely needed
    from quadsense.proofs.exact import CannotCertify

    files.check_writable(output, ".json")
    found, source = quadsense.load_result(result), files.look_at(file)
    data = shared.open_data(source, **given)
    shared.say_notes(source, data)
    try:
        if what is None:
            held = certificates.fields_of(found.certificate, data, objective)
        else:
            bounds = found.interval(to_functional(what, source), data=data)
            own = replace(found.certificate, columns=None).own_data(data, None, {})
            held = certificates.fields_of_range(bounds, own)
        certificates.write(output, held)
    except CannotCertify as error:
        click.echo(f"quadsense: {error}", err=True)
        return NOT_MET
    if not quiet:
        click.echo(f"wrote {output}: {held['claim']}")
    return 0


# --- report --------------------------------------------------------------------------------------


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


# --- schema ---------------------------------------------------------------------------------------


@click.command()
@click.argument("name", metavar="COMMAND", type=click.Choice(tuple(PRINTED)))
def schema(name: str) -> None:
    """Print the JSON Schema of what COMMAND prints with --json.

    \b
    Example:
      quadsense schema solve > solve.schema.json
    """
    click.echo(json.dumps(schema_of(name), indent=1))


# --- a Dask cluster: one that is there, or one of this machine's own processes -------------------


LOST_AFTER = "30s"
"""Of a cluster of our own: after so long, twice at most, a worker that says nothing is replaced."""

SETTINGS = {
    "distributed.scheduler.worker-saturation": float("inf"),  # neighbours are loaded by one worker
    "distributed.scheduler.worker-ttl": LOST_AFTER,
    "distributed.worker.profile.enabled": False,  # it looks at the threads all the time
    # Dask has workers give memory back at once: blocks of rows would get theirs anew each time.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**28,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
}
"""Dask's, of a cluster of our own."""

CONNECTING = 10.0
"""Seconds in which a scheduler must answer."""


@contextmanager
def cluster(scheduler: str | None, workers: int | None, quiet: bool) -> Iterator[Any]:
    """Yield a client, closed at the end with what was started for it; None where none is asked for.

    Parameters
    ----------
    scheduler : str or None
        Address of a scheduler.
    workers : int or None
        Processes to start here, of one thread each.
    quiet : bool
        Whether not to say where it can be watched.
    """
    if scheduler is not None and workers is not None:
        raise click.UsageError("--scheduler and --workers do not go together: give one of them")
    if scheduler is None and workers is None:
        yield None
        return
    try:
        import distributed
    except ImportError:
        raise ValueError(
            "--scheduler and --workers need Dask: pip install 'quadsense[dask]'"
        ) from None
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=CONNECTING)
        except ValueError as error:  # of what is no address
            raise ValueError(
                f"--scheduler must be an address such as tcp://10.0.0.1:8786, got {scheduler!r} "
                f"({error})"
            ) from None
        except OSError as error:
            raise ValueError(f"no Dask scheduler answers at {scheduler} ({error})") from None
        with client:
            _say(client, quiet)
            yield client
        return
    if workers is None or workers < 1:
        raise click.UsageError(f"--workers must be a positive number, got {workers}")
    with own_cluster(workers) as client:
        _say(client, quiet)
        yield client


@contextmanager
def own_cluster(workers: int) -> Iterator[Any]:
    """Return a client of `workers` processes on this machine, each with one thread."""
    import dask
    import distributed

    with (
        dask.config.set(SETTINGS),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.ERROR,
            preload=[__name__],
        ) as own,
        distributed.Client(own, direct_to_workers=True) as client,
    ):
        yield client


def _say(client: Any, quiet: bool) -> None:
    """Say where the cluster is, and where it can be watched."""
    if not quiet:
        count = len(client.nthreads())
        click.echo(
            f"Dask {client.scheduler.address}: {count} worker{'s' if count != 1 else ''}, "
            f"{client.dashboard_link}",
            err=True,
        )


def dask_setup(worker: object) -> None:
    """Ignore Ctrl-C in a worker, which Dask starts with this module as a preload.

    A terminal sends it to all processes. The command catches it, and lets its workers finish what
    the answer needs.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
