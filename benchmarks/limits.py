"""Measure how far a solve exceeds `time_limit`, and how long it takes to react to Ctrl-C.

Each solve runs in its own process: with ``time_limit`` 0.1, 1 and 5 s, and without a limit, with
SIGINT after 2 s. At most 0.5 s or 20% beyond the limit are allowed, whichever is larger. Data are
generated, and code is compiled, before the clock starts. The cases are one per method, at sizes
that take twenty seconds or more without a limit, and every question that `solve` answers on each
of a few shapes of data ("tall, center": the data, then the question).

    python benchmarks/limits.py [CASE ...] [--limits SECONDS ...] [--cpu]

A case may also be the name of some data alone ("tall"). ``--limits 0`` is Ctrl-C. With ``--cpu``
limits and seconds are those of the process (CPU time) in place of wall time: for a machine that
others use at the same time.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np

import quadsense

ALLOWED_SECONDS, ALLOWED_SHARE = 0.5, 0.2
"""Seconds beyond the limit that are allowed, and share of the limit, whichever is larger."""

PRESS_AFTER = 2.0
PATIENCE = 120.0


def noisy(m, n, seed=0, complex_=False, rank=None, noise=1.0):
    """Return rows, and noisy readings of a positive semidefinite matrix of trace n."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n))
    rank = rank or min(n, 300)  # as good as full, where data are to be made in seconds
    X = rng.standard_normal((n, rank)) / np.sqrt(rank)
    if complex_:
        U = U + 1j * rng.standard_normal((m, n))
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    return U, b + noise * rng.standard_normal(m)


QUESTIONS = {
    "default": {},
    "psd": {"psd": True},
    "min_trace": {"psd": True, "prefer": "min_trace"},
    "center": {"psd": True, "prefer": "center"},
    "nearest": {"prefer": "nearest"},
    "minimax": {"prefer": "minimax"},
    "least_squares": {"prefer": "least_squares"},
    "slack": {"slack": "sum"},
    "rank": {"rank": 2, "rng": 0},
    "allow_violations": {"allow_violations": 2},
}
"""Arguments of a solve by what is asked for."""


def shapes():
    """Return data and arguments of a solve by the name of the data, as functions."""
    return {
        "tall": lambda: (noisy(1_000_000, 3, noise=1e-3), {"delta": 6e-3}),
        "square": lambda: (noisy(5050, 100, rank=8, noise=1e-3), {"delta": 5e-3}),
        "large": lambda: (noisy(15_000, 300, rank=8, noise=1e-3), {"delta": 5e-3, "psd": True}),
        "contradictory": lambda: (contradictory(800, 100), {"delta": 1e-3}),
        "wrong reading": lambda: (wrong(1000, 5), {"delta": 5e-3}),
    }


def contradictory(m, n):
    """Return fewer rows than unknowns, two of them the same with different readings."""
    U, b = noisy(m, n, noise=0.0)
    U[7], b[7] = U[3], b[3] + 50.0
    return U, b


def wrong(m, n):
    """Return data one reading of which is wrong."""
    U, b = noisy(m, n, noise=1e-3)
    b[17] += 5.0
    return U, b


def questions_by_shape():
    """Return data and arguments of every question on every shape, as functions."""
    return {
        f"{shape}, {question}": lambda make=make, asked=asked: (
            (found := make())[0],
            {**found[1], **asked},
        )
        for shape, make in shapes().items()
        for question, asked in QUESTIONS.items()
    }


def cases():
    """Return data and arguments of a solve by case, as functions."""
    return {
        "gd, forming K": lambda: (noisy(7000, 7000), {"delta": 1e-3, "method": "gd"}),
        "gd, matrix-free": lambda: (noisy(20_000, 200), {"delta": 1e-3, "method": "gd"}),
        "sgd": lambda: (noisy(4000, 400), {"delta": 1e-9, "method": "sgd", "rng": 0}),
        "cg, many rows": lambda: (noisy(30_000, 250), {"delta": 3.9, "method": "cg"}),
        "cg, factor": lambda: (noisy(14_000, 180), {"delta": 1e-9, "method": "cg"}),
        "minimax, delta": lambda: (noisy(6000, 80), {"delta": 0.5, "method": "minimax"}),
        "minimax, large": lambda: (noisy(20_000, 160), {"delta": 0.5, "method": "minimax"}),
        "minimax, few rows": lambda: (noisy(5000, 140), {"method": "minimax"}),
        "no delta": lambda: (noisy(10_000, 100), {}),
        "auto, infeasible": lambda: (noisy(12_000, 100), {"delta": 0.5}),
        "psd, delta": lambda: (noisy(25_000, 200), {"delta": 2.6, "psd": True}),
        "psd, interior": lambda: (noisy(4900, 50), {"delta": 2.1, "psd": True}),
        "psd, no delta": lambda: (noisy(4500, 90), {"psd": True}),
        "psd, no delta, many": lambda: (noisy(20_000, 200), {"psd": True}),
        "psd, large n": lambda: (noisy(3000, 900), {"delta": 1e-3, "psd": True}),
        "rank": lambda: (noisy(20_000, 500, rank=3), {"delta": 0.5, "rank": 3, "rng": 0}),
        "rank, few rows": lambda: (
            noisy(700, 150, rank=3, noise=0.0),
            {"delta": 1e-3, "rank": 2, "rng": 0},
        ),
        "rank, auto": lambda: (noisy(8000, 200, rank=9), {"delta": 0.1, "rank": "auto", "rng": 0}),
        "allow_violations": lambda: (
            noisy(3000, 60),
            {"delta": 0.5, "allow_violations": 20},
        ),
        "allow_violations, psd": lambda: (
            noisy(2000, 40),
            {"delta": 0.5, "allow_violations": 20, "psd": True},
        ),
        "wide": lambda: (noisy(4000, 12_000), {"delta": 1e-3}),
        "wide, contradictory": lambda: (twice(1500, 12_000), {"delta": 1e-3}),
        "wide, psd": lambda: (twice(1500, 12_000), {"delta": 1e-3, "psd": True}),
        "complex, infeasible": lambda: (noisy(9000, 64, complex_=True), {"delta": 0.5}),
        **questions_by_shape(),
    }


