"""Every format brings back what was written; MATLAB's layouts are read as MATLAB means them."""

import itertools
import os
import stat
import sys

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from helpers import cover, gaussian_rows
from matlab73 import write_matlab73

import quadsense
from quadsense import files

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ALL = ("npz", "mat", "h5", "hdf5", "zarr", "zarr.zip", "parquet", "csv", "tsv")
TABLES = ("parquet", "csv", "tsv")
KINDS = ("real", "complex", "single", "sparse", "sparse complex", "integers")


def probes(kind, m=7, n=4, seed=0):
    rng = np.random.default_rng(seed)
    U = gaussian_rows(rng, m, n, "complex" in kind)
    if kind == "single":
        return U.astype(np.float32)
    if kind == "integers":
        return rng.integers(-3, 4, (m, n)) + np.eye(m, n, dtype=np.int64) * 10
    if "sparse" in kind:
        return sp.csr_array(U * (rng.random((m, n)) < 0.5))
    return U


def dense(U):
    return U.toarray() if sp.issparse(U) else np.asarray(U)


def held(data):
    """U as it was given."""
    return data.unit_rows.kind.given


def meant(data):
    """U as it was given, row i being u_i, dense."""
    U = dense(held(data))
    return U.conj() if data.conjugate else U


def options(m, seed=1):
    """What may go with U, in all its combinations."""
    rng = np.random.default_rng(seed)
    b = rng.standard_normal(m)
    wide = np.where(rng.random(m) < 0.3, np.inf, b + 1.0)
    return {
        "b alone": {"b": b},
        "one delta": {"b": b, "delta": 0.1},
        "deltas and rtol": {"b": b, "delta": rng.random(m), "rtol": 0.25},
        "rtol": {"b": b, "rtol": 0.125},
        "bounds": {"bounds": (b, wide)},
        "bounds and b": {"b": b, "bounds": (b - 1.0, wide)},
        "weights": {"b": b, "delta": 0.5, "weights": rng.random(m)},
        "one weight": {"b": b, "weights": 2.0},
        "conjugate": {"b": b, "delta": 0.5, "conjugate": True},
    }


def assert_same(found, data, table):
    """The same rows, readings, intervals and weights, to the last bit."""
    assert (found.m, found.n) == (data.m, data.n)
    np.testing.assert_array_equal(meant(found), meant(data))
    np.testing.assert_array_equal(found.b, data.b)
    if data.tolerance is None:
        assert found.tolerance is None
    else:
        np.testing.assert_array_equal(found.tolerance, data.tolerance)
        np.testing.assert_array_equal(found.lo, data.lo)
        np.testing.assert_array_equal(found.hi, data.hi)
    assert found.from_bounds == data.from_bounds
    assert (found.readings is None) == (data.readings is None)
    if data.weights is None:
        assert found.weights is None
    else:
        np.testing.assert_array_equal(found.weights, data.weights)
    assert np.iscomplexobj(dense(held(found))) == np.iscomplexobj(dense(held(data)))
    if not table:
        assert found.conjugate == data.conjugate
        assert sp.issparse(held(found)) == sp.issparse(held(data))
        assert held(found).dtype == held(data).dtype


@pytest.mark.parametrize(("suffix", "kind"), cover(ALL, KINDS, each=1))
def test_measurements_come_back_as_they_were_written(tmp_path, suffix, kind):
    for i, (name, option) in enumerate(options(7).items()):
        data = quadsense.Measurements(probes(kind), **option)
        path = tmp_path / f"{i}.{suffix}"
        if "sparse" in kind and suffix in TABLES:
            with pytest.raises(ValueError, match="cannot keep a sparse U, being a"):
                data.save(path)
            assert not list(tmp_path.iterdir()), name
            continue
        data.save(path)
        found = quadsense.Measurements.open(path)
        assert_same(found, data, suffix in TABLES)
        assert found.notes == ()


@pytest.mark.parametrize("suffix", ["npz", "mat", "h5", "zarr", "zarr.zip"])
@pytest.mark.parametrize("sparse", [False, True])
def test_sums_over_rows_come_back(tmp_path, suffix, sparse):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((3, 7))
    mix = sp.csr_array(W * (np.abs(W) > 0.5)) if sparse else W
    U = probes("sparse complex" if sparse else "complex")
    data = quadsense.Measurements(U, rng.random(3), delta=0.1, mix=mix)
    data.save(tmp_path / f"d.{suffix}")
    found = quadsense.Measurements.open(tmp_path / f"d.{suffix}")
    np.testing.assert_array_equal(dense(found.mix), dense(mix))
    assert sp.issparse(found.mix) == sparse
    for name in ("d.csv", "d.parquet"):
        with pytest.raises(ValueError, match=f"{name} cannot hold measurements, being a"):
            data.save(tmp_path / name)


