"""What all pictures share: colours, axes, and figures that need not be closed."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

BLUE, RED, GREY, INK = "#1b6ca8", "#c8553d", "#6b6b6b", "#222222"
"""Legible next to each other for the colour-blind too, and in print."""


@lru_cache(maxsize=1)
def _figure_class() -> Any:
    """A figure that a notebook shows, with or without pyplot."""
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
    """An empty figure of that size in inches."""
    return _figure_class()(figsize=(width, height), layout="constrained")


def canvas(ax: Any, width: float, height: float) -> tuple[Any, Any]:
    """Figure and axes: those given, or new ones."""
    if ax is not None:
        return ax.get_figure(), ax
    figure = new_figure(width, height)
    return figure, figure.subplots()


def tidy(*every: Any, grid: bool = True) -> None:
    """Axes without a box, with faint lines."""
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
        if grid:
            axes.grid(alpha=0.2)
            axes.set_axisbelow(True)


def head(figure: Any, axes: Any, title: str, given_axes: bool) -> None:
    """The heading, over the axes where these are the user's."""
    if given_axes:
        axes.set_title(title, fontsize=11)
    else:
        figure.suptitle(title, fontsize=11)


def say(axes: Any, words: str) -> None:
    """Words in the middle of axes that have nothing to show."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def whole(axis: Any, count: int) -> None:
    """Ticks at whole numbers, also of an axis that has one or two of them."""
    if count <= 2:
        axis.set_ticks(range(count))
    else:
        axis.get_major_locator().set_params(integer=True)


@lru_cache(maxsize=1)
def _plain_class() -> Any:
    from matplotlib.ticker import LogFormatter

    class PlainStyle(LogFormatter):
        """Labels of an axis by decades as plain numbers, where the axis would have one."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    return PlainStyle


def plain_decades(axis: Any) -> None:
    """Label an axis by decades with 0.1, 1, 20, and between decades where these are few."""
    for use in (axis.set_major_formatter, axis.set_minor_formatter):
        use(_plain_class()(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
