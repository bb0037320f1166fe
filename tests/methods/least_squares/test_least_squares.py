"""Least squares by steps of the first order, against CVXPY, SciPy and closed forms."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from helpers import deep, sampled
from squares_cases import forward, hermitian, normal, random_case, reference

import quadsense
from quadsense.core.products import features, pack
from quadsense.core.question import Question
from quadsense.methods import METHODS, Problem
from quadsense.methods.least_squares import face
from quadsense.methods.least_squares.bounds import SquaresStage, SquaresVerdict
from quadsense.methods.least_squares.program import LeastSquaresCone

CLOSE = 1e-5  # of costs, as far as an interior-point method finds them


@pytest.mark.parametrize("seed", sampled(range(120)))
def test_costs_are_those_of_an_interior_point_method(seed):
    case = random_case(seed)
    result = quadsense.solve(
        prefer="least_squares", method="least_squares", **{"ridge": 0.0, **case}
    )
    status, cost = reference(case)
    assert status.startswith("optimal")
    loose = 1.0 if status == "optimal" else 100.0
    assert result.status == ("met" if "bounds" in case else "optimal"), result.message
    assert result.objective == pytest.approx(cost, rel=loose * CLOSE, abs=loose * CLOSE)
    lower, upper = result.objective_bounds
    assert result.optimal
    assert lower <= result.objective <= upper
    assert upper - lower <= 1e-5 * (1.0 + upper)
    assert lower <= cost + loose * CLOSE * (1.0 + cost)
    given = {"bounds": case["bounds"]} if "bounds" in case else {}
    assert result.certificate.verify(case["data"], case["b"], **given)
    if "trace" in case:
        scale = max(1.0, result.matrix.norm())
        assert result.matrix.trace() == pytest.approx(case["trace"], abs=1e-13 * scale)


def test_the_cases_cover_what_they_are_to():
    cases = [random_case(seed) for seed in range(120)]
    for name in ("bounds", "trace", "ridge"):
        assert 20 <= sum(name in case for case in cases) <= 100
    assert sum(case["psd"] for case in cases) >= 60
    assert sum((case["weights"] == 0.0).any() for case in cases) >= 20
    assert sum(bool(case["constraints"]) for case in cases) >= 60
    assert sum(np.iscomplexobj(case["data"]) for case in cases) >= 40


def test_without_a_cone_it_is_the_solution_of_the_normal_equations(rng):
    U = normal(rng, 60, 6, is_complex=True)
    b, w = rng.standard_normal(60), rng.uniform(0.1, 2.0, 60)
    result = quadsense.solve(U, b, weights=w, prefer="least_squares", method="least_squares")
    F = np.stack([np.outer(u.conj(), u).ravel() for u in U])
    whole = np.sqrt(w)[:, None] * np.hstack([F.real, -F.imag])  # of Re A and Im A
    best = np.linalg.lstsq(whole, np.sqrt(w) * b)[1]
    residual = np.sum(w * (forward(U, result.A) - b) ** 2)
    free = whole @ np.linalg.lstsq(whole, np.sqrt(w) * b)[0] - np.sqrt(w) * b
    assert best.size == 0  # rank-deficient: A is Hermitian, F sees half of all
    assert residual == pytest.approx(float(free @ free), rel=1e-12)


def on_unit_rows(U, question, start=0.0, **named):
    """A problem on unit rows, with a question on the user's."""
    rows = quadsense.Measurements(U, np.zeros(len(U))).unit_rows
    norms = np.asarray(rows.norms)
    scaled = question.scaled(1.0 / norms**2)
    delta = np.ones(len(U))
    options = METHODS.traits("least_squares").options()
    b = np.zeros(len(U))
    return Problem(rows, b, delta, start, target=False, question=scaled, options=options, **named)


def squares(b, weights, psd, lo=-np.inf, hi=np.inf):
    free = np.zeros_like(b)
    return Question(
        "squares", lo + free, hi + free, weights + free, b, np.zeros(b.size, bool), psd=psd
    )


def run(problem):
    method = METHODS["least_squares"]()
    program = method.prepare(problem)
    state = method.start(program)
    while method.claim(program, state) is None:
        state = method.advance(program, state, 7)
    return method, program, state


def test_of_many_minimisers_the_nearest_to_the_prior_is_taken(rng):
    U = normal(rng, 12, 6, is_complex=False)
    U /= np.linalg.norm(U, axis=1)[:, None]
    U = np.vstack([U, U])
    b = rng.standard_normal(24)
    question = replace(squares(b, 1.0, False), prior=0.7)
    method, program, state = run(on_unit_rows(U, question, start=0.2))
    assert method.claim(program, state).kind == "optimal"
    F = np.stack([np.outer(u, u).ravel() for u in U])
    prior = 0.7 * np.eye(6).ravel()
    nearest = prior + np.linalg.pinv(F) @ (b - F @ prior)
    np.testing.assert_allclose(
        method.matrix(program, state).to_dense().ravel(), nearest, atol=1e-10
    )


