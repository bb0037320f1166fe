"""The verdict: every number in it from the data, every sentence from it alone."""

import dataclasses
import json

import numpy as np
import pytest

import quadsense
from quadsense import Status
from quadsense.result import words
from quadsense.result.facts import Row, Verdict
from quadsense.stages.violations import ENDS
from quadsense.vocabulary import REASONS, Reason, because, to_reason


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    U = rng.standard_normal((40, 6))
    A = np.diag([1.0, 2.0, 3.0, 1.0, 0.5, -1.0])
    return U, np.einsum("ij,jk,ik->i", U, A, U) + rng.uniform(-0.1, 0.1, 40)


def _residuals(U, b, result):
    return np.abs(np.einsum("ij,jk,ik->i", U, result.A, U) - b)


def test_the_worst_and_the_nearest_row_are_those_of_the_residuals(data):
    U, b = data
    delta = np.random.default_rng(0).uniform(0.1, 3.0, 40)
    result = quadsense.solve(U, b, delta=delta, method="minimax", max_iter=9)
    z, v = _residuals(U, b, result), result.verdict
    worst, nearest = int(np.argmax(z)), int(np.argmax(z / delta))
    assert (v.worst.index, v.nearest.index) == (worst, nearest)
    assert worst != nearest
    np.testing.assert_allclose([v.worst.size, v.nearest.size], z[[worst, nearest]], rtol=1e-9)
    assert (v.worst.tolerance, v.nearest.tolerance) == (delta[worst], delta[nearest])
    assert (v.status, v.claim, v.asked, v.even) == (Status.MET, "met", "delta", False)
    assert (v.over, v.measurements, v.kept, v.reason, v.missed) == (0, 40, 40, None, None)
    assert (v.unique, v.unseen, v.unknowns, v.exact) == (True, 0, 21, True)
    assert v.upper_bound >= v.nearest.size / v.nearest.tolerance


def test_what_is_over_is_counted(data):
    U, b = data
    result = quadsense.solve(U, b, delta=0.05, method="gd", max_iter=3)
    z, v = _residuals(U, b, result), result.verdict
    assert v.over == np.sum(z > 0.05) > 0
    assert v.reason == because("max_iter", most=3)
    assert f"not met: {v.over} of 40 measurements over delta = 0.05" in result.message
    assert "Stopped after max_iter = 3 iterations." in result.message


def test_the_interval_missed_by_most(data):
    U, b = data
    lo, hi = b - 1e-3, np.where(np.arange(40) % 2, np.inf, b + 2e-3)
    result = quadsense.solve(U, bounds=(lo, hi), method="minimax", max_iter=1)
    values = np.einsum("ij,jk,ik->i", U, result.A, U)
    by = np.maximum(np.maximum(lo - values, values - hi), 0.0)
    v = result.verdict
    assert not result.success and v.asked == "bounds" and v.over == np.sum(by > 0)
    assert v.missed.index == np.argmax(by)
    np.testing.assert_allclose(v.missed.size, by.max(), rtol=1e-9)
    row = v.missed.index
    assert (v.missed.lo, v.missed.hi) == (lo[row], None if row % 2 else hi[row])
    assert v.worst.tolerance is v.worst.reading is None  # nothing invented


def test_without_a_tolerance_none_is_told(data):
    U, b = data
    for prefer in ("least_squares", "minimax"):
        v = quadsense.solve(U, b, prefer=prefer).verdict
        assert (v.asked, v.claim, v.exact_fit, v.over) == ("least", "optimal", False, 0)
        assert v.worst.tolerance is v.worst.lo is v.worst.hi is None
        assert v.prefer == prefer
        assert v.lower_bound <= v.worst.size <= v.upper_bound
    assert v.lower_bound > 0  # of the smallest worst error


@pytest.mark.parametrize("scale", [1e-7, 1.0, 3e11])
def test_without_a_tolerance_the_message_gives_a_delta_that_is_met(data, scale):
    U, b = data
    message = quadsense.solve(U, scale * b).message
    delta = float(message.partition("this A meets delta = ")[2].partition(". ")[0])
    result = quadsense.solve(U, scale * b)
    assert result.max_residual <= delta <= result.max_residual * 1.001
    assert result.matrix is not None and result.verify(U, scale * b)
    assert "prefer='minimax' finds the smallest delta of all" in message
    least = quadsense.solve(U, scale * b, prefer="minimax")
    assert least.max_residual < delta
    assert "this A meets" not in least.message


