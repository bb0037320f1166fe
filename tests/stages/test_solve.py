"""solve(): verdicts, limits, reproducibility, invariances."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from helpers import build, gaussian_rows, hermitian, readings, sparse_rows
from hypothesis import given
from hypothesis import strategies as st

import quadsense
from quadsense import Status

METHODS = ["gd", "sgd"]


@pytest.fixture
def gaussian():
    return quadsense.datasets.gaussian(n=12, m=40, seed=0)


@pytest.mark.parametrize("method", ["auto", "closed_form", *METHODS])
def test_orthonormal_problems_are_met_by_every_method(method, kind, complex_):
    p = quadsense.datasets.orthonormal(n=9, m=6, seed=1, complex=complex_)
    result = quadsense.solve(kind(p.U), p.b, delta=0.01, method=method, rng=0)
    assert result.status is Status.MET
    A = np.asarray(result.matrix)
    np.testing.assert_array_less(np.abs(readings(p.U, A) - p.b), 0.01 + 1e-12)
    np.testing.assert_allclose(A, A.conj().T, atol=1e-14)
    assert result.certificate.verify(p.U, p.b)


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_general_problems_are_met_by_every_method(method, kind, complex_, rng):
    U = gaussian_rows(rng, 15, 6, complex_) * rng.uniform(0.5, 2.0, (15, 1))
    b = readings(U, hermitian(rng, 6, complex_))
    delta = 0.05 * np.abs(b).max()
    result = quadsense.solve(kind(U), b, delta=delta, method=method, rng=0)
    assert result.status is Status.MET
    z = readings(U, np.asarray(result.matrix)) - b
    assert np.abs(z).max() <= delta
    np.testing.assert_allclose(np.asarray(result.residuals), z, atol=1e-11 * np.abs(b).max())
    assert result.max_residual == pytest.approx(np.abs(z).max(), rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_matrix_free_and_sparse_k_are_met(method, rng, monkeypatch):
    from quadsense.measurements import gram

    U = rng.standard_normal((1200, 2))  # too many rows for K to pay, were it to be formed
    monkeypatch.setattr(gram, "CACHED_BYTES", 0)
    b = readings(U, np.diag([1.0, 2.0]))
    result = quadsense.solve(U, b, delta=0.3, method=method, rng=0)
    assert result.plan["gram"] == "matrix-free"
    assert result.status is Status.MET
    S = sparse_rows(rng, 120, 900, 4e-3) + sp.eye_array(120, 900)
    result = quadsense.solve(S.tocsr(), rng.random(120), delta=0.05, method=method, rng=0)
    assert result.plan["gram"] == "sparse"
    assert result.status is Status.MET


def test_the_closed_form_is_the_nearest_fit_to_the_start():
    """Minimum-norm correction: compared with least squares on the explicit map."""
    p = quadsense.datasets.orthonormal(n=6, m=4, seed=0)
    result = quadsense.solve(p.U, p.b, delta=1e-6, start="zero", prefer="any")
    F = np.array([np.outer(u, u).ravel() for u in p.U])
    nearest = np.linalg.lstsq(F, p.b, rcond=None)[0].reshape(6, 6)
    np.testing.assert_allclose(result.A, nearest, atol=1e-12)


@pytest.mark.parametrize("start", ["mean", "tau", "zero"])
def test_gd_tends_to_the_fit_nearest_to_its_start(start, gaussian):
    result = quadsense.solve(gaussian.U, gaussian.b, delta=1e-9, method="gd", start=start)
    assert result.success
    U = gaussian.U
    unit_b = gaussian.b / np.sum(U**2, axis=1)
    tau = {"mean": unit_b.mean(), "tau": unit_b.max(), "zero": 0.0}[start]
    F = np.array([np.outer(u, u).ravel() for u in U])
    step = np.linalg.lstsq(F, gaussian.b - tau * np.sum(U**2, axis=1), rcond=None)[0]
    np.testing.assert_allclose(result.A, tau * np.eye(12) + step.reshape(12, 12), atol=1e-6)


@pytest.mark.slow
@given(st.integers(0, 2**31), st.sampled_from(METHODS))
def test_row_scaling_with_delta_scaled_changes_nothing(seed, method):
    rng = np.random.default_rng(seed)
    U, scale = rng.standard_normal((8, 5)), 2.0 ** rng.integers(-20, 20, 8)
    b = readings(U, np.diag(rng.random(5)))
    one = quadsense.solve(U, b, delta=0.01, method=method, rng=3, max_iter=2000)
    two = quadsense.solve(
        U * scale[:, None],
        b * scale**2,
        delta=0.01 * scale**2,
        method=method,
        rng=3,
        max_iter=2000,
    )
    assert one.status is two.status
    np.testing.assert_array_equal(one.A, two.A)  # powers of two are exact


@given(st.integers(0, 2**31))
def test_row_order_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((8, 5))
    b = readings(U, np.diag(rng.random(5)))
    order = rng.permutation(8)
    one = quadsense.solve(U, b, delta=0.01, method="gd")
    two = quadsense.solve(U[order], b[order], delta=0.01, method="gd")
    assert one.status is two.status is Status.MET
    np.testing.assert_allclose(one.A, two.A, atol=1e-7)


def test_unequal_tolerances_and_bounds_are_each_met(gaussian):
    delta = np.geomspace(1e-3, 1e-1, 40)
    result = quadsense.solve(gaussian.U, gaussian.b, delta=delta)
    assert result.success
    assert np.all(np.abs(readings(gaussian.U, result.A) - gaussian.b) <= delta)
    lo, hi = gaussian.b - delta, gaussian.b + 2 * delta
    result = quadsense.solve(gaussian.U, bounds=(lo, hi))
    values = readings(gaussian.U, result.A)
    assert result.success
    assert np.all((lo <= values) & (values <= hi))
    assert result.certificate.verify(gaussian.U, bounds=(lo, hi))


def test_rtol_adds_to_delta(gaussian):
    result = quadsense.solve(gaussian.U, gaussian.b, delta=1e-4, rtol=0.01)
    assert result.success
    assert np.all(np.abs(readings(gaussian.U, result.A) - gaussian.b) <= 1e-4 + 0.01 * gaussian.b)


def test_conjugated_rows_give_the_conjugate_problem(rng):
    x = gaussian_rows(rng, 1, 6, True)[0]
    U = gaussian_rows(rng, 10, 6, True)
    b = np.abs(U @ x) ** 2  # as in phase retrieval: rows are u*
    result = quadsense.solve(U, b, delta=0.01, conjugate=True)
    assert result.success
    values = np.einsum("ij,jk,ik->i", U, result.A, U.conj()).real
    assert np.abs(values - b).max() <= 0.01
    assert result.certificate.verify(U, b)
    assert not result.certificate.verify(U, b, conjugate=False)


def test_sgd_reproduces_bit_for_bit(gaussian):
    runs = [
        quadsense.solve(gaussian.U, gaussian.b, delta=0.01, method="sgd", rng=seed)
        for seed in (5, 5, np.random.default_rng(5), 6)
    ]
    np.testing.assert_array_equal(runs[0].A, runs[1].A)
    np.testing.assert_array_equal(runs[0].A, runs[2].A)
    assert not np.array_equal(runs[0].A, runs[3].A)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("schedule", ["paper", "continuation"])
@pytest.mark.parametrize("data", ["orthonormal", "gaussian"])
def test_strides_can_be_interrupted_and_resumed_exactly(method, schedule, data):
    p = getattr(quadsense.datasets, data)(n=12, m=12, seed=0)
    solver, program, start = build(p.U, p.b, 1e-7, method=method, schedule=schedule)
    state = start
    for _ in range(6):
        state = solver.advance(program, state, 7)
    halfway = start
    for _ in range(3):
        halfway = solver.advance(program, halfway, 7)
    kept = {name: np.copy(value) for name, value in halfway.__dict__.items() if name in "yd"}
    resumed = type(halfway)(**halfway.__dict__)  # as read back from a checkpoint
    for _ in range(3):
        resumed = solver.advance(program, resumed, 7)
    assert resumed.iteration == state.iteration > 21
    np.testing.assert_array_equal(resumed.y, state.y)
    np.testing.assert_array_equal(resumed.d, state.d)
    for name, value in kept.items():  # advance leaves the state it got alone
        np.testing.assert_array_equal(getattr(halfway, name), value)


def test_strict_namespace_follows_the_same_iterates():
    p = quadsense.datasets.gaussian(n=8, m=12, seed=0)
    U = array_api_strict.asarray(p.U)
    for method in METHODS:
        one, two = (
            quadsense.solve(V, p.b, delta=1e-3, method=method, rng=0, max_iter=40) for V in (p.U, U)
        )
        assert one.n_iter == two.n_iter
        np.testing.assert_allclose(np.asarray(two.A), one.A, atol=1e-9)


# --- limits and verdicts -----------------------------------------------------------------------


def test_max_iter_is_a_status_with_the_best_so_far(gaussian):
    result = quadsense.solve(gaussian.U, gaussian.b, delta=1e-8, method="gd", max_iter=7)
    assert result.status is Status.MAX_ITER
    assert not result.success
    assert result.n_iter <= 7
    assert result.history.iteration[-1] == 7
    assert "max_iter = 7" in result.message
    assert result.A.shape == (12, 12)
    np.testing.assert_allclose(readings(gaussian.U, result.A) - gaussian.b, result.residuals)
    assert result.violations.size > 0
    assert result.certificate.kind == "none"
    assert not result.certificate.verify(gaussian.U, gaussian.b)


def test_time_limit_is_a_status(gaussian):
    result = quadsense.solve(gaussian.U, gaussian.b, delta=1e-9, method="gd", time_limit=0.0)
    assert result.status is Status.TIME_LIMIT
    assert result.n_iter == 0


def test_a_contradiction_stalls_and_says_what_to_try():
    U = np.vstack([np.eye(3), np.eye(3)])
    result = quadsense.solve(U, [0, 0, 0, 1, 1, 1], delta=0.1, method="gd")
    assert result.status is Status.STALLED
    assert result.max_residual == pytest.approx(0.5, abs=0.01)
    assert "larger one is needed" in result.message


def test_a_delta_below_rounding_is_said_to_be_so(rng):
    U = rng.standard_normal((5, 5))
    result = quadsense.solve(U, rng.random(5), delta=1e-17)
    assert result.status is Status.UNDECIDED
    assert not result.success
    result = quadsense.solve(np.eye(3), [1.0, 2.0, 3.0], delta=1e-18)
    assert result.status is Status.STALLED
    assert "rounding" in result.message


def test_an_interrupt_returns_the_best_so_far(gaussian):
    def interrupt(at):
        if at.n_iter >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        quadsense.solve(gaussian.U, gaussian.b, delta=1e-9, method="gd", callback=interrupt)
    result = caught.value.result
    assert result.status is Status.INTERRUPTED
    assert result.n_iter >= 5
    np.testing.assert_allclose(readings(gaussian.U, result.A) - gaussian.b, result.residuals)


def test_a_callback_sees_the_iterate_and_may_stop(gaussian):
    seen = []

    def callback(at):
        z = readings(gaussian.U, np.asarray(at.matrix)) - gaussian.b
        assert at.max_residual == pytest.approx(np.abs(z).max(), rel=1e-9)
        assert at.max_ratio == pytest.approx(at.max_residual / 1e-6, rel=1e-9)
        seen.append(at.n_iter)
        if len(seen) == 4:
            raise StopIteration

    result = quadsense.solve(gaussian.U, gaussian.b, delta=1e-6, method="gd", callback=callback)
    assert result.status is Status.INTERRUPTED
    assert "callback" in result.message
    assert seen == sorted(seen)
    assert len(seen) == 4


def test_progress_shows_the_residual_against_delta(gaussian, capsys):
    quadsense.solve(gaussian.U, gaussian.b, delta=0.01, progress=True)
    shown = capsys.readouterr().err
    assert "worst residual" in shown
    assert "against delta 0.01" in shown


def test_history_has_one_entry_a_stride(gaussian):
    result = quadsense.solve(gaussian.U, gaussian.b, delta=0.01, method="gd")
    h = result.history
    assert len(h) > 3
    assert h.iteration[0] == 0
    assert np.all(np.diff(h.iteration) > 0)
    assert np.all(np.diff(h.seconds) >= 0)
    assert h.max_residual[-1] <= 0.01
    assert np.all(np.diff(h.lam) >= 0)
    assert h.max_residual[0] == pytest.approx(
        np.abs(
            np.mean(gaussian.b / np.sum(gaussian.U**2, axis=1)) * np.sum(gaussian.U**2, axis=1)
            - gaussian.b
        ).max()
    )


def test_unseen_directions_are_in_the_message(gaussian):
    result = quadsense.solve(gaussian.U, gaussian.b, delta=0.01)
    assert result.unique is False
    assert result.unseen == 78 - 40
    assert "38 of 78 directions of A are unseen: other matrices fit as well" in result.message
    p = quadsense.datasets.gaussian(n=4, m=12, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.01)
    assert result.unique is True
    assert result.unseen == 0
    assert "determine A" in result.message


def test_a_zero_row_is_dropped_or_is_the_proof():
    U = np.vstack([np.eye(3), np.zeros(3)])
    fine = quadsense.solve(U, [1.0, 2.0, 3.0, 0.05], delta=0.1)
    assert fine.status is Status.MET
    assert fine.residuals[3] == -0.05
    assert fine.certificate.verify(U, [1.0, 2.0, 3.0, 0.05])
    b = [1.0, 2.0, 3.0, 0.5]
    broken = quadsense.solve(U, b, delta=0.1)
    assert broken.status is Status.INFEASIBLE
    assert broken.suspects.tolist() == [3]
    assert "row 3 of U is zero" in broken.message
    assert broken.certificate.kind == "infeasible"
    assert broken.certificate.lower_bound == pytest.approx(5.0)
    assert broken.certificate.verify(U, b)
    assert not broken.certificate.verify(U, [1.0, 2.0, 3.0, 0.05])


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_smallest_problems(method):
    assert pytest.approx(1.0) == quadsense.solve([[2.0]], [4.0], delta=0.1, method=method).A
    assert quadsense.solve([[1.0, 1.0]], [3.0], delta=0.1, method=method).success
    result = quadsense.solve([[1.0], [2.0], [-1.0]], [1.0, 4.0, 1.0], delta=0.1, method=method)
    assert result.success
    assert result.unique


def test_constant_readings_are_met_before_the_first_step():
    result = quadsense.solve(np.eye(4), np.ones(4), delta=0.1, method="gd")
    assert result.n_iter == 0
    assert result.success


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8, bool, np.complex64])
def test_other_number_types_are_taken(dtype):
    U = (np.arange(12).reshape(4, 3) % 3).astype(dtype)
    result = quadsense.solve(U, [1, 2, 3, 4], delta=0.5, max_iter=5000)
    wide = U.astype(np.complex128 if np.iscomplexobj(U) else np.float64)
    z = readings(wide, result.A) - [1, 2, 3, 4]
    np.testing.assert_allclose(z, result.residuals, atol=1e-12)


class NoFloat64:
    """What a namespace says of itself that has float32 only, as JAX does by default."""

    def dtypes(self, *, device=None, kind=None):
        return {"float32": array_api_strict.float32, "complex64": array_api_strict.complex64}


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"psd": True}, {"method": "gd"}])
def test_arrays_of_a_namespace_without_float64_are_read_into_numpy(options, monkeypatch):
    p = quadsense.datasets.gaussian(n=12, m=60, rank=2, seed=0)
    U = array_api_strict.asarray(p.U.astype(np.float32))
    b = array_api_strict.asarray(p.b.astype(np.float32))
    own = quadsense.solve(U, b, delta=0.01, **options)
    assert isinstance(own.A, type(U))
    assert own.A.dtype == array_api_strict.float64
    monkeypatch.setattr(array_api_strict, "__array_namespace_info__", NoFloat64)
    result = quadsense.solve(U, b, delta=0.01, **options)
    assert isinstance(result.A, np.ndarray)
    assert result.A.dtype == np.float64
    assert result.success and result.certificate.verify(U, b)
    wide = np.from_dlpack(U).astype(np.float64)
    z = readings(wide, result.A) - np.from_dlpack(b).astype(np.float64)
    np.testing.assert_allclose(z, result.residuals, atol=1e-12)


def test_the_oracle_works_in_float64_whatever_it_is_given():
    oracle = quadsense.SpectralOracle(np.diag([1.0, 3.0]).astype(np.float32))
    result = quadsense.solve_spectral(oracle, np.eye(2, dtype=np.float32), accuracy=1e-9)
    assert result.A.dtype == np.float64
    assert result.success
    np.testing.assert_allclose(result.A, np.diag([1.0, 3.0]), rtol=1e-9)


def test_lists_and_measurements_are_taken(gaussian):
    one = quadsense.solve(gaussian.U.tolist(), gaussian.b.tolist(), delta=0.01)
    two = quadsense.solve(gaussian.measurements, delta=0.01)
    three = quadsense.solve(quadsense.Measurements(gaussian.U, gaussian.b, delta=0.01))
    np.testing.assert_array_equal(one.A, two.A)
    np.testing.assert_array_equal(one.A, three.A)


def test_overrides_are_used(gaussian):
    result = quadsense.solve(
        gaussian.U,
        gaussian.b,
        delta=0.05,
        method="gd",
        schedule="paper",
        lam=20.0,
        step=0.001,
        max_iter=50,
    )
    assert np.allclose(result.history.lam, 20.0)
    assert np.allclose(result.history.step, 0.001)
    result = quadsense.solve(gaussian.U, gaussian.b, delta=0.05, method="gd", c=0.5, max_iter=50)
    assert np.allclose(result.history.lam * result.history.step, 0.5)
