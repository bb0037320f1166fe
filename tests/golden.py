"""What the package answers at one commit, written down, and compared with what it answers later.

    python tests/golden.py write [--file tests/golden.json.gz]
    python tests/golden.py compare [--file tests/golden.json.gz] [--jobs 2] [--only rank]
                                   [--count 200]

A change of structure is to change no answer. The file holds, for 2,000 problems of `generator.py`
that ask for one A of all that fit and 500 of `answers.py`, the status, the objective and its proven
bounds. `compare` solves them again and fails where a status is worse than before (undecided where
something was decided, an exception where there was an answer), where a decided status contradicts
the earlier one, or where objectives differ by more than the gap that was asked for allows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import multiprocessing as mp
import sys
from pathlib import Path
from typing import Any

import answers
import answers_check
import deep
import fuzz
import generator

FILE = Path(__file__).with_name("golden.json.gz")
GENERATED, ASKED = 2000, 500

DECIDED = ("met", "optimal", "local", "infeasible")
SAME = {"met": "fits", "optimal": "fits", "local": "fits", "infeasible": "infeasible"}

GAP = 0.01
"""The gap that is asked for by default, relative to the objective."""

ROUNDING = 1e-9
"""Relative differences that are none."""

Answer = dict[str, Any]


def names() -> list[tuple[str, int]]:
    """All problems: the generator and the seed."""
    generated = [("generator", generator.PREFERRED + seed) for seed in range(GENERATED)]
    return generated + [("answers", seed) for seed in range(ASKED)]


def answer(name: tuple[str, int]) -> Answer:
    """Return what the package answers to one problem."""
    kind, seed = name
    try:
        with deep.alarm():
            if kind == "generator":
                fuzz.Strict.level = len(fuzz.LEVELS) - 1
                result = fuzz.solve(generator.problem(seed))
            else:
                result = answers_check.solve(answers.problem(seed))
        low, high = result.objective_bounds or (None, None)
        return {
            "status": str(result.status),
            "prefer": result.prefer,
            "objective": _number(result.objective),
            "lower": _number(low),
            "upper": _number(high),
            "optimal": bool(result.optimal),
        }
    except deep.Hang:
        return {"status": "hang"}
    except (ValueError, TypeError, MemoryError) as error:
        return {"status": "refused", "message": str(error)}
    except Exception as error:
        return {"status": "exception", "message": f"{type(error).__name__}: {error}"}


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def chosen(only: str | None, count: int | None) -> list[int]:
    """Return the places of the problems to solve: over that cone, and that many at most."""
    places = [
        place
        for place, (kind, seed) in enumerate(names())
        if only is None or (kind == "generator" and generator.problem(seed).cone == only)
    ]
    return places[:count]


def answers_of(places: list[int], jobs: int) -> list[Answer]:
    """Return the answers to these problems, in order."""
    asked = names()
    with mp.get_context("spawn").Pool(jobs) as pool:
        return list(pool.imap(answer, [asked[place] for place in places], chunksize=10))


def differences(before: Answer, now: Answer) -> str:
    """Return what is worse now; empty where nothing is."""
    was, is_ = before["status"], now["status"]
    if was in DECIDED and is_ not in DECIDED:
        return f"{was} before, {is_} now {now.get('message', '')}"
    if was in DECIDED and SAME[was] != SAME[is_]:
        return f"{was} before, {is_} now: a contradiction"
    if is_ in ("exception", "hang") and was != is_:
        return f"{was} before, {is_} now {now.get('message', '')}"
    if before.get("optimal") and not now.get("optimal"):
        return "certified to be optimal before, not now"
    if was not in DECIDED or None in (before["objective"], now["objective"]):
        return ""
    if before["prefer"] != now["prefer"]:
        return f"prefer {before['prefer']} before, {now['prefer']} now"
    low = max(each["lower"] if each["lower"] is not None else -math.inf for each in (before, now))
    high = min(each["upper"] if each["upper"] is not None else math.inf for each in (before, now))
    size = max(abs(before["objective"]), abs(now["objective"]))
    if low > high + ROUNDING * size + sys.float_info.min:
        return f"bounds exclude each other: {before} before, {now} now"
    room = (
        max(each["upper"] - each["lower"] for each in (before, now)) if before["optimal"] else 0.0
    )
    if before["optimal"] and abs(before["objective"] - now["objective"]) > 2.0 * GAP * size + room:
        return f"objective {before['objective']:.6g} before, {now['objective']:.6g} now"
    return ""


def main() -> None:
    """Write the answers down, or compare with those that were."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", choices=("write", "compare"))
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--count", type=int, help="compare that many problems only, the first")
    parser.add_argument(
        "--only", choices=("symmetric", "psd", "rank"), help="compare those over that cone only"
    )
    given = parser.parse_args()
    some = given.task == "compare"
    places = chosen(given.only if some else None, given.count if some else None)
    now = answers_of(places, given.jobs)
    if given.task == "write":
        text = json.dumps(now, separators=(",", ":"))
        given.file.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{len(now)} answers, {given.file.stat().st_size / 1024:.0f} KiB: {given.file.name}")
        return
    written = json.loads(gzip.decompress(given.file.read_bytes()))
    before, asked = [written[place] for place in places], [names()[place] for place in places]
    worse = 0
    for (kind, seed), old, new in zip(asked, before, now, strict=True):
        if what := differences(old, new):
            worse += 1
            print(f"{kind} {seed}: {what}")
    better = sum(
        old["status"] not in DECIDED and new["status"] in DECIDED
        for old, new in zip(before, now, strict=True)
    )
    print(f"{len(now)} problems: {worse} worse, {better} decided now that were not")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
