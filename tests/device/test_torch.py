"""torch: errors in a sentence, answers where the data are, loops that wait for no number."""

import subprocess
import sys
import warnings
from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
from helpers import gaussian_rows
from kinds import DEVICE, cases

import quadsense
from quadsense import Measurements
from quadsense.arrays import to_numpy
from quadsense.measurements.gram import make_gram
from quadsense.methods import METHODS
from quadsense.methods.base import Problem

torch = pytest.importorskip("torch")

from kinds import ByTorch  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

pytestmark = pytest.mark.gpu


def tensor(values, **named):
    return torch.tensor(values, device=DEVICE, **named)


def problem(m=60, n=12, complex_=False, seed=0):
    """Rows, readings of a symmetric matrix, a tolerance."""
    rng = np.random.default_rng(seed)
    U = gaussian_rows(rng, m, n, complex_)
    X = gaussian_rows(rng, n, 3, complex_)
    b = np.sum(np.abs(U.conj() @ X) ** 2, axis=1)
    return U, b, 1e-3 * float(b.max())


# --- bad input -------------------------------------------------------------------------------

BAD = {
    "requires grad, and nothing": lambda U: {"U": tensor(U, requires_grad=True)},
    "U is a torch tensor of float16, which has too few": lambda U: {"U": tensor(U).half()},
    "of bfloat16, which": lambda U: {"U": tensor(U).bfloat16()},
    "U is a torch tensor on the meta device": lambda U: {"U": torch.empty(60, 12, device="meta")},
    "b is a torch tensor on meta and U a torch": lambda U: {"b": torch.empty(60, device="meta")},
    "b is a torch tensor that requires grad": lambda U: {"b": tensor(U[:, 0], requires_grad=True)},
    "b is a torch tensor of float16": lambda U: {"b": tensor(U[:, 0]).half()},
    "b is a torch tensor on .* and U a NumPy": lambda U: {"U": U, "b": tensor(U[:, 0])},
    "delta is a torch tensor on meta": lambda U: {"delta": torch.empty(60, device="meta")},
    "b is an array of array_api_strict and U a torch": lambda U: {
        "b": array_api_strict.asarray(U[:, 0])
    },
    "layout sparse_coo": lambda U: {"U": tensor(U).to_sparse()},
    "U contains NaN or infinity, first in row 3": lambda U: {
        "U": tensor(np.where(np.arange(60)[:, None] == 3, np.nan, U))
    },
    "start is a torch tensor that requires grad": lambda U: {
        "start": torch.eye(12, requires_grad=True)
    },
    "prior is a torch tensor of float16": lambda U: {
        "prior": torch.eye(12, dtype=torch.float16), "prefer": "nearest"
    },
}  # fmt: skip


@pytest.mark.parametrize("said", BAD)
def test_bad_tensors_are_refused_in_a_sentence(said):
    U, b, delta = problem()
    asked = {"U": tensor(U), "b": b, "delta": delta, **BAD[said](U)}
    with pytest.raises(ValueError, match=said):
        quadsense.solve(asked.pop("U"), asked.pop("b"), **asked)


def test_devices_that_are_not_there_are_named():
    U, b, delta = problem()
    with pytest.raises(ValueError, match="device 'xpu:7' is not there"):
        Measurements(U, b, delta=delta).on("xpu:7")
    import scipy.sparse as sp

    with pytest.raises(ValueError, match="only dense rows can be sent"):
        Measurements(sp.csr_array(U), b, delta=delta).on(DEVICE)


