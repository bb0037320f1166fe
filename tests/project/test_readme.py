"""The code in the README and in the tutorial and other pages runs, and shows what is written."""

import ast
import contextlib
import io
import math
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

import quadsense
import quadsense_check

ROOT = Path(__file__).resolve().parents[2]
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
SHOWN = re.compile(r"(?P<code>\S.*?)  # (?P<value>['<([TF0-9-].*?)(?:: .*)?")
EXIT_STATUS = re.compile(r"#.*exit status (\d+)")
PAGES = {
    "README.md": 14,
    "docs/tutorial.md": 11,
    "docs/files.md": 2,
    "docs/faq.md": 4,
    "docs/many.md": 5,
    "docs/index.md": 1,
}
"""Pages whose every block is run, and how many values or prints are compared at least."""


def blocks(page):
    """The blocks of Python and of the console of a page, in order, each with its kind."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(python|console)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


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
    return " ".join(" ".join(found).split())


def execute(code, names):
    """Run a block statement by statement; count the values and prints that are as written."""
    lines, compared = code.splitlines(), 0
    for node in ast.parse(code).body:
        source, line = ast.get_source_segment(code, node), lines[node.end_lineno - 1]
        beside = SHOWN.fullmatch(line)
        if isinstance(node, ast.Expr) and source.startswith("print("):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(source, names)
            text = " ".join(printed.getvalue().split())
            assert_shown(text, comments_after(lines, node.end_lineno))
            compared += 1
        elif isinstance(node, ast.Expr) and beside:
            assert_shown(repr(eval(source, names)), beside["value"])
            compared += 1
        else:
            exec(source, names)
    return compared


def enter(line, command):
    """Run a line of a console block, or see that what it calls is there."""
    arguments = shlex.split(line, comments=True)
    if arguments[0] == "quadsense":
        stated = EXIT_STATUS.search(line)
        code, out, err = command(*arguments[1:])
        assert code == (int(stated[1]) if stated else 0), f"{line}: {out}{err}"
    elif arguments[:3] == ["python", "-m", "quadsense_check"]:
        assert quadsense_check.main(arguments[3:]) == 0
    elif arguments[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{arguments[1]}:", makefile, flags=re.MULTILINE), line
    else:
        found = re.fullmatch(r"pip install \.(?:\[(.*)\])?", " ".join(arguments))
        assert found, line
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        extras = extras["project"]["optional-dependencies"]
        assert {each for each in (found[1] or "").split(",") if each} <= set(extras), line


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.slow] if "many" in p else []) for p in PAGES]
)
def test_the_code_of_a_page_runs_and_shows_what_is_written(page, tmp_path, monkeypatch, run):
    for path in (ROOT / "docs").glob("*.csv"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    names, compared = {}, 0
    for kind, text in blocks(page):
        if kind == "python":
            compared += execute(text, names)
        else:
            for line in text.splitlines():
                enter(line.removeprefix("$ "), run)
    assert compared >= PAGES[page]


@pytest.mark.parametrize("line", ["make nothing", "pip install '.[nothing]'", "ls", "quadsense no"])
def test_a_line_that_cannot_be_entered_is_noticed(line, run):
    with pytest.raises(AssertionError):
        enter(line, run)


def test_what_is_written_wrongly_is_noticed():
    for code in ("1 + 1  # 3: two", 'print("a 2")\n# a 3', "(1.5, True)  # (1.5, False)"):
        with pytest.raises(AssertionError):
            execute(code, {})
    assert execute("x = 2\nx + 1  # 3: three\nprint(x)\n# 2", {}) == 2


def test_every_way_of_choosing_is_on_the_page():
    from quadsense.preferences import PREFERENCES, SLACKS

    page = (ROOT / "docs" / "how_to_choose.md").read_text(encoding="utf-8")
    part = page.partition("## Which A?")[2].partition("## What holds for every fit")[0]
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

    from quadsense.core.smooth_terms import ROW_TERMS
    from quadsense.methods import METHODS
    from quadsense.preferences import KINDS, PREFERENCES, SLACKS
    from quadsense.typing import PreferName, SlackName

    assert set(get_args(PreferName)) == {"auto", *PREFERENCES}
    assert set(get_args(SlackName)) == set(SLACKS)
    known = {*PREFERENCES, *(f"slack_{name}" for name in SLACKS)}
    assert set(KINDS) == known
    assert {kind.term for kind in KINDS.values()} == set(ROW_TERMS)
    assert {name for name, kind in KINDS.items() if not kind.value} == {"any"}
    assert set().union(*(METHODS.traits(name).preferences for name in METHODS)) == known
