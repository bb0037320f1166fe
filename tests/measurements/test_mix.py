"""Readings that are sums over rows (`mix`), against explicit maps, HiGHS and least squares."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import cvxpy as cp
import numpy as np
import programs
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from helpers import cover, deep, sampled
from kinds import NAMES, cases
from scipy.optimize import linprog
from test_conformance import question
from toy import Toy

import quadsense
from quadsense import Measurements, Status, solve
from quadsense.cli import cli
from quadsense.measurements.mixed import Mixed
from quadsense.methods import METHODS, register
from quadsense.methods.low_rank.passes import evaluate as evaluate_factor
from quadsense.methods.low_rank.program import prepare as prepare_factored
from quadsense.methods.low_rank.steps import normal_equations
from quadsense.proofs.infeasible import exactly
from quadsense.proofs.rounding import adjoint_norm
from quadsense.proofs.symmetric import smallest_singular_value
from quadsense.result.values import evaluate

SHAPES = [(6, 60, 50), (6, 30, 12), (12, 10, 6), (5, 80, 14)]  # n, rows, readings


def problem(n, m, p, complex_=False, seed=0, kind="dense"):
    """Rows, weights of both signs, a matrix and what it reads."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n)) * 10.0 ** rng.uniform(-1, 1, (m, 1))
    if complex_:
        U = U + 1j * rng.standard_normal((m, n))
    W = rng.standard_normal((p, m)) * (rng.random((p, m)) < 0.3)
    W[np.arange(p), rng.integers(0, m, p)] += 1.0
    X = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if complex_ else 0.0)
    A = X + X.conj().T
    return U, (sp.csr_array(W) if kind == "sparse" else W), A, W @ values(U, A)


def values(U, A):
    """What single rows read."""
    return np.einsum("ij,jk,ik->i", U.conj(), A, U).real


def explicit(U, W):
    """The map on a basis of the matrices, (p, N), and that basis."""
    W = W.toarray() if sp.issparse(W) else W
    return W @ programs.features(U), programs.basis(U.shape[1], np.iscomplexobj(U))


def least_ratio(Phi, b, delta):
    """The smallest worst ratio, by HiGHS."""
    p, size = Phi.shape
    scale = delta * np.ones(p)
    rows = Phi / scale[:, None]
    ones = np.ones((p, 1))
    A = np.block([[rows, -ones], [-rows, -ones]])
    cost = np.append(np.zeros(size), 1.0)
    bounds = [(None, None)] * size + [(0, None)]
    return linprog(cost, A, np.append(b / scale, -b / scale), bounds=bounds).fun


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(("n", "m", "p"), SHAPES)
def test_the_operator_is_that_of_the_explicit_sums(n, m, p, complex_, kind):
    U, W, A, b = problem(n, m, p, complex_, kind=kind)
    data = Measurements(U, b, delta=0.1, mix=W)
    F = data.unit_rows
    norms = F.norms**2
    dense = W.toarray() if kind == "sparse" else W
    measured = [np.einsum("k,ki,kj->ij", w, U, U.conj()) for w in dense]
    sizes = np.array([np.linalg.norm(f) for f in measured])
    np.testing.assert_allclose(norms, sizes, rtol=1e-10)
    G = [f / size for f, size in zip(measured, sizes, strict=True)]
    np.testing.assert_allclose(data.forward(A), b, rtol=1e-10, atol=1e-9 * abs(b).max())
    y = np.random.default_rng(1).standard_normal(p)
    sums = sum(w * g for w, g in zip(y, G, strict=True))
    np.testing.assert_allclose(F.adjoint(y), sums, atol=1e-12)
    K = np.array([[np.vdot(g, h).real for h in G] for g in G])
    np.testing.assert_allclose(F.gram(), K, atol=1e-11)
    np.testing.assert_allclose(F.gram_times(y), K @ y, atol=1e-11)
    np.testing.assert_allclose(F.gram_times(np.stack([y, y], 1))[:, 1], K @ y, atol=1e-11)
    np.testing.assert_allclose(F.squares, [np.trace(g).real for g in G], atol=1e-11)
    features = F.features()
    np.testing.assert_allclose(features @ features.T, K, atol=1e-11)
    weights = np.arange(1.0, p + 1)
    normal = np.triu(F.normal(weights))
    np.testing.assert_allclose(normal, np.triu(features.T * weights @ features), atol=1e-9)
    np.testing.assert_allclose(F.weighed(weights).gram(), K * np.outer(weights, weights) ** 2)
    index = np.array([1, 3])
    np.testing.assert_allclose(F.only(index).forward(A), F.forward(A)[index], atol=1e-10)
    X = A[:, :2]
    np.testing.assert_allclose(F.factored(X), F.forward(X @ X.conj().T), rtol=1e-9, atol=1e-9)
    assert np.linalg.eigvalsh(K)[-1] <= F.row_sums(lambda s: K @ s).max() * (1 + 1e-12)
    assert data.rank == np.linalg.matrix_rank(K, tol=1e-10)


