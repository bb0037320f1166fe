"""Compare quadsense with what its users would otherwise call.

    python benchmarks/peers.py [--quick] [--works consistent ...] [--rounds 7]

Every solver gets the same data and the same tolerance. A peer is called as its own users would call
it, with the loosest stopping tolerance of its own that meets delta (found before the clock starts),
with one and with two BLAS threads, of which the better counts. quadsense runs in the untouched
environment: no thread variable set and no limit changed. All runs of a work are interleaved in one
process. "quadsense" is the call that asks for what the peers are asked for (any fit within delta,
the smallest worst error); the default call, which also chooses among the fits, is timed next to it.
The threads of OpenBLAS spin for a tenth of a second after their last product and would take a core
from whichever solver comes next, so each clocked run follows a rest and runs of its own that are
not clocked (except for runs so long that neither matters). The table shows medians, ratios of
medians, and what was met: the largest residual over delta, recomputed from the answer. A peer that
breaks delta is marked so.

To add a work, add a line in `WORKS`; to add a solver, a function in `peer_solvers.py` and a line in
its `SOLVERS`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import scipy.linalg  # noqa: F401  (its BLAS is its own: limits reach only what is loaded)
from peer_solvers import (
    SOLVERS,
    Array,
    Data,
    Solver,
    gaussian,
    low_rank,
    measure,
    noisy,
    noisy_low_rank,
    positive_low_rank,
)
from task_list import say_threads
from threadpoolctl import threadpool_limits
from tqdm import tqdm


@dataclass(frozen=True)
class Work:
    """A row of the table."""

    group: str
    name: str
    make: Callable[[], Data]
    quick: bool = False


WORKS = [
    Work("consistent", "n=100 m=1000 1e-2", partial(gaussian, 100, 1000, 1e-2), quick=True),
    Work("consistent", "n=200 m=2000 1e-2", partial(gaussian, 200, 2000, 1e-2), quick=True),
    Work("consistent", "n=300 m=6000 1e-2", partial(gaussian, 300, 6000, 1e-2)),
    Work("consistent", "n=500 m=2000 1e-2", partial(gaussian, 500, 2000, 1e-2), quick=True),
    Work("consistent", "n=100 m=4800 1e-2", partial(gaussian, 100, 4800, 1e-2), quick=True),
    Work("consistent", "n=100 m=5049 1e-3", partial(gaussian, 100, 5049, 1e-3)),
    Work("minimax", "n=12 m=300", partial(noisy, 12, 300, 1e-2), quick=True),
    Work("minimax", "n=40 m=4000", partial(noisy, 40, 4000, 1e-2)),
    Work("psd", "n=15 m=80 1e-3", partial(gaussian, 15, 80, 1e-3), quick=True),
    Work("psd", "n=50 m=600 1e-3", partial(gaussian, 50, 600, 1e-3)),
    Work("psd", "n=300 m=15000 1e-2 full rank", partial(gaussian, 300, 15000, 1e-2)),
    Work("psd", "n=300 m=15000 1e-2 rank 5", partial(positive_low_rank, 300, 15000, 5, 1e-2)),
    Work("psd", "n=300 m=15000 1e-2 rank 40", partial(positive_low_rank, 300, 15000, 40, 1e-2)),
    Work(
        "psd",
        "n=300 m=15000 rank 5 noise .01 .012",
        partial(noisy_low_rank, 300, 15000, 5, 0.01, 0.012),
    ),
    Work("low rank", "n=80 m=1600 r=3", partial(low_rank, 80, 1600, 3, 1e-6), quick=True),
    Work("low rank", "n=500 m=15000 r=5", partial(low_rank, 500, 15000, 5, 1e-6)),
]


# --- the clock


@dataclass
class Entry:
    """A solver on a work: its tolerance, what it met, and its times by number of threads.

    None stands for the untouched environment.
    """

    solver: Solver
    tolerance: float
    ratio: float
    times: dict[int | None, list[float]] = field(default_factory=dict)

    @property
    def best(self) -> tuple[float, int | None]:
        """Return the best median and its number of threads."""
        medians = [(float(np.median(times)), threads) for threads, times in self.times.items()]
        return min(medians, key=lambda pair: pair[0])


def ratio_of(data: Data, A: Array) -> float:
    """Largest residual over delta (over the noise where there is no delta)."""
    return float(np.max(np.abs(measure(data.U, A) - data.b)) / data.value)


def calibrate(solver: Solver, data: Data) -> tuple[float, float]:
    """The loosest tolerance that meets delta, and the ratio met with it."""
    tolerance, ratio = solver.tolerances[0], np.inf
    for tolerance in solver.tolerances:
        ratio = ratio_of(data, solver.run(data, tolerance))
        if ratio <= 1.0 or not np.isfinite(data.delta):
            break
    if solver.refine and ratio <= 1.0:
        for looser in tolerance * 10.0 ** (np.arange(7, 0, -1) / 8):
            tried = ratio_of(data, solver.run(data, looser))
            if tried <= 1.0:
                return float(looser), tried
    return tolerance, ratio


REST = 0.12
"""Seconds until the threads of the solver before no longer spin (measured: 0.106)."""

WARM = 0.05
"""Seconds of runs before the clocked one."""

LONG = 0.5
"""Seconds of a run that a cold start does not change."""


def clock(solver: Solver, data: Data, tolerance: float, threads: int | None) -> float:
    """Return the seconds of a run, warmed up if it is short."""
    time.sleep(REST)
    with threadpool_limits(threads):
        begin = time.perf_counter()
        while True:
            warm = time.perf_counter() - begin >= WARM
            began = time.perf_counter()
            solver.run(data, tolerance)
            seconds = time.perf_counter() - began
            if warm or seconds > LONG:
                return seconds


def compare(work: Work, rounds: int, patience: float, bar: tqdm[None]) -> list[Entry]:
    """Calibrate every solver, then take all its runs in turn with the others'."""
    data = work.make()
    entries = []
    for solver in SOLVERS[work.group]:
        bar.set_description(f"{work.name}: {solver.name}")
        if solver.limit(data) > patience:
            bar.write(
                f"{work.name}: {solver.name} left out: about {solver.limit(data):.0f} s per run"
            )
            bar.update(2 * rounds + 1)
            continue
        with threadpool_limits(1):
            tolerance, ratio = calibrate(solver, data)
        entries.append(Entry(solver, tolerance, ratio))
        bar.update()
    for turn in range(rounds):
        for entry in entries:
            bar.set_description(f"{work.name}: {entry.solver.name}")
            for threads in (None,) if is_ours(entry) else (1, 2):
                spent = entry.times.setdefault(threads, [])
                # Slow solvers vary little: three runs, or one of the slowest, give the median.
                if turn == 0 or (turn < 3 and sum(spent) < 30.0) or sum(spent) < 3.0:
                    spent.append(clock(entry.solver, data, entry.tolerance, threads))
                bar.update()
    return entries


