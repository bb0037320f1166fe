"""How long a report takes and how large it is: ``python benchmarks/report.py``.

n = 200, m = 5000: under 2 s and under 300 kB. The check against the data is part of it.
"""

import argparse
import time

import quadsense


def measure(n: int, m: int, **options: object) -> tuple[str, float, int]:
    """Status, seconds (the best of three) and bytes."""
    p = quadsense.datasets.gaussian(n=n, m=m, rank=4, noise=0.01, seed=0)
    result = quadsense.solve(p.U, p.b, **options)
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        page = result.report().html()
        best = min(best, time.perf_counter() - begun)
    return str(result.status), best, len(page.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller problem")
    n, m = (40, 1000) if parser.parse_args().quick else (200, 5000)
    for options in ({"delta": 0.05, "prefer": "any"}, {"delta": 0.05, "rank": 4}):
        status, seconds, size = measure(n, m, **options)
        print(f"n = {n}, m = {m}, {options}: {status}, {seconds:.2f} s, {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
