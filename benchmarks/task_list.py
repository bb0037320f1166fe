"""Tasks of a benchmark by name: which of them to run, how often, and whether a line is kept."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator

from threadpoolctl import threadpool_info

Tasks = dict[str, Callable[[int], Iterator[str]]]
"""Each gives its lines for so many seeds."""


def verdict(kept: bool) -> str:
    """The word for a target."""
    return "kept" if kept else "MISSED"


THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def untouched_environment() -> dict[str, str]:
    """Return the environment without thread variables, as most users have it."""
    return {key: value for key, value in os.environ.items() if key not in THREAD_VARIABLES}


def say_threads() -> None:
    """Print how many threads BLAS may use; exit where a thread variable is set."""
    for name in THREAD_VARIABLES:
        if name in os.environ:
            sys.exit(f"{name} is set: benchmarks run in the untouched environment, so unset it")
    counts = [str(each["num_threads"]) for each in threadpool_info() if each["user_api"] == "blas"]
    print(f"untouched environment: BLAS may use {' and '.join(counts)} threads", flush=True)


def run(tasks: Tasks, text: str | None, *, seeds: int) -> None:
    """Run the tasks that the command line names, in the untouched environment."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=sorted(tasks), default=list(tasks))
    parser.add_argument("--seeds", type=int, default=seeds)
    options = parser.parse_args()
    say_threads()
    for name in options.only:
        for line in tasks[name](options.seeds):
            print(line, flush=True)
