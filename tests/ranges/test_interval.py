"""Certified ranges of linear functionals, against HiGHS (all symmetric A) and CVXPY (the cone)."""

from __future__ import annotations

import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize as so
import scipy.sparse as sp

import quadsense
from quadsense import Interval, Measurements, NothingFits, interval

INFEASIBLE = "infeasible"


@pytest.fixture(autouse=True)
def every_flag_raises():
    with np.errstate(all="raise"):
        yield


class Case:
    """A random problem: U, lo, hi, what else is asked of A, and C; and the matrices of all rows."""

    def __init__(self, seed: int, psd: bool) -> None:
        rng = np.random.default_rng(1000 * seed + psd)
        self.psd = psd
        self.n = n = int(rng.integers(1, 6))
        self.is_complex = bool(rng.integers(2)) and n > 1
        unknowns = n * n if self.is_complex else n * (n + 1) // 2
        few = rng.integers(4) == 0
        m = int(rng.integers(1, unknowns + 1) if few else rng.integers(unknowns + 1, 4 * unknowns))
        self.U = U = self._normal(rng, (m, n)) * 10.0 ** rng.uniform(-1, 1, (m, 1))
        if rng.integers(5) == 0 and n > 1:
            U[:, -1] = 0.0
        X = self._normal(rng, (n, n))
        A = X @ X.conj().T / n - (0.0 if psd else 1.0) * np.eye(n)
        v = np.einsum("ij,jk,ik->i", U.conj(), A, U).real
        d = 10.0 ** rng.uniform(-2, 0) * (np.abs(v) + 0.1)
        lo, hi = v - d * rng.uniform(0.1, 1, m), v + d * rng.uniform(0.1, 1, m)
        if rng.integers(3) == 0:
            lo[rng.random(m) < 0.3] = -np.inf
            hi[rng.random(m) < 0.3] = np.inf
        if rng.integers(6) == 0:  # contradictory, perhaps
            k = int(rng.integers(m))
            lo[k], hi[k] = np.array([lo[k], hi[k]]) + 10.0 * d[k] * rng.standard_normal()
        self.lo, self.hi = lo, hi
        self.more = {}
        if rng.integers(4) == 0:
            t = float(np.trace(A).real)
            self.more["trace"] = t if rng.integers(2) else (t - 0.1, t + 0.2)
        if rng.integers(4) == 0:
            Y = self._normal(rng, (n, n))
            Y = Y + Y.conj().T
            t = float(np.vdot(Y, A).real)
            self.more["constraints"] = [(Y, -np.inf if rng.integers(2) else t - 0.3, t + 0.1)]
        M = self._normal(rng, (n, n))
        choices = ["trace", (0, n - 1), self._normal(rng, n), U[-1], M + M.conj().T]
        self.C = choices[int(rng.integers(5))]

    def _normal(self, rng, shape):
        X = rng.standard_normal(shape)
        return X + 1j * rng.standard_normal(shape) if self.is_complex else X

    @property
    def options(self):
        return {"bounds": (self.lo, self.hi), **self.more}

    def found(self):
        return interval(self.U, C=self.C, psd=self.psd, **self.options)

    @property
    def matrix(self):
        """C, as a matrix."""
        C, n = self.C, self.n
        if isinstance(C, str):
            return np.eye(n)
        if isinstance(C, tuple):
            E = np.zeros((n, n))
            E[C] += 0.5
            E[C[::-1]] += 0.5
            return E
        return np.outer(C, C.conj()) if C.ndim == 1 else C

    def rows(self):
        """Matrices and ends of everything that A must meet, scaled alike."""
        all_ = [(np.outer(u, u.conj()), *ends) for u, *ends in zip(self.U, self.lo, self.hi)]  # noqa: B905
        if "trace" in self.more:
            t = self.more["trace"]
            all_.append((np.eye(self.n), *((t, t) if np.isscalar(t) else t)))
        all_ += self.more.get("constraints", [])
        sizes = [np.abs(M).max() for M, _, _ in all_]
        return [(M / s, a / s, b / s) for (M, a, b), s in zip(all_, sizes, strict=True)]

    def truth(self):
        """Both ends, or that nothing fits; None where the solver does not know."""
        return self._conic_truth() if self.psd else self._linear_truth()

    def _linear_truth(self):
        n = self.n
        basis = []
        for i in range(n):
            for j in range(i, n):
                E = np.zeros((n, n), complex)
                E[i, j] = E[j, i] = 1.0
                basis.append(E)
                if self.is_complex and i < j:
                    E = np.zeros((n, n), complex)
                    E[i, j], E[j, i] = 1j, -1j
                    basis.append(E)
        rows = self.rows()
        G = np.array([[np.vdot(M, E).real for E in basis] for M, _, _ in rows])
        c = np.array([np.vdot(self.matrix, E).real for E in basis])
        within = so.LinearConstraint(G, [a for _, a, _ in rows], [b for _, _, b in rows])
        free, ends = so.Bounds(-np.inf, np.inf), []
        with np.errstate(all="ignore"):
            if so.milp(0.0 * c, constraints=within, bounds=free).status != 0:
                return INFEASIBLE
            for sign in (1.0, -1.0):
                found = so.milp(sign * c, constraints=within, bounds=free)
                ends.append(sign * found.fun if found.status == 0 else -sign * np.inf)
        return ends

    def _conic_truth(self):
        n = self.n
        kind = {"hermitian": True} if self.is_complex else {"symmetric": True}
        A = cp.Variable((n, n), **kind)

        def inner(M):
            return cp.real(cp.trace(M @ A)) if self.is_complex else cp.trace(M.real @ A)

        within = [A >> 0] if n > 1 else [A[0, 0] >= 0]
        for M, a, b in self.rows():
            if a == b:
                within.append(inner(M) == a)
                continue
            within += [inner(M) >= a] * bool(np.isfinite(a)) + [inner(M) <= b] * bool(
                np.isfinite(b)
            )
        ends = []
        for sign in (1.0, -1.0):
            problem = cp.Problem(cp.Minimize(sign * inner(self.matrix)), within)
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    problem.solve(solver=cp.CLARABEL)
                except cp.SolverError:
                    return None
            if problem.status.startswith(INFEASIBLE):
                return INFEASIBLE
            if problem.status == "optimal":
                # It calls 1e8 an optimum where there is none.
                ends.append(sign * problem.value if abs(problem.value) < 1e6 else None)
            else:
                ends.append(-sign * np.inf if problem.status == "unbounded" else None)
        return None if None in ends else ends


