"""Rows that are never formed: steps against dense rows and today's tools, sizes beyond any array.

``python benchmarks/probes.py [--only NAME ...]``. Each line says what was asked and whether it was
kept; memory is the peak of the whole process, so that each task runs in one of its own.

- ``differences``: 1,000 nodes, 15,000 pairs, rank 3: one descent step of `low_rank`, at least 50
  times as fast as on the rows made dense, in the same run.
- ``kronecker``: 200,000 random product rows of 10 qubits (n = 1024), planted rank 2: found, with a
  peak below 2 GB.
- ``implicit``: planted rank 2, ``--nodes`` of them (10,000,000: A has 10^14 entries), three pairs a
  node in a grid: all intervals met, with a peak below 4 GB.
- ``coded_diffraction``, ``small_diffraction``, ``photograph``: images behind masks and Fourier
  transforms, compared with L-BFGS and an amplitude flow (see diffraction.py).
- ``noisy``: a photograph behind five masks and a detector with bounded errors, compared with RAAR.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from diffraction import coded_diffraction, noisy, photograph, small_diffraction
from task_list import say_threads, verdict

import quadsense
from quadsense.measurements.arrays import Dense
from quadsense.measurements.sensing import Sensing
from quadsense.methods.low_rank.passes import evaluate
from quadsense.methods.low_rank.program import prepare
from quadsense.methods.low_rank.steps import quasi_newton_step


def quickest(work: Callable[[], object], times: int) -> float:
    """Seconds of the quickest of several runs."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


def peak() -> float:
    """The most memory that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def differences(options: argparse.Namespace) -> Iterator[str]:
    """One descent step, on pairs and on the rows made dense."""
    n, m, rank = 1000, 15_000, 3
    rng = np.random.default_rng(0)
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(m)])
    kind = quadsense.probes.differences(pairs, n)
    X = rng.standard_normal((n, 2))
    b = np.sum(kind.times(X) ** 2, axis=1) / 2.0
    Y, delta = rng.standard_normal((rank, n)), np.full(m, 1e-3)
    np.ones(2_000_000)  # what the allocator has seen of any longer program: it keeps small pieces
    dense, seconds = Sensing(Dense(kind.block(0, m))), []
    # The same step, and as it would be on dense rows: with products in single precision.
    for rows, single, times in ((Sensing(kind), False, 200), (dense, False, 20), (dense, True, 20)):
        program = prepare(rows, b, delta, rank, low_precision=single)
        point = evaluate(program, Y, 0.0)
        seconds.append(
            quickest(lambda p=program, o=point: quasi_newton_step(p, o, None, 0.0, ()), times)
        )
    ratio = seconds[1] / seconds[0]
    yield (
        f"differences: {n} nodes, {m} pairs, one step {seconds[0] * 1e3:.2f} ms, on dense rows "
        f"{seconds[1] * 1e3:.1f} ms ({seconds[2] * 1e3:.1f} in single precision): {ratio:.0f} "
        f"times as fast, wanted 50: {verdict(ratio >= 50)}"
    )


def kronecker(options: argparse.Namespace) -> Iterator[str]:
    """Product rows of ten qubits."""
    m, rng = 200_000, np.random.default_rng(0)
    factors = rng.standard_normal((10, m, 2))
    factors /= np.linalg.norm(factors, axis=2)[:, :, None]
    U = quadsense.probes.kronecker(factors)
    X = rng.standard_normal((U.n, 2))
    b = np.sum(U.times(X) ** 2, axis=1)
    begin = time.perf_counter()
    result = quadsense.solve(U, b, delta=1e-6 * float(b.max()), rank=2, prefer="any")
    seconds = time.perf_counter() - begin
    error = np.linalg.norm(result.A - X @ X.T) / np.linalg.norm(X @ X.T)
    yield (
        f"kronecker: {m} rows of length {U.n}, {result.status} in {seconds:.1f} s, relative error "
        f"{error:.1e}, peak {peak():.2f} GB, wanted below 1e-4 and 2: "
        f"{verdict(bool(result.met) and error < 1e-4 and peak() < 2.0)}"
    )


def implicit(options: argparse.Namespace) -> Iterator[str]:
    """A network that no matrix could hold."""
    side = round(options.nodes**0.5)
    n = side * side
    rng = np.random.default_rng(0)
    place = np.arange(n, dtype=np.int32)
    pairs = np.concatenate(
        [np.stack([place, (place + step) % n], axis=1) for step in (1, side, side + 1)]
    ).astype(np.int32)
    U = quadsense.probes.differences(pairs, n)
    del pairs
    X = rng.standard_normal((2, n))
    b = np.zeros(U.m)
    for x in X:
        b += U.times(x[:, None])[:, 0] ** 2
    del X
    begin = time.perf_counter()
    result = quadsense.solve(U, b, delta=1.0, rank=3, prefer="any")
    seconds = time.perf_counter() - begin
    yield (
        f"implicit: n = {n}, {U.m} pairs, {result.status} in {seconds:.0f} s and {result.n_iter} "
        f"steps, peak {peak():.2f} GB, wanted 4: {verdict(bool(result.met) and peak() < 4.0)}"
    )


TASKS = {
    "differences": differences,
    "kronecker": kronecker,
    "implicit": implicit,
    "coded_diffraction": lambda options: coded_diffraction(options.seeds),
    "small_diffraction": lambda options: small_diffraction(options.seeds),
    "photograph": lambda options: photograph(options.seeds),
    "noisy": lambda options: noisy(options.seeds),
}


def main() -> None:
    """Run each task in a process of its own, in the untouched environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    if len(options.only) > 1:
        for name in options.only:
            sizes = ["--nodes", str(options.nodes), "--seeds", str(options.seeds)]
            subprocess.run([sys.executable, __file__, "--only", name, *sizes], check=True)
        return
    say_threads()
    for name in options.only:
        for line in TASKS[name](options):
            print(line, flush=True)


if __name__ == "__main__":
    main()
