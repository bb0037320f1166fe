"""The truth that generated problems are held against, and the checker, are themselves tested."""

import dataclasses
import itertools
from fractions import Fraction

import claims
import cvxpy as cp
import exact
import fuzz
import generator
import numpy as np
import programs
import psd_helpers
import pytest
import truth

import quadsense
from quadsense.core.matrix import SensedMatrix


def test_exact_quadratic_forms_are_those_of_fractions(rng):
    for complex_ in (False, True):
        U, A = rng.standard_normal((4, 3)), rng.standard_normal((3, 3))
        if complex_:
            U, A = U + 1j * rng.standard_normal((4, 3)), A + 1j * rng.standard_normal((3, 3))
        U[0] *= 1e80
        U[1] *= 1e-80
        for i, value in enumerate(exact.quadratic(U, A)):
            assert value == _slow_quadratic(U[i], A)
        for i, value in enumerate(exact.factor_quadratic(U, A)):
            parts = [_slow_product(A[:, k].conj(), U[i]) for k in range(3)]
            assert value == sum(re * re + im * im for re, im in parts)


def _slow_product(x, y):
    """``sum x_j y_j`` as a pair of fractions."""
    re = im = Fraction(0)
    for a, b in zip(x, y, strict=True):
        a, b = complex(a), complex(b)
        p, q, r, s = (Fraction(part) for part in (a.real, a.imag, b.real, b.imag))
        re, im = re + p * r - q * s, im + p * s + q * r
    return re, im


def _slow_quadratic(u, A):
    total = Fraction(0)
    for j, k in itertools.product(range(len(u)), repeat=2):
        ((p, q),) = [_slow_product([u[j].conjugate()], [u[k]])]
        entry = complex(A[j, k])
        total += p * Fraction(entry.real) - q * Fraction(entry.imag)
    return total


def test_rank_of_the_map_sees_a_last_bit():
    u = np.array([1.0, 1.0 / 3.0])
    nearly = u.copy()
    nearly[1] = np.nextafter(u[1], 1.0)
    assert exact.rank_of_map(np.array([u, u])) == 1
    assert exact.rank_of_map(np.array([u, nearly])) == 2
    assert exact.rank_of_map(np.array([u, nearly, 2.0 * u])) == 2


