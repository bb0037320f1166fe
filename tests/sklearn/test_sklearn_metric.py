"""`MahalanobisLearner` and its supervised kin: the contract, CVXPY, scikit-learn's own checks."""

import doctest
import importlib
import pickle

import cvxpy as cp
import numpy as np
import pytest
from helpers import cover
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from quadsense.sklearn import MahalanobisLearner, MahalanobisLearner_Supervised
from quadsense.sklearn.mahalanobis import even_weights, intervals, pairs_of_classes
from quadsense.vocabulary import Status


def pairs(m=60, d=3, seed=0):
    """Pairs alike differ little in the first feature, others much."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(m) % 2, 1, -1)
    first = rng.standard_normal((m, d))
    step = rng.standard_normal((m, d))
    step[:, 0] = np.where(y > 0, 0.2, 2.0) * rng.standard_normal(m)
    return np.stack([first, first + step], axis=1), y


@parametrize_with_checks([MahalanobisLearner_Supervised()])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@pytest.mark.deep
@parametrize_with_checks(
    [MahalanobisLearner_Supervised(slack="max", stretch=4.0, prior="covariance")]
)
def test_scikit_learn_finds_nothing_wrong_with_other_parameters(estimator, check):
    check(estimator)


def test_tags_say_what_goes_in():
    classes, pairs_ = (
        get_tags(each) for each in (MahalanobisLearner_Supervised(), MahalanobisLearner())
    )
    assert classes.target_tags.required and pairs_.target_tags.required
    assert classes.input_tags.two_d_array and not pairs_.input_tags.two_d_array
    assert pairs_.input_tags.three_d_array


# --- what is learnt


@pytest.mark.parametrize("slack", ["squares", "sum", "max"])
@pytest.mark.parametrize("stretch", [3.0, np.inf])
def test_the_matrix_misses_what_is_asked_the_least(slack, stretch):
    P, y = pairs()
    learner = MahalanobisLearner(slack, stretch=stretch, upper=0.7, lower=1.5, gap=1e-4).fit(P, y)
    D = P[:, 1] - P[:, 0]
    squares = np.sum(D * D, axis=1)
    lo, hi = intervals(squares, y > 0, 0.7, 1.5, stretch)
    w = even_weights(y > 0, np.ones(len(y)))

    def cost(misses, norm):
        return {"squares": norm(w @ misses**2), "sum": w @ misses, "max": np.max(w * misses)}[slack]

    M = cp.Variable((3, 3), symmetric=True)
    v = np.einsum("ij,ik->ijk", D, D).reshape(len(D), -1) @ cp.vec(M, order="C")
    above = cp.pos(v - np.minimum(hi, 1e6))
    below = cp.pos(np.maximum(lo, -1e6) - v)
    parts = {
        "squares": lambda: cp.sum(cp.multiply(w, cp.square(above + below))),
        "sum": lambda: cp.sum(cp.multiply(w, above + below)),
        "max": lambda: cp.max(cp.multiply(w, above + below)),
    }
    problem = cp.Problem(cp.Minimize(parts[slack]()), [M >> 0])
    problem.solve(solver="CLARABEL")
    found = np.einsum("ij,ij->i", D @ learner.get_mahalanobis_matrix(), D)
    misses = np.maximum(np.maximum(found - hi, lo - found), 0.0)
    assert cost(misses, float) == pytest.approx(problem.value, rel=1e-3, abs=1e-7)
    assert learner.result_.status in (Status.OPTIMAL, Status.MET)
    assert learner.result_.certificate.data is None


def test_intervals_are_never_empty_and_never_ask_for_more_than_the_stretch():
    rng = np.random.default_rng(1)
    squares = rng.exponential(size=400) + 1e-9
    alike = rng.random(400) < 0.5
    for stretch in (1.0001, 2.0, 30.0, np.inf):
        lo, hi = intervals(squares, alike, 0.5, 1.2, stretch)
        assert np.all(hi > lo)
        if np.isfinite(stretch):
            assert np.all(lo <= stretch * squares * (1 + 1e-12))
            assert np.all(hi >= squares / stretch * (1 - 1e-12))
        assert np.all(hi[alike] >= 0.25) and np.all(lo[~alike] <= 1.44)


def test_both_kinds_of_pairs_count_alike():
    alike = np.array([True, False, False, False])
    weights = even_weights(alike, np.array([2.0, 1.0, 1.0, 4.0]))
    assert weights[0] == pytest.approx(weights[1:].sum()) and weights.sum() == pytest.approx(4.0)
    assert weights[3] == pytest.approx(4.0 * weights[1])
    P, y = pairs()
    P, y = P[4:], y[4:]
    twice = MahalanobisLearner(stretch=4.0, gap=1e-6).fit(
        np.concatenate([P, P[y < 0]]), np.concatenate([y, y[y < 0]])
    )
    once = MahalanobisLearner(stretch=4.0, gap=1e-6).fit(P, y)
    np.testing.assert_allclose(
        twice.get_mahalanobis_matrix(), once.get_mahalanobis_matrix(), rtol=1e-3, atol=1e-3
    )


def test_units_of_the_points_do_not_matter():
    P, y = pairs()
    one = MahalanobisLearner(stretch=4.0).fit(P, y)
    for scale in (1e-80, 1e80):
        other = MahalanobisLearner(stretch=4.0).fit(scale * P, y)
        np.testing.assert_allclose(
            other.get_mahalanobis_matrix(), one.get_mahalanobis_matrix(), rtol=1e-6, atol=1e-9
        )


def test_directions_that_no_pair_differs_in_are_left_as_they_were():
    P, y = pairs()
    wide = np.concatenate([P, np.full((*P.shape[:2], 2), 5.0)], axis=2)
    M = MahalanobisLearner(stretch=4.0).fit(wide, y).get_mahalanobis_matrix()
    np.testing.assert_allclose(M[3:, 3:], np.eye(2), atol=1e-12)
    np.testing.assert_allclose(M[:3, 3:], 0.0, atol=1e-12)
    same = MahalanobisLearner().fit(np.ones((4, 2, 3)), [1, -1, 1, -1])
    np.testing.assert_allclose(same.get_mahalanobis_matrix(), np.eye(3), atol=1e-12)
    assert same.result_ is None


def test_the_prior_is_what_is_stretched():
    P, y = pairs()
    points = np.unique(P.reshape(-1, 3), axis=0)
    inverse = np.linalg.inv(np.cov(points, rowvar=False))
    named = MahalanobisLearner(prior="covariance", stretch=2.0).fit(P, y)
    given = MahalanobisLearner(prior=inverse, stretch=2.0).fit(P, y)
    M = named.get_mahalanobis_matrix()
    np.testing.assert_allclose(M, given.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-4)
    near = MahalanobisLearner(prior=inverse, stretch=1.001).fit(P, y).get_mahalanobis_matrix()
    D = P[:, 1] - P[:, 0]
    ratio = np.einsum("ij,ij->i", D @ near, D) / np.einsum("ij,ij->i", D @ inverse, D)
    assert np.all(np.abs(np.log(ratio)) < 0.2)
    for bad in ("best", -np.eye(3), np.ones((2, 2)), [[1.0, 2.0, 0], [0, 1, 0], [0, 0, 1]]):
        with pytest.raises(ValueError, match="prior"):
            MahalanobisLearner(prior=bad).fit(P, y)


@pytest.mark.parametrize("kind", [1, -1])
def test_pairs_of_one_kind_are_enough(kind):
    P, y = pairs()
    kept = y == kind
    learner = MahalanobisLearner().fit(P[kept], y[kept])
    assert np.all(np.isfinite(learner.components_))
    assert np.all(learner.predict(P[kept]) == kind)


# --- metric-learn's contract


@pytest.fixture(scope="module")
def fitted():
    P, y = pairs(seed=3)
    return MahalanobisLearner(stretch=5.0).fit(P, y), P, y


def test_distances_scores_and_embedding_agree(fitted):
    learner, P, y = fitted
    M, L = learner.get_mahalanobis_matrix(), learner.components_
    np.testing.assert_allclose(L.T @ L, M, atol=1e-12)
    D = P[:, 1] - P[:, 0]
    expected = np.sqrt(np.einsum("ij,jk,ik->i", D, M, D))
    np.testing.assert_allclose(learner.pair_distance(P), expected, rtol=1e-9)
    np.testing.assert_array_equal(learner.pair_score(P), -learner.pair_distance(P))
    np.testing.assert_array_equal(learner.decision_function(P), learner.pair_score(P))
    images = learner.transform(P[:, 0]) - learner.transform(P[:, 1])
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), expected, rtol=1e-9)
    metric = learner.get_metric()
    assert metric(P[0, 0], P[0, 1]) == pytest.approx(expected[0])
    assert metric(P[0, 0], P[0, 1], squared=True) == pytest.approx(expected[0] ** 2)
    assert learner.score(P, y) == pytest.approx(roc_auc_score(y, -expected))
    assert learner.score(P, y) > 0.85 > roc_auc_score(y, -np.linalg.norm(D, axis=1))


def test_copies_do_not_follow_the_learner():
    P, y = pairs()
    learner = MahalanobisLearner(stretch=5.0).fit(P, y)
    metric, M = learner.get_metric(), learner.get_mahalanobis_matrix()
    before = metric(P[0, 0], P[0, 1])
    M[:] = 0.0
    learner.components_[:] = 0.0
    assert metric(P[0, 0], P[0, 1]) == before


def test_the_metric_serves_neighbours(fitted):
    learner, P, _ = fitted
    X = P[:, 0]
    labels = (X[:, 0] > 0).astype(int)
    one = KNeighborsClassifier(3, metric=learner.get_metric()).fit(X, labels)
    other = KNeighborsClassifier(3).fit(learner.transform(X), labels)
    new = P[:, 1]
    np.testing.assert_array_equal(one.predict(new), other.predict(learner.transform(new)))


def rates(predicted, y):
    return np.mean(predicted[y > 0] > 0), np.mean(predicted[y < 0] < 0)


@pytest.mark.parametrize(
    ("strategy", "seed"), cover(["accuracy", "f_beta", "max_tpr", "max_tnr"], range(6), each=2)
)
def test_thresholds_are_the_best_of_all(fitted, strategy, seed):
    learner, P, _ = fitted
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(len(P)) < 0.4, 1, -1)  # hardly to be told: the choice matters
    P = P[rng.integers(len(P) // 3, size=len(P))]  # with ties
    learner = clone(learner).fit(*pairs(seed=3))
    learner.calibrate_threshold(P, y, strategy=strategy, min_rate=0.6, beta=1.0)
    distances = learner.pair_distance(P)

    def value(threshold):
        predicted = np.where(distances <= threshold, 1, -1)
        tpr, tnr = rates(predicted, y)
        if strategy == "accuracy":
            return accuracy_score(y, predicted)
        if strategy == "f_beta":
            return f1_score(y, predicted, zero_division=0.0)
        wanted, other = (tpr, tnr) if strategy == "max_tpr" else (tnr, tpr)
        return wanted if other >= 0.6 else -1.0

    tried = [value(t) for t in [-1.0, *np.unique(distances)]]
    assert value(learner.threshold_) == pytest.approx(max(tried))
    predicted = learner.predict(P)
    np.testing.assert_array_equal(predicted, np.where(distances <= learner.threshold_, 1, -1))


def test_a_threshold_may_be_set(fitted):
    learner, P, y = fitted
    learner = clone(learner).fit(P, y)
    assert learner.set_threshold(-1) is learner and np.all(learner.predict(P) == -1)
    assert np.all(learner.set_threshold(1e9).predict(P) == 1)
    for bad in (None, "x", [1.0, 2.0]):
        with pytest.raises(ValueError, match="threshold must be a real number"):
            learner.set_threshold(bad)
    for bad, said in (
        ({"strategy": "best"}, "strategy"),
        ({"strategy": "max_tpr"}, "min_rate"),
        ({"strategy": "max_tnr", "min_rate": 2.0}, "min_rate"),
        ({"strategy": "f_beta", "beta": "x"}, "beta"),
    ):
        with pytest.raises(ValueError, match=said):
            learner.calibrate_threshold(P, y, **bad)
        with pytest.raises(ValueError, match=said):
            learner.fit(P, y, calibration_params=bad)
    all_alike = learner.fit(
        P, y, calibration_params={"strategy": "max_tpr", "min_rate": 0.0}
    ).predict(P)
    assert np.all(all_alike[y > 0] == 1)


@pytest.mark.parametrize("form", ["array", "list", "callable"])
def test_pairs_of_indices_are_those_of_the_preprocessor(form):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((30, 3))
    index = rng.integers(30, size=(50, 2))
    y = np.where(np.abs(X[index[:, 0], 0] - X[index[:, 1], 0]) < 0.8, 1, -1)
    source = {"array": X, "list": X.tolist(), "callable": lambda rows: X[rows]}[form]
    learner = MahalanobisLearner(stretch=4.0, preprocessor=source).fit(index, y)
    plain = MahalanobisLearner(stretch=4.0).fit(X[index], y)
    np.testing.assert_array_equal(learner.components_, plain.components_)
    np.testing.assert_array_equal(learner.predict(index), plain.predict(X[index]))
    np.testing.assert_array_equal(learner.pair_distance(X[index]), plain.pair_distance(X[index]))
    np.testing.assert_array_equal(learner.transform(np.arange(4)), plain.transform(X[:4]))
    assert learner.score(index, y) == plain.score(X[index], y)
    if form != "callable":
        for bad in ([[0, 99]], [[0.5, 1.0]]):
            with pytest.raises(ValueError, match="indices"):
                learner.predict(bad)


def test_bad_pairs_and_labels_are_refused():
    P, y = pairs()
    for bad in (P[:, :, 0], P[:, :1], P[0, 0], np.full_like(P, np.nan)):
        with pytest.raises(ValueError, match=r"pairs|NaN"):
            MahalanobisLearner().fit(bad, y)
    for bad in (y[:-1], np.zeros(len(y)), np.full(len(y), "a")):
        with pytest.raises(ValueError, match="y must"):
            MahalanobisLearner().fit(P, bad)
    for name, value in (
        ("slack", "none"), ("stretch", 0.5), ("stretch", "wide"), ("upper", -1.0),
        ("lower", "far"), ("percentiles", (1, 2, 3)), ("percentiles", (-1, 50)), ("gap", 0.0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            MahalanobisLearner(**{name: value}).fit(P, y)
    with pytest.raises(ValueError, match="bounds"):
        MahalanobisLearner().fit(P, y, bounds=(1.0,))
    with pytest.raises(NotFittedError):
        MahalanobisLearner().predict(P)
    with pytest.raises(ValueError, match="features"):
        MahalanobisLearner().fit(P, y).pair_distance(P[:, :, :2])


def test_bounds_are_the_distances_that_were_asked():
    P, y = pairs()
    learner = MahalanobisLearner().fit(P, y, bounds=(0.4, 2.5))
    np.testing.assert_allclose(learner.bounds_, (0.4, 2.5))
    free = MahalanobisLearner(percentiles=(10, 80)).fit(P, y)
    distances = np.linalg.norm(P[:, 1] - P[:, 0], axis=1)
    expected = np.percentile(distances[y > 0], 10), np.percentile(distances[y < 0], 80)
    np.testing.assert_allclose(free.bounds_, expected)


def test_at_home_in_scikit_learn(fitted):
    learner, P, y = fitted
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.predict(P), learner.predict(P))
    assert P[:20].tobytes() not in pickle.dumps(learner)
    search = GridSearchCV(MahalanobisLearner(), {"stretch": [1.1, 5.0]}, cv=3).fit(P, y)
    assert search.best_params_ == {"stretch": 5.0} and search.best_score_ > 0.8
    assert not hasattr(learner, "fit_transform")
    pd = pytest.importorskip("pandas")
    frame = clone(learner).fit(P, y).set_output(transform="pandas").transform(P[:, 0])
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == [f"mahalanobislearner{k}" for k in range(3)]


def test_floating_point_signals_do_not_matter():
    P, y = pairs()
    P[0] = 1.0  # a pair that does not differ, and is said not to be alike
    with np.errstate(all="raise"):
        for asked in ({}, {"slack": "max"}, {"prior": "covariance", "stretch": np.inf}):
            learner = MahalanobisLearner(**asked).fit(P, y)
            learner.calibrate_threshold(P[:1], y[:1])
            assert learner.predict(P[:1]) == [-1]
        X, labels = load_iris(return_X_y=True)
        MahalanobisLearner_Supervised(random_state=0).fit(X, labels).transform(X)


# --- from classes


def test_pairs_of_classes_are_near_ones_of_both_kinds():
    rng = np.random.RandomState(0)
    X = np.random.default_rng(6).standard_normal((40, 3))
    classes = np.arange(40) % 3
    both, alike = pairs_of_classes(X, classes, 2, 0, rng)
    assert np.all(both[:, 0] < both[:, 1]) and len(np.unique(both, axis=0)) == len(both)
    np.testing.assert_array_equal(alike, classes[both[:, 0]] == classes[both[:, 1]])
    for point in range(40):
        gaps = np.linalg.norm(X - X[point], axis=1)
        gaps[point] = np.inf
        for kind in (classes == classes[point], classes != classes[point]):
            for near in np.argsort(np.where(kind, gaps, np.inf))[:2]:
                assert [min(point, near), max(point, near)] in both.tolist()
    more, _ = pairs_of_classes(X, classes, 2, 3, rng)
    assert len(both) < len(more) <= len(both) + 120


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_neighbours_are_the_better_for_it(load):
    X, y = load(return_X_y=True)
    plain = make_pipeline(MinMaxScaler(), KNeighborsClassifier(3))
    learner = MahalanobisLearner_Supervised(random_state=0)
    learnt = make_pipeline(MinMaxScaler(), learner, KNeighborsClassifier(3))
    assert cross_val_score(learnt, X, y).mean() >= cross_val_score(plain, X, y).mean() - 0.005


def test_classes_may_be_words_single_or_one_alone():
    X, y = load_iris(return_X_y=True)
    words = np.array(["a", "b", "c"])[y]
    one = MahalanobisLearner_Supervised(random_state=0).fit(X, y)
    other = MahalanobisLearner_Supervised(random_state=0).fit(X, words)
    np.testing.assert_array_equal(one.components_, other.components_)
    for few in (np.zeros(150, int), np.arange(150) // 2):
        learner = MahalanobisLearner_Supervised(random_state=0).fit(X, few)
        assert np.all(np.isfinite(learner.transform(X)))
    same = MahalanobisLearner_Supervised(n_neighbors=0, n_random=0).fit(X, y)
    np.testing.assert_allclose(same.get_mahalanobis_matrix(), np.eye(4), atol=1e-12)
    with pytest.raises(ValueError, match="n_neighbors"):
        MahalanobisLearner_Supervised(n_neighbors=-1).fit(X, y)


def test_a_supervised_learner_speaks_of_pairs_too():
    X, y = load_iris(return_X_y=True)
    learner = MahalanobisLearner_Supervised(random_state=0).fit(X, y)
    P = np.stack([X[:-1], X[1:]], axis=1)
    expected = np.linalg.norm(learner.transform(X[1:]) - learner.transform(X[:-1]), axis=1)
    np.testing.assert_allclose(learner.pair_distance(P), expected, rtol=1e-9)
    assert learner.n_pairs_ == learner.result_.residuals.size + 1  # two of its flowers are equal
    names = learner.get_feature_names_out()
    assert list(names) == [f"mahalanobislearner_supervised{k}" for k in range(4)]


MODULES = ["", ".regressor", ".metric"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_show_what_is_written(name):
    found = doctest.testmod(importlib.import_module(f"quadsense.sklearn{name}"))
    assert found.attempted and not found.failed
