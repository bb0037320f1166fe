"""The code in the README and in docs/how_to_choose.md runs, and shows what is written beside it."""

import math
import re
from pathlib import Path

import pytest

import quadsense

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
SHOWN = re.compile(r"(?P<code>\S.*?)  # (?P<value>['<([TF0-9-].*?)(?:: .*)?")


def blocks(page):
    """The Python of a page, one text a block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def shown(code):
    """Expressions of a block with the value that stands beside them."""
    found = [SHOWN.fullmatch(line) for line in code.splitlines()]
    return [(each["code"], each["value"]) for each in found if each and " = " not in each["code"]]


def assert_shown(value, written):
    """That a value is as written, its numbers to the digits that are."""
    text = repr(value)
    assert re.sub(NUMBER, "#", text) == re.sub(NUMBER, "#", written)
    pairs = zip(re.findall(NUMBER, text), re.findall(NUMBER, written), strict=True)
    for number, digits in pairs:
        last = 10.0 ** -len(digits.partition(".")[2])
        assert math.isclose(float(number), float(digits), rel_tol=0.0, abs_tol=0.501 * last)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """All that the README's code makes, run from top to bottom."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks("README.md"):
        exec(compile(code, "README.md", "exec"), names)
    return names


def test_the_code_of_the_readme_runs_and_shows_what_is_written(ran):
    beside = [pair for code in blocks("README.md") for pair in shown(code)]
    assert len(beside) >= 7
    for code, written in beside:
        assert_shown(eval(code, ran), written)


def test_the_message_in_the_readme_is_the_one_that_is_printed(ran):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    comment = re.search(r"^print\(result\.message\)\n((?:# .*\n)+)", text, flags=re.MULTILINE)
    said = " ".join(line.removeprefix("# ") for line in comment[1].splitlines())
    message = ran["result"].message
    assert re.sub(NUMBER, "#", said) == re.sub(NUMBER, "#", message)
    for one, other in zip(re.findall(NUMBER, said), re.findall(NUMBER, message), strict=True):
        assert math.isclose(float(one), float(other), rel_tol=1e-5)


def test_every_way_of_choosing_is_on_the_page():
    from quadsense.preferences import PREFERENCES, SLACKS

    page = (ROOT / "docs" / "how_to_choose.md").read_text(encoding="utf-8")
    part = page.partition("## Which A?")[2].partition("## Which method?")[0]
    for name in PREFERENCES:
        assert f'\n| `"{name}"` |' in part, name
    for name in SLACKS:
        assert f'"{name}"' in page, name
    for name in ("prior", "ridge", "weights", "trace", "constraints", "slack"):
        assert f"`{name}=" in part, name
    for name in ("interval", "to_cvxpy", "bounds_from_counts", "estimate_sigma"):
        assert hasattr(quadsense, name)
        assert name in page, name


def test_every_preference_is_known_wherever_it_must_be():
    from typing import get_args

    from quadsense.methods import METHODS
    from quadsense.preferences import PREFERENCES, SLACKS, TERMS
    from quadsense.typing import PreferName, SlackName
    from quadsense.view.words import NAMES

    assert set(get_args(PreferName)) == {"auto", *PREFERENCES}
    assert set(get_args(SlackName)) == set(SLACKS)
    known = {*PREFERENCES, *(f"slack_{name}" for name in SLACKS)}
    assert set(TERMS) == set(NAMES) == known - {"any"}
    assert set().union(*(METHODS.traits(name).preferences for name in METHODS)) == known