def test_the_message_names_the_pull_where_there_is_one(data):
    U, b = data
    assert "Regularized least squares: " in quadsense.solve(U, b, delta=0.5).message
    assert "egularized" not in quadsense.solve(U, b, delta=0.5, ridge=0).message
    with_entropy = quadsense.solve(U[:4], U[:4, 0] ** 2 + 1.0, delta=0.5, psd=True)
    assert "Least squares, regularized by relative entropy: " in with_entropy.message


@pytest.mark.parametrize(
    ("m", "said"), [(5, "A follows the noise"), (22, "A may follow the noise"), (30, None)]
)
def test_readings_hardly_more_than_the_unknowns_are_warned_of(m, said):
    p = quadsense.datasets.gaussian(n=6, m=m, noise=0.1, seed=0)  # 21 unknowns
    message = quadsense.solve(p.U, p.b).message
    assert (said or "The measurements determine A") in message
    assert ("follow" in message) == (said is not None)


def test_a_contradiction_names_its_row(data):
    U, b = data[0].copy(), data[1].copy()
    U[7], b[7] = 0.0, 2.0
    v = quadsense.solve(U, b, delta=0.5).verdict
    assert v.status is Status.INFEASIBLE
    assert v.contradiction == Row(7, v.contradiction.size, reading=2.0, tolerance=0.5)
    assert v.suspects == (7,)


def test_advice_comes_with_the_eigenvalue(data):
    U = data[0]
    assert quadsense.solve(U, np.sum(U**2, axis=1), delta=0.1).verdict.advice == ()
    U, b = np.eye(2)[[0, 0, 1]] + [[0, 0], [0, 1], [0, 0]], np.array([1.0, 0.1, 0.1])
    result = quadsense.solve(U, b, delta=1e-3)  # b = (1, 1 + 2x + .1, .1): x = -0.5
    (advice,) = result.verdict.advice
    assert advice.code == "psd"
    np.testing.assert_allclose(advice.number, np.linalg.eigvalsh(result.A)[0], rtol=1e-9)
    assert "Try psd=True" in result.message


def test_the_message_needs_nothing_but_the_verdict(data, tmp_path):
    U, b = data
    result = quadsense.solve(U, b, delta=0.01)
    through_json = json.loads(json.dumps(dataclasses.asdict(result.verdict)))
    assert through_json["status"] == "infeasible"
    result.save(tmp_path / "r.npz")
    again = quadsense.load_result(tmp_path / "r.npz")
    assert again.verdict == result.verdict and isinstance(again.verdict, Verdict)
    assert words.message(again.verdict) == result.message


def leaves(node):
    """What dataclasses, tuples and dictionaries hold in the end."""
    if dataclasses.is_dataclass(node):
        node = [getattr(node, field.name) for field in dataclasses.fields(node)]
    elif isinstance(node, dict):
        node = list(node.values())
    elif not isinstance(node, tuple):
        return [node]
    return [leaf for part in node for leaf in leaves(part)]


def test_a_verdict_holds_no_arrays(data):
    for options in ({"delta": 0.01}, {}, {"delta": 0.5, "psd": True}, {"delta": 0.2, "rank": 3}):
        verdict = quadsense.solve(*data, **options).verdict
        types = {type(leaf) for leaf in leaves(verdict)}
        assert {Status, str, float} <= types <= {Status, str, int, float, bool, type(None)}


NUMBERS = {
    "no_bound": {"seconds": 0.5},
    "no_proof": {"claimed": "infeasible", "seconds": 0.5},
    "said": {"text": "enough"},
    "max_iter": {"most": 3},
    "lemma": {"most": 3, "lemma": "Lemma 5.3"},
    "time_limit": {"seconds": 0.5},
    "passes": {"passes": 12, "ratio": 2.0},
    "slow": {"share": 1e-3, "strides": 10, "ratio": 2.0, "method": "gd"},
    "rounding": {"part": 0.7},
    "bounds_apart": {"lower": 0.5, "upper": 1.5, "of": "error"},
    "psd_between": {"lower": 0.5, "upper": 1.5},
    "no_factor": {
        "starts": 2, "ratio": 3.0, "rounding": 0.0, "no_rank_fits": False, "may_grow": True
    },
    "no_set": {"allowed": 2, "ended": "time_limit", "seconds": 0.5},
    "at_rest": {"starts": 2},
    "restless": {"starts": 2},
    "no_answer": {"how": "stalled"},
    "unproved": {"claimed": "infeasible"},
}  # fmt: skip


@pytest.mark.parametrize("code", sorted(REASONS))
def test_every_reason_has_its_sentence(code):
    said = str(Reason(code, NUMBERS.get(code, {})))
    assert said and said[-1] not in ".;"
    for number in NUMBERS.get(code, {}).values():
        if isinstance(number, float) and number >= 0.1 and code != "no_factor":
            assert f"{number:g}" in said


