"""Pages in a real browser without a network: no error, no request, in light and in dark.

Left out where there is no browser, unless ``QUADSENSE_BROWSER`` asks for it; `.ci/run` does.
"""

import os
import shutil

import numpy as np
import pytest
from cases import solved

import quadsense

pytestmark = pytest.mark.browser

DEMANDED = os.environ.get("QUADSENSE_BROWSER", "") not in ("", "0")
CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PAGES = ("met", "infeasible", "no tolerance", "complex psd", "max_iter", "violations", "one")


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if DEMANDED:
            raise
        pytest.skip("playwright is not installed")
    if CHROMIUM is None:
        if DEMANDED:
            pytest.fail("QUADSENSE_BROWSER is set, but there is no chromium")
        pytest.skip("there is no chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(params=["light", "dark"])
def window(browser, request):
    """A window that writes down all errors and requests, and lets none of these out."""
    context = browser.new_context(
        color_scheme=request.param, viewport={"width": 1000, "height": 800}
    )
    context.set_offline(True)
    page = context.new_page()
    page.problems, page.asked_for = [], []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda each: page.asked_for.append(each.url))
    page.scheme = request.param
    yield page
    context.close()


def light(page, place):
    """How light the background that is seen behind a place is, and its text: 0 to 1."""
    return page.evaluate(
        """place => {
          const canvas = document.createElement("canvas").getContext("2d");
          const level = color => {
            canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
            const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
            return a ? (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255 : null;
          };
          let node = document.querySelector(place), back = null;
          const text = level(getComputedStyle(node).color);
          for (; node && back === null; node = node.parentElement) {
            const color = getComputedStyle(node).backgroundColor;
            if (color !== "rgba(0, 0, 0, 0)") back = level(color);
          }
          return [back, text];
        }""",
        place,
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_report_opens_without_error_or_request(window, name, tmp_path):
    path = tmp_path / "report.html"
    result = solved(name)
    intervals = result.interval(["trace", (0, 0)]) if name == "complex psd" else None
    result.report(intervals=intervals).write_html(path)
    window.goto(path.as_uri())
    assert window.problems == []
    assert [url for url in window.asked_for if not url.startswith("data:")] == [path.as_uri()]
    assert str(result.status).replace("_", " ") in window.inner_text(".badge").lower()
    back, text = light(window, "h1")
    assert (back > 0.8 and text < 0.3) if window.scheme == "light" else (back < 0.2 and text > 0.7)
    # Nothing is wider than the page, and every picture is there.
    for width in (1000, 380):
        window.set_viewport_size({"width": width, "height": 800})
        assert window.evaluate("document.documentElement.scrollWidth") <= width
    assert window.evaluate("[...document.querySelectorAll('svg')].every(s => s.clientHeight > 40)")
    assert window.screenshot(full_page=True).startswith(b"\x89PNG")


def test_a_report_prints_light_from_dark(window, tmp_path):
    path = tmp_path / "report.html"
    solved("infeasible").report().write_html(path)
    window.goto(path.as_uri())
    window.emulate_media(media="print")
    window.set_viewport_size({"width": 700, "height": 1000})  # of A4 between its margins
    assert window.evaluate("document.documentElement.scrollWidth") <= 700
    back, text = light(window, "h1")
    assert back > 0.95
    assert text < 0.1


def notebook(*things):
    """A page with what a notebook would show, in the colours of the scheme."""
    return (
        "<!DOCTYPE html><html><head><meta charset='utf-8'><style>body{background:#fff;color:#111}"
        "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}</style></head><body>"
        + "<hr>".join(each._repr_html_() for each in things)
        + "</body></html>"
    )


def shown():
    result = solved("complex psd")
    probes = solved("met").next_probe(np.eye(12)[:3])
    noise = quadsense.datasets.gaussian(n=3, m=60, seed=0, noise=0.1)
    return [
        result, solved("infeasible"), solved("max_iter"), result.matrix, result.certificate.data,
        result.interval("trace"), result.interval((0, 1)), probes,
        quadsense.estimate_sigma(noise.U, noise.b),
    ]  # fmt: skip


def test_what_a_notebook_shows_takes_the_colours_around_it(window, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(notebook(*shown()), encoding="utf-8")
    window.goto(path.as_uri())
    assert window.problems == []
    assert [url for url in window.asked_for if not url.startswith("data:")] == [path.as_uri()]
    cards = window.locator(".qs-card")
    assert cards.count() == len(shown())
    for index in range(cards.count()):
        assert cards.nth(index).is_visible()
        assert not window.locator(".qs-text").nth(index).is_visible()
    back, text = light(window, ".qs-card p")
    assert (back > 0.9 and text < 0.2) if window.scheme == "light" else (back < 0.1 and text > 0.8)


def test_without_the_style_the_text_is_seen(window, tmp_path):
    import re

    path = tmp_path / "notebook.html"
    stripped = re.sub(r"<style>.*?</style>", "", notebook(*shown()))
    path.write_text(stripped, encoding="utf-8")
    window.goto(path.as_uri())
    for index in range(len(shown())):
        assert window.locator(".qs-text").nth(index).is_visible()
        assert not window.locator(".qs-card").nth(index).is_visible()


def test_a_report_within_a_notebook_stays_in_its_frame(window, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(notebook(solved("met").report()), encoding="utf-8")
    window.goto(path.as_uri())
    inner = window.frame_locator("iframe")
    assert inner.locator("h1").inner_text() == "Every measurement is met"
    assert window.problems == []
    outside = [u for u in window.asked_for if not u.startswith(("data:", "about:", "file:"))]
    assert outside == []
