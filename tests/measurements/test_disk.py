"""Rows in files: read strip by strip, shards put together, files that are not as they should be."""

import copy
import itertools
import os
import pickle
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from helpers import cover, deep, gaussian_rows, sampled
from kinds import strips

import quadsense
from quadsense import Measurements, files
from quadsense.cli import cli
from quadsense.files import sources
from quadsense.files import strips as strip_module
from quadsense.files.sources import natural
from quadsense.system.machine import limited_memory, memory_limit, to_bytes

N = 4


@pytest.fixture
def problem(rng):
    U = rng.standard_normal((60, N)).astype(np.float32)
    A = rng.standard_normal((N, N))
    wide = U.astype(np.float64)
    return U, np.einsum("ij,jk,ik->i", wide, A + A.T, wide)


@pytest.fixture(autouse=True)
def short_strips(monkeypatch):
    """Seven rows of four numbers in single precision a strip."""
    monkeypatch.setattr(strip_module, "STRIP_BYTES", 7 * N * 4)


def saved(folder, U, b, form, parts=5):
    """Shards of measurements in a format, and where they are."""
    folder.mkdir()
    edges = np.linspace(0, len(U), parts + 1).astype(int)
    for i, (first, last) in enumerate(itertools.pairwise(edges)):
        own = Measurements(U[first:last], b[first:last], delta=0.01)
        own.save(folder / f"part-{i}.{form}")
    return folder


def cut(folder, parts, b=None):
    """HDF5 files of these rows each, and the readings of each, or none."""
    folder.mkdir(exist_ok=True)
    readings = None if b is None else np.split(b, len(parts))
    for i, rows in enumerate(parts):
        own = {} if readings is None else {"b": readings[i]}
        files.write(folder / f"part-{i}.h5", {"U": rows, **own}, {})
    return folder


# --- the same answers --------------------------------------------------------------------------


@pytest.mark.parametrize("form", sampled(["npz", "h5", "csv", "zarr", "parquet", "mat"], 3))
def test_shards_of_every_format_are_one_set_of_measurements(form, problem, tmp_path):
    U, b = problem
    folder = saved(tmp_path / "shards", U, b, form, parts=11)
    whole = quadsense.solve(U, b, delta=0.01)
    for path in (folder, folder / f"part-*.{form}"):
        for limit in (None, 100):
            data = Measurements.open(path, memory_limit=limit)
            assert ("on disk" in repr(data)) == (limit is not None)
            assert data.notes[0] == f"11 files, part-0.{form} to part-10.{form}"
            np.testing.assert_array_equal(data.b, b)
            np.testing.assert_allclose(data.rows(), U, rtol=1e-14)
            result = quadsense.solve(data)
            np.testing.assert_allclose(result.A, whole.A, atol=1e-12)
            assert result.certificate.verify(U, b) and result.certificate.verify(data)


def test_a_pattern_of_single_arrays_is_refused_with_what_to_do(problem, tmp_path):
    U, b = problem
    for i in range(2):
        np.save(tmp_path / f"U_{i}.npy", U[30 * i : 30 * (i + 1)])
    with pytest.raises(ValueError, match=r"each a single array: write U and b of each part"):
        Measurements.open(tmp_path / "U_*.npy", b=b, delta=0.01)


@pytest.mark.parametrize("limit", [None, 10])
@pytest.mark.parametrize("form", ["npz", "h5", "zarr"])
def test_shards_without_rows_hold_none(form, limit, problem, tmp_path):
    U, b = problem
    edges = [0, 0, 20, 20, 20, 60, 60]
    for i, (first, last) in enumerate(itertools.pairwise(edges)):
        files.write(tmp_path / f"{i}.{form}", {"U": U[first:last], "b": b[first:last]}, {})
    data = Measurements.open(tmp_path, delta=0.01, memory_limit=limit)
    assert ("on disk" in repr(data)) == (limit is not None)
    np.testing.assert_allclose(data.rows(), U, rtol=1e-14)
    assert quadsense.solve(data).met
    assert data.rows([59]).shape == (1, 4)


