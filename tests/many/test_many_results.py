"""`ManyResults`: single results, verification, tables, files; limits and bad input."""

import threading
import time

import numpy as np
import pytest
from kinds import DEVICE
from many_cases import many_case
from threadpoolctl import threadpool_limits

import quadsense
from quadsense import Status
from quadsense.system.watch import Interrupted


def measured(k=40, m=20, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, 3))
    X = rng.standard_normal((k, 3, 3)) * np.array([1.0, 0.3, 0.05])
    B = np.einsum("ia,kab,ib->ki", U, X @ X.swapaxes(1, 2), U)
    return U, B + noise * rng.standard_normal(B.shape)


@pytest.mark.parametrize("seed", range(8))
def test_a_single_result_is_the_ordinary_one(seed):
    case = many_case(seed, k=3)
    results = quadsense.solve_many(case.U, case.B, gap=1e-6, **case.asked)
    for i in range(3):
        one = results[i]
        assert one.status is results.status[i]
        options = {
            name: case.asked[name] for name in ("conjugate", "missing") if name in case.asked
        }
        assert one.certificate.verify(case.U, case.B[i], **options)
        if one.success:
            size = np.linalg.norm(one.A)
            np.testing.assert_allclose(results.A[i], one.A, atol=1e-3 * size)


