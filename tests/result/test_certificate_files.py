"""Certificates in files: written, accepted by both checkers, refused where they are not true."""

import ast
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import certificate_cases as cases
import certificate_rules as rules
import numpy as np
import pytest

import quadsense
import quadsense_check as checker
from quadsense import certificates

ROOT = Path(__file__).resolve().parents[2]
CHECKER = ROOT / "src" / "quadsense_check.py"

MAX_ORDER = 4
"""Order of A up to which the slow checker is asked too."""

EXAMPLE = {
    "format": "quadsense-certificate", "version": "1.0", "claim": "infeasible", "n": 2, "m": 3,
    "psd": True, "U": [1, 0, 0, 1, 1, 1], "b": [1, 1, 6], "delta": [0.25, 0.25, 0.25],
    "y": [2, 2, -1],
}  # fmt: skip
FIT = {
    "format": "quadsense-certificate", "version": "1.0", "claim": "met", "n": 2, "m": 3,
    "U": [1, 0, 0, 1, 1, 1], "lo": [1, None, 2], "hi": [1, 3, None],
    "A": {"entries": [1, 0.5, 0.5, 1]},
}  # fmt: skip

FORM = {"forms": [{"entries": [0, 1, 1, 0]}], "U": [1, 0, 0, 1]}


def agreed(held):
    """What both checkers say of a certificate."""
    text = json.dumps(held, allow_nan=False)
    found = checker.check(json.loads(text))[0]
    if held["n"] <= MAX_ORDER:
        assert rules.is_true(text) == found
    return found


def judged(text):
    """What the checker says of a text: None where it is malformed."""
    try:
        return checker.check(json.loads(text))[0]
    except (checker.Malformed, ValueError):
        return None


def of_many(seeds):
    return [(seed, name, held) for seed in seeds for name, held in cases.of_seed(seed)]


# --- accepted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, 9, 20, 37, 214, 279, 20002, 20009, 2000103])
def test_what_is_written_of_a_solve_is_true_by_both_checkers(seed):
    found = [(name, held) for name, held in cases.of_seed(seed) if held]
    assert found
    assert [agreed(held) for _, held in found] == [True] * len(found)


@pytest.mark.parametrize("allowed", [0, 1])
@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_what_is_written_of_a_contradiction_is_true_by_both_checkers(is_complex, psd, allowed):
    rng = np.random.default_rng([28, is_complex, psd])
    U = rng.standard_normal((8, 2)) + 1j * is_complex * rng.standard_normal((8, 2))
    U = U if is_complex else U.real
    b = rng.standard_normal(8) - 0.5
    result = quadsense.solve(U, b, delta=0.01, psd=psd, allow_violations=allowed)
    held = certificates.fields_of(result.certificate, None, False)
    assert held["claim"] == "infeasible"
    assert ("proofs" in held) == bool(allowed)
    assert agreed(held)


@pytest.mark.parametrize("trace", [None, 1.0])
def test_what_is_written_of_sums_over_rows_is_true_by_both_checkers(trace):
    rng = np.random.default_rng(29)
    U, W = rng.standard_normal((6, 3)), rng.standard_normal((8, 6))
    X = rng.standard_normal((3, 2))
    X = X / np.linalg.norm(X)
    b = W @ np.sum((U @ X) ** 2, axis=1)
    asked = {"trace": trace, "psd": True, "prefer": "min_trace"}
    result = quadsense.solve(U, b, delta=0.01, mix=W, **asked)
    for objective in (False, True):
        held = certificates.fields_of(result.certificate, None, objective)
        assert len(held["forms"]) == 8 + (trace is not None)
        assert agreed(held)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_of_a_range_is_true_by_both_checkers(seed):
    held = cases.of_interval(seed)
    assert {"lower", "upper"} & held.keys()
    assert agreed(held)


