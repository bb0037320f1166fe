"""What every test must have: an assertion that no condition can leave out."""

import ast
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("test_*.py"))

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
            every = set(checks(function))
            branches = [node for node in ast.walk(function) if isinstance(node, ast.If)]
            if every and every == {check for branch in branches for check in checks(branch)}:
                found.append(function.name)
    return found


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
