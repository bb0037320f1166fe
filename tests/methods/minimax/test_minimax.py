"""minimax, its certificates and the outliers, against HiGHS, closed forms and exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from helpers import deep, features, sampled
from scipy.optimize import linprog

import quadsense
import quadsense.methods.minimax.program as lp
from quadsense import Status
from quadsense.core import products
from quadsense.core.intervals import Intervals
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import symmetric
from quadsense.proofs.rounding import adjoint_norm


def unit_rows(rng, m, n, is_complex):
    U = rng.standard_normal((m, n))
    if is_complex:
        U = U + 1j * rng.standard_normal((m, n))
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def verify_infeasible(U, b, delta, y, lower=None, upper=None, max_norm=None):
    """What y proves of ``b - delta <= F(A) <= b + delta``, each end where there is one."""
    below = delta if lower is None else np.where(lower, delta, np.inf)
    above = delta if upper is None else np.where(upper, delta, np.inf)
    return symmetric.check_proof(
        Sensing.of(U), Intervals(b, below, above, delta), y, max_norm=max_norm
    )


def readings(U, A):
    return np.einsum("ij,jk,ik->i", U.conj(), A, U).real


def covariance(rng, n):
    X = rng.standard_normal((n, n))
    return X @ X.T / n


def linear_program(U, b, delta, sides=None):
    """Best ratio by HiGHS on the design matrix written out with Kronecker products."""
    G = features(U)
    rows = np.block([[G, -delta[:, None]], [-G, -delta[:, None]]])
    right = np.concatenate([b, -b])
    if sides is not None:
        rows, right = rows[sides.ravel()], right[sides.ravel()]
    cost = np.zeros(G.shape[1] + 1)
    cost[-1] = 1.0
    bounds = [(None, None)] * G.shape[1] + [(0, None)]
    found = linprog(cost, A_ub=rows, b_ub=right, bounds=bounds, method="highs")
    assert found.status == 0
    return found.fun


def fitted_readings(problem, state, U):
    """What the fit reads, from the matrix or from the coefficients of the rows."""
    A, formed = lp.matrix(problem, state)
    return readings(U, A if formed else np.einsum("i,ij,ik->jk", A, U, U.conj()))


def one_sided(lo, hi):
    """Middles, units and existing ends of intervals."""
    ends = Intervals.between(lo, hi)
    return ends.middle(), ends.unit, ends.sides


def that_ask(U, b, delta, sides):
    """The rows that have an end."""
    asks = sides.any(axis=0)
    return U[asks], b[asks], delta[asks], sides[:, asks]


def solve(U, b, delta, sides=None, *, target=False, gap=0.01, steps=80):
    problem = lp.prepare(U, b, delta, sides)
    state = lp.advance(problem, lp.start(problem), steps, target=target, gap=gap)
    return problem, state, lp.verdict(state, target=target, gap=gap)


@pytest.mark.parametrize("is_complex", [False, True])
def test_the_design_block_is_the_sensing_map(is_complex):
    rng = np.random.default_rng(0)
    U = unit_rows(rng, 9, 4, is_complex)
    x = rng.standard_normal(products.size_of(U.shape[1], np.iscomplexobj(U)))
    A = products.unpack(x, 4, U.dtype)
    np.testing.assert_allclose(products.pack(A), x, atol=1e-15)
    np.testing.assert_allclose(products.features(U) @ x, readings(U, A), atol=1e-14)
    assert np.isclose(np.linalg.norm(A), np.linalg.norm(x))


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_both_bounds_enclose_the_linear_program(seed):
    """Plain, duplicated, partly unseen, unevenly tolerated and one-sided problems."""
    rng = np.random.default_rng(seed)
    n, is_complex, kind = int(rng.integers(1, 7)), seed % 2 == 1, seed % 5
    size = n * n if is_complex else n * (n + 1) // 2
    m = int(rng.integers(2, 4 * size + 4))
    U = unit_rows(rng, m, n, is_complex)
    if kind == 1:
        U[m // 2 :] = U[: m - m // 2]
    if kind == 2 and n > 2:
        frame = np.linalg.qr(rng.standard_normal((n, n - 1)))[0]
        U = unit_rows(rng, m, n - 1, is_complex) @ frame.T
    b = readings(U, covariance(rng, n)) + 0.1 * rng.standard_normal(m)
    delta = 10.0 ** rng.uniform(-1, 1, m) if kind == 3 else np.ones(m)
    sides = rng.random((2, m)) < 0.7 if kind == 4 else None
    best = linear_program(U, b, delta, sides)
    if sides is not None:
        U, b, delta, sides = that_ask(U, b, delta, sides)
    problem, state, verdict = solve(U, b, delta, sides, gap=1e-5)
    assert verdict == "optimal"
    assert state.lower <= best * (1 + 1e-6) + 1e-9
    assert best <= state.max_ratio * (1 + 1e-6) + 1e-9
    assert state.max_ratio - state.lower <= 1.01e-5 * state.max_ratio + 1e-11
    # The claimed ratio is the ratio of the matrix that is handed out.
    z = (fitted_readings(problem, state, U) - b) / delta
    out = np.abs(z) if sides is None else np.maximum(np.where(sides, [z, -z], 0.0), 0.0)
    assert abs(out.max() - state.max_ratio) <= 1e-11


@pytest.mark.parametrize("seed", sampled(range(120)))
def test_the_verdict_equals_cvxpy(seed):
    """Feasible, infeasible and barely either, by margins from 1e-5 up, with b about 1."""
    rng = np.random.default_rng(1000 + seed)
    n, is_complex = int(rng.integers(2, 5)), seed % 2 == 1
    size = n * n if is_complex else n * (n + 1) // 2
    m = size + int(rng.integers(1, 2 * size))
    U = unit_rows(rng, m, n, is_complex)
    if seed % 6 == 0:
        U[-(m // 3) :] = U[: m // 3]
    b = readings(U, covariance(rng, n))
    b = b / np.abs(b).max() + 0.1 * rng.standard_normal(m)
    best = linear_program(U, b, np.ones(m))
    margin = (1e-5, -1e-5, 0.3 * best, -0.3 * best)[seed % 4]
    delta = np.full(m, best + margin)
    products = np.einsum("ik,ij->ijk", U, U.conj()).reshape(m, n * n)  # of A_jk in u* A u
    real, imaginary = cp.Variable((n, n), symmetric=True), cp.Variable((n, n))
    value = products.real @ cp.vec(real, order="C") - products.imag @ cp.vec(imaginary, order="C")
    fits = [cp.abs(value - b) <= delta, imaginary == -imaginary.T]
    oracle = cp.Problem(cp.Minimize(0), fits)
    oracle.solve(solver=cp.HIGHS)
    expected = "met" if oracle.status == "optimal" else "infeasible"
    problem, state, verdict = solve(U, b, delta, target=True)
    assert verdict == expected == ("met" if margin > 0 else "infeasible")
    if verdict == "met":
        assert np.all(np.abs(fitted_readings(problem, state, U) - b) <= delta)
    else:
        check = verify_infeasible(U, b, delta, state.y)
        assert check.proved
        assert check.ratio <= best / delta[0] * (1 + 1e-9)
        # What is proved must vanish with the contradiction.
        assert not verify_infeasible(U, b, delta + 2 * abs(margin), state.y).proved
        assert not verify_infeasible(U, b, delta, -state.y).proved


@pytest.mark.parametrize(
    ("n", "m", "is_complex", "repeated"),
    [
        (1, 1, False, False),
        (10, 3, False, False),
        (10, 55, False, False),
        (10, 56, False, False),
        (10, 400, False, False),
        (6, 30, True, False),
        (6, 100, True, True),
        (10, 50, False, True),
        (500, 60, False, True),
        deep(70, 3000, False, False),
    ],
)
def test_consistent_data_end_in_the_exact_fit(n, m, is_complex, repeated):
    rng = np.random.default_rng(3)
    U = unit_rows(rng, m, n, is_complex)
    if repeated:
        U[m // 2 :] = U[: m - m // 2]
    b = np.sum(np.abs(U.conj() @ rng.standard_normal((n, 2))) ** 2, axis=1)
    problem, state, verdict = solve(U, b, np.ones(m))
    assert verdict == "optimal"
    assert np.max(np.abs(fitted_readings(problem, state, U) - b)) <= 1e-11
    assert solve(U, b, np.full(m, 1e-9), target=True)[2] == "met"


def test_a_gap_of_one_percent_takes_few_factorisations():
    rng = np.random.default_rng(13)
    U = unit_rows(rng, 1500, 16, False)
    b = readings(U, covariance(rng, 16)) + 0.01 * rng.standard_normal(1500)
    _, state, verdict = solve(U, b, np.ones(1500))
    assert verdict == "optimal" and state.iteration <= 6


def test_zero_readings_are_met_by_zero():
    U = unit_rows(np.random.default_rng(0), 20, 3, False)
    problem, state, verdict = solve(U, np.zeros(20), np.ones(20))
    assert verdict == "optimal" and state.max_ratio == 0.0
    assert not np.any(lp.matrix(problem, state)[0])


def test_two_readings_of_one_probe_meet_half_way():
    U = np.eye(4)[[0, 1, 2, 3, 3]]
    b = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    _, state, _ = solve(U, b, np.ones(5), gap=1e-6)
    assert abs(state.max_ratio - 0.5) < 1e-6 and abs(state.lower - 0.5) < 1e-6


def test_strides_make_the_same_path_and_leave_their_state_alone():
    rng = np.random.default_rng(6)
    U = unit_rows(rng, 300, 8, False)
    b = readings(U, covariance(rng, 8)) + 0.1 * rng.standard_normal(300)
    problem = lp.prepare(U, b, np.ones(300))
    first = lp.start(problem)
    copy = first.x.copy()
    once = lp.advance(problem, first, 6, gap=1e-9)
    again = first
    for _ in range(6):
        again = lp.advance(problem, again, 1, gap=1e-9)
    assert once.iteration == again.iteration == 6
    assert np.array_equal(once.x, again.x) and once.lower == again.lower
    assert np.array_equal(first.x, copy)


def test_intervals_with_missing_ends():
    rng = np.random.default_rng(7)
    n, m = 4, 60
    U = unit_rows(rng, m, n, True)
    values = readings(U, covariance(rng, n))
    lo = np.where(rng.random(m) < 0.5, values - 0.01, -np.inf)
    hi = np.where(rng.random(m) < 0.5, values + 0.01, np.inf)
    b, delta, sides = one_sided(lo, hi)
    problem, state, verdict = solve(*that_ask(U, b, delta, sides), target=True)
    fitted = fitted_readings(problem, state, U)
    assert verdict == "met"
    assert np.all(fitted <= hi + 1e-12) and np.all(fitted >= lo - 1e-12)
    # Demanding more than one probe can give at both ends of a repeated row is refuted.
    U[1], lo[0], hi[0], lo[1], hi[1] = U[0], 2.0, np.inf, -np.inf, 1.0
    U, b, delta, sides = that_ask(U, *one_sided(lo, hi))
    _, state, verdict = solve(U, b, delta, sides, target=True)
    assert verdict == "infeasible"
    check = verify_infeasible(U, b, delta, state.y, upper=sides[0], lower=sides[1])
    assert check.proved and not check.unconditional
    swapped = verify_infeasible(U, b, delta, state.y, upper=sides[1], lower=sides[0])
    assert not swapped.proved


def test_upper_ends_alone_can_always_be_met():
    rng = np.random.default_rng(8)
    U = unit_rows(rng, 100, 5, False)
    b, delta, sides = one_sided(np.full(100, -np.inf), rng.standard_normal(100))
    assert solve(U, b, delta, sides, target=True)[2] == "met"


@pytest.mark.parametrize("is_complex", [False, True])
def test_the_adjoint_bound_is_above_the_exact_norm_and_close(is_complex):
    rng = np.random.default_rng(9)
    m, n = 70, 3
    U = unit_rows(rng, m, n, is_complex)
    G = products.features(U).T
    y = rng.standard_normal(m)
    y -= np.linalg.lstsq(G, G @ y, rcond=None)[0]
    total = Fraction(0)
    for j in range(n):
        for k in range(n):
            re = im = Fraction(0)
            for u, w in zip(U, y, strict=True):
                a, b = Fraction(float(u[j].real)), Fraction(float(u[j].imag))
                c, d = Fraction(float(u[k].real)), Fraction(float(u[k].imag))
                re += Fraction(float(w)) * (a * c + b * d)
                im += Fraction(float(w)) * (b * c - a * d)
            total += re * re + im * im
    exact = float(total) ** 0.5
    assert exact <= adjoint_norm(Sensing.of(U), y) <= 1.001 * exact + 1e-20


@pytest.mark.parametrize("is_complex", [False, True])
def test_the_proved_singular_value_is_below_the_true_one(is_complex):
    rng = np.random.default_rng(10)
    U = unit_rows(rng, 200, 6, is_complex)
    true = np.linalg.svd(products.features(U).T, compute_uv=False)[-1]
    assert 0.5 * true < symmetric.smallest_singular_value(Sensing.of(U)) <= true
    U[:, 0] = U[:, 1]
    assert symmetric.smallest_singular_value(Sensing.of(U)) == 0.0
    assert symmetric.smallest_singular_value(Sensing.of(U[:20])) == 0.0


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("decades", [0.0, 3.0, 12.0, 150.0])
def test_no_matrix_within_the_scales_of_readings_is_larger_than_proved(is_complex, decades):
    rng = np.random.default_rng(int(decades))
    for _ in range(20):
        n = int(rng.integers(2, 5))
        size = n * n if is_complex else n * (n + 1) // 2
        U = unit_rows(rng, size + int(rng.integers(0, 20)), n, is_complex)
        scale = 10.0 ** rng.uniform(-decades, decades, len(U))
        F = Sensing.of(U)
        norm = symmetric.norm_within(F, scale)
        G = np.asarray(F.features())
        # Largest along singular vectors of the rows in units of their scales, to the edge.
        level = np.sort(scale)[size - 1]
        weights = np.minimum(1.0, level / scale)
        values, directions = np.linalg.svd(weights[:, None] * G)[1:]
        with np.errstate(over="ignore", divide="ignore", under="ignore"):
            reach = np.min(scale[:, None] / np.abs(G @ directions.T), axis=0)
        assert np.max(reach) <= norm * (1.0 + 1e-9)
        plain = np.linalg.norm(scale / scale.max()) * scale.max()
        smallest = np.linalg.svd(G, compute_uv=False)[-1]
        assert norm <= 10.0 * np.sqrt(len(U)) * plain / smallest
        if values[-1] > 1e-5 and np.max(scale) > symmetric.UNEVEN * level:
            assert norm <= 10.0 * np.linalg.norm(weights * (scale / level)) * level / values[-1]


def test_a_wide_proof_is_unconditional_and_a_narrow_one_says_its_condition():
    rng = np.random.default_rng(11)
    U = unit_rows(rng, 100, 5, False)
    b = readings(U, covariance(rng, 5)) + 0.1 * rng.standard_normal(100)
    delta = np.full(100, 0.05)
    y = solve(U, b, delta, target=True)[1].y
    full = verify_infeasible(U, b, delta, y)
    assert full.proved and full.unconditional
    padded = np.hstack([U, np.zeros((100, 1))])
    check = verify_infeasible(padded, b, delta, y)
    assert check.proved and not check.unconditional
    assert not verify_infeasible(padded, b, delta, y, max_norm=1e20).proved
    noise = verify_infeasible(U, b, delta, rng.standard_normal(100))
    assert not noise.proved
    assert not verify_infeasible(U, b, delta, np.zeros(100)).proved
    assert not verify_infeasible(U, b, delta, np.full(100, np.nan)).proved


@pytest.mark.parametrize("psd", [False, True])
def test_the_smallest_worst_ratio_is_bracketed_to_the_gap_where_delta_cannot_be_met(psd):
    rng = np.random.default_rng(0)
    U, X = rng.standard_normal((60, 5)), rng.standard_normal((5, 5))
    b = np.sum((U @ X) ** 2, axis=1) + 2.0 * rng.standard_normal(60)
    delta = 0.1
    result = quadsense.solve(U, b, delta=delta, psd=psd, prefer="minimax")
    assert result.status is Status.INFEASIBLE
    found = result.certificate
    assert found.upper_bound <= 1.01 * found.lower_bound
    free = quadsense.solve(U, b, psd=psd, gap=1e-6, prefer="minimax")  # without a tolerance
    least = free.max_residual / delta
    assert found.lower_bound <= least * (1.0 + 1e-6)
    assert found.upper_bound >= least * (1.0 - 1e-6)
    assert found.verify(U, b)
