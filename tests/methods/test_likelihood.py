"""`prefer="likelihood"`: next to Clarabel's exponential cone and to the iteration R rho R."""

import re

import numpy as np
import pytest

import quadsense
from quadsense.core.question import Question
from quadsense.proofs.costs import conjugate_above, permitted, row_value


def problem(seed, n=4, m=30, is_complex=False, shots=None):
    """Return rows, counts, and exposures or shots."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n))
    if is_complex:
        U = U + 1j * rng.standard_normal((m, n))
    G = rng.standard_normal((n, 2))
    A = G @ G.T / np.trace(G @ G.T)
    v = read(U, A)
    if shots is not None:
        U = U / np.sqrt(1.1 * v.max())
        return U, rng.binomial(shots, read(U, A)).astype(float), shots
    t = 40 * rng.uniform(0.5, 2, m)
    return U, rng.poisson(t * v).astype(float), t


def read(U, A):
    """Return what the rows read."""
    return np.einsum("ij,jk,ik->i", U.conj(), A, U).real


def deviance(U, A, k, t, background=0.0, poisson=True):
    """Return ``2 sum (mu - k) + k log(k/mu)``; without the first term unless Poisson."""
    mu = t * read(U, A) + background
    on = k > 0
    found = 2 * np.sum(k[on] * np.log(k[on] / mu[on]))
    return found + 2 * np.sum(mu - k) * poisson


def by_cvxpy(U, k, t, background=0.0, poisson=True, trace=None, psd=True):
    """Return the optimum by Clarabel's exponential cone."""
    cp = pytest.importorskip("cvxpy")
    m, n = U.shape
    A = cp.Variable((n, n), **{"hermitian" if np.iscomplexobj(U) else "symmetric": True})
    rows = np.einsum("ij,ik->ijk", U.conj(), U).reshape(m, -1)
    v = rows @ cp.vec(A, order="C")
    v = cp.real(v) if np.iscomplexobj(U) else v
    t, on = t * np.ones(m), k > 0
    mu = cp.multiply(t, v) + background
    cost = -(k[on] @ cp.log(mu[on])) + poisson * cp.sum(mu)
    constraints = [A >> 0] if psd else [mu >= 0]
    if trace is not None:
        whole = cp.trace(A)
        constraints.append((cp.real(whole) if np.iscomplexobj(U) else whole) == trace)
    cp.Problem(cp.Minimize(cost), constraints).solve(solver="CLARABEL")
    return deviance(U, A.value, k, t, background, poisson)


def agree(result, wanted, U, k, t, background=0.0, poisson=True):
    """Assert that objective and bounds are those of the optimum."""
    room = 1e-5 * max(1.0, abs(wanted))
    lower, upper = result.objective_bounds
    assert result.status == "optimal"
    assert lower <= wanted + room
    assert result.objective <= wanted + room
    assert upper - lower <= 1e-5 * max(1.0, abs(wanted))
    assert result.objective == pytest.approx(deviance(U, result.A, k, t, background, poisson))
    assert result.certificate.verify(result.certificate.data)


def poisson_case(seed):
    """Solve a problem of photons and compare."""
    U, k, t = problem(seed, is_complex=bool(seed % 2))
    background = 4.0 if seed % 3 == 1 else 0.0
    psd = seed % 4 != 3
    if background:
        k = np.random.default_rng(seed).poisson(k + background).astype(float)
    result = quadsense.solve(
        U, k, exposure=t, background=background or None, prefer="likelihood", psd=psd, gap=1e-7
    )
    agree(result, by_cvxpy(U, k, t, background, psd=psd), U, k, t, background)


def shots_case(seed):
    """Solve a problem of shares of shots and compare."""
    U, k, N = problem(seed, is_complex=bool(seed % 2), shots=60)
    result = quadsense.solve(U, k, shots=N, prefer="likelihood", psd=True, trace=1, gap=1e-7)
    wanted = by_cvxpy(U, k, N, poisson=False, trace=1)
    agree(result, wanted, U, k, N, poisson=False)


@pytest.mark.parametrize("seed", range(4))
def test_photons(seed):
    poisson_case(seed)


@pytest.mark.parametrize("seed", range(2))
def test_shares_of_shots(seed):
    shots_case(seed)


@pytest.mark.deep
def test_sixty_problems():
    for seed in range(4, 34):
        poisson_case(seed)
        shots_case(seed)