def test_a_known_answer_is_proved_and_not_solved_again():
    rng = np.random.default_rng(0)
    U, x = rng.standard_normal((20, 3)), rng.standard_normal((6, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    B = (x @ U.T) ** 2 + 0.05 * rng.standard_normal((6, 20))
    results = quadsense.solve_many(U, B, delta=1.0, psd=True)
    assert results.corrected.any()
    for one in results:
        assert one.n_iter == 0
        assert one.optimal


@pytest.mark.parametrize("seed", [1, 2, 4, 5, 10])
def test_claims_verify_and_tampered_ones_do_not(seed):
    case = many_case(seed, k=3)
    results = quadsense.solve_many(case.U, case.B, **case.asked)
    decided = np.isin(results.status, [Status.MET, Status.OPTIMAL, Status.INFEASIBLE])
    np.testing.assert_array_equal(results.verify(), decided)
    np.testing.assert_array_equal(results.verify(case.U, case.B), decided)
    for name, change in (
        ("packed", lambda values: values * 1.5 + 0.1),
        ("objective_lower", lambda values: 1.1 * np.abs(values) + 1.0),
        ("objective", lambda values: 1.1 * values + 0.1),
        ("lower_bound", lambda values: 10.0 * values + 1.0),
    ):
        kept = getattr(results.answers, name).copy()
        getattr(results.answers, name)[:] = change(kept)
        assert not results.verify().any(), name
        getattr(results.answers, name)[:] = kept
    assert not results.verify(case.U, case.B * 1.3 + 0.2).any()


@pytest.mark.slow
def test_what_solve_decided_verifies_with_covariates():
    rng = np.random.default_rng(0)
    U, X = rng.standard_normal((5, 3)), rng.standard_normal((5, 1))  # 5 readings, 7 unknowns
    B = rng.standard_normal((4, 5)) ** 2
    for psd in (False, True):
        asked = {"delta": 0.2, "psd": psd, "trace": 1.5, "covariates": X}
        left = quadsense.solve_many(U, B, fallback=False, **asked)
        assert not np.isfinite(left.A).any()
        results = quadsense.solve_many(U, B, **asked)
        assert (results.status != Status.UNDECIDED).all()
        assert results.verify().all()
        assert left[0].status is results.status[0]
        errors = np.einsum("ia,kab,ib->ki", U, results.A, U) + results.coef @ X.T - B
        cost = (errors**2).sum(axis=1) / 0.04
        np.testing.assert_allclose(results.objective, cost, rtol=1e-6, atol=1e-9)
        results.answers.packed[:] += 0.01
        assert not results.verify().any()


def test_a_false_met_does_not_verify():
    U, B = measured()
    results = quadsense.solve_many(U, B, delta=0.2, psd=True, fallback=False)
    wrong = results.status == Status.INFEASIBLE
    assert wrong.any() and not wrong.all()
    results.answers.status[wrong] = list(Status).index(Status.MET)
    assert not results.verify()[wrong].any()
    assert results.verify()[~wrong].all()


@pytest.mark.parametrize("seed", range(6))
def test_files_hold_all_but_the_data(seed, tmp_path):
    case = many_case(seed, k=5)
    results = quadsense.solve_many(case.U, case.B, **case.asked)
    results.save(tmp_path / "many.npz")
    read = quadsense.load_many(tmp_path / "many.npz")
    np.testing.assert_array_equal(read.A, results.A)
    np.testing.assert_array_equal(read.status, results.status)
    assert repr(read) == repr(results)
    with pytest.raises(ValueError, match=r"with_data\(U, B\)"):
        read.verify()
    np.testing.assert_array_equal(read.verify(case.U, case.B), results.verify())
    again = read.with_data(case.U, case.B)
    assert again[2].status is results[2].status


def test_a_file_of_something_else_is_refused(tmp_path):
    U, B = measured(k=2)
    quadsense.solve(U, B[0], delta=1.0).save(tmp_path / "one.npz")
    with pytest.raises(ValueError, match="holds no answers to many problems"):
        quadsense.load_many(tmp_path / "one.npz")
    quadsense.solve_many(U, B, delta=1.0).save(tmp_path / "many.npz")
    with np.load(tmp_path / "many.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["status"] = arrays["status"] + 100
    np.savez(tmp_path / "damaged.npz", **arrays)
    with pytest.raises(ValueError, match="damaged answers"):
        quadsense.load_many(tmp_path / "damaged.npz")


def test_a_table_has_a_row_for_each_problem():
    pytest.importorskip("pandas")
    U, B = measured(k=7)
    results = quadsense.solve_many(U, B, delta=1.0, covariates=np.ones(20))
    table = results.to_dataframe()
    assert len(table) == 7
    np.testing.assert_array_equal(table["A[0,2]"], results.A[:, 0, 2])
    np.testing.assert_array_equal(table["coef[0]"], results.coef[:, 0])


def test_the_representation_counts_statuses():
    U, B = measured()
    text = repr(quadsense.solve_many(U, B, delta=0.25, psd=True, fallback=False))
    assert "40 problems, symmetric positive semidefinite A of order 3" in text
    assert "met" in text
    assert "max_ratio" in text


def test_indices_count_from_either_end():
    U, B = measured(k=4)
    results = quadsense.solve_many(U, B, delta=1.0)
    np.testing.assert_allclose(results[-1].A, results.A[3])
    assert len(list(results)) == 4
    with pytest.raises(IndexError, match="from -4 to 3"):
        results[4]


def test_time_limit_leaves_the_rest_marked():
    U, B = measured(k=3)
    results = quadsense.solve_many(U, B, delta=1.0, time_limit=0.0)
    assert set(results.status) == {Status.TIME_LIMIT}
    assert not results.verify().any()


class Slow:
    """Readings of which a part takes a while, and that press Ctrl-C on the way."""

    def __init__(self, B, press):
        self.B, self.shape, self.dtype, self.press, self.count = B, B.shape, B.dtype, press, 0

    def __getitem__(self, part):
        self.count += 1
        if self.count == 4:
            self.press()
            time.sleep(0.05)
        return self.B[part]


def test_ctrl_c_keeps_what_is_done():
    import signal

    U, B = measured(k=20_000)
    press = lambda: signal.raise_signal(signal.SIGINT)  # noqa: E731
    assert threading.current_thread() is threading.main_thread()
    with pytest.raises(Interrupted) as caught:
        quadsense.solve_many(U, Slow(B, press), delta=1.0, fallback=False)
    results = caught.value.result
    done = results.status == Status.MET
    assert 0 < done.sum() < 20_000
    assert set(results.status[~done]) <= {Status.INTERRUPTED, Status.UNDECIDED}
    assert np.isfinite(results.packed[done]).all()


def test_the_first_wrong_value_is_named_and_nothing_after_it_is_read():
    U, B = measured(k=40_000)
    B[7_000, 3] = B[7_001, 2] = B[20_000, 1] = np.inf
    source = Slow(B, lambda: None)
    with (
        threadpool_limits(2),
        pytest.raises(ValueError, match=r"B\[7000, 3\] is inf"),
    ):
        quadsense.solve_many(U, source, delta=1.0)
    assert 2 <= source.count <= 5


def test_sources_on_disk_give_the_same(tmp_path):
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    U, B = measured(k=3000)
    expected = quadsense.solve_many(U, B, delta=1.0, psd=True)
    np.save(tmp_path / "B.npy", B)
    with h5py.File(tmp_path / "B.h5", "w") as file:
        file["B"] = B
        sources = [np.load(tmp_path / "B.npy", mmap_mode="r"), file["B"]]
        sources.append(zarr.array(B, chunks=(500, 20)))
        for source in sources:
            found = quadsense.solve_many(U, source, delta=1.0, psd=True)
            np.testing.assert_array_equal(found.packed, expected.packed)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_answers_to_tensors_are_tensors_on_their_device(kind):
    torch = pytest.importorskip("torch")
    U, B = measured(k=50)
    B = B.astype(kind)
    B[7, 3], B[9, 2] = np.nan, B[9, 2] + 9.0

    def tensor(values):
        return torch.tensor(values, device=DEVICE)

    weights, X = np.linspace(1.0, 2.0, 1000).reshape(50, 20), np.linspace(0.0, 1.0, 20)
    for asked in ({"psd": True}, {"covariates": X}, {"weights": weights, "trace": (0.1, 1.0)}):
        asked = {"delta": 0.2, "missing": "drop", **asked}
        expected = quadsense.solve_many(U, B, **asked)
        given = {name: tensor(x) if isinstance(x, np.ndarray) else x for name, x in asked.items()}
        found = quadsense.solve_many(tensor(U), tensor(B), **given)
        assert repr(found).splitlines()[1:] == repr(expected).splitlines()[1:]
        for name in ("A", "packed", "coef", "met", "success", "max_ratio", "worst_row",
                     "lower_bound", "objective", "objective_lower", "corrected"):  # fmt: skip
            values = getattr(found, name)
            assert isinstance(values, torch.Tensor)
            assert values.device.type == torch.device(DEVICE).type
            np.testing.assert_array_equal(values.cpu().numpy(), getattr(expected, name))
        np.testing.assert_array_equal(found.verify(), expected.verify())
        np.testing.assert_array_equal(found.verify(tensor(U), tensor(B)), expected.verify())
        assert found[3].status is found.status[3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"B": np.zeros((4, 7))}, r"B has shape \(4, 7\), but must have one problem per row"),
        ({"B": np.zeros(20)}, "solve takes a single b"),
        ({"weights": np.ones(7)}, r"weights has shape \(7,\), but must be a number, or have shape"),
        ({"weights": -np.ones(20)}, "weights must not be negative, got -1.0"),
        ({"bounds": (np.zeros((4, 7)), 1.0)}, r"bounds\[0\] \(lo\) has shape \(4, 7\)"),
        ({"bounds": (1.0, 0.0)}, "bounds must satisfy lo <= hi, but row 0 of problem 0"),
        ({"delta": -1.0}, "delta must not be negative, got -1.0"),
        ({"delta": np.nan}, "delta must be finite"),
        ({"B": "nan"}, r"B\[2, 5\] is nan: missing='drop'"),
        ({"rank": 1}, "takes no rank: solve seeks matrices of low rank"),
        ({"prefer": "center"}, "takes no prefer: solve has other preferences"),
        ({"ridge": 0.1}, "takes no ridge: solve adds a pull"),
        ({"U": np.ones((30, 17)), "B": np.ones((2, 30))}, "n up to 16.*call solve for each b"),
        ({"trace": (2.0, 1.0)}, "trace must be a number or a pair"),
        ({"gap": 2.0}, "gap must lie strictly between 0 and 1"),
        ({"missing": "skip"}, "missing must be 'raise' or 'drop'"),
        ({"covariates": np.ones(7)}, r"covariates has shape \(7, 1\)"),
        ({"psd": "yes"}, "psd must be True or False"),
        ({"time_limit": "1"}, "time_limit must be a number of seconds"),
        ({"delta": 1.0, "bounds": (0.0, 1.0)}, "bounds replaces delta"),
    ],
)
def test_bad_input_is_named(change, message):
    U, B = measured(k=4)
    if isinstance(change.get("B"), str):
        B[2, 5] = np.nan
        change = {}
    given = {"U": U, "B": B} | change
    with pytest.raises(ValueError, match=message):
        quadsense.solve_many(given.pop("U"), given.pop("B"), **given)


def test_an_unknown_keyword_is_a_type_error():
    U, B = measured(k=2)
    with pytest.raises(TypeError, match="did you mean 'delta'"):
        quadsense.solve_many(U, B, tol=0.1)
