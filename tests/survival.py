"""Solves that are interrupted: one for each method, stage, kind of data and task, and their bits.

``python tests/survival.py --kills 20`` runs each in a process of its own, kills it (SIGKILL) at
random moments, again and again until it ends by itself, and compares what it came to, bit for bit,
with the uninterrupted run: `make test-kills`.
"""

from __future__ import annotations

import argparse
import atexit
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import array_api_strict
import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import kinds  # noqa: E402

import quadsense  # noqa: E402
from quadsense.arrays import to_numpy  # noqa: E402
from quadsense.probes import differences, masked_fft  # noqa: E402

try:
    import torch
except ImportError:
    torch = None


def rows_and_readings(m, n, seed=0, complex_=False, rank=None, noise=0.0):
    """Gaussian rows, and readings of a positive semidefinite matrix with trace about n."""
    rng = np.random.default_rng([seed, m, n])
    draw = rng.standard_normal
    U = draw((m, n)) + 1j * draw((m, n)) if complex_ else draw((m, n))
    X = draw((n, rank or n)) / np.sqrt(rank or n)
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    return U, b + noise * draw(m)


def _spoilt(m, n, k, **named):
    """The same with k readings that are wrong."""
    U, b = rows_and_readings(m, n, **named)
    b[np.random.default_rng(1).choice(m, k, replace=False)] += 5.0
    return U, b


def _fourier(masks, n, seed=0):
    probes = masked_fft(np.random.default_rng(seed).choice([1, -1, 1j, -1j], (masks, n)), n)
    x = np.random.default_rng(1).standard_normal(n)
    return probes, np.abs(probes.times(x[:, None])[:, 0]) ** 2