@pytest.mark.parametrize("method", ["auto", "gd", "sgd", "cg", "minimax"])
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(("n", "m", "p"), SHAPES)
def test_every_symmetric_method_meets_the_sums(n, m, p, complex_, method):
    U, W, _, b = problem(n, m, p, complex_, kind="sparse" if p % 4 else "dense")
    result = solve(U, b, delta=0.05 * abs(b).max(), mix=W, method=method)
    assert result.status is Status.MET
    found = W @ values(U, np.asarray(result.matrix))
    assert np.abs(found - b).max() <= 0.05 * abs(b).max() * (1 + 1e-9)
    np.testing.assert_allclose(result.residuals, found - b, atol=1e-8 * abs(b).max())
    assert result.verify(U, b, mix=W)
    assert result.certificate.verify(Measurements(U, b, mix=W))
    assert not result.certificate.verify(U, b + 0.2 * abs(b).max(), mix=W)


def test_with_more_readings_than_unknowns_the_fit_is_least_squares():
    U, W, _, b = problem(6, 60, 50, True)
    b = b + 0.01 * np.random.default_rng(3).standard_normal(50) * abs(b).max()
    result = solve(U, b, delta=abs(b).max(), mix=W, method="cg", start="zero")
    Phi, basis = explicit(U, W)
    sizes = Measurements(U, b, mix=W).unit_rows.norms ** 2
    # As for single rows: residuals of unit rows, weighed by their tolerances, are the given ones.
    weights = 1.0 / np.full(50, abs(b).max())
    x = np.linalg.lstsq(Phi * weights[:, None], b * weights)[0]
    expected = sum(c * E for c, E in zip(x, basis, strict=True))
    assert sizes.shape == (50,)
    assert np.linalg.norm(np.asarray(result.matrix) - expected) <= 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("complex_", [False, True])
def test_the_smallest_worst_error_is_that_of_a_linear_program(complex_):
    U, W, _, b = problem(4, 40, 30, complex_)
    b = b + 3.0 * np.random.default_rng(2).standard_normal(30)
    least = least_ratio(explicit(U, W)[0], b, 1.0)
    result = solve(U, b, mix=W, prefer="minimax")
    assert result.status is Status.OPTIMAL
    lower, upper = result.certificate.lower_bound, result.certificate.upper_bound
    assert lower <= least * (1 + 1e-7)
    assert least <= upper * (1 + 1e-7)
    assert upper <= 1.02 * lower
    assert result.verify(U, b, mix=W)
    impossible = solve(U, b, delta=0.97 * least, mix=W)
    assert impossible.status is Status.INFEASIBLE
    assert not impossible.certificate.condition  # the sums see every direction
    assert impossible.verify(U, b, mix=W)
    assert not impossible.certificate.verify(U, W @ values(U, np.eye(4)), mix=W)
    assert solve(U, b, delta=1.03 * least, mix=W).status is Status.MET


