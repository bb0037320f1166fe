"""Which further probe tells most: against ranks of F written out, and linear programs by HiGHS."""

from dataclasses import dataclass

import array_api_strict
import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from helpers import features, readings, sampled
from scipy.optimize import linprog

import quadsense
from quadsense.next_probe import next_probe, rank_probes


@dataclass
class Range:
    lower: float
    upper: float


def programs(data, probes):
    """Ranges of ``u* A u`` by linear programs over the packed entries of A."""
    F, found = features(data.rows()), []
    for u in probes:
        c = features(u[None])[0]
        ends = []
        for sign in (1, -1):
            upper = np.isfinite(data.hi)
            lower = np.isfinite(data.lo)
            done = linprog(
                sign * c,
                A_ub=np.vstack([F[upper], -F[lower]]),
                b_ub=np.concatenate([data.hi[upper], -data.lo[lower]]),
                bounds=(None, None),
                method="highs",
            )
            ends.append(sign * done.fun if done.status == 0 else -sign * np.inf)
        found.append(Range(*ends))
    return found


def no_programs(data, probes):
    raise AssertionError("no interval was asked for")


def normal(rng, k, n, is_complex):
    x = rng.standard_normal((k, n))
    return x + 1j * rng.standard_normal((k, n)) if is_complex else x


def left_over(U, candidates):
    """By least squares with F written out: what of each candidate the rows do not see."""
    F = np.stack([np.outer(u, u.conj()).ravel() for u in U], axis=1)
    found = []
    for w in candidates:
        f = np.outer(w, w.conj()).ravel()
        found.append(np.linalg.norm(f - F @ np.linalg.lstsq(F, f)[0]) / np.linalg.norm(f))
    return np.array(found)


# --- the unseen part ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["few rows", "many rows", "repeated rows"])
def test_the_unseen_part_is_the_distance_from_the_span(shape, complex_, rng):
    n = 4
    U = normal(rng, 8, n, complex_)
    if shape == "many rows":
        U = normal(rng, 40, n, complex_)
        U[:, 0] = U[:, 1]  # only a part of A is seen
    if shape == "repeated rows":
        U = np.repeat(U[:4], 2, axis=0)
    candidates = np.vstack([normal(rng, 5, n, complex_), 3.0 * U[:2]])
    data = quadsense.Measurements(U, np.ones(len(U)), delta=0.1)
    found = rank_probes(data, candidates, None, 0, no_programs)
    np.testing.assert_allclose(found.unseen, left_over(U, candidates), atol=1e-9)
    assert np.all(found.unseen[-2:] == 0.0)
    assert found.best == np.argmax(found.unseen)
    assert found.order.tolist()[:5] == np.argsort(-found.unseen[:5]).tolist()
    assert f"{100 * found.unseen.max():.3g}% of it is unseen" in found.message
    assert sorted(found.order) == list(range(7))


def test_adding_the_chosen_probe_leaves_one_dimension_less_unseen_until_none_is(complex_, rng):
    n = 3
    U = normal(rng, 2, n, complex_)
    unknowns = n * n if complex_ else n * (n + 1) // 2
    for seen in range(2, unknowns):
        assert np.linalg.matrix_rank(features(U)) == seen
        data = quadsense.Measurements(U, np.ones(len(U)), delta=0.1)
        # Most candidates are seen already.
        candidates = np.vstack([U, normal(rng, 1, n, complex_)])
        found = rank_probes(data, candidates, None, 0, no_programs)
        assert found.best == len(U)
        U = np.vstack([U, candidates[found.best]])
    data = quadsense.Measurements(U, np.ones(len(U)), delta=0.1)
    found = rank_probes(data, normal(rng, 5, n, complex_), None, 0, no_programs)
    assert np.all(found.unseen == 0.0)
    assert "by an estimate" in found.message


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_the_unseen_part_does_not_know_of_scales(scale, rng):
    U, candidates = rng.standard_normal((5, 3)), rng.standard_normal((6, 3))
    plain = quadsense.Measurements(U, np.ones(5), delta=0.1)
    scaled = quadsense.Measurements(scale * U, np.ones(5), delta=0.1)
    one = rank_probes(plain, candidates, None, 0, no_programs)
    two = rank_probes(scaled, candidates / scale, None, 0, no_programs)
    np.testing.assert_allclose(one.unseen, two.unseen, atol=1e-12)
    assert one.order.tolist() == two.order.tolist()


