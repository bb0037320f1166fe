"""The basis of the span of rows, in blocks: orthonormal to rounding, and of the rank of an SVD."""

import numpy as np
import pytest
from helpers import cover, gaussian_rows

import quadsense
from quadsense.core import products
from quadsense.measurements.sensing import Sensing
from quadsense.proofs import positive
from quadsense.system.watch import Stop, Watch

EPS = float(np.finfo(float).eps)


@pytest.fixture
def in_blocks(monkeypatch):
    """However small the problem is: blocks of 16 rows."""
    monkeypatch.setattr(products, "BLOCK_FLOPS", 0.0)


def _unit(U):
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def _check(U, rank):
    Q = products.basis_of_span(U)
    assert Q.shape == (U.shape[1], rank)
    assert np.abs(Q.conj().T @ Q - np.eye(rank)).max() < 20 * EPS
    left = U.T - Q @ (Q.conj().T @ U.T)
    assert np.linalg.norm(left, axis=0).max() < 8 * (len(U) + np.sqrt(U.shape[1])) * EPS


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(("m", "n"), [(3, 5), (16, 17), (17, 400), (70, 71), (90, 300)])
def test_rows_in_general_position_span_as_many_dimensions(m, n, complex_):
    _check(_unit(gaussian_rows(np.random.default_rng(m), m, n, complex_)), m)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(
    ("apart", "order"), cover([0.0, 1e-11, 1e-9, 1e-7, 1e-4], ["paired", "after", "mixed"], each=1)
)
def test_rows_that_are_nearly_the_same_count_once_only_where_rounding_made_the_difference(
    apart, order, complex_
):
    """What is apart by more is kept and orthogonal, within a block as from one to the other."""
    rng = np.random.default_rng(3)
    U = gaussian_rows(rng, 40, 200, complex_)
    both = np.vstack([_unit(U), _unit(U + apart * gaussian_rows(rng, 40, 200, complex_))])
    index = np.arange(80).reshape(2, 40)
    index = {"paired": index.T.ravel(), "after": index.ravel(), "mixed": rng.permutation(80)}[order]
    _check(both[index], 40 if apart == 0.0 else 80)


@pytest.mark.usefixtures("in_blocks")
def test_combinations_and_zeros_add_nothing():
    rng = np.random.default_rng(0)
    U = gaussian_rows(rng, 30, 150, False)
    mixed = _unit(rng.standard_normal((40, 30)) @ U)
    _check(np.vstack([np.zeros((20, 150)), mixed, np.zeros((1, 150))]), 30)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("off", [0.0, 1.0])
def test_the_verdict_is_that_of_the_decomposition(off, monkeypatch):
    rng = np.random.default_rng(1)
    U = np.vstack([rng.standard_normal((20, 60))] * 2)
    x = rng.standard_normal((60, 2))
    b = np.sum((U @ x) ** 2, axis=1)
    b[20:] += off
    blocks = quadsense.solve(U, b, delta=0.1, psd=True)
    assert blocks.status == ("infeasible" if off else "met")
    assert blocks.verify(U, b)
    monkeypatch.undo()
    assert quadsense.solve(U, b, delta=0.1, psd=True).status is blocks.status


@pytest.mark.usefixtures("in_blocks")
def test_it_stops_between_blocks():
    looks = iter(range(10**6))
    watch = Watch(clock=lambda: float(next(looks)), time_limit=30.0)
    rows = _unit(gaussian_rows(np.random.default_rng(0), 320, 640, False))
    with watch.heeded(), pytest.raises(Stop):
        products.basis_of_span(rows)
    assert next(looks) < 40


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_the_bound_within_the_span_holds_in_blocks_and_is_near(twice, complex_, monkeypatch):
    """Against the eigenvalues of ``F*(y)`` itself, n by n, whose own rounding is far smaller."""
    monkeypatch.setattr(positive, "BLOCK_FLOPS", 0.0)
    rng = np.random.default_rng(7)
    for m in (5, 16, 50):
        U = _unit(gaussian_rows(rng, m, 250, complex_))
        U = np.vstack([U, U]) if twice else U
        y = rng.standard_normal(len(U))
        least = np.linalg.eigvalsh((U.T * y) @ U.conj())[0]
        found = positive.smallest_eigenvalue_bound(Sensing.of(U), y)
        assert least - 1e-9 < found < least + 1e-13
