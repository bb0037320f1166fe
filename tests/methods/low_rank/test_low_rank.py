"""The factored fit against closed forms, finite differences and SciPy."""

import numpy as np
import pytest
import scipy.optimize
from helpers import sampled

import quadsense
import quadsense.methods.low_rank.method as fc
from quadsense.measurements.sensing import Sensing
from quadsense.methods.low_rank.passes import (
    back_project,
    best_length,
    evaluate,
    inner,
    project,
    quartic_minimum,
    rounding_bound,
)
from quadsense.methods.low_rank.phases import Phase, why_not
from quadsense.methods.low_rank.program import prepare
from quadsense.methods.low_rank.starts import descent_row, random_start, spectral_start
from quadsense.methods.low_rank.steps import line_minimum, normal_equations, principal_axes


def gaussian(n, r, m, seed, complex_rows=False, kappa=None, order="C"):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if complex_rows else 0)

    U = draw(m, n)
    U /= np.linalg.norm(U, axis=1)[:, None]
    X = (
        draw(n, r)
        if kappa is None
        else np.linalg.qr(draw(n, r))[0] * np.geomspace(1, kappa**-0.5, r)
    )
    b = np.einsum("ij,ij->i", (U.conj() @ X), (U.conj() @ X).conj()).real
    return np.asarray(U, order=order), b, X @ X.conj().T


def fit(U, b, delta, rank, **options):
    p = prepare(U, b, np.broadcast_to(np.asarray(delta, float), b.shape).copy(), rank)
    return p, fc.advanced(p, fc.first_state(p, rank, **options), 10**6)


def relative_error(state, A):
    X = fc.factor(state)
    return np.linalg.norm(X @ X.conj().T - A) / np.linalg.norm(A)


@pytest.mark.parametrize("complex_rows", [False, True])
@pytest.mark.parametrize("theta", [0.0, 0.7])
def test_gradient_has_taylor_slope_two(complex_rows, theta):
    U, b, _ = gaussian(12, 2, 60, 0, complex_rows)
    p = prepare(U, b, np.linspace(0.05, 0.4, 60), 3)
    rng = np.random.default_rng(1)
    Y, D = random_start(p, 3, rng), random_start(p, 3, rng)
    point = evaluate(p, Y, theta)
    first = np.vdot(point.gradient, D).real
    errors = [
        abs(evaluate(p, Y + h * D, theta).value - point.value - h * first) for h in (1e-3, 1e-4)
    ]
    assert 60 < errors[0] / errors[1] < 160


@pytest.mark.parametrize("complex_rows", [False, True])
def test_evaluation_equals_the_dense_formula(complex_rows):
    U, b, _ = gaussian(9, 2, 700, 0, complex_rows)
    p = prepare(U, b, np.full(700, 0.1), 2)
    Y = random_start(p, 2, np.random.default_rng(0))
    A = Y.T @ Y.conj()
    z = np.einsum("ij,jk,ik->i", U.conj(), A, U).real - b
    point = evaluate(p, Y, 0.0)
    assert np.all(np.abs(point.z - z) <= 2 * rounding_bound(p, Y))
    G = U.T @ (z[:, None] * U.conj())
    np.testing.assert_allclose(
        point.gradient.T, 2 * G @ Y.T, rtol=0, atol=1e-12 * np.abs(G).max() * 9
    )
    assert point.ratio >= np.abs(z).max() / 0.1


@pytest.mark.parametrize("complex_rows", [False, True])
def test_projections_are_adjoint(complex_rows):
    U, _b, _ = gaussian(11, 1, 300, 3, complex_rows)
    rng = np.random.default_rng(0)
    D = rng.standard_normal((4, 11)).astype(U.dtype)
    C = (
        rng.standard_normal((4, 300)) + (1j * rng.standard_normal((4, 300)) if complex_rows else 0)
    ).astype(U.dtype)
    left, right = np.vdot(C, project(Sensing.of(U), D)), np.vdot(back_project(Sensing.of(U), C), D)
    assert abs(left - right) < 1e-12 * np.linalg.norm(C) * np.linalg.norm(D)


