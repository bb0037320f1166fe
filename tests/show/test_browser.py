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
    for width in (1000, 390):
        window.set_viewport_size({"width": width, "height": 800})
        assert window.evaluate("document.documentElement.scrollWidth") <= width
    assert window.evaluate("[...document.querySelectorAll('svg')].every(s => s.clientHeight > 40)")
    assert window.screenshot(full_page=True).startswith(b"\x89PNG")


def order_of(window):
    """Rows of the table as they stand."""
    return [int(text) for text in window.locator("table.sortable tbody th").all_inner_texts()]


def keys_of(window, column):
    """Sort keys of a column as numbers, as the rows stand."""
    cells = window.locator("table.sortable tbody tr").all()
    return [float(row.locator("td, th").nth(column).get_attribute("data-key")) for row in cells]


def test_the_table_of_rows_is_sorted_on_request(window, tmp_path):
    path = tmp_path / "report.html"
    solved("infeasible").report().write_html(path)
    window.goto(path.as_uri())
    before = order_of(window)
    heads = window.locator("table.sortable thead th")
    names = [text.strip() for text in heads.all_inner_texts()]
    residual = names.index("Residual")
    heads.nth(residual).get_by_role("button").click()
    assert heads.nth(residual).get_attribute("aria-sort") == "descending"
    keys = keys_of(window, residual)
    assert keys == sorted(keys, reverse=True)
    assert min(keys) < 0.0 < max(keys)
    window.keyboard.press("Enter")  # the button has the focus
    assert heads.nth(residual).get_attribute("aria-sort") == "ascending"
    assert keys_of(window, residual) == sorted(keys)
    heads.nth(0).get_by_role("button").click()
    assert order_of(window) == sorted(before) != before
    assert window.locator("th[aria-sort]").count() == 1
    assert window.problems == []


def test_the_pointer_shows_values(window, tmp_path):
    path = tmp_path / "report.html"
    result = solved("complex psd")
    result.report(intervals={"<b>mine</b>": result.interval((0, 0))}).write_html(path)
    window.goto(path.as_uri())
    tip = window.locator(".tooltip")
    assert not tip.is_visible()

    def over(title, across, up):
        picture = window.locator(f"svg[aria-label^='{title}']")
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        window.mouse.move(box["x"] + across * box["width"], box["y"] + up * box["height"])
        return tip.inner_text()

    image = window.locator("svg[aria-label^='Imaginary part of A'] image[data-cells]")
    cells, whole = image.bounding_box(), image.locator("..").bounding_box()
    place = [(cells["x"] - whole["x"] + cells["width"] * 1.5 / 5) / whole["width"],
             (cells["y"] - whole["y"] + cells["height"] * 3.5 / 5) / whole["height"]]  # fmt: skip
    name, value = over("Imaginary part of A", *place).split(" = ")
    assert name == "Im A[3, 1]"
    assert float(value.replace("−", "-")) == pytest.approx(
        result.A[3, 1].imag, abs=np.abs(result.A).max() / 9999
    )
    assert over("Real part of A", *place).startswith("Re A[3, 1] = ")
    assert over("Residuals", 0.45, 0.45).startswith("row ")
    assert over("Eigenvalues", 0.2, 0.1).startswith("eigenvalue 1: ")
    window.mouse.move(0, 0)
    assert not tip.is_visible()
    assert window.problems == []


def test_the_checks_open_and_a_page_without_scripts_says_the_same(browser, tmp_path):
    path = tmp_path / "report.html"
    solved("met").report().write_html(path)
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(path.as_uri())
    statement = page.get_by_text("claim: met", exact=True)
    assert not statement.is_visible()
    page.locator("summary", has_text="statements are true").click()
    assert statement.is_visible()
    assert page.locator("table.sortable tbody tr").count() == 5
    assert page.locator("th button").count() == 0
    context.close()


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


JUPYTERLAB = """
.jp-OutputArea-output dl, .jp-OutputArea-output dt, .jp-OutputArea-output dd { display: block; }
.jp-OutputArea-output dl { width: 100%; overflow: hidden; padding: 0; margin: 0; }
.jp-OutputArea-output dt { font-weight: bold; float: left; width: 20%; padding: 0; margin: 0; }
.jp-OutputArea-output dd { float: left; width: 80%; padding: 0; margin: 0; }
.jp-RenderedHTMLCommon table { table-layout: fixed; margin-left: auto; margin-right: auto; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr
  { padding: .5em; line-height: normal; white-space: normal; border: none; }
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td,
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon th { text-align: right; }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: #123456; }
.jp-RenderedHTMLCommon p { margin: 0; margin-bottom: 1em; }
.jp-RenderedHTMLCommon svg { max-width: 100%; height: auto; }
"""
"""What JupyterLab 4 says of lists, tables and pictures in the output of a cell, in its words."""


def notebook(*things, style=""):
    """A page with what a notebook would show, in the colours of the scheme."""
    return (
        "<!DOCTYPE html><html><head><meta charset='utf-8'><style>body{background:#fff;color:#111}"
        "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}"
        f"{style}</style></head><body>"
        "<div class='jp-RenderedHTMLCommon jp-RenderedHTML jp-OutputArea-output'>"
        + "<hr>".join(each._repr_html_() for each in things)
        + "</div></body></html>"
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


@pytest.mark.parametrize("width", [1000, 390])
def test_cards_keep_their_layout_under_the_style_of_jupyterlab(window, width, tmp_path):
    boxes = []
    window.set_viewport_size({"width": width, "height": 800})
    for style in ("", JUPYTERLAB):
        path = tmp_path / "notebook.html"
        path.write_text(notebook(*shown(), style=style), encoding="utf-8")
        window.goto(path.as_uri())
        boxes.append(
            window.evaluate(
                """() => [...document.querySelectorAll(".qs-card")].map(card => {
                  const from = card.getBoundingClientRect();
                  return [...card.querySelectorAll("dt, dd, th, td, svg, p")].map(each => {
                    const box = each.getBoundingClientRect(), style = getComputedStyle(each);
                    return [box.left - from.left, box.top - from.top, box.width, box.height,
                            style.textAlign, style.fontWeight];
                  });
                })"""
            )
        )
        assert window.evaluate("document.documentElement.scrollWidth") <= width
    plain, lab = boxes
    assert lab == plain
    # A label stands next to its value, and on a wide page it does not wrap.
    pairs = window.evaluate(
        """() => [...document.querySelectorAll(".qs-card dt")].map(each => [
             each.getBoundingClientRect(), each.nextElementSibling.getBoundingClientRect()])"""
    )
    assert len(pairs) > 20
    assert all(name["top"] == value["top"] for name, value in pairs)
    assert all(name["right"] < value["left"] for name, value in pairs)
    lines = window.evaluate(
        """() => [...document.querySelectorAll(".qs-card dt")].map(each => {
          const text = document.createRange();
          text.selectNodeContents(each);
          return text.getClientRects().length;
        })"""
    )
    assert width < 1000 or set(lines) == {1}
    odd = window.locator(".qs-card tbody tr").first
    assert odd.evaluate("each => getComputedStyle(each).backgroundColor") == "rgba(0, 0, 0, 0)"


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
    assert inner.locator("h1").inner_text().startswith("All 60 measurements within delta = 0.01")
    inner.locator("table.sortable th button").first.click()
    assert inner.locator("th[aria-sort]").count() == 1
    assert window.problems == []
    outside = [u for u in window.asked_for if not u.startswith(("data:", "about:", "file:"))]
    assert outside == []
