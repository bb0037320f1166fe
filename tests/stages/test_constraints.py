"""Linear constraints as further readings: what they read, that nothing is lost, and verdicts."""

import dataclasses
from fractions import Fraction

import array_api_strict
import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from helpers import gaussian_rows, hermitian, sampled
from scipy.optimize import linprog

import quadsense
from quadsense import Measurements, SensedMatrix, Status, solve
from quadsense.core.products import features, pack
from quadsense.files.codec import decode, encode
from quadsense.measurements.constraints import Constraint
from quadsense.measurements.mixed import Mixed
from quadsense.proofs.rounding import enclosure


def readings(U, A):
    return np.einsum("ij,jk,ik->i", U.conj(), A, U).real


def inner(C, A):
    return float(np.vdot(C, A).real)


def some_constraints(rng, n, complex_):
    """Every form of C with an interval of its own, and the matrices that they stand for."""
    C = hermitian(rng, n, complex_)
    S = np.where(rng.random((n, n)) < 0.4, rng.standard_normal((n, n)), 0.0)
    S = S + S.T
    X, signs = gaussian_rows(rng, n, 3, complex_), np.array([1.0, -2.0, 0.5])
    v = gaussian_rows(rng, n, 1, complex_)
    given = [C, sp.coo_array(S), (X, signs), SensedMatrix.from_factor(v), np.eye(n, dtype=int)]
    meant = [C, S, (X * signs) @ X.conj().T, v @ v.conj().T, np.eye(n)]
    return given, meant


