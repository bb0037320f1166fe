"""Commands about data: ``quadsense generate``, ``demo`` and ``inspect``."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

import quadsense
from quadsense import datasets, files
from quadsense.cli import shared
from quadsense.cli.shared import NOT_MET, MethodCommand, echo_json, to_order
from quadsense.core.theory import coherence_limit
from quadsense.files.table import stem
from quadsense.measurements import Measurements
from quadsense.measurements.gram import LARGEST_RANK_PROBLEM
from quadsense.measurements.oracle import SpectralOracle
from quadsense.methods import METHODS
from quadsense.query.choice import by_shape
from quadsense.query.cluster_cost import ClusterCost
from quadsense.query.plan import Plan, Shape, in_words, make_plan, planned
from quadsense.query.query import SCHEDULES, Query
from quadsense.result.result import Result
from quadsense.solve import solve
from quadsense.spectral import solve_spectral
from quadsense.system.machine import Rates, free_memory, in_bytes, known_rates, measure_rates
from quadsense.view import duration
from quadsense.view.json_fields import data_fields, result_fields, scaling_fields

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


DEMO_ORDER, DEMO_ROWS, NOISY_ORDER = 50, 600, 10
"""Order of A and number of measurements in the demo; order where readings have noise."""

DEMO_DELTA, DEMO_ACCURACY = 0.02, 0.1
"""Tolerance of the demo, which is also the standard deviation of its noise, and its accuracy."""


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
    """Return the table of all runs, and how many certificates failed."""
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
    p = datasets.gaussian(DEMO_ORDER, DEMO_ORDER, seed=seed)
    oracle = SpectralOracle(p.A_star)
    for schedule in SCHEDULES:
        begin = time.perf_counter()
        result = solve_spectral(
            oracle, np.eye(DEMO_ORDER), accuracy=DEMO_ACCURACY, schedule=schedule
        )
        seconds = time.perf_counter() - begin
        true = result.certificate.verify(oracle)
        failed += not true
        options = {"method": "spectral", "schedule": schedule}
        name = f"oracle of A*, n={DEMO_ORDER}"
        rows.append(_row(name, options, result, DEMO_ACCURACY, seconds, true))
    header = [
        "problem", "method", "schedule", "status", "iterations", "max residual", "delta", "seconds",
        "certificate",
    ]  # fmt: skip
    note = (
        "met says that A fits every measurement, not that A is A*: with m below n(n+1)/2 many "
        "matrices fit."
    )
    return f"{shared.table(header, rows)}\n\n{note}", failed


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
    """Yield name, data, runs and delta of every part of the demo."""
    kinds = [METHODS.traits(name) for name in METHODS]
    scheduled = [kind.name for kind in kinds if "schedule" in kind.options.names()]
    fast, paper = (
        [{"method": name, "schedule": schedule} for name in scheduled] for schedule in SCHEDULES
    )
    instant = [kind.name for kind in kinds if "orthonormal" in kind.needs]
    others = [kind for kind in kinds if kind.name not in (*instant, *scheduled)]
    every = [{"method": kind.name} for kind in others if kind.cones != {"rank"}]
    n, m = DEMO_ORDER, DEMO_ROWS
    yield (
        f"orthonormal, n=m={n}",
        datasets.orthonormal(n, n, seed=seed),
        [*({"method": name} for name in instant), *fast, *paper],
        DEMO_DELTA,
    )
    p = datasets.near_orthogonal(2 * n, n, seed=seed)
    yield f"near-orthogonal, n={2 * n} m={n}", p, [*fast, *paper], DEMO_DELTA
    p = datasets.gaussian(n, m, seed=seed)
    yield f"gaussian, n={n} m={m}", p, [*fast, *every], DEMO_DELTA
    p = datasets.gaussian(n, m, rank=2, seed=seed)
    by_rank = [{"method": name, "rank": 2} for name in METHODS.able("rank")]
    yield f"gaussian rank 2, n={n} m={m}", p, by_rank, DEMO_DELTA
    p = datasets.gaussian(NOISY_ORDER, m, noise=DEMO_DELTA, seed=seed)
    for name, delta in (("delta of 3 sigma", 3 * DEMO_DELTA), ("delta too small", DEMO_DELTA)):
        yield f"noisy, {name}", p, [{"method": "auto"}], delta


# --- inspect -------------------------------------------------------------------------------------


MOST = 1e18
"""The largest number that is a size: what is made of it must be one, too."""


class Whole(click.ParamType):  # type: ignore[type-arg]
    """A whole number, also as 1e9."""

    name = "integer"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Read it; refuse 1.5 and texts."""
        try:
            number: float = int(value)
        except ValueError:
            try:
                number = float(value)
            except ValueError:
                number = math.nan
        if not (abs(number) <= MOST and number == int(number)):
            self.fail(f"{value!r} is not a whole number up to 1e18", param, ctx)
        return int(number)


