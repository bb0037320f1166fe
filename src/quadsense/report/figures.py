"""The figures of a report: drawn as `quadsense.plot` draws them, as SVG in the page's colors."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

import numpy as np

from quadsense.plot.figures import BLUE, GREY, INK, PAPER, RED, PointerValues, new_figure, tidy
from quadsense.plot.intervals import DIGITS, draw_range
from quadsense.plot.matrices import draw_entries, draw_spectrum, spectrum_note
from quadsense.plot.pictures import ReadingsPicture, patch_of, spectrum_of
from quadsense.plot.residuals import (
    draw_progress,
    draw_residuals,
    has_progress,
    progress_of,
    proved_of,
    residual_notes,
    worst_words,
)
from quadsense.ranges.ranges import Interval
from quadsense.result.result import Result
from quadsense.view.markup import Markup, element, number, short

WIDTH, HEIGHT, RANGE_HEIGHT = 5.4, 3.5, 0.95
"""Of a figure, in inches, and of the range of an interval."""

POINTS = 72.0
"""Units of an SVG per inch."""

FONT_SIZE = 11.0
"""Of labels; those at ticks are smaller."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "quadsense", "path.simplify": False,
    "font.size": FONT_SIZE, "xtick.labelsize": "small", "ytick.labelsize": "small",
    "figure.dpi": 200.0, "figure.facecolor": "none", "axes.facecolor": "none",
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GREY, "grid.color": GREY,
    "xtick.color": GREY, "ytick.color": GREY,
}  # fmt: skip
"""Settings of matplotlib on top of its own; those of the user play no part."""

COLORS = {BLUE: "blue", RED: "red", GREY: "soft", INK: "ink", PAPER: "card"}
"""Colors of the page, as the variables of its style name them, by those of the figures."""

KEPT = ("d", "x", "y", "width", "height", "transform", "href")
"""Attributes of shapes, next to their style."""

ROUND = 8
"""Curves of the path of a round marker."""

Figure = tuple[str, str, Markup]
"""Caption, note, and the picture."""

NEEDED = "Figures are left out: they need matplotlib (pip install 'quadsense[plot]')."
"""What a report says where there is none."""


# --- what is shown ---------------------------------------------------------------------------


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
        words = f"From {number(float(values[0]), 3)} to {number(float(values[-1]), 3)} "
        words += f"in {int(result.history.iteration[-1]):,} iterations."
        how = f"by {result.plan['method']}" if result.plan.get("method") else ""
        what = "Worst residual over the iterations"
        yield "Progress", how, _draw(what, words, lambda axes: draw_progress(axes, result))
    yield from _matrix(result)


def interval_figure(name: str, interval: Interval, value: float | None) -> Markup:
    """Draw a certified range with its numbers, on an axis of its own."""
    words = f"{name}: {number(interval.lower, DIGITS)} to {number(interval.upper, DIGITS)}."

    def draw(figure: Any) -> list[PointerValues]:
        return draw_range(figure.subplots(), interval, value)

    return drawing("Certified interval", words, draw, RANGE_HEIGHT)


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
        return draw_residuals(figure, readings, proved_of(result))[1]

    note = "; ".join(residual_notes(readings))
    return caption, note, drawing("Residuals of the measurements", words, draw)


def _matrix(result: Result) -> Iterator[Figure]:
    """Draw the entries of A and its eigenvalues."""
    patch = patch_of(result.matrix)
    order = f"order {patch.order:,}" + (f"; {patch.how}" if patch.how else "")
    parts = {"real": "Entries of A"}
    if np.iscomplexobj(patch.values):
        parts = {"real": "Real part of A", "imag": "Imaginary part of A"}
    for part, title in parts.items():
        values = patch.values.imag if part == "imag" else patch.values.real
        largest = f"up to {number(float(np.max(np.abs(values), initial=0.0)), 3)}"

        def draw(figure: Any, part: str = part) -> list[PointerValues]:
            return draw_entries(figure.subplots(), patch, part, "entry of A")

        yield title, f"{order}; {largest}", drawing(title, f"{order}; {largest}.", draw)
    spectrum = spectrum_of(result.matrix)
    if spectrum is not None and spectrum.values.size:
        first, last = (number(float(spectrum.values[k]), 4) for k in (0, -1))
        note = spectrum_note(spectrum)
        words = f"From {first} down to {last}. {note}".strip()
        title = "Eigenvalues of A"
        yield title, note, _draw(title, words, lambda axes: draw_spectrum(axes, spectrum))


def _draw(title: str, words: str, draw: Callable[[Any], list[PointerValues]]) -> Markup:
    """Draw on axes with faint lines."""

    def on_figure(figure: Any) -> list[PointerValues]:
        axes = figure.subplots()
        tidy(axes)
        return draw(axes)

    return drawing(title, words, on_figure)


# --- figures as SVG --------------------------------------------------------------------------


def drawing(
    title: str, words: str, draw: Callable[[Any], list[PointerValues]], height: float = HEIGHT
) -> Markup:
    """Return a figure as an SVG element that says what it shows.

    Parameters
    ----------
    title, words : str
        What is shown, for those who do not see it.
    draw : callable
        Draws on an empty figure, and returns the values that the page's script shows.
    height : float
        In inches.
    """
    with _own_settings(), np.errstate(all="ignore"):
        figure = new_figure(WIDTH, height)
        told = draw(figure)
        for index, each in enumerate(told):
            each.artist.set_gid(f"told{index}")
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    attributes = {f"told{index}": _attributes(figure, each) for index, each in enumerate(told)}
    wide, high = (short(float(size) * POINTS) for size in figure.get_size_inches())
    return element(
        "svg",
        element("title", title),
        element("desc", words),
        _plain(stream.getvalue(), attributes),
        viewBox=f"0 0 {wide} {high}",
        role="img",
        aria_label=f"{title}. {words}",
    )


