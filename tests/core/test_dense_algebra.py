"""What methods and proofs share: quasi-Newton memory, the stall rule, definiteness, packed sums.

And the dense algebra by LAPACK and by torch, which are asked the same.
"""

from itertools import pairwise

import numpy as np
import pytest
from helpers import gaussian_rows, hermitian
from kinds import DEVICE, torch

from quadsense.core import products, secants
from quadsense.core.cholesky import (
    add_inner,
    add_to_diagonal,
    factor_lower,
    factor_upper,
    inner_upper,
    inverse_upper,
    set_diagonal,
    singular,
    solve_definite,
    solve_lower,
    solve_lower_transposed,
    solve_upper,
    squared_moduli,
    symmetric,
    symmetric_product,
)
from quadsense.device import DeviceArray
from quadsense.device.algebra import adjoint_upper, column_blocks, mirrored
from quadsense.methods.base import looked
from quadsense.proofs.definite import cholesky, factorisation_error, first_shift


def _inverse_hessian(memory, H):
    """The inverse Hessian by BFGS updates, one by one [Nocedal & Wright 2006, eq. 6.17]."""
    for s, y, sy in memory:
        V = np.eye(len(s)) - np.outer(y, s) / sy
        H = V.T @ H @ V + np.outer(s, s) / sy
    return H


@pytest.mark.parametrize("pairs", [0, 1, 4])
def test_the_direction_is_that_of_dense_bfgs_updates(pairs):
    rng = np.random.default_rng(pairs)
    M = rng.standard_normal((6, 6))
    M = M @ M.T + np.eye(6)
    memory = ()
    for _ in range(pairs):
        move = rng.standard_normal(6)
        memory = secants.remember(memory, move, M @ move, 10)
    slope = rng.standard_normal(6)
    first = np.diag(rng.uniform(1.0, 2.0, 6))
    given = slope.copy()
    found = secants.direction(memory, slope, lambda q: first @ q)
    np.testing.assert_allclose(found, -_inverse_hessian(memory, first) @ slope, rtol=1e-10)
    np.testing.assert_array_equal(slope, given)
    scale = memory[-1][2] / (memory[-1][1] @ memory[-1][1]) if memory else 1.0
    found = secants.direction(memory, slope, secants.scaled(memory))
    expected = -_inverse_hessian(memory, scale * np.eye(6)) @ slope
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_memory_keeps_the_newest_pairs_of_positive_curvature():
    one = np.ones(3)
    memory = ()
    for k in range(1, 6):
        memory = secants.remember(memory, k * one, one, 3)
    assert [curvature for _, _, curvature in memory] == [9.0, 12.0, 15.0]
    assert secants.remember(memory, one, -one, 3) is memory
    nearly = np.array([1.0, 1e-13, 0.0])
    assert secants.remember((), np.array([0.0, 1.0, 0.0]), nearly, 3, least=1e-12) == ()
    assert len(secants.remember((), np.array([0.0, 1.0, 0.0]), nearly, 3)) == 1


def test_progress_is_a_fall_of_any_number_and_what_is_not_is_counted():
    marks, idle = looked((1.0, 0.0), 0, (0.95, 0.0), 0.9)
    assert (marks, idle) == ((1.0, 0.0), 1)  # what was 0 and stays so is no progress
    marks, idle = looked(marks, idle, (0.95, 0.0), 0.9)
    assert idle == 2
    assert looked(marks, idle, (0.85, 7.0), 0.9) == ((0.85, 7.0), 0)
    assert looked((np.inf,), 3, (np.nan,), 0.9).idle == 4


@pytest.mark.parametrize("complex_", [False, True])
def test_a_shift_proves_the_smallest_eigenvalue_and_not_more(complex_):
    rng = np.random.default_rng(0)
    G = rng.standard_normal((8, 8)) + (1j * rng.standard_normal((8, 8)) if complex_ else 0.0)
    S = G @ G.conj().T
    least = np.linalg.eigvalsh(S)[0]
    found = first_shift(S, (1.5 * least, 1.01 * least, 0.99 * least, 0.5 * least))
    assert found.size == 0.99 * least
    np.testing.assert_allclose(found.trace, np.trace(S).real - 8 * found.size)
    assert 0.0 < factorisation_error(8, found.trace) < 1e-13 * np.trace(S).real
    assert first_shift(S, (2.0 * least,)) is None
    weights = rng.uniform(1.0, 2.0, 8)
    root = np.sqrt(weights)
    relative = np.linalg.eigvalsh(S / np.outer(root, root))[0]
    assert first_shift(S, (1.01 * relative, 0.99 * relative), weights).size == 0.99 * relative
    assert cholesky(np.full((2, 2), np.nan)) is None