def test_rows_that_ask_for_nothing_see_nothing(rng):
    U = np.vstack([np.eye(3), np.zeros((1, 3))])
    lo, hi = np.array([0.0, -np.inf, 0.0, -1.0]), np.array([1.0, np.inf, np.inf, 1.0])
    data = quadsense.Measurements(U, bounds=(lo, hi))
    found = rank_probes(data, np.eye(3), None, 0, no_programs)
    assert found.unseen.tolist() == [0.0, 1.0, 0.0]
    nothing = quadsense.Measurements(np.eye(3), bounds=(-np.inf, np.inf))
    found = rank_probes(nothing, np.eye(3), None, 5, no_programs)
    assert found.unseen.tolist() == [1.0, 1.0, 1.0]


def test_sums_of_rows_are_what_is_seen(complex_, rng):
    U = normal(rng, 6, 3, complex_)
    W = rng.standard_normal((3, 6))
    data = quadsense.Measurements(U, np.ones(3), delta=0.1, mix=sp.csr_array(W))
    candidates = normal(rng, 4, 3, complex_)
    found = rank_probes(data, candidates, None, 0, no_programs)
    raw = np.stack([np.outer(u, u.conj()).ravel() for u in U])
    F = (W @ raw).T
    for j, w in enumerate(candidates):
        f = np.outer(w, w.conj()).ravel()
        # over the reals: W is real, and so are the coefficients
        stack = lambda x: np.concatenate([x.real, x.imag])  # noqa: E731
        left = stack(f) - stack(F) @ np.linalg.lstsq(stack(F), stack(f))[0]
        assert found.unseen[j] == pytest.approx(np.linalg.norm(left) / np.linalg.norm(f), abs=1e-9)


def test_rows_given_conjugated_have_candidates_given_so(rng):
    U, candidates = normal(rng, 5, 3, True), normal(rng, 4, 3, True)
    plain = quadsense.Measurements(U, np.ones(5), delta=0.1)
    other = quadsense.Measurements(U.conj(), np.ones(5), delta=0.1, conjugate=True)
    one = rank_probes(plain, candidates, None, 0, no_programs)
    two = rank_probes(other, candidates.conj(), None, 0, no_programs)
    np.testing.assert_allclose(one.unseen, two.unseen, atol=1e-12)


# --- what varies most ---------------------------------------------------------------------------


def planted(rng, m=14, n=3):
    U = rng.standard_normal((m, n))
    delta = rng.uniform(0.05, 0.5, m)
    b = readings(U, np.diag([1.0, 2.0, -1.0])) + delta * rng.uniform(-0.9, 0.9, m)
    return U, b, delta


def test_of_seen_probes_the_widest_range_in_its_tolerances_comes_first(rng):
    U, b, delta = planted(rng)
    data = quadsense.Measurements(U, b, delta=delta)
    candidates = rng.standard_normal((12, 3)) * rng.uniform(0.2, 3.0, (12, 1))
    own = rng.uniform(0.05, 0.5, 12)
    truth = np.array([(r.upper - r.lower) / 2 for r in programs(data, candidates)]) / own
    found = rank_probes(data, candidates, own, 12, programs)
    assert found.order.tolist() == np.argsort(-truth).tolist()
    np.testing.assert_allclose(found.widths, truth, rtol=1e-6)
    assert f"candidate {found.best} would tell most" in found.message
    few = rank_probes(data, candidates, own, 4, programs)
    assert sorted(few.intervals) == sorted(np.argsort(-found.estimates)[:4].tolist())
    assert few.order.tolist()[:4] == sorted(few.intervals, key=lambda j: -truth[j])
    assert np.isnan(few.widths).sum() == 8


def test_measuring_the_widest_narrows_it_to_its_tolerance_and_more_than_any_other(rng):
    """Of all candidates, reading the chosen one takes most off the range of its own reading."""
    U, b, delta = planted(rng)
    data = quadsense.Measurements(U, b, delta=delta)
    candidates = rng.standard_normal((6, 3))
    found = rank_probes(data, candidates, 0.05, 6, programs)
    truth = np.diag([1.0, 2.0, -1.0])
    gains = []
    for j, u in enumerate(candidates):
        before = found.intervals[j]
        more = quadsense.Measurements(
            np.vstack([U, u]), np.append(b, readings(u[None], truth)),
            delta=np.append(delta, 0.05),
        )  # fmt: skip
        after = programs(more, [u])[0]
        gains.append((before.upper - before.lower) - (after.upper - after.lower))
        assert after.upper - after.lower <= 0.1 * (1 + 1e-9)
    assert found.best == int(np.argmax(gains))


