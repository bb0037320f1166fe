"""Rows in a file that is larger than the memory they may take: speed and peak memory.

Each measurement is a process of its own, so that its peak of memory is its own; rates in memory
come from the same rows, a tenth of them, in the same run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from task_list import verdict

import quadsense
from quadsense.files import Strip

SIZE, N = 8 * 2**30, 512
"""Bytes of the file, of float32, and length of a row."""

LIMIT, PEAK = "1 GiB", 1.5 * 2**30
"""What is asked for, and what the process may take in all, Python and its libraries included."""

SHARE = 0.7
"""Of the rate in memory, or of that of reading, that is wanted."""


def disk(seeds: int) -> Iterator[str]:
    """Least squares, the met certificate and low rank from 8 GiB with 1 GiB of memory."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make(place, SIZE)
        make(place / "tenth", SIZE // 10)
        rows, bytes_ = SIZE // (4 * N), float(SIZE)
        yield f"{SIZE / 2**30:.0f} GiB of float32, n = {N}, m = {rows:,}, memory_limit {LIMIT}"
        plain = child("read", place)
        yield f"{'reading alone':28}{bytes_ / plain['seconds'] / 2**20:10.0f} MiB/s"
        for work in ("cg", "verify"):
            here, there = child(work, place / "tenth", memory=True), child(work, place)
            rates = (rows // 10) / here["seconds"], rows / there["seconds"]
            share = rates[1] / rates[0]
            yield (
                f"{work:10}{rates[0]:12.0f} rows/s in memory{rates[1]:12.0f} from disk"
                f"{share:8.2f} (at least {SHARE})  {verdict(share >= SHARE)}"
            )
            yield peak(there)
        found = child("low_rank", place)
        rate = found["bytes"] / found["seconds"]
        share = rate * plain["seconds"] / bytes_
        yield (
            f"{'low_rank':10}{rate / 2**20:12.0f} MiB/s{share:8.2f} of reading alone (at least "
            f"{SHARE})  {verdict(share >= SHARE)}"
        )
        yield peak(found)


def peak(found: dict[str, Any]) -> str:
    """The line of a process's memory."""
    return (
        f"{'':10}peak {found['peak'] / 2**30:.2f} GiB (at most {PEAK / 2**30:.1f})  "
        f"{verdict(found['peak'] <= PEAK)}"
    )


def make(place: Path, size: int) -> None:
    """A file of rows, and readings of a matrix of rank 2 with some noise."""
    place.mkdir(exist_ok=True)
    rng = np.random.default_rng(size)
    X = rng.standard_normal((N, 2))
    rows, b = size // (4 * N), []
    U = np.lib.format.open_memmap(place / "U.npy", "w+", np.float32, (rows, N))
    for first in range(0, rows, 2**16):
        last = min(first + 2**16, rows)
        block = rng.standard_normal((last - first, N), dtype=np.float32)
        U[first:last] = block
        b.append(np.sum((block.astype(np.float64) @ X) ** 2, axis=1))
        U.flush()
    np.save(place / "b.npy", np.concatenate(b))
    np.save(place / "X.npy", X)


def child(work: str, place: Path, memory: bool = False) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    arguments = [sys.executable, __file__, work, str(place), "memory" if memory else "disk"]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(work: str, place: Path, memory: bool) -> dict[str, float]:
    """What a child does: seconds of one step or pass, and the peak of memory."""
    reads = counted()
    limit = None if memory else LIMIT
    begin = time.perf_counter()
    data = quadsense.Measurements.open(
        place / "U.npy", b=str(place / "b.npy"), delta=1e-2, memory_limit=limit
    )
    found: dict[str, float] = {}
    if work == "read":
        kind: Any = data.unit_rows.kind
        begin = time.perf_counter()
        for strip in kind.strips:
            strip.read()
        found["seconds"] = time.perf_counter() - begin
    elif work == "cg":  # one step more, and all that surrounds them is the same
        times = []
        for steps in (1, 2):
            begin = time.perf_counter()
            quadsense.solve(data, method="cg", max_iter=steps, memory_limit=limit)
            times.append(time.perf_counter() - begin)
        found["seconds"] = times[1] - times[0]
    elif work == "verify":
        X = np.load(place / "X.npy")
        result = quadsense.solve(data, start=X @ X.T, prefer="any", memory_limit=limit)
        assert result.met, result.message
        begin = time.perf_counter()
        assert result.certificate.verify(data)
        found["seconds"] = time.perf_counter() - begin
    else:
        reads.clear()
        begin = time.perf_counter()
        result = quadsense.solve(data, rank=2, prefer="any", rng=0, memory_limit=limit)
        found["seconds"], found["bytes"] = time.perf_counter() - begin, float(sum(reads))
        assert result.met, result.message
    found["peak"] = highest()
    return found


def highest() -> float:
    """Most bytes that this process has had; `getrusage` would count those of its parent too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * float(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def counted() -> list[int]:
    """Bytes of every strip that is read from now on."""
    sizes: list[int] = []
    plain = Strip.read

    def read(self: Strip, out: Any = None) -> Any:
        rows = plain(self, out)
        sizes.append(rows.nbytes)
        return rows

    Strip.read = read  # type: ignore[method-assign]
    return sizes


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "memory")))
