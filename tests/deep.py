"""Many generated cases, checked by several processes: ``make test-deep``.

Prints counts by category and by (cone, method, tolerance), lists every failure with its seed, and
ends with status 1 on any failure or where more than one case in 2,000 was left undecided although
it is clear of the edge.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing as mp
import multiprocessing.connection as connection
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import fuzz
import generator

HANG = 15.0
"""Seconds of processor time after which a case is interrupted: other work does not count."""

DEAF = 300.0
"""Seconds by the clock after which the process of a case is ended."""

MOST_UNDECIDED = 1 / 2000


class Hang(BaseException):
    """A case took too long."""


def _alarm(*_: Any) -> None:
    raise Hang


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """`Hang` is raised inside after so much work."""
    signal.signal(signal.SIGPROF, _alarm)
    signal.setitimer(signal.ITIMER_PROF, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def run(seed: int) -> fuzz.Outcome:
    """Check one case, interrupted where it hangs; a failure of the checker is a finding too."""
    case = generator.problem(seed)
    try:
        with alarm():
            return fuzz.check(case)
    except Hang:
        return lost(seed, "hang", f"no answer within {HANG:.0f} s of work")
    except Exception as error:
        return lost(seed, "checker", f"{type(error).__name__}: {error}")


def lost(seed: int, category: str, detail: str) -> fuzz.Outcome:
    """The outcome of a case that came to no end."""
    case = generator.problem(seed)
    key, words = fuzz.key_of(case), fuzz.words_of(case)
    return fuzz.Outcome(seed, category, detail, "", "", ((category, detail),), key, words, HANG)


def _work(pipe: Any) -> None:
    """Answer seeds with outcomes until told None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (seed := pipe.recv()) is not None:
        pipe.send(run(seed))


class Worker:
    """A process that checks one case at a time."""

    def __init__(self) -> None:
        self.pipe, theirs = mp.Pipe()
        self.process = mp.get_context("spawn").Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self.since = 0.0

    def give(self, seed: int | None) -> None:
        self.seed, self.since = seed, time.monotonic()
        self.pipe.send(seed)


def run_all(seeds: list[int], jobs: int) -> list[fuzz.Outcome]:
    """Every outcome; a process that dies or never answers is replaced."""
    waiting, outcomes = collections.deque(seeds), []
    workers = [Worker() for _ in range(min(jobs, len(seeds)))]
    for worker in workers:
        worker.give(waiting.popleft())
    while workers:
        ready = connection.wait([w.pipe for w in workers], timeout=1.0)
        for worker in list(workers):
            assert worker.seed is not None
            seed = worker.seed
            if worker.pipe in ready:
                try:
                    outcomes.append(worker.pipe.recv())
                except EOFError:
                    outcomes.append(lost(seed, "crash", "the process died"))
                    workers[workers.index(worker)] = worker = Worker()
            elif time.monotonic() - worker.since > DEAF:
                worker.process.kill()
                outcomes.append(lost(seed, "hang", "deaf to the alarm"))
                workers[workers.index(worker)] = worker = Worker()
            else:
                continue
            if len(outcomes) % 1000 == 0:
                print(f"{len(outcomes)} of {len(seeds)}", file=sys.stderr, flush=True)
            if waiting:
                worker.give(waiting.popleft())
            else:
                worker.pipe.send(None)
                workers.remove(worker)
    return sorted(outcomes, key=lambda o: o.seed)


def report(outcomes: list[fuzz.Outcome]) -> int:
    """Print the tables and every failure; the exit status."""
    total = len(outcomes)
    print(f"{total} cases, {sum(o.seconds for o in outcomes) / total * 1e3:.0f} ms each")
    for title, count in (
        ("category, the gravest of each case", collections.Counter(o.category for o in outcomes)),
        (
            "findings, all of each case",
            collections.Counter(
                name for o in outcomes for name in {name for name, _ in o.findings}
            ),
        ),
        ("status", collections.Counter(o.status or "(none)" for o in outcomes)),
    ):
        print(f"\n{title}")
        for name, times in count.most_common():
            print(f"  {times:7d}  {name}")
    bad = [o for o in outcomes if is_failure(o)]
    unclear = [o for o in outcomes if any(name == fuzz.UNDECIDED for name, _ in o.findings)]
    print("\n  cases failed undecided-but-clear  cone, method, tolerance")
    keys = collections.Counter(o.key for o in outcomes)
    failed = collections.Counter(o.key for o in bad)
    open_ = collections.Counter(o.key for o in unclear)
    for key in sorted(keys):
        print(f"{keys[key]:7d} {failed[key]:6d} {open_[key]:19d}  {', '.join(key)}")
    names = (*fuzz.FAILURES, "checker", fuzz.UNDECIDED, "no set found", "refused")
    for category in names:
        _list(
            category, [(o, text) for o in outcomes for name, text in o.findings if name == category]
        )
    too_many = len(unclear) > max(MOST_UNDECIDED * total, 0)
    print(f"\n{len(bad)} failures, {len(unclear)} undecided although clear, of {total}")
    return int(bool(bad) or too_many)


def is_failure(outcome: fuzz.Outcome) -> bool:
    """Whether this must not happen."""
    return outcome.failed or outcome.category == "checker"


def _list(category: str, found: list[tuple[fuzz.Outcome, str]]) -> None:
    """Every finding of a category; refusals and floating-point errors by their text."""
    if not found:
        return
    print(f"\n{category}: {len(found)}")
    if category not in ("refused", "floating point"):
        for o, text in found:
            what = f"{', '.join(o.key)} ({o.words}) | {text[:300]}"
            print(f"  python tests/deep.py --only {o.seed}  # {what}")
        return
    seeds = collections.defaultdict(list)
    for o, text in found:
        short = text if category == "floating point" else " ".join(text.split()[:6]) + " ..."
        seeds[short].append(o.seed)
    for text, those in sorted(seeds.items(), key=lambda item: -len(item[1])):
        print(f"  {len(those):5d}  {text} (seeds {', '.join(map(str, those[:5]))})")


def show(seed: int) -> int:
    """Everything about one case."""
    case = generator.problem(seed)
    print(f"seed {seed}: m = {case.m}, n = {case.n}, {case.wrapped}, {case.labels}, {case.notes}")
    for name in ("U", "b", "question", "options", "start"):
        print(f"{name} = {getattr(case, name)!r}")
    print(f"truth: {fuzz.truth.of(case)}")
    outcome = run(seed)
    print(f"status: {outcome.status}\nmessage: {outcome.message}\ncategory: {outcome.category}")
    for category, detail in outcome.findings:
        print(f"  {category}: {detail}")
    return int(is_failure(outcome) or outcome.category == fuzz.UNDECIDED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, help="reproduce one seed and print everything")
    arguments = parser.parse_args()
    if arguments.only is not None:
        return show(arguments.only)
    seeds = list(range(arguments.seed, arguments.seed + arguments.count))
    return report(run_all(seeds, arguments.jobs))


if __name__ == "__main__":
    sys.exit(main())
