"""A Dask cluster of processes that are killed: the run goes on, or ends so that it can go on."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import workers
from kinds import strips

from quadsense import solve
from quadsense.measurements.cluster import OnCluster
from quadsense.measurements.shards import Bundle, Shards

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

distributed = pytest.importorskip("distributed")

SOLVE = {"delta": 1e-3, "method": "gd", "max_iter": 40}


@pytest.fixture
def held(rng, tmp_path):
    """Eleven parts, and readings that take a descent some time."""
    U = rng.standard_normal((330, 6)) * np.geomspace(1, 30, 6)
    np.save(tmp_path / "U.npy", U)
    found = strips(tmp_path / "U.npy", 30)
    b = np.sum((U @ rng.standard_normal((6, 6))) ** 2, axis=1)
    return Shards([Bundle((strip,)) for strip in found]), b


def processes(client):
    return sorted(client.run(os.getpid).values())


class After:
    """Calls a function after that many strides of a solve, from another thread."""

    def __init__(self, calls):
        self.calls, self.strides, self.threads = dict(calls), 0, []

    def __call__(self, _):
        self.strides += 1
        if self.strides in self.calls:
            call = threading.Thread(target=self.calls.pop(self.strides))
            call.start()
            self.threads.append(call)

    def done(self):
        for each in self.threads:
            each.join()
        return not self.calls


@pytest.mark.filterwarnings("ignore")
def test_workers_killed_twice_and_all_of_them_leave_the_same_bits(held):
    parts, b = held
    with workers.cluster(2, processes=True) as client:
        kind = OnCluster(client, parts)
        truth = solve(kind, b, **SOLVE)

        def kill(count):
            for each in processes(client)[:count]:
                os.kill(each, signal.SIGKILL)

        after = After({2: lambda: kill(1), 5: lambda: kill(1), 8: lambda: kill(2)})
        found = solve(kind, b, callback=after, **SOLVE)
        assert after.done()
    assert found.n_iter == truth.n_iter and np.array_equal(found.A, truth.A)
    assert np.array_equal(found.history.max_residual, truth.history.max_residual)


@contextmanager
def served(folder, count):
    """A scheduler and workers of its own processes, and a client."""
    place = folder / f"scheduler{time.monotonic_ns()}.json"
    run = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--port", "0"]
    work = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--no-dashboard"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    started = [subprocess.Popen([*run, "--scheduler-file", place], **quiet)]
    for _ in range(count):
        started.append(
            subprocess.Popen([*work, "--nthreads", "1", "--scheduler-file", place], **quiet)
        )
    try:
        with distributed.Client(
            scheduler_file=str(place), set_as_default=False, timeout=30
        ) as client:
            client.wait_for_workers(count, timeout=60)
            client._timeout = 1.0  # that it tries to come back
            yield client, started
    finally:
        for each in started:
            each.kill()
            each.wait()


@pytest.mark.filterwarnings("ignore")
def test_a_lost_scheduler_is_said_and_the_checkpoint_goes_on_elsewhere(held, tmp_path):
    parts, b = held
    keep = {"checkpoint": tmp_path / "run", "checkpoint_every": 0.0, **SOLVE}
    with served(tmp_path, 1) as (client, started):
        kind = OnCluster(client, parts)
        truth = solve(kind, b, **SOLVE)
        after = After({4: started[0].kill})
        with pytest.raises(ConnectionError, match=r"scheduler tcp://.* was lost, .*: .*check"):
            solve(kind, b, callback=after, **keep)
        assert after.done()
    strides = After({})
    with workers.cluster(2) as client:
        found = solve(OnCluster(client, parts), b, callback=strides, **keep)
    assert np.array_equal(found.A, truth.A) and found.n_iter == truth.n_iter
    assert strides.strides < len(truth.history.iteration) - 1  # some had been done


@pytest.mark.filterwarnings("ignore")
def test_the_command_works_on_a_cluster(run, rng, tmp_path):
    U = rng.standard_normal((50, 3))
    np.savez(tmp_path / "data.npz", U=U, b=np.sum(U**2, axis=1))
    with served(tmp_path, 1) as (client, _):
        address = client.scheduler.address
        code, out, err = run("solve", tmp_path / "data.npz", "--delta", 0.1, "--scheduler", address)
    assert code == 0 and "met" in out and address in err
    code, out, err = run("solve", tmp_path / "data.npz", "--delta", 0.1, "--workers", 1)
    assert code == 0 and "met" in out and "http" in err
    code, _, err = run("solve", tmp_path / "data.npz", "--workers", 1, "--scheduler", address)
    assert code == 2 and "--scheduler and --workers" in err
    code, _, err = run("solve", tmp_path / "data.npz", "--delta", 0.1, "--scheduler", "nonsense")
    assert code != 0 and "--scheduler must be an address such as tcp://" in err


@pytest.mark.skipif(not os.environ.get("QUADSENSE_CLUSTER"), reason="make test-cluster")
@pytest.mark.parametrize("how", ["terminal", "terminate"])
def test_an_interrupted_command_answers(rng, tmp_path, how):
    U = rng.standard_normal((2000, 60))
    np.savez(tmp_path / "data.npz", U=U, b=np.sum(U**2, axis=1) + rng.standard_normal(2000))
    asked = ["solve", tmp_path / "data.npz", "--delta", "1e-6", "--method", "gd", "--workers", "2"]
    command = subprocess.Popen(
        [sys.executable, "-m", "quadsense", *asked, "-o", tmp_path / "result.npz"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "2 workers" in command.stderr.readline()
    time.sleep(5.0)
    if how == "terminal":  # which sends it to the workers, too
        os.killpg(command.pid, signal.SIGINT)
    else:
        command.terminate()
    out, _ = command.communicate(timeout=60)
    assert command.returncode == 130 and "interrupted" in out
    assert (tmp_path / "result.npz").exists()
