"""The parts of a report, each an element of the page or None where there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quadsense.measurements import Measurements
from quadsense.ranges import Interval
from quadsense.record import environment
from quadsense.report import charts, matrices, ranges, words
from quadsense.report.page import facts, paragraphs, section
from quadsense.report.requests import check_lines, command_line, python_line, request_in
from quadsense.report.rows import constraints_table, rows_table
from quadsense.result import Result
from quadsense.verification import Verification
from quadsense.view import words as view
from quadsense.view.markup import Markup, duration, element, interval, number, table
from quadsense.view.pictures import (
    MOST_POINTS,
    Readings,
    patch_of,
    spectrum_of,
    value_of,
)


def verdict(result: Result, title: str | None, checked: Verification | None) -> Markup:
    """What was found, first of all."""
    kind = view.kind(result.verdict)
    head, *rest = view.facts(result.verdict)
    said = head.value.partition(": ")[2] or head.value
    false = checked is not None and not checked.true
    warning = (
        element(
            "p",
            element("span", "Not confirmed. ", class_="no"),
            "These data do not bear out what the result states; see the checks below.",
        )
        if false
        else None
    )
    return element(
        "header",
        element("p", title or "quadsense report", class_="name"),
        element("span", str(result.status).replace("_", " "), class_=f"badge {kind}"),
        element("h1", view.sentence(said)),
        warning,
        facts([(fact.label, fact.value) for fact in rest]),
        element("dl", *_tiles(result), class_="tiles"),
        class_=f"verdict {'bad' if false else kind}",
        aria_label="Verdict",
    )


def _tiles(result: Result) -> list[Markup]:
    found, n = result.verdict, int(result.matrix.shape[0])
    tiles: list[tuple[str, str, str]] = []
    worst, nearest = found.worst, found.nearest
    if found.asked == "accuracy":
        tiles.append(("Distance to A*", number(worst.size), f"asked: {number(worst.tolerance)}"))
    elif found.asked == "bounds" and found.missed is not None:
        ends = interval(found.missed.lo, found.missed.hi)
        size = found.missed.size
        where = f"row {found.missed.index:,}, asked {ends}" if size else "no interval is missed"
        tiles.append(("Worst miss", number(size), where))
    else:
        tolerance = f", tolerance {number(worst.tolerance)}" if worst.tolerance is not None else ""
        tiles.append(("Worst residual", number(worst.size), f"row {worst.index:,}{tolerance}"))
    if found.asked in ("delta", "bounds"):
        tiles.append(
            ("Worst ratio", number(result.max_ratio), f"row {nearest.index:,}; 1 is the tolerance")
        )
        tiles.append(("Not met", f"{found.over:,}", f"of {found.kept:,} measurements"))
    elif (
        found.asked == "least" and result.certificate.kind == "optimal" and found.objective is None
    ):
        tiles.append(("Proved", f"≥ {number(found.lower_bound)}", "by every matrix"))
    if found.set_aside:
        tiles.append(("Set aside", f"{found.set_aside:,}", f"at most {found.allowed:,} allowed"))
    if found.asked != "accuracy":
        rows = found.measurements
        tiles.append(("Measurements", f"{rows:,}", f"of a matrix of order {n:,}"))
        seen = "–" if found.unseen is None else f"{'' if found.exact else '≥ '}{found.unseen:,}"
        tiles.append(("Unseen directions", seen, f"of {found.unknowns:,}"))
    seconds = sum(result.timings.values())
    method = str(result.plan.get("method", ""))
    steps = f"{result.n_iter:,} iteration{'s' * (result.n_iter != 1)}"
    tiles.append(("Took", duration(seconds), f"{method}, {steps}" if method else steps))
    return [
        element("div", element("dt", name), element("dd", value, element("small", note)))
        for name, value, note in tiles
    ]


def pictures(result: Result, readings: Readings, intervals: Mapping[str, Interval]) -> Markup:
    """Progress, residuals, the matrix, its eigenvalues, intervals."""
    parts: list[Markup | None] = []
    history = charts.history_chart(result)
    if history is not None:
        parts.append(_figure("Progress", _history_note(result), history))
    note = ""
    if readings.size > MOST_POINTS:
        note = "the darker, the more rows are there; those not met are points"
    elif readings.one_sided.any() or readings.exact.any():
        note = "a row of one end, or an equality, is at 0 where it is met"
    if result.verdict.asked == "accuracy":
        parts.append(
            _figure(
                "Eigenvalues of A*^(-1/2) A A*^(-1/2), less 1", "", charts.residual_chart(readings)
            )
        )
    else:
        parts.append(_figure("Residuals", note, charts.residual_chart(readings, _proved(result))))
    patch = patch_of(result.matrix)
    whole = f"order {patch.order:,}" + (f"; {patch.how}" if patch.how else "")
    if np.iscomplexobj(patch.values):
        for part in ("real", "imaginary"):
            parts.append(_figure(f"A, {part} part", whole, matrices.matrix_chart(patch, part)))
    else:
        parts.append(_figure("A", whole, matrices.matrix_chart(patch)))
    spectrum = spectrum_of(result.matrix)
    if spectrum is not None and spectrum.values.size:
        parts.append(_figure("Eigenvalues of A", spectrum.how, matrices.spectrum_chart(spectrum)))
    if intervals:
        found = {name: value_of(each, result.matrix) for name, each in intervals.items()}
        values = {name: value for name, value in found.items() if value is not None}
        note = "bars are certified; ticks are fits that were found; the point is this A"
        parts.append(_figure("Certified intervals", note, ranges.interval_chart(intervals, values)))
    return section("Pictures", element("div", *parts, class_="pictures"))


def _proved(result: Result) -> float:
    """The worst error that every matrix has, where that is what was asked for."""
    claim = result.certificate
    least = result.verdict.asked == "least" and claim.kind == "optimal" and claim.objective is None
    return claim.lower_bound if least else 0.0


def _history_note(result: Result) -> str:
    return f"by {result.plan['method']}" if result.plan.get("method") else ""


def _figure(caption: str, note: str, picture: Markup) -> Markup:
    small = element("small", note) if note else None
    return element("figure", element("figcaption", caption, small), picture)


def certificate(
    result: Result,
    data: Measurements | None,
    checked: Verification | None,
    names: tuple[str, str],
) -> Markup:
    """The claim in plain words, how to check it, and what a check found."""
    python, command = check_lines(result, *names)
    parts: list[object] = list(paragraphs(words.certificate(result, data)))
    if result.certificate.kind != "none":
        parts += [element("h3", "Check it yourself"), element("pre", python)]
        parts.append(None if command is None else element("pre", f"$ {command}"))
    if checked is not None:
        parts.append(element("h3", "Checked when this report was written"))
        rows = [
            [
                check.statement,
                element(
                    "span",
                    "true" if check.holds else "false",
                    class_="yes" if check.holds else "no",
                ),
                check.detail,
            ]
            for check in checked.checks
        ]
        header = ["Statement", "Holds", "Compared"]
        parts.append(element("div", table(header, rows, caption="Checks"), class_="scroll"))
    return section("The certificate", *parts)


def objective(result: Result) -> Markup | None:
    """Which A of all that fit, with bounds; and the linear constraints."""
    found = result.verdict
    constraints = constraints_table(result)
    if result.objective is None and constraints is None:
        return None
    pairs: list[tuple[str, object]] = []
    if result.objective is not None:
        pairs += [
            ("Preferred", f"{found.prefer}: the {view.objective_name(found)}"),
            ("This A has", number(result.objective, 8)),
        ]
        if result.objective_bounds is not None:
            low, high = result.objective_bounds
            pairs.append(
                ("The best has", f"between {number(low, 8)} and {number(high, 8)}, proved")
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


def suspects(result: Result, readings: Readings, data: Measurements | None) -> Markup | None:
    """The rows worth a look."""
    found, left = rows_table(result, readings, data)
    if found is None or result.verdict.asked == "accuracy":
        return None
    title = (
        "Rows that contradict each other, and others"
        if result.suspects.size
        else "Rows worth a look"
    )
    note = element("p", left[:1].upper() + left[1:] + ".", class_="note") if left else None
    return section(title, note, element("div", found, class_="scroll"))


def plan(result: Result) -> Markup:
    """Methods, reasons and where the time went."""
    kept = result.plan
    pairs: list[tuple[str, object]] = []
    if kept.get("methods"):
        pairs.append(("Planned", " then ".join(kept["methods"])))
    pairs.append(("Decided by", f"{kept.get('method', '–')}, {result.n_iter:,} iterations"))
    if kept.get("lemma"):
        pairs.append(("Bound", kept["lemma"]))
    if kept.get("coordinates"):
        pairs.append(("Coordinates", kept["coordinates"]))
    reasons = [element("li", reason) for reason in kept.get("reasons", ())]
    total = sum(result.timings.values())
    rows = [
        [name, duration(seconds), f"{seconds / total:.0%}" if total else "–"]
        for name, seconds in sorted(result.timings.items(), key=lambda pair: -pair[1])
    ]
    timings = table(["Part", "Time", "Share"], rows, caption="Where the time went", numeric=(1, 2))
    return section(
        "Plan and reasons",
        facts(pairs),
        element("h3", "Because") if reasons else None,
        element("ul", *reasons) if reasons else None,
        element("h3", "Where the time went") if rows else None,
        element("div", timings, class_="scroll") if rows else None,
    )


def reproduction(result: Result, names: tuple[str, str]) -> Markup:
    """The lines that ask the same again, and what made this."""
    request = request_in(result)
    data, output = names
    command = command_line(request, data, output)
    made, now = result.plan.get("environment"), environment()
    pairs: list[tuple[str, object]] = []
    if isinstance(made, dict):
        pairs.append(("Solved with", _versions(made)))
    if made != now:
        pairs.append(("Report made with", _versions(now)))
    arrays = [name for name in request["arrays"] if name not in ("b", "bounds")]
    note = f"U, b and {', '.join(arrays)} stand for what was given." if arrays else None
    return section(
        "Ask the same again",
        element("pre", python_line(request)),
        None if command is None else element("pre", f"$ {command}"),
        element("p", note, class_="note") if note else None,
        element("h3", "Environment"),
        facts(pairs),
    )


def _versions(found: Mapping[str, Any]) -> str:
    names = {"quadsense": "quadsense", "python": "Python", "numpy": "NumPy", "scipy": "SciPy"}
    parts = [f"{names[key]} {found[key]}" for key in names if key in found]
    return ", ".join([*parts, *([str(found["system"])] if found.get("system") else [])])


def unseen(result: Result) -> Markup | None:
    """Return how far A is determined, and what that means."""
    for fact in view.facts(result.verdict):
        if fact.label == "determined":
            told = [f"{view.sentence(each)}." for each in (fact.value, fact.note) if each]
            return section("What is unseen", *paragraphs(told))
    return None
