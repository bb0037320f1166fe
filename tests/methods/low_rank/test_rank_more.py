"""Low rank beyond the positive semidefinite and two-sided: against planted truth in plain NumPy."""

import dataclasses
import re
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from helpers import deep, sampled
from localization import network

import quadsense
from quadsense import SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.low_rank.passes import evaluate
from quadsense.methods.low_rank.program import FactorBounds, asked, prepare, weights_by_level
from quadsense.methods.low_rank.rest import Trusted, is_settled, model_of, settled
from quadsense.methods.low_rank.starts import random_start
from quadsense.methods.low_rank.steps import jacobian, normal_equations
from quadsense.proofs.rounding import enclosure

INERTIAS = [(1, 0), (2, 0), (1, 1), (2, 2), (0, 1), (2, 1)]


@pytest.fixture(autouse=True)
def _errors_raise():
    with np.errstate(all="raise"):
        yield


class Planted:
    """Rows, and a matrix of given signs with what it reads."""

    def __init__(self, n, plus, minus, m, seed, complex_=False, density=1.0, scale=1.0):
        self.rng = np.random.default_rng(seed)
        self.complex = complex_
        U = self.draw(m, n) * (self.rng.random((m, n)) < density)
        U[np.all(U == 0, axis=1), 0] = 1.0
        self.U, self.size = U, plus + minus
        signs = np.concatenate([np.ones(plus), -np.ones(minus)])
        X = self.draw(n, plus + minus)
        self.A = scale * (X * signs) @ X.conj().T
        self.values = readings(U, self.A)
        self.largest = float(np.abs(self.values).max())

    def draw(self, *shape):
        real = self.rng.standard_normal(shape)
        return real + 1j * self.rng.standard_normal(shape) if self.complex else real


def readings(U, A):
    return np.einsum("ij,jk,ik->i", U.conj(), np.asarray(A), U).real


def inertia(A, share=1e-9):
    values = np.linalg.eigvalsh(np.asarray(A))
    floor = share * np.abs(values).max()
    return int((values > floor).sum()), int((values < -floor).sum())


def at_most(found, asked_for):
    return found[0] <= asked_for[0] and found[1] <= asked_for[1]


# --- a factor with signs -----------------------------------------------------------------------


@pytest.mark.parametrize("complex_", [False, True])
def test_a_factor_with_signs_is_the_matrix_it_says(complex_):
    p = Planted(7, 2, 1, 5, 0, complex_)
    X, signs = p.draw(7, 3), [1, -1, 1]
    A, dense = SensedMatrix.from_factor(X, signs), (X * signs) @ X.conj().T
    np.testing.assert_allclose(A.to_dense(), dense, atol=1e-13)
    np.testing.assert_allclose(A @ X, dense @ X, atol=1e-12)
    np.testing.assert_allclose(A.quadratic(p.U), readings(p.U, dense), atol=1e-12)
    np.testing.assert_allclose(A.diagonal(), np.diagonal(dense).real, atol=1e-13)
    assert A.trace() == pytest.approx(np.trace(dense).real, abs=1e-12)
    assert A.norm() == pytest.approx(np.linalg.norm(dense), rel=1e-13)
    values = np.linalg.eigvalsh(dense)
    np.testing.assert_allclose(A.eigsh(1, "SA")[0], values[:1], rtol=1e-10)
    np.testing.assert_allclose(A.eigsh(1, "LA")[0], values[-1:], rtol=1e-10)
    assert A.form.inertia == (2, 1)
    assert list(A.signs) == signs
    assert SensedMatrix.from_factor(X, [1, 1, 1]).signs is None


@pytest.mark.parametrize("signs", [[1, -1], [1, 0, 1], [1, 2, -1], [[1, 1, 1]]])
def test_signs_that_are_none_are_refused(signs):
    with pytest.raises(ValueError, match="signs must be 3 numbers, each 1 or -1"):
        SensedMatrix.from_factor(np.ones((4, 3)), signs)


