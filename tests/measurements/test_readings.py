"""Readings as people have them: counts, known noise, stacks of images, tables, missing ones."""

import numpy as np
import pytest

import quadsense

P = quadsense.datasets.gaussian(n=4, m=60, seed=3)
GAPS = [3, 17, 40]
R = np.sqrt(0.5)
QUBIT = np.array([[1, 0], [0, 1], [R, R], [R, -R], [R, 1j * R], [R, -1j * R]])
COUNTS = np.array([927, 73, 812, 188, 506, 494])


def with_gaps(value=np.nan):
    b = P.b.copy()
    b[GAPS] = value
    return b


def kept(values):
    return np.delete(values, GAPS, axis=0)


def test_shots_are_counts_and_their_intervals():
    lo, hi = quadsense.bounds_from_counts(COUNTS, 1000, 0.9)
    asked = {"psd": True, "trace": 1}
    result = quadsense.solve(QUBIT, COUNTS, shots=1000, confidence=0.9, **asked)
    same = quadsense.solve(QUBIT, COUNTS / 1000, bounds=(lo, hi), **asked)
    np.testing.assert_array_equal(result.A, same.A)
    assert result.verify(QUBIT, COUNTS / 1000, bounds=(lo, hi))
    assert result.verify(QUBIT, COUNTS, shots=1000, confidence=0.9)


def test_sigma_covers_all_readings_at_once():
    delta = quadsense.delta_from_sigma(0.1, 60, 0.99)
    result = quadsense.solve(P.U, P.b, sigma=0.1, confidence=0.99)
    np.testing.assert_array_equal(result.A, quadsense.solve(P.U, P.b, delta=delta).A)
    data = quadsense.Measurements(P.U, P.b)
    np.testing.assert_array_equal(quadsense.solve(data, sigma=0.1, confidence=0.99).A, result.A)
    np.testing.assert_array_equal(quadsense.Measurements(P.U, P.b, sigma=0.1).tolerance,
                                  quadsense.delta_from_sigma(0.1, 60))  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [{"delta": 0.02}, {"delta": 0.01, "rtol": 0.02}, {}, {"prefer": "minimax"}, {"psd": True},
     {"weights": np.linspace(0.5, 2.0, 60)}, {"delta": 0.02, "prefer": "nearest"},
     {"delta": np.full(60, 0.02)}, {"delta": 0.0}, {"slack": "sum", "delta": 1e-3}],
)  # fmt: skip
def test_rows_that_were_not_measured_are_as_if_they_were_not_there(asked):
    rng = np.random.default_rng(0)
    noise = rng.uniform(-0.01, 0.01, 60) * np.all(asked.get("delta", 1.0) != 0.0)
    b, U = with_gaps() + noise, P.U
    result = quadsense.solve(U, b, missing="drop", **asked)
    fewer = {key: kept(value) if np.ndim(value) else value for key, value in asked.items()}
    same = quadsense.solve(kept(U), kept(b), **fewer)
    assert result.status == same.status and result.verdict.unmeasured == 3
    np.testing.assert_allclose(result.A, same.A, atol=2e-3 * np.abs(same.A).max())
    assert result.residuals[GAPS].tolist() == [0.0, 0.0, 0.0]
    assert result.verify(U, b)
    assert result.max_residual == pytest.approx(same.max_residual, rel=0.02, abs=1e-9)


def test_a_result_is_not_verified_by_readings_that_are_missing():
    result = quadsense.solve(P.U, P.b, delta=0.02)
    with pytest.raises(ValueError, match=r"b\[3\] is nan"):
        result.verify(P.U, with_gaps())
    free = quadsense.solve(P.U, P.b + 0.01 * np.sin(np.arange(60)))
    assert not free.verify(P.U, with_gaps())


def test_a_later_tolerance_keeps_what_was_not_measured():
    data = quadsense.Measurements(P.U, with_gaps(), missing="drop")
    result = quadsense.solve(data, delta=0.02)
    assert result.met and result.verdict.kept == 57 and "3 not measured" in result.message


