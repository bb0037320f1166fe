"""Change the code that proves things, one operator at a time, and see whether a test notices.

    python tests/mutation.py [--count 200] [--seed 0] [--jobs 2] [--only checker]

A mutant is the source of one module with one change: a comparison turned or made strict, a sum made
a difference, a number one more, a condition negated, `and` made `or`. The changes are drawn from
all that there are, in the order of the seed; each is written into a copy of `src`, and the quick
tests of that module run until the first fails. Survivors are printed with their line. The exit
status is 1 where the score is below the goal.
"""

from __future__ import annotations

import argparse
import ast
import collections
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
GOAL = 0.95
SECONDS = 300.0
QUICK = "not (slow or deep or gpu or cluster or browser)"

TESTS = {
    "checker": (["quadsense_check.py"], ["tests/result/test_certificate_files.py"]),
    "certificate": (["quadsense/result/certificate.py"], ["tests/proofs", "tests/result"]),
    "proofs": (["quadsense/proofs/*.py"], ["tests/proofs", "tests/result"]),
}
"""Parts: their files below `src`, and the tests that are about them."""

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
    """One change: the part, the file, the place among the nodes of its tree, and in words."""

    part: str
    path: Path
    place: int
    line: int
    words: str
    text: str


def changed(node: ast.AST) -> ast.AST | None:
    """A node in place of that one, or None where there is nothing to change."""
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
        other.value = node.value + 1
    else:
        return None
    return other


class _Replace(ast.NodeTransformer):
    """Puts a node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def is_annotation(tree: ast.AST) -> set[int]:
    """The nodes of annotations, which nothing evaluates, and of messages."""
    found: set[int] = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            found |= {id(each) for each in ast.walk(part)} if part is not None else set()
        if isinstance(node, ast.JoinedStr | ast.Raise):
            found |= {id(each) for each in ast.walk(node)}
    return found


def chosen(parts: list[str], count: int, seed: int) -> list[Mutant]:
    """That number of mutants of these parts, an equal share of each; the same for the same seed."""
    found = []
    for part in parts:
        files = [path for name in TESTS[part][0] for path in sorted((ROOT / "src").glob(name))]
        places = [(path, node) for path in files for node in range(_nodes(path))]
        random.Random(seed).shuffle(places)
        taken = 0
        for path, place in places:
            if taken == count // len(parts):
                break
            mutant = _one(part, path, place)
            if mutant is not None:
                found.append(mutant)
                taken += 1
    return found


def _nodes(path: Path) -> int:
    """How many nodes the tree of a file has."""
    return sum(1 for _ in ast.walk(ast.parse(path.read_text())))


def _one(part: str, path: Path, place: int) -> Mutant | None:
    """The mutant of one node, where there is one."""
    tree = ast.parse(path.read_text())
    node = list(ast.walk(tree))[place]
    other = changed(node)
    if other is None or id(node) in is_annotation(tree):
        return None
    words = f"{ast.unparse(node)[:60]}  ->  {ast.unparse(other)[:60]}".replace("\n", " ")
    line = getattr(node, "lineno", 0)
    text = ast.unparse(ast.fix_missing_locations(_Replace(node, other).visit(tree)))
    return Mutant(part, path, place, line, words, text)


def survives(source: Path, mutant: Mutant | None, tests: list[str]) -> bool:
    """Whether the tests pass on a copy of `src` with that mutant in it."""
    target = None if mutant is None else source / mutant.path.relative_to(ROOT / "src")
    if target is not None and mutant is not None:
        target.write_text(mutant.text)
    environment = os.environ | {
        "PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", QUICK, *tests
    ]  # fmt: skip
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS, check=False
        )
        return run.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if target is not None and mutant is not None:
            shutil.copyfile(mutant.path, target)


def main() -> int:
    """Run the mutants, print the survivors and the score of each part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=tuple(TESTS), action="append")
    given = parser.parse_args()
    parts = given.only or list(TESTS)
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for k in range(given.jobs):
            shutil.copytree(ROOT / "src", Path(folder) / str(k))
            copies.put(Path(folder) / str(k))

        def judge(mutant: Mutant | None, tests: list[str]) -> bool:
            source = copies.get()
            try:
                return survives(source, mutant, tests)
            finally:
                copies.put(source)

        for part in parts:
            if not judge(None, TESTS[part][1]):
                print(f"the tests of {part} fail without any change")
                return 1
        tried = chosen(parts, given.count, given.seed)
        with ThreadPoolExecutor(given.jobs) as pool:
            alive = list(pool.map(lambda each: judge(each, TESTS[each.part][1]), tried))
    kept = collections.Counter(m.part for m, lives in zip(tried, alive, strict=True) if lives)
    for mutant, lives in zip(tried, alive, strict=True):
        if lives:
            print(f"survived: {mutant.path.relative_to(ROOT)}:{mutant.line}: {mutant.words}")
    for part in parts:
        count = sum(mutant.part == part for mutant in tried)
        print(f"{part}: {count - kept[part]} of {count} mutants noticed")
    score = 1.0 - sum(kept.values()) / max(len(tried), 1)
    print(f"score {score:.1%}, goal {GOAL:.0%}")
    return 0 if score >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
