"""Change the code that proves things, one operator at a time, and see whether a test notices.

    python tests/mutation.py [--count 120] [--seed 0] [--jobs 2] [--only rounding --only checker]

A mutant is the source of one module with one change: a comparison turned or made strict, a sum made
a difference, a number one more, a condition negated, `and` made `or`. The changes are drawn in the
order of the seed from all that there are, of each module its share. First all tests run once, and
it is written down which of them run which line. The code of each mutant is put in the place of the
functions of its module, and the tests that run its line follow until one fails: those in the file
named after the module, then the others, the shortest first; where none runs the line (values found
when a module is imported, other processes), those that run the module. A mutant that takes too long
is noticed, too.

Not changed, because it claims nothing: annotations, messages, what is told to the clock (`look`),
limits of work and sizes of blocks (`OF_WORK`, `OF_BLOCKS`). A number in a bound on rounding is not
made one more, which would only make the bound larger, but 0.

Survivors are printed with their lines; those in `tests/mutation_argued.txt` are no mistakes, for
the reason given there, and do not count. The exit status is 1 where the score is below the goal.
"""

from __future__ import annotations

import argparse
import ast
import collections
import copy
import gc
import hashlib
import importlib
import inspect
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
ARGUED = ROOT / "tests" / "mutation_argued.txt"
GOAL = 0.95
QUICK = "not (slow or deep or gpu or cluster or browser)"
TESTS = (
    "tests/proofs", "tests/result", "tests/ranges", "tests/core/test_adjoint_sums.py",
    "tests/core/test_row_terms.py",
)  # fmt: skip

FILES = (
    "quadsense_check.py",
    "quadsense/certificates.py",
    "quadsense/result/certificate.py",
    "quadsense/proofs/*.py",
    "quadsense/core/sums.py",
    "quadsense/core/row_terms.py",
    "quadsense/core/smooth_terms.py",
)
"""What is changed, below `src`."""

CLAIMS = {
    "add_conjugate", "enclosed", "excess", "floor", "impossible", "logarithms_of_ends",
    "permitted", "priced", "reached", "slopes_at_zero", "widened", "_allowed", "_missed", "_used",
}  # fmt: skip
"""The functions of row terms by which something is proved; the others serve the methods."""

NAMES = {"quadsense_check": "checker", "certificates": "writer"}
"""Names of modules on the command line that are not those of their files."""

LEAST_SECONDS, TIMES_AS_LONG = 30.0, 10.0
"""A mutant may take this long, and this many times what its tests took before."""

WORST_CASE_TESTS = 400
"""Tests that a mutant is put to at most."""

PRELOADED = (
    "array_api_strict", "clarabel", "cvxpy", "highspy", "jsonschema", "matplotlib",
    "numba", "numpy.testing", "pytest", "scipy.linalg", "scipy.optimize", "scipy.sparse.linalg",
    "scipy.stats", "sklearn.base", "torch",
)  # fmt: skip
"""Imported once, before processes are forked: not the package."""

OF_WORK = re.compile(r"(^MAX_|^MIN_|^MOST_|^FEW$|FLOPS$|BYTES$|STEPS$|SHARES$|WORK$|SECONDS$)")

OF_BLOCKS = {"width", "together"}
"""Sizes of blocks, whatever which the result is the same."""

OF_ROUNDING = {
    "UNIT", "EPS", "ROUNDINGS", "COMPLEX", "OF_ERRORS", "OF_NORMS", "UNDERFLOW", "SUM_ROUNDINGS",
    "PRODUCT_UNDERFLOW", "LIFT_ROUNDINGS", "ROUNDED_PARTS", "SPARE", "SPARE_OF_NESTED",
}  # fmt: skip
"""Factors of bounds on rounding, by name."""

BOUNDS = {"gamma", "sum_error", "factorisation_error", "sum_terms"}
"""Functions that bound rounding by counts of operations."""

TURNED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.And: ast.Or,
    ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
"""What becomes of an operator."""