@pytest.mark.parametrize("name", ["least_squares", "nearest", "min_trace", "minimax"])
@pytest.mark.parametrize("psd", [False, True])
def test_bounds_in_a_file_are_those_of_the_result(name, psd):
    rng = np.random.default_rng(7)
    U = rng.standard_normal((14, 3))
    b = np.sum((U @ rng.standard_normal((3, 3))) ** 2, axis=1) + rng.uniform(-0.05, 0.05, 14)
    result = quadsense.solve(U, b, delta=0.1, prefer=name, psd=psd or name == "min_trace")
    held = certificates.fields_of(result.certificate, None, True)
    lower, upper = result.objective_bounds
    assert agreed(held)
    if name == "nearest":  # of which a file bounds the square
        lower, upper = lower**2, upper**2
    assert held["upper"] == pytest.approx(upper, rel=1e-6)
    # Exact residuals prove no less than float64 does.
    assert lower * (1.0 - 1e-6) <= held["lower"] <= held["upper"]


def test_a_contradiction_of_symmetric_matrices_needs_no_bound_on_them():
    rng = np.random.default_rng(3)
    U = rng.standard_normal((30, 4))
    b = rng.standard_normal(30)
    result = quadsense.solve(U, b, delta=0.1)
    held = certificates.fields_of(result.certificate, None, False)
    assert held["claim"] == "infeasible"
    assert "sigma" in held
    assert agreed(held)
    # 15 digits more a round: without the proof that rows see all of A it holds up to 1e25.
    without = {k: v for k, v in held.items() if k != "sigma"} | {"norm": 1e25}
    assert agreed(without)


TAMPERED = int(os.environ.get("QUADSENSE_TAMPERED", "10000"))
"""Certificates that are changed; `make test-deep` takes 100,000, and ten times as many seeds."""


@pytest.mark.deep
def test_certificates_of_many_seeds_are_true():
    kinds, seeds = Counter(), TAMPERED // 20
    for seed in range(seeds):
        start = (0, 20_000, 1_000_000, 2_000_000)[seed % 4]
        for name, held in cases.of_seed(start + seed):
            kinds[name if held else "refused"] += 1
            if held:
                assert checker.check(json.loads(json.dumps(held)))[0], start + seed
        if seed % 5 == 0:
            assert checker.check(cases.of_interval(seed))[0], seed
    print(f"{seeds} seeds: {dict(kinds)}")
    assert kinds.keys() >= {
        "met", "infeasible", "least_squares", "nearest", "min_trace", "minimax"
    }  # fmt: skip


# --- tampered with ----------------------------------------------------------------------------


def accepted(held, rng, count):
    """How many of so many changed certificates are accepted: each must be true by fractions."""
    found = 0
    for _ in range(count):
        text = cases.tampered(held, rng)
        if judged(text):
            assert rules.is_true(text), text
            found += 1
    return found


@pytest.mark.parametrize("seed", [3, 20, 20002, 20009])
def test_what_is_accepted_of_changed_certificates_is_true(seed):
    rng = np.random.default_rng(seed)
    small = [held for _, held in cases.of_seed(seed) if held and held["n"] <= MAX_ORDER]
    assert sum(accepted(held, rng, 25) for held in small) < 25 * len(small)


@pytest.mark.deep
def test_what_is_accepted_of_many_changed_certificates_is_true():
    rng, seen, seed, true = np.random.default_rng(0), 0, 0, 0
    while seen < TAMPERED:
        start = (0, 20_000, 1_000_000)[seed % 3]
        several = [held for _, held in cases.of_seed(start + seed) if held]
        for held in [*several, cases.of_interval(seed)]:
            if held["n"] <= MAX_ORDER:
                true += accepted(held, rng, 50)
                seen += 50
        seed += 1
    print(f"{seen} changed, {true} accepted, each of them true")


@pytest.mark.deep
def test_both_checkers_agree_on_many_certificates():
    rng, texts, seed = np.random.default_rng(1), [], 0
    while len(texts) < TAMPERED // 25:
        several = [held for _, held in cases.of_seed((0, 20_000, 1_000_000)[seed % 3] + seed)]
        for held in [held for held in several if held and held["n"] <= MAX_ORDER]:
            texts += [json.dumps(held), cases.tampered(held, rng)]
        seed += 1
    known = {text: judged(text) for text in texts}
    sound = {text: found for text, found in known.items() if found is not None}
    print(f"{len(texts)} certificates, {len(texts) - len(sound)} of them malformed")
    assert sound == {text: rules.is_true(text) for text in sound}