def _distances(n, m, seed=4):
    rng = np.random.default_rng(seed)
    pairs = np.sort(rng.permuted(np.tile(np.arange(n), (m, 1)), axis=1)[:, :2], axis=1)
    X = rng.standard_normal((n, 2))
    return differences(pairs, n), np.sum((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2, axis=1)


def _sparse(m, n, density=0.2):
    rng = np.random.default_rng(2)
    kept = rng.random((m, n)) < density
    U = sp.csr_array(rng.random((m, n)) * kept) + sp.eye_array(m, n)
    U = sp.csr_array(U)
    X = rng.standard_normal((n, 3))
    return U, np.sum(np.asarray(U @ X) ** 2, axis=1)


def _mixed(m, n, p):
    rng = np.random.default_rng(3)
    U, b = rows_and_readings(m, n)
    W = rng.standard_normal((p, m))
    return U, W @ b, W


def cases():
    """(data, arguments of `solve`) by name, each made when asked for."""
    noisy = {"noise": 0.3}
    found = {
        "closed_form": lambda: ((np.eye(9)[:6], np.arange(6.0)), {"delta": 1e-6}),
        "gd": lambda: (rows_and_readings(30, 8), {"delta": 1e-7, "method": "gd"}),
        "gd paper": lambda: (
            (np.linalg.qr(rows_and_readings(8, 8)[0])[0], np.linspace(0.1, 1, 8)),
            {"delta": 0.03, "method": "gd", "schedule": "paper"},
        ),
        "gd stalled": lambda: (
            rows_and_readings(60, 6, **noisy), {"delta": 0.05, "method": "gd"},
        ),
        "sgd": lambda: (rows_and_readings(30, 8), {"delta": 1e-4, "method": "sgd", "rng": 5}),
        "cg": lambda: (rows_and_readings(200, 24), {"delta": 1e-9, "method": "cg"}),
        "cg operator": lambda: (_fourier(6, 16), {"delta": 1e-5, "method": "cg"}),
        "minimax": lambda: (rows_and_readings(300, 10, **noisy), {"method": "minimax"}),
        "auto infeasible": lambda: (rows_and_readings(300, 10, **noisy), {"delta": 1e-3}),
        "auto complex": lambda: (
            rows_and_readings(90, 8, complex_=True, **noisy), {"delta": 1.0},
        ),
        "psd": lambda: (
            rows_and_readings(60, 12, rank=2), {"delta": 1e-8, "psd": True, "prefer": "any"},
        ),
        "psd refuted": lambda: (
            rows_and_readings(90, 10, rank=2, **noisy), {"delta": 0.01, "psd": True},
        ),
        "psd no delta": lambda: (rows_and_readings(90, 8, rank=2, **noisy), {"psd": True}),
        "low_rank": lambda: (
            rows_and_readings(90, 12, rank=2), {"delta": 1e-9, "rank": 2, "rng": 3},
        ),
        "factored restarts": lambda: (
            rows_and_readings(30, 12, rank=2),
            {"delta": 1e-9, "rank": 1, "max_restarts": 3, "rng": 3},
        ),
        "factored no delta": lambda: (
            rows_and_readings(60, 10, rank=2, **noisy), {"rank": 2, "rng": 3},
        ),
        "rank signs": lambda: (
            rows_and_readings(90, 8, rank=2), {"delta": 1e-8, "rank": (2, 1), "rng": 1},
        ),
        "rank auto": lambda: (
            rows_and_readings(90, 10, rank=3), {"delta": 1e-6, "rank": "auto", "rng": 1},
        ),
        "conic": lambda: (
            rows_and_readings(90, 9, rank=2, **noisy),
            {"delta": 1.0, "psd": True, "prefer": "min_trace"},
        ),
        "conic center": lambda: (
            rows_and_readings(30, 8), {"delta": 0.3, "psd": True, "prefer": "center"},
        ),
        "conic slack": lambda: (
            rows_and_readings(90, 8, **noisy), {"delta": 1e-3, "slack": "sum"},
        ),
        "least_squares": lambda: (
            rows_and_readings(120, 9, rank=2, **noisy),
            {"delta": 1.5, "psd": True, "prefer": "least_squares"},
        ),
        "consensus": lambda: (
            rows_and_readings(120, 9, rank=2, **noisy),
            {"delta": 1.5, "psd": True, "prefer": "least_squares", "method": "consensus"},
        ),
        "least_squares slack": lambda: (
            rows_and_readings(90, 8, **noisy), {"delta": 0.01, "slack": "squares", "psd": True},
        ),
        "constraints": lambda: (
            rows_and_readings(60, 8),
            {"delta": 0.1, "trace": (5.0, 12.0), "constraints": [(np.ones((8, 8)), 0.0, 90.0)]},
        ),
        "equalities": lambda: (
            rows_and_readings(24, 8),
            {"delta": np.repeat([0.0, 0.1], 12)},
        ),
        "violations": lambda: (
            _spoilt(45, 6, 2), {"delta": 1e-3, "allow_violations": 3, "prefer": "any"},
        ),
        "violations psd": lambda: (
            _spoilt(45, 6, 2, rank=2), {"delta": 1e-3, "allow_violations": 2, "psd": True},
        ),
        "violations refuted": lambda: (
            rows_and_readings(40, 5, **noisy), {"delta": 0.05, "allow_violations": 1},
        ),
        "sparse": lambda: (_sparse(120, 12), {"delta": 1e-8}),
        "bounds": lambda: (
            (rows_and_readings(40, 8)[0], None),
            {"bounds": (np.full(40, 0.5), np.repeat([20.0, np.inf], 20))},
        ),
        "strict": lambda: (
            tuple(map(array_api_strict.asarray, rows_and_readings(60, 8))),
            {"delta": 1.0, "method": "gd"},
        ),
        "strict sgd": lambda: (
            tuple(map(array_api_strict.asarray, rows_and_readings(30, 8))),
            {"delta": 1.0, "method": "sgd", "rng": 1},
        ),
        "operator": lambda: (_fourier(8, 8), {"delta": 1e-3, "psd": True}),
        "fourier": lambda: (_fourier(8, 64), {"delta": 1e-6, "rank": 1, "rng": 2}),
        "differences": lambda: (_distances(40, 300), {"delta": 1e-6, "rank": 2, "rng": 2}),
    }  # fmt: skip

    def mixed():
        U, b, W = _mixed(40, 6, 50)
        return (U, b), {"mix": W, "delta": 1e-6}

    return {**found, "mix": mixed, **_in_files(), **(_on_device() if torch else {})}


def _in_files():
    """Rows in a file, which is written once."""

    def case(m, n, arguments, rows=12, **named):
        def make():
            U, b = rows_and_readings(m, n, **named)
            path = Path(tempfile.gettempdir()) / f"quadsense-{os.getppid()}-{m}-{n}.npy"
            if not path.exists() or not np.array_equal(np.load(path), U):
                np.save(path, U)
                atexit.register(path.unlink, missing_ok=True)
            return (kinds.OnDisk(kinds.strips(path, rows)), b), arguments

        return make

    return {
        "disk sgd": case(80, 6, {"delta": 1e-4, "method": "sgd", "rng": 5}),
        "disk cg": case(200, 16, {"delta": 1e-9, "method": "cg"}),
        "disk minimax": case(400, 5, {"method": "minimax"}, noise=0.3),
        "disk psd": case(60, 8, {"delta": 1e-8, "psd": True, "prefer": "any"}, rank=2),
        "disk factored": case(90, 9, {"delta": 1e-9, "rank": 2, "rng": 3}, rank=2),
        "disk conic": case(
            90, 7, {"delta": 1.0, "psd": True, "prefer": "min_trace"}, rank=2, noise=0.3
        ),
    }


def _on_device():
    """What is done where tensors live: as on a GPU, on a device that may be the processor."""

    def case(m, n, arguments, **named):
        def make():
            U, b = rows_and_readings(m, n, **named)
            return (kinds.ByTorch(torch.tensor(U, device=kinds.DEVICE)), b), arguments

        return make

    noisy = {"noise": 0.3}
    return {
        "torch gd": case(30, 8, {"delta": 1e-3, "method": "gd"}),
        "torch sgd": case(30, 8, {"delta": 1e-1, "method": "sgd", "rng": 1}),
        "torch cg": case(120, 10, {"delta": 1e-9, "method": "cg"}),
        "torch cg tf32": case(150, 16, {"delta": 1e-9, "method": "cg", "allow_tf32": True}),
        "torch minimax": case(300, 10, {"method": "minimax"}, **noisy),
        "torch psd": case(60, 12, {"delta": 1e-8, "psd": True, "prefer": "any"}, rank=2),
        "torch psd refuted": case(90, 10, {"delta": 0.01, "psd": True}, rank=2, **noisy),
        "torch factored": case(30, 12, {"delta": 1e-9, "rank": 2, "rng": 3}, rank=2),
        "torch complex": case(90, 8, {"delta": 1.0}, complex_=True, **noisy),
        "torch violations": case(
            45, 6, {"delta": 1e-3, "allow_violations": 2, "prefer": "any"}, noise=1e-4
        ),
    }


def solved(name, **named):
    """The result of a case."""
    (U, b), arguments = cases()[name]()
    return quadsense.solve(U, b, **{**arguments, **named})


def bits(result):
    """All that a result says, as bytes, except times.

    Of the potential in a history, which nothing goes by, the last bit follows from how memory is
    aligned: two uninterrupted runs differ in it, now and then.
    """
    history, certificate = result.history, result.certificate
    arrays = [
        to_numpy(result.A), to_numpy(result.residuals), result.violations, result.suspects,
        result.set_aside, history.iteration, history.max_residual, history.max_ratio,
        np.round(history.log_potential, 9), history.lam, history.step, history.sharpness,
        np.array([certificate.upper_bound, certificate.lower_bound, certificate.rounding]),
    ]  # fmt: skip
    if certificate.dual is not None:
        arrays.append(np.asarray(certificate.dual))
    plan = {key: value for key, value in result.plan.items() if key != "environment"}
    words = repr((result.status, result.verdict, result.n_iter, result.message, plan))
    return words.encode() + b"".join(np.asarray(each).tobytes() for each in arrays)


METHODS = (
    "closed_form", "gd", "sgd", "cg", "minimax", "psd", "low_rank", "conic", "least_squares",
    "consensus",
)  # fmt: skip
"""Of the cases, one for each method."""


LONG = ("auto infeasible", "violations refuted")
"""Of thousands of strides: not every one of them is written."""


def in_child(name, folder, out, every=0.0):
    """The number of a process that solves the case and writes its bits, then ends."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        result = solved(name, checkpoint=folder, checkpoint_every=every)
        out.write_bytes(bits(result))
        code = 0
    finally:
        os._exit(code)


def survived(name, kills, rng, folder):
    """Kill `kills` runs of a case at random moments, take each up; (how many hit, what differs)."""
    whole = solved(name)
    want, begin = bits(whole), time.perf_counter()
    out, place = folder / "bits", folder / "checkpoint"
    often = (0.002,) if name in LONG or len(whole.history) > 200 else (0.0, 0.002)
    os.waitpid(in_child(name, place, out, often[0]), 0)
    seconds = time.perf_counter() - begin
    hits, wrong = 0, int(not out.exists() or out.read_bytes() != want)
    for _ in range(kills):
        shutil.rmtree(place, ignore_errors=True)
        out.unlink(missing_ok=True)
        moments = [rng.uniform(0.0, seconds) for _ in range(rng.choice((1, 1, 2)))]
        for moment in moments:
            child = in_child(name, place, out, rng.choice(often))
            time.sleep(moment)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            hits += os.WIFSIGNALED(status) and any(place.glob("current.npz*"))
        os.waitpid(in_child(name, place, out, often[0]), 0)
        wrong += not out.exists() or out.read_bytes() != want
    return hits, wrong


def main():
    """Every case, or those that are named; status 1 where a bit differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="runs of each that are killed")
    parser.add_argument("--only", nargs="*", default=list(cases()), help="cases")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, failed = random.Random(given.seed), []
    np.seterr(all="raise", under="ignore")
    for name in given.only:
        solved(name)  # what is compiled is compiled before the fork
        with tempfile.TemporaryDirectory() as folder:
            hits, wrong = survived(name, given.kills, rng, Path(folder))
        print(f"{name:20} {given.kills} killed, {hits} amid strides, {wrong} differ", flush=True)
        failed += [name] * bool(wrong)
    print("all the same, bit for bit" if not failed else f"FAILED: {', '.join(failed)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
