"""The question handed to CVXPY is the question: against problems written out by hand, and against
the formulas at the matrix that CVXPY finds."""

import itertools
import sys
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from helpers import cover, readings

import quadsense
from quadsense.compare import packed_expression, question_to_cvxpy
from quadsense.core import products
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


@pytest.mark.parametrize(("rows", "psd"), cover(TERMS, [False, True]))
def test_the_question_is_what_one_writes_by_hand(rows, psd, complex_):
    U, question = make_case(rows, psd, complex_, seed=TERMS.index(rows))
    cost, constraints, A = question_to_cvxpy(products.features(U), question, 3, complex_)
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
    np.testing.assert_allclose(x.value, products.pack(H), atol=1e-14)


def test_multiples_of_the_identity_are_numbers(rng):
    U = rng.standard_normal((10, 3))
    ones, none = np.ones(10), np.zeros(10, bool)
    plain = Question("within", readings(U, np.eye(3)) - 1, readings(U, np.eye(3)) + 1, ones, ones,
                     none, psd=True)  # fmt: skip
    values = []
    for C, prior in itertools.product((2.0, 2.0 * np.eye(3)), (0.5, 0.5 * np.eye(3))):
        question = replace(plain, C=C, prior=prior, alpha=1.0)
        cost, constraints, _ = question_to_cvxpy(products.features(U), question, 3, False)
        values.append(solved(cp.Problem(cp.Minimize(cost), constraints)))
    np.testing.assert_allclose(values, values[0], rtol=1e-8)


def test_compilation_sees_a_few_constraints_not_one_a_row(rng):
    U = rng.standard_normal((500, 4))
    values = readings(U, np.eye(4))
    question = Question("squares", values - 1, values + 1, np.ones(500), values,
                        np.zeros(500, bool), psd=True)  # fmt: skip
    _, constraints, _ = question_to_cvxpy(products.features(U), question, 4, False)
    assert len(constraints) == 4


# --- from the arguments of solve ----------------------------------------------------------------


class Written:
    """A problem written out by hand from plain arrays: probes as meant, intervals, constraints."""

    def __init__(self, is_complex, seed, n=3, m=16):
        rng = np.random.default_rng(seed)
        self.is_complex, self.n = is_complex, n
        self.U = rng.standard_normal((m, n)) * rng.uniform(0.3, 3.0, (m, 1))
        if is_complex:
            self.U = self.U + 1j * rng.standard_normal((m, n))
        root = random_hermitian(n, is_complex, rng)
        self.truth = root @ root.conj().T / 2
        self.delta = rng.uniform(0.5, 1.5, m)
        self.b = readings(self.U, self.truth) + self.delta * rng.uniform(-0.8, 0.8, m)
        self.C = random_hermitian(n, is_complex, rng)
        self.prior = random_hermitian(n, is_complex, rng)
        self.weights = rng.uniform(0.5, 2.0, m)
        self.rng = rng

    def problem(self, objective, bounds=True, psd=True, trace=None, constraint=None, U=None):
        """`objective` makes (sense, expression) of A and its readings."""
        n, U = self.n, self.U if U is None else U
        A = cp.Variable((n, n), hermitian=True) if self.is_complex else cp.Variable(
            (n, n), symmetric=True)  # fmt: skip
        v = [cp.real(u.conj() @ A @ u) if self.is_complex else u @ A @ u for u in U]
        v = cp.hstack(v)
        asked = [A >> 0] if psd else []
        if bounds:
            asked += [v >= self.b - self.delta, v <= self.b + self.delta]
        if trace is not None:
            asked.append(self.inner(np.eye(n), A) == trace)
        if constraint is not None:
            C, lo, hi = constraint
            asked += [self.inner(C, A) >= lo, self.inner(C, A) <= hi]
        sense, expression = objective(A, v)
        return cp.Problem(sense(expression), asked), A

    def inner(self, C, A):
        value = cp.sum(cp.multiply(np.conj(C), A))
        return cp.real(value) if self.is_complex else value

    def distance(self, A, v):
        return cp.Minimize, cp.norm(cp.abs(A - self.prior), "fro")

    def logs(self, A, v):
        total = cp.sum(cp.log(v - self.b + self.delta)) + cp.sum(cp.log(self.b + self.delta - v))
        return cp.Maximize, total + cp.log_det(A)


