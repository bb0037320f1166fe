"""Directions in which fits go on without end, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact_matrices import is_between
from helpers import gaussian_rows, hermitian

from quadsense import Measurements
from quadsense.core.question import Question
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import rays
from quadsense.ranges import extremes

INF = np.inf


def asked(U, lo, hi, C, psd=False, **more):
    """The data and the question of them, as `quadsense.interval` has them."""
    lo, hi = np.array(lo, float), np.array(hi, float)
    data = Measurements(np.array(U), bounds=(lo, hi), **more)
    m = data.m
    C = C if isinstance(C, float) else np.array(C)
    zero = np.zeros(m)
    return data, Question("within", lo, hi, zero, zero, data.hard, C=C, psd=psd)


def is_ray(U, lo, hi, C, ray, psd=False, fit=None, **more):
    data, question = asked(U, lo, hi, C, psd, **more)
    ray = np.array(ray)
    fit = np.eye(data.n) if fit is None else np.array(fit)
    return rays.is_ray(data, question, ray, fit)


EYE = np.eye(2)
DOWN = np.diag([0.0, -1.0])


# --- symmetric matrices ----------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 1e100, 1e-100])
def test_a_direction_that_no_row_sees_is_one_where_C_falls(scale):
    U = [[1.0, 0.0]]
    assert is_ray(U, [0.0], [1.0], DOWN, scale * np.diag([0.0, 1.0]))
    assert not is_ray(U, [0.0], [1.0], DOWN, scale * np.diag([0.0, -1.0]))  # C rises
    assert not is_ray(U, [0.0], [1.0], np.diag([1.0, 0.0]), scale * np.diag([0.0, 1.0]))  # level
    assert not is_ray(U, [0.0], [1.0], DOWN, scale * np.diag([1.0, 1.0]))  # the row reads 1
    assert is_ray(U, [0.0], [1.0], -1.0, scale * np.diag([0.0, 1.0]))


@pytest.mark.parametrize("ray", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((2, 2), INF)])
def test_what_is_no_direction_is_none(ray):
    assert not is_ray([[1.0, 0.0]], [0.0], [1.0], DOWN, ray)


@pytest.mark.parametrize(
    ("lo", "hi", "reads", "is_one"),
    [
        (0.0, INF, 1.0, True),  # away from the one end that there is
        (0.0, INF, -1.0, False),
        (-INF, 0.0, -1.0, True),
        (-INF, 0.0, 1.0, False),
        (-INF, INF, 1.0, True),
        (-INF, INF, -1.0, True),
        (0.0, 1.0, 1.0, False),
        (0.0, 1.0, -1.0, False),
        (0.0, 1.0, 0.0, True),
        (0.0, INF, 0.0, True),
        (-INF, 0.0, 0.0, True),
    ],
)
def test_rows_read_0_or_away_from_their_end(lo, hi, reads, is_one):
    M = np.diag([reads, 1.0])
    assert is_ray([[1.0, 0.0]], [lo], [hi], np.diag([0.0, -1.0]), M) is is_one


def test_a_reading_that_is_0_to_rounding_alone_is_corrected():
    V = np.array([[0.6, 0.8], [0.8, -0.6]])
    M = np.array([[0.96, 0.28], [0.28, -0.96]])  # both rows read 0
    assert is_ray(V, [0.0, 0.0], [1.0, 1.0], -M, M)
    off = M + 1e-9 * np.outer(V[0], V[0])
    assert is_ray(V, [0.0, 0.0], [1.0, 1.0], -M, off)
    # But where C falls by no more than what the correction may take, it is none.
    level = np.outer(V[0], V[0])
    assert not is_ray(V, [0.0, 0.0], [1.0, 1.0], -1e-12 * M - level, M + 1e-3 * level)
    # Once for all rows: a matrix alike, given twice, says nothing more.
    assert is_ray(V[[0, 1, 1]], [0.0] * 3, [1.0] * 3, -M, off)


def test_a_row_of_one_end_that_reads_nearly_0_is_held_too():
    """A correction of the others may move it past its end: then it is corrected with them."""
    V = np.array([[0.6, 0.8], [0.8, -0.6]])
    M = np.array([[0.96, 0.28], [0.28, -0.96]])
    for wrong in (-1e-12, 1e-12):
        moved = M + wrong * np.outer(V[1], V[1])
        assert is_ray(V, [0.0, 0.0], [1.0, INF], -M, moved)
        assert is_ray(V, [0.0, -INF], [1.0, 0.0], -M, moved)
    # C falls along what is corrected alone.
    seen = np.outer(V[1], V[1])
    assert not is_ray(V, [0.0, 0.0], [1.0, INF], seen, M - 1e-2 * seen)
    assert is_ray(V, [0.0, 0.0], [1.0, INF], -seen, M + 1e-2 * seen)


def test_rows_of_one_end_far_from_it_need_no_correction(rng):
    """More rows than unknowns, all of which read above 0: held, they would leave nothing."""
    V = gaussian_rows(rng, 9, 2, False)
    assert is_ray(V, np.zeros(9), np.full(9, INF), -EYE, EYE)
    assert not is_ray(V, np.zeros(9), np.ones(9), -EYE, EYE)
    assert not is_ray(V, np.zeros(9), np.full(9, INF), EYE, EYE)


def test_rows_of_zeros_are_not_asked():
    assert is_ray([[1.0, 0.0], [0.0, 0.0]], [0.0, 0.0], [1.0, 0.0], DOWN, np.diag([0.0, 1.0]))


@pytest.mark.parametrize("complex_", [False, True])
def test_sums_of_rows_are_held_as_well(rng, complex_):
    U = np.eye(3) + (0j if complex_ else 0.0)
    W = np.array([[1.0, -1.0, 0.0]])
    C = -np.eye(3)
    assert is_ray(U, [0.0], [1.0], C, np.diag([1.0, 1.0, 1.0]), mix=W)
    seen = np.diag([-1.0, 1.0, 0.0])
    assert not is_ray(U, [0.0], [1.0], seen, np.diag([2.0, 1.0, 1.0]), mix=W)
    assert is_ray(U, [0.0], [INF], seen, np.diag([2.0, 1.0, 1.0]), mix=W)
    assert is_ray(U, [0.0], [INF], C, np.diag([2.0, 1.0, 1.0]), mix=W)
    assert is_ray(U, [0.0], [1.0], C, np.diag([0.0, 0.0, 1.0]), mix=W)


def test_a_correction_is_as_long_as_the_readings_ask(rng):
    V = gaussian_rows(rng, 2, 3, False)
    F = Sensing.of(V)
    pattern, held = np.ones((3, 3), bool), np.array([True, True])
    sigma = math.sqrt(np.linalg.eigvalsh(np.abs(V @ V.T) ** 2)[0])
    v, error = np.array([3.0, 0.0]), np.array([0.0, 4.0])
    assert is_between(rays._correction(F, held, v, error, pattern), 5.0 / sigma, 7.2 / sigma)
    one = rays._correction(F, np.array([True, False]), v, error, pattern)
    assert is_between(one, 3.0 / (V[0] @ V[0]), 4.3 / (V[0] @ V[0]))
    assert rays._correction(F, ~held, v, error, pattern) == 0.0
    assert rays._correction(F, held, v, error, np.zeros((3, 3), bool)) == math.inf


def test_a_fall_is_one_for_all_matrices_near_too():
    F, M = Sensing.of(EYE), np.diag([3.0, 4.0])
    C = np.diag([-1.0, 0.0])
    assert rays._falls(C, F, M, 5.0, 2.99)
    assert not rays._falls(C, F, M, 5.0, 3.0)
    assert not rays._falls(-C, F, M, 5.0, 0.0)
    assert rays._falls(-1.0, F, M, 5.0, 4.9)  # of length sqrt(2): 7 / sqrt(2)
    assert not rays._falls(-1.0, F, M, 5.0, 4.96)
    assert not rays._falls(1.0, F, M, 5.0, 0.0)
    # Rounding of the product counts: a fall of 1e-16 of its parts is none.
    assert not rays._falls(np.diag([-1.0 - 4e-16, 0.75]), F, M, 5.0, 0.0)
    # Real rows see the real part of C alone.
    assert not rays._falls(np.array([[0.0, 1j], [-1j, 0.0]]), F, M, 5.0, 0.0)


def test_only_rows_of_a_pattern_see_it():
    V = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 1.0]])
    pattern = np.zeros((3, 3), bool)
    pattern[1, 2] = pattern[2, 1] = True
    assert rays.sees(Sensing.of(V), pattern).tolist() == [False, True, False]
    W = np.array([[1.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    F = Mixed(Sensing.of(V), W, np.ones(2), np.ones(2))
    assert rays.sees(F, pattern).tolist() == [False, True]


# --- positive semidefinite matrices ----------------------------------------------------------


def test_a_vector_that_no_row_bounded_above_sees_is_a_ray():
    U = [[1.0, 0.0]]
    assert is_ray(U, [0.0], [1.0], DOWN, [0.0, 1.0], psd=True)
    assert not is_ray(U, [0.0], [1.0], -DOWN, [0.0, 1.0], psd=True)
    assert not is_ray(U, [0.0], [1.0], DOWN, [1.0, 0.0], psd=True)
    assert is_ray(U, [0.0], [INF], -EYE, [1.0, 0.0], psd=True)  # no end above
    assert not is_ray(U, [-INF], [1.0], -EYE, [1.0, 0.0], psd=True)
    # Of positive semidefinite matrices no other direction is looked at.
    assert not is_ray(U, [0.0], [1.0], DOWN, np.diag([0.0, 1.0]), psd=True)
    # One of them is a ray of the symmetric ones, too.
    assert is_ray(U, [0.0], [1.0], DOWN, [0.0, 1.0])


def test_a_vector_that_is_orthogonal_to_rounding_is_corrected(rng, complex_):
    V = gaussian_rows(rng, 2, 4, complex_)
    x = np.linalg.svd(V.conj())[2][-1].conj()
    C = -np.outer(x, x.conj())
    for wrong, is_one in ((0.0, True), (1e-9, True), (0.1, False)):
        moved = x + wrong * V[0] / np.linalg.norm(V[0])
        if not is_one:  # and C that is far from falling everywhere near
            C = C - 50.0 * np.outer(V[1], V[1].conj())
        assert is_ray(V, [0.0, 0.0], [1.0, 1.0], C, moved, psd=True) is is_one
    assert not is_ray(np.vstack([V, V[0] * 2.0]), [0.0] * 3, [1.0] * 3, C, x, psd=True)


def test_sums_that_are_bounded_on_any_side_must_not_see_a_vector():
    W = np.array([[1.0, -1.0]])
    U = np.eye(3)[:2]
    for lo, hi in (([0.0], [INF]), ([-INF], [1.0]), ([0.0], [1.0])):
        assert is_ray(U, lo, hi, -np.eye(3), [0.0, 0.0, 1.0], psd=True, mix=W)
        assert not is_ray(U, lo, hi, -np.eye(3), [1.0, 0.0, 1.0], psd=True, mix=W)
    assert is_ray(U, [-INF], [INF], -np.eye(3), [1.0, 0.0, 1.0], psd=True, mix=W)


@pytest.mark.parametrize(
    ("C", "x", "is_one"),
    [
        ([[1.0, 0.5], [0.5, 0.0]], [0.0, 1.0], True),  # off the diagonal alone
        ([[1.0, 0.5], [0.5, 0.1]], [0.0, 1.0], False),
        ([[1.0, 0.0], [0.0, 0.0]], [0.0, 1.0], False),
        ([[0.0, 0.5], [0.5, 1.0]], [1.0, 0.0], False),  # the row has it
        ([[1.0, 0.5], [0.5, 0.0]], [1e-3, 1.0], False),  # two coordinates
    ],
)
def test_a_coordinate_that_no_row_has_is_a_ray_where_C_couples_it(C, x, is_one):
    assert is_ray([[1.0, 0.0]], [0.5], [1.0], C, x, psd=True) is is_one
    assert not is_ray([[1.0, 0.0]], [0.5], [1.0], C, x)
    # w = -A C x is 0 where A does not have what C couples x with.
    assert not is_ray([[1.0, 0.0]], [0.0], [1.0], C, x, psd=True, fit=np.diag([0.0, 1.0]))


def test_a_coordinate_that_rows_without_ends_have_is_a_ray():
    C = [[1.0, 0.5], [0.5, 0.0]]
    assert is_ray(EYE, [0.5, -INF], [1.0, INF], C, [0.0, 1.0], psd=True)
    assert not is_ray(EYE, [0.5, -INF], [1.0, 5.0], C, [0.0, 1.0], psd=True)
    assert not is_ray(EYE, [0.5, 0.0], [1.0, INF], C, [0.0, 1.0], psd=True)


def test_a_reading_of_0_to_rounding_is_not_known_to_be_above_0():
    """Of rows alike but for their norms, which cannot be held at 0 all at once."""
    V, M = [[1.0, -1.0], [3.0, -3.0]], np.ones((2, 2))
    assert not is_ray(V, [0.0, 0.0], [INF, INF], -EYE, M)
    assert is_ray(V, [0.0, 0.0], [INF, INF], -EYE, M + np.diag([1e-3, 0.0]))


def test_a_coordinate_of_a_multiple_of_I_is_none():
    assert not is_ray([[1.0, 0.0]], [0.0], [1.0], 1.0, [0.0, 1.0], psd=True)


def test_the_smallest_singular_value_of_rows_is_proved(rng, complex_):
    V = gaussian_rows(rng, 3, 5, complex_)
    true = float(np.linalg.svd(V)[1][-1])
    assert is_between(rays._smallest_singular_value(V), 0.7 * true, true)
    assert rays._smallest_singular_value(V[[0, 0]]) == 0.0
    assert rays._smallest_singular_value(V[:, :2]) == 0.0
    close = np.array([[1.0, 0.0], [1.0, 1e-7]])  # of rounding of the square alone
    assert rays._smallest_singular_value(close) == 0.0


# --- what is looked at -----------------------------------------------------------------------


def test_parts_of_C_that_no_row_sees_are_proposed(rng):
    data, question = asked([[1.0, 0.0, 0.0]], [0.0], [1.0], -np.ones((3, 3)))
    (found, *_) = extremes._unseen_directions(data, question, question.C)
    expected = np.ones((3, 3))
    expected[0, 0] = 0.0
    np.testing.assert_allclose(found, expected)
    # A C that is seen in all its parts has none.
    data, question = asked(EYE, [0.0] * 2, [1.0] * 2, np.diag([1.0, -1.0]))
    assert list(extremes._unseen_directions(data, question, question.C)) == []
    # Where nothing is asked, anything goes.
    data, question = asked(EYE, [-INF] * 2, [INF] * 2, np.diag([1.0, -1.0]))
    (found,) = extremes._unseen_directions(data, question, question.C)
    assert np.array_equal(found, -question.C)


def test_a_part_of_C_orthogonal_to_the_rows_is_proposed(rng, complex_):
    V = gaussian_rows(rng, 4, 3, complex_)
    C = hermitian(rng, 3, complex_)
    free = [i in (0, 2) for i in range(4)]
    lo, hi = np.where(free, -INF, 0.0), np.where(free, INF, 1.0)
    data, question = asked(V, lo, hi, C)
    found = list(extremes._unseen_directions(data, question, C))
    assert found
    for M in found:
        reads = np.einsum("ij,jk,ik->i", V.conj(), M, V).real
        np.testing.assert_allclose(reads[[1, 3]], 0.0, atol=1e-12)
        assert float(np.vdot(C, M).real) == pytest.approx(-(float(np.linalg.norm(M)) ** 2))
        assert is_ray(V, lo, hi, C, M)


def test_vectors_that_no_row_sees_are_proposed_where_C_falls(rng):
    V = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])
    C = -np.diag([1.0, 2.0, 3.0])
    data, question = asked(V, [0.0] * 2, [1.0] * 2, C, True)
    (found,) = extremes._unseen_vectors(data, question, C)
    np.testing.assert_allclose(np.abs(found), [0.0, 0.8, 0.6], atol=1e-12)
    assert list(extremes._unseen_vectors(data, question, -C)) == []
    # Nothing bounded above: the least eigenvector of C itself.
    data, question = asked(V, [0.0] * 2, [INF] * 2, C, True)
    (found,) = extremes._unseen_vectors(data, question, C)
    np.testing.assert_allclose(np.abs(found), [0.0, 0.0, 1.0], atol=1e-12)
    # A coordinate that no row has, where C is 0 on its diagonal and not elsewhere.
    C = np.zeros((3, 3))
    C[0, 2] = C[2, 0] = 1.0
    data, question = asked([[1.0, 0.0, 0.0]], [0.0], [1.0], C, True)
    found = list(extremes._unseen_vectors(data, question, C))
    assert [each.tolist() for each in found] == [[0.0, 0.0, 1.0]]
    data, question = asked([[1.0, 0.0, 0.0]], [-INF], [INF], C, True)
    found = [np.abs(each).round(9).tolist() for each in extremes._unseen_vectors(data, question, C)]
    assert [1.0, 0.0, 0.0] in found and [0.0, 0.0, 1.0] in found and [0.0, 1.0, 0.0] not in found


def test_near_a_large_matrix_directions_are_proposed_that_its_rows_do_not_see(rng):
    V = np.array([[1.0, 0.0], [0.0, 1.0]])
    data, question = asked(V, [0.0, 0.0], [1.0, INF], -EYE)
    A = np.array([[1e-4, 0.0], [0.0, 1.0]]) * 1e8
    found = list(extremes._led_away(data, question, A))
    assert len(found) == 4
    for M in found:
        np.testing.assert_allclose(M, np.diag([0.0, 1.0]), atol=1e-12)
    level = np.array([[1.0, 0.0], [0.0, 1e-4]]) * 1e8
    data, question = asked(V, [0.0, 0.0], [INF, INF], -EYE)
    last = [M[1, 1] for M in extremes._led_away(data, question, level)]
    np.testing.assert_allclose(last, [1e-4, 1e-4, 0.0, 0.0], atol=1e-12)
    assert list(extremes._led_away(data, question, np.zeros((2, 2)))) == []
    assert list(extremes._led_away(data, question, np.full((2, 2), INF))) == []
    data, question = asked(V, [-INF] * 2, [INF] * 2, -EYE)
    for M in extremes._led_away(data, question, A):
        assert np.array_equal(M, A / np.linalg.norm(A))
