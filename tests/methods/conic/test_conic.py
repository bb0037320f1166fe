"""The interior-point kernel against CVXPY, against answers known beforehand, and at its edges."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import questions
from conic_cases import drawn, entropy, least, normal, readings, truth, unit_rows
from helpers import cover, sampled
from scipy.optimize import linprog

from quadsense import SensedMatrix
from quadsense.arrays import to_numpy
from quadsense.core.question import Question
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.methods.conic import system
from quadsense.methods.conic.program import prepare
from quadsense.methods.conic.solve import lower_bound, solve_question
from quadsense.proofs.costs import objective_value
from quadsense.proofs.objective import objective_bound
from quadsense.proofs.rounding import user_dual

ENDED = ("solved", "close")
SEEDS = 240


def asked(rows, lo, hi, weights=1.0, **named):
    """A question on rows of equal weights, none of them hard."""
    m = lo.size
    nothing = np.zeros(m)
    reading = named.pop("reading", nothing)
    hard = named.pop("hard", np.zeros(m, bool))
    return Question(rows, lo, hi, nothing + weights, reading, hard, **named)


def solved(U, question, **named):
    """What the kernel finds, with every floating-point flag an error."""
    with np.errstate(all="raise"):
        return solve_question(Sensing.of(U), question, **named)


def assert_admitted(U, q, found):
    """A is inside of what it must be, as far as rounding goes, and in its cone."""
    v = readings(U, found.A)
    size = 1e-13 * (1.0 + np.linalg.norm(found.A)) * U.shape[1]
    hard, equal = ~q.soft, q.equal & ~q.soft
    assert np.all(np.abs(v - q.lo)[equal] <= 10 * size)
    assert np.all(q.misses(v)[hard & ~equal] == 0.0)
    if q.psd:
        np.testing.assert_allclose(found.X @ found.X.conj().T, found.A, atol=size)


@pytest.mark.parametrize("first", sampled(range(0, SEEDS, 12), 4))
def test_every_kind_of_question_ends_in_the_objective_of_clarabel(first):
    for seed in range(first, first + 12):
        U, q = drawn(seed)
        found = solved(U, q)
        assert found.status in ENDED, seed
        size = 1.0 + abs(found.objective)
        assert found.objective - found.bound <= 1e-6 * size, seed
        assert found.bound <= found.objective + 1e-8 * size, seed
        assert_admitted(U, q, found)
        best = truth(U, q)
        assert best is None or abs(found.objective - best) <= 1e-6 * (1 + abs(best)), seed


@pytest.mark.slow
def test_clarabel_knows_most_of_these_answers():
    known = [truth(*drawn(seed)) is not None for seed in range(0, SEEDS, 7)]
    assert np.mean(known) > 0.75


def known(seed):
    """A question whose best A and y were there first: what is found, and the least objective."""
    case = questions.made(seed)
    q, norms = case.question, np.linalg.norm(case.U, axis=1)
    with np.errstate(all="raise"):
        rows = Sensing.of(case.U / norms[:, None])
        found = solve_question(rows, q.scaled(norms**-2.0))
    shift = 0.0
    if q.rows == "center":  # one logarithm of a squared norm at every end
        ends = np.isfinite(q.lo).astype(int) + np.isfinite(q.hi)
        shift = float(np.sum(2.0 * np.log(norms) * np.where(q.equal, 0, ends)))
    best = float(Fraction(questions.cost(case))) + shift
    return q, found, best, 2e-6 * (1.0 + abs(best))


@pytest.mark.parametrize("seed", sampled([seed for seed in range(80) if seed % 6 > 0]))
def test_answers_known_beforehand_are_found(seed):
    q, found, best, error = known(seed)
    room = not q.hard.any()  # else ends touch A from all sides, and only rounding is between them
    assert found.status in ENDED or not room
    assert found.status not in ENDED or abs(found.objective - best) <= error
    assert found.bound <= best + error


@pytest.mark.parametrize("seed", sampled(range(0, 120, 6)))
def test_where_ends_leave_no_room_nothing_false_is_said(seed):
    _, found, best, error = known(seed)
    assert found.status not in ("infeasible", "unbounded")
    assert found.status == "stalled" or abs(found.objective - best) <= error


def test_the_bound_is_that_of_any_vector():
    """For a y that is not optimal it is lower, and for the best it is the objective."""
    U, q = drawn(1)
    found, F = solved(U, q), Sensing.of(U)
    trace, norm = float(np.trace(found.A).real), float(np.linalg.norm(found.A))
    rng = np.random.default_rng(0)
    best = lower_bound(F, q, found.y, trace, norm)
    assert best == pytest.approx(found.objective, rel=1e-6)
    for _ in range(20):
        other = found.y * rng.uniform(0.5, 1.0, q.m)
        assert lower_bound(F, q, other, trace, norm) < best


@pytest.mark.parametrize(
    ("rows", "scale"),
    cover(
        ["within", "squares", "slack_sum", "slack_max"], [1e-100, 1e-20, 1e-6, 1e6, 1e100], each=2
    ),
)
def test_units_do_not_matter(rows, scale, complex_):
    rng = np.random.default_rng(3)
    U = unit_rows(rng, 30, 4, complex_)
    X = normal(rng, (4, 2), complex_)
    b = readings(U, X @ X.conj().T) + 0.05 * rng.standard_normal(30) * (rows != "within")
    reading = b if rows == "squares" else 0.0 * b
    C = 1.0 if rows in ("within", "slack_sum", "slack_max") else 0.0
    one = asked(rows, b - 0.1, b + 0.1, reading=reading, psd=True, C=C)
    two = asked(rows, scale * (b - 0.1), scale * (b + 0.1), reading=scale * reading, psd=True, C=C)
    here, there = solved(U, one), solved(U, two)
    assert here.status in ENDED and there.status in ENDED
    power = 2 if rows == "squares" else 1
    assert there.objective / scale**power == pytest.approx(here.objective, rel=1e-6)
    np.testing.assert_allclose(there.A / scale, here.A, atol=1e-3 * np.linalg.norm(here.A))


@pytest.mark.parametrize("width", [1e-3, 1e-6, 1e-9, 1e-12])
def test_narrow_intervals_about_a_matrix_on_the_edge_of_the_cone(width, complex_):
    rng = np.random.default_rng(5)
    U = unit_rows(rng, 30, 4, complex_)
    X = normal(rng, (4, 2), complex_)
    A = X @ X.conj().T
    b = readings(U, A)
    found = solved(U, asked("within", b - width, b + width, C=1.0, psd=True))
    assert found.status in ENDED
    assert_admitted(U, asked("within", b - width, b + width, C=1.0, psd=True), found)
    assert abs(found.objective - np.trace(A).real) <= 40 * width + 1e-12


def test_tolerances_of_very_different_size(complex_):
    rng = np.random.default_rng(6)
    U = unit_rows(rng, 40, 4, complex_)
    X = normal(rng, (4, 4), complex_)
    b, delta = readings(U, X @ X.conj().T), 10.0 ** rng.uniform(-8, 0, 40)
    for psd in (False, True):
        q = asked("within", b - delta, b + delta, C=np.eye(4) + 0 * U[0, 0], psd=psd)
        found = solved(U, q)
        assert found.status in ENDED
        assert_admitted(U, q, found)
        assert found.objective - found.bound <= 1e-6 * (1 + abs(found.objective))


def test_rows_given_thrice_ask_for_what_they_ask_for_once(complex_):
    rng = np.random.default_rng(7)
    U = unit_rows(rng, 30, 4, complex_)
    X = normal(rng, (4, 2), complex_)
    b = readings(U, X @ X.conj().T)
    for named in ({"C": 1.0, "psd": True}, {"alpha": 1.0}, {"alpha": 1.0, "psd": True}):
        one = solved(U, asked("within", b - 0.01, b + 0.01, **named))
        thrice = np.tile(b, 3)
        other = solved(np.vstack([U] * 3), asked("within", thrice - 0.01, thrice + 0.01, **named))
        assert other.status in ENDED
        assert other.objective == pytest.approx(one.objective, rel=1e-6)
        held = solved(np.vstack([U] * 3), asked("within", thrice, thrice, **named))
        assert held.status in ENDED  # equalities
        np.testing.assert_allclose(held.A, X @ X.conj().T, atol=1e-9)


def test_rows_of_zeros_cost_what_they_cost_and_prove_it():
    rng = np.random.default_rng(8)
    U = unit_rows(rng, 20, 3, False)
    U[[4, 9]] = 0.0
    X = rng.standard_normal((3, 3))
    b = readings(U, X @ X.T) + 0.02 * rng.standard_normal(20)
    b[4], b[9] = 0.0, 3.0
    for rows in ("slack_sum", "slack_squares", "slack_max"):
        q = asked(rows, b - 0.01, b + 0.01, psd=True)
        found = solved(U, q)
        assert found.status in ENDED
        least = {"slack_sum": 2.99, "slack_squares": 2.99**2, "slack_max": 2.99}[rows]
        assert found.objective >= least * (1 - 1e-12)
        assert found.bound == pytest.approx(found.objective, rel=1e-6)
    assert solved(U, asked("within", b - 0.01, b + 0.01, C=1.0, psd=True)).status == "infeasible"


@pytest.mark.parametrize("psd", [False, True])
def test_what_contradicts_itself_is_not_answered(psd, complex_):
    rng = np.random.default_rng(9)
    U = unit_rows(rng, 30, 4, complex_)
    b = readings(U, np.eye(4))
    lo = np.concatenate([b, b + 1.0])
    for rows in ("within", "squares", "center"):
        q = asked(rows, lo, lo + 0.1, alpha=1.0, psd=psd, weights=float(rows == "squares"))
        assert solved(np.vstack([U, U]), q).status in ("infeasible", "stalled")
    if psd:
        q = asked("within", -b - 1.0, -b - 0.5, C=1.0, psd=True)
        assert solved(U, q).status in ("infeasible", "stalled")


def test_what_has_no_least_objective_is_not_answered():
    rng = np.random.default_rng(10)
    U = unit_rows(rng, 3, 4, False)
    b = readings(U, np.eye(4))
    assert solved(U, asked("within", b - 1, b + 1, C=np.diag([1.0, 2, 3, 4]))).status == "unbounded"
    up = asked("within", b, b + np.inf, C=-1.0 * np.eye(4), psd=True)
    assert solved(U, up).status not in ENDED


@pytest.mark.parametrize("rows", ["within", "squares", "slack_max"])
@pytest.mark.parametrize("psd", [False, True])
def test_without_rows_the_answer_is_the_prior(rows, psd):
    U, nothing = np.zeros((3, 2)), np.zeros(3)
    q = asked(rows, nothing - 1, nothing + 1, weights=0.0, alpha=0.5, prior=2.0, psd=psd)
    found = solved(U, q)
    assert found.status in ENDED
    np.testing.assert_allclose(found.A, 2.0 * np.eye(2), atol=1e-6)


@pytest.mark.parametrize("log_det", [False, True])
def test_what_no_row_sees_is_where_the_objective_wants_it(log_det, complex_):
    """Fewer rows than n: closed form outside of their span."""
    rng = np.random.default_rng(11)
    U = unit_rows(rng, 3, 6, complex_)
    b = np.full(3, 2.0)
    rows = "center" if log_det else "within"
    q = asked(rows, b - 0.1, b + 0.1, alpha=0.5, prior=0.7, C=0.2, psd=True, log_det=log_det)
    found = solved(U, q)
    assert found.status in ENDED
    assert found.bound == pytest.approx(found.objective, rel=1e-6)
    best = truth(U, q)
    assert best is not None and found.objective == pytest.approx(best, rel=1e-6)


def test_several_c_share_the_rows_and_the_start():
    rng = np.random.default_rng(12)
    U = unit_rows(rng, 60, 4, False)
    A = rng.standard_normal((4, 4))
    b = readings(U, A + A.T)
    q = asked("within", b - 0.1, b + 0.1, C=np.eye(4))
    program = prepare(Sensing.of(U), q)
    centre = solved(U, replace(q, C=0.0, rows="center"))
    for C in (np.eye(4), -np.eye(4), np.diag([1.0, 0, 0, 0]), 1e6 * A @ A.T):
        with np.errstate(all="raise"):
            shared = solve_question(program.with_linear(C), start=centre.A)
        alone = solved(U, replace(q, C=C))
        assert shared.status in ENDED and alone.status in ENDED
        assert shared.objective == pytest.approx(alone.objective, rel=1e-6)


def test_sums_of_rows_are_rows(complex_):
    """`Mixed`: the same question on differences of rows, against Clarabel's on their matrices."""
    rng = np.random.default_rng(13)
    raw = unit_rows(rng, 25, 3, complex_)
    W = rng.standard_normal((14, 25)) * (rng.random((14, 25)) < 0.3) + np.eye(14, 25)
    F = Mixed.over(Sensing.of(raw), W)
    F = Mixed(Sensing.of(raw), W, F.norms, np.ones(14))
    X = normal(rng, (3, 2), complex_)
    b = W @ readings(raw, X @ X.conj().T)
    for named in ({"C": 1.0}, {"alpha": 1.0, "prior": 0.3}):
        for rows in ("within", "squares", "slack_sum", "slack_max", "slack_squares"):
            reading = b + 0.02 if rows == "squares" else 0.0 * b
            q = asked(rows, b - 0.03, b + 0.01, reading=reading, psd=True, **named)
            with np.errstate(all="raise"):
                found = solve_question(F, q)
            assert found.status in ENDED
            assert found.objective - found.bound <= 1e-6 * (1 + abs(found.objective))
            assert found.bound <= found.objective + 1e-12


