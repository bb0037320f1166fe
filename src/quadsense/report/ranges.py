"""The picture of the certified intervals of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping

from quadsense.ranges import Interval
from quadsense.report.chart import BOTTOM, TOP, WIDTH, Chart, drawing
from quadsense.report.scales import Scale, even_scale
from quadsense.view.markup import Markup, element, join, number


def interval_chart(intervals: Mapping[str, Interval], values: Mapping[str, float]) -> Markup:
    """Certified ranges as bars, each with the value of A and the fits that were found."""
    left, step = 110.0, 26.0
    height = TOP + BOTTOM + step * len(intervals)
    ends = [
        end for each in intervals.values() for end in (*each, each.lower_found, each.upper_found)
    ]
    x = even_scale([*ends, *values.values()], *Chart.across(left))
    y = Scale("linear", 0.0, float(len(intervals)), TOP, height - BOTTOM)
    chart = Chart(x, y, ("value of ⟨C, A⟩ over all fits", ""), height=height, left=left)
    parts: list[Markup] = []
    for row, (name, each) in enumerate(intervals.items()):
        place = TOP + step * (row + 0.5)
        low, high = x.at(each.lower), x.at(each.upper)
        given = each.lower_condition or each.upper_condition
        parts.append(
            element(
                "rect", x=low, y=place - 6, width=max(high - low, 1.5), height=12.0, rx=2.0,
                class_="range given" if given else "range",
            )
        )  # fmt: skip
        for end, tip in ((each.lower, -1), (each.upper, 1)):
            if math.isinf(end):
                at = x.begin if tip < 0 else x.end
                parts.append(
                    element(
                        "path", d=f"M{at - 7 * tip} {place - 6}l{7 * tip} 6l{-7 * tip} 6z",
                        class_="tip",
                    )
                )  # fmt: skip
        for found in (each.lower_found, each.upper_found):
            if math.isfinite(found):
                at = x.at(found)
                parts.append(
                    element("line", x1=at, x2=at, y1=place - 6, y2=place + 6, class_="line found")
                )
        if name in values:
            parts.append(element("circle", cx=x.at(values[name]), cy=place, r=4.0, class_="value"))
        label = name if len(name) <= 16 else f"{name[:15]}…"
        parts.append(
            element("text", label, x=left - 8, y=place + 4, class_="tick", text_anchor="end")
        )
    axis = element("line", x1=x.begin, x2=x.end, y1=y.end, y2=y.end, class_="axis")
    for value, label in x.ticks(6):
        at = x.at(value)
        parts.append(element("line", x1=at, x2=at, y1=y.end, y2=y.end + 4, class_="axis"))
        parts.append(
            element("text", label, x=at, y=y.end + 17, class_="tick", text_anchor="middle")
        )
    parts.append(
        element(
            "text", chart.labels[0], x=(x.begin + x.end) / 2, y=y.end + 36, class_="label",
            text_anchor="middle",
        )
    )  # fmt: skip
    said = "; ".join(
        f"{name}: {number(e.lower)} to {number(e.upper)}" for name, e in intervals.items()
    )
    return drawing(WIDTH, height, join([axis, *parts]), "Certified intervals", said + ".")