def test_rounding_of_a_factor_with_signs_is_enclosed():
    rng = np.random.default_rng(0)
    for _ in range(20):
        U = rng.standard_normal((6, 4))
        X = rng.standard_normal((4, 3)) * 10.0 ** rng.integers(-3, 4, 3)
        # Two columns that nearly cancel: what is left is small compared with what rounds.
        X[:, 1] = X[:, 0] * (1.0 + 1e-12)
        rows = quadsense.Measurements(U, np.zeros(6)).unit_rows
        found = enclosure(SensedMatrix.from_factor(X, [1, -1, 1]), rows, np.zeros(6))
        exact = [[Fraction(float(x)) for x in row] for row in X]
        for i, u in enumerate(rows.rows()):
            parts = [sum(Fraction(float(u[j])) * exact[j][k] for j in range(4)) for k in range(3)]
            truth = parts[0] ** 2 - parts[1] ** 2 + parts[2] ** 2
            assert abs(Fraction(float(found.z[i])) - truth) <= Fraction(float(found.error[i]))


# --- indefinite --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signs", "complex_"),
    [((1, 1), False), deep((1, 1), True), deep((2, 2), False), deep((2, 2), True)],
)
def test_every_one_of_twenty_indefinite_matrices_is_found(signs, complex_):
    n = 12
    unknowns = n * sum(signs) * (2 if complex_ else 1)
    for seed in range(20):
        p = Planted(n, *signs, 3 * unknowns, seed, complex_)
        delta = 1e-5 * p.largest
        result = quadsense.solve(p.U, p.values, delta=delta, rank=signs, rng=seed)
        assert result.status == "met", (seed, result.message)
        assert np.abs(readings(p.U, result.A) - p.values).max() <= delta
        assert at_most(inertia(result.A), signs)
        assert result.verify(p.U, p.values)
        assert np.linalg.norm(result.A - p.A) <= 1e-3 * np.linalg.norm(p.A)


def test_a_pair_without_minus_is_the_rank_alone():
    p = Planted(8, 2, 0, 60, 1)
    pair = quadsense.solve(p.U, p.values, delta=1e-6, rank=(2, 0), rng=0)
    alone = quadsense.solve(p.U, p.values, delta=1e-6, rank=2, rng=0)
    assert np.array_equal(pair.A, alone.A)
    assert pair.certificate.psd and pair.matrix.signs is None


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_complex"), [(3, False), deep(0, True), deep(3, True)])
def test_attempts_that_end_alike_are_not_repeated_two_hundred_times(seed, is_complex):
    """The readings are of a definite matrix, which no matrix with these signs has."""
    p = Planted(3, 2, 0, 12, seed, is_complex)
    result = quadsense.solve(p.U, p.values, delta=1e-4 * p.largest, rank=(1, 1), rng=0)
    assert result.status == "stalled"
    starts = int(re.search(r"No fit found from (\d+) starts", result.message)[1])
    assert 20 < starts < 40


def test_the_answer_to_nothing_has_the_signs_asked_for():
    bounds = (np.array([-np.inf, -np.inf]), np.array([1.0, 2.0]))
    for prefer in ("any", "least_squares"):
        result = quadsense.solve(np.zeros((2, 3)), bounds=bounds, rank=(2, 1), prefer=prefer)
        assert result.status == "met" and result.matrix.form.inertia == (2, 1)
        assert result.verify(np.zeros((2, 3)), bounds=bounds)


def test_the_inertia_that_was_asked_for_is_checked():
    p = Planted(6, 1, 1, 60, 0)
    result = quadsense.solve(p.U, p.values, delta=1e-6 * p.largest, rank=(1, 1), rng=0)
    assert result.verify(p.U, p.values)
    claim = result.certificate
    assert claim.signs == (1, 1) and claim.rank == 2 and not claim.psd
    for signs in ((2, 0), (0, 2), (0, 1), (1, 0)):
        assert not dataclasses.replace(claim, signs=signs).verify(p.U, p.values)
    # The same matrix in another form: its eigenvalues are counted.
    dense = SensedMatrix.from_dense(np.asarray(result.A))
    assert dataclasses.replace(claim, matrix=dense).verify(p.U, p.values)
    tilted = SensedMatrix.from_dense(np.asarray(result.A) + 1e-8 * p.largest * np.eye(6))
    assert not dataclasses.replace(claim, matrix=tilted).verify(p.U, p.values)
    wrong = SensedMatrix.from_factor(result.matrix.factor, [1, 1])
    assert not dataclasses.replace(claim, matrix=wrong).verify(p.U, p.values)


