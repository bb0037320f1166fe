"""Time every work of `peers.py` and `paper.py` with this code and with that of an earlier revision.

    python benchmarks/before.py 3414fe8 [--works psd "low rank" paper] [--rounds 5]

Each revision runs its own benchmarks in a process of its own, in turns: this code in the untouched
environment, the earlier revision with one and with two BLAS threads, of which the better counts.
Printed are medians and their ratio, which is to be at most 1.1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from task_list import untouched_environment, verdict

ROOT = Path(__file__).resolve().parent.parent

ALLOWED = 1.1
"""Times as long as before."""

SERVER = """
import contextlib, json, sys
import numpy as np
import paper, peers
from threadpoolctl import threadpool_limits

def sample(work, threads, held={}):
    if work == "paper: steps":
        with threadpool_limits(threads):
            return {name: lean for name, _, lean, _ in paper.speedups()}
    if work == "paper: samples":
        small, large = paper.cost_a_sample()
        return {"sgd, a sample, n = 100": small, "sgd, a sample, n = 2000": large}
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

answers = sys.stdout
for line in sys.stdin:
    asked = json.loads(line)
    with contextlib.redirect_stdout(sys.stderr):
        found = (
            [f"{each.group}: {each.name}" for each in peers.WORKS]
            if asked is None
            else sample(**asked)
        )
    print(json.dumps(found), file=answers, flush=True)
"""


class Code:
    """A process that has one revision's code and benchmarks."""

    def __init__(self, root: Path) -> None:
        paths = os.pathsep.join([str(root / "src"), str(root / "benchmarks")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env={**untouched_environment(), "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, asked: object) -> object:
        """What it answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


def compare(work: str, codes: tuple[Code, Code], rounds: int) -> bool:
    """Time one work by both, and say whether it is within what is allowed."""
    times: dict[str, tuple[dict[int | None, list[float]], ...]] = {}
    turns: list[tuple[int, int | None]] = [(0, 1), (1, None), (0, 2)]
    for turn in range(rounds):
        for side, threads in turns if turn % 2 else turns[::-1]:
            found = codes[side].ask({"work": work, "threads": threads})
            assert isinstance(found, dict)
            for name, seconds in found.items():
                both = times.setdefault(name, ({}, {}))
                both[side].setdefault(threads, []).append(seconds)
    kept = True
    for name, both in times.items():
        before, now = (min(median(each) for each in side.values()) for side in both)
        ratio = now / before
        kept &= ratio <= ALLOWED
        print(
            f"{name}: before {before * 1e3:.4g} ms, now {now * 1e3:.4g} ms, {ratio:.2f}x: "
            f"{verdict(ratio <= ALLOWED)}",
            flush=True,
        )
    return kept


def main() -> None:
    """Check the revision out beside this one, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revision")
    parser.add_argument("--works", nargs="*", help="beginnings of their names")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", earlier, options.revision], check=True)
        try:
            codes = (Code(earlier), Code(ROOT))
            works = codes[1].ask(None)
            assert isinstance(works, list)
            works += ["paper: steps", "paper: samples", "paper: solve", "paper: wide"]
            wanted = tuple(options.works or [""])
            rounds = [(each, options.rounds) for each in works if each.startswith(wanted)]
            kept = [compare(each, codes, count) for each, count in rounds]
        finally:
            subprocess.run([*git, "remove", "--force", earlier], check=True)
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