@pytest.mark.parametrize("complex_", [False, True])
def test_the_packed_adjoint_is_the_packed_sum(complex_):
    rng = np.random.default_rng(1)
    U = rng.standard_normal((2000, 4)) + (1j * rng.standard_normal((2000, 4)) if complex_ else 0.0)
    y = rng.standard_normal((2000, 2))
    for column in range(2):
        S = np.einsum("i,ij,ik->jk", y[:, column], U, U.conj())
        np.testing.assert_allclose(
            products.packed_adjoint(U, y)[:, column], products.pack(S), atol=1e-9
        )
    lam = rng.uniform(1.0, 2.0, 4)
    X = rng.standard_normal((4, 4)) + (1j * rng.standard_normal((4, 4)) if complex_ else 0.0)
    X = X + X.conj().T
    np.testing.assert_allclose(
        products.pair_products(lam, X.dtype) * products.pack(X),
        products.pack(np.outer(lam, lam) * X),
    )


# --- by LAPACK and by torch ------------------------------------------------------------------


@pytest.fixture(params=["LAPACK", *([] if torch is None else ["torch"])])
def place(request):
    """Puts an array where that algebra is done."""
    if request.param == "LAPACK":
        return lambda values: np.array(values, order="F")
    return lambda values: DeviceArray(torch.tensor(values, device=DEVICE))


