"""The counts of `tests/structure.py` are what they should be, and none is above its goal."""

import ast
from pathlib import Path

import pytest
import structure

TEXT = '''
"""Not counted: 7."""
LIMIT = 3e-4 + 0.5 * 2 - True
def f(x):
    return isinstance(x, (int, DeviceArray)) or x[-1] == 17 or type(x) is Mixed
class Twice:
    def shown(self): ...
    def _hidden(self): ...
'''


def module(name, text=TEXT):
    path = structure.SOURCE / Path(*name.split(".")[1:]).with_suffix(".py")
    return structure.Module(name, path, ast.parse(text), text.count("\n"))


def test_literals_tests_of_type_and_classes_are_counted():
    one = module("quadsense.core.one")
    assert structure.literals(one) == 2
    assert len(list(structure.type_tests(one))) == 2
    assert len(list(structure.type_tests(module("quadsense.device.one")))) == 1
    assert structure.twice([one, module("quadsense.two")]) == ["Twice"]
    assert structure.twice([one]) == []
    assert structure.members([one], "Twice") == 1


def test_importers_are_counted_once_per_module():
    used = module("quadsense.core.used", "")
    often = "from quadsense.core.used import a, b\nfrom quadsense.core import used\n"
    first, second = (module(f"quadsense.{name}", often) for name in ("first", "second"))
    assert structure.single_importer([used, first]) == {"quadsense.core.used": "quadsense.first"}
    assert structure.single_importer([used, first, second]) == {}


@pytest.mark.slow
def test_no_count_is_above_its_goal():
    above = [what for what, count, goal in structure.table() if goal is not None and count > goal]
    assert not above, "python tests/structure.py --list names them"
