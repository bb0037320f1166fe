"""The measurements worth a look, as a table: who contradicts, who misses, who was set aside."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.measurements import Measurements
from quadsense.result import Result
from quadsense.view.markup import Markup, interval, number, table
from quadsense.view.pictures import Readings, reads_of

MOST_OF_A_KIND = 12
"""Rows of one kind that a table names."""

NEAREST = 5
"""Rows that are named for being nearest to their tolerance, or worst."""


def chosen_rows(result: Result, readings: Readings) -> dict[int, list[str]]:
    """Rows worth a look, with why: those of a contradiction first."""
    found: dict[int, list[str]] = {}
    sizes = np.where(np.isnan(readings.ratios), np.inf, np.abs(readings.ratios))

    def add(rows: Any, why: str, most: int = MOST_OF_A_KIND) -> None:
        for row in list(rows)[:most]:
            found.setdefault(int(row), []).append(why)

    def worst(rows: Any) -> Any:
        return rows[np.argsort(-sizes[rows], kind="stable")]

    add(result.suspects, "contradicts")
    contradiction = result.verdict.contradiction
    if contradiction is not None and contradiction.index not in found:
        add([contradiction.index], "contradicts")
    add(worst(result.set_aside), "set aside")
    over = worst(result.violations)
    add(over, "not met" if result.verdict.asked != "accuracy" else "over")
    rest = np.flatnonzero(~readings.aside)
    order = worst(rest)
    add(order[:1], "worst")
    add([row for row in order[:NEAREST] if int(row) not in found], "among the worst", NEAREST)
    return found


def rows_table(
    result: Result, readings: Readings, data: Measurements | None
) -> tuple[Markup | None, str]:
    """The table, and what it leaves out, in words."""
    chosen = chosen_rows(result, readings)
    if not chosen:
        return None, ""
    index = np.array(list(chosen), dtype=np.int64)
    claim, verdict = result.certificate, result.verdict
    columns: list[tuple[str, list[str]]] = [("Row", [f"{row:,}" for row in index])]
    columns.append(("Why", [", ".join(chosen[int(row)]) for row in index]))
    shares = _shares(result, index)
    if shares is not None:
        columns.append(("Share of the proof", shares))
    b = None if data is None or data.readings is None else to_numpy(data.readings)[index]
    if b is not None:
        columns.append(("Reading", [number(float(x), 6) for x in b]))
    if claim.lo is not None and claim.hi is not None:
        ends = zip(claim.lo[index], claim.hi[index], strict=True)
        columns.append(("Interval", [interval(float(lo), float(hi)) for lo, hi in ends]))
    elif readings.target:
        tolerances = np.broadcast_to(to_numpy(claim.tolerance), (readings.size,))[index]
        columns.append(("Tolerance", [f"± {number(float(x), 4)}" for x in tolerances]))
    if data is not None:
        reads = reads_of(data, result.matrix, index)
        columns.append(("A reads", [number(float(x), 6) for x in reads]))
    name = "Off by" if claim.lo is not None else "Residual"
    columns.append((name, [number(float(x), 4) for x in readings.residuals[index]]))
    if readings.target:
        columns.append(("× tolerance", [_ratio(readings, int(row)) for row in index]))
    cells = list(zip(*(column for _, column in columns), strict=True))
    numeric = [k for k, (title, _) in enumerate(columns) if title != "Why"]
    left = []
    for rows, words in (
        (result.violations, "not met"),
        (result.set_aside, "set aside"),
    ):
        if rows.size > MOST_OF_A_KIND:
            left.append(f"{MOST_OF_A_KIND} of {rows.size:,} {words} are named")
    if verdict.suspects and str(result.status) == "infeasible":
        left.append("those that contradict carry most of the proof, the heaviest first")
    return (
        table([title for title, _ in columns], cells, caption="Rows worth a look", numeric=numeric),
        "; ".join(left),
    )


def _ratio(readings: Readings, row: int) -> str:
    if readings.exact[row] or readings.one_sided[row]:
        return "missed" if readings.ratios[row] else "met"
    return number(abs(float(readings.ratios[row])), 4)


def _shares(result: Result, index: Any) -> list[str] | None:
    """How much of a proof that nothing fits each row carries."""
    claim = result.certificate
    if claim.kind != "infeasible" or claim.dual is None or result.verdict.contradiction is not None:
        return None
    dual = np.abs(np.atleast_2d(claim.dual))
    unit = np.broadcast_to(to_numpy(claim.tolerance), (np.size(result.residuals),))
    if dual.shape[1] < unit.size:
        return None
    with np.errstate(under="ignore", over="ignore", invalid="ignore", divide="ignore"):
        weight = dual[:, : unit.size] * np.where(unit > 0.0, unit, 1.0)
        weight = (weight / weight.sum(axis=1, keepdims=True)).sum(axis=0)
        weight = weight / weight.sum()
    return [f"{weight[row]:.1%}" if np.isfinite(weight[row]) else "–" for row in index]


def constraints_table(result: Result) -> Markup | None:
    """Linear constraints: what was asked, what A has, and the price."""
    claim = result.certificate
    if not claim.constraints:
        return None
    duals = result.constraint_duals
    rows = []
    for each in claim.constraints:
        state = "not held" if each.name in result.verdict.broken else "held"
        state = "contradicts" if each.name in result.verdict.blamed else state
        rows.append(
            [each.name, interval(each.lo, each.hi), number(_value(result, each), 6), state]
            + ([number(duals.get(each.name), 4)] if duals else [])
        )
    header = ["Constraint", "Asked for", "A has", "State", *(["Dual value"] if duals else [])]
    return table(header, rows, caption="Linear constraints", numeric=(1, 2, 4))


def _value(result: Result, constraint: Any) -> float | None:
    """``<C, A>``."""
    matrix, C = result.matrix, constraint.matrix
    with np.errstate(under="ignore", over="ignore"):
        if constraint.name == "trace":
            return matrix.trace()
        if constraint.signs is not None:
            X = C.toarray() if hasattr(C, "toarray") else to_numpy(C)
            reads = to_numpy(matrix.quadratic(np.ascontiguousarray(X.T)))
            return float(reads @ constraint.signs)
        if matrix.shape[0] > 3000:
            return None
        A = np.asarray(matrix)
        if hasattr(C, "multiply"):
            return float(np.real(C.multiply(A.T).sum()))
        return float(np.vdot(to_numpy(C), A).real)
