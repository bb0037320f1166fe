"""Results that earlier versions wrote are read, and what they claim is checked against the data.

`samples/` has archives of such files: three of format 5 and three of format 6, about nine readings
of a 3 x 3 matrix, with their data. One reading of ``off`` is wrong by 1.
"""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import quadsense
from quadsense import Status

SAMPLES = Path(__file__).parent / "samples"
TOLERANCE = 0.02


@pytest.fixture
def sample(tmp_path):
    """What reads one of the samples: its result, the probes and the readings."""

    def read(version, name):
        with zipfile.ZipFile(SAMPLES / f"format{version}.zip") as archive:
            archive.extract(f"{name}.npz", tmp_path)
            data = np.load(io.BytesIO(archive.read("data.npz")))
        path = tmp_path / f"{name}.npz"
        assert json.loads(str(np.load(path)["metadata"]))["version"] == version
        wrong = name in ("infeasible", "aside")
        return quadsense.load_result(path), data["U"], data["off" if wrong else "b"]

    return read


def residuals(U, b, result):
    return np.einsum("ij,jk,ik->i", U, result.A, U) - b


def test_a_fit_of_format_5_is_read_and_is_one(sample):
    result, U, b = sample(5, "met")
    assert result.status is Status.MET and result.verify(U, b)
    z = residuals(U, b, result)
    assert np.abs(z).max() <= TOLERANCE and 3.4 <= np.trace(result.A) <= 3.6
    np.testing.assert_allclose(result.residuals, z, atol=1e-12)
    assert result.max_residual == pytest.approx(np.abs(z).max())
    v = result.verdict
    assert v.worst.index == np.argmax(np.abs(z)) and v.worst.reading == b[v.worst.index]
    assert v.prefer == "least_squares" and v.optimal and v.wanted == ""
    assert v.objective == pytest.approx(np.sum((z / TOLERANCE) ** 2))
    assert v.unique and v.unseen == 0 and v.unknowns == 6


def test_of_format_5_a_sum_that_counts_one_sided_rows_is_dropped_in_a_sentence(sample, tmp_path):
    _, U, b = sample(5, "met")
    path = tmp_path / "met.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    metadata = json.loads(str(arrays["metadata"]))
    claim = metadata["whole"]["dict"]["result"]["fields"]["certificate"]["fields"]
    arrays["lo"], arrays["hi"] = b - TOLERANCE, np.where(np.arange(9) == 2, np.inf, b + TOLERANCE)
    claim.update(lo={"array": "lo"}, hi={"array": "hi"})
    np.savez(path, **{**arrays, "metadata": np.array(json.dumps(metadata))})
    result = quadsense.load_result(path)
    assert result.certificate.objective is None and result.prefer == "any"
    assert "format 5 counted readings of one-sided rows" in result.message
    bounds = (arrays["lo"], arrays["hi"])
    assert result.certificate.verify(U, bounds=bounds)


def test_a_proof_of_format_5_is_read_and_is_one(sample):
    result, U, b = sample(5, "infeasible")
    assert result.status is Status.INFEASIBLE and result.verify(U, b)
    y, features = result.certificate.dual, np.einsum("ij,ik->ijk", U, U).reshape(9, 9)
    assert np.abs(y @ features).max() <= 1e-12 * np.abs(y).max()
    assert abs(y @ b) > TOLERANCE * np.abs(y).sum()
    assert result.fit is None and result.conflict is None and result.verdict.fitted == ""
    assert result.suspects.tolist() == [1]
    assert "some reading is missed by at least 10.77 delta" in result.message


def test_a_smallest_error_of_format_5_is_read_and_is_one(sample):
    result, U, b = sample(5, "optimal")
    assert result.status is Status.OPTIMAL and result.verify(U, b)
    worst = np.abs(residuals(U, b, result)).max()
    lower, upper = result.objective_bounds
    assert 0.99 * upper <= lower <= worst <= upper * (1.0 + 1e-9)
    assert result.prefer == result.verdict.prefer == "minimax"


def test_a_range_of_a_result_of_format_5_is_certified(sample):
    result, U, b = sample(5, "met")
    data = quadsense.Measurements(U, b, delta=TOLERANCE).constrained((3.4, 3.6), ())
    found = result.interval((0, 0), data=data)
    assert found.lower <= result.A[0, 0] <= found.upper


@pytest.mark.parametrize(
    ("name", "status"), [("bounds", "met"), ("infeasible", "infeasible"), ("aside", "met")]
)
def test_results_of_format_6_are_read_and_true(sample, name, status):
    result, U, b = sample(6, name)
    assert result.status == status
    assert result.verify(U) if name == "bounds" else result.verify(U, b)
    z = residuals(U, b, result)
    two_sided = slice(None) if name != "bounds" else np.arange(9) % 3 > 0
    np.testing.assert_allclose(result.residuals[two_sided], z[two_sided], atol=1e-9)


def test_of_format_6_the_fit_and_the_conflict_are_read_too(sample):
    result, U, b = sample(6, "infeasible")
    assert result.verdict.fitted == "optimal" and result.verdict.irreducible
    assert result.suspects.tolist() == [1, 4, 7, 8, 2, 3, 5]
    assert "without row 4 all others can be met" in result.message
    assert not result.verify(U, b + 0.3)


@pytest.mark.parametrize("version", [5, 6])
def test_what_is_changed_in_a_former_file_is_found(sample, version, tmp_path):
    _, U, b = sample(version, "infeasible")
    path = tmp_path / "infeasible.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    dual = arrays["result.certificate.dual"]
    np.savez(path, **{**arrays, "result.certificate.dual": dual[::-1]})
    assert not quadsense.load_result(path).verify(U, b)
    metadata = json.loads(str(arrays["metadata"]))
    fields = metadata["whole"]["dict"]["result"]["fields"]
    fields["verdict"]["fields"]["worst"]["fields"]["size"] *= 1.01
    np.savez(path, **{**arrays, "metadata": np.array(json.dumps(metadata))})
    assert not quadsense.load_result(path).verify(U, b)
    del fields["verdict"]["fields"]["unknowns"]
    np.savez(path, **{**arrays, "metadata": np.array(json.dumps(metadata))})
    with pytest.raises(ValueError, match="damaged quadsense result"):
        quadsense.load_result(path)


@pytest.mark.parametrize("version", [5, 6])
def test_a_former_result_is_saved_in_the_format_of_today(sample, version, tmp_path):
    result, U, b = sample(version, "infeasible")
    result.save(tmp_path / "now.npz")
    again = quadsense.load_result(tmp_path / "now.npz")
    assert again.verdict == result.verdict and again.verify(U, b)