@pytest.mark.parametrize("limit", [None, 10])
@pytest.mark.parametrize("shape", [(0, 4), (5, 0)])
def test_files_without_any_row_say_so(shape, limit, tmp_path):
    for i in range(2):
        files.write(tmp_path / f"{i}.h5", {"U": np.empty(shape), "b": np.empty(shape[0])}, {})
    with pytest.raises(ValueError, match=r"U is empty: its shape is"):
        Measurements.open(tmp_path, memory_limit=limit)


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("form", ["dense", "list", "column", "path"])
def test_readings_may_be_given_beside_probes_in_a_file(form, limit, problem, tmp_path):
    U, b = problem
    np.save(tmp_path / "U.npy", U)
    np.save(tmp_path / "b.npy", b)
    cut(tmp_path / "cut", np.split(U, 4))
    given = {"dense": b, "list": b.tolist(), "column": b[:, None], "path": tmp_path / "b.npy"}[form]
    for path in (tmp_path / "U.npy", tmp_path / "cut"):
        data = Measurements.open(path, b=given, delta=0.01, memory_limit=limit)
        np.testing.assert_array_equal(data.b, b)
        np.testing.assert_allclose(data.rows(), U, rtol=1e-14)
        assert quadsense.solve(data).met
    for wrong, sentence in (
        (b[:3], r"b has shape \(3,\), but must have shape \(60,\)"),
        ([[1.0], [2.0, 3.0]], "b is not a rectangular array"),
        (np.full(60, 1j), "b must be real"),
        (3.0, r"b has shape \(\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Measurements.open(tmp_path / "U.npy", b=wrong, memory_limit=limit)


@pytest.mark.parametrize("limit", [None, 100])
def test_readings_of_all_shards_say_nothing_of_the_columns_of_one(limit, problem, tmp_path):
    """Four rows of four numbers in two files: each has as many columns as there are readings."""
    U, b = problem
    for i in range(2):
        np.savez(tmp_path / f"{i}.npz", U=U[2 * i : 2 * i + 2])
    data = Measurements.open(tmp_path / "*.npz", b=b[:4], delta=0.01, memory_limit=limit)
    np.testing.assert_allclose(data.rows(), U[:4], rtol=1e-14)


@pytest.mark.parametrize(
    ("form", "complex_"),
    cover(["npy", "npz", "mat", "h5", "zarr", "chunks", "matlab"], [False, True]),
)
def test_vectors_that_are_columns_stay_in_their_file_too(form, complex_, rng, tmp_path):
    h5py = pytest.importorskip("h5py")
    U = gaussian_rows(rng, 60, 4, complex_)
    b = np.sum(np.abs(U) ** 2, axis=1)
    path, arrays = tmp_path / f"U.{form}", {"U": U.T, "b": b}
    if form == "npy":
        files.write(path, {"U": U.T}, {})
    elif form in ("chunks", "matlab"):
        path = tmp_path / "U.h5"
        with h5py.File(path, "w") as root:
            root["b"] = b
            held = U if form == "matlab" else U.T  # MATLAB has the axes reversed
            made = root.create_dataset("U", data=held, chunks=(3, 3))
            if form == "matlab":
                made.attrs["MATLAB_class"] = np.bytes_("double")
    else:
        files.write(path, arrays, {})
    named = {"b": b} if form == "npy" else {}
    data = Measurements.open(path, delta=0.01, memory_limit=100, **named)
    assert "on disk" in repr(data) and any("columns are the vectors" in x for x in data.notes)
    strips = data.unit_rows.kind.given
    assert len(strips) > 1 or form in ("npz", "mat", "zarr")  # a small store is one chunk
    np.testing.assert_allclose(data.rows(), U, rtol=1e-14)
    result = quadsense.solve(data)
    np.testing.assert_allclose(result.A, quadsense.solve(U, b, delta=0.01).A, atol=1e-10)
    assert strips.row(20) == f"column 20 of {path}"


@pytest.mark.parametrize("by_columns", [False, True])
def test_matlab_files_of_v73_are_read_by_the_row(by_columns, problem, tmp_path):
    pytest.importorskip("h5py")
    from matlab73 import write_matlab73

    U, b = problem
    write_matlab73(tmp_path / "data.mat", {"U": U.T if by_columns else U, "b": b[:, None]})
    data = Measurements.open(tmp_path / "data.mat", delta=0.01, memory_limit=100)
    assert len(data.unit_rows.kind.given) > 1
    np.testing.assert_allclose(data.rows(), U, rtol=1e-14)
    assert quadsense.solve(data).met


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("form", ["npz", "h5", "parquet", "csv"])
def test_what_is_given_beside_a_file_is_as_in_the_constructor(form, limit, problem, rng, tmp_path):
    U, b = problem
    folder = tmp_path / "data"
    saved(folder, U, b, form)
    lo, hi, weights = b - rng.random(60), b + rng.random(60), rng.random(60)
    data = Measurements.open(folder, bounds=(lo, hi), weights=weights, memory_limit=limit)
    np.testing.assert_array_equal([data.lo, data.hi], [lo, hi])
    np.testing.assert_array_equal(data.weights, weights)
    np.testing.assert_allclose(data.rows(), U, rtol=1e-14)
    truth = quadsense.solve(Measurements(U, b, bounds=(lo, hi), weights=weights))
    result = quadsense.solve(data)
    assert result.status == truth.status
    np.testing.assert_allclose(result.A, truth.A, atol=1e-9)
    with pytest.raises(ValueError, match="bounds replaces delta"):
        Measurements.open(folder, bounds=(lo, hi), delta=0.1, memory_limit=limit)
    with pytest.raises(ValueError, match=r"weights has shape \(3,\)"):
        Measurements.open(folder, weights=[1.0, 2.0, 3.0], memory_limit=limit)


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("sparse", [False, True])
def test_sums_of_rows_in_a_file_by_a_mix_that_is_given(sparse, limit, problem, tmp_path):
    """Four readings of rows of four numbers: the rows are the vectors all the same."""
    U, b = problem
    W = np.kron(np.eye(4), np.ones(15))
    np.savez(tmp_path / "data.npz", U=U, b=W @ b)
    mix = sp.csr_array(W) if sparse else W.tolist()
    data = Measurements.open(tmp_path / "data.npz", mix=mix, delta=0.1, memory_limit=limit)
    assert data.m == 4 and "mixed from 60 rows" in repr(data)
    np.testing.assert_allclose(data.rows(), U, rtol=1e-14)
    truth = quadsense.solve(U, W @ b, mix=W, delta=0.1)
    np.testing.assert_allclose(quadsense.solve(data).A, truth.A, atol=1e-9)
    with pytest.raises(ValueError, match=r"mix .* shape"):
        Measurements.open(tmp_path / "data.npz", mix=W[:, :-1], memory_limit=limit)


@pytest.mark.parametrize("form", ["npz", "csv"])
def test_with_bounds_given_a_file_needs_no_readings(form, problem, tmp_path):
    U, b = problem
    path = tmp_path / f"data.{form}"
    if form == "npz":  # neither p nor q is taken for b
        np.savez(path, U=U, p=b, q=b)
    else:
        np.savetxt(path, U, delimiter=",", header="u1,u2,u3,u4", comments="")
    data = Measurements.open(path, bounds=(b - 0.1, np.inf))
    assert data.readings is None and data.n == 4
    np.testing.assert_array_equal(data.lo, b - 0.1)
    named = ["--bounds", "-100000", "100000", "--json"]
    done = CliRunner().invoke(cli, ["solve", str(path), *named])
    assert done.exit_code == 0, done.output


def test_results_in_a_folder_of_shards_are_left_alone(problem, tmp_path):
    U, b = problem
    folder = saved(tmp_path / "shards", U, b, "npz")
    quadsense.solve(Measurements.open(folder)).save(folder / "result.npz")
    assert Measurements.open(folder).m == 60
    with pytest.raises(ValueError, match=r"result\.npz is a quadsense result"):
        Measurements.open(folder / "*.npz")


def test_sparse_shards_are_read_whole(problem, tmp_path):
    U, b = problem
    rows = sp.csr_array(np.where(abs(U) > 0.5, U, 0.0))
    folder = tmp_path / "sparse"
    folder.mkdir()
    for i, part in enumerate((rows[:20], rows[20:])):
        Measurements(part, b[:20] if i == 0 else b[20:], delta=0.1).save(folder / f"{i}.npz")
    data = Measurements.open(folder, memory_limit=100)
    assert "sparse" in repr(data)
    np.testing.assert_allclose(data.rows(), rows.toarray(), rtol=1e-14)


def test_numbers_in_names_are_numbers():
    names = [f"part-{i}.npy" for i in (0, 1, 2, 10, 11, 100)]
    mixed = [names[i] for i in (3, 5, 0, 2, 4, 1)]
    assert sorted(mixed, key=natural) == names


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">f8", "<f4", "f2", "c8", "i4"])
def test_every_type_is_read_as_numpy_reads_it(order, dtype, rng, tmp_path):
    U = (8.0 * rng.standard_normal((20, N))).astype(dtype)
    np.save(tmp_path / "U.npy", np.asarray(U, order=order))
    np.save(tmp_path / "b.npy", np.ones(20))
    data = Measurements.open(tmp_path / "U.npy", b=str(tmp_path / "b.npy"), memory_limit=10)
    assert "on disk" in repr(data)
    np.testing.assert_allclose(data.rows(), U.astype(complex if dtype == "c8" else float))
    held = data.unit_rows.kind
    assert held.held.isnative and held.held.itemsize // (2 if held.is_complex else 1) in (4, 8)


