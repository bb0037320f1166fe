"""Bounds on rounding next to exact fractions: never below the true error, never idle.

Each bound is compared twice: with the true error on data that round badly, and with the count of
operations that the literature asks for [Higham 2002, 3.1], which it must cover and may exceed by a
small factor only. A bound of which a term is lost, or has the wrong sign, is below the one; one in
which a factor has become a sum is above the other.
"""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from exact import factor_quadratic, quadratic
from exact_matrices import adjoint, distance, fractions, is_between, norm, roundings
from helpers import features, gaussian_rows, hermitian

import quadsense
from quadsense.core import sums
from quadsense.core.intervals import Intervals
from quadsense.core.matrix import DenseForm, FactorForm, FramedForm, MeasuredForm, SensedMatrix
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import rounding as r

U = 2.0**-53
"""The unit roundoff."""


# --- counts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1.0, 3.0, 1000.0, 2.0**40, 2.0**50])
def test_gamma_is_that_of_the_literature(k):
    assert abs(Fraction(sums.gamma(k)) / roundings(int(k)) - 1) <= 4 * Fraction(1, 2**53)


@pytest.mark.parametrize("terms", [1, 7, 10**6])
def test_a_sum_of_products_errs_by_its_terms_and_eight_more(terms):
    assert abs(Fraction(sums.sum_error(terms)) / roundings(terms + 8) - 1) <= Fraction(1, 2**50)


def test_factors_round_up_and_down_by_four_roundings():
    assert sums.ROUNDINGS == 4.0 * U
    assert (sums.UP, sums.DOWN) == (1.0 + 4.0 * U, 1.0 - 4.0 * U)
    assert Fraction(sums.ROUNDINGS) > roundings(3)
    # Three roundings that all go down are made up for, and three that go up are taken back.
    for x in (1.0, 1.0 + 2 * U, 1.9999999999999998):
        down = np.nextafter(np.nextafter(np.nextafter(x, 0), 0), 0)
        assert down * sums.UP >= x - (x - down) / 3 or x == 1.0
    # Complex numbers err by less than four times as much with what is nested, by root 2 at least.
    assert is_between(r.COMPLEX, math.sqrt(2.0), 8.0)
    assert is_between(r.OUTER, 2.0 + 0.5, 3.0)
    assert is_between(sums.OF_ERRORS - 1.0, roundings(10**6), 1e-6)
    assert is_between(r.OF_NORMS, 1.0 + 1e-3, 1.1)
    assert is_between(r.ABOVE_ROOT_2, math.sqrt(2.0) * (1.0 + 4 * U), 1.5)
    assert is_between(sums.UNDERFLOW, 1e20 * 2.0**-1074, 1e-290)
    assert is_between(r.PRODUCT_UNDERFLOW, sums.UNDERFLOW, 1e-280)
    assert is_between(r.READING_ROUNDINGS, 8, 100)
    assert is_between(sums.SPARE, 4, 16)
    assert is_between(r.SPARE_OF_NESTED, 2 * sums.SPARE, 4 * sums.SPARE)
    assert is_between(r.SUM_ROUNDINGS, 3, 4)
    assert is_between(r.MAX_SQUARED_NORM, 2**2, 2**2)


@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 2048, 3000])
def test_a_sum_is_rounded_once(rng, size):
    values = rng.standard_normal(size) * 10.0 ** rng.uniform(-12, 12, size)
    values = np.concatenate([values, -0.999999 * values[::-1]])[: max(size, 0)]
    assert sums.exact_sum(values) == float(sum(fractions(values), Fraction(0)))


@pytest.mark.parametrize("complex_", [False, True])
def test_the_norm_is_that_of_numpy(rng, complex_):
    M = gaussian_rows(rng, 5, 4, complex_)
    assert r.frobenius(M) == pytest.approx(np.linalg.norm(M), rel=1e-15)
    assert r.frobenius(M.T) == pytest.approx(np.linalg.norm(M), rel=1e-15)


@pytest.mark.parametrize("a", [0.1, 1.0 + 2 * U, -3e100, 7e-100, 0.0])
def test_the_error_of_a_product_is_found_exactly(a):
    b = np.array([1.0 / 3.0, 1.0 - U, -1e50, 1e-50 / 3.0, 5.0])
    a = np.full(5, a)
    lost = sums.product_error(a, b, a * b)
    for x, y, rest in zip(a, b, lost, strict=True):
        assert Fraction(float(x)) * Fraction(float(y)) == Fraction(float(x * y)) + Fraction(
            float(rest)
        )