@pytest.mark.parametrize(
    ("change", "true"),
    [
        ({}, True),
        ({"b": [1, 1, 5]}, False),
        ({"y": [2, 2, -2]}, False),  # not positive semidefinite
        ({"y": [2, 2, -1.0000001]}, False),
        ({"psd": False}, False),  # F*(y) is not 0
        ({"psd": False, "norm": 0.3}, True),  # ||F*(y)||_F = 2: 0.75 - 0.6 > 0
        ({"psd": False, "norm": 0.4}, False),
        ({"b": [1, 1, None]}, False),
        ({"y": [1.9, 1.9, -1], "shift": 0.125, "norm": 0.01}, True),
        ({"y": [1.9, 1.9, -1], "shift": 0.0999, "norm": 0.01}, False),
        ({"proofs": [[2, 2, -1]], "allowed": 1}, False),
        ({"proofs": [[2, 2, -1]], "allowed": 0}, True),
        ({"y": {"integers": [4, 4, -2], "exponent": -1}}, True),
    ],
)
def test_each_part_of_the_rule_of_a_contradiction_counts(change, true):
    assert agreed(EXAMPLE | change) is true


@pytest.mark.parametrize(
    ("change", "true"),
    [
        ({}, True),
        ({"A": {"entries": [1.0000000000000002, 0.5, 0.5, 1]}}, False),
        ({"A": {"entries": [1, -0.5, -0.5, 1]}}, False),
        ({"A": {"entries": [1, -0.5, -0.5, 1]}, "lo": [1, None, None]}, True),
        ({"A": {"entries": [1, 1.5, 1.5, 1]}, "psd": True}, False),
        ({"A": {"entries": [1, 1.5, 1.5, 1]}}, True),
        ({"A": {"rank": 1, "factor": [1, 1]}, "psd": True}, True),
        ({"A": {"rank": 1, "factor": [1, 1], "signs": [-1]}}, False),
        ({"psd": True}, True),
        (FORM | {"lo": [1, 1, 1], "hi": [1, 1, 1]}, True),
        (FORM | {"lo": [1, 1, 2], "hi": [1, 1, 2]}, False),
    ],
)  # fmt: skip
def test_each_part_of_the_rule_of_a_fit_counts(change, true):
    assert agreed(FIT | change) is true


