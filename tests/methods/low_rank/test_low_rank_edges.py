"""`solve(rank=...)` at the edge of float64 and on degenerate data: never raises, never misleads."""

import warnings
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from helpers import cover, deep, sampled
from low_rank_cases import DATA, low_rank

import quadsense
from quadsense import Status


def solve_strictly(U, b, delta, rank, **options):
    """A solve with every warning and every floating-point flag an error."""
    data = quadsense.Measurements(U, b, delta=delta)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        result = quadsense.solve(data, rank=rank, rng=0, **options)
    assert np.all(np.isfinite(result.A))
    if result.status is Status.MET:
        assert result.certificate.verify(U, b)
    return result


EXPONENTS = (-16, -13, -10, -6, -2, 0)
"""Of ten, tolerances relative to the largest reading."""


@pytest.mark.parametrize("n", sampled([2, 5], 1))
@pytest.mark.parametrize(
    ("kind", "complex_", "exponent"), cover(DATA, [*product([False, True], EXPONENTS)])
)
def test_no_data_and_no_delta_make_a_low_rank_solve_raise_or_warn(kind, n, complex_, exponent):
    for i, rank in enumerate([*sorted({1, 2, n}), "auto"]):
        m = (n + 1, 8 * n)[(exponent + i) % 2]
        rng, U, b = low_rank(n, m, 1, complex_, seed=i - exponent)
        U, b = DATA[kind](rng, U, b)
        delta = 10.0**exponent * (np.abs(b).max() or 1.0)
        solve_strictly(U, b, delta, rank, max_restarts=1)


def exact_residuals(U, b, X):
    """``|u_i^T X X^T u_i - b_i|`` in exact arithmetic."""
    rows, columns = [[Fraction(x) for x in u] for u in U], [[Fraction(x) for x in x] for x in X.T]
    values = []
    for u, reading in zip(rows, b, strict=True):
        products = [sum(p * q for p, q in zip(u, x, strict=True)) for x in columns]
        values.append(abs(sum(p * p for p in products) - Fraction(reading)))
    return values


@pytest.mark.parametrize("exponent", sampled([-16, -14, -12, -9, -15, -13, -11, -10], 4))
def test_small_deltas_end_as_met_in_exact_arithmetic_or_say_that_float64_ends_here(exponent):
    for n, rank in ((2, 1), (5, 2), (8, 2), (8, 8)):
        _, U, b = low_rank(n, 8 * n, min(rank, 2), False, seed=n)
        delta = 10.0**exponent * b.max()
        result = solve_strictly(U, b, delta, rank)
        met = result.status is Status.MET
        met_exactly = max(exact_residuals(U, b, result.matrix.factor)) <= Fraction(delta)
        excused = "float64 cannot certify a delta this small" in result.message
        assert met or (result.status is Status.STALLED and excused and exponent < -11)
        assert not met or (met_exactly and exponent > -16)


@pytest.mark.parametrize(("n", "exponent"), [(8, -14), deep(200, -12), deep(500, -11)])
def test_deltas_that_used_to_raise(n, exponent):
    _, U, b = low_rank(n, 20 * n, 1, False)
    result = solve_strictly(U, b, 10.0**exponent * b.max(), 1)
    assert result.status in (Status.MET, Status.STALLED)
    if result.status is Status.STALLED:
        assert "float64 cannot certify a delta this small" in result.message


@pytest.mark.parametrize("scale", [1e-60, 1e-20, 1e20, 1e60])
def test_the_unit_of_the_readings_does_not_matter(scale):
    _, U, b = low_rank(12, 100, 2, False)
    plain = solve_strictly(U, b, 1e-6 * b.max(), 2)
    other = solve_strictly(U, scale * b, 1e-6 * (scale * b).max(), 2)
    assert plain.status is other.status is Status.MET
    np.testing.assert_allclose(other.A, scale * plain.A, rtol=0, atol=1e-5 * scale * b.max())


def test_readings_of_zero_are_met_by_zero():
    _, U, b = low_rank(6, 30, 1, False)
    result = solve_strictly(U, 0.0 * b, 1e-9, 3)
    assert result.status is Status.MET and not result.A.any()


def test_a_negative_interval_is_a_proof_that_no_rank_fits():
    _, U, b = low_rank(6, 40, 2, False)
    b[7] = -1.0
    result = solve_strictly(U, b, 1e-3, 2)
    assert result.status is Status.INFEASIBLE
    assert result.suspects[0] == 7
    assert result.certificate.verify(U, b)


@pytest.mark.parametrize("seed", range(3))
def test_data_that_no_positive_matrix_fits_are_proved_so(seed):
    _, U, b = low_rank(8, 200, 2, False, seed)
    b, delta = b - 0.2 * b.mean() * (b > b.mean()), 1e-3 * b.mean()
    result = solve_strictly(U, b, delta, "auto")
    assert quadsense.solve(U, b, delta=delta, psd=True).status is Status.INFEASIBLE
    assert result.status is Status.INFEASIBLE, result.message
    assert result.certificate.verify(U, b)


@pytest.mark.parametrize(("n", "rank"), [(4, 4), (6, 2)])
def test_a_failure_is_never_a_claim_about_the_rank(n, rank):
    rng, U, b = low_rank(n, 20 * n, n, False)
    b = b + 0.05 * b.max() * rng.uniform(-1, 1, b.size)
    result = solve_strictly(U, b, 1e-6 * b.max(), rank, max_restarts=2)
    assert not result.success
    assert "seems" not in result.message and "too small" not in result.message
    assert "no fit found from" in result.message or result.status is Status.INFEASIBLE
    assert ("a larger rank" in result.message) <= (rank < n)


def test_starts_are_counted_truly():
    _, U, b = low_rank(12, 100, 3, False)
    for allowed, words in ((0, "from 1 start "), (1, "from 2 starts "), (4, "from 5 starts ")):
        result = solve_strictly(U, b, 1e-6 * b.max(), 2, max_restarts=allowed)
        assert words in result.message
        assert all(
            help_ in result.message for help_ in ("max_restarts", "a larger rank", "larger delta")
        )
