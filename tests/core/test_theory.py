"""What the lemmas promise, they keep, on problems that meet their assumptions."""

import math

import numpy as np
import pytest
from helpers import build, sampled

import quadsense
from quadsense import Status, theory
from quadsense.core.theory import log_potential, residual_bound

PROBLEMS = {
    "orthonormal": quadsense.datasets.orthonormal,
    "near_orthogonal": quadsense.datasets.near_orthogonal,
}


def problem_of(name, m, seed=0, complex=False):
    return PROBLEMS[name](n=m + 3, m=m, seed=seed, complex=complex)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("m", [1, 2, 30])
def test_gd_meets_delta_within_the_lemmas_iterations(name, m, complex_):
    p = problem_of(name, m, complex=complex_)
    data = quadsense.Measurements(p.U, p.b, delta=0.05)
    assert data.facts.paper_holds
    result = quadsense.solve(data, method="gd", schedule="paper")
    radius = np.abs(p.b.max() - p.b).max()
    promised = theory.schedule(m=m, radius=radius, delta=0.05).iterations
    assert result.status is Status.MET
    assert result.n_iter <= promised


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("batch_size", sampled([4, 1], 1))
def test_sgd_meets_delta_with_the_promised_probability(name, batch_size):
    p = problem_of(name, 12)
    failures = 0
    for seed in range(20):
        result = quadsense.solve(
            p.U,
            p.b,
            delta=0.1,
            method="sgd",
            schedule="paper",
            batch_size=batch_size,
            failure=0.1,
            rng=seed,
        )
        radius = np.abs(p.b.max() - p.b).max()
        promised = theory.schedule(m=12, radius=radius, delta=0.1, batch_size=batch_size)
        assert result.n_iter <= promised.iterations
        failures += result.status is not Status.MET
    # At most 2 expected; 7 or more would happen once in a thousand.
    assert failures <= 6


@pytest.mark.parametrize("schedule", ["paper", "continuation"])
def test_spectral_meets_its_accuracy_within_the_lemmas_iterations(complex_, schedule):
    p = quadsense.datasets.gaussian(n=15, m=1, seed=1, complex=complex_)
    result = quadsense.solve_spectral(
        quadsense.SpectralOracle(p.A_star), np.eye(15), accuracy=0.2, schedule=schedule
    )
    truth = np.linalg.eigvals(np.linalg.solve(p.A_star, result.A)).real
    start = np.linalg.eigvals(np.linalg.inv(p.A_star)).real
    radius = np.abs(start - 1.0).max()
    assert result.status is Status.MET
    assert np.abs(truth - 1.0).max() <= 0.2
    assert result.n_iter <= theory.spectral_schedule(n=15, radius=radius, accuracy=0.2).iterations


@pytest.mark.parametrize("c", [0.01, 0.16])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("m", [1, 2, 25])
def test_gd_progress_bound_holds_at_every_iteration(name, m, c):
    if m == 1:  # z_1 = 0 there: start elsewhere
        U, b, start = np.eye(3)[:1], np.array([1.0]), "zero"
    else:
        p = problem_of(name, m)
        U, b, start = p.U, p.b, "tau"
    solver, program, state = build(U, b, 0.05, schedule="paper", c=c, start=start)
    lam, values = state.sharpness, [state.log_potential]
    state = type(state)(**{**state.__dict__, "goal": 0.0})  # beyond delta, to the bottom
    for _ in range(4000):
        state = solver.advance(program, state, 1)
        values.append(state.log_potential)
    assert log_potential(lam * state.y) == pytest.approx(values[-1], rel=1e-12)
    values = np.array(values)
    assert values[-1] < values[0]
    bound = theory.progress_bound(values[:-1], m=m, lam=lam, step=c / lam)
    assert np.all(values[1:] <= bound + 1e-12 * np.abs(values[:-1]))
    overall = theory.potential_bound(
        np.arange(values.size), log_potential=values[0], m=m, lam=lam, step=c / lam
    )
    assert np.all(values <= overall + 1e-12 * np.abs(values))


def test_progress_bound_fails_for_a_step_that_is_too_long():
    """At c = 0.25 and m = 1 the lemma is false: the check above can fail."""
    solver, program, state = build(
        np.eye(1), np.array([1.0]), 0.05, schedule="paper", c=0.25, start="zero"
    )
    state = type(state)(**{**state.__dict__, "goal": 0.0})
    values = [state.log_potential]
    for _ in range(4000):
        state = solver.advance(program, state, 1)
        values.append(state.log_potential)
    bound = theory.progress_bound(
        values[:-1], m=1, lam=state.sharpness, step=0.25 / state.sharpness
    )
    assert np.any(np.array(values[1:]) > bound)


