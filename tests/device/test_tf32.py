"""`allow_tf32`: coarse products in steps on a GPU, and nothing coarse in what is claimed.

On a CPU the factors of every product in single precision are rounded here as a GPU rounds them.
"""

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import gaussian_rows
from kinds import DEVICE

import quadsense
from quadsense import Measurements
from quadsense.arrays import to_numpy
from quadsense.cli import cli
from quadsense.device import algebra as tensor_products
from quadsense.methods import METHODS
from quadsense.query.plan import shape_of

torch = pytest.importorskip("torch")

from kinds import ByTorch, Streamed  # noqa: E402

from quadsense.measurements import tensors  # noqa: E402
from quadsense.measurements.tensors import TF32, tf32_allowed  # noqa: E402

pytestmark = pytest.mark.gpu


def tensor(values):
    return torch.tensor(values, device=DEVICE)


def rounded(x):
    """To ten bits after the first, the nearest, as tensor cores take float32."""
    if x.is_complex():
        return torch.complex(rounded(x.real), rounded(x.imag))
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Products as on a GPU; counts those in single precision."""
    counts = {"products": 0}
    single = (torch.float32, torch.complex64)

    def within(product):
        def counted(*given):
            found = [each for each in given if torch.is_tensor(each) and each.dtype in single]
            if len(found) >= 2 and torch.backends.cuda.matmul.fp32_precision == "tf32":
                counts["products"] += 1
                if DEVICE == "cpu":  # the last two are the factors
                    given = (*given[:-2], *map(rounded, given[-2:]))
            return product(*given)

        return counted

    monkeypatch.setattr(torch.Tensor, "__matmul__", within(torch.Tensor.__matmul__))
    monkeypatch.setattr(torch.Tensor, "addmm_", within(torch.Tensor.addmm_))
    return counts


def problem(m, n, complex_=False, rank=3, seed=0):
    rng = np.random.default_rng([seed, m, n])
    U, X = gaussian_rows(rng, m, n, complex_), gaussian_rows(rng, n, rank, complex_)
    return U, np.sum(np.abs(U.conj() @ X) ** 2, axis=1)


def misses(U, A, b):
    """The largest residual, in longdouble."""
    wide = U.astype(np.clongdouble if np.iscomplexobj(U) else np.longdouble)
    return float(np.max(np.abs(np.sum((wide.conj() @ A) * wide, axis=1).real - b)))


TASKS = {
    "cg": ((900, 60), {"method": "cg"}),
    "cg of many rows": ((600, 30), {"method": "cg"}),
    "psd": ((700, 60), {"psd": True, "prefer": "any"}),  # to 1e-6, as in double precision
}


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("task", TASKS)
def test_coarse_steps_end_in_an_answer_of_float64(task, complex_, tolerance, coarse):
    size, asked = TASKS[task]
    U, b = problem(*size, complex_)
    delta = max(tolerance, 1e-6 if task == "psd" else 0.0) * float(b.max())
    with np.errstate(all="raise", under="ignore"):
        result = quadsense.solve(ByTorch(tensor(U)), b, delta=delta, **asked, allow_tf32=True)
    assert result.status == "met"
    assert coarse["products"]
    assert result.A.dtype == (torch.complex128 if complex_ else torch.float64)
    assert misses(U, to_numpy(result.A), b) <= delta
    assert result.verify(U, b) and result.verify(tensor(U), tensor(b))


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-10])
def test_most_steps_are_coarse_and_not_many_more(tolerance, coarse, monkeypatch):
    U, b = problem(900, 100)
    made, seen = [], tensors.Tensors.forward

    def counted(self, A):
        made.append(self.is_single)
        return seen(self, A)

    monkeypatch.setattr(tensors.Tensors, "forward", counted)
    monkeypatch.setattr(METHODS["cg"], "stride", lambda *_: 1)  # so that none is left behind
    asked = {"delta": tolerance * float(b.max()), "method": "cg"}
    double = quadsense.solve(ByTorch(tensor(U)), b, **asked)
    assert not any(made) and not coarse["products"]
    made.clear()
    found = quadsense.solve(ByTorch(tensor(U)), b, **asked, allow_tf32=True)
    assert found.n_iter <= 1.25 * double.n_iter + 2
    # One product per step, and float64 once per stretch of three digits and at the end.
    assert sum(made) == found.n_iter and len(made) - sum(made) <= 2 - np.log10(tolerance) / 2.5


@pytest.mark.parametrize("shape", [(400, 20), (150, 20)], ids=["many rows", "few rows"])
def test_noise_is_judged_as_in_double_precision(shape):
    """Least squares with a residual, and readings that contradict each other."""
    U, b = problem(*shape)
    rng = np.random.default_rng(1)
    if shape[0] == 400:
        b = b + 0.1 * rng.standard_normal(len(b))
        deltas = (0.02, 0.5)
    else:
        U[75:], b[75:] = U[:75], b[:75] + 0.5  # each row twice
        deltas = (0.1, 0.3)
    for delta in deltas:
        asked = {"delta": delta, "prefer": "any", "method": "auto"}
        found = quadsense.solve(ByTorch(tensor(U)), b, **asked, allow_tf32=True)
        truth = quadsense.solve(U, b, **asked)
        assert found.status is truth.status
        assert found.verify(U, b)
        if truth.unique and truth.status == "met":
            scale = np.linalg.norm(truth.A)
            assert np.linalg.norm(to_numpy(found.A) - truth.A) <= 1e-3 * scale


def test_products_err_by_what_is_stated():
    U, b = problem(300, 40)
    rows = Measurements(ByTorch(tensor(U)), b, delta=1.0).unit_rows
    wide, low = rows.at_work(tf32=True), rows.at_work(tf32=True).single
    assert (wide.roundoff, low.roundoff) == (2.0**-53, TF32)
    assert wide.coarse and np.dtype(low.dtype) == np.float32
    y = wide.placed(np.random.default_rng(0).standard_normal(300))
    truth = np.asarray(wide.adjoint(y))
    found = np.asarray(low.adjoint(y))
    error = np.linalg.norm(found - truth) / np.linalg.norm(truth)
    assert found.dtype == np.float32 and 1e-5 < error < 2.0 * TF32
    assert rows.at_work().single.roundoff == 2.0**-53  # nothing unless asked


def test_rows_of_float32_are_not_copied_and_those_held_elsewhere_are_left():
    U, b = problem(60, 12)
    narrow = tensor(U.astype(np.float32))
    rows = Measurements(ByTorch(narrow), b, delta=1.0).unit_rows.at_work(tf32=True)
    assert rows.single.kind.kind.U.data_ptr() == narrow.data_ptr()
    assert rows.single.kind is rows.weighed(rows.squares).single.kind  # nor twice
    far = Measurements(Streamed(tensor(U)), b, delta=1.0).unit_rows.at_work(tf32=True)
    assert far.single is far and not far.coarse


def test_wild_norms_stay_in_double_precision(coarse):
    U, b = problem(900, 60)
    scales = np.geomspace(1e-12, 1e12, 900)
    wild, readings = U * scales[:, None], b * scales**2
    result = quadsense.solve(
        ByTorch(tensor(wild)), readings, delta=1e-6 * readings, method="cg", allow_tf32=True
    )
    assert result.status == "met" and not coarse["products"]


def _fail(held):
    assert held.fp32_precision == "tf32"
    raise ZeroDivisionError


@pytest.mark.parametrize("before", ["none", "ieee", "tf32"])
def test_the_setting_of_torch_is_left_as_it_was(before):
    held = torch.backends.cuda.matmul
    kept = held.fp32_precision
    try:
        held.fp32_precision = before
        U, b = problem(200, 30)
        quadsense.solve(ByTorch(tensor(U)), b, delta=1.0, method="cg", allow_tf32=True)
        assert held.fp32_precision == before
        with pytest.raises(ZeroDivisionError), tf32_allowed(torch):
            _fail(held)
        assert held.fp32_precision == before
    finally:
        held.fp32_precision = kept


@pytest.mark.parametrize("given", [np.asarray, torch.tensor], ids=["NumPy", "a CPU"])
def test_it_has_no_effect_elsewhere(given, coarse):
    U, b = problem(80, 12)
    for asked in ({"method": "cg"}, {"psd": True, "prefer": "any"}):
        one, two = (
            quadsense.solve(given(U), given(b), delta=1e-6, **asked, allow_tf32=allowed)
            for allowed in (False, True)
        )
        assert to_numpy(one.A).tobytes() == to_numpy(two.A).tobytes()
    assert not coarse["products"]


def test_what_makes_no_sense_is_refused_in_a_sentence():
    U, b = problem(60, 12)
    with pytest.raises(ValueError, match="allow_tf32 must be True or False, got 'yes'"):
        quadsense.solve(U, b, delta=1.0, method="cg", allow_tf32="yes")
    with pytest.raises(ValueError, match="'gd' takes no 'allow_tf32'; cg and psd do"):
        quadsense.solve(U, b, delta=1.0, method="gd", allow_tf32=True)


def test_the_command_has_it_as_a_flag(tmp_path):
    U, b = problem(60, 12)
    np.savez(tmp_path / "data.npz", U=U, b=b)
    asked = ["solve", str(tmp_path / "data.npz"), "--delta", "1", "--method"]
    assert CliRunner().invoke(cli, [*asked, "cg", "--allow-tf32"]).exit_code == 0
    refused = CliRunner().invoke(cli, [*asked, "gd", "--allow-tf32"])
    assert "takes no 'allow_tf32'" in str(refused.exception)


def test_the_plan_counts_the_copy():
    U, b = problem(60, 12)
    data = Measurements(ByTorch(tensor(U)), b, delta=1.0)
    for tf32 in (False, True):
        shape = shape_of(data, psd=False, rank=None, target=True, tf32=tf32)
        assert shape.copied is tf32
        assert METHODS.traits("cg").memory(shape) >= tf32 * 60 * 12 * 4


def test_blocks_of_columns_cover_every_precision():
    for kind in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        blocks = tensor_products._blocks_of(torch.zeros(3, 1500, dtype=kind))
        assert blocks[0][0] == 0 and blocks[-1][1] == 1500
        assert [first for first, _ in blocks[1:]] == [last for _, last in blocks[:-1]]
    assert tensors.SINGLE_CHUNK_ENTRIES > tensors.CHUNK_ENTRIES
