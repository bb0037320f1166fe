"""What a vector proves of positive semidefinite matrices, by hand and next to exact elimination."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from exact_matrices import adjoint, is_between, is_semidefinite, shifted, whole
from helpers import gaussian_rows, hermitian

from quadsense.core.intervals import Intervals
from quadsense.core.question import Question
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import positive as p
from quadsense.system.watch import Stop

U = 2.0**-53


def mixed(V, W):
    return Mixed(Sensing.of(V), W, np.ones(len(W)), np.ones(len(W)))


def least(V, y, W=None):
    y = y if W is None else W.T @ y
    return float(np.linalg.eigvalsh((V.T * y) @ V.conj())[0])


def mass(V, y, W=None):
    y = np.abs(y) if W is None else np.abs(W).T @ np.abs(y)
    return float(y @ np.sum(np.abs(V) ** 2, axis=1))


def is_below(bound, V, y, W=None):
    """Whether ``F*(y) - bound I`` is positive semidefinite, exactly."""
    return is_semidefinite(shifted(whole(*adjoint(V, y, W)), Fraction(bound)))


# --- the smallest eigenvalue -----------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(9, 4), (3, 4), (2, 9), (30, 2)])
def test_the_smallest_eigenvalue_is_bounded_and_near(rng, complex_, m, n):
    """Also where few rows are looked at within their span."""
    V, y = gaussian_rows(rng, m, n, complex_), rng.standard_normal(m)
    for values in (y, np.abs(y), -np.abs(y)):
        found = p.smallest_eigenvalue_bound(Sensing.of(V), values)
        size = mass(V, values)
        assert is_below(found, V, values)
        assert found >= min(least(V, values), 0.0 if m < n else np.inf) - 3000 * U * size
        if 2 * m >= n:  # what a sum of m products may be off by is taken off
            assert found <= least(V, values) - (m + 3) * U * size


def test_a_basis_that_is_made_in_blocks_bounds_the_same(monkeypatch, rng, complex_):
    V, y = gaussian_rows(rng, 40, 90, complex_), rng.standard_normal(40)
    whole = p.smallest_eigenvalue_bound(Sensing.of(V), y)
    monkeypatch.setattr(p, "BLOCK_FLOPS", 1e5)
    found = p.smallest_eigenvalue_bound(Sensing.of(V), y)
    true, size = least(V, y), mass(V, y)
    for bound in (whole, found):
        assert is_between(bound, true - 1e-10 * size, true)


def test_rows_outside_of_the_basis_are_looked_at_in_all_blocks(monkeypatch, rng):
    """Of 40 rows the last has a part that the basis has not: in whichever block it is."""
    V, y = gaussian_rows(rng, 40, 120, False), np.append(np.zeros(39), -1.0)
    y[:39] = 1e-9
    B = np.linalg.qr(V[:39].T)[0]
    monkeypatch.setattr(p, "BLOCK_FLOPS", 10.0)
    monkeypatch.setattr(p, "basis_in_blocks", lambda _: B)
    rest = V[39] - B @ (B.T @ V[39])
    true = least(V, y)
    found = p.smallest_eigenvalue_bound(Sensing.of(V), y)
    assert found <= true
    lengths = np.linalg.norm(V[39]), np.linalg.norm(rest)
    loss = 2.0 * lengths[0] * lengths[1] + lengths[1] ** 2
    assert found >= -(lengths[0] ** 2) - 1.2 * loss


@pytest.mark.parametrize("wrong", [0.0, 1e-6])
@pytest.mark.parametrize("blocks", [False, True])
def test_whatever_the_basis_the_bound_is_true(monkeypatch, rng, complex_, wrong, blocks):
    """Of rows that the basis has not, and of a basis that is not orthonormal."""
    V, y = gaussian_rows(rng, 3, 40, complex_), np.array([1.0, 0.5, -1.0])
    B = np.linalg.qr(V.T)[0]
    off = B @ (np.eye(3) + wrong * hermitian(rng, 3, complex_))
    off = off + wrong * gaussian_rows(rng, 40, 3, complex_)
    other = np.linalg.qr(gaussian_rows(rng, 40, 3, complex_))[0]
    true, size = least(V, y), mass(V, y)
    for basis, loss in ((off, 100.0 * wrong + 1e-12), (1.5 * B, 30.0), (other, 10.0)):
        monkeypatch.setattr(np.linalg, "qr", lambda _, basis=basis: (basis, None))
        if blocks:
            monkeypatch.setattr(p, "basis_in_blocks", lambda _, basis=basis: basis)
            monkeypatch.setattr(p, "BLOCK_FLOPS", 10.0)
        found = p.smallest_eigenvalue_bound(Sensing.of(V), y)
        assert is_between(found, true - loss * size, true)


def test_a_bound_is_at_most_0_where_some_direction_is_not_seen(rng):
    V = gaussian_rows(rng, 2, 9, False)
    assert is_between(p.smallest_eigenvalue_bound(Sensing.of(V), np.ones(2)), -1e-12, 0.0)
    assert p.smallest_eigenvalue_bound(Sensing.of(V), np.zeros(2)) == 0.0
    assert p.smallest_eigenvalue_bound(Sensing.of(0.0 * V), np.ones(2)) <= 0.0


def test_sums_are_bounded_by_the_rows_in_them(rng, complex_):
    V, W, y = gaussian_rows(rng, 6, 3, complex_), rng.standard_normal((4, 6)), np.ones(4)
    F = mixed(V, W)
    found = p.smallest_eigenvalue_bound(F, y)
    size = mass(V, y, W)
    assert is_below(found, V, y, W)
    assert found >= least(V, y, W) - 3000 * U * size
    plain = p.smallest_eigenvalue_bound(F.raw, F.unmixed(y))
    assert is_between(plain - found, 4 * U * size, 40 * U * size)


def test_where_nothing_is_proved_the_mass_bounds(monkeypatch, rng):
    V, y = gaussian_rows(rng, 4, 2, False), np.array([1.0, -2.0, 0.5, 0.0])
    monkeypatch.setattr(p, "first_shift", lambda *_: None)
    found = p.smallest_eigenvalue_bound(Sensing.of(V), y)
    assert is_between(-found, mass(V, y), mass(V, y) * (1.0 + 1e-13))
    assert p.floor_within_span(Sensing.of(V[:2]), np.ones(2), np.ones(2)) == 0.0


def test_a_guess_that_is_too_high_is_lowered(monkeypatch, rng):
    V, y = gaussian_rows(rng, 4, 2, False), np.array([1.0, -2.0, 0.5, 0.0])
    true = least(V, y)
    monkeypatch.setattr(p, "_least_eigenvalue", lambda _: true + 1e-9)
    assert is_between(p.smallest_eigenvalue_bound(Sensing.of(V), y), true - 1e-8, true)


# --- lifts -----------------------------------------------------------------------------------


def test_only_rows_bounded_above_lift():
    ends = Intervals.of(np.array([-np.inf, 0.0, 0.0]), np.array([1.0, np.inf, 1.0]), np.ones(3))
    F = Sensing.of(np.ones((3, 1)))
    assert p.lift_direction(F, ends).tolist() == [1.0, 0.0, 1.0]
    assert is_between(p.lift_floor(F, ends), 2.0 - 1e-12, 2.0)
    few = Sensing.of(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
    some = Intervals.of(ends.lo, np.array([1.0, np.inf, np.inf]), np.ones(3))
    assert p.lift_floor(few, some) == 0.0
    assert is_between(p.lift_floor(few, ends), least(few.rows(), [1, 0, 1]) - 1e-12, 1.0)


def test_sums_lift_along_what_is_near_the_identity():
    # A difference and a sum: only with both signs is the identity among their combinations.
    F = mixed(np.eye(2), np.array([[1.0, -1.0], [1.0, 3.0]]))
    ends = Intervals.of(np.array([-1.0, -1.0]), np.array([np.inf, 1.0]), np.ones(2))
    d = p.lift_direction(F, ends)
    np.testing.assert_allclose(d, [0.0 if F.flat[0] > 0 else F.flat[0], F.flat[1]])
    both = Intervals.of(np.array([-1.0, -1.0]), np.array([1.0, 1.0]), np.ones(2))
    np.testing.assert_allclose(F.unmixed(p.lift_direction(F, both)), [1.0, 1.0], rtol=1e-9)
    assert is_between(p.lift_floor(F, both), 1.0 - 1e-9, 1.0)
    assert (
        p.lift_floor(F, Intervals.of(np.array([-np.inf] * 2), np.array([np.inf] * 2), np.ones(2)))
        == 0.0
    )


def test_few_rows_lift_within_their_span(rng, complex_):
    V = gaussian_rows(rng, 3, 7, complex_)
    F, d, y = Sensing.of(V), np.array([2.0, 3.0, 5.0]), np.array([1.0, -1.0, 0.0])
    true = 2.0 * float(np.linalg.eigvalsh(V @ V.conj().T)[0])
    trace = float(np.linalg.norm(V)) ** 2
    found = p.floor_within_span(F, d, y)
    assert is_between(found, true - 2e3 * U * trace, true - 2 * 7 * U * trace)
    # F*(d) - found P is positive semidefinite, P onto the span.
    M = (V.T * d) @ V.conj()
    Q = np.linalg.qr(V.T)[0]
    assert np.linalg.eigvalsh(Q.conj().T @ M @ Q)[0] >= found
    assert p.floor_within_span(F, 0.0 * d, 0.0 * y) == 0.0
    assert p.floor_within_span(F, np.array([0.0, 1.0, 1.0]), y) == 0.0  # y leans on a row without
    assert p.floor_within_span(F, np.array([1.0, 1.0, 0.0]), y) > 0.0
    assert p.floor_within_span(Sensing.of(V[:, :2]), d, y) == 0.0  # dependent
    twice = Sensing.of(V[[0, 1, 1]])  # equal rows are taken once
    assert p.floor_within_span(twice, np.ones(3), y) == pytest.approx(
        float(np.linalg.eigvalsh(V[:2] @ V[:2].conj().T)[0]), rel=1e-9
    )
    assert p.floor_within_span(mixed(V, np.eye(3)), d, y) == 0.0


def test_more_rows_than_are_worth_it_lift_nothing(monkeypatch, rng):
    V = gaussian_rows(rng, 3, 7, False)
    monkeypatch.setattr(p, "MAX_GRAM_ROWS", 2)
    assert p.floor_within_span(Sensing.of(V), np.ones(3), np.ones(3)) == 0.0


# --- contradictions --------------------------------------------------------------------------


def certified(V, lo, hi, y, **more):
    F = V if isinstance(V, Sensing) else Sensing.of(np.array(V))
    lo, hi = np.array(lo, dtype=float), np.array(hi, dtype=float)
    return p.certify(F, Intervals.between(lo, hi), np.array(y, dtype=float), **more)


ONES = np.ones((2, 1))


def test_two_readings_of_one_row_contradict_each_other():
    found = certified(ONES, [0.0, 2.0], [1.0, 3.0], [4.0, -4.0])
    assert found.infeasible and found.trace_bound == math.inf
    assert is_between(found.lower_bound, 2.0 - 1e-12, 2.0)  # each missed by half a half-width
    assert 0.0 <= found.negative <= 1e-14


def test_a_reading_below_0_contradicts_positivity_alone():
    found = certified([[1.0]], [-3.0], [-1.0], [2.0])
    assert found.infeasible and found.negative == 0.0
    assert is_between(found.lower_bound, 2.0 - 1e-14, 2.0)


@pytest.mark.parametrize(
    ("lo", "hi", "y"),
    [
        ([0.0, 2.0], [1.0, 3.0], [-4.0, 4.0]),  # the wrong sign
        ([0.0, 0.5], [1.0, 3.0], [4.0, -4.0]),  # these fit
        ([0.0, 2.0], [1.0, 3.0], [0.0, 0.0]),
        ([0.0, 2.0], [1.0, 3.0], [np.nan, -np.inf]),
        ([0.0, -np.inf], [1.0, 3.0], [4.0, -4.0]),  # no such end
        ([-np.inf, -np.inf], [np.inf, np.inf], [4.0, -4.0]),
    ],
)
def test_what_does_not_follow_is_not_proved(lo, hi, y):
    found = certified(ONES, lo, hi, y)
    assert not found.infeasible
    assert found.lower_bound <= 1.0


def test_touching_intervals_contradict_nothing():
    found = certified(ONES, [0.0, 1.0], [1.0, 2.0], [1.0, -1.0])
    assert not found.infeasible
    assert is_between(found.lower_bound, 1.0 - 1e-12, 1.0)


def test_a_vector_that_is_nearly_enough_is_lifted_or_bounds_the_trace():
    e = 2.0**-20
    y = [1.0 - e, -1.0]
    found = certified(ONES, [0.0, 2.0], [1.0, 3.0], y)
    assert found.infeasible
    assert is_between(found.negative, e, e + 1e-13)
    # Lifted by e/2 on each row: F*(y) >= 0 again, and as little as that.
    assert 0.0 <= Fraction(found.y[0]) + Fraction(found.y[1]) <= 1e-13
    # (1 - e/2) of both readings: the lift changes nothing of the ratio.
    assert is_between(found.lower_bound, 2.0 - 1e-9, 2.0)
    held = certified(ONES, [0.0, 2.0], [1.0, 3.0], y, lift=False)
    assert not held.infeasible and held.lower_bound == 0.0
    # (1 - e) a1 - a2 <= -1 - e for readings inside, and -e tr A at least: tr A >= (1 + e)/e.
    assert is_between(held.trace_bound, (1.0 + e) / e * (1.0 - 1e-7), (1.0 + e) / e)
    known = certified(ONES, [0.0, 2.0], [1.0, 3.0], y, floor=2.0)
    assert known.infeasible
    less = certified(ONES, [0.0, 2.0], [1.0, 3.0], y, floor=1.0)  # twice as far
    np.testing.assert_allclose(less.y - y, 2.0 * (known.y - y), rtol=1e-6)


def test_a_lift_that_costs_more_than_the_margin_proves_nothing():
    found = certified(ONES, [0.0, 1.1], [1.0, 2.0], [1.0, -2.0])
    # y / 2 = (1/2, -1): F*(y) = -1/2, lifted by 1/4 each to (3/4, -3/4): 3/4 - 3.3/4 < 0.
    np.testing.assert_allclose(found.y, [0.75, -0.75])
    assert found.infeasible
    assert is_between(found.lower_bound, 1.0 + 0.075 / (0.75 * 0.95) - 1e-9, 1.1053)
    wide = certified(ONES, [0.0, 0.9], [1.0, 2.0], [1.0, -2.0])
    assert not wide.infeasible
    assert wide.trace_bound == pytest.approx(0.8)  # (1/2) 1 - .9 = -.4 over .5
    assert is_between(wide.lower_bound, 1.0 - 0.075 / (0.75 * 1.05) - 1e-9, 1.0 - 0.0952)


def test_where_no_lift_is_known_in_time_none_is_used(monkeypatch):
    def stop(*_):
        raise Stop

    monkeypatch.setattr(p, "lift_floor", stop)
    found = certified(ONES, [0.0, 2.0], [1.0, 3.0], [1.0 - 2.0**-20, -1.0])
    assert not found.infeasible and found.trace_bound > 1e6


def test_rows_that_do_not_span_are_lifted_within_their_span():
    V = np.array([[0.6, 0.8, 0.0], [0.6, 0.8, 0.0]])
    found = certified(V, [0.0, 2.0], [1.0, 3.0], [1.0 - 2.0**-20, -1.0])
    assert found.infeasible
    one = certified(V, [0.0, 2.0], [1.0, np.inf], [1.0 - 2.0**-20, -1.0])  # one may not be lifted
    assert not one.infeasible


def test_sums_are_lifted_with_what_rounds_in_them():
    F = mixed(np.eye(2), np.array([[1.0, 1.0], [1.0, 1.0]]))
    found = certified(F, [0.0, 2.0], [1.0, 3.0], [1.0 - 2.0**-20, -1.0])
    assert found.infeasible
    total = Fraction(found.y[0]) + Fraction(found.y[1])
    rounded = 8 * 2 * U * 2.0 * 2  # of the masses, 2 each, of y; by sigma, 2
    assert is_between(total, rounded / 4, 4 * rounded)


def test_bounds_are_true_of_random_vectors(rng, complex_):
    """What is proved to be missed is missed by the best fit of many, by exact support."""
    for _ in range(10):
        V = gaussian_rows(rng, 8, 2, complex_)
        X = gaussian_rows(rng, 2, 2, complex_)
        v = np.sum(np.abs(V.conj() @ X) ** 2, axis=1)
        unit = rng.uniform(0.1, 1.0, 8)
        lo, hi = v - unit, v + unit
        y = rng.standard_normal(8)
        found = certified(V, lo, hi, y)
        assert not found.infeasible
        assert found.lower_bound <= 1.0
        assert found.trace_bound <= float(np.linalg.norm(X)) ** 2


# --- lifts for objectives --------------------------------------------------------------------


def question(rows="within", m=2, **more):
    default = {"lo": -1.0, "hi": 1.0, "weights": 1.0, "reading": 0.0}
    arrays = {
        name: np.array(more.pop(name, np.full(m, value)), dtype=float)
        for name, value in default.items()
    }
    hard = np.array(more.pop("hard", np.zeros(m, bool)))
    return Question(rows, hard=hard, psd=True, **arrays, **more)


def is_positive_with(C, V, y, W=None):
    M = [list(row) for row in whole(*adjoint(V, y, W))]
    for i, row in enumerate(np.asarray(C)):
        for j, x in enumerate(row):
            M[i][j] += Fraction(float(x))
    return is_semidefinite(M)


def test_a_vector_is_lifted_as_far_as_it_must_be(rng):
    V = gaussian_rows(rng, 8, 3, False)
    y = rng.standard_normal(8)
    e = -least(V, y) + 1e-13
    found = list(p.lifted(Sensing.of(V), question(m=8), y, e))
    assert len(found) == 1
    assert is_semidefinite(whole(*adjoint(V, found[0])))
    step = e / float(np.linalg.eigvalsh(V.T @ V)[0])
    np.testing.assert_allclose(found[0] - y, step, rtol=1e-9)


def test_where_C_is_positive_a_smaller_vector_serves():
    V, y = np.eye(2), np.array([-3.0, 0.5])
    for C in (2.0, np.diag([2.0, 5.0])):
        q = question(C=C, rows="center", hi=[np.inf, np.inf])  # no row may grow
        (found,) = p.lifted(Sensing.of(V), q, y, 1.0)
        np.testing.assert_allclose(found, y * 2.0 / 3.0, rtol=1e-12)
        assert is_positive_with(C * np.eye(2) if isinstance(C, float) else C, V, found)
    one = question(C=-1.0, rows="center", hi=[np.inf, np.inf])
    assert list(p.lifted(Sensing.of(V), one, y, 1.0)) == []


def test_sums_are_lifted_along_one_that_is_fixed_or_all_or_the_flattest():
    W = np.array([[1.0, 1.0], [1.0, -1.0]])  # the trace, and a difference
    F, y = mixed(np.eye(2), W), np.array([-0.5, 0.25])
    fixed = question(hard=[True, False])
    found = list(p.lifted(F, fixed, y, 0.75))
    assert [np.round(each - y, 9).tolist() for each in found] == [[0.75, 0.0], [0.75, 0.0]]
    assert all(is_positive_with(np.zeros((2, 2)), np.eye(2), each, W) for each in found)
    free = question()
    assert [d.tolist() for d in p.directions(F, free)] == [[1.0, 0.0]]
    # Each of up to four that are fixed, and then all; of more, all at once.
    for count in (4, 5):
        many = mixed(np.eye(2), np.ones((count, 2)))
        found = [d.tolist() for d in p.directions(many, question(m=count, hard=[True] * count))]
        assert found == ([*np.eye(count).tolist()] if count == 4 else []) + [[1.0] * count]
    # Sums of either sign alone: the flattest of all remains.
    W = np.array([[2.0, -1.0], [-1.0, 2.0]])
    F = mixed(np.eye(2), W)
    assert list(p.directions(F, free)) == []
    (found,) = p.lifted(F, free, y, 1.25)
    np.testing.assert_allclose(found - y, [1.25, 1.25], rtol=1e-9)
    assert is_positive_with(np.zeros((2, 2)), np.eye(2), found, W)
    none = question(hi=[np.inf, np.inf])
    assert list(p.lifted(F, none, y, 1.25)) == []


def test_directions_are_those_that_no_missing_end_forbids():
    F = Sensing.of(np.eye(2))
    given = {"hi": [np.inf, 1.0]}
    assert [d.tolist() for d in p.directions(F, question(**given))] == [[0.0, 1.0]]
    # A square needs no end; a row of weight 0 does. What is counted comes first.
    squares = question("squares", weights=[1.0, 0.0], **given)
    assert [d.tolist() for d in p.directions(F, squares)] == [[1.0, 0.0], [1.0, 1.0]]
    held = question("squares", weights=[1.0, 1.0], hard=[True, False], **given)
    assert [d.tolist() for d in p.directions(F, held)] == [[0.0, 1.0]]
    idle = question("slack_sum", weights=[1.0, 0.0])
    assert [d.tolist() for d in p.directions(F, idle)] == [[1.0, 0.0]]
    above, below = p._allowed(question("squares", weights=[0.0, 1.0], lo=[-1.0, -np.inf], **given))
    assert above.tolist() == [False, True] and below.tolist() == [True, True]


def test_the_flattest_is_0_at_ends_that_are_missing():
    F = mixed(np.eye(2), np.array([[2.0, -1.0], [-1.0, -1.0]]))
    d = F.flat
    assert d[0] != 0.0 and d[1] != 0.0
    for sign in (1.0, -1.0):
        some = question(
            hi=np.where(sign * d > 0, np.inf, 1.0), lo=np.where(sign * d < 0, -np.inf, -1.0)
        )
        assert np.array_equal(p.flattest(F, some), d if sign < 0 else 0.0 * d)


def test_weights_of_slack_make_room_for_a_lift():
    V, y = np.eye(1)[[0, 0]], np.array([-1.0, 0.5])
    q = question("slack_sum", weights=[1.0, 0.6])
    (found,) = p.lifted(Sensing.of(V), q, y, 0.5)
    assert is_positive_with(np.zeros((1, 1)), V, found)
    assert np.all(np.abs(found) <= q.weights)
    # y/2 + 1/4 d would do; it is as large as the weights allow.
    np.testing.assert_allclose(found[0] + found[1], 0.0, atol=1e-12)
    assert found[1] >= 0.59
    linear = question("slack_sum", weights=[1.0, 0.6], C=-1.0)
    assert list(p.lifted(Sensing.of(V), linear, y, 0.5)) == []


def test_a_lift_beyond_float64_is_none():
    F, q = Sensing.of(np.eye(1)), question(m=1)
    with np.errstate(all="ignore"):
        assert p._along(F, q, np.array([-1.0]), np.ones(1), 1e-308, 1e10) is None
        assert p._along(F, q, np.array([-1.0]), np.ones(1), 1e-17, 1e-3) is None
        assert p._along(F, q, np.array([-1.0]), np.ones(1), 1.0, 1.0) is not None


def test_an_eigenvalue_of_C_is_bounded():
    F = Sensing.of(np.eye(2))
    assert p._least(question(C=-2.5), F) == -2.5
    C = np.array([[2.0, 1j], [-1j, 2.0]])
    assert p._least(question(C=C), F) == pytest.approx(2.0)  # real rows see its real part
    both = Sensing.of(np.eye(2) + 0j)
    assert is_between(p._least(question(C=C), both), 1.0 - 1e-12, 1.0)
