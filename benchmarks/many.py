"""Many problems with the same probes: how many per second, next to what else there is.

    python benchmarks/many.py [--problems 100000] [--repeats 3] [--wall]

All times are CPU seconds of one thread, the smallest of the repeats, both sides in one run; wall
time is asked for in the line of two threads alone. Compiled loops are loaded before the clock
starts. "A loop at f95ed47" is one over `solve` of that revision, before there was `solve_many`, in
a process of its own. Lines about DIPY are left out where it is not installed (pip install dipy).
"""

from __future__ import annotations

import argparse
import itertools
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from task_list import Server, checked_out
from threadpoolctl import threadpool_limits

import quadsense

BEFORE = "f95ed47"
LOOPED = 50
"""Problems that are solved one after the other by that revision."""

EARLIER_LOOP = """
import json, sys, time
import numpy as np
import quadsense

for line in sys.stdin:
    U, B, asked = json.loads(line)
    U, B = np.array(U), np.array(B)
    quadsense.solve(U, B[0], **asked)
    begin = time.process_time()
    for b in B:
        quadsense.solve(U, b, **asked)
    print(json.dumps((time.process_time() - begin) / len(B)), flush=True)
"""


def seconds(work: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> float:
    """Return the smallest of several times."""
    work()
    found = []
    for _ in range(repeats):
        begin = clock()
        work()
        found.append(clock() - begin)
    return min(found)


def directions(m: int, seed: int = 0) -> np.ndarray:
    """Return m unit vectors in three dimensions."""
    U = np.random.default_rng(seed).standard_normal((m, 3))
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def tensors(k: int, thin: bool, seed: int = 1) -> np.ndarray:
    """Return k tensors of random directions, thin ones near the boundary of the cone."""
    values = np.array([1.7, 0.2, 0.02] if thin else [1.7, 0.6, 0.4])
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((k, 3, 3)))[0]
    return (Q * values) @ Q.swapaxes(1, 2)