@pytest.mark.parametrize("matlab", [False, True])
def test_hdf5_in_chunks_and_as_matlab_has_it(matlab, rng, tmp_path):
    h5py = pytest.importorskip("h5py")
    U = rng.standard_normal((23, N))
    with h5py.File(tmp_path / "data.h5", "w") as root:
        made = root.create_dataset(
            "U", data=U.T if matlab else U, chunks=(N, 5) if matlab else (5, N)
        )
        if matlab:
            made.attrs["MATLAB_class"] = np.bytes_("double")
        root["b"] = np.ones(23)
    data = Measurements.open(tmp_path / "data.h5", memory_limit=10)
    np.testing.assert_allclose(data.rows(), U, rtol=1e-14)
    lengths = np.diff(data.unit_rows.kind.begins)
    assert all(length == 5 for length in lengths[:-1])  # chunks are not read twice


@pytest.mark.parametrize("exponent", [-500, 500])
def test_rows_of_any_norm(exponent, problem, tmp_path):
    U, b = problem
    scales = np.ldexp(1.0, np.where(np.arange(len(U)) % 3 == 0, exponent, 0))
    V = U * scales[:, None]
    V[7] = 0.0
    readings = b * scales * scales
    readings[7] = 0.0
    delta = 0.01 * scales * scales
    np.save(tmp_path / "U.npy", V)
    (tmp_path / "b").mkdir()
    np.save(tmp_path / "b" / "b.npy", readings)
    data = Measurements(strips(tmp_path / "U.npy", 7), readings, delta=delta)
    whole = Measurements(V, readings, delta=delta)
    np.testing.assert_array_equal(data.unit_rows.norms, whole.unit_rows.norms)
    here, there = quadsense.solve(data), quadsense.solve(whole)
    assert here.met and there.met
    np.testing.assert_allclose(here.A, there.A, atol=1e-10)
    assert here.certificate.verify(V, readings)


@pytest.mark.parametrize(
    "named",
    [{}, {"psd": True}, deep({"rank": 2, "rng": 0}), {"delta": 0.1, "method": "gd"},
     {"delta": 0.1, "psd": True, "prefer": "min_trace"}, {"delta": 0.1, "slack": "squares"},
     {"delta": 0.1, "allow_violations": 2}, {"delta": 0.1, "trace": (-5.0, 5.0)}],
)  # fmt: skip
def test_questions_of_every_kind(named, problem, tmp_path):
    U, b = problem
    np.save(tmp_path / "U.npy", U)
    rows = strips(tmp_path / "U.npy", 7)
    here, there = quadsense.solve(rows, b, **named), quadsense.solve(U, b, **named)
    assert here.status == there.status
    np.testing.assert_allclose(here.A, there.A, atol=1e-6)
    assert here.certificate.verify(rows, b) == there.certificate.verify(U, b)
    path = tmp_path / "result.npz"
    here.save(path)
    assert quadsense.load_result(path).certificate.verify(U, b) == there.certificate.verify(U, b)


