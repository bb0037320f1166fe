"""Whole states: written down, read in another process and taken up, a run goes on bit for bit."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from states import cases, load_state, save_state, started, strides

import quadsense
from quadsense.core.records import changed
from quadsense.files.codec import decode, encode
from quadsense.methods import METHODS

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[1]


def same(one, two):
    """Whether two values are the same, bit for bit and type for type."""
    (arrays, plain), (others, other) = encode(one), encode(two)
    if plain != other and repr(plain) != repr(other):  # NaN is not equal to itself
        return False
    return arrays.keys() == others.keys() and all(
        a.dtype == others[name].dtype
        and a.shape == others[name].shape
        and a.tobytes() == others[name].tobytes()
        for name, a in arrays.items()
    )


def test_every_method_has_cases():
    held = {case[0] for case in cases().values()}
    assert held == {*METHODS, "bisection"}


@pytest.fixture(scope="module")
def taken_up(tmp_path_factory):
    """Every case: k strides, written, read in a new process, k strides on, written again."""
    folder = tmp_path_factory.mktemp("states")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from states import cases, load_state, save_state, started, strides\n"
        "for i, (name, (_, _, steps, count)) in enumerate(cases().items()):\n"
        "    solver, program, _ = started(name)\n"
        "    state = load_state(f'{sys.argv[2]}/{i}.npz')\n"
        "    state = strides(solver, program, state, steps, count)\n"
        "    save_state(f'{sys.argv[2]}/{i}-on.npz', state)\n"
    )
    whole = {}
    for i, (name, (_, _, steps, count)) in enumerate(cases().items()):
        solver, program, state = started(name)
        half = strides(solver, program, state, steps, count)
        save_state(folder / f"{i}.npz", half)
        whole[name] = half, strides(solver, program, half, steps, count), folder / f"{i}-on.npz"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, "-c", code, str(HERE), str(folder)], check=True, env=environment
    )
    return whole


@pytest.mark.parametrize("name", cases())
def test_a_run_taken_up_in_a_new_process_goes_on_bit_for_bit(taken_up, name):
    half, through, path = taken_up[name]
    assert through.iteration > half.iteration or name.startswith("closed_form")
    assert same(load_state(path), through)


def test_the_cases_reach_every_stage(taken_up):
    """What a state is of, by what is in it."""
    kinds = {name: repr(encode(half)[1]) for name, (half, _, _) in taken_up.items()}
    for kind in ("real", "complex"):
        for name, what in (
            ("minimax", "'name': 'FAST'"),
            ("minimax kernel", "'name': 'KERNEL'"),
            ("minimax many rows", "minimax.growing"),
            ("psd symmetric", "SymmetricState"),
            ("psd nearest", "NearestState"),
            ("psd projected", "ProjectedState"),
            ("psd interior", "RatioState"),
            ("psd no delta", "BisectionState"),
            ("factored restarts", "'name': 'LIFT'"),
            ("least_squares", "'name': 'DESCENT'"),
            ("least_squares ends", "ConsensusState"),
            ("least_squares no cone", "'name': 'DIRECT'"),
            ("least_squares misses", "MissesState"),
        ):
            assert what in kinds[f"{name} {kind}"], name


def test_strides_leave_the_state_they_got_alone():
    for name, (_, _, steps, count) in cases().items():
        solver, program, state = started(name)
        arrays, plain = encode(state)
        before = {key: values.copy() for key, values in arrays.items()}
        strides(solver, program, state, steps, count)
        after, then = encode(state)
        assert repr(plain) == repr(then), name
        for key, values in before.items():
            assert values.tobytes() == after[key].tobytes(), name


@pytest.mark.parametrize("name", ["cg", "low_rank"])
def test_a_changed_record_is_a_replaced_one_and_takes_no_new_names(name):
    _, _, state = started(next(each for each in cases() if each.startswith(name)))
    before = state.iteration
    other = changed(state, iteration=before + 7)
    assert same(other, replace(state, iteration=before + 7))
    assert state.iteration == before
    with pytest.raises(AssertionError):
        changed(state, iterations=1)


def test_the_same_program_and_start_come_of_the_same_problem():
    for name in cases():
        (_, _, one), (_, _, two) = started(name), started(name)
        assert same(one, two), name


def test_the_codec_keeps_bits_types_and_memory_order(tmp_path):
    value = (
        np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.float32(0.1), 0.1, -0.0, float("inf"),
        None, True, 2**127 + 1, "text", [1, (2,)], {"a": np.array([1 + 2j])}, quadsense.Status.MET,
        np.empty((0, 3), np.float32),
    )  # fmt: skip
    save_state(tmp_path / "s.npz", value)
    found = load_state(tmp_path / "s.npz")
    assert same(found, value)
    assert found[0].flags.f_contiguous
    assert not found[0].flags.c_contiguous
    assert type(found[1]) is np.float32
    assert str(found[3]) == "-0.0"
    assert found[-2] is quadsense.Status.MET


def test_an_array_that_is_held_twice_is_written_once():
    x = np.ones(3)
    arrays, plain = encode((x, [x]))
    assert len(arrays) == 1
    assert same(decode(arrays, plain), (x, [x]))


@dataclass
class Foreign:
    """Not of the package."""

    x: int


@pytest.mark.parametrize("value", [Foreign(1), object(), np.array([None]), {1: 2}, {1, 2}])
def test_the_codec_refuses_what_it_does_not_know(value):
    with pytest.raises(TypeError, match="state"):
        encode(value)


@pytest.mark.parametrize(
    "plain",
    [
        {"kind": "os:system", "fields": {"command": "false"}},
        {"kind": "quadsense.solve:solve", "fields": {}},
        {"kind": "quadsense.stages.path:Watch", "fields": {}},
        {"kind": "quadsense.methods.traits:Options", "fields": {"nothing": 1}},
        {"kind": "quadsense.no_such_module:State", "fields": {}},
        {"enum": "quadsense.result.result:Status", "name": "__class__"},
        {"array": "a9"},
        {"wrong": "a0"},
        [1, 2],
        {"tuple": 3},
    ],
)
def test_a_damaged_or_hostile_state_is_refused_in_one_sentence(plain):
    with pytest.raises(ValueError, match="state"):
        decode({}, plain)
