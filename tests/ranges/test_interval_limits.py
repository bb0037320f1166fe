"""`interval` keeps the limits of the one loop: time, Ctrl-C, a callback and a bar."""

import itertools
import math
import signal
import time

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import gaussian_rows

import quadsense
from quadsense import Measurements
from quadsense.cli import cli

ASKED = ["trace", (0, 1), (1, 1)]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    U, X = gaussian_rows(rng, 150, 12, False), gaussian_rows(rng, 12, 2, False)
    b = np.sum((U @ X) ** 2, axis=1) + 0.05 * rng.uniform(-1.0, 1.0, 150)
    return Measurements(U, b, delta=0.05)


@pytest.fixture
def ticking(monkeypatch):
    """A clock that is a second later at each look; returns how late it has become."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    return ticks


def holds(interval, exact, data):
    """Whether an interval contains the exact one, and all that it states is true."""
    assert interval.lower <= exact.lower_found and interval.upper >= exact.upper_found
    return interval.verify(data)


@pytest.mark.parametrize("psd", [False, True])
def test_without_time_both_ends_are_unknown(data, psd):
    found = quadsense.interval(data, C=ASKED, psd=psd, time_limit=0.0)
    assert [tuple(each) for each in found] == [(-math.inf, math.inf)] * 3
    assert all(each.lower_dual is None and math.isnan(each.lower_found) for each in found)
    assert all(each.verify(data) for each in found)


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
def test_a_time_limit_is_kept_and_what_is_stated_is_true(data, psd, share, ticking):
    exact = quadsense.interval(data, C=ASKED, psd=psd, time_limit=1e9)
    begun = next(ticking)
    found = quadsense.interval(data, C=ASKED, psd=psd, time_limit=share * begun)
    used = next(ticking) - begun
    assert used < share * begun + 60.0  # looks at the clock while what was found is put together
    assert used < begun
    assert math.isinf(found[-1].width) and math.isfinite(exact[-1].width)
    assert all(holds(one, other, data) for one, other in zip(found, exact, strict=True))


@pytest.mark.parametrize("psd", [False, True])
def test_a_callback_sees_every_step_and_changes_nothing_that_is_stated(data, psd):
    seen = []
    found = quadsense.interval(data, C=ASKED, psd=psd, callback=seen.append)
    steps = [each.n_iter for each in seen]
    assert steps.count(1) >= len(ASKED) and max(steps) > 5
    assert all(before + 1 == after or after == 1 for before, after in itertools.pairwise(steps))
    assert all(each.matrix.shape == (12, 12) and each.max_ratio >= 0.0 for each in seen)
    plain = quadsense.interval(data, C=ASKED, psd=psd)
    for one, other in zip(found, plain, strict=True):
        assert one.verify(data)
        assert np.allclose(tuple(one), tuple(other), atol=0.03 * other.width)


def test_a_callback_sees_small_problems_too():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((12, 3))
    seen = []
    found = quadsense.interval(U, np.ones(12), delta=1.0, callback=seen.append)
    assert len(seen) > 3
    assert found.verify(U, np.ones(12), delta=1.0)


def test_a_callback_ends_the_search_for_one_C(data):
    def stop(at):
        raise StopIteration

    found = quadsense.interval(data, C=ASKED, callback=stop)
    exact = quadsense.interval(data, C=ASKED)
    assert all(holds(one, other, data) for one, other in zip(found, exact, strict=True))


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("count", [1, 5, 9])
def test_ctrl_c_gives_what_was_proved_so_far(data, psd, count):
    calls = itertools.count(1)

    def press(at):
        if next(calls) == count:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as error:
        quadsense.interval(data, C=ASKED, psd=psd, callback=press)
    found = error.value.result
    exact = quadsense.interval(data, C=ASKED, psd=psd)
    assert next(calls) == count + 1  # nothing was begun afterwards
    assert all(holds(one, other, data) for one, other in zip(found, exact, strict=True))
    assert tuple(found[-1]) == (-math.inf, math.inf)


def test_ctrl_c_before_one_interval_gives_that_interval(data):
    def press(at):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as error:
        quadsense.interval(data, C="trace", callback=press)
    assert isinstance(error.value.result, quadsense.Interval)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ranges_of_a_result_take_the_same_limits(data):
    result = quadsense.solve(data)
    seen = []
    exact = result.interval((0, 1), callback=seen.append)
    assert len(seen) > 3
    assert holds(result.interval((0, 1), time_limit=0.0), exact, data)


@pytest.mark.parametrize(
    ("name", "value"), [("time_limit", -1.0), ("callback", 3), ("progress", "yes")]
)
def test_limits_that_are_none_are_refused(data, name, value):
    with pytest.raises(ValueError, match=name):
        quadsense.interval(data, **{name: value})


def test_the_command_takes_a_time_limit(data, tmp_path):
    data.save(tmp_path / "data.npz")
    words = ["interval", str(tmp_path / "data.npz"), "trace", "--time-limit", "0"]
    answer = CliRunner().invoke(cli, words, standalone_mode=False)
    assert answer.return_value == 0
    assert "-inf" in answer.output


def test_the_command_prints_what_was_proved_until_ctrl_c(data, tmp_path, monkeypatch):
    data.save(tmp_path / "data.npz")
    interval, calls = quadsense.interval, itertools.count(1)

    def press(at):
        if next(calls) == 9:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(quadsense, "interval", lambda *a, **k: interval(*a, **k, callback=press))
    words = ["interval", str(tmp_path / "data.npz"), "trace", "0,1", "1,1"]
    answer = CliRunner().invoke(cli, words, standalone_mode=False)
    assert answer.return_value == 130
    lines = answer.output.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["trace", "0,1", "1,1"]
    assert lines[-1].split()[1:3] == ["-inf", "inf"] and "inf" not in lines[-3]
