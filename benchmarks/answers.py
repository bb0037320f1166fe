"""One A of all that fit, certified, against what else would answer the same question.

    python benchmarks/answers.py [--quick] [--only NAME ...] [--repeats 3] [--patience 120]

Both sides run in this process, ours in the untouched environment and several times, the peer with
one BLAS thread (once, if it takes more than some seconds): smallest seconds, and their ratio. Ours
counts everything, the certificate included; a peer counts everything too, CVXPY's compilation
included, and has the loosest tolerance of its own whose objective is as near to our certified
bounds as was asked. A peer whose time is over (`--patience`) is said to be so: the ratio is then a
lower bound. `--quick` leaves out the slow peers. What is certified is printed next to each line.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from answer_peers import Found, cvxpy_fit, fista_slack, linear_ranges
from peer_solvers import Data, gaussian, positive_low_rank
from simulate import energies, pairs, sketches, tomography
from task_list import say_threads
from threadpoolctl import threadpool_limits

import quadsense

SHORT = 3.0
"""Seconds beyond which a run is not repeated."""


@dataclass
class Line:
    """A line of the table.

    Attributes
    ----------
    own, peer : list of float
        Seconds.
    target : float
        Least ratio of the peer's to ours, or most seconds of ours where `in_seconds`.
    note : str
        What was certified.
    ended : bool
        Whether the peer came to its end.
    """

    name: str
    own: list[float]
    peer_name: str = ""
    peer: list[float] = field(default_factory=list)
    target: float = 0.0
    in_seconds: bool = False
    note: str = ""
    ended: bool = True

    def __str__(self) -> str:
        """Seconds of both, their ratio, whether the target is kept, and what was certified."""
        mine, sign = min(self.own), "" if self.ended else ">"
        text = f"{self.name:<34} {mine:>9.3f} s"
        if self.in_seconds:
            text += (
                f"{'':<31}{'kept' if mine <= self.target else 'MISSED'} (at most {self.target:g} s)"
            )
        elif self.peer:
            ratio = min(self.peer) / mine
            kept = "kept" if ratio >= self.target else "open" if not self.ended else "MISSED"
            text += f"  {self.peer_name:<16} {sign}{min(self.peer):>8.3f} s {sign}{ratio:>7.1f}x"
            text += f" {kept} (at least {self.target:g}x)"
        else:
            text += f"  {self.peer_name} left out"
        return f"{text}  {self.note}"


def peer_seconds(call: Callable[[], Any], repeats: int) -> tuple[list[float], Any]:
    """Return what `seconds` does, of a peer: with one BLAS thread."""
    with threadpool_limits(1):
        return seconds(call, repeats)


def seconds(call: Callable[[], Any], repeats: int) -> tuple[list[float], Any]:
    """Return the seconds of each run, and what the last gave."""
    times: list[float] = []
    found = None
    for _ in range(repeats + 1):  # the first warms up
        begin = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - begin)
        if times[-1] > SHORT:
            return times, found
    return times[1:], found


def certified(result: Any) -> str:
    """What a result says of its objective."""
    if not result.success or result.objective_bounds is None:
        return f"{result.status}: {result.message}"
    lower, upper = result.objective_bounds
    gap = (upper - lower) / max(abs(upper), abs(lower), 1e-300)
    checked = "optimal" if result.optimal else f"NOT OPTIMAL ({result.optimal})"
    return f"{result.status}, {result.prefer} {result.objective:.6g}, gap {gap:.1e}, {checked}"


@dataclass(frozen=True)
class Rules:
    """How this run measures."""

    repeats: int
    patience: float
    quick: bool


Ladder = list[tuple[str, str, float]]
CLARABEL: Ladder = [("Clarabel", "CLARABEL", 0.0)]
BOTH: Ladder = [*CLARABEL, *(("SCS", "SCS", 10.0**-k) for k in range(3, 8))]


def against(
    name: str, own: Callable[[], Any], ladder: Ladder, peer: dict[str, Any], target: float,
    rules: Rules, gap: float, slow: bool = True,
) -> Line:  # fmt: skip
    """Ours against the best of CVXPY's solvers that comes as near as `gap` to our bounds."""
    times, result = seconds(own, rules.repeats)
    line = Line(name, times, "CVXPY", target=target, note=certified(result))
    if (rules.quick and slow) or result.objective_bounds is None:
        return line
    lower, upper = result.objective_bounds
    done: set[str] = set()
    for label, solver, tolerance in ladder:
        if label in done:
            continue
        spent, found = peer_seconds(
            lambda s=solver, t=tolerance: cvxpy_fit(  # type: ignore[misc]
                solver=s, tolerance=t, seconds=rules.patience, **peer
            ),
            1,
        )
        near = close(found, lower, upper, gap)
        if near or not found.finished:
            done.add(label)
        better = not line.peer or min(spent) < min(line.peer)
        if (near and (better or not line.ended)) or (not found.finished and not line.peer):
            line.peer, line.peer_name, line.ended = spent, label, near
    return line


