"""Kinds of `quadsense.probes`: bad input, what `check_probes` names, and rows beyond any array."""

import re
import sys

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from generator_structured import difference_rows, kronecker_rows
from helpers import gaussian_rows
from scipy.sparse.linalg import LinearOperator

import quadsense
from quadsense import probes
from quadsense.measurements.sensing import Sensing
from quadsense.methods.low_rank.method import lean_turn
from quadsense.methods.low_rank.program import prepare

PAIRS = [(0, 1), (1, 2)]
F = np.ones((4, 2))


def functions(U):
    return (lambda X: U.conj() @ X), (lambda Y: U.T @ Y)


BAD = {
    "pair too large": (lambda: probes.differences([(0, 1), (1, 3)], 3),
                       r"pairs\[1, 1\] is 3, but must be from 0 to n - 1 = 2, or -1 for none"),
    "first of none": (lambda: probes.differences([(-1, 1)], 3), r"pairs\[0, 0\] is -1, but must"),
    "pair below none": (lambda: probes.differences([(0, -2)], 3), r"pairs\[0, 1\] is -2, but must"),
    "pairs of one": (lambda: probes.differences([0, 1], 3), r"pairs must have shape \(m, 2\)"),
    "pairs of halves": (lambda: probes.differences([(0, 1), (0, 0.5)], 3),
                        r"pairs must hold whole numbers, but pairs\[1, 1\] is 0.5"),
    "pairs of nothing": (lambda: probes.differences([(0, np.nan)], 3), r"pairs\[0, 1\] is nan"),
    "pairs of text": (lambda: probes.differences([("a", "b")], 3), "pairs must hold whole numbers"),
    "no pairs": (lambda: probes.differences(np.zeros((0, 2), int), 3), "pairs is empty"),
    "n of halves": (lambda: probes.differences(PAIRS, 2.5), "n must be a positive whole number"),
    "n text": (lambda: probes.differences(PAIRS, "3"), "n must be a positive whole number"),
    "offsets for others": (lambda: probes.differences(PAIRS, 3, np.ones((3, 2))),
                           r"offsets has shape \(3, 2\).*one row for each of the 2 pairs"),
    "offsets complex": (lambda: probes.differences(PAIRS, 3, 1j * np.ones((2, 2))),
                        "offsets must be real"),
    "offsets not finite": (lambda: probes.differences(PAIRS, 3, [[0.0], [np.inf]]),
                           "offsets contains NaN or infinity, first in row 1"),
    "offsets far away": (lambda: probes.differences(PAIRS, 3, [[0.0], [1e200]]),
                         r"offsets\[1\] is as large as 1e\+200"),
    "factors of another m": (lambda: probes.kronecker([F, F[:3]]),
                             r"factors\[1\] has 3 rows, but factors\[0\] has 4"),
    "factors NaN": (lambda: probes.kronecker([F, [[1, 1], [1, np.nan], [1, 1], [1, 1]]]),
                    r"factors\[1\] contains NaN or infinity, first in row 1"),
    "factors a matrix": (lambda: probes.kronecker(F), r"factors\[0\] must have two dimensions"),
    "factors text": (lambda: probes.kronecker([F, np.array([["a", "b"]] * 4)]),
                     r"factors\[1\] must hold numbers"),
    "factors half": (lambda: probes.kronecker([F.astype(np.float16)]), "float16"),
    "factors none": (lambda: probes.kronecker([]), "factors is empty"),
    "factors a number": (lambda: probes.kronecker(3), "factors must be a sequence of arrays"),
    "factors of two namespaces": (
        lambda: probes.kronecker([F, array_api_strict.asarray(F)]),
        r"factors\[1\] is of another namespace"),
    "stack of lengths": (lambda: probes.stack([F, np.ones((2, 3))]),
                         r"parts\[1\] has rows of length 3, but those of parts\[0\] have 2"),
    "stack of a vector": (lambda: probes.stack([F, np.ones(2)]), r"parts\[1\]: U must have two"),
    "stack of nothing": (lambda: probes.stack([]), "parts is empty"),
    "stack of namespaces": (lambda: probes.stack([F, array_api_strict.asarray(F)]),
                            r"parts\[1\] is of another namespace"),
    "times no function": (lambda: probes.operator(F, F, (4, 2)), "times must be a function"),
    "shape of one": (lambda: probes.operator(*functions(F), 4), r"shape must be a pair \(m, n\)"),
    "shape of zero": (lambda: probes.operator(*functions(F), (4, 0)), r"shape\[1\] \(n\) must be"),
    "rounding large": (lambda: probes.operator(*functions(F), (4, 2), rounding=2.0),
                       "rounding must be a relative error"),
    "dtype of whole numbers": (lambda: probes.operator(*functions(F), (4, 2), dtype=int),
                               "dtype must be float or complex"),
    "norms negative": (lambda: probes.operator(*functions(F), (4, 2), norms=[1, 1, -1, 1]),
                       r"norms\[2\] must not be negative"),
    "norms of others": (lambda: probes.operator(*functions(F), (4, 2), norms=[1.0]),
                        r"norms has shape \(1,\)"),
    "wrong shape returned": (
        lambda: quadsense.solve(probes.operator(lambda X: X, lambda Y: Y, (4, 2)), np.ones(4)),
        r"the operator's times returned an array of shape \(2, 2\), but must return \(4, 2\)"),
    "NaN returned": (
        lambda: quadsense.solve(probes.operator(*functions(np.nan * F), (4, 2)), np.ones(4)),
        "row 0 of the operator contains NaN or infinity"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_one_sentence(case):
    make, words = BAD[case]
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


# --- check_probes ----------------------------------------------------------------------------

U = gaussian_rows(np.random.default_rng(0), 30, 6, True)
TIMES, COMBINE = functions(U)


def made(times=TIMES, combine=COMBINE, **named):
    return probes.operator(times, combine, (30, 6), **{"dtype": complex, **named})


WRONG = {
    "rows conjugated": (made(times=lambda X: U @ X), "combine is the adjoint of times except "),
    "sums conjugated": (made(combine=lambda Y: U.conj().T @ Y), "except for a conjugate"),
    "twice": (made(combine=lambda Y: 2 * U.T @ Y), "combine is 2 times the adjoint of times"),
    "a bit more": (made(combine=lambda Y: 1.0001 * U.T @ Y), "combine is 1.0001 times the adjoint"),
    "another order": (made(combine=lambda Y: U[::-1].T @ Y), "combine is not the adjoint of times"),
    "antilinear": (made(times=lambda X: U.conj() @ X.conj()), "times is antilinear"),
    "moduli": (made(times=lambda X: np.abs(U.conj() @ X)), "times is not linear"),
    "single": (
        made(times=lambda X: (U.conj() @ X).astype(np.complex64)),
        "times errs by .* in",
    ),
    "norms": (made(norms=np.ones(30)), "the norm of row 0 is .*, but is said to be 1"),
    "norms nearly": (made(norms=np.linalg.norm(U, axis=1) * (1 + 1e-9)), "the norm of row 0"),
    "shape": (made(times=lambda X: TIMES(X)[1:]), "a product failed: .*times returned an array of"),
    "type": (made(dtype=float), "times returned complex numbers, but its dtype is real"),
    "not finite": (
        made(times=lambda X: TIMES(X) + np.nan),
        "times of finite numbers is not",
    ),
    "linear operator": (
        LinearOperator((30, 6), matvec=lambda x: U @ x, rmatvec=lambda y: U.T @ y, dtype=complex),
        "rmatvec is the adjoint of matvec except for a conjugate",
    ),
    "linear operator that fails": (
        LinearOperator((30, 6), matvec=lambda x: 1 / 0, rmatvec=lambda y: U.T @ y, dtype=complex),
        "a product failed: ZeroDivisionError: division by zero",
    ),
    "linear operator of another shape": (
        LinearOperator((30, 6), matvec=lambda x: x, rmatvec=lambda y: U.T @ y, dtype=complex),
        "a product failed: ValueError: .*shape",
    ),
    "linear operator that is not finite": (
        LinearOperator(
            (30, 6), matvec=lambda x: U @ x + np.nan, rmatvec=lambda y: U.T @ y, dtype=complex
        ),
        "matvec of finite numbers is not finite, first in row 0",
    ),
    "linear operator without adjoint": (
        LinearOperator((30, 6), matvec=lambda x: U @ x, dtype=complex),
        "a product failed: ValueError: U is an operator whose rmatvec is not implemented",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_an_operator_is_named(case):
    op, words = WRONG[case]
    report = quadsense.check_probes(op)
    assert not report
    assert re.search(words, report.problems[0]), report
    assert repr(report).startswith("<ProbesReport not sound: ")
    assert (report.m, report.n) == (30, 6)


def test_a_take_that_is_another_row_is_named():
    class Off(probes.Probes):
        m, n = 30, 6

        def times(self, X):
            return U.real @ X

        def combine(self, Y):
            return U.real.T @ Y

        def take(self, index):
            return U.real[(np.asarray(index) + 1) % 30]

    assert quadsense.check_probes(Off()).problems[0].startswith("take returns another row 0")


def test_a_stated_rounding_is_enough():
    def narrow(product):
        return lambda X: product(X).astype(np.complex64)

    sound = made(narrow(TIMES), narrow(COMBINE), rounding=1e-6)
    report = quadsense.check_probes(sound)
    assert report.sound and 1e-9 < report.error < 1e-6
    assert "30 complex rows of length 6" in repr(report)


def test_kinds_are_sound(rng):
    for given in (
        U, U.real, sp.csr_array(U), made(),
        probes.differences([(0, 1), (2, -1), (1, 1)], 5, rng.standard_normal((3, 2))),
        probes.kronecker([gaussian_rows(rng, 20, d, True) for d in (2, 3, 4)]),
        probes.kronecker([array_api_strict.asarray(rng.standard_normal((20, 2)))] * 3),
        probes.stack([U, probes.differences(PAIRS, 6), made()]),
    ):  # fmt: skip
        report = quadsense.check_probes(given)
        assert report.sound, report


# --- the rows themselves ---------------------------------------------------------------------


def test_differences_of_one_node_and_rows_of_nothing(rng):
    pairs = [(0, 0), (2, -1), (1, 2), (3, 3)]
    offsets = np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [3.0, 0.0]])
    for given, rows in (
        (probes.differences(pairs, 4), difference_rows(pairs, 4)),
        (probes.differences(pairs, 4, offsets), difference_rows(pairs, 4, offsets)),
    ):
        X, Y = rng.standard_normal((rows.shape[1], 3)), rng.standard_normal((4, 3))
        np.testing.assert_allclose(given.times(X), rows @ X, atol=1e-14)
        np.testing.assert_allclose(given.combine(Y), rows.T @ Y, atol=1e-14)
        np.testing.assert_array_equal(given.take([3, 0]), rows[[3, 0]])
        np.testing.assert_array_equal(given.U.toarray(), rows)
        A = X @ X.T
        np.testing.assert_allclose(given.forward(A), np.sum((rows @ X) ** 2, axis=1), atol=1e-12)
        np.testing.assert_allclose(given.squared_columns(Y[:, 0]), Y[:, 0] @ rows**2, atol=1e-14)
        np.testing.assert_allclose(given.held_norms, np.linalg.norm(rows, axis=1), rtol=1e-15)


@pytest.mark.parametrize("shapes", [(2, 2, 2), (3, 1, 4), (5,), (1, 1), (2, 7)])
@pytest.mark.parametrize("complex_", [False, True])
def test_products_of_any_widths(rng, shapes, complex_):
    factors = [gaussian_rows(rng, 9, d, complex_) for d in shapes]
    given, rows = probes.kronecker(factors), kronecker_rows(factors)
    n = rows.shape[1]
    X, Y = gaussian_rows(rng, n, 2, complex_), gaussian_rows(rng, 9, 2, complex_)
    np.testing.assert_allclose(given.times(X), rows.conj() @ X, atol=1e-12)
    np.testing.assert_allclose(given.combine(Y), rows.T @ Y, atol=1e-12)
    np.testing.assert_allclose(given.block(2, 5), rows[2:5], atol=1e-13)
    given._halves = None  # as where there is no room for them
    np.testing.assert_allclose(given.times(X), rows.conj() @ X, atol=1e-12)


def test_factors_beyond_the_range_of_squares_are_products_all_the_same(rng):
    factors = rng.standard_normal((3, 8, 2)) * np.array([1e-120, 1e130, 1e-140])[:, None, None]
    factors[1, 3] = 0.0
    data = quadsense.Measurements(probes.kronecker(factors), np.zeros(8), delta=1.0)
    mild = quadsense.Measurements(kronecker_rows(factors * [[[1e120]], [[1e-130]], [[1e140]]]),
                                  np.zeros(8), delta=1.0)  # fmt: skip
    A = np.eye(8) + 0.1
    with np.errstate(under="ignore"):
        np.testing.assert_allclose(
            data.unit_rows.forward(A), mild.unit_rows.forward(A), rtol=1e-12, atol=1e-15
        )
    norms = mild.unit_rows.norms * 1e-130
    np.testing.assert_allclose(data.unit_rows.norms, norms, rtol=1e-12)


def test_measurements_of_differences_are_written_as_sparse_rows(tmp_path):
    given = probes.differences([(0, 1), (1, 2), (2, -1)], 3)
    quadsense.Measurements(given, [1.0, 2.0, 3.0], delta=0.1).save(tmp_path / "network.npz")
    again = quadsense.Measurements.open(tmp_path / "network.npz")
    rows = difference_rows([(0, 1), (1, 2), (2, -1)], 3)
    np.testing.assert_array_equal(again.rows(), rows)
    with pytest.raises(ValueError, match=r"kronecker.*cannot be written"):
        quadsense.Measurements(probes.kronecker([F, F]), np.ones(4)).save(tmp_path / "no.npz")


def test_two_differences_and_two_products_are_compared_by_what_they_hold(rng):
    f = rng.standard_normal((2, 4, 2))
    one, two = Sensing(probes.kronecker(f)), Sensing(probes.kronecker(f.copy()))
    assert one.same_as(two) and not one.same_as(Sensing(probes.kronecker(2.0 * f)))
    one, two = (Sensing(probes.differences(PAIRS, 3)) for _ in range(2))
    assert one.same_as(two) and not one.same_as(Sensing(probes.differences(PAIRS[::-1], 3)))
    moved = Sensing(probes.differences(PAIRS, 3, np.ones((2, 1))))
    assert not one.same_as(moved) and not moved.same_as(one)


def test_a_result_on_structured_probes_is_saved_by_its_coefficients(rng, tmp_path):
    """A dense A would lose digits where they cancel, and take a hundred times the space."""
    kron = probes.kronecker([rng.standard_normal((6, 32)) for _ in range(2)])
    b = rng.standard_normal(6)
    result = quadsense.solve(kron, b, delta=0.1)
    result.save(tmp_path / "result.npz")
    assert (tmp_path / "result.npz").stat().st_size < 2**17
    again = quadsense.load_result(tmp_path / "result.npz")
    assert again.verify(kron, b)
    np.testing.assert_allclose(again.A, result.A, rtol=0.0, atol=1e-12)


# --- what is claimed of the user's own functions ---------------------------------------------


def test_a_claim_says_what_it_takes_for_granted_of_an_operator(rng, tmp_path):
    rows = rng.standard_normal((12, 4))
    b = np.sum(rows**2, axis=1) + 1e-3 * rng.standard_normal(12)
    op = probes.operator(*functions(rows), rows.shape, rounding=1e-6)
    result = quadsense.solve(op, b, delta=0.01)
    assert "met: " in result.message and ", given operator error up to 1e-06. " in result.message
    result.save(tmp_path / "result.npz")
    again = quadsense.load_result(tmp_path / "result.npz")
    assert again.message == result.message
    # By the operator, and by the rows themselves; not by an operator that says other things.
    assert again.verify(op, b) and again.verify(rows, b)
    assert not again.verify(probes.operator(*functions(rows), rows.shape, rounding=1e-9), b)
    products = (lambda x: rows @ x), (lambda y: rows.T @ y)
    plain = quadsense.solve(LinearOperator(rows.shape, *products), b, delta=0.01)
    assert "given an operator as exact as inner products" in plain.message
    assert "given" not in quadsense.solve(rows, b, delta=0.01).message
    bent = b + 5.0 * rng.standard_normal(12)
    refused = quadsense.solve(op, bent, delta=0.01)
    assert refused.status == "infeasible" and "given operator error" in refused.message
    assert "given operator error" in quadsense.solve(op, bent).message


def test_an_operator_too_inexact_for_the_tolerance_is_not_certified(rng):
    rows = rng.standard_normal((12, 4))
    b = np.sum(rows**2, axis=1)
    op = probes.operator(*functions(rows), rows.shape, rounding=1e-3)
    result = quadsense.solve(op, b, delta=1e-6)
    assert not result.met and result.status != "met"
    assert quadsense.solve(op, b, delta=0.5).met


def test_functions_are_never_asked_for_no_columns(rng):
    rows = rng.standard_normal((6, 3))
    op = probes.operator(*functions(rows), rows.shape)
    assert op.times(np.zeros((3, 0))).shape == (6, 0)
    assert op.combine(np.zeros((6, 0))).shape == (3, 0)
    looks = LinearOperator(rows.shape, lambda x: rows @ x, lambda y: rows.T @ y)
    kind = quadsense.Measurements(looks, np.ones(6)).unit_rows.kind
    assert kind.times(np.zeros((3, 0))).shape == (6, 0)


# --- factors whose images are not held -------------------------------------------------------


def grid(side):
    """Three pairs per node, and readings of a matrix of rank 2."""
    place = np.arange(side * side)
    steps = (1, side, side + 1)
    pairs = np.concatenate([np.stack([place, (place + s) % place.size], axis=1) for s in steps])
    given = probes.differences(pairs, place.size)
    X = np.random.default_rng(0).standard_normal((place.size, 2))
    return given, pairs, np.sum(given.times(X) ** 2, axis=1)


def test_a_lean_descent_meets_what_a_plain_one_does(monkeypatch):
    given, pairs, b = grid(12)
    asked = {"delta": 0.5, "rank": 3, "prefer": "any", "rng": 0}
    assert quadsense.solve(given, b, **asked).met
    monkeypatch.setattr("quadsense.methods.low_rank.method.LEAN_BYTES", 0)
    monkeypatch.setattr("quadsense.arrays.LONG", 4)  # one tolerance is one number
    monkeypatch.setattr(sys.modules["quadsense.probes.differences"], "GATHERED_ROWS", 50)
    result = quadsense.solve(given, b, **asked)
    assert result.met and result.verify(given, b)
    rows = difference_rows(pairs, given.n)
    read = np.sum((rows @ np.asarray(result.matrix.factor)) ** 2, axis=1)
    assert np.all(np.abs(read - b) <= 0.5)
    again = quadsense.solve(given, b, **asked)
    np.testing.assert_array_equal(again.matrix.factor, result.matrix.factor)
    few = quadsense.solve(given, b, **asked, max_iter=3)
    assert few.status == "max_iter" and not few.met


def rows_in_turn(rows, X, b, delta, theta, beyond):
    """The same as printed: a projection of X for each row that is too far off."""
    seen, loss = [], 0.0
    for v, reading, width in zip(rows, b, delta, strict=True):
        p = X.T @ v
        read = p @ p
        excess = max(abs(read - reading) - theta * width, 0.0)
        seen.append(abs(read - reading) / width)
        loss += 0.5 * (excess / width) ** 2
        if excess > 0.0 and read > 0.0:
            aim = max(read - np.copysign(excess, read - reading), 0.0)
            X = X + beyond * np.outer(v, (np.sqrt(aim / read) - 1.0) * p)
    return X, loss, max(seen)


@pytest.mark.parametrize("known", [0, 2])
@pytest.mark.parametrize("beyond", [0.0, 1.0, 1.9])
def test_rows_in_turn_are_projections_one_after_the_other(monkeypatch, rng, known, beyond):
    monkeypatch.setattr(sys.modules["quadsense.probes.differences"], "MAX_ROWS_IN_TURN", 7)
    n, m, k = 9, 30, 3
    pairs = np.stack([rng.integers(0, n, m), rng.integers(-1, n, m)], axis=1)
    pairs[3] = 4, 4  # a row of zeros, where there is no offset
    offsets = rng.standard_normal((m, known)) if known else None
    kind = probes.differences(pairs, n, offsets=offsets)
    F = Sensing(kind)
    b, delta = rng.uniform(-0.2, 2.0, m), rng.uniform(0.1, 0.5, m)
    X = rng.standard_normal((kind.n, k))
    rows = np.array([row / (np.linalg.norm(row) or 1.0) for row in kind.block(0, m)])
    moved = X.copy()
    value, worst = F.in_turn(moved, b, delta, 0.9, beyond, 0.0)
    expected, loss, most = rows_in_turn(rows, X, b, delta, 0.9, beyond)
    np.testing.assert_allclose(moved, expected, rtol=1e-11, atol=1e-12)
    assert value == pytest.approx(loss, rel=1e-11) and worst == pytest.approx(most, rel=1e-11)
    assert np.array_equal(moved, X) == (beyond == 0.0)


def test_a_row_alone_is_met_by_its_projection_and_no_nearer_factor_meets_it():
    kind = probes.differences([(0, 1)], 2)
    X = np.array([[3.0, 0.0], [0.0, 1.0]])
    before = X.copy()
    F = Sensing(kind)
    F.in_turn(X, np.array([2.0]), np.array([0.5]), 1.0, 1.0, 0.0)
    p = (X[0] - X[1]) / np.sqrt(2.0)
    assert p @ p == pytest.approx(2.5, rel=1e-14)
    # The image moves from length sqrt(5) to sqrt(2.5), and X by no more.
    assert np.linalg.norm(X - before) == pytest.approx(np.sqrt(5.0) - np.sqrt(2.5), rel=1e-13)


def test_what_rows_in_turn_cannot_meet_is_begun_again_elsewhere_and_left(monkeypatch):
    """Two readings of one pair: no fit, which turns from every start run into."""
    monkeypatch.setattr("quadsense.methods.low_rank.method.LEAN_BYTES", 0)
    given, pairs, b = grid(6)
    twice = probes.differences(np.concatenate([pairs, pairs[:1]]), given.n)
    readings = np.append(b, b[0] + 1.0)
    home = sys.modules["quadsense.methods.low_rank.method"]
    begun = []

    def counted(*given):
        begun.append(given)
        return lean_start(*given)

    lean_start = home.lean_start
    monkeypatch.setattr(home, "lean_start", counted)
    asked = {"delta": 0.25, "rank": 3, "prefer": "any", "rng": 0, "max_restarts": 2}
    result = quadsense.solve(twice, readings, **asked)
    assert not result.met and result.status in ("stalled", "undecided")
    assert result.max_ratio > 1.0 and len(begun) == 3
    assert quadsense.solve(given, b, **asked).met


def test_a_turn_leaves_the_point_that_it_began_at(rng):
    given, _, b = grid(5)
    program = prepare(Sensing(given), b / 2.0, np.full(b.size, 0.2), 3)
    home = sys.modules["quadsense.methods.low_rank.method"]
    point = home.lean_start(program, rng.standard_normal((3, given.n)), 0.95)
    Y = point.Y.copy()
    moved = lean_turn(program, point, 0.95, 1.0)
    np.testing.assert_array_equal(point.Y, Y)
    assert not np.array_equal(moved.Y, Y) and moved.Y.shape == Y.shape
