"""What the plan promises against what a solve takes: time, and with --memory the peak.

    python benchmarks/plans.py [--all] [--memory]

The works of `peers.py`, n = 64 and m = 46,656 complex (every Pauli measurement of six qubits), and
a line for each method that none of these uses. Rates are measured first, with one BLAS thread;
solves run in the untouched environment: seconds of the processor, the smallest of several runs. A
line is kept when predicted and measured are within a factor of five of each other; "unknown"
promises nothing, and is followed by what each method would take by itself. What is predicted to
take more than two minutes is left out unless --all is given. With --memory each work is solved once
more under `tracemalloc`: bytes that NumPy took at most, without U and what the interpreter holds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from peer_solvers import Data, gaussian, low_rank, noisy
from peers import WORKS
from task_list import say_threads
from threadpoolctl import threadpool_limits

import quadsense
from quadsense.system.machine import Rates, cache_path, known_rates

WITHIN = 5.0
LONG = 120.0


@dataclass(frozen=True)
class Work:
    """A line: data, and what is asked of them."""

    name: str
    make: Callable[[], Data]
    options: dict[str, Any]
    change: Callable[[Any], Any] = lambda U: U


def qubits(noise: float = 0.01) -> Data:
    """Complex unit rows, n = 64 and m = 46,656, with Gaussian errors."""
    rng = np.random.default_rng(0)
    n, m = 64, 46_656
    U = rng.standard_normal((m, n)) + 1j * rng.standard_normal((m, n))
    U /= np.linalg.norm(U, axis=1)[:, None]
    X = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1) / n + noise * rng.standard_normal(m)
    return Data(U, b, 6.0 * noise)


def scattered(n: int, m: int, density: float) -> Data:
    """Sparse rows, read exactly."""
    rng = np.random.default_rng(0)
    U = sp.csr_array(np.where(rng.random((m, n)) < density, rng.standard_normal((m, n)), 0.0))
    b = np.asarray(U.multiply(U) @ rng.uniform(0.0, 1.0, n))
    return Data(U, b, 1e-2 * float(b.max()))


def orthonormal(n: int, m: int, delta: float) -> Data:
    """Orthonormal rows."""
    p = quadsense.datasets.orthonormal(n, m, seed=0)
    return Data(p.U, p.b, delta)


def works() -> Iterator[Work]:
    """All lines."""
    for work in WORKS:
        options = {"psd": {"psd": True}}.get(work.group, {})
        yield Work(f"{work.group}: {work.name}", work.make, options)
    yield Work("n=64 m=46656 complex, no delta", qubits, {"delta": None})
    yield Work("n=64 m=46656 complex, delta", qubits, {})
    yield Work("n=64 m=46656 complex, psd", qubits, {"psd": True})
    yield Work("n=30 m=200 1e-2", partial(gaussian, 30, 200, 1e-2), {})
    yield Work("closed_form: n=m=500", partial(orthonormal, 500, 500, 0.02), {})
    for method in ("gd", "sgd"):
        yield Work(f"{method}: n=m=500", partial(orthonormal, 500, 500, 0.02), {"method": method})
        make = partial(gaussian, 60, 500, 1e-2)
        yield Work(f"{method}: n=60 m=500", make, {"method": method})
    make = partial(gaussian, 300, 6000, 1e-2)
    yield Work("rows of other norms: n=300 m=6000", make, {}, lambda U: 3.0 * U)
    yield Work("float32: n=300 m=6000", make, {}, lambda U: U.astype(np.float32))
    yield Work("sparse: n=400 m=3000", partial(scattered, 400, 3000, 0.02), {})
    yield Work("sparse, wide: n=5000 m=1000", partial(scattered, 5000, 1000, 0.002), {})
    yield Work("wide: n=2000 m=100", partial(gaussian, 2000, 100, 1e-2), {})
    yield Work("psd, no delta: n=12 m=300", partial(noisy, 12, 300, 1e-2), {"psd": True})
    yield Work("rank auto: n=80 m=1600", partial(low_rank, 80, 1600, 3, 1e-6), {"rank": "auto"})


def solver(work: Work) -> tuple[Callable[[], quadsense.Result], dict[str, Any]]:
    """The solve of a work, and its plan."""
    data = work.make()
    U = work.change(data.U)
    delta = data.delta if np.isfinite(data.delta) else None
    options = {"delta": delta, "rank": data.rank, "rng": 0, **work.options}
    run = partial(quadsense.solve, U, data.b, **options)
    return run, run(max_iter=0).plan


def clock(run: Callable[[], quadsense.Result]) -> tuple[float, quadsense.Result]:
    """Seconds of the processor, the smallest of several runs, and the answer."""
    times: list[float] = []
    while len(times) < 5 and sum(times) < 3.0:
        begin = time.process_time()
        result = run()
        times.append(time.process_time() - begin)
    return min(times), result


def peak(run: Callable[[], quadsense.Result]) -> int:
    """Bytes that a solve takes at most."""
    tracemalloc.start()
    run()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def measured_rates() -> Rates:
    """As `machine` measures them, but by the processor's clock, and for this process alone."""
    A, K, v = np.ones((800, 800)), np.ones((4000, 4000)), np.ones(4000)

    def smallest(call: Callable[[], Any]) -> float:
        times = []
        for _ in range(8):
            begin = time.process_time()
            call()
            times.append(time.process_time() - begin)
        return min(times)

    rates = {"flops": 2.0 * 800**3 / smallest(lambda: A @ A)}
    rates["bytes"] = K.nbytes / smallest(lambda: K @ v)
    cache_path().write_text(json.dumps(rates), encoding="utf-8")
    return known_rates()


def verdict(predicted: float | None, measured: float) -> str:
    """The ratio, and whether it is within bounds."""
    if predicted is None:
        return "unknown"
    ratio = predicted / measured
    return f"{ratio:8.2f}  {'kept' if 1 / WITHIN <= ratio <= WITHIN else 'MISSED'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="also what takes minutes")
    parser.add_argument("--memory", action="store_true", help="also the peak of memory")
    options = parser.parse_args()
    say_threads()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["QUADSENSE_CACHE"] = folder
        with threadpool_limits(1):
            rates = measured_rates()
        print(f"{rates.flops:.2g} flops and {rates.bytes:.2g} bytes per second, one thread")
        print(f"{'work':<44} {'predicted':>10} {'measured':>10} {'ratio':>8}")
        for work in works():
            run, plan = solver(work)
            promised = plan["seconds"]
            expected = promised or max(each or 0.0 for each in plan["times"].values())
            if expected > LONG and promised is not None and not options.all:
                print(f"{work.name:<44} {promised:>9.4f}s    left out", flush=True)
                continue
            measured, result = clock(run)
            shown = "unknown" if promised is None else f"{promised:.4f}s"
            line = f"{work.name:<44} {shown:>10} {measured:>9.4f}s {verdict(promised, measured)}"
            if promised is None:
                each = {name: s and round(s, 4) for name, s in plan["times"].items()}
                line += f" {each}, ended by {result.plan['method']}"
            if options.memory:
                taken = peak(run)
                line += f"  {plan['memory'] / 1e6:.1f} of {taken / 1e6:.1f} MB"
                line += f" ({plan['memory'] / taken:.2f}x)"
            print(f"{line}  {result.status}, {result.n_iter} steps", flush=True)


if __name__ == "__main__":
    main()
