"""Whole tasks of users, each compared with the tool that they have today: how good is the answer?

    python benchmarks/tasks.py [--only NAME ...] [--seeds 10]

Tomography (fidelity with the true state), covariance sketching (relative error), kernel ridge
regression (the same matrix), certified ranges, localisation (met, and how far off), quadratic
regression (R^2). Every line prints its target. Ours runs in the untouched environment, the other
tools with one BLAS thread. `preferences` compares ways of choosing A instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from answer_peers import cvxpy_covariance, cvxpy_state, linear_ranges
from peer_solvers import gaussian
from preferences import preferences
from simulate import Array, energies, fidelity, network, sketches, tomography
from task_list import Tasks, run, verdict
from threadpoolctl import threadpool_limits

import quadsense

# --- states


def states(qubits: int, rank: int, seeds: int) -> Iterator[str]:
    """Fidelity from 1000 shots a Pauli basis, within joint Clopper-Pearson bounds, trace 1."""
    own, peer, spent = [], [], np.zeros(2)
    statuses, ended = set(), True
    for seed in range(seeds):
        t = tomography(qubits, rank, seed=seed)
        lo, hi = quadsense.bounds_from_counts(t.counts, t.shots)
        begin = time.perf_counter()
        result = quadsense.solve(t.U, t.frequencies, bounds=(lo, hi), psd=True, trace=1.0)
        middle = time.perf_counter()
        with threadpool_limits(1):
            other, complete = cvxpy_state(t.U, t.frequencies, lo, hi)
        spent += middle - begin, time.perf_counter() - middle
        own.append(fidelity(t.state, result.A))
        peer.append(fidelity(t.state, other))
        ended &= complete
        statuses.add(f"{result.status} {result.prefer} {result.optimal}")
        yield (
            f"  seed {seed}: fidelity {own[-1]:.7f}, CVXPY {peer[-1]:.7f}, "
            f"difference {own[-1] - peer[-1]:+.1e}{'' if complete else ' (CVXPY did not end)'}"
        )
    kept = ended and np.mean(own) >= np.mean(peer) - 1e-4
    yield (
        f"{qubits} qubits, rank {rank}: fidelity {np.mean(own):.5f} in {spent[0] / seeds:.2f} s, "
        f"CVXPY (SCS to 1e-8) {np.mean(peer):.5f} in {spent[1] / seeds:.2f} s: "
        f"{verdict(bool(kept))} (at least the peer's - 1e-4); {', '.join(sorted(statuses))}"
    )


# --- covariances


def covariances(_: int) -> Iterator[str]:
    """Relative error from 1500 sketches of 10,000 shared samples."""
    for truth, most in (("toeplitz", 0.12), ("spikes", 0.15)):
        U, b, covariance = sketches(truth)
        size = np.linalg.norm(covariance)
        for prefer in ("auto", "center", "any"):
            begin = time.perf_counter()
            result = quadsense.solve(U, b, rtol=1e-3, psd=True, prefer=prefer)
            seconds = time.perf_counter() - begin
            error = float(np.linalg.norm(result.A - covariance) / size)
            goal = "" if prefer == "any" else f": {verdict(error <= most)} (at most {most})"
            yield (
                f"covariance {truth}, prefer={prefer!r}: error {error:.4f} in {seconds:.2f} s"
                f"{goal}; {result.status} {result.prefer} {result.optimal}"
            )
        with threadpool_limits(1):
            begin = time.perf_counter()
            other = cvxpy_covariance(U, b)
            seconds = time.perf_counter() - begin
        error = float(np.linalg.norm(other - covariance) / size)
        yield (
            f"covariance {truth}, CVXPY (SCS to 1e-6), least squares with A >= 0: "
            f"error {error:.4f} in {seconds:.2f} s"
        )


# --- kernels


def kernels(_: int) -> Iterator[str]:
    """`ridge` against scikit-learn's KernelRidge with the kernel (u . v)^2."""
    from sklearn.kernel_ridge import KernelRidge

    for n, m in ((20, 150), (20, 400), (60, 600)):
        data = gaussian(n, m, 1.0)
        b = data.b + 0.1 * np.random.default_rng(1).standard_normal(m)
        for alpha in (1e-2, 1.0):
            begin = time.perf_counter()
            result = quadsense.solve(data.U, b, ridge=alpha)
            middle = time.perf_counter()
            model = KernelRidge(kernel="poly", degree=2, gamma=1.0, coef0=0.0, alpha=alpha)
            with threadpool_limits(1):
                dual = model.fit(data.U, b).dual_coef_
            B = data.U.T @ (dual[:, None] * data.U)
            end = time.perf_counter()
            off = float(np.linalg.norm(result.A - B) / np.linalg.norm(B))
            yield (
                f"ridge={alpha:g} n={n} m={m}: differs from KernelRidge by {off:.1e}: "
                f"{verdict(off <= 1e-8)} (at most 1e-8), {middle - begin:.3f} s against "
                f"{end - middle:.3f} s; {result.status} {result.prefer} {result.optimal}"
            )


# --- ranges


