"""Results for people: tables and reports for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quadsense.core.theory import coherence_limit
from quadsense.measurements import Measurements
from quadsense.measurements.gram import LARGEST_RANK_PROBLEM
from quadsense.query.cluster_cost import ClusterCost
from quadsense.query.plan import Plan, in_words
from quadsense.result import words
from quadsense.result.result import Result
from quadsense.system.memory import in_bytes
from quadsense.view.json_fields import data_fields
from quadsense.view.markup import duration


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text table; a column whose cells all start with a digit is aligned right."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    right = [all(cell[:1].isdigit() for cell in column[1:] if cell) for column in columns]
    lines = []
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def result_text(
    result: Result,
    *,
    width: int = words.WIDTH,
    verbose: bool = False,
    paint: Callable[[str, str], str] | None = None,
    told: Callable[[str], str] = str,
) -> str:
    """Return the facts of a result and the method that found it.

    Parameters
    ----------
    result : Result
    width : int
        Of the lines, in columns.
    verbose : bool
        Whether to add what each fact means and the reasons for the method.
    paint, told : callable, optional
        As in `words.summary`.
    """
    found = found_by(result, f"{sum(result.timings.values()):.3g} s", verbose)
    return words.summary(
        result.verdict, width=width, more=(found,), notes=verbose, paint=paint, told=told
    )


def found_by(result: Result, seconds: str, reasons: bool = False) -> words.Fact:
    """Return the fact that tells by which method A was found, and why by that one if asked."""
    steps = f"{result.n_iter:,} iteration" + "s" * (result.n_iter != 1)
    value = ", ".join(part for part in (result.plan.get("method", ""), steps, seconds) if part)
    return words.Fact("found by", value, "; ".join(result.plan.get("reasons", ())) * reasons)


def data_text(data: Measurements) -> str:
    """Sizes, facts, and what they mean for a solve."""
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
    """The plan, its cost, and its reasons."""
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
    """What a cluster takes, a sweep, and a solve: docs/scaling.md has the formulas."""
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