@pytest.mark.parametrize(
    ("m", "n", "is_complex"), [deep(1000, 60, False), (300, 60, False), (700, 40, True)]
)
def test_what_no_row_sees_is_left_as_it_was(m, n, is_complex):
    # A slope that was carried along gathered rounding there, and A went off by its own size.
    rng = np.random.default_rng(5)
    U = normal(rng, m, n, is_complex=is_complex)
    X = normal(rng, n, 3, is_complex=is_complex)
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1) + 0.1 * rng.standard_normal(m)
    result = quadsense.solve(U, b, prefer="least_squares")
    assert result.optimal
    J = features(U)
    off = pack(result.A) - np.linalg.lstsq(J, b)[0]
    one = pack(np.eye(n, dtype=U.dtype))
    away = one - np.linalg.lstsq(J, J @ one)[0]  # the start is a multiple of I
    left = off - (off @ away) / (away @ away) * away
    assert np.linalg.norm(left) <= 1e-9 * np.linalg.norm(pack(result.A))


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("trace", [None, 2.5])
def test_the_projection_is_the_nearest_member(is_complex, trace, rng):
    cone = LeastSquaresCone(5, is_complex, True, trace)
    M = hermitian(rng, 5, is_complex)
    x = cone.pack(M)
    np.testing.assert_allclose(cone.unpack(x), M, atol=1e-15)
    P = cone.unpack(cone.project(x))
    assert np.linalg.eigvalsh(P)[0] >= -1e-14
    assert trace is None or np.trace(P).real == pytest.approx(trace, rel=1e-14)
    for _ in range(50):  # no other member lies on the far side
        X = normal(rng, 5, 2, is_complex=is_complex)
        other = X @ X.conj().T
        other = other if trace is None else trace * other / np.trace(other).real
        assert np.vdot(M - P, other - P).real <= 1e-12 * (1.0 + np.linalg.norm(other))


def test_a_fit_to_exact_readings_costs_nothing(rng):
    U = normal(rng, 90, 6, is_complex=True)
    X = normal(rng, 6, 2, is_complex=True)
    b = forward(U, X @ X.conj().T)
    method, program, state = run(on_unit_rows(U, squares(b, 1.0, True)))
    assert state.verdict is SquaresVerdict.OPTIMAL
    assert state.point.cost <= 1e-24 * program.squares.nothing
    A = method.matrix(program, state).to_dense()
    np.testing.assert_allclose(A, X @ X.conj().T, atol=1e-11)


@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize("seed", [1, 4, 9])
def test_the_size_of_the_readings_does_not_matter(seed, size):
    case = random_case(seed)
    plain = quadsense.solve(prefer="least_squares", method="least_squares", **case)
    case["b"] = size * case["b"]
    for name in ("trace", "prior"):
        if name in case:
            case[name] = size * case[name]
    if "bounds" in case:
        case["bounds"] = tuple(size * end for end in case["bounds"])
    case["constraints"] = [(C, size * lo, size * hi) for C, lo, hi in case["constraints"]]
    scaled = quadsense.solve(prefer="least_squares", method="least_squares", **case)
    assert scaled.status == plain.status
    assert scaled.objective / size / size == pytest.approx(plain.objective, rel=1e-6)


def test_what_cannot_be_met_is_left_to_others(rng):
    U = normal(rng, 40, 4, is_complex=False)
    U = np.vstack([U, U])
    b = np.concatenate([np.ones(40), 3.0 * np.ones(40)])
    problem = on_unit_rows(U, squares(b, 1.0, True, b - 0.5, b + 0.5))
    method, program, state = run(problem)
    assert method.claim(program, state).kind == "stalled"
    result = quadsense.solve(U, b, delta=0.5, psd=True, prefer="least_squares")
    assert result.status == "infeasible"


def test_other_questions_are_left_to_others(rng):
    U = normal(rng, 20, 4, is_complex=False)
    question = replace(squares(np.ones(20), 1.0, True), rows="within", lo=np.zeros(20))
    method, program, state = run(on_unit_rows(U, question))
    assert method.claim(program, state).kind == "stalled"
    assert method.matrix(program, state).trace() == 0.0
    assert method.dual(program, state) is None


@pytest.mark.slow
def test_large_orders_go_without_the_normal_matrix(rng):
    U = normal(rng, 700, 70, is_complex=False)
    X = rng.standard_normal((70, 2))
    b = forward(U, X @ X.T) + rng.standard_normal(700)
    method, program, state = run(on_unit_rows(U, squares(b, 1.0, True)))
    assert not program.squares.cost.formed and "H" not in vars(program.squares.cost)
    assert method.claim(program, state).kind == "optimal"
    assert state.stage is SquaresStage.DESCENT


