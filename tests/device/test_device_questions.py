"""Questions on a device: their steps stay there, and answers are those of NumPy's arrays."""

import numpy as np
import pytest
from squares_cases import random_case

import quadsense
from quadsense.arrays import to_numpy
from quadsense.files.codec import decode, encode
from quadsense.methods import METHODS
from quadsense.methods.consensus.steps import ConsensusState

torch = pytest.importorskip("torch")

from kinds import ByTorch  # noqa: E402
from test_torch import Waits, problem, tensor  # noqa: E402

from quadsense.device import DeviceArray, array  # noqa: E402

pytestmark = pytest.mark.gpu

FEW = 16
"""Numbers that may cross together: those of a bound, or which of a few rows."""


class Crossings:
    """What crosses between host and device in every stride of a method: waits, and large arrays."""

    def __init__(self, monkeypatch, name):
        self.strides, self.active = [], False
        self.waits = Waits()
        seen, sent = DeviceArray.__array__, array.sent
        advance = METHODS[name].advance

        def outward(array, dtype=None, copy=None):
            self.note("out", array.shape)
            return seen(array, dtype, copy)

        def inward(values, place):
            self.note("in", np.shape(values))
            return sent(values, place)

        def counted(method, program, state, steps):
            before, self.large, self.active = self.waits.count, [], True
            after = advance(method, program, state, steps)
            self.active = False
            self.strides.append((state, after, self.waits.count - before, self.large))
            return after

        monkeypatch.setattr(DeviceArray, "__array__", outward)
        monkeypatch.setattr(array, "sent", inward)
        monkeypatch.setattr(METHODS[name], "advance", counted)

    def note(self, way, shape):
        if self.active and np.prod(shape, dtype=int) > FEW:
            self.large.append((way, *shape))


def noisy(m, n, complex_=False, seed=0):
    """Rows, and readings of a matrix of low rank that are off."""
    U, b, _ = problem(m, n, complex_, seed)
    return U, b + np.random.default_rng(seed).standard_normal(m)


def both(U, b, **asked):
    """What comes of a solve with the rows on the host and on the device."""
    return quadsense.solve(U, b, **asked), quadsense.solve(ByTorch(tensor(U)), b, **asked)


def assert_same(truth, found, digits=1e-6, cost=1e-6):
    """The same verdict and, as far as the gap determines it, the same A and objective."""
    assert found.status == truth.status
    assert torch.is_tensor(found.A)
    size = np.abs(truth.A).max()
    np.testing.assert_allclose(to_numpy(found.A), truth.A, rtol=0.0, atol=digits * size)
    assert found.objective == pytest.approx(truth.objective, rel=cost, abs=1e-9)


# --- least_squares ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_least_squares_of_all_kinds_are_those_of_numpy(seed):
    case = random_case(seed)
    if seed % 3:  # sums of rows are NumPy's
        case.pop("trace", None)
        case["constraints"] = ()
    asked = {**case, "prefer": "least_squares", "method": "least_squares"}
    # With few unknowns NumPy's is found by an active set, to five digits of its cost.
    assert_same(*both(asked.pop("data"), asked.pop("b"), **asked), digits=1e-4, cost=1e-5)


@pytest.mark.parametrize("complex_", [False, True])
def test_squared_misses_are_those_of_numpy(complex_):
    U, b = noisy(900, 6, complex_)
    hi = np.where(np.arange(900) % 2, np.inf, b - 0.1)
    asked = {"bounds": (b - 0.3, hi), "psd": True, "slack": "squares", "method": "least_squares"}
    truth, found = both(U, None, **asked)
    assert truth.status == "optimal" and truth.n_iter > 3
    assert_same(truth, found)


@pytest.mark.parametrize(("size", "complex_"), [((400, 12), True), ((2000, 57), False)])
def test_a_stride_of_descent_waits_for_a_few_numbers(monkeypatch, size, complex_):
    """With the normal matrix formed, and by products with the rows."""
    crossings = Crossings(monkeypatch, "least_squares")
    U, b = noisy(*size, complex_)
    with crossings.waits:
        quadsense.solve(
            ByTorch(tensor(U)), b, psd=True, prefer="least_squares", method="least_squares"
        )
    kept = 0
    for before, after, waits, large in crossings.strides[1:]:
        if after.point is not before.point:
            continue  # evaluated from the rows, or ended
        assert isinstance(after.descent.d, DeviceArray)
        bounds = after.since // 10 - before.since // 10
        assert waits <= 5 * bounds and not large
        kept += after.iteration - before.iteration
    assert kept >= 20


def test_a_stride_within_intervals_waits_for_a_few_numbers(monkeypatch):
    crossings = Crossings(monkeypatch, "least_squares")
    U, b = noisy(400, 12)
    asked = {"psd": True, "prefer": "least_squares", "method": "least_squares", "delta": 2.4}
    with crossings.waits:
        quadsense.solve(ByTorch(tensor(U)), b, **asked)
    kept = 0
    for before, after, waits, large in crossings.strides:
        if not (isinstance(before, ConsensusState) and isinstance(after, ConsensusState)):
            continue
        assert isinstance(after.z, DeviceArray) and isinstance(after.y, DeviceArray)
        steps = after.iteration - before.iteration
        assert waits <= 25 * steps and not large
        kept += steps
    assert kept >= 10


