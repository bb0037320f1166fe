"""The command ``quadsense``: demo, generate, inspect, solve, verify."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

import quadsense
from quadsense import datasets, files
from quadsense.demo import run_demo
from quadsense.interrupts import Interrupted
from quadsense.machine import known_rates, measure_rates
from quadsense.method_options import MethodChoice, MethodCommand
from quadsense.plan import Shape, make_plan, shape_of
from quadsense.preferences import PREFERENCES, SLACKS
from quadsense.request import STARTS, to_rank
from quadsense.typing import MethodName, PreferName, SlackName, StartName
from quadsense.view import text as view
from quadsense.vocabulary import Status

EXIT = {
    Status.MET: 0,
    Status.OPTIMAL: 0,
    Status.INFEASIBLE: 4,
    Status.INTERRUPTED: 130,
}
"""Exit status of `solve`; every other status is `NOT_MET`."""

NOT_MET = 3
"""Exit status where nothing was decided, and of `verify` where the claim is false."""

KINDS: dict[str, Any] = {
    "orthonormal": datasets.orthonormal,
    "near-orthogonal": datasets.near_orthogonal,
    "gaussian": datasets.gaussian,
}


def main() -> None:
    """Entry point: bad input is one line and status 2, an interrupt 130."""
    try:
        status = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("quadsense: interrupted", err=True)
        status = 130
    except (ValueError, MemoryError, OSError) as error:
        if isinstance(error, np.linalg.LinAlgError | BrokenPipeError):
            raise
        click.echo(f"quadsense: {error}", err=True)
        status = 2
    sys.exit(status or 0)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 met, 2 bad input, 3 not met (verify: claim false), 4 proved "
    "infeasible, 130 interrupted.",
)
@click.version_option(quadsense.__version__)
def cli() -> None:
    """Find a matrix A, of any rank, with |u_i* A u_i - b_i| <= delta for every measurement i.

    \b
    Examples:
      quadsense demo
      quadsense generate --kind gaussian --n 50 --m 600 --seed 0 -o data.npz
      quadsense inspect data.npz
      quadsense solve data.npz --delta 0.01 -o result.npz
      quadsense verify data.npz result.npz
    """


@cli.command()
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
@click.option("-o", "--output", required=True, help="File to write (.npz).")
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
    files.check_writable(output)
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
    files.write_arrays(output, arrays, {"kind": kind, "seed": seed, "noise": noise})
    click.echo(f"wrote {output}: {kind}, n = {n}, m = {m}, seed = {seed}")


@cli.command()
@click.argument("file", required=False)
@click.option("--n", type=int, help="Without a file: order of A.")
@click.option("--m", type=int, help="Without a file: number of measurements.")
@click.option("--complex", "complex_", is_flag=True, help="Without a file: complex probes.")
@click.option("--psd", is_flag=True, help="Plan for a positive semidefinite A.")
@click.option("--rank", help="Plan for an A of this rank; 'auto' lets it grow.")
@click.option("--conjugate", is_flag=True, default=None, help="Rows are given as u_i*.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(
    file: str | None,
    n: int | None,
    m: int | None,
    complex_: bool,
    psd: bool,
    rank: str | None,
    conjugate: bool | None,
    as_json: bool,
) -> None:
    """Show what is known of the measurements in FILE, and how they would be solved.

    Without FILE, --n and --m show the plan for a problem of that size.

    \b
    Examples:
      quadsense inspect data.npz
      quadsense inspect --n 300 --m 15000 --psd
    """
    if (file is None) == (n is None or m is None):
        raise click.UsageError("give a FILE, or both --n and --m")
    rates = known_rates()
    if not rates.measured:
        rates = measure_rates()
    fields: dict[str, Any] = {}
    text = ""
    if file is not None:
        data = quadsense.Measurements.open(file, conjugate=conjugate)
        fields, text = view.data_fields(data), view.data_text(data) + "\n"
        order = _order(rank, data.n)
        target = data.tolerance is not None
        shape = shape_of(
            data if target else data.without_tolerance(),
            psd=psd or order is not None,
            rank=order,
            target=True,
        )
        if not target:  # which delta will be asked is not known
            shape = replace(shape, ratio=Shape.ratio)
    else:
        assert n is not None and m is not None
        if n < 1 or m < 1:
            raise ValueError(f"n and m must be at least 1, got n = {n}, m = {m}")
        order = _order(rank, n)
        shape = Shape(m=m, n=n, complex=complex_, psd=psd or order is not None, rank=order)
    plan = make_plan(shape, rates=rates)
    fields["plan"] = plan.describe()
    click.echo(json.dumps(fields) if as_json else text + view.plan_text(plan))


@cli.command(cls=MethodCommand)
@click.argument("file")
@click.option(
    "--delta",
    type=float,
    help="Largest accepted error of a reading; without, the smallest worst error is sought.",
)
@click.option("--rtol", type=float, default=0.0, help="Added tolerance, times |b_i|.")
@click.option("--method", type=MethodChoice(), default="auto", show_default=True)
@click.option("--psd", is_flag=True, help="Among positive semidefinite matrices only.")
@click.option("--rank", help="Among those of at most this rank; P,Q: signs; 'auto' lets it grow.")
@click.option("--trace", metavar="T|LO,HI", help="What the trace of A must be, or between.")
@click.option(
    "--prefer",
    type=click.Choice(["auto", *PREFERENCES]),
    default="auto",
    show_default=True,
    help="Which A of all that fit.",
)
@click.option("--ridge", type=float, default=0.0, help="least_squares: add this times ||A||_F^2.")
@click.option("--slack", type=click.Choice(SLACKS), help="Minimise misses instead of meeting all.")
@click.option(
    "--allow-violations", type=int, default=0, metavar="K", help="Set at most K measurements aside."
)
@click.option("--start", type=click.Choice(STARTS), help="Multiple of I to start from.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all randomness.")
@click.option("--max-iter", type=int, help="Most iterations.")
@click.option("--time-limit", type=float, help="Most seconds, from the beginning of the solve.")
@click.option("--conjugate", is_flag=True, default=None, help="Rows are given as u_i*.")
@click.option("-o", "--output", help="Write the result here (.npz).")
@click.option("--dense", help="Also write A as a dense array here (.npy).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="No progress bar, no report; see the exit status.")
def solve(
    file: str,
    delta: float | None,
    rtol: float,
    method: MethodName,
    psd: bool,
    rank: str | None,
    trace: str | None,
    prefer: PreferName,
    ridge: float,
    slack: SlackName | None,
    allow_violations: int,
    start: StartName | None,
    seed: int,
    max_iter: int | None,
    time_limit: float | None,
    conjugate: bool | None,
    output: str | None,
    dense: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Find a matrix that meets every measurement in FILE (arrays U and b, or U, lo and hi).

    Ctrl-C and SIGTERM stop at the best matrix so far and write it.

    \b
    Examples:
      quadsense solve data.npz --delta 0.01 -o result.npz
      quadsense solve data.npz                       # the smallest worst error
      quadsense solve data.npz --delta 0.01 --psd --trace 1
      quadsense solve data.npz --delta 0.01 --psd --prefer min_trace
      quadsense solve data.npz --delta 0.01 --slack squares
      quadsense solve data.npz --delta 0.01 --method sgd --batch-size 32 --seed 1 --json
      quadsense solve data.npz --delta 0.1 --method gd --schedule paper --dense A.npy
    """
    _check_outputs(file, output, dense)
    data = quadsense.Measurements.open(file, delta=delta, rtol=rtol, conjugate=conjugate)
    interrupted = False
    try:
        result = quadsense.solve(
            data,
            method=method,
            psd=psd or None,
            rank=_rank(rank),
            trace=_trace(trace),
            prefer=prefer,
            ridge=ridge,
            slack=slack,
            start=start,
            allow_violations=allow_violations,
            rng=seed,
            max_iter=max_iter,
            time_limit=time_limit,
            progress=not quiet and sys.stderr.isatty(),
            **{name: value for name, value in options.items() if value is not None},
        )
    except KeyboardInterrupt as interrupt:
        if not isinstance(interrupt, Interrupted):
            raise
        result, interrupted = interrupt.result, True
    if output is not None:
        result.save(output)
    if dense is not None:
        files.write_array(dense, result.matrix)
    if as_json:
        click.echo(json.dumps(view.result_fields(result)))
    elif not quiet:
        click.echo(view.result_text(result))
    return EXIT[Status.INTERRUPTED] if interrupted else EXIT.get(result.status, NOT_MET)


