"""What the user gave is kept as given, and spoken of in the user's own units."""

import numpy as np
import pytest
from helpers import gaussian_rows, hermitian, readings

import quadsense
from quadsense import Measurements, Status


def test_bounds_read_back_to_the_last_bit(tmp_path):
    lo = np.array([1e-20, 1e-9, 0.1, -np.inf, -3.0])
    hi = np.array([1.0, 2e-9, 0.1 + 1e-16, 7.0, np.inf])
    data = Measurements(np.random.default_rng(0).standard_normal((5, 3)), bounds=(lo, hi))
    np.testing.assert_array_equal(data.lo, lo)
    np.testing.assert_array_equal(data.hi, hi)
    data.save(tmp_path / "d.npz")
    again = Measurements.open(tmp_path / "d.npz")
    np.testing.assert_array_equal(again.lo, lo)
    np.testing.assert_array_equal(again.hi, hi)


def test_conjugate_is_saved_and_the_answer_is_the_same_after(tmp_path):
    rng = np.random.default_rng(1)
    U = gaussian_rows(rng, 12, 3, True)
    A = hermitian(rng, 3, True)
    data = Measurements(U, readings(U.conj(), A), delta=1e-6, conjugate=True)
    data.save(tmp_path / "d.npz")
    again = Measurements.open(tmp_path / "d.npz")
    assert again.conjugate
    np.testing.assert_allclose(quadsense.solve(again).A, A, atol=1e-5)
    assert not Measurements.open(tmp_path / "d.npz", conjugate=False).conjugate


def test_delta_and_rtol_are_saved_as_given(tmp_path):
    U, b = np.eye(2), np.array([1.0, 2.0])
    Measurements(U, b, delta=0.5, rtol=0.1).save(tmp_path / "d.npz")
    again = Measurements.open(tmp_path / "d.npz")
    np.testing.assert_allclose(again.tolerance, [0.6, 0.7])
    with np.load(tmp_path / "d.npz") as archive:
        assert float(archive["delta"]) == 0.5 and float(archive["rtol"]) == 0.1


def test_what_is_not_given_stays():
    data = Measurements(np.eye(2), [1.0, 2.0], delta=0.5)
    result = quadsense.solve(data, rtol=0.1)
    np.testing.assert_allclose(result.certificate.tolerance, [0.6, 0.7])
    both = Measurements(np.eye(2), [1.0, 2.0], delta=0.5, rtol=0.1)
    np.testing.assert_allclose(both.with_tolerance(1.0).tolerance, [1.1, 1.2])


def test_a_delta_for_intervals_is_refused():
    data = Measurements(np.eye(2), bounds=([0.0, 1.0], np.inf))
    with pytest.raises(ValueError, match="are intervals"):
        quadsense.solve(data, delta=0.5)
    with pytest.raises(ValueError, match="are intervals"):
        quadsense.solve(data, rtol=0.5)


def test_readings_beside_intervals_are_kept_in_a_file(tmp_path):
    np.savez(tmp_path / "d.npz", U=np.eye(2), b=[3.0, 0.5], lo=np.zeros(2), hi=np.ones(2))
    data = Measurements.open(tmp_path / "d.npz")
    assert data.from_bounds and data.readings.tolist() == [3.0, 0.5]
    assert data.b.tolist() == [0.5, 0.5] and data.hi.tolist() == [1.0, 1.0]
    data.save(tmp_path / "e.npz")
    assert Measurements.open(tmp_path / "e.npz").readings.tolist() == [3.0, 0.5]


@pytest.mark.parametrize("size", [1e-81, 1e-40, 1.0, 1e81])
def test_verify_agrees_fresh_and_loaded_for_rows_of_any_size(tmp_path, size):
    U = np.array([[size]])
    result = quadsense.solve(U, bounds=([0.3 * size**2], [0.7 * size**2]))
    assert result.status is Status.MET
    data = Measurements(U, bounds=([0.3 * size**2], [0.7 * size**2]))
    data.save(tmp_path / "d.npz")
    result.save(tmp_path / "r.npz")
    loaded = quadsense.load_result(tmp_path / "r.npz")
    for one in (result, loaded):
        assert one.verify(U)
        assert one.verify(data)
        assert one.verify(Measurements.open(tmp_path / "d.npz"))


