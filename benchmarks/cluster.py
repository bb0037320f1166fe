"""What `scale.py` measures on a Dask cluster of two workers: sweeps, killed and stopped workers."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from task_list import verdict

from quadsense import files
from quadsense.cli.results import own_cluster
from quadsense.measurements.arrays import Dense
from quadsense.measurements.cluster import OnCluster
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.shards import Shards
from quadsense.system.threads import one_blas_thread

M, N = 200_000, 512
"""Rows and columns: 800 MB in double precision."""

WANTED_RATIO = 1.15
"""Most of a sweep on two workers of one thread, in sweeps in process on two threads."""

WANTED_STOPPED = 90.0
"""Seconds within which a run goes on whose worker is stopped: twice those after which the command
takes a worker for lost, four in which it might still end by itself, its shards' reload and a sweep,
with room for slow machines."""


@contextmanager
def rows_in_a_file() -> Iterator[tuple[Any, files.Strips]]:
    """Rows in memory, and the same in a file."""
    U = np.random.default_rng(0).standard_normal((M, N))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "U.npy"
        np.save(path, U)
        yield U, files.Strips(files.strips_of(path, "U", U.shape, U.dtype))


def loaded(client: Any, strips: files.Strips) -> tuple[float, Sensing]:
    """Seconds until the workers have the rows, and these."""
    begin = time.perf_counter()
    kind = OnCluster(client, Shards.of_files(strips))
    return time.perf_counter() - begin, Sensing(kind)


def sweep(F: Sensing) -> float:
    """Seconds of ``F(A)`` and ``F*(y)``, as every step of cg takes them."""
    A = np.eye(N)
    begin = time.perf_counter()
    with one_blas_thread():
        F.adjoint(F.forward(A) - 1.0)
    return time.perf_counter() - begin


def dask(seeds: int) -> Iterator[str]:
    """In process and on two workers, in turn."""
    from threadpoolctl import threadpool_limits

    yield f"{'a sweep of cg':22}{'process':>9}{'dask':>9}{'ratio':>7}{'loading':>9}{'parts':>7}" + (
        f"  at most {WANTED_RATIO} wanted; n = {N}, m = {M:,}, 2 workers"
    )
    with rows_in_a_file() as (U, strips), own_cluster(2) as client:
        here = Sensing(Dense(U))
        taken, there = loaded(client, strips)
        with threadpool_limits(2):  # the threads that a user of two cores has
            pairs = [(sweep(here), sweep(there)) for _ in range(max(3, seeds))]
        alone, shared = (min(each) for each in zip(*pairs, strict=True))
        parts = len(there.kind.given)
    yield (
        f"{'':22}{alone:9.2f}{shared:9.2f}{shared / alone:7.2f}{taken:9.2f}{parts:7}  "
        f"{verdict(shared <= WANTED_RATIO * alone)}"
    )


def _while_sweeping(F: Sensing, after: float, act: Callable[[], None]) -> float:
    """Seconds of a sweep in which something happens."""
    happens = threading.Timer(after, act)
    happens.start()
    taken = sweep(F)
    happens.join()
    return taken


def _one_worker(client: Any) -> int:
    return int(next(iter(client.run(os.getpid).values())))


def _alone(strips: files.Strips) -> tuple[float, float]:
    """Seconds in which a worker that is alone loads half of the parts, and of a sweep of all."""
    parts = Shards.of_files(strips)
    half = -(-len(parts) // 2)
    with own_cluster(1) as client:
        for some in (parts[half:][:1], parts[:half]):  # the first time it imports what it needs
            begin = time.perf_counter()
            OnCluster(client, Shards(some, (sum(map(len, some)), N), parts.dtype))
            reload = time.perf_counter() - begin
        _, F = loaded(client, strips)
        return reload, min(sweep(F) for _ in range(3))


def killed(seeds: int) -> Iterator[str]:
    """A worker killed in a sweep of two, and the sweeps after that.

    The cost is what that sweep took longer than the quickest of three before it. The bound is its
    parts' reload and one sweep, as the one that is left takes them: both measured with a worker
    that is alone. That one has to do the lost half of both products after its own, which takes as
    long as a sweep of two workers: what else there is between that and the bound is for Dask.
    """
    yield (
        f"{'a killed worker':22}{'sweep':>7}{'with it':>9}{'cost':>7}{'reload':>8}{'alone':>7}"
        + ("  at most its parts' reload and a sweep of one worker alone wanted; sweeps after it")
    )
    with rows_in_a_file() as (_, strips):
        reload, alone = _alone(strips)
        with own_cluster(2) as client:
            _, F = loaded(client, strips)
            for seed in range(seeds):
                usual = min(sweep(F) for _ in range(3))
                worker = _one_worker(client)
                when = usual * (seed + 1) / (seeds + 1)  # early, in the middle, late
                with_it = _while_sweeping(F, when, lambda pid=worker: os.kill(pid, signal.SIGKILL))
                cost = with_it - usual
                then = [sweep(F) for _ in range(5)]
                yield (
                    f"{'':22}{usual:7.2f}{with_it:9.2f}{cost:7.2f}{reload:8.2f}{alone:7.2f}  "
                    f"{verdict(cost <= reload + alone):7}{' '.join(f'{each:.2f}' for each in then)}"
                )


def stopped(seeds: int) -> Iterator[str]:
    """A worker that is stopped in the middle of a sweep, and never heard of again."""
    yield f"{'a stopped worker':22}{'sweep':>9}{'with it':>9}  at most {WANTED_STOPPED} s wanted"
    with rows_in_a_file() as (_, strips), own_cluster(2) as client:
        _, F = loaded(client, strips)
        usual = min(sweep(F) for _ in range(3))
        worker = _one_worker(client)
        with_it = _while_sweeping(F, usual / 2, lambda: os.kill(worker, signal.SIGSTOP))
    yield f"{'':22}{usual:9.2f}{with_it:9.2f}  {verdict(with_it <= WANTED_STOPPED)}"