CASES = {
    "least_squares": (
        {"prefer": "least_squares"},
        lambda p: lambda A, v: (cp.Minimize, cp.sum_squares((v - p.b) / p.delta)),
    ),
    "weights": (
        {"prefer": "least_squares", "weights": "weights"},
        lambda p: lambda A, v: (cp.Minimize, cp.sum(cp.multiply(p.weights, (v - p.b) ** 2))),
    ),
    "ridge": (
        {"prefer": "least_squares", "ridge": 0.7, "prior": "prior"},
        lambda p: (
            lambda A, v: (
                cp.Minimize,
                cp.sum_squares((v - p.b) / p.delta) + 0.7 * cp.sum_squares(cp.abs(A - p.prior)),
            )
        ),
    ),
    "nearest": ({"prefer": "nearest", "prior": "prior"}, lambda p: p.distance),
    "center": ({"prefer": "center"}, lambda p: p.logs),
    "min_trace": (
        {"prefer": "min_trace"},
        lambda p: lambda A, v: (cp.Minimize, p.inner(np.eye(p.n), A)),
    ),
    "minimax": (
        {"prefer": "minimax"},
        lambda p: lambda A, v: (cp.Minimize, cp.max(cp.abs(v - p.b) / p.delta)),
    ),
    "any": ({"prefer": "any"}, lambda p: lambda A, v: (cp.Minimize, cp.Constant(0.0))),
}


def named(options, p):
    """Options with the arrays that they name."""
    return {k: getattr(p, v) if v in ("weights", "prior") else v for k, v in options.items()}


@pytest.mark.parametrize("case", CASES)
def test_every_preference_is_what_one_writes_by_hand(case, complex_):
    p = Written(complex_, seed=len(case))
    options, objective = CASES[case]
    problem, A = quadsense.to_cvxpy(p.U, p.b, delta=p.delta, psd=True, **named(options, p))
    other, _ = p.problem(objective(p))
    value = solved(problem)
    assert value == pytest.approx(solved(other), abs=1e-5 * (1 + abs(value)))
    v = readings(p.U, A.value)
    assert np.all(np.abs(v - p.b) <= p.delta * (1 + 1e-6))


@pytest.mark.parametrize(("slack", "weighted"), cover(["max", "sum", "squares"], [False, True]))
def test_every_slack_is_what_one_writes_by_hand(slack, weighted, complex_):
    p = Written(complex_, seed=5)
    p.b = p.b + p.rng.standard_normal(len(p.b)) * 4  # so that not all can be met
    w = p.weights if weighted else np.ones(len(p.b))
    problem, _ = quadsense.to_cvxpy(
        p.U, p.b, delta=p.delta, psd=True, slack=slack, weights=w if weighted else None
    )

    def objective(A, v):
        misses = cp.pos(cp.abs(v - p.b) - p.delta)
        if slack == "max":
            return cp.Minimize, cp.max(cp.multiply(w, misses))
        return cp.Minimize, w @ (misses if slack == "sum" else misses**2)

    other, _ = p.problem(objective, bounds=False)
    value = solved(problem)
    assert value > 0.01
    assert value == pytest.approx(solved(other), rel=1e-5)