@pytest.mark.parametrize("suffix", ["npy", *ALL])
def test_the_matrix_is_written_in_every_format(tmp_path, suffix, complex_):
    p = quadsense.datasets.gaussian(n=4, m=12, complex=complex_, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.01)
    path = tmp_path / f"A.{suffix}"
    result.save_matrix(path)
    result.save_matrix(path)  # a second time takes the first one's place
    np.testing.assert_array_equal(files.array_from(str(path)), result.A)
    assert os.listdir(tmp_path) == [path.name]
    if suffix == "csv" and not complex_:
        np.testing.assert_array_equal(np.loadtxt(path, delimiter=","), result.A)
    if suffix == "mat":
        np.testing.assert_array_equal(scipy.io.loadmat(path)["A"], result.A)
    if suffix == "h5":
        with h5py.File(path) as root:
            np.testing.assert_array_equal(root["A"][...], result.A)


# --- MATLAB -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", ["4", "5", "7", "7.3"])
def test_files_of_matlab_are_read_as_matlab_means_them(tmp_path, version, kind):
    if version == "4" and kind in ("integers", "single"):
        pytest.skip("version 4 knows doubles only")
    U, path = probes(kind), tmp_path / "d.mat"
    b = np.random.default_rng(1).standard_normal(7)
    for column, extra in itertools.product((True, False), ({}, {"delta": 0.5})):
        shaped = b[:, None] if column else b[None, :]
        stored = {"U": U, "b": shaped, "note": "made by hand", **extra}
        if version == "7.3":
            write_matlab73(path, stored)
        else:
            given = {"format": "4"} if version == "4" else {"do_compression": version == "7"}
            scipy.io.savemat(path, stored, **given)
        data = quadsense.Measurements.open(path)
        np.testing.assert_array_equal(meant(data), dense(U))
        np.testing.assert_array_equal(data.b, b)
        assert (data.tolerance is None) == (not extra)
        assert sp.issparse(data.unit_rows.kind.given) == sp.issparse(U)
        assert np.iscomplexobj(meant(data)) == np.iscomplexobj(dense(U))


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_columns_are_the_vectors_where_only_that_can_be(tmp_path, version):
    U, b = probes("complex"), np.ones(7)
    write = write_matlab73 if version == "7.3" else scipy.io.savemat
    write(tmp_path / "d.mat", {"U": U.T, "b": b[:, None]})
    data = quadsense.Measurements.open(tmp_path / "d.mat")
    np.testing.assert_array_equal(meant(data), U)
    assert data.notes == ("U is 4 x 7 for 7 readings: its columns are the vectors",)


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_fields_of_a_struct_are_arrays_by_their_paths(tmp_path, version):
    U, b = probes("real"), np.arange(7.0)
    held = {"run": {"U": U, "b": b[:, None], "inner": {"delta": 0.1}}, "U2": np.eye(3)}
    write = write_matlab73 if version == "7.3" else scipy.io.savemat
    write(tmp_path / "d.mat", held)
    data = quadsense.Measurements.open(tmp_path / "d.mat")
    np.testing.assert_array_equal(meant(data), U)
    np.testing.assert_array_equal(data.b, b)
    assert data.notes == ("U is 'run/U'", "b is 'run/b'")


def test_cells_objects_and_text_of_matlab_are_listed_and_left_alone(tmp_path):
    cell = np.empty((1, 2), dtype=object)
    cell[0, 0], cell[0, 1] = np.eye(2), "text"
    scipy.io.savemat(tmp_path / "d.mat", {"U": np.eye(3), "b": np.ones(3), "c": cell, "t": "abc"})
    source = files.look_at(tmp_path / "d.mat")
    known = {entry.name: (entry.dtype, entry.numeric) for entry in source.entries}
    assert known["c"] == ("cell", False)
    assert known["t"] == ("text", False)
    assert quadsense.Measurements.open(tmp_path / "d.mat").m == 3


def test_an_empty_array_and_a_sparse_one_without_entries_are_read(tmp_path):
    held = {"U": sp.csr_array((3, 2)), "b": np.zeros((3, 1)), "none": np.zeros((0, 5))}
    write_matlab73(tmp_path / "d.mat", held)
    shapes = {entry.name: entry.shape for entry in files.look_at(tmp_path / "d.mat").entries}
    assert shapes == {"U": (3, 2), "b": (3, 1), "none": (0, 5)}
    data = quadsense.Measurements.open(tmp_path / "d.mat")
    assert data.unit_rows.kind.given.nnz == 0
    assert files.array_from(f"{tmp_path / 'd.mat'}::none").shape == (0, 5)


