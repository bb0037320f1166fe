"""Every test has an assertion that no condition can leave out; all prose is plain English."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))

BUILT = tuple(ROOT / "docs" / name for name in ("_build", "gallery", "api/generated"))
"""What `make docs` leaves behind: made of other files, and maybe of earlier ones."""

CHECKS = ("assert", "raises", "warns", "fail")
"""Beginnings of the names of what fails a test; other functions may check as well."""


def checks(node):
    """Assertions, and calls of what is named like one, anywhere below a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assert):
            yield each
        elif isinstance(each, ast.Call):
            name = getattr(each.func, "attr", getattr(each.func, "id", ""))
            if name.startswith(CHECKS):
                yield each


def conditional_only(source):
    """Return the names of test functions whose every assertion is inside an ``if``."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
            branches = [node for node in ast.walk(function) if isinstance(node, ast.If)]
            every = set(checks(function)) if branches else set()
            if every and every == {check for branch in branches for check in checks(branch)}:
                found.append(function.name)
    return found


@pytest.mark.slow
def test_every_test_asserts_something_outside_an_if():
    assert {path.name: conditional_only(path.read_text("utf-8")) for path in FILES} == {
        path.name: [] for path in FILES
    }


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if x:\n        assert x", True),
        ("for x in y:\n        if x:\n            assert x\n        else:\n            pass", True),
        ("if x:\n        np.testing.assert_allclose(x, 1)", True),
        ("assert x", False),
        ("if x:\n        assert x\n    assert not x or y", False),
        ("for x in y:\n        assert x", False),
    ],
)
def test_an_assertion_that_may_be_left_out_is_noticed(body, found):
    assert bool(conditional_only(f"def test_a(x, y):\n    {body}\n")) == found


# --- plain English -----------------------------------------------------------------------------

PROSE = (
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "src/**/*.py",
    "src/**/*.js", "docs/**/*.md", "docs/**/*.rst", "docs/**/*.py", "tests/*.py", "benchmarks/*.py",
)  # fmt: skip
"""Files whose text is checked: of Python, comments and strings."""

PHRASES = r"""
    \b(?:nobody | whoever | so\s+many | but\s+for | dear\s+to | none\s+of\s+its\s+business
    | not\s+to\s+be\s+had | less\s+the | (?<!`)beside(?!`|\s:))\b
"""
"""Phrases that have a plainer form; ``beside`` may still be the name of an argument."""

COUNTED = (
    r"(?:row|vector|number|entry|value|reading|column|task|byte|bit|step|pass|product|sample|flop"
    r"|operation|line|label|setting|file|array|second|sweep|stride|part|matrix|weight|tolerance|delta|probe"
    r"|interval|message|iteration|solve|call|name|format|picture|subcommand|algorithm|chunk|block"
    r"|position|candidate|wait|thread|core|worker|point|term|factor|eigendecomposition|evaluation)"
)
MANY = (
    rf"(?!factor|solve|call){COUNTED}e?s|entries|matrices|[kMGT]i?B(?:/s)?|once|twice|one|two"
    r"|three|four|ten|many|\d+"
)
EACH = (
    r"(?:row|file|reading|measurement|step|method|worker|part|problem|setting|line|share|probe"
    r"|column|iteration|solve|call|task|block|chunk|shard|process|core|thread|product|run|matrix"
    r"|vector|entry|number|second|minute|stage|stride|sweep|seed|case|axis|pixel|interval|round"
    r"|machine|node|pair|mask|sample|candidate|shot|unknown|batch|fold|trial|link|evaluation|attempt)"
)
GAP = r"(?:[ ]+|[ ]*\n[ ]*)"
BEFORE = rf"\b(?:an?|one){GAP}{COUNTED}|(?<!-)\b(?:{MANY})|O\([^()]*\)`*"
DISTRIBUTIVE = rf"(?:{BEFORE}){GAP}an?{GAP}{EACH}\b(?![ ]{{2}})"
"""The distributive "a", as in "one a row" and "a task a share", for which "per" is plain."""

BANNED = re.compile(rf"{PHRASES} | {DISTRIBUTIVE}", re.VERBOSE | re.IGNORECASE)

INVENTED = re.compile(
    r"\b(?:roads? | wish(?:e[sd]|ing)? | grains? | crews? | stillness | throws? | seldom | hears"
    r"| anybody | lean(?:s|ed|ing)?\s+on )\b",
    re.VERBOSE | re.IGNORECASE,
)
"""Words that this project once used in senses of its own; tests and benchmarks are not read."""


def prose_of(name, text):
    """Yield line numbers and pieces of prose; neighboring comments are one piece."""
    if not name.endswith(".py"):
        yield 1, text
        return
    comment, begin, last = "", 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield begin, comment
                comment, begin = "", token.start[0]
            comment, last = f"{comment}{token.string.lstrip('# ')}\n", token.start[0]
        elif token.type in {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}:
            yield token.start[0], re.sub(r"\{[^{}\n]*\}", "{}", token.string)
    yield begin, comment


def banned_in(name, text):
    """Return what is not plain English in a file, each with its line."""
    read = [BANNED] if name.startswith(("tests", "benchmarks")) else [BANNED, INVENTED]
    whole = re.sub(r"\n\s*# ?", "\n", text)
    read = [each for each in read if each.search(whole)]  # tokenizing takes its time
    return [
        f"{name}:{line + piece.count(chr(10), 0, found.start())}: {found[0]}"
        for line, piece in (prose_of(name, text) if read else ())
        for each in read
        for found in each.finditer(piece)
    ]


@pytest.mark.parametrize("pattern", PROSE)
def test_prose_has_no_banned_phrase(pattern):
    files = [
        path
        for path in sorted(ROOT.glob(pattern))
        if path != Path(__file__) and not any(map(path.is_relative_to, BUILT))
    ]
    found = [
        each
        for path in files
        for each in banned_in(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    assert found == [], "\n".join(found)
    assert files


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Nobody reads this."""', ["a.py:1: Nobody"]),
        ("x = 1\n# how many there are: so\n# many", ["a.py:2: so\nmany"]),
        ("x = f'{x} beside U'", ["a.py:1: beside"]),
        ("# one a row", ["a.py:1: one a row"]),
        ("# a task a share", ["a.py:1: a task a share"]),
        ("# O(n) a step, 16 bytes a\n# row", ["a.py:1: O(n) a step", "a.py:1: bytes a\nrow"]),
        ("nobody = beside = road = 1", []),
        ("# the road leans\n# on it", ["a.py:1: road", "a.py:1: leans\non"]),
        ("# `beside`, one per row, times a reading of it, and in a row, a number is 0", []),
    ],
)
def test_a_banned_phrase_is_found_in_comments_and_strings_alone(text, found):
    assert banned_in("a.py", text) == found
