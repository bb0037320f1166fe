"""Ctrl-C and SIGTERM: loops stop, nothing is lost."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import quadsense
from quadsense import Status

PAPER = {"method": "gd", "schedule": "paper", "delta": 1e-6}


def _problem():
    rng = np.random.default_rng(0)
    U = np.vstack([np.eye(20), np.eye(20)])
    return U, np.concatenate([rng.random(20), rng.random(20)])  # a contradiction runs on


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_loop_of_solves_with_the_best_so_far(number):
    U, b = _problem()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    done = []

    def loop():
        for i in range(5):
            done.append(i)
            quadsense.solve(U, b, callback=lambda at: os.kill(os.getpid(), number), **PAPER)

    with pytest.raises(KeyboardInterrupt) as caught:
        loop()
    assert done == [0]
    result = caught.value.result
    assert result.status is Status.INTERRUPTED
    assert result.A.shape == (20, 20)
    assert "interrupted" in str(caught.value)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_after_the_verdict_is_not_swallowed_either():
    p = quadsense.datasets.gaussian(5, 10, seed=0)

    def press(at):
        if at.max_ratio <= 1.0:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        quadsense.solve(p.U, p.b, delta=0.01, method="gd", callback=press)
    assert caught.value.result.status is Status.MET
    assert caught.value.result.A.shape == (5, 5)


def test_psd_without_a_tolerance_keeps_its_result():
    rng = np.random.default_rng(0)
    p = quadsense.datasets.gaussian(12, 120, noise=0.5, seed=0)
    from quadsense.methods.conic import steps

    step, pressed = steps._step, []

    def press(*arguments, **named):
        if not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return step(*arguments, **named)

    steps._step = press
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            quadsense.solve(p.U, p.b + rng.standard_normal(120), psd=True, prefer="minimax")
    finally:
        steps._step = step
    assert caught.value.result.status is Status.INTERRUPTED
    assert caught.value.result.A.shape == (12, 12)


def test_a_callback_that_stops_the_run_raises_nothing():
    U, b = _problem()

    def stop(at):
        raise StopIteration

    assert quadsense.solve(U, b, callback=stop, **PAPER).status is Status.INTERRUPTED


@pytest.mark.slow
def test_sigterm_makes_the_command_write_the_best_so_far(tmp_path):
    U, b = _problem()
    np.savez(tmp_path / "d.npz", U=U, b=b)
    code = (
        "import os, signal, sys, quadsense; from quadsense import cli\n"
        "from quadsense.run import loop\n"
        "add = loop.Recorder.add\n"
        "def press(self, program, state):\n"
        "    if len(self.rows) == 3: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return add(self, program, state)\n"
        "loop.Recorder.add = press\n"
        "sys.argv = ['quadsense', 'solve', 'd.npz', '--delta', '1e-9', '--method', 'gd', "
        "'--schedule', 'paper', '-o', 'r.npz']\n"
        "cli.main()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 130, process.stderr
    assert quadsense.load_result(tmp_path / "r.npz").status is Status.INTERRUPTED