# --- HDF5 and Zarr ----------------------------------------------------------------------------


def fill(root, name, values, **attributes):
    """An array, in groups where its name has any; sparse ones in AnnData's way."""
    if sp.issparse(values):
        group = root.create_group(name)
        group.attrs.update(attributes)
        for part in ("data", "indices", "indptr"):
            fill(group, part, getattr(values, part))
    elif hasattr(root, "create_array"):
        array = np.asarray(values)
        root.create_array(name, shape=array.shape, dtype=array.dtype)[...] = array
    else:
        root.create_dataset(name, data=values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["h5py", "zarr", "zarr 2"])
def test_trees_of_others_are_read(tmp_path, library, kind):
    path = tmp_path / ("d.h5" if library == "h5py" else "d.zarr")
    U, b = probes(kind), np.arange(7.0)
    for order in ("csr", "csc") if sp.issparse(U) else ("csr",):
        given = sp.csc_array(U) if order == "csc" else U
        if library == "h5py":
            root = h5py.File(path, "w")
        else:
            root = zarr.open_group(path, mode="w", zarr_format=2 if library == "zarr 2" else 3)
        fill(root, "run/U", given, **{"encoding-type": f"{order}_matrix", "shape": [7, 4]})
        fill(root, "run/b", b)
        fill(root, "other", np.eye(9))
        if library == "h5py":
            root["run/b again"] = h5py.SoftLink("/nowhere")
            root["far"] = h5py.ExternalLink("absent.h5", "/U")
            root["run/circle"] = root["run"]
            root.close()
        data = quadsense.Measurements.open(path, U="run/U", b="run/b")
        np.testing.assert_array_equal(meant(data), dense(U))
        assert sp.issparse(data.unit_rows.kind.given) == sp.issparse(U)
        np.testing.assert_array_equal(quadsense.Measurements.open(path).b, b)


def test_complex_numbers_as_pairs_of_any_name_are_read(tmp_path):
    U = probes("complex")
    with h5py.File(tmp_path / "d.h5", "w") as root:
        for real, imag in (("real", "imag"), ("re", "im"), ("r", "i")):
            pairs = np.empty(U.shape, [(real, "f8"), (imag, "f8")])
            pairs[real], pairs[imag] = U.real, U.imag
            root[f"U{real}"] = pairs
        root["b"] = np.ones(7)
    for real in ("real", "re", "r"):
        data = quadsense.Measurements.open(tmp_path / "d.h5", U=f"U{real}")
        np.testing.assert_array_equal(meant(data), U)


def test_a_zarr_array_by_itself_is_one_array(tmp_path):
    zarr.save_array(tmp_path / "probes.zarr", np.eye(3))
    np.save(tmp_path / "b.npy", np.ones(3))
    data = quadsense.Measurements.open(tmp_path / "probes.zarr", b=str(tmp_path / "b.npy"))
    assert (data.m, data.n) == (3, 3)


# --- .npy and .npz ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["real", "complex", "single", "integers"])
def test_pairs_of_npy_files_and_folders_of_them(tmp_path, kind):
    U, b = probes(kind), np.arange(7.0)
    np.save(tmp_path / "U.npy", U)
    np.save(tmp_path / "b.npy", b)
    np.save(tmp_path / "delta.npy", 0.5)
    pair = quadsense.Measurements.open(tmp_path / "U.npy", b=str(tmp_path / "b.npy"))
    folder = quadsense.Measurements.open(tmp_path)
    for data in (pair, folder):
        np.testing.assert_array_equal(meant(data), U)
        np.testing.assert_array_equal(data.b, b)
        assert data.unit_rows.kind.given.dtype == U.dtype
    assert pair.tolerance is None
    np.testing.assert_array_equal(folder.tolerance, 0.5)
    with pytest.raises(ValueError, match=r"U\.npy holds no array named 'b', the readings"):
        quadsense.Measurements.open(tmp_path / "U.npy")


@pytest.mark.parametrize("order", ["csr", "csc", "coo", "bsr", "dia"])
def test_what_scipy_saved_is_one_sparse_array(tmp_path, order):
    U = probes("sparse complex")
    sp.save_npz(tmp_path / "probes.npz", sp.csr_array(U).asformat(order))
    np.savez(tmp_path / "rest.npz", readings=np.ones(7), other=np.ones(3))
    reference = f"{tmp_path / 'rest.npz'}::readings"
    data = quadsense.Measurements.open(tmp_path / "probes.npz", b=reference)
    assert sp.issparse(data.unit_rows.kind.given)
    np.testing.assert_array_equal(meant(data), dense(U))
    assert files.look_at(tmp_path / "probes.npz").entries[0].sparse


