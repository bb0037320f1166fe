"""Contradictions among the user's data, bounds on the worst error, hitting sets, small supports."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from exact_matrices import is_between
from helpers import gaussian_rows
from scipy.optimize import linprog

import quadsense
from quadsense import Measurements
from quadsense.core.intervals import Intervals
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import infeasible as inf
from quadsense.proofs import symmetric
from quadsense.system.watch import Stop

SAME = np.array([[2.0], [2.0]])
"""Two rows alike: readings 4 a."""


def data(lo, hi, U=SAME, **more):
    return Measurements(U, bounds=(np.array(lo, float), np.array(hi, float)), **more)


# --- contradictions --------------------------------------------------------------------------


def test_dual_vectors_of_unit_rows_become_those_of_the_users_rows():
    U = np.array([[3.0, 4.0], [0.0, 0.0], [1e-200, 0.0]])
    found = inf.user_dual(Measurements(U, np.zeros(3)), np.array([50.0, 7.0, 1.0]))
    np.testing.assert_allclose(found, [2.0, 7.0, np.inf])
    plain = Measurements(U[:1], np.zeros(1))
    assert inf.user_dual(plain, np.array([50.0])).tolist() == [2.0]


def test_rows_are_scaled_by_powers_of_two_and_zeros_read_zero():
    U = np.array([[1e40, 0.0], [0.0, 0.0], [0.0, 3e-30]])
    given = data([1.0, -1.0, 2.0], [3.0, 5.0, 7.0], U)
    exact = inf.exactly(given, np.array([1.0, 2.0, 3.0]))
    V = np.asarray(exact.F.take_unit(np.arange(3)))
    powers = [0, 2]
    for i in powers:
        power = exact.ends.above[i] / given.ends.above[i]
        assert math.frexp(power)[0] == 0.5
        assert np.array_equal(V[i], U[i] * math.sqrt(power))
        assert exact.y[i] == [1.0, 2.0, 3.0][i] / power
        assert 1 / 16 <= np.linalg.norm(V[i]) <= 16
    assert exact.y[1] == 0.0
    assert (exact.ends.below[1], exact.ends.above[1]) == (0.0, 0.0)
    other = inf.exactly(given, np.ones(3), given.ends.shifted(np.array([1, 1, 1])))
    assert np.array_equal(other.ends.above * 4.0, exact.ends.above)
    some = exact.on(np.array([2]))
    assert some.F.m == 1 and some.y.tolist() == [exact.y[2]]
    assert some.ends.above.tolist() == [exact.ends.above[2]]


@pytest.mark.parametrize("psd", [False, True])
def test_a_contradiction_of_two_rows_is_proved(psd):
    y = np.array([1.0, -1.0]) * (1.0 if psd else -1.0)
    found = inf.check_infeasible(data([0.0, 2.0], [1.0, 3.0]), y, psd)
    assert found.proved and found.unconditional and found.condition == ""
    assert is_between(found.lower_bound, 2.0 - 1e-11, 2.0)
    wrong = inf.check_infeasible(data([0.0, 2.0], [1.0, 3.0]), -y, psd)
    assert not wrong.proved and "up to" in wrong.condition
    assert wrong.lower_bound <= 1.0
    fits = inf.check_infeasible(data([0.0, 0.5], [1.0, 3.0]), y, psd)
    assert not fits.proved


def test_what_is_proved_up_to_a_norm_says_so():
    y = np.array([-1.0, 1.0 + 2.0**-30])
    found = inf.check_infeasible(data([0.0, 2.0], [1.0, 3.0]), y, False, conditional=True)
    assert found.proved and not found.unconditional
    assert found.condition.startswith("among matrices of Frobenius norm up to")
    assert found.lower_bound >= 1.0
    positive = inf.check_infeasible(data([0.0, 2.0], [1.0, 3.0]), -y, True, conditional=True)
    assert positive.proved and not positive.unconditional
    assert positive.condition == "among matrices of trace up to 5e+05"  # 1e6 of 2/4
    assert positive.lower_bound == 1.0
    loose = np.array([1.0, -1.0 - 2.0**-10])
    found = inf.check_infeasible(data([0.0, 2.0], [1.0, 3.0]), loose, True, conditional=True)
    assert not found.proved and found.lower_bound == 0.0


def test_a_row_of_zeros_that_must_not_read_zero_is_a_contradiction_by_itself():
    given = data([0.0, 2.0], [1.0, 3.0], np.array([[1.0], [0.0]]))
    found = inf.check_infeasible(given, np.array([0.0, 1.0]), False)
    assert (found.proved, found.unconditional, found.condition) == (True, True, "")
    assert found.lower_bound == 5.0  # 0 is five half-widths from the middle
    assert not inf.check_infeasible(given, np.array([1.0, 0.0]), False).proved


def test_rows_that_the_vector_does_not_lean_on_have_a_say_only_if_asked():
    # The first two contradict each other where A is small, which only the third bounds.
    y = np.array([-1.0, 1.0 + 2.0**-18, 0.0])
    U = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    given = data([0.0, 2.0, 7.0], [1.0, 3.0, 9.0], U)
    alone = inf.check_infeasible(given, y, False, alone=True)
    assert "up to 5e+05" in alone.condition
    together = inf.check_infeasible(given, y, False)
    assert "up to 7e+06" in together.condition  # the third asks for 7, the others for 1/2


def test_hard_rows_may_not_be_missed_at_all():
    given = data([0.0, 2.0], [1.0, 3.0])
    y = np.array([-1.0, 1.0])
    exact = inf.exactly(given, y)
    free = inf.check_exactly(exact, False, np.array([False, False]))
    one = inf.check_exactly(exact, False, np.array([True, False]))
    both = inf.check_exactly(exact, False, np.array([True, True]))
    assert is_between(free.lower_bound, 2.0 - 1e-12, 2.0)
    assert is_between(one.lower_bound, 3.0 - 1e-12, 3.0)  # all of the miss is that of the second
    assert is_between(both.lower_bound, 2.0 - 1e-12, 2.0)


@pytest.mark.parametrize("psd", [False, True])
def test_the_least_miss_is_in_units_of_the_readings(psd):
    y = np.array([1.0, -1.0]) * (1.0 if psd else -1.0)
    found = inf.least_miss(data([0.0, 2.0], [1.0, 30.0]), y, psd, 0.25)
    # 1 lies between the intervals: one of them is missed by half of it.
    assert is_between((found.lower_bound - 1.0) * 0.25, 0.5 - 1e-11, 0.5)


def test_a_vector_at_hand_is_not_checked_again(monkeypatch):
    calls = []
    true = inf.check_infeasible
    monkeypatch.setattr(inf, "check_infeasible", lambda *a: calls.append(1) or true(*a))
    prover, y = inf.Prover(data([0.0, 2.0], [1.0, 3.0]), False), np.array([-1.0, 1.0])
    assert prover(y).proved and prover(y.copy()).proved
    assert len(calls) == 1
    y *= -1.0  # the caller's own array
    assert not prover(y).proved
    assert len(calls) == 2


def test_a_conflict_is_spread_over_all_rows():
    found = inf.Conflict(np.array([3, 1]), np.array([2.0, -1.0]), True).spread(5)
    assert found.tolist() == [0.0, -1.0, 0.0, 2.0, 0.0]


# --- bounds on the worst error ---------------------------------------------------------------


def errors(U, b, delta):
    return Measurements(np.array(U, float), np.array(b, float), delta=np.array(delta, float))


@pytest.mark.parametrize("psd", [False, True])
def test_the_best_worst_error_of_one_number_is_that_of_a_linear_program(rng, psd):
    U = rng.uniform(0.5, 2.0, (5, 1))
    b, delta = rng.standard_normal(5) + (0.0 if not psd else 1.0), rng.uniform(0.1, 1.0, 5)
    f = U[:, 0] ** 2
    # min t, |f a - b| <= t delta
    A = np.block([[f[:, None], -delta[:, None]], [-f[:, None], -delta[:, None]]])
    solved = linprog([0, 1], A, np.concatenate([b, -b]), bounds=[(0 if psd else None, None)] * 2)
    mu = -solved.ineqlin.marginals
    y = mu[:5] - mu[5:]  # F*(y) = 0 (>= 0)
    for vector, tight in ((y, 1e-6), (y * (1.0 + 1e-5 * rng.standard_normal(5)), 1e-2)):
        bound, condition = inf.best_error_bound(
            errors(U, b, delta), vector if psd else -vector, 1.1 * solved.fun, psd, 1.0
        )
        assert condition == ""
        assert is_between(bound, solved.fun * (1.0 - tight), solved.fun * (1.0 + 1e-12))
    none, _ = inf.best_error_bound(errors(U, b, delta), -y if psd else y, solved.fun, psd, 1.0)
    assert none == 0.0


def test_a_zero_row_has_an_error_of_its_own_and_no_vector_no_other():
    given = errors([[1.0], [0.0]], [1.0, 6.0], [1.0, 2.0])
    for y in (np.zeros(2), np.full(2, np.nan), np.array([1.0, 1.0]), np.array([1e-9, 0.0])):
        for psd in (False, True):
            assert inf.best_error_bound(given, y, 4.0, psd, 1.0) == (3.0, "")


@pytest.mark.parametrize("psd", [False, True])
def test_where_the_norm_is_taken_for_granted_it_is_said(psd):
    # Two rows nearly alike see a difference of 2^-26 only, and nothing of the second coordinate.
    U = np.array([[1.0, 0.0], [1.0, 2.0**-26]])
    given = errors(U, [0.0, 4.0], [1.0, 1.0])
    y = np.array([1.0, -1.0]) if psd else np.array([-1.0, 1.0])
    bound, condition = inf.best_error_bound(given, y, 2.1, psd, 1.0)
    kind = "trace" if psd else "Frobenius norm"
    # A million times 4 - 2.1, which the narrowest allows at most; twice that of order 2.
    assert condition.startswith(f"among matrices of {kind} up to ")
    norm = float(condition.rpartition(" ")[2])
    away = math.sqrt(2.0) * 2.0**-26 if not psd else 2.0**-26 * (1.0 + 2.0**-26)
    true = 2.0 - 0.5 * away * norm
    assert is_between(bound, true - 0.02, 2.0)
    assert is_between(norm, 1e6, 1.3e7)
    larger = inf.best_error_bound(given, y, 2.1, psd, 1e7)
    assert float(larger[1].rpartition(" ")[2] if larger[1] else 2e8) >= 1e8
    assert larger[0] == 0.0 or larger[0] <= bound


def test_a_bound_on_the_norm_is_not_looked_for_where_it_may_not_be(monkeypatch):
    given, y = errors(SAME, [0.0, 4.0], [1.0, 1.0]), np.array([-1.0, 1.0 + 2.0**-30])
    bound, condition = inf.best_error_bound(given, y, 2.1, False, 1.0)
    assert condition == "" and is_between(bound, 2.0 - 1e-6, 2.0 + 1e-8)
    assert inf.best_error_bound(given, y, 2.1, False, 1.0, conditional=True)[1] != ""

    def stop(*_):
        raise Stop

    monkeypatch.setattr(symmetric, "norm_within", stop)
    assert "up to" in inf.best_error_bound(given, y, 2.1, False, 1.0)[1]


@pytest.mark.parametrize("psd", [False, True])
def test_missing_readings_and_one_sided_rows_count_for_nothing(psd):
    b = [0.0, np.nan, 4.0, np.nan]
    given = Measurements(np.vstack([SAME, SAME]), b, missing="drop").without_tolerance()
    assert given.ends.unit.tolist() == [1.0] * 4
    y = np.array([1.0, 5.0, -1.0, -3.0]) * (1.0 if psd else -1.0)
    bound, _ = inf.best_error_bound(given, y, 2.1, psd, 1.0)
    assert is_between(bound, 2.0 - 1e-9, 2.0)
    one = data([0.0, 2.0], [1.0, np.inf])
    assert inf.best_error_bound(one, y[:2], 2.0, psd, 1.0) == (0.0, "")


# --- hitting sets ----------------------------------------------------------------------------


def fewest(supports):
    """Size of the smallest hitting set, and the most supports that one of that size shares."""
    m = supports.shape[1]
    for size in range(m + 1):
        sets = [s for s in combinations(range(m), size) if supports[:, s].any(axis=1).all()]
        if sets:
            return size, max(int(supports[:, s].sum()) for s in sets)
    return None


@pytest.mark.parametrize("search", ["sets", "branch and bound"])
@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_hitting_set_is_that_of_all_subsets(monkeypatch, search, seed):
    if search == "sets":
        monkeypatch.setattr(inf, "_by_branch_and_bound", lambda _: None)  # is not asked
    else:
        monkeypatch.setattr(inf, "MOST_TRIED", 0)
    rng = np.random.default_rng(seed)
    for _ in range(12):
        supports = rng.random((int(rng.integers(1, 7)), 8)) < rng.uniform(0.15, 0.6)
        supports[~supports.any(axis=1), 0] = True
        found = inf.smallest_hitting_set(list(supports))
        size, share = fewest(supports)
        assert supports[:, found].any(axis=1).all()
        assert found.size == size
        assert list(found) == sorted(found)
        assert int(supports[:, found].sum()) == share


def test_no_proof_needs_no_row_and_one_of_nothing_cannot_be_hit():
    assert inf.smallest_hitting_set([]).size == 0
    assert inf.cannot_be_hit([np.array([True]), np.array([False])])
    assert not inf.cannot_be_hit([np.array([True, False])])
    assert not inf.cannot_be_hit([])


def test_what_cannot_be_hit_has_no_hitting_set():
    empty = [np.array([True, False]), np.array([False, False])]
    assert inf._HittingSearch(np.array(empty)).fewest() is None
    assert inf.smallest_hitting_set(empty) is None


@pytest.mark.parametrize("nodes", range(2, 40, 3))
def test_a_search_is_right_or_given_up_wherever_it_ends(monkeypatch, nodes):
    rng = np.random.default_rng(1)
    supports = rng.random((5, 9)) < 0.4
    monkeypatch.setattr(inf, "MOST_TRIED", nodes)
    found = inf._HittingSearch(supports).fewest()
    assert found is None or found.size == fewest(supports)[0]
    assert nodes < 30 or found is not None


def test_a_search_that_takes_too_long_is_given_up(monkeypatch):
    rng = np.random.default_rng(0)
    supports = rng.random((30, 40)) < 0.12
    supports[~supports.any(axis=1), 0] = True
    monkeypatch.setattr(inf, "MOST_TRIED", 3)
    monkeypatch.setattr(inf, "MOST_NODES", 0)
    assert inf._HittingSearch(supports).fewest() is None
    found = inf.smallest_hitting_set(list(supports))
    assert found is None or supports[:, found].any(axis=1).all()
    assert inf._disjoint([0b011, 0b110, 0b1000]) == 2
    assert inf._disjoint([]) == 0


# --- small supports --------------------------------------------------------------------------


def contradiction(rng, m, n, psd, complex_=False):
    """Rows, intervals and a dense y that proves that nothing fits."""
    V = gaussian_rows(rng, m, n, complex_)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    y = rng.standard_normal(m)
    M = np.array([np.outer(v, v.conj()).ravel() for v in V]).T
    M = np.vstack([M.real, M.imag])
    y -= np.linalg.pinv(M) @ (M @ y)
    v = -y if psd else y  # readings along which the margin is positive
    ends = Intervals.around(v, 0.2 * np.abs(v))
    return Sensing.of(V), ends, y


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_proof_of_few_rows_proves_as_much(seed, psd, complex_):
    rng = np.random.default_rng([seed, psd, complex_])
    F, ends, y = contradiction(rng, 16, 2, psd, complex_)
    hard = np.zeros(16, bool)
    before = inf.check_exactly(inf.Exact(F, ends, y), psd, hard)
    thin = inf.thinned(F, ends, y, psd)
    after = inf.check_exactly(inf.Exact(F, ends, thin), psd, hard)
    assert np.count_nonzero(thin) <= F.unknowns + 1 < 16
    assert before.proved and after.proved
    change = F.adjoint(thin / np.abs(thin).max())
    assert np.abs(change).max() <= 1e-9

    def margin(values):
        used = np.where(values > 0, -ends.hi, -ends.lo) if psd else np.where(
            values > 0, ends.lo, ends.hi)  # fmt: skip
        return float(used @ values)

    direction = np.linalg.norm(thin) == pytest.approx(1.0, rel=1e-12)  # a proof by itself
    assert direction or margin(thin) >= margin(y / np.abs(y).max()) * (1.0 - 1e-9)
    assert margin(thin) > 0.0


def test_a_proof_that_is_thin_or_costs_too_much_is_left(monkeypatch):
    F, ends, y = contradiction(np.random.default_rng(0), 16, 2, False)
    thin = inf.thinned(F, ends, y, False)
    assert inf.thinned(F, ends, thin, False) is thin
    monkeypatch.setattr(inf, "MOST_WORK", 1.0)
    assert inf.thinned(F, ends, y, False) is y


def test_a_direction_that_is_a_proof_by_itself_is_one():
    """Rows alike: along (1, -1) no entry shrinks, and the margin grows without end."""
    F = Sensing.of(np.ones((4, 1)))
    ends = Intervals.between(np.array([0.0, 5.0, 1.0, 1.0]), np.array([1.0, 6.0, 2.0, 2.0]))
    y = np.array([-1e-3, 1e-3, 1.0, -1.0])
    found = inf.thinned(F, ends, y, False)
    assert np.count_nonzero(found) == 2
    assert found[0] < 0 < found[1]
    assert found[0] + found[1] == pytest.approx(0.0, abs=1e-12)
    check = inf.check_exactly(inf.Exact(F, ends, found), False, np.zeros(4, bool))
    assert check.proved and is_between(check.lower_bound, 5.0 - 1e-9, 5.0)


def test_a_direction_of_no_gain_is_followed_the_other_way():
    """Alike and equal: the margin is level along (1, -1), and one way an entry shrinks."""
    F = Sensing.of(np.ones((3, 1)))
    ends = Intervals.between(np.zeros(3), np.zeros(3))
    for y in (np.array([1e-3, -2e-3, 1.0]), np.array([-1e-3, 2e-3, 1.0])):
        found = inf.thinned(F, replace(ends, unit=np.ones(3)), y, False)
        assert np.count_nonzero(found) <= 2
        assert np.all(found * y >= 0.0)  # no sign changes on the way
        assert float(np.sum(found)) == pytest.approx(float(np.sum(y)))


def test_the_whole_of_it_from_a_solve():
    """A contradiction that `solve` finds is proved by its vector, in fractions."""
    U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    b = np.array([1.0, 1.0, 2.0, 3.0])  # the last two add up to twice the first two: 4, not 5
    result = quadsense.solve(U, b, delta=0.1)
    assert result.status == "infeasible"
    y = [Fraction(float(each)) for each in result.certificate.dual]
    gain = sum(t * Fraction(float(r)) for t, r in zip(y, b, strict=True))
    cost = sum(abs(t) for t in y) * Fraction(0.1)
    assert gain > cost
    assert is_between(result.certificate.lower_bound, 1.66, 5.0 / 3.0)
