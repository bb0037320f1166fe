"""
Rows on a cluster
=================

A detector writes a file every minute: probes and what was read, each reading good to 1%. Some
hundred such files are more than a laptop holds, and you have a Dask cluster. The call is the one that
you know; the workers read the files, and only what has the size of A, and one number per reading, travels.

Here the cluster is two workers within this process, and the files are small, so that the page can be
built anywhere. What changes for a real one is the address of its scheduler.
"""

# %%
# The files: twelve shards of 500 measurements of a covariance matrix of order 24.

import logging
import tempfile
from pathlib import Path

import dask
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster, get_task_stream

import quadsense

rng = np.random.default_rng(0)
n, shards, rows = 24, 12, 500
X = rng.standard_normal((n, n)) / np.sqrt(n)
A_true = X @ X.T
folder = tempfile.TemporaryDirectory()
paths = [Path(folder.name, f"part-{k:03}.npz") for k in range(shards)]
readings = []
for path in paths:
    U = rng.standard_normal((rows, n))
    exact = np.einsum("ij,jk,ik->i", U, A_true, U)
    readings.append(exact * (1.0 + 0.002 * rng.standard_normal(rows)))
    np.savez(path, U=U, b=readings[-1])
b = np.concatenate(readings)

# %%
# A cluster, and a client of it. On yours it is ``Client("tcp://10.0.0.1:8786")``, or what
# dask-jobqueue, Coiled or Kubernetes give you; every worker needs quadsense, and the files under the
# same names.

cluster = LocalCluster(
    n_workers=2,
    threads_per_worker=1,
    processes=False,  # a script of your own: leave this out, behind a __main__ guard
    dashboard_address=None,
    silence_logs=logging.ERROR,
)
client = Client(cluster)

# %%
# U is a ``dask.array``, one chunk per file: whatever reads *your* files stands in the place of
# ``load``. Files of any of :doc:`our formats </files>` need no such array:
# ``Measurements.open("run7/part-*.h5").on(client)`` has the workers read them, 32 MiB at a time.

load = dask.delayed(lambda path: np.load(path)["U"])
U = da.concatenate([da.from_delayed(load(p), (rows, n), float) for p in paths])
with get_task_stream(client) as stream:
    result = quadsense.solve(U, b, rtol=0.01, prefer="any")
print(result.message)

# %%
# The certificate is checked by the workers, or by anyone who has the files, here the folder of
# them. The answer is that of one process; some of its steps are in single precision there.

data = quadsense.Measurements.open(folder.name, rtol=0.01)
here = quadsense.solve(data, prefer="any")
print(result.certificate.verify(U, b), result.certificate.verify(data))
off = np.linalg.norm(result.A - here.A) / np.linalg.norm(here.A)
print(f"differs from the answer of one process by {off:.0e}")
error = np.linalg.norm(result.A - A_true) / np.linalg.norm(A_true)
print(f"error of A: {error:.2%}")

# %%
# What the workers did
# --------------------
# A product with all rows is one task per part, and a sum goes up a tree of them. How rows are divided
# follows from the data alone, never from the workers, so that one worker or a hundred, or one that
# is killed on the way, give the same bits. With files this small the workers mostly wait for what
# travels; :doc:`/scaling` says from which size on they do not.

KINDS = {
    "forward": "#1b6ca8",
    "adjoint": "#2e8b57",
    "add": "#d39c2f",
}
figure, (left, right) = plt.subplots(
    1, 2, width_ratios=(2.2, 1), figsize=(7.2, 3.2), layout="constrained"
)
workers = sorted({each["worker"] for each in stream.data})
began = min(each["startstops"][0]["start"] for each in stream.data)
shown = set()
for each in stream.data:
    name = str(each["key"]).removeprefix("quadsense_").partition("-")[0]
    name = name if name in KINDS else "others"
    for span in each["startstops"]:
        if span["action"] != "compute":
            continue
        left.barh(
            workers.index(each["worker"]),
            1e3 * (span["stop"] - span["start"]),
            left=1e3 * (span["start"] - began),
            height=0.6,
            color=KINDS.get(name, "#6b6b6b"),
            label=None if name in shown else name,
        )
        shown.add(name)
left.set_yticks(
    range(len(workers)), [f"worker {k}" for k in range(len(workers))]
)
left.set(xlabel="milliseconds", title="Tasks of the solve", ylim=(-0.5, 2.1))
left.legend(loc="upper center", ncols=5, columnspacing=1.0, handlelength=1.0)
right.hist(result.residuals / (0.01 * b), bins=41, color="#1b6ca8")
right.axvline(-1.0, color="#c8553d")
right.axvline(1.0, color="#c8553d")
right.set(xlabel="residual, in tolerances", title="All within", yticks=[])
plt.show()

# %%
# Close what was opened.

client.close()
cluster.close()
folder.cleanup()

# %%
# What next
# ---------
# * :doc:`/scaling`: which sizes go where, a model of memory, bytes and time, and
#   ``quadsense inspect --n 10000 --m 1e9 --workers 64``, which prints it for yours.
# * :doc:`/cluster`: killed workers, stopped workers, lost schedulers; ``checkpoint=`` for runs that
#   outlive their cluster.
# * From the shell: ``quadsense solve "run7/part-*.h5" --delta 0.01 --scheduler tcp://10.0.0.1:8786``.
