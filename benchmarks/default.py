"""Time the default call next to its peers and to an earlier revision, and solves of small problems.

    python benchmarks/default.py [--only "symmetric 30 x 200" ...] [--rounds 7] [--cpu]

Each line compares this code in the untouched environment with one rival, in turns and within one
run: a peer, with one and with two BLAS threads, of which the better counts, or the call named
`before` by the revision `BEFORE`, likewise. Printed are medians and their ratio. LSQR and LSMR stop
at the loosest tolerance of their own that gives the worst residual of our answer, found before the
clock starts; our side of these lines also reads and verifies the result. Clarabel gets the problem
as a cone program that is built before the clock starts. With `--cpu` seconds of the processor are
compared, for machines on which other programs run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from peer_solvers import (
    Array,
    Data,
    Solver,
    gaussian,
    measure,
    noisy,
    scipy_lsmr,
    scipy_lsqr,
)
from peers import calibrate
from task_list import Server, checked_out, say_threads, serve, verdict

import quadsense

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "f95ed47"
LOOPED = 300
"""Calls of a small solve."""

ENOUGH = 0.05
"""Seconds of the calls of a turn, at least: the first of them find nothing in cache."""

SPREAD = 3.0
"""Largest 99th percentile of a small solve, in units of its median."""

Options = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A row of the table.

    Attributes
    ----------
    make : callable
        Makes the data.
    allowed : float
        Largest ratio to the rival's time.
    options : dict
        What our call has next to U, b and delta.
    before : dict or None
        The same of the call by the earlier revision; None where peers are the rivals.
    peers : tuple of str
        Names in `PEERS`.
    looped : bool
        Whether it is called `LOOPED` times, and its 99th percentile looked at.
    """

    make: Callable[[], Data]
    allowed: float
    options: Options = field(default_factory=dict)
    before: Options | None = None
    peers: tuple[str, ...] = ()
    looped: bool = False


def stated_noise(n: int, m: int) -> Data:
    """Gaussian noise, with the tolerance that it has."""
    data = noisy(n, m, 1e-2)
    return replace(data, delta=quadsense.delta_from_sigma(1e-2, m))


def rounded(n: int, m: int) -> Data:
    """README's first example."""
    p = quadsense.datasets.gaussian(n=n, m=m, seed=0)
    return Data(p.U, p.b.round(1), 0.05)


def bounded(n: int, m: int) -> Data:
    """Intervals around noisy readings of a positive semidefinite matrix."""
    rng = np.random.default_rng(0)
    X, U = rng.standard_normal((n, n)), rng.standard_normal((m, n))
    b = measure(U, X @ X.T / n)
    return Data(U, b + rng.uniform(-0.1, 0.1, m), 0.1)


SYMMETRIC = {(30, 200): 2.0, (100, 800): 1.5, (200, 1600): 1.5, (60, 1500): 1.5}
POSITIVE = {(100, 800): 0.45, (60, 1500): 0.7, (200, 1600): 0.35}
PSD, ANY = {"psd": True}, {"prefer": "any"}

LINES: dict[str, Line] = {
    **{
        f"symmetric {n} x {m}": Line(partial(gaussian, n, m, 1e-3), most, peers=("LSQR", "LSMR"))
        for (n, m), most in SYMMETRIC.items()
    },
    "noise 100 x 6000": Line(partial(stated_noise, 100, 6000), 0.1, before={}),
    **{
        f"psd {n} x {m}": Line(
            partial(gaussian, n, m, 1e-3), most, PSD, before={**PSD, "prefer": "center"}
        )
        for (n, m), most in POSITIVE.items()
    },
    "rounded 5 x 1000": Line(partial(rounded, 5, 1000), 0.2, before={}),
    "minimax 20 x 1000": Line(partial(noisy, 20, 1000, 1e-2), 1.0, {"prefer": "minimax"}, {}),
    "minimax 40 x 4000": Line(partial(noisy, 40, 4000, 1e-2), 1.0, {"prefer": "minimax"}, {}),
    "psd 40 x 2460, no tolerance": Line(partial(noisy, 40, 2460, 1e-2), 0.3, PSD, before=PSD),
    "any 3 x 64": Line(partial(gaussian, 3, 64, 1e-3), 0.3, ANY, before=ANY, looped=True),
    "psd 3 x 64": Line(partial(gaussian, 3, 64, 1e-3), 0.3, PSD, before=PSD, looped=True),
    "default 10 x 40": Line(partial(gaussian, 10, 40, 1e-3), 0.3, before={}, looped=True),
    "default 10 x 40, any before": Line(
        partial(gaussian, 10, 40, 1e-3), 0.3, before=ANY, looped=True
    ),
    **{
        f"psd within intervals {n} x {m}": Line(
            partial(bounded, n, m), 3.0, PSD, peers=("Clarabel",), looped=True
        )
        for n, m in ((4, 20), (8, 60))
    },
    **{
        f"any {n} x {m}": Line(partial(gaussian, n, m, 1e-3), 1.0, ANY, before=ANY)
        for n, m in (*SYMMETRIC, (10, 40), (5, 1000))
    },
}


# --- the calls --------------------------------------------------------------------------------

Call = Callable[[], Any]


def ours(data: Data, options: Options, read: bool) -> quadsense.Result:
    """Solve; with `read`, also read A and the message, and verify."""
    delta = data.delta if np.isfinite(data.delta) else None
    result = quadsense.solve(data.U, data.b, delta=delta, **options)
    assert result.success, result.message
    if read:
        assert result.A.shape == (data.U.shape[1],) * 2
        assert result.message
        assert result.verify(data.U, data.b)
    return result


