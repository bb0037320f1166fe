"""The code in the README and in docs/how_to_choose.md runs, and shows what is written there."""

import ast
import contextlib
import io
import math
import re
from pathlib import Path

import pytest

import quadsense

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
SHOWN = re.compile(r"(?P<code>\S.*?)  # (?P<value>['<([TF0-9-].*?)(?:: .*)?")


def blocks(page):
    """The Python of a page, one text per block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def assert_shown(text, written):
    """That a text is as written, its numbers to one in the last digit, as BLAS differs."""
    assert re.sub(NUMBER, "#", text) == re.sub(NUMBER, "#", written)
    pairs = zip(re.findall(NUMBER, text), re.findall(NUMBER, written), strict=True)
    for number, digits in pairs:
        decimals = len(digits.partition(".")[2])
        room = 1.01 * 10.0**-decimals if decimals else 0.0
        assert math.isclose(float(number), float(digits), rel_tol=0.0, abs_tol=room)


def comments_after(lines, number):
    """The comments that follow a line, as one text: what it prints."""
    found = []
    for line in lines[number:]:
        if not line.startswith("# "):
            break
        found.append(line.removeprefix("# "))
    return " ".join(found)


def run(code, names):
    """Run a block statement by statement; count the values and prints that are as written."""
    lines, compared = code.splitlines(), 0
    for node in ast.parse(code).body:
        source, line = ast.get_source_segment(code, node), lines[node.end_lineno - 1]
        beside = SHOWN.fullmatch(line)
        if isinstance(node, ast.Expr) and source.startswith("print("):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(source, names)
            assert_shown(printed.getvalue().strip(), comments_after(lines, node.end_lineno))
            compared += 1
        elif isinstance(node, ast.Expr) and beside:
            assert_shown(repr(eval(source, names)), beside["value"])
            compared += 1
        else:
            exec(source, names)
    return compared


def test_the_code_of_the_readme_runs_and_shows_what_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    compared = [run(code, names) for code in blocks("README.md")]
    assert len(compared) == 5
    assert min(compared) >= 2
    assert sum(compared) >= 13


def test_what_is_written_wrongly_is_noticed():
    for code in ("1 + 1  # 3: two", 'print("a 2")\n# a 3', "(1.5, True)  # (1.5, False)"):
        with pytest.raises(AssertionError):
            run(code, {})
    assert run("x = 2\nx + 1  # 3: three\nprint(x)\n# 2", {}) == 2


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
    from quadsense.result.words import NAMES
    from quadsense.typing import PreferName, SlackName

    assert set(get_args(PreferName)) == {"auto", *PREFERENCES}
    assert set(get_args(SlackName)) == set(SLACKS)
    known = {*PREFERENCES, *(f"slack_{name}" for name in SLACKS)}
    assert set(TERMS) == set(NAMES) == known - {"any"}
    assert set().union(*(METHODS.traits(name).preferences for name in METHODS)) == known
