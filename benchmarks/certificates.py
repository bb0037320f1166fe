"""CPU seconds that certificates take: to write, next to `verify`, and to check in exact arithmetic.

To write includes the check of the claim and the file. The last number is its ratio to a check and
two of `verify`.

python benchmarks/certificates.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import quadsense
import quadsense_check as checker

SIZES = ((50, 2000), (100, 6000))


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return CPU seconds of the faster of two runs, and what came of it."""
    found = []
    for _ in range(2):
        start = time.process_time()
        value = run()
        found.append(time.process_time() - start)
    return min(found), value


def cases(n: int, m: int) -> dict[str, tuple[quadsense.Measurements, dict[str, Any]]]:
    """Return a fit, a positive semidefinite fit and a contradiction of each kind."""
    rng = np.random.default_rng([n, m])
    U = rng.standard_normal((m, n))
    X = rng.standard_normal((n, 3))
    b = np.sum((U @ X) ** 2, axis=1)
    wrong = b.copy()
    wrong[: m // 2] *= -1.0
    fits = quadsense.Measurements(U, b + rng.uniform(-0.01, 0.01, m), delta=0.05)
    none = quadsense.Measurements(U, wrong, delta=0.05)
    return {
        "met": (fits, {}),
        "met, psd": (fits, {"psd": True}),
        "infeasible": (none, {}),
        "infeasible, psd": (none, {"psd": True}),
    }


def main() -> None:
    """Print a line for each size and claim."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the smaller size alone")
    sizes = SIZES[:1] if parser.parse_args().quick else SIZES
    head = f"{'verify':>7} {'write':>7} {'check':>7} {'ratio':>6}"
    print(f"{'n':>4} {'m':>5}  {'claim':16} {head}  what it says")
    path = Path(tempfile.mkdtemp()) / "c.json"
    for n, m in sizes:
        for name, (data, asked) in cases(n, m).items():
            result = quadsense.solve(data, prefer="any", **asked)
            verify, _ = seconds(lambda result=result, data=data: result.certificate.verify(data))
            write, _ = seconds(lambda result=result: result.save_certificate(path))
            text = path.read_text()
            check, (_, words) = seconds(lambda text=text: checker.check(json.loads(text)))
            ratio = write / (check + 2.0 * verify)
            line = f"{verify:7.2f} {write:7.2f} {check:7.2f} {ratio:6.2f}  {words[:60]}"
            print(f"{n:4} {m:5}  {name:16} {line}", flush=True)


if __name__ == "__main__":
    main()
