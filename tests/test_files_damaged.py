"""Damaged files of every kind are one sentence that names them, and nothing is ever unpickled."""

import pickle
import shutil

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from helpers import cover
from matlab73 import write_matlab73

import quadsense
from quadsense import files

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


@pytest.mark.parametrize(("suffix", "sparse"), cover([*SUFFIXES, "7.3.mat"], [False, True]))
def test_changed_bytes_never_raise_anything_else(tmp_path, suffix, sparse):
    if sparse and suffix in ("npy", "parquet", "csv"):
        pytest.skip("holds no sparse arrays")
    content = bytearray(whole(tmp_path, suffix, sparse).read_bytes())
    np.save(tmp_path / "b.npy", np.ones(30))
    options = {"b": str(tmp_path / "b.npy")} if suffix == "npy" else {}
    rng, said = np.random.default_rng(1), 0
    for _ in range(150):
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
