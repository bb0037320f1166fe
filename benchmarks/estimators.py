"""The estimators for scikit-learn: how good they are, and how fast.

    python benchmarks/estimators.py [--only regression neighbours pairs] [--seeds 3]

Accuracies and R^2 are means over folds; those of both sides come from the same folds of one run.
`regression` compares `QuadraticRegressor(alpha="cv")` with KernelRidge(poly 2) whose penalty and
gamma a grid search chooses, on the same features: diabetes standardised, digits between 0 and 1.
`neighbours` has three nearest neighbours in ten stratified folds, min-max scaled: Euclidean, in the
metric that `MahalanobisLearner_Supervised` learns, in metric-learn's ITML (as it is where it runs;
else with the one argument renamed that newer versions of scikit-learn call otherwise, and it says
so), and in that of a projected FISTA of 20 lines on the same pairs. `pairs` learns from 50,000
pairs of 64 features. Times are the smallest of the folds, or of two runs:
ours in the untouched environment, those of the others with one BLAS thread.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from task_list import Tasks, run, verdict
from threadpoolctl import threadpool_limits

from quadsense.sklearn import (
    MahalanobisLearner,
    MahalanobisLearner_Supervised,
    QuadraticRegressor,
)
from quadsense.sklearn.mahalanobis import even_weights, intervals, pairs_of_classes

Array = npt.NDArray[Any]

PENALTIES, GAMMAS = 10.0 ** np.arange(-3, 4), np.array([0.1, 0.3, 1.0, 6.4])
"""Of KernelRidge: gamma in units of one over the number of features."""


# --- regression


def fitted(model: Any, folds: list[Any], X: Array, y: Array) -> tuple[float, float]:
    """Mean R^2 over the folds and seconds of all fits and predictions."""
    scores, begin = [], time.perf_counter()
    for train, test in folds:
        scores.append(r2_score(y[test], model.fit(X[train], y[train]).predict(X[test])))
    return float(np.mean(scores)), time.perf_counter() - begin


def regression(_: int) -> Iterator[str]:
    for name, load, count in (("diabetes", load_diabetes, 5), ("digits", load_digits, 3)):
        X, y = load(return_X_y=True)
        y = y.astype(float)
        folds = list(KFold(count, shuffle=True, random_state=0).split(X))
        scale: Any = StandardScaler() if name == "diabetes" else MaxAbsScaler()
        ours = make_pipeline(scale, QuadraticRegressor("cv"))
        kernel = make_pipeline(scale, KernelRidge(kernel="poly", degree=2))
        grid = {"kernelridge__alpha": PENALTIES, "kernelridge__gamma": GAMMAS / X.shape[1]}
        peer = GridSearchCV(kernel, grid, cv=5)
        own, seconds = fitted(ours, folds, X, y)
        with threadpool_limits(1):
            other, peers = fitted(peer, folds, X, y)
        yield (
            f"{name}, {count} folds: R^2 {own:.4f}, KernelRidge with a grid {other:.4f}: "
            f"{verdict(own >= other - 0.005)} (at least that - .005); "
            f"{seconds:.2f} s against {peers:.2f} s: {verdict(seconds < peers)} (less)"
        )


# --- neighbours


def euclidean(X: Array, y: Array) -> Array:
    return np.eye(X.shape[1])


def learnt(X: Array, y: Array) -> Array:
    return MahalanobisLearner_Supervised(random_state=0).fit(X, y).components_


def simple(X: Array, y: Array) -> Array:
    """Squared misses of the same intervals by projected FISTA."""
    classes = np.unique(y, return_inverse=True)[1]
    both, alike = pairs_of_classes(X, classes, 3, 2, np.random.RandomState(0))
    D = X[both[:, 1]] - X[both[:, 0]]
    v = np.sum(D * D, axis=1)
    D, alike, v = D[v > 0], alike[v > 0], v[v > 0]
    upper, lower = np.percentile(v[alike], 25), np.percentile(v[~alike], 75)
    unknowns = np.linalg.matrix_rank(D) * (np.linalg.matrix_rank(D) + 1) / 2
    lo, hi = intervals(v, alike, upper**0.5, lower**0.5, max(1.5, 0.3 * len(D) / unknowns))
    w = even_weights(alike, np.ones(len(D)))
    step = 0.5 / np.linalg.norm(np.sqrt(w * v)[:, None] * D, 2) ** 2
    M = Y = np.eye(X.shape[1])
    t = 1.0
    for _ in range(300):
        at = np.einsum("ij,ij->i", D @ Y, D)
        pull = w * (np.maximum(at - hi, 0.0) - np.maximum(lo - at, 0.0))
        values, V = np.linalg.eigh(Y - 2.0 * step * (D.T @ (pull[:, None] * D)))
        new = (V * np.maximum(values, 0.0)) @ V.T
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        Y = new + (t - 1.0) / following * (new - M)
        M, t = new, following
    values, V = np.linalg.eigh(M)
    return np.asarray((V * np.sqrt(np.maximum(values, 0.0))).T)


def make_itml() -> tuple[Callable[[Array, Array], Array] | None, str]:
    """metric-learn's ITML, and how it runs."""
    try:
        from metric_learn import ITML_Supervised
    except ImportError:
        return None, "metric-learn is not installed"

    def itml(X: Array, y: Array) -> Array:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return np.asarray(ITML_Supervised(random_state=0).fit(X, y).components_)

    X, y = load_iris(return_X_y=True)
    try:
        itml(X[::10], y[::10])
    except TypeError as error:
        if "force_all_finite" not in str(error):
            return None, f"metric-learn does not run: {error}"
    else:
        return itml, "as it is"
    import metric_learn._util as util
    import metric_learn.base_metric as base
    from sklearn.utils import check_array, check_X_y

    def renamed(check: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, force_all_finite: Any = True, **options: Any) -> Any:
            return check(*args, ensure_all_finite=force_all_finite, **options)

        return call

    for module in (base, util):
        for check in (check_array, check_X_y):
            if hasattr(module, check.__name__):
                setattr(module, check.__name__, renamed(check))
    try:
        itml(X[::10], y[::10])
    except Exception as error:  # whatever it is, it does not run
        return None, f"metric-learn does not run: {error!r}"
    return itml, "with force_all_finite renamed, without which it does not run here"


