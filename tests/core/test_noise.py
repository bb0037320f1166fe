"""Tolerances from data: coverage by simulation, closed forms, SciPy's distributions, exact sums."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import cover, features, readings
from scipy import stats

import quadsense

pytestmark = pytest.mark.usefixtures("strict_floating_point")


@pytest.fixture
def strict_floating_point():
    with np.errstate(all="raise"):
        yield


def acceptance(trials, share):
    """Counts that a share as asked for leaves with probability 1e-6 at either side."""
    return stats.binom.ppf([1e-6, 1 - 1e-6], trials, share)


# --- counts -------------------------------------------------------------------------------------


def tail(k, shots, p):
    """The probability of k or more, exactly."""
    p = Fraction(p)
    return float(sum(comb(shots, j) * p**j * (1 - p) ** (shots - j) for j in range(k, shots + 1)))


@pytest.mark.parametrize("shots", [1, 7, 60])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-9])
def test_clopper_pearson_ends_leave_half_the_doubt_at_either_side_exactly(shots, confidence):
    k = np.unique(np.linspace(0, shots, 5).astype(int))
    lo, hi = quadsense.bounds_from_counts(k, shots, confidence)
    doubt = (1 - confidence) / k.size / 2
    for i, count in enumerate(k.tolist()):
        if count:
            assert tail(count, shots, float(lo[i])) == pytest.approx(doubt, rel=1e-8)
        if count < shots:
            fewer = tail(shots - count, shots, 1 - Fraction(float(hi[i])))
            assert fewer == pytest.approx(doubt, rel=1e-8)
    assert lo[0] == 0.0 and hi[-1] == 1.0
    assert np.all(lo < hi)


@pytest.mark.parametrize("method", ["clopper-pearson", "wilson"])
@pytest.mark.parametrize(("k", "shots"), [(0, 10), (3, 10), (10, 10), (1, 10**6), (499_000, 10**6)])
def test_a_single_interval_is_that_of_scipy(method, k, shots):
    lo, hi = quadsense.bounds_from_counts(k, shots, 0.9, method)
    name = "exact" if method == "clopper-pearson" else "wilson"
    truth = stats.binomtest(k, shots).proportion_ci(0.9, method=name)
    # binomtest seeks the ends to about 1e-12; Wilson's are a formula.
    loose = 1e-9 if method == "wilson" else 1e-6
    assert (lo, hi) == pytest.approx((truth.low, truth.high), rel=loose, abs=1e-15)
    assert np.ndim(lo) == 0


@pytest.mark.parametrize("shots", [1, 30, 10**6, 10**12])
def test_the_ends_of_one_count_and_of_none_are_closed_forms(shots):
    (low, _), (_, none), (every, _) = (
        quadsense.bounds_from_counts(k, shots, 0.9) for k in (1, 0, shots)
    )
    assert low == pytest.approx(-np.expm1(np.log1p(-0.05) / shots), rel=1e-9)
    assert none == pytest.approx(-np.expm1(np.log(0.05) / shots), rel=1e-9)
    assert every == pytest.approx(0.05 ** (1 / shots), rel=1e-9)


def test_clopper_pearson_covers_all_outcomes_of_a_setting_at_once(rng):
    """Outcomes of one setting exclude each other: the confidence is promised all the same."""
    p, shots, trials = np.array([0.5, 0.3, 0.15, 0.04, 0.01]), 200, 4000
    counts = rng.multinomial(shots, p, size=trials)
    good = 0
    for k in counts:
        lo, hi = quadsense.bounds_from_counts(k, shots, 0.8)
        good += bool(np.all((lo <= p) & (p <= hi)))
    assert good >= acceptance(trials, 0.8)[0]
    assert good < trials  # not by being everything


def test_wilson_is_narrower_and_covers_about_as_often_as_promised(rng):
    p, shots, trials = 0.3, 400, 4000
    k = rng.binomial(shots, p, size=trials)
    share = {}
    for method in ("clopper-pearson", "wilson"):
        ends = [quadsense.bounds_from_counts(one, shots, 0.9, method) for one in np.unique(k)]
        found = dict(zip(np.unique(k).tolist(), ends, strict=True))
        share[method] = np.mean([found[one][0] <= p <= found[one][1] for one in k.tolist()])
    assert share["wilson"] == pytest.approx(0.9, abs=0.02)
    lo, hi = quadsense.bounds_from_counts(k, shots)
    low, high = quadsense.bounds_from_counts(k, shots, method="wilson")
    assert np.mean(high - low) < np.mean(hi - lo)


def test_wilson_ends_solve_their_equation():
    k, shots = np.array([[0, 1, 5], [17, 99, 100]]), np.array([100, 100, 100])
    lo, hi = quadsense.bounds_from_counts(k, shots, 0.99, method="wilson")
    z = stats.norm.isf(0.01 / 6 / 2)
    assert lo.shape == hi.shape == k.shape
    for end, known in ((lo, k == 0), (hi, k == shots)):
        p = end[~known]
        apart = np.abs(k[~known] / 100 - p)
        np.testing.assert_allclose(apart, z * np.sqrt(p * (1 - p) / 100), rtol=1e-9)
    assert np.all(lo[k == 0] == 0) and np.all(hi[k == shots] == 1)


def test_more_rows_make_every_interval_wider_and_shots_may_differ():
    alone = quadsense.bounds_from_counts(30, 100)
    lo, hi = quadsense.bounds_from_counts([30, 300], [100, 1000])
    assert lo[0] < alone[0] and hi[0] > alone[1]
    assert hi[1] - lo[1] < hi[0] - lo[0]
    many = quadsense.bounds_from_counts(np.full(10_000, 30), 100)
    assert many[0].shape == (10_000,) and many[0][0] < lo[0]


def test_bounds_from_counts_are_the_bounds_of_a_solve(rng):
    n, shots = 4, 2000
    U = rng.standard_normal((30, n)) + 1j * rng.standard_normal((30, n))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    rho = np.eye(n) / 8 + np.full((n, n), 1 / 8)
    k = rng.binomial(shots, readings(U, rho))
    bounds = quadsense.bounds_from_counts(k, shots)
    result = quadsense.solve(U, bounds=bounds, psd=True)
    assert result.status is quadsense.Status.MET
    assert np.all((readings(U, result.A) > bounds[0]) & (readings(U, result.A) < bounds[1]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((3, 0), "shots must hold whole numbers, at least 1, but shots is 0"),
        (([1, 2.5], 10), r"k must hold whole numbers, at least 0, but k\[1\] is 2.5"),
        (([1, -1], 10), r"k must hold whole numbers, at least 0, but k\[1\] is -1"),
        (([1, np.nan], 10), r"but k\[1\] is nan"),
        (([1, np.inf], 10), r"but k\[1\] is inf"),
        (([1, 2, 12], [10, 10, 10]), r"k must not exceed shots, but k\[2\] is 12 of 10 shots"),
        (([[1, 2], [12, 1]], 10), r"k\[1, 0\] is 12 of 10 shots"),
        ((11, 10), "but k is 11 of 10 shots"),
        (([1, 2, 3], [10, 10]), r"k has shape \(3,\) and shots \(2,\): give shots once for all"),
        ((["a"], 10), "k must hold real numbers"),
        (([1j], 10), "k must hold real numbers, got complex128"),
        (([True], 10), "k must hold real numbers, got bool"),
        (([], 10), "k is empty"),
        (([[1], [1, 2]], 10), "k is not a rectangular array"),
        ((np.ma.masked_array([1, 2], [True, False]), 10), "k is a masked array"),
        ((1, 10, 1.0), "confidence must lie strictly between 0 and 1, got 1.0"),
        ((1, 10, 0.9, "wald"), "method must be 'clopper-pearson' or 'wilson', got 'wald'"),
    ],
)
def test_bad_counts_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        quadsense.bounds_from_counts(*call)


# --- Gaussian errors ----------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 1000])
@pytest.mark.parametrize(
    ("dof", "confidence"), cover([0.5, 1, 3, 30, 1e4, 1e9], [0.5, 0.95, 1 - 1e-6], each=1)
)
def test_with_degrees_of_freedom_delta_is_a_quantile_of_student(dof, m, confidence):
    delta = quadsense.delta_from_sigma(2.0, m, confidence, dof=dof)
    log_share = m * np.log1p(-2.0 * stats.t.sf(delta / 2.0, dof))
    assert log_share == pytest.approx(np.log(confidence), rel=1e-7)
    assert delta >= quadsense.delta_from_sigma(2.0, m, confidence)


def test_infinitely_many_degrees_of_freedom_know_sigma():
    known = quadsense.delta_from_sigma(1.0, 50)
    assert quadsense.delta_from_sigma(1.0, 50, dof=1e12) == pytest.approx(known, rel=1e-9)


@pytest.mark.parametrize(("n", "m"), [(3, 8), (3, 30), (2, 4)])
def test_an_estimated_sigma_still_covers_all_errors(n, m, rng):
    """Both new errors, which are what Student's distribution is of, and those that it came from."""
    trials, U = 4000, rng.standard_normal((m, n))
    F = np.stack([np.outer(u, u)[np.triu_indices(n)] for u in U])
    Q = np.linalg.qr(F)[0]
    errors = rng.standard_normal((trials, m))
    sigma = np.linalg.norm(errors - errors @ Q @ Q.T, axis=1) / np.sqrt(m - Q.shape[1])
    factor = quadsense.delta_from_sigma(1.0, m, 0.9, dof=m - Q.shape[1])
    least = acceptance(trials, 0.9)[0]
    assert np.count_nonzero(np.abs(errors).max(axis=1) <= factor * sigma) >= least
    fresh = rng.standard_normal((trials, m))
    covered = np.count_nonzero(np.abs(fresh).max(axis=1) <= factor * sigma)
    assert least <= covered < trials
    known = quadsense.delta_from_sigma(1.0, m, 0.9)  # as if sigma were known: too few
    assert np.count_nonzero(np.abs(fresh).max(axis=1) <= known * sigma) < least


