"""The parts of a report, each an element of the page or None where there is nothing to say."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.plot.panels import (
    draw_entries,
    draw_progress,
    draw_range,
    draw_residuals,
    draw_spectrum,
    has_progress,
    progress_of,
    proved_of,
    residual_notes,
    spectrum_note,
    worst_words,
)
from quadsense.plot.pictures import ReadingsPicture, patch_of, spectrum_of, value_of
from quadsense.plot.style import LINE_HEIGHT, PointerValues, as_svg
from quadsense.preferences import kind_named
from quadsense.query.query import PARAMETERS, environment, flag_of
from quadsense.ranges import Interval
from quadsense.result import words as view
from quadsense.result.result import Result
from quadsense.view import (
    FINE,
    ROUGH,
    Markup,
    duration,
    element,
    interval,
    number,
    table,
)
from quadsense.vocabulary import Verification, rounded_down


def verdict(result: Result, title: str | None, checked: Verification | None) -> Markup:
    """Return the first part: what was found."""
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
    """Return residuals, progress, the matrix and its eigenvalues."""
    if not has_matplotlib():
        return section("Pictures", element("p", NEEDED))
    drawn = (figure(*each) for each in result_figures(result, readings))
    return section("Pictures", element("div", *drawn, class_="pictures"))


def intervals(result: Result, found: Mapping[str, Interval]) -> Markup | None:
    """Return the certified intervals, each on an axis of its own."""
    if not found:
        return None
    drawable = has_matplotlib()
    parts = []
    for name, each in found.items():
        value = value_of(each, result.matrix)
        drawn = interval_figure(name, each, value) if drawable else None
        ends = "" if drawable else f"{number(each.lower, FINE)} to {number(each.upper, FINE)}"
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
    parts = [] if value is None else [f"this A: {number(value, FINE)}"]
    if math.isfinite(found.lower) and math.isfinite(found.upper):
        parts.append(f"width {number(float(found.upper) - float(found.lower), ROUGH)}")
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


def plan(result: Result) -> Markup:
    """Return methods, reasons and where the time went."""
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
    """Return the lines that ask the same again, and what made this."""
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


# --- figures: the panels of `quadsense.plot`, as SVG in the colors of the page -----------------


Figure = tuple[str, str, Markup]
"""Caption, note, and the picture."""

NEEDED = "Figures are left out: they need matplotlib (pip install 'quadsense[plot]')."
"""What a report says where there is none."""


def has_matplotlib() -> bool:
    """Return whether figures can be drawn."""
    try:
        import matplotlib.backends.backend_svg  # noqa: F401
    except ImportError:
        return False
    return True


def result_figures(result: Result, readings: ReadingsPicture) -> Iterator[Figure]:
    """Draw the residuals, the progress, the matrix and its eigenvalues."""
    yield _residuals(result, readings)
    values = progress_of(result)
    values = values[np.isfinite(values)]
    if has_progress(result) and values.size > 1 and np.ptp(values) > 0.0:
        words = f"From {number(float(values[0]), ROUGH)} to {number(float(values[-1]), ROUGH)} "
        words += f"in {int(result.history.iteration[-1]):,} iterations."
        how = f"by {result.plan['method']}" if result.plan.get("method") else ""
        what = "Worst residual over the iterations"
        yield "Progress", how, _draw(what, words, lambda axes: draw_progress(axes, result))
    yield from _matrix(result)


def interval_figure(name: str, interval: Interval, value: float | None) -> Markup:
    """Draw a certified range with its numbers, on an axis of its own."""
    words = f"{name}: {number(interval.lower, FINE)} to {number(interval.upper, FINE)}."

    def draw(figure: Any) -> list[PointerValues]:
        return draw_range(figure.subplots(), interval, value)

    return as_svg("Certified interval", words, draw, 2.0 * LINE_HEIGHT)


def _residuals(result: Result, readings: ReadingsPicture) -> Figure:
    """Draw the residuals of the readings, or what stands for them."""
    caption = "Residuals"
    if result.verdict.asked == "accuracy":
        caption = "Eigenvalues of A*^(-1/2) A A*^(-1/2), minus 1"
    over = int(np.count_nonzero(readings.over))
    words = f"{readings.size:,} rows"
    words += f", {over:,} over the tolerance" if readings.target else ""
    words += f"; the worst is {worst_words(readings)}."

    def draw(figure: Any) -> list[PointerValues]:
        return draw_residuals(figure, readings, proved_of(result))

    note = "; ".join(residual_notes(readings))
    return caption, note, as_svg("Residuals of the measurements", words, draw)


def _matrix(result: Result) -> Iterator[Figure]:
    """Draw the entries of A and its eigenvalues."""
    patch = patch_of(result.matrix)
    order = f"order {patch.order:,}" + (f"; {patch.how}" if patch.how else "")
    parts = {"real": "Entries of A"}
    if np.iscomplexobj(patch.values):
        parts = {"real": "Real part of A", "imag": "Imaginary part of A"}
    for part, title in parts.items():
        values = patch.values.imag if part == "imag" else patch.values.real
        largest = f"up to {number(float(np.max(np.abs(values), initial=0.0)), ROUGH)}"

        def draw(axes: Any, part: str = part) -> list[PointerValues]:
            return draw_entries(axes, patch, part, "entry of A")

        yield title, f"{order}; {largest}", _draw(title, f"{order}; {largest}.", draw)
    spectrum = spectrum_of(result.matrix)
    if spectrum is not None and spectrum.values.size:
        first, last = (number(float(spectrum.values[k])) for k in (0, -1))
        note = spectrum_note(spectrum)
        words = f"From {first} down to {last}. {note}".strip()
        title = "Eigenvalues of A"
        yield title, note, _draw(title, words, lambda axes: draw_spectrum(axes, spectrum))


def _draw(title: str, words: str, draw: Callable[[Any], list[PointerValues]]) -> Markup:
    """Draw one panel."""
    return as_svg(title, words, lambda figure: draw(figure.subplots()))


# --- what the parts are made of ---------------------------------------------------------------


def section(title: str, *children: object) -> Markup:
    """Return a part with its heading."""
    return element("section", element("h2", title), *children, aria_label=title)


def paragraphs(texts: list[str]) -> list[Markup]:
    """Return a paragraph for each text."""
    return [element("p", text) for text in texts]


def facts(pairs: list[tuple[str, object]]) -> Markup:
    """Return names and what goes with them."""
    cells = ((element("dt", name), element("dd", value)) for name, value in pairs)
    return element("dl", *(part for pair in cells for part in pair), class_="facts")


def figure(caption: str, note: str, picture: Markup | None) -> Markup:
    """Return a picture below its caption and a note."""
    small = element("small", note) if note else None
    return element("figure", element("figcaption", caption, small), picture)


def folded(summary: object, *children: object, opened: bool = False) -> Markup:
    """Return one line that opens what is below it, without a script."""
    return element("details", element("summary", summary), *children, open=opened)


# --- what was asked, as the line of Python and as the command that ask it again ------------------


IN_THE_FILE = frozenset(
    name for name, each in PARAMETERS.items() if each.part == "data" and name != "conjugate"
)
"""Arguments that the file of the measurements holds as arrays."""


def request_in(result: Result) -> dict[str, Any]:
    """Return what was asked: as the result keeps it, or as far as its certificate tells."""
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
    if slack := kind_named(verdict.prefer).slack:
        request["slack"] = slack
    elif verdict.prefer != "minimax":
        request["prefer"] = verdict.prefer
    if claim.constraints:
        request["arrays"].append("constraints")
    if claim.allowed:
        request["allow_violations"] = claim.allowed
    return request


def python_line(request: dict[str, Any]) -> str:
    """Return the call of `solve` that asks the same."""
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
    """Return the command that asks the same of a file; None where only Python can."""
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
    """Return how to check the claim: in Python, and by the command."""
    if result.verdict.asked == "accuracy":
        return "result.verify(oracle)  # the eigenvalues, recomputed with A*", None
    python = (
        "import quadsense\n\n"
        f"data = quadsense.Measurements.open({data!r})  # or Measurements(U, b, ...)\n"
        f"result = quadsense.load_result({output!r})\n"
        "print(result.check(data))  # every statement, recomputed from the data"
    )
    return python, shlex.join(["quadsense", "verify", data, output])
