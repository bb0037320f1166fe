"""The certified intervals of a report, each on an axis of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping

from quadsense.ranges.ranges import Interval
from quadsense.report.chart import RIGHT, WIDTH, drawing, spoken
from quadsense.report.page import figure, key_line, section
from quadsense.report.scales import Scale, even_scale
from quadsense.view.markup import Markup, element, join, number

HEIGHT, MIDDLE, HALF_BAR = 84.0, 34.0, 8.0
"""Of the picture; of its bar."""

DIGITS = 6
"""Of the numbers at the ends, as in the notebook's card."""

KEY = [
    ("range", "proved: every fit is within"), ("found", "a fit that was found"),
    ("value", "this A"),
]  # fmt: skip
"""Kinds of marks in the pictures, and what they are called."""


def intervals_section(
    intervals: Mapping[str, Interval], values: Mapping[str, float | None]
) -> Markup:
    """Return the part of the page about intervals; `values` are those of the report's A."""
    pictures = [
        figure(name, _note(each, values.get(name)), interval_chart(name, each, values.get(name)))
        for name, each in intervals.items()
    ]
    key = list(KEY)
    if any(each.lower_condition or each.upper_condition for each in intervals.values()):
        key.insert(1, ("range given", "within, under a condition"))
    lead = element(
        "p", "The value of ⟨C, A⟩ over all matrices that fit. Each axis has a scale of its own."
    )
    return section(
        "Certified intervals", lead, key_line(key), element("div", *pictures, class_="pictures")
    )


def interval_chart(name: str, found: Interval, value: float | None = None) -> Markup:
    """Draw a certified range as a bar with its numbers, on an axis of its own."""
    ends = [found.lower, found.upper, found.lower_found, found.upper_found]
    x = even_scale([*ends, *([] if value is None else [value])], 14.0, WIDTH - RIGHT)
    open_low, open_high = math.isinf(found.lower), math.isinf(found.upper)
    low = x.begin if open_low else x.at(found.lower)
    high = x.end if open_high else x.at(found.upper)
    given = " given" * bool(found.lower_condition or found.upper_condition)
    parts = [
        _axis(x),
        element(
            "rect", x=low, y=MIDDLE - HALF_BAR, width=max(high - low, 2.0), height=2 * HALF_BAR,
            rx=2.0, class_=f"range{given}",
        ),
    ]  # fmt: skip
    for is_open, at, tip in ((open_low, x.begin, -1), (open_high, x.end, 1)):
        if is_open:
            edge = at - 9 * tip
            path = f"M{short_pair(edge, MIDDLE - HALF_BAR - 2)}l{9 * tip} 10l{-9 * tip} 10z"
            parts.append(element("path", d=path, class_="tip"))
    parts += _end_labels(found, low, high)
    for end, what in ((found.lower_found, "least"), (found.upper_found, "largest")):
        if math.isfinite(end):
            at = x.at(end)
            said = spoken(f"{what} value of a fit that was found: {{0}}", [[number(end, DIGITS)]])
            line = (
                f"{short_pair(at, MIDDLE - HALF_BAR - 3)} {short_pair(at, MIDDLE + HALF_BAR + 3)}"
            )
            parts.append(element("polyline", points=line, class_="line found", **said))
    if value is not None and math.isfinite(value):
        said = spoken("this A: {0}", [[number(value, DIGITS)]])
        path = f"M{short_pair(x.at(value), MIDDLE)}h0"
        parts.append(element("path", d=path, class_="dots halo"))
        parts.append(element("path", d=path, class_="dots value", **said))
    words = f"{name}: {number(found.lower, DIGITS)} to {number(found.upper, DIGITS)}."
    return drawing(WIDTH, HEIGHT, join(parts), "Certified interval", words)


def short_pair(x: float, y: float) -> str:
    """Write a place as SVG takes it."""
    return f"{x:.1f} {y:.1f}"


def _axis(x: Scale) -> Markup:
    """Draw the axis with its ticks."""
    foot = HEIGHT - 24.0
    parts = [element("line", x1=x.begin, x2=x.end, y1=foot, y2=foot, class_="axis")]
    for value, label in x.ticks(6):
        at = x.at(value)
        half = 4.8 * len(label)  # as wide as on a narrow page
        anchor = "start" if at < half else "end" if at > WIDTH - half else "middle"
        parts.append(element("line", x1=at, x2=at, y1=foot, y2=foot + 4, class_="axis"))
        parts.append(element("text", label, x=at, y=foot + 18, class_="tick", text_anchor=anchor))
    return join(parts)


def _end_labels(found: Interval, low: float, high: float) -> list[Markup]:
    """Write the ends above the bar: one below the other's side where there is no room for both."""
    texts = [number(end, DIGITS) for end in (found.lower, found.upper)]
    center = (low + high) / 2
    wide = 8.0 * max(map(len, texts))
    places: list[tuple[float, str]] = [(low, "start"), (high, "end")]
    if high - low < 2.2 * wide:  # around the middle of the bar, kept within the picture
        center = min(max(center, 14.0 + wide + 8.0), WIDTH - RIGHT - wide - 8.0)
        places = [(center - 8.0, "end"), (center + 8.0, "start")]
    return [
        element("text", text, x=at, y=MIDDLE - HALF_BAR - 9, class_="end", text_anchor=anchor)
        for text, (at, anchor) in zip(texts, places, strict=True)
    ]


def _note(found: Interval, value: float | None) -> str:
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
    for end_condition in dict.fromkeys([found.lower_condition, found.upper_condition]):
        if end_condition:
            parts.append(end_condition)
    if found.relaxed:
        parts.append("over all ranks")
    return "; ".join(parts)
