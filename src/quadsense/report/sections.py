"""The parts of a report, each an element of the page or None where there is nothing to say."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.measurements import Measurements
from quadsense.plot.intervals import DIGITS
from quadsense.plot.pictures import ReadingsPicture, value_of
from quadsense.query.query import PARAMETERS, environment, flag_of
from quadsense.ranges.ranges import Interval
from quadsense.report import figures
from quadsense.report.rows import constraints_table, rows_table
from quadsense.result import words as view
from quadsense.result.result import Result
from quadsense.result.words import CHECKED, kind_of_matrix, sentence
from quadsense.view.markup import (
    Markup,
    duration,
    element,
    interval,
    join,
    number,
    table,
)
from quadsense.vocabulary import Verification, rounded_down


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
        facts([(fact.label, _value_of_fact(fact)) for fact in rest]),
        element("dl", *_tiles(result), class_="tiles"),
        class_=f"verdict {'bad' if false else kind}",
        aria_label="Verdict",
    )


def _value_of_fact(fact: view.Fact) -> object:
    """Return the value of a fact; the next step stands out."""
    return element("strong", fact.value) if fact.label == "next step" else fact.value


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
        tiles.append(
            (
                "Proved",
                f"≥ {number(float(rounded_down(found.lower_bound)))}",
                "by every matrix",
            )
        )
    if found.set_aside:
        count = len(found.set_aside)
        tiles.append(("Set aside", f"{count:,}", f"at most {found.allowed:,} allowed"))
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


def pictures(result: Result, readings: ReadingsPicture) -> Markup:
    """Residuals, progress, the matrix and its eigenvalues."""
    if not figures.has_matplotlib():
        return section("Pictures", element("p", figures.NEEDED))
    drawn = (figure(*each) for each in figures.result_figures(result, readings))
    return section("Pictures", element("div", *drawn, class_="pictures"))


def intervals(result: Result, found: Mapping[str, Interval]) -> Markup | None:
    """The certified intervals, each on an axis of its own."""
    if not found:
        return None
    drawable = figures.has_matplotlib()
    parts = []
    for name, each in found.items():
        value = value_of(each, result.matrix)
        drawn = figures.interval_figure(name, each, value) if drawable else None
        ends = "" if drawable else f"{number(each.lower, DIGITS)} to {number(each.upper, DIGITS)}"
        note = "; ".join(part for part in (ends, _interval_note(each, value)) if part)
        parts.append(figure(name, note, drawn))
    lead = "The value of ⟨C, A⟩ over all matrices that fit, proved."
    if drawable:
        lead += (
            " Upright lines are fits that were found, the point is this A, and a pale bar holds "
            "under a condition. Each axis has a scale of its own."
        )
    return section(
        "Certified intervals", element("p", lead), element("div", *parts, class_="pictures")
    )


def _interval_note(found: Interval, value: float | None) -> str:
    """Write what goes with the bar: this A, the width, an end that is not there."""
    parts = [] if value is None else [f"this A: {number(value, DIGITS)}"]
    if math.isfinite(found.lower) and math.isfinite(found.upper):
        parts.append(f"width {number(float(found.upper) - float(found.lower), 3)}")
    for end, side, ray in (
        (found.lower, "lower", found.lower_ray), (found.upper, "upper", found.upper_ray),
    ):  # fmt: skip
        if math.isinf(end):
            known = "there is none, proved" if ray is not None else "not known"
            parts.append(f"{side} end: {known}")
    for condition in dict.fromkeys([found.lower_condition, found.upper_condition]):
        if condition:
            parts.append(condition)
    if found.relaxed:
        parts.append("over all ranks")
    return "; ".join(parts)


def certificate(
    result: Result,
    data: Measurements | None,
    checked: Verification | None,
    names: tuple[str, str],
) -> Markup:
    """The claim in plain words, how to check it, and what a check found."""
    python, command = check_lines(result, *names)
    parts: list[object] = list(paragraphs(claim_paragraphs(result, data)))
    if result.certificate.kind != "none":
        parts += [element("h3", "Check it yourself"), element("pre", python)]
        parts.append(None if command is None else element("pre", f"$ {command}"))
    if checked is not None:
        parts += [element("h3", "Checked when this report was written"), _checks(checked)]
    return section("The certificate", *parts)


def _checks(checked: Verification) -> Markup:
    """One line that says what the check found, and below it every statement, false ones first."""
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


def suspects(result: Result, readings: ReadingsPicture, data: Measurements | None) -> Markup | None:
    """The rows worth a look."""
    found, left = rows_table(result, readings, data)
    if found is None or result.verdict.asked == "accuracy":
        return None
    title = (
        "Rows in conflict, and others worth a look" if result.suspects.size else "Rows worth a look"
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
    took = f"Where the time went: {duration(total)}"
    if rows:
        took += f", {rows[0][2]} of it in {rows[0][0]}"
    timings = table(["Part", "Time", "Share"], rows, caption="Where the time went", numeric=(1, 2))
    return section(
        "Plan and reasons",
        facts(pairs),
        element("h3", "Because") if reasons else None,
        element("ul", *reasons) if reasons else None,
        folded(took, element("div", timings, class_="scroll")) if rows else None,
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


# --- what the parts are made of ---------------------------------------------------------------


def section(title: str, *children: object) -> Markup:
    """A part with its heading."""
    return element("section", element("h2", title), *children, aria_label=title)


def paragraphs(texts: list[str]) -> list[Markup]:
    """A paragraph for each text."""
    return [element("p", text) for text in texts]


def facts(pairs: list[tuple[str, object]]) -> Markup:
    """Names and what goes with them."""
    cells = ((element("dt", name), element("dd", value)) for name, value in pairs)
    return element("dl", *(part for pair in cells for part in pair), class_="facts")


def figure(caption: str, note: str, picture: Markup | None) -> Markup:
    """A picture below its caption and a note."""
    small = element("small", note) if note else None
    return element("figure", element("figcaption", caption, small), picture)


def folded(summary: object, *children: object, opened: bool = False) -> Markup:
    """One line that opens what is below it, without a script."""
    return element("details", element("summary", summary), *children, open=opened)


# --- what a certificate rests on, as far as the facts of the result do not say it ----------------


def claim_paragraphs(result: Result, data: Measurements | None) -> list[str]:
    """Return what was checked and what the claim rests on, one paragraph for each thought."""
    claim = result.certificate
    said = [f"{sentence(CHECKED[claim.kind])}."]
    if claim.kind == "met" and claim.upper_bound > 0.0:
        said.append(
            f"Rounding included, the worst takes {number(claim.upper_bound, 6)} of its tolerance; "
            f"rounding itself is at most {number(claim.rounding, 2)} of it."
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
            f"have a sum between {number(span[0], 4)} and {number(span[1], 4)} (y scaled to a "
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
        f"there is one, is {number(fit.value, 6)}, and no {which} has less than "
        f"{number(fit.lower, 6)}."
    ]


def _span(result: Result, data: Measurements | None) -> tuple[float, float] | None:
    """Between what the combined reading lies for readings within their intervals."""
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


# --- what was asked, as the line of Python and as the command that ask it again ------------------


IN_THE_FILE = frozenset(
    name for name, each in PARAMETERS.items() if each.part == "data" and name != "conjugate"
)
"""Arguments that the file of the measurements holds as arrays."""


def request_in(result: Result) -> dict[str, Any]:
    """What was asked: as the result keeps it, or as far as its certificate tells."""
    kept = result.plan.get("request")
    if isinstance(kept, dict):
        return {"arrays": [], **kept}
    claim, verdict = result.certificate, result.verdict
    if verdict.asked == "accuracy":
        return {"accuracy": verdict.worst.tolerance, "arrays": []}
    request: dict[str, Any] = {"arrays": ["b"]}
    if verdict.asked == "bounds":
        request["arrays"] = ["bounds"]
    elif verdict.asked == "delta":
        tolerance = np.unique(to_numpy(claim.tolerance))
        if tolerance.size == 1:
            request["delta"] = float(tolerance[0])
        else:
            request["arrays"].append("delta")
    if claim.rank is not None or claim.signs:
        request["rank"] = list(claim.signs) or claim.rank
    elif claim.psd:
        request["psd"] = True
    if verdict.prefer.startswith("slack_"):
        request["slack"] = verdict.prefer.removeprefix("slack_")
    elif verdict.prefer != "minimax":
        request["prefer"] = verdict.prefer
    if claim.constraints:
        request["arrays"].append("constraints")
    if claim.allowed:
        request["allow_violations"] = claim.allowed
    return request


def python_line(request: dict[str, Any]) -> str:
    """The call of `solve` that asks the same."""
    if "accuracy" in request:
        return f"result = quadsense.solve_spectral(oracle, A1, accuracy={request['accuracy']!r})"
    arrays = list(request["arrays"])
    parts = ["U", *(["b"] if "b" in arrays else [])]
    for name, value in request.items():
        if name != "arrays":
            shown = tuple(value) if isinstance(value, list) else value
            parts.append(f"{name}={shown!r}")
    for name in arrays:
        if name != "b":
            parts.append("bounds=(lo, hi)" if name == "bounds" else f"{name}={name}")
    return f"result = quadsense.solve({', '.join(parts)})"


def command_line(request: dict[str, Any], data: str, output: str) -> str | None:
    """The command that asks the same of a file; None where only Python can."""
    beyond = set(request["arrays"]) - IN_THE_FILE
    if "accuracy" in request or beyond:
        return None
    words = ["quadsense", "solve", data]
    for name, value in request.items():
        if name == "arrays":
            continue
        flag = flag_of(name)
        if value is True:
            words.append(flag)
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [flag, text]
    return shlex.join([*words, "-o", output])


def check_lines(result: Result, data: str, output: str) -> tuple[str, str | None]:
    """How to check the claim: in Python, and by the command."""
    if result.verdict.asked == "accuracy":
        return "result.verify(oracle)  # the eigenvalues, recomputed with A*", None
    python = (
        "import quadsense\n\n"
        f"data = quadsense.Measurements.open({data!r})  # or Measurements(U, b, ...)\n"
        f"result = quadsense.load_result({output!r})\n"
        "print(result.check(data))  # every statement, recomputed from the data"
    )
    return python, shlex.join(["quadsense", "verify", data, output])