@contextmanager
def _own_settings() -> Iterator[None]:
    """Draw with matplotlib's own settings and ours, without a warning of what has no room."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def _attributes(figure: Any, told: PointerValues) -> dict[str, str]:
    """Return what the script reads, with the place of the axes where that is a matrix."""
    found = {name.replace("_", "-"): str(value) for name, value in told.attributes.items()}
    if "data-cells" in found:
        wide, high = figure.get_size_inches() * POINTS
        box = told.artist.axes.get_position()
        place = (box.x0 * wide, (1.0 - box.y1) * high, box.width * wide, box.height * high)
        found["data-box"] = " ".join(short(float(part)) for part in place)
    return found


def _plain(svg: str, attributes: Mapping[str, Mapping[str, str]]) -> Markup:
    """Return the shapes and texts of an SVG of matplotlib, in the colors of the page.

    Names, groups and clips go, because a page has several figures; markers are drawn where they
    are used. A shape that matplotlib knows by one of the names in `attributes` gets these.
    """
    root = ElementTree.fromstring(svg)
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
        for name in [name for name in each.attrib if name.startswith("{")]:
            each.set(name.rpartition("}")[2], each.attrib.pop(name))
    markers = {f"#{each.get('id')}": each for each in root.iter("path") if each.get("id")}
    waiting = dict(attributes)
    parts = []
    for shape, names in _shapes(root, markers, ()):
        for name in names:
            if name in waiting and shape.tag in ("path", "image"):
                shape.attrib.update(waiting.pop(name))
            kind = re.fullmatch(r"(xtick|ytick|end)(_\d+)?", name)
            if kind and shape.tag == "text":
                shape.set("class", f"{kind[1]} {shape.get('class', '')}".strip())
        shape.tail = None
        parts.append(ElementTree.tostring(shape, encoding="unicode").replace(" />", "/>"))
    return Markup("".join(parts))


def _shapes(
    parent: Any, markers: Mapping[str, Any], names: tuple[str, ...]
) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield shapes and texts in order, each with the names of the groups that it is in."""
    names = (*names, parent.get("id", ""))
    for (tag, href, style), group in groupby(parent, lambda each: (
        each.tag, each.get("href", ""), each.get("style", "")
    )):  # fmt: skip
        if tag == "g":
            for each in group:
                yield from _shapes(each, markers, names)
        elif tag == "use":
            places = [(float(each.get("x")), float(each.get("y"))) for each in group]
            yield from ((each, names) for each in _markers(markers[href], style, places))
        elif tag in ("path", "image", "text"):
            for each in group:
                own = each.get("id", "")
                kept = {key: each.get(key) for key in KEPT if each.get(key)}
                shape = ElementTree.Element(tag, {**kept, **_style(tag, style)})
                shape.text = each.text if tag == "text" else None
                yield _short(shape), (*names, own)


def _markers(marker: Any, style: str, places: list[tuple[float, float]]) -> Iterator[Any]:
    """Yield a marker at its places: round ones without an edge are the points of one path."""
    path, own = marker.get("d", ""), marker.get("style", "")
    color = re.search(r"fill: (#\w+)", style)
    if path.count("C") == ROUND and color and "stroke" not in style:
        size = 2.0 * abs(float(re.findall(r"-?[\d.]+", path)[1]))
        points = "".join(f"M{short(x, 1)} {short(y, 1)}h0" for x, y in places)
        style = f"fill: none; stroke: {color[1]}; stroke-width: {size:g}; stroke-linecap: round"
        style += "".join(re.findall(r"; (?:stroke-)?opacity: [\d.]+", style))
        yield ElementTree.Element("path", {"d": points, **_style("path", style)})
        return
    for x, y in places:
        shift = f"translate({short(x)} {short(y)})"
        drawn = {"d": path, "transform": shift, **_style("path", f"{own}; {style}")}
        yield _short(ElementTree.Element("path", drawn))


def _style(tag: str, style: str) -> dict[str, str]:
    """Return class and style of a shape with the page's colors, and of a text with its font."""
    kinds = []
    if tag == "text":
        size = re.search(r"([\d.]+)px", style)
        kinds += ["small"] * (size is not None and float(size[1]) < FONT_SIZE)
        kinds += ["bold"] * bool(re.search(r"\b(bold|700)\b", style))
        style = re.sub(r"font[^:;]*:[^;]*;?", "", style)
    for color, name in COLORS.items():
        style = style.replace(color, f"var(--{name})")
    style = re.sub(r"\s*([:;])\s*", r"\1", style).strip("; ")
    found = {"class": " ".join(kinds), "style": style}
    return {name: value for name, value in found.items() if value}


def _short(shape: Any) -> Any:
    """Return the shape with no more digits than a screen shows."""
    if shape.get("transform", "").startswith("rotate(-0 "):
        del shape.attrib["transform"]
    for name in ("d", "x", "y", "transform"):
        text = shape.get(name, "")
        if text and not text.startswith("matrix"):  # which is multiplied by many pixels
            text = re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda found: short(float(found[0])), text)
            shape.set(name, re.sub(r"\s*([MLCQz])\s*", r"\1", text).strip())
    return shape
