"""Equalities: what they are met within, in exact arithmetic, and how methods come to meet them."""

from fractions import Fraction

import numpy as np
import pytest
from helpers import gaussian_rows, hermitian

from quadsense import Measurements, SensedMatrix, Status, solve
from quadsense.core.intervals import EXACTNESS, Intervals
from quadsense.methods.equalities import nearest_exact

EPS = 2.0**-52


def readings(U, A):
    return np.einsum("ij,jk,ik->i", U.conj(), A, U).real


def exactly(u, A):
    """``u* A u`` in fractions."""
    parts = [(Fraction(float(v.real)), Fraction(float(v.imag))) for v in u]
    total = Fraction(0)
    for i, (a, b) in enumerate(parts):
        for j, (c, d) in enumerate(parts):
            re, im = Fraction(float(A[i, j].real)), Fraction(float(A[i, j].imag))
            total += re * (a * c + b * d) - im * (a * d - b * c)
    return total


CASES = {
    "few rows": (5, 6, {}),
    "all that A needs": (4, 16, {}),
    "more": (4, 40, {}),
    "positive": (4, 9, {"psd": True}),
    "positive, many": (4, 40, {"psd": True}),
    "rank": (5, 40, {"rank": 2, "rng": 0}),
    "cg": (4, 12, {"method": "cg"}),
    "minimax": (4, 12, {"method": "minimax"}),
}


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("complex_", [False, True])
def test_equalities_are_met_within_what_is_stated(case, complex_, share):
    n, m, named = CASES[case]
    rng = np.random.default_rng(m)
    U = gaussian_rows(rng, m, n, complex_) * 10.0 ** rng.uniform(-3, 3, (m, 1))
    X = gaussian_rows(rng, n, 2, complex_)
    A = X @ X.conj().T
    equal = np.arange(m) < share * m
    delta = np.where(equal, 0.0, 1e-2 * np.linalg.norm(U, axis=1) ** 2)
    result = solve(U, readings(U, A), delta=delta, **named)
    assert result.status is Status.MET and result.certificate.verify(U, readings(U, A))
    found = np.asarray(result.A)
    size = EXACTNESS * EPS * n * np.linalg.norm(found)
    for u, b in zip(U[equal], readings(U, A)[equal], strict=True):
        # A factor is the matrix that was judged; as an array it has rounded once more.
        room = 1.1 * size * np.linalg.norm(u) ** 2
        assert abs(float(exactly(u, found) - Fraction(float(b)))) <= room
    assert result.max_ratio <= 1.0
    assert (result.max_ratio == 0.0) == equal.all()


def test_intervals_of_no_width_are_equalities(rng):
    U, A = rng.standard_normal((12, 3)), hermitian(rng, 3, False)
    b = readings(U, A)
    lo, hi = (np.where(np.arange(12) % 3, b + off, b) for off in (-0.1, 0.2))
    data = Measurements(U, bounds=(lo, hi))
    np.testing.assert_array_equal(data.ends.exact, lo == hi)
    np.testing.assert_array_equal(data.hard, lo == hi)
    result = solve(data)
    assert result.status is Status.MET and result.certificate.verify(U, bounds=(lo, hi))
    assert np.abs(readings(U, result.A) - b)[lo == hi].max() < 1e-12


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("complex_", [False, True])
def test_an_equality_that_nothing_meets_is_proved_so(complex_, psd):
    rng = np.random.default_rng(3)
    n, m = 4, 40
    U, X = gaussian_rows(rng, m, n, complex_), gaussian_rows(rng, n, n, complex_)
    b = readings(U, X @ X.conj().T)
    b[7] += 1e-3
    for delta in (0.0, np.where(np.arange(m) < 20, 0.0, 1e-5)):
        result = solve(U, b, delta=delta, psd=psd)
        assert result.status is Status.INFEASIBLE and result.certificate.verify(U, b)


def test_a_matrix_off_an_equality_is_not_taken_for_a_fit(rng):
    U, A = rng.standard_normal((20, 3)), hermitian(rng, 3, False)
    b = readings(U, A)
    data = Measurements(U, b, delta=np.where(np.arange(20) < 3, 0.0, 1e-2))
    result = solve(data)
    from quadsense.result.values import evaluate

    size = np.linalg.norm(result.A)
    for off, wanted in ((0.0, True), (1e-14, True), (1e-11, False), (1e-6, False)):
        moved = SensedMatrix.from_dense(result.A + off * size * np.eye(3))
        values = evaluate(data, moved)
        assert bool(values.met.all()) is wanted
        assert (values.upper[:3] > 1.0).any() != wanted
        assert (values.ratios[:3] == 0.0).all() == wanted
        assert values.missed[:3].any() != wanted


def test_ratios_skip_what_is_within_and_count_what_is_not():
    ends = Intervals.around(np.array([1.0, 2.0]), np.array([0.0, 0.5]))
    ends = ends.with_allowance(np.array([1e-10, 1e-10]), np.ones(2))
    assert ends.exact.tolist() == [True, False] and ends.even
    wide = ends.allowing(4.0)
    assert wide.ratios(np.array([3e-10, 0.25])).tolist() == [0.0, 0.5]
    over = wide.ratios(np.array([5e-10, 0.25]))
    np.testing.assert_allclose(over, [1.0 + 1e-10 / ends.unit[0], 0.5])
    assert wide.met(np.array([3e-10, 0.4]), np.array([0.5e-10, 0.0])).all()
    assert not wide.met(np.array([3e-10, 0.4]), np.array([1.5e-10, 0.0])).all()
    assert wide.missed(np.array([6e-10, 0.4]), np.array([1e-10, 0.0])).tolist() == [True, False]
    assert ends.opened().hi[0] == 1.0 + ends.unit[0]
    assert ends.without([0]).exact.tolist() == [False, False]
    narrow = ends.narrowed(1.0)
    np.testing.assert_allclose(narrow.unit, [1e-2 * ends.unit[0], 0.5])
    assert narrow.lo.tolist() == ends.lo.tolist()
    while narrow is not None:
        last, narrow = narrow, narrow.narrowed(1.0)
    assert 16e-10 <= last.unit[0] <= 64e-10


