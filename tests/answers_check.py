"""Solve a case of `answers` and hold everything that is claimed against the truth.

python tests/answers_check.py [--count 400] [--seed 0] [--only SEED] [--default]

With ``--default`` each problem is asked for the default A, whatever else it would ask for.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import answers
import answers_objectives as objectives
import answers_truth as truth
import deep
import numpy as np

import quadsense
from quadsense import Status

CLOSE = 1e-5
"""Objectives agree up to this times 1 + their size."""

SOLVER = 1e-6
"""What the truths themselves may be wrong by, likewise."""

GAP = 1e-6
"""That is asked for, but where the smallest worst error is."""

WIDER = 0.01
"""An interval is at most so much of its width wider than the true one."""

Findings = list[str]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What was found: the kind of case, what was compared, and what is wrong."""

    seed: int
    kind: str
    compared: tuple[str, ...]
    findings: tuple[str, ...]


def solve(case: answers.Case) -> Any:
    """The result, floating-point errors and warnings being exceptions."""
    arguments = {**case.arguments, **gap_of(case)}
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        return quadsense.solve(case.data, case.b, **arguments)


def gap_of(case: answers.Case) -> dict[str, float]:
    """A gap that is `CLOSE`, for methods stop at the one that is asked."""
    if case.has_tolerance or case.preference.get("prefer") != "minimax":
        return {} if case.preference.get("prefer") == "any" else {"gap": GAP}
    value = objectives.best(truth.model(case), "minimax")
    return {"gap": min(0.01, 0.5 * CLOSE * (1.0 + value) / max(value, CLOSE))}


def check(case: answers.Case) -> Outcome:
    """Everything about one case."""
    compared: list[str] = []
    try:
        findings = _check(case, compared)
    except truth.Unsure as unsure:
        findings = []
        compared.append(f"truth unknown: {unsure}"[:40])
    kind = case.labels["preference"]
    return Outcome(case.seed, kind, tuple(compared), tuple(findings))


def _check(case: answers.Case, compared: list[str]) -> Findings:
    q = truth.model(case)
    soft = "slack" in case.preference
    fits = truth.verdict(q, soft or not case.has_tolerance)
    if case.allowed and fits != "feasible":
        fits = truth.verdict_of_sets(q)
    if fits == "edge":
        compared.append("edge")
        return []
    result = solve(case)
    compared.append("verdict")
    findings = verified(case, result)
    if fits == "infeasible":
        if result.status is not Status.INFEASIBLE:
            findings.append(f"infeasible, said {result.status}: {result.message}")
        return findings
    wanted = Status.MET if case.has_tolerance else Status.OPTIMAL
    inside = truth.verdict(q, False) if soft else fits
    if soft and inside != "feasible":
        wanted = Status.OPTIMAL
    weights = np.asarray(case.question.get("weights", 1.0))
    free = soft and not weights.all() and result.status is Status.OPTIMAL  # asked for nothing
    if result.status is not wanted and inside != "edge" and not free:
        return [*findings, f"feasible, said {result.status}: {result.message}"]
    if inside == "edge":
        return findings
    if len(result.set_aside) > case.allowed:
        return [*findings, f"set aside {result.set_aside}, {case.allowed} allowed"]
    if case.allowed:
        q = q.without(result.set_aside)
        compared.append(f"set aside {len(result.set_aside)}")
        if truth.verdict(q, False) != "feasible":
            return findings
    findings += objective(q, result, inside == "feasible", compared)
    if case.has_tolerance and not soft and case.seed % 3 == 0:
        findings += interval(q, result, compared)
    return findings


def best(q: truth.Model, result: Any, met: bool) -> tuple[str, float | None]:
    """Which preference was answered, and the best value of it; None where there is none."""
    case, prefer = q.case, str(result.prefer)
    if "slack" in case.preference:
        return prefer, 0.0 if met else objectives.least_slack(q, case.preference["slack"])
    if prefer == "any":
        return prefer, None
    if prefer == "nearest" and "prior" not in case.preference:
        return prefer, objectives.nearest_to(q, multiple_of_identity(q) * np.eye(case.n))
    return prefer, objectives.best(q, prefer)