def test_where_every_reading_is_known_well_the_message_says_so(rng):
    U, b, delta = planted(rng)
    data = quadsense.Measurements(U, b, delta=delta)
    found = rank_probes(data, U[:2], 100.0, 10, programs)
    assert found.message.startswith("no candidate would tell much")
    found = rank_probes(data, U[:2], 100.0, 1, programs)
    assert found.message.startswith("of those with an interval none would tell much")


@pytest.mark.parametrize("m", [4, 30])
def test_estimates_are_leverages_in_tolerances(m, complex_, rng):
    n = 3
    U = normal(rng, m, n, complex_) * rng.uniform(0.5, 2.0, (m, 1))
    delta = rng.uniform(0.1, 1.0, m)
    candidates = np.vstack([U[:3] * 1.5, normal(rng, 2, n, complex_)])
    F = np.stack([np.outer(u, u.conj()).ravel() for u in U]) / delta[:, None]
    own = np.linspace(0.2, 0.4, 5)
    found = rank_probes(
        quadsense.Measurements(U, np.ones(m), delta=delta), candidates, own, 0, no_programs
    )
    for j, w in enumerate(candidates):
        f = np.outer(w, w.conj()).ravel()
        if found.unseen[j] > 0:
            assert found.estimates[j] == np.inf
        else:
            truth = np.linalg.norm(np.linalg.lstsq(F.T, f)[0]) / own[j]
            assert found.estimates[j] == pytest.approx(truth, rel=1e-6)
    assert np.isfinite(found.estimates[:3]).all()


def test_the_tolerance_of_candidates_is_the_median_of_the_rows(rng):
    U = rng.standard_normal((5, 3))
    data = quadsense.Measurements(U, np.ones(5), delta=[0.1, 0.2, 0.3, 0.4, 5.0])
    found = rank_probes(data, U, None, 0, no_programs)
    assert found.tolerance.tolist() == [0.3] * 5
    found = rank_probes(quadsense.Measurements(U, np.ones(5)), U, None, 0, no_programs)
    assert found.tolerance.tolist() == [1.0] * 5


# --- of results ---------------------------------------------------------------------------------


def semidefinite(U, lo, hi, u, trace=None):
    """The range of ``u* A u`` over positive semidefinite fits, by CVXPY."""
    n, is_complex = U.shape[1], np.iscomplexobj(U)
    A = cp.Variable((n, n), hermitian=True) if is_complex else cp.Variable((n, n), PSD=True)
    real = cp.real if is_complex else (lambda x: x)
    v = cp.hstack([real(w.conj() @ A @ w) for w in U])
    asked = [v >= lo, v <= hi, *([A >> 0] if is_complex else [])]
    asked += [] if trace is None else [real(cp.trace(A)) == trace]
    goal = real(u.conj() @ A @ u)
    ends = [
        cp.Problem(sense(goal), asked).solve(solver="CLARABEL")
        for sense in (cp.Minimize, cp.Maximize)
    ]
    return Range(*ends)


def agrees(interval, truth):
    """Outside the truth, and by no more than 1% of its width (and the solver's own error)."""
    width = truth.upper - truth.lower
    room = 1e-6 * (1.0 + abs(truth.upper))
    return (
        truth.lower - 0.011 * width - room <= interval.lower <= truth.lower + room
        and truth.upper - room <= interval.upper <= truth.upper + 0.011 * width + room
    )


def test_a_symmetric_result_ranks_by_what_linear_programs_find(rng):
    U, b, delta = planted(rng)
    result = quadsense.solve(U, b, delta=delta)
    candidates = rng.standard_normal((6, 3))
    found = next_probe(result, candidates)
    truth = programs(quadsense.Measurements(U, b, delta=delta), candidates)
    assert all(agrees(found.intervals[j], truth[j]) for j in range(6))
    widths = [each.upper - each.lower for each in truth]
    assert found.best == int(np.argmax(widths))
    assert found.tolerance.tolist() == [np.median(delta)] * 6


@pytest.mark.parametrize("trace", sampled([None, 3.0], 1))
def test_a_semidefinite_result_ranks_by_what_cvxpy_finds(trace, complex_, rng):
    U = normal(rng, 14, 3, complex_)
    b = readings(U, np.diag([1.0, 1.5, 0.5])) + 0.1 * rng.uniform(-0.9, 0.9, 14)
    result = quadsense.solve(U, b, delta=0.1, psd=True, trace=trace)
    assert result.met
    candidates = normal(rng, 3, 3, complex_)
    found = next_probe(result, candidates)
    truth = [semidefinite(U, b - 0.1, b + 0.1, u, trace) for u in candidates]
    assert all(agrees(found.intervals[j], truth[j]) for j in range(3))
    assert found.best == int(np.argmax([each.upper - each.lower for each in truth]))


