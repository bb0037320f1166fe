"""Checkpoints: what is interrupted goes on bit for bit, and what is damaged or of others is not."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
import survival
import toy
from helpers import deep, sampled
from kinds import strips
from survival import bits, rows_and_readings, solved

import quadsense
from quadsense import Status, methods
from quadsense.methods import METHODS
from quadsense.query import plan
from quadsense.run import fingerprint
from quadsense.run.journal import Journal
from quadsense.stages import path as solve_path
from quadsense.system.machine import Rates

HERE = Path(__file__).parents[1]

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Whose order of sums is always the same, and which a fork takes along."""


class Kill(BaseException):
    """As SIGKILL would: nothing is written any more."""


@pytest.fixture
def killing(monkeypatch):
    """A callback that ends everything at its k-th call, and lets nothing be written then."""
    leave = Journal.__exit__

    def gone(self, *exception):
        if exception[0] is Kill:
            self._folder.leave()
        else:
            leave(self, *exception)

    monkeypatch.setattr(Journal, "__exit__", gone)

    def after(count):
        left = [count]

        def callback(at):
            left[0] -= 1
            if left[0] == 0:
                raise Kill

        return callback

    return after


def killed(killing, name, folder, strides, every=0.0, **named):
    """A case that is killed after that many strides, or ends before."""
    try:
        solved(name, checkpoint=folder, checkpoint_every=every, callback=killing(strides), **named)
    except Kill:
        return True
    return False


# --- the same bits -----------------------------------------------------------------------------


def test_every_method_has_a_run_to_kill():
    assert set(METHODS) == set(survival.METHODS)
    assert set(survival.METHODS) < set(survival.cases())