def close(found: Found, lower: float, upper: float, gap: float) -> bool:
    """Whether a peer's answer is as near to the certified bounds as was asked."""
    room = gap * max(abs(lower), abs(upper))
    return found.finished and lower - room <= found.value <= upper + room and found.broken <= 1e-2


# --- the works


def states(qubits: int, target: float, rules: Rules) -> Line:
    """PSD least squares about the frequencies, within joint bounds, of trace 1."""
    t = tomography(qubits, 2**qubits)
    lo, hi = quadsense.bounds_from_counts(t.counts, t.shots)
    peer = {"U": t.U, "lo": lo, "hi": hi, "goal": "least_squares", "b": t.frequencies,
            "weights": 4.0 / (hi - lo) ** 2, "trace": 1.0}  # fmt: skip
    return against(
        f"PSD least squares n={2**qubits} m={len(t.U)}",
        lambda: quadsense.solve(
            t.U, t.frequencies, bounds=(lo, hi), psd=True, trace=1.0, prefer="least_squares"
        ),
        BOTH, peer, target, rules, 0.01, slow=qubits > 4,
    )  # fmt: skip


def least_trace(rules: Rules) -> Line:
    """Minimum trace, n = 50."""
    data = gaussian(50, 600, 1e-3)
    peer = {"U": data.U, "lo": data.b - data.delta, "hi": data.b + data.delta, "goal": "min_trace"}
    return against(
        "minimum trace n=50 m=600",
        lambda: quadsense.solve(
            data.U, data.b, delta=data.delta, psd=True, prefer="min_trace", gap=1e-3
        ),
        BOTH, peer, 60.0, rules, 1e-3,
    )  # fmt: skip


def nearest(rules: Rules) -> Line:
    """The nearest to a multiple of I, n = 50."""
    data = gaussian(50, 600, 1e-3)
    prior = float(np.mean(data.b)) * np.eye(50)
    peer = {"U": data.U, "lo": data.b - data.delta, "hi": data.b + data.delta, "goal": "nearest",
            "prior": prior}  # fmt: skip
    return against(
        "nearest PSD n=50 m=600",
        lambda: quadsense.solve(
            data.U, data.b, delta=data.delta, psd=True, prefer="nearest", prior=prior
        ),
        CLARABEL, peer, 60.0, rules, 0.01,
    )  # fmt: skip


def centre(rules: Rules) -> Line:
    """The analytic centre of covariances that fit 1500 sketches."""
    U, b, _ = sketches("toeplitz")
    times, result = seconds(
        lambda: quadsense.solve(U, b, rtol=1e-3, psd=True, prefer="center"), rules.repeats
    )
    return Line("centre n=64 m=1500", times, target=2.0, in_seconds=True, note=certified(result))


def few_ranges(rules: Rules) -> Line:
    """Two ranges of a small matrix, against HiGHS."""
    U, b, width, _ = energies()
    E = np.zeros((6, 6))
    E[0, 0] = 1.0
    own, found = seconds(
        lambda: [quadsense.interval(U, b, C, delta=width) for C in (E, np.eye(6))],
        10 * rules.repeats,
    )
    peer, (true, ended) = peer_seconds(
        lambda: linear_ranges(U, b - width, b + width, [E, np.eye(6)], "highs"),
        10 * rules.repeats,
    )
    return Line("interval n=6 m=200 two C", own, "HiGHS", peer, 1.0, ended=ended,
                note=wider(found, true))  # fmt: skip


