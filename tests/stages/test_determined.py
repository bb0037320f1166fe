"""How far A is determined, against exact ranks and against singular values."""

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

import quadsense
from quadsense.core.products import features


def exact_rank(rows):
    """Rank of integer rows over the rational numbers."""
    left, rank = [[Fraction(int(x)) for x in row] for row in rows], 0
    for column in range(len(left[0])):
        pivot = next((i for i in range(rank, len(left)) if left[i][column]), None)
        if pivot is None:
            continue
        left[rank], left[pivot] = left[pivot], left[rank]
        head = left[rank]
        for i in range(rank + 1, len(left)):
            factor = left[i][column] / head[column]
            if factor:
                left[i] = [x - factor * y for x, y in zip(left[i], head, strict=True)]
        rank += 1
    return rank


def products(U):
    """Integer features: all products of two entries of each row."""
    i, j = np.triu_indices(U.shape[1])
    return U[:, i] * U[:, j]


def small_problem(seed):
    """Return integer rows, repeated or in a plane, a constraint and a factor of the truth."""
    rng = np.random.default_rng([7, seed])
    n = int(rng.integers(2, 6))
    m = int(rng.integers(1, n * (n + 1)))
    U = rng.integers(-2, 3, (m, n))
    if seed % 3 == 0:  # one coordinate follows from others
        U[:, -1] = U[:, 0] - U[:, n // 2]
    if seed % 4 == 0:
        U[m // 2 :] = 2 * U[: m - m // 2]
    C = rng.integers(-1, 2, (n, n))
    return U, C + C.T, rng.integers(-3, 4, (n, n))


def check_against_exact(seed):
    U, C, X = small_problem(seed)
    n, A = U.shape[1], X @ X.T
    b = np.einsum("ij,jk,ik->i", U, A, U).astype(float)
    rows, asked = products(U), {}
    if seed % 2:
        value = float(np.sum(C * A))
        asked = {"constraints": [(C, value, value)], "trace": float(np.trace(A))}
        i, j = np.triu_indices(n)
        rows = np.vstack([rows, C[i, j] * np.where(i == j, 1, 2), (i == j).astype(int)])
    rank, unknowns = exact_rank(rows), n * (n + 1) // 2
    result = quadsense.solve(U.astype(float), b, delta=1.0, prefer="any", **asked)
    assert result.status == "met"
    assert (result.unique, result.unseen) == (rank == unknowns, unknowns - rank)
    assert result.verdict.exact


@pytest.mark.parametrize("seed", range(12))
def test_the_rank_is_the_exact_one(seed):
    check_against_exact(seed)


@pytest.mark.deep
def test_the_rank_is_the_exact_one_on_three_hundred_problems():
    for seed in range(300):
        check_against_exact(seed)
    assert exact_rank([[1, 2], [2, 4]]) == 1  # the judge itself


def test_rows_that_are_set_aside_or_have_no_end_do_not_count():
    p = quadsense.datasets.gaussian(n=3, m=8, seed=0)  # of 7 rows any one may be set aside
    b = p.b.copy()
    b[2] += 5.0
    aside = quadsense.solve(p.U, b, delta=0.01, allow_violations=1)
    p = quadsense.datasets.gaussian(n=3, m=7, seed=0)
    assert aside.set_aside.tolist() == [2] and aside.unique
    lo, hi = p.b - 0.1, p.b + 0.1
    lo[[0, 3]], hi[[0, 3]] = -np.inf, np.inf
    missing = quadsense.solve(p.U, bounds=(lo, hi))
    assert (missing.unique, missing.unseen) == (False, 1)


def test_deficient_rows_that_are_far_more_than_the_unknowns():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((900, 6)) @ rng.standard_normal((6, 8))
    result = quadsense.solve(U, np.sum(U**2, axis=1), delta=0.1)
    assert (result.unique, result.unseen) == (False, 36 - 21)
    assert "15 of 36 directions of A are unseen" in result.message


def width_among_positive(U, b, C):
    """Width of the range of ``<C, A>`` over the cone where the readings are exact, by Clarabel."""
    n, is_complex = U.shape[1], np.iscomplexobj(U)
    A = cp.Variable((n, n), hermitian=True) if is_complex else cp.Variable((n, n), PSD=True)

    def product(M):
        return cp.real(cp.trace(M @ A)) if is_complex else cp.trace(M @ A)

    asked = [product(np.outer(u, u.conj())) == x for u, x in zip(U, b, strict=True)]
    asked += [A >> 0] * is_complex
    ends = []
    for sign in (1.0, -1.0):
        problem = cp.Problem(cp.Maximize(sign * product(C)), asked)
        problem.solve(solver=cp.CLARABEL)
        ends.append(problem.value)
    return sum(ends)


@pytest.mark.slow
@pytest.mark.parametrize("is_complex", [False, True])
def test_what_the_cone_determines_has_no_range(is_complex):
    found = []
    for seed in range(12):
        rng = np.random.default_rng([13, seed, is_complex])
        n, r = 5, 1 + seed % 2
        N = n * n if is_complex else n * (n + 1) // 2
        m = int(rng.integers(N // 2, N))
        U, X = rng.standard_normal((m, n)), rng.standard_normal((n, r))
        C = rng.standard_normal((n, n)) * (1.0 + 0.0j if is_complex else 1.0)
        if is_complex:
            U = U + 1j * rng.standard_normal((m, n))
            X = X + 1j * rng.standard_normal((n, r))
            C = C + 1j * rng.standard_normal((n, n))
        C = (C + C.conj().T) / np.linalg.norm(C)
        b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
        result = quadsense.solve(U, b, delta=1e-7 * float(b.max()), psd=True)
        width = width_among_positive(U, b, C) / float(np.linalg.norm(X) ** 2)
        found.append((result.unique, width < 1e-3))
        assert result.unseen == N - m and result.verify(U, b)
    assert all(narrow for unique, narrow in found if unique)
    told = sum(unique for unique, _ in found)
    assert told >= 4 and told >= 0.8 * sum(narrow for _, narrow in found) and told < len(found)


def test_the_cone_may_determine_what_the_rows_do_not():
    result = quadsense.solve(np.eye(2), [0.0, 1.0], delta=0.0, psd=True)
    assert result.unique and result.unseen == 1
    assert "The measurements determine A among positive semidefinite matrices" in result.message
    assert quadsense.solve(np.eye(2), [0.0, 1.0], delta=0.0).unique is False
    rest = quadsense.solve(np.eye(3), [0.0, 1.0, 1.0], delta=0.0, psd=True)
    assert rest.unique is False and "3 of 6 directions" in rest.message


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize(("rank", "m"), [(1, 9), (2, 9), (1, 40), (2, 60)])
def test_among_matrices_of_a_rank_free_directions_are_counted(is_complex, rank, m):
    rng = np.random.default_rng([rank, m, is_complex])
    n = 6
    U, X = rng.standard_normal((m, n)) + 0j, rng.standard_normal((n, rank)) + 0j
    if is_complex:
        U, X = U + 1j * rng.standard_normal(U.shape), X + 1j * rng.standard_normal(X.shape)
    else:
        U, X = U.real, X.real
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    result = quadsense.solve(U, b, delta=1e-3, rank=rank, rng=0)
    # Directions X H* + H X* of every H, and what of them F sees, by singular values alone.
    units = [unit.reshape(n, rank) for unit in np.eye(n * rank)]
    units += [1j * unit for unit in units] if is_complex else []
    Y = np.asarray(result.matrix.factor)
    moves = [Y @ H.conj().T + H @ Y.conj().T for H in units]
    i, j = np.triu_indices(n)
    flat = [np.concatenate([M[i, j].real, M[i, j].imag]) for M in moves]
    reads = [np.einsum("ij,jk,ik->i", U.conj(), M, U).real for M in moves]
    directions = np.linalg.matrix_rank(np.array(flat))
    free = directions - np.linalg.matrix_rank(np.array(reads), tol=1e-6)
    assert result.verdict.directions == directions
    assert (result.unique, result.unseen) == (free == 0, free)
    said = f"{free} free directions of {directions}"
    assert said in result.message and ("not unique" in result.message.lower()) == (free > 0)


def test_phase_retrieval_with_masks_is_determined():
    rng = np.random.default_rng(1)
    masks = rng.choice([1.0, -1.0, 1j, -1j], (6, 16, 16))
    probes = quadsense.probes.masked_fft(masks, (16, 16))
    x = rng.standard_normal(256) + 1j * rng.standard_normal(256)
    b = np.abs(probes.times(x[:, None])[:, 0]) ** 2
    result = quadsense.solve(probes, b, delta=1e-3 * float(b.mean()), rank=1, rng=0)
    assert result and result.unique
    assert "0 free directions of 511" in result.message
    assert "1048576" not in result.message and "unseen" not in result.message


def test_what_was_not_computed_is_computed_on_request(monkeypatch):
    from quadsense.stages import answer

    monkeypatch.setattr(answer, "_rank_flops", lambda *_: 0.0)
    rng = np.random.default_rng(2)
    U = rng.standard_normal((40, 5))
    x = rng.standard_normal(5)
    result = quadsense.solve(U, (U @ x) ** 2, delta=1e-3, rank=1, rng=0)
    assert "result.unique computes it" in result.message and result.verdict.unique is None
    assert result.unique and result.unseen == 0 and result.verdict.directions == 5
    assert np.linalg.matrix_rank(features(U)) == 15


def test_what_is_read_after_a_time_limit_takes_no_longer_than_the_limit_lets_it(rng):
    U = rng.standard_normal((10_000, 40))
    U[:, -1] = U[:, 0]  # no square part of the rows sees all directions
    b = np.sum(U**2, axis=1) + rng.standard_normal(10_000)
    limited = quadsense.solve(U, b, delta=5.0, time_limit=0.5, max_iter=1)
    assert not limited.facts.determined.exact and "not computed" in limited.message
    patient = quadsense.solve(U, b, delta=5.0, time_limit=100.0, max_iter=1)
    assert patient.facts.determined.exact and patient.unseen == 40


def test_what_is_found_out_after_a_solve_keeps_to_its_memory_limit(rng):
    U = rng.standard_normal((2000, 40))
    b = np.sum(U**2, axis=1)
    asked = {"delta": 0.1, "prefer": "any"}
    assert quadsense.solve(U, b, **asked).facts.determined.exact
    limited = quadsense.solve(U, b, memory_limit="8 MB", **asked)  # the matrices take 10.8 MB
    assert limited.met and not limited.facts.determined.exact
    assert limited.unique is True  # asked for by name it is computed