@pytest.mark.deep
def test_every_method_survives_sigkill_at_random_moments():
    """A process for all; twenty of each, and of every other case: ``make test-kills``."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **ONE_THREAD}
    command = [sys.executable, str(HERE / "survival.py"), "--kills", "2", "--only"]
    done = subprocess.run(
        [*command, *survival.METHODS, "violations"], capture_output=True, text=True,
        env=environment, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("bit for bit\n")


KILLED = (
    "closed_form",
    "gd",
    "sgd",
    "cg",
    "minimax",
    "psd",
    "low_rank",
    "conic",
    "least_squares",
    "consensus",
    "bounds",
)
"""Runs that the quick tests kill: one of each method."""


@pytest.mark.parametrize(
    "name",
    [
        name if name in KILLED else deep(name)
        for name in survival.cases()
        if name not in survival.LONG
    ],
)
def test_a_run_that_is_killed_again_and_again_ends_as_if_nothing_had_been(name, tmp_path, killing):
    with np.errstate(all="raise", under="ignore"):
        whole = solved(name)
        length, kills = max(len(whole.history), 3), 0
        rng = np.random.default_rng(len(name))
        while kills < 4 and killed(killing, name, tmp_path / "c", rng.integers(1, length // 2 + 1)):
            kills += 1
        assert kills
        assert bits(solved(name, checkpoint=tmp_path / "c")) == bits(whole)
        assert bits(solved(name, checkpoint=tmp_path / "c")) == bits(whole)  # and at once again


@pytest.mark.slow
def test_a_solve_that_is_over_is_not_run_again(tmp_path, killing):
    whole = solved("psd refuted", checkpoint=tmp_path / "c")
    again = solved("psd refuted", checkpoint=tmp_path / "c", callback=killing(1))
    assert bits(again) == bits(whole)
    assert again.history.seconds[-1] == whole.history.seconds[-1]


@pytest.mark.parametrize("every", [0.0, 0.003, 1e9])
def test_writing_changes_nothing(every, tmp_path):
    for name in ("sgd", "violations", "least_squares"):
        result = solved(name, checkpoint=tmp_path / name, checkpoint_every=every)
        assert bits(result) == bits(solved(name))
        assert "checkpoint" in result.timings


# --- limits and signals ------------------------------------------------------------------------


@pytest.mark.parametrize("name", sampled(["gd", "psd refuted", "violations psd"], 1))
def test_a_time_limit_counts_from_the_call_and_the_next_call_goes_on(name, tmp_path):
    folder = tmp_path / "c"
    statuses = [
        solved(name, checkpoint=folder, time_limit=limit).status for limit in (0.0, 0.01, 0.04)
    ]
    assert statuses[0] is Status.TIME_LIMIT
    assert bits(solved(name, checkpoint=folder)) == bits(solved(name))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_a_last_checkpoint(number, tmp_path, monkeypatch):
    """At once, however seldom it would be written otherwise; the solve goes on from that stride."""
    seen, put_together = [], solve_path.to_result

    def later(*arguments):
        assert (tmp_path / "c" / "current.npz").exists()
        return put_together(*arguments)

    monkeypatch.setattr(solve_path, "to_result", later)

    def press(at):
        seen.append(at.n_iter)
        if len(seen) == 5:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt) as caught:
        solved("gd", checkpoint=tmp_path / "c", checkpoint_every=1e9, callback=press)
    assert caught.value.result.status is Status.INTERRUPTED
    monkeypatch.undo()
    result = solved("gd", checkpoint=tmp_path / "c", callback=lambda at: seen.append(at.n_iter))
    assert bits(result) == bits(solved("gd"))
    assert seen == sorted(set(seen))  # no stride was made twice


def test_a_callback_that_ends_the_run_leaves_it_to_be_taken_up(tmp_path):
    def stop(at):
        raise StopIteration

    for _ in range(3):
        stopped = solved("least_squares slack", checkpoint=tmp_path / "c", callback=stop)
        assert stopped.status is Status.INTERRUPTED
    whole = solved("least_squares slack")
    assert stopped.n_iter == whole.history.iteration[3]
    assert bits(solved("least_squares slack", checkpoint=tmp_path / "c")) == bits(whole)


def test_an_exception_of_the_callback_loses_nothing(tmp_path):
    seen = []

    def fail(at):
        seen.append(at.n_iter)
        if len(seen) == 4:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        solved("gd", checkpoint=tmp_path / "c", checkpoint_every=1e9, callback=fail)
    solved("gd", checkpoint=tmp_path / "c", callback=lambda at: seen.append(at.n_iter))
    assert seen == sorted(set(seen))


# --- files -------------------------------------------------------------------------------------


def test_a_folder_holds_arrays_and_texts_only(tmp_path, killing):
    assert killed(killing, "violations", tmp_path / "c", 4)
    found = sorted(path.name for path in (tmp_path / "c").iterdir())
    assert found[0] == ".lock"
    assert {"request.npz", "request.npz.previous"} < set(found)
    for path in (tmp_path / "c").glob("*.npz*"):
        with np.load(path, allow_pickle=False) as held:
            assert all(held[name].dtype.kind in "fciubU" for name in held.files)


def damaged(path, how):
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "changed":
        path.write_bytes(data[: len(data) // 2] + b"\x55\xaa" + data[len(data) // 2 + 2 :])
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["cut", "empty", "changed", "gone"])
def test_a_damaged_file_leaves_the_one_before_usable(how, tmp_path, killing):
    whole = bits(solved("least_squares slack"))
    assert killed(killing, "least_squares slack", tmp_path / "c", 5)
    seen = []
    damaged(tmp_path / "c" / "current.npz", how)
    damaged(tmp_path / "c" / "request.npz", how)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = solved(
            "least_squares slack",
            checkpoint=tmp_path / "c",
            callback=lambda at: seen.append(at.n_iter),
        )
    assert bits(result) == whole
    assert result.history.iteration[5] == seen[0]  # one stride was lost, no more
    assert len(said) == (0 if how == "gone" else 2)
    assert all("is damaged" in str(each.message) for each in said)


@pytest.mark.parametrize("how", ["cut", "empty", "gone"])
def test_a_damaged_run_that_was_over_is_run_again(how, tmp_path, killing):
    whole = bits(solved("violations"))
    assert killed(killing, "violations", tmp_path / "c", 6)
    over = sorted((tmp_path / "c").glob("runs*"))
    assert len(over) > 1
    damaged(over[0], how)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert bits(solved("violations", checkpoint=tmp_path / "c")) == whole
    assert (how == "gone") or any("begins anew" in str(each.message) for each in said)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if how == "gone":
            assert bits(solved("violations", checkpoint=tmp_path / "c")) == whole


def test_no_bit_that_is_flipped_is_taken_for_a_state(tmp_path, killing):
    """Anywhere in a file: the one before serves, or it was where nothing is told."""
    whole = bits(solved("conic"))
    assert killed(killing, "conic", tmp_path / "c", 4)
    rng = np.random.default_rng(0)
    for i in range(12):
        shutil.copytree(tmp_path / "c", tmp_path / "d")
        path = tmp_path / "d" / "current.npz"
        data = bytearray(path.read_bytes())
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert bits(solved("conic", checkpoint=tmp_path / "d")) == whole, i
        shutil.rmtree(tmp_path / "d")


def test_a_request_that_cannot_be_read_is_refused_in_one_sentence(tmp_path, killing):
    assert killed(killing, "least_squares", tmp_path / "c", 2)
    for path in (tmp_path / "c").glob("request*"):
        damaged(path, "cut")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=r"damaged.*remove it to begin anew"):
            solved("least_squares", checkpoint=tmp_path / "c")


def test_a_full_disk_leaves_the_one_before_and_the_run_goes_on(tmp_path, killing):
    """Files may not grow beyond a few bytes from the third stride on, as where nothing is free."""
    folder, whole, files = tmp_path / "c", solved("least_squares slack"), []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full(at):
        if len(files) < 3:
            files.append(sorted(path.read_bytes() for path in folder.glob("current*")))
        if len(files) == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = solved(
                "least_squares slack", checkpoint=folder, checkpoint_every=0.0, callback=full
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert bits(result) == bits(whole)
    assert any("was not written" in str(each.message) for each in said)
    assert sorted(path.read_bytes() for path in folder.glob("current*")) == files[-1]
    assert not [path for path in folder.iterdir() if path.is_dir()]  # nothing half-written
    seen = []
    again = solved(
        "least_squares slack", checkpoint=folder, callback=lambda at: seen.append(at.n_iter)
    )
    assert bits(again) == bits(whole)
    assert seen[0] == whole.history.iteration[4]


def test_a_disk_that_is_full_from_the_beginning_is_said_before_the_work(tmp_path, monkeypatch):
    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("quadsense.run.journal.save", full)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        solved("cg", checkpoint=tmp_path / "c")


def test_drafts_of_a_run_that_was_killed_are_cleared_away(tmp_path):
    draft = tmp_path / "c" / ".current.npz.abc"
    draft.mkdir(parents=True)
    (draft / "current.npz").write_bytes(b"half")
    solved("cg", checkpoint=tmp_path / "c")
    assert not draft.exists()


# --- whose it is -------------------------------------------------------------------------------

U, B = rows_and_readings(20, 5)
GIVEN = {"delta": 0.1, "rng": 3, "max_iter": 2}


def refused(folder, words, U=U, b=B, **named):
    with pytest.raises(ValueError, match=words) as caught:
        quadsense.solve(U, b, checkpoint=folder, **{**GIVEN, **named})
    assert "\n" not in str(caught.value)


def test_another_request_is_refused_by_the_name_of_what_differs(tmp_path):
    folder = tmp_path / "c"
    quadsense.solve(U, B, checkpoint=folder, **GIVEN)
    before = {path.name: path.read_bytes() for path in folder.glob("*.npz*")}
    for name, value in {
        "delta": 0.2, "rtol": 0.1, "psd": True, "rank": 2, "trace": 1.0, "prefer": "any",
        "prior": np.eye(5), "ridge": 0.5, "slack": "sum", "allow_violations": 1, "method": "cg",
        "schedule": "paper", "start": np.ones((5, 5)), "rng": 4, "max_iter": 3,
        "weights": np.ones(20), "conjugate": True, "gap": 0.5,
        "constraints": [(np.eye(5), 0.0, np.inf)],
    }.items():  # fmt: skip
        extra = {"method": "gd"} if name == "schedule" else {}
        wanted = "method|schedule" if extra else name
        refused(folder, f"of another request, ({wanted}) differs", **{name: value, **extra})
    refused(folder, "of another request, (delta|bounds) differs", delta=None, bounds=(0.0, 1.0))
    assert {path.name: path.read_bytes() for path in folder.glob("*.npz*")} == before
    same = {"psd": False, "checkpoint_every": 1, "time_limit": 100, "progress": False}
    quadsense.solve(U.copy(), B.tolist(), checkpoint=folder, **GIVEN, **same)


def test_other_data_are_refused_to_the_last_bit(tmp_path):
    folder = tmp_path / "c"
    quadsense.solve(U, B, checkpoint=folder, **GIVEN)
    for row, column in ((0, 0), (19, 4), (7, 2)):
        other = U.copy()
        other[row, column] = np.nextafter(other[row, column], 9.0)
        refused(folder, "of other data, U differs", U=other)
    other = B.copy()
    other[7] = np.nextafter(other[7], 9.0)
    refused(folder, "of other data, b differs", b=other)
    refused(folder, "of other data, U differs", U=U[:-1], b=B[:-1])
    refused(
        folder,
        r"rows held otherwise \(dense of numpy there, sparse of scipy here\): even if",
        U=sp.csr_array(U),
    )
    refused(folder, "of other data, U differs", U=sp.csr_array(U[:-1]), b=B[:-1])


def test_the_same_rows_held_elsewhere_are_told_from_other_data(tmp_path):
    np.save(tmp_path / "U.npy", U)
    folder, rows = tmp_path / "c", strips(tmp_path / "U.npy", 7)
    parts = len(rows)
    quadsense.solve(rows, B, checkpoint=folder, **GIVEN)
    refused(folder, rf"held otherwise \(.* in {parts} parts there, dense of numpy here\)", U=U)
    fewer = strips(tmp_path / "U.npy", 10)
    refused(folder, rf"in {parts} parts there, .* in {len(fewer)} parts here", U=fewer)


def other_kinds():
    fourier, far = survival._fourier(4, 6), survival._distances(9, 30)
    return {
        "sparse": (sp.csr_array(U), B, sp.csr_array(np.where(U[3, 2] == U, 9.0, U))),
        "strict": (array_api_strict.asarray(U), B, array_api_strict.asarray(U + 1e-9)),
        "float32": (U.astype(np.float32), B, np.nextafter(U.astype(np.float32), np.float32(9))),
        "fourier": (*fourier, survival._fourier(4, 6, seed=1)[0]),
        "differences": (*far, survival._distances(9, 30, seed=5)[0]),
    }


@pytest.mark.parametrize("kind", other_kinds())
def test_other_data_of_every_kind_are_refused(kind, tmp_path):
    rows, b, other = other_kinds()[kind]
    for _ in range(2):
        quadsense.solve(rows, b, checkpoint=tmp_path / "c", **GIVEN)
    refused(tmp_path / "c", "of other data, U differs", U=other, b=b)


def test_another_mix_is_refused(tmp_path):
    (rows, b), named = survival.cases()["mix"]()
    quadsense.solve(rows, b, checkpoint=tmp_path / "c", **named)
    with pytest.raises(ValueError, match="of other data, mix differs"):
        quadsense.solve(rows, b, checkpoint=tmp_path / "c", **{**named, "mix": 2.0 * named["mix"]})


def test_large_arrays_are_known_by_rows_of_them(monkeypatch):
    monkeypatch.setattr(fingerprint, "MAX_HASHED_BYTES", 1000)
    values = np.arange(4000.0).reshape(400, 10)
    for row, seen in ((0, True), (399, True), (1, False)):
        other = values.copy()
        other[row] += 1.0
        assert (fingerprint.mark(other) != fingerprint.mark(values)) is seen
    assert fingerprint.mark(values[:-1]) != fingerprint.mark(values)


def test_marks_tell_values_apart_and_not_how_they_are_written():
    same = [(1, 1.0), (np.float64(2), 2), (None, False), (0.5, np.float32(0.5)), ((1, 2), [1, 2.0])]
    for one, two in same:
        assert fingerprint.mark(one) == fingerprint.mark(two)
    matrix = solved("cg").matrix
    apart = [
        None, True, 0, 1, 2**60, 2**60 + 1, np.inf, -np.inf, "any", "max", (1, 2), (2, 1),
        np.eye(2), np.eye(2)[:1], np.eye(2, dtype=np.float32), np.array(1.0), np.empty((0, 2)),
        sp.eye_array(2), matrix, quadsense.SensedMatrix.from_factor(np.eye(2)),
        quadsense.SensedMatrix.from_dense(np.eye(2)),
    ]  # fmt: skip
    marks = [fingerprint.mark(value) for value in apart]
    assert len(set(marks)) == len(marks)
    assert fingerprint.mark(solved("cg")) == fingerprint.mark(matrix)


def test_seeds_are_kept(tmp_path, killing):
    """None and a generator that has moved on: the seed of the beginning; a number: the same."""
    (rows, b), named = survival.cases()["sgd"]()
    named.pop("rng")
    for i, rng in enumerate((None, np.random.default_rng(5), np.random.SeedSequence(4))):
        folder, moved = tmp_path / str(i), rng
        with pytest.raises(Kill):
            quadsense.solve(
                rows, b, rng=moved, checkpoint=folder, checkpoint_every=0.0, callback=killing(4),
                **named,
            )  # fmt: skip
        first = quadsense.solve(rows, b, rng=moved, checkpoint=folder, **named)
        again = quadsense.solve(rows, b, rng=moved, checkpoint=folder, **named)
        assert first.A.tobytes() == again.A.tobytes()
    whole = quadsense.solve(rows, b, rng=np.random.SeedSequence(4), **named)
    assert first.A.tobytes() == whole.A.tobytes()
    with pytest.raises(ValueError, match="rng differs"):
        quadsense.solve(rows, b, rng=5, checkpoint=folder, **named)


def test_a_run_goes_on_with_less_memory_and_other_rates(tmp_path, killing, monkeypatch):
    whole = solved("gd")
    assert killed(killing, "gd", tmp_path / "c", 5)
    monkeypatch.setattr(plan, "available_memory", lambda: whole.plan["memory"])
    monkeypatch.setattr(plan, "known_rates", lambda: Rates(1e3, 1e3, True))
    limit = 2 * whole.plan["memory"]
    result = solved("gd", checkpoint=tmp_path / "c", memory_limit=limit)
    assert result.A.tobytes() == whole.A.tobytes()
    assert result.n_iter == whole.n_iter and len(result.history) == len(whole.history)


def test_another_version_is_refused_and_another_numpy_is_not(tmp_path, monkeypatch):
    folder = tmp_path / "c"
    quadsense.solve(U, B, checkpoint=folder, **GIVEN)
    versions = {**quadsense.query.query.environment(), "numpy": "1.0", "python": "3.0"}
    monkeypatch.setattr("quadsense.stages.path.environment", lambda: dict(versions))
    quadsense.solve(U, B, checkpoint=folder, **GIVEN)
    versions["quadsense"] = "9.9"
    refused(folder, f"was written by quadsense {quadsense.__version__}, this is 9.9")


def test_a_folder_in_use_and_folders_of_others_are_refused(tmp_path):
    def inside(at):
        refused(tmp_path / "c", "in use by another solve")
        raise StopIteration

    quadsense.solve(U, B, checkpoint=tmp_path / "c", callback=inside, **GIVEN)
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "is a file: give a folder")
    refused(tmp_path, "holds other files")
    refused(tmp_path / "no" / "c", "the folder no does not exist")
    for bad in (3, b"", "", ["a"]):
        refused(bad, "checkpoint must be the path of a folder")
    for bad in (-1.0, None, "1", np.nan):
        refused(tmp_path / "d", "checkpoint_every must be", checkpoint_every=bad)
    assert not (tmp_path / "d").exists()
    refused(tmp_path / "d", "max_iter must be", max_iter=-1)  # bad input leaves nothing behind
    refused(tmp_path / "d", "takes no 'gap'", method="cg", gap=0.1)
    assert not (tmp_path / "d").exists()


def test_a_method_from_elsewhere_goes_on_too(tmp_path, killing):
    methods.register(toy.Toy)
    try:
        named = {"delta": 1e-6, "method": "toy"}
        whole = quadsense.solve(U[:6], B[:6], **named)
        with pytest.raises(Kill):
            quadsense.solve(
                U[:6], B[:6], checkpoint=tmp_path / "c", checkpoint_every=0.0,
                callback=killing(3), **named,
            )  # fmt: skip
        seen = []
        result = quadsense.solve(
            U[:6], B[:6], checkpoint=tmp_path / "c", callback=lambda at: seen.append(at.n_iter),
            **named,
        )  # fmt: skip
        assert bits(result) == bits(whole)
        assert seen[0] == 4
    finally:
        METHODS._registered.clear()


# --- the command -------------------------------------------------------------------------------


def test_the_command_goes_on_where_it_was(tmp_path, run):
    (rows, b), _ = survival.cases()["factored restarts"]()
    np.savez(tmp_path / "d.npz", U=rows, b=b)
    words = ["solve", tmp_path / "d.npz", "--delta", "1e-9", "--rank", "1", "--max-restarts", "3"]
    kept = ["--checkpoint", tmp_path / "c", "--checkpoint-every", "0"]
    status, _, _ = run(*words, *kept, "--time-limit", "0.02", "-o", tmp_path / "r.npz")
    assert status == 3
    status, _, _ = run(*words, *kept, "-o", tmp_path / "r.npz")
    run(*words, "-o", tmp_path / "w.npz")
    one, two = (quadsense.load_result(tmp_path / name) for name in ("r.npz", "w.npz"))
    assert one.A.tobytes() == two.A.tobytes()
    assert one.n_iter == two.n_iter
    status, _, said = run(*words[:-2], *kept, "--quiet")
    assert status == 2
    assert "is of another request, max_restarts differs" in said
    begun = ["--start", tmp_path / "r.npz", "--quiet"]
    assert run(*words[:3], "5", "--rank", "1", *begun)[0] in (0, 3)
