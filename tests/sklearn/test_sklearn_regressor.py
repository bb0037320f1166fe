"""`QuadraticRegressor` against kernel ridge, brute force, CVXPY and scikit-learn's own checks."""

import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
from helpers import sampled
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import quadsense
from quadsense.sklearn import InfeasibleWarning, QuadraticRegressor
from quadsense.sklearn.closed_form import ModelRows
from quadsense.sklearn.fits import within
from quadsense.vocabulary import Status


def data(m=40, n=3, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) + 0.3
    A = rng.standard_normal((n, n))
    y = np.einsum("ij,ij->i", X @ (A + A.T), X) + X @ rng.standard_normal(n) + 2.0
    return X, y + noise * rng.standard_normal(m)


def objective(model, X, y, weights=1.0):
    penalty = model.linear_penalty
    if penalty == "scale":
        s = np.broadcast_to(weights, len(y))
        penalty = 0.5 / (s @ np.sum(X * X, axis=1) / s.sum())
    size = np.sum(model.matrix_**2) + penalty * np.sum(model.coef_**2)
    return np.sum(weights * (model.predict(X) - y) ** 2) + model.alpha_ * size


class Truth:
    """The same question for CVXPY."""

    def __init__(self, X, y, alpha, *, psd=False, delta=None, weights=1.0, linear=True, one=True):
        n = X.shape[1]
        self.A = cp.Variable((n, n), symmetric=True)
        self.w, self.c = cp.Variable(n), cp.Variable()
        outer = np.einsum("ij,ik->ijk", X, X).reshape(len(X), -1)
        fit = outer @ cp.vec(self.A, order="C") + linear * (X @ self.w) + one * self.c
        s = np.broadcast_to(weights, len(y))
        penalty = 0.5 / (s @ np.sum(X * X, axis=1) / s.sum())
        cost = cp.sum_squares(cp.multiply(np.sqrt(s), fit - y))  # CVXPY 1.6 errs on sums of squares
        entries = cp.vec(self.A, order="C")
        cost += alpha * (cp.sum_squares(entries) + penalty * cp.sum_squares(self.w))
        rules = [self.A >> 0] if psd else []
        rules += [cp.abs(fit - y) <= delta] if delta is not None else []
        self.problem = cp.Problem(cp.Minimize(cost), rules)
        with np.errstate(all="ignore"):
            self.problem.solve(solver="CLARABEL")
        self.value = self.problem.value
        self.predictions = fit.value


CHECKED = [
    QuadraticRegressor(),
    QuadraticRegressor(alpha="cv"),
    QuadraticRegressor(psd=True),
    QuadraticRegressor(delta=1e4),
    QuadraticRegressor(rank=1),
    QuadraticRegressor(fit_linear=False, fit_intercept=False),
]


@parametrize_with_checks(CHECKED[:1])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@pytest.mark.deep
@parametrize_with_checks(CHECKED[1:])
def test_scikit_learn_finds_nothing_wrong_with_other_parameters(estimator, check):
    check(estimator)


# --- closed form


@pytest.mark.parametrize("m", [12, 60])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 30.0])
def test_without_w_and_c_it_is_kernel_ridge(m, alpha):
    X, y = data(m, 4)
    model = QuadraticRegressor(alpha, fit_linear=False, fit_intercept=False).fit(X, y)
    peer = KernelRidge(alpha=alpha, kernel="poly", degree=2, gamma=1.0, coef0=0.0).fit(X, y)
    new = np.random.default_rng(9).standard_normal((7, 4))
    np.testing.assert_allclose(model.predict(new), peer.predict(new), rtol=1e-9, atol=1e-9)
    assert model.intercept_ == 0.0 and not model.coef_.any()


