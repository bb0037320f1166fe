"""Every row term: its CVXPY expression and its proximal step are those of its value."""

import ast
from pathlib import Path

import numpy as np
import pytest

import quadsense
from quadsense.core.question import Question
from quadsense.core.smooth_terms import ROW_TERMS
from quadsense.proofs.costs import conjugate_above, permitted

M = 7
"""Rows of a question: the first is an equality, the second has one end, the third no weight."""


def question(name, seed):
    """Return a question of that term, and readings that it allows."""
    rng = np.random.default_rng(seed)
    v = rng.uniform(0.5, 2.0, M)
    lo, hi = v - rng.uniform(0.1, 0.5, M), v + rng.uniform(0.1, 0.5, M)
    weights, hard, slope = rng.uniform(0.5, 2.0, M), np.zeros(M, bool), 0.0
    reading = v + rng.uniform(-0.3, 0.3, M)
    lo[0] = hi[0] = v[0]
    hard[0] = True
    weights[2] = 0.0
    if name == "likelihood":
        lo[1:], hi[1:] = -rng.uniform(0.0, 0.3, M - 1), np.inf
        slope = np.where(hard, 0.0, rng.uniform(0.5, 2.0, M))
        reading = np.where(weights > 0.0, reading, lo)
    else:
        hi[1] = np.inf
        reading = np.where(weights > 0.0, reading, 0.0)
    q = Question(name, lo, hi, weights, reading, hard, slope=slope)
    return q, v


def admitted(q, v, rng):
    """Return readings near v that the term allows."""
    spread = rng.uniform(0.0, 1.0)
    ends = np.maximum(q.lo, v - 3.0), np.minimum(q.hi, v + 3.0)
    inside = v + spread * (rng.uniform(*ends) - v)
    return np.where(q.soft, v + 2.0 * spread * rng.standard_normal(M), inside)


NAMES = tuple(ROW_TERMS)
SPLIT = tuple(name for name, term in ROW_TERMS.items() if term.splits and not term.squares)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_value_is_what_cvxpy_says_and_is_enclosed(name, seed):
    cp = pytest.importorskip("cvxpy")
    q, v = question(name, seed)
    rng = np.random.default_rng(seed + 100)
    for _ in range(5):
        u = admitted(q, v, rng)
        value = q.row_cost(u)
        cost, constraints = q.term.expression(q, cp.Constant(u), cp)
        wanted = cp.Problem(cp.Minimize(cost), constraints).solve(solver="CLARABEL")
        assert value == pytest.approx(wanted, rel=1e-6, abs=1e-6)
        error = 1e-9 * np.abs(u)
        enclosed = q.term.enclosed(q, u, error)
        assert abs(enclosed.value - value) <= enclosed.error
        moved = np.clip(u + error * rng.uniform(-1.0, 1.0, M), q.lo, q.hi)
        moved = np.where(q.soft, u + error, moved)
        assert abs(enclosed.value - q.row_cost(moved)) <= enclosed.error
        assert enclosed.error <= 1e-6 * (1.0 + abs(value))


def slopes(q, u):
    """Return derivatives of the terms by differences; of ends alone there is none."""
    step = 1e-6
    found = np.zeros(M)
    for i in np.flatnonzero(~q.hard):
        e = step * (np.arange(M) == i)
        found[i] = (q.row_cost(u + e) - q.row_cost(u - e)) / (2.0 * step)
    return found


@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("seed", range(4))
def test_the_split_term_is_the_same_function_in_other_units(name, seed):
    q, v = question(name, seed)
    rng = np.random.default_rng(seed + 400)
    scale, unit = 4.0, 16.0
    term = q.term.split(q, scale, unit)
    u = np.where(q.hard, 0.0, admitted(q, v, rng))
    whole = np.where(q.hard, q.lo, u)
    assert unit * term.value(u / scale) == pytest.approx(q.row_cost(whole), rel=1e-12)
    y = permitted(q, np.where(q.hard, 0.0, slopes(q, whole)))
    wanted = conjugate_above(q, y)
    assert unit * term.conjugate(y * scale / unit) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(term.slope(u / scale)[~q.hard], y[~q.hard] * scale / unit, 1e-5)
    rho = np.where(q.hard | (q.weights == 0.0), 0.0, rng.uniform(0.5, 2.0, M))
    x = u / scale
    best = term.proximal(x, rho, 0.0)

    def cost(point):
        return term.value(point) + float(rho @ (point - x) ** 2)

    free = rho > 0.0
    for step in (1e-3, -1e-3, 1e-2, -1e-2):
        for i in np.flatnonzero(free):
            assert cost(best) <= cost(best + step * (np.arange(M) == i)) + 1e-12


@pytest.mark.slow
def test_no_module_knows_a_row_term_by_its_name():
    root = Path(quadsense.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            asked = any(isinstance(s, ast.Attribute) and s.attr in ("rows", "term") for s in sides)
            names = {c.value for s in sides for c in ast.walk(s) if isinstance(c, ast.Constant)}
            if asked and names & set(ROW_TERMS):
                found.append(f"{path.relative_to(root)}:{node.lineno}")
    assert not found