@pytest.mark.parametrize("complex_", [False, True])
def test_sgd_takes_a_strip_at_a_time(complex_, rng, tmp_path):
    U = gaussian_rows(rng, 400, 6, complex_)
    A = gaussian_rows(rng, 6, 6, complex_)
    A = A + A.conj().T
    b = np.einsum("ij,jk,ik->i", U.conj(), A, U).real
    delta = np.geomspace(1e-3, 1e-2, 400)
    np.save(tmp_path / "U.npy", U)
    rows = strips(tmp_path / "U.npy", 80)
    one, two = (quadsense.solve(rows, b, delta=delta, method="sgd", rng=3) for _ in range(2))
    assert one.met and one.n_iter <= 5 * 5  # passes of five strips
    np.testing.assert_array_equal(one.A, two.A)
    assert one.certificate.verify(U, b)
    np.testing.assert_allclose(one.A, A, atol=0.1)
    noisy = b + 0.1 * rng.standard_normal(400)
    found = quadsense.solve(rows, noisy, delta=0.45, method="sgd", rng=3)
    assert found.met == quadsense.solve(U, noisy, delta=0.45, method="sgd", rng=3).met
    never = quadsense.solve(rows, noisy, delta=0.01, method="sgd", rng=3)
    assert never.status == "stalled" and never.max_residual < 1.0
    kept = {"delta": delta, "method": "sgd", "rng": 3, "checkpoint": tmp_path / "run"}
    cut_off = quadsense.solve(rows, b, max_iter=7, **{**kept, "checkpoint": tmp_path / "other"})
    assert cut_off.n_iter == 7
    np.testing.assert_array_equal(quadsense.solve(rows, b, **kept).A, one.A)
    np.testing.assert_array_equal(quadsense.solve(rows, b, **kept).A, one.A)


def test_a_checkpoint_knows_rows_in_files_again(problem, tmp_path):
    U, b = problem
    np.save(tmp_path / "U.npy", U)
    data = Measurements(strips(tmp_path / "U.npy", 7), b, delta=0.01)
    first = quadsense.solve(data, checkpoint=tmp_path / "run")
    again = quadsense.solve(
        Measurements(strips(tmp_path / "U.npy", 7), b, delta=0.01), checkpoint=tmp_path / "run"
    )
    np.testing.assert_array_equal(first.A, again.A)
    np.save(tmp_path / "U.npy", -U)  # of the same norms
    with pytest.raises(ValueError, match="is of other data, U differs"):
        quadsense.solve(
            Measurements(strips(tmp_path / "U.npy", 7), b, delta=0.01), checkpoint=tmp_path / "run"
        )


# --- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [(1000, 1000), ("1 GiB", 2**30), ("1GiB", 2**30), ("500 MB", 5e8), ("1.5 kib", 1536),
     ("2e9", 2e9), (np.int64(7), 7), ("8g", 8e9), ("12", 12)],
)  # fmt: skip
def test_numbers_of_bytes(value, number):
    assert to_bytes(value) == number


@pytest.mark.parametrize("value", ["much", 0, -1, "1 GiBit", True, "", [1], "-1 GB", float("nan")])
def test_what_is_no_number_of_bytes(value, problem):
    U, b = problem
    sentence = f"memory_limit must be a number of bytes.*got {re.escape(repr(value))}"
    with pytest.raises(ValueError, match=sentence):
        quadsense.solve(U, b, delta=0.1, memory_limit=value)


def test_limits_within_limits_are_the_smaller():
    with limited_memory(100.0):
        with limited_memory(200.0):
            assert memory_limit() == 100.0
        with limited_memory(50.0):
            assert memory_limit() == 50.0
    assert memory_limit() == float("inf")


def test_what_does_not_fit_the_limit_is_refused(problem):
    U, b = problem
    with pytest.raises(MemoryError, match=r"B in addition to U and memory_limit is 100 B: raise"):
        quadsense.solve(U, b, delta=0.01, memory_limit=100)


@pytest.mark.parametrize("limit", ["4 kB", "100 kB"])
@pytest.mark.parametrize(
    "named", [{}, {"prefer": "any"}, {"psd": True}, {"method": "minimax"}, {"psd": True, "rank": 1}]
)
def test_the_limit_that_a_refusal_names_is_enough(named, limit):
    p = quadsense.datasets.gaussian(n=14, m=700, seed=0)
    asked = {"delta": 0.5, "rng": 0, "max_iter": 3, **named}
    with pytest.raises(MemoryError, match="raise memory_limit to about") as refused:
        quadsense.solve(p.U, p.b, memory_limit=limit, **asked)
    enough = re.findall(r"about ([\d.]+ kB|[\d.]+ MB)(?: for prefer='(\w+)')?", str(refused.value))
    assert 1 <= len(enough) <= 2
    default = named.get("prefer", "any" if "method" in named else "least_squares")
    for said, prefer in enough:
        asked["prefer"] = prefer or default
        result = quadsense.solve(p.U, p.b, memory_limit=said, **asked)
        assert result.prefer == asked["prefer"]
        if said == enough[0][0]:
            with pytest.raises(MemoryError):
                quadsense.solve(p.U, p.b, memory_limit=0.8 * to_bytes(said), **asked)


