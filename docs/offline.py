"""Look through the built pages for anything that a browser would fetch from elsewhere.

    python docs/offline.py docs/_build/html

A link that a reader may follow is fine; a script, style, font or picture from another place is not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

FETCHED = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src",
    "audio": "src", "embed": "src", "object": "data", "link": "href",
}  # fmt: skip
"""What a browser loads by itself, and the attribute that says from where."""
HARMLESS = {"canonical", "search", "next", "prev", "index", "genindex", "author", "copyright"}
"""Kinds of ``<link>`` that are read and not fetched."""


class Page(HTMLParser):
    """Addresses outside the pages that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of a tag that loads something."""
        values = dict(attrs)
        address = values.get(FETCHED.get(tag, ""), "") or ""
        if tag == "link" and set((values.get("rel") or "").split()) & HARMLESS:
            return
        if is_elsewhere(address):
            self.found.append(f"<{tag} {address}>")


def is_elsewhere(address: str) -> bool:
    """Whether an address has a host of its own."""
    return bool(re.match(r"(?:https?:)?//", address.strip()))


def fetched(folder: Path) -> Iterator[str]:
    """All that pages and styles would fetch from elsewhere, with where it stands."""
    for path in sorted(folder.rglob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        yield from (f"{path.relative_to(folder)}: {each}" for each in page.found)
    for path in sorted(folder.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        addresses = re.findall(r"url\(\s*['\"]?([^'\")]+)", text)
        addresses += re.findall(r"@import\s+['\"]([^'\"]+)", text)
        yield from (f"{path.relative_to(folder)}: {a}" for a in addresses if is_elsewhere(a))


def main() -> None:
    """Exit with 1 if there is any."""
    folder = Path(sys.argv[1])
    pages = list(folder.rglob("*.html"))
    if not pages:
        sys.exit(f"no pages in {folder}")
    found = list(fetched(folder))
    for line in found:
        print(line)
    if found:
        sys.exit(f"{len(found)} things would be fetched from elsewhere")
    print(f"{len(pages)} pages fetch nothing from elsewhere")


if __name__ == "__main__":
    main()