MIXES = {
    "none": lambda rng, m: None,
    "dense": lambda rng, m: rng.standard_normal((m - 2, m)),
    "sparse": lambda rng, m: sp.csr_array(rng.random((m + 1, m)) * (rng.random((m + 1, m)) < 0.3)),
}


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("complex_", [False, True])
def test_a_constraint_reads_the_inner_product(rng, complex_, conjugate, mix):
    n, m = 5, 9
    U, W = gaussian_rows(rng, m, n, complex_), MIXES[mix](rng, m)
    p = m if W is None else W.shape[0]
    given, meant = some_constraints(rng, n, complex_)
    plain = Measurements(U, np.zeros(p), delta=1.0, conjugate=conjugate, mix=W)
    data = plain.constrained(2.0, [(C, -1.0, 1.0 + k) for k, C in enumerate(given)])
    A, y = hermitian(rng, n, complex_), rng.standard_normal(p + 6)
    rows = U.conj() if conjugate else U
    users = readings(rows, A) if W is None else W @ readings(rows, A)
    truth = np.concatenate([users, [np.trace(A).real], [inner(C, A) for C in meant]])
    np.testing.assert_allclose(data.forward(A), truth, rtol=0, atol=1e-12 * np.abs(truth).max())
    back = plain.adjoint(y[:p]) + y[p] * np.eye(n)
    back = back + sum(weight * C for weight, C in zip(y[p + 1 :], meant, strict=True))
    np.testing.assert_allclose(data.adjoint(y), back, rtol=0, atol=1e-11)
    assert (data.m, data.measured, len(data.constraints)) == (p + 6, p, 6)
    np.testing.assert_array_equal(data.lo[p:], [2.0, *[-1.0] * 5])
    np.testing.assert_array_equal(data.hi[p:], [2.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert data.plain is plain and data.hard.tolist() == [False] * p + [True] * 6


@pytest.mark.parametrize("complex_", [False, True])
def test_no_digit_of_c_is_lost(rng, complex_):
    """The rows and their weights make up C exactly, in fractions, whatever its size."""
    n = 4
    C = hermitian(rng, n, complex_) * 10.0 ** rng.integers(-9, 9, (n, n))
    C = np.tril(C) + np.tril(C, -1).conj().T
    data = Measurements(np.eye(n) + 0j * complex_, np.ones(n), delta=1.0)
    rows = data.constrained(None, [(C, 0.0, 1.0)]).unit_rows
    kind, W = rows.kind, rows.given.toarray()[-1]
    found = {}
    for weight, x in zip(W, kind.block(0, kind.m), strict=True):
        parts = [(Fraction(float(v.real)), Fraction(float(v.imag))) for v in x]
        for i, (a, b) in enumerate(parts):
            for j, (c, d) in enumerate(parts):  # x_i conj(x_j)
                re, im = found.get((i, j), (0, 0))
                w = Fraction(float(weight))
                found[i, j] = (re + w * (a * c + b * d), im + w * (b * c - a * d))
    for (i, j), (re, im) in found.items():
        assert (re, im) == (Fraction(float(C[i, j].real)), Fraction(float(C[i, j].imag)))


def test_nothing_of_the_users_is_copied(rng):
    U = rng.standard_normal((30, 4))
    data = Measurements(U, np.ones(30), delta=1.0).constrained(1.0)
    assert data.unit_rows.raw.kind.parts[0].U is U
    assert data.unit_rows.head.kind.U is U
    assert data.constrained is not None and data.plain.constrained() is data.plain


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("complex_", [False, True])
def test_users_rows_cost_what_they_did_and_read_the_same(rng, complex_, sparse, scaled):
    """The quick paths, compared with those for sums of any kind."""
    n, m = (12, 30) if sparse else (4, 30)
    U = gaussian_rows(rng, m, n, complex_)
    if sparse:
        U = sp.csr_array(U * (np.arange(m)[:, None] % n == np.arange(n)))
    given, _ = some_constraints(rng, n, complex_)
    data = Measurements(U, np.ones(m), delta=1.0).constrained(1.0, [(C, -1, 1) for C in given])
    F = data.unit_rows.on_numpy()
    if scaled:
        F = F.weighed(rng.uniform(0.5, 2.0, F.m))
    assert F.head is not None and F.head.m == m and F.tail.m == 6
    slow = Mixed(F.raw, F.weights.toarray(), F.norms, F._sizes)
    assert slow.head is None
    w = rng.uniform(0.5, 2.0, F.m)
    np.testing.assert_allclose(F.features(), slow.features(), atol=1e-12)
    np.testing.assert_allclose(np.triu(F.normal(w)), np.triu(slow.normal(w)), atol=1e-11)
    np.testing.assert_allclose(np.triu(F.normal()), np.triu(slow.normal()), atol=1e-11)
    np.testing.assert_allclose(F.gram(), slow.gram(), atol=1e-12)
    for y in (rng.standard_normal(F.m), rng.standard_normal((F.m, 3))):
        np.testing.assert_allclose(F.gram_times(y), slow.gram() @ y, atol=1e-11)
    A = hermitian(rng, n, complex_)
    np.testing.assert_allclose(F.features() @ pack(A), F.forward(A), atol=1e-11)
    np.testing.assert_allclose(F.head.features(), F.features()[:m])
    few = F.only(np.array([0, m, m + 2, 3])).narrowed()
    assert few.raw.m < F.raw.m
    np.testing.assert_allclose(few.forward(A), F.forward(A)[[0, m, m + 2, 3]], atol=1e-12)


@pytest.mark.parametrize("complex_", [False, True])
def test_rounding_of_constraints_is_within_its_bound(rng, complex_):
    n = 6
    given, meant = some_constraints(rng, n, complex_)
    U = gaussian_rows(rng, 8, n, complex_)
    data = Measurements(U, np.ones(8), delta=1.0).constrained(1.0, [(C, -1, 1) for C in given])
    A = 1e3 * hermitian(rng, n, complex_)
    found = enclosure(SensedMatrix.from_dense(A), data.unit_rows, np.zeros(data.m))
    sizes = data.unit_rows.norms[8:] ** 2
    wide = A.astype(np.clongdouble)
    for k, C in enumerate([np.eye(n), *meant]):
        np.testing.assert_allclose(sizes[k], np.linalg.norm(C), rtol=1e-12)
        truth = np.sum(C.astype(np.clongdouble).conj() * wide).real / np.longdouble(sizes[k])
        assert abs(found.z[8 + k] - truth) <= found.error[8 + k] <= 1e-10 * np.linalg.norm(A)


def test_what_constraints_see_counts_as_seen(rng):
    n = 4
    U = rng.standard_normal((9, n))
    A = hermitian(rng, n, False)
    plain = Measurements(U, readings(U, A), delta=1e-6)
    assert plain.facts.rank == 9 and plain.facts.unknowns == 10
    data = plain.constrained(float(np.trace(A)))
    assert data.facts.rank == 10
    result = solve(data)
    assert result.status is Status.MET and result.unseen == 0
    assert np.abs(result.A - A).max() < 1e-3 < np.abs(solve(plain).A - A).max()
    twice = plain.constrained(None, [(np.outer(U[0], U[0]), -1e3, 1e3)])
    assert twice.facts.rank == 9


BAD = {
    "trace": ({"trace": "one"}, r"trace must be a number or a pair \(lo, hi\), got 'one'"),
    "trace nan": ({"trace": np.nan}, "trace must satisfy lo <= hi, but has lo = nan and hi = nan"),
    "trace infinite": ({"trace": np.inf}, "trace must satisfy lo <= hi"),
    "trace crossed": ({"trace": (2, 1)}, r"trace must satisfy lo <= hi, but has lo = 2\.0 and hi"),
    "trace of three": ({"trace": (1, 2, 3)}, r"trace must be a number or a pair \(lo, hi\)"),
    "trace free": ({"trace": (-np.inf, np.inf)}, "trace asks for nothing: both its ends are inf"),
    "a matrix alone": ({"constraints": np.eye(3)[None]}, r"constraints\[0\]: .*must be a number"),
    "no list": ({"constraints": 3}, r"constraints must be a sequence of \(C, lo, hi\)"),
    "two": ({"constraints": [(np.eye(3), 1)]}, r"constraints\[0\] must be \(C, lo, hi\)"),
    "end": ({"constraints": [(np.eye(3), "0", 1)]}, r"constraints\[0\]: lo must be a number, got"),
    "order": (
        {"constraints": [(np.eye(3), 0, 1), (np.eye(2), 0, 1)]},
        r"constraints\[1\]: C has shape \(2, 2\), but must have shape \(3, 3\)",
    ),
    "not symmetric": (
        {"constraints": [([[0, 1, 0], [1, 0, 5], [0, 2, 0]], 0, 1)]},
        r"constraints\[0\]: C must be symmetric, but C\[1, 2\] is 5 and C\[2, 1\] is 2",
    ),
    "not symmetric, sparse": (
        {"constraints": [(sp.csr_array([[0, 1.5, 0], [0, 0, 0], [0, 0, 9]]), 0, 1)]},
        r"C must be symmetric, but C\[0, 1\] is 1\.5 and C\[1, 0\] is 0",
    ),
    "nan": (
        {"constraints": [(np.full((3, 3), np.nan), 0, 1)]},
        r"constraints\[0\]: C contains NaN",
    ),
    "text": ({"constraints": [([["a"] * 3] * 3, 0, 1)]}, r"constraints\[0\]: C must hold numbers"),
    "ragged": ({"constraints": [([[1], [1, 2]], 0, 1)]}, "C is not a rectangular array"),
    "complex": (
        {"constraints": [(np.diag([1, 1], 1) * 1j - np.diag([1, 1], -1) * 1j, 0, 1)]},
        r"constraints\[0\]: C is complex, but U is real, and so is A: give its real part",
    ),
    "factor": (
        {"constraints": [((np.ones((2, 1)), [1]), 0, 1)]},
        r"X has shape \(2, 1\), but",
    ),
    "signs": ({"constraints": [((np.ones((3, 2)), [1]), 0, 1)]}, r"signs has shape \(1,\)"),
    "sign nan": ({"constraints": [((np.ones((3, 1)), [np.nan]), 0, 1)]}, "signs must be finite"),
    "triple": ({"constraints": [((1, 2, 3), 0, 1)]}, r"C must be a matrix or a pair \(X, signs\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_constraint_is_named(case):
    named, message = BAD[case]
    with pytest.raises(ValueError, match=message) as caught:
        Measurements(np.eye(3), np.ones(3), delta=1.0).constrained(**named)
    assert "\n" not in str(caught.value)


def test_a_real_constraint_of_complex_type_is_taken():
    data = Measurements(np.eye(2), np.ones(2), delta=1.0).constrained(
        None, [(np.eye(2, dtype=complex), 0, 1)]
    )
    assert data.unit_rows.dtype == np.float64
    with pytest.raises(ValueError, match="have their constraints"):
        data.constrained(1.0)


@pytest.mark.parametrize("method", ["gd", "sgd", "closed_form"])
def test_methods_that_cannot_name_those_that_can(method):
    data = Measurements(np.eye(3), np.ones(3), delta=1.0).constrained((0.0, 1.0))
    with pytest.raises(ValueError, match=f"{method!r} cannot take constraints; 'cg' and 'minimax'"):
        solve(data, method=method)


def test_nothing_is_asked_of_a_matrix_of_zeros():
    plain = Measurements(np.eye(2), np.ones(2), delta=0.1)
    free = plain.constrained(None, [(np.zeros((2, 2)), -1, 1)])
    assert solve(free).status is Status.MET
    for ends in ((1.0, 2.0), (1.0, 1.0), (1.0, np.inf)):
        never = plain.constrained(None, [(np.zeros((2, 2)), *ends)])
        result = solve(never)
        assert result.status is Status.INFEASIBLE and result.certificate.verify(never)


def test_a_constraint_is_written_down_and_read_back(rng):
    C = hermitian(rng, 3, True)
    data = Measurements(np.eye(3) + 0j, np.ones(3), delta=1.0).constrained(
        1.0, [(C, -np.inf, 1.0), ((C, np.ones(3)), 0.0, 0.0), (sp.csr_array(C), 0.0, 1.0)]
    )
    arrays, plain = encode(data.constraints)
    back = decode(arrays, plain, kinds=(Constraint,))
    for one, two in zip(data.constraints, back, strict=True):
        assert (one.name, one.lo, one.hi) == (two.name, two.lo, two.hi)
        assert abs(one.matrix - two.matrix).max() == 0.0
        assert (one.signs is None) == (two.signs is None)
    assert [each.name for each in back] == ["trace", *(f"constraints[{i}]" for i in range(3))]


def test_constraints_are_not_in_the_file_and_are_in_the_name(tmp_path, rng):
    U = rng.standard_normal((5, 2))
    data = Measurements(U, np.ones(5), delta=1.0).constrained(1.0, [(np.eye(2), 0, 2)])
    assert repr(data) == "Measurements(m=5, n=2, dense, real, 2 constraints)"
    data.save(tmp_path / "d.npz")
    again = Measurements.open(tmp_path / "d.npz")
    assert again.m == 5 and again.constraints == ()


def test_constraints_stay_when_tolerances_change(rng):
    U = rng.standard_normal((5, 2))
    data = Measurements(U, np.ones(5)).constrained(1.0, [(np.eye(2), -np.inf, 2)])
    assert data.plain.tolerance is None and np.isinf(data.hi[:5]).all()
    other = data.without_tolerance()
    assert other.constraints is data.constraints and other.plain is data.plain
    np.testing.assert_array_equal(other.lo[5:], data.lo[5:])
    np.testing.assert_array_equal(other.hi[:5], 2.0)
    aside = data.set_aside([5])
    assert np.isinf(aside.hi[5]) and aside.hi[6] == 2.0 and aside.constraints is data.constraints


@pytest.mark.parametrize("complex_", [False, True])
def test_arrays_of_other_namespaces_take_constraints(rng, complex_):
    n = 3
    U, A = gaussian_rows(rng, 6, n, complex_), np.eye(n) + 0.1
    given, meant = some_constraints(rng, n, complex_)
    values = [inner(C, A) for C in meant]
    bounds = [(C, v - 0.1, v + 0.1) for C, v in zip(given, values, strict=True)]
    foreign = Measurements(array_api_strict.asarray(U), readings(U, A), delta=0.1)
    data = foreign.constrained(float(np.trace(A)), bounds)
    result = solve(data)
    assert result.status is Status.MET and result.certificate.verify(data)
    assert abs(np.trace(np.asarray(result.A)).real - np.trace(A)) < 1e-12


def highs_margin(U, b, delta, equal, C, lo, hi):
    """The smallest t with ``|z| <= t delta`` for symmetric A, constraints held; inf for none."""
    G, c = features(U), pack(C)
    kept = ~equal
    rows = np.concatenate([G[kept], -G[kept]])
    rows = np.column_stack([rows, -np.tile(delta[kept], 2)])
    right = np.concatenate([b[kept], -b[kept]])
    sides = np.array([[*c, 0.0], [*-c, 0.0]])
    ends = np.array([hi, -lo])
    finite = np.isfinite(ends)
    rows, right = np.concatenate([rows, sides[finite]]), np.concatenate([right, ends[finite]])
    held = np.column_stack([G[equal], np.zeros(equal.sum())]) if equal.any() else None
    found = linprog(
        [*np.zeros(G.shape[1]), 1.0], rows, right, held, b[equal] if equal.any() else None,
        [(None, None)] * G.shape[1] + [(0, None)], method="highs",
    )  # fmt: skip
    return found.fun if found.status == 0 else np.inf


@pytest.mark.parametrize("seed", sampled(range(30)))
def test_verdicts_on_symmetric_matrices_agree_with_highs(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    m = int(rng.integers(2, n * (n + 1)))
    U, A, C = rng.standard_normal((m, n)), hermitian(rng, n, False), hermitian(rng, n, False)
    delta = 10.0 ** rng.uniform(-3, -1, m)
    b = readings(U, A) + delta * rng.uniform(-1.3, 1.3, m) * (seed % 3 > 0)
    equal = rng.random(m) < 0.2
    value = inner(C, A) + (0.0 if seed % 2 else rng.choice([-0.05, 0.3]))
    lo, hi = [(value, value), (value - 0.01, value + 0.01), (value, np.inf)][seed % 3]
    margin = highs_margin(U, b, delta, equal, C, lo, hi)
    data = Measurements(U, b, delta=np.where(equal, 0.0, delta)).constrained(None, [(C, lo, hi)])
    result = solve(data)
    wanted = {True: Status.MET, False: Status.INFEASIBLE}[bool(margin < 1.0)]
    assert abs(margin - 1.0) < 1e-4 or result.status is wanted
    assert result.certificate.verify(data)


def clarabel_margin(U, b, delta, C, lo, hi, trace):
    """The same for positive semidefinite A of that trace, real and imaginary parts apart."""
    n = U.shape[1]
    P, Q, t = cp.Variable((n, n), symmetric=True), cp.Variable((n, n)), cp.Variable()

    def reads(M):
        return cp.sum(cp.multiply(M.real, P)) + cp.sum(cp.multiply(M.imag, Q))

    z = cp.hstack([reads(np.outer(u, u.conj()) + 0j) for u in U])
    asked = [cp.abs(z - b) <= t * delta, Q == -Q.T, cp.bmat([[P, -Q], [Q, P]]) >> 0]
    asked += [reads(C) <= hi, reads(C) >= lo, cp.trace(P) == trace]
    problem = cp.Problem(cp.Minimize(t), asked)
    with np.errstate(all="ignore"):
        problem.solve(solver=cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize("seed", sampled(range(20), 5))
def test_verdicts_on_positive_matrices_agree_with_clarabel(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    m = int(rng.integers(2, 2 * n * n))
    U, C = gaussian_rows(rng, m, n, True), hermitian(rng, n, True) + 0j
    X = gaussian_rows(rng, n, n, True)
    A = X @ X.conj().T
    A /= np.trace(A).real
    delta = 10.0 ** rng.uniform(-3, -1, m)
    b = readings(U, A) + delta * rng.uniform(-1.3, 1.3, m) * (seed % 3 > 0)
    value = inner(C, A) + (0.0 if seed % 2 else rng.choice([-0.1, 0.2]))
    lo, hi = (value, value) if seed % 3 else (value - 1e-2, value + 1e-2)
    margin = clarabel_margin(U, b, delta, C, lo, hi, 1.0)
    data = Measurements(U, b, delta=delta).constrained(1.0, [(C, lo, hi)])
    result = solve(data, psd=True)
    wanted = {True: Status.MET, False: Status.INFEASIBLE}[bool(margin < 1.0)]
    assert abs(margin - 1.0) < 1e-3 or result.status is wanted
    assert result.certificate.verify(data)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("complex_", [False, True])
def test_low_rank_fits_keep_their_constraints(rng, complex_, rank):
    n, m = 6, 90
    U, X = gaussian_rows(rng, m, n, complex_), gaussian_rows(rng, n, rank, complex_)
    X /= np.linalg.norm(X)
    A, C = X @ X.conj().T, hermitian(rng, n, complex_)
    value = inner(C, A)
    data = Measurements(U, readings(U, A), delta=1e-3).constrained(1.0, [(C, value, value)])
    result = solve(data, rank=rank, rng=0)
    assert result.status is Status.MET and result.certificate.verify(data)
    assert result.matrix.factor.shape == (n, rank)
    assert abs(np.trace(result.A).real - 1.0) < 1e-13
    assert abs(inner(C, result.A) - value) < 1e-13 * np.linalg.norm(C)


@pytest.mark.parametrize("method", ["cg", "minimax", "psd"])
def test_every_method_that_takes_constraints_meets_them(rng, method):
    n, m = 5, 20
    U, X = rng.standard_normal((m, n)), rng.standard_normal((n, n))
    A = X @ X.T
    plain = Measurements(U, readings(U, A), delta=1e-3)
    C = hermitian(rng, n, False)
    for trace in (np.trace(A), (np.trace(A) - 1e-3, np.trace(A) + 1e-3)):
        data = plain.constrained(trace, [(C, inner(C, A), inner(C, A))])
        result = solve(data, method=method)
        assert result.status is Status.MET and result.certificate.verify(data)
    assert quadsense.solve(plain, method=method).status is Status.MET


@pytest.mark.parametrize("zeros", [[3], [0, 3], [1, 2, 3]])
def test_rows_of_zeros_leave_constraints_alone(zeros):
    rng = np.random.default_rng(0)
    U = rng.standard_normal((4, 3))
    U[zeros] = 0.0
    A = rng.standard_normal((3, 3))
    A = A + A.T
    data = Measurements(U, np.zeros(4), delta=1.0).constrained((-1.0, 2.0), [(A, 0.0, 1.0)])
    for rows in (data.unit_rows, data.set_aside([1]).unit_rows):
        norms = rows.norms
        found = (rows.forward(A) * norms * norms)[4:]
        np.testing.assert_allclose(found, [np.trace(A), np.sum(A * A)], rtol=1e-12)


def test_an_exact_fit_that_misses_a_constraint_is_not_optimal():
    """Next to readings of 1e12 the miss of a constraint is no error to speak of."""
    rng = np.random.default_rng(0)
    U = 1e6 * rng.standard_normal((6, 3))
    b = np.sum(U * U, axis=1)  # of I, whose trace is 3
    result = quadsense.solve(U, b, prefer="minimax", method="minimax")
    claim = result.certificate
    assert result.status == "optimal" and claim.objective is None and claim.verify(U, b)
    for trace, holds in (((2.5, 4.0), True), ((3.1, 4.0), False)):
        constraints = quadsense.Measurements(U, b).constrained(trace).constraints
        dual = None if claim.dual is None else np.append(claim.dual, 0.0)
        changed = dataclasses.replace(claim, constraints=constraints, dual=dual, upper_bound=10.0)
        assert changed.verify(U, b) == holds
