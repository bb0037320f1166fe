"""Every method of symmetric fits by name, on degenerate data and at deltas no float64 certifies."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from helpers import cover, gaussian_rows, hermitian, readings
from low_rank_cases import DATA

import quadsense
from quadsense import Status

METHODS = ("auto", "cg", "gd", "sgd", "closed_form")
SMALL = [10.0**exponent for exponent in (-16, -14, -12, -10, -8, -3, 0)]


def solve_strictly(U, b, **options):
    """A solve and its verification with every warning and floating-point flag an error."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        result = quadsense.solve(U, b, rng=0, max_iter=200, **options)
        assert np.all(np.isfinite(result.A)) and result.message
        assert result.status is not Status.MET or result.certificate.verify(U, b)
    return result


@pytest.mark.parametrize(("kind", "method"), cover(DATA, METHODS))
def test_no_flag_and_no_warning_is_raised(method, kind, complex_):
    for i, share in enumerate(SMALL):
        n, m = [(1, 1), (2, 3), (6, 4), (5, 12), (8, 8)][i % 5]
        rng = np.random.default_rng([i, n, m])
        U = gaussian_rows(rng, m, n, complex_)
        b = readings(U, hermitian(rng, n, complex_))
        if method == "closed_form":
            n = max(n, m)
            U = np.linalg.qr(gaussian_rows(rng, n, m, complex_))[0].T
        U, b = DATA[kind](rng, U, b)
        delta = share * (float(np.abs(b).max()) or 1.0)
        refused = method == "closed_form" and not quadsense.Measurements(U, b).orthonormal
        error = pytest.raises(ValueError, match="needs orthonormal rows")
        with error if refused else nullcontext():
            solve_strictly(U, b, delta=delta, method=method)


@pytest.mark.parametrize("method", ["auto", "minimax"])
def test_rows_of_zeros_without_a_delta_are_fitted_exactly(method, complex_):
    U = np.zeros((3, 4), dtype=complex if complex_ else float)
    result = solve_strictly(U, np.zeros(3), method=method)
    assert result.status is Status.OPTIMAL and result.max_residual == 0.0
    off = solve_strictly(U, np.array([0.0, 2.0, -1.0]), method=method)
    assert off.max_residual == 2.0