# --- answers where the data are --------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [{}, {"psd": True}, {"rank": 3}, {"method": "minimax"}, {"mix": True}, {"trace": True}]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_answer_is_on_the_device_of_the_data_in_double_precision(asked, dtype):
    U, b, delta = problem(complex_="complex" in dtype)
    rows = tensor(U.astype(dtype))
    asked = dict(asked)
    if asked.get("mix"):
        asked["mix"] = np.eye(59, 60) + np.eye(59, 60, 1)
        b = asked["mix"] @ b
    if asked.get("trace"):
        asked = {"trace": (0.0, 1e6)}
    result = quadsense.solve(rows, tensor(b), delta=delta, **asked)
    assert result.status == "met", result.message
    for values in (result.A, result.residuals, result.matrix.diagonal()):
        assert torch.is_tensor(values) and values.device == rows.device
    wide = torch.complex128 if "complex" in dtype else torch.float64
    assert result.A.dtype == wide and result.residuals.dtype == torch.float64
    assert result.verify(rows, tensor(b), **({"mix": asked["mix"]} if "mix" in asked else {}))
    x = torch.ones(12, dtype=wide, device=rows.device)
    image = result.matrix @ x
    assert image.device == rows.device
    np.testing.assert_allclose(to_numpy(image), to_numpy(result.A).sum(axis=1), rtol=1e-9)
    assert "met" in repr(result).lower()


def test_a_result_is_saved_and_read_back_and_checked_on_a_device(tmp_path):
    U, b, delta = problem()
    result = quadsense.solve(tensor(U), tensor(b), delta=delta)
    result.save(tmp_path / "result.npz")
    again = quadsense.load_result(tmp_path / "result.npz")
    np.testing.assert_allclose(again.A, to_numpy(result.A))
    assert again.verify(tensor(U), tensor(b)) and again.verify(U, b)
    Measurements(tensor(U), tensor(b), delta=delta).save(tmp_path / "data.npz")
    data = Measurements.open(tmp_path / "data.npz")
    np.testing.assert_array_equal(data.unit_rows.kind.given, U)


def test_single_precision_rows_stay_as_they_are():
    U, b, delta = problem()
    rows = tensor(U.astype(np.float32))
    data = Measurements(rows, b, delta=delta)
    assert data.unit_rows.kind.U.data_ptr() == rows.data_ptr()
    A = tensor(np.eye(12))
    assert data.forward(A).dtype == torch.float64
    exact = np.sum(U.astype(np.float32).astype(np.float64) ** 2, axis=1)
    np.testing.assert_allclose(to_numpy(data.forward(A)), exact, rtol=1e-14)


def test_a_start_and_a_prior_of_either_kind_serve():
    U, b, delta = problem()
    first = quadsense.solve(U, b, delta=delta, prefer="any")
    for start in (first.A, tensor(first.A), first, quadsense.solve(tensor(U), b, delta=delta)):
        result = quadsense.solve(tensor(U), b, delta=delta, start=start, prefer="any")
        assert result.status == "met" and torch.is_tensor(result.A)
    for prior in (np.eye(12), tensor(np.eye(12))):
        result = quadsense.solve(tensor(U), b, delta=delta, prior=prior, prefer="nearest")
        truth = quadsense.solve(U, b, delta=delta, prior=np.eye(12), prefer="nearest")
        np.testing.assert_allclose(to_numpy(result.A), truth.A, atol=1e-6 * np.abs(truth.A).max())


def test_rows_held_elsewhere_give_the_same_answer():
    U, b, delta = problem()
    data = Measurements(U, b, delta=delta, weights=np.arange(60) + 1.0).on(DEVICE)
    assert "m=60" in repr(data)
    result = quadsense.solve(data, prefer="any")
    assert result.status == "met" and result.verify(U, b)
    assert torch.is_tensor(result.A) and result.A.device.type == torch.device(DEVICE).type
    result = quadsense.solve(data, prefer="nearest")
    truth = quadsense.solve(U, b, delta=delta, prefer="nearest")
    np.testing.assert_allclose(to_numpy(result.A), truth.A, atol=1e-6 * np.abs(truth.A).max())
    bounded = Measurements(U, bounds=(b - delta, np.inf)).on(DEVICE)
    assert quadsense.solve(bounded).status == "met"


def test_the_oracle_of_the_spectral_method_may_be_a_tensor():
    rng = np.random.default_rng(0)
    G = rng.standard_normal((5, 5))
    A = tensor(G @ G.T + np.eye(5))
    first = torch.eye(5, dtype=torch.float64, device=DEVICE)
    result = quadsense.solve_spectral(quadsense.SpectralOracle(A), first, accuracy=0.1)
    assert result.success and result.A.device == A.device


