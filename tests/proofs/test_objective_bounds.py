"""Bounds on the objective of a question: true for every vector, tight for the best one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import cover, sampled
from questions import ROWS, cost, made

import quadsense
from quadsense import Measurements, SensedMatrix
from quadsense.arrays import to_numpy
from quadsense.core.matrix import MeasuredForm
from quadsense.core.question import Question
from quadsense.methods.conic.solve import solve_question
from quadsense.proofs.costs import objective_value
from quadsense.proofs.objective import objective_bound
from quadsense.proofs.rounding import user_dual


@pytest.fixture(autouse=True)
def every_flag_raises():
    with np.errstate(all="raise"):
        yield


def bound(case, y=None, **more):
    data = Measurements(case.U, np.zeros(len(case.U)))
    y = case.y if y is None else y
    size = float(np.linalg.norm(case.A))
    return objective_bound(data, case.question, y, size=size, **more)


def scale_of(case):
    """The sizes of what cancels in the objective."""
    v = np.abs(np.einsum("ij,jk,ik->i", case.U.conj(), case.A, case.U))
    return 1.0 + float(np.abs(case.y) @ v) + float(np.linalg.norm(case.A)) ** 2


@pytest.mark.parametrize(("rows", "spread"), cover(ROWS, [0.0, 15.0]))
def test_the_bound_of_the_best_vector_is_below_the_optimum_and_tight(rows, spread):
    for seed in range(ROWS.index(rows), 360, 6):
        case = made(seed, spread=spread)
        true = cost(case)
        found = bound(case, upper=float(true) + 1e-6 * (1 + abs(float(true))))
        assert Fraction(found.value) <= true, seed
        # Where a bound on A is taken for granted it is a million times the data's scale.
        tight = 1e-4 if found.condition else 1e-9
        assert found.value >= float(true) - tight * scale_of(case), (seed, found, float(true))


@pytest.mark.parametrize("rows", sampled(ROWS, 1))
def test_no_vector_proves_more_than_is_true(rows):
    rng = np.random.default_rng(ROWS.index(rows))
    for seed in range(ROWS.index(rows), 1200, 6):
        case = made(seed)
        true, m = cost(case), case.y.size
        for how in range(5):
            y = case.y.copy()
            if how == 0:
                y = rng.standard_normal(m) * 10.0 ** rng.uniform(-3, 3)
            elif how == 1:
                y[rng.integers(m)] += rng.standard_normal()
            elif how == 2:
                y *= 1.0 + 10.0 ** rng.uniform(-14, 0)
            elif how == 3:
                y += 10.0 ** rng.uniform(-15, -1) * rng.standard_normal(m)
            else:
                y[rng.integers(m)] *= -1.0
            assert Fraction(max(bound(case, y).value, -1e300)) <= true, (seed, how)


def test_bounds_of_squares_with_a_determinant_are_true_and_tight():
    rng = np.random.default_rng(6)
    for seed in range(ROWS.index("squares"), 240, 6):
        case = made(seed, log_det=True)
        true, m = cost(case), case.y.size
        found = bound(case)
        assert found.condition == "", seed
        assert Fraction(found.value) <= true, seed
        assert found.value >= float(true) - 1e-9 * scale_of(case), seed
        for size in (1e-12, 1e-6, 1e-2, 1.0):
            other = bound(case, case.y + size * rng.standard_normal(m)).value
            assert Fraction(max(other, -1e300)) <= true, (seed, size)


def test_a_vector_of_no_numbers_proves_nothing():
    for seed in range(12):
        case = made(seed)
        for bad in (np.nan, np.inf, -np.inf, 1e308, 1e-320):
            found = bound(case, np.full(case.y.size, bad)).value
            assert not np.isnan(found)
            assert Fraction(max(found, -1e300)) <= cost(case)


@pytest.mark.parametrize("rows", ["within", "squares", "center"])
def test_positive_semidefinite_bounds_need_no_condition_where_rows_bound_the_trace(rows):
    cases = [made(seed) for seed in range(ROWS.index(rows), 600, 6)]
    bounded = [case for case in cases if case.question.psd and np.isfinite(case.question.hi).all()]
    assert len(bounded) > 1
    assert {bound(case).condition for case in bounded} == {""}


def test_a_symmetric_bound_is_conditional_where_rows_do_not_see_all_of_A():
    U = np.array([[1.0, 0.0], [0.0, 1.0]])
    case = made(0)
    question = replace(
        case.question, lo=np.zeros(2), hi=np.ones(2), weights=np.ones(2), reading=np.zeros(2),
        hard=np.zeros(2, bool), C=np.array([[1.0, 1e-9], [1e-9, 0.0]]), alpha=0.0, prior=0.0,
        psd=False,
    )  # fmt: skip
    found = objective_bound(Measurements(U, np.zeros(2)), question, np.array([-1.0, 0.0]), size=1.0)
    assert "Frobenius norm up to 1e+06" in found.condition
    assert found.value == pytest.approx(-np.sqrt(2.0) * 1e-9 * 1e6, rel=1e-9)
    seen = replace(question, C=0.0)  # nothing is lost where C is 0
    assert (
        objective_bound(Measurements(U, np.zeros(2)), seen, np.zeros(2), size=1.0).condition == ""
    )


@pytest.mark.parametrize("rows", ROWS)
def test_the_objective_of_A_is_enclosed(rows):
    for seed in range(ROWS.index(rows), 240, 6):
        case = made(seed)
        v = np.einsum("ij,jk,ik->i", case.U.conj(), case.A, case.U).real
        sizes = np.sum(np.abs(case.U) ** 2, axis=1) * np.linalg.norm(case.A)
        error = 1e-14 * sizes
        v = v + 0.9 * error * (-1.0) ** np.arange(v.size)
        found = objective_value(case.question, SensedMatrix.from_dense(case.A), v, error)
        true = cost(case)
        assert abs(Fraction(found.value) - true) <= Fraction(found.error), seed
        assert found.error <= 1e-10 * scale_of(case) ** 2 or rows == "center", seed


def test_rows_of_zeros_cost_what_reading_zero_costs():
    U = np.array([[1.0], [0.0]])
    hard = np.zeros(2, bool)
    base = made(1).question
    data = Measurements(U, np.zeros(2))
    for rows, true in (
        ("squares", 8.0),
        ("slack_squares", 2.0),
        ("slack_sum", 2.0),
        ("slack_max", 2.0),
    ):
        question = replace(
            base, rows=rows, lo=np.array([0.0, 1.0]), hi=np.array([2.0, 3.0]), hard=hard,
            weights=np.full(2, 2.0), reading=np.array([1.0, 2.0]), C=0.0, alpha=0.0, psd=False,
        )  # fmt: skip
        if rows == "squares":
            question = replace(question, lo=np.array([0.0, -1.0]))
        found = objective_bound(data, question, np.zeros(2), size=1.0)
        assert found.value == pytest.approx(true, rel=1e-12)
        assert found.value <= true
    fixed = replace(question, rows="within")
    assert objective_bound(data, fixed, np.zeros(2), size=1.0).value == np.inf


@pytest.mark.parametrize("rows", ["within", "squares", "center", "slack_sum", "slack_squares"])
def test_bounds_hold_and_are_tight_with_sums_of_rows_constraints_and_any_kind_of_rows(rows):
    """Of the kernel's vector, against what its matrix costs: positive semidefinite, trace known."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(2, 6)), int(rng.integers(20, 60))
        U = rng.standard_normal((m, n)) + 1j * rng.standard_normal((m, n))
        U *= 10.0 ** rng.uniform(-2, 2, (m, 1))
        X = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
        A = X @ X.conj().T / n
        v = np.einsum("ij,jk,ik->i", U.conj(), A, U).real
        options = {}
        if seed % 3 == 1:
            W = np.eye(m) + rng.standard_normal((m, m)) * (rng.random((m, m)) < 0.2)
            options["mix"], v = W, W @ v
        if seed % 2:
            U, options["conjugate"] = U.conj(), True
        rows_of = sp.csr_array(U) if seed % 3 == 2 else U
        data = Measurements(rows_of, v, delta=1.0, **options)
        t = float(np.trace(A).real)
        data = data.constrained(trace=t if seed % 4 else (t - 0.1, t + 0.1))
        sizes = to_numpy(data.unit_rows.norms) ** 2 * t
        d = 0.2 * sizes
        lo, hi, hard = data.lo.copy(), data.hi.copy(), data.hard
        moved = 3.0 * d[:m] * rng.standard_normal(m) if rows.startswith("slack") else 0.0
        lo[:m], hi[:m] = v - d[:m] + moved, v + d[:m] + moved
        weights = 1.0 / (sizes if rows == "slack_sum" else sizes**2)
        reading = np.append(v + 0.1 * d[:m] * rng.standard_normal(m), 0.0)
        question = Question(
            rows, lo, hi, weights, reading, hard, alpha=float(rows == "within"),
            prior=0.1, psd=True, log_det=rows == "center",
        )  # fmt: skip
        with np.errstate(under="ignore"):
            unit = question.scaled(1.0 / to_numpy(data.unit_rows.norms) ** 2)
            solved = solve_question(data.unit_rows.on_numpy(), unit)
        matrix = SensedMatrix.from_dense(solved.A)
        value = objective_value(question, matrix, to_numpy(data.forward(solved.A)), 1e-13 * sizes)
        y, size = user_dual(data, solved.y), float(np.linalg.norm(solved.A))
        found = objective_bound(data, question, y, size=size)
        assert found.condition == "", seed
        assert found.value <= value.value + value.error
        assert found.value >= value.value - 1e-5 * (1.0 + abs(value.value)), (seed, solved.status)


