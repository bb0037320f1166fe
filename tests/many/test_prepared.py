"""`prepare`: the answers of `solve` for readings that come one after the other, and streams."""

import numpy as np
import pytest

import quadsense
from quadsense import Status


def measured(n=3, m=20, noise=0.1, seed=0, is_complex=False):
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n)) + 1j * is_complex * rng.standard_normal((m, n))
    U = U if is_complex else U.real
    x = rng.standard_normal((n, 2))
    return U, ((np.abs(U.conj() @ x)) ** 2).sum(axis=1) + noise * rng.standard_normal(m)


@pytest.mark.parametrize("delta", [None, 0.18, 0.3])
def test_prepared_answers_are_those_of_solve(delta):
    U, _ = measured()
    prepared = quadsense.prepare(U, delta=delta, psd=True, gap=1e-8)
    for seed in range(5):
        b = measured(seed=0)[1] + 0.02 * np.random.default_rng(seed).standard_normal(20)
        answer = prepared.solve(b)
        alone = quadsense.solve(
            U, b, delta=delta, psd=True, prefer="least_squares", ridge=0, gap=1e-8
        )
        assert answer.status is alone.status
        assert bool(answer) == alone.success
        np.testing.assert_allclose(answer.A, alone.A, atol=1e-4)
        if alone.success:
            np.testing.assert_allclose(answer.objective, alone.objective, rtol=1e-6)
            assert answer.objective_lower <= alone.objective * (1.0 + 1e-9)
            assert answer.result().certificate.verify(U, b)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("trace", [None, 1.5])
def test_a_stream_is_least_squares_of_all_rows(is_complex, trace):
    U, b = measured(m=260, is_complex=is_complex)
    asked = {"delta": 2.0, "conjugate": is_complex, "trace": trace}
    stream = quadsense.prepare(U[:15], b[:15], **asked)
    for i in range(15, 240):
        stream.append(U[i], b[i])
    A = stream.append(U[240:], b[240:])
    assert stream.m == 260
    whole = quadsense.solve_many(U, b[None], **asked)
    if trace is None:
        np.testing.assert_allclose(A, whole.A[0], atol=1e-8)
    np.testing.assert_allclose(stream.solve().A, whole.A[0], atol=1e-12)


def test_what_leaves_the_compiled_loops_goes_to_solve():
    U, b = measured(m=5)
    prepared = quadsense.prepare(U, delta=0.1, psd=True)
    assert prepared.solve(b, fallback=False).status is Status.UNDECIDED
    assert prepared.solve(b).status is quadsense.solve(U, b, delta=0.1, psd=True).status


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda U, b: quadsense.prepare(U).solve(b[:3]), r"b has shape \(3,\)"),
        (lambda U, b: quadsense.prepare(U).solve(), "b is missing"),
        (lambda U, b: quadsense.prepare(U).append(U[0], 1.0), r"prepare\(U, b\)"),
        (lambda U, b: quadsense.prepare(U[:4], b[:4]).append(U[0], 1.0), "determine A"),
        (lambda U, b: quadsense.prepare(U, b, delta=1 + b**2).append(U[0], 1.0), "one tolerance"),
        (lambda U, b: quadsense.prepare(U, b).append(U[0, :2], 1.0), r"rows has shape \(1, 2\)"),
        (lambda U, b: quadsense.prepare(U, b).append(U[0], np.nan), "must be finite"),
    ],
)
def test_bad_calls_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*measured())
