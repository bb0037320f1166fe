"""Row terms: their values enclosed and their conjugates bounded, next to exact suprema."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from exact_matrices import is_between

from quadsense.core.question import Question
from quadsense.core.sums import ExactSum, summed
from quadsense.proofs.costs import (
    conjugate_above,
    permitted,
    row_value,
    shifted,
    unit_of,
)

INF = np.inf
U = 2.0**-53

NONE = Decimal(0)


@pytest.fixture(autouse=True)
def sixty_digits():
    """Of what is compared with; and what overflows in float64 is looked at afterwards."""
    with localcontext() as context, np.errstate(all="ignore"):
        context.prec = 60
        yield


def question(rows, lo, hi, weights=1.0, reading=0.0, hard=False, **more):
    shape = np.shape(lo) or (1,)

    def full(x):
        return np.array(np.broadcast_to(np.array(x, float), shape))

    return Question(
        rows, full(lo), full(hi), full(weights), full(reading),
        np.array(np.broadcast_to(hard, shape), bool), **more,
    )  # fmt: skip


# --- exact conjugates ------------------------------------------------------------------------


def phi(q, i, v):
    """The cost of one reading, in digits."""
    lo, hi, w, b = (Decimal(float(x[i])) for x in (q.lo, q.hi, q.weights, q.reading))
    hard = bool(q.hard[i])
    if q.rows.startswith("slack") and not hard:
        miss = max(v - hi, lo - v, NONE)
        return w * miss * (miss if q.rows == "slack_squares" else 1)
    if not lo <= v <= hi:
        return Decimal(INF)
    if q.rows == "squares" and not hard:
        return w * (v - b) ** 2
    if q.rows == "center" and lo != hi:
        return -sum(x.ln() for x in (v - lo, hi - v) if x < Decimal(INF))
    if q.rows == "likelihood" and not hard:
        slope = Decimal(float(np.broadcast_to(q.slope, q.lo.shape)[i]))
        return slope * (v - b) - (w * ((v - lo) / (b - lo)).ln() if w else 0)
    return NONE


def best(q, i, y):
    """Where ``y v - phi(v)`` is largest: by hand."""
    lo, hi, w, b = (Decimal(float(x[i])) for x in (q.lo, q.hi, q.weights, q.reading))
    y = Decimal(float(y))
    if q.hard[i] or q.rows == "within" or q.rows in ("slack_sum", "slack_max"):
        return hi if y > 0 else lo if y < 0 else (hi if hi < Decimal(INF) else lo)
    if q.rows == "squares":
        return min(max(b + y / (2 * w), lo), hi) if w else (hi if y > 0 else lo)
    if q.rows == "slack_squares":
        return (hi if y > 0 else lo) + y / (2 * w)
    if q.rows == "likelihood":
        slope = Decimal(float(np.broadcast_to(q.slope, q.lo.shape)[i]))
        return lo + w / (slope - y) if w else lo
    if hi == Decimal(INF):
        return lo - 1 / y
    if lo == Decimal(-INF):
        return hi - 1 / y
    half = (hi - lo) / 2  # 1/(v - lo) - 1/(hi - v) = -y
    step = ((1 + (half * y) ** 2).sqrt() - 1) / y if y else NONE
    return (lo + hi) / 2 + step


def conjugate(q, y):
    """``sum_i sup_v (y_i v - phi_i(v))``."""
    total = NONE
    for i, t in enumerate(y):
        v = best(q, i, t)
        total += Decimal(float(t)) * v - phi(q, i, v) if v.is_finite() else 0
    return total


CASES = {
    "within": question("within", [-1.0, 2.0, 3.0], [1.5, 2.0, INF]),
    "squares": question(
        "squares", [-1.0, 0.0, -INF, 1 / 3, 2.0], [1.0, 1.0, INF, 0.7, 2.5],
        [2.0, 0.3, 1e3, 0.0, 1.0], [0.3, 5.0, 1e8, 0.0, 0.0], [False, False, False, False, True],
    ),
    "center": question("center", [-1.0, 2.0, -INF, 1.0, 1e8], [1.5, INF, -3.0, 1.0, 1e8 + 1.0]),
    "slack_sum": question("slack_sum", [-1.0, 2.0, 3.0], [1.5, 2.0, 4.0], [2.0, 0.1, 1.0],
                          hard=[False, False, True]),
    "slack_squares": question("slack_squares", [-1.0, 2.0, 3.0], [1.5, 2.0, 4.0], [2.0, 0.1, 1.0],
                              hard=[False, False, True]),
    "likelihood": question("likelihood", [-0.1, 0.0, -0.5, 1.0], [INF, INF, INF, 2.0],
                           [4.0, 0.5, 0.0, 0.0], [0.4, 1e6, -0.5, 0.0], [False] * 3 + [True],
                           slope=np.array([10.0, 0.0, 2.0, 0.0])),
}  # fmt: skip


@pytest.mark.parametrize("rows", CASES)
def test_the_conjugate_is_rounded_up_and_by_little(rows, rng):
    q = CASES[rows]
    for _ in range(40):
        y = permitted(q, rng.standard_normal(q.m) * 10.0 ** rng.uniform(-3, 3))
        found, true = conjugate_above(q, y), conjugate(q, y)
        if not math.isfinite(
            found
        ):  # of a likelihood or center whose multiplier has the wrong sign
            assert rows in ("likelihood", "center")
            continue
        parts = 1.0 + sum(
            abs(float(t)) * abs(float(best(q, i, t))) for i, t in enumerate(y)
            if best(q, i, t).is_finite()
        )  # fmt: skip
        assert true <= Decimal(found)
        assert float(Decimal(found) - true) <= 100 * U * (parts + abs(float(true)) + 10.0 * q.m)


def test_readings_far_larger_than_their_residuals_cancel():
    """``y b`` of 1e8 and more, of which nothing is left: the products are exact."""
    q = question("squares", [-INF] * 2, [INF] * 2, [1.0, 1.0], [1e8 + 0.1, -1e8 - 0.3])
    y = np.array([1.0 / 3.0, 1.0 / 3.0])
    found, true = conjugate_above(q, y), conjugate(q, y)
    assert true <= Decimal(found)
    assert float(Decimal(found) - true) <= 1e-14
    # Also where an end is active, and y is split into what the square takes and the rest.
    q = question("squares", [-INF] * 2, [1e8, INF], [1e-9, 1.0], [1e8 - 0.3, -1e8 - 0.3])
    for y in (np.array([1.0 / 3.0, 1.0 / 3.0]), np.array([1.0 + 1e-9, 1.0])):
        found, true = conjugate_above(q, y), conjugate(q, y)
        assert true <= Decimal(found)
        assert float(Decimal(found) - true) <= 1e-13


def test_what_a_split_loses_is_counted(rng):
    """``y = s + rest + z`` exactly, whatever the sizes."""
    for _ in range(200):
        b, w = rng.standard_normal() * 1e3, 10.0 ** rng.uniform(-12, 12)
        lo, hi = b - 10.0 ** rng.uniform(-9, 3), b + 10.0 ** rng.uniform(-9, 3)
        q = question("squares", [lo], [hi], [w], [b])
        y = np.array([rng.standard_normal() * w * 10.0 ** rng.uniform(-6, 12)])
        found, true = conjugate_above(q, y), conjugate(q, y)
        assert true <= Decimal(found)
        scale = abs(y[0]) * max(abs(lo), abs(hi))
        assert float(Decimal(found) - true) <= 1e-14 * scale + 1e-290


def test_a_wrong_sign_costs_infinitely_much():
    q = CASES["center"]
    y = np.zeros(5)
    y[1] = 1.0  # of a row without an upper end
    assert conjugate_above(q, y) == INF
    y[1], y[2] = -1.0, -1.0
    assert conjugate_above(q, y) == INF
    y[2] = 1.0
    assert conjugate_above(q, y) < INF
    counts = CASES["likelihood"]
    assert conjugate_above(counts, np.array([10.0, -1.0, 0.0, 0.0])) == INF  # at the slope
    assert conjugate_above(counts, np.array([9.0, -1.0, 3.0, 0.0])) == INF  # above, nothing counted
    assert conjugate_above(counts, np.array([9.0, -1.0, 2.0, 0.0])) < INF


def test_entries_that_nothing_permits_are_made_smaller():
    ones = np.ones(3)
    q = question("within", [-INF, 0.0, -INF], [1.0, INF, INF])
    assert permitted(q, ones).tolist() == [1.0, 0.0, 0.0]
    assert permitted(q, -ones).tolist() == [0.0, -1.0, 0.0]
    assert permitted(q, np.array([np.nan, -INF, 5.0])).tolist() == [0.0, 0.0, 0.0]
    q = question("squares", [-INF] * 3, [INF] * 3, [1.0, 0.0, 1.0], hard=[False, False, True])
    assert permitted(q, ones).tolist() == [1.0, 0.0, 0.0]
    q = question("slack_sum", [0.0] * 3, [1.0] * 3, [0.5, 0.0, 0.5], hard=[False, False, True])
    assert permitted(q, 2.0 * ones).tolist() == [0.5, 0.0, 2.0]
    assert permitted(q, -2.0 * ones).tolist() == [-0.5, 0.0, -2.0]
    q = question("slack_squares", [0.0] * 3, [1.0] * 3, [0.5, 0.0, 0.5])
    assert permitted(q, 2.0 * ones).tolist() == [2.0, 0.0, 2.0]
    hard, slope = [False, False, True], np.array([1.0, 1.0, 0.0])
    q = question("likelihood", [0.0] * 3, [INF, INF, 1.0], [1.0, 0.0, 0.0], hard=hard, slope=slope)
    assert permitted(q, 2.0 * ones).tolist() == [2.0, 1.0, 2.0]
    q = question("slack_max", [0.0] * 3, [1.0] * 3, [0.5, 0.0, 1.0], hard=[False, False, False])
    found = permitted(q, np.array([1.0, 7.0, -2.0]))  # shares 2 and 2: a quarter of it
    np.testing.assert_allclose(found, [0.25, 0.0, -0.5], rtol=1e-12)
    assert (
        sum(Fraction(abs(t)) / Fraction(w) for t, w in zip(found, (0.5, 1.0, 1.0), strict=True))
        <= 1
    )
    few = np.array([0.1, 0.0, 0.2])
    assert permitted(q, few).tolist() == few.tolist()
    held = question("slack_max", [0.0], [1.0], [0.5], hard=True)
    assert permitted(held, np.array([9.0])).tolist() == [9.0]


def test_the_excess_is_the_least_factor_that_is_permitted():
    y = np.array([1.0, -3.0, 9.0])
    given = ([0.0] * 3, [1.0] * 3, [2.0, 1.0, 1.0])
    hard = [False, False, True]
    for rows, factor in (("slack_sum", 3.0), ("slack_max", 3.5), ("slack_squares", 1.0)):
        q = question(rows, *given, hard=hard)
        assert is_between(q.term.excess(q, y), factor, factor * (1.0 + 1e-14))
        assert q.term.excess(q, 0.1 * y) == 1.0
        assert q.term.excess(q, 0.0 * y) == 1.0
    assert question("within", *given).term.excess(q, y) == 1.0


# --- values ----------------------------------------------------------------------------------


def inside(q, rng):
    """Readings that each row may have."""
    lo = np.where(np.isfinite(q.lo), q.lo, np.where(np.isfinite(q.hi), q.hi - 2.0, -1.0))
    hi = np.where(np.isfinite(q.hi), q.hi, lo + 3.0)
    v = lo + rng.uniform(0.1, 0.9, q.m) * (hi - lo)
    if q.rows.startswith("slack"):
        v = np.where(q.hard, v, v + 3.0 * rng.standard_normal(q.m) * (rng.random(q.m) < 0.7))
    return v


@pytest.mark.parametrize("rows", [*CASES, "slack_max"])
@pytest.mark.parametrize("size", [0.0, 1e-14, 1e-3])
def test_values_are_enclosed_and_by_little(rows, size, rng):
    q = CASES["slack_sum"] if rows == "slack_max" else CASES[rows]
    if rows == "slack_max":
        q = question(rows, q.lo, q.hi, q.weights, hard=q.hard)
    for _ in range(30):
        v = inside(q, rng)
        error = size * np.abs(rng.standard_normal(q.m))
        moved = v + error * rng.choice([-1.0, 1.0], q.m) * (1.0 - 1e-9)
        if rows == "likelihood" or rows == "center":
            error = np.where(q.lo == q.hi, 0.0, error)
        found = row_value(q, moved, error)
        costs = [phi(q, i, Decimal(float(x))) for i, x in enumerate(v)]
        if any(not each.is_finite() for each in costs):  # an equality, or a hard row, missed
            costs = [each if each.is_finite() else NONE for each in costs]
        true = max(costs) if rows == "slack_max" else sum(costs)
        if found.error == INF:
            continue
        assert abs(Decimal(found.value) - true) <= Decimal(found.error) + Decimal("1e-300")
        if size <= 1e-14 and rows != "center":
            parts = 1.0 + float(sum(abs(each) for each in costs)) + np.abs(v).max()
            assert found.error <= 1e4 * (size + 10 * U) * parts * 1e3


@pytest.mark.parametrize("rows", ["center", "likelihood"])
def test_a_logarithm_of_what_may_be_0_is_not_enclosed(rows):
    q = question(rows, [0.0], [INF], [1.0], [1.0], slope=np.array([1.0]))
    assert row_value(q, np.array([1.0]), np.array([1.0])).error == INF
    assert row_value(q, np.array([1.0]), np.array([0.999])).error < INF
    assert row_value(q, np.array([-1.0]), np.array([0.0])) == (INF, INF)


def test_a_miss_below_the_error_counts_as_far_as_it_may_be_one():
    q = question("slack_sum", [0.0], [1.0], [2.0])
    assert row_value(q, np.array([0.5]), np.array([0.4])) == (0.0, 0.0)
    found = row_value(q, np.array([0.5]), np.array([0.75]))
    assert found.value == 0.0 and is_between(found.error, 0.5, 0.5 + 1e-8)
    found = row_value(q, np.array([1.5]), np.array([0.25]))
    assert found.value == 1.0 and is_between(found.error, 0.5, 0.5 + 1e-8)


@pytest.mark.parametrize(
    ("rows", "lo", "hi", "weight", "reading", "slope", "y"),
    [
        ("squares", -1.0, 1.0, 2.0, 0.25, 0.0, -1.0),
        ("center", -0.5, 0.25, 1.0, 0.0, 0.0, 2.0),
        ("likelihood", -2.0, INF, 4.0, 1.0, 3.0, 1.0),
        ("slack_sum", 1.0, 2.0, 3.0, 0.0, 0.0, -3.0),
        ("slack_sum", -2.0, -1.0, 3.0, 0.0, 0.0, 3.0),
        ("slack_squares", 1.0, 2.0, 3.0, 0.0, 0.0, -6.0),
        ("slack_squares", -2.0, -1.0, 3.0, 0.0, 0.0, 6.0),
        ("slack_max", 1.0, 2.0, 3.0, 0.0, 0.0, 0.0),
        ("within", -1.0, 2.0, 3.0, 0.0, 0.0, 0.0),
    ],
)  # fmt: skip
def test_the_slope_at_0_says_best_what_0_costs(rows, lo, hi, weight, reading, slope, y):
    q = question(rows, [lo], [hi], [weight], [reading], slope=np.array([slope]))
    found = q.slopes_at_zero
    np.testing.assert_allclose(found, [y])
    if rows != "slack_max":  # -phi*(y) is phi(0) there
        cost = float(phi(q, 0, NONE))
        assert -conjugate_above(q, found) == pytest.approx(cost, abs=1e-12)
    held = question(rows, [lo], [hi], [weight], [reading], hard=True, slope=np.array([0.0]))
    assert rows == "center" or held.slopes_at_zero.tolist() == [0.0]


def test_what_no_reading_of_0_can_be_is_known():
    lo, hi = [0.0, 1.0, -INF, -1.0], [1.0, 2.0, -1.0, 1.0]
    expected = {"within": [0, 1, 1, 0], "center": [1, 1, 1, 0], "slack_sum": [0] * 4}
    for rows, wrong in expected.items():
        q = question(rows, lo, hi)
        assert q.term.impossible(q).tolist() == list(map(bool, wrong))
    q = question("slack_max", lo, hi, [1.0, 3.0, 2.0, 9.0], hard=[False, False, True, False])
    dead = np.ones(4, bool)
    assert q.term.floor(q, dead) == 3.0
    assert q.term.floor(q, ~dead) == 0.0
    assert CASES["center"].term.logarithms_of_ends(CASES["center"]).tolist() == [2, 1, 1, 0, 2]


# --- units -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [*CASES, "slack_max"])
@pytest.mark.parametrize("unit", [0, 5])
def test_a_question_in_other_units_is_the_same(rows, unit, rng):
    q = CASES["slack_sum"] if rows == "slack_max" else CASES[rows]
    if rows == "slack_max":
        q = question(rows, q.lo, q.hi, q.weights, hard=q.hard)
    exponents = rng.integers(-8, 9, q.m)
    found = shifted(q, exponents, unit)
    v = np.where(np.isfinite(q.lo), q.lo + 0.25, q.hi - 0.25)
    v = np.where(q.lo == q.hi, q.lo, v)
    scaled = np.ldexp(v, -2 * exponents)
    before, after = row_value(q, v, 0.0 * v).value, row_value(found, scaled, 0.0 * v).value
    if rows == "center":  # logarithms have no unit
        unit = 0
        before += 2.0 * math.log(2.0) * float(exponents @ q.term.logarithms_of_ends(q))
    elif rows == "likelihood":  # a count has no unit: only its slope is shifted
        unit = 0
        found = shifted(q, exponents)
        after = row_value(found, scaled, 0.0 * v).value
    assert after == pytest.approx(math.ldexp(before, -unit), rel=1e-13)


def test_what_leaves_the_range_asks_for_less():
    q = question("squares", [-1e300, -INF, 1e300], [1e300, 1e-300, INF], [1e300, 1e-300, 1.0],
                 [1e-300, 2.0, 1e300])  # fmt: skip
    up = shifted(q, np.array([-200, -200, -200]))
    assert up.lo.tolist()[0] == -INF and up.hi[0] == INF
    assert up.lo[2] == -INF  # an end at infinity that would contradict: dropped
    assert (up.reading[2], up.weights[2]) == (0.0, 0.0)
    down = shifted(q, np.array([200, 200, 200]))
    assert down.weights[0] == 1e280
    same = shifted(q, np.zeros(3, int))
    assert same.weights.tolist() == [1e280, 1e-300, 1.0]
    tiny = question("squares", [0.0], [1.0], [1e-310])
    assert shifted(tiny, np.zeros(1, int)).weights.tolist() == [0.0]
    assert shifted(tiny, np.ones(1, int)).weights.tolist() == [0.0]


def test_the_unit_is_that_of_the_largest_weight_where_that_is_far_from_1():
    zero, one = np.zeros(2, int), np.array([1, 100])

    def unit(rows, weights, exponents=zero, **more):
        return unit_of(question(rows, [0.0] * 2, [1.0] * 2, weights, **more), exponents)

    assert unit("squares", [2.0**500, 1.0]) == 501
    assert unit("squares", [2.0**-500, 0.0]) == -499
    assert unit("squares", [2.0**300, 1.0]) == 0
    assert unit("squares", [2.0**300, 1.0], one) == 401  # the second weight times 2^400
    assert unit("slack_sum", [2.0**300, 2.0**250], one) == 451
    assert unit("squares", [2.0**500, 1.0], hard=[True, False]) == 0
    for rows in ("within", "center", "likelihood"):
        assert unit(rows, [2.0**500, 1.0]) == 0
    assert unit("squares", [2.0**500, 1.0], log_det=True) == 0
    assert unit("squares", [0.0, 0.0]) == 0


# --- sums ------------------------------------------------------------------------------------


def test_sums_are_rounded_up_by_what_their_parts_may_be_off():
    total = ExactSum()
    total.add(np.array([]))
    assert is_between(total.above(), 0.0, 1e-299)
    total.add(np.array([1e16, 1.0, -1e16]))
    assert is_between(total.above(), 1.0 + 4 * 4 * U * 1e16, 1.0 + 16 * 4 * U * 1e16)
    total = ExactSum()
    total.add_products(np.array([]), np.array([]))
    a, b = np.array([1e8 + 1.0, -1e8, 0.1]), np.array([1e8 - 1.0, 1e8, 0.1])
    total.add_products(a[:2], b[:2])
    total.add_products(a[2:], b[2:])
    true = sum(Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True))
    assert is_between(Fraction(total.above()) - true, 0, 10 * U)
    for bad in (np.nan, INF, -INF):
        total.add(np.array([bad]))
        assert total.above() == INF


@pytest.mark.parametrize(
    "factors", [(1e-200, 1e-60), (1e200, 1e99), (1e200, 1e105), (1e300, 1e-290)]
)
def test_products_at_the_ends_of_the_range_are_rounded_up(factors):
    x, y = factors[0] / 3.0, factors[1] / 7.0
    total = ExactSum()
    total.add_products(np.array([x, -x, 1.0]), np.array([y, y * (1.0 - 2.0**-52), 0.0]))
    found = total.above()
    true = Fraction(x) * Fraction(y) - Fraction(x) * Fraction(y * (1.0 - 2.0**-52))
    most = true + 100 * Fraction(U) * Fraction(x) * Fraction(y) + Fraction(1e-298)
    assert found == INF or true <= Fraction(found) <= most


def test_a_sum_of_terms_is_known_up_to_their_errors():
    found = summed(np.array([1e16, 1.0, -1e16]), np.array([0.5, 0.25, 0.125]))
    assert found.value == 1.0
    assert is_between(found.error, 0.875 + 4 * 4 * U * 1e16, 0.875 + 16 * 4 * U * 1e16)
    assert summed(np.array([1e308, 1e308]), np.zeros(2)).error == INF
    assert summed(np.array([np.nan]), np.zeros(1)).error == INF
    assert summed(np.array([INF]), np.zeros(1)).error == INF
