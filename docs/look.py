"""Open built pages in a browser that is off the network, light and dark, take pictures, and search.

    python docs/look.py docs/_build/html pictures/ [PAGE ...]

Needs Playwright and Chromium (Debian's by default: ``CHROMIUM=/usr/bin/chromium``). Any message of
the console, any request that leaves the disk, and any word of users that the search of the pages
does not find in the answers to questions is an error, exit status 1.
"""

from __future__ import annotations

import functools
import http.server
import os
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

PAGES = (
    "index", "tutorial", "faq", "gallery/index", "gallery/basics/plot_3_infeasible", "api/index",
    "api/generated/quadsense.solve", "api/generated/quadsense.Result", "how_to_choose", "theory",
)  # fmt: skip
SIZE = {"width": 1280, "height": 900}
WORDS = (
    "outlier", "missing data", "saturation", "error bars", "uncertainty", "confidence", "pandas",
    "units", "too slow", "infeasible", "not unique", "GPU", "large data",
)  # fmt: skip
"""What users search for; the page of questions and answers has each of them."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


def search(browser: Any, folder: Path) -> list[str]:
    """Search the pages for each of the words; what was not found."""
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    page, wrong = browser.new_page(), []
    for word in WORDS:
        page.goto(f"{home}search.html?q={quote(word)}", wait_until="load")
        page.wait_for_selector("#search-results .search-summary:not(:empty)")
        page.wait_for_function(
            "() => !/Searching/.test(document.querySelector('#search-results h2').textContent)"
        )
        links = page.locator("#search-results ul.search a").evaluate_all(
            "all => all.map(each => new URL(each.href).pathname)"
        )
        if "/faq.html" not in links:
            wrong.append(f"search for {word!r}: {len(links)} pages, not the answers to questions")
    server.shutdown()
    return wrong


def look(browser: Any, folder: Path, name: str, scheme: str, pictures: Path) -> list[str]:
    """Take the picture of one page; what went wrong, in words."""
    wrong: list[str] = []
    context = browser.new_context(color_scheme=scheme, viewport=SIZE, offline=True)
    page = context.new_page()

    def requested(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(f"{name}: asks for {request.url}")

    def said(message: Any) -> None:
        if message.type in ("error", "warning"):
            wrong.append(f"{name}: {message.text}")

    page.on("request", requested)
    page.on("requestfailed", lambda request: wrong.append(f"{name}: no {request.url}"))
    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(f"{name}: {error}"))
    page.goto((folder / f"{name}.html").resolve().as_uri(), wait_until="load")
    page.wait_for_timeout(300)
    pictures.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=pictures / f"{name.replace('/', '-')}-{scheme}.png")
    context.close()
    return wrong


def main() -> None:
    """Look at every page that was named, or at some of each kind."""
    from playwright.sync_api import sync_playwright

    folder, pictures = Path(sys.argv[1]), Path(sys.argv[2])
    names = [each.removesuffix(".html") for each in sys.argv[3:]] or list(PAGES)
    wrong: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for name in names:
            for scheme in ("light", "dark"):
                wrong += look(browser, folder, name, scheme, pictures)
        wrong += search(browser, folder)
        browser.close()
    for line in wrong:
        print(line)
    if wrong:
        sys.exit(1)
    print(f"{len(names)} pages, light and dark: no request, no message; {len(WORDS)} words found")


if __name__ == "__main__":
    main()
