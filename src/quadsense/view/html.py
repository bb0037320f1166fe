"""Small pages for notebooks: what `_repr_html_` of results, measurements and matrices shows.

Colours of text and lines are those of the page around, so that light and dark need no guess; where
a notebook drops the style, the text representation is what is seen. No script, no request.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.core.forms import FactorForm, FramedForm, MeasuredForm
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements import Measurements
from quadsense.measurements.base import QUICK_RANK_FLOPS
from quadsense.next_probe import NextProbe
from quadsense.ranges.ranges import Interval
from quadsense.result import words
from quadsense.result.result import Result
from quadsense.sigma import SigmaEstimate
from quadsense.system.threads import one_blas_thread
from quadsense.view.markup import (
    Markup,
    duration,
    element,
    interval,
    join,
    number,
    short,
    table,
)
from quadsense.view.pictures import is_cheap, name_of, patch_of, rounding_of
from quadsense.view.pixels import signed_image

STYLE = Markup(
    ".qs-text{display:none}"
    ".qs .qs-card{display:flex!important;flex-wrap:wrap;gap:.4em 2em;align-items:flex-start;"
    "max-width:52em;padding:.7em .9em;border:1px solid;border-color:rgba(128,128,128,.35);"
    "border-radius:8px;font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;"
    "color:inherit;background:none;box-sizing:border-box}"
    ".qs .qs-card>div{flex:1 1 22em;min-width:0}.qs .qs-card>.qs-side{flex:0 0 auto}"
    ".qs .qs-card p{margin:0 0 .45em;font:inherit;color:inherit}"
    ".qs .qs-card .qs-head{font-weight:600;font-size:14px}"
    ".qs .qs-card .qs-soft{opacity:.72}"
    ".qs .qs-badge{display:inline-block;padding:0 .6em;margin-right:.6em;border-radius:99px;"
    "color:#fff;font-size:12px;background:#8a5a00}"
    ".qs .qs-good{background:#1a7a48}.qs .qs-bad{background:#b3361e}"
    ".qs .qs-card dl{display:grid;grid-template-columns:fit-content(38%) 1fr;"
    "gap:.1em 1.1em;margin:0}"
    ".qs .qs-card dt,.qs .qs-card dd{display:block;float:none;width:auto;margin:0;padding:0}"
    ".qs .qs-card dt{opacity:.72;font-weight:400}"
    ".qs .qs-card dd{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}"
    ".qs .qs-card table{border-collapse:collapse;font:inherit;color:inherit;"
    "background:none;margin:0}"
    ".qs .qs-card caption{text-align:left;opacity:.72;padding:0 0 .2em}"
    ".qs .qs-card tr{line-height:inherit}.qs .qs-card tbody tr{background:none}"
    ".qs .qs-card th,.qs .qs-card td{padding:.1em 1em .1em 0;border:0;"
    "line-height:inherit;text-align:left;background:none;color:inherit}"
    ".qs .qs-card .n{text-align:right}"
    ".qs .qs-card svg{display:block;overflow:visible}"
)
"""Nothing here names a color of the page.

