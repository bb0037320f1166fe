"""Damaged files of every kind are one sentence that names them, and nothing is ever unpickled."""

import json
import pickle
import shutil
import struct
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from helpers import cover, sampled
from matlab73 import write_matlab73

import quadsense
from quadsense import files
from quadsense.files import contents

pytest.importorskip("h5py")
pytest.importorskip("zarr")
pytest.importorskip("pyarrow")

SUFFIXES = ("npz", "npy", "mat", "h5", "zarr.zip", "parquet", "csv")


def whole(folder, suffix, sparse=False):
    """A file of that kind, as it should be."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((30, 8))
    U = sp.csr_array(U * (rng.random(U.shape) < 0.5)) if sparse else U
    path = folder / f"whole.{suffix}"
    if suffix == "npy":
        np.save(path, U)
    elif suffix == "7.3.mat":
        write_matlab73(path, {"U": U, "b": np.ones((30, 1))})
    else:
        quadsense.Measurements(U, np.ones(30), delta=0.1).save(path)
    return path


def outcome(path, **options):
    """What was read, or the sentence; anything else that is raised is an error of the test."""
    try:
        data = quadsense.Measurements.open(path, **options)
    except (ValueError, MemoryError) as error:
        text = str(error)
        assert "\n" not in text, text
        return text
    return data


@pytest.mark.parametrize("suffix", [*SUFFIXES, "7.3.mat"])
def test_a_file_that_was_cut_is_said_to_be_damaged(tmp_path, suffix):
    path = whole(tmp_path, suffix)
    np.save(tmp_path / "b.npy", np.ones(30))
    options = {"b": str(tmp_path / "b.npy")} if suffix == "npy" else {}
    assert isinstance(outcome(path, **options), quadsense.Measurements)
    content = path.read_bytes()
    cut = tmp_path / f"cut.{suffix}"
    for share in (0.0, 0.01, 0.1, 0.5, 0.9, 0.99):
        cut.write_bytes(content[: int(share * len(content))])
        found = outcome(cut, **options)
        if suffix == "csv" and share > 0.1:  # a line may end anywhere
            continue
        assert isinstance(found, str), share
        assert str(cut) in found


@pytest.mark.parametrize("seed", sampled([1, 2, 3], 1))
@pytest.mark.parametrize(("suffix", "sparse"), cover([*SUFFIXES, "7.3.mat"], [False, True]))
def test_changed_bytes_never_raise_anything_else(tmp_path, suffix, sparse, seed):
    if sparse and suffix in ("npy", "parquet", "csv"):
        pytest.skip("holds no sparse arrays")
    content = bytearray(whole(tmp_path, suffix, sparse).read_bytes())
    np.save(tmp_path / "b.npy", np.ones(30))
    options = {"b": str(tmp_path / "b.npy")} if suffix == "npy" else {}
    rng, said = np.random.default_rng(seed), 0
    for _ in range(50):
        changed = bytearray(content)
        where = rng.integers(0, min(len(content), 3000), rng.integers(1, 6))
        for place in where:
            changed[place] = rng.integers(256)
        path = tmp_path / f"changed.{suffix}"
        path.write_bytes(changed)
        with np.errstate(all="ignore"):  # the numbers may be anything now
            found = outcome(path, **options)
        said += isinstance(found, str)
    assert said > 0


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 1000, b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"PAR1PAR1", b"\x93NUMPY\x01\x00"],
)
def test_what_is_no_such_file_is_said_to_be_none(tmp_path, suffix, content):
    path = tmp_path / f"d.{suffix}"
    path.write_bytes(content)
    found = outcome(path)
    assert isinstance(found, str)
    assert str(path) in found


@pytest.mark.parametrize("suffix", [*SUFFIXES, "zarr"])
def test_files_that_are_not_there_and_folders(tmp_path, suffix):
    path = tmp_path / f"d.{suffix}"
    assert outcome(path) == f"{path} does not exist"
    path.mkdir()
    assert str(path) in outcome(path)
    (path / "b.txt").touch()
    assert str(path) in outcome(path)


def test_a_zarr_store_with_parts_missing_or_changed(tmp_path):
    path = tmp_path / "d.zarr"
    data = quadsense.Measurements(np.eye(5), np.ones(5), delta=0.1)
    for victim in ("zarr.json", "U/zarr.json"):
        for content in (b"", b"{", b"[]", b'{"zarr_format": 9}', b"\xff\xfe"):
            data.save(path)
            (path / victim).write_bytes(content)
            assert str(path) in outcome(path), (victim, content)
        (path / victim).unlink()
        assert str(path) in outcome(path)
        shutil.rmtree(path)
    data.save(path)
    for chunk in (path / "U" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"broken")
    assert str(path) in outcome(path)


@pytest.mark.parametrize(
    "text",
    [
        "u1,u2,b\n1,2,3\n4,5\n",
        "u1,u2,b\n1,2,3\n4,5,6,7\n",
        "u1,u2,b\n1,2,3\n4,x,6\n",
        "u1,u2,b\n1,2,3\n4,,6\n",
        "u1,u2,b\n",
        "u1,u2\n1,2,3\n",
        "u1,u1,b\n1,2,3\n",
        "words,and,more\nof,them,here\n",
        "b\n1\n",
        "1\n2\n",
        "u1;b\n1,5;2,5\n",
        "\n\n# nothing\n",
        "1,2,3\n4,5,6+j7\n",
        '"u1,u2,b\n1,2,3\n',
    ],
)
def test_tables_of_text_that_are_none(tmp_path, text):
    path = tmp_path / "d.csv"
    path.write_text(text)
    found = outcome(path)
    assert isinstance(found, str), found
    assert str(path) in found


def test_sparse_arrays_that_cannot_be_are_refused(tmp_path):
    import h5py

    good = {"data": np.ones(3), "indices": np.array([0, 1, 0]), "indptr": np.array([0, 1, 2, 3])}
    for change in (
        {"indices": np.array([0, 9, 0])},
        {"indices": np.array([0, -1, 0])},
        {"indptr": np.array([0, 3, 2, 3])},
        {"indptr": np.array([0, 1, 2, 900])},
        {"indptr": np.array([0, 3, 3, 0])},
        {"indptr": np.array([1, 1, 2, 3])},
        {"data": np.ones(2)},
        {"data": np.array([b"a", b"b", b"c"])},
    ):
        with h5py.File(tmp_path / "d.h5", "w") as root:
            group = root.create_group("U")
            group.attrs["shape"] = (3, 2)
            for name, values in {**good, **change}.items():
                group[name] = values
            root["b"] = np.ones(3)
        assert "d.h5" in outcome(tmp_path / "d.h5"), change
        np.savez(
            tmp_path / "d.npz",
            b=np.ones(3),
            **{f"U.{name}": values for name, values in {**good, **change}.items()},
            **{"U.shape": np.array([3, 2])},
        )
        assert "d.npz" in outcome(tmp_path / "d.npz"), change


def test_objects_are_never_made(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (__import__("os").mkdir, (str(tmp_path / "boom"),))

    array = np.array([[Bomb()]], dtype=object)
    np.save(tmp_path / "U.npy", array, allow_pickle=True)
    (tmp_path / "raw.npy").write_bytes(pickle.dumps(Bomb()))
    for name in ("U.npy", "raw.npy"):
        assert name in outcome(tmp_path / name)
        with pytest.raises(ValueError, match=name):
            files.array_from(str(tmp_path / name))
    assert not (tmp_path / "boom").exists()


def test_a_hollow_array_is_said_to_be_one(tmp_path):
    scipy.io.savemat(tmp_path / "d.mat", {"U": np.zeros((0, 3)), "b": np.zeros((0, 1))})
    assert "U is empty" in outcome(tmp_path / "d.mat")


def declared_h5(path, **layout):
    import h5py

    with h5py.File(path, "w") as root:
        root.create_dataset("U", shape=(10**12, 10**3), dtype="f8", **layout)
        root["b"] = np.ones(30)


def declared_zarr(path, **changes):
    quadsense.Measurements(np.eye(30), np.ones(30), delta=0.1).save(path)
    place = path / "U" / "zarr.json"
    held = json.loads(place.read_text())
    held["shape"] = changes.get("shape", held["shape"])
    grid = held["chunk_grid"]["configuration"]
    grid["chunk_shape"] = changes.get("chunk", grid["chunk_shape"])
    place.write_text(json.dumps(held))


def declared_npy(stream, shape):
    layout = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, layout)
    stream.write(bytes(240))


def declared_npz(path, shape):
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("U.npy", "w") as stream:
            declared_npy(stream, shape)
        with archive.open("b.npy", "w") as stream:
            np.save(stream, np.ones(30))


def declared_mat(path):
    content = bytearray(whole(path.parent, "mat").read_bytes())
    sizes = struct.pack("<II", 30, 8)
    assert content.count(sizes) == 1
    path.write_bytes(content.replace(sizes, struct.pack("<II", 10**9, 10**9)))


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("chunks.h5", lambda path: declared_h5(path, chunks=(100, 1000)), "are stored of it"),
        ("contiguous.h5", declared_h5, "are stored of it"),
        ("rows.zarr", lambda path: declared_zarr(path, shape=[10**12, 1000]), "stored of it"),
        ("chunk.zarr", lambda path: declared_zarr(path, chunk=[10**9, 10**3]), "stored of it"),
        ("many.zarr", lambda path: declared_zarr(path, shape=[10**6, 8], chunk=[1, 1]), "stored"),
        ("zero.zarr", lambda path: declared_zarr(path, chunk=[0, 8]), "zero.zarr"),
        ("d.npz", lambda path: declared_npz(path, (10**12, 1000)), "is cut off"),
        ("minus.npz", lambda path: declared_npz(path, (-1, 8)), "shape is (-1, 8)"),
        ("d.mat", declared_mat, "fewer entries than it says"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_before_anything_is_read(tmp_path, name, make, said):
    path = tmp_path / name
    make(path)
    found = outcome(path)
    assert isinstance(found, str), found
    assert str(path) in found and said in found


def test_chunks_that_are_not_stored_are_zeros_where_they_can_be(tmp_path):
    import h5py

    with h5py.File(tmp_path / "d.h5", "w") as root:
        made = root.create_dataset("U", shape=(1000, 4), dtype="f8", chunks=(10, 4))
        made[:10] = 1.0
        root.create_dataset("b", shape=(1000,), dtype="f8", chunks=(10,))
    data = quadsense.Measurements.open(tmp_path / "d.h5")
    assert data.m == 1000 and not np.any(data.b) and not np.any(data.rows()[10:])


def test_a_table_that_would_take_far_more_than_is_stored_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "UNSTORED_BYTES", 2**20)
    monkeypatch.setattr(contents, "MAX_EXPANSION", 2**8)
    path = tmp_path / "d.parquet"
    zeros = np.zeros(10**6)
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"u1": zeros, "b": zeros}), path)
    assert "are stored of it" in outcome(path)


def test_what_does_not_fit_into_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = whole(tmp_path, "npz")
    monkeypatch.setattr(contents, "free_memory", lambda: 100)
    monkeypatch.setattr(files.npz, "load", None)
    found = outcome(path)
    assert str(path) in found and "100 B are free" in found


def test_a_sparse_array_of_far_more_rows_than_entries_is_refused(tmp_path):
    import h5py

    with h5py.File(tmp_path / "d.h5", "w") as root:
        group = root.create_group("U")
        group.attrs["shape"] = (10**13, 1)
        group.attrs["encoding-type"] = "csc_matrix"
        for name, values in (("data", [1.0]), ("indices", [0]), ("indptr", [0, 1])):
            group[name] = np.array(values)
        root["b"] = np.ones(3)
    assert "are stored of it" in outcome(tmp_path / "d.h5")


@pytest.mark.parametrize("kind", ["link", "external", "virtual"])
def test_numbers_in_other_files_are_never_read(tmp_path, kind):
    import h5py

    U = np.ones((30, 8))
    with h5py.File(tmp_path / "other.h5", "w") as root:
        root["U"] = U
    (tmp_path / "other.raw").write_bytes(U.tobytes())
    with h5py.File(tmp_path / "d.h5", "w") as root:
        root["b"] = np.ones(30)
        if kind == "link":
            root["U"] = h5py.ExternalLink("other.h5", "U")
        elif kind == "external":
            held = [(str(tmp_path / "other.raw"), 0, U.nbytes)]
            root.create_dataset("U", U.shape, U.dtype, external=held)
        else:
            layout = h5py.VirtualLayout(U.shape, U.dtype)
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "U", U.shape)
            root.create_virtual_dataset("U", layout)
    said = f"{tmp_path / 'd.h5'}: U holds no numbers, but is kept in another file"
    assert said in outcome(tmp_path / "d.h5")
    with h5py.File(tmp_path / "d.h5", "a") as root:
        root["V"] = np.eye(30)
    assert isinstance(outcome(tmp_path / "d.h5", U="V"), quadsense.Measurements)


def test_two_variables_of_one_name_in_a_matlab_file_are_refused(tmp_path):
    numbers, cell, path = (tmp_path / name for name in ("U.mat", "cell.mat", "d.mat"))
    scipy.io.savemat(numbers, {"U": np.eye(3), "b": np.ones((3, 1))})
    scipy.io.savemat(cell, {"U": np.array([1, "a"], dtype=object)})
    path.write_bytes(numbers.read_bytes() + cell.read_bytes()[128:])  # after its header
    assert "two variables named 'U'" in outcome(path)


def test_names_with_line_breaks_make_messages_of_one_line(tmp_path):
    np.savez(tmp_path / "d.npz", **{"U": np.eye(3), "some\nname": np.ones((2, 2))})
    assert "some\\nname" in outcome(tmp_path / "d.npz")
