"""Small sets of rows and constraints that contradict each other, against CVXPY."""

import numpy as np
import pytest

import quadsense
from quadsense.ranges.conflicts import conflict


def found(U, psd=True, **asked):
    """Return the conflict that is found from the proof of a solve."""
    result = quadsense.solve(U, psd=psd, **asked)
    assert result.status == "infeasible"
    data = result.certificate.data
    dual = result.certificate.dual
    return conflict(data, psd, dual), data


TRIANGLE = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [1.0, 0.0, -1.0]])


@pytest.mark.parametrize(
    ("rows", "readings", "named"),
    [
        ([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]], [3.0, 13.0], {40, 41}),
        (TRIANGLE, [1.0, 1.0, 9.0], {40, 41, 42}),  # sides 1, 1 and 3
    ],
)
def test_rows_in_a_line_or_a_plane_are_found_among_many(rows, readings, named):
    rng = np.random.default_rng(0)
    U = np.vstack([rng.standard_normal((40, 3)), rows])
    X = rng.standard_normal((3, 3))
    b = np.einsum("ij,jk,ik->i", U, X @ X.T, U)
    delta = np.append(np.full(40, 30.0), np.full(len(rows), 0.1))
    b[40:] = readings
    told, _ = found(U, b=b, delta=delta)
    assert set(told.members.tolist()) == named and told.irreducible


def test_the_trace_is_a_member():
    U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    told, data = found(U, b=[1.0, 1.0, 1.0, 1.0], delta=0.2, trace=1.0)
    assert set(told.members.tolist()) == {0, 1, 4} and told.irreducible
    assert data.measured == 4


def test_where_a_first_set_would_take_long_the_heaviest_rows_are_named(monkeypatch):
    monkeypatch.setattr("quadsense.ranges.conflicts.MOST_FIRST_WORK", 0.0)
    result = quadsense.solve(np.eye(3)[[0, 0, 1]], [1.0, 2.0, 3.0], delta=0.1)
    assert result.status == "infeasible" and result.conflict is None
    assert set(result.suspects.tolist()) == {0, 1}
    assert result.verify(np.eye(3)[[0, 0, 1]], [1.0, 2.0, 3.0], delta=0.1)
