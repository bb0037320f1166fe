"""The frame of a report: one file, no request, one script; and what its parts are made of."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from quadsense.view.markup import Markup, element, join

Key = Sequence[tuple[str, str]]
"""Kinds of marks in a picture, and what they are called."""


def section(title: str, *children: object) -> Markup:
    """A part with its heading."""
    return element("section", element("h2", title), *children, aria_label=title)


def paragraphs(texts: list[str]) -> list[Markup]:
    """A paragraph a text."""
    return [element("p", text) for text in texts]


def facts(pairs: list[tuple[str, object]]) -> Markup:
    """Names and what goes with them."""
    cells = ((element("dt", name), element("dd", value)) for name, value in pairs)
    return element("dl", *(part for pair in cells for part in pair), class_="facts")


def figure(caption: str, note: str, picture: Markup, key: Key = ()) -> Markup:
    """A picture below its caption, a note and what its marks mean."""
    small = element("small", note) if note else None
    return element(
        "figure", element("figcaption", caption, small), key_line(key) if key else None, picture
    )


def key_line(key: Key) -> Markup:
    """Name the kinds of points, lines and bars, each next to a mark of its kind."""
    entries = (element("span", element("i", class_=f"mark {kind}"), words) for kind, words in key)
    return element("p", join(entries, " "), class_="key")


def folded(summary: object, *children: object, opened: bool = False) -> Markup:
    """One line that opens what is below it, without a script."""
    return element("details", element("summary", summary), *children, open=opened)


def page(title: str, body: list[Markup | None], foot: str) -> str:
    """The document: one file that requests nothing and can run nothing but its own script.

    The policy names the script by its hash, so that no other text of the page can be one.
    """
    style, script = _resource("style.css"), _resource("script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    policy += f"; script-src 'sha256-{digest}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(style)),
    )
    main = element("main", *body, element("footer", foot))
    content = element("body", main, element("script", Markup(script)))
    return "<!DOCTYPE html>\n" + element("html", head, content, lang="en") + "\n"


def _resource(name: str) -> str:
    """Return a file of this folder."""
    return resources.files("quadsense.report").joinpath(name).read_text("utf-8")
