"""The parts of lower bounds on an objective, next to closed forms in sixty digits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from exact_matrices import is_between
from helpers import gaussian_rows

from quadsense import Measurements
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import objective as o
from quadsense.system.watch import Stop

INF = np.inf
U = 2.0**-53


@pytest.fixture(autouse=True)
def sixty_digits():
    with localcontext() as context, np.errstate(all="ignore"):
        context.prec = 60
        yield


def question(m=1, rows="within", **more):
    default = {"lo": -1.0, "hi": 1.0, "weights": 1.0, "reading": 0.0}
    arrays = {
        name: np.array(np.broadcast_to(more.pop(name, value), (m,)), float)
        for name, value in default.items()
    }
    hard = np.array(np.broadcast_to(more.pop("hard", False), (m,)), bool)
    return Question(rows, hard=hard, **arrays, **more)


def exact(x):
    return Decimal(float(x))


def least(t, p, alpha, *, psd=False, log_det=False):
    """``inf_a t a + alpha (a - p)^2 - log a`` over numbers, over a >= 0 where psd."""
    t, p, alpha = exact(t), exact(p), exact(alpha)
    if log_det:
        lean = t - 2 * alpha * p
        a = ((lean * lean + 8 * alpha).sqrt() - lean) / (4 * alpha) if alpha else 1 / t
        return t * a + alpha * (a - p) ** 2 - a.ln()
    a = p - t / (2 * alpha)
    a = max(a, Decimal(0)) if psd else a
    return t * a + alpha * (a - p) ** 2


T, P = np.array([3.0, -2.0, 0.1]), np.array([0.5, -1.0 / 3.0, 7.0])


@pytest.mark.parametrize("unit", [0, 3, -4])
@pytest.mark.parametrize("alpha", [1.0, 0.01, 50.0])
@pytest.mark.parametrize("more", [{}, {"psd": True}, {"psd": True, "log_det": True}], ids=str)
def test_the_infimum_is_rounded_down_and_by_little(unit, alpha, more, complex_):
    F = Sensing.of(np.eye(3) + (0j if complex_ else 0.0))
    for turned in (False, True):
        Q = np.eye(3) + 0j if complex_ else np.eye(3)
        if turned:
            Q = np.linalg.qr(gaussian_rows(np.random.default_rng(0), 3, 3, complex_))[0]
        M, prior = (Q * T) @ Q.conj().T, (Q * P) @ Q.conj().T
        q = question(alpha=alpha, prior=prior, **more)
        found = o._infimum(q, F, np.ldexp(1.0, -unit) * M, 1e-13 * turned, unit)
        true = sum(least(t, p, alpha, **more) for t, p in zip(T, P, strict=True))
        size = 100.0 * (1.0 + 1.0 / alpha + alpha) * (1.0 + math.ldexp(1.0, unit))
        assert is_between(
            Decimal(found) - true, -3e3 * U * size if not turned else -1e-10 * size, 0
        )
        plain = question(alpha=alpha, prior=0.5, **more)
        true = sum(least(t, 0.5, alpha, **more) for t in T)
        found = o._infimum(plain, F, np.ldexp(1.0, -unit) * np.diag(T) * (1 + 0 * Q), 0.0, unit)
        assert is_between(Decimal(found) - true, -3e3 * U * size, 0)


@pytest.mark.parametrize("unit", [0, 6, -6])
@pytest.mark.parametrize("more", [{}, {"psd": True}, {"psd": True, "log_det": True}], ids=str)
@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_the_infimum_holds_for_every_matrix_within_the_error(unit, more, alpha):
    """T is known up to its error alone: the worst of such matrices is not below the bound."""
    F, error = Sensing.of(np.eye(3)), 0.25
    true = []
    for way in ([1, 0, 0], [0, 1, 0], [0, 0, 1], [0.57, 0.57, 0.57], [0.6, -0.8, 0], [0, 0.6, 0.8]):
        for sign in (1.0, -1.0):
            moved = T + sign * error * np.array(way)
            pairs = zip(moved, P, strict=True)
            true.append(sum(least(t, p, alpha, **more) for t, p in pairs))
    q = question(alpha=alpha, prior=np.diag(P), **more)
    scale = math.ldexp(1.0, -unit)
    found = o._infimum(q, F, scale * np.diag(T), scale * error, unit)
    least_of_all = float(min(true))
    assert found <= least_of_all
    assert found >= least_of_all - 8.0 * (1.0 + 1.0 / alpha)


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 1.0])
def test_a_determinant_is_bounded_at_every_scale(alpha):
    root = math.sqrt(alpha)
    for value in (1e-200, 1e-8, 0.5, 3.0, 1e8, 1e200, *((-20 * root, -root, 0.0) if alpha else ())):
        true = least(value, 0.0, alpha, log_det=True)
        found = o._determinant_part(np.array([value]), alpha)
        size = 10.0 + abs(float(true)) + (value * value / alpha if alpha and value < 0 else 0.0)
        assert is_between(Decimal(found) - true, -100 * U * size, 0), value
    if alpha == 0.0:
        assert o._determinant_part(np.array([1.0, 0.0]), 0.0) == -INF
        assert o._determinant_part(np.array([1.0, -1.0]), 0.0) == -INF
    assert o._determinant_part(np.array([np.nan]), alpha) == -INF


def test_without_a_distance_it_is_nothing_where_T_is_positive():
    q = question(psd=True)
    for complex_ in (False, True):
        F = Sensing.of(np.eye(2) + (0j if complex_ else 0.0))
        M = np.diag([1.0, 0.5]) + (0j if complex_ else 0.0)
        assert o._infimum(q, F, M, 0.49, 0) == 0.0
        assert o._infimum(q, F, M, 0.51, 0) == -INF
        assert o._infimum(q, F, -M, 0.0, 0) == -INF
        # What a factorization in this arithmetic errs by: more for complex numbers.
        unit = 2 * U * (4 if complex_ else 1)
        tight = np.diag([1e6, 1e6 * 2 * 4 * unit * 0.9]) * (1 + 0 * M[0, 0])
        assert o._infimum(q, F, tight, 0.0, 0) == -INF
        assert o._infimum(q, F, 2.5 * tight + np.diag([-1.5e6, 0.0]), 0.0, 0) == 0.0


def test_numbers_are_rounded_outwards():
    for value, size in ((1.0, 0.0), (-3.0, 5.0), (0.0, 0.0), (1e300, 1e300)):
        found = o._down(value, size)
        assert is_between(Fraction(value) - Fraction(found), 3 * U * (abs(value) + size),
                          8 * U * (abs(value) + size) + 1e-299)  # fmt: skip
    assert o._down(-INF, 0.0) == -INF and o._down(INF, 0.0) == INF
    assert o._outwards(3.0, 0) == 3.0
    assert o._outwards(3.0, 2) > 12.0 and o._outwards(3.0, 2) < 12.0 * (1 + 1e-15)
    assert o._outwards(1.0, -1080) > 0.0
    assert o._shifted(3.0, -2) == 0.75 and o._shifted(1.0, 2000) == INF
    M = np.array([[1.0, 2.0 + 4.0j]])
    assert np.array_equal(o._ldexp(M, 3), 8.0 * M)
    assert np.array_equal(o._ldexp(M.real, -1), M.real / 2.0)


def test_the_unit_of_T_is_that_of_its_largest_part():
    F = Sensing.of(np.array([[2.0, 0.0], [0.0, 1.0]]))
    assert o._unit(F, question(2), np.array([1.0, -1.0])) == 3  # 4 = 2^3 / 2
    assert o._unit(F, question(2, C=-100.0), np.array([1.0, -1.0])) == 7
    assert o._unit(F, question(2, C=np.diag([0.0, -100.0])), np.zeros(2)) == 7
    assert o._unit(F, question(2), np.zeros(2)) == 0
    assert o._unit(F, question(2), np.array([INF, 0.0])) == 0


# --- whole bounds ----------------------------------------------------------------------------


def bound(U, q, y, size=1.0, **more):
    U = np.array(U, dtype=complex if np.iscomplexobj(U) else float)
    return o.objective_bound(Measurements(U, np.zeros(len(U))), q, np.array(y), size=size, **more)


@pytest.mark.parametrize("scale", [0, 150, -150])
def test_a_distance_of_long_rows_is_bounded_without_their_matrix(scale):
    """min alpha (a - p)^2 n where ``|u|^2 a`` is 3 at least: rows of four entries, n > m."""
    u = np.full((1, 4), 0.5)
    q = question(lo=3.0, hi=INF, alpha=math.ldexp(2.0, scale), prior=1.0)
    # A = I + t u u*: t = 2, the cost 2 t^2 = 8; y = -8.
    y = math.ldexp(-8.0, scale)
    for vector, true in ((y, 8.0), (0.5 * y, 6.0), (2.0 * y, 0.0), (-y, 0.0)):
        found = bound(u, q, [vector])
        assert found.condition == ""
        assert is_between(math.ldexp(found.value, -scale), true - 1e-12, true)


@pytest.mark.parametrize("psd", [False, True])
def test_a_distance_is_bounded_next_to_what_C_costs(psd):
    # a >= 2 of one number: min c a + alpha (a - p)^2, y = -(c + 2 alpha (2 - p))
    q = question(lo=2.0, hi=INF, C=np.array([[1.0]]), alpha=3.0, prior=np.array([[0.5]]), psd=psd)
    true = 2.0 + 3.0 * 1.5**2
    found = bound([[1.0]], q, [-10.0])
    assert is_between(found.value, true - 1e-12, true)
    less = bound([[1.0]], q, [-9.0])  # (y + 10)^2 / (4 alpha) less
    assert is_between(less.value, true - 1.0 / 12.0 - 1e-12, true - 1.0 / 12.0)


def test_a_distance_that_hardly_counts_is_left_out():
    """With alpha of 1e-20, an error of 1e-9 in y costs 25: a bound on A costs less."""
    V = np.array([[1.0], [1.0]])
    q = question(2, lo=[2.0, -INF], hi=[5.0, 5.0], C=np.array([[1.0]]), alpha=1e-20)
    found = bound(V, q, [-1.0 - 1e-9, 0.0], upper=2.0)
    assert is_between(found.value, 2.0 - 1e-7, 2.0)
    near = bound(V, q, [-1.0 - 1e-9, 0.0], upper=2.0, gap=100.0)  # near enough as it is
    assert near.value < -1.0


def test_symmetric_bounds_pay_for_what_does_not_vanish():
    # min a, a in [2, 5]: y = -1 is best, and what is missing of it costs up to 5 of it.
    q = question(lo=2.0, hi=5.0, C=1.0)
    assert is_between(bound([[1.0]], q, [-1.0]).value, 2.0 - 1e-13, 2.0)
    found = bound([[1.0]], q, [-0.5])
    assert found.condition == ""
    assert is_between(found.value, 1.0 - 0.5 * 8.0, 1.0 - 0.5 * 5.0)
    taken = bound([[1.0]], q, [-0.999], conditional=True)
    assert taken.condition == "among matrices of Frobenius norm up to 5e+06"
    assert is_between(taken.value, 1.998 - 5e3 - 1e-6, 1.998 - 5e3 + 1e-6)


def test_a_bound_on_the_norm_is_kept_for_the_same_data(monkeypatch):
    calls, kept = [], {}
    true = o.norm_bound
    monkeypatch.setattr(o, "norm_bound", lambda *a: calls.append(1) or true(*a))
    q = question(lo=2.0, hi=5.0, C=1.0)
    first = bound([[1.0]], q, [-0.5], kept=kept)
    assert bound([[1.0]], q, [-0.5], kept=kept) == first
    assert len(calls) == 1
    bound([[1.0]], q, [-0.5], kept=kept, upper=4.0)  # which may bound it better
    assert len(calls) == 2

    def stop(*_):
        raise Stop

    monkeypatch.setattr(o, "norm_bound", stop)
    assert "up to 5e+06" in bound([[1.0]], q, [-0.5]).condition


def test_positive_bounds_are_lifted_or_conditional(monkeypatch):
    q = question(2, lo=[2.0, 0.0], hi=[5.0, 1.0], C=np.eye(1), psd=True)
    V = np.array([[1.0], [0.5]])
    best = bound(V, q, [-1.0, 0.0])
    assert best.condition == "" and is_between(best.value, 2.0 - 1e-12, 2.0)
    # T = -1/8: lifted along both, by 1/10 each, which the upper ends cost.
    found = bound(V, q, [-1.125, 0.0])
    assert found.condition == ""
    step = 0.125 / 1.25
    true = 2.0 * (1.125 - step) - step
    smaller = 2.0 * 1.125 * (1.0 / 1.125)  # or y made smaller, as C is positive
    assert is_between(found.value, max(true, smaller) - 1e-9, 2.0)
    taken = bound(V, q, [-1.125, 0.0], conditional=True)
    assert taken.condition.startswith("among matrices of trace up to ")
    trace = float(taken.condition.rpartition(" ")[2])
    assert is_between(taken.value, 2.25 - 0.125 * trace * 1.01, 2.25 - 0.125 * trace * 0.99)

    def stop(*_):
        raise Stop

    monkeypatch.setattr(o, "lifted", stop)
    assert bound(V, q, [-1.125, 0.0]).condition == taken.condition


def test_sums_of_squares_need_no_factorization():
    """Rank one of order 3, and y not negative: T is semidefinite whatever rounding says."""
    V = np.array([[1.0, 1.0 / 3.0, 1.0 / 7.0]])
    q = question(lo=-INF, hi=2.0, psd=True)
    found = bound(V, q, [3.0])
    assert found.condition == "" and found.value == 0.0
    C = question(lo=-INF, hi=2.0, C=1e-300, psd=True)
    assert bound(V, C, [1.0]).value == 0.0
    negative = question(lo=-INF, hi=2.0, C=-1.0, psd=True)
    assert bound(V, negative, [1.0]).condition != ""


def test_columns_that_nothing_sees_are_left_out():
    V = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    C = np.diag([1.0, 0.0, 0.0])
    case = o.asked(Measurements(V, np.zeros(2)), question(2, C=C), np.zeros(2))
    assert case.seen.tolist() == [True, False, False] and case.F.n == 1
    assert case.question.C.tolist() == [[1.0]]
    free = o.asked(Measurements(V, np.zeros(2)), question(2), np.zeros(2))
    assert free.seen.tolist() == [True, False, False] and free.F.n == 1
    both = o.asked(Measurements(V, np.zeros(2)), question(2, C=np.diag([0, 0, 2.0])), np.zeros(2))
    assert both.seen.tolist() == [True, False, True]
    for more in ({"alpha": 1.0}, {"C": 1.0}, {"log_det": True, "psd": True}):
        whole = o.asked(Measurements(V, np.zeros(2)), question(2, **more), np.zeros(2))
        assert whole.seen.all()
    none = o.asked(Measurements(0.0 * V, np.zeros(2)), question(2), np.zeros(2))
    assert none.seen.all()
    # A norm is then one of what is seen: 5, and 1 is not lost to 1e6 of it.
    found = bound(V, question(2, lo=2.0, hi=5.0, C=C), [-0.999, 0.0])
    assert found.condition == ""
    assert is_between(found.value, 1.998 - 0.001 * 8.0, 1.998 - 0.001 * 5.0)


@pytest.mark.parametrize("power", [300, -300])
def test_weights_far_from_1_are_in_units_of_their_own(power):
    # min w (a - 3)^2, a at most 1: 4 w, y = 2 w (1 - 3) + z = 0 with z = 4 w at the end.
    w = math.ldexp(1.0, 2 * power)
    q = question(2, rows="squares", lo=-INF, hi=[INF, 1.0], weights=[w, 0.0], reading=[3.0, 0.0])
    found = bound([[1.0], [1.0]], q, [-4.0 * w, 4.0 * w])
    assert is_between(math.ldexp(found.value, -2 * power), 4.0 - 1e-11, 4.0)
    case = o.asked(Measurements(np.ones((2, 1)), np.zeros(2)), q, np.array([-4.0 * w, 4.0 * w]))
    assert case.unit == 2 * power + 1
    np.testing.assert_allclose(case.y, [-2.0, 2.0])
    both = question(rows="squares", weights=[w], alpha=3.0 * w, C=5.0 * w)
    case = o.asked(Measurements(np.ones((1, 1)), np.zeros(1)), both, np.zeros(1))
    assert (case.question.alpha, case.question.C) == (1.5, 2.5)
    matrix = question(rows="squares", weights=[w], C=np.array([[5.0 * w]]))
    case = o.asked(Measurements(np.ones((1, 1)), np.zeros(1)), matrix, np.zeros(1))
    assert case.question.C.tolist() == [[2.5]]
    # Where C would leave the range, all is left as it is.
    for away, unit in ((200, 2 * power + 1), (400, 0)):
        C = math.ldexp(1.0, away if power < 0 else -away)
        apart = question(rows="squares", weights=[w], C=C)
        assert o.asked(Measurements(np.ones((1, 1)), np.zeros(1)), apart, np.zeros(1)).unit == unit


@pytest.mark.parametrize("size", [1.0, 2.0**40])
def test_centers_gain_the_logarithms_of_their_units(size):
    """min -log(b - a s) - log(a s - c), s the square of the row: the same whatever the row."""
    q = question(rows="center", lo=1.0 * size**2, hi=3.0 * size**2)
    found = bound([[size]], q, [0.0])
    true = -2.0 * math.log(size**2)
    assert is_between(found.value, true - 1e-12, true)


def test_rows_of_zeros_count_as_they_read():
    V = np.array([[1.0], [0.0]])
    q = question(2, rows="slack_max", lo=[0.0, 2.0], hi=[1.0, 3.0], weights=[1.0, 3.0])
    assert is_between(bound(V, q, [0.0, 0.0]).value, 6.0 - 1e-14, 6.0)
    hard = question(2, rows="slack_max", lo=[0.0, 2.0], hi=[1.0, 3.0], hard=[False, True])
    assert bound(V, hard, [0.0, 0.0]).value == INF
    fits = question(2, lo=[0.0, -2.0], hi=[1.0, 3.0])
    assert bound(V, fits, [0.0, 0.0]).value == 0.0
    negative = question(2, lo=[0.0, -4.0], hi=[1.0, -1.0])
    assert bound(V, negative, [0.0, 0.0]).value == INF
    seen = question(2, lo=[5.0, 5.0], hi=[6.0, 6.0])
    assert bound([[1.0], [1.0]], seen, [0.0, 0.0]).value == 0.0


@pytest.mark.parametrize(
    ("more", "floor"),
    [
        ({}, 0.0),
        ({"C": 1.0}, -INF),
        ({"C": 1.0, "psd": True}, 0.0),
        ({"C": -1.0, "psd": True}, -INF),
        ({"C": np.eye(1)}, -INF),
        ({"rows": "center"}, -INF),
        ({"rows": "squares"}, 0.0),
        ({"log_det": True, "psd": True}, -INF),
    ],
)
def test_what_cannot_be_negative_is_0_at_least(more, floor):
    found = bound([[1.0]], question(**more), [np.nan])
    assert found.value >= floor
    given = Measurements(np.eye(1), np.zeros(1))
    assert o._floor(given, question(**more)) == floor


def test_no_bound_is_above_what_is_known():
    q = question(lo=2.0, hi=5.0, C=1.0)
    assert bound([[1.0]], q, [-1.0], upper=1.5).value == 1.5


@pytest.mark.parametrize("psd", [False, True])
def test_the_quick_bound_is_as_good_as_the_slow_one(psd, rng):
    """Of C and a distance, real and complex rows: what one product loses is some roundings."""
    for complex_ in (False, True):
        V = gaussian_rows(rng, 6, 2, complex_)
        M = gaussian_rows(rng, 2, 2, complex_)
        C = M + M.conj().T
        q = question(6, alpha=0.7, prior=np.eye(2), C=C, psd=psd)
        case = o.asked(Measurements(V, np.zeros(6)), q, rng.standard_normal(6))
        rows = case.rows_above(case.y)
        quick = o._quick_bound(case, rows, o._unit(case.F, case.question, case.y))
        slow = o._infimum(q, case.F, (V.T * case.y) @ V.conj() + C, 0.0, 0) - rows
        assert quick == pytest.approx(slow, abs=1e-11)


def test_every_part_of_a_determinant_counts_in_its_rounding(monkeypatch):
    for value, alpha in ((-20.0, 1.0), (3.0, 0.5), (1e-3, 100.0), (50.0, 0.0), (1e-9, 0.0)):
        before = o._determinant_part(np.array([value]), alpha)
        monkeypatch.setattr(o, "ROUNDINGS", 2.0**-10)
        lost = (before - o._determinant_part(np.array([value]), alpha)) * 2.0**9
        monkeypatch.undo()
        root = math.sqrt(value * value + 8.0 * alpha)
        r = (root - value) / (4.0 * alpha) if alpha else 0.0
        slope = value + 2.0 * alpha * r
        parts = 1.0 + abs(math.log(slope)) + alpha * r * r
        lean = (abs(value) + 2.0 * alpha * r) / slope if alpha else 0.0
        assert lost == pytest.approx(parts + lean, rel=1e-6)


def test_a_norm_that_is_kept_for_a_C_of_0_is_no_other():
    """Of rows that do not see all of A: what is 0 without C is unbounded with it."""
    V, kept = np.array([[1.0, 0.0], [0.6, 0.8]]), {}
    y = [-0.5, 0.0]
    free = bound(V, question(2), y, kept=kept)
    assert free.condition == ""
    for C in (1.0, np.array([[1.0, 0.5], [0.5, 1.0]])):
        assert bound(V, question(2, C=C), y, kept=kept).condition != ""
    again = bound(V, question(2), y, kept=kept)
    assert again == free


@pytest.mark.parametrize("name", ["ROUNDINGS", "OF_ERRORS"])
def test_the_distance_outside_of_the_cone_is_rounded_down(monkeypatch, name):
    """G = P - T/(2 alpha) is -2: its distance counts, without what rounding may add to it."""
    F, q = Sensing.of(np.eye(1)), question(alpha=1.0, prior=-1.0, psd=True)
    coarse = {"ROUNDINGS": 2.0**-20, "OF_ERRORS": 1.0 + 2.0**-10}[name]
    error = 0.0 if name == "ROUNDINGS" else 2.0**-10
    monkeypatch.setattr(o, "_down", lambda value, _: value)  # which counts what comes after
    before = o._infimum(q, F, np.array([[2.0]]), error, 0)
    monkeypatch.setattr(o, name, coarse)
    after = o._infimum(q, F, np.array([[2.0]]), error, 0)
    # distance 2: of |P| + |T|/2 = 2 by its roundings, of |T|/2 by the error; squared, twice 2 of it
    least = 2.0 * 2.0 * 2.0 * 2.0**-20 if name == "ROUNDINGS" else 2.0 * 2.0 * 0.5 * 2.0**-20
    assert before - after >= 0.999 * least


def test_coordinates_that_C_alone_has_are_kept():
    V, C = np.array([[1.0, 0.0, 0.0]]), np.zeros((3, 3))
    C[1, 2] = C[2, 1] = 1.0  # on no diagonal
    case = o.asked(Measurements(V, np.zeros(1)), question(C=C), np.zeros(1))
    assert case.seen.all()
    C = np.zeros((3, 3))
    C[0, 1] = C[1, 0] = -1.0
    case = o.asked(Measurements(V, np.zeros(1)), question(C=C), np.zeros(1))
    assert case.seen.tolist() == [True, True, False]
