"""Dask clusters for the tests: two workers in this process for all of them, and others at need."""

from contextlib import contextmanager
from functools import cache

HERE = {"processes": False, "dashboard_address": ":0", "threads_per_worker": 1}


@cache
def client():
    """A client of the cluster of all tests, the current one from then on."""
    from dask.distributed import Client

    return Client(n_workers=2, **HERE)


@contextmanager
def cluster(count, **named):
    """A client, not the current one, of another cluster of that many workers."""
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=count, **{**HERE, **named}) as held,
        Client(held, set_as_default=False) as found,
    ):
        yield found
