"""The command on files of every kind: names, tolerances, JSON, completion, exit statuses."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from click.testing import CliRunner
from helpers import cover, gaussian_rows, readings, sampled

import quadsense
from quadsense import cli

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    """Commands run in a folder of their own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def printed(run):
    """What a command prints with --json, read strictly and held against its schema."""

    def call(*arguments, code=0):
        found, out, err = run(*arguments, "--json")
        assert found == code, err
        text = run("schema", arguments[0])[1]
        fields = json.loads(out, parse_constant=lambda word: pytest.fail(word))
        schema = json.loads(text)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(fields, schema, jsonschema.Draft202012Validator)
        return fields

    return call


def problem(n=5, m=20, complex_=False, seed=0):
    rng = np.random.default_rng(seed)
    U = gaussian_rows(rng, m, n, complex_)
    X = gaussian_rows(rng, n, n, complex_)
    A = X @ X.conj().T / n
    return U, readings(U, A), A


# --- files and names --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npz", "mat", "h5", "zarr", "zarr.zip", "parquet", "csv"])
@pytest.mark.parametrize("complex_", [False, True])
def test_every_format_goes_through_every_command(run, suffix, complex_):
    file = f"d.{suffix}"
    words = ["generate", "--n", 5, "--m", 40, "--no-truth", "-o", file]
    assert run(*words, *(["--complex"] if complex_ else []))[0] == 0
    code, out, err = run("inspect", file)
    assert code == 0 and err == ""
    assert f"m = 40, n = 5, dense {'complex' if complex_ else 'real'}" in out
    code, out, err = run("solve", file, "--delta", 0.01, "-o", "r.npz", "--dense", f"A.{suffix}")
    assert code == 0 and err == ""
    assert run("verify", file, "r.npz")[0] == 0
    A = quadsense.files.array_from(f"A.{suffix}")
    data = quadsense.Measurements.open(file)
    assert np.abs(readings(data.rows(), A) - data.b).max() <= 0.01
    assert run("interval", file, "trace", "--delta", 0.01)[0] == 0


def test_pairs_of_npy_files(run):
    U, b, _ = problem()
    np.save("U.npy", U)
    np.save("b.npy", b)
    assert run("solve", "U.npy", "--b", "b.npy", "--delta", 0.01, "-o", "r.npz")[0] == 0
    assert run("verify", "U.npy", "r.npz", "--b", "b.npy")[0] == 0
    assert run("solve", ".", "--delta", 0.01)[0] == 0
    code, out, err = run("solve", "U.npy", "--delta", 0.01)
    assert code == 2 and out == ""
    assert err.startswith("quadsense: U.npy holds no array named 'b'") and err.count("\n") == 1
    assert run("solve", "U.npy", "--b", "b.npy", "--delta", 1, "--dense", "b.npy")[0] == 2


def test_guesses_are_told_beside_the_report(run):
    U, b, _ = problem()
    scipy.io.savemat("d.mat", {"probes": U.T, "y": b})
    code, _, err = run("solve", "d.mat", "--delta", 0.01)
    assert code == 0
    assert err.splitlines() == [
        "d.mat: U is 'probes'",
        "d.mat: b is 'y'",
        "d.mat: probes is 5 x 20 for 20 readings: its columns are the vectors",
    ]
    assert run("solve", "d.mat", "--delta", 0.01, "--quiet")[1:] == ("", "")
    named = ("--U", "probes", "--b", "y")
    assert run("solve", "d.mat", "--delta", 0.01, *named)[2].count("\n") == 1


def test_inspect_tells_what_is_there_where_nothing_can_be_solved(run, printed):
    np.savez("d.npz", first=np.eye(3), second=np.eye(3), text="hello")
    code, out, _ = run("inspect", "d.npz")
    assert code == 0
    assert "first: 3 x 3 float64" in out and "text: one value text" in out
    assert "say which with U= (--U)" in out
    fields = printed("inspect", "d.npz")
    assert fields["file"]["problem"] and "plan" not in fields
    code, _, err = run("inspect", "d.npz", "--U", "third")
    assert code == 2 and "holds no array named 'third'" in err


