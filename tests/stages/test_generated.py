"""Generated problems over everything that `solve` accepts, against independent truth.

Three hundred that ask for any fit here, three hundred that ask for more, and three hundred of
structured probes and sums over rows; ``make test-deep`` runs 20,000 of each of the first two and
5,000 of the last.
"""

import deep
import exact
import fuzz
import generator
import generator_preferences
import numpy as np
import pytest
from helpers import sampled

import quadsense

CHUNK = 5

EXCUSED: dict[int, str] = {
    148: "two copies of a row of norm 1e44 with lower ends alone: minimax, named, ends at once",
    1000188: "rounding stops the kernel at a gap of 2.5%: rank one, an equality, an active end",
}
"""Seeds left undecided although clear of the edge, each with its reason: one in 2,000 at most."""

MENDED = [
    3852, 4304, 4477, 5186, 5218, 7229, 7285, 7588, 7917, 9146, 9323, 10204, 10712, 8709,
    13595, 14258, 15874, 17120, 18615, 20262, 20324, 20686, 20738, 23274, 23361, 23883,
    23909, 25204, 25488, 25690, 26020, 26042, 41426, 100366, 101165,
    201019, 201850, 202188, 401098, 402022, 402693, 50019, 50115,
    1002465, 1002547, 1003222, 1003272, 1010073, 20045, 21040, 1000038, 1000218,
    23880, 1002027, 1002598, 20279, 2163,
]  # fmt: skip
"""Seeds that raised a floating-point flag or an exception, came back with infinite entries or a
false objective, ended the process, or stated what their own `verify` refused."""

CLOSED = [
    20238, 21741, 22752, 22800, 22835, 22950, 23042, 23066, 23198, 23224, 23462, 25451,
    25608, 26113, 30200, 31044, 31399, 100232, 101687, 101712,
    103758, 1263, 6787, 6923, 8333, 102546, 201493, 300355, 300618, 1002752, 1003340,
    1000487, 1000563, 1000696, 1001784, 1004140,
]  # fmt: skip
"""Seeds without a tolerance that were once left undecided: bounds lost what rounding left of
``F*(y)``, constraints contradicted each other, or had no room for what transforms err by."""

OPEN = [20502, 100438]
"""Seeds without a tolerance that are left undecided, depending on rounding: readings of 1e123 with
two constraints, and five readings of which the smallest worst error is not proved."""

RESTED = [25898, 101397, 105173, 105479, 201306, 400179]
"""Seeds of low rank without a tolerance whose least squares once did not come to rest."""

FOUND = [6762, 9168, 9951, 11764, 15598, 16065]
"""Seeds of low rank with rows set aside whose readings once spoilt the start of the others."""

FIRST = [
    *sampled(range(0, 300, CHUNK), 2),
    *sampled(range(generator.PREFERRED, generator.PREFERRED + 300, CHUNK), 2),
    *sampled(range(generator.STRUCTURED, generator.STRUCTURED + 300, CHUNK), 2),
]


@pytest.mark.parametrize("seed", sampled(MENDED))
def test_cases_that_once_went_wrong_do_so_no_more(seed):
    outcome = deep.run(seed)
    assert not deep.is_failure(outcome), outcome.findings


@pytest.mark.parametrize("seed", sampled(CLOSED))
def test_questions_without_a_tolerance_that_were_once_left_open_are_answered(seed):
    outcome = deep.run(seed)
    assert not deep.is_failure(outcome), outcome.findings
    assert outcome.status in ("optimal", "infeasible")


@pytest.mark.parametrize("seed", OPEN)
def test_questions_that_are_left_open_end_in_nothing_wrong(seed):
    outcome = deep.run(seed)
    assert not deep.is_failure(outcome), outcome.findings
    assert outcome.status in ("optimal", "infeasible", "undecided", "stalled")


@pytest.mark.parametrize("seed", sampled(RESTED, 2))
def test_least_squares_of_low_rank_that_once_crept_come_to_rest(seed):
    outcome = deep.run(seed)
    assert not deep.is_failure(outcome), outcome.findings
    assert outcome.status == "local"


@pytest.mark.parametrize("seed", FOUND)
def test_rows_set_aside_do_not_lead_the_start_of_a_low_rank_fit_astray(seed):
    assert deep.run(seed).status == "met"


@pytest.mark.parametrize("first", FIRST)
def test_generated_problems_end_in_true_and_checkable_verdicts(first):
    outcomes = [deep.run(seed) for seed in range(first, first + CHUNK)]
    assert [(o.seed, o.findings) for o in outcomes if deep.is_failure(o)] == []
    undecided = [(o.seed, o.detail) for o in outcomes if o.category == fuzz.UNDECIDED]
    assert [(seed, text) for seed, text in undecided if seed not in EXCUSED] == []


def test_a_seed_alone_reproduces_its_case():
    for seed in (3, 77):
        one, other = generator.problem(seed), generator.problem(seed)
        assert repr(one) == repr(other)
        np.testing.assert_array_equal(one.rows, other.rows)
    assert repr(generator.problem(3)) != repr(generator.problem(4))