# --- the loops of descent --------------------------------------------------------------------


def descent(name, kind, by_torch, seed=0, **options):
    """A method with K of that kind, by torch or compiled, and its program."""
    U, b, delta = problem(seed=seed)
    if kind == "identity":
        U = np.linalg.qr(np.random.default_rng(1).standard_normal((80, 60)))[0].T
    rows = ByTorch(tensor(U)) if by_torch else U
    data = Measurements(rows, b, delta=(1.0 + np.arange(60) / 60) * delta)
    scaled = data.scaled()
    method = METHODS[name]()
    found = Problem(
        data.unit_rows, scaled.b, scaled.delta, 0.0, gram=make_gram(data.unit_rows, kind),
        options=METHODS.options(name, options),
    )  # fmt: skip
    return method, method.prepare(found)


@pytest.mark.parametrize("kind", ["explicit", "matrix-free", "identity"])
@pytest.mark.parametrize(
    "options", [{}, {"schedule": "paper"}, {"c": 0.5}, {"lam": 3.0}, {"step": 1e-3}]
)
def test_gd_takes_the_steps_of_the_compiled_loop(kind, options):
    pytest.importorskip("numba")
    states = []
    for by_torch in (False, True):
        method, program = descent("gd", kind, by_torch, **options)
        state = method.start(program)
        for steps in (1, 3, 40):
            state = method.advance(program, state, steps)
        states.append(state)
    truth, found = states
    assert (found.iteration, found.sharpness, found.target) == pytest.approx(
        (truth.iteration, truth.sharpness, truth.target), rel=1e-9
    )
    for name in ("y", "d"):
        np.testing.assert_allclose(
            to_numpy(getattr(found, name)), getattr(truth, name), rtol=1e-5, atol=1e-9
        )
    assert found.max_ratio == pytest.approx(truth.max_ratio, rel=1e-6)
    assert found.log_potential == pytest.approx(truth.log_potential, rel=1e-6)
    assert found.c == pytest.approx(truth.c, rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"norm": "exact"}, {"batch_size": 7}])
