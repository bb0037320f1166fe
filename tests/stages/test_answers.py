"""Random questions, each answered as CVXPY and HiGHS answer it, and certified.

Four hundred of plain rows, a hundred of rows of every kind and type and of sums over rows.
"""

import dataclasses

import answers
import answers_check
import numpy as np
import pytest
from helpers import sampled

from quadsense import Status
from quadsense.core.matrix import SensedMatrix

CHUNK = 5


@pytest.mark.parametrize(
    "first",
    [
        *sampled(range(0, 400, CHUNK), 2),
        *sampled(range(answers.STRUCTURED, answers.STRUCTURED + 100, CHUNK), 1),
    ],
)
def test_answers_are_those_of_independent_solvers(first):
    outcomes = [answers_check.run(seed) for seed in range(first, first + CHUNK)]
    assert [(o.seed, o.kind, o.findings) for o in outcomes if o.findings] == []


@pytest.mark.parametrize("first", [*sampled(range(0, 400, CHUNK), 2), 216])
def test_the_default_is_that_of_independent_solvers_and_certified(first):
    outcomes = [answers_check.run(seed, default=True) for seed in range(first, first + CHUNK)]
    assert [(o.seed, o.findings) for o in outcomes if o.findings] == []


@pytest.mark.parametrize("seed", [514, 562, 693, 897])
def test_answers_that_were_once_amiss_are_right(seed):
    """Intervals of what equalities determine; errors left open; rounding far inside an end."""
    assert answers_check.run(seed).findings == ()


@pytest.mark.slow
def test_nearly_every_case_is_compared():
    outcomes = [answers_check.run(seed) for seed in range(60)]
    assert sum("verdict" in o.compared for o in outcomes) >= 54


def test_the_generator_reaches_every_kind_of_question():
    cases = [answers.problem(seed) for seed in range(400)]
    names = ("field", "cone", "tolerance", "sides", "constraints", "preference", "b", "weights")
    seen = {name: {c.labels.get(name) for c in cases} - {None} for name in names}
    assert seen["field"] == {"real", "complex"} and seen["cone"] == {"symmetric", "psd"}
    assert seen["tolerance"] == {"scalar", "rows", "rtol", "bounds", "none"}
    assert seen["sides"] == {"two", "lower", "upper", "mixed"}
    assert seen["constraints"] == {"none", "trace", "linear", "both"}
    assert seen["preference"] == {
        *answers.PREFERENCES,
        *(f"slack {name}" for name in answers.SLACKS),
    }
    assert seen["b"] == {"with bounds", "none"} and seen["weights"] == {"True", "False"}
    assert any("equalities" in c.labels for c in cases)
    assert {"ridge", "prior"} <= {name for c in cases for name in c.preference}


def test_the_generator_reaches_every_kind_of_rows():
    first = answers.STRUCTURED
    cases = [answers.problem(seed) for seed in range(first, first + 300)]
    names = ("field", "storage", "mix", "violations")
    seen = {name: {c.labels.get(name) for c in cases} - {None} for name in names}
    assert seen["field"] == {"real", "complex", "conjugate"}
    assert seen["mix"] == {"", "sums", "signed", "differences", "alone", "full"}
    assert {"kronecker", "masked_fft", "differences", "stack", "operator"} <= seen["storage"]
    assert {"plain", "float32", "csr", "coo", "integer"} <= seen["storage"]
    assert "1" in seen["violations"] and seen["violations"] <= {"1", "2"}
    entries = [given for given, C in (c.asked for c in cases) if isinstance(given, tuple)]
    assert any(i != j for i, j in entries)
    imaginary = [C for _, C in (c.asked for c in cases) if not np.any(C.real)]
    assert any(np.count_nonzero(C) == 2 for C in imaginary)


def _answered(preference):
    """The first answered case of this preference, and its result."""
    for seed in range(400):
        case = answers.problem(seed)
        if case.labels["preference"] != preference or case.n < 2:
            continue
        result = answers_check.solve(case)
        if (
            result.status in (Status.MET, Status.OPTIMAL)
            and result.optimal
            and (
                abs(result.objective)
                > 1e-6  # of next to nothing, nearly any vector gives the bound
            )
        ):
            return case, result
    raise AssertionError(f"no case of {preference}")


PREFERRED = ("least_squares", "nearest", "center", "min_trace", "minimax", "slack max", "slack sum",
          "slack squares")  # fmt: skip


@pytest.mark.parametrize("preference", PREFERRED)
def test_a_changed_answer_is_not_verified(preference):
    case, result = _answered(preference)
    tolerance = {k: v for k, v in case.question.items() if k in ("delta", "rtol", "bounds")}
    certificate, claim = result.certificate, result.certificate.objective

    def holds(certificate):
        return bool(certificate.verify(case.U, case.b, **tolerance))

    assert holds(certificate)
    step = 1e-3 * (1.0 + abs(claim.value))
    rng = np.random.default_rng(0)
    dual = claim.dual + 0.3 * np.abs(claim.dual).max() * rng.standard_normal(claim.dual.shape)
    changes = {
        "value, too good": {"value": claim.value - step},
        "value, too bad": {"value": claim.value + step},
        "lower bound": {"lower": claim.lower + step, "upper": claim.upper + step},
        "upper bound": {"lower": claim.lower - step, "upper": claim.upper - step},
        "dual": {"dual": dual},
    }
    for name, change in changes.items():
        changed = dataclasses.replace(claim, **change)
        assert not holds(dataclasses.replace(certificate, objective=changed)), name
    A = np.asarray(certificate.matrix).copy()
    A[0, 0] += 1e-3 * np.linalg.norm(A)
    moved = SensedMatrix.from_dense(A)
    assert not holds(dataclasses.replace(certificate, matrix=moved)), "matrix"