def entropy_errors(seed):
    """How far objective and bound, both recomputed, are from Clarabel's answer, relatively.

    None where Clarabel has none.
    """
    case = entropy(seed)
    data, q = case.data, case.question
    norms = to_numpy(data.unit_rows.norms)
    with np.errstate(all="raise", under="ignore"):
        found = solve_question(data.unit_rows.on_numpy(), q.scaled(norms**-2.0))
    assert found.status == "solved", seed
    v = to_numpy(data.forward(found.A))
    room = 1e-13 * norms**2 * (1.0 + np.linalg.norm(found.A))
    assert np.all(q.misses(v) <= room), seed
    value = objective_value(q, SensedMatrix.from_dense(found.A), v, room)
    size = float(np.linalg.norm(found.A))
    bound = objective_bound(data, q, user_dual(data, found.y), size=size)
    assert bound.condition == "", seed
    assert bound.value <= value.value + value.error, seed
    best = least(case.matrices, q)
    if best is None:
        return None
    return np.abs(np.array([value.value, bound.value]) - best) / (1.0 + abs(best))


def test_least_squares_with_a_determinant_end_in_the_objective_of_clarabel():
    for seed in range(8):
        assert np.all(entropy_errors(seed) <= 1e-6), seed


@pytest.mark.slow
def test_a_hundred_of_least_squares_with_a_determinant_do():
    errors = [entropy_errors(seed) for seed in range(102)]
    known = [error for error in errors if error is not None]
    assert len(known) >= 100  # Clarabel gives up on few
    assert np.max(known) <= 1e-6