@pytest.mark.parametrize("dof", [0, -1, np.nan, np.inf, "3", True])
def test_bad_degrees_of_freedom_are_named(dof):
    with pytest.raises(ValueError, match="dof must be a positive number, got"):
        quadsense.delta_from_sigma(1.0, 5, dof=dof)


def test_an_estimate_from_hardly_anything_bounds_nothing():
    with pytest.raises(ValueError, match="degrees of freedom bound no error"):
        quadsense.delta_from_sigma(1.0, 10**6, 1 - 1e-12, dof=1e-3)


# --- averages of squares ------------------------------------------------------------------------


@pytest.mark.parametrize("dof", [1, 10, 12_345.5])
def test_bounds_from_averages_are_quantiles_of_chi_squared(dof):
    b = np.array([0.5, 2.0, 0.0])
    lo, hi = quadsense.bounds_from_averages(b, dof, 0.9)
    a = 0.1 / 3 / 2
    np.testing.assert_allclose(lo, dof * b / stats.chi2.isf(a, dof), rtol=1e-9)
    np.testing.assert_allclose(hi, dof * b / stats.chi2.ppf(a, dof), rtol=1e-9)


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_sketches_of_a_covariance_that_share_their_samples_are_covered(is_complex, rng):
    n, m, samples, trials = 4, 12, 40, 3000

    def normal(*shape):
        x = rng.standard_normal(shape)
        return (x + 1j * rng.standard_normal(shape)) / np.sqrt(2) if is_complex else x

    root, U = normal(n, n), normal(m, n)
    truth = readings(U, root @ root.conj().T)
    good = close = 0
    rtol = quadsense.rtol_from_dof(samples * (2 if is_complex else 1), m, 0.8)
    for _ in range(trials):
        x = root @ normal(n, samples)
        b = np.mean(np.abs(U.conj() @ x) ** 2, axis=1)
        lo, hi = quadsense.bounds_from_averages(b, samples * (2 if is_complex else 1), 0.8)
        good += bool(np.all((lo <= truth) & (truth <= hi)))
        close += bool(np.all(np.abs(truth - b) <= rtol * b))
    least = acceptance(trials, 0.8)[0]
    assert least <= good < trials
    assert least <= close < trials


