"""Columns of CSV and Parquet files become U and b as their names say."""

import csv
import itertools
import re

import numpy as np
import pytest
from helpers import gaussian_rows

import quadsense
from quadsense import Measurements, files

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

U = gaussian_rows(np.random.default_rng(0), 6, 3, False)
V = gaussian_rows(np.random.default_rng(0), 6, 3, True)
B = np.arange(6.0)


def write(path, columns, mark=","):
    """A table of columns by name, in either format."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: np.asarray(c) for name, c in columns.items()}), path)
        return
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream, delimiter=mark)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def given(data):
    return data.unit_rows.kind.given


@pytest.fixture(params=["csv", "parquet"])
def path(request, tmp_path):
    return tmp_path / f"d.{request.param}"


def test_b_is_named_and_the_rest_is_u_wherever_b_stands(path):
    names = ["first", "second", "third"]
    for place, name in itertools.product(range(4), ("b", "B", "y", "readings", "Value")):
        columns = dict(zip(names, U.T, strict=True))
        items = list(columns.items())
        items.insert(place, (name, B))
        write(path, dict(items))
        data = quadsense.Measurements.open(path)
        np.testing.assert_array_equal(given(data), U)
        np.testing.assert_array_equal(data.b, B)
        assert data.notes == (() if name == "b" else (f"b is {name!r}",))


def test_b_by_its_name_goes_before_other_guesses(path):
    write(path, {"x": U[:, 0], "y": U[:, 1], "z": U[:, 2], "b": B})
    np.testing.assert_array_equal(given(quadsense.Measurements.open(path)), U)
    write(path, {"x": U[:, 0], "y": U[:, 1], "z": U[:, 2]})
    with pytest.raises(ValueError, match=r"no column for the readings b; it has x, y, z: say"):
        quadsense.Measurements.open(path)
    data = quadsense.Measurements.open(path, b="Z")
    np.testing.assert_array_equal(given(data), U[:, :2])
    write(path, {"x": U[:, 0], "readings": U[:, 1], "value": U[:, 2]})
    with pytest.raises(ValueError, match="several columns for the readings b"):
        quadsense.Measurements.open(path)


@pytest.mark.parametrize(
    ("real", "imag"),
    [("{}_re", "{}_im"), ("{}.re", "{}.im"), ("re({})", "im({})"), ("{}_real", "{}_imag"),
     ("{}.RE", "{}.IM"), ("Re({})", "Im({})")],
)  # fmt: skip
@pytest.mark.parametrize("order", ["paired", "apart", "swapped"])
def test_pairs_of_columns_are_complex(path, real, imag, order):
    names = [f"u{i}" for i in range(3)]
    pairs = [((real.format(k), V[:, i].real), (imag.format(k), V[:, i].imag))
             for i, k in enumerate(names)]  # fmt: skip
    if order == "apart":
        items = [each[0] for each in pairs] + [each[1] for each in pairs]
    else:
        items = [part for each in pairs for part in (each[::-1] if order == "swapped" else each)]
    write(path, dict([*items, ("b", B)]))
    data = quadsense.Measurements.open(path)
    np.testing.assert_array_equal(given(data), V)


def test_half_a_pair_is_a_column_of_its_own(path):
    write(path, {"u_re": U[:, 0], "v": U[:, 1], "w.im": U[:, 2], "b": B})
    np.testing.assert_array_equal(given(quadsense.Measurements.open(path)), U)


def test_tolerances_intervals_and_weights_are_columns_too(path):
    columns = {"u1": U[:, 0], "delta": B + 1.0, "u2": U[:, 1], "b": B, "weights": B, "rtol": 0 * B}
    write(path, columns | {"rtol": np.full(6, 0.5)})
    data = quadsense.Measurements.open(path)
    np.testing.assert_array_equal(given(data), U[:, :2])
    np.testing.assert_array_equal(data.tolerance, B + 1.0 + 0.5 * B)
    np.testing.assert_array_equal(data.weights, B)
    write(path, columns | {"rtol": B})
    with pytest.raises(ValueError, match="rtol must be the same in every row"):
        quadsense.Measurements.open(path)
    write(path, {"lower": B, "u1": U[:, 0], "upper": B + 1.0})
    data = quadsense.Measurements.open(path)
    np.testing.assert_array_equal(data.hi, B + 1.0)
    assert data.readings is None


def test_columns_of_u_are_chosen_by_names_and_patterns(path):
    write(path, {"id": B, "u1": U[:, 0], "u10": U[:, 1], "extra": B, "u2": U[:, 2], "b": B})
    read = quadsense.Measurements.open
    np.testing.assert_array_equal(given(read(path, U="u*")), U)
    np.testing.assert_array_equal(given(read(path, U="u2,u1")), U[:, [2, 0]])
    np.testing.assert_array_equal(given(read(path, U="u2, u?, u*")), U[:, [2, 0, 1]])
    for wrong in ("v*", "u1,w"):
        with pytest.raises(ValueError, match="has no column"):
            read(path, U=wrong)


def test_text_is_left_out_and_said(path):
    label = np.array(list("abcdef"))
    write(path, {"name": label, "u1": U[:, 0], "b": B, "when": label})
    data = quadsense.Measurements.open(path)
    np.testing.assert_array_equal(given(data), U[:, :1])
    (note,) = data.notes
    assert note.startswith("left out, being no numbers: name (6, ")
    assert "when" in note


def test_readings_from_another_file(path, tmp_path):
    write(path, {"u1": U[:, 0], "u2": U[:, 1]})
    np.save(tmp_path / "r.npy", B)
    data = quadsense.Measurements.open(path, b=str(tmp_path / "r.npy"))
    np.testing.assert_array_equal(given(data), U[:, :2])
    write(tmp_path / "r.csv", {"one": B, "two": 2 * B})
    data = quadsense.Measurements.open(path, b=f"{tmp_path / 'r.csv'}::two")
    np.testing.assert_array_equal(data.b, 2 * B)


# --- CSV alone --------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [",", ";", "\t", " ", "   ", ", ", " ; "])
@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_any_delimiter_with_names_and_without(tmp_path, mark, names, end):
    rows = [mark.join(map(repr, row)) for row in np.column_stack([U, B]).tolist()]
    head = [mark.join(["p", "q", "r", "b"])] if names else []
    for before, after in (("", end), ("# made by hand" + end + end, ""), ("\ufeff", end + end)):
        text = before + end.join([*head, *rows]) + after
        (tmp_path / "d.txt").write_text(text, encoding="utf-8", newline="")
        data = quadsense.Measurements.open(tmp_path / "d.txt")
        np.testing.assert_array_equal(given(data), U)
        np.testing.assert_array_equal(data.b, B)
        note = "no names of columns: the last is b, the others are U"
        assert data.notes == (() if names else (note,))


def test_names_in_the_comment_of_numpy_are_names(tmp_path):
    np.savetxt(tmp_path / "d.csv", np.column_stack([B, U]), delimiter=",", header="b,p,q,r")
    data = quadsense.Measurements.open(tmp_path / "d.csv")
    np.testing.assert_array_equal(data.b, B)
    np.savetxt(tmp_path / "d.csv", np.column_stack([U, B]), delimiter=",", header="my own new data")
    assert quadsense.Measurements.open(tmp_path / "d.csv").notes


@pytest.mark.parametrize("unit", ["j", "i"])
def test_complex_numbers_as_text(tmp_path, unit):
    rows = [
        ",".join([*(f"{z.real!r}{z.imag:+.17g}{unit}" for z in row), repr(value)])
        for row, value in zip(V.tolist(), B.tolist(), strict=True)
    ]
    (tmp_path / "d.csv").write_text("\n".join(rows))
    data = quadsense.Measurements.open(tmp_path / "d.csv")
    np.testing.assert_allclose(given(data), V, rtol=1e-15)
    np.testing.assert_array_equal(data.b, B)
    np.savetxt(tmp_path / "d.csv", np.column_stack([V, B]), delimiter=",")
    np.testing.assert_allclose(given(quadsense.Measurements.open(tmp_path / "d.csv")), V)


def test_quotes_and_the_index_of_pandas(tmp_path):
    rows = [f'{i},"{u!r}",{i}.0' for i, u in enumerate(U[:, 0].tolist())]
    (tmp_path / "d.csv").write_text("\n".join(['"","with, comma","b"', *rows]))
    data = quadsense.Measurements.open(tmp_path / "d.csv")
    np.testing.assert_array_equal(given(data), U[:, :1])
    assert data.notes == ("left out, being no numbers: the numbers of the rows (6, index)",)


def test_infinite_ends_are_written_and_read(tmp_path):
    data = quadsense.Measurements(U, bounds=(np.full(6, -np.inf), B))
    data.save(tmp_path / "d.csv")
    found = quadsense.Measurements.open(tmp_path / "d.csv")
    np.testing.assert_array_equal(found.lo, -np.inf)


# --- Parquet alone ----------------------------------------------------------------------------


def test_lists_are_rows_of_u(tmp_path):
    path = tmp_path / "d.parquet"
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 3)):
        columns = {"U": pa.array(U.tolist(), kind), "b": B, "extra": B}
        pq.write_table(pa.table(columns), path, row_group_size=4)
        data = quadsense.Measurements.open(path)
        np.testing.assert_array_equal(given(data), U)
        assert data.notes == ("left out: extra",)
        columns = {"U_re": pa.array(V.real.tolist(), kind), "U_im": pa.array(V.imag.tolist(), kind)}
        pq.write_table(pa.table({**columns, "b": B}), path)
        np.testing.assert_array_equal(given(quadsense.Measurements.open(path)), V)
    pq.write_table(pa.table({"U": [[1.0], [1.0, 2.0]], "b": [1.0, 2.0]}), path)
    with pytest.raises(ValueError, match="lists of a column differ in length"):
        quadsense.Measurements.open(path)
    pq.write_table(pa.table({"p": [[1.0]], "q": [[1.0]], "b": [1.0]}), path)
    with pytest.raises(ValueError, match="may have its probes U in any of p, q"):
        quadsense.Measurements.open(path)
    assert quadsense.Measurements.open(path, U="p").n == 1


def test_types_of_parquet(tmp_path):
    path = tmp_path / "d.parquet"
    columns = {
        "a": pa.array([1, 2, 3], pa.int8()),
        "c": pa.array([True, False, True]),
        "d": pa.array([1.5, 2.5, 3.5], pa.float32()),
        "e": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        "z": pa.array([{"re": 1.0, "im": 2.0}] * 3),
        "word": pa.array(["x", "y", "z"]),
        "__index_level_0__": pa.array([7, 8, 9]),
        "b": pa.array([1.0, 2.0, 3.0]),
    }
    pq.write_table(pa.table(columns), path)
    data = quadsense.Measurements.open(path)
    expected = np.array([[1, 1, 1.5, 1, 1 + 2j], [2, 0, 2.5, 2, 1 + 2j], [3, 1, 3.5, 3, 1 + 2j]])
    np.testing.assert_array_equal(given(data), expected)
    assert "__index_level_0__" in data.notes[0]
    pq.write_table(pa.table({"u": pa.array([1.0, None]), "b": [1.0, 2.0]}), path)
    with pytest.raises(ValueError, match="U contains NaN or infinity, first in row 1"):
        quadsense.Measurements.open(path)


def test_a_table_is_a_matrix_where_one_is_asked_for(tmp_path):
    np.savetxt(tmp_path / "A.csv", U, delimiter=",")
    np.testing.assert_array_equal(files.array_from(str(tmp_path / "A.csv")), U)
    np.savetxt(tmp_path / "v.csv", B)
    np.testing.assert_array_equal(files.array_from(str(tmp_path / "v.csv")), B)


def test_columns_that_are_asked_for_otherwise_are_not_of_u(path, monkeypatch):
    from click.testing import CliRunner

    from quadsense import cli

    w = np.arange(1.0, 7.0)
    write(path, {"u1": U[:, 0], "low": B - 1, "u2": U[:, 1], "high": B + 1, "w": w, "b": B})
    words = ["solve", str(path), "--bounds", "low", "high", "--weights", "w", "--json"]
    found = CliRunner().invoke(cli.cli, words, standalone_mode=False)
    assert found.exception is None
    assert '"unknowns": 3' in found.output
    expected = quadsense.solve(U[:, :2], B, bounds=(B - 1, B + 1), weights=w)
    assert f'"status": "{expected.status}"' in found.output


@pytest.mark.parametrize(
    ("text", "column", "line", "said", "options"),
    [
        ("u0,u1,b\n1,n/a,3\n4,5,6\n", "u1", 2, "'n/a'", {}),
        ("u0,u1,b\n1,2,3\n4,n/a,6\n", "u1", 3, "'n/a'", {}),
        ("u0,u1,b\n1,,3\n4,5,6\n", "u1", 2, "nothing", {}),
        ("u0;u1;b\n1,5;2;3\n4;5;6\n", "u0", 2, "'1,5'", {}),
        ("# made on Monday\n\nu0,u1,b\n2 V,1,3\n4,5,6\n", "u0", 4, "'2 V'", {}),
        ("u0;b\n1,5;2,5\n", "u0", 2, "'1,5'", {}),
        ("u1_re,u1_im,b\n1,x,4\n4,5,6\n", "u1_im", 2, "'x'", {}),
        ("x1,x2,b\n1,?,4\n4,5,6\n", "x2", 2, "'?'", {}),
        ("u0,u1,b\n1,2,n/a\n4,5,6\n", "b", 2, "'n/a'", {}),
        ("u0,u1,y\n1,2,n/a\n4,5,6\n", "y", 2, "'n/a'", {}),
        ("u0,u1,b,delta\n1,2,3,small\n4,5,6,0.1\n", "delta", 2, "'small'", {}),
        ("p,q,r\n1,n/a,4\n4,5,6\n", "q", 2, "'n/a'", {"U": "p,q", "b": "r"}),
        ("p,q,r\n1,2,n/a\n4,5,6\n", "r", 2, "'n/a'", {"b": "r"}),
    ],
)
def test_text_in_a_column_of_the_measurements_is_an_error_with_its_line(
    tmp_path, text, column, line, said, options
):
    path = tmp_path / "d.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        Measurements.open(path, **options)
    assert f"column {column!r} must hold numbers, but line {line} holds {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "column", "said"),
    [
        ({"u0": [1.0, 2.0], "u1": ["1", "n/a"], "b": [1.0, 2.0]}, "u1", "row 1 holds 'n/a'"),
        ({"u0": [1.0, 2.0], "u1": ["1", "2"], "b": [1.0, 2.0]}, "u1", "stored as text"),
        ({"u0": [1.0, 2.0], "u1": [1.0, 2.0], "b": ["low", "high"]}, "b", "row 0 holds 'low'"),
    ],
)
def test_text_in_a_column_of_a_parquet_file_is_an_error_with_its_row(
    tmp_path, columns, column, said
):
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        Measurements.open(path)
    assert f"column {column!r} must hold numbers" in str(caught.value)
    assert said in str(caught.value)


def test_text_in_other_columns_is_left_out(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("id,unit,u1,u2,b,y\nA7,V,1,2,3,yes\nB1,V,4,5,6,no\n")
    data = Measurements.open(path)
    np.testing.assert_array_equal(data.rows(), [[1.0, 2.0], [4.0, 5.0]])
    assert all(name in data.notes[0] for name in ("id", "unit", "y"))