def test_few_contradictory_sums_are_proved_so_among_matrices_of_moderate_size():
    U, _, A, _ = problem(8, 12, 6)
    W = np.zeros((3, 12))
    W[0, :6], W[1, 6:], W[2] = 1.0, -1.0, [1.0] * 6 + [-1.0] * 6  # the third is the sum of two
    b = W @ values(U, A)
    assert solve(U, b, delta=1.0, mix=W).status is Status.MET
    b[2] += 10.0
    result = solve(U, b, delta=1.0, mix=W)
    assert result.status is Status.INFEASIBLE
    assert result.verify(U, b, mix=W)
    assert 3.0 < result.certificate.lower_bound <= 10.0 / 3.0 * (1 + 1e-9)


def test_the_identity_as_mix_gives_what_none_gives():
    U, _, A, _ = problem(6, 15, 3, True)
    b = values(U, A)
    for W in (np.eye(15), sp.eye_array(15, format="csr")):
        for noise in (0.0, 1.0):
            readings = b + noise * np.sin(np.arange(15)) * abs(b).max()
            plain = solve(U, readings, delta=0.1)
            mixed = solve(U, readings, delta=0.1, mix=W)
            assert mixed.status is plain.status
            assert (mixed.prefer, mixed.plan["method"]) == (plain.prefer, plain.plan["method"])
            np.testing.assert_allclose(
                np.asarray(mixed.matrix), np.asarray(plain.matrix), atol=1e-3 * abs(A).max()
            )
            assert mixed.certificate.verify(U, readings)


def test_expectation_values_of_observables_are_sums_of_projectors():
    # Pauli operators on two qubits: each is a difference of projectors, and together with I they
    # are orthogonal in the inner product of matrices.
    paulis = [np.eye(2), np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]])]
    paulis = [P.astype(complex) for P in (*paulis, np.diag([1.0, -1.0]))]
    rows, weights, operators = [], [], []
    for P in paulis:
        for Q in paulis:
            operators.append(np.kron(P, Q))
            eigenvalues, vectors = np.linalg.eigh(operators[-1])
            rows.append(vectors.T)
            weights.append(eigenvalues[None])
    U, W = np.concatenate(rows), sp.block_diag(weights, format="csr")
    psi = np.array([1, 0, 0, 1j]) / np.sqrt(2)
    state = np.outer(psi, psi.conj())
    b = np.array([np.trace(state @ P).real for P in operators])
    data = Measurements(U, b, delta=1e-6, mix=W)
    assert data.facts.orthonormal
    assert data.facts.rank == data.facts.unknowns == 16
    for prefer, used in (("any", "any"), ("auto", "least_squares")):
        result = solve(data, prefer=prefer)
        assert result.prefer == used and result.optimal is not False
        assert result.status is Status.MET
        np.testing.assert_allclose(np.asarray(result.matrix), state, atol=1e-6)
        assert result.verify(U, b, mix=W)
    assert solve(data, prefer="any").plan["methods"] == ["closed_form"]


def test_bounds_with_one_end_and_violations_go_with_sums():
    U, W, _A, b = problem(4, 40, 30)
    size = abs(b).max()
    result = solve(U, bounds=(b - 0.1 * size, np.where(np.arange(30) % 2, np.inf, b)), mix=W)
    assert result.status is Status.MET
    assert result.verify(U, bounds=(b - 0.1 * size, np.where(np.arange(30) % 2, np.inf, b)), mix=W)
    wrong = b.copy()
    wrong[[3, 17]] += size
    result = solve(U, wrong, delta=1e-3 * size, mix=W, allow_violations=2)
    assert result.status is Status.MET
    assert sorted(result.set_aside) == [3, 17]
    assert result.verify(U, wrong, mix=W)
    refused = solve(U, wrong, delta=1e-3 * size, mix=W, allow_violations=1)
    assert refused.status is Status.INFEASIBLE
    assert refused.verify(U, wrong, mix=W)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("delta", [0.5, 1e-9])
