"""The frame of a report: one file, no request, no script; and what its parts are made of."""

from __future__ import annotations

from quadsense.view.markup import Markup, element


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


def page(title: str, style: str, body: list[Markup | None], foot: str) -> str:
    """The document: one file, no request, no script."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
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
    return "<!DOCTYPE html>\n" + element("html", head, element("body", main), lang="en") + "\n"
