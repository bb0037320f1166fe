"""Pictures of the matrix of a report: its entries and its eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.report.chart import HEIGHT, TOP, WIDTH, Chart, drawing, left_of
from quadsense.report.scales import Scale, even_scale, log_scale
from quadsense.view.markup import Markup, element, join, number
from quadsense.view.pictures import Patch, SpectrumPicture, rounding_of
from quadsense.view.pixels import signed_image

MOST_HOVERED = 100
"""Rows up to which a picture of a matrix carries the values of its entries for the script."""

MAX_CODE = 9999
"""The largest entry of a matrix as the script gets it: four digits relative to that."""


def matrix_chart(patch: Patch, part: str = "") -> Markup:
    """Draw entries as colours: red is positive, blue negative, the page's colour is zero.

    Both parts of a complex matrix have one scale, that of the largest entry of either.
    """
    values = patch.values.imag if part == "imaginary" else patch.values.real
    parts = (patch.values.real, patch.values.imag) if part else (values,)
    largest = max(float(np.max(np.abs(each), initial=0.0)) for each in parts)
    side, bar = 236.0, 12.0
    left = 30.0
    unit = side / len(values)
    picture = element(
        "image", x=left, y=TOP, width=side, height=side, href=signed_image(values, largest),
        class_="pixels", preserveAspectRatio="none", **_cells(patch, values, largest, part),
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
    low = -1.0 if any((each < 0.0).any() for each in parts) else 0.0
    ramp = np.linspace(1.0, low, 101)[:, None]
    at = left + side + 22
    marks += [
        element(
            "image", x=at, y=TOP, width=bar, height=side, href=signed_image(ramp, 1.0),
            class_="pixels", preserveAspectRatio="none",
        ),
        element("rect", x=at, y=TOP, width=bar, height=side, class_="border"),
    ]  # fmt: skip
    if largest:
        scale = Scale("linear", low * largest, largest, TOP + side, TOP)
        for value, label in scale.ticks(6):
            place = scale.at(value)
            x1 = at + bar
            marks.append(element("line", x1=x1, x2=x1 + 4, y1=place, y2=place, class_="axis"))
            marks.append(element("text", label, x=x1 + 8, y=place + 4, class_="tick"))
    name = f"{part} part of an entry" if part else "entry of A"
    marks.append(
        element(
            "text", name, class_="label", text_anchor="middle",
            transform=f"translate({at + bar + 68:g} {TOP + side / 2:g}) rotate(90)",
        )
    )  # fmt: skip
    words = f"{part.capitalize()} part of A" if part else "Entries of A"
    said = f"Order {patch.order:,}, largest entry {number(largest, 3)}."
    said += f" {patch.how.capitalize()}." if patch.how else ""
    return drawing(WIDTH, HEIGHT, join([picture, border, *marks]), words, said)


def _cells(patch: Patch, values: Any, largest: float, part: str) -> dict[str, object]:
    """Return the attributes with the entries, those on and below the diagonal, row by row."""
    if patch.how or len(values) > MOST_HOVERED or not largest > 0.0:
        return {}
    with np.errstate(under="ignore"):
        codes = np.rint(values / largest * MAX_CODE).astype(np.int64)
    lower = codes[np.tril_indices(len(codes))]
    return {
        "data_order": len(values), "data_unit": repr(largest / MAX_CODE),
        "data_mirror": -1 if part == "imaginary" else 1,
        "data_name": {"real": "Re A", "imaginary": "Im A"}.get(part, "A"),
        "data_cells": " ".join(map(str, lower.tolist())),
    }  # fmt: skip


def spectrum_chart(spectrum: SpectrumPicture) -> Markup:
    """Draw eigenvalues in order, by decades where they differ much.

    By decades, those that are 0 to rounding are left out.
    """
    values, order = spectrum.values, np.arange(1, spectrum.values.size + 1)
    told = np.abs(values) > rounding_of(values)
    sizes = np.abs(values[told])
    decades = bool(sizes.size) and float(sizes.max()) > 100.0 * float(sizes.min())
    y = log_scale(sizes, *Chart.up()) if decades else even_scale(values, *Chart.up(), zero=True)
    left = left_of(y)
    x = Scale("linear", 0.5, values.size + 0.5, *Chart.across(left), whole=True)
    chart = Chart(x, y, ("eigenvalue", "modulus" if decades else "value"), left=left)
    if decades:
        values, order = values[told], order[told]
    else:
        chart.level(0.0, "limit")
    heights = np.abs(values) if decades else values
    negative = values < 0.0
    for mask, kind in ((~negative, "warm"), (negative, "main")):
        texts = [
            (str(k), number(float(value), 6))
            for k, value in zip(order[mask], values[mask], strict=True)
        ]
        chart.dots(order[mask], heights[mask], kind, "eigenvalue {0}: {1}", texts)
    said = f"From {number(float(values[0]), 4)} down to {number(float(values[-1]), 4)}."
    note = spectrum_note(spectrum)
    return chart.svg("Eigenvalues of A", said + (f" {note.capitalize()}." if note else ""))


def spectrum_note(spectrum: SpectrumPicture) -> str:
    """Say which eigenvalues are 0, and which were not computed."""
    values = spectrum.values
    zeros = int(np.count_nonzero(np.abs(values) <= rounding_of(values)))
    rounded = f"{zeros:,} of {values.size:,} are 0 to rounding" if zeros else ""
    return "; ".join(part for part in (rounded, spectrum.how) if part)


def spectrum_key(spectrum: SpectrumPicture) -> list[tuple[str, str]]:
    """Name the colors where there are two."""
    values = spectrum.values
    told = values[np.abs(values) > rounding_of(values)]
    both = bool((told > 0.0).any() and (told < 0.0).any())
    return [("warm", "positive"), ("main", "negative")] if both else []