def pauli_counts(q, shots, seed):
    """Return structured rows and counts of a noisy GHZ state, some settings of which are absent."""
    rng = np.random.default_rng(seed)
    settings = quadsense.probes.product_povm(["pauli"] * q).settings
    settings = settings[np.sort(rng.permutation(len(settings))[: max(3, len(settings) - seed)])]
    U = quadsense.probes.product_povm(["pauli"] * q, settings)
    rho = np.zeros((2**q, 2**q), complex)
    rho[np.ix_([0, -1], [0, -1])] = 0.45
    rho += 0.1 * np.eye(2**q) / 2**q
    p = U.forward(rho).clip(0.0).reshape(len(settings), -1)
    return U, rng.multinomial(shots, p / p.sum(axis=1, keepdims=True)).ravel().astype(float)


def r_rho_r(U, k, steps):
    """Return the fixed point of the iteration R rho R, slowly [Hradil 1997]."""
    rho = np.eye(U.n, dtype=complex) / U.n
    for _ in range(steps):
        p = U.forward(rho)
        R = U.adjoint(np.where(k > 0, k / np.where(k > 0, p, 1.0), 0.0))
        rho = R @ rho @ R
        rho /= np.trace(rho).real
    return rho


@pytest.mark.parametrize(("q", "shots", "seed"), [(2, 100, 0), (3, 30, 1)])
def test_states_next_to_an_iteration_run_to_convergence(q, shots, seed):
    U, k = pauli_counts(q, shots, seed)
    result = quadsense.solve(U, k, shots=shots, prefer="likelihood", psd=True, trace=1, gap=1e-7)
    assert result.plan["methods"][0] == "consensus"
    rho = r_rho_r(U, k, 3000)
    p, on = U.forward(rho), k > 0
    wanted = 2 * np.sum(k[on] * np.log(k[on] / (shots * p[on])))
    assert result.objective <= wanted * (1 + 1e-6)
    assert result.objective_bounds[0] <= wanted
    assert wanted - result.objective < 1e-3 * wanted
    assert result.objective_bounds[1] - result.objective_bounds[0] <= 1e-6 * wanted
    assert result.certificate.verify(result.certificate.data)


def test_the_interior_point_method_agrees_with_consensus():
    U, k = pauli_counts(2, 50, 0)
    asked = {"shots": 50, "prefer": "likelihood", "psd": True, "trace": 1, "gap": 1e-8}
    one = quadsense.solve(U, k, **asked)
    two = quadsense.solve(U, k, method="conic", **asked)
    dense = quadsense.solve(U.take(np.arange(U.m)), k, **asked)
    assert one.objective == pytest.approx(two.objective, rel=1e-7)
    assert one.objective == pytest.approx(dense.objective, rel=1e-7)
    assert np.abs(one.A - two.A).max() < 1e-3


def test_the_conjugate_is_the_largest_difference():
    rng = np.random.default_rng(0)
    m = 5
    w, slope = rng.uniform(1, 9, m), rng.uniform(0, 3, m)
    lo = -rng.uniform(0, 1, m)
    reading = lo + rng.uniform(0.1, 2, m)
    w[0], reading[0] = 0.0, lo[0]
    question = Question(
        "likelihood", lo, np.full(m, np.inf), w, reading, np.zeros(m, bool), slope=slope
    )
    y = slope - rng.uniform(0.1, 2, m)
    v = lo[:, None] + np.geomspace(1e-9, 1e4, 200001)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(w > 0, w, 0.0)[:, None] * np.log(
            (v - lo[:, None]) / np.where(w > 0, reading - lo, 1.0)[:, None]
        )
    terms = y[:, None] * v - slope[:, None] * (v - reading[:, None]) + logs
    wanted = terms.max(axis=1).sum()
    assert conjugate_above(question, y) == pytest.approx(wanted, rel=1e-6)
    assert conjugate_above(question, slope + 1e-3) == np.inf
    assert permitted(question, slope + 1.0)[0] == slope[0]
    value = row_value(question, reading + 0.5, np.full(m, 1e-9))
    exact = slope @ np.full(m, 0.5) - w[1:] @ np.log1p(0.5 / (reading - lo)[1:])
    assert abs(value.value - exact) <= value.error < 1e-6