def _rank(text: str | None) -> int | tuple[int, int] | Literal["auto"] | None:
    if text is None:
        return None
    if text == "auto":
        return "auto"
    try:
        parts = [int(part) for part in text.split(",")]
        if len(parts) in (1, 2):
            return parts[0] if len(parts) == 1 else (parts[0], parts[1])
    except ValueError:
        pass
    raise ValueError(f"--rank must be a whole number or 'auto', or two as in 2,1, got {text!r}")


def _trace(text: str | None) -> float | tuple[float, float] | None:
    if text is None:
        return None
    try:
        parts = [float(part) for part in text.split(",")]
        if len(parts) in (1, 2):
            return parts[0] if len(parts) == 1 else (parts[0], parts[1])
    except ValueError:
        pass
    raise ValueError(f"--trace must be a number, or two as in 0.9,1.1, got {text!r}")


def _order(text: str | None, n: int) -> int | None:
    """The plan's word for a rank, 0 where it may grow; refused where `solve` would refuse it."""
    return to_rank(_rank(text), n).order


def _check_outputs(file: str, output: str | None, dense: str | None) -> None:
    """Refuse, before any work, outputs that cannot be written or would destroy something."""
    taken = {Path(file).resolve(): "the input"}
    for name, path, suffix in (("-o", output, ".npz"), ("--dense", dense, ".npy")):
        if path is None:
            continue
        files.check_writable(path, suffix)
        where = Path(path).resolve()
        if where in taken:
            raise ValueError(f"{name} {path} would overwrite {taken[where]}: choose another name")
        taken[where] = f"the file of {name}"


