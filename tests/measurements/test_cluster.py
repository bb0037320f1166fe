"""Rows on a Dask cluster: the same answers on any worker, and errors that say where."""

import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import workers
from kinds import strips

import quadsense
from quadsense import Measurements, Status, solve
from quadsense.measurements import cluster, shards
from quadsense.measurements.arrays import Dense
from quadsense.measurements.cluster import InChunks, OnCluster
from quadsense.measurements.parted import Parted, apply
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.shards import Shards

pytestmark = pytest.mark.cluster

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")


@pytest.fixture
def client():
    return workers.client()


@pytest.fixture
def alone():
    """As where no client is."""
    with dask.config.set(scheduler="synchronous"):
        yield


class OneByOne(Parted):
    """Parts of an array, in memory, in double precision."""

    def __init__(self, U):
        self.parts = [U[:21], U[21:42], U[42:]]
        super().__init__([21, 21, 18], U.shape[1], U.dtype)

    def each(self, work, shared=(), split=()):
        return [
            apply(work, Dense(rows), *shared, *(each[self.span(part)] for each in split))
            for part, rows in enumerate(self.parts)
        ]

    def total(self, work, shared=(), split=()):
        return sum(self.each(work, shared, split))

    def take(self, index):
        return np.concatenate(self.parts)[index]

    def place(self, part, row):
        return f"{part}, {row}"


def in_file(folder, U, rows, name="U.npy"):
    np.save(folder / name, U)
    return strips(folder / name, rows)


def bundled(found):
    """Every strip as one part."""
    parts = [shards.Bundle((strip,)) for strip in found]
    return Shards(parts)


def question(rng, m=60, n=4, rank=None):
    U, X = rng.standard_normal((m, n)), rng.standard_normal((n, rank or n))
    return U, np.sum((U @ X) ** 2, axis=1)


@pytest.mark.parametrize(
    "named",
    [
        {"method": "cg"},
        {"method": "gd", "max_iter": 3},
        {"method": "minimax", "delta": None},
        {"psd": True, "prefer": "any"},
        {"rank": 4, "rng": 0, "max_iter": 3},
        {"prefer": "least_squares"},
        {"prefer": "center", "max_iter": 3},
    ],
    ids=lambda named: " ".join(map(str, named.values())),
)
def test_every_method_answers_as_in_memory(client, rng, named):
    """By the same arithmetic to 1e-10; of arrays some steps are done in single precision.

    The smallest worst error is found from fewer rows where they are in parts, to the same gap.
    """
    U, b = question(rng)
    b = b + 0.05 * rng.standard_normal(b.size)
    near = 1e-2 if named.get("method") == "minimax" else 1e-5
    named = {"delta": 0.3, **named}
    found = solve(da.from_array(U, chunks=(21, 3)), b, **named)
    size = np.linalg.norm(found.A)
    for other, off in ((OneByOne(U), 1e-10), (U, near)):
        truth = solve(other, b, **named)
        assert found.status is truth.status
        np.testing.assert_allclose(found.A, truth.A, rtol=0, atol=off * size)
    assert type(found.A) is np.ndarray


def test_columns_are_scaled_on_the_workers_as_in_memory(client, rng):
    U, b = question(rng, m=120)
    U = U * [1.0, 64.0, 0.125, 1.0]
    b = np.sum((U / [1.0, 64.0, 0.125, 1.0]) ** 2, axis=1) + 0.1 * rng.uniform(-1, 1, b.size)
    rows = da.from_array(U, chunks=(21, 3))
    for named in ({}, {"psd": True}, {"prefer": "minimax"}):
        found, truth = solve(rows, b, delta=0.1, **named), solve(U, b, delta=0.1, **named)
        assert np.array_equal(found.certificate.columns, truth.certificate.columns)
        assert truth.certificate.columns[1] < 0 < truth.certificate.columns[2]
        np.testing.assert_allclose(found.residuals, truth.residuals, rtol=0, atol=1e-2)
        assert found.verify(U, b) and truth.verify(rows, b)


def test_vectors_of_dask_and_checks_of_results(client, rng, tmp_path):
    U, b = question(rng)
    rows, readings = da.from_array(U, chunks=(25, -1)), da.from_array(b, chunks=7)
    result = solve(rows, readings, delta=da.full(60, 0.1, chunks=11), prefer="any")
    assert result.status is Status.MET
    assert result.certificate.verify(rows, readings)
    assert result.certificate.verify(U, b)
    result.save(tmp_path / "result.npz")
    assert quadsense.load_result(tmp_path / "result.npz").certificate.verify(rows, b)
    assert not result.certificate.verify(rows, readings + 5.0)


