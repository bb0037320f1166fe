"""The question handed to CVXPY is the question: against problems written out by hand, and against
the formulas at the matrix that CVXPY finds."""

import itertools
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from helpers import readings

from quadsense.compare import packed_expression, question_to_cvxpy
from quadsense.core import packed
from quadsense.core.question import Question

TERMS = ("within", "squares", "center", "slack_max", "slack_sum", "slack_squares")


def solved(problem):
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return problem.value


def random_hermitian(n, is_complex, rng):
    G = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if is_complex else 0)
    return G + G.conj().T


def make_case(rows, psd, is_complex, seed):
    """U and a question that uses everything at once: one-sided rows, equalities, hard rows, C."""
    rng = np.random.default_rng(seed)
    n, m = 3, 14
    U = rng.standard_normal((m, n)) + (1j * rng.standard_normal((m, n)) if is_complex else 0)
    root = random_hermitian(n, is_complex, rng)
    truth = root @ root.conj().T / 2
    values = readings(U, truth)
    width = rng.uniform(0.2, 1.0, m)
    lo, hi = values - width * rng.uniform(0.2, 1, m), values + width * rng.uniform(0.2, 1, m)
    hi[1], lo[2] = np.inf, -np.inf
    hard = np.zeros(m, bool)
    hard[[0, 3]] = True
    if rows != "center":
        lo[5], hi[5] = -np.inf, np.inf
    lo[0] = hi[0] = values[0]
    if rows.startswith("slack"):  # so that not everything can be met
        shift = np.where(hard, 0.0, rng.choice([-2.0, 0.0, 2.0], m))
        lo, hi = lo + shift, hi + shift
    weights = rng.uniform(0.5, 2.0, m)
    weights[7] = 0.0
    question = Question(
        rows=rows, lo=lo, hi=hi, weights=weights, reading=values + rng.standard_normal(m),
        hard=hard, C=np.asarray(random_hermitian(n, is_complex, rng)), alpha=0.7,
        prior=np.asarray(random_hermitian(n, is_complex, rng)), psd=psd,
        log_det=psd and rows == "center",
    )  # fmt: skip
    return U, question


def by_hand(U, q, is_complex):
    """The question in CVXPY, one scalar at a time."""
    n = U.shape[1]
    A = cp.Variable((n, n), hermitian=True) if is_complex else cp.Variable((n, n), symmetric=True)
    real = cp.real if is_complex else (lambda expression: expression)
    cost = real(cp.sum(cp.multiply(np.conj(q.C), A)))
    cost += q.alpha * cp.sum_squares(cp.abs(A - q.prior))
    constraints = [A >> 0] if q.psd else []
    misses, terms = [], []
    for i, u in enumerate(U):
        v = real(u.conj() @ A @ u)
        soft = q.rows.startswith("slack") and not q.hard[i]
        if not soft:
            if np.isfinite(q.lo[i]):
                constraints.append(v >= q.lo[i])
            if np.isfinite(q.hi[i]):
                constraints.append(v <= q.hi[i])
        if q.rows == "center" and q.lo[i] < q.hi[i]:
            terms += [-cp.log(v - q.lo[i])] if np.isfinite(q.lo[i]) else []
            terms += [-cp.log(q.hi[i] - v)] if np.isfinite(q.hi[i]) else []
        if q.rows == "squares" and not q.hard[i]:
            terms.append(q.weights[i] * cp.square(v - q.reading[i]))
        if soft:
            d = cp.Constant(0.0)
            d = cp.maximum(d, v - q.hi[i]) if np.isfinite(q.hi[i]) else d
            d = cp.maximum(d, q.lo[i] - v) if np.isfinite(q.lo[i]) else d
            misses.append(q.weights[i] * (cp.square(d) if q.rows == "slack_squares" else d))
    if q.log_det:
        terms.append(-cp.log_det(A))
    if q.rows == "slack_max":
        terms.append(cp.maximum(*misses))
    else:
        terms += misses
    return cp.Problem(cp.Minimize(cost + sum(terms)), constraints), A


@pytest.mark.parametrize("rows", TERMS)
@pytest.mark.parametrize("psd", [False, True])
def test_the_question_is_what_one_writes_by_hand(rows, psd, complex_):
    U, question = make_case(rows, psd, complex_, seed=TERMS.index(rows))
    cost, constraints, A = question_to_cvxpy(packed.features(U), question, 3, complex_)
    value = solved(cp.Problem(cp.Minimize(cost), constraints))
    other, B = by_hand(U, question, complex_)
    assert value == pytest.approx(solved(other), abs=1e-6 * (1 + abs(value)))
    np.testing.assert_allclose(A.value, B.value, atol=1e-4 * (1 + np.abs(B.value).max()))
    ours = question.row_cost(readings(U, A.value)) + question.matrix_cost(A.value)
    assert ours == pytest.approx(value, abs=1e-6 * (1 + abs(value)))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_packed_expression_is_the_packed_matrix(n, complex_, rng):
    H = random_hermitian(n, complex_, rng)
    H = np.asarray(H, dtype=complex if complex_ else float)
    A = cp.Variable((n, n), hermitian=True) if complex_ else cp.Variable((n, n), symmetric=True)
    A.value = H
    x = packed_expression(A, cp)
    assert x.is_affine() and x.is_real()
    np.testing.assert_allclose(x.value, packed.pack(H), atol=1e-14)


def test_multiples_of_the_identity_are_numbers(rng):
    U = rng.standard_normal((10, 3))
    ones, none = np.ones(10), np.zeros(10, bool)
    plain = Question("within", readings(U, np.eye(3)) - 1, readings(U, np.eye(3)) + 1, ones, ones,
                     none, psd=True)  # fmt: skip
    values = []
    for C, prior in itertools.product((2.0, 2.0 * np.eye(3)), (0.5, 0.5 * np.eye(3))):
        question = replace(plain, C=C, prior=prior, alpha=1.0)
        cost, constraints, _ = question_to_cvxpy(packed.features(U), question, 3, False)
        values.append(solved(cp.Problem(cp.Minimize(cost), constraints)))
    np.testing.assert_allclose(values, values[0], rtol=1e-8)


def test_compilation_sees_a_few_constraints_not_one_a_row(rng):
    U = rng.standard_normal((500, 4))
    values = readings(U, np.eye(4))
    question = Question("squares", values - 1, values + 1, np.ones(500), values,
                        np.zeros(500, bool), psd=True)  # fmt: skip
    _, constraints, _ = question_to_cvxpy(packed.features(U), question, 4, False)
    assert len(constraints) == 4
