"""Sweeps at sizes that fit, compared with the model of docs/scaling.md.

    python benchmarks/scaling_model.py [--quick] [--json docs/scaling.json]

Each line is a sweep, ``F(A)`` and ``F*(y)``, of rows in memory, in a file, and on Dask clusters of
one and two workers, all with one thread of BLAS: the least of three. The rates that the model is
given come from the same run: a product of large matrices, a file read again (from the system's
cache), a matrix sent from worker to worker, and tasks that do nothing. Last is what workers sent
each other, in what the model allows. The points of docs/scaling.png are what ``--json`` writes;
``make figures`` draws them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported

import numpy as np

from quadsense import files
from quadsense.cli.results import own_cluster
from quadsense.measurements.arrays import Dense
from quadsense.measurements.cluster import OnCluster
from quadsense.measurements.parted import OnDisk
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.shards import Shards
from quadsense.query.cluster_cost import ClusterCost
from quadsense.system.machine import Rates, measure_rates
from quadsense.system.threads import one_blas_thread

ENTRIES = 2**25
"""Of U, 256 MiB, where n varies."""

RUNS = 3
"""Of each sweep, of which the shortest counts."""

WAYS = ("memory", "file", "1 worker", "2 workers")


def least(call: Callable[[], Any], runs: int = RUNS) -> float:
    """Seconds of the shortest of some runs."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


@contextmanager
def clients() -> Iterator[dict[int, Any]]:
    """Clients of clusters of one and of two processes of one thread."""
    with own_cluster(1) as first, own_cluster(2) as second:
        yield {1: first, 2: second}


def sent(client: Any, size: int = 2**26) -> float:
    """Bytes per second from worker to worker."""
    here, there = client.nthreads()
    array = client.submit(np.ones, size // 8, workers=[here], pure=False)
    client.submit(len, array, workers=[here], pure=False).result()  # it is there
    taken = least(lambda: client.submit(len, array, workers=[there], pure=False).result(), 1)
    return size / taken


def task_seconds(client: Any, count: int = 1000) -> float:
    """Seconds of a task that does nothing, among many."""
    return least(lambda: client.gather(client.map(abs, range(count), pure=False))) / count


def sweep(F: Sensing, n: int) -> float:
    """Seconds of ``F(A)`` and ``F*(y)``."""
    A = np.eye(n)
    with one_blas_thread(share=False):
        return least(lambda: F.adjoint(F.forward(A) - 1.0))


def moved(client: Any) -> float:
    """Bytes that workers have had from workers so far."""

    def incoming(dask_worker: Any) -> float:
        return float(sum(each["total"] for each in dask_worker.transfer_incoming_log))

    return float(sum(client.run(incoming).values()))


def rates_now() -> Rates:
    """Of one thread: others may use this machine too."""
    with one_blas_thread(share=False):
        return measure_rates()


def measured(n: int, m: int, place: Path, own: dict[int, Any], rates: dict[str, Any]) -> Any:
    """A point: seconds by each way, and what the model says of them."""
    path = place / f"{n}-{m}" / "U.npy"
    path.parent.mkdir()
    U = np.lib.format.open_memmap(path, "w+", np.float64, (m, n))
    rng = np.random.default_rng([n, m])
    for first in range(0, m, 2**16):
        U[first : first + 2**16] = rng.standard_normal((min(2**16, m - first), n))
    U.flush()
    strips = files.Strips(files.strips_of(path, "U", U.shape, U.dtype))
    rows, seen = np.array(U), [rates_now()]
    disk = rows.nbytes / least(strips.load)
    seconds = {"memory": sweep(Sensing(Dense(rows)), n)}
    seen.append(rates_now())
    seconds["file"] = sweep(Sensing(OnDisk(strips)), n)
    found: dict[str, Any] = {"n": n, "m": m, "disk": disk}
    for workers, client in own.items():
        seen.append(rates_now())
        F = Sensing(OnCluster(client, Shards.of_files(strips)))
        before = moved(client)
        seconds[WAYS[1 + workers]] = sweep(F, n)
        found[f"moved by {workers}"] = (moved(client) - before) / RUNS
        del F
    rates["rates"] = max(seen, key=lambda each: each.flops)
    found["flops"] = rates["rates"].flops
    said = [ClusterCost(m, n, workers, disk=disk, **rates) for workers in own]
    found["parts"] = said[0].parts
    found["seconds"] = seconds
    found["model"] = {
        "memory": said[0].computing,
        "file": said[0].reading,
        **{f"{each.workers} worker{'s' * (each.workers > 1)}": each.seconds for each in said},
    }
    found["model moved by 2"] = said[1].worker_bytes
    path.unlink()
    return found


def sizes(quick: bool) -> list[tuple[int, int]]:
    """n and m: n at one size of U, and m at one n."""
    if quick:
        return [(64, 2**16)]
    return [(n, ENTRIES // n) for n in (64, 128, 256, 512, 1024)] + [
        (256, m) for m in (2**15, 2**16, 2**18, 2**19)
    ]


def main() -> None:
    """Print a line a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small size")
    parser.add_argument("--json", type=Path, help="write the points here")
    asked = parser.parse_args()
    points = []
    with tempfile.TemporaryDirectory() as folder, clients() as own:
        os.environ["QUADSENSE_CACHE"] = folder  # rates of one thread, not the user's
        speeds = {"network": max(sent(own[2]) for _ in range(3)), "task": task_seconds(own[2])}
        print(
            f"worker to worker {speeds['network'] / 1e9:.2f} GB/s, per task "
            f"{1e3 * speeds['task']:.2f} ms; seconds of a sweep / of the model"
        )
        print(f"{'n':>5}{'m':>9}{'parts':>6}" + "".join(f"{way:>16}" for way in WAYS) + "   moved")
        for n, m in sizes(asked.quick):
            point = measured(n, m, Path(folder), own, dict(speeds))
            points.append(point)
            pairs = ((point["seconds"][way], point["model"][way]) for way in WAYS)
            share = point["moved by 2"] / (point["model moved by 2"] or float("nan"))
            print(
                f"{n:5}{m:9}{point['parts']:6}"
                + "".join(f"{taken:8.2f} /{said:6.2f}" for taken, said in pairs)
                + f"{share:8.2f}",
                flush=True,
            )
    if asked.json is not None:
        asked.json.write_text(json.dumps({**speeds, "points": points}, indent=1) + "\n")


if __name__ == "__main__":
    main()
