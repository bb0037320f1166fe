"""The sections of what is behind a verdict: its certificate, the rows, the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.measurements import Measurements
from quadsense.plot.pictures import ReadingsPicture, is_cheap, reads_of
from quadsense.report.sections import check_lines, facts, folded, paragraphs, section
from quadsense.result.result import Result
from quadsense.result.words import CHECKED, kind_of_matrix, objective_name, sentence
from quadsense.view import DIGITS, FINE, Markup, element, interval, join, number, table
from quadsense.vocabulary import Verification

MOST_OF_A_KIND = 12
"""Rows of one kind that a table names."""

NEAREST = 5
"""Rows that are named for being nearest to their tolerance, or worst."""


BOUND = 8
"""Digits of the objective and of the bounds on it, which may differ little."""


# --- the sections -------------------------------------------------------------------------------


def certificate(
    result: Result,
    data: Measurements | None,
    checked: Verification | None,
    names: tuple[str, str],
) -> Markup:
    """Return the claim in plain words, how to check it, and what a check found."""
    python, command = check_lines(result, *names)
    parts: list[object] = list(paragraphs(claim_paragraphs(result, data)))
    if result.certificate.kind != "none":
        parts += [element("h3", "Check it yourself"), element("pre", python)]
        parts.append(None if command is None else element("pre", f"$ {command}"))
    if checked is not None:
        parts += [element("h3", "Checked when this report was written"), _checks(checked)]
    return section("The certificate", *parts)


def _checks(checked: Verification) -> Markup:
    """Return what the check found in one line, and below it all statements, false ones first."""
    checks = sorted(checked.checks, key=lambda check: check.holds)
    false = sum(not check.holds for check in checks)
    rows = [
        [
            check.statement,
            element(
                "span", "true" if check.holds else "false", class_="yes" if check.holds else "no"
            ),
            check.detail,
        ]
        for check in checks
    ]
    state = (
        element("span", f"{false} of {len(checks)} statements are false", class_="no")
        if false
        else element("span", f"all {len(checks)} statements are true", class_="yes")
    )
    summary = join(["Recomputed from the data: ", state])
    found = table(["Statement", "Holds", "Compared"], rows, caption="Checks")
    return folded(summary, element("div", found, class_="scroll"), opened=bool(false))


def suspects(result: Result, readings: ReadingsPicture, data: Measurements | None) -> Markup | None:
    """Return the rows worth a look."""
    found, left = rows_table(result, readings, data)
    if found is None or result.verdict.asked == "accuracy":
        return None
    title = (
        "Rows in conflict, and others worth a look" if result.suspects.size else "Rows worth a look"
    )
    note = element("p", left[:1].upper() + left[1:] + ".", class_="note") if left else None
    return section(title, note, element("div", found, class_="scroll"))


def objective(result: Result) -> Markup | None:
    """Return which A of all that fit, with bounds, and the linear constraints."""
    found = result.verdict
    constraints = constraints_table(result)
    if result.objective is None and constraints is None:
        return None
    pairs: list[tuple[str, object]] = []
    if result.objective is not None:
        pairs += [
            ("Preferred", f"{found.prefer}: the {objective_name(found)}"),
            ("This A has", number(result.objective, BOUND)),
        ]
        if result.objective_bounds is not None:
            low, high = result.objective_bounds
            pairs.append(
                ("The best has", f"between {number(low, BOUND)} and {number(high, BOUND)}, proved")
            )
        state = {True: "yes, within the gap", False: "no", None: "not looked into"}[result.optimal]
        pairs.append(("Certified", state))
        if found.wanted:
            pairs.append(("Asked for first", f"{found.wanted}, which was not found"))
    return section(
        "Which A",
        facts(pairs) if pairs else None,
        None if constraints is None else element("h3", "Linear constraints"),
        None if constraints is None else element("div", constraints, class_="scroll"),
    )


# --- what a certificate rests on, as far as the facts of the result do not say it ----------------


def claim_paragraphs(result: Result, data: Measurements | None) -> list[str]:
    """Return what was checked and what the claim rests on, one paragraph for each thought."""
    claim = result.certificate
    said = [f"{sentence(CHECKED[claim.kind])}."]
    if claim.kind == "met" and claim.upper_bound > 0.0:
        said.append(
            f"Rounding included, the worst takes {number(claim.upper_bound, FINE)} of its "
            f"tolerance; rounding itself is at most {number(claim.rounding, 2)} of it."
        )
    if claim.kind == "optimal":
        gap = claim.gap if claim.objective is None else claim.objective.gap
        said.append(f"Value and bound are within the gap that was asked for, {gap:g}.")
    said += _contradiction(result, data) if claim.kind == "infeasible" else _cone(result)
    said += _fit(result)
    if claim.condition:
        said.append(f"That holds {claim.condition}.")
    return said


def _cone(result: Result) -> list[str]:
    claim = result.certificate
    if claim.signs:
        return [
            f"A has at most {claim.signs[0]} positive and {claim.signs[1]} negative eigenvalues, "
            "by the form in which it is held."
        ]
    if claim.rank is not None:
        return [f"A is positive semidefinite of rank at most {claim.rank}, by its form A = X X*."]
    return ["A is positive semidefinite, which is checked too."] if claim.psd else []


def _contradiction(result: Result, data: Measurements | None) -> list[str]:
    """Return why the dual vectors prove that nothing fits."""
    claim, verdict = result.certificate, result.verdict
    which = kind_of_matrix(verdict)
    if verdict.contradiction is not None and not verdict.allowed:
        return []
    if verdict.allowed:
        proofs = 0 if claim.dual is None else len(np.atleast_2d(claim.dual))
        return [
            f"There are {proofs} proofs, each a combination of measurements that no {which} can "
            f"meet together, and no choice of {verdict.allowed} measurements has a part in all of "
            "them: whichever are set aside, some contradiction is left."
        ]
    combined = "is never negative" if claim.psd else "is 0"
    sums = "add up to a positive semidefinite matrix" if claim.psd else "cancel"
    span = _span(result, data)
    between = "cannot have such a sum"
    if span is not None:
        between = (
            f"have a sum between {number(span[0])} and {number(span[1])} (y scaled to a "
            "largest entry of 1)"
        )
    return [
        f"The certificate is a vector y, one number per measurement, for which the y_i u_i u_i* "
        f"{sums}. So the readings of any {which}, each times its y_i, have a sum that {combined}. "
        f"Readings within what was asked for {between}: a contradiction."
    ]


def _fit(result: Result) -> list[str]:
    """Return what is proved of the A that comes with a proof that nothing fits."""
    fit = result.fit
    if fit is None:
        return []
    if not fit.closed:
        return ["A is a least-squares fit of the rank that was asked for: it is stationary."]
    which = kind_of_matrix(result.verdict)
    return [
        "A is the least-squares fit without the tolerances. Its sum of squares, with the pull if "
        f"there is one, is {number(fit.value, FINE)}, and no {which} has less than "
        f"{number(fit.lower, FINE)}."
    ]


def _span(result: Result, data: Measurements | None) -> tuple[float, float] | None:
    """Return between what the combined reading lies for readings within their intervals."""
    claim = result.certificate
    lo, hi = claim.lo, claim.hi
    y = None if claim.dual is None else np.asarray(claim.dual, dtype=np.float64)
    if y is None or y.ndim != 1 or not np.any(y):
        return None
    if lo is None or hi is None:
        if data is None or data.readings is None:
            return None
        b, unit = to_numpy(data.readings), to_numpy(claim.tolerance)
        lo, hi = b - unit, b + unit
    lo = np.append(lo, [each.lo for each in claim.constraints])
    hi = np.append(hi, [each.hi for each in claim.constraints])
    if y.shape != lo.shape:
        return None
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        y = y / np.abs(y).max()
        ends = np.stack([y * lo, y * hi])
    ends = np.where(y == 0.0, 0.0, ends)
    return float(ends.min(axis=0).sum()), float(ends.max(axis=0).sum())


# --- rows worth a look: in conflict, not met, set aside, worst -----------------------------------


@dataclass(frozen=True)
class Column:
    """One column of the table: what is shown, and by what it is sorted."""

    title: str
    cells: Sequence[object]
    keys: Sequence[object]


def chosen_rows(result: Result, readings: ReadingsPicture) -> tuple[list[int], list[list[str]]]:
    """Return the rows worth a look, each with its state and why it is there.

    Rows in conflict are first, in the order of their share of the proof, then all others by how
    far they are from what was asked, farthest first.
    """
    verdict = result.verdict
    conflict = [int(row) for row in result.suspects]
    contradiction = verdict.contradiction
    if contradiction is not None and contradiction.index not in conflict:
        conflict.append(contradiction.index)
    sizes = np.where(np.isnan(readings.ratios), np.inf, np.abs(readings.ratios))
    order = np.argsort(-sizes, kind="stable")
    kept = order[~readings.aside[order]]
    chosen = {
        *order[readings.over[order]][:MOST_OF_A_KIND].tolist(),
        *order[readings.aside[order]][:MOST_OF_A_KIND].tolist(),
        *kept[:NEAREST].tolist(),
    }
    rest = sorted(chosen - set(conflict), key=lambda row: (-sizes[row], row))
    rows = [*conflict, *rest]
    return rows, [_states(result, readings, row, row in conflict, kept) for row in rows]


def _states(
    result: Result, readings: ReadingsPicture, row: int, in_conflict: bool, kept: Any
) -> list[str]:
    """Return the state of one row, and why it is named."""
    said = []
    if readings.aside[row]:
        said.append("set aside")
    elif readings.target and result.verdict.asked != "accuracy":
        said.append("not met" if readings.over[row] else "met")
    if in_conflict:
        said.append("in conflict")
    if kept.size and row == kept[0]:
        said.append("worst")
    elif not said:
        said.append("among the worst")
    return said


def rows_table(
    result: Result, readings: ReadingsPicture, data: Measurements | None
) -> tuple[Markup | None, str]:
    """Return the table, and what it leaves out, in words."""
    rows, states = chosen_rows(result, readings)
    if not rows:
        return None, ""
    columns = _columns(result, readings, data, np.array(rows, dtype=np.int64), states)
    left = []
    conflict = sum("in conflict" in each for each in states)
    if conflict:
        which = "the row" if conflict == 1 else "those"
        left.append(f"{which} in conflict first, then by how far they are from what was asked")
    elif any("not met" in each for each in states):
        left.append("those farthest from what was asked first")
    for mask, words in ((readings.over, "not met"), (readings.aside, "set aside")):
        count = int(np.count_nonzero(mask))
        shown = sum(words in each for each in states)
        if count > shown:
            left.append(f"{shown} of the {count:,} {words} are listed")
    found = table(
        [column.title for column in columns],
        zip(*(column.cells for column in columns), strict=True),
        caption="Rows worth a look",
        numeric=[k for k, column in enumerate(columns) if column.title != "State"],
        keys=list(zip(*(column.keys for column in columns), strict=True)),
    )
    return found, "; ".join(left)


def _columns(
    result: Result,
    readings: ReadingsPicture,
    data: Measurements | None,
    index: Any,
    states: list[list[str]],
) -> list[Column]:
    """Return the columns of the table."""
    claim = result.certificate

    def numbers(title: str, values: Any, digits: int = DIGITS) -> Column:
        values = [float(value) for value in values]
        return Column(title, [number(value, digits) for value in values], values)

    columns = [
        Column("Row", [f"{row:,}" for row in index], index.tolist()),
        Column("State", [_state_cell(each) for each in states], [", ".join(s) for s in states]),
    ]
    if readings.target:
        cells = [_ratio(readings, int(row)) for row in index]
        keys = [abs(float(readings.ratios[row])) for row in index]
        columns.append(Column("× tolerance", cells, keys))
    if data is not None and data.readings is not None:
        columns.append(numbers("Reading", to_numpy(data.readings)[index], FINE))
    if claim.lo is not None and claim.hi is not None:
        ends = [(float(claim.lo[row]), float(claim.hi[row])) for row in index]
        cells = [interval(lo, hi) for lo, hi in ends]
        columns.append(Column("Interval", cells, [lo for lo, _ in ends]))
    elif readings.target:
        unit = np.broadcast_to(to_numpy(claim.tolerance), (readings.size,))[index]
        cells = [f"± {number(float(each))}" for each in unit]
        columns.append(Column("Tolerance", cells, [float(each) for each in unit]))
    if data is not None:
        columns.append(numbers("A reads", reads_of(data, result.matrix, index), FINE))
    off = "Off by" if claim.lo is not None else "Residual"
    columns.append(numbers(off, readings.residuals[index]))
    shares = _shares(result)
    if shares is not None:
        shown = [f"{shares[row]:.1%}" if np.isfinite(shares[row]) else "–" for row in index]
        columns.append(Column("Share of the proof", shown, [float(shares[row]) for row in index]))
    return columns


def _state_cell(said: list[str]) -> Markup:
    """Return the states of a row, the one that calls for attention in its color."""
    return join(
        (element("span", each, class_="no") if each == "not met" else each for each in said), ", "
    )


def _ratio(readings: ReadingsPicture, row: int) -> str:
    if readings.exact[row] or readings.one_sided[row]:
        return "missed" if readings.ratios[row] else "met"
    return number(abs(float(readings.ratios[row])))


def _shares(result: Result) -> Any:
    """Return how much of a proof that nothing fits each row carries; None without such a proof."""
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
        return weight / weight.sum()


def constraints_table(result: Result) -> Markup | None:
    """Return the table of linear constraints: what was asked, what A has, and the price."""
    claim = result.certificate
    if not claim.constraints:
        return None
    duals = result.constraint_duals
    rows = []
    for each in claim.constraints:
        state = "not held" if each.name in result.verdict.broken else "held"
        state = "contradicts" if each.name in result.verdict.blamed else state
        rows.append(
            [each.name, interval(each.lo, each.hi), number(_value(result, each), FINE), state]
            + ([number(duals.get(each.name))] if duals else [])
        )
    header = ["Constraint", "Asked for", "A has", "State", *(["Dual value"] if duals else [])]
    numeric = [k for k, name in enumerate(header) if name not in ("Constraint", "State")]
    return table(header, rows, caption="Linear constraints", numeric=numeric)


def _value(result: Result, constraint: Any) -> float | None:
    """Return ``<C, A>``."""
    matrix, C = result.matrix, constraint.matrix
    with np.errstate(under="ignore", over="ignore"):
        if constraint.name == "trace":
            return matrix.trace()
        if constraint.signs is not None:
            X = C.toarray() if hasattr(C, "toarray") else to_numpy(C)
            reads = to_numpy(matrix.quadratic(np.ascontiguousarray(X.T)))
            return float(reads @ constraint.signs)
        if not is_cheap(matrix):
            return None
        A = np.asarray(matrix)
        if hasattr(C, "multiply"):
            return float(np.real(C.multiply(A.T).sum()))
        return float(np.vdot(to_numpy(C), A).real)