def test_what_is_written_and_read_back_verifies(tmp_path, kind, delta):
    U, W, _, b = problem(5, 8, 30, kind=kind)
    b = b + (delta < 1e-3) * np.sin(np.arange(30.0))
    data = Measurements(U, b, delta=delta, mix=W)
    result = solve(data)
    assert result.status in (Status.MET, Status.INFEASIBLE)
    data.save(tmp_path / "data.npz")
    result.save(tmp_path / "result.npz")
    again = Measurements.open(tmp_path / "data.npz")
    assert sp.issparse(again.mix) == (kind == "sparse")
    assert again.unit_rows.same_as(data.unit_rows)
    assert quadsense.load_result(tmp_path / "result.npz").verify(again)
    assert not again.unit_rows.same_as(Measurements(U, b, mix=2.0 * W).unit_rows)


def test_an_implicit_answer_is_held_on_the_rows_of_U():
    U, W, _, b = problem(12, 10, 6)
    result = solve(U, b, delta=0.1 * abs(b).max(), mix=W, method="gd")
    assert result.matrix.form.c.shape == (10,)
    warm = solve(U, b, delta=0.01 * abs(b).max(), mix=W, start=result)
    assert warm.status is Status.MET


def test_sums_that_measure_nothing_are_rows_of_zeros():
    U, W, _, b = problem(6, 30, 12)
    W[4] = 0.0
    b[4] = 0.0
    result = solve(U, b, delta=0.01, mix=W)
    assert result.status is Status.MET
    b[4] = 1.0
    impossible = solve(U, b, delta=0.01, mix=W)
    assert impossible.status is Status.INFEASIBLE
    assert impossible.verify(U, b, mix=W)


def test_rows_that_cancel_leave_nothing_that_a_certificate_would_believe():
    U, _, A, _ = problem(5, 6, 3)
    U[1] = U[0]
    W = np.array([[1.0, -1.0, 0, 0, 0, 0], [0, 0, 1.0, 1.0, 0, 0]])
    reading = (W @ values(U, A))[1]
    assert solve(U, [0.0, reading], delta=0.1, mix=W).status is Status.MET
    result = solve(U, [1.0, reading], delta=0.1, mix=W)
    assert result.status is not Status.MET
    assert result.verify(U, [1.0, reading], mix=W) or result.status is not Status.INFEASIBLE


def _exact_values(U, W, A):
    """``<F_i, A>`` in fractions, for real data."""
    U, W, A = ([[Fraction(float(x)) for x in row] for row in M] for M in (U, W, A))
    n = range(len(A))
    each = [sum(u[i] * A[i][j] * u[j] for i in n for j in n) for u in U]
    return [sum(w * v for w, v in zip(row, each, strict=True)) for row in W]


@pytest.mark.parametrize("cancel", [0.0, 1e-4])
def test_rounding_bounds_hold_against_exact_arithmetic(cancel):
    U, W, A, b = problem(5, 14, 9, seed=5)
    if cancel:  # nearly cancelling sums, where the bound must grow
        U[7:] = U[:7] + cancel * U[7:]
        W = np.concatenate([np.eye(7), -np.eye(7)], axis=1)
        b = W @ values(U, A)
    data = Measurements(U, b, delta=1.0, mix=W)
    U_, W_ = np.asarray(U), np.asarray(W)
    for matrix in (
        quadsense.SensedMatrix.from_dense(A),
        quadsense.SensedMatrix.from_factor(A[:, :2]),
        solve(data, method="gd").matrix,
    ):
        found = evaluate(data, matrix)
        truth = _exact_values(U_, W_, np.asarray(matrix))
        if matrix.factor is not None:
            X = [[Fraction(float(x)) for x in row] for row in matrix.factor]
            product = [[sum(a * c for a, c in zip(r, s, strict=True)) for s in X] for r in X]
            each = _each(U_, product)
            truth = [
                sum(Fraction(float(w)) * v for w, v in zip(row, each, strict=True)) for row in W_
            ]
        errors = [
            abs(Fraction(float(r)) + Fraction(float(x)) - t)
            for r, x, t in zip(found.residuals, data.b, truth, strict=True)
        ]
        slack = 1e-12 if matrix.factor is None and not hasattr(matrix.form, "values") else 0.0
        assert all(
            float(e) <= bound + slack * np.linalg.norm(np.asarray(matrix))
            for e, bound in zip(errors, found.error, strict=True)
        )
        assert np.all(found.error > 0.0)


