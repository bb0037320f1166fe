"""Open built pages in a browser that is off the network, light and dark, and take pictures.

    python docs/look.py docs/_build/html pictures/ [PAGE ...]

Needs Playwright and Chromium (Debian's by default: ``CHROMIUM=/usr/bin/chromium``). Any message of
the console and any request that leaves the disk is an error, exit status 1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

PAGES = (
    "index", "gallery/index", "gallery/basics/plot_3_infeasible", "api/index",
    "api/generated/quadsense.solve", "api/generated/quadsense.Result", "how_to_choose", "theory",
)  # fmt: skip
SIZE = {"width": 1280, "height": 900}


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
        browser.close()
    for line in wrong:
        print(line)
    if wrong:
        sys.exit(1)
    print(f"{len(names)} pages, light and dark: nothing asked for, nothing said")


if __name__ == "__main__":
    main()
