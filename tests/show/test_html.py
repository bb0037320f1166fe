"""What notebooks show: small, harmless, and the numbers of the objects themselves."""

import dataclasses
import math
import re

import numpy as np
import pytest
from cases import CASES, solved
from helpers import gaussian_rows, sampled
from pages import Page, assert_harmless, number

import quadsense
from quadsense import Measurements, SensedMatrix, datasets
from quadsense.result import words
from quadsense.view import Markup, element, escape, short
from quadsense.view import number as shown

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=y>\x00\ud800"


def facts(page):
    """Names and values of a card."""
    names, values = page.all("dt"), page.all("dd")
    return {a["text"]: b["text"] for a, b in zip(names, values, strict=True)}


def card(thing):
    with np.errstate(all="raise"):
        text = thing._repr_html_()
    page = Page(text)
    assert_harmless(page)
    assert len(text.encode()) < 8000
    assert page.all("pre", "qs-text")[0]["text"] == repr(thing)
    assert "@hidden" in page.all("div", "qs-card")[0]
    for picture in page.pictures():
        assert picture.find("{*}title") is not None or picture.find("title") is not None
    return page


@pytest.mark.parametrize("name", CASES)
def test_every_result_has_a_small_card(name):
    result = solved(name)
    page = card(result)
    badge = page.all("span", "qs-badge")[0]
    assert badge["text"] == str(result.status).replace("_", " ")
    assert ("qs-good" in badge["@class"]) == result.success
    verdict, *others = words.facts(result.verdict)
    assert page.all("span", "qs-head")[0]["text"] == verdict.value.removeprefix(
        f"{result.status}: "
    )
    shown = facts(page)
    assert {fact.label: shown[fact.label] for fact in others} == {
        fact.label: fact.value for fact in others
    }


@pytest.mark.parametrize("name", sampled(CASES))
def test_every_matrix_and_data_have_a_small_card(name):
    result = solved(name)
    found = facts(card(result.matrix))
    assert number(found["trace"]) == pytest.approx(result.matrix.trace(), rel=1e-5, abs=1e-12)
    if result.certificate.data is not None:
        card(result.certificate.data)
        card(result.certificate.data.plain)


def test_the_worst_row_and_the_suspects_are_named():
    found = facts(card(solved("infeasible")))
    rows = [int(row) for row in re.findall(r"\d+", found["conflict"])]
    assert rows == solved("infeasible").suspects.tolist()
    worst = np.abs(solved("infeasible").residuals).argmax()
    assert found["worst residual"].endswith(f"row {worst}")


def test_a_matrix_shows_its_eigenvalues(rng):
    A = rng.standard_normal((7, 7))
    A = A + A.T
    found = facts(card(SensedMatrix.from_dense(A)))
    values = np.linalg.eigvalsh(A)
    top, low = found["eigenvalues"].split(" down to ")
    assert number(top) == pytest.approx(values[-1], rel=1e-5)
    assert number(low) == pytest.approx(values[0], rel=1e-5)
    assert number(found["Frobenius norm"]) == pytest.approx(np.linalg.norm(A), rel=1e-5)


@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_matrix_shows_its_first_entries(rng, n, complex_):
    A = gaussian_rows(rng, n, n, complex_)
    A = A + A.conj().T
    (rows,) = card(SensedMatrix.from_dense(A)).tables()
    shown = np.array([[entry(text) for text in row[1:]] for row in rows[1:]])
    k = min(n, 3 if complex_ else 6)
    assert shown.shape == (k, k)
    np.testing.assert_allclose(shown, A[:k, :k], rtol=6e-3, atol=6e-3)


def entry(text):
    """A number of a card, real or complex."""
    real, sign, imaginary = re.fullmatch(r"(\S+)(?: (.) (\S+)i)?", text).groups()
    return number(real) + (0.0 if sign is None else 1j * number(sign.strip("+") + imaginary))