def pauli_rows(qubits):
    """Outcomes of all products of Pauli measurements, one per row."""
    s = np.sqrt(0.5)
    bases = [np.array([[s, s], [s, -s]]), np.array([[s, 1j * s], [s, -1j * s]]), np.eye(2)]
    rows = np.ones((1, 1, 1), complex)
    for _ in range(qubits):
        rows = np.array([np.kron(R, B) for R in rows for B in bases])
    return rows.reshape(-1, 2**qubits)


@pytest.mark.slow
def test_tomography_is_as_good_as_by_an_interior_point_method():
    U, n, shots = pauli_rows(3), 8, 1000
    assert len(U) == 6**3
    found, best = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = normal(rng, n, n, is_complex=True)
        rho = X @ X.conj().T
        rho /= np.trace(rho).real
        p = forward(U, rho).reshape(-1, n)
        k = np.concatenate([rng.multinomial(shots, q / q.sum()) for q in p])
        bounds = quadsense.bounds_from_counts(k, shots)
        result = quadsense.solve(U, k / shots, bounds=bounds, psd=True, trace=1.0, gap=1e-7)
        assert result.status == "met" and result.optimal
        assert result.plan["methods"][0] == "least_squares" and result.prefer == "least_squares"
        half = 0.5 * (bounds[1] - bounds[0])
        case = {"data": U, "b": k / shots, "weights": half**-2.0, "psd": True, "trace": 1.0}
        _, cost = reference({**case, "bounds": bounds, "constraints": ()})
        assert result.objective == pytest.approx(cost, rel=1e-5)
        found.append(result.objective)
        best.append(cost)
    assert np.mean(found) <= np.mean(best) * (1.0 + 1e-6)


# --- least squared misses ----------------------------------------------------------------------


def pairs(seed, m=80, n=5, is_complex=False):
    """Differences of points that are to be near (at most 1) or far (at least 4)."""
    rng = np.random.default_rng([7, seed])
    U = normal(rng, m, n, is_complex=is_complex) * rng.uniform(0.3, 3.0, n)
    near = rng.integers(2, size=m) == 0
    return U, np.where(near, -np.inf, 4.0), np.where(near, 1.0, np.inf)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("seed", sampled(range(12), 5))
def test_squared_misses_are_the_least(seed, is_complex):
    U, lo, hi = pairs(seed, is_complex=is_complex)
    n = U.shape[1]
    result = quadsense.solve(U, bounds=(lo, hi), psd=True, slack="squares", method="least_squares")
    A = cp.Variable((n, n), hermitian=True) if is_complex else cp.Variable((n, n), symmetric=True)
    v = np.stack([np.outer(u.conj(), u).ravel() for u in U]) @ cp.vec(A, order="C")
    v = cp.real(v) if is_complex else v
    near = np.flatnonzero(np.isfinite(hi))
    far = np.flatnonzero(np.isfinite(lo))
    cost = cp.sum_squares(cp.pos(v[near] - 1.0)) + cp.sum_squares(cp.pos(4.0 - v[far]))
    problem = cp.Problem(cp.Minimize(cost), [A >> 0])
    with np.errstate(all="ignore"):
        problem.solve(solver="CLARABEL")
    assert problem.status.startswith("optimal")
    assert result.status == "optimal" and result.optimal
    assert result.objective == pytest.approx(problem.value, rel=1e-4)
    lower, upper = result.objective_bounds
    assert lower <= result.objective <= upper <= lower * (1.0 + 1e-6)
    assert result.certificate.verify(U, bounds=(lo, hi))


def test_of_many_pairs_the_missed_ones_are_enough():
    U, lo, hi = pairs(1, m=3000, n=12)
    result = quadsense.solve(U, bounds=(lo, hi), psd=True, slack="squares")
    assert result.plan["methods"][0] == "least_squares"
    assert result.status == "optimal" and result.optimal
    assert np.count_nonzero(result.certificate.objective.dual) < 3000


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_that_can_be_met_is_no_trap(seed):
    # Of 900 pairs of three classes an eighth can be told apart, all together cannot.
    rng = np.random.default_rng(seed)
    classes = rng.integers(3, size=120)
    X = 1.2 * rng.standard_normal((3, 13))[classes] + rng.standard_normal((120, 13))
    i, j = rng.integers(120, size=(2, 900))
    U, alike = (X[i] - X[j])[i != j], (classes[i] == classes[j])[i != j]
    v = np.sum(U * U, axis=1)
    lo = np.where(alike, -np.inf, np.minimum(np.median(v[~alike]), 2.0 * v))
    hi = np.where(alike, np.maximum(np.median(v[alike]), 0.5 * v), np.inf)
    result = quadsense.solve(U, bounds=(lo, hi), psd=True, slack="squares", method="least_squares")
    assert result.status == "optimal" and result.optimal
    assert result.certificate.verify(U, bounds=(lo, hi))


