"""Least squares where intervals bind, and the nearest matrix, next to the interior-point method.

    python benchmarks/band.py [--quick] [--repeats 3] [--slow]

Readings have uniform errors as large as the tolerance. Each line has the default call (`consensus`
after `cg`, or `consensus` alone over the cone) and the same with ``method="conic"``, in turn: CPU
time, the smallest of the repeats, and the relative gap that was proved. `--slow` also runs `conic`
where it takes half a minute and more. The last lines are ``prefer="nearest"`` of exact readings.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import quadsense

BAND = ((60, 4400), (60, 15_000), (100, 12_000), (150, 15_000))
NEAREST = ((100, 800), (60, 1500), (200, 1600))
MOST_FOR_CONIC = 60


def uniform(n: int, m: int, psd: bool) -> tuple[Any, Any, float]:
    """Rows, readings and a tolerance, which their errors reach."""
    rng = np.random.default_rng(0)
    U, X = rng.standard_normal((m, n)), rng.standard_normal((n, n))
    A = X @ X.T / n if psd else X + X.T
    v = np.einsum("ij,ij->i", U @ A, U)
    delta = 0.05 * float(np.std(v))
    return U, v + rng.uniform(-delta, delta, m), delta


def exact(n: int, m: int) -> tuple[Any, Any, float]:
    """Rows, exact readings and a small tolerance."""
    rng = np.random.default_rng(0)
    U, X = rng.standard_normal((m, n)), rng.standard_normal((n, n))
    return U, np.einsum("ij,ij->i", U @ (X + X.T), U), 1e-3


def timed(U: Any, b: Any, delta: float, repeats: int, **asked: Any) -> str:
    """CPU time, method, steps and gap in words."""
    best, result = np.inf, None
    for _ in range(repeats):
        begin = time.process_time()
        result = quadsense.solve(U, b, delta=delta, **asked)
        best = min(best, time.process_time() - begin)
    assert result is not None
    lower, upper = result.objective_bounds or (np.nan, np.nan)
    method = f"{result.plan['method']}, {result.n_iter} steps"
    return f"{1e3 * best:9.1f} ms  {method:22s} {result.status} gap {(upper - lower) / upper:.1e}"


def main() -> None:
    """Print a line per problem and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    quadsense.solve(*uniform(8, 60, False)[:2], delta=1.0)  # imports
    for n, m in BAND[:1] if given.quick else BAND:
        for psd in (False, True):
            U, b, delta = uniform(n, m, psd)
            asked = {"psd": psd, "prefer": "least_squares"}
            what = f"{n} x {m}{' psd' if psd else ''}"
            print(f"{what:18s} {timed(U, b, delta, given.repeats, **asked)}", flush=True)
            if n <= MOST_FOR_CONIC or given.slow:
                print(f"{'':18s} {timed(U, b, delta, 1, **asked, method='conic')}", flush=True)
    for n, m in NEAREST[:1] if given.quick else NEAREST:
        U, b, delta = exact(n, m)
        for more in ({}, {"method": "conic"}):
            line = timed(U, b, delta, given.repeats, prefer="nearest", **more)
            print(f"{f'{n} x {m} nearest':18s} {line}", flush=True)


if __name__ == "__main__":
    main()
