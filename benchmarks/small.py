"""Small problems, where what surrounds the iterations is what takes the time.

    python benchmarks/small.py [--repeats 200]

Every line is a ratio within one run: the two sides take turns, ours in the untouched environment,
the peer with one BLAS thread, and the smallest and the median of many repeats are compared. A peer
gets the loosest tolerance of its own that meets delta, found before the clock starts. Three lines
differ: `read` is one solve with all that its user reads, timed against LSQR and in milliseconds;
`busy` runs it in a fresh process, alone and next to two processes that do nothing but count;
`import` takes the smallest of several fresh processes. A line's verdict is that of its smallest
times: the median also counts what else the machine was doing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from peer_solvers import Data, gaussian, low_rank, ours, scipy_lbfgs, scipy_lsqr
from peers import calibrate
from task_list import say_threads, untouched_environment
from threadpoolctl import ThreadpoolController

import quadsense

BUSY_PROCESSES = 2


@dataclass(frozen=True)
class Line:
    """A line of the table: seconds of both sides, and the largest ratio (or time) wanted."""

    name: str
    own: list[float]
    peer: list[float]
    peer_name: str
    target: float
    in_milliseconds: bool = False

    def __str__(self) -> str:
        """Smallest and median of both, their ratios, and whether the target is kept."""
        best, middle = min(self.own), float(np.median(self.own))
        peer_best, peer_middle = min(self.peer), float(np.median(self.peer))
        reached = best * 1e3 if self.in_milliseconds else best / peer_best
        unit = " ms" if self.in_milliseconds else "x"
        verdict = "kept" if reached <= self.target else "MISSED"
        return (
            f"{self.name:<26} {best * 1e3:>8.2f} {middle * 1e3:>8.2f}   {self.peer_name:<14}"
            f" {peer_best * 1e3:>8.2f} {peer_middle * 1e3:>8.2f}   {best / peer_best:>6.2f}x"
            f" {middle / peer_middle:>6.2f}x   {self.target:g}{unit} {verdict}"
        )


def take_turns(sides: list[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Seconds of each side, interleaved, after some runs that are not clocked."""
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(-5, repeats):
        for side, spent in zip(sides, times, strict=True):
            begin = time.perf_counter()
            side()
            seconds = time.perf_counter() - begin
            if turn >= 0:
                spent.append(seconds)
    return times


def on_one_thread(peer: Callable[[], object]) -> Callable[[], object]:
    """Return the call of a peer, held to one BLAS thread."""

    controller = ThreadpoolController()  # found once: that takes milliseconds

    def held() -> object:
        with controller.limit(limits=1):
            return peer()

    return held


def low_rank_line(n: int, m: int, rank: int, repeats: int) -> Line:
    """`rank=` against SciPy's L-BFGS on the factor, from the usual spectral start."""
    from peer_solvers import SOLVERS

    data = low_rank(n, m, rank, 1e-6)
    peer = next(solver for solver in SOLVERS["low rank"] if solver.run is scipy_lbfgs)
    tolerance, ratio = calibrate(peer, data)
    assert ratio <= 1.0, "the peer does not meet delta"
    own, other = take_turns(
        [lambda: ours(data, 0.0), on_one_thread(lambda: scipy_lbfgs(data, tolerance))], repeats
    )
    return Line(f"n={n} m={m} rank {rank}", own, other, "SciPy L-BFGS", 1.2)


def read(data: Data) -> None:
    """One solve, and all that its user reads."""
    result = quadsense.solve(data.U, data.b, delta=data.delta, prefer="any")
    assert result.status == "met" and result.message.startswith("met: ")
    assert result.A.shape == (data.U.shape[1],) * 2
    assert result.certificate.verify(data.U, data.b)


def read_line(repeats: int) -> Line:
    """A solve with status, A, message and verification against LSQR's A alone."""
    from peer_solvers import SOLVERS

    data = gaussian(30, 200, 1e-2)
    peer = next(solver for solver in SOLVERS["consistent"] if solver.run is scipy_lsqr)
    tolerance, ratio = calibrate(peer, data)
    assert ratio <= 1.0, "the peer does not meet delta"
    own, other = take_turns(
        [lambda: read(data), on_one_thread(lambda: scipy_lsqr(data, tolerance))], repeats
    )
    return Line("n=30 m=200 read", own, other, "SciPy LSQR", 1.0, in_milliseconds=True)


def busy_line(repeats: int) -> Line:
    """Time the same in a process of its own, next to busy processes and alone."""
    command = [sys.executable, __file__, "--only-read", str(repeats)]

    def measure() -> list[float]:
        done = subprocess.run(command, env=untouched_environment(), capture_output=True, check=True)
        return list(json.loads(done.stdout))

    alone = measure()
    count = "while True: pass"
    others = [subprocess.Popen([sys.executable, "-c", count]) for _ in range(BUSY_PROCESSES)]
    try:
        beside = measure()
    finally:
        for other in others:
            other.terminate()
            other.wait()
    # Here the median is meant: the smallest time is that of a moment's peace.
    return Line(
        f"{BUSY_PROCESSES} others busy, median", [float(np.median(beside))],
        [float(np.median(alone))], "alone", 3.0,
    )  # fmt: skip


def import_line(repeats: int) -> Line:
    """Seconds of an import in a fresh process, against those of what it cannot do without.

    The first, which is not counted, writes the bytecode that others have from their installation.
    """
    clock = "import time; begin = time.perf_counter(); {}; print(time.perf_counter() - begin)"
    both = ("import quadsense", "import numpy, scipy.linalg, scipy.sparse.linalg")

    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def seconds(statement: str) -> float:
        command = [sys.executable, "-c", clock.format(statement)]
        return float(subprocess.run(command, capture_output=True, check=True, env=env).stdout)

    times = [[seconds(statement) for statement in both] for _ in range(repeats + 1)][1:]
    own, other = ([pair[side] for pair in times] for side in (0, 1))
    return Line("import quadsense", own, other, "NumPy, SciPy", 1.3)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200, help="of each clocked solve")
    parser.add_argument("--only-read", type=int, metavar="N", help="seconds of N solves, as JSON")
    options = parser.parse_args()
    if options.only_read:
        data = gaussian(30, 200, 1e-2)
        print(json.dumps(take_turns([lambda: read(data)], options.only_read)[0]))
        return
    print("small problems (ms: smallest, median; ratios of these; target for the smallest)")
    say_threads()
    print(low_rank_line(60, 600, 2, options.repeats), flush=True)
    print(low_rank_line(80, 1600, 3, options.repeats), flush=True)
    print(read_line(options.repeats), flush=True)
    print(busy_line(options.repeats), flush=True)
    print(import_line(max(3, options.repeats // 20)), flush=True)


if __name__ == "__main__":
    main()
