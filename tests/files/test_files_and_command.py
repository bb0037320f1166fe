"""Files that survive, and the command with its exit statuses."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from helpers import gaussian_rows, readings

import quadsense
from quadsense import cli, files


@pytest.fixture
def data(tmp_path, run):
    path = tmp_path / "data.npz"
    assert run("generate", "--kind", "gaussian", "--n", 12, "--m", 30, "-o", path)[0] == 0
    return path


# --- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(12, 5), (5, 12)], ids=["implicit", "dense"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_result_comes_back_whole(tmp_path, n, m, sparse, complex_):
    rng = np.random.default_rng(0)
    U = gaussian_rows(rng, m, n, complex_) * (rng.random((m, n)) < 0.6)
    U[:, 0] = 1.0
    b = rng.random(m)
    V = sp.csr_array(U) if sparse else U
    result = quadsense.solve(V, b, delta=0.3, method="gd", max_iter=3000)
    result.save(tmp_path / "r.npz")
    back = quadsense.load_result(tmp_path / "r.npz")
    np.testing.assert_allclose(back.A, result.A, atol=1e-14)
    for name in (
        "status",
        "message",
        "verdict",
        "n_iter",
        "max_residual",
        "max_ratio",
        "unique",
        "unseen",
        "timings",
        "plan",
    ):
        assert getattr(back, name) == getattr(result, name)
    for name in ("residuals", "violations"):
        np.testing.assert_array_equal(getattr(back, name), getattr(result, name))
    for name, values in result.history.__dict__.items():
        np.testing.assert_array_equal(getattr(back.history, name), values)
    assert back.certificate.verify(V, b) == result.success
    assert back.certificate.kind == result.certificate.kind


def test_a_result_file_cannot_hide_a_false_claim(tmp_path):
    p = quadsense.datasets.gaussian(n=6, m=10, seed=0)
    quadsense.solve(p.U, p.b, delta=0.01).save(tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as archive:
        arrays = dict(archive)
    arrays["matrix.c"] = arrays["matrix.c"] + 0.1
    np.savez(tmp_path / "r.npz", **arrays)
    assert not quadsense.load_result(tmp_path / "r.npz").certificate.verify(p.U, p.b)


def test_nothing_is_pickled_or_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "boom"),))

    np.savez(tmp_path / "bomb.npz", U=np.array([Bomb()], dtype=object), b=np.ones(1))
    (tmp_path / "bomb.pkl").write_bytes(pickle.dumps(Bomb()))
    for name in ("bomb.npz", "bomb.pkl"):
        with pytest.raises(ValueError, match=r"pickled objects|no known format|holds no numbers"):
            quadsense.Measurements.open(tmp_path / name)
        with pytest.raises(ValueError, match="bomb"):
            quadsense.load_result(tmp_path / name)
    assert not (tmp_path / "boom").exists()


def test_objects_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        files.write_arrays(tmp_path / "x.npz", {"a": np.array([object()])}, {})
    assert not list(tmp_path.iterdir())


def test_damaged_files_are_said_to_be_so(tmp_path, data):
    whole = data.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.99):
        cut = tmp_path / "cut.npz"
        cut.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match=r"damaged or not an \.npz file"):
            quadsense.Measurements.open(cut)
    np.save(tmp_path / "one.npy", np.eye(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(ValueError, match=r"not an \.npz file \(it holds a single array\)"):
        quadsense.Measurements.open(tmp_path / "one.npz")
    with pytest.raises(ValueError, match="does not exist"):
        quadsense.Measurements.open(tmp_path / "absent.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is a directory without files of measurements"):
        quadsense.Measurements.open(tmp_path / "empty")
    with pytest.raises(ValueError, match="is not a quadsense result; it holds A_star, U, b"):
        quadsense.load_result(data)


def test_open_reads_named_arrays_bounds_and_sparse(tmp_path):
    S = sp.csr_array(np.eye(3))
    files.write_arrays(tmp_path / "d.npz", {"probes": S, "y": np.ones(3), "delta": 0.5}, {})
    data = quadsense.Measurements.open(tmp_path / "d.npz", U="probes", b="y")
    assert sp.issparse(data.unit_rows.kind.U)
    np.testing.assert_array_equal(data.tolerance, 0.5)
    assert quadsense.Measurements.open(tmp_path / "d.npz").notes == ("U is 'probes'", "b is 'y'")
    with pytest.raises(ValueError, match=r"holds no array named 'V'; it holds delta .*, probes "):
        quadsense.Measurements.open(tmp_path / "d.npz", U="V")
    np.savez(tmp_path / "b.npz", U=np.eye(2), lo=np.zeros(2), hi=np.ones(2))
    np.testing.assert_array_equal(quadsense.Measurements.open(tmp_path / "b.npz").b, 0.5)
    np.savez(tmp_path / "u.npz", U=np.eye(2))
    with pytest.raises(ValueError, match="holds no array named 'b'"):
        quadsense.Measurements.open(tmp_path / "u.npz")


def test_a_name_that_promises_another_format_is_refused(tmp_path):
    data = quadsense.Measurements(np.eye(2), [1.0, 2.0], delta=0.1)
    result = quadsense.solve(data)
    for save in (data.save, result.save):
        for name in ("x.json", "x.npy", "x"):
            with pytest.raises(ValueError, match=f"{name} .* must end in .npz|x.npy cannot hold"):
                save(tmp_path / name)
        save(tmp_path / "X.NPZ")
    assert [path.name for path in tmp_path.iterdir()] == ["X.NPZ"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.npz"
    files.write_arrays(path, {"a": np.ones(2)}, {})
    with pytest.raises(TypeError):
        files.write_arrays(path, {"a": np.zeros(2)}, {"bad": object()})

    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_arrays(path, {"a": Broken()}, {})
    np.testing.assert_array_equal(files.read_arrays(path)["a"], 1.0)
    assert os.listdir(tmp_path) == ["x.npz"]


# --- the command -------------------------------------------------------------------------------


def test_generate_inspect_solve_verify(run, data, tmp_path):
    code, out, _ = run("inspect", data)
    assert code == 0
    assert "m = 30, n = 12, dense real" in out
    assert "48 of 78 directions of A are unseen" in out
    result, dense = tmp_path / "r.npz", tmp_path / "A.npy"
    code, out, _ = run("solve", data, "--delta", 0.01, "-o", result, "--dense", dense)
    assert code == 0
    assert out.startswith("verdict     met: all 30 measurements within delta = 0.01")
    with np.load(data) as archive:
        U, b = archive["U"], archive["b"]
    assert np.abs(readings(U, np.load(dense)) - b).max() <= 0.01
    code, out, _ = run("verify", data, result)
    assert code == 0
    assert out.startswith("true: met, 30 measurements\n")
    assert "within its interval, rounding included: against delta 0.01\n" in out
    assert run("verify", data, result, "--quiet")[:2] == (0, "")


def test_verify_fails_on_other_data_or_a_tighter_delta(run, data, tmp_path):
    result, other = tmp_path / "r.npz", tmp_path / "other.npz"
    run("solve", data, "--delta", 0.01, "-o", result, "--quiet")
    run("generate", "--n", 12, "--m", 30, "--seed", 1, "-o", other)
    code, out, _ = run("verify", other, result)
    assert code == 3
    assert out.startswith("FALSE")
    assert run("verify", data, result, "--delta", 1e-17)[0] == 3
    run("generate", "--n", 11, "--m", 30, "-o", other)
    code, _, err = run("verify", other, result)
    assert code == 2
    assert "order 12, but the data have n = 11" in err


def test_interval_files_and_tolerances_in_the_file(run, tmp_path):
    U = np.random.default_rng(0).standard_normal((12, 4))
    b = readings(U, np.eye(4))
    data, result = tmp_path / "d.npz", tmp_path / "r.npz"
    np.savez(data, U=U, lo=b - 0.1, hi=np.where(np.arange(12) < 3, np.inf, b + 0.1))
    assert run("solve", data, "-o", result)[0] == 0
    assert run("verify", data, result)[0] == 0
    assert "do not apply" in run("solve", data, "--rtol", 0.1)[2]
    quadsense.Measurements(U, b, delta=0.2).save(data)
    code, _out, _ = run("solve", data, "--rtol", 0.1, "-o", result)
    assert code == 0
    tolerance = quadsense.load_result(result).certificate.tolerance
    np.testing.assert_allclose(tolerance, 0.2 + 0.1 * np.abs(b))
    assert run("verify", data, result)[0] == 0


def test_solvers_from_the_command(run, data, tmp_path):
    result = tmp_path / "r.npz"
    for options in (["--psd"], ["--rank", "auto"], ["--method", "minimax"]):
        assert run("solve", data, "--delta", 0.01, "-o", result, *options)[0] == 0
        assert run("verify", data, result)[0] == 0
    code, out, _ = run("solve", data, "-o", result)
    assert code == 0
    assert out.startswith("verdict     optimal: an exact fit") and "sum of squares" in out
    assert run("verify", data, result)[0] == 0
    noisy = tmp_path / "noisy.npz"
    run("generate", "--n", 4, "--m", 60, "--noise", 0.1, "-o", noisy)
    code, out, _ = run("solve", noisy, "--delta", 0.05, "-o", result)
    assert code == 4
    assert "most of the contradiction" in out
    assert run("verify", noisy, result)[0] == 0
    code, out, _ = run("solve", noisy, "-o", result)
    assert code == 0
    assert "this A meets delta = " in out
    code, out, _ = run("solve", noisy, "--prefer", "minimax", "-o", result)
    assert code == 0
    assert "no matrix does better than" in out
    assert run("verify", noisy, result)[0] == 0
    code, out, _ = run("solve", noisy, "--delta", 0.15, "--allow-violations", 20, "-o", result)
    assert code == 0
    assert run("verify", noisy, result)[0] == 0


def test_inspect_shows_the_plan(run, data, tmp_path, monkeypatch):
    monkeypatch.setenv("QUADSENSE_CACHE", str(tmp_path / "cache"))
    code, out, _ = run("inspect", data, "--delta", 0.1)
    assert code == 0
    assert "cg then conic then least_squares then minimax" in out
    assert "prefer='least_squares': with a weak pull towards a multiple of I" in out
    assert (tmp_path / "cache" / "rates.json").exists()
    code, out, _ = run("inspect", "--n", 300, "--m", 15000, "--psd", "--json")
    assert code == 0
    assert json.loads(out)["plan"]["methods"] == ["conic", "psd"]
    for rank in (3, "auto"):
        code, out, _ = run("inspect", data, "--rank", rank, "--json")
        assert json.loads(out)["plan"]["methods"] == ["low_rank"]
    damaged = tmp_path / "damaged" / "rates.json"
    damaged.parent.mkdir()
    damaged.write_text("[]")
    monkeypatch.setenv("QUADSENSE_CACHE", str(damaged.parent))
    assert run("inspect", "--n", 30, "--m", 150)[0] == 0
    assert json.loads(damaged.read_text())["flops"] > 0  # measured again


def test_damaged_results_are_said_to_be_so(tmp_path):
    p = quadsense.datasets.gaussian(n=6, m=10, seed=0)
    quadsense.solve(p.U, p.b, delta=0.01).save(tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as archive:
        whole = dict(archive)
    text, history = str(whole["metadata"]), whole["result.history.lam"]
    more = text.replace('"lam": ', '"extra": {"array": "result.history.lam"}, "lam": ')
    assert more != text
    for change in (
        {"result.certificate.tolerance": None},
        {"result.history.lam": history.astype(str)},
        {"metadata": more},
        {"metadata": text.replace('"lam": ', '"extra": ')},
        {"metadata": "[1]"},
        {"metadata": '{"a": ' * 100_000 + "1" + "}" * 100_000},
        {"metadata": text.replace('"version": 7', '"version": "7"')},
    ):
        arrays = {k: v for k, v in {**whole, **change}.items() if v is not None}
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(ValueError, match=r"is damaged|damaged quadsense|not a quadsense"):
            quadsense.load_result(tmp_path / "bad.npz")


def test_results_with_extreme_norms_come_back(tmp_path):
    rng = np.random.default_rng(0)
    norms = np.array([1e-150, 1e150, 1.0])
    U = rng.standard_normal((3, 40)) * norms[:, None]
    b = rng.random(3) * norms * norms
    quadsense.solve(U, b, delta=1e-3 * norms * norms).save(tmp_path / "r.npz")
    back = quadsense.load_result(tmp_path / "r.npz")
    assert back.certificate.verify(U, b)
    data = quadsense.Measurements(U, b, delta=1e-3 * norms * norms)
    data.save(tmp_path / "d.npz")
    np.testing.assert_array_equal(
        quadsense.Measurements.open(tmp_path / "d.npz").rows(), data.rows()
    )


def test_not_met_is_exit_3_and_is_written(run, data, tmp_path):
    result = tmp_path / "r.npz"
    code, out, _ = run(
        "solve", data, "--delta", 1e-9, "--method", "gd", "--max-iter", 3, "-o", result
    )
    assert code == 3
    assert "max_iter = 3" in out
    assert quadsense.load_result(result).n_iter <= 3
    code, out, _ = run("verify", data, result)
    assert code == 3
    assert out == "no claim: the result's status is max_iter\n"


def test_infeasible_is_exit_4_and_verifies(run, tmp_path):
    data, result = tmp_path / "d.npz", tmp_path / "r.npz"
    np.savez(data, U=np.diag([1.0, 0.0]), b=np.array([1.0, 1.0]))
    assert run("solve", data, "--delta", 0.1, "-o", result)[0] == 4
    assert run("verify", data, result)[0] == 0
    np.savez(data, U=np.diag([1.0, 1.0]), b=np.array([1.0, 1.0]))
    assert run("verify", data, result)[0] == 3


def test_json_has_the_verdict(run, data):
    code, out, _ = run(
        "solve", data, "--delta", 0.01, "--method", "sgd", "--batch-size", 4, "--seed", 3, "--json"
    )
    fields = json.loads(out)
    assert code == 0
    assert fields["status"] == "met"
    assert fields["plan"]["method"] == "sgd"
    assert fields["certificate"]["upper_bound"] <= 1.0
    assert json.loads(run("inspect", data, "--json")[1])["rank"] == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "absent.npz", "--delta", "1"], "absent.npz does not exist"),
        (["solve", "DATA", "--delta", "-1"], "delta must not be negative"),
        (["solve", "DATA", "--delta", "1", "-o", "absent/r.npz"], "folder absent does not exist"),
        (["solve", "DATA", "--delta", "1", "--dense", "/"], "is a directory"),
        (["solve", "DATA", "--delta", "1", "--method", "newton"], "Invalid value for '--method'"),
        (["solve", "DATA", "--delta", "1", "--batch-size", "9"], "takes no 'batch_size'"),
        (["solve", "DATA", "--delta", "x"], "is not a valid float"),
        (
            ["generate", "--n", "3", "--m", "4", "--kind", "orthonormal", "-o", "x.npz"],
            "m must be at most n",
        ),
        (["generate", "--n", "3", "--m", "4", "--rho", "0.1", "-o", "x.npz"], "--rho goes with"),
        (["verify", "DATA", "DATA"], "is not a quadsense result"),
        (["inspect"], "give a FILE, or both --n and --m"),
        (["inspect", "DATA", "--n", "5"], "a FILE says what n and m are"),
        (["inspect", "DATA", "--m", "5"], "a FILE says what n and m are"),
        (["solve", "DATA", "--delta", "1", "-o", "DATA"], "would overwrite the input"),
        (["solve", "DATA", "--delta", "1", "-o", "r.json"], "r.json is no name for what"),
        (["solve", "DATA", "--delta", "1", "-o", "r"], "it must end in .npz"),
        (["solve", "DATA", "--delta", "1", "--dense", "A.json"], "it must end in .npz, .npy, .mat"),
        (["generate", "--n", "3", "--m", "4", "-o", "x.npy"], "x.npy cannot hold U, b and A_star"),
        (["generate", "--n", "3", "--m", "4", "-o", "x.csv"], "leave it out with --no-truth"),
        (["inspect", "--n", "3", "--m", "4", "--rank", "99"], "between 1 and n = 3, got 99"),
        (["inspect", "--n", "3", "--m", "4", "--rank", "0"], "between 1 and n = 3, got 0"),
        (["inspect", "DATA", "--rank", "99"], "a whole number between 1 and n = 12, got 99"),
        (["inspect", "DATA", "--rank", "many"], "--rank must be a whole number or 'auto'"),
        (["solve", "DATA", "--delta", "1", "--rank", "many"], "--rank must be a whole number"),
        (["inspect", "--n", "0", "--m", "4"], "must be at least 1"),
        (["frobnicate"], "No such command"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, data, monkeypatch, arguments, message):
    monkeypatch.chdir(data.parent)
    before = sorted(os.listdir())
    code, out, err = run(*[data if word == "DATA" else word for word in arguments])
    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert sorted(os.listdir()) == before


def test_an_unwritable_output_is_found_before_the_solve(run, data, tmp_path, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("the solve was started")

    monkeypatch.setattr(quadsense, "solve", never)
    assert run("solve", data, "--delta", 1, "-o", tmp_path / "no" / "r.npz")[0] == 2


def test_measured_rates_are_known_from_then_on(tmp_path, monkeypatch):
    from quadsense.system import machine

    monkeypatch.setenv("QUADSENSE_CACHE", str(tmp_path))
    assert not machine.known_rates().measured
    rates = machine.measure_rates()
    assert machine.known_rates() == rates
    (tmp_path / "rates.json").unlink()
    assert machine.known_rates() is machine.known_rates() == rates  # looked up once
    monkeypatch.setenv("QUADSENSE_CACHE", str(tmp_path / "elsewhere"))
    assert not machine.known_rates().measured
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("QUADSENSE_CACHE", str(blocked))  # no folder: nothing can be written
    rates = machine.measure_rates()
    assert machine.known_rates() == rates


def test_rates_in_a_file_are_known_to_the_next_process(tmp_path, monkeypatch):
    (tmp_path / "rates.json").write_text('{"flops": 1e9, "bytes": 2e9}')
    environment = {**os.environ, "QUADSENSE_CACHE": str(tmp_path)}
    program = "from quadsense.system.machine import known_rates; print(known_rates())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "Rates(flops=1000000000.0, bytes=2000000000.0, measured=True)"


def test_help_has_examples():
    for command in ("generate", "inspect", "solve", "verify", "demo"):
        shown = CliRunner().invoke(cli.cli, [command, "--help"]).output
        assert f"quadsense {command}" in shown


def test_ctrl_c_writes_the_best_so_far_and_exits_130(tmp_path):
    U = np.vstack([np.eye(40), np.eye(40)])
    rng = np.random.default_rng(0)
    b = np.concatenate([rng.random(40), rng.random(40)])  # a contradiction: runs until stopped
    np.savez(tmp_path / "d.npz", U=U, b=b)
    code = (
        "import sys; sys.argv = ['quadsense', 'solve', 'd.npz', '--delta', '1e-9', '--method', "
        "'gd', '--schedule', 'paper', '-o', 'r.npz']; "
        "from quadsense.methods.descent import kernels; import quadsense; "
        "quadsense.solve([[1.0],[2.0]], [1.0, 3.9], delta=0.2, method='gd'); "
        "print('go', flush=True); "
        "from quadsense.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "go\n"
    time.sleep(1.0)  # a contradiction runs on: any moment will do, but one inside the run is meant
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in out
    assert quadsense.load_result(tmp_path / "r.npz").status is quadsense.Status.INTERRUPTED


def test_demo_solves_and_verifies_everything(run):
    code, out, _ = run("demo")
    assert code == 0
    lines = [line for line in out.splitlines() if "verified" in line]
    assert len(lines) == 22
    assert sum(" met " in line for line in lines) == 21
    assert sum(" infeasible " in line for line in lines) == 1
    assert "FALSE" not in out
