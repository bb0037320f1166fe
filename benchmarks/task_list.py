"""Tasks of a benchmark by name: which of them to run, how often, and whether a line is kept."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from threadpoolctl import threadpool_limits

Tasks = dict[str, Callable[[int], Iterator[str]]]
"""Each gives its lines for so many seeds."""


def verdict(kept: bool) -> str:
    """The word for a target."""
    return "kept" if kept else "MISSED"


def run(tasks: Tasks, text: str | None, *, seeds: int) -> None:
    """Run the tasks that the command line names, on one BLAS thread, printing as they go."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=sorted(tasks), default=list(tasks))
    parser.add_argument("--seeds", type=int, default=seeds)
    options = parser.parse_args()
    with threadpool_limits(1):
        for name in options.only:
            for line in tasks[name](options.seeds):
                print(line, flush=True)
