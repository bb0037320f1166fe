"""What a vector proves of symmetric matrices, by hand and next to exact elimination."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from exact_matrices import fractions, is_between, is_semidefinite, real_form, shifted
from helpers import gaussian_rows

from quadsense.core.intervals import Intervals
from quadsense.core.question import Question
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import symmetric as s
from quadsense.system.watch import Stop

U = 2.0**-53


@pytest.fixture(autouse=True)
def no_flag_raises():
    """As where these are called: what overflows or divides by 0 is looked at afterwards."""
    with np.errstate(all="ignore"):
        yield


def map_of(V, W=None):
    """F in coordinates of orthonormal matrices: its singular values are those of F."""
    n = V.shape[1]
    columns = []
    for j in range(n):
        for k in range(j, n):
            E = np.zeros((n, n), dtype=complex)
            E[j, k] = E[k, j] = 1.0 if j == k else math.sqrt(0.5)
            columns.append(np.einsum("ij,jk,ik->i", V.conj(), E, V).real)
            if k > j and np.iscomplexobj(V):
                E[j, k], E[k, j] = 1j * math.sqrt(0.5), -1j * math.sqrt(0.5)
                columns.append(np.einsum("ij,jk,ik->i", V.conj(), E, V).real)
    found = np.array(columns).T
    return found if W is None else W @ found


def unit_rows(rng, m, n, complex_):
    V = gaussian_rows(rng, m, n, complex_)
    return V / np.linalg.norm(V, axis=1, keepdims=True)


def mixed(V, W):
    return Mixed(Sensing.of(V), W, np.ones(len(W)), np.ones(len(W)))


# --- sigma -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighed", [False, True])
def test_the_smallest_singular_value_is_proved_and_near(rng, complex_, weighed):
    V = unit_rows(rng, 30, 3, complex_)
    squares = 16.0 ** -rng.integers(0, 2, 30) if weighed else None
    D = np.ones(30) if squares is None else np.sqrt(squares)
    M = D[:, None] * map_of(V)
    true = float(np.linalg.svd(M)[1][-1])
    found = s.smallest_singular_value(Sensing.of(V), squares)
    assert is_between(found, 0.7 * true, true)
    assert is_semidefinite(shifted(real_form(M.T @ M), Fraction(0.999 * found) ** 2))


def test_sums_have_singular_values_too(rng, complex_):
    V, W = unit_rows(rng, 20, 3, complex_), rng.standard_normal((14, 20))
    true = float(np.linalg.svd(map_of(V, W))[1][-1])
    assert is_between(s.smallest_singular_value(mixed(V, W)), 0.7 * true, true)
    squares = np.where(np.arange(14) < 12, 1.0, 0.0)
    true = float(np.linalg.svd(map_of(V, W)[:12])[1][-1])
    assert is_between(s.smallest_singular_value(mixed(V, W), squares), 0.7 * true, true)


def test_some_of_many_rows_prove_no_more_than_all_do(monkeypatch, rng):
    V = unit_rows(rng, 400, 2, False)
    monkeypatch.setattr(s, "LARGE_WORK", 0.0)
    monkeypatch.setattr(s, "spread", lambda m, count: np.arange(count))
    weights = np.where(np.arange(400) % 2, 1.0, 0.0)
    for squares, kept in ((None, V[:48]), (weights, V[1:48:2])):
        true = float(np.linalg.svd(map_of(kept))[1][-1])
        assert is_between(s.smallest_singular_value(Sensing.of(V), squares), 0.7 * true, true)
    # Where these rows see nothing, all are asked.
    blind = np.where(np.arange(400) < 48, 0.0, 1.0)
    true = float(np.linalg.svd(map_of(V[48:]))[1][-1])
    assert is_between(s.smallest_singular_value(Sensing.of(V), blind), 0.7 * true, true)


def test_what_is_not_seen_or_too_large_has_no_sigma(monkeypatch, rng):
    V = unit_rows(rng, 12, 3, False)
    assert s.smallest_singular_value(Sensing.of(V[:5])) == 0.0
    V[:, 2] = 0.0
    assert s.smallest_singular_value(Sensing.of(V)) == 0.0
    V[:, 2] = 1e-9
    assert s.smallest_singular_value(Sensing.of(V)) == 0.0
    monkeypatch.setattr(s, "MAX_DENSE_UNKNOWNS", 2)
    assert s.smallest_singular_value(Sensing.of(unit_rows(rng, 12, 3, False))) == 0.0


def test_rows_that_are_computed_prove_less(rng):
    V = unit_rows(rng, 12, 2, False)
    plain = s._smallest(Sensing.of(V), 0.0, None)
    vague = s._smallest(Sensing.of(V), 1e-3, None)
    # Each of the 12 unit rows may be off by 1e-3 of its norm, its features by twice that.
    assert is_between(plain**2 - vague**2, 2 * 2e-3 * 12 * 0.5, 10 * 2e-3 * 12)
    assert s._smallest(Sensing.of(V), 0.1, None) == 0.0


@pytest.mark.parametrize("sums", [False, True])
def test_the_span_of_few_rows_has_a_singular_value(rng, complex_, sums):
    V, W = unit_rows(rng, 4, 3, complex_), np.array([[1.0, -0.5, 0, 0], [0, 0, 2.0, 1.0]])
    F, M = (mixed(V, W), map_of(V, W)) if sums else (Sensing.of(V), map_of(V))
    true = float(np.linalg.svd(M)[1][-1])
    assert is_between(s.smallest_of_gram(F), 0.7 * true, true)
    pattern = np.ones((3, 3), bool)
    pattern[0, 1] = pattern[1, 0] = False
    parts = [np.where(pattern, F.adjoint(e), 0.0) for e in np.eye(F.m)]
    K = np.array([[float(np.vdot(p, q).real) for q in parts] for p in parts])
    true = math.sqrt(np.linalg.eigvalsh(K)[0])
    assert is_between(s.smallest_of_gram(F, pattern), 0.7 * true, true)
    assert s.smallest_of_gram(F, np.ones((3, 3), bool)) == s.smallest_of_gram(F)


def test_rows_alike_too_many_or_unseen_span_nothing_provable(monkeypatch, rng):
    V = unit_rows(rng, 4, 3, False)
    assert s.smallest_of_gram(Sensing.of(V[[0, 0]])) == 0.0
    assert s.smallest_of_gram(Sensing.of(unit_rows(rng, 7, 3, False))) == 0.0
    assert s.smallest_of_gram(Sensing.of(V), np.zeros((3, 3), bool)) == 0.0
    monkeypatch.setattr(s, "MAX_ARRAY_ENTRIES", 10)
    pattern = ~np.eye(3, dtype=bool)
    assert s.smallest_of_gram(Sensing.of(V), pattern) == 0.0
    monkeypatch.setattr(s, "MAX_GRAM_ROWS", 3)
    assert s.smallest_of_gram(Sensing.of(V)) == 0.0
    assert s.smallest_of_gram(Sensing.of(V[:3])) > 0.0
    monkeypatch.setattr(s, "cholesky", lambda *_, **__: None)
    assert s.smallest_of_gram(Sensing.of(V[:3])) == 0.0
    assert s._smallest(Sensing.of(unit_rows(rng, 9, 3, False)), 0.0, None) == 0.0


# --- norms of fits ---------------------------------------------------------------------------


def largest_fit(V, scale):
    """The largest norm of A with ``|F(A)| <= scale``, n(n+1)/2 rows: at a corner."""
    inverse = np.linalg.inv(map_of(V))
    corners = np.array(list(product((-1.0, 1.0), repeat=len(V)))) * scale
    return float(np.linalg.norm(corners @ inverse.T, axis=1).max())


@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
def test_no_fit_is_larger_than_the_bound(rng, spread):
    V = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    scale = 10.0 ** (spread * np.array([0.3, -1.0, 0.7]))
    found = s.norm_within(Sensing.of(V), scale)
    true = largest_fit(V, scale)
    sigma = float(np.linalg.svd(map_of(V))[1][-1])
    assert is_between(found, true, 1.5 * np.linalg.norm(scale) / sigma)


def test_rows_of_large_readings_that_nothing_needs_have_no_say():
    V = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6]])
    scale = np.array([1.0, 1.0, 2.0, 1e12])
    true = largest_fit(V[:3], scale[:3])
    assert is_between(s.norm_within(Sensing.of(V), scale), true, 100.0 * true)
    sizes = np.array([1.0, 1.0, 16.0])  # as large as rows may be that are not weighed
    even = s.norm_within(Sensing.of(V[:3]), sizes)
    assert even == pytest.approx(
        np.linalg.norm(sizes) / s.smallest_singular_value(Sensing.of(V[:3])), rel=1e-14
    )


def test_a_bound_on_the_norm_needs_all_of_A_and_finite_readings(monkeypatch):
    V = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    assert s.norm_within(Sensing.of(V[:2]), np.ones(2)) == math.inf
    assert s.norm_within(Sensing.of(V), np.array([1.0, np.inf, 1.0])) == math.inf
    assert s.norm_within(Sensing.of(V), np.zeros(3)) == 0.0
    assert s.norm_within(Sensing.of(V[[0, 0, 0]]), np.ones(3)) == math.inf
    assert s.norm_within(Sensing.of(V[[0, 0, 0]]), np.array([1.0, 1.0, 1e9])) == math.inf
    assert s.norm_within(Sensing.of(V[[0, 0, 0, 1]]), np.array([1.0, 1.0, 1.0, 1e9])) == math.inf
    # Far beyond what the weights can say, rows count for nothing, the others still do.
    found = s.norm_within(Sensing.of(V), np.array([1e-300, 1e-300, 1e-300]))
    assert is_between(found, largest_fit(V, 1.0) * 1e-300, 1e-299)
    assert s.norm_within(Sensing.of(V), np.array([1e-300, 1.0, 1e300])) < math.inf
    monkeypatch.setattr(s, "MAX_DENSE_UNKNOWNS", 2)
    assert s.norm_within(Sensing.of(V), np.ones(3)) == math.inf


@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 1e300, np.inf])
def test_lengths_are_found_at_the_ends_of_the_range(size):
    values = np.array([3.0, 4.0, 0.0]) * size if size < np.inf else np.array([1.0, np.inf])
    found = s._root_sum_of_squares(values)
    exact = size in (0.0, np.inf)
    assert is_between(found, 5.0 * size, 5.0 * size * (1.0 + 1e-14) + (0.0 if exact else 1e-300))
    assert s._root_sum_of_squares(np.zeros(0)) == 0.0


def test_the_scale_of_the_data_is_their_largest_reading():
    assert s.data_scale(np.array([1.0, -5.0]), np.array([3.0, 0.5])) == 5.5


@pytest.mark.parametrize(
    ("lo", "hi", "scale"),
    [
        ([1.0, -5.0], [2.0, 5.0], 2.0),  # the narrowest allows 2, what is forced is 1
        ([-9.0, 6.0], [1.0, 8.0], 8.0),
        ([-9.0, -8.0], [1.0, -6.5], 8.0),
        ([3.0, -np.inf], [np.inf, 7.0], 3.0),  # no row of two ends
        ([-np.inf, -np.inf], [5.0, -7.0], 7.0),
        ([-2.0, -np.inf], [np.inf, np.inf], 2.0),
        ([-np.inf, -np.inf], [np.inf, np.inf], 0.0),
    ],
)
def test_beyond_a_million_scales_no_fit_is_looked_for(lo, hi, scale):
    ends = Intervals.of(np.array(lo), np.array(hi), np.ones(2))
    assert s.norm_limit(Sensing.of(np.eye(2)), ends) == 1e6 * scale
    # Of rows twice as long, readings are four times as large.
    assert s.norm_limit(Sensing.of(2.0 * np.eye(2)), ends) == 1e6 * scale / 4.0
    assert s.norm_limit(Sensing.of(0.0 * np.eye(2)), ends) == 0.0


# --- what a vector proves --------------------------------------------------------------------


def exact_margin(ends, y):
    """``sum(lo_i y_i^+ - hi_i y_i^-)`` of readings and distances as they are."""
    total = Fraction(0)
    for t, b, below, above in zip(
        *map(fractions, (y, ends.reading, ends.below, ends.above)), strict=True
    ):
        total += t * (b - below) if t > 0 else t * (b + above)
    return total


def test_margins_that_nearly_cancel_are_rounded_down(rng):
    for _ in range(20):
        b, delta, y = rng.standard_normal(9) * 1e8, rng.uniform(1e-9, 1.0, 9), np.ones(9)
        y = rng.standard_normal(9)
        b[-1] = -float(b[:-1] @ y[:-1]) / y[-1]
        ends = Intervals.around(b, delta)
        mass = float(np.abs(b) @ np.abs(y))
        true = exact_margin(ends, y)
        assert is_between(Fraction(s._margin_below(ends, y)) - true, -5 * U * mass, 0)
        dot = sum(x * t for x, t in zip(fractions(b), fractions(y), strict=True))
        assert is_between(Fraction(s._dot_below(b, y)) - dot, -5 * U * mass, 0)
        cost = sum(abs(t) * d for t, d in zip(fractions(y), fractions(delta), strict=True))
        assert is_between(Fraction(s._mass_above(y, delta)) / cost, 1, 1 + 10 * U)


def test_a_margin_takes_the_end_that_its_sign_asks_for():
    ends = Intervals.of(np.array([1.0, -3.0]), np.array([2.0, 5.0]), np.ones(2))
    assert s._margin_below(ends, np.array([2.0, -1.0])) == pytest.approx(2.0 - 5.0, rel=1e-14)
    assert s._margin_below(ends, np.array([-2.0, 1.0])) == pytest.approx(-4.0 - 3.0, rel=1e-14)
    assert s._margin_below(ends, np.array([0.0, 0.0])) == pytest.approx(0.0, abs=1e-290)


def test_entries_that_need_an_infinite_end_are_dropped():
    y = np.array([1.0, 1.0, -1.0, -1.0, 0.0])
    lower = np.array([True, False, True, False, True])
    upper = np.array([False, True, False, True, False])
    assert s.allowed(y, lower, upper).tolist() == [1.0, 0.0, 0.0, -1.0, 0.0]


def test_the_best_worst_ratio_is_bounded_as_by_hand():
    # Two readings of the same row, 1 and 4, each within 1/2: t (1/2 + 1/2) >= 3.
    b, delta, y = np.array([1.0, 4.0]), np.full(2, 0.5), np.array([-1.0, 1.0])
    assert is_between(s.lower_bound(b, delta, y, 0.0, 1e9), 3.0 - 1e-14, 3.0)
    assert is_between(s.lower_bound(b, delta, y, 0.25, 4.0), 2.0 - 1e-14, 2.0)
    assert s.lower_bound(b, delta, -y, 0.0, 1.0) == 0.0
    assert s.lower_bound(b, delta, y, 1.0, 4.0) == 0.0


ONE = Sensing.of(np.ones((2, 1)))


def checked(lo, hi, y, F=ONE, **more):
    ends = Intervals.between(np.array(lo), np.array(hi))
    return s.check_proof(F, ends, np.array(y), **more)


def test_two_readings_of_one_row_contradict_each_other_without_condition():
    found = checked([0.0, 2.0], [1.0, 3.0], [-4.0, 4.0])
    assert (found.proved, found.unconditional) == (True, True)
    assert found.adjoint_norm <= 1e-280
    # y is scaled to below 1: half of it is left. Each may be missed by half of its half-width.
    assert is_between(found.margin, 0.5 - 1e-15, 0.5)
    assert is_between(found.ratio, 2.0 - 1e-14, 2.0)
    assert found.max_norm == 2e6
    assert found.norm_needed > 1e100


@pytest.mark.parametrize(
    ("lo", "hi", "y"),
    [
        ([0.0, 2.0], [1.0, 3.0], [4.0, -4.0]),  # the wrong sign
        ([0.0, 0.5], [1.0, 3.0], [-4.0, 4.0]),  # these fit
        ([0.0, 2.0], [1.0, 3.0], [0.0, 0.0]),
        ([0.0, 2.0], [1.0, 3.0], [np.nan, 1.0]),
        ([0.0, 2.0], [1.0, 3.0], [-np.inf, 1.0]),
        ([0.0, -np.inf], [1.0, 3.0], [-4.0, 4.0]),  # no such end
    ],
)
def test_what_does_not_follow_is_not_proved(lo, hi, y):
    found = checked(lo, hi, y)
    assert not found.proved and not found.unconditional
    assert found.ratio <= 1.0


def test_touching_intervals_contradict_nothing():
    found = checked([0.0, 1.0], [1.0, 2.0], [-1.0, 1.0])
    assert not found.proved
    assert is_between(found.ratio, 1.0 - 1e-14, 1.0)


def test_a_vector_that_does_not_quite_vanish_needs_a_bound_on_the_norm():
    # F*(y) is 2^-21: a fit would have a norm of 2^20 at least, once y is scaled by 1/2.
    y = [-1.0, 1.0 + 2.0**-20]
    found = checked([0.0, 2.0], [1.0, 3.0], y)
    assert found.proved and found.unconditional
    needed = (2.0 * (1.0 + 2.0**-20) - 1.0) * 2.0**20
    assert is_between(found.norm_needed, needed * (1.0 - 1e-9), needed)
    assert is_between(found.adjoint_norm, 2.0**-21, 2.0**-21 * (1.0 + 1e-6))
    # Every reading is at most 3, so A is at most sqrt(1 + 9)/sqrt(2): what that costs the ratio.
    assert is_between(found.ratio, 2.0 - 1e-5, 2.0)
    taken = checked([0.0, 2.0], [1.0, 3.0], y, conditional=True)
    assert (taken.proved, taken.unconditional) == (False, False)  # 2e6 is beyond 2^20
    assert taken.ratio < 1.0
    some = checked([0.0, 2.0], [1.0, 3.0], y, conditional=True, max_norm=1e5)
    assert (some.proved, some.unconditional, some.max_norm) == (True, False, 1e5)
    exact = 1.0 + (0.5 * needed * 2.0**-20 - 2.0**-21 * 1e5) / (0.5 * (1.0 + 2.0**-21))
    assert is_between(some.ratio, exact - 1e-6, exact)
    more = checked([0.0, 2.0], [1.0, 3.0], y, conditional=True, max_norm=needed * 1.01)
    assert not more.proved


def test_rows_of_one_end_leave_the_norm_unbounded():
    y = [-1.0, 1.0 + 2.0**-20]
    found = checked([-np.inf, 2.0], [1.0, np.inf], y)
    assert not found.unconditional
    assert not found.proved  # up to 2e6, and a fit may have 2^20
    exact = checked([-np.inf, 2.0], [1.0, np.inf], [-1.0, 1.0])
    assert (exact.proved, exact.unconditional) == (True, False)


def test_where_the_time_is_over_the_norm_is_taken_for_granted(monkeypatch):
    def stop(*_):
        raise Stop

    monkeypatch.setattr(s, "norm_within", stop)
    found = checked([0.0, 2.0], [1.0, 3.0], [-1.0, 1.0 + 2.0**-30])
    assert (found.proved, found.unconditional) == (True, False)


# --- what an objective says of the norm ------------------------------------------------------


def question(rows, lo, hi, weights, reading=(0.0, 0.0), **more):
    arrays = [np.array(each, dtype=float) for each in (lo, hi, weights, reading)]
    hard = np.array(more.pop("hard", (False, False)))
    return Question(rows, *arrays, hard, **more)


def test_squares_reach_as_far_as_their_roots():
    q = question("squares", (-9.0, 1.0), (9.0, np.inf), (4.0, 0.0), (1.0, 0.0))
    lo, hi = s.reached(q, 16.0)
    assert is_between(hi[0], 3.0, 3.0 + 1e-14) and is_between(-lo[0], 1.0, 1.0 + 1e-14)
    assert (lo[1], hi[1]) == (1.0, np.inf)
    # Rounded outwards: the objective at what is reached is no less than that.
    for upper in (0.3, 1.7, 1e-9):
        lo, hi = s.reached(q, upper)
        assert 4 * (Fraction(hi[0]) - 1) ** 2 >= Fraction(upper)
        assert 4 * (Fraction(lo[0]) - 1) ** 2 >= Fraction(upper)


SLACK = [("slack_sum", 4.0), ("slack_max", 4.0), ("slack_squares", 2.0)]


@pytest.mark.parametrize(("rows", "away"), SLACK)
def test_slack_reaches_beyond_the_interval(rows, away):
    q = question(rows, (-1.0, 2.0), (1.0, 2.0), (2.0, 2.0), hard=(False, True))
    lo, hi = s.reached(q, 8.0)
    assert is_between(hi[0] - 1.0, away, away + 1e-13) and is_between(
        -lo[0] - 1, away, away + 1e-13
    )
    assert (lo[1], hi[1]) == (2.0, 2.0)
    free = question(rows, (-1.0, 2.0), (1.0, 2.0), (0.0, 2.0), hard=(False, True))
    assert s.reached(free, 8.0)[1][0] == np.inf
    negative = s.reached(q, -1.0)
    assert is_between(negative[1][0], 1.0, 1.0 + 1e-14)


@pytest.mark.parametrize(
    "more", [{"C": -1.0}, {"C": 1.0}, {"C": np.eye(1)}, {"C": 0.0, "log_det": True}]
)
def test_an_objective_that_may_be_negative_bounds_no_reading(more):
    q = question("squares", (-9.0, 1.0), (9.0, 7.0), (4.0, 1.0), **more)
    lo, hi = s.reached(q, 16.0)
    assert lo.tolist() == [-9.0, 1.0] and hi.tolist() == [9.0, 7.0]
    positive = question("squares", (-9.0, 1.0), (9.0, 7.0), (4.0, 1.0), C=1.0, psd=True)
    assert s.reached(positive, 16.0)[1][0] == pytest.approx(2.0)
    assert s.reached(positive, np.inf)[1][0] == 9.0
    within = question("within", (-9.0, 1.0), (9.0, 7.0), (4.0, 1.0))
    assert s.reached(within, 1.0)[1].tolist() == [9.0, 7.0]


def test_a_norm_follows_from_the_rows_of_two_ends():
    V = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0]])
    ones = np.ones(4)
    q = Question("within", -ones, np.array([1.0, 1.0, 1.0, np.inf]), ones, 0 * ones, ones < 0)
    found = s.norm_bound(Sensing.of(V), q, np.inf)
    assert is_between(found, largest_fit(V[:3], 1.0), 5.0)
    none = Question("within", -np.inf * ones, ones, ones, 0 * ones, ones < 0)
    assert s.norm_bound(Sensing.of(V), none, np.inf) == math.inf


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200, 0.0])
def test_what_no_row_sees_may_be_nothing_where_C_is(size):
    V, ones = np.array([[1.0, 0.0], [0.6, 0.8]]), np.ones(2)
    q = Question("within", -size * ones, size * ones, ones, 0 * ones, ones < 0)
    found = s.norm_bound(Sensing.of(V), q, np.inf)
    # A = F*(K^-1 v) is the least of these readings.
    K = np.abs(V @ V.T) ** 2
    corners = np.array([[1.0, 1.0], [1.0, -1.0]])
    true = math.sqrt(max(float(v @ np.linalg.solve(K, v)) for v in corners)) * size
    assert is_between(found, true, 2.0 * true)
    linear = Question("within", -ones, ones, ones, 0 * ones, ones < 0, C=np.eye(2))
    assert s.norm_bound(Sensing.of(V), linear, np.inf) == math.inf
    multiple = Question("within", -ones, ones, ones, 0 * ones, ones < 0, C=1.0)
    assert s.norm_bound(Sensing.of(V), multiple, np.inf) == math.inf


def test_a_norm_that_is_taken_for_granted_is_large():
    q = question("within", (1.0, -5.0), (2.0, 5.0), (1.0, 1.0))
    F = Sensing.of(np.eye(2))
    assert s.norm_taken(F, q, 3.0, np.inf) == 2e6
    assert s.norm_taken(F, q, 1e9, np.inf) == 1e10
    inf = np.inf
    squares = question("squares", (-inf, -inf), (inf, inf), (1.0, 0.0), (7.0, 9.0))
    assert s.norm_taken(F, squares, 3.0, inf) == 7e6
    one = question("squares", (-inf, -inf), (inf, 4.0), (1.0, 1.0), (7.0, 9.0))
    assert s.norm_taken(F, one, 3.0, inf) == 9e6  # between 9 and 4
    slack = question("slack_max", (5.0, 1.0), (6.0, inf), (1.0, 1.0))
    assert s.norm_taken(F, slack, 3.0, inf) == 6e6
    # As far as the slack may reach, where that is known: to -5 and 7, to -9 and 5.
    for lo, hi, most in ((-1.0, 3.0, 7e6), (-5.0, 1.0, 9e6)):
        some = question("slack_max", (lo, lo), (hi, hi), (2.0, 2.0))
        assert s.norm_taken(F, some, 0.0, 8.0) == pytest.approx(most)


def test_coordinates_that_a_row_has_are_seen():
    V = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    assert s.seen_columns(Sensing.of(V)).tolist() == [True, False, True]
    assert s.seen_columns(Sensing.of(np.ones((2, 3)))).all()
    assert s.seen_columns(Sensing.of(np.array([[1.0, 0.0], [0.0, 1.0]]))).all()
    assert s.seen_columns(mixed(V, np.ones((1, 2)))).tolist() == [True, False, True]