def test_a_limit_does_not_change_which_matrix_is_given():
    p = quadsense.datasets.gaussian(n=12, m=700, seed=0)
    few = quadsense.solve(p.U, p.b, delta=0.01, memory_limit="1.2 MB")
    whole = quadsense.solve(p.U, p.b, delta=0.01, memory_limit="40 MB")
    assert few.prefer == whole.prefer == "least_squares"
    assert np.array_equal(few.A, whole.A)
    assert few.plan["methods"] == whole.plan["methods"]
    assert few.plan["reasons"] == whole.plan["reasons"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "named",
    sampled([{"method": "cg", "max_iter": 2}, {"rank": 2, "rng": 0}, {"prefer": "any"},
             {"psd": True, "prefer": "any", "max_iter": 2}], 1),
)  # fmt: skip
def test_rows_in_a_file_are_never_all_in_memory(named, tmp_path, monkeypatch):
    monkeypatch.setattr(strip_module, "STRIP_BYTES", 2**18)
    rng = np.random.default_rng(0)
    U = rng.standard_normal((60_000, 256), dtype=np.float32)
    X = rng.standard_normal((256, 2))
    b = np.sum((U @ X) ** 2, axis=1)
    np.save(tmp_path / "U.npy", U)
    np.save(tmp_path / "b.npy", b)
    size, m = U.nbytes, len(U)
    named = {**named, "start": X @ X.T} if named == {"prefer": "any"} else named
    del U
    quadsense.solve(np.eye(2), [1.0, 1.0], delta=0.1, method="gd")  # imports what it needs
    limit = 0.9 * size
    tracemalloc.start()
    try:
        data = Measurements.open(
            tmp_path / "U.npy", b=str(tmp_path / "b.npy"), delta=0.1, memory_limit=limit
        )
        result = quadsense.solve(data, memory_limit=limit, **named)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.met or named.get("max_iter")
    assert taken <= 1.25 * limit
    assert taken <= 1.25 * (result.plan["memory"] + 8 * 8 * m)  # and what opening took


def test_an_array_is_no_number_of_bytes():
    for value in (np.array([1, 2]), np.ones((3, 1))):
        with pytest.raises(ValueError, match=r"number of bytes.*, got an array of shape \([23],"):
            to_bytes(value)
    assert to_bytes(np.array(3.0)) == 3.0


# --- what is wrong with files --------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (lambda U: U.astype(np.float64), r"part-3\.h5 holds numbers of type float64 and .*part-0"),
        (lambda U: U[:, :2], r"part-3\.h5 holds rows of length 2 and .*part-0"),
        (lambda U: np.where(U[2, 1] == U, np.nan, U), r"row 17: row 2 of .*part-3\.h5"),
        (lambda U: np.where(U[2, 1] == U, np.inf, U), r"row 17: row 2 of .*part-3\.h5"),
        (lambda U: U[0], "part-3"),
    ],
)
def test_a_bad_shard_is_named(limit, part, sentence, problem, tmp_path):
    U, b = problem
    parts = np.split(U, 12)
    parts[3] = part(parts[3])
    folder = cut(tmp_path / "cut", parts, b)
    with pytest.raises(ValueError, match=sentence):
        Measurements.open(folder, delta=0.01, memory_limit=limit)


def test_shards_that_do_not_agree(problem, tmp_path):
    U, b = problem
    folder = saved(tmp_path / "a", U, b, "npz")
    Measurements(U[:5], b[:5], delta=0.02).save(folder / "part-7.npz")
    with pytest.raises(ValueError, match=r"delta is 0\.02 in .*part-7\.npz and 0\.01 in"):
        Measurements.open(folder)
    Measurements(U[:5], b[:5]).save(folder / "part-7.npz")
    with pytest.raises(ValueError, match=r"part-0\.npz holds delta and .*part-7\.npz does not"):
        Measurements.open(folder)
    (folder / "part-7.npz").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"part-7\.npz"):
        Measurements.open(folder)
    (folder / "part-7.npz").unlink()
    Measurements(U[:5], b[:5], delta=0.01).save(folder / "more.h5")
    with pytest.raises(ValueError, match=r"files of several formats, an \.npz file and an HDF5"):
        Measurements.open(folder)
    with pytest.raises(ValueError, match="matches no file"):
        Measurements.open(folder / "other-*.npz")


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("form", ["npz", "h5", "zarr"])
def test_shards_that_differ_in_conjugate_are_refused(form, limit, problem, tmp_path):
    """Each by itself says the same of A; together they would contradict each other."""
    U, _ = problem
    U = U + 1j * np.roll(U, 1)
    A = np.array([[0, 1j], [-1j, 0]])
    b = np.einsum("ij,jk,ik->i", U[:, :2].conj(), A, U[:, :2]).real
    Measurements(U[:30], b[:30], delta=0.01).save(tmp_path / f"1.{form}")
    for flag in (True, False):
        rows = U[30:].conj() if flag else U[30:]
        own = Measurements(rows, b[30:], delta=0.01, conjugate=flag)
        own.save(tmp_path / f"2.{form}")
        assert quadsense.solve(Measurements.open(tmp_path / f"2.{form}")).met
        if flag:
            with pytest.raises(ValueError, match=r"conjugate is True in .*2\..* False in .*1\."):
                Measurements.open(tmp_path / f"*.{form}", memory_limit=limit)
    assert quadsense.solve(Measurements.open(tmp_path / f"*.{form}", memory_limit=limit)).met