def test_sgd_takes_the_steps_of_the_compiled_loop(options):
    pytest.importorskip("numba")
    states = []
    for by_torch in (False, True):
        method, program = descent("sgd", "explicit", by_torch, **options)
        states.append(method.advance(program, method.start(program), 60))
    truth, found = states
    np.testing.assert_allclose(to_numpy(found.y), truth.y, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(found.order, truth.order)
    assert (found.c, found.mark) == pytest.approx((truth.c, truth.mark), rel=1e-9)


class Waits(TorchDispatchMode):
    """Counts how often a number of a tensor is waited for."""

    def __init__(self):
        super().__init__()
        self.count = 0
        self.called = _Called(self)

    def __enter__(self):
        self.called.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.called.__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        masked = name.startswith("index") and any(
            getattr(part, "dtype", None) == torch.bool for part in args[1] or ()
        )
        known = name in (
            "_local_scalar_dense", "_linalg_check_errors", "nonzero", "masked_select", "equal"
        )  # fmt: skip
        self.count += masked or known
        return function(*args, **(kwargs or {}))


class _Called(TorchFunctionMode):
    """What is not dispatched on a CPU."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.waits.count += getattr(function, "__name__", "") in ("tolist", "cpu")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["explicit", "matrix-free", "identity"])
@pytest.mark.parametrize("name", ["gd", "sgd"])
def test_a_stride_of_descent_waits_for_the_device_once(name, kind):
    method, program = descent(name, kind, True)
    state = method.start(program)
    with Waits() as waits, warnings.catch_warnings(record=True) as told:
        if DEVICE == "cuda":
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
        try:
            after = method.advance(program, state, 15)
        finally:
            if DEVICE == "cuda":
                torch.cuda.set_sync_debug_mode("default")
    assert after.iteration == 15
    assert waits.count == 1
    # Drawn batches and a few scalars are sent over once; the rest is that of the end.
    told = [str(each.message) for each in told if "called a synchronizing" in str(each.message)]
    assert len(told) <= 4, told


def cg_program(U, b, delta, memory=2**30, **options):
    """`cg` and its program, with memory for a preconditioner or none."""
    data = Measurements(U, b, delta=delta)
    scaled, method = data.scaled(), METHODS["cg"]()
    known = METHODS.options("cg", options)
    program = method.prepare(Problem(data.unit_rows, scaled.b, scaled.delta, 0.0, options=known))
    return method, replace(program, system=replace(program.system, memory=memory))


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("size", [(1500, 60), (2500, 60)])
def test_a_stride_of_cg_waits_for_the_device_once(size, noise, tf32):
    """Fewer rows than unknowns, and more; the steps are those of NumPy."""
    from quadsense.methods.cg import residuals

    U, b, delta = problem(*size)
    b = b + noise * np.random.default_rng(3).normal(size=b.size)
    method, program = cg_program(ByTorch(tensor(U)), b, 1e-8 * delta, 0, allow_tf32=tf32)
    assert method.stride(program) == 12
    state = residuals.start(program.system)
    assert not program.system.explicit and program.system.F.single  # made once
    with Waits() as waits:
        state = method.advance(program, state, 12)
    assert state.iteration == 12
    assert waits.count <= (7 if tf32 else 4)  # at the first steps, too, and for the tolerances
    with Waits() as waits:
        after = method.advance(program, state, 12)
    assert after.iteration == 24
    assert waits.count == 1 or tf32
    if not tf32:
        method, program = cg_program(U, b, 1e-8 * delta, 0)
        start = residuals.changed(residuals.start(program.system), double=True)
        truth = method.advance(program, residuals._begun_anew(start), 24)
        np.testing.assert_allclose(after.ratios, truth.ratios, rtol=1e-9)


CG_ENDS = {
    "met": ((70, 12), 0.0, 1e-3),
    "met late": ((400, 40), 0.0, 1e-6),
    "least squares": ((200, 12), 0.0, 1e-9),
    "inconsistent": ((200, 12), 1.0, 1e-4),
    "nearly determined": ((200, 24), 0.0, 1e-7),
    "repeated": ((60, 12), 1.0, 1e-3),
    "rounding": ((10, 12), 0.0, 1e-13),
}


@pytest.mark.parametrize("memory", [0, 2**30])
@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("case", CG_ENDS)
def test_steps_that_a_decision_leaves_behind_change_nothing(case, tf32, memory, monkeypatch):
    """Strides of any length end at the same state, bit for bit, as steps looked at one by one."""
    from quadsense.methods.cg import residuals

    size, noise, share = CG_ENDS[case]
    U, b, delta = problem(*size)
    b = b + noise * np.random.default_rng(3).normal(size=b.size)
    if case == "repeated":  # nothing is left that K can reach, and readings disagree
        U = np.concatenate([U, U])
        b = np.concatenate([b, b + delta])
    monkeypatch.setattr(residuals, "MAX_WINDOW", 128 if case == "rounding" else 8)
    monkeypatch.setattr(residuals, "RATE_STEPS", 10)  # and so more of them
    method, program = cg_program(ByTorch(tensor(U)), b, share * delta, memory, allow_tf32=tf32)
    ends = []
    for stride in (1, 12):
        state = residuals.start(program.system)
        for _ in range(400):
            if state.finished:
                break
            state = method.advance(program, state, stride)
        ends.append(state)
    first = ends[0]
    assert first.finished and first.iteration
    for other in ends[1:]:
        for name in ("iteration", "max_ratio", "met", "inconsistent", "stalled", "distance"):
            assert getattr(other, name) == getattr(first, name)
        np.testing.assert_array_equal(other.ratios, first.ratios)
        np.testing.assert_array_equal(np.asarray(other.z), np.asarray(first.z))
        np.testing.assert_array_equal(np.asarray(other.x), np.asarray(first.x))


def waited_for(name, U, b, question, monkeypatch):
    """Steps and waits of each stride of a method in a solve, and the result."""
    strides, own = [], METHODS[name].advance

    def advance(self, program, state, steps):
        with Waits() as waits:
            after = own(self, program, state, steps)
        strides.append((after.iteration - state.iteration, waits.count))
        return after

    monkeypatch.setattr(METHODS[name], "advance", advance)
    monkeypatch.setattr(METHODS[name], "stride", lambda *_: 3)
    return strides, quadsense.solve(ByTorch(tensor(U)), b, **question)


@pytest.mark.parametrize("complex_", [False, True])
def test_a_step_of_factored_waits_for_its_length_and_for_what_it_led_to(complex_, monkeypatch):
    U, b, delta = problem(4000, 64, complex_)
    question = {"delta": 1e-6 * delta, "rank": 3, "prefer": "any", "rng": 0}
    strides, result = waited_for("low_rank", U, b, question, monkeypatch)
    assert result.status == "met" and len(strides) > 3
    assert all(waits == 2 * steps for steps, waits in strides[1:-1])
    truth = quadsense.solve(U, b, **question)
    np.testing.assert_allclose(to_numpy(result.A), truth.A, atol=0.1 * delta)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_trial_of_psd_waits_for_signs_of_eigenvalues_and_for_its_numbers(
    noise, complex_, monkeypatch
):
    """Of the nearest fit: whether there is a Cholesky factor, too; then, least misses."""
    U, b, delta = problem(500, 30, complex_)
    rng = np.random.default_rng(4)
    b = b + noise * np.clip(rng.standard_normal(b.size), -2.0, 2.0)
    question = {"delta": 1e-3 * delta + 1.5 * noise, "psd": True, "prefer": "any"}
    strides, result = waited_for("psd", U, b, question, monkeypatch)
    truth = quadsense.solve(U, b, **question)
    assert result.status == truth.status == "met" and result.n_iter == truth.n_iter
    inside = strides[1:-1]
    assert sum(steps for steps, _ in inside) >= 6
    # Some steps are tried twice, and a new phase looks at where it begins.
    assert sum(waits for _, waits in inside) <= 3.5 * sum(steps for steps, _ in inside) + 3


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("delta", [0.5, 2.2])
def test_a_step_of_minimax_waits_for_numbers_alone(delta, complex_, monkeypatch):
    U, b, _ = problem(500, 12, complex_)
    b = b + np.random.default_rng(5).standard_normal(b.size)
    question = {"delta": delta, "method": "minimax", "prefer": "any"}
    truth = quadsense.solve(U, b, **question)
    strides, result = waited_for("minimax", U, b, question, monkeypatch)
    assert result.status == truth.status == ("infeasible" if delta == 0.5 else "met")
    assert result.max_ratio == pytest.approx(truth.max_ratio, rel=1e-6)
    assert strides
    for steps, waits in strides:
        assert waits <= 60 * steps + 40  # lengths and residuals; a proof in the last ones


@pytest.mark.parametrize("task", [{"method": "cg"}, {"rank": 3, "prefer": "any"}])
def test_no_vector_of_a_step_leaves_the_device(task, monkeypatch):
    """In a solve: readings, ratios and answers come over, at the beginning, a stride, the end."""
    from quadsense.device import DeviceArray

    U, b, delta = problem(2000, 40)
    moved, seen = [], DeviceArray.__array__

    def counted(self, dtype=None, copy=None):
        moved.append(self.shape)
        return seen(self, dtype, copy)

    monkeypatch.setattr(DeviceArray, "__array__", counted)
    result = quadsense.solve(ByTorch(tensor(U)), b, delta=1e-6 * delta, **task)
    assert result.status == "met"
    large = [shape for shape in moved if 2000 in shape and "rank" not in task]
    assert len(large) <= 3


def test_importing_the_package_does_not_import_torch():
    code = (
        "import sys, quadsense; quadsense.solve([[1.0]], [1.0], delta=0.1)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_kinds_of_tensors_are_among_those_that_all_tasks_are_asked_of(tmp_path):
    names = {name for name, *_ in cases(tmp_path, many=False)}
    assert {"torch real", "torch streamed complex", "torch at work real"} <= names


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("off", [0.0, 1e-3, -1e-3, 1.0])
def test_an_eigenvalue_bound_holds_whatever_the_device_guesses(complex_, off, monkeypatch):
    from quadsense.proofs import positive

    U, b, delta = problem(complex_=complex_)
    rows = Measurements(ByTorch(tensor(U)), b, delta=delta).unit_rows.on_numpy()
    seen, guess = [], positive._least_eigenvalue

    def guessed(S):
        seen.append(type(S).__name__)
        return guess(S) + off

    monkeypatch.setattr(positive, "_least_eigenvalue", guessed)
    monkeypatch.setattr(positive.sl, "eigh", None)  # which is for the host
    y = np.random.default_rng(2).standard_normal(60)
    V = U / np.linalg.norm(U, axis=1, keepdims=True)
    least = float(np.linalg.eigvalsh(V.T @ (y[:, None] * V.conj()))[0])
    bound = positive.smallest_eigenvalue_bound(rows, y)
    assert seen == ["DeviceArray"]
    assert least - max(2.0 * abs(off), 1e-11) <= bound <= least


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
def test_the_gpu_of_a_worker_does_its_products(complex_, narrow, rng, monkeypatch):
    from quadsense.measurements import shards as on_worker
    from quadsense.measurements.parted import squared, survey
    from quadsense.measurements.tensors import Tensors

    U = gaussian_rows(rng, 40, 5, complex_)
    U = U.astype(np.complex64 if complex_ else np.float32) if narrow else U
    A = gaussian_rows(rng, 5, 5, complex_)
    X = gaussian_rows(rng, 5, 2, complex_)
    Y = gaussian_rows(rng, 40, 2, complex_)
    y = rng.standard_normal(40)
    dtype = np.dtype(np.complex128 if complex_ else np.float64).str
    facts = on_worker.at_part(survey, dtype, U, None)
    asked = {
        "times": (X,), "combine": (Y,), "forward": (A + A.conj().T,),
        "adjoint": (y,), squared: (X, np.array([1.0, -1.0]), y),
    }  # fmt: skip
    assert set(asked) == set(on_worker.PRODUCTS)
    at_part = on_worker.at_part
    alone = {work: at_part(work, dtype, U, facts, *given) for work, given in asked.items()}
    used = []
    monkeypatch.setattr(Tensors, "by_torch", True)
    monkeypatch.setattr(on_worker, "gpu", lambda: used.append(1) or torch.device(DEVICE))
    for work, given in asked.items():
        found = at_part(work, dtype, U, facts, *given)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, alone[work], rtol=1e-12, atol=1e-12)
    assert used


@pytest.mark.parametrize("by_torch", [False, True])
@pytest.mark.parametrize("name", ["float64", "complex128"])
@pytest.mark.parametrize(
    "options", [{}, {"psd": True}, {"prefer": "any"}, {"prefer": "minimax"}], ids=str
)
def test_columns_are_scaled_as_in_memory_of_numpy(by_torch, name, options, rng):
    U = rng.standard_normal((60, 5)).astype(name)
    if name == "complex128":
        U += 1j * rng.standard_normal((60, 5))
    sizes = np.array([1.0, 32.0, 0.25, 4.0, 1.0])
    b = np.sum(np.abs(U) ** 2, axis=1) + 0.1 * rng.uniform(-1, 1, 60)
    rows = torch.from_numpy(U * sizes)
    truth = quadsense.solve(U * sizes, b, delta=0.1, **options)
    given = ByTorch(rows) if by_torch else rows
    found = quadsense.solve(given, torch.from_numpy(b), delta=0.1, **options)
    assert truth.certificate.columns is not None
    assert np.array_equal(found.certificate.columns, truth.certificate.columns)
    scale = np.outer(sizes, sizes)
    assert np.linalg.norm((found.A.numpy() - truth.A) * scale) < 1e-3 * np.linalg.norm(
        truth.A * scale
    )
    assert found.verify(U * sizes, b) and truth.verify(rows, torch.from_numpy(b))
