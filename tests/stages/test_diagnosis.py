"""What is said where nothing fits: the smallest miss, few rows in conflict, what to do next."""

import cvxpy as cp
import numpy as np
import pytest
from conflict_cases import planted

import quadsense

ANCHORS = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 8.0], [0.0, 8.0]])
BLOCK = [
    (np.diag([0.0, 1.0, 0.0]), 1.0, 1.0),
    (np.diag([0.0, 0.0, 1.0]), 1.0, 1.0),
    (np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.5], [0.0, 0.5, 0.0]]), 0.0, 0.0),
]
"""That the coordinates of the lifted position are those of the plane."""


def wrong_reading(**options):
    """README's first example with one wrong reading."""
    p = quadsense.datasets.gaussian(n=5, m=1000, seed=0)
    b = p.b.round(1)
    b[17] += 0.2
    return quadsense.solve(p.U, b, delta=0.05, **options), p.U, b


def ranges(place, wrong, error=0.065):
    """Ranges of four anchors at the corners of a rectangle, one of them 1 m too long."""
    r = np.hypot(*(ANCHORS - place).T)
    r[wrong] += 1.0
    lo, hi = np.maximum(r - error, 0.0) ** 2, (r + error) ** 2
    return np.column_stack([np.ones(4), -ANCHORS]), lo, hi


def smallest(p, members):
    """Return the least relative miss of those rows and constraints, by Clarabel."""
    n, m = p.U.shape[1], len(p.U)
    fixed = [(np.eye(n), p.asked["trace"], p.asked["trace"])] if "trace" in p.asked else []
    fixed += p.asked.get("constraints", [])
    A, t, asked = cp.Variable((n, n), PSD=True), cp.Variable(), []
    for k in members:
        C, lo, hi = fixed[k - m] if k >= m else (np.outer(p.U[k], p.U[k]), None, None)
        lo, hi = (p.b[k] - p.delta[k], p.b[k] + p.delta[k]) if lo is None else (lo, hi)
        room = t * max(abs(lo), abs(hi))
        asked += [cp.trace(C @ A) >= lo - room, cp.trace(C @ A) <= hi + room]
    problem = cp.Problem(cp.Minimize(t), asked)
    problem.solve(solver=cp.CLARABEL)
    return problem.value


def test_the_wrong_reading_of_the_readme_is_named_over_the_cone_too():
    result, U, b = wrong_reading(psd=True)
    claim, verdict = result.certificate, result.verdict
    assert result.suspects[0] == 17 and verdict.irreducible
    assert claim.upper_bound <= 1.01 * claim.lower_bound
    A, t = cp.Variable((5, 5), PSD=True), cp.Variable()
    reads = cp.sum(cp.multiply(U @ A, U), axis=1)
    best = cp.Problem(cp.Minimize(t), [cp.abs(reads - b) <= 0.05 * t])
    best.solve(solver=cp.CLARABEL)
    assert claim.lower_bound <= best.value * (1 + 1e-6) and best.value <= claim.upper_bound
    assert "delta = 0.137 can be met, 0.136 cannot; without row 17 all others" in result.message
    assert quadsense.solve(U, b, delta=0.137, psd=True)
    rest = np.delete(np.arange(1000), 17)
    assert quadsense.solve(U[rest], b[rest], delta=0.05, psd=True, prefer="any")


@pytest.mark.parametrize("wrong", range(4))
def test_of_four_anchors_all_are_in_conflict_and_nothing_else(wrong):
    # r0^2 + r2^2 = r1^2 + r3^2 at the corners of a rectangle: one miss of each is the smallest.
    U, lo, hi = ranges(np.array([6.0, 5.0]), wrong)
    result = quadsense.solve(U, bounds=(lo, hi), psd=True, constraints=BLOCK)
    signs = np.array([1.0, -1.0, 1.0, -1.0]) * (1.0 if wrong in (0, 2) else -1.0)
    true = float(np.where(signs > 0, lo, -hi).sum()) / 4.0
    least, most = result.certificate.misses
    assert least <= true * (1 + 1e-9) and true <= most <= 1.01 * least
    assert sorted(result.suspects) == [0, 1, 2, 3] and result.verdict.irreducible
    assert result.verdict.blamed == ("constraints[2]",)
    assert "some interval is missed by at least " in result.message
    assert result.verify(U, bounds=(lo, hi))


def test_the_miss_of_an_anchor_that_is_off_by_a_meter():
    U, lo, hi = ranges(np.array([6.0, 5.0]), 2)
    result = quadsense.solve(U, bounds=(lo, hi), psd=True, constraints=BLOCK)
    assert result.certificate.misses == pytest.approx((1.88, 1.88), rel=0.01)
    assert "by at least 1.87" in result.message and "wider by 1.88 at" in result.message


def test_a_miss_is_called_achievable_only_by_a_matrix_that_keeps_the_constraints():
    """The trace alone contradicts the cone: the A that comes along misses it, not the intervals."""
    p = quadsense.datasets.gaussian(n=3, m=20, seed=0)
    bounds = (p.b - 0.1, p.b + 0.1)
    result = quadsense.solve(p.U, bounds=bounds, psd=True, trace=-1.0)
    assert result.status == "infeasible" and "achievable" not in result.message
    assert result.verify(p.U, bounds=bounds)
    fixed = [(np.eye(3), -1.0, -1.0)]
    result = quadsense.solve(p.U, bounds=bounds, psd=True, constraints=fixed, prefer="center")
    assert result.status == "infeasible" and "achievable" not in result.message
    assert result.verify(p.U, bounds=bounds)


