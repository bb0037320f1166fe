"""The same request gives the same A, whatever is known of the machine and however busy it is."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import gaussian_rows, readings

import quadsense

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "determinism.py"


def problem(n, m, noise=0.1, complex_=False):
    rng = np.random.default_rng(n + m)
    U = gaussian_rows(rng, m, n, complex_)
    X = gaussian_rows(rng, n, n, complex_)
    return U, readings(U, X @ X.conj().T / n) + noise * rng.uniform(-1.0, 1.0, m)


U, B = problem(10, 90)

REQUESTS = {
    "few rows": (*problem(12, 40), {"delta": 0.1}),
    "many rows": (*problem(10, 200), {"delta": 0.1}),
    "psd, few rows": (*problem(8, 30), {"delta": 0.1, "psd": True}),
    "psd, many rows": (*problem(8, 100), {"delta": 0.1, "psd": True}),
    "complex": (*problem(6, 60, complex_=True), {"delta": 0.1}),
    "any": (*problem(10, 200), {"delta": 0.1, "prefer": "any"}),
    "one-sided": (U, None, {"bounds": (B - 0.1, np.inf)}),
    "no tolerance": (U, B, {}),
    "slack": (U, B + np.linspace(-3.0, 3.0, 90), {"delta": 0.1, "slack": "sum"}),
    "sparse": (sp.csr_array(np.eye(90, 10) + np.eye(90, 10, -40)), np.ones(90), {"delta": 0.1}),
    "rank": (U, (U @ np.arange(10.0)) ** 2, {"delta": 0.1, "rank": 1, "rng": 0}),
}


def solved(name, **more):
    rows, b, named = REQUESTS[name]
    return quadsense.solve(rows, b, **named, **more)


def same(one, other):
    """Whether what was chosen and what came of it are the same, bit for bit."""
    chosen = [
        (result.status, result.prefer, result.plan["method"], result.plan["methods"],
         result.plan["reasons"][0], result.n_iter, result.A.tobytes())
        for result in (one, other)
    ]  # fmt: skip
    return chosen[0] == chosen[1]


@pytest.mark.parametrize("name", REQUESTS)
def test_no_rates_change_what_is_returned(name, tmp_path, monkeypatch):
    results = []
    for flops in (None, 1e6, 1e15):
        folder = tmp_path / str(flops)
        folder.mkdir()
        if flops is not None:
            (folder / "rates.json").write_text(json.dumps({"flops": flops, "bytes": flops}))
        monkeypatch.setenv("QUADSENSE_CACHE", str(folder))
        results.append(solved(name))
    assert same(results[0], results[1]) and same(results[0], results[2])


@pytest.mark.parametrize("name", REQUESTS)
def test_no_memory_limit_changes_what_is_returned(name):
    whole = solved(name)
    assert same(whole, solved(name, memory_limit=1.001 * whole.plan["memory"]))


@pytest.mark.parametrize("name", REQUESTS)
def test_with_less_memory_a_request_is_refused_or_answered_alike(name):
    whole, refused = solved(name), 0
    for share in (0.9, 0.5, 0.01):
        try:
            result = solved(name, memory_limit=share * whole.plan["memory"])
        except MemoryError:
            refused += 1
            continue
        assert same(whole, result)
    assert refused >= 1


@pytest.mark.slow
def test_no_other_process_changes_what_is_returned():
    command = [sys.executable, str(BENCHMARK), "--only", "busy", "threads"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("psd", [False, True])
def test_inspect_prints_the_sentence_of_the_plan(psd, tmp_path, run):
    rows, b, _ = REQUESTS["few rows"]
    np.savez(tmp_path / "d.npz", U=rows, b=b, delta=0.1)
    why = quadsense.solve(rows, b, delta=0.1, psd=psd).plan["reasons"][0]
    code, out, _ = run("inspect", tmp_path / "d.npz", *(["--psd"] if psd else []))
    assert code == 0 and why in out


def test_contradictory_rows_far_longer_than_they_are_many_need_no_matrix_of_their_order():
    rng = np.random.default_rng(0)
    V = rng.standard_normal((30, 1500))
    V[1] = V[2] = V[0]
    b = readings(V, np.eye(1500)) + np.r_[0.0, 0.0, 1.9, np.zeros(27)]
    asked = {"delta": 1.0, "memory_limit": "100 MB"}
    assert quadsense.solve(V, b, **asked).status == "met"
    assert quadsense.solve(V, b, **asked | {"delta": 0.5}).status == "infeasible"


@pytest.mark.parametrize(("n", "m"), [(20, 150), (20, 400), (40, 500)])
@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_a_ridge_without_a_tolerance_is_kernel_ridge_regression_to_eight_digits(n, m, ridge):
    rng = np.random.default_rng(n + m)
    U = rng.standard_normal((m, n))
    b = np.sum(U**2, axis=1) + rng.standard_normal(m)
    c = np.linalg.solve((U @ U.T) ** 2 + ridge * np.eye(m), b)
    expected = (U.T * c) @ U
    result = quadsense.solve(U, b, ridge=ridge)
    assert result.status == "optimal" and result.optimal
    assert np.linalg.norm(result.A - expected) <= 1e-8 * np.linalg.norm(expected)
