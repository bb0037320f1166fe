"""Generators keep their promises; pictures are drawn."""

import matplotlib as mpl
import matplotlib.pyplot
import numpy as np
import pytest
from helpers import readings

import quadsense
from quadsense import datasets

mpl.use("Agg")

KINDS = [datasets.orthonormal, datasets.near_orthogonal, datasets.gaussian]


@pytest.mark.parametrize("make", KINDS)
def test_readings_are_those_of_a_star(make, complex_):
    p = make(n=9, m=6, seed=3, condition=50.0, complex=complex_)
    np.testing.assert_allclose(readings(p.U, p.A_star), p.b, atol=1e-13)
    values = np.linalg.eigvalsh(p.A_star)
    assert values[-1] / values[0] == pytest.approx(50.0)
    assert np.iscomplexobj(p.U) == complex_


@pytest.mark.parametrize("make", KINDS)
def test_seeds_reproduce_and_differ(make):
    one, two, three = (make(n=9, m=6, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.U, two.U)
    np.testing.assert_array_equal(one.b, two.b)
    assert not np.array_equal(one.U, three.U)


def test_noise_and_rank():
    p = datasets.gaussian(n=9, m=4000, seed=0, noise=0.1, rank=2)
    assert np.linalg.matrix_rank(p.A_star) == 2
    error = p.b - readings(p.U, p.A_star)
    assert error.std() == pytest.approx(0.1, rel=0.1)


def test_coherence_is_as_asked(complex_):
    p = datasets.near_orthogonal(n=9, m=6, rho=0.2, seed=0, complex=complex_)
    gram = np.abs(p.U.conj() @ p.U.T)
    np.testing.assert_allclose(gram, np.where(np.eye(6), 1.0, 0.2), atol=1e-13)
    p = datasets.orthonormal(n=9, m=6, seed=0, complex=complex_)
    np.testing.assert_allclose(p.U.conj() @ p.U.T, np.eye(6), atol=1e-13)


def drawn_history(schedule):
    """Labels and heights of the lines in the two axes of a history."""
    p = datasets.orthonormal(n=20, m=20, seed=0)
    result = quadsense.solve(p.U, p.b, delta=0.05, method="gd", schedule=schedule)
    figure = quadsense.plot.history(result)
    mpl.pyplot.close(figure)
    return [
        {line.get_label(): line.get_ydata() for line in axes.get_lines()} for axes in figure.axes
    ]


def test_history_is_drawn_with_the_bound_above_it():
    left, right = drawn_history("paper")
    assert np.all(right["log potential"] <= right["bound (Lemma 5.3 and 5.6)"] + 1e-9)
    assert np.all(left["worst residual / tolerance"] <= left["implied by the bound"] + 1e-9)


def test_no_bound_is_drawn_for_another_schedule():
    _, right = drawn_history("continuation")
    assert list(right) == ["log potential"]


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_bound_is_drawn_only_where_it_holds(scale):
    p = datasets.near_orthogonal(n=14, m=12, seed=0)
    figures = []
    for U, b in ((scale * p.U, scale**2 * p.b), (p.U[:, :6], p.b)):
        result = quadsense.solve(
            U, b, delta=0.3 * scale**2, method="gd", schedule="paper", max_iter=4000
        )
        figures.append(quadsense.plot.history(result))
    kept = {line.get_label(): line.get_ydata() for line in figures[0].axes[0].get_lines()}
    assert np.all(kept["worst residual / tolerance"] <= kept["implied by the bound"] + 1e-9)
    labels = [line.get_label() for line in figures[1].axes[0].get_lines()]
    assert "implied by the bound" not in labels
    mpl.pyplot.close("all")
