"""``quadsense solve``: the matrix, its certificate and what is written of them."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

import quadsense
from quadsense.cli.method_options import MethodChoice, MethodCommand
from quadsense.cli.shared import EXIT, NOT_MET, check_outputs, to_rank, to_trace
from quadsense.interrupts import Interrupted
from quadsense.preferences import PREFERENCES, SLACKS
from quadsense.request import STARTS
from quadsense.typing import MethodName, PreferName, SlackName, StartName
from quadsense.view import text as view
from quadsense.vocabulary import Status


@click.command(cls=MethodCommand)
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
    check_outputs(file, output, dense)
    data = quadsense.Measurements.open(file, delta=delta, rtol=rtol, conjugate=conjugate)
    interrupted = False
    try:
        result = quadsense.solve(
            data,
            method=method,
            psd=psd or None,
            rank=to_rank(rank),
            trace=to_trace(trace),
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
        result.save_matrix(dense)
    if as_json:
        click.echo(json.dumps(view.result_fields(result)))
    elif not quiet:
        click.echo(view.result_text(result))
    return EXIT[Status.INTERRUPTED] if interrupted else EXIT.get(result.status, NOT_MET)
