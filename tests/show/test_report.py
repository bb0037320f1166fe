"""The report: verdict first, every number true, nothing fetched, small, and written whole."""

import base64
import dataclasses
import functools
import hashlib
import io
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from cases import CASES, solved
from click import Context
from click.testing import CliRunner
from helpers import sampled
from matplotlib.image import imread
from pages import Page, assert_harmless, number

import quadsense
from quadsense import Measurements, datasets
from quadsense.cli import cli
from quadsense.query.query import PARAMETERS, Query, environment, flag_of
from quadsense.report import evidence
from quadsense.report.sections import command_line, python_line, request_in
from quadsense.result import words as view
from quadsense.vocabulary import Reason, Status

LIMIT = 300_000
SCRIPT = (Path(quadsense.__file__).parent / "report" / "script.js").read_text("utf-8")
HOSTILE = "</style><script>alert(1)</script>\"'&<img src=x onerror=y>\x00\ud800"


def opened(result, data=None, **options):
    """The report of a result, taken apart."""
    with np.errstate(all="raise"):
        text = result.report(data, **options).html()
    assert len(text.encode()) < LIMIT
    page = Page(text)
    assert_harmless(page, SCRIPT)
    return page


@functools.cache
def page_of(name):
    """The report of a case, taken apart once."""
    return opened(solved(name))


def test_the_cases_have_every_status():
    assert {solved(name).status for name in CASES} == set(Status)


@pytest.mark.parametrize("name", sampled(CASES, 3))
def test_every_result_has_a_report(name):
    result = solved(name)
    page = opened(result)
    assert page.source.startswith("<!DOCTYPE html>")
    tags = [each["tag"] for each in page.elements]
    for tag in ("html", "head", "body", "main", "style", "h1", "footer"):
        assert tags.count(tag) == 1
    assert page.elements[0]["@lang"] == "en"
    body = page.source.partition("<main>")[2]
    assert body.startswith("<header")  # the verdict goes first
    verdict = page.all("header")[0]["text"]
    assert str(result.status).replace("_", " ") in verdict
    for fact in view.facts(result.verdict):
        assert fact.value.partition(": ")[2][1:] in verdict
        assert (fact.label == "verdict") or (fact.value in verdict)
    headings = [each["text"] for each in page.all("h2")]
    for heading in ("Pictures", "The certificate", "Plan and reasons"):
        assert heading in headings
    assert ("What is unseen" in headings) == (result.status is not Status.INFEASIBLE)
    assert headings[-1] == "Ask the same again"
    for reason in result.plan["reasons"]:
        assert reason in [each["text"] for each in page.all("li")]


@pytest.mark.parametrize("name", sampled(CASES, 3))
def test_every_verdict_has_a_next_step(name):
    header = page_of(name).source.partition("</header>")[0]
    (step,) = re.findall(r"<dt>next step</dt><dd><strong>([^<]+)</strong></dd>", header)
    assert len(step.split()) > 2


@pytest.mark.parametrize("name", sampled(CASES, 3))
def test_pictures_and_tables_speak_to_those_who_do_not_see_them(name):
    page = page_of(name)
    pictures = page.pictures()
    assert len(pictures) >= 2
    for picture in pictures:
        assert picture.get("role") == "img"
        assert picture.find("title").text
        assert picture.find("desc").text
        left, top, width, height = (float(x) for x in picture.get("viewBox").split())
        for text in picture.iter("text"):
            x = text.get("x")
            assert x is None or left <= float(x) <= left + width
        for path in picture.iter("path"):
            places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d"))
            for a, b in places if path.get("transform") is None else ():
                assert left - 1.0 <= float(a) <= left + width + 1.0
                assert top - 1.0 <= float(b) <= top + height + 1.0
        assert "nan" not in "".join(each.get("d") or "" for each in picture.iter()).lower()
    tables = page.all("table")
    assert len(page.all("caption")) == len(tables)
    assert len(page.all("figcaption")) == len(pictures)
    for header in page.all("th"):
        assert header["@scope"] in ("col", "row")