def test_an_earlier_answer_with_signs_is_a_start():
    p = Planted(20, 2, 1, 300, 3)
    first = quadsense.solve(p.U, p.values, delta=1e-6 * p.largest, rank=(2, 1), rng=0)
    again = quadsense.solve(
        p.U, p.values, delta=1e-6 * p.largest, rank=(2, 1), start=first, rng=0, prefer="any"
    )
    assert (first.status, again.status, again.n_iter) == ("met", "met", 0)


# --- all kinds together ------------------------------------------------------------------------


def options(p, rng, seed):
    """Intervals around what is read, in one of several forms, and what goes with them."""
    m = p.U.shape[0]
    noise = p.largest * 10.0 ** rng.uniform(-5, -1)
    form = ("delta", "bounds", "one-sided", "uneven")[seed % 4]
    if form == "delta":
        b = p.values + noise * rng.uniform(-0.9, 0.9, m)
        given, lo, hi = {"b": b, "delta": noise}, b - noise, b + noise
    elif form == "uneven":
        delta = p.largest * 10.0 ** rng.uniform(-7, -1, m)
        b = p.values + delta * rng.uniform(-0.9, 0.9, m)
        given, lo, hi = {"b": b, "delta": delta}, b - delta, b + delta
    else:
        lo = p.values - noise * (0.01 + rng.random(m))
        hi = p.values + noise * (0.01 + rng.random(m))
        if form == "one-sided":
            side = rng.random(m)
            lo[side < 0.3], hi[side > 0.7] = -np.inf, np.inf
        given = {"bounds": (lo, hi)}
    return given, lo, hi


@pytest.mark.parametrize("seed", sampled([0, 1, 3, 4, 5, 7, 8, 10, 2, 6, 9, 11, *range(12, 48)], 8))
def test_planted_matrices_are_met_in_every_combination(seed, tmp_path):
    rng = np.random.default_rng(seed + 1000)
    plus, minus = INERTIAS[seed % 6]
    complex_, n = bool(seed % 5 % 2), int(rng.integers(max(plus + minus, 2), 11))
    m = int(n * (plus + minus) * (1 + complex_) * rng.choice([1, 2, 4])) + 2
    sparse, mixed = bool(rng.integers(2)), bool(rng.integers(3) == 0)
    p = Planted(n, plus, minus, m, seed, complex_, 0.4 if sparse else 1.0, 10.0 ** (seed % 3 - 1))
    W = None
    if mixed:
        W = np.eye(m) + rng.standard_normal((m, m)) * (rng.random((m, m)) < 0.2)
        p.values = W @ p.values
        p.largest = float(np.abs(p.values).max())
    given, lo, hi = options(p, rng, seed)
    extra = {}
    if rng.random() < 0.4:
        extra["trace"] = float(np.trace(p.A).real)
    if rng.random() < 0.4:
        C = p.draw(n, n)
        C = C + C.conj().T
        middle = float(np.vdot(C, p.A).real)
        extra["constraints"] = [(C, middle - 0.01 * abs(middle), middle + 0.01 * abs(middle))]
    U = sp.csr_array(p.U) if sparse else p.U
    b = given.pop("b", None)
    rank = (plus, minus) if minus else plus
    prefer = ("auto", "any", "least_squares")[seed % 3]
    result = quadsense.solve(U, b, mix=W, rank=rank, rng=0, prefer=prefer, **given, **extra)
    assert result.status == "met", result.message
    A = np.asarray(result.A)
    found = readings(p.U, A) if W is None else W @ readings(p.U, A)
    room = 1e-10 * (p.largest + np.linalg.norm(A)) * (1.0 if W is None else np.abs(W).sum(1).max())
    assert np.all(found >= lo - room) and np.all(found <= hi + room)
    assert at_most(inertia(A), (plus, minus))
    if "trace" in extra:
        assert abs(np.trace(A).real - extra["trace"]) <= 1e-12 * n * np.abs(A).max() * n
    for C, least, most in extra.get("constraints", ()):
        assert least <= np.vdot(C, A).real <= most
    path = tmp_path / "result.npz"
    result.save(path)
    loaded = quadsense.load_result(path)
    assert np.array_equal(np.asarray(loaded.A), A)
    kept = {"bounds": given["bounds"]} if "bounds" in given else {}
    for each in (result, loaded):
        assert each.verify(U, b, mix=W, **kept), str(each.check(U, b, mix=W, **kept))