def ranges(_: int) -> Iterator[str]:
    """Certified ranges of P[0, 0] and of the trace, from 200 readings with interval errors."""
    U, b, width, P = energies()
    E = np.zeros((6, 6))
    E[0, 0] = 1.0
    true, _ended = linear_ranges(U, b - width, b + width, [E, np.eye(6)], "highs")
    result = quadsense.solve(U, b, delta=width)
    asked: list[tuple[str, Any, float]] = [
        ("P[0, 0]", (0, 0), float(P[0, 0])), ("trace", "trace", float(np.trace(P)))
    ]  # fmt: skip
    for (name, C, value), (low, high) in zip(asked, true, strict=True):
        found = result.interval(C)
        extra = (found.upper - found.lower) / (high - low) - 1.0
        inside = found.lower <= value <= found.upper
        yield (
            f"{name} in [{found.lower:.6f}, {found.upper:.6f}] (truly {value:.6f}, "
            f"{'inside' if inside else 'OUTSIDE'}), {100 * extra:.2g}% wider than HiGHS: "
            f"{verdict(extra + 1e-6 >= 0.0 and extra <= 0.01)} (at most 1%)"
        )


# --- networks


def networks(seeds: int) -> Iterator[str]:
    """200 nodes from squared distances within 5% and pins of very different tolerances."""
    for pin in (1e-6, 1e-4, 1e-2):
        met, off, spent = 0, [], 0.0
        for seed in range(min(seeds, 3)):
            nodes = network(seed=seed)
            begin = time.perf_counter()
            result = quadsense.solve(nodes.U, nodes.b, delta=nodes.delta(pin), rank=2)
            spent += time.perf_counter() - begin
            met += result.met
            places = nodes.positions(np.asarray(result.matrix.factor))
            off.append(float(np.sqrt(np.mean(np.sum((places - nodes.points) ** 2, axis=1)))))
        tries = min(seeds, 3)
        yield (
            f"200 nodes, pins at {pin:g}: {met} of {tries} met: {verdict(met == tries)} (all); "
            f"off by {np.median(off):.4f} (root mean square), {spent / tries:.2f} s each"
        )


# --- regression


def regression(_: int) -> Iterator[str]:
    """Quadratic regression on scikit-learn's diabetes data: R^2 by five-fold cross-validation."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.datasets import load_diabetes
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import LinearRegression, Ridge
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    from quadsense.sklearn import QuadraticRegressor

    X, y = load_diabetes(return_X_y=True)
    folds = list(KFold(5, shuffle=True, random_state=0).split(X))

    def score(predict: Callable[[Array, Array, Array], Array]) -> float:
        wrong = sum(float(np.sum((y[b] - predict(X[a], y[a], X[b])) ** 2)) for a, b in folds)
        return 1.0 - wrong / float(np.sum((y - y.mean()) ** 2))

    def rows(scaler: Any, X: Array) -> Array:
        return np.column_stack([scaler.transform(X), np.full(len(X), np.sqrt(X.shape[1]))])

    def ours(X: Array, y: Array, new: Array, alpha: float) -> Array:
        scaler = StandardScaler().fit(X)
        result = quadsense.solve(rows(scaler, X), y, ridge=alpha)
        return np.asarray(result.matrix.quadratic(rows(scaler, new)))

    def ridge(X: Array, y: Array, new: Array, alpha: float) -> Array:
        scaler, quadratic = StandardScaler().fit(X), PolynomialFeatures(2, include_bias=False)
        model = Ridge(alpha=alpha).fit(quadratic.fit_transform(scaler.transform(X)), y)
        return np.asarray(model.predict(quadratic.transform(scaler.transform(new))))

    def chosen(model: Any, X: Array, y: Array, new: Array) -> Array:
        scaler = StandardScaler().fit(X)
        return np.asarray(model.fit(scaler.transform(X), y).predict(scaler.transform(new)))

    def kernel() -> Any:
        grid = {
            "regressor__alpha": 10.0 ** np.arange(-1, 5),
            "regressor__gamma": [1e-3, 1e-2, 1e-1],
        }
        model = KernelRidge(kernel="poly", degree=2, coef0=1.0)
        centered = TransformedTargetRegressor(model, transformer=StandardScaler(with_std=False))
        return GridSearchCV(centered, grid, cv=5)

    alphas = 10.0 ** np.arange(-1, 5)
    own = max(score(lambda X, y, new, a=a: ours(X, y, new, a)) for a in alphas)  # type: ignore[misc]
    peer = max(score(lambda X, y, new, a=a: ridge(X, y, new, a)) for a in alphas)  # type: ignore[misc]
    scale = score(lambda X, y, new: ours(X, y, new, 1e-9))
    yield (
        f"diabetes: R^2 {own:.3f} with ridge, {scale:.3f} without; scikit-learn's Ridge on "
        f"quadratic features {peer:.3f}: {verdict(own >= peer - 0.005)} (at least that - .005)"
    )
    models = (QuadraticRegressor(alpha="cv"), kernel(), LinearRegression())
    found = [score(lambda X, y, new, m=m: chosen(m, X, y, new)) for m in models]  # type: ignore[misc]
    yield (
        f"diabetes, penalties chosen within each fold: QuadraticRegressor {found[0]:.3f}, "
        f"KernelRidge of degree 2 {found[1]:.3f}, linear least squares {found[2]:.3f}: "
        f"{verdict(found[0] >= max(found[1:]) - 0.005)} (at least the best of them - .005)"
    )


TASKS: Tasks = {
    "states-3-pure": lambda seeds: states(3, 1, seeds),
    "states-4": lambda seeds: states(4, 16, seeds),
    "states-5": lambda seeds: states(5, 32, seeds),
    "covariances": covariances,
    "preferences": preferences,
    "kernels": kernels,
    "ranges": ranges,
    "networks": networks,
    "regression": regression,
}


if __name__ == "__main__":
    run(TASKS, __doc__, seeds=10)
