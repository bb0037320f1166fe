"""Limits, Ctrl-C and timings hold for every task, by a clock that ticks at each look."""

import itertools
import os
import signal
import time

import numpy as np
import pytest
from helpers import deep, gaussian_rows

import quadsense
from quadsense import Status
from quadsense.core.products import features
from quadsense.query.query import PARAMETERS, Query
from quadsense.stages.path import answered
from quadsense.system.watch import GRACE, Stop, Watch, look


def by_clock(clock, U, b, **named):
    """`solve` by another clock."""
    options = {name: named.pop(name) for name in list(named) if name not in PARAMETERS}
    return answered(Query(U, b, **named, options=options), clock)


def noisy(m, n, complex_=False, rank=None, noise=1.0):
    rng = np.random.default_rng([m, n, complex_])
    U, X = gaussian_rows(rng, m, n, complex_), gaussian_rows(rng, n, rank or n, complex_)
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    return U, b + noise * rng.standard_normal(m)


TASKS = {
    "gd": (noisy(40, 12), {"delta": 1e-4, "method": "gd"}),
    "gd orthonormal": ((np.eye(12), np.arange(12.0)), {"delta": 1e-9, "method": "gd"}),
    "sgd": (noisy(40, 12), {"delta": 1e-4, "method": "sgd", "rng": 0}),
    "cg": (noisy(60, 14), {"delta": 1e-9, "method": "cg"}),
    "wide": (noisy(20, 30), {"delta": 1e-9}),
    "auto, infeasible": (noisy(90, 10), {"delta": 0.1}),
    "complex, infeasible": (noisy(90, 8, True), {"delta": 0.1}),
    "minimax": (noisy(90, 10), {"delta": 0.1, "method": "minimax"}),
    "no delta": (noisy(90, 10), {}),
    "psd": (noisy(90, 10), {"delta": 1.0, "psd": True}),
    "psd, no delta": (noisy(90, 10), {"psd": True}),
    "psd, wide, no delta": (noisy(10, 14), {"psd": True}),
    "rank": (noisy(90, 10, rank=2), {"delta": 0.5, "rank": 2, "rng": 0, "max_restarts": 3}),
    "rank auto": (noisy(90, 10, rank=4), {"delta": 1.0, "rank": "auto", "rng": 0}),
    "allow_violations": (noisy(40, 5), {"delta": 0.3, "allow_violations": 3}),
    "allow_violations, psd": (
        noisy(40, 5),
        {"delta": 0.3, "allow_violations": 3, "psd": True},
    ),
}

LONG = (
    "allow_violations", "allow_violations, psd", "rank auto", "gd orthonormal", "auto, infeasible",
    "minimax", "psd, no delta",
)  # fmt: skip
"""Those that the quick tests leave out."""


class Ticking:
    """A clock that is a second later at every look, and does something at one of them."""

    def __init__(self, at=None, action=None):
        self.count, self.at, self.action = 0, at, action

    def __call__(self):
        self.count += 1
        if self.count == self.at:
            self.action()
        return float(self.count)


def sound(result, U, arguments):
    """Every field is there and says the same as the others."""
    A = np.asarray(result.A)
    assert A.shape == (U.shape[1],) * 2
    assert np.all(np.isfinite(A))
    if arguments.get("psd") or "rank" in arguments:
        values = np.linalg.eigvalsh(A)
        assert values[0] >= -1e-12 * max(values[-1], 1.0)
    read = np.einsum("ij,jk,ik->i", U.conj(), A, U).real
    scale = np.abs(read).max() + 1.0
    np.testing.assert_allclose(result.residuals, read - result.certificate_b, atol=1e-9 * scale)


@pytest.mark.parametrize("task", [deep(task) if task in LONG else task for task in TASKS])
def test_a_solve_may_be_stopped_at_any_look(task):
    """The time limit is over at the first look, the second, ...: there is a sound result each."""
    (U, b), arguments = TASKS[task]
    whole = Ticking()
    by_clock(whole, U, b, **arguments, time_limit=1e9)
    stops = sorted({*range(1, 20), *np.geomspace(20, whole.count, 10).astype(int)})
    stopped = 0
    for limit in stops:
        clock = Ticking()
        result = by_clock(clock, U, b, **arguments, time_limit=float(limit))
        assert result.status in set(Status)
        object.__setattr__(result, "certificate_b", b)
        sound(result, U, arguments)
        stopped += result.status is Status.TIME_LIMIT
        assert clock.count <= max(limit, 0) + 60  # few looks later all is over
        assert clock.count - 3 <= sum(result.timings.values()) <= clock.count - 1
        if result.status is Status.MET:
            assert result.certificate.verify(U, b)
    assert stopped > 0