def rows_of(page):
    """The table of rows worth a look, as dicts."""
    header, *rows = next(t for t in page.tables() if t[0][0] == "Row")
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_rows_that_contradict_each_other_are_named_with_their_numbers():
    result = solved("infeasible")
    data = result.certificate.data
    rows = rows_of(opened(result))
    blamed = [int(row["Row"]) for row in rows if "in conflict" in row["State"]]
    assert blamed == result.suspects.tolist()
    assert blamed == [int(row["Row"]) for row in rows[: len(blamed)]]
    U, b = data.rows(), np.asarray(data.b)
    A = np.asarray(result.matrix)
    for row in rows:
        i = int(row["Row"])
        reads = float(U[i] @ A @ U[i])
        assert number(row["Reading"]) == pytest.approx(b[i], rel=1e-5)
        assert number(row["A reads"]) == pytest.approx(reads, rel=1e-5)
        assert number(row["Residual"]) == pytest.approx(reads - b[i], rel=1e-3)
        assert number(row["× tolerance"]) == pytest.approx(abs(reads - b[i]) / 0.05, rel=1e-3)
        assert row["Tolerance"] == "± 0.05"
    share = sum(float(row["Share of the proof"].rstrip("%")) for row in rows)
    assert 50.0 <= share <= 100.1


def over_by_how_far(result):
    """Rows over their tolerance, the farthest first, from the residuals alone."""
    ratios = np.abs(result.residuals) / result.certificate.tolerance
    return [int(row) for row in np.argsort(-ratios) if ratios[row] > 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["infeasible", "max_iter", "stalled", "slack"])
def test_every_listed_row_over_its_tolerance_is_labeled_and_the_farthest_are_first(name):
    result = solved(name)
    rows, over = rows_of(opened(result)), over_by_how_far(result)
    labeled = [int(row["Row"]) for row in rows if "not met" in row["State"]]
    listed = [int(row["Row"]) for row in rows]
    assert len(over) > 2
    assert set(labeled) == set(listed) & set(over)
    free = [int(row["Row"]) for row in rows if "in conflict" not in row["State"]]
    ratios = np.abs(result.residuals[free]) / result.certificate.tolerance[free]
    assert (np.diff(ratios) <= 0.0).all()
    # As many are listed as there is room for, and the page says how many there are.
    expected = [row for row in over if row in free][:9]
    assert free[: len(expected)] == expected


def test_the_page_says_how_many_rows_are_not_listed():
    p = datasets.gaussian(n=4, m=300, seed=0, noise=0.3)
    result = quadsense.solve(p.U, p.b, delta=0.05, slack="squares")
    page = opened(result)
    over = over_by_how_far(result)
    rows = rows_of(page)
    assert len(over) > 12
    assert [int(row["Row"]) for row in rows] == over[:12]
    assert f"12 of the {len(over):,} not met are listed" in " ".join(page.words)


def test_a_row_in_conflict_is_labeled_not_met_wherever_it_ranks():
    p = datasets.gaussian(n=5, m=1000, seed=0)
    b = p.b.round(1)
    b[17] += 0.2
    result = quadsense.solve(p.U, b, delta=0.05, prefer="minimax")
    over = over_by_how_far(result)
    assert len(over) > 12
    states = {int(row["Row"]): row["State"] for row in rows_of(opened(result))}
    assert {row for row, state in states.items() if "not met" in state} == set(states) & set(over)
    assert {17, 497} <= set(states)


def test_the_worst_rows_come_with_a_fit_too():
    result = solved("rtol")
    rows = rows_of(opened(result))
    ratios = np.abs(result.residuals) / result.certificate.tolerance
    assert [int(row["Row"]) for row in rows] == np.argsort(-ratios)[:5].tolist()
    assert [row["State"] for row in rows] == ["met, worst"] + 4 * ["met"]


def test_rows_set_aside_are_named():
    result = solved("violations")
    aside = [int(row["Row"]) for row in rows_of(opened(result)) if "set aside" in row["State"]]
    assert aside == result.set_aside.tolist() == [3]


@pytest.mark.parametrize("name", sampled([name for name in CASES if name != "spectral"], 3))
def test_keys_of_the_table_sort_as_its_numbers_do(name):
    source = page_of(name).source
    (table,) = re.findall(r'<table class="sortable">.*?</table>', source, flags=re.DOTALL)
    cells = re.findall(r'<t[hd] ?[^>]*class="n" data-key="([^"]*)">([^<]*)</t[hd]>', table)
    assert len(cells) > 3
    known = [(key, text.strip("± ")) for key, text in cells if not re.search(r"[a-z%≤≥=[–]", text)]
    for key, text in known:
        assert float(key) == pytest.approx(number(text), rel=1e-3)