def test_inspect_tells_what_was_taken_for_what(run, printed):
    U, b, A = problem(complex_=True)
    held = {"X": sp.csc_array(U), "values": b, "tolerance": 0.1, "A_star": A}
    scipy.io.savemat("d.mat", held)
    fields = printed("inspect", "d.mat")
    roles = {entry["name"]: entry["role"] for entry in fields["file"]["entries"]}
    assert roles == {"X": "U", "values": "b", "tolerance": "delta", "A_star": None}
    first = fields["file"]["entries"][0]
    assert (first["name"], first["dtype"], first["sparse"]) == ("X", "complex128", True)
    assert fields["file"]["notes"] == ["U is 'X'", "b is 'values'"]
    out = run("inspect", "d.mat")[1]
    assert "X: 20 x 5 sparse complex128, taken as U" in out
    quadsense.Measurements(U, b, delta=0.1).save("d.csv")
    entries = printed("inspect", "d.csv")["file"]["entries"]
    assert [entry["role"] for entry in entries] == ["U"] * 10 + ["b", "delta"]


def test_inspect_knows_a_result(run, printed):
    U, b, _ = problem()
    quadsense.solve(U, b, delta=0.1).save("r.npz")
    code, out, _ = run("inspect", "r.npz")
    assert code == 0 and "r.npz, a quadsense result, A is 5 x 5" in out
    fields = printed("inspect", "r.npz")
    assert fields["file"]["result"] and fields["result"]["status"] == "met"
    code, _, err = run("solve", "r.npz", "--delta", 1)
    assert code == 2 and "is a quadsense result, and no measurements" in err


# --- what is asked ----------------------------------------------------------------------------


def test_tolerances_in_every_way(run, printed):
    U, b, _ = problem()
    np.savez("d.npz", U=U, b=b, low=b - 0.1, high=b + 0.2, weight=np.arange(20.0))
    np.save("high.npy", b + 0.2)
    fields = printed("solve", "d.npz", "--bounds", "low", "high.npy", "-o", "r.npz")
    data = quadsense.Measurements(U, b, bounds=(b - 0.1, b + 0.2))
    assert quadsense.load_result("r.npz").verify(data)
    assert fields["verdict"]["asked"] == "bounds"
    assert run("verify", "d.npz", "r.npz", "--bounds", "low", "high")[0] == 0
    printed("solve", "d.npz", "--bounds", "-inf", "high.npy")
    fields = printed("solve", "d.npz", "--sigma", 0.01)
    delta = quadsense.delta_from_sigma(0.01, 20)
    assert fields["verdict"]["worst"]["tolerance"] == pytest.approx(delta, rel=1e-12)
    code, _, err = run("solve", "d.npz", "--sigma", 0.01, "--delta", 1)
    assert code == 2 and "--delta and --sigma do not go together" in err


def test_counts_are_probabilities_within_their_intervals(run, printed):
    rng = np.random.default_rng(0)
    U, _, _ = problem(n=3, m=12)
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    counts = rng.binomial(1000, np.einsum("ij,jk,ik->i", U, np.eye(3) / 3, U))
    quadsense.Measurements(U, counts.astype(float)).save("d.csv")
    words = ("d.csv", "--shots", 1000, "--psd", "--trace", 1)
    fields = printed("solve", *words, "-o", "r.npz", "--dense", "A.npy")
    assert fields["success"]
    lo, hi = quadsense.bounds_from_counts(counts, 1000)
    values = readings(U, np.load("A.npy"))
    assert np.all((values >= lo) & (values <= hi))
    expected = quadsense.solve(U, counts / 1000, bounds=(lo, hi), psd=True, trace=1)
    assert fields["objective"] == pytest.approx(expected.objective, rel=1e-6)
    assert run("verify", "d.csv", "r.npz", "--shots", 1000)[0] == 0
    code, _, err = run("solve", "d.csv", "--shots", 3)
    assert code == 2 and "quadsense: " in err