def test_constraints_see_too(rng):
    U = np.eye(3)[:2]
    plain = quadsense.solve(U, [1.0, 1.0], delta=0.1, psd=True)
    assert next_probe(plain, np.eye(3)[2:], top=0).unseen.tolist() == [1.0]
    known = quadsense.solve(U, [1.0, 1.0], delta=0.1, psd=True, trace=3.0)
    assert next_probe(known, np.eye(3)[2:], top=0).unseen.tolist() == [0.0]


def test_rows_set_aside_see_nothing():
    U = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1]])
    result = quadsense.solve(U, [1.0, 1.0, 9.0, 1.0], delta=0.1, allow_violations=1)
    assert result.set_aside.tolist() == [2]
    found = next_probe(result, [[1.0, 0], [0, 1]])
    assert found.intervals[0].upper == pytest.approx(1.1, rel=1e-2)


def test_where_there_are_no_ranges_the_order_is_by_estimates(rng):
    U, b, delta = planted(rng)
    tight = quadsense.Measurements(U, b, delta=1e-3)
    cases = [
        (quadsense.solve(U, b), None),  # no tolerance
        (quadsense.solve(tight), None),  # infeasible
        (quadsense.solve(U, b, delta=delta), tight),  # which turns out only when ranges are sought
    ]
    for result, data in cases:
        found = next_probe(result, rng.standard_normal((4, 3)), data=data)
        assert found.intervals == {}
        assert found.order.tolist() == np.argsort(-found.estimates).tolist()
        assert "by an estimate" in found.message


def test_a_result_from_a_file_takes_its_data(rng, tmp_path):
    U, b, delta = planted(rng)
    result = quadsense.solve(U, b, delta=delta)
    result.save(tmp_path / "result.npz")
    loaded = quadsense.load_result(tmp_path / "result.npz")
    candidates = rng.standard_normal((3, 3))
    with pytest.raises(ValueError, match="read from a file: give the measurements as data="):
        next_probe(loaded, candidates)
    data = quadsense.Measurements(U, b, delta=delta)
    assert next_probe(loaded, candidates, data=data).best == next_probe(result, candidates).best
    with pytest.raises(ValueError, match="data must be Measurements, got ndarray"):
        next_probe(loaded, candidates, data=U)
    with pytest.raises(ValueError, match="of order 3, but the data have n = 2"):
        next_probe(loaded, candidates, data=quadsense.Measurements(U[:, :2], b))
    with pytest.raises(ValueError, match="top must be a whole number, not negative, got -1"):
        next_probe(result, candidates, top=-1)


# --- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "options", "message"),
    [
        (
            np.ones((2, 4)),
            {},
            r"must have shape \(k, 3\), one probe per row, got \(2, 4\)",
        ),
        (np.ones(3), {}, r"one probe per row, got \(3,\)"),
        (np.ones((0, 3)), {}, r"one probe per row, got \(0, 3\)"),
        ([[1, 2, 3], [1, 2]], {}, "candidates is not a rectangular array"),
        ([["a", "b", "c"]], {}, "candidates must hold numbers"),
        ([[1, 2, 3], [1, np.nan, 1]], {}, "NaN or infinity, first in row 1"),
        ([[1, 2, 3], [0, 0, 0]], {}, "row 1 of candidates is zero"),
        ([[1j, 2, 3]], {}, "candidates are complex, but U is real"),
        (np.ma.masked_array(np.ones((2, 3))), {}, "candidates is a masked array"),
        (np.ones((2, 3)), {"delta": 0.0}, r"delta must be positive, but delta\[0\] is 0.0"),
        (np.ones((2, 3)), {"delta": [1.0] * 3}, r"delta has shape \(3,\).* per row of candidates"),
    ],
)
def test_bad_candidates_are_named(candidates, options, message, rng):
    data = quadsense.Measurements(rng.standard_normal((5, 3)), np.ones(5), delta=0.1)
    with pytest.raises(ValueError, match=message):
        rank_probes(data, candidates, options.get("delta"), 0, no_programs)


def test_candidates_of_every_kind_are_taken(rng):
    data = quadsense.Measurements(rng.standard_normal((4, 3)), np.ones(4), delta=0.1)
    rows = rng.standard_normal((3, 3))
    truth = rank_probes(data, rows, None, 0, no_programs)
    for same in (rows.tolist(), sp.csr_array(rows), array_api_strict.asarray(rows)):
        found = rank_probes(data, same, None, 0, no_programs)
        np.testing.assert_allclose(found.unseen, truth.unseen, atol=1e-12)