def test_shards_are_not_shifted_against_each_other(problem, tmp_path):
    U, b = problem
    np.savez(tmp_path / "1.npz", U=U[:30], b=b[:29])
    np.savez(tmp_path / "2.npz", U=U[30:], b=b[29:])
    with pytest.raises(ValueError, match=r"1\.npz holds 30 rows of U and 29 values of b"):
        Measurements.open(tmp_path / "*.npz", delta=0.01)
    np.savez(tmp_path / "1.npz", U=U[:20].T, b=b[:20])
    np.savez(tmp_path / "2.npz", U=U[20:24].T, b=b[20:24])
    with pytest.raises(ValueError, match=r"columns of U in .*1\.npz and its rows in .*2\.npz"):
        Measurements.open(tmp_path / "*.npz", delta=0.01)


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("form", ["npz", "h5"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_reading_is_named_with_its_file(form, bad, limit, problem, tmp_path):
    U, b = problem
    b[47] = bad
    for i, (rows, readings) in enumerate(zip(np.split(U, 3), np.split(b, 3), strict=True)):
        files.write(tmp_path / f"part-{i}.{form}", {"U": rows, "b": readings}, {})
    where = r"row 7 of .*part-2\."
    with pytest.raises(ValueError, match=rf"b must be finite, but b\[47\] is {bad}: {where}"):
        Measurements.open(tmp_path, delta=0.1, memory_limit=limit)


@pytest.mark.parametrize("name", [str, Path])
def test_a_name_in_place_of_measurements_says_what_reads_it(name):
    with pytest.raises(ValueError, match=r"'run7'.*Measurements\.open"):
        quadsense.solve(name("run7"))


def damaged(data, path, change):
    """Solve after the file was changed, and say what came of it."""
    change(path)
    said = r"was changed while it was being used" if path.exists() else "is gone"
    with pytest.raises(ValueError, match=rf"part-1\.h5 {said}") as error:
        quadsense.solve(data)
    return str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-8]),
        lambda path: path.unlink(),
        lambda path: files.write(path, {"U": np.ones((15, 4)), "b": np.ones(15)}, {}),
        lambda path: os.utime(path, (1.0, 1.0)),
    ],
)
def test_a_file_that_changes_meanwhile_is_named(change, problem, tmp_path):
    U, b = problem
    folder = cut(tmp_path / "cut", np.split(U, 4), b)
    data = Measurements.open(folder, delta=0.01, memory_limit=100)
    before = sorted(os.listdir(tmp_path))
    assert re.search(r"rows \d+ to \d+", damaged(data, folder / "part-1.h5", change))
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("limit", [None, 100])
def test_a_file_that_is_cut_off(limit, problem, tmp_path):
    U, b = problem
    np.save(tmp_path / "U.npy", U)
    np.save(tmp_path / "b.npy", b)
    whole = (tmp_path / "U.npy").read_bytes()
    (tmp_path / "U.npy").write_bytes(whole[: 128 + 16 * 23 + 3])
    with pytest.raises(ValueError, match=r"U\.npy is cut off: it ends in row 23 of 60"):
        Measurements.open(tmp_path / "U.npy", b=str(tmp_path / "b.npy"), memory_limit=limit)


def test_an_empty_file_says_so(tmp_path):
    (tmp_path / "U.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"U\.npy"):
        Measurements.open(tmp_path / "U.npy", memory_limit=10)


# --- measurements that keep arriving -------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "tolerance"),
    cover(
        ["dense", "sparse", "strips", "float32", "complex"],
        ["delta", "deltas", "bounds", "none", "rtol"],
        each=2,
    ),
)
def test_appended_measurements_are_those_given_at_once(form, tolerance, problem, tmp_path):
    U, b = problem
    U = U.astype(np.float64)
    if form == "complex":
        U = U + 1j * np.roll(U, 1, axis=0)
        b = np.sum(np.abs(U) ** 2, axis=1)
    held = U[:40]
    if form == "strips":
        np.save(tmp_path / "U.npy", held)
        held = strips(tmp_path / "U.npy", 7)
    held = {"sparse": sp.csr_array, "float32": np.float32}.get(form, lambda x: x)(held)
    added = sp.csr_array(U[40:]) if form == "sparse" else U[40:]
    per_row = np.linspace(0.1, 0.2, len(b))

    def named(part):
        return {
            "delta": {"delta": 0.1},
            "deltas": {"delta": per_row[part]},
            "bounds": {"bounds": (b[part] - per_row[part], b[part] + 0.1)},
            "none": {},
            "rtol": {"rtol": 0.1},
        }[tolerance]

    first = Measurements(held, b[:40], weights=2.0, **named(slice(0, 40)))
    given = named(slice(40, 60)) if tolerance in ("deltas", "bounds") else {}
    both = first.append(added, b[40:], **given)
    whole = Measurements(U, b, weights=2.0, **named(slice(0, 60)))
    assert (both.m, first.m) == (60, 40)
    np.testing.assert_allclose(both.rows(), whole.rows(), rtol=1e-6)
    for name in ("b", "tolerance", "lo", "hi", "weights"):
        if tolerance == "none" and name in ("tolerance", "lo", "hi"):
            continue
        np.testing.assert_allclose(getattr(both, name), getattr(whole, name))
    result = quadsense.solve(both, start=quadsense.solve(first))
    assert result.success and result.status == quadsense.solve(whole).status
    assert result.certificate.verify(both)


@pytest.mark.parametrize("form", ["npz", "h5", "zarr", "zarr.zip", "mat", "parquet", "csv"])
@pytest.mark.parametrize("kind", ["opened", "appended", "complex"])
def test_rows_in_files_are_saved_as_those_in_memory(kind, form, problem, tmp_path):
    U, b = problem
    cut(tmp_path / "cut", np.split(U, 4), b)
    data = Measurements.open(tmp_path / "cut", delta=0.01, memory_limit=100)
    if kind == "appended":
        data = data.append(U[:9].astype(np.float64), b[:9]).append(data)
        U, b = np.concatenate([U, U[:9], U]).astype(np.float64), np.concatenate([b, b[:9], b])
    elif kind == "complex":
        data = data.append(1j * U[:9], b[:9])
        U, b = np.concatenate([U, 1j * U[:9]]), np.concatenate([b, b[:9]])
    data.save(tmp_path / f"saved.{form}")
    Measurements(U, b, delta=0.01).save(tmp_path / f"truth.{form}")
    if form == "npz":
        with np.load(tmp_path / "saved.npz") as one, np.load(tmp_path / "truth.npz") as two:
            assert {name: one[name].dtype for name in one} == {k: two[k].dtype for k in two}
    found, truth = (Measurements.open(tmp_path / f"{x}.{form}") for x in ("saved", "truth"))
    np.testing.assert_array_equal(found.rows(), truth.rows())
    np.testing.assert_array_equal(found.b, b)
    assert found.stated_tolerance.tolist() == truth.stated_tolerance.tolist()
    assert quadsense.solve(found).met