@pytest.mark.parametrize("m", [12, 60])
@pytest.mark.parametrize("penalty", ["scale", 0.5, 3.0])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_it_is_ridge_on_scaled_products_of_features(m, penalty, linear, intercept):
    X, y = data(m, 4, seed=1)
    weights = np.random.default_rng(2).uniform(0.2, 3.0, m)
    model = QuadraticRegressor(
        0.7, linear_penalty=penalty, fit_linear=linear, fit_intercept=intercept
    ).fit(X, y, sample_weight=weights)
    used = (
        0.5 / (weights @ np.sum(X * X, axis=1) / weights.sum()) if penalty == "scale" else penalty
    )
    products = PolynomialFeatures(2, include_bias=False)
    products.fit(X)
    squares = products.powers_.max(axis=1) == 2
    scale = np.where(
        products.powers_.sum(axis=1) == 1, 1 / np.sqrt(used), np.where(squares, 1, np.sqrt(2))
    )
    kept = (products.powers_.sum(axis=1) == 2) | linear

    def features(X):
        return (products.transform(X) * scale)[:, kept]

    peer = Ridge(alpha=0.7, fit_intercept=intercept).fit(features(X), y, sample_weight=weights)
    np.testing.assert_allclose(model.predict(X), peer.predict(features(X)), rtol=1e-9, atol=1e-9)
    assert model.intercept_ == pytest.approx(peer.intercept_, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("m", [9, 60])
def test_without_a_penalty_exact_data_are_found_exactly(m):
    X, y = data(m, 3, noise=0.0)
    model = QuadraticRegressor(0.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("alpha", [1e-4, "cv"])
def test_rounding_is_not_divided_by_a_small_penalty(alpha):
    X, y = data(6, 4, noise=0.0)
    X, y = 200.0 * X, 4e4 * y  # the penalty is 1e-13 of the kernel
    model = QuadraticRegressor(alpha, alphas=[1e-4]).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, rtol=0.0, atol=1e-9 * np.abs(y).max())


# --- leaving one out


@pytest.mark.parametrize("m", sampled([8, 14, 45], 1))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
def test_cv_equals_leaving_out_every_row(m, weighted, intercept):
    X, y = data(m, 3, seed=3)
    weights = np.random.default_rng(4).uniform(0.1, 4.0, m) if weighted else np.ones(m)
    penalty = 0.2  # "scale" would be another for every row left out
    model = QuadraticRegressor("cv", linear_penalty=penalty, fit_intercept=intercept)
    model.fit(X, y, sample_weight=weights)
    assert len(model.alphas_) == len(model.cv_errors_) == 37
    for alpha, error in list(zip(model.alphas_, model.cv_errors_, strict=True))[::4]:
        off = np.empty(m)
        for row in range(m):
            others = np.arange(m) != row
            one = QuadraticRegressor(alpha, linear_penalty=penalty, fit_intercept=intercept)
            one.fit(X[others], y[others], sample_weight=weights[others])
            off[row] = y[row] - one.predict(X[[row]])[0]
        brute = weights @ off**2 / weights.sum()
        assert error == pytest.approx(brute, rel=1e-8)
    assert model.alpha_ == model.alphas_[np.argmin(model.cv_errors_)]
    same = QuadraticRegressor(model.alpha_, linear_penalty=penalty, fit_intercept=intercept)
    same.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.predict(X), same.predict(X), rtol=1e-8, atol=1e-8)


def test_the_penalties_to_try_may_be_given():
    X, y = data()
    model = QuadraticRegressor("cv", alphas=[0.1, 10.0, 1000.0]).fit(X, y)
    np.testing.assert_array_equal(model.alphas_, [0.1, 10.0, 1000.0])
    assert model.alpha_ == 0.1
    for bad in ([], [-1.0], [[1.0]], ["a"]):
        with pytest.raises(ValueError, match="alphas"):
            QuadraticRegressor("cv", alphas=bad).fit(X, y)


# --- weights


ASKED = [
    {}, {"alpha": "cv"}, {"psd": True}, {"delta": 0.8, "alpha": 0.5},
    {"fit_linear": False}, {"fit_intercept": False},
]  # fmt: skip


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("m", [8, 40])
def test_a_weight_of_two_is_the_row_twice_and_of_zero_none(asked, m):
    X, y = data(m, 3, seed=5)
    weights = np.random.default_rng(6).integers(0, 4, m).astype(float)
    weights[:2] = 0.0, 2.0
    times = weights.astype(int)
    model = QuadraticRegressor(**asked).fit(X, y, sample_weight=weights)
    again = QuadraticRegressor(**asked).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert model.alpha_ == pytest.approx(again.alpha_, rel=1e-9)
    exact = "psd" not in asked and "delta" not in asked
    near = 1e-8 if exact else 1e-3
    np.testing.assert_allclose(model.predict(X), again.predict(X), rtol=near, atol=near)


def test_weights_that_cannot_be_are_refused():
    X, y = data()
    for bad, said in (([1.0], "shape"), (-np.ones(40), "negative"), (np.zeros(40), "zero")):
        with pytest.raises(ValueError, match=said):
            QuadraticRegressor().fit(X, y, sample_weight=bad)
    with pytest.raises(ValueError, match="negative"):
        QuadraticRegressor().fit(X, y, sample_delta=-np.ones(40))


