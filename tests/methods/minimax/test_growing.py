"""minimax by the rows that matter, against HiGHS, and how often it reads all rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import features, gaussian_rows, hermitian, readings
from kinds import strips
from scipy.optimize import linprog

import quadsense
from quadsense.files import Strip
from quadsense.measurements.arrays import Dense
from quadsense.measurements.blockwise import spread
from quadsense.measurements.parted import OnDisk
from quadsense.measurements.probes import Probes
from quadsense.measurements.sensing import Sensing
from quadsense.methods.minimax import growing, method
from quadsense.methods.minimax.growing import Worst
from quadsense.proofs import symmetric
from quadsense.query import plan as planning
from quadsense.query.plan import Shape, make_plan


@pytest.fixture
def small(monkeypatch):
    """A few rows in memory at a time, however few there are; how often all are read."""
    for name, rows in (("FIRST", 2), ("MORE", 1), ("MOST", 4), ("LEAST", 1)):
        monkeypatch.setattr(growing, name, rows)
    monkeypatch.setattr(method, "worth", lambda F: True)
    passes = Counter()
    pass_over = growing._pass_over

    def counted(*arguments):
        passes["all"] += 1
        return pass_over(*arguments)

    monkeypatch.setattr(growing, "_pass_over", counted)
    return passes


class Counting(Probes):
    """Rows that are slow to read: how many were."""

    at_hand = False

    def __init__(self, U):
        self.rows = Dense(U)
        self.m, self.n, self.is_complex = *U.shape, self.rows.is_complex
        self.read = Counter()

    @property
    def held_norms(self):
        return self.rows.held_norms

    @property
    def passes(self):
        return sum(self.read.values()) / self.m

    def times(self, X):
        self.read["times"] += self.m
        return self.rows.times(X)

    def combine(self, Y):
        self.read["combine"] += self.m
        return self.rows.combine(Y)

    def forward(self, A):
        self.read["forward"] += self.m
        return self.rows.forward(A)

    def adjoint(self, y):
        self.read["adjoint"] += self.m
        return self.rows.adjoint(y)

    def take(self, index):
        self.read["take"] += len(index)
        return self.rows.take(index)


def best_ratio(U, b, delta, sides=None):
    """By HiGHS on the design matrix written out."""
    G = features(U)
    scale = 1.0 / delta
    rows = np.block([[scale[:, None] * G, -np.ones((len(b), 1))],
                     [-scale[:, None] * G, -np.ones((len(b), 1))]])  # fmt: skip
    right = np.concatenate([scale * b, -scale * b])
    if sides is not None:
        rows, right = rows[sides.ravel()], right[sides.ravel()]
    cost = np.zeros(G.shape[1] + 1)
    cost[-1] = 1.0
    free = [(None, None)] * G.shape[1] + [(0, None)]
    found = linprog(cost, A_ub=rows, b_ub=right, bounds=free, method="highs")
    assert found.status == 0
    return found.fun


def noisy(rng, m, n, complex_=False, noise="normal"):
    U = gaussian_rows(rng, m, n, complex_)
    b = readings(U, hermitian(rng, n, complex_))
    return U, b + (rng.standard_normal(m) if noise == "normal" else rng.uniform(-1.0, 1.0, m))


def _cases(rng):
    U, b = noisy(rng, 400, 4)
    yield "real", U, b
    yield "complex", *noisy(rng, 400, 3, True)
    yield "uniform", *noisy(rng, 400, 4, noise="uniform")
    yield "float32", U.astype(np.float32), b
    yield "uneven norms", U * np.exp(2.0 * rng.standard_normal((400, 1))), b
    yield "duplicates", np.tile(U[:20], (20, 1)), np.tile(b[:20], 20)
    yield "in order", U[order := np.argsort(U[:, 0])], b[order]
    yield "few see all", np.where(np.arange(400)[:, None] < 390, U * [1, 1, 0, 0], U), b
    yield "zero row", np.where(np.arange(400)[:, None] == 7, 0.0, U), b


CASES = [name for name, *_ in _cases(np.random.default_rng(0))]


@pytest.mark.parametrize("name", CASES)
def test_the_bounds_enclose_the_best_error_and_are_proved(name, rng, small):
    U, b = next((U, b) for case, U, b in _cases(rng) if case == name)
    result = quadsense.solve(U, b, method="minimax")
    best = best_ratio(U.astype(np.result_type(U, np.float64)), b, np.ones(len(b)))
    certificate = result.certificate
    assert result.status == "optimal" and certificate.verify(U, b)
    assert certificate.lower_bound <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= certificate.upper_bound <= 1.0101 * certificate.lower_bound
    assert small["all"] >= 1


@pytest.mark.parametrize("kind", ["one", "each"])
@pytest.mark.parametrize("sides", ["two ends", "one end"])
def test_tolerances_are_met_or_refuted_as_they_can_be(kind, sides, rng, small):
    U, b = noisy(rng, 300, 3)
    width = np.ones(300) if kind == "one" else np.exp(rng.standard_normal(300))
    has = np.ones((2, 300), bool)
    if sides == "one end":
        open_ = rng.integers(0, 3, 300)
        has = np.stack([open_ != 0, open_ != 1])
    best = best_ratio(U, b, width, has)
    for share, status in ((1.02, "met"), (0.98, "infeasible")):
        lo, hi = b - share * best * width, b + share * best * width
        lo, hi = np.where(has[1], lo, -np.inf), np.where(has[0], hi, np.inf)
        result = quadsense.solve(U, bounds=(lo, hi), method="minimax")
        assert result.status == status
        assert result.certificate.verify(U)
    assert small["all"] > 1


def test_sums_and_constraints_join_like_rows(rng, small):
    U, b = noisy(rng, 300, 4)
    A = hermitian(rng, 4, False)
    b = readings(U, A) + 0.01 * rng.standard_normal(300)
    some = np.where(rng.random((300, 300)) < 0.01, rng.random((300, 300)), 0.0)
    W = sp.eye_array(300, format="csr") + sp.csr_array(some)
    for data in ({"b": b}, {"b": W @ b, "mix": sp.csr_array(W)}):
        for trace, status in ((np.trace(A), "met"), (np.trace(A) + 9.0, "infeasible")):
            result = quadsense.solve(U, **data, delta=0.1, trace=trace, method="minimax")
            assert result.status == status
    assert small["all"] > 1


def test_consistent_readings_are_fitted_to_rounding(rng, small):
    U = gaussian_rows(rng, 300, 4, False)
    result = quadsense.solve(U, readings(U, hermitian(rng, 4, False)), method="minimax")
    assert result.status == "optimal" and result.max_residual < 1e-11


def test_a_great_many_rows_next_to_few_unknowns_are_no_obstacle(rng):
    U, b = noisy(rng, 30_000, 3)
    result = quadsense.solve(U, b, method="minimax")
    assert result.status == "optimal" and result.certificate.verify(U, b)


# --- what is read, and what is held --------------------------------------------------------------


@pytest.mark.parametrize("noise", ["normal", "uniform"])
def test_all_rows_are_read_a_few_times(noise, rng):
    rows = Counting(noisy(rng, 20_000, 12)[0])
    b = readings(rows.rows.U, np.eye(12))
    b += rng.standard_normal(rows.m) if noise == "normal" else rng.uniform(-1, 1, rows.m)
    result = quadsense.solve(rows, b, method="minimax")
    assert result.status == "optimal" and result.plan["coordinates"] == "matrix"
    assert rows.read.keys() == {"forward", "take"}  # no product but F(A), no sum over all rows
    assert rows.passes <= 10


@pytest.mark.slow
def test_rows_in_files_are_read_at_most_twenty_times_with_the_proof(rng, tmp_path, monkeypatch):
    U, b = noisy(rng, 20_000, 12)
    np.save(tmp_path / "U.npy", U)
    read, once = Counter(), Strip.read

    def counted(self, out=None):
        read["rows"] += len(self)
        return once(self, out)

    monkeypatch.setattr(Strip, "read", counted)
    rows = OnDisk(strips(tmp_path / "U.npy", 1000))
    result = quadsense.solve(rows, b, method="minimax")
    assert result.status == "optimal" and read["rows"] <= 20 * 20_000
    same = quadsense.solve(Counting(U), b, method="minimax")
    assert result.max_residual == pytest.approx(same.max_residual, rel=1e-9)
    before = read["rows"]
    assert result.certificate.verify(rows, b)
    assert read["rows"] - before <= 4 * 20_000


def test_normal_matrices_of_rows_in_files_are_those_in_memory(rng, tmp_path):
    U = gaussian_rows(rng, 3000, 5, False)
    np.save(tmp_path / "U.npy", U)
    weights = rng.random(3000)
    expected = Sensing(Dense(U)).normal(weights)
    for rows in (70, 700, 1024, 5000):
        found = Sensing(OnDisk(strips(tmp_path / "U.npy", rows))).normal(weights)
        np.testing.assert_allclose(np.triu(found), np.triu(expected), rtol=1e-12, atol=1e-9)


def test_the_plan_refuses_what_cannot_fit(monkeypatch):
    shape = Shape(m=10**7, n=120, at_hand=False, target=False, prefer="minimax")
    monkeypatch.setattr(planning, "available_memory", lambda: 2**40)
    needed = make_plan(shape, "minimax").memory
    unknowns = 120 * 121 // 2
    assert 8 * unknowns**2 + 8 * 12 * 10**7 < needed < 2**33 < shape.row_bytes
    monkeypatch.setattr(planning, "available_memory", lambda: 8 * unknowns**2)
    with pytest.raises(MemoryError, match=r"minimax would take .* GB in addition to U"):
        planning.refuse_what_cannot_fit(shape, make_plan(shape, "minimax"))


# --- the rows that are taken, and what they prove ----------------------------------------------


def test_the_worst_are_taken_whatever_the_blocks(rng):
    missed, rows = rng.random(1000), rng.standard_normal((1000, 3))
    known = rng.random(1000) < 0.1
    found = []
    for size in (1000, 77, 1):
        worst = Worst(40, 0.5, known, 3)
        for first in range(0, 1000, size):
            part = slice(first, min(first + size, 1000))
            worst.see(part, missed[part], rows[part].__getitem__)
        found.append(worst.index)
        assert np.array_equal(worst.rows, rows[worst.index])
    asked = np.flatnonzero((missed > 0.5) & ~known)
    top = asked[np.argsort(-missed[asked])[:20]]
    assert set(top) < set(found[0]) <= set(asked) and 30 < found[0].size <= 40
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    other = Worst(40, 0.5, known, 4)
    other.see(slice(0, 1000), missed, None)
    assert other.rows is None and not np.array_equal(other.index, found[0])


@pytest.mark.parametrize("complex_", [False, True])
def test_what_some_rows_see_bounds_what_all_see(complex_, rng, monkeypatch):
    monkeypatch.setattr(symmetric, "LARGE_WORK", 0.0)
    U = gaussian_rows(rng, 2000, 3, complex_)
    for see_all in (True, False):
        if not see_all:  # those that see the last coordinate lie between the spans
            spans = spread(len(U), symmetric.ENOUGH * (9 if complex_ else 6))
            U[spans, 2] = 0.0
        smallest = np.linalg.svd(features(U), compute_uv=False)[-1]
        sigma = symmetric.smallest_singular_value(Sensing.of(U))
        assert 0.05 * smallest < sigma <= smallest
