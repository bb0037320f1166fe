"""The plan: what it counts, and what it does not promise."""

import gc
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import cover, gaussian_rows, readings, unit

import quadsense
from quadsense.cli.data import plan_text
from quadsense.query import plan as planning
from quadsense.query.plan import Shape, make_plan, shape_of

FORMS = {
    "unit rows": unit,
    "other norms": lambda U: 3.0 * U,
    "float32": lambda U: unit(U).astype(np.float32),
    "integers": lambda U: np.rint(100.0 * U).astype(np.int64),
    "Fortran order": lambda U: np.asfortranarray(unit(U)),
    "tiny norms": lambda U: 1e-90 * U,
    "sparse": lambda U: sp.csr_array(np.where(np.abs(U) > 1.5, U, 0.0)),
}
TASKS = {
    "cg": {"method": "cg"},
    "minimax": {"method": "minimax"},
    "psd": {"psd": True, "prefer": "any"},
    "least_squares": {"psd": True, "method": "least_squares"},
    "consensus": {"psd": True, "method": "consensus"},
    "conic": {"psd": True, "method": "conic"},
    "low_rank": {"rank": 2, "max_restarts": 0},
    "gd": {"method": "gd", "max_iter": 20},
}


def peak(call):
    """What a call gives, and the bytes that NumPy took at most meanwhile."""
    call()  # imports and compiled loops are not of the problem
    gc.collect()
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("form", "task"), cover(FORMS, TASKS, quick=4))
def test_no_more_memory_is_taken_than_planned(form, task, rng):
    m, n = (600, 90) if task in ("minimax", "gd", "conic") else (6000, 90)
    if task == "least_squares":  # tracing takes its time where many small arrays are made
        m, n = 2000, 40
    U = FORMS[form](gaussian_rows(rng, m, n, False))
    dense = U.toarray() if sp.issparse(U) else U.astype(np.float64)
    X = rng.standard_normal((n, 2))
    b = np.sum((dense @ X) ** 2, axis=1)
    result, taken = peak(
        lambda: quadsense.solve(U, b, delta=0.02 * b.max(), rng=0, time_limit=20, **TASKS[task])
    )
    assert taken <= 1.25 * result.plan["memory"]
    assert result.plan["memory"] <= 12 * taken  # nor is it far more: nothing is refused for that


@pytest.mark.parametrize(
    ("task", "conjugate"),
    cover(["cg", "psd", "least_squares", "consensus", "low_rank"], [False, True], quick=2),
)
def test_complex_rows_are_counted_as_they_are_copied(conjugate, task, rng):
    m, n = (1500, 24) if task in ("least_squares", "consensus") else (6000, 60)
    U = gaussian_rows(rng, m, n, True)
    x = rng.standard_normal((n, 2))
    b = np.sum(np.abs(U.conj() @ x) ** 2, axis=1)
    if task == "consensus":  # a contradiction: the plan counts what a proof of one takes
        b += rng.uniform(-0.05, 0.05, m) * b.max()
    result, taken = peak(
        lambda: quadsense.solve(
            U, b, delta=0.02 * b.max(), conjugate=conjugate, rng=0, **TASKS[task]
        )
    )
    assert taken <= 1.25 * result.plan["memory"] <= 15 * taken


@pytest.mark.parametrize("task", ["cg", "psd"])
def test_a_dense_start_is_counted(task, rng):
    n = 700
    U = unit(gaussian_rows(rng, 60, n, False))
    S = rng.standard_normal((n, n))
    options = {"delta": 0.1, "start": S @ S.T, **TASKS[task]}
    b = readings(U, S @ S.T) + 1.0
    result, taken = peak(lambda: quadsense.solve(U, b, **options))
    assert 2 * 8 * n * n <= taken <= 1.25 * result.plan["memory"]
    without = quadsense.solve(U, b, delta=0.1, **TASKS[task]).plan["memory"]
    assert result.plan["memory"] - without == 3 * 8 * n * n
    word = quadsense.solve(U, b, delta=0.1, start="zero", **TASKS[task]).plan["memory"]
    warm = quadsense.solve(U, b, delta=0.1, method="cg")  # coefficients, no matrix
    assert word == without
    assert quadsense.solve(U, b, delta=0.1, start=warm, **TASKS[task]).plan["memory"] == without


@pytest.mark.parametrize("psd", [False, True])
def test_the_memory_of_a_proof_is_told(psd, rng):
    U = gaussian_rows(rng, 20, 1500, False)
    U[1] = U[0]
    b = np.ones(20)
    b[1] = 2.0
    result, taken = peak(lambda: quadsense.solve(U, b, delta=1e-3, psd=psd, prefer="any"))
    assert result.status == "infeasible"
    plan = result.plan
    assert taken <= 1.25 * (plan["memory"] + plan["proof_memory"])
    assert psd or plan["memory"] < taken  # else the proof keeps to the span of the rows