# --- the cone


@pytest.mark.parametrize("m", [8, 30, 90])
@pytest.mark.parametrize("parts", [(True, True), (False, True), (True, False), (False, False)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_positive_semidefinite_fit_is_the_best_with_w_and_c(m, parts, weighted):
    X, y = data(m, 3, seed=7)
    weights = np.random.default_rng(8).uniform(0.3, 2.0, m) if weighted else np.ones(m)
    linear, one = parts
    model = QuadraticRegressor(0.3, psd=True, fit_linear=linear, fit_intercept=one)
    model.fit(X, y, sample_weight=weights)
    truth = Truth(X, y, 0.3, psd=True, weights=weights, linear=linear, one=one)
    assert np.linalg.eigvalsh(model.matrix_)[0] >= -1e-12
    assert objective(model, X, y, weights) == pytest.approx(truth.value, rel=2e-6)
    b = y - X @ model.coef_ - model.intercept_
    assert model.result_.status is Status.OPTIMAL and model.result_.verify(X, b)


def test_many_rows_are_taken_in_blocks(monkeypatch):
    X, y = data(200, 3, seed=7)
    direct = QuadraticRegressor(0.3, psd=True).fit(X, y)
    monkeypatch.setattr("quadsense.sklearn.closed_form.BLOCK_ELEMENTS", 30)
    other = QuadraticRegressor(0.3, psd=True).fit(X, y)
    np.testing.assert_allclose(other.matrix_, direct.matrix_, atol=1e-6)
    assert objective(other, X, y) == pytest.approx(objective(direct, X, y), rel=1e-7)


@pytest.mark.parametrize("m", [5, 7, 60])
@pytest.mark.parametrize("seed", [7, 8])
def test_features_that_repeat_each_other_are_not_fitted_to_rounding(m, seed):
    X, y = data(m, 3, seed=seed)
    X[:, 1], X[:, 2] = X[:, 0], 1.0  # once more, and as c
    model = QuadraticRegressor(0.0, psd=True).fit(X, y)
    again = QuadraticRegressor(1e-6, psd=True).fit(X[:, :1], y)
    assert np.abs(model.matrix_).max() < 1e4
    assert objective(model, X, y) == pytest.approx(objective(again, X[:, :1], y), rel=1e-4)


@pytest.mark.parametrize("rank", [1, 2, (1, 1)])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_a_rank_is_kept_and_true_ones_are_found(rank, alpha):
    rng = np.random.default_rng(10)
    X = rng.standard_normal((80, 4))
    V = rng.standard_normal((4, 2))
    signs = np.array([1.0, -1.0]) if rank == (1, 1) else np.array([1.0, float(rank == 2)])
    y = (X @ V) ** 2 @ signs + X @ rng.standard_normal(4) - 3.0
    model = QuadraticRegressor(alpha, rank=rank, random_state=0).fit(X, y)
    values = np.linalg.eigvalsh(model.matrix_)
    size = np.abs(values).max()
    most = rank if isinstance(rank, tuple) else (rank, 0)
    assert np.sum(values > 1e-8 * size) <= most[0] and np.sum(values < -1e-8 * size) <= most[1]
    free = QuadraticRegressor(alpha).fit(X, y)
    assert objective(model, X, y) >= objective(free, X, y) * (1 - 1e-9) - 1e-9
    if alpha == 0.0:
        np.testing.assert_allclose(model.predict(X), y, atol=1e-5)
    assert model.result_.status is Status.LOCAL


def test_at_rest_the_slope_along_the_factor_vanishes():
    X, y = data(60, 4, seed=11)
    model = QuadraticRegressor(0.5, rank=2, random_state=0).fit(X, y)
    off = model.predict(X) - y
    G = 2.0 * (X.T @ (off[:, None] * X)) + 2.0 * model.alpha_ * model.matrix_
    values, V = np.linalg.eigh(model.matrix_)
    factor = V[:, -2:] * np.sqrt(values[-2:])
    assert np.linalg.norm(G @ factor) <= 1e-3 * np.linalg.norm(X.T @ (np.abs(y)[:, None] * X))


# --- tolerances


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("parts", [(True, True), (False, True), (True, False), (False, False)])
def test_within_tolerances_the_fit_is_the_best(psd, parts):
    linear, one = parts
    X, y = data(30, 3, seed=12)
    free = QuadraticRegressor(5.0, psd=psd, fit_linear=linear, fit_intercept=one).fit(X, y)
    least = QuadraticRegressor(
        5.0, psd=psd, fit_linear=linear, fit_intercept=one, prefer="minimax"
    ).fit(X, y)
    worst = [np.abs(each.predict(X) - y).max() for each in (free, least)]
    delta = 0.5 * sum(worst)
    assert worst[1] < delta < worst[0]
    model = QuadraticRegressor(5.0, delta=delta, psd=psd, fit_linear=linear, fit_intercept=one)
    model.fit(X, y)
    truth = Truth(X, y, 5.0, psd=psd, delta=delta, linear=linear, one=one)
    assert model.met_ and np.abs(model.predict(X) - y).max() <= delta * (1 + 1e-12)
    assert objective(model, X, y) == pytest.approx(truth.value, rel=1e-5)
    assert model.result_.status is Status.MET
    assert model.result_.verify(X, y - X @ model.coef_ - model.intercept_, delta=delta)


@pytest.mark.parametrize("psd", [False, True])
def test_c_is_free_wherever_it_is_sought_from(psd):
    X, y = data(30, 3, seed=12)
    rows = ModelRows(X, y, np.ones(30), True, True, 0.5 / np.mean(np.sum(X * X, axis=1)))
    delta = np.full(30, 5.5 if psd else 0.6)
    truth = Truth(X, y, 50.0, psd=psd, delta=delta)

    def run(U, b, *, parted, **asked):
        return quadsense.solve(U, b, **asked)

    found, result = within(rows, 50.0, delta, psd=psd, centre=300.0, tol=1e-6, run=run)
    assert result.met
    assert rows.objective(found, 50.0) == pytest.approx(truth.value, rel=1e-5)


def test_what_is_within_delta_anyway_is_left_alone():
    X, y = data()
    free = QuadraticRegressor().fit(X, y)
    model = QuadraticRegressor(delta=1e3).fit(X, y)
    np.testing.assert_array_equal(model.matrix_, free.matrix_)
    assert model.met_ and free.met_ is None and model.result_.status is Status.MET
    assert model.result_.optimal


@pytest.mark.parametrize("asked", [{}, {"psd": True}, {"rank": 1, "random_state": 0}], ids=str)
def test_where_nothing_is_within_delta_it_warns_and_keeps_the_best_fit(asked):
    X, y = data()
    with pytest.warns(InfeasibleWarning, match=r"no fit .*delta"):
        model = QuadraticRegressor(delta=1e-3, **asked).fit(X, y)
    free = QuadraticRegressor(**asked).fit(X, y)
    np.testing.assert_allclose(model.predict(X), free.predict(X), rtol=1e-9, atol=1e-9)
    assert model.met_ is False
    assert model.result_.status in (Status.OPTIMAL, Status.LOCAL)


def test_every_sample_may_have_its_own_tolerance():
    X, y = data(30, 3, seed=13)
    free = QuadraticRegressor(20.0).fit(X, y)
    delta = np.full(30, np.inf)
    worst = int(np.argmax(np.abs(free.predict(X) - y)))
    delta[worst] = 0.05
    model = QuadraticRegressor(20.0).fit(X, y, sample_delta=delta)
    assert model.met_ and abs(model.predict(X)[worst] - y[worst]) <= 0.05 * (1 + 1e-12)
    truth = Truth(X[:, :], y, 20.0, delta=np.where(np.isfinite(delta), delta, 1e6))
    assert objective(model, X, y) == pytest.approx(truth.value, rel=1e-5)


def test_a_tolerance_of_zero_asks_for_equality():
    X, y = data(9, 3, seed=14)
    model = QuadraticRegressor(1.0, delta=0.0).fit(X, y)
    assert model.met_
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-9, atol=1e-9)
    truth = Truth(X, y, 1.0, delta=0.0)
    assert objective(model, X, y) == pytest.approx(truth.value, rel=1e-4)


def test_equalities_that_contradict_each_other_are_not_met_by_a_huge_matrix():
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, (18, 3)).astype(float)
    X[1] = X[0]
    y = 100.0 * rng.standard_normal(18)
    with pytest.warns(InfeasibleWarning):
        model = QuadraticRegressor(1e-3, delta=0.0, fit_intercept=False).fit(X, y)
    assert model.met_ is False
    free = QuadraticRegressor(1e-3, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.matrix_, free.matrix_)