LEAST = {
    "format": "quadsense-certificate", "version": "1.0", "claim": "least_squares", "n": 1, "m": 2,
    "U": [1, 1], "b": [1, 3], "weights": [1, 1], "y": [2, -2], "lower": 2, "upper": 2,
    "A": {"entries": [2]},
}  # fmt: skip
RANGE = LEAST | {"claim": "interval", "C": {"entries": [1]}}
ABOVE = RANGE | {"hi": [1, 1], "y_upper": [1, 0], "lower": None}
NEAR = LEAST | {"claim": "nearest", "prior": {"entries": [1]}, "y": [0, 0], "lower": 0, "upper": 1}
AWAY = NEAR | {"lo": [1, 1], "prior": {"entries": [0]}, "y": [-1, -1], "A": {"entries": [1]}}
SEEN = LEAST | {"y": [2, -1.75], "sigma": 2**23 - 3, "lower": 0.4}
WORST = {
    "format": "quadsense-certificate", "version": "1.0", "claim": "minimax", "n": 1, "m": 2,
    "U": [1, 1], "b": [1, 3], "delta": [1, 1], "y": [1, -1], "lower": 0.999, "upper": 1,
    "A": {"entries": [2]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("held", "true"),
    [
        (LEAST, True),
        (LEAST | {"lower": 2.0000000000000004, "upper": 3}, False),
        (LEAST | {"upper": 1.9999999999999998, "lower": 1}, False),  # A costs 2
        (LEAST | {"lower": 3, "upper": 2}, False),
        (LEAST | {"lower": -1, "y": [0, 0]}, True),
        (LEAST | {"upper": None}, True),
        (LEAST | {"lower": None}, True),
        # One of the two is paid by its end: 4 is the least.
        (
            LEAST | {"hi": [None, 1], "A": {"entries": [1]}, "y": [0, 0], "lower": 4, "upper": 4},
            True,
        ),
        (LEAST | {"ridge": 1, "prior": {"entries": [2]}}, True),
        (LEAST | {"ridge": 1, "prior": {"entries": [3]}}, False),
        (NEAR, True),
        (NEAR | {"upper": 0.5}, False),
        (AWAY, True),
        (AWAY | {"lower": 1, "upper": 2, "y": [-1, -0.5]}, False),
        (AWAY | {"lower": 1, "upper": 2}, True),
        (AWAY | {"lower": 1.1, "upper": 2}, False),
        (RANGE | {"lo": [1, 1], "y": [-1, 0], "lower": 1, "upper": None}, True),
        (RANGE | {"lo": [1, 1], "y": [-1, 0], "lower": 1.1, "upper": None}, False),
        (ABOVE | {"upper": 1}, True),
        (ABOVE | {"upper": 0.9}, False),
        (SEEN, True),
        (SEEN | {"lower": 0.5}, False),
        (SEEN | {"sigma": 1.5 * 2**23}, False),  # the square root of 2 is less
        (SEEN | {"weights": [1, 0], "y": [2, 0]}, False),  # nothing bounds reading 1
        (SEEN | {"lo": [0, 0], "hi": [4, 4], "lower": 0.05}, True),
        (SEEN | {"lo": [0, 0], "hi": [4, 4]}, False),
        (WORST, True),
        (WORST | {"lower": 1, "upper": 2}, False),  # some A is at 1
        (WORST | {"upper": 0.9999}, False),
        (WORST | {"lower": 0.25, "y": [1, -0.5]}, False),
        (WORST | {"lower": 0.25, "y": [1, -0.96], "norm": 3}, True),
        (WORST | {"lower": 0.25, "y": [1, -0.96], "norm": 1.9}, False),  # of an A of norm 2
        (WORST | {"lower": 0.25, "y": [1, -0.96], "norm": 1.9, "upper": None}, True),
        (WORST | {"hi": [1, None], "lo": [None, 2], "lower": None}, False),
    ],
)
def test_each_part_of_the_rule_of_an_optimum_counts(held, true):
    assert agreed(held) is true


def test_bounds_that_are_not_stated_are_malformed():
    with pytest.raises(checker.Malformed, match="neither"):
        checker.check({k: v for k, v in LEAST.items() if k not in ("lower", "upper")})


@pytest.mark.parametrize("rank", [1, 2])
def test_definiteness_without_a_margin_is_shown_by_elimination(rank):
    X = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]])[:rank]
    M = X.T @ X
    assert checker.is_positive(M.astype(int).tolist())
    M[0, 0] -= 1.0 - rank / 4
    assert not checker.is_positive((4 * M).astype(int).tolist())


