"""Columns of different sizes: the problem is solved in scaled columns, and said of the user's A."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from helpers import cover, deep

import quadsense
from quadsense import Measurements
from quadsense.cli import cli
from quadsense.core.matrix import FramedForm
from quadsense.measurements.column_scaling import MIN_ENTRIES, MIN_SPREAD, columns_of

EXPONENTS = (-4, 0, 5, -1, 2)


def _rows(m=60, n=5, complex_=False, seed=0):
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, n))
    return U + 1j * rng.standard_normal((m, n)) if complex_ else U


def _problem(m=60, complex_=False, psd=True, exponents=EXPONENTS, seed=0):
    """Rows alike, sizes D of their columns, readings, a tolerance that the noise keeps."""
    rng = np.random.default_rng([seed, 1])
    U, n = _rows(m, len(exponents), complex_, seed), len(exponents)
    X = _rows(n, n, complex_, seed + 1)
    A = X @ X.conj().T if psd else X + X.conj().T
    b = np.einsum("ij,jk,ik->i", U.conj(), A, U).real
    delta = 0.05 * float(np.mean(np.abs(b)))
    sizes = np.ldexp(1.0, np.array(exponents))
    return U, sizes, b + delta * rng.uniform(-1.0, 1.0, m), delta, A


def _distance(A, B):
    return float(np.linalg.norm(A - B) / np.linalg.norm(B))


# --- the rule --------------------------------------------------------------------------------


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_exponents_undo_the_sizes_of_the_columns(complex_, seed):
    U, sizes, b, delta, _ = _problem(400, complex_, seed=seed)
    columns = columns_of(Measurements(U * sizes, b, delta=delta))
    left = np.log2(sizes) + columns
    assert np.max(left) - np.min(left) <= 1.0
    assert np.sort(columns)[len(columns) // 2] == 0


@pytest.mark.parametrize(
    "U",
    [
        _rows(16, 300),
        _rows(17, 2000, True),
        _rows(500, 4) * np.exp(np.random.default_rng(0).normal(0.0, 3.0, (500, 1))),
        _rows(200, 6) * np.array([1.0, 2.0, 4.0, 1.0, 1.0, 1.0]),
        np.sign(_rows(100, 8)),
        np.where(np.random.default_rng(1).random((300, 40)) < 0.08, _rows(300, 40), 0.0),
        np.vstack([np.eye(30)] * 16),
        np.hstack([np.ones((400, 1)), -np.repeat(np.eye(20), 20, axis=0)]),
        np.linalg.qr(_rows(40, 17) * np.ldexp(1.0, np.arange(17)))[0].T,
        _rows(3, 4) * np.array([1.0, 1e2, 1.0, 1e-2]),
        quadsense.datasets.gaussian(n=30, m=200, seed=0).U,
    ],
    ids=["gaussian", "complex", "uneven rows", "within the spread", "signs", "sparse",
         "axes", "a hub", "orthonormal", "few entries", "dataset"],
)  # fmt: skip
def test_ordinary_rows_are_not_scaled(U):
    assert columns_of(Measurements(U, np.ones(len(U)), delta=0.1)) is None


def test_the_spread_from_which_on_columns_are_scaled():
    U = np.sign(_rows(200, 4))
    for spread, scaled in ((0.95 * MIN_SPREAD, False), (1.05 * MIN_SPREAD, True)):
        columns = columns_of(Measurements(U * [1.0, 1.0, 1.0, spread], np.ones(200), delta=0.1))
        assert (columns is not None) == scaled


@pytest.mark.parametrize("m", [4, 8, 12])
def test_the_fewer_entries_the_larger_the_spread(m):
    U = np.sign(_rows(m, 4))
    least = MIN_SPREAD ** (MIN_ENTRIES / m)
    for spread, scaled in ((0.95 * least, False), (1.05 * least, True)):
        columns = columns_of(Measurements(U * [1.0, 1.0, 1.0, spread], np.ones(m), delta=0.1))
        assert (columns is not None) == scaled


def test_a_few_rows_of_columns_that_differ_much_are_not_called_contradictory():
    # Two equalities and six unknowns; without scaling, both rows are the same to 13 digits.
    U = _rows(11, 3) * np.array([1e-3, 1e10, 1e-7])
    b = 100.0 * np.random.default_rng(3).standard_normal(11)
    delta = np.where(np.isin(np.arange(11), (3, 5)), 0.0, 0.3)
    result = quadsense.solve(U, b, delta=delta, slack="sum")
    assert result.status == "optimal"
    assert np.allclose(result.residuals[[3, 5]], 0.0, atol=1e-9 * np.abs(b).max())


def test_a_column_of_few_entries_stays_as_it_is():
    U = _rows(100, 4) * [1.0, 1.0, 100.0, 1e-9]
    U[MIN_ENTRIES - 1 :, 3] = 0.0
    U[:, 1] = 0.0
    columns = columns_of(Measurements(U, np.ones(100), delta=0.1))
    assert columns[1] == columns[3] == 0
    assert columns[0] - columns[2] in (6, 7)


@pytest.mark.parametrize("complex_", [False, True])
def test_the_same_rows_have_the_same_columns_wherever_they_are(complex_, tmp_path):
    U, sizes, b, delta, _ = _problem(200, complex_)
    U = U * sizes
    data = Measurements(U, b, delta=delta)
    data.save(tmp_path / "data.h5")
    on_disk = Measurements.open(tmp_path / "data.h5", memory_limit=10_000)
    parts = Measurements(U[:90], b[:90], delta=delta).append(sp.csr_array(U[90:]), b[90:])
    assert on_disk.unit_rows.kind.storage == "on disk"
    expected = columns_of(data)
    assert np.any(expected != 0)
    for other in (Measurements(sp.csr_array(U), b, delta=delta), on_disk, parts):
        assert np.array_equal(columns_of(other), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"prefer": "nearest"},
        {"prefer": "min_trace", "psd": True},
        {"ridge": 0},
        {"ridge": 0.5, "prior": 1.0},
        {"method": "gd", "max_iter": 3},
        {"method": "gd", "schedule": "paper", "max_iter": 3},
        {"method": "sgd", "max_iter": 3},
    ],
    ids=str,
)
def test_where_a_norm_of_A_is_named_columns_stay_as_they_are(options):
    U, sizes, b, delta, _ = _problem()
    result = quadsense.solve(U * sizes, b, delta=delta, **options)
    assert result.certificate.columns is None
    assert not any("scaled" in reason for reason in result.plan["reasons"])


def test_the_plan_says_how_columns_are_scaled():
    U, sizes, b, delta, _ = _problem(400)
    result = quadsense.solve(U * sizes, b, delta=delta)
    columns = result.certificate.columns
    assert (columns.min(), columns.max()) == (-4, 4)
    said = "the columns of U are scaled by powers of two, from 2^-4 to 2^4"
    assert said in result.plan["reasons"]


@pytest.mark.parametrize("delta", [None, 0.1])
def test_inspect_says_how_columns_are_scaled(delta, tmp_path):
    U, sizes, b, _, _ = _problem(400)
    Measurements(U * sizes, b, delta=delta).save(tmp_path / "data.npz")
    printed = CliRunner().invoke(cli, ["inspect", str(tmp_path / "data.npz")])
    assert printed.exit_code == 0
    assert "scaled by powers of two, from 2^-4 to 2^4" in " ".join(printed.output.split())


# --- the same problem, scaled by hand --------------------------------------------------------

REQUESTS = {
    "symmetric": {},
    "psd": {"psd": True},
    "no tolerance": {"delta": None},
    "minimax": {"prefer": "minimax"},
    "minimax, psd": {"prefer": "minimax", "psd": True},
    "center": {"prefer": "center", "psd": True},
    "any": {"prefer": "any"},
    "any, psd": {"prefer": "any", "psd": True},
    "slack": {"slack": "squares"},
    "rank": {"rank": 2, "rng": 0, "max_iter": 40},
    "least squares of method least_squares": {"method": "least_squares", "prefer": "least_squares"},
}


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_that_of_the_problem_scaled_by_hand(name, complex_):
    U, sizes, b, delta, _ = _problem(60, complex_)
    options = {"delta": delta, **REQUESTS[name]}
    data = Measurements(U * sizes, b, delta=delta)
    D = np.ldexp(1.0, columns_of(data))
    found = quadsense.solve(U * sizes, b, **options)
    by_hand = quadsense.solve(U * sizes * D, b, **options)
    assert by_hand.certificate.columns is None
    assert found.certificate.columns is not None
    assert (found.status, found.prefer) == (by_hand.status, by_hand.prefer)
    # The same numbers, whose sums may be made in another order.
    assert _distance(found.A / np.outer(D, D), by_hand.A) < 1e-5
    assert (found.objective or 0.0) == pytest.approx(by_hand.objective or 0.0, rel=1e-5)
    assert np.allclose(found.residuals, by_hand.residuals, atol=1e-4 * delta)


@pytest.mark.parametrize("psd", [False, True])
def test_prior_trace_and_constraints_go_along(psd):
    U, sizes, b, delta, A = _problem(40, psd=True)
    rows = U * sizes
    D = np.ldexp(1.0, columns_of(Measurements(rows, b, delta=delta)))
    true = A / np.outer(sizes, sizes)
    C = np.zeros((5, 5))
    C[0, 1] = C[1, 0] = 1.0
    middle, trace = 2.0 * true[0, 1], float(np.trace(true))
    P = 0.9 * true
    room = 0.1 * abs(middle)
    found = quadsense.solve(
        rows, b, delta=delta, psd=psd, prior=P, trace=trace,
        constraints=[(C, middle - room, middle + room), ((np.eye(5)[:, :1], [1.0]), 0, np.inf)],
    )  # fmt: skip
    by_hand = quadsense.solve(
        rows * D, b, delta=delta, psd=psd, prior=P / np.outer(D, D),
        constraints=[
            (np.diag(D**2), trace, trace),
            (C * np.outer(D, D), middle - room, middle + room),
            ((D[:, None] * np.eye(5)[:, :1], [1.0]), 0, np.inf),
        ],
    )  # fmt: skip
    assert found.certificate.columns is not None
    assert found.met and found.optimal and by_hand.optimal
    assert found.matrix.trace() == pytest.approx(trace, rel=1e-9)
    assert _distance(found.A / np.outer(D, D), by_hand.A) < 0.05
    assert found.verify(rows, b)


def test_the_pull_with_a_trace_leads_to_the_multiple_of_I_with_that_trace():
    U, sizes, b, delta, A = _problem(12 + MIN_ENTRIES, exponents=(-3, 0, 0, 0, 3, 0, 1, 0, 0, 0))
    rows = U * sizes
    trace = float(np.trace(A / np.outer(sizes, sizes)))
    result = quadsense.solve(rows, b, delta=delta, psd=True, trace=trace)
    D = np.ldexp(1.0, result.certificate.columns)
    tau = result.certificate.objective.preference.tau
    assert result.prefer == "entropy"
    assert tau == pytest.approx(trace / float(np.sum(D**2)), rel=1e-12)
    assert result.optimal and result.verify(rows, b)


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_distances_in_another_unit_give_the_same_answer(unit):
    rng = np.random.default_rng(3)
    place, positions = np.array([12.0, 35.0]), rng.uniform(-40.0, 80.0, (60, 2))
    r = np.linalg.norm(positions - place, axis=1) + rng.uniform(-0.3, 0.3, 60)
    lo, hi = np.maximum(r - 0.4, 0.0) ** 2, (r + 0.4) ** 2

    def solved(unit):
        U = np.column_stack([positions / unit, np.ones(60)])
        found = quadsense.solve(U, bounds=(lo / unit**2, hi / unit**2))
        assert found.optimal and found.met
        return -found.A[:2, 2] * unit, found

    usual, plain = solved(30.0)
    place_found, result = solved(unit)
    assert plain.certificate.columns is None
    assert result.certificate.columns is not None
    assert np.linalg.norm(place_found - usual) < 0.02
    lower, upper = result.interval((0, 2))
    other = plain.interval((0, 2))
    assert lower * unit == pytest.approx(30.0 * other.lower, rel=0.01)
    assert upper * unit == pytest.approx(30.0 * other.upper, rel=0.01)


# --- independent solvers ---------------------------------------------------------------------


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("m", [20, 60])
def test_cvxpy_confirms_the_objective_of_scaled_columns(psd, m):
    cp = pytest.importorskip("cvxpy")
    U, sizes, b, delta, _ = _problem(m, psd=psd)
    rows = U * sizes
    result = quadsense.solve(rows, b, delta=delta, psd=psd)
    problem, A = quadsense.to_cvxpy(rows, b, delta=delta, psd=psd)
    value = float(problem.solve(solver=cp.CLARABEL))
    lower, upper = result.objective_bounds
    room = 1e-5 * (1.0 + abs(value))
    assert lower - room <= value <= upper + room
    D = np.ldexp(1.0, result.certificate.columns)
    worst = np.max(np.abs(np.einsum("ij,jk,ik->i", rows, A.value, rows) - b)) / delta
    assert worst <= 1.0 + 1e-6
    assert _distance(A.value / np.outer(D, D), result.A / np.outer(D, D)) < 0.05


def test_the_default_is_the_closed_form_of_scaled_columns():
    """Where no interval is active: normal equations on scaled rows of unit norm."""
    U, sizes, b, delta, _ = _problem(12 + MIN_ENTRIES, psd=False, exponents=(-4, 0, 5, -1, 2, 0, 3))
    rows = U * sizes
    result = quadsense.solve(rows, b, delta=delta)
    D, claim = np.ldexp(1.0, result.certificate.columns), result.certificate.objective.preference
    scaled = rows * D
    i, j = np.triu_indices(7)
    weights = np.where(i == j, 1.0, math.sqrt(2.0))
    F = np.stack([np.outer(u, u)[i, j] * weights for u in scaled]) / delta
    prior = claim.tau * np.eye(7)[i, j]
    x = prior + np.linalg.solve(
        F.T @ F + claim.ridge * np.eye(i.size), F.T @ (b / delta - F @ prior)
    )
    A = np.zeros((7, 7))
    A[i, j] = A[j, i] = x / weights
    assert result.max_ratio < 1.0
    assert _distance(result.A / np.outer(D, D), A) < 2e-2
    values = F @ x - b / delta
    cost = float(values @ values) + claim.ridge * float(np.sum((x - prior) ** 2))
    lower, upper = result.objective_bounds
    assert lower - 1e-9 * cost <= cost <= upper + 1e-9 * cost


def test_the_error_with_columns_that_differ_is_that_with_columns_alike():
    n, errors = 14, []
    for seed in range(3):
        exponents = np.random.default_rng(seed).integers(0, 6, n)
        U, sizes, b, delta, A = _problem(105, psd=False, exponents=exponents, seed=seed)
        alike = quadsense.solve(U, b, delta=delta)
        apart = quadsense.solve(U * sizes, b, delta=delta)
        errors.append((_distance(alike.A, A), _distance(apart.A * np.outer(sizes, sizes), A)))
    alike, apart = np.mean(errors, axis=0)
    assert apart < 1.1 * alike + 0.02


# --- certificates and files ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["symmetric", "psd", "no tolerance", "minimax", "slack"])
@pytest.mark.parametrize("complex_", [False, True])
def test_claims_hold_after_a_file(name, complex_, tmp_path):
    U, sizes, b, delta, _ = _problem(30, complex_)
    options = {"delta": delta, **REQUESTS[name]}
    result = quadsense.solve(U * sizes, b, **options)
    result.save(tmp_path / "result.npz")
    again = quadsense.load_result(tmp_path / "result.npz")
    assert np.array_equal(again.certificate.columns, result.certificate.columns)
    assert np.array_equal(again.A, result.A)
    assert again.message == result.message
    for each in (result, again):
        assert each.verify(U * sizes, b)
        assert not each.verify(U * sizes, b + 10.0 * delta)


def test_infeasible_in_scaled_columns_is_proved(tmp_path):
    U, sizes, b, delta, _ = _problem(60)
    for psd in (False, True):
        result = quadsense.solve(U * sizes, b, delta=1e-3 * delta, psd=psd)
        result.save(tmp_path / "result.npz")
        assert str(result.status) == "infeasible"
        assert result.certificate.columns is not None
        assert quadsense.load_result(tmp_path / "result.npz").verify(U * sizes, b)
        assert not result.certificate.verify(U * sizes, b, delta=2.0 * delta)


def test_a_condition_says_that_it_is_about_scaled_columns():
    U, _sizes, b, _delta, _ = _problem(80)
    U, b = np.vstack([U[:, :4], U[:1, :4]]), np.append(b, b[0] + 10.0)
    wide = np.hstack([U[:20], _rows(20, 30, seed=9)])
    wide = np.vstack([wide, wide[:1]]) * np.ldexp(1.0, np.arange(34) % 7)
    readings = np.append(b[:20], b[0] + 10.0)
    result = quadsense.solve(wide, readings, delta=0.1)
    assert str(result.status) == "infeasible"
    assert "once the columns of U are scaled" in result.certificate.condition
    assert "once the columns of U are scaled" in result.message
    assert result.verify(wide, readings)
    bare = replace(result.certificate, condition="among matrices of Frobenius norm up to 1e+300")
    assert not bare.verify(wide, readings)


@pytest.mark.parametrize("name", ["symmetric", "psd"])
def test_a_pull_in_other_columns_is_not_that_of_the_claim(name):
    U, sizes, b, delta, _ = _problem(20)
    rows = U * sizes
    result = quadsense.solve(rows, b, **{"delta": delta, **REQUESTS[name]})
    claim = result.certificate
    tampered = [
        None,
        -claim.columns,
        claim.columns + np.array([3, 0, 0, 0, 0]),
        claim.columns[:-1],
        np.full(5, 1000),
        np.full(5, np.iinfo(np.int64).max),
        np.full(5, np.iinfo(np.int64).min),
    ]
    assert claim.verify(rows, b)
    assert [replace(claim, columns=each).verify(rows, b) for each in tampered] == [False] * 7
    changed = replace(result, matrix=result.matrix.stretched(np.array([1, 0, 0, 0, 0])))
    assert not changed.verify(rows, b)


def test_coefficients_of_scaled_rows_are_kept_in_a_file(tmp_path):
    U, sizes, b, delta, _ = _problem(30, exponents=tuple(np.arange(60) % 8))
    rows = U * sizes
    result = quadsense.solve(rows, b, delta=delta)
    result.save(tmp_path / "result.npz")
    again = quadsense.load_result(tmp_path / "result.npz")
    assert isinstance(result.matrix.form, FramedForm)
    assert isinstance(again.matrix.form, FramedForm)
    assert again.verify(rows, b)
    dense, x = result.A, np.arange(60.0)
    assert result.matrix.norm() == pytest.approx(np.linalg.norm(dense), rel=1e-12)
    assert result.matrix.trace() == pytest.approx(np.trace(dense), rel=1e-12)
    assert np.allclose(result.matrix @ x, dense @ x)
    assert np.allclose(result.matrix.form.diagonal(), np.diagonal(dense))
    assert np.allclose(np.einsum("ij,jk,ik->i", rows, dense, rows) - b, result.residuals)


# --- ranges and next probes ------------------------------------------------------------------


@pytest.mark.parametrize("psd", [False, True])
def test_certified_ranges_are_those_of_the_problem_scaled_by_hand(psd):
    U, sizes, b, delta, A = _problem(40)
    rows = U * sizes
    D = np.ldexp(1.0, columns_of(Measurements(rows, b, delta=delta)))
    found = quadsense.interval(rows, b, [(0, 2), "trace", np.eye(5)[1]], delta=delta, psd=psd)
    C = np.zeros((5, 5))
    C[0, 2] = C[2, 0] = 0.5
    asked = [C * np.outer(D, D), np.diag(D**2), D * np.eye(5)[1]]
    by_hand = quadsense.interval(rows * D, b, asked, delta=delta, psd=psd)
    true = A / np.outer(sizes, sizes)
    for one, two, value in zip(
        found, by_hand, (true[0, 2], np.trace(true), true[1, 1]), strict=True
    ):
        assert one.columns is not None and two.columns is None
        assert one.lower == pytest.approx(two.lower, abs=1e-6 * one.width)
        assert one.upper == pytest.approx(two.upper, abs=1e-6 * one.width)
        assert one.lower <= value <= one.upper
        assert float(np.vdot(one.C, one.upper_fit)) == pytest.approx(one.upper_found, rel=1e-9)
        assert one.verify(rows, b, delta=delta)
        assert not replace(one, upper=0.5 * (one.lower + one.upper)).verify(rows, b, delta=delta)


def test_a_direction_that_no_row_sees_is_unbounded_in_scaled_columns():
    U, _sizes, _b, _delta, _ = _problem(60)
    rows = U * [1.0, 0.0, 64.0, 1.0, 1.0]
    readings = np.einsum("ij,ij->i", rows, rows)
    found = quadsense.interval(rows, readings, [(1, 1), (2, 2)], delta=0.1)
    assert found[0].columns is not None
    assert math.isinf(found[0].upper) and not math.isinf(found[1].upper)
    assert all(each.verify(rows, readings, delta=0.1) for each in found)


def test_the_next_probe_is_that_of_the_problem_scaled_by_hand():
    U, sizes, b, delta, _ = _problem(40)
    rows = U * sizes
    D = np.ldexp(1.0, columns_of(Measurements(rows, b, delta=delta)))
    candidates = _rows(6, 5, seed=8) * sizes
    found = quadsense.solve(rows, b, delta=delta).next_probe(candidates, top=3)
    by_hand = quadsense.solve(rows * D, b, delta=delta).next_probe(candidates * D, top=3)
    assert found.best == by_hand.best
    assert np.allclose(found.estimates, by_hand.estimates, rtol=1e-6)
    assert np.nanmax(np.abs(found.widths / by_hand.widths - 1.0)) < 0.02
    assert all(each.verify(rows, b, delta=delta) for each in found.intervals.values())


# --- starts, callbacks, checkpoints ----------------------------------------------------------


@pytest.mark.parametrize("name", ["symmetric", "psd", "any", "rank"])
def test_an_earlier_result_is_a_start_with_and_without_scaled_columns(name):
    U, sizes, b, delta, _ = _problem(40)
    rows, options = U * sizes, REQUESTS[name]
    first = quadsense.solve(rows, b, delta=delta, **options)
    nearest = quadsense.solve(rows, b, delta=delta, prefer="nearest")
    assert nearest.certificate.columns is None
    for start in (first, nearest, first.matrix, nearest.A):
        found = quadsense.solve(rows, b, delta=delta, start=start, **options)
        assert found.status == first.status
        assert found.verify(rows, b) == first.verify(rows, b)
    again = quadsense.solve(rows, b, delta=delta, start=first, **options)
    assert again.n_iter <= max(1, first.n_iter)


def test_a_start_of_scaled_columns_serves_where_columns_are_not_scaled():
    U, sizes, b, delta, _ = _problem(30, exponents=tuple(np.arange(60) % 8))
    rows = U * sizes
    first = quadsense.solve(rows, b, delta=delta)
    assert isinstance(first.matrix.form, FramedForm)
    found = quadsense.solve(rows, b, delta=delta, method="gd", start=first)
    assert found.met and found.n_iter == 0 and found.verify(rows, b)


def test_a_callback_sees_the_users_matrix():
    U, sizes, b, delta, _ = _problem(60)
    rows, seen = U * sizes, []

    def look(intermediate):
        A = np.asarray(intermediate.matrix)
        worst = float(np.max(np.abs(np.einsum("ij,jk,ik->i", rows, A, rows) - b)))
        seen.append((worst, intermediate.max_residual))

    quadsense.solve(rows, b, delta=delta, prefer="minimax", callback=look)
    assert seen
    assert all(found == pytest.approx(stated, rel=1e-6) for found, stated in seen)


@pytest.mark.parametrize("name", ["psd", "any, psd", "minimax"])
def test_a_checkpoint_is_taken_up_bit_for_bit(name, tmp_path):
    U, sizes, b, delta, _ = _problem(60)
    rows, options = U * sizes, {"delta": delta, **REQUESTS[name]}
    whole = quadsense.solve(rows, b, **options)

    def stop(_):
        raise StopIteration

    folder = {"checkpoint": tmp_path / "run", "checkpoint_every": 0.0}
    quadsense.solve(rows, b, **options, **folder, callback=stop)
    taken_up = quadsense.solve(rows, b, **options, **folder)
    assert np.array_equal(taken_up.A, whole.A)
    assert taken_up.verify(rows, b)
    assert np.array_equal(quadsense.solve(rows, b, **options, **folder).A, whole.A)


# --- kinds of rows, and extremes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "complex_"), cover(["symmetric", "psd", "any", "minimax"], [False, True])
)
def test_rows_of_every_kind_give_the_same_answer(name, complex_, tmp_path):
    U, sizes, b, delta, _ = _problem(60, complex_)
    rows, options = U * sizes, REQUESTS[name]
    data = Measurements(rows, b, delta=delta)
    data.save(tmp_path / "data.h5")
    expected = quadsense.solve(data, **options)
    scale = np.outer(sizes, sizes)
    others = {
        "sparse": Measurements(sp.csr_array(rows), b, delta=delta),
        "on disk": Measurements.open(tmp_path / "data.h5", memory_limit=3000),
        "conjugate": Measurements(rows.conj(), b, delta=delta, conjugate=True),
    }
    for kind, other in others.items():
        found = quadsense.solve(other, **options)
        assert _distance(found.A * scale, expected.A * scale) < 0.01, kind
        assert found.verify(other)
        assert found.verify(rows.conj() if kind == "conjugate" else rows, b)
    assert expected.verify(others["sparse"]) and expected.verify(others["on disk"])


@pytest.mark.parametrize("options", [{}, {"psd": True}], ids=str)
def test_sums_over_rows_are_scaled_too(options):
    U, sizes, b, delta, A = _problem(60)
    rng = np.random.default_rng(2)
    W = sp.csr_array(np.eye(50, 60) + (rng.random((50, 60)) < 0.05) * rng.random((50, 60)))
    readings = W @ np.einsum("ij,jk,ik->i", U, A, U)
    D = np.ldexp(1.0, columns_of(Measurements(U * sizes, b, delta=delta)))
    found = quadsense.solve(U * sizes, readings, delta=delta, mix=W, **options)
    by_hand = quadsense.solve(U * sizes * D, readings, delta=delta, mix=W, **options)
    assert found.certificate.columns is not None
    assert _distance(found.A / np.outer(D, D), by_hand.A) < 1e-3
    assert found.verify(U * sizes, readings, mix=W)


@pytest.mark.parametrize("exponents", [(0, 0, -100, 0, 0), (100, -100, 0, 50, -50)], ids=str)
@pytest.mark.parametrize("psd", [False, True])
def test_columns_that_differ_by_many_powers_are_met(exponents, psd):
    U, sizes, b, delta, _ = _problem(80, exponents=exponents)
    result = quadsense.solve(U * sizes, b, delta=delta, psd=psd)
    alike = quadsense.solve(U, b, delta=delta, psd=psd)
    assert result.met and result.optimal and result.verify(U * sizes, b)
    assert _distance(result.A * np.outer(sizes, sizes), alike.A) < 0.01


@pytest.mark.parametrize("exponents", [(0, 0, -500, 0, 0), (0, 500, 0, 0, 0)], ids=str)
def test_columns_out_of_range_end_in_a_verdict_with_its_condition(exponents):
    U, sizes, b, delta, _ = _problem(80, exponents=exponents)
    result = quadsense.solve(U * sizes, b, delta=delta)
    assert str(result.status) == "infeasible"
    assert "among matrices of Frobenius norm up to" in result.certificate.condition
    assert result.verify(U * sizes, b)


@deep
@pytest.mark.parametrize("seed", range(40))
def test_many_problems_are_certified_like_those_scaled_by_hand(seed):
    rng = np.random.default_rng(seed)
    n, complex_, psd = int(rng.integers(2, 9)), bool(rng.random() < 0.4), bool(rng.random() < 0.5)
    exponents = tuple(rng.integers(-12, 13, n))
    m = MIN_ENTRIES + int(rng.integers(0, 3 * n * n))
    U, sizes, b, delta, _ = _problem(m, complex_, psd, exponents, seed)
    rows = U * sizes
    result = quadsense.solve(rows, b, delta=delta, psd=psd)
    columns = result.certificate.columns
    D = np.ones(n) if columns is None else np.ldexp(1.0, columns)
    by_hand = quadsense.solve(rows * D, b, delta=delta, psd=psd)
    assert (result.status, result.prefer) == (by_hand.status, by_hand.prefer)
    assert result.optimal == by_hand.optimal
    assert _distance(result.A / np.outer(D, D), by_hand.A) < 0.05
    assert result.verify(rows, b)


@pytest.mark.parametrize("psd", [False, True])
def test_the_fit_that_comes_with_a_proof_that_nothing_fits_is_that_of_scaled_columns(psd, tmp_path):
    U, sizes, b, delta, _ = _problem(40)
    b[3] += 50.0 * delta
    rows = U * sizes
    result = quadsense.solve(rows, b, delta=delta, psd=psd)
    assert result.status == "infeasible" and result.certificate.columns is not None
    assert result.fit is not None and result.verdict.fitted == "optimal"
    result.save(tmp_path / "result.npz")
    for each in (result, quadsense.load_result(tmp_path / "result.npz")):
        checked = each.verify(rows, b)
        assert checked, str(checked)
    columns = result.certificate.columns
    alike = quadsense.solve(rows * np.ldexp(1.0, columns), b, delta=delta, psd=psd)
    assert alike.certificate.columns is None
    D = np.ldexp(1.0, columns)
    assert _distance(result.A, D[:, None] * alike.A * D) < 1e-6
    assert result.max_ratio == pytest.approx(alike.max_ratio, rel=1e-6)
