"""What a result says of itself: one list of facts, shown alike wherever it is shown."""

import re

import numpy as np
import pytest
from cases import CASES, solved
from helpers import sampled
from pages import Page

import quadsense
from quadsense import vocabulary
from quadsense.result import words

LABELS = [
    "verdict", "why", "conflict", "outliers", "which A", "determined", "checked", "next step",
]  # fmt: skip

SAID = {
    "met": ("met: all 60 measurements within delta = 0.01", "18 of 78 directions", "next_probe"),
    "any": ("met: all 60 measurements within delta = 0.5", "any fit", "interval((i, j))"),
    "infeasible": ("infeasible: no matrix fits", "(proved; ", " 17, 28", "least-squares fit"),
    "infeasible psd": ("infeasible: no positive semidefinite matrix fits", "row 0 "),
    "no tolerance": ("optimal: sum of squares", "meets delta = ", "prefer='minimax'"),
    "exact": ("optimal: an exact fit", "give delta or ridge", "follows the noise"),
    "slack": ("optimal: sum of weighted squares of misses", "42 of 60 over", "result.violations"),
    "local": ("local: sum of squares", "nothing is proved", "best of 1 start", "max_restarts"),
    "violations": ("met: all 59 other measurements", "set aside"),
    "never": ("infeasible: no matrix meets all but 1 measurement", "allow_violations=2"),
    "intervals": ("met: all 56 measurements within their intervals, 4 not measured",),
    "missed intervals": ("infeasible:", "is within all intervals", "and trace contradict", "wider"),
    "equalities": ("met: all 10 measurements within their tolerances", "closest: row "),
    "max_iter": ("not met: 60 of 60", "max_iter = 5", "start=result", "nothing is claimed"),
    "interrupted": ("not met: 60 of 60", "by the callback", "start=result"),
    "time_limit": ("not met: 60 of 60", "time_limit = 1e-06 s", "raise time_limit"),
    "stalled": ("not met: 29 of 30", "has not fallen", "method='auto' finds out which"),
    "undecided": ("not met: ", "is not known: no such set found", "may decide"),
    "spectral": ("met: ||I - A*^(-1/2)", "sees all of A*", "eigenvalues"),
    "zero row": ("infeasible: row 0 of U is zero", "b[0] = 1", "leave row 0 out"),
}  # fmt: skip
"""Of every status, and of what is special, the words that must be there."""


def test_every_status_is_among_them():
    assert {solved(name).status for name in SAID} == set(quadsense.Status)


@pytest.mark.parametrize("name", SAID)
def test_text_and_message_say_what_they_must(name):
    result = solved(name)
    text = " ".join(str(result).split())
    for part in SAID[name]:
        assert part in text
        assert part.lower() in result.message.lower() or part == "nothing is claimed"
    first = SAID[name][0]
    assert first in repr(result) and result.message.startswith(first)


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_a_few_short_lines(name):
    result = solved(name)
    facts, lines = words.facts(result.verdict), str(result).splitlines()
    labels = [fact.label for fact in facts]
    assert labels == [label for label in LABELS if label in labels]
    assert labels[0] == "verdict" and labels[-2:] == ["checked", "next step"]
    assert 4 <= len(facts) <= 6
    assert max(map(len, lines)) <= 80
    assert [line[:12].strip() for line in lines if line[:1] != " "] == labels
    assert " ".join(line[12:] for line in lines) == " ".join(fact.value for fact in facts)


@pytest.mark.parametrize("name", CASES)
def test_the_name_is_one_line_that_begins_with_the_status_once(name):
    result = solved(name)
    text = repr(result)
    assert "\n" not in text and text.startswith(f"<Result {result.status}")
    assert len(re.findall(rf"\b{result.status}\b", text)) == 1 or result.status == "met"
    assert f"{result.status}: {result.status}" not in text


@pytest.mark.parametrize("name", CASES)
def test_the_message_is_sentences_of_the_same_facts(name):
    result = solved(name)
    message = result.message
    assert message.endswith(".") and "\n" not in message
    for fact in words.facts(result.verdict):
        assert (fact.value in message or fact.value[1:] in message) == (fact.label != "checked")


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_true_where_it_succeeded(name):
    result = solved(name)
    assert bool(result) is result.success
    assert bool(result) == (result.status in ("met", "optimal"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(SAID, 6))
def test_card_and_report_show_the_same_facts(name):
    result = solved(name)
    card = Page(result._repr_html_())
    report = Page(result.report(check=False).html())
    for page in (card, report):
        shown = dict(
            zip(
                (each["text"] for each in page.all("dt")),
                (each["text"] for each in page.all("dd")),
                strict=True,
            )
        )
        for fact in words.facts(result.verdict)[1:]:
            assert shown[fact.label] == fact.value


@pytest.mark.parametrize("value", [2.72403, 0.13752, 9.9999999, 1e-300, -3.14159, 5e17, 0.0])
@pytest.mark.parametrize("digits", [3, 4, 6])
def test_bounds_are_rounded_to_the_side_where_they_stay_true(value, digits):
    low, high = (
        float(vocabulary.rounded_down(value, digits)),
        float(vocabulary.rounded_up(value, digits)),
    )
    assert low <= value <= high
    assert high - low <= 2.0 * abs(value) * 10.0 ** (1 - digits)
    assert vocabulary.rounded_up(np.inf) == "inf"


def test_what_is_said_to_be_reachable_is_reached():
    p = quadsense.datasets.gaussian(n=6, m=60, seed=0, noise=0.1)
    refuted = quadsense.solve(p.U, p.b, delta=0.05)
    delta = float(re.search(r"delta = (\S+) can be met", refuted.message)[1])
    least = float(re.search(r"missed by at least (\S+) delta \(proved", refuted.message)[1])
    A = np.asarray(refuted.certificate.matrix)
    assert np.abs(np.einsum("ij,jk,ik->i", p.U, A, p.U) - p.b).max() <= delta
    assert quadsense.solve(p.U, p.b, delta=0.999 * 0.05 * least).status == "infeasible"
