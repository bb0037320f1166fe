"""The README's six lines of CVXPY and one of ours, in seconds of one core.

python benchmarks/six_lines.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import cvxpy as cp
from task_list import say_threads
from threadpoolctl import threadpool_limits

import quadsense


def seconds(work: Callable[[], float], runs: int) -> tuple[float, float]:
    """The shortest of some runs, waiting left out, and what the work found."""
    spent, found = [], 0.0
    for _ in range(runs):
        begin = time.process_time()
        found = work()
        spent.append(time.process_time() - begin)
    return min(spent), found


def main() -> None:
    q = quadsense.datasets.gaussian(n=30, m=250, seed=0)

    def theirs() -> float:
        A = cp.Variable((30, 30), PSD=True)
        readings = cp.sum(cp.multiply(q.U @ A, q.U), axis=1)
        problem = cp.Problem(cp.Minimize(cp.trace(A)), [cp.abs(readings - q.b) <= 0.01])
        problem.solve(solver=cp.CLARABEL)
        return float(problem.value)

    def ours() -> float:
        least = quadsense.solve(q.U, q.b, delta=0.01, psd=True, prefer="min_trace")
        assert least.optimal
        return float(least.objective)  # type: ignore[arg-type]

    say_threads()
    ours()  # compiled, imported
    own, mine = seconds(ours, 10)
    with threadpool_limits(1):
        peer, other = seconds(theirs, 3)
    print(f"CVXPY with Clarabel: {peer:.2f} s, trace {other:.6f}")
    print(f"quadsense: {own:.3f} s, trace {mine:.6f}, certified; {peer / own:.0f} times as quick")


if __name__ == "__main__":
    main()