def _each(U, A):
    n = range(len(A))
    rows = [[Fraction(float(x)) for x in u] for u in U]
    return [sum(u[i] * A[i][j] * u[j] for i in n for j in n) for u in rows]


def test_the_bounds_of_proofs_hold_for_sums():
    U, W, _, b = problem(4, 40, 30)
    data = Measurements(U, b, delta=1.0, mix=W)
    y = np.random.default_rng(0).standard_normal(30)
    exact = exactly(data, y)
    assert isinstance(exact.F, Mixed)
    truth = sum(v * np.einsum("k,ki,kj->ij", w, U, U) for v, w in zip(y, W, strict=True))
    bound = adjoint_norm(exact.F, exact.y)
    assert np.linalg.norm(truth) <= bound <= np.linalg.norm(truth) * (1 + 1e-9)
    features = exact.F.features()
    sigma = smallest_singular_value(exact.F)
    assert 0.0 < sigma <= np.linalg.svd(features, compute_uv=False)[-1]
    # A vector that makes F*(y) vanish leaves roundings only.
    left = np.linalg.svd(features.T)[2][-1]
    assert adjoint_norm(exact.F, left) <= 1e-12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda W: W[:, :-1], r"mix has shape \(12, 29\).*\(p, 30\)"),
        (lambda W: W[0], "mix must have two dimensions"),
        (lambda W: W + 1j, "mix must be real"),
        (lambda W: W[:0], r"mix has shape \(0, 30\)"),
        (lambda W: np.where(np.arange(12)[:, None] == 7, np.nan, W), "mix.*NaN.*row 7"),
        (lambda W: sp.csr_array(np.where(np.eye(12, 30) > 0, np.inf, W)), "mix.*infinity.*row 0"),
        (lambda W: W.astype(str), "mix must hold numbers"),
        (lambda W: [[1.0], [1.0, 2.0]], "mix is not a rectangular array"),
        (lambda W: W * np.where(np.arange(12)[:, None] == 5, 1e308, 1.0), "row 5 of mix.*range"),
        (lambda W: np.ma.masked_array(W), "mix is a masked array"),
    ],
)
def test_a_bad_mix_is_named(change, words):
    U, W, _, b = problem(6, 30, 12)
    with pytest.raises(ValueError, match=words):
        solve(100.0 * U, b, delta=0.1, mix=change(W))


def test_arguments_beside_a_mix_are_counted_by_its_rows():
    U, W, _, b = problem(6, 30, 12)
    with pytest.raises(ValueError, match=r"b has shape \(30,\).*one value per row of mix"):
        solve(U, np.ones(30), delta=0.1, mix=W)
    with pytest.raises(ValueError, match=r"delta has shape \(30,\).*one value per row of mix"):
        solve(U, b, delta=np.ones(30), mix=W)
    with pytest.raises(ValueError, match="mix belong to Measurements"):
        solve(Measurements(U, b, mix=W), delta=0.1, mix=W)
    result = solve(U, b, delta=0.1, mix=W)
    with pytest.raises(ValueError, match="mix belong to Measurements"):
        result.certificate.verify(Measurements(U, b, mix=W), mix=W)
    with pytest.raises(ValueError, match="12 measurements, the data are 30"):
        result.certificate.verify(U, np.ones(30))


def test_rows_beyond_the_range_of_squares_are_mixed_where_the_sums_are_within():
    U, W, _A, b = problem(5, 40, 20)
    scales = np.ldexp(1.0, np.random.default_rng(0).integers(-200, 200, 40))
    result = solve(U * scales[:, None], b, delta=0.1, mix=W / scales**2)
    assert result.status is Status.MET
    assert result.verify(U * scales[:, None], b, mix=W / scales**2)


