"""CPU seconds that certificates take: to write, next to `verify`, and to check in exact arithmetic.

python benchmarks/certificates.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import quadsense
import quadsense_check as checker
from quadsense import certificates

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
    print(f"{'n':>4} {'m':>5}  {'claim':16} {'verify':>7} {'write':>7} {'check':>7}  what it says")
    for n, m in sizes:
        for name, (data, asked) in cases(n, m).items():
            result = quadsense.solve(data, prefer="any", **asked)
            verify, _ = seconds(lambda result=result, data=data: result.certificate.verify(data))
            write, held = seconds(
                lambda result=result: certificates.fields_of(result.certificate, None, False)
            )
            text = json.dumps(held)
            check, (_, words) = seconds(lambda text=text: checker.check(json.loads(text)))
            line = f"{n:4} {m:5}  {name:16} {verify:7.2f} {write:7.2f} {check:7.2f}  {words[:60]}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