def test_a_converted_u_is_counted_once_and_not_asked_for_again(rng, monkeypatch):
    U = unit(gaussian_rows(rng, 4000, 50, False))
    b = readings(U, np.eye(50))
    wild = U * 2.0**200  # copied, so that no square overflows
    memory = {
        name: quadsense.solve(rows, scale * b, delta=0.1 * scale, method="cg").plan["memory"]
        for name, rows, scale in (
            ("float64", U, 1.0),
            ("float32", U.astype(np.float32), 1.0),
            ("wild", wild, 2.0**400),
        )
    }
    # Nothing is converted, and rows in single precision are there already.
    assert memory["float64"] - memory["float32"] == U.nbytes // 2
    assert memory["wild"] - memory["float64"] == U.nbytes
    monkeypatch.setattr(planning, "available_memory", lambda: memory["wild"] - U.nbytes)
    quadsense.solve(wild, 2.0**400 * b, delta=0.1 * 2.0**400, method="cg")


def test_what_cannot_fit_is_refused_with_a_method_that_would(monkeypatch):
    shape = Shape(m=3000, n=100)
    monkeypatch.setattr(planning, "available_memory", lambda: 2**40)
    least = make_plan(shape, "cg").memory
    assert least < make_plan(shape).memory
    monkeypatch.setattr(planning, "available_memory", lambda: least)
    with pytest.raises(MemoryError, match="method='cg' would fit"):
        planning.refuse_what_cannot_fit(shape, make_plan(shape, "minimax"))
    plan = make_plan(shape)  # least squares may settle it
    assert list(planning.refuse_what_cannot_fit(shape, plan)) == ["minimax"]
    monkeypatch.setattr(planning, "available_memory", lambda: 0)
    with pytest.raises(MemoryError, match="use fewer measurements"):
        planning.refuse_what_cannot_fit(shape, make_plan(shape))


def test_a_later_method_that_cannot_fit_stays_in_the_plan(monkeypatch):
    shape = Shape(m=8000, n=90, psd=True, prefer="least_squares")
    monkeypatch.setattr(planning, "available_memory", lambda: 2**40)
    whole = make_plan(shape)
    assert whole.methods == ("consensus", "conic", "psd")
    assert make_plan(shape, "consensus").memory < 2**27 < make_plan(shape, "conic").memory
    monkeypatch.setattr(planning, "available_memory", lambda: 2**27)
    assert make_plan(shape) == whole
    refused = planning.refuse_what_cannot_fit(shape, whole)
    assert set(refused) >= {"conic"} and "consensus" not in refused


def test_a_later_method_that_cannot_fit_is_refused_when_it_is_reached(monkeypatch, rng):
    U = gaussian_rows(rng, 900, 20, False)
    b = readings(U, np.eye(20)) + rng.uniform(-2.0, 2.0, 900)
    asked = {"delta": 1.9, "prefer": "any"}
    assert quadsense.solve(U, b, **asked).plan["method"] == "minimax"
    few = make_plan(Shape(m=900, n=20), "cg").memory
    monkeypatch.setattr(planning, "available_memory", lambda: few)
    with pytest.raises(
        MemoryError, match=r"method minimax would take .* because cg did not settle"
    ):
        quadsense.solve(U, b, **asked)
    assert quadsense.solve(U, b, delta=5.0, prefer="any").met


# --- time --------------------------------------------------------------------------------------


def test_a_time_that_nobody_knows_is_not_promised():
    plan = make_plan(Shape(m=46_656, n=64, complex=True))
    assert plan.methods == ("cg", "minimax") and plan.seconds is None
    assert plan.times["minimax"] > 50 * plan.times["cg"]
    assert "unknown time" in plan_text(plan) and "unknown time predicted" in repr(plan)
    assert "if cg meets delta" in plan_text(plan)


def test_few_rows_are_expected_to_be_met_by_the_first_method():
    plan = make_plan(Shape(m=1000, n=100))
    assert plan.seconds == pytest.approx(plan.times["cg"] + planning.SOLVE_SECONDS)


@pytest.mark.parametrize(
    "option", [{}, {"psd": True}, {"psd": True, "rank": 3}, {"target": False}, {"complex": True}]
)
def test_predictions_grow_with_the_problem(option):
    plans = [make_plan(Shape(m=20 * n // 4, n=n, **option)) for n in (40, 80, 160, 320, 640)]
    for small, large in pairwise(plans):
        assert small.seconds < large.seconds and small.memory < large.memory


def test_the_shape_knows_how_much_the_residual_must_fall(rng):
    U = unit(gaussian_rows(rng, 50, 20, False))
    b = readings(U, np.diag(np.arange(20.0)))
    options = {"psd": False, "rank": None, "target": True}
    ratios = [
        shape_of(quadsense.Measurements(U, b, delta=delta), **options).ratio
        for delta in (100.0, 1e-1, 1e-5)
    ]
    assert ratios[0] == 1.0 and ratios[2] > 1000 * ratios[1] > 1000 * ratios[0]
    assert ratios[1] >= np.ptp(b) / 0.1 > ratios[1] / 2