def test_trace_constraints_mixes_and_conjugation_are_what_one_writes_by_hand(complex_):
    p = Written(complex_, seed=7)
    trace = float(np.trace(p.truth).real)
    inside = float(np.vdot(p.C, p.truth).real)
    options = {"delta": p.delta, "psd": True, "trace": trace, "prefer": "least_squares",
               "constraints": [(p.C, inside - 0.01, inside + 0.01)]}  # fmt: skip
    problem, A = quadsense.to_cvxpy(p.U, p.b, **options)
    squares = CASES["least_squares"][1](p)
    constraint = (p.C, inside - 0.01, inside + 0.01)
    value = solved(problem)
    assert value == pytest.approx(
        solved(p.problem(squares, trace=trace, constraint=constraint)[0]), rel=1e-5
    )
    assert value > solved(p.problem(squares)[0]) * 1.001
    assert np.trace(A.value).real == pytest.approx(trace, abs=1e-6)
    other, _ = quadsense.to_cvxpy(p.U.conj(), p.b, conjugate=True, **options)
    assert solved(other) == pytest.approx(value, rel=1e-6)
    twice = np.vstack([p.U, p.U])  # every reading as half of one row and half of the same
    half = np.hstack([np.eye(16), np.eye(16)]) / 2
    mixed, _ = quadsense.to_cvxpy(twice, p.b, mix=half, **options)
    assert solved(mixed) == pytest.approx(value, rel=1e-6)
    made = quadsense.Measurements(p.U, p.b, delta=p.delta)
    del options["delta"]
    assert solved(quadsense.to_cvxpy(made, **options)[0]) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("trace", [None, 1.0])
def test_the_entropy_without_a_tolerance_is_the_question_that_is_written(trace):
    rng = np.random.default_rng(0)
    X, U = (rng.standard_normal((k, 4)) + 1j * rng.standard_normal((k, 4)) for k in (4, 20))
    A = X @ X.conj().T / np.sum(np.abs(X) ** 2)
    b = np.einsum("ij,jk,ik->i", U.conj(), A, U).real + 0.1 * rng.standard_normal(20)
    result = quadsense.solve(U, b, psd=True, trace=trace, gap=1e-6)
    problem, variable = quadsense.to_cvxpy(U, b, psd=True, trace=trace)
    assert result.prefer == "entropy" and result.optimal
    assert solved(problem) == pytest.approx(result.objective, rel=1e-5)
    np.testing.assert_allclose(variable.value, result.A, atol=1e-4)


def test_without_a_tolerance_least_squares_and_minimax_are_plain(complex_):
    p = Written(complex_, seed=9)
    problem, _ = quadsense.to_cvxpy(p.U, p.b, psd=True, prefer="least_squares")
    other, _ = p.problem(lambda A, v: (cp.Minimize, cp.sum_squares(v - p.b)), bounds=False)
    assert solved(problem) == pytest.approx(solved(other), rel=1e-5, abs=1e-6)
    problem, _ = quadsense.to_cvxpy(p.U, p.b)
    other, _ = p.problem(
        lambda A, v: (cp.Minimize, cp.sum_squares(v - p.b)), bounds=False, psd=False
    )
    assert solved(problem) == pytest.approx(solved(other), rel=1e-5, abs=1e-6)
    problem, _ = quadsense.to_cvxpy(p.U, p.b, prefer="minimax")
    other, _ = p.problem(
        lambda A, v: (cp.Minimize, cp.max(cp.abs(v - p.b))), bounds=False, psd=False
    )
    assert solved(problem) == pytest.approx(solved(other), rel=1e-5)


BETA = 0.35


