"""Results of every status and kind, for what shows them."""

import functools

import helpers
import numpy as np

import quadsense
from quadsense import datasets
from quadsense.system.watch import Interrupted


def _noisy():
    return datasets.gaussian(n=6, m=60, seed=0, noise=0.1)


def _solved(**options):
    p = _noisy()
    return quadsense.solve(p.U, p.b, **options)


def met():
    p = datasets.gaussian(n=12, m=60, seed=0)
    return quadsense.solve(p.U, p.b, delta=0.01)


def complex_psd():
    p = datasets.gaussian(n=5, m=40, seed=1, rank=2, complex=True, noise=0.01)
    trace = float(np.trace(p.A_star).real)
    return quadsense.solve(p.U, p.b, delta=0.05, psd=True, trace=trace)


def sparse_rows():
    rows = helpers.sparse_rows(np.random.default_rng(0), 30, 8, 0.4)
    return quadsense.solve(rows, np.ones(30), delta=2.0)


def violated():
    p = _noisy()
    b = np.where(np.arange(60) == 3, 9.0, p.b)
    return quadsense.solve(p.U, b, delta=0.5, allow_violations=2)


def never():
    p = _noisy()
    b = np.where(np.arange(60) % 20 == 3, 9.0, p.b)
    return quadsense.solve(p.U, b, delta=0.5, allow_violations=1)


def intervals():
    p = _noisy()
    hi = np.where(np.arange(60) % 3 == 0, np.inf, p.b + 0.4)
    lo = np.where(np.arange(60) % 5 == 1, -np.inf, p.b - 0.5)
    return quadsense.solve(p.U, bounds=(lo, hi))


def missed_intervals():
    p = _noisy()
    return quadsense.solve(p.U, bounds=(p.b - 0.02, np.inf), trace=0.1, psd=True)


def equalities():
    delta = np.where(np.arange(10) < 4, 0.0, 0.2)
    p = datasets.gaussian(n=6, m=10, seed=2)
    return quadsense.solve(p.U, p.b, delta=delta)


def max_iter():
    p = datasets.gaussian(n=12, m=60, seed=0)
    return quadsense.solve(p.U, p.b, delta=1e-4, method="gd", max_iter=5)


def stopped():
    def stop(intermediate_result):
        raise StopIteration

    p = datasets.gaussian(n=12, m=60, seed=0)
    return quadsense.solve(p.U, p.b, delta=1e-6, method="gd", callback=stop)


def time_limit():
    p = datasets.gaussian(n=12, m=60, seed=0)
    return quadsense.solve(p.U, p.b, delta=1e-9, method="gd", time_limit=1e-6)


def stalled():
    p = datasets.gaussian(n=3, m=30, seed=0, noise=0.1)
    return quadsense.solve(p.U, p.b, delta=0.01, method="gd")


def undecided():
    p = _noisy()
    return quadsense.solve(p.U, p.b, delta=0.3, rank=1, allow_violations=1)


def paper():
    p = datasets.orthonormal(n=20, m=20, seed=0)
    return quadsense.solve(p.U, p.b, delta=0.05, method="gd", schedule="paper")


def sums():
    p = _noisy()
    W = np.kron(np.eye(20), np.ones(3))
    return quadsense.solve(p.U, W @ p.b, mix=W, delta=0.5, weights=np.arange(1.0, 21.0))


def constrained():
    C = np.diag(np.arange(6.0))
    return _solved(delta=0.5, constraints=[(C, -1.0, 50.0), ((np.eye(6)[:, :2], [1, -1]), -9, 9)])


def spectral():
    return quadsense.solve_spectral(quadsense.SpectralOracle(np.diag([1.0, 2.0, 4.0])), np.eye(3))


CASES = {
    "met": met,
    "any": lambda: _solved(delta=0.5, prefer="any"),
    "infeasible": lambda: _solved(delta=0.05),
    "infeasible psd": lambda: quadsense.solve(np.eye(2), [-1.0, 1.0], delta=0.1, psd=True),
    "no tolerance": lambda: _solved(),
    "exact": lambda: quadsense.solve(np.eye(3) + 0.1, [1.0, 2.0, 3.0]),
    "slack": lambda: _solved(delta=0.05, slack="squares"),
    "local": lambda: _solved(rank=2),
    "rank": lambda: _solved(delta=0.9, rank=2),
    "signed rank": lambda: _solved(delta=0.9, rank=(2, 1)),
    "center": lambda: _solved(delta=0.5, psd=True, prefer="center"),
    "complex psd": complex_psd,
    "sparse": sparse_rows,
    "violations": violated,
    "never": never,
    "intervals": intervals,
    "missed intervals": missed_intervals,
    "equalities": equalities,
    "max_iter": max_iter,
    "interrupted": stopped,
    "time_limit": time_limit,
    "stalled": stalled,
    "undecided": undecided,
    "paper": paper,
    "sums": sums,
    "constrained": constrained,
    "spectral": spectral,
    "zero row": lambda: quadsense.solve(np.zeros((1, 1)), [1.0], delta=0.05),
    "one": lambda: quadsense.solve(np.ones((1, 1)), [1.0], delta=0.05),
    "rtol": lambda: _solved(delta=0.3, rtol=0.2),
    "tiny": lambda: quadsense.solve(1e-140 * np.eye(2), [1e-280, 2e-280], delta=1e-281),
    "huge": lambda: quadsense.solve(1e140 * np.eye(2), [1e280, 2e280], delta=1e279),
}


@functools.cache
def solved(name):
    """The result of that case, made once."""
    try:
        return CASES[name]()
    except Interrupted as interrupt:
        return interrupt.result