@dataclass(frozen=True)
class Mutant:
    """One change: the file below `src`, the place among the nodes of its tree, and in words."""

    path: str
    place: int
    line: int
    last: int
    where: str
    words: str
    at_import: bool

    @property
    def module(self) -> str:
        """Name of the module."""
        return _module(self.path)

    @property
    def text(self) -> str:
        """What `tests/mutation_argued.txt` has of it."""
        return f"{self.module}.{self.where}: {self.words}"

    def tree(self) -> ast.Module:
        """Return the module with the change."""
        tree = ast.parse((SRC / self.path).read_text())
        node = list(ast.walk(tree))[self.place]
        other = changed(node, node in _in_bounds(tree))
        assert other is not None
        return ast.fix_missing_locations(_Replace(node, ast.copy_location(other, node)).visit(tree))


def _module(path: str) -> str:
    stem = Path(path).stem
    return NAMES.get(stem, stem)


def changed(node: ast.AST, in_bound: bool) -> ast.AST | None:
    """Return a node in place of that one, or None where there is nothing to change."""
    other = copy.copy(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
        other.ops = [TURNED[type(node.ops[0])]()]
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in TURNED:
        other.op = TURNED[type(node.op)]()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return node.operand
    elif isinstance(node, ast.If | ast.IfExp):
        other.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if in_bound and node.value == 0:
            return None
        other.value = type(node.value)(0) if in_bound else node.value + 1
    else:
        return None
    return other


class _Replace(ast.NodeTransformer):
    """Puts a node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _left_out(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes of annotations, messages, announcements and limits of work."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        found += [part for name in ("annotation", "returns") if (part := getattr(node, name, None))]
        announces = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "look"
        sizes = isinstance(node, ast.Assign) and _names(node) & OF_BLOCKS
        if announces or sizes or isinstance(node, ast.JoinedStr | ast.Raise):
            found.append(node)
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names = _names(node)
            found += [node] if names and all(OF_WORK.search(name) for name in names) else []
        elif isinstance(node, ast.If):  # of the command line
            found.append(node)
    return {each for part in found for each in ast.walk(part)}


def _names(node: ast.Assign) -> set[str]:
    """Return the names that are assigned to."""
    parts = (each for part in node.targets for each in ast.walk(part))
    return {each.id for each in parts if isinstance(each, ast.Name)}


def _in_bounds(tree: ast.Module) -> set[ast.AST]:
    """Return the numbers that are factors of bounds on rounding, or counts in them."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in BOUNDS:
            found |= {each for part in node.args for each in ast.walk(part)}
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            parts = _factors(node)
            if any(isinstance(part, ast.Name) and part.id in OF_ROUNDING for part in parts):
                found |= set(parts)
    return {each for each in found if isinstance(each, ast.Constant)}


def _factors(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factors(node.left) + _factors(node.right)
    return [node]


def mutants(path: str) -> list[Mutant]:
    """Return all mutants of a file."""
    tree = ast.parse((SRC / path).read_text())
    out, bounds, found = _left_out(tree), _in_bounds(tree), []
    where: dict[ast.AST, str] = {}
    for node in ast.walk(tree):  # from the outside in
        name = getattr(node, "name", "") if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
        for child in ast.iter_child_nodes(node):
            own = name if isinstance(node, ast.FunctionDef) or name else where.get(node, "")
            where[child] = own or "module"
    inside = {each for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)
              for part in ([node.body] if isinstance(node, ast.Lambda) else node.body)
              for each in ast.walk(part)}  # fmt: skip
    for place, node in enumerate(ast.walk(tree)):
        method = path.endswith("_terms.py") and where.get(node) not in CLAIMS
        other = None if node in out or method else changed(node, node in bounds)
        if other is None:
            continue
        line = getattr(node, "lineno", 0)
        last = node.test.end_lineno if isinstance(node, ast.If) else getattr(node, "end_lineno", 0)
        old = node.test if isinstance(node, ast.If) else node
        new = other.test if isinstance(other, ast.If) else other
        words = " ".join(f"{ast.unparse(old)}  ->  {ast.unparse(new)}".split())
        if isinstance(node, ast.Constant):
            words += f"  in  {' '.join((SRC / path).read_text().splitlines()[line - 1].split())}"
        found.append(Mutant(path, place, line, last, where[node], words, node not in inside))
    return found


def chosen(names: list[str], count: int, seed: int) -> list[Mutant]:
    """Return that number of mutants, of each module its share; the same for the same seed."""
    paths = [
        str(path.relative_to(SRC)) for name in FILES for path in sorted(SRC.glob(name))
        if not names or _module(str(path)) in names
    ]  # fmt: skip
    every = {path: mutants(path) for path in paths}
    total = sum(map(len, every.values()))
    found = []
    for each in every.values():
        share = round(count * len(each) / total)
        found += sorted(each, key=lambda mutant: _drawn(mutant, seed))[:share]
    return found


def _drawn(mutant: Mutant, seed: int) -> str:
    """Return a random number: a change elsewhere in the module does not change what is drawn."""
    return hashlib.sha256(f"{seed} {mutant.text}".encode()).hexdigest()


# --- which tests run which line --------------------------------------------------------------


class _Watch:
    """A plugin of pytest: lines by test, and how long each test takes."""

    def __init__(self, source: Path) -> None:
        import coverage

        files = [str(path) for name in FILES for path in source.glob(name)]
        self.cover = coverage.Coverage(data_file=None, include=files, config_file=False)
        self.cover.start()
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self.source = source

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.cover.switch_context(nodeid)

    def pytest_runtest_logfinish(self) -> None:
        self.cover.switch_context("")

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration

    def found(self) -> dict[str, Any]:
        """Return seconds by test, and tests by line of each file."""
        self.cover.stop()
        data = self.cover.get_data()
        lines = {
            str(Path(name).relative_to(self.source)): {
                line: [each for each in tests if each]
                for line, tests in data.contexts_by_lineno(name).items()
            }
            for name in data.measured_files()
        }
        return {"seconds": self.seconds, "lines": lines}


def on(source: Path) -> None:
    """Take the package from there, in this process and in those that it starts."""
    os.setsid()
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(source)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.path.insert(0, str(source))
    sys.dont_write_bytecode = True


def tested(arguments: list[str], output: Path, *plugins: Any) -> int:
    """Run tests, and return the exit status; what they print goes to a file."""
    import pytest

    kept = os.dup(1), os.dup(2)
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        command = ["-q", "-p", "no:cacheprovider", "-m", QUICK, *arguments]
        return int(pytest.main(command, plugins=plugins))
    finally:
        sys.stdout.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)