def test_units_of_equalities_scale_with_the_rows(rng):
    U, A = rng.standard_normal((8, 3)), hermitian(rng, 3, False)
    delta = np.where(np.arange(8) < 4, 0.0, 1e-2)
    one = Measurements(U, readings(U, A), delta=delta)
    two = Measurements(1024.0 * U, 2.0**20 * readings(U, A), delta=2.0**20 * delta)
    np.testing.assert_array_equal(two.tolerance, 2.0**20 * one.tolerance)
    np.testing.assert_array_equal(two.ends.allowance, 2.0**20 * one.ends.allowance)
    np.testing.assert_array_equal(one.stated_tolerance, delta)
    np.testing.assert_allclose(one.unit_ends.allowance[:4], EXACTNESS * EPS * 3, rtol=1e-12)


@pytest.mark.parametrize("factor", [False, True, "signs"])
@pytest.mark.parametrize("complex_", [False, True])
def test_a_last_step_reaches_the_equalities_and_hardly_moves(rng, complex_, factor):
    n, m = 6, 10
    U, X = gaussian_rows(rng, m, n, complex_), gaussian_rows(rng, n, 4, complex_)
    signs = np.array([1.0, -1.0, 1.0, -1.0]) if factor == "signs" else np.ones(4)
    A = (X * signs) @ X.conj().T
    data = Measurements(U, readings(U, A), delta=np.where(np.arange(m) < 4, 0.0, 1e-2))
    near = X + 1e-4 * gaussian_rows(rng, n, 4, complex_)
    start = SensedMatrix.from_factor(near, signs if factor == "signs" else None)
    start = start if factor else SensedMatrix.from_dense(np.asarray(start))
    rows, ends = data.unit_rows, data.unit_ends
    found = nearest_exact(rows, ends, start)
    assert (found.factor is not None) == bool(factor)
    assert (found.signs is not None) == (factor == "signs")
    assert np.abs(readings(U, np.asarray(found)) - readings(U, A))[:4].max() < 1e-12
    moved = np.linalg.norm(np.asarray(found) - np.asarray(start))
    assert 1e-6 < moved < 1e-2
    if not factor:  # the least move that does it
        r = data.forward(np.asarray(found)) - data.forward(np.asarray(start))
        G = np.stack([np.outer(u, u.conj()).ravel() for u in U[:4]])
        least = np.linalg.norm(np.linalg.lstsq(np.vstack([G.conj().real.T, G.imag.T]).T, r[:4])[0])
        np.testing.assert_allclose(moved, least, rtol=1e-6)
    assert nearest_exact(rows, data.without_tolerance().unit_ends, start) is None


def test_a_reading_of_zero_is_met_by_positive_matrices(rng):
    """There A has no room: it must have v in its kernel."""
    n = 4
    v, X = rng.standard_normal(n), rng.standard_normal((n, 2))
    X -= np.outer(v, v @ X) / (v @ v)
    U = np.vstack([v, rng.standard_normal((12, n))])
    b = readings(U, X @ X.T)
    b[0] = 0.0
    result = solve(U, b, delta=np.where(np.arange(13) == 0, 0.0, 1e-3), psd=True)
    assert result.status is Status.MET
    assert abs(v @ result.A @ v) <= EXACTNESS * EPS * n * (v @ v) * np.linalg.norm(result.A)


@pytest.mark.parametrize("method", ["gd", "sgd", "closed_form"])
def test_methods_that_cannot_name_those_that_can(method):
    with pytest.raises(ValueError, match=f"{method!r} cannot take equalities; 'cg' and 'minimax'"):
        solve(np.eye(3), np.ones(3), delta=[0.0, 0.1, 0.1], method=method)
    assert solve(np.eye(3), np.ones(3), delta=0.0).status is Status.MET


def test_a_row_of_zeros_must_read_zero():
    U = np.array([[0.0, 0.0], [1.0, 2.0]])
    assert solve(U, [0.0, 1.0], delta=0.0).status is Status.MET
    result = solve(U, [0.5, 1.0], delta=0.0)
    assert result.status is Status.INFEASIBLE and result.certificate.verify(U, [0.5, 1.0])
    assert result.max_ratio > 1.0


def test_results_with_equalities_are_written_and_verified(tmp_path, rng):
    from quadsense import load_result

    U, A = rng.standard_normal((12, 3)), hermitian(rng, 3, False)
    b, delta = readings(U, A), np.where(np.arange(12) < 4, 0.0, 1e-2)
    result = solve(U, b, delta=delta)
    result.save(tmp_path / "r.npz")
    again = load_result(tmp_path / "r.npz")
    assert again.certificate.verify(U, b) and again.certificate.verify(U, b, delta=delta)
    other = b.copy()
    other[1] += 1e-9
    assert not again.certificate.verify(U, other)