@pytest.mark.parametrize("prefer", ["nearest", "least_squares", "minimax"])
def test_a_fit_is_met_whatever_limit_is_reached_during_its_proofs(prefer):
    U, b = noisy(60, 6, noise=0.1)
    asked = {"delta": 1.0, "prefer": prefer}
    whole = Ticking()
    assert by_clock(whole, U, b, **asked, time_limit=1e9).optimal
    uncertified = 0
    for limit in range(1, whole.count + 1):
        result = by_clock(Ticking(), U, b, **asked, time_limit=float(limit))
        assert (result.status is Status.MET) == (result.max_ratio <= 1.0)
        assert "not beyond rounding" not in result.message
        said = f"time_limit = {limit}.0 s was reached" in result.message
        assert said == (result.status is Status.MET and not result.optimal)
        uncertified += said
        assert result.verify(U, b) == (result.status is Status.MET)
    assert uncertified > 0


@pytest.mark.parametrize("prefer", ["nearest", "least_squares", "minimax"])
def test_no_time_is_left_for_proofs_before_there_is_a_fit(prefer, monkeypatch):
    U, b = noisy(60, 6, noise=0.1)

    def first_limit_that_is_met():
        limits = range(1, 400)
        asked = {"delta": 1.0, "prefer": prefer}
        return next(
            limit
            for limit in limits
            if by_clock(Ticking(), U, b, **asked, time_limit=float(limit)).status is Status.MET
        )

    found = first_limit_that_is_met()
    monkeypatch.setattr("quadsense.stages.runs.PROOF_SECONDS_PER_ROW", 1e9)
    assert first_limit_that_is_met() == found


def test_no_dual_vector_is_made_past_the_limit_where_there_is_no_fit(monkeypatch):
    calls = []

    def slow(self, program, state):
        calls.append(state.max_ratio)
        for _ in range(1000):
            look()

    monkeypatch.setattr("quadsense.methods.conic.method.Conic.dual", slow)
    ticks = itertools.count()
    asked = {"delta": 0.3, "prefer": "nearest", "time_limit": 0.02}
    result = by_clock(lambda: 0.001 * next(ticks), *noisy(60, 6, noise=0.1), **asked)
    assert result.status is Status.TIME_LIMIT
    assert min(calls) > 1.0
    assert next(ticks) < 100


def stop(*given, **named):
    raise Stop


def test_where_no_bound_on_the_norm_is_proved_in_time_one_is_assumed(monkeypatch):
    U, b = noisy(90, 5)
    with monkeypatch.context() as limited:
        limited.setattr("quadsense.proofs.symmetric.norm_within", stop)
        refuted = quadsense.solve(U, b, delta=0.1)
    assert refuted.status is Status.INFEASIBLE
    assert "among matrices of" in refuted.certificate.condition
    assert refuted.verify(U, b)
    assert quadsense.solve(U, b, delta=0.1).certificate.condition == ""


def test_the_objective_is_certified_under_an_assumed_bound_where_none_is_proved_in_time(
    monkeypatch,
):
    U, b = noisy(60, 6, noise=0.1)
    with monkeypatch.context() as limited:
        limited.setattr("quadsense.proofs.objective.norm_bound", stop)
        result = quadsense.solve(U, b, delta=1.0, ridge=0.0)
    assert result.optimal and "among matrices of" in result.verdict.objective_condition
    assert result.verify(U, b)