def test_a_large_implicit_matrix_is_never_formed(monkeypatch):
    p = datasets.gaussian(n=4000, m=20, seed=0, rank=2)
    result = quadsense.solve(p.U, p.b, delta=0.1, prefer="any")
    monkeypatch.setattr(SensedMatrix, "to_dense", lambda self: pytest.fail("it was formed"))
    card(result)
    card(result.matrix)


def test_measurements_tell_their_tolerances():
    U, b = np.eye(4), np.arange(4.0)
    plain = Measurements(U, b)
    assert facts(card(plain))["tolerance"].startswith("none")
    assert facts(card(plain.with_tolerance(0.5)))["tolerance"] == "± 0.5"
    mixed = Measurements(U, bounds=([0, -np.inf, 2, -np.inf], [1, 1, 2, np.inf]))
    told = facts(card(mixed))["tolerance"]
    assert told == "1 rows ± 0.5, 1 with one end, 1 exact, 1 asked for nothing"
    assert facts(card(plain))["seen"] == "4 of 10 directions of A"
    constrained = Measurements(U, b, delta=1.0).constrained(trace=3.0)
    assert facts(card(constrained))["trace"] == "= 3"


@pytest.mark.parametrize("complex_", [False, True])
def test_intervals_show_their_ends(complex_):
    p = datasets.gaussian(n=3, m=5, seed=0, complex=complex_)
    found = quadsense.interval(p.U, p.b, ["trace", (0, 1), (1, 1)], delta=0.1, psd=True)
    open_ended = quadsense.interval(np.eye(2), [1.0, 2.0], [(0, 1), (0, 0)], delta=0.1)
    for each in (*found, *open_ended):
        text = facts(card(each))
        for name in ("lower", "upper"):
            value, end = getattr(each, name), text[f"{name} end"]
            assert ("without end" in end) == math.isinf(value)
            shown = value if math.isinf(value) else number(end.split(",")[0])
            assert shown == pytest.approx(value, rel=1e-5)
    assert math.isinf(open_ended[0].upper) and not math.isinf(open_ended[1].upper)


def test_probes_and_noise_are_shown():
    U = np.array([[1.0, 0.0], [0.0, 1.0]])
    result = quadsense.solve(U, [1.0, 2.0], delta=0.1)
    page = card(result.next_probe([[2.0, 0.0], [1.0, 1.0]]))
    (rows,) = page.tables()
    assert [row[0] for row in rows[1:]] == ["1", "0"]
    p = datasets.gaussian(n=3, m=60, seed=0, noise=0.1)
    estimate = quadsense.estimate_sigma(p.U, p.b)
    assert number(facts(card(estimate))["sigma"]) == pytest.approx(estimate.sigma, rel=1e-5)


def test_no_string_becomes_a_tag():
    result = solved("max_iter")
    reason = quadsense.vocabulary.Reason("said", {"text": HOSTILE})
    facts = dataclasses.replace(result.facts, reason=reason)
    plan = {**result.plan, "method": HOSTILE}
    page = Page(dataclasses.replace(result, facts=facts, plan=plan)._repr_html_())
    assert_harmless(page)
    assert any("<script>alert(1)</script>" in each["text"] for each in page.all("dd"))
    page.source.encode("utf-8")


def test_elements_escape_once():
    inner = element("b", "a < b & c", title='"x"')
    assert inner == '<b title="&quot;x&quot;">a &lt; b &amp; c</b>'
    assert element("p", inner, None, "<") == f"<p>{inner}&lt;</p>"
    assert isinstance(inner, Markup)
    assert escape("a\x00b\ud800") == "a\ufffdb\ufffd"
    assert element("line", x1=1.0 / 3.0, class_="a", hidden=True, title=None) == (
        '<line x1="0.33" class="a" hidden/>'
    )


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-7, -3.25e12, 123456.0, 1e300, 0.0001234])
def test_numbers_read_back(value):
    assert number(shown(value, 6)) == pytest.approx(value, rel=1e-5)
    assert short(-0.001) == "0"