def compare(case, counts):
    """A range against the truth; `counts` says what was seen."""
    truth = case.truth()
    if truth is None:
        return
    if truth == INFEASIBLE:
        counts["infeasible"] += 1
        with pytest.raises(NothingFits) as caught:
            case.found()
        assert caught.value.dual is not None
        return
    found = case.found()
    assert found.verify(case.U, **case.options)
    width = truth[1] - truth[0]
    rounding = 1e-6 * (1.0 + np.abs(truth)) if np.isfinite(width) else np.array([1e-6, 1e-6])
    for k, (end, condition, ray) in enumerate(
        [
            (found.lower, found.lower_condition, found.lower_ray),
            (found.upper, found.upper_condition, found.upper_ray),
        ]
    ):
        outward = (truth[k] - end) * (1.0, -1.0)[k] if np.isfinite(truth[k]) else None
        if outward is None:
            counts["infinite"] += 1
            counts["unproved"] += ray is None
            assert condition or np.isinf(end)
        else:
            counts["finite"] += 1
            size = width if np.isfinite(width) else 1.0 + abs(truth[k])
            assert ray is None
            assert outward >= -rounding[k]
            assert outward <= 0.01 * size + rounding[k]
    counts["problems"] += 1


@pytest.mark.slow
def test_ranges_over_symmetric_matrices_are_those_of_linear_programming():
    counts = dict.fromkeys(("problems", "finite", "infinite", "unproved", "infeasible"), 0)
    for seed in range(150):
        compare(Case(seed, psd=False), counts)
    assert counts["problems"] > 120
    assert counts["infeasible"] > 5
    assert counts["infinite"] > 20
    assert counts["unproved"] <= 0.1 * counts["infinite"]


@pytest.mark.slow
def test_ranges_over_the_cone_are_those_of_semidefinite_programming():
    counts = dict.fromkeys(("problems", "finite", "infinite", "unproved", "infeasible"), 0)
    for seed in range(80):
        compare(Case(seed, psd=True), counts)
    assert counts["problems"] > 40
    assert counts["finite"] > 80
    assert counts["unproved"] <= 0.5 * counts["infinite"]


