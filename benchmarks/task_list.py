"""What benchmarks share: tasks by name, processes in an environment of their own, verdicts."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

Tasks = dict[str, Callable[[int], Iterator[str]]]
"""Each gives its lines for that many seeds."""


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


class Server:
    """A Python process that answers each line of JSON by one, in the untouched environment."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments], env=untouched_environment() | variables,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, *asked: Any) -> Any:
        """Return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def serve(answer: Callable[..., Any]) -> None:
    """Be a `Server`; what else is printed goes to the standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), file=answers, flush=True)


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The files of a revision, in a folder that goes away."""
    root = Path(__file__).resolve().parent.parent
    packed = subprocess.run(
        ["git", "-C", str(root), "archive", revision], check=True, stdout=subprocess.PIPE
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


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