@pytest.mark.slow
@pytest.mark.parametrize("task", [deep(task) if task in LONG else task for task in TASKS])
def test_ctrl_c_at_any_look_keeps_the_result(task):
    (U, b), arguments = TASKS[task]
    whole = Ticking()
    by_clock(whole, U, b, **arguments, time_limit=1e9)

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    kept = 0
    for at in sorted({*range(6, 16), *np.geomspace(16, whole.count - 1, 8).astype(int)}):
        clock = Ticking(at, press)
        with pytest.raises(KeyboardInterrupt) as caught:
            by_clock(clock, U, b, **arguments, time_limit=1e9)
        result = caught.value.result
        object.__setattr__(result, "certificate_b", b)
        sound(result, U, arguments)
        kept += result.status is Status.INTERRUPTED
        assert clock.count <= at + 60
    assert kept > 0


@pytest.mark.slow
def test_timings_add_up_to_the_wall_clock():
    for (U, b), arguments in TASKS.values():
        quadsense.solve(U, b, **arguments)
        begin = time.perf_counter()
        result = quadsense.solve(U, b, **arguments)
        wall = time.perf_counter() - begin
        total = sum(result.timings.values())
        assert total <= wall
        assert total >= 0.9 * wall - 0.005, (arguments, result.timings, wall)


@pytest.mark.slow
def test_timings_name_the_parts():
    (U, b), arguments = TASKS["auto, infeasible"]
    parts = quadsense.solve(U, b, **arguments).timings
    assert {"prepare", "cg", "minimax", "certify", "proofs", "answer"} <= parts.keys()
    (U, b), arguments = TASKS["gd"]
    assert "K" in quadsense.solve(U, b, **arguments).timings
    (U, b), arguments = TASKS["allow_violations"]
    assert "outliers" in quadsense.solve(U, b, **arguments).timings
    spectral = quadsense.solve_spectral(quadsense.SpectralOracle(np.diag([1.0, 2.0])), np.eye(2))
    assert {"prepare", "spectral", "certify"} <= spectral.timings.keys()


def test_psd_without_delta_is_run_by_the_loop():
    (U, b), _ = TASKS["psd, no delta"]
    asked = {"psd": True, "prefer": "minimax"}
    seen = []
    result = quadsense.solve(U, b, callback=lambda at: seen.append(at.n_iter), **asked)
    assert result.status is Status.OPTIMAL
    assert result.n_iter == len(seen) == seen[-1] > 3
    assert result.history.iteration[-1] == result.n_iter
    assert result.history.max_residual[-1] == pytest.approx(result.max_residual, rel=1e-6)
    none = quadsense.solve(U, b, max_iter=0, **asked)
    assert (none.status, none.n_iter) == (Status.MAX_ITER, 0)
    few = quadsense.solve(U, b, max_iter=result.n_iter - 1, **asked)
    assert (few.status, few.n_iter) == (Status.MAX_ITER, result.n_iter - 1)
    assert 0.0 < few.certificate.lower_bound <= result.certificate.upper_bound

    def stop(at):
        raise StopIteration

    assert quadsense.solve(U, b, callback=stop, **asked).status is Status.INTERRUPTED


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("asked", [{}, {"prefer": "minimax"}, {"method": "consensus"}])
def test_without_a_tolerance_the_history_is_in_units_of_the_readings(asked, psd):
    U, b = noisy(90, 10)
    result = quadsense.solve(U, 1e3 * b, psd=psd, **asked)
    assert result.status is Status.OPTIMAL
    last = result.history.max_residual[-1], result.history.max_ratio[-1]
    assert last == pytest.approx((result.max_residual, result.max_ratio), rel=1e-3)


def test_an_exact_psd_fit_at_the_start_is_optimal_without_a_step():
    U = np.random.default_rng(0).standard_normal((9, 3))
    result = quadsense.solve(U, np.zeros(9), psd=True, prefer="minimax", max_iter=0)
    assert result.status is Status.OPTIMAL


def test_forming_k_can_be_stopped_and_done_again(monkeypatch):
    monkeypatch.setattr("quadsense.measurements.probes.RowFacts.block_elements", 100)
    data = quadsense.Measurements(*noisy(60, 12, noise=0.0), delta=1e-3)
    result = by_clock(Ticking(), data, None, method="gd", time_limit=20.0)
    assert (result.status, result.n_iter) == (Status.TIME_LIMIT, 0)
    assert "values" not in vars(data.gram)
    assert result.timings["K"] > 5.0
    tau = result.A[0, 0]
    np.testing.assert_array_equal(result.A, tau * np.eye(12))
    assert quadsense.solve(data, method="gd").status is Status.MET
    assert "values" in vars(data.gram)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_sensing_map_of_many_rows_can_be_stopped_while_it_is_formed(dtype):
    rows = np.ones((6000, 40), dtype=dtype)
    watch = Watch(Ticking(), time_limit=10.0)
    with watch.heeded(), pytest.raises(Stop):
        features(rows)
    with watch.heeded():
        assert features(rows[:100]).shape[0] == 100  # small parts are not watched