def table(work: Work, entries: list[Entry]) -> tuple[str, float]:
    """The work's lines, and the ratio of the best peer that meets delta to quadsense."""
    own = next((e.best[0] for e in entries if e.solver.name == "quadsense"), np.nan)
    lines, peers = [f"\n{work.group}: {work.name}"], []
    for entry in sorted(entries, key=lambda e: e.best[0]):
        seconds, threads = entry.best
        broken = np.isfinite(work_delta(work)) and entry.ratio > 1.0
        if not is_ours(entry) and not broken:
            peers.append(seconds)
        each = "/".join(f"{np.median(times) * 1e3:.1f}" for times in entry.times.values())
        columns = "untouched" if is_ours(entry) else "1/2 threads"
        lines.append(
            f"  {entry.solver.name:<23} {seconds * 1e3:>10.1f} ms  {threads or 'as many'} thread(s)"
            f"  {seconds / own:>7.2f}x  met {entry.ratio:.4f}{' BREAKS delta' if broken else ''}"
            f"  tol {entry.tolerance:.1e}  {columns} {each} ms"
        )
    return "\n".join(lines), min(peers, default=np.nan) / own


def is_ours(entry: Entry) -> bool:
    """Whether it is this package, in one of its calls."""
    return entry.solver.name.startswith("quadsense")


def work_delta(work: Work) -> float:
    """Whether the work has a delta to break: infinite where the smallest error is wanted."""
    return np.inf if work.group == "minimax" else 1.0


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small works, within a minute")
    parser.add_argument("--works", nargs="*", choices=sorted(SOLVERS), default=sorted(SOLVERS))
    parser.add_argument("--rounds", type=int, help="runs for each solver and number of threads")
    parser.add_argument("--patience", type=float, help="leave out solvers slower than this (s)")
    options = parser.parse_args(arguments)
    say_threads()
    rounds = options.rounds or (3 if options.quick else 9)
    patience = options.patience or (1.0 if options.quick else 300.0)
    works = [w for w in WORKS if w.group in options.works and (w.quick or not options.quick)]
    total = sum((2 * rounds + 1) * len(SOLVERS[w.group]) for w in works)
    ratios: dict[str, list[float]] = {}
    with tqdm(total=total, unit="run") as bar:
        for work in works:
            text, ratio = table(work, compare(work, rounds, patience, bar))
            bar.write(text)
            ratios.setdefault(work.group, []).append(ratio)
    print()
    for group, values in ratios.items():
        if np.all(np.isfinite(values)):
            each = ", ".join(f"{value:.2f}" for value in values)
            mean = float(np.exp(np.mean(np.log(values))))
            print(f"{group}: best peer over quadsense {each}; geometric mean {mean:.2f}x")


if __name__ == "__main__":
    main()