@pytest.mark.slow
@pytest.mark.parametrize("signs", [(2, 0), (1, 1)])
@pytest.mark.parametrize("trace", sampled([False, True], 1))
@pytest.mark.parametrize("seed", sampled(range(3), 1))
def test_wrong_readings_are_set_aside(signs, trace, seed):
    p = Planted(8, *signs, 90, seed)
    b = p.values.copy()
    b[[7, 40]] += 10.0 * p.largest
    extra = {"trace": float(np.trace(p.A))} if trace else {}
    rank = signs if signs[1] else signs[0]
    result = quadsense.solve(
        p.U, b, delta=1e-4 * p.largest, rank=rank, allow_violations=2, rng=0, **extra
    )
    assert result.status == "met", result.message
    assert list(result.set_aside) == [7, 40]
    assert np.abs(np.delete(readings(p.U, result.A) - b, [7, 40])).max() <= 1e-4 * p.largest
    assert at_most(inertia(result.A), signs)
    assert result.verify(p.U, b)


def test_lower_bounds_alone_are_met_and_upper_ones_by_next_to_nothing():
    p = Planted(9, 2, 0, 60, 0)
    above = quadsense.solve(p.U, bounds=(p.values, np.inf), rank=2, rng=0)
    below = quadsense.solve(p.U, bounds=(-np.inf, p.values), rank=2, rng=0)
    assert (above.status, below.status) == ("met", "met")
    assert np.all(readings(p.U, above.A) >= p.values)
    assert np.all(readings(p.U, below.A) <= p.values)


def test_an_upper_bound_below_zero_is_a_proof_for_semidefinite_matrices_only():
    p = Planted(5, 1, 1, 30, 2)
    low, high = p.values - 1.0, p.values + 1.0
    low[p.values < 0] = -np.inf
    assert high.min() < 0.0
    psd = quadsense.solve(p.U, bounds=(low, high), rank=1, rng=0)
    assert psd.status == "infeasible" and psd.verify(p.U)
    assert quadsense.solve(p.U, bounds=(low, high), rank=(1, 1), rng=0).status == "met"


# --- pins together with ranges -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("pin", sampled([1e-6, 1e-4, 1e-2], 1))
@pytest.mark.parametrize("seed", sampled([0, 1], 1))
def test_nodes_are_located_from_ranges_and_pins_of_any_tolerance(pin, seed):
    net = network(pin=pin, seed=seed)
    truth = np.sum((net.U @ net.positions) ** 2, axis=1)
    assert np.all(np.abs(truth - net.b) <= net.delta)
    result = quadsense.solve(net.U, net.b, delta=net.delta, rank=2, rng=0)
    assert result.status == "met", result.message
    X = result.matrix.factor
    assert np.all(np.abs(np.sum((net.U @ X) ** 2, axis=1) - net.b) <= net.delta)
    # Ranges are off by up to 5% of a squared distance of up to .04.
    assert net.error(X) <= 2e-3


def test_a_network_with_exact_pins_is_located_too():
    net = network(nodes=40, reach=0.4, anchors=5, seed=2)
    delta = np.where(net.pins, 0.0, net.delta)
    result = quadsense.solve(net.U, net.b, delta=delta, rank=2, rng=0)
    assert result.status == "met", result.message
    off = np.abs(np.sum((net.U @ result.matrix.factor) ** 2, axis=1) - net.b)
    assert off[net.pins].max() <= 1e-13 and np.all(off[~net.pins] <= net.delta[~net.pins])
    assert result.verify(net.U, net.b)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 3, 5, 6, 7, 9, 11])
def test_small_networks_are_located_in_some_hundred_steps(seed):
    """Without the lift penalty of sparse rows three of them take 700 to 1,300 steps."""
    net = network(nodes=60, reach=0.3, anchors=6, seed=seed)
    result = quadsense.solve(net.U, net.b, delta=net.delta, rank=2, rng=seed, max_iter=400)
    assert result.status == "met", result.message
    assert net.error(result.matrix.factor) <= 4e-3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6, 8, 9])
def test_networks_of_few_ranges_are_met(seed):
    """Without that penalty, and moves of single unknowns, none of them is in 600 steps."""
    net = network(nodes=60, reach=0.26, anchors=6, seed=seed)
    result = quadsense.solve(net.U, net.b, delta=net.delta, rank=2, rng=seed, max_iter=600)
    assert result.status == "met", result.message
    X = result.matrix.factor
    assert np.all(np.abs(np.sum((net.U @ X) ** 2, axis=1) - net.b) <= net.delta)