def test_the_check_for_a_center_can_be_stopped(monkeypatch):
    finished = []

    def slow(M):
        for _ in range(1000):
            look()
        finished.append(len(M))
        return M

    monkeypatch.setattr("quadsense.query.choice.cholesky", slow)
    asked = {"delta": 1.0, "prefer": "center"}
    result = by_clock(Ticking(), *noisy(60, 6, noise=0.1), **asked, time_limit=100.0)
    assert (result.status, result.prefer) == (Status.TIME_LIMIT, "center")
    assert not finished
    by_clock(Ticking(), *noisy(60, 6, noise=0.1), **asked, time_limit=1e9)
    assert finished


def test_work_that_cannot_be_interrupted_is_not_begun_near_the_limit():
    now = itertools.count()
    watch = Watch(lambda: 0.001 * next(now), time_limit=1.0)
    with watch.heeded():
        look()
        look(1e9)
        assert not watch.late
        with pytest.raises(Stop):
            look(1e12)
    look(1e30)  # no watch is set


def test_without_a_time_limit_no_clock_ends_any_work():
    now = itertools.count(step=1e6)
    watch = Watch(lambda: next(now))
    with watch.heeded():
        look(1e30)
    assert watch.left is None and not watch.over


def test_a_step_that_would_exceed_the_limit_is_named(monkeypatch):
    monkeypatch.setattr("quadsense.system.watch.FLOPS", 1e-3)
    asked = {"delta": 1.0, "prefer": "nearest", "time_limit": 100.0}
    result = by_clock(lambda: 0.0, *noisy(60, 6, noise=0.1), **asked)
    assert result.status is Status.TIME_LIMIT
    assert "the next step would exceed time_limit = 100.0 s" in result.message
    result = by_clock(Ticking(), *noisy(60, 6, noise=0.1), **{**asked, "time_limit": 3.0})
    assert "Stopped after time_limit = 3.0 s" in result.message


def test_grace_lets_short_work_through_and_long_work_not():
    now = [0.0]
    watch = Watch(lambda: now[0], time_limit=1.0)
    now[0] = 2.0
    with pytest.raises(Stop):
        watch.look()
    with watch.grace():
        watch.look()
        now[0] += 1.1 * GRACE
        with pytest.raises(Stop):
            watch.look()
    watch = Watch(lambda: now[0])
    watch.interrupts.pressed = True
    with pytest.raises(Stop):
        watch.look()
    with watch.grace():
        watch.look()
        now[0] += 1.1 * GRACE
        with pytest.raises(Stop):
            watch.look()


def test_time_in_parts_is_counted_once():
    now = [0.0]
    watch = Watch(lambda: now[0])
    now[0] = 1.0
    with watch.part("a"):
        now[0] = 3.0
        with watch.part("b"):
            now[0] = 7.0
        now[0] = 8.0
    now[0] = 8.5
    assert watch.timings() == {"prepare": 1.5, "a": 3.0, "b": 4.0}


@pytest.mark.parametrize("tick", [0.003, 0.01, 0.03, 0.1])
def test_a_preference_by_name_is_brought_to_its_end_however_slow_the_machine(tick):
    rng = np.random.default_rng(5)
    U, X = gaussian_rows(rng, 220, 12, False), gaussian_rows(rng, 12, 12, False)
    v = np.sum((U @ X) ** 2, axis=1)
    b, half = v + 0.3 * v.mean() * rng.standard_normal(220), 3.0 * v.mean()
    asked = {"bounds": (b - half, b + half), "psd": True, "prefer": "least_squares"}
    truth = quadsense.solve(U, b, **asked)
    looks = itertools.count()
    slow = by_clock(lambda: tick * next(looks), U, b, **asked)
    assert slow.status is Status.MET and slow.optimal
    assert slow.objective == pytest.approx(truth.objective, rel=1e-6)
