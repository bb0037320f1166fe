"""Scale: what checkpoints and a cluster cost, and how often rows in files are read.

    python benchmarks/scale.py [--only checkpoint disk minimax dask killed stopped] [--seeds 3]

`checkpoint` runs every method at a size that takes some seconds, with a checkpoint every second and
without one, in turn. The share that counts is what the solve itself counts for writing
(`result.timings`), of all its time: at most 2% is wanted. Next to it are the ratio of the smallest
times of that many runs, the bytes of the folder, and the time in which the same call answers again.

`disk` writes a file of 8 GiB and solves from it with 1 GiB of memory: see `scale_disk.py`.

`minimax` proves the smallest worst error within 1% for 200,000 rows of length 40 in a file, and
counts how often each row is read on the way, opening the file and proving included.

`dask` takes sweeps of 800 MB on two Dask workers of one thread and on two threads in process, in
turn; `killed` kills one of the workers in the middle of a sweep, `stopped` stops it (SIGSTOP): see
`cluster.py`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cluster
import numpy as np
import scale_disk
from task_list import Tasks, run, verdict

import quadsense
from quadsense.files import Strip

WANTED = 0.02
"""Share of the time that a checkpoint every second may take."""


def noisy(m: int, n: int, rank: int | None = None, noise: float = 1.0) -> tuple[Any, Any]:
    """Rows, and noisy readings of a positive semidefinite matrix of trace n."""
    rng = np.random.default_rng([m, n])
    U, X = rng.standard_normal((m, n)), rng.standard_normal((n, rank or n))
    b = np.sum((U @ X) ** 2, axis=1) / (rank or n)
    return U, b + noise * rng.standard_normal(m)


TASKS: dict[str, Callable[[], tuple[tuple[Any, Any], dict[str, Any]]]] = {
    "gd": lambda: (noisy(1500, 100), {"delta": 1e-3, "method": "gd", "time_limit": 6.0}),
    "sgd": lambda: (
        noisy(1500, 100), {"delta": 1e-3, "method": "sgd", "rng": 0, "time_limit": 6.0},
    ),
    "cg": lambda: (noisy(6000, 100), {"delta": 3.4, "method": "cg"}),
    "minimax": lambda: (noisy(6000, 60), {"method": "minimax"}),
    "psd": lambda: (noisy(2500, 60), {"psd": True}),
    "low_rank": lambda: (
        noisy(700, 100, rank=3, noise=0.0),
        {"delta": 1e-3, "rank": 2, "rng": 0, "max_restarts": 4},
    ),
    "conic": lambda: (noisy(3000, 50, rank=3), {"delta": 4.0, "psd": True, "prefer": "min_trace"}),
    "least_squares": lambda: (
        noisy(4000, 60), {"delta": 2.5, "psd": True, "prefer": "least_squares"},
    ),
    "allow_violations": lambda: (
        noisy(1500, 40), {"delta": 0.5, "allow_violations": 20, "time_limit": 6.0},
    ),
}  # fmt: skip


def seconds_of(U: Any, b: Any, named: dict[str, Any]) -> tuple[float, Any]:
    """Seconds of a solve, and its result."""
    begin = time.perf_counter()
    result = quadsense.solve(U, b, **named)
    return time.perf_counter() - begin, result


def checkpoint(seeds: int) -> Iterator[str]:
    """One line per method."""
    yield f"{'checkpoint every second':22}{'seconds':>9}{'writing':>9}{'ratio':>7}{'MiB':>7}" + (
        f"{'again':>8}  at most {100 * WANTED:.0f}% wanted"
    )
    for name, make in TASKS.items():
        (U, b), named = make()
        without, with_, share, size, again = [], [], [], 0.0, 0.0
        for _ in range(seeds):
            without.append(seconds_of(U, b, named)[0])
            place = Path(tempfile.mkdtemp())
            kept = {**named, "checkpoint": place / "run", "checkpoint_every": 1.0}
            taken, result = seconds_of(U, b, kept)
            with_.append(taken)
            share.append(result.timings["checkpoint"] / taken)
            size = sum(path.stat().st_size for path in place.rglob("*.npz*")) / 2**20
            if "time_limit" not in named:  # else it would go on
                again = seconds_of(U, b, kept)[0]
            shutil.rmtree(place)
        ratio, worst = min(with_) / min(without), max(share)
        yield (
            f"{name:22}{min(without):9.2f}{100 * worst:8.2f}%{ratio:7.2f}{size:7.1f}"
            f"{again:8.2f}  {result.status:12}{verdict(worst <= WANTED)}"
        )


ERRORS: dict[str, Callable[[Any, int], Any]] = {
    "normal": lambda rng, m: rng.standard_normal(m),
    "uniform": lambda rng, m: rng.uniform(-1.0, 1.0, m),
    "Cauchy": lambda rng, m: rng.standard_cauchy(m),
    "none": lambda rng, m: np.zeros(m),
}
"""Of the readings."""

PASSES = 20
"""How often rows in files may be read for the smallest worst error."""


def minimax(seeds: int) -> Iterator[str]:
    """One line per kind of errors."""
    yield f"{'minimax from a file':22}{'passes':>9}{'seconds':>9}  at most {PASSES} passes wanted"
    m, n = 200_000, 40
    for name, errors in ERRORS.items():
        rng = np.random.default_rng(0)
        place = Path(tempfile.mkdtemp())
        U, b = noisy(m, n, noise=0.0)
        b += errors(rng, m)
        np.save(place / "U.npy", U)
        np.save(place / "b.npy", b)
        read = 0
        once = Strip.read

        def counted(strip: Strip, out: Any = None, once: Any = once) -> Any:
            nonlocal read
            read += len(strip)
            return once(strip, out)

        Strip.read = counted  # type: ignore[method-assign]
        try:
            data = quadsense.Measurements.open(place, memory_limit="64 MiB")
            opened = type(data.unit_rows.kind).__name__
            taken, result = seconds_of(data, None, {"method": "minimax"})
        finally:
            Strip.read = once  # type: ignore[method-assign]
            shutil.rmtree(place)
        kept = result.status == "optimal" and opened == "OnDisk" and read <= PASSES * m
        yield f"{name:22}{read / m:9.1f}{taken:9.2f}  {result.status:12}{verdict(kept)}"


TASKS: Tasks = {
    "checkpoint": checkpoint,
    "disk": scale_disk.disk,
    "minimax": minimax,
    "dask": cluster.dask,
    "killed": cluster.killed,
    "stopped": cluster.stopped,
}


if __name__ == "__main__":
    run(TASKS, __doc__, seeds=3)