@pytest.mark.parametrize("count", [1, 3])
def test_bits_do_not_depend_on_the_number_of_workers(rng, client, tmp_path, count):
    held = bundled(in_file(tmp_path, rng.standard_normal((90, 7)), 8))
    y, A = rng.standard_normal(90), np.diag(rng.standard_normal(7))
    with workers.cluster(count) as other:
        one, two = OnCluster(client, held), OnCluster(other, held)
        assert np.array_equal(one.adjoint(y), two.adjoint(y))
        assert np.array_equal(one.forward(A), two.forward(A))
        b = one.forward(A @ A) + 1e-3 * y
        bits = [solve(kind, b, delta=1e-2, method="cg").A for kind in (one, two)]
    assert np.array_equal(*bits)


def test_a_file_is_loaded_by_the_workers(client, rng, tmp_path, monkeypatch):
    monkeypatch.setattr("quadsense.files.strips.STRIP_BYTES", 600)
    monkeypatch.setattr(shards, "STRIP_BYTES", 600)
    U, b = question(rng)
    np.savez(tmp_path / "data.npz", U=U, b=b, delta=0.1)
    for name in ("U", "b"):
        np.save(tmp_path / f"{name}.npy", {"U": U, "b": b}[name])
    files = [Measurements.open(tmp_path / "U.npy", b=str(tmp_path / "b.npy"), delta=0.1, **limit)
             for limit in ({}, {"memory_limit": 1000})]  # fmt: skip
    assert "on disk" in repr(files[1])
    for data in files:
        there = data.on(client)
        kind = there.unit_rows.kind
        assert isinstance(kind, OnCluster) and len(kind.shards) == 4 and "dask" in repr(there)
        np.testing.assert_allclose(solve(there).A, solve(U, b, delta=0.1).A, rtol=1e-9)
        assert repr(there.on(client)) == repr(there)
    whole = Measurements.open(tmp_path / "data.npz").on(client)  # in one piece: it is compressed
    assert len(whole.unit_rows.kind.shards) == 1 and solve(whole, prefer="any").met


def test_what_cannot_be_loaded_is_said(client, rng, tmp_path):
    U, b = question(rng)
    with pytest.raises(ValueError, match="these are dense, in memory: save them in a file"):
        Measurements(U, b).on(client)
    np.save(tmp_path / "U.npy", U)
    data = Measurements.open(tmp_path / "U.npy", b=_saved(tmp_path, b))
    np.save(tmp_path / "U.npy", 2 * U)
    with pytest.raises(ValueError, match=r"U\.npy was changed since it was opened"):
        data.on(client)


def _saved(folder, b):
    np.save(folder / "b.npy", b)
    return str(folder / "b.npy")


def test_nan_in_block_17_is_named(client, rng, tmp_path):
    U = rng.standard_normal((80, 3))
    U[70, 1] = np.nan
    held = bundled(in_file(tmp_path, U, 4))
    with pytest.raises(ValueError, match=r"first in row 70: row 70 of .*U\.npy"):
        OnCluster(client, held)
    with pytest.raises(ValueError, match="first in row 70: row 2 of chunk 17 of the"):
        solve(da.from_array(U, chunks=(4, -1)), np.ones(80))


def test_a_file_that_is_changed_or_gone_is_named(client, rng, tmp_path):
    U = rng.standard_normal((24, 3))
    held = bundled(in_file(tmp_path, U, 8))
    kind = OnCluster(client, held)
    np.save(tmp_path / "U.npy", 2 * U)
    assert np.array_equal(kind.take(np.arange(24)), U)  # it was read before
    _lose(kind)
    with pytest.raises(ValueError, match=r"U\.npy was changed .* \(rows \d+ to \d+ were read\)"):
        kind.forward(np.eye(3))
    (tmp_path / "U.npy").unlink()
    with pytest.raises(ValueError, match=r"U\.npy cannot be read on .* \(rows \d+ to \d+ were w"):
        OnCluster(client, held)


def _lose(kind):
    """As after `Client.restart`, or a scheduler that came back with nothing."""
    futures = [*kind._rows, *kind._facts]
    kind.workers.client.cancel(futures)
    while {each.status for each in futures} != {"cancelled"}:
        time.sleep(0.01)


