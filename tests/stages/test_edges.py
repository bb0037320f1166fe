"""Inputs at the edge: each ends in a status, with a true sentence, and no warning."""

import os
import signal
import threading
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import readings, sampled

import quadsense
from quadsense import SensedMatrix, Status


def noisy(seed=0, m=60, n=4, noise=0.1):
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n))
    return U, np.sum(U * U, axis=1) + noise * rng.standard_normal(m)


@pytest.mark.parametrize("scale", [1e-10, 1e-4, 1.0, 1e6])
def test_the_best_positive_fit_does_not_depend_on_the_scale(scale):
    U, b = noisy()
    result = quadsense.solve(U, scale * b, psd=True)
    assert result.status is Status.OPTIMAL, result.message
    one = quadsense.solve(U, b, psd=True)
    assert result.max_residual == pytest.approx(scale * one.max_residual, rel=0.02)
    assert result.certificate.verify(U, scale * b)


def test_exact_positive_data_without_a_delta_are_fitted_exactly():
    U, b = noisy(m=30, n=6, noise=0.0)
    result = quadsense.solve(U, b, psd=True)
    assert result.status is Status.OPTIMAL, result.message
    assert result.max_residual <= 1e-7
    assert result.certificate.verify(U, b)


@pytest.mark.parametrize("options", [{}, {"method": "cg"}, {"psd": True}, {"method": "gd"}])
def test_a_delta_below_rounding_ends(options):
    u = np.rint(np.random.default_rng(1).standard_normal(7) * 1000)
    U, b = np.stack([u, 3 * u]), np.array([1.0, 9.0])
    result = quadsense.solve(U, b, delta=1e-16 * b, **options)
    assert result.status in (Status.STALLED, Status.UNDECIDED, Status.MET)
    result = quadsense.solve(np.ones((1, 1)), [1.0], delta=1e-300, **options)
    assert result.status in (Status.STALLED, Status.UNDECIDED, Status.MET)


@pytest.mark.parametrize("offset", [3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-12])
def test_ill_conditioned_exact_data_end_without_a_false_sentence(offset, delta):
    i = np.arange(8.0)
    U, b = np.stack([offset + i, np.ones(8)], axis=1), (i - 3) ** 2
    result = quadsense.solve(U, b, delta=delta)
    assert result.status in (Status.MET, Status.UNDECIDED, Status.STALLED)
    if result.status is not Status.MET:
        assert "at least" not in str(result.verdict.reason)


@pytest.mark.parametrize("seed", sampled(range(6), 2))
def test_rows_of_mixed_norms_under_one_delta_get_their_verdict(seed):
    from test_verdicts import best_symmetric

    rng = np.random.default_rng(seed)
    U, A = rng.standard_normal((40, 4)), rng.standard_normal((4, 4))
    scale = 10.0 ** rng.uniform(-3, 3, 40)
    b = readings(U * scale[:, None], A @ A.T) + 0.1 * scale**2 * rng.standard_normal(40)
    U = U * scale[:, None]
    with np.errstate(all="ignore"):
        truth = best_symmetric(U, b)
    for delta, expected in ((0.9 * truth, Status.INFEASIBLE), (1.1 * truth, Status.MET)):
        result = quadsense.solve(U, b, delta=delta)
        assert result.status is expected, result.message
        assert result.certificate.verify(U, b)


