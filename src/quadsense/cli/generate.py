"""``quadsense generate``: a seeded problem with a known answer."""

from __future__ import annotations

from typing import Any

import click

from quadsense import datasets, files

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
