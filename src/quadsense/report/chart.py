"""A picture as SVG text: a frame with two axes, and what is drawn in it.

Colours are classes, which the page's style fills in for light, dark and paper. Points may carry
the values that the page's script shows where the pointer is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from quadsense.report.scales import Scale
from quadsense.view.markup import Markup, element, join, short

# In units of the drawing, which is scaled to the page: room for labels next to a wide frame.
WIDTH, HEIGHT = 460.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 14.0, 44.0

Values = Iterable[Sequence[str]]
"""What the script shows of each point: the texts that fill in a template."""


class Chart:
    """A frame with axes, filled from back to front.

    Parameters
    ----------
    x, y : Scale
        Made for `across` and `up`.
    labels : (str, str)
        Of the axes.
    height : float
    left : float
        Room for the labels of y.
    """

    def __init__(
        self,
        x: Scale,
        y: Scale,
        labels: tuple[str, str],
        *,
        height: float = HEIGHT,
        left: float = LEFT,
    ) -> None:
        self.x, self.y, self.labels, self.height, self.left = x, y, labels, height, left
        self.parts: list[Markup] = []

    @staticmethod
    def across(left: float = LEFT, right: float = RIGHT) -> tuple[float, float]:
        """Where x begins and ends."""
        return left, WIDTH - right

    @staticmethod
    def up(height: float = HEIGHT) -> tuple[float, float]:
        """Where y begins and ends: upwards."""
        return height - BOTTOM, TOP

    def line(self, x: Any, y: Any, kind: str, say: str = "", values: Values = ()) -> None:
        """Draw a line through points; see `dots` for the values."""
        points = " ".join(
            f"{short(a, 1)},{short(b, 1)}" for a, b in zip(self.x(x), self.y(y), strict=True)
        )
        self.parts.append(
            element("polyline", points=points, class_=f"line {kind}", **spoken(say, values))
        )

    def dots(self, x: Any, y: Any, kind: str, say: str = "", values: Values = ()) -> None:
        """Draw round points: one path, because there may be many.

        Parameters
        ----------
        x, y : array_like
        kind : str
            Class of the path.
        say : str
            What the script shows at a point: "row {0}: {1}".
        values : iterable of sequences of str
            What stands for {0}, {1} and so on, per point.
        """
        places = zip(np.atleast_1d(self.x(x)), np.atleast_1d(self.y(y)), strict=True)
        path = "".join(f"M{short(a, 1)} {short(b, 1)}h0" for a, b in places)
        if path:
            self.parts.append(element("path", d=path, class_=f"dots {kind}", **spoken(say, values)))

    def level(self, value: float, kind: str) -> None:
        """Draw a line across at one height."""
        place = self.y.at(value)
        self.parts.append(
            element(
                "line", x1=self.x.begin, x2=self.x.end, y1=place, y2=place, class_=f"line {kind}"
            )
        )

    def band(self, low: float, high: float, kind: str) -> None:
        """All between two heights."""
        top, bottom = self.y.at(high), self.y.at(low)
        self.parts.append(
            element(
                "rect", x=self.x.begin, y=top, width=self.x.end - self.x.begin,
                height=max(bottom - top, 0.5), class_=kind,
            )
        )  # fmt: skip

    def image(self, address: str) -> None:
        """An image over the whole frame."""
        self.parts.append(
            element(
                "image", x=self.x.begin, y=self.y.end, width=self.x.end - self.x.begin,
                height=self.y.begin - self.y.end, href=address, preserveAspectRatio="none",
                class_="pixels",
            )
        )  # fmt: skip

    def text(
        self, x: float, y: float, words: object, *, kind: str = "tick", anchor: str = "start"
    ) -> None:
        """Words at a place of the page."""
        self.parts.append(element("text", words, x=x, y=y, class_=kind, text_anchor=anchor))

    def ring(self, x: float, y: float) -> None:
        """Draw a ring around a point."""
        self.parts.append(element("circle", cx=self.x.at(x), cy=self.y.at(y), r=5.0, class_="ring"))

    def frame(self, *, grid: bool = True) -> Markup:
        """Axes, ticks and labels."""
        parts: list[Markup] = []
        left, right, bottom, top = self.x.begin, self.x.end, self.y.begin, self.y.end
        for value, label in self.y.ticks(6):
            place = self.y.at(value)
            if grid:
                parts.append(element("line", x1=left, x2=right, y1=place, y2=place, class_="grid"))
            parts.append(
                element("text", label, x=left - 7, y=place + 4.0, class_="tick", text_anchor="end")
            )
        for value, label in self.x.ticks(6):
            place = self.x.at(value)
            parts.append(
                element("line", x1=place, x2=place, y1=bottom, y2=bottom + 4, class_="axis")
            )
            parts.append(
                element("text", label, x=place, y=bottom + 17, class_="tick", text_anchor="middle")
            )
        parts.append(element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
        across, up = self.labels
        parts.append(
            element(
                "text", across, x=(left + right) / 2, y=bottom + 36, class_="label",
                text_anchor="middle",
            )
        )  # fmt: skip
        middle = (top + bottom) / 2
        parts.append(
            element(
                "text", up, class_="label", text_anchor="middle",
                transform=f"translate(13 {short(middle)}) rotate(-90)",
            )
        )  # fmt: skip
        return join(parts)

    def svg(self, title: str, description: str, *, grid: bool = True) -> Markup:
        """The whole picture, with words for those who do not see it."""
        return drawing(
            WIDTH, self.height, join([self.frame(grid=grid), *self.parts]), title, description
        )


def left_of(y: Scale) -> float:
    """Return the room to the left of a frame that the labels of y need, also in large letters."""
    return max(LEFT, 30.0 + 8.2 * max((len(label) for _, label in y.ticks(6)), default=0))


def spoken(say: str, values: Values) -> dict[str, str]:
    """Return the attributes that hold what the script shows of points."""
    texts = ";".join("|".join(each) for each in values)
    return {"data_say": say, "data_values": texts} if texts else {}


def drawing(width: float, height: float, contents: Markup, title: str, description: str) -> Markup:
    """An SVG element that says what it shows."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        contents,
        viewBox=f"0 0 {short(width)} {short(height)}",
        role="img",
        aria_label=f"{title}. {description}",
    )