def noisy(n, m, rank, width, seed=0):
    """Rows, and least squares with a determinant on readings of a Wishart matrix within ends."""
    rng = np.random.default_rng(seed)
    U, X = unit_rows(rng, m, n, False), rng.standard_normal((n, rank))
    b = readings(U, X @ X.T / n)
    delta = np.full(m, width * float(np.mean(b)))
    b = b + rng.uniform(-1.0, 1.0, m) * delta
    weights = 1.5 / (0.1 * delta * delta)
    C = 1.0 / float(np.mean(b))
    return U, asked(
        "squares", b - delta, b + delta, weights, reading=b, C=C, psd=True, log_det=True
    )


def without_ends(q):
    """The same question, with readings unbounded."""
    return replace(q, lo=np.full(q.m, -np.inf), hi=np.full(q.m, np.inf))


def test_ends_that_squares_do_not_reach_cost_no_step():
    U, q = noisy(30, 200, 60, 1e-3)
    with_ends, without = solved(U, q), solved(U, without_ends(q))
    assert with_ends.iterations == without.iterations <= 4
    np.testing.assert_array_equal(with_ends.A, without.A)


def test_ends_that_squares_would_cross_hold():
    U, q = noisy(6, 40, 6, 0.3)
    q = replace(q, weights=1e-3 * q.weights)
    free, found = solved(U, without_ends(q)), solved(U, q)
    assert np.any(q.misses(readings(U, free.A)) > 0.0)
    assert found.status == "solved"
    assert_admitted(U, q, found)
    assert found.objective == pytest.approx(truth(U, q), rel=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_truths_of_low_rank_take_few_steps(rank):
    U, q = noisy(30, 400, rank, 1e-3)
    found = solved(U, without_ends(q), gap=0.01)
    assert found.status == "solved"
    assert found.iterations <= 13


@pytest.mark.parametrize("width", [1e-7, 1e-6, 1e-5])
def test_readings_that_are_nearly_exact_leave_digits_to_their_multipliers(width):
    for seed in range(3):
        U, q = noisy(12, 78, 24, width, seed)
        found = solved(U, q, gap=0.01)
        assert found.status == "solved"
        assert found.objective - found.bound <= 0.01


@pytest.mark.parametrize("named", [{"C": 1.0, "psd": True}, {"alpha": 1.0}], ids=str)
def test_single_precision_of_the_factors_is_not_seen(named, monkeypatch):
    rng = np.random.default_rng(9)
    U, X = unit_rows(rng, 300, 30, False), rng.standard_normal((30, 30))
    b = readings(U, X @ X.T)
    U, b = np.vstack([U, U[:40]]), np.append(b, b[:40])  # K is singular
    q = asked("within", b - 0.01, b + 0.01, **named)
    found = solved(U, q)
    monkeypatch.setattr(system, "MIN_SINGLE_ORDER", 10**9)
    double = solved(U, q)
    assert found.status in ENDED and double.status in ENDED
    assert found.objective == pytest.approx(double.objective, rel=1e-6)


def test_a_wider_gap_takes_fewer_steps_and_is_kept():
    U, q = drawn(54)
    close, wide = solved(U, q), solved(U, q, gap=0.01)
    assert wide.iterations < close.iterations
    assert wide.objective - wide.bound <= 0.01 * abs(wide.objective)


def test_largest_miss_begins_with_multipliers_that_balance_and_proves_it_in_few_steps():
    rng = np.random.default_rng(2)
    U, b = unit_rows(rng, 1000, 6, False), rng.standard_normal(1000)
    q = asked("slack_max", b, b)
    found = solved(U, q, gap=0.01)
    assert found.status == "solved"
    assert found.iterations <= 5
    G = np.array([np.outer(u, u.conj()).real[np.triu_indices(6)] for u in U])
    G *= np.where(np.equal(*np.triu_indices(6)), 1.0, 2.0)
    ones = np.ones((1000, 1))
    best = linprog(
        np.append(np.zeros(21), 1.0),
        np.block([[G, -ones], [-G, -ones]]),
        np.concatenate([b, -b]),
        bounds=(None, None),
    )
    assert found.bound <= best.fun * (1.0 + 1e-9) <= found.objective * (1.0 + 2e-9)
    assert found.objective - found.bound <= 0.01 * found.objective