def test_weights_prior_and_start_by_name_and_by_file(run, printed):
    U, b, A = problem(n=4, m=6)
    w = np.random.default_rng(1).random(6) + 0.5
    np.savez("d.npz", U=U, b=b, w=w, P=A)
    np.save("P.npy", A)
    quadsense.solve(U, b, delta=0.1, prefer="nearest", prior=A).save("r.npz")
    wanted = quadsense.solve(U, b, delta=0.01, prefer="nearest", prior=A)
    for prior in ("P", "P.npy", "d.npz::P"):
        words = ("--delta", 0.01, "--prefer", "nearest", "--prior", prior)
        fields = printed("solve", "d.npz", *words)
        assert fields["objective"] == pytest.approx(wanted.objective, abs=1e-6)
    pulled = quadsense.solve(U, b, delta=0.01, prior=A)
    fields = printed("solve", "d.npz", "--delta", 0.01, "--prior", "P")
    assert fields["prefer"] == "least_squares"
    assert fields["objective"] == pytest.approx(pulled.objective, rel=1e-6)
    assert pulled.verdict.ridge > 0.0
    assert fields["verdict"]["ridge"] == pytest.approx(pulled.verdict.ridge)
    fields = printed("solve", "d.npz", "--delta", 0.01, "--prior", "P", "--ridge", "auto")
    assert fields["objective"] == pytest.approx(pulled.objective, rel=1e-6)
    fields = printed("solve", "d.npz", "--delta", 0.01, "--prior", "P", "--ridge", 0.5)
    assert fields["verdict"]["ridge"] == 0.5
    fields = printed("solve", "d.npz", "--delta", 0.01, "--psd", "--prefer", "entropy")
    assert (fields["prefer"], fields["optimal"]) == ("entropy", True)
    code, _, err = run("solve", "d.npz", "--delta", 0.01, "--ridge", "strong")
    assert code == 2 and "--ridge must be a number or 'auto', got 'strong'" in err
    assert printed("solve", "d.npz", "--delta", 0.01, "--prior", "r.npz")["objective"] >= 0.0
    many = problem(n=3, m=9)
    np.savez("m.npz", U=many[0], b=many[1] + np.arange(9) % 2, w=np.arange(1.0, 10.0))
    expected = quadsense.solve(
        many[0], many[1] + np.arange(9) % 2, weights=np.arange(1.0, 10.0), prefer="least_squares"
    )
    fields = printed("solve", "m.npz", "--weights", "w", "--prefer", "least_squares")
    assert fields["objective"] == pytest.approx(expected.objective, rel=1e-6)
    fields = printed("solve", "d.npz", "--delta", 0.01, "--prefer", "any", "--start", "P.npy")
    assert fields["n_iter"] <= 1
    printed("solve", "d.npz", "--delta", 0.01, "--start", "zero", "--prefer", "any")
    code, _, err = run("solve", "d.npz", "--delta", 0.01, "--start", "nowhere")
    assert code == 2 and "holds no array named 'nowhere'" in err


def test_constraints_from_files(run, printed):
    U, b, _ = problem(n=3, m=4)
    C = np.diag([1.0, -1.0, 0.0])
    np.savez("d.npz", U=U, b=b, C=C, v=np.array([0.0, 1.0, 1.0]))
    scipy.io.savemat("c.mat", {"C": C, "other": np.eye(3)})
    words = ("--constraint", "c.mat::C", "-0.25", "-0.25", "--constraint", "v", "-inf", "3")
    fields = printed("solve", "d.npz", "--delta", 0.1, *words, "--dense", "A.csv")
    assert fields["success"]
    A = np.loadtxt("A.csv", delimiter=",")
    assert np.sum(C * A) == pytest.approx(-0.25, abs=1e-9)
    v = np.array([0.0, 1.0, 1.0])
    assert v @ A @ v <= 3.0 + 1e-9
    code, _, err = run("solve", "d.npz", "--delta", 0.1, "--constraint", "C", "low", "1")
    assert code == 2 and "a matrix and two numbers, got 'low' and '1'" in err


