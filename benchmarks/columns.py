"""Columns of different sizes: the error of the default, and what another unit of length costs.

    python benchmarks/columns.py [--seeds 10] [--repeats 7]

First table: 14 columns whose sizes differ by up to 30, uniform noise of 10% of the readings' root
mean square, the tolerance as wide; the relative error of A in coordinates in which the columns are
alike, and that of the same problem handed over in these coordinates. Second table: 60 and 800
distances to one place in the plane, with positions in units of 30 m, in meters and in millimeters;
milliseconds of CPU time (median), and by how much the place that is found differs from that of the
first unit. An earlier revision on PYTHONPATH prints its own figures.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import quadsense

N_COLUMNS = 14
UNKNOWNS = N_COLUMNS * (N_COLUMNS + 1) // 2
SPREAD = 30.0
NOISE = 0.1
UNITS = {"30 m": 30.0, "m": 1.0, "mm": 1e-3}


def errors(ratio: float, seed: int) -> tuple[float, float, float]:
    """Relative errors as given and with columns alike, and seconds of the former."""
    rng = np.random.default_rng(seed)
    m = int(ratio * UNKNOWNS)
    sizes = SPREAD ** rng.uniform(0.0, 1.0, N_COLUMNS)
    sizes[:2] = 1.0, SPREAD
    G = rng.standard_normal((N_COLUMNS, N_COLUMNS))
    A, U = G + G.T, rng.standard_normal((m, N_COLUMNS))
    z = np.einsum("ij,jk,ik->i", U, A, U)
    delta = NOISE * float(np.sqrt(np.mean(z * z)))
    b = z + delta * rng.uniform(-1.0, 1.0, m)
    start = time.process_time()
    found = quadsense.solve(U * sizes, b, delta=delta)
    seconds = time.process_time() - start
    alike = quadsense.solve(U, b, delta=delta)
    size = float(np.linalg.norm(A))
    return (
        float(np.linalg.norm(found.A * np.outer(sizes, sizes) - A)) / size,
        float(np.linalg.norm(alike.A - A)) / size,
        seconds,
    )


def located(m: int, unit: float, psd: bool, repeats: int) -> tuple[np.ndarray, float, str]:
    """The place that is found, in meters, the median time, and whether it is certified."""
    rng = np.random.default_rng(1)
    place, positions = np.array([12.0, 35.0]), rng.uniform(-40.0, 80.0, (m, 2))
    distances = np.linalg.norm(positions - place, axis=1) + rng.uniform(-0.3, 0.3, m)
    U = np.column_stack([positions / unit, np.ones(m)])
    bounds = tuple((np.maximum(distances + side, 0.0) / unit) ** 2 for side in (-0.4, 0.4))
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        found = quadsense.solve(U, bounds=bounds, psd=psd)
        seconds.append(time.process_time() - start)
    where = -found.A[:2, 2] / found.A[0, 0] * unit
    return where, float(np.median(seconds)), "certified" if found.optimal else "not certified"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    quadsense.solve(np.eye(2), [1.0, 2.0], delta=0.1)
    print(f"{N_COLUMNS} columns that differ by {SPREAD:g}, {arguments.seeds} seeds: mean error")
    print(f"{'m/N':>6} {'as given':>10} {'alike':>10} {'ms':>8}")
    for ratio in (0.5, 1.0, 1.2, 2.0, 4.0):
        given, alike, seconds = np.mean(
            [errors(ratio, seed) for seed in range(arguments.seeds)], axis=0
        )
        print(f"{ratio:>6g} {given:>10.3f} {alike:>10.3f} {1e3 * seconds:>8.1f}")
    print("\ndistances to one place")
    print(f"{'m':>6} {'psd':>6} {'unit':>6} {'ms':>8} {'moved by':>10}")
    for m in (60, 800):
        for psd in (False, True):
            first = None
            for name, unit in UNITS.items():
                where, seconds, said = located(m, unit, psd, arguments.repeats)
                first = where if first is None else first
                moved = float(np.linalg.norm(where - first))
                print(f"{m:>6} {psd!s:>6} {name:>6} {1e3 * seconds:>8.1f} {moved:>8.4f} m   {said}")


if __name__ == "__main__":
    main()