@pytest.mark.parametrize("ended", sorted(ENDS))
def test_every_end_of_a_search_has_its_sentence(ended):
    reason = Reason("no_set", {"allowed": 2, "ended": ended, "seconds": 0.5, "most": 3})
    said = str(reason)
    assert "set 2 measurements aside is not known: " in said
    assert ("0.5" in said) == (ended == "time_limit")
    assert ("max_iter = 3" in said) == (ended == "max_iter")


def test_a_reason_in_words_is_kept_as_it_is():
    assert to_reason("") is None and to_reason(None) is None
    assert str(to_reason("no more coins")) == "no more coins"
    assert to_reason(None) is None


# --- files -------------------------------------------------------------------------------------


def _changed_file(tmp_path, data, change):
    quadsense.solve(*data, delta=0.5).save(tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as archive:
        arrays = {name: archive[name] for name in archive.files if name != "metadata"}
        metadata = json.loads(str(archive["metadata"]))
    change(metadata)
    np.savez(tmp_path / "r.npz", metadata=np.array(json.dumps(metadata)), **arrays)
    return tmp_path / "r.npz"


@pytest.mark.parametrize("how", ["stalled", "infeasible", "unbounded"])
def test_every_end_without_an_answer_has_its_sentence(how):
    assert str(Reason("no_answer", {"how": how}))


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_earlier_formats_are_refused_in_a_sentence(tmp_path, data, version):
    path = _changed_file(tmp_path, data, lambda meta: meta.update(version=version))
    with pytest.raises(
        ValueError, match=rf"format {version}, this one reads 5 to 7\): solve again$"
    ):
        quadsense.load_result(path)


def _reason(code):
    return {
        "kind": "quadsense.vocabulary:Reason",
        "fields": {"code": code, "numbers": {"dict": {}}},
    }


def _status(name):
    return {"enum": "quadsense.vocabulary:Status", "name": name}


@pytest.mark.parametrize(
    "entries",
    [
        {"exact_fit": "none"},
        {"worst": None},
        {"worst": {"index": 1}},
        {"worst": {"kind": "quadsense.result.facts:Row", "fields": {"index": 1}}},
        {"worst": {"kind": "quadsense.result.facts:Advice", "fields": {"code": "a", "number": 1}}},
        {"worst": {"kind": "quadsense.system.watch:Watch", "fields": {}}},
        {"worst": {"kind": "os:system", "fields": {"command": "false"}}},
        {"asked": 1},
        {"determined": 3},
        {"determined": {"kind": "quadsense.result.facts:Determined", "fields": {"unseen": 0}}},
        {"operator_error": "1"},
        {"suspects": {"tuple": ["a"]}},
        {"suspects": {"list": [1]}},
        {"another": 1},
    ],
    ids=str,
)
def test_damaged_facts_are_refused(tmp_path, data, entries):
    def change(meta):
        result = meta["whole"]["dict"]["result"]["fields"]
        result["facts"]["fields"].update(entries)

    path = _changed_file(tmp_path, data, change)
    with pytest.raises(ValueError, match="is a damaged quadsense result"):
        quadsense.load_result(path)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (_status("STALLED"), _reason("unknown reason")),
        (_status("MAX_ITER"), _reason("max_iter")),
        ("fine", None),
        (_status("FINE"), None),
        ({"enum": "quadsense.vocabulary:Row", "name": "MET"}, None),
    ],
    ids=str,
)
def test_a_status_or_a_reason_that_cannot_be_said_is_refused(tmp_path, data, status, reason):
    def change(meta):
        result = meta["whole"]["dict"]["result"]["fields"]
        result["status"] = status
        result["facts"]["fields"]["reason"] = reason
        result["violations"] = {"array": "result.violations"}

    path = _changed_file(tmp_path, data, change)
    with pytest.raises(ValueError, match="is a damaged quadsense result"):
        quadsense.load_result(path)


def test_a_row_that_is_surely_missed_is_a_violation_though_its_ratio_rounds_to_one():
    U = np.array([[1.0], [1e-3]])
    bounds = ([-1e-4 - 1e-9, 0.0], [-1e-4 + 1e-9, 1e9])
    result = quadsense.solve(U, bounds=bounds, slack="sum", weights=[1e9, 1.0])
    assert result.A[0, 0] == pytest.approx(-1e-4, rel=1e-3)
    assert result.max_ratio <= 1.0 + 1e-12
    assert 1 in result.violations
    assert result.verify(U, bounds=bounds)
