"""The same request gives the same A whatever the machine is doing: 61 requests, seven conditions.

Each condition runs in a process of its own: alone, next to four busy processes, with a file of
rates that is slow or fast, with an address space that is limited, with a `memory_limit` that just
fits, with one of half as much, and with two BLAS threads. Prefer, method and A must be the same as
alone: A bit for bit; with another number of threads its readings within .02 delta. With half the
memory a request may be refused (MemoryError), but not answered otherwise.

    python benchmarks/determinism.py            # all conditions, half a minute
    python benchmarks/determinism.py --only busy limit
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import quadsense

NEAR = 0.02
"""Largest difference of readings, in units of the tolerance, with another number of threads."""

ADDRESS_SPACE = 4 * 2**30
"""Bytes of the limited address space: what the libraries map takes more than half of it."""

ROOM = {"limit": 1.001, "half limit": 0.5}
"""The memory limit in units of what the plan takes."""

RATES = {"slow": {"flops": 1e6, "bytes": 1e6}, "fast": {"flops": 1e15, "bytes": 1e15}}

CONDITIONS = ("busy", "slow", "fast", "address space", "limit", "half limit", "threads")


def problem(
    n: int, share: float, *, noise: float = 0.0, complex_: bool = False, seed: int = 0
) -> tuple[Any, Any]:
    """Return rows and readings of a random truth, positive semidefinite; m is ``share N``."""
    rng = np.random.default_rng(seed)
    m = max(2, round(share * (n * n if complex_ else n * (n + 1) // 2)))
    U, X = rng.standard_normal((m, n)), rng.standard_normal((n, n))
    if complex_:
        U, X = U + 1j * rng.standard_normal((m, n)), X + 1j * rng.standard_normal((n, n))
    A = X @ X.conj().T / n
    b = np.einsum("ij,jk,ik->i", U.conj(), A, U).real
    return U, b + noise * rng.uniform(-1.0, 1.0, m)


def requests() -> dict[str, Callable[[], tuple[Any, Any, dict[str, Any]]]]:
    """Return the requests, as functions that make U, b and the other arguments."""
    found: dict[str, Callable[[], tuple[Any, Any, dict[str, Any]]]] = {}

    def add(name: str, n: int, share: float, **named: Any) -> None:
        data = {key: named.pop(key) for key in ("noise", "complex_", "seed") if key in named}
        change = named.pop("change", None)

        def make() -> tuple[Any, Any, dict[str, Any]]:
            U, b = problem(n, share, **data)
            asked = {"delta": 0.1, **named}
            return (U, b, asked) if change is None else change(U, b, asked)

        found[name] = make

    for share in (0.3, 0.7, 1.0, 1.2, 2.0, 4.0):
        for noise in (0.0, 0.1):
            kind = "noise" if noise else "exact"
            add(f"symmetric {share:g} N {kind}", 14, share, noise=noise)
            add(f"psd {share:g} N {kind}", 10, share, noise=noise, psd=True)
    add("complex", 8, 1.5, noise=0.1, complex_=True)
    add("complex psd", 6, 0.8, noise=0.1, complex_=True, psd=True)
    add("larger", 40, 0.9, noise=0.1)
    add("larger, many rows", 30, 3.0, noise=0.1)
    add("larger psd", 24, 2.0, noise=0.1, psd=True)
    add("n > m", 60, 0.02)
    add("n > m psd", 60, 0.02, psd=True)
    add("rank 1", 12, 1.0, change=_of_rank(1))
    add("rank 2", 12, 1.2, change=_of_rank(2))
    add("rank (1, 1)", 10, 1.5, change=_of_rank((1, 1)))
    add("trace", 10, 0.6, noise=0.1, psd=True, trace=10.0, delta=2.0)
    add("constraint", 10, 1.2, noise=0.1, constraints=[(np.eye(10), 0.0, 50.0)])
    add("equality", 10, 0.8, change=_equality)
    add("slack max", 8, 3.0, noise=1.0, slack="max")
    add("slack sum", 8, 3.0, noise=1.0, slack="sum")
    add("slack squares psd", 8, 3.0, noise=1.0, slack="squares", psd=True)
    add("one-sided", 10, 1.2, change=_one_sided(1))
    add("one-sided psd", 10, 1.2, psd=True, change=_one_sided(1))
    add("some one-sided", 10, 1.5, change=_one_sided(3))
    add("weights", 10, 2.0, noise=0.1, change=_weights)
    add("weights psd", 10, 1.2, noise=0.1, psd=True, change=_weights)
    add("mix", 10, 1.2, noise=0.1, change=_mix)
    add("mix psd", 10, 2.0, noise=0.1, psd=True, change=_mix)
    add("sparse", 20, 0.8, change=_sparse)
    add("sparse psd", 12, 1.8, psd=True, change=_sparse)
    add("no tolerance", 12, 2.0, noise=0.1, delta=None)
    add("no tolerance, few rows", 12, 0.6, delta=None)
    add("no tolerance psd", 8, 2.0, noise=0.1, delta=None, psd=True)
    add("any", 14, 2.0, noise=0.1, prefer="any")
    add("any, not met by least squares", 14, 4.0, noise=0.1, prefer="any")
    add("any psd", 12, 1.5, noise=0.1, prefer="any", psd=True)
    add("nearest", 12, 0.7, noise=0.1, prefer="nearest")
    add("center", 8, 2.0, noise=0.1, prefer="center")
    add("min_trace", 8, 0.7, noise=0.1, prefer="min_trace", psd=True)
    add("minimax", 10, 2.0, noise=0.1, prefer="minimax")
    add("infeasible", 8, 3.0, noise=2.0)
    add("infeasible psd", 8, 3.0, noise=2.0, psd=True)
    return found


def _of_rank(rank: Any) -> Callable[..., tuple[Any, Any, dict[str, Any]]]:
    def change(U: Any, b: Any, asked: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        rng = np.random.default_rng(5)
        signs = np.ones(rank) if isinstance(rank, int) else np.array([1.0, -1.0])
        X = rng.standard_normal((U.shape[1], len(signs)))
        return U, (U @ X) ** 2 @ signs, {**asked, "rank": rank, "rng": 0}

    return change


def _one_sided(every: int) -> Callable[..., tuple[Any, Any, dict[str, Any]]]:
    def change(U: Any, b: Any, asked: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        lo, hi = b - 0.1, b + 0.1
        hi[::every] = np.inf
        del asked["delta"]
        return U, None, {**asked, "bounds": (lo, hi)}

    return change


def _equality(U: Any, b: Any, asked: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    delta = np.full(len(b), 0.1)
    delta[:3] = 0.0
    return U, b, {**asked, "delta": delta}


def _weights(U: Any, b: Any, asked: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    return U, b, {**asked, "weights": np.linspace(0.5, 2.0, len(b))}


def _mix(U: Any, b: Any, asked: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    W = np.random.default_rng(7).random((len(b) // 2, len(b))) * (2.0 / len(b))
    return U, W @ b, {**asked, "mix": W}


def _sparse(U: Any, b: Any, asked: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    U = np.where(np.random.default_rng(8).random(U.shape) < 0.2, U, 0.0)
    U[np.arange(len(U)), np.arange(len(U)) % U.shape[1]] = 1.0
    return sp.csr_array(U), np.sum(U**2, axis=1), asked


def solve_all(folder: Path, limits: dict[str, float]) -> None:
    """Solve every request, within its memory limit if it has one, and write what came of it."""
    facts = {}
    for name, make in requests().items():
        U, b, asked = make()
        limit = {"memory_limit": limits[name]} if name in limits else {}
        try:
            result = quadsense.solve(U, b, **asked, **limit)
        except MemoryError as error:
            facts[name] = [f"refused: {error}", "", "", 0.0]
            continue
        prefer, method = str(result.prefer), str(result.plan["method"])
        facts[name] = [str(result.status), prefer, method, float(result.plan["memory"])]
        np.save(folder / f"{name}.npy", np.asarray(result.A))
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def run(condition: str, folder: Path, needs: dict[str, float], cache: Path) -> dict[str, list[Any]]:
    """Solve every request in another process under that condition; return what it wrote."""
    (folder / condition).mkdir()
    (cache / condition).mkdir()
    if condition in RATES:
        text = json.dumps(RATES[condition])
        (cache / condition / "rates.json").write_text(text, encoding="utf-8")
    threads = "2" if condition == "threads" else "1"
    environment = {
        **os.environ, "QUADSENSE_CACHE": str(cache / condition), "OPENBLAS_NUM_THREADS": threads,
        "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
    }  # fmt: skip
    command = [sys.executable, __file__, "--child", str(folder / condition)]
    if condition in ROOM:
        limits = {name: ROOM[condition] * needed for name, needed in needs.items()}
        command.append(json.dumps(limits))
    limit = (ADDRESS_SPACE, ADDRESS_SPACE)
    lower = (lambda: resource.setrlimit(resource.RLIMIT_AS, limit)) if (
        condition == "address space"
    ) else None  # fmt: skip
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range(4)] if condition == "busy" else []
    try:
        subprocess.run(command, env=environment, preexec_fn=lower, check=True)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    facts: dict[str, list[Any]] = json.loads((folder / condition / "facts.json").read_text())
    return facts


def difference(name: str, one: Path, other: Path, exact: bool) -> str:
    """Return how the A of a request differs in two folders, in words; "" if not."""
    A, B = (np.load(folder / f"{name}.npy") for folder in (one, other))
    if A.tobytes() == B.tobytes():
        return ""
    U, b, asked = requests()[name]()
    data = quadsense.Measurements(U, b, **{
        key: asked[key] for key in ("delta", "bounds", "mix") if asked.get(key) is not None
    })  # fmt: skip
    apart = np.abs(np.asarray(data.forward(A)) - np.asarray(data.forward(B)))
    delta = np.asarray(asked.get("delta") or 0.1) if np.ndim(asked.get("delta")) == 0 else 0.1
    worst = float(np.max(apart / delta))
    return f"readings differ by {worst:.1e} delta" if exact or worst > NEAR else ""


def main() -> int:
    """Run the conditions, print a table, and return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=CONDITIONS, default=CONDITIONS)
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        limits = json.loads(options.child[1]) if len(options.child) > 1 else {}
        solve_all(Path(options.child[0]), limits)
        return 0
    failed = False
    with tempfile.TemporaryDirectory() as place:
        folder, cache = Path(place, "results"), Path(place, "cache")
        folder.mkdir()
        cache.mkdir()
        alone = run("alone", folder, {}, cache)
        needs = {name: facts[3] for name, facts in alone.items()}
        print(f"{len(alone)} requests; statuses {_counted(facts[0] for facts in alone.values())}")
        print(f"preferences {_counted(facts[1] for facts in alone.values())}")
        print(f"methods {_counted(facts[2] for facts in alone.values())}\n")
        print(f"{'condition':<16}{'same':>6}{'refused':>9}{'other':>7}")
        for condition in options.only:
            found, lines, refused = run(condition, folder, needs, cache), [], 0
            for name, facts in alone.items():
                if condition == "half limit" and found[name][0].startswith("refused"):
                    refused += 1
                    continue
                why = f"{facts[:3]} became {found[name][:3]}"
                if found[name][:3] == facts[:3]:
                    exact = condition != "threads"
                    why = difference(name, folder / "alone", folder / condition, exact)
                lines += [f"    {name}: {why}"] if why else []
            failed |= bool(lines)
            same = len(alone) - len(lines) - refused
            print(f"{condition:<16}{same:>6}{refused:>9}{len(lines):>7}", *lines, sep="\n")
    return int(failed)


def _counted(words: Any) -> str:
    names, counts = np.unique(list(words), return_counts=True)
    return ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))


if __name__ == "__main__":
    sys.exit(main())
