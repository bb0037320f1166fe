"""`Certificate.check`: what is stated, one number at a time, true and a little less than true."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import quadsense
from quadsense import Measurements
from quadsense.result import certificate as c
from quadsense.result import values

U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
FITS = np.array([1.0, 2.0, 3.0, 3.0])
WRONG = np.array([1.0, 1.0, 2.0, 3.0])  # the last two are 4 for every A that the first two allow


@pytest.fixture(scope="module")
def met():
    return quadsense.solve(U, FITS, delta=0.5).certificate


@pytest.fixture(scope="module")
def infeasible():
    return quadsense.solve(U, WRONG, delta=0.1).certificate


@pytest.fixture(scope="module")
def optimal():
    return quadsense.solve(U, WRONG, prefer="minimax").certificate


def failed(claim, b, **more):
    """The names of the checks that do not hold."""
    return [each.statement for each in claim.check(U, b, **more).checks if not each.holds]


def test_what_is_claimed_is_in_its_line(met):
    assert repr(met).startswith("<Certificate met: ratio 0 to ")
    assert repr(met).endswith("order 2>")


def test_true_claims_hold(met, infeasible, optimal):
    assert failed(met, FITS) == failed(infeasible, WRONG) == failed(optimal, WRONG) == []
    assert optimal.lower_bound == pytest.approx(1 / 6, rel=1e-6)  # y = (1, 1, -1/2, -1/2)
    assert infeasible.lower_bound == pytest.approx(5 / 3, rel=1e-6)


def test_data_of_another_shape_or_kind_are_named(met, optimal):
    with pytest.raises(ValueError, match="of order 2, but the data have n = 3"):
        met.check(np.eye(3), np.ones(3))
    with pytest.raises(ValueError, match="about 4 measurements, the data are 3"):
        met.check(U[:3], FITS[:3])
    with pytest.raises(ValueError, match="belong to Measurements"):
        met.check(Measurements(U, FITS), FITS)
    with pytest.raises(ValueError, match="belong to Measurements"):
        met.check(Measurements(U, FITS), conjugate=False)
    with pytest.raises(ValueError, match="belong to Measurements"):
        met.check(Measurements(U, FITS), bounds=(FITS, FITS))
    with pytest.raises(ValueError, match="about readings b, but the data are intervals"):
        optimal.check(U, bounds=(FITS, FITS + 1.0))


def test_a_tolerance_of_the_data_is_checked_next_to_that_of_the_solve(met):
    assert len(met.check(U, FITS).checks) < len(met.check(U, FITS, delta=1.0).checks)
    assert met.check(U, FITS, delta=1.0).true
    near = met.upper_bound * 0.5
    assert not met.check(U, FITS, delta=0.9 * near).true
    assert met.check(Measurements(U, FITS, delta=1.0)).true
    assert not met.check(Measurements(U, FITS, delta=0.9 * near)).true
    assert not met.check(Measurements(U, FITS), delta=0.9 * near).true
    for rtol, true in ((1.0, True), (1e-300, False)):
        assert met.check(U, FITS, rtol=rtol).true is true
        assert met.check(Measurements(U, FITS), rtol=rtol).true is true
    # The same tolerance is checked once.
    assert len(met.check(U, FITS, delta=0.5).checks) == len(met.check(U, FITS).checks)
    assert len(met.check(U, FITS, rtol=0.0).checks) == len(met.check(U, FITS).checks)


@pytest.mark.parametrize("name", ["upper_bound", "lower_bound", "rounding", "gap"])
def test_numbers_that_are_none_are_damage(met, name):
    (found,) = met.check(U, FITS).checks[:1]
    assert found.holds and found.detail == ""
    checks = replace(met, **{name: math.nan}).check(U, FITS).checks
    assert [each.holds for each in checks] == [False]
    assert checks[0].detail == "the certificate is damaged"


@pytest.mark.parametrize(
    "change",
    [
        {"allowed": -1},
        {"set_aside": np.array([0, 0])},
        {"set_aside": np.array([4])},
        {"set_aside": np.array([-1])},
        {"tolerance": np.array([0.5, 0.5, 0.5, np.nan])},
        {"dual": np.ones(4)},  # with a fit: of rows set aside alone
        {"dual": np.ones((1, 4))},
        {"hard": True},
    ],
)
def test_a_damaged_certificate_of_a_fit_is_refused(met, change):
    checks = replace(met, **change).check(U, FITS).checks
    assert [each.holds for each in checks] == [False]


@pytest.mark.parametrize(
    "change",
    [
        {"dual": None},
        {"dual": np.full(4, np.nan)},
        {"dual": np.ones(3)},
        {"dual": np.ones((0, 4))},
        {"hard": True},
        {"kind": "none"},
        {"kind": "spectral"},
    ],
)
def test_a_damaged_certificate_of_a_contradiction_is_refused(infeasible, change):
    checks = replace(infeasible, **change).check(U, WRONG).checks
    assert [each.holds for each in checks] == [False]


def test_rows_that_are_taken_conjugated_are_not_others():
    V = U + 1j * U[::-1]
    b = np.sum(np.abs(V) ** 2, axis=1)
    claim = quadsense.solve(V, b, delta=0.1).certificate
    assert claim.check(V, b).true
    assert not claim.check(V, b, conjugate=True).true
    assert replace(claim, conjugate=True).check(V.conj(), b).true
    assert quadsense.solve(U, FITS, delta=0.1).certificate.check(U, FITS, conjugate=True).true


def test_bounds_may_be_claimed_up_to_a_billionth(met, infeasible, optimal):
    upper = "upper bound"
    assert failed(replace(met, upper_bound=met.upper_bound * (1.0 - 1e-6)), FITS) == [upper]
    assert failed(replace(met, upper_bound=met.upper_bound * (1.0 - 1e-11)), FITS) == []
    assert failed(replace(met, upper_bound=math.inf), FITS) == []
    assert failed(replace(met, lower_bound=1e-300), FITS) == ["lower bound"]
    lower = infeasible.lower_bound
    assert failed(replace(infeasible, lower_bound=lower * (1.0 + 1e-6)), WRONG) == ["lower bound"]
    assert failed(replace(infeasible, lower_bound=lower * (1.0 + 1e-11)), WRONG) == []
    assert failed(replace(infeasible, lower_bound=0.5), WRONG) == []
    bound = optimal.lower_bound
    assert "lower bound" in failed(replace(optimal, lower_bound=bound * 1.0001), WRONG)


def test_what_a_bound_takes_for_granted_must_be_stated(infeasible):
    # Up to a norm: with the wrong words it is another claim.
    V, b = np.array([[1.0, 0.0], [1.0, 1e-12]]), np.array([0.0, 2.0])
    claim = quadsense.solve(V, b, delta=0.5, max_iter=200).certificate
    assert claim.kind == "met" or claim.condition
    assert infeasible.condition == ""
    assert failed(replace(infeasible, condition="among matrices of norm 1"), WRONG) != []


def test_a_gap_is_that_of_both_pairs_of_bounds(optimal):
    assert failed(replace(optimal, gap=optimal.gap), WRONG) == []
    text = "no matrix does better, up to the gap"
    assert failed(replace(optimal, gap=0.0, lower_bound=0.9 * optimal.lower_bound), WRONG) == [text]
    assert text in failed(replace(optimal, dual=None), WRONG)
    assert text in failed(replace(optimal, dual=-optimal.dual), WRONG)
    assert c.within_gap(Measurements(U, FITS, delta=1.0), 1.0, 0.9, 0.1)
    assert not c.within_gap(Measurements(U, FITS, delta=1.0), 1.0, 0.8998, 0.1)
    # 1e-14 of the readings is a fit, whatever the bound.
    data = Measurements(U, FITS, delta=1.0)
    assert c.within_gap(data, 3.0 * c.NEGLIGIBLE, 0.0, 0.1)
    assert not c.within_gap(data, 3.1 * c.NEGLIGIBLE, 0.0, 0.1)


def test_a_fit_must_have_the_eigenvalues_that_were_asked_for():
    A = np.diag([1.0, 2.0])
    b = np.einsum("ij,jk,ik->i", U, A, U)
    claim = quadsense.solve(U, b, delta=1e-6, psd=True).certificate
    assert failed(claim, b) == []
    assert failed(replace(claim, rank=1), b) == ["rank"]
    assert failed(replace(claim, rank=2), b) == []
    name = "positive and negative eigenvalues"
    for signs, wrong in (((2, 0), []), ((1, 0), [name]), ((2,), [name]), ((3, 1), [])):
        assert failed(replace(claim, signs=signs), b) == wrong
    bad = quadsense.solve(U, -b, delta=1e-6).certificate
    assert failed(replace(bad, psd=True, objective=None), -b) == ["positive semidefinite"]
    assert failed(replace(bad, signs=(0, 1)), -b) == [name]
    assert failed(replace(bad, signs=(0, 2)), -b) == []


@pytest.fixture(scope="module")
def outlier():
    b = np.append(FITS, [2.5, 30.0])
    V = np.vstack([U, [[0.6, 0.8], [0.8, 0.6]]])
    b[4] = 0.36 + 2.0 * 0.64
    claim = quadsense.solve(V, b, delta=0.01, allow_violations=1).certificate
    assert claim.kind == "met" and claim.set_aside.tolist() == [5]
    return V, b, claim


def test_rows_set_aside_are_few_enough_and_not_met(outlier):
    V, b, claim = outlier

    def wrong(**change):
        return [
            each.statement for each in replace(claim, **change).check(V, b).checks if not each.holds
        ]

    assert wrong() == []
    assert wrong(allowed=0) == ["set aside"]
    assert "set aside" in wrong(set_aside=np.array([0]))
    assert "set aside" in wrong(set_aside=np.array([0, 5]), allowed=2)
    over = "every measurement within its interval, rounding included"
    (check,) = [each for each in replace(claim, set_aside=np.array([0])).check(V, b).checks
                if each.statement == over]  # fmt: skip
    assert not check.holds and "1 of 5 are not, first row 5" in check.detail
    if claim.dual is not None:
        name = "no fewer rows suffice"
        assert name in wrong(dual=0.0 * claim.dual)
        assert name in wrong(dual=-claim.dual)


def test_a_fit_without_a_tolerance_meets_its_constraints():
    claim = quadsense.solve(U, WRONG, prefer="minimax", trace=(0.0, 1.5)).certificate
    assert claim.kind == "optimal" and failed(claim, WRONG) == []
    name, alone = "every constraint holds", replace(claim, objective=None)
    assert name not in failed(alone, WRONG)
    more = replace(alone, matrix=quadsense.SensedMatrix.from_dense(np.eye(2)))
    assert name in failed(more, WRONG)
    damaged = replace(claim, columns=np.array([1, 2, 3]))
    (check,) = damaged.check(U, WRONG).checks
    assert (check.statement, check.holds) == ("scaling of columns", False)


def test_a_contradiction_has_no_objective(infeasible):
    objective = quadsense.solve(U, FITS, delta=0.5, prefer="nearest").certificate.objective
    assert objective is not None
    assert "objective" in failed(replace(infeasible, objective=objective), WRONG)


def test_constraints_alone_may_contradict_each_other():
    claim = quadsense.solve(U, FITS, prefer="minimax", trace=1.0, psd=True,
                            constraints=[(np.eye(2), 5.0, 6.0)]).certificate  # fmt: skip
    assert claim.kind == "infeasible" and claim.hard
    assert failed(claim, FITS) == []
    moved = claim.dual.copy()
    moved[-2:] *= -1.0
    assert "no positive semidefinite matrix meets constraints and equalities" in failed(
        replace(claim, dual=moved), FITS
    )
    assert failed(replace(claim, lower_bound=1.1), FITS) == ["lower bound"]


def test_the_smallest_miss_is_between_its_bounds():
    lo, hi = WRONG - 0.1, WRONG + 0.1
    claim = quadsense.solve(U, bounds=(lo, hi)).certificate
    assert claim.kind == "infeasible" and claim.misses is not None
    least, most = claim.misses
    assert least == pytest.approx(1 / 15, rel=1e-6)  # 1/6 - .1
    name = "smallest miss"

    def wrong(*misses):
        checks = replace(claim, misses=misses).check(U, bounds=(lo, hi)).checks
        return [each.statement for each in checks if not each.holds]

    assert wrong(least, most) == []
    assert wrong(0.0, most) == []
    assert wrong(least * 1.0001, most) == [name]
    assert wrong(least, most * 0.999) == [name]
    assert wrong(most * 1.01, most) == [name]
    assert wrong(-1.0, most) == [name]
    assert wrong(least, math.inf) == [name]
    assert wrong(least) == [name]
    assert wrong(math.nan, most) == [name]


def test_intervals_that_are_upside_down_are_no_tolerance(met):
    lo = FITS - 0.5
    assert not replace(met, lo=FITS + 0.5, hi=lo).check(U, bounds=(lo, FITS + 0.5)).true
    assert replace(met, lo=lo, hi=FITS + 0.5).check(U, bounds=(lo, FITS + 0.5)).true


def test_numbers_agree_to_a_billionth():
    assert c._at_most(1.0, 1.0) and c._at_most(1.0 + 1e-10, 1.0) and c._at_most(-1.0, 0.0)
    assert not c._at_most(1.0 + 1e-8, 1.0) and not c._at_most(-1.0 + 1e-8, -1.0)
    assert values.agree(1.0, 1.5, 0.5) and values.agree(np.inf, np.inf, np.nan)
    assert not values.agree(1.0, 1.5, 0.4) and not values.agree(1.0, np.inf, np.inf)
    assert not values.agree(np.nan, np.nan, 1.0)


def test_the_spectral_bound_names_what_is_wrong(met):
    data = Measurements(U, FITS, delta=0.5)
    alone = replace(met, data=None)
    with pytest.raises(ValueError, match="read from a file"):
        alone.spectral()
    with pytest.raises(ValueError, match="data must be Measurements, got ndarray"):
        met.spectral(data=U)
    for wrong in (0, 1.0, -0.5, "much"):
        with pytest.raises(ValueError, match="confidence must lie strictly between"):
            met.spectral(confidence=wrong)
    with pytest.raises(ValueError, match="noise must not be negative, got -1"):
        met.spectral(-1.0)
    small = Measurements(1e-140 * U, 1e-280 * FITS, delta=1e-280)
    with pytest.raises(ValueError, match="noise is too large for the norms"):
        met.spectral(1e200, data=small)
    found = alone.spectral(0.01, data=data)
    assert found == met.spectral(0.01)
    assert found.verdict in ("bounded", "too noisy")


def test_the_spectral_bound_takes_the_rows_that_are_known():
    A = np.array([[2.0, 0.3], [0.3, 1.0]])
    V = np.vstack([U, [[0.6, 0.8], [2.0, 1.0]]])
    b = np.einsum("ij,jk,ik->i", V, A, V)
    lo, hi = b - 0.01, b + 0.01
    hi[0] = np.inf  # known from one side: not a reading
    claim = quadsense.solve(V, bounds=(lo, hi)).certificate
    found = claim.spectral()
    # Intervals of .01 are noise of .01, even if less is said.
    assert found == claim.spectral(0.005)
    assert claim.spectral(0.02).delta > found.delta
    M, star = np.asarray(claim.matrix), np.linalg.cholesky(A)
    ratios = np.linalg.eigvalsh(np.linalg.inv(star) @ M @ np.linalg.inv(star).T)
    assert np.abs(ratios - 1.0).max() <= found.delta < 1.0


def test_proofs_hold_for_as_many_rows_as_they_cannot_avoid():
    rng = np.random.default_rng(28)
    V, b = rng.standard_normal((8, 2)), rng.standard_normal(8) - 0.5
    claim = quadsense.solve(V, b, delta=0.01, allow_violations=1).certificate
    assert claim.kind == "infeasible" and claim.dual.ndim == 2

    def wrong(**change):
        checks = replace(claim, **change).check(V, b).checks
        return [each.statement for each in checks if not each.holds]

    supports = [set(np.flatnonzero(y)) for y in claim.dual]
    fewest = 1 + min(
        k for k in range(8)
        if any(all(s & {i, *more} for s in supports) for i in range(8)
               for more in ([set()] if k == 0 else [{j} for j in range(8)]))
    )  # fmt: skip
    assert fewest == 2  # one row cannot hit all, two can
    assert wrong() == wrong(allowed=0) == []
    assert wrong(allowed=2) == ["no matrix misses 2 rows or fewer"]
    assert wrong(lower_bound=1.1) == ["lower bound"]
    assert wrong(dual=claim.dual[:1]) == ["no matrix misses 1 rows or fewer"]
    assert wrong(dual=-claim.dual)[0] == "no matrix misses 1 rows or fewer"
