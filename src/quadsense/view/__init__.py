"""HTML and SVG as text: elements that escape what they are given, and numbers for people.

A plain string is text and is escaped; what `element` makes is `Markup` and is not escaped again.
So no string of a user can become a tag, wherever it is put.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape as _escape_text  # `html` is a module of this package
from typing import Any

EMPTY = frozenset({"meta", "br", "line", "rect", "circle", "path", "polyline", "image"})
"""Elements without contents."""


DIGITS, ROUGH, FINE = 4, 3, 6
"""Significant digits of numbers for people: of most, of those in passing, and of results."""

MIN_PLAIN, MAX_PLAIN = 1e-3, 1e6
"""Numbers that are written without a power of ten, where that needs no digit more."""

UNITS = {
    "years": 31557600.0, "days": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6
}  # fmt: skip
"""Seconds of each unit of time."""

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that no HTML file may hold, which a name may."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: object) -> Markup:
    """Return the text as HTML; what is HTML already stays as it is."""
    if isinstance(text, Markup):
        return text
    return Markup(_escape_text(FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(text))))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Return the parts after each other, those that are not HTML escaped; None is left out."""
    return Markup(between.join(escape(part) for part in parts if part is not None))


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element: ``element("td", "a < b")`` is ``<td>a &lt; b</td>``.

    Parameters
    ----------
    name : str
    *children
        Markup, text (escaped), or None, which is left out.
    **attributes
        ``class_`` is ``class`` and ``aria_label`` ``aria-label``; numbers are rounded to what a
        screen shows; True stands for an attribute without a value, None and False for none.
    """
    opened = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        opened += f" {key.rstrip('_').replace('_', '-')}"
        if value is not True:
            text = short(value) if isinstance(value, float) else str(value)
            opened += f'="{escape(text)}"'
    if name in EMPTY:
        return Markup(f"<{opened}/>")
    return Markup(f"<{opened}>{join(children)}</{name}>")


def table(
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    numeric: Any = (),
    keys: Sequence[Sequence[object]] | None = None,
) -> Markup:
    """Return a table with headers that belong to their columns.

    Parameters
    ----------
    header : sequence of str or Markup
    rows : iterable of sequences
        One cell per column; the first of each row is its header.
    caption : str
        What the table is, for those who do not see it.
    numeric : collection of int
        Columns of numbers, aligned right.
    keys : sequence of sequences, optional
        Numbers or texts by which a script may sort the rows, as many as there are cells.
    """

    def kind(column: int) -> str | None:
        return "n" if column in numeric else None

    heads = (
        element("th", cell, scope="col", class_=kind(column)) for column, cell in enumerate(header)
    )
    body = []
    for index, row in enumerate(rows):
        cells = []
        for column, cell in enumerate(row):
            name, scope = ("td", None) if column else ("th", "row")
            key = None if keys is None else str(keys[index][column])
            cells.append(element(name, cell, scope=scope, class_=kind(column), data_key=key))
        body.append(element("tr", *cells))
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *heads)),
        element("tbody", *body),
        class_=None if keys is None else "sortable",
    )


def short(value: float, digits: int = 2) -> str:
    """Return a coordinate: two decimals at most, and no zeros after them."""
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def number(value: float | None, digits: int = DIGITS) -> str:
    """Return a number for people: ``-1.5e-07`` reads −1.5 × 10⁻⁷."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < MAX_PLAIN:
        return f"{int(value):,}".replace("-", "−")
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    if exponent:
        mantissa += f" × 10{superscript(int(exponent))}"
    return mantissa.replace("-", "−")


def superscript(exponent: int) -> str:
    """Return a whole number in raised digits."""
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def interval(lo: float | None, hi: float | None) -> str:
    """Return an interval for people; one without ends is none."""
    low = -math.inf if lo is None else lo
    high = math.inf if hi is None else hi
    if math.isinf(low) and math.isinf(high):
        return "–"
    if math.isinf(low):
        return f"≤ {number(high, FINE)}"
    if math.isinf(high):
        return f"≥ {number(low, FINE)}"
    if low == high:
        return f"= {number(low, FINE)}"
    return f"[{number(low, FINE)}, {number(high, FINE)}]"


def duration(seconds: float) -> str:
    """Return a time for people: in seconds up to two minutes, in minutes up to two hours."""
    for unit, length in UNITS.items():
        if seconds >= (length if length <= 1.0 else 2.0 * length):
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / UNITS['µs']:.3g} µs"
