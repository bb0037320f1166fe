"""Constraints that contradict each other are refuted also where no reading must be met."""

import numpy as np
import pytest
from helpers import cover, sampled

import quadsense

CONSTRAINTS = {
    "two traces": {"trace": 1.0, "constraints": [(np.eye(3), 2.0, 2.0)]},
    "parts above the whole": {
        "trace": 1.0,
        "constraints": [
            (np.diag([1.0, 0.0, 0.0]), 1.5, 2.0),
            (np.diag([0.0, 1.0, 1.0]), 0.5, np.inf),
        ],
    },
    "zero": {"constraints": [(np.zeros((3, 3)), 1.0, 2.0)]},
}

QUESTIONS = {
    "least error": {},
    "least squares": {"prefer": "least_squares"},
    "ridge": {"ridge": 0.1},
    "slack max": {"slack": "max", "delta": 0.1},
    "slack sum": {"slack": "sum", "delta": 0.1},
    "slack squares": {"slack": "squares", "delta": 0.1},
}


def data(seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((20, 3)), rng.standard_normal(20)


def tolerance(question):
    return {"delta": question["delta"]} if "delta" in question else {}


@pytest.mark.parametrize("psd", sampled([True, False], 1))
@pytest.mark.parametrize(("contradiction", "asked"), cover(CONSTRAINTS, QUESTIONS, each=2))
def test_contradictory_constraints_are_refuted_whatever_is_asked_of_readings(
    contradiction, asked, psd, tmp_path
):
    U, b = data()
    constraints, question = CONSTRAINTS[contradiction], QUESTIONS[asked]
    result = quadsense.solve(U, b, psd=psd, **constraints, **question)
    assert result.status == "infeasible"
    assert "meets the constraints" in result.message
    assert result.suspects.size == 0 and result.verdict.blamed
    assert result.verify(U, b, **tolerance(question))
    result.save(tmp_path / "r.npz")
    again = quadsense.load_result(tmp_path / "r.npz")
    assert again.message == result.message and again.verify(U, b)


@pytest.mark.parametrize("rank", [1, 2, (1, 1)])
def test_low_rank_without_a_tolerance_is_refuted_by_its_relaxation(rank):
    U, b = data()
    result = quadsense.solve(U, b, rank=rank, **CONSTRAINTS["two traces"])
    assert result.status == "infeasible" and result.verify(U, b)


def test_a_trace_below_zero_is_refuted_in_the_cone_alone():
    U, b = data()
    assert quadsense.solve(U, b, trace=-1.0, psd=True).status == "infeasible"
    assert quadsense.solve(U, b, trace=-1.0).status == "optimal"


def test_equalities_that_contradict_each_other_are_refuted_under_slack():
    U, b = data()
    delta = np.where(np.arange(20) < 8, 0.0, 0.1)  # eight equalities of six unknowns
    result = quadsense.solve(U, b, delta=delta, slack="sum")
    assert result.status == "infeasible" and result.verify(U, b, delta=delta)
    assert result.suspects.size and result.suspects.max() < 8


def test_a_proof_that_leans_on_readings_is_none_of_the_constraints():
    U, b = data()
    met = quadsense.solve(U, b, delta=0.01)  # 20 readings, 6 unknowns, noise of 1
    assert met.status == "infeasible"
    wrong = met.certificate.__class__(**{**vars(met.certificate), "hard": True})
    assert not wrong.verify(U, b, delta=0.01)
    result = quadsense.solve(U, b, **CONSTRAINTS["two traces"])
    y = result.certificate.dual.copy()
    assert not np.any(y[:20])
    y[20] *= 2.0
    other = result.certificate.__class__(**{**vars(result.certificate), "dual": y})
    assert not other.verify(U, b)