@pytest.mark.parametrize("name", PROBLEMS)
def test_sgd_expected_progress_is_exact_over_all_batches(name):
    """B = 1: the expectation is a mean over m batches, taken exactly at visited states."""
    m, c = 9, 0.01
    p = problem_of(name, m)
    U = p.U / np.linalg.norm(p.U, axis=1, keepdims=True)
    K = (U @ U.T) ** 2
    solver, program, state = build(
        p.U, p.b, 0.05, method="sgd", schedule="paper", batch_size=1, norm="exact"
    )
    lam, eps = state.sharpness, c / m / state.sharpness
    checked = 0
    for _ in range(40):
        y = np.asarray(state.y)
        shift = lam * np.abs(y).max()
        s = 0.5 * np.sign(y) * (np.exp(lam * np.abs(y) - shift) - np.exp(-lam * np.abs(y) - shift))
        norm = math.sqrt(s @ K @ s)
        after = [log_potential(lam * (y - eps * m * K[:, i] * s[i] / norm)) for i in range(m)]
        expected = np.logaddexp.reduce(after) - math.log(m)
        bound = theory.progress_bound(state.log_potential, m=m, lam=lam, step=eps)
        assert expected <= bound + 1e-12 * abs(state.log_potential)
        checked += 1
        state = solver.advance(program, state, 1500)
        if state.max_ratio <= 1.0:
            break
    assert checked >= 10


def test_spectral_progress_bound_holds_at_every_iteration():
    """The spectral potential of the printed iterates, by eigenvalues taken anew."""
    import printed

    n, c = 8, 0.01
    p = quadsense.datasets.gaussian(n=n, m=1, seed=3)
    lam = theory.spectral_schedule(n=n, radius=1.0, accuracy=0.1).lam
    values = []
    for A in printed.spectral(p.A_star, np.eye(n), lam, c / lam, 300):
        eigenvalues = np.linalg.eigvals(np.linalg.solve(p.A_star, A)).real
        values.append(log_potential(lam * (1.0 - eigenvalues)))
    bound = theory.progress_bound(values[:-1], m=n, lam=lam, step=c / lam)
    assert np.all(np.array(values[1:]) <= bound + 1e-9)
    assert values[-1] < values[0]


def test_the_lemmas_constants_follow_from_the_progress_bound():
    s = theory.schedule(m=50, radius=2.0, delta=0.01)
    start = s.lam * 2.0 + math.log(50)  # the largest that log Phi_1 can be
    end = theory.potential_bound(s.iterations, log_potential=start, m=50, lam=s.lam, step=s.step)
    assert end <= math.log(2.2 * 50)
    assert residual_bound(math.log(2.2 * 50), s.lam) == pytest.approx(0.01)
    assert s.c == pytest.approx(0.01)


def test_markov_turns_expectation_into_probability():
    s = theory.schedule(m=50, radius=1.0, delta=0.01, batch_size=5, failure=0.2)
    assert residual_bound(math.log(2.2 * 50 / 0.2), s.lam) == pytest.approx(0.01)
    assert s.c == pytest.approx(0.01 * 5 / 50)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"m": 0}, "m must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"delta": float("nan")}, "delta must be"),
        ({"radius": -1.0}, "radius must be"),
        ({"batch_size": 51}, "batch_size must lie between 1 and m = 50"),
        ({"batch_size": 5, "failure": 0.0}, "failure must lie"),
    ],
)
def test_schedule_refuses_bad_numbers(change, word):
    with pytest.raises(ValueError, match=word):
        theory.schedule(**{"m": 50, "radius": 1.0, "delta": 0.1, **change})


def test_paper_schedule_with_unequal_tolerances_still_meets_each():
    p = problem_of("near_orthogonal", 10)
    delta = np.linspace(0.05, 0.2, 10)
    result = quadsense.solve(p.U, p.b, delta=delta, method="gd", schedule="paper")
    assert result.status is Status.MET
    assert np.all(np.abs(result.residuals) <= delta)


def test_unequal_tolerances_of_general_rows_ask_for_that_many_more_steps():
    """The step respects the sharpest row, the rate is that of the bluntest."""
    even = theory.schedule(m=10, radius=3.0, delta=1.0)
    uneven = theory.schedule(m=10, radius=3.0, delta=1.0, spread=4.0)
    assert uneven.iterations == pytest.approx(4 * even.iterations, rel=1e-3)
    p = problem_of("near_orthogonal", 10)
    delta = np.linspace(0.05, 0.2, 10)
    _, program, state = build(p.U, p.b, delta, schedule="paper")
    promised = theory.schedule(m=10, radius=state.max_ratio, delta=1.0, spread=4.0)
    assert program.limit == pytest.approx(promised.iterations, rel=1e-3)