@pytest.mark.parametrize("name", ["complex psd", "sparse", "sums", "intervals", "equalities"])
def test_what_a_reads_is_recomputed_for_every_kind_of_rows(name):
    result = solved(name)
    data = result.certificate.data.plain
    U, A = data.rows(), np.asarray(result.matrix)
    reads = np.einsum("ij,jk,ik->i", U.conj(), A, U).real
    if data.mix is not None:
        reads = data.mix @ reads
    for row in rows_of(opened(result)):
        assert number(row["A reads"]) == pytest.approx(reads[int(row["Row"])], rel=1e-4, abs=1e-9)


def test_the_contradiction_is_one():
    result = solved("infeasible")
    data = result.certificate.data
    y, b = result.certificate.dual, np.asarray(data.b)
    U = data.rows()
    y = y / np.abs(y).max()
    assert np.abs(np.einsum("i,ij,ik->jk", y, U, U)).max() < 1e-9
    low, high = evidence._span(result, data)
    assert low == pytest.approx(y @ b - 0.05 * np.abs(y).sum())
    assert high == pytest.approx(y @ b + 0.05 * np.abs(y).sum())
    assert low > 0.0 or high < 0.0
    low, high = evidence._span(solved("infeasible psd"), solved("infeasible psd").certificate.data)
    assert high < 0.0


def test_a_constraint_is_shown_with_what_a_has():
    result = solved("constrained")
    table = next(t for t in opened(result).tables() if t[0][0] == "Constraint")
    A = np.asarray(result.matrix)
    truth = [np.trace(np.diag(np.arange(6.0)) @ A), A[0, 0] - A[1, 1]]
    for row, value in zip(table[1:], truth, strict=True):
        assert number(row[2]) == pytest.approx(value, rel=1e-5)
        assert row[3] == "held"
    trace = next(t for t in page_of("complex psd").tables() if t[0][0] == "Constraint")
    assert trace[1][0] == "trace"


def test_unseen_directions_are_told():
    page = page_of("met")
    said = next(each for each in page.all("section") if each["@aria-label"] == "What is unseen")
    assert "18 of 78 directions" in said["text"]
    assert "determine A" in " ".join(page_of("no tolerance").words)


def plain(text):
    """A number as a tick is labeled, back to a float."""
    return number(re.sub("^(−?)10(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])", r"\g<1>1 × 10", text))


def ticks_of(picture, axis="xtick", place="x"):
    """Tick labels of an axis as numbers, with their places."""
    texts = [t for t in picture.iter("text") if axis in t.get("class", "").split()]
    return np.array([(plain(t.text), float(t.get(place))) for t in texts])


def ends_of(picture):
    """The numbers at the ends of an interval, as drawn."""
    return [number(t.text) for t in picture.iter("text") if "end" in t.get("class", "").split()]