def test_where_the_trace_contradicts_the_cone_no_delta_is_said_to_help():
    p = quadsense.datasets.gaussian(n=3, m=20, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.1, psd=True, trace=-1.0)
    assert result.verdict.blamed == ("trace",) and result.verdict.upper_bound == np.inf
    assert "meets trace, whatever the readings are" in result.message
    assert "can be met, " not in result.message and result.verify(p.U, p.b)


def test_a_constraint_is_named_next_to_many_rows():
    p = quadsense.datasets.gaussian(n=5, m=200, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.05, trace=1000.0)
    assert result.conflict.members.size > 10 and result.verdict.blamed == ("trace",)
    assert "and trace carry most of the contradiction" in result.message


def test_a_wrong_trace_is_named():
    p = quadsense.datasets.gaussian(n=5, m=200, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.05, psd=True, trace=1000.0)
    assert result.verdict.blamed == ("trace",) and "trace" in result.verdict.without
    assert result.certificate.upper_bound <= 1.01 * result.certificate.lower_bound
    assert "without trace all others can be met" in result.message
    assert result.verify(p.U, p.b)


def test_a_conflict_is_saved_and_checked(tmp_path):
    result, U, b = wrong_reading(psd=True)
    result.save(tmp_path / "result.npz")
    loaded = quadsense.load_result(tmp_path / "result.npz")
    np.testing.assert_array_equal(loaded.conflict.members, result.conflict.members)
    assert loaded.verify(U, b) and str(loaded) == str(result)
    object.__setattr__(loaded.conflict, "dual", loaded.conflict.dual * [-1.0, *[1.0] * 6])
    found = [check for check in loaded.check(U, b).checks if not check.holds]
    assert [check.statement for check in found] == ["conflict"]


def test_a_result_that_fits_has_no_conflict():
    p = quadsense.datasets.gaussian(n=4, m=30, seed=1)
    result = quadsense.solve(p.U, p.b, delta=0.1, psd=True)
    assert result and result.conflict is None and result.suspects.size == 0


def qubit():
    """Return counts of six outcomes of 1000 shots each, and intervals of their probabilities."""
    r = np.sqrt(0.5)
    U = np.array([[1, 0], [0, 1], [r, r], [r, -r], [r, 1j * r], [r, -1j * r]])
    k = np.array([927, 73, 812, 188, 506, 494])
    return U, k, *quadsense.bounds_from_counts(k, 1000)


def test_counts_that_were_not_divided_by_shots_are_suspected():
    U, k, lo, hi = qubit()
    said = quadsense.solve(U, k, bounds=(lo, hi), psd=True, trace=1).message
    asked = "ll 6 readings lie outside their intervals: were counts not divided by shots?"
    assert asked in said
    assert "outside" not in quadsense.solve(U, k / 1000, bounds=(lo, hi), psd=True).message
    part = np.where(np.arange(6) < 4, k / 1000.0, 7.5)  # a few may well be outside
    assert "outside" not in quadsense.solve(U, part, bounds=(lo, hi), psd=True).message


def test_intervals_in_another_unit_are_suspected():
    U, k, lo, hi = qubit()
    said = quadsense.solve(U, k / 1000, bounds=(1000 * lo, 1000 * hi), psd=True).message
    assert "ll 6 readings lie outside their intervals: are b and bounds in the same unit?" in said


def test_rows_with_other_labels_are_refused():
    pd = pytest.importorskip("pandas")
    U = pd.DataFrame(np.eye(3), index=list("abc"))
    b, same = pd.Series([1.0, 3.0, 2.0], list("acb")), pd.Series([1.0, 2.0, 3.0], list("abc"))
    said = "row 1 is 'b' in U and 'c' in b; give b.reindex"
    with pytest.raises(ValueError, match=said):
        quadsense.solve(U, b, delta=0.1)
    with pytest.raises(ValueError, match="delta has another index than U"):
        quadsense.solve(U, same, delta=b)
    assert quadsense.solve(U, b.reindex(U.index), delta=0.1).met
    assert quadsense.solve(U.to_numpy(), b, delta=0.1).met
    assert quadsense.solve(U, [1.0, 2.0, 3.0], delta=0.1).met


@pytest.mark.parametrize("seed", range(6))
def test_what_was_made_to_contradict_is_found(seed):
    p = planted(seed)
    result = quadsense.solve(p.U, p.b, delta=p.delta, psd=True, **p.asked)
    assert result.status == "infeasible"
    found = frozenset(result.conflict.members.tolist())
    assert p.members <= found and len(found) <= 6
    assert smallest(p, found) > 1e-6
    assert result.certificate.upper_bound <= 1.01 * result.certificate.lower_bound


@pytest.mark.deep
def test_of_two_hundred_planted_contradictions_nearly_all_are_found():
    sizes, contained = [], 0
    for seed in range(200):
        p = planted(seed)
        result = quadsense.solve(p.U, p.b, delta=p.delta, psd=True, **p.asked)
        assert result.status == "infeasible"
        found = frozenset(result.conflict.members.tolist())
        assert smallest(p, found) > 1e-6
        sizes.append(len(found))
        contained += p.members <= found
    assert contained >= 190 and np.median(sizes) <= 6