def twice(m, n):
    """Return every row twice, with contradictory readings."""
    U, b = noisy(m // 2, n)
    return np.vstack([U, U]), np.concatenate([b, b + 1.0])


def child(case, limit, cpu):
    """Solve once, and print how it ended."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    if cpu:
        time.perf_counter = time.process_time  # which the clock of a solve reads
    (U, b), arguments = cases()[case]()
    p = quadsense.datasets.gaussian(4, 8, seed=0)
    asked = {name: value for name, value in arguments.items() if name != "delta"}
    if "allow_violations" in asked:
        asked["allow_violations"] = 1
    quadsense.solve(p.U, p.b, delta=0.1 if "delta" in arguments else None, max_iter=3, **asked)
    print("ready", flush=True)
    sys.stdin.readline()
    begin, worked = time.perf_counter(), time.process_time()
    try:
        found = quadsense.solve(U, b, time_limit=limit, **arguments)
    except KeyboardInterrupt as error:
        found = getattr(error, "result", None)
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    status, parts = "lost", {}
    if found is not None:
        status, parts = str(found.status) + "*" * bool(found.optimal), found.timings
    print(json.dumps([seconds, worked, status, parts]), flush=True)
    os._exit(0)


def measured(case, limit, cpu):
    """Return the seconds that a solve took, those of CPU time, how it ended, and its timings.

    Without a limit the seconds are those from Ctrl-C on.
    """
    command = [sys.executable, __file__, "--child", case]
    if limit:
        command += ["--limits", str(limit)]
    if cpu:
        command.append("--cpu")
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n"
    begin = time.perf_counter()
    process.stdin.write("go\n")
    process.stdin.flush()
    if not limit:
        time.sleep(PRESS_AFTER)
        process.send_signal(signal.SIGINT)
    out, ended = "", "lost"
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        ended = "killed"
    seconds, worked, status, parts = time.perf_counter() - begin, math.nan, ended, {}
    if out:
        seconds, worked, status, parts = json.loads(out)
        if sum(parts.values()) < 0.9 * seconds - 0.005:
            status += f" (timings {sum(parts.values()):.2f} of {seconds:.2f} s)"
    return seconds - (0.0 if limit else PRESS_AFTER), worked, status, parts


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--limits", type=float, nargs="*", default=[0.1, 1.0, 5.0, 0.0])
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--child")
    given = parser.parse_args()
    if given.child:
        child(given.child, given.limits[0] if len(given.limits) == 1 else None, given.cpu)
        return
    print("seconds of a solve, in brackets those of CPU time, and its status (*: certified), by")
    print(f"time_limit{' in CPU time' * given.cpu}; !: more than allowed")
    heads = [f"{limit:g} s" if limit else "Ctrl-C" for limit in given.limits]
    print(f"{'':32}" + "".join(f"{head:>27}" for head in heads), flush=True)
    worst = 0.0
    for case in cases():
        if given.cases and not {case, case.split(",")[0]} & set(given.cases):
            continue
        line, slow = f"{case:32}", {}
        for limit in given.limits:
            seconds, worked, status, parts = measured(case, limit, given.cpu)
            beyond = seconds - limit
            over = beyond > max(ALLOWED_SECONDS, ALLOWED_SHARE * limit)
            line += f"{seconds:8.2f}{'!' if over else ' '}({worked:5.2f}) {status:11}"
            worst = max(worst, beyond)
            slow = parts if over else slow
        shown = ", ".join(f"{part} {seconds:.2f}" for part, seconds in slow.items())
        print(line.rstrip() + f"  ({shown})" * bool(slow), flush=True)
    print(f"largest excess: {worst:.2f} s")


if __name__ == "__main__":
    main()