def test_conjugate_gradients_without_a_cone_wait_now_and_then(monkeypatch):
    crossings = Crossings(monkeypatch, "least_squares")
    U, b = noisy(2200, 57)  # too many unknowns for a normal matrix to be formed
    with crossings.waits:
        found = quadsense.solve(
            ByTorch(tensor(U)), b, prefer="least_squares", method="least_squares"
        )
    truth = quadsense.solve(U, b, prefer="least_squares", method="least_squares")
    assert_same(truth, found)
    (first, *_) = crossings.strides
    assert first[2] <= 60  # of 200 gradients, and what is evaluated from the rows
    assert not [shape for shape in first[3] if 1653 in shape or 57 in shape]


# --- conic -----------------------------------------------------------------------------------

ASKED = {
    "nearest": {"prefer": "nearest"},
    "center": {"prefer": "center"},
    "least trace": {"prefer": "min_trace", "psd": True},
    "least squares": {"prefer": "least_squares"},
    "least squares and a prior": {"prefer": "least_squares", "ridge": 0.3, "prior": 0.5},
    "smallest worst error": {"prefer": "minimax"},
    "largest miss": {"slack": "max"},
    "sum of misses": {"slack": "sum"},
    "squared misses": {"slack": "squares"},
}


@pytest.mark.parametrize("which", ASKED)
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(("psd", "size"), [(False, (14, 6)), (True, (14, 6)), (True, (70, 5))])
def test_answers_to_every_question_are_those_of_numpy(which, complex_, psd, size):
    """Solved in the order of the rows, and in that of the unknowns."""
    U, b = noisy(*size, complex_)
    asked = {"psd": psd, "method": "conic", "delta": 3.0, **ASKED[which]}
    if "slack" in asked:
        asked["delta"] = 0.3
    assert_same(*both(U, b, **asked), digits=1e-4)


@pytest.mark.parametrize("psd", [False, True])
@pytest.mark.parametrize("given", ["equalities", "one end", "zeros", "constraints", "centre"])
def test_ends_of_all_kinds_are_those_of_numpy(given, psd):
    U, b, _ = problem(40, 6)
    lo, hi = b - 1.0, b + 1.0
    asked = {"psd": psd, "method": "conic", "prefer": "nearest"}
    if given == "equalities":
        lo[:4] = hi[:4] = b[:4]
    elif given == "one end":
        lo[::2], hi[1::2] = -np.inf, np.inf
    elif given == "zeros":
        U[3] = 0.0
        lo[3], hi[3] = -1.0, 1.0
    elif given == "constraints":
        asked["trace"] = float(np.linalg.norm(problem(40, 6)[0][0]))
        lo, hi = np.full(40, -50.0), np.full(40, 50.0)
    else:
        asked["prefer"] = "center"
    assert_same(*both(U, None, bounds=(lo, hi), **asked), digits=1e-5)


@pytest.mark.parametrize("which", ASKED)
def test_a_step_of_conic_waits_for_numbers_alone(which, monkeypatch):
    crossings = Crossings(monkeypatch, "conic")
    U, b = noisy(120, 7)
    asked = {"psd": True, "method": "conic", "delta": 3.0, **ASKED[which]}
    with crossings.waits:
        quadsense.solve(ByTorch(tensor(U)), b, **asked)
    assert len(crossings.strides) >= 3
    for before, after, waits, large in crossings.strides[1:-1]:
        assert isinstance(after.inner.at.A, DeviceArray)
        assert isinstance(after.inner.at.duals, DeviceArray)
        assert waits <= 60 * (after.iteration - before.iteration) and not large


# --- states ----------------------------------------------------------------------------------

QUESTIONS = {
    "descent": ("least_squares", {"psd": True, "prefer": "least_squares"}),
    "within intervals": ("least_squares", {"psd": True, "prefer": "least_squares", "delta": 2.4}),
    "no cone": ("least_squares", {"prefer": "least_squares", "delta": 2.4}),
    "cone": ("conic", {"psd": True, "prefer": "min_trace", "delta": 2.4}),
    "all symmetric": ("conic", {"prefer": "nearest", "delta": 2.4}),
    "rows that are seen": ("conic", {"slack": "sum", "delta": 0.4}),
}


@pytest.mark.parametrize("which", QUESTIONS)
def test_a_state_on_a_device_is_written_and_read_back(which, monkeypatch):
    name, asked = QUESTIONS[which]
    advance, count = METHODS[name].advance, 0

    def twice(method, program, state, steps):
        nonlocal count
        after = advance(method, program, state, steps)
        twin = advance(method, program, decode(*encode(state), convert=tensor), steps)
        (one, plain), (other, again) = encode(after), encode(twin)
        assert plain == again and one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])
        count += "device" in str(plain)
        return after

    monkeypatch.setattr(METHODS[name], "advance", twice)
    U, b = noisy(400, 12)
    quadsense.solve(ByTorch(tensor(U)), b, method=name, **asked)
    assert count
