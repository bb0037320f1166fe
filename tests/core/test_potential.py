"""The log potential against long doubles, and the compiled loops against the plain ones."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from quadsense.core import theory
from quadsense.core.theory import sharpness
from quadsense.methods.descent.kernels import evaluate, exp_clipped
from quadsense.methods.descent.loops import potential

moderate = arrays(np.float64, st.integers(1, 12), elements=st.floats(-300, 300))


@given(moderate)
def test_log_potential_equals_the_sum_where_that_can_be_formed(x):
    truth = np.log(np.sum(np.cosh(x.astype(np.longdouble))))
    assert theory.log_potential(x) == pytest.approx(float(truth), rel=1e-14, abs=1e-14)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e12])
def test_nothing_overflows_however_large_the_argument(size):
    x = np.array([size, -size, 0.5 * size, 0.0])
    with np.errstate(over="raise", invalid="raise"):
        assert theory.log_potential(x) == pytest.approx(size, rel=1e-12)


def test_strict_namespace_gives_the_same_numbers(rng):
    x = rng.standard_normal(20) * 50
    strict = array_api_strict.asarray(x)
    assert theory.log_potential(strict) == pytest.approx(theory.log_potential(x), rel=1e-15)


@given(st.floats(-700.0, 700.0))
def test_polynomial_exp_is_within_two_ulp(x):
    assert exp_clipped(x) == pytest.approx(np.exp(x), rel=4.5e-16)


def test_compiled_and_plain_evaluation_agree(rng):
    y, q = rng.standard_normal(33), rng.standard_normal(33)
    for L in (0.5, 40.0, 4000.0):
        shift = L * np.abs(y).max()
        moved, sigma, total, top = evaluate(y, q, 1e-3, L, shift)
        np.testing.assert_allclose(moved, y - 1e-3 * q, rtol=1e-14)
        plain = potential(moved, np.float64(L), np.float64(shift))
        np.testing.assert_allclose(sigma, plain.sigma, rtol=1e-11, atol=1e-14)
        assert shift + np.log(total) == pytest.approx(float(plain.value), rel=1e-13)
        assert top == pytest.approx(float(plain.top), rel=1e-15)


def test_residual_bound_inverts_the_potential():
    m = 40
    z = np.zeros(m)
    z[3] = 0.7
    lam = sharpness(m) / 0.1
    assert theory.residual_bound(theory.log_potential(lam * z), lam) >= 0.7
    # far past the range of cosh
    assert theory.residual_bound(5000.0, 2.0) == pytest.approx(2500.0, rel=1e-3)
