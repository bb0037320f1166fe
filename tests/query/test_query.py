"""Each parameter is declared once: the public signatures say what `Query` declares."""

import dataclasses
import inspect

import click
import numpy as np
import pytest

import quadsense
from quadsense.cli import cli
from quadsense.query.query import DEFAULTS, PARAMETERS, Query

FIELDS = {each.name: each for each in dataclasses.fields(Query)}


def parameters(call):
    """Those of a function that are named, by name."""
    found = inspect.signature(call).parameters
    return {name: each for name, each in found.items() if each.kind is not each.VAR_KEYWORD}


def test_solve_takes_what_is_declared_and_nothing_else():
    assert parameters(quadsense.solve).keys() == {"data", *PARAMETERS}


@pytest.mark.parametrize("call", [quadsense.solve, quadsense.to_cvxpy, quadsense.interval])
def test_signatures_have_the_declared_types_and_defaults(call):
    named = {name: each for name, each in parameters(call).items() if name not in ("C", "gap")}
    assert len(named) > 10
    for name, each in named.items():
        declared = FIELDS[name]
        written = str(declared.type).replace(" | None", "") if name == "data" else declared.type
        assert each.annotation == written, name
        if name != "data":
            assert each.default == declared.default, name


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_the_documentation_of_solve_describes_each_parameter(name):
    assert f"    {name} : " in quadsense.solve.__doc__


def test_options_of_the_command_have_the_declared_help_and_defaults():
    command = cli.commands["solve"]
    given = {each.name: each for each in command.get_params(click.Context(command))}
    parsed = command.make_context("solve", ["data.npz"]).params
    shared = given.keys() & PARAMETERS.keys() - {"schedule"}
    assert len(shared) > 15
    for name in shared:
        assert given[name].help == PARAMETERS[name].help
        assert (parsed[name] or None) == (DEFAULTS[name] or None), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("psd", "yes"), ("rank", 0), ("prefer", "best"), ("ridge", -1.0), ("slack", "any"),
        ("allow_violations", 9), ("method", "simplex"), ("max_iter", 1.5), ("time_limit", -1.0),
        ("callback", 3), ("progress", 2),
    ],
)  # fmt: skip
def test_a_declared_check_names_the_parameter_and_the_value(name, value):
    U = np.random.default_rng(0).standard_normal((9, 3))
    with pytest.raises(ValueError, match=name) as error:
        quadsense.solve(U, np.ones(9), delta=1.0, **{name: value})
    assert repr(value) in str(error.value)
    assert PARAMETERS[name].check is not None


def test_every_part_is_kept_where_it_belongs():
    data = quadsense.Measurements(np.eye(3), np.ones(3), delta=0.1)
    query = Query(data, psd=True, time_limit=9.0, progress=True, checkpoint_every=1.0)
    assert query.recorded(data) == {
        "delta": 0.1, "psd": True, "time_limit": 9.0, "arrays": ["b"]
    }  # fmt: skip
    assert query.identity(data).keys().isdisjoint({"time_limit", "progress", "checkpoint_every"})
    assert query.identity(data)["psd"] is True