def krylov(data: Data, options: Options, solver: Callable[[Data, float], Array]) -> Call:
    """LSQR or LSMR with the loosest tolerance that gives our worst residual."""
    worst = float(ours(data, options, False).max_residual)
    same = replace(data, delta=worst, value=worst)
    decades = tuple(10.0**-k for k in range(1, 15))
    tolerance, ratio = calibrate(Solver("", solver, decades, refine=True), same)
    assert ratio <= 1.0, "the peer does not reach the worst residual of our answer"
    return partial(solver, data, tolerance)


def clarabel_direct(data: Data, options: Options) -> Call:
    """Least squares in the cone and within the intervals, over the upper triangle of A."""
    import clarabel
    import scipy.sparse as sp

    n = data.U.shape[1]
    columns, rows = np.tril_indices(n)  # the upper triangle by columns, as Clarabel has it
    F = data.U[:, rows] * data.U[:, columns] * np.where(rows == columns, 1.0, 2.0)
    P, q = sp.triu(sp.csc_matrix(2.0 * F.T @ F), format="csc"), -2.0 * F.T @ data.b
    scale = sp.diags(np.where(rows == columns, -1.0, -np.sqrt(2.0)))
    G = sp.vstack([sp.csc_matrix(F), sp.csc_matrix(-F), scale], format="csc")
    h = np.concatenate([data.b + data.delta, data.delta - data.b, np.zeros(len(rows))])
    cones = [clarabel.NonnegativeConeT(2 * len(F)), clarabel.PSDTriangleConeT(n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False

    def call() -> Array:
        solution = clarabel.DefaultSolver(P, q, G, h, cones, settings).solve()
        A = np.zeros((n, n))
        A[rows, columns] = A[columns, rows] = solution.x
        return A

    assert np.abs(measure(data.U, call()) - data.b).max() <= data.delta * (1.0 + 1e-6)
    return call


PEERS: dict[str, Callable[[Data, Options], Call]] = {
    "LSQR": partial(krylov, solver=scipy_lsqr),
    "LSMR": partial(krylov, solver=scipy_lsmr),
    "Clarabel": clarabel_direct,
}


def call_of(line: Line, side: str) -> Call:
    """Return what is timed: side is "own", "before" or the name of a peer."""
    data = line.make()
    if side in PEERS:
        return PEERS[side](data, line.options)
    options = line.options if side == "own" else line.before or {}
    return partial(ours, data, options, bool(line.peers) and not line.looped)


HELD: dict[tuple[str, str], Call] = {}
"""Calls, made and warm, by the line's name and the side."""


def timed(name: str, side: str, threads: int | None, cpu: bool, count: int) -> list[float]:
    """Return the seconds of at least `count` calls."""
    from threadpoolctl import threadpool_limits

    clock = time.process_time if cpu else time.perf_counter
    with threadpool_limits(threads):
        if (name, side) not in HELD:
            HELD[name, side] = call_of(LINES[name], side)
            HELD[name, side]()
        times: list[float] = []
        while len(times) < count or sum(times) < ENOUGH:
            begin = clock()
            HELD[name, side]()
            times.append(clock() - begin)
    return times


def compare(name: str, own: Server, before: Server, rounds: int, cpu: bool) -> bool:
    """Time one line, print it, and return whether it is within what is allowed."""
    line = LINES[name]
    rivals = [(peer, own) for peer in line.peers] or [("before", before)]
    sides = [("own", own, None)]
    sides += [(side, code, threads) for side, code in rivals for threads in (1, 2)]
    times: dict[tuple[str, int | None], list[float]] = {}
    count = max(1, LOOPED // rounds) if line.looped else 1
    for turn in range(rounds):
        for side, code, threads in sides if turn % 2 else sides[::-1]:
            times.setdefault((side, threads), []).extend(code.ask(name, side, threads, cpu, count))
    medians = {key: float(np.median(each)) for key, each in times.items()}
    mine = medians.pop(("own", None))
    (rival, threads), theirs = min(medians.items(), key=lambda item: item[1])
    ratio = mine / theirs
    kept, tail = ratio <= line.allowed, ""
    if line.looped:
        late = float(np.percentile(times["own", None], 99))
        tail = f", 99th percentile {late / mine:.1f}x the median"
        kept &= late <= SPREAD * mine or rival != "Clarabel"
    what = rival if rival != "before" else f"{BEFORE} {line.before or 'default'}"
    print(
        f"{name}: {mine * 1e3:.3g} ms{tail}; {what} {theirs * 1e3:.3g} ms ({threads} threads); "
        f"{ratio:.2f}x, at most {line.allowed:g}x: {verdict(kept)}",
        flush=True,
    )
    return kept


def main() -> None:
    """Check the earlier revision out where a line needs it, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", help="beginnings of the lines' names")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(timed)
        return
    say_threads()
    names = [name for name in LINES if name.startswith(tuple(options.only or [""]))]
    arguments = (__file__, "--serve")
    own = Server(*arguments, PYTHONPATH=str(ROOT / "src"))
    with checked_out(BEFORE) as earlier:
        before = Server(*arguments, PYTHONPATH=str(earlier / "src"))
        kept = [compare(name, own, before, options.rounds, options.cpu) for name in names]
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
