"""A Dask cluster for a command: one that is there, or one of this machine's own processes."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

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
            preload=["quadsense.cli.cluster"],
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

    A terminal sends it to all processes. The command hears it, and lets its workers finish what
    the answer needs.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