def one_range(rules: Rules) -> Line:
    """One range of a larger matrix, against HiGHS's interior-point method."""
    data = gaussian(40, 4000, 1e-2)
    C = np.zeros((40, 40))
    C[0, 0] = 1.0
    own, found = seconds(
        lambda: quadsense.interval(data.U, data.b, C, delta=data.delta), rules.repeats
    )
    line = Line("interval n=40 m=4000 one C", own, "highs-ipm", target=20.0)
    line.note = f"[{found.lower:.6g}, {found.upper:.6g}]"
    if rules.quick:
        return line
    line.peer, (true, line.ended) = peer_seconds(
        lambda: linear_ranges(
            data.U, data.b - data.delta, data.b + data.delta, [C], "highs-ipm", rules.patience
        ),
        0,
    )
    line.note = wider([found], true)
    return line


def wider(found: list[Any], true: list[tuple[float, float]]) -> str:
    """By how much of their width ranges exceed those of linear programming."""
    parts = []
    for mine, (low, high) in zip(found, true, strict=True):
        extra = (float(mine.upper) - float(mine.lower)) / (high - low) - 1.0
        encloses = mine.lower <= low + 1e-7 * abs(low) and mine.upper >= high - 1e-7 * abs(high)
        parts.append(f"{100 * extra:.2g}% wider{'' if encloses else ', NOT ENCLOSING'}")
    return ", ".join(parts)


def slack_squares(count: int, rules: Rules) -> Line:
    """A metric from pairs that contradict each other, against FISTA to 1e-3."""
    U, lo, hi = pairs(64, count)
    own, result = seconds(
        lambda: quadsense.solve(U, bounds=(lo, hi), psd=True, slack="squares"), rules.repeats
    )
    name = f"slack squares d=64, {count} pairs"
    line = Line(name, own, "FISTA to 1e-3", target=1.0, note=certified(result))
    if rules.quick and count > 5000:
        return line
    # The least value itself, not clocked: 1% above it would be an easier goal.
    best = quadsense.solve(
        U, bounds=(lo, hi), psd=True, slack="squares", gap=1e-4, time_limit=rules.patience
    )
    goal = best.objective * (1.0 + 1e-3)
    line.peer, (_, line.ended) = peer_seconds(
        lambda: fista_slack(U, lo, hi, goal, rules.patience), 0
    )
    return line


def slack_max(rules: Rules) -> Line:
    """The least worst miss of 5,000 pairs."""
    U, lo, hi = pairs(13, 5000)
    own, result = seconds(
        lambda: quadsense.solve(U, bounds=(lo, hi), psd=True, slack="max", gap=0.01), rules.repeats
    )
    name = "slack max d=13, 5000 pairs"
    return Line(name, own, target=0.2, in_seconds=True, note=certified(result))


def default_and_any(name: str, data: Data, rules: Rules) -> Line:
    """What the default takes next to any fit; no time takes part in which A it returns."""

    def solve(**asked: Any) -> Any:
        return quadsense.solve(data.U, data.b, delta=data.delta, psd=True, **asked)

    any_, _ = seconds(lambda: solve(prefer="any"), rules.repeats)
    own, result = seconds(solve, rules.repeats)
    note = f"any {min(any_):.3f} s; {certified(result)}"
    return Line(f"default: {name}", own, note=note)


WORKS: dict[str, Callable[[Rules], Line]] = {
    "states-4": lambda rules: states(4, 8.0, rules),
    "states-5": lambda rules: states(5, 15.0, rules),
    "min-trace": least_trace,
    "nearest": nearest,
    "centre": centre,
    "interval-6": few_ranges,
    "interval-40": one_range,
    "slack-squares-5000": lambda rules: slack_squares(5000, rules),
    "slack-squares-50000": lambda rules: slack_squares(50_000, rules),
    "slack-max": slack_max,
    "default-15": lambda rules: default_and_any("n=15 m=80", gaussian(15, 80, 1e-3), rules),
    "default-50": lambda rules: default_and_any("n=50 m=600", gaussian(50, 600, 1e-3), rules),
    "default-300": lambda rules: default_and_any(
        "n=300 m=15000", gaussian(300, 15000, 1e-2), rules
    ),
    "default-300-5": lambda rules: default_and_any(
        "n=300 m=15000 rank 5", positive_low_rank(300, 15000, 5, 1e-2), rules
    ),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the slow peers")
    parser.add_argument("--only", nargs="*", choices=sorted(WORKS), default=list(WORKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds of a peer")
    options = parser.parse_args()
    rules = Rules(options.repeats, options.patience, options.quick)
    print("answers (smallest seconds of ours, of the best peer, their ratio; what was certified)")
    say_threads()
    for name in options.only:
        print(WORKS[name](rules), flush=True)


if __name__ == "__main__":
    main()