def multiple_of_identity(q: truth.Model) -> float:
    """The multiple of I that fits rows of unit norm best, of those that read anything."""
    lo, hi, m = q.lo[: q.m], q.hi[: q.m], q.m
    squares = q.sizes
    traces = q.G[:m] @ q.coordinates(np.eye(q.case.n)) / squares
    both = np.isfinite(lo) & np.isfinite(hi)
    if q.case.b is not None:
        middle, told = q.reading[:m], np.ones(m, bool)
    else:
        unit = truth.units(squares, lo, hi)
        middle = np.where(np.isfinite(hi), hi - unit, np.where(np.isfinite(lo), lo + unit, 0.0))
        middle = np.where(both, (np.where(both, lo, 0) + np.where(both, hi, 0)) / 2, middle)
        told = np.isfinite(lo) | np.isfinite(hi)
    total = float(traces[told] @ traces[told])
    return float(traces[told] @ (middle / squares)[told]) / total * q.case.size if total else 0.0


def objective(q: truth.Model, result: Any, met: bool, compared: list[str]) -> Findings:
    """The objective, its bounds, and whether the right preference was answered."""
    findings = asked(q, result)
    prefer, value = best(q, result, met)
    if value is None:
        return findings
    compared.append(prefer)
    room = CLOSE * (1.0 + abs(value))
    reached, (lower, upper) = result.objective, result.objective_bounds
    if not abs(reached - value) <= room:
        findings.append(f"{prefer}: objective {reached:.9g}, truly {value:.9g}")
    slack = SOLVER * (1.0 + abs(value))
    if not lower - slack <= value <= upper + slack:
        findings.append(f"{prefer}: bounds {lower:.9g}, {upper:.9g}, truly {value:.9g}")
    if not lower <= reached * (1 + 1e-15) + 1e-300 and lower <= upper:
        findings.append(f"{prefer}: objective {reached!r} outside its bounds {lower!r}, {upper!r}")
    if result.optimal is not True:
        findings.append(f"{prefer}: optimal is {result.optimal}, bounds {lower:.9g}, {upper:.9g}")
    return findings


def asked(q: truth.Model, result: Any) -> Findings:
    """Whether the preference answered is the one asked for, or that which stands in for it."""
    case, used = q.case, str(result.prefer)
    if "slack" in case.preference:
        right = used == f"slack_{case.preference['slack']}"
        return [] if right else [f"slack {case.preference['slack']}, answered {used}"]
    wanted = case.preference.get("prefer", "auto")
    if wanted == "center" and used == "nearest":
        return [] if not truth.bounded(q) else ["nearest although the fits are a bounded set"]
    if wanted == "center" and used == "center":
        return [] if truth.bounded(q) else ["center although the fits are not a bounded set"]
    if wanted != "auto":
        return [] if used == wanted else [f"{wanted} asked for, answered {used}"]
    two = bool(np.any(np.isfinite(q.half[: q.m])))
    few = case.psd and truth.telling(q) < truth.DETERMINED and not case.preference.get("ridge", 0.0)
    right = "entropy" if few else "least_squares"
    if case.has_tolerance and not two:
        right = "nearest"
    tied = not case.has_tolerance and used == "least_squares"  # where A has no determinant
    return [] if used == right or tied else [f"auto answered {used}, not {right}"]


