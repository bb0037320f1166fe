"""Time every work of `peers.py` and `paper.py` with this code and with that of an earlier revision.

    python benchmarks/before.py 3414fe8 [--works psd "low rank" paper] [--rounds 5] [--cpu]

Each revision runs its own benchmarks in a process of its own, in turns: this code in the untouched
environment, the earlier revision with one and with two BLAS threads, of which the better counts.
Printed are medians and their ratio, which is to be at most 1.1. With ``--cpu`` the times are CPU
time, the smallest of the rounds, for a machine that others use at the same time; one BLAS thread.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from task_list import Server, checked_out, verdict

ROOT = Path(__file__).resolve().parent.parent

ALLOWED = 1.1
"""Times as long as before."""

SERVER = """
import json, sys, time
if "--cpu" in sys.argv:
    time.perf_counter = time.process_time  # which all clocks of the benchmarks read
import numpy as np
import paper, peers
from threadpoolctl import threadpool_limits

def sample(work, threads, held={}):
    if work == "paper: steps":
        with threadpool_limits(threads):
            return {name: lean for name, _, lean, _ in paper.speedups()}
    if work == "paper: samples":
        small, large = paper.cost_a_sample()
        return {"sgd, per sample, n = 100": small, "sgd, per sample, n = 2000": large}
    if work == "paper: solve":
        with threadpool_limits(threads):
            return {"gd, whole solve, n = m = 1000": paper.whole_solve()[1]}
    if work == "paper: wide":
        return {"gd, n = 100,000, m = 500": paper.wide_solve()["seconds"]}
    [chosen] = [each for each in peers.WORKS if f"{each.group}: {each.name}" == work]
    if work not in held:
        held.clear()
        held[work] = chosen.make()
    [solver] = [each for each in peers.SOLVERS[chosen.group] if each.name == "quadsense"]
    return {work: peers.clock(solver, held[work], 0.0, threads)}

answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    asked = json.loads(line)
    found = sample(*asked) if asked else [f"{each.group}: {each.name}" for each in peers.WORKS]
    print(json.dumps(found), file=answers, flush=True)
"""
"""Of a revision's own benchmarks, which may be older than `task_list.serve`."""


def served(root: Path, cpu: bool) -> Server:
    """A process that has one revision's code and benchmarks."""
    paths = os.pathsep.join([str(root / "src"), str(root / "benchmarks")])
    return Server("-c", SERVER, *["--cpu"] * cpu, PYTHONPATH=paths)


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


def compare(work: str, codes: tuple[Server, Server], rounds: int, cpu: bool) -> bool:
    """Time one work by both, and say whether it is within what is allowed."""
    times: dict[str, tuple[dict[int | None, list[float]], ...]] = {}
    turns: list[tuple[int, int | None]] = [(0, 1), (1, 1)] if cpu else [(0, 1), (1, None), (0, 2)]
    middle = min if cpu else median  # work of others adds to CPU time too, by the caches
    for turn in range(rounds):
        for side, threads in turns if turn % 2 else turns[::-1]:
            found = codes[side].ask(work, threads)
            for name, seconds in found.items():
                both = times.setdefault(name, ({}, {}))
                both[side].setdefault(threads, []).append(seconds)
    kept = True
    for name, both in times.items():
        before, now = (min(middle(each) for each in side.values()) for side in both)
        ratio = now / before
        kept &= ratio <= ALLOWED
        print(
            f"{name}: before {before * 1e3:.4g} ms, now {now * 1e3:.4g} ms, {ratio:.2f}x: "
            f"{verdict(ratio <= ALLOWED)}",
            flush=True,
        )
    return kept


def main() -> None:
    """Check the revision out next to this one, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revision")
    parser.add_argument("--works", nargs="*", help="beginnings of their names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="CPU time in place of wall time")
    options = parser.parse_args()
    with checked_out(options.revision) as earlier:
        codes = (served(earlier, options.cpu), served(ROOT, options.cpu))
        works = [*codes[1].ask(), "paper: steps", "paper: samples", "paper: solve", "paper: wide"]
        wanted = tuple(options.works or [""])
        kept = [
            compare(each, codes, options.rounds, options.cpu)
            for each in works
            if each.startswith(wanted)
        ]
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