def forked(work: Callable[[], int]) -> int:
    """Do that in a process of its own, and return its number."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 2
    try:
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def replaced(mutant: Mutant, source: Path) -> None:
    """Put the code of a mutant in the place of the functions of that module, in this process."""
    path = str(source / mutant.path)
    found = {}

    def outermost(code: CodeType) -> None:
        for each in code.co_consts:
            if isinstance(each, CodeType):
                if each.co_flags & inspect.CO_OPTIMIZED:
                    found[each.co_qualname, each.co_firstlineno] = each
                else:
                    outermost(each)

    outermost(compile(mutant.tree(), path, "exec"))
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == path:
            key = each.__code__.co_qualname, each.__code__.co_firstlineno
            if key in found:
                each.__code__ = found[key]


def ended(child: int, seconds: float) -> int | None:
    """Return the exit status of a process; None where it had to be ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def tests_for(mutant: Mutant, known: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the tests that run what is changed, the shortest first: those named so, and others."""
    lines, own = known["lines"].get(mutant.path, {}), f"test_{mutant.module}.py"
    span = map(str, range(mutant.line, mutant.last + 1))
    found = set() if mutant.at_import else {test for line in span for test in lines.get(line, ())}
    if not found:
        found = {test for tests in lines.values() for test in tests}
        found |= {test for test in known["seconds"] if own in test}
    order = sorted(found, key=lambda test: (known["seconds"][test], test))
    others = [test for test in order if own not in test]
    return [test for test in order if own in test], others[:WORST_CASE_TESTS]


def judged(tried: list[Mutant], known: dict[str, Any], folder: Path, jobs: int) -> list[bool]:
    """Return which mutants are noticed."""
    children = [
        forked(lambda slot=slot: _judge_some(tried, known, folder, slot, jobs))
        for slot in range(jobs)
    ]
    for child in children:
        os.waitpid(child, 0)
    return [(folder / f"verdict-{k}").read_text() == "noticed" for k in range(len(tried))]


def _judge_some(
    tried: list[Mutant], known: dict[str, Any], folder: Path, slot: int, jobs: int
) -> int:
    """Judge every jobs-th mutant in a copy of `src` of its own."""
    source, output = folder / str(slot), folder / f"{slot}.txt"
    shutil.copytree(SRC, source, dirs_exist_ok=True)
    mine = range(slot, len(tried), jobs)
    # Constants are read as modules are imported: before the tests are.
    for at_import in (True, False):
        if not at_import:
            on(source)
            tested(["--collect-only", *known["tests"]], output)
        for k in mine:
            if tried[k].at_import is at_import:
                lives = survives(tried[k], known, source, output)
                (folder / f"verdict-{k}").write_text("" if lives else "noticed")
                mark = "survived" if lives else "noticed"
                print(f"{k + 1}/{len(tried)} {mark}: {tried[k].text}", file=sys.stderr, flush=True)
    return 0


def survives(mutant: Mutant, known: dict[str, Any], source: Path, output: Path) -> bool:
    """Return whether the tests pass on a copy of `src` with that mutant in it."""
    target = source / mutant.path
    target.write_text(ast.unparse(mutant.tree()))  # for other processes, and for what is imported

    def work(some: list[str]) -> int:
        if mutant.at_import:
            on(source)
        else:
            os.setsid()
            replaced(mutant, source)
        return tested(["-x", *some], output)

    try:
        for some in tests_for(mutant, known):
            seconds = LEAST_SECONDS + TIMES_AS_LONG * sum(known["seconds"][test] for test in some)
            if some and ended(forked(partial(work, some)), seconds) != 0:
                return False
        return True
    finally:
        shutil.copy2(SRC / mutant.path, target)


def argued() -> dict[str, str]:
    """Return the survivors that are no mistakes, and why."""
    found, reason = {}, ""
    for line in ARGUED.read_text().splitlines() if ARGUED.exists() else ():
        if line.startswith("# "):
            reason = line[2:]
        elif line.strip():
            found[line.strip()] = reason
    return found


def main() -> int:
    """Run the mutants, print the survivors and the score of each module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", help="a module: rounding, ..., writer, checker")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="in place of all those")
    parser.add_argument("--known", type=Path, help="file to keep which tests run which line in")
    given = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        global SRC  # as it is now, whatever is written meanwhile
        SRC = Path(shutil.copytree(SRC, folder / "src"))
        tried = chosen(given.only or [], given.count, given.seed)
        shutil.copytree(SRC, folder / "0")
        known = known_tests(folder, list(given.tests), given.known)
        if known is None:
            print("the tests fail without any change")
            return 1
        noticed = judged(tried, known, folder, given.jobs)
    return reported(tried, noticed)


def known_tests(folder: Path, tests: list[str], kept: Path | None) -> dict[str, Any] | None:
    """Return which tests run which line; None where they fail without any change."""
    source, found = folder / "0", kept or folder / "known.json"

    def work() -> int:
        on(source)
        watch = _Watch(source)
        status = tested(tests, folder / "all.txt", watch)
        found.write_text(json.dumps(watch.found() | {"tests": tests}))
        return status

    known = found.exists() and json.loads(found.read_text())["tests"] == tests
    if not known and ended(forked(work), 3600.0) != 0:
        print((folder / "all.txt").read_text()[-3000:])
        return None
    return dict(json.loads(found.read_text()))


def reported(tried: list[Mutant], noticed: list[bool]) -> int:
    """Print the survivors and the scores; return the exit status."""
    reasons = argued()
    kept = [mutant for mutant, found in zip(tried, noticed, strict=True) if not found]
    for mutant in kept:
        why = reasons.get(mutant.text)
        word = f"argued ({why})" if why else "survived"
        print(f"{word}: src/{mutant.path}:{mutant.line}: {mutant.text}")
    fair = [mutant for mutant in kept if mutant.text not in reasons]
    for module in dict.fromkeys(mutant.module for mutant in tried):
        count, lost, free = (
            sum(mutant.module == module for mutant in some) for some in (tried, kept, fair)
        )
        print(f"{module}: {count - lost} of {count} noticed, {lost - free} argued, {free} survived")
    score = 1.0 - len(fair) / max(len(tried) - len(kept) + len(fair), 1)
    print(f"{len(tried)} mutants, {len(tried) - len(kept)} noticed, {len(kept) - len(fair)} argued")
    print(f"score {score:.1%}, goal {GOAL:.0%}")
    return 0 if score >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