def test_missing_readings_may_stand_where_nothing_is_asked():
    lo, hi = P.b - 0.02, P.b + 0.02
    lo[GAPS], hi[GAPS] = -np.inf, np.inf
    result = quadsense.solve(P.U, with_gaps(), bounds=(lo, hi))
    assert result.met and result.verify(P.U, with_gaps())


def test_intervals_and_counts_with_missing_readings():
    found = quadsense.interval(P.U, with_gaps(), (0, 1), delta=0.02, missing="drop")
    same = quadsense.interval(kept(P.U), kept(P.b), (0, 1), delta=0.02)
    assert (found.lower, found.upper) == pytest.approx((same.lower, same.upper), rel=0.02)
    counts = np.where(np.arange(6) == 1, np.nan, COUNTS)
    result = quadsense.solve(QUBIT, counts, shots=1000, psd=True, trace=1, missing="drop")
    assert result.met and result.verdict.kept == 5


@pytest.mark.parametrize("positions", [1, 2])
def test_intensities_come_as_a_stack_of_images(positions):
    rng = np.random.default_rng(1)
    x, masks = rng.uniform(size=(6, 6)), rng.choice([1, -1, 1j, -1j], (5 * positions, 6, 6))
    images = np.abs(np.fft.fft2(masks * x)) ** 2
    probes = quadsense.probes.masked_fft(masks, x.shape)
    asked = {"rtol": 1e-6, "delta": 1e-6, "rank": 1, "conjugate": True, "rng": 0}
    result = quadsense.solve(probes, images, **asked)
    same = quadsense.solve(probes, images.ravel(), **asked)
    np.testing.assert_array_equal(result.residuals, same.residuals)
    images[2, 3, 4] = np.nan  # a dead pixel
    assert quadsense.solve(probes, images, missing="drop", **asked).verdict.kept == masks.size - 1
    with pytest.raises(ValueError, match=r"b has shape \(2, 6, 6\)"):
        quadsense.solve(probes, images[:2], **asked)


def test_tables_of_nullable_and_arrow_types():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    U, b = pd.DataFrame(P.U, columns=list("abcd")), pd.Series(P.b)
    A = quadsense.solve(P.U, P.b, delta=0.02).A
    for kind in ("Float64", "double[pyarrow]"):
        result = quadsense.solve(U.astype(kind), b.astype(kind), delta=0.02)
        np.testing.assert_allclose(result.A, A, atol=1e-14)
        gaps = pd.Series(with_gaps()).astype(kind)
        gaps[GAPS] = pd.NA
        assert quadsense.solve(U, gaps, delta=0.02, missing="drop").verdict.kept == 57
    with pytest.raises(ValueError, match="U must hold numbers, but its column 'b' does not"):
        quadsense.solve(U.assign(b="2 V"), b, delta=0.02)


def test_the_identity_block_comes_with_offsets():
    anchors = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]])
    place = np.array([1.0, 2.0])
    b = np.sum((place - anchors) ** 2, axis=1)
    U = quadsense.probes.differences([(0, -1)] * 4, n=1, offsets=anchors)
    for asked in ({"psd": True}, {}, {"rank": 2}):
        result = quadsense.solve(U, b, delta=1e-6, **asked)
        np.testing.assert_allclose(result.A[0, 1:], place, atol=1e-4)
        assert result.verify(U, b) and "3 constraints" in str(result)
    block = [(np.diag(np.eye(3)[k]), 1.0, 1.0) for k in (1, 2)]  # stated again, it does no harm
    assert quadsense.solve(U, b, delta=1e-6, psd=True, constraints=block).met
    found = quadsense.interval(U, b, (0, 1), delta=1e-3, psd=True)
    assert found.lower <= 1.0 <= found.upper and found.upper - found.lower < 0.01