def test_independent_averages_are_covered_as_often_as_promised(rng):
    """Where nothing is shared the promise is nearly sharp, so that half the doubt would show."""
    m, dof, trials = 10, 25, 20_000
    b = rng.chisquare(dof, (trials, m)) / dof
    lo, hi = quadsense.bounds_from_averages(np.ones(m), dof, 0.9)
    good = np.count_nonzero(np.all((lo * b <= 1) & (hi * b >= 1), axis=1))
    sharp = (1 - 0.1 / m) ** m
    low, high = acceptance(trials, sharp)
    assert low <= good <= high


@pytest.mark.parametrize("m", [1, 1500])
@pytest.mark.parametrize(
    ("dof", "confidence"), cover([1.0, 30.0, 1e4, 1e7], [0.1, 0.95, 1 - 1e-7], each=1)
)
def test_rtol_from_dof_leaves_the_doubt_of_one_reading_outside(dof, m, confidence):
    rtol = quadsense.rtol_from_dof(dof, m, confidence)
    outside = stats.chi2.cdf(dof / (1 + rtol), dof)
    if rtol < 1:
        outside += stats.chi2.sf(dof / (1 - rtol), dof)
    assert outside == pytest.approx((1 - confidence) / m, rel=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (([1.0, -0.1], 5), r"b must hold finite numbers, at least 0, but b\[1\] is -0.1"),
        (([1.0, 1.0], [5, 0]), r"dof must hold finite numbers, above 0, but dof\[1\] is 0"),
        (([1.0, 1.0], [5, 4, 3]), r"b has shape \(2,\) and dof \(3,\)"),
        (([1.0, 1.0], [5, 1e-3], 1 - 1e-9), r"dof\[1\] = 0.001 is too few"),
        (([1.0], 5, 0.0), "confidence must lie"),
    ],
)
def test_bad_averages_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        quadsense.bounds_from_averages(*call)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((0, 5), "dof must hold finite numbers, above 0"),
        (([5.0], 5), r"dof must be a positive number, got \[5.0\]"),
        ((np.nan, 5), "dof must hold finite numbers"),
        ((5, 0), "m must be a whole number, at least 1, got 0"),
        ((5, 3, 2.0), "confidence must lie"),
        ((1e-3, 10, 1 - 1e-9), "dof = 0.001 is too few"),
    ],
)
def test_bad_relative_tolerances_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        quadsense.rtol_from_dof(*call)