# --- malformed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "3", '{"format": "quadsense-certificate"}', "[" * 100_000,
        json.dumps(EXAMPLE | {"version": "2.0"}),
        json.dumps(EXAMPLE | {"claim": ["met"]}),
        json.dumps(EXAMPLE | {"claim": "eval"}),
        json.dumps(EXAMPLE | {"n": 10**9}),
        json.dumps(EXAMPLE | {"n": -2}),
        json.dumps(EXAMPLE | {"n": True}),
        json.dumps(EXAMPLE | {"m": 4}),
        json.dumps(EXAMPLE | {"U": [1, 0, 0, 1, 1]}),
        json.dumps(EXAMPLE | {"U": [1, 0, 0, 1, 1, "1"]}),
        json.dumps(EXAMPLE | {"U": [1, 0, 0, 1, 1, None]}),
        json.dumps(EXAMPLE | {"U": {"base64": "####"}}),
        json.dumps(EXAMPLE | {"U": {"file": "../secret", "sha256": ""}}),
        json.dumps(EXAMPLE | {"U": {"file": "missing.bin", "sha256": ""}}),
        json.dumps(EXAMPLE | {"y": {"integers": [1, 2, 3], "exponent": 10**9}}),
        json.dumps(EXAMPLE | {"y": {"integers": [1, 2, "3"], "exponent": 1}}),
        json.dumps(EXAMPLE | {"psd": 1}),
        json.dumps(EXAMPLE | {"b": [1, 1, 1e999]}),
        json.dumps(EXAMPLE | {"delta": [1, 1, -1]}),
        json.dumps(EXAMPLE | {"n": 3000, "m": 1, "forms": [{"rank": 0, "factor": []}], "U": []}),
        json.dumps(EXAMPLE | {"forms": {}}),
        json.dumps(EXAMPLE | {"forms": [{"rank": 10**8, "factor": []}]}),
        json.dumps(EXAMPLE | {"proofs": 3}),
        json.dumps(EXAMPLE).replace("6]", "NaN]"),
        json.dumps(EXAMPLE).replace("6]", "1" + "0" * 5000 + "]"),
        json.dumps(FIT | {"A": {"entries": [1, 0.5, 0.4, 1]}}),
        json.dumps(FIT | {"A": [1, 0.5, 0.5, 1]}),
        json.dumps(FIT | {"A": None}),
        json.dumps(FIT | {"A": {"rank": "x"}}),
        json.dumps({k: v for k, v in FIT.items() if k != "A"}),
    ],
)  # fmt: skip
def test_malformed_files_end_with_status_2_and_one_line(text, tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_text(text)
    assert checker.main([str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("malformed: ")
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1e300, 1e-300), (5e-324, 1.7e308)])
def test_numbers_of_too_different_sizes_are_refused_before_they_take_memory(sizes):
    n = 1100
    U = np.ones(n)
    U[:2] = sizes
    held = FIT | {"n": n, "m": 1, "U": U.tolist(), "lo": [0], "hi": [1]}
    held["A"] = {"rank": 1, "factor": U.tolist()}
    with pytest.raises(checker.Malformed, match="sizes"):
        checker.check(held)