def test_the_rank_grows_until_delta_is_met():
    rng = np.random.default_rng(15)
    X = rng.standard_normal((60, 4))
    y = np.sum((X @ rng.standard_normal((4, 2))) ** 2, axis=1) + 1.0
    model = QuadraticRegressor(delta=0.01, rank="auto", random_state=0).fit(X, y)
    assert model.met_ and np.linalg.matrix_rank(model.matrix_, tol=1e-6) <= 2
    with pytest.raises(ValueError, match="rank='auto' needs delta"):
        QuadraticRegressor(rank="auto").fit(X, y)


# --- preferences


def test_minimax_has_the_smallest_worst_error():
    X, y = data(30, 3, seed=16)
    model = QuadraticRegressor(prefer="minimax").fit(X, y)
    features = PolynomialFeatures(2).fit_transform(X)
    theta = cp.Variable(features.shape[1])
    problem = cp.Problem(cp.Minimize(cp.norm_inf(features @ theta - y)))
    problem.solve(solver="CLARABEL")
    assert np.abs(model.predict(X) - y).max() <= 1.01 * problem.value + 1e-9
    assert model.result_.status is Status.OPTIMAL


@pytest.mark.parametrize("prefer", ["nearest", "center", "any"])
def test_other_preferences_are_within_delta(prefer):
    X, y = data(30, 3, seed=17)
    model = QuadraticRegressor(delta=1.0, prefer=prefer).fit(X, y)
    assert model.met_ and np.abs(model.predict(X) - y).max() <= 1.0 + 1e-9
    assert model.result_.prefer == prefer
    with pytest.raises(ValueError, match="needs delta"):
        QuadraticRegressor(prefer=prefer).fit(X, y)