def least_psd(U, W, b):
    """The smallest worst error of positive semidefinite matrices, by Clarabel."""
    n, complex_ = U.shape[1], np.iscomplexobj(U)
    A = cp.Variable((n, n), hermitian=True) if complex_ else cp.Variable((n, n), symmetric=True)
    t, constraints = cp.Variable(), [A >> 0]
    for w, reading in zip(W, b, strict=True):
        value = cp.trace(np.einsum("k,ki,kj->ij", w, U, U.conj()) @ A)
        constraints.append(cp.abs((cp.real(value) if complex_ else value) - reading) <= t)
    cp.Problem(cp.Minimize(t), constraints).solve(solver="CLARABEL")
    return float(t.value)


@pytest.mark.parametrize("signs", sampled([True, False], 1))
@pytest.mark.parametrize("complex_", sampled([False, True], 1))
@pytest.mark.parametrize(("n", "m", "p"), [(6, 60, 50), (5, 80, 14), (12, 10, 6), (7, 40, 20)])
def test_among_positive_semidefinite_matrices_verdicts_are_those_of_clarabel(
    n, m, p, complex_, signs
):
    U, W, A, _ = problem(n, m, p, complex_)
    U = U / np.linalg.norm(U, axis=1)[:, None]
    W = W if signs else np.abs(W)
    A = A @ A.conj().T / n
    exact = W @ values(U, A)
    fit = solve(U, exact, delta=1e-3, mix=W, psd=True)
    assert fit.status is Status.MET
    assert np.linalg.eigvalsh(np.asarray(fit.matrix))[0] >= -1e-9
    assert np.abs(W @ values(U, np.asarray(fit.matrix)) - exact).max() <= 1e-3 * (1 + 1e-9)
    assert fit.verify(U, exact, mix=W)
    b = exact + 10.0 * np.random.default_rng(9).standard_normal(p)
    least = least_psd(U, W, b)
    best = solve(U, b, mix=W, psd=True)
    assert best.status is Status.OPTIMAL
    assert best.verify(U, b, mix=W)
    if least < 1e-5:
        assert best.max_residual < 1e-5
        return
    assert best.certificate.lower_bound <= least * (1 + 1e-6)
    assert best.certificate.upper_bound >= least * (1 - 1e-6)
    impossible = solve(U, b, delta=0.97 * least, mix=W, psd=True)
    assert impossible.status is Status.INFEASIBLE
    assert impossible.verify(U, b, mix=W)
    assert not impossible.certificate.verify(U, exact, mix=W)
    possible = solve(U, b, delta=1.03 * least, mix=W, psd=True)
    assert possible.status is Status.MET
    assert possible.verify(U, b, mix=W)


def test_a_negative_sum_is_a_contradiction_only_where_the_sum_is_definite():
    U, b = np.eye(3), np.array([-1.0])
    assert solve(U, b, delta=0.1, mix=[[1.0, -1.0, 0.0]], psd=True).status is Status.MET
    result = solve(U, b, delta=0.1, mix=[[1.0, 1.0, 0.0]], psd=True)
    assert result.status is Status.INFEASIBLE
    assert result.verify(U, b, mix=[[1.0, 1.0, 0.0]])


def test_positive_semidefinite_fits_with_one_end_and_violations():
    U, W, A, _ = problem(5, 40, 30)
    U = U / np.linalg.norm(U, axis=1)[:, None]
    b = W @ values(U, A @ A)
    bounds = (np.where(np.arange(30) % 2, -np.inf, b - 0.5), b + 0.5)
    result = solve(U, bounds=bounds, mix=W, psd=True)
    assert result.status is Status.MET
    assert result.verify(U, bounds=bounds, mix=W)
    wrong = b.copy()
    wrong[3] += 100.0
    result = solve(U, wrong, delta=0.01, mix=W, psd=True, allow_violations=1)
    assert result.status is Status.MET
    assert list(result.set_aside) == [3]
    assert result.verify(U, wrong, mix=W)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("rank", [2, "auto"])
