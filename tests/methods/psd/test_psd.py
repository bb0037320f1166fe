"""Properties of the positive semidefinite solver other than its verdict."""

from __future__ import annotations

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from helpers import sampled
from psd_helpers import rows, smallest_worst_miss, unknown
from scipy.optimize import check_grad

import quadsense
from quadsense.core.intervals import Array, Intervals
from quadsense.core.products import adjoint
from quadsense.core.products import forward as forward_dense
from quadsense.measurements.sensing import Sensing
from quadsense.methods import conic as conic_traits
from quadsense.methods.conic.coordinates import ScaledCoordinates, forward_error
from quadsense.methods.conic.solve import advance_ratio, start_ratio
from quadsense.methods.conic.system import KernelSystem
from quadsense.methods.psd import phases, searches
from quadsense.methods.psd.phases import SearchVerdict, prepare
from quadsense.proofs.positive import (
    certify,
    floor_within_span,
    smallest_eigenvalue_bound,
)


@pytest.fixture(params=["real", "complex"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def literal_forward(U: Array, A: Array) -> np.ndarray:
    return np.array([(u.conj() @ A @ u).real for u in U])


def exactly_positive_semidefinite(U: Array, y: np.ndarray) -> bool:
    """Return whether ``F*(y) >= 0``, in rational arithmetic (real embedding when complex)."""
    parts = [(u.real, u.imag) for u in U]
    n = U.shape[1]
    total = [[Fraction(0)] * (2 * n) for _ in range(2 * n)]
    for (p, q), weight in zip(parts, y, strict=True):
        p, q, w = [Fraction(x) for x in p], [Fraction(x) for x in q], Fraction(weight)
        # u u* as a real matrix is a a' + c c' with a = (p, q), c = (-q, p).
        for vector in (p + q, [-x for x in q] + p):
            for j, left in enumerate(vector):
                if left:
                    for k, right in enumerate(vector):
                        total[j][k] += w * left * right
    while total:
        pivots = [row[k] for k, row in enumerate(total)]
        k = max(range(len(total)), key=pivots.__getitem__)
        if pivots[k] < 0 or min(pivots) < 0:
            return False
        if pivots[k] == 0:
            return all(x == 0 for row in total for x in row)
        head = total[k]
        total = [
            [
                x - row[k] * h / head[k]
                for c, (x, h) in enumerate(zip(row, head, strict=True))
                if c != k
            ]
            for r, row in enumerate(total)
            if r != k
        ]
    return True


def test_maps_match_their_definitions(kind: str) -> None:
    rng = np.random.default_rng(0)
    U = rows(rng, 17, 6, kind)
    X = rows(rng, 6, 4, kind)
    A, y = X @ X.conj().T, rng.standard_normal(17)
    truth = literal_forward(U, A)
    # 6 * 4 products of size at most ||X||_F^2 = 6: errors of a few eps each.
    np.testing.assert_allclose(Sensing.of(U).factored(X), truth, atol=6 * 24 * 2.3e-16)
    np.testing.assert_allclose(forward_dense(U, A), truth, atol=6 * 24 * 2.3e-16)
    np.testing.assert_allclose(forward_dense(np.asfortranarray(U), A), truth, atol=6 * 24 * 2.3e-16)
    sums = sum(c * np.outer(u, u.conj()) for c, u in zip(y, U, strict=True))
    np.testing.assert_allclose(adjoint(U, y), sums, atol=17 * 4 * 2.3e-16)
    np.testing.assert_allclose(np.vdot(adjoint(U, y), A).real, y @ truth, rtol=1e-13)


def test_forward_error_covers_the_rounding(kind: str) -> None:
    rng = np.random.default_rng(1)
    U, X = rows(rng, 30, 12, kind), 1e3 * rows(rng, 12, 12, kind)
    wide = literal_forward(U.astype(np.clongdouble), (X @ X.conj().T).astype(np.clongdouble))
    exact = np.sum(np.abs(U.astype(np.clongdouble) @ X.conj().astype(np.clongdouble)) ** 2, axis=1)
    off = float(np.max(np.abs(Sensing.of(U).factored(X) - exact)))
    assert off <= forward_error(Sensing.of(U), X) < 1e-12 * float(np.max(np.abs(wide)))


def test_nearest_gradient_is_the_residual(kind: str) -> None:
    rng = np.random.default_rng(2)
    U = rows(rng, 12, 5, kind)
    b = rng.uniform(0.5, 1.5, 12)
    origin = np.eye(5, dtype=U.dtype)

    def value(y: np.ndarray) -> float:
        return searches._evaluate(Sensing.of(U), b, origin, y)[0]

    def slope(y: np.ndarray) -> np.ndarray:
        return -searches._evaluate(Sensing.of(U), b, origin, y)[1]

    for _ in range(5):
        # Forward differences of step 1.5e-8 on a function with curvature of order 1.
        assert check_grad(value, slope, rng.standard_normal(12)) < 1e-5


def test_nearest_is_the_nearest_matrix(kind: str) -> None:
    rng = np.random.default_rng(3)
    n, m = 5, 9
    U = rows(rng, m, n, kind)
    X = rows(rng, n, 2, kind)
    b = Sensing.of(U).factored(X)
    intervals = Intervals.around(b, np.full(m, 1e-9))
    origin = 0.3 * np.eye(n, dtype=U.dtype)
    state = searches.start_nearest(Sensing.of(U), intervals, origin)
    state = searches.advance_nearest(Sensing.of(U), intervals, origin, state, 500)
    assert state.max_ratio < 1.0
    A, values = unknown(U)
    distance = cp.Minimize(cp.sum_squares(A - origin))
    cp.Problem(distance, [values == b, A >> 0]).solve(solver=cp.CLARABEL)
    # Clarabel stops at 1e-8 in the objective, so at 1e-4 in the matrix.
    np.testing.assert_allclose(state.X @ state.X.conj().T, A.value, atol=2e-4)


def test_symmetric_fit_is_kept_where_it_is_positive_semidefinite(kind: str) -> None:
    rng = np.random.default_rng(4)
    n, m = 12, 20
    U = rows(rng, m, n, kind)
    b = 1.0 + 0.02 * rng.standard_normal(m)
    K = np.abs(U @ U.conj().T) ** 2
    tau = float(np.mean(b))
    fit = tau * np.eye(n) - adjoint(U, np.linalg.solve(K, tau - b))
    assert np.linalg.eigvalsh(fit)[0] > 0
    problem = prepare(U, Intervals.around(b, np.full(m, 1e-10)))
    state = phases.advance(problem, phases.start(problem), 200)
    assert state.verdict is SearchVerdict.MET
    # The residual of 1e-10 over the smallest eigenvalue of K.
    slack = 1e-10 * np.sqrt(m) / np.sqrt(np.linalg.eigvalsh(K)[0])
    np.testing.assert_allclose(state.X @ state.X.conj().T, fit, atol=slack)
    assert isinstance(state.inner, searches.SymmetricState)
    parts = phases.start(problem)
    for _ in range(state.iteration):
        parts = phases.advance(problem, parts, 1)
    np.testing.assert_array_equal(parts.X, state.X)


def test_an_indefinite_symmetric_fit_is_left(kind: str) -> None:
    rng = np.random.default_rng(4)
    n, m = 12, 60
    U = rows(rng, m, n, kind)
    b = Sensing.of(U).factored(rows(rng, n, 1, kind))
    problem = prepare(U, Intervals.around(b, np.full(m, 1e-3 * float(np.mean(b)))))
    begun = phases.start(problem)
    assert isinstance(begun.inner, searches.SymmetricState)
    state = phases.advance(problem, begun, 500)
    assert state.verdict is SearchVerdict.MET
    assert not isinstance(state.inner, searches.SymmetricState)
    fit = searches.advance_symmetric(problem.system, begun.inner, 50)
    assert fit.left and fit.iteration <= 4


def test_a_slow_symmetric_fit_is_left_and_a_stop_gives_its_last_iterate() -> None:
    rng = np.random.default_rng(0)
    n, m = 25, 320
    X = rng.standard_normal((n, 2 * n))
    U = rng.standard_normal((m, n)) * np.logspace(0, -2, n)
    U /= np.linalg.norm(U, axis=1)[:, None]
    b = np.einsum("ij,jk,ik->i", U, np.eye(n) + 0.02 * X @ X.T / n, U)
    problem = prepare(U, Intervals.around(b, np.full(m, 1e-7)))
    begun = phases.start(problem)
    assert isinstance(begun.inner, searches.SymmetricState)
    fit = searches.advance_symmetric(problem.system, begun.inner, 5000)
    assert fit.left and 16 <= fit.iteration <= 256
    stopped = searches.advance_symmetric(problem.system, begun.inner, 13)
    values = np.einsum("ij,jk,ik->i", U, stopped.X @ stopped.X.T, U)
    assert stopped.max_ratio == pytest.approx(np.abs(values - b).max() / 1e-7, rel=1e-3)
    assert stopped.max_ratio == pytest.approx(stopped.fit.max_ratio)


def test_projection_solves_its_optimality_conditions(kind: str) -> None:
    rng = np.random.default_rng(5)
    X = rows(rng, 6, 6, kind)
    B, G = X + X.conj().T, rows(rng, 6, 6, kind)
    G = G + G.conj().T
    for coupling in (0.5, 1.0):
        Y = searches._project(B, G, coupling)
        A = Y @ Y.conj().T
        D = A - B
        S = D + coupling * np.trace(D).real * np.eye(6) + G
        assert np.linalg.eigvalsh(S)[0] > -1e-12
        assert abs(np.vdot(S, A)) < 1e-12


@pytest.mark.parametrize("m", [5, 60])
def test_systems_of_a_step_are_solved(kind: str, m: int) -> None:
    # n = 4 has 10 or 16 unknowns: m = 5 goes by rows, m = 60 by unknowns.
    rng = np.random.default_rng(20)
    U = rows(rng, m, 4, kind)
    G = rows(rng, 4, 4, kind)
    E = 10.0 ** rng.uniform(-8, 8, m)
    h, R = rng.standard_normal(m), rows(rng, 4, 4, kind)
    R = R + R.conj().T
    system = KernelSystem(ScaledCoordinates(Sensing.of(U), G, 1.0), E, np.zeros(m, dtype=bool))
    x, y, _ = system.solve(R, h)
    V = U @ G.conj()
    image = literal_forward(V, x)
    # Each row is in proportion to its own terms.
    assert np.max(np.abs(image - E * y - h) / (np.abs(image) + np.abs(E * y) + np.abs(h))) < 1e-7
    parts = np.linalg.norm(x) + np.sum(np.abs(y) * np.linalg.norm(V, axis=1) ** 2)
    assert np.linalg.norm(x + adjoint(V, y) - R) < 1e-13 * (parts + np.linalg.norm(R))


def test_the_kernel_finds_the_smallest_worst_miss(kind: str) -> None:
    rng = np.random.default_rng(6)
    n, m = 6, 60
    U = rows(rng, m, n, kind)
    b = rng.uniform(0.5, 1.5, m)
    best = smallest_worst_miss(U, b)
    intervals = Intervals.around(b, np.full(m, 0.1))
    program = prepare(U, intervals).kernel
    state = start_ratio(program, intervals)
    for _ in range(11):
        state = advance_ratio(program, intervals, state)
    proof = certify(Sensing.of(U), intervals, state.y)
    assert proof.lower_bound <= 10 * best + 1e-8
    assert 10 * best - 1e-8 <= state.max_ratio
    assert state.max_ratio - proof.lower_bound < 1e-4


def test_the_smallest_error_brackets_that_of_clarabel(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    n, m = 5, 45
    U = rows(rng, m, n, kind)
    b = rng.uniform(0.5, 1.5, m)
    truth = smallest_worst_miss(U, b)
    asked = {"psd": True, "prefer": "minimax", "method": "psd"}
    for limit, gap in (
        (conic_traits.MAX_ARRAY_ENTRIES, 1e-4),
        (0, 1e-2),
    ):  # by the kernel, by bisection
        monkeypatch.setattr(conic_traits, "MAX_ARRAY_ENTRIES", limit)
        found = quadsense.solve(U, b, gap=gap, **asked)
        lower, upper = found.objective_bounds
        assert lower - 1e-7 <= truth <= upper + 1e-7
        assert upper <= (1 + gap) * lower
        assert found.optimal


@pytest.mark.parametrize("seed", sampled(range(12), 6))
def test_certificates_hold_in_exact_arithmetic(seed: int, kind: str) -> None:
    rng = np.random.default_rng([seed, 9])
    n, m = 3, 14
    U = rows(rng, m, n, kind)
    b = rng.uniform(0.0, 2.0, m)
    delta = 0.9 * smallest_worst_miss(U, b)
    intervals = Intervals.around(b, np.full(m, delta))
    problem = prepare(U, intervals)
    state = phases.advance(problem, phases.start(problem), 2000)
    assert state.verdict is SearchVerdict.INFEASIBLE
    y = state.certificate.y
    ends = np.where(y > 0, intervals.hi, intervals.lo)
    assert sum(Fraction(v) * Fraction(e) for v, e in zip(y, ends, strict=True)) < 0
    assert exactly_positive_semidefinite(U, y)


def test_eigenvalue_bound_is_below_the_eigenvalue_and_close(kind: str) -> None:
    rng = np.random.default_rng(10)
    U = rows(rng, 40, 8, kind)
    for y in (rng.standard_normal(40), np.ones(40), 1e-8 * rng.standard_normal(40)):
        truth = np.linalg.eigvalsh(adjoint(U, y))[0]
        bound = smallest_eigenvalue_bound(Sensing.of(U), y)
        assert truth - 1e-11 * np.sum(np.abs(y)) <= bound <= truth + 1e-15 * np.sum(np.abs(y))


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("count", [1, 4, 12])
def test_few_rows_of_many_entries_are_bounded_within_their_span(kind, count):
    rng = np.random.default_rng(count)
    U, y = rows(rng, count, 60, kind), rng.standard_normal(count)
    if count > 1:
        U[-1], y[-1] = U[0], -y[0]  # what cancels leaves roundings only
    truth = np.linalg.eigvalsh(adjoint(U, y))[0]
    bound = smallest_eigenvalue_bound(Sensing.of(U), y)
    assert truth - 1e-10 < bound <= truth + 1e-15
    assert smallest_eigenvalue_bound(Sensing.of(U[[0, 0]]), np.array([1.0, -1.0])) > -1e-12


@pytest.mark.parametrize("complex_", [False, True])
def test_few_rows_are_lifted_within_their_span(complex_):
    rng = np.random.default_rng(12)
    for _ in range(30):
        n = int(rng.integers(3, 9))
        m = int(rng.integers(1, n))
        U = rng.standard_normal((m, n)) + (1j * rng.standard_normal((m, n)) if complex_ else 0.0)
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        if m > 1 and rng.random() < 0.3:  # nearly dependent
            U[0] = U[1] + 10.0 ** rng.uniform(-12.0, -3.0) * U[0]
        twice = U[np.r_[np.arange(m), rng.integers(0, m, 3)]]
        d, F = np.ones(m + 3), Sensing.of(twice)
        true = np.linalg.eigvalsh(U.conj() @ U.T)[0]
        found = floor_within_span(F, d, d)
        assert found <= max(true, 0.0) * (1.0 + 1e-9)
        assert found >= 0.99 * true - 1e-12
        assert floor_within_span(F, np.where(np.arange(m + 3) == 1, 0.0, d), d) == 0.0
        full = Sensing.of(np.vstack([np.eye(n), U]))  # dependent
        assert floor_within_span(full, np.ones(n + m), np.ones(n + m)) == 0.0


def test_the_least_error_of_rows_that_do_not_span_the_space_is_proved_without_condition():
    rng = np.random.default_rng(13)
    U = rng.standard_normal((3, 6))
    U = U[[0, 1, 2, 0, 1]]
    b = np.array([1.0, 2.0, -1.0, 1.5, 2.0])
    result = quadsense.solve(U, b, psd=True, prefer="minimax", gap=1e-6)
    assert result.status == "optimal" and result.verify(U, b)
    assert result.certificate.condition == ""
    assert result.objective == pytest.approx(1.0, rel=1e-5)


def test_a_vector_that_proves_nothing_is_not_believed(kind: str) -> None:
    rng = np.random.default_rng(11)
    U = rows(rng, 30, 4, kind)
    X = rows(rng, 4, 4, kind)
    intervals = Intervals.around(Sensing.of(U).factored(X), np.full(30, 1e-3))
    for _ in range(20):
        proof = certify(Sensing.of(U), intervals, rng.standard_normal(30))
        assert not proof.infeasible
        # Every fit has at least this trace, and X X* fits.
        assert proof.trace_bound <= np.vdot(X, X).real
        assert proof.lower_bound <= 1.0


def test_one_sided_bounds(kind: str) -> None:
    rng = np.random.default_rng(12)
    n, m = 5, 40
    U = rows(rng, m, n, kind)
    values = Sensing.of(U).factored(rows(rng, n, 3, kind))
    lo, hi = (
        np.where(rng.random(m) < 0.5, -np.inf, values),
        np.where(rng.random(m) < 0.3, np.inf, values + 1e-3),
    )
    intervals = Intervals.between(lo, hi)
    problem = prepare(U, intervals)
    state = phases.advance(problem, phases.start(problem), 2000)
    assert state.verdict is SearchVerdict.MET
    reached = literal_forward(U, state.X @ state.X.conj().T)
    assert np.all(reached <= hi)
    assert np.all(reached >= lo)


def test_one_sided_bounds_that_contradict_each_other(kind: str) -> None:
    # The mean over a basis is tr(A)/n, so one u cannot exceed the sum over a basis that holds it.
    n = 4
    U = np.concatenate([np.eye(n), np.full((1, n), 0.5)]).astype(
        np.complex128 if kind == "complex" else np.float64
    )
    # u = sum of e_i/2 gives u* A u <= (sum sqrt(A_ii)/2)^2 <= 4 with A_ii <= 1.
    for low, expected in ((3.9, SearchVerdict.MET), (4.1, SearchVerdict.INFEASIBLE)):
        lo = np.array([-np.inf] * n + [low])
        hi = np.array([1.0] * n + [np.inf])
        problem = prepare(U, Intervals.between(lo, hi))
        state = phases.advance(problem, phases.start(problem), 2000)
        assert state.verdict is expected


def test_more_unknowns_than_rows_forms_nothing_large(kind: str) -> None:
    rng = np.random.default_rng(13)
    n, m = 3000, 20
    U = rows(rng, m, n, kind)
    b = rng.uniform(0.5, 1.5, m)
    problem = prepare(U, Intervals.around(b, np.full(m, 1e-6)))
    assert problem.rows.shape == (m, m)
    state = phases.advance(problem, phases.start(problem), 500)
    assert state.verdict is SearchVerdict.MET
    assert state.X.shape[1] <= m
    assert np.max(np.abs(Sensing.of(U).factored(state.X) - b)) <= 1e-6


def test_rows_in_a_subspace(kind: str) -> None:
    rng = np.random.default_rng(14)
    U = rows(rng, 40, 3, kind) @ rows(rng, 3, 6, kind)
    U /= np.linalg.norm(U, axis=1)[:, None]
    b = rng.uniform(0.0, 2.0, 40)
    for scale, expected in ((1.05, SearchVerdict.MET), (0.9, SearchVerdict.INFEASIBLE)):
        delta = scale * smallest_worst_miss(U, b)
        problem = prepare(U, Intervals.around(b, np.full(40, delta)))
        assert problem.rows.shape[1] == 3
        state = phases.advance(problem, phases.start(problem), 2000)
        assert state.verdict is expected
        if expected is SearchVerdict.INFEASIBLE:
            assert state.certificate.trace_bound > problem.max_trace


def test_one_negative_reading_is_a_proof(kind: str) -> None:
    rng = np.random.default_rng(15)
    U = rows(rng, 5, 9, kind)
    b = np.array([1.0, 1.0, -0.2, 1.0, 1.0])
    state = phases.start(prepare(U, Intervals.around(b, np.full(5, 0.1))))
    assert state.verdict is SearchVerdict.INFEASIBLE
    assert state.certificate.infeasible


def test_met_is_not_said_of_what_rounding_may_undo(kind: str) -> None:
    # I fits as computed, residual 0; but a delta below the rounding bound is not proved met.
    U = np.eye(4, dtype=np.complex128 if kind == "complex" else np.float64)
    b = np.ones(4)
    for delta, expected in ((1e-17, SearchVerdict.UNDECIDED), (1e-12, SearchVerdict.MET)):
        problem = prepare(U, Intervals.of(b - delta, b + delta, np.full(4, delta)))
        state = phases.advance(problem, phases.start(problem), 1000)
        assert state.verdict is expected


def test_degenerate_data(kind: str) -> None:
    rng = np.random.default_rng(19)
    U = rows(rng, 6, 3, kind)
    delta = np.full(6, 1e-3)
    for b in (np.zeros(6), np.ones(6), np.full(6, -5e-4)):
        state = phases.start(prepare(U, Intervals.around(b, delta)))
        assert state.verdict is SearchVerdict.MET
    state = phases.start(prepare(U[:1], Intervals.around(np.ones(1), delta[:1])))
    assert state.verdict is SearchVerdict.MET
    free = np.full(6, np.inf)
    assert phases.start(prepare(U, Intervals.between(-free, free))).verdict is SearchVerdict.MET


def test_strides_add_up_and_states_are_left_alone(kind: str) -> None:
    rng = np.random.default_rng(16)
    n, m = 10, 90
    U = rows(rng, m, n, kind)
    b = rng.uniform(0.5, 1.5, m)
    delta = 1.001 * smallest_worst_miss(U, b)
    problem = prepare(U, Intervals.around(b, np.full(m, delta)))
    whole = phases.advance(problem, phases.start(problem), 80)
    state = phases.start(problem)
    for steps in (1, 7, 15, 20, 37):
        kept = state.X.copy()
        after = phases.advance(problem, state, steps)
        np.testing.assert_array_equal(state.X, kept)
        state = after
    np.testing.assert_array_equal(state.X, whole.X)
    assert state.verdict is whole.verdict


def test_warm_start_takes_a_third_of_the_steps(kind: str) -> None:
    rng = np.random.default_rng(17)
    n, m = 30, 220
    U = rows(rng, m, n, kind)
    b = Sensing.of(U).factored(rows(rng, n, n, kind))
    delta = np.full(m, 1e-2 * float(np.mean(b)))
    problem = prepare(U, Intervals.around(b, delta))
    first = phases.advance(problem, phases.start(problem), 500)
    again = prepare(U, Intervals.around(b * (1 + 0.01 * rng.standard_normal(m)), delta))
    cold = phases.advance(again, phases.start(again), 500)
    warm = phases.advance(again, phases.start(again, first), 500)
    assert warm.verdict is cold.verdict is SearchVerdict.MET
    assert 3 * warm.iteration <= cold.iteration
