"""A Dask cluster for the tests: two workers in this process, one for all tests of it."""

from functools import cache


@cache
def client():
    """A client of that cluster, the current one from then on."""
    from dask.distributed import Client

    named = {"processes": False, "dashboard_address": None}
    return Client(n_workers=2, threads_per_worker=1, **named)