def test_nearest_is_the_smallest_within_delta():
    X, y = data(30, 3, seed=18)
    model = QuadraticRegressor(delta=1.0, prefer="nearest", linear_penalty=0.7).fit(X, y)
    A, w, c = cp.Variable((3, 3), symmetric=True), cp.Variable(3), cp.Variable()
    outer = np.einsum("ij,ik->ijk", X, X).reshape(30, -1)
    fit = outer @ cp.vec(A, order="C") + X @ w + c
    size = cp.sum_squares(cp.vec(A, order="C")) + 0.7 * cp.sum_squares(w)
    problem = cp.Problem(cp.Minimize(size), [cp.abs(fit - y) <= 1.0])
    problem.solve(solver="CLARABEL")
    found = np.sum(model.matrix_**2) + 0.7 * np.sum(model.coef_**2)
    assert found == pytest.approx(problem.value, rel=2e-2)


def test_the_least_trace_is_for_a_alone():
    X, y = data(20, 3, seed=19)
    y = np.abs(y)
    asked = {"psd": True, "fit_linear": False, "fit_intercept": False}
    delta = (
        1.2 * np.abs(QuadraticRegressor(prefer="minimax", **asked).fit(X, y).predict(X) - y).max()
    )
    model = QuadraticRegressor(delta=delta, prefer="min_trace", **asked).fit(X, y)
    assert model.met_ and model.result_.prefer == "min_trace"
    for wrong in ({}, {"psd": True}, {**asked, "psd": False}):
        with pytest.raises(ValueError, match="min_trace"):
            QuadraticRegressor(delta=1.0, prefer="min_trace", **wrong).fit(X, y)
    with pytest.raises(ValueError, match="center"):
        QuadraticRegressor(delta=1.0, prefer="center", psd=True).fit(X, y)


BAD = {
    "alpha": [-1.0, "best", None, np.nan],
    "delta": [-1.0, "x", np.nan],
    "linear_penalty": [0.0, -1.0, "auto"],
    "tol": [0.0, "x"],
    "prefer": ["least", None],
    "rank": [0, 9, "low", (2, 2)],
    "time_limit": [-1.0, "x"],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, vs in BAD.items() for v in vs])
def test_parameters_that_mean_nothing_are_refused_by_name(name, value):
    X, y = data()
    with pytest.raises(ValueError, match=name):
        QuadraticRegressor(**{name: value}).fit(X, y)


# --- at home in scikit-learn


@pytest.mark.slow
def test_grid_search_over_alpha_and_delta():
    X, y = data(60, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)
        search = GridSearchCV(
            QuadraticRegressor(), {"alpha": [0.01, 1.0, 100.0], "delta": [None, 0.3, 2.0]}, cv=3
        ).fit(X, y)
    assert search.best_params_["alpha"] == 0.01 and search.best_score_ > 0.95
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_in_a_pipeline_with_names():
    pd = pytest.importorskip("pandas")
    X, y = data(40, 3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), QuadraticRegressor("cv"))
    model.fit(frame, y)
    assert list(model[-1].feature_names_in_) == ["a", "b", "c"]
    assert model.score(frame, y) > 0.9
    with pytest.raises(ValueError, match="feature names"):
        model[-1].predict(pd.DataFrame(X, columns=["a", "b", "d"]))