@pytest.mark.parametrize(("n", "m", "p"), [(8, 80, 60), deep(20, 900, 700), deep(8, 40, 30)])
def test_fits_of_low_rank_are_found_from_sums(n, m, p, rank, complex_):
    U, W, A, _ = problem(n, m, p, complex_, kind="sparse" if p > 100 else "dense")
    U = U / np.linalg.norm(U, axis=1)[:, None]
    X = A[:, :2]
    b = W @ values(U, X @ X.conj().T)
    result = solve(U, b, delta=1e-4 * abs(b).max(), mix=W, rank=rank, rng=0)
    assert result.status is Status.MET
    assert result.matrix.factor.shape == (n, 2)
    assert (
        np.linalg.norm(np.asarray(result.matrix) - X @ X.conj().T) <= 0.02 * np.linalg.norm(X) ** 2
    )
    assert result.verify(U, b, mix=W)
    assert (b < 0).any()  # which no single row reads of such a matrix


def test_what_no_matrix_of_any_rank_fits_is_not_met_at_a_low_one():
    U, W, _, _ = problem(5, 60, 40)
    U, b = U / np.linalg.norm(U, axis=1)[:, None], np.random.default_rng(4).standard_normal(40)
    result = solve(U, b, delta=0.01, mix=W, rank=1, max_restarts=2)
    assert result.status is not Status.MET
    if result.status is Status.INFEASIBLE:
        assert result.verify(U, b, mix=W)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("theta", [0.0, 0.5])
def test_slopes_and_steps_of_a_factor_are_those_of_the_loss(complex_, theta):
    U, W, A, _ = problem(5, 12, 9, complex_)
    F = Measurements(U, np.ones(9), delta=1.0, mix=W).unit_rows
    rng = np.random.default_rng(0)
    b, delta = rng.standard_normal(9), rng.uniform(0.1, 1.0, 9)
    program = prepare_factored(F, b, delta, 2)
    Y = np.ascontiguousarray(A[:2]) / 10.0
    point = evaluate_factor(program, Y, theta)
    np.testing.assert_allclose(point.z, F.forward(Y.T @ Y.conj()) - b, atol=1e-10)
    D = rng.standard_normal(Y.shape) + (1j * rng.standard_normal(Y.shape) if complex_ else 0.0)
    h = 1e-6
    ahead, behind = (evaluate_factor(program, Y + s * h * D, theta).value for s in (1, -1))
    assert (ahead - behind) / (2 * h) == pytest.approx(np.vdot(point.gradient, D).real, rel=1e-6)
    # A Gauss-Newton step solves its least squares problem.
    shift = 1e-3
    step = normal_equations(program, point, None, shift, 1e-3)(point.gradient)
    active = point.excess != 0.0
    G = [2.0 * np.tensordot(w, [np.outer(u, u.conj()) for u in F.raw.rows()], 1) for w in F.weights]
    J = np.stack([(Y @ g.T).reshape(-1) for g in G])[active]
    J = np.sqrt(program.weight[active])[:, None] * J
    J = np.concatenate([J.real, J.imag], 1) if complex_ else J
    flat = step.reshape(-1)
    flat = np.concatenate([flat.real, flat.imag]) if complex_ else flat
    slope = point.gradient.reshape(-1)
    slope = np.concatenate([slope.real, slope.imag]) if complex_ else slope
    left = J.T @ (J @ flat) + slope  # what the damping alone accounts for
    diagonal = np.sum(J**2, axis=0)
    assert np.linalg.norm(left) <= 2.0 * shift * diagonal.max() * 5 * np.linalg.norm(flat)


def test_the_spectral_certificate_bounds_the_distance_from_sums():
    rng = np.random.default_rng(0)
    for complex_ in (False, True):
        U, W, A, _ = problem(5, 80, 60, complex_)
        U = U / np.linalg.norm(U, axis=1)[:, None]
        truth = A @ A.conj().T + 5.0 * np.eye(5)
        exact = W @ values(U, truth)
        for confidence in (None, 0.95):
            b = exact + 1e-3 * rng.choice([-1.0, 1.0], 60)
            result = solve(U, b, delta=0.1, mix=W)
            found = result.certificate.spectral(1e-3, confidence=confidence)
            assert found.verdict == "bounded"
            root = np.linalg.inv(np.linalg.cholesky(truth))
            distance = root @ np.asarray(result.matrix) @ root.conj().T - np.eye(5)
            largest = np.abs(np.linalg.eigvalsh(distance)).max()
            assert largest <= found.delta <= 1000 * largest + 1e-3
        few = solve(U, b[:10], delta=0.1, mix=W[:10]).certificate.spectral(1e-3)
        assert few.verdict == "undetermined"
        assert few.unseen == (25 if complex_ else 15) - 10
        assert result.certificate.spectral(1e-9).verdict == "refuted"