def test_leading_bits_are_so_few_that_256_products_add_up_exactly():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((r.ROWS, 3)) * 10.0 ** rng.uniform(-9, 9)
    high = r._leading_bits(x)
    unit = 2.0 ** (math.frexp(float(np.abs(x).max()))[1] - 22)
    whole = high / unit
    assert np.array_equal(whole, np.rint(whole))
    assert np.abs(whole).max() <= 2**22
    assert np.abs(x - high).max() <= unit / 2.0
    assert float(np.abs(whole).max()) ** 2 * r.ROWS <= 2.0**53
    assert np.array_equal(r._leading_bits(np.zeros(4)), np.zeros(4))


# --- readings --------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "inner"), [(1, 0), (1000, 0), (1, 1000)])
@pytest.mark.parametrize("own", [0.0, 1e-10])
def test_a_reading_errs_by_its_products_and_by_the_kind_of_rows(length, inner, own):
    found = r.dense_error(SimpleNamespace(length=length, rounding=own), 3.0, inner)
    least = math.sqrt(2.0) * ((2 * length + inner + 4) * U + own) * 3.0
    assert is_between(found, least, 4.5 * ((2 * length + inner + 24) * U + own) * 3.0)


def test_readings_that_are_scaled_and_subtracted_err_by_themselves():
    b = np.array([1.0, -3.0, 0.0])
    error = r.reading_error(b)
    assert np.all(error >= 8 * U * np.abs(b))
    assert np.all(error <= 100 * U * np.abs(b))


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("columns", [1, 40])
def test_a_factor_of_many_columns_rounds_by_less_than_its_mass(rng, complex_, columns):
    X = gaussian_rows(rng, 8, columns, complex_)
    form, relative = FactorForm(X), 1e-3
    found = r.factor_size(form, relative)
    lengths = np.linalg.norm(X, axis=0)
    mass = float(lengths @ lengths)
    for u in (*np.eye(8), np.linalg.eigh(X @ X.conj().T)[1][:, -1]):
        p = np.abs(X.conj().T @ u)  # whose entries are off by these
        off = relative * lengths
        assert float(2.0 * p @ off + off @ off) <= 2.0 * relative * found * (1.0 + relative)
    exact = math.sqrt(float(np.linalg.norm(X @ X.conj().T)) * mass) + relative * mass
    assert is_between(found, min(mass, exact), min(mass, 1.006 * exact) * (1.0 + 1e-12))


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(("m", "n"), [(2, 40), (12, 3)])
def test_the_length_of_a_sum_of_rows_is_enclosed(rng, complex_, m, n):
    rows = gaussian_rows(rng, m, n, complex_)
    rows *= 1.9 / np.linalg.norm(rows, axis=1, keepdims=True)
    c = rng.standard_normal(m)
    c[-1] = 0.0
    found, error = r.squared_length(Sensing.of(rows), c)
    true = sum(x * x for part in adjoint(rows, c) for row in part for x in row)
    mass = 4.0 * float(np.abs(c).sum())
    assert abs(Fraction(found) - true) <= Fraction(error)
    least = 4.0 * roundings(n + 8) + 2 * roundings(m)
    assert is_between(error, least * Fraction(mass) ** 2, 40 * (n + m + 10) * U * mass**2)
    assert r.squared_length(Sensing.of(rows), 0.0 * c) == (0.0, 0.0)


def test_rows_that_err_by_themselves_make_a_length_uncertain():
    c, rows = np.array([1.0, -2.0]), Sensing.of(np.eye(2))
    plain = r.squared_length(rows, c)[1]
    vague = SimpleNamespace(
        gram_times=rows.gram_times, nonzero=rows.nonzero, n=2, m=2, rounding=1e-6
    )
    assert is_between(r.squared_length(vague, c)[1] - plain, 2e-6 * 12.0**2, 16e-6 * 12.0**2)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("held", ["dense", "factor", "own rows", "other rows", "stretched"])
