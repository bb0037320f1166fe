"""Small pages for notebooks: what `_repr_html_` of results, measurements and matrices shows.

Colors of text and lines are those of the page around, so that light and dark need no guess; where
a notebook drops the style, the text representation is what is seen. No script, no request.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.core.matrix import FactorForm, FramedForm, MeasuredForm, SensedMatrix
from quadsense.measurements import Measurements
from quadsense.measurements.gram import QUICK_RANK_FLOPS
from quadsense.next_probe import NextProbe
from quadsense.plot.pictures import MOST_CELLS, is_cheap, name_of, rounding_of
from quadsense.ranges import Interval
from quadsense.result import words
from quadsense.result.result import Result
from quadsense.sigma import SigmaEstimate
from quadsense.system.threads import one_blas_thread
from quadsense.view import (
    FINE,
    ROUGH,
    Markup,
    duration,
    element,
    interval,
    join,
    number,
    table,
)

STYLE = Markup(
    ".qs-text{display:none}"
    ".qs .qs-card{display:flex!important;flex-wrap:wrap;gap:.4em 2em;align-items:flex-start;"
    "max-width:52em;padding:.7em .9em;border:1px solid;border-color:rgba(128,128,128,.35);"
    "border-radius:8px;font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;"
    "color:inherit;background:none;box-sizing:border-box}"
    ".qs .qs-card>div{flex:1 1 22em;min-width:0}.qs .qs-card>.qs-side{flex:0 0 auto;"
    "max-width:100%;overflow-x:auto}"
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
)
"""Nothing here names a color of the page.

Each selector begins with two classes: a notebook's own rules for lists and tables, such as
JupyterLab's ``.jp-OutputArea-output dt``, are then the weaker ones.
"""

MOST_LINES = 6
"""Rows and columns of a matrix that its card shows, half as many complex ones, and candidates."""


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
    """Return the facts of a result and the numbers that matter."""
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
    found = words.found_by(result.plan, result.n_iter, seconds)
    pairs.append((found.label, found.value))
    badge = element("span", status.replace("_", " "), class_=f"qs-badge qs-{words.kind(verdict)}")
    said = head.value.removeprefix(f"{status}: ")
    body = element(
        "div",
        element("p", badge, element("span", said, class_="qs-head")),
        _facts(pairs),
    )
    return _card(repr(result), body)


# --- matrices --------------------------------------------------------------------------------


def _kind(matrix: SensedMatrix) -> str:
    return "Hermitian" if matrix.dtype.kind == "c" else "symmetric"


def _held(matrix: SensedMatrix) -> str:
    """Return in words in which form the matrix is held."""
    form = matrix.form
    form = form.inner if isinstance(form, FramedForm) else form
    if isinstance(form, FactorForm):
        signed = "" if form.signs is None else ", signed"
        return f"a factor of {form.factor.shape[1]:,} columns{signed}"
    if isinstance(form, MeasuredForm):
        return f"held by {form.rows.m:,} coefficients"
    return "dense"


def matrix_html(matrix: SensedMatrix) -> Markup:
    """Return order, form, trace and norm, and the first entries."""
    n = int(matrix.shape[0])
    pairs: list[tuple[str, object]] = [("held as", _held(matrix))]
    cheap = is_cheap(matrix)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        pairs.append(("trace", number(matrix.trace(), FINE)))
        if cheap:
            pairs.append(("Frobenius norm", number(matrix.norm(), FINE)))
        if cheap and n <= MOST_CELLS:
            values = np.linalg.eigvalsh(np.asarray(matrix))
            values = np.where(np.abs(values) <= rounding_of(values), 0.0, values)
            ends = [number(float(values[-1]), FINE), number(float(values[0]), FINE)]
            pairs.append(("eigenvalues", f"{ends[0]} down to {ends[1]}" if n > 1 else ends[0]))
    head = _head("SensedMatrix", f"{n:,} × {n:,}, {_kind(matrix)}, {matrix.dtype}")
    corner = element("div", _corner(matrix), class_="qs-side")
    return _card(repr(matrix), element("div", head, _facts(pairs)), corner)


def _corner(matrix: SensedMatrix) -> Markup:
    """Return the first entries as a table."""
    n, complex_ = int(matrix.shape[0]), matrix.dtype.kind == "c"
    k = min(n, MOST_LINES // 2 if complex_ else MOST_LINES)
    unit = np.zeros((n, k), dtype=matrix.dtype)
    unit[np.arange(k), np.arange(k)] = 1.0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        entries = to_numpy(matrix.times(unit))[:k]
    rows = [[str(i), *(_entry(value) for value in row)] for i, row in enumerate(entries)]
    return table(
        ["", *map(str, range(k))],
        rows,
        caption="entries" if k == n else f"entries of the first {k} rows and columns",
        numeric=range(1, k + 1),
    )


def _entry(value: Any) -> str:
    """Return an entry for people."""
    if not np.iscomplexobj(value):
        return number(float(value), ROUGH)
    sign = "−" if value.imag < 0.0 else "+"
    return f"{number(float(value.real), ROUGH)} {sign} {number(abs(float(value.imag)), ROUGH)}i"


# --- measurements ----------------------------------------------------------------------------


def measurements_html(data: Measurements) -> Markup:
    """Return sizes, readings, tolerances, and what is known of the probes without much work."""
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
    return number(low, FINE) if low == high else f"{number(low, FINE)} to {number(high, FINE)}"


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
    """Return the range, what its ends rest on, and the fits that were found."""
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
    span = element(
        "p", f"{number(found.lower, FINE)} … {number(found.upper, FINE)}", class_="qs-head"
    )
    return _card(repr(found), element("div", head, span, _facts(pairs)))


def _end(found: Interval, name: str) -> str:
    value, reached = getattr(found, name), getattr(found, f"{name}_found")
    condition = getattr(found, f"{name}_condition")
    if math.isinf(value):
        ray = getattr(found, f"{name}_ray")
        return "none: fits go on without end, proved" if ray is not None else "not known"
    text = f"{number(value, FINE)}, {condition or 'proved'}"
    if math.isfinite(reached):
        text += f"; a fit has {number(reached, FINE)}"
    return text


def next_probe_html(found: NextProbe) -> Markup:
    """Return the first candidates, with what each would tell."""
    rows = []
    for candidate in found.order[:MOST_LINES]:
        index = int(candidate)
        each = found.intervals.get(index)
        rows.append(
            [
                f"{index:,}",
                f"{float(found.unseen[index]):.1%}",
                "–" if each is None else interval(float(each.lower), float(each.upper)),
                number(float(found.widths[index]), ROUGH),
            ]
        )
    header = ["candidate", "unseen", "u* A u", "half-width / tolerance"]
    caption = f"the first {len(rows)} of {found.order.size:,}"
    body = table(header, rows, caption=caption, numeric=range(len(header)))
    message = element("p", found.message, class_="qs-soft")
    return _card(repr(found), element("div", _head("NextProbe", ""), message, body))


def sigma_html(found: SigmaEstimate) -> Markup:
    """Return the estimate, its interval, and what it rests on."""
    low, high = found.interval
    pairs: list[tuple[str, object]] = [
        ("sigma", number(found.sigma, FINE)),
        (f"{found.confidence:.0%} interval", f"{number(low, FINE)} to {number(high, FINE)}"),
        ("degrees of freedom", f"{found.dof:,}, after {found.rank:,} directions of A"),
    ]
    head = _head("SigmaEstimate", "the noise of a reading")
    return _card(repr(found), element("div", head, _facts(pairs)))