def test_intervals_of_entries_traces_vectors_and_matrices(run, printed):
    U, b, A = problem(n=3, m=20, complex_=True)
    v = np.array([1.0, 1.0j, 0.5])
    np.savez("d.npz", U=U, b=b, C=A, v=v)
    names = ("trace", "0,1", "2,2", "C", "v", "d.npz::v")
    fields = printed("interval", "d.npz", *names, "--delta", 0.01)
    assert [each["what"] for each in fields["intervals"]] == list(names)
    truth = [
        np.trace(A).real, A[0, 1].real, A[2, 2].real, np.vdot(A, A).real,
        (v.conj() @ A @ v).real, (v.conj() @ A @ v).real,
    ]  # fmt: skip
    for each, value in zip(fields["intervals"], truth, strict=True):
        assert each["lower"] - 1e-9 <= value <= each["upper"] + 1e-9
        assert each["upper"] - each["lower"] < 10
    seen = quadsense.interval(U, b, (0, 1), delta=0.01)
    assert fields["intervals"][1]["lower"] == pytest.approx(seen.lower, abs=1e-9)
    code, out, _ = run("interval", "d.npz", "--delta", 0.01)
    assert code == 0 and out.splitlines()[2].startswith("trace")
    np.savez("none.npz", U=np.diag([1.0, 0.0]), b=np.array([1.0, 1.0]))
    fields = printed("interval", "none.npz", "--delta", 0.1, code=4)
    assert not fields["fits"]
    np.savez("free.npz", U=np.eye(2), b=np.ones(2))
    fields = printed("interval", "free.npz", "0,1", "--delta", 0.1)
    assert fields["intervals"][0]["lower"] == "-inf"
    assert fields["intervals"][0]["lower_proved_infinite"]


# --- JSON -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--delta", 0.01], 0),
        ([], 0),
        (["--delta", 0.01, "--psd"], 0),
        (["--delta", 0.01, "--rank", 5], 0),
        (["--delta", 1e-9, "--method", "gd", "--max-iter", 2], 3),
        (["--delta", 0.01, "--slack", "squares"], 0),
        (["--delta", 0.01, "--prefer", "any", "--allow-violations", 2], 0),
        (["--delta", 0.01, "--prefer", "center", "--psd"], 0),
        (["--bounds", "-inf", "10"], 0),
        (["--delta", 0, "--time-limit", 5], 0),
    ],
)
def test_what_is_printed_is_what_the_schema_says(printed, words, code):
    U, b, _ = problem()
    np.savez("d.npz", U=U, b=b)
    fields = printed("solve", "d.npz", *words, "-o", "r.npz", code=code)
    assert fields["success"] == (code == 0)
    found = printed("verify", "d.npz", "r.npz", *_again(words), code=code)
    assert found["true"] == (code == 0)
    assert found["status"] == fields["status"]


def _again(words):
    return words if words[:1] == ["--bounds"] else []


def test_what_json_lacks_is_null_or_text():
    from quadsense.cli.shared import strict

    given = {"a": (np.nan, [np.inf]), "b": np.array([-np.inf, 1.0]), 3: np.float64(2), "n": None}
    expected = {"a": [None, ["inf"]], "b": ["-inf", 1.0], "3": 2.0, "n": None}
    assert strict(given) == expected
    assert json.loads(json.dumps(strict(given), allow_nan=False)) == expected


def test_infeasible_and_false_claims_are_printed_too(printed):
    np.savez("d.npz", U=np.diag([1.0, 0.0]), b=np.array([1.0, 1.0]))
    fields = printed("solve", "d.npz", "--delta", 0.1, "-o", "r.npz", code=4)
    assert fields["status"] == "infeasible"
    assert printed("verify", "d.npz", "r.npz")["true"]
    np.savez("other.npz", U=np.eye(2), b=np.ones(2))
    found = printed("verify", "other.npz", "r.npz", code=3)
    assert not all(check["holds"] for check in found["checks"])


def test_the_schemas_are_printed_and_refuse_what_is_new(run):
    for name in ("solve", "verify", "inspect", "interval"):
        code, out, _ = run("schema", name)
        assert code == 0
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"new": 1}, json.loads(out))