def _case(U, question, b=None, **options):
    U = np.asarray(U)
    labels = {"cone": "symmetric", "method": options.get("method", "auto"), "tolerance": "-",
              "bounds": "-", "norms": "ordinary", "storage": "plain", "field": "real",
              "delta": "", "start": "None"}  # fmt: skip
    return generator.Case(
        0, U, b, question, options, None, "arrays", np.zeros((U.shape[1], 1)), True, labels
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_least_slack_of_symmetric_matrices_is_that_of_brute_force(seed):
    # n = 1: A is one number, and the slack is a maximum of lines in it, least at a crossing.
    rng = np.random.default_rng(seed)
    U = rng.uniform(0.5, 2.0, (4, 1))
    b, delta = rng.standard_normal(4), rng.uniform(0.1, 1.0, 4)
    case = _case(U, {"delta": delta}, b)

    def slack(a):
        return float(np.max(np.abs(U[:, 0] ** 2 * a - b) / delta)) - 1.0

    lines = [(s * u * u / d, -s * r / d) for u, r, d in zip(U[:, 0], b, delta, strict=True)
             for s in (1.0, -1.0)]  # fmt: skip
    crossings = [(q - p) / (g - h) for (g, p), (h, q) in itertools.combinations(lines, 2) if g != h]
    best = min(slack(a) for a in crossings)
    found = programs.least_slack(truth.system(case), positive=False)
    assert found.lower == pytest.approx(best, abs=1e-8)
    assert truth.of(case).verdict == ("feasible" if best <= 0 else "infeasible")
    positive = min([slack(a) for a in crossings if a >= 0] + [slack(0.0)])
    found = programs.least_slack(truth.system(case), positive=True)
    assert found.lower == pytest.approx(positive, abs=1e-6)


@pytest.mark.parametrize("complex_", [False, True])
def test_the_least_slack_of_positive_matrices_is_that_of_cvxpy(rng, complex_):
    U = psd_helpers.rows(rng, 14, 3, "complex" if complex_ else "real")
    b = rng.standard_normal(14)
    found = programs.least_slack(truth.system(_case(U, {"delta": 0.5}, b)), positive=True)
    best = psd_helpers.smallest_worst_miss(U, b, 0.5) - 1.0
    assert found.lower == pytest.approx(best, abs=1e-6)
    half = np.arange(14) < 7
    low, high = np.where(half, 0.3 + np.abs(b), -np.inf), np.where(half, np.inf, np.abs(b) - 0.6)
    one_sided = truth.system(_case(U, {"bounds": (low, high)}))
    A, values = psd_helpers.unknown(one_sided.V)
    s = cp.Variable()
    ends = [s >= -1]
    for i, (lo, hi) in enumerate(zip(one_sided.lo, one_sided.hi, strict=True)):
        weight = float(one_sided.weight[i])
        ends += [values[i] >= float(lo) - s * weight] if lo is not None else []
        ends += [values[i] <= float(hi) + s * weight] if hi is not None else []
    cp.Problem(cp.Minimize(s), [A >> 0, *ends]).solve(solver=cp.CLARABEL)
    found = programs.least_slack(one_sided, positive=True)
    assert found.lower == pytest.approx(float(s.value), abs=1e-5)


def test_truth_sees_tolerances_far_below_the_readings(rng):
    U = rng.standard_normal((12, 2))
    A = np.array([[1.0, 0.3], [0.3, -2.0]])
    b = np.array([exact.number(value) for value in exact.quadratic(U, A)])
    assert truth.of(_case(U, {"delta": 1e-12}, b)).verdict == "feasible"
    b[3] += 1e-9
    assert truth.of(_case(U, {"delta": 1e-12}, b)).verdict == "infeasible"


def test_truth_of_violations_tries_every_choice(rng):
    U = rng.standard_normal((8, 2))
    b = np.array([float(u @ u) for u in U])
    b[[2, 5]] += 10.0
    for allowed, verdict in ((1, "infeasible"), (2, "feasible")):
        case = _case(U, {"delta": 1e-3}, b, allow_violations=allowed)
        case = dataclasses.replace(case, known=np.eye(2))
        assert truth.of(case).verdict == verdict
        assert truth.of(case).clear


def test_truth_of_sums_is_that_of_rows_where_each_sum_is_one_row(rng):
    U = rng.standard_normal((9, 2))
    A = np.array([[1.0, 0.3], [0.3, -2.0]])
    b = np.array([exact.number(value) for value in exact.quadratic(U, A)])
    order, factor = rng.permutation(9), 2.0 ** rng.integers(-3, 4, 9)
    W = factor[:, None] * np.eye(9)[order]
    for moved in (0.0, 1.0):
        b[3] += moved
        rows = truth.of(_case(U, {"delta": 0.1 * b[3]}, b))
        question = {"delta": 0.1 * b[3] * factor, "mix": W}
        sums = truth.of(_case(U, question, factor * b[order]))
        assert (sums.verdict, sums.clear) == (rows.verdict, rows.clear)
        assert sums.slack == pytest.approx(rows.slack, rel=1e-6)


def test_truth_knows_sums_that_cancel_and_sums_that_are_definite():
    U = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]])
    cancel, definite = np.array([[1.0, -1.0, 0.0]]), np.array([[1.0, 0.0, 2.0]])
    assert truth.of(_case(U, {"delta": 0.5, "mix": cancel}, [1.0])).verdict == "infeasible"
    assert truth.of(_case(U, {"delta": 0.5, "mix": cancel}, [0.4])).verdict == "feasible"
    negative = {"delta": 0.5, "mix": definite}
    assert truth.of(_case(U, negative, [-1.0])).verdict == "feasible"
    assert truth.of(_case(U, negative, [-1.0], psd=True)).verdict == "infeasible"


