"""Wrong types in every argument end in one sentence of our own: no exception of a library's."""

import dis
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from test_bad_input import ENDLESS, Unreadable

import quadsense
from quadsense import theory

pytest.importorskip("sklearn")
from quadsense.sklearn import MahalanobisLearner, MahalanobisLearner_Supervised, QuadraticRegressor

BAD = {
    "None": None, "text": "a", "bytes": b"a", "nested": [[1.0, [2.0]], [3.0]], "nan": np.nan,
    "inf": np.inf, "negative": -1.5, "huge": 1e308, "large": 10**400, "true": True, "empty": [],
    "dict": {"a": 1}, "masked": np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]),
    "sparse": sp.csr_array(np.eye(3)), "object": object(), "unreadable": Unreadable(),
    "complex": 1j, "cube": np.ones((2, 3, 4)), "vector": np.array([1.0, np.nan, 2.0]),
    "objects": np.array([1, None, "x"], dtype=object), "dates": np.zeros(3, "datetime64[D]"),
    "records": np.zeros(3, dtype=[("a", float)]), "endless": ENDLESS, "type": int,
    "0d": np.array(2.0),
}  # fmt: skip

RNG = np.random.default_rng(0)
U = RNG.standard_normal((12, 3))
B = np.sum(U * U, axis=1)
DATA = quadsense.Measurements(U, B, delta=0.1)
RESULT = quadsense.solve(U, B, delta=0.1)
CLAIM = RESULT.certificate
X = RNG.standard_normal((30, 3))
Y = np.sum(X * X, axis=1)
PAIRS = RNG.standard_normal((40, 2, 3))
ALIKE = np.where(np.linalg.norm(PAIRS[:, 0] - PAIRS[:, 1], axis=1) < 2.2, 1, -1)
LEARNER = MahalanobisLearner().fit(PAIRS, ALIKE)

CALLS = {
    "verify, rtol": lambda x: RESULT.verify(U, B, rtol=x),
    "certificate.verify, rtol": lambda x: CLAIM.verify(U, B, rtol=x),
    "certificate.verify, delta": lambda x: CLAIM.verify(U, B, delta=x),
    "spectral, confidence": lambda x: CLAIM.spectral(0.1, confidence=x),
    "spectral, data": lambda x: CLAIM.spectral(0.1, data=x),
    "spectral, noise": CLAIM.spectral,
    "report, intervals": lambda x: RESULT.report(intervals=x, check=False),
    "save": lambda x: RESULT.save(x),
    "save_matrix": lambda x: RESULT.save_matrix(x),
    "set_aside": DATA.set_aside,
    "rows": DATA.rows,
    "forward": DATA.forward,
    "adjoint": DATA.adjoint,
    "append, delta": lambda x: DATA.append(U, B, delta=x),
    "append, U": lambda x: DATA.append(x, B),
    "constrained, trace": lambda x: DATA.constrained(x),
    "with_tolerance, rtol": lambda x: DATA.with_tolerance(rtol=x),
    "from_dense": quadsense.SensedMatrix.from_dense,
    "from_factor": quadsense.SensedMatrix.from_factor,
    "quadratic": RESULT.matrix.quadratic,
    "eigsh, k": RESULT.matrix.eigsh,
    "eigsh, which": lambda x: RESULT.matrix.eigsh(1, x),
    "schedule, m": lambda x: theory.schedule(m=x, radius=1.0, delta=0.1),
    "schedule, delta": lambda x: theory.schedule(m=2, radius=1.0, delta=x),
    "schedule, radius": lambda x: theory.schedule(m=2, radius=x, delta=0.1),
    "schedule, batch_size": lambda x: theory.schedule(m=2, radius=1.0, delta=0.1, batch_size=x),
    "spectral_schedule, n": lambda x: theory.spectral_schedule(n=x, radius=1.0, accuracy=0.1),
    "sharpness, m": theory.sharpness,
    "progress_bound, lam": lambda x: theory.progress_bound(1.0, m=4, lam=x, step=0.1),
    "potential_bound": lambda x: theory.potential_bound(
        x, log_potential=1.0, m=4, lam=1.0, step=0.1
    ),
    "rtol of interval": lambda x: quadsense.interval(U, B, delta=0.1, rtol=x),
    "prior of pairs": lambda x: MahalanobisLearner(prior=x).fit(PAIRS, ALIKE),
    "percentiles": lambda x: MahalanobisLearner(percentiles=x).fit(PAIRS, ALIKE),
    "stretch": lambda x: MahalanobisLearner(stretch=x).fit(PAIRS, ALIKE),
    "threshold": LEARNER.set_threshold,
    "a point of get_metric": lambda x: LEARNER.get_metric()(x, np.ones(3)),
    "random_state": lambda x: MahalanobisLearner_Supervised(random_state=x).fit(X, Y > 3.0),
    **{
        f"QuadraticRegressor, {name}": lambda x, name=name: QuadraticRegressor(**{name: x}).fit(
            X, Y
        )
        for name in ("alpha", "psd", "fit_linear", "fit_intercept", "alphas", "random_state", "tol")
    },
}
"""Calls of one argument, by what that is."""


def is_ours(error):
    """Whether an exception was raised by a statement of the package."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    raised = dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    return raised and "quadsense" in code.co_filename


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_the_wrong_kind_is_refused_in_our_own_words(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    foreign = {}
    refused = 0
    for kind, value in BAD.items():
        with warnings.catch_warnings(), np.errstate(under="ignore"):
            warnings.simplefilter("error")
            try:
                CALLS[name](value)
            except (ValueError, TypeError) as error:
                refused += 1
                if not is_ours(error):
                    foreign[kind] = repr(error)
            except Exception as error:
                foreign[kind] = repr(error)
    assert foreign == {}
    assert refused >= 10