def test_the_checker_runs_by_itself_and_its_statuses_are_as_documented(tmp_path):
    copy = tmp_path / "quadsense_check.py"
    copy.write_text(CHECKER.read_text())
    texts = {0: json.dumps(EXAMPLE), 3: json.dumps(EXAMPLE | {"b": [1, 1, 5]}), 2: "{"}
    for status, text in texts.items():
        (tmp_path / "c.json").write_text(text)
        # -I and -S: neither the user's folder nor any installed package.
        run = subprocess.run(
            [sys.executable, "-I", "-S", str(copy), "c.json"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == status
        assert "Traceback" not in run.stderr
        assert run.stdout[:4] == {0: "TRUE", 3: "FALS", 2: ""}[status]


@pytest.mark.parametrize(("change", "status"), [({}, 0), ({"b": [1, 1, 5]}, 3)])
def test_the_status_says_whether_the_claim_is_true(change, status, tmp_path, capsys):
    (tmp_path / "c.json").write_text(json.dumps(EXAMPLE | change))
    assert checker.main([str(tmp_path / "c.json")]) == status
    assert capsys.readouterr().out.startswith("FALSE: " if status else "TRUE: ")


def lines_of_code(text):
    """Lines that are neither blank nor a comment, nor part of a string that stands alone."""
    alone = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(bool(line) and line[0] != "#" and i not in alone for i, line in lines)


def test_the_checker_is_one_short_file_of_the_standard_library():
    text = CHECKER.read_text()
    assert len(text.splitlines()) <= 450
    assert lines_of_code(text) <= 350
    tree, imported = ast.parse(text), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {each.name.partition(".")[0] for each in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 30, node.name
    assert imported <= sys.stdlib_module_names
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"eval", "exec", "compile", "__import__", "pickle"}


def test_arrays_may_be_base64_or_files_with_their_hash(tmp_path):
    data = np.array(EXAMPLE["U"], dtype="<f8").tobytes()
    (tmp_path / "U.bin").write_bytes(data)
    named = {"file": "U.bin", "sha256": hashlib.sha256(data).hexdigest()}
    coded = {"base64": base64.b64encode(data).decode()}
    assert checker.check(EXAMPLE | {"U": coded})[0]
    assert checker.check(EXAMPLE | {"U": named}, str(tmp_path))[0]
    (tmp_path / "U.bin").write_bytes(data[:-1] + b"\0")
    with pytest.raises(checker.Malformed, match="SHA-256"):
        checker.check(EXAMPLE | {"U": named}, str(tmp_path))


def test_the_example_of_the_page_is_as_it_says():
    page = (ROOT / "CERTIFICATE.md").read_text()
    held = json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    assert not agreed(held)
    said = re.search(r"```text\nTRUE: (.*?)\n```", page)[1]
    assert checker.check(held | {"b": [1, 1, 6]}) == (True, said)


# --- writing ----------------------------------------------------------------------------------


@pytest.fixture
def solved():
    problem = quadsense.datasets.gaussian(n=4, m=20, seed=1)
    data = quadsense.Measurements(problem.U, problem.b, delta=0.01)
    return data, quadsense.solve(data)


def test_a_result_from_a_file_is_written_with_its_data(solved, tmp_path):
    data, result = solved
    result.save(tmp_path / "r.npz")
    again = quadsense.load_result(tmp_path / "r.npz")
    with pytest.raises(ValueError, match="give data="):
        again.save_certificate(tmp_path / "c.json")
    again.save_certificate(tmp_path / "c.json", data)
    assert agreed(json.loads((tmp_path / "c.json").read_text()))


def test_what_its_own_rule_does_not_show_is_not_written(solved, tmp_path):
    _, result = solved
    wrong = quadsense.SensedMatrix.from_dense(np.asarray(result.matrix) + 1.0)
    false = replace(result, certificate=replace(result.certificate, matrix=wrong))
    with pytest.raises(certificates.CannotCertify, match="nothing is written: reading 1 of A is"):
        false.save_certificate(tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []


def test_claims_that_the_format_does_not_have_are_refused(tmp_path):
    U = np.random.default_rng(0).standard_normal((8, 3))
    result = quadsense.solve(U, np.ones(8), delta=2.0, prefer="center")
    result.save_certificate(tmp_path / "c.json")
    assert agreed(json.loads((tmp_path / "c.json").read_text()))
    with pytest.raises(certificates.CannotCertify, match=r"'center' .* have logarithms"):
        result.save_certificate(tmp_path / "c.json", objective=True)


def test_an_interval_writes_its_certificate(tmp_path):
    U, b = np.eye(2), [1.0, 2.0]
    found = quadsense.interval(U, b, "trace", delta=0.1)
    found.save_certificate(tmp_path / "c.json", U, b, delta=0.1)
    held = json.loads((tmp_path / "c.json").read_text())
    assert agreed(held)
    assert (held["lower"], held["upper"]) == pytest.approx((2.8, 3.2), abs=1e-9)
    unseen = quadsense.interval(U, b, (0, 1), delta=0.1)
    with pytest.raises(certificates.CannotCertify, match="neither end"):
        unseen.save_certificate(tmp_path / "c.json", U, b, delta=0.1)


def test_the_command_writes_certificates(solved, tmp_path, run):
    data, result = solved
    np.savez(tmp_path / "data.npz", U=np.asarray(data.rows()), b=np.asarray(data.b), delta=0.01)
    result.save(tmp_path / "r.npz")
    names = [str(tmp_path / name) for name in ("data.npz", "r.npz")]
    for extra in ([], ["--objective"], ["--interval", "trace"]):
        target = tmp_path / "c.json"
        code, _, err = run("certificate", *names, "-o", str(target), *extra)
        assert (code, err) == (0, "")
        assert agreed(json.loads(target.read_text()))
        target.unlink()
    data = quadsense.Measurements(data.rows(), data.b, delta=0.01)
    other = quadsense.solve(data, prefer="center")
    other.save(names[1])
    code, _, err = run("certificate", *names, "-o", str(tmp_path / "c.json"), "--objective")
    assert code == 3
    assert "they have logarithms, which version 1.0 does not" in err
    assert not (tmp_path / "c.json").exists()
