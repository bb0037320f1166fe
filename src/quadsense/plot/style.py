"""What all figures share: a style sheet, axes, numbers at ticks, and figures as PNG and SVG."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from quadsense.view import FINE, MAX_PLAIN, MIN_PLAIN, Markup, element, number, short

# --- the style sheet -------------------------------------------------------------------------

BLUE, RED, GREY, INK, PAPER = "#1b6ca8", "#c8553d", "#6b6b6b", "#222222", "#fffffe"
"""Legible next to each other for the color-blind too, and in print. A report replaces each by a
color of its page."""

WIDTH, HEIGHT = 5.4, 3.5
"""Of a panel, in inches."""

LINE_HEIGHT = 0.42
"""Of a range among others, in inches."""

FONT_SIZE = 11.0
"""Of labels in a report; those at ticks are smaller."""

DPI = 110
"""Of figures as a notebook shows them."""

PALE, STRONG = 0.2, 0.8
"""Opacity of what is behind points, and of what stands for many of them."""

THIN, POINT, RING = 0.8, 3.5, 8.0
"""Width of lines, size of points, and of a ring around one, in points."""

ZERO = {"color": GREY, "lw": THIN}
"""The line at 0."""

LIMIT = {"color": INK, "lw": THIN, "ls": "--"}
"""Lines at what was asked for, and at what is proved."""

DOTS = {"marker": "o", "ms": POINT, "mew": 0.0}
"""Points, and the points of a line."""

EDGE, ROOM = 0.02, 1.25
"""Share of an axis left free at its sides, and how far it goes beyond the largest value, so that
there is room for words."""

MAX_TICKS = 5
"""Ticks that have room next to each other, about."""

SHADES = 255
"""Steps of a color map: odd, so that 0 is in the middle of one."""

SLIP = 1e-9
"""Rounding of a tick, relative to the distance of two."""


class PointerValues(NamedTuple):
    """What a page's script shows where the pointer is.

    Attributes
    ----------
    artist : matplotlib.artist.Artist
        Points, a line or an image of a figure.
    attributes : dict of str to object
        What the script reads of it: names and values, as `view.element` takes them.
    """

    artist: Any
    attributes: dict[str, object]


def said_of_points(artist: Any, say: str, values: Sequence[Sequence[str]]) -> PointerValues:
    """Return what is shown at points: the texts of each fill in ``"row {0}: {1}"``."""
    told = ";".join("|".join(each) for each in values)
    return PointerValues(artist, {"data_say": say, "data_values": told})


# --- figures and axes ------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _figure_class() -> Any:
    """Return a figure that a notebook shows, with or without pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "quadsense.plot needs matplotlib: pip install 'quadsense[plot]'"
        ) from None

    class Picture(Figure):
        """A Figure that pyplot does not hold on to."""

        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png", dpi=DPI)
            return stream.getvalue()

    return Picture


def new_figure(panels: int = 1, height: float = HEIGHT) -> Any:
    """Return an empty figure with room for one panel or two, of that height in inches."""
    return _figure_class()(figsize=(0.5 * (panels + 1) * WIDTH, height), layout="constrained")


def head(figure: Any, title: str, ax: Any = None) -> None:
    """Write the heading, over the axes where these are the user's."""
    if ax is None:
        figure.suptitle(title)
    else:
        ax.set_title(title)


def tidy(*every: Any) -> None:
    """Draw axes without a box, with faint lines and plain numbers."""
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=PALE)
        axes.set_axisbelow(True)
        plain_numbers(axes.xaxis, axes.yaxis)


