"""The spectral certificate against the true A*."""

import numpy as np
import pytest
from helpers import cover

from quadsense.core.products import features, unpack
from quadsense.proofs.definite import cholesky, numerical_rank, proven_sigma, smallest_eigenvalue
from quadsense.proofs.spectral import SpectralVerdict, spectral_certificate


def truth(A, A_star):
    W = np.linalg.inv(np.linalg.cholesky(A_star))
    return float(np.abs(np.linalg.eigvalsh(W @ A @ W.conj().T) - 1).max())


def sensed(kappa, noise, seed, complex_rows=False, n=20, m=400, signs=False):
    """Unit rows, A* with eigenvalues 1/kappa..1: the hardest reading of a relative noise."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if complex_rows else 0)

    U = draw(m, n)
    U /= np.linalg.norm(U, axis=1)[:, None]
    Q = np.linalg.qr(draw(n, n))[0]
    A_star = (Q * np.geomspace(1 / kappa, 1, n)) @ Q.conj().T
    e = rng.choice((-1.0, 1.0), m) if signs else rng.uniform(-1, 1, m)
    b = np.einsum("ij,jk,ik->i", U.conj(), A_star, U).real + noise * e
    return U, b, A_star


def least_squares(U, b):
    x = np.linalg.lstsq(features(U), b, rcond=None)[0]
    return unpack(x, U.shape[1], U.dtype)


def perturbed(A_star, seed, size):
    w, Q = np.linalg.eigh(A_star)
    R = np.random.default_rng(seed).standard_normal(A_star.shape)
    half = (Q * np.sqrt(w)) @ Q.conj().T
    A = half @ (np.eye(len(w)) + size * (R + R.T)) @ half
    return (A + A.conj().T) / 2


@pytest.mark.parametrize("complex_rows", [False, True])
def test_coordinates_give_the_quadratic_form(complex_rows):
    U, b, A_star = sensed(10, 0, 0, complex_rows, n=7, m=60)
    x = np.linalg.lstsq(features(U), b, rcond=None)[0]
    np.testing.assert_allclose(unpack(x, 7, U.dtype), A_star, atol=1e-11)
    assert np.linalg.norm(x) == pytest.approx(np.linalg.norm(A_star))


@pytest.mark.parametrize("kappa", [1, 1e2, 1e4, 1e6])
@pytest.mark.parametrize(("complex_rows", "m"), [(False, 400), (True, 800)])
def test_without_noise_the_bound_is_the_truth(kappa, complex_rows, m):
    for seed in range(3):
        U, b, A_star = sensed(kappa, 0, seed, complex_rows, m=m)
        A = perturbed(A_star, seed, 0.01)
        c = spectral_certificate(U, b, A)
        assert c.verdict is SpectralVerdict.BOUNDED
        assert truth(A, A_star) <= c.delta <= 1.01 * truth(A, A_star)


@pytest.mark.slow
@pytest.mark.parametrize(("kappa", "unit"), cover([1, 3, 10, 30], [False, True]))
def test_with_noise_the_bound_holds_and_is_of_use(kappa, unit):
    for seed in range(20):
        U, b, A_star = sensed(kappa, 0, seed)
        # Unit rows of these readings, or Gaussian ones (norm^2 about n) scaled to unit norm.
        rng = np.random.default_rng(seed)
        noise = np.full(400, 1e-3) if unit else 1e-3 / rng.chisquare(20, 400)
        b = b + noise * (rng.choice((-1.0, 1.0), 400) if seed % 2 else rng.uniform(-1, 1, 400))
        A = least_squares(U, b)
        c = spectral_certificate(U, b, A, noise)
        true = truth(A, A_star)
        assert true <= c.delta < np.inf
        assert unit or kappa > 10 or c.delta <= 25 * true


def test_worst_case_noise_does_not_break_the_bound():
    U, b, A_star = sensed(3, 0, 1)
    F = features(U)
    worst = np.linalg.svd(F, full_matrices=False)[0][:, -1]
    b = b + 1e-3 * np.sign(worst)
    A = least_squares(U, b)
    c = spectral_certificate(U, b, A, 1e-3)
    assert truth(A, A_star) <= c.delta < 3 * truth(A, A_star)


def test_each_row_may_have_its_own_noise():
    U, b, A_star = sensed(3, 0, 0)
    rng = np.random.default_rng(0)
    noise = 10.0 ** rng.uniform(-6, -2.5, 400)
    b = b + noise * rng.choice((-1.0, 1.0), 400)
    A = perturbed(A_star, 0, 1e-4)
    c = spectral_certificate(U, b, A, noise)
    alike = spectral_certificate(U, b, A, float(noise.max()))
    assert truth(A, A_star) <= c.delta < 0.5 * alike.delta


def test_simulated_bound_is_tighter_labelled_and_keeps_its_confidence():
    held, ratios = 0, []
    for seed in range(40):
        U, b, A_star = sensed(3, 1e-3, seed, n=8, m=90, signs=True)
        A = least_squares(U, b)
        c = spectral_certificate(U, b, A, 1e-3, confidence=0.9)
        sure = spectral_certificate(U, b, A, 1e-3)
        assert c.simulated and not sure.simulated and "simulation" in c.message
        held += truth(A, A_star) <= c.delta
        ratios.append(c.delta / sure.delta)
    assert held >= 31  # 40 draws at 0.9: fewer has probability below 1%
    assert np.median(ratios) < 0.6


def test_too_few_rows_leave_dimensions_unseen():
    U, b, A_star = sensed(3, 0, 0, m=150)
    c = spectral_certificate(U, b, A_star)
    assert c.verdict is SpectralVerdict.UNDETERMINED and c.unseen == 60 and c.delta == np.inf


def test_enough_rows_in_a_subspace_leave_dimensions_unseen():
    U, b, A_star = sensed(3, 0, 0)
    U = U.copy()
    U[:, -1] = 0
    b = np.einsum("ij,jk,ik->i", U, A_star, U)
    c = spectral_certificate(U, b, A_star)
    assert c.verdict is SpectralVerdict.UNDETERMINED and c.unseen == 20


def test_data_that_contradict_the_noise_refute_it():
    U, b, A_star = sensed(3, 5e-3, 0)
    assert spectral_certificate(U, b, A_star, 1e-3).verdict is SpectralVerdict.REFUTED
    assert spectral_certificate(U, b, A_star, 5e-3).verdict is SpectralVerdict.BOUNDED
    assert spectral_certificate(U, b, A_star).verdict is SpectralVerdict.REFUTED


def test_noise_that_could_hide_a_singular_matrix_gives_no_bound():
    U, b, A_star = sensed(100, 1e-2, 0)
    c = spectral_certificate(U, b, A_star, 1e-2)
    assert c.verdict is SpectralVerdict.TOO_NOISY and c.delta == np.inf and c.sigma > 0


def test_proven_sigma_is_a_lower_bound_and_near():
    rng = np.random.default_rng(0)
    M = rng.standard_normal((60, 30))
    diagonal = 10.0 ** rng.uniform(-3, 3, 30)
    G = np.asfortranarray(M.T @ M)
    sigma = proven_sigma(G, cholesky(G), diagonal, 1e-12)
    true = np.linalg.svd(M / np.sqrt(diagonal), compute_uv=False)[-1]
    assert 0.9 * true < sigma <= true


@pytest.mark.parametrize("shift", [0.5, None])
def test_a_singular_or_indefinite_matrix_has_no_relative_bound(shift):
    U, b, A_star = sensed(3, 0, 0)
    X = np.random.default_rng(0).standard_normal((20, 3))
    A = X @ X.T if shift is None else A_star - shift * np.eye(20)
    c = spectral_certificate(U, b, A)
    assert c.verdict is SpectralVerdict.SINGULAR and c.delta == np.inf and c.unseen is None
    assert "no relative bound exists" in c.message


def test_the_zero_matrix_has_no_relative_bound():
    U, _, _ = sensed(3, 0, 0)
    with np.errstate(all="raise"):
        c = spectral_certificate(U, np.zeros(400), np.zeros((20, 20)))
    assert c.verdict is SpectralVerdict.SINGULAR


def test_no_rows_see_nothing():
    c = spectral_certificate(np.empty((0, 4)), np.empty(0), np.eye(4), np.empty(0))
    assert c.verdict is SpectralVerdict.UNDETERMINED and c.unseen == 10


@pytest.mark.parametrize("complex_rows", [False, True])
def test_few_rows_are_counted_by_their_rank(complex_rows):
    U, b, A_star = sensed(3, 0, 0, complex_rows, n=12, m=50)
    U, b = np.concatenate([U, U[:10]]), np.concatenate([b, b[:10]])
    c = spectral_certificate(U, b, A_star)
    size = 144 if complex_rows else 78
    assert np.linalg.matrix_rank(features(U)) == 50
    assert c.verdict is SpectralVerdict.UNDETERMINED and c.unseen == size - 50


def test_few_rows_in_a_large_space_need_no_matrix_of_its_size():
    rng = np.random.default_rng(0)
    n = 3000  # 4.5 million unknowns: their Gram matrix would take 150 TB
    U = rng.standard_normal((30, n)) / np.sqrt(n)
    c = spectral_certificate(U, np.ones(30), np.eye(n))
    assert c.verdict is SpectralVerdict.UNDETERMINED and c.unseen == n * (n + 1) // 2 - 30


def test_many_rows_that_are_still_too_few_are_counted_from_below(monkeypatch):
    from quadsense.proofs import spectral as identify

    monkeypatch.setattr(identify, "MAX_GRAM_ROWS", 100)
    U, b, A_star = sensed(3, 0, 0, m=150)
    c = spectral_certificate(U, b, A_star)
    assert c.unseen == 60 and "at least 60 of 210" in c.message


def test_what_cannot_fit_is_refused_before_it_is_made(monkeypatch):
    from quadsense.proofs import spectral as identify

    monkeypatch.setattr(identify, "available_memory", lambda: 1_000_000)
    U, b, A_star = sensed(3, 0, 0)
    with pytest.raises(MemoryError, match="210 unknowns"):
        spectral_certificate(U, b, A_star)


def test_noise_of_any_size_on_rows_that_determine_everything_hides_no_dimension():
    U, b, A_star = sensed(3, 0, 0)
    noise = np.where(np.arange(400) < 205, 1e-12, 1e3)
    c = spectral_certificate(U, b, A_star, noise)
    assert c.verdict is SpectralVerdict.TOO_NOISY and c.unseen == 0


@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1e20, 1e200])
def test_the_unit_of_the_readings_does_not_matter(scale):
    U, b, A_star = sensed(3, 1e-4, 0)
    A = perturbed(A_star, 0, 1e-3)
    with np.errstate(all="raise"):
        c = spectral_certificate(U, scale * b, scale * A, scale * 1e-4)
    plain = spectral_certificate(U, b, A, 1e-4)
    assert c.verdict is plain.verdict is SpectralVerdict.BOUNDED
    assert c.delta == pytest.approx(plain.delta, rel=1e-6)


def test_the_estimated_eigenvalue_is_from_above_and_near():
    rng = np.random.default_rng(1)
    for spread in (1.0, 1e3, 1e6):
        M = rng.standard_normal((90, 60)) * np.geomspace(1, spread, 60)
        G, diagonal = np.asfortranarray(M.T @ M), np.geomspace(1, 1e4, 60)
        true = np.linalg.svd(M / np.sqrt(diagonal), compute_uv=False)[-1] ** 2
        found = smallest_eigenvalue(cholesky(G), diagonal)
        assert (1 - 1e-6) * true <= found <= 1.2 * true


def test_the_rank_is_found_where_there_is_one():
    rng = np.random.default_rng(0)
    M = rng.standard_normal((40, 17)) @ rng.standard_normal((17, 30))
    G = np.asfortranarray(M.T @ M)
    assert numerical_rank(G.copy(order="F"), 1e-12 * np.trace(G)) == 17
    assert cholesky(G - np.eye(30)) is None


@pytest.mark.parametrize("complex_rows", [False, True])
def test_sums_of_rows_bound_as_the_rows_do(complex_rows):
    """Readings of sums, whose errors are those of the sums: the bound is true, and of use."""
    rng = np.random.default_rng(2)
    U, b, A_star = sensed(4, 0, 2, complex_rows, n=3, m=30)
    W = rng.standard_normal((24, 30))
    noise = 1e-4
    reads = W @ b + noise * rng.uniform(-1, 1, 24)
    A = perturbed(A_star, 0, 0.01)
    A = A if complex_rows else A.real
    found = spectral_certificate(U, reads, A, noise, mix=W)
    assert found.verdict is SpectralVerdict.BOUNDED
    assert truth(A, A_star) <= found.delta <= 3.0 * truth(A, A_star) + 0.1
    few = spectral_certificate(U, reads[:5], A, noise, mix=W[[0, 1, 2, 3, 3]])
    size = 9 if complex_rows else 6
    assert (few.verdict, few.unseen) == (SpectralVerdict.UNDETERMINED, size - 4)
    same = spectral_certificate(U, np.repeat(reads[:3], 4), A, noise, mix=W[[0, 1, 2]].repeat(4, 0))
    assert (same.verdict, same.unseen) == (SpectralVerdict.UNDETERMINED, size - 3)


def test_the_noise_that_refuted_data_need_is_named():
    """With a little more than that the data are not refuted, with a little less they are."""
    U, b, A_star = sensed(4, 1e-2, 3, n=3, m=40)
    found = spectral_certificate(U, b, A_star, 1e-4)
    assert found.verdict is SpectralVerdict.REFUTED
    factor = float(found.message.rpartition(" times")[0].rpartition(" ")[2])
    for share, refuted in ((0.98, True), (1.02, False)):
        again = spectral_certificate(U, b, A_star, 1e-4 * share * factor)
        assert (again.verdict is SpectralVerdict.REFUTED) is refuted
