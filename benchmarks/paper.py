"""The printed algorithms against ours: same iterates, ratios from one run.

``make bench-paper``. Literal means as printed, dense A in every iteration, written with BLAS; it is
timed over a fixed number of iterations. Compilation happens before any clock starts.
"""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

import quadsense
from quadsense.measurements.gram import gram_form, make_gram
from quadsense.methods import METHODS, Problem


def best_time(call, repeats=5):
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def literal_gd(U, b, lam, eps, steps):
    A = b.max() * np.eye(U.shape[1])
    for _ in range(steps):
        z = np.einsum("ij,ij->i", U @ A, U) - b
        x = lam * z
        s = np.sign(x) * np.exp(np.abs(x) - np.abs(x).max()) * -np.expm1(-2 * np.abs(x))
        gradient = (U.T * s) @ U
        A -= (eps / np.linalg.norm(gradient)) * gradient
    return A


def literal_sgd(U, b, lam, eps, steps, size):
    m = len(b)
    rng = np.random.default_rng(0)
    A = b.max() * np.eye(U.shape[1])
    z = np.einsum("ij,ij->i", U @ A, U) - b
    for _ in range(steps):
        batch = rng.choice(m, size, replace=False)
        x = lam * z
        s = np.sign(x) * np.exp(np.abs(x) - np.abs(x).max()) * -np.expm1(-2 * np.abs(x))
        eta = eps * m / size / np.sqrt(s @ s)
        V = U[batch]
        A -= eta * ((V.T * s[batch]) @ V)
        z[batch] -= eta * s[batch]
    return A


def stepper(U, b, delta, method, **options):
    """Function that takes that many steps with the paper's constants, and its start."""
    data = quadsense.Measurements(U, b, delta=delta)
    scaled = data.scaled()
    m, n = U.shape
    problem = Problem(
        rows=data.unit_rows,
        gram=make_gram(data.unit_rows, gram_form(m, n, data.orthonormal)[0]),
        b=scaled.b,
        delta=scaled.delta,
        tau=float(scaled.b.max()),
        options=METHODS.traits(method).options(schedule="paper", **options),
        seed=0,
    )
    solver = METHODS[method]()
    program = solver.prepare(problem)
    start = solver.start(program)
    solver.advance(program, start, 2)  # compile
    return lambda steps: solver.advance(program, start, steps), start


def speedups():
    n = m = 500
    p = quadsense.datasets.orthonormal(n, m, seed=0)
    rows = []
    for method, options, literal, count in (
        ("gd", {}, literal_gd, 40),
        ("sgd", {"batch_size": 10}, lambda *a: literal_sgd(*a, 10), 1000),
    ):
        run, start = stepper(p.U, p.b, 0.01, method, **options)
        lam = start.sharpness / 0.01
        eps = start.c / lam * options.get("batch_size", m) / m
        printed = best_time(partial(literal, p.U, p.b, lam, eps, count), 3) / count
        lean = best_time(partial(run, 20_000)) / 20_000
        name = f"{method}, orthonormal, n = m = 500" + (", B = 10" if options else "")
        rows.append((name, printed, lean, printed / lean))
    p = quadsense.datasets.near_orthogonal(n, m, seed=0)
    run, start = stepper(p.U, p.b, 0.01, "gd")
    lam = start.sharpness / 0.01
    printed = best_time(lambda: literal_gd(p.U, p.b, lam, start.c / lam, 40), 3) / 40
    lean = best_time(lambda: run(500)) / 500
    rows.append(("gd, general rows (K formed), n = m = 500", printed, lean, printed / lean))
    return rows


def cost_a_sample():
    times = []
    for n in (100, 2000):
        p = quadsense.datasets.orthonormal(n, 100, seed=0)
        run, _ = stepper(p.U, p.b, 1e-4, "sgd", batch_size=1)
        times.append(best_time(partial(run, 300_000)) / 300_000)
    return times


def whole_solve():
    p = quadsense.datasets.orthonormal(1000, 1000, seed=0)
    c = np.random.default_rng(0).standard_normal(1000)
    product = best_time(lambda: (p.U.T * c) @ p.U, 15)
    quadsense.solve(p.U, p.b, delta=1e-3, method="gd")
    solve = best_time(lambda: quadsense.solve(p.U, p.b, delta=1e-3, method="gd"), 15)
    return product, solve


WIDE = """
import json, resource, sys, time
import numpy as np, quadsense
U, b = np.load(sys.argv[1]), np.load(sys.argv[2])
begin = time.perf_counter()
result = quadsense.solve(U, b, delta=1e-3, method="gd")
print(json.dumps({
    "seconds": time.perf_counter() - begin, "status": str(result.status),
    "gram": result.plan["gram"],
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "U": U.nbytes,
}))
"""


def wide_solve():
    """n = 100,000, m = 500 in a process of its own, for its peak memory."""
    p = quadsense.datasets.gaussian(100_000, 500, rank=5, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        for name, values in (("U", p.U), ("b", p.b)):
            np.save(Path(folder) / f"{name}.npy", values)
        done = subprocess.run(
            [sys.executable, "-c", WIDE, f"{folder}/U.npy", f"{folder}/b.npy"],
            check=True,
            capture_output=True,
            text=True,
        )
    return json.loads(done.stdout)


def main():
    print("Literal over lean, time per iteration (paper's constants, delta = 0.01):")
    for name, printed, lean, ratio in speedups():
        print(f"  {name:<42} {printed * 1e6:9.1f} us / {lean * 1e6:8.3f} us = {ratio:8,.0f}x")
    small, large = cost_a_sample()
    print("SGD, orthonormal, B = 1, m = 100: time per sample, n = 2000 over n = 100:")
    print(f"  {large * 1e9:.1f} ns / {small * 1e9:.1f} ns = {large / small:.2f}")
    product, solve = whole_solve()
    print("gd with continuation, orthonormal, n = m = 1000, delta = 1e-3, certificate included,")
    print("over one (U.T * c) @ U:")
    print(f"  {solve * 1e3:.1f} ms / {product * 1e3:.1f} ms = {solve / product:.2f}")
    wide = wide_solve()
    allowed = 1.5 * wide["U"] + 300e6
    print("n = 100,000, m = 500, general rows, delta = 1e-3: peak memory of the whole process")
    print(
        f"  {wide['status']} in {wide['seconds']:.2f} s (K {wide['gram']}), "
        f"{wide['peak'] / 1e6:.0f} MB, U is {wide['U'] / 1e6:.0f} MB; "
        f"1.5 U + 300 MB = {allowed / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