@cli.command()
@click.argument("file")
@click.argument("result")
@click.option("--delta", type=float, help="Check against this tolerance too.")
@click.option("--conjugate", is_flag=True, default=None, help="Rows of FILE are given as u_i*.")
@click.option("--quiet", is_flag=True, help="Print nothing; see the exit status.")
def verify(file: str, result: str, delta: float | None, conjugate: bool | None, quiet: bool) -> int:
    """Recompute the claim of RESULT from the measurements in FILE; exit 0 if true, 3 if not.

    It is checked against the tolerance of the solve and against that of FILE, where FILE has one
    and it differs; it is true only if both hold.

    \b
    Example:
      quadsense verify data.npz result.npz
    """
    claimed = quadsense.load_result(result)
    data = quadsense.Measurements.open(file, conjugate=conjugate)
    found = claimed.check(data, delta=delta)
    if quiet:
        pass
    elif claimed.certificate.kind == "none":
        click.echo(f"no claim: the result's status is {claimed.status}")
    else:
        aside = claimed.certificate.set_aside.size
        rest = f", {aside} set aside" if aside else ""
        verdict = "true" if found.true else "FALSE"
        click.echo(f"{verdict}: {claimed.status}, {data.m - aside} measurements{rest}")
        click.echo("".join(f"  {check}\n" for check in found.checks), nl=False)
    return 0 if found.true else NOT_MET


@cli.command()
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