@pytest.mark.parametrize(
    "asked",
    [
        {"ridge": 0.1},
        {"delta": 0.05, "slack": "max"},
        {"delta": 0.05, "slack": "squares"},
        {"delta": 0.2, "prefer": "least_squares"},
        {"delta": 0.5, "prefer": "least_squares", "allow_violations": 2},
    ],
    ids=str,
)
def test_one_weight_for_all_is_that_weight_for_each(asked, tmp_path):
    p = quadsense.datasets.gaussian(n=4, m=30, seed=0, noise=0.05)
    b = np.where(np.arange(30) == 3, 9.0, p.b) if "allow_violations" in asked else p.b
    one, each = (
        quadsense.solve(p.U, b, weights=weights, **asked) for weights in (3.0, np.full(30, 3.0))
    )
    np.testing.assert_array_equal(one.A, each.A)
    assert one.objective == each.objective
    one.save(tmp_path / "one.npz")
    assert quadsense.load_result(tmp_path / "one.npz").verify(p.U, b)


@pytest.mark.parametrize("tau", [0.7, 0.7 + 1e-9, -3.0])
def test_the_distance_from_a_multiple_of_I_needs_no_matrix_of_the_order_of_long_rows(tau):
    rng = np.random.default_rng(1)
    signs = rng.choice([-0.5, 0.5], size=(3, 4))  # of unit norm, exactly
    data, c = Measurements(signs, np.zeros(3)), np.array([0.3, -1e-5, 2.0])
    form = MeasuredForm(0.7, c, data.unit_rows)
    size = np.zeros(3)
    question = Question("within", size - 9.0, size + 9.0, size, size, size > 0.0, 0.0, 2.0, tau)
    found = objective_value(question, SensedMatrix(form), size, size)
    exact = [[Fraction(float(each)) for each in row] for row in signs]
    true = Fraction(0)
    for i in range(4):
        for j in range(4):
            entry = (Fraction(0.7) - Fraction(tau)) * (i == j)
            entry -= sum(Fraction(float(c[k])) * exact[k][i] * exact[k][j] for k in range(3))
            true += 2 * entry**2
    assert abs(Fraction(found.value) - true) <= Fraction(found.error)
    assert found.error <= 1e-11 * float(true)


def test_a_multiple_of_the_identity_needs_no_bound_on_the_norm(monkeypatch):
    """Its objective is 0 up to rounding, and 0 is a bound: a proof would cost m N^2 for nothing."""
    U = np.random.default_rng(0).standard_normal((200, 8))
    calls = []
    monkeypatch.setattr("quadsense.proofs.objective.norm_bound", lambda *_: calls.append(1) or 1e9)
    result = quadsense.solve(U, np.sum(U**2, axis=1), delta=0.01)
    np.testing.assert_allclose(result.A, np.eye(8), atol=1e-12)
    assert result.optimal and result.objective_bounds[0] == 0.0
    assert not calls