def test_the_generator_reaches_every_kind_of_problem():
    cases = [generator.problem(seed) for seed in range(500)]
    seen = {name: {case.labels[name] for case in cases} for name in cases[0].labels}
    assert seen["field"] == {"real", "complex", "conjugate"}
    assert seen["storage"] == {
        "plain", "fortran", "strided", "csr", "coo", "float32", "integer", "list", "strict"
    }  # fmt: skip
    assert seen["norms"] == {"ordinary", "uneven", "extreme"}
    assert seen["cone"] == {"symmetric", "psd", "rank"}
    assert seen["tolerance"] == {"scalar", "rows", "rtol", "both", "bounds", "none"}
    assert seen["bounds"] == {"-", "two", "lower", "upper", "mixed", "free"}
    assert seen["violations"] == {"0", "1", "2", "3"}
    assert seen["method"] == {
        "auto", "closed_form", "gd", "sgd", "cg", "minimax", "psd", "low_rank"
    }  # fmt: skip
    assert {"zero row", "duplicates", "near-duplicates"} <= {n for c in cases for n in c.notes}
    assert {case.wrapped for case in cases} == {"arrays", "Measurements", "later"}


def test_the_generator_reaches_every_kind_of_probes_and_of_sums():
    first = generator.STRUCTURED
    cases = [generator.problem(seed) for seed in range(first, first + 500)]
    names = ("geometry", "mix", "field", "storage", "norms", "violations")
    seen = {name: {case.labels[name] for case in cases} for name in names}
    assert seen["geometry"] == {
        "kronecker", "masked_fft", "differences", "stack", "operator", "array"
    }  # fmt: skip
    assert seen["mix"] == {"", "sums", "signed", "differences", "alone", "full"}
    assert seen["field"] == {"real", "complex", "conjugate"}
    assert {"float32", "csr", "coo", "strict", "integer"} <= seen["storage"]
    assert seen["norms"] == {"ordinary", "uneven", "extreme"}
    assert seen["violations"] == {"0", "1", "2", "3"}
    notes = {note for case in cases for note in case.notes}
    assert {"zero row", "zero row of mix", "duplicates in mix", "duplicates"} <= notes
    assert all(case.mix is not None or case.dense is not None for case in cases)
    assert {case.labels.get("preference") is None for case in cases} == {True, False}


@pytest.mark.parametrize("seed", range(generator.STRUCTURED, generator.STRUCTURED + 40))
def test_dense_rows_and_sums_read_what_the_package_reads(seed):
    """The definitions that the truth rests on are those that the package has."""
    case = generator.problem(seed)
    U, b, question = case.data()
    if not isinstance(U, quadsense.Measurements):
        U = quadsense.Measurements(U, b, **question)
    A = np.diag(np.arange(1.0, case.n + 1.0)).astype(case.rows.dtype)
    A[0, -1], A[-1, 0] = (2.0 + 0.5j, 2.0 - 0.5j) if np.iscomplexobj(A) else (2.0, 2.0)
    expected = np.array([exact.number(value) for value in case.values(A, False)])
    size = np.linalg.norm(A) * np.array([exact.number(value) for value in case.squares])
    assert (np.abs(U.forward(A) - expected) <= 1e-12 * size).all()


def test_the_generator_reaches_every_kind_of_preference():
    cases = [
        generator.problem(seed) for seed in range(generator.PREFERRED, generator.PREFERRED + 500)
    ]
    seen = {
        n: {c.labels.get(n) for c in cases}
        for n in ("preference", "constraints", "rank", "b given")
    }
    slacks = {"slack max", "slack sum", "slack squares"}
    assert seen["preference"] == {*generator_preferences.PREFERENCES} | slacks
    assert seen["constraints"] == {"none", "trace", "linear", "both"}
    assert seen["rank"] == {None, "(p, q)"} and seen["b given"] == {"", "b"}
    given = {name for case in cases for name in (*case.options, *case.question)}
    assert {"ridge", "prior", "weights", "trace", "constraints", "slack", "prefer"} <= given
    assert any("equalities" in case.labels for case in cases)
    ranks = [case for case in cases if case.cone == "rank"]
    assert {case.has_target for case in ranks} == {True, False}
    assert {"lower", "upper", "mixed"} & {case.labels["bounds"] for case in ranks}


def test_the_smallest_worst_ratio_is_followed_until_it_is_on_one_side_of_1():
    case = generator.problem(21783)  # 0.999, which a gap of 1% does not tell from 1.008
    asked = {name: case.options[name] for name in ("prefer", "max_iter")}
    result = quadsense.solve(case.U, case.b, **case.question, **asked)
    assert result.met and result.optimal and result.prefer == "minimax"
    assert result.objective <= 1.0 and result.objective_bounds[0] > 0.99


def test_rows_next_to_constraints_keep_bounds_that_cancellation_would_lose():
    case = generator.problem(20264)  # multipliers of 47 equalities are far larger than the cost
    asked = {name: case.options[name] for name in ("constraints", "trace")}
    result = quadsense.solve(case.U, case.b, **case.question, **asked)
    assert result.met and result.optimal
    assert result.objective_bounds[0] >= 0.99 * result.objective


def test_a_value_that_rounds_otherwise_once_loaded_takes_nothing_from_the_bound():
    case = generator.problem(3300084)  # the start is far larger than the readings
    with fuzz.Strict():
        result = fuzz.solve(case)
    claim = result.certificate.objective
    assert claim.lower > 0.999 * claim.value  # what the other evaluation finds is less
    assert fuzz.check(case).category == "ok"