def test_weights_of_limited_spread_end_in_those_given():
    weights = np.array([1e12, 1.0, 2.0, 0.5, 1.0, 0.0])
    levels = weights_by_level(weights)
    assert levels[-1] is weights and len(levels) > 2
    tops = [float(level.max()) for level in levels]
    assert tops == sorted(tops) and tops[0] <= 2.0
    assert all(np.array_equal(level[1:], weights[1:]) for level in levels[1:])
    assert len(weights_by_level(np.array([1.0, 3.0, 900.0]))) == 1
    assert 10 <= len(weights_by_level(np.array([1e-300, 1e-300, 1e300]))) <= 15


# --- least squares without a tolerance ---------------------------------------------------------


def squares(U, y, signs, weights=None):
    """Loss and slope of ``sum w (F(X S X*) - y)^2`` by the parts of X, in plain NumPy."""
    w = np.ones(len(y)) if weights is None else weights

    def value(x):
        X = x.view(complex).reshape(U.shape[1], -1) if np.iscomplexobj(U) else x
        X = X.reshape(U.shape[1], -1)
        P = U.conj() @ X
        r = (np.abs(P) ** 2) @ signs - y
        G = 4.0 * U.T @ (((w * r)[:, None] * P) * signs)
        return float(w @ r**2), np.ascontiguousarray(G).reshape(-1).view(float)

    return value


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("inertia_", [(2, 0), (1, 1), (2, 1)])
@pytest.mark.parametrize("weighed", sampled([True, False], 1))
def test_least_squares_without_a_tolerance_is_scipys(inertia_, complex_, weighed):
    p = Planted(9, *inertia_, 9 * 6 * sum(inertia_), 5, complex_)
    y = p.values + 0.05 * p.largest * p.rng.standard_normal(p.values.size)
    w = p.rng.random(y.size) + 0.1 if weighed else None
    rank = inertia_ if inertia_[1] else inertia_[0]
    result = quadsense.solve(p.U, y, rank=rank, weights=w, rng=0)
    assert result.status == "local" and not result.success
    assert "nothing is proved" in result.message
    signs = np.concatenate([np.ones(inertia_[0]), -np.ones(inertia_[1])])
    loss = squares(p.U, y, signs, w)
    x = np.ascontiguousarray(result.matrix.factor).reshape(-1).view(float)
    value, slope = loss(x)
    assert np.abs(slope).max() <= 1e-6 * value
    truth = np.linalg.eigh(p.A)
    start = truth[1][:, np.argsort(-truth[0])]
    start = np.concatenate([start[:, : inertia_[0]], start[:, 9 - inertia_[1] :]], axis=1)
    sizes = np.sqrt(np.abs(np.sort(truth[0])[::-1]))
    start = start * np.concatenate([sizes[: inertia_[0]], sizes[9 - inertia_[1] :]])
    peer = scipy.optimize.minimize(
        loss, np.ascontiguousarray(start).reshape(-1).view(float), jac=True, method="L-BFGS-B",
        options={"maxiter": 20000, "maxfun": 40000, "ftol": 1e-15, "gtol": 1e-9},
    )  # fmt: skip
    assert value <= peer.fun * (1.0 + 1e-9)
    assert result.objective == pytest.approx(value, rel=1e-9)


def test_exact_readings_without_a_tolerance_are_fitted_to_rounding():
    p = Planted(10, 1, 1, 100, 0)
    result = quadsense.solve(p.U, p.values, rank=(1, 1), rng=0)
    assert result.status in ("local", "optimal")
    assert result.max_residual <= 1e-11 * p.largest
    assert np.abs(readings(p.U, result.A) - p.values).max() <= 1e-11 * p.largest


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("inertia_", [(2, 0), (1, 1)])
def test_least_squares_at_rest_on_a_trace_has_no_slope_along_it(inertia_, complex_):
    p = Planted(7, *inertia_, 200, 1, complex_)
    y = p.values + 0.1 * p.largest * p.rng.standard_normal(p.values.size)
    goal = 1.2 * float(np.trace(p.A).real)
    rank = inertia_ if inertia_[1] else inertia_[0]
    result = quadsense.solve(p.U, y, rank=rank, trace=goal, rng=0)
    assert result.status == "local", result.message
    A = np.asarray(result.A)
    assert abs(np.trace(A).real - goal) <= 1e-12 * np.abs(A).max() * 7
    signs = np.concatenate([np.ones(inertia_[0]), -np.ones(inertia_[1])])
    X = np.ascontiguousarray(result.matrix.factor)
    _, slope = squares(p.U, y, signs)(X.reshape(-1).view(float))
    along = np.ascontiguousarray(2.0 * X * signs).reshape(-1).view(float)
    left = slope - along * (along @ slope) / (along @ along)
    assert np.linalg.norm(slope) > 1e3 * np.linalg.norm(left)
    assert np.linalg.norm(left) <= 1e-5 * np.linalg.norm(slope)


