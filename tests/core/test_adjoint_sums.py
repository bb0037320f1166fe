"""Sums of rows for proofs against exact arithmetic, sparse sums against SciPy, ranks in passing."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import quadsense
from quadsense.measurements import mixed
from quadsense.measurements.constraints import _beside
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import rounding
from quadsense.proofs.rounding import adjoint_matrix, adjoint_norm


def rows_of(rng, m, n, is_complex):
    U = rng.standard_normal((m, n)) * 10.0 ** rng.uniform(-3, 3, (m, 1))
    return U + 1j * rng.standard_normal((m, n)) if is_complex else U


def exact_sum(U, y, start):
    """Real and imaginary parts of ``start + sum_i y_i u_i u_i*`` as fractions."""
    n = U.shape[1]
    parts = [[[Fraction(0)] * n for _ in range(n)] for _ in range(2)]
    for j in range(n):
        for k in range(n):
            parts[0][j][k] = Fraction(float(start[j, k].real))
            parts[1][j][k] = Fraction(float(start[j, k].imag))
    for u, weight in zip(U, y, strict=True):
        re = [Fraction(float(value.real)) for value in u]
        im = [Fraction(float(value.imag)) for value in u]
        w = Fraction(float(weight))
        for j in range(n):
            for k in range(n):
                parts[0][j][k] += w * (re[j] * re[k] + im[j] * im[k])
                parts[1][j][k] += w * (im[j] * re[k] - re[j] * im[k])
    return parts


def distance(M, parts):
    """The Frobenius norm of M minus the exact sum: a root of a fraction, rounded up a little."""
    total = Fraction(0)
    for (j, k), value in np.ndenumerate(M):
        total += (Fraction(float(value.real)) - parts[0][j][k]) ** 2
        total += (Fraction(float(value.imag)) - parts[1][j][k]) ** 2
    return float(total) ** 0.5


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("width", [None, 2])
def test_the_error_of_a_sum_of_rows_is_within_its_bound(monkeypatch, is_complex, width):
    rng = np.random.default_rng([7, is_complex])
    for _ in range(3):
        n, m = int(rng.integers(2, 6)), int(rng.integers(2, 12))
        U = rows_of(rng, m, n, is_complex)
        y = rng.standard_normal(m) * 10.0 ** rng.uniform(-6, 0, m)
        if width is not None:  # columns some at a time, rows some at a time
            monkeypatch.setattr(rounding, "BLOCK_ELEMENTS", width * n * (2 if is_complex else 1))
            monkeypatch.setattr(rounding, "ROWS", 5)
        start = rng.standard_normal((n, n)) + 1j * is_complex * rng.standard_normal((n, n))
        start = start + start.conj().T if is_complex else (start + start.T).real
        # What the rows add up to is taken away again, so that all that is left is small.
        start = start - (U.T * y) @ U.conj() if rng.integers(2) else start
        start = np.tril(start) + np.tril(start, -1).conj().T
        start[np.diag_indices(n)] = start.diagonal().real
        F = Sensing.of(U)
        found, bound = adjoint_matrix(F, y, start)
        parts = exact_sum(U, y, start)
        assert distance(found, parts) <= bound
        scale = float(np.sum(np.abs(y) * np.sum(np.abs(U) ** 2, axis=1)))
        # A plain product would be off by some 1e-16 of what it is the sum of.
        assert bound <= 3e-16 * float(np.linalg.norm(found)) * 2.0 + 1e-20 * scale + 1e-280
        size = distance(np.zeros((n, n)), exact_sum(U, y, np.zeros((n, n))))
        assert size * (1.0 - 1e-15) <= adjoint_norm(F, y) <= size * (1.0 + 1e-6) + 1e-20 * scale


def random_sparse(rng, p, m):
    W = sp.csr_array(rng.standard_normal((p, m)) * (rng.random((p, m)) < 0.4))
    W.data[rng.integers(3, size=W.data.size) == 0] = 0.0  # entries that are there, and 0
    return W


def test_sparse_sums_are_weighed_and_counted_as_dense_ones():
    rng = np.random.default_rng(3)
    for _ in range(30):
        p, m = (int(value) for value in rng.integers(1, 7, 2))
        W = random_sparse(rng, p, m)
        before = W.toarray()
        left, right = (rng.integers(-1, 2, size).astype(float) for size in (p, m))
        for scales in ((left, right), (left, None), (None, right)):
            got = mixed._scaled(W, *scales)
            dense = mixed._scaled(before, *scales)
            assert np.array_equal(got.toarray(), dense)
            assert got.nnz == np.count_nonzero(dense)  # zeros are no entries
        assert np.array_equal(W.toarray(), before)
        for of_sparse, of_dense in zip(mixed._counts(W), mixed._counts(before), strict=True):
            assert np.array_equal(of_sparse, of_dense)
        other = random_sparse(rng, int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        blocks = sp.block_diag([W, other], format="csr").toarray()
        assert np.array_equal(_beside(W, other).toarray(), blocks)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("kind", ["all", "some unweighed", "blind", "barely"])
def test_what_a_solve_says_of_the_rank_is_what_the_data_say(is_complex, kind):
    rng = np.random.default_rng([11, is_complex])
    n, m = 4, 60
    U = rng.standard_normal((m, n)) + 1j * is_complex * rng.standard_normal((m, n))
    U = U if is_complex else U.real
    if kind == "blind":
        U[:, 0] = U[:, 1]
    elif kind == "barely":
        U[:, 0] = U[:, 1] + 1e-9 * U[:, 0]
    b = np.abs(U @ rng.standard_normal(n)) ** 2 + 0.1 * rng.random(m)
    weights = 10.0 ** rng.uniform(-6, 6, m)
    if kind == "some unweighed":
        weights[5:] = 0.0
    for trace in (None, 1.0):
        result = quadsense.solve(
            U, b, psd=True, prefer="least_squares", weights=weights, trace=trace
        )
        rank = quadsense.Measurements(U, b).facts.rank
        unknowns = n * n if is_complex else n * (n + 1) // 2
        seen = int(trace is not None and rank < unknowns)  # the trace itself is one more direction
        assert result.verdict.exact
        assert result.verdict.unseen == unknowns - rank - seen
        # A matrix of that trace that is 0 on the direction that no row sees is the only one in the
        # cone: its readings fix the rest of it.
        unseen = np.array([1.0, -1.0, 0.0, 0.0])
        only = trace is not None and float((unseen @ result.A @ unseen).real) < 1e-6
        assert result.verdict.unique == (rank == unknowns or only)
        assert (rank == unknowns) == (kind in ("all", "some unweighed"))