def test_extreme_rows_are_saved_as_they_came(tmp_path):
    rng = np.random.default_rng(0)
    U = rng.standard_normal((6, 3)) * np.array([1e-90, 1e90, 1.0, 3e-100, 7e110, 1e-80])[:, None]
    Measurements(U, np.ones(6), delta=0.1).save(tmp_path / "d.npz")
    with np.load(tmp_path / "d.npz") as archive:
        np.testing.assert_array_equal(archive["U"], U)


# --- words -----------------------------------------------------------------------------------


def test_one_sided_rows_are_spoken_of_by_the_ends_they_cross():
    U = np.eye(3)
    met = quadsense.solve(U, bounds=([5.0, -np.inf, 1.0], [np.inf, 2.0, np.inf]))
    assert met.status is Status.MET
    assert met.message.startswith("met: all 3 measurements within their intervals")
    assert "delta" not in met.message
    np.testing.assert_array_equal(met.residuals, 0.0)
    assert met.max_residual == 0.0 and met.max_ratio == 0.0
    U = np.array([[1.0], [1.0]])
    no = quadsense.solve(U, bounds=([5.0, -np.inf], [np.inf, 2.0]))
    assert no.status is Status.INFEASIBLE
    assert "is within all intervals" in no.message and "delta" not in no.message
    assert no.verify(U)
    below, above = no.residuals
    assert below <= 0.0 <= above
    assert above - below == pytest.approx(3.0, rel=1e-6)  # the ends are 3 apart


def test_the_miss_of_an_interval_is_told_in_its_own_units():
    p = quadsense.datasets.gaussian(4, 30, seed=0)
    lo = p.b - 1e-3
    hi = np.where(np.arange(30) % 2, p.b + 1e-3, np.inf)
    result = quadsense.solve(p.U, bounds=(lo, hi), max_iter=0, start="zero")
    assert not result.success
    values = readings(p.U, result.A)
    miss = np.maximum(np.maximum(values - hi, lo - values), 0.0)
    row = int(np.argmax(miss))
    assert f"worst miss {miss[row]:.4g}, of the interval [{lo[row]:.6g}, {hi[row]:.6g}]" in (
        result.message
    )
    two = np.isfinite(hi)
    np.testing.assert_allclose(result.residuals[two], (values - p.b)[two], atol=1e-12)
    crossed = np.minimum(values - lo, 0.0)[~two]
    np.testing.assert_allclose(result.residuals[~two], crossed, atol=1e-12)


def test_the_worst_residual_of_unequal_tolerances_is_the_worst_residual():
    U = np.eye(2)
    result = quadsense.solve(
        U, [1.0, 1.0], delta=[10.0, 0.01], start=np.diag([4.0, 1.005]), method="minimax"
    )
    assert result.status is Status.MET
    assert result.max_residual == pytest.approx(np.abs(result.residuals).max())
    sizes, tolerances = np.abs(result.residuals), np.array([10.0, 0.01])
    closest = int(np.argmax(sizes / tolerances))
    assert f"closest: row {closest}, {sizes[closest]:.4g} of {tolerances[closest]:g}" in (
        result.message
    )


def test_rounding_is_not_counted_as_a_violation():
    result = quadsense.solve(np.eye(3), [1.0, 2.0, 3.0], delta=1e-18)
    assert result.status is Status.STALLED
    assert "0 of 3" not in result.message
    assert result.message.startswith(("not certified", "not met"))


def test_as_many_measurements_as_unknowns_are_not_fewer():
    p = quadsense.datasets.gaussian(3, 6, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.1)
    assert "6 measurements are as many as the 6 unknowns" in result.plan["reasons"]


def test_identifiability_is_found_for_many_rows_of_few_unknowns():
    p = quadsense.datasets.gaussian(16, 1296, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.1)
    assert result.unique is True
    assert "The measurements determine A" in result.message
    blind = p.U.copy()
    blind[:, -1] = 0.0
    result = quadsense.solve(blind, np.ones(1296) * 0.1, delta=1.0)
    assert not result.unique