def accuracy(
    learn: Callable[[Array, Array], Array], X: Array, y: Array, seeds: int
) -> tuple[float, float]:
    """Mean accuracy of three neighbours over ten folds per seed, and the seconds of a fold."""
    scores, seconds = [], np.inf
    for seed in range(seeds):
        folds = StratifiedKFold(10, shuffle=True, random_state=seed)
        for train, test in folds.split(X, y):
            scale = MinMaxScaler().fit(X[train])
            A, B = scale.transform(X[train]), scale.transform(X[test])
            begin = time.perf_counter()
            L = learn(A, y[train])
            seconds = min(seconds, time.perf_counter() - begin)
            model = KNeighborsClassifier(3).fit(A @ L.T, y[train])
            scores.append(model.score(B @ L.T, y[test]))
    return float(np.mean(scores)), float(seconds)


def neighbours(seeds: int) -> Iterator[str]:
    itml, how = make_itml()
    yield f"ITML: {how}"
    for name, load in (
        ("iris", load_iris), ("wine", load_wine), ("breast cancer", load_breast_cancer),
        ("digits", load_digits),
    ):  # fmt: skip
        X, y = load(return_X_y=True)
        tries = 1 if name == "digits" else seeds
        own, seconds = accuracy(learnt, X, y, tries)
        plain, _ = accuracy(euclidean, X, y, tries)
        with threadpool_limits(1):
            peer, slow = accuracy(simple, X, y, tries)
        line = (
            f"{name}, 3-NN in {10 * tries} folds: {own:.4f}; Euclidean {plain:.4f}: "
            f"{verdict(own >= plain - 0.005)} (at least that - .005); FISTA in 20 lines "
            f"{peer:.4f}: {verdict(own >= peer - 0.005)} (at least that - .005); "
            f"{seconds:.2f} s per fold, FISTA {slow:.2f} s"
        )
        if name == "breast cancer":
            line += f": {verdict(seconds < 1.0)} (under 1 s)"
        if itml is not None and name in ("iris", "wine"):
            with threadpool_limits(1):
                other, longer = accuracy(itml, X, y, tries)
            line += f"; ITML {other:.4f} in {longer:.2f} s: {verdict(own >= other)} (at least that)"
        yield line


# --- many pairs


def pairs(_seeds: int) -> Iterator[str]:
    """Pairs of ten classes of points in 64 dimensions, half of them alike, some misjudged."""
    rng = np.random.default_rng(0)
    m, d = 50_000, 64
    centres = 0.6 * rng.standard_normal((10, d))
    one = rng.integers(10, size=m)
    y = np.where(rng.random(m) < 0.5, 1, -1)
    other = np.where(y > 0, one, (one + rng.integers(1, 10, size=m)) % 10)
    scale = np.geomspace(2.0, 0.2, d)
    P = np.stack([centres[k] + scale * rng.standard_normal((m, d)) for k in (one, other)], axis=1)
    y = np.where(rng.random(m) < 0.05, -y, y)
    seconds = np.inf
    for _ in range(2):
        begin = time.perf_counter()
        learner = MahalanobisLearner().fit(P, y)
        seconds = min(seconds, time.perf_counter() - begin)
    plain = float(roc_auc_score(y, -np.linalg.norm(P[:, 1] - P[:, 0], axis=1)))
    yield (
        f"{m} pairs of {d} features: {seconds:.1f} s: {verdict(seconds < 15.0)} (under 15 s), area "
        f"{learner.score(P, y):.3f}, Euclidean {plain:.3f}; {learner.result_.status} "
        f"{learner.result_.optimal}"
    )


TASKS: Tasks = {
    "regression": regression,
    "neighbours": neighbours,
    "pairs": pairs,
}


if __name__ == "__main__":
    run(TASKS, __doc__, seeds=3)