def test_what_is_saved_from_files_is_never_all_in_memory(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(strip_module, "STRIP_BYTES", 2**20)
    n, m = 20, 200_000
    np.save(tmp_path / "U.npy", rng.standard_normal((m, n)))
    data = Measurements.open(tmp_path / "U.npy", b=np.ones(m), memory_limit="8 MB")
    assert "on disk" in repr(data)
    for form in ("npz", "h5", "zarr"):
        tracemalloc.start()
        try:
            data.save(tmp_path / f"saved.{form}")
            taken = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert taken < 8 * n * m / 2
    with limited_memory(1e6), pytest.raises(MemoryError, match=r"\.csv is a CSV file.* \.npz"):
        data.save(tmp_path / "saved.csv")


def test_what_cannot_be_saved_says_so(problem, tmp_path):
    U, b = problem
    mixed = Measurements(U, b, delta=0.1).append(sp.csr_array(U), b)
    made = Measurements(quadsense.probes.kronecker([np.eye(2), np.eye(2)]), [1.0, 2.0])
    for data, sentence in ((mixed, "stacked"), (made, "kronecker")):
        with pytest.raises(ValueError, match=f"{sentence}.*cannot be written"):
            data.save(tmp_path / "saved.npz")


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("tolerance", ["delta", "deltas", "bounds", "rtol", "none"])
def test_measurements_are_appended_with_all_they_have(tolerance, limit, problem, tmp_path):
    U, b = problem
    per_row = np.linspace(0.1, 0.2, 60)
    parts = []
    for i, part in enumerate((slice(0, 40), slice(40, 60))):
        named = {
            "delta": {"delta": 0.1 * (i + 1)},
            "deltas": {"delta": per_row[part]},
            "bounds": {"bounds": (b[part] - per_row[part], b[part] + 0.1)},
            "rtol": {"rtol": 0.1},
            "none": {},
        }[tolerance]
        one = Measurements(U[part], b[part], weights=per_row[part], **named)
        one.save(tmp_path / f"{i}.h5")
        parts.append(Measurements.open(tmp_path / f"{i}.h5", memory_limit=limit))
    both = parts[0].append(parts[1])
    np.testing.assert_allclose(both.rows(), U, rtol=1e-14)
    np.testing.assert_array_equal(both.readings, b)
    np.testing.assert_array_equal(both.weights, per_row)
    if tolerance != "none":
        lo = np.concatenate([part.lo for part in parts])
        np.testing.assert_array_equal(both.lo, lo)
    assert quadsense.solve(both).success
    with pytest.raises(ValueError, match="belong to Measurements"):
        parts[0].append(parts[1], b[40:])


def test_what_cannot_be_appended(problem):
    U, b = problem
    data = Measurements(U, b, delta=0.1)
    for more, sentence in (
        (Measurements(U, b, delta=0.1, conjugate=True), "conjugate is True in the measurements"),
        (Measurements(U, b, delta=0.1, rtol=0.1), r"rtol is 0\.1 in the measurements"),
        (Measurements(U, [1.0], mix=np.ones((1, 60)), delta=0.1), "mix"),
        (data.constrained(trace=1.0), "constraints"),
    ):
        with pytest.raises(ValueError, match=sentence):
            data.append(more)
    for arguments, sentence in (
        ({"U": U[:, :2], "b": b}, "rows of length 2, but those before have 4"),
        ({"U": U, "b": b[:3]}, r"b has shape \(3,\)"),
        ({"U": U}, "b is missing"),
        ({"U": U, "b": b, "bounds": (b, b)}, "these measurements have delta"),
        ({"U": U, "b": b, "weights": 1.0}, "weights is given, and these measurements have none"),
        ({"U": [[np.nan] * 4], "b": [1.0]}, "NaN"),
    ):
        with pytest.raises(ValueError, match=sentence):
            data.append(**arguments)
    with pytest.raises(ValueError, match="delta is missing: each row"):
        Measurements(U, b, delta=np.full(60, 0.1)).append(U, b)
    with pytest.raises(ValueError, match="have bounds: give bounds"):
        Measurements(U, bounds=(b - 1, b + 1)).append(U, b, delta=0.1)
    with pytest.raises(ValueError, match="mix"):
        Measurements(U, b[:1], mix=np.ones((1, 60)), delta=0.1).append(U, b)


# --- the command -------------------------------------------------------------------------------


def test_the_command_reads_shards_within_a_limit(problem, tmp_path):
    U, b = problem
    folder = saved(tmp_path / "shards", U, b, "npz")
    for path in (str(folder), str(folder / "part-*.npz")):
        done = CliRunner().invoke(cli, ["solve", path, "--memory-limit", "100 MB", "--json"])
        assert done.exit_code == 0, done.output
        done = CliRunner().invoke(cli, ["inspect", path])
        assert done.exit_code == 0 and "60" in done.output
    done = CliRunner().invoke(cli, ["solve", str(folder), "--memory-limit", "lots"])
    assert "--memory-limit must be a number of bytes" in str(done.exception)
    done = CliRunner().invoke(cli, ["solve", str(folder), "--memory-limit", "10"])
    assert isinstance(done.exception, MemoryError)
    assert "and --memory-limit is 10 B: raise --memory-limit to about" in str(done.exception)


def test_strips_are_data_that_can_be_sent(problem, tmp_path):
    U, _ = problem
    np.save(tmp_path / "U.npy", U)
    rows = files.Strips(files.strips_of(Path(tmp_path / "U.npy"), "U", U.shape, U.dtype))
    assert len(rows) == 9 and rows.shape == U.shape and rows.nbytes == U.nbytes
    np.testing.assert_array_equal(rows.load(), U)
    assert rows.row(20) == f"row 20 of {tmp_path / 'U.npy'}"


# --- copies and other processes ------------------------------------------------------------------


def pickled(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy])
@pytest.mark.parametrize("kind", ["dense", "sparse", "disk", "stack", "mix", "kronecker", "torch"])
def test_measurements_and_results_are_pickled_and_copied(kind, copied, problem, tmp_path):
    U, b = problem
    np.save(tmp_path / "U.npy", U)
    on_disk = Measurements.open(tmp_path / "U.npy", b=b, delta=0.01, memory_limit=100)
    W = np.kron(np.eye(20), np.ones(3))
    if kind == "torch":
        data = Measurements(pytest.importorskip("torch").tensor(U), b, delta=0.01)
    else:
        data = {
            "dense": lambda: Measurements(U, b, delta=0.01),
            "sparse": lambda: Measurements(sp.csr_array(U), b, delta=0.01),
            "disk": lambda: on_disk,
            "stack": lambda: on_disk.append(U[:5], b[:5]),
            "mix": lambda: Measurements(U, W @ b, mix=W, delta=0.01),
            "kronecker": lambda: Measurements(
                quadsense.probes.kronecker([U[:, :2], U[:, 2:]]), np.zeros(60), delta=0.01
            ),
        }[kind]()
    result = quadsense.solve(data)
    other = copied(data)
    assert repr(other) == repr(data) and other.unit_rows.xp is data.unit_rows.xp
    np.testing.assert_array_equal(np.asarray(quadsense.solve(other).A), np.asarray(result.A))
    again = copied(result)
    assert again.message == result.message and again.verify(data) and again.verify(other)
    np.testing.assert_array_equal(np.asarray(again.A), np.asarray(result.A))


