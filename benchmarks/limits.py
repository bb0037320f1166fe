"""How far beyond `time_limit` a solve goes, and how long it takes to react to Ctrl-C.

Every road is run, at sizes that take some twenty seconds or more without limits, each solve in a
process of its own: with ``time_limit`` 0.1, 1 and 5 s, and without one, with SIGINT after 2 s. At
most 0.5 s beyond are wanted. Data are made, and what is compiled is compiled, before the clock
starts.

    python benchmarks/limits.py [ROAD ...]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np

import quadsense

WANTED = 0.5
PRESS_AFTER = 2.0
PATIENCE = 120.0


def noisy(m, n, seed=0, complex_=False, rank=None, noise=1.0):
    """Rows, and noisy readings of a positive semidefinite matrix of trace n."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n))
    rank = rank or min(n, 300)  # as good as full, where data are to be made in seconds
    X = rng.standard_normal((n, rank)) / np.sqrt(rank)
    if complex_:
        U = U + 1j * rng.standard_normal((m, n))
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    return U, b + noise * rng.standard_normal(m)


def roads():
    """Data and arguments of a solve by road, made when asked for."""
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
    }


def twice(m, n):
    """Every row given twice, with contradictory readings."""
    U, b = noisy(m // 2, n)
    return np.vstack([U, U]), np.concatenate([b, b + 1.0])


def child(road, limit):
    """One solve; prints what became of it when it is over."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    (U, b), arguments = roads()[road]()
    p = quadsense.datasets.gaussian(4, 8, seed=0)
    warmup = {name: arguments[name] for name in ("method", "psd") if name in arguments}
    quadsense.solve(p.U, p.b, delta=0.1, max_iter=3, **warmup)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    try:
        found = quadsense.solve(U, b, time_limit=limit, **arguments)
    except KeyboardInterrupt as error:
        found = getattr(error, "result", None)
    seconds = time.perf_counter() - begin
    status = "lost" if found is None else str(found.status)
    total = 0.0 if found is None else sum(found.timings.values())
    parts = {} if found is None else found.timings
    print(json.dumps([seconds, status, total, parts]), flush=True)
    os._exit(0)


def measured(road, limit):
    """Seconds that a solve took beyond its limit, or to react to Ctrl-C, and how it ended."""
    command = [sys.executable, __file__, "--child", road]
    if limit is not None:
        command += ["--limit", str(limit)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n"
    begin = time.perf_counter()
    process.stdin.write("go\n")
    process.stdin.flush()
    if limit is None:
        time.sleep(PRESS_AFTER)
        process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return time.perf_counter() - begin - (limit or PRESS_AFTER), "killed", {}
    if not out:
        return time.perf_counter() - begin - (limit or PRESS_AFTER), "lost", {}
    seconds, status, total, parts = json.loads(out)
    if total < 0.9 * seconds - 0.005:
        status += f" (timings {total:.2f} of {seconds:.2f} s)"
    return seconds - (PRESS_AFTER if limit is None else limit), status, parts


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("roads", nargs="*")
    parser.add_argument("--child")
    parser.add_argument("--limit", type=float)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.limit)
        return
    print(f"{'seconds beyond the limit, at most ' + str(WANTED) + ' wanted':40}", end="")
    print(f"{'0.1 s':>8}{'1 s':>8}{'5 s':>8}{'Ctrl-C':>8}  ended")
    worst = 0.0
    for road in given.roads or roads():
        line, ends, slow = f"{road:40}", [], {}
        for limit in (0.1, 1.0, 5.0, None):
            beyond, status, parts = measured(road, limit)
            # A solve that ended before its limit was not stopped by it.
            line += f"{beyond:8.2f}" if beyond > -0.3 else f"{'-':>8}"
            ends.append(status)
            worst = max(worst, beyond)
            if beyond > WANTED:
                slow = parts
        print(f"{line}  {', '.join(dict.fromkeys(ends))}", end="")
        print(f"  { ({k: round(v, 2) for k, v in slow.items()}) }" if slow else "", flush=True)
    print(f"worst: {worst:.2f} s")


if __name__ == "__main__":
    main()