def test_independent_rows_always_fit_whatever_the_rounding():
    u = np.array([1.0, 1.0 / 3.0])
    nearly = u.copy()
    nearly[1] = np.nextafter(u[1], 1.0)
    found = truth.of(_case([u, nearly], {"delta": 1e-17}, np.array([1.0, 2.0])))
    assert found.verdict == "feasible" and not found.clear


# --- the checker catches lies --------------------------------------------------------------------


@pytest.fixture
def honest(rng):
    U = rng.standard_normal((9, 3))
    A = np.diag([1.0, 2.0, -1.0])
    b = np.einsum("ij,jk,ik->i", U, A, U)
    case = _case(U, {"delta": 0.01}, b)
    return case, quadsense.solve(U, b, delta=0.01)


def _found(case, result):
    return {name for name, _ in fuzz.judge(case, result)}


def test_the_checker_finds_nothing_wrong_with_an_honest_result(honest):
    case, result = honest
    assert result.status == "met"
    assert claims.met(case, result) == [] and claims.numbers(case, result) == []


def test_the_checker_catches_a_matrix_that_does_not_fit(honest):
    case, result = honest
    wrong = SensedMatrix.from_dense(np.asarray(result.matrix) + 0.1 * np.eye(3))
    lie = dataclasses.replace(result, matrix=wrong)
    assert "wrong verdict" in {name for name, _ in claims.met(case, lie)}
    assert "false number" in {name for name, _ in claims.numbers(case, lie)}


def test_the_checker_catches_a_false_infeasible(honest):
    case, result = honest
    case = dataclasses.replace(case, known=np.diag([1.0, 2.0, -1.0]), known_is_factor=False)
    lie = dataclasses.replace(result, status=quadsense.Status.INFEASIBLE)
    assert "wrong verdict" in _found(case, lie)


def test_the_checker_catches_lost_positivity_and_rank(honest):
    case, result = honest
    positive = dataclasses.replace(case, options={"psd": True})
    assert "wrong verdict" in {name for name, _ in claims.met(positive, result)}
    low = dataclasses.replace(case, options={"rank": 1})
    assert any("rank" in text for _, text in claims.met(low, result))


def test_the_checker_catches_false_bounds(rng):
    U = rng.standard_normal((9, 2))
    b = rng.standard_normal(9)
    case, result = _case(U, {}, b), quadsense.solve(U, b, prefer="minimax")
    known = truth.of(case)
    assert claims.optimal(case, result, known) == []
    certificate = result.certificate
    for name, factor in (("lower_bound", 1.02), ("upper_bound", 0.98), ("lower_bound", 0.5)):
        changed = dataclasses.replace(certificate, **{name: factor * getattr(certificate, name)})
        lie = dataclasses.replace(result, certificate=changed)
        assert claims.optimal(case, lie, known) != []


def test_the_checker_catches_what_a_file_loses(honest):
    _, result = honest
    assert fuzz.what_is_lost(result, result) == ""
    determined = dataclasses.replace(result.facts.determined, unseen=1)
    facts = dataclasses.replace(result.facts, determined=determined)
    other = dataclasses.replace(result, facts=facts)
    assert "message" in fuzz.what_is_lost(result, other)
    moved = SensedMatrix.from_dense(np.asarray(result.matrix) * (1.0 + 1e-9))
    assert "matrix" in fuzz.what_is_lost(result, dataclasses.replace(result, matrix=moved))


def test_the_checker_calls_a_failure_inside_a_library_a_crash(monkeypatch, honest):
    case, _ = honest
    monkeypatch.setattr(quadsense, "solve", lambda *a, **k: np.zeros(0).max())
    assert fuzz.check(case).category == "crash"


def test_the_checker_looks_past_a_floating_point_error_and_keeps_it(monkeypatch, honest):
    case, result = honest

    def underflowing(*_, **__):
        np.array([1e-300]) * 1e-300
        return dataclasses.replace(result, status=quadsense.Status.OPTIMAL)

    monkeypatch.setattr(quadsense, "solve", underflowing)
    found = [name for name, _ in fuzz.check(case).findings]
    assert found[0] == "wrong verdict" and "floating point" in found