WRONG = [
    ({"prefer": "likelihood"}, "needs counts as b"),
    ({"prefer": "likelihood", "shots": 10, "exposure": 1.0}, "got shots and exposure"),
    ({"prefer": "likelihood", "shots": 10, "delta": 0.1}, "goes by counts alone"),
    ({"prefer": "likelihood", "shots": 10}, "needs trace="),
    ({"prefer": "likelihood", "shots": 3, "trace": 1}, "b[2] counts 5, which is more than shots"),
    ({"prefer": "likelihood", "exposure": 0.0}, "exposure must be positive"),
    ({"prefer": "likelihood", "exposure": [1.0]}, "exposure (1,)"),
    ({"prefer": "likelihood", "exposure": 1.0, "background": -1.0}, "not negative"),
    ({"prefer": "likelihood", "exposure": 1.0, "rank": 1}, "cannot go with rank"),
    ({"prefer": "likelihood", "exposure": 1.0, "prior": 1.0}, "prior says what"),
    ({"exposure": 1.0}, "exposure belongs to prefer='likelihood'"),
    ({"background": 1.0, "delta": 0.1}, "background belongs to prefer='likelihood'"),
]


@pytest.mark.parametrize(("asked", "message"), WRONG)
def test_wrong_calls_are_named(asked, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quadsense.solve(np.eye(3), [1.0, 2.0, 5.0], **{"psd": True, **asked})


def test_a_negative_count_is_named():
    with pytest.raises(ValueError, match=re.escape("b[1] is -2, but a count is not negative")):
        quadsense.solve(np.eye(2), [1.0, -2.0], exposure=1.0, prefer="likelihood")


def test_a_result_is_saved_with_what_verifies_it(tmp_path):
    U, k, t = problem(1)
    result = quadsense.solve(U, k, exposure=t, background=2.0, prefer="likelihood", psd=True)
    result.save(tmp_path / "result.npz")
    again = quadsense.load_result(tmp_path / "result.npz")
    assert again.objective == result.objective
    assert again.certificate.verify(U, k / t)
    assert not again.certificate.verify(U, 2 * k / t)
    assert "deviance" in result.message


def test_published_counts_of_two_photons():
    """James, Kwiat, Munro & White, Phys. Rev. A 64, 052312 (2001): 16 counts and their estimate."""
    s = np.sqrt(0.5)
    beams = {"H": [1, 0], "V": [0, 1], "D": [s, s], "R": [s, -1j * s], "L": [s, 1j * s]}
    pairs = [
        "HH", "HV", "VV", "VH", "RH", "RV", "DV", "DH", "DR", "DD", "RD", "HD", "VD", "VL", "HL",
        "RL",
    ]  # fmt: skip
    counts = [
        34749, 324, 35805, 444, 16324, 17521, 13441, 16901, 17932, 32028, 15132, 17238, 13171,
        17170, 16722, 33586,
    ]  # fmt: skip
    printed = np.array([
        [0.5069, -0.0239 + 0.0106j, -0.0412 - 0.0221j, 0.4833 + 0.0329j],
        [-0.0239 - 0.0106j, 0.0048, 0.0023 + 0.0019j, -0.0296 - 0.0077j],
        [-0.0412 + 0.0221j, 0.0023 - 0.0019j, 0.0045, -0.0425 + 0.0192j],
        [0.4833 - 0.0329j, -0.0296 + 0.0077j, -0.0425 - 0.0192j, 0.4839],
    ])  # fmt: skip
    U = np.array([np.kron(beams[a], beams[b]) for a, b in pairs])
    result = quadsense.solve(U, counts, exposure=1.0, prefer="likelihood", psd=True, gap=1e-6)
    rho = result.A / np.trace(result.A).real
    assert result.status == "optimal"
    # Theirs is by a Gaussian approximation of the likelihood, with a fixed number of pairs.
    assert np.abs(rho - printed).max() < 0.025
    k, scales = np.array(counts, float), np.linspace(0.9, 1.1, 201) * sum(counts[:4])
    theirs = min(deviance(U, scale * printed, k, 1.0) for scale in scales)
    assert deviance(U, result.A, k, 1.0) < theirs


def test_measurements_have_frequencies_and_shots_as_weights():
    U, k, N = problem(0, shots=60)
    asked = {"prefer": "likelihood", "psd": True, "trace": 1, "gap": 1e-7}
    held = quadsense.solve(quadsense.Measurements(U, k / N, weights=N), **asked)
    assert held.objective == pytest.approx(quadsense.solve(U, k, shots=N, **asked).objective)
    with pytest.raises(ValueError, match="takes no tolerance"):
        quadsense.solve(quadsense.Measurements(U, k, shots=N), **asked)
    with pytest.raises(ValueError, match="out of how many"):
        quadsense.solve(quadsense.Measurements(U, k / N), **asked)
