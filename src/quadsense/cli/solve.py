"""``quadsense solve``: the matrix, its certificate and what is written of them."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
)
from quadsense.system.watch import Interrupted
from quadsense.view.json_fields import result_fields
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
    """A client, closed at the end with whatever was started for it; None where none is asked for.

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
            preload=["quadsense.cli.solve"],
        ) as own,
        distributed.Client(own, direct_to_workers=True) as client,
    ):
        yield client


def _say(client: Any, quiet: bool) -> None:
    """Where the cluster is, and where it can be watched."""
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