def say(axes: Any, words: str) -> None:
    """Write words in the middle of axes that have nothing to show."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def legend(axes: Any, *, above: bool = False) -> None:
    """Name what is drawn, where anything has a name: among it, or in one line above the axes."""
    names = axes.get_legend_handles_labels()[0]
    place: dict[str, Any] = {}
    if above:
        place = {"ncols": len(names), "loc": "lower right", "bbox_to_anchor": (1.0, 1.0)}
    if names:
        axes.legend(
            fontsize="small", edgecolor="none", framealpha=STRONG, borderaxespad=0.5 * (not above),
            **place,
        )  # fmt: skip


def whole(axis: Any, count: int) -> None:
    """Set ticks at whole numbers, also of an axis that has one or two of them."""
    if count <= 2:
        axis.set_ticks(range(count))
    else:
        axis.get_major_locator().set_params(integer=True, nbins=MAX_TICKS)


@lru_cache(maxsize=1)
def _formatters() -> tuple[Any, Any]:
    from matplotlib.ticker import Formatter, LogFormatter

    class PlainFormatter(Formatter):
        """Labels of an even axis, with as many decimals as tell its ticks apart."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return tick_text(x)

        def format_ticks(self, values: Any) -> list[str]:
            return even_texts(np.asarray(values, dtype=np.float64))

    class DecadesFormatter(LogFormatter):
        """Labels of an axis by decades as plain numbers, where the axis would have one."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return tick_text(x) if super().__call__(x, pos) else ""

    return PlainFormatter, DecadesFormatter


def even_texts(ticks: Any) -> list[str]:
    """Return the labels of ticks of an even axis."""
    apart = np.diff(np.unique(ticks))
    if not apart.size:
        return [tick_text(float(x)) for x in ticks]
    step, largest = float(apart.min()), float(np.abs(ticks).max())
    ticks = np.where(np.abs(ticks) < SLIP * step, 0.0, ticks)
    for decimals in range(FINE) if largest < MAX_PLAIN else ():
        if np.abs(np.round(ticks, decimals) - ticks).max() < SLIP * max(step, largest):
            return [f"{x:,.{decimals}f}".replace("-", "−") for x in ticks]
    digits = 1 + math.ceil(math.log10(largest / step) - SLIP)
    return [tick_text(float(x), digits) for x in ticks]


def tick_text(value: float, digits: int = FINE) -> str:
    """Return the label of a tick: far from 1 by a power of ten."""
    if value == 0.0 or MIN_PLAIN <= abs(value) < MAX_PLAIN:
        return f"{value:,.{max(digits, FINE)}g}".replace("-", "−")
    text = number(value, digits)
    return text.replace("1 × ", "", 1) if text.lstrip("−").startswith("1 × ") else text


def plain_numbers(*axes: Any) -> None:
    """Label even axes with plain numbers."""
    for axis in axes:
        axis.set_major_formatter(_formatters()[0]())


def plain_decades(axis: Any) -> None:
    """Label an axis by decades with 0.1, 1, 20, and between decades where these are few."""
    for use in (axis.set_major_formatter, axis.set_minor_formatter):
        use(_formatters()[1](labelOnlyBase=False, minor_thresholds=(2, 0.5)))


def signed_colors() -> Any:
    """Return a color map from blue by nothing to red; opacity is linear in the size."""
    return _color_map(np.linspace(-1.0, 1.0, SHADES))


def sized_colors(faintest: float = 0.0, *, color: str = RED) -> Any:
    """Return a color map of sizes in one hue; opacity is linear."""
    return _color_map(np.linspace(faintest, 1.0, SHADES), color)


def _color_map(shades: Any, color: str = RED) -> Any:
    """Return the map with these opacities, of negative numbers in blue."""
    from matplotlib.colors import ListedColormap, to_rgba_array

    colors = to_rgba_array(np.where(shades < 0.0, BLUE, color))
    colors[:, -1] = np.abs(shades)
    return ListedColormap(colors)


def color_bar(image: Any, axes: Any, label: str, *, below: bool = False) -> Any:
    """Draw the linear scale of an image next to its axes, or below a list of axes."""
    place: dict[str, Any] = {"location": "bottom", "aspect": 40.0} if below else {"shrink": STRONG}
    bar = image.axes.figure.colorbar(image, ax=axes, label=label, **place)
    bar.outline.set_linewidth(THIN)
    plain_numbers(bar.ax.xaxis if below else bar.ax.yaxis)
    return bar


# --- figures as SVG, in the colors of a page -------------------------------------------------


POINTS = 72.0
"""Units of an SVG per inch."""

SHEET: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "quadsense", "path.simplify": False,
    "font.size": FONT_SIZE, "xtick.labelsize": "small", "ytick.labelsize": "small",
    "figure.dpi": DPI, "figure.facecolor": "none", "axes.facecolor": "none",
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


def as_svg(
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
        figure = new_figure(height=height)
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
        mpl.rcParams.update(SHEET)
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