# --- distances


def test_bounds_from_ranges_hold_every_square_within_the_error():
    rng = np.random.default_rng(0)
    true, error = rng.uniform(0.0, 3.0, 200), rng.uniform(0.0, 1.0, 200)
    r = np.abs(true + error * rng.choice([-1.0, 1.0], 200) * (1.0 - 1e-12))
    lo, hi = quadsense.bounds_from_ranges(r, error)
    assert np.all(lo <= true**2)
    assert np.all(true**2 <= hi)
    np.testing.assert_allclose(np.sqrt(hi) - r, error, rtol=1e-12, atol=1e-15)
    inside = r > error
    np.testing.assert_allclose((r - np.sqrt(lo))[inside], error[inside], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (([1.0, -0.1], 1.0), r"r must hold finite numbers, at least 0, but r\[1\] is -0.1"),
        (([1.0, 1.0], [5, -1]), r"error\[1\] is -1"),
        (([1.0, 1.0], [5, 4, 3]), r"r has shape \(2,\) and error \(3,\)"),
        ((1e200, 1.0), r"r = 1e\+200 is too large"),
        ((["a"], 1.0), "r must hold real numbers"),
    ],
)
def test_bad_ranges_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        quadsense.bounds_from_ranges(*call)


# --- sigma from residuals -----------------------------------------------------------------------


def truth_of(F, b, weights):
    """Sigma and degrees of freedom by NumPy's least squares."""
    used = weights > 0
    root = np.sqrt(weights[used])
    x, _, rank, _ = np.linalg.lstsq(root[:, None] * F[used], root * b[used], rcond=1e-10)
    left = root * (b[used] - F[used] @ x)
    return np.sqrt(left @ left / (used.sum() - rank)), used.sum() - rank, rank