@pytest.mark.parametrize("complex_rows", [False, True])
def test_gauss_newton_step_equals_stacked_least_squares(complex_rows):
    U, b, _ = gaussian(6, 2, 40, 0, complex_rows)
    p = prepare(U, b, np.linspace(0.1, 0.3, 40), 2)
    Y = random_start(p, 2, np.random.default_rng(2))
    Y = principal_axes(Y) @ Y
    point = evaluate(p, Y, 0.0)
    penalty, damping = np.array([0.0, 0.02]), 0.1
    step = normal_equations(p, point, penalty, damping, 1.0)
    D = step(point.gradient + penalty[:, None] * Y)

    def model(d):
        D = d.view(Y.dtype).reshape(Y.shape)
        change = 2 * np.sum((point.P.conj() * (D @ U.conj().T)).real, axis=0)
        scales = 4 * (np.abs(point.P) ** 2 @ p.weight) / 6
        shift = damping * np.maximum(scales, scales.mean())
        return np.concatenate(
            [
                np.sqrt(p.weight) * (point.z + change),
                (np.sqrt(shift)[:, None] * D).ravel().view(float),
                (np.sqrt(penalty)[:, None] * (Y + D)).ravel().view(float),
            ]
        )

    unknowns = Y.size * (2 if complex_rows else 1)
    base = model(np.zeros(unknowns))
    J = np.stack([model(e) - base for e in np.eye(unknowns)], axis=1)
    expected = np.linalg.lstsq(J, -base, rcond=None)[0]
    np.testing.assert_allclose(D.ravel().view(float), expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("theta", [0.0, 0.9])
def test_line_search_agrees_with_scipy(theta):
    U, b, _ = gaussian(10, 2, 80, 0)
    p = prepare(U, b, np.full(80, 0.2), 2)
    rng = np.random.default_rng(5)
    point = evaluate(p, random_start(p, 2, rng), theta)
    D = -point.gradient
    Q = project(Sensing.of(U), D)
    along = float(np.vdot(D, point.gradient))
    t = best_length(p, point, 2 * inner(point.P, Q), inner(Q, Q), along, 0.0, theta)
    best = scipy.optimize.minimize_scalar(
        lambda s: evaluate(p, point.Y + s * D, theta).value, bounds=(0, 4 * t), method="bounded"
    )
    assert evaluate(p, point.Y + t * D, theta).value <= best.fun * (1 + 1e-3)


@pytest.mark.parametrize("complex_rows", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_quasi_newton_recovers_the_matrix_in_few_steps(complex_rows, order):
    U, b, A = gaussian(60, 3, 3000, 0, complex_rows, order=order)
    p, s = fit(U, b, 1e-8 * b.max(), 3)
    assert p.low is not None and s.phase is Phase.MET and s.starts == 0
    assert relative_error(s, A) < 1e-6
    assert s.iteration < 20  # without its memory the descent takes more


def test_single_precision_products_reach_double_precision_tolerances():
    U, b, _ = gaussian(60, 3, 3000, 0)
    p, s = fit(U, b, 1e-12 * b.max(), 3, max_restarts=0)
    assert p.low is not None and s.phase is Phase.MET and s.iteration < 40


@pytest.mark.parametrize("complex_rows", [False, True])
@pytest.mark.parametrize("n", [60, 250])
def test_spectral_start_is_near_with_ample_rows(n, complex_rows):
    U, b, A = gaussian(n, 3, 60 * n, 0, complex_rows)
    p = prepare(U, b, np.full(60 * n, 0.1), 3)
    Y = spectral_start(p, 3, np.random.default_rng(0))
    assert np.linalg.norm(Y.T @ Y.conj() - A) < 0.2 * np.linalg.norm(A)


def test_quasi_newton_needs_no_single_precision_copy():
    U, b, A = gaussian(60, 3, 3000, 0)
    p = prepare(U, b, np.full(3000, 1e-10 * b.max()), 3, low_precision=False)
    s = fc.advanced(p, fc.first_state(p, 3), 200)
    assert p.low is None and s.phase is Phase.MET and relative_error(s, A) < 1e-8


def test_maintained_residuals_never_carry_a_claim():
    U, b, _ = gaussian(60, 3, 3000, 1)
    p = prepare(U, b, np.full(3000, 1e-9 * b.max()), 3)
    s = fc.first_state(p, 3)
    while not s.finished:
        s = fc.advanced(p, s, 1)
        true = np.abs(np.sum(np.abs(U @ s.best.T) ** 2, axis=1) - b) / p.delta
        assert true.max() <= s.max_ratio <= true.max() * (1 + 1e-3) + 1e-3


@pytest.mark.parametrize(("complex_rows", "m"), [(False, 75), (False, 100), (True, 180)])
def test_restarts_recover_rank_one_from_few_rows(complex_rows, m):
    U, b, A = gaussian(50, 1, m, 2, complex_rows)
    _, s = fit(U, b, 1e-8 * b.max(), 1)
    assert s.phase is Phase.MET and relative_error(s, A) < 1e-4
    assert s.starts <= 200


@pytest.mark.slow
def test_lifts_succeed_where_plain_restarts_do_not():
    for seed in (4, 5):
        U, b, _ = gaussian(50, 1, 75, seed)
        _, s = fit(U, b, 1e-6, 1, max_restarts=25)
        assert s.phase is Phase.MET


def test_steps_hardly_grow_with_the_condition_number():
    steps = {}
    for kappa in (1, 20):
        U, b, _ = gaussian(100, 5, 4000, 4, kappa=kappa)
        _, s = fit(U, b, 1e-6 * b.max(), 5)
        assert s.phase is Phase.MET and s.starts == 0
        steps[kappa] = s.iteration
    assert steps[20] <= 1.3 * steps[1]


@pytest.mark.parametrize(("n", "m"), [(20, 200), (60, 3000)])
def test_noisy_data_are_met_within_tolerances_of_their_own(n, m):
    U, b, _ = gaussian(n, 2, m, 0)
    rng = np.random.default_rng(0)
    delta = 0.02 * b.mean() * rng.uniform(0.5, 2.0, m)
    b = b + 0.93 * delta * rng.choice((-1.0, 1.0), m)
    _p, s = fit(U, b, delta, 2, max_restarts=2)
    assert s.phase is Phase.MET
    assert np.all(np.abs(np.sum(np.abs(U @ s.best.T) ** 2, axis=1) - b) <= delta)


def test_a_rank_too_small_is_a_report():
    U, b, _ = gaussian(20, 3, 300, 0)
    _, s = fit(U, b, 1e-6 * b.max(), 2, max_restarts=3)
    assert s.phase is Phase.EXHAUSTED and s.starts == 3 and s.max_ratio > 1
    said = str(why_not(s))
    assert "no fit found from 4 starts" in said and "too small" not in said


@pytest.mark.parametrize("complex_rows", [False, True])
def test_growing_rank_stops_at_the_true_one(complex_rows):
    U, b, A = gaussian(20, 4, 900, 0, complex_rows)
    _, s = fit(U, b, 1e-7 * b.max(), None)
    assert s.phase is Phase.MET and s.rank == 4 and relative_error(s, A) < 1e-4


def test_growth_ends_where_no_psd_matrix_fits():
    U, b, _ = gaussian(8, 2, 200, 0)
    b = b - 1.0
    p, s = fit(U, b, 1e-3, None)
    assert s.phase is Phase.EXHAUSTED and s.no_rank_fits
    y = fc.farkas_vector(p, s)
    smallest = np.linalg.eigvalsh(U.T @ (y[:, None] * U))[0]
    assert y @ b < -np.abs(y) @ p.delta
    assert smallest > -1e-3 * np.linalg.norm(y)


def test_strides_and_resuming_change_nothing():
    for n, m in ((30, 50), (60, 3000)):
        U, b, _ = gaussian(n, 1, m, 0)
        p = prepare(U, b, np.full(m, 1e-9 * b.max()), 1)
        whole = fc.advanced(p, fc.first_state(p, 1, seed=3), 60)
        s = fc.first_state(p, 1, seed=3)
        before = s.point.Y.copy()
        t = s
        for _ in range(12):
            t = fc.advanced(p, t, 5)
        np.testing.assert_array_equal(s.point.Y, before)
        np.testing.assert_array_equal(t.point.Y, whole.point.Y)
        assert (t.iteration, t.starts, t.phase, t.passes) == (
            whole.iteration,
            whole.starts,
            whole.phase,
            whole.passes,
        )


def test_a_warm_start_is_already_met():
    U, b, _A = gaussian(60, 3, 3000, 0)
    p, s = fit(U, b, 1e-6 * b.max(), 3)
    again = fc.first_state(p, 3, factor=fc.factor(s))
    assert again.phase is Phase.MET and again.iteration == 0
    near = fc.advanced(p, fc.first_state(p, 3, factor=1.005 * fc.factor(s)), 100)
    assert near.phase is Phase.MET and near.passes < s.passes


def test_more_unknowns_than_rows_and_no_square_matrix():
    U, b, _ = gaussian(3000, 1, 40, 0)
    _, s = fit(U, b, 1e-6 * b.max(), 1)
    assert s.phase is Phase.MET and s.best.shape == (1, 3000)


@pytest.mark.parametrize("n", [30, 250])
def test_descent_row_is_the_smallest_eigenvector(n):
    U, b, _ = gaussian(n, 3, 4 * n, 0)
    p = prepare(U, b, np.full(4 * n, 0.1), 1)
    point = evaluate(p, spectral_start(p, 1, np.random.default_rng(0)), 0.0)
    row, value, curvature = descent_row(p, point)
    _values, vectors = np.linalg.eigh(U.T @ (point.z[:, None] * U))
    assert curvature < 0 and value == pytest.approx(_values[0], rel=1e-2)
    assert abs(row[0] @ vectors[:, 0]) > 0.98 * np.linalg.norm(row)
    assert evaluate(p, np.concatenate([point.Y, row]), 0.0).value < point.value


def test_zero_readings_give_the_zero_matrix():
    U, _, _ = gaussian(10, 1, 30, 0)
    _, s = fit(U, np.zeros(30), 1e-3, 1)
    assert s.phase is Phase.MET


@pytest.mark.parametrize("theta", [0.0, 0.9])
def test_a_step_too_long_is_cut_where_the_loss_is_least(theta):
    U, b, _ = gaussian(10, 2, 80, 0)
    p = prepare(U, b, np.full(80, 0.2), 2)
    point = evaluate(p, random_start(p, 2, np.random.default_rng(5)), theta)
    D = -100.0 * point.gradient
    assert evaluate(p, point.Y + D, theta).value > point.value
    length = line_minimum(p, point, D, None, theta)
    best = scipy.optimize.minimize_scalar(
        lambda t: evaluate(p, point.Y + t * D, theta).value,
        bounds=(0, 4 * length),
        method="bounded",
    )
    assert evaluate(p, point.Y + length * D, theta).value <= best.fun * (1 + 1e-3) < point.value


@pytest.mark.parametrize("seed", sampled(range(200)))
def test_the_minimum_of_a_quartic_agrees_with_numpys_roots(seed):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-6, 6)
    c = rng.standard_normal(4) * [scale**4, scale**3, scale**2, scale]
    c[0], c[3] = abs(c[0]), -abs(c[3])
    roots = np.roots(c)
    t = roots.real[(np.abs(roots.imag) < 1e-9 * np.abs(roots)) & (roots.real > 0)]
    values = np.polyval(np.polyint(c), t)
    found = quartic_minimum(c[3], c[2], c[1] / 3.0, c[0] / 2.0)
    assert np.polyval(np.polyint(c), found) == pytest.approx(values.min(), rel=1e-9)


def test_lines_that_are_not_quartics():
    assert quartic_minimum(-2.0, 4.0, 0.0, 0.0) == 0.5
    assert quartic_minimum(-2.0, -4.0, 0.0, 0.0) == 0.0
    assert quartic_minimum(-2.0, 4.0, 1e-170, 1e-320) == 0.5


@pytest.mark.slow
def test_a_step_from_a_point_within_all_bounds_is_scaled_by_all_rows():
    # Least squares within tolerances meets such a point here; its scale was once 1 / 0.
    size = 24
    rng = np.random.default_rng(0)
    masks = rng.choice([1, -1, 1j, -1j], (4, size, size))
    masks *= rng.choice([0.7, 1.7], (4, size, size))
    x = rng.random((size, size)) * np.exp(1j * rng.random((size, size)))
    b = np.abs(np.fft.fft2(masks * x)).ravel() ** 2
    b *= rng.normal(1.0, 0.02, b.size)
    result = quadsense.solve(
        quadsense.probes.masked_fft(masks, (size, size)), b, delta=0.06 * b + 1e-3,
        prefer="least_squares", rank=1, rng=0, max_iter=8000,
    )  # fmt: skip
    assert result.status == "met"
