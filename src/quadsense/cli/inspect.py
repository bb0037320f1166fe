"""``quadsense inspect``: what is in a file, and how it would be solved."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

import quadsense
from quadsense.cli.shared import to_order
from quadsense.machine import known_rates, measure_rates
from quadsense.plan import Shape, make_plan, shape_of
from quadsense.view import text as view


@click.command()
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
        order = to_order(rank, data.n)
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
        order = to_order(rank, n)
        shape = Shape(m=m, n=n, complex=complex_, psd=psd or order is not None, rank=order)
    plan = make_plan(shape, rates=rates)
    fields["plan"] = plan.describe()
    click.echo(json.dumps(fields) if as_json else text + view.plan_text(plan))
