"""Tests of the conjugate residual method against closed forms, SciPy and linear programming."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse.linalg import LinearOperator, lsqr

import quadsense
import quadsense.methods.cg.residuals as cg
from quadsense.core.cholesky import scaled_factor
from quadsense.core.products import (
    adjoint,
    features,
    forward,
    gram,
    gram_product,
    pack,
    size_of,
    unpack,
)
from quadsense.measurements.arrays import Dense
from quadsense.measurements.sensing import Sensing
from quadsense.methods.cg.residuals import Span
from quadsense.methods.cg.system import steps_left

DTYPES = ["float64", "float32", "complex128", "complex64"]


def rows(m: int, n: int, dtype: str = "float64", seed: int = 0) -> npt.NDArray[np.inexact]:
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n)).astype(dtype)
    if np.iscomplexobj(U):
        U = U + 1j * rng.standard_normal((m, n))
    return (U / np.linalg.norm(U, axis=1)[:, None]).astype(dtype)


def sensed(n: int, dtype: str = "float64", seed: int = 1) -> npt.NDArray[np.inexact]:
    """A positive definite matrix of trace about n."""
    X = rows(n, n, dtype, seed)
    return np.eye(n) / 2 + (X.T @ X.conj()) / 2


def values(U: npt.NDArray[np.inexact], A: npt.NDArray[np.inexact]) -> npt.NDArray[np.float64]:
    """The literal definition."""
    return np.array([np.real(u.conj() @ A @ u) for u in U])


def solve(
    U: npt.NDArray[np.inexact],
    b: npt.NDArray[np.float64],
    delta: float,
    stride: int = 8,
    limit: int = 2000,
    **options: object,
) -> tuple[cg.System, cg.CGState]:
    system = cg.prepare(U, b, np.full(len(b), delta), **options)  # type: ignore[arg-type]
    state = cg.start(system)
    while not state.finished and state.iteration < limit:
        state = cg.advance(system, state, stride)
    return system, state


# ----------------------------------------------------------------------------------- products


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 9), (300, 7), (9000, 33)])
def test_products_match_the_definitions(dtype: str, order: str, shape: tuple[int, int]) -> None:
    m, n = shape
    U = np.array(rows(m, n, dtype), order=order)  # type: ignore[call-overload]
    y = np.random.default_rng(2).standard_normal(m).astype(U.real.dtype)
    eps = np.finfo(U.dtype).eps
    S = U.T.astype("complex128") @ (y[:, None] * U.conj())
    found = adjoint(U, y)
    assert found.dtype == U.dtype
    np.testing.assert_array_equal(found, found.conj().T)
    bound = 4 * eps * (m + n) * np.sum(np.abs(y)) / np.sqrt(m)
    np.testing.assert_allclose(found, S, atol=bound)
    np.testing.assert_allclose(forward(U, found), values(U, S), atol=bound)
    if m <= 300:
        K = np.abs(U @ U.conj().T) ** 2
        np.testing.assert_allclose(gram(U), np.triu(K), atol=8 * n * eps)
        np.testing.assert_allclose(gram_product(gram(U), y), K @ y, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES)
def test_packing_is_isometric_and_features_are_the_sensing_map(dtype: str) -> None:
    U = rows(40, 6, dtype)
    S = adjoint(U, np.linspace(-1, 2, 40).astype(U.real.dtype))
    x = pack(S)
    eps = np.finfo(U.dtype).eps
    assert x.size == size_of(U.shape[1], np.iscomplexobj(U)) == features(U).shape[1]
    np.testing.assert_allclose(unpack(x, 6, U.dtype), S, atol=100 * eps)
    np.testing.assert_allclose(np.linalg.norm(x), np.linalg.norm(S), rtol=100 * eps)
    np.testing.assert_allclose(features(U) @ x, forward(U, S), atol=1000 * eps)


def test_factor_inverts_and_survives_a_singular_matrix() -> None:
    P = features(rows(60, 12)) * np.logspace(0, 3, 60)[:, None]
    K = P @ P.T
    x = np.random.default_rng(0).standard_normal(60)
    for dtype, tolerance in (("float32", 2e-2), ("float64", 1e-9)):
        inverse = scaled_factor(np.asfortranarray(np.triu(K), dtype=dtype))
        np.testing.assert_allclose(inverse.solve(K @ x), x, atol=tolerance * np.abs(x).max())
        assert inverse.resolves
    indefinite = np.asfortranarray(np.triu(np.full((50, 50), 1.00001)), dtype="float32")
    np.fill_diagonal(indefinite, 1.0)
    assert scaled_factor(indefinite).shift > 5e-6
    singular = scaled_factor(np.ones((50, 50), dtype="float32", order="F"))
    assert not singular.resolves
    assert np.all(np.isfinite(singular.solve(np.ones(50))))


# ------------------------------------------------------------------------------ consistent data


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("n", "m", "delta"),
    [(12, 30, 1e-2), (12, 60, 1e-9), (40, 25, 1e-2), (40, 25, 1e-12), (1, 1, 1e-3)],
)
def test_met_is_true_of_the_matrix_returned(dtype: str, n: int, m: int, delta: float) -> None:
    U = rows(m, n, dtype)
    b = values(U, sensed(n, dtype))
    system, state = solve(U, b, delta)
    assert state.met and state.verified and not state.inconsistent
    ratio = np.max(np.abs(values(U, cg.matrix(system, state)) - b)) / delta
    assert ratio <= state.max_ratio + 1e-13 * n / delta
    assert ratio <= 1 + 1e-13 * n / delta


def test_both_forms_of_the_gram_matrix_take_the_same_steps() -> None:
    U = rows(90, 20)
    b = values(U, sensed(20))
    system = cg.prepare(U, b, np.full(90, 1e-7))
    states = []
    for explicit in (False, True):
        form = replace(system, operator=replace(system.operator, formed=explicit))
        states.append(cg.advance(form, replace(cg.start(form), double=True), 6))
    np.testing.assert_allclose(states[0].ratios, states[1].ratios, rtol=1e-9)
    np.testing.assert_allclose(states[0].x, states[1].x, atol=1e-10)


@pytest.mark.parametrize(("n", "m"), [(15, 60), (15, 119), (15, 400)])
def test_steps_minimise_the_residual_as_lsqr_does(n: int, m: int) -> None:
    U = rows(m, n)
    b = values(U, sensed(n)) + 0.1 * np.random.default_rng(3).standard_normal(m)
    system = cg.prepare(U, b, np.full(m, 1e-12))
    P = features(U)
    for k in (1, 3, 7):
        state = cg.advance(system, replace(cg.start(system), double=True), k)
        peer = lsqr(LinearOperator(P.shape, P.__matmul__, P.T.__matmul__), system.z1, 0, 0, 0, 0, k)
        assert state.iteration == k == peer[2]
        np.testing.assert_allclose(np.linalg.norm(state.z), peer[3], rtol=1e-9)


def test_single_precision_needs_no_more_steps_than_double() -> None:
    U = rows(1800, 60)
    b = values(U, sensed(60))
    system = cg.prepare(U, b, np.full(1800, 1e-2))
    counts = []
    for double in (False, True):
        state = replace(cg.start(system), double=double)
        counts.append(cg.advance(system, state, 100).iteration)
    assert 5 < counts[0] <= counts[1] + 1


def test_the_answer_tends_to_the_nearest_fit_to_the_start() -> None:
    U = rows(50, 14, "complex128")
    b = values(U, sensed(14, "complex128"))
    for start in (None, 0.0, sensed(14, "complex128", seed=9)):
        system, state = solve(U, b, 1e-11, A1=start)
        assert state.met
        base = np.mean(b) * np.eye(14) if start is None else start * np.eye(14)
        if isinstance(start, np.ndarray):
            base = start
        P = features(U)
        nearest = np.linalg.lstsq(P, values(U, base) - b, rcond=None)[0]
        step = pack(base - cg.matrix(system, state))
        np.testing.assert_allclose(step, nearest, atol=1e-8)


def test_more_columns_than_rows_forms_no_square_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    U = rows(30, 2000)
    b = 1.0 + 0.3 * np.random.default_rng(0).standard_normal(30)
    monkeypatch.setattr(cg, "unpack", None)
    for name in ("adjoint", "forward"):
        monkeypatch.setattr(Sensing, name, None)
    system, state = solve(U, b, 1e-6)
    assert state.met
    y = cg.coefficients(system, state)
    assert y is not None
    z = np.mean(b) - (U @ U.T) ** 2 @ y - b
    np.testing.assert_allclose(z, state.z, atol=1e-12)


def test_wrong_single_precision_rows_cost_time_and_not_truth() -> None:
    U = rows(60, 20)
    b = values(U, sensed(20))
    system = cg.prepare(U, b, np.full(60, 1e-4))
    assert not system.explicit
    wrong = Dense((U * (1 + 0.01 * rows(60, 20, seed=5))).astype("float32"), np.dtype("float32"))
    system.F.__dict__["single"] = Sensing(wrong, factors=1.0)
    state = cg.start(system)
    assert not state.double
    state = cg.advance(system, state, 13)
    assert state.double and state.verified and not state.met
    # The residual it goes on from is that of the matrix it stands for.
    exact = values(U, cg.matrix(system, replace(state, A=None))) - b
    np.testing.assert_allclose(state.z, exact, atol=1e-12)
    state = cg.advance(system, state, 500)
    assert state.met
    assert np.max(np.abs(values(U, cg.matrix(system, state)) - b)) <= 1e-4


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_the_scale_of_the_data_does_not_matter(scale: float) -> None:
    U = rows(60, 12)
    b = values(U, sensed(12))
    _, plain = solve(U, b, 1e-3)
    _, scaled = solve(U, scale * b, scale * 1e-3)
    assert scaled.met and scaled.iteration == plain.iteration
    np.testing.assert_allclose(scaled.z, scale * plain.z, atol=1e-6 * scale)


def test_a_start_that_fits_is_met_before_the_first_step() -> None:
    U = rows(7, 5)
    system = cg.prepare(U, np.full(7, 3.0), np.full(7, 1e-9))
    state = cg.start(system)
    assert state.met and state.iteration == 0
    np.testing.assert_allclose(cg.matrix(system, state), 3 * np.eye(5))


def test_an_earlier_answer_is_a_warm_start() -> None:
    U = rows(100, 16)
    b = values(U, sensed(16))
    system, state = solve(U, b, 1e-6)
    y = cg.coefficients(system, state)
    again = cg.start(cg.prepare(U, b, np.full(100, 1e-6)), y)
    assert again.met and again.iteration == 0


@pytest.mark.parametrize("m", [60, 77, 200])
def test_strides_do_not_change_the_iteration(m: int) -> None:
    U = rows(m, 12)
    b = values(U, sensed(12)) + (0.1 if m > 100 else 0.0) * np.sin(np.arange(m))
    system = cg.prepare(U, b, np.full(m, 1e-10))
    first = cg.start(system)
    whole = cg.advance(system, first, 24)
    part = cg.advance(system, first, 11)
    frozen = {k: np.copy(v) for k, v in vars(part).items() if isinstance(v, np.ndarray)}
    joined = cg.advance(cg.prepare(U, b, np.full(m, 1e-10)), part, 13)
    assert all(np.array_equal(v, getattr(part, k)) for k, v in frozen.items())
    for name in ("iteration", "met", "inconsistent", "preconditioned", "max_ratio"):
        assert getattr(whole, name) == getattr(joined, name)
    np.testing.assert_array_equal(whole.x, joined.x)
    np.testing.assert_array_equal(
        whole.span.images[: whole.span.size], joined.span.images[: joined.span.size]
    )


@pytest.mark.parametrize("m", [70, 200])
def test_a_full_window_gives_way_without_losing_the_iterate(
    m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cg, "MAX_WINDOW", 6)
    U = rows(m, 12)
    b = values(U, sensed(12)) + (0.1 if m > 100 else 0.0) * np.sin(np.arange(m))
    system = cg.prepare(U, b, np.full(m, 1e-9))
    whole = joined = cg.start(system)
    for stride in (15, 5, 4):
        joined = cg.advance(system, joined, stride)
    whole = cg.advance(system, whole, 24)
    assert whole.span.size <= 6 < whole.iteration
    np.testing.assert_array_equal(whole.x, joined.x)
    z = values(U, cg.matrix(system, replace(whole, A=None))) - b
    np.testing.assert_allclose(whole.z, z, atol=1e-9)


def test_where_single_precision_ends_the_residual_is_that_of_the_iterate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cg, "SINGLE_GAIN", np.inf)
    monkeypatch.setattr(cg, "MAX_MATRICES_SHARE", np.inf)
    U = rows(200, 30)
    b = values(U, sensed(30))
    system = cg.prepare(U, b, np.full(200, 1e-9))
    system = replace(system, operator=replace(system.operator, formed=False))
    state = cg.start(system)
    assert not state.double
    while not state.double:
        state = cg.advance(system, state, 1)
        assert not state.finished
    z = values(U, cg.matrix(system, replace(state, A=None))) - b
    np.testing.assert_allclose(state.z, z, atol=1e-13)


def test_a_span_holds_the_best_combination_of_its_directions() -> None:
    rng = np.random.default_rng(0)
    K = rng.standard_normal((30, 30))
    K, z = K @ K.T, rng.standard_normal(30)
    span = Span.empty(np.zeros(30), np.zeros(30), np.float64, whole=True).with_room(7)
    D = rng.standard_normal((7, 30))
    left = z
    for w in D:
        span, change = span.add(w, K @ w, left, None)
        left = left - change
    best = np.linalg.lstsq(K @ D.T, z, rcond=None)[0] @ D
    np.testing.assert_allclose(span.combination(), best, rtol=1e-8)
    np.testing.assert_allclose(left, z - K @ best, atol=1e-10)
    short = span.last(3)
    np.testing.assert_allclose(short.directions @ K, short.images, atol=1e-10)
    np.testing.assert_allclose(short.images @ short.images.T, np.eye(3), atol=1e-12)
    assert not short.combination().any()


# ------------------------------------------------------------------------ ill-conditioned data


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_preconditioner_is_chosen_where_plain_steps_are_many(dtype: str) -> None:
    n = 24
    m = size_of(n, dtype == "complex128") - 1
    U = rows(m, n, dtype)
    b = values(U, sensed(n, dtype))
    system, state = solve(U, b, 1e-9)
    assert state.met and state.preconditioned and state.iteration < 60
    assert np.max(np.abs(values(U, cg.matrix(system, state)) - b)) <= 1e-9 * (1 + 1e-3)
    _, easy = solve(U[: m // 4], b[: m // 4], 1e-3)
    assert easy.met and not easy.preconditioned


@pytest.mark.parametrize(("decay", "tolerance"), [("power", 0.25), ("geometric", 0.25)])
def test_the_forecast_continues_the_decay(decay: str, tolerance: float) -> None:
    k, target = 64, np.log(20.0)
    t = np.arange(1.0, k + 2)
    level = t**-1.4 if decay == "power" else 0.8**t
    decreases = -np.diff(level**2)
    expected = k * (np.exp(target / 1.4) - 1) if decay == "power" else target / -np.log(0.8)
    assert steps_left(decreases, target) == pytest.approx(expected, rel=tolerance)


def test_duplicate_rows_that_agree_are_met() -> None:
    U = rows(150, 20)
    U = np.vstack([U, U, U[:30]])
    b = values(U, sensed(20))
    for delta in (1e-2, 1e-8):
        _, state = solve(U, b, delta)
        assert state.met


@pytest.mark.parametrize("m", [150, 205])
def test_duplicate_rows_that_disagree_are_met_or_not_at_half_their_difference(m: int) -> None:
    U = rows(m, 20)
    b = values(U, sensed(20))
    U, b = np.vstack([U, U[:40]]), np.append(b, b[:40] + 0.02)
    _, above = solve(U, b, 0.0101)
    _, below = solve(U, b, 0.0099)
    assert above.met and not above.inconsistent
    assert below.inconsistent and not below.met
    np.testing.assert_allclose(below.max_ratio, 0.01 / 0.0099, rtol=1e-3)


# --------------------------------------------------------------------------- over-determined data


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("excess", [1.05, 1.5, 6.0])
@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_noisy_data_end_at_the_least_squares_fit(dtype: str, excess: float, spread: float) -> None:
    n = 14
    m = int(excess * size_of(n, dtype == "complex128"))
    U = rows(m, n, dtype) * np.logspace(0, -spread, n)
    U /= np.linalg.norm(U, axis=1)[:, None]
    b = values(U, sensed(n, dtype)) + 0.01 * np.random.default_rng(4).standard_normal(m)
    P = features(U)
    z = P @ np.linalg.lstsq(P, b, rcond=None)[0] - b
    largest = float(np.max(np.abs(z)))
    for factor_of_largest in (1.2, 0.8, 0.05):
        delta = factor_of_largest * largest
        system, state = solve(U, b, delta)
        assert (state.met, state.inconsistent) == (factor_of_largest > 1, factor_of_largest < 1)
        np.testing.assert_allclose(state.z, z, atol=0.02 * max(delta, 0.1 * largest))
        exact = values(U, cg.matrix(system, state)) - b
        np.testing.assert_allclose(state.z, exact, atol=1e-11 * 10.0 ** (2 * spread))


def test_consistent_over_determined_data_are_met() -> None:
    U = rows(900, 14)
    b = values(U, sensed(14))
    for delta in (1e-2, 1e-9):
        _, state = solve(U, b, delta)
        assert state.met and state.max_ratio <= 0.1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 7), st.floats(0.3, 3.0), st.floats(-6.0, -1.0))
def test_verdicts_agree_with_linear_programming(
    seed: int, n: int, excess: float, exponent: float
) -> None:
    size = size_of(n, False)
    m = max(1, int(excess * size))
    U = rows(m, n, seed=seed)
    b = values(U, sensed(n, seed=seed + 1))
    b = b + 0.01 * np.random.default_rng(seed).standard_normal(m)
    delta = 10.0**exponent
    P = features(U)
    ones = np.ones((m, 1))
    program = linprog(
        np.append(np.zeros(size), 1.0),
        np.block([[P, -ones], [-P, -ones]]),
        np.append(b, -b),
        bounds=[(None, None)] * (size + 1),
    )
    _, state = solve(U, b, delta)
    z = P @ np.linalg.lstsq(P, b, rcond=None)[0] - b
    well_conditioned, fits = np.linalg.cond(P) < 1e6, program.fun <= delta * (1 + 1e-6)
    assert fits or not state.met
    assert np.max(np.abs(z)) > 0.98 * delta or not state.inconsistent
    assert state.met or not (well_conditioned and m <= size)
    assert state.inconsistent or not (well_conditioned and not fits)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(("m", "n"), [(4, 3), (30, 9), (60, 12), (200, 30)])
def test_small_systems_are_solved_by_one_factorisation(complex_, m, n):
    """The same fit as the step-by-step way: the nearest to the start."""
    rng = np.random.default_rng(m)
    U = rng.standard_normal((m, n)) + (1j * rng.standard_normal((m, n)) if complex_ else 0.0)
    U /= np.linalg.norm(U, axis=1)[:, None]
    A = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if complex_ else 0.0)
    b = np.einsum("ij,jk,ik->i", U.conj(), A + A.conj().T, U).real
    result = quadsense.solve(U, b, delta=1e-3, start="zero", method="cg")
    assert result.success and result.n_iter == 1
    K = np.abs(U @ U.conj().T) ** 2
    c = np.linalg.solve(K, b)
    nearest = (U.T * c) @ U.conj()
    np.testing.assert_allclose(result.A, nearest, atol=1e-3 * np.abs(nearest).max())


@pytest.mark.parametrize(("n", "m"), [(10, 40), (3, 64)])
def test_a_small_damped_system_is_solved_by_its_factor(n, m):
    p = quadsense.datasets.gaussian(n=n, m=m, seed=0)
    result = quadsense.solve(p.U, p.b, delta=1e-3, ridge=1.0)
    assert (result.plan["method"], result.n_iter, result.optimal) == ("cg", 1, True)
    # The printed normal equations, on packed matrices, in units of the tolerance.
    F = features(p.U)
    x = np.linalg.solve(1e6 * F.T @ F + np.eye(F.shape[1]), 1e6 * F.T @ p.b)
    np.testing.assert_allclose(result.A, unpack(x, n, np.float64), atol=1e-8)


def test_a_small_damped_system_that_is_nearly_singular_is_solved_too():
    p = quadsense.datasets.gaussian(n=6, m=30, seed=0)
    U = p.U.copy()
    U[15:] = U[:15] * (1.0 + 1e-9)  # every row twice, all but
    b = values(U, np.eye(6))
    result = quadsense.solve(U, b, delta=1e-2, ridge=1e-8)
    assert result.met and result.plan["method"] == "cg"
    assert result.verify(U, b)
    assert result.optimal


@pytest.mark.parametrize("options", [{}, {"prefer": "any"}])
@pytest.mark.parametrize(("n", "m"), [(6, 10), (6, 21), (6, 40)])
def test_the_rank_that_a_solve_reports_is_that_of_the_rows(n, m, options):
    U = rows(m, n, seed=3)
    U[-1] = U[0]
    result = quadsense.solve(U, values(U, sensed(n)), delta=1e-3, **options)
    assert result.met
    assert result.unseen == n * (n + 1) // 2 - np.linalg.matrix_rank(features(U))


def test_a_small_overdetermined_system_is_solved_by_its_factor():
    """Least squares of noisy readings, to its last direction."""
    U = rows(64, 3, seed=4)
    U /= np.linalg.norm(U, axis=1)[:, None]
    b = values(U, sensed(3)) + np.random.default_rng(4).uniform(-0.01, 0.01, 64)
    result = quadsense.solve(U, b, delta=0.05, prefer="any")
    assert (result.plan["method"], result.n_iter, result.met) == ("cg", 1, True)
    x = np.linalg.lstsq(features(U), b)[0]
    np.testing.assert_allclose(result.A, unpack(x, 3, np.float64), atol=1e-12)


@pytest.mark.parametrize(
    ("n", "m", "options", "most"),
    [
        (10, 40, {}, 760),
        (10, 40, {"prefer": "any"}, 505),
        (3, 64, {"prefer": "any"}, 530),
        (3, 64, {"psd": True}, 850),
    ],
)
def test_a_small_solve_makes_few_calls(n, m, options, most):
    """Of functions of the package, by which the time of a small solve is determined."""
    p = quadsense.datasets.gaussian(n=n, m=m, seed=0)
    package, count = str(Path(quadsense.__file__).parent), 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(package)

    quadsense.solve(p.U, p.b, delta=1e-3, **options)  # modules and plans are made once
    counts = []
    for _ in range(3):  # free memory is looked up anew after a second
        count = 0
        sys.setprofile(counted)
        try:
            quadsense.solve(p.U, p.b, delta=1e-3, **options)
        finally:
            sys.setprofile(None)
        counts.append(count)
    assert 100 < min(counts) <= most