Each selector begins with two classes: a notebook's own rules for lists and tables, such as
JupyterLab's ``.jp-OutputArea-output dt``, are then the weaker ones.
"""

FLOPS = 2e8
"""What a look at a matrix may cost: some hundredths of a second."""

CELLS = 48
"""Rows and columns of the small picture of a matrix."""

BLUE, RED = "#3f8fd0", "#d9603f"
"""Legible on white and on black."""


def _card(text: str, *parts: object) -> Markup:
    """Return the parts next to each other, and the text for where the style is dropped."""
    return element(
        "div",
        element("style", STYLE),
        element("pre", text, class_="qs-text"),
        element("div", *parts, class_="qs-card", hidden=True),
        class_="qs",
    )


def _facts(pairs: list[tuple[str, object]]) -> Markup:
    cells = ((element("dt", name), element("dd", value)) for name, value in pairs)
    return element("dl", *(part for pair in cells for part in pair))


def _head(kind: str, said: object) -> Markup:
    soft = element("span", join([" ", said]), class_="qs-soft")
    return element("p", element("span", kind, class_="qs-head"), soft)


# --- results ---------------------------------------------------------------------------------


def result_html(result: Result) -> Markup:
    """Return the facts of a result, the numbers that matter, and how the worst residual fell."""
    verdict, status = result.verdict, str(result.status)
    head, *rest = words.facts(verdict)
    pairs: list[tuple[str, object]] = [(fact.label, fact.value) for fact in rest]
    worst = verdict.worst
    if verdict.asked == "bounds" and verdict.missed is not None:
        missed = verdict.missed
        where = f", row {missed.index:,}, asked {interval(missed.lo, missed.hi)}"
        pairs.append(("worst miss", number(missed.size) + (where if missed.size else "")))
    else:
        tolerance = f" of {number(worst.tolerance)}" if worst.tolerance is not None else ""
        pairs.append(("worst residual", f"{number(worst.size)}{tolerance}, row {worst.index:,}"))
    order = int(result.matrix.shape[0])
    pairs.append(("A", f"{order:,} × {order:,}, {_kind(result.matrix)}, {_held(result.matrix)}"))
    seconds = duration(sum(result.timings.values()))
    found = words.found_by(result.plan.get("method", ""), result.n_iter, seconds)
    pairs.append((found.label, found.value))
    badge = element("span", status.replace("_", " "), class_=f"qs-badge qs-{words.kind(verdict)}")
    said = head.value.removeprefix(f"{status}: ")
    body = element(
        "div",
        element("p", badge, element("span", said, class_="qs-head")),
        _facts(pairs),
    )
    line = _sparkline(result)
    side = None if line is None else element("div", line, class_="qs-side")
    return _card(repr(result), body, side)


def _sparkline(result: Result) -> Markup | None:
    """The worst residual over the iterations, by decades."""
    past, least = result.history, result.verdict.asked == "least"
    values = np.asarray(past.max_residual if least else past.max_ratio, dtype=np.float64)
    values = values[np.isfinite(values)]
    if values.size < 3 or not np.ptp(values) > 0.0:
        return None
    values = values[np.unique(np.linspace(0, values.size - 1, 120).astype(np.int64))]
    low = max(float(values[values > 0.0].min()), float(values.max()) * 1e-12)
    heights = np.log10(np.maximum(values, low))
    ends = heights if least else np.append(heights, 0.0)
    bottom, top = float(ends.min()), float(ends.max())
    span = max(top - bottom, 1e-9)
    width, height = 190.0, 58.0

    def place(value: Any) -> Any:
        return 4.0 + (height - 22.0) * (top - value) / span

    x = np.linspace(3.0, width - 3.0, heights.size)
    points = " ".join(
        f"{short(a, 1)},{short(b, 1)}" for a, b in zip(x, place(heights), strict=True)
    )
    limit = None
    if not least:
        limit = element(
            "line", x1=0, x2=width, y1=float(place(0.0)), y2=float(place(0.0)),
            stroke="currentColor", stroke_opacity=0.6, stroke_dasharray="4 3",
        )  # fmt: skip
    axis = "worst residual" if least else "worst residual / tolerance"
    return element(
        "svg",
        element("title", f"{axis} over the iterations"),
        limit,
        element("polyline", points=points, fill="none", stroke=BLUE, stroke_width=1.8),
        element(
            "text", axis, x=0, y=height - 3, fill="currentColor", fill_opacity=0.75, font_size=11
        ),
        width=width, height=height, viewBox=f"0 0 {short(width)} {short(height)}", role="img",
    )  # fmt: skip


# --- matrices --------------------------------------------------------------------------------


def _kind(matrix: SensedMatrix) -> str:
    return "Hermitian" if matrix.dtype.kind == "c" else "symmetric"


def _held(matrix: SensedMatrix) -> str:
    """In which form, in words."""
    form = matrix.form
    form = form.inner if isinstance(form, FramedForm) else form
    if isinstance(form, FactorForm):
        signed = "" if form.signs is None else ", signed"
        return f"a factor of {form.factor.shape[1]:,} columns{signed}"
    if isinstance(form, MeasuredForm):
        return f"held by {form.rows.m:,} coefficients"
    return "dense"


def matrix_html(matrix: SensedMatrix) -> Markup:
    """Order, form, trace and norm, and a picture of the entries."""
    n = int(matrix.shape[0])
    pairs: list[tuple[str, object]] = [("held as", _held(matrix))]
    cheap = is_cheap(matrix, FLOPS)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        pairs.append(("trace", number(matrix.trace(), 6)))
        if cheap:
            pairs.append(("Frobenius norm", number(matrix.norm(), 6)))
        if cheap and n <= 256:
            values = np.linalg.eigvalsh(np.asarray(matrix))
            values = np.where(np.abs(values) <= rounding_of(values), 0.0, values)
            ends = [number(float(values[-1]), 6), number(float(values[0]), 6)]
            pairs.append(("eigenvalues", f"{ends[0]} down to {ends[1]}" if n > 1 else ends[0]))
        patch = patch_of(matrix, CELLS, FLOPS)
    complex_ = np.iscomplexobj(patch.values)
    values = np.abs(patch.values) if complex_ else patch.values
    largest = float(np.max(np.abs(values), initial=0.0))
    what = "moduli of the entries" if complex_ else "entries"
    note = f"{what}; {patch.how}" if patch.how else what
    picture = element(
        "svg",
        element("title", f"{what}, the largest {number(largest, 3)}"),
        element(
            "image", href=signed_image(values, largest), width=96, height=96,
            style="image-rendering:pixelated", preserveAspectRatio="none",
        ),
        element(
            "rect", x=0.5, y=0.5, width=95, height=95, fill="none", stroke="currentColor",
            stroke_opacity=0.3,
        ),
        *_color_bar(largest, signed=not complex_),
        width=166, height=96, viewBox="0 0 166 96", role="img",
    )  # fmt: skip
    head = _head("SensedMatrix", f"{n:,} × {n:,}, {_kind(matrix)}, {matrix.dtype}")
    small = element(
        "p", note, class_="qs-soft", style="max-width:18em;font-size:11px;margin:.3em 0 0"
    )
    return _card(
        repr(matrix),
        element("div", head, _facts(pairs)),
        element("div", picture, small, class_="qs-side"),
    )


def _color_bar(largest: float, *, signed: bool) -> list[Markup]:
    """Return the scale of a picture of a matrix, to its right."""
    ramp = np.linspace(1.0, -1.0 if signed else 0.0, 33)[:, None]
    ends = [(largest, 9.0), (-largest if signed else 0.0, 96.0)]
    labels = [*ends, (0.0, 52.5)] if signed else ends
    return [
        element(
            "image", href=signed_image(ramp, 1.0), x=104, width=9, height=96,
            preserveAspectRatio="none",
        ),
        *(
            element(
                "text", number(value, 3), x=118, y=place, fill="currentColor", font_size=11,
            )
            for value, place in labels
        ),
    ]  # fmt: skip


# --- measurements ----------------------------------------------------------------------------


def measurements_html(data: Measurements) -> Markup:
    """Sizes, readings, tolerances, and what is known of the probes without much work."""
    plain, rows = data.plain, data.plain.unit_rows
    kind = "complex" if rows.is_complex else "real"
    pairs: list[tuple[str, object]] = []
    with np.errstate(over="ignore", under="ignore"):
        norms = to_numpy(rows.norms)
        what = "row norms" if data.mix is None else "norms"
        pairs.append((what, _range(float(norms.min()), float(norms.max()))))
        zero = int(np.count_nonzero(to_numpy(rows.nonzero) == 0))
        if zero:
            pairs.append(("rows of zeros", f"{zero:,}"))
        if plain.readings is not None:
            b = to_numpy(plain.readings)
            pairs.append(("readings", _range(float(b.min()), float(b.max()))))
        pairs.append(("tolerance", _tolerance(plain)))
        for each in data.constraints:
            pairs.append((each.name, interval(each.lo, each.hi)))
        with one_blas_thread():
            rank = data.find_rank(QUICK_RANK_FLOPS).rank
    unknowns = rows.unknowns
    if rank is None:
        seen = f"not looked into; {unknowns:,} unknowns"
        if data.m < unknowns:
            seen = f"at most {data.m:,} of {unknowns:,} directions of A"
    elif rank == unknowns:
        seen = f"all {unknowns:,} directions of A"
    else:
        seen = f"{rank:,} of {unknowns:,} directions of A"
    pairs.append(("seen", seen))
    mixed = "" if data.mix is None else f", sums over {rows.raw.m:,} rows"
    count = data.measured
    said = f"{count:,} of a matrix of order {data.n:,}, {rows.kind.storage} {kind} probes{mixed}"
    return _card(repr(data), element("div", _head("Measurements", said), _facts(pairs)))


def _range(low: float, high: float) -> str:
    return number(low, 6) if low == high else f"{number(low, 5)} to {number(high, 5)}"


def _tolerance(data: Measurements) -> str:
    ends = data.ends
    if ends is None or not data.judged:
        return "none: the smallest worst error will be sought"
    exact = int(np.count_nonzero(ends.exact))
    sides = ends.sides
    one = int(np.count_nonzero(sides[0] != sides[1]))
    none = int(np.count_nonzero(~sides.any(axis=0)))
    two = data.m - exact - one - none
    wide = ends.unit[sides.all(axis=0) & ~ends.exact]
    parts = []
    if two:
        size = f"± {_range(float(wide.min()), float(wide.max()))}"
        parts.append(size if two == data.m else f"{two:,} rows {size}")
    for many, which in ((one, "with one end"), (exact, "exact"), (none, "asked for nothing")):
        if many:
            parts.append(f"{many:,} {which}")
    return ", ".join(parts)


# --- intervals, probes, noise ----------------------------------------------------------------


def interval_html(found: Interval) -> Markup:
    """The range as a bar, with the fits that were found."""
    width, mid = 240.0, 12.0
    known = [
        x
        for x in (found.lower, found.upper, found.lower_found, found.upper_found)
        if math.isfinite(x)
    ]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    # What differs by rounding alone is a point.
    room = max(0.24 * (high / 2 - low / 2), 1e-6 * max(abs(low), abs(high))) or 1.0
    begin, end = low - room, high + room

    def place(value: float) -> float:
        if math.isinf(value):
            return 0.0 if value < 0 else width
        return width * (value / 2 - begin / 2) / (end / 2 - begin / 2)

    left, right = place(found.lower), place(found.upper)
    parts = [
        element("line", x1=0, x2=width, y1=mid, y2=mid, stroke="currentColor", stroke_opacity=0.35),
        element(
            "rect", x=left, y=mid - 6, width=max(right - left, 2.0), height=12, rx=2, fill=BLUE,
            fill_opacity=0.55,
        ),
    ]  # fmt: skip
    for value in (found.lower_found, found.upper_found):
        if math.isfinite(value):
            x = place(value)
            parts.append(element("line", x1=x, x2=x, y1=mid - 9, y2=mid + 9, stroke="currentColor"))
    for value, tip in ((found.lower, -1), (found.upper, 1)):
        if math.isinf(value):
            x = 0.0 if tip < 0 else width
            parts.append(
                element("path", d=f"M{short(x)} {mid - 7}l{7 * tip} 7l{-7 * tip} 7z", fill=BLUE)
            )
    title = f"from {number(found.lower, 6)} to {number(found.upper, 6)}"
    picture = element(
        "svg", element("title", title), *parts, width=width + 16, height=24,
        viewBox=f"-8 0 {short(width + 16)} 24", role="img",
    )  # fmt: skip
    which = "positive semidefinite fits" if found.psd else "fits"
    pairs: list[tuple[str, object]] = []
    for name in ("lower", "upper"):
        pairs.append((f"{name} end", _end(found, name)))
    if found.relaxed:
        pairs.append(("relaxed", "the rank is not looked at"))
    if found.set_aside.size:
        pairs.append(("left out", f"{found.set_aside.size:,} rows set aside"))
    asked = name_of(found)
    head = _head("Interval", f"{asked} over all {which}")
    span = element("p", f"{number(found.lower, 6)} … {number(found.upper, 6)}", class_="qs-head")
    side = element("div", picture, class_="qs-side")
    return _card(repr(found), element("div", head, span, _facts(pairs)), side)


def _end(found: Interval, name: str) -> str:
    value, reached = getattr(found, name), getattr(found, f"{name}_found")
    condition = getattr(found, f"{name}_condition")
    if math.isinf(value):
        ray = getattr(found, f"{name}_ray")
        return "none: fits go on without end, proved" if ray is not None else "not known"
    text = f"{number(value, 6)}, {condition or 'proved'}"
    if math.isfinite(reached):
        text += f"; a fit has {number(reached, 6)}"
    return text


def next_probe_html(found: NextProbe) -> Markup:
    """The first candidates, with what each would tell."""
    rows = []
    for candidate in found.order[:5]:
        index = int(candidate)
        each = found.intervals.get(index)
        rows.append(
            [
                f"{index:,}",
                f"{float(found.unseen[index]):.1%}",
                "–" if each is None else interval(float(each.lower), float(each.upper)),
                number(float(found.widths[index]), 3),
            ]
        )
    header = ["candidate", "unseen", "u* A u", "half-width / tolerance"]
    caption = f"the first {len(rows)} of {found.order.size:,}"
    body = table(header, rows, caption=caption, numeric=(0, 1, 2, 3))
    message = element("p", found.message, class_="qs-soft")
    return _card(repr(found), element("div", _head("NextProbe", ""), message, body))


def sigma_html(found: SigmaEstimate) -> Markup:
    """The estimate, its interval, and what it rests on."""
    low, high = found.interval
    pairs: list[tuple[str, object]] = [
        ("sigma", number(found.sigma, 6)),
        (f"{found.confidence:.0%} interval", f"{number(low, 5)} to {number(high, 5)}"),
        ("degrees of freedom", f"{found.dof:,}, after {found.rank:,} directions of A"),
    ]
    head = _head("SigmaEstimate", "the noise of a reading")
    return _card(repr(found), element("div", head, _facts(pairs)))
