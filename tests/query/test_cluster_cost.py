"""The model of docs/scaling.md against arithmetic by hand, shards, plans and a small cluster."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import workers
from click.testing import CliRunner
from helpers import sampled
from kinds import strips

from quadsense.cli import cli
from quadsense.files import Strip, Strips
from quadsense.measurements.shards import Bundle, Shards
from quadsense.query import cluster_cost
from quadsense.query.cluster_cost import ClusterCost
from quadsense.query.plan import make_plan
from quadsense.system.machine import Rates, in_bytes
from quadsense.view.json_fields import scaling_fields

SIZES = [
    (200_000, 512),
    (10**6, 40),
    (3000, 3000),
    (17, 5),
    (5_000_000, 1024),
    (200_000, 9000),
    (6000, 3000),
    (5592, 3000),
]


def drawn(rng):
    """A random model."""
    m, n = (int(10 ** rng.uniform(0, top)) for top in (9, 5))
    return ClusterCost(
        m, n, int(10 ** rng.uniform(0, 3)),
        complex=bool(rng.integers(2)),
        single=bool(rng.integers(2)),
        rank=None if rng.integers(2) else int(rng.integers(0, min(n, 20) + 1)),
        threads=int(rng.integers(1, 9)),
        rates=Rates(10 ** rng.uniform(9, 13), 10 ** rng.uniform(9, 12)),
        network=10 ** rng.uniform(7, 11),
        task=10 ** rng.uniform(-4, -2),
    )  # fmt: skip


# --- sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_rows_are_divided_as_a_cluster_divides_them(m, n, dtype):
    item = np.dtype(dtype).itemsize
    size = max(1, cluster_cost.STRIP_BYTES // (n * item))
    cut = [
        Strip(Path("U.npy"), "U", first, min(first + size, m), n, dtype, ())
        for first in range(0, m, size)
    ]
    parts = Shards.of_files(Strips(cut)).lengths
    found = ClusterCost(m, n, complex=dtype == "complex128", single=dtype == "float32")
    assert found.parts == len(parts)
    assert found.part_rows == max(parts)
    assert found.row_bytes == sum(parts) * n * item


@pytest.mark.parametrize(("m", "n"), SIZES)
def test_the_driver_takes_what_the_plan_counts(m, n):
    found = ClusterCost(m, n)
    plan = make_plan(found.shape, "cg").memory
    blocks = plan - found.driver_memory  # of rows, and images that are kept: of bounded size
    formed = 16.0 * min(m, found.shape.unknowns) ** 2  # where cg factors or forms K
    assert -0.1 * plan <= blocks <= 2**29 + formed


@pytest.mark.parametrize(("m", "n"), [(10**9, 100), (2 * 10**8, 20_000)])
def test_vectors_are_what_the_driver_holds_of_many_rows(m, n):
    found = ClusterCost(m, n)
    assert found.driver_memory == pytest.approx(make_plan(found.shape, "cg").memory, rel=0.1)


def test_what_a_worker_holds_is_the_sum_of_its_arrays():
    found = ClusterCost(200_000, 512, workers=4, threads=2)
    rows, A = np.empty((found.part_rows, 512)), np.empty((512, 512))
    facts = np.empty(found.part_rows), np.empty(found.part_rows, int)
    held = found.parts_a_worker * (rows.nbytes + sum(each.nbytes for each in facts))
    assert found.worker_memory == held + (1 + 2 * 8) * A.nbytes  # eight sums per thread


# --- a sweep ----------------------------------------------------------------------------------


def test_bytes_are_those_of_every_task_of_a_sweep():
    """Listed task by task: 25 parts, four workers, every sum made where only one part of it is."""
    found = ClusterCost(200_000, 512, workers=4)
    lengths = [8192] * 24 + [3392]
    assert sum(lengths) == found.m
    A = 8 * 512**2
    driver = A + sum(8 * length for length in lengths)  # F(A)
    driver += sum(8 * length for length in lengths) + A  # F*(y)
    held, adds = [1] * len(lengths), []  # sums, and how many each task adds up
    while len(held) > 1:
        held = [sum(held[i : i + 8]) for i in range(0, len(held), 8)]
        adds += held
    assert adds == [8, 8, 8, 1, 25]
    assert found.driver_bytes == driver
    assert found.tasks == 1 + 2 * len(lengths) + len(adds)
    assert found.worker_bytes == A * (4 + 7 + 7 + 7 + 3)  # each task lacks all but one of its sums
    large = ClusterCost(200_000, 3000)
    assert large.together == 2
    assert large.parts == 72
    assert large.tasks == 1 + 2 * 72 + 36 + 18 + 9 + 5 + 3 + 2 + 1


@pytest.mark.cluster
def test_workers_send_each_other_no_more_than_the_model_says(rng, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    from quadsense.measurements.cluster import OnCluster

    m, n, size = 1000, 50, 60
    monkeypatch.setattr(cluster_cost, "STRIP_BYTES", size * n * 8)
    monkeypatch.setattr(cluster_cost, "part_bytes", lambda *sizes: size * n * 8)
    np.save(tmp_path / "U.npy", rng.standard_normal((m, n)))
    found = strips(tmp_path / "U.npy", size)
    parts = Shards([Bundle((strip,)) for strip in found])
    model = ClusterCost(m, n, workers=3)
    assert model.parts == len(parts) == 17
    with workers.cluster(3, protocol="tcp://") as client:

        def moved():
            logs = client.run(lambda dask_worker: list(dask_worker.transfer_incoming_log))
            return [each["total"] for log in logs.values() for each in log]

        kind = OnCluster(client, parts)
        before = sum(moved())
        kind.adjoint(kind.forward(np.eye(n)))
        between = sum(moved()) - before
    vectors = 16 * m  # shares of vectors and facts that go with a part that is computed elsewhere
    assert 2 * model.matrix_bytes <= between <= model.worker_bytes + vectors + m * n * 8


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_travel_overtakes_arithmetic_once_and_where_it_is_said(seed):
    found = drawn(np.random.default_rng(seed))
    shares = []
    for count in (1, 2, 3, 5, 30, 31, 400, 1000, 30_000):
        other = replace(found, workers=count)
        shares.append(other.communicating / other.computing)
        assert other.seconds == other.computing + other.communicating
    assert all(one < two for one, two in pairwise(shares))
    at, before = (replace(found, workers=max(1, found.crossing - less)) for less in (0, 1))
    assert at.communicating >= at.computing
    assert found.crossing == 1 or before.communicating < before.computing
    assert found.crossing == replace(found, workers=7 * found.workers).crossing


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_more_workers_never_take_more_memory_or_arithmetic_each(seed):
    found = drawn(np.random.default_rng(seed))
    more = replace(found, workers=2 * found.workers)
    assert more.worker_memory <= found.worker_memory
    assert more.computing <= found.computing
    assert more.loading <= found.loading
    assert more.driver_memory == found.driver_memory
    assert more.worker_bytes >= found.worker_bytes
    for each in scaling_fields(found, 1e12).values():
        assert each is not None and not (isinstance(each, float) and math.isnan(each))


def test_seconds_follow_from_the_rates():
    found = ClusterCost(10**6, 930, rates=Rates(1e10, 1e10), network=1e9, disk=1e8, task=0.0)
    assert found.computing == pytest.approx(2e6 * 930**2 * (1 + 70 / 930) / 1e10)
    assert found.communicating == pytest.approx((2 * 8 * 930**2 + 16e6) / 1e9)
    assert found.loading == pytest.approx(8e6 * 930 / 1e8)
    assert found.reading == pytest.approx(max(2 * found.loading, found.computing))
    low = replace(found, rank=3)
    assert low.computing == pytest.approx(12e6 * 930 / 1e10 + 16e6 * 930 / 1e10)
    assert low.driver_bytes == 2 * 8 * 3 * 930 + 2 * 8 * 3 * 10**6


# --- what fits --------------------------------------------------------------------------------


def test_what_does_not_fit_is_said_with_what_would():
    large = ClusterCost(10**9, 10**6, workers=64)
    assert "only a factor of it fits" in large.notes(256 * 2**30)[0]
    assert not any("factor" in note for note in replace(large, rank=10).notes(256 * 2**30))
    tall = ClusterCost(10**8, 1000, workers=2)
    (note,) = tall.notes(2**38)
    enough = int(note.split(": ")[1].split()[0].replace(",", ""))
    assert replace(tall, workers=enough).notes(2**38) == []
    assert replace(tall, workers=enough - 1).notes(2**38) != []
    said = ClusterCost(10**9, 10**4, 64).notes(2**34)[-1]
    assert re.search(r"not even one part of [\d.]+ GB fits in the 17\.2 GB of one$", said)
    assert ClusterCost(1000, 10, 2).notes(1e12)[-1] == "1 part keeps no more workers busy than that"
    assert "no matrix of order n" in ClusterCost(10, 1000, 2).notes(2**40)[0]
    assert "no more workers busy" in ClusterCost(1000, 10, 2).notes(2**40)[0]


def test_minimax_is_counted_where_its_own_work_fits():
    found = ClusterCost(10**9, 10**4, workers=64)
    assert set(found.sweeps()) == {"cg", "minimax"}
    assert set(found.sweeps(2**40)) == {"cg"}
    assert any("minimax" in note for note in found.notes(2**40))
    assert set(replace(found, rank=2).sweeps()) == {"low_rank"}
    assert set(replace(found, psd=True).sweeps()) == {"psd"}
    assert set(ClusterCost(1000, 400).sweeps()) == {"cg"}


def test_bytes_for_people():
    for count, text in ((999, "999 B"), (999.6, "1 kB"), (8e13, "80 TB"), (8e18, "8,000 PB")):
        assert in_bytes(count) == text


# --- the command ------------------------------------------------------------------------------


def run(*words):
    done = CliRunner().invoke(cli, ["inspect", *map(str, words)])
    return done.exit_code, done.output


def test_inspect_prints_the_model(tmp_path, monkeypatch):
    monkeypatch.setenv("QUADSENSE_CACHE", str(tmp_path))
    code, out = run("--n", 10000, "--m", "1e9", "--workers", 64)
    assert code == 0
    assert "80 TB in 1,025 parts" in out
    assert "17.6 GB to and from the driver" in out
    code, out = run("--n", "1e4", "--m", "1e9", "--workers", 64, "--json", "--single")
    fields = json.loads(out)
    schema = json.loads(CliRunner().invoke(cli, ["schema", "inspect"]).output)
    jsonschema.validate(fields, schema)
    assert fields["m"] == 10**9
    assert fields["scaling"]["row_bytes"] == 4 * 10**13
    slow = ("--network", "100 MB", "--disk", "1e8", "--memory-limit", "2 TB", "--rank", 5)
    code, out = run("--n", "1e4", "--m", "1e9", "--workers", 64, "--json", *slow, "--complex")
    found = json.loads(out)["scaling"]
    assert (found["network"], found["disk"], found["memory"]) == (1e8, 1e8, 2e12)
    assert found["matrix_bytes"] == 16 * 5 * 10**4
    assert list(found["sweeps"]) == ["low_rank"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--n", 10, "--m", "1.5", "--workers", 2], "is not a whole number"),
        (["--n", 10, "--m", "many", "--workers", 2], "is not a whole number"),
        (["--n", 10, "--m", "1e999", "--workers", 2], "is not a whole number"),
        (["--n", "1e200", "--m", 10, "--workers", 2], "is not a whole number up to 1e18"),
        (["--n", "nan", "--m", 10], "is not a whole number"),
        (["--n", 10, "--m", 100, "--workers", 0], "workers must be at least 1"),
        (["--n", 10, "--m", 100, "--single"], "go with --workers"),
        (["--n", 10, "--m", 100, "--workers", 2, "--disk", "fast"], "--disk must be a number"),
        (["data.npz", "--workers", 2], "without a FILE"),
    ],
)
def test_inspect_refuses_what_is_no_cluster(words, said):
    done = CliRunner().invoke(cli, ["inspect", *map(str, words)])
    assert done.exit_code != 0
    assert said in done.output + str(done.exception)