@pytest.mark.parametrize("case", ["many", "repeated", "few columns", "mixed", "conjugate", "zeros"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sigma_is_that_of_least_squares(case, weighted, complex_, rng):
    n, m = 4, 40
    U = rng.standard_normal((m, n)) * rng.uniform(0.5, 2, (m, 1))
    U = U + 1j * rng.standard_normal((m, n)) if complex_ else U
    options, mix = {}, None
    if case == "repeated":
        U = np.repeat(U[: n + 1], 2, axis=0)
    if case == "few columns":  # no more than a part of A is seen
        U[:, 0] = U[:, 1]
    if case == "zeros":
        U[::5] = 0.0
    if case == "mixed":
        mix = sp.csr_array(rng.random((30, m)) * (rng.random((30, m)) < 0.2))
        options["mix"] = mix
    meant = U
    if case == "conjugate":
        options["conjugate"] = True
        meant = U.conj()
    F = features(meant) if mix is None else mix @ features(meant)
    b = F @ rng.standard_normal(F.shape[1]) + 0.1 * rng.standard_normal(len(F))
    weights = rng.uniform(0.1, 10, len(F)) * (rng.random(len(F)) > 0.1)
    if not weighted:
        weights = np.ones(len(F))
    sigma, dof, rank = truth_of(F, b, weights)
    found = quadsense.estimate_sigma(U, b, weights=weights, confidence=0.9, **options)
    assert (found.dof, found.rank) == (dof, rank)
    assert found.sigma == pytest.approx(sigma, rel=1e-9)
    low, high = np.sqrt(dof / stats.chi2.isf([0.05, 0.95], dof)) * sigma
    assert found.interval == pytest.approx((low, high), rel=1e-8)
    data = quadsense.Measurements(U, b, weights=weights, **options)
    assert quadsense.estimate_sigma(data, confidence=0.9) == found
    data = quadsense.Measurements(U, b, bounds=(-1.0, 1.0), **options).constrained(trace=1.0)
    assert quadsense.estimate_sigma(data, weights=weights, confidence=0.9) == found


def test_sigma_of_every_kind_of_array_is_the_same(kind, rng):
    U, b = rng.standard_normal((30, 4)), rng.standard_normal(30)
    truth = quadsense.estimate_sigma(U, b)
    found = quadsense.estimate_sigma(kind(U), b)
    assert found.sigma == pytest.approx(truth.sigma, rel=1e-12)


def test_the_interval_of_sigma_holds_it_as_often_as_promised(rng):
    U, trials = rng.standard_normal((12, 3)), 1500
    b = readings(U, np.eye(3))
    held = 0
    for _ in range(trials):
        found = quadsense.estimate_sigma(U, b + 0.3 * rng.standard_normal(12), confidence=0.8)
        held += found.interval[0] <= 0.3 <= found.interval[1]
    low, high = acceptance(trials, 0.8)
    assert low <= held <= high


@pytest.mark.parametrize("scale", [1e-120, 1e-5, 1e5, 1e120])
def test_sigma_scales_with_the_readings_and_not_with_the_rows(scale, rng):
    U, b = rng.standard_normal((30, 4)), rng.standard_normal(30)
    truth = quadsense.estimate_sigma(U, b)
    assert quadsense.estimate_sigma(scale * U, b).sigma == pytest.approx(truth.sigma, rel=1e-9)
    found = quadsense.estimate_sigma(U, scale * b)
    assert found.sigma == pytest.approx(scale * truth.sigma, rel=1e-9)


def test_a_sigma_far_below_the_readings_is_found(rng):
    U = rng.standard_normal((200, 8))
    b = 1e3 * readings(U, np.eye(8)) + 1e-9 * rng.standard_normal(200)
    assert quadsense.estimate_sigma(U, b).sigma == pytest.approx(1e-9, rel=0.2)


@pytest.mark.parametrize("m", [1, 9, 10])
def test_readings_that_a_fit_merely_interpolates_say_nothing_of_noise(m, rng):
    U, b = rng.standard_normal((m, 4)), rng.standard_normal(m)
    with pytest.raises(
        ValueError, match=f"no degrees of freedom .*: {m} readings see {m} of the 10"
    ):
        quadsense.estimate_sigma(U, b)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"weights": [1.0, 2.0]}, r"weights has shape \(2,\)"),
        ({"weights": -np.ones(30)}, r"weights\[0\] must not be negative, got -1.0"),
        ({"weights": 0.0}, "no degrees of freedom"),
        ({"confidence": 0}, "confidence must lie"),
    ],
)
def test_bad_arguments_of_estimate_sigma_are_named(call, message, rng):
    with pytest.raises(ValueError, match=message):
        quadsense.estimate_sigma(rng.standard_normal((30, 3)), np.ones(30), **call)


def test_intervals_without_readings_have_no_sigma(rng):
    U = rng.standard_normal((30, 3))
    with pytest.raises(ValueError, match="intervals without readings"):
        quadsense.estimate_sigma(quadsense.Measurements(U, bounds=(0.0, 1.0)))
    with pytest.raises(ValueError, match="b is missing"):
        quadsense.estimate_sigma(U)
    with pytest.raises(ValueError, match="belong to Measurements"):
        quadsense.estimate_sigma(quadsense.Measurements(U, np.ones(30)), np.ones(30))


def test_probes_that_are_nearly_alike_still_tell_a_small_sigma(rng):
    """Normal equations square the condition of F; refinement takes that back."""
    U = 1.0 + 0.02 * rng.standard_normal((300, 4))
    b = 1e3 * readings(U, np.eye(4)) + 1e-8 * rng.standard_normal(300)
    F = features(U)
    assert np.linalg.cond(F) > 1e3
    found, (sigma, dof, _) = quadsense.estimate_sigma(U, b), truth_of(F, b, np.ones(300))
    assert found.dof == dof
    assert found.sigma == pytest.approx(sigma, rel=1e-2)
