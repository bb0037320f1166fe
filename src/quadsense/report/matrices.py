"""Pictures of the matrix of a report: its entries and its eigenvalues."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quadsense.report.chart import HEIGHT, TOP, WIDTH, Chart, drawing
from quadsense.report.scales import Scale, even_scale, log_scale
from quadsense.view.markup import Markup, element, join, number
from quadsense.view.pictures import Patch, Spectrum
from quadsense.view.pixels import signed_image


def matrix_chart(patch: Patch, part: str = "") -> Markup:
    """Entries as colours: red is positive, blue negative, the page's colour is zero."""
    values = patch.values.imag if part == "imaginary" else patch.values.real
    largest = float(np.max(np.abs(values), initial=0.0))
    side, bar = 236.0, 12.0
    left = 30.0
    unit = side / len(values)
    picture = element(
        "image", x=left, y=TOP, width=side, height=side, href=signed_image(values, largest),
        class_="pixels", preserveAspectRatio="none",
    )  # fmt: skip
    border = element("rect", x=left, y=TOP, width=side, height=side, class_="border")
    marks = []
    whole = not patch.how
    last = len(values) - 1
    for index in dict.fromkeys([0, last]) if whole else ():
        place = unit * (index + 0.5)
        marks.append(
            element("text", index, x=left - 6, y=TOP + place + 4, class_="tick", text_anchor="end")
        )
        marks.append(
            element(
                "text", index, x=left + place, y=TOP + side + 16, class_="tick",
                text_anchor="middle",
            )
        )  # fmt: skip
    ramp = np.linspace(1.0, -1.0, 101)
    ramp = (ramp * np.abs(ramp))[:, None]  # so that shades are even along it
    at = left + side + 22
    marks += [
        element(
            "image", x=at, y=TOP, width=bar, height=side, href=signed_image(ramp, 1.0),
            class_="pixels", preserveAspectRatio="none",
        ),
        element("rect", x=at, y=TOP, width=bar, height=side, class_="border"),
    ]  # fmt: skip
    for share in (1.0, 0.25, 0.0, -0.25, -1.0) if largest else (0.0,):
        place = TOP + side * (0.5 - 0.5 * math.copysign(math.sqrt(abs(share)), share))
        marks.append(
            element("text", number(share * largest, 3), x=at + bar + 6, y=place + 4, class_="tick")
        )
    words = f"{part.capitalize()} part of A" if part else "Entries of A"
    said = f"Order {patch.order:,}, largest entry {number(largest, 3)}."
    said += f" {patch.how.capitalize()}." if patch.how else ""
    return drawing(WIDTH, HEIGHT, join([picture, border, *marks]), words, said)


def spectrum_chart(spectrum: Spectrum) -> Markup:
    """Eigenvalues in order; by decades where they differ much."""
    values = spectrum.values
    sizes = np.abs(values)
    largest = float(sizes.max())
    noise = largest * 1e-17
    nonzero = sizes[sizes > noise]
    decades = bool(nonzero.size) and largest > 100.0 * float(nonzero.min())
    across = Scale("linear", 0.5, values.size + 0.5, *Chart.across(), whole=True)
    if decades:
        y = log_scale(sizes, *Chart.up())
        chart = Chart(across, y, ("eigenvalue", "modulus"))
        heights: Any = np.maximum(sizes, y.low)
    else:
        chart = Chart(across, even_scale(values, *Chart.up(), zero=True), ("eigenvalue", "value"))
        chart.level(0.0, "limit")
        heights = values
    order = np.arange(1, values.size + 1)
    negative = values < 0.0
    chart.dots(order[~negative], heights[~negative], "warm")
    chart.dots(order[negative], heights[negative], "main")
    if decades and negative.any():
        right = chart.x.end
        for row, (kind, words) in enumerate((("warm", "positive"), ("main", "negative"))):
            height = TOP + 8.0 + 15.0 * row
            chart.parts.append(
                element("path", d=f"M{right - 62} {height - 4}h0", class_=f"dots {kind}")
            )
            chart.text(right - 54, height, words, kind="note")
    said = f"Largest {number(float(values[0]), 4)}, smallest {number(float(values[-1]), 4)}."
    return chart.svg(
        "Eigenvalues of A", said + (f" {spectrum.how.capitalize()}." if spectrum.how else "")
    )