@pytest.mark.parametrize("psd", [False, True])
def test_changed_ranges_are_not_verified(psd):
    rng = np.random.default_rng(5)
    U = rng.standard_normal((40, 4))
    b = np.sum(U**2, axis=1)
    found = interval(U, b, (0, 1), delta=0.1, psd=psd)
    assert found.verify(U, b, delta=0.1)
    assert found.verify(Measurements(U, b, delta=0.1))
    width = found.width
    for changes in (
        {"lower": found.lower + 0.02 * width},
        {"upper": found.upper - 0.02 * width},
        {"lower_found": found.lower_found + 0.02 * width},
        {"upper_found": found.upper + width},
        {"lower_dual": -found.lower_dual},
        {"upper_dual": found.lower_dual},
        {"lower_dual": np.roll(found.lower_dual, 1)},
        {"lower_dual": None},
        {"lower_dual": np.full(40, np.nan)},
        {"upper_dual": found.upper_dual[1:]},
        {"lower_fit": found.lower_fit + 0.5 * np.eye(4)},
        {"upper_fit": None},
        {"lower": -np.inf, "lower_ray": np.eye(4)},
        {"upper": np.inf, "upper_ray": np.ones(4)},
        {"lower_condition": "among matrices of Frobenius norm up to 3"},
        {"C": found.C + np.eye(4)},
    ):
        assert not replace(found, **changes).verify(U, b, delta=0.1), changes
    assert not found.verify(U, b + 0.1, delta=0.1)
    assert not found.verify(U, b, delta=0.2)


def test_an_unseen_direction_has_no_ends_and_a_ray_proves_it():
    U, b = np.eye(3), np.ones(3)
    found = interval(U, b, [(0, 1), (0, 0), "trace"], delta=0.1)
    assert tuple(found[0]) == (-np.inf, np.inf)
    assert found[0].lower_ray is not None
    assert found[0].upper_ray is not None
    assert found[0].verify(U, b, delta=0.1)
    assert tuple(found[1]) == pytest.approx((0.9, 1.1), abs=1e-3)
    assert tuple(found[2]) == pytest.approx((2.7, 3.3), abs=5e-3)
    inside = interval(U, b, (0, 1), delta=0.1, psd=True)  # |A01| <= sqrt(A00 A11)
    assert tuple(inside) == pytest.approx((-1.1, 1.1), abs=0.02)
    assert inside.lower_condition == inside.upper_condition == ""


def test_the_cone_alone_bounds_from_below():
    found = interval(np.eye(3)[:1], [1.0], "trace", delta=0.1, psd=True)
    assert found.lower == pytest.approx(0.9, abs=0.01)
    assert found.upper == np.inf
    assert found.upper_ray is not None
    alone = interval(np.zeros((1, 2)), [0.0], (0, 0), delta=1.0, psd=True)
    assert alone.upper == np.inf
    assert alone.lower <= 0.0 <= alone.lower_found


def test_what_C_may_be():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((30, 3)) + 1j * rng.standard_normal((30, 3))
    b = np.sum(np.abs(U) ** 2, axis=1)
    data = Measurements(U, b, delta=0.2)
    real = np.zeros((3, 3))
    real[0, 1] = real[1, 0] = 0.5
    same = interval(data, C=[(0, 1), real, (1, 0), (0, -2)])
    assert all(tuple(each) == pytest.approx(tuple(same[0]), rel=1e-9) for each in same)
    v = U[0] / np.linalg.norm(U[0])
    one, outer = interval(data, C=[v, np.outer(v, v.conj())])
    assert tuple(one) == pytest.approx(tuple(outer), rel=1e-6)
    assert 1.0 in one
    assert repr(one).startswith("<Interval [")
    for bad, words in (
        ("norm", '"trace"'),
        ((0, 3), "below n = 3"),
        ((0, 1, 2), "pair"),
        (np.ones((2, 2)), "shape"),
        (np.triu(np.ones((3, 3))), "symmetric"),
        (np.full((3, 3), np.nan), "finite"),
        ({}, "numbers"),
        (1e200 * np.eye(3), "rescale"),
    ):
        with pytest.raises(ValueError, match=words):
            interval(data, C=bad)
    with pytest.raises(ValueError, match="tolerance"):
        interval(U, b, "trace")


def test_where_nothing_fits_the_proof_is_raised():
    U = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for psd in (False, True):
        with pytest.raises(NothingFits) as caught:
            interval(U, [1.0, 2.0, 1.0], "trace", delta=0.1, psd=psd)
        assert isinstance(caught.value, ValueError)
        assert caught.value.dual.shape == (3,)
    with pytest.raises(NothingFits):
        interval(np.zeros((1, 2)), [1.0], "trace", delta=0.1)
    with pytest.raises(NothingFits):
        interval(U, [1.0, 1.0, -1.0], "trace", delta=0.1, psd=True)


def test_a_rank_is_relaxed():
    U = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    b = [1.0, 1.0, 4.0]
    found = interval(U, b, (0, 1), delta=0.1, rank=1)
    assert found.relaxed
    assert found.psd
    assert "relaxed" in repr(found)
    assert not interval(U, b, (0, 1), delta=0.1, rank=(1, 1)).psd