def interval(q: truth.Model, result: Any, compared: list[str]) -> Findings:
    """The range of a linear function over all fits: true, and not much too wide."""
    case = q.case
    given, C = case.asked
    low, high = objectives.interval(q, C)
    found = result.interval(given)
    lower, upper = float(found.lower), float(found.upper)
    compared.append("interval")
    size = case.size * (1.0 + max(abs(e) for e in (low, high, 0.0) if math.isfinite(e)) / case.size)
    tiny, findings = SOLVER * size, []
    # An infinite end may be stated as finite among matrices of a stated size only.
    below = lower <= low + tiny or (math.isinf(low) and found.lower_condition != "")
    above = upper >= high - tiny or (math.isinf(high) and found.upper_condition != "")
    if not (below and above):
        findings.append(f"interval [{lower:.9g}, {upper:.9g}] within [{low:.9g}, {high:.9g}]")
    width = high - low
    room = WIDER * width + tiny if math.isfinite(width) else WIDER * size
    for end, true in ((lower, low), (upper, high)):
        if math.isfinite(true) and not abs(end - true) <= room:
            findings.append(f"interval [{lower:.9g}, {upper:.9g}], truly [{low:.9g}, {high:.9g}]")
            break
    if case.allowed:
        return findings
    again = quadsense.interval(case.data, case.b, given, psd=case.psd, **case.question)
    if not (abs(again.lower - lower) <= room or again.lower == lower) or not (
        abs(again.upper - upper) <= room or again.upper == upper
    ):
        findings.append(f"interval by itself [{again.lower:.9g}, {again.upper:.9g}]")
    return findings


def verified(case: answers.Case, result: Any) -> Findings:
    """Whether what is claimed is found true, fresh and from a file."""
    if result.status not in (Status.MET, Status.OPTIMAL, Status.INFEASIBLE):
        return []
    findings = []
    names = ("delta", "rtol", "bounds", "mix", "conjugate")
    tolerance = {k: v for k, v in case.question.items() if k in names}
    for name, held in (("certificate", result.certificate), ("result", result)):
        if not held.verify(case.data, case.b, **tolerance):
            findings.append(f"fresh {name} not verified: {result.status}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.npz"
        result.save(path)
        again = quadsense.load_result(path)
    for name, held in (("certificate", again.certificate), ("result", again)):
        if not held.verify(case.data, case.b, **tolerance):
            findings.append(f"loaded {name} not verified: {result.status}")
    for name in ("status", "prefer", "objective", "objective_bounds", "optimal"):
        if repr(getattr(result, name)) != repr(getattr(again, name)):
            findings.append(f"a file loses {name}")
    return findings


def problem(seed: int, default: bool = False) -> answers.Case:
    """The case of this seed, or the same measurements asked for the default."""
    case = answers.problem(seed)
    if not default:
        return case
    labels = {**case.labels, "preference": "default"}
    preference = {name: case.preference[name] for name in ("psd",) if name in case.preference}
    return dataclasses.replace(case, preference=preference, labels=labels)


def run(seed: int, default: bool = False) -> Outcome:
    """Check a seed, interrupted where it hangs; an exception is a finding."""
    case = problem(seed, default)
    try:
        with deep.alarm():
            return check(case)
    except deep.Hang:
        text = f"no answer within {deep.HANG:.0f} s of work"
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return Outcome(seed, case.labels["preference"], (), (text,))


def _line(o: Outcome) -> str:
    return f"  python tests/answers_check.py --only {o.seed}  # {o.kind} | {'; '.join(o.findings)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", type=int, help="one seed, with everything about it")
    parser.add_argument("--default", action="store_true", help="ask for the default A")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "Solution may be inaccurate")
    if options.only is not None:
        case = problem(options.only, options.default)
        print(case)
        print(solve(case).message)
        print(check(case))
        return 0
    outcomes = []
    for seed in range(options.seed, options.seed + options.count):
        outcomes.append(run(seed, options.default))
        if outcomes[-1].findings:
            print(_line(outcomes[-1]), flush=True)
    for name, times in collections.Counter(c for o in outcomes for c in o.compared).most_common():
        print(f"{times:7d}  {name}")
    wrong = [o for o in outcomes if o.findings]
    print(f"{len(wrong)} of {len(outcomes)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