def test_how_many_sums_are_added_together_changes_no_bit(client, rng, tmp_path, monkeypatch):
    kind = OnCluster(client, bundled(in_file(tmp_path, rng.standard_normal((95, 6)), 5)))
    y = rng.standard_normal(95)
    sums = [part.T * y[here] @ part for part, here in ((kind.block(i, i + 5), slice(i, i + 5))
                                                        for i in range(0, 95, 5))]  # fmt: skip
    eight = kind.adjoint(y)
    np.testing.assert_allclose(eight, sum(sums), atol=1e-12)
    monkeypatch.setattr(cluster, "LARGE_SUM_BYTES", 0)
    assert np.array_equal(kind.adjoint(y), eight)


def test_a_worker_that_comes_later_gets_its_parts_and_changes_no_bit(rng, tmp_path):
    held = bundled(in_file(tmp_path, rng.standard_normal((95, 6)), 5))
    y = rng.standard_normal(95)
    with workers.cluster(1) as client:
        kind = OnCluster(client, held)
        one = kind.adjoint(y)
        client.cluster.scale(2)
        client.wait_for_workers(2)
        last, counts = time.monotonic() + 30.0, []
        while min(counts, default=0) < 9 and time.monotonic() < last:
            assert np.array_equal(kind.adjoint(y), one)
            where, threads = kind.workers.holders(kind._rows)
            counts = [sum(each in have for have in where) for each in threads]
        assert len(counts) == 2 and min(counts) >= 9
        assert np.array_equal(kind.adjoint(y), one)


@pytest.mark.parametrize("of", ["files", "chunks"])
def test_what_is_lost_is_loaded_again(client, rng, tmp_path, of):
    U = rng.standard_normal((24, 3))
    held = bundled(in_file(tmp_path, U, 8))
    if of == "chunks":
        held = Shards.of_array(da.from_array(U, chunks=(8, 2)))
    kind = OnCluster(client, held)
    before = kind.adjoint(np.ones(24))
    _lose(kind)
    assert np.array_equal(kind.adjoint(np.ones(24)), before)


