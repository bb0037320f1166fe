"""Methods describe themselves: one list, and everything else follows from it."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import cover
from toy import Toy

import quadsense
from quadsense.cli import cli
from quadsense.methods import METHODS, Traits, register
from quadsense.methods.traits import ANSWERED, STATED, missing_traits
from quadsense.query.plan import Shape, make_plan

ROOT = Path(__file__).resolve().parents[2]

SHAPES = [
    Shape(m, n, complex=complex_, sparse=sparse, copied=sparse)
    for (m, n), complex_, sparse in product(
        [(1, 1), (7, 3), (40, 500), (500, 40), (90, 12)], (False, True), (False, True)
    )
]


def options():
    """Every question that `solve` accepts, as far as the choice of a method goes."""
    for psd, one_sided, target, orthonormal in product((False, True), repeat=4):
        yield {"psd": psd, "one_sided": one_sided, "target": target, "orthonormal": orthonormal}
    yield {"psd": True, "rank": 2}
    yield {"psd": True, "rank": 0, "orthonormal": True}


@pytest.fixture
def toy():
    """The toy, registered for one test."""
    yield register(Toy)
    METHODS._registered.clear()


@pytest.mark.parametrize("name", METHODS)
def test_no_trait_is_missing(name):
    kind, light = METHODS[name], METHODS.traits(name)
    assert missing_traits(kind) == missing_traits(light) == []
    assert kind.name == light.name == name
    assert issubclass(kind, light) and issubclass(light, Traits)
    assert kind.summary and "\n" not in kind.summary and len(kind.summary) <= 80
    assert set(kind.hands_over) <= set(METHODS)
    for entry in fields(kind.options):
        assert entry.metadata["help"], entry.name
    kind.options().check(1)  # the defaults make sense


@pytest.mark.parametrize(("name", "shape"), cover(METHODS, SHAPES, each=5))
def test_costs_are_numbers_for_every_shape(name, shape):
    kind = METHODS.traits(name)
    assert kind.coordinates(shape) in ("measurement", "matrix", "factor")
    plan = make_plan(shape, name)
    assert plan.methods == (name,) and plan.memory > 0
    work = kind.work(shape)
    assert all(np.isfinite(each) and each >= 0.0 for each in work)
    assert (plan.seconds is None) == (not work.known)


@pytest.mark.parametrize("trait", [*STATED, *ANSWERED])
def test_a_missing_trait_is_named(trait):
    held = {key: value for key, value in vars(Toy).items() if key != trait}
    half = type("Half", Toy.__bases__, held)
    assert missing_traits(half) == [trait]
    with pytest.raises(ValueError, match=f"Half is no method yet: it lacks .*{trait}"):
        register(half)
    assert "half" not in METHODS and "toy" not in METHODS


def test_a_method_without_its_functions_or_with_a_taken_name_is_refused():
    held = {key: value for key, value in vars(Toy).items() if key != "advance"}
    with pytest.raises(ValueError, match=r"it lacks advance\(\)"):
        register(type("Half", Toy.__bases__, held))
    with pytest.raises(ValueError, match="there is a method 'cg' already"):
        register(type("Other", (Toy,), {"name": "cg"}))
    with pytest.raises(ValueError, match="it lacks cones among symmetric, psd, rank"):
        register(type("Other", (Toy,), {"cones": frozenset({"cone"})}))
    with pytest.raises(ValueError, match="an option 'gap'"):
        register(type("Other", (Toy,), {"without_tolerance": True}))


@pytest.mark.parametrize("option", list(options()), ids=str)
def test_auto_begins_with_exactly_one_method_and_it_can_do_what_is_asked(option):
    shape = Shape(m=30, n=10, **option)
    suited = [name for name in METHODS if METHODS.traits(name).suits(shape) is not None]
    assert len(suited) == 1
    plan = make_plan(shape)
    assert plan.methods == (suited[0], *METHODS.traits(suited[0]).followers(shape))
    assert all(METHODS.traits(name).serves(shape) for name in plan.methods)
    assert plan.reasons[0] == METHODS.traits(suited[0]).suits(shape)


def test_knowing_all_methods_imports_none_of_their_mathematics():
    program = (
        "import sys; from quadsense.query.plan import Shape, make_plan\n"
        "from quadsense.methods import *\n"
        "[METHODS.traits(name) for name in METHODS]; make_plan(Shape(m=30, n=10))\n"
        "light = ('__init__', 'base', 'options', 'shape', 'traits')\n"
        "found = [k.split('.') for k in sys.modules if k.startswith('quadsense.methods.')]\n"
        "heavy = [k for k in found if len(k) == 4 and k[3] not in light]\n"
        "assert found and not heavy, heavy\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# --- a method in one file ----------------------------------------------------------------------


def test_a_toy_method_is_sixty_lines():
    assert len((ROOT / "tests" / "toy.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_a_registered_method_solves(toy):
    p = quadsense.datasets.gaussian(6, 15, seed=0)
    result = quadsense.solve(p.U, p.b, delta=1e-3, method="toy", relaxation=1.2)
    assert result.status == "met" and result.plan["method"] == "toy" and result.n_iter > 1
    assert result.certificate.verify(p.U, p.b)
    slower = quadsense.solve(p.U, p.b, delta=1e-3, method="toy", relaxation=0.3)
    assert slower.status == "met" and slower.n_iter > result.n_iter


def test_a_registered_method_is_planned_for(toy):
    plan = make_plan(Shape(m=15, n=6), "toy")
    assert plan.methods == ("toy",) and plan.coordinates == "matrix" and plan.gram == "none"
    assert plan.seconds > 0.0 and plan.threads == {"toy": "one"}
    assert plan.memory >= 3 * 8 * 36


def test_auto_takes_a_registered_method_where_it_says_so():
    shape = Shape(m=15, n=6)
    before = make_plan(shape)
    kind = type(
        "Eager",
        (Toy,),
        {
            "suits": classmethod(lambda cls, shape: "six is enough" if shape.n == 6 else None),
            "hands_over": ("minimax",),
        },
    )
    register(kind)
    try:
        plan = make_plan(shape)
        p = quadsense.datasets.gaussian(6, 15, seed=0)
        result = quadsense.solve(p.U, p.b, delta=1e-3)
        other = make_plan(Shape(m=15, n=7))
    finally:
        METHODS._registered.clear()
    assert plan.methods == ("toy", "minimax") and plan.reasons[0] == "six is enough"
    assert result.status == "met" and result.plan["method"] == "toy"
    assert other.methods == before.methods == make_plan(shape).methods == ("cg", "minimax")


def test_what_a_registered_method_cannot_do_is_refused(toy):
    p = quadsense.datasets.gaussian(6, 15, seed=0)
    for option, words in (
        (
            {"psd": True, "delta": 0.1},
            "'toy' cannot keep A positive semidefinite; 'psd' and 'conic' and 'least_squares' and "
            "'consensus' can",
        ),
        (
            {},
            "'toy' cannot run without a delta; 'minimax' and 'psd' and 'low_rank' and 'conic' and "
            "'least_squares' and 'consensus' can",
        ),
        ({"delta": 0.1, "gap": 0.1}, "method 'toy' takes no 'gap'"),
        ({"delta": 0.1, "relaxation": 3.0}, "relaxation must lie between 0 and 2"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            quadsense.solve(p.U, p.b, method="toy", **option)
    with pytest.raises(ValueError, match="method 'cg' takes no 'relaxation'; toy does"):
        quadsense.solve(p.U, p.b, method="cg", delta=0.1, relaxation=1.0)


def test_the_command_knows_a_registered_method(toy, tmp_path):
    shown = re.sub(r"\s+", " ", CliRunner().invoke(cli, ["solve", "--help"]).output)
    assert f"toy {Toy.summary}" in shown and "consensus|toy]" in shown
    assert "--relaxation FLOAT toy: share of the way" in shown
    path = str(tmp_path / "data.npz")
    runner = CliRunner()
    runner.invoke(cli, ["generate", "--n", "6", "--m", "15", "-o", path])
    command = ["solve", path, "--delta", "0.01", "--method", "toy", "--relaxation", "1.2", "--json"]
    done = runner.invoke(cli, command, standalone_mode=False)
    assert json.loads(done.output)["plan"]["method"] == "toy"


def test_without_it_the_method_is_unknown():
    with pytest.raises(ValueError, match="unknown method 'toy': the methods are auto, closed_form"):
        quadsense.solve(np.eye(2), [1.0, 1.0], delta=0.1, method="toy")
    with pytest.raises(TypeError, match="relaxation"):
        quadsense.solve(np.eye(2), [1.0, 1.0], delta=0.1, relaxation=1.0)


# --- what derives from the list ----------------------------------------------------------------


def test_dual_is_no_method_any_more():
    with pytest.raises(
        ValueError, match=r"unknown method 'dual': the methods are .* psd, low_rank"
    ):
        quadsense.solve(np.eye(2), [1.0, 1.0], delta=0.1, method="dual")


def test_the_command_lists_every_method_and_every_option():
    shown = re.sub(r"\s+", " ", CliRunner().invoke(cli, ["solve", "--help"]).output)
    for name in METHODS:
        kind = METHODS.traits(name)
        assert f"{name} {kind.summary}" in shown
        for entry in fields(kind.options):
            assert f"--{entry.name.replace('_', '-')} " in shown
    assert (
        "gd, sgd: step x lam" in shown
        and "minimax, psd, conic, least_squares, consensus: relative gap" in shown
    )


def test_the_docstring_of_solve_lists_the_methods_and_their_options():
    listed = re.search(r"method : \{(.*)\}", quadsense.solve.__doc__)[1]
    assert [json.loads(name) for name in listed.split(", ")] == ["auto", *METHODS]
    text = quadsense.solve.__doc__.split("**options")[1].split("Returns")[0]
    for name in METHODS:
        for option in METHODS.traits(name).options.names():
            assert option == "schedule" or f"`{option}`" in text, option


def methods_table() -> str:
    """What the methods say of themselves, as a table in Markdown: for the docs."""
    header = ["method", "for", "A is", "one-sided", "no delta", "proves none fits", "options"]
    names = {"symmetric": "symmetric", "psd": "semidefinite", "rank": "of low rank"}
    lines = [header, ["---"] * len(header)]
    for name in METHODS:
        kind = METHODS.traits(name)
        able = [kind.one_sided, kind.without_tolerance, kind.proves]
        options = ", ".join(f"`{option}`" for option in kind.options.names())
        lines.append(
            [
                f"`{name}`",
                kind.summary,
                ", ".join(names[cone] for cone in sorted(kind.cones)),
                *("yes" if yes else "no" for yes in able),
                options or "none",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def test_the_table_of_the_docs_is_what_the_methods_say():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert methods_table() in page


@pytest.mark.parametrize(("old", "new"), [("fista", "least_squares"), ("factored", "low_rank")])
def test_former_names_of_methods_work_with_a_warning(old, new):
    p = quadsense.datasets.gaussian(n=3, m=12, seed=0)
    given = {"rank": 2} if new == "low_rank" else {"ridge": 0}
    with pytest.warns(FutureWarning, match=f"write method='{new}'"):
        former = quadsense.solve(p.U, p.b, delta=0.1, method=old, **given)
    now = quadsense.solve(p.U, p.b, delta=0.1, method=new, **given)
    assert former.plan["methods"] == now.plan["methods"] == [new]
    np.testing.assert_array_equal(former.A, now.A)