def test_two_entries_of_a_small_matrix_are_known_as_well_as_linear_programs_know_them():
    """P, 6 by 6, from 200 readings with interval errors."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((200, 6))
    X = rng.standard_normal((6, 6))
    P = X @ X.T / 6
    v = np.einsum("ij,jk,ik->i", U, P, U)
    d = 0.05 * v + 0.1
    lo, hi = v - d * rng.random(200), v + d * rng.random(200)
    for C, value in (((0, 0), P[0, 0]), ("trace", np.trace(P))):
        case = Case(0, psd=False)
        case.U, case.lo, case.hi, case.n, case.is_complex = U, lo, hi, 6, False
        case.more, case.C = {}, C
        true, found = case.truth(), case.found()
        width = true[1] - true[0]
        assert value in found
        assert -1e-9 <= true[0] - found.lower <= 0.01 * width
        assert -1e-9 <= found.upper - true[1] <= 0.01 * width
        assert isinstance(found, Interval)
        assert found.lower_condition == found.upper_condition == ""


def test_rows_set_aside_are_left_out():
    U = np.array([[1.0], [1.0]])
    result = quadsense.solve(U, [1.0, 5.0], delta=0.1, allow_violations=1)
    assert result.success
    kept = 1 - int(result.set_aside[0])
    found = result.interval("trace")
    assert [1.0, 5.0][kept] in found
    assert found.width == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize("psd", [False, True])
def test_ranges_do_not_depend_on_how_rows_are_held_or_scaled(psd):
    rng = np.random.default_rng(3)
    U = rng.standard_normal((40, 4))
    b, s = np.sum(U**2, axis=1), 10.0 ** rng.uniform(-14, 14, 40)
    first = interval(U, b, (0, 1), delta=0.1, psd=psd)
    room = 0.01 * first.width
    for other in (
        interval(sp.csr_array(U), b, (0, 1), delta=0.1, psd=psd),
        interval(U * s[:, None], b * s**2, (0, 1), delta=0.1 * s**2, psd=psd),
        interval(U, 2.0 * b, (0, 1), delta=0.2, mix=2.0 * np.eye(40), psd=psd),
    ):
        assert tuple(other) == pytest.approx(tuple(first), abs=room)
    tiny = interval(U, 1e-100 * b, (0, 1), delta=1e-101, psd=psd)
    assert tiny.width == pytest.approx(1e-100 * first.width, rel=0.02)
    exact = interval(U, b, ["trace", (0, 1)], delta=0.0, psd=psd)
    assert tuple(exact[0]) == pytest.approx((4.0, 4.0), abs=1e-8)
    assert 0.0 in exact[1]
    assert exact[1].width < 1e-8
    assert interval(U, b, [], delta=0.1, psd=psd) == []


@pytest.mark.parametrize("rank", [1, "auto", (1, 1)])
def test_ranges_of_a_result_say_that_its_rank_is_not_looked_at(rank, tmp_path):
    p = quadsense.datasets.gaussian(4, 8, rank=1)
    result = quadsense.solve(p.U, p.b, delta=0.1, rank=rank)
    assert result.interval("trace").relaxed
    result.save(tmp_path / "result.npz")
    again = quadsense.load_result(tmp_path / "result.npz")
    data = quadsense.Measurements(p.U, p.b, delta=0.1)
    assert again.interval("trace", data=data).relaxed
    assert not quadsense.solve(p.U, p.b, delta=0.1, psd=True).interval("trace").relaxed


def test_the_range_of_a_state_is_within_what_cone_and_trace_imply():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((60, 4)) + 1j * rng.standard_normal((60, 4))
    psi = np.ones(4) / 2.0
    b = np.abs(U.conj() @ psi) ** 2
    given = {"delta": 0.3, "trace": 1.0}
    fidelity, single, other, doubled = quadsense.interval(
        U, b, [np.outer(psi, psi), psi, (0, 1), 2.0 * np.outer(psi, psi)], psd=True, **given
    )
    for found in (fidelity, single):
        assert 0.0 <= found.lower <= 1.0 and 1.0 <= found.upper <= 1.0 + 1e-12
        assert found.verify(U, b, **given)
    assert other.lower >= -0.5 - 1e-12 and other.upper <= 0.5 + 1e-12
    assert doubled.upper <= 2.0 + 1e-12
    assert doubled.verify(U, b, **given)
    tampered = replace(fidelity, upper=0.999)
    assert not tampered.verify(U, b, **given)
    without = replace(fidelity, psd=False)
    assert not without.verify(U, b, **given)
