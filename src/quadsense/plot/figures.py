"""What all figures share: colors, axes, numbers at ticks, and figures that need not be closed."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from quadsense.view.markup import number

BLUE, RED, GREY, INK, PAPER = "#1b6ca8", "#c8553d", "#6b6b6b", "#222222", "#fffffe"
"""Legible next to each other for the color-blind too, and in print. A report replaces each by a
color of its page."""

SHADES = 255
"""Steps of a color map: odd, so that 0 is in the middle of one."""

FAINTEST = 0.15
"""Opacity of a count of 1, so that a single row is seen."""

MIN_PLAIN, MAX_PLAIN = 1e-3, 1e5
"""Numbers at ticks that are written without a power of ten."""

MAX_DECIMALS = 5
"""Decimals of numbers at ticks without a power of ten."""


class PointerValues(NamedTuple):
    """What a page's script shows where the pointer is.

    Attributes
    ----------
    artist : matplotlib.artist.Artist
        Points, a line or an image of a figure.
    attributes : dict of str to object
        What the script reads of it: names and values, as `view.markup.element` takes them.
    """

    artist: Any
    attributes: dict[str, object]


def said_of_points(artist: Any, say: str, values: Sequence[Sequence[str]]) -> PointerValues:
    """Return what is shown at points: the texts of each fill in ``"row {0}: {1}"``."""
    told = ";".join("|".join(each) for each in values)
    return PointerValues(artist, {"data_say": say, "data_values": told})


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
            self.savefig(stream, format="png", dpi=110)
            return stream.getvalue()

    return Picture


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of that size in inches."""
    return _figure_class()(figsize=(width, height), layout="constrained")


def canvas(ax: Any, width: float, height: float) -> tuple[Any, Any]:
    """Return figure and axes: those given, or new ones."""
    if ax is not None:
        return ax.get_figure(), ax
    figure = new_figure(width, height)
    return figure, figure.subplots()


def tidy(*every: Any) -> None:
    """Draw axes without a box, with faint lines and plain numbers."""
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
        axes.set_axisbelow(True)
        plain_numbers(axes.xaxis, axes.yaxis)


def head(figure: Any, axes: Any, title: str, given_axes: bool) -> None:
    """Write the heading, over the axes where these are the user's."""
    if given_axes:
        axes.set_title(title, fontsize=11)
    else:
        figure.suptitle(title, fontsize=11)


def say(axes: Any, words: str) -> None:
    """Write words in the middle of axes that have nothing to show."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def legend(axes: Any, **options: Any) -> None:
    """Name what is drawn, where anything has a name."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**{"frameon": False, "fontsize": "small", **options})


def whole(axis: Any, count: int) -> None:
    """Set ticks at whole numbers, also of an axis that has one or two of them."""
    if count <= 2:
        axis.set_ticks(range(count))
    else:
        axis.get_major_locator().set_params(integer=True)


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
    ticks = np.where(np.abs(ticks) < 1e-9 * step, 0.0, ticks)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if round(step * 10.0**decimals, 6) % 1.0:  # 2.5, not 2 and 3
        decimals += 1
    if decimals <= MAX_DECIMALS and largest <= MAX_PLAIN:
        return [f"{x:,.{decimals}f}".replace("-", "−") for x in ticks]
    digits = 1 + math.ceil(math.log10(largest / step) - 1e-9)
    return [tick_text(float(x), digits) for x in ticks]


def tick_text(value: float, digits: int = 4) -> str:
    """Return the label of a tick: far from 1 by a power of ten."""
    if value == 0.0 or MIN_PLAIN <= abs(value) < MAX_PLAIN:
        return f"{value:,.{max(digits, 6)}g}".replace("-", "−")
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
    from matplotlib.colors import ListedColormap, to_rgb

    colors = np.empty((shades.size, 4))
    colors[:, :3] = np.where(shades[:, None] < 0.0, to_rgb(BLUE), to_rgb(color))
    colors[:, 3] = np.abs(shades)
    return ListedColormap(colors)


def color_bar(image: Any, axes: Any, label: str, *, below: bool = False) -> Any:
    """Draw the linear scale of an image next to its axes, or below a list of axes."""
    place: dict[str, Any] = {"shrink": 0.85}
    if below:
        place = {"location": "bottom", "aspect": 45.0}
    bar = image.axes.figure.colorbar(image, ax=axes, label=label, **place)
    bar.outline.set_linewidth(0.5)
    plain_numbers(bar.ax.xaxis if below else bar.ax.yaxis)
    return bar