def _keys(schema):
    """Every key that a schema names, with what is said of it."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {}).items()
        for part in schema.values():
            yield from _keys(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _keys(part)


@pytest.mark.parametrize("name", ["solve", "verify", "inspect", "interval"])
def test_a_schema_describes_every_key_and_has_a_version(run, name):
    schema = json.loads(run("schema", name)[1])
    jsonschema.Draft202012Validator.check_schema(schema)
    keys = list(_keys(schema))
    assert len(keys) >= 6
    for key, said in keys:
        assert len(said["description"]) > 8 and said["description"][-1] == ".", key
    assert schema["version"] == 1


def test_a_schema_has_the_fields_of_the_dataclasses(run):
    parts = json.loads(run("schema", "solve")[1])["$defs"]
    for name, kind in (("verdict", quadsense.Verdict), ("reason", quadsense.vocabulary.Reason)):
        fields = [entry.name for entry in dataclasses.fields(kind)]
        assert list(parts[name]["properties"]) == parts[name]["required"] == fields
    statuses = parts["verdict"]["properties"]["status"]["enum"]
    assert statuses == [str(status) for status in quadsense.Status]


# --- the shell --------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run, shell):
    code, out, err = run("completion", shell)
    assert code == 0 and err == ""
    assert "_QUADSENSE_COMPLETE" in out


def completed(monkeypatch, capsys, *words):
    """What bash is offered after these words."""
    monkeypatch.setenv("_QUADSENSE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["quadsense", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    monkeypatch.setattr(sys, "argv", ["quadsense"])
    with pytest.raises(SystemExit):
        cli.main()
    return [line.split(",", 1) for line in capsys.readouterr().out.splitlines()]


def test_commands_methods_preferences_and_files_are_completed(monkeypatch, capsys):
    offered = completed(monkeypatch, capsys, "in")
    assert offered == [["plain", "inspect"], ["plain", "interval"]]
    names = [name for _, name in completed(monkeypatch, capsys, "solve", "d.npz", "--method", "")]
    assert {"auto", "gd", "sgd", "conic"} <= set(names)
    names = completed(monkeypatch, capsys, "solve", "d.npz", "--prefer", "min")
    assert [name for _, name in names] == ["min_trace", "minimax"]
    assert completed(monkeypatch, capsys, "solve", "da")[0][0] == "file"
    assert completed(monkeypatch, capsys, "solve", "d.npz", "-o", "r")[0][0] == "file"
    names = [name for _, name in completed(monkeypatch, capsys, "solve", "--constr")]
    assert names == ["--constraint"]


def test_bash_takes_the_script(run, tmp_path):
    (tmp_path / "script").write_text(run("completion", "bash")[1])
    done = subprocess.run(["bash", "-n", tmp_path / "script"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_m_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "quadsense", "--version"], capture_output=True, text=True, check=True
    )
    assert quadsense.__version__ in done.stdout


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "command"),
    cover(
        ["npz", "npy", "mat", "h5", "zarr.zip", "parquet", "csv", "xyz"],
        ["solve", "inspect", "verify", "interval"],
        each=2,
    ),
)
def test_damaged_files_are_one_line_and_exit_2(run, suffix, command):
    file = f"d.{suffix}"
    with open(file, "wb") as stream:
        stream.write(b"\x01\x02broken" * 50)
    np.savez("whole.npz", U=np.eye(2), b=np.ones(2))
    quadsense.solve(np.eye(2), np.ones(2), delta=0.1).save("r.npz")
    words = [command, file, *(["r.npz"] if command == "verify" else [])]
    code, out, err = run(*words)
    assert code == 2 and out == ""
    assert err.startswith(f"quadsense: {file} ") and err.count("\n") == 1
    if command == "verify":
        code, out, err = run("verify", "whole.npz", file)
        assert code == 2 and file in err and err.count("\n") == 1


@pytest.mark.parametrize("suffix", sampled(["mat", "h5", "parquet"], 1))
def test_a_cut_file_is_one_line_in_a_process_of_its_own(tmp_path, suffix):
    quadsense.Measurements(np.eye(20), np.ones(20)).save(tmp_path / f"d.{suffix}")
    content = (tmp_path / f"d.{suffix}").read_bytes()
    (tmp_path / f"d.{suffix}").write_bytes(content[: len(content) // 2])
    done = subprocess.run(
        [sys.executable, "-m", "quadsense", "solve", f"d.{suffix}", "--delta", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"quadsense: d.{suffix} ") and done.stderr.count("\n") == 1


def test_unknown_outputs_are_refused_before_the_work(run, monkeypatch):
    np.savez("d.npz", U=np.eye(2), b=np.ones(2))
    monkeypatch.setattr(quadsense, "solve", lambda *a, **k: pytest.fail("the solve was started"))
    for words, said in (
        (["--dense", "A.xlsx"], "A.xlsx is no name for A: it must end in .npz, .npy"),
        (["-o", "r.mat"], "it must end in .npz"),
        (["--dense", "d.npz"], "would overwrite the input"),
    ):
        code, out, err = run("solve", "d.npz", "--delta", 1, *words)
        assert (code, out) == (2, "")
        assert said in err
    assert os.listdir() == ["d.npz"]


def test_help_of_every_command_has_examples():
    for name in cli.cli.commands:
        shown = CliRunner().invoke(cli.cli, [name, "--help"]).output
        assert f"quadsense {name}" in shown, name


# --- the bar ----------------------------------------------------------------------------------


def test_time_left_of_an_even_fall_is_exact():
    from quadsense.run.progress import seconds_left

    seconds = np.linspace(0.0, 10.0, 101)
    ratios = np.exp(20.0 - seconds)  # reaches 1 after 20 seconds
    for k in (10, 50, 101):
        assert seconds_left(seconds[:k], ratios[:k]) == pytest.approx(20.0 - seconds[k - 1])


@pytest.mark.parametrize(
    "ratios",
    [
        np.full(50, 7.0),
        np.linspace(1.0, 9.0, 50),
        np.linspace(3.0, 0.5, 50),  # there already
        1.0 + np.exp(-np.arange(50.0)),  # slower and slower
        np.exp(10.0 - np.arange(50.0) ** 2 / 300.0)[:5],  # too few looks
        np.append(np.linspace(9.0, 2.0, 49), np.inf),
        np.append(np.linspace(9.0, 2.0, 49), np.nan),
    ],
)
def test_time_left_is_not_said_where_it_is_not_known(ratios):
    from quadsense.run.progress import seconds_left

    assert seconds_left(np.arange(len(ratios), dtype=float), ratios) is None


def test_the_bar_says_the_time_that_is_left_only_where_there_is_a_goal():
    from types import SimpleNamespace

    from quadsense.run.progress import Bar

    bar = object.__new__(Bar)
    rows = [(k, float(k), 0.0, np.exp(200.0 - k)) for k in range(100)]
    for target, text in ((True, ", about 101 s left"), (False, "")):
        bar.problem = SimpleNamespace(target=target)
        said = bar._time_left(rows)
        assert said == text.replace("101 s", "2 min")


# --- the pages --------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]


def test_commands_in_the_pages_are_commands():
    found = 0
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for line in re.findall(r"^\$ (quadsense .*)$", page.read_text("utf-8"), re.MULTILINE):
            words = shlex.split(re.split(r" [|>]|  #", line)[0])
            command = cli.cli.commands[words[1]]
            context = click.Context(command)
            known = {name for each in command.get_params(context) for name in each.opts}
            options = {word for word in words[2:] if re.match(r"--?[a-zA-Z]", word)}
            assert options <= known, line
            found += 1
    assert found > 20


def test_the_code_of_the_page_on_files_runs(run):
    text = (ROOT / "docs" / "files.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names = {}
    for code in blocks:
        exec(compile(code, "files.md", "exec"), names)
    assert names["many"].m == 9
    assert {"data.mat", "result.npz", "A.csv"} <= set(os.listdir())
    assert run("verify", "data.mat", "result.npz")[0] == 0


def test_every_format_is_on_the_page():
    from quadsense.files import FORMATS

    text = (ROOT / "docs" / "files.md").read_text("utf-8")
    for each in FORMATS:
        for suffix in each.suffixes:
            assert f"`{suffix}`" in text, suffix


# --- the plan beforehand ----------------------------------------------------------------------

ASKED = {
    "nothing": ([], {}),
    "delta": (["--delta", 0.2], {"delta": 0.2}),
    "rtol": (["--delta", 0.1, "--rtol", 0.3], {"delta": 0.1, "rtol": 0.3}),
    "bounds": (["--bounds", -40, 50], {"bounds": (-40, 50)}),
    "one end": (["--bounds", "-inf", 50], {"bounds": (-np.inf, 50)}),
    "minimax": (["--prefer", "minimax"], {"prefer": "minimax"}),
    "center": (
        ["--delta", 0.5, "--psd", "--prefer", "center"],
        {"delta": 0.5, "psd": True, "prefer": "center"},
    ),
    "trace": (
        ["--delta", 0.5, "--psd", "--trace", "1,90", "--prefer", "min_trace"],
        {"delta": 0.5, "psd": True, "trace": (1, 90), "prefer": "min_trace"},
    ),
    "psd": (["--psd"], {"psd": True}),
    "rank": (["--rank", 2, "--delta", 9], {"rank": 2, "delta": 9}),
    "signs": (["--rank", "2,1", "--max-restarts", 3], {"rank": (2, 1), "max_restarts": 3}),
    "ridge": (["--delta", 1, "--ridge", 0], {"delta": 1, "ridge": 0.0}),
    "prior": (["--delta", 1, "--prior", 2.5], {"delta": 1, "prior": 2.5}),
    "nearest": (
        ["--delta", 1, "--prior", 2.5, "--prefer", "nearest"],
        {"delta": 1, "prior": 2.5, "prefer": "nearest"},
    ),
    "slack": (["--delta", 0.01, "--slack", "sum"], {"delta": 0.01, "slack": "sum"}),
    "weights": (["--delta", 1, "--weights", 3], {"delta": 1, "weights": 3.0}),
    "violations": (
        ["--delta", 1, "--allow-violations", 1],
        {"delta": 1, "allow_violations": 1},
    ),
    "method": (["--delta", 1, "--method", "gd"], {"delta": 1, "method": "gd"}),
    "paper": (
        ["--delta", 1, "--method", "gd", "--schedule", "paper"],
        {"delta": 1, "method": "gd", "schedule": "paper", "max_iter": 1},
    ),
    "gap": (["--delta", 1, "--gap", 1e-4], {"delta": 1, "gap": 1e-4}),
    "start": (["--delta", 1, "--start", "zero"], {"delta": 1, "start": "zero"}),
    "conjugate": (["--delta", 1, "--conjugate"], {"delta": 1, "conjugate": True}),
}


@pytest.mark.parametrize(("name", "m"), cover(ASKED, [12, 60], quick=8))
def test_inspect_prints_the_plan_that_solve_follows(name, m, printed, run):
    words, options = ASKED[name]
    p = quadsense.datasets.gaussian(n=6, m=m, seed=0, noise=0.1, complex=name == "conjugate")
    np.savez("d.npz", U=p.U, b=p.b)
    b = None if "bounds" in options else p.b
    plan = quadsense.solve(p.U, b, **options).plan
    found = printed("inspect", "d.npz", *words)["plan"]
    assert found["methods"] == plan["methods"]
    assert found["coordinates"] == plan["coordinates"] and found["gram"] == plan["gram"]
    assert found["reasons"][0] == plan["reasons"][0]  # which A, and why
    assert plan["reasons"][0] in " ".join(run("inspect", "d.npz", *words)[1].split())


def test_inspect_refuses_what_solve_refuses(run):
    np.savez("d.npz", U=np.eye(3), b=np.ones(3))
    for words in (
        ["--prefer", "center"],
        ["--slack", "sum"],
        ["--delta", 1, "--method", "low_rank"],
    ):
        told = [run(command, "d.npz", *words) for command in ("inspect", "solve")]
        assert told[0][0] == told[1][0] == 2
        assert told[0][2] == told[1][2]
    code, _, err = run("inspect", "--n", 3, "--m", 4, "--delta", 0.1)
    assert code == 2 and "--delta is about readings: it goes with a FILE" in err
