"""Compare the untouched environment, as users have it, with one BLAS thread.

    python benchmarks/threads.py [--quick] [--only default interval ...] [--repeats 5] [--cpu]

Two fresh processes solve the same problems in turns: one without any thread variable in its
environment, one with OPENBLAS_NUM_THREADS=1. A line shows the medians of both and their ratio,
which is to be at most 1.2. A run that takes longer than `--patience` seconds is repeated twice at
most, and a case whose runs take longer than `LONGEST` is stopped by `time_limit` and left out.

With ``--cpu`` the times are CPU time, for a machine that others use at the same time. All threads
count, those that wait in a loop included, so that work that is merely divided has ratio 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from peer_solvers import Data, gaussian, low_rank
from task_list import Server, serve, verdict

import quadsense

ALLOWED = 1.2
"""Times as long as with one thread."""

LONGEST = 20.0
"""Seconds after which a solve is stopped."""

REST = 0.12
"""Seconds until threads of OpenBLAS that did the last product no longer spin."""

SIZES = ((28, 190), (100, 800), (200, 1600), (60, 1500), (40, 4000))
"""n and m."""


def consistent(n: int, m: int) -> Data:
    """Readings that some matrix meets."""
    return gaussian(n, m, 1e-3)


def factored(n: int, m: int) -> Data:
    """Readings of a matrix of rank 3."""
    return low_rank(n, m, 3, 1e-6)


def solved(data: Data, **options: Any) -> str:
    """Solve; return the status."""
    result = quadsense.solve(data.U, data.b, delta=data.delta, time_limit=LONGEST, **options)
    return str(result.status)


def ranged(data: Data) -> str:
    """Compute the certified range of the trace."""
    return repr(quadsense.interval(data.U, data.b, "trace", delta=data.delta, psd=True))


Case = tuple[Callable[[int, int], Data], Callable[[Data], str]]

CASES: dict[str, Case] = {
    "default": (consistent, solved),
    "psd default": (consistent, lambda data: solved(data, psd=True)),
    "min_trace": (consistent, lambda data: solved(data, psd=True, prefer="min_trace")),
    "center": (consistent, lambda data: solved(data, prefer="center")),
    "nearest": (consistent, lambda data: solved(data, prefer="nearest")),
    "interval": (consistent, ranged),
    "minimax": (consistent, lambda data: solved(data, prefer="minimax")),
    "rank": (factored, lambda data: solved(data, rank=3)),
}


HELD: dict[tuple[str, int, int], Data] = {}
"""The data of the case that was timed last."""


def timed(name: str, n: int, m: int, cpu: bool) -> tuple[float, str]:
    """Return the seconds and the outcome of one run."""
    clock = time.process_time if cpu else time.perf_counter
    make, run = CASES[name]
    if (name, n, m) not in HELD:
        HELD.clear()
        HELD[name, n, m] = make(n, m)
    time.sleep(REST)
    begin = clock()
    outcome = run(HELD[name, n, m])
    return clock() - begin, outcome


def compare(
    case: tuple[str, int, int, bool], sides: tuple[Server, Server], repeats: int, patience: float
) -> bool:
    """Print the line of a case, and return whether its ratio is within what is allowed."""
    times: tuple[list[float], list[float]] = ([], [])
    outcomes = set()
    warm = [side.ask(*case)[0] for side in sides]
    title = f"{case[0]:<12} {case[1]:>4} x {case[2]:<5}"
    if max(warm) > LONGEST:
        print(f"{title} takes more than {LONGEST:g} s: left out", flush=True)
        return True
    for turn in range(repeats if max(warm) < patience else 2):
        for side in (0, 1) if turn % 2 else (1, 0):
            seconds, outcome = sides[side].ask(*case)
            times[side].append(seconds)
            outcomes.add(outcome)
    untouched, one = (float(np.median(each)) for each in times)
    kept = untouched <= ALLOWED * one
    print(
        f"{title} {untouched * 1e3:>10.1f} ms {one * 1e3:>10.1f} ms {untouched / one:>6.2f}x  "
        f"{verdict(kept)}  {min(outcomes)}",
        flush=True,
    )
    return kept


def main() -> None:
    """Print the table; exit with 1 where a line is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=2.0, help="seconds of a run, see above")
    parser.add_argument("--sizes", nargs="*", metavar="NxM", help="such as 100x800")
    parser.add_argument("--cpu", action="store_true", help="CPU time in place of wall time")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(timed)
        return
    sizes = SIZES[:2] if options.quick else SIZES
    if options.sizes:
        sizes = tuple((int(n), int(m)) for n, m in (each.split("x") for each in options.sizes))
    arguments = (__file__, "--serve")
    sides = (Server(*arguments), Server(*arguments, OPENBLAS_NUM_THREADS="1"))
    unit = "CPU time" if options.cpu else "time"
    print(f"untouched environment against one BLAS thread ({unit}, medians; at most {ALLOWED}x)")
    kept = [
        compare((name, n, m, options.cpu), sides, options.repeats, options.patience)
        for name in options.only
        for n, m in sizes
    ]
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
