"""Which array is U and which is b: by name, by shape, or one sentence on why neither."""

import itertools

import numpy as np
import pytest
from helpers import cover

import quadsense
from quadsense.files.contents import Entry
from quadsense.files.roles import find_roles

U, B = np.random.default_rng(0).standard_normal((6, 3)), np.arange(6.0)


@pytest.fixture
def read(tmp_path):
    """Reads named arrays through a file."""

    def call(arrays, **options):
        np.savez(tmp_path / "d.npz", **arrays)
        return quadsense.Measurements.open(tmp_path / "d.npz", **options)

    return call


@pytest.mark.parametrize(
    ("probes", "readings"),
    cover(
        ["U", "u", "X", "A", "Probes", "vectors", "anything"],
        ["b", "B", "y", "Readings", "values", "whatever"],
        each=2,
    ),
)
def test_names_in_any_case_or_the_only_matrix_and_vector(read, probes, readings):
    data = read({probes: U, readings: B, "label": "text", "A_star": np.eye(3)})
    np.testing.assert_array_equal(data.unit_rows.kind.given, U)
    np.testing.assert_array_equal(data.b, B)
    guessed = {"U": probes, "b": readings}
    expected = tuple(f"{role} is {name!r}" for role, name in guessed.items() if name != role)
    assert tuple(note.partition(", ")[0] for note in data.notes) == expected


def test_own_names_go_before_all_others(read):
    data = read({"U": U, "u": 2 * U, "X": 3 * U, "b": B, "B": 2 * B, "y": 3 * B})
    np.testing.assert_array_equal(data.unit_rows.kind.given, U)
    np.testing.assert_array_equal(data.b, B)
    assert data.notes == ()
    data = read({"U": U, "u": 2 * U, "b": B, "y": 3 * B}, U="u", b="y")
    np.testing.assert_array_equal(data.unit_rows.kind.given, 2 * U)
    np.testing.assert_array_equal(data.b, 3 * B)


def test_of_several_matrices_the_one_that_goes_with_b(read):
    data = read({"A": np.eye(3), "X": U, "b": B})
    np.testing.assert_array_equal(data.unit_rows.kind.given, U)
    data = read({"first": np.eye(3), "second": U, "b": B})
    assert data.notes == ("U is 'second', the only matrix that can be it",)
    with pytest.raises(ValueError, match=r"may have its probes U in any of A \(6 x 3\), X \(6 x"):
        read({"A": U, "X": U, "b": B})
    with pytest.raises(ValueError, match=r"any of first \(6 x 3\), second \(6 x 3\): .*--U"):
        read({"first": U, "second": U, "b": B})
    assert read({"first": U, "second": U, "b": B}, U="second").notes == ()


def test_of_several_vectors_the_one_of_the_right_length(read):
    data = read({"U": U, "times": np.ones(4), "found": B})
    np.testing.assert_array_equal(data.b, B)
    with pytest.raises(ValueError, match=r"readings b in any of found \(6\), other \(6\): .*--b"):
        read({"U": U, "other": B, "found": B})
    with pytest.raises(ValueError, match="holds no array named 'b', the readings"):
        read({"U": U, "times": np.ones(4)})


def test_columns_of_matlab_and_transposed_probes(read):
    for shape in ((6, 1), (1, 6), (6,)):
        data = read({"U": U, "b": B.reshape(shape), "delta": np.full((1, 1), 0.5)})
        np.testing.assert_array_equal(data.b, B)
        np.testing.assert_array_equal(data.tolerance, 0.5)
        data = read({"U": U.T, "b": B.reshape(shape)})
        np.testing.assert_array_equal(data.unit_rows.kind.given, U)
        assert "its columns are the vectors" in data.notes[0]
    data = read({"U": U.T, "lo": B[:, None], "hi": B[:, None] + 1.0})
    assert (data.m, data.n) == (6, 3)
    square = read({"U": U[:3], "b": B[:3]})
    assert square.notes == ()
    np.testing.assert_array_equal(square.unit_rows.kind.given, U[:3])


def test_probes_of_one_row_or_column(read):
    assert read({"U": U[:1], "b": B[1:2]}).m == 1
    assert read({"U": U[:1], "b": [[1.0]], "delta": [[0.1]]}).m == 1
    data = read({"U": U[:, :1], "b": B[:, None]})
    assert (data.m, data.n) == (6, 1)
    data = read({"U": U[:, :1].T, "b": B})
    assert (data.m, data.n) == (6, 1)


def test_complex_readings_without_imaginary_parts_are_real(read):
    np.testing.assert_array_equal(read({"U": U, "b": B + 0j}).b, B)
    with pytest.raises(ValueError, match="b must be real"):
        read({"U": U, "b": B + 1j})


def test_a_result_is_no_data(tmp_path):
    quadsense.solve(U, U[:, 0] ** 2, delta=0.1).save(tmp_path / "r.npz")
    with pytest.raises(ValueError, match=r"r\.npz is a quadsense result, and no measurements"):
        quadsense.Measurements.open(tmp_path / "r.npz")


def test_wrong_shapes_are_said_as_ever(read):
    with pytest.raises(ValueError, match=r"b has shape \(5,\), but must have shape \(6,\)"):
        read({"U": U, "b": B[:5]})
    with pytest.raises(ValueError, match="U must have two dimensions"):
        read({"U": B, "b": B})
    with pytest.raises(ValueError, match=r"holds no matrix U, .*it holds b \(6\).*--U"):
        read({"b": B})
    with pytest.raises(ValueError, match="holds no matrix U, one vector per row; it holds nothing"):
        read({})


def numeric(name, *shape):
    return Entry(name, shape, "float64")


def test_groups_keep_together():
    one = (numeric("run/U", 6, 3), numeric("run/b", 6), numeric("run/delta"), numeric("b", 9))
    roles = find_roles("f", one, None, None)
    assert roles.names == {"U": "run/U", "b": "run/b", "delta": "run/delta"}
    two = (*one, numeric("walk/U", 6, 3), numeric("walk/b", 6), numeric("walk/lo", 6))
    with pytest.raises(ValueError, match=r"any of run/U \(6 x 3\), walk/U \(6 x 3\)"):
        find_roles("f", two, None, None)
    roles = find_roles("f", two, "walk/U", None)
    assert roles.names == {"U": "walk/U", "b": "walk/b", "lo": "walk/lo"}
    roles = find_roles("f", two, "WALK/u", "run/b")
    assert roles.names["b"] == "run/b"
    with pytest.raises(ValueError, match=r"several arrays named 'U': run/U \(6 x 3\), walk/U"):
        find_roles("f", two, "U", None)
    above = (numeric("run/U", 6, 3), numeric("run/b", 6), numeric("delta"))
    assert find_roles("f", above, None, None).names["delta"] == "delta"


def test_what_is_found_does_not_depend_on_the_order_of_the_file():
    entries = [
        numeric("X", 6, 3),
        numeric("A_star", 3, 3),
        numeric("y", 6),
        numeric("t", 4),
        Entry("note", (), "text"),
    ]
    found = {
        tuple(sorted(find_roles("f", order, None, None).names.items()))
        for order in itertools.permutations(entries)
    }
    assert found == {(("U", "X"), ("b", "y"))}