@pytest.mark.parametrize("asked", [{}, {"prefer": "minimax"}, {"allow_violations": 1}])
def test_sums_that_all_cancel_read_zero(asked):
    U, W, b = np.ones((2, 2)), np.array([[1.0, -1.0]] * 3), [0.5, -0.2, 0.4]
    assert solve(U, b, delta=1.0, mix=W, **asked).status is Status.MET
    assert solve(U, b, delta=0.1, mix=W, **asked).status is Status.INFEASIBLE


def test_a_method_that_reads_rows_one_by_one_is_refused():
    register(Toy)
    try:
        U, W, _, b = problem(6, 30, 12)
        with pytest.raises(ValueError, match=r"'toy' cannot take sums over rows \(mix\)"):
            solve(U, b, delta=0.1, mix=W, method="toy")
        assert solve(U, b, delta=0.1, mix=W).status is Status.MET
    finally:
        METHODS._registered.clear()


TASKS = ["consistent", "no delta", "infeasible", "psd", "psd infeasible", "rank", "bounds"]


@pytest.mark.parametrize(
    ("name", "task"),
    [*cover(NAMES[::2], TASKS), *(deep(*pair) for pair in product(NAMES[1::2], TASKS))],
)
def test_sums_of_every_kind_of_probes_give_the_verdict_of_the_array(tmp_path, name, task):
    given, U, named = next(rest for each, *rest in cases(tmp_path, many=True) if each == name)
    m = len(U)
    W = sp.csr_array(sp.eye_array(m) + 0.25 * sp.eye_array(m, k=1) - 0.25 * sp.eye_array(m, k=-2))
    asked = question(U, task)
    if asked["b"] is not None:
        asked["b"] = W @ asked["b"]
    else:
        b = asked["bounds"][0] + 1e-6 * abs(asked["bounds"][0]).max()
        asked["bounds"] = (W @ b - 1e-3, np.where(np.arange(m) % 2, W @ b + 1e-3, np.inf))
    truth = solve(U, **asked, mix=W)
    result = solve(given, **asked, **named, mix=W.toarray())
    assert result.status is truth.status
    assert result.success or result.status == "infeasible", result.message
    assert result.certificate.verify(given, asked["b"], conjugate="conjugate" in named, mix=W)
    bounds = truth.certificate.lower_bound, truth.certificate.upper_bound
    if truth.status in ("infeasible", "optimal"):
        assert result.certificate.lower_bound == pytest.approx(bounds[0], rel=0.05, abs=1e-8)


def test_the_command_reads_solves_and_checks_sums(tmp_path):
    U, W, _, b = problem(5, 40, 30, kind="sparse")
    Measurements(U, b, delta=0.1, mix=W).save(tmp_path / "data.npz")
    shown = CliRunner().invoke(cli, ["inspect", str(tmp_path / "data.npz")])
    assert "sums over 40 rows" in shown.output
    where = str(tmp_path / "data.npz"), str(tmp_path / "result.npz")
    solved = CliRunner().invoke(cli, ["solve", where[0], "-o", where[1]])
    assert solved.exit_code == 0, solved.output
    checked = CliRunner().invoke(cli, ["verify", *where])
    assert checked.exit_code == 0, checked.output


def test_the_plan_counts_the_rows_of_U_and_promises_no_time():
    U, W, _, b = problem(6, 3000, 12)
    plan = solve(U, b, delta=0.1, mix=W).plan
    assert plan["seconds"] is None
    assert any("sums over 3,000 rows" in reason for reason in plan["reasons"])
    few = solve(U[:12], b, delta=0.1).plan
    assert plan["memory"] > few["memory"]