# --- writing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npz", "mat", "h5", "zarr", "zarr.zip", "parquet", "csv"])
def test_a_failed_write_leaves_what_was_there(tmp_path, suffix):
    path = tmp_path / f"d.{suffix}"
    data = quadsense.Measurements(np.eye(3), np.ones(3), delta=0.1)
    data.save(path)

    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write(path, {"U": np.eye(2), "b": Broken()}, {})
    assert quadsense.Measurements.open(path).m == 3
    assert os.listdir(tmp_path) == [path.name]


def test_files_have_the_rights_of_any_other(tmp_path):
    (tmp_path / "plain").touch()
    data = quadsense.Measurements(np.eye(3), np.ones(3), delta=0.1)
    for suffix in ("npz", "mat", "h5", "zarr.zip", "parquet", "csv"):
        data.save(tmp_path / f"d.{suffix}")
        rights = stat.S_IMODE((tmp_path / f"d.{suffix}").stat().st_mode)
        assert rights == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_folder_that_is_no_store_is_never_replaced(tmp_path):
    (tmp_path / "d.zarr").mkdir()
    (tmp_path / "d.zarr" / "thesis.tex").write_text("years of work")
    data = quadsense.Measurements(np.eye(3), np.ones(3), delta=0.1)
    with pytest.raises(ValueError, match="nothing in it is replaced"):
        data.save(tmp_path / "d.zarr")
    assert (tmp_path / "d.zarr" / "thesis.tex").exists()


def test_names_of_no_format_are_refused_before_the_work(tmp_path):
    data = quadsense.Measurements(np.eye(3), np.ones(3), delta=0.1)
    result = quadsense.solve(data)
    every = ".npz, .npy, .mat, .h5, .hdf5, .hdf, .zarr, .zarr.zip, .parquet, .pq, .csv, .tsv or"
    for name in ("A.json", "A", "A.npz.bak"):
        with pytest.raises(ValueError, match=f"{name} is no name for A: it must end in {every}"):
            result.save_matrix(tmp_path / name)
    with pytest.raises(ValueError, match=r"cannot hold measurements, being an \.npy file"):
        data.save(tmp_path / "d.npy")
    (tmp_path / "d.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=f"no known format: its name must end in {every}"):
        quadsense.Measurements.open(tmp_path / "d.xlsx")


@pytest.mark.parametrize(
    ("package", "suffix"), [("h5py", "h5"), ("zarr", "zarr"), ("pyarrow", "pq")]
)
def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch, package, suffix):
    data = quadsense.Measurements(np.eye(3), np.ones(3), delta=0.1)
    path = tmp_path / f"d.{suffix}"
    data.save(path)
    write_matlab73(tmp_path / "d.mat", {"U": np.eye(3), "b": np.ones(3)})
    monkeypatch.setitem(sys.modules, package, None)
    words = rf"which needs the package {package}: pip install 'quadsense\[files\]'"
    for act in (quadsense.Measurements.open, data.save):
        with pytest.raises(ImportError, match=words):
            act(path)
    if package == "h5py":
        with pytest.raises(ValueError, match=r"a MATLAB file of v7\.3, and reading it needs h5py"):
            quadsense.Measurements.open(tmp_path / "d.mat")


@pytest.mark.parametrize("dtype", [">f8", ">c16", "<f2", ">f4", ">i2", "bool", "g", "G"])
def test_numbers_of_any_order_and_width_are_read(tmp_path, dtype):
    U = (10 * probes("real")).astype(dtype)
    np.savez(tmp_path / "d.npz", U=U, b=np.ones(7, ">f8"))
    np.save(tmp_path / "U.npy", U)
    for data in (
        quadsense.Measurements.open(tmp_path / "d.npz"),
        quadsense.Measurements.open(tmp_path / "U.npy", b=f"{tmp_path / 'd.npz'}::b"),
    ):
        np.testing.assert_array_equal(meant(data), U.astype(meant(data).dtype))
        assert quadsense.solve(data.with_tolerance(1e3), prefer="any").met


def test_an_array_called_metadata_is_no_trouble(tmp_path):
    for metadata in (np.ones(3), np.array("words"), np.array([{}], dtype=object), np.array("[1]")):
        np.savez(tmp_path / "d.npz", U=np.eye(3), b=np.ones(3), metadata=metadata)
        assert quadsense.Measurements.open(tmp_path / "d.npz").m == 3