def test_matrices_are_packed_and_unpacked(place, complex_, rng):
    A = hermitian(rng, 6, complex_)
    x = products.pack(place(A))
    B = hermitian(rng, 6, complex_)
    assert float(x @ products.pack(place(B))) == pytest.approx(np.vdot(A, B).real)
    np.testing.assert_allclose(np.asarray(x), products.pack(A))
    np.testing.assert_allclose(
        np.asarray(products.unpack(x, 6, A.dtype)), A, rtol=1e-14, atol=1e-14
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_features_and_normal_matrices(place, complex_, rng, dtype):
    V = gaussian_rows(rng, 30, 5, complex_)
    G = np.array([products.pack(np.outer(v, v.conj())) for v in V])
    eps = 1e-12 if dtype == "float64" else 1e-4
    found = products.features(place(V), dtype)
    np.testing.assert_allclose(np.asarray(found), G, rtol=0, atol=10 * eps)
    parts = (place(V[part]) for part in (slice(0, 20), slice(20, 30)))
    M = products.normal_matrix(parts, G.shape[1], dtype)
    np.testing.assert_allclose(np.triu(np.asarray(M)), np.triu(G.T @ G), rtol=0, atol=1e4 * eps)
    inner = np.triu(np.asarray(inner_upper(place(G))))
    np.testing.assert_allclose(inner, np.triu(G.T @ G), atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_factors_and_what_they_solve(place, rng, dtype):
    G = rng.standard_normal((300, 40)).astype(dtype)
    M, x = G.T @ G, rng.standard_normal(40).astype(dtype)
    # Below the diagonal nothing is read.
    R, info = factor_upper(place(np.triu(M) + np.tril(np.full_like(M, 1e3), -1)))
    assert info == 0
    eps = 1e-10 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(
        np.asarray(solve_upper(R, place(x))), np.linalg.solve(M, x), rtol=eps
    )
    M[7, 7] = -1.0
    assert factor_upper(place(M))[1] == 8


def test_symmetric_matrices_of_which_the_upper_triangle_counts(place, rng):
    G, x = rng.standard_normal((50, 12)), rng.standard_normal(12)
    M, J = G.T @ G, rng.standard_normal((5, 12))
    held = symmetric(place(np.triu(M)))
    np.testing.assert_allclose(np.asarray(symmetric_product(held, place(x))), M @ x, atol=1e-11)
    narrow = symmetric(place(np.triu(M).astype(np.float32)))
    image = symmetric_product(narrow, place(x.astype(np.float32)))
    np.testing.assert_allclose(np.asarray(image), M @ x, rtol=1e-3, atol=1e-3)
    held = add_inner(held, place(J))
    add_to_diagonal(held, 0.5)
    M = M + J.T @ J + 0.5 * np.eye(12)
    np.testing.assert_allclose(np.triu(np.asarray(held)), np.triu(M), atol=1e-12)
    R, info = factor_upper(held.copy(order="F"))
    assert info == 0
    inverse = inverse_upper(R)
    image = np.asarray(symmetric_product(inverse, place(M @ x)))
    np.testing.assert_allclose(image, x, atol=1e-11)
    found = np.asarray(solve_definite(place(M), place(x)))
    np.testing.assert_allclose(M @ found, x, atol=1e-11)
    with pytest.raises(np.linalg.LinAlgError):
        solve_definite(place(-M), place(x))
    whole = place(M)
    add_to_diagonal(whole, place(x))
    set_diagonal(whole, whole.diagonal() * 2.0)
    truth = M - np.diag(M.diagonal()) + 2.0 * np.diag(M.diagonal() + x)
    np.testing.assert_allclose(np.asarray(whole), truth, atol=1e-12)


def test_entries_are_in_the_order_of_packed_matrices(place, complex_, rng):
    A = hermitian(rng, 6, complex_)
    H = rng.uniform(1.0, 2.0, (6, 6))
    H = H + H.T
    found = np.asarray(products.entries(place(H), complex_)) * products.pack(A)
    np.testing.assert_allclose(found, products.pack(H * A), atol=1e-14)


def test_singular_values(place, complex_, rng):
    M = gaussian_rows(rng, 6, 6, complex_)
    left, values, right = singular(place(M))
    np.testing.assert_allclose(np.asarray((left * values) @ right), M, atol=1e-12)
    assert (np.diff(np.asarray(values)) <= 0.0).all()


def test_triangular_factors(place, complex_, rng):
    G = gaussian_rows(rng, 20, 6, complex_)
    S = G.conj().T @ G
    L = factor_lower(place(S))
    np.testing.assert_allclose(np.asarray(L @ L.conj().T), S, atol=1e-12)
    B = gaussian_rows(rng, 6, 3, complex_)
    np.testing.assert_allclose(np.asarray(L @ solve_lower(L, place(B))), B, atol=1e-12)
    if not complex_:
        back = np.asarray(L.T @ solve_lower_transposed(L, place(B[:, 0])))
        np.testing.assert_allclose(back, B[:, 0], atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        factor_lower(place(-S))


def test_forms_and_moduli_of_rows(place, complex_, rng):
    V, A = gaussian_rows(rng, 500, 7, complex_), hermitian(rng, 7, complex_)
    truth = np.einsum("ij,jk,ik->i", V.conj(), A, V).real
    np.testing.assert_allclose(np.asarray(products.forward(place(V), place(A))), truth, atol=1e-11)
    y = rng.standard_normal(500)
    S = np.einsum("i,ij,ik->jk", y, V, V.conj())
    np.testing.assert_allclose(np.asarray(products.adjoint(place(V), place(y))), S, atol=1e-11)
    K = np.asarray(squared_moduli(place(V[:20])))
    np.testing.assert_allclose(K, np.abs(V[:20].conj() @ V[:20].T) ** 2, atol=1e-12)
    y = rng.standard_normal(20)
    np.testing.assert_allclose(
        np.asarray(products.gram_product(place(K), place(y))), K @ y, atol=1e-10
    )


@pytest.mark.gpu
@pytest.mark.skipif(torch is None, reason="torch is an extra")
@pytest.mark.parametrize("n", [1, 5, 128, 129, 700])
def test_half_the_flops_of_tensors_make_the_whole_sum(n, complex_, rng, monkeypatch):
    blocks = column_blocks(n)
    assert blocks[0][0] == 0 and blocks[-1][1] == n
    assert all(a[1] == b[0] for a, b in pairwise(blocks))
    U, y = gaussian_rows(rng, 30, n, complex_), rng.standard_normal(30)
    rows = torch.tensor(U, device=DEVICE)
    total = torch.zeros((n, n), dtype=rows.dtype, device=DEVICE)
    adjoint_upper(total, rows[:20], torch.tensor(y[:20], device=DEVICE))
    adjoint_upper(total, rows[20:], torch.tensor(y[20:], device=DEVICE))
    S = mirrored(total).cpu().numpy()
    np.testing.assert_allclose(S, (U.T * y) @ U.conj(), atol=1e-11)
    np.testing.assert_array_equal(S, S.conj().T)