def test_where_nothing_need_be_missed_all_is_met(rng):
    U = normal(rng, 60, 5, is_complex=False)
    v = forward(U, np.diag([3.0, 1.0, 1.0, 0.5, 0.1]))
    lo, hi = (
        np.where(np.arange(60) % 2, 0.8 * v, -np.inf),
        np.where(np.arange(60) % 3, 1.2 * v, np.inf),
    )
    result = quadsense.solve(U, bounds=(lo, hi), psd=True, slack="squares", method="least_squares")
    assert result.met and result.objective == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled([0, 1, 2, 5], 1))
@pytest.mark.parametrize("noise", [1e-6, 1e-5, 1e-4])
@pytest.mark.parametrize("kind", ["real", "complex", "equality", "end"])
def test_small_noise_does_not_leave_least_squares_in_the_cone_unproved(kind, noise, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 7))
    m = int(rng.integers(n * n, 3 * n * n))
    parts = 1j if kind == "complex" else 0.0
    U = rng.standard_normal((m, n)) + parts * rng.standard_normal((m, n))
    X = rng.standard_normal((n, 2)) + parts * rng.standard_normal((n, 2))
    A = X @ X.conj().T
    b = np.einsum("ij,jk,ik->i", U.conj(), A, U).real + noise * rng.standard_normal(m)
    C = rng.standard_normal((n, n))
    C = C + C.T
    value = float(np.sum(C * A).real)
    asked = {}
    if kind == "equality":
        asked["constraints"] = [(C, value, value)]
    elif kind == "end":
        asked["constraints"] = [(C, -np.inf, value)]
    result = quadsense.solve(U, b, psd=True, prefer="least_squares", **asked)
    assert result.status == "optimal", result.message
    assert result.verify(U, b)
    low, high = result.objective_bounds
    planted = np.sum((np.einsum("ij,jk,ik->i", U.conj(), A, U).real - b) ** 2)
    assert low <= planted
    room = 1e-16 * float(np.sum(b**2))  # readings of eight digits
    assert high - low <= max(0.01 * high, room)
    assert result.objective <= planted * (1.0 + 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_exact_readings_of_a_definite_matrix_need_no_newton_step(monkeypatch, seed):
    monkeypatch.delattr(face, "on_face")
    rng = np.random.default_rng(seed)
    X, U = rng.standard_normal((6, 6)), rng.standard_normal((60, 6))
    b = forward(U, X @ X.T)
    result = quadsense.solve(U, b, delta=1e-3, psd=True, prefer="least_squares")
    assert (result.plan["method"], result.met, result.optimal) == ("least_squares", True, True)
    assert result.verify(U, b)


@pytest.mark.parametrize(("n", "m"), [(8, 60), (12, 120)])
def test_slow_least_squares_in_the_cone_is_left_to_a_method_that_follows(n, m):
    rng = np.random.default_rng(0)
    x, U = rng.standard_normal((n, 1)), rng.standard_normal((m, n))
    b = forward(U, x @ x.T) + rng.uniform(-0.1, 0.1, m)
    asked = {"delta": 0.1, "psd": True, "prefer": "least_squares"}
    quick = quadsense.solve(U, b, **asked)
    alone = quadsense.solve(U, b, method="least_squares", **asked)
    assert quick.optimal and alone.optimal and quick.met and alone.met
    assert quick.n_iter < alone.n_iter
    low, high = alone.objective_bounds
    assert quick.objective_bounds[0] <= high and low <= quick.objective_bounds[1]


@pytest.mark.parametrize("complex_", [False, True])
def test_turns_change_nothing_and_their_equations_are_solved_like_any(complex_, rng):
    X = rng.standard_normal((5, 3)) + (1j * rng.standard_normal((5, 3)) if complex_ else 0.0)
    turns = face._turns(X)
    assert turns.shape == ((30, 9) if complex_ else (15, 3))
    for turn in turns.T:
        D = np.ascontiguousarray(turn).view(X.dtype).reshape(X.shape)
        np.testing.assert_allclose(D @ X.conj().T + X @ D.conj().T, 0.0, atol=1e-13)
    # Equations that see all but the turns, with an end held.
    basis = np.linalg.qr(turns)[0]
    across = np.eye(len(turns)) - basis @ basis.T
    M = across @ rng.standard_normal((len(turns), len(turns)))
    e = across @ rng.standard_normal(len(turns))
    K = np.block([[M @ M.T, e[:, None]], [e[None, :], np.zeros((1, 1))]])
    right = K @ rng.standard_normal(len(K))
    found = face._solved(K, right, X)
    expected = np.linalg.lstsq(K, right, rcond=1e-10)[0]
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
