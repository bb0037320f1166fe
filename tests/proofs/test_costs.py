"""What a matrix costs, enclosed, next to sixty digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest

from quadsense.core.matrix import FactorForm, MeasuredForm, SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.costs import _logarithms, _squared_distance, matrix_value, objective_value
from quadsense.proofs.definite import Spectrum

INF = np.inf


def question(**more):
    one = np.ones(1)
    return Question("within", -one, one, one, 0.0 * one, one < 0.0, psd=True, **more)


def logarithm(x):
    with localcontext() as context:
        context.prec = 60
        return Decimal(x).ln()


def enclosed(found, true):
    return abs(Decimal(found.value) - true) <= Decimal(found.error)


@pytest.mark.parametrize("small", [1.0, 2.0**-20, 2.0**-27, 2.0**-40])
def test_a_determinant_is_enclosed_also_by_the_factor(small):
    """Of order small^2 next to 1: below the roundings of A, but not below those of its factor."""
    X = np.array([[1.0, 0.0], [0.5, small]])
    true = -2 * logarithm(small)
    found = matrix_value(question(log_det=True), SensedMatrix(FactorForm(X)))
    assert enclosed(found, true)
    assert found.error <= max(1e-12 / small, 1e-13 / small**2)
    if small > 2.0**-22:
        dense = matrix_value(question(log_det=True), SensedMatrix.from_dense(X @ X.T))
        assert enclosed(dense, true)
        assert dense.error <= 1e-12 / small**2


@pytest.mark.parametrize("way", [1.0, -1.0])
def test_eigenvalues_that_are_off_are_counted_by_their_logarithms(way):
    values, error, off = np.array([0.01, 5.0]), 0.003, 0.002
    found = _logarithms(Spectrum(values, error), off)
    moved = values + way * np.array([0.00499, 0.00001])
    assert enclosed(found, -sum(logarithm(float(x)) for x in moved))
    assert found.error <= 1.01 * (np.log(2.0) + 0.001)
    assert _logarithms(Spectrum(values, 0.005), 0.005).error == INF


@pytest.mark.parametrize("X", [np.ones((2, 2)), np.ones((2, 1)), np.ones((2, 3)), np.zeros((2, 2))])
def test_of_a_singular_matrix_it_is_infinite(X):
    found = matrix_value(question(log_det=True), SensedMatrix(FactorForm(X)))
    assert found.error == INF
    zero = np.zeros(1)
    whole = objective_value(question(log_det=True), SensedMatrix(FactorForm(X)), zero, zero)
    assert whole.error == INF


def test_a_matrix_costs_nothing_where_nothing_is_asked_of_it():
    held = SensedMatrix.from_dense(np.eye(2))
    assert matrix_value(question(), held) == (0.0, 0.0)
    assert matrix_value(question(C=1.0), held).value == 2.0
    assert matrix_value(question(C=np.array([[0.0, 1j], [-1j, 3.0]])), held).value == 3.0


@pytest.mark.parametrize("apart", [0.5, 3.0, 1e6])
def test_the_error_of_a_distance_is_that_of_its_parts(apart):
    """n apart^2 - 2 apart c.1 + ||F*(c)||^2: the trace errs by n roundings, each part by some."""
    n, c = 4, np.array([1.0, -2.0])
    form = MeasuredForm(apart, c, Sensing.of(np.eye(4)[:2]))
    found = _squared_distance(form, 0.0)
    true = n * apart**2 - 2.0 * apart * float(c.sum()) + 5.0
    assert abs(found.value - true) <= found.error
    u, mass = 2.0**-53, 3.0
    least = 2.0 * apart * (n + 2) * u * mass + 2.0 * u * (n * apart**2 + 2.0 * apart + 5.0)
    assert least <= found.error <= 60.0 * least + 1e-12 * 5.0