def read(U: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return what each matrix reads."""
    return np.einsum("ia,kab,ib->ki", U.conj(), A, U, optimize=True).real


def pauli_rows(qubits: int) -> np.ndarray:
    """Return the outcomes of all Pauli settings."""
    one = [[1, 0], [0, 1], [1, 1], [1, -1], [1, 1j], [1, -1j]]
    one = [np.array(row) / np.linalg.norm(row) for row in one]
    rows = []
    for choice in itertools.product(one, repeat=qubits):
        row = np.ones(1, complex)
        for each in choice:
            row = np.kron(row, each)
        rows.append(row)
    return np.array(rows)


def line(name: str, count: int, own: float, peer: str = "", other: float = 0.0) -> None:
    """Print how many per second, and the ratio to the time of a peer for as many."""
    ratio = f"   {other / own * count:8.1f} x {peer}" if peer else ""
    print(f"{name:<52} {count / own:>10,.0f} per second{ratio}", flush=True)


def against_an_earlier_loop(k: int, repeats: int, clock: Callable[[], float]) -> None:
    """Time 3 by 3 matrices of which some are at the cone, next to a loop of an earlier revision."""
    U = directions(64)
    B = read(U, tensors(k, True)) + 0.05 * np.random.default_rng(2).standard_normal((k, 64))
    own = seconds(lambda: quadsense.solve_many(U, B, delta=0.3, psd=True), repeats, clock)
    with checked_out(BEFORE) as root:
        earlier = Server("-c", EARLIER_LOOP, PYTHONPATH=str(root / "src"), OPENBLAS_NUM_THREADS="1")
        for name, asked in (("default", {}), ("least squares", {"prefer": "least_squares"})):
            asked = {"delta": 0.3, "psd": True, **asked}
            each = earlier.ask(U.tolist(), B[:LOOPED].tolist(), asked)
            line(f"n = 3, m = 64, psd, fallback, {name}", k, own, f"a loop at {BEFORE}", each)


def tensors_per_second(k: int, repeats: int, clock: Callable[[], float]) -> None:
    """Time 3 by 3 matrices, next to a loop over `solve`."""
    U = directions(64)
    for thin in (False, True):
        B = read(U, tensors(k, thin))
        B += 0.05 * np.random.default_rng(2).standard_normal(B.shape)
        for name, asked in (
            ("delta", {"delta": 0.3}),
            ("weights of each reading", {"weights": np.broadcast_to(1.0 + B**2, B.shape)}),
        ):
            asked = {"psd": True, "fallback": False, **asked}
            own = seconds(lambda: quadsense.solve_many(U, B, **asked), repeats, clock)  # noqa: B023
            results = quadsense.solve_many(U, B, **asked)
            assert results.success.all()
            alone: dict[str, Any] = {"delta": 0.3, "psd": True, "prefer": "least_squares"}
            loop = seconds(
                lambda: [quadsense.solve(U, b, ridge=0, **alone) for b in B[:20]],  # noqa: B023
                1,
                clock,
            )
            share = f"n = 3, m = 64, psd, {name}, {results.corrected.mean():.0%} outside"
            line(share, k, own, "a loop over solve", loop / 20)


def beyond_the_cone(repeats: int, clock: Callable[[], float]) -> None:
    """Time what takes more than the cone, next to a loop over `solve`."""
    U, k = directions(64), 2000
    B = read(U, tensors(k, True)) + 0.05 * np.random.default_rng(2).standard_normal((k, 64))
    for name, asked in (
        ("intervals bind", {"delta": 0.13}),
        ("contradictory", {"delta": 0.07}),
        ("trace between two ends", {"trace": (1.0, 1.9)}),
        ("5 readings", {}),
    ):
        m = 5 if name == "5 readings" else 64
        rows, part, asked = U[:m], B[: 50 if m == 5 else k, :m], {"psd": True, **asked}
        own = seconds(lambda: quadsense.solve_many(rows, part, **asked), repeats, clock)  # noqa: B023
        results = quadsense.solve_many(rows, part, fallback=False, **asked)
        alone = {"prefer": "least_squares", "ridge": 0, **asked}
        loop = seconds(
            lambda: [quadsense.solve(rows, b, **alone) for b in part[:10]],  # noqa: B023
            1,
            clock,
        )
        share = results.counts().get("undecided", 0) / len(part)
        line(f"n = 3, psd, {name}, {share:.1%} by solve", len(part), own, "a loop", loop / 10)


def states_per_second(repeats: int, clock: Callable[[], float]) -> None:
    """Time states of two and three qubits, next to CVXPY with Clarabel."""
    import cvxpy as cp

    for qubits, k in ((2, 20_000), (3, 3_000)):
        U, n = pauli_rows(qubits), 2**qubits
        rng = np.random.default_rng(qubits)
        x = rng.standard_normal((k, n)) + 1j * rng.standard_normal((k, n))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        B = rng.binomial(200, np.clip(np.abs(x @ U.conj().T) ** 2, 0.0, 1.0)) / 200.0
        own = seconds(lambda: quadsense.solve_many(U, B, psd=True, trace=1.0), repeats, clock)  # noqa: B023
        results = quadsense.solve_many(U, B, psd=True, trace=1.0)
        assert results.success.all()
        A, b = cp.Variable((n, n), hermitian=True), cp.Parameter(len(U))
        maps = np.stack([np.outer(u, u.conj()).T.reshape(-1, order="F") for u in U])
        reads = cp.real(maps @ cp.vec(A, order="F"))
        cost = cp.Minimize(cp.sum_squares(reads - b))
        problem = cp.Problem(cost, [A >> 0, cp.real(cp.trace(A)) == 1])

        def peer(B: np.ndarray = B, b: Any = b, problem: Any = problem) -> None:
            for each in B[:10]:
                b.value = each
                problem.solve(solver="CLARABEL")

        other = seconds(peer, 1, clock)
        line(f"{qubits} qubits, m = {len(U)}, trace 1", k, own, "CVXPY, Clarabel", other / 10)


def clarabel_directly(U: np.ndarray, delta: float) -> Callable[[np.ndarray], Any]:
    """Return least squares over the cone within intervals by Clarabel itself, set up for U."""
    import clarabel
    import scipy.sparse as sp

    m, n = U.shape
    pairs = [(j, k) for k in range(n) for j in range(k + 1)]
    scale = np.array([1.0 if j == k else np.sqrt(2.0) for j, k in pairs])
    phi = np.stack([U[:, j] * U[:, k] for j, k in pairs], axis=1) * scale
    P = sp.triu(sp.csc_matrix(2.0 * phi.T @ phi), format="csc")
    rows = sp.csc_matrix(np.vstack([phi, -phi, -np.eye(len(pairs))]))
    cones = [clarabel.NonnegativeConeT(2 * m), clarabel.PSDTriangleConeT(n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False

    def solve(b: np.ndarray) -> Any:
        right = np.concatenate([b + delta, delta - b, np.zeros(len(pairs))])
        solver = clarabel.DefaultSolver(P, -2.0 * phi.T @ b, rows, right, cones, settings)
        return solver.solve()

    return solve


def one_after_the_other(repeats: int, clock: Callable[[], float]) -> None:
    """Time `prepare`, next to Clarabel called directly."""
    for n, m, k in ((4, 20, 100), (8, 60, 40), (16, 200, 4)):
        rng = np.random.default_rng(n)
        U = rng.standard_normal((m, n))
        X = rng.standard_normal((k, n, max(1, n // 2)))
        for name, delta in (("all met", 0.3), ("intervals bind", 0.101)):
            B = read(U, X @ X.swapaxes(1, 2)) + rng.uniform(-0.1, 0.1, (k, m))
            prepared = quadsense.prepare(U, delta=delta, psd=True)
            peer = clarabel_directly(U, delta)
            found = [prepared.solve(b) for b in B]
            bind = np.mean([answer.max_ratio > 0.99 for answer in found])
            solved = np.mean([answer.success for answer in found])
            own = seconds(lambda: [prepared.solve(b) for b in B], repeats, clock)  # noqa: B023
            other = seconds(lambda: [peer(b) for b in B], repeats, clock)  # noqa: B023
            words = f"prepare, n = {n}, m = {m}, {name} ({bind:.0%} bind, {solved:.0%} met)"
            line(words, k, own, "Clarabel", other / k)
    U = np.random.default_rng(0).standard_normal((400, 8))
    stream = quadsense.prepare(U[:60], np.ones(60), delta=1.0)
    rows = iter(np.tile(U, (400, 1)))
    each = seconds(lambda: [stream.append(next(rows), 1.0) for _ in range(100)], 5, clock)
    print(f"one more reading, n = 8: {each / 100 * 1e6:.1f} us", flush=True)


def in_dipy(repeats: int, clock: Callable[[], float]) -> None:
    """Time `dipy_fitter` inside DIPY, next to its own methods, on the data that it ships."""
    try:
        from dipy.core.gradients import gradient_table
        from dipy.data import get_fnames
        from dipy.io.gradients import read_bvals_bvecs
        from dipy.io.image import load_nifti
        from dipy.reconst.dti import TensorModel
    except ImportError:
        print("DIPY is not installed: its lines are left out")
        return
    from quadsense.diffusion import dipy_fitter

    image, values, vectors = get_fnames(name="small_64D")
    data = load_nifti(image)[0].astype(float)
    b, g = read_bvals_bvecs(values, vectors)
    g = np.nan_to_num(g) / np.maximum(np.linalg.norm(np.nan_to_num(g), axis=1, keepdims=True), 1e-9)
    table = gradient_table(b, bvecs=g)
    large = np.tile(data, (10, 1, 1, 1))
    ours = TensorModel(table, fit_method=dipy_fitter)
    own = seconds(lambda: ours.fit(large), repeats, clock)
    count = large[..., 0].size
    for name, part in (("WLS", large), ("NLLS", data[:5, :5, :5])):
        peer = TensorModel(table, fit_method=name)
        other = seconds(lambda: peer.fit(part), 1, clock)  # noqa: B023
        line("DIPY, small_64D, S^2 weights, ln S0", count, own, name, other / part[..., 0].size)


def thin_fibers() -> None:
    """Compare errors with those of DIPY's WLS where the cone counts, for a known truth."""
    try:
        from dipy.core.gradients import gradient_table
        from dipy.data import get_fnames
        from dipy.io.gradients import read_bvals_bvecs
        from dipy.reconst.dti import TensorModel
    except ImportError:
        return
    from quadsense.diffusion import dipy_fitter

    _, values, vectors = get_fnames(name="small_64D")
    b, g = read_bvals_bvecs(values, vectors)
    g = np.nan_to_num(g) / np.maximum(np.linalg.norm(np.nan_to_num(g), axis=1, keepdims=True), 1e-9)
    table, D = gradient_table(b, bvecs=g), 1e-3 * tensors(20_000, True)
    clean = 100.0 * np.exp(-b * read(g, D))
    rng = np.random.default_rng(0)
    for snr in (10, 20, 40):
        noise = 100.0 / snr * rng.standard_normal((2, *clean.shape))
        S = np.hypot(clean + noise[0], noise[1])
        ours, plain = (TensorModel(table, fit_method=f).fit(S) for f in (dipy_fitter, "WLS"))
        touched = dipy_fitter.results.corrected
        truth = np.linalg.eigvalsh(D)
        away = truth - truth.mean(axis=1, keepdims=True)
        fa = np.sqrt(1.5 * (away**2).sum(axis=1) / (truth**2).sum(axis=1))
        errors = [
            (np.linalg.norm(fit.quadratic_form - D, axis=(1, 2)), np.abs(fit.fa - fa))
            for fit in (ours, plain)
        ]
        ratios = [
            own[touched].mean() / other[touched].mean() for own, other in zip(*errors, strict=True)
        ]
        apart = np.abs(ours.quadratic_form - plain.quadratic_form)[~touched].max() / 1e-3
        print(
            f"thin fibers, SNR {snr}: {touched.mean():.0%} outside, tensor error {ratios[0]:.3f}, "
            f"FA error {ratios[1]:.3f} of WLS; elsewhere equal to {apart:.0e}",
            flush=True,
        )


def two_threads(k: int, repeats: int) -> None:
    """Compare the wall times of one and two threads."""
    U = directions(64)
    B = read(U, tensors(k, True)) + 0.05 * np.random.default_rng(2).standard_normal((k, 64))
    times = []
    for count in (1, 2):
        with threadpool_limits(count):
            work = lambda: quadsense.solve_many(U, B, delta=0.3, psd=True, fallback=False)  # noqa: E731
            times.append(seconds(work, repeats, time.perf_counter))
    print(f"two threads: {times[0] / times[1]:.2f} times as fast as one (wall time)", flush=True)


def from_disk() -> None:
    """Solve 10^6 problems of 64 readings from a file, and say what memory it took."""
    import h5py

    U = directions(64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "B.h5"
        with h5py.File(path, "w") as file:
            B = file.create_dataset("B", (10**6, 64), np.float64)
            for first in range(0, 10**6, 10**4):
                noise = 0.05 * np.random.default_rng(first).standard_normal((10**4, 64))
                B[first : first + 10**4] = read(U, tensors(10**4, False, first)) + noise
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        with h5py.File(path) as file:
            begin = time.perf_counter()
            results = quadsense.solve_many(U, file["B"], delta=0.3, psd=True)
            spent = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"10^6 x 64 readings on disk: {spent:.1f} s, at most {after:.2f} GiB, {before:.2f} "
        f"before; {results.counts()}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--wall", action="store_true", help="wall time instead of CPU time")
    options = parser.parse_args()
    clock = time.perf_counter if options.wall else time.process_time
    warnings.simplefilter("ignore")
    from_disk()  # first, for its memory
    with threadpool_limits(1):
        tensors_per_second(options.problems, options.repeats, clock)
        against_an_earlier_loop(options.problems, options.repeats, clock)
        beyond_the_cone(options.repeats, clock)
        states_per_second(options.repeats, clock)
        one_after_the_other(options.repeats, clock)
        in_dipy(options.repeats, clock)
        thin_fibers()
    two_threads(options.problems, options.repeats)


if __name__ == "__main__":
    main()
