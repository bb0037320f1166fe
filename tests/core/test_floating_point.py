"""No warning and no stray exception, whatever the data: every floating-point flag raises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import gaussian_rows, sampled
from interval_cases import random_case

import quadsense
from quadsense.methods import METHODS, Problem
from quadsense.proofs.rounding import enclosure, is_met

SHAPES = [(1, 1), (1, 3), (2, 3), (4, 30), (6, 21), (6, 25), (8, 100), (12, 6), (15, 80), (5, 15)]


def drive(problem, name, most=300):
    """What the loop does with a method, with every flag raised inside the method."""
    problem = replace(problem, options=METHODS.traits(name).options())
    method, corrections = METHODS[name](), 0
    if name == "psd" and not problem.target:
        method = method.without_target(problem)
    with np.errstate(all="raise"):
        program = method.prepare(problem)
        state = method.start(program)
        while state.iteration < most:
            claim = method.claim(program, state)
            if claim is None:
                before = state
                state = method.advance(program, state, method.stride(program))
                moved = state.iteration > before.iteration
                assert moved or method.claim(program, state) is not None
                continue
            matrix = method.matrix(program, state)
            if claim.kind != "met":
                assert claim.kind != "undecided" or claim.reason
                return claim.kind
            with np.errstate(all="ignore"):
                found = enclosure(matrix, problem.rows, problem.b)
                rounding = float(np.max(found.error / problem.delta))
            if is_met(found, problem.ends):
                return "met"
            corrections += 1
            if corrections > 6 or rounding >= 0.5:
                return "stalled"
            goal = min(0.9**corrections, 1.0 - 2.0 * rounding)
            state = method.correct(program, state, found.z, goal)
    return "stopped"


def to_problem(data, target):
    scaled = data.scaled()
    tau = float(np.mean(scaled.b))
    return Problem(data.unit_rows, scaled.b, scaled.delta, tau, sides=data.sides, target=target)


@pytest.mark.parametrize("exponent", sampled([-16, -14, -12, -9, -6, -3, 0], 1))
@pytest.mark.parametrize("shape", SHAPES)
def test_no_flag_is_raised_at_any_tolerance(shape, exponent):
    n, m = shape
    for seed in (1 + exponent % 3, 0):  # repeated rows, both signs or noise; and none of these
        rng = np.random.default_rng([seed, n, m])
        U = gaussian_rows(rng, m, n, bool(rng.integers(2)))
        U = U[rng.integers(0, m, m)] if seed == 1 else U
        b = np.sum(np.abs(U.conj() @ rng.standard_normal((n, max(1, n // 2)))) ** 2, axis=1)
        b = b * rng.choice([-1.0, 1.0], m) if seed == 2 else b
        scale = 10.0 ** rng.choice([0.0, -100.0, 100.0])
        delta = 10.0**exponent * float(b.max(initial=0.1))
        b = b + (delta * rng.uniform(-3.0, 3.0, m) if seed == 3 else 0.0)
        data = quadsense.Measurements(U, scale * b, delta=scale * delta)
        for name, target in (("minimax", True), ("minimax", False), ("psd", True), ("psd", False)):
            drive(to_problem(data, target), name)


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("seed", sampled(range(40)))
def test_no_flag_is_raised_by_intervals_of_any_kind(seed, psd):
    case = random_case(np.random.default_rng([seed, 3]), psd)
    squares = case.norms**2 * case.scale
    lo = np.where(case.sides[1], (case.middle - case.half) * squares, -np.inf)
    hi = np.where(case.sides[0], (case.middle + case.half) * squares, np.inf)
    data = quadsense.Measurements(case.V * case.norms[:, None], bounds=(lo, hi))
    drive(to_problem(data, True), "psd" if psd else "minimax")


@pytest.mark.parametrize("options", [{}, {"psd": True}, {"method": "minimax"}])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (3, 20), (6, 2)])
def test_zero_readings_and_zero_rows_have_exact_answers(shape, options):
    n, m = shape
    U, zero = np.random.default_rng(0).standard_normal((m, n)), np.zeros(m)
    for rows in (U, 0.0 * U, np.concatenate([U[:-1], 0.0 * U[-1:]])):
        best = quadsense.solve(rows, zero, **options)
        assert best.status == "optimal" and best.max_residual == 0.0
        assert best.certificate.verify(rows, zero)
        met = quadsense.solve(rows, zero, delta=0.1, **options)
        assert met.status == "met" and met.certificate.verify(rows, zero)
    # Zero rows read 0 whatever A is: the error of the reading 1 is 1.
    best = quadsense.solve(0.0 * U, zero + 1.0, **{"prefer": "minimax", **options})
    assert best.status == "optimal" and best.objective_bounds[0] == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-150, 1e-60, 1e60, 1e150])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (3, 20), (6, 2)])
def test_the_best_positive_semidefinite_fit_does_not_depend_on_the_unit(shape, scale):
    n, m = shape
    rng = np.random.default_rng(1)
    U = rng.standard_normal((m, n))
    for b in (rng.uniform(0.0, 2.0, m), -rng.uniform(0.0, 2.0, m)):
        plain, scaled = quadsense.solve(U, b, psd=True), quadsense.solve(U, scale * b, psd=True)
        assert plain.status == scaled.status == "optimal"
        for mine, other in zip(
            (plain.certificate.lower_bound, plain.certificate.upper_bound),
            (scaled.certificate.lower_bound, scaled.certificate.upper_bound),
            strict=True,
        ):
            assert abs(mine - other / scale) <= 1e-2 * mine + 1e-8 * float(np.abs(b).max())


@pytest.mark.parametrize("wanted", [{}, {"psd": True}, {"prefer": "minimax"}, {"rank": 1}])
@pytest.mark.parametrize(
    ("size", "delta", "word"),
    [
        (1e300, 0.1, "large"),
        (1e308, None, "large"),
        (5e-324, None, "small"),
        (1e-300, 0.0, "small"),
    ],
)
def test_readings_out_of_range_are_refused_truthfully(size, delta, word, wanted):
    U = np.array([[1.0, 0.5], [0.5, 1.0], [0.25, 0.25]])
    with pytest.raises(ValueError, match=f"too {word} to compute with .*|scaled to a unit row"):
        quadsense.solve(U, size * np.ones(3), delta=delta, **wanted)


@pytest.mark.parametrize("wanted", [{"psd": True}, {"prefer": "any"}, {"rank": 1}])
def test_one_sided_readings_out_of_range_are_refused_truthfully(wanted):
    for size in (5e-324, 1e300):
        with pytest.raises(ValueError, match=r"to compute with|scaled to a unit row"):
            quadsense.solve(np.eye(2), bounds=(size * np.ones(2), np.inf), **wanted)


@pytest.mark.parametrize(("size", "delta"), [(1e-300, 5e-324), (1e-200, 1e-100), (1e280, 1e270)])
@pytest.mark.parametrize("wanted", [{}, {"psd": True}, {"prefer": "any"}])
def test_readings_near_the_ends_of_the_range_are_solved_or_refused(size, delta, wanted):
    V = np.random.default_rng(0).standard_normal((8, 3))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    b = size * np.sum(V * V, axis=1)
    try:
        status = quadsense.solve(V, b, delta=delta, **wanted).status
    except ValueError as error:
        status = str(error)
    assert status == "met" or "too small to compute with" in status or "unit row" in status


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("named", [{"delta": 0.0}, {"delta": 0.1}, {}])
@pytest.mark.parametrize(("norm", "size"), [(1e155, 1e200), (1e100, 1e-200), (1e160, 1.0)])
def test_rows_of_extreme_norm_give_a_result_or_one_sentence(norm, size, named):
    V = norm * np.array([[1.0, 0.5], [0.5, 1.0], [0.25, 0.25]])
    try:
        said = str(quadsense.solve(V, size * np.ones(3), **named).status)
    except ValueError as error:
        said = str(error)
    known = ("met", "undecided", "stalled", "optimal", "to compute with", "scaled to a unit row")
    assert any(word in said for word in known), said
