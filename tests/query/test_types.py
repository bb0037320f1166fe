"""What a type checker says of a user's program: right calls pass, wrong ones are refused."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import quadsense
from quadsense.methods import METHODS
from quadsense.methods.base import MethodOptions
from quadsense.typing import MethodName

PROGRAM = """
import fractions
from typing import Any, Callable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

import quadsense
from quadsense import Measurements, solve


class Tensor:
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.eye(3)


class Foreign:
    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> object:
        return None


class Operator:
    shape = (3, 3)

    def matvec(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return x


U = np.eye(3)
b = np.ones(3)
result = solve(U, b, delta=0.1)
listed: list[float] = [0.1, 0.2, 0.3]
whole: list[int] = [1, 2, 3]

# Accepted
solve(U, b)
solve(U, listed, delta=listed)
solve(U, whole, delta=1)
solve(U, (0.1, 0.2, 0.3), delta=np.float64(0.1))
solve(U, b, delta=np.float32(0.1), rtol=np.float64(0.1))
solve(U, b, delta=np.array(0.1))
solve(U.astype(np.float32), b.astype(np.int64), delta=b)
solve(U + 1j * U, b, conjugate=True)
solve([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0])
solve([[1, 2j], [3, 4]], [1, 2])
solve([b, b, b], b)
solve(sp.csr_array(U), b, delta=0.1)
solve(Tensor(), Tensor(), delta=Tensor())
solve(Foreign(), Foreign(), delta=Foreign())
solve(Measurements(U, b), delta=0.1)
solve(Measurements(U, b, delta=0.1))
solve(U, bounds=(0.0, b))
solve(U, bounds=([0.0, -np.inf, 0.0], np.inf))
solve(U, b, delta=0.1, method="sgd", batch_size=2, norm="exact", failure=0.1, rng=0)
solve(U, b, delta=0.1, method="gd", schedule="paper", lam=1.0, step=None)
solve(U, b, delta=0.1, method="minimax", gap=0.1)
solve(U, b, delta=0.1, rank=2, max_restarts=3)
solve(U, b, delta=0.1, rank="auto", psd=True)
solve(U, b, delta=0.1, rank=np.int64(1), allow_violations=np.int64(1))
solve(U, b, delta=0.1, start="zero")
solve(U, b, delta=0.1, start=U)
solve(U, b, delta=0.1, start=result)
solve(U, b, delta=0.1, start=result.matrix)
solve(U, b, delta=0.1, rng=np.random.default_rng(0), max_iter=3, time_limit=1)
solve(U, b, delta=0.1, callback=lambda state: print(state.n_iter, state.max_ratio))
quadsense.datasets.gaussian(3, 4, seed=np.random.default_rng(1))
quadsense.delta_from_sigma(0.1, m=5, dof=np.float64(3.0))
quadsense.bounds_from_counts(whole, shots=1000)
quadsense.bounds_from_counts(np.array([1, 2]), np.array([10, 10]), method="wilson")
solve(U, bounds=quadsense.bounds_from_averages(b, dof=100))
solve(U, b, rtol=quadsense.rtol_from_dof(100, m=3))
quadsense.estimate_sigma(U, b, weights=b).interval[0]
quadsense.estimate_sigma(Measurements(U, b)).sigma
quadsense.to_cvxpy(U, b, delta=0.1, psd=True, prefer="nearest", prior=U)
quadsense.solve_spectral(quadsense.SpectralOracle(U), U, accuracy=0.2, schedule="paper", c=0.1)

# Refused
solve(U, b, methd="auto")
solve(U, b, delt=0.1)
solve(U, b, delta="x")
solve(U, b, delta=["x", "y", "z"])
solve(U, b, delta=1j)
solve(U, b, delta=fractions.Fraction(1, 3))
solve(U, b, rtol="x")
solve(U, "b", delta=0.1)
solve(U, 1j * np.complex128(1), delta=[1j, 2j, 3j])
solve("U", b, delta=0.1)
solve([["a"]], [1.0])
solve(Operator(), b, delta=0.1)
solve(U, b, delta=0.1, rank="low")
solve(U, b, delta=0.1, rank=2.5)
solve(U, b, delta=0.1, schedule="papr")
solve(U, b, delta=0.1, schedule=None)
solve(U, b, delta=0.1, method="gdd")
solve(U, b, delta=0.1, method=None)
solve(U, b, delta=0.1, method=3)
solve(U, b, delta=0.1, psd="yes")
solve(U, b, delta=0.1, start="random")
solve(U, b, delta=0.1, method="sgd", batch_size=1.5)
solve(U, b, delta=0.1, method="sgd", norm="l2")
solve(U, b, delta=0.1, method="gd", lam="x")
solve(U, b, gap="small")
solve(U, b, delta=0.1, allow_violations=0.5)
solve(U, b, delta=0.1, max_iter=1.5)
solve(U, b, delta=0.1, time_limit="1")
solve(U, b, delta=0.1, rng="seed")
solve(U, b, delta=0.1, callback=3)
solve(U, bounds=(0.0, "x"))
solve(U, bounds=3)
quadsense.delta_from_sigma("x", m=5)
quadsense.bounds_from_counts("x", shots=10)
quadsense.bounds_from_counts(1, shots=10, method="wald")
quadsense.to_cvxpy(U, b, delta=0.1, method="cg")
quadsense.datasets.gaussian(3, 4, seed="seed")
quadsense.solve_spectral(quadsense.SpectralOracle(U), U, schedule="papr")
quadsense.solve_spectral(quadsense.SpectralOracle(U), U, accurcy=0.1)
"""


def refused_lines(program, tmp_path):
    """Lines of a program that ``mypy --strict`` refuses, with what it says."""
    pytest.importorskip("mypy")
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    source = Path(quadsense.__file__).resolve().parents[1]
    environment = dict(os.environ)
    if source.name != "site-packages":  # an editable install
        environment["MYPYPATH"] = str(source)
    command = [
        sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary",
        "--ignore-missing-imports", "--config-file=", f"--cache-dir={tmp_path}", str(path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said = [line.split(":", 2) for line in done.stdout.splitlines() if ": error:" in line]
    return {int(number): text for _, number, text in said}


@pytest.mark.slow
def test_mypy_refuses_wrong_calls_and_no_right_one(tmp_path):
    lines = PROGRAM.splitlines()
    boundary = lines.index("# Refused") + 1
    wrong = {i for i, line in enumerate(lines, 1) if i > boundary and line.strip()}
    assert len(wrong) > 30
    refused = refused_lines(PROGRAM, tmp_path)
    passed = [lines[i - 1] for i in sorted(wrong - set(refused))]
    assert not passed, "mypy accepts " + "; ".join(passed)
    extra = [f"{lines[i - 1]}: {refused[i]}" for i in sorted(set(refused) - wrong)]
    assert not extra, "mypy refuses " + "; ".join(extra)


def test_the_typed_options_are_those_of_the_methods():
    own = {}
    for name in METHODS:
        own |= get_type_hints(METHODS.traits(name).options)
    own.pop("schedule")  # a parameter of solve itself
    assert get_type_hints(MethodOptions) == own
    assert MethodOptions.__optional_keys__ == set(own)


def test_the_typed_methods_are_the_methods():
    assert get_args(MethodName) == ("auto", *METHODS)