WHOLE = Whole()

OWN = (
    "file",
    "n",
    "m",
    "complex_",
    "workers",
    "single",
    "network",
    "disk",
    "memory_limit",
    "as_json",
)
"""Parameters that are not those of `solve`."""

SHOWN = 40
"""Entries of a file that are listed; of columns there may be thousands."""


@click.command(cls=MethodCommand)
@click.argument("file", required=False, type=click.Path())
@click.option("--n", type=WHOLE, help="Without a file: order of A.")
@click.option("--m", type=WHOLE, help="Without a file: number of measurements; 1e9 too.")
@click.option("--complex", "complex_", is_flag=True, help="Without a file: complex probes.")
@click.option(
    "--workers", type=WHOLE, metavar="W", help="Without a file: what W Dask workers would take."
)
@click.option("--single", is_flag=True, help="With --workers: rows in single precision.")
@click.option(
    "--network", metavar="BYTES", help="With --workers: a second, of a link; else 1.25 GB."
)
@click.option(
    "--disk", metavar="BYTES", help="With --workers: a second, of its files; else 500 MB."
)
@click.option(
    "--memory-limit",
    metavar="BYTES",
    help="As in solve; with --workers: of a machine; else what is free here.",
)
@shared.options(shared.NAMING, shared.TOLERANCE, shared.SET, shared.WHICH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/command.md).")
def inspect(
    file: str | None,
    n: int | None,
    m: int | None,
    complex_: bool,
    workers: int | None,
    single: bool,
    network: str | None,
    disk: str | None,
    memory_limit: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Show what is in FILE, which of it is U and b, and how it would be solved.

    FILE may be of any format, and a result too. The options of `solve` say what would be asked;
    the plan is the one that it follows. Without FILE, --n and --m show the plan for a problem of
    that size with a tolerance, and with --psd or --rank; with --workers what a Dask cluster of that
    many machines like this one takes for it: memory, bytes moved, and seconds (docs/scaling.md).

    \b
    Examples:
      quadsense inspect data.npz
      quadsense inspect data.mat --U probes
      quadsense inspect data.npz --delta 0.01 --psd --prefer min_trace
      quadsense inspect result.npz
      quadsense inspect --n 300 --m 15000 --psd
      quadsense inspect --n 10000 --m 1e9 --workers 64
      quadsense inspect --n 1e6 --m 1e9 --rank 10 --workers 64 --memory-limit "256 GiB"
    """
    if (file is None) == (n is None or m is None):
        raise click.UsageError("give a FILE, or both --n and --m")
    if file is not None and (n is not None or m is not None):
        raise click.UsageError("a FILE says what n and m are: give it, or --n and --m")
    if workers is None and (single or network or disk or (memory_limit and file is None)):
        raise click.UsageError(
            "--single, --network, --disk and --memory-limit go with --workers, --n and --m"
        )
    if workers is not None and file is not None:
        raise click.UsageError("--workers goes with --n and --m, without a FILE")
    if file is None:
        assert n is not None and m is not None
        if n < 1 or m < 1:
            raise ValueError(f"n and m must be at least 1, got n = {n}, m = {m}")
        _refuse_without_data()
        psd, order = asked["psd"], to_order(asked["rank"], n)
        shape = Shape(m=m, n=n, complex=complex_, psd=psd or order is not None, rank=order)
        if workers is None:
            _show(as_json, {}, "", _planned(shape))
            return
        speeds = {
            name: shared.bytes_of(f"--{name}", value)
            for name, value in (("network", network), ("disk", disk))
            if value is not None
        }
        found = ClusterCost(
            m, n, workers, complex_, single, order, psd, os.cpu_count() or 1, _rates(), **speeds
        )
        room = float(free_memory())
        if memory_limit is not None:
            room = shared.bytes_of("--memory-limit", memory_limit)
        numbers: dict[str, Any] = {"m": m, "n": n, "complex": complex_}
        _show(
            as_json,
            {**numbers, "scaling": scaling_fields(found, room)},
            scaling_text(found, room),
            None,
        )
        return
    source = files.look_at(file)
    if source.is_result:
        _show_result(source, as_json)
        return
    try:
        data, arrays = shared.read_data(
            source,
            beside=shared.others_of(asked),
            memory_limit=memory_limit,
            **{name: asked[name] for name in (*shared.READING, *shared.ARRAYS)},
        )
    except files.Unreadable as error:
        if asked["probes"] is not None or asked["readings"] is not None:
            raise
        fields = {"file": _file_fields(source, {}, (), str(error))}
        _show(as_json, fields, _file_text(fields["file"]), None)
        return
    query = Query(data, memory_limit=memory_limit, **shared.arguments_of(asked, source))
    plan = planned(query, _rates())
    about = _file_fields(source, arrays.roles, data.notes, None)
    text = f"{_file_text(about)}\n{data_text(data)}\n"
    _show(as_json, {**data_fields(data), "file": about}, text, plan)


def _planned(shape: Shape) -> Plan:
    """Return the plan for a problem of that shape, with the sentence that says which A it seeks."""
    name, why = by_shape(shape)
    damped = shape.rank is None and (name == "entropy" or not shape.psd)
    plan = make_plan(replace(shape, prefer=name, damped=damped), rates=_rates())
    return replace(plan, reasons=(f"prefer={name!r}: {why}", *plan.reasons))


def _refuse_without_data() -> None:
    """Refuse options that ask something of readings where there are none."""
    context = click.get_current_context()
    own = (*OWN, "psd", "rank")
    for each in context.command.params:
        given = context.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
        if given and each.name not in own:
            raise click.UsageError(f"{each.opts[0]} is about readings: it goes with a FILE")


def _rates() -> Rates:
    """Return the rates of this machine, measured once."""
    rates = known_rates()
    return rates if rates.measured else measure_rates()


def _show(as_json: bool, fields: dict[str, Any], text: str, plan: Plan | None) -> None:
    if as_json:
        echo_json(fields if plan is None else {**fields, "plan": plan.describe()})
    else:
        click.echo(text + ("" if plan is None else plan_text(plan)))


def _show_result(source: files.Source, as_json: bool) -> None:
    """Show what a result says, without the measurements it was made of."""
    result = quadsense.load_result(source.path)
    if as_json:
        about = _file_fields(source, {}, (), None)
        echo_json({"file": {**about, "entries": []}, "result": result_fields(result)})
        return
    size = f"A is {result.matrix.shape[0]} x {result.matrix.shape[1]}"
    click.echo(f"{'file':<16} {source.path}, a quadsense result, {size}")
    click.echo(shared.result_text(result))


def _file_fields(
    source: files.Source, roles: dict[str, tuple[str, ...]], notes: tuple[str, ...], why: str | None
) -> dict[str, Any]:
    """Return what ``--json`` prints of a file."""
    taken = {name: role for role, names in roles.items() for name in names}
    return {
        "path": str(source.path),
        "format": source.format.title,
        "result": source.is_result,
        "entries": [
            {
                "name": entry.name,
                "shape": list(entry.shape),
                "dtype": entry.dtype,
                "sparse": entry.sparse,
                "role": taken.get(entry.name, taken.get(stem(entry.name))),
            }
            for entry in source.entries
        ],
        "notes": list(notes),
        "problem": why,
    }


def _file_text(about: dict[str, Any]) -> str:
    """Return the same for people."""
    lines = [("file", f"{about['path']}, {about['format']}")]
    entries = about["entries"]
    for i, entry in enumerate(entries[:SHOWN]):
        shape = " x ".join(map(str, entry["shape"])) or "one value"
        kind = f"{'sparse ' if entry['sparse'] else ''}{entry['dtype']}"
        role = f", taken as {entry['role']}" if entry["role"] else ""
        lines.append(("holds" if i == 0 else "", f"{entry['name']}: {shape} {kind}{role}"))
    if len(entries) > SHOWN:
        lines.append(("", f"and {len(entries) - SHOWN:,} more"))
    lines += [("guessed" if i == 0 else "", note) for i, note in enumerate(about["notes"])]
    if about["problem"]:
        lines.append(("not solvable", about["problem"]))
    return "\n".join(f"{name:<16} {text}" for name, text in lines)


# --- measurements, plans and clusters in words -------------------------------------------------


def data_text(data: Measurements) -> str:
    """Return sizes, facts, and what they mean for a solve."""
    f = data_fields(data)
    kind = f"{'sparse' if f['sparse'] else 'dense'} {'complex' if f['complex'] else 'real'}"
    mixed = "" if data.mix is None else f", sums over {data.unit_rows.raw.m:,} rows"
    limit = coherence_limit(data.m)
    if f["orthonormal"]:
        probes = "orthonormal: solved in one step"
    elif f["coherence"] is None:
        probes = "not orthonormal; their coherence is not computed (too many pairs)"
    elif f["paper_holds"]:
        probes = f"coherence {f['coherence']:.3g}, within the paper's 1/(10m) = {limit:.3g}"
    else:
        probes = (
            f"coherence {f['coherence']:.3g}, over the paper's 1/(10m) = {limit:.3g}: "
            "its lemmas do not apply"
        )
    if f["rank"] is None:
        most = LARGEST_RANK_PROBLEM
        seen = f"rank of the sensing map not computed (m > {most:,}), {f['unknowns']:,} unknowns"
    elif f["rank"] == f["unknowns"]:
        seen = f"all {f['unknowns']:,} unknowns of A are determined"
    else:
        unseen = f["unknowns"] - f["rank"]
        seen = f"{unseen:,} of {f['unknowns']:,} directions of A are unseen: a fit is not unique"
    lines = [
        ("measurements", f"m = {data.m:,}, n = {data.n:,}, {kind}{mixed}"),
        (
            "row norms",
            f"{f['row_norms'][0]:.4g} to {f['row_norms'][1]:.4g}"
            + (f", {f['zero_rows']} rows of zeros" if f["zero_rows"] else ""),
        ),
        ("readings", f"{f['readings'][0]:.4g} to {f['readings'][1]:.4g}, spread {f['spread']:.3g}"),
        ("probes", probes),
        ("identifiability", seen),
    ]
    return "\n".join(f"{name:<16} {text}" for name, text in lines)


def plan_text(plan: Plan) -> str:
    """Return the plan, its cost, and its reasons."""
    lines = [
        ("plan", f"{' then '.join(plan.methods)}, in {plan.coordinates} coordinates"),
        (
            "cost",
            f"about {in_bytes(plan.memory)} in addition to U"
            + (
                f" ({in_bytes(plan.proof_memory)} to prove that nothing fits)"
                if plan.proof_memory > plan.memory
                else ""
            )
            + f", {plan.flops:.1e} flops, "
            f"{in_words(plan.seconds)}",
        ),
        *(("because" if i == 0 else "", reason) for i, reason in enumerate(plan.reasons)),
    ]
    return "\n".join(f"{name:<16} {text}" for name, text in lines)


def scaling_text(found: ClusterCost, memory: float) -> str:
    """Return what a cluster, a sweep and a solve take: docs/scaling.md has the formulas."""
    idle = f", and {found.parts_keep} no more busy" if found.crossing > found.parts else ""
    factor = "" if found.rank is None else ", as a factor,"
    solves = (
        f"{name}: {count:.3g} sweeps, {duration(count * found.seconds)}"
        for name, count in found.sweeps(memory).items()
    )
    lines = [
        f"cluster|{_count(found.workers, 'worker')} like this machine, {in_bytes(memory)} each",
        f"rows|{in_bytes(found.row_bytes)} in {_count(found.parts, 'part')} of "
        f"{_count(found.part_rows, 'row')}, {found.parts_a_worker:,} per worker at most",
        f"memory|{in_bytes(found.worker_memory)} per worker, {in_bytes(found.driver_memory)} the "
        f"driver; A{factor} is {in_bytes(found.matrix_bytes)}",
        f"loading|{duration(found.loading)} at {in_bytes(found.disk)}/s per worker",
        f"a sweep|{duration(found.seconds)}: {duration(found.computing)} of arithmetic "
        f"({found.flops:.1e} flops), {duration(found.communicating)} of travel",
        f"travel|{in_bytes(found.driver_bytes)} to and from the driver, "
        f"{in_bytes(found.worker_bytes)} between workers, {_count(found.tasks, 'task')}; "
        f"{in_bytes(found.network)}/s a link",
        f"crossing|travel takes as long as arithmetic from {_count(found.crossing, 'worker')} on"
        f"{idle}",
        f"one process|{duration(found.reading)} a sweep, from a file at {in_bytes(found.disk)}/s",
        f"solves|{'; '.join(solves)}",
        *(f"{'' if i else 'but'}|{note}" for i, note in enumerate(found.notes(memory))),
    ]
    pairs = (line.split("|", 1) for line in lines)
    return "\n".join(f"{name:<16} {text}" for name, text in pairs)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