def places_of(path):
    """Points and corners of a path."""
    return np.array(re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d")), dtype=float)


def bar_of(picture):
    """Where the bar of an interval begins and ends."""
    bars = [p for p in picture.iter("path") if "opacity:" in p.get("style", "")
            and "fill:var(--blue)" in p.get("style", "")]  # fmt: skip
    (bar,) = bars
    return places_of(bar)[:, 0].min(), places_of(bar)[:, 0].max()


@pytest.mark.slow
def test_each_interval_has_an_axis_of_its_own_and_its_numbers():
    result = solved("complex psd")
    asked = [(1, 1), (0, 0), (0, 1)]
    found = result.interval(asked)
    before, more = opened(result), opened(result, intervals=found)
    drawn = [p for p in more.pictures() if p.find("title").text == "Certified interval"]
    assert len(more.pictures()) == len(before.pictures()) + len(drawn)
    assert len(drawn) == 3
    for each, picture in zip(found, drawn, strict=True):
        assert ends_of(picture) == pytest.approx([each.lower, each.upper], rel=1e-5)
        left, right = bar_of(picture)
        assert right - left > 250.0  # of 389, however short the interval
        values, places = ticks_of(picture).T
        assert len(values) >= 2
        scale = np.polyfit(values, places, 1)
        for end, place in ((each.lower, left), (each.upper, right)):
            assert np.polyval(scale, end) == pytest.approx(place, abs=2.0)
    captions = [each["text"] for each in more.all("figcaption")]
    for name in ("A[1, 1]", "A[0, 0]", "Re A[0, 1]"):
        assert any(caption.startswith(name) for caption in captions)
    mine = opened(result, intervals={"mine": found[0]})
    assert any(each["text"].startswith("mine") for each in mine.all("figcaption"))


def test_an_interval_that_is_a_point_is_drawn_with_its_number():
    result = solved("complex psd")
    picture = opened(result, intervals=result.interval("trace")).pictures()[0]
    assert ends_of(picture) == pytest.approx(2 * [np.trace(result.A).real], rel=1e-5)


def test_an_interval_without_ends_is_drawn_to_the_edge():
    result = quadsense.solve(np.eye(2), [1.0, 2.0], delta=0.1)
    page = opened(result, intervals={"off": result.interval((0, 1))})
    picture = page.pictures()[0]
    assert ends_of(picture) == [-math.inf, math.inf]
    ticks = ticks_of(picture)[:, 1]
    left, right = bar_of(picture)
    assert left <= ticks.min() < ticks.max() <= right
    assert "there is none, proved" in next(iter(page.all("figcaption")))["text"]


@pytest.mark.slow
def test_a_proved_bound_is_never_rounded_up():
    p = datasets.gaussian(n=8, m=120, seed=0, noise=0.1)
    bounds = []
    for seed in range(4):
        b = p.b + 0.01 * np.random.default_rng(seed).standard_normal(120)
        result = quadsense.solve(p.U, b, prefer="minimax")
        header = opened(result).source.partition("</header>")[0]
        shown = re.search(r"<dt>Proved</dt><dd>≥ ([\d.]+)<", header)
        bounds.append((float(shown[1]), result.certificate.lower_bound))
    assert all(0.999 * bound < shown <= bound for shown, bound in bounds)


def test_checks_are_one_line_until_opened():
    page = page_of("met")
    count = len(solved("met").report().checked.checks)
    folded = [each for each in page.all("details") if "Statement" in each["text"]]
    assert len(folded) == 1
    assert "@open" not in folded[0]
    summaries = [each["text"] for each in page.all("summary")]
    assert f"Recomputed from the data: all {count} statements are true" in summaries


def test_the_color_bar_of_a_matrix_is_linear_and_labeled():
    picture = next(p for p in page_of("met").pictures()
                   if p.find("title").text == "Entries of A")  # fmt: skip
    wide = float(picture.get("viewBox").split()[2])
    scale = [(plain(t.text), float(t.get("y"))) for t in picture.iter("text")
             if "ytick" in t.get("class", "") and float(t.get("x")) > wide / 2]  # fmt: skip
    values, heights = np.array(scale).T
    assert len(values) >= 3
    fit = np.polyfit(values, heights, 1)
    np.testing.assert_allclose(np.polyval(fit, values), heights, atol=0.05)
    assert "entry of A" in [t.text for t in picture.iter("text")]
    assert (values > 0.0).any()
    assert (values < 0.0).any()


def pixels(image):
    """An image of a figure as colors and opacities."""
    body = image.get("href").removeprefix("data:image/png;base64,")
    return imread(io.BytesIO(base64.b64decode(body)))


def test_the_entries_that_are_shown_are_those_of_the_matrix():
    result = solved("complex psd")
    pictures = [p for p in opened(result).pictures() if p.find("title").text.endswith("part of A")]
    A = np.asarray(result.A)
    largest = max(np.abs(A.real).max(), np.abs(A.imag).max())
    for picture, part in zip(pictures, (A.real, A.imag), strict=True):
        image = next(each for each in picture.iter("image") if each.get("data-cells"))
        order, unit = int(image.get("data-order")), float(image.get("data-unit"))
        lower = np.array([int(code) for code in image.get("data-cells").split()]) * unit
        full = np.zeros((order, order))
        full[np.tril_indices(order)] = lower
        full += float(image.get("data-mirror")) * np.tril(full, -1).T
        np.testing.assert_allclose(full, part, atol=0.51 * unit)
        assert unit == pytest.approx(largest / 9999)
        # Opacity is linear in the size, and the hue is that of the sign.
        shown = pixels(image)
        assert shown.shape == (order, order, 4)
        np.testing.assert_allclose(shown[..., 3], np.abs(part) / largest, atol=1 / 127)
        seen = shown[..., 3] > 0.05
        np.testing.assert_array_equal((shown[..., 0] > shown[..., 2])[seen], (part > 0.0)[seen])
        # The image fills the place in which the script looks for entries.
        left, top, width, height = (float(x) for x in image.get("data-box").split())
        numbers = re.match(r"matrix\((.*)\)", image.get("transform"))[1].split()
        a, _, _, d, x, y = (float(each) for each in numbers)
        assert (x, y) == pytest.approx((left, top), abs=0.1)
        assert (a * order, d * order) == pytest.approx((width, height), abs=0.1)


def test_the_policy_admits_the_script_of_the_page_and_no_other():
    page = page_of("met")
    (meta,) = [each for each in page.all("meta") if "@http-equiv" in each]
    digest = base64.b64encode(hashlib.sha256(page.all("script")[0]["text"].encode()).digest())
    rules = dict(part.strip().split(" ", 1) for part in meta["@content"].split(";"))
    assert rules["script-src"] == f"'sha256-{digest.decode()}'"
    assert rules["default-src"] == "'none'"


def picture_of(result, title):
    """A figure of the report, by the beginning of its title."""
    return next(p for p in opened(result).pictures() if p.find("title").text.startswith(title))


def test_residuals_are_drawn_where_they_are():
    result = solved("infeasible")
    picture = picture_of(result, "Residuals")
    ratios = result.residuals / 0.05
    drawn = {}
    for each in picture.iter("path"):
        if each.get("data-values"):
            told = [text.split("|") for text in each.get("data-values").split(";")]
            drawn[re.search(r"--(\w+)", each.get("style"))[1]] = places_of(each), told
    over = np.abs(ratios) > 1.0
    for color, rows in (("red", over), ("blue", ~over)):
        places, told = drawn[color]
        index = [int(row) for row, _ in told]
        assert sorted(index) == np.flatnonzero(rows).tolist()
        assert [number(r) for _, r in told] == pytest.approx(ratios[index], rel=6e-3)
        assert len(places) == rows.sum()
    places, told = drawn["blue"]
    index = np.array([int(row) for row, _ in told])
    heights = ratios[index]
    assert np.abs(heights).max() <= 1.0  # where the scale is even, whatever it is beyond
    for place, value in zip(places.T, (index, heights), strict=True):
        fit = np.polyfit(value, place, 1)  # one line through all, to what is rounded
        assert np.abs(np.polyval(fit, value) - place).max() < 0.1
    for axis, place, values in (("xtick", "x", index), ("ytick", "y", heights)):
        ticks = ticks_of(picture, axis, place)
        ticks = ticks[np.abs(ticks[:, 0]) <= (1.0 if axis == "ytick" else 60.0)]
        ticks = ticks[ticks[:, 1] < 330.0]  # not those of the histogram
        fit = np.polyfit(values, places[:, int(axis == "ytick")], 1)
        assert np.abs(np.polyval(fit, ticks[:, 0]) - ticks[:, 1]).max() < 5.0


def test_the_histogram_counts_the_residuals():
    result = solved("met")
    picture = picture_of(result, "Residuals")
    styles = ((p, p.get("style", "")) for p in picture.iter("path"))
    bars = [places_of(p) for p, style in styles if "--blue" in style and "opacity:0.8" in style]
    widths = np.array([np.ptp(bar[:, 0]) for bar in bars])
    counts = np.rint(len(result.residuals) * widths / widths.sum())
    np.testing.assert_allclose(widths / widths.sum(), counts / len(result.residuals), atol=2e-3)
    # The bars are where those residuals are, going by the points of the rows.
    ratios = result.residuals / result.certificate.tolerance
    (points,) = [p for p in picture.iter("path") if p.get("data-values")]
    height = np.polyfit(places_of(points)[:, 1], ratios, 1)
    for bar, count in zip(bars, counts, strict=True):
        low, high = np.sort(np.polyval(height, [bar[:, 1].max(), bar[:, 1].min()]))
        room = (high - low) / 8.0  # bars are 0.8 as wide as what they count
        assert abs(np.count_nonzero((ratios >= low - room) & (ratios < high + room)) - count) <= 1


@pytest.mark.slow
def test_the_progress_is_that_of_the_history():
    result = solved("max_iter")
    picture = picture_of(result, "Worst residual")
    (line,) = [p for p in picture.iter("path") if "iteration" in p.get("data-say", "")]
    told = [text.split("|") for text in line.get("data-values").split(";")]
    assert len(told) == len(places_of(line))
    assert [int(step.replace(",", "")) for step, _ in told] == result.history.iteration.tolist()
    assert [number(r) for _, r in told] == pytest.approx(result.history.max_ratio, rel=1e-3)


@pytest.mark.slow
def test_the_same_result_has_the_same_report_whatever_the_style_of_the_user():
    result = solved("complex psd")
    intervals = result.interval(["trace", (0, 0)])
    first = result.report(intervals=intervals).html()
    with mpl.rc_context({"svg.hashsalt": "other", "font.size": 30.0, "text.color": "red"}):
        assert result.report(intervals=intervals).html() == first
        assert mpl.rcParams["font.size"] == 30.0


def test_colors_are_those_of_the_page_so_that_dark_is_dark():
    for picture in page_of("infeasible").pictures():
        styles = " ".join(each.get("style", "") for each in picture.iter())
        assert "var(--" in styles
        assert not re.search(r"#[0-9a-f]{3}", styles)
        assert not any(each.get("id") for each in picture.iter())


def test_residuals_of_any_size_are_drawn():
    result = solved("no tolerance")
    for size in (1e-300, 1e300, 1.7e308):
        huge = dataclasses.replace(result, residuals=result.residuals * 0.0 + size)
        picture = picture_of(huge, "Residuals")
        (points,) = [p for p in picture.iter("path") if p.get("data-values")]
        assert len(places_of(points)) == len(result.residuals)


# --- data, files, strangers ------------------------------------------------------------------


@pytest.mark.parametrize("name", sampled([name for name in CASES if name != "spectral"], 3))
def test_a_result_from_a_file_is_reported_with_and_without_its_data(name, tmp_path):
    result = solved(name)
    result.save(tmp_path / "r.npz")
    loaded = quadsense.load_result(tmp_path / "r.npz")
    alone = loaded.report()
    assert alone.checked is None
    opened(loaded)
    data = result.certificate.data.plain
    given = Measurements(
        data.rows(),
        data.readings,
        bounds=(data.lo, data.hi) if data.from_bounds else None,
        mix=data.mix,
    )
    report = loaded.report(given)
    checked = report.checked
    assert (checked is None) == (result.certificate.kind == "none")
    assert checked is None or checked.true
    page = Page(report.html())
    assert_harmless(page, SCRIPT)
    found = [t for t in page.tables() if t[0][0] == "Statement"]
    assert len(found) == (checked is not None)


def test_false_claims_are_called_so():
    p = datasets.gaussian(n=12, m=60, seed=0)
    other = Measurements(p.U, p.b + 1.0)
    report = solved("met").report(other)
    assert not report.checked.true
    page = Page(report.html())
    assert "Not confirmed" in page.all("header")[0]["text"]
    assert "bad" in page.all("header")[0]["@class"].split()
    assert solved("met").report(other, check=False).checked is None


def test_data_of_another_size_or_kind_are_refused():
    with pytest.raises(ValueError, match="60 measurements of a matrix of order 12"):
        solved("met").report(Measurements(np.eye(3), np.ones(3)))
    with pytest.raises(ValueError, match="must be the quadsense"):
        solved("met").report(np.eye(3))
    with pytest.raises(ValueError, match="intervals must be"):
        solved("met").report(intervals=[(0, 1)])


def test_an_oracle_is_data_too():
    oracle = quadsense.SpectralOracle(np.diag([1.0, 2.0, 4.0]))
    assert solved("spectral").report(oracle).checked.true


def test_no_string_becomes_a_tag():
    result = solved("max_iter")
    facts = dataclasses.replace(result.facts, reason=Reason("said", {"text": HOSTILE}))
    plan = {
        **result.plan, "method": HOSTILE, "methods": [HOSTILE], "reasons": [HOSTILE],
        "request": {"start": HOSTILE, HOSTILE: HOSTILE, "arrays": [HOSTILE]},
        "environment": {"quadsense": HOSTILE, "system": HOSTILE},
    }  # fmt: skip
    claim = dataclasses.replace(result.certificate, condition=HOSTILE)
    hostile = dataclasses.replace(
        result, facts=facts, plan=plan, certificate=claim, timings={HOSTILE: 1.0}
    )
    interval = solved("complex psd").interval("trace")
    report = hostile.report(title=HOSTILE, names=(HOSTILE, HOSTILE), intervals={HOSTILE: interval})
    page = Page(report.html())
    assert_harmless(page, SCRIPT)
    assert len(page.all("style")) == 1
    assert "<script>alert(1)</script>" in page.all("header")[0]["text"]
    frame = Page(report._repr_html_())
    assert [each["tag"] for each in frame.elements] == ["iframe"]
    assert frame.elements[0]["@srcdoc"] == report.html()
    assert frame.elements[0]["@sandbox"] == "allow-scripts"  # and nothing of the notebook around


def test_nobody_is_named():
    text = solved("met").report().html()
    import getpass
    import socket

    found = {os.path.expanduser("~"), socket.gethostname(), os.getcwd()} | {getpass.getuser()}
    for name in found:
        if len(name) > 3:
            assert name not in text.replace("-", " ").split()
    assert set(environment()) == {"quadsense", "python", "numpy", "scipy", "system"}


@pytest.mark.slow
@pytest.mark.parametrize("complex_", [False, True])
def test_the_largest_reports_are_small(complex_):
    rng = np.random.default_rng(0)
    p = datasets.gaussian(n=200, m=1500, seed=0, noise=1.0, complex=complex_)
    # As bad as it gets: no entry repeats another, and every row is a point of its own.
    result = quadsense.solve(p.U, p.b, delta=1e-3, method="gd", max_iter=1, prefer="any")
    A = rng.standard_normal((200, 200)) + (1j * rng.standard_normal((200, 200)) if complex_ else 0)
    result = dataclasses.replace(result, matrix=quadsense.SensedMatrix.from_dense(A + A.conj().T))
    opened(result)
    many = datasets.gaussian(n=200, m=5000, seed=0, rank=4, noise=0.1)
    soft = quadsense.solve(many.U, many.b, delta=0.05, rank=4, max_iter=3)
    page = opened(soft)
    assert soft.violations.size > 0
    assert "rows per cell" in page.words


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_a_small_report():
    p = datasets.gaussian(n=4, m=100_000, seed=0, noise=0.1)
    result = quadsense.solve(p.U, p.b, delta=0.1, slack="squares")
    assert result.violations.size > 10_000
    opened(result)


WITHOUT = """
import sys, numpy as np
sys.modules["matplotlib"] = None
import quadsense
result = quadsense.solve(np.eye(3) + 0.1, [1, 2, 3], delta=0.1, psd=True)
print(result.report(intervals=result.interval("trace")).html())
"""


def test_without_matplotlib_the_report_says_so_in_one_line():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    page = Page(done.stdout)
    assert_harmless(page, SCRIPT)
    assert page.pictures() == []
    said = [each for each in page.all("p") if "matplotlib" in each["text"]]
    assert len(said) == 1
    assert "Figures are left out" in said[0]["text"]
    assert "pip install 'quadsense[plot]'" in said[0]["text"]
    (caption,) = [each["text"] for each in page.all("figcaption")]
    low, high = (number(end) for end in re.search(r"trace(\S+) to (\S+);", caption).groups())
    assert 0.0 < low < high < 6.4
    assert [t[0][0] for t in page.tables()].count("Row") == 1


def test_cards_need_neither_matplotlib_nor_numba():
    program = """
import sys, numpy as np, quadsense
result = quadsense.solve(np.eye(3) + 0.1, [1, 2, 3], delta=0.1)
result._repr_html_(), result.matrix._repr_html_()
print(*[name for name in ("matplotlib", "numba", "click") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "", done.stderr


# --- writing ---------------------------------------------------------------------------------


def test_it_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    report, path = solved("met").report(), tmp_path / "r.html"
    report.write_html(path)
    assert path.read_text("utf-8") == report.html()
    path.write_text("before")

    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        report.write_html(path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["r.html"]
    with pytest.raises(ValueError, match=r"must end in \.html"):
        report.write_html(tmp_path / "r.pdf")


def test_it_opens_in_the_browser(monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    path = solved("met").report().open()
    assert shown == [path.as_uri()]
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")
    path.unlink()


# --- asking again ----------------------------------------------------------------------------

ASKED = [
    {"delta": 0.5},
    {"delta": 0.5, "psd": True, "trace": (3.0, 4.0)},
    {"delta": 0.5, "rtol": 0.1, "prefer": "center", "psd": True},
    {},
    {"ridge": 0.5},
    {"rank": 2, "rng": 3},
    {"delta": 0.9, "rank": (2, 1)},
    {"delta": 0.05, "slack": "max"},
    {"delta": 0.6, "method": "gd", "schedule": "paper", "max_iter": 7},
    {"delta": 0.6, "method": "sgd", "batch_size": 4, "rng": 5},
    {"delta": 0.5, "prefer": "any", "start": "zero"},
    {"delta": 0.5, "prefer": "nearest", "prior": -0.25},
    {"ridge": 0.1, "prior": 2.0, "weights": 3.0},
    {"delta": np.float64(0.5), "allow_violations": np.int64(1), "gap": 0.1},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_the_line_of_python_and_the_command_ask_the_same_again(asked, tmp_path, monkeypatch):
    p = datasets.gaussian(n=6, m=60, seed=0, noise=0.1)
    result = quadsense.solve(p.U, p.b, **asked)
    request = request_in(result)
    names = {"quadsense": quadsense, "U": p.U, "b": p.b}
    exec(python_line(request), names)
    np.testing.assert_array_equal(names["result"].A, result.A)
    monkeypatch.chdir(tmp_path)
    Measurements(p.U, p.b).save("data.npz")
    line = command_line(request, "data.npz", "again.npz").split()
    assert line[0] == "quadsense"
    CliRunner().invoke(cli, line[1:], standalone_mode=False)
    again = quadsense.load_result("again.npz")
    assert again.status is result.status
    np.testing.assert_allclose(again.A, result.A, atol=1e-12)


def test_arrays_are_named_and_what_only_python_can_say_is_left_to_it():
    p = datasets.gaussian(n=4, m=9, seed=0)
    lo, hi = p.b - 1.0, p.b + 1.0
    data = Measurements(p.U, p.b, bounds=(lo, hi), weights=np.ones(9))
    query = Query(data, constraints=[(np.eye(4), 0.0, 9.0)], prior=np.eye(4))
    request = query.recorded(data)
    assert request == {"arrays": ["b", "bounds", "weights", "constraints", "prior"]}
    assert python_line(request) == (
        "result = quadsense.solve(U, b, bounds=(lo, hi), weights=weights, constraints=constraints, "
        "prior=prior)"
    )
    assert command_line(request, "d.npz", "r.npz") is None
    request = Query(data, psd=True).recorded(data)
    assert command_line(request, "my d.npz", "r.npz") == (
        "quadsense solve 'my d.npz' --psd -o r.npz"
    )


def test_options_of_the_command_are_there():
    command = cli.commands["solve"]
    known = {flag for each in command.get_params(Context(command)) for flag in each.opts}
    only_python = {"mix", "callback", "progress", "exposure", "background"}  # of arrays, not files
    assert {flag_of(name) for name in PARAMETERS.keys() - only_python} <= known


@pytest.mark.parametrize("name", sampled([name for name in CASES if name != "spectral"], 3))
def test_what_was_asked_is_known_without_the_record_too(name):
    result = solved(name)
    kept = {key: value for key, value in result.plan.items() if key != "request"}
    request = request_in(dataclasses.replace(result, plan=kept))
    full = request_in(result)
    for key in ("psd", "rank", "slack", "allow_violations"):
        assert request.get(key) == full.get(key)
    python_line(request)


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    p = datasets.gaussian(n=4, m=30, seed=0, noise=0.01)
    Measurements(p.U, p.b).save("data.npz")
    quadsense.solve(p.U, p.b, delta=0.1).save("result.npz")
    return p


def invoked(*words):
    return CliRunner().invoke(cli, ["report", *words], standalone_mode=False)


def test_the_command_writes_the_report(files):
    done = invoked("data.npz", "result.npz", "-o", "out.html", "--interval", "trace",
                   "--interval", "0,1", "--title", "<mine>")  # fmt: skip
    assert done.return_value == 0
    page = Page(Path("out.html").read_text("utf-8"))
    assert_harmless(page, SCRIPT)
    assert page.all("title")[0]["text"] == "<mine>"
    assert "quadsense verify data.npz result.npz" in page.source
    assert sum(p.find("title").text == "Certified interval" for p in page.pictures()) == 2


def test_the_command_says_when_the_data_do_not_bear_the_result_out(files):
    Measurements(files.U, files.b + 1.0).save("other.npz")
    done = invoked("other.npz", "result.npz", "-o", "out.html", "--quiet")
    assert done.return_value == 3
    assert "Not confirmed" in Path("out.html").read_text("utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ("data.npz", "result.npz", "-o", "out.txt"),
        ("data.npz", "result.npz", "-o", "nowhere/out.html"),
        ("data.npz", "data.npz", "-o", "out.html"),
        ("missing.npz", "result.npz", "-o", "out.html"),
        ("data.npz", "result.npz", "-o", "out.html", "--interval", "all"),
        ("data.npz", "result.npz", "-o", "out.html", "--bounds", "0", "x"),
        ("data.npz", "result.npz", "-o", "out.html", "--interval", "9,0"),
    ],
)
def test_the_command_refuses_what_cannot_be(files, words):
    assert isinstance(invoked(*words).exception, ValueError)
    assert not os.path.exists("out.html")