def test_work_that_takes_workers_down_is_handed_out_again_but_not_for_ever(client):
    asked = []

    def ask(times):
        asked.append(1)
        return client.submit(_dying, len(asked) <= times, pure=False)

    assert cluster.Workers(client).results(lambda: ask(2)) == "done" and len(asked) == 3
    asked.clear()
    with pytest.raises(ConnectionError, match="every worker that was given this work was lost"):
        cluster.Workers(client).results(lambda: ask(100))
    assert len(asked) == cluster.MAX_ATTEMPTS
    with pytest.raises(ZeroDivisionError):
        cluster.Workers(client).results(lambda: client.submit(lambda: 1 // 0, pure=False))


def _dying(dies):
    from distributed.scheduler import KilledWorker

    if dies:
        raise KilledWorker("task", SimpleNamespace(address="tcp://gone"), 3)
    return "done"


def test_without_a_worker_it_says_so_and_waits(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "QUIET_SECONDS", 0.2)
    held = bundled(in_file(tmp_path, rng.standard_normal((24, 3)), 8))
    with workers.cluster(0) as client:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            client.loop.call_later(1.0, client.cluster.scale, 1)
            kind = OnCluster(client, held)
        assert any("has had no worker for" in str(each.message) for each in said)
        assert kind.m == 24


def test_a_time_limit_ends_a_product_that_waits(client, rng):
    U, b = question(rng, m=40, n=3)
    kind = OnCluster(client, Shards.of_array(da.from_array(U, chunks=(20, -1))))
    slow = kind.each
    kind.each = lambda *named: [time.sleep(0.2), slow(*named)][1]
    begin = time.monotonic()
    result = solve(kind, b, delta=1e-9, method="cg", time_limit=0.1)
    assert result.status is Status.TIME_LIMIT
    assert time.monotonic() - begin < 20.0  # else it would take hours


def test_sums_and_normal_matrices_never_bring_rows_to_the_driver(client, rng, monkeypatch):
    U = rng.standard_normal((40, 3)) + 1j * rng.standard_normal((40, 3))
    kind = OnCluster(client, Shards.of_array(da.from_array(U, chunks=(13, -1))))

    def refused(*_):
        raise AssertionError("rows were pulled")

    for name in ("block", "take", "blocks"):
        monkeypatch.setattr(OnCluster, name, refused)
    w, s = rng.uniform(1, 2, 40), rng.uniform(1, 2, 40)
    for conjugate in (False, True):
        here, there = Sensing(Dense(U), conjugate), Sensing(kind, conjugate)
        for one, two in ((here, there), (here.weighed(s), there.weighed(s))):
            np.testing.assert_allclose(np.triu(two.normal(w)), np.triu(one.normal(w)), atol=1e-12)
            assert two.normal().flags.f_contiguous and two.normal(dtype=np.float32).dtype == "f4"
        Y = rng.standard_normal((2, 3)) + 0j
        found = there.through(Y, lambda rows, p: p * w[rows])
        for one, two in zip(here.through(Y, lambda rows, p: p * w[rows]), found, strict=True):
            np.testing.assert_allclose(two, one, atol=1e-11)


@pytest.mark.parametrize("dtype", ["f2", ">f8", "i4", "f4", "c8", "g", "?"])
def test_numbers_of_every_type_are_those_of_the_array(client, rng, dtype):
    U = (4 * rng.standard_normal((20, 3))).astype(dtype)
    data = Measurements(da.from_array(U, chunks=(7, 2)), np.ones(20), delta=1.0)
    truth = Measurements(np.asarray(U, dtype=complex if dtype == "c8" else float), np.ones(20))
    np.testing.assert_allclose(data.unit_rows.norms, truth.unit_rows.norms, rtol=1e-12)
    np.testing.assert_allclose(data.rows(), truth.rows(), rtol=1e-12)


def test_rows_out_of_range_and_rows_of_zeros(client, rng):
    U = rng.standard_normal((12, 3)) * np.array([1e-200, 1.0, 1e150, 0.0] * 3)[:, None]
    found = Measurements(da.from_array(U, chunks=(5, -1)), np.zeros(12), delta=1.0)
    truth = Measurements(U, np.zeros(12), delta=1.0)
    A = rng.standard_normal((3, 3))
    A = A + A.T
    assert np.array_equal(found.unit_rows.nonzero, truth.unit_rows.nonzero)
    np.testing.assert_allclose(found.unit_rows.forward(A), truth.unit_rows.forward(A), atol=1e-14)


def test_arrays_that_are_no_rows_are_refused(client, rng):
    U = da.from_array(rng.standard_normal((20, 3)), chunks=(7, -1))
    with pytest.raises(ValueError, match=r"unknown sizes: call U\.compute_chunk_sizes\(\)"):
        solve(U[U[:, 0] > 0], np.ones(20))
    with pytest.raises(ValueError, match="two dimensions"):
        solve(U[:, 0], np.ones(20))
    with pytest.raises(ValueError, match="U is empty"):
        solve(U[:0], np.ones(0))
    with pytest.raises(ValueError, match="must hold numbers"):
        solve(U.astype("U8"), np.ones(20))
    with pytest.raises(ValueError, match="b has shape"):
        solve(U, da.ones(19))


def test_what_is_no_open_client_is_refused(client, rng, tmp_path):
    U, b = question(rng)
    np.save(tmp_path / "U.npy", U)
    data = Measurements(strips(tmp_path / "U.npy", 9), b, delta=0.1)
    with workers.cluster(1) as other:
        held = other.cluster
        with pytest.raises(ValueError, match=r"distributed\.Client, Client\(cluster\)$"):
            data.on(held)
        there = data.on(other)
    with pytest.raises(ValueError, match="the client is closed: give one that is connected"):
        data.on(other)
    with pytest.raises(ConnectionError, match="lost, or its client closed"):
        there.rows()
    with pytest.raises(ValueError, match=r"Client\('tls://10\.0\.0\.1:8786'\)$"):
        data.on("tls://10.0.0.1:8786")


SAYS_OTHERWISE = {
    "complex": (lambda p: np.exp(1j * p), {"dtype": float}, r"complex128 .* float64 .*dtype= or"),
    "wide": (lambda p: p / 3.0, {"dtype": "f4"}, r"float64 .* float32 .*by dtype= or meta="),
    "fractions": (lambda p: p / 3.0, {"dtype": int}, r"float64 .* int64 .*dtype= or meta="),
    "rows": (lambda p: p[:4], {"dtype": float}, r"\(4, 3\), .* \(5, 3\) is declared.*chunks="),
    "width": (lambda p: p[:, :2], {"dtype": float}, r"\(5, 2\), .* \(5, 3\) is .*chunks="),
    "mask": (lambda p: np.ma.masked_less(p, 0.0), {"dtype": float}, "masked numbers: fill"),
}


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")
@pytest.mark.parametrize("where", ["client", "alone"])
@pytest.mark.parametrize("case", SAYS_OTHERWISE)
def test_chunks_that_are_not_what_is_declared_are_refused(request, where, case, rng):
    request.getfixturevalue(where)
    made, declared, said = SAYS_OTHERWISE[case]
    U = da.from_array(rng.standard_normal((20, 3)), chunks=(5, -1)).map_blocks(made, **declared)
    with pytest.raises(ValueError, match=rf"^chunk \d of the dask.array .*{said}"):
        solve(U, np.ones(20), delta=1e-3)


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")
def test_which_chunk_is_not_as_declared_and_what_loses_nothing(alone, rng):
    U = rng.integers(-9, 9, (20, 4))
    rows = da.from_array(U, chunks=(5, 2)).map_blocks(lambda block: block, dtype=float)
    np.testing.assert_allclose(Measurements(rows, np.ones(20)).rows(), U, atol=1e-14)

    def one_of_them(block, block_id=None):
        return block * (1j if block_id == (2, 1) else 1.0)

    rows = da.from_array(U, chunks=(5, 2)).map_blocks(one_of_them, dtype=float)
    with pytest.raises(ValueError, match=r"^chunk \(2, 1\) .* complex128 of shape \(5, 2\)"):
        Measurements(rows, np.ones(20))


def test_many_small_chunks_are_put_together(client, rng, monkeypatch):
    monkeypatch.setattr(shards, "MAX_PARTS", 4)
    monkeypatch.setattr(shards, "STRIP_BYTES", 1)
    U = rng.standard_normal((40, 3))
    found = Shards.of_array(da.from_array(U, chunks=(2, -1)))
    assert found.lengths == [10, 10, 10, 10]
    assert np.array_equal(OnCluster(client, found).block(3, 31), U[3:31])


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler")
def test_without_a_client_chunks_are_computed_in_turn(alone, rng):
    U, b = question(rng)
    rows = da.from_array(U, chunks=(16, 3))
    data = Measurements(rows, da.from_array(b, chunks=9), delta=0.1)
    assert isinstance(data.unit_rows.kind, InChunks) and "dask" in repr(data)
    np.testing.assert_allclose(solve(data, method="gd").A, solve(U, b, delta=0.1, method="gd").A)
    assert data.unit_rows.same_as(Measurements(rows, b).unit_rows)
    assert not data.unit_rows.same_as(Measurements(rows + 1, b).unit_rows)


def test_rows_that_are_lost_for_good_are_said(client, rng):
    held = da.from_array(rng.standard_normal((24, 3)), chunks=(8, -1)).persist()
    client.cancel(held)
    with pytest.raises(ConnectionError, match="lost the same work"):
        solve(held, np.ones(24), delta=1.0)


def test_measurements_that_keep_arriving_and_sgd_on_a_cluster(client, rng):
    U, b = question(rng)
    data = Measurements(da.from_array(U[:40], chunks=(15, -1)), b[:40], delta=0.1)
    both = data.append(U[40:], b[40:])
    np.testing.assert_allclose(solve(both).A, solve(U, b, delta=0.1).A, rtol=1e-8)
    assert solve(data, method="sgd", rng=0, max_iter=400).max_ratio < 1e3
    interval = solve(data, prefer="any").interval((0, 1))
    truth = solve(U[:40], b[:40], delta=0.1, prefer="any").interval((0, 1))
    np.testing.assert_allclose(
        [interval.lower, interval.upper], [truth.lower, truth.upper], rtol=1e-4
    )


def test_constraints_and_mixes(client, rng):
    U, b = question(rng)
    rows = da.from_array(U, chunks=(23, -1))
    W = np.kron(np.eye(20), np.ones(3))
    for given in ({"trace": 5.0}, {"mix": W}):
        readings = W @ b if "mix" in given else b
        pair = [solve(each, readings, delta=50.0, prefer="any", **given) for each in (rows, U)]
        np.testing.assert_allclose(pair[0].A, pair[1].A, atol=1e-5)