# --- read when they are needed -----------------------------------------------------------------


@pytest.fixture
def opened_later(monkeypatch):
    """Nothing but a few bytes is read when a file is opened."""
    monkeypatch.setattr(sources, "EAGER_BYTES", 100)


@pytest.mark.parametrize("form", ["npy", "h5", "zarr"])
@pytest.mark.parametrize("mix", [None, np.eye(60)[:50]])
@pytest.mark.usefixtures("opened_later")
def test_rows_stay_in_their_file_until_a_solve_needs_them(form, mix, problem, tmp_path):
    U, b = problem
    b = b if mix is None else b[:50]
    path = tmp_path / f"d.{form}"
    if form == "npy":
        np.save(path, U)
    else:
        files.write(path, {"U": U, "b": b}, {})
    given = {"mix": mix, "delta": 0.01}
    data = Measurements.open(path, **given, **({"b": b} if form == "npy" else {}))
    assert "on disk" in repr(data)
    tighter = data.with_tolerance(0.005)
    result = quadsense.solve(data)
    assert "on disk" not in repr(data)
    whole = quadsense.solve(Measurements(U, b, **given))
    assert (result.status, result.prefer) == (whole.status, whole.prefer)
    np.testing.assert_array_equal(result.A, whole.A)
    quadsense.solve(tighter)
    assert tighter.unit_rows is data.unit_rows  # read once


@pytest.mark.usefixtures("opened_later")
def test_the_limit_of_a_solve_decides_whether_rows_are_read(problem, tmp_path):
    U, b = problem
    np.save(tmp_path / "U.npy", U)
    data = Measurements.open(tmp_path / "U.npy", b=b, delta=0.01)
    with limited_memory(2 * U.nbytes - 1):
        assert data.settled() is not data and "on disk" in repr(data.settled())
    with limited_memory(2 * U.nbytes):
        assert data.settled() is data and "on disk" not in repr(data)


@pytest.mark.parametrize("limit", sampled([40e6, None], 1))
def test_a_solve_of_an_opened_file_keeps_its_limit(limit, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    U, x = rng.standard_normal((45_000, 120)), rng.standard_normal(120)
    np.save(tmp_path / "U.npy", U)
    monkeypatch.setattr(sources, "EAGER_BYTES", 2**20)
    monkeypatch.setattr(strip_module, "STRIP_BYTES", 2**20)
    b = (U @ x) ** 2
    size = U.nbytes
    del U
    tracemalloc.start()
    try:
        data = Measurements.open(tmp_path / "U.npy", b=b, delta=1e4)
        opened = tracemalloc.get_traced_memory()[1]
        result = quadsense.solve(data, prefer="any", memory_limit=limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.met
    assert opened < size / 2
    assert (peak < 40e6) == (limit is not None)


@pytest.mark.usefixtures("opened_later")
def test_what_else_needs_rows_reads_them(problem, tmp_path):
    U, b = problem
    np.save(tmp_path / "U.npy", U)
    held = Measurements(U, b, delta=0.01)

    def opened():
        data = Measurements.open(tmp_path / "U.npy", b=b, delta=0.01)
        assert "on disk" in repr(data)
        return data

    A = np.eye(N)
    for call in (
        lambda data: data.rank,
        lambda data: data.forward(A),
        lambda data: data.adjoint(b),
        lambda data: quadsense.solve(data.append(U[:2], b[:2])).A,
        lambda data: quadsense.solve(data.constrained(trace=(-100.0, 100.0)), prefer="any").A,
        lambda data: data.facts.coherence,
    ):
        np.testing.assert_array_equal(call(opened()), call(held))
    data = opened()
    data.save(tmp_path / "copy.npz")
    assert "on disk" in repr(data)
    again = pickle.loads(pickle.dumps(data))
    assert quadsense.solve(again).met