def test_a_constraint_that_presses_is_met_at_its_end():
    p = Planted(6, 2, 0, 120, 3)
    y = p.values + 0.05 * p.largest * p.rng.standard_normal(p.values.size)
    most = 0.8 * float(np.trace(p.A))
    result = quadsense.solve(p.U, y, rank=2, trace=(0.0, most), rng=0)
    assert result.status == "local", result.message
    found = float(np.trace(result.A))
    assert found <= most * (1.0 + 1e-15) and found >= most * (1.0 - 1e-10)
    loose = quadsense.solve(p.U, y, rank=2, trace=(0.0, 2.0 * float(np.trace(p.A))), rng=0)
    free = quadsense.solve(p.U, y, rank=2, rng=0)
    np.testing.assert_allclose(loose.A, free.A, atol=1e-6 * p.largest)


def test_least_squares_among_the_fits_is_the_one_without_tolerances_where_that_fits():
    p = Planted(8, 1, 1, 120, 4)
    noise = 0.02 * p.largest
    b = p.values + noise * p.rng.uniform(-1, 1, p.values.size)
    wide = quadsense.solve(p.U, b, delta=2.0 * noise, rank=(1, 1), prefer="least_squares", rng=0)
    free = quadsense.solve(p.U, b, rank=(1, 1), rng=0)
    assert wide.status == "met"
    np.testing.assert_allclose(wide.A, free.A, atol=1e-6 * p.largest)
    some = quadsense.solve(p.U, b, delta=2.0 * noise, rank=(1, 1), prefer="any", rng=0)
    assert wide.objective <= np.sum((some.residuals / (2.0 * noise)) ** 2) * (1.0 + 1e-9)
    tight = quadsense.solve(p.U, b, delta=noise, rank=(1, 1), prefer="least_squares", rng=0)
    assert tight.status == "met" and np.abs(readings(p.U, tight.A) - b).max() <= noise


# --- derivatives -------------------------------------------------------------------------------


def general_program(complex_, sparse, signs=(2, 1)):
    p = Planted(6, *signs, 40, 7, complex_, 0.5)
    U = p.U / np.linalg.norm(p.U, axis=1)[:, None]
    b = readings(U, p.A)
    below, above = np.full(40, 0.3), np.full(40, 0.2)
    below[:10], above[10:15] = np.inf, np.inf
    told = np.ones(40, bool)
    told[:15] = False
    bounds = FactorBounds(below, above, np.full(40, 0.25), told, np.arange(40) == 20)
    rows = Sensing.of(U)
    if sparse:
        rows = quadsense.Measurements(sp.csr_array(U), b).unit_rows
    program = prepare(rows, b, np.linspace(0.1, 0.4, 40), 3, bounds=bounds, signs=signs)
    return program, random_start(program, 3, np.random.default_rng(1))


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("theta", [0.0, 0.7])
def test_slopes_with_signs_and_one_sided_rows_are_those_of_the_loss(complex_, theta):
    program, Y = general_program(complex_, False)
    point = evaluate(program, Y, theta)
    D = random_start(program, 3, np.random.default_rng(2))
    first = np.vdot(point.gradient, D).real
    errors = [
        abs(evaluate(program, Y + h * D, theta).value - point.value - h * first)
        for h in (1e-4, 1e-5)
    ]
    assert 60 < errors[0] / errors[1] < 160


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_derivatives_of_residuals_are_their_differences(complex_, sparse):
    program, Y = general_program(complex_, sparse)
    point = evaluate(program, Y, 0.0)
    J = jacobian(program, point, None)
    J = J.toarray() if sp.issparse(J) else J
    D = random_start(program, 3, np.random.default_rng(3))
    h = 1e-6
    ahead, behind = (evaluate(program, Y + s * h * D, 0.0).z for s in (1, -1))
    change = np.sqrt(program.weight) * (ahead - behind) / (2.0 * h)
    np.testing.assert_allclose(
        J @ np.ascontiguousarray(D).reshape(-1).view(float), change, atol=1e-7
    )