def test_an_interrupt_during_cg_is_not_lost_on_minimax():
    U, b = noisy(m=2000, n=40, noise=0.5)
    pressed = []

    def press(at):
        if not pressed:
            pressed.append(at.n_iter)
            os.kill(os.getpid(), signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    with pytest.raises(KeyboardInterrupt) as caught:
        quadsense.solve(U, b, delta=0.01, callback=press, prefer="any")
    result = caught.value.result
    assert result.status is Status.INTERRUPTED
    assert result.plan["method"] == "cg"


def test_violations_need_something_to_violate():
    U, b = noisy()
    with pytest.raises(ValueError, match="allow_violations needs delta or bounds"):
        quadsense.solve(U, b, allow_violations=3)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_zero_row_bounds_the_best_error_from_below(noise):
    U, b = noisy(3, 40, noise=noise)
    U[3], b[3] = 0.0, -5.0
    result = quadsense.solve(U, b, prefer="minimax")
    assert result.status is Status.OPTIMAL
    assert result.max_residual == 5.0
    assert result.certificate.lower_bound == 5.0
    assert result.certificate.verify(U, b)


def test_a_claim_of_positivity_is_checked():
    U, _ = noisy()
    b = readings(U, np.eye(4))
    certificate = quadsense.solve(U, b, delta=0.01, psd=True, prefer="any").certificate
    assert certificate.verify(U, b)
    forged = replace(certificate, matrix=SensedMatrix.from_dense(-np.eye(4)))
    assert not forged.verify(U, -b)
    honest = replace(certificate, matrix=SensedMatrix.from_dense(np.eye(4)))
    assert honest.verify(U, b)


def test_rows_without_any_bound_ask_for_nothing():
    rng = np.random.default_rng(0)
    U, b = noisy(m=40)
    lo = np.where(rng.random(40) < 0.5, b - 0.5, -np.inf)
    hi = np.where(rng.random(40) < 0.5, b + 0.5, np.inf)
    for psd in (None, True):
        result = quadsense.solve(U, bounds=(lo, hi), psd=psd)
        assert result.status is Status.MET, result.message
        values = readings(U, np.asarray(result.matrix))
        assert np.all((lo <= values) & (values <= hi))


def test_starts_of_other_kinds_are_taken():
    U, b = noisy()
    for start in (sp.csr_array(np.eye(4)), np.eye(4) + 0j, np.eye(4, dtype=np.int64)):
        assert quadsense.solve(U, b, delta=0.5, start=start).status is Status.MET


def test_a_time_limit_holds_for_all_methods_together():
    U, b = noisy(m=300, n=10, noise=0.5)
    for options in ({"delta": 0.1}, {"psd": True}, {}, {"delta": 0.1, "allow_violations": 5}):
        result = quadsense.solve(U, b, time_limit=0.0, **options)
        assert result.status in (Status.TIME_LIMIT, Status.INFEASIBLE, Status.OPTIMAL)


@pytest.mark.parametrize("b", [0.0, 1.0])
def test_rows_that_are_all_zero(b):
    U = np.zeros((4, 3))
    for psd in (None, True):
        result = quadsense.solve(U, np.full(4, b), delta=0.1, psd=psd)
        assert result.status == ("infeasible" if b else "met")
        assert result.certificate.verify(U, np.full(4, b))


@pytest.mark.parametrize("options", [{}, {"method": "gd"}])
def test_wide_rows_are_not_copied(options, rng):
    U = 3.0 * rng.standard_normal((60, 100_000))  # 48 MB, not of unit norm
    b = (U * U).sum(axis=1) * (1.0 + 0.01 * rng.standard_normal(60))
    quadsense.solve(U[:2, :3], b[:2], delta=1.0, max_iter=1, **options)  # imports what it needs
    tracemalloc.start()
    try:
        result = quadsense.solve(U, b, delta=1e-3 * b.max(), **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.success
    assert peak < 0.5 * U.nbytes, f"{peak / U.nbytes:.2f} of U"


def test_few_wide_rows_are_fitted_by_a_positive_matrix_within_their_span(rng):
    U = rng.standard_normal((20, 60_000))
    b = (U * U).sum(axis=1) * (1.0 + 0.01 * rng.standard_normal(20))
    result = quadsense.solve(U, b, delta=1e-3 * b.max(), psd=True)  # 27 GB as a dense matrix
    assert result.success
    assert result.matrix.factor.shape == (60_000, 20)
    assert result.certificate.verify(U, b)
