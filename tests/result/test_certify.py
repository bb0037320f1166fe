"""`certify`: answers of other solvers, judged against exact arithmetic."""

import exact
import numpy as np
import pytest

import quadsense

cp = pytest.importorskip("cvxpy")


def problem(seed, feasible=True):
    """Rows, readings of a positive semidefinite matrix, a tolerance."""
    rng = np.random.default_rng([27, seed])
    n = int(rng.integers(2, 5))
    U = rng.standard_normal((n * n + 2, n))
    X = rng.standard_normal((n, 2))
    b = np.sum((U @ X) ** 2, axis=1)
    if not feasible:
        b[: n // 2 + 1] = -1.0
    return U, b, 0.05


def solved(U, b, delta, solver, **options):
    """A, made symmetric, and multipliers of the upper minus those of the lower ends."""
    n = U.shape[1]
    A = cp.Variable((n, n), PSD=True)
    v = cp.sum(cp.multiply(U @ A, U), axis=1)
    ends = [v <= b + delta, v >= b - delta]
    task = cp.Problem(cp.Minimize(cp.trace(A)), ends)
    task.solve(solver=solver, **options)
    if A.value is None:
        return None, None
    return (A.value + A.value.T) / 2, ends[0].dual_value - ends[1].dual_value


def truly_met(U, b, delta, A):
    """Whether every reading is within its interval, by fractions."""
    values = exact.quadratic(U, A)
    sides = zip(values, exact.fractions(b), strict=True)
    room = exact.fractions([delta])[0]
    return all(abs(value - reading) <= room for value, reading in sides)


def judge(seed, solver, **options):
    """Compare what `certify` says of one answer with exact arithmetic."""
    U, b, delta = problem(seed)
    A, dual = solved(U, b, delta, solver, **options)
    found = quadsense.certify(U, b, A, dual, delta=delta, prefer="min_trace")
    met = truly_met(U, b, delta, A)
    assert found.kind != "infeasible"
    assert met or found.kind == "none"
    # What is claimed can be recomputed, and is never more than what is true.
    assert found.verify(U, b, delta=delta) == (found.kind == "met")
    best = quadsense.solve(U, b, delta=delta, prefer="min_trace", psd=True).objective_bounds[1]
    bound = found.objective.lower
    assert bound <= best * (1 + 1e-9) + 1e-9
    return met, found


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_of_clarabel_is_met_and_near_the_best_within_its_tolerance(seed):
    U, b, delta = problem(seed)
    A, dual = solved(U, b, delta, "CLARABEL")
    found = quadsense.certify(U, b, A, dual, delta=delta + 1e-5, prefer="min_trace")
    assert found.kind == "met"
    assert found.verify(U, b, delta=delta + 1e-5)


def test_a_loose_answer_of_scs_is_not_called_met():
    U, b, delta = problem(1)
    A, dual = solved(U, b, delta, "SCS", eps_abs=1e-2, eps_rel=1e-2)
    found = quadsense.certify(U, b, A, dual, delta=delta)
    assert not truly_met(U, b, delta, A)
    assert found.kind == "none"
    assert found.upper_bound > 1.0
    assert not found.verify(U, b, delta=delta)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_dual_vector_of_either_sign_is_a_proof(sign):
    U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    b, y = [1.0, 1.0, 6.0], [2.2, 2.2, -1.0]
    found = quadsense.certify(U, b, dual=sign * np.array(y), delta=0.25, psd=True)
    assert found.kind == "infeasible"
    assert found.verify(U, b, delta=0.25)
    assert quadsense.certify(U, b, dual=[1.0, 1.0, 1.0], delta=0.25, psd=True).kind == "none"


def test_an_infeasibility_proof_of_clarabel_is_one():
    U, b, delta = problem(3, feasible=False)
    n = U.shape[1]
    A = cp.Variable((n, n), PSD=True)
    t = cp.Variable()
    v = cp.sum(cp.multiply(U @ A, U), axis=1)
    ends = [v - b <= delta * t, b - v <= delta * t]
    cp.Problem(cp.Minimize(t), ends).solve(solver="CLARABEL")
    y = ends[0].dual_value - ends[1].dual_value
    found = quadsense.certify(U, b, dual=y, delta=delta, psd=True)
    assert found.kind == "infeasible"
    assert found.lower_bound == pytest.approx(float(t.value), rel=1e-4)
    assert found.verify(U, b, delta=delta)


def test_the_worst_error_without_a_tolerance_is_bounded():
    U, b, _ = problem(5)
    b = b + np.random.default_rng(0).uniform(-1, 1, len(b))
    n = U.shape[1]
    A, t = cp.Variable((n, n), symmetric=True), cp.Variable()
    v = cp.sum(cp.multiply(U @ A, U), axis=1)
    ends = [v - b <= t, b - v <= t]
    cp.Problem(cp.Minimize(t), ends).solve(solver="CLARABEL")
    y = ends[0].dual_value - ends[1].dual_value
    found = quadsense.certify(U, b, A.value, y, gap=1e-4)
    assert found.kind == "optimal"
    assert found.lower_bound <= t.value * (1 + 1e-6)
    assert found.lower_bound == pytest.approx(float(t.value), rel=1e-4)
    assert found.verify(U, b)
    worse = quadsense.certify(U, b, 1.1 * A.value, y, gap=1e-4)
    assert worse.kind == "none"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"A": np.eye(3)}, r"A has shape \(3, 3\)"),
        ({"A": [[1.0, 2.0], [0.0, 1.0]]}, "symmetric"),
        ({"A": [[1.0, np.nan], [np.nan, 1.0]]}, "finite"),
        ({"A": np.eye(2) * (1 + 0j)}, "real part"),
        ({"dual": [1.0]}, "dual"),
        ({"prefer": "center"}, "prefer must be one of"),
    ],
)
def test_wrong_calls_are_refused_in_one_sentence(change, words):
    given = {"A": np.eye(2), "dual": None} | change
    with pytest.raises(ValueError, match=words):
        quadsense.certify(np.eye(2), [1.0, 1.0], delta=0.1, **given)


@pytest.mark.deep
@pytest.mark.parametrize("solver", ["SCS", "CLARABEL"])
def test_100_answers_are_judged_as_exact_arithmetic_does(solver):
    pairs = [judge(seed, solver, **options) for seed in range(25) for options in TOLERANCES[solver]]
    met = sum(truth for truth, _ in pairs)
    assert 0 < sum(found.kind == "met" for _, found in pairs) <= met < len(pairs)


TOLERANCES = {
    "SCS": [{"eps_abs": 1e-2, "eps_rel": 1e-2}, {"eps_abs": 1e-9, "eps_rel": 1e-9}],
    "CLARABEL": [{"tol_gap_abs": 1e-2, "tol_gap_rel": 1e-2, "tol_feas": 1e-2}, {}],
}