class Default:
    """A default request by seed, and its objective from the formulas of docs/theory.md."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.is_complex, self.psd = bool(seed % 2), bool(seed // 2 % 2)
        n = 3
        N = n * n if self.is_complex else n * (n + 1) // 2
        m = int(rng.integers(2, 2 * N + 2))
        self.written = p = Written(self.is_complex, seed=1000 + seed, n=n, m=m)
        self.asked = {"delta": p.delta, "psd": self.psd}
        self.few = m < 1.5 * N
        self.trace = None
        if seed % 5 == 1:
            self.asked["weights"] = p.weights
        if seed % 5 == 2 and self.psd:
            self.trace = self.asked["trace"] = float(np.trace(p.truth).real)
            self.few = m + 1 < 1.5 * N  # an equality is a reading too
        self.prior = None
        if seed % 5 == 3:
            self.prior = p.prior @ p.prior.conj().T + np.eye(n)
            self.asked["prior"] = self.prior

    def problem(self):
        p, n = self.written, self.written.n
        norms = np.sum(np.abs(p.U) ** 2, axis=1)
        weights = self.asked.get("weights", p.delta**-2.0)  # of the sum of squares
        kappa = float(np.mean(weights * p.delta**2 / 3.0))
        s = np.sqrt(kappa / weights) / norms  # on rows of unit norm
        w = np.maximum(s, np.median(s)) ** -2.0
        b = p.b / norms
        tau = float(w @ b / np.sum(w))
        if self.psd and self.trace is not None:
            tau = self.trace / n
        elif self.psd and tau <= 0.0:
            tau = 1e-3 * float(np.sqrt(w @ b**2 / np.sum(w)))
        v = float(w @ (b - tau) ** 2 / np.sum(w))
        prior = tau * np.eye(n) if self.prior is None else self.prior

        def objective(A, readings):
            squares = cp.sum(cp.multiply(weights, (readings - p.b) ** 2))
            pull = 0.0
            if self.psd and self.few:
                log_det = cp.log_det(A)
                if self.is_complex:
                    re, im = cp.real(A), cp.imag(A)
                    log_det = 0.5 * cp.log_det(cp.bmat([[re, -im], [im, re]]))
                towards = 0.0 if self.trace else p.inner(np.linalg.inv(prior), A)
                pull = 2.0 * kappa * BETA * (towards - log_det)
            elif not self.psd:
                pull = kappa * BETA / v * cp.sum_squares(cp.abs(A - prior))
            return cp.Minimize, squares + pull

        return p.problem(objective, psd=self.psd, trace=self.trace)[0]


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(k, marks=pytest.mark.slow) for k in range(8, 100))]
)
def test_the_default_is_least_squares_with_the_pull_that_the_formulas_say(seed):
    case = Default(seed)
    p = case.written
    by_hand = solved(case.problem())
    room = 1e-6 * abs(by_hand) + 1e-7
    problem, _ = quadsense.to_cvxpy(p.U, p.b, **case.asked)
    assert solved(problem) == pytest.approx(by_hand, abs=room)
    result = quadsense.solve(p.U, p.b, gap=1e-7, **case.asked)
    assert result.prefer == ("entropy" if case.psd and case.few else "least_squares")
    assert result.objective == pytest.approx(by_hand, abs=room)
    assert result.optimal and result.verify(p.U, p.b, delta=p.delta)


@pytest.mark.parametrize("prior", [-1.0, 0.0, np.diag([1.0, 1.0, 0.0])])
def test_a_prior_that_is_not_positive_definite_pulls_in_the_frobenius_norm(prior):
    p = Written(False, seed=3, m=6)
    asked = {"delta": p.delta, "psd": True, "prior": prior}
    result = quadsense.solve(p.U, p.b, gap=1e-7, **asked)
    assert result.prefer == "least_squares" and result.optimal
    assert result.verdict.ridge > 0.0
    assert solved(quadsense.to_cvxpy(p.U, p.b, **asked)[0]) == pytest.approx(
        result.objective, rel=1e-5
    )
    with pytest.raises(ValueError, match="'entropy' needs a prior that is positive definite"):
        quadsense.solve(p.U, p.b, prefer="entropy", **asked)


@pytest.mark.parametrize("weighted", [False, True])
def test_one_sided_rows_are_in_the_sum_only_where_they_are_given_a_weight(weighted, complex_):
    p = Written(complex_, seed=11)
    lo, hi = p.b - p.delta, p.b + p.delta
    lo[::3] = -np.inf
    b = p.b + 0.3 * p.delta
    given = p.weights if weighted else None
    two = np.isfinite(lo)
    w = p.weights if weighted else np.where(two, 1.0 / p.delta**2, 0.0)
    question = {"bounds": (lo, hi), "psd": True, "prefer": "least_squares", "weights": given,
                "ridge": 0.0}  # fmt: skip
    other, A = p.problem(lambda A, v: (cp.Minimize, w @ (v - b) ** 2), bounds=False)
    part = cp.real if complex_ else (lambda each: each)
    v = cp.hstack([part(u.conj() @ A @ u) for u in p.U])
    other = cp.Problem(other.objective, [*other.constraints, v <= hi, v[two] >= lo[two]])
    best = solved(other)
    assert solved(quadsense.to_cvxpy(p.U, b, **question)[0]) == pytest.approx(best, rel=1e-5)
    result = quadsense.solve(p.U, b, gap=1e-7, **question)
    assert (result.status, result.optimal) == ("met", True)
    assert result.objective == pytest.approx(best, rel=1e-5)
    assert result.objective_bounds[0] <= best * (1 + 1e-5)
    assert result.verify(p.U, b, bounds=(lo, hi))


def test_the_widths_of_other_rows_do_not_weigh_a_one_sided_row(complex_):
    p = Written(complex_, seed=12)
    answers = []
    for width in (1.0, 100.0):
        lo, hi = p.b - width * p.delta, p.b + width * p.delta
        lo[:5], hi[:5] = -np.inf, p.b[:5] + 50.0 * p.delta[:5]  # which none is at
        asked = {"bounds": (lo, hi), "psd": True, "prefer": "least_squares", "ridge": 0.0}
        answers.append(np.asarray(quadsense.solve(p.U, p.b, **asked).A))
        A = quadsense.solve(p.U[5:], p.b[5:], bounds=(lo[5:], hi[5:]), psd=True,
                            prefer="least_squares", ridge=0.0).A  # fmt: skip
        np.testing.assert_allclose(answers[-1], np.asarray(A), atol=1e-3 * np.linalg.norm(A))
    np.testing.assert_allclose(*answers, atol=1e-3 * np.linalg.norm(answers[0]))


def test_least_squares_without_a_row_in_the_sum_says_so(complex_):
    p = Written(complex_, seed=13)
    for bounds in ((p.b - p.delta, np.inf), (-np.inf, p.b + p.delta)):
        result = quadsense.solve(p.U, p.b, bounds=bounds, prefer="least_squares", ridge=0.0)
        assert (result.status, result.objective, result.optimal) == ("met", 0.0, True)
        assert result.verify(p.U, p.b, bounds=bounds)
        assert "no row counts in the sum" in result.plan["reasons"][0]
        weighted = quadsense.solve(
            p.U, p.b, bounds=bounds, prefer="least_squares", weights=1.0, psd=True
        )
        assert weighted.objective > 0.0 and weighted.optimal
        assert "no row counts" not in " ".join(weighted.plan["reasons"])


def test_rows_of_zeros_read_zero():
    U, b = np.array([[1.0, 0], [0, 1], [0, 0]]), np.array([1.0, 2.0, 0.5])
    problem, _ = quadsense.to_cvxpy(U, b, delta=1.0, prefer="any")
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    problem, _ = quadsense.to_cvxpy(U, b, delta=0.1, prefer="any")
    problem.solve(solver="CLARABEL")
    assert problem.status == "infeasible"


def test_what_is_refused_says_why(monkeypatch):
    U, b = np.eye(2), np.ones(2)
    with pytest.raises(ValueError, match="rank=1 is no convex question"):
        quadsense.to_cvxpy(U, b, delta=0.1, rank=1)
    with pytest.raises(ValueError, match="needs a tolerance"):
        quadsense.to_cvxpy(U, b, prefer="center")
    with pytest.raises(TypeError, match="unexpected keyword"):
        quadsense.to_cvxpy(U, b, delta=0.1, method="cg")
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match="pip install cvxpy"):
        quadsense.to_cvxpy(U, b, delta=0.1)
