"""Shared fixtures: every kind of array that U may be, and the command."""

import os
import signal
import sys
import tempfile

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings
from kinds import DEVICE, MISSING, torch

from quadsense import cli

# The same examples on every machine, and no clock: compilation would trip it.
settings.register_profile("quadsense", deadline=None, derandomize=True)
settings.load_profile("quadsense")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background job: tests of Ctrl-C want it as a user has it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Keep the speeds that somebody measured on this machine out of the plans that are tested."""
    cache = tempfile.TemporaryDirectory()
    os.environ["QUADSENSE_CACHE"] = cache.name
    config.add_cleanup(cache.cleanup)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark cases named after torch or Dask; skip all if a GPU is asked for and there is none."""
    for item in items:
        case = item.name.partition("[")[2]
        if "torch" in case:
            item.add_marker(pytest.mark.gpu)
        if "dask" in case:
            item.add_marker(pytest.mark.cluster)
        if MISSING:
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device here"))


def _numpy(U):
    return U


def _fortran(U):
    return np.asfortranarray(U)


def _read_only(U):
    U = U.copy()
    U.flags.writeable = False
    return U


def _strict(U):
    return array_api_strict.asarray(U)


def _sparse(U):
    return sp.csr_array(U)


KINDS = {
    "numpy": _numpy,
    "fortran": _fortran,
    "read-only": _read_only,
    "strict": _strict,
    "sparse": _sparse,
    "sparse-coo-matrix": lambda U: sp.coo_matrix(U),
}
if torch is not None:
    KINDS["torch"] = lambda U: torch.tensor(U, device=DEVICE)


@pytest.fixture(params=KINDS)
def kind(request):
    """Makes U of one kind from a NumPy array."""
    return KINDS[request.param]


@pytest.fixture(params=[False, True], ids=["real", "complex"])
def complex_(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20240501)


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command in this process; gives (exit status, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["quadsense", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        shown = capsys.readouterr()
        return stop.value.code, shown.out, shown.err

    return call