@pytest.mark.parametrize("complex_", [False, True])
def test_sparse_rows_make_the_same_step(complex_):
    dense, Y = general_program(complex_, False)
    thin, _ = general_program(complex_, True)
    assert thin.shared.sparse is None  # half of the entries are there: not worth it
    thin.shared.__dict__["sparse"] = sp.csr_array(dense.rows)
    for theta in (0.0, 0.7):
        points = evaluate(dense, Y, theta), evaluate(thin, Y, theta)
        one, other = (
            normal_equations(program, point, np.zeros(3), 0.1, 1e-3)(point.gradient)
            for program, point in zip((dense, thin), points, strict=True)
        )
        np.testing.assert_allclose(one, other, atol=1e-9 * np.abs(one).max())


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("signs", [None, (2, 1)])
def test_newton_steps_converge_quadratically(complex_, signs):
    p = Planted(5, 2 if signs else 3, 1 if signs else 0, 90, 2, complex_)
    U = p.U / np.linalg.norm(p.U, axis=1)[:, None]
    y = readings(U, p.A) + 0.3 * p.rng.standard_normal(90)
    program = prepare(U, y, np.ones(90), 3, signs=signs, target=False)
    at_rest = settled(program, evaluate(program, random_start(program, 3, p.rng), 0.0))
    assert is_settled(program, at_rest)
    start = evaluate(program, at_rest.Y + 1e-3 * random_start(program, 3, p.rng), 0.0)
    slopes = [np.linalg.norm(start.gradient)]
    for _ in range(2):
        model = model_of(program, start, None)
        whole = model.step(start, Trusted(model.right, model.curved).step(1e10)[0])
        start = evaluate(program, start.Y + whole, 0.0)
        slopes.append(np.linalg.norm(start.gradient))
    assert slopes[1] <= 0.1 * slopes[0] and slopes[2] <= 1e-3 * slopes[1]


def test_what_is_asked_is_read_off_the_question():
    p = Planted(4, 1, 0, 5, 0)
    data = quadsense.Measurements(p.U, p.values, delta=1.0)
    lo = np.array([0.0, -np.inf, 2.0, -np.inf, 1.0])
    hi = np.array([1.0, 3.0, 2.0, np.inf, np.inf])
    question = Question(
        rows="squares", lo=lo, hi=hi, weights=np.array([1.0, 0.0, 0.0, 0.0, 4.0]),
        reading=np.array([0.25, 0, 0, 0, 1.5]), hard=np.array([0, 0, 1, 0, 0], bool),
    )  # fmt: skip
    problem = quadsense.methods.Problem(
        rows=data.unit_rows, b=data.scaled().b, delta=data.scaled().delta, tau=0.0, rank=1,
        question=question,
    )  # fmt: skip
    what = asked(problem)
    scale = 4.0**what.exponent
    np.testing.assert_array_equal(what.index, [0, 1, 2, 4])
    np.testing.assert_allclose(scale * what.b, [0.25, 3.0, 2.0, 1.5])
    np.testing.assert_allclose(scale * what.bounds.above, [0.75, 0.0, 0.0, np.inf])
    np.testing.assert_allclose(scale * what.bounds.below, [0.25, np.inf, 0.0, 0.5])
    np.testing.assert_array_equal(what.bounds.told, [True, False, False, True])
    np.testing.assert_array_equal(what.bounds.equal, [False, False, True, False])
    # Next to each other: their size does not matter.
    assert what.wanted[3] == 4.0 * what.wanted[0] and what.wanted[2] > 1e4 * what.wanted[0]


def test_a_reading_that_no_factor_reaches_does_not_keep_least_squares_from_rest():
    p = Planted(6, 1, 0, 4, 0)
    y = p.values.copy()
    y[2] = -0.1 * p.largest
    result = quadsense.solve(p.U, y, rank=1, rng=0)
    assert result.status == "local", result.message
    # The others are read exactly, and that one as 0, the nearest that a square can be.
    np.testing.assert_allclose(readings(p.U, result.A), np.maximum(y, 0.0), atol=1e-6 * p.largest)