@pytest.mark.parametrize(("m", "n"), [(3, 8), (40, 3)])
def test_residuals_are_enclosed_whatever_the_matrix_is_held_as(rng, complex_, held, m, n):
    rows = gaussian_rows(rng, m, n, complex_)
    rows[0] = 0.1  # one of those whose norms round badly
    F = Sensing.of(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    V, b = np.asarray(F.take_unit(np.arange(m))), rng.standard_normal(m)
    c = rng.standard_normal(m) * 10.0 ** rng.uniform(-2, 2, m)
    base = hermitian(rng, n, complex_)
    size = 1.0
    if held == "dense":
        form = DenseForm(base)
        true = quadratic(V, base)
        size = float(np.linalg.norm(base))
    elif held == "factor":
        form = FactorForm(gaussian_rows(rng, n, 4, complex_))
        true = factor_quadratic(V, form.factor)
        size = form.mass
    else:
        form = MeasuredForm(0.3, c, F, base)
        columns = np.arange(n) - 1
        scales = np.ldexp(1.0, columns if held == "stretched" else 0 * columns)
        W = V * scales
        true = quadratic(W, base)
        for i, w in enumerate(W):
            p, q = fractions(w.real), fractions(w.imag)
            true[i] += Fraction(0.3) * sum(x * x for x in (*p, *q))
            for weight, v in zip(fractions(c), V, strict=True):
                s, t = fractions(v.real), fractions(v.imag)
                re = sum(x * y for x, y in zip(s + t, p + q, strict=True))
                im = sum(x * y for x, y in zip(s + t, q + [-x for x in p], strict=True))
                true[i] -= weight * (re * re + im * im)
        size = (0.3 + float(np.abs(c).sum()) + float(np.linalg.norm(base))) * max(scales) ** 2
        if held == "stretched":
            form = FramedForm(form, columns)
        if held != "own rows":
            F = Sensing.of(V.copy())
    z, error = r.enclosure(SensedMatrix(form), F, b)
    for i in range(m):
        assert abs(Fraction(float(z[i])) - true[i] + Fraction(b[i])) <= Fraction(float(error[i]))
    count = (m + 2 * n + 20) * U
    # At least three roundings of the matrix and the reading, at most eight per operation.
    assert np.all(error <= 40.0 * count * (size + np.abs(b)))
    floor = {"own rows": 0.3 + float(np.linalg.norm(base))}.get(held, size / 100.0)
    assert np.all(error >= 2.0 * U * (floor + np.abs(b)))


def test_a_start_itself_and_rows_alike_are_read_exactly_enough():
    F = Sensing.of(np.array([[0.6, 0.8], [1.0, 0.0]]))
    b = np.array([0.25, -4.0])
    z, error = r.enclosure(SensedMatrix(MeasuredForm(2.0, np.zeros(2), F)), F, b)
    assert np.all(np.abs(z - (2.0 - b)) <= error)
    least = 2.0 * (2 + 2) * U * 2.0 + 8 * U * np.abs(b)
    assert np.all(error >= least) and np.all(error <= 200 * U * (2.0 + np.abs(b)))


@pytest.mark.parametrize("weights", [0.0, 1.0])
def test_each_part_of_the_error_of_own_rows_counts(weights):
    """Rows, weights, start and kind of rows: what each adds alone."""
    n, m = 5, 3
    c = weights * np.array([1.0, -2.0, 0.5])
    rows = SimpleNamespace(nonzero=np.ones(m), rounding=0.0, length=n, n=n)
    form = MeasuredForm(-2.0, c, rows)
    magnitude, b, image = np.abs(c) + 1.0, np.array([0.0, 5.0, -1.0]), np.array([0.5, 0.0, -1.0])
    z, error = r.measured_enclosure(form, b, image, magnitude, 7)
    assert np.array_equal(z, -2.0 - image - b)
    mass = float(np.abs(c).sum())
    entry = 2.0 * (n + 8) * U
    parts = entry * (2.0 * np.sqrt(mass * magnitude) + entry * mass + 2.0)
    parts = parts + 2.0 * (7 + 16) * U * (magnitude + 2.0 + np.abs(b))
    np.testing.assert_allclose(error, parts, rtol=1e-9)
    rows.rounding = 1e-3
    vague = r.measured_enclosure(form, b, image, magnitude, 7).error - error
    np.testing.assert_allclose(vague, 2.0 * 4.0 * 1e-3 * (mass + 2.0), rtol=1e-9)
    based = MeasuredForm(-2.0, c, Sensing.of(np.eye(m)), np.full((m, m), 2.0))
    with_base = r.measured_enclosure(based, b, image, magnitude, 7)
    assert np.array_equal(with_base.z, z + 2.0)
    own = r.measured_enclosure(MeasuredForm(-2.0, c, based.rows), b, image, magnitude, 7).error
    added = r.dense_error(based.rows, 6.0)
    np.testing.assert_allclose(with_base.error - own, added, rtol=1e-9)


@pytest.mark.parametrize("complex_", [False, True])
def test_sums_of_rows_are_enclosed(rng, complex_):
    V = gaussian_rows(rng, 6, 3, complex_)
    W = np.array([[1e8, -1e8, 0.3, 0, 0, 0], [0, 0, 0, 1.0 / 3.0, 1e-5, -7.0]])
    F = Mixed(Sensing.of(V), W, np.ones(2), np.ones(2))
    A, b = hermitian(rng, 3, complex_), rng.standard_normal(2)
    z, error = r.enclosure(SensedMatrix.from_dense(A), F, b)
    each = quadratic(V, A)
    masses = np.abs(W) @ np.sum(np.abs(V) ** 2, axis=1) * np.linalg.norm(A)
    for i in range(2):
        weights = fractions(W[i])
        true = sum(w * v for w, v in zip(weights, each, strict=True)) - Fraction(b[i])
        assert abs(Fraction(float(z[i])) - true) <= Fraction(float(error[i]))
        assert is_between(error[i], 4 * U * masses[i], 500 * U * (masses[i] + abs(b[i])))


def test_a_sum_of_rows_that_are_known_exactly_still_rounds():
    """W of entries far apart: the products with W and their sum round, whatever the rows do."""
    m = 3000
    W = np.full((1, m), 0.1)
    W[0, 0] = 1.0
    F = Mixed(Sensing.of(np.ones((m, 1))), W, np.ones(1), np.ones(1))
    z, error = r.enclosure(SensedMatrix.from_dense(np.array([[1.0 / 3.0]])), F, np.zeros(1))
    true = Fraction(1.0 / 3.0) * (1 + (m - 1) * Fraction(0.1))
    assert abs(Fraction(float(z[0])) - true) <= Fraction(float(error[0]))
    mass = 0.1 * m / 3.0
    assert is_between(error[0], m * U * mass, 6.0 * (m + 100) * U * mass)


@pytest.mark.parametrize(
    ("z", "error", "size", "met"),
    [
        (1.0, 0.0, 0.0, False),
        (0.9, 0.05, 0.0, True),
        (0.9, 0.11, 0.0, False),
        (-0.9, 0.2, 0.0, False),
    ],
)
def test_a_value_is_met_where_all_of_its_enclosure_is_inside(z, error, size, met):
    ends = Intervals.around(np.zeros(2), np.ones(2))
    found = r.Enclosure(np.array([0.0, z]), np.array([0.0, error]))
    assert r.is_met(found, ends, size) is met


def test_equalities_have_room_in_proportion_to_the_size_of_the_matrix():
    U = np.eye(2)
    data = quadsense.Measurements(U, bounds=([1.0, 0.0], [1.0, 2.0]))
    found = r.Enclosure(np.array([1.0 + 1e-13, 1.0]), np.zeros(2))
    assert not r.is_met(found, data.ends, 0.0)
    assert not r.is_met(found, data.ends)
    assert r.is_met(found, data.ends, 10.0)
    assert not r.is_met(found, data.ends, 0.1)


# --- F*(y) -----------------------------------------------------------------------------------


def nearly_nothing(rng, m, n, complex_):
    """Rows and a y with ``F*(y)`` zero but for rounding."""
    V = gaussian_rows(rng, m, n, complex_)
    G = features(V)
    return V, np.linalg.svd(G.T)[2][-1]


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("m", [20, 300])
def test_the_norm_of_a_vanishing_sum_is_known_to_twice_the_precision(rng, complex_, m):
    V, y = nearly_nothing(rng, m, 3, complex_)
    parts = adjoint(V, y)
    size = norm(*parts)
    assert size <= 1e-12
    F = Sensing.of(V)
    mass = float(np.abs(y) @ np.sum(np.abs(V) ** 2, axis=1))
    found = r.adjoint_norm(F, y)
    loose = mass * (1e-19 if m < r.ROWS else 1e-18)
    assert is_between(found, size * (1.0 - 4 * U), size * (1.0 + 1e-6) + loose)
    M, error = r.adjoint_matrix(F, y, np.zeros((3, 3)))
    assert distance(M, *parts) <= error <= 4.0 * U * size + loose
    assert np.array_equal(M, M.conj().T)


@pytest.mark.parametrize("complex_", [False, True])
def test_a_sum_of_which_the_weights_are_sums_is_known_to_single_precision_of_these(rng, complex_):
    V = gaussian_rows(rng, 8, 3, complex_)
    W = rng.standard_normal((5, 8))
    F, y = Mixed(Sensing.of(V), W, np.ones(5), np.ones(5)), rng.standard_normal(5)
    parts = adjoint(V, y, W)
    size = norm(*parts)
    mass = float((np.abs(W).T @ np.abs(y)) @ np.sum(np.abs(V) ** 2, axis=1))
    found = r.adjoint_norm(F, y)
    assert is_between(found - size, 5 * U * mass, 40 * U * mass + 1e-8 * size)
    M, error = r.adjoint_matrix(F, y, np.zeros((3, 3)))
    assert distance(M, *parts) <= error
    assert is_between(error, 5 * U * mass, 40 * U * mass)
    assert is_between(r.unmixing_error(F, y), 5 * U * mass, 20 * U * mass)
    # What the product itself errs by is counted in addition.
    assert r.adjoint_norm(F, y) >= size


@pytest.mark.parametrize("complex_", [False, True])
def test_a_plain_product_is_within_its_bound(rng, complex_):
    V, y = nearly_nothing(rng, 40, 3, complex_)
    parts = adjoint(V, y)
    mass = float(np.abs(y) @ np.sum(np.abs(V) ** 2, axis=1))
    M, error = r.plain_adjoint(Sensing.of(V), y)
    assert distance(M, *parts) <= error
    assert is_between(error, 40 * U * mass, 6 * (2 * 40 + 20) * U * mass)
    W = sp.csr_array(rng.standard_normal((30, 40)))
    F, y = Mixed(Sensing.of(V), W, np.ones(30), np.ones(30)), y[:30]
    parts = adjoint(V, y, W.toarray())
    M, error = r.plain_adjoint(F, y)
    mass = float((np.abs(W.toarray()).T @ np.abs(y)) @ np.sum(np.abs(V) ** 2, axis=1))
    assert distance(M, *parts) <= error
    assert is_between(error, 40 * U * mass, 6 * (2 * 40 + 50) * U * mass)


def test_rows_that_are_computed_change_their_sum_by_twice_their_error():
    F = SimpleNamespace(squares=np.array([1.0, 4.0]), row_rounding=1e-3, m=2)
    y = np.array([-1.0, 0.5])
    assert is_between(r.entries_error(F, y), (2e-3 + 1e-6) * 3.0, 3e-3 * 3.0)


def test_kinds_that_nest_their_sums_keep_their_bounds():
    povm = quadsense.probes.product_povm(["pauli", "pauli"])
    F = quadsense.Measurements(povm, np.ones(36)).unit_rows.on_numpy()
    assert F.kind.has_nested_sums
    V = np.asarray(F.take_unit(np.arange(36)))
    rng = np.random.default_rng(6)
    y = rng.standard_normal(36)
    parts = adjoint(V, y)
    size = norm(*parts)
    mass = float(np.abs(y).sum())
    assert is_between(r.adjoint_norm(F, y) - size, 0.0, 1000 * U * mass)
    start = hermitian(rng, 4, True)
    M, error = r.adjoint_matrix(F, y, start)
    for part, held in zip(parts, (start.real, start.imag), strict=True):
        for j, k in np.ndindex(4, 4):
            part[j][k] += Fraction(float(held[j, k]))
    assert distance(M, *parts) <= error
    plain = r.plain_adjoint(F, y)[1]
    assert is_between(error - plain, U * np.linalg.norm(M), 5 * U * np.linalg.norm(M))
