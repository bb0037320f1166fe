"""``quadsense generate`` and ``quadsense demo``: problems whose answer is known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

from quadsense import datasets, files
from quadsense.cli.shared import NOT_MET
from quadsense.measurements.oracle import SpectralOracle
from quadsense.methods import METHODS
from quadsense.query.query import SCHEDULES
from quadsense.result.result import Result
from quadsense.solve import solve
from quadsense.spectral import solve_spectral
from quadsense.view.text import table

# --- generate ------------------------------------------------------------------------------------


KINDS: dict[str, Any] = {
    "orthonormal": datasets.orthonormal,
    "near-orthogonal": datasets.near_orthogonal,
    "gaussian": datasets.gaussian,
}


@click.command()
@click.option("--kind", type=click.Choice(list(KINDS)), default="gaussian", show_default=True)
@click.option("--n", type=int, required=True, help="Order of the hidden matrix A*.")
@click.option("--m", type=int, required=True, help="Number of measurements.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--rank", type=int, help="Rank of A*; full by default.")
@click.option(
    "--condition",
    type=float,
    default=10.0,
    show_default=True,
    help="Largest over smallest nonzero eigenvalue of A*.",
)
@click.option(
    "--noise",
    type=float,
    default=0.0,
    show_default=True,
    help="Standard deviation of Gaussian noise in the readings.",
)
@click.option("--rho", type=float, help="near-orthogonal: coherence; 1/(10m) by default.")
@click.option("--complex", "complex_", is_flag=True, help="Complex probes, Hermitian A*.")
@click.option("--no-truth", is_flag=True, help="Leave A* out of the file.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="File to write: .npz, .mat, .h5 or .zarr; with --no-truth also .parquet or .csv.",
)
def generate(
    kind: str,
    n: int,
    m: int,
    seed: int,
    rank: int | None,
    condition: float,
    noise: float,
    rho: float | None,
    complex_: bool,
    no_truth: bool,
    output: str,
) -> None:
    """Write a seeded problem with a known A*: arrays U, b and A_star.

    \b
    Example:
      quadsense generate --kind near-orthogonal --n 200 --m 100 --seed 1 -o data.npz
    """
    what = "U and b" if no_truth else "U, b and A_star (leave it out with --no-truth)"
    files.writer_of(output, what, square=not no_truth)
    extra: dict[str, Any] = {}
    if rho is not None:
        if kind != "near-orthogonal":
            raise ValueError(f"--rho goes with --kind near-orthogonal, not {kind}")
        extra["rho"] = rho
    p = KINDS[kind](
        n, m, rank=rank, condition=condition, noise=noise, complex=complex_, seed=seed, **extra
    )
    arrays = {"U": p.U, "b": p.b}
    if not no_truth:
        arrays["A_star"] = p.A_star
    files.write(output, arrays, {"kind": kind, "seed": seed, "noise": noise})
    click.echo(f"wrote {output}: {kind}, n = {n}, m = {m}, seed = {seed}")


# --- demo ----------------------------------------------------------------------------------------


@click.command()
@click.option("--seed", type=int, default=0, show_default=True)
def demo(seed: int) -> int:
    """Solve a seeded problem of each kind with every method and verify each answer.

    \b
    Example:
      quadsense demo --seed 1
    """
    click.echo("Compiling (the first run only) and solving ...", err=True)
    text, failed = run_demo(seed)
    click.echo(text)
    return NOT_MET if failed else 0


def run_demo(seed: int) -> tuple[str, int]:
    """Table of all runs, and how many certificates failed."""
    rows = []
    failed = 0
    for name, p, runs, delta in _problems(seed):
        for options in runs:
            solve(p.U, p.b, delta=delta, max_iter=2, rng=seed, **options)  # compile
            begin = time.perf_counter()
            result = solve(p.U, p.b, delta=delta, rng=seed, **options)
            seconds = time.perf_counter() - begin
            true = result.certificate.verify(p.U, p.b)
            failed += not true
            rows.append(_row(name, options, result, delta, seconds, true))
    p = datasets.gaussian(60, 60, seed=seed)
    oracle = SpectralOracle(p.A_star)
    for schedule in SCHEDULES:
        begin = time.perf_counter()
        result = solve_spectral(oracle, np.eye(60), accuracy=0.1, schedule=schedule)
        seconds = time.perf_counter() - begin
        true = result.certificate.verify(oracle)
        failed += not true
        options = {"method": "spectral", "schedule": schedule}
        rows.append(_row("oracle of A*, n=60", options, result, 0.1, seconds, true))
    header = [
        "problem",
        "method",
        "schedule",
        "status",
        "iterations",
        "max residual",
        "delta",
        "seconds",
        "certificate",
    ]
    note = (
        "met says that A fits every measurement, not that A is A*: with m below n(n+1)/2 many "
        "matrices fit."
    )
    return f"{table(header, rows)}\n\n{note}", failed


def _row(
    name: str, options: dict[str, Any], result: Result, delta: float, seconds: float, true: bool
) -> list[str]:
    return [
        name,
        result.plan["method"],
        options.get("schedule", "-"),
        str(result.status),
        f"{result.n_iter:,}",
        f"{result.max_residual:.2e}",
        f"{delta:g}",
        f"{seconds:.4f}",
        "verified" if true else "FALSE",
    ]


def _problems(
    seed: int,
) -> Iterator[tuple[str, datasets.Dataset, list[dict[str, Any]], float]]:
    """Name, data, runs and delta of every part of the demo."""
    kinds = [METHODS.traits(name) for name in METHODS]
    scheduled = [kind.name for kind in kinds if "schedule" in kind.options.names()]
    fast, paper = (
        [{"method": name, "schedule": schedule} for name in scheduled] for schedule in SCHEDULES
    )
    instant = [{"method": kind.name} for kind in kinds if "orthonormal" in kind.needs]
    others = [
        {"method": kind.name}
        for kind in kinds
        if "orthonormal" not in kind.needs and kind.name not in scheduled
    ]
    by_rank = [{"method": name, "rank": 2} for name in METHODS.able("rank")]
    yield (
        "orthonormal, n=m=200",
        datasets.orthonormal(200, 200, seed=seed),
        [*instant, *fast, *paper],
        0.02,
    )
    yield (
        "near-orthogonal, n=100 m=50",
        datasets.near_orthogonal(100, 50, seed=seed),
        [*fast, *paper],
        0.02,
    )
    full = [run for run in others if METHODS.traits(run["method"]).cones != {"rank"}]
    every = [*fast, *full]
    yield "gaussian, n=50 m=600", datasets.gaussian(50, 600, seed=seed), every, 0.01
    p = datasets.gaussian(50, 400, rank=2, seed=seed)
    yield "gaussian rank 2, n=50 m=400", p, by_rank, 1e-4
    p = datasets.gaussian(10, 300, noise=0.02, seed=seed)
    yield "noisy, n=10 m=300", p, [{"method": "auto"}], 0.06
    yield "noisy, delta too small", p, [{"method": "auto"}], 0.03