def test_metadata_is_routed():
    import sklearn

    X, y = data(40, 3)
    with sklearn.config_context(enable_metadata_routing=True):
        model = QuadraticRegressor().set_fit_request(sample_weight=True, sample_delta=True)
        model.set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"alpha": [1.0]}, cv=2)
        search.fit(X, y, sample_weight=np.ones(40), sample_delta=np.full(40, np.inf))
    assert search.best_estimator_.met_


@pytest.mark.parametrize("asked", [{"delta": 1.0, "alpha": 9.0}, {"prefer": "minimax"}], ids=str)
def test_no_row_of_the_data_is_kept(asked):
    X, y = data(60, 3)
    model = QuadraticRegressor(**asked).fit(X, y)
    assert model.result_.certificate.data is None
    kept = pickle.dumps(model)
    assert not any(row.tobytes() in kept for row in X)


def test_a_clone_has_the_parameters_and_a_pickle_a_alone():
    X, y = data(400, 3)
    model = QuadraticRegressor(0.5, psd=True, delta=100.0).fit(X, y)
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "matrix_")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.result_.verify(X, y - X @ again.coef_ - again.intercept_, delta=100.0)
    assert X[:50].tobytes() not in pickle.dumps(model)
    assert model.result_.certificate.data is None
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_single_precision_columns_and_values_of_any_size():
    X, y = data(40, 3)
    expected = QuadraticRegressor(0.1).fit(X, y).predict(X)
    single = QuadraticRegressor(0.1).fit(X.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(single.predict(X), expected, rtol=1e-4, atol=1e-3)
    for length, size in ((1e-60, 1.0), (1e60, 1e-100), (1.0, 1e100)):
        scaled = QuadraticRegressor(0.1 * length**4).fit(length * X, size * y)
        np.testing.assert_allclose(scaled.predict(length * X), size * expected, rtol=1e-9)


@pytest.mark.parametrize("asked", [{}, {"alpha": "cv"}, {"psd": True}, {"rank": 1}, {"delta": 0.5}])
def test_one_sample_one_feature_and_constant_values(asked):
    X, y = np.array([[2.0]]), np.array([3.0])
    assert QuadraticRegressor(**asked).fit(X, y).predict(X)[0] == pytest.approx(3.0)
    X = np.linspace(-1, 1, 20)[:, None]
    flat = QuadraticRegressor(**asked).fit(X, np.full(20, 7.0))
    np.testing.assert_allclose(flat.predict(X), 7.0, rtol=1e-9)
    none = QuadraticRegressor(**asked).fit(np.zeros((5, 2)), np.full(5, 1.5))
    np.testing.assert_allclose(none.predict(np.zeros((2, 2))), 1.5)
    assert not none.matrix_.any()


def test_nothing_is_lost_to_floating_point_signals():
    X, y = data(30, 3)
    with np.errstate(all="raise"):
        for asked in ({}, {"alpha": "cv"}, {"psd": True}, {"delta": 0.9, "alpha": 3.0}):
            QuadraticRegressor(**asked).fit(X, y).predict(X)


def test_callbacks_see_the_fit_and_may_end_it():
    callback = pytest.importorskip("sklearn.callback")
    assert callback is not None

    class Listener:
        def __init__(self, stop):
            self.stop, self.scores, self.begun, self.ended = stop, [], 0, 0

        def setup(self, estimator, context):
            self.set = True

        def teardown(self, estimator, context):
            self.torn = True

        def on_fit_task_begin(self, estimator, context):
            self.begun += 1

        def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
            self.ended += 1
            if fitted_estimator is not None:
                self.scores.append(fitted_estimator.score(X, y))
            return self.stop

    X, y = data(30, 10)  # with fewer features the fit may be at hand without a step
    seen = []
    for stop in (False, True):
        listener = Listener(stop)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that tol was not reached
            model = QuadraticRegressor(0.1, psd=True).set_callbacks(listener).fit(X, y)
        assert listener.set and listener.torn and listener.begun == listener.ended >= 2
        assert listener.scores[-1] == pytest.approx(model.score(X, y))
        seen.append(listener.ended)
    assert seen[1] == 2 < seen[0]  # one stride, and the fit itself
