"""The lean iterates are the printed ones."""

import numpy as np
import printed
import pytest
from helpers import build, cover, gaussian_rows, unit

import quadsense
from quadsense.methods.descent.kernels import draw_batch

STEPS = 200
PROBLEMS = {
    "orthonormal": quadsense.datasets.orthonormal,
    "near_orthogonal": quadsense.datasets.near_orthogonal,
}


def data_of(name, complex_):
    if name == "gaussian":
        rng = np.random.default_rng(3)
        U = unit(gaussian_rows(rng, 30, 12, complex_))
        return U, rng.random(30) + 0.5
    p = PROBLEMS[name](n=14, m=10, seed=2, complex=complex_)
    return p.U, p.b


def agree(solver, program, state, reference):
    """Largest distance between lean and printed iterates over the norm of A, step by step."""
    worst = 0.0
    for t, A in enumerate(reference):
        assert state.iteration == t
        lean = np.asarray(solver.matrix(program, state))
        worst = max(worst, np.linalg.norm(lean - A) / np.linalg.norm(A))
        if t < STEPS:
            state = solver.advance(program, state, 1)
    return worst


@pytest.mark.parametrize("product", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("name", ["orthonormal", "near_orthogonal", "gaussian"])
def test_gd_iterates_match_the_printed_algorithm(name, complex_, product):
    U, b = data_of(name, complex_)
    lam = product / np.abs(b).max()
    eps = min(0.01 * product, 0.3) / lam  # long steps, so that A really moves
    solver, program, state = build(U, b, 1e-9, schedule="paper", lam=lam, step=eps)
    assert program.problem.gram.kind == ("identity" if name == "orthonormal" else "explicit")
    reference = printed.gradient_descent(U, b, lam, eps, STEPS)
    assert agree(solver, program, state, reference) <= 1e-9


def sampler(seed):
    """The generator that a problem of that seed draws its batches from."""
    return np.random.default_rng(seed)


def batches_of(seed, m, size):
    rng, order = sampler(seed), np.arange(m)
    for _ in range(STEPS):
        draw_batch.py_func(rng, order, size)
        yield order[:size].copy()


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("product", "name"),
    cover([1.0, 100.0, 1e4], ["orthonormal", "near_orthogonal", "gaussian"], each=1),
)
def test_sgd_iterates_match_the_printed_algorithm(name, complex_, size, product):
    U, b = data_of(name, complex_)
    lam = product / np.abs(b).max()
    eps = min(0.01 * product, 0.3) / lam * size / len(b)
    solver, program, state = build(
        U,
        b,
        1e-9,
        method="sgd",
        seed=5,
        schedule="paper",
        lam=lam,
        step=eps,
        batch_size=size,
        norm="exact",
    )
    algorithm = printed.sgd_orthonormal if name == "orthonormal" else printed.sgd_general
    reference = algorithm(U, b, lam, eps, batches_of(5, len(b), size))
    assert agree(solver, program, state, reference) <= 1e-9


@pytest.mark.parametrize("product", [1.0, 100.0, 1e4])
def test_spectral_iterates_match_the_printed_algorithm(complex_, product):
    p = quadsense.datasets.gaussian(n=8, m=1, condition=30.0, seed=4, complex=complex_)
    A_1 = np.eye(8) * p.A_star.trace().real / 8
    whitened = np.linalg.eigvals(np.linalg.solve(p.A_star, A_1)).real
    lam = product / np.abs(whitened - 1.0).max()
    eps = min(0.01 * product, 0.3) / lam
    seen = []
    quadsense.solve_spectral(
        quadsense.SpectralOracle(p.A_star),
        A_1,
        accuracy=1e-12,
        schedule="paper",
        lam=lam,
        step=eps,
        max_iter=STEPS,
        callback=lambda at: seen.append((at.n_iter, np.asarray(at.matrix))),
    )
    assert seen[-1][0] == STEPS
    reference = list(printed.spectral(p.A_star, A_1, lam, eps, STEPS))
    for t, A in seen:
        assert np.linalg.norm(A - reference[t]) <= 1e-9 * np.linalg.norm(reference[t])


def test_batches_are_uniform_subsets():
    rng, order = np.random.default_rng(0), np.arange(5)
    counts = {}
    for _ in range(20_000):
        draw_batch(rng, order, 2)
        key = tuple(sorted(order[:2]))
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 10
    assert sorted(order) == list(range(5))
    # chi-squared with 9 degrees of freedom: 27.9 is exceeded once in a thousand
    assert sum((c - 2000) ** 2 / 2000 for c in counts.values()) < 27.9


def test_compiled_and_plain_batches_are_the_same():
    a, b = np.arange(50), np.arange(50)
    draw_batch(np.random.default_rng(7), a, 20)
    draw_batch.py_func(np.random.default_rng(7), b, 20)
    assert np.array_equal(a, b)
